/* Values that are no numbers, over all samples of what was read whole. docs/reference/metrics.md#accounting.
 * Samples are added by engine.c. */
#include "compare/metrics/states.h"

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_elems), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_ref_nan), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_test_nan), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_ref_inf), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_test_inf), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_samples), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_samples_ref_nan), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_samples_test_nan), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_numbers_state, n_samples_both_nan), 0},
};

void nd_numbers_add_sample(struct nd_numbers_state *state, size_t n_elems, const struct nd_specials *ref,
                           const struct nd_specials *test)
{
    bool is_ref_nan = n_elems > 0 && ref->n_nan == n_elems, is_test_nan = n_elems > 0 && test->n_nan == n_elems;
    state->n_samples++;
    state->n_elems += n_elems;
    state->n_ref_nan += ref->n_nan;
    state->n_test_nan += test->n_nan;
    state->n_ref_inf += ref->n_inf;
    state->n_test_inf += test->n_inf;
    state->n_samples_ref_nan += is_ref_nan;
    state->n_samples_test_nan += is_test_nan;
    state->n_samples_both_nan += is_ref_nan && is_test_nan;
}

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    (void)err;
    const struct nd_numbers_state *numbers = &state->numbers;
    out->numbers = (struct nd_numbers){
        .is_known = numbers->n_samples > 0,
        .n_elems = numbers->n_elems,
        .n_ref_nan = numbers->n_ref_nan,
        .n_test_nan = numbers->n_test_nan,
        .n_ref_inf = numbers->n_ref_inf,
        .n_test_inf = numbers->n_test_inf,
        .n_samples = numbers->n_samples,
        .n_samples_ref_nan = numbers->n_samples_ref_nan,
        .n_samples_test_nan = numbers->n_samples_test_nan,
        .n_samples_both_nan = numbers->n_samples_both_nan,
    };
    return ND_OK;
}

const struct nd_metric nd_metric_numbers = {
    .name = "numbers",
    .offset = offsetof(struct nd_pair_state, numbers),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .finish = finish,
};
