#include "judge/accuracy/target.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/distributions.h"
#include "core/statistics/evidence.h"

enum { N_STATISTICS = 6 };

struct nd_target_sums nd_target_sums_of(const double *values, const double *target, size_t n)
{
    struct nd_target_sums sums = {0};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || !isfinite(target[i])) {
            sums.n_left_out++;
            continue;
        }
        double error = values[i] - target[i];
        sums.n_elems++;
        sums.abs_error += fabs(error);
        sums.sq_error += error * error;
        sums.sq_target += target[i] * target[i];
    }
    return sums;
}

static void add(struct nd_target_sums *sum, const struct nd_target_sums *sample)
{
    sum->n_elems += sample->n_elems;
    sum->abs_error += sample->abs_error;
    sum->sq_error += sample->sq_error;
    sum->sq_target += sample->sq_target;
}

/* 10 log10(a / b); 0 / 0 is what the caller says. */
static double decibels(double a, double b, double of_nothing)
{
    static const double db_per_neper = 0x1.15f2ced384f28p+2; /* 10 / ln 10 */
    if (isnan(a) || isnan(b) || (a == 0 && b == 0))
        return isnan(a) || isnan(b) ? NAN : of_nothing;
    if (a == 0 || b == 0 || isinf(a) || isinf(b))
        return isinf(a) && isinf(b) ? NAN : a == 0 || isinf(b) ? -INFINITY : INFINITY;
    return db_per_neper * (nd_log(a) - nd_log(b));
}

static void statistics_of(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                          double values[static N_STATISTICS])
{
    values[0] = ref->abs_error / (double)ref->n_elems;
    values[1] = decibels(ref->sq_target, ref->sq_error, ref->n_elems > 0 ? INFINITY : NAN);
    values[2] = test->abs_error / (double)test->n_elems;
    values[3] = decibels(test->sq_target, test->sq_error, test->n_elems > 0 ? INFINITY : NAN);
    values[4] = values[2] - values[0];
    values[5] = decibels(ref->sq_error, test->sq_error, ref->n_elems > 0 && test->n_elems > 0 ? 0 : NAN);
    /* The targets differ only where elements were left out. */
    if (ref->sq_target != test->sq_target && isfinite(values[5]))
        values[5] += decibels(test->sq_target, ref->sq_target, NAN);
}

static struct nd_interval interval_of(double *draws, double confidence)
{
    size_t n = 0;
    for (size_t i = 0; i < ND_DRAWS; i++)
        if (!isnan(draws[i]))
            draws[n++] = draws[i];
    return n > 0 ? nd_percentiles(draws, n, confidence) : (struct nd_interval){NAN, NAN};
}

static void draw(const struct nd_target_sums *ref, const struct nd_target_sums *test, size_t n, uint64_t *state,
                 double values[static N_STATISTICS])
{
    struct nd_target_sums drawn_ref = {0}, drawn_test = {0};
    for (size_t i = 0; i < n; i++) {
        size_t sample = nd_splitmix_below(state, n);
        add(&drawn_ref, &ref[sample]);
        add(&drawn_test, &test[sample]);
    }
    statistics_of(&drawn_ref, &drawn_test, values);
}

enum nd_status nd_target_compare(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                                 size_t n_samples, const struct nd_spread_options *options,
                                 struct nd_target_comparison *out, struct nd_error *err)
{
    assert(n_samples <= UINT32_MAX && options->confidence > 0 && options->confidence < 1);
    double *draws = nd_calloc((size_t)N_STATISTICS * ND_DRAWS, sizeof *draws), values[N_STATISTICS];
    if (draws == NULL)
        return nd_fail_memory(err);
    struct nd_target_sums all_ref = {0}, all_test = {0};
    for (size_t i = 0; i < n_samples; i++) {
        add(&all_ref, &ref[i]);
        add(&all_test, &test[i]);
    }
    statistics_of(&all_ref, &all_test, values);
    struct nd_estimate estimates[N_STATISTICS];
    for (size_t k = 0; k < N_STATISTICS; k++)
        estimates[k] = (struct nd_estimate){values[k], {NAN, NAN}};
    uint64_t state = options->seed;
    for (size_t d = 0; d < ND_DRAWS && n_samples > 1; d++) {
        draw(ref, test, n_samples, &state, values);
        for (size_t k = 0; k < N_STATISTICS; k++)
            draws[k * ND_DRAWS + d] = values[k];
    }
    for (size_t k = 0; k < N_STATISTICS && n_samples > 1; k++)
        estimates[k].interval = interval_of(draws + k * ND_DRAWS, options->confidence);
    *out = (struct nd_target_comparison){.ref = {estimates[0], estimates[1]},
                                         .test = {estimates[2], estimates[3]},
                                         .difference = {estimates[4], estimates[5]}};
    free(draws);
    return ND_OK;
}
