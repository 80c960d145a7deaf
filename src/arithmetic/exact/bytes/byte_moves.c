/* Units that move codes about: where each comes from is found by moving numbers of elements. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/bytes/byte_internal.h"
#include "arithmetic/exact/linear/linear_families.h"

enum { N_CODES = 256, LEAST_RUN = 8 /* elements, on average: shorter ones are not worth their list; chosen */ };

static bool only_moves(const struct nd_exact_call *call)
{
    static const char *const names[] = {
        "Concat", "DepthToSpace", "Expand",  "Flatten", "Gather",    "Identity", "Reshape",  "Slice",
        "Split",  "SpaceToDepth", "Squeeze", "Tile",    "Transpose", "Resize",   "Upsample", "Unsqueeze"};
    const Onnx__NodeProto *node = call->call.node;
    for (size_t i = 0; node != NULL && i < sizeof names / sizeof names[0]; i++)
        if (nd_onnx_domain(node->domain)[0] == 0 && strcmp(nd_onnx_text(node->op_type), names[i]) == 0)
            return true;
    return false;
}

/* Which of the edges that the unit reads is input i of the operator; n_inputs: none, it is constant or omitted.
 * False: it is something else. */
static bool find_place(const struct nd_exact_graph *g, const struct nd_byte_unit *unit,
                       const struct nd_exact_call *call, size_t i, size_t *place)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t tensor = nd_graph_used(graph, call->node, i);
    *place = unit->n_inputs;
    if (tensor == ND_NO_INDEX || graph->tensors[tensor].is_constant)
        return true;
    size_t producer = graph->tensors[tensor].producer;
    size_t codes = producer != ND_NO_INDEX ? nd_graph_used(graph, producer, 0) : ND_NO_INDEX;
    for (*place = 0; *place < unit->n_inputs && unit->leaves[*place] != codes;)
        ++*place;
    const struct nd_quant *quant = call->inputs[i].quant;
    return *place < unit->n_inputs && quant != NULL && quant->n == 1;
}

/* What the operator makes of numbers: those of the elements of all inputs, one after the other. */
static enum nd_status move_numbers(const struct nd_exact_call *call, const double *first, struct nd_array *out,
                                   struct nd_error *err)
{
    size_t n = call->call.n_inputs;
    struct nd_array *own = nd_calloc(n, sizeof *own);
    const struct nd_array **inputs = nd_calloc(n, sizeof(struct nd_array *));
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
    free(own);
    free(inputs);
    return status;
}

/* Codes of the input in steps of the output, by the evaluation itself. */
static enum nd_status fill_table(const struct nd_exact_graph *g, const struct nd_byte_unit *unit,
                                 const struct nd_exact_call *call, size_t input, uint8_t *table,
                                 struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 1, .dims = {N_CODES}};
    const struct nd_node_quant *quant = &g->quants[unit->quantize];
    struct nd_array all = {.n = 0};
    struct nd_linear_result result = {.n = 0};
    double low, high, least, codes[N_CODES];
    enum nd_dtype dtype = call->inputs[input].values->dtype;
    nd_code_range(dtype, &least, &high);
    nd_code_range(quant->dtype, &low, &high);
    enum nd_status status = nd_array_make_room(&all, dtype, &shape, err);
    for (size_t i = 0; i < all.n; i++)
        all.x[i] = least + (double)i;
    const struct nd_linear_input of_all = {.values = &all, .quant = call->inputs[input].quant};
    const struct nd_linear_call moved = {.opset = call->call.opset,
                                         .n_inputs = 1,
                                         .inputs = &of_all,
                                         .low = call->call.low,
                                         .high = call->call.high,
                                         .out_quant = call->call.out_quant};
    if (status == ND_OK)
        status = nd_linear_unit(&moved, &result, err);
    for (size_t i = 0; i < N_CODES && status == ND_OK; i++)
        codes[i] = nd_code_of_ratio(&result.v[i], (double)quant->quant.zero_point[0], quant->dtype,
                                    ND_ROUND_HALF_EVEN);
    if (status == ND_OK)
        nd_gemm_kernels()->narrow(codes, low, N_CODES, table);
    nd_linear_deinit(&result);
    nd_array_deinit(&all);
    return status;
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
                      struct nd_byte_unit *unit)
{
    size_t most = moved->n / LEAST_RUN + 1;
    unit->runs = nd_calloc(most, sizeof *unit->runs);
    for (size_t i = 0; i < moved->n && unit->runs != NULL;) {
        double number = moved->x[i];
        size_t input = input_of(first, call, number), n = 1;
        if (input == call->call.n_inputs || number != floor(number) || unit->n_runs == most)
            return false;
        size_t left = call->inputs[input].values->n - (size_t)(number - first[input]);
        while (n < left && i + n < moved->n && moved->x[i + n] == number + (double)n)
            n++;
        unit->runs[unit->n_runs++] = (struct nd_byte_run){
            .from = (uint32_t)(number - first[input]), .n = (uint32_t)n, .input = (uint32_t)input};
        i += n;
    }
    return unit->runs != NULL;
}

/* Inputs of the operator are counted, until here; then edges of the unit. */
static enum nd_status fill_tables(const struct nd_exact_graph *g, const size_t *places,
                                  const struct nd_exact_call *call, struct nd_byte_unit *unit,
                                  struct nd_error *err)
{
    enum nd_status status = ND_OK;
    unit->table = nd_calloc(unit->n_inputs, N_CODES);
    if (unit->table == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < call->call.n_inputs && status == ND_OK; i++)
        if (places[i] < unit->n_inputs)
            status = fill_table(g, unit, call, i, unit->table + places[i] * N_CODES, err);
    for (size_t r = 0; r < unit->n_runs; r++)
        unit->runs[r].input = (uint32_t)places[unit->runs[r].input];
    return status;
}

enum nd_status nd_byte_find_moves(struct nd_byte_runner *runner, struct nd_byte_unit *unit,
                                  const struct nd_exact_call *call, struct nd_error *err)
{
    const struct nd_exact_graph *g = runner->units->graph;
    double first[ND_EXACT_MAX_OPERANDS], n = 0;
    size_t places[ND_EXACT_MAX_OPERANDS], n_moved = 0;
    bool is_possible = only_moves(call) && call->call.out_quant->n == 1;
    for (size_t i = 0; i < call->call.n_inputs && is_possible; i++) {
        is_possible = find_place(g, unit, call, i, &places[i]);
        bool is_moved = places[i] < unit->n_inputs;
        first[i] = is_moved ? n : -1;
        n += is_moved ? (double)call->inputs[i].values->n : 0;
        n_moved += is_moved;
    }
    is_possible = is_possible && n_moved == unit->n_inputs; /* none twice, with other scales perhaps */
    if (!is_possible || n >= UINT32_MAX)
        return ND_OK;
    struct nd_array moved = {.n = 0};
    enum nd_status status = move_numbers(call, first, &moved, err);
    size_t bytes = unit->n_inputs * N_CODES;
    if (status == ND_OK && list_runs(&moved, first, call, unit)) {
        bytes += unit->n_runs * sizeof *unit->runs;
        if (nd_byte_take_room(runner, bytes)) {
            status = fill_tables(g, places, call, unit, err);
            unit->kind = status == ND_OK ? ND_BYTE_MOVE : ND_BYTE_SLOW;
        }
    }
    nd_array_deinit(&moved);
    if (unit->kind == ND_BYTE_SLOW) {
        free(unit->runs);
        unit->runs = NULL;
    }
    return status;
}
