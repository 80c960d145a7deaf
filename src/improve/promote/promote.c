#include "npudiff/improve/promote.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "improve/promote/promote_job.h"

/* Promoted at most, unless the caller says: "a few". Chosen. */
enum { FEW_LAYERS = 4 };

const char *nd_promotion_fate_name(enum nd_promotion_fate fate)
{
    static const char *const names[] = {"kept", "no-gain", "refused", "over-budget", "not-tried"};
    return names[fate];
}

void nd_promote_options_init_sized(struct nd_promote_options *options, size_t struct_size)
{
    const struct nd_promote_options own = {.n_layers = FEW_LAYERS, .budget_percent = (double)NAN};
    nd_options_write(options, struct_size, &own, sizeof own);
}

void nd_promoted_destroy(struct nd_promoted **promoted)
{
    struct nd_promoted *old = *promoted;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_layers; i++) {
        free(old->layers[i].name);
        free(old->layers[i].op_types);
        free(old->layers[i].reason);
        free(old->layers[i].device_db);
    }
    for (size_t d = 0; d < old->n_devices; d++)
        free(old->devices[d].label);
    free(old->layers);
    free(old->devices);
    free(old->model);
    free(old->float_model);
    free(old->output);
    free(old);
    *promoted = NULL;
}

enum nd_status nd_promote_tell(const struct nd_promote_job *job, const char *stage, size_t n_done,
                               size_t n_total, struct nd_error *err)
{
    const struct nd_promote_options *options = job->options;
    if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "cancelled");
    if (options->progress != NULL)
        options->progress(options->progress_context, stage, n_done, n_total);
    return ND_OK;
}

/* ---- before anything is done ---- */

static size_t n_quantised_edges(const struct nd_model *model)
{
    size_t n = 0;
    for (size_t e = 0; e < nd_model_n_edges(model); e++)
        n += nd_model_edge(model, e)->quant.n > 0;
    return n;
}

static bool has_io(const struct nd_model *model, const char *name, size_t n,
                   const struct nd_model_io *(*io)(const struct nd_model *, size_t))
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(io(model, i)->name, name) == 0)
            return true;
    return false;
}

static enum nd_status check_models(const struct nd_model *model, const struct nd_model *floats,
                                   struct nd_error *err)
{
    const char *path = nd_model_path(model), *float_path = nd_model_path(floats), *missing = NULL;
    if (n_quantised_edges(model) == 0)
        return nd_fail(err, ND_E_PROMOTE_FLOAT, path,
                       "'%s' has no quantised layer; only a model with QuantizeLinear and DequantizeLinear has "
                       "layers to promote",
                       path);
    if (n_quantised_edges(floats) > 0)
        return nd_fail(err, ND_E_PROMOTE_REFERENCE, float_path,
                       "'%s' is quantised itself; the model before quantisation is needed", float_path);
    for (size_t i = 0; i < nd_model_n_inputs(floats) && missing == NULL; i++)
        if (!has_io(model, nd_model_input(floats, i)->name, nd_model_n_inputs(model), nd_model_input))
            missing = nd_model_input(floats, i)->name;
    for (size_t i = 0; i < nd_model_n_outputs(model) && missing == NULL; i++)
        if (!has_io(floats, nd_model_output(model, i)->name, nd_model_n_outputs(floats), nd_model_output))
            missing = nd_model_output(model, i)->name;
    if (missing != NULL)
        return nd_fail(err, ND_E_PROMOTE_REFERENCE, float_path,
                       "'%s' is not the float model of '%s': only one of them has '%s'", float_path, path,
                       missing);
    return nd_model_check_static(model, err);
}

static enum nd_status check_options(const struct nd_promote_options *options, struct nd_error *err)
{
    if (options->float_model == NULL)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "the float model is needed: it says what is an error");
    if (options->n_probes == 0 || options->n_devices == 0)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "inputs and a device are needed to measure proposals");
    if (options->output != NULL && !options->replace && nd_path_exists(options->output))
        return nd_fail(err, ND_E_FILE_EXISTS, options->output, "'%s' exists already", options->output);
    return ND_OK;
}

/* ---- the stages ---- */

static enum nd_status name_things(struct nd_promote_job *job, struct nd_error *err)
{
    const struct nd_promote_options *options = job->options;
    struct nd_promoted *result = job->result;
    result->struct_size = sizeof *result;
    result->budget_percent = options->budget_percent;
    result->computed_before_db = result->computed_after_db = NAN;
    result->model = nd_strdup(nd_model_path(job->model));
    result->float_model = nd_strdup(nd_model_path(options->float_model));
    result->devices = nd_calloc(options->n_devices, sizeof *result->devices);
    job->now = nd_calloc(options->n_devices, sizeof *job->now);
    if (result->model == NULL || result->float_model == NULL || result->devices == NULL || job->now == NULL)
        return nd_fail_memory(err);
    for (size_t d = 0; d < options->n_devices; d++) {
        result->devices[d].label = nd_strdup(options->devices[d]->label);
        result->n_devices = d + 1;
        if (result->devices[d].label == NULL)
            return nd_fail_memory(err);
    }
    for (size_t p = 0; p < options->n_probes; p++)
        result->n_samples += options->probes[p]->n_samples;
    return nd_dir_make_temporary(&job->folder, err);
}

/* Which layers lose what, from the inputs of the first capture. */
static enum nd_status find_layers(struct nd_promote_job *job, struct nd_error *err)
{
    const struct nd_question question = {job->model, job->options->float_model,
                                         (const struct nd_capture *const *)job->captures,
                                         job->options->n_devices};
    const struct nd_explain_options how = {.struct_size = sizeof how,
                                           .n_harm_samples = ND_EFFECT_SAMPLES,
                                           .n_threads = job->options->n_threads,
                                           .is_cancelled = job->options->is_cancelled,
                                           .cancel_context = job->options->cancel_context};
    enum nd_status status = nd_promote_tell(job, "layers", 0, 1, err);
    if (status == ND_OK)
        status = nd_plan_make(&job->plan, &question, &how, err);
    if (status == ND_OK)
        status = nd_find_proposals(job, err);
    if (status != ND_OK)
        return status;
    job->result->computed_before_db = job->result->computed_after_db = nd_promotions_sqnr_db(job->promotions);
    job->result->n_computed_samples = nd_promotions_n_samples(job->promotions);
    return ND_OK;
}

static enum nd_status write_output(const struct nd_promote_job *job, struct nd_error *err)
{
    struct nd_widening what;
    struct nd_promoted *result = job->result;
    const char *path = job->options->output;
    if (result->n_kept == 0 || path == NULL)
        return ND_OK;
    enum nd_status status = nd_promotions_as_widening(job, job->kept, result->n_kept, &what, err);
    if (status != ND_OK)
        return status;
    status = nd_model_write_widened(job->model, &what, path, err);
    nd_widening_deinit(&what);
    result->output = status == ND_OK ? nd_strdup(path) : NULL;
    return status == ND_OK && result->output == NULL ? nd_fail_memory(err) : status;
}

static enum nd_status promote(struct nd_promote_job *job, struct nd_error *err)
{
    enum nd_status status = name_things(job, err);
    if (status == ND_OK)
        status = nd_promote_capture(job, err);
    if (status == ND_OK)
        status = nd_promote_measure(job, job->captures, job->now, err);
    for (size_t d = 0; d < job->result->n_devices && status == ND_OK; d++) {
        job->result->devices[d].before_db = job->now[d].sqnr_db;
        job->result->devices[d].n_labelled = job->now[d].n_labelled;
        job->result->devices[d].n_right_before = job->now[d].n_right;
    }
    if (status == ND_OK)
        status = find_layers(job, err);
    if (status == ND_OK)
        status = nd_try_proposals(job, err);
    for (size_t d = 0; d < job->result->n_devices && status == ND_OK; d++) {
        job->result->devices[d].after_db = job->now[d].sqnr_db;
        job->result->devices[d].n_right_after = job->now[d].n_right;
    }
    return status == ND_OK ? write_output(job, err) : status;
}

static void job_deinit(struct nd_promote_job *job)
{
    nd_promotions_destroy(&job->promotions);
    nd_plan_deinit(&job->plan);
    nd_capture_close(&job->floats);
    for (size_t d = 0; job->captures != NULL && d < job->options->n_devices; d++)
        nd_capture_close(&job->captures[d]);
    if (job->folder != NULL)
        nd_dir_remove(job->folder);
    free(job->captures);
    free(job->folder);
    free(job->order);
    free(job->kept);
    free(job->now);
    nd_promoted_destroy(&job->result);
}

enum nd_status nd_promote(const struct nd_model *model, const struct nd_promote_options *options,
                          struct nd_promoted **out, struct nd_error *err)
{
    struct nd_promote_options own;
    nd_promote_options_init(&own);
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status == ND_OK)
        status = check_options(&own, err);
    if (status == ND_OK)
        status = check_models(model, own.float_model, err);
    if (status != ND_OK)
        return status;
    own.n_layers = own.n_layers > 0 ? own.n_layers : FEW_LAYERS;
    struct nd_promote_job job = {.options = &own, .model = model, .result = nd_calloc(1, sizeof *job.result)};
    if (job.result == NULL)
        return nd_fail_memory(err);
    status = promote(&job, err);
    if (status == ND_OK) {
        *out = job.result;
        job.result = NULL;
    }
    job_deinit(&job);
    return status;
}
