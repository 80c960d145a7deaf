/* What is asked of a prepared graph: which nodes feed layers, the constants of a layer and what they were
 * before they were quantised, the input behind a quantiser, what the integer accumulator of a layer counts. */
#include <string.h>

#include "arithmetic/exact/graph_internal.h"
#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

bool nd_exact_feeds_layers(const struct nd_exact_graph *g, size_t node)
{
    const struct nd_graph *graph = &g->model->graph;
    const struct nd_graph_node *n = &graph->nodes[node];
    bool feeds = n->n_made > 0;
    for (size_t i = 0; i < n->n_made && feeds; i++) {
        size_t made = nd_graph_made(graph, node, i), tensor;
        if (made == ND_NO_INDEX)
            continue;
        const struct nd_graph_tensor *value = &graph->tensors[made];
        tensor = g->model->tensor_of_value[made];
        feeds = value->output == ND_NO_INDEX &&
                (tensor == ND_NO_INDEX || strcmp(g->model->tensors[tensor].onnx_name, value->name) != 0);
        for (size_t r = 0; r < value->n_readers && feeds; r++) {
            size_t reader = graph->readers[value->first_reader + r];
            feeds = graph->nodes[reader].kind == ND_NODE_QUANTIZE && g->layer_of_node[reader] == reader;
        }
    }
    return feeds;
}

/* ---- constants ---- */

/* The DequantizeLinear whose result the tensor is, where it reads constant quantised values; else ND_NO_INDEX.
 */
static size_t constant_dequantiser(const struct nd_exact_graph *g, size_t tensor)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t node = graph->tensors[tensor].producer;
    if (node == ND_NO_INDEX || graph->nodes[node].kind != ND_NODE_DEQUANTIZE || !graph->nodes[node].is_constant)
        return ND_NO_INDEX;
    size_t qvalues = nd_graph_used(graph, node, 0);
    return qvalues != ND_NO_INDEX && g->constants[qvalues].shape.rank >= 0 ? node : ND_NO_INDEX;
}

static bool is_op(const Onnx__NodeProto *node, const char *op_type)
{
    return strcmp(nd_onnx_text(node->op_type), op_type) == 0;
}

static int channel_axis(const Onnx__NodeProto *node, size_t input, int rank)
{
    if (input != 1 || rank < 2)
        return -1;
    if (is_op(node, "Conv"))
        return 0;
    if (is_op(node, "ConvTranspose"))
        return nd_onnx_attribute_i(node, "group", 1) == 1 ? 1 : -1;
    if (is_op(node, "Gemm"))
        return nd_onnx_attribute_i(node, "transB", 0) != 0 ? 0 : 1;
    return is_op(node, "MatMul") && rank == 2 ? 1 : -1;
}

static bool is_bias(const Onnx__NodeProto *node, size_t input)
{
    return input == 2 && (is_op(node, "Conv") || is_op(node, "ConvTranspose") || is_op(node, "Gemm"));
}

static bool describe(const struct nd_exact_graph *g, size_t node, size_t input, struct nd_exact_constant *out)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t tensor = nd_graph_used(graph, node, input);
    if (tensor == ND_NO_INDEX || g->constants[tensor].shape.rank < 0)
        return false;
    size_t dequantize = constant_dequantiser(g, tensor);
    *out = (struct nd_exact_constant){.tensor = tensor,
                                      .name = graph->tensors[tensor].name,
                                      .node = nd_graph_node_name(graph->nodes[node].proto),
                                      .op_type = nd_onnx_text(graph->nodes[node].proto->op_type),
                                      .input = input,
                                      .is_bias = is_bias(graph->nodes[node].proto, input),
                                      .real = &g->constants[tensor]};
    out->channel_axis = channel_axis(graph->nodes[node].proto, input, out->real->shape.rank);
    if (dequantize == ND_NO_INDEX || g->quants[dequantize].quant.n == 0)
        return true;
    out->qvalues = &g->constants[nd_graph_used(graph, dequantize, 0)];
    out->quant = &g->quants[dequantize].quant;
    out->dtype = out->qvalues->dtype;
    return true;
}

size_t nd_exact_layer_constants(const struct nd_exact_graph *g, size_t tensor, struct nd_exact_constant *out,
                                size_t capacity)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t made = nd_names_find(&graph->names, g->model->tensors[tensor].onnx_name), n_found = 0;
    size_t layer = made != ND_NO_INDEX ? graph->tensors[made].producer : ND_NO_INDEX;
    if (layer == ND_NO_INDEX || graph->nodes[layer].kind != ND_NODE_QUANTIZE)
        return 0;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        if (g->layer_of_node[n] != layer || graph->nodes[n].kind != ND_NODE_OTHER)
            continue;
        for (size_t i = 0; i < graph->nodes[n].n_inputs && n_found < capacity; i++)
            n_found += describe(g, n, i, &out[n_found]);
    }
    return n_found;
}

const struct nd_array *nd_exact_constant_values(const struct nd_exact_graph *g, size_t tensor)
{
    return tensor != ND_NO_INDEX && g->constants[tensor].shape.rank >= 0 ? &g->constants[tensor] : NULL;
}

/* The constant of the first n bytes of that name. */
static size_t named(const struct nd_exact_graph *g, const char *name, size_t n)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t t = 0; t < graph->n_tensors; t++)
        if (strncmp(graph->tensors[t].name, name, n) == 0 && graph->tensors[t].name[n] == '\0' &&
            nd_exact_constant_values(g, t) != NULL)
            return t;
    return ND_NO_INDEX;
}

/* The same input of the node of that name and operator. */
static size_t input_of_node(const struct nd_exact_graph *g, const struct nd_exact_constant *like)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const Onnx__NodeProto *node = graph->nodes[n].proto;
        if (strcmp(nd_graph_node_name(node), like->node) == 0 && is_op(node, like->op_type))
            return nd_graph_used(graph, n, like->input);
    }
    return ND_NO_INDEX;
}

static bool has_shape(const struct nd_exact_graph *g, size_t tensor, const struct nd_shape *shape)
{
    const struct nd_array *values = nd_exact_constant_values(g, tensor);
    return values != NULL && nd_shape_equal(&values->shape, shape);
}

size_t nd_exact_tensor_before(const struct nd_exact_graph *float_graph,
                              const struct nd_exact_constant *constant)
{
    /* As ONNX Runtime's quantiser and AIMET's export call what a DequantizeLinear makes. */
    static const char *const suffixes[] = {"_DequantizeLinear_Output", "_qdq", ""};
    size_t n = strlen(constant->name);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        size_t n_suffix = strlen(suffixes[i]);
        if (n <= n_suffix || strcmp(constant->name + n - n_suffix, suffixes[i]) != 0)
            continue;
        size_t found = named(float_graph, constant->name, n - n_suffix);
        if (has_shape(float_graph, found, &constant->real->shape))
            return found;
    }
    size_t same = input_of_node(float_graph, constant);
    return has_shape(float_graph, same, &constant->real->shape) ? same : ND_NO_INDEX;
}

const struct nd_array *nd_exact_constant_before(const struct nd_exact_graph *float_graph,
                                                const struct nd_exact_constant *constant)
{
    return nd_exact_constant_values(float_graph, nd_exact_tensor_before(float_graph, constant));
}

/* ---- inputs ---- */

static bool keeps_order(const struct nd_graph_node *node)
{
    return ND_IS_ONE_OF(node->proto->op_type, "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity") &&
           nd_onnx_domain(node->proto->domain)[0] == '\0';
}

size_t nd_exact_input_behind(const struct nd_exact_graph *g, size_t tensor)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t value = nd_names_find(&graph->names, g->model->tensors[tensor].onnx_name);
    size_t maker = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
    if (maker == ND_NO_INDEX || graph->nodes[maker].kind != ND_NODE_QUANTIZE)
        return SIZE_MAX;
    value = nd_graph_used(graph, maker, 0);
    maker = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
    while (maker != ND_NO_INDEX && graph->nodes[maker].kind == ND_NODE_OTHER &&
           keeps_order(&graph->nodes[maker])) {
        value = nd_graph_used(graph, maker, 0);
        maker = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
    }
    for (size_t i = 0; i < g->model->n_inputs && value != ND_NO_INDEX && maker == ND_NO_INDEX; i++)
        if (strcmp(g->model->inputs[i].name, graph->tensors[value].name) == 0)
            return i;
    return SIZE_MAX;
}

size_t nd_exact_layer_node(const struct nd_exact_graph *g, size_t tensor, size_t k, const void **proto)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t value = nd_names_find(&graph->names, g->model->tensors[tensor].onnx_name);
    size_t maker = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX, n = 0;
    while (maker != ND_NO_INDEX && n < graph->n_nodes &&
           (g->layer_of_node[n] != maker || graph->nodes[n].kind != ND_NODE_OTHER || k-- > 0))
        n++;
    *proto = maker != ND_NO_INDEX && n < graph->n_nodes ? graph->nodes[n].proto : NULL;
    return *proto != NULL ? n : ND_NO_INDEX;
}

/* ---- accumulators ---- */

/* The operator of the layer that makes the tensor, past Relu and Clip, or ND_NO_INDEX. */
static size_t find_operator(const struct nd_exact_graph *g, size_t tensor)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t value = nd_names_find(&graph->names, g->model->tensors[tensor].onnx_name);
    size_t node = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
    bool is_inside = node != ND_NO_INDEX && graph->nodes[node].kind == ND_NODE_QUANTIZE;
    while (is_inside) {
        value = nd_graph_used(graph, node, 0);
        node = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
        const char *op_type = node != ND_NO_INDEX ? nd_onnx_text(graph->nodes[node].proto->op_type) : "";
        is_inside = strcmp(op_type, "Relu") == 0 || strcmp(op_type, "Clip") == 0;
    }
    return node;
}

/* The scales of the DequantizeLinear that makes input i, or NULL. */
static const struct nd_quant *input_quant(const struct nd_exact_graph *g, size_t node, size_t i)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t tensor = nd_graph_used(graph, node, i);
    size_t producer = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
    if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE ||
        g->quants[producer].quant.n == 0)
        return NULL;
    return &g->quants[producer].quant;
}

/* Sums times alpha are no accumulator. */
static bool is_plain_product(const Onnx__NodeProto *node)
{
    const char *op_type = nd_onnx_text(node->op_type);
    if (strcmp(op_type, "Gemm") != 0)
        return strcmp(op_type, "Conv") == 0 || strcmp(op_type, "MatMul") == 0;
    const Onnx__AttributeProto *alpha = nd_onnx_attribute(node, "alpha");
    const Onnx__AttributeProto *beta = nd_onnx_attribute(node, "beta");
    return (alpha == NULL || alpha->f == 1) && (beta == NULL || beta->f == 1);
}

enum nd_status nd_exact_accumulator_steps(const struct nd_exact_graph *g, size_t tensor, struct nd_wide **out,
                                          size_t *n, struct nd_error *err)
{
    const char *name = g->model->tensors[tensor].name;
    size_t node = find_operator(g, tensor);
    const struct nd_quant *left = NULL, *right = NULL;
    if (node != ND_NO_INDEX && is_plain_product(g->model->graph.nodes[node].proto)) {
        left = input_quant(g, node, 0);
        right = input_quant(g, node, 1);
    }
    if (left == NULL || right == NULL || left->n != 1)
        return nd_fail(
            err, ND_E_EXACT_OPERATOR, name,
            "the layer of '%s' is no Conv, Gemm or MatMul of quantised values: it has no integer accumulator",
            name);
    struct nd_wide *steps = nd_calloc(right->n, sizeof *steps);
    ND_TRY_MEMORY(steps != NULL, err);
    for (size_t i = 0; i < right->n; i++)
        steps[i] = nd_wide_product((double)left->scale[0], (double)right->scale[i]);
    *out = steps;
    *n = right->n;
    return ND_OK;
}
