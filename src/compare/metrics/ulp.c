/* How many floats apart; quantised values against floats: how many steps of the quantised value.
 * docs/reference/metrics.md#ulp and #mixed-types. */
#include <math.h>

#include "compare/metrics/kernels/float_format.h"
#include "compare/metrics/states.h"

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_MAX, offsetof(struct nd_ulp_state, max), 0},
    {ND_METRIC_FIELD_MAX, offsetof(struct nd_ulp_state, max_in), 0},
    {ND_METRIC_FIELD_REAL_MAX, offsetof(struct nd_ulp_state, max_steps), 0},
};

/* The side that has quantised values where the other has floats; NULL: both have the same, or floats. */
static const struct nd_layout *coded_side(const struct nd_pair_context *context)
{
    if (!context->is_mixed || context->ref.is_float == context->test.is_float)
        return NULL;
    return context->ref.is_float ? &context->test : &context->ref;
}

static void add_steps(struct nd_ulp_state *ulp, const struct nd_layout *coded,
                      const struct nd_pair_block *block)
{
    const uint16_t *measured = nd_pair_block_measured(block);
    for (size_t k = 0; k < block->n_measured; k++) {
        size_t i = measured[k], channel = (block->first + i) / coded->inner % coded->n_channels;
        double scale = fabs((double)coded->scale[channel]);
        double steps = fabs(block->test.x[i] - block->ref.x[i]) / scale;
        ulp->max_steps = scale > 0 && steps > ulp->max_steps ? steps : ulp->max_steps;
    }
}

static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
                   const struct nd_pair_block *block)
{
    struct nd_ulp_state *ulp = &state->ulp;
    if (context->ulp_format != NULL && block->max_distance > ulp->max)
        ulp->max = block->max_distance;
    const struct nd_layout *coded = coded_side(context);
    if (coded != NULL && coded->n_channels > 0)
        add_steps(ulp, coded, block);
    if (context->ulp_in == NULL)
        return;
    const uint16_t *measured = nd_pair_block_measured(block);
    for (size_t k = 0; k < block->n_measured; k++) {
        size_t i = measured[k];
        uint64_t distance = nd_float_distance_in(context->ulp_in, context->ref.unit * block->ref.x[i],
                                                 context->test.unit * block->test.x[i]);
        ulp->max_in = distance > ulp->max_in ? distance : ulp->max_in;
    }
}

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    out->max_ulp = state->ulp.max;
    out->has_steps = coded_side(context) != NULL;
    out->max_steps = state->ulp.max_steps > 0 ? state->ulp.max_steps : 0;
    out->has_ulp_in = context->ulp_in != NULL;
    out->max_ulp_in = state->ulp.max_in;
    return ND_OK;
}

const struct nd_metric nd_metric_ulp = {
    .name = "ulp",
    .offset = offsetof(struct nd_pair_state, ulp),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .update = update,
    .finish = finish,
};
