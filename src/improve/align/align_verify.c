/* The aligned model on devices: one capture each, all compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "improve/align/align_stages.h"
#include "npudiff/compare/compare.h"
#include "record/sessions/capture_run.h"

struct verifier {
    struct nd_align_job *job;
    char **paths; /* [n_devices] */
    struct nd_capture **captures;
    size_t n_done;
};

static const char not_same_inputs[] = "it reads tensors that differ between the devices";
static const char was_refuted[] = "the devices differ although what the layer reads is equal";

/* A nd_device_task. */
static enum nd_status capture_one(void *context, size_t task, struct nd_error *err)
{
    struct verifier *v = context;
    const struct nd_align_options *options = v->job->options;
    struct nd_capture_options how;
    struct nd_error failure = {0};
    nd_capture_options_init(&how);
    how.skips_untouched = true;
    how.agent = options->agent;
    how.is_cancelled = options->is_cancelled;
    how.cancel_context = options->cancel_context;
    const struct nd_workload work = {v->job->aligned, options->devices[task], options->probes,
                                     options->n_probes};
    enum nd_status status =
        nd_capture_run_and_open(&work, v->paths[task], &how, &v->captures[task], &failure, err);
    if (failure.status != ND_OK) {
        *err = failure;
        nd_error_context(err, "the aligned model on '%s'", options->devices[task]->label);
        return err->status;
    }
    if (status == ND_OK)
        status = nd_align_tell(v->job, "capture", ++v->n_done, options->n_devices, err);
    return status;
}

static enum nd_status capture_all(struct verifier *v, struct nd_error *err)
{
    const struct nd_align_options *options = v->job->options;
    for (size_t d = 0; d < options->n_devices; d++) {
        char name[32];
        snprintf(name, sizeof name, "device%zu.h5", d);
        v->paths[d] = nd_path_join(v->job->folder, name);
        ND_TRY_MEMORY(v->paths[d] != NULL, err);
    }
    return nd_devices_run(options->devices, options->n_devices, 1, capture_one, v, err);
}

/* ---- what was seen ---- */

static const struct nd_compared_tensor *tensor_of(const struct nd_comparison *comparison, const char *name)
{
    for (size_t e = 0; e < comparison->n_tensors; e++)
        if (strcmp(comparison->tensors[e].name, name) == 0)
            return &comparison->tensors[e];
    return NULL;
}

/* Groups of identical devices, 0 where one has no data. */
static size_t n_groups_of(const struct nd_comparison *comparison, const struct nd_compared_tensor *tensor)
{
    int most = -1;
    for (size_t d = 0; tensor != NULL && d < comparison->n_devices; d++) {
        if (tensor->devices[d].class_id < 0)
            return 0;
        most = tensor->devices[d].class_id > most ? tensor->devices[d].class_id : most;
    }
    return tensor != NULL && tensor->comparable ? (size_t)(most + 1) : 0;
}

static bool has_equal_inputs(const struct nd_align_job *job, const struct nd_comparison *comparison,
                             size_t aligned_layer)
{
    const struct nd_model_layer *layer = nd_model_layer(job->aligned, aligned_layer);
    for (size_t i = 0; i < layer->n_inputs; i++) {
        const struct nd_tensor *input = nd_model_tensor(job->aligned, layer->inputs[i]);
        const struct nd_compared_tensor *tensor = tensor_of(comparison, input->name);
        if (!input->is_model_input && n_groups_of(comparison, tensor) != 1)
            return false;
        if (tensor != NULL && n_groups_of(comparison, tensor) > 1)
            return false;
    }
    return true;
}

static void judge(struct nd_align_job *job, struct nd_alignment_layer *layer)
{
    if (layer->n_groups == 0)
        return;
    if (layer->n_groups == 1) {
        if (layer->state == ND_ALIGN_UNKNOWN && layer->has_equal_inputs)
            layer->state = ND_ALIGN_TESTED;
    } else if (!layer->has_equal_inputs) {
        if (layer->state == ND_ALIGN_UNKNOWN)
            layer->reason = not_same_inputs;
    } else {
        job->result->n_refuted += layer->state == ND_ALIGN_PROVEN;
        layer->reason = was_refuted;
        layer->state = ND_ALIGN_DIFFERS;
    }
}

static enum nd_status read_comparison(struct nd_align_job *job, const struct nd_comparison *comparison,
                                      struct nd_error *err)
{
    struct nd_alignment *result = job->result;
    for (size_t i = 0; i < result->n_layers; i++) {
        struct nd_alignment_layer *layer = &result->layers[i];
        layer->n_groups = n_groups_of(comparison, tensor_of(comparison, layer->name));
        layer->has_equal_inputs = has_equal_inputs(job, comparison, i);
        judge(job, layer);
    }
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        size_t n_groups = n_groups_of(comparison, &comparison->tensors[e]);
        result->n_tensors += n_groups > 0;
        result->n_tensors_equal += n_groups == 1;
    }
    for (size_t p = 0; p < comparison->n_probes; p++)
        result->n_device_samples += comparison->probes[p].n_samples;
    result->groups = nd_strdup(comparison->classes_text);
    result->devices = nd_calloc(comparison->n_devices, sizeof *result->devices);
    result->environments = nd_calloc(comparison->n_devices, sizeof *result->environments);
    ND_TRY_MEMORY(result->groups != NULL && result->devices != NULL && result->environments != NULL, err);
    for (size_t d = 0; d < comparison->n_devices; d++) {
        result->devices[d] = nd_strdup(comparison->devices[d].label);
        result->environments[d] = nd_strdup(comparison->devices[d].environment);
        result->n_devices = d + 1;
        ND_TRY_MEMORY(result->devices[d] != NULL && result->environments[d] != NULL, err);
    }
    return ND_OK;
}

enum nd_status nd_align_verify(struct nd_align_job *job, struct nd_error *err)
{
    size_t n = job->options->n_devices;
    struct verifier v = {
        .job = job, .paths = nd_calloc(n, sizeof *v.paths), .captures = nd_calloc(n, sizeof *v.captures)};
    struct nd_comparison *comparison = NULL;
    struct nd_compare_options how = nd_compare_options_default();
    how.n_threads = job->options->n_threads;
    how.is_cancelled = job->options->is_cancelled;
    how.cancel_context = job->options->cancel_context;
    enum nd_status status = v.paths != NULL && v.captures != NULL ? capture_all(&v, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_compare_captures((const struct nd_capture *const *)v.captures, n, &how, &comparison, err);
    if (status == ND_OK)
        status = read_comparison(job, comparison, err);
    nd_comparison_destroy(&comparison);
    for (size_t d = 0; d < n; d++) {
        if (v.captures != NULL)
            nd_capture_close(&v.captures[d]);
        if (v.paths != NULL)
            free(v.paths[d]);
    }
    ND_FREE_ALL(v.captures, v.paths);
    return status;
}
