/* The constants of a graph within a limit: those that are large are read when a node needs them, and let go
 * behind it where all that are kept pass the limit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/graph_internal.h"
#include "arithmetic/exact/linear/linear_families.h"
#include "core/error.h"
#include "core/memory.h"
#include "model/graph/external.h"

static enum nd_status nd_exact_store_make_packed_weights(struct nd_exact_graph *g, size_t t,
                                                         struct nd_error *err);

/* Weights as products take them, made once for a graph. */

bool nd_exact_feeds_layers(const struct nd_exact_graph *g, size_t node)
{
    const struct nd_graph *graph = &g->model->graph;
    const struct nd_graph_node *n = &graph->nodes[node];
    bool feeds = n->n_made > 0;
    for (size_t i = 0; i < n->n_made && feeds; i++) {
        size_t made = nd_graph_made(graph, node, i), tensor;
        if (made == ND_NO_INDEX)
            continue;
        const struct nd_graph_tensor *value = &graph->tensors[made];
        tensor = g->model->tensor_of_value[made];
        feeds = value->output == ND_NO_INDEX &&
                (tensor == ND_NO_INDEX || strcmp(g->model->tensors[tensor].onnx_name, value->name) != 0);
        for (size_t r = 0; r < value->n_readers && feeds; r++) {
            size_t reader = graph->readers[value->first_reader + r];
            feeds = graph->nodes[reader].kind == ND_NODE_QUANTIZE && g->layer_of_node[reader] == reader;
        }
    }
    return feeds;
}

bool nd_exact_graph_is_pure(const struct nd_exact_graph *g)
{
    return g->is_pure;
}

bool nd_exact_has_only_layers(const struct nd_exact_graph *g)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].is_alive && !graph->nodes[n].is_constant && graph->nodes[n].kind == ND_NODE_OTHER &&
            g->layer_of_node[n] == ND_NO_INDEX && !nd_exact_feeds_layers(g, n))
            return false;
    return true;
}

static bool is_product(const Onnx__NodeProto *node)
{
    static const char *const names[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(nd_onnx_text(node->op_type), names[i]) == 0 && nd_onnx_domain(node->domain)[0] == 0)
            return true;
    return false;
}

/* The DequantizeLinear of constant quantised values that is the product's second operand, or ND_NO_INDEX. */
static size_t find_weights(const struct nd_exact_graph *g, size_t node)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t tensor = nd_graph_used(graph, node, 1);
    size_t producer = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
    if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE ||
        g->quants[producer].quant.n == 0)
        return ND_NO_INDEX;
    size_t qvalues = nd_graph_used(graph, producer, 0);
    return qvalues != ND_NO_INDEX && g->constants[qvalues].shape.rank >= 0 ? producer : ND_NO_INDEX;
}

static bool is_without_zero(const struct nd_exact_graph *g, size_t qvalues)
{
    const struct nd_quant *quant = &g->quants[g->store->dequantiser[qvalues]].quant;
    bool is_without = nd_dtype_is_integer(g->constants[qvalues].dtype);
    for (size_t c = 0; c < quant->n && is_without; c++)
        is_without = quant->zero_point[c] == 0;
    return is_without;
}

static enum nd_status prepare_shorts(const struct nd_exact_graph *g, size_t qvalues, struct nd_error *err)
{
    const struct nd_array *packed_weights = &g->packed_weights[qvalues];
    if (g->largest[qvalues] > INT16_MAX)
        return ND_OK;
    int16_t *shorts = nd_tensor_room((packed_weights->n + 1) * sizeof *shorts);
    if (shorts == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < packed_weights->n; i++)
        shorts[i] = (int16_t)packed_weights->x[i];
    shorts[packed_weights->n] = 0;
    g->shorts[qvalues] = shorts;
    return ND_OK;
}

/* Quantised values without a zero point are their own packed weights. */
static enum nd_status share_packed_weights(const struct nd_exact_graph *g, size_t qvalues,
                                           struct nd_array *packed_weights, struct nd_error *err)
{
    int axis;
    size_t n_inner;
    double largest = 0;
    *packed_weights = g->constants[qvalues];
    packed_weights->dtype = ND_DTYPE_F32; /* operators make integers of integers wrap around */
    for (size_t i = 0; i < packed_weights->n; i++)
        largest = fabs(packed_weights->x[i]) > largest ? fabs(packed_weights->x[i]) : largest;
    g->largest[qvalues] = largest;
    return nd_linear_layout(&g->quants[g->store->dequantiser[qvalues]].quant, &packed_weights->shape, &axis,
                            &n_inner, err);
}

/* One scale and zero point for all, or by channel: as the layer's evaluation would make them. What it refuses
 * is left to it. */
static enum nd_status nd_exact_make_packed_weights(const struct nd_exact_graph *g, size_t qvalues,
                                                   struct nd_error *err)
{
    size_t dequantize = g->store->dequantiser[qvalues];
    if (dequantize == ND_NO_INDEX)
        return ND_OK;
    const struct nd_linear_input input = {.values = &g->constants[qvalues],
                                          .quant = &g->quants[dequantize].quant};
    const struct nd_linear_call call = {.opset = g->model->opset, .n_inputs = 1, .inputs = &input};
    struct nd_array packed_weights = {0};
    struct nd_error ignored;
    if (is_without_zero(g, qvalues)) {
        if (share_packed_weights(g, qvalues, &packed_weights, &ignored) != ND_OK)
            return ND_OK;
        g->packed_weights[qvalues] = packed_weights;
        return prepare_shorts(g, qvalues, err);
    }
    enum nd_status status = nd_linear_packed_weights(&call, 0, &packed_weights, &g->largest[qvalues], &ignored);
    if (status == ND_ERR_MEMORY)
        return nd_fail_memory(err);
    if (status != ND_OK) {
        nd_array_deinit(&packed_weights);
        return ND_OK;
    }
    g->packed_weights[qvalues] = packed_weights;
    return prepare_shorts(g, qvalues, err);
}

/* Quantised values and packed weights from the shorts of both. */
static enum nd_status nd_exact_widen_shorts(const struct nd_exact_graph *g, size_t qvalues,
                                            struct nd_error *err)
{
    struct nd_array *values = &g->constants[qvalues], *packed_weights = &g->packed_weights[qvalues];
    const struct nd_quant *quant = &g->quants[g->store->dequantiser[qvalues]].quant;
    const int16_t *shorts = g->shorts[qvalues];
    bool is_shared = is_without_zero(g, qvalues);
    values->x = nd_tensor_room(values->n * sizeof *values->x);
    packed_weights->x = is_shared ? values->x : nd_tensor_room(values->n * sizeof *packed_weights->x);
    if (values->x == NULL || packed_weights->x == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < values->n; i++)
        packed_weights->x[i] = (double)shorts[i];
    size_t inner = nd_exact_inner(quant, &values->shape, values->n), channel = 0;
    for (size_t start = 0; start < values->n && !is_shared; start += inner, channel = (channel + 1) % quant->n)
        for (size_t i = start; i < start + inner; i++)
            values->x[i] = packed_weights->x[i] + (double)quant->zero_point[channel];
    return ND_OK;
}

/* Quantised values that two DequantizeLinear read, with zero points each, are nobody's. */
enum nd_status nd_exact_prepare_packed_weights(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t *readers = nd_calloc(graph->n_tensors, sizeof *readers), *found = g->store->dequantiser;
    enum nd_status status = readers != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t n = 0; status == ND_OK && n < graph->n_nodes; n++)
        if (graph->nodes[n].is_alive && graph->nodes[n].kind == ND_NODE_DEQUANTIZE &&
            nd_graph_used(graph, n, 0) != ND_NO_INDEX)
            readers[nd_graph_used(graph, n, 0)]++;
    for (size_t n = 0; status == ND_OK && n < graph->n_nodes; n++) {
        if (!graph->nodes[n].is_alive || !is_product(graph->nodes[n].proto))
            continue;
        size_t dequantize = find_weights(g, n);
        size_t qvalues = dequantize != ND_NO_INDEX ? nd_graph_used(graph, dequantize, 0) : ND_NO_INDEX;
        if (qvalues == ND_NO_INDEX || readers[qvalues] != 1 || found[qvalues] != ND_NO_INDEX)
            continue;
        found[qvalues] = dequantize;
        status = nd_exact_store_make_packed_weights(g, qvalues, err);
    }
    free(readers);
    return status;
}

void nd_exact_forget_packed_weights(const struct nd_exact_graph *g, size_t tensor)
{
    if (g->packed_weights[tensor].x != g->constants[tensor].x)
        free(g->packed_weights[tensor].x);
    g->packed_weights[tensor].x = NULL;
}

/* Smaller arrays always stay; chosen: what a lock costs is nothing to who reads as much. */
static const size_t min_loose_bytes = (size_t)16 << 10;

static bool is_loose(const struct nd_exact_graph *g, size_t t)
{
    return g->constants[t].n >= min_loose_bytes / sizeof *g->constants[t].x;
}

static bool is_here(const struct nd_exact_graph *g, size_t t)
{
    return g->constants[t].x != NULL || g->constants[t].n == 0;
}

static size_t bytes_of(const struct nd_exact_graph *g, size_t t)
{
    const struct nd_array *values = &g->constants[t];
    bool has_own_packed_weights = g->packed_weights[t].x != NULL && g->packed_weights[t].x != values->x;
    return values->n *
           ((values->x != NULL ? sizeof *values->x : 0) + (has_own_packed_weights ? sizeof *values->x : 0) +
            (g->shorts[t] != NULL ? sizeof *g->shorts[t] : 0));
}

/* ---- from the model ---- */

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

/* By the node that makes it from constants. */
static enum nd_status compute(const struct nd_exact_graph *g, size_t t, struct nd_array *out,
                              struct nd_error *err)
{
    struct nd_exact_run run;
    enum nd_status status = nd_exact_run_init(&run, g, err);
    if (status == ND_OK)
        status = nd_exact_run_node(&run, g->model->graph.tensors[t].producer, err);
    if (status == ND_OK) {
        *out = run.values[t];
        run.values[t] = nd_exact_none();
    }
    nd_exact_run_deinit(&run);
    return status;
}

enum nd_status nd_exact_read_constant(const struct nd_exact_graph *g, size_t t, struct nd_array *out,
                                      struct nd_error *err)
{
    const Onnx__TensorProto *initializer = g->model->graph.tensors[t].initializer;
    return initializer != NULL ? decode(g->model, initializer, out, err) : compute(g, t, out, err);
}

/* ---- kept and let go ---- */

static void drop(const struct nd_exact_graph *g, size_t t)
{
    struct nd_exact_store *store = g->store;
    store->kept_bytes -= bytes_of(g, t);
    nd_exact_forget_packed_weights(g, t);
    free(g->constants[t].x);
    g->constants[t].x = NULL;
    if (store->kept_bytes + bytes_of(g, t) > store->limit_bytes) {
        free(g->shorts[t]);
        g->shorts[t] = NULL;
    }
    store->kept_bytes += bytes_of(g, t);
}

/* Shorts are a fourth of doubles, and quickly made wide again: they have the other half. */
static bool is_full(const struct nd_exact_store *store)
{
    return store->kept_bytes > store->limit_bytes / 2;
}

static enum nd_status read_model(const struct nd_exact_graph *g, size_t t, struct nd_error *err)
{
    struct nd_array values = {0};
    enum nd_status status = nd_exact_read_constant(g, t, &values, err);
    if (status != ND_OK)
        return status;
    if (values.n != g->constants[t].n) {
        nd_array_deinit(&values);
        return nd_fail(err, ND_E_FILE_READ, g->model->path, "'%s' changed while it was read", g->model->path);
    }
    g->constants[t].x = values.x;
    nd_exact_apply_scaling(g, t);
    return nd_exact_make_packed_weights(g, t, err);
}

static enum nd_status read_again(const struct nd_exact_graph *g, size_t t, struct nd_error *err)
{
    g->store->kept_bytes -= bytes_of(g, t);
    enum nd_status status = g->shorts[t] != NULL ? nd_exact_widen_shorts(g, t, err) : read_model(g, t, err);
    g->store->kept_bytes += bytes_of(g, t);
    if (status != ND_OK)
        drop(g, t);
    return status;
}

enum nd_status nd_exact_store_init(struct nd_exact_graph *g, size_t limit_bytes, struct nd_error *err)
{
    size_t n = g->model->graph.n_tensors;
    pthread_mutexattr_t attributes;
    struct nd_exact_store *store = nd_calloc(1, sizeof *store);
    size_t *n_holders = nd_calloc(n, sizeof *n_holders), *dequantiser = nd_calloc(n, sizeof *dequantiser);
    struct nd_array *tables = nd_calloc(g->model->graph.n_nodes, sizeof *tables);
    if (store == NULL || n_holders == NULL || dequantiser == NULL || tables == NULL) {
        free(store);
        free(tables);
        free(n_holders);
        free(dequantiser);
        return nd_fail_memory(err);
    }
    for (size_t t = 0; t < n; t++)
        dequantiser[t] = ND_NO_INDEX;
    *store = (struct nd_exact_store){
        .limit_bytes = limit_bytes, .n_holders = n_holders, .dequantiser = dequantiser, .tables = tables};
    pthread_mutexattr_init(&attributes); /* what is computed reads other constants */
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&store->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    g->store = store;
    return ND_OK;
}

void nd_exact_store_deinit(struct nd_exact_graph *g)
{
    if (g->store == NULL)
        return;
    nd_exact_tables_deinit(g);
    pthread_mutex_destroy(&g->store->lock);
    free(g->store->tables);
    free(g->store->n_holders);
    free(g->store->dequantiser);
    free(g->store);
}

void nd_exact_store_put(struct nd_exact_graph *g, size_t t, struct nd_array *values)
{
    size_t producer = g->model->graph.tensors[t].producer;
    g->constants[t] = *values;
    *values = nd_exact_none();
    g->store->kept_bytes += bytes_of(g, t);
    /* Layers read the quantised values before a DequantizeLinear; its numbers wait until somebody asks. */
    bool is_seldom_read = producer != ND_NO_INDEX && g->model->graph.nodes[producer].kind == ND_NODE_DEQUANTIZE;
    if (is_loose(g, t) && (is_seldom_read || is_full(g->store)))
        drop(g, t);
}

/* Makes the packed weights of a constant that is there and has some. */
static enum nd_status nd_exact_store_make_packed_weights(struct nd_exact_graph *g, size_t t,
                                                         struct nd_error *err)
{
    if (!is_here(g, t))
        return ND_OK;
    g->store->kept_bytes -= bytes_of(g, t);
    enum nd_status status = nd_exact_make_packed_weights(g, t, err);
    g->store->kept_bytes += bytes_of(g, t);
    if (is_loose(g, t) && is_full(g->store))
        drop(g, t);
    return status;
}

static enum nd_status hold(const struct nd_exact_graph *g, size_t t, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    pthread_mutex_lock(&g->store->lock);
    if (!is_here(g, t))
        status = read_again(g, t, err);
    if (status == ND_OK)
        g->store->n_holders[t]++;
    pthread_mutex_unlock(&g->store->lock);
    return status;
}

static void release(const struct nd_exact_graph *g, size_t t)
{
    pthread_mutex_lock(&g->store->lock);
    if (--g->store->n_holders[t] == 0 && is_full(g->store))
        drop(g, t);
    pthread_mutex_unlock(&g->store->lock);
}

static size_t place_of(const struct nd_exact_graph *g, const struct nd_array *constant)
{
    return (size_t)(constant - g->constants);
}

enum nd_status nd_exact_hold(const struct nd_exact_graph *g, const struct nd_array *constant,
                             struct nd_error *err)
{
    bool can_go = constant != NULL && is_loose(g, place_of(g, constant));
    return can_go ? hold(g, place_of(g, constant), err) : ND_OK;
}

void nd_exact_release(const struct nd_exact_graph *g, const struct nd_array *constant)
{
    if (constant != NULL && is_loose(g, place_of(g, constant)))
        release(g, place_of(g, constant));
}

size_t nd_exact_graph_kept_bytes(const struct nd_exact_graph *g)
{
    return g->store->kept_bytes;
}

/* ---- of a run ---- */

bool nd_exact_run_holds(const struct nd_exact_run *run, size_t t)
{
    struct nd_exact_holding *decoded = run->decoded;
    if (!is_loose(run->g, t))
        return true;
    if (decoded->status != ND_OK)
        return false;
    for (size_t i = 0; i < decoded->n; i++)
        if (decoded->tensors[i] == t)
            return true;
    if (!nd_grow((void **)&decoded->tensors, &decoded->capacity, decoded->n + 1, sizeof *decoded->tensors))
        decoded->status = nd_fail_memory(&decoded->error);
    else
        decoded->status = hold(run->g, t, &decoded->error);
    if (decoded->status == ND_OK)
        decoded->tensors[decoded->n++] = t;
    return decoded->status == ND_OK;
}

void nd_exact_run_release(struct nd_exact_run *run)
{
    while (run->decoded->n > 0)
        release(run->g, run->decoded->tensors[--run->decoded->n]);
}

enum nd_status nd_exact_run_init(struct nd_exact_run *run, const struct nd_exact_graph *g, struct nd_error *err)
{
    static const struct nd_exact_options defaults = {.struct_size = sizeof defaults};
    size_t n = g->model->graph.n_tensors;
    *run = (struct nd_exact_run){.g = g, .graph = &g->model->graph, .options = &defaults};
    run->values = nd_calloc(n, sizeof *run->values);
    run->is_missed = nd_calloc(n, sizeof *run->is_missed);
    run->decoded = nd_calloc(1, sizeof *run->decoded);
    for (size_t t = 0; run->values != NULL && t < n; t++)
        run->values[t] = nd_exact_none();
    bool has_all = run->values != NULL && run->is_missed != NULL && run->decoded != NULL;
    return has_all ? ND_OK : nd_fail_memory(err);
}

void nd_exact_run_deinit(struct nd_exact_run *run)
{
    for (size_t t = 0; run->values != NULL && t < run->graph->n_tensors; t++)
        if (run->values[t].shape.rank >= 0)
            nd_array_deinit(&run->values[t]);
    if (run->decoded != NULL) {
        nd_exact_run_release(run);
        free(run->decoded->tensors);
    }
    free(run->decoded);
    free(run->values);
    free(run->is_missed);
}
