/* Rules about operators that the NPU computes wrongly, whatever their precision. docs/results/found.md. */
#include <math.h>
#include <stdio.h>

#include "arithmetic/operators/ops_shared.h"
#include "arithmetic/trials/alternatives.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "improve/lint/lint_job.h"
#include "npudiff/improve/lint.h"
#include "quantisation/study.h"
#include "record/probes/loader.h"

/* ---- cast-bytes ---- */

static enum nd_status nd_lint_cast(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &job->graph->nodes[node];
    size_t x = nd_lint_input(job, node, 0);
    enum nd_dtype to = nd_onnx_dtype((int32_t)nd_onnx_attribute_i(n->proto, "to", 0));
    if (!ND_LINT_IS(job, node, "Cast") || n->is_constant || x == ND_NO_INDEX ||
        job->infos[x].dtype != ND_DTYPE_U8 || !nd_dtype_is_float(to))
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err, "'%s' is uint8 and becomes %s",
                        job->graph->tensors[x].name, nd_dtype_name(to));
}

/* ---- block-zero-point ---- */

/* ONNX's number of that type, which the schema of ONNX 1.12 lacks. */
enum { UINT4_OF_ONNX = 21 };

/* Whether the constant holds anything but zeros. */
static bool has_bits(const Onnx__TensorProto *tensor)
{
    for (size_t i = 0; tensor->has_raw_data && i < tensor->raw_data.len; i++)
        if (tensor->raw_data.data[i] != 0)
            return true;
    for (size_t i = 0; i < tensor->n_int32_data; i++)
        if (tensor->int32_data[i] != 0)
            return true;
    return false;
}

static enum nd_status nd_lint_blocks(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 1), x = nd_lint_dequantise(job, node, 0);
    if (!ND_LINT_IS(job, node, "MatMul") || dequantise == ND_NO_INDEX || nd_lint_dtype(job, x) != ND_DTYPE_U16)
        return ND_OK; /* with uint8 it runs on the CPU */
    size_t qvalues = nd_lint_input(job, dequantise, 0), zero = nd_lint_input(job, dequantise, 2);
    const Onnx__TensorProto *weights = qvalues != ND_NO_INDEX ? nd_graph_constant(job->graph, qvalues) : NULL;
    const Onnx__TensorProto *zeros = zero != ND_NO_INDEX ? nd_graph_constant(job->graph, zero) : NULL;
    int64_t block = nd_onnx_attribute_i(job->graph->nodes[dequantise].proto, "block_size", 0);
    if (weights == NULL || weights->data_type != UINT4_OF_ONNX || block == 0 || zeros == NULL ||
        !has_bits(zeros))
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "the weights are uint4 in blocks of %lld, with a zero point", (long long)block);
}

/* ---- moved-unscaled ---- */

/* Whether the quantised values that a DequantizeLinear reads are those of an input of the model: its own or
 * just quantised; past layers that only move them. moved: at least one such layer must lie between. */
static bool is_graph_input(const struct nd_lint_job *job, size_t dequantise, bool moved)
{
    const struct nd_graph *graph = job->graph;
    size_t n_moves = 0;
    while (dequantise != ND_NO_INDEX) {
        size_t qvalues = nd_lint_input(job, dequantise, 0), maker = graph->tensors[qvalues].producer;
        size_t real = maker != ND_NO_INDEX && graph->nodes[maker].kind == ND_NODE_QUANTIZE
                          ? nd_lint_input(job, maker, 0)
                          : qvalues;
        if (graph->tensors[real].input != ND_NO_INDEX && !graph->tensors[real].is_constant)
            return !moved || n_moves > 0;
        size_t mover = graph->tensors[real].producer;
        bool is_moving =
            moved && mover != ND_NO_INDEX && ND_LINT_IS(job, mover, "Reshape", "Transpose", "Resize");
        dequantise = is_moving ? nd_lint_dequantise(job, mover, 0) : ND_NO_INDEX;
        n_moves++;
    }
    return false;
}

/* The most that a quantised value is off which is passed on unscaled: in steps of the output. */
static double unscaled(const struct nd_quant *x, const struct nd_quant *y)
{
    double most = 0, ratio = (double)x->scale[0] / (double)y->scale[0];
    for (int64_t qvalue = 0; qvalue <= UINT8_MAX; qvalue++) {
        double right = nearbyint((double)(qvalue - x->zero_point[0]) * ratio) + (double)y->zero_point[0];
        most = fmax(most, fabs(fmin(fmax(right, 0), UINT8_MAX) - (double)qvalue));
    }
    return most;
}

/* Whether the output's range holds all that the input can be, to half a step: then nothing is clipped. */
static bool holds_all(const struct nd_quant *x, const struct nd_quant *y)
{
    double least = (double)-x->zero_point[0] * (double)x->scale[0], step = (double)y->scale[0];
    double most = (double)(UINT8_MAX - x->zero_point[0]) * (double)x->scale[0];
    return least >= ((double)-y->zero_point[0] - 0.5) * step &&
           most <= ((double)(UINT8_MAX - y->zero_point[0]) + 0.5) * step;
}

static enum nd_status tell_moved(struct nd_lint_job *job, size_t node, size_t slot, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, slot), quantise = nd_lint_quantise(job, node);
    const struct nd_quant *x = nd_lint_one(job, dequantise), *y = nd_lint_one(job, quantise);
    bool is_concat = ND_LINT_IS(job, node, "Concat");
    if (x == NULL || y == NULL || nd_lint_dtype(job, dequantise) != ND_DTYPE_U8 ||
        nd_lint_dtype(job, quantise) != ND_DTYPE_U8 || !(unscaled(x, y) > 1) ||
        !is_graph_input(job, dequantise, is_concat))
        return ND_OK;
    struct nd_lint_finding *finding;
    const char *obstacle = is_concat          ? "the other inputs of the Concat have this encoding, too"
                           : !holds_all(x, y) ? "the output's range clips values of the input"
                                              : NULL;
    ND_TRY(nd_lint_find(job, &(struct nd_lint_at){node, unscaled(x, y)}, &finding, err,
                        "quantised values of an input of the model (scale %.7g, zero point %lld) become "
                        "quantised values of scale %.7g, zero point %lld",
                        (double)x->scale[0], (long long)x->zero_point[0], (double)y->scale[0],
                        (long long)y->zero_point[0]));
    if (obstacle == NULL)
        ND_TRY(nd_lint_change_tensor(job, quantise, x, &obstacle, err));
    return obstacle != NULL
               ? nd_lint_say_obstacle(finding, err, "%s", obstacle)
               : nd_lint_say_change(finding, err,
                                    "the output has the encoding of the input: scale %.7g, zero point %lld",
                                    (double)x->scale[0], (long long)x->zero_point[0]);
}

static enum nd_status nd_lint_moved(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const Onnx__NodeProto *proto = job->graph->nodes[node].proto;
    const Onnx__AttributeProto *mode = nd_onnx_attribute(proto, "mode");
    bool is_constant_pad = mode == NULL || mode->s.len == strlen("constant");
    if (ND_LINT_IS(job, node, "DepthToSpace", "SpaceToDepth") ||
        (ND_LINT_IS(job, node, "Pad") && !is_constant_pad))
        return tell_moved(job, node, 0, err);
    for (size_t i = 0; ND_LINT_IS(job, node, "Concat") && i < job->graph->nodes[node].n_inputs; i++)
        ND_TRY(tell_moved(job, node, i, err));
    return ND_OK;
}

/* ---- concat-input ---- */

/* More channels are rescaled: measured with 1 to 64, QAIRT 2.51.0, uint8. */
enum { MAX_CHANNELS = 8 };

static bool is_read_by_conv(const struct nd_lint_job *job, size_t quantise)
{
    size_t qvalues = nd_lint_output(job, quantise);
    for (size_t node = 0; node < job->graph->n_nodes; node++) {
        size_t dequantise = ND_LINT_IS(job, node, "Conv") ? nd_lint_dequantise(job, node, 0) : ND_NO_INDEX;
        if (dequantise != ND_NO_INDEX && nd_lint_input(job, dequantise, 0) == qvalues)
            return true;
    }
    return false;
}

static enum nd_status nd_lint_concat(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t slot = SIZE_MAX, n_slots = 0, quantise = nd_lint_quantise(job, node);
    const struct nd_quant *x = NULL, *y = nd_lint_one(job, quantise);
    size_t n_inputs = job->graph->nodes[node].n_inputs;
    if (!ND_LINT_IS(job, node, "Concat") || n_inputs < 3 || y == NULL ||
        nd_lint_dtype(job, quantise) != ND_DTYPE_U8 || !is_read_by_conv(job, quantise))
        return ND_OK;
    for (size_t i = 0; i < n_inputs; i++)
        if (is_graph_input(job, nd_lint_dequantise(job, node, i), false)) {
            slot = i;
            n_slots++;
        }
    const struct nd_shape *shape = n_slots == 1 ? &job->infos[nd_lint_input(job, node, slot)].shape : NULL;
    if (shape == NULL || shape->rank != 4 || shape->dims[1] > MAX_CHANNELS)
        return ND_OK;
    x = nd_lint_one(job, nd_lint_dequantise(job, node, slot));
    if (x == NULL || nd_lint_dtype(job, nd_lint_dequantise(job, node, slot)) != ND_DTYPE_U8 ||
        !(unscaled(x, y) > 1))
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, unscaled(x, y)}, NULL, err,
                        "input %zu of the Concat is an input of the model with scale %.7g and zero point %lld; "
                        "the Concat has %.7g and %lld",
                        slot + 1, (double)x->scale[0], (long long)x->zero_point[0], (double)y->scale[0],
                        (long long)y->zero_point[0]);
}

/* ---- reciprocal-scale ---- */

static enum nd_status nd_lint_reciprocal(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 0);
    const struct nd_quant *x = nd_lint_one(job, dequantise);
    if (!ND_LINT_IS(job, node, "Reciprocal") || x == NULL)
        return ND_OK;
    bool is_clipped;
    double one = nd_reciprocal_dividend(x, nd_lint_dtype(job, dequantise), &is_clipped);
    if (!is_clipped)
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "its input has scale %.7g and zero point %lld, and so no quantised value for 1; the "
                        "NPU divides %.3g by it: all values are %.3g times too small",
                        (double)x->scale[0], (long long)x->zero_point[0], one * (double)x->scale[0],
                        1 / (one * (double)x->scale[0]));
}

/* Rules about operators with uint16 outputs. docs/science/htp-arithmetic.md#elements has the formulas. */

enum { WORD_MAX = 65535 };

static bool has_words(const struct nd_lint_job *job, size_t quantiser)
{
    return nd_lint_dtype(job, quantiser) == ND_DTYPE_U16 && nd_lint_one(job, quantiser) != NULL;
}

/* ---- forced-encoding ---- */

/* How far the quantised values of one encoding are from those that stand for the same numbers in another one,
 * which clips.
 */
static double misread(const struct nd_quant *made, const struct nd_quant *read)
{
    double most = 0, ratio = (double)made->scale[0] / (double)read->scale[0];
    for (int64_t qvalue = 0; qvalue <= WORD_MAX; qvalue++) {
        double right = (double)(qvalue - made->zero_point[0]) * ratio + (double)read->zero_point[0];
        most = fmax(most, fabs(fmin(fmax(right, 0), WORD_MAX) - (double)qvalue));
    }
    return most;
}

/* How far values of the operator lie beyond the range of the output's encoding, in its steps. */
static double beyond(const struct nd_quant *made, const struct nd_quant *read)
{
    double ratio = (double)made->scale[0] / (double)read->scale[0];
    double low = (double)-made->zero_point[0] * ratio + (double)read->zero_point[0];
    double high = (double)(WORD_MAX + 1 - made->zero_point[0]) * ratio + (double)read->zero_point[0];
    return fmax(fmax(-low, high - WORD_MAX), 0);
}

/* Whether the quantised values, or what a DequantizeLinear makes of them, are an output of the model: then not
 * the NPU but somebody else gives them their meaning. */
/* ---- concat-range ---- */

/* Fewer are less than 3 bits, of which weight-channels says that they matter. Chosen. */
static const double min_levels = 8;

/* How many quantised values of y all quantised values of x become; *low, *high: the range of x. */
static double levels_left(const struct nd_quant *x, const struct nd_qvalue_range *range,
                          const struct nd_quant *y, double *low, double *high)
{
    *low = (double)(range->min - x->zero_point[0]) * (double)x->scale[0];
    *high = ((double)range->max - (double)x->zero_point[0]) * (double)x->scale[0];
    return nearbyint(*high / (double)y->scale[0]) - nearbyint(*low / (double)y->scale[0]) + 1;
}

static enum nd_status nd_lint_concat_range(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_quant *y = nd_lint_one(job, nd_lint_quantise(job, node));
    for (size_t i = 0; ND_LINT_IS(job, node, "Concat") && y != NULL && i < job->graph->nodes[node].n_inputs;
         i++) {
        size_t dequantise = nd_lint_dequantise(job, node, i);
        const struct nd_quant *x = nd_lint_one(job, dequantise);
        if (x == NULL || !nd_dtype_is_integer(nd_lint_dtype(job, dequantise)))
            continue;
        const struct nd_qvalue_range range = nd_qvalue_range_of(nd_lint_dtype(job, dequantise));
        double low, high, n_values = (double)range.max - (double)range.min + 1;
        double n_left = levels_left(x, &range, y, &low, &high);
        if (n_left >= min_levels || n_left >= n_values)
            continue;
        size_t tensor = job->model->tensor_of_value[nd_lint_input(job, dequantise, 0)];
        double step = (double)y->scale[0];
        char left[64];
        if (n_left > 1)
            snprintf(left, sizeof left, "%.0f of its %.0f quantised values are left", n_left, n_values);
        else
            snprintf(left, sizeof left, "all its values become %.4g", nearbyint(high / step) * step + 0);
        ND_TRY(nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                            "input %zu, '%s', is from %.4g to %.4g, and a step of the output is %.4g: %s", i,
                            tensor != ND_NO_INDEX ? job->model->tensors[tensor].name : "", low, high, step,
                            left));
    }
    return ND_OK;
}

static bool is_handed_out(const struct nd_lint_job *job, size_t quantise)
{
    const struct nd_graph *graph = job->graph;
    const struct nd_graph_tensor *qvalues = &graph->tensors[nd_lint_output(job, quantise)];
    bool is = qvalues->output != ND_NO_INDEX;
    for (size_t r = 0; r < qvalues->n_readers && !is; r++) {
        size_t made = nd_lint_output(job, graph->readers[qvalues->first_reader + r]);
        is = made != ND_NO_INDEX && graph->tensors[made].output != ND_NO_INDEX;
    }
    return is;
}

/* is_output: of the model; else inside of it. */
static enum nd_status look_forced(struct nd_lint_job *job, size_t node, bool is_output, struct nd_error *err)
{
    static const double rounding_lsb = 1; /* chosen: 1/65535 in the place of 1/65536 is off by that */
    size_t quantise = nd_lint_quantise(job, node);
    const Onnx__NodeProto *proto = job->graph->nodes[node].proto;
    const struct nd_forced *forced = nd_forced_find(nd_onnx_text(proto->op_type), nd_lint_dtype(job, quantise));
    const struct nd_quant *y = nd_lint_one(job, quantise);
    struct nd_lint_finding *finding;
    if (forced == NULL || y == NULL || nd_lint_dequantise(job, node, 0) == ND_NO_INDEX ||
        is_handed_out(job, quantise) != is_output || !(misread(&forced->quant, y) > rounding_lsb))
        return ND_OK;
    double effect = is_output ? misread(&forced->quant, y) : beyond(&forced->quant, y);
    ND_TRY(nd_lint_find(job, &(struct nd_lint_at){node, effect}, &finding, err,
                        "the output has scale %.7g with zero point %lld, and the NPU writes it with scale %s",
                        (double)y->scale[0], (long long)y->zero_point[0], forced->text));
    const char *obstacle;
    ND_TRY(nd_lint_change_tensor(job, quantise, &forced->quant, &obstacle, err));
    return obstacle != NULL ? nd_lint_say_obstacle(finding, err, "%s", obstacle)
                            : nd_lint_say_change(finding, err, "the output has scale %s", forced->text);
}

static enum nd_status nd_lint_forced(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    return look_forced(job, node, true, err);
}

static enum nd_status nd_lint_forced_inside(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    return look_forced(job, node, false, err);
}

/* ---- leaky-relu-wrap ---- */

/* Values of x that get 0 although the model clips them to 65535: (x - z_x) m + z_y 2^15 is 2^31 or more. */
static int64_t count_wrapped(const struct nd_quant *x, const struct nd_quant *y, double alpha)
{
    enum { SHIFT = 15 };
    float above = x->scale[0] / y->scale[0], below = above * (float)alpha;
    if (!(fmaxf(above, fabsf(below)) < 1)) /* the shift is less then, and nothing was seen to wrap */
        return 0;
    int64_t multipliers[] = {(int64_t)ldexp((double)above, SHIFT), (int64_t)ldexp((double)below, SHIFT)};
    int64_t n = 0;
    for (int64_t qvalue = 0; qvalue <= WORD_MAX; qvalue++) {
        int64_t d = qvalue - x->zero_point[0];
        n += d * multipliers[d < 0] + (y->zero_point[0] << SHIFT) > INT32_MAX;
    }
    return n;
}

static enum nd_status nd_lint_leaky(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 0), quantise = nd_lint_quantise(job, node);
    if (!ND_LINT_IS(job, node, "LeakyRelu") || !has_words(job, dequantise) || !has_words(job, quantise))
        return ND_OK;
    int64_t n = count_wrapped(nd_lint_one(job, dequantise), nd_lint_one(job, quantise),
                              nd_onnx_attribute_f(job->graph->nodes[node].proto, "alpha", 0.01));
    return n > 0 ? nd_lint_find(job, &(struct nd_lint_at){node, WORD_MAX}, NULL, err,
                                "%lld of 65536 input quantised values lie beyond the output's range; the NPU "
                                "gives 0 for them, not 65535",
                                (long long)n)
                 : ND_OK;
}

/* ---- abs-rows ---- */

static enum nd_status nd_lint_abs(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    enum { KEPT_BITS = 18, CUT = 1 << 15 };
    static const float most = 16; /* beyond it nothing is known */
    size_t dequantise = nd_lint_dequantise(job, node, 0), quantise = nd_lint_quantise(job, node);
    if (!ND_LINT_IS(job, node, "Abs") || !has_words(job, dequantise) || !has_words(job, quantise))
        return ND_OK;
    float m = nd_lint_one(job, dequantise)->scale[0] / nd_lint_one(job, quantise)->scale[0];
    if (!(m < most) || fmod(rint(ldexp((double)m, KEPT_BITS)), CUT) == 0)
        return ND_OK;
    return nd_lint_find(
        job, &(struct nd_lint_at){node, 1}, NULL, err,
        "input and output have different scales (%.7g and %.7g): every second row is rounded down",
        (double)nd_lint_one(job, dequantise)->scale[0], (double)nd_lint_one(job, quantise)->scale[0]);
}

/* ---- operand-8-bits ---- */

static enum nd_status nd_lint_operand(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t first = nd_lint_dequantise(job, node, 0), second = nd_lint_dequantise(job, node, 1);
    if (!ND_LINT_IS(job, node, "MatMul") || !has_words(job, first) || !has_words(job, second) ||
        job->graph->nodes[first].is_constant || job->graph->nodes[second].is_constant)
        return ND_OK;
    double scale = (double)nd_lint_one(job, second)->scale[0];
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "the second operand is calculated and has 16 bits; on the NPU it has 8, in steps of "
                        "%.4g instead of %.4g",
                        257 * scale, scale);
}

/* Rules about quantisers: those that are missing, double, or have parameters that an NPU cannot use. */

/* ---- scale-not-finite ---- */

static enum nd_status nd_lint_scale(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_quant *quant = &job->quants[node].quant;
    for (size_t i = 0; i < quant->n; i++)
        if (!isfinite(quant->scale[i]) || !(quant->scale[i] > 0))
            return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                                "scale %zu of '%s' is %g", i, nd_graph_node_name(job->graph->nodes[node].proto),
                                (double)quant->scale[i]);
    return ND_OK;
}

/* ---- far-range ---- */

static enum nd_status nd_lint_range(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    static const double far = 1e30; /* chosen: no value of a network, but masks such as -3.4e38 */
    const struct nd_quant *quant = nd_lint_one(job, node);
    bool is_constant = job->graph->nodes[node].is_constant;
    enum nd_dtype dtype = nd_lint_dtype(job, node);
    if (quant == NULL || dtype == ND_DTYPE_I32 ||
        (job->graph->nodes[node].kind == ND_NODE_DEQUANTIZE && !is_constant))
        return ND_OK; /* an activation is told of once, where it is quantised */
    double n_qvalues = ldexp(1, 8 * (int)nd_dtype_size_bytes(dtype));
    if (!(n_qvalues * (double)quant->scale[0] > far))
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "the range is %.4g wide, steps of %.4g: a mask is quantised, and all other values "
                        "share one quantised value",
                        n_qvalues * (double)quant->scale[0], (double)quant->scale[0]);
}

/* ---- weight-axis ---- */

/* The axis of the output channels of weights; -1: not known. A first operand has none. */
static int64_t channel_axis(const struct nd_lint_job *job, size_t node, size_t rank)
{
    const Onnx__NodeProto *proto = job->graph->nodes[node].proto;
    if (ND_LINT_IS(job, node, "Conv"))
        return 0;
    if (ND_LINT_IS(job, node, "Gemm"))
        return nd_onnx_attribute_i(proto, "transB", 0) != 0 ? 0 : 1;
    return ND_LINT_IS(job, node, "MatMul") && rank == 2 ? 1 : -1;
}

static enum nd_status nd_lint_weight_axis(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 1), first = nd_lint_dequantise(job, node, 0);
    const struct nd_quant *quant = nd_lint_quant(job, dequantise), *of_first = nd_lint_quant(job, first);
    if (ND_LINT_IS(job, node, "MatMul") && of_first != NULL && of_first->n > 1 &&
        job->graph->nodes[first].is_constant)
        return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                            "its first operand is constant, with scales along axis %d", of_first->axis);
    if (quant == NULL || quant->n < 2 || !job->graph->nodes[dequantise].is_constant)
        return ND_OK;
    const struct nd_tensor_info *weights = &job->infos[nd_lint_input(job, dequantise, 0)];
    int64_t axis = quant->axis,
            right = weights->shape.rank > 0 ? channel_axis(job, node, (size_t)weights->shape.rank) : -1;
    axis += axis < 0 ? weights->shape.rank : 0;
    if (right < 0 || axis == right)
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "the weights have scales along axis %lld; the output channels are axis %lld",
                        (long long)axis, (long long)right);
}

/* ---- weight-channels ---- */

static enum nd_status nd_lint_apart(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 1);
    const struct nd_quant *quant = nd_lint_one(job, dequantise);
    if (quant == NULL || !job->graph->nodes[dequantise].is_constant)
        return ND_OK;
    const struct nd_shape *shape = &job->infos[nd_lint_input(job, dequantise, 0)].shape;
    struct nd_array qvalues = {.shape = *shape};
    int64_t axis = shape->rank > 0 ? channel_axis(job, node, (size_t)shape->rank) : -1;
    double ratio = NAN;
    enum nd_status status =
        axis >= 0 ? nd_lint_numbers(job, dequantise, 0, &qvalues.x, &qvalues.n, err) : ND_OK;
    for (size_t i = 0; i < qvalues.n; i++)
        qvalues.x[i] -= (double)quant->zero_point[0];
    if (status == ND_OK && qvalues.n > 0 && qvalues.n == nd_dims_product(shape, 0, shape->rank))
        status = nd_channels_ratio(&qvalues, (int)axis, &ratio, err);
    free(qvalues.x);
    if (status != ND_OK || !(ratio >= ND_CHANNELS_APART))
        return status;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "all channels of the weights have one scale; the largest channel is %.3g times as "
                        "large as a quarter of the others",
                        ratio);
}

/* ---- activation-channels ---- */

static enum nd_status nd_lint_channels(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &job->graph->nodes[node];
    if (n->kind != ND_NODE_QUANTIZE || n->is_constant || job->quants[node].quant.n < 2)
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "'%s' is no constant and has %zu scales",
                        job->graph->tensors[nd_lint_input(job, node, 0)].name, job->quants[node].quant.n);
}

/* ---- missing-quantiser ---- */

/* Whether the node computes with numbers that were quantised before. */
static bool computes(const struct nd_lint_job *job, size_t node)
{
    const struct nd_graph_node *n = &job->graph->nodes[node];
    size_t made = nd_lint_output(job, node);
    return n->kind == ND_NODE_OTHER && n->is_alive && !n->is_constant && !nd_onnx_is_mover(n->proto) &&
           !ND_LINT_IS(job, node, "Cast") && made != ND_NO_INDEX &&
           (job->infos[made].dtype == ND_DTYPE_F32 || job->infos[made].dtype == ND_DTYPE_NONE);
}

/* Pairs that become one quantised operator nevertheless: MatMul and Add of a constant (Gemm; measured, uint16),
 * and those of Gelu around Erf, of which it is not known. */
static bool is_fused(const struct nd_lint_job *job, size_t node, size_t reader)
{
    if (ND_LINT_IS(job, node, "Erf") || ND_LINT_IS(job, reader, "Erf"))
        return true;
    if (!ND_LINT_IS(job, node, "MatMul") || !ND_LINT_IS(job, reader, "Add"))
        return false;
    for (size_t i = 0; i < job->graph->nodes[reader].n_inputs; i++) {
        size_t tensor = nd_lint_input(job, reader, i);
        if (tensor != ND_NO_INDEX && job->graph->tensors[tensor].is_constant)
            return true;
    }
    return false;
}

/* A float that an operator of a layer hands to another one of the same layer, and that is not an activation
 * function behind it: the provider takes a layer for quantised if each operator has quantisers around it. */
static enum nd_status nd_lint_missing(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_graph *graph = job->graph;
    size_t layer = job->layer_of[node], made = nd_lint_output(job, node);
    bool is_quantised = false, reads_qvalues = false;
    if (!computes(job, node) || layer == ND_NO_INDEX)
        return ND_OK;
    for (size_t i = 0; i < graph->nodes[node].n_inputs; i++)
        reads_qvalues = reads_qvalues || nd_lint_dequantise(job, node, i) != ND_NO_INDEX;
    const struct nd_graph_tensor *t = &graph->tensors[made];
    for (size_t r = 0; r < t->n_readers; r++)
        is_quantised =
            is_quantised || graph->nodes[graph->readers[t->first_reader + r]].kind == ND_NODE_QUANTIZE;
    if (is_quantised || !reads_qvalues || t->n_readers == 0)
        return ND_OK;
    size_t reader = graph->readers[t->first_reader];
    if (is_fused(job, node, reader) || ND_LINT_IS(job, reader, "Cast")) /* to whole numbers, as a rule */
        return ND_OK;
    if (t->n_readers == 1 && ND_LINT_IS(job, reader, "Relu", "Clip") &&
        nd_lint_quantise(job, node) != ND_NO_INDEX)
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "'%s' has no quantiser, although the layer before and behind it are quantised: '%s' "
                        "(%s) reads it as a float",
                        t->name, nd_graph_node_name(graph->nodes[reader].proto),
                        nd_onnx_text(graph->nodes[reader].proto->op_type));
}

/* ---- open-constant ---- */

static enum nd_status nd_lint_open(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t n = nd_model_is_operator(job->model, node) ? nd_model_n_open_constants(job->model, node) : 0;
    if (n == 0)
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "%zu of the initializers that it reads %s of the graph, too (IR version %lld)", n,
                        n == 1 ? "is an input" : "are inputs", (long long)job->model->proto->ir_version);
}

/* ---- double-quantiser ---- */

static enum nd_status nd_lint_double(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &job->graph->nodes[node];
    size_t before =
        n->kind == ND_NODE_QUANTIZE && !n->is_constant ? nd_lint_dequantise(job, node, 0) : ND_NO_INDEX;
    const struct nd_quant *x = nd_lint_one(job, before), *y = nd_lint_one(job, node);
    if (x == NULL || y == NULL || nd_lint_dtype(job, before) != nd_lint_dtype(job, node) ||
        nd_quant_is_same(x, y))
        return ND_OK; /* another type is on purpose; equal parameters change nothing */
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "the values are rounded twice, to scale %.7g (zero point %lld) and then to %.7g (%lld)",
                        (double)x->scale[0], (long long)x->zero_point[0], (double)y->scale[0],
                        (long long)y->zero_point[0]);
}

static const struct nd_lint_rule lint_rules[] = {
#define ND_LINT_RULE(id, look, level, is_mended, what, why, where, cost, mend, evidence)                       \
    {id, ND_LINT_##level, what, why, where, cost, mend, evidence, is_mended},
#include "improve/lint/rules.def"
#undef ND_LINT_RULE
};

static nd_lint_look *const looks[] = {
#define ND_LINT_RULE(id, look, level, is_mended, what, why, where, cost, mend, evidence) look,
#include "improve/lint/rules.def"
#undef ND_LINT_RULE
};

const struct nd_lint_rule *nd_lint_rules(size_t *n)
{
    *n = sizeof lint_rules / sizeof lint_rules[0];
    return lint_rules;
}

const char *nd_lint_level_name(enum nd_lint_level level)
{
    static const char *const names[] = {"error", "warning", "note"};
    return names[level];
}

void nd_lint_options_init_sized(struct nd_lint_options *options, size_t struct_size)
{
    const struct nd_lint_options own = {0};
    nd_options_write(options, struct_size, &own, sizeof own);
}

/* ---- what the rules read ---- */

static enum nd_status read_quantisers(struct nd_lint_job *job, size_t *n_quantisers, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t n = 0; n < job->graph->n_nodes && status == ND_OK; n++)
        if (job->graph->nodes[n].kind != ND_NODE_OTHER) {
            status = nd_node_quant_read(job->graph, n, job->model->path, &job->quants[n], err);
            ++*n_quantisers;
        }
    return status;
}

static enum nd_status init_job(struct nd_lint_job *job, size_t *n_quantisers, struct nd_error *err)
{
    const struct nd_graph *graph = job->graph;
    job->quants = nd_calloc(graph->n_nodes, sizeof *job->quants);
    job->infos = nd_calloc(graph->n_tensors, sizeof *job->infos);
    job->result = nd_calloc(1, sizeof *job->result);
    ND_TRY_MEMORY(job->quants != NULL && job->infos != NULL && job->result != NULL, err);
    job->result->struct_size = sizeof *job->result;
    job->result->n_layers = job->model->n_layers;
    job->result->n_qoperators = nd_model_n_qoperators(job->model, &job->result->qoperator);
    job->result->model = nd_strdup(job->model->path);
    ND_TRY_MEMORY(job->result->model != NULL, err);
    nd_infer_declared(job->model, job->infos);
    nd_infer_propagate(job->model, job->infos);
    enum nd_status status = nd_layers_assign(graph, &job->layer_of, err);
    return status == ND_OK ? read_quantisers(job, n_quantisers, err) : status;
}

static void deinit_job(struct nd_lint_job *job)
{
    for (size_t n = 0; job->quants != NULL && n < job->graph->n_nodes; n++)
        nd_quant_deinit(&job->quants[n].quant);
    for (size_t i = 0; i < job->n_changes; i++)
        free((void *)(uintptr_t)job->changes[i].qvalues); /* nd_lint_change_constant's own */
    for (size_t i = 0; i < job->n_kept; i++) {
        nd_quant_deinit(job->kept[i]);
        free(job->kept[i]);
    }
    ND_FREE_ALL(job->kept, job->changes, job->quants, job->infos, job->layer_of);
    nd_lint_destroy(&job->result);
}

/* ---- looking and mending ---- */

static enum nd_status look(struct nd_lint_job *job, struct nd_error *err)
{
    size_t n_rules;
    const struct nd_lint_rule *rules = nd_lint_rules(&n_rules);
    for (size_t r = 0; r < n_rules; r++) {
        job->rule = &rules[r];
        for (size_t n = 0; n < job->graph->n_nodes; n++)
            if (job->graph->nodes[n].is_alive)
                ND_TRY(looks[r](job, n, err));
    }
    return ND_OK;
}

static enum nd_status mend(struct nd_lint_job *job, const char *output, struct nd_error *err)
{
    struct nd_lint *result = job->result;
    if (job->n_changes == 0)
        return ND_OK;
    ND_TRY(nd_model_write_recoded(job->model, job->changes, job->n_changes, output, err));
    result->output = nd_strdup(output);
    for (size_t i = 0; i < result->n_findings; i++)
        result->findings[i].is_mended = result->findings[i].change != NULL;
    return result->output != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_lint_model(const struct nd_model *model, const struct nd_lint_options *options,
                             struct nd_lint **out, struct nd_error *err)
{
    struct nd_lint_options own;
    size_t n_quantisers = 0;
    ND_CLEANUP(deinit_job) struct nd_lint_job job = {.model = model, .graph = &model->graph};
    nd_lint_options_init(&own);
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    if (own.output != NULL && !own.replace && nd_path_exists(own.output))
        ND_TRY(nd_fail(err, ND_E_FILE_EXISTS, own.output, "'%s' exists already", own.output));
    ND_TRY(init_job(&job, &n_quantisers, err));
    ND_TRY(look(&job, err));
    if (n_quantisers == 0 && job.result->n_findings == 0)
        ND_TRY(nd_fail(err, ND_E_LINT_FLOAT, model->path,
                       "'%s' is not quantised: it has no QuantizeLinear and no DequantizeLinear", model->path));
    if (own.output != NULL)
        ND_TRY(mend(&job, own.output, err));
    for (size_t i = 0; i < job.result->n_findings; i++) {
        enum nd_lint_level level = job.result->findings[i].rule->level;
        job.result->n_errors += level == ND_LINT_ERROR;
        job.result->n_warnings += level == ND_LINT_WARNING;
        job.result->n_notes += level == ND_LINT_NOTE;
        job.result->n_left += level != ND_LINT_NOTE && !job.result->findings[i].is_mended;
    }
    *out = job.result;
    job.result = NULL;
    return ND_OK;
}

bool nd_lint_has_examined(const struct nd_lint *lint)
{
    return lint->n_layers > 0 || lint->n_findings > 0;
}

void nd_lint_destroy(struct nd_lint **lint_ptr)
{
    struct nd_lint *lint = *lint_ptr;
    if (lint == NULL)
        return;
    for (size_t i = 0; i < lint->n_findings; i++) {
        struct nd_lint_finding *finding = &lint->findings[i];
        ND_FREE_ALL(finding->tensor, finding->node, finding->op_type, finding->message, finding->change,
                    finding->obstacle);
    }
    ND_FREE_ALL(lint->findings, lint->model, lint->output, lint);
    *lint_ptr = NULL;
}
