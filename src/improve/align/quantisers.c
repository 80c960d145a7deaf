#include "improve/align/quantisers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "arithmetic/exact/linear/rounding.h"
#include "model/graph/onnx.h"
#include "model/graph/quant.h"

/* Operators whose output holds nothing but values of their inputs. Where both have one scale today the device
 * moves codes, and must go on doing so. */
static bool only_passes_on(const char *op_type)
{
    static const char *const passing[] = {
        "Clip",      "Concat",    "DepthToSpace", "Expand",   "Flatten",  "Gather",       "GlobalMaxPool",
        "Identity",  "Max",       "MaxPool",      "Min",      "Pad",      "Relu",         "ReduceMax",
        "Reshape",   "Resize",    "Slice",        "Split",    "Squeeze",  "SpaceToDepth", "Tile",
        "Transpose", "Unsqueeze", "Where",        "GatherND", "ScatterND"};
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
        if (strcmp(op_type, passing[i]) == 0)
            return true;
    return false;
}

/* A scale that is 0, negative or infinite is not known of any device. */
static bool has_one_scale(const struct nd_edge *edge)
{
    return edge->quant.n == 1 && nd_quant_is_sound(&edge->quant);
}

static bool is_same(const struct nd_edge *a, const struct nd_edge *b)
{
    return a->dtype == b->dtype && nd_quant_is_same(&a->quant, &b->quant);
}

struct nd_quantiser *nd_quantiser_of(const struct nd_quantisers *q, size_t edge)
{
    while (q->of_edge[edge] != edge)
        edge = q->of_edge[edge];
    return &q->items[edge];
}

void nd_quantiser_centre(struct nd_quantiser *quantiser)
{
    enum { MIDDLE = 32768, GREATEST = 65535 };
    struct nd_quant *quant = &quantiser->quant;
    double below = (double)quant->zero_point[0] / MIDDLE,
           above = (double)(GREATEST - quant->zero_point[0]) / (GREATEST - MIDDLE);
    quant->scale[0] = nextafterf((float)((double)quant->scale[0] * fmax(below, above)), HUGE_VALF);
    quant->zero_point[0] = MIDDLE;
}

static void join(struct nd_quantisers *q, size_t a, size_t b)
{
    size_t first = (size_t)(nd_quantiser_of(q, a) - q->items),
           second = (size_t)(nd_quantiser_of(q, b) - q->items);
    q->of_edge[first > second ? first : second] = first > second ? second : first;
}

static void join_units(struct nd_quantisers *q, const struct nd_model *model)
{
    for (size_t u = 0; u < model->n_units; u++) {
        const struct nd_model_unit *unit = &model->units[u];
        for (size_t i = 0; i < unit->n_inputs && only_passes_on(unit->op_types); i++)
            if (is_same(&model->edges[unit->inputs[i]], &model->edges[unit->edge]))
                join(q, unit->inputs[i], unit->edge);
    }
}

size_t nd_quantiser_edge(const struct nd_model *model, size_t n)
{
    const struct nd_graph_node *node = &model->graph.nodes[n];
    if (node->kind == ND_NODE_OTHER || node->is_constant || !node->is_alive)
        return ND_NO_INDEX;
    size_t tensor = node->kind == ND_NODE_QUANTIZE ? model->graph.made[node->first_made]
                                                   : model->graph.uses[node->first_use];
    return tensor != ND_NO_INDEX ? model->tensor_edge[tensor] : ND_NO_INDEX;
}

/* Codes that leave the model or enter it, and codes that are read as integers. */
static bool are_bound(const struct nd_model *model, size_t edge)
{
    const struct nd_graph *graph = &model->graph;
    size_t tensor = nd_names_find(&graph->names, model->edges[edge].onnx_name);
    const struct nd_graph_tensor *t = &graph->tensors[tensor];
    bool are = t->producer == ND_NO_INDEX || t->output != ND_NO_INDEX ||
               graph->nodes[t->producer].kind != ND_NODE_QUANTIZE;
    for (size_t r = 0; r < t->n_readers && !are; r++)
        are = graph->nodes[graph->readers[t->first_reader + r]].kind != ND_NODE_DEQUANTIZE;
    return are;
}

/* Quantisers leave out a Clip whose bounds the range has. A coarser scale would move them. */
static bool stands_for_clip(const struct nd_edge *edge, const struct nd_model *float_model)
{
    static const double six = 6, slack = 1e-5; /* Relu6; ranges in float32 */
    double low, high;
    size_t tensor = float_model != NULL ? nd_names_find(&float_model->graph.names, edge->name) : ND_NO_INDEX;
    size_t producer = tensor != ND_NO_INDEX ? float_model->graph.tensors[tensor].producer : ND_NO_INDEX;
    if (producer != ND_NO_INDEX)
        return strcmp(nd_onnx_text(float_model->graph.nodes[producer].proto->op_type), "Clip") == 0;
    nd_code_range(edge->dtype, &low, &high);
    double most = (high - (double)edge->quant.zero_point[0]) * (double)edge->quant.scale[0];
    return (double)edge->quant.zero_point[0] == low && fabs(most - six) < slack;
}

static enum nd_status settle(struct nd_quantisers *q, const struct nd_model *model,
                             const struct nd_model *float_model, struct nd_error *err)
{
    for (size_t e = 0; e < model->n_edges; e++)
        if (!has_one_scale(&model->edges[e]) || are_bound(model, e) ||
            stands_for_clip(&model->edges[e], float_model))
            nd_quantiser_of(q, e)->is_settled = true;
    for (size_t n = 0; n < model->graph.n_nodes; n++) {
        size_t edge = nd_quantiser_edge(model, n);
        struct nd_node_quant quant;
        if (edge == ND_NO_INDEX)
            continue;
        enum nd_status status = nd_node_quant_read(&model->graph, n, model->path, &quant, err);
        if (status != ND_OK)
            return status;
        if (!nd_quant_is_same(&quant.quant, &model->edges[edge].quant))
            nd_quantiser_of(q, edge)->is_settled = true;
        nd_quant_deinit(&quant.quant);
    }
    return ND_OK;
}

/* ---- what may have one scale ---- */

/* Operators that only move values, or choose the greatest: the range of what they read is enough for what they
 * make. The devices move codes only where all scales are equal. */
static bool can_have_one_scale(const char *op_type)
{
    static const char *const moving[] = {"Concat",   "DepthToSpace",  "Expand",       "Flatten", "Gather",
                                         "GatherND", "GlobalMaxPool", "Identity",     "MaxPool", "ReduceMax",
                                         "Reshape",  "Slice",         "SpaceToDepth", "Split",   "Squeeze",
                                         "Tile",     "Transpose",     "Unsqueeze"};
    for (size_t i = 0; i < sizeof moving / sizeof moving[0]; i++)
        if (strcmp(op_type, moving[i]) == 0)
            return true;
    return false;
}

/* An Add of a constant that the devices merge with the ConvTranspose before it: its multiplier is that of the
 * ConvTranspose, with the scale of the Add's output. With one scale for both one power of two does for both. */
bool nd_quantisers_are_merged(const struct nd_model *model, const struct nd_model_unit *unit)
{
    static const char before[] = "ConvTranspose";
    if (unit->n_inputs != 1 || strncmp(unit->op_types, "Add", 3) != 0 ||
        (unit->op_types[3] != '\0' && unit->op_types[3] != '+'))
        return false;
    for (size_t u = 0; u < model->n_units; u++)
        if (model->units[u].edge == unit->inputs[0])
            return strcmp(model->units[u].op_types, before) == 0;
    return false;
}

struct range {
    enum nd_dtype dtype;
    double low, high;    /* of the codes */
    double least, most;  /* real numbers */
    double finest_scale; /* of all */
    size_t n, n_from_0;  /* ranges, and those that begin with 0: the quantiser may stand for a Relu */
    bool is_possible;    /* nobody holds one of the scales */
};

static void widen(struct range *range, const struct nd_quantisers *q, const struct nd_model *model, size_t edge)
{
    const struct nd_quantiser *quantiser = nd_quantiser_of(q, edge);
    if (quantiser->is_settled || quantiser->quant.n != 1 || model->edges[edge].dtype != range->dtype) {
        range->is_possible = false;
        return;
    }
    double scale = (double)quantiser->quant.scale[0], zero = (double)quantiser->quant.zero_point[0];
    range->least = fmin(range->least, (range->low - zero) * scale);
    range->most = fmax(range->most, (range->high - zero) * scale);
    range->finest_scale = fmin(range->finest_scale, scale);
    range->n++;
    range->n_from_0 += zero == range->low;
}

/* The finest quantiser that has the whole range. */
static void cover(const struct range *range, float *scale, int64_t *zero_point)
{
    double step = (range->most - range->least) / (range->high - range->low);
    double zero = fmin(fmax(nearbyint(range->low - range->least / step), range->low), range->high);
    step = zero > range->low ? fmax(step, range->least / (range->low - zero)) : step;
    step = zero < range->high ? fmax(step, range->most / (range->high - zero)) : step;
    *scale = (float)step;
    if ((double)*scale < step)
        *scale = nextafterf(*scale, HUGE_VALF);
    *zero_point = (int64_t)zero;
}

/* Chosen: beyond it what has the finest scale would lose more than two bits, and stays as it is. */
static const double most_coarser = 4;

/* ---- scales that are powers of two apart ---- */

/* The scale of an operand, from `scale` on, that is a power of two of the output's. */
static double related(double out_scale, double scale)
{
    static const double slack = 1e-6; /* float32 scales */
    return ldexp(out_scale, -(int)floor(log2(out_scale / scale) + slack));
}

static bool is_scale(double v)
{
    return isnormal((float)v) && v > 0;
}

/* How much coarser the scales of a Concat become with that scale of its output, squared; HUGE_VAL: one that is
 * settled would have to change, or would be no number of float32. */
static double relation_cost(const struct nd_quantisers *q, const struct nd_model_unit *unit, double out_scale)
{
    static const double slack = 1e-6;
    double out = out_scale / (double)nd_quantiser_of(q, unit->edge)->quant.scale[0], cost = out * out;
    for (size_t i = 0; i < unit->n_inputs; i++) {
        const struct nd_quantiser *x = nd_quantiser_of(q, unit->inputs[i]);
        double factor = related(out_scale, (double)x->quant.scale[0]) / (double)x->quant.scale[0];
        if ((x->is_settled && fabs(factor - 1) > slack) || !is_scale(factor * (double)x->quant.scale[0]) ||
            !is_scale(out_scale))
            return HUGE_VAL;
        cost += factor * factor;
    }
    return cost;
}

/* The devices do not make the codes of such an operand in its own encoding: what makes it multiplies by the
 * scale of the Concat at once. If the two are a power of two apart, that is a power of two again. */
static void relate(struct nd_quantisers *q, const struct nd_model *model, const struct nd_model_unit *unit)
{
    struct nd_quantiser *y = nd_quantiser_of(q, unit->edge);
    double old = (double)y->quant.scale[0], best = 0, least = HUGE_VAL;
    if (strcmp(unit->op_types, "Concat") != 0 || y->is_settled)
        return;
    for (size_t i = 0; i < unit->n_inputs; i++)
        if (nd_quantiser_of(q, unit->inputs[i])->quant.n != 1 ||
            model->edges[unit->inputs[i]].dtype != model->edges[unit->edge].dtype)
            return;
    for (size_t i = 0; i <= unit->n_inputs; i++) { /* one of the operands keeps its scale, or the output does */
        double from = i < unit->n_inputs ? (double)nd_quantiser_of(q, unit->inputs[i])->quant.scale[0] : old;
        double scale = ldexp(from, (int)ceil(log2(old / from) - 1e-6)), cost = relation_cost(q, unit, scale);
        best = cost < least ? scale : best;
        least = fmin(cost, least);
    }
    if (!(least < HUGE_VAL))
        return;
    y->quant.scale[0] = (float)best;
    y->is_settled = true;
    for (size_t i = 0; i < unit->n_inputs; i++) {
        struct nd_quantiser *x = nd_quantiser_of(q, unit->inputs[i]);
        if (!x->is_settled)
            x->quant.scale[0] = (float)related((double)y->quant.scale[0], (double)x->quant.scale[0]);
        x->is_settled = true;
    }
}

/* ---- common scales ---- */

static void make_common(struct nd_quantisers *q, const struct nd_model *model)
{
    for (size_t u = 0; u < model->n_units; u++) {
        const struct nd_model_unit *unit = &model->units[u];
        struct range range = {
            .dtype = model->edges[unit->edge].dtype, .finest_scale = HUGE_VAL, .is_possible = true};
        bool is_same = true;
        float scale = 0;
        int64_t zero = 0;
        if (!(can_have_one_scale(unit->op_types) || nd_quantisers_are_merged(model, unit)) ||
            !has_one_scale(&model->edges[unit->edge]))
            continue;
        nd_code_range(range.dtype, &range.low, &range.high);
        widen(&range, q, model, unit->edge);
        for (size_t i = 0; i < unit->n_inputs; i++) {
            widen(&range, q, model, unit->inputs[i]);
            is_same = is_same && nd_quantiser_of(q, unit->inputs[i]) == nd_quantiser_of(q, unit->edge);
        }
        if (is_same)
            continue;
        bool has_one = range.is_possible && (range.n_from_0 == 0 || range.n_from_0 == range.n);
        if (has_one)
            cover(&range, &scale, &zero);
        if (!has_one || (double)scale > most_coarser * range.finest_scale) {
            relate(q, model, unit);
            continue;
        }
        for (size_t i = 0; i < unit->n_inputs; i++)
            join(q, unit->inputs[i], unit->edge);
        nd_quantiser_of(q, unit->edge)->quant.scale[0] = scale;
        nd_quantiser_of(q, unit->edge)->quant.zero_point[0] = zero;
    }
}

enum nd_status nd_quantisers_init(struct nd_quantisers *q, const struct nd_model *model,
                                  const struct nd_model *float_model, struct nd_error *err)
{
    *q = (struct nd_quantisers){.items = nd_calloc(model->n_edges, sizeof *q->items),
                                .of_edge = nd_calloc(model->n_edges, sizeof *q->of_edge),
                                .n_edges = model->n_edges};
    if (q->items == NULL || q->of_edge == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < model->n_edges; e++) {
        const struct nd_quant *old = &model->edges[e].quant;
        struct nd_quant *quant = &q->items[e].quant;
        q->of_edge[e] = e;
        if (!has_one_scale(&model->edges[e]))
            continue;
        *quant = (struct nd_quant){.n = 1,
                                   .axis = -1,
                                   .scale = nd_calloc(1, sizeof *quant->scale),
                                   .zero_point = nd_calloc(1, sizeof *quant->zero_point)};
        if (quant->scale == NULL || quant->zero_point == NULL)
            return nd_fail_memory(err);
        quant->scale[0] = q->items[e].old_scale = old->scale[0];
        quant->zero_point[0] = q->items[e].old_zero_point = old->zero_point[0];
    }
    join_units(q, model);
    enum nd_status status = settle(q, model, float_model, err);
    if (status == ND_OK)
        make_common(q, model);
    return status;
}

void nd_quantisers_deinit(struct nd_quantisers *q)
{
    for (size_t e = 0; q->items != NULL && e < q->n_edges; e++)
        nd_quant_deinit(&q->items[e].quant);
    free(q->items);
    free(q->of_edge);
    *q = (struct nd_quantisers){0};
}
