/* How many floats apart. docs/reference/metrics.md#ulp. */
#include "metrics/kernels/float_format.h"
#include "metrics/states.h"

static const struct nd_field fields[] = {
    {ND_FIELD_MAX, offsetof(struct nd_ulp_state, max), 0},
    {ND_FIELD_MAX, offsetof(struct nd_ulp_state, max_in), 0},
};

static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
                   const struct nd_pair_block *block)
{
    struct nd_ulp_state *ulp = &state->ulp;
    if (context->ulp_format != NULL && block->max_distance > ulp->max)
        ulp->max = block->max_distance;
    if (context->ulp_in == NULL)
        return;
    for (size_t k = 0; k < block->n_measured; k++) {
        size_t i = block->measured[k];
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
