#include "devices/agent/runner/grid.h"

#include <math.h>

#include "arithmetic/operators/array.h"
#include "core/error.h"
#include "core/tensors/scales.h"

/* A code's real number is rounded twice to the type of the float, by its scale and by the product: so far it
 * may be from its step, relative to its distance from the zero point. */
static double two_roundings(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F16 ? 0x1p-10 : dtype == ND_DTYPE_F32 ? 0x1p-23 : 0x1p-52;
}

/* Never so far that it could as well be taken for something between two codes. Chosen: a quarter of a step. */
static const double max_steps = 0.25;

static void find_range(enum nd_dtype dtype, double *low, double *high)
{
    int bits = dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4 ? 4 : (int)(8 * nd_dtype_size_bytes(dtype));
    bool is_signed = nd_dtype_is_signed_integer(dtype);
    *low = is_signed ? -ldexp(1, bits - 1) : 0;
    *high = ldexp(1, is_signed ? bits - 1 : bits) - 1;
}

struct range {
    double low, high, error;
};

static double take(double value, double scale, double zero_point, const struct range *range,
                   struct nd_off_grid *off)
{
    double exact = value / scale, nearest = nearbyint(exact);
    double code = nearest + zero_point;
    if (isnan(exact)) {
        off->n++;
        off->largest = INFINITY;
        return zero_point;
    }
    code = fmin(fmax(code, range->low), range->high);
    double distance = fabs(exact - (code - zero_point));
    if (distance > fmin(fabs(nearest) * range->error, max_steps)) {
        off->n++;
        off->largest = fmax(off->largest, distance);
    }
    return code;
}

enum nd_status nd_grid_take(const struct nd_grid *grid, const void *values, void *qvalues,
                            struct nd_off_grid *off, struct nd_error *err)
{
    enum { BLOCK = 512 };
    double x[BLOCK];
    size_t n, inner = nd_quant_inner(grid->quant, grid->shape);
    size_t from_bytes = nd_dtype_size_bytes(grid->from), to_bytes = nd_dtype_size_bytes(grid->to);
    struct range range = {.error = two_roundings(grid->from)};
    find_range(grid->to, &range.low, &range.high);
    enum nd_status status = nd_shape_n_elems(grid->shape, &n, err);
    *off = (struct nd_off_grid){0};
    for (size_t first = 0; status == ND_OK && first < n; first += BLOCK) {
        size_t count = n - first < BLOCK ? n - first : BLOCK;
        nd_array_load(grid->from, (const char *)values + first * from_bytes, count, x);
        for (size_t i = 0; i < count; i++) {
            size_t channel = (first + i) / inner % grid->quant->n;
            x[i] = take(x[i], (double)grid->quant->scale[channel], (double)grid->quant->zero_point[channel],
                        &range, off);
        }
        nd_array_store(grid->to, x, count, (char *)qvalues + first * to_bytes);
    }
    return status;
}
