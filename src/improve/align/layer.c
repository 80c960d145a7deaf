#include "improve/align/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "arithmetic/exact/eval_graph.h"

enum { X, W, B };

/* What the device holds a weight in. */
static const double least_weight = -128, greatest_weight = 127;

static size_t channel_of(const struct nd_quant *quant, const struct nd_array *values, size_t i)
{
    return nd_exact_channel(quant, &values->shape, i);
}

void nd_align_quantise(const double *reals, const struct nd_quant *quant, struct nd_array *codes)
{
    double low, high;
    nd_code_range(codes->dtype, &low, &high);
    for (size_t i = 0; i < codes->n; i++) {
        size_t c = channel_of(quant, codes, i);
        double code = nearbyint(reals[i] / (double)quant->scale[c]) + (double)quant->zero_point[c];
        codes->x[i] = fmin(fmax(code, low), high);
    }
}

static enum nd_status find_reals(const struct nd_linear_input *input, double **out, struct nd_error *err)
{
    double *reals = nd_calloc(input->values->n, sizeof *reals);
    if (reals == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < input->values->n; i++) {
        size_t c = channel_of(input->quant, input->values, i);
        reals[i] = (input->values->x[i] - (double)input->quant->zero_point[c]) * (double)input->quant->scale[c];
    }
    *out = reals;
    return ND_OK;
}

/* ---- what can be aligned at all ---- */

static bool is_constant_of(const struct nd_exact_unit *unit, size_t i, enum nd_dtype a, enum nd_dtype b)
{
    const struct nd_linear_input *input = &unit->call->inputs[i];
    return unit->origins[i] == ND_EXACT_FROM_CONSTANT && input->quant != NULL && input->quant->n > 0 &&
           (input->values->dtype == a || input->values->dtype == b);
}

static const char *find_obstacle(const struct nd_exact_unit *unit)
{
    const struct nd_linear_call *call = unit->call;
    bool has_bias = call->n_inputs > B && call->inputs[B].values != NULL;
    if (unit->dtype != ND_DTYPE_U8 && unit->dtype != ND_DTYPE_U16)
        return "its output is neither uint8 nor uint16";
    if (call->out_quant->n != 1)
        return "its output has a scale per channel";
    if (call->n_inputs < 2 || call->n_inputs > ND_ALIGN_OPERANDS || call->inputs[X].quant == NULL ||
        call->inputs[X].quant->n != 1 || call->inputs[W].values == NULL || call->inputs[W].quant == NULL)
        return "an input is not quantised with one scale";
    if (call->inputs[X].values->dtype != unit->dtype)
        return "its input and its output have different types";
    if (unit->origins[W] == ND_EXACT_FROM_CONSTANT && !is_constant_of(unit, W, ND_DTYPE_U8, ND_DTYPE_I8))
        return "its weights are not 8-bit numbers";
    if (unit->origins[W] != ND_EXACT_FROM_CONSTANT && call->inputs[W].quant->n != 1)
        return "its second operand has a scale per channel";
    if (!nd_quant_is_sound(call->inputs[W].quant))
        return "a scale of its weights is no positive number";
    if (has_bias && !is_constant_of(unit, B, ND_DTYPE_I32, ND_DTYPE_I32))
        return "its bias is not a quantised constant";
    if (call->inputs[W].quant->n > 1 && strcmp(nd_onnx_text(call->node->op_type), "ConvTranspose") == 0)
        return "its weights have a scale per channel, which is not known of a ConvTranspose";
    if (has_bias && call->inputs[B].quant->n == 1 && call->inputs[W].quant->n > 1)
        return "its weights have a scale per channel, and its bias has one scale";
    return NULL;
}

/* ---- the copy ---- */

static enum nd_status copy_operands(struct nd_align_layer *layer, struct nd_error *err)
{
    const struct nd_linear_call *call = layer->unit->call;
    enum nd_status status = nd_quant_copy(call->out_quant, &layer->output, err);
    for (size_t i = 0; i < call->n_inputs && status == ND_OK; i++) {
        layer->inputs[i] = (struct nd_linear_input){.values = call->inputs[i].values};
        if (call->inputs[i].values == NULL)
            continue;
        status = nd_quant_copy(call->inputs[i].quant, &layer->quants[i], err);
        layer->inputs[i].quant = &layer->quants[i];
        if (status == ND_OK && i > X && layer->unit->origins[i] == ND_EXACT_FROM_CONSTANT) {
            status = nd_array_copy(call->inputs[i].values, &layer->codes[i], err);
            layer->inputs[i].values = &layer->codes[i];
        }
    }
    layer->call = *call;
    layer->call.inputs = layer->inputs;
    layer->call.out_quant = &layer->output;
    layer->call.shared = NULL;
    layer->made = *layer->unit;
    layer->made.call = &layer->call;
    return status;
}

/* The scales with which each channel's weights just fit. A channel of zeros takes any. */
static void find_least(const struct nd_align_layer *layer, const double *reals, double *least)
{
    const struct nd_quant *quant = &layer->quants[W];
    const struct nd_array *codes = &layer->codes[W];
    for (size_t i = 0; i < codes->n; i++) {
        size_t c = channel_of(quant, codes, i);
        least[c] = fmax(least[c], fmax(reals[i] / greatest_weight, reals[i] / least_weight));
    }
    for (size_t c = 0; c < quant->n; c++)
        if (!(least[c] > 0))
            least[c] = (double)quant->scale[c];
}

static double n_rows_of(const struct nd_align_layer *layer)
{
    const struct nd_array *w = layer->inputs[W].values;
    const char *op_type = nd_onnx_text(layer->call.node->op_type);
    bool is_first = strcmp(op_type, "Conv") == 0 ||
                    (strcmp(op_type, "Gemm") == 0 && nd_onnx_attribute_i(layer->call.node, "transB", 0) != 0);
    int rank = w->shape.rank;
    if (rank < 2)
        return (double)w->n;
    return is_first ? (double)w->n / (double)w->shape.dims[0] : (double)w->shape.dims[rank - 2];
}

/* uint16 second operands become codes of 257 times the scale. */
static double settled_scale(const struct nd_align_layer *layer, const struct nd_align_now *now)
{
    bool is_word = layer->inputs[W].values->dtype == ND_DTYPE_U16;
    return is_word ? (double)(257.0F * now->scale_w) : (double)now->scale_w;
}

/* In steps of the input. Weights that are rounded one against the other leave little of the error that they
 * have each for itself. */
static double rms_of(const struct nd_align_layer *layer, const struct nd_align_now *now, double otherwise)
{
    /* Chosen among 1, 0.3, 0.1 and 0.03, of the square, by what five models of tools/zoo lost. */
    static const double share_left = 0.1;
    if (now->seen == NULL)
        return otherwise;
    return sqrt(share_left) * nd_align_rms(now->seen, layer->call.n_inputs > B) / (double)now->scale_x;
}

static bool choose(struct nd_align_layer *layer, const struct nd_align_now *now, const double *reals,
                   double *least)
{
    /* Chosen: the root of the mean square of codes is an eighth of their range, where nothing was seen. It
     * weighs the weights' rounding against the output's. */
    static const double share_of_range = 0.125;
    double low, high;
    nd_code_range(layer->unit->dtype, &low, &high);
    if (layer->has_weights)
        find_least(layer, reals, least);
    else
        least[0] = settled_scale(layer, now);
    const struct nd_align_task task = {.scale_x = (double)now->scale_x,
                                       .scale_y = (double)now->scale_y,
                                       .least = least,
                                       .n = layer->quants[W].n,
                                       .is_w_settled = !layer->has_weights,
                                       .is_y_settled = now->is_y_settled,
                                       .n_rows = n_rows_of(layer),
                                       .rms_x = rms_of(layer, now, share_of_range * (high - low))};
    layer->is_y_settled = now->is_y_settled;
    layer->scales = (struct nd_align_scales){.scale_w = layer->quants[W].scale, .exponent = layer->exponent};
    return nd_align_choose_scales(&task, &layer->scales);
}

/* uint16: the zero point is added to sums that lost 8 bits, and must be a whole number there. */
static void set_zero_point(struct nd_align_layer *layer)
{
    enum { LOST_BITS = 8 };
    int least = layer->exponent[0];
    for (size_t c = 1; c < layer->quants[W].n; c++)
        least = layer->exponent[c] < least ? layer->exponent[c] : least;
    if (layer->unit->dtype != ND_DTYPE_U16 || least >= LOST_BITS || least < 0 || layer->is_y_settled)
        return;
    int64_t step = (int64_t)1 << (LOST_BITS - least), zero = layer->output.zero_point[0];
    layer->output.zero_point[0] = (zero + step / 2) / step * step;
}

static void set_weights(struct nd_align_layer *layer, const double *reals)
{
    struct nd_quant *quant = &layer->quants[W];
    struct nd_array *codes = &layer->codes[W];
    int64_t zero = codes->dtype == ND_DTYPE_U8 ? 128 : 0;
    for (size_t c = 0; c < quant->n; c++)
        quant->zero_point[c] = zero;
    nd_align_quantise(reals, quant, codes);
}

static enum nd_status take_bias(struct nd_align_layer *layer, const struct nd_align_now *now,
                                struct nd_error *err)
{
    const struct nd_linear_call *call = layer->unit->call;
    if (call->n_inputs <= B || call->inputs[B].values == NULL)
        return ND_OK;
    enum nd_status status = find_reals(&call->inputs[B], &layer->bias, err);
    for (size_t i = 0; status == ND_OK && now->float_bias != NULL && i < layer->codes[B].n; i++)
        layer->bias[i] = now->float_bias[i];
    return status;
}

enum nd_status nd_align_layer_init(struct nd_align_layer *layer, const struct nd_exact_unit *unit,
                                   const struct nd_align_now *now, const char **obstacle, struct nd_error *err)
{
    *layer = (struct nd_align_layer){.unit = unit};
    *obstacle = find_obstacle(unit);
    if (*obstacle != NULL)
        return ND_OK;
    double *reals = NULL, *least = nd_calloc(unit->call->inputs[W].quant->n, sizeof *least);
    layer->has_weights = unit->origins[W] == ND_EXACT_FROM_CONSTANT;
    layer->exponent = nd_calloc(unit->call->inputs[W].quant->n, sizeof *layer->exponent);
    enum nd_status status =
        least != NULL && layer->exponent != NULL ? copy_operands(layer, err) : nd_fail_memory(err);
    if (status == ND_OK && layer->has_weights)
        status = find_reals(&unit->call->inputs[W], &reals, err);
    for (size_t i = 0; status == ND_OK && now->float_weights != NULL && i < layer->codes[W].n; i++)
        reals[i] = now->float_weights[i];
    if (status == ND_OK && !choose(layer, now, reals, least))
        *obstacle = "its output must keep its scale, and its operands are both calculated";
    if (status == ND_OK && *obstacle == NULL) {
        layer->quants[X].scale[0] = now->scale_x;
        layer->quants[X].zero_point[0] = now->zero_x;
        layer->output.scale[0] = layer->scales.scale_y;
        layer->output.zero_point[0] = now->zero_y;
        set_zero_point(layer);
        if (layer->has_weights) {
            set_weights(layer, reals);
        } else {
            layer->quants[W].scale[0] = now->scale_w;
            layer->quants[W].zero_point[0] = now->zero_w;
        }
        status = take_bias(layer, now, err);
        if (status == ND_OK && layer->has_weights && now->seen != NULL)
            status = nd_align_round(layer, reals, now->seen, err);
    }
    free(reals);
    free(least);
    return status;
}

void nd_align_layer_deinit(struct nd_align_layer *layer)
{
    for (size_t i = 0; i < ND_ALIGN_OPERANDS; i++) {
        nd_quant_deinit(&layer->quants[i]);
        nd_array_deinit(&layer->codes[i]);
    }
    nd_quant_deinit(&layer->output);
    free(layer->bias);
    free(layer->exponent);
    *layer = (struct nd_align_layer){0};
}
