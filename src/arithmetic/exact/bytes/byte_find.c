/* Which units of a graph can be evaluated on bytes, and what they need for that. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/bytes/byte_internal.h"

enum { N_CODES = 256 };

static const struct nd_edge *edge_of(const struct nd_byte_units *units, size_t edge)
{
    return &units->graph->model->edges[edge];
}

static bool is_byte(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_U8 || dtype == ND_DTYPE_I8;
}

static size_t n_of(const struct nd_byte_units *units, size_t edge)
{
    const struct nd_shape *shape = &units->shapes[edge];
    return nd_dims_product(shape, 0, shape->rank);
}

static bool reads_bytes(const struct nd_byte_units *units, const struct nd_byte_unit *unit)
{
    bool are_bytes = is_byte(edge_of(units, unit->edge)->dtype);
    for (size_t i = 0; i < unit->n_inputs && are_bytes; i++)
        are_bytes = is_byte(edge_of(units, unit->edges[i])->dtype);
    return are_bytes;
}

bool nd_byte_take_room(struct nd_byte_runner *runner, size_t bytes)
{
    bool has_room = bytes <= runner->left_bytes;
    runner->left_bytes -= has_room ? bytes : 0;
    return has_room;
}

/* ---- tables ---- */

/* Beside nd_op_is_function. */
static bool is_by_element(const Onnx__NodeProto *node)
{
    static const char *const names[] = {"Add", "Sub",  "Mul",   "Div",       "Sum",       "Min",
                                        "Max", "Clip", "PRelu", "LeakyRelu", "HardSwish", "HardSigmoid"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (nd_onnx_domain(node->domain)[0] == 0 && strcmp(nd_onnx_text(node->op_type), names[i]) == 0)
            return true;
    return nd_op_is_function(node);
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

static bool is_function_of_codes(const struct nd_byte_units *units, const struct nd_byte_unit *unit)
{
    const struct nd_exact_graph *g = units->graph;
    bool is_it = unit->n_inputs >= 1 && unit->n_inputs <= 2 && has_numbers_only(g, unit->quantize);
    for (size_t i = 0; i < unit->n_touched && is_it; i++)
        is_it = has_numbers_only(g, g->model->graph.tensors[unit->touched[i]].producer);
    if (is_it && unit->n_inputs == 1)
        return n_of(units, unit->edges[0]) == n_of(units, unit->edge);
    for (size_t i = 0; i < unit->n_inputs && is_it; i++) {
        const struct nd_shape *in = &units->shapes[unit->edges[i]], *out = &units->shapes[unit->edge];
        is_it = in->rank <= out->rank;
        for (int axis = 0; axis < in->rank && is_it; axis++)
            is_it = in->dims[axis] == 1 || in->dims[axis] == out->dims[out->rank - in->rank + axis];
    }
    return is_it;
}

/* All codes of each input, the last one fastest. */
static enum nd_status make_codes(const struct nd_byte_units *units, const struct nd_byte_unit *unit,
                                 struct nd_array *inputs, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = (int)unit->n_inputs, .dims = {N_CODES, N_CODES}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < unit->n_inputs && status == ND_OK; i++) {
        double low, high;
        enum nd_dtype dtype = edge_of(units, unit->edges[i])->dtype;
        nd_code_range(dtype, &low, &high);
        status = nd_array_make_room(&inputs[i], dtype, &shape, err);
        for (size_t k = 0; k < inputs[i].n; k++)
            inputs[i].x[k] = low + (double)(i + 1 == unit->n_inputs ? k % N_CODES : k / N_CODES);
    }
    return status;
}

static enum nd_status make_table(struct nd_byte_runner *runner, struct nd_byte_unit *unit, size_t place,
                                 struct nd_error *err)
{
    const struct nd_byte_units *units = runner->units;
    struct nd_array inputs[2] = {{.n = 0}, {.n = 0}}, codes = {.n = 0};
    size_t n = unit->n_inputs == 1 ? N_CODES : N_CODES * N_CODES;
    enum nd_status status = make_codes(units, unit, inputs, err);
    if (status == ND_OK)
        status = nd_byte_unit_evaluate(runner, place, inputs, &codes, err);
    nd_array_deinit(&inputs[0]);
    nd_array_deinit(&inputs[1]);
    unit->table = status == ND_OK && codes.n == n ? nd_tensor_room(n) : NULL;
    double low, high;
    nd_code_range(edge_of(units, unit->edge)->dtype, &low, &high);
    if (unit->table != NULL) {
        nd_gemm_kernels()->narrow(codes.x, low, n, unit->table);
        unit->kind = ND_BYTE_TABLE;
    }
    nd_array_deinit(&codes);
    return status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT ? ND_OK : status;
}

/* ---- convolutions ---- */

static enum nd_status describe_window(const struct nd_byte_units *units, const struct nd_exact_call *call,
                                      struct nd_byte_unit *unit, struct nd_error *err)
{
    const struct nd_shape *x = &units->shapes[unit->edges[0]], *weight = &call->inputs[1].values->shape;
    const struct nd_op_call op_call = {.node = call->call.node, .opset = call->call.opset};
    struct nd_byte_conv *conv = &unit->conv;
    enum nd_status status = nd_window_read(&op_call, x, &weight->dims[2], &conv->window, err);
    if (status == ND_OK)
        status = nd_window_fit(&op_call, &conv->window, err);
    conv->n_groups = (size_t)nd_op_i(&op_call, "group", 1);
    conv->n_samples = (size_t)x->dims[0];
    conv->n_in = (size_t)weight->dims[1];
    conv->n_out = (size_t)weight->dims[0] / conv->n_groups;
    return status;
}

/* Of convolutions of one plane each: as floats, where all sums are exact. */
static bool make_floats(struct nd_byte_conv *conv, const struct nd_linear_input *weights, double left_largest)
{
    struct nd_conv_planes planes;
    bool is_exact = left_largest * weights->largest * (double)conv->window.n_kernel < 0x1p24;
    if (conv->n_in != 1 || conv->n_out > 2 || !is_exact || !nd_conv_planes_begin(&planes, &conv->window))
        return false;
    nd_conv_planes_end(&planes);
    conv->floats = nd_calloc(weights->wholes->n, sizeof *conv->floats);
    for (size_t i = 0; i < weights->wholes->n && conv->floats != NULL; i++)
        conv->floats[i] = (float)weights->wholes->x[i];
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
    struct nd_linear_result result = {.n = 0};
    enum nd_status status = nd_linear_unit_quick(&call->call, &result, err);
    struct nd_quick *quick = status == ND_OK ? result.quick : NULL;
    if (quick != NULL && quick->kind == ND_QUICK_LINE && quick->n_lines == conv->n_groups * conv->n_out) {
        free(quick->own_x);
        quick->x = quick->own_x = NULL;
        conv->lines = *quick;
        *quick = (struct nd_quick){.n = 0};
    }
    nd_linear_deinit(&result);
    return status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT ? ND_OK : status;
}

static bool is_conv(const struct nd_byte_units *units, const struct nd_byte_unit *unit,
                    const struct nd_exact_call *call)
{
    const struct nd_graph *graph = &units->graph->model->graph;
    if (call->node == ND_NO_INDEX || unit->n_inputs != 1 ||
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

static enum nd_status make_conv(struct nd_byte_runner *runner, struct nd_byte_unit *unit,
                                const struct nd_exact_call *call, struct nd_error *err)
{
    const struct nd_byte_units *units = runner->units;
    const struct nd_exact_graph *g = units->graph;
    struct nd_byte_conv *conv = &unit->conv;
    double low, high;
    size_t weights = nd_graph_used(&g->model->graph, call->node, 1);
    conv->weights = nd_graph_used(&g->model->graph, g->model->graph.tensors[weights].producer, 0);
    enum nd_status status = describe_window(units, call, unit, err);
    if (status == ND_OK)
        status = take_lines(call, conv, err);
    nd_code_range(edge_of(units, unit->edges[0])->dtype, &low, &high);
    conv->zero = (int)((double)call->inputs[0].quant->zero_point[0] - low);
    const struct nd_array any = {.n = 1};
    const struct nd_op_shorts shorts = {.largest = call->inputs[1].largest,
                                        .left_largest = fmax(conv->zero, N_CODES - 1 - conv->zero)};
    conv->range = nd_short_range_of(&any, &shorts);
    bool is_possible = status == ND_OK && conv->lines.n_lines > 0 && conv->range.n_terms > 0;
    if (is_possible &&
        (make_floats(conv, &call->inputs[1], shorts.left_largest) ||
         make_bytes(runner, conv, call->inputs[1].shorts) || is_worth_it(conv, call->inputs[1].shorts)))
        unit->kind = ND_BYTE_CONV;
    return status;
}

/* The kind of a unit that is no function of codes: its inputs are there, whatever codes they have. */
static enum nd_status try_others(struct nd_byte_runner *runner, struct nd_byte_unit *unit, struct nd_error *err)
{
    const struct nd_byte_units *units = runner->units;
    struct nd_exact_call call;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < unit->n_inputs && status == ND_OK; i++) {
        struct nd_array *input = &runner->run.values[unit->leaves[i]];
        *input = (struct nd_array){.n = 0};
        status =
            nd_array_make(input, edge_of(units, unit->edges[i])->dtype, &units->shapes[unit->edges[i]], err);
    }
    call.shared = (struct nd_linear_shared){.largest = 0};
    call.is_known = status == ND_OK && nd_exact_describe(&runner->run, unit->quantize, &call);
    if (call.is_known && is_conv(units, unit, &call))
        status = make_conv(runner, unit, &call, err);
    else if (call.is_known)
        status = nd_byte_find_moves(runner, unit, &call, err);
    nd_linear_shared_deinit(&call.shared);
    nd_byte_runner_clear(runner, unit);
    return status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT ? ND_OK : status;
}

enum nd_status nd_byte_prepare(struct nd_byte_runner *runner, struct nd_byte_unit *unit, struct nd_error *err)
{
    size_t bytes = unit->n_inputs == 2 ? N_CODES * N_CODES : N_CODES;
    if (!reads_bytes(runner->units, unit))
        return ND_OK;
    if (!is_function_of_codes(runner->units, unit))
        return try_others(runner, unit, err);
    if (!nd_byte_take_room(runner, bytes))
        return ND_OK;
    return make_table(runner, unit, (size_t)(unit - runner->units->units), err);
}
