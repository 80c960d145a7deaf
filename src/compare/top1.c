#include <math.h>
#include <string.h>

#include "compare/top1_classes.h"

/* Codes order like their real values when one positive scale holds for all. */
static bool is_ordered_by_code(const struct nd_layout *layout)
{
    return !layout->is_float && (layout->n_channels == 0 || (layout->n_channels == 1 && layout->scale[0] > 0));
}

static bool is_better(const struct nd_best *a, const struct nd_best *b)
{
    if (a->index < 0 || b->index < 0)
        return a->index >= 0;
    if (a->code != b->code)
        return a->code > b->code;
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
static int64_t code_at(const struct nd_layout *layout, const unsigned char *bytes, size_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, bytes + i * layout->elem_bytes, layout->elem_bytes);
    int unused_bits = 64 - 8 * (int)layout->elem_bytes;
    if (nd_dtype_is_signed_integer(layout->dtype))
        return (int64_t)(bits << unused_bits) >> unused_bits;
    return (int64_t)(bits ^ (layout->dtype == ND_DTYPE_U64 ? (uint64_t)1 << 63 : 0));
}

void nd_best_offer(struct nd_best *best, const struct nd_layout *layout, const struct nd_kernels *kernels,
                   const unsigned char *bytes, size_t first, size_t n)
{
    double x[ND_BLOCK];
    bool by_code = is_ordered_by_code(layout);
    for (size_t at = 0; at < n; at += ND_BLOCK) {
        size_t n_block = n - at < ND_BLOCK ? n - at : ND_BLOCK;
        const unsigned char *block = bytes + at * layout->elem_bytes;
        if (!by_code)
            nd_layout_load(layout, kernels, block, first + at, n_block, x);
        for (size_t i = 0; i < n_block; i++) {
            struct nd_best offered = {.index = (int64_t)(first + at + i)};
            if (by_code)
                offered.code = code_at(layout, block, i);
            else
                offered.value = layout->unit * x[i];
            best->specials.n_nan += isnan(offered.value) != 0;
            best->specials.n_inf += isinf(offered.value) != 0;
            if (!isnan(offered.value))
                nd_best_merge(best, &offered);
        }
    }
}
