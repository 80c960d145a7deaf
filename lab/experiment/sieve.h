/* What a search for programs leaves, as findings hold it: `programs` (owned) and `n_programs`. Once memory is
 * out nothing is added, and nd_sieve_end says so. */
#ifndef ND_EXPERIMENT_SIEVE_H
#define ND_EXPERIMENT_SIEVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

struct nd_sieve {
    void **programs;
    size_t *n_programs;
    size_t program_bytes, capacity;
    bool failed;
};
/* For findings without programs yet. */
#define ND_SIEVE(findings)                                                                                     \
    {                                                                                                          \
        .programs = (void **)&(findings)->programs, .n_programs = &(findings)->n_programs,                     \
        .program_bytes = sizeof *(findings)->programs                                                          \
    }

void nd_sieve_keep(struct nd_sieve *sieve, const void *program);
/* Those with the fewest wrong codes stay: *n_wrong, UINT64_MAX to begin with. */
void nd_sieve_fewest(struct nd_sieve *sieve, const void *program, uint64_t wrong, uint64_t *n_wrong);
/* Keeps a program without a wrong code. The one with the fewest is *nearest, a program; *n_nearest_wrong is
 * UINT64_MAX to begin with. */
void nd_sieve_right(struct nd_sieve *sieve, const void *program, uint64_t wrong, void *nearest,
                    uint64_t *n_nearest_wrong);
/* ND_ERR_MEMORY, and the programs are freed. */
enum nd_status nd_sieve_end(struct nd_sieve *sieve, struct nd_error *err);

#endif
