/* Each layer of the written model, as it was read again: what the arithmetics make of all that it can read. */
#include "improve/align/align_stages.h"

#include <math.h>

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/known/conditions.h"
#include "arithmetic/trials/alternatives.h"
#include "arithmetic/variants/layer_other.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "explain/plan/replay.h"
#include "model/graph/constants.h"
#include "model/graph/onnx.h"

/* Operators that only move values, or choose the greatest: the range of what they read is enough for what they
 * make. The devices move quantised values only where all scales are equal. */
static bool can_have_one_scale(const char *op_type)
{
    return ND_IS_ONE_OF(op_type, "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherND",
                        "GlobalMaxPool", "Identity", "MaxPool", "ReduceMax", "Reshape", "Slice", "SpaceToDepth",
                        "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze");
}

/* Operators whose output holds nothing but values of their inputs. Where both have one scale today the device
 * moves quantised values, and must go on doing so. */
static bool only_passes_on(const char *op_type)
{
    return can_have_one_scale(op_type) ||
           ND_IS_ONE_OF(op_type, "Clip", "Max", "Min", "Pad", "Relu", "Resize", "ScatterND", "Where");
}

/* A scale that is 0, negative or infinite is not known of any device. */
static bool has_one_scale(const struct nd_tensor *tensor)
{
    return tensor->quant.n == 1 && nd_quant_is_sound(&tensor->quant);
}

static bool is_same(const struct nd_tensor *a, const struct nd_tensor *b)
{
    return a->dtype == b->dtype && nd_quant_is_same(&a->quant, &b->quant);
}

struct nd_quantiser *nd_quantiser_of(const struct nd_quantisers *q, size_t tensor)
{
    while (q->of_tensor[tensor] != tensor)
        tensor = q->of_tensor[tensor];
    return &q->items[tensor];
}

static void join(struct nd_quantisers *q, size_t a, size_t b)
{
    size_t first = (size_t)(nd_quantiser_of(q, a) - q->items),
           second = (size_t)(nd_quantiser_of(q, b) - q->items);
    q->of_tensor[first > second ? first : second] = first > second ? second : first;
}

size_t nd_quantiser_tensor(const struct nd_model *model, size_t n)
{
    const struct nd_graph_node *node = &model->graph.nodes[n];
    if (node->kind == ND_NODE_OTHER || node->is_constant || !node->is_alive)
        return ND_NO_INDEX;
    size_t tensor = node->kind == ND_NODE_QUANTIZE ? model->graph.made[node->first_made]
                                                   : model->graph.uses[node->first_use];
    return tensor != ND_NO_INDEX ? model->tensor_of_value[tensor] : ND_NO_INDEX;
}

/* Quantised values that leave the model or enter it, and quantised values that are read as integers. */
static bool are_bound(const struct nd_model *model, size_t tensor)
{
    const struct nd_graph *graph = &model->graph;
    size_t value = nd_names_find(&graph->names, model->tensors[tensor].onnx_name);
    const struct nd_graph_tensor *t = &graph->tensors[value];
    bool are = t->producer == ND_NO_INDEX || t->output != ND_NO_INDEX ||
               graph->nodes[t->producer].kind != ND_NODE_QUANTIZE;
    for (size_t r = 0; r < t->n_readers && !are; r++)
        are = graph->nodes[graph->readers[t->first_reader + r]].kind != ND_NODE_DEQUANTIZE;
    return are;
}

/* Quantisers leave out a Clip whose bounds the range has. A coarser scale would move them. */
static bool stands_for_clip(const struct nd_tensor *tensor, const struct nd_model *float_model)
{
    static const double six = 6, slack = 1e-5; /* Relu6; ranges in float32 */
    double low, high;
    size_t value = float_model != NULL ? nd_names_find(&float_model->graph.names, tensor->name) : ND_NO_INDEX;
    size_t producer = value != ND_NO_INDEX ? float_model->graph.tensors[value].producer : ND_NO_INDEX;
    if (producer != ND_NO_INDEX)
        return strcmp(nd_onnx_text(float_model->graph.nodes[producer].proto->op_type), "Clip") == 0;
    nd_qvalue_range(tensor->dtype, &low, &high);
    double most = (high - (double)tensor->quant.zero_point[0]) * (double)tensor->quant.scale[0];
    return (double)tensor->quant.zero_point[0] == low && fabs(most - six) < slack;
}

static enum nd_status settle(struct nd_quantisers *q, const struct nd_model *model,
                             const struct nd_model *float_model, struct nd_error *err)
{
    for (size_t e = 0; e < model->n_tensors; e++)
        if (!has_one_scale(&model->tensors[e]) || are_bound(model, e) ||
            stands_for_clip(&model->tensors[e], float_model))
            nd_quantiser_of(q, e)->is_settled = true;
    for (size_t n = 0; n < model->graph.n_nodes; n++) {
        size_t tensor = nd_quantiser_tensor(model, n);
        struct nd_node_quant quant;
        if (tensor == ND_NO_INDEX)
            continue;
        ND_TRY(nd_node_quant_read(&model->graph, n, model->path, &quant, err));
        if (!nd_quant_is_same(&quant.quant, &model->tensors[tensor].quant))
            nd_quantiser_of(q, tensor)->is_settled = true;
        nd_quant_deinit(&quant.quant);
    }
    return ND_OK;
}

/* ---- what may have one scale ---- */

/* An Add of a constant that the devices merge with the ConvTranspose before it: its multiplier is that of the
 * ConvTranspose, with the scale of the Add's output. With one scale for both one power of two does for both. */
static bool nd_quantisers_are_merged(const struct nd_model *model, const struct nd_model_layer *layer)
{
    static const char before[] = "ConvTranspose";
    if (layer->n_inputs != 1 || strncmp(layer->op_types, "Add", 3) != 0 ||
        (layer->op_types[3] != '\0' && layer->op_types[3] != '+'))
        return false;
    for (size_t u = 0; u < model->n_layers; u++)
        if (model->layers[u].tensor == layer->inputs[0])
            return strcmp(model->layers[u].op_types, before) == 0;
    return false;
}

struct range {
    enum nd_dtype dtype;
    double low, high;    /* of the quantised values */
    double least, most;  /* real numbers */
    double finest_scale; /* of all */
    size_t n, n_from_0;  /* ranges, and those that begin with 0: the quantiser may stand for a Relu */
    bool is_possible;    /* nobody holds one of the scales */
};

static void widen(struct range *range, const struct nd_quantisers *q, const struct nd_model *model,
                  size_t tensor)
{
    const struct nd_quantiser *quantiser = nd_quantiser_of(q, tensor);
    if (quantiser->is_settled || quantiser->quant.n != 1 || model->tensors[tensor].dtype != range->dtype) {
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
static const double max_coarser = 4;

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
static double relation_cost(const struct nd_quantisers *q, const struct nd_model_layer *layer, double out_scale)
{
    static const double slack = 1e-6;
    double out = out_scale / (double)nd_quantiser_of(q, layer->tensor)->quant.scale[0], cost = out * out;
    for (size_t i = 0; i < layer->n_inputs; i++) {
        const struct nd_quantiser *x = nd_quantiser_of(q, layer->inputs[i]);
        double factor = related(out_scale, (double)x->quant.scale[0]) / (double)x->quant.scale[0];
        if ((x->is_settled && fabs(factor - 1) > slack) || !is_scale(factor * (double)x->quant.scale[0]) ||
            !is_scale(out_scale))
            return HUGE_VAL;
        cost += factor * factor;
    }
    return cost;
}

/* The devices do not make the quantised values of such an operand in its own encoding: what makes it multiplies
 * by the scale of the Concat at once. If the two are a power of two apart, that is a power of two again. */
static void relate(struct nd_quantisers *q, const struct nd_model *model, const struct nd_model_layer *layer)
{
    struct nd_quantiser *y = nd_quantiser_of(q, layer->tensor);
    double old = (double)y->quant.scale[0], best = 0, least = HUGE_VAL;
    if (strcmp(layer->op_types, "Concat") != 0 || y->is_settled)
        return;
    for (size_t i = 0; i < layer->n_inputs; i++)
        if (nd_quantiser_of(q, layer->inputs[i])->quant.n != 1 ||
            model->tensors[layer->inputs[i]].dtype != model->tensors[layer->tensor].dtype)
            return;
    for (size_t i = 0; i <= layer->n_inputs;
         i++) { /* one of the operands keeps its scale, or the output does */
        double from = i < layer->n_inputs ? (double)nd_quantiser_of(q, layer->inputs[i])->quant.scale[0] : old;
        double scale = ldexp(from, (int)ceil(log2(old / from) - 1e-6)), cost = relation_cost(q, layer, scale);
        best = cost < least ? scale : best;
        least = fmin(cost, least);
    }
    if (!(least < HUGE_VAL))
        return;
    y->quant.scale[0] = (float)best;
    y->is_settled = true;
    for (size_t i = 0; i < layer->n_inputs; i++) {
        struct nd_quantiser *x = nd_quantiser_of(q, layer->inputs[i]);
        if (!x->is_settled)
            x->quant.scale[0] = (float)related((double)y->quant.scale[0], (double)x->quant.scale[0]);
        x->is_settled = true;
    }
}

/* ---- common scales ---- */

static void make_common(struct nd_quantisers *q, const struct nd_model *model)
{
    for (size_t u = 0; u < model->n_layers; u++) {
        const struct nd_model_layer *layer = &model->layers[u];
        struct range range = {
            .dtype = model->tensors[layer->tensor].dtype, .finest_scale = HUGE_VAL, .is_possible = true};
        bool is_same = true;
        float scale = 0;
        int64_t zero = 0;
        if (!(can_have_one_scale(layer->op_types) || nd_quantisers_are_merged(model, layer)) ||
            !has_one_scale(&model->tensors[layer->tensor]))
            continue;
        nd_qvalue_range(range.dtype, &range.low, &range.high);
        widen(&range, q, model, layer->tensor);
        for (size_t i = 0; i < layer->n_inputs; i++) {
            widen(&range, q, model, layer->inputs[i]);
            is_same = is_same && nd_quantiser_of(q, layer->inputs[i]) == nd_quantiser_of(q, layer->tensor);
        }
        if (is_same)
            continue;
        bool has_one = range.is_possible && (range.n_from_0 == 0 || range.n_from_0 == range.n);
        if (has_one)
            cover(&range, &scale, &zero);
        if (!has_one || (double)scale > max_coarser * range.finest_scale) {
            relate(q, model, layer);
            continue;
        }
        for (size_t i = 0; i < layer->n_inputs; i++)
            join(q, layer->inputs[i], layer->tensor);
        nd_quantiser_of(q, layer->tensor)->quant.scale[0] = scale;
        nd_quantiser_of(q, layer->tensor)->quant.zero_point[0] = zero;
    }
}

enum nd_status nd_quantisers_init(struct nd_quantisers *q, const struct nd_model *model,
                                  const struct nd_model *float_model, struct nd_error *err)
{
    *q = (struct nd_quantisers){.items = nd_calloc(model->n_tensors, sizeof *q->items),
                                .of_tensor = nd_calloc(model->n_tensors, sizeof *q->of_tensor),
                                .n_tensors = model->n_tensors};
    ND_TRY_MEMORY(q->items != NULL && q->of_tensor != NULL, err);
    for (size_t e = 0; e < model->n_tensors; e++) {
        const struct nd_quant *old = &model->tensors[e].quant;
        struct nd_quant *quant = &q->items[e].quant;
        q->of_tensor[e] = e;
        if (!has_one_scale(&model->tensors[e]))
            continue;
        *quant = (struct nd_quant){.n = 1,
                                   .axis = -1,
                                   .scale = nd_calloc(1, sizeof *quant->scale),
                                   .zero_point = nd_calloc(1, sizeof *quant->zero_point)};
        ND_TRY_MEMORY(quant->scale != NULL && quant->zero_point != NULL, err);
        quant->scale[0] = q->items[e].old_scale = old->scale[0];
        quant->zero_point[0] = q->items[e].old_zero_point = old->zero_point[0];
    }
    for (size_t u = 0; u < model->n_layers; u++) {
        const struct nd_model_layer *layer = &model->layers[u];
        for (size_t i = 0; i < layer->n_inputs && only_passes_on(layer->op_types); i++)
            if (is_same(&model->tensors[layer->inputs[i]], &model->tensors[layer->tensor]))
                join(q, layer->inputs[i], layer->tensor);
    }
    ND_TRY(settle(q, model, float_model, err));
    make_common(q, model);
    return ND_OK;
}

void nd_quantisers_deinit(struct nd_quantisers *q)
{
    for (size_t e = 0; q->items != NULL && e < q->n_tensors; e++)
        nd_quant_deinit(&q->items[e].quant);
    ND_FREE_ALL(q->items, q->of_tensor);
    *q = (struct nd_quantisers){0};
}

static const char no_bringing[] = "it is not known how the device brings an input to its encoding";
static const char several_bringings[] = "the ways to bring an input to its encoding give different values";

/* The layer with another quantiser of its output. The call is the caller's, and has to stay. */
static struct nd_exact_layer nd_align_layer_with_output(const struct nd_exact_layer *layer,
                                                        const struct nd_quant *output,
                                                        struct nd_linear_call *call)
{
    struct nd_exact_layer other = *layer;
    *call = *layer->call;
    call->out_quant = output;
    call->shared = NULL;
    other.call = call;
    return other;
}

/* ---- an input that is rescaled ---- */

static bool are_equal(const struct nd_array *a, const struct nd_array *b)
{
    bool are = a->n == b->n;
    for (size_t k = 0; k < a->n && are; k++)
        are = a->x[k] == b->x[k];
    return are;
}

/* A function of one input is brought as it is made, by a table; all else in one of two ways, by a layout that
 * the model does not say. */
static enum nd_status prove_rescaling(const struct nd_model *model, const struct nd_exact_layer *layer,
                                      size_t i, const char **reason, struct nd_error *err)
{
    enum { N_QVALUES = UINT8_MAX + 1 };
    const struct nd_shape shape = {1, {N_QVALUES}};
    struct nd_array all = nd_no_array();
    struct nd_layer_brought first = {.is_covered = false}, second = {.is_covered = false};
    bool is_table = nd_layer_is_table(model, nd_model_layer_of_tensor(model, layer->input_tensors[i]));
    enum nd_status status = nd_array_make(&all, ND_DTYPE_U8, &shape, err);
    for (size_t k = 0; status == ND_OK && k < N_QVALUES; k++)
        all.x[k] = (double)k;
    if (status == ND_OK)
        status = nd_layer_bring(layer, i, &all, NULL, is_table ? ND_BRING_TABLE : ND_BRING_FLAT, &first, err);
    if (status == ND_OK)
        status =
            nd_layer_bring(layer, i, &all, NULL, is_table ? ND_BRING_TABLE : ND_BRING_LAYOUT, &second, err);
    if (status == ND_OK && (!first.is_covered || !second.is_covered))
        *reason = no_bringing;
    else if (status == ND_OK && !are_equal(&first.qvalues, &second.qvalues))
        *reason = several_bringings;
    nd_array_deinit(&all);
    nd_array_deinit(&first.qvalues);
    nd_array_deinit(&second.qvalues);
    return status;
}

/* ---- what makes an input ---- */

static bool is_made_by_space_to_depth(const struct nd_model *model, size_t tensor)
{
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
    return maker != NULL && strcmp(maker->op_types, "SpaceToDepth") == 0;
}

/* Whether an operator makes the values with the encoding of the Concat, and those that are between only hand
 * them on: not an input of the model, nor what a Split takes from one encoding to the other, nor what has the
 * zero point 0: of Conv alone it was seen that they make it so where the Concat has it, too. */
static bool is_made_for(const struct nd_alternatives *a, const struct nd_model *model, size_t tensor, size_t to)
{
    while (nd_fused_part_of(a, tensor, to) != SIZE_MAX) {
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
        if (!nd_layer_carries(maker))
            return nd_divided_from(model, tensor) == NULL &&
                   nd_model_tensor(model, tensor)->quant.zero_point[0] != 0;
        if (maker->n_inputs != 1)
            return false;
        tensor = maker->inputs[0];
    }
    return false;
}

/* Whether nobody needs to know how a device brings the inputs of this Concat to its encoding, where their
 * makers do not do it (part of `alternatives`): every way that is known gives the same values for each of the
 * 256. *reason, static, says why it is not so; NULL: it is. ND_ERR_MEMORY. */
static enum nd_status nd_align_prove_bringing(const struct nd_alternatives *a, const struct nd_model *model,
                                              const struct nd_exact_layer *layer, const char **reason,
                                              struct nd_error *err)
{
    *reason = layer->dtype != ND_DTYPE_U8 || nd_layer_is(model, layer, ND_LAYER_CONCAT_WITH_INPUT) ? no_bringing
                                                                                                   : NULL;
    for (size_t i = 0; i < nd_layer_n_inputs(layer) && *reason == NULL; i++) {
        size_t tensor = layer->input_tensors[i];
        const struct nd_quant *quant = layer->call->inputs[i].quant;
        if (tensor == SIZE_MAX || quant == NULL || quant->n != 1 || layer->call->inputs[i].values == NULL ||
            layer->call->inputs[i].values->dtype != layer->dtype) {
            *reason = no_bringing;
            return ND_OK;
        }
        if (nd_layer_keeps_encoding(layer, i) || is_made_for(a, model, tensor, layer->tensor))
            continue;
        if (nd_fused_part_of(a, tensor, layer->tensor) != SIZE_MAX || is_made_by_space_to_depth(model, tensor))
            *reason = no_bringing;
        else
            ND_TRY(prove_rescaling(model, layer, i, reason, err));
    }
    return ND_OK;
}

static const char no_arithmetic[] = "its arithmetic is not known";
static const char near_arithmetic[] = "its arithmetic is known only approximately";
static const char no_operand[] = "it is not known how the device reads its second operand";
static const char moved_operand[] = "the device rescales its second operand, which depends on the values";
static const char merged_layer[] = "the devices merge it with the ConvTranspose before it";
static const char merged_swish[] =
    "newer devices make it with the product before it in one operation, which is not known";
static const char has_counterexample[] = "for some sums the arithmetics give different values";
static const char other_arithmetic[] = "the arithmetics differ for this operator";
static const char maker_differs[] = "what makes an input makes it with this layer's scale, and can differ then";
static const char maker_unknown[] =
    "what makes an input makes it with this layer's scale, of which it is not proven";
static const char not_reached[] = "npudiff cannot evaluate an operator before it";

/* What the makers of its inputs make of a layer, with its encoding. */
struct share {
    enum nd_align_state state; /* the worst of all */
    size_t n_channels;
    double n_sums;
};

struct prover {
    struct nd_align_job *job;
    struct nd_layer_memory *memory;
    struct nd_alternatives alternatives;
    struct share *shares; /* [n_edges] of the tensor that is made with another */
};

static enum nd_status prove_product(const struct prover *p, const struct nd_exact_layer *layer,
                                    struct nd_alignment_layer *aligned, struct nd_error *err)
{
    aligned->state = ND_ALIGN_PROVEN;
    aligned->reason = NULL;
    for (size_t i = 1; i < p->job->n_arithmetics && aligned->state == ND_ALIGN_PROVEN; i++) {
        struct nd_layer_proof proof;
        ND_TRY(
            nd_layer_product_prove(p->job->arithmetics[0], p->job->arithmetics[i], layer, &proof, NULL, err));
        aligned->n_channels = proof.n_channels;
        aligned->n_sums = proof.n_sums;
        if (proof.end == ND_LAYER_PROOF_EQUAL)
            continue;
        aligned->state = proof.end == ND_LAYER_PROOF_NONE ? ND_ALIGN_UNKNOWN : ND_ALIGN_DIFFERS;
        aligned->reason = proof.end == ND_LAYER_PROOF_NONE ? proof.reason : has_counterexample;
        aligned->n_unequal = proof.n_unequal;
        aligned->channel = proof.channel;
        aligned->against = i;
        aligned->sum = proof.sum;
        aligned->values[0] = proof.qvalues[0];
        aligned->values[1] = proof.qvalues[1];
    }
    return ND_OK;
}

/* Of every other operator the arithmetics are either one, or it is not known for which inputs they differ. */
static enum nd_status prove_other(const struct prover *p, const struct nd_exact_layer *layer,
                                  struct nd_alignment_layer *aligned, struct nd_error *err)
{
    const struct nd_model_layer *own = nd_model_layer_of_tensor(p->job->aligned, layer->tensor);
    struct nd_layer_memory *memory =
        only_passes_on(own->op_types) ? p->memory : NULL; /* where its input lies */
    aligned->state = ND_ALIGN_PROVEN;
    aligned->reason = NULL;
    for (size_t i = 0; i < p->job->n_arithmetics; i++) {
        ND_CLEANUP(nd_array_deinit) struct nd_array qvalues = {0};
        bool is_covered = false;
        ND_TRY(nd_layer_arithmetic_run(p->job->arithmetics[i], layer, memory, &qvalues, &is_covered, err));
        bool agrees = nd_layer_arithmetics_agree_alone(p->job->arithmetics[0], p->job->arithmetics[i], layer);
        if (is_covered && agrees)
            continue;
        aligned->state = ND_ALIGN_UNKNOWN;
        aligned->reason = is_covered ? other_arithmetic : no_arithmetic;
        return ND_OK;
    }
    return ND_OK;
}

/* The arithmetics do not know it here: they are run without what was made before. */
static bool is_swish_of_product(const struct nd_model *model, const struct nd_model_layer *layer)
{
    const struct nd_model_layer *maker =
        layer->n_inputs == 1 ? nd_model_layer_of_tensor(model, layer->inputs[0]) : NULL;
    return maker != NULL && strcmp(layer->op_types, "HardSwish") == 0 &&
           (strcmp(maker->op_types, "Gemm") == 0 || strcmp(maker->op_types, "MatMul") == 0);
}

/* A layer by itself. */
static enum nd_status prove_alone(const struct prover *p, const struct nd_exact_layer *layer,
                                  struct nd_alignment_layer *aligned_layer, struct nd_error *err)
{
    const struct nd_model *model = p->job->aligned;
    double doubt = 0;
    for (size_t i = 0; i < p->job->n_arithmetics; i++) {
        double d = nd_layer_arithmetic_doubt(p->job->arithmetics[i], layer, p->memory);
        doubt = d > doubt ? d : doubt;
    }
    aligned_layer->state = ND_ALIGN_UNKNOWN;
    aligned_layer->reason = doubt >= 1 ? no_operand : doubt > 0 ? near_arithmetic : NULL;
    if (aligned_layer->reason == NULL &&
        nd_quantisers_are_merged(model, nd_model_layer_of_tensor(model, layer->tensor)))
        aligned_layer->reason = merged_layer;
    if (aligned_layer->reason == NULL &&
        is_swish_of_product(model, nd_model_layer_of_tensor(model, layer->tensor)))
        aligned_layer->reason = merged_swish;
    if (aligned_layer->reason == NULL && nd_layer_rescales_operand(layer, p->memory))
        aligned_layer->reason = moved_operand;
    if (aligned_layer->reason != NULL)
        return ND_OK;
    return nd_layer_is_product(layer) ? prove_product(p, layer, aligned_layer, err)
                                      : prove_other(p, layer, aligned_layer, err);
}

/* The layers after it that a device makes together with this one, with their own encoding. */
static enum nd_status prove_shares(const struct prover *p, const struct nd_exact_layer *layer,
                                   struct nd_error *err)
{
    const struct nd_alternatives *a = &p->alternatives;
    for (size_t i = a->first_part[layer->tensor]; i != SIZE_MAX; i = a->parts[i].next) {
        struct nd_alignment_layer made = {0};
        struct nd_linear_call call;
        size_t to = a->parts[i].to;
        if (nd_layer_is_table(p->job->aligned, nd_model_layer_of_tensor(p->job->aligned, to)))
            continue; /* it reads what is split, which is not made for it */
        const struct nd_exact_layer other =
            nd_align_layer_with_output(layer, &nd_model_tensor(p->job->aligned, to)->quant, &call);
        struct share *share = &p->shares[to];
        ND_TRY(prove_alone(p, &other, &made, err));
        share->n_channels += made.n_channels;
        share->n_sums += made.n_sums;
        if (share->state != ND_ALIGN_DIFFERS && made.state != ND_ALIGN_PROVEN)
            share->state = made.state;
    }
    return ND_OK;
}

static enum nd_status prove_layer(const struct prover *p, const struct nd_exact_layer *layer,
                                  struct nd_alignment_layer *aligned_layer, struct nd_error *err)
{
    const struct share *share = &p->shares[layer->tensor];
    bool is_joined = p->alternatives.is_joined[layer->tensor];
    bool carries = nd_layer_carries(nd_model_layer_of_tensor(p->job->aligned, layer->tensor));
    if ((share->state == ND_ALIGN_PROVEN || carries) && !is_joined)
        return prove_alone(p, layer, aligned_layer, err);
    aligned_layer->state = share->state;
    aligned_layer->reason = share->state == ND_ALIGN_PROVEN    ? NULL
                            : share->state == ND_ALIGN_DIFFERS ? maker_differs
                                                               : maker_unknown;
    aligned_layer->n_channels = share->n_channels;
    aligned_layer->n_sums = share->n_sums;
    if (aligned_layer->reason != NULL)
        return ND_OK;
    /* Of a Concat whose inputs have other encodings no arithmetic says what it is. */
    ND_TRY(nd_align_prove_bringing(&p->alternatives, p->job->aligned, layer, &aligned_layer->reason, err));
    aligned_layer->state = aligned_layer->reason == NULL ? ND_ALIGN_PROVEN : ND_ALIGN_UNKNOWN;
    return ND_OK;
}

/* A nd_exact_make: the quantised values are those of the first arithmetic. */
static enum nd_status prove_of_layer(void *context, const struct nd_exact_layer *layer,
                                     struct nd_array *qvalues, bool *is_made, struct nd_error *err)
{
    struct prover *p = context;
    size_t index = p->job->layer_of_tensor[layer->tensor];
    struct nd_alignment_layer *aligned = index != SIZE_MAX ? &p->job->result->layers[index] : NULL;
    ND_TRY(prove_shares(p, layer, err));
    if (aligned != NULL)
        ND_TRY(prove_layer(p, layer, aligned, err));
    ND_TRY(nd_layer_arithmetic_run(p->job->arithmetics[0], layer, p->memory, qvalues, is_made, err));
    if (aligned != NULL && !*is_made && !p->alternatives.is_joined[layer->tensor]) {
        aligned->state = ND_ALIGN_UNKNOWN;
        aligned->reason = no_arithmetic;
    }
    return ND_OK;
}

static void prover_deinit(struct prover *p)
{
    nd_layer_memory_destroy(&p->memory);
    nd_alternatives_deinit(&p->alternatives);
    free(p->shares);
}

enum nd_status nd_align_prove(struct nd_align_job *job, struct nd_error *err)
{
    ND_CLEANUP(prover_deinit) struct prover p = {.job = job};
    ND_CLEANUP(nd_exact_graph_destroy) struct nd_exact_graph *graph = NULL;
    ND_CLEANUP(nd_inputs_destroy) struct nd_array *inputs = NULL;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = prove_of_layer, .missed = nd_exact_let_go};
    for (size_t i = 0; i < job->result->n_layers; i++) {
        job->result->layers[i].state = ND_ALIGN_UNKNOWN;
        job->result->layers[i].reason = not_reached;
    }
    p.shares = nd_calloc(nd_model_n_tensors(job->aligned), sizeof *p.shares);
    ND_TRY_MEMORY(p.shares != NULL, err);
    ND_TRY(nd_inputs_create(job->aligned, &inputs, err));
    ND_TRY(nd_alternatives_init(&p.alternatives, job->aligned, err));
    ND_TRY(nd_layer_memory_create(nd_model_n_tensors(job->aligned), &p.memory, err));
    ND_TRY(nd_exact_graph_create(job->aligned, &graph, err));
    return nd_exact_graph_run(graph, inputs, &options, NULL, &p, err);
}
