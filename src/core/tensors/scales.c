#include "core/tensors/scales.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

void nd_quant_deinit(struct nd_quant *quant)
{
    free(quant->scale);
    free(quant->zero_point);
    *quant = (struct nd_quant){.axis = -1};
}

bool nd_quant_is_same(const struct nd_quant *a, const struct nd_quant *b)
{
    return a != NULL && b != NULL && a->n == 1 && b->n == 1 && a->scale[0] == b->scale[0] &&
           a->zero_point[0] == b->zero_point[0];
}

bool nd_dtype_is_of_qvalues(enum nd_dtype dtype)
{
    return nd_dtype_is_integer(dtype) && nd_dtype_size_bytes(dtype) <= sizeof(int32_t);
}

bool nd_quant_is_sound(const struct nd_quant *quant)
{
    for (size_t i = 0; i < quant->n; i++)
        if (!(quant->scale[i] > 0 && isfinite(quant->scale[i])))
            return false;
    return quant->n > 0;
}

enum nd_status nd_quant_copy(const struct nd_quant *from, struct nd_quant *to, struct nd_error *err)
{
    struct nd_quant copy = {.n = from->n,
                            .axis = from->axis,
                            .scale = nd_calloc(from->n, sizeof *copy.scale),
                            .zero_point = nd_calloc(from->n, sizeof *copy.zero_point)};
    if (copy.scale == NULL || copy.zero_point == NULL) {
        nd_quant_deinit(&copy);
        return nd_fail_memory(err);
    }
    if (from->n > 0) {
        memcpy(copy.scale, from->scale, from->n * sizeof *from->scale);
        memcpy(copy.zero_point, from->zero_point, from->n * sizeof *from->zero_point);
    }
    *to = copy;
    return ND_OK;
}

size_t nd_quant_inner(const struct nd_quant *quant, const struct nd_shape *shape)
{
    size_t inner = 1;
    for (int d = quant->n > 1 ? quant->axis + 1 : shape->rank; d < shape->rank; d++)
        inner *= (size_t)shape->dims[d];
    return inner > 0 ? inner : 1;
}
