/* Where the constants of a layer are, and what they were before they were quantised. */
#include "improve/align/align_constants.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/error.h"
#include "core/memory.h"
#include "model/graph/constants.h"

/* ---- where the layer's constants are ---- */

size_t nd_align_node_of(const struct nd_graph *graph, const Onnx__NodeProto *proto)
{
    size_t n = 0;
    while (n < graph->n_nodes && graph->nodes[n].proto != proto)
        n++;
    return n < graph->n_nodes ? n : ND_NO_INDEX;
}

size_t nd_align_dequantizer_of(const struct nd_graph *graph, size_t node, size_t i, bool *is_shared)
{
    if (i >= graph->nodes[node].n_inputs)
        return ND_NO_INDEX;
    size_t tensor = graph->uses[graph->nodes[node].first_use + i];
    if (tensor == ND_NO_INDEX || graph->tensors[tensor].producer == ND_NO_INDEX ||
        graph->nodes[graph->tensors[tensor].producer].kind != ND_NODE_DEQUANTIZE)
        return ND_NO_INDEX;
    *is_shared =
        *is_shared || graph->tensors[tensor].n_readers > 1 || graph->tensors[tensor].output != ND_NO_INDEX;
    return graph->tensors[tensor].producer;
}

/* ---- the float model ---- */

/* Whether the numbers are what was quantised: within a step of the quantised values, in the root of the mean
 * square. */
static bool is_origin(const struct nd_float_constant *constant, const struct nd_linear_input *input)
{
    const struct nd_array *qvalues = input->values;
    double squares = 0;
    if (constant->n != qvalues->n || constant->rank != (size_t)qvalues->shape.rank)
        return false;
    for (size_t d = 0; d < constant->rank; d++)
        if (constant->dims[d] != qvalues->shape.dims[d])
            return false;
    for (size_t i = 0; i < qvalues->n; i++) {
        size_t c = nd_exact_channel(input->quant, &qvalues->shape, i);
        double steps = (double)constant->values[i] / (double)input->quant->scale[c] +
                       (double)input->quant->zero_point[c] - qvalues->x[i];
        squares += steps * steps;
    }
    return squares <= (double)qvalues->n;
}

static enum nd_status copy_values(const struct nd_align_scaled *scaled, double **out, struct nd_error *err)
{
    *out = nd_calloc(scaled->n, sizeof **out);
    if (*out == NULL)
        return nd_fail_memory(err);
    memcpy(*out, scaled->values, scaled->n * sizeof **out);
    return ND_OK;
}

enum nd_status nd_align_find_floats(const struct nd_align_plan *plan, size_t dequantizer,
                                    const struct nd_linear_input *input, double **out, struct nd_error *err)
{
    if (plan->float_model == NULL || dequantizer == ND_NO_INDEX)
        return ND_OK;
    const struct nd_graph *graph = &plan->model->graph, *floats = &plan->float_model->graph;
    struct nd_float_constant constant = {0};
    struct nd_error ignored = {0};
    bool is_constant = false;
    char *name = nd_model_constant_name(graph, dequantizer);
    if (name == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < plan->n_scaled; i++)
        if (strcmp(plan->scaled[i].name, name) == 0) {
            free(name);
            return copy_values(&plan->scaled[i], out, err);
        }
    size_t tensor = nd_names_find(&floats->names, name);
    free(name);
    if (tensor == ND_NO_INDEX || nd_float_constant_read(floats, tensor, nd_model_path(plan->float_model),
                                                        &constant, &is_constant, &ignored) != ND_OK)
        return ND_OK;
    enum nd_status status = ND_OK;
    if (is_constant && is_origin(&constant, input)) {
        *out = nd_calloc(constant.n, sizeof **out);
        for (size_t i = 0; *out != NULL && i < constant.n; i++)
            (*out)[i] = (double)constant.values[i];
        status = *out != NULL ? ND_OK : nd_fail_memory(err);
    }
    free(constant.values);
    return status;
}
