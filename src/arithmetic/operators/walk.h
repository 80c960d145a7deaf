/* Going through up to three tensors at once, each with strides of its own (0 repeats, negative runs backwards):
 * the loop of everything that broadcasts, permutes, slices or reduces.
 *
 *     struct nd_walk walk = {0};
 *     nd_walk_axis(&walk, dim, strides...);       outermost axis first
 *     for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
 *         for (ptrdiff_t i = 0; i < walk.n; i++)
 *             ... x[walk.at[0] + i * walk.step[0]] ...
 *
 * Elements come in C order of the axes. Axes that follow each other in memory are merged, so that rows are
 * long. */
#ifndef ND_OPERATORS_WALK_H
#define ND_OPERATORS_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include "npudiff/core/tensor.h"

enum { ND_WALK_RANK = 2 * ND_MAX_RANK, ND_WALK_OPERANDS = 3 };

struct nd_walk {
    ptrdiff_t at[ND_WALK_OPERANDS];   /* where the row begins, in elements; may be set before nd_walk_begin */
    ptrdiff_t step[ND_WALK_OPERANDS]; /* from one element of the row to the next */
    ptrdiff_t n;                      /* elements of the row */
    int rank;
    bool is_empty;
    ptrdiff_t dims[ND_WALK_RANK];
    ptrdiff_t strides[ND_WALK_OPERANDS][ND_WALK_RANK];
    ptrdiff_t index[ND_WALK_RANK];
};

/* Adds an axis inside of those there are; at most ND_WALK_RANK. */
void nd_walk_axis(struct nd_walk *walk, int64_t dim, ptrdiff_t stride0, ptrdiff_t stride1, ptrdiff_t stride2);

/* The first row; false when there is no element at all. */
bool nd_walk_begin(struct nd_walk *walk);
bool nd_walk_next(struct nd_walk *walk);

/* The strides of a tensor in C order, in elements. */
void nd_strides(const struct nd_shape *shape, ptrdiff_t strides[ND_MAX_RANK]);

#endif
