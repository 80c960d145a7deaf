/* What the examination of a series of latencies works with. docs/science/latency.md. */
#pragma once

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

/* Verdict and suspicion from everything else. */
void nd_latency_conclude(const struct nd_latency_options *options, struct nd_latency *out);

/* Slow runs with p below this give other bits. */
#define ND_LATENCY_JOIN_LEVEL 0.01
