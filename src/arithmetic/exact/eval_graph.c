/* A graph is prepared for its evaluation: constants, quantisations, how long each tensor is read; and its
 * channels are scaled. eval_graph.h says what is evaluated, graph_run.c does it. */
#include "arithmetic/exact/eval_graph.h"

#include <stdlib.h>

#include "arithmetic/exact/graph_internal.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

/* ---- scaled channels ---- */

static enum nd_status init_scalings(struct nd_exact_graph *g, struct nd_error *err)
{
    g->scalings = nd_calloc(g->model->graph.n_tensors, sizeof *g->scalings);
    g->scaled_nodes = nd_calloc(g->model->graph.n_nodes, sizeof *g->scaled_nodes);
    return g->scalings != NULL && g->scaled_nodes != NULL ? ND_OK : nd_fail_memory(err);
}

static void deinit_scalings(struct nd_exact_graph *g)
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

enum nd_status nd_exact_graph_scale_node(struct nd_exact_graph *g, size_t node, const double *factors, size_t n,
                                         struct nd_error *err)
{
    double *copy = NULL;
    ND_TRY(copy_factors(factors, n, &copy, err));
    g->scaled_nodes[node] = (struct nd_exact_scaled_node){n, copy};
    return ND_OK;
}

/* ---- how long tensors are read ---- */

static void note_last_uses(struct nd_exact_graph *g)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t t = 0; t < graph->n_tensors; t++)
        g->last_use[t] = ND_NO_INDEX;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        if (!graph->nodes[n].is_alive)
            continue;
        size_t when = g->layer_of_node[n] != ND_NO_INDEX ? g->layer_of_node[n] : n;
        for (size_t i = 0; i < graph->nodes[n].n_uses; i++) {
            size_t t = graph->uses[graph->nodes[n].first_use + i];
            if (t != ND_NO_INDEX && (g->last_use[t] == ND_NO_INDEX || g->last_use[t] < when))
                g->last_use[t] = when;
        }
    }
}

/* Whether a layer may look at what node n reads, later than n's own turn: a DequantizeLinear, the inside of a
 * layer, and the operator of several layers, which falls into none. feeds_unit[t]: a QuantizeLinear reads the
 * tensor, or a Relu or Clip that one reads. */
static bool is_looked_through(const struct nd_exact_graph *g, size_t n, bool *feeds_layer)
{
    const struct nd_graph *graph = &g->model->graph;
    const struct nd_graph_node *node = &graph->nodes[n];
    size_t source = nd_graph_used(graph, n, 0);
    bool feeds = false;
    for (size_t i = 0; i < node->n_made; i++)
        feeds = feeds || (nd_graph_made(graph, n, i) != ND_NO_INDEX && feeds_layer[nd_graph_made(graph, n, i)]);
    bool is_fold = ND_IS_ONE_OF(node->proto->op_type, "Relu", "Clip");
    if (source != ND_NO_INDEX && (node->kind == ND_NODE_QUANTIZE || (feeds && is_fold)))
        feeds_layer[source] = true;
    if (node->kind == ND_NODE_QUANTIZE)
        return false;
    return feeds || node->kind == ND_NODE_DEQUANTIZE || g->layer_of_node[n] != ND_NO_INDEX;
}

static enum nd_status find_last_uses(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    ND_FREED bool *feeds_layer = nd_calloc(graph->n_tensors, sizeof *feeds_layer);
    ND_TRY_MEMORY(feeds_layer != NULL, err);
    note_last_uses(g);
    /* A DequantizeLinear is run in its turn, but a layer behind it looks at the quantised values before it:
     * they live as long as what it makes. An operator that feeds several layers may be run again by a later
     * one. */
    for (size_t n = graph->n_nodes; n-- > 0;) {
        if (!graph->nodes[n].is_alive)
            continue;
        size_t until = 0;
        for (size_t i = 0; i < graph->nodes[n].n_made; i++) {
            size_t t = nd_graph_made(graph, n, i);
            until = t != ND_NO_INDEX && g->last_use[t] != ND_NO_INDEX && g->last_use[t] > until ? g->last_use[t]
                                                                                                : until;
        }
        bool keeps = is_looked_through(g, n, feeds_layer);
        for (size_t i = 0; i < graph->nodes[n].n_inputs && keeps; i++) {
            size_t t = nd_graph_used(graph, n, i);
            if (t != ND_NO_INDEX && g->last_use[t] != ND_NO_INDEX && g->last_use[t] < until)
                g->last_use[t] = until;
        }
    }
    return ND_OK;
}

static enum nd_status list_last_uses(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    g->first_done = nd_calloc(graph->n_nodes, sizeof *g->first_done);
    g->next_done = nd_calloc(graph->n_tensors, sizeof *g->next_done);
    ND_TRY_MEMORY(g->first_done != NULL && g->next_done != NULL, err);
    for (size_t n = 0; n < graph->n_nodes; n++)
        g->first_done[n] = ND_NO_INDEX;
    for (size_t t = 0; t < graph->n_tensors; t++) {
        size_t node = g->last_use[t];
        g->next_done[t] = node < graph->n_nodes ? g->first_done[node] : ND_NO_INDEX;
        if (node < graph->n_nodes)
            g->first_done[node] = t;
    }
    return ND_OK;
}

/* ---- quantisations ---- */

static enum nd_status read_quants(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].kind != ND_NODE_OTHER && graph->nodes[n].is_alive)
            ND_TRY(nd_node_quant_read(graph, n, g->model->path, &g->quants[n], err));
    return ND_OK;
}

/* What reading the model leaves open: a zero point of 4 bits, which no tensor can have, but weights do. */
static enum nd_status read_nibble_quant(const struct nd_exact_graph *g, size_t node, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    const Onnx__NodeProto *proto = graph->nodes[node].proto;
    size_t scale_tensor = nd_graph_used(graph, node, 1), zero_tensor = nd_graph_used(graph, node, 2);
    struct nd_quant *quant = &g->quants[node].quant;
    if (quant->n > 0 || scale_tensor == ND_NO_INDEX || zero_tensor == ND_NO_INDEX)
        return ND_OK;
    const struct nd_array *scale = &g->constants[scale_tensor], *zero = &g->constants[zero_tensor];
    bool is_nibble = zero->dtype == ND_DTYPE_U4 || zero->dtype == ND_DTYPE_I4;
    if (scale->shape.rank < 0 || zero->shape.rank < 0 || scale->shape.rank > 1 || !is_nibble ||
        scale->dtype != ND_DTYPE_F32 || scale->n != zero->n || scale->n == 0 ||
        nd_onnx_attribute_i(proto, "block_size", 0) != 0)
        return ND_OK;
    quant->scale = nd_calloc(scale->n, sizeof *quant->scale);
    quant->zero_point = nd_calloc(scale->n, sizeof *quant->zero_point);
    ND_TRY_MEMORY(quant->scale != NULL && quant->zero_point != NULL, err);
    const struct nd_array *const both[] = {scale, zero};
    enum nd_status status[] = {nd_exact_hold(g, both[0], err), nd_exact_hold(g, both[1], err)};
    bool has_both = status[0] == ND_OK && status[1] == ND_OK;
    for (size_t i = 0; i < scale->n && has_both; i++) {
        quant->scale[i] = (float)scale->x[i];
        quant->zero_point[i] = (int64_t)zero->x[i];
    }
    quant->n = scale->n;
    quant->axis = scale->n > 1 ? (int)nd_onnx_attribute_i(proto, "axis", 1) : -1;
    for (size_t i = 0; i < 2; i++)
        if (status[i] == ND_OK)
            nd_exact_release(g, both[i]);
    return status[0] != ND_OK ? status[0] : status[1];
}

static enum nd_status read_nibble_quants(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].kind == ND_NODE_DEQUANTIZE && graph->nodes[n].is_alive)
            ND_TRY(read_nibble_quant(g, n, err));
    return ND_OK;
}

/* ---- the graph ---- */

bool nd_exact_graph_is_pure(const struct nd_exact_graph *g)
{
    return g->is_pure;
}

/* What nd_exact_graph_is_pure says, found out by looking at every node. */
static bool has_only_layers(const struct nd_exact_graph *g)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].is_alive && !graph->nodes[n].is_constant && graph->nodes[n].kind == ND_NODE_OTHER &&
            g->layer_of_node[n] == ND_NO_INDEX && !nd_exact_feeds_layers(g, n))
            return false;
    return true;
}

enum nd_status nd_exact_graph_create(const struct nd_model *model, struct nd_exact_graph **out,
                                     struct nd_error *err)
{
    return nd_exact_graph_create_within(model, SIZE_MAX, out, err);
}

/* All that the graph keeps. On failure the caller destroys it. */
static enum nd_status prepare(struct nd_exact_graph *g, size_t limit_bytes, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    g->constants = nd_calloc(graph->n_tensors, sizeof *g->constants);
    g->quants = nd_calloc(graph->n_nodes, sizeof *g->quants);
    g->last_use = nd_calloc(graph->n_tensors, sizeof *g->last_use);
    g->packed_weights = nd_calloc(graph->n_tensors, sizeof *g->packed_weights);
    g->largest = nd_calloc(graph->n_tensors, sizeof *g->largest);
    g->shorts = nd_calloc(graph->n_tensors, sizeof *g->shorts);
    for (size_t t = 0; g->constants != NULL && t < graph->n_tensors; t++)
        g->constants[t] = nd_exact_none();
    ND_TRY_MEMORY(g->shorts != NULL && g->packed_weights != NULL && g->largest != NULL &&
                      g->constants != NULL && g->quants != NULL && g->last_use != NULL,
                  err);
    ND_TRY(nd_exact_store_init(g, limit_bytes, err));
    ND_TRY(init_scalings(g, err));
    ND_TRY(nd_layers_assign(graph, &g->layer_of_node, err));
    ND_TRY(read_quants(g, err));
    ND_TRY(nd_exact_load_constants(g, err));
    ND_TRY(read_nibble_quants(g, err));
    ND_TRY(find_last_uses(g, err));
    ND_TRY(list_last_uses(g, err));
    ND_TRY(nd_exact_prepare_packed_weights(g, err));
    g->is_pure = has_only_layers(g);
    return ND_OK;
}

enum nd_status nd_exact_graph_create_within(const struct nd_model *model, size_t limit_bytes,
                                            struct nd_exact_graph **out, struct nd_error *err)
{
    ND_TRY(nd_model_check_static(model, err));
    ND_CLEANUP(nd_exact_graph_destroy) struct nd_exact_graph *g = nd_calloc(1, sizeof *g);
    ND_TRY_MEMORY(g != NULL, err);
    g->model = model;
    enum nd_status status = prepare(g, limit_bytes, err);
    if (status != ND_OK) {
        nd_error_context(err, "evaluating '%s'", model->path);
        return status;
    }
    *out = g;
    g = NULL;
    return ND_OK;
}

void nd_exact_graph_destroy(struct nd_exact_graph **graph)
{
    struct nd_exact_graph *g = *graph;
    if (g == NULL)
        return;
    const struct nd_graph *shape = &g->model->graph;
    for (size_t n = 0; g->quants != NULL && n < shape->n_nodes; n++)
        nd_quant_deinit(&g->quants[n].quant);
    nd_exact_store_deinit(g);
    deinit_scalings(g);
    free(g->constants);
    free(g->packed_weights);
    free(g->largest);
    free(g->shorts);
    free(g->quants);
    free(g->last_use);
    free(g->first_done);
    free(g->next_done);
    free(g->layer_of_node);
    free(g);
    *graph = NULL;
}
