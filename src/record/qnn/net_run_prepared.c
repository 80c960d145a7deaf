/* What npudiff.json says was fed to a run: the files, and the probes they were made of. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "npudiff/record/probe.h"
#include "record/import/imported.h"
#include "record/import/match_tensor.h"
#include "record/probes/loader.h"
#include "record/probes/npz.h"
#include "record/qnn/net_run.h"

static enum nd_status nd_qnr_read_prepared(struct nd_qnr *run, struct nd_error *err);

/* What an input list says was fed to a run. */

enum { MAX_LIST_BYTES = 256 << 20 };

/* One input of one inference. */
struct item {
    size_t line;  /* of the file, from 1 */
    size_t index; /* of the inference, from 0 */
    char *name;   /* "" without one */
    char *path;
};

struct list {
    char *file;
    size_t n, capacity, n_lines;
    struct item *items;
};

static void list_deinit(struct list *list)
{
    ND_FREE_BOTH(list->items, list->n, .name, .path);
    free(list->file);
}

/* ---- the grammar ---- */

static enum nd_status add_item(struct list *list, size_t line, const char *text, size_t n, struct nd_error *err)
{
    ND_FREED char *whole = strndup(text, n);
    char *mark = whole != NULL ? strstr(whole, ":=") : NULL;
    ND_TRY_MEMORY(whole != NULL &&
                      nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items),
                  err);
    struct item item = {.line = line, .index = list->n_lines};
    if (mark != NULL && strstr(mark + 2, ":=") != NULL)
        return nd_fail(err, ND_E_QNN_STATED, whole, "'%s':%zu: '%s' has two ':='", list->file, line, whole);
    else if (mark != NULL && (mark == whole || mark[2] == '\0'))
        return nd_fail(err, ND_E_QNN_STATED, whole, "'%s':%zu: '%s' has no %s", list->file, line, whole,
                       mark == whole ? "name before ':='" : "path behind ':='");
    item.name = mark != NULL ? strndup(whole, (size_t)(mark - whole)) : nd_strdup("");
    item.path = nd_strdup(mark != NULL ? mark + 2 : whole);
    list->items[list->n++] = item;
    ND_TRY_MEMORY(item.name != NULL && item.path != NULL, err);
    return ND_OK;
}

/* All lines feed the same inputs; several have names. */
static enum nd_status check_line(const struct list *list, size_t first, size_t line, struct nd_error *err)
{
    size_t n = list->n - first, n_expected = 0;
    while (n_expected < list->n && list->items[n_expected].index == 0)
        n_expected++;
    if (n != n_expected)
        return nd_fail(err, ND_E_QNN_STATED, list->file,
                       "'%s':%zu has %zu inputs, but the first inference has %zu", list->file, line, n,
                       n_expected);
    for (size_t i = first; i < list->n; i++) {
        bool is_known = false;
        if (n > 1 && list->items[i].name[0] == '\0')
            return nd_fail(err, ND_E_QNN_STATED, list->items[i].path,
                           "'%s':%zu: several inputs need names: 'name:=%s'", list->file, line,
                           list->items[i].path);
        for (size_t k = 0; k < n_expected; k++)
            is_known = is_known || strcmp(list->items[k].name, list->items[i].name) == 0;
        for (size_t k = first; k < i; k++)
            is_known = is_known && strcmp(list->items[k].name, list->items[i].name) != 0;
        if (!is_known)
            return nd_fail(err, ND_E_QNN_STATED, list->items[i].name,
                           "'%s':%zu: input '%s' is there twice, or not fed by the first inference", list->file,
                           line, list->items[i].name);
    }
    return ND_OK;
}

static enum nd_status parse(struct list *list, const char *text, struct nd_error *err)
{
    for (size_t line = 1; *text != '\0'; line++) {
        size_t n = strcspn(text, "\n"), first = list->n;
        bool is_comment = text[0] == '#' || text[0] == '%';
        for (size_t at = 0; !is_comment && at < n;) {
            at += strspn(text + at, " \t\r");
            size_t length = strcspn(text + at, " \t\r\n");
            if (at < n && length > 0)
                ND_TRY(add_item(list, line, text + at, length, err));
            at += length;
        }
        if (list->n > first)
            ND_TRY(check_line(list, first, line, err));
        list->n_lines += list->n > first;
        text += n + (text[n] == '\n');
    }
    return ND_OK;
}

static enum nd_status read_list(const char *path, struct list *out, struct nd_error *err)
{
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    ND_TRY(nd_file_read(path, MAX_LIST_BYTES, &bytes, &n_bytes, err));
    out->file = nd_strdup(path);
    ND_TRY_MEMORY(out->file != NULL, err);
    if (memchr(bytes, '\0', n_bytes) != NULL)
        return nd_fail(err, ND_E_QNN_STATED, path, "'%s' is no input list: it holds a NUL", path);
    ND_TRY(parse(out, bytes, err));
    return out->n_lines == 0 ? nd_fail(err, ND_E_QNN_STATED, path, "'%s' lists no inference", path) : ND_OK;
}

/* Fewer results than the n inferences of `from`: the run ended early. More are an error. */
static enum nd_status nd_qnr_check_number(struct nd_qnr *run, const char *from, size_t n, struct nd_error *err)
{
    if (n < run->n_results)
        return nd_fail(err, ND_E_QNN_STATED, from,
                       "'%s' lists %zu inferences, but there are %zu folders: Result_%zu is of none of them",
                       from, n, run->n_results, n);
    return n > run->n_results ? nd_qnr_cut(run, run->n_complete, err,
                                           "of %zu inferences in '%s' only %zu have a folder Result_<i>", n,
                                           from, run->n_results)
                              : ND_OK;
}

/* Takes the inputs away again. */
static void nd_qnr_drop_inputs(struct nd_imported *imported)
{
    struct nd_imported spare = {.sides[ND_IMPORTED_INPUT] = imported->sides[ND_IMPORTED_INPUT]};
    imported->sides[ND_IMPORTED_INPUT] = (struct nd_imported_list){0};
    nd_imported_deinit(&spare);
}

/* ---- inputs of a list ---- */

/* What an input is: of the context, else of the model. false: nothing says. */
static bool find_input(const struct nd_qnr *run, const char *name, struct nd_qnr_stated *out,
                       const struct nd_model_io **io)
{
    size_t at = 0;
    enum nd_name_method method;
    const struct nd_model *model = run->options->model;
    const struct nd_qnr_stated *stated = nd_qnr_find(&run->context.inputs, name);
    bool is_only = name[0] == '\0';
    *io = NULL;
    if (is_only && run->context.inputs.n == 1)
        stated = &run->context.inputs.items[0];
    if (model != NULL && is_only && nd_model_n_inputs(model) == 1)
        *io = nd_model_input(model, 0);
    else if (model != NULL && nd_name_find_input(model, name, true, &at, &method, NULL) == ND_OK)
        *io = nd_model_input(model, at);
    if (stated != NULL)
        *out = *stated;
    else if (*io != NULL && nd_shape_n_elems(&(*io)->shape, &at, NULL) == ND_OK)
        *out =
            (struct nd_qnr_stated){.file = (char *)(*io)->name, .dtype = (*io)->dtype, .shape = (*io)->shape};
    else
        return false;
    return true;
}

/* Whether the dimensions of the file are the model's or those with channels last; else it is uncertain. */
static bool find_order(const struct nd_qnr_stated *stated, const struct nd_model_io *io, bool *is_last)
{
    *is_last = false;
    if (io == NULL)
        return true;
    struct nd_shape moved = nd_layout_channels_last(&io->shape);
    bool is_equal = nd_shape_equal(&stated->shape, &io->shape),
         is_moved = nd_shape_equal(&stated->shape, &moved);
    *is_last = is_moved && !is_equal;
    return is_equal != is_moved || io->shape.rank < 3 || io->shape.dims[1] == 1;
}

static enum nd_status add_input(struct nd_qnr *run, const char *name, const struct nd_qnr_stated *stated,
                                struct nd_source *source, size_t index, struct nd_error *err)
{
    char shape[128];
    void *data = NULL;
    size_t n_elems = 0, n_native = 0;
    ND_TRY(nd_shape_size_bytes(&stated->shape, stated->dtype, &n_native, err));
    ND_TRY(nd_shape_n_elems(&stated->shape, &n_elems, err));
    enum nd_dtype dtype = source->size_bytes == n_native ? stated->dtype : ND_DTYPE_F32;
    if (source->size_bytes != n_native && source->size_bytes != n_elems * sizeof(float))
        return nd_fail(err, ND_E_QNN_SIZE, source->path, "%s has %zu bytes, but input '%s', %s %s, takes %zu",
                       source->what, source->size_bytes, name, nd_dtype_name(stated->dtype),
                       nd_shape_format(&stated->shape, shape, sizeof shape), n_native);
    const struct nd_imported_new sample = {ND_IMPORTED_INPUT, name, source->what, dtype, stated->shape, index};
    ND_TRY(nd_imported_add(run->imported, &sample, &data, err));
    return nd_source_read(source, data, source->size_bytes, err);
}

/* Whether all inputs of the list can be stored: known, there, and of a type that the model takes. */
static bool can_store(const struct nd_qnr *run, const struct list *list, char why[400])
{
    bool is_last = false;
    for (size_t i = 0; i < list->n && list->items[i].index < run->n_complete; i++) {
        struct nd_qnr_stated stated;
        const struct nd_model_io *io = NULL;
        const struct item *item = &list->items[i];
        char *folder = nd_path_dir(list->file),
             *path = folder != NULL ? nd_path_join(folder, item->path) : NULL;
        bool is_there = path != NULL && nd_path_exists(path);
        ND_FREE_ALL(path, folder);
        why[0] = '\0';
        if (!is_there)
            snprintf(why, 400, "not stored: '%.200s' of line %zu is missing", item->path, item->line);
        else if (!find_input(run, item->name, &stated, &io))
            snprintf(why, 400, "not stored: nothing states type and shape of '%.200s'", item->name);
        else if (run->n_batch > 1)
            snprintf(why, 400, "not stored: files of several samples");
        else if (!find_order(&stated, io, &is_last))
            snprintf(why, 400, "not stored: the layout of '%.200s' is not stated", item->name);
        if (why[0] != '\0')
            return false;
    }
    return true;
}

static enum nd_status read_item(struct nd_qnr *run, const struct list *list, const struct item *item,
                                bool *is_wrong_type, struct nd_error *err)
{
    struct nd_qnr_stated stated;
    const struct nd_model_io *io = NULL;
    struct nd_source source = {0};
    bool is_last = false;
    if (!find_input(run, item->name, &stated, &io))
        return ND_OK;
    (void)find_order(&stated, io, &is_last);
    const char *name = io != NULL ? io->name : item->name[0] != '\0' ? item->name : stated.file;
    char *folder = nd_path_dir(list->file), *path = folder != NULL ? nd_path_join(folder, item->path) : NULL;
    enum nd_status status = path != NULL ? nd_source_open(&source, path, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = add_input(run, name, &stated, &source, item->index, err);
    if (status != ND_OK)
        nd_error_context(err, "'%s':%zu", list->file, item->line);
    nd_source_close(&source);
    ND_FREE_ALL(path, folder);
    struct nd_imported_tensor *made = nd_imported_find(run->imported, ND_IMPORTED_INPUT, name);
    if (status == ND_OK && made != NULL) {
        made->is_channel_last = is_last;
        *is_wrong_type = *is_wrong_type || (io != NULL && io->dtype != made->dtype);
    }
    return status;
}

static enum nd_status read_listed(struct nd_qnr *run, const char *path, struct nd_error *err)
{
    char why[400];
    bool is_wrong_type = false;
    ND_CLEANUP(list_deinit) struct list list = {0};
    ND_TRY(read_list(path, &list, err));
    ND_TRY(nd_qnr_check_number(run, path, list.n_lines, err));
    if (run->options->inputs != NULL)
        return ND_OK;
    bool can = can_store(run, &list, why);
    for (size_t i = 0; can && i < list.n; i++)
        if (list.items[i].index < run->n_complete)
            ND_TRY(read_item(run, &list, &list.items[i], &is_wrong_type, err));
    if (is_wrong_type)
        nd_qnr_drop_inputs(run->imported);
    return nd_qnr_fact(run, "inputs", NULL, err, "%s",
                       !can            ? why
                       : is_wrong_type ? "not stored: the files hold quantised values, the model takes floats"
                                       : "the input list");
}

/* How many inferences a list has. */
static enum nd_status nd_qnr_count_lines(const char *path, size_t *out, struct nd_error *err)
{
    ND_CLEANUP(list_deinit) struct list list = {0};
    enum nd_status status = read_list(path, &list, err);
    *out = list.n_lines;
    return status;
}

enum nd_status nd_qnr_read_inputs(struct nd_qnr *run, struct nd_error *err)
{
    if (run->manifest.path != NULL)
        return nd_qnr_read_prepared(run, err);
    if (run->options->input_list != NULL)
        return read_listed(run, run->options->input_list, err);
    ND_FREED char *path = nd_path_join(run->output, "input_list.txt");
    return path == NULL ? nd_fail_memory(err) : nd_path_exists(path) ? read_listed(run, path, err) : ND_OK;
}

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
    ND_FREED char *path = nd_path_join(run->base, file);
    ND_TRY_MEMORY(path != NULL, err);
    *is_missing = !nd_path_exists(path);
    ND_TRY(nd_shape_size_bytes(&stated->shape, stated->dtype, &n_expected, err));
    if (!*is_missing)
        ND_TRY(nd_file_read(path, n_expected > 0 ? n_expected : 1, bytes, &n_bytes, err));
    if (!*is_missing) {
        struct nd_digest found = nd_digest_bytes(*bytes, n_bytes);
        snprintf(digest, sizeof digest, "%016" PRIx64 "%016" PRIx64, found.high, found.low);
        if (n_bytes != n_expected)
            return nd_fail(err, ND_E_QNN_SIZE, path, "'%s' has %zu bytes, but input '%s' takes %zu", path,
                           n_bytes, stated->name, n_expected);
        else if (expected != NULL && strcmp(digest, expected) != 0)
            return nd_fail(err, ND_E_QNN_STATED, path,
                           "'%s' is not what '%s' says was fed: its digest is %s, expected %s", path,
                           run->manifest.path, digest, expected);
    }
    return ND_OK;
}

static enum nd_status add_fed(struct nd_qnr *run, enum nd_imported_side side, const char *name, size_t input,
                              bool *is_missing, struct nd_error *err)
{
    const struct nd_qnr_stated *stated = &run->manifest.inputs.items[input];
    *is_missing = false;
    for (size_t r = 0; r < run->n_complete; r++) {
        ND_FREED void *bytes = NULL;
        void *data = NULL;
        size_t n_bytes = 0;
        const struct nd_imported_new sample = {side, name, run->manifest.path, stated->dtype, stated->shape, r};
        ND_TRY(read_fed(run, r, input, &bytes, is_missing, err));
        if (*is_missing)
            return ND_OK;
        ND_TRY(nd_shape_size_bytes(&stated->shape, stated->dtype, &n_bytes, err));
        ND_TRY(nd_imported_add(run->imported, &sample, &data, err));
        if (n_bytes > 0)
            memcpy(data, bytes, n_bytes);
    }
    return ND_OK;
}

/* Tensors that the context is fed with are outputs of the capture all the same. */
static enum nd_status add_fed_tensors(struct nd_qnr *run, struct nd_error *err)
{
    const json_t *list = json_object_get(run->manifest.root, "fed"), *fed;
    size_t i;
    json_array_foreach(list, i, fed) {
        bool is_missing = false;
        const char *tensor = json_string_value(json_object_get(fed, "edge"));
        json_int_t input = json_integer_value(json_object_get(fed, "input"));
        if (tensor == NULL || input < 0 || (size_t)input >= run->manifest.inputs.n)
            return fail_manifest(run, "fed", i, err);
        ND_TRY(add_fed(run, ND_IMPORTED_OUTPUT, tensor, (size_t)input, &is_missing, err));
        struct nd_imported_tensor *made = nd_imported_find(run->imported, ND_IMPORTED_OUTPUT, tensor);
        const struct nd_quant *quant = &run->manifest.inputs.items[input].quant;
        if (is_missing)
            ND_TRY(nd_qnr_fact(run, "fed", tensor, err, "left out: its input files are not in the folder"));
        else if (made != NULL && quant->n > 0)
            ND_TRY(nd_imported_set_quant(made, quant, err));
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
    ND_TRY_MEMORY(imported->parts != NULL, err);
    if (run->options->probe != NULL && json_array_size(probes) != 1)
        return nd_fail(err, ND_E_IMPORT_OPTION, run->options->probe,
                       "--probe renames one probe; '%s' has %zu, which keep their names", run->manifest.path,
                       json_array_size(probes));
    json_array_foreach(probes, i, probe) {
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
    json_array_foreach(probes, i, probe) {
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
static bool is_quantised_as(const struct nd_qnr_stated *stated, const float *floats, const void *qvalues,
                            size_t n)
{
    const struct nd_qvalue_range range = nd_qvalue_range_of(stated->dtype);
    for (size_t i = 0; i < n; i++) {
        float scaled = floats[i] / stated->quant.scale[0];
        double qvalue = nearbyint((double)scaled) + (double)stated->quant.zero_point[0];
        qvalue = fmin(fmax(qvalue, (double)range.min), (double)range.max);
        double found = nd_grid_value(stated->dtype, qvalues, i);
        if (!isnan(scaled) && qvalue != found)
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
    bool is_made = strncmp(part->source, name, n_name) == 0 &&
                   (part->source[n_name] == ':' || part->source[n_name] == '\0');
    ND_FREED char *text = nd_text(is_made ? "%.0s%s" : "%s=%s", name, part->source);
    ND_TRY(text != NULL ? nd_model_check_static(run->options->model, err) : nd_fail_memory(err));
    return nd_probe_for_model(run->options->model, text, out, err);
}

static enum nd_status add_probe_input(struct nd_qnr *run, const struct nd_probe_input *input, size_t n_samples,
                                      size_t first, bool *is_same, struct nd_error *err)
{
    size_t index = 0;
    while (index < run->manifest.inputs.n && strcmp(run->manifest.inputs.items[index].name, input->name) != 0)
        index++;
    *is_same = index < run->manifest.inputs.n;
    for (size_t s = 0; *is_same && s < n_samples; s++) {
        ND_FREED void *bytes = NULL;
        void *data = NULL;
        bool is_missing = false;
        const char *wanted = (const char *)input->data + s * input->sample_bytes;
        const struct nd_imported_new sample = {ND_IMPORTED_INPUT, input->name,  run->manifest.path,
                                               input->dtype,      input->shape, first + s};
        ND_TRY(read_fed(run, first + s, index, &bytes, &is_missing, err));
        *is_same = !is_missing && is_fed_by(&run->manifest.inputs.items[index], bytes, input, wanted);
        if (*is_same)
            ND_TRY(nd_imported_add(run->imported, &sample, &data, err));
        if (*is_same && input->sample_bytes > 0)
            memcpy(data, wanted, input->sample_bytes);
    }
    return ND_OK;
}

/* The probes once more, and that their codes are what was fed. */
static enum nd_status add_probes(struct nd_qnr *run, bool *is_whole, struct nd_error *err)
{
    const json_t *probes = json_object_get(run->manifest.root, "probes");
    size_t first = 0;
    *is_whole = true;
    for (size_t p = 0; *is_whole && p < run->imported->n_parts; p++) {
        const struct nd_imported_part *part = &run->imported->parts[p];
        const char *name = json_string_value(json_object_get(json_array_get(probes, p), "name"));
        ND_CLEANUP(nd_probe_destroy) struct nd_probe *probe = NULL;
        struct nd_error problem = {0};
        *is_whole =
            make_probe(run, part, name, &probe, &problem) == ND_OK && probe->n_samples >= part->n_samples;
        for (size_t i = 0; *is_whole && i < probe->n_inputs; i++)
            ND_TRY(add_probe_input(run, &probe->inputs[i], part->n_samples, first, is_whole, err));
        first += part->n_samples;
    }
    return ND_OK;
}

static enum nd_status add_prepared_inputs(struct nd_qnr *run, struct nd_error *err)
{
    bool is_whole = true, is_missing = false;
    if (run->options->inputs != NULL)
        return ND_OK;
    if (run->options->model != NULL)
        ND_TRY(add_probes(run, &is_whole, err));
    for (size_t i = 0; is_whole && run->options->model == NULL && i < run->manifest.inputs.n; i++) {
        const struct nd_qnr_stated *stated = &run->manifest.inputs.items[i];
        is_whole = stated->quant.n == 0; /* the codes of a float are not what the model is fed */
        if (is_whole)
            ND_TRY(add_fed(run, ND_IMPORTED_INPUT, stated->name, i, &is_missing, err));
        is_whole = is_whole && !is_missing;
    }
    if (!is_whole)
        nd_qnr_drop_inputs(run->imported);
    return nd_qnr_fact(
        run, "inputs", NULL, err, "%s",
        is_whole && run->options->model != NULL ? "the probes of npudiff.json, whose quantised values were fed"
        : is_whole                              ? "npudiff.json"
        : run->options->model != NULL
            ? "not stored: the probes cannot be made again as they were fed"
            : "not stored: quantised values were fed, and only --model says what the model takes");
}

/* ---- all ---- */

/* npudiff.json counts; input_list.txt, where it still lies there, must not contradict it. */
static enum nd_status nd_qnr_read_prepared(struct nd_qnr *run, struct nd_error *err)
{
    size_t n_lines = 0;
    size_t n = json_array_size(json_object_get(run->manifest.root, "results"));
    ND_FREED char *path = nd_path_join(run->base, "input_list.txt");
    ND_TRY(path != NULL ? check_results(run, err) : nd_fail_memory(err));
    if (run->n_batch > 1)
        return nd_fail(err, ND_E_IMPORT_OPTION, run->base, "--batch is for folders that were not prepared");
    if (nd_path_exists(path))
        ND_TRY(nd_qnr_count_lines(path, &n_lines, err));
    if (n_lines > 0 && n_lines != n)
        return nd_fail(err, ND_E_QNN_STATED, path, "'%s' lists %zu inferences, but '%s' %zu", path, n_lines,
                       run->manifest.path, n);
    ND_TRY(nd_qnr_check_number(run, run->manifest.path, n, err));
    ND_TRY(add_parts(run, err));
    ND_TRY(add_fed_tensors(run, err));
    return add_prepared_inputs(run, err);
}
