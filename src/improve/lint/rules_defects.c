/* Rules about operators that the NPU computes wrongly, whatever their precision. docs/results/found.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/known/conditions.h"
#include "improve/lint/lint_job.h"

/* ---- cast-bytes ---- */

enum nd_status nd_lint_cast(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &job->graph->nodes[node];
    size_t x = nd_lint_input(job, node, 0);
    enum nd_dtype to = nd_onnx_dtype((int32_t)nd_onnx_attribute_i(n->proto, "to", 0));
    if (!nd_lint_is(job, node, "Cast") || n->is_constant || x == ND_NO_INDEX ||
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

enum nd_status nd_lint_blocks(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 1), x = nd_lint_dequantise(job, node, 0);
    if (!nd_lint_is(job, node, "MatMul") || dequantise == ND_NO_INDEX || nd_lint_dtype(job, x) != ND_DTYPE_U16)
        return ND_OK; /* with uint8 it runs on the CPU */
    size_t codes = nd_lint_input(job, dequantise, 0), zero = nd_lint_input(job, dequantise, 2);
    const Onnx__TensorProto *weights = codes != ND_NO_INDEX ? nd_graph_constant(job->graph, codes) : NULL;
    const Onnx__TensorProto *zeros = zero != ND_NO_INDEX ? nd_graph_constant(job->graph, zero) : NULL;
    int64_t block = nd_onnx_attribute_i(job->graph->nodes[dequantise].proto, "block_size", 0);
    if (weights == NULL || weights->data_type != UINT4_OF_ONNX || block == 0 || zeros == NULL ||
        !has_bits(zeros))
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "the weights are uint4 in blocks of %lld, with a zero point", (long long)block);
}

/* ---- moved-unscaled ---- */

/* Whether the codes that a DequantizeLinear reads are those of an input of the model: its own or just
 * quantised; past layers that only move them. moved: at least one such layer must lie between. */
static bool is_graph_input(const struct nd_lint_job *job, size_t dequantise, bool moved)
{
    const struct nd_graph *graph = job->graph;
    static const char *const moving[] = {"Reshape", "Transpose", "Resize"};
    size_t n_moves = 0;
    while (dequantise != ND_NO_INDEX) {
        size_t codes = nd_lint_input(job, dequantise, 0), maker = graph->tensors[codes].producer;
        size_t real = maker != ND_NO_INDEX && graph->nodes[maker].kind == ND_NODE_QUANTIZE
                          ? nd_lint_input(job, maker, 0)
                          : codes;
        if (graph->tensors[real].input != ND_NO_INDEX && !graph->tensors[real].is_constant)
            return !moved || n_moves > 0;
        size_t mover = graph->tensors[real].producer;
        bool is_moving = false;
        for (size_t i = 0; moved && mover != ND_NO_INDEX && i < sizeof moving / sizeof moving[0]; i++)
            is_moving = is_moving || nd_lint_is(job, mover, moving[i]);
        dequantise = is_moving ? nd_lint_dequantise(job, mover, 0) : ND_NO_INDEX;
        n_moves++;
    }
    return false;
}

/* The most that a code is off which is passed on unscaled: in steps of the output. */
static double unscaled(const struct nd_quant *x, const struct nd_quant *y)
{
    double most = 0, ratio = (double)x->scale[0] / (double)y->scale[0];
    for (int64_t code = 0; code <= UINT8_MAX; code++) {
        double right = nearbyint((double)(code - x->zero_point[0]) * ratio) + (double)y->zero_point[0];
        most = fmax(most, fabs(fmin(fmax(right, 0), UINT8_MAX) - (double)code));
    }
    return most;
}

/* Whether the output's range holds all that the input can be, to half a step: then its quantiser clips nothing.
 */
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
    bool is_concat = nd_lint_is(job, node, "Concat");
    if (x == NULL || y == NULL || nd_lint_dtype(job, dequantise) != ND_DTYPE_U8 ||
        nd_lint_dtype(job, quantise) != ND_DTYPE_U8 || !(unscaled(x, y) > 1) ||
        !is_graph_input(job, dequantise, is_concat))
        return ND_OK;
    struct nd_lint_finding *finding;
    const char *obstacle = is_concat          ? "the other inputs of the Concat have this encoding, too"
                           : !holds_all(x, y) ? "the output's range clips values of the input"
                                              : NULL;
    enum nd_status status = nd_lint_find(
        job, &(struct nd_lint_at){node, unscaled(x, y)}, &finding, err,
        "codes of an input of the model (scale %.7g, zero point %lld) become codes of scale %.7g, zero "
        "point %lld",
        (double)x->scale[0], (long long)x->zero_point[0], (double)y->scale[0], (long long)y->zero_point[0]);
    if (status == ND_OK && obstacle == NULL)
        status = nd_lint_change_edge(job, quantise, x, &obstacle, err);
    if (status != ND_OK)
        return status;
    return obstacle != NULL ? nd_lint_say_obstacle(finding, err, "%s", obstacle)
                            : nd_lint_say_change(finding, err,
                                                 "the output has the encoding of the input: scale %.7g, zero "
                                                 "point %lld",
                                                 (double)x->scale[0], (long long)x->zero_point[0]);
}

enum nd_status nd_lint_moved(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const Onnx__NodeProto *proto = job->graph->nodes[node].proto;
    const Onnx__AttributeProto *mode = nd_onnx_attribute(proto, "mode");
    bool is_constant_pad = mode == NULL || mode->s.len == strlen("constant");
    if (nd_lint_is(job, node, "DepthToSpace") || nd_lint_is(job, node, "SpaceToDepth") ||
        (nd_lint_is(job, node, "Pad") && !is_constant_pad))
        return tell_moved(job, node, 0, err);
    enum nd_status status = ND_OK;
    for (size_t i = 0;
         status == ND_OK && nd_lint_is(job, node, "Concat") && i < job->graph->nodes[node].n_inputs; i++)
        status = tell_moved(job, node, i, err);
    return status;
}

/* ---- concat-input ---- */

/* More channels are rescaled: measured with 1 to 64, QAIRT 2.51.0, uint8. */
enum { MOST_CHANNELS = 8 };

static bool is_read_by_conv(const struct nd_lint_job *job, size_t quantise)
{
    size_t codes = nd_lint_output(job, quantise);
    for (size_t node = 0; node < job->graph->n_nodes; node++) {
        size_t dequantise = nd_lint_is(job, node, "Conv") ? nd_lint_dequantise(job, node, 0) : ND_NO_INDEX;
        if (dequantise != ND_NO_INDEX && nd_lint_input(job, dequantise, 0) == codes)
            return true;
    }
    return false;
}

enum nd_status nd_lint_concat(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t slot = SIZE_MAX, n_slots = 0, quantise = nd_lint_quantise(job, node);
    const struct nd_quant *x = NULL, *y = nd_lint_one(job, quantise);
    size_t n_inputs = job->graph->nodes[node].n_inputs;
    if (!nd_lint_is(job, node, "Concat") || n_inputs < 3 || y == NULL ||
        nd_lint_dtype(job, quantise) != ND_DTYPE_U8 || !is_read_by_conv(job, quantise))
        return ND_OK;
    for (size_t i = 0; i < n_inputs; i++)
        if (is_graph_input(job, nd_lint_dequantise(job, node, i), false)) {
            slot = i;
            n_slots++;
        }
    const struct nd_shape *shape = n_slots == 1 ? &job->infos[nd_lint_input(job, node, slot)].shape : NULL;
    if (shape == NULL || shape->rank != 4 || shape->dims[1] > MOST_CHANNELS)
        return ND_OK;
    x = nd_lint_one(job, nd_lint_dequantise(job, node, slot));
    if (x == NULL || nd_lint_dtype(job, nd_lint_dequantise(job, node, slot)) != ND_DTYPE_U8 ||
        !(unscaled(x, y) > 1))
        return ND_OK;
    return nd_lint_find(
        job, &(struct nd_lint_at){node, unscaled(x, y)}, NULL, err,
        "input %zu of the Concat is an input of the model with scale %.7g and zero point %lld; the "
        "Concat has %.7g and %lld",
        slot + 1, (double)x->scale[0], (long long)x->zero_point[0], (double)y->scale[0],
        (long long)y->zero_point[0]);
}

/* ---- reciprocal-scale ---- */

enum nd_status nd_lint_reciprocal(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 0);
    const struct nd_quant *x = nd_lint_one(job, dequantise);
    if (!nd_lint_is(job, node, "Reciprocal") || x == NULL)
        return ND_OK;
    bool is_clipped;
    double one = nd_reciprocal_dividend(x, nd_lint_dtype(job, dequantise), &is_clipped);
    if (!is_clipped)
        return ND_OK;
    return nd_lint_find(
        job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
        "its input has scale %.7g and zero point %lld, and so no code for 1; the NPU divides %.3g by "
        "it: all values are %.3g times too small",
        (double)x->scale[0], (long long)x->zero_point[0], one * (double)x->scale[0],
        1 / (one * (double)x->scale[0]));
}
