/* Which sum of pairs in 16 bits (arithmetic/variants/pairs.h) gives the quantised values of a layer on a
 * device. Two passes over the samples: the first counts what each leaves wrong, the second keeps the quantised
 * values of the best. */
#pragma once

#include "arithmetic/variants/pairs.h"

struct nd_explain_pairs {
    size_t n_known;                 /* quantised values that were looked at */
    size_t n_wrong[ND_N_PAIR_SUMS]; /* of them, quantised values that are not the device's */
    bool is_tried[ND_N_PAIR_SUMS];
    size_t chosen;   /* SIZE_MAX: none yet, or none fits */
    double *qvalues; /* [n_samples][n] of the chosen one; NULL before the second pass, or where none fits */
};

/* What the chosen one is, as a sentence, and whether another leaves as little. */
void nd_explain_pairs_text(const struct nd_explain_pairs *pairs, char buf[ND_PAIR_SUM_TEXT_BYTES]);
