/* Many questions at once: what each may still say. docs/science/statistics.md#multiplicity. A p-value that is
 * NaN belongs to no test: it stays NaN and does not count. adjusted may be p itself; compare it with alpha as
 * if it were alone.
 */
#ifndef ND_STATS_MULTIPLICITY_H
#define ND_STATS_MULTIPLICITY_H

#include <stddef.h>

#include "npudiff/status.h"

/* The chance of any wrong rejection among the n stays below alpha: Bonferroni, and Holm, which is never less
 * powerful. */
void nd_adjust_bonferroni(const double *p, size_t n, double *adjusted);
enum nd_status nd_adjust_holm(const double *p, size_t n, double *adjusted, struct nd_error *err);

/* The expected share of wrong ones among the rejected stays below alpha (Benjamini and Hochberg): for lists. */
enum nd_status nd_adjust_fdr(const double *p, size_t n, double *adjusted, struct nd_error *err);

/* The alpha of each two-sided test when all pairs of n devices are to be equivalent (Lauzon and Caffo):
 * alpha / (n - 1); alpha for n below 2. */
double nd_alpha_all_pairs(double alpha, size_t n);

#endif
