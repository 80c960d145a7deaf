#include "eval/byte_unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "eval/byte_internal.h"

/* ---- finding units ---- */

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

/* The edge that a QuantizeLinear makes under its own name, or ND_NO_INDEX. */
static size_t edge_of_codes(const struct nd_exact_graph *g, size_t tensor)
{
    size_t edge = tensor != ND_NO_INDEX ? g->model->tensor_edge[tensor] : ND_NO_INDEX;
    bool is_it = edge != ND_NO_INDEX &&
                 strcmp(g->model->edges[edge].onnx_name, g->model->graph.tensors[tensor].name) == 0;
    return is_it ? edge : ND_NO_INDEX;
}

/* What the unit reads, and what lies between; *is_known false: something that is no unit's. */
static enum nd_status look_back(const struct nd_exact_graph *g, size_t tensor, struct nd_byte_unit *unit,
                                bool *is_known, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    if (tensor == ND_NO_INDEX || graph->tensors[tensor].is_constant)
        return ND_OK;
    size_t producer = graph->tensors[tensor].producer;
    const struct nd_graph_node *node = producer != ND_NO_INDEX ? &graph->nodes[producer] : NULL;
    *is_known = *is_known && node != NULL && node->n_uses == node->n_inputs;
    if (!*is_known)
        return ND_OK;
    if (node->kind == ND_NODE_QUANTIZE) {
        size_t n = unit->n_inputs, edge = edge_of_codes(g, tensor);
        *is_known = edge != ND_NO_INDEX;
        if (!append(&unit->leaves, &n, tensor) || !append(&unit->edges, &unit->n_inputs, edge))
            return nd_fail_memory(err);
        *is_known = *is_known && n == unit->n_inputs;
        return ND_OK;
    }
    enum nd_status status = ND_OK;
    size_t n_before = unit->n_touched;
    for (size_t i = 0; i < node->n_made; i++)
        if (nd_exact_made(graph, producer, i) != ND_NO_INDEX &&
            !append(&unit->touched, &unit->n_touched, nd_exact_made(graph, producer, i)))
            return nd_fail_memory(err);
    for (size_t i = 0; i < node->n_inputs && status == ND_OK && unit->n_touched > n_before; i++)
        status = look_back(g, nd_exact_used(graph, producer, i), unit, is_known, err);
    return status;
}

static enum nd_status find_units(struct nd_byte_units *units, bool *are_known, struct nd_error *err)
{
    const struct nd_exact_graph *g = units->graph;
    const struct nd_graph *graph = &g->model->graph;
    enum nd_status status = ND_OK;
    *are_known = nd_exact_graph_is_pure(g);
    units->units = nd_calloc(graph->n_nodes, sizeof *units->units);
    if (units->units == NULL)
        return nd_fail_memory(err);
    for (size_t n = 0; n < graph->n_nodes && status == ND_OK && *are_known; n++) {
        if (!graph->nodes[n].is_alive || graph->nodes[n].is_constant || g->unit_of_node[n] != n)
            continue;
        struct nd_byte_unit *unit = &units->units[units->n++];
        unit->quantize = n;
        unit->edge = edge_of_codes(g, nd_exact_made(graph, n, 0));
        *are_known = unit->edge != ND_NO_INDEX;
        for (size_t i = 0; i < graph->nodes[n].n_inputs && status == ND_OK; i++)
            status = look_back(g, nd_exact_used(graph, n, i), unit, are_known, err);
        for (size_t i = 0; i < unit->n_inputs && *are_known; i++)
            *are_known = units->shapes[unit->edges[i]].rank >= 0;
        *are_known = *are_known && units->shapes[unit->edge].rank >= 0;
    }
    return status;
}

enum nd_status nd_byte_units_create(const struct nd_exact_graph *graph, const struct nd_shape *shapes,
                                    struct nd_byte_units **out, struct nd_error *err)
{
    struct nd_byte_units *units = nd_calloc(1, sizeof *units);
    struct nd_byte_runner *runner = NULL;
    bool are_known = false;
    size_t table_bytes = 0;
    *out = NULL;
    if (units == NULL)
        return nd_fail_memory(err);
    units->graph = graph;
    units->shapes = nd_calloc(graph->model->n_edges, sizeof *shapes);
    if (units->shapes != NULL)
        memcpy(units->shapes, shapes, graph->model->n_edges * sizeof *shapes);
    enum nd_status status = units->shapes == NULL ? nd_fail_memory(err) : find_units(units, &are_known, err);
    if (status == ND_OK && are_known)
        status = nd_byte_runner_create(units, &runner, err);
    for (size_t u = 0; u < units->n && status == ND_OK && are_known; u++)
        status = nd_byte_prepare(runner, &units->units[u], &table_bytes, err);
    nd_byte_runner_destroy(&runner);
    if (status == ND_OK && are_known)
        *out = units;
    else
        nd_byte_units_destroy(&units);
    return status;
}

void nd_byte_units_destroy(struct nd_byte_units **units)
{
    for (size_t u = 0; *units != NULL && u < (*units)->n; u++) {
        struct nd_byte_unit *unit = &(*units)->units[u];
        free(unit->edges);
        free(unit->leaves);
        free(unit->touched);
        free(unit->table);
        free(unit->conv.floats);
        nd_quick_deinit(&unit->conv.lines);
    }
    if (*units != NULL)
        free((*units)->units);
    if (*units != NULL)
        free((*units)->shapes);
    free(*units);
    *units = NULL;
}

size_t nd_byte_units_count(const struct nd_byte_units *units)
{
    return units->n;
}

size_t nd_byte_unit_edge(const struct nd_byte_units *units, size_t unit)
{
    return units->units[unit].edge;
}

size_t nd_byte_unit_inputs(const struct nd_byte_units *units, size_t unit, const size_t **edges)
{
    *edges = units->units[unit].edges;
    return units->units[unit].n_inputs;
}

bool nd_byte_unit_is_quick(const struct nd_byte_units *units, size_t unit)
{
    return units->units[unit].kind != ND_BYTE_SLOW;
}

/* ---- in doubles ---- */

enum nd_status nd_byte_runner_create(const struct nd_byte_units *units, struct nd_byte_runner **out,
                                     struct nd_error *err)
{
    struct nd_byte_runner *runner = nd_calloc(1, sizeof *runner);
    if (runner == NULL)
        return nd_fail_memory(err);
    runner->units = units;
    enum nd_status status = nd_exact_run_init(&runner->run, units->graph, err);
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

void nd_byte_runner_clear(struct nd_byte_runner *runner, const struct nd_byte_unit *unit)
{
    for (size_t i = 0; i < unit->n_inputs; i++)
        forget(runner, unit->leaves[i]);
    for (size_t i = 0; i < unit->n_touched; i++)
        forget(runner, unit->touched[i]);
    forget(runner, nd_exact_made(runner->run.graph, unit->quantize, 0));
    nd_exact_run_release(&runner->run);
}

enum nd_status nd_byte_unit_evaluate(struct nd_byte_runner *runner, size_t place, struct nd_array *inputs,
                                     struct nd_array *codes, struct nd_error *err)
{
    const struct nd_byte_unit *unit = &runner->units->units[place];
    struct nd_exact_run *run = &runner->run;
    for (size_t i = 0; i < unit->n_inputs; i++) {
        run->values[unit->leaves[i]] = inputs[i];
        inputs[i] = (struct nd_array){.n = 0};
    }
    enum nd_status status = nd_exact_run_quantize(run, unit->quantize, err);
    if (status == ND_OK) {
        struct nd_array *made = &run->values[nd_exact_made(run->graph, unit->quantize, 0)];
        *codes = *made;
        *made = nd_exact_none();
    }
    nd_byte_runner_clear(runner, unit);
    return status;
}

/* ---- on bytes ---- */

static void look_up(const struct nd_byte_units *units, const struct nd_byte_unit *unit,
                    const uint8_t *const *inputs, uint8_t *out)
{
    const struct nd_shape *shape = &units->shapes[unit->edge];
    struct nd_walk walk = {.n = 0};
    const struct nd_array a = {.shape = units->shapes[unit->edges[0]]},
                          b = {.shape = units->shapes[unit->edges[unit->n_inputs - 1]]};
    size_t n = nd_dims_product(shape, 0, shape->rank);
    for (size_t i = 0; i < n && unit->n_inputs == 1; i++)
        out[i] = unit->table[inputs[0][i]];
    if (unit->n_inputs == 1)
        return;
    for (int axis = 0; axis < shape->rank; axis++)
        nd_walk_axis(&walk, shape->dims[axis], nd_broadcast_stride(&a, shape, axis),
                     nd_broadcast_stride(&b, shape, axis), 0);
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk)) {
        const uint8_t *x = inputs[0] + walk.at[0], *y = inputs[1] + walk.at[1];
        ptrdiff_t step_x = walk.step[0], step_y = walk.step[1];
        for (ptrdiff_t i = 0; i < walk.n; i++, x += step_x, y += step_y)
            *out++ = unit->table[(size_t)*x << 8 | *y];
    }
}

/* Where the sums of a group go. */
struct rounding {
    struct nd_byte_runner *runner;
    const struct nd_byte_conv *conv;
    double zero, low, high; /* of the output */
    size_t channel;         /* the first of the group, or the next */
    uint8_t *out;           /* of the sample */
};

/* n_rows x n sums, of which each row has a line of its own. */
static void round_rows(struct rounding *r, size_t channel, const double *sums, size_t n_rows, size_t n,
                       uint8_t *out)
{
    struct nd_quick quick = r->conv->lines;
    quick.lines += channel;
    quick.factors += channel;
    quick.biases += channel;
    quick.n_lines = n_rows;
    quick.n_inner = n;
    quick.n = n_rows * n;
    quick.x = sums;
    nd_quick_round(&quick, r->zero, r->low, r->high, r->runner->codes);
    for (size_t row = 0; row < n_rows; row++)
        nd_gemm_kernels()->narrow(r->runner->codes + row * n, r->low, n,
                                  out + row * (size_t)r->conv->window.n_out);
}

static void take_sums(void *context, const struct nd_sums_block *block)
{
    struct rounding *r = context;
    size_t n_at_once = block->n < ND_BYTE_ROOM ? block->n : ND_BYTE_ROOM;
    size_t rows_at_once = ND_BYTE_ROOM / n_at_once;
    for (size_t c = 0; c < block->n_channels; c += rows_at_once) {
        size_t n_rows = block->n_channels - c < rows_at_once ? block->n_channels - c : rows_at_once;
        uint8_t *out = r->out + (r->channel + c) * (size_t)r->conv->window.n_out + block->from;
        for (size_t i = 0; i < block->n; i += n_at_once) /* one row, where it is long */
            round_rows(r, r->channel + c, block->sums + c * block->n + i, n_rows,
                       block->n - i < n_at_once ? block->n - i : n_at_once, out + i);
    }
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
    struct nd_conv_shorts room = {.in = NULL};
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
    nd_conv_shorts_end(&room);
    return is_made;
}

static enum nd_status convolve(struct nd_byte_runner *runner, const struct nd_byte_unit *unit,
                               const uint8_t *in, uint8_t *out, struct nd_error *err)
{
    const struct nd_byte_conv *conv = &unit->conv;
    const struct nd_exact_graph *g = runner->units->graph;
    const struct nd_node_quant *quant = &g->quants[unit->quantize];
    struct rounding r = {.runner = runner, .conv = conv, .zero = (double)quant->quant.zero_point[0]};
    size_t n_in = conv->n_groups * conv->n_in * (size_t)conv->window.n_in;
    size_t n_out = conv->n_groups * conv->n_out * (size_t)conv->window.n_out;
    nd_code_range(quant->dtype, &r.low, &r.high);
    if (!nd_exact_run_holds(&runner->run, conv->weights)) {
        if (err != NULL)
            *err = runner->run.held->error;
        return runner->run.held->status;
    }
    bool is_made = true;
    for (size_t i = 0; i < conv->n_samples && is_made; i++) {
        r.out = out + i * n_out;
        is_made = run_groups(&r, conv, g->shorts[conv->weights], in + i * n_in);
    }
    nd_exact_run_release(&runner->run);
    return is_made ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_byte_unit_run(struct nd_byte_runner *runner, size_t place, const uint8_t *const *inputs,
                                uint8_t *out, struct nd_error *err)
{
    const struct nd_byte_unit *unit = &runner->units->units[place];
    if (unit->kind == ND_BYTE_CONV)
        return convolve(runner, unit, inputs[0], out, err);
    look_up(runner->units, unit, inputs, out);
    return ND_OK;
}
