/* Constants, and operators between them, of a graph whose channels were scaled. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/graph_internal.h"

enum nd_status nd_exact_scalings_init(struct nd_exact_graph *g, struct nd_error *err)
{
    g->scalings = nd_calloc(g->model->graph.n_tensors, sizeof *g->scalings);
    g->scaled_nodes = nd_calloc(g->model->graph.n_nodes, sizeof *g->scaled_nodes);
    return g->scalings != NULL && g->scaled_nodes != NULL ? ND_OK : nd_fail_memory(err);
}

void nd_exact_scalings_deinit(struct nd_exact_graph *g)
{
    for (size_t t = 0; g->scalings != NULL && t < g->model->graph.n_tensors; t++) {
        free(g->scalings[t].outputs);
        free(g->scalings[t].inputs);
    }
    for (size_t n = 0; g->scaled_nodes != NULL && n < g->model->graph.n_nodes; n++)
        free(g->scaled_nodes[n].factors);
    free(g->scalings);
    free(g->scaled_nodes);
}

/* ---- constants ---- */

void nd_exact_apply_scaling(const struct nd_exact_graph *g, size_t t)
{
    const struct nd_exact_scaling *scaling = &g->scalings[t];
    if (scaling->axes.n0 > 0)
        nd_weights_scale(&scaling->axes, &(struct nd_weight_factors){scaling->outputs, scaling->inputs},
                         g->constants[t].x);
}

/* *out stays NULL where there are none. */
static enum nd_status copy_factors(const double *factors, size_t n, double **out, struct nd_error *err)
{
    if (factors == NULL)
        return ND_OK;
    *out = nd_calloc(n, sizeof **out);
    for (size_t i = 0; *out != NULL && i < n; i++)
        (*out)[i] = factors[i];
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_exact_graph_scale(struct nd_exact_graph *g, size_t t, const struct nd_weight_axes *axes,
                                    const struct nd_weight_factors *factors, struct nd_error *err)
{
    struct nd_exact_scaling scaling = {.axes = *axes};
    enum nd_status status =
        copy_factors(factors->outputs, nd_weight_channels(axes, true), &scaling.outputs, err);
    if (status == ND_OK)
        status = copy_factors(factors->inputs, nd_weight_channels(axes, false), &scaling.inputs, err);
    if (status != ND_OK) {
        free(scaling.outputs);
        return status;
    }
    g->scalings[t] = scaling;
    if (g->constants[t].x != NULL)
        nd_exact_apply_scaling(g, t);
    return ND_OK;
}

/* ---- operators ---- */

enum nd_status nd_exact_graph_scale_node(struct nd_exact_graph *g, size_t node, const double *factors, size_t n,
                                         struct nd_error *err)
{
    double *copy = NULL;
    enum nd_status status = copy_factors(factors, n, &copy, err);
    if (status == ND_OK)
        g->scaled_nodes[node] = (struct nd_exact_scaled_node){n, copy};
    return status;
}

/* Axis 1: what lies between two layers has its channels there. */
static void scale_channels(const struct nd_exact_scaled_node *scaled, bool is_divided, struct nd_array *values)
{
    size_t inner = nd_dims_product(&values->shape, 2, values->shape.rank);
    for (size_t i = 0; i < values->n; i++) {
        double factor = scaled->factors[i / inner % scaled->n];
        values->x[i] = is_divided ? values->x[i] / factor : values->x[i] * factor;
    }
}

enum nd_status nd_exact_run_operator(const struct nd_exact_graph *g, size_t node, const struct nd_op_call *call,
                                     struct nd_error *err)
{
    const struct nd_exact_scaled_node *scaled = &g->scaled_nodes[node];
    const struct nd_array *input = call->inputs[0];
    if (scaled->n == 0 || input->shape.rank < 2 || (size_t)input->shape.dims[1] != scaled->n)
        return nd_op_run(call, err);
    struct nd_array copy = {0};
    enum nd_status status = nd_array_copy(input, &copy, err);
    if (status != ND_OK)
        return status;
    scale_channels(scaled, true, &copy);
    const struct nd_array *inputs[ND_EXACT_MAX_OPERANDS] = {&copy};
    for (size_t i = 1; i < call->n_inputs; i++)
        inputs[i] = call->inputs[i];
    struct nd_op_call smaller = *call;
    smaller.inputs = inputs;
    status = nd_op_run(&smaller, err);
    if (status == ND_OK)
        scale_channels(scaled, false, call->outputs[0]);
    nd_array_deinit(&copy);
    return status;
}
