/* Top-1 classes, accuracy, flips and their significance; and whether the reference itself is broken.
 * docs/reference/metrics.md#top-1. */
#include "compare/findings/top1_classes.h"

#include <math.h>

#include "core/items.h"
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

static void count_pair(const struct work *work, const int64_t *labels, struct nd_top1_pair *pair)
{
    const struct nd_output_row *row = work->row;
    size_t n_common = nd_align_n_common(work->alignment, row->probe, 0, pair->test);
    const struct nd_tensor *ref = nd_aligned_tensor(work->alignment, row->tensor, 0),
                           *test = nd_aligned_tensor(work->alignment, row->tensor, pair->test);
    if (n_common > 0 && row->classes[0] != NULL && row->classes[pair->test] != NULL &&
        nd_shape_equal(&ref->shape, &test->shape))
        nd_top1_pair_count(row->classes[0], row->classes[pair->test],
                           labels != NULL ? labels + row->first_sample : NULL, n_in_part(row, n_common), pair);
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
        count_pair(work, labels, &entry->pairs[t - 1]);
    }
    return ND_OK;
}

enum nd_status nd_accuracy_count(const struct nd_aligned_captures *alignment, const struct nd_output_rows *rows,
                                 struct nd_comparison *comparison, struct nd_error *err)
{
    comparison->top1 = nd_calloc(rows->n, sizeof *comparison->top1);
    ND_TRY_MEMORY(comparison->top1 != NULL, err);
    for (size_t i = 0; i < rows->n; i++) {
        struct work work = {alignment, &rows->rows[i]};
        struct nd_top1 *entry = &comparison->top1[comparison->n_top1++];
        *entry = (struct nd_top1){.tensor = work.row->tensor, .probe = work.row->probe};
        const int64_t *labels;
        size_t n_classes;
        ND_TRY(nd_shape_n_elems(&comparison->tensors[entry->tensor].shape, &n_classes, err));
        ND_TRY(find_labels(&work, n_classes, &labels, &entry->labels_missing_reason, err));
        entry->n_classes = n_classes;
        if (labels != NULL)
            entry->max_label = largest_label(&work, labels);
        ND_TRY(fill_entry(&work, entry, labels, err));
    }
    return ND_OK;
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
    /* Whether every capture, the reference too, is right no more often than by chance. */
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

/* ---- samples whose predicted class changed ---- */

/* Of one read of a capture: enough that whole chunks are decoded, and little beside what a comparison needs. */
enum { READ_BYTES = 32 << 20 };

/* One device at one output. */
struct side {
    const struct nd_capture *capture; /* NULL: it has no values there */
    size_t tensor, probe, n_samples;
    struct nd_layout layout;
    int64_t *classes; /* [n_samples] */
};

struct look {
    const struct nd_comparison *comparison;
    struct nd_top1 *row;
    const struct nd_kernels *kernels;
    struct side *sides; /* [n_devices] */
    const int64_t *labels;
};

/* ---- the classes ---- */

static enum nd_status read_classes(const struct look *look, struct side *side, struct nd_error *err)
{
    size_t bytes = side->layout.sample_bytes, n_block = bytes > 0 ? READ_BYTES / bytes : 1;
    n_block = n_block < 1 ? 1 : n_block > side->n_samples ? side->n_samples : n_block;
    ND_FREED unsigned char *block = nd_calloc(n_block, bytes + 64);
    side->classes = nd_calloc(side->n_samples, sizeof *side->classes);
    ND_TRY_MEMORY(block != NULL && side->classes != NULL, err);
    for (size_t at = 0; at < side->n_samples; at += n_block) {
        size_t n = side->n_samples - at < n_block ? side->n_samples - at : n_block;
        ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){side->capture, side->probe, side->tensor}, at,
                                        n, block, err));
        for (size_t i = 0; i < n; i++) {
            struct nd_best best = {.index = -1};
            nd_best_offer(&best, &side->layout, look->kernels, block + i * bytes, 0, side->layout.n_elems);
            side->classes[at + i] = best.index;
        }
    }
    return ND_OK;
}

static enum nd_status open_side(const struct look *look, const struct nd_capture *capture, size_t device,
                                struct side *side, struct nd_error *err)
{
    const struct nd_top1 *row = look->row;
    if (!row->devices[device].exists)
        return ND_OK;
    side->tensor = nd_capture_find_tensor(capture, look->comparison->tensors[row->tensor].name);
    side->probe = nd_capture_find_probe(capture, look->comparison->probes[row->probe].name);
    if (side->tensor == SIZE_MAX || side->probe == SIZE_MAX)
        return ND_OK;
    side->capture = capture;
    side->n_samples = nd_capture_probe(capture, side->probe)->n_samples;
    ND_TRY(nd_layout_make(nd_capture_tensor(capture, side->tensor), &side->layout, err));
    return side->n_samples > 0 ? read_classes(look, side, err) : ND_OK;
}

static bool is_changed_on(const struct look *look, size_t test, size_t sample)
{
    const struct nd_top1_pair *pair = &look->row->pairs[test - 1];
    const struct side *ref = &look->sides[0], *side = &look->sides[test];
    return pair->exists && sample < pair->n_samples && sample < ref->n_samples && sample < side->n_samples &&
           ref->classes[sample] != side->classes[sample];
}

static bool is_changed(const struct look *look, size_t sample)
{
    for (size_t t = 1; t < look->comparison->n_devices; t++)
        if (is_changed_on(look, t, sample))
            return true;
    return false;
}

/* Whether a test is wrong where the reference is right. */
static bool is_lost(const struct look *look, size_t sample)
{
    return look->labels != NULL && look->sides[0].classes[sample] == look->labels[sample];
}

/* ---- what is kept of a sample ---- */

static void show_class(struct nd_changed_sample *kept, int64_t class)
{
    if (class < 0 || kept->n_shown == ND_CHANGED_SHOWN)
        return;
    for (size_t i = 0; i < kept->n_shown; i++)
        if (kept->shown[i] == class)
            return;
    kept->shown[kept->n_shown++] = class;
}

static double value_at(const struct look *look, const struct side *side, const unsigned char *bytes,
                       size_t index)
{
    double x[ND_BLOCK];
    if (index >= side->layout.n_elems)
        return NAN;
    nd_layout_load(&side->layout, look->kernels, bytes + index * side->layout.elem_bytes, index, 1, x);
    return side->layout.unit * x[0];
}

static enum nd_status read_values(const struct look *look, size_t device, struct nd_changed_sample *kept,
                                  struct nd_error *err)
{
    const struct side *side = &look->sides[device];
    double *values = kept->values + device * kept->n_shown;
    for (size_t i = 0; i < kept->n_shown; i++)
        values[i] = NAN;
    if (side->capture == NULL || kept->sample >= side->n_samples)
        return ND_OK;
    ND_FREED unsigned char *bytes = nd_calloc(1, side->layout.sample_bytes + ND_BLOCK * 8);
    ND_TRY_MEMORY(bytes != NULL, err);
    ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){side->capture, side->probe, side->tensor},
                                    kept->sample, 1, bytes, err));
    for (size_t i = 0; i < kept->n_shown; i++)
        values[i] = value_at(look, side, bytes, (size_t)kept->shown[i]);
    return ND_OK;
}

static enum nd_status keep(const struct look *look, size_t sample, struct nd_error *err)
{
    size_t n_devices = look->comparison->n_devices;
    struct nd_changed_sample *kept = &look->row->changed[look->row->n_changed_kept++];
    *kept =
        (struct nd_changed_sample){.sample = sample, .label = look->labels != NULL ? look->labels[sample] : -1};
    kept->classes = nd_calloc(n_devices, sizeof *kept->classes);
    ND_TRY_MEMORY(kept->classes != NULL, err);
    show_class(kept, kept->label);
    for (size_t d = 0; d < n_devices; d++) {
        const struct side *side = &look->sides[d];
        kept->classes[d] = side->classes != NULL && sample < side->n_samples ? side->classes[sample] : -1;
        show_class(kept, kept->classes[d]);
    }
    kept->values = nd_calloc(n_devices * kept->n_shown, sizeof *kept->values);
    ND_TRY_MEMORY(kept->values != NULL, err);
    for (size_t d = 0; d < n_devices; d++)
        ND_TRY(read_values(look, d, kept, err));
    return ND_OK;
}

/* Those that the reference has right come first. */
static enum nd_status keep_some(const struct look *look, size_t n_max, struct nd_error *err)
{
    size_t n = look->sides[0].n_samples;
    for (size_t i = 0; i < n; i++)
        look->row->n_changed += is_changed(look, i);
    look->row->changed = nd_calloc(n_max + 1, sizeof *look->row->changed);
    ND_TRY_MEMORY(look->row->changed != NULL, err);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n && look->row->n_changed_kept < n_max; i++)
            if (is_changed(look, i) && is_lost(look, i) == (pass == 0))
                ND_TRY(keep(look, i, err));
    return ND_OK;
}

static enum nd_status look_at_row(struct look *look, const struct nd_capture *const *captures, size_t n_max,
                                  struct nd_error *err)
{
    size_t n_devices = look->comparison->n_devices;
    enum nd_status status = ND_OK;
    look->sides = nd_calloc(n_devices, sizeof *look->sides);
    ND_TRY_MEMORY(look->sides != NULL, err);
    for (size_t d = 0; status == ND_OK && d < n_devices; d++)
        status = open_side(look, captures[d], d, &look->sides[d], err);
    const struct side *ref = &look->sides[0];
    if (status == ND_OK && ref->capture != NULL && ref->classes != NULL) {
        /* The comparison has seen that no two captures contradict each other, and that every sample has a
         * label. */
        const struct nd_capture_probe *best = NULL;
        for (size_t d = 0; look->row->has_labels && d < look->comparison->n_devices; d++) {
            const struct side *side = &look->sides[d];
            const struct nd_capture_probe *probe =
                side->capture != NULL ? nd_capture_probe(side->capture, side->probe) : NULL;
            if (probe != NULL && probe->labels != NULL && (best == NULL || probe->n_samples > best->n_samples))
                best = probe;
        }
        look->labels = best != NULL && best->n_samples >= look->sides[0].n_samples ? best->labels : NULL;
        status = keep_some(look, n_max, err);
        look->row->has_changed = status == ND_OK;
    }
    ND_FREE_EACH(look->sides, n_devices, .classes);
    return status;
}

enum nd_status nd_find_changed_samples(struct nd_comparison *comparison,
                                       const struct nd_capture *const *captures, size_t n_max,
                                       struct nd_error *err)
{
    struct look look = {.comparison = comparison};
    ND_TRY(nd_kernels_choose(NULL, &look.kernels, err));
    for (size_t i = 0; i < comparison->n_top1; i++) {
        look.row = &comparison->top1[i];
        if (!look.row->has_changed)
            ND_TRY(look_at_row(&look, captures, n_max, err));
    }
    return ND_OK;
}
