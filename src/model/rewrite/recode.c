/* Copies of a quantised model with other scales, zero points and constant quantised values. */
#include <stdio.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "model/graph/constants.h"
#include "model/rewrite/requantise_model.h"

enum { SLOTS = 3 }; /* a node reads quantised values or floats, a scale, a zero point */

struct recoder {
    struct nd_model_requantiser r;
    const struct nd_recoded_node *nodes;
    size_t n_nodes;
    const struct nd_recoded_node **of_node; /* [graph.n_nodes], NULL: it stays */
};

/* The constant itself, past Identity nodes and, of quantised values, a QuantizeLinear of a constant; NULL:
 * there is none. */
static const Onnx__TensorProto *constant_of(const struct nd_graph *graph, size_t tensor)
{
    while (tensor != ND_NO_INDEX && nd_graph_constant(graph, tensor) == NULL) {
        size_t producer = graph->tensors[tensor].producer;
        if (producer == ND_NO_INDEX || !graph->nodes[producer].is_constant ||
            (strcmp(graph->nodes[producer].proto->op_type, "Identity") != 0 &&
             graph->nodes[producer].kind != ND_NODE_QUANTIZE))
            return NULL;
        tensor = nd_graph_used(graph, producer, 0);
    }
    return tensor != ND_NO_INDEX ? nd_graph_constant(graph, tensor) : NULL;
}

static bool is_replaced(const struct recoder *c, size_t node, size_t slot)
{
    return c->of_node[node] != NULL && (slot > 0 || c->of_node[node]->qvalues != NULL);
}

/* Whether everybody who reads the tensor reads the same new values in the copy. */
static bool is_taken_over(const struct recoder *c, size_t tensor, const struct nd_quant *quant, size_t slot)
{
    const struct nd_graph *graph = &c->r.model->graph;
    const struct nd_graph_tensor *t = &graph->tensors[tensor];
    if (t->output != ND_NO_INDEX)
        return false;
    for (size_t r = 0; r < t->n_readers; r++) {
        size_t node = graph->readers[t->first_reader + r];
        for (size_t u = 0; u < graph->nodes[node].n_uses; u++)
            if (graph->uses[graph->nodes[node].first_use + u] == tensor &&
                (u != slot || !is_replaced(c, node, u) || c->of_node[node]->quant != quant))
                return false;
    }
    return true;
}

/* The name that the new constant of this slot has; a node before may have made it already (*is_made). */
static enum nd_status name_of(struct recoder *c, const struct nd_recoded_node *item, size_t slot,
                              const char **out, bool *is_made, struct nd_error *err)
{
    const struct nd_graph *graph = &c->r.model->graph;
    size_t tensor = nd_graph_used(graph, item->node, slot);
    const char *old = graph->tensors[tensor].name;
    *is_made = false;
    for (const struct nd_recoded_node *other = c->nodes; slot > 0 && other < item; other++)
        if (other->quant == item->quant && nd_graph_used(graph, other->node, slot) != ND_NO_INDEX) {
            *out = c->r.use_as[graph->nodes[other->node].first_use + slot];
            *is_made = *out != NULL;
            return ND_OK;
        }
    if (is_taken_over(c, tensor, item->quant, slot)) {
        c->r.read_as[tensor] = old; /* so that the old one goes */
        *out = old;
        return ND_OK;
    }
    for (size_t i = 1;; i++) {
        char suffix[48];
        snprintf(suffix, sizeof suffix, i > 1 ? "_aligned%zu" : "_aligned", i);
        char *name = NULL;
        bool is_free = true;
        enum nd_status status = nd_requantiser_new_name(&c->r, old, suffix, &name, err);
        if (status == ND_ERR_UNSUPPORTED) /* the model has that one */
            continue;
        if (status != ND_OK)
            return status;
        for (size_t k = 0; k < c->r.n_new_initializers && is_free; k++)
            is_free = strcmp(c->r.new_initializers[k]->name, name) != 0;
        *out = name;
        if (is_free)
            return ND_OK;
    }
}

static void store(const double *qvalues, size_t n, size_t size, uint8_t *bytes)
{
    for (size_t i = 0; i < n; i++) /* ONNX is little-endian */
        for (size_t b = 0; b < size; b++)
            bytes[i * size + b] = (uint8_t)((uint64_t)(int64_t)qvalues[i] >> (8 * b));
}

/* The bytes of what the node reads at that slot from now on. */
static void fill(const struct nd_recoded_node *item, size_t slot, size_t size, uint8_t *bytes)
{
    if (slot == 0) {
        store(item->qvalues, item->n_qvalues, size, bytes);
        return;
    }
    for (size_t i = 0; i < item->quant->n; i++) {
        double zero = (double)item->quant->zero_point[i];
        if (slot == 1)
            memcpy(bytes + i * sizeof(float), &item->quant->scale[i], sizeof(float));
        else
            store(&zero, 1, size, bytes + i * size);
    }
}

/* The new constant has the type and the shape of the old one. */
static enum nd_status replace(struct recoder *c, const struct nd_recoded_node *item, size_t slot,
                              struct nd_error *err)
{
    const struct nd_graph *graph = &c->r.model->graph;
    const char *node_name = nd_graph_node_name(graph->nodes[item->node].proto), *name = NULL;
    size_t n = slot == 0 ? item->n_qvalues : item->quant->n, n_old = 0;
    const Onnx__TensorProto *old = constant_of(graph, nd_graph_used(graph, item->node, slot));
    struct nd_node_quant quant = {0};
    bool is_made;
    if (old == NULL || !nd_onnx_n_elems(old, &n_old) || n_old != n)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, node_name,
                       "'%s': the parameters of node '%s' cannot be changed, as they are no constant of %zu "
                       "elements",
                       c->r.model->path, node_name, n);
    enum nd_status status = nd_node_quant_read(graph, item->node, c->r.model->path, &quant, err);
    enum nd_dtype dtype = slot == 1 ? ND_DTYPE_F32 : quant.dtype;
    nd_quant_deinit(&quant.quant);
    if (slot == 0 && dtype == ND_DTYPE_NONE) /* no zero point: the quantised values say their type */
        dtype = nd_onnx_dtype(old->data_type);
    if (status == ND_OK && slot == 1 && nd_onnx_dtype(old->data_type) != dtype)
        status = nd_fail(err, ND_E_MODEL_UNSUPPORTED, node_name, "'%s': the scale of node '%s' is no float32",
                         c->r.model->path, node_name);
    if (status == ND_OK)
        status = name_of(c, item, slot, &name, &is_made, err);
    if (status != ND_OK)
        return status;
    c->r.use_as[graph->nodes[item->node].first_use + slot] = name;
    if (is_made)
        return ND_OK;
    size_t size = nd_dtype_size_bytes(dtype), bytes;
    uint8_t *data = nd_size_mul(n, size, &bytes) ? nd_requantiser_keep(&c->r, bytes + 1) : NULL;
    ND_TRY_MEMORY(data != NULL, err);
    fill(item, slot, size, data);
    const struct nd_new_initializer added = {name, (int32_t)dtype, old->dims, old->n_dims, data, bytes};
    return nd_requantiser_add_initializer(&c->r, &added, err);
}

static enum nd_status replace_all(struct recoder *c, struct nd_error *err)
{
    const struct nd_graph *graph = &c->r.model->graph;
    for (size_t i = 0; i < c->n_nodes; i++)
        c->of_node[c->nodes[i].node] = &c->nodes[i];
    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t slot = 0; slot < SLOTS; slot++)
            if (nd_graph_used(graph, c->nodes[i].node, slot) != ND_NO_INDEX &&
                is_replaced(c, c->nodes[i].node, slot))
                ND_TRY(replace(c, &c->nodes[i], slot, err));
    return ND_OK;
}

enum nd_status nd_model_write_recoded(const struct nd_model *model, const struct nd_recoded_node *nodes,
                                      size_t n_nodes, const char *path, struct nd_error *err)
{
    struct recoder c = {.r = {.model = model}, .nodes = nodes, .n_nodes = n_nodes};
    enum nd_status status = nd_requantiser_init(&c.r, n_nodes, err);
    c.of_node = nd_calloc(model->graph.n_nodes, sizeof *c.of_node);
    c.r.use_as = nd_calloc(model->graph.n_uses, sizeof *c.r.use_as);
    if (status == ND_OK && (c.of_node == NULL || c.r.use_as == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = replace_all(&c, err);
    if (status == ND_OK)
        status = nd_requantiser_write(&c.r, path, err);
    free(c.of_node);
    nd_requantiser_deinit(&c.r);
    return status;
}
