#include <math.h>

#include "compare/pair.h"
#include "compare/ulp.h"

struct element {
    uint64_t ref, test; /* bits */
    uint64_t dist_ulp;
    double abs_error;
    double ref_value;
};

/* Sections 3, 4 and 8: true when the gates hold. Only for elements without a NaN or infinity mismatch. */
static bool passes(const struct nd_gate_values *gate, const struct element *e)
{
    if (gate->bitwise)
        return false;
    if (gate->has_ulp && e->dist_ulp > gate->ulp)
        return false;
    return !gate->has_tolerance || e->abs_error <= gate->atol + gate->rtol * fabs(e->ref_value);
}

/* Section 5. True when the element has been counted as special and has no error to measure. */
static bool count_special(struct nd_diff_acc *acc, const struct nd_float_format *format,
                          const struct nd_gate_values *gate, uint64_t ref, uint64_t test)
{
    bool ref_nan = nd_float_is_nan(format, ref), test_nan = nd_float_is_nan(format, test);
    if (ref_nan && test_nan) {
        acc->n_nan_payload++;
        acc->n_failing += gate->bitwise;
        return true;
    }
    if (ref_nan || test_nan) {
        acc->n_nan_mismatch++;
        acc->n_failing++;
        return true;
    }
    if (nd_float_is_inf(format, ref) || nd_float_is_inf(format, test)) {
        acc->n_inf_mismatch++; /* the bits differ, so the other side is finite or the other infinity */
        acc->n_failing++;
        return true;
    }
    return false;
}

uint64_t nd_diff_floats_block(struct nd_diff_acc *acc, const struct nd_diff_layout *layout,
                              struct nd_diff_block *block)
{
    const struct nd_float_format *format = nd_float_format(layout->dtype);
    uint64_t ref[ND_DIFF_BLOCK], test[ND_DIFF_BLOCK];
    size_t elem_bytes = nd_dtype_size_bytes(layout->dtype);
    nd_diff_load_bits(block->ref, elem_bytes, block->n, ref);
    nd_diff_load_bits(block->test, elem_bytes, block->n, test);
    uint64_t n_differing = 0;
    for (size_t i = 0; i < block->n; i++) {
        if (ref[i] == test[i])
            continue;
        if (n_differing++ == 0)
            block->first_differing = i;
        if (count_special(acc, format, &layout->gate, ref[i], test[i]))
            continue;
        struct element e = {.ref = ref[i], .test = test[i], .ref_value = nd_float_value(format, ref[i])};
        e.dist_ulp = nd_float_distance_ulp(format, e.ref, e.test);
        e.abs_error = fabs(nd_float_value(format, e.test) - e.ref_value);
        if (e.dist_ulp == 0)
            acc->n_zero_sign++;
        acc->max_ulp = e.dist_ulp > acc->max_ulp ? e.dist_ulp : acc->max_ulp;
        acc->max_abs = e.abs_error > acc->max_abs ? e.abs_error : acc->max_abs;
        block->lanes[i % ND_DIFF_LANES] += e.abs_error;
        if (!passes(&layout->gate, &e))
            acc->n_failing++;
    }
    return n_differing;
}
