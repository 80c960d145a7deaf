#include "compare/engine.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compare/pair.h"
#include "compare/text.h"

/* One edge and one probe at work. Arrays are indexed by capture; entry 0 of those about pairs is unused. */
struct stream {
    const struct nd_alignment *alignment;
    size_t edge, probe;
    struct nd_diff_layout layout;
    size_t n_block;   /* samples read at once */
    size_t *n_common; /* samples to compare with the reference; 0: none */
    struct nd_diff_acc *accs;
    unsigned char **buffers;       /* n_block samples each */
    size_t *read_first, *read_end; /* samples of this block that are in the buffer */
};

static bool has_values(const struct stream *s, size_t capture)
{
    const struct nd_alignment *a = s->alignment;
    return nd_capture_has_outputs(a->captures[capture], a->probes[s->probe * a->n_captures + capture],
                                  a->edges[s->edge * a->n_captures + capture]);
}

static bool is_equal(const struct stream *s, size_t test, size_t sample)
{
    return nd_digest_equal(nd_aligned_digest(s->alignment, s->edge, s->probe, 0, sample),
                           nd_aligned_digest(s->alignment, s->edge, s->probe, test, sample));
}

static void widen(struct stream *s, size_t capture, size_t sample)
{
    if (s->read_first[capture] == s->read_end[capture])
        s->read_first[capture] = sample;
    s->read_end[capture] = sample + 1;
}

static enum nd_status fill_buffer(struct stream *s, size_t capture, struct nd_error *err)
{
    const struct nd_alignment *a = s->alignment;
    size_t first = s->read_first[capture], n = s->read_end[capture] - first;
    if (n == 0)
        return ND_OK;
    if (s->buffers[capture] == NULL) {
        size_t size_bytes;
        if (!nd_size_mul(s->n_block, s->layout.sample_bytes, &size_bytes))
            return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "the samples of edge '%s' do not fit",
                           a->edge_names[s->edge]);
        s->buffers[capture] = nd_tensor_alloc(size_bytes);
        if (s->buffers[capture] == NULL)
            return nd_fail_memory(err);
    }
    enum nd_status status = nd_capture_read_outputs(
        a->captures[capture], a->probes[s->probe * a->n_captures + capture],
        a->edges[s->edge * a->n_captures + capture], first, n, s->buffers[capture], err);
    if (status != ND_OK)
        nd_error_context(err, "reading '%s'", nd_capture_path(a->captures[capture]));
    return status;
}

static const unsigned char *sample_at(const struct stream *s, size_t capture, size_t sample)
{
    return s->buffers[capture] + (sample - s->read_first[capture]) * s->layout.sample_bytes;
}

static enum nd_status add_sample(struct stream *s, size_t test, size_t sample, bool is_read,
                                 struct nd_error *err)
{
    const struct nd_alignment *a = s->alignment;
    if (is_equal(s, test, sample)) {
        nd_diff_add_equal(&s->accs[test], &s->layout);
        return ND_OK;
    }
    if (!is_read) {
        nd_diff_add_unread(&s->accs[test], &s->layout, s->probe, sample);
        return ND_OK;
    }
    uint64_t n_differing = nd_diff_add_sample(&s->accs[test], &s->layout, sample_at(s, 0, sample),
                                              sample_at(s, test, sample), s->probe, sample);
    if (n_differing > 0)
        return ND_OK;
    /* One of the two digests is wrong. Calling the samples equal would trust the wrong half of a damaged file.
     */
    return nd_fail(
        err, ND_E_CAPTURE_DIGEST, a->edge_names[s->edge],
        "edge '%s', probe '%s', sample %zu: the digests in '%s' and '%s' differ, but the data does not",
        a->edge_names[s->edge], a->probe_names[s->probe], sample, nd_capture_path(a->captures[0]),
        nd_capture_path(a->captures[test]));
}

/* Samples [first, end) of every pair. */
static enum nd_status compare_block(struct stream *s, size_t first, size_t end, struct nd_error *err)
{
    size_t n = s->alignment->n_captures;
    bool ref_has_values = has_values(s, 0);
    for (size_t c = 0; c < n; c++)
        s->read_first[c] = s->read_end[c] = first;
    for (size_t sample = first; sample < end; sample++)
        for (size_t t = 1; t < n; t++)
            if (sample < s->n_common[t] && ref_has_values && has_values(s, t) && !is_equal(s, t, sample)) {
                if (s->read_end[0] != sample + 1)
                    widen(s, 0, sample);
                widen(s, t, sample);
            }
    enum nd_status status = ND_OK;
    for (size_t c = 0; c < n && status == ND_OK; c++)
        status = fill_buffer(s, c, err);
    for (size_t t = 1; t < n; t++)
        for (size_t sample = first; sample < end && sample < s->n_common[t] && status == ND_OK; sample++)
            status = add_sample(s, t, sample, ref_has_values && has_values(s, t), err);
    return status;
}

static enum nd_status compare_probe(struct stream *s, size_t block_bytes, struct nd_error *err)
{
    size_t n_max = 0;
    for (size_t t = 1; t < s->alignment->n_captures; t++)
        n_max = s->n_common[t] > n_max ? s->n_common[t] : n_max;
    s->n_block = s->layout.sample_bytes > 0 ? block_bytes / s->layout.sample_bytes : n_max;
    s->n_block = s->n_block == 0 ? 1 : s->n_block > n_max ? n_max : s->n_block;
    enum nd_status status = ND_OK;
    for (size_t first = 0; first < n_max && status == ND_OK; first += s->n_block) {
        size_t end = n_max - first < s->n_block ? n_max : first + s->n_block;
        status = compare_block(s, first, end, err);
    }
    for (size_t c = 0; c < s->alignment->n_captures; c++) {
        free(s->buffers[c]);
        s->buffers[c] = NULL;
    }
    return status;
}

static void stream_deinit(struct stream *s)
{
    free(s->n_common);
    free(s->accs);
    free(s->buffers);
    free(s->read_first);
    free(s->read_end);
}

static enum nd_status stream_init(struct stream *s, const struct nd_alignment *alignment, size_t edge,
                                  struct nd_error *err)
{
    size_t n = alignment->n_captures;
    *s = (struct stream){.alignment = alignment, .edge = edge};
    s->n_common = nd_calloc(n, sizeof *s->n_common);
    s->accs = nd_calloc(n, sizeof *s->accs);
    s->buffers = nd_calloc(n, sizeof *s->buffers);
    s->read_first = nd_calloc(n, sizeof *s->read_first);
    s->read_end = nd_calloc(n, sizeof *s->read_end);
    bool is_whole = s->n_common != NULL && s->accs != NULL && s->buffers != NULL && s->read_first != NULL &&
                    s->read_end != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

/* Which samples of the probe each pair has; the reason of what is missing goes to the pair's part. */
static enum nd_status align_probe(struct stream *s, struct nd_compared_edge *compared,
                                  const bool *is_meaningful, struct nd_error *err)
{
    for (size_t t = 1; t < s->alignment->n_captures; t++) {
        struct nd_compared_part *part = &compared->pairs[t - 1].probes[s->probe];
        s->n_common[t] = 0;
        s->accs[t] = (struct nd_diff_acc){0};
        if (!is_meaningful[t]) {
            enum nd_status status = nd_text_set(&part->reason, err, "%s", compared->pairs[t - 1].total.reason);
            if (status != ND_OK)
                return status;
            part->coverage = ND_COVERAGE_NONE;
            continue;
        }
        enum nd_status status =
            nd_align_samples(s->alignment, s->probe, 0, t, &s->n_common[t], &part->reason, err);
        if (status != ND_OK)
            return status;
        part->coverage = s->n_common[t] == 0    ? ND_COVERAGE_NONE
                         : part->reason != NULL ? ND_COVERAGE_PART
                                                : ND_COVERAGE_FULL;
        if (s->n_common[t] == 0 && part->reason == NULL) {
            status = nd_text_set(&part->reason, err, "probe '%s' has no samples",
                                 s->alignment->probe_names[s->probe]);
            if (status != ND_OK)
                return status;
        }
    }
    return ND_OK;
}

/* The pair as a whole: worst coverage of its probes, but some samples are never NONE. */
static enum nd_status sum_up_coverage(struct nd_compared_pair *pair, size_t n_probes, struct nd_error *err)
{
    bool has_some = false;
    struct nd_compared_part *total = &pair->total;
    for (size_t p = 0; p < n_probes; p++) {
        const struct nd_compared_part *part = &pair->probes[p];
        has_some = has_some || part->coverage != ND_COVERAGE_NONE;
        if (part->reason != NULL && total->reason == NULL) {
            enum nd_status status = nd_text_set(&total->reason, err, "%s", part->reason);
            if (status != ND_OK)
                return status;
        }
    }
    total->coverage = !has_some               ? ND_COVERAGE_NONE
                      : total->reason != NULL ? ND_COVERAGE_PART
                                              : ND_COVERAGE_FULL;
    if (total->coverage == ND_COVERAGE_NONE && total->reason == NULL)
        return nd_text_set(&total->reason, err, "there are no probes");
    return ND_OK;
}

/* Section 11. */
static enum nd_verdict judge_pair(const struct nd_compared_pair *pair, const struct nd_gate_values *gate)
{
    const struct nd_difference *d = &pair->total.difference;
    if (pair->total.coverage != ND_COVERAGE_FULL)
        return ND_VERDICT_NOT_COMPARABLE;
    if (d->n_samples_differing == 0)
        return ND_VERDICT_SAME;
    if (!d->has_values)
        return gate->bitwise ? ND_VERDICT_DIFFERS : ND_VERDICT_NOT_COMPARABLE;
    return d->n_failing > 0 ? ND_VERDICT_DIFFERS : ND_VERDICT_WITHIN;
}

static enum nd_status check_pairs(const struct nd_alignment *alignment, size_t edge,
                                  struct nd_compared_edge *compared, bool *is_meaningful, bool *any,
                                  struct nd_error *err)
{
    *any = false;
    for (size_t t = 1; t < alignment->n_captures; t++) {
        enum nd_status status =
            nd_align_edges(nd_aligned_edge(alignment, edge, 0), nd_aligned_edge(alignment, edge, t),
                           &compared->pairs[t - 1].total.reason, err);
        if (status != ND_OK)
            return status;
        is_meaningful[t] = compared->pairs[t - 1].total.reason == NULL;
        *any = *any || is_meaningful[t];
    }
    return ND_OK;
}

static void add_to_total(struct stream *s, struct nd_compared_edge *compared, struct nd_diff_acc *totals)
{
    for (size_t t = 1; t < s->alignment->n_captures; t++) {
        nd_diff_finish(&s->accs[t], &s->layout, &compared->pairs[t - 1].probes[s->probe].difference);
        nd_diff_merge(&totals[t], &s->accs[t]);
    }
}

enum nd_status nd_engine_compare_edge(const struct nd_alignment *alignment, size_t edge,
                                      const struct nd_compare_options *options, size_t block_bytes,
                                      struct nd_compared_edge *compared, struct nd_error *err)
{
    size_t n = alignment->n_captures;
    struct stream s;
    bool any = false;
    bool *is_meaningful = nd_calloc(n, sizeof *is_meaningful);
    struct nd_diff_acc *totals = nd_calloc(n, sizeof *totals);
    enum nd_status status = stream_init(&s, alignment, edge, err);
    if (status == ND_OK && (is_meaningful == NULL || totals == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = check_pairs(alignment, edge, compared, is_meaningful, &any, err);
    if (status == ND_OK && any) {
        status = nd_diff_layout_make(nd_aligned_edge(alignment, edge, 0), &s.layout, err);
        s.layout.gate = nd_gates_resolve(options->gates, compared->name, nd_dtype_is_float(compared->dtype));
    }
    for (s.probe = 0; s.probe < alignment->n_probes && status == ND_OK; s.probe++) {
        status = align_probe(&s, compared, is_meaningful, err);
        if (status == ND_OK && any)
            status = compare_probe(&s, block_bytes, err);
        if (status == ND_OK && any)
            add_to_total(&s, compared, totals);
    }
    for (size_t t = 1; t < n && status == ND_OK; t++) {
        struct nd_compared_pair *pair = &compared->pairs[t - 1];
        status = sum_up_coverage(pair, alignment->n_probes, err);
        if (any)
            nd_diff_finish(&totals[t], &s.layout, &pair->total.difference);
        pair->verdict = judge_pair(pair, &s.layout.gate);
    }
    stream_deinit(&s);
    free(is_meaningful);
    free(totals);
    return status;
}
