/* Nodes in an order in which each reads only what earlier ones make. ONNX demands that of a file, but ONNX
 * Runtime takes files without it, and tools write them: so they are put in order before anything else looks at
 * them. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/graph/graph.h"

/* What is there before any node, whatever a node calls its outputs. */
static bool is_given(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_input; i++)
        if (strcmp(nd_onnx_text(graph->input[i]->name), name) == 0)
            return true;
    return false;
}

/* Which nodes each node needs before it: needs[first[n]] to needs[first[n + 1] - 1]. */
struct order {
    Onnx__GraphProto *graph;
    struct nd_names makers; /* name of a tensor: the node that makes it */
    size_t *needs, n_needs, capacity;
    size_t *first; /* [n_node + 1] */
};

static enum nd_status name_makers(struct order *order, struct nd_error *err)
{
    const Onnx__GraphProto *graph = order->graph;
    for (size_t n = 0; n < graph->n_node; n++)
        for (size_t i = 0; i < graph->node[n]->n_output; i++) {
            const char *name = nd_onnx_text(graph->node[n]->output[i]);
            if (name[0] != '\0' && !is_given(graph, name) &&
                nd_names_find(&order->makers, name) == ND_NO_INDEX && !nd_names_add(&order->makers, name, n))
                return nd_fail_memory(err);
        }
    return ND_OK;
}

static bool add_need(struct order *order, const char *name)
{
    size_t maker = nd_names_find(&order->makers, nd_onnx_text(name));
    if (maker == ND_NO_INDEX)
        return true;
    if (!nd_grow((void **)&order->needs, &order->capacity, order->n_needs + 1, sizeof *order->needs))
        return false;
    order->needs[order->n_needs++] = maker;
    return true;
}

/* What the graphs inside of a node read of the graph around them counts, too. */
static bool add_needs_of_graph(struct order *order, const Onnx__GraphProto *inner);

static bool add_needs_of_node(struct order *order, const Onnx__NodeProto *node)
{
    bool has_memory = true;
    for (size_t i = 0; i < node->n_input && has_memory; i++)
        has_memory = add_need(order, node->input[i]);
    for (size_t a = 0; a < node->n_attribute && has_memory; a++) {
        const Onnx__AttributeProto *attribute = node->attribute[a];
        if (attribute->g != NULL)
            has_memory = add_needs_of_graph(order, attribute->g);
        for (size_t g = 0; g < attribute->n_graphs && has_memory; g++)
            has_memory = add_needs_of_graph(order, attribute->graphs[g]);
    }
    return has_memory;
}

static bool add_needs_of_graph(struct order *order, const Onnx__GraphProto *inner)
{
    bool has_memory = true;
    for (size_t n = 0; n < inner->n_node && has_memory; n++)
        has_memory = add_needs_of_node(order, inner->node[n]);
    for (size_t i = 0; i < inner->n_output && has_memory; i++)
        has_memory = add_need(order, inner->output[i]->name);
    return has_memory;
}

struct state {
    size_t n_seen; /* of its needs */
    bool waits, is_placed;
};

static enum nd_status fail_circle(const Onnx__NodeProto *a, const Onnx__NodeProto *b, struct nd_error *err)
{
    return nd_fail(
        err, ND_E_MODEL_GRAPH, nd_graph_node_name(a),
        "node '%s' (%s) needs what is made of its own output, through node '%s' (%s): the nodes form a "
        "circle and cannot be put in order",
        nd_graph_node_name(a), nd_onnx_text(a->op_type), nd_graph_node_name(b), nd_onnx_text(b->op_type));
}

/* Each node in its turn, and before it what it needs: a graph in order stays as it is. path holds the nodes
 * that wait for what they need. */
static enum nd_status place_nodes(const struct order *order, size_t *path, struct state *states,
                                  Onnx__NodeProto **placed, struct nd_error *err)
{
    Onnx__NodeProto *const *nodes = order->graph->node;
    size_t n_placed = 0;
    for (size_t root = 0; root < order->graph->n_node; root++) {
        size_t depth = 0;
        if (states[root].is_placed)
            continue;
        for (path[depth++] = root; depth > 0;) {
            size_t n = path[depth - 1];
            states[n].waits = true;
            if (order->first[n] + states[n].n_seen == order->first[n + 1]) {
                placed[n_placed++] = nodes[n];
                states[n].is_placed = true;
                depth--;
                continue;
            }
            size_t need = order->needs[order->first[n] + states[n].n_seen++];
            if (states[need].is_placed)
                continue;
            if (states[need].waits)
                return fail_circle(nodes[need], nodes[n], err);
            path[depth++] = need;
        }
    }
    return ND_OK;
}

static bool is_in_order(const struct order *order)
{
    for (size_t n = 0; n < order->graph->n_node; n++)
        for (size_t i = order->first[n]; i < order->first[n + 1]; i++)
            if (order->needs[i] >= n)
                return false;
    return true;
}

static enum nd_status reorder(struct order *order, struct nd_error *err)
{
    size_t n = order->graph->n_node;
    size_t *path = nd_calloc(n, sizeof *path);
    struct state *states = nd_calloc(n, sizeof *states);
    Onnx__NodeProto **placed = nd_calloc(n, sizeof *placed);
    enum nd_status status = path != NULL && states != NULL && placed != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = place_nodes(order, path, states, placed, err);
    for (size_t i = 0; i < n && status == ND_OK; i++)
        order->graph->node[i] = placed[i];
    free(path);
    free(states);
    free(placed);
    return status;
}

static enum nd_status order_inner(const Onnx__NodeProto *node, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t a = 0; a < node->n_attribute && status == ND_OK; a++) {
        const Onnx__AttributeProto *attribute = node->attribute[a];
        if (attribute->g != NULL)
            status = nd_graph_order(attribute->g, err);
        for (size_t g = 0; g < attribute->n_graphs && status == ND_OK; g++)
            status = nd_graph_order(attribute->graphs[g], err);
    }
    return status;
}

enum nd_status nd_graph_order(Onnx__GraphProto *graph, struct nd_error *err)
{
    struct order order = {.graph = graph, .first = nd_calloc(graph->n_node + 1, sizeof *order.first)};
    enum nd_status status = order.first != NULL ? name_makers(&order, err) : nd_fail_memory(err);
    for (size_t n = 0; n < graph->n_node && status == ND_OK; n++) {
        status = order_inner(graph->node[n], err);
        if (status == ND_OK && !add_needs_of_node(&order, graph->node[n]))
            status = nd_fail_memory(err);
        order.first[n + 1] = order.n_needs;
    }
    if (status == ND_OK && !is_in_order(&order))
        status = reorder(&order, err);
    nd_names_deinit(&order.makers);
    free(order.needs);
    free(order.first);
    return status;
}
