/* One sample taken through a graph. A layer is worked out from its exact values as quotients where its operator
 * is linear in quantised values, and from its operators in double where it is not: eval_graph.h. */
#include <math.h>
#include <string.h>

#include "arithmetic/exact/graph_internal.h"
#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/exact/linear/linear_values.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

/* ---- tensors ---- */

/* The tensor that the tensor itself is, or ND_NO_INDEX. */
static size_t tensor_of(const struct nd_exact_run *run, size_t value)
{
    const struct nd_model *model = run->g->model;
    size_t tensor = value != ND_NO_INDEX ? model->tensor_of_value[value] : ND_NO_INDEX;
    bool is_it =
        tensor != ND_NO_INDEX && strcmp(model->tensors[tensor].onnx_name, run->graph->tensors[value].name) == 0;
    return is_it ? tensor : ND_NO_INDEX;
}

static const struct nd_array *given_for(const struct nd_exact_run *run, size_t tensor)
{
    const struct nd_array *given = run->options->given != NULL ? &run->options->given[tensor] : NULL;
    return given != NULL && given->shape.rank >= 0 ? given : NULL;
}

/* Whether the tensor that the tensor is, or stands for, is given and need not be computed; and its quantised
 * values. */
static bool nd_exact_is_skipped(const struct nd_exact_run *run, size_t value)
{
    size_t tensor = value != ND_NO_INDEX ? run->g->model->tensor_of_value[value] : ND_NO_INDEX;
    return run->options->is_skipped != NULL && tensor != ND_NO_INDEX && run->options->is_skipped[tensor] &&
           given_for(run, tensor) != NULL;
}

static void copy_given(const struct nd_exact_run *run, size_t tensor, double *to)
{
    const struct nd_array *given = given_for(run, tensor);
    if (given->n > 0 && given->x == NULL)
        run->options->give(run->context, tensor, to);
    else if (given->n > 0)
        memcpy(to, given->x, given->n * sizeof *given->x);
}

/* Whether the tensor that the tensor is, or stands for, is given and need not be computed; and its quantised
 * values. */
static enum nd_status nd_exact_take_given(struct nd_exact_run *run, size_t value, struct nd_error *err)
{
    struct nd_array qvalues = {0};
    size_t tensor = run->g->model->tensor_of_value[value];
    const struct nd_array *given = given_for(run, tensor);
    ND_TRY(nd_array_make_room(&qvalues, given->dtype, &given->shape, err));
    copy_given(run, tensor, qvalues.x);
    run->values[value] = qvalues;
    return ND_OK;
}

/* The tensor, if the tensor is one, cannot be evaluated. */
static enum nd_status miss(struct nd_exact_run *run, size_t value, const struct nd_error *why,
                           struct nd_error *err)
{
    size_t tensor = tensor_of(run, value);
    enum nd_status status = ND_OK;
    if (tensor == ND_NO_INDEX)
        return ND_OK;
    bool is_skipped = nd_exact_is_skipped(run, value);
    if (run->values[value].shape.rank >= 0)
        nd_array_deinit(&run->values[value]);
    run->values[value] = nd_exact_none();
    if (given_for(run, tensor) != NULL)
        status = nd_exact_take_given(run, value, err);
    else
        run->is_missed[value] = true;
    if (status == ND_OK && !is_skipped)
        status = run->options->missed(run->context, tensor, why, err);
    run->is_ended = status != ND_OK;
    return status;
}

/* Tells of the tensor that the tensor is, if it is one, and puts the given values in its place. */
static enum nd_status nd_exact_tell(struct nd_exact_run *run, size_t value, enum nd_exact_method method,
                                    struct nd_error *err)
{
    size_t tensor = tensor_of(run, value);
    if (tensor == ND_NO_INDEX || run->values[value].shape.rank < 0)
        return ND_OK;
    const struct nd_array *given = given_for(run, tensor);
    if (given != NULL && !nd_shape_equal(&given->shape, &run->values[value].shape)) {
        struct nd_error why;
        const char *name = run->g->model->tensors[tensor].name;
        nd_fail(&why, ND_E_EXACT_SHAPE, name, "what is given for tensor '%s' has another shape", name);
        if (run->options->missed != NULL)
            return miss(run, value, &why, err);
        return nd_fail(err, ND_E_EXACT_SHAPE, name, "%s", why.message);
    }
    enum nd_status status =
        run->found != NULL ? run->found(run->context, tensor, &run->values[value], method, err) : ND_OK;
    run->is_ended = status != ND_OK;
    if (status == ND_OK && given != NULL)
        copy_given(run, tensor, run->values[value].x);
    return status;
}

/* ---- a sample ---- */

/* A node between layers, or of a float model, of which nothing has to be computed: all that it makes is given
 * and taken over, or nobody reads it. */
static bool is_spared(const struct nd_exact_run *run, size_t node, bool *is_taken)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    bool is_ignored = run->options->is_ignored != NULL;
    *is_taken = run->options->is_skipped != NULL;
    for (size_t i = 0; i < n->n_made; i++) {
        size_t value = nd_graph_made(run->graph, node, i), tensor = tensor_of(run, value);
        if (value == ND_NO_INDEX)
            continue;
        is_ignored = is_ignored && tensor != ND_NO_INDEX && run->options->is_ignored[tensor];
        *is_taken = *is_taken && tensor != ND_NO_INDEX && nd_exact_is_skipped(run, value) &&
                    run->values[value].shape.rank < 0;
    }
    *is_taken = *is_taken && !is_ignored;
    return is_ignored || *is_taken;
}

static enum nd_status take_all(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    for (size_t i = 0; i < run->graph->nodes[node].n_made; i++)
        if (nd_graph_made(run->graph, node, i) != ND_NO_INDEX)
            ND_TRY(nd_exact_take_given(run, nd_graph_made(run->graph, node, i), err));
    return ND_OK;
}

static enum nd_status make_floats(struct nd_exact_run *run, size_t node, bool *are_made, struct nd_error *err);

static enum nd_status run_in_order(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    if (n->is_constant || !n->is_alive)
        return ND_OK;
    if (n->kind == ND_NODE_QUANTIZE)
        return nd_exact_run_quantize(run, node, err);
    if (run->g->layer_of_node[node] != ND_NO_INDEX || nd_exact_feeds_layers(run->g, node))
        return ND_OK; /* its layer decides, or its layers do */
    /* Layers look at the quantised values before it; who wants its numbers asks for them. */
    if (n->kind == ND_NODE_DEQUANTIZE && n->n_made == 1 &&
        tensor_of(run, nd_graph_made(run->graph, node, 0)) == ND_NO_INDEX)
        return ND_OK;
    bool is_taken;
    if (n->n_made > 0 && is_spared(run, node, &is_taken))
        return is_taken ? take_all(run, node, err) : ND_OK;
    bool is_made = n->n_made > 0, is_asked_for = false;
    for (size_t i = 0; i < n->n_made; i++)
        is_made = is_made && (nd_graph_made(run->graph, node, i) == ND_NO_INDEX ||
                              nd_exact_value(run, nd_graph_made(run->graph, node, i)) != NULL);
    if (!is_made)
        ND_TRY(make_floats(run, node, &is_asked_for, err));
    if (!is_made && !is_asked_for)
        ND_TRY(nd_exact_run_node(run, node, err));
    for (size_t i = 0; i < n->n_made; i++)
        ND_TRY(nd_exact_tell(run, nd_graph_made(run->graph, node, i),
                             is_asked_for ? ND_EXACT_AS_MADE : ND_EXACT_AS_DOUBLE, err));
    return ND_OK;
}

/* The same, where what cannot be evaluated is told of and costs nothing else. */
static enum nd_status run_or_miss(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    if (run->options->missed == NULL)
        return run_in_order(run, node, err);
    struct nd_error why;
    enum nd_status status = run_in_order(run, node, &why);
    if (status == ND_OK)
        return ND_OK;
    bool is_broken = run->is_ended || run->decoded->status != ND_OK;
    if (is_broken || (status != ND_ERR_UNSUPPORTED && status != ND_ERR_FORMAT)) {
        if (err != NULL)
            *err = why;
        return status;
    }
    status = ND_OK;
    for (size_t i = 0; i < run->graph->nodes[node].n_made && status == ND_OK; i++)
        status = miss(run, nd_graph_made(run->graph, node, i), &why, err);
    return status;
}

static enum nd_status feed(struct nd_exact_run *run, const struct nd_array *inputs, struct nd_error *err)
{
    const struct nd_model *model = run->g->model;
    for (size_t i = 0; i < model->n_inputs; i++) {
        size_t tensor = nd_names_find(&run->graph->names, model->inputs[i].name);
        if (tensor == ND_NO_INDEX || run->values[tensor].shape.rank >= 0)
            continue;
        run->values[tensor] = (struct nd_array){0};
        enum nd_status status = nd_array_copy(&inputs[i], &run->values[tensor], err);
        if (status != ND_OK) {
            run->values[tensor] = nd_exact_none();
            return status;
        }
    }
    return ND_OK;
}

static void drop_read(struct nd_exact_run *run, size_t node)
{
    for (size_t t = run->g->first_done[node]; t != ND_NO_INDEX; t = run->g->next_done[t])
        if (run->values[t].shape.rank >= 0) {
            nd_array_deinit(&run->values[t]);
            run->values[t] = nd_exact_none();
        }
}

enum nd_status nd_exact_graph_run(const struct nd_exact_graph *graph, const struct nd_array *inputs,
                                  const struct nd_exact_options *options, nd_exact_found *found, void *context,
                                  struct nd_error *err)
{
    struct nd_exact_run run;
    enum nd_status status = nd_exact_run_init(&run, graph, err);
    run.options = options != NULL ? options : run.options;
    run.found = found;
    run.context = context;
    if (status == ND_OK)
        status = feed(&run, inputs, err);
    for (size_t n = 0; n < run.graph->n_nodes && status == ND_OK; n++) {
        status = run_or_miss(&run, n, err);
        nd_exact_run_release(&run);
        drop_read(&run, n);
    }
    nd_exact_run_deinit(&run);
    return status;
}

/* One layer: its exact values as quotients where its operator is linear in quantised values, its operators in
 * double where it is not. */

/* An input of a linear operator: the quantised values behind a DequantizeLinear, or numbers. False: neither is
 * there. */
static bool linear_input(const struct nd_exact_run *run, size_t tensor, struct nd_linear_input *out)
{
    *out = (struct nd_linear_input){0};
    if (tensor == ND_NO_INDEX)
        return true;
    size_t producer = run->graph->tensors[tensor].producer;
    if (producer != ND_NO_INDEX && run->graph->nodes[producer].kind == ND_NODE_DEQUANTIZE &&
        nd_exact_replaced(run, tensor) == NULL && run->g->quants[producer].quant.n > 0) {
        size_t qvalues = nd_graph_used(run->graph, producer, 0);
        out->values = nd_exact_value(run, qvalues);
        if (nd_exact_is_real(run, qvalues))
            return out->values != NULL;
        out->quant = &run->g->quants[producer].quant;
        if (qvalues != ND_NO_INDEX && run->g->packed_weights[qvalues].x != NULL) {
            out->packed_weights = &run->g->packed_weights[qvalues];
            out->largest = run->g->largest[qvalues];
            out->shorts = run->g->shorts[qvalues];
        }
        return out->values != NULL;
    }
    out->values = nd_exact_value(run, tensor);
    return out->values != NULL;
}

/* The operator before the QuantizeLinear, past Relu and Clip, whose bounds are taken in. ND_NO_INDEX: none
 * (requantise). */
static size_t find_operator(const struct nd_exact_run *run, size_t quantize, size_t *tensor, double *low,
                            double *high)
{
    *tensor = nd_graph_used(run->graph, quantize, 0);
    size_t producer = run->graph->tensors[*tensor].producer;
    double least[ND_EXACT_MAX_OPERANDS], greatest[ND_EXACT_MAX_OPERANDS];
    size_t n_folds = 0;
    while (producer != ND_NO_INDEX && run->graph->nodes[producer].kind == ND_NODE_OTHER &&
           n_folds < ND_EXACT_MAX_OPERANDS) {
        const struct nd_graph_node *n = &run->graph->nodes[producer];
        struct nd_linear_input inputs[4];
        bool is_known = n->n_inputs >= 1 && n->n_inputs <= 4;
        for (size_t i = 1; i < n->n_inputs && is_known; i++)
            is_known = linear_input(run, nd_graph_used(run->graph, producer, i), &inputs[i]);
        size_t before = nd_graph_used(run->graph, producer, 0);
        size_t maker = before != ND_NO_INDEX ? run->graph->tensors[before].producer : ND_NO_INDEX;
        least[n_folds] = -HUGE_VAL;
        greatest[n_folds] = HUGE_VAL;
        inputs[0] = (struct nd_linear_input){0};
        /* A Relu or Clip right behind a DequantizeLinear is an operator of its own. */
        if (!is_known || maker == ND_NO_INDEX || run->graph->nodes[maker].kind != ND_NODE_OTHER ||
            !nd_linear_fold(n->proto, n->n_inputs, inputs, &least[n_folds], &greatest[n_folds]))
            break;
        n_folds++;
        *tensor = before;
        producer = maker;
    }
    *low = -HUGE_VAL;
    *high = HUGE_VAL;
    while (n_folds-- > 0) { /* in graph order: what comes later has the last word */
        *low = fmin(fmax(*low, least[n_folds]), greatest[n_folds]);
        *high = fmin(fmax(*high, least[n_folds]), greatest[n_folds]);
    }
    return producer != ND_NO_INDEX && run->graph->nodes[producer].kind == ND_NODE_OTHER ? producer
                                                                                        : ND_NO_INDEX;
}

static bool only_moves(const Onnx__NodeProto *node)
{
    return ND_IS_ONE_OF(node->op_type, "DequantizeLinear", "Flatten", "Identity", "QuantizeLinear", "Reshape",
                        "Squeeze", "Transpose", "Unsqueeze");
}

static enum nd_exact_origin origin_of(const struct nd_exact_run *run, size_t tensor)
{
    while (tensor != ND_NO_INDEX && run->g->constants[tensor].shape.rank < 0) {
        size_t producer = run->graph->tensors[tensor].producer;
        if (producer == ND_NO_INDEX)
            return ND_EXACT_FROM_INPUT;
        if (run->graph->nodes[producer].is_constant)
            return ND_EXACT_FROM_CONSTANT;
        if (!only_moves(run->graph->nodes[producer].proto))
            return ND_EXACT_FROM_LAYER;
        tensor = nd_graph_used(run->graph, producer, 0);
    }
    return ND_EXACT_FROM_CONSTANT;
}

/* What input i of the layer is in the graph. */
static size_t operand_of(const struct nd_exact_run *run, const struct nd_exact_call *layer, size_t i)
{
    if (layer->node == ND_NO_INDEX)
        return layer->tensor;
    size_t n_own = run->graph->nodes[layer->node].n_inputs;
    return i < n_own ? nd_graph_used(run->graph, layer->node, i) : layer->bias;
}

/* Whether what follows is known of such a layer: nothing, or a Relu whose zero is the least quantised value. Of
 * more than two axes, ONNX Runtime brings the sum to two and back, and what is known of a Relu behind that ends
 * with three, and with a bias in floats. */
static bool is_plain_end(const struct nd_linear_call *call, enum nd_dtype dtype, int rank, bool is_float_bias)
{
    int most = is_float_bias ? 2 : 3;
    double least, greatest;
    nd_qvalue_range(dtype, &least, &greatest);
    bool is_relu = call->high == HUGE_VAL && rank <= most && call->out_quant->n == 1 &&
                   (double)call->out_quant->zero_point[0] == least;
    return (call->low == -HUGE_VAL && call->high == HUGE_VAL) || is_relu;
}

/* A MatMul by constants and an Add of one constant for each column, with nothing between: a Gemm with a bias to
 * ONNX Runtime and to the HTP, bit for bit (docs/science/htp-arithmetic.md#biases). Then the layer's node
 * becomes the MatMul. */
static void join_bias(const struct nd_exact_run *run, size_t quantize, struct nd_exact_call *layer)
{
    const struct nd_graph *graph = run->graph;
    const struct nd_graph_node *add = &graph->nodes[layer->node];
    if (strcmp(nd_onnx_text(add->proto->op_type), "Add") != 0 || add->n_inputs != 2)
        return;
    for (size_t i = 0; i < 2; i++) {
        size_t sum = nd_graph_used(graph, layer->node, i), bias = nd_graph_used(graph, layer->node, 1 - i);
        size_t maker = sum != ND_NO_INDEX ? graph->tensors[sum].producer : ND_NO_INDEX;
        if (maker == ND_NO_INDEX || bias == ND_NO_INDEX || graph->tensors[sum].n_readers != 1 ||
            graph->tensors[sum].output != ND_NO_INDEX || nd_exact_replaced(run, sum) != NULL ||
            graph->nodes[maker].n_inputs != 2 ||
            strcmp(nd_onnx_text(graph->nodes[maker].proto->op_type), "MatMul") != 0)
            continue;
        size_t weights = nd_graph_used(graph, maker, 1), read = nd_graph_used(graph, maker, 0);
        struct nd_linear_input w, b, x;
        if (weights == ND_NO_INDEX || origin_of(run, weights) != ND_EXACT_FROM_CONSTANT ||
            origin_of(run, bias) != ND_EXACT_FROM_CONSTANT || !linear_input(run, weights, &w) ||
            !linear_input(run, bias, &b) || !linear_input(run, read, &x) || x.quant == NULL ||
            !is_plain_end(&layer->call, run->g->quants[quantize].dtype, x.values->shape.rank,
                          b.quant == NULL) ||
            w.quant == NULL || w.values->shape.rank != 2 || b.values->shape.rank != 1 ||
            b.values->shape.dims[0] != w.values->shape.dims[1])
            continue;
        layer->node = maker;
        layer->tensor = sum;
        layer->bias = bias;
        return;
    }
}

static size_t output_number(const struct nd_graph *graph, size_t node, size_t tensor)
{
    size_t i = 0;
    while (nd_graph_made(graph, node, i) != tensor)
        i++;
    return i;
}

bool nd_exact_describe(const struct nd_exact_run *run, size_t quantize, struct nd_exact_call *layer)
{
    struct nd_linear_call *call = &layer->call;
    *call = (struct nd_linear_call){.opset = run->g->model->opset,
                                    .out_quant = &run->g->quants[quantize].quant,
                                    .inputs = layer->inputs,
                                    .shared = &layer->shared,
                                    .n_inputs = 1};
    layer->shared = (struct nd_linear_shared){0};
    layer->node = find_operator(run, quantize, &layer->tensor, &call->low, &call->high);
    layer->bias = ND_NO_INDEX;
    if (call->out_quant->n == 0)
        return false;
    if (layer->node == ND_NO_INDEX)
        return linear_input(run, layer->tensor, &layer->inputs[0]);
    join_bias(run, quantize, layer);
    const struct nd_graph_node *n = &run->graph->nodes[layer->node];
    call->node = nd_exact_proto(run, layer->node);
    call->n_inputs = n->n_inputs + (layer->bias != ND_NO_INDEX);
    call->output = output_number(run->graph, layer->node, layer->tensor);
    bool is_known = call->n_inputs <= ND_EXACT_MAX_OPERANDS;
    for (size_t i = 0; i < call->n_inputs && is_known; i++)
        is_known = linear_input(run, operand_of(run, layer, i), &layer->inputs[i]);
    return is_known;
}

/* Whether the values may be left quick: rounded half to even here, or by who takes them so. */
static bool takes_quick(const struct nd_exact_run *run)
{
    return run->options->round == NULL ? run->options->rounding == ND_ROUND_HALF_EVEN
                                       : run->options->takes_quick;
}

/* ND_ERR_UNSUPPORTED: the layer is not linear, or something that it reads is not there as quantised values. */
static enum nd_status linear_ratios(const struct nd_exact_run *run, const struct nd_exact_call *layer,
                                    struct nd_linear_result *result, struct nd_error *err)
{
    if (!layer->is_known)
        return nd_fail(err, ND_E_EXACT_OPERATOR, NULL, "the layer does not read quantised values only");
    if (takes_quick(run))
        return nd_linear_layer_quick(&layer->call, result, err);
    return nd_linear_layer(&layer->call, result, err);
}

/* The number of the node among the links, those that it reads before it, `most` of them one behind the other.
 * SIZE_MAX: it cannot be a link, or there is no room. */
static size_t add_link(const struct nd_exact_run *run, size_t node, struct nd_exact_link *links, size_t *n,
                       size_t most)
{
    const struct nd_graph_node *at = &run->graph->nodes[node];
    struct nd_exact_link link = {.node = nd_exact_proto(run, node), .n_inputs = at->n_inputs};
    for (size_t k = 0; k < *n; k++)
        if (links[k].node == link.node)
            return k;
    if (at->n_inputs > ND_EXACT_LINK_INPUTS || (at->n_made != 1 && most < ND_EXACT_MAX_LINKS) || most == 0)
        return SIZE_MAX;
    for (size_t i = 0; i < at->n_inputs; i++) {
        size_t tensor = nd_graph_used(run->graph, node, i);
        size_t maker = tensor != ND_NO_INDEX ? run->graph->tensors[tensor].producer : ND_NO_INDEX;
        bool is_link = maker != ND_NO_INDEX && run->graph->nodes[maker].kind == ND_NODE_OTHER &&
                       !run->graph->nodes[maker].is_constant && run->g->constants[tensor].shape.rank < 0 &&
                       nd_exact_replaced(run, tensor) == NULL &&
                       !(run->options->makes_floats && tensor_of(run, tensor) != ND_NO_INDEX);
        link.from[i] = is_link ? add_link(run, maker, links, n, most - 1) : SIZE_MAX;
        enum nd_exact_origin origin = origin_of(run, tensor);
        link.tensors[i] = tensor != ND_NO_INDEX ? run->g->model->tensor_of_value[tensor] : ND_NO_INDEX;
        link.is_constant[i] = origin == ND_EXACT_FROM_CONSTANT;
        link.is_input[i] = origin == ND_EXACT_FROM_INPUT;
        if (is_link ? link.from[i] == SIZE_MAX : !linear_input(run, tensor, &link.inputs[i]))
            return SIZE_MAX;
    }
    if (*n == ND_EXACT_MAX_LINKS)
        return SIZE_MAX;
    links[*n] = link;
    return (*n)++;
}

/* How many links the layer has. */
static size_t find_links(const struct nd_exact_run *run, const struct nd_exact_call *layer,
                         struct nd_exact_link *links)
{
    size_t n = 0;
    bool is_one = layer->node == ND_NO_INDEX || layer->bias != ND_NO_INDEX;
    return !is_one && add_link(run, layer->node, links, &n, ND_EXACT_MAX_LINKS) != SIZE_MAX ? n : 0;
}

/* The values of the layer by options.make, which may leave *is_made false. */
static enum nd_status ask_for(struct nd_exact_run *run, size_t tensor, enum nd_dtype dtype,
                              const struct nd_exact_call *layer, struct nd_array *values, bool *is_made,
                              struct nd_error *err)
{
    enum nd_exact_origin origins[ND_EXACT_MAX_OPERANDS];
    size_t tensors[ND_EXACT_MAX_OPERANDS];
    struct nd_exact_link links[ND_EXACT_MAX_LINKS];
    *is_made = false;
    if (run->options->make == NULL || !layer->is_known)
        return ND_OK;
    for (size_t i = 0; i < layer->call.n_inputs || i < ND_EXACT_LEAST_OPERANDS; i++) {
        size_t operand = i < layer->call.n_inputs ? operand_of(run, layer, i) : ND_NO_INDEX;
        origins[i] = origin_of(run, operand);
        tensors[i] = operand != ND_NO_INDEX ? run->g->model->tensor_of_value[operand] : ND_NO_INDEX;
    }
    const struct nd_exact_layer asked = {.tensor = tensor,
                                         .call = &layer->call,
                                         .origins = origins,
                                         .input_tensors = tensors,
                                         .dtype = dtype,
                                         .links = links,
                                         .n_links = find_links(run, layer, links)};
    enum nd_status status = run->options->make(run->context, &asked, values, is_made, err);
    run->is_ended = status != ND_OK;
    return status;
}

/* The floats that an operator between layers makes for its output i, where that is a tensor. */
static enum nd_status make_output(struct nd_exact_run *run, size_t node, size_t i_output, bool *is_made,
                                  struct nd_error *err)
{
    static const struct nd_quant none = {.n = 0};
    const struct nd_graph_node *n = &run->graph->nodes[node];
    size_t value = nd_graph_made(run->graph, node, i_output), tensor = tensor_of(run, value);
    if (tensor == ND_NO_INDEX || !nd_dtype_is_float(run->g->model->tensors[tensor].dtype))
        return ND_OK; /* nobody's, or a layer's */
    struct nd_exact_call layer = {.node = node, .tensor = value, .bias = ND_NO_INDEX, .is_known = true};
    layer.call = (struct nd_linear_call){.node = nd_exact_proto(run, node),
                                         .opset = run->g->model->opset,
                                         .n_inputs = n->n_inputs,
                                         .inputs = layer.inputs,
                                         .output = i_output,
                                         .low = -HUGE_VAL,
                                         .high = HUGE_VAL,
                                         .out_quant = &none,
                                         .shared = &layer.shared};
    for (size_t i = 0; i < n->n_inputs; i++)
        layer.is_known = layer.is_known && linear_input(run, operand_of(run, &layer, i), &layer.inputs[i]);
    struct nd_array floats = {0};
    enum nd_status status = ask_for(run, tensor, ND_DTYPE_F32, &layer, &floats, is_made, err);
    nd_linear_shared_deinit(&layer.shared);
    if (status == ND_OK && *is_made)
        run->values[value] = floats;
    else
        nd_array_deinit(&floats);
    return status;
}

/* All of them; what is not made is left to who runs the operator. */
static enum nd_status make_floats(struct nd_exact_run *run, size_t node, bool *are_made, struct nd_error *err)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    bool is_asked =
             run->options->makes_floats && n->kind == ND_NODE_OTHER && n->n_inputs <= ND_EXACT_LINK_INPUTS,
         is_made = true;
    *are_made = false;
    for (size_t i = 0; i < n->n_made && is_asked && is_made; i++) {
        size_t value = nd_graph_made(run->graph, node, i);
        ND_TRY(make_output(run, node, i, &is_made, err));
        *are_made = is_made && (*are_made || (value != ND_NO_INDEX && run->values[value].shape.rank >= 0));
    }
    return ND_OK;
}

static enum nd_status round_plainly(const struct nd_exact_run *run, const struct nd_exact_values *values,
                                    struct nd_array *qvalues)
{
    double low, high;
    if (values->quick != NULL) {
        nd_qvalue_range(values->dtype, &low, &high);
        nd_quick_round(values->quick, (double)values->quant->zero_point[0], low, high, qvalues->x);
        return ND_OK;
    }
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        qvalues->x[i] = nd_qvalue_of_ratio(&values->v[i], (double)values->quant->zero_point[channel],
                                           values->dtype, run->options->rounding);
    }
    return ND_OK;
}

static enum nd_status round_ratios(struct nd_exact_run *run, size_t quantize,
                                   const struct nd_linear_result *result, enum nd_exact_method method,
                                   struct nd_array *qvalues, struct nd_error *err)
{
    const struct nd_node_quant *quant = &run->g->quants[quantize];
    size_t tensor = nd_graph_made(run->graph, quantize, 0);
    const struct nd_exact_values values = {.tensor = run->g->model->tensor_of_value[tensor],
                                           .shape = &result->shape,
                                           .n = result->n,
                                           .v = result->v,
                                           .quick = result->quick,
                                           .quant = &quant->quant,
                                           .dtype = quant->dtype,
                                           .method = method};
    ND_TRY(nd_array_make_room(qvalues, quant->dtype, &result->shape, err));
    if (run->options->round == NULL)
        return round_plainly(run, &values, qvalues);
    enum nd_status status = run->options->round(run->context, &values, qvalues, err);
    run->is_ended = status != ND_OK;
    return status;
}

/* Real values in steps of the output: quotients by the scale. */
static enum nd_status in_steps(const struct nd_exact_run *run, const struct nd_array *real,
                               const struct nd_quant *quant, struct nd_linear_result *result,
                               struct nd_error *err)
{
    bool is_quick = takes_quick(run) && quant->n == 1 && quant->scale[0] > 0 && isfinite(quant->scale[0]);
    ND_TRY(is_quick ? nd_linear_make_quick(result, &real->shape, ND_QUICK_QUOTIENT, err)
                    : nd_linear_make(result, &real->shape, err));
    if (is_quick) {
        result->quick->x = real->x;
        result->quick->low = -HUGE_VAL;
        result->quick->high = HUGE_VAL;
        result->quick->scale = (double)quant->scale[0];
    }
    for (size_t i = 0; i < result->n && !is_quick; i++) {
        size_t channel = nd_exact_channel(quant, &real->shape, i);
        result->v[i] = nd_ratio_of(real->x[i], (double)quant->scale[channel]);
    }
    return ND_OK;
}

/* Section "else": everything in double, and the quotient by the scale rounded by the arithmetic. */
static enum nd_status round_values(struct nd_exact_run *run, size_t quantize, struct nd_array *qvalues,
                                   struct nd_error *err)
{
    const struct nd_node_quant *quant = &run->g->quants[quantize];
    size_t input = nd_graph_used(run->graph, quantize, 0);
    if (quant->quant.n == 0 || quant->dtype == ND_DTYPE_NONE)
        return nd_exact_run_node(run, quantize, err); /* scales computed at run time, blocks */
    ND_TRY(nd_exact_ensure(run, input, err));
    ND_CLEANUP(nd_linear_deinit) struct nd_linear_result result = {0};
    ND_TRY(in_steps(run, nd_exact_value(run, input), &quant->quant, &result, err));
    return round_ratios(run, quantize, &result, ND_EXACT_AS_DOUBLE, qvalues, err);
}

/* The quantisation of a graph input is no layer of a device: it is ONNX's operator on float32, with its
 * division in float32, rounded half to even whatever the arithmetic. */
static enum nd_status quantise_input(struct nd_exact_run *run, size_t node, struct nd_array *qvalues,
                                     struct nd_error *err)
{
    const struct nd_node_quant *quant = &run->g->quants[node];
    const struct nd_array *real = nd_exact_value(run, nd_graph_used(run->graph, node, 0));
    if (real == NULL || real->dtype != ND_DTYPE_F32 || quant->quant.n == 0 || quant->dtype == ND_DTYPE_NONE)
        return ND_ERR_UNSUPPORTED;
    ND_TRY(nd_array_make(qvalues, quant->dtype, &real->shape, err));
    for (size_t i = 0; i < qvalues->n; i++) {
        size_t channel = nd_exact_channel(&quant->quant, &real->shape, i);
        float quotient = (float)real->x[i] / quant->quant.scale[channel];
        const struct nd_ratio ratio = nd_ratio_of((double)quotient, 1);
        qvalues->x[i] = nd_qvalue_of_ratio(&ratio, (double)quant->quant.zero_point[channel], quant->dtype,
                                           ND_ROUND_HALF_EVEN);
    }
    return ND_OK;
}

/* By exact values, or in doubles where there are none. */
static enum nd_status evaluate(struct nd_exact_run *run, size_t node, const struct nd_exact_call *layer,
                               struct nd_array *qvalues, enum nd_exact_method *method, struct nd_error *err)
{
    struct nd_linear_result result;
    struct nd_error ignored = {0};
    enum nd_status status = linear_ratios(run, layer, &result, &ignored);
    *method = status == ND_ERR_UNSUPPORTED ? ND_EXACT_AS_DOUBLE : ND_EXACT_AS_RATIO;
    if (status == ND_ERR_UNSUPPORTED)
        return round_values(run, node, qvalues, err);
    if (status == ND_OK) {
        status = round_ratios(run, node, &result, *method, qvalues, err);
        nd_linear_deinit(&result);
    } else if (err != NULL) {
        *err = ignored;
    }
    return status;
}

enum nd_status nd_exact_run_quantize(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    size_t value = nd_graph_made(run->graph, node, 0);
    struct nd_array qvalues = {0};
    size_t tensor = value != ND_NO_INDEX ? run->g->model->tensor_of_value[value] : ND_NO_INDEX;
    if (run->options->is_ignored != NULL && tensor != ND_NO_INDEX && run->options->is_ignored[tensor])
        return ND_OK;
    if (nd_exact_is_skipped(run, value))
        return nd_exact_take_given(run, value, err);
    bool is_layer = run->g->layer_of_node[node] != ND_NO_INDEX, is_made = false;
    enum nd_exact_method method = is_layer ? ND_EXACT_AS_MADE : ND_EXACT_AS_DOUBLE;
    enum nd_status status;
    struct nd_exact_call layer;
    layer.shared = (struct nd_linear_shared){0};
    layer.is_known = nd_exact_describe(run, node, &layer);
    if (is_layer && !layer.is_known && run->options->make != NULL && layer.call.out_quant->n > 0 &&
        nd_exact_ensure(run, nd_graph_used(run->graph, node, 0), NULL) == ND_OK)
        layer.is_known =
            nd_exact_describe(run, node, &layer); /* what it reads is made inside of it, in floats */
    if (is_layer) {
        status = ask_for(run, tensor, run->g->quants[node].dtype, &layer, &qvalues, &is_made, err);
    } else {
        status = quantise_input(run, node, &qvalues, err);
        is_made = status != ND_ERR_UNSUPPORTED;
        status = is_made ? status : ND_OK;
    }
    if (status == ND_OK && !is_made)
        status = evaluate(run, node, &layer, &qvalues, &method, err);
    nd_linear_shared_deinit(&layer.shared);
    if (status != ND_OK) {
        nd_array_deinit(&qvalues);
        return status;
    }
    if (run->values[value].shape.rank < 0)
        run->values[value] = qvalues;
    return nd_exact_tell(run, value, method, err);
}
