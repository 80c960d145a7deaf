#include "core/statistics/sequential.h"

#include <math.h>

#include "core/statistics/binomial.h"
#include "core/statistics/softmath.h"

/* ln P(X = k), X ~ Bin(n, 1/2). */
static double log_half(uint64_t k, uint64_t n)
{
    return nd_binomial_log_pmf(k, n, 0.5, 0.5);
}

double nd_log_e_value(uint64_t ref_only, uint64_t test_only)
{
    /* B(b + 1/2, c + 1/2) / pi = C(2b, b) C(2c, c) / (C(b + c, b) 4^(b + c)). */
    return log_half(ref_only, 2 * ref_only) + log_half(test_only, 2 * test_only) -
           log_half(ref_only, ref_only + test_only);
}

void nd_evidence_add(struct nd_evidence *evidence, bool is_test_right)
{
    evidence->test_only += is_test_right;
    evidence->ref_only += !is_test_right;
    evidence->log_e = nd_log_e_value(evidence->ref_only, evidence->test_only);
    evidence->log_e_max = fmax(evidence->log_e_max, evidence->log_e);
}

bool nd_evidence_suffices(const struct nd_evidence *evidence, double stop)
{
    return evidence->log_e_max >= nd_log(stop);
}
