/* What a search for arithmetics leaves, as findings hold it: `programs` (owned) and `n_programs`. Once memory
 * is out nothing is added, and nd_candidates_end says so. */
#ifndef ND_EXPERIMENT_CANDIDATES_H
#define ND_EXPERIMENT_CANDIDATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

struct nd_candidates {
    void **arithmetics;
    size_t *n_arithmetics;
    size_t arithmetic_bytes, capacity;
    bool failed;
};
/* For findings without arithmetics yet. */
#define ND_CANDIDATES(findings)                                                                                \
    {                                                                                                          \
        .arithmetics = (void **)&(findings)->arithmetics, .n_arithmetics = &(findings)->n_arithmetics,         \
        .arithmetic_bytes = sizeof *(findings)->arithmetics                                                    \
    }

void nd_candidates_keep(struct nd_candidates *candidates, const void *arithmetic);
/* Those with the fewest wrong quantised values stay: *n_wrong, UINT64_MAX to begin with. */
void nd_candidates_fewest(struct nd_candidates *candidates, const void *arithmetic, uint64_t wrong,
                          uint64_t *n_wrong);
/* Keeps an arithmetic without a wrong quantised value. The one with the fewest is *nearest, an arithmetic;
 * *n_nearest_wrong is UINT64_MAX to begin with. */
void nd_candidates_right(struct nd_candidates *candidates, const void *arithmetic, uint64_t wrong,
                         void *nearest, uint64_t *n_nearest_wrong);
/* ND_ERR_MEMORY, and the arithmetics are freed. */
enum nd_status nd_candidates_end(struct nd_candidates *candidates, struct nd_error *err);

#endif
