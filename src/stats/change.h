/* Points in time where the level of a series changes: binary segmentation. */
#ifndef ND_STATS_CHANGE_H
#define ND_STATS_CHANGE_H

#include <stddef.h>

#include "base/error.h"

enum { ND_CHANGE_MIN_RUNS = 20 }; /* of every level */

struct nd_change {
    size_t at; /* the first of the new level */
    double p;
};

/* Finds at most max_changes changes of a series of logarithms, in increasing order of `at`; *n_changes says how
 * many. A change has p < 0.01 and moves the level by log_step or more. docs/science/latency.md#modes. values is
 * not changed. ND_ERR_MEMORY. */
enum nd_status nd_change_find(const double *values, size_t n, double log_step, struct nd_change *changes,
                              size_t max_changes, size_t *n_changes, struct nd_error *err);

#endif
