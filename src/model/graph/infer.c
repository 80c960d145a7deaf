/* Types and shapes from what is declared, then node by node. An operator that is not here leaves its outputs
 * unknown, which is told, never guessed. */
#include "model/graph/infer.h"

#include <math.h>
#include <string.h>

#include "model/graph/infer_rules.h"

const struct nd_tensor_info nd_infer_unknown = {.shape = {.rank = -1}};

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

const struct nd_tensor_info *nd_infer_arg(const struct nd_infer_view *view, size_t i)
{
    return nd_infer_input(view->graph, view->node, i, view->infos);
}

bool nd_infer_has_arg(const struct nd_infer_view *view, size_t i)
{
    return i < view->proto->n_input && view->proto->input[i][0] != '\0';
}

struct nd_shape nd_infer_broadcast(struct nd_shape a, const struct nd_shape *b)
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

int64_t nd_infer_list_at(const Onnx__NodeProto *node, const char *name, size_t i, int64_t otherwise)
{
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(node, name);
    return attribute != NULL && i < attribute->n_ints ? attribute->ints[i] : otherwise;
}

/* ---- element by element ---- */

/* Whether op is one of words, each of which is followed by a space. */
static bool is_one_of(const char *op, const char *words)
{
    size_t n = strlen(op);
    for (const char *at = words; *at != '\0'; at += strcspn(at, " ") + 1)
        if (strcspn(at, " ") == n && memcmp(at, op, n) == 0)
            return true;
    return false;
}

bool nd_infer_is_elementwise(const Onnx__NodeProto *node)
{
    static const char ops[] =
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
        "BitwiseXor BiasGelu Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp FastGelu Floor Gelu Greater "
        "GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min "
        "Mish Mod Mul Neg Not Or PRelu Pow QuickGelu Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin "
        "Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor QuantizeLinear "
        "DequantizeLinear ";
    return is_one_of(node->op_type, ops);
}

static bool keeps_shape(const Onnx__NodeProto *node)
{
    static const char ops[] =
        "BatchNormalization Cast CastLike CumSum Dropout GroupNormalization Hardmax Identity "
        "InstanceNormalization LRN LayerNormalization LogSoftmax LpNormalization "
        "MeanVarianceNormalization RMSNormalization ReverseSequence ScatterElements ScatterND Softmax "
        "Trilu ";
    return is_one_of(node->op_type, ops);
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
    return is_one_of(op, booleans) ? ND_DTYPE_BOOL : nd_infer_arg(view, 0)->dtype;
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
