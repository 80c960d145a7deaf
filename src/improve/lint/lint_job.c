/* What all rules of lint share: looking at a model, telling what is found, and noting changes.
 * docs/reference/lint.md. */
#include "improve/lint/lint_job.h"

#include <stdio.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

/* ---- looking ---- */

bool nd_lint_is_one_of(const struct nd_lint_job *job, size_t node, const char *const *op_types)
{
    const Onnx__NodeProto *proto = job->graph->nodes[node].proto;
    return nd_is_one_of(proto->op_type, op_types) && nd_onnx_domain(proto->domain)[0] == '\0';
}

size_t nd_lint_input(const struct nd_lint_job *job, size_t node, size_t slot)
{
    return nd_graph_used(job->graph, node, slot);
}

size_t nd_lint_output(const struct nd_lint_job *job, size_t node)
{
    return nd_graph_made(job->graph, node, 0);
}

size_t nd_lint_dequantise(const struct nd_lint_job *job, size_t node, size_t slot)
{
    size_t tensor = nd_lint_input(job, node, slot);
    size_t maker = tensor != ND_NO_INDEX ? job->graph->tensors[tensor].producer : ND_NO_INDEX;
    return maker != ND_NO_INDEX && job->graph->nodes[maker].kind == ND_NODE_DEQUANTIZE ? maker : ND_NO_INDEX;
}

size_t nd_lint_quantise(const struct nd_lint_job *job, size_t node)
{
    const struct nd_graph *graph = job->graph;
    size_t layer = job->layer_of[node];
    for (size_t made = nd_lint_output(job, node); made != ND_NO_INDEX; made = nd_lint_output(job, node)) {
        const struct nd_graph_tensor *t = &graph->tensors[made];
        for (size_t r = 0; r < t->n_readers; r++)
            if (graph->nodes[graph->readers[t->first_reader + r]].kind == ND_NODE_QUANTIZE)
                return graph->readers[t->first_reader + r];
        if (t->n_readers != 1 || layer == ND_NO_INDEX)
            break;
        node = graph->readers[t->first_reader];
        if (job->layer_of[node] != layer || !ND_LINT_IS(job, node, "Relu", "Clip"))
            break;
    }
    return ND_NO_INDEX;
}

const struct nd_quant *nd_lint_quant(const struct nd_lint_job *job, size_t quantiser)
{
    return quantiser != ND_NO_INDEX && nd_quant_is_sound(&job->quants[quantiser].quant)
               ? &job->quants[quantiser].quant
               : NULL;
}

const struct nd_quant *nd_lint_one(const struct nd_lint_job *job, size_t quantiser)
{
    const struct nd_quant *quant = nd_lint_quant(job, quantiser);
    return quant != NULL && quant->n == 1 ? quant : NULL;
}

enum nd_dtype nd_lint_dtype(const struct nd_lint_job *job, size_t quantiser)
{
    const struct nd_graph *graph = job->graph;
    if (quantiser == ND_NO_INDEX || job->quants[quantiser].dtype != ND_DTYPE_NONE)
        return quantiser == ND_NO_INDEX ? ND_DTYPE_NONE : job->quants[quantiser].dtype;
    size_t qvalues = nd_lint_input(job, quantiser, 0);
    if (graph->nodes[quantiser].kind != ND_NODE_DEQUANTIZE || qvalues == ND_NO_INDEX)
        return ND_DTYPE_NONE;
    size_t maker = graph->tensors[qvalues].producer;
    if (maker != ND_NO_INDEX && graph->nodes[maker].kind == ND_NODE_QUANTIZE)
        return job->quants[maker].dtype;
    return job->infos[qvalues].dtype;
}

enum nd_status nd_lint_numbers(const struct nd_lint_job *job, size_t node, size_t slot, double **values,
                               size_t *n, struct nd_error *err)
{
    size_t tensor = nd_lint_input(job, node, slot);
    *values = NULL;
    *n = 0;
    return tensor != ND_NO_INDEX ? nd_constant_numbers(job->graph, tensor, job->model->path, values, n, err)
                                 : ND_OK;
}

/* ---- telling ---- */

/* The name of what the node makes, as tensors are called. */
static const char *layer_name(const struct nd_lint_job *job, size_t node)
{
    const struct nd_graph *graph = job->graph;
    size_t quantise = graph->nodes[node].kind == ND_NODE_OTHER ? nd_lint_quantise(job, node) : ND_NO_INDEX;
    size_t value = nd_lint_output(job, quantise != ND_NO_INDEX ? quantise : node);
    size_t tensor = value != ND_NO_INDEX ? job->model->tensor_of_value[value] : ND_NO_INDEX;
    if (tensor != ND_NO_INDEX)
        return job->model->tensors[tensor].name;
    return value != ND_NO_INDEX ? graph->tensors[value].name : nd_graph_node_name(graph->nodes[node].proto);
}

enum nd_status nd_lint_find(struct nd_lint_job *job, const struct nd_lint_at *at, struct nd_lint_finding **out,
                            struct nd_error *err, const char *fmt, ...)
{
    struct nd_lint *result = job->result;
    ND_TRY_MEMORY(nd_grow((void **)&result->findings, &job->findings_capacity, result->n_findings + 1,
                          sizeof *result->findings),
                  err);
    struct nd_lint_finding *finding = &result->findings[result->n_findings++];
    *finding = (struct nd_lint_finding){.rule = job->rule, .effect_lsb = at->effect_lsb};
    ND_MAKE_ARGUMENTS(finding->message, fmt);
    finding->tensor = nd_strdup(layer_name(job, at->node));
    finding->node = nd_strdup(nd_graph_node_name(job->graph->nodes[at->node].proto));
    finding->op_type = nd_strdup(nd_onnx_text(job->graph->nodes[at->node].proto->op_type));
    if (out != NULL)
        *out = finding;
    return finding->message != NULL && finding->tensor != NULL && finding->node != NULL &&
                   finding->op_type != NULL
               ? ND_OK
               : nd_fail_memory(err);
}

enum nd_status nd_lint_say_change(struct nd_lint_finding *finding, struct nd_error *err, const char *fmt, ...)
{
    ND_MAKE_ARGUMENTS(finding->change, fmt);
    return finding->change != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_lint_say_obstacle(struct nd_lint_finding *finding, struct nd_error *err, const char *fmt, ...)
{
    ND_MAKE_ARGUMENTS(finding->obstacle, fmt);
    return finding->obstacle != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- mending ---- */

/* A copy that lives as long as the job; NULL: out of memory. */
static const struct nd_quant *keep(struct nd_lint_job *job, const struct nd_quant *quant, struct nd_error *err)
{
    struct nd_quant *own = nd_calloc(1, sizeof *own);
    bool has_room = nd_grow((void **)&job->kept, &job->kept_capacity, job->n_kept + 1, sizeof *job->kept);
    if (own == NULL || !has_room || nd_quant_copy(quant, own, err) != ND_OK) {
        free(own);
        return NULL;
    }
    job->kept[job->n_kept++] = own;
    return own;
}

static enum nd_status change(struct nd_lint_job *job, const struct nd_recoded_node *changed,
                             struct nd_error *err)
{
    ND_TRY_MEMORY(
        nd_grow((void **)&job->changes, &job->changes_capacity, job->n_changes + 1, sizeof *job->changes), err);
    job->changes[job->n_changes++] = *changed;
    return ND_OK;
}

enum nd_status nd_lint_change_constant(struct nd_lint_job *job, size_t dequantise, const struct nd_quant *quant,
                                       double *qvalues, size_t n, struct nd_error *err)
{
    const struct nd_recoded_node changed = {
        .node = dequantise, .quant = keep(job, quant, err), .qvalues = qvalues, .n_qvalues = n};
    enum nd_status status = changed.quant != NULL ? change(job, &changed, err) : nd_fail_memory(err);
    if (status != ND_OK)
        free(qvalues);
    return status;
}

static bool is_changed(const struct nd_lint_job *job, size_t quantiser)
{
    for (size_t i = 0; i < job->n_changes; i++)
        if (job->changes[i].node == quantiser)
            return true;
    return false;
}

/* Whether what operators make of the dequantised quantised values may keep its encoding; adds the quantisers
 * behind operators that only move them to the list. */
static const char *follow(const struct nd_lint_job *job, size_t dequantise, const struct nd_quant *old,
                          size_t *list, size_t *n)
{
    const struct nd_graph *graph = job->graph;
    const struct nd_graph_tensor *t = &graph->tensors[nd_lint_output(job, dequantise)];
    for (size_t r = 0; r < t->n_readers; r++) {
        size_t node = graph->readers[t->first_reader + r], behind = nd_lint_quantise(job, node);
        bool is_mover = nd_onnx_is_mover(graph->nodes[node].proto);
        if (graph->nodes[node].n_made > 1 && is_mover)
            return "a Split or an operator with several outputs passes its quantised values on";
        if (!nd_quant_is_same(nd_lint_one(job, behind), old))
            continue;
        if (ND_LINT_IS(job, node, "Concat", "Max", "Min", "Where", "Pad"))
            return "a Concat, Max, Min, Where or Pad has the same encoding and must keep it";
        if (is_mover)
            list[(*n)++] = behind;
    }
    return NULL;
}

/* The quantisers of one tensor of codes: what makes them, and all that read them. */
static const char *gather(const struct nd_lint_job *job, size_t quantise, size_t *list, size_t *n,
                          size_t *makers, size_t *n_makers)
{
    const struct nd_graph *graph = job->graph;
    const struct nd_quant *old = nd_lint_one(job, quantise);
    const struct nd_graph_tensor *qvalues = &graph->tensors[nd_lint_output(job, quantise)];
    const char *obstacle = is_changed(job, quantise) ? "another finding changes the same encoding" : NULL;
    if (qvalues->output != ND_NO_INDEX)
        return "the model hands the quantised values out";
    list[(*n)++] = quantise;
    for (size_t r = 0; r < qvalues->n_readers && obstacle == NULL; r++) {
        size_t reader = graph->readers[qvalues->first_reader + r];
        if (graph->nodes[reader].kind != ND_NODE_DEQUANTIZE || !nd_quant_is_same(nd_lint_one(job, reader), old))
            return "something reads the quantised values without a DequantizeLinear of the same encoding";
        list[(*n)++] = reader;
        obstacle = follow(job, reader, old, makers, n_makers);
    }
    return obstacle;
}

enum nd_status nd_lint_change_tensor(struct nd_lint_job *job, size_t quantise, const struct nd_quant *quant,
                                     const char **obstacle, struct nd_error *err)
{
    size_t n = 0, n_makers = 1, n_nodes = job->graph->n_nodes;
    ND_FREED size_t *list = nd_calloc(n_nodes, sizeof *list), *makers = nd_calloc(n_nodes, sizeof *makers);
    *obstacle = NULL;
    ND_TRY_MEMORY(list != NULL && makers != NULL, err);
    makers[0] = quantise;
    for (size_t i = 0; i < n_makers && *obstacle == NULL; i++)
        *obstacle = gather(job, makers[i], list, &n, makers, &n_makers);
    if (*obstacle != NULL)
        return ND_OK;
    const struct nd_quant *kept = keep(job, quant, err);
    ND_TRY_MEMORY(kept != NULL, err);
    for (size_t i = 0; i < n; i++)
        ND_TRY(change(job, &(struct nd_recoded_node){.node = list[i], .quant = kept}, err));
    return ND_OK;
}
