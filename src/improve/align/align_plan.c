/* New scales and weights for each layer: scales with which a product is multiplied by a power of two, and
 * weights rounded up or down so that the output of the layer has the least error.
 * docs/science/align.md#rounding. */
#include "improve/align/align_stages.h"

#include <math.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "explain/plan/replay.h"

/* ---- scales that give powers of two ---- */

/* A multiplier that is off by less counts as the power of two: float32 scales give no better (2^-23), and the
 * arithmetics keep 21 bits at most. */
static const double scale_slack = 1e-7;

static float float_above(double v)
{
    float f = (float)v;
    return (double)f < v ? nextafterf(f, HUGE_VALF) : f;
}

/* The k of the least 2^-k that is not below m; and of the greatest that is not above it. */
static int exponent_above(double m)
{
    return (int)floor(-log2(m) + scale_slack);
}

static int exponent_below(double m)
{
    return (int)ceil(-log2(m) - scale_slack);
}

/* The mean squared error of an output, in steps of the old one squared, times 12: of rounding to a step that is
 * `factor` times as coarse, and of weights that are rounded. */
static double cost_of(const struct nd_align_task *task, double factor)
{
    double of_weights = 0;
    for (size_t c = 0; c < task->n; c++) {
        double m = task->scale_x * task->least[c] / (task->scale_y * factor);
        double step = ldexp(factor, -exponent_above(m));
        of_weights += step * step;
    }
    return factor * factor + task->n_rows * task->rms_x * task->rms_x * of_weights / (double)task->n;
}

/* By how much the output becomes coarser: not at all, or so that the weights of one channel need not. */
static double choose_factor(const struct nd_align_task *task)
{
    enum { MAX_TRIED = 64 }; /* chosen: channels crowd between 1 and 2 */
    double best = 1, least = cost_of(task, 1);
    size_t stride = task->n / MAX_TRIED + 1;
    for (size_t c = 0; c < task->n && !task->is_y_settled; c += stride) {
        double m = task->scale_x * task->least[c] / task->scale_y, factor = ldexp(m, exponent_below(m));
        double cost = factor > 1 ? cost_of(task, factor) : HUGE_VAL;
        if (cost < least) {
            least = cost;
            best = factor;
        }
    }
    return best;
}

static bool choose_output(const struct nd_align_task *task, struct nd_align_scales *out)
{
    double m = task->scale_x * task->least[0] / task->scale_y;
    int exponent = exponent_below(m);
    double factor = ldexp(m, exponent);
    if (task->is_y_settled && fabs(factor - 1) > scale_slack)
        return false;
    out->scale_y = task->is_y_settled ? (float)task->scale_y
                                      : float_above(ldexp(task->scale_x * task->least[0], exponent));
    out->exponent[0] = exponent;
    out->output_factor = factor > 1 ? factor : 1;
    out->weight_factor = 1;
    return true;
}

/* False: nothing may change that has to. */
static bool nd_align_choose_scales(const struct nd_align_task *task, struct nd_align_scales *out)
{
    if (task->is_w_settled)
        return choose_output(task, out);
    double factor = choose_factor(task), squares = 0;
    out->scale_y = factor > 1 ? float_above(task->scale_y * factor) : (float)task->scale_y;
    out->output_factor = factor;
    for (size_t c = 0; c < task->n; c++) {
        double m = task->scale_x * task->least[c] / (double)out->scale_y;
        out->exponent[c] = exponent_above(m);
        /* Not more than v, not less. */
        double v = ldexp((double)out->scale_y / task->scale_x, -out->exponent[c]);
        float f = (float)v;
        out->scale_w[c] = (double)f > v ? nextafterf(f, 0) : f;
        double coarser = (double)out->scale_w[c] / task->least[c];
        squares += coarser * coarser;
    }
    out->weight_factor = sqrt(squares / (double)task->n);
    return true;
}

/* ---- weights rounded against each other ---- */

enum {
    W = 1,
    MAX_TERMS =
        2304, /* chosen: moments of more terms would take over 42 MB. The bias is corrected all the same */
    MAX_SWEEPS = 4, /* chosen: the last ones change little */
};

/* Chosen: what is left of the moments of two different terms. They are measured on few rows, and weights must
 * not be fitted to chance. */
static const double share_of_others = 0.9;

/* Of the rows of one group. */
struct moments {
    size_t n;
    double *mean;   /* [n] */
    double *second; /* [n][n]; with a bias around the mean, which the bias takes back. NULL: not wanted */
    double *row, *error, *slope;
};

static void moments_deinit(struct moments *m)
{
    ND_FREE_ALL(m->mean, m->second, m->row, m->error, m->slope);
}

static enum nd_status moments_init(struct moments *m, size_t n, struct nd_error *err)
{
    *m = (struct moments){.n = n,
                          .mean = nd_calloc(n, sizeof *m->mean),
                          .row = nd_calloc(n, sizeof *m->row),
                          .error = nd_calloc(n, sizeof *m->error),
                          .slope = nd_calloc(n, sizeof *m->slope)};
    if (n <= MAX_TERMS)
        m->second = nd_calloc(n * n, sizeof *m->second);
    bool is_made = m->mean != NULL && m->row != NULL && m->error != NULL && m->slope != NULL &&
                   (m->second != NULL || n > MAX_TERMS);
    return is_made ? ND_OK : nd_fail_memory(err);
}

static void take_rows(struct moments *m, const struct nd_observed_layer *seen, size_t group, bool has_bias)
{
    const float *rows = seen->rows + group * seen->n_room * seen->n_terms;
    double share = 1 / (double)seen->n_rows;
    memset(m->mean, 0, m->n * sizeof *m->mean);
    for (size_t r = 0; r < seen->n_rows; r++)
        for (size_t t = 0; t < m->n; t++)
            m->mean[t] += share * (double)rows[r * m->n + t];
    if (m->second == NULL)
        return;
    memset(m->second, 0, m->n * m->n * sizeof *m->second);
    for (size_t r = 0; r < seen->n_rows; r++) {
        for (size_t t = 0; t < m->n; t++)
            m->row[t] = (double)rows[r * m->n + t] - (has_bias ? m->mean[t] : 0);
        for (size_t t = 0; t < m->n; t++) {
            double *second = m->second + t * m->n, factor = share * m->row[t];
            for (size_t u = 0; u <= t && factor != 0; u++)
                second[u] += factor * m->row[u];
        }
    }
    for (size_t t = 0; t < m->n; t++)
        for (size_t u = 0; u < t; u++)
            m->second[u * m->n + t] = m->second[t * m->n + u] *= share_of_others;
}

/* Moves one weight after the other to its other neighbour, as long as the output's error falls. */
static void descend(struct moments *m, double scale, const double *reals, const struct nd_observed_layer *seen)
{
    const double low = -128 * scale, high = 127 * scale; /* what 8 signed bits hold */
    size_t n_moved = 1;
    memset(m->slope, 0, m->n * sizeof *m->slope);
    for (size_t t = 0; t < m->n; t++)
        for (size_t u = 0; u < m->n; u++)
            m->slope[u] += m->error[t] * m->second[t * m->n + u];
    for (int sweep = 0; sweep < MAX_SWEEPS && n_moved > 0; sweep++) {
        n_moved = 0;
        for (size_t t = 0; t < m->n; t++) {
            const double *second = m->second + t * m->n;
            double step = m->slope[t] > 0 ? -scale : scale, error = m->error[t] + step;
            double value = reals[t * seen->term_step] + error, slack = scale / 2;
            if (scale * second[t] >= 2 * fabs(m->slope[t]) || fabs(error) > scale || value < low - slack ||
                value > high + slack)
                continue;
            m->error[t] = error;
            for (size_t u = 0; u < m->n; u++)
                m->slope[u] += step * second[u];
            n_moved++;
        }
    }
}

/* One column: its weights, and what they add to the output on average goes off the bias. */
static void round_column(struct nd_align_layer *layer, struct moments *m, size_t column, const double *reals,
                         const struct nd_observed_layer *seen)
{
    struct nd_array *qvalues = &layer->qvalues[W];
    const struct nd_quant *quant = &layer->quants[W];
    size_t first = column * seen->column_step, channel = nd_exact_channel(quant, &qvalues->shape, first);
    double scale = (double)quant->scale[channel], zero = (double)quant->zero_point[channel], mean = 0;
    for (size_t t = 0; t < m->n; t++) {
        size_t i = first + t * seen->term_step;
        m->error[t] = (qvalues->x[i] - zero) * scale - reals[i];
    }
    if (m->second != NULL)
        descend(m, scale, reals + first, seen);
    for (size_t t = 0; t < m->n; t++) {
        size_t i = first + t * seen->term_step;
        qvalues->x[i] = nearbyint((reals[i] + m->error[t]) / scale) + zero;
        mean += m->error[t] * m->mean[t];
    }
    if (layer->bias != NULL && column < layer->qvalues[2].n)
        layer->bias[column] -= mean;
}

/* align_plan.c: rounds the layer's weights anew so that its output has the least error on what was seen, and
 * corrects the bias by what they add on average. reals are the weights before they were quantised.
 * ND_ERR_MEMORY. */
static enum nd_status nd_align_round(struct nd_align_layer *layer, const double *reals,
                                     const struct nd_observed_layer *seen, struct nd_error *err)
{
    ND_CLEANUP(moments_deinit) struct moments m = {0};
    size_t n_columns = seen->n_groups * seen->n_columns;
    bool has_bias = layer->bias != NULL && layer->qvalues[2].n == n_columns;
    enum nd_status status = moments_init(&m, seen->n_terms, err);
    for (size_t g = 0; g < seen->n_groups && status == ND_OK; g++) {
        take_rows(&m, seen, g, has_bias);
        for (size_t c = 0; c < seen->n_columns; c++)
            round_column(layer, &m, g * seen->n_columns + c, reals, seen);
    }
    return status;
}

/* The root of the mean square of what was seen; with a bias around the mean of each term. */
static double nd_align_rms(const struct nd_observed_layer *seen, bool has_bias)
{
    double sum = 0, share = 1 / (double)seen->n_rows;
    for (size_t g = 0; g < seen->n_groups; g++)
        for (size_t t = 0; t < seen->n_terms; t++) {
            const float *x = seen->rows + g * seen->n_room * seen->n_terms + t;
            double mean = 0, square = 0;
            for (size_t r = 0; r < seen->n_rows; r++) {
                double value = (double)x[r * seen->n_terms];
                mean += share * value;
                square += share * value * value;
            }
            sum += has_bias ? fmax(square - mean * mean, 0) : square;
        }
    return sqrt(sum / (double)(seen->n_groups * seen->n_terms));
}

enum { X, W_of_layer, B };

/* What the device holds a weight in. */
static const double min_weight = -128, greatest_weight = 127;

static size_t channel_of(const struct nd_quant *quant, const struct nd_array *values, size_t i)
{
    return nd_exact_channel(quant, &values->shape, i);
}

static enum nd_status find_reals(const struct nd_linear_input *input, double **out, struct nd_error *err)
{
    double *reals = nd_calloc(input->values->n, sizeof *reals);
    ND_TRY_MEMORY(reals != NULL, err);
    for (size_t i = 0; i < input->values->n; i++) {
        size_t c = channel_of(input->quant, input->values, i);
        reals[i] = (input->values->x[i] - (double)input->quant->zero_point[c]) * (double)input->quant->scale[c];
    }
    *out = reals;
    return ND_OK;
}

/* ---- what can be aligned at all ---- */

static bool is_constant_of(const struct nd_exact_layer *layer, size_t i, enum nd_dtype a, enum nd_dtype b)
{
    const struct nd_linear_input *input = &layer->call->inputs[i];
    return layer->origins[i] == ND_EXACT_FROM_CONSTANT && input->quant != NULL && input->quant->n > 0 &&
           (input->values->dtype == a || input->values->dtype == b);
}

static const char *find_obstacle(const struct nd_exact_layer *layer)
{
    const struct nd_linear_call *call = layer->call;
    bool has_bias = call->n_inputs > B && call->inputs[B].values != NULL;
    if (layer->dtype != ND_DTYPE_U8 && layer->dtype != ND_DTYPE_U16)
        return "its output is neither uint8 nor uint16";
    if (call->out_quant->n != 1)
        return "its output has a scale per channel";
    if (call->n_inputs < 2 || call->n_inputs > ND_ALIGN_OPERANDS || call->inputs[X].quant == NULL ||
        call->inputs[X].quant->n != 1 || call->inputs[W_of_layer].values == NULL ||
        call->inputs[W_of_layer].quant == NULL)
        return "an input is not quantised with one scale";
    if (call->inputs[X].values->dtype != layer->dtype)
        return "its input and its output have different types";
    if (layer->origins[W_of_layer] == ND_EXACT_FROM_CONSTANT &&
        !is_constant_of(layer, W_of_layer, ND_DTYPE_U8, ND_DTYPE_I8))
        return "its weights are not 8-bit numbers";
    if (layer->origins[W_of_layer] != ND_EXACT_FROM_CONSTANT && call->inputs[W_of_layer].quant->n != 1)
        return "its second operand has a scale per channel";
    if (!nd_quant_is_sound(call->inputs[W_of_layer].quant))
        return "a scale of its weights is no positive number";
    if (has_bias && call->n_inputs > call->node->n_input)
        return "its bias is added by an operator of its own";
    if (has_bias && !is_constant_of(layer, B, ND_DTYPE_I32, ND_DTYPE_I32))
        return "its bias is not a quantised constant";
    if (call->inputs[W_of_layer].quant->n > 1 &&
        strcmp(nd_onnx_text(call->node->op_type), "ConvTranspose") == 0)
        return "its weights have a scale per channel, which is not known of a ConvTranspose";
    if (has_bias && call->inputs[B].quant->n == 1 && call->inputs[W_of_layer].quant->n > 1)
        return "its weights have a scale per channel, and its bias has one scale";
    return NULL;
}

/* ---- the copy ---- */

static enum nd_status copy_operands(struct nd_align_layer *layer, struct nd_error *err)
{
    const struct nd_linear_call *call = layer->layer->call;
    enum nd_status status = nd_quant_copy(call->out_quant, &layer->output, err);
    for (size_t i = 0; i < call->n_inputs && status == ND_OK; i++) {
        layer->inputs[i] = (struct nd_linear_input){.values = call->inputs[i].values};
        if (call->inputs[i].values == NULL)
            continue;
        status = nd_quant_copy(call->inputs[i].quant, &layer->quants[i], err);
        layer->inputs[i].quant = &layer->quants[i];
        if (status == ND_OK && i > X && layer->layer->origins[i] == ND_EXACT_FROM_CONSTANT) {
            status = nd_array_copy(call->inputs[i].values, &layer->qvalues[i], err);
            layer->inputs[i].values = &layer->qvalues[i];
        }
    }
    layer->call = *call;
    layer->call.inputs = layer->inputs;
    layer->call.out_quant = &layer->output;
    layer->call.shared = NULL;
    layer->made = *layer->layer;
    layer->made.call = &layer->call;
    return status;
}

/* The scales with which each channel's weights just fit. A channel of zeros takes any. */
static void find_min(const struct nd_align_layer *layer, const double *reals, double *least)
{
    const struct nd_quant *quant = &layer->quants[W_of_layer];
    const struct nd_array *qvalues = &layer->qvalues[W_of_layer];
    for (size_t i = 0; i < qvalues->n; i++) {
        size_t c = channel_of(quant, qvalues, i);
        least[c] = fmax(least[c], fmax(reals[i] / greatest_weight, reals[i] / min_weight));
    }
    for (size_t c = 0; c < quant->n; c++)
        if (!(least[c] > 0))
            least[c] = (double)quant->scale[c];
}

static double n_rows_of(const struct nd_align_layer *layer)
{
    const struct nd_array *w = layer->inputs[W_of_layer].values;
    const char *op_type = nd_onnx_text(layer->call.node->op_type);
    bool is_first = strcmp(op_type, "Conv") == 0 ||
                    (strcmp(op_type, "Gemm") == 0 && nd_onnx_attribute_i(layer->call.node, "transB", 0) != 0);
    int rank = w->shape.rank;
    if (rank < 2)
        return (double)w->n;
    return is_first ? (double)w->n / (double)w->shape.dims[0] : (double)w->shape.dims[rank - 2];
}

/* uint16 second operands become quantised values of 257 times the scale. */
static double settled_scale(const struct nd_align_layer *layer, const struct nd_align_now *now)
{
    bool is_word = layer->inputs[W_of_layer].values->dtype == ND_DTYPE_U16;
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
    /* Chosen: the root of the mean square of quantised values is an eighth of their range, where nothing was
     * seen. It weighs the weights' rounding against the output's. */
    static const double share_of_range = 0.125;
    double low, high;
    nd_qvalue_range(layer->layer->dtype, &low, &high);
    if (layer->has_weights)
        find_min(layer, reals, least);
    else
        least[0] = settled_scale(layer, now);
    const struct nd_align_task task = {.scale_x = (double)now->scale_x,
                                       .scale_y = (double)now->scale_y,
                                       .least = least,
                                       .n = layer->quants[W_of_layer].n,
                                       .is_w_settled = !layer->has_weights,
                                       .is_y_settled = now->is_y_settled,
                                       .n_rows = n_rows_of(layer),
                                       .rms_x = rms_of(layer, now, share_of_range * (high - low))};
    layer->is_y_settled = now->is_y_settled;
    layer->scales =
        (struct nd_align_scales){.scale_w = layer->quants[W_of_layer].scale, .exponent = layer->exponent};
    return nd_align_choose_scales(&task, &layer->scales);
}

/* uint16: the zero point is added to sums that lost 8 bits, and must be a whole number there. */
static void set_zero_point(struct nd_align_layer *layer)
{
    enum { LOST_BITS = 8 };
    int least = layer->exponent[0];
    for (size_t c = 1; c < layer->quants[W_of_layer].n; c++)
        least = layer->exponent[c] < least ? layer->exponent[c] : least;
    if (layer->layer->dtype != ND_DTYPE_U16 || least >= LOST_BITS || least < 0 || layer->is_y_settled)
        return;
    int64_t step = (int64_t)1 << (LOST_BITS - least), zero = layer->output.zero_point[0];
    layer->output.zero_point[0] = (zero + step / 2) / step * step;
}

static void set_weights(struct nd_align_layer *layer, const double *reals)
{
    struct nd_quant *quant = &layer->quants[W_of_layer];
    struct nd_array *qvalues = &layer->qvalues[W_of_layer];
    int64_t zero = qvalues->dtype == ND_DTYPE_U8 ? 128 : 0;
    for (size_t c = 0; c < quant->n; c++)
        quant->zero_point[c] = zero;
    /* Quantised values of real numbers, half to even and clipped; by channel where quant has several scales. */
    double low, high;
    nd_qvalue_range(qvalues->dtype, &low, &high);
    for (size_t i = 0; i < qvalues->n; i++) {
        size_t c = channel_of(quant, qvalues, i);
        double qvalue = nearbyint(reals[i] / (double)quant->scale[c]) + (double)quant->zero_point[c];
        qvalues->x[i] = fmin(fmax(qvalue, low), high);
    }
}

static enum nd_status take_bias(struct nd_align_layer *layer, const struct nd_align_now *now,
                                struct nd_error *err)
{
    const struct nd_linear_call *call = layer->layer->call;
    if (call->n_inputs <= B || call->inputs[B].values == NULL)
        return ND_OK;
    enum nd_status status = find_reals(&call->inputs[B], &layer->bias, err);
    for (size_t i = 0; status == ND_OK && now->float_bias != NULL && i < layer->qvalues[B].n; i++)
        layer->bias[i] = now->float_bias[i];
    return status;
}

static enum nd_status nd_align_layer_init(struct nd_align_layer *aligned, const struct nd_exact_layer *layer,
                                          const struct nd_align_now *now, const char **obstacle,
                                          struct nd_error *err)
{
    *aligned = (struct nd_align_layer){.layer = layer};
    *obstacle = find_obstacle(layer);
    if (*obstacle != NULL)
        return ND_OK;
    ND_FREED double *reals = NULL, *least = nd_calloc(layer->call->inputs[W_of_layer].quant->n, sizeof *least);
    aligned->has_weights = layer->origins[W_of_layer] == ND_EXACT_FROM_CONSTANT;
    aligned->exponent = nd_calloc(layer->call->inputs[W_of_layer].quant->n, sizeof *aligned->exponent);
    ND_TRY(least != NULL && aligned->exponent != NULL ? copy_operands(aligned, err) : nd_fail_memory(err));
    if (aligned->has_weights)
        ND_TRY(find_reals(&layer->call->inputs[W_of_layer], &reals, err));
    for (size_t i = 0; now->float_weights != NULL && i < aligned->qvalues[W_of_layer].n; i++)
        reals[i] = now->float_weights[i];
    if (!choose(aligned, now, reals, least))
        *obstacle = "its output must keep its scale, and its operands are both calculated";
    if (*obstacle == NULL) {
        aligned->quants[X].scale[0] = now->scale_x;
        aligned->quants[X].zero_point[0] = now->zero_x;
        aligned->output.scale[0] = aligned->scales.scale_y;
        aligned->output.zero_point[0] = now->zero_y;
        set_zero_point(aligned);
        if (aligned->has_weights) {
            set_weights(aligned, reals);
        } else {
            aligned->quants[W_of_layer].scale[0] = now->scale_w;
            aligned->quants[W_of_layer].zero_point[0] = now->zero_w;
        }
        ND_TRY(take_bias(aligned, now, err));
        if (aligned->has_weights && now->seen != NULL)
            ND_TRY(nd_align_round(aligned, reals, now->seen, err));
    }
    return ND_OK;
}

static void nd_align_layer_deinit(struct nd_align_layer *layer)
{
    for (size_t i = 0; i < ND_ALIGN_OPERANDS; i++) {
        nd_quant_deinit(&layer->quants[i]);
        nd_array_deinit(&layer->qvalues[i]);
    }
    nd_quant_deinit(&layer->output);
    ND_FREE_ALL(layer->bias, layer->exponent);
    *layer = (struct nd_align_layer){0};
}

enum { W_of_align_plan = 1, B_of_align_plan = 2 };

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
    ND_TRY_MEMORY(nd_grow((void **)&plan->nodes, &plan->nodes_capacity, plan->n_nodes + 1, sizeof *plan->nodes),
                  err);
    plan->nodes[plan->n_nodes++] = *node;
    return ND_OK;
}

/* A constant operand of the layer, whose values go over to the plan. */
static enum nd_status add_constant(struct nd_align_plan *plan, size_t node, struct nd_align_layer *layer,
                                   size_t i, struct nd_error *err)
{
    struct nd_quant *quant = nd_calloc(1, sizeof *quant);
    ND_TRY_MEMORY(quant != NULL, err);
    *quant = layer->quants[i];
    layer->quants[i] = (struct nd_quant){.axis = -1};
    struct nd_recoded_node item = {
        .node = node, .quant = quant, .qvalues = layer->qvalues[i].x, .n_qvalues = layer->qvalues[i].n};
    layer->qvalues[i].x = NULL;
    bool is_kept = keep(plan, (void *)(uintptr_t)item.qvalues);
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

/* Chooses what remains to be chosen, and settles the quantisers that it rests on. */
static enum nd_status take_over(struct nd_align_plan *plan, struct nd_align_layer *layer,
                                const struct place *place, bool is_from_float, struct nd_error *err)
{
    struct nd_quantiser *y = nd_quantiser_of(&plan->quantisers, layer->layer->tensor);
    size_t n_left;
    ND_TRY(nd_align_find_bias(layer, plan->arithmetics, plan->n_arithmetics, &n_left, err));
    struct nd_align_step *step = &plan->steps[layer->layer->tensor];
    step->is_planned = true;
    step->obstacle = NULL;
    step->exponent = layer->exponent[0];
    step->output_factor = layer->scales.output_factor;
    step->weight_factor = layer->scales.weight_factor;
    step->has_weights = layer->has_weights;
    step->is_from_float = is_from_float;
    for (size_t c = 0; c < layer->quants[W_of_align_plan].n; c++) {
        step->has_exponents = step->has_exponents || layer->exponent[c] != layer->exponent[0];
        step->exponent = layer->exponent[c] > step->exponent ? layer->exponent[c] : step->exponent;
    }
    y->quant.scale[0] = layer->output.scale[0];
    y->quant.zero_point[0] = layer->output.zero_point[0];
    y->is_settled = true;
    for (size_t i = 0; i < layer->call.n_inputs; i++)
        if (layer->layer->input_tensors[i] != SIZE_MAX)
            nd_quantiser_of(&plan->quantisers, layer->layer->input_tensors[i])->is_settled = true;
    if (layer->has_weights)
        ND_TRY(add_constant(plan, place->weights, layer, W_of_align_plan, err));
    return layer->bias != NULL ? add_constant(plan, place->bias, layer, B_of_align_plan, err) : ND_OK;
}

/* Moves the zero point of a uint16 quantiser to the middle; the scale grows so that all values stay inside. */
static void quantiser_centre(struct nd_quantiser *quantiser)
{
    enum { MIDDLE = 32768, GREATEST = 65535 };
    struct nd_quant *quant = &quantiser->quant;
    double below = (double)quant->zero_point[0] / MIDDLE,
           above = (double)(GREATEST - quant->zero_point[0]) / (GREATEST - MIDDLE);
    quant->scale[0] = nextafterf((float)((double)quant->scale[0] * fmax(below, above)), HUGE_VALF);
    quant->zero_point[0] = MIDDLE;
}

/* A calculated uint16 operand becomes 8-bit numbers around its zero point. Where that is in the middle they are
 * all that 8 bits hold, and none is rescaled. A range that begins with 0 stays: it may stand for a Relu. */
static void centre_second_operand(const struct nd_exact_layer *layer, struct nd_quantiser *w,
                                  const struct nd_quantiser *y)
{
    bool is_calculated = layer->origins[W_of_align_plan] == ND_EXACT_FROM_LAYER;
    if (is_calculated && w != NULL && w->quant.zero_point[0] > 0 && !w->is_settled && !y->is_settled &&
        layer->dtype == ND_DTYPE_U16 && layer->call->inputs[W_of_align_plan].values->dtype == ND_DTYPE_U16)
        quantiser_centre(w);
}

static const struct nd_observed_layer *seen_of(const struct nd_align_plan *plan, size_t tensor)
{
    bool is_seen = plan->observed != NULL && plan->observed->layers[tensor].n_rows > 0;
    return is_seen ? &plan->observed->layers[tensor] : NULL;
}

static enum nd_status plan_layer(struct nd_align_plan *plan, const struct nd_exact_layer *layer,
                                 const struct place *place, struct nd_error *err)
{
    struct nd_align_step *step = &plan->steps[layer->tensor];
    const struct nd_linear_call *call = layer->call;
    const struct nd_quantiser *y = nd_quantiser_of(&plan->quantisers, layer->tensor);
    ND_CLEANUP(nd_align_layer_deinit) struct nd_align_layer aligned = {0};
    ND_FREED double *weights = NULL, *bias = NULL;
    if (call->n_inputs <= W_of_align_plan || layer->input_tensors[0] == SIZE_MAX ||
        (layer->origins[W_of_align_plan] != ND_EXACT_FROM_CONSTANT &&
         layer->input_tensors[W_of_align_plan] == SIZE_MAX)) {
        step->obstacle = "an input is not quantised with one scale";
        return ND_OK;
    }
    const struct nd_quantiser *x = nd_quantiser_of(&plan->quantisers, layer->input_tensors[0]);
    struct nd_quantiser *w = layer->input_tensors[W_of_align_plan] != SIZE_MAX
                                 ? nd_quantiser_of(&plan->quantisers, layer->input_tensors[W_of_align_plan])
                                 : NULL;
    if (x->quant.n != 1 || y->quant.n != 1 || (w != NULL && w->quant.n != 1)) {
        step->obstacle = "an input or the output has a scale per channel, or one that is no positive number";
        return ND_OK;
    }
    centre_second_operand(layer, w, y);
    ND_TRY(nd_align_find_floats(plan, place->weights, &call->inputs[W_of_align_plan], &weights, err));
    if (place->bias != ND_NO_INDEX && weights != NULL)
        ND_TRY(nd_align_find_floats(plan, place->bias, &call->inputs[B_of_align_plan], &bias, err));
    const struct nd_align_now now = {.scale_x = x->quant.scale[0],
                                     .scale_w = w != NULL ? w->quant.scale[0] : 0,
                                     .scale_y = y->quant.scale[0],
                                     .zero_x = x->quant.zero_point[0],
                                     .zero_w = w != NULL ? w->quant.zero_point[0] : 0,
                                     .zero_y = y->quant.zero_point[0],
                                     .is_y_settled = y->is_settled,
                                     .float_weights = weights,
                                     .float_bias = bias,
                                     .seen = seen_of(plan, layer->tensor)};
    ND_TRY(nd_align_layer_init(&aligned, layer, &now, &step->obstacle, err));
    return step->obstacle == NULL ? take_over(plan, &aligned, place, weights != NULL, err) : ND_OK;
}

/* A nd_exact_make that makes nothing: the layers come in the order of the graph, with all that they read. */
static enum nd_status visit(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                            bool *is_made, struct nd_error *err)
{
    struct nd_align_plan *plan = context;
    (void)qvalues;
    *is_made = false;
    if (layer->call->node == NULL || !nd_align_is_product(nd_onnx_text(layer->call->node->op_type)) ||
        plan->steps[layer->tensor].is_planned)
        return ND_OK;
    if (plan->is_chosen != NULL && !plan->is_chosen[layer->tensor]) {
        plan->steps[layer->tensor].obstacle = "it was not chosen";
        return ND_OK;
    }
    const struct nd_graph *graph = &plan->model->graph;
    size_t node = nd_align_node_of(graph, layer->call->node);
    struct place place = {ND_NO_INDEX, ND_NO_INDEX, false};
    if (layer->call->n_inputs > W_of_align_plan && layer->origins[W_of_align_plan] == ND_EXACT_FROM_CONSTANT)
        place.weights = nd_align_dequantizer_of(graph, node, W_of_align_plan, &place.is_shared);
    if (layer->call->n_inputs > B_of_align_plan)
        place.bias = nd_align_dequantizer_of(graph, node, B_of_align_plan, &place.is_shared);
    if (place.is_shared) {
        plan->steps[layer->tensor].obstacle = "its weights or its bias are shared with another layer";
        return ND_OK;
    }
    return plan_layer(plan, layer, &place, err);
}

/* ---- the whole model ---- */

static enum nd_status visit_all(struct nd_align_plan *plan, struct nd_error *err)
{
    ND_CLEANUP(nd_exact_graph_destroy) struct nd_exact_graph *graph = NULL;
    ND_CLEANUP(nd_inputs_destroy) struct nd_array *inputs = NULL;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = visit, .missed = nd_exact_let_go};
    ND_TRY(nd_inputs_create(plan->model, &inputs, err));
    ND_TRY(nd_exact_graph_create(plan->model, &graph, err));
    return nd_exact_graph_run(graph, inputs, &options, NULL, plan, err);
}

/* The QuantizeLinear and DequantizeLinear nodes of tensors that have another scale now. */
static enum nd_status add_quantisers(struct nd_align_plan *plan, struct nd_error *err)
{
    const struct nd_graph *graph = &plan->model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        size_t tensor = nd_quantiser_tensor(plan->model, n);
        if (tensor == ND_NO_INDEX)
            continue;
        const struct nd_quantiser *q = nd_quantiser_of(&plan->quantisers, tensor),
                                  *old = &plan->quantisers.items[tensor];
        if (q->quant.n == 1 &&
            (q->quant.scale[0] != old->old_scale || q->quant.zero_point[0] != old->old_zero_point))
            ND_TRY(add_node(plan, &(struct nd_recoded_node){.node = n, .quant = &q->quant}, err));
    }
    return ND_OK;
}

enum nd_status nd_align_plan_make(struct nd_align_plan *plan, struct nd_error *err)
{
    ND_TRY(nd_quantisers_init(&plan->quantisers, plan->model, plan->float_model, err));
    plan->steps = nd_calloc(plan->model->n_tensors, sizeof *plan->steps);
    ND_TRY_MEMORY(plan->steps != NULL, err);
    for (size_t e = 0; e < plan->model->n_tensors; e++)
        plan->steps[e].obstacle = "npudiff cannot evaluate an operator before it";
    /* A layer that is not chosen goes on as it is: its bias rests on the scale of its input. */
    for (size_t u = 0; u < plan->model->n_layers && plan->is_chosen != NULL; u++) {
        const struct nd_model_layer *layer = &plan->model->layers[u];
        if (plan->is_chosen[layer->tensor] || !nd_align_is_product(layer->op_types))
            continue;
        nd_quantiser_of(&plan->quantisers, layer->tensor)->is_settled = true;
        for (size_t i = 0; i < layer->n_inputs; i++)
            nd_quantiser_of(&plan->quantisers, layer->inputs[i])->is_settled = true;
    }
    ND_TRY(visit_all(plan, err));
    return add_quantisers(plan, err);
}

void nd_align_plan_deinit(struct nd_align_plan *plan)
{
    ND_FREE_ITEMS(plan->kept, plan->n_kept);
    ND_FREE_ALL(plan->nodes, plan->steps);
    nd_quantisers_deinit(&plan->quantisers);
}
