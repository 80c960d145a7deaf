#include "lab/experiment/candidates.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

void nd_candidates_keep(struct nd_candidates *s, const void *arithmetic)
{
    s->failed = s->failed || !nd_grow(s->arithmetics, &s->capacity, *s->n_arithmetics + 1, s->arithmetic_bytes);
    if (s->failed)
        return;
    memcpy((unsigned char *)*s->arithmetics + *s->n_arithmetics * s->arithmetic_bytes, arithmetic,
           s->arithmetic_bytes);
    ++*s->n_arithmetics;
}

void nd_candidates_fewest(struct nd_candidates *s, const void *arithmetic, uint64_t wrong, uint64_t *n_wrong)
{
    if (wrong > *n_wrong)
        return;
    if (wrong < *n_wrong)
        *s->n_arithmetics = 0;
    *n_wrong = wrong;
    nd_candidates_keep(s, arithmetic);
}

void nd_candidates_right(struct nd_candidates *s, const void *arithmetic, uint64_t wrong, void *nearest,
                         uint64_t *n_nearest_wrong)
{
    if (wrong < *n_nearest_wrong) {
        *n_nearest_wrong = wrong;
        memcpy(nearest, arithmetic, s->arithmetic_bytes);
    }
    if (wrong == 0)
        nd_candidates_keep(s, arithmetic);
}

enum nd_status nd_candidates_end(struct nd_candidates *s, struct nd_error *err)
{
    if (!s->failed)
        return ND_OK;
    free(*s->arithmetics);
    *s->arithmetics = NULL;
    *s->n_arithmetics = 0;
    return nd_fail_memory(err);
}
