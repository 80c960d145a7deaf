/* The test of McNemar: do two sides disagree one way more often than the other? */
#ifndef ND_STATS_MCNEMAR_H
#define ND_STATS_MCNEMAR_H

#include <stddef.h>

/* Two-sided mid-p McNemar of n_lost against n_gained discordant samples; 1 when there are none. */
double nd_mcnemar_mid_p(size_t n_lost, size_t n_gained);

#endif
