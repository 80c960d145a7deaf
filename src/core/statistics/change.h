/* Points in time where the level of a series changes: binary segmentation. */
#ifndef ND_STATS_CHANGE_H
#define ND_STATS_CHANGE_H

#include <stddef.h>

#include "core/error.h"

enum { ND_CHANGE_MIN_RUNS = 20 }; /* of every level */

struct nd_level_change {
    size_t at; /* the first of the new level */
    double p;
};

/* Room for changes, and how many were found. */
struct nd_changes {
    struct nd_level_change *items;
    size_t most; /* for which there is room */
    size_t n;
};

/* Finds at most changes->most changes of a series of logarithms, in increasing order of `at`. A change has
 * p < 0.01 and moves the level by log_step or more. docs/science/latency.md#modes. values is not changed.
 * ND_ERR_MEMORY. */
enum nd_status nd_change_find(const double *values, size_t n, double log_step, struct nd_changes *changes,
                              struct nd_error *err);

#endif
