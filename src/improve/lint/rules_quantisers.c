/* Rules about quantisers: those that are missing, double, or have parameters that an NPU cannot use. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensors/scales.h"
#include "improve/lint/lint_job.h"
#include "arithmetic/operators/ops_shared.h"
#include "quantisation/weights.h"

/* ---- scale-not-finite ---- */

enum nd_status nd_lint_scale(struct nd_lint_job *job, size_t node, struct nd_error *err)
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

enum nd_status nd_lint_range(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    static const double far = 1e30; /* chosen: no value of a network, but masks such as -3.4e38 */
    const struct nd_quant *quant = nd_lint_one(job, node);
    bool is_constant = job->graph->nodes[node].is_constant;
    enum nd_dtype dtype = nd_lint_dtype(job, node);
    if (quant == NULL || dtype == ND_DTYPE_I32 ||
        (job->graph->nodes[node].kind == ND_NODE_DEQUANTIZE && !is_constant))
        return ND_OK; /* an activation is told of once, where it is quantised */
    double n_codes = ldexp(1, 8 * (int)nd_dtype_size_bytes(dtype));
    if (!(n_codes * (double)quant->scale[0] > far))
        return ND_OK;
    return nd_lint_find(
        job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
        "the range is %.4g wide, steps of %.4g: a mask is quantised, and all other values share one code",
        n_codes * (double)quant->scale[0], (double)quant->scale[0]);
}

/* ---- weight-axis ---- */

/* The axis of the output channels of weights; -1: not known. */
static int64_t channel_axis(const struct nd_lint_job *job, size_t node, size_t rank)
{
    const Onnx__NodeProto *proto = job->graph->nodes[node].proto;
    if (nd_lint_is(job, node, "Conv"))
        return 0;
    if (nd_lint_is(job, node, "Gemm"))
        return nd_onnx_attribute_i(proto, "transB", 0) != 0 ? 0 : 1;
    return nd_lint_is(job, node, "MatMul") && rank == 2 ? 1 : -1;
}

enum nd_status nd_lint_weight_axis(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 1);
    const struct nd_quant *quant = nd_lint_quant(job, dequantise);
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

enum nd_status nd_lint_apart(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 1);
    const struct nd_quant *quant = nd_lint_one(job, dequantise);
    if (quant == NULL || !job->graph->nodes[dequantise].is_constant)
        return ND_OK;
    const struct nd_shape *shape = &job->infos[nd_lint_input(job, dequantise, 0)].shape;
    struct nd_array codes = {.shape = *shape};
    int64_t axis = shape->rank > 0 ? channel_axis(job, node, (size_t)shape->rank) : -1;
    double ratio = NAN;
    enum nd_status status = axis >= 0 ? nd_lint_numbers(job, dequantise, 0, &codes.x, &codes.n, err) : ND_OK;
    for (size_t i = 0; i < codes.n; i++)
        codes.x[i] -= (double)quant->zero_point[0];
    if (status == ND_OK && codes.n > 0 && codes.n == nd_dims_product(shape, 0, shape->rank))
        status = nd_channels_ratio(&codes, (int)axis, &ratio, err);
    free(codes.x);
    if (status != ND_OK || !(ratio >= ND_CHANNELS_APART))
        return status;
    return nd_lint_find(
        job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
        "all channels of the weights have one scale; the largest channel is %.3g times as large "
        "as a quarter of the others",
        ratio);
}

/* ---- activation-channels ---- */

enum nd_status nd_lint_channels(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &job->graph->nodes[node];
    if (n->kind != ND_NODE_QUANTIZE || n->is_constant || job->quants[node].quant.n < 2)
        return ND_OK;
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "'%s' is no constant and has %zu scales",
                        job->graph->tensors[nd_lint_input(job, node, 0)].name, job->quants[node].quant.n);
}

/* ---- missing-quantiser ---- */

static bool is_activation(const struct nd_lint_job *job, size_t node)
{
    return nd_lint_is(job, node, "Relu") || nd_lint_is(job, node, "Clip");
}

/* Whether the node computes with numbers that were quantised before. */
static bool computes(const struct nd_lint_job *job, size_t node)
{
    const struct nd_graph_node *n = &job->graph->nodes[node];
    size_t made = nd_lint_output(job, node);
    return n->kind == ND_NODE_OTHER && n->is_alive && !n->is_constant && !nd_onnx_is_mover(n->proto) &&
           !nd_lint_is(job, node, "Cast") && made != ND_NO_INDEX &&
           (job->infos[made].dtype == ND_DTYPE_F32 || job->infos[made].dtype == ND_DTYPE_NONE);
}

/* Pairs that become one quantised operator nevertheless: MatMul and Add of a constant (Gemm; measured, uint16),
 * and those of Gelu around Erf, of which it is not known. */
static bool is_fused(const struct nd_lint_job *job, size_t node, size_t reader)
{
    if (nd_lint_is(job, node, "Erf") || nd_lint_is(job, reader, "Erf"))
        return true;
    if (!nd_lint_is(job, node, "MatMul") || !nd_lint_is(job, reader, "Add"))
        return false;
    for (size_t i = 0; i < job->graph->nodes[reader].n_inputs; i++) {
        size_t tensor = nd_lint_input(job, reader, i);
        if (tensor != ND_NO_INDEX && job->graph->tensors[tensor].is_constant)
            return true;
    }
    return false;
}

/* A float that an operator of a layer hands to another one of the same layer, and that is not an activation
 * function behind it: the provider takes a layer for quantised only if each operator has quantisers around it.
 */
enum nd_status nd_lint_missing(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    const struct nd_graph *graph = job->graph;
    size_t unit = job->unit_of[node], made = nd_lint_output(job, node);
    bool is_quantised = false, reads_codes = false;
    if (!computes(job, node) || unit == ND_NO_INDEX)
        return ND_OK;
    for (size_t i = 0; i < graph->nodes[node].n_inputs; i++)
        reads_codes = reads_codes || nd_lint_dequantise(job, node, i) != ND_NO_INDEX;
    const struct nd_graph_tensor *t = &graph->tensors[made];
    for (size_t r = 0; r < t->n_readers; r++)
        is_quantised =
            is_quantised || graph->nodes[graph->readers[t->first_reader + r]].kind == ND_NODE_QUANTIZE;
    if (is_quantised || !reads_codes || t->n_readers == 0)
        return ND_OK;
    size_t reader = graph->readers[t->first_reader];
    if (is_fused(job, node, reader) || nd_lint_is(job, reader, "Cast")) /* to whole numbers, as a rule */
        return ND_OK;
    if (t->n_readers == 1 && is_activation(job, reader) && nd_lint_quantise(job, node) != ND_NO_INDEX)
        return ND_OK;
    return nd_lint_find(
        job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
        "'%s' has no quantiser, although the layer before and behind it are quantised: '%s' (%s) reads it "
        "as a float",
        t->name, nd_graph_node_name(graph->nodes[reader].proto),
        nd_onnx_text(graph->nodes[reader].proto->op_type));
}

/* ---- double-quantiser ---- */

enum nd_status nd_lint_double(struct nd_lint_job *job, size_t node, struct nd_error *err)
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
