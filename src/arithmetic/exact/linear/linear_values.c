/* What a linear layer reads and gives: its inputs as whole and as real numbers, and results to be filled.
 * linear_values.h says which numbers are exact. */
#include "arithmetic/exact/linear/linear_values.h"

#include <math.h>
#include <stdlib.h>

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"
#include "model/graph/graph.h"

/* Of quantised values that a float32 scale can be multiplied with in a double: 53 - 24 bits. */
static const double largest_qvalue = 0x1p29;

static const char broken_text[] = "an input that is neither quantised values nor whole numbers",
                  large_text[] = "quantised values of more than 29 bits";

enum nd_status nd_linear_unsupported(const struct nd_linear_call *call, struct nd_error *err, const char *text)
{
    const char *name = call->node != NULL ? nd_graph_node_name(call->node) : "";
    const char *op_type = call->node != NULL ? nd_onnx_text(call->node->op_type) : "requantise";
    return nd_fail(err, ND_E_EXACT_OPERATOR, name, "node '%s' (%s): %s", name, op_type, text);
}

bool nd_linear_has(const struct nd_linear_call *call, size_t i)
{
    return i < call->n_inputs && call->inputs[i].values != NULL;
}

size_t nd_linear_n_scales(const struct nd_linear_input *input)
{
    return input->quant != NULL ? input->quant->n : 1;
}

double nd_linear_scale(const struct nd_linear_input *input, size_t channel)
{
    if (input->quant == NULL)
        return 1;
    return (double)input->quant->scale[input->quant->n == 1 ? 0 : channel];
}

enum nd_status nd_linear_layout(const struct nd_quant *quant, const struct nd_shape *shape, int *axis,
                                size_t *n_inner, struct nd_error *err)
{
    *axis = -1;
    *n_inner = nd_dims_product(shape, 0, shape->rank);
    if (quant == NULL || quant->n == 1)
        return ND_OK;
    int counted = quant->axis < 0 ? quant->axis + shape->rank : quant->axis;
    if (counted < 0 || counted >= shape->rank || (size_t)shape->dims[counted] != quant->n) {
        char text[128];
        return nd_fail(err, ND_E_EXACT_SHAPE, NULL, "%zu scales along axis %d do not fit a tensor of %s",
                       quant->n, quant->axis, nd_shape_format(shape, text, sizeof text));
    }
    *axis = counted;
    *n_inner = nd_dims_product(shape, counted + 1, shape->rank);
    return ND_OK;
}

/* out = values - zero point. */
static enum nd_status take_zeros(const struct nd_linear_input *input, struct nd_array *out,
                                 struct nd_error *err)
{
    const struct nd_array *values = input->values;
    int axis;
    size_t n_inner;
    ND_TRY(nd_linear_layout(input->quant, &values->shape, &axis, &n_inner, err));
    ND_TRY(nd_array_make_room(out, ND_DTYPE_F32, &values->shape, err));
    size_t n_scales = nd_linear_n_scales(input), channel = 0;
    for (size_t start = 0; start < values->n; start += n_inner, channel = (channel + 1) % n_scales) {
        double zero = (double)input->quant->zero_point[channel];
        for (size_t i = start; i < start + n_inner; i++)
            out->x[i] = values->x[i] - zero;
    }
    return ND_OK;
}

static double largest_of(const struct nd_array *array)
{
    double largest = 0;
    for (size_t i = 0; i < array->n; i++)
        largest = fabs(array->x[i]) > largest ? fabs(array->x[i]) : largest;
    return largest;
}

static bool is_whole(const struct nd_array *array)
{
    const double shift = 0x1.8p52;
    uint64_t n_broken = 0;
    for (size_t i = 0; i < array->n; i++) { /* larger ones have no room for a fraction; NaN is broken, too */
        double x = array->x[i];
        n_broken += !((x + shift) - shift == x) & !(fabs(x) >= 0x1p51);
    }
    return n_broken == 0;
}

enum nd_status nd_linear_packed_weights(const struct nd_linear_call *call, size_t i, struct nd_array *out,
                                        double *largest, struct nd_error *err)
{
    const struct nd_linear_input *input = &call->inputs[i];
    if (input->quant != NULL && input->quant->n == 1) {
        enum nd_status made = nd_array_make_room(out, ND_DTYPE_F32, &input->values->shape, err);
        if (made != ND_OK)
            return made;
        return nd_gemm_kernels()->take_zero(input->values->x, out->n, (double)input->quant->zero_point[0],
                                            out->x, largest)
                   ? ND_OK
                   : nd_linear_unsupported(call, err, broken_text);
    }
    ND_TRY(input->quant != NULL ? take_zeros(input, out, err) : nd_array_copy(input->values, out, err));
    if (!is_whole(out))
        return nd_linear_unsupported(call, err, broken_text);
    out->dtype = ND_DTYPE_F32; /* operators make integers of integers wrap around */
    *largest = largest_of(out);
    return ND_OK;
}

enum nd_status nd_linear_borrow_packed_weights(const struct nd_linear_call *call, size_t i,
                                               struct nd_array *own, const struct nd_array **out,
                                               double *largest, struct nd_error *err)
{
    struct nd_linear_shared *shared = i == 0 ? call->shared : NULL;
    if (call->inputs[i].packed_weights != NULL) {
        *out = call->inputs[i].packed_weights;
        *largest = call->inputs[i].largest;
        return ND_OK;
    }
    if (shared != NULL && shared->x.n > 0) {
        *out = &shared->x;
        *largest = shared->largest;
        return ND_OK;
    }
    ND_TRY(nd_linear_packed_weights(call, i, own, largest, err));
    *out = own;
    if (shared != NULL) {
        shared->x = *own;
        shared->largest = *largest;
        *own = (struct nd_array){0};
        *out = &shared->x;
    }
    return ND_OK;
}

/* One output of the operator, whatever else it makes. */
static enum nd_status run(const struct nd_linear_call *call, struct nd_op_call *op_call, struct nd_array *out,
                          struct nd_error *err)
{
    enum { MAX_OUTPUTS = 64 };
    const Onnx__NodeProto *node = op_call->node;
    ND_CLEANUP(nd_array_deinit) struct nd_array first = {0}; /* is always made */
    struct nd_array *outputs[MAX_OUTPUTS] = {&first};
    if (call->output >= node->n_output || node->n_output > MAX_OUTPUTS)
        return nd_linear_unsupported(call, err, "too many outputs");
    outputs[call->output] = out;
    op_call->n_outputs = node->n_output;
    op_call->outputs = outputs;
    return nd_op_run(op_call, err);
}

enum nd_status nd_linear_add_up(const struct nd_linear_call *call, const Onnx__NodeProto *node,
                                const struct nd_array *const operands[2], struct nd_array *own,
                                const struct nd_array **out, struct nd_error *err)
{
    struct nd_linear_shared *shared = call->shared;
    const struct nd_linear_input *weights = &call->inputs[1];
    bool is_as_prepared = weights->packed_weights != NULL && operands[1]->x == weights->packed_weights->x;
    bool is_shared = is_as_prepared && shared != NULL && operands[0] == &shared->x;
    bool is_short = is_as_prepared && weights->shorts != NULL;
    struct nd_array *made = is_shared ? &shared->sums : own;
    const struct nd_op_shorts shorts = {.weights = weights->shorts,
                                        .largest = weights->largest,
                                        .left_largest = is_shared ? shared->largest : 0};
    *out = made;
    if (is_shared && made->n > 0)
        return ND_OK;
    struct nd_op_call op_call = {.node = node,
                                 .opset = call->opset,
                                 .n_inputs = 2,
                                 .inputs = operands,
                                 .shorts = is_short ? &shorts : NULL};
    return run(call, &op_call, made, err);
}

/* With one scale and zero point, in one go. */
static enum nd_status take_scaled(const struct nd_linear_call *call, size_t i, struct nd_array *out,
                                  struct nd_error *err)
{
    const struct nd_linear_input *input = &call->inputs[i];
    const struct nd_scaled_qvalues qvalues = {input->values->x, (double)input->quant->zero_point[0],
                                              nd_linear_scale(input, 0)};
    double largest;
    ND_TRY(nd_array_make_room(out, ND_DTYPE_F32, &input->values->shape, err));
    if (!nd_gemm_kernels()->take_scaled(&qvalues, out->n, out->x, &largest))
        return nd_linear_unsupported(call, err, broken_text);
    return largest > largest_qvalue ? nd_linear_unsupported(call, err, large_text) : ND_OK;
}

enum nd_status nd_linear_reals(const struct nd_linear_call *call, size_t i, struct nd_array *out,
                               struct nd_error *err)
{
    const struct nd_linear_input *input = &call->inputs[i];
    if (input->quant == NULL)
        return nd_array_copy(input->values, out, err);
    double largest = 0;
    int axis;
    size_t n_inner, channel = 0;
    if (input->quant->n == 1)
        return take_scaled(call, i, out, err);
    ND_TRY(nd_linear_packed_weights(call, i, out, &largest, err));
    ND_TRY(nd_linear_layout(input->quant, &out->shape, &axis, &n_inner, err));
    if (largest > largest_qvalue)
        return nd_linear_unsupported(call, err, large_text);
    for (size_t start = 0; start < out->n; start += n_inner, channel = (channel + 1) % input->quant->n)
        nd_gemm_kernels()->scale(out->x + start, n_inner, nd_linear_scale(input, channel));
    return ND_OK;
}

enum nd_status nd_linear_run(const struct nd_linear_call *call, const Onnx__NodeProto *node,
                             const struct nd_array *const *inputs, size_t n_inputs, struct nd_array *out,
                             struct nd_error *err)
{
    struct nd_op_call op_call = {.node = node, .opset = call->opset, .n_inputs = n_inputs, .inputs = inputs};
    return run(call, &op_call, out, err);
}

/* ---- results ---- */

enum nd_status nd_linear_make(struct nd_linear_result *result, const struct nd_shape *shape,
                              struct nd_error *err)
{
    size_t n;
    ND_TRY(nd_shape_n_elems(shape, &n, err));
    struct nd_ratio *v = nd_calloc(n, sizeof *v);
    ND_TRY_MEMORY(v != NULL, err);
    for (size_t i = 0; i < n; i++)
        v[i].denominator.parts[0] = 1;
    *result = (struct nd_linear_result){.shape = *shape, .n = n, .v = v};
    return ND_OK;
}

enum nd_status nd_linear_make_quick(struct nd_linear_result *result, const struct nd_shape *shape,
                                    enum nd_quick_kind kind, struct nd_error *err)
{
    size_t n;
    ND_TRY(nd_shape_n_elems(shape, &n, err));
    struct nd_quick *quick = nd_calloc(1, sizeof *quick);
    ND_TRY_MEMORY(quick != NULL, err);
    *quick = (struct nd_quick){.kind = kind,
                               .n = n,
                               .n_inner = n > 0 ? n : 1,
                               .sign = 1,
                               .divisor = 1,
                               .low = -HUGE_VAL,
                               .high = HUGE_VAL};
    *result = (struct nd_linear_result){.shape = *shape, .n = n, .quick = quick};
    return ND_OK;
}

void nd_linear_shared_deinit(struct nd_linear_shared *shared)
{
    nd_array_deinit(&shared->x);
    nd_array_deinit(&shared->sums);
}

void nd_linear_deinit(struct nd_linear_result *result)
{
    if (result->quick != NULL)
        nd_quick_deinit(result->quick);
    free(result->quick);
    free(result->v);
    *result = (struct nd_linear_result){0};
}
