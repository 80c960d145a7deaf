/* Types and shapes from what is declared, then node by node. An operator that is not here leaves its outputs
 * unknown, which is told, never guessed. */
#include "model/graph/infer.h"

#include <math.h>
#include <string.h>

#include "core/text/strbuf.h"

/* One output of one node, and what is known so far. */
struct nd_infer_view {
    const struct nd_graph *graph;
    const Onnx__NodeProto *proto;
    const struct nd_tensor_info *infos; /* [graph->n_tensors] */
    size_t node;
    size_t output;
};

/* Shape of the output, rank -1 where it does not follow. Attributes and shapes may be anything at all. */
struct nd_infer_rule {
    const char *op; /* NULL ends a list; "Reduce*": all that begin so */
    struct nd_shape (*shape)(const struct nd_infer_view *view);
};

/* No dimension that follows from arguments is greater; sums and products of a few such do not overflow. */
#define ND_INFER_MAX_DIM (INT64_C(1) << 40)

/* The axis counted from the front; -1: there is none such, or the rank is not known. */
static inline int nd_infer_axis(int64_t axis, int rank)
{
    return axis < -rank || axis >= rank ? -1 : (int)(axis < 0 ? axis + rank : axis);
}

static const struct nd_tensor_info nd_infer_unknown = {.shape = {.rank = -1}};

/* Whether the node has an input i that is not left out. */
static bool nd_infer_has_arg(const struct nd_infer_view *view, size_t i)
{
    return i < view->proto->n_input && view->proto->input[i][0] != '\0';
}

/* ---- arguments that are constants: a few numbers each ---- */

/* NULL: input i is left out or no constant. What lies in a different file has neither raw data nor a list. */
static const Onnx__TensorProto *constant_of(const struct nd_infer_view *view, size_t i)
{
    const struct nd_graph_node *at = &view->graph->nodes[view->node];
    size_t tensor = i < at->n_inputs ? view->graph->uses[at->first_use + i] : ND_NO_INDEX;
    return tensor != ND_NO_INDEX ? nd_graph_constant(view->graph, tensor) : NULL;
}

/* Number of elements when n of them are there, or -1: too many, or none where there should be. */
static int count(const Onnx__TensorProto *data, size_t n, int capacity)
{
    bool is_empty = data->n_dims == 1 && data->dims[0] == 0;
    return n > (size_t)capacity || (n == 0 && !is_empty) ? -1 : (int)n;
}

/* The integers (int64, int32) or floats (float32) of input i, where it is a constant inside of the model file;
 * how many, or -1: no such constant, or more than capacity. */
static int nd_infer_integers(const struct nd_infer_view *view, size_t i, int64_t *values, int capacity)
{
    const Onnx__TensorProto *data = constant_of(view, i);
    if (data == NULL || (data->data_type != ND_DTYPE_I64 && data->data_type != ND_DTYPE_I32))
        return -1;
    bool is_wide = data->data_type == ND_DTYPE_I64;
    size_t n_listed = is_wide ? data->n_int64_data : data->n_int32_data;
    size_t size_bytes = is_wide ? sizeof(int64_t) : sizeof(int32_t);
    int n = count(data, data->has_raw_data ? data->raw_data.len / size_bytes : n_listed, capacity);
    for (int k = 0; k < n; k++) {
        int32_t narrow = 0;
        if (!data->has_raw_data)
            values[k] = is_wide ? data->int64_data[k] : data->int32_data[k];
        else
            memcpy(is_wide ? (void *)&values[k] : &narrow, data->raw_data.data + (size_t)k * size_bytes,
                   size_bytes);
        if (data->has_raw_data && !is_wide)
            values[k] = narrow;
    }
    return n;
}

static int nd_infer_floats(const struct nd_infer_view *view, size_t i, float *values, int capacity)
{
    const Onnx__TensorProto *data = constant_of(view, i);
    if (data == NULL || data->data_type != ND_DTYPE_F32)
        return -1;
    int n =
        count(data, data->has_raw_data ? data->raw_data.len / sizeof *values : data->n_float_data, capacity);
    if (n > 0)
        memcpy(values, data->has_raw_data ? (const void *)data->raw_data.data : data->float_data,
               (size_t)n * sizeof *values);
    return n;
}

/* The same of an argument that older operator sets have as attribute and newer ones as input i. 0 where it is
 * given in neither way. */
static int nd_infer_argument(const struct nd_infer_view *view, const char *attribute, size_t i, int64_t *values,
                             int capacity)
{
    const Onnx__AttributeProto *given = nd_onnx_attribute(view->proto, attribute);
    if (given == NULL)
        return nd_infer_has_arg(view, i) ? nd_infer_integers(view, i, values, capacity) : 0;
    if (given->n_ints > (size_t)capacity)
        return -1;
    if (given->n_ints > 0)
        memcpy(values, given->ints, given->n_ints * sizeof *values);
    return (int)given->n_ints;
}

/* ---- what is known, and what all rules share ---- */

const struct nd_tensor_info *nd_infer_input(const struct nd_graph *graph, size_t node, size_t i,
                                            const struct nd_tensor_info *infos)
{
    const struct nd_graph_node *at = &graph->nodes[node];
    size_t tensor = i < at->n_inputs ? graph->uses[at->first_use + i] : ND_NO_INDEX;
    return tensor != ND_NO_INDEX ? &infos[tensor] : &nd_infer_unknown;
}

const struct nd_tensor_info *nd_infer_output(const struct nd_graph *graph, size_t node, size_t i,
                                             const struct nd_tensor_info *infos)
{
    const struct nd_graph_node *at = &graph->nodes[node];
    size_t tensor = i < at->n_made ? graph->made[at->first_made + i] : ND_NO_INDEX;
    return tensor != ND_NO_INDEX ? &infos[tensor] : &nd_infer_unknown;
}

double nd_infer_elems(const struct nd_tensor_info *info)
{
    double n = info->shape.rank < 0 ? (double)NAN : 1;
    for (int i = 0; i < info->shape.rank; i++)
        n *= (double)info->shape.dims[i];
    return n;
}

double nd_infer_bytes(const struct nd_tensor_info *info)
{
    size_t n = nd_dtype_size_bytes(info->dtype);
    return n > 0 ? nd_infer_elems(info) * (double)n : (double)NAN;
}

/* ---- what is declared ---- */

static void read_initializer(const Onnx__TensorProto *tensor, struct nd_tensor_info *info)
{
    if (tensor->n_dims > ND_MAX_RANK)
        return;
    info->dtype = nd_onnx_dtype(tensor->data_type);
    info->shape.rank = (int)tensor->n_dims;
    for (size_t i = 0; i < tensor->n_dims; i++) {
        info->shape.dims[i] = tensor->dims[i];
        if (tensor->dims[i] < 0)
            info->shape.rank = -1;
    }
}

static void read_declaration(const Onnx__ValueInfoProto *value, struct nd_tensor_info *info)
{
    const Onnx__TypeProto__Tensor *type = nd_onnx_tensor_type(value);
    struct nd_shape shape;
    if (type == NULL || nd_onnx_shape(type, value->name, &shape, NULL) != ND_OK)
        return;
    info->dtype = type->has_elem_type ? nd_onnx_dtype(type->elem_type) : ND_DTYPE_NONE;
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0)
            return;
    info->shape = shape;
}

void nd_infer_declared(const struct nd_model *model, struct nd_tensor_info *infos)
{
    for (size_t t = 0; t < model->graph.n_tensors; t++) {
        const struct nd_graph_tensor *tensor = &model->graph.tensors[t];
        infos[t] = nd_infer_unknown;
        if (tensor->initializer != NULL)
            read_initializer(tensor->initializer, &infos[t]);
        else if (tensor->value_info != NULL)
            read_declaration(tensor->value_info, &infos[t]);
    }
}

/* ---- what rules share ---- */

/* nd_infer_input of the node. */
static const struct nd_tensor_info *nd_infer_arg(const struct nd_infer_view *view, size_t i)
{
    return nd_infer_input(view->graph, view->node, i, view->infos);
}

/* Numpy's rule; an operand that is not known makes the result so. */
static struct nd_shape nd_infer_broadcast(struct nd_shape a, const struct nd_shape *b)
{
    struct nd_shape out = {.rank = a.rank > b->rank ? a.rank : b->rank};
    if (a.rank < 0 || b->rank < 0)
        return nd_infer_unknown.shape;
    for (int i = 0; i < out.rank; i++) {
        int at_a = i - (out.rank - a.rank), at_b = i - (out.rank - b->rank);
        int64_t of_a = at_a < 0 ? 1 : a.dims[at_a], of_b = at_b < 0 ? 1 : b->dims[at_b];
        if (of_a != of_b && of_a != 1 && of_b != 1)
            return nd_infer_unknown.shape;
        out.dims[i] = of_a == 1 ? of_b : of_a;
    }
    return out;
}

/* Integer i of the attribute, or otherwise where there is none. */
static int64_t nd_infer_list_at(const Onnx__NodeProto *node, const char *name, size_t i, int64_t otherwise)
{
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(node, name);
    return attribute != NULL && i < attribute->n_ints ? attribute->ints[i] : otherwise;
}

/* ---- element by element ---- */

bool nd_infer_is_elementwise(const Onnx__NodeProto *node)
{
    static const char ops[] =
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
        "BiasGelu Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp FastGelu Floor Gelu Greater GreaterOrEqual "
        "HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or "
        "PRelu Pow QuickGelu Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt "
        "Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor QuantizeLinear DequantizeLinear ";
    return nd_has_word(ops, node->op_type);
}

static bool keeps_shape(const Onnx__NodeProto *node)
{
    static const char ops[] =
        "BatchNormalization Cast CastLike CumSum Dropout GroupNormalization Hardmax Identity "
        "InstanceNormalization LRN LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization "
        "RMSNormalization ReverseSequence ScatterElements ScatterND Softmax Trilu ";
    return nd_has_word(ops, node->op_type);
}

static struct nd_shape broadcast_inputs(const struct nd_infer_view *view)
{
    struct nd_shape shape = nd_infer_arg(view, 0)->shape;
    for (size_t i = 1; i < view->proto->n_input; i++)
        shape = nd_infer_broadcast(shape, &nd_infer_arg(view, i)->shape);
    return shape;
}

static bool is_shaped_by_first(const Onnx__NodeProto *node)
{
    return strcmp(node->op_type, "Clip") == 0 || strcmp(node->op_type, "QuantizeLinear") == 0 ||
           strcmp(node->op_type, "DequantizeLinear") == 0 || keeps_shape(node);
}

/* ---- which rule ---- */

static bool is_named(const char *op, const char *pattern)
{
    size_t n = strcspn(pattern, "*");
    return strncmp(op, pattern, n) == 0 && (pattern[n] == '*' || op[n] == '\0');
}

/* Shapes of what sums over windows, rows and letters. */

static bool is_padded_alike(const Onnx__NodeProto *node)
{
    const Onnx__AttributeProto *pad = nd_onnx_attribute(node, "auto_pad");
    return pad != NULL && pad->s.len >= 4 && memcmp(pad->s.data, "SAME", 4) == 0;
}

/* One spatial dimension of a convolution or pooling over n values, window k; -1 when it makes no sense. */
static int64_t window_size(const Onnx__NodeProto *node, size_t i, size_t n_spatial, int64_t n, int64_t k)
{
    int64_t stride = nd_infer_list_at(node, "strides", i, 1);
    int64_t dilation = nd_infer_list_at(node, "dilations", i, 1);
    int64_t before = nd_infer_list_at(node, "pads", i, 0);
    int64_t after = nd_infer_list_at(node, "pads", i + n_spatial, 0);
    const int64_t limit = ND_INFER_MAX_DIM;
    if (stride < 1 || dilation < 1 || k < 1 || n < 0 || n > limit || k > limit || dilation > limit ||
        stride > limit)
        return -1;
    if (is_padded_alike(node))
        return (n + stride - 1) / stride;
    if (before < 0 || after < 0 || before > limit || after > limit || k > limit / dilation)
        return -1;
    int64_t span = n + before + after - (dilation * (k - 1) + 1);
    if (span < 0)
        return -1;
    int64_t n_windows = span / stride + 1;
    bool is_ceil = nd_onnx_attribute_i(node, "ceil_mode", 0) != 0;
    /* One more over the rest, unless it would begin behind the values. */
    return n_windows + (is_ceil && span % stride != 0 && n_windows * stride < n + before);
}

/* One spatial dimension of a transposed convolution over n values; -1 when it makes no sense. */
static int64_t transposed_size(const Onnx__NodeProto *node, size_t i, size_t n_spatial, int64_t n, int64_t k)
{
    int64_t wanted = nd_infer_list_at(node, "output_shape", i, -1);
    int64_t stride = nd_infer_list_at(node, "strides", i, 1);
    int64_t dilation = nd_infer_list_at(node, "dilations", i, 1);
    int64_t before = nd_infer_list_at(node, "pads", i, 0);
    int64_t after = nd_infer_list_at(node, "pads", i + n_spatial, 0);
    int64_t extra = nd_infer_list_at(node, "output_padding", i, 0);
    const int64_t limit = INT64_C(1) << 30;
    if (n > limit || k > limit || stride > limit || stride < 1 || dilation < 1 || dilation > limit)
        return -1;
    if (wanted >= 0)
        return wanted;
    int64_t bare = stride * (n - 1) + dilation * (k - 1) + 1;
    if (is_padded_alike(node)) /* ONNX adds what is missing, ONNX Runtime does not */
        return bare >= stride * n ? stride * n : -1;
    if (before < -limit || before > limit || after < -limit || after > limit || extra < -limit || extra > limit)
        return -1;
    return bare + extra - before - after;
}

static struct nd_shape convolution(const struct nd_infer_view *view)
{
    const Onnx__NodeProto *node = view->proto;
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    const struct nd_shape *w = &nd_infer_arg(view, 1)->shape;
    if (out.rank < 3 || w->rank != out.rank)
        return nd_infer_unknown.shape;
    bool is_transposed = strcmp(node->op_type, "ConvTranspose") == 0;
    int64_t group = nd_onnx_attribute_i(node, "group", 1);
    if (is_transposed && (group < 1 || group > INT32_MAX || w->dims[1] > INT32_MAX))
        return nd_infer_unknown.shape;
    out.dims[1] = is_transposed ? w->dims[1] * group : w->dims[0];
    for (int i = 2; i < out.rank; i++) {
        size_t at = (size_t)i - 2, n_spatial = (size_t)out.rank - 2;
        out.dims[i] = is_transposed ? transposed_size(node, at, n_spatial, out.dims[i], w->dims[i])
                                    : window_size(node, at, n_spatial, out.dims[i], w->dims[i]);
        if (out.dims[i] < 0)
            return nd_infer_unknown.shape;
    }
    return out;
}

static struct nd_shape pooling(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    bool is_global = strncmp(view->proto->op_type, "Global", 6) == 0;
    for (int i = 2; i < out.rank; i++) {
        int64_t k = nd_infer_list_at(view->proto, "kernel_shape", (size_t)i - 2, -1);
        out.dims[i] =
            is_global ? 1 : window_size(view->proto, (size_t)i - 2, (size_t)out.rank - 2, out.dims[i], k);
        if (out.dims[i] < 0)
            return nd_infer_unknown.shape;
    }
    return out;
}

static struct nd_shape matmul(const struct nd_infer_view *view)
{
    struct nd_shape a = nd_infer_arg(view, 0)->shape, b = nd_infer_arg(view, 1)->shape;
    if (a.rank < 1 || b.rank < 1)
        return nd_infer_unknown.shape;
    bool is_row = a.rank == 1, is_column = b.rank == 1;
    int64_t m = is_row ? 1 : a.dims[a.rank - 2], n = is_column ? 1 : b.dims[b.rank - 1];
    a.rank = a.rank > 2 ? a.rank - 2 : 0;
    b.rank = b.rank > 2 ? b.rank - 2 : 0;
    struct nd_shape out = nd_infer_broadcast(a, &b);
    if (out.rank < 0 || out.rank + 2 > ND_MAX_RANK)
        return nd_infer_unknown.shape;
    if (!is_row)
        out.dims[out.rank++] = m;
    if (!is_column)
        out.dims[out.rank++] = n;
    return out;
}

static struct nd_shape gemm(const struct nd_infer_view *view)
{
    const struct nd_shape *a = &nd_infer_arg(view, 0)->shape, *b = &nd_infer_arg(view, 1)->shape;
    if (a->rank != 2 || b->rank != 2)
        return nd_infer_unknown.shape;
    return (struct nd_shape){2,
                             {a->dims[nd_onnx_attribute_i(view->proto, "transA", 0) != 0],
                              b->dims[nd_onnx_attribute_i(view->proto, "transB", 0) == 0]}};
}

bool nd_infer_einsum(const struct nd_graph *graph, size_t node, const struct nd_tensor_info *infos,
                     struct nd_einsum *out)
{
    const Onnx__AttributeProto *equation = nd_onnx_attribute(graph->nodes[node].proto, "equation");
    *out = (struct nd_einsum){0};
    if (equation == NULL)
        return false;
    size_t operand = 0, axis = 0, n_dims = 0;
    bool is_output = false;
    for (size_t i = 0; i < equation->s.len; i++) {
        char c = (char)equation->s.data[i];
        const struct nd_shape *shape = &nd_infer_input(graph, node, operand, infos)->shape;
        if (c == ' ')
            continue;
        if (c == '-' && !is_output && i + 1 < equation->s.len && equation->s.data[i + 1] == '>') {
            n_dims += shape->rank == (int)axis;
            is_output = true;
            i++;
        } else if (c == ',' && !is_output) {
            n_dims += shape->rank == (int)axis;
            operand++;
            axis = 0;
        } else if (((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) && is_output) {
            if (out->n_output == ND_MAX_RANK || out->size[(int)c] <= 0)
                return false;
            out->letters[out->n_output++] = c;
            out->in_output[(int)c] = true;
        } else if (((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) && (int)axis < shape->rank) {
            double n = (double)shape->dims[axis++];
            out->size[(int)c] = n > out->size[(int)c] ? n : out->size[(int)c];
        } else {
            return false;
        }
    }
    out->n_operands = operand + 1;
    out->output = out->letters;
    return is_output && n_dims == out->n_operands; /* every operand has as many letters as dimensions */
}

static struct nd_shape einsum(const struct nd_infer_view *view)
{
    struct nd_einsum sum;
    if (!nd_infer_einsum(view->graph, view->node, view->infos, &sum))
        return nd_infer_unknown.shape;
    struct nd_shape out = {.rank = (int)sum.n_output};
    for (size_t i = 0; i < sum.n_output; i++) {
        if (sum.size[(int)sum.letters[i]] > (double)ND_INFER_MAX_DIM)
            return nd_infer_unknown.shape;
        out.dims[i] = (int64_t)sum.size[(int)sum.letters[i]];
    }
    return out;
}

static const struct nd_infer_rule nd_infer_compute_rules[] = {
    {"AveragePool", pooling},
    {"Conv", convolution},
    {"ConvInteger", convolution},
    {"ConvTranspose", convolution},
    {"Einsum", einsum},
    {"Gemm", gemm},
    {"GlobalAveragePool", pooling},
    {"GlobalLpPool", pooling},
    {"GlobalMaxPool", pooling},
    {"LpPool", pooling},
    {"MatMul", matmul},
    {"MatMulInteger", matmul},
    {"MaxPool", pooling},
    {NULL, NULL},
};

/* Shapes of what joins, drops, adds and reorders axes. */

static struct nd_shape reshape(const struct nd_infer_view *view)
{
    const struct nd_tensor_info *in = nd_infer_arg(view, 0);
    struct nd_shape out = {0};
    out.rank = nd_infer_integers(view, 1, out.dims, ND_MAX_RANK);
    bool keeps_zero = nd_onnx_attribute_i(view->proto, "allowzero", 0) == 0;
    double known = 1;
    int open = -1;
    for (int i = 0; i < out.rank; i++) {
        if (out.dims[i] == 0 && keeps_zero)
            out.dims[i] = i < in->shape.rank ? in->shape.dims[i] : -2;
        if (out.dims[i] < -1 || (out.dims[i] == -1 && open >= 0))
            return nd_infer_unknown.shape;
        if (out.dims[i] == -1)
            open = i;
        else
            known *= (double)out.dims[i];
    }
    if (out.rank < 0 || open < 0)
        return out.rank < 0 ? nd_infer_unknown.shape : out;
    double n = nd_infer_elems(in);
    if (!(known > 0) || !(n >= 0) || fmod(n, known) != 0 || n > 1e15)
        return nd_infer_unknown.shape;
    out.dims[open] = (int64_t)(n / known);
    return out;
}

static struct nd_shape transpose(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    struct nd_shape out = *in;
    for (int i = 0; i < in->rank; i++) {
        int64_t from = nd_infer_list_at(view->proto, "perm", (size_t)i, in->rank - 1 - i);
        if (from < 0 || from >= in->rank)
            return nd_infer_unknown.shape;
        out.dims[i] = in->dims[from];
    }
    return out;
}

static struct nd_shape flatten(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    int64_t axis = nd_onnx_attribute_i(view->proto, "axis", 1);
    double sides[2] = {1, 1};
    if (in->rank < 0)
        return nd_infer_unknown.shape;
    axis += axis < 0 ? in->rank : 0;
    for (int i = 0; i < in->rank; i++)
        sides[i >= axis] *= (double)in->dims[i];
    if (sides[0] > 1e15 || sides[1] > 1e15)
        return nd_infer_unknown.shape;
    return (struct nd_shape){2, {(int64_t)sides[0], (int64_t)sides[1]}};
}

static struct nd_shape concat(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int axis = nd_infer_axis(nd_onnx_attribute_i(view->proto, "axis", 0), out.rank);
    if (axis < 0)
        return nd_infer_unknown.shape;
    for (size_t i = 1; i < view->proto->n_input; i++) {
        const struct nd_shape *next = &nd_infer_arg(view, i)->shape;
        if (next->rank != out.rank || next->dims[axis] > INT32_MAX || out.dims[axis] > INT32_MAX)
            return nd_infer_unknown.shape;
        out.dims[axis] += next->dims[axis];
    }
    return out;
}

/* The axes of a reduction, Squeeze or Unsqueeze over `rank` dimensions as bits; -1 when they are not known. */
static int axes_of(const struct nd_infer_view *view, int rank, bool *has_axes)
{
    int64_t axes[ND_MAX_RANK];
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(view->proto, "axes");
    int n = 0, bits = 0;
    if (attribute != NULL && attribute->n_ints <= ND_MAX_RANK) {
        n = (int)attribute->n_ints;
        memcpy(axes, attribute->ints, attribute->n_ints * sizeof *axes);
    } else if (view->proto->n_input > 1 && view->proto->input[1][0] != '\0') {
        n = nd_infer_integers(view, 1, axes, ND_MAX_RANK);
    }
    *has_axes = n > 0;
    for (int i = 0; i < n; i++) {
        int64_t axis = axes[i] + (axes[i] < 0 ? rank : 0);
        if (axis < 0 || axis >= rank)
            return -1;
        bits |= 1 << axis;
    }
    return n < 0 ? -1 : bits;
}

static struct nd_shape reduction(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    struct nd_shape out = {0};
    bool has_axes;
    int axes = axes_of(view, in->rank, &has_axes);
    if (in->rank < 0 || axes < 0)
        return nd_infer_unknown.shape;
    bool is_noop = nd_onnx_attribute_i(view->proto, "noop_with_empty_axes", 0) != 0;
    bool keeps = nd_onnx_attribute_i(view->proto, "keepdims", 1) != 0;
    for (int i = 0; i < in->rank; i++) {
        bool is_reduced = has_axes ? (axes >> i & 1) != 0 : !is_noop;
        if (!is_reduced)
            out.dims[out.rank++] = in->dims[i];
        else if (keeps)
            out.dims[out.rank++] = 1;
    }
    return out;
}

static struct nd_shape squeeze(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    struct nd_shape out = {0};
    bool has_axes;
    int axes = axes_of(view, in->rank, &has_axes);
    if (in->rank < 0 || axes < 0)
        return nd_infer_unknown.shape;
    for (int i = 0; i < in->rank; i++)
        if (has_axes ? (axes >> i & 1) == 0 : in->dims[i] != 1)
            out.dims[out.rank++] = in->dims[i];
    return out;
}

static struct nd_shape unsqueeze(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    int64_t axes[ND_MAX_RANK];
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(view->proto, "axes");
    int n = attribute != NULL ? (int)attribute->n_ints : nd_infer_integers(view, 1, axes, ND_MAX_RANK);
    bool has_axes;
    if (in->rank < 0 || n < 1 || in->rank + n > ND_MAX_RANK)
        return nd_infer_unknown.shape;
    struct nd_shape out = {.rank = in->rank + n};
    int bits = axes_of(view, out.rank, &has_axes);
    if (bits < 0)
        return nd_infer_unknown.shape;
    for (int i = 0, from = 0; i < out.rank; i++) {
        bool is_new = (bits >> i & 1) != 0 || from == in->rank;
        out.dims[i] = is_new ? 1 : in->dims[from++];
    }
    return out;
}

static struct nd_shape gather(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape, *indices = &nd_infer_arg(view, 1)->shape;
    int axis = nd_infer_axis(nd_onnx_attribute_i(view->proto, "axis", 0), in->rank);
    struct nd_shape out = {0};
    if (indices->rank < 0 || axis < 0 || in->rank - 1 + indices->rank > ND_MAX_RANK)
        return nd_infer_unknown.shape;
    for (int i = 0; i < in->rank; i++) {
        if (i != axis)
            out.dims[out.rank++] = in->dims[i];
        for (int k = 0; i == axis && k < indices->rank; k++)
            out.dims[out.rank++] = indices->dims[k];
    }
    return out;
}

static const struct nd_infer_rule nd_infer_axes_rules[] = {
    {"Concat", concat},       {"Flatten", flatten},     {"Gather", gather},
    {"Reduce*", reduction},   {"Reshape", reshape},     {"Squeeze", squeeze},
    {"Transpose", transpose}, {"Unsqueeze", unsqueeze}, {NULL, NULL},
};

/* Shapes of what cuts, pads and scales by constants. */

/* What arguments of one number per axis are for: axis[0 .. n). */
struct axes {
    int64_t axis[ND_MAX_RANK];
    int n;
};

/* n axes of `rank`: the constant ones of attribute or input, else the first n. False when they are not known,
 * not n, or not each another axis. */
static bool read_axes(const struct nd_infer_view *view, size_t input, int n, int rank, struct axes *axes)
{
    unsigned seen = 0;
    bool is_given = nd_onnx_attribute(view->proto, "axes") != NULL || nd_infer_has_arg(view, input);
    axes->n = is_given ? nd_infer_argument(view, "axes", input, axes->axis, ND_MAX_RANK) : n;
    if (axes->n != n || n < 0 || n > rank)
        return false;
    for (int i = 0; i < n; i++) {
        int axis = nd_infer_axis(is_given ? axes->axis[i] : i, rank);
        if (axis < 0 || (seen >> axis & 1) != 0)
            return false;
        seen |= 1u << axis;
        axes->axis[i] = axis;
    }
    return true;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* How many of n places lie in start:end:step, negative places counting from the end. step is not 0. */
static int64_t slice_size(int64_t n, int64_t start, int64_t end, int64_t step)
{
    bool is_back = step < 0;
    start = clamp(start + (start < 0 ? n : 0), 0, is_back ? n - 1 : n);
    end = clamp(end + (end < 0 ? n : 0), is_back ? -1 : 0, is_back ? n - 1 : n);
    int64_t span = is_back ? start - end : end - start;
    if (span <= 0 || n == 0)
        return 0;
    int64_t more = (span - 1) / step; /* -step may not exist, and this does */
    return 1 + (is_back ? -more : more);
}

static struct nd_shape slice(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int64_t starts[ND_MAX_RANK], ends[ND_MAX_RANK], steps[ND_MAX_RANK];
    struct axes axes;
    int n = nd_infer_argument(view, "starts", 1, starts, ND_MAX_RANK);
    if (out.rank < 0 || nd_infer_argument(view, "ends", 2, ends, ND_MAX_RANK) != n ||
        !read_axes(view, 3, n, out.rank, &axes))
        return nd_infer_unknown.shape;
    bool has_steps = nd_infer_has_arg(view, 4);
    if (has_steps && nd_infer_integers(view, 4, steps, ND_MAX_RANK) != n)
        return nd_infer_unknown.shape;
    for (int i = 0; i < n; i++) {
        int64_t step = has_steps ? steps[i] : 1, *dim = &out.dims[axes.axis[i]];
        /* An end that is the greatest number means the first place to ONNX Runtime when it goes backwards. */
        if (step == 0 || (step < 0 && (ends[i] == INT64_MAX || ends[i] == INT32_MAX)))
            return nd_infer_unknown.shape;
        *dim = slice_size(*dim, starts[i], ends[i], step);
    }
    return out;
}

/* Part i of n where no sizes are given: alike, or, where the model says how many, the last one smaller. -1 when
 * that does not come out. */
static int64_t even_part(const struct nd_infer_view *view, int64_t whole, int64_t n)
{
    const Onnx__AttributeProto *wanted = nd_onnx_attribute(view->proto, "num_outputs");
    int64_t part = whole / n + (whole % n != 0);
    if (wanted != NULL && wanted->i != n)
        return -1;
    if (whole % n == 0)
        return part;
    if (wanted == NULL || part > (whole - 1) / (n - 1)) /* (n - 1) parts leave nothing for the last */
        return -1;
    return (int64_t)view->output == n - 1 ? whole - part * (n - 1) : part;
}

static struct nd_shape split(const struct nd_infer_view *view)
{
    enum { MAX_PARTS = 256 };
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int64_t sizes[MAX_PARTS], sum = 0;
    int axis = nd_infer_axis(nd_onnx_attribute_i(view->proto, "axis", 0), out.rank);
    size_t n_parts = view->proto->n_output;
    if (axis < 0 || n_parts > MAX_PARTS)
        return nd_infer_unknown.shape;
    int64_t *dim = &out.dims[axis];
    int n = nd_infer_argument(view, "split", 1, sizes, MAX_PARTS);
    if (n == 0) {
        *dim = even_part(view, *dim, (int64_t)n_parts);
        return *dim < 0 ? nd_infer_unknown.shape : out;
    }
    if (n < 0 || (size_t)n != n_parts)
        return nd_infer_unknown.shape;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || sizes[i] > *dim - sum)
            return nd_infer_unknown.shape;
        sum += sizes[i];
    }
    if (sum != *dim)
        return nd_infer_unknown.shape;
    *dim = sizes[view->output];
    return out;
}

static struct nd_shape pad(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int64_t pads[2 * ND_MAX_RANK];
    struct axes axes;
    int n = nd_infer_argument(view, "pads", 1, pads, 2 * ND_MAX_RANK);
    bool has_axes = nd_infer_has_arg(view, 3);
    if (out.rank < 0 || n < 0 || n % 2 != 0 || (!has_axes && n != 2 * out.rank) ||
        !read_axes(view, 3, n / 2, out.rank, &axes))
        return nd_infer_unknown.shape;
    for (int i = 0; i < axes.n; i++) {
        int64_t before = pads[i], after = pads[i + axes.n], *dim = &out.dims[axes.axis[i]];
        const int64_t limit = ND_INFER_MAX_DIM;
        if (*dim > limit || before < -limit || before > limit || after < -limit || after > limit)
            return nd_infer_unknown.shape;
        *dim += before + after; /* below 0: it is cut off */
        if (*dim < 0)
            return nd_infer_unknown.shape;
    }
    return out;
}

static bool is_text(const struct nd_infer_view *view, const char *attribute, const char *text)
{
    const Onnx__AttributeProto *given = nd_onnx_attribute(view->proto, attribute);
    return given != NULL && given->s.len == strlen(text) && memcmp(given->s.data, text, given->s.len) == 0;
}

/* The product is a float's, as in ONNX Runtime: 10 by 0.7 is 7, though the float next to 0.7 is below it. */
static struct nd_shape resize_by_scales(const struct nd_infer_view *view, size_t input)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    float scales[ND_MAX_RANK];
    struct axes axes;
    int n = nd_infer_floats(view, input, scales, ND_MAX_RANK);
    bool is_whole = nd_onnx_attribute(view->proto, "axes") != NULL || n == out.rank;
    /* With a region of interest the size is a matter of which runtime is asked. */
    if (out.rank < 0 || !is_whole || !read_axes(view, SIZE_MAX, n, out.rank, &axes) ||
        is_text(view, "coordinate_transformation_mode", "tf_crop_and_resize"))
        return nd_infer_unknown.shape;
    for (int i = 0; i < n; i++) {
        int64_t *dim = &out.dims[axes.axis[i]];
        float size = scales[i] * (float)*dim;
        if (!(scales[i] > 0) || !(size <= (float)ND_INFER_MAX_DIM))
            return nd_infer_unknown.shape;
        *dim = (int64_t)floorf(size);
    }
    return out;
}

static struct nd_shape resize_to_sizes(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int64_t sizes[ND_MAX_RANK];
    struct axes axes;
    int n = nd_infer_integers(view, 3, sizes, ND_MAX_RANK);
    bool is_whole = nd_onnx_attribute(view->proto, "axes") != NULL || n == out.rank;
    bool is_stretched = nd_onnx_attribute(view->proto, "keep_aspect_ratio_policy") == NULL ||
                        is_text(view, "keep_aspect_ratio_policy", "stretch");
    if (out.rank < 0 || !is_whole || !is_stretched || !read_axes(view, SIZE_MAX, n, out.rank, &axes))
        return nd_infer_unknown.shape;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0)
            return nd_infer_unknown.shape;
        out.dims[axes.axis[i]] = sizes[i];
    }
    return out;
}

/* Inputs: x, scales (operator set 10); or x, region, scales, sizes, one of the last two left out or empty. */
static struct nd_shape resize(const struct nd_infer_view *view)
{
    float scale;
    size_t at = view->proto->n_input == 2 ? 1 : 2;
    bool is_empty = nd_infer_has_arg(view, at) && nd_infer_floats(view, at, &scale, 0) == 0;
    if (nd_infer_has_arg(view, at) && !is_empty)
        return nd_infer_has_arg(view, 3) ? nd_infer_unknown.shape : resize_by_scales(view, at);
    return resize_to_sizes(view);
}

static const struct nd_infer_rule nd_infer_size_rules[] = {
    {"Pad", pad}, {"Resize", resize}, {"Slice", slice}, {"Split", split}, {NULL, NULL},
};

/* ---- node by node ---- */

static struct nd_shape shape_of(const struct nd_infer_view *view)
{
    static const struct nd_infer_rule *const lists[] = {nd_infer_compute_rules, nd_infer_axes_rules,
                                                        nd_infer_size_rules};
    if (is_shaped_by_first(view->proto))
        return nd_infer_arg(view, 0)->shape;
    if (nd_infer_is_elementwise(view->proto))
        return broadcast_inputs(view);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct nd_infer_rule *rule = lists[i]; rule->op != NULL; rule++)
            if (is_named(view->proto->op_type, rule->op))
                return rule->shape(view);
    return nd_infer_unknown.shape;
}

static enum nd_dtype dtype_of(const struct nd_infer_view *view)
{
    static const char booleans[] = "Equal Greater GreaterOrEqual Less LessOrEqual IsInf IsNaN Not And Or Xor ";
    const char *op = view->proto->op_type;
    if (view->graph->nodes[view->node].kind == ND_NODE_QUANTIZE) {
        int64_t given = nd_onnx_attribute_i(view->proto, "output_dtype", 0);
        if (given != 0)
            return nd_onnx_dtype((int32_t)given);
        return view->proto->n_input > 2 ? nd_infer_arg(view, 2)->dtype : ND_DTYPE_U8;
    }
    if (view->graph->nodes[view->node].kind == ND_NODE_DEQUANTIZE || strcmp(op, "Where") == 0)
        return nd_infer_arg(view, 1)->dtype;
    if (strcmp(op, "Cast") == 0)
        return nd_onnx_dtype((int32_t)nd_onnx_attribute_i(view->proto, "to", 0));
    if (strcmp(op, "ConvInteger") == 0 || strcmp(op, "MatMulInteger") == 0)
        return ND_DTYPE_I32;
    return nd_has_word(booleans, op) ? ND_DTYPE_BOOL : nd_infer_arg(view, 0)->dtype;
}

/* Of a node with several outputs all are alike (Split), or nothing is known of those behind the first. */
static size_t n_inferred(const struct nd_graph_node *node)
{
    return strcmp(node->proto->op_type, "Split") == 0 || node->n_made == 0 ? node->n_made : 1;
}

static void infer_output(const struct nd_infer_view *view, struct nd_tensor_info *info)
{
    struct nd_shape shape = info->shape.rank < 0 ? shape_of(view) : info->shape;
    enum nd_dtype dtype = info->dtype == ND_DTYPE_NONE ? dtype_of(view) : info->dtype;
    if (strcmp(view->proto->op_type, "Shape") != 0)
        *info = (struct nd_tensor_info){dtype, shape};
}

void nd_infer_propagate(const struct nd_model *model, struct nd_tensor_info *infos)
{
    for (size_t n = 0; n < model->graph.n_nodes; n++) {
        const struct nd_graph_node *node = &model->graph.nodes[n];
        const char *domain = nd_onnx_domain(node->proto->domain);
        if (domain[0] != '\0' && strcmp(domain, "com.microsoft") != 0)
            continue;
        for (size_t i = 0; i < n_inferred(node); i++) {
            const struct nd_infer_view view = {&model->graph, node->proto, infos, n, i};
            size_t tensor = model->graph.made[node->first_made + i];
            if (tensor != ND_NO_INDEX)
                infer_output(&view, &infos[tensor]);
        }
    }
}
