/* The capture of an import. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "capture/write.h"
#include "import/facts.h"
#include "import/match.h"
#include "npudiff/parse.h"

enum { DEFLATE_LEVEL = 1 };

struct writing {
    struct nd_capture_writer *writer;
    const struct nd_import_options *options;
    const struct nd_imported *imported;
    const struct nd_matched *matched;
    const struct nd_import_result *result;
};

/* ---- attributes ---- */

static enum nd_status put_text(const struct writing *w, const char *group, const char *key, const char *text,
                               struct nd_error *err)
{
    const struct nd_attr attr = {
        .group = (char *)group, .key = (char *)key, .type = ND_ATTR_STRING, .string = (char *)text};
    return nd_capture_writer_attr(w->writer, &attr, err);
}

static enum nd_status put_number(const struct writing *w, const char *group, const char *key, int64_t number,
                                 struct nd_error *err)
{
    const struct nd_attr attr = {
        .group = (char *)group, .key = (char *)key, .type = ND_ATTR_I64, .i64 = number};
    return nd_capture_writer_attr(w->writer, &attr, err);
}

/* As every capture has it; SOURCE_DATE_EPOCH makes two imports of the same the same. */
static enum nd_status put_time(const struct writing *w, struct nd_error *err)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    int64_t seconds;
    time_t now = epoch != NULL && nd_parse_i64(epoch, &seconds) ? (time_t)seconds : time(NULL);
    struct tm utc;
    char text[32];
    if (gmtime_r(&now, &utc) == NULL)
        return ND_OK;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return put_text(w, "", "created", text, err);
}

/* The first file's name without its extension. */
static enum nd_status put_label(const struct writing *w, struct nd_error *err)
{
    if (w->options->label != NULL)
        return put_text(w, "device", "label", w->options->label, err);
    char *path = nd_strdup(w->options->paths[0]);
    size_t n = path != NULL ? strlen(path) : 0;
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    char *base = path != NULL ? nd_strdup(nd_path_base(path)) : NULL;
    char *dot = base != NULL ? strrchr(base, '.') : NULL;
    if (dot != NULL && dot != base)
        *dot = '\0';
    enum nd_status status = base != NULL ? put_text(w, "device", "label", base, err) : nd_fail_memory(err);
    free(base);
    free(path);
    return status;
}

static const char *chipset_source(const struct nd_imported *imported, const struct nd_import_options *options)
{
    if (options->chipset != NULL)
        return "--chipset";
    return imported->chipset != NULL ? "the files" : "not stated";
}

static enum nd_status put_device(const struct writing *w, struct nd_error *err)
{
    char uri[64];
    snprintf(uri, sizeof uri, "import:%s", w->options->format);
    enum nd_status status = put_text(w, "device", "uri", uri, err);
    if (status == ND_OK)
        status = put_label(w, err);
    if (status == ND_OK)
        status = put_text(w, "device", "kind", "import", err);
    const char *chipset = w->options->chipset != NULL ? w->options->chipset : w->imported->chipset;
    if (status == ND_OK && chipset != NULL)
        status = put_text(w, "device", "chipset", chipset, err);
    return status == ND_OK
               ? put_text(w, "device", "chipset_source", chipset_source(w->imported, w->options), err)
               : status;
}

static enum nd_status put_model(const struct writing *w, struct nd_error *err)
{
    const struct nd_model *model = w->options->model;
    if (model == NULL && w->imported->model_sha256 == NULL)
        return ND_OK;
    if (model == NULL) { /* the files say which it was */
        enum nd_status status = put_text(w, "model", "sha256", w->imported->model_sha256, err);
        return status == ND_OK && w->imported->model_file != NULL
                   ? put_text(w, "model", "file", w->imported->model_file, err)
                   : status;
    }
    enum nd_status status = put_text(w, "model", "file", nd_model_path(model), err);
    if (status == ND_OK)
        status = put_text(w, "model", "sha256", nd_model_sha256(model), err);
    return status == ND_OK ? put_number(w, "model", "opset", nd_model_opset(model), err) : status;
}

/* Which files, and where each fact is from. */
static enum nd_status put_import(const struct writing *w, struct nd_error *err)
{
    enum nd_status status = put_text(w, "import", "format", w->options->format, err);
    for (size_t i = 0; status == ND_OK && i < w->options->n_paths; i++) {
        char key[48], hex[ND_SHA256_HEX_BYTES];
        struct stat info;
        const char *path = w->options->paths[i];
        snprintf(key, sizeof key, "path_%03zu", i);
        status = put_text(w, "import", key, path, err);
        if (status != ND_OK || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        snprintf(key, sizeof key, "path_%03zu_sha256", i);
        status = nd_sha256_file(path, hex, err);
        if (status == ND_OK)
            status = put_text(w, "import", key, hex, err);
    }
    for (size_t i = 0; status == ND_OK && i < w->result->n_facts; i++)
        status = put_text(w, "import", w->result->facts[i].kind, w->result->facts[i].source, err);
    return status;
}

/* ---- tensors ---- */

static enum nd_status put_chunks(const struct nd_matched_tensor *tensor, const struct nd_chunk_layout *layout,
                                 struct nd_capture_dataset *dataset, struct nd_error *err)
{
    unsigned char *raw = nd_tensor_alloc(layout->chunk_bytes);
    unsigned char *encoded = malloc(nd_chunk_bound(layout->chunk_bytes));
    enum nd_status status = raw != NULL && encoded != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < layout->n_chunks; i++) {
        struct nd_chunk_span span;
        size_t n_encoded = 0;
        nd_chunk_span(layout, i, &span);
        const unsigned char *from =
            (const unsigned char *)tensor->data + span.first_sample * layout->sample_bytes + span.offset_bytes;
        size_t n_bytes = layout->chunks_per_sample > 1 ? span.n_bytes : span.n_samples * layout->sample_bytes;
        memcpy(raw, from, n_bytes);
        memset(raw + n_bytes, 0, layout->chunk_bytes - n_bytes);
        status = nd_chunk_encode(raw, layout->chunk_bytes, layout->elem_bytes, DEFLATE_LEVEL, encoded,
                                 &n_encoded, err);
        if (status == ND_OK)
            status = nd_capture_writer_chunk(dataset, i, encoded, n_encoded, err);
    }
    free(encoded);
    free(raw);
    return status;
}

static enum nd_status put_digests(const struct writing *w, const struct nd_capture_probe *probe,
                                  const struct nd_matched_tensor *tensor, size_t sample_bytes,
                                  struct nd_error *err)
{
    struct nd_digest *digests = nd_calloc(probe->n_samples, sizeof *digests);
    if (digests == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < probe->n_samples; i++)
        digests[i] = nd_digest_bytes((const char *)tensor->data + i * sample_bytes, sample_bytes);
    enum nd_status status = nd_capture_writer_digests(w->writer, probe, &tensor->edge, digests, err);
    free(digests);
    return status;
}

static enum nd_status put_output(const struct writing *w, const struct nd_capture_probe *probe,
                                 const struct nd_matched_tensor *tensor, struct nd_error *err)
{
    struct nd_chunk_layout layout;
    struct nd_capture_dataset *dataset = NULL;
    enum nd_status status =
        nd_chunk_layout_make(&tensor->edge.shape, tensor->edge.dtype, probe->n_samples, &layout, err);
    if (status == ND_OK)
        status = put_digests(w, probe, tensor, layout.sample_bytes, err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs_begin(w->writer, probe, &tensor->edge, "", &layout, DEFLATE_LEVEL,
                                                 &dataset, err);
    if (status == ND_OK)
        status = put_chunks(tensor, &layout, dataset, err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs_end(&dataset, err);
    nd_capture_dataset_destroy(&dataset);
    if (status != ND_OK)
        nd_error_context(err, "tensor '%s'", tensor->edge.name);
    return status;
}

static enum nd_status put_edges(const struct writing *w, struct nd_error *err)
{
    size_t n = w->matched->n[ND_IMPORTED_OUTPUT];
    struct nd_edge *edges = nd_calloc(n, sizeof *edges); /* shallow copies */
    const char **providers = nd_calloc(n, sizeof *providers);
    enum nd_status status = edges != NULL && providers != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        edges[i] = w->matched->sides[ND_IMPORTED_OUTPUT][i].edge;
        providers[i] = "";
    }
    if (status == ND_OK)
        status = nd_capture_writer_edges(w->writer, edges, providers, n, err);
    free(providers);
    free(edges);
    return status;
}

/* The tensor with its samples from `first` on. */
static enum nd_status tensor_from(const struct nd_matched_tensor *tensor, size_t first,
                                  struct nd_matched_tensor *out, struct nd_error *err)
{
    size_t sample_bytes = 0;
    enum nd_status status = nd_shape_size_bytes(&tensor->edge.shape, tensor->edge.dtype, &sample_bytes, err);
    *out = *tensor;
    if (tensor->data != NULL)
        out->data = (const char *)tensor->data + first * sample_bytes; /* within what was imported */
    return status;
}

/* The samples of one probe, from `first` on. */
static enum nd_status put_probe(const struct writing *w, const struct nd_imported_part *part, size_t first,
                                struct nd_error *err)
{
    const struct nd_matched *matched = w->matched;
    struct nd_capture_probe probe = {
        .name = part->name,
        .source = part->source,
        .n_samples = part->n_samples,
        .n_samples_expected = part->n_samples,
        .n_repeats = 1,
        .n_inputs = matched->n[ND_IMPORTED_INPUT],
        .labels = part->labels,
    };
    probe.inputs = nd_calloc(probe.n_inputs, sizeof *probe.inputs);
    if (probe.inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < probe.n_inputs; i++) {
        const struct nd_edge *edge = &matched->sides[ND_IMPORTED_INPUT][i].edge;
        probe.inputs[i] = (struct nd_capture_input){edge->name, edge->dtype, edge->shape};
    }
    enum nd_status status = nd_capture_writer_probe(w->writer, &probe, err);
    for (size_t i = 0; status == ND_OK && i < probe.n_inputs; i++) {
        struct nd_matched_tensor tensor;
        status = tensor_from(&matched->sides[ND_IMPORTED_INPUT][i], first, &tensor, err);
        if (status == ND_OK)
            status = nd_capture_writer_input(w->writer, &probe, i, tensor.data, DEFLATE_LEVEL, err);
    }
    for (size_t i = 0; status == ND_OK && i < matched->n[ND_IMPORTED_OUTPUT]; i++) {
        struct nd_matched_tensor tensor;
        status = tensor_from(&matched->sides[ND_IMPORTED_OUTPUT][i], first, &tensor, err);
        if (status == ND_OK)
            status = put_output(w, &probe, &tensor, err);
    }
    free(probe.inputs);
    return status;
}

static enum nd_status put_probes(const struct writing *w, struct nd_error *err)
{
    char source[80];
    const struct nd_imported *imported = w->imported;
    size_t first = 0;
    enum nd_status status = ND_OK;
    snprintf(source, sizeof source, "import:%s", w->options->format);
    const struct nd_imported_part only = {
        .name = (char *)(w->options->probe != NULL ? w->options->probe : w->options->format),
        .source = source,
        .labels = imported->labels,
        .n_samples = w->matched->n_samples,
    };
    if (imported->n_parts == 0)
        return put_probe(w, &only, 0, err);
    for (size_t i = 0; status == ND_OK && i < imported->n_parts; i++) {
        status = put_probe(w, &imported->parts[i], first, err);
        first += imported->parts[i].n_samples;
    }
    return status;
}

/* What a failed device left: as `npudiff capture` says it. */
static enum nd_status put_failure(const struct writing *w, struct nd_error *err)
{
    if (!w->imported->is_failed)
        return ND_OK;
    enum nd_status status = put_number(w, "failure", "code", ND_E_DEVICE_COMMAND, err);
    if (status == ND_OK)
        status = put_text(w, "failure", "stage", "run", err);
    if (status == ND_OK)
        status = put_text(w, "failure", "message", w->imported->cut_short, err);
    return status == ND_OK ? put_text(w, "failure", "object", w->options->paths[0], err) : status;
}

static enum nd_status put_all(const struct writing *w, struct nd_error *err)
{
    enum nd_status status = put_time(w, err);
    if (status == ND_OK)
        status = put_device(w, err);
    if (status == ND_OK)
        status = put_model(w, err);
    if (status == ND_OK)
        status = put_import(w, err);
    if (status == ND_OK)
        status = put_edges(w, err);
    if (status == ND_OK)
        status = put_probes(w, err);
    if (status == ND_OK)
        status = put_failure(w, err);
    for (size_t i = 0; status == ND_OK && i < w->imported->n_logs; i++)
        status = nd_capture_writer_log(w->writer, w->imported->logs[i].name, w->imported->logs[i].text,
                                       w->imported->logs[i].n_bytes, err);
    return status;
}

/* ---- from tensors to the file ---- */

static enum nd_status add_common_facts(struct nd_imported *imported, const struct nd_import_options *options,
                                       const struct nd_matched *matched, struct nd_error *err)
{
    enum nd_status status = nd_imported_fact(imported, "model", NULL,
                                             options->model != NULL           ? "--model"
                                             : imported->model_sha256 != NULL ? "npudiff.json"
                                                                              : "not stated",
                                             err);
    if (status == ND_OK && !nd_imported_has_fact(imported, "layout"))
        status = nd_imported_fact(imported, "layout", NULL, "not stated: taken as it is", err);
    if (status == ND_OK && matched->n[ND_IMPORTED_INPUT] == 0 && !nd_imported_has_fact(imported, "inputs"))
        status = nd_imported_fact(imported, "inputs", NULL, "not stated", err);
    if (status == ND_OK)
        status = nd_imported_fact(imported, "chipset", NULL, chipset_source(imported, options), err);
    if (status == ND_OK && imported->cut_short != NULL)
        status = nd_imported_fact(imported, "cut short", NULL, imported->cut_short, err);
    if (status == ND_OK && imported->labels != NULL && imported->n_labels != matched->n_samples)
        status = nd_fail(err, ND_E_IMPORT_MISMATCH, options->inputs, "there are %zu labels for %zu samples",
                         imported->n_labels, matched->n_samples);
    return status;
}

static enum nd_capture_status state_of(const struct nd_imported *imported)
{
    if (imported->is_failed)
        return ND_CAPTURE_FAILED;
    return imported->cut_short != NULL ? ND_CAPTURE_PARTIAL : ND_CAPTURE_COMPLETE;
}

enum nd_status nd_imported_write(struct nd_imported *imported, const struct nd_import_options *options,
                                 struct nd_import_result *out, struct nd_error *err)
{
    struct nd_map map = {0};
    struct nd_matched matched = {0};
    struct nd_import_result result = {0};
    struct nd_capture_writer *writer = NULL;
    enum nd_status status = nd_map_read(options->map, options->names, options->n_names, &map, err);
    if (status == ND_OK)
        status = nd_match(imported, &map, options, &matched, err);
    if (status == ND_OK)
        status = add_common_facts(imported, options, &matched, err);
    if (status == ND_OK)
        status = nd_facts_sum_up(imported, &result, err);
    if (status == ND_OK)
        status = nd_capture_writer_create(options->output, options->replace, &writer, err);
    const struct writing w = {writer, options, imported, &matched, &result};
    if (status == ND_OK)
        status = put_all(&w, err);
    if (status == ND_OK)
        status = nd_capture_writer_commit(writer, state_of(imported), err);
    nd_capture_writer_destroy(&writer);
    result.n_edges = matched.n[ND_IMPORTED_OUTPUT];
    result.n_inputs = matched.n[ND_IMPORTED_INPUT];
    result.n_samples = matched.n_samples;
    result.is_failed = imported->is_failed;
    if (status == ND_OK && imported->cut_short != NULL) {
        result.cut_short = imported->cut_short;
        imported->cut_short = NULL;
    }
    nd_matched_deinit(&matched);
    nd_map_deinit(&map);
    if (status == ND_OK)
        *out = result;
    else
        nd_import_result_deinit(&result);
    return status;
}
