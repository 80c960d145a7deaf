/* Shapes of what sums over windows, rows and letters. */
#include <string.h>

#include "model/graph/infer_rules.h"

static bool is_padded_alike(const Onnx__NodeProto *node)
{
    const Onnx__AttributeProto *pad = nd_onnx_attribute(node, "auto_pad");
    return pad != NULL && pad->s.len >= 4 && memcmp(pad->s.data, "SAME", 4) == 0;
}

/* One spatial dimension of a convolution or pooling over n values with a window of k; -1 when it makes no
 * sense. */
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

const struct nd_infer_rule nd_infer_compute_rules[] = {
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
