/* Polygraphy's RunResults (`polygraphy run --save-outputs`): {"lst": [[runner, [iteration, ...]], ...]}, where
 * an iteration is {"outputs": {name: {"values": {"array": base64 of a .npy}}}, ...}. Files of older versions
 * have the array without "values", or a .npz in the place of the .npy. */
#include <errno.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>
#include <nettle/base64.h>
#include <zip.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "record/import/imported.h"
#include "record/probes/npz.h"

struct poly {
    struct nd_imported *imported;
    const char *path;
};

/* ---- one array ---- */

/* The bytes behind the text of an "array". */
static enum nd_status decode_base64(const struct poly *poly, const char *what, const json_t *text,
                                    uint8_t **out, size_t *n_out, struct nd_error *err)
{
    size_t n = json_string_length(text), n_decoded = 0;
    struct base64_decode_ctx context;
    uint8_t *bytes = nd_calloc(BASE64_DECODE_LENGTH(n) + 1, 1);
    ND_TRY_MEMORY(bytes != NULL, err);
    base64_decode_init(&context);
    if (base64_decode_update(&context, &n_decoded, bytes, n, json_string_value(text)) == 0 ||
        base64_decode_final(&context) == 0) {
        free(bytes);
        return nd_fail(err, ND_E_IMPORT_FORMAT, poly->path, "%s is no base64", what);
    }
    *out = bytes;
    *n_out = n_decoded;
    return ND_OK;
}

/* One output of one iteration. */
struct output {
    const char *name, *what; /* what: for messages */
    size_t sample;
};

/* The archive's only array. libzip reads files, so it gets one that has no name. */
static enum nd_status add_npz(const struct poly *poly, const struct output *output, const uint8_t *bytes,
                              size_t n_bytes, struct nd_error *err)
{
    char link[64];
    struct nd_npz *npz = NULL;
    struct nd_source source = {0};
    int fd = memfd_create("npudiff-npz", MFD_CLOEXEC);
    if (fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, poly->path, "%s: no memory file: %s", output->what,
                       strerror(errno));
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    enum nd_status status = nd_file_write_all(fd, bytes, n_bytes, poly->path, err);
    if (status == ND_OK)
        status = nd_npz_open(link, &npz, err);
    if (status == ND_OK && nd_npz_n_arrays(npz) != 1)
        status = nd_fail(err, ND_E_IMPORT_FORMAT, poly->path, "a .npz with %zu arrays, expected one",
                         nd_npz_n_arrays(npz));
    if (status == ND_OK)
        status = nd_npz_source(npz, 0, &source, err);
    if (status == ND_OK)
        status = nd_npy_add(poly->imported, ND_IMPORTED_OUTPUT, output->name, output->sample, &source, err);
    nd_source_close(&source);
    nd_npz_close(&npz);
    close(fd);
    if (status != ND_OK)
        nd_error_context(err, "%s", output->what);
    return status;
}

/* Reads from memory, which is borrowed until the source is closed. `path` is the file that it is from, `what`
 * what it is in messages. ND_ERR_MEMORY. */
static enum nd_status source_from_memory(struct nd_source *source, const char *path, const char *what,
                                         const void *bytes, size_t size_bytes, struct nd_error *err)
{
    struct nd_source made = {
        .memory = bytes, .size_bytes = size_bytes, .path = nd_strdup(path), .what = nd_strdup(what)};
    if (made.path == NULL || made.what == NULL) {
        nd_source_close(&made);
        return nd_fail_memory(err);
    }
    *source = made;
    return ND_OK;
}

static enum nd_status add_bytes(const struct poly *poly, const struct output *output, const uint8_t *bytes,
                                size_t n_bytes, struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    if (n_bytes >= 4 && memcmp(bytes, "PK\003\004", 4) == 0)
        return add_npz(poly, output, bytes, n_bytes, err);
    ND_TRY(source_from_memory(&source, poly->path, output->what, bytes, n_bytes, err));
    return nd_npy_add(poly->imported, ND_IMPORTED_OUTPUT, output->name, output->sample, &source, err);
}

static enum nd_status add_array(const struct poly *poly, const char *name, const json_t *value, size_t sample,
                                struct nd_error *err)
{
    ND_FREED char *what = nd_text("output '%s' of iteration %zu in '%s'", name, sample, poly->path);
    ND_FREED uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    const json_t *values = json_object_get(value, "values");
    const json_t *text = json_object_get(values != NULL ? values : value, "array");
    ND_TRY_MEMORY(what != NULL, err);
    if (json_object_get(values != NULL ? values : value, "tensor") != NULL)
        return nd_fail(err, ND_E_IMPORT_TYPE, poly->path,
                       "%s is a PyTorch tensor (a pickle), which is never loaded", what);
    if (!json_is_string(text))
        return nd_fail(err, ND_E_IMPORT_FORMAT, poly->path, "%s has no text 'array'", what);
    ND_TRY(decode_base64(poly, what, text, &bytes, &n_bytes, err));
    return add_bytes(poly, &(const struct output){name, what, sample}, bytes, n_bytes, err);
}

/* ---- runners and iterations ---- */

static enum nd_status add_iteration(const struct poly *poly, const json_t *iteration, size_t sample,
                                    struct nd_error *err)
{
    const char *name;
    json_t *value;
    json_t *outputs = json_object_get(iteration, "outputs");
    size_t n_before = poly->imported->sides[ND_IMPORTED_OUTPUT].n;
    if (!json_is_object(outputs))
        return nd_fail(err, ND_E_IMPORT_FORMAT, poly->path, "iteration %zu in '%s' has no object 'outputs'",
                       sample, poly->path);
    json_object_foreach(outputs, name, value) {
        if (strcmp(name, "polygraphy_class") == 0)
            continue;
        ND_TRY(add_array(poly, name, value, sample, err));
    }
    if (sample > 0 && poly->imported->sides[ND_IMPORTED_OUTPUT].n != n_before)
        return nd_fail(err, ND_E_IMPORT_FORMAT, poly->path,
                       "iteration %zu in '%s' has outputs that the first has not", sample, poly->path);
    return ND_OK;
}

/* Names of all runners, for messages. */
static char *list_runners(const json_t *list)
{
    struct nd_strbuf text = {0};
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(json_array_get(item, 0));
        nd_strbuf_printf(&text, "%s'%s'", i > 0 ? ", " : "", name != NULL ? name : "?");
    }
    return nd_strbuf_take(&text);
}

/* The iterations of the runner that is asked for, or of the only one. */
static enum nd_status choose_runner(const struct poly *poly, const json_t *list, const char *runner,
                                    const json_t **out, struct nd_error *err)
{
    const json_t *item, *found = NULL;
    size_t i, n_found = 0;
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(json_array_get(item, 0));
        if (name == NULL || !json_is_array(json_array_get(item, 1)))
            return nd_fail(err, ND_E_IMPORT_FORMAT, poly->path,
                           "'%s': entry %zu of 'lst' is not a runner's name and its iterations", poly->path, i);
        if (runner != NULL && strcmp(name, runner) != 0)
            continue;
        found = json_array_get(item, 1);
        n_found++;
    }
    if (n_found == 1) {
        *out = found;
        return ND_OK;
    }
    ND_FREED char *names = list_runners(list);
    return runner != NULL
               ? nd_fail(err, ND_E_IMPORT_NOTHING, poly->path, "'%s' has %zu runners '%s'; it has %.600s",
                         poly->path, n_found, runner, names != NULL ? names : "")
               : nd_fail(err, ND_E_IMPORT_OPTION, poly->path,
                         "'%s' has %zu runners; --runner chooses one%s%.600s", poly->path, n_found,
                         n_found > 0 ? " of " : "", names != NULL ? names : "");
}

static enum nd_status add_results(const struct poly *poly, const json_t *root, const char *runner,
                                  size_t *n_samples, struct nd_error *err)
{
    const json_t *iterations = NULL, *list = json_object_get(root, "lst"), *iteration;
    size_t i;
    if (!json_is_array(list))
        return nd_fail(err, ND_E_IMPORT_FORMAT, poly->path,
                       "'%s' is no RunResults of Polygraphy: it has no list 'lst'", poly->path);
    ND_TRY(choose_runner(poly, list, runner, &iterations, err));
    if (json_array_size(iterations) == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, poly->path, "'%s' has no iterations", poly->path);
    json_array_foreach(iterations, i, iteration) {
        const json_t *seconds = json_object_get(iteration, "runtime");
        double us =
            json_is_number(seconds) && json_number_value(seconds) > 0 ? 1e6 * json_number_value(seconds) : NAN;
        ND_TRY(add_iteration(poly, iteration, (*n_samples)++, err));
        ND_TRY(nd_imported_latency(poly->imported, us, err));
    }
    return ND_OK;
}

/* Where no iteration has a runtime the file states none. */
static enum nd_status settle_latencies(struct nd_imported *imported, struct nd_error *err)
{
    for (size_t i = 0; i < imported->n_latencies; i++)
        if (!isnan(imported->latency_us[i]))
            return nd_imported_fact(imported, "latencies", NULL, "'runtime' of the iterations", err);
    free(imported->latency_us);
    imported->latency_us = NULL;
    imported->n_latencies = imported->latencies_capacity = 0;
    return ND_OK;
}

static enum nd_status read_polygraphy(const struct nd_import_options *options, struct nd_imported *imported,
                                      struct nd_error *err)
{
    static const char *const facts[][2] = {{"names", "names of the outputs"},
                                           {"types", ".npy header"},
                                           {"shapes", ".npy header"},
                                           {"samples", "one of each iteration"}};
    size_t n_samples = 0;
    for (size_t i = 0; i < options->n_paths; i++) {
        const struct poly poly = {imported, options->paths[i]};
        ND_FREED void *text = NULL;
        size_t n_bytes = 0;
        json_error_t problem;
        ND_TRY(nd_file_read(poly.path, SIZE_MAX / 2, &text, &n_bytes, err));
        json_auto_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &problem);
        if (root == NULL)
            return nd_fail(err, ND_E_IMPORT_FORMAT, poly.path, "%s:%d:%d: %s", poly.path, problem.line,
                           problem.column, problem.text);
        ND_TRY(add_results(&poly, root, options->runner, &n_samples, err));
    }
    ND_TRY(settle_latencies(imported, err));
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        ND_TRY(nd_imported_fact(imported, facts[i][0], NULL, facts[i][1], err));
    return ND_OK;
}

const struct nd_import_reader nd_import_polygraphy = {
    .format = {"polygraphy", "RESULTS.json...",
               "outputs saved by 'polygraphy run --save-outputs': each iteration of a "
               "runner is a sample; several files go on"},
    .read = read_polygraphy,
};
