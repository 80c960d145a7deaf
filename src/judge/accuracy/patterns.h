/* The samples of nd_rights by who is right. Many samples, few patterns: a bootstrap draws patterns. */
#ifndef ND_ACCURACY_PATTERNS_H
#define ND_ACCURACY_PATTERNS_H

#include "judge/accuracy/spread.h"

struct nd_patterns {
    size_t n;            /* distinct ones; 0 is always that of agreement of all, whether it occurs or not */
    size_t width;        /* n_devices, the reference, the quantised reference (0 where it is not given) */
    unsigned char *bits; /* [n * width], 0 or 1; all of pattern 0 are 0: in a difference it cancels */
    uint32_t *of_sample; /* [n_samples] */
    uint32_t *counts;    /* [n] */
};

enum nd_status nd_patterns_make(const struct nd_rights *in, struct nd_patterns *out, struct nd_error *err);
void nd_patterns_deinit(struct nd_patterns *patterns);

#endif
