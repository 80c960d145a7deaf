/* Strides: a depthwise Conv of its own kind; and ConvTranspose: the device makes a Conv of each phase, that is,
 * of the outputs that are the same distance behind a whole number of strides.
 * docs/science/htp-arithmetic.md#convtranspose. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

static int64_t number_at(const struct nd_op_call *call, const char *name, size_t i, int64_t otherwise)
{
    const int64_t *values;
    size_t n = nd_op_ints(call, name, &values);
    return i < n ? values[i] : otherwise;
}

struct nd_htp_phases nd_htp_phases_of(const struct nd_htp_job *job)
{
    const struct nd_op_call call = {.node = job->call->node, .opset = job->call->opset};
    struct nd_htp_phases phases = {.stride = {1, 1}};
    if (!nd_htp_is_transposed(job))
        return phases;
    for (size_t i = 0; i < 2; i++) {
        phases.stride[i] = (size_t)number_at(&call, "strides", i, 1);
        phases.padding[i] = (size_t)number_at(&call, "pads", i, 0);
    }
    return phases;
}

bool nd_htp_is_strided_depthwise(const struct nd_exact_layer *layer)
{
    enum { STRIDE = 2, MIN_KERNEL = 3 };
    const struct nd_op_call call = {.node = layer->call->node, .opset = layer->call->opset};
    if (layer->dtype != ND_DTYPE_U8 || call.node == NULL || layer->call->n_inputs < 2 ||
        strcmp(nd_onnx_text(call.node->op_type), "Conv") != 0 || layer->call->inputs[1].values == NULL)
        return false;
    const struct nd_shape *w = &layer->call->inputs[1].values->shape;
    if (w->rank != 4 || w->dims[0] < 2 || w->dims[1] != 1 || nd_op_i(&call, "group", 1) != w->dims[0])
        return false;
    for (size_t i = 0; i < 2; i++)
        if (number_at(&call, "strides", i, 1) != STRIDE || w->dims[2 + i] < MIN_KERNEL)
            return false;
    return true;
}

/* Whether it says itself which padding it has. */
static bool is_padded_by_shape(const struct nd_op_call *call)
{
    char text[16];
    const int64_t *values;
    nd_op_text(call, "auto_pad", text, sizeof text);
    return (text[0] != '\0' && strcmp(text, "NOTSET") != 0) || nd_op_ints(call, "output_shape", &values) > 0;
}

/* That was held against the device: a row or column beyond what windows reach, by two places. */
static int64_t greatest_output_padding(int64_t stride)
{
    return stride == 2;
}

bool nd_htp_is_known_transposed(const struct nd_htp_job *job)
{
    const struct nd_op_call call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *w = &job->call->inputs[1].values->shape;
    if (w->rank != 4 || job->layer->origins[1] != ND_EXACT_FROM_CONSTANT || nd_op_i(&call, "group", 1) != 1 ||
        is_padded_by_shape(&call))
        return false;
    for (size_t i = 0; i < 2; i++) {
        int64_t stride = number_at(&call, "strides", i, 1);
        if (stride < 1 || stride > w->dims[2 + i] || number_at(&call, "dilations", i, 1) != 1 ||
            number_at(&call, "pads", i, 0) < 0 ||
            number_at(&call, "output_padding", i, 0) > greatest_output_padding(stride))
            return false;
    }
    return true;
}

size_t nd_htp_phase(const struct nd_htp_phases *phases, size_t row, size_t column)
{
    return (row + phases->padding[0]) % phases->stride[0] * phases->stride[1] +
           (column + phases->padding[1]) % phases->stride[1];
}

enum nd_status nd_htp_find_places(struct nd_htp_weights *weights, const struct nd_htp_job *job,
                                  struct nd_error *err)
{
    struct nd_htp_phases phases = nd_htp_phases_of(job);
    phases.padding[0] = phases.padding[1] = 0;      /* the place in the kernel decides */
    const int64_t *dims = weights->view.shape.dims; /* inputs, outputs, height, width */
    size_t n = weights->view.n, n_kernel = (size_t)(dims[2] * dims[3]), width = (size_t)dims[3];
    weights->n_phases = phases.stride[0] * phases.stride[1];
    weights->n_columns = (size_t)dims[1] * weights->n_phases;
    weights->places = nd_calloc(n + 1, sizeof *weights->places);
    weights->starts = nd_calloc(weights->n_columns + 2, sizeof *weights->starts);
    if (weights->places == NULL || weights->starts == NULL)
        return nd_fail_memory(err);
    size_t *next = weights->starts + 1; /* of each column; becomes its end */
    for (int is_filling = 0; is_filling < 2; is_filling++) {
        for (size_t i = 0; i < n; i++) {
            size_t at = i % n_kernel, phase = nd_htp_phase(&phases, at / width, at % width);
            size_t column = i / n_kernel % (size_t)dims[1] * weights->n_phases + phase;
            if (is_filling)
                weights->places[next[column]++] = i;
            else
                next[column + 1]++;
        }
        for (size_t c = 0; c < weights->n_columns && !is_filling; c++)
            next[c + 1] += next[c];
    }
    return ND_OK;
}
