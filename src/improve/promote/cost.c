/* What more bits cost: bytes and multiply-adds of one inference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/graph/infer.h"
#include "improve/promote/promote_job.h"

enum { SCALE_BYTES = sizeof(float), WIDE_BYTES = 2, FLOPS_OF_MULTIPLY_ADD = 2 };

/* Elements of a step; 0 where the shape is not known. */
static double elems_of(const struct nd_promote_job *job, size_t edge)
{
    size_t step = edge != ND_NO_INDEX ? job->plan.step_of_edge[edge] : SIZE_MAX, n = 0;
    if (step == SIZE_MAX || nd_shape_n_elems(&job->plan.shapes[step], &n, NULL) != ND_OK)
        return 0;
    return (double)n;
}

/* A MatMul, Conv and the like. */
static bool is_product(const Onnx__NodeProto *node)
{
    static const char *const products[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        if (strcmp(nd_onnx_text(node->op_type), products[i]) == 0)
            return true;
    return false;
}

/* Bytes of activations and constants, and multiply-adds, of the model as it came. */
struct whole {
    double bytes, multiply_adds;
};

static void add_node(const struct nd_promote_job *job, const struct nd_wide_parts *parts, size_t node,
                     const struct nd_tensor_info *infos, struct nd_promotion_cost *cost, struct whole *whole)
{
    const struct nd_graph *graph = &job->model->graph;
    const struct nd_graph_node *n = &graph->nodes[node];
    double flops = is_product(n->proto) ? nd_node_flops(graph, node, infos) : 0;
    double multiply_adds = isnan(flops) ? 0 : flops / FLOPS_OF_MULTIPLY_ADD;
    whole->multiply_adds += multiply_adds;
    cost->multiply_adds += parts->is_wide_node[node] ? multiply_adds : 0;
    if (n->kind == ND_NODE_DEQUANTIZE && n->is_constant) {
        double bytes = nd_infer_bytes(&infos[graph->uses[n->first_use]]);
        whole->bytes += isnan(bytes) ? 0 : bytes;
    }
    if (parts->is_converted[node]) {
        size_t codes = n->kind == ND_NODE_QUANTIZE ? graph->made[n->first_made] : graph->uses[n->first_use];
        cost->activation_bytes += WIDE_BYTES * elems_of(job, job->model->tensor_edge[codes]);
        cost->n_conversions++;
    }
}

static void add_all(const struct nd_promote_job *job, const struct nd_wide_parts *parts,
                    const struct nd_tensor_info *infos, const struct nd_widening *what,
                    struct nd_promotion_cost *cost)
{
    const struct nd_model *model = job->model;
    struct whole whole = {0};
    for (size_t n = 0; n < model->graph.n_nodes; n++)
        if (model->graph.nodes[n].is_alive)
            add_node(job, parts, n, infos, cost, &whole);
    for (size_t e = 0; e < model->n_edges; e++) {
        double n = elems_of(job, e);
        whole.bytes += n * (double)nd_dtype_size_bytes(model->edges[e].dtype);
        cost->activation_bytes += parts->is_wide_edge[e] ? n : 0; /* a byte more each */
    }
    for (size_t i = 0; i < what->n_weights; i++)
        cost->weight_bytes += SCALE_BYTES * (double)(what->weights[i].shape->dims[what->weights[i].axis] - 1);
    double bytes = cost->activation_bytes + cost->weight_bytes;
    cost->percent = 100 * fmax(whole.bytes > 0 ? bytes / whole.bytes : 0,
                               whole.multiply_adds > 0 ? cost->multiply_adds / whole.multiply_adds : 0);
}

enum nd_status nd_promotion_cost_of(const struct nd_promote_job *job, const size_t *promotions, size_t n,
                                    struct nd_promotion_cost *out, struct nd_error *err)
{
    struct nd_widening what = {0};
    struct nd_wide_parts parts = {0};
    struct nd_tensor_info *infos = nd_calloc(job->model->graph.n_tensors, sizeof *infos);
    *out = (struct nd_promotion_cost){0};
    enum nd_status status =
        infos != NULL ? nd_promotions_as_widening(job, promotions, n, &what, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_wide_parts_find(job->model, what.edges, what.n_edges, &parts, err);
    if (status == ND_OK) {
        nd_infer_declared(job->model, infos);
        nd_infer_propagate(job->model, infos);
        add_all(job, &parts, infos, &what, out);
    }
    free(infos);
    nd_wide_parts_deinit(&parts);
    nd_widening_deinit(&what);
    return status;
}
