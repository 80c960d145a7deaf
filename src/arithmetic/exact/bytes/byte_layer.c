/* Layers of a quantised graph found, prepared and evaluated on quantised values as bytes: byte_layer.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/bytes/byte_internal.h"
#include "arithmetic/exact/bytes/byte_layer.h"
#include "arithmetic/exact/linear/linear_values.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

/* Convolutions on bytes: whole numbers are added up, and rounded while they are in the caches. */

/* Where the sums of a group go. */
struct rounding {
    struct nd_byte_runner *runner;
    const struct nd_byte_conv *conv;
    double zero, low, high; /* of the output */
    size_t channel;         /* the first of the group, or the next */
    uint8_t *out;           /* of the sample */
};

/* The same of the first line, of sums in the place of x, as bytes; zero: less the least quantised value. False:
 * it is to be done by nd_quick_round, since a value is near a tie or very large. */
static bool quick_round_line(const struct nd_quick *q, const double *sums, double zero, size_t n,
                             uint8_t *qvalues)
{
    double inverse = 1 / q->scale;
    const struct nd_sums_rounding rounding = {.factor = q->factors[0],
                                              .bias = q->biases[0],
                                              .least = q->low * inverse,
                                              .greatest = q->high * inverse,
                                              .zero = zero,
                                              .most = 0.5 - ND_QUICK_DOUBT,
                                              .largest = ND_QUICK_LARGEST};
    return nd_gemm_kernels()->round_sums(&rounding, sums, n, qvalues);
}

/* n sums of one channel. */
static void round_row(const struct rounding *r, size_t channel, const double *sums, size_t n, uint8_t *out)
{
    struct nd_quick quick = r->conv->lines;
    quick.lines += channel;
    quick.factors += channel;
    quick.biases += channel;
    quick.n_lines = 1;
    for (size_t i = 0; i < n; i += ND_BYTE_ROOM) {
        size_t m = n - i < ND_BYTE_ROOM ? n - i : ND_BYTE_ROOM;
        if (quick_round_line(&quick, sums + i, r->zero - r->low, m, out + i))
            continue;
        quick.x = sums + i;
        quick.n = quick.n_inner = m;
        nd_quick_round(&quick, r->zero, r->low, r->high, r->runner->qvalues);
        nd_gemm_kernels()->narrow(r->runner->qvalues, r->low, m, out + i);
    }
}

static void take_sums(void *context, const struct nd_sums_block *block)
{
    struct rounding *r = context;
    size_t n_out = (size_t)r->conv->window.n_out;
    for (size_t c = 0; c < block->n_channels; c++)
        round_row(r, r->channel + block->first_channel + c, block->sums + c * block->row, block->n,
                  r->out + (r->channel + block->first_channel + c) * n_out + block->from);
}

/* Of planes: one channel a call. */
static void take_plane(void *context, const struct nd_sums_block *block)
{
    struct rounding *r = context;
    take_sums(context, block);
    r->channel++;
}

static bool run_groups(struct rounding *r, const struct nd_byte_conv *conv, const int16_t *shorts,
                       const uint8_t *in)
{
    const struct nd_window *w = &conv->window;
    struct nd_conv_planes planes;
    ND_CLEANUP(nd_conv_shorts_end) struct nd_conv_shorts room = {.in = NULL};
    struct nd_conv_group group = {
        .w = w, .n_in = conv->n_in, .n_out = conv->n_out, .short_weight = shorts, .range = conv->range};
    bool is_by_planes = conv->floats != NULL, is_made = false;
    is_made = is_by_planes ? nd_conv_planes_begin(&planes, w) : nd_conv_shorts_begin(&room, &group);
    for (size_t g = 0; g < conv->n_groups && is_made; g++) {
        size_t first = g * conv->n_out * conv->n_in * (size_t)w->n_kernel;
        const struct nd_byte_sums bytes = {.in = in + g * conv->n_in * (size_t)w->n_in,
                                           .zero = conv->zero,
                                           .take = is_by_planes ? take_plane : take_sums,
                                           .context = r};
        group.short_weight = shorts + first;
        r->channel = g * conv->n_out;
        is_made = is_by_planes ? nd_conv_planes_each(&planes, &group, conv->floats + first, &bytes)
                               : nd_conv_shorts_each(&room, &group, &bytes);
    }
    if (is_by_planes)
        nd_conv_planes_end(&planes);
    return is_made;
}

/* Of weights that fit bytes. */
static bool run_bytes(struct rounding *r, const struct nd_byte_conv *conv, const uint8_t *in)
{
    struct nd_conv_bytes room;
    if (!nd_conv_bytes_begin(&room, &conv->bytes))
        return false;
    for (size_t g = 0; g < conv->n_groups; g++) {
        const struct nd_byte_sums bytes = {
            .in = in + g * conv->n_in * (size_t)conv->window.n_in, .take = take_sums, .context = r};
        r->channel = g * conv->n_out;
        nd_conv_bytes_each(&room, g, &bytes);
    }
    nd_conv_bytes_end(&room);
    return true;
}

/* One layer that is an ND_BYTE_CONV. ND_ERR_IO, ND_ERR_MEMORY. */
static enum nd_status byte_convolve(struct nd_byte_runner *runner, const struct nd_byte_layer *layer,
                                    const uint8_t *in, uint8_t *out, struct nd_error *err)
{
    const struct nd_byte_conv *conv = &layer->conv;
    const struct nd_exact_graph *g = runner->layers->graph;
    const struct nd_node_quant *quant = &g->quants[layer->quantize];
    struct rounding r = {.runner = runner, .conv = conv, .zero = (double)quant->quant.zero_point[0]};
    size_t n_in = conv->n_groups * conv->n_in * (size_t)conv->window.n_in;
    size_t n_out = conv->n_groups * conv->n_out * (size_t)conv->window.n_out;
    nd_qvalue_range(quant->dtype, &r.low, &r.high);
    bool is_made = true, is_by_bytes = conv->bytes.quads != NULL;
    if (!is_by_bytes && !nd_exact_run_holds(&runner->run, conv->weights)) {
        if (err != NULL)
            *err = runner->run.decoded->error;
        return runner->run.decoded->status;
    }
    for (size_t i = 0; i < conv->n_samples && is_made; i++) {
        r.out = out + i * n_out;
        is_made = is_by_bytes ? run_bytes(&r, conv, in + i * n_in)
                              : run_groups(&r, conv, g->shorts[conv->weights], in + i * n_in);
    }
    nd_exact_run_release(&runner->run);
    return is_made ? ND_OK : nd_fail_memory(err);
}

static enum nd_status nd_byte_prepare(struct nd_byte_runner *runner, struct nd_byte_layer *layer,
                                      struct nd_error *err);
static bool nd_byte_take_room(struct nd_byte_runner *runner, size_t bytes);

enum { N_QVALUES = 256 }; /* of a byte */
/* Chosen: values of a layer. A longer chain is evaluated as any graph is; each takes a call on the stack here.
 */
enum { MAX_TOUCHED = 4096 };

/* ---- finding layers ---- */

static bool append(size_t **list, size_t *n, size_t value)
{
    for (size_t i = 0; i < *n; i++)
        if ((*list)[i] == value)
            return true;
    size_t *longer = realloc(*list, (*n + 1) * sizeof **list);
    if (longer == NULL)
        return false;
    *list = longer;
    longer[(*n)++] = value;
    return true;
}

/* The tensor that a QuantizeLinear makes under its own name, or ND_NO_INDEX. */
static size_t tensor_of_qvalues(const struct nd_exact_graph *g, size_t value)
{
    size_t tensor = value != ND_NO_INDEX ? g->model->tensor_of_value[value] : ND_NO_INDEX;
    bool is_it = tensor != ND_NO_INDEX &&
                 strcmp(g->model->tensors[tensor].onnx_name, g->model->graph.tensors[value].name) == 0;
    return is_it ? tensor : ND_NO_INDEX;
}

/* What the layer reads, and what lies between; *is_known false: something that is no layer's and no input of
 * the graph, or too much. */
static enum nd_status look_back(const struct nd_exact_graph *g, size_t value, struct nd_byte_layer *layer,
                                bool *is_known, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    if (value == ND_NO_INDEX || graph->tensors[value].is_constant)
        return ND_OK;
    size_t producer = graph->tensors[value].producer;
    const struct nd_graph_node *node = producer != ND_NO_INDEX ? &graph->nodes[producer] : NULL;
    layer->reads_input = layer->reads_input || node == NULL;
    if (node == NULL)
        return ND_OK;
    *is_known = *is_known && node->n_uses == node->n_inputs && layer->n_touched < MAX_TOUCHED;
    if (!*is_known)
        return ND_OK;
    if (node->kind == ND_NODE_QUANTIZE) {
        size_t n = layer->n_inputs, tensor = tensor_of_qvalues(g, value);
        *is_known = tensor != ND_NO_INDEX;
        ND_TRY_MEMORY(append(&layer->leaves, &n, value) && append(&layer->tensors, &layer->n_inputs, tensor),
                      err);
        *is_known = *is_known && n == layer->n_inputs;
        return ND_OK;
    }
    size_t n_before = layer->n_touched;
    for (size_t i = 0; i < node->n_made; i++)
        if (nd_graph_made(graph, producer, i) != ND_NO_INDEX &&
            !append(&layer->touched, &layer->n_touched, nd_graph_made(graph, producer, i)))
            return nd_fail_memory(err);
    for (size_t i = 0; i < node->n_inputs && layer->n_touched > n_before; i++)
        ND_TRY(look_back(g, nd_graph_used(graph, producer, i), layer, is_known, err));
    return ND_OK;
}

static enum nd_status find_layers(struct nd_byte_layers *layers, bool *are_known, struct nd_error *err)
{
    const struct nd_exact_graph *g = layers->graph;
    const struct nd_graph *graph = &g->model->graph;
    enum nd_status status = ND_OK;
    *are_known = nd_exact_graph_is_pure(g);
    layers->layers = nd_calloc(graph->n_nodes, sizeof *layers->layers);
    ND_TRY_MEMORY(layers->layers != NULL, err);
    for (size_t n = 0; n < graph->n_nodes && status == ND_OK && *are_known; n++) {
        if (!graph->nodes[n].is_alive || graph->nodes[n].is_constant || g->layer_of_node[n] != n)
            continue;
        struct nd_byte_layer *layer = &layers->layers[layers->n++];
        layer->quantize = n;
        layer->tensor = tensor_of_qvalues(g, nd_graph_made(graph, n, 0));
        *are_known = layer->tensor != ND_NO_INDEX;
        for (size_t i = 0; i < graph->nodes[n].n_inputs && status == ND_OK; i++)
            status = look_back(g, nd_graph_used(graph, n, i), layer, are_known, err);
        if (layer->reads_input && layer->n_inputs == 0) { /* it never changes */
            free(layer->touched);
            layers->layers[--layers->n] = (struct nd_byte_layer){.tensor = 0};
            continue;
        }
        *are_known = *are_known && !layer->reads_input;
        for (size_t i = 0; i < layer->n_inputs && *are_known; i++)
            *are_known = layers->shapes[layer->tensors[i]].rank >= 0;
        *are_known = *are_known && layers->shapes[layer->tensor].rank >= 0;
    }
    return status;
}

enum nd_status nd_byte_layers_create(const struct nd_exact_graph *graph, const struct nd_shape *shapes,
                                     size_t limit_bytes, struct nd_byte_layers **out, struct nd_error *err)
{
    struct nd_byte_layers *layers = nd_calloc(1, sizeof *layers);
    struct nd_byte_runner *runner = NULL;
    bool are_known = false;
    *out = NULL;
    ND_TRY_MEMORY(layers != NULL, err);
    layers->graph = graph;
    layers->shapes = nd_calloc(graph->model->n_tensors, sizeof *shapes);
    if (layers->shapes != NULL)
        memcpy(layers->shapes, shapes, graph->model->n_tensors * sizeof *shapes);
    enum nd_status status = layers->shapes == NULL ? nd_fail_memory(err) : find_layers(layers, &are_known, err);
    if (status == ND_OK && are_known)
        status = nd_byte_runner_create(layers, &runner, err);
    if (runner != NULL)
        runner->left_bytes = limit_bytes;
    for (size_t u = 0; u < layers->n && status == ND_OK && are_known; u++)
        status = nd_byte_prepare(runner, &layers->layers[u], err);
    nd_byte_runner_destroy(&runner);
    if (status == ND_OK && are_known)
        *out = layers;
    else
        nd_byte_layers_destroy(&layers);
    return status;
}

void nd_byte_layers_destroy(struct nd_byte_layers **layers)
{
    for (size_t u = 0; *layers != NULL && u < (*layers)->n; u++) {
        struct nd_byte_layer *layer = &(*layers)->layers[u];
        free(layer->tensors);
        free(layer->leaves);
        free(layer->touched);
        free(layer->table);
        free(layer->runs);
        free(layer->conv.floats);
        nd_byte_weights_end(&layer->conv.bytes);
        nd_quick_deinit(&layer->conv.lines);
    }
    if (*layers != NULL)
        free((*layers)->layers);
    if (*layers != NULL)
        free((*layers)->shapes);
    free(*layers);
    *layers = NULL;
}

size_t nd_byte_layers_count(const struct nd_byte_layers *layers)
{
    return layers->n;
}

size_t nd_byte_layer_tensor(const struct nd_byte_layers *layers, size_t layer)
{
    return layers->layers[layer].tensor;
}

size_t nd_byte_layer_inputs(const struct nd_byte_layers *layers, size_t layer, const size_t **tensors)
{
    *tensors = layers->layers[layer].tensors;
    return layers->layers[layer].n_inputs;
}

bool nd_byte_layer_is_quick(const struct nd_byte_layers *layers, size_t layer)
{
    return layers->layers[layer].kind != ND_BYTE_SLOW;
}

/* ---- in doubles ---- */

enum nd_status nd_byte_runner_create(const struct nd_byte_layers *layers, struct nd_byte_runner **out,
                                     struct nd_error *err)
{
    struct nd_byte_runner *runner = nd_calloc(1, sizeof *runner);
    ND_TRY_MEMORY(runner != NULL, err);
    runner->layers = layers;
    enum nd_status status = nd_exact_run_init(&runner->run, layers->graph, err);
    *out = runner;
    if (status != ND_OK)
        nd_byte_runner_destroy(out);
    return status;
}

void nd_byte_runner_destroy(struct nd_byte_runner **runner)
{
    if (*runner != NULL)
        nd_exact_run_deinit(&(*runner)->run);
    free(*runner);
    *runner = NULL;
}

static void forget(struct nd_byte_runner *runner, size_t tensor)
{
    if (runner->run.values[tensor].shape.rank >= 0)
        nd_array_deinit(&runner->run.values[tensor]);
    runner->run.values[tensor] = nd_exact_none();
}

/* Forgets what the run has of the layer. */
static void nd_byte_runner_clear(struct nd_byte_runner *runner, const struct nd_byte_layer *layer)
{
    for (size_t i = 0; i < layer->n_inputs; i++)
        forget(runner, layer->leaves[i]);
    for (size_t i = 0; i < layer->n_touched; i++)
        forget(runner, layer->touched[i]);
    forget(runner, nd_graph_made(runner->run.graph, layer->quantize, 0));
    nd_exact_run_release(&runner->run);
}

enum nd_status nd_byte_layer_evaluate(struct nd_byte_runner *runner, size_t place, struct nd_array *inputs,
                                      struct nd_array *qvalues, struct nd_error *err)
{
    const struct nd_byte_layer *layer = &runner->layers->layers[place];
    struct nd_exact_run *run = &runner->run;
    for (size_t i = 0; i < layer->n_inputs; i++) {
        run->values[layer->leaves[i]] = inputs[i];
        inputs[i] = (struct nd_array){.n = 0};
    }
    enum nd_status status = nd_exact_run_quantize(run, layer->quantize, err);
    if (status == ND_OK) {
        struct nd_array *made = &run->values[nd_graph_made(run->graph, layer->quantize, 0)];
        *qvalues = *made;
        *made = nd_exact_none();
    }
    nd_byte_runner_clear(runner, layer);
    return status;
}

enum nd_status nd_byte_layer_evaluate_with(struct nd_byte_runner *runner, size_t place,
                                           const struct nd_exact_options *options, void *context,
                                           struct nd_array *inputs, struct nd_array *qvalues,
                                           struct nd_error *err)
{
    const struct nd_exact_options *before = runner->run.options;
    runner->run.options = options;
    runner->run.context = context;
    enum nd_status status = nd_byte_layer_evaluate(runner, place, inputs, qvalues, err);
    runner->run.options = before;
    runner->run.context = NULL;
    return status;
}

/* ---- on bytes ---- */

/* A row of the result of two operands, each of which repeats an element or goes on. */
static void look_up_row(const uint8_t *table, const uint8_t *x, const uint8_t *y, const struct nd_walk *walk,
                        uint8_t *restrict out)
{
    ptrdiff_t step_x = walk->step[0], step_y = walk->step[1], n = walk->n;
    uint8_t column[N_QVALUES];
    if (step_x == 0 && step_y == 1) {
        nd_gemm_kernels()->look_up(table + (size_t)*x * N_QVALUES, y, (size_t)n, out);
    } else if (step_x == 1 && step_y == 0 && n >= N_QVALUES) {
        for (size_t i = 0; i < N_QVALUES; i++)
            column[i] = table[i * N_QVALUES + *y];
        nd_gemm_kernels()->look_up(column, x, (size_t)n, out);
    } else {
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] = table[(size_t)x[i * step_x] * N_QVALUES + y[i * step_y]];
    }
}

static void look_up(const struct nd_byte_layers *layers, const struct nd_byte_layer *layer,
                    const uint8_t *const *inputs, uint8_t *out)
{
    const struct nd_shape *shape = &layers->shapes[layer->tensor];
    struct nd_walk walk = {.n = 0};
    const struct nd_array a = {.shape = layers->shapes[layer->tensors[0]]},
                          b = {.shape = layers->shapes[layer->tensors[layer->n_inputs - 1]]};
    if (layer->n_inputs == 1) {
        nd_gemm_kernels()->look_up(layer->table, inputs[0], nd_dims_product(shape, 0, shape->rank), out);
        return;
    }
    for (int axis = 0; axis < shape->rank; axis++)
        nd_walk_axis(&walk, shape->dims[axis], nd_broadcast_stride(&a, shape, axis),
                     nd_broadcast_stride(&b, shape, axis), 0);
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk)) {
        look_up_row(layer->table, inputs[0] + walk.at[0], inputs[1] + walk.at[1], &walk, out);
        out += walk.n;
    }
}

static void move(const struct nd_byte_layer *layer, const uint8_t *const *inputs, uint8_t *out)
{
    for (size_t r = 0; r < layer->n_runs; r++) {
        const struct nd_byte_run *run = &layer->runs[r];
        nd_gemm_kernels()->look_up(layer->table + 256 * (size_t)run->input, inputs[run->input] + run->from,
                                   run->n, out);
        out += run->n;
    }
}

enum nd_status nd_byte_layer_run(struct nd_byte_runner *runner, size_t place, const uint8_t *const *inputs,
                                 uint8_t *out, struct nd_error *err)
{
    const struct nd_byte_layer *layer = &runner->layers->layers[place];
    if (layer->kind == ND_BYTE_CONV)
        return byte_convolve(runner, layer, inputs[0], out, err);
    if (layer->kind == ND_BYTE_MOVE)
        move(layer, inputs, out);
    else
        look_up(runner->layers, layer, inputs, out);
    return ND_OK;
}

/* ---- moves: where each quantised value comes from is found by moving numbers of elements ---- */

enum {
    MIN_RUN = 8 /* elements, on average: shorter ones are not worth their list; chosen */
};

static bool only_moves(const struct nd_exact_call *call)
{
    const Onnx__NodeProto *node = call->call.node;
    return node != NULL && nd_onnx_domain(node->domain)[0] == 0 &&
           ND_IS_ONE_OF(node->op_type, "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity",
                        "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
                        "Unsqueeze", "Upsample");
}

/* Which of the tensors that the layer reads is input i of the operator; n_inputs: none, it is constant or
 * omitted. False: it is something else. */
static bool find_place(const struct nd_exact_graph *g, const struct nd_byte_layer *layer,
                       const struct nd_exact_call *call, size_t i, size_t *place)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t tensor = nd_graph_used(graph, call->node, i);
    *place = layer->n_inputs;
    if (tensor == ND_NO_INDEX || graph->tensors[tensor].is_constant)
        return true;
    size_t producer = graph->tensors[tensor].producer;
    size_t qvalues = producer != ND_NO_INDEX ? nd_graph_used(graph, producer, 0) : ND_NO_INDEX;
    for (*place = 0; *place < layer->n_inputs && layer->leaves[*place] != qvalues;)
        ++*place;
    const struct nd_quant *quant = call->inputs[i].quant;
    return *place < layer->n_inputs && quant != NULL && quant->n == 1;
}

/* What the operator makes of numbers: those of the elements of all inputs, one after the other. */
static enum nd_status move_numbers(const struct nd_exact_call *call, const double *first, struct nd_array *out,
                                   struct nd_error *err)
{
    size_t n = call->call.n_inputs;
    ND_FREED struct nd_array *own = nd_calloc(n, sizeof *own);
    ND_FREED const struct nd_array **inputs = nd_calloc(n, sizeof(struct nd_array *));
    enum nd_status status = own != NULL && inputs != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        inputs[i] = call->inputs[i].values;
        if (first[i] < 0)
            continue;
        status = nd_array_make_room(&own[i], ND_DTYPE_F64, &inputs[i]->shape, err);
        for (size_t k = 0; k < own[i].n; k++)
            own[i].x[k] = first[i] + (double)k;
        inputs[i] = &own[i];
    }
    if (status == ND_OK)
        status = nd_linear_run(&call->call, call->call.node, inputs, n, out, err);
    for (size_t i = 0; i < n && own != NULL; i++)
        nd_array_deinit(&own[i]);
    return status;
}

/* Quantised values of the input in steps of the output, by the evaluation itself. */
static enum nd_status fill_table(const struct nd_exact_graph *g, const struct nd_byte_layer *layer,
                                 const struct nd_exact_call *call, size_t input, uint8_t *table,
                                 struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 1, .dims = {N_QVALUES}};
    const struct nd_node_quant *quant = &g->quants[layer->quantize];
    ND_CLEANUP(nd_array_deinit) struct nd_array all = {.n = 0};
    ND_CLEANUP(nd_linear_deinit) struct nd_linear_result result = {.n = 0};
    double low, high, least, qvalues[N_QVALUES];
    enum nd_dtype dtype = call->inputs[input].values->dtype;
    nd_qvalue_range(dtype, &least, &high);
    nd_qvalue_range(quant->dtype, &low, &high);
    ND_TRY(nd_array_make_room(&all, dtype, &shape, err));
    for (size_t i = 0; i < all.n; i++)
        all.x[i] = least + (double)i;
    const struct nd_linear_input of_all = {.values = &all, .quant = call->inputs[input].quant};
    const struct nd_linear_call moved = {.opset = call->call.opset,
                                         .n_inputs = 1,
                                         .inputs = &of_all,
                                         .low = call->call.low,
                                         .high = call->call.high,
                                         .out_quant = call->call.out_quant};
    ND_TRY(nd_linear_layer(&moved, &result, err));
    for (size_t i = 0; i < N_QVALUES; i++)
        qvalues[i] = nd_qvalue_of_ratio(&result.v[i], (double)quant->quant.zero_point[0], quant->dtype,
                                        ND_ROUND_HALF_EVEN);
    nd_gemm_kernels()->narrow(qvalues, low, N_QVALUES, table);
    return ND_OK;
}

/* Which of the inputs has that element; n: none. */
static size_t input_of(const double *first, const struct nd_exact_call *call, double number)
{
    size_t n = call->call.n_inputs, i = 0;
    while (i < n &&
           !(first[i] >= 0 && number >= first[i] && number < first[i] + (double)call->inputs[i].values->n))
        i++;
    return i;
}

/* False: runs would be short, or an element is none of an input. */
static bool list_runs(const struct nd_array *moved, const double *first, const struct nd_exact_call *call,
                      struct nd_byte_layer *layer)
{
    size_t most = moved->n / MIN_RUN + 1;
    layer->runs = nd_calloc(most, sizeof *layer->runs);
    for (size_t i = 0; i < moved->n && layer->runs != NULL;) {
        double number = moved->x[i];
        size_t input = input_of(first, call, number), n = 1;
        if (input == call->call.n_inputs || number != floor(number) || layer->n_runs == most)
            return false;
        size_t left = call->inputs[input].values->n - (size_t)(number - first[input]);
        while (n < left && i + n < moved->n && moved->x[i + n] == number + (double)n)
            n++;
        layer->runs[layer->n_runs++] = (struct nd_byte_run){
            .from = (uint32_t)(number - first[input]), .n = (uint32_t)n, .input = (uint32_t)input};
        i += n;
    }
    return layer->runs != NULL;
}

/* Inputs of the operator are counted, until here; then tensors of the layer. */
static enum nd_status fill_tables(const struct nd_exact_graph *g, const size_t *places,
                                  const struct nd_exact_call *call, struct nd_byte_layer *layer,
                                  struct nd_error *err)
{
    layer->table = nd_calloc(layer->n_inputs, N_QVALUES);
    ND_TRY_MEMORY(layer->table != NULL, err);
    for (size_t i = 0; i < call->call.n_inputs; i++)
        if (places[i] < layer->n_inputs)
            ND_TRY(fill_table(g, layer, call, i, layer->table + places[i] * N_QVALUES, err));
    for (size_t r = 0; r < layer->n_runs; r++)
        layer->runs[r].input = (uint32_t)places[layer->runs[r].input];
    return ND_OK;
}

/* The same of a layer that only moves quantised values about, and is described; nothing of another. */
static enum nd_status nd_byte_find_moves(struct nd_byte_runner *runner, struct nd_byte_layer *layer,
                                         const struct nd_exact_call *call, struct nd_error *err)
{
    const struct nd_exact_graph *g = runner->layers->graph;
    double first[ND_EXACT_MAX_OPERANDS], n = 0;
    size_t places[ND_EXACT_MAX_OPERANDS], n_moved = 0;
    bool is_possible = only_moves(call) && call->call.out_quant->n == 1;
    for (size_t i = 0; i < call->call.n_inputs && is_possible; i++) {
        is_possible = find_place(g, layer, call, i, &places[i]);
        bool is_moved = places[i] < layer->n_inputs;
        first[i] = is_moved ? n : -1;
        n += is_moved ? (double)call->inputs[i].values->n : 0;
        n_moved += is_moved;
    }
    is_possible = is_possible && n_moved == layer->n_inputs; /* none twice, with other scales perhaps */
    if (!is_possible || n >= UINT32_MAX)
        return ND_OK;
    struct nd_array moved = {.n = 0};
    enum nd_status status = move_numbers(call, first, &moved, err);
    size_t bytes = layer->n_inputs * N_QVALUES;
    if (status == ND_OK && list_runs(&moved, first, call, layer)) {
        bytes += layer->n_runs * sizeof *layer->runs;
        if (nd_byte_take_room(runner, bytes)) {
            status = fill_tables(g, places, call, layer, err);
            layer->kind = status == ND_OK ? ND_BYTE_MOVE : ND_BYTE_SLOW;
        }
    }
    nd_array_deinit(&moved);
    if (layer->kind == ND_BYTE_SLOW) {
        free(layer->runs);
        layer->runs = NULL;
    }
    return status;
}

/* ---- which layers can be evaluated on bytes, and what they need for that ---- */

static const struct nd_tensor *tensor_of(const struct nd_byte_layers *layers, size_t tensor)
{
    return &layers->graph->model->tensors[tensor];
}

static bool is_byte(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_U8 || dtype == ND_DTYPE_I8;
}

static size_t n_of(const struct nd_byte_layers *layers, size_t tensor)
{
    const struct nd_shape *shape = &layers->shapes[tensor];
    return nd_dims_product(shape, 0, shape->rank);
}

static bool reads_bytes(const struct nd_byte_layers *layers, const struct nd_byte_layer *layer)
{
    bool are_bytes = is_byte(tensor_of(layers, layer->tensor)->dtype);
    for (size_t i = 0; i < layer->n_inputs && are_bytes; i++)
        are_bytes = is_byte(tensor_of(layers, layer->tensors[i])->dtype);
    return are_bytes;
}

/* Takes as much of left_bytes; false: there is not as much. */
static bool nd_byte_take_room(struct nd_byte_runner *runner, size_t bytes)
{
    bool has_room = bytes <= runner->left_bytes;
    runner->left_bytes -= has_room ? bytes : 0;
    return has_room;
}

/* ---- tables ---- */

/* Beside nd_op_is_function. */
static bool is_by_element(const Onnx__NodeProto *node)
{
    return nd_op_is_function(node) ||
           (nd_onnx_domain(node->domain)[0] == 0 &&
            ND_IS_ONE_OF(node->op_type, "Add", "Sub", "Mul", "Div", "Sum", "Min", "Max", "Clip", "PRelu",
                         "LeakyRelu", "HardSwish", "HardSigmoid"));
}

/* One scale for all of a quantiser, and no constant but numbers. */
static bool has_numbers_only(const struct nd_exact_graph *g, size_t node)
{
    const struct nd_graph_node *n = &g->model->graph.nodes[node];
    if (n->kind != ND_NODE_OTHER)
        return g->quants[node].quant.n == 1;
    bool are_numbers = is_by_element(n->proto) && n->n_made == 1;
    for (size_t i = 0; i < n->n_inputs && are_numbers; i++) {
        size_t tensor = nd_graph_used(&g->model->graph, node, i);
        are_numbers = tensor == ND_NO_INDEX || !g->model->graph.tensors[tensor].is_constant ||
                      (g->constants[tensor].shape.rank >= 0 && g->constants[tensor].n == 1);
    }
    return are_numbers;
}

static bool is_function_of_qvalues(const struct nd_byte_layers *layers, const struct nd_byte_layer *layer)
{
    const struct nd_exact_graph *g = layers->graph;
    bool is_it = layer->n_inputs >= 1 && layer->n_inputs <= 2 && has_numbers_only(g, layer->quantize);
    for (size_t i = 0; i < layer->n_touched && is_it; i++)
        is_it = has_numbers_only(g, g->model->graph.tensors[layer->touched[i]].producer);
    if (is_it && layer->n_inputs == 1)
        return n_of(layers, layer->tensors[0]) == n_of(layers, layer->tensor);
    for (size_t i = 0; i < layer->n_inputs && is_it; i++) {
        const struct nd_shape *in = &layers->shapes[layer->tensors[i]], *out = &layers->shapes[layer->tensor];
        is_it = in->rank <= out->rank;
        for (int axis = 0; axis < in->rank && is_it; axis++)
            is_it = in->dims[axis] == 1 || in->dims[axis] == out->dims[out->rank - in->rank + axis];
    }
    return is_it;
}

/* All quantised values of each input, the last one fastest. */
static enum nd_status make_qvalues(const struct nd_byte_layers *layers, const struct nd_byte_layer *layer,
                                   struct nd_array *inputs, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = (int)layer->n_inputs, .dims = {N_QVALUES, N_QVALUES}};
    for (size_t i = 0; i < layer->n_inputs; i++) {
        double low, high;
        enum nd_dtype dtype = tensor_of(layers, layer->tensors[i])->dtype;
        nd_qvalue_range(dtype, &low, &high);
        ND_TRY(nd_array_make_room(&inputs[i], dtype, &shape, err));
        for (size_t k = 0; k < inputs[i].n; k++)
            inputs[i].x[k] = low + (double)(i + 1 == layer->n_inputs ? k % N_QVALUES : k / N_QVALUES);
    }
    return ND_OK;
}

static enum nd_status make_table(struct nd_byte_runner *runner, struct nd_byte_layer *layer, size_t place,
                                 struct nd_error *err)
{
    const struct nd_byte_layers *layers = runner->layers;
    ND_CLEANUP(nd_array_deinit) struct nd_array qvalues = {.n = 0};
    struct nd_array inputs[2] = {{.n = 0}, {.n = 0}};
    size_t n = layer->n_inputs == 1 ? N_QVALUES : N_QVALUES * N_QVALUES;
    enum nd_status status = make_qvalues(layers, layer, inputs, err);
    if (status == ND_OK)
        status = nd_byte_layer_evaluate(runner, place, inputs, &qvalues, err);
    nd_array_deinit(&inputs[0]);
    nd_array_deinit(&inputs[1]);
    layer->table = status == ND_OK && qvalues.n == n ? nd_tensor_room(n) : NULL;
    double low, high;
    nd_qvalue_range(tensor_of(layers, layer->tensor)->dtype, &low, &high);
    if (layer->table != NULL) {
        nd_gemm_kernels()->narrow(qvalues.x, low, n, layer->table);
        layer->kind = ND_BYTE_TABLE;
    }
    return status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT ? ND_OK : status;
}

/* ---- convolutions ---- */

static enum nd_status describe_window(const struct nd_byte_layers *layers, const struct nd_exact_call *call,
                                      struct nd_byte_layer *layer, struct nd_error *err)
{
    const struct nd_shape *x = &layers->shapes[layer->tensors[0]], *weight = &call->inputs[1].values->shape;
    const struct nd_op_call op_call = {.node = call->call.node, .opset = call->call.opset};
    struct nd_byte_conv *conv = &layer->conv;
    ND_TRY(nd_window_read(&op_call, x, &weight->dims[2], &conv->window, err));
    ND_TRY(nd_window_fit(&op_call, &conv->window, err));
    conv->n_groups = (size_t)nd_op_i(&op_call, "group", 1);
    conv->n_samples = (size_t)x->dims[0];
    conv->n_in = (size_t)weight->dims[1];
    conv->n_out = (size_t)weight->dims[0] / conv->n_groups;
    return ND_OK;
}

/* Of convolutions of one plane each: as floats, where all sums are exact. */
static bool make_floats(struct nd_byte_conv *conv, const struct nd_linear_input *weights, double left_largest)
{
    struct nd_conv_planes planes;
    bool is_exact = left_largest * weights->largest * (double)conv->window.n_kernel < 0x1p24;
    if (conv->n_in != 1 || conv->n_out > 2 || !is_exact || !nd_conv_planes_begin(&planes, &conv->window))
        return false;
    nd_conv_planes_end(&planes);
    conv->floats = nd_calloc(weights->packed_weights->n, sizeof *conv->floats);
    for (size_t i = 0; i < weights->packed_weights->n && conv->floats != NULL; i++)
        conv->floats[i] = (float)weights->packed_weights->x[i];
    return conv->floats != NULL;
}

static struct nd_conv_group group_of(const struct nd_byte_conv *conv, const int16_t *shorts)
{
    return (struct nd_conv_group){.w = &conv->window,
                                  .n_in = conv->n_in,
                                  .n_out = conv->n_out,
                                  .short_weight = shorts,
                                  .range = conv->range};
}

static bool is_worth_it(const struct nd_byte_conv *conv, const int16_t *shorts)
{
    struct nd_conv_shorts room;
    const struct nd_conv_group group = group_of(conv, shorts);
    bool is_it = nd_conv_shorts_begin(&room, &group);
    if (is_it)
        nd_conv_shorts_end(&room);
    return is_it;
}

static bool make_bytes(struct nd_byte_runner *runner, struct nd_byte_conv *conv, const int16_t *shorts)
{
    const struct nd_conv_group group = group_of(conv, shorts);
    return nd_byte_take_room(runner, nd_byte_weights_bytes(&group, conv->n_groups)) &&
           nd_byte_weights_make(&conv->bytes, &group, conv->n_groups, conv->zero);
}

/* What the sums are worth, as the evaluation in doubles makes it. */
static enum nd_status take_lines(const struct nd_exact_call *call, struct nd_byte_conv *conv,
                                 struct nd_error *err)
{
    ND_CLEANUP(nd_linear_deinit) struct nd_linear_result result = {.n = 0};
    enum nd_status status = nd_linear_layer_quick(&call->call, &result, err);
    struct nd_quick *quick = status == ND_OK ? result.quick : NULL;
    if (quick != NULL && quick->kind == ND_QUICK_LINE && quick->n_lines == conv->n_groups * conv->n_out) {
        free(quick->own_x);
        quick->x = quick->own_x = NULL;
        conv->lines = *quick;
        *quick = (struct nd_quick){.n = 0};
    }
    return status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT ? ND_OK : status;
}

static bool is_conv(const struct nd_byte_layers *layers, const struct nd_byte_layer *layer,
                    const struct nd_exact_call *call)
{
    const struct nd_graph *graph = &layers->graph->model->graph;
    if (call->node == ND_NO_INDEX || layer->n_inputs != 1 ||
        strcmp(nd_onnx_text(call->call.node->op_type), "Conv") != 0 ||
        nd_onnx_domain(call->call.node->domain)[0] != 0)
        return false;
    bool has_constants = call->call.n_inputs >= 2 && call->inputs[1].shorts != NULL;
    for (size_t i = 1; i < call->call.n_inputs && has_constants; i++) {
        size_t tensor = nd_graph_used(graph, call->node, i);
        has_constants = tensor == ND_NO_INDEX || graph->tensors[tensor].is_constant;
    }
    const struct nd_quant *in = call->inputs[0].quant;
    return has_constants && in != NULL && in->n == 1 && call->call.out_quant->n == 1;
}

static enum nd_status make_conv(struct nd_byte_runner *runner, struct nd_byte_layer *layer,
                                const struct nd_exact_call *call, struct nd_error *err)
{
    const struct nd_byte_layers *layers = runner->layers;
    const struct nd_exact_graph *g = layers->graph;
    struct nd_byte_conv *conv = &layer->conv;
    double low, high;
    size_t weights = nd_graph_used(&g->model->graph, call->node, 1);
    conv->weights = nd_graph_used(&g->model->graph, g->model->graph.tensors[weights].producer, 0);
    enum nd_status status = describe_window(layers, call, layer, err);
    if (status == ND_OK)
        status = take_lines(call, conv, err);
    nd_qvalue_range(tensor_of(layers, layer->tensors[0])->dtype, &low, &high);
    conv->zero = (int)((double)call->inputs[0].quant->zero_point[0] - low);
    const struct nd_array any = {.n = 1};
    const struct nd_op_shorts shorts = {.largest = call->inputs[1].largest,
                                        .left_largest = fmax(conv->zero, N_QVALUES - 1 - conv->zero)};
    conv->range = nd_short_range_of(&any, &shorts);
    bool is_possible = status == ND_OK && conv->lines.n_lines > 0 && conv->range.n_terms > 0;
    if (is_possible &&
        (make_floats(conv, &call->inputs[1], shorts.left_largest) ||
         make_bytes(runner, conv, call->inputs[1].shorts) || is_worth_it(conv, call->inputs[1].shorts)))
        layer->kind = ND_BYTE_CONV;
    return status;
}

/* The kind of a layer that is no function of codes: its inputs are there, whatever quantised values they have.
 */
static enum nd_status try_others(struct nd_byte_runner *runner, struct nd_byte_layer *layer,
                                 struct nd_error *err)
{
    const struct nd_byte_layers *layers = runner->layers;
    struct nd_exact_call call;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < layer->n_inputs && status == ND_OK; i++) {
        struct nd_array *input = &runner->run.values[layer->leaves[i]];
        *input = (struct nd_array){.n = 0};
        status = nd_array_make(input, tensor_of(layers, layer->tensors[i])->dtype,
                               &layers->shapes[layer->tensors[i]], err);
    }
    call.shared = (struct nd_linear_shared){.largest = 0};
    call.is_known = status == ND_OK && nd_exact_describe(&runner->run, layer->quantize, &call);
    if (call.is_known && is_conv(layers, layer, &call))
        status = make_conv(runner, layer, &call, err);
    else if (call.is_known)
        status = nd_byte_find_moves(runner, layer, &call, err);
    nd_linear_shared_deinit(&call.shared);
    nd_byte_runner_clear(runner, layer);
    return status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT ? ND_OK : status;
}

/* Kind, and what belongs to it, of a layer whose inputs are known. */
static enum nd_status nd_byte_prepare(struct nd_byte_runner *runner, struct nd_byte_layer *layer,
                                      struct nd_error *err)
{
    size_t bytes = layer->n_inputs == 2 ? N_QVALUES * N_QVALUES : N_QVALUES;
    if (!reads_bytes(runner->layers, layer))
        return ND_OK;
    if (!is_function_of_qvalues(runner->layers, layer))
        return try_others(runner, layer, err);
    if (!nd_byte_take_room(runner, bytes))
        return ND_OK;
    return make_table(runner, layer, (size_t)(layer - runner->layers->layers), err);
}
