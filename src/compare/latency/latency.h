/* The parts of the examination of latencies: latency.c (summary, verdict), latency_modes.c (levels, modes, who
 * is slow), latency_join.c (captures), latency_read.c and latency_json.c (lists of other tools). */
#ifndef ND_LATENCY_LATENCY_H
#define ND_LATENCY_LATENCY_H

#include "core/error.h"
#include "npudiff/compare/latency.h"

/* What a run is for the join with digests. */
enum nd_run_class {
    ND_RUN_APART, /* not recorded, warm-up, or in the tail of two modes */
    ND_RUN_FAST,
    ND_RUN_SLOW,
};

/* The timed runs while they are looked at: n of them, in the order of time. */
struct nd_timed {
    const double *us;
    const size_t *index; /* place among what was given */
    size_t n;
    double *sorted; /* us in increasing order */
    double
        *levels; /* [n] logarithms, of times jittered within the timer's tick; later less the level's median */
    double *scratch;
};

/* nd_latency_examine that also says what each of the n runs is (classes[n], nullable). */
enum nd_status nd_latency_classify(const double *us, size_t n, const struct nd_latency_options *options,
                                   unsigned char *classes, struct nd_latency *out, struct nd_error *err);

/* Fills the changes, modes, tail and slow of out, and the classes of timed runs. timed->n >= 1. */
enum nd_status nd_latency_find_modes(struct nd_timed *timed, const struct nd_latency_options *options,
                                     unsigned char *classes, struct nd_latency *out, struct nd_error *err);

/* Verdict and suspicion from everything else. */
void nd_latency_conclude(const struct nd_latency_options *options, struct nd_latency *out);

/* Slow runs with p below this give other bits. */
#define ND_LATENCY_JOIN_LEVEL 0.01

#endif
