/* Biases in steps of the new scales. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "model/graph/quant.h"
#include "model/rewrite/widener.h"

static const double int32_low = -0x1p31, int32_high = 0x1p31 - 1;

static const struct nd_channel_weights *weights_of(const struct nd_widener *w, size_t tensor)
{
    for (size_t i = 0; i < w->what->n_weights; i++)
        if (w->what->weights[i].tensor == tensor)
            return &w->what->weights[i];
    return NULL;
}

/* The scales of what an operator reads at a slot, in the copy; *is_new: others than in the model. quant.n = 0:
 * none is known. The caller frees the arrays. */
static enum nd_status read_scales(struct nd_widener *w, struct nd_quant *const *channels, size_t node,
                                  size_t slot, struct nd_quant *out, bool *is_new, struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    size_t tensor = nd_graph_used(graph, node, slot);
    size_t dequantise = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
    struct nd_node_quant read = {0};
    if (dequantise == ND_NO_INDEX || graph->nodes[dequantise].kind != ND_NODE_DEQUANTIZE)
        return ND_OK;
    const struct nd_channel_weights *weights = weights_of(w, tensor);
    if (weights != NULL) {
        *is_new = true;
        return nd_quant_copy(channels[weights - w->what->weights], out, err);
    }
    enum nd_status status = nd_node_quant_read(graph, dequantise, w->r.model->path, &read, err);
    size_t edge = w->r.model->tensor_edge[nd_graph_used(graph, dequantise, 0)];
    *out = read.quant;
    if (status != ND_OK || edge == ND_NO_INDEX || out->n != 1)
        return status;
    for (size_t i = 0; i < w->what->n_edges; i++)
        if (w->what->edges[i].edge == edge) {
            *is_new = true;
            out->scale[0] = w->what->edges[i].scale;
        }
    if (w->r.use_as[graph->nodes[node].first_use + slot] != NULL) { /* it reads what was converted */
        *is_new = true;
        out->scale[0] /= ND_WIDE_STEPS;
    }
    return ND_OK;
}

/* The bias of the node in steps of x times weights. */
static enum nd_status recode_bias(struct nd_widener *w, size_t node, const struct nd_quant *x,
                                  const struct nd_quant *weights, struct nd_error *err)
{
    enum { BIAS = 2 };
    const struct nd_graph *graph = &w->r.model->graph;
    size_t bias = nd_graph_used(graph, node, BIAS), dequantise = graph->tensors[bias].producer, n = 0;
    const char *node_name = nd_graph_node_name(graph->nodes[node].proto), *name;
    const char *after = graph->tensors[bias].name; /* the new one has it where nobody else reads the old one */
    struct nd_node_quant old = {0};
    double *codes = NULL;
    enum nd_status status = nd_node_quant_read(graph, dequantise, w->r.model->path, &old, err);
    if (status == ND_OK)
        status =
            nd_constant_numbers(graph, nd_graph_used(graph, dequantise, 0), w->r.model->path, &codes, &n, err);
    struct nd_quant *quant = nd_widener_quant(w, weights->n, 0);
    int32_t *bytes = nd_requantiser_keep(&w->r, n * sizeof *bytes + 1);
    int64_t *dims = nd_requantiser_keep(&w->r, sizeof *dims);
    if (status == ND_OK && (quant == NULL || bytes == NULL || dims == NULL))
        status = nd_fail_memory(err);
    bool fits = status == ND_OK && n > 0 && old.quant.n > 0 && (weights->n == 1 || weights->n == n);
    for (size_t i = 0; status == ND_OK && fits && i < n; i++) {
        size_t c = i % weights->n, o = i % old.quant.n;
        quant->scale[c] = x->scale[0] * weights->scale[c];
        double real = (codes[i] - (double)old.quant.zero_point[o]) * (double)old.quant.scale[o];
        double code = rint(real / (double)quant->scale[c]);
        fits = code >= int32_low && code <= int32_high;
        bytes[i] = fits ? (int32_t)code : 0;
    }
    free(codes);
    nd_quant_deinit(&old.quant);
    if (status == ND_OK && !fits)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, node_name,
                       "the bias of '%s' does not fit 32 bits in its new steps", node_name);
    bool is_alone = graph->tensors[bias].n_readers == 1;
    if (status == ND_OK)
        status = nd_widener_name(w, node_name, "_bias_codes", &name, err);
    if (status == ND_OK && !is_alone)
        status = nd_widener_name(w, node_name, "_bias", &after, err);
    if (status != ND_OK)
        return status;
    dims[0] = (int64_t)n;
    const struct nd_new_initializer initializer = {name,  (int32_t)ND_DTYPE_I32, dims, 1,
                                                   bytes, n * sizeof *bytes};
    const struct nd_widener_part part = {"DequantizeLinear", name, after, ND_DTYPE_I32, quant, dequantise};
    w->r.use_as[graph->nodes[node].first_use + BIAS] = after;
    w->r.is_dropped[dequantise] = is_alone;
    status = nd_requantiser_add_initializer(&w->r, &initializer, err);
    return status == ND_OK ? nd_widener_add(w, &part, err) : status;
}

/* An int32 bias that is added to the products of the node. */
static bool has_bias(const struct nd_graph *graph, size_t node)
{
    static const char *const products[] = {"Conv", "ConvTranspose", "Gemm"};
    size_t bias = nd_graph_used(graph, node, 2);
    size_t producer = bias != ND_NO_INDEX ? graph->tensors[bias].producer : ND_NO_INDEX;
    if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE ||
        !graph->nodes[producer].is_constant)
        return false;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        if (strcmp(graph->nodes[node].proto->op_type, products[i]) == 0)
            return true;
    return false;
}

enum nd_status nd_widener_biases(struct nd_widener *w, struct nd_quant *const *channels, struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    enum nd_status status = ND_OK;
    for (size_t n = 0; n < graph->n_nodes && status == ND_OK; n++) {
        struct nd_quant x = {0}, weights = {0};
        bool is_new = false;
        if (!graph->nodes[n].is_alive || !has_bias(graph, n))
            continue;
        status = read_scales(w, channels, n, 0, &x, &is_new, err);
        if (status == ND_OK)
            status = read_scales(w, channels, n, 1, &weights, &is_new, err);
        if (status == ND_OK && is_new && x.n == 1 && weights.n > 0)
            status = recode_bias(w, n, &x, &weights, err);
        nd_quant_deinit(&x);
        nd_quant_deinit(&weights);
    }
    return status;
}
