/* Which arithmetics of single values (arithmetic/exact/linear/rounding.h) give the quantised values of a layer.
 */
#pragma once

#include "arithmetic/exact/eval_graph.h"

enum { ND_MAX_ARITHMETICS = 24 };

/* Over the quantised values of one layer. The order is that of nd_rounding_rules. */
struct nd_qvalue_tally {
    uint64_t n_nan;  /* exact values that are not numbers: they speak neither for nor against */
    uint64_t n_open; /* quantised values on which arithmetics can differ: not whole, not clipped */
    uint64_t wrong[ND_MAX_ARITHMETICS]; /* quantised values that the arithmetic does not give */
    uint64_t far[ND_MAX_ARITHMETICS];   /* of those, not within float32 arithmetic of a threshold */
    uint64_t all_wrong; /* no arithmetic gives the quantised value; until the tally is finished */
};

/* Adds the quantised values of one sample: given[values->n] are the device's. */
void nd_qvalue_tally_add(struct nd_qvalue_tally *tally, const struct nd_exact_values *values,
                         const double *given);
void nd_qvalue_tally_merge(const struct nd_qvalue_tally *from, struct nd_qvalue_tally *to);
/* Brings all_wrong into wrong and far. */
void nd_qvalue_tally_finish(struct nd_qvalue_tally *tally);

/* Which of nd_rounding_rules rounds once, half to even. */
size_t nd_rounding_rule_half_even(void);
