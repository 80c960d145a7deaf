/* Which programs of single values (arith/program.h) give the codes of a unit. */
#ifndef ND_REPLAY_QVALUE_TALLY_H
#define ND_REPLAY_QVALUE_TALLY_H

#include "arithmetic/exact/eval_graph.h"

enum { ND_MAX_ARITHMETICS = 24 };

/* Over the codes of one unit. The order is that of nd_programs. */
struct nd_qvalue_tally {
    uint64_t n_nan;                  /* exact values that are not numbers: they speak neither for nor against */
    uint64_t n_open;                 /* codes on which programs can differ: not whole, not clipped */
    uint64_t wrong[ND_MAX_ARITHMETICS]; /* codes that the program does not give */
    uint64_t far[ND_MAX_ARITHMETICS];   /* of those, not within float32 arithmetic of a threshold */
    uint64_t all_wrong;              /* no program gives the code; until the tally is finished */
};

/* Adds the codes of one sample: given[values->n] are the device's. */
void nd_qvalue_tally_add(struct nd_qvalue_tally *tally, const struct nd_exact_values *values, const double *given);
void nd_qvalue_tally_merge(const struct nd_qvalue_tally *from, struct nd_qvalue_tally *to);
/* Brings all_wrong into wrong and far. */
void nd_qvalue_tally_finish(struct nd_qvalue_tally *tally);

/* Which of nd_programs rounds once, half to even. */
size_t nd_rounding_rule_half_even(void);

#endif
