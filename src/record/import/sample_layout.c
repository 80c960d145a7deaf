#include "record/import/sample_layout.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

struct nd_shape nd_layout_channels_last(const struct nd_shape *shape)
{
    struct nd_shape moved = *shape;
    for (int d = 1; d + 1 < shape->rank; d++)
        moved.dims[d] = shape->dims[d + 1];
    if (shape->rank > 1)
        moved.dims[shape->rank - 1] = shape->dims[1];
    return moved;
}

/* [outer, inner, channels] to [outer, channels, inner], element by element. */
static void move_channels(const unsigned char *from, unsigned char *to, const size_t sizes[3],
                          size_t elem_bytes)
{
    size_t n_inner = sizes[1], n_channels = sizes[2];
    for (size_t o = 0; o < sizes[0]; o++)
        for (size_t i = 0; i < n_inner; i++)
            for (size_t c = 0; c < n_channels; c++) {
                size_t source = (o * n_inner + i) * n_channels + c;
                size_t target = (o * n_channels + c) * n_inner + i;
                memcpy(to + target * elem_bytes, from + source * elem_bytes, elem_bytes);
            }
}

enum nd_status nd_layout_channels_first(struct nd_imported_tensor *tensor, int n_before, struct nd_error *err)
{
    struct nd_shape *shape = &tensor->shape;
    size_t sizes[3] = {tensor->n_samples, 1, (size_t)shape->dims[shape->rank - 1]};
    size_t n_bytes = tensor->n_samples * tensor->sample_bytes; /* exists, so it fits */
    for (int d = 0; d < shape->rank - 1 && n_bytes > 0; d++)
        sizes[d < n_before ? 0 : 1] *= (size_t)shape->dims[d];
    void *moved = nd_tensor_alloc(n_bytes);
    if (moved == NULL)
        return nd_fail_memory(err);
    if (n_bytes > 0)
        move_channels(tensor->data, moved, sizes, nd_dtype_size_bytes(tensor->dtype));
    free(tensor->data);
    tensor->data = moved;
    tensor->capacity_bytes = n_bytes;
    int64_t channels = shape->dims[shape->rank - 1];
    for (int d = shape->rank - 1; d > n_before; d--)
        shape->dims[d] = shape->dims[d - 1];
    shape->dims[n_before] = channels;
    if (tensor->quant.n > 1 && tensor->quant.axis >= n_before)
        tensor->quant.axis = tensor->quant.axis == shape->rank - 1 ? n_before : tensor->quant.axis + 1;
    return ND_OK;
}

/* The shape behind the first dimension. */
static struct nd_shape behind_first(const struct nd_shape *shape)
{
    struct nd_shape rest = {.rank = shape->rank - 1};
    memcpy(rest.dims, shape->dims + 1, (size_t)rest.rank * sizeof *rest.dims);
    return rest;
}

/* What the array is if its samples lie so; false when they cannot. */
static bool split(const struct nd_shape *array, enum nd_import_samples samples, struct nd_shape *sample,
                  size_t *n)
{
    *n = 1;
    *sample = *array;
    if (samples == ND_IMPORT_SAMPLES_NONE)
        return true;
    if (array->rank == 0)
        return false;
    *n = (size_t)array->dims[0];
    if (samples == ND_IMPORT_SAMPLES_BATCH)
        sample->dims[0] = 1;
    else
        *sample = behind_first(array);
    return true;
}

/* Two ways that both fit mean the same: they differ in the rank of the sample, or in a first dimension of 1. */
static bool split_as_expected(const struct nd_shape *array, const struct nd_shape *expected,
                              struct nd_shape *sample, size_t *n)
{
    static const enum nd_import_samples ways[] = {ND_IMPORT_SAMPLES_FIRST, ND_IMPORT_SAMPLES_BATCH,
                                                  ND_IMPORT_SAMPLES_NONE};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
        if (split(array, ways[w], sample, n) && nd_shape_equal(sample, expected))
            return true;
    return false;
}

/* A hint for who reads the message, no more: what fits may still be something else. */
static bool fits_channels_last(const struct nd_shape *array, const struct nd_shape *expected)
{
    struct nd_shape sample;
    size_t n;
    const struct nd_shape last = nd_layout_channels_last(expected);
    return expected->rank > 2 && split_as_expected(array, &last, &sample, &n);
}

/* The array is n samples of that shape. */
static void part(struct nd_imported_tensor *tensor, struct nd_shape sample, size_t n)
{
    if (n > 0)
        tensor->sample_bytes /= n;
    tensor->shape = sample;
    tensor->n_samples = n;
    tensor->is_array = false;
}

enum nd_status nd_layout_find_samples(struct nd_imported_tensor *tensor, enum nd_import_samples samples,
                                      const struct nd_shape *expected, struct nd_error *err)
{
    char found[128], wanted[128];
    struct nd_shape sample;
    size_t n = 0;
    bool is_auto = samples == ND_IMPORT_SAMPLES_AUTO;
    if (is_auto && expected != NULL) {
        if (!split_as_expected(&tensor->shape, expected, &sample, &n))
            return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name,
                           "%s has shape %s; the model has samples of shape %s in this layout%s", tensor->where,
                           nd_shape_format(&tensor->shape, found, sizeof found),
                           nd_shape_format(expected, wanted, sizeof wanted),
                           fits_channels_last(&tensor->shape, expected)
                               ? " (with channels last it would fit: 'layout: NHWC' or the like in a --map)"
                               : "");
    } else if (!split(&tensor->shape, is_auto ? ND_IMPORT_SAMPLES_FIRST : samples, &sample, &n)) {
        return nd_fail(
            err, ND_E_IMPORT_OPTION, tensor->name,
            "%s is a scalar: it has no dimension of samples; with --samples-axis none it is one sample",
            tensor->where);
    }
    part(tensor, sample, n);
    return ND_OK;
}

/* [outer][n][inner] to [n][outer][inner]. */
static enum nd_status move_to_front(struct nd_imported_tensor *tensor, int axis, struct nd_error *err)
{
    size_t outer = 1, inner = nd_dtype_size_bytes(tensor->dtype), n = (size_t)tensor->shape.dims[axis];
    for (int d = 0; d < tensor->shape.rank; d++)
        if (d != axis)
            *(d < axis ? &outer : &inner) *= (size_t)tensor->shape.dims[d]; /* the array exists, so it fits */
    unsigned char *moved = nd_tensor_alloc(tensor->sample_bytes);
    if (moved == NULL)
        return nd_fail_memory(err);
    const unsigned char *from = tensor->data;
    for (size_t o = 0; tensor->sample_bytes > 0 && o < outer; o++)
        for (size_t i = 0; i < n; i++)
            memcpy(moved + (i * outer + o) * inner, from + (o * n + i) * inner, inner);
    free(tensor->data);
    tensor->data = moved;
    tensor->capacity_bytes = tensor->sample_bytes;
    return ND_OK;
}

enum nd_status nd_layout_batch_axis(struct nd_imported_tensor *tensor, int axis,
                                    const struct nd_shape *expected, const char *where, struct nd_error *err)
{
    char found[128], wanted[128];
    struct nd_shape sample = tensor->shape;
    if (axis >= tensor->shape.rank)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name,
                       "%s states batch axis %d, but %s has shape %s: its axes are 0 to %d", where, axis,
                       tensor->where, nd_shape_format(&tensor->shape, found, sizeof found),
                       tensor->shape.rank - 1);
    sample.dims[axis] = 1;
    if (expected != NULL && !nd_shape_equal(&sample, expected)) { /* perhaps the model lacks the dimension */
        sample.rank--;
        for (int d = axis; d < sample.rank; d++)
            sample.dims[d] = tensor->shape.dims[d + 1];
        sample.dims[sample.rank] = 0;
        if (!nd_shape_equal(&sample, expected))
            return nd_fail(
                err, ND_E_IMPORT_MISMATCH, tensor->name,
                "%s has shape %s, with its samples along axis %d by %s; the model has samples of shape %s",
                tensor->where, nd_shape_format(&tensor->shape, found, sizeof found), axis, where,
                nd_shape_format(expected, wanted, sizeof wanted));
    }
    enum nd_status status = move_to_front(tensor, axis, err);
    size_t n = (size_t)tensor->shape.dims[axis];
    if (status != ND_OK)
        return status;
    part(tensor, sample, n);
    return ND_OK;
}

enum nd_status nd_layout_share_first(struct nd_imported_tensor *tensor, size_t n, const char *where,
                                     struct nd_error *err)
{
    char found[128];
    if (tensor->shape.rank == 0 || tensor->shape.dims[0] % (int64_t)n != 0)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name,
                       "%s says that the first dimension holds %zu samples, but %s has shape %s", where, n,
                       tensor->where, nd_shape_format(&tensor->shape, found, sizeof found));
    tensor->shape.dims[0] /= (int64_t)n;
    tensor->sample_bytes /= n;
    tensor->n_samples = n;
    tensor->is_array = false;
    return ND_OK;
}
