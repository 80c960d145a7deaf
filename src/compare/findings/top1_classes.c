/* Top-1 classes, accuracy, flips and their significance; and whether the reference itself is broken.
 * docs/reference/metrics.md#top-1. */
#include "compare/findings/top1_classes.h"

#include <math.h>

#include "core/memory.h"
#include "core/statistics/distributions.h"
#include "core/statistics/evidence.h"

void nd_top1_pair_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                        struct nd_top1_pair *out)
{
    out->exists = true;
    out->n_samples = n;
    for (size_t i = 0; i < n; i++) {
        bool is_agreed = ref[i] == test[i];
        out->n_agree += is_agreed;
        if (labels == NULL || is_agreed)
            continue;
        out->n_lost += ref[i] == labels[i];
        out->n_gained += test[i] == labels[i];
        out->n_changed_wrong += ref[i] != labels[i] && test[i] != labels[i];
    }
}

enum nd_status nd_output_rows_add(struct nd_output_rows *rows, size_t tensor, size_t probe, size_t first_sample,
                                  size_t end_sample, struct nd_error *err)
{
    int64_t **classes = nd_calloc(rows->n_captures, sizeof(int64_t *));
    if (classes == NULL || !nd_grow((void **)&rows->rows, &rows->capacity, rows->n + 1, sizeof *rows->rows)) {
        free(classes);
        return nd_fail_memory(err);
    }
    rows->rows[rows->n++] = (struct nd_output_row){tensor, probe, first_sample, end_sample, classes};
    return ND_OK;
}

void nd_output_rows_deinit(struct nd_output_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        for (size_t c = 0; c < rows->n_captures; c++)
            free(rows->rows[i].classes[c]);
        free(rows->rows[i].classes);
    }
    free(rows->rows);
    *rows = (struct nd_output_rows){0};
}

/* One row at work. */
struct work {
    const struct nd_aligned_captures *alignment;
    const struct nd_output_row *row;
};

static size_t n_samples_of(const struct work *work, size_t capture)
{
    const struct nd_capture_probe *probe = nd_aligned_probe(work->alignment, work->row->probe, capture);
    return probe != NULL ? probe->n_samples : 0;
}

/* How many of the first n samples belong to this part. */
static size_t n_in_part(const struct nd_output_row *row, size_t n)
{
    size_t end = n < row->end_sample ? n : row->end_sample;
    return end > row->first_sample ? end - row->first_sample : 0;
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
    const struct nd_aligned_captures *a = work->alignment;
    const struct nd_capture_probe *best = NULL;
    *labels = NULL;
    for (size_t c = 0; c < a->n_captures; c++) {
        const struct nd_capture_probe *probe = nd_aligned_probe(a, work->row->probe, c);
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

/* Every sample has a label: find_labels has seen to that. None is negative. */
static size_t largest_label(const struct work *work, const int64_t *labels)
{
    int64_t most = 0;
    for (size_t c = 0; c < work->alignment->n_captures; c++)
        for (size_t i = 0; i < n_samples_of(work, c); i++)
            most = labels[i] > most ? labels[i] : most;
    return (size_t)most;
}

static void count_device(const int64_t *classes, const int64_t *labels, size_t n, struct nd_top1_device *out)
{
    *out = (struct nd_top1_device){.exists = true, .n_samples = n};
    for (size_t i = 0; i < n; i++) {
        out->n_invalid += classes[i] < 0;
        out->n_correct += labels != NULL && classes[i] == labels[i];
    }
}

static enum nd_status count_pair(const struct work *work, const int64_t *labels, struct nd_top1_pair *pair,
                                 struct nd_error *err)
{
    const struct nd_output_row *row = work->row;
    char *reason;
    size_t n_common, first = row->first_sample;
    ND_TRY(nd_align_samples(work->alignment, row->probe, 0, pair->test, &n_common, &reason, err));
    free(reason);
    const struct nd_tensor *ref = nd_aligned_tensor(work->alignment, row->tensor, 0),
                           *test = nd_aligned_tensor(work->alignment, row->tensor, pair->test);
    if (n_common > 0 && row->classes[0] != NULL && row->classes[pair->test] != NULL &&
        nd_shape_equal(&ref->shape, &test->shape))
        nd_top1_pair_count(row->classes[0], row->classes[pair->test], labels != NULL ? labels + first : NULL,
                           n_in_part(row, n_common), pair);
    return ND_OK;
}

static enum nd_status fill_entry(const struct work *work, struct nd_top1 *entry, const int64_t *labels,
                                 struct nd_error *err)
{
    const struct nd_output_row *row = work->row;
    size_t n_captures = work->alignment->n_captures;
    entry->has_labels = labels != NULL;
    entry->devices = nd_calloc(n_captures, sizeof *entry->devices);
    entry->pairs = nd_calloc(n_captures - 1, sizeof *entry->pairs);
    ND_TRY_MEMORY(entry->devices != NULL && entry->pairs != NULL, err);
    for (size_t c = 0; c < n_captures; c++)
        if (row->classes[c] != NULL)
            count_device(row->classes[c], labels != NULL ? labels + row->first_sample : NULL,
                         n_in_part(row, n_samples_of(work, c)), &entry->devices[c]);
    for (size_t t = 1; t < n_captures; t++) {
        entry->pairs[t - 1].test = t;
        ND_TRY(count_pair(work, labels, &entry->pairs[t - 1], err));
    }
    return ND_OK;
}

enum nd_status nd_accuracy_count(const struct nd_aligned_captures *alignment, const struct nd_output_rows *rows,
                                 struct nd_comparison *comparison, struct nd_error *err)
{
    comparison->top1 = nd_calloc(rows->n, sizeof *comparison->top1);
    ND_TRY_MEMORY(comparison->top1 != NULL, err);
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < rows->n && status == ND_OK; i++) {
        struct work work = {alignment, &rows->rows[i]};
        struct nd_top1 *entry = &comparison->top1[comparison->n_top1++];
        *entry = (struct nd_top1){.tensor = work.row->tensor, .probe = work.row->probe};
        const int64_t *labels;
        size_t n_classes;
        status = nd_shape_n_elems(&comparison->tensors[entry->tensor].shape, &n_classes, err);
        if (status == ND_OK)
            status = find_labels(&work, n_classes, &labels, &entry->labels_missing_reason, err);
        entry->n_classes = status == ND_OK ? n_classes : 0;
        if (status == ND_OK && labels != NULL)
            entry->max_label = largest_label(&work, labels);
        if (status == ND_OK)
            status = fill_entry(&work, entry, labels, err);
    }
    return status;
}

/* Quantised values order like their real values when one positive scale holds for all. */
static bool is_ordered_by_qvalue(const struct nd_layout *layout)
{
    return !layout->is_float && (layout->n_channels == 0 || (layout->n_channels == 1 && layout->scale[0] > 0));
}

static bool is_better(const struct nd_best *a, const struct nd_best *b)
{
    if (a->index < 0 || b->index < 0)
        return a->index >= 0;
    if (a->qvalue != b->qvalue)
        return a->qvalue > b->qvalue;
    return a->value != b->value ? a->value > b->value : a->index < b->index;
}

void nd_best_merge(struct nd_best *best, const struct nd_best *other)
{
    struct nd_specials specials = {best->specials.n_nan + other->specials.n_nan,
                                   best->specials.n_inf + other->specials.n_inf};
    if (is_better(other, best))
        *best = *other;
    best->specials = specials;
}

/* uint64 values are taken less 2^63: the order stays as it is. */
static int64_t qvalue_at(const struct nd_layout *layout, const unsigned char *bytes, size_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, bytes + i * layout->elem_bytes, layout->elem_bytes);
    int unused_bits = 64 - 8 * (int)layout->elem_bytes;
    if (nd_dtype_is_signed_integer(layout->dtype))
        return (int64_t)(bits << unused_bits) >> unused_bits;
    return (int64_t)(bits ^ (layout->dtype == ND_DTYPE_U64 ? (uint64_t)1 << 63 : 0));
}

/* Elements at flat index `first`, with their x, or NULL where quantised values are compared. */
static void offer_block(struct nd_best *best, const struct nd_layout *layout, const unsigned char *bytes,
                        size_t first, size_t n, const double *x)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_best offered = {.index = (int64_t)(first + i)};
        if (x == NULL)
            offered.qvalue = qvalue_at(layout, bytes, i);
        else
            offered.value = layout->unit * x[i];
        best->specials.n_nan += isnan(offered.value) != 0;
        best->specials.n_inf += isinf(offered.value) != 0;
        if (!isnan(offered.value))
            nd_best_merge(best, &offered);
    }
}

/* Whether none of these values can be better than the best so far: all are finite and not larger. */
static bool is_beaten(const struct nd_best *best, const struct nd_kernels *kernels, double best_value,
                      const double *x, size_t n)
{
    struct nd_self_sums sums;
    if (best->index < 0)
        return false;
    kernels->self_sums(x, n, 0, &sums);
    return isfinite(sums.sum_squares) && sums.max < best_value;
}

void nd_best_offer(struct nd_best *best, const struct nd_layout *layout, const struct nd_kernels *kernels,
                   const unsigned char *bytes, size_t first, size_t n)
{
    double x[ND_BLOCK];
    bool by_qvalue = is_ordered_by_qvalue(layout), is_narrow = layout->elem_bytes <= 4;
    for (size_t at = 0; at < n; at += ND_BLOCK) {
        size_t n_block = n - at < ND_BLOCK ? n - at : ND_BLOCK;
        const unsigned char *block = bytes + at * layout->elem_bytes;
        if (!by_qvalue)
            nd_layout_load(layout, kernels, block, first + at, n_block, x);
        else if (is_narrow)
            kernels->load[layout->kind](block, n_block, 0, x);
        if (by_qvalue ? is_narrow && is_beaten(best, kernels, (double)best->qvalue, x, n_block)
                      : layout->unit == 1 && is_beaten(best, kernels, best->value, x, n_block))
            continue;
        offer_block(best, layout, block, first + at, n_block, by_qvalue ? NULL : x);
    }
}

/* Chosen: how sure each of both bounds is. */
static const double LEVEL = 0.01;

/* Chosen: so far above chance an accuracy may be that nobody would use. Too few samples exclude no such model.
 */
static const double USABLE = 0.2;

/* A score that chance explains, and so many samples that no usable model would have it. Fewer right than by
 * chance count, too: shifted labels. */
static bool is_chance(const struct nd_top1_device *device, double chance)
{
    double low = nd_binomial_lower(device->n_correct, device->n_samples, LEVEL);
    double high = nd_binomial_upper(device->n_correct, device->n_samples, LEVEL);
    return device->exists && device->n_samples > 0 && low <= chance && high <= chance + USABLE;
}

static bool is_row_of_chance(const struct nd_comparison *comparison, const struct nd_top1 *row)
{
    for (size_t c = 0; c < comparison->n_devices; c++)
        if (!is_chance(&row->devices[c], 1 / (double)row->n_classes))
            return false;
    return true;
}

/* An output whose labels reach into its upper half: else it may hold features, and no classes. */
static bool is_classified(const struct nd_top1 *row)
{
    return row->has_labels && row->n_classes >= 2 && row->max_label >= row->n_classes / 2;
}

/* Whether every capture, the reference too, is right no more often than by chance: comparison->broken_top1. */
static void conclude_chance(struct nd_comparison *comparison)
{
    comparison->broken_top1 = SIZE_MAX;
    for (size_t i = 0; i < comparison->n_top1; i++) {
        const struct nd_top1 *row = &comparison->top1[i];
        if (!is_classified(row))
            continue;
        /* One output that is right speaks for the reference, the labels and what was fed. */
        if (!is_row_of_chance(comparison, row)) {
            comparison->broken_top1 = SIZE_MAX;
            return;
        }
        if (comparison->broken_top1 == SIZE_MAX)
            comparison->broken_top1 = i;
    }
}

/* Scores of classes lie along one axis; masks, boxes and feature maps along more. Landmarks, anchors and
 * features do so, too: without labels a Softmax, a name, or as many values as ImageNet has classes must speak
 * for classes. */
static const char *find_classes(const struct nd_compared_tensor *tensor, const struct nd_top1 *row)
{
    static const char *const words[] = {"logit", "softmax", "prob"};
    int n_axes = 0;
    for (int d = 0; d < tensor->shape.rank; d++)
        n_axes += tensor->shape.dims[d] > 1;
    if (row->has_labels)
        return "labels";
    if (n_axes != 1)
        return NULL;
    if (strstr(tensor->op_types, "Softmax") != NULL)
        return "operator";
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasestr(tensor->name, words[i]) != NULL)
            return "name";
    return row->n_classes == 1000 || row->n_classes == 1001 ? "size" : NULL;
}

static size_t count_changes(const struct nd_comparison *comparison, const struct nd_top1 *row)
{
    size_t n = 0;
    for (size_t t = 1; t < comparison->n_devices; t++)
        n += row->pairs[t - 1].n_samples - row->pairs[t - 1].n_agree;
    return n;
}

const struct nd_top1 *nd_comparison_top1(const struct nd_comparison *comparison)
{
    const struct nd_top1 *best = NULL;
    for (size_t i = 0; i < comparison->n_top1; i++) {
        const struct nd_top1 *row = &comparison->top1[i];
        if (row->classes_by == NULL)
            continue;
        bool is_better = best == NULL || (row->has_labels && !best->has_labels);
        if (!is_better && row->has_labels == best->has_labels)
            is_better = row->devices[0].n_correct > best->devices[0].n_correct ||
                        (row->devices[0].n_correct == best->devices[0].n_correct &&
                         count_changes(comparison, row) > count_changes(comparison, best));
        best = is_better ? row : best;
    }
    return best;
}

void nd_accuracy_conclude(struct nd_comparison *comparison)
{
    for (size_t i = 0; i < comparison->n_top1; i++) {
        struct nd_top1 *entry = &comparison->top1[i];
        entry->classes_by = find_classes(&comparison->tensors[entry->tensor], entry);
        for (size_t c = 0; c < comparison->n_devices; c++) {
            struct nd_top1_device *d = &entry->devices[c];
            d->accuracy = d->n_samples > 0 ? (double)d->n_correct / (double)d->n_samples : 0;
        }
        for (size_t t = 1; t < comparison->n_devices; t++) {
            struct nd_top1_pair *p = &entry->pairs[t - 1];
            p->agreement = p->n_samples > 0 ? (double)p->n_agree / (double)p->n_samples : 0;
            p->p_value = p->exists && entry->has_labels ? nd_mcnemar_mid_p(p->n_lost, p->n_gained) : 1;
            p->is_significant = p->p_value < 0.05;
        }
    }
    conclude_chance(comparison);
}
