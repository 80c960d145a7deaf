#include "npudiff/improve/lint.h"

#include <stdlib.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "core/tensors/scales.h"
#include "improve/lint/rules.h"

void nd_lint_options_init_sized(struct nd_lint_options *options, size_t struct_size)
{
    const struct nd_lint_options own = {0};
    nd_options_write(options, struct_size, &own, sizeof own);
}

/* ---- what the rules read ---- */

static enum nd_status read_quantisers(struct nd_lint_job *job, size_t *n_quantisers, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t n = 0; n < job->graph->n_nodes && status == ND_OK; n++)
        if (job->graph->nodes[n].kind != ND_NODE_OTHER) {
            status = nd_node_quant_read(job->graph, n, job->model->path, &job->quants[n], err);
            ++*n_quantisers;
        }
    return status;
}

static enum nd_status init_job(struct nd_lint_job *job, size_t *n_quantisers, struct nd_error *err)
{
    const struct nd_graph *graph = job->graph;
    job->quants = nd_calloc(graph->n_nodes, sizeof *job->quants);
    job->infos = nd_calloc(graph->n_tensors, sizeof *job->infos);
    job->result = nd_calloc(1, sizeof *job->result);
    if (job->quants == NULL || job->infos == NULL || job->result == NULL)
        return nd_fail_memory(err);
    job->result->struct_size = sizeof *job->result;
    job->result->n_layers = job->model->n_units;
    job->result->model = nd_strdup(job->model->path);
    if (job->result->model == NULL)
        return nd_fail_memory(err);
    nd_infer_declared(job->model, job->infos);
    nd_infer_propagate(job->model, job->infos);
    enum nd_status status = nd_units_assign(graph, &job->unit_of, err);
    return status == ND_OK ? read_quantisers(job, n_quantisers, err) : status;
}

static void deinit_job(struct nd_lint_job *job)
{
    for (size_t n = 0; job->quants != NULL && n < job->graph->n_nodes; n++)
        nd_quant_deinit(&job->quants[n].quant);
    for (size_t i = 0; i < job->n_changes; i++)
        free((void *)(uintptr_t)job->changes[i].codes); /* nd_lint_change_constant's own */
    for (size_t i = 0; i < job->n_kept; i++) {
        nd_quant_deinit(job->kept[i]);
        free(job->kept[i]);
    }
    free(job->kept);
    free(job->changes);
    free(job->quants);
    free(job->infos);
    free(job->unit_of);
    nd_lint_destroy(&job->result);
}

/* ---- looking and mending ---- */

static enum nd_status look(struct nd_lint_job *job, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n_rules;
    const struct nd_lint_rule *rules = nd_lint_rules(&n_rules);
    for (size_t r = 0; r < n_rules; r++) {
        job->rule = &rules[r];
        for (size_t n = 0; n < job->graph->n_nodes && status == ND_OK; n++)
            if (job->graph->nodes[n].is_alive)
                status = nd_lint_look_of(r)(job, n, err);
    }
    return status;
}

static enum nd_status mend(struct nd_lint_job *job, const char *output, struct nd_error *err)
{
    struct nd_lint *result = job->result;
    if (job->n_changes == 0)
        return ND_OK;
    enum nd_status status = nd_model_write_recoded(job->model, job->changes, job->n_changes, output, err);
    if (status != ND_OK)
        return status;
    result->output = nd_strdup(output);
    for (size_t i = 0; i < result->n_findings; i++)
        result->findings[i].is_mended = result->findings[i].change != NULL;
    return result->output != NULL ? ND_OK : nd_fail_memory(err);
}

static void count(struct nd_lint *result)
{
    for (size_t i = 0; i < result->n_findings; i++) {
        enum nd_lint_level level = result->findings[i].rule->level;
        result->n_errors += level == ND_LINT_ERROR;
        result->n_warnings += level == ND_LINT_WARNING;
        result->n_notes += level == ND_LINT_NOTE;
        result->n_left += level != ND_LINT_NOTE && !result->findings[i].is_mended;
    }
}

enum nd_status nd_lint_model(const struct nd_model *model, const struct nd_lint_options *options,
                             struct nd_lint **out, struct nd_error *err)
{
    struct nd_lint_options own;
    size_t n_quantisers = 0;
    struct nd_lint_job job = {.model = model, .graph = &model->graph};
    nd_lint_options_init(&own);
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status == ND_OK && own.output != NULL && !own.replace && nd_path_exists(own.output))
        status = nd_fail(err, ND_E_FILE_EXISTS, own.output, "'%s' exists already", own.output);
    if (status == ND_OK)
        status = init_job(&job, &n_quantisers, err);
    if (status == ND_OK)
        status = look(&job, err);
    if (status == ND_OK && n_quantisers == 0 && job.result->n_findings == 0)
        status =
            nd_fail(err, ND_E_LINT_FLOAT, model->path,
                    "'%s' is not quantised: it has no QuantizeLinear and no DequantizeLinear", model->path);
    if (status == ND_OK && own.output != NULL)
        status = mend(&job, own.output, err);
    if (status == ND_OK) {
        count(job.result);
        *out = job.result;
        job.result = NULL;
    }
    deinit_job(&job);
    return status;
}

void nd_lint_destroy(struct nd_lint **lint_ptr)
{
    struct nd_lint *lint = *lint_ptr;
    if (lint == NULL)
        return;
    for (size_t i = 0; i < lint->n_findings; i++) {
        struct nd_lint_finding *finding = &lint->findings[i];
        free(finding->tensor);
        free(finding->node);
        free(finding->op_type);
        free(finding->message);
        free(finding->change);
        free(finding->obstacle);
    }
    free(lint->findings);
    free(lint->model);
    free(lint->output);
    free(lint);
    *lint_ptr = NULL;
}
