/* The values of a graph's tensors. Constants are kept within a limit: those that are large are read when a node
 * needs them, and let go behind it where all that are kept pass the limit. What a node makes is worked out when
 * somebody asks for it; a constant that was let go may need that, too. */
#include <math.h>
#include <stdlib.h>

#include "arithmetic/exact/graph_internal.h"
#include "arithmetic/exact/linear/linear_values.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/external.h"

struct nd_array nd_exact_none(void)
{
    return (struct nd_array){.shape.rank = -1};
}

/* Its place along the axis of the scales. */
size_t nd_exact_channel(const struct nd_quant *quant, const struct nd_shape *shape, size_t i)
{
    if (quant->n <= 1)
        return 0;
    int axis = quant->axis < 0 ? quant->axis + shape->rank : quant->axis;
    for (int d = shape->rank - 1; d > axis; d--)
        i /= (size_t)shape->dims[d];
    return i % quant->n;
}

size_t nd_exact_inner(const struct nd_quant *quant, const struct nd_shape *shape, size_t n)
{
    size_t inner = quant->n > 1 ? 1 : n;
    int axis = quant->axis < 0 ? quant->axis + shape->rank : quant->axis;
    for (int d = shape->rank - 1; d > axis && quant->n > 1; d--)
        inner *= (size_t)shape->dims[d];
    return inner > 0 ? inner : 1;
}

/* ---- scaled channels ---- */

size_t nd_weight_channel(const struct nd_weight_axes *axes, bool is_output, size_t i)
{
    size_t a = i / (axes->n1 * axes->inner), b = i / axes->inner % axes->n1;
    return is_output == axes->is_first_out ? a : a / (axes->n0 / axes->groups) * axes->n1 + b;
}

size_t nd_weight_channels(const struct nd_weight_axes *axes, bool is_output)
{
    return is_output == axes->is_first_out ? axes->n0 : axes->groups * axes->n1;
}

/* x[n0 * n1 * inner]. */
static void scale_weights(const struct nd_weight_axes *axes, const struct nd_weight_factors *factors, double *x)
{
    size_t n = axes->n0 * axes->n1 * axes->inner;
    for (size_t first = 0; first < n; first += axes->inner) {
        double factor = 1;
        if (factors->outputs != NULL)
            factor *= factors->outputs[nd_weight_channel(axes, true, first)];
        if (factors->inputs != NULL)
            factor *= factors->inputs[nd_weight_channel(axes, false, first)];
        for (size_t i = first; i < first + axes->inner; i++)
            x[i] *= factor;
    }
}

void nd_exact_apply_scaling(const struct nd_exact_graph *g, size_t t)
{
    const struct nd_exact_scaling *scaling = &g->scalings[t];
    if (scaling->axes.n0 > 0)
        scale_weights(&scaling->axes, &(struct nd_weight_factors){scaling->outputs, scaling->inputs},
                      g->constants[t].x);
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

static enum nd_status run_operator(const struct nd_exact_graph *g, size_t node, const struct nd_op_call *call,
                                   struct nd_error *err)
{
    const struct nd_exact_scaled_node *scaled = &g->scaled_nodes[node];
    const struct nd_array *input = call->inputs[0];
    if (scaled->n == 0 || input->shape.rank < 2 || (size_t)input->shape.dims[1] != scaled->n)
        return nd_op_run(call, err);
    ND_CLEANUP(nd_array_deinit) struct nd_array copy = {0};
    ND_TRY(nd_array_copy(input, &copy, err));
    scale_channels(scaled, true, &copy);
    const struct nd_array *inputs[ND_EXACT_MAX_OPERANDS] = {&copy};
    for (size_t i = 1; i < call->n_inputs; i++)
        inputs[i] = call->inputs[i];
    struct nd_op_call smaller = *call;
    smaller.inputs = inputs;
    ND_TRY(nd_op_run(&smaller, err));
    scale_channels(scaled, false, call->outputs[0]);
    return ND_OK;
}

/* ---- weights as products take them, made once for a graph ---- */

static bool is_product(const Onnx__NodeProto *node)
{
    return ND_IS_ONE_OF(node->op_type, "Conv", "ConvTranspose", "Gemm", "MatMul") &&
           nd_onnx_domain(node->domain)[0] == 0;
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
    ND_TRY_MEMORY(shorts != NULL, err);
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
static enum nd_status make_packed_weights(const struct nd_exact_graph *g, size_t qvalues, struct nd_error *err)
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
    ND_TRY_MEMORY(status != ND_ERR_MEMORY, err);
    if (status != ND_OK) {
        nd_array_deinit(&packed_weights);
        return ND_OK;
    }
    g->packed_weights[qvalues] = packed_weights;
    return prepare_shorts(g, qvalues, err);
}

/* Quantised values and packed weights from the shorts of both. */
static enum nd_status widen_shorts(const struct nd_exact_graph *g, size_t qvalues, struct nd_error *err)
{
    struct nd_array *values = &g->constants[qvalues], *packed_weights = &g->packed_weights[qvalues];
    const struct nd_quant *quant = &g->quants[g->store->dequantiser[qvalues]].quant;
    const int16_t *shorts = g->shorts[qvalues];
    bool is_shared = is_without_zero(g, qvalues);
    values->x = nd_tensor_room(values->n * sizeof *values->x);
    packed_weights->x = is_shared ? values->x : nd_tensor_room(values->n * sizeof *packed_weights->x);
    ND_TRY_MEMORY(values->x != NULL && packed_weights->x != NULL, err);
    for (size_t i = 0; i < values->n; i++)
        packed_weights->x[i] = (double)shorts[i];
    size_t inner = nd_exact_inner(quant, &values->shape, values->n), channel = 0;
    for (size_t start = 0; start < values->n && !is_shared; start += inner, channel = (channel + 1) % quant->n)
        for (size_t i = start; i < start + inner; i++)
            values->x[i] = packed_weights->x[i] + (double)quant->zero_point[channel];
    return ND_OK;
}

/* But not shorts. */
static void forget_packed_weights(const struct nd_exact_graph *g, size_t tensor)
{
    if (g->packed_weights[tensor].x != g->constants[tensor].x)
        free(g->packed_weights[tensor].x);
    g->packed_weights[tensor].x = NULL;
}

/* ---- constants in memory ---- */

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

static enum nd_status read_constant(const struct nd_exact_graph *g, size_t t, struct nd_array *out,
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
    forget_packed_weights(g, t);
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
    ND_TRY(read_constant(g, t, &values, err));
    if (values.n != g->constants[t].n) {
        nd_array_deinit(&values);
        return nd_fail(err, ND_E_FILE_READ, g->model->path, "'%s' changed while it was read", g->model->path);
    }
    g->constants[t].x = values.x;
    nd_exact_apply_scaling(g, t);
    return make_packed_weights(g, t, err);
}

static enum nd_status read_again(const struct nd_exact_graph *g, size_t t, struct nd_error *err)
{
    g->store->kept_bytes -= bytes_of(g, t);
    enum nd_status status = g->shorts[t] != NULL ? widen_shorts(g, t, err) : read_model(g, t, err);
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

static void tables_deinit(struct nd_exact_graph *g)
{
    for (size_t n = 0; n < g->model->graph.n_nodes; n++)
        nd_array_deinit(&g->store->tables[n]);
}

void nd_exact_store_deinit(struct nd_exact_graph *g)
{
    for (size_t t = 0; g->constants != NULL && g->packed_weights != NULL && g->shorts != NULL &&
                       t < g->model->graph.n_tensors;
         t++) {
        forget_packed_weights(g, t);
        free(g->shorts[t]);
        nd_array_deinit(&g->constants[t]);
    }
    if (g->store == NULL)
        return;
    tables_deinit(g);
    pthread_mutex_destroy(&g->store->lock);
    free(g->store->tables);
    free(g->store->n_holders);
    free(g->store->dequantiser);
    free(g->store);
}

/* Takes a constant over. */
static void put_constant(struct nd_exact_graph *g, size_t t, struct nd_array *values)
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
static enum nd_status pack_stored_weights(struct nd_exact_graph *g, size_t t, struct nd_error *err)
{
    if (!is_here(g, t))
        return ND_OK;
    g->store->kept_bytes -= bytes_of(g, t);
    enum nd_status status = make_packed_weights(g, t, err);
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

/* ---- functions of one quantised tensor ----
 *
 * By code: a Sigmoid of 8-bit quantised values has 256 values, however large the tensor and however often it is
 * evaluated. Each is worked out once, by the operator itself, so that a value from the table is the one that
 * the operator gives. */

enum {
    SHARE_OF_QVALUES = 16, /* a tensor with fewer elements than quantised values by this has no table: chosen,
                            since a model is evaluated for many samples and devices */
    MAX_TABLE_BYTES = 64 << 20, /* of all tables of a graph, 128 of 16-bit codes: chosen */
};

/* How many quantised values a type has; 0: too many for a table. */
static size_t n_qvalues_of(enum nd_dtype dtype)
{
    size_t bytes = nd_dtype_is_integer(dtype) ? nd_dtype_size_bytes(dtype) : 0;
    return bytes == 1 || bytes == 2 ? (size_t)1 << (8 * bytes) : 0;
}

static double min_qvalue(enum nd_dtype dtype, size_t n_qvalues)
{
    return nd_dtype_is_signed_integer(dtype) ? -(double)(n_qvalues / 2) : 0;
}

/* The DequantizeLinear with one scale before the operator; ND_NO_INDEX: there is none. */
static size_t dequantiser_of(const struct nd_exact_run *run, size_t node)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    size_t operand = nd_graph_used(run->graph, node, 0);
    if (n->n_inputs != 1 || n->n_made != 1 || n->n_uses != 1 || operand == ND_NO_INDEX ||
        nd_exact_proto(run, node) != n->proto)
        return ND_NO_INDEX;
    size_t producer = run->graph->tensors[operand].producer;
    bool is_it = producer != ND_NO_INDEX && run->graph->nodes[producer].kind == ND_NODE_DEQUANTIZE &&
                 run->g->quants[producer].quant.n == 1 && nd_exact_replaced(run, operand) == NULL &&
                 nd_graph_used(run->graph, producer, 0) != ND_NO_INDEX &&
                 !nd_exact_is_real(run, nd_graph_used(run->graph, producer, 0));
    return is_it && nd_op_is_function(n->proto) ? producer : ND_NO_INDEX;
}

static enum nd_status run_on(const struct nd_exact_run *run, size_t node, const struct nd_array *const *inputs,
                             struct nd_array *out, struct nd_error *err)
{
    struct nd_array *outputs[] = {out};
    const struct nd_op_call call = {.node = run->graph->nodes[node].proto,
                                    .opset = run->g->model->opset,
                                    .n_inputs = run->graph->nodes[node].n_inputs,
                                    .n_outputs = 1,
                                    .inputs = inputs,
                                    .outputs = outputs};
    return nd_op_run(&call, err);
}

/* The operator's value of each quantised value. */
static enum nd_status make_table(struct nd_exact_run *run, size_t node, size_t dequantiser, enum nd_dtype dtype,
                                 struct nd_array *table, struct nd_error *err)
{
    size_t n_qvalues = n_qvalues_of(dtype), n_inputs = run->graph->nodes[dequantiser].n_inputs;
    const struct nd_shape shape = {.rank = 1, .dims = {(int64_t)n_qvalues}};
    ND_CLEANUP(nd_array_deinit) struct nd_array qvalues = {0}, real = {0};
    const struct nd_array *inputs[3] = {&qvalues, NULL, NULL}, *operand[] = {&real};
    ND_TRY(nd_array_make_room(&qvalues, dtype, &shape, err));
    for (size_t i = 0; i < qvalues.n; i++)
        qvalues.x[i] = min_qvalue(dtype, n_qvalues) + (double)i;
    for (size_t i = 1; i < n_inputs && i < 3; i++) {
        ND_TRY(nd_exact_ensure(run, nd_graph_used(run->graph, dequantiser, i), err));
        inputs[i] = nd_exact_value(run, nd_graph_used(run->graph, dequantiser, i));
    }
    ND_TRY(run_on(run, dequantiser, inputs, &real, err));
    return run_on(run, node, operand, table, err);
}

/* The table of the node, made by who asks first; NULL: there is no room for it, or the operator refuses. */
static const struct nd_array *table_of(struct nd_exact_run *run, size_t node, size_t dequantiser,
                                       enum nd_dtype dtype)
{
    struct nd_exact_store *store = run->g->store;
    ND_CLEANUP(nd_array_deinit) struct nd_array made = {0};
    struct nd_array *kept = &store->tables[node];
    size_t bytes = n_qvalues_of(dtype) * sizeof *kept->x;
    pthread_mutex_lock(&store->lock);
    bool is_there = kept->n > 0, has_room = store->table_bytes + bytes <= MAX_TABLE_BYTES;
    pthread_mutex_unlock(&store->lock);
    if (!is_there && (!has_room || make_table(run, node, dequantiser, dtype, &made, NULL) != ND_OK))
        return NULL;
    pthread_mutex_lock(&store->lock);
    if (kept->n == 0) {
        *kept = made;
        made = (struct nd_array){0};
        store->table_bytes += bytes;
    }
    pthread_mutex_unlock(&store->lock);
    return kept;
}

/* False: a quantised value that the type does not have, as those have that were moved to see how far an error
 * reaches. */
static bool gather(const struct nd_array *table, double least, const struct nd_array *qvalues, double *out)
{
    for (size_t i = 0; i < qvalues->n; i++) {
        double place = qvalues->x[i] - least;
        if (!(place >= 0 && place < (double)table->n && place == (double)(int)place))
            return false;
        out[i] = table->x[(int)place];
    }
    return true;
}

/* What an operator of one operand makes of quantised values, by its table. *is_made false: it
 * has none, and is to be run. Tables belong to the store. ND_ERR_MEMORY, and what nd_exact_ensure gives. */
static enum nd_status look_up(struct nd_exact_run *run, size_t node, bool *is_made, struct nd_error *err)
{
    size_t dequantiser = dequantiser_of(run, node), made = nd_graph_made(run->graph, node, 0);
    *is_made = false;
    if (dequantiser == ND_NO_INDEX || made == ND_NO_INDEX || run->values[made].shape.rank >= 0)
        return ND_OK;
    size_t tensor = nd_graph_used(run->graph, dequantiser, 0);
    ND_TRY(nd_exact_ensure(run, tensor, err));
    const struct nd_array *qvalues = nd_exact_value(run, tensor);
    size_t n_qvalues = n_qvalues_of(qvalues->dtype);
    if (n_qvalues == 0 || qvalues->n < n_qvalues / SHARE_OF_QVALUES)
        return ND_OK;
    const struct nd_array *table = table_of(run, node, dequantiser, qvalues->dtype);
    struct nd_array values = {0};
    if (table == NULL)
        return ND_OK;
    enum nd_status status = nd_array_make_room(&values, table->dtype, &qvalues->shape, err);
    *is_made = status == ND_OK && gather(table, min_qvalue(qvalues->dtype, n_qvalues), qvalues, values.x);
    if (*is_made)
        run->values[made] = values;
    else
        nd_array_deinit(&values);
    return status;
}

/* ---- nodes ---- */

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
    if (run->decoded->status != ND_OK) {
        if (err != NULL)
            *err = run->decoded->error;
        return run->decoded->status;
    }
    if (run->is_missed != NULL && run->is_missed[tensor]) {
        const char *name = run->g->model->tensors[run->g->model->tensor_of_value[tensor]].name;
        return nd_fail(err, ND_E_EXACT_UNKNOWN, name, "what it reads, '%s', is not known", name);
    }
    if (producer == ND_NO_INDEX && t->initializer != NULL)
        return nd_fail(err, ND_E_EXACT_OPERATOR, t->name, "constant '%s' is of a type that is not evaluated",
                       t->name);
    if (producer == ND_NO_INDEX)
        return nd_fail(err, ND_E_MODEL_GRAPH, t->name, "tensor '%s' has no values", t->name);
    return nd_exact_run_node(run, producer, err);
}

/* A node of which all inputs are there. Apart from nd_exact_run_node, which calls itself for what a node reads:
 * the room for operands would be taken for every node of a chain. */
static __attribute__((noinline)) enum nd_status run_ready(struct nd_exact_run *run, size_t node,
                                                          struct nd_error *err)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    const struct nd_array *inputs[ND_EXACT_MAX_OPERANDS];
    struct nd_array *outputs[ND_EXACT_MAX_OPERANDS], unwanted[ND_EXACT_MAX_OPERANDS];
    for (size_t i = 0; i < n->n_inputs; i++)
        inputs[i] = nd_exact_value(run, nd_graph_used(run->graph, node, i));
    for (size_t i = 0; i < n->n_made; i++) {
        size_t tensor = nd_graph_made(run->graph, node, i);
        unwanted[i] = (struct nd_array){0};
        outputs[i] = tensor != ND_NO_INDEX ? &unwanted[i] : NULL;
    }
    const struct nd_op_call call = {.node = nd_exact_proto(run, node),
                                    .opset = run->g->model->opset,
                                    .n_inputs = n->n_inputs,
                                    .n_outputs = n->n_made,
                                    .inputs = inputs,
                                    .outputs = outputs,
                                    .is_folded = n->is_constant};
    enum nd_status status = run_operator(run->g, node, &call, err);
    for (size_t i = 0; i < n->n_made; i++) {
        size_t tensor = nd_graph_made(run->graph, node, i);
        if (status == ND_OK && tensor != ND_NO_INDEX && run->values[tensor].shape.rank < 0)
            run->values[tensor] = unwanted[i];
        else
            nd_array_deinit(&unwanted[i]);
    }
    return status;
}

/* Chosen. Calls in each other that a long chain may take of the stack: some 300 bytes each. */
enum { MAX_DEPTH = 256 };

/* What a node reads of a chain of plain operators, first to last: so none of them calls for what it reads. */
static enum nd_status run_chain(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    const struct nd_graph *graph = run->graph;
    ND_FREED bool *is_needed = nd_calloc(graph->n_nodes, sizeof *is_needed);
    ND_FREED size_t *left = nd_calloc(graph->n_nodes, sizeof *left);
    ND_TRY_MEMORY(is_needed != NULL && left != NULL, err);
    size_t n_left = 1, depth = run->depth;
    for (left[0] = node; n_left > 0;) {
        size_t at = left[--n_left];
        for (size_t i = 0; i < graph->nodes[at].n_inputs; i++) {
            size_t tensor = nd_graph_used(graph, at, i);
            size_t maker = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
            if (maker >= at || is_needed[maker] || graph->nodes[maker].kind != ND_NODE_OTHER ||
                nd_exact_value(run, tensor) != NULL)
                continue;
            is_needed[maker] = true;
            left[n_left++] = maker;
        }
    }
    enum nd_status status = ND_OK;
    run->depth = 0;
    for (size_t i = 0; i < node && status == ND_OK; i++)
        if (is_needed[i])
            status = nd_exact_run_node(run, i, err);
    run->depth = depth;
    return status;
}

static enum nd_status run_inputs(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    if (run->depth > MAX_DEPTH)
        ND_TRY(run_chain(run, node, err));
    enum nd_status status = ND_OK;
    run->depth++;
    for (size_t i = 0; i < run->graph->nodes[node].n_inputs && status == ND_OK; i++)
        status = nd_exact_ensure(run, nd_graph_used(run->graph, node, i), err);
    run->depth--;
    return status;
}

enum nd_status nd_exact_run_node(struct nd_exact_run *run, size_t node, struct nd_error *err)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    if (n->kind == ND_NODE_DEQUANTIZE && nd_exact_is_real(run, nd_graph_used(run->graph, node, 0)))
        return pass_real(run, node, err);
    if (n->n_inputs > ND_EXACT_MAX_OPERANDS || n->n_made > ND_EXACT_MAX_OPERANDS || n->n_uses > n->n_inputs)
        return nd_fail(err, ND_E_EXACT_OPERATOR, n->proto->name,
                       "node '%s' (%s) has a subgraph or too many inputs", nd_graph_node_name(n->proto),
                       n->proto->op_type);
    bool is_made;
    enum nd_status found = look_up(run, node, &is_made, err);
    if (found != ND_OK || is_made)
        return found;
    ND_TRY(run_inputs(run, node, err));
    return run_ready(run, node, err);
}

/* ---- loaded for the first time ---- */

static enum nd_status load_initializers(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    enum nd_status status = ND_OK;
    for (size_t t = 0; t < graph->n_tensors && status == ND_OK; t++) {
        if (graph->tensors[t].initializer == NULL)
            continue;
        struct nd_array values = {0};
        status = read_constant(g, t, &values, err);
        if (status == ND_OK)
            put_constant(g, t, &values);
        else if (status == ND_ERR_UNSUPPORTED)
            status = ND_OK; /* strings and the like matter to who reads them */
    }
    return status;
}

/* Nodes that compute from constants, once: their values move to the constants. A node that is not covered is
 * met again by the layers that read what it makes. */
static enum nd_status fold_constants(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    struct nd_exact_run run;
    enum nd_status status = nd_exact_run_init(&run, g, err);
    for (size_t n = 0; n < graph->n_nodes && status == ND_OK; n++) {
        if (!graph->nodes[n].is_constant || !graph->nodes[n].is_alive)
            continue;
        status = nd_exact_run_node(&run, n, err);
        nd_exact_run_release(&run);
        if (status == ND_ERR_UNSUPPORTED) {
            status = ND_OK;
            continue;
        }
        for (size_t i = 0; i < graph->nodes[n].n_made && status == ND_OK; i++) {
            size_t t = nd_graph_made(graph, n, i);
            if (t != ND_NO_INDEX && g->constants[t].shape.rank < 0 && run.values[t].shape.rank >= 0)
                put_constant(g, t, &run.values[t]);
        }
    }
    nd_exact_run_deinit(&run);
    return status;
}

enum nd_status nd_exact_load_constants(struct nd_exact_graph *g, struct nd_error *err)
{
    ND_TRY(load_initializers(g, err));
    return fold_constants(g, err);
}

/* Quantised values that two DequantizeLinear read, with zero points each, are nobody's. */
enum nd_status nd_exact_prepare_packed_weights(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    ND_FREED size_t *readers = nd_calloc(graph->n_tensors, sizeof *readers);
    size_t *found = g->store->dequantiser;
    ND_TRY_MEMORY(readers != NULL, err);
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].is_alive && graph->nodes[n].kind == ND_NODE_DEQUANTIZE &&
            nd_graph_used(graph, n, 0) != ND_NO_INDEX)
            readers[nd_graph_used(graph, n, 0)]++;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        if (!graph->nodes[n].is_alive || !is_product(graph->nodes[n].proto))
            continue;
        size_t dequantize = find_weights(g, n);
        size_t qvalues = dequantize != ND_NO_INDEX ? nd_graph_used(graph, dequantize, 0) : ND_NO_INDEX;
        if (qvalues == ND_NO_INDEX || readers[qvalues] != 1 || found[qvalues] != ND_NO_INDEX)
            continue;
        found[qvalues] = dequantize;
        ND_TRY(pack_stored_weights(g, qvalues, err));
    }
    return ND_OK;
}
