/* Reads what must be read, on all threads or from parts, and fills the pairs of every tensor.
 * docs/reference/metrics.md#elements, #sums and #parts. */
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>

#include "capture/read/view.h"
#include "compare/engine/engine.h"
#include "compare/metrics/states.h"
#include "core/documents/json_out.h"
#include "core/items.h"
#include "core/processes/parallel.h"

/* From the states of jobs to the results of tensors. docs/reference/metrics.md#elements, #accounting,
 * #mixed-types and #parts. */

/* What a tensor is waiting for. */
struct nd_tensor_work {
    size_t n_jobs_left;
    struct nd_pair_state **totals;           /* [n_pairs] over the probes so far; NULL where there is nothing */
    const struct nd_pair_context **contexts; /* [n_pairs], borrowed from the jobs */
};

struct nd_delivery {
    const struct nd_aligned_captures *alignment;
    const struct nd_compare_options *options;
    struct nd_comparison *comparison;
    struct nd_tensor_work *tensors; /* [n_edges] */
    struct nd_output_rows rows;
};

struct nd_parts {
    size_t n;
    json_t **roots; /* in order of part */
    char **paths;   /* of each, for messages */
};

/* The 32 hexadecimal digits that stand for a name in a part. digits has room for 40. */
static void part_name(const char *name, char *digits)
{
    struct nd_digest digest = nd_digest_bytes(name, strlen(name));
    snprintf(digits, 40, "%016llx%016llx", (unsigned long long)digest.high, (unsigned long long)digest.low);
}

void nd_parts_destroy(struct nd_parts **parts)
{
    if (*parts == NULL)
        return;
    for (size_t i = 0; i < (*parts)->n; i++) {
        if ((*parts)->roots != NULL)
            json_decref((*parts)->roots[i]);
        if ((*parts)->paths != NULL)
            free((*parts)->paths[i]);
    }
    ND_FREE_ALL((*parts)->roots, (*parts)->paths, *parts);
    *parts = NULL;
}

static json_int_t integer_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* Nothing but the digest shows that a count was changed. */
static enum nd_status check_whole(const json_t *root, const char *path, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    if (integer_of(root, "npudiff_part") != ND_PART_FORMAT)
        return nd_fail(err, ND_E_COMPARE_PART, path,
                       "'%s' is not a part of a comparison that this version reads", path);
    const char *stated = json_string_value(json_object_get(root, "digest"));
    ND_TRY(nd_json_digest(root, hex, err));
    if (stated == NULL || strcmp(stated, hex) != 0)
        return nd_fail(err, ND_E_COMPARE_PART, path,
                       "'%s' is damaged: the digest of its content is %s, and it states '%s'", path, hex,
                       stated != NULL ? stated : "");
    return ND_OK;
}

static enum nd_status read_one(struct nd_parts *parts, const char *path, struct nd_error *err)
{
    json_error_t where;
    json_auto_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL && json_error_code(&where) == json_error_cannot_open_file)
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s'", path);
    if (root == NULL)
        return nd_fail(err, ND_E_COMPARE_PART, path, "'%s' is not a part of a comparison: line %d, %s", path,
                       where.line, where.text);
    json_int_t part = integer_of(root, "part"), n = integer_of(root, "parts");
    ND_TRY(check_whole(root, path, err));
    if (n < 1 || part < 0 || part >= n || (size_t)n != parts->n)
        return nd_fail(err, ND_E_COMPARE_PART, path, "'%s' is part %.0f of %lld, and %zu files were given",
                       path, (double)part + 1, (long long)n, parts->n);
    if (parts->roots[part] != NULL)
        return nd_fail(err, ND_E_COMPARE_PART, path, "'%s' and '%s' are the same part: %lld of %lld",
                       parts->paths[part], path, (long long)part + 1, (long long)n);
    parts->paths[part] = strdup(path);
    ND_TRY_MEMORY(parts->paths[part] != NULL, err);
    parts->roots[part] = json_incref(root);
    return ND_OK;
}

enum nd_status nd_parts_read(const char *const *paths, size_t n, struct nd_parts **out, struct nd_error *err)
{
    if (n == 0)
        return nd_fail(err, ND_E_COMPARE_PART, NULL, "there are no parts");
    ND_CLEANUP(nd_parts_destroy) struct nd_parts *parts = nd_calloc(1, sizeof *parts);
    ND_TRY_MEMORY(parts != NULL, err);
    parts->n = n;
    parts->roots = nd_calloc(n, sizeof(json_t *));
    parts->paths = nd_calloc(n, sizeof(char *));
    ND_TRY_MEMORY(parts->roots != NULL && parts->paths != NULL, err);
    for (size_t i = 0; i < n; i++)
        ND_TRY(read_one(parts, paths[i], err)); /* n of n without a repetition: none is missing */
    return ND_GIVE(out, parts);
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool is_name(const json_t *value, const char *name)
{
    char digits[40];
    part_name(name, digits);
    return is_text(value, digits);
}

/* What a part was made of, as text; NULL when it fits. */
static const char *find_mismatch(const json_t *root, const struct nd_comparison *c)
{
    const json_t *captures = json_object_get(root, "captures"), *probes = json_object_get(root, "probes");
    const json_t *tensors = json_object_get(root, "tensors");
    if (json_array_size(captures) != c->n_devices)
        return "a different number of captures";
    for (size_t i = 0; i < c->n_devices; i++)
        if (!is_text(json_array_get(captures, i), c->devices[i].content_digest))
            return "other captures";
    if (integer_of(root, "pairs") != (json_int_t)c->n_pairs ||
        integer_of(root, "worst") != (json_int_t)c->n_worst ||
        !is_text(json_object_get(root, "ulp_in"), nd_dtype_name(c->ulp_in)))
        return "other options";
    if (json_array_size(probes) != c->n_probes || json_array_size(tensors) != c->n_tensors)
        return "other tensors or probes";
    for (size_t i = 0; i < c->n_probes; i++)
        if (!is_name(json_array_get(probes, i), c->probes[i].name))
            return "other probes";
    for (size_t e = 0; e < c->n_tensors; e++) {
        const json_t *tensor = json_array_get(tensors, e);
        if (!is_name(json_object_get(tensor, "name"), c->tensors[e].name))
            return "other tensors";
        if (!is_text(json_object_get(tensor, "gate"), c->tensors[e].gate))
            return "other gates";
    }
    return NULL;
}

enum nd_status nd_parts_check(const struct nd_parts *parts, const struct nd_comparison *described,
                              struct nd_error *err)
{
    for (size_t i = 0; i < parts->n; i++) {
        const char *mismatch = find_mismatch(parts->roots[i], described);
        if (mismatch != NULL)
            return nd_fail(err, ND_E_COMPARE_PART, parts->paths[i], "'%s' was made with %s", parts->paths[i],
                           mismatch);
        const json_t *cut = json_object_get(parts->roots[i], "cut");
        if (!json_is_string(cut) || !is_text(json_object_get(parts->roots[0], "cut"), json_string_value(cut)))
            return nd_fail(err, ND_E_COMPARE_PART, parts->paths[i], "'%s' and '%s' were cut in different ways",
                           parts->paths[0], parts->paths[i]);
    }
    return ND_OK;
}

static bool is_in_job(const struct nd_compare_job *job, uint64_t probe, uint64_t sample, uint64_t index)
{
    return probe == job->probe && sample < job->end_sample && index < job->n_elems;
}

/* Whether the tensor has all places that the state names: who reports them counts on it. */
static bool has_places(const struct nd_compare_job *job, const struct nd_pair_state *state)
{
    const struct nd_first *first = &state->bits.first, *permuted = &state->structure.permutation;
    bool has_all = !first->is_set || is_in_job(job, first->probe, first->sample, first->index) ||
                   (!first->has_index && first->probe == job->probe && first->sample < job->end_sample);
    has_all = has_all && (!permuted->is_set || permuted->probe == job->probe);
    for (size_t i = 0; i < state->worst.list.n && has_all; i++) {
        const struct nd_difference_place *place = &state->worst.list.items[i].place;
        has_all = is_in_job(job, place->probe, place->sample, place->index);
    }
    return has_all;
}

static enum nd_status load_state(const struct nd_parts *parts, size_t part, const struct nd_compare_job *job,
                                 size_t p, struct nd_compare_job_pair *pair, struct nd_error *err)
{
    const json_t *tensor = json_array_get(json_object_get(parts->roots[part], "tensors"), job->tensor);
    const json_t *state = json_array_get(json_array_get(json_object_get(tensor, "pairs"), p), job->probe);
    if (json_is_null(state))
        return ND_OK;
    ND_CLEANUP(nd_pair_state_destroy) struct nd_pair_state *read = nd_pair_state_create(&pair->context, err);
    if (read == NULL)
        return ND_ERR_MEMORY;
    enum nd_status status = json_is_string(state) ? nd_pair_state_parse(read, json_string_value(state), err)
                                                  : nd_fail(err, ND_E_COMPARE_PART, NULL, "a state is missing");
    if (status == ND_OK && !has_places(job, read))
        status = nd_fail(err, ND_E_COMPARE_PART, NULL, "a state names an element that is not there");
    if (status == ND_OK)
        return nd_pair_state_merge(pair->state, read, err);
    nd_error_context(err, "reading '%s'", parts->paths[part]);
    return status;
}

/* Adds what the parts hold to the states of the job's pairs. */
static enum nd_status nd_parts_load(const struct nd_parts *parts, struct nd_compare_job *job, size_t n_pairs,
                                    struct nd_error *err)
{
    for (size_t i = 0; i < job->n_pairs; i++) {
        size_t p = 0; /* any pair of captures that this one stands for: they all have the same state */
        while (p < n_pairs && job->pair_of[p] != i)
            p++;
        for (size_t part = 0; part < parts->n; part++)
            ND_TRY(load_state(parts, part, job, p, &job->pairs[i], err));
    }
    return ND_OK;
}

/* No count may exceed the samples there are. */
static bool add_counts(const json_t *array, size_t **counts, size_t n, size_t n_samples)
{
    if (json_array_size(array) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        bool is_possible = json_is_integer(value) && json_integer_value(value) >= 0 &&
                           (i == 0 || (uint64_t)json_integer_value(value) <= n_samples - *counts[i]);
        if (!is_possible)
            return false;
        *counts[i] += (size_t)json_integer_value(value);
    }
    return true;
}

static bool add_entry(const json_t *from, struct nd_top1 *entry, size_t n_devices, size_t n_samples)
{
    const json_t *devices = json_object_get(from, "devices"), *pairs = json_object_get(from, "pairs");
    bool is_read = json_array_size(devices) == n_devices && json_array_size(pairs) == n_devices - 1;
    for (size_t c = 0; c < n_devices && is_read; c++) {
        struct nd_top1_device *d = &entry->devices[c];
        size_t exists = 0, *counts[] = {&exists, &d->n_samples, &d->n_invalid, &d->n_correct};
        is_read = add_counts(json_array_get(devices, c), counts, ND_PART_DEVICE_COUNTS, n_samples);
        d->exists = d->exists || exists > 0;
    }
    for (size_t t = 1; t < n_devices && is_read; t++) {
        struct nd_top1_pair *p = &entry->pairs[t - 1];
        size_t exists = 0,
               *counts[] = {&exists, &p->n_samples, &p->n_agree, &p->n_lost, &p->n_gained, &p->n_changed_wrong};
        is_read = add_counts(json_array_get(pairs, t - 1), counts, ND_PART_PAIR_COUNTS, n_samples);
        p->exists = p->exists || exists > 0;
    }
    return is_read;
}

/* Adds up the counts of top1, whose entries are there. */
static enum nd_status nd_parts_load_top1(const struct nd_parts *parts, struct nd_comparison *comparison,
                                         struct nd_error *err)
{
    for (size_t part = 0; part < parts->n; part++) {
        const json_t *entries = json_object_get(parts->roots[part], "top1");
        bool is_read = json_array_size(entries) == comparison->n_top1;
        for (size_t i = 0; i < comparison->n_top1 && is_read; i++)
            is_read = add_entry(json_array_get(entries, i), &comparison->top1[i], comparison->n_devices,
                                comparison->probes[comparison->top1[i].probe].n_samples);
        if (!is_read)
            return nd_fail(err, ND_E_COMPARE_PART, parts->paths[part],
                           "the accuracy counts in '%s' are malformed", parts->paths[part]);
    }
    return ND_OK;
}

static enum nd_status nd_output_rows_add(struct nd_output_rows *rows, size_t tensor, size_t probe,
                                         size_t first_sample, size_t end_sample, struct nd_error *err)
{
    int64_t **classes = nd_calloc(rows->n_captures, sizeof(int64_t *));
    if (classes == NULL || !nd_grow((void **)&rows->rows, &rows->capacity, rows->n + 1, sizeof *rows->rows)) {
        free(classes);
        return nd_fail_memory(err);
    }
    rows->rows[rows->n++] = (struct nd_output_row){tensor, probe, first_sample, end_sample, classes};
    return ND_OK;
}

/* jobs: all of them, planned. The caller runs nd_delivery_deinit whatever happens. */
static enum nd_status nd_delivery_init(struct nd_delivery *delivery, struct nd_compare_job *const *jobs,
                                       size_t n_jobs, struct nd_error *err)
{
    struct nd_comparison *comparison = delivery->comparison;
    delivery->tensors = nd_calloc(comparison->n_tensors, sizeof *delivery->tensors);
    delivery->rows.n_captures = delivery->alignment->n_captures;
    ND_TRY_MEMORY(delivery->tensors != NULL, err);
    for (size_t i = 0; i < n_jobs; i++)
        delivery->tensors[jobs[i]->tensor].n_jobs_left++;
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &comparison->tensors[e];
        size_t n_elems;
        if (!tensor->is_model_output || tensor->shape.rank < 1 ||
            nd_shape_n_elems(&tensor->shape, &n_elems, NULL) != ND_OK || n_elems < 2)
            continue;
        for (size_t p = 0; p < comparison->n_probes; p++) {
            size_t first, end;
            nd_cut_samples(delivery->alignment, p, delivery->options, &first, &end);
            ND_TRY(nd_output_rows_add(&delivery->rows, e, p, first, end, err));
        }
    }
    return ND_OK;
}

static void free_totals(struct nd_tensor_work *work, size_t n_pairs)
{
    for (size_t p = 0; work->totals != NULL && p < n_pairs; p++)
        nd_pair_state_destroy(&work->totals[p]);
    ND_FREE_ALL(work->totals, work->contexts);
    *work = (struct nd_tensor_work){0};
}

/* What the workers found, into the state that knows the samples. */
static enum nd_status gather(struct nd_compare_job *job, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t w = 0; w < job->n_workers; w++) {
        if (job->states[w] == NULL)
            continue;
        for (size_t p = 0; p < job->n_pairs; p++) {
            if (job->states[w][p] != NULL)
                nd_joint_settle(job->states[w][p], &job->pairs[p].context);
            if (status == ND_OK && job->states[w][p] != NULL)
                status = nd_pair_state_merge(job->pairs[p].state, job->states[w][p], err);
            nd_pair_state_destroy(&job->states[w][p]);
        }
        free(job->states[w]);
        job->states[w] = NULL;
    }
    return status;
}

static uint64_t count_stuck(const struct nd_compare_job *job, const struct nd_compare_job_pair *pair,
                            size_t stream)
{
    size_t n_samples = job->end_sample - job->first_sample;
    uint64_t n = 0;
    for (size_t i = 0; i < n_samples; i++) {
        const struct nd_value_span *span = &job->spans[stream * n_samples + i];
        n += (pair->context.is_mixed || atomic_load(&pair->seen[i])) && !span->has_others &&
             span->min == span->max;
    }
    return n;
}

/* Adds one sample of which both sides were read, whether or not it differs. */
static void numbers_add_sample(struct nd_numbers_state *state, size_t n_elems, const struct nd_specials *ref,
                               const struct nd_specials *test)
{
    bool is_ref_nan = n_elems > 0 && ref->n_nan == n_elems, is_test_nan = n_elems > 0 && test->n_nan == n_elems;
    state->n_samples++;
    state->n_elems += n_elems;
    state->n_ref_nan += ref->n_nan;
    state->n_test_nan += test->n_nan;
    state->n_ref_inf += ref->n_inf;
    state->n_test_inf += test->n_inf;
    state->n_samples_ref_nan += is_ref_nan;
    state->n_samples_test_nan += is_test_nan;
    state->n_samples_both_nan += is_ref_nan && is_test_nan;
}

/* What is no number, in all samples of a pair of which both sides were read. Quantised values are numbers. */
static void count_numbers(const struct nd_compare_job *job, const struct nd_compare_job_pair *pair)
{
    size_t n_samples = job->end_sample - job->first_sample;
    size_t n_common = pair->n_common < job->end_sample ? pair->n_common : job->end_sample;
    const size_t sides[2] = {pair->ref, pair->test};
    static const struct nd_specials none = {0};
    bool has_floats = false;
    for (size_t i = 0; i < 2; i++) {
        const struct nd_stream *stream = &job->streams[sides[i]];
        has_floats = has_floats || stream->layout.is_float;
        if (stream->layout.is_float && !stream->is_scanned)
            return;
    }
    for (size_t s = job->first_sample; s < n_common && pair->has_values && has_floats; s++) {
        const struct nd_specials *specials[2];
        for (size_t i = 0; i < 2; i++)
            specials[i] = job->streams[sides[i]].layout.is_float
                              ? &job->best[sides[i] * n_samples + s - job->first_sample].specials
                              : &none;
        numbers_add_sample(&pair->state->numbers, job->n_elems, specials[0], specials[1]);
    }
}

/* What only whole samples tell. */
static void count_whole_samples(struct nd_compare_job *job)
{
    for (size_t p = 0; p < job->n_pairs; p++) {
        struct nd_compare_job_pair *pair = &job->pairs[p];
        if (job->best != NULL)
            count_numbers(job, pair);
        if (job->spans != NULL) {
            pair->state->account.ref.n_stuck_samples += count_stuck(job, pair, pair->ref);
            pair->state->account.test.n_stuck_samples += count_stuck(job, pair, pair->test);
        }
        /* Parts that are merged counted them when they were made, and nothing is seen now. */
        bool is_counted = pair->context.is_mixed && pair->seen != NULL;
        for (size_t i = 0; is_counted && i < job->end_sample - job->first_sample; i++)
            pair->state->bits.n_samples_differing += atomic_load(&pair->seen[i]);
    }
}

/* ND_E_CAPTURE_DIGEST when a sample of the job differs by its digests and not in one element: one of the two is
 * wrong, and calling the samples equal would trust the wrong half of a damaged file. */
static enum nd_status nd_deliver_check(const struct nd_compare_job *job, struct nd_error *err)
{
    const struct nd_aligned_captures *a = job->alignment;
    for (size_t p = 0; p < job->n_pairs; p++) {
        const struct nd_compare_job_pair *pair = &job->pairs[p];
        size_t end = pair->n_common < job->end_sample ? pair->n_common : job->end_sample;
        for (size_t s = job->first_sample; s < end && pair->has_values && !pair->context.is_mixed; s++)
            if (!atomic_load(&pair->seen[s - job->first_sample]) &&
                !nd_job_is_equal(job, pair->ref, pair->test, s))
                return nd_fail(err, ND_E_CAPTURE_DIGEST, a->tensor_names[job->tensor],
                               "tensor '%s', probe '%s', sample %zu: the digests in '%s' and '%s' differ, but "
                               "the data does not",
                               a->tensor_names[job->tensor], a->probe_names[job->probe], s,
                               nd_capture_path(job->streams[pair->ref].tensor.capture),
                               nd_capture_path(job->streams[pair->test].tensor.capture));
    }
    return ND_OK;
}

static enum nd_status deliver_pair(struct nd_delivery *delivery, struct nd_compare_job *job, size_t p,
                                   struct nd_error *err)
{
    struct nd_comparison *comparison = delivery->comparison;
    struct nd_compare_job_pair *pair = &job->pairs[job->pair_of[p]];
    struct nd_compared_part *part = &comparison->tensors[job->tensor].pairs[p].probes[job->probe];
    if (comparison->cut != ND_CUT_NONE) {
        part->state = nd_pair_state_format(pair->state);
        ND_TRY_MEMORY(part->state != NULL, err);
    }
    ND_TRY(nd_pair_state_finish(pair->state, &pair->context, &part->difference, err));
    struct nd_tensor_work *work = &delivery->tensors[job->tensor];
    if (work->totals == NULL) {
        work->totals = nd_calloc(comparison->n_pairs, sizeof *work->totals);
        work->contexts = nd_calloc(comparison->n_pairs, sizeof *work->contexts);
    }
    ND_TRY_MEMORY(work->totals != NULL && work->contexts != NULL, err);
    work->contexts[p] = &pair->context;
    if (work->totals[p] == NULL && (work->totals[p] = nd_pair_state_create(&pair->context, err)) == NULL)
        return ND_ERR_MEMORY;
    return nd_pair_state_merge(work->totals[p], pair->state, err);
}

static enum nd_status finish_tensor(struct nd_delivery *delivery, size_t e, struct nd_error *err)
{
    struct nd_tensor_work *work = &delivery->tensors[e];
    struct nd_compared_tensor *tensor = &delivery->comparison->tensors[e];
    size_t n_pairs = delivery->comparison->n_pairs;
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < n_pairs && work->totals != NULL && status == ND_OK; p++)
        if (work->totals[p] != NULL)
            status = nd_pair_state_finish(work->totals[p], work->contexts[p],
                                          &tensor->pairs[p].total.difference, err);
    free_totals(work, n_pairs);
    return status;
}

static struct nd_output_row *find_row(struct nd_output_rows *rows, size_t tensor, size_t probe)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->rows[i].tensor == tensor && rows->rows[i].probe == probe)
            return &rows->rows[i];
    return NULL;
}

static enum nd_status deliver_classes(struct nd_delivery *delivery, const struct nd_compare_job *job,
                                      struct nd_error *err)
{
    struct nd_output_row *row = find_row(&delivery->rows, job->tensor, job->probe);
    size_t n_samples = job->end_sample - job->first_sample;
    for (size_t c = 0; row != NULL && job->best != NULL && c < delivery->alignment->n_captures; c++) {
        if (job->stream_of[c] == SIZE_MAX)
            continue;
        row->classes[c] = nd_calloc(n_samples, sizeof *row->classes[c]);
        ND_TRY_MEMORY(row->classes[c] != NULL, err);
        for (size_t s = 0; s < n_samples; s++)
            row->classes[c][s] = job->best[job->stream_of[c] * n_samples + s].index;
    }
    return ND_OK;
}

/* A job whose tiles are all done: fills the parts of its probe and, with the last job of a tensor, the totals;
 * frees its states. One call at a time. */
static enum nd_status nd_deliver(struct nd_delivery *delivery, struct nd_compare_job *job, struct nd_error *err)
{
    size_t n_pairs = delivery->comparison->n_pairs;
    ND_TRY(gather(job, err));
    count_whole_samples(job);
    if (delivery->options->merge != NULL)
        ND_TRY(nd_parts_load(delivery->options->merge, job, n_pairs, err));
    for (size_t p = 0; p < n_pairs; p++)
        if (job->pair_of[p] != SIZE_MAX)
            ND_TRY(deliver_pair(delivery, job, p, err));
    ND_TRY(deliver_classes(delivery, job, err));
    for (size_t i = 0; i < job->n_pairs; i++)
        nd_pair_state_destroy(&job->pairs[i].state);
    return --delivery->tensors[job->tensor].n_jobs_left == 0 ? finish_tensor(delivery, job->tensor, err)
                                                             : ND_OK;
}

enum { DEFAULT_MEMORY = 512 << 20, WORKER_MEMORY = 3 << 20 };

struct engine {
    const struct nd_aligned_captures *alignment;
    const struct nd_compare_options *options;
    struct nd_comparison *comparison;
    size_t n_workers;
    struct nd_worker **workers;
    struct nd_compare_job **jobs;
    size_t n_jobs, jobs_capacity;
    size_t *first_tile; /* [n_jobs + 1]: tiles are numbered over all jobs */
    pthread_mutex_t lock;
    atomic_size_t n_done; /* tiles */
    struct nd_delivery delivery;
};

static enum nd_status plan_tensor(struct engine *engine, const struct nd_job_options *job_options, size_t e,
                                  struct nd_error *err)
{
    struct nd_compared_tensor *tensor = &engine->comparison->tensors[e];
    ND_FREED bool *is_mixed = nd_calloc(engine->comparison->n_pairs, sizeof *is_mixed);
    ND_TRY_MEMORY(is_mixed != NULL, err);
    for (size_t p = 0; p < engine->comparison->n_pairs; p++) {
        struct nd_compared_pair *pair = &tensor->pairs[p];
        ND_TRY(nd_align_tensors(nd_aligned_tensor(engine->alignment, e, pair->ref),
                                nd_aligned_tensor(engine->alignment, e, pair->test), &is_mixed[p],
                                &pair->total.reason, err));
    }
    for (size_t probe = 0; probe < engine->comparison->n_probes; probe++)
        ND_TRY(nd_jobs_plan(engine->alignment, e, probe, job_options, tensor, is_mixed, &engine->jobs,
                            &engine->n_jobs, &engine->jobs_capacity, err));
    return ND_OK;
}

static enum nd_status plan(struct engine *engine, const struct nd_kernels *kernels, struct nd_error *err)
{
    struct nd_comparison *comparison = engine->comparison;
    struct nd_job_options job_options = {.compare = engine->options,
                                         .kernels = kernels,
                                         .n_pairs = comparison->n_pairs,
                                         .n_workers = engine->n_workers};
    for (size_t e = 0; e < comparison->n_tensors; e++)
        job_options.has_outputs = job_options.has_outputs || comparison->tensors[e].is_model_output;
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        job_options.pairs = comparison->tensors[e].pairs;
        ND_TRY(plan_tensor(engine, &job_options, e, err));
    }
    engine->first_tile = nd_calloc(engine->n_jobs + 1, sizeof *engine->first_tile);
    ND_TRY_MEMORY(engine->first_tile != NULL, err);
    for (size_t i = 0; i < engine->n_jobs; i++)
        engine->first_tile[i + 1] = engine->first_tile[i] + engine->jobs[i]->n_tiles;
    return ND_OK;
}

/* Bytes of buffers that one worker needs for the job. */
static size_t job_memory(const struct nd_compare_job *job)
{
    size_t total = 0;
    for (size_t i = 0; i < job->n_streams && job->n_tiles > 0; i++) {
        const struct nd_stream *s = &job->streams[i];
        if (s->chunk_bytes > 0)
            total += job->samples_per_tile * job->tile_elems * s->layout.elem_bytes + 2 * s->chunk_bytes;
        if (job->is_output && job->n_elems <= ND_OUTPUT_WHOLE)
            total += job->n_elems * sizeof(double);
    }
    return total;
}

/* Fewer threads where their buffers would not fit; one must. */
static enum nd_status fit_memory(struct engine *engine, struct nd_error *err)
{
    size_t budget = engine->options->memory_bytes > 0 ? engine->options->memory_bytes : DEFAULT_MEMORY,
           most = 0;
    const struct nd_compare_job *largest = NULL;
    for (size_t i = 0; i < engine->n_jobs; i++)
        if (job_memory(engine->jobs[i]) > most) {
            largest = engine->jobs[i];
            most = job_memory(largest);
        }
    size_t each = most + WORKER_MEMORY;
    if (each > budget)
        return nd_fail(err, ND_E_COMPARE_MEMORY,
                       engine->alignment->tensor_names[largest != NULL ? largest->tensor : 0],
                       "tensor '%s' needs %zu MiB for the chunks of %zu captures, and %zu MiB were granted",
                       engine->alignment->tensor_names[largest != NULL ? largest->tensor : 0], (each >> 20) + 1,
                       largest != NULL ? largest->n_streams : 0, budget >> 20);
    if (engine->n_workers > budget / each)
        engine->n_workers = budget / each;
    return ND_OK;
}

static enum nd_status make_workers(struct engine *engine, struct nd_error *err)
{
    size_t n_streams = 1, n_pairs = 1;
    for (size_t i = 0; i < engine->n_jobs; i++) {
        n_streams = engine->jobs[i]->n_streams > n_streams ? engine->jobs[i]->n_streams : n_streams;
        n_pairs = engine->jobs[i]->n_pairs > n_pairs ? engine->jobs[i]->n_pairs : n_pairs;
    }
    engine->workers = nd_calloc(engine->n_workers, sizeof(struct nd_worker *));
    ND_TRY_MEMORY(engine->workers != NULL, err);
    for (size_t w = 0; w < engine->n_workers; w++)
        if ((engine->workers[w] = nd_worker_create(w, n_streams, n_pairs, err)) == NULL)
            return ND_ERR_MEMORY;
    return ND_OK;
}

/* The last job whose tiles begin at or before that number, and which has any. */
static size_t find_job(const struct engine *engine, size_t tile)
{
    size_t low = 0, high = engine->n_jobs;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (engine->first_tile[middle] <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum nd_status run_task(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct engine *engine = context;
    size_t j = find_job(engine, task);
    struct nd_compare_job *job = engine->jobs[j];
    const struct nd_compare_options *options = engine->options;
    if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "the comparison was stopped on request");
    enum nd_status status = nd_tile_run(engine->workers[worker], job, task - engine->first_tile[j], err);
    if (options->progress != NULL)
        options->progress(options->progress_context, "compare", atomic_fetch_add(&engine->n_done, 1) + 1,
                          engine->first_tile[engine->n_jobs]);
    if (status != ND_OK || atomic_fetch_sub(&job->n_tiles_left, 1) > 1)
        return status;
    pthread_mutex_lock(&engine->lock);
    status = nd_deliver(&engine->delivery, job, err);
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static enum nd_status run(struct engine *engine, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < engine->n_jobs && status == ND_OK; i++)
        if (engine->jobs[i]->n_tiles == 0)
            status = nd_deliver(&engine->delivery, engine->jobs[i], err);
    if (status == ND_OK)
        status = nd_parallel_for(engine->n_workers, engine->first_tile[engine->n_jobs], run_task, engine, err);
    /* In order of the jobs, so that of several damaged samples always the same one is named. */
    for (size_t i = 0; i < engine->n_jobs && status == ND_OK && engine->options->merge == NULL; i++)
        if (engine->jobs[i]->n_tiles > 0)
            status = nd_deliver_check(engine->jobs[i], err);
    /* What looks damaged in a file that was changed meanwhile is no damage: the change is the error. */
    bool may_be_changed = status == ND_OK || status == ND_ERR_FORMAT;
    for (size_t c = 0; c < engine->alignment->n_captures && may_be_changed; c++) {
        enum nd_status unchanged = nd_capture_check_unchanged(engine->alignment->captures[c], err);
        may_be_changed = unchanged == ND_OK;
        status = unchanged != ND_OK ? unchanged : status;
    }
    return status;
}

/* Appends an empty row. */
static void nd_output_rows_deinit(struct nd_output_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        for (size_t c = 0; c < rows->n_captures; c++)
            free(rows->rows[i].classes[c]);
        free(rows->rows[i].classes);
    }
    free(rows->rows);
    *rows = (struct nd_output_rows){0};
}

enum nd_status nd_engine_run(const struct nd_aligned_captures *alignment,
                             const struct nd_compare_options *options, const struct nd_kernels *kernels,
                             struct nd_comparison *comparison, struct nd_error *err)
{
    struct engine engine = {.alignment = alignment, .options = options, .comparison = comparison};
    engine.n_workers = options->n_threads > 0 ? options->n_threads : nd_parallel_n_threads();
    engine.delivery =
        (struct nd_delivery){.alignment = alignment, .options = options, .comparison = comparison};
    pthread_mutex_init(&engine.lock, NULL);
    enum nd_status status = plan(&engine, kernels, err);
    if (status == ND_OK)
        status = fit_memory(&engine, err);
    if (status == ND_OK)
        status = make_workers(&engine, err);
    if (status == ND_OK)
        status = nd_delivery_init(&engine.delivery, engine.jobs, engine.n_jobs, err);
    if (status == ND_OK)
        status = run(&engine, err);
    if (status == ND_OK)
        status = nd_accuracy_count(alignment, &engine.delivery.rows, comparison, err);
    if (status == ND_OK && options->merge != NULL)
        status = nd_parts_load_top1(options->merge, comparison, err);
    struct nd_delivery *delivery = &engine.delivery;
    for (size_t e = 0; delivery->tensors != NULL && e < delivery->comparison->n_tensors; e++)
        free_totals(&delivery->tensors[e], delivery->comparison->n_pairs);
    free(delivery->tensors);
    nd_output_rows_deinit(&delivery->rows);
    ND_DEINIT_EACH(nd_worker_destroy, engine.workers, engine.n_workers);
    for (size_t i = 0; i < engine.n_jobs; i++)
        nd_job_destroy(&engine.jobs[i]);
    ND_FREE_ALL(engine.jobs, engine.first_tile);
    pthread_mutex_destroy(&engine.lock);
    return status;
}

/* A part of a comparison as JSON. */

/* jansson refuses NULL values with -1, and so a failed allocation anywhere ends as a failed set: it is
 * remembered. */
struct writer {
    const struct nd_comparison *comparison;
    bool failed;
};

static const char *cut_name(enum nd_cut cut)
{
    static const char *const names[] = {"none", "tensors", "samples"};
    return names[cut];
}

static void put(struct writer *w, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        w->failed = true;
}

static void push(struct writer *w, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        w->failed = true;
}

/* Names need not be UTF-8: they are kept as the digest of their bytes. */
static json_t *name_value(const char *name)
{
    char digits[40];
    part_name(name, digits);
    return json_string(digits);
}

static json_t *tensor_value(struct writer *w, const struct nd_compared_tensor *tensor)
{
    json_t *object = json_object(), *pairs = json_array();
    put(w, object, "name", name_value(tensor->name));
    put(w, object, "gate", json_string(tensor->gate));
    for (size_t p = 0; p < w->comparison->n_pairs; p++) {
        json_t *probes = json_array();
        for (size_t i = 0; i < w->comparison->n_probes; i++) {
            const char *state = tensor->pairs[p].probes[i].state;
            push(w, probes, state != NULL ? json_string(state) : json_null());
        }
        push(w, pairs, probes);
    }
    put(w, object, "pairs", pairs);
    return object;
}

static json_t *counts_value(struct writer *w, const size_t *counts, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        push(w, array, json_integer((json_int_t)counts[i]));
    return array;
}

static json_t *top1_value(struct writer *w, const struct nd_top1 *entry)
{
    json_t *object = json_object(), *devices = json_array(), *pairs = json_array();
    for (size_t c = 0; c < w->comparison->n_devices; c++) {
        const struct nd_top1_device *d = &entry->devices[c];
        size_t counts[] = {d->exists, d->n_samples, d->n_invalid, d->n_correct};
        push(w, devices, counts_value(w, counts, ND_PART_DEVICE_COUNTS));
    }
    for (size_t t = 1; t < w->comparison->n_devices; t++) {
        const struct nd_top1_pair *p = &entry->pairs[t - 1];
        size_t counts[] = {p->exists, p->n_samples, p->n_agree, p->n_lost, p->n_gained, p->n_changed_wrong};
        push(w, pairs, counts_value(w, counts, ND_PART_PAIR_COUNTS));
    }
    put(w, object, "devices", devices);
    put(w, object, "pairs", pairs);
    return object;
}

enum nd_status nd_compare_part_format(const struct nd_comparison *comparison, char **out, struct nd_error *err)
{
    if (comparison->cut == ND_CUT_NONE)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "this comparison is whole, not a part");
    struct writer w = {.comparison = comparison};
    json_t *root = nd_json_document(ND_DOCUMENT_PART, json_object()), *captures = json_array(),
           *probes = json_array(), *tensors = json_array(), *top1 = json_array();
    for (size_t c = 0; c < comparison->n_devices; c++)
        push(&w, captures, json_string(comparison->devices[c].content_digest));
    for (size_t p = 0; p < comparison->n_probes; p++)
        push(&w, probes, name_value(comparison->probes[p].name));
    for (size_t e = 0; e < comparison->n_tensors; e++)
        push(&w, tensors, tensor_value(&w, &comparison->tensors[e]));
    for (size_t i = 0; i < comparison->n_top1; i++)
        push(&w, top1, top1_value(&w, &comparison->top1[i]));
    put(&w, root, "npudiff_part", json_integer(ND_PART_FORMAT));
    put(&w, root, "cut", json_string(cut_name(comparison->cut)));
    put(&w, root, "part", json_integer((json_int_t)comparison->part));
    put(&w, root, "parts", json_integer((json_int_t)comparison->n_parts));
    put(&w, root, "pairs", json_integer((json_int_t)comparison->n_pairs));
    put(&w, root, "ulp_in", json_string(nd_dtype_name(comparison->ulp_in)));
    put(&w, root, "worst", json_integer((json_int_t)comparison->n_worst));
    put(&w, root, "captures", captures);
    put(&w, root, "probes", probes);
    put(&w, root, "tensors", tensors);
    put(&w, root, "top1", top1);
    char *text = !w.failed && nd_json_stamp(root, NULL) == ND_OK ? nd_json_dump(root, 1) : NULL;
    json_decref(root);
    ND_TRY_MEMORY(text != NULL, err);
    *out = text;
    return ND_OK;
}
