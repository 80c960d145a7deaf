#include "record/sessions/pass_trials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/spool/record_fields.h"
#include "devices/device.h"
#include "model/graph/parts.h"
#include "record/sessions/job_run.h"

/* A session is given up as stuck that takes this many times as long as that of the outputs alone. Chosen. */
static const double session_factor = 10;

/* Seconds that every session has, however quick that of the outputs was. Chosen. */
static const double min_session_limit_s = 30;

/* The share of the capture's time limit after which no more sessions are tried. Chosen. */
static const double trial_share = 0.5;

void nd_tries_deinit(struct nd_tries *trials)
{
    nd_fell_back_deinit(&trials->own);
    free(trials->outputs);
    trials->outputs = NULL;
}

/* ---- trials ---- */

static double elapsed_s(const struct nd_tries *trials)
{
    return (double)(nd_clock_awake_ns() - trials->capture->begun_ns) * 1e-9;
}

bool nd_tries_have_time(void *context)
{
    const struct nd_tries *trials = context;
    double limit_s = trials->capture->options->time_limit_s;
    return limit_s <= 0 || elapsed_s(trials) < trial_share * limit_s;
}

/* What a trial may use; many short sessions are one stage to whoever watches. */
static struct nd_capture_options limits_of(const struct nd_tries *trials)
{
    struct nd_capture_options limits = *trials->capture->options;
    limits.progress = NULL;
    limits.session_limit_s = trials->session_limit_s;
    limits.time_limit_s *= trial_share;
    return limits;
}

static enum nd_status run_trial(struct nd_tries *trials, const struct nd_job *job, const char *folder,
                                struct nd_tried *out, struct nd_error *err)
{
    const struct nd_capture_job *capture = trials->capture;
    const struct nd_capture_options limits = limits_of(trials);
    struct nd_agent_exit exit = {0};
    bool is_of_session;
    enum nd_status status = nd_job_run(capture, job, folder, &limits, &exit, err);
    /* A trial that never came to run tells nothing. */
    if (status == ND_OK && (exit.can_resume || (capture->remote != NULL && exit.stage != NULL)))
        status = nd_fail(err, (enum nd_error_id)exit.error.id, exit.error.object, "%s", exit.error.message);
    return status == ND_OK ? nd_tried_read(job, folder, &exit, out, &is_of_session, err) : status;
}

/* ---- outputs of one sample ---- */

/* The digests of a run's first sample; *digests stays NULL where there is none. n: how many there have to be.
 */
static enum nd_status read_digests(const char *folder, size_t n, struct nd_digest **digests,
                                   struct nd_error *err)
{
    struct nd_spool_reader reader = {0};
    struct nd_record record = {0};
    char *spool = nd_path_join(folder, "spool.nds");
    enum nd_status status = spool != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && nd_path_exists(spool))
        status = nd_spool_reader_open(&reader, spool, err);
    bool is_found = false;
    while (status == ND_OK && !is_found && nd_spool_next(&reader, &record))
        is_found = record.kind == ND_RECORD_SAMPLE;
    if (is_found && record.payload_bytes == n * sizeof **digests) {
        *digests = nd_calloc(n, sizeof **digests);
        if (*digests == NULL)
            status = nd_fail_memory(err);
        else
            memcpy(*digests, record.payload, n * sizeof **digests);
    }
    nd_spool_reader_close(&reader);
    free(spool);
    return status;
}

static enum nd_status add_tensor(const struct nd_capture_job *capture, size_t tensor, struct nd_job *job,
                                 struct nd_error *err)
{
    struct nd_job_tensor *added = &job->tensors[job->n_tensors];
    enum nd_status status =
        nd_capture_job_tensor(capture, nd_model_tensor(capture->model, tensor), tensor, added, err);
    job->n_tensors += status == ND_OK;
    return status;
}

/* Makes the job run the first sample, and record all outputs of the model of it, where with_outputs is set.
 * Tensors that are shown through floats are recorded, too, of one sample of every probe: of zeros alone, floats
 * of another encoding could look right. *probes: freed after the job. */
static enum nd_status add_samples(const struct nd_tries *trials, const size_t *tensors, size_t n_tensors,
                                  bool with_outputs, struct nd_job *job, struct nd_job_probe **probes,
                                  struct nd_error *err)
{
    const struct nd_capture_job *capture = trials->capture;
    enum nd_status status = ND_OK;
    bool is_any_float = false;
    job->tensors = nd_calloc(n_tensors, sizeof *job->tensors);
    *probes = nd_calloc(capture->n_probes, sizeof **probes);
    if (job->tensors == NULL || *probes == NULL)
        return nd_fail_memory(err);
    for (int of_outputs = 1; of_outputs >= 0; of_outputs--) /* the outputs come first */
        for (size_t i = 0; status == ND_OK && i < n_tensors; i++) {
            bool is_output = with_outputs && nd_model_tensor(capture->model, tensors[i])->is_model_output;
            bool is_float = capture->as_floats[tensors[i]];
            is_any_float = is_any_float || is_float;
            if (is_output == (of_outputs == 1) && (is_output || is_float))
                status = add_tensor(capture, tensors[i], job, err);
        }
    job->n_repeats = 1;
    job->store = ND_STORE_DIGEST;
    job->probes = *probes;
    job->n_probes = job->n_tensors == 0 ? 0 : is_any_float ? capture->n_probes : 1;
    for (size_t p = 0; p < job->n_probes; p++) {
        (*probes)[p] = capture->job.probes[p];
        (*probes)[p].n_samples = (*probes)[p].n_samples > 0;
        (*probes)[p].n_rerun = 0;
    }
    return status;
}

static bool has_outputs(const struct nd_tries *trials, const size_t *tensors, size_t n_tensors)
{
    size_t n = 0;
    for (size_t i = 0; i < n_tensors; i++)
        n += nd_model_tensor(trials->capture->model, tensors[i])->is_model_output;
    return n == trials->n_outputs;
}

static bool is_same(const struct nd_tries *trials, const struct nd_digest *digests)
{
    for (size_t i = 0; i < trials->n_outputs; i++)
        if (!nd_digest_equal(trials->outputs[i], digests[i]))
            return false;
    return true;
}

/* One session. digests: of the outputs in the first sample; NULL: not asked for. */
static enum nd_status try_session(struct nd_tries *trials, const size_t *tensors, size_t n_tensors,
                                  struct nd_tried *out, struct nd_digest **digests, struct nd_error *err)
{
    const struct nd_capture_job *capture = trials->capture;
    struct nd_job_probe *probes = NULL;
    struct nd_job job;
    size_t n_recorded = 0;
    char name[32];
    snprintf(name, sizeof name, "trial%u", trials->n++);
    char *folder = nd_path_join(capture->folder, name);
    if (folder == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_capture_job_trial(capture, tensors, n_tensors, &job, err);
    if (status == ND_OK) {
        job.is_fallback_allowed = true; /* what fell is read, also where some nodes may */
        status = add_samples(trials, tensors, n_tensors, digests != NULL, &job, &probes, err);
        if (status == ND_OK)
            status = run_trial(trials, &job, folder, out, err);
        n_recorded = job.n_tensors;
        nd_capture_job_free_trial(&job);
    }
    if (status == ND_OK && digests != NULL)
        status = read_digests(folder, n_recorded, digests, err);
    if (status == ND_OK) {
        nd_fell_back_subtract(&out->fell_back, &trials->own);
        out->holds = out->reason[0] == '\0' && out->fell_back.n == 0;
    }
    nd_dir_remove(folder);
    free(folder);
    free(probes);
    return status;
}

enum nd_status nd_tries_try(void *context, const size_t *tensors, size_t n_tensors, struct nd_tried *out,
                            struct nd_error *err)
{
    struct nd_tries *trials = context;
    struct nd_digest *digests = NULL;
    bool with_sample = trials->with_sample && has_outputs(trials, tensors, n_tensors);
    enum nd_status status = try_session(trials, tensors, n_tensors, out, with_sample ? &digests : NULL, err);
    if (status == ND_OK && out->holds && digests != NULL && !is_same(trials, digests)) {
        snprintf(out->reason, sizeof out->reason, "recording it changes the outputs of the model");
        out->holds = false;
    }
    free(digests);
    return status;
}

/* The session of the outputs alone, with a sample where there is one. */
static enum nd_status try_outputs(struct nd_tries *trials, struct nd_tried *out, struct nd_digest **digests,
                                  struct nd_error *err)
{
    const struct nd_model *model = trials->capture->model;
    size_t n = 0;
    size_t *outputs = nd_calloc(nd_model_n_tensors(model), sizeof *outputs);
    if (outputs == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (nd_model_tensor(model, e)->is_model_output)
            outputs[n++] = e;
    trials->n_outputs = n;
    bool has_sample = trials->capture->n_probes > 0 && trials->capture->probes[0]->n_samples > 0;
    enum nd_status status = try_session(trials, outputs, n, out, has_sample ? digests : NULL, err);
    free(outputs);
    return status;
}

bool nd_tries_use_floats(void *context, size_t tensor, bool as_floats)
{
    struct nd_tries *trials = context;
    return nd_capture_job_use_floats(trials->capture, tensor, as_floats);
}

/* Of the outputs that the model itself gives as floats. Whether that changes any of them. */
static bool use_floats_of_outputs(struct nd_tries *trials, bool as_floats)
{
    const struct nd_model *model = trials->capture->model;
    struct nd_dequantised floats;
    bool is_any = false;
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (nd_model_tensor(model, e)->is_model_output && nd_model_find_dequantised(model, e, &floats) &&
            strcmp(floats.tensor, nd_model_tensor(model, e)->name) == 0)
            is_any |= nd_tries_use_floats(trials, e, as_floats);
    return is_any;
}

/* Tries the outputs through floats, after codes gave `trial`. A better session replaces *trial and its digests.
 * It can be better and still fail to give codes: where ONNX Runtime merges two quantisers, the floats are those
 * of another encoding. Then its nodes count, and the outputs are tried one by one as other tensors are. */
static enum nd_status try_floats(struct nd_tries *trials, struct nd_tried *trial, struct nd_error *err)
{
    struct nd_tried floats = {0};
    struct nd_digest *digests = NULL;
    if (!use_floats_of_outputs(trials, true))
        return ND_OK;
    enum nd_status status = try_outputs(trials, &floats, &digests, err);
    bool has_qvalues = floats.reason[0] == '\0';
    bool is_better = status == ND_OK && (has_qvalues || floats.is_placed) &&
                     (trial->reason[0] != '\0' || floats.fell_back.n < trial->fell_back.n);
    if (is_better) {
        nd_tried_deinit(trial);
        free(trials->outputs);
        trials->outputs = digests;
        trials->do_outputs_hold = has_qvalues;
        *trial = floats;
        trial->reason[0] = '\0';
        if (has_qvalues)
            return ND_OK;
    } else {
        nd_tried_deinit(&floats);
        free(digests);
    }
    use_floats_of_outputs(trials, false);
    return status;
}

enum nd_status nd_tries_begin(struct nd_tries *trials, bool *holds, struct nd_error *err)
{
    struct nd_tried trial = {0};
    double begun_s = elapsed_s(trials);
    trials->do_outputs_hold = true;
    enum nd_status status = try_outputs(trials, &trial, &trials->outputs, err);
    double limit_s = session_factor * (elapsed_s(trials) - begun_s);
    trials->session_limit_s = limit_s > min_session_limit_s ? limit_s : min_session_limit_s;
    if (status == ND_OK && !trial.holds)
        status = try_floats(trials, &trial, err);
    *holds = status == ND_OK && trial.reason[0] == '\0';
    trials->own = trial.fell_back;
    trial.fell_back = (struct nd_fell_back){0};
    nd_tried_deinit(&trial);
    return status;
}

enum nd_status nd_tries_use_sample(struct nd_tries *trials, bool *is_steady, struct nd_error *err)
{
    struct nd_tried trial = {0};
    struct nd_digest *digests = NULL;
    enum nd_status status = try_outputs(trials, &trial, &digests, err);
    *is_steady = status == ND_OK && digests != NULL && trials->outputs != NULL && is_same(trials, digests);
    trials->with_sample = *is_steady;
    free(digests);
    nd_tried_deinit(&trial);
    return status;
}

enum nd_status nd_tries_agree(const struct nd_tries *trials, const char *folder, bool *do_agree,
                              struct nd_error *err)
{
    const struct nd_capture_job *capture = trials->capture;
    struct nd_digest *digests = NULL;
    size_t n = 0, n_seen = 0, n_pass = 0;
    *do_agree = true;
    for (size_t e = 0; e < capture->n_tensors; e++)
        n_pass += capture->pass_of_tensor[e] == 0;
    enum nd_status status = read_digests(folder, n_pass, &digests, err);
    for (size_t e = 0; status == ND_OK && digests != NULL && e < capture->n_tensors; e++) {
        if (capture->pass_of_tensor[e] != 0)
            continue;
        if (capture->tensors[e].is_model_output && trials->outputs != NULL && n < trials->n_outputs)
            *do_agree = nd_digest_equal(digests[n_seen], trials->outputs[n++]) && *do_agree;
        n_seen++;
    }
    /* Of some outputs alone it is not known which they are. */
    *do_agree = *do_agree || n != trials->n_outputs;
    free(digests);
    return status;
}
