#include <math.h>
#include <string.h>

#include "compare/findings/top1_classes.h"

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
