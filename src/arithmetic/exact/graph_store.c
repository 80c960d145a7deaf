/* The constants of a graph within a limit: those that are large are read when a node needs them, and let go
 * behind it where all that are kept pass the limit. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/graph_internal.h"
#include "model/graph/external.h"

/* Smaller arrays always stay; chosen: what a lock costs is nothing to who reads as much. */
static const size_t least_loose_bytes = (size_t)16 << 10;

static bool is_loose(const struct nd_exact_graph *g, size_t t)
{
    return g->constants[t].n >= least_loose_bytes / sizeof *g->constants[t].x;
}

static bool is_here(const struct nd_exact_graph *g, size_t t)
{
    return g->constants[t].x != NULL || g->constants[t].n == 0;
}

static size_t bytes_of(const struct nd_exact_graph *g, size_t t)
{
    const struct nd_array *values = &g->constants[t];
    bool has_own_wholes = g->wholes[t].x != NULL && g->wholes[t].x != values->x;
    return values->n * ((values->x != NULL ? sizeof *values->x : 0) + (has_own_wholes ? sizeof *values->x : 0) +
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
    nd_exact_forget_wholes(g, t);
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
    return nd_exact_make_wholes(g, t, err);
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
    /* Units read the codes before a DequantizeLinear; its numbers wait until somebody asks. */
    bool is_seldom_read = producer != ND_NO_INDEX && g->model->graph.nodes[producer].kind == ND_NODE_DEQUANTIZE;
    if (is_loose(g, t) && (is_seldom_read || is_full(g->store)))
        drop(g, t);
}

enum nd_status nd_exact_store_make_wholes(struct nd_exact_graph *g, size_t t, struct nd_error *err)
{
    if (!is_here(g, t))
        return ND_OK;
    g->store->kept_bytes -= bytes_of(g, t);
    enum nd_status status = nd_exact_make_wholes(g, t, err);
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
    struct nd_exact_holding *held = run->held;
    if (!is_loose(run->g, t))
        return true;
    if (held->status != ND_OK)
        return false;
    for (size_t i = 0; i < held->n; i++)
        if (held->tensors[i] == t)
            return true;
    if (!nd_grow((void **)&held->tensors, &held->capacity, held->n + 1, sizeof *held->tensors))
        held->status = nd_fail_memory(&held->error);
    else
        held->status = hold(run->g, t, &held->error);
    if (held->status == ND_OK)
        held->tensors[held->n++] = t;
    return held->status == ND_OK;
}

void nd_exact_run_release(struct nd_exact_run *run)
{
    while (run->held->n > 0)
        release(run->g, run->held->tensors[--run->held->n]);
}

enum nd_status nd_exact_run_init(struct nd_exact_run *run, const struct nd_exact_graph *g, struct nd_error *err)
{
    static const struct nd_exact_options defaults = {.struct_size = sizeof defaults};
    size_t n = g->model->graph.n_tensors;
    *run = (struct nd_exact_run){.g = g, .graph = &g->model->graph, .options = &defaults};
    run->values = nd_calloc(n, sizeof *run->values);
    run->is_missed = nd_calloc(n, sizeof *run->is_missed);
    run->held = nd_calloc(1, sizeof *run->held);
    for (size_t t = 0; run->values != NULL && t < n; t++)
        run->values[t] = nd_exact_none();
    bool has_all = run->values != NULL && run->is_missed != NULL && run->held != NULL;
    return has_all ? ND_OK : nd_fail_memory(err);
}

void nd_exact_run_deinit(struct nd_exact_run *run)
{
    for (size_t t = 0; run->values != NULL && t < run->graph->n_tensors; t++)
        if (run->values[t].shape.rank >= 0)
            nd_array_deinit(&run->values[t]);
    if (run->held != NULL) {
        nd_exact_run_release(run);
        free(run->held->tensors);
    }
    free(run->held);
    free(run->values);
    free(run->is_missed);
}
