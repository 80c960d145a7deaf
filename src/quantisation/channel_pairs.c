#include "quantisation/channel_pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/loaded.h"
#include "operators/ops_shared.h"
#include "quantisation/study.h"

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
    for (; is_onnx && *names != NULL; names++)
        if (strcmp(nd_onnx_text(node->proto->op_type), *names) == 0)
            return true;
    return false;
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

size_t nd_weight_channel(const struct nd_weight_axes *axes, bool is_output, size_t i)
{
    size_t a = i / (axes->n1 * axes->inner), b = i / axes->inner % axes->n1;
    return is_output == axes->is_first_out ? a : a / (axes->n0 / axes->groups) * axes->n1 + b;
}

size_t nd_weight_channels(const struct nd_weight_axes *axes, bool is_output)
{
    return is_output == axes->is_first_out ? axes->n0 : axes->groups * axes->n1;
}

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

static bool has_one_scale(const struct nd_exact_constant *constant)
{
    return constant->quant != NULL && constant->quant->n == 1 && nd_dtype_size_bytes(constant->dtype) == 1;
}

/* Whether the step makes products of weights that can be scaled. */
static bool find_layer(const struct nd_study *study, size_t step, struct nd_pair_layer *layer)
{
    const struct nd_plan *plan = study->plan;
    const struct nd_graph *graph = &plan->model->graph, *floats = &plan->float_model->graph;
    struct nd_exact_constant all[ND_LOSS_CONSTANTS];
    size_t n = nd_exact_unit_constants(plan->graph, plan->steps[step].edge, all, ND_LOSS_CONSTANTS),
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
    if (n_weights != 1 || !has_one_scale(&layer->weights) ||
        !find_axes(&graph->nodes[layer->node], &layer->weights.real->shape, &layer->axes))
        return false;
    /* A factor of an output channel is also one of its bias. */
    size_t bias = used(graph, layer->node, 2);
    if (layer->has_bias ? bias != layer->bias.tensor || only_reader(graph, bias) == ND_NO_INDEX ||
                              layer->bias.real->n != nd_weight_channels(&layer->axes, true)
                        : bias != ND_NO_INDEX)
        return false;
    size_t before = nd_exact_tensor_before(plan->float_graph, &layer->weights);
    layer->before = nd_exact_constant_values(plan->float_graph, before);
    layer->float_node = layer->before != NULL ? only_reader(floats, before) : ND_NO_INDEX;
    return layer->float_node != ND_NO_INDEX && has_products(&floats->nodes[layer->float_node]) &&
           nd_onnx_attribute_i(graph->nodes[layer->node].proto, "transA", 0) == 0;
}

/* ---- from a layer to the next ---- */

/* The way from a layer to the next in one of the two models: the steps on it. */
struct way {
    const struct nd_study *study;
    const struct nd_model *model;
    const struct nd_exact_graph *constants;
    bool is_float;
    struct nd_between between[ND_MOST_BETWEEN];
    size_t n;
    double low, high; /* bounds that hold for the next step */
    size_t end;       /* the node of the next layer */
};

static bool add_step(struct way *way, size_t tensor)
{
    const struct nd_study *study = way->study;
    size_t edge = way->model->tensor_edge[tensor], step = SIZE_MAX;
    if (edge != ND_NO_INDEX)
        step = way->is_float ? study->step_of_float[edge] : study->plan->step_of_edge[edge];
    if (step == SIZE_MAX)
        return way->is_float; /* a tensor that the quantised model keeps inside of a layer */
    if (way->n == ND_MOST_BETWEEN)
        return false;
    way->between[way->n++] = (struct nd_between){.step = step, .bound_low = way->low, .bound_high = way->high};
    way->low = -HUGE_VAL;
    way->high = HUGE_VAL;
    return true;
}

/* Of a Clip: from its input, or from the attribute of older operator sets. */
static bool read_bound(const struct way *way, size_t node, size_t input, double *bound)
{
    static const char *const attributes[] = {NULL, "min", "max"};
    size_t tensor = used(&way->model->graph, node, input);
    if (tensor == ND_NO_INDEX) {
        *bound = nd_onnx_attribute_f(way->model->graph.nodes[node].proto, attributes[input], *bound);
        return true;
    }
    const struct nd_array *values = nd_exact_constant_values(way->constants, tensor);
    struct nd_error ignored = {0};
    if (values == NULL || values->n != 1 || nd_exact_hold(way->constants, values, &ignored) != ND_OK)
        return false;
    *bound = values->x[0];
    nd_exact_release(way->constants, values);
    return true;
}

/* A Clip commutes with factors of channels that do not reach its bounds; a bound of 0 is none. */
static bool pass_clip(struct way *way, size_t node)
{
    double low = -HUGE_VAL, high = HUGE_VAL;
    if (!read_bound(way, node, 1, &low) || !read_bound(way, node, 2, &high) || low > 0 || high < 0)
        return false;
    way->low = fmax(way->low, low < 0 ? low : -HUGE_VAL);
    way->high = fmin(way->high, high > 0 ? high : HUGE_VAL);
    return true;
}

/* Whether the operator commutes with a positive factor of each channel. */
static bool pass(struct way *way, size_t node)
{
    static const char *const always[] = {"Relu",    "LeakyRelu",     "PRelu",    "Abs",
                                         "MaxPool", "GlobalMaxPool", "Identity", NULL};
    static const char *const averages[] = {"AveragePool", "GlobalAveragePool", NULL};
    const struct nd_graph_node *at = &way->model->graph.nodes[node];
    if (is_op(at, "Clip"))
        return pass_clip(way, node);
    if (is_any_of(at, averages)) /* of which nobody can tell what was clipped */
        return isinf(way->low) && isinf(way->high);
    return is_any_of(at, always);
}

static bool find_way(struct way *way, size_t node)
{
    const struct nd_graph *graph = &way->model->graph;
    way->low = -HUGE_VAL;
    way->high = HUGE_VAL;
    for (;;) {
        size_t tensor = made(graph, node);
        if (tensor == ND_NO_INDEX)
            return false;
        bool is_step = way->is_float || graph->nodes[node].kind == ND_NODE_QUANTIZE;
        if (is_step && !add_step(way, tensor))
            return false;
        node = only_reader(graph, tensor);
        if (node == ND_NO_INDEX || used(graph, node, 0) != tensor)
            return false;
        bool is_quantiser = graph->nodes[node].kind != ND_NODE_OTHER;
        if (has_products(&graph->nodes[node]))
            break;
        if (!is_quantiser && !pass(way, node))
            return false;
    }
    way->end = node;
    if (way->n > 0) { /* a Clip that the next layer does first */
        struct nd_between *last = &way->between[way->n - 1];
        last->bound_low = fmax(last->bound_low, way->low);
        last->bound_high = fmin(last->bound_high, way->high);
    }
    return way->n > 0;
}

/* ---- pairs ---- */

static bool has_channels(const struct nd_study *study, size_t step, size_t n)
{
    const struct nd_shape *shape = &study->plan->shapes[step];
    return nd_has_range(study, step) && shape->rank >= 2 && shape->dims[1] == (int64_t)n;
}

/* Both models lead from the first to the same second layer, over the same tensors. */
static bool find_pair(const struct nd_study *study, const struct nd_pair_layer *layers, size_t n_layers,
                      const struct nd_pair_layer *first, struct nd_pair *pair)
{
    const struct nd_plan *plan = study->plan;
    struct way way = {.study = study, .model = plan->model, .constants = plan->graph};
    struct way floats = {
        .study = study, .model = plan->float_model, .constants = plan->float_graph, .is_float = true};
    if (!find_way(&way, first->node) || !find_way(&floats, first->float_node) || way.n != floats.n)
        return false;
    *pair = (struct nd_pair){.first = *first, .n_between = way.n};
    pair->n_channels = nd_weight_channels(&first->axes, true);
    for (size_t i = 0; i < way.n; i++) {
        pair->between[i] = way.between[i];
        pair->between[i].bound_low = fmax(way.between[i].bound_low, floats.between[i].bound_low);
        pair->between[i].bound_high = fmin(way.between[i].bound_high, floats.between[i].bound_high);
        if (way.between[i].step != floats.between[i].step ||
            !has_channels(study, way.between[i].step, pair->n_channels))
            return false;
    }
    for (size_t i = 0; i < n_layers; i++) {
        pair->second = layers[i];
        if (layers[i].node == way.end && layers[i].float_node == floats.end)
            return nd_weight_channels(&layers[i].axes, false) == pair->n_channels;
    }
    return false;
}

static enum nd_status make_room(struct nd_study *study, struct nd_pair *pair, struct nd_error *err)
{
    size_t n = study->n_samples * pair->n_channels;
    for (size_t i = 0; i < pair->n_between; i++) {
        pair->between[i].low = nd_calloc(n, sizeof(double));
        pair->between[i].high = nd_calloc(n, sizeof(double));
        if (pair->between[i].low == NULL || pair->between[i].high == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

enum nd_status nd_find_pairs(struct nd_study *study, struct nd_error *err)
{
    size_t n_steps = study->plan->n_steps, n_layers = 0;
    struct nd_pair_layer *layers = nd_calloc(n_steps, sizeof *layers);
    study->pairs = nd_calloc(n_steps, sizeof *study->pairs);
    enum nd_status status = layers != NULL && study->pairs != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t s = 0; s < n_steps && status == ND_OK; s++)
        n_layers += find_layer(study, s, &layers[n_layers]);
    for (size_t i = 0; i < n_layers && status == ND_OK; i++)
        if (find_pair(study, layers, n_layers, &layers[i], &study->pairs[study->n_pairs]))
            status = make_room(study, &study->pairs[study->n_pairs++], err);
    free(layers);
    return status;
}

void nd_pairs_deinit(struct nd_study *study)
{
    for (size_t p = 0; study->pairs != NULL && p < study->n_pairs; p++)
        for (size_t i = 0; i < study->pairs[p].n_between; i++) {
            free(study->pairs[p].between[i].low);
            free(study->pairs[p].between[i].high);
        }
    free(study->pairs);
}

static struct nd_between *find_between(const struct nd_study *study, size_t step, size_t *n_channels)
{
    for (size_t p = 0; p < study->n_pairs; p++)
        for (size_t i = 0; i < study->pairs[p].n_between; i++)
            if (study->pairs[p].between[i].step == step) {
                *n_channels = study->pairs[p].n_channels;
                return &study->pairs[p].between[i];
            }
    return NULL;
}

void nd_pairs_take(const struct nd_study *study, size_t step, size_t sample, const struct nd_array *values)
{
    size_t n = 0;
    const struct nd_between *between = find_between(study, step, &n);
    if (between == NULL || values->shape.rank < 2 || values->shape.dims[1] != (int64_t)n || values->n == 0)
        return;
    size_t inner = nd_dims_product(&values->shape, 2, values->shape.rank);
    double *low = between->low + sample * n, *high = between->high + sample * n;
    for (size_t c = 0; c < n; c++) {
        low[c] = HUGE_VAL;
        high[c] = -HUGE_VAL;
    }
    for (size_t start = 0, c = 0; start < values->n; start += inner, c = (c + 1) % n)
        for (size_t i = start; i < start + inner; i++) {
            low[c] = fmin(low[c], values->x[i]);
            high[c] = fmax(high[c], values->x[i]);
        }
}
