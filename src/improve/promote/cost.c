/* What more bits cost: bytes and multiply-adds of one inference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "improve/promote/promote.h"
#include "model/graph/infer.h"

/* What could be changed. */

enum { MAX_CONSTANTS = ND_LOSS_CONSTANTS };

/* ---- as changes of the file ---- */

/* The axis of the channels of a constant that the step's layer reads; -1: it reads no such constant. */
static int axis_of(const struct nd_plan *plan, const struct nd_change *change)
{
    struct nd_exact_constant all[MAX_CONSTANTS];
    size_t n = nd_exact_layer_constants(plan->graph, plan->steps[change->step].tensor, all, MAX_CONSTANTS);
    for (size_t i = 0; i < n; i++)
        if (all[i].tensor == change->tensor)
            return all[i].channel_axis;
    return -1;
}

void nd_widening_deinit(struct nd_widening *widening)
{
    free((void *)(uintptr_t)widening->tensors);
    free((void *)(uintptr_t)widening->weights);
    *widening = (struct nd_widening){0};
}

enum nd_status nd_promotions_as_widening(const struct nd_promote_job *job, const size_t *promotions, size_t n,
                                         struct nd_widening *out, struct nd_error *err)
{
    size_t n_changes = 0;
    for (size_t i = 0; i < n; i++)
        n_changes += nd_promotions_at(job->promotions, promotions[i])->n_changes;
    struct nd_wide_tensor *tensors = nd_calloc(n_changes + 1, sizeof *tensors);
    struct nd_channel_weights *weights = nd_calloc(n_changes + 1, sizeof *weights);
    *out = (struct nd_widening){.tensors = tensors, .weights = weights};
    if (tensors == NULL || weights == NULL) {
        nd_widening_deinit(out);
        return nd_fail_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        const struct nd_promotion *promotion = nd_promotions_at(job->promotions, promotions[i]);
        for (size_t c = 0; c < promotion->n_changes; c++) {
            const struct nd_change *change = &promotion->changes[c];
            if (change->is_range)
                tensors[out->n_tensors++] = (struct nd_wide_tensor){
                    job->plan.steps[change->step].tensor, (float)change->fit.scale, (int64_t)change->fit.zero};
            else
                weights[out->n_weights++] = (struct nd_channel_weights){.tensor = change->tensor,
                                                                        .axis = axis_of(&job->plan, change),
                                                                        .shape = &change->values->shape,
                                                                        .values = change->values->x};
        }
    }
    return ND_OK;
}

/* ---- the list ---- */

/* Whether the file can be changed so. */
static bool can_be_made(const struct nd_promote_job *job, const struct nd_promotion *promotion)
{
    for (size_t c = 0; c < promotion->n_changes; c++) {
        const struct nd_change *change = &promotion->changes[c];
        if (change->is_range ? nd_widening_obstacle(job->model, job->plan.steps[change->step].tensor) != NULL
                             : axis_of(&job->plan, change) < 0)
            return false;
    }
    return true;
}

static enum nd_status add_layer(struct nd_promote_job *job, size_t index, struct nd_error *err)
{
    const struct nd_promotion *promotion = nd_promotions_at(job->promotions, index);
    const struct nd_explained_step *step = &job->plan.steps[promotion->step];
    struct nd_promoted *result = job->result;
    size_t n_devices = job->options->n_devices;
    struct nd_promoted_layer layer = {.name = nd_strdup(step->name),
                                      .op_types = nd_strdup(step->op_types),
                                      .kind = promotion->kind,
                                      .fate = ND_PROMOTE_NOT_TRIED,
                                      .effect_share = promotion->effect_share,
                                      .alone_db = NAN,
                                      .predicted_db = NAN,
                                      .measured_db = NAN,
                                      .device_db = nd_calloc(n_devices, sizeof(double))};
    enum nd_status status = layer.name != NULL && layer.op_types != NULL && layer.device_db != NULL
                                ? nd_promotion_cost_of(job, &index, 1, &layer.cost, err)
                                : nd_fail_memory(err);
    for (size_t d = 0; d < n_devices && layer.device_db != NULL; d++)
        layer.device_db[d] = NAN;
    result->layers[result->n_layers] = layer;
    job->order[result->n_layers] = index;
    result->n_layers++;
    return status;
}

enum nd_status nd_find_proposals(struct nd_promote_job *job, struct nd_error *err)
{
    enum nd_status status = nd_promotions_find(&job->plan, &job->promotions, err);
    size_t n = status == ND_OK ? nd_promotions_n(job->promotions) : 0;
    if (status != ND_OK)
        return status;
    job->result->layers = nd_calloc(n + 1, sizeof *job->result->layers);
    job->order = nd_calloc(n + 1, sizeof *job->order);
    job->kept = nd_calloc(n + 1, sizeof *job->kept);
    if (job->result->layers == NULL || job->order == NULL || job->kept == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n && status == ND_OK; i++)
        if (can_be_made(job, nd_promotions_at(job->promotions, i)))
            status = add_layer(job, i, err);
    return status;
}

enum { SCALE_BYTES = sizeof(float), WIDE_BYTES = 2, FLOPS_OF_MULTIPLY_ADD = 2 };

/* Elements of a step; 0 where the shape is not known. */
static double elems_of(const struct nd_promote_job *job, size_t tensor)
{
    size_t step = tensor != ND_NO_INDEX ? job->plan.step_of_tensor[tensor] : SIZE_MAX, n = 0;
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
        size_t qvalues = n->kind == ND_NODE_QUANTIZE ? graph->made[n->first_made] : graph->uses[n->first_use];
        cost->activation_bytes += WIDE_BYTES * elems_of(job, job->model->tensor_of_value[qvalues]);
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
    for (size_t e = 0; e < model->n_tensors; e++) {
        double n = elems_of(job, e);
        whole.bytes += n * (double)nd_dtype_size_bytes(model->tensors[e].dtype);
        cost->activation_bytes += parts->is_wide_tensor[e] ? n : 0; /* a byte more each */
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
        status = nd_wide_parts_find(job->model, what.tensors, what.n_tensors, &parts, err);
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
