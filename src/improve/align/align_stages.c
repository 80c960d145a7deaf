/* What all stages of align use: products, samples, files, progress, and the end of an alignment.
 * docs/science/align.md. */
#include "improve/align/align_stages.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/parts.h"
#include "model/rewrite/fold.h"

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
    for (size_t i = 0; i < old->n_points; i++)
        free(old->points[i].layer);
    free(old->points);
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

bool nd_align_is_product(const char *op_types)
{
    static const char *const products[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        size_t n = strlen(products[i]);
        if (strncmp(op_types, products[i], n) == 0 && (op_types[n] == '\0' || op_types[n] == '+'))
            return true;
    }
    return false;
}

enum nd_status nd_align_name_file(struct nd_align_job *job, const char *name, char **path, struct nd_error *err)
{
    enum nd_status status = job->folder == NULL ? nd_dir_make_temporary(&job->folder, err) : ND_OK;
    *path = status == ND_OK ? nd_path_join(job->folder, name) : NULL;
    return status == ND_OK && *path == NULL ? nd_fail_memory(err) : status;
}

enum nd_status nd_align_write(struct nd_align_job *job, const struct nd_align_plan *plan, struct nd_error *err)
{
    struct nd_model *aligned = NULL;
    char *path;
    enum nd_status status = nd_align_name_file(job, "aligned.onnx", &path, err);
    if (status == ND_OK)
        status = nd_model_write_recoded(job->model, plan->nodes, plan->n_nodes, path, err);
    if (status == ND_OK)
        status = nd_model_load(path, &aligned, err);
    job->aligned = job->read_again = aligned;
    free(path);
    return status;
}

size_t nd_align_n_samples(const struct nd_align_options *options)
{
    size_t n = 0;
    for (size_t i = 0; i < options->n_probes; i++)
        n += options->probes[i]->n_samples;
    return options->n_samples > 0 && options->n_samples < n ? options->n_samples : n;
}

const struct nd_probe *nd_align_load_sample(const struct nd_align_job *job, size_t *sample,
                                            struct nd_array *inputs)
{
    const struct nd_align_options *options = job->options;
    size_t p = 0;
    while (*sample >= options->probes[p]->n_samples)
        *sample -= options->probes[p++]->n_samples;
    const struct nd_probe *probe = options->probes[p];
    for (size_t i = 0; i < probe->n_inputs; i++)
        nd_array_load(probe->inputs[i].dtype,
                      (const unsigned char *)probe->inputs[i].data + *sample * probe->inputs[i].sample_bytes,
                      inputs[i].n, inputs[i].x);
    return probe;
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
