/* The run of the untouched model beside a capture. docs/science/theory.md#observer. */
#include "core/files/file.h"
#include "core/memory.h"
#include "devices/device.h"
#include "record/sessions/assemble.h"
#include "record/sessions/capture_agent.h"
#include "record/sessions/untouched.h"

bool nd_untouched_is_wanted(const struct nd_capture_job *capture)
{
    const struct nd_capture_options *options = capture->options;
    size_t n_outputs = 0;
    for (size_t e = 0; e < capture->n_tensors; e++)
        n_outputs += capture->tensors[e].is_model_output;
    return !options->skips_untouched && !options->store_digests_only && !nd_capture_job_is_untouched(capture) &&
           !nd_device_is_evaluated(capture->device->kind) && n_outputs > 0 && n_outputs < capture->n_tensors &&
           nd_capture_job_n_samples(capture) > 0;
}

/* Of each probe so many samples, the first ones, run untouched. Chosen: what a runtime fuses it fuses in every
 * sample (6 of 6 in the network that showed it), and on the simulator a run of all 700 samples of a digit
 * classifier took 2.1 times the processor time of the capture without it. */
enum { MAX_SAMPLES = 32 };

/* The share of the capture's time limit for the untouched model. Chosen: as for sessions that are tried. */
static const double time_share = 0.5;

static enum nd_status assemble(const struct nd_capture_job *job, const char *folder,
                               const struct nd_agent_exit *exit, struct nd_capture_job *capture,
                               struct nd_error *err)
{
    struct nd_assembled assembled = {0};
    ND_FREED char *spool = nd_path_join(folder, "spool.nds"), *path = nd_path_join(job->folder, "untouched.h5");
    ND_FREED const struct nd_tensor **tensors = nd_calloc(job->n_tensors, sizeof *tensors);
    ND_TRY_MEMORY(spool != NULL && path != NULL && tensors != NULL, err);
    for (size_t i = 0; i < job->n_tensors; i++)
        tensors[i] = &job->tensors[i];
    const struct nd_assembly assembly = {.spool_path = spool,
                                         .path = path,
                                         .replace = true,
                                         .tensors = tensors,
                                         .pass_of_tensor = job->pass_of_tensor,
                                         .n_tensors = job->n_tensors,
                                         .n_passes = 1,
                                         .probes = job->probes,
                                         .n_probes = job->n_probes,
                                         .n_repeats = (size_t)job->job.n_repeats,
                                         .has_reruns = job->options->n_repeats == 0,
                                         .deflate_level = job->options->deflate_level,
                                         .model = job->model,
                                         .death = exit->error.id != 0 ? &exit->error : NULL,
                                         .death_stage = exit->stage,
                                         .is_reproducible = true};
    ND_TRY(nd_capture_assemble(&assembly, &assembled, err));
    bool is_whole = assembled.state == ND_CAPTURE_COMPLETE;
    char **to = is_whole ? &capture->untouched : &capture->untouched_why;
    *to = nd_strdup(is_whole ? path : assembled.failure.message);
    return *to != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_untouched_run(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                                struct nd_error *err)
{
    struct nd_capture_options options = *capture->options;
    options.tensors = "none";
    options.prefixes = options.profile = options.resume = false;
    options.progress = NULL; /* it would count the samples twice */
    options.time_limit_s *= time_share;
    ND_FREED char *own = nd_path_join(capture->folder, "untouched");
    ND_FREED struct nd_probe *first = nd_calloc(capture->n_probes, sizeof *first);
    ND_FREED const struct nd_probe **probes = nd_calloc(capture->n_probes, sizeof *probes);
    *folder = own != NULL ? nd_path_join(own, "run") : NULL;
    ND_TRY_MEMORY(*folder != NULL && first != NULL && probes != NULL, err);
    for (size_t p = 0; p < capture->n_probes; p++) {
        first[p] = *capture->probes[p];
        first[p].n_samples = first[p].n_samples < MAX_SAMPLES ? first[p].n_samples : MAX_SAMPLES;
        probes[p] = &first[p];
    }
    struct nd_capture_job job = {.model = capture->model,
                                 .device = capture->device,
                                 .probes = probes,
                                 .n_probes = capture->n_probes,
                                 .options = &options,
                                 .begun_ns = capture->begun_ns,
                                 .folder = own,
                                 .remote = capture->remote};
    enum nd_status status = nd_dir_make(own, err);
    if (status == ND_OK)
        status = nd_capture_job_init(&job, err);
    if (status == ND_OK)
        status = nd_job_run(capture, &job.job, *folder, &options, exit, err);
    if (status == ND_OK)
        status = assemble(&job, *folder, exit, capture, err);
    capture->n_untouched = 1;
    nd_capture_job_deinit(&job);
    return status;
}
