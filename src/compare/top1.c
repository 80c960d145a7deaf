#include <math.h>

#include "compare/accuracy.h"
#include "compare/codes.h"
#include "compare/ulp.h"

/* Codes order like their real values when one positive scale holds for all. */
static bool is_ordered_by_code(const struct nd_diff_layout *layout)
{
    return layout->n_channels == 0 || (layout->n_channels == 1 && layout->scale[0] > 0);
}

struct best {
    int64_t index;
    int64_t code;
    double value;
};

static void offer_code(struct best *best, size_t index, int64_t code)
{
    if (best->index < 0 || code > best->code)
        *best = (struct best){.index = (int64_t)index, .code = code};
}

static void offer_value(struct best *best, size_t index, double value)
{
    if (!isnan(value) && (best->index < 0 || value > best->value))
        *best = (struct best){.index = (int64_t)index, .value = value};
}

static void offer_codes(struct best *best, const struct nd_diff_layout *layout, const unsigned char *bytes,
                        size_t first, size_t n)
{
    int64_t codes[ND_DIFF_BLOCK];
    nd_codes_load(layout->dtype, bytes, n, codes);
    bool is_ordered = is_ordered_by_code(layout);
    for (size_t i = 0; i < n; i++) {
        if (is_ordered)
            offer_code(best, first + i, codes[i]);
        else
            offer_value(best, first + i, nd_codes_real(layout, first + i, codes[i]));
    }
}

static void offer_floats(struct best *best, const struct nd_diff_layout *layout, const unsigned char *bytes,
                         size_t first, size_t n)
{
    const struct nd_float_format *format = nd_float_format(layout->dtype);
    uint64_t bits[ND_DIFF_BLOCK];
    nd_diff_load_bits(bytes, nd_dtype_size_bytes(layout->dtype), n, bits);
    for (size_t i = 0; i < n; i++)
        offer_value(best, first + i, nd_float_value(format, bits[i]));
}

int64_t nd_top1_index(const struct nd_diff_layout *layout, const void *data)
{
    struct best best = {.index = -1};
    size_t elem_bytes = nd_dtype_size_bytes(layout->dtype);
    for (size_t first = 0; first < layout->n_elems; first += ND_DIFF_BLOCK) {
        size_t n = layout->n_elems - first < ND_DIFF_BLOCK ? layout->n_elems - first : ND_DIFF_BLOCK;
        const unsigned char *bytes = (const unsigned char *)data + first * elem_bytes;
        if (nd_dtype_is_float(layout->dtype))
            offer_floats(&best, layout, bytes, first, n);
        else
            offer_codes(&best, layout, bytes, first, n);
    }
    return best.index;
}
