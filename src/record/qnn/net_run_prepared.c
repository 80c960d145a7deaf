/* What npudiff.json says was fed to a run: the files, and the probes they were made of. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "record/import/grid.h"
#include "npudiff/record/probe.h"
#include "record/probes/element.h"
#include "record/probes/for_model.h"
#include "record/qnn/net_run.h"

/* ---- results ---- */

static enum nd_status fail_manifest(const struct nd_qnr *run, const char *what, size_t i, struct nd_error *err)
{
    return nd_fail(err, ND_E_QNN_STATED, run->manifest.path,
                   "'%s': %s[%zu] is missing, or not what it should be", run->manifest.path, what, i);
}

/* A file of results[result].inputs, whose digest must be that of the manifest. *is_missing: it is not there. */
static enum nd_status read_fed(const struct nd_qnr *run, size_t result, size_t input, void **bytes,
                               bool *is_missing, struct nd_error *err)
{
    char digest[33];
    size_t n_bytes = 0, n_expected = 0;
    const json_t *object = json_array_get(
        json_object_get(json_array_get(json_object_get(run->manifest.root, "results"), result), "inputs"),
        input);
    const char *file = json_string_value(json_object_get(object, "file"));
    const char *expected = json_string_value(json_object_get(object, "xxh3"));
    const struct nd_qnr_stated *stated = &run->manifest.inputs.items[input];
    *is_missing = false;
    if (file == NULL || strstr(file, "..") != NULL || file[0] == '/')
        return fail_manifest(run, "results", result, err);
    char *path = nd_path_join(run->base, file);
    if (path == NULL)
        return nd_fail_memory(err);
    *is_missing = !nd_path_exists(path);
    enum nd_status status = nd_shape_size_bytes(&stated->shape, stated->dtype, &n_expected, err);
    if (status == ND_OK && !*is_missing)
        status = nd_file_read(path, n_expected > 0 ? n_expected : 1, bytes, &n_bytes, err);
    if (status == ND_OK && !*is_missing) {
        struct nd_digest found = nd_digest_bytes(*bytes, n_bytes);
        snprintf(digest, sizeof digest, "%016" PRIx64 "%016" PRIx64, found.high, found.low);
        if (n_bytes != n_expected)
            status = nd_fail(err, ND_E_QNN_SIZE, path, "'%s' has %zu bytes, but input '%s' takes %zu", path,
                             n_bytes, stated->name, n_expected);
        else if (expected != NULL && strcmp(digest, expected) != 0)
            status = nd_fail(err, ND_E_QNN_STATED, path,
                             "'%s' is not what '%s' says was fed: its digest is %s, expected %s", path,
                             run->manifest.path, digest, expected);
    }
    free(path);
    return status;
}

static enum nd_status add_fed(struct nd_qnr *run, enum nd_imported_side side, const char *name, size_t input,
                              bool *is_missing, struct nd_error *err)
{
    const struct nd_qnr_stated *stated = &run->manifest.inputs.items[input];
    enum nd_status status = ND_OK;
    *is_missing = false;
    for (size_t r = 0; status == ND_OK && !*is_missing && r < run->n_complete; r++) {
        void *bytes = NULL, *data = NULL;
        size_t n_bytes = 0;
        const struct nd_imported_new sample = {side, name, run->manifest.path, stated->dtype, stated->shape, r};
        status = read_fed(run, r, input, &bytes, is_missing, err);
        if (status == ND_OK && !*is_missing)
            status = nd_shape_size_bytes(&stated->shape, stated->dtype, &n_bytes, err);
        if (status == ND_OK && !*is_missing)
            status = nd_imported_add(run->imported, &sample, &data, err);
        if (status == ND_OK && !*is_missing && n_bytes > 0)
            memcpy(data, bytes, n_bytes);
        free(bytes);
    }
    return status;
}

/* Edges that the context is fed with are outputs of the capture all the same. */
static enum nd_status add_fed_edges(struct nd_qnr *run, struct nd_error *err)
{
    const json_t *list = json_object_get(run->manifest.root, "fed"), *fed;
    size_t i;
    json_array_foreach(list, i, fed)
    {
        bool is_missing = false;
        const char *edge = json_string_value(json_object_get(fed, "edge"));
        json_int_t input = json_integer_value(json_object_get(fed, "input"));
        if (edge == NULL || input < 0 || (size_t)input >= run->manifest.inputs.n)
            return fail_manifest(run, "fed", i, err);
        enum nd_status status = add_fed(run, ND_IMPORTED_OUTPUT, edge, (size_t)input, &is_missing, err);
        struct nd_imported_tensor *made = nd_imported_find(run->imported, ND_IMPORTED_OUTPUT, edge);
        const struct nd_quant *quant = &run->manifest.inputs.items[input].quant;
        if (status == ND_OK && is_missing)
            status = nd_qnr_fact(run, "fed", edge, err, "left out: its input files are not in the folder");
        else if (status == ND_OK && made != NULL && quant->n > 0)
            status = nd_imported_set_quant(made, quant, err);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

/* ---- probes ---- */

/* One part for each probe, cut where the results are. */
static enum nd_status add_parts(struct nd_qnr *run, struct nd_error *err)
{
    const json_t *probes = json_object_get(run->manifest.root, "probes"), *probe;
    size_t i, at = 0;
    struct nd_imported *imported = run->imported;
    imported->parts = nd_calloc(json_array_size(probes), sizeof *imported->parts);
    if (imported->parts == NULL)
        return nd_fail_memory(err);
    if (run->options->probe != NULL && json_array_size(probes) != 1)
        return nd_fail(err, ND_E_IMPORT_OPTION, run->options->probe,
                       "--probe renames one probe; '%s' has %zu, which keep their names", run->manifest.path,
                       json_array_size(probes));
    json_array_foreach(probes, i, probe)
    {
        const json_t *labels = json_object_get(probe, "labels");
        const char *name = json_string_value(json_object_get(probe, "name"));
        const char *source = json_string_value(json_object_get(probe, "source"));
        size_t n = (size_t)json_integer_value(json_object_get(probe, "n_samples"));
        size_t n_left = run->n_complete > at ? run->n_complete - at : 0;
        if (name == NULL || source == NULL || n == 0)
            return fail_manifest(run, "probes", i, err);
        at += n;
        n = n < n_left ? n : n_left;
        if (n == 0)
            continue;
        struct nd_imported_part *part = &imported->parts[imported->n_parts++];
        *part = (struct nd_imported_part){
            .name = nd_strdup(run->options->probe != NULL ? run->options->probe : name),
            .source = nd_strdup(source),
            .n_samples = n};
        part->labels = json_is_array(labels) ? nd_calloc(n, sizeof *part->labels) : NULL;
        if (part->name == NULL || part->source == NULL || (json_is_array(labels) && part->labels == NULL))
            return nd_fail_memory(err);
        for (size_t s = 0; part->labels != NULL && s < n; s++)
            part->labels[s] = json_integer_value(json_array_get(labels, s));
    }
    return ND_OK;
}

/* results[i] counts through the samples of the probes. */
static enum nd_status check_results(const struct nd_qnr *run, struct nd_error *err)
{
    const json_t *probes = json_object_get(run->manifest.root, "probes"), *probe;
    const json_t *results = json_object_get(run->manifest.root, "results");
    size_t i, at = 0;
    json_array_foreach(probes, i, probe)
    {
        size_t n = (size_t)json_integer_value(json_object_get(probe, "n_samples"));
        for (size_t s = 0; s < n && at < json_array_size(results); s++, at++) {
            const json_t *result = json_array_get(results, at);
            if (json_integer_value(json_object_get(result, "probe")) != (json_int_t)i ||
                json_integer_value(json_object_get(result, "sample")) != (json_int_t)s)
                return fail_manifest(run, "results", at, err);
        }
    }
    return at == json_array_size(results) ? ND_OK : fail_manifest(run, "results", at, err);
}

/* ---- the probes' floats ---- */

/* Codes are QuantizeLinear of the probe's floats (docs/reference/prepared-folder.md). NaN is whatever the
 * runtime makes of it. */
static bool is_quantised_as(const struct nd_qnr_stated *stated, const float *floats, const void *codes,
                            size_t n)
{
    const struct nd_code_range range = nd_code_range_of(stated->dtype);
    for (size_t i = 0; i < n; i++) {
        float scaled = floats[i] / stated->quant.scale[0];
        double code = nearbyint((double)scaled) + (double)stated->quant.zero_point[0];
        code = fmin(fmax(code, (double)range.min), (double)range.max);
        double found = nd_grid_value(stated->dtype, codes, i);
        if (!isnan(scaled) && code != found)
            return false;
    }
    return true;
}

/* Whether bytes, those of a file that was fed, are what the probe gives for one sample. */
static bool is_fed_by(const struct nd_qnr_stated *stated, const void *bytes, const struct nd_probe_input *input,
                      const void *data)
{
    size_t n = 0;
    if (stated->dtype == input->dtype)
        return memcmp(bytes, data, input->sample_bytes) == 0;
    return input->dtype == ND_DTYPE_F32 && stated->quant.n == 1 && nd_dtype_size_bytes(stated->dtype) <= 2 &&
           nd_shape_n_elems(&stated->shape, &n, NULL) == ND_OK && input->sample_bytes == n * sizeof(float) &&
           is_quantised_as(stated, data, bytes, n);
}

static enum nd_status make_probe(const struct nd_qnr *run, const struct nd_imported_part *part,
                                 const char *name, struct nd_probe **out, struct nd_error *err)
{
    size_t n_name = strlen(name);
    struct nd_strbuf spec = {0};
    bool is_made = strncmp(part->source, name, n_name) == 0 &&
                   (part->source[n_name] == ':' || part->source[n_name] == '\0');
    nd_strbuf_printf(&spec, is_made ? "%.0s%s" : "%s=%s", name, part->source);
    char *text = nd_strbuf_take(&spec);
    enum nd_status status =
        text != NULL ? nd_model_check_static(run->options->model, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_probe_for_model(run->options->model, text, out, err);
    free(text);
    return status;
}

static enum nd_status add_probe_input(struct nd_qnr *run, const struct nd_probe_input *input, size_t n_samples,
                                      size_t first, bool *is_same, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t index = 0;
    while (index < run->manifest.inputs.n && strcmp(run->manifest.inputs.items[index].name, input->name) != 0)
        index++;
    *is_same = index < run->manifest.inputs.n;
    for (size_t s = 0; status == ND_OK && *is_same && s < n_samples; s++) {
        void *bytes = NULL, *data = NULL;
        bool is_missing = false;
        const char *wanted = (const char *)input->data + s * input->sample_bytes;
        const struct nd_imported_new sample = {ND_IMPORTED_INPUT, input->name,  run->manifest.path,
                                               input->dtype,      input->shape, first + s};
        status = read_fed(run, first + s, index, &bytes, &is_missing, err);
        *is_same = status == ND_OK && !is_missing &&
                   is_fed_by(&run->manifest.inputs.items[index], bytes, input, wanted);
        free(bytes);
        if (status == ND_OK && *is_same)
            status = nd_imported_add(run->imported, &sample, &data, err);
        if (status == ND_OK && *is_same && input->sample_bytes > 0)
            memcpy(data, wanted, input->sample_bytes);
    }
    return status;
}

/* The probes once more, and that their codes are what was fed. */
static enum nd_status add_probes(struct nd_qnr *run, bool *is_whole, struct nd_error *err)
{
    const json_t *probes = json_object_get(run->manifest.root, "probes");
    enum nd_status status = ND_OK;
    size_t first = 0;
    *is_whole = true;
    for (size_t p = 0; status == ND_OK && *is_whole && p < run->imported->n_parts; p++) {
        const struct nd_imported_part *part = &run->imported->parts[p];
        const char *name = json_string_value(json_object_get(json_array_get(probes, p), "name"));
        struct nd_probe *probe = NULL;
        struct nd_error problem = {0};
        *is_whole =
            make_probe(run, part, name, &probe, &problem) == ND_OK && probe->n_samples >= part->n_samples;
        for (size_t i = 0; status == ND_OK && *is_whole && i < probe->n_inputs; i++)
            status = add_probe_input(run, &probe->inputs[i], part->n_samples, first, is_whole, err);
        nd_probe_destroy(&probe);
        first += part->n_samples;
    }
    return status;
}

static enum nd_status add_prepared_inputs(struct nd_qnr *run, struct nd_error *err)
{
    bool is_whole = true, is_missing = false;
    enum nd_status status = ND_OK;
    if (run->options->inputs != NULL)
        return ND_OK;
    if (run->options->model != NULL)
        status = add_probes(run, &is_whole, err);
    for (size_t i = 0; status == ND_OK && is_whole && run->options->model == NULL && i < run->manifest.inputs.n;
         i++) {
        const struct nd_qnr_stated *stated = &run->manifest.inputs.items[i];
        is_whole = stated->quant.n == 0; /* the codes of a float are not what the model is fed */
        if (is_whole)
            status = add_fed(run, ND_IMPORTED_INPUT, stated->name, i, &is_missing, err);
        is_whole = is_whole && !is_missing;
    }
    if (!is_whole)
        nd_qnr_drop_inputs(run->imported);
    if (status != ND_OK)
        return status;
    return nd_qnr_fact(run, "inputs", NULL, err, "%s",
                       is_whole && run->options->model != NULL
                           ? "the probes of npudiff.json, whose codes were fed"
                       : is_whole ? "npudiff.json"
                       : run->options->model != NULL
                           ? "not stored: the probes cannot be made again as they were fed"
                           : "not stored: codes were fed, and only --model says what the model takes");
}

/* ---- all ---- */

/* npudiff.json counts; input_list.txt, where it still lies there, must not contradict it. */
enum nd_status nd_qnr_read_prepared(struct nd_qnr *run, struct nd_error *err)
{
    size_t n_lines = 0;
    size_t n = json_array_size(json_object_get(run->manifest.root, "results"));
    char *path = nd_path_join(run->base, "input_list.txt");
    enum nd_status status = path != NULL ? check_results(run, err) : nd_fail_memory(err);
    if (status == ND_OK && run->n_batch > 1)
        status = nd_fail(err, ND_E_IMPORT_OPTION, run->base, "--batch is for folders that were not prepared");
    if (status == ND_OK && nd_path_exists(path))
        status = nd_qnr_count_lines(path, &n_lines, err);
    if (status == ND_OK && n_lines > 0 && n_lines != n)
        status = nd_fail(err, ND_E_QNN_STATED, path, "'%s' lists %zu inferences, but '%s' %zu", path, n_lines,
                         run->manifest.path, n);
    if (status == ND_OK)
        status = nd_qnr_check_number(run, run->manifest.path, n, err);
    if (status == ND_OK)
        status = add_parts(run, err);
    if (status == ND_OK)
        status = add_fed_edges(run, err);
    if (status == ND_OK)
        status = add_prepared_inputs(run, err);
    free(path);
    return status;
}
