#include "import/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

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
    if (n > 0)
        tensor->sample_bytes /= n;
    tensor->shape = sample;
    tensor->n_samples = n;
    tensor->is_array = false;
    return ND_OK;
}
