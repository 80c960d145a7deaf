#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "npudiff/core/tensor.h"

enum nd_status nd_shape_n_elems(const struct nd_shape *shape, size_t *out, struct nd_error *err)
{
    if (shape->rank < 0 || shape->rank > ND_MAX_RANK)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "a tensor of rank %d; 0 to %d are accepted", shape->rank,
                       ND_MAX_RANK);
    size_t n = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "dimension %d is %lld", i,
                           (long long)shape->dims[i]);
        if (!nd_size_mul(n, (size_t)shape->dims[i], &n))
            return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "a tensor's number of elements does not fit");
    }
    *out = n;
    return ND_OK;
}

enum nd_status nd_shape_size_bytes(const struct nd_shape *shape, enum nd_dtype dtype, size_t *out,
                                   struct nd_error *err)
{
    size_t n;
    enum nd_status status = nd_shape_n_elems(shape, &n, err);
    if (status != ND_OK)
        return status;
    size_t elem_bytes = nd_dtype_size_bytes(dtype);
    if (elem_bytes == 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "element type %d is not known", (int)dtype);
    if (!nd_size_mul(n, elem_bytes, out))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "a tensor's size does not fit");
    return ND_OK;
}

bool nd_shape_equal(const struct nd_shape *a, const struct nd_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

char *nd_shape_format(const struct nd_shape *shape, char *buf, size_t buf_size)
{
    if (shape->rank <= 0) {
        snprintf(buf, buf_size, shape->rank == 0 ? "scalar" : "unknown");
        return buf;
    }
    size_t used = 0;
    for (int i = 0; i < shape->rank && used < buf_size; i++)
        used +=
            (size_t)snprintf(buf + used, buf_size - used, i > 0 ? "x%lld" : "%lld", (long long)shape->dims[i]);
    return buf;
}
