/* Quantised values of weights that an operator reads as floats, and what it reads when they are misread.
 * docs/reference/diagnoses.md has the faults that do so. */
#include "arithmetic/variants/changed_internal.h"

#include <math.h>
#include <stdlib.h>

#include "arithmetic/exact/graph_internal.h"
#include "core/error.h"
#include "core/memory.h"

/* Chosen: they are held three times, in doubles. */
enum { MAX_WEIGHTS = 1 << 24 };

/* A DequantizeLinear is a line through each element: two of its results tell scale and zero point, whatever
 * axis and blocks they are counted in. */
static enum nd_status read_dequantised(const struct nd_exact_graph *g, size_t maker,
                                       struct nd_coded_weights *out, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    const struct nd_graph_node *n = &graph->nodes[maker];
    const struct nd_array *inputs[3] = {NULL};
    struct nd_array qvalues = {0}, reals[2] = {0}, *outputs[] = {NULL};
    enum nd_status status = ND_OK;
    size_t n_held = 0;
    for (; n_held < n->n_inputs && n_held < 3 && status == ND_OK; n_held += status == ND_OK) {
        size_t tensor = nd_graph_used(graph, maker, n_held);
        inputs[n_held] = tensor != ND_NO_INDEX ? &g->constants[tensor] : NULL;
        status = nd_exact_hold(g, inputs[n_held], err);
    }
    if (status == ND_OK)
        status = nd_array_copy(inputs[0], &out->qvalues, err);
    if (status == ND_OK)
        status = nd_array_copy(inputs[0], &qvalues, err);
    const struct nd_array *own[3] = {&qvalues, inputs[1], inputs[2]};
    const struct nd_op_call call = {.node = n->proto,
                                    .opset = g->model->opset,
                                    .n_inputs = n_held,
                                    .n_outputs = 1,
                                    .inputs = own,
                                    .outputs = outputs};
    for (size_t k = 0; k < 2 && status == ND_OK; k++) {
        for (size_t i = 0; i < qvalues.n; i++)
            qvalues.x[i] = (double)k;
        outputs[0] = &reals[k];
        status = nd_op_run(&call, err);
    }
    out->scales = nd_calloc(qvalues.n + 1, sizeof *out->scales);
    out->zero_points = nd_calloc(qvalues.n + 1, sizeof *out->zero_points);
    if (out->scales == NULL || out->zero_points == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < qvalues.n; i++) {
        out->scales[i] = reals[1].x[i] - reals[0].x[i];
        out->zero_points[i] = out->scales[i] != 0 ? rint(-reals[0].x[i] / out->scales[i]) : 0;
    }
    while (n_held > 0)
        nd_exact_release(g, inputs[--n_held]);
    nd_array_deinit(&qvalues);
    nd_array_deinit(&reals[0]);
    nd_array_deinit(&reals[1]);
    return status;
}

struct span {
    size_t first, n;
};

/* Weights of one row that share a scale: what it is if the largest of them has one of these quantised values.
 * Floats of 24 bits are that near to a whole multiple. */
static bool find_step(const struct nd_array *reals, const struct nd_weight_rows *rows, size_t row,
                      struct span block, const int *ends, double *scale)
{
    static const double near = 0x1p-14;
    double largest = 0;
    for (size_t k = block.first; k < block.first + block.n; k++)
        largest = fmax(largest, fabs(reals->x[nd_weight_place(rows, row, k)]));
    for (; *ends != 0; ends++) {
        bool is_whole = true;
        *scale = largest / *ends;
        for (size_t k = block.first; k < block.first + block.n && is_whole && largest > 0; k++) {
            double steps = reals->x[nd_weight_place(rows, row, k)] / *scale;
            is_whole = fabs(steps - rint(steps)) <= near;
        }
        if (is_whole)
            return true;
    }
    return false;
}

static bool recover_qvalues(const struct nd_array *reals, const struct nd_weight_rows *rows, size_t block,
                            bool is_nibble, struct nd_coded_weights *out)
{
    static const int ends_of_4[] = {7, 8, 6, 5, 4, 3, 2, 1, 0}, ends_of_8[] = {127, 128, 0};
    for (size_t j = 0; j < rows->n; j++)
        for (size_t first = 0; first < rows->n_columns; first += block) {
            struct span span = {first, block < rows->n_columns - first ? block : rows->n_columns - first};
            double scale;
            if (!find_step(reals, rows, j, span, is_nibble ? ends_of_4 : ends_of_8, &scale))
                return false;
            for (size_t k = first; k < first + span.n; k++) {
                size_t at = nd_weight_place(rows, j, k);
                out->scales[at] = scale;
                out->qvalues.x[at] = scale > 0 ? rint(reals->x[at] / scale) : 0;
            }
        }
    out->qvalues.dtype = is_nibble ? ND_DTYPE_I4 : ND_DTYPE_I8;
    return true;
}

/* Blocks of so many terms; chosen: those that runtimes have. */
static enum nd_status read_floats(const struct nd_linear_call *call, struct nd_coded_weights *out,
                                  struct nd_error *err)
{
    static const size_t blocks[] = {SIZE_MAX, 256, 128, 64, 32, 16};
    const struct nd_array *reals = call->inputs[ND_CHANGED_WEIGHTS].values;
    struct nd_weight_rows rows;
    bool is_found = false;
    enum nd_status status = nd_array_copy(reals, &out->qvalues, err);
    out->scales = nd_calloc(reals->n + 1, sizeof *out->scales);
    if (status != ND_OK || out->scales == NULL)
        return nd_fail_memory(err);
    for (size_t k = 0;
         k < 2 * sizeof blocks / sizeof *blocks && nd_weight_rows_find(call, false, &rows) && !is_found; k++)
        is_found = recover_qvalues(reals, &rows, blocks[k / 2], k % 2 == 0, out);
    for (size_t i = 0; i < reals->n && !is_found; i++) {
        out->scales[i] = 1;
        out->qvalues.x[i] = reals->x[i];
    }
    return ND_OK;
}

enum nd_status nd_layer_coded_weights(const struct nd_exact_graph *graph, const struct nd_exact_layer *layer,
                                      struct nd_coded_weights *out, struct nd_error *err)
{
    const struct nd_linear_call *call = layer->call;
    *out = (struct nd_coded_weights){0};
    if (!nd_is_product(call) || call->n_inputs <= ND_CHANGED_WEIGHTS || call->n_inputs > ND_CHANGED_INPUTS ||
        call->out_quant->n != 1 || layer->origins[0] == ND_EXACT_FROM_CONSTANT ||
        layer->origins[ND_CHANGED_WEIGHTS] != ND_EXACT_FROM_CONSTANT ||
        call->inputs[ND_CHANGED_WEIGHTS].quant != NULL)
        return ND_OK;
    const struct nd_float_node node = nd_float_node_of(call);
    return nd_find_coded_weights(graph, &node, out, err);
}

enum nd_status nd_find_coded_weights(const struct nd_exact_graph *g, const struct nd_float_node *node,
                                     struct nd_coded_weights *out, struct nd_error *err)
{
    const struct nd_linear_input inputs[] = {{.values = NULL},
                                             {.values = node->inputs[ND_CHANGED_WEIGHTS].constant}};
    const struct nd_linear_call call = {
        .node = node->proto, .opset = node->opset, .n_inputs = 2, .inputs = inputs};
    *out = (struct nd_coded_weights){0};
    if (!nd_is_product(&call) || node->inputs[ND_CHANGED_WEIGHTS].source != ND_FLOAT_CONSTANT ||
        inputs[ND_CHANGED_WEIGHTS].values->n > MAX_WEIGHTS || node->n_inputs > ND_CHANGED_INPUTS ||
        inputs[ND_CHANGED_WEIGHTS].values->shape.rank < 2)
        return ND_OK;
    size_t tensor = 0, n_tensors = g->model->graph.n_tensors;
    while (tensor < n_tensors && &g->constants[tensor] != inputs[ND_CHANGED_WEIGHTS].values)
        tensor++;
    size_t maker = tensor < n_tensors ? g->model->graph.tensors[tensor].producer : ND_NO_INDEX;
    if (maker != ND_NO_INDEX && g->model->graph.nodes[maker].kind == ND_NODE_DEQUANTIZE)
        return read_dequantised(g, maker, out, err);
    enum nd_status status = nd_exact_hold(g, inputs[ND_CHANGED_WEIGHTS].values, err);
    if (status != ND_OK)
        return status;
    status = read_floats(&call, out, err);
    nd_exact_release(g, inputs[ND_CHANGED_WEIGHTS].values);
    return status;
}

void nd_coded_weights_deinit(struct nd_coded_weights *weights)
{
    nd_array_deinit(&weights->qvalues);
    free(weights->scales);
    free(weights->zero_points);
    *weights = (struct nd_coded_weights){0};
}
