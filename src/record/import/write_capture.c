/* The capture of an import. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "record/sessions/failure_logs.h"
#include "capture/write/write.h"
#include "record/import/edge_match.h"
#include "record/import/facts.h"
#include "record/import/runs.h"
#include "record/import/write_facts.h"

enum { DEFLATE_LEVEL = 1 };

/* ---- tensors ---- */

/* The tensor's data begins at the first sample of the probe in run 0. */
static const char *sample_at(const struct nd_import_writing *w, const struct nd_matched_tensor *tensor,
                             size_t sample, size_t repeat, size_t sample_bytes)
{
    return (const char *)tensor->data + (repeat * w->matched->n_samples + sample) * sample_bytes;
}

/* The rows whose bytes are not those of the first run; their data is gathered here. */
static enum nd_status put_repeats(const struct nd_import_writing *w, const struct nd_capture_probe *probe,
                                  const struct nd_matched_tensor *tensor, struct nd_capture_repeats rows,
                                  size_t sample_bytes, struct nd_error *err)
{
    size_t n_bytes;
    char *data = nd_size_mul(rows.n, sample_bytes, &n_bytes) ? nd_tensor_alloc(n_bytes) : NULL;
    if (data == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < rows.n && sample_bytes > 0; i++)
        memcpy(data + i * sample_bytes,
               sample_at(w, tensor, rows.sample_repeat[i][0], rows.sample_repeat[i][1], sample_bytes),
               sample_bytes);
    rows.data = data;
    enum nd_status status = nd_capture_writer_repeats(w->writer, probe, &tensor->edge, &rows, err);
    free(data);
    return status;
}

static enum nd_status put_digests(const struct nd_import_writing *w, const struct nd_capture_probe *probe,
                                  const struct nd_matched_tensor *tensor, size_t sample_bytes,
                                  struct nd_error *err)
{
    size_t n_runs = probe->n_repeats, n_rows = 0, capacity = 0;
    struct nd_digest *digests = nd_calloc(probe->n_samples * n_runs, sizeof *digests);
    size_t(*rows)[2] = NULL;
    enum nd_status status = digests != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t s = 0; status == ND_OK && s < probe->n_samples; s++)
        for (size_t r = 0; status == ND_OK && r < n_runs; r++) {
            digests[s * n_runs + r] = nd_digest_bytes(sample_at(w, tensor, s, r, sample_bytes), sample_bytes);
            if (nd_digest_equal(digests[s * n_runs + r], digests[s * n_runs]))
                continue;
            if (!nd_grow((void **)&rows, &capacity, n_rows + 1, sizeof *rows)) {
                status = nd_fail_memory(err);
                break;
            }
            rows[n_rows][0] = s;
            rows[n_rows++][1] = r;
        }
    if (status == ND_OK)
        status = nd_capture_writer_digests(w->writer, probe, &tensor->edge, digests, err);
    if (status == ND_OK && n_rows > 0)
        status =
            put_repeats(w, probe, tensor, (struct nd_capture_repeats){(const size_t(*)[2])rows, n_rows, NULL},
                        sample_bytes, err);
    free(rows);
    free(digests);
    return status;
}

static enum nd_status put_output(const struct nd_import_writing *w, const struct nd_capture_probe *probe,
                                 const struct nd_matched_tensor *tensor, struct nd_error *err)
{
    size_t sample_bytes;
    enum nd_status status = nd_shape_size_bytes(&tensor->edge.shape, tensor->edge.dtype, &sample_bytes, err);
    if (status == ND_OK)
        status = put_digests(w, probe, tensor, sample_bytes, err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs(
            w->writer, &(struct nd_capture_output){probe, &tensor->edge, tensor->provider, NULL}, tensor->data,
            err);
    if (status != ND_OK)
        nd_error_context(err, "tensor '%s'", tensor->edge.name);
    return status;
}

/* Of a run that failed before it gave anything, all that the model has. */
static enum nd_status put_edges(const struct nd_import_writing *w, struct nd_error *err)
{
    const struct nd_model *model = w->options->model;
    size_t n = w->matched->n[ND_IMPORTED_OUTPUT];
    bool is_of_model = n == 0 && model != NULL;
    n = is_of_model ? nd_model_n_edges(model) : n;
    struct nd_edge *edges = nd_calloc(n, sizeof *edges); /* shallow copies */
    const char **providers = nd_calloc(n, sizeof *providers);
    enum nd_status status = edges != NULL && providers != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        const struct nd_matched_tensor *tensor = &w->matched->sides[ND_IMPORTED_OUTPUT][i];
        edges[i] = is_of_model ? *nd_model_edge(model, i) : tensor->edge;
        providers[i] = is_of_model ? "" : tensor->provider;
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
static enum nd_status put_probe(const struct nd_import_writing *w, const struct nd_imported_part *part,
                                size_t first, struct nd_error *err)
{
    const struct nd_matched *matched = w->matched;
    struct nd_capture_probe probe = {
        .name = part->name,
        .source = part->source,
        .n_samples = part->n_samples,
        .n_samples_expected = w->imported->n_parts > 0 ? part->n_samples : matched->n_expected,
        .n_repeats = matched->n_repeats,
        .n_inputs = matched->n[ND_IMPORTED_INPUT],
        .labels = part->labels,
        .latency_us =
            w->imported->latency_us != NULL ? w->imported->latency_us + first * matched->n_repeats : NULL,
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
            status = nd_capture_writer_input(w->writer, &probe, i, tensor.data, err);
    }
    for (size_t i = 0; status == ND_OK && i < matched->n[ND_IMPORTED_OUTPUT] && probe.n_samples > 0; i++) {
        struct nd_matched_tensor tensor;
        status = tensor_from(&matched->sides[ND_IMPORTED_OUTPUT][i], first, &tensor, err);
        if (status == ND_OK)
            status = put_output(w, &probe, &tensor, err);
    }
    free(probe.inputs);
    return status;
}

static enum nd_status put_probes(const struct nd_import_writing *w, struct nd_error *err)
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
    if (imported->n_parts == 0 && w->matched->n_expected == 0)
        return ND_OK; /* a run that failed, of which nobody says what it was asked */
    if (imported->n_parts == 0)
        return put_probe(w, &only, 0, err);
    for (size_t i = 0; status == ND_OK && i < imported->n_parts; i++) {
        status = put_probe(w, &imported->parts[i], first, err);
        first += imported->parts[i].n_samples;
    }
    return status;
}

static enum nd_status put_log(const struct nd_import_writing *w, const struct nd_imported_log *log,
                              struct nd_log_findings *findings, struct nd_error *err)
{
    struct nd_log_summary summary;
    const struct nd_log_options options = {
        .struct_size = sizeof options, .name = log->name, .visit = nd_log_findings_add, .context = findings};
    enum nd_status status = nd_capture_writer_log(w->writer, log->name, log->text, log->n_bytes, err);
    if (status == ND_OK)
        status = nd_log_read_bytes(log->text, log->n_bytes, &options, &summary, err);
    return status == ND_OK && findings->failed ? nd_fail_memory(err) : status;
}

/* The logs, and what they say; as `npudiff capture` does it. */
static enum nd_status put_logs(const struct nd_import_writing *w, struct nd_error *err)
{
    struct nd_log_findings findings = {0};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < w->imported->n_logs; i++)
        status = put_log(w, &w->imported->logs[i], &findings, err);
    if (status == ND_OK)
        status = nd_findings_write(w->writer, &findings, err);
    nd_log_findings_deinit(&findings);
    return status;
}

static enum nd_status put_all(const struct nd_import_writing *w, struct nd_error *err)
{
    enum nd_status status = nd_import_put_attributes(w, err);
    if (status == ND_OK)
        status = put_edges(w, err);
    if (status == ND_OK)
        status = put_probes(w, err);
    return status == ND_OK ? put_logs(w, err) : status;
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
        status = nd_import_stated_facts(imported, err);
    if (status == ND_OK && imported->cut_short != NULL)
        status = nd_imported_fact(imported, "cut short", NULL, imported->cut_short, err);
    return status == ND_OK ? nd_runs_facts(imported, matched->n_samples, matched->n_expected, err) : status;
}

/* Why there is less than was asked for, as the facts state it. */
static enum nd_status note_missing(struct nd_imported *imported, const struct nd_matched *matched,
                                   struct nd_error *err)
{
    const char *failed = nd_stated(&imported->stated, ND_STATED_FAILED);
    char text[96];
    snprintf(text, sizeof text, "%zu of %zu samples", matched->n_samples, matched->n_expected);
    const char *why = failed != NULL                                                            ? failed
                      : imported->cut_short == NULL && matched->n_samples < matched->n_expected ? text
                                                                                                : NULL;
    if (why == NULL)
        return ND_OK;
    free(imported->cut_short);
    imported->cut_short = nd_strdup(why);
    return imported->cut_short != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_capture_status state_of(const struct nd_imported *imported)
{
    if (imported->is_failed)
        return ND_CAPTURE_FAILED;
    return imported->cut_short != NULL ? ND_CAPTURE_PARTIAL : ND_CAPTURE_COMPLETE;
}

/* All runs of the samples as one, matched. */
static enum nd_status join_runs(struct nd_imported *imported, struct nd_imported *repeats, size_t n_repeats,
                                struct nd_map *map, const struct nd_import_options *options,
                                struct nd_error *err)
{
    enum nd_status status = nd_match_samples(imported, map, options, err);
    for (size_t r = 0; status == ND_OK && r < n_repeats; r++) {
        status = nd_match_samples(&repeats[r], map, options, err);
        if (status == ND_OK)
            status = nd_runs_append(imported, &repeats[r], r + 1, err);
        nd_imported_deinit(&repeats[r]);
    }
    return status == ND_OK ? nd_runs_split(imported, err) : status;
}

/* Where samples are small, what a capture keeps of each takes more than its values: digest and latency. */
static enum nd_status check_room(const struct nd_imported *imported, const struct nd_matched *matched,
                                 struct nd_error *err)
{
    size_t n_runs, n_bytes, total, memory = nd_machine_memory();
    if (nd_size_mul(matched->n_samples, matched->n_repeats, &n_runs) &&
        nd_size_mul(n_runs, sizeof(struct nd_digest) + sizeof(double), &n_bytes) &&
        nd_size_add(n_bytes, imported->total_bytes, &total) && total <= memory)
        return ND_OK;
    return nd_fail(
        err, ND_E_SIZE_OVERFLOW, NULL,
        "values, digests and latencies of %zu samples are more than this machine's memory of %zu bytes",
        matched->n_samples, memory);
}

static enum nd_status settle(struct nd_imported *imported, struct nd_map *map,
                             const struct nd_import_options *options, struct nd_matched *matched,
                             struct nd_error *err)
{
    imported->is_failed = imported->is_failed || nd_stated(&imported->stated, ND_STATED_FAILED) != NULL;
    enum nd_status status = nd_match(imported, map, options, matched, err);
    if (status == ND_OK)
        status = check_room(imported, matched, err);
    if (status == ND_OK)
        status = nd_import_mark_ends(imported, options->model, matched, err);
    if (status == ND_OK)
        status = note_missing(imported, matched, err);
    return status == ND_OK ? add_common_facts(imported, options, matched, err) : status;
}

enum nd_status nd_imported_write(struct nd_imported *imported, struct nd_imported *repeats, size_t n_repeats,
                                 const struct nd_import_options *options, struct nd_import_result *out,
                                 struct nd_error *err)
{
    struct nd_map map = {0};
    struct nd_matched matched = {0};
    struct nd_import_result result = {0};
    struct nd_capture_writer *writer = NULL;
    enum nd_status status = nd_map_read(options->map, options->names, options->n_names, &map, err);
    if (status == ND_OK)
        status = join_runs(imported, repeats, n_repeats, &map, options, err);
    if (status == ND_OK)
        status = settle(imported, &map, options, &matched, err);
    if (status == ND_OK)
        status = nd_facts_sum_up(imported, &result, err);
    if (status == ND_OK)
        status = nd_capture_writer_create(options->output, options->replace, &writer, err);
    if (status == ND_OK)
        nd_capture_writer_level(writer, DEFLATE_LEVEL);
    const struct nd_import_writing w = {writer, options, imported, &matched, &result};
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
