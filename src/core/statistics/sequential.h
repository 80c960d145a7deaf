/* Evidence that one side is right more often than the other, which may be looked at after every sample:
 * stopping when it suffices does not spoil it. docs/science/statistics.md#sequential. */
#ifndef ND_STATS_SEQUENTIAL_H
#define ND_STATS_SEQUENTIAL_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed: no sample yet, an e-value of 1. */
struct nd_evidence {
    uint64_t ref_only,
        test_only;           /* the samples on which the two disagree in being right; others do not count */
    double log_e, log_e_max; /* ln of the e-value now, and of the largest so far */
};

/* Enough to stop at a chance of a false alarm of 5 % over all looks together. */
#define ND_EVIDENCE_STOP 20.0

/* ln of 2^(b + c) B(b + 1/2, c + 1/2) / pi, b + c <= 2^53: the evidence of Krichevsky and Trofimov against a
 * fair coin. Absolute error below 1e-13 + 1e-15 |result|. Symmetric. */
double nd_log_e_value(uint64_t ref_only, uint64_t test_only);

/* One more such sample. The value is computed from the counts: errors do not add up. */
void nd_evidence_add(struct nd_evidence *evidence, bool is_test_right);

/* The largest e-value so far is at least stop (1 / alpha). */
bool nd_evidence_suffices(const struct nd_evidence *evidence, double stop);

#endif
