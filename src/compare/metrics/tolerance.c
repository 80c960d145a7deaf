/* What fails the gates, and the smallest tolerance under which nothing would. docs/reference/metrics.md#worst
 * and #gates. */
#include <math.h>
#include <string.h>

#include "compare/metrics/states.h"

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_tolerance_state, n_failing), 0},
    {ND_METRIC_FIELD_REAL_MAX, offsetof(struct nd_tolerance_state, atol), 0},
    {ND_METRIC_FIELD_REAL_MAX, offsetof(struct nd_tolerance_state, rtol), 0},
};

/* The least double q with error <= q * size in double arithmetic. The product grows with q, and doubles of one
 * sign are ordered as their bits are. */
static double min_ratio(double error, double size)
{
    if (size == 0)
        return error > 0 ? INFINITY : 0;
    uint64_t low = 0, high;
    double ratio = INFINITY;
    memcpy(&high, &ratio, sizeof high); /* infinity * size is enough */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        memcpy(&ratio, &middle, sizeof ratio);
        if (error <= ratio * size)
            high = middle;
        else
            low = middle + 1;
    }
    memcpy(&ratio, &high, sizeof ratio);
    return ratio;
}

static bool passes(const struct nd_gate_values *gate, uint64_t distance, double error, double size)
{
    if ((gate->has_lsb && distance > gate->lsb) || (gate->has_ulp && distance > gate->ulp))
        return false;
    return !gate->has_tolerance || error <= gate->atol + gate->rtol * size;
}

static uint64_t count_failing(const struct nd_gate_values *gate, double unit, const struct nd_pair_block *block)
{
    if (gate->bitwise)
        return block->n_differing;
    uint64_t n_failing = 0;
    const uint16_t *measured = nd_pair_block_measured(block);
    for (size_t k = 0; k < block->n_measured; k++) {
        size_t i = measured[k];
        double error = unit * fabs(block->test.x[i] - block->ref.x[i]), size = fabs(unit * block->ref.x[i]);
        n_failing += !passes(gate, block->distance != NULL ? block->distance[i] : 0, error, size);
    }
    for (size_t k = 0; k < block->n_unmeasured; k++) {
        size_t i = block->unmeasured[k];
        n_failing += !isnan(block->ref.x[i]) || !isnan(block->test.x[i]);
    }
    return n_failing;
}

/* False where the largest relative error is well below the tolerance. The tolerance is held against products
 * with the unit, each of which is off by at most 2^-53 of itself: with a whole d or a float's, and a float's
 * unit, none of them is subnormal that matters. */
static bool may_exceed(const struct nd_pair_context *context, const struct nd_pair_block *block, double rtol)
{
    const double margin = 1 - 0x1p-40;
    bool is_double = context->ref.kind == ND_ELEM_F64 || context->test.kind == ND_ELEM_F64 ||
                     context->is_mixed || context->ref.is_real || !isfinite(context->ref.unit);
    return is_double || block->errors->n_undefined > 0 || !(block->errors->max_relative < rtol * margin);
}

static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
                   const struct nd_pair_block *block)
{
    struct nd_tolerance_state *tolerance = &state->tolerance;
    double unit = fabs(context->ref.unit), rtol = tolerance->rtol > 0 ? tolerance->rtol : 0;
    if (block->joint != NULL)
        return;
    tolerance->n_failing += count_failing(&context->gate, unit, block);
    if (block->n_measured == 0)
        return;
    double largest =
        unit * block->sums.max_abs; /* rounding keeps the order: it is the largest of the products */
    tolerance->atol = largest > tolerance->atol ? largest : tolerance->atol;
    bool is_more = rtol < INFINITY && may_exceed(context, block, rtol) &&
                   context->kernels->exceeds(block->ref_clean, block->test_clean, block->n, unit, rtol);
    const uint16_t *measured = is_more ? nd_pair_block_measured(block) : NULL;
    for (size_t k = 0; k < block->n_measured && is_more; k++) {
        size_t i = measured[k];
        double error = unit * fabs(block->test.x[i] - block->ref.x[i]), size = fabs(unit * block->ref.x[i]);
        if (error >
            rtol * size) /* it needs more than all others so far (inf * 0 is no number: nothing needs more) */
            rtol = min_ratio(error, size);
    }
    tolerance->rtol = rtol;
}

static void add_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                     const struct nd_cell *cell)
{
    struct nd_tolerance_state *tolerance = &state->tolerance;
    double unit = fabs(context->ref.unit), d = fabs(cell->test - cell->ref);
    double error = unit * d, size = fabs(unit * cell->ref), rtol = tolerance->rtol > 0 ? tolerance->rtol : 0;
    if (context->gate.bitwise || !passes(&context->gate, (uint64_t)d, error, size))
        tolerance->n_failing += cell->n;
    tolerance->atol = error > tolerance->atol ? error : tolerance->atol;
    tolerance->rtol = error > rtol * size ? min_ratio(error, size) : rtol;
}

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    const struct nd_tolerance_state *tolerance = &state->tolerance;
    out->n_failing = tolerance->n_failing;
    out->tolerance = (struct nd_tolerance){
        .is_possible = state->account.n_nan_mismatch + state->account.n_inf_mismatch == 0,
        .has_lsb = !context->ref.is_float && !context->is_mixed,
        .has_ulp = context->ulp_format != NULL &&
                   (!context->is_mixed || context->ref.is_float == context->test.is_float),
        .lsb = state->steps.max,
        .ulp = state->ulp.max,
        .atol = tolerance->atol > 0 ? tolerance->atol : 0,
        .rtol = tolerance->rtol > 0 ? tolerance->rtol : 0,
    };
    return ND_OK;
}

const struct nd_metric nd_metric_tolerance = {
    .name = "tolerance",
    .offset = offsetof(struct nd_pair_state, tolerance),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .update = update,
    .add_cell = add_cell,
    .finish = finish,
};
