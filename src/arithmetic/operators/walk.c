/* Goes through up to three tensors at once, each with strides of its own. */
#include "arithmetic/operators/walk.h"

#include <assert.h>

void nd_walk_axis(struct nd_walk *walk, int64_t dim, ptrdiff_t stride0, ptrdiff_t stride1, ptrdiff_t stride2)
{
    const ptrdiff_t added[ND_WALK_OPERANDS] = {stride0, stride1, stride2};
    if (dim == 0)
        walk->is_empty = true;
    if (dim <= 1)
        return;
    bool merges = walk->rank > 0;
    for (int k = 0; k < ND_WALK_OPERANDS && merges; k++)
        merges = walk->strides[k][walk->rank - 1] == added[k] * (ptrdiff_t)dim;
    if (!merges) {
        assert(walk->rank < ND_WALK_RANK);
        walk->dims[walk->rank++] = 1;
    }
    walk->dims[walk->rank - 1] *= (ptrdiff_t)dim;
    for (int k = 0; k < ND_WALK_OPERANDS; k++)
        walk->strides[k][walk->rank - 1] = added[k];
}

bool nd_walk_begin(struct nd_walk *walk)
{
    if (walk->is_empty)
        return false;
    if (walk->rank == 0) /* one element */
        walk->dims[walk->rank++] = 1;
    walk->n = walk->dims[walk->rank - 1];
    for (int k = 0; k < ND_WALK_OPERANDS; k++)
        walk->step[k] = walk->strides[k][walk->rank - 1];
    for (int axis = 0; axis < walk->rank; axis++)
        walk->index[axis] = 0;
    return true;
}

bool nd_walk_next(struct nd_walk *walk)
{
    for (int axis = walk->rank - 2; axis >= 0; axis--) {
        bool wraps = ++walk->index[axis] == walk->dims[axis];
        for (int k = 0; k < ND_WALK_OPERANDS; k++)
            walk->at[k] += wraps ? walk->strides[k][axis] * (1 - walk->dims[axis]) : walk->strides[k][axis];
        if (!wraps)
            return true;
        walk->index[axis] = 0;
    }
    return false;
}

void nd_strides(const struct nd_shape *shape, ptrdiff_t strides[ND_MAX_RANK])
{
    ptrdiff_t stride = 1;
    for (int axis = shape->rank - 1; axis >= 0; axis--) {
        strides[axis] = stride;
        stride *= (ptrdiff_t)shape->dims[axis];
    }
}
