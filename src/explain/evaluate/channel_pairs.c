/* Pairs of layers whose weights can be scaled against each other, channel by channel. docs/science/theory.md.
 */
#include "explain/evaluate/channel_pairs.h"

#include <math.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"

/* ---- graphs ---- */

static size_t used(const struct nd_graph *graph, size_t node, size_t i)
{
    return i < graph->nodes[node].n_inputs ? graph->uses[graph->nodes[node].first_use + i] : ND_NO_INDEX;
}

/* The tensor that the node makes, if it is one. */
static size_t made(const struct nd_graph *graph, size_t node)
{
    return graph->nodes[node].n_made == 1 ? graph->made[graph->nodes[node].first_made] : ND_NO_INDEX;
}

/* The node that alone reads the tensor; ND_NO_INDEX where others do, or it is an output of the model. */
static size_t only_reader(const struct nd_graph *graph, size_t tensor)
{
    bool is_alone = tensor != ND_NO_INDEX && graph->tensors[tensor].n_readers == 1 &&
                    graph->tensors[tensor].output == ND_NO_INDEX;
    return is_alone ? graph->readers[graph->tensors[tensor].first_reader] : ND_NO_INDEX;
}

static bool is_any_of(const struct nd_graph_node *node, const char *const *names)
{
    bool is_onnx = nd_onnx_domain(node->proto->domain)[0] == '\0';
    return is_onnx && nd_is_one_of(node->proto->op_type, names);
}

static bool is_op(const struct nd_graph_node *node, const char *name)
{
    return is_any_of(node, (const char *const[]){name, NULL});
}

static bool has_products(const struct nd_graph_node *node)
{
    return is_any_of(node, (const char *const[]){"Conv", "ConvTranspose", "Gemm", NULL});
}

/* ---- layers ---- */

static bool find_axes(const struct nd_graph_node *node, const struct nd_shape *shape,
                      struct nd_weight_axes *axes)
{
    if (shape->rank < 2)
        return false;
    bool is_gemm = is_op(node, "Gemm"), is_transposed = nd_onnx_attribute_i(node->proto, "transB", 0) != 0;
    int64_t groups = is_gemm ? 1 : nd_onnx_attribute_i(node->proto, "group", 1);
    *axes = (struct nd_weight_axes){.n0 = (size_t)shape->dims[0],
                                    .n1 = (size_t)shape->dims[1],
                                    .inner = nd_dims_product(shape, 2, shape->rank),
                                    .groups = groups > 0 ? (size_t)groups : 1,
                                    .is_first_out = is_gemm ? is_transposed : is_op(node, "Conv")};
    return axes->n0 % axes->groups == 0 && axes->n0 * axes->n1 * axes->inner > 0;
}

static bool has_scales(const struct nd_exact_constant *constant, enum nd_pair_scales scales)
{
    return constant->quant != NULL && (scales == ND_PAIR_ANY_SCALES ||
                                       (constant->quant->n == 1 && nd_dtype_size_bytes(constant->dtype) == 1));
}

/* No DequantizeLinear makes it, and nobody else reads it. */
static bool is_free(const struct nd_graph *graph, size_t tensor)
{
    size_t producer = graph->tensors[tensor].producer;
    return only_reader(graph, tensor) != ND_NO_INDEX &&
           (producer == ND_NO_INDEX || graph->nodes[producer].kind == ND_NODE_OTHER);
}

/* The same constants of the float model. */
static bool find_before(const struct nd_plan *plan, struct nd_pair_layer *layer)
{
    const struct nd_graph *graph = &plan->model->graph, *floats = &plan->float_model->graph;
    layer->float_weights = nd_exact_tensor_before(plan->float_graph, &layer->weights);
    layer->before = nd_exact_constant_values(plan->float_graph, layer->float_weights);
    layer->float_node = layer->before != NULL ? only_reader(floats, layer->float_weights) : ND_NO_INDEX;
    if (layer->float_node == ND_NO_INDEX || !has_products(&floats->nodes[layer->float_node]) ||
        nd_onnx_attribute_i(graph->nodes[layer->node].proto, "transA", 0) != 0)
        return false;
    layer->float_bias = used(floats, layer->float_node, 2);
    size_t same = layer->has_bias ? nd_exact_tensor_before(plan->float_graph, &layer->bias) : ND_NO_INDEX;
    layer->is_free = is_free(floats, layer->float_weights) && layer->float_bias == same &&
                     (same == ND_NO_INDEX || is_free(floats, same));
    return true;
}

/* Whether the step makes products of weights that can be scaled. */
static bool find_layer(const struct nd_plan *plan, size_t step, enum nd_pair_scales scales,
                       struct nd_pair_layer *layer)
{
    enum { MAX_CONSTANTS = 8 }; /* of one layer, looked at */
    const struct nd_graph *graph = &plan->model->graph;
    struct nd_exact_constant all[MAX_CONSTANTS];
    size_t n = nd_exact_layer_constants(plan->graph, plan->steps[step].tensor, all, MAX_CONSTANTS),
           n_weights = 0;
    *layer = (struct nd_pair_layer){.step = step};
    for (size_t i = 0; i < n; i++) {
        size_t node = only_reader(graph, all[i].tensor);
        if (all[i].is_bias) {
            layer->bias = all[i];
            layer->has_bias = true;
        } else if (node != ND_NO_INDEX && has_products(&graph->nodes[node]) && all[i].input == 1) {
            layer->weights = all[i];
            layer->node = node;
            n_weights++;
        }
    }
    if (n_weights != 1 || !has_scales(&layer->weights, scales) ||
        !find_axes(&graph->nodes[layer->node], &layer->weights.real->shape, &layer->axes))
        return false;
    /* A factor of an output channel is also one of its bias. */
    size_t bias = used(graph, layer->node, 2);
    if (layer->has_bias ? bias != layer->bias.tensor || only_reader(graph, bias) == ND_NO_INDEX ||
                              layer->bias.real->n != nd_weight_channels(&layer->axes, true)
                        : bias != ND_NO_INDEX)
        return false;
    return find_before(plan, layer);
}

/* ---- from a layer to the next ---- */

/* The way from a layer to the next in one of the two models: the steps on it. */
struct method {
    const struct nd_model *model;
    const struct nd_exact_graph *constants;
    const size_t *step_of_tensor;
    bool is_float;
    struct nd_between between[ND_MAX_BETWEEN];
    size_t n;
    size_t clips[ND_MAX_BETWEEN], n_clips; /* with a bound other than 0 */
    bool has_quantiser;
    double low, high; /* bounds that hold for the next step */
    size_t end;       /* the node of the next layer */
};

static bool add_step(struct method *method, size_t item)
{
    size_t tensor = method->model->tensor_of_value[item];
    size_t step = tensor != ND_NO_INDEX ? method->step_of_tensor[tensor] : SIZE_MAX;
    if (step == SIZE_MAX)
        return method->is_float; /* a tensor that the quantised model keeps inside of a layer */
    if (method->n == ND_MAX_BETWEEN)
        return false;
    method->between[method->n++] =
        (struct nd_between){.step = step, .bound_low = method->low, .bound_high = method->high};
    method->low = -HUGE_VAL;
    method->high = HUGE_VAL;
    return true;
}

/* Of a Clip: from its input, or from the attribute of older operator sets. */
static bool read_bound(const struct method *method, size_t node, size_t input, double *bound)
{
    static const char *const attributes[] = {NULL, "min", "max"};
    size_t tensor = used(&method->model->graph, node, input);
    if (tensor == ND_NO_INDEX) {
        *bound = nd_onnx_attribute_f(method->model->graph.nodes[node].proto, attributes[input], *bound);
        return true;
    }
    const struct nd_array *values = nd_exact_constant_values(method->constants, tensor);
    struct nd_error ignored = {0};
    if (values == NULL || values->n != 1 || nd_exact_hold(method->constants, values, &ignored) != ND_OK)
        return false;
    *bound = values->x[0];
    nd_exact_release(method->constants, values);
    return true;
}

/* A Clip commutes with factors of channels that do not reach its bounds; a bound of 0 is none. */
static bool pass_clip(struct method *method, size_t node)
{
    double low = -HUGE_VAL, high = HUGE_VAL;
    if (!read_bound(method, node, 1, &low) || !read_bound(method, node, 2, &high) || low > 0 || high < 0)
        return false;
    bool has_bound = (low < 0 && isfinite(low)) || (high > 0 && isfinite(high));
    if (has_bound && method->n_clips == ND_MAX_BETWEEN)
        return false;
    if (has_bound)
        method->clips[method->n_clips++] = node;
    method->low = fmax(method->low, low < 0 ? low : -HUGE_VAL);
    method->high = fmin(method->high, high > 0 ? high : HUGE_VAL);
    return true;
}

/* Whether the operator commutes with a positive factor of each channel. */
static bool pass(struct method *method, size_t node)
{
    static const char *const always[] = {"Relu",    "LeakyRelu",     "PRelu",    "Abs",
                                         "MaxPool", "GlobalMaxPool", "Identity", NULL};
    static const char *const averages[] = {"AveragePool", "GlobalAveragePool", NULL};
    const struct nd_graph_node *at = &method->model->graph.nodes[node];
    if (is_op(at, "Clip"))
        return pass_clip(method, node);
    if (is_any_of(at, averages)) /* of which nobody can tell what was clipped */
        return isinf(method->low) && isinf(method->high);
    return is_any_of(at, always);
}

static bool find_method(struct method *method, size_t node)
{
    const struct nd_graph *graph = &method->model->graph;
    method->low = -HUGE_VAL;
    method->high = HUGE_VAL;
    for (;;) {
        size_t tensor = made(graph, node);
        if (tensor == ND_NO_INDEX)
            return false;
        bool is_step = method->is_float || graph->nodes[node].kind == ND_NODE_QUANTIZE;
        if (is_step && !add_step(method, tensor))
            return false;
        node = only_reader(graph, tensor);
        if (node == ND_NO_INDEX || used(graph, node, 0) != tensor)
            return false;
        bool is_quantiser = graph->nodes[node].kind != ND_NODE_OTHER;
        method->has_quantiser = method->has_quantiser || is_quantiser;
        if (has_products(&graph->nodes[node]))
            break;
        if (!is_quantiser && !pass(method, node))
            return false;
    }
    method->end = node;
    if (method->n > 0) { /* a Clip that the next layer does first */
        struct nd_between *last = &method->between[method->n - 1];
        last->bound_low = fmax(last->bound_low, method->low);
        last->bound_high = fmin(last->bound_high, method->high);
    }
    return method->n > 0;
}

/* ---- pairs ---- */

bool nd_plan_has_range(const struct nd_plan *plan, size_t step)
{
    const struct nd_tensor *tensor = nd_plan_tensor(plan, step);
    return tensor->quant.n == 1 && nd_dtype_is_integer(tensor->dtype) &&
           nd_dtype_size_bytes(tensor->dtype) <= 2 && tensor->quant.scale[0] > 0;
}

static bool has_channels(const struct nd_plan *plan, size_t step, size_t n)
{
    const struct nd_shape *shape = &plan->shapes[step];
    return nd_plan_has_range(plan, step) && shape->rank >= 2 && shape->dims[1] == (int64_t)n;
}

/* What pairs are looked for in. */
struct question {
    const struct nd_plan *plan;
    const size_t *step_of_float;
    const struct nd_pair_layer *layers;
    size_t n_layers;
};

/* Both models lead from the first to the same second layer, over the same tensors. */
static bool find_pair(const struct question *q, const struct nd_pair_layer *first, struct nd_pair *pair)
{
    const struct nd_plan *plan = q->plan;
    struct method method = {
        .model = plan->model, .constants = plan->graph, .step_of_tensor = plan->step_of_tensor};
    struct method floats = {.model = plan->float_model,
                            .constants = plan->float_graph,
                            .step_of_tensor = q->step_of_float,
                            .is_float = true};
    if (!find_method(&method, first->node) || !find_method(&floats, first->float_node) || method.n != floats.n)
        return false;
    *pair = (struct nd_pair){.first = *first, .n_between = method.n, .is_plain = !floats.has_quantiser};
    for (size_t i = 0; i < floats.n_clips; i++)
        pair->float_clips[pair->n_float_clips++] = floats.clips[i];
    pair->n_channels = nd_weight_channels(&first->axes, true);
    for (size_t i = 0; i < method.n; i++) {
        pair->between[i] = method.between[i];
        pair->between[i].bound_low = fmax(method.between[i].bound_low, floats.between[i].bound_low);
        pair->between[i].bound_high = fmin(method.between[i].bound_high, floats.between[i].bound_high);
        if (method.between[i].step != floats.between[i].step ||
            !has_channels(plan, method.between[i].step, pair->n_channels))
            return false;
    }
    for (size_t i = 0; i < q->n_layers; i++) {
        pair->second = q->layers[i];
        if (q->layers[i].node == method.end && q->layers[i].float_node == floats.end)
            return nd_weight_channels(&q->layers[i].axes, false) == pair->n_channels;
    }
    return false;
}

enum nd_status nd_find_pairs(const struct nd_plan *plan, const size_t *step_of_float,
                             enum nd_pair_scales scales, struct nd_pair **out, size_t *n, struct nd_error *err)
{
    ND_FREED struct nd_pair_layer *layers = nd_calloc(plan->n_steps, sizeof *layers);
    struct nd_pair *pairs = nd_calloc(plan->n_steps, sizeof *pairs);
    struct question q = {.plan = plan, .step_of_float = step_of_float, .layers = layers};
    if (layers == NULL || pairs == NULL) {
        free(pairs);
        return nd_fail_memory(err);
    }
    for (size_t s = 0; s < plan->n_steps; s++)
        q.n_layers += find_layer(plan, s, scales, &layers[q.n_layers]);
    *n = 0;
    for (size_t i = 0; i < q.n_layers; i++)
        *n += find_pair(&q, &layers[i], &pairs[*n]);
    *out = pairs;
    return ND_OK;
}
