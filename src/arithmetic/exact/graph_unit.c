/* One unit: its exact values as quotients where its operator is linear in codes, its operators in double where
 * it is not. */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "arithmetic/exact/graph_internal.h"
#include "arithmetic/exact/linear/linear_families.h"
#include "arithmetic/exact/linear/linear_unit.h"

/* An input of a linear operator: the codes behind a DequantizeLinear, or numbers. False: neither is there. */
static bool linear_input(const struct nd_exact_run *run, size_t tensor, struct nd_linear_input *out)
{
    *out = (struct nd_linear_input){0};
    if (tensor == ND_NO_INDEX)
        return true;
    size_t producer = run->graph->tensors[tensor].producer;
    if (producer != ND_NO_INDEX && run->graph->nodes[producer].kind == ND_NODE_DEQUANTIZE &&
        nd_exact_replaced(run, tensor) == NULL && run->g->quants[producer].quant.n > 0) {
        size_t codes = nd_graph_used(run->graph, producer, 0);
        out->values = nd_exact_value(run, codes);
        if (nd_exact_is_real(run, codes))
            return out->values != NULL;
        out->quant = &run->g->quants[producer].quant;
        if (codes != ND_NO_INDEX && run->g->wholes[codes].x != NULL) {
            out->wholes = &run->g->wholes[codes];
            out->largest = run->g->largest[codes];
            out->shorts = run->g->shorts[codes];
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

static size_t output_number(const struct nd_graph *graph, size_t node, size_t tensor)
{
    size_t i = 0;
    while (nd_graph_made(graph, node, i) != tensor)
        i++;
    return i;
}

bool nd_exact_describe(const struct nd_exact_run *run, size_t quantize, struct nd_exact_call *unit)
{
    struct nd_linear_call *call = &unit->call;
    *call = (struct nd_linear_call){.opset = run->g->model->opset,
                                    .out_quant = &run->g->quants[quantize].quant,
                                    .inputs = unit->inputs,
                                    .shared = &unit->shared,
                                    .n_inputs = 1};
    unit->shared = (struct nd_linear_shared){0};
    unit->node = find_operator(run, quantize, &unit->tensor, &call->low, &call->high);
    if (call->out_quant->n == 0)
        return false;
    if (unit->node == ND_NO_INDEX)
        return linear_input(run, unit->tensor, &unit->inputs[0]);
    const struct nd_graph_node *n = &run->graph->nodes[unit->node];
    call->node = n->proto;
    call->n_inputs = n->n_inputs;
    call->output = output_number(run->graph, unit->node, unit->tensor);
    bool is_known = n->n_inputs <= ND_EXACT_MAX_OPERANDS;
    for (size_t i = 0; i < n->n_inputs && is_known; i++)
        is_known = linear_input(run, nd_graph_used(run->graph, unit->node, i), &unit->inputs[i]);
    return is_known;
}

/* Whether the values may be left quick: rounded half to even here, or by who takes them so. */
static bool takes_quick(const struct nd_exact_run *run)
{
    return run->options->round == NULL ? run->options->rounding == ND_ROUND_HALF_EVEN
                                       : run->options->takes_quick;
}

/* ND_ERR_UNSUPPORTED: the unit is not linear, or something that it reads is not there as codes. */
static enum nd_status linear_ratios(const struct nd_exact_run *run, const struct nd_exact_call *unit,
                                    struct nd_linear_result *result, struct nd_error *err)
{
    if (!unit->is_known)
        return nd_fail(err, ND_E_EXACT_OPERATOR, NULL, "the unit does not read codes only");
    if (takes_quick(run))
        return nd_linear_unit_quick(&unit->call, result, err);
    return nd_linear_unit(&unit->call, result, err);
}

static bool only_moves(const Onnx__NodeProto *node)
{
    static const char *const movers[] = {"DequantizeLinear", "Flatten", "Identity",  "QuantizeLinear",
                                         "Reshape",          "Squeeze", "Transpose", "Unsqueeze"};
    for (size_t i = 0; i < sizeof movers / sizeof movers[0]; i++)
        if (strcmp(nd_onnx_text(node->op_type), movers[i]) == 0)
            return true;
    return false;
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
            return ND_EXACT_FROM_UNIT;
        tensor = nd_graph_used(run->graph, producer, 0);
    }
    return ND_EXACT_FROM_CONSTANT;
}

/* The codes of the unit by options.make, which may leave *is_made false. */
static enum nd_status make_codes(struct nd_exact_run *run, size_t quantize, const struct nd_exact_call *unit,
                                 struct nd_array *codes, bool *is_made, struct nd_error *err)
{
    enum nd_exact_origin origins[ND_EXACT_MAX_OPERANDS];
    size_t edges[ND_EXACT_MAX_OPERANDS];
    *is_made = false;
    if (run->options->make == NULL || !unit->is_known)
        return ND_OK;
    for (size_t i = 0; i < unit->call.n_inputs; i++) {
        size_t tensor = unit->node != ND_NO_INDEX ? nd_graph_used(run->graph, unit->node, i) : unit->tensor;
        origins[i] = origin_of(run, tensor);
        edges[i] = tensor != ND_NO_INDEX ? run->g->model->tensor_edge[tensor] : ND_NO_INDEX;
    }
    const struct nd_exact_unit asked = {.edge =
                                            run->g->model->tensor_edge[nd_graph_made(run->graph, quantize, 0)],
                                        .call = &unit->call,
                                        .origins = origins,
                                        .input_edges = edges,
                                        .dtype = run->g->quants[quantize].dtype};
    enum nd_status status = run->options->make(run->context, &asked, codes, is_made, err);
    run->is_ended = status != ND_OK;
    return status;
}

/* Its place along the axis of the scales. */
size_t nd_exact_channel(const struct nd_quant *quant, const struct nd_shape *shape, size_t i)
{
    if (quant->n <= 1)
        return 0;
    int axis = quant->axis < 0 ? quant->axis + shape->rank : quant->axis;
    for (int d = shape->rank - 1; d > axis; d--)
        i /= (size_t)shape->dims[d];
    return i % quant->n;
}

size_t nd_exact_inner(const struct nd_quant *quant, const struct nd_shape *shape, size_t n)
{
    size_t inner = quant->n > 1 ? 1 : n;
    int axis = quant->axis < 0 ? quant->axis + shape->rank : quant->axis;
    for (int d = shape->rank - 1; d > axis && quant->n > 1; d--)
        inner *= (size_t)shape->dims[d];
    return inner > 0 ? inner : 1;
}

static enum nd_status round_plainly(const struct nd_exact_run *run, const struct nd_exact_values *values,
                                    struct nd_array *codes)
{
    double low, high;
    if (values->quick != NULL) {
        nd_code_range(values->dtype, &low, &high);
        nd_quick_round(values->quick, (double)values->quant->zero_point[0], low, high, codes->x);
        return ND_OK;
    }
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        codes->x[i] = nd_code_of_ratio(&values->v[i], (double)values->quant->zero_point[channel], values->dtype,
                                       run->options->rounding);
    }
    return ND_OK;
}

static enum nd_status round_ratios(struct nd_exact_run *run, size_t quantize,
                                   const struct nd_linear_result *result, enum nd_exact_way way,
                                   struct nd_array *codes, struct nd_error *err)
{
    const struct nd_node_quant *quant = &run->g->quants[quantize];
    size_t tensor = nd_graph_made(run->graph, quantize, 0);
    const struct nd_exact_values values = {.edge = run->g->model->tensor_edge[tensor],
                                           .shape = &result->shape,
                                           .n = result->n,
                                           .v = result->v,
                                           .quick = result->quick,
                                           .quant = &quant->quant,
                                           .dtype = quant->dtype,
                                           .way = way};
    enum nd_status status = nd_array_make_room(codes, quant->dtype, &result->shape, err);
    if (status != ND_OK)
        return status;
    if (run->options->round == NULL)
        return round_plainly(run, &values, codes);
    status = run->options->round(run->context, &values, codes, err);
    run->is_ended = status != ND_OK;
    return status;
}

/* Real values in steps of the output: quotients by the scale. */
static enum nd_status in_steps(const struct nd_exact_run *run, const struct nd_array *real,
                               const struct nd_quant *quant, struct nd_linear_result *result,
                               struct nd_error *err)
{
    bool is_quick = takes_quick(run) && quant->n == 1 && quant->scale[0] > 0 && isfinite(quant->scale[0]);
    enum nd_status status = is_quick ? nd_linear_make_quick(result, &real->shape, ND_QUICK_QUOTIENT, err)
                                     : nd_linear_make(result, &real->shape, err);
    if (status == ND_OK && is_quick) {
        result->quick->x = real->x;
        result->quick->low = -HUGE_VAL;
        result->quick->high = HUGE_VAL;
        result->quick->scale = (double)quant->scale[0];
    }
    for (size_t i = 0; i < result->n && status == ND_OK && !is_quick; i++) {
        size_t channel = nd_exact_channel(quant, &real->shape, i);
        result->v[i] = nd_ratio_of(real->x[i], (double)quant->scale[channel]);
    }
    return status;
}

/* Section "else": everything in double, and the quotient by the scale rounded by the program. */
static enum nd_status round_values(struct nd_exact_run *run, size_t quantize, struct nd_array *codes,
                                   struct nd_error *err)
{
    const struct nd_node_quant *quant = &run->g->quants[quantize];
    size_t input = nd_graph_used(run->graph, quantize, 0);
    if (quant->quant.n == 0 || quant->dtype == ND_DTYPE_NONE)
        return nd_exact_run_node(run, quantize, err); /* scales computed at run time, blocks */
    enum nd_status status = nd_exact_ensure(run, input, err);
    if (status != ND_OK)
        return status;
    struct nd_linear_result result = {0};
    status = in_steps(run, nd_exact_value(run, input), &quant->quant, &result, err);
    if (status == ND_OK)
        status = round_ratios(run, quantize, &result, ND_EXACT_AS_DOUBLE, codes, err);
    nd_linear_deinit(&result);
    return status;
}

/* The quantisation of a graph input is no unit of a device: it is ONNX's operator on float32, with its division
 * in float32, rounded half to even whatever the program. */
static enum nd_status quantise_input(struct nd_exact_run *run, size_t node, struct nd_array *codes,
                                     struct nd_error *err)
{
    const struct nd_node_quant *quant = &run->g->quants[node];
    const struct nd_array *real = nd_exact_value(run, nd_graph_used(run->graph, node, 0));
    if (real == NULL || real->dtype != ND_DTYPE_F32 || quant->quant.n == 0 || quant->dtype == ND_DTYPE_NONE)
        return ND_ERR_UNSUPPORTED;
    enum nd_status status = nd_array_make(codes, quant->dtype, &real->shape, err);
    for (size_t i = 0; i < codes->n && status == ND_OK; i++) {
        size_t channel = nd_exact_channel(&quant->quant, &real->shape, i);
        float quotient = (float)real->x[i] / quant->quant.scale[channel];
        const struct nd_ratio ratio = nd_ratio_of((double)quotient, 1);
        codes->x[i] = nd_code_of_ratio(&ratio, (double)quant->quant.zero_point[channel], quant->dtype,
                                       ND_ROUND_HALF_EVEN);
    }
    return status;
}

/* By exact values, or in doubles where there are none. */
static enum nd_status evaluate(struct nd_exact_run *run, size_t node, const struct nd_exact_call *unit,
                               struct nd_array *codes, enum nd_exact_way *way, struct nd_error *err)
{
    struct nd_linear_result result;
    struct nd_error ignored = {0};
    enum nd_status status = linear_ratios(run, unit, &result, &ignored);
    *way = status == ND_ERR_UNSUPPORTED ? ND_EXACT_AS_DOUBLE : ND_EXACT_AS_RATIO;
    if (status == ND_ERR_UNSUPPORTED)
        return round_values(run, node, codes, err);
    if (status == ND_OK) {
        status = round_ratios(run, node, &result, *way, codes, err);
        nd_linear_deinit(&result);
    } else if (err != NULL) {
        *err = ignored;
    }
    return status;
}

enum nd_status nd_exact_run_quantize(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    size_t tensor = nd_graph_made(run->graph, node, 0);
    struct nd_array codes = {0};
    size_t edge = tensor != ND_NO_INDEX ? run->g->model->tensor_edge[tensor] : ND_NO_INDEX;
    if (run->options->is_ignored != NULL && edge != ND_NO_INDEX && run->options->is_ignored[edge])
        return ND_OK;
    if (nd_exact_is_skipped(run, tensor))
        return nd_exact_take_given(run, tensor, err);
    bool is_unit = run->g->unit_of_node[node] != ND_NO_INDEX, is_made = false;
    enum nd_exact_way way = is_unit ? ND_EXACT_AS_MADE : ND_EXACT_AS_DOUBLE;
    enum nd_status status;
    struct nd_exact_call unit;
    unit.shared = (struct nd_linear_shared){0};
    unit.is_known = nd_exact_describe(run, node, &unit);
    if (is_unit) {
        status = make_codes(run, node, &unit, &codes, &is_made, err);
    } else {
        status = quantise_input(run, node, &codes, err);
        is_made = status != ND_ERR_UNSUPPORTED;
        status = is_made ? status : ND_OK;
    }
    if (status == ND_OK && !is_made)
        status = evaluate(run, node, &unit, &codes, &way, err);
    nd_linear_shared_deinit(&unit.shared);
    if (status != ND_OK) {
        nd_array_deinit(&codes);
        return status;
    }
    if (run->values[tensor].shape.rank < 0)
        run->values[tensor] = codes;
    return nd_exact_tell(run, tensor, way, err);
}
