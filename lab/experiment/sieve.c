#include "lab/experiment/sieve.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

void nd_sieve_keep(struct nd_sieve *s, const void *program)
{
    s->failed = s->failed || !nd_grow(s->programs, &s->capacity, *s->n_programs + 1, s->program_bytes);
    if (s->failed)
        return;
    memcpy((unsigned char *)*s->programs + *s->n_programs * s->program_bytes, program, s->program_bytes);
    ++*s->n_programs;
}

void nd_sieve_fewest(struct nd_sieve *s, const void *program, uint64_t wrong, uint64_t *n_wrong)
{
    if (wrong > *n_wrong)
        return;
    if (wrong < *n_wrong)
        *s->n_programs = 0;
    *n_wrong = wrong;
    nd_sieve_keep(s, program);
}

void nd_sieve_right(struct nd_sieve *s, const void *program, uint64_t wrong, void *nearest,
                    uint64_t *n_nearest_wrong)
{
    if (wrong < *n_nearest_wrong) {
        *n_nearest_wrong = wrong;
        memcpy(nearest, program, s->program_bytes);
    }
    if (wrong == 0)
        nd_sieve_keep(s, program);
}

enum nd_status nd_sieve_end(struct nd_sieve *s, struct nd_error *err)
{
    if (!s->failed)
        return ND_OK;
    free(*s->programs);
    *s->programs = NULL;
    *s->n_programs = 0;
    return nd_fail_memory(err);
}
