/* The graph of a model as an index of nodes and tensors, and its nodes in an order in which each reads only
 * what earlier ones make. */
#include "model/graph/graph.h"

#include "core/memory.h"
#include "core/text/strbuf.h"

const char *nd_graph_node_name(const Onnx__NodeProto *node)
{
    if (nd_onnx_text(node->name)[0] != '\0')
        return node->name;
    for (size_t i = 0; i < node->n_output; i++)
        if (node->output[i][0] != '\0')
            return node->output[i];
    return nd_onnx_text(node->op_type);
}

static enum nd_node_kind kind_of(const Onnx__NodeProto *node)
{
    const char *domain = nd_onnx_domain(node->domain);
    if (domain[0] != '\0' && strcmp(domain, "com.microsoft") != 0)
        return ND_NODE_OTHER;
    if (strcmp(node->op_type, "QuantizeLinear") == 0)
        return ND_NODE_QUANTIZE;
    return strcmp(node->op_type, "DequantizeLinear") == 0 ? ND_NODE_DEQUANTIZE : ND_NODE_OTHER;
}

/* Operators without inputs (or with constant ones) whose results are no constants all the same. */
static bool is_random(const Onnx__NodeProto *node)
{
    return ND_IS_ONE_OF(node->op_type, "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
                        "Multinomial", "Bernoulli");
}

static bool append(size_t **items, size_t *n, size_t *capacity, size_t value)
{
    if (!nd_grow((void **)items, capacity, *n + 1, sizeof **items))
        return false;
    (*items)[(*n)++] = value;
    return true;
}

/* Adds the tensor `name`, which must be new: what makes a tensor a second time contradicts the first. */
static enum nd_status add_tensor(struct nd_graph *graph, const char *name, const char *what,
                                 struct nd_graph_tensor **out, struct nd_error *err)
{
    if (nd_onnx_text(name)[0] == '\0')
        return nd_fail(err, ND_E_MODEL_GRAPH, what, "%s has no name", what);
    if (nd_names_find(&graph->names, name) != ND_NO_INDEX)
        return nd_fail(err, ND_E_MODEL_GRAPH, name, "%s '%s' has the name of another tensor of the graph", what,
                       name);
    ND_TRY_MEMORY(nd_grow((void **)&graph->tensors, &graph->tensors_capacity, graph->n_tensors + 1,
                          sizeof *graph->tensors) &&
                      nd_names_add(&graph->names, name, graph->n_tensors),
                  err);
    *out = &graph->tensors[graph->n_tensors++];
    **out = (struct nd_graph_tensor){
        .name = name, .producer = ND_NO_INDEX, .input = ND_NO_INDEX, .output = ND_NO_INDEX};
    return ND_OK;
}

static enum nd_status add_initializer(struct nd_graph *graph, const Onnx__TensorProto *values, bool is_sparse,
                                      struct nd_error *err)
{
    if (values == NULL)
        return nd_fail(err, ND_E_MODEL_GRAPH, NULL, "a sparse initializer has no values");
    struct nd_graph_tensor *tensor = NULL;
    ND_TRY(add_tensor(graph, values->name, "initializer", &tensor, err));
    tensor->initializer = is_sparse ? NULL : values;
    tensor->is_constant = true;
    return ND_OK;
}

static enum nd_status add_sources(struct nd_graph *graph, struct nd_error *err)
{
    const Onnx__GraphProto *proto = graph->proto;
    for (size_t i = 0; i < proto->n_initializer; i++)
        ND_TRY(add_initializer(graph, proto->initializer[i], false, err));
    for (size_t i = 0; i < proto->n_sparse_initializer; i++)
        ND_TRY(add_initializer(graph, proto->sparse_initializer[i]->values, true, err));
    for (size_t i = 0; i < proto->n_input; i++) {
        /* Up to IR version 3 every initializer was an input as well. */
        size_t known = nd_names_find(&graph->names, nd_onnx_text(proto->input[i]->name));
        struct nd_graph_tensor *tensor = NULL;
        if (known != ND_NO_INDEX && graph->tensors[known].is_constant &&
            graph->tensors[known].input == ND_NO_INDEX)
            tensor = &graph->tensors[known];
        else
            ND_TRY(add_tensor(graph, proto->input[i]->name, "graph input", &tensor, err));
        tensor->input = i;
        tensor->value_info = proto->input[i];
    }
    return ND_OK;
}

/* The tensors of the graph around it that a subgraph reads. Names inside a subgraph differ from those around it
 * (ONNX demands that), so a name that is known here means the tensor here. */
static enum nd_status add_captures(struct nd_graph *graph, const Onnx__GraphProto *subgraph,
                                   struct nd_error *err);

static enum nd_status add_capture(struct nd_graph *graph, const char *name, struct nd_error *err)
{
    size_t tensor = nd_names_find(&graph->names, nd_onnx_text(name));
    if (tensor == ND_NO_INDEX || append(&graph->uses, &graph->n_uses, &graph->uses_capacity, tensor))
        return ND_OK;
    return nd_fail_memory(err);
}

static enum nd_status add_node_captures(struct nd_graph *graph, const Onnx__NodeProto *node,
                                        struct nd_error *err)
{
    for (size_t a = 0; a < node->n_attribute; a++) {
        const Onnx__AttributeProto *attribute = node->attribute[a];
        if (attribute->g != NULL)
            ND_TRY(add_captures(graph, attribute->g, err));
        for (size_t g = 0; g < attribute->n_graphs; g++)
            ND_TRY(add_captures(graph, attribute->graphs[g], err));
    }
    return ND_OK;
}

static enum nd_status add_captures(struct nd_graph *graph, const Onnx__GraphProto *subgraph,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < subgraph->n_node; i++) {
        for (size_t k = 0; k < subgraph->node[i]->n_input; k++)
            ND_TRY(add_capture(graph, subgraph->node[i]->input[k], err));
        ND_TRY(add_node_captures(graph, subgraph->node[i], err));
    }
    for (size_t i = 0; i < subgraph->n_output; i++)
        ND_TRY(add_capture(graph, subgraph->output[i]->name, err));
    return ND_OK;
}

static enum nd_status add_uses(struct nd_graph *graph, size_t index, struct nd_error *err)
{
    const Onnx__NodeProto *proto = graph->proto->node[index];
    struct nd_graph_node *node = &graph->nodes[index];
    node->first_use = graph->n_uses;
    node->n_inputs = proto->n_input;
    for (size_t i = 0; i < proto->n_input; i++) {
        size_t tensor = nd_names_find(&graph->names, proto->input[i]);
        if (tensor == ND_NO_INDEX && proto->input[i][0] != '\0')
            return nd_fail(err, ND_E_MODEL_GRAPH, proto->input[i],
                           "node '%s' (%s) reads tensor '%s', which nothing makes", nd_graph_node_name(proto),
                           proto->op_type, proto->input[i]);
        ND_TRY_MEMORY(append(&graph->uses, &graph->n_uses, &graph->uses_capacity, tensor), err);
    }
    enum nd_status status = add_node_captures(graph, proto, err);
    node->n_uses = graph->n_uses - node->first_use;
    return status;
}

static bool has_subgraph(const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->g != NULL || node->attribute[i]->n_graphs > 0)
            return true;
    return false;
}

static bool computes_a_constant(const struct nd_graph *graph, const struct nd_graph_node *node)
{
    if (is_random(node->proto) || has_subgraph(node->proto))
        return false;
    for (size_t i = 0; i < node->n_inputs; i++) {
        size_t tensor = graph->uses[node->first_use + i];
        if (tensor != ND_NO_INDEX && !graph->tensors[tensor].is_constant)
            return false;
    }
    return true;
}

static enum nd_status add_node(struct nd_graph *graph, size_t index, struct nd_error *err)
{
    const Onnx__NodeProto *proto = graph->proto->node[index];
    struct nd_graph_node *node = &graph->nodes[index];
    node->proto = proto;
    if (nd_onnx_text(proto->op_type)[0] == '\0')
        return nd_fail(err, ND_E_MODEL_GRAPH, nd_graph_node_name(proto), "node '%s' names no operator",
                       nd_graph_node_name(proto));
    node->kind = kind_of(proto);
    enum nd_status status = add_uses(graph, index, err);
    if (status != ND_OK)
        return status;
    if (node->kind != ND_NODE_OTHER &&
        (proto->n_input < 2 || proto->input[0][0] == '\0' || proto->input[1][0] == '\0' ||
         proto->n_output != 1 || proto->output[0][0] == '\0'))
        return nd_fail(err, ND_E_MODEL_GRAPH, nd_graph_node_name(proto),
                       "node '%s' (%s) needs a tensor and a scale, and one output", nd_graph_node_name(proto),
                       proto->op_type);
    node->is_constant = computes_a_constant(graph, node);
    node->first_made = graph->n_made;
    node->n_made = proto->n_output;
    for (size_t i = 0; i < proto->n_output && status == ND_OK; i++) {
        size_t made = ND_NO_INDEX;
        if (proto->output[i][0] != '\0') {
            struct nd_graph_tensor *tensor = NULL;
            made = graph->n_tensors;
            status = add_tensor(graph, proto->output[i], "node output", &tensor, err);
            if (status != ND_OK) {
                nd_error_context(err, "node '%s' (%s)", nd_graph_node_name(proto), proto->op_type);
                return status;
            }
            tensor->producer = index;
            tensor->is_constant = node->is_constant;
        }
        if (!append(&graph->made, &graph->n_made, &graph->made_capacity, made))
            status = nd_fail_memory(err);
    }
    return status;
}

static enum nd_status add_outputs(struct nd_graph *graph, struct nd_error *err)
{
    for (size_t i = 0; i < graph->proto->n_output; i++) {
        const char *name = nd_onnx_text(graph->proto->output[i]->name);
        size_t tensor = nd_names_find(&graph->names, name);
        if (tensor == ND_NO_INDEX)
            return nd_fail(err, ND_E_MODEL_GRAPH, name, "graph output '%s' is made by nothing", name);
        if (graph->tensors[tensor].output != ND_NO_INDEX)
            return nd_fail(err, ND_E_MODEL_GRAPH, name, "graph output '%s' is listed twice", name);
        graph->tensors[tensor].output = i;
        if (nd_onnx_tensor_type(graph->tensors[tensor].value_info) == NULL)
            graph->tensors[tensor].value_info = graph->proto->output[i];
    }
    for (size_t i = 0; i < graph->proto->n_value_info; i++) {
        size_t tensor = nd_names_find(&graph->names, nd_onnx_text(graph->proto->value_info[i]->name));
        if (tensor != ND_NO_INDEX &&
            (graph->tensors[tensor].value_info == NULL || graph->tensors[tensor].value_info->type == NULL))
            graph->tensors[tensor].value_info = graph->proto->value_info[i];
    }
    return ND_OK;
}

void nd_graph_walk_back(const struct nd_graph *graph, const size_t *tensors, size_t n_tensors,
                        bool *needed_nodes, bool *needed_tensors)
{
    for (size_t i = 0; i < n_tensors; i++)
        needed_tensors[tensors[i]] = true;
    for (size_t n = graph->n_nodes; n-- > 0;) {
        const struct nd_graph_node *node = &graph->nodes[n];
        for (size_t i = 0; i < node->n_made; i++) {
            size_t made = graph->made[node->first_made + i];
            needed_nodes[n] |= made != ND_NO_INDEX && needed_tensors[made];
        }
        for (size_t i = 0; needed_nodes[n] && i < node->n_uses; i++) {
            size_t used = graph->uses[node->first_use + i];
            if (used != ND_NO_INDEX)
                needed_tensors[used] = true;
        }
    }
}

static enum nd_status find_living(struct nd_graph *graph, struct nd_error *err)
{
    size_t n_outputs = graph->proto->n_output;
    ND_FREED size_t *outputs = nd_calloc(n_outputs, sizeof *outputs);
    ND_FREED bool *nodes = nd_calloc(graph->n_nodes, sizeof *nodes),
                  *tensors = nd_calloc(graph->n_tensors, sizeof *tensors);
    ND_TRY_MEMORY(outputs != NULL && nodes != NULL && tensors != NULL, err);
    for (size_t i = 0; i < n_outputs; i++)
        outputs[i] = nd_names_find(&graph->names, graph->proto->output[i]->name);
    nd_graph_walk_back(graph, outputs, n_outputs, nodes, tensors);
    for (size_t i = 0; i < graph->n_nodes; i++)
        graph->nodes[i].is_alive = nodes[i];
    return ND_OK;
}

static enum nd_status find_readers(struct nd_graph *graph, struct nd_error *err)
{
    graph->readers = nd_calloc(graph->n_uses, sizeof *graph->readers);
    ND_TRY_MEMORY(graph->readers != NULL, err);
    /* Counting sort of all uses by tensor. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t n = 0; n < graph->n_nodes; n++) {
            const struct nd_graph_node *node = &graph->nodes[n];
            for (size_t i = 0; node->is_alive && i < node->n_uses; i++) {
                size_t used = graph->uses[node->first_use + i];
                if (used == ND_NO_INDEX)
                    continue;
                struct nd_graph_tensor *tensor = &graph->tensors[used];
                if (pass == 1)
                    graph->readers[tensor->first_reader + tensor->n_readers] = n;
                tensor->n_readers++;
            }
        }
        for (size_t t = 0, first = 0; pass == 0 && t < graph->n_tensors; t++) {
            graph->tensors[t].first_reader = first;
            first += graph->tensors[t].n_readers;
            graph->tensors[t].n_readers = 0;
        }
    }
    return ND_OK;
}

enum nd_status nd_graph_init(struct nd_graph *graph, const Onnx__GraphProto *proto, struct nd_error *err)
{
    *graph = (struct nd_graph){.proto = proto, .n_nodes = proto->n_node};
    graph->nodes = nd_calloc(graph->n_nodes, sizeof *graph->nodes);
    ND_TRY_MEMORY(graph->nodes != NULL, err);
    ND_TRY(add_sources(graph, err));
    for (size_t i = 0; i < graph->n_nodes; i++)
        ND_TRY(add_node(graph, i, err));
    ND_TRY(add_outputs(graph, err));
    ND_TRY(find_living(graph, err));
    return find_readers(graph, err);
}

size_t nd_graph_used(const struct nd_graph *graph, size_t node, size_t i)
{
    const struct nd_graph_node *n = &graph->nodes[node];
    return i < n->n_inputs ? graph->uses[n->first_use + i] : ND_NO_INDEX;
}

size_t nd_graph_made(const struct nd_graph *graph, size_t node, size_t i)
{
    const struct nd_graph_node *n = &graph->nodes[node];
    return i < n->n_made ? graph->made[n->first_made + i] : ND_NO_INDEX;
}

const Onnx__TensorProto *nd_graph_constant(const struct nd_graph *graph, size_t tensor)
{
    const struct nd_graph_tensor *t = &graph->tensors[tensor];
    if (t->initializer != NULL || t->producer == ND_NO_INDEX)
        return t->initializer;
    const Onnx__NodeProto *node = graph->nodes[t->producer].proto;
    const Onnx__AttributeProto *value =
        strcmp(nd_onnx_text(node->op_type), "Constant") == 0 ? nd_onnx_attribute(node, "value") : NULL;
    return value != NULL ? value->t : NULL;
}

/* ---- the order of the nodes ---- */

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
    ND_FREED size_t *path = nd_calloc(n, sizeof *path);
    ND_FREED struct state *states = nd_calloc(n, sizeof *states);
    ND_FREED Onnx__NodeProto **placed = nd_calloc(n, sizeof *placed);
    ND_TRY_MEMORY(path != NULL && states != NULL && placed != NULL, err);
    ND_TRY(place_nodes(order, path, states, placed, err));
    for (size_t i = 0; i < n; i++)
        order->graph->node[i] = placed[i];
    return ND_OK;
}

static enum nd_status order_inner(const Onnx__NodeProto *node, struct nd_error *err)
{
    for (size_t a = 0; a < node->n_attribute; a++) {
        const Onnx__AttributeProto *attribute = node->attribute[a];
        if (attribute->g != NULL)
            ND_TRY(nd_graph_order(attribute->g, err));
        for (size_t g = 0; g < attribute->n_graphs; g++)
            ND_TRY(nd_graph_order(attribute->graphs[g], err));
    }
    return ND_OK;
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
    ND_FREE_ALL(order.needs, order.first);
    return status;
}

/* ---- quantisers that are one ---- */

/* A quantiser that hands its quantised values to nodes of the graph alone. */
static bool may_be_one(const Onnx__GraphProto *graph, const Onnx__NodeProto *node)
{
    bool may = node->op_type != NULL && kind_of(node) == ND_NODE_QUANTIZE && node->n_attribute == 0 &&
               node->n_input > 0 && node->n_output == 1;
    for (size_t i = 0; may && i < graph->n_output; i++)
        may = strcmp(nd_onnx_text(graph->output[i]->name), node->output[0]) != 0;
    return may;
}

static bool reads_the_same(const Onnx__NodeProto *a, const Onnx__NodeProto *b)
{
    bool are = a->n_input == b->n_input;
    for (size_t i = 0; are && i < a->n_input; i++)
        are = strcmp(a->input[i], b->input[i]) == 0;
    return are;
}

enum nd_status nd_graph_join_quantisers(Onnx__GraphProto *graph, struct nd_error *err)
{
    struct nd_names firsts = {0}, joined = {0}; /* the first of what a quantiser reads, and of what it makes */
    bool has_memory = true;
    for (size_t n = 0; n < graph->n_node && has_memory; n++) {
        Onnx__NodeProto *node = graph->node[n];
        for (size_t i = 0; i < node->n_input && has_memory; i++) {
            size_t first = nd_names_find(&joined, node->input[i]);
            if (first == ND_NO_INDEX)
                continue;
            free(node->input[i]);
            node->input[i] = nd_strdup(graph->node[first]->output[0]);
            has_memory = node->input[i] != NULL;
        }
        if (!has_memory || !may_be_one(graph, node))
            continue;
        size_t first = nd_names_find(&firsts, node->input[0]);
        if (first == ND_NO_INDEX)
            has_memory = nd_names_add(&firsts, node->input[0], n);
        else if (reads_the_same(graph->node[first], node) &&
                 nd_names_find(&joined, node->output[0]) == ND_NO_INDEX)
            has_memory = nd_names_add(&joined, node->output[0], first);
    }
    nd_names_deinit(&firsts);
    nd_names_deinit(&joined);
    return has_memory ? ND_OK : nd_fail_memory(err);
}
