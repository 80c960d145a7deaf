/* The families of operators, and running one.
 *
 * Every value is a double whatever the graph calls it, and nothing is rounded to a narrower float type, not
 * even by Cast. Sums are added up in plain double in order (C order of the summed axes), starting from 0: their
 * relative error is at most about n * 2^-53 of the sum of the magnitudes. exp, log, tanh, erf and the like are
 * the C library's, which are off by about one unit in the last place of a double. Attributes are single
 * precision in ONNX; the reference takes them, and the defaults of the specification, as the floats they are.
 * NaN goes through minima, maxima and pooling. */
#include "arithmetic/operators/ops_shared.h"
#include "core/error.h"
#include "model/graph/graph.h"

static const struct nd_op *const families[] = {
    nd_ops_quant, nd_ops_convolutions, nd_ops_products, nd_ops_elements,  nd_ops_pools, nd_ops_axes,
    nd_ops_moves, nd_ops_gathers,      nd_ops_samplers, nd_ops_recurrent, nd_ops_makers};

const struct nd_op *nd_op_find(const char *domain, const char *op_type)
{
    const struct nd_op *op = NULL;
    for (size_t i = 0; i < sizeof families / sizeof families[0] && op == NULL; i++)
        op = nd_op_in_list(families[i], domain, op_type);
    return op;
}

/* A zeroed array has the shape of one element, and none. */
static bool is_made(const struct nd_array *array)
{
    return array->n == nd_dims_product(&array->shape, 0, array->shape.rank);
}

static bool is_recurrent(const Onnx__NodeProto *node)
{
    return nd_op_in_list(nd_ops_recurrent, node->domain, nd_onnx_text(node->op_type)) != NULL;
}

static enum nd_status run(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_op *op = nd_op_find(call->node->domain, nd_onnx_text(call->node->op_type));
    if (op == NULL)
        return nd_op_unsupported(call, err, "the operator is not evaluated in double precision");
    for (size_t i = 0; i < op->n_required; i++)
        if (nd_op_in(call, i) == NULL)
            return nd_op_misfit(call, err, "input %zu is missing", i);
    if (nd_op_out(call, 0) == NULL && !is_recurrent(call->node)) /* of which the last state may do */
        return nd_op_unsupported(call, err, "its first output is omitted");
    enum nd_status status = op->run(call, err);
    for (size_t i = 0; i < call->n_outputs && status == ND_OK; i++)
        if (call->outputs[i] != NULL && !is_made(call->outputs[i]))
            status = nd_op_unsupported(call, err, "its output %zu is not evaluated", i);
    return status;
}

enum nd_status nd_op_run(const struct nd_op_call *call, struct nd_error *err)
{
    enum nd_status status = run(call, err);
    if (status != ND_OK)
        nd_error_context(err, "node '%s' (%s)", nd_graph_node_name(call->node),
                         nd_onnx_text(call->node->op_type));
    return status;
}
