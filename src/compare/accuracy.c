#include "compare/accuracy.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compare/text.h"

void nd_top1_pair_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                        struct nd_top1_pair *out)
{
    *out =
        (struct nd_top1_pair){.ref = out->ref, .test = out->test, .exists = true, .n_samples = n, .p_value = 1};
    for (size_t i = 0; i < n; i++) {
        bool is_agreed = ref[i] == test[i];
        out->n_agree += is_agreed;
        if (labels == NULL || is_agreed)
            continue;
        out->n_lost += ref[i] == labels[i];
        out->n_gained += test[i] == labels[i];
        out->n_changed_wrong += ref[i] != labels[i] && test[i] != labels[i];
    }
    out->agreement = n > 0 ? (double)out->n_agree / (double)n : 0;
    if (labels != NULL) {
        out->p_value = nd_mcnemar_mid_p(out->n_lost, out->n_gained);
        out->is_significant = out->p_value < 0.05;
    }
}

/* One (edge, probe): the classes of every device. */
struct work {
    const struct nd_alignment *alignment;
    size_t edge, probe;
    size_t block_bytes;
    int64_t **classes; /* [n_captures], each [n_samples] or NULL */
};

static size_t n_samples_of(const struct work *work, size_t capture)
{
    const struct nd_capture_probe *probe = nd_aligned_probe(work->alignment, work->probe, capture);
    return probe != NULL ? probe->n_samples : 0;
}

static enum nd_status read_classes(const struct work *work, size_t capture, const struct nd_diff_layout *layout,
                                   int64_t *classes, struct nd_error *err)
{
    const struct nd_alignment *a = work->alignment;
    size_t n_samples = n_samples_of(work, capture), n_block = work->block_bytes / layout->sample_bytes;
    n_block = n_block == 0 ? 1 : n_block > n_samples ? n_samples : n_block;
    size_t buf_bytes;
    if (!nd_size_mul(n_block, layout->sample_bytes, &buf_bytes))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "the samples of edge '%s' do not fit",
                       a->edge_names[work->edge]);
    unsigned char *buf = nd_tensor_alloc(buf_bytes);
    if (buf == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t first = 0; first < n_samples && status == ND_OK; first += n_block) {
        size_t n = n_samples - first < n_block ? n_samples - first : n_block;
        status = nd_capture_read_outputs(a->captures[capture], a->probes[work->probe * a->n_captures + capture],
                                         a->edges[work->edge * a->n_captures + capture], first, n, buf, err);
        for (size_t i = 0; i < n && status == ND_OK; i++)
            classes[first + i] = nd_top1_index(layout, buf + i * layout->sample_bytes);
    }
    if (status != ND_OK)
        nd_error_context(err, "reading '%s'", nd_capture_path(a->captures[capture]));
    free(buf);
    return status;
}

/* Leaves work->classes[capture] NULL where the device has no such values. */
static enum nd_status find_classes(const struct work *work, size_t capture, struct nd_error *err)
{
    const struct nd_alignment *a = work->alignment;
    const struct nd_edge *edge = nd_aligned_edge(a, work->edge, capture);
    if (edge == NULL || n_samples_of(work, capture) == 0 || edge->dtype == ND_DTYPE_NONE ||
        edge->shape.rank < 0)
        return ND_OK;
    if (!nd_capture_has_outputs(a->captures[capture], a->probes[work->probe * a->n_captures + capture],
                                a->edges[work->edge * a->n_captures + capture]))
        return ND_OK;
    struct nd_diff_layout layout;
    enum nd_status status = nd_diff_layout_make(edge, &layout, err);
    if (status != ND_OK || layout.n_elems < 2)
        return status;
    int64_t *classes = nd_calloc(n_samples_of(work, capture), sizeof *classes);
    if (classes == NULL)
        return nd_fail_memory(err);
    status = read_classes(work, capture, &layout, classes, err);
    if (status == ND_OK)
        work->classes[capture] = classes;
    else
        free(classes);
    return status;
}

static bool do_labels_conflict(const struct nd_capture_probe *a, const struct nd_capture_probe *b)
{
    size_t n = a->n_samples < b->n_samples ? a->n_samples : b->n_samples;
    return n > 0 && memcmp(a->labels, b->labels, n * sizeof *a->labels) != 0;
}

/* The labels of the capture that has the most of them; *reason when there are some that cannot be used. */
static enum nd_status find_labels(const struct work *work, size_t n_classes, const int64_t **labels,
                                  char **reason, struct nd_error *err)
{
    const struct nd_alignment *a = work->alignment;
    const struct nd_capture_probe *best = NULL;
    *labels = NULL;
    for (size_t c = 0; c < a->n_captures; c++) {
        const struct nd_capture_probe *probe = nd_aligned_probe(a, work->probe, c);
        if (probe == NULL || probe->labels == NULL)
            continue;
        if (best != NULL && do_labels_conflict(best, probe))
            return nd_text_set(reason, err, "the captures hold different labels");
        if (best == NULL || probe->n_samples > best->n_samples)
            best = probe;
    }
    for (size_t c = 0; c < a->n_captures && best != NULL; c++)
        if (n_samples_of(work, c) > best->n_samples)
            return nd_text_set(reason, err, "some samples have no label");
    for (size_t i = 0; best != NULL && i < best->n_samples; i++)
        if (best->labels[i] < 0 || (uint64_t)best->labels[i] >= n_classes)
            return nd_text_set(reason, err, "label %lld of sample %zu is none of the %zu elements",
                               (long long)best->labels[i], i, n_classes);
    *labels = best != NULL ? best->labels : NULL;
    return ND_OK;
}

static void count_device(const int64_t *classes, const int64_t *labels, size_t n, struct nd_top1_device *out)
{
    *out = (struct nd_top1_device){.exists = true, .n_samples = n};
    for (size_t i = 0; i < n; i++) {
        out->n_invalid += classes[i] < 0;
        out->n_correct += labels != NULL && classes[i] == labels[i];
    }
    out->accuracy = n > 0 ? (double)out->n_correct / (double)n : 0;
}

static enum nd_status fill_row(const struct work *work, struct nd_top1 *row, const int64_t *labels,
                               struct nd_error *err)
{
    size_t n_captures = work->alignment->n_captures;
    row->has_labels = labels != NULL;
    row->devices = nd_calloc(n_captures, sizeof *row->devices);
    row->pairs = nd_calloc(n_captures - 1, sizeof *row->pairs);
    if (row->devices == NULL || row->pairs == NULL)
        return nd_fail_memory(err);
    for (size_t c = 0; c < n_captures; c++)
        if (work->classes[c] != NULL)
            count_device(work->classes[c], labels, n_samples_of(work, c), &row->devices[c]);
    for (size_t t = 1; t < n_captures; t++) {
        struct nd_top1_pair *pair = &row->pairs[t - 1];
        pair->test = t;
        char *reason;
        size_t n_common;
        enum nd_status status = nd_align_samples(work->alignment, work->probe, 0, t, &n_common, &reason, err);
        if (status != ND_OK)
            return status;
        free(reason);
        const struct nd_edge *ref = nd_aligned_edge(work->alignment, work->edge, 0),
                             *test = nd_aligned_edge(work->alignment, work->edge, t);
        if (n_common > 0 && work->classes[0] != NULL && work->classes[t] != NULL &&
            nd_shape_equal(&ref->shape, &test->shape))
            nd_top1_pair_count(work->classes[0], work->classes[t], labels, n_common, pair);
    }
    return ND_OK;
}

static enum nd_status add_row(struct work *work, struct nd_comparison *comparison, size_t n_classes,
                              struct nd_error *err)
{
    size_t n_captures = work->alignment->n_captures;
    struct nd_top1 *row = &comparison->top1[comparison->n_top1++];
    *row = (struct nd_top1){.edge = work->edge, .probe = work->probe};
    work->classes = nd_calloc(n_captures, sizeof *work->classes);
    enum nd_status status = work->classes != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t c = 0; c < n_captures && status == ND_OK; c++)
        status = find_classes(work, c, err);
    const int64_t *labels = NULL;
    if (status == ND_OK)
        status = find_labels(work, n_classes, &labels, &row->labels_missing_reason, err);
    if (status == ND_OK)
        status = fill_row(work, row, labels, err);
    for (size_t c = 0; work->classes != NULL && c < n_captures; c++)
        free(work->classes[c]);
    free(work->classes);
    return status;
}

enum nd_status nd_accuracy_make(const struct nd_alignment *alignment, size_t block_bytes,
                                struct nd_comparison *comparison, struct nd_error *err)
{
    size_t capacity = 0;
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < comparison->n_edges && status == ND_OK; e++) {
        const struct nd_compared_edge *edge = &comparison->edges[e];
        size_t n_elems;
        if (!edge->is_model_output || edge->shape.rank < 1 ||
            nd_shape_n_elems(&edge->shape, &n_elems, NULL) != ND_OK || n_elems < 2)
            continue;
        for (size_t p = 0; p < comparison->n_probes && status == ND_OK; p++) {
            struct work work = {.alignment = alignment, .edge = e, .probe = p, .block_bytes = block_bytes};
            if (!nd_grow((void **)&comparison->top1, &capacity, comparison->n_top1 + 1,
                         sizeof *comparison->top1))
                return nd_fail_memory(err);
            status = add_row(&work, comparison, n_elems, err);
        }
    }
    return status;
}
