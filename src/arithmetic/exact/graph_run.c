#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/graph_internal.h"

struct nd_array nd_exact_none(void)
{
    return (struct nd_array){.shape.rank = -1};
}

const struct nd_array *nd_exact_replaced(const struct nd_exact_run *run, size_t tensor)
{
    bool has_any = run->options != NULL && run->options->replaced != NULL && tensor != ND_NO_INDEX;
    return has_any ? run->options->replaced[tensor] : NULL;
}

const struct nd_array *nd_exact_value(const struct nd_exact_run *run, size_t tensor)
{
    if (tensor == ND_NO_INDEX)
        return NULL;
    if (nd_exact_replaced(run, tensor) != NULL)
        return nd_exact_replaced(run, tensor);
    if (run->g->constants[tensor].shape.rank >= 0)
        return nd_exact_run_holds(run, tensor) ? &run->g->constants[tensor] : NULL;
    return run->values[tensor].shape.rank >= 0 ? &run->values[tensor] : NULL;
}

bool nd_exact_is_real(const struct nd_exact_run *run, size_t tensor)
{
    size_t edge = tensor != ND_NO_INDEX ? run->g->model->tensor_edge[tensor] : ND_NO_INDEX;
    bool has_any = run->options != NULL && run->options->is_real != NULL && edge != ND_NO_INDEX;
    return has_any && run->options->is_real[edge];
}

/* A DequantizeLinear of real values has nothing to do. */
static enum nd_status pass_real(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    size_t from = nd_graph_used(run->graph, node, 0), to = nd_graph_made(run->graph, node, 0);
    enum nd_status status = nd_exact_ensure(run, from, err);
    struct nd_array copy = {0};
    if (status == ND_OK)
        status = nd_array_copy(nd_exact_value(run, from), &copy, err);
    if (status == ND_OK && to != ND_NO_INDEX && run->values[to].shape.rank < 0)
        run->values[to] = copy;
    else
        nd_array_deinit(&copy);
    return status;
}

enum nd_status nd_exact_ensure(struct nd_exact_run *run, size_t tensor, struct nd_error *err)
{
    if (tensor == ND_NO_INDEX || nd_exact_value(run, tensor) != NULL)
        return ND_OK;
    const struct nd_graph_tensor *t = &run->graph->tensors[tensor];
    size_t producer = t->producer;
    if (run->held->status != ND_OK) {
        if (err != NULL)
            *err = run->held->error;
        return run->held->status;
    }
    if (run->is_missed != NULL && run->is_missed[tensor]) {
        const char *name = run->g->model->edges[run->g->model->tensor_edge[tensor]].name;
        return nd_fail(err, ND_E_EXACT_UNKNOWN, name, "what it reads, '%s', is not known", name);
    }
    if (producer == ND_NO_INDEX && t->initializer != NULL)
        return nd_fail(err, ND_E_EXACT_OPERATOR, t->name, "constant '%s' is of a type that is not evaluated",
                       t->name);
    if (producer == ND_NO_INDEX)
        return nd_fail(err, ND_E_MODEL_GRAPH, t->name, "tensor '%s' has no values", t->name);
    return nd_exact_run_node(run, producer, err);
}

enum nd_status nd_exact_run_node(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    const struct nd_array *inputs[ND_EXACT_MAX_OPERANDS];
    struct nd_array *outputs[ND_EXACT_MAX_OPERANDS];
    if (n->kind == ND_NODE_DEQUANTIZE && nd_exact_is_real(run, nd_graph_used(run->graph, node, 0)))
        return pass_real(run, node, err);
    if (n->n_inputs > ND_EXACT_MAX_OPERANDS || n->n_made > ND_EXACT_MAX_OPERANDS || n->n_uses > n->n_inputs)
        return nd_fail(err, ND_E_EXACT_OPERATOR, n->proto->name,
                       "node '%s' (%s) has a subgraph or too many inputs", nd_graph_node_name(n->proto),
                       n->proto->op_type);
    bool is_made;
    enum nd_status found = nd_exact_look_up(run, node, &is_made, err);
    if (found != ND_OK || is_made)
        return found;
    for (size_t i = 0; i < n->n_inputs; i++) {
        enum nd_status status = nd_exact_ensure(run, nd_graph_used(run->graph, node, i), err);
        if (status != ND_OK)
            return status;
        inputs[i] = nd_exact_value(run, nd_graph_used(run->graph, node, i));
    }
    struct nd_array unwanted[ND_EXACT_MAX_OPERANDS];
    for (size_t i = 0; i < n->n_made; i++) {
        size_t tensor = nd_graph_made(run->graph, node, i);
        unwanted[i] = (struct nd_array){0};
        outputs[i] = tensor != ND_NO_INDEX ? &unwanted[i] : NULL;
    }
    const struct nd_op_call call = {.node = n->proto,
                                    .opset = run->g->model->opset,
                                    .n_inputs = n->n_inputs,
                                    .n_outputs = n->n_made,
                                    .inputs = inputs,
                                    .outputs = outputs,
                                    .is_folded = n->is_constant};
    enum nd_status status = nd_exact_run_operator(run->g, node, &call, err);
    for (size_t i = 0; i < n->n_made; i++) {
        size_t tensor = nd_graph_made(run->graph, node, i);
        if (status == ND_OK && tensor != ND_NO_INDEX && run->values[tensor].shape.rank < 0)
            run->values[tensor] = unwanted[i];
        else
            nd_array_deinit(&unwanted[i]);
    }
    return status;
}

/* ---- edges ---- */

/* The edge that the tensor itself is, or ND_NO_INDEX. */
static size_t edge_of(const struct nd_exact_run *run, size_t tensor)
{
    const struct nd_model *model = run->g->model;
    size_t edge = tensor != ND_NO_INDEX ? model->tensor_edge[tensor] : ND_NO_INDEX;
    bool is_it =
        edge != ND_NO_INDEX && strcmp(model->edges[edge].onnx_name, run->graph->tensors[tensor].name) == 0;
    return is_it ? edge : ND_NO_INDEX;
}

static const struct nd_array *given_for(const struct nd_exact_run *run, size_t edge)
{
    const struct nd_array *given = run->options->given != NULL ? &run->options->given[edge] : NULL;
    return given != NULL && given->shape.rank >= 0 ? given : NULL;
}

bool nd_exact_is_skipped(const struct nd_exact_run *run, size_t tensor)
{
    size_t edge = tensor != ND_NO_INDEX ? run->g->model->tensor_edge[tensor] : ND_NO_INDEX;
    return run->options->is_skipped != NULL && edge != ND_NO_INDEX && run->options->is_skipped[edge] &&
           given_for(run, edge) != NULL;
}

static void copy_given(const struct nd_exact_run *run, size_t edge, double *to)
{
    const struct nd_array *given = given_for(run, edge);
    if (given->n > 0 && given->x == NULL)
        run->options->give(run->context, edge, to);
    else if (given->n > 0)
        memcpy(to, given->x, given->n * sizeof *given->x);
}

enum nd_status nd_exact_take_given(struct nd_exact_run *run, size_t tensor, struct nd_error *err)
{
    struct nd_array codes = {0};
    size_t edge = run->g->model->tensor_edge[tensor];
    const struct nd_array *given = given_for(run, edge);
    enum nd_status status = nd_array_make_room(&codes, given->dtype, &given->shape, err);
    if (status != ND_OK)
        return status;
    copy_given(run, edge, codes.x);
    run->values[tensor] = codes;
    return ND_OK;
}

/* The edge, if the tensor is one, cannot be evaluated. */
static enum nd_status miss(struct nd_exact_run *run, size_t tensor, const struct nd_error *why,
                           struct nd_error *err)
{
    size_t edge = edge_of(run, tensor);
    enum nd_status status = ND_OK;
    if (edge == ND_NO_INDEX)
        return ND_OK;
    bool is_skipped = nd_exact_is_skipped(run, tensor);
    if (run->values[tensor].shape.rank >= 0)
        nd_array_deinit(&run->values[tensor]);
    run->values[tensor] = nd_exact_none();
    if (given_for(run, edge) != NULL)
        status = nd_exact_take_given(run, tensor, err);
    else
        run->is_missed[tensor] = true;
    if (status == ND_OK && !is_skipped)
        status = run->options->missed(run->context, edge, why, err);
    run->is_ended = status != ND_OK;
    return status;
}

enum nd_status nd_exact_tell(struct nd_exact_run *run, size_t tensor, enum nd_exact_way way,
                             struct nd_error *err)
{
    size_t edge = edge_of(run, tensor);
    if (edge == ND_NO_INDEX || run->values[tensor].shape.rank < 0)
        return ND_OK;
    const struct nd_array *given = given_for(run, edge);
    if (given != NULL && !nd_shape_equal(&given->shape, &run->values[tensor].shape)) {
        struct nd_error why;
        const char *name = run->g->model->edges[edge].name;
        nd_fail(&why, ND_E_EXACT_SHAPE, name, "what is given for edge '%s' has another shape", name);
        if (run->options->missed != NULL)
            return miss(run, tensor, &why, err);
        return nd_fail(err, ND_E_EXACT_SHAPE, name, "%s", why.message);
    }
    enum nd_status status =
        run->found != NULL ? run->found(run->context, edge, &run->values[tensor], way, err) : ND_OK;
    run->is_ended = status != ND_OK;
    if (status == ND_OK && given != NULL)
        copy_given(run, edge, run->values[tensor].x);
    return status;
}

/* ---- a sample ---- */

/* A node between units, or of a float model, of which nothing has to be computed: all that it makes is given
 * and taken over, or nobody reads it. */
static bool is_spared(const struct nd_exact_run *run, size_t node, bool *is_taken)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    bool is_ignored = run->options->is_ignored != NULL;
    *is_taken = run->options->is_skipped != NULL;
    for (size_t i = 0; i < n->n_made; i++) {
        size_t tensor = nd_graph_made(run->graph, node, i), edge = edge_of(run, tensor);
        if (tensor == ND_NO_INDEX)
            continue;
        is_ignored = is_ignored && edge != ND_NO_INDEX && run->options->is_ignored[edge];
        *is_taken = *is_taken && edge != ND_NO_INDEX && nd_exact_is_skipped(run, tensor) &&
                    run->values[tensor].shape.rank < 0;
    }
    *is_taken = *is_taken && !is_ignored;
    return is_ignored || *is_taken;
}

static enum nd_status take_all(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < run->graph->nodes[node].n_made && status == ND_OK; i++)
        if (nd_graph_made(run->graph, node, i) != ND_NO_INDEX)
            status = nd_exact_take_given(run, nd_graph_made(run->graph, node, i), err);
    return status;
}

static enum nd_status run_in_order(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    if (n->is_constant || !n->is_alive)
        return ND_OK;
    if (n->kind == ND_NODE_QUANTIZE)
        return nd_exact_run_quantize(run, node, err);
    if (run->g->unit_of_node[node] != ND_NO_INDEX || nd_exact_feeds_units(run->g, node))
        return ND_OK; /* its unit decides, or its units do */
    /* Units look at the codes before it; who wants its numbers asks for them. */
    if (n->kind == ND_NODE_DEQUANTIZE && n->n_made == 1 &&
        edge_of(run, nd_graph_made(run->graph, node, 0)) == ND_NO_INDEX)
        return ND_OK;
    bool is_taken;
    if (n->n_made > 0 && is_spared(run, node, &is_taken))
        return is_taken ? take_all(run, node, err) : ND_OK;
    enum nd_status status = ND_OK;
    bool is_made = n->n_made > 0;
    for (size_t i = 0; i < n->n_made; i++)
        is_made = is_made && (nd_graph_made(run->graph, node, i) == ND_NO_INDEX ||
                              nd_exact_value(run, nd_graph_made(run->graph, node, i)) != NULL);
    if (!is_made)
        status = nd_exact_run_node(run, node, err);
    for (size_t i = 0; i < n->n_made && status == ND_OK; i++)
        status = nd_exact_tell(run, nd_graph_made(run->graph, node, i), ND_EXACT_AS_DOUBLE, err);
    return status;
}

/* The same, where what cannot be evaluated is told of and costs nothing else. */
static enum nd_status run_or_miss(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    if (run->options->missed == NULL)
        return run_in_order(run, node, err);
    struct nd_error why;
    enum nd_status status = run_in_order(run, node, &why);
    if (status == ND_OK)
        return ND_OK;
    bool is_broken = run->is_ended || run->held->status != ND_OK;
    if (is_broken || (status != ND_ERR_UNSUPPORTED && status != ND_ERR_FORMAT)) {
        if (err != NULL)
            *err = why;
        return status;
    }
    status = ND_OK;
    for (size_t i = 0; i < run->graph->nodes[node].n_made && status == ND_OK; i++)
        status = miss(run, nd_graph_made(run->graph, node, i), &why, err);
    return status;
}

static enum nd_status feed(struct nd_exact_run *run, const struct nd_array *inputs, struct nd_error *err)
{
    const struct nd_model *model = run->g->model;
    for (size_t i = 0; i < model->n_inputs; i++) {
        size_t tensor = nd_names_find(&run->graph->names, model->inputs[i].name);
        if (tensor == ND_NO_INDEX || run->values[tensor].shape.rank >= 0)
            continue;
        run->values[tensor] = (struct nd_array){0};
        enum nd_status status = nd_array_copy(&inputs[i], &run->values[tensor], err);
        if (status != ND_OK) {
            run->values[tensor] = nd_exact_none();
            return status;
        }
    }
    return ND_OK;
}

static void drop_read(struct nd_exact_run *run, size_t node)
{
    for (size_t t = run->g->first_done[node]; t != ND_NO_INDEX; t = run->g->next_done[t])
        if (run->values[t].shape.rank >= 0) {
            nd_array_deinit(&run->values[t]);
            run->values[t] = nd_exact_none();
        }
}

enum nd_status nd_exact_graph_run(const struct nd_exact_graph *graph, const struct nd_array *inputs,
                                  const struct nd_exact_options *options, nd_exact_found *found, void *context,
                                  struct nd_error *err)
{
    struct nd_exact_run run;
    enum nd_status status = nd_exact_run_init(&run, graph, err);
    run.options = options != NULL ? options : run.options;
    run.found = found;
    run.context = context;
    if (status == ND_OK)
        status = feed(&run, inputs, err);
    for (size_t n = 0; n < run.graph->n_nodes && status == ND_OK; n++) {
        status = run_or_miss(&run, n, err);
        nd_exact_run_release(&run);
        drop_read(&run, n);
    }
    nd_exact_run_deinit(&run);
    return status;
}
