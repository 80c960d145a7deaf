#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "exact/graph_internal.h"
#include "model/external.h"

static enum nd_status decode(const struct nd_model *model, const Onnx__TensorProto *tensor,
                             struct nd_array *out, struct nd_error *err)
{
    if (!nd_external_is(tensor))
        return nd_op_tensor(tensor, out, err);
    void *data;
    size_t size_bytes;
    enum nd_status status = nd_external_read(tensor, model->path, &data, &size_bytes, err);
    if (status != ND_OK)
        return status;
    Onnx__TensorProto inside = *tensor; /* as if the bytes lay in the model */
    inside.has_data_location = false;
    inside.n_external_data = 0;
    inside.has_raw_data = true;
    inside.raw_data = (ProtobufCBinaryData){.len = size_bytes, .data = data};
    status = nd_op_tensor(&inside, out, err);
    free(data);
    return status;
}

static enum nd_status load_constants(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    enum nd_status status = ND_OK;
    for (size_t t = 0; t < graph->n_tensors && status == ND_OK; t++) {
        if (graph->tensors[t].initializer == NULL)
            continue;
        struct nd_array values = {0};
        status = decode(g->model, graph->tensors[t].initializer, &values, err);
        if (status == ND_OK)
            g->constants[t] = values;
    }
    return status;
}

/* Nodes that compute from constants, once: their values move to the constants. */
static enum nd_status fold_constants(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    struct nd_exact_run run = {.g = g, .graph = graph};
    run.values = nd_calloc(graph->n_tensors, sizeof *run.values);
    if (run.values == NULL)
        return nd_fail_memory(err);
    for (size_t t = 0; t < graph->n_tensors; t++)
        run.values[t] = nd_exact_none();
    enum nd_status status = ND_OK;
    for (size_t n = 0; n < graph->n_nodes && status == ND_OK; n++) {
        if (!graph->nodes[n].is_constant || !graph->nodes[n].is_alive)
            continue;
        status = nd_exact_run_node(&run, n, err);
        for (size_t i = 0; i < graph->nodes[n].n_made && status == ND_OK; i++) {
            size_t t = nd_exact_made(graph, n, i);
            if (t != ND_NO_INDEX && g->constants[t].shape.rank < 0 && run.values[t].shape.rank >= 0) {
                g->constants[t] = run.values[t];
                run.values[t] = nd_exact_none();
            }
        }
    }
    for (size_t t = 0; t < graph->n_tensors; t++)
        if (run.values[t].shape.rank >= 0)
            nd_array_deinit(&run.values[t]);
    free(run.values);
    return status;
}

static void find_last_uses(struct nd_exact_graph *g)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t t = 0; t < graph->n_tensors; t++)
        g->last_use[t] = ND_NO_INDEX;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        if (!graph->nodes[n].is_alive)
            continue;
        size_t when = g->unit_of_node[n] != ND_NO_INDEX ? g->unit_of_node[n] : n;
        for (size_t i = 0; i < graph->nodes[n].n_uses; i++) {
            size_t t = graph->uses[graph->nodes[n].first_use + i];
            if (t != ND_NO_INDEX && (g->last_use[t] == ND_NO_INDEX || g->last_use[t] < when))
                g->last_use[t] = when;
        }
    }
    /* A DequantizeLinear is run in its turn, but a unit behind it looks at the codes before it: they live as
     * long as what it makes. An operator that feeds several units may be run again by a later one. */
    for (size_t n = graph->n_nodes; n-- > 0;) {
        size_t until = 0;
        for (size_t i = 0; i < graph->nodes[n].n_made; i++) {
            size_t t = nd_exact_made(graph, n, i);
            until = t != ND_NO_INDEX && g->last_use[t] != ND_NO_INDEX && g->last_use[t] > until ? g->last_use[t]
                                                                                                : until;
        }
        bool keeps = graph->nodes[n].kind == ND_NODE_DEQUANTIZE || g->unit_of_node[n] != ND_NO_INDEX;
        for (size_t i = 0; i < graph->nodes[n].n_inputs && keeps; i++) {
            size_t t = nd_exact_used(graph, n, i);
            if (t != ND_NO_INDEX && g->last_use[t] != ND_NO_INDEX && g->last_use[t] < until &&
                graph->nodes[n].kind != ND_NODE_QUANTIZE)
                g->last_use[t] = until;
        }
    }
}

static enum nd_status read_quants(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    enum nd_status status = ND_OK;
    for (size_t n = 0; n < graph->n_nodes && status == ND_OK; n++)
        if (graph->nodes[n].kind != ND_NODE_OTHER && graph->nodes[n].is_alive)
            status = nd_node_quant_read(graph, n, g->model->path, &g->quants[n], err);
    return status;
}

enum nd_status nd_exact_graph_create(const struct nd_model *model, struct nd_exact_graph **out,
                                     struct nd_error *err)
{
    enum nd_status status = nd_model_check_static(model, err);
    if (status != ND_OK)
        return status;
    struct nd_exact_graph *g = nd_calloc(1, sizeof *g);
    if (g == NULL)
        return nd_fail_memory(err);
    const struct nd_graph *graph = &model->graph;
    g->model = model;
    g->constants = nd_calloc(graph->n_tensors, sizeof *g->constants);
    g->quants = nd_calloc(graph->n_nodes, sizeof *g->quants);
    g->last_use = nd_calloc(graph->n_tensors, sizeof *g->last_use);
    if (g->constants == NULL || g->quants == NULL || g->last_use == NULL)
        status = nd_fail_memory(err);
    for (size_t t = 0; g->constants != NULL && t < graph->n_tensors; t++)
        g->constants[t] = nd_exact_none();
    if (status == ND_OK)
        status = nd_units_assign(graph, &g->unit_of_node, err);
    if (status == ND_OK)
        status = read_quants(g, err);
    if (status == ND_OK)
        status = load_constants(g, err);
    if (status == ND_OK)
        status = fold_constants(g, err);
    if (status == ND_OK) {
        find_last_uses(g);
        *out = g;
        return ND_OK;
    }
    nd_error_context(err, "evaluating '%s'", model->path);
    nd_exact_graph_destroy(&g);
    return status;
}

void nd_exact_graph_destroy(struct nd_exact_graph **graph)
{
    struct nd_exact_graph *g = *graph;
    if (g == NULL)
        return;
    const struct nd_graph *shape = &g->model->graph;
    for (size_t t = 0; g->constants != NULL && t < shape->n_tensors; t++)
        if (g->constants[t].shape.rank >= 0)
            nd_array_deinit(&g->constants[t]);
    for (size_t n = 0; g->quants != NULL && n < shape->n_nodes; n++) {
        free(g->quants[n].quant.scale);
        free(g->quants[n].quant.zero_point);
    }
    free(g->constants);
    free(g->quants);
    free(g->last_use);
    free(g->unit_of_node);
    free(g);
    *graph = NULL;
}
