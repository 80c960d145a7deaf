/* Model outputs as probabilities. docs/reference/metrics.md#distributions. Samples are added whole, by
 * tile.c. */
#include "compare/metrics/states.h"

#include <math.h>

#include "core/statistics/distributions.h"

static const struct nd_metric_field fields[] = {
    ND_STATE_FIELD(COUNT, nd_distribution_state, n_samples),
    ND_STATE_FIELD(COUNT, nd_distribution_state, n_unlike),
    ND_STATE_FIELD(COUNT, nd_distribution_state, n_infinite_values),
    ND_STATE_FIELD(COUNT, nd_distribution_state, n_invalid),
    ND_STATE_FIELD(SUM, nd_distribution_state, sum_values),
    ND_STATE_FIELD(SUM, nd_distribution_state, sum_softmax),
    ND_STATE_FIELD(MAX, nd_distribution_state, top_k),
    ND_STATE_FIELD(COUNT, nd_distribution_state, n_common),
};

static void find_top(struct nd_probabilities *p)
{
    p->n_top = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (isnan(p->values[i]))
            continue;
        size_t at = p->n_top;
        while (at > 0 && p->values[i] > p->values[p->top[at - 1]])
            at--;
        if (at == ND_TOP_K)
            continue;
        p->n_top += p->n_top < ND_TOP_K;
        for (size_t k = p->n_top - 1; k > at; k--)
            p->top[k] = p->top[k - 1];
        p->top[at] = i;
    }
}

void nd_probabilities_describe(struct nd_probabilities *p)
{
    p->is_finite = true;
    p->sum = p->exp_sum = 0;
    bool is_negative = false;
    for (size_t i = 0; i < p->n; i++) {
        p->is_finite = p->is_finite && isfinite(p->values[i]);
        is_negative = is_negative || p->values[i] < 0;
        p->sum += p->values[i];
    }
    p->is_probability = p->is_finite && !is_negative && fabs(p->sum - 1) <= 0.01;
    find_top(p);
    p->max = p->n_top > 0 ? p->values[p->top[0]] : 0;
    for (size_t i = 0; i < p->n && p->is_finite; i++)
        p->exp_sum += nd_exp(p->values[i] - p->max);
}

/* sum p ln(p / q) of the softmaxes: the logarithms are known without taking any of a small number. */
static double divergence_softmax(const struct nd_probabilities *ref, const struct nd_probabilities *test)
{
    double sum = 0, ref_log = nd_log(ref->exp_sum), test_log = nd_log(test->exp_sum);
    for (size_t i = 0; i < ref->n; i++) {
        double a = ref->values[i] - ref->max, b = test->values[i] - test->max;
        sum += nd_exp(a) / ref->exp_sum * ((a - ref_log) - (b - test_log));
    }
    return sum > 0 ? sum : 0;
}

/* Infinite where the test says 0 and the reference does not. */
static double divergence_values(const struct nd_probabilities *ref, const struct nd_probabilities *test)
{
    double sum = 0;
    for (size_t i = 0; i < ref->n; i++) {
        double p = ref->values[i] / ref->sum, q = test->values[i] / test->sum;
        if (p > 0 && !(q > 0))
            return INFINITY;
        sum += p > 0 ? p * (nd_log(p) - nd_log(q)) : 0;
    }
    return sum > 0 ? sum : 0;
}

void nd_distribution_add(struct nd_distribution_state *state, const struct nd_probabilities *ref,
                         const struct nd_probabilities *test)
{
    state->n_samples++;
    state->top_k = ref->n < ND_TOP_K ? ref->n : ND_TOP_K;
    for (size_t i = 0; i < ref->n_top; i++)
        for (size_t k = 0; k < test->n_top; k++)
            state->n_common += ref->top[i] == test->top[k];
    if (!ref->is_finite || !test->is_finite) {
        state->n_invalid++;
        return;
    }
    bool is_alike = ref->is_probability && test->is_probability;
    state->n_unlike += !is_alike;
    if (ref->values == test->values)
        return; /* the same sample: nothing to add */
    nd_exact_add(&state->sum_softmax, divergence_softmax(ref, test));
    double divergence = is_alike ? divergence_values(ref, test) : 0;
    state->n_infinite_values += isinf(divergence) != 0;
    nd_exact_add(&state->sum_values, isinf(divergence) ? 0 : divergence);
}

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    (void)err;
    const struct nd_distribution_state *d = &state->distribution;
    if (d->n_samples == 0)
        return ND_OK;
    bool is_softmax = d->n_unlike > 0;
    uint64_t n_infinite = is_softmax ? 0 : d->n_infinite_values, n = d->n_samples - d->n_invalid - n_infinite;
    out->distribution = (struct nd_distribution){
        .exists = true,
        .is_softmax = is_softmax,
        .n_samples = d->n_samples,
        .n_infinite = n_infinite,
        .n_invalid = d->n_invalid,
        .kl = n > 0 ? nd_exact_round(is_softmax ? &d->sum_softmax : &d->sum_values) / (double)n : 0,
        .top_k = d->top_k,
        .topk_overlap = (double)d->n_common / (double)(d->top_k * d->n_samples),
    };
    return ND_OK;
}

static const struct nd_measure distribution_measures[] = {
    ND_MEASURE(distribution.kl, DIVERGENCE, REAL, .option = "kl", .title = "KL divergence in nats"),
};

const struct nd_metric nd_metric_distribution = {
    .name = "distribution",
    .offset = offsetof(struct nd_pair_state, distribution),
    ND_STATE_FIELDS(fields),
    .finish = finish,
    ND_MEASURES(distribution_measures),
};
