/* What nd_align and nd_certificate_verify begin with, and how they count. */
#include <stdlib.h>

#include "align/align_stages.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/strbuf.h"

const char *nd_align_state_name(enum nd_align_state state)
{
    static const char *const names[] = {"proven", "tested", "unknown", "differs"};
    return names[state];
}

void nd_alignment_destroy(struct nd_alignment **alignment)
{
    struct nd_alignment *old = *alignment;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_layers; i++) {
        free(old->layers[i].name);
        free(old->layers[i].op_types);
    }
    for (size_t i = 0; i < old->n_outputs; i++)
        free(old->outputs[i].name);
    for (size_t i = 0; i < old->n_arithmetics; i++)
        free(old->arithmetics[i]);
    for (size_t i = 0; i < old->n_devices; i++) {
        free(old->devices[i]);
        free(old->environments[i]);
    }
    free(old->layers);
    free(old->outputs);
    free(old->arithmetics);
    free(old->devices);
    free(old->environments);
    free(old->groups);
    free(old->model);
    free(old->output);
    free(old->certificate);
    free(old->float_model);
    free(old);
    *alignment = NULL;
}

enum nd_status nd_align_tell(const struct nd_align_job *job, const char *stage, size_t n_done, size_t n_total,
                             struct nd_error *err)
{
    const struct nd_align_options *options = job->options;
    if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "cancelled");
    if (options->progress != NULL)
        options->progress(options->progress_context, stage, n_done, n_total);
    return ND_OK;
}

enum nd_status nd_align_find_programs(struct nd_align_job *job, const char *const *names, size_t n,
                                      struct nd_error *err)
{
    static const char *const usual[] = {"htp-v69", "htp-v73"};
    if (n == 0) {
        names = usual;
        n = sizeof usual / sizeof usual[0];
    }
    if (n < 2 || n > ND_ALIGN_MOST_PROGRAMS)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "2 to %d arithmetics can be aligned, not %zu",
                       ND_ALIGN_MOST_PROGRAMS, n);
    job->result->arithmetics = nd_calloc(n, sizeof *job->result->arithmetics);
    if (job->result->arithmetics == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        job->programs[i] = nd_unit_program_from_name(names[i]);
        if (job->programs[i] == NULL)
            return nd_fail(
                err, ND_E_OPTION_VALUE, names[i],
                "'%s' is no arithmetic of whole layers; known are htp-v69, htp-v73, htp-v69:2.48 and "
                "htp-v73:2.48",
                names[i]);
        job->result->arithmetics[i] = nd_strdup(names[i]);
        if (job->result->arithmetics[i] == NULL)
            return nd_fail_memory(err);
        job->result->n_arithmetics = job->n_programs = i + 1;
    }
    return ND_OK;
}

enum nd_status nd_align_make_layers(struct nd_align_job *job, const struct nd_model *model,
                                    struct nd_error *err)
{
    struct nd_alignment *result = job->result;
    size_t n_edges = nd_model_n_edges(model);
    result->layers = nd_calloc(nd_model_n_units(model), sizeof *result->layers);
    job->layer_of_edge = nd_calloc(n_edges, sizeof *job->layer_of_edge);
    if (result->layers == NULL || job->layer_of_edge == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < n_edges; e++) {
        job->layer_of_edge[e] = SIZE_MAX;
        result->n_floats += nd_model_edge(model, e)->quant.n == 0;
    }
    for (size_t u = 0; u < nd_model_n_units(model); u++) {
        struct nd_alignment_layer *layer = &result->layers[u];
        result->n_layers = u + 1;
        job->layer_of_edge[nd_model_unit(model, u)->edge] = u;
        layer->name = nd_strdup(nd_model_unit(model, u)->name);
        layer->op_types = nd_strdup(nd_model_unit(model, u)->op_types);
        if (layer->name == NULL || layer->op_types == NULL)
            return nd_fail_memory(err);
    }
    result->model = nd_strdup(nd_model_path(model));
    if (job->options->float_model != NULL)
        result->float_model = nd_strdup(nd_model_path(job->options->float_model));
    return result->model != NULL && (job->options->float_model == NULL || result->float_model != NULL)
               ? ND_OK
               : nd_fail_memory(err);
}

enum nd_status nd_align_set_dim(struct nd_model *model, size_t input, int axis, int64_t n, struct nd_error *err)
{
    const struct nd_model_io *open = nd_model_input(model, input);
    struct nd_strbuf text = {0};
    if (open->dim_params[axis] != NULL)
        nd_strbuf_puts(&text, open->dim_params[axis]);
    else
        nd_strbuf_printf(&text, "%s:%d", open->name, axis);
    char *name = nd_strbuf_take(&text);
    enum nd_status status = name != NULL ? nd_model_set_dim(model, name, n, err) : nd_fail_memory(err);
    free(name);
    return status;
}

enum nd_status nd_align_take_dims(const struct nd_model *from, struct nd_model *to, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < nd_model_n_inputs(to); i++) {
        const struct nd_shape *known = &nd_model_input(from, i)->shape, *open = &nd_model_input(to, i)->shape;
        for (int d = 0; d < open->rank && status == ND_OK; d++)
            if (open->dims[d] < 0)
                status = nd_align_set_dim(to, i, d, known->dims[d], err);
    }
    return status;
}

void nd_align_count_states(struct nd_alignment *result)
{
    size_t *counts[] = {&result->n_proven, &result->n_tested, &result->n_unknown, &result->n_differ};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        *counts[i] = 0;
    for (size_t i = 0; i < result->n_layers; i++)
        ++*counts[result->layers[i].state];
    result->end = result->n_differ > 0    ? ND_ALIGN_END_DIFFERS
                  : result->n_unknown > 0 ? ND_ALIGN_END_UNKNOWN
                                          : ND_ALIGN_END_ALIGNED;
    if (result->n_devices > 0 && result->n_tensors_equal < result->n_tensors)
        result->end = ND_ALIGN_END_DIFFERS;
}
