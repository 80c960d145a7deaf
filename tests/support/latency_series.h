/* Seeded series of latencies whose truth is known: what tools/studies/score_latency counts and the unit tests
 * repeat. Times are microseconds around 1000. */
#ifndef ND_TESTS_LATENCY_SERIES_H
#define ND_TESTS_LATENCY_SERIES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/random.h"
#include "core/statistics/series.h"

static inline double series_normal(uint64_t *state)
{
    double u = 1 - nd_splitmix_uniform(state), v = nd_splitmix_uniform(state);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static inline double series_exponential(uint64_t *state)
{
    return -log(1 - nd_splitmix_uniform(state));
}

/* What a run of one kind takes. */
static inline double series_run(double cv, uint64_t *state)
{
    return 1000 * fmax(1 + cv * series_normal(state), 0.05);
}

/* ---- one kind of run ---- */

static inline void series_normal_2(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = series_run(0.02, state);
}

static inline void series_normal_5(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = series_run(0.05, state);
}

static inline void series_lognormal(double *us, size_t n, uint64_t *state)
{
    double sigma = sqrt(log(1.25)); /* CV 0.5 */
    for (size_t i = 0; i < n; i++)
        us[i] = 1000 * exp(sigma * series_normal(state));
}

/* Each run has a chance of 2 % to take three times as long. */
static inline void series_outliers(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = series_run(0.03, state) * (nd_splitmix_uniform(state) < 0.02 ? 3 : 1);
}

/* A normal core and exponential waiting on top. */
static inline void series_waiting(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = series_run(0.02, state) + 50 * series_exponential(state);
}

/* Nothing but a least time and exponential waiting. */
static inline void series_tail(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = 1000 + 100 * series_exponential(state);
}

static inline void series_drift(double *us, size_t n, double phi, uint64_t *state)
{
    double level = series_normal(state);
    for (size_t i = 0; i < n; i++) {
        us[i] = 1000 * (1 + 0.02 * level);
        level = phi * level + sqrt(1 - phi * phi) * series_normal(state);
    }
}

static inline void series_drift_7(double *us, size_t n, uint64_t *state)
{
    series_drift(us, n, 0.7, state);
}

static inline void series_drift_9(double *us, size_t n, uint64_t *state)
{
    series_drift(us, n, 0.9, state);
}

/* A timer of 10 us, half a deviation. */
static inline void series_timer(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = 10 * nearbyint(series_run(0.02, state) / 10);
}

/* A timer of 40 us, two deviations. */
static inline void series_coarse_timer(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = 40 * nearbyint(series_run(0.02, state) / 40);
}

static inline void series_uniform(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = 900 + 200 * nd_splitmix_uniform(state);
}

/* ---- two kinds ---- */

static inline void series_two(double *us, size_t n, double share, double sigmas, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = series_run(0.02, state) + (nd_splitmix_uniform(state) < share ? 20 * sigmas : 0);
}

static inline void series_two_5(double *us, size_t n, uint64_t *state)
{
    series_two(us, n, 0.2, 5, state);
}

static inline void series_two_3(double *us, size_t n, uint64_t *state)
{
    series_two(us, n, 0.2, 3, state);
}

static inline void series_two_rare(double *us, size_t n, uint64_t *state)
{
    series_two(us, n, 0.1, 8, state);
}

/* Log-normal kinds, 60/40, the slower twice as long. */
static inline void series_two_skewed(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = 1000 * exp(0.15 * series_normal(state)) * (nd_splitmix_uniform(state) < 0.4 ? 2 : 1);
}

/* As series_two_5 with 2 % of outliers. */
static inline void series_two_outliers(double *us, size_t n, uint64_t *state)
{
    series_two(us, n, 0.2, 5, state);
    for (size_t i = 0; i < n; i++)
        us[i] *= nd_splitmix_uniform(state) < 0.02 ? 4 : 1;
}

/* Slow runs come in bursts: a run is as the one before it with probability 0.9. */
static inline void series_two_bursts(double *us, size_t n, uint64_t *state)
{
    bool is_slow = false;
    for (size_t i = 0; i < n; i++) {
        if (nd_splitmix_uniform(state) < 0.1)
            is_slow = nd_splitmix_uniform(state) < 0.3;
        us[i] = series_run(0.02, state) + (is_slow ? 200 : 0);
    }
}

/* ---- levels in time ---- */

/* The second half takes 6 % longer: three deviations. */
static inline void series_step(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = series_run(0.02, state) * (i >= n / 2 ? 1.06 : 1);
}

/* From 70 % on throttled by a quarter. */
static inline void series_throttled(double *us, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        us[i] = series_run(0.03, state) * (i >= n * 7 / 10 ? 1.25 : 1);
}

enum series_truth { SERIES_ONE, SERIES_TWO, SERIES_LEVELS };

struct series_scenario {
    const char *name;
    enum series_truth truth;
    void (*draw)(double *us, size_t n, uint64_t *state);
    double cv; /* of the distribution, NaN where it is not wanted */
};

static const struct series_scenario series_scenarios[] = {
    {"normal, CV 0.02", SERIES_ONE, series_normal_2, 0.02},
    {"normal, CV 0.05", SERIES_ONE, series_normal_5, 0.05},
    {"log-normal, CV 0.5", SERIES_ONE, series_lognormal, 0.5},
    {"normal, CV 0.03, 2 % three times as long", SERIES_ONE, series_outliers, NAN},
    {"normal and exponential, 0.02 and 0.05", SERIES_ONE, series_waiting, NAN},
    {"exponential tail, 0.1", SERIES_ONE, series_tail, 100.0 / 1100.0},
    {"uniform, +-10 %", SERIES_ONE, series_uniform, NAN},
    {"AR(1), 0.7, CV 0.02", SERIES_ONE, series_drift_7, 0.02},
    {"AR(1), 0.9, CV 0.02", SERIES_ONE, series_drift_9, 0.02},
    {"normal, CV 0.02, timer of half a deviation", SERIES_ONE, series_timer, NAN},
    {"normal, CV 0.02, timer of 2 deviations", SERIES_ONE, series_coarse_timer, NAN},
    {"80/20, 5 deviations apart", SERIES_TWO, series_two_5, NAN},
    {"80/20, 3 deviations apart", SERIES_TWO, series_two_3, NAN},
    {"90/10, 8 deviations apart", SERIES_TWO, series_two_rare, NAN},
    {"60/40 log-normal, twice as long", SERIES_TWO, series_two_skewed, NAN},
    {"80/20, 5 deviations, 2 % outliers", SERIES_TWO, series_two_outliers, NAN},
    {"70/30 in bursts of 10, 10 deviations", SERIES_TWO, series_two_bursts, NAN},
    {"step of 3 deviations at half", SERIES_LEVELS, series_step, NAN},
    {"throttled by 25 % from 70 % on", SERIES_LEVELS, series_throttled, NAN},
};
enum { SERIES_N_SCENARIOS = sizeof series_scenarios / sizeof *series_scenarios };

#endif
