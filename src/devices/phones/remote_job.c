/* A job as it is elsewhere: what it names is sent there, and named by its place there. */
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "model/graph/parts.h"
#include "devices/phones/remote.h"

/* ---- what is sent ---- */

static enum nd_status collect_runtime(struct nd_bundle *bundle, const struct nd_device *device,
                                      struct nd_error *err)
{
    const struct nd_runtime_info *runtime = &device->runtime;
    enum nd_runtime_need need = nd_device_is_npu(device->kind) ? ND_RUNTIME_FOR_NPU : ND_RUNTIME_FOR_CPU;
    const char *arch = device->chipset != NULL ? device->chipset->arch : NULL;
    bool is_npu = need == ND_RUNTIME_FOR_NPU;
    const char *const libraries[] = {runtime->ort_library, is_npu ? runtime->provider_library : NULL,
                                     is_npu ? runtime->backend_library : NULL};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < 3 && status == ND_OK; i++)
        if (libraries[i] != NULL && libraries[i][0] != '\0')
            status = nd_bundle_add(bundle, nd_path_base(libraries[i]), libraries[i], false, err);
    /* Flat: the loader looks for all of them in one folder. */
    for (size_t i = 0; i < runtime->n_files && status == ND_OK; i++)
        if (nd_runtime_file_serves(runtime->files[i], arch, need))
            status = nd_bundle_add(bundle, nd_path_base(runtime->files[i]), runtime->files[i], false, err);
    return status;
}

/* The files that a model keeps beside it, which lie beside each of its copies. */
static enum nd_status collect_beside(struct nd_bundle *bundle, const struct nd_model *model, const char *copy,
                                     struct nd_error *err)
{
    enum nd_status status = ND_OK;
    char *folder = nd_path_dir(copy);
    if (folder == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < nd_model_n_external(model) && status == ND_OK; i++) {
        const char *location = nd_model_external(model, i);
        char *path = nd_path_join(folder, location);
        status = path != NULL ? nd_bundle_add(bundle, location, path, false, err) : nd_fail_memory(err);
        free(path);
    }
    free(folder);
    return status;
}

static enum nd_status collect_models(struct nd_bundle *bundle, const struct nd_remote_run *run,
                                     struct nd_error *err)
{
    const struct nd_job *job = run->job;
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < job->n_passes && status == ND_OK; p++)
        status = nd_bundle_add(bundle, nd_path_base(job->passes[p].model), job->passes[p].model, false, err);
    return status == ND_OK && run->model != NULL ? collect_beside(bundle, run->model, job->passes[0].model, err)
                                                 : status;
}

static enum nd_status collect_agent(struct nd_remote *remote, const struct nd_remote_run *run,
                                    struct nd_error *err)
{
    char *path = NULL;
    enum nd_status status = nd_agent_find_abi(run->options->agent, remote->identity.abi, &path, err);
    if (status == ND_OK)
        status = nd_bundle_add(&remote->agent, "npudiff-agent", path, true, err);
    free(path);
    return status;
}

/* Agent and runtime are those of all runs on the machine, and measured again before each of them; a trial, of
 * which there may be many, believes what was measured on this connection. */
static enum nd_status send_all(struct nd_remote *remote, const struct nd_remote_run *run, struct nd_error *err)
{
    struct nd_bundle *bundles[] = {&remote->model, &remote->agent, &remote->runtime};
    enum nd_status status = ND_OK;
    if (remote->agent.n == 0)
        status = collect_agent(remote, run, err);
    if (status == ND_OK && remote->runtime.n == 0)
        status = collect_runtime(&remote->runtime, run->device, err);
    nd_bundle_deinit(&remote->model);
    if (status == ND_OK)
        status = collect_models(&remote->model, run, err);
    bool is_known = run->is_trial && remote->agent.folder != NULL && remote->runtime.folder != NULL;
    return status == ND_OK ? nd_bundles_place(bundles, is_known ? 1 : 3, remote->transport, remote->root,
                                              &remote->free_bytes, err)
                           : status;
}

/* ---- how it is called there ---- */

/* What is a file here, by its place there; anything else as it is. */
static enum nd_status translate(const struct nd_bundle *bundle, const char *text, char **out,
                                struct nd_error *err)
{
    enum nd_status status = nd_bundle_find(bundle, text, out, err);
    if (status == ND_OK && *out == NULL && (*out = nd_strdup(text != NULL ? text : "")) == NULL)
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status translate_options(const struct nd_remote *remote, const struct nd_job *job,
                                        struct nd_job *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    out->provider_options = nd_calloc(job->n_provider_options, sizeof *out->provider_options);
    out->n_provider_options = 0;
    if (out->provider_options == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < job->n_provider_options && status == ND_OK; i++) {
        struct nd_job_pair *pair = &out->provider_options[out->n_provider_options++];
        *pair = (struct nd_job_pair){.key = job->provider_options[i].key}; /* borrowed */
        status = translate(&remote->runtime, job->provider_options[i].value, &pair->value, err);
    }
    return status;
}

static enum nd_status translate_passes(const struct nd_remote *remote, const struct nd_job *job,
                                       struct nd_job *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    out->passes = nd_calloc(job->n_passes, sizeof *out->passes);
    out->n_passes = 0;
    if (out->passes == NULL)
        return nd_fail_memory(err);
    for (size_t p = 0; p < job->n_passes && status == ND_OK; p++) {
        struct nd_job_pass *pass = &out->passes[out->n_passes++];
        *pass = job->passes[p]; /* its checks are borrowed */
        status = translate(&remote->model, job->passes[p].model, &pass->model, err);
    }
    return status;
}

void nd_remote_job_free(struct nd_job *job)
{
    free(job->ort_library);
    free(job->provider_library);
    for (size_t i = 0; job->provider_options != NULL && i < job->n_provider_options; i++)
        free(job->provider_options[i].value);
    free(job->provider_options);
    for (size_t p = 0; job->passes != NULL && p < job->n_passes; p++)
        free(job->passes[p].model);
    free(job->passes);
    *job = (struct nd_job){0};
}

enum nd_status nd_remote_job_make(struct nd_remote *remote, const struct nd_remote_run *run, struct nd_job *out,
                                  char **agent, struct nd_error *err)
{
    struct nd_job job = *run->job; /* shares all but what is translated */
    char *agent_there = NULL;
    job.ort_library = NULL;
    job.provider_library = NULL;
    job.provider_options = NULL;
    job.passes = NULL;
    enum nd_status status = send_all(remote, run, err);
    if (status == ND_OK)
        status = translate(&remote->runtime, run->job->ort_library, &job.ort_library, err);
    if (status == ND_OK)
        status = translate(&remote->runtime, run->job->provider_library, &job.provider_library, err);
    if (status == ND_OK)
        status = translate_options(remote, run->job, &job, err);
    if (status == ND_OK)
        status = translate_passes(remote, run->job, &job, err);
    if (status == ND_OK)
        status = translate(&remote->agent, remote->agent.files[0].path, &agent_there, err);
    if (status != ND_OK) {
        nd_remote_job_free(&job);
        return status;
    }
    *out = job;
    *agent = agent_there;
    return ND_OK;
}
