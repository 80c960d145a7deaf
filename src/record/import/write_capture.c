/* The capture of an import. */
#include <stdio.h>

#include "capture/write/write.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "record/import/imported.h"
#include "record/import/match_tensor.h"
#include "record/import/write_capture.h"
#include "record/sessions/capture_run.h"

/* Whether there is a fact of the kind that holds for all tensors. */
static bool nd_imported_has_fact(const struct nd_imported *imported, const char *kind)
{
    return nd_names_find(&imported->fact_keys, kind) != SIZE_MAX;
}

/* An attribute takes 60000 bytes. */
enum { MAX_TEXT_BYTES = 50000 };

/* The one source of all facts of the kind, or NULL. */
static const char *only_source(const struct nd_imported *imported, const char *kind)
{
    const char *source = NULL;
    for (size_t i = 0; i < imported->n_facts; i++) {
        const struct nd_imported_fact *fact = &imported->facts[i];
        if (strcmp(fact->kind, kind) != 0)
            continue;
        if (source != NULL && strcmp(source, fact->source) != 0)
            return NULL;
        source = fact->source;
    }
    return source;
}

static char *list_sources(const struct nd_imported *imported, const char *kind)
{
    struct nd_strbuf text = {0};
    size_t n_left = 0;
    for (size_t i = 0; i < imported->n_facts; i++) {
        const struct nd_imported_fact *fact = &imported->facts[i];
        if (strcmp(fact->kind, kind) != 0)
            continue;
        const char *tensor = fact->tensor != NULL ? fact->tensor : "others";
        if (n_left > 0 || text.len + strlen(tensor) + strlen(fact->source) + 4 > MAX_TEXT_BYTES)
            n_left++;
        else
            nd_strbuf_printf(&text, "%s%s: %s", text.len > 0 ? "\n" : "", tensor, fact->source);
    }
    if (n_left > 0)
        nd_strbuf_printf(&text, "\nand %zu more", n_left);
    return nd_strbuf_take(&text);
}

static bool has_kind(const struct nd_import_result *result, const char *kind)
{
    return nd_find_text(result->facts, result->n_facts, sizeof *result->facts, kind) != NULL;
}

enum nd_status nd_facts_sum_up(const struct nd_imported *imported, struct nd_import_result *out,
                               struct nd_error *err)
{
    size_t capacity = 0;
    for (size_t i = 0; i < imported->n_facts; i++) {
        const char *kind = imported->facts[i].kind;
        if (has_kind(out, kind))
            continue;
        ND_TRY_MEMORY(nd_grow((void **)&out->facts, &capacity, out->n_facts + 1, sizeof *out->facts), err);
        const char *only = only_source(imported, kind);
        struct nd_import_fact *made = &out->facts[out->n_facts++];
        *made = (struct nd_import_fact){nd_strdup(kind),
                                        only != NULL ? nd_strdup(only) : list_sources(imported, kind)};
        ND_TRY_MEMORY(made->kind != NULL && made->source != NULL, err);
    }
    return ND_OK;
}

static int compare_order(const void *a, const void *b)
{
    const struct nd_matched_tensor *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* No tensor twice. */
static enum nd_status check_side(const struct nd_matched *matched, enum nd_imported_side side,
                                 struct nd_error *err)
{
    for (size_t i = 0; i < matched->n[side]; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(matched->sides[side][i].tensor.name, matched->sides[side][k].tensor.name) == 0)
                return nd_fail(err, ND_E_IMPORT_MISMATCH, matched->sides[side][i].tensor.name,
                               "two tensors are '%s' of the model; --map says which is which, or skips one",
                               matched->sides[side][i].tensor.name);
    return ND_OK;
}

/* All tensors of a side have the same number of samples; those of outputs count repeats, too. */
static enum nd_status count_samples(const struct nd_imported_tensor *tensor, size_t *n, const char **first,
                                    struct nd_error *err)
{
    if (tensor->n_samples == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, tensor->name, "%s has no samples", tensor->where);
    if (*first == NULL) {
        *first = tensor->where;
        *n = tensor->n_samples;
    }
    if (tensor->n_samples == *n)
        return ND_OK;
    return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name, "%s has %zu samples, but %s has %zu", tensor->where,
                   tensor->n_samples, *first, *n);
}

/* One side of an import, and what all its tensors have in common. */
struct side {
    struct nd_imported *imported;
    struct nd_map *map;
    const struct nd_import_options *options;
    enum nd_imported_side side;
    size_t n_samples;
    const char *first; /* where the first tensor is from */
};

static struct nd_import_matching begin(const struct side *side, size_t i)
{
    struct nd_imported_tensor *tensor = &side->imported->sides[side->side].items[i];
    return (struct nd_import_matching){.imported = side->imported,
                                       .options = side->options,
                                       .side = side->side,
                                       .tensor = tensor,
                                       .item = nd_map_find(side->map, side->side, tensor->name)};
}

static enum nd_status match_side(struct side *side, struct nd_matched *out, struct nd_error *err)
{
    size_t n = side->imported->sides[side->side].n;
    struct nd_matched_tensor *tensors = nd_calloc(n, sizeof *tensors);
    out->sides[side->side] = tensors;
    ND_TRY_MEMORY(tensors != NULL, err);
    for (size_t i = 0; i < n; i++) {
        struct nd_import_matching m = begin(side, i);
        if (m.item != NULL)
            m.item->is_used = true;
        if (m.tensor->is_left_out || (m.item != NULL && m.item->is_skipped))
            continue;
        struct nd_matched_tensor *made = &tensors[out->n[side->side]++];
        made->order = i;
        ND_TRY(nd_match_tensor(&m, made, err));
        ND_TRY(count_samples(m.tensor, &side->n_samples, &side->first, err));
    }
    ND_TRY(check_side(out, side->side, err));
    if (out->n[side->side] > 0)
        qsort(tensors, out->n[side->side], sizeof *tensors, compare_order);
    return ND_OK;
}

static enum nd_status check_map(const struct nd_map *map, const struct nd_imported *imported,
                                struct nd_error *err)
{
    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < map->sides[s].n; i++) {
            const struct nd_map_item *item = &map->sides[s].items[i];
            struct nd_strbuf list = {0};
            if (item->is_used)
                continue;
            for (size_t t = 0; t < imported->sides[s].n && list.len < 400; t++)
                nd_strbuf_printf(&list, "%s'%s'", t > 0 ? ", " : "", imported->sides[s].items[t].name);
            ND_FREED char *names = nd_strbuf_take(&list);
            return nd_fail(err, ND_E_IMPORT_MAP, item->name, "%s: the files have no %s '%s'; they have %.480s",
                           item->where, s == ND_IMPORTED_OUTPUT ? "tensor" : "input", item->name,
                           names == NULL || names[0] == '\0' ? "none" : names);
        }
    return ND_OK;
}

/* All inputs of the model or none: with some missing nothing could tell what was fed. */
static enum nd_status check_inputs(const struct nd_matched *matched, const struct nd_model *model,
                                   struct nd_error *err)
{
    size_t n = matched->n[ND_IMPORTED_INPUT];
    for (size_t i = 0; model != NULL && n > 0 && i < nd_model_n_inputs(model); i++)
        if (i >= n || matched->sides[ND_IMPORTED_INPUT][i].order != i)
            return nd_fail(err, ND_E_IMPORT_NOTHING, nd_model_input(model, i)->name,
                           "input '%s' of the model is missing among the inputs",
                           nd_model_input(model, i)->name);
    return ND_OK;
}

/* Tools that save all values of a graph also save its constants, values inside of layers, and floats before a
 * quantiser beside what is dequantised of them. None of these has a place in a capture. */
static enum nd_status leave_out(struct nd_imported *imported, struct nd_map *map,
                                const struct nd_import_options *options, struct nd_error *err)
{
    struct nd_imported_list *outputs = &imported->sides[ND_IMPORTED_OUTPUT];
    const struct nd_model *model = options->model;
    if (model == NULL || imported->has_sanitised_names || imported->keeps_unknown)
        return ND_OK;
    ND_FREED bool *has_after = nd_calloc(nd_model_n_tensors(model), sizeof *has_after);
    ND_TRY_MEMORY(has_after != NULL, err);
    for (size_t i = 0; i < 2 * outputs->n; i++) { /* twice: first for has_after */
        struct nd_imported_tensor *tensor = &outputs->items[i % outputs->n];
        size_t k = SIZE_MAX;
        enum nd_value_role role = nd_map_find(map, ND_IMPORTED_OUTPUT, tensor->name) == NULL
                                      ? nd_value_role_of(model, tensor->name, &k)
                                      : ND_VALUE_NONE;
        const char *why = role == ND_VALUE_CONSTANT ? "a constant of the model"
                          : role == ND_VALUE_INSIDE ? "a value inside of a layer"
                          : role == ND_VALUE_BEFORE && has_after[k]
                              ? "floats before the quantiser; the file has the values after it, too"
                              : NULL;
        if (role == ND_VALUE_AFTER)
            has_after[k] = true;
        tensor->is_left_out = why != NULL;
        if (why != NULL)
            ND_TRY(nd_imported_fact(imported, "left out", tensor->name, why, err));
    }
    return ND_OK;
}

/* Decides for every tensor which dimension the samples are, and moves channels: what must be done before the
 * runs of several repeats can be joined. Errors as nd_match. */
static enum nd_status nd_match_samples(struct nd_imported *imported, struct nd_map *map,
                                       const struct nd_import_options *options, struct nd_error *err)
{
    enum nd_status status = leave_out(imported, map, options, err);
    for (int s = ND_IMPORTED_OUTPUT; s <= ND_IMPORTED_INPUT; s++) {
        const struct side side = {imported, map, options, (enum nd_imported_side)s, 0, NULL};
        for (size_t i = 0; status == ND_OK && i < imported->sides[s].n; i++) {
            struct nd_import_matching m = begin(&side, i);
            if (!m.tensor->is_left_out && (m.item == NULL || !m.item->is_skipped))
                status = nd_match_layout(&m, err);
        }
    }
    return status;
}

/* How many samples there are, and how many there should be. */
static enum nd_status settle_samples(const struct side *outputs, const struct side *inputs,
                                     struct nd_matched *out, struct nd_error *err)
{
    const struct nd_imported *imported = outputs->imported;
    size_t n_inputs = inputs->n_samples;
    uint64_t stated = 0;
    const char *text = nd_stated(&imported->stated, ND_STATED_SAMPLES);
    out->n_repeats = imported->n_repeats > 0 ? imported->n_repeats : 1;
    out->n_samples = outputs->n_samples / out->n_repeats;
    out->n_expected = out->n_samples;
    if (text != NULL && nd_parse_u64(text, &stated)) {
        out->n_expected = (size_t)stated;
        if (stated < out->n_samples || imported->n_parts > 0) {
            char found[48];
            snprintf(found, sizeof found, "%zu", out->n_samples);
            return nd_stated_conflict(&imported->stated, ND_STATED_SAMPLES, found,
                                      imported->n_parts > 0 ? "npudiff.json" : "what was imported", err);
        }
    } else if (imported->is_failed && n_inputs > out->n_samples) {
        out->n_expected = n_inputs;
    }
    if (n_inputs > 0 && n_inputs != out->n_expected)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, NULL, "%s has %zu samples, but there are %zu", inputs->first,
                       n_inputs, out->n_expected);
    return ND_OK;
}

static void nd_matched_deinit(struct nd_matched *matched)
{
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < matched->n[s]; i++)
            nd_tensor_deinit(&matched->sides[s][i].tensor);
        free(matched->sides[s]);
    }
    *matched = (struct nd_matched){0};
}

/* Decides everything else that is to be decided, changes imported's tensors accordingly (transposed, retyped)
 * and adds the facts to it. ND_ERR_NOT_FOUND (ND_E_IMPORT_NOTHING): no tensors, no samples, or a tensor that
 * the model lacks; ND_E_IMPORT_MISMATCH: tensor, found, expected; ND_E_IMPORT_MAP: the map names what is not
 * there. The caller frees *out, before imported. */
static enum nd_status nd_match(struct nd_imported *imported, struct nd_map *map,
                               const struct nd_import_options *options, struct nd_matched *out,
                               struct nd_error *err)
{
    ND_CLEANUP(nd_matched_deinit) struct nd_matched matched = {0};
    struct side outputs = {imported, map, options, ND_IMPORTED_OUTPUT, 0, NULL};
    struct side inputs = {imported, map, options, ND_IMPORTED_INPUT, 0, NULL};
    ND_TRY(match_side(&outputs, &matched, err));
    ND_TRY(match_side(&inputs, &matched, err));
    ND_TRY(check_map(map, imported, err));
    ND_TRY(check_inputs(&matched, options->model, err));
    if (matched.n[ND_IMPORTED_OUTPUT] == 0 && !imported->is_failed)
        return nd_fail(err, ND_E_IMPORT_NOTHING, options->paths[0], "'%s' holds no tensor to import",
                       options->paths[0]);
    ND_TRY(settle_samples(&outputs, &inputs, &matched, err));
    return ND_GIVE(out, matched);
}

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
    ND_FREED char *data = nd_size_mul(rows.n, sample_bytes, &n_bytes) ? nd_tensor_alloc(n_bytes) : NULL;
    ND_TRY_MEMORY(data != NULL, err);
    for (size_t i = 0; i < rows.n && sample_bytes > 0; i++)
        memcpy(data + i * sample_bytes,
               sample_at(w, tensor, rows.sample_repeat[i][0], rows.sample_repeat[i][1], sample_bytes),
               sample_bytes);
    rows.data = data;
    return nd_capture_writer_repeats(w->writer, probe, &tensor->tensor, &rows, err);
}

static enum nd_status put_digests(const struct nd_import_writing *w, const struct nd_capture_probe *probe,
                                  const struct nd_matched_tensor *tensor, size_t sample_bytes,
                                  struct nd_error *err)
{
    size_t n_runs = probe->n_repeats, n_rows = 0, capacity = 0;
    ND_FREED struct nd_digest *digests = nd_calloc(probe->n_samples * n_runs, sizeof *digests);
    ND_FREED size_t(*rows)[2] = NULL;
    ND_TRY_MEMORY(digests != NULL, err);
    for (size_t s = 0; s < probe->n_samples; s++)
        for (size_t r = 0; r < n_runs; r++) {
            digests[s * n_runs + r] = nd_digest_bytes(sample_at(w, tensor, s, r, sample_bytes), sample_bytes);
            if (nd_digest_equal(digests[s * n_runs + r], digests[s * n_runs]))
                continue;
            ND_TRY_MEMORY(nd_grow((void **)&rows, &capacity, n_rows + 1, sizeof *rows), err);
            rows[n_rows][0] = s;
            rows[n_rows++][1] = r;
        }
    ND_TRY(nd_capture_writer_digests(w->writer, probe, &tensor->tensor, digests, err));
    if (n_rows > 0)
        ND_TRY(put_repeats(w, probe, tensor,
                           (struct nd_capture_repeats){(const size_t(*)[2])rows, n_rows, NULL}, sample_bytes,
                           err));
    return ND_OK;
}

static enum nd_status put_output(const struct nd_import_writing *w, const struct nd_capture_probe *probe,
                                 const struct nd_matched_tensor *tensor, struct nd_error *err)
{
    size_t sample_bytes;
    enum nd_status status =
        nd_shape_size_bytes(&tensor->tensor.shape, tensor->tensor.dtype, &sample_bytes, err);
    if (status == ND_OK)
        status = put_digests(w, probe, tensor, sample_bytes, err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs(
            w->writer, &(struct nd_capture_output){probe, &tensor->tensor, tensor->provider, NULL},
            tensor->data, err);
    if (status != ND_OK)
        nd_error_context(err, "tensor '%s'", tensor->tensor.name);
    return status;
}

/* Of a run that failed before it gave anything, all that the model has. */
static enum nd_status put_tensors(const struct nd_import_writing *w, struct nd_error *err)
{
    const struct nd_model *model = w->options->model;
    size_t n = w->matched->n[ND_IMPORTED_OUTPUT];
    bool is_of_model = n == 0 && model != NULL;
    n = is_of_model ? nd_model_n_tensors(model) : n;
    ND_FREED struct nd_tensor *tensors = nd_calloc(n, sizeof *tensors); /* shallow copies */
    ND_FREED const char **providers = nd_calloc(n, sizeof *providers);
    ND_TRY_MEMORY(tensors != NULL && providers != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_matched_tensor *tensor = &w->matched->sides[ND_IMPORTED_OUTPUT][i];
        tensors[i] = is_of_model ? *nd_model_tensor(model, i) : tensor->tensor;
        providers[i] = is_of_model ? "" : tensor->provider;
    }
    return nd_capture_writer_tensors(w->writer, tensors, providers, n, err);
}

/* The tensor with its samples from `first` on. */
static enum nd_status tensor_from(const struct nd_matched_tensor *tensor, size_t first,
                                  struct nd_matched_tensor *out, struct nd_error *err)
{
    size_t sample_bytes = 0;
    ND_TRY(nd_shape_size_bytes(&tensor->tensor.shape, tensor->tensor.dtype, &sample_bytes, err));
    *out = *tensor;
    if (tensor->data != NULL)
        out->data = (const char *)tensor->data + first * sample_bytes; /* within what was imported */
    return ND_OK;
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
    ND_FREED struct nd_capture_input *inputs = nd_calloc(probe.n_inputs, sizeof *inputs);
    ND_TRY_MEMORY(inputs != NULL, err);
    probe.inputs = inputs;
    for (size_t i = 0; i < probe.n_inputs; i++) {
        const struct nd_tensor *tensor = &matched->sides[ND_IMPORTED_INPUT][i].tensor;
        inputs[i] = (struct nd_capture_input){tensor->name, tensor->dtype, tensor->shape};
    }
    ND_TRY(nd_capture_writer_probe(w->writer, &probe, err));
    for (size_t i = 0; i < probe.n_inputs; i++) {
        struct nd_matched_tensor item;
        ND_TRY(tensor_from(&matched->sides[ND_IMPORTED_INPUT][i], first, &item, err));
        ND_TRY(nd_capture_writer_input(w->writer, &probe, i, item.data, err));
    }
    for (size_t i = 0; i < matched->n[ND_IMPORTED_OUTPUT] && probe.n_samples > 0; i++) {
        struct nd_matched_tensor item;
        ND_TRY(tensor_from(&matched->sides[ND_IMPORTED_OUTPUT][i], first, &item, err));
        ND_TRY(put_output(w, &probe, &item, err));
    }
    return ND_OK;
}

static enum nd_status put_probes(const struct nd_import_writing *w, struct nd_error *err)
{
    char source[80];
    const struct nd_imported *imported = w->imported;
    size_t first = 0;
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
    for (size_t i = 0; i < imported->n_parts; i++) {
        ND_TRY(put_probe(w, &imported->parts[i], first, err));
        first += imported->parts[i].n_samples;
    }
    return ND_OK;
}

static enum nd_status put_log(const struct nd_import_writing *w, const struct nd_imported_log *log,
                              struct nd_log_findings *findings, struct nd_error *err)
{
    struct nd_log_summary summary;
    const struct nd_log_options options = {
        .struct_size = sizeof options, .name = log->name, .visit = nd_log_findings_add, .context = findings};
    ND_TRY(nd_capture_writer_log(w->writer, log->name, log->text, log->n_bytes, err));
    ND_TRY(nd_log_read_bytes(log->text, log->n_bytes, &options, &summary, err));
    return findings->failed ? nd_fail_memory(err) : ND_OK;
}

static enum nd_status put_all(const struct nd_import_writing *w, struct nd_error *err)
{
    ND_TRY(nd_import_put_attributes(w, err));
    ND_TRY(put_tensors(w, err));
    ND_TRY(put_probes(w, err));
    /* The logs, and what they say; as `npudiff capture` does it. */
    ND_CLEANUP(nd_log_findings_deinit) struct nd_log_findings findings = {0};
    for (size_t i = 0; i < w->imported->n_logs; i++)
        ND_TRY(put_log(w, &w->imported->logs[i], &findings, err));
    return nd_findings_write(w->writer, &findings, err);
}

/* ---- from tensors to the file ---- */

static enum nd_status add_common_facts(struct nd_imported *imported, const struct nd_import_options *options,
                                       const struct nd_matched *matched, struct nd_error *err)
{
    ND_TRY(nd_imported_fact(imported, "model", NULL,
                            options->model != NULL           ? "--model"
                            : imported->model_sha256 != NULL ? "npudiff.json"
                                                             : "not stated",
                            err));
    if (!nd_imported_has_fact(imported, "layout"))
        ND_TRY(nd_imported_fact(imported, "layout", NULL, "not stated: taken as it is", err));
    if (matched->n[ND_IMPORTED_INPUT] == 0 && !nd_imported_has_fact(imported, "inputs"))
        ND_TRY(nd_imported_fact(
            imported, "inputs", NULL,
            options->model != NULL ? "not stated: 'explain' needs them (--inputs)" : "not stated", err));
    ND_TRY(nd_import_stated_facts(imported, err));
    if (imported->cut_short != NULL)
        ND_TRY(nd_imported_fact(imported, "cut short", NULL, imported->cut_short, err));
    return nd_runs_facts(imported, matched->n_samples, matched->n_expected, err);
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

/* ---- several runs in the same files ---- */

/* [samples][repeats] to [repeats][samples]. */
static enum nd_status turn_order(struct nd_imported_tensor *t, size_t n_repeats, struct nd_error *err)
{
    size_t n_samples = t->n_samples / n_repeats;
    void *turned = nd_tensor_alloc(t->n_samples * t->sample_bytes); /* exists, so it fits */
    ND_TRY_MEMORY(turned != NULL, err);
    for (size_t s = 0; s < n_samples && t->sample_bytes > 0; s++)
        for (size_t r = 0; r < n_repeats; r++)
            memcpy((char *)turned + (r * n_samples + s) * t->sample_bytes,
                   (const char *)t->data + (s * n_repeats + r) * t->sample_bytes, t->sample_bytes);
    free(t->data);
    t->data = turned;
    t->capacity_bytes = t->n_samples * t->sample_bytes;
    return ND_OK;
}

/* What was fed, run by run: every run alike, of which one is kept. */
static enum nd_status fold_input(struct nd_imported_tensor *t, size_t n_repeats, const char *where,
                                 struct nd_error *err)
{
    size_t n = t->n_samples / n_repeats, n_bytes = n * t->sample_bytes;
    for (size_t r = 1; r < n_repeats && n_bytes > 0; r++)
        if (memcmp(t->data, (const char *)t->data + r * n_bytes, n_bytes) != 0)
            return nd_fail(err, ND_E_IMPORT_FACT, t->name,
                           "%s states %zu repeats, but %s was fed otherwise in repeat %zu", where, n_repeats,
                           t->where, r);
    t->n_samples = n;
    return ND_OK;
}

static enum nd_status split_tensor(struct nd_imported *imported, enum nd_imported_side side,
                                   struct nd_imported_tensor *t, size_t n_repeats, struct nd_error *err)
{
    const char *order = nd_stated(&imported->stated, ND_STATED_REPEAT_ORDER);
    const char *where = imported->stated.of[ND_STATED_REPEATS].where;
    const struct nd_imported_list *outputs = &imported->sides[ND_IMPORTED_OUTPUT];
    size_t n_all = outputs->n > 0 ? outputs->items[0].n_samples : t->n_samples;
    if (side == ND_IMPORTED_INPUT && t->n_samples != n_all) /* each sample once */
        return ND_OK;
    if (t->n_samples % n_repeats != 0)
        return nd_fail(err, ND_E_IMPORT_FACT, t->name, "%s states %zu repeats, but %s has %zu samples in all",
                       where, n_repeats, t->where, t->n_samples);
    if (order == NULL && t->n_samples > n_repeats)
        return nd_fail(err, ND_E_IMPORT_FACT, "repeat_order",
                       "%s states %zu repeats of %zu samples: 'repeat_order' says whether the files have them "
                       "run-by-run or sample-by-sample",
                       where, n_repeats, t->n_samples / n_repeats);
    if (order != NULL && strcmp(order, "sample-by-sample") == 0)
        ND_TRY(turn_order(t, n_repeats, err));
    return side == ND_IMPORTED_INPUT ? fold_input(t, n_repeats, where, err) : ND_OK;
}

/* Where the facts say that the files hold several runs: brings them into the order run by run, and sets
 * n_repeats. ND_E_IMPORT_FACT: the numbers do not fit, or nothing states the order. */
static enum nd_status runs_split(struct nd_imported *imported, struct nd_error *err)
{
    uint64_t n_repeats = 1;
    const char *text = nd_stated(&imported->stated, ND_STATED_REPEATS);
    if (text == NULL || !nd_parse_u64(text, &n_repeats) || n_repeats == 1)
        return ND_OK;
    if (imported->n_parts > 0)
        return nd_fail(err, ND_E_IMPORT_FACT, "repeats",
                       "%s: a prepared folder says itself which sample each result is; repeats of it are other "
                       "folders ('repeat_files')",
                       imported->stated.of[ND_STATED_REPEATS].where);
    for (int side = ND_IMPORTED_INPUT; side >= ND_IMPORTED_OUTPUT; side--)
        for (size_t i = 0; i < imported->sides[side].n; i++)
            ND_TRY(split_tensor(imported, (enum nd_imported_side)side, &imported->sides[side].items[i],
                                (size_t)n_repeats, err));
    imported->n_repeats = (size_t)n_repeats;
    return ND_OK;
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
    return status == ND_OK ? runs_split(imported, err) : status;
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

static enum nd_status fail_end(const struct nd_imported *imported, enum nd_stated_key key, const char *name,
                               const struct nd_matched *matched, struct nd_error *err)
{
    const struct nd_matched_tensor *tensors = matched->sides[ND_IMPORTED_OUTPUT];
    size_t nearest =
        matched->n[ND_IMPORTED_OUTPUT] > 0
            ? nd_word_nearest(name, &tensors[0].tensor.name, matched->n[ND_IMPORTED_OUTPUT], sizeof *tensors)
            : SIZE_MAX;
    return nd_fail(err, ND_E_IMPORT_FACT, nd_stated_name(key),
                   "%s: '%s' names '%s', which no tensor of the import is%s%s%s",
                   imported->stated.of[key].where, nd_stated_name(key), name,
                   nearest != SIZE_MAX ? "; the nearest is '" : "",
                   nearest != SIZE_MAX ? tensors[nearest].tensor.name : "", nearest != SIZE_MAX ? "'" : "");
}

static enum nd_status mark(const struct nd_imported *imported, enum nd_stated_key key,
                           const struct nd_model *model, struct nd_matched *matched, struct nd_error *err)
{
    const struct nd_statement *statement = &imported->stated.of[key];
    for (size_t i = 0; i < statement->values.n; i++) {
        const char *name = statement->values.items[i];
        size_t t = 0;
        while (t < matched->n[ND_IMPORTED_OUTPUT] &&
               strcmp(matched->sides[ND_IMPORTED_OUTPUT][t].tensor.name, name) != 0)
            t++;
        if (t == matched->n[ND_IMPORTED_OUTPUT])
            return fail_end(imported, key, name, matched, err);
        struct nd_tensor *tensor = &matched->sides[ND_IMPORTED_OUTPUT][t].tensor;
        bool *is_end = key == ND_STATED_OUTPUTS ? &tensor->is_model_output : &tensor->is_model_input;
        if (model != NULL && !*is_end)
            return nd_fail(err, ND_E_IMPORT_FACT, nd_stated_name(key),
                           "%s: '%s' names '%s', which is none of '%s'", statement->where, nd_stated_name(key),
                           name, nd_model_path(model));
        *is_end = true;
    }
    return ND_OK;
}

/* Marks the tensors that the facts call outputs or inputs of the model. ND_E_IMPORT_FACT: there is no such
 * tensor (names the nearest), or the model says otherwise. */
static enum nd_status nd_import_mark_ends(const struct nd_imported *imported, const struct nd_model *model,
                                          struct nd_matched *matched, struct nd_error *err)
{
    enum nd_status status = mark(imported, ND_STATED_OUTPUTS, model, matched, err);
    return status == ND_OK ? mark(imported, ND_STATED_MODEL_INPUTS, model, matched, err) : status;
}

static enum nd_status settle(struct nd_imported *imported, struct nd_map *map,
                             const struct nd_import_options *options, struct nd_matched *matched,
                             struct nd_error *err)
{
    imported->is_failed = imported->is_failed || nd_stated(&imported->stated, ND_STATED_FAILED) != NULL;
    ND_TRY(nd_match(imported, map, options, matched, err));
    ND_TRY(check_room(imported, matched, err));
    ND_TRY(nd_import_mark_ends(imported, options->model, matched, err));
    ND_TRY(note_missing(imported, matched, err));
    return add_common_facts(imported, options, matched, err);
}

enum nd_status nd_imported_write(struct nd_imported *imported, struct nd_imported *repeats, size_t n_repeats,
                                 const struct nd_import_options *options, struct nd_import_result *out,
                                 struct nd_error *err)
{
    ND_CLEANUP(nd_map_deinit) struct nd_map map = {0};
    ND_CLEANUP(nd_matched_deinit) struct nd_matched matched = {0};
    ND_CLEANUP(nd_import_result_deinit) struct nd_import_result result = {0};
    ND_CLEANUP(nd_capture_writer_destroy) struct nd_capture_writer *writer = NULL;
    ND_TRY(nd_map_read(options->map, options->names, options->n_names, &map, err));
    ND_TRY(join_runs(imported, repeats, n_repeats, &map, options, err));
    ND_TRY(settle(imported, &map, options, &matched, err));
    ND_TRY(nd_facts_sum_up(imported, &result, err));
    ND_TRY(nd_capture_writer_create(options->output, options->replace, &writer, err));
    nd_capture_writer_level(writer, DEFLATE_LEVEL);
    const struct nd_import_writing w = {writer, options, imported, &matched, &result};
    ND_TRY(put_all(&w, err));
    ND_TRY(nd_capture_writer_commit(writer, state_of(imported), err));
    result.n_tensors = matched.n[ND_IMPORTED_OUTPUT];
    result.n_inputs = matched.n[ND_IMPORTED_INPUT];
    result.n_samples = matched.n_samples;
    result.is_failed = imported->is_failed;
    result.cut_short = imported->cut_short;
    imported->cut_short = NULL;
    return ND_GIVE(out, result);
}

void nd_import_result_deinit(struct nd_import_result *result)
{
    ND_FREE_BOTH(result->facts, result->n_facts, .kind, .source);
    free(result->cut_short);
    *result = (struct nd_import_result){0};
}
