#include "arithmetic/exact/bytes/byte_unit.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/bytes/byte_internal.h"

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

/* What the unit reads, and what lies between; *is_known false: something that is no unit's and no input of the
 * graph. */
static enum nd_status look_back(const struct nd_exact_graph *g, size_t tensor, struct nd_byte_unit *unit,
                                bool *is_known, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    if (tensor == ND_NO_INDEX || graph->tensors[tensor].is_constant)
        return ND_OK;
    size_t producer = graph->tensors[tensor].producer;
    const struct nd_graph_node *node = producer != ND_NO_INDEX ? &graph->nodes[producer] : NULL;
    unit->reads_input = unit->reads_input || node == NULL;
    if (node == NULL)
        return ND_OK;
    *is_known = *is_known && node->n_uses == node->n_inputs;
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
        if (nd_graph_made(graph, producer, i) != ND_NO_INDEX &&
            !append(&unit->touched, &unit->n_touched, nd_graph_made(graph, producer, i)))
            return nd_fail_memory(err);
    for (size_t i = 0; i < node->n_inputs && status == ND_OK && unit->n_touched > n_before; i++)
        status = look_back(g, nd_graph_used(graph, producer, i), unit, is_known, err);
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
        unit->edge = edge_of_codes(g, nd_graph_made(graph, n, 0));
        *are_known = unit->edge != ND_NO_INDEX;
        for (size_t i = 0; i < graph->nodes[n].n_inputs && status == ND_OK; i++)
            status = look_back(g, nd_graph_used(graph, n, i), unit, are_known, err);
        if (unit->reads_input && unit->n_inputs == 0) { /* it never changes */
            free(unit->touched);
            units->units[--units->n] = (struct nd_byte_unit){.edge = 0};
            continue;
        }
        *are_known = *are_known && !unit->reads_input;
        for (size_t i = 0; i < unit->n_inputs && *are_known; i++)
            *are_known = units->shapes[unit->edges[i]].rank >= 0;
        *are_known = *are_known && units->shapes[unit->edge].rank >= 0;
    }
    return status;
}

enum nd_status nd_byte_units_create(const struct nd_exact_graph *graph, const struct nd_shape *shapes,
                                    size_t limit_bytes, struct nd_byte_units **out, struct nd_error *err)
{
    struct nd_byte_units *units = nd_calloc(1, sizeof *units);
    struct nd_byte_runner *runner = NULL;
    bool are_known = false;
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
    if (runner != NULL)
        runner->left_bytes = limit_bytes;
    for (size_t u = 0; u < units->n && status == ND_OK && are_known; u++)
        status = nd_byte_prepare(runner, &units->units[u], err);
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
        free(unit->runs);
        free(unit->conv.floats);
        nd_byte_weights_end(&unit->conv.bytes);
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
    forget(runner, nd_graph_made(runner->run.graph, unit->quantize, 0));
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
        struct nd_array *made = &run->values[nd_graph_made(run->graph, unit->quantize, 0)];
        *codes = *made;
        *made = nd_exact_none();
    }
    nd_byte_runner_clear(runner, unit);
    return status;
}

enum nd_status nd_byte_unit_evaluate_with(struct nd_byte_runner *runner, size_t place,
                                          const struct nd_exact_options *options, void *context,
                                          struct nd_array *inputs, struct nd_array *codes, struct nd_error *err)
{
    const struct nd_exact_options *before = runner->run.options;
    runner->run.options = options;
    runner->run.context = context;
    enum nd_status status = nd_byte_unit_evaluate(runner, place, inputs, codes, err);
    runner->run.options = before;
    runner->run.context = NULL;
    return status;
}

/* ---- on bytes ---- */

/* A row of the result of two operands, each of which repeats an element or goes on. */
static void look_up_row(const uint8_t *table, const uint8_t *x, const uint8_t *y, const struct nd_walk *walk,
                        uint8_t *restrict out)
{
    enum { N_CODES = 256 };
    ptrdiff_t step_x = walk->step[0], step_y = walk->step[1], n = walk->n;
    uint8_t column[N_CODES];
    if (step_x == 0 && step_y == 1) {
        nd_gemm_kernels()->look_up(table + (size_t)*x * N_CODES, y, (size_t)n, out);
    } else if (step_x == 1 && step_y == 0 && n >= N_CODES) {
        for (size_t i = 0; i < N_CODES; i++)
            column[i] = table[i * N_CODES + *y];
        nd_gemm_kernels()->look_up(column, x, (size_t)n, out);
    } else {
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] = table[(size_t)x[i * step_x] * N_CODES + y[i * step_y]];
    }
}

static void look_up(const struct nd_byte_units *units, const struct nd_byte_unit *unit,
                    const uint8_t *const *inputs, uint8_t *out)
{
    const struct nd_shape *shape = &units->shapes[unit->edge];
    struct nd_walk walk = {.n = 0};
    const struct nd_array a = {.shape = units->shapes[unit->edges[0]]},
                          b = {.shape = units->shapes[unit->edges[unit->n_inputs - 1]]};
    if (unit->n_inputs == 1) {
        nd_gemm_kernels()->look_up(unit->table, inputs[0], nd_dims_product(shape, 0, shape->rank), out);
        return;
    }
    for (int axis = 0; axis < shape->rank; axis++)
        nd_walk_axis(&walk, shape->dims[axis], nd_broadcast_stride(&a, shape, axis),
                     nd_broadcast_stride(&b, shape, axis), 0);
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk)) {
        look_up_row(unit->table, inputs[0] + walk.at[0], inputs[1] + walk.at[1], &walk, out);
        out += walk.n;
    }
}

static void move(const struct nd_byte_unit *unit, const uint8_t *const *inputs, uint8_t *out)
{
    for (size_t r = 0; r < unit->n_runs; r++) {
        const struct nd_byte_run *run = &unit->runs[r];
        nd_gemm_kernels()->look_up(unit->table + 256 * (size_t)run->input, inputs[run->input] + run->from,
                                   run->n, out);
        out += run->n;
    }
}

enum nd_status nd_byte_unit_run(struct nd_byte_runner *runner, size_t place, const uint8_t *const *inputs,
                                uint8_t *out, struct nd_error *err)
{
    const struct nd_byte_unit *unit = &runner->units->units[place];
    if (unit->kind == ND_BYTE_CONV)
        return nd_byte_convolve(runner, unit, inputs[0], out, err);
    if (unit->kind == ND_BYTE_MOVE)
        move(unit, inputs, out);
    else
        look_up(runner->units, unit, inputs, out);
    return ND_OK;
}
