#include "npudiff/improve/sweep.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "improve/sweep/sweep_job.h"

void nd_sweep_options_init_sized(struct nd_sweep_options *options, size_t struct_size)
{
    const struct nd_sweep_options own = {0};
    nd_options_write(options, struct_size, &own, sizeof own);
}

void nd_sweep_destroy(struct nd_sweep **sweep)
{
    struct nd_sweep *old = *sweep;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_settings; i++) {
        free(old->settings[i].option);
        free(old->settings[i].value);
        free(old->settings[i].uri);
        free(old->settings[i].failure);
        free(old->settings[i].first);
    }
    free(old->settings);
    free(old->model);
    free(old->device);
    free(old->environment);
    free(old);
    *sweep = NULL;
}

static enum nd_status sweep(struct nd_sweep_job *job, struct nd_error *err)
{
    struct nd_sweep *result = job->result;
    result->struct_size = sizeof *result;
    for (size_t p = 0; p < job->options->n_probes; p++)
        result->n_samples += job->options->probes[p]->n_samples;
    enum nd_status status = nd_sweep_list(job, err);
    if (status != ND_OK)
        return status;
    result->model = nd_strdup(nd_model_path(job->model));
    result->device = nd_strdup(job->devices[0].label);
    if (result->model == NULL || result->device == NULL)
        return nd_fail_memory(err);
    status = nd_dir_make_temporary(&job->folder, err);
    return status == ND_OK ? nd_sweep_run(job, err) : status;
}

enum nd_status nd_sweep(const struct nd_model *model, const struct nd_sweep_options *options,
                        struct nd_sweep **out, struct nd_error *err)
{
    struct nd_sweep_options own;
    nd_sweep_options_init(&own);
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status == ND_OK && (own.device == NULL || own.n_probes == 0))
        status = nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "a device and inputs are needed");
    if (status == ND_OK)
        status = nd_model_check_static(model, err);
    if (status != ND_OK)
        return status;
    struct nd_sweep_job job = {.options = &own, .model = model, .result = nd_calloc(1, sizeof *job.result)};
    if (job.result == NULL)
        return nd_fail_memory(err);
    status = sweep(&job, err);
    if (status == ND_OK) {
        *out = job.result;
        job.result = NULL;
    }
    for (size_t d = 0; d < job.n_devices; d++)
        nd_device_deinit(&job.devices[d]);
    if (job.folder != NULL)
        nd_dir_remove(job.folder);
    free(job.devices);
    free(job.folder);
    nd_sweep_destroy(&job.result);
    return status;
}
