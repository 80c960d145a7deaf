/* Differences in steps: of quantised values and other integers (LSB), and of floats (ULP).
 * docs/reference/metrics.md#steps and #ulp. */
#include <math.h>
#include <string.h>

#include "compare/metrics/layout.h"
#include "compare/metrics/states.h"
#include "core/statistics/distributions.h"

/* Model outputs as probabilities. docs/reference/metrics.md#distributions. Samples are added whole, by
 * tile.c. */

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
    /* sum p ln(p / q) of the softmaxes: the logarithms are known without taking any of a small number. */
    double sum = 0, ref_log = nd_log(ref->exp_sum), test_log = nd_log(test->exp_sum);
    for (size_t i = 0; i < ref->n; i++) {
        double a = ref->values[i] - ref->max, b = test->values[i] - test->max;
        sum += nd_exp(a) / ref->exp_sum * ((a - ref_log) - (b - test_log));
    }
    nd_exact_add(&state->sum_softmax, sum > 0 ? sum : 0);
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

static const struct nd_metric_field steps_fields[] = {
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_steps_state, histogram), ND_LSB_BUCKETS},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_steps_state, tail), 2 * ND_LSB_TAIL},
    ND_STATE_FIELD(MAX, nd_steps_state, max),
    ND_STATE_FIELD(SUM, nd_steps_state, sum),
    ND_STATE_FIELD(SUM, nd_steps_state, sum_signed),
};

static bool applies(const struct nd_pair_context *context)
{
    return !context->ref.is_float && !context->is_mixed;
}

/* n elements off by `distance`, which is not 0. Bucket k of the tail holds 2^(k + 2) up to 2^(k + 3) - 1. */
static void add_distance(struct nd_steps_state *steps, uint64_t distance, bool is_above, uint64_t n)
{
    size_t bucket = distance > 3 ? 4 : (size_t)distance;
    steps->histogram[is_above ? 4 + bucket : 4 - bucket] += n;
    if (bucket < 4)
        return;
    size_t power = 61 - (size_t)__builtin_clzll(distance);
    steps->tail[is_above][power < ND_LSB_TAIL ? power : ND_LSB_TAIL - 1] += n;
}

/* Whole numbers by sign, exponent and highest fraction bit: what tells 1, 2, 3 and the powers of two apart.
 * Four counters of each take turns, since adding to one waits for the addition before. */
enum { STEPS = 256, BELOW = 128, METHODS = 4 };

/* Of all elements, or where few differ of those; how many. */
static size_t find_slots(const struct nd_kernels *kernels, const struct nd_pair_block *block, uint8_t *slots)
{
    enum { FEW = 16 }; /* one of so many; chosen */
    double ref[ND_BLOCK / FEW] = {0}, test[ND_BLOCK / FEW] = {0};
    size_t n = block->n_differing;
    if (n * FEW > block->n) {
        kernels->steps(block->ref.x, block->test.x, block->n, slots);
        return block->n;
    }
    const uint16_t *differing = nd_pair_block_differing(block);
    for (size_t k = 0; k < n; k++) {
        ref[k] = block->ref.x[differing[k]];
        test[k] = block->test.x[differing[k]];
    }
    kernels->steps(ref, test, n, slots);
    return n;
}

static void add_by_slots(struct nd_steps_state *steps, const struct nd_kernels *kernels,
                         const struct nd_pair_block *block, uint64_t max)
{
    uint16_t counts[STEPS][METHODS] = {0};
    uint8_t slots[ND_BLOCK];
    size_t n_slots = find_slots(kernels, block, slots);
    for (size_t i = 0; i < n_slots; i++)
        counts[slots[i]][i % METHODS]++;
    for (int is_above = 0; is_above < 2; is_above++)
        for (uint64_t size = 0;; size++) {
            uint64_t distance = size < 2 ? 1 : (2 + size % 2) << (size / 2 - 1), n = 0;
            if (distance > max)
                break;
            for (size_t method = 0; method < METHODS; method++)
                n += counts[size | (is_above ? 0 : BELOW)][method];
            if (n > 0)
                add_distance(steps, distance, is_above, n);
        }
}

/* Those from 1, 2, 3, 4, 8, 16, ... on less those from the next limit on. The limits are few where differences
 * are small, and a limit costs little. */
static void add_by_limits(struct nd_steps_state *steps, const struct nd_pair_context *context,
                          const struct nd_pair_block *block, uint64_t max)
{
    uint32_t above = (uint32_t)block->sums.n_above, below = (uint32_t)block->sums.n_below;
    uint16_t limit = 1;
    while (above + below > 0) {
        uint32_t next = limit < 4 ? limit + 1u : 2u * limit, next_above = 0, next_below = 0;
        if (next <= max)
            context->kernels->steps_from[context->ref.kind](block->ref.bytes, block->test.bytes, block->n,
                                                            (uint16_t)next, &next_above, &next_below);
        if (above > next_above)
            add_distance(steps, limit, true, above - next_above);
        if (below > next_below)
            add_distance(steps, limit, false, below - next_below);
        above = next_above;
        below = next_below;
        limit = (uint16_t)next;
    }
}

/* nd_layout_is_narrow. */
static void add_narrow(struct nd_steps_state *steps, const struct nd_pair_context *context,
                       const struct nd_pair_block *block)
{
    enum {
        SMALL = 1 << 10,
        FEW = 16
    }; /* limits take longer than slots from there on; one of so many (chosen) */
    uint64_t max = (uint64_t)block->sums.max_abs;
    if (context->kernels->steps_from[context->ref.kind] != NULL && max < SMALL &&
        block->n_differing * FEW > block->n)
        add_by_limits(steps, context, block, max);
    else
        add_by_slots(steps, context->kernels, block, max);
    steps->max = max > steps->max ? max : steps->max;
    nd_exact_add(&steps->sum, block->sums.sum_abs);
    nd_exact_add(&steps->sum_signed, block->sums.sum_signed);
}

/* Distances of up to 64 bits are added up in two halves: of a block each sum is below 2^43. */
static void add_bits(struct nd_steps_state *steps, const struct nd_layout *layout,
                     const struct nd_pair_block *block)
{
    uint64_t high[2] = {0}, low[2] = {0}; /* sums of the halves of the distances, below and above */
    const uint16_t *differing = nd_pair_block_differing(block);
    for (size_t k = 0; k < block->n_differing; k++) {
        size_t i = differing[k];
        uint64_t distance = block->distance[i];
        bool is_negative = nd_layout_is_less(layout, block->test.bytes, block->ref.bytes, i);
        add_distance(steps, distance, !is_negative, 1);
        steps->max = distance > steps->max ? distance : steps->max;
        high[!is_negative] += distance >> 32;
        low[!is_negative] += distance & UINT32_MAX;
    }
    for (int is_above = 0; is_above < 2; is_above++) {
        double sign = is_above ? 1 : -1;
        nd_exact_add(&steps->sum, (double)high[is_above] * 0x1p32);
        nd_exact_add(&steps->sum, (double)low[is_above]);
        nd_exact_add(&steps->sum_signed, sign * (double)high[is_above] * 0x1p32);
        nd_exact_add(&steps->sum_signed, sign * (double)low[is_above]);
    }
}

static void update_steps(struct nd_pair_state *state, const struct nd_pair_context *context,
                         const struct nd_pair_block *block)
{
    const struct nd_layout *layout = &context->ref;
    if (!applies(context) || block->joint != NULL)
        return;
    if (nd_layout_is_narrow(layout))
        add_narrow(&state->steps, context, block);
    else
        add_bits(&state->steps, layout, block);
}

static void add_steps_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                           const struct nd_cell *cell)
{
    (void)context;
    struct nd_steps_state *steps = &state->steps;
    double d = cell->test - cell->ref;
    uint64_t distance = (uint64_t)fabs(d);
    add_distance(steps, distance, d > 0, cell->n);
    steps->max = distance > steps->max ? distance : steps->max;
    nd_exact_add(&steps->sum, (double)(distance * cell->n)); /* exact: below 2^53, and so below */
    nd_exact_add(&steps->sum_signed, d * (double)cell->n);
}

static enum nd_status finish_steps(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                   struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    if (!applies(context))
        return ND_OK;
    const struct nd_steps_state *steps = &state->steps;
    double n = (double)state->bits.n_elems;
    out->is_integer = true;
    memcpy(out->lsb_histogram, steps->histogram, sizeof out->lsb_histogram);
    out->lsb_histogram[4] = state->bits.n_elems - state->bits.n_differing;
    memcpy(out->lsb_tail, steps->tail, sizeof out->lsb_tail);
    out->max_lsb = steps->max;
    out->mean_lsb = n > 0 ? nd_exact_round(&steps->sum) / n : 0;
    out->signed_mean_lsb = n > 0 ? nd_exact_round(&steps->sum_signed) / n : 0;
    return ND_OK;
}

static const struct nd_measure steps_measures[] = {
    ND_MEASURE(max_lsb, STEPS, COUNT, .name = "max_lsb", .option = "max_lsb",
               .title = "largest difference in LSB", .is_symmetric = true),
    ND_MEASURE(mean_lsb, STEPS, REAL, .name = "mean_lsb", .option = "mean_lsb",
               .title = "mean difference in LSB", .is_symmetric = true),
    ND_MEASURE(signed_mean_lsb, STEPS, REAL, .name = "signed_mean_lsb"),
};

const struct nd_metric nd_metric_steps = {
    .name = "steps",
    .offset = offsetof(struct nd_pair_state, steps),
    ND_STATE_FIELDS(steps_fields),
    .update = update_steps,
    .add_cell = add_steps_cell,
    .finish = finish_steps,
    ND_MEASURES(steps_measures),
};

/* How many floats apart; quantised values against floats: how many steps of the quantised value.
 * docs/reference/metrics.md#ulp and #mixed-types. */

static const struct nd_metric_field ulp_fields[] = {
    ND_STATE_FIELD(MAX, nd_ulp_state, max),
    ND_STATE_FIELD(MAX, nd_ulp_state, max_in),
    ND_STATE_FIELD(REAL_MAX, nd_ulp_state, max_steps),
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

static void update_ulp(struct nd_pair_state *state, const struct nd_pair_context *context,
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

static enum nd_status finish_ulp(const struct nd_pair_state *state, const struct nd_pair_context *context,
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

static const struct nd_measure ulp_measures[] = {
    ND_MEASURE(max_ulp, ULPS, COUNT, .name = "max_ulp", .option = "max_ulp",
               .title = "largest difference in ULP", .is_symmetric = true),
    ND_MEASURE(max_ulp_in, ULP_IN, COUNT, .name = "max_ulp_in"),
};

const struct nd_metric nd_metric_ulp = {
    .name = "ulp",
    .offset = offsetof(struct nd_pair_state, ulp),
    ND_STATE_FIELDS(ulp_fields),
    .update = update_ulp,
    .finish = finish_ulp,
    ND_MEASURES(ulp_measures),
};
