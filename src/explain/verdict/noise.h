/* How much a layer's values change from run to run, while what it reads does not. */
#ifndef ND_EXPLAIN_NOISE_H
#define ND_EXPLAIN_NOISE_H

#include "explain/plan/plan.h"

struct nd_explain_noise {
    bool is_any;      /* its values differ from run to run; else the rest is 0 */
    bool is_own;      /* and what it reads does not */
    size_t n_repeats; /* runs that were held against the first one and differ from it */
    double max;       /* LSB */
    double share;     /* of the values of these runs, those that differ from the first run's */
};

/* From the runs that the capture stores of the step; where it stores none that differ, from digests alone,
 * is_any is true and n_repeats is 0. ND_ERR_MEMORY, and the errors of reading a capture. */
enum nd_status nd_explain_measure_noise(const struct nd_plan *plan, size_t device, size_t step,
                                        struct nd_explain_noise *out, struct nd_error *err);

#endif
