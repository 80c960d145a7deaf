/* Many questions at once: what each may still say. docs/science/statistics.md#multiplicity. A p-value that is
 * NaN belongs to no test: it stays NaN and does not count. adjusted may be p itself; compare it with alpha as
 * if it were alone.
 */
#ifndef ND_STATS_MULTIPLICITY_H
#define ND_STATS_MULTIPLICITY_H

#include <stddef.h>

#include "npudiff/core/status.h"

/* The chance of any wrong rejection among the n stays below alpha (Holm). */
enum nd_status nd_adjust_holm(const double *p, size_t n, double *adjusted, struct nd_error *err);

#endif
