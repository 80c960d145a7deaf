#include "improve/align/align_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "improve/align/align_constants.h"
#include "improve/align/align_stages.h"
#include "improve/align/layer.h"
#include "improve/align/observed.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "arithmetic/exact/eval_graph.h"
#include "explain/plan/reader.h"

enum { W = 1, B = 2 };

/* ---- what is kept ---- */

static bool keep(struct nd_align_plan *plan, void *block)
{
    if (!nd_grow((void **)&plan->kept, &plan->kept_capacity, plan->n_kept + 1, sizeof *plan->kept)) {
        free(block);
        return false;
    }
    plan->kept[plan->n_kept++] = block;
    return true;
}

static enum nd_status add_node(struct nd_align_plan *plan, const struct nd_recoded_node *node,
                               struct nd_error *err)
{
    if (!nd_grow((void **)&plan->nodes, &plan->nodes_capacity, plan->n_nodes + 1, sizeof *plan->nodes))
        return nd_fail_memory(err);
    plan->nodes[plan->n_nodes++] = *node;
    return ND_OK;
}

/* A constant operand of the layer, whose values go over to the plan. */
static enum nd_status add_constant(struct nd_align_plan *plan, size_t node, struct nd_align_layer *layer,
                                   size_t i, struct nd_error *err)
{
    struct nd_quant *quant = nd_calloc(1, sizeof *quant);
    if (quant == NULL)
        return nd_fail_memory(err);
    *quant = layer->quants[i];
    layer->quants[i] = (struct nd_quant){.axis = -1};
    struct nd_recoded_node item = {
        .node = node, .quant = quant, .codes = layer->codes[i].x, .n_codes = layer->codes[i].n};
    layer->codes[i].x = NULL;
    bool is_kept = keep(plan, (void *)(uintptr_t)item.codes);
    is_kept = keep(plan, quant->scale) && is_kept;
    is_kept = keep(plan, quant->zero_point) && is_kept;
    is_kept = keep(plan, quant) && is_kept;
    return is_kept ? add_node(plan, &item, err) : nd_fail_memory(err);
}

/* ---- one layer ---- */

struct place {
    size_t weights, bias; /* DequantizeLinear nodes, or ND_NO_INDEX */
    bool is_shared;
};

static void note(struct nd_align_step *step, const struct nd_align_layer *layer, bool is_from_float)
{
    step->is_planned = true;
    step->obstacle = NULL;
    step->exponent = layer->exponent[0];
    step->output_factor = layer->scales.output_factor;
    step->weight_factor = layer->scales.weight_factor;
    step->has_weights = layer->has_weights;
    step->is_from_float = is_from_float;
    for (size_t c = 0; c < layer->quants[W].n; c++) {
        step->has_exponents = step->has_exponents || layer->exponent[c] != layer->exponent[0];
        step->exponent = layer->exponent[c] > step->exponent ? layer->exponent[c] : step->exponent;
    }
}

/* Chooses what remains to be chosen, and settles the quantisers that it rests on. */
static enum nd_status take_over(struct nd_align_plan *plan, struct nd_align_layer *layer,
                                const struct place *place, bool is_from_float, struct nd_error *err)
{
    struct nd_quantiser *y = nd_quantiser_of(&plan->quantisers, layer->unit->edge);
    size_t n_left;
    enum nd_status status = nd_align_find_bias(layer, plan->programs, plan->n_programs, &n_left, err);
    if (status != ND_OK)
        return status;
    note(&plan->steps[layer->unit->edge], layer, is_from_float);
    y->quant.scale[0] = layer->output.scale[0];
    y->quant.zero_point[0] = layer->output.zero_point[0];
    y->is_settled = true;
    for (size_t i = 0; i < layer->call.n_inputs; i++)
        if (layer->unit->input_edges[i] != SIZE_MAX)
            nd_quantiser_of(&plan->quantisers, layer->unit->input_edges[i])->is_settled = true;
    if (layer->has_weights)
        status = add_constant(plan, place->weights, layer, W, err);
    if (status == ND_OK && layer->bias != NULL)
        status = add_constant(plan, place->bias, layer, B, err);
    return status;
}

/* A calculated uint16 operand becomes 8-bit numbers around its zero point. Where that is in the middle they are
 * all that 8 bits hold, and none is rescaled. A range that begins with 0 stays: it may stand for a Relu. */
static void centre_second_operand(const struct nd_exact_unit *unit, struct nd_quantiser *w,
                                  const struct nd_quantiser *y)
{
    bool is_calculated = unit->origins[W] == ND_EXACT_FROM_UNIT;
    if (is_calculated && w != NULL && w->quant.zero_point[0] > 0 && !w->is_settled && !y->is_settled &&
        unit->dtype == ND_DTYPE_U16 && unit->call->inputs[W].values->dtype == ND_DTYPE_U16)
        nd_quantiser_centre(w);
}

static const struct nd_observed_layer *seen_of(const struct nd_align_plan *plan, size_t edge)
{
    bool is_seen = plan->observed != NULL && plan->observed->layers[edge].n_rows > 0;
    return is_seen ? &plan->observed->layers[edge] : NULL;
}

static enum nd_status plan_layer(struct nd_align_plan *plan, const struct nd_exact_unit *unit,
                                 const struct place *place, struct nd_error *err)
{
    struct nd_align_step *step = &plan->steps[unit->edge];
    const struct nd_linear_call *call = unit->call;
    const struct nd_quantiser *y = nd_quantiser_of(&plan->quantisers, unit->edge);
    struct nd_align_layer layer = {0};
    double *weights = NULL, *bias = NULL;
    if (unit->input_edges[0] == SIZE_MAX ||
        (unit->origins[W] != ND_EXACT_FROM_CONSTANT && unit->input_edges[W] == SIZE_MAX)) {
        step->obstacle = "an input is not quantised with one scale";
        return ND_OK;
    }
    const struct nd_quantiser *x = nd_quantiser_of(&plan->quantisers, unit->input_edges[0]);
    struct nd_quantiser *w =
        unit->input_edges[W] != SIZE_MAX ? nd_quantiser_of(&plan->quantisers, unit->input_edges[W]) : NULL;
    if (x->quant.n != 1 || y->quant.n != 1 || (w != NULL && w->quant.n != 1)) {
        step->obstacle = "an input or the output has a scale per channel, or one that is no positive number";
        return ND_OK;
    }
    centre_second_operand(unit, w, y);
    enum nd_status status = nd_align_find_floats(plan, place->weights, &call->inputs[W], &weights, err);
    if (status == ND_OK && place->bias != ND_NO_INDEX && weights != NULL)
        status = nd_align_find_floats(plan, place->bias, &call->inputs[B], &bias, err);
    const struct nd_align_now now = {.scale_x = x->quant.scale[0],
                                     .scale_w = w != NULL ? w->quant.scale[0] : 0,
                                     .scale_y = y->quant.scale[0],
                                     .zero_x = x->quant.zero_point[0],
                                     .zero_w = w != NULL ? w->quant.zero_point[0] : 0,
                                     .zero_y = y->quant.zero_point[0],
                                     .is_y_settled = y->is_settled,
                                     .float_weights = weights,
                                     .float_bias = bias,
                                     .seen = seen_of(plan, unit->edge)};
    if (status == ND_OK)
        status = nd_align_layer_init(&layer, unit, &now, &step->obstacle, err);
    if (status == ND_OK && step->obstacle == NULL)
        status = take_over(plan, &layer, place, weights != NULL, err);
    nd_align_layer_deinit(&layer);
    free(weights);
    free(bias);
    return status;
}

/* A nd_exact_make that makes nothing: the units come in the order of the graph, with all that they read. */
static enum nd_status visit(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                            bool *is_made, struct nd_error *err)
{
    struct nd_align_plan *plan = context;
    (void)codes;
    *is_made = false;
    if (unit->call->node == NULL || !nd_align_is_product(nd_onnx_text(unit->call->node->op_type)) ||
        plan->steps[unit->edge].is_planned)
        return ND_OK;
    if (plan->is_chosen != NULL && !plan->is_chosen[unit->edge]) {
        plan->steps[unit->edge].obstacle = "it was not chosen";
        return ND_OK;
    }
    const struct nd_graph *graph = &plan->model->graph;
    size_t node = nd_align_node_of(graph, unit->call->node);
    struct place place = {ND_NO_INDEX, ND_NO_INDEX, false};
    if (unit->call->n_inputs > W && unit->origins[W] == ND_EXACT_FROM_CONSTANT)
        place.weights = nd_align_dequantizer_of(graph, node, W, &place.is_shared);
    if (unit->call->n_inputs > B)
        place.bias = nd_align_dequantizer_of(graph, node, B, &place.is_shared);
    if (place.is_shared) {
        plan->steps[unit->edge].obstacle = "its weights or its bias are shared with another layer";
        return ND_OK;
    }
    return plan_layer(plan, unit, &place, err);
}

/* ---- the whole model ---- */

static enum nd_status visit_all(struct nd_align_plan *plan, struct nd_error *err)
{
    struct nd_exact_graph *graph = NULL;
    struct nd_array *inputs;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = visit, .missed = nd_exact_let_go};
    enum nd_status status = nd_inputs_create(plan->model, &inputs, err);
    if (status == ND_OK)
        status = nd_exact_graph_create(plan->model, &graph, err);
    if (status == ND_OK)
        status = nd_exact_graph_run(graph, inputs, &options, NULL, plan, err);
    nd_exact_graph_destroy(&graph);
    nd_inputs_destroy(plan->model, &inputs);
    return status;
}

/* The QuantizeLinear and DequantizeLinear nodes of edges that have another scale now. */
static enum nd_status add_quantisers(struct nd_align_plan *plan, struct nd_error *err)
{
    const struct nd_graph *graph = &plan->model->graph;
    enum nd_status status = ND_OK;
    for (size_t n = 0; n < graph->n_nodes && status == ND_OK; n++) {
        size_t edge = nd_quantiser_edge(plan->model, n);
        if (edge == ND_NO_INDEX)
            continue;
        const struct nd_quantiser *q = nd_quantiser_of(&plan->quantisers, edge),
                                  *old = &plan->quantisers.items[edge];
        if (q->quant.n == 1 &&
            (q->quant.scale[0] != old->old_scale || q->quant.zero_point[0] != old->old_zero_point))
            status = add_node(plan, &(struct nd_recoded_node){.node = n, .quant = &q->quant}, err);
    }
    return status;
}

/* A layer that is not chosen goes on as it is: its bias rests on the scale of its input. */
static void settle_others(struct nd_align_plan *plan)
{
    for (size_t u = 0; u < plan->model->n_units && plan->is_chosen != NULL; u++) {
        const struct nd_model_unit *unit = &plan->model->units[u];
        if (plan->is_chosen[unit->edge] || !nd_align_is_product(unit->op_types))
            continue;
        nd_quantiser_of(&plan->quantisers, unit->edge)->is_settled = true;
        for (size_t i = 0; i < unit->n_inputs; i++)
            nd_quantiser_of(&plan->quantisers, unit->inputs[i])->is_settled = true;
    }
}

enum nd_status nd_align_plan_make(struct nd_align_plan *plan, struct nd_error *err)
{
    enum nd_status status = nd_quantisers_init(&plan->quantisers, plan->model, plan->float_model, err);
    plan->steps = nd_calloc(plan->model->n_edges, sizeof *plan->steps);
    if (status == ND_OK && plan->steps == NULL)
        status = nd_fail_memory(err);
    for (size_t e = 0; status == ND_OK && e < plan->model->n_edges; e++)
        plan->steps[e].obstacle = "npudiff cannot evaluate an operator before it";
    if (status == ND_OK) {
        settle_others(plan);
        status = visit_all(plan, err);
    }
    return status == ND_OK ? add_quantisers(plan, err) : status;
}

void nd_align_plan_deinit(struct nd_align_plan *plan)
{
    for (size_t i = 0; i < plan->n_kept; i++)
        free(plan->kept[i]);
    free(plan->kept);
    free(plan->nodes);
    free(plan->steps);
    nd_quantisers_deinit(&plan->quantisers);
}
