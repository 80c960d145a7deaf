/* The agents of a capture: one session, run here or elsewhere, and what its spool says it did; the run, whole
 * or in passes (docs/reference/devices.md#passes); and sessions that are only tried, to see where nodes go. */
#include <stdio.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/agent/spool/spool.h"
#include "devices/launch.h"
#include "devices/phones/remote.h"
#include "model/graph/parts.h"
#include "record/sessions/capture_run.h"
#include "record/sessions/untouched.h"

/* ---- reads from a spool what the last session of a run did ---- */

/* What a spool says of its last session. */
struct session_facts {
    struct nd_fell_back fell_back;
    size_t capacity;
    char stage[32]; /* the last that was entered */
    bool has_ended;
    uint64_t failure; /* error id; 0: none */
    char message[256];
};

static enum nd_status take_fact(const struct nd_record *record, struct session_facts *facts,
                                struct nd_error *err)
{
    struct nd_fell_back *fallen = &facts->fell_back;
    uint64_t is_fell_back;
    if (record->kind == ND_RECORD_PASS) {
        nd_fell_back_deinit(fallen);
        facts->capacity = 0;
    } else if (record->kind == ND_RECORD_NODE && nd_fields_get_u64(record, "fell_back", &is_fell_back)) {
        ND_TRY_MEMORY(nd_grow((void **)&fallen->names, &facts->capacity, fallen->n + 1, sizeof *fallen->names),
                      err);
        fallen->names[fallen->n] = nd_fields_text(record, "name");
        ND_TRY_MEMORY(fallen->names[fallen->n] != NULL, err);
        fallen->n++;
    } else if (record->kind == ND_RECORD_STAGE) {
        nd_fields_copy(record, "stage", facts->stage, sizeof facts->stage);
    } else if (record->kind == ND_RECORD_FAILURE) {
        nd_fields_get_u64(record, "code", &facts->failure);
        nd_fields_copy(record, "message", facts->message, sizeof facts->message);
    } else if (record->kind == ND_RECORD_END) {
        facts->has_ended = true;
    }
    return ND_OK;
}

/* How a run ended that is no matter of placement. */
static void judge_end(const struct session_facts *facts, const struct nd_agent_exit *exit,
                      struct nd_tried *trial, bool *is_of_session)
{
    bool has_fell_back = facts->failure == ND_E_DEVICE_FALLBACK;
    bool is_in_session = strcmp(facts->stage, "session") == 0;
    if (!facts->has_ended && !has_fell_back)
        snprintf(trial->reason, sizeof trial->reason, "%.255s",
                 facts->failure != 0   ? facts->message
                 : exit->error.id != 0 ? exit->error.message
                                       : "the agent ended without a word");
    *is_of_session = facts->has_ended || has_fell_back || is_in_session;
    trial->is_placed = facts->has_ended || strcmp(facts->stage, "run") == 0;
    trial->holds = facts->has_ended && trial->fell_back.n == 0;
}

/* What the session of a run in `folder` did: its last, from its spool. trial->reason is empty where nodes fell.
 * *is_of_session: it held, or it did not for a reason of the session itself, which another set of tensors may
 * not have; false: it failed before or behind that. Freed by nd_tried_deinit. */
static enum nd_status nd_tried_read(const char *folder, const struct nd_agent_exit *exit, struct nd_tried *out,
                                    bool *is_of_session, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried trial = {0};
    struct session_facts facts = {0};
    ND_CLEANUP(nd_spool_reader_close) struct nd_spool_reader reader = {0};
    struct nd_record record;
    ND_FREED char *spool = nd_path_join(folder, "spool.nds");
    enum nd_status status = spool != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && nd_path_exists(spool))
        status = nd_spool_reader_open(&reader, spool, err);
    while (status == ND_OK && nd_spool_next(&reader, &record))
        status = take_fact(&record, &facts, err);
    trial.fell_back = facts.fell_back;
    judge_end(&facts, exit, &trial, is_of_session);
    return status == ND_OK ? ND_GIVE(out, trial) : status;
}

/* ---- KEEP ---- */

/* The agents of a capture: the run, whole or in passes, and sessions that are only tried, to see where their
 * nodes go (docs/reference/capture-format.md). */

struct nd_tries {
    struct nd_capture_job *capture;
    unsigned int n;          /* sessions tried */
    struct nd_fell_back own; /* nodes that fall when nothing but the outputs is recorded: looking is not why */
    double session_limit_s;  /* for a session to come to be; 0: the capture's own limits */
    struct nd_digest *outputs; /* [n_outputs] what the first sample gives when nothing else is recorded */
    size_t n_outputs;          /* of the model */
    bool do_outputs_hold;      /* their session gives all of them as they are recorded */
    bool with_sample;          /* a session that gives other outputs does not hold */
};

/* A session is given up as stuck that takes this many times as long as that of the outputs alone. Chosen. */
static const double session_factor = 10;

/* Seconds that every session has, however quick that of the outputs was. Chosen. */
static const double min_session_limit_s = 30;

/* The share of the capture's time limit after which no more sessions are tried. Chosen. */
static const double trial_share = 0.5;

static void nd_tries_deinit(struct nd_tries *trials)
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

static bool nd_tries_have_time(void *context)
{
    const struct nd_tries *trials = context;
    double limit_s = trials->capture->options->time_limit_s;
    return limit_s <= 0 || elapsed_s(trials) < trial_share * limit_s;
}

static enum nd_status run_trial(struct nd_tries *trials, const struct nd_agent_job *job, const char *folder,
                                struct nd_tried *out, struct nd_error *err)
{
    const struct nd_capture_job *capture = trials->capture;
    /* What a trial may use; many short sessions are one stage to whoever watches. */
    struct nd_capture_options limits = *trials->capture->options;
    limits.progress = NULL;
    limits.session_limit_s = trials->session_limit_s;
    limits.time_limit_s *= trial_share;
    struct nd_agent_exit exit = {0};
    bool is_of_session;
    enum nd_status status = nd_job_run(capture, job, folder, &limits, &exit, err);
    /* A trial that never came to run tells nothing. */
    if (status == ND_OK && (exit.can_resume || (capture->remote != NULL && exit.stage != NULL)))
        status = nd_fail(err, (enum nd_error_id)exit.error.id, exit.error.object, "%s", exit.error.message);
    return status == ND_OK ? nd_tried_read(folder, &exit, out, &is_of_session, err) : status;
}

/* ---- outputs of one sample ---- */

/* The digests of a run's first sample; *digests stays NULL where there is none. n: how many there must be. */
static enum nd_status read_digests(const char *folder, size_t n, struct nd_digest **digests,
                                   struct nd_error *err)
{
    ND_CLEANUP(nd_spool_reader_close) struct nd_spool_reader reader = {0};
    struct nd_record record = {0};
    ND_FREED char *spool = nd_path_join(folder, "spool.nds");
    ND_TRY_MEMORY(spool != NULL, err);
    if (nd_path_exists(spool))
        ND_TRY(nd_spool_reader_open(&reader, spool, err));
    bool is_found = false;
    while (!is_found && nd_spool_next(&reader, &record))
        is_found = record.kind == ND_RECORD_SAMPLE;
    if (is_found && record.payload_bytes == n * sizeof **digests) {
        *digests = nd_calloc(n, sizeof **digests);
        ND_TRY_MEMORY(*digests != NULL, err);
        ND_TRY(nd_spool_load(&reader, record.offset_bytes, *digests, n * sizeof **digests, err));
    }
    return ND_OK;
}

static enum nd_status add_tensor(const struct nd_capture_job *capture, size_t tensor, struct nd_agent_job *job,
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
                                  bool with_outputs, struct nd_agent_job *job, struct nd_job_probe **probes,
                                  struct nd_error *err)
{
    const struct nd_capture_job *capture = trials->capture;
    enum nd_status status = ND_OK;
    bool is_any_float = false;
    job->tensors = nd_calloc(n_tensors, sizeof *job->tensors);
    *probes = nd_calloc(capture->n_probes, sizeof **probes);
    ND_TRY_MEMORY(job->tensors != NULL && *probes != NULL, err);
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
    ND_FREED struct nd_job_probe *probes = NULL;
    struct nd_agent_job job;
    size_t n_recorded = 0;
    char name[32];
    snprintf(name, sizeof name, "trial%u", trials->n++);
    ND_FREED char *folder = nd_path_join(capture->folder, name);
    ND_TRY_MEMORY(folder != NULL, err);
    enum nd_status status = nd_capture_job_trial(capture, tensors, n_tensors, &job, err);
    if (status == ND_OK) {
        job.is_fallback_allowed = true; /* what fell is read, also where some nodes may */
        status = add_samples(trials, tensors, n_tensors, digests != NULL, &job, &probes, err);
        if (status == ND_OK)
            status = run_trial(trials, &job, folder, out, err);
        n_recorded = job.n_tensors;
        nd_capture_job_free_passes(&job);
    }
    if (status == ND_OK && digests != NULL)
        status = read_digests(folder, n_recorded, digests, err);
    if (status == ND_OK) {
        nd_fell_back_subtract(&out->fell_back, &trials->own);
        out->holds = out->reason[0] == '\0' && out->fell_back.n == 0;
    }
    nd_dir_remove(folder);
    return status;
}

/* nd_session_trial and nd_recording.has_time; context: struct nd_tries. */
static enum nd_status nd_tries_try(void *context, const size_t *tensors, size_t n_tensors, struct nd_tried *out,
                                   struct nd_error *err)
{
    struct nd_tries *trials = context;
    ND_FREED struct nd_digest *digests = NULL;
    bool with_sample = trials->with_sample && has_outputs(trials, tensors, n_tensors);
    ND_TRY(try_session(trials, tensors, n_tensors, out, with_sample ? &digests : NULL, err));
    if (out->holds && digests != NULL && !is_same(trials, digests)) {
        snprintf(out->reason, sizeof out->reason, "recording it changes the outputs of the model");
        out->holds = false;
    }
    return ND_OK;
}

/* The session of the outputs alone, with a sample where there is one. */
static enum nd_status try_outputs(struct nd_tries *trials, struct nd_tried *out, struct nd_digest **digests,
                                  struct nd_error *err)
{
    const struct nd_model *model = trials->capture->model;
    size_t n = 0;
    ND_FREED size_t *outputs = nd_calloc(nd_model_n_tensors(model), sizeof *outputs);
    ND_TRY_MEMORY(outputs != NULL, err);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (nd_model_tensor(model, e)->is_model_output)
            outputs[n++] = e;
    trials->n_outputs = n;
    bool has_sample = trials->capture->n_probes > 0 && trials->capture->probes[0]->n_samples > 0;
    return try_session(trials, outputs, n, out, has_sample ? digests : NULL, err);
}

/* Records a tensor of the model, by its index, through the floats that its DequantizeLinear makes, or again as
 * quantised values. */
static bool nd_capture_job_use_floats(struct nd_capture_job *capture, size_t tensor, bool as_floats)
{
    struct nd_dequantised floats;
    if (!nd_model_find_dequantised(capture->model, tensor, &floats) || capture->as_floats[tensor] == as_floats)
        return false;
    if (!as_floats)
        nd_job_remove_float_node(&capture->job, floats.node);
    else if (!nd_job_add_float_node(&capture->job, floats.node))
        return false;
    capture->as_floats[tensor] = as_floats;
    return true;
}

/* nd_recording.use_floats; context: struct nd_tries. */
static bool nd_tries_use_floats(void *context, size_t tensor, bool as_floats)
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

/* The least that a capture can show: tries the session that exposes the model's outputs alone, and keeps the
 * nodes that fall there as the device's own, and how long it took as the measure of all others. *holds is false
 * where there is no such session. Where the codes of the outputs are not to be had without a node that falls,
 * but their floats are, as the model gives them, the outputs are recorded through their floats from then on. */
static enum nd_status nd_tries_begin(struct nd_tries *trials, bool *holds, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried trial = {0};
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
    return status;
}

/* From now on every session that exposes all outputs of the model also runs the first sample. *is_steady is
 * false where the session of the outputs alone gives others now than before: then nothing can be told. */
static enum nd_status nd_tries_use_sample(struct nd_tries *trials, bool *is_steady, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried trial = {0};
    ND_FREED struct nd_digest *digests = NULL;
    enum nd_status status = try_outputs(trials, &trial, &digests, err);
    *is_steady = status == ND_OK && digests != NULL && trials->outputs != NULL && is_same(trials, digests);
    trials->with_sample = *is_steady;
    return status;
}

/* Whether the outputs that the first pass of a run recorded for the first sample are those of the session of
 * the outputs alone; true as well where that is not known. */
static enum nd_status nd_tries_agree(const struct nd_tries *trials, const char *folder, bool *do_agree,
                                     struct nd_error *err)
{
    const struct nd_capture_job *capture = trials->capture;
    ND_FREED struct nd_digest *digests = NULL;
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
    return status;
}

void nd_capture_report_stage(const struct nd_capture_job *capture, const char *stage, double elapsed_s)
{
    if (capture->options->progress == NULL)
        return;
    const struct nd_capture_progress progress = {.device = capture->device->label,
                                                 .stage = stage,
                                                 .samples_total = nd_capture_job_n_samples(capture),
                                                 .elapsed_s = elapsed_s};
    capture->options->progress(capture->options->progress_context, &progress);
}

/* ---- what the plan says ---- */

/* Leaves out the tensors that no session shows, and says so. The plan's positions stay those of before. */
static enum nd_status leave_out(struct nd_capture_job *capture, const struct nd_pass_plan *plan,
                                struct nd_error *err)
{
    enum { MAX_TEXT = 60000 }; /* a text that is stored with a file has at most 64 KiB */
    struct nd_strbuf text = {0};
    size_t n = 0;
    if (capture->left_out != NULL) /* by an earlier plan */
        nd_strbuf_printf(&text, "%s", capture->left_out);
    free(capture->left_out);
    capture->left_out = NULL;
    for (size_t e = 0; e < plan->n_tensors; e++) {
        if (plan->pass_of_tensor[e] == SIZE_MAX) {
            if (text.len + strlen(capture->tensors[e].name) + strlen(plan->reasons[e]) + 2 < MAX_TEXT)
                nd_strbuf_printf(&text, "%s%s\t%s", text.len > 0 ? "\n" : "", capture->tensors[e].name,
                                 plan->reasons[e]);
            nd_tensor_deinit(&capture->tensors[e]);
            capture->n_left_out++;
            continue;
        }
        capture->tensors[n] = capture->tensors[e];
        capture->selected[n] = capture->selected[e];
        capture->pass_of_tensor[n++] = plan->pass_of_tensor[e];
    }
    capture->n_tensors = n;
    capture->left_out = capture->n_left_out > 0 ? nd_strbuf_take(&text) : NULL;
    nd_strbuf_deinit(&text);
    return capture->n_left_out == 0 || capture->left_out != NULL ? ND_OK : nd_fail_memory(err);
}

/* Where a tensor of the plan stands when those left out are gone; one that has a pass. */
static size_t new_position(const struct nd_pass_plan *plan, size_t tensor)
{
    size_t n = 0;
    for (size_t e = 0; e < tensor; e++)
        n += plan->pass_of_tensor[e] != SIZE_MAX;
    return n;
}

static enum nd_status use_plan(struct nd_capture_job *capture, const struct nd_pass_plan *plan,
                               struct nd_error *err)
{
    for (size_t p = 0; p < plan->n_passes; p++)
        for (size_t i = 0; i < plan->passes[p].n_checks; i++)
            plan->passes[p].checks[i] = new_position(plan, plan->passes[p].checks[i]);
    enum nd_status status = leave_out(capture, plan, err);
    return status == ND_OK ? nd_capture_job_set_passes(capture, plan->n_passes, plan->passes, err) : status;
}

/* The names, one a line, for the capture. */
static enum nd_status note_moved(struct nd_capture_job *capture, const struct nd_fell_back *moved,
                                 struct nd_error *err)
{
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < moved->n; i++)
        nd_strbuf_printf(&text, "%s%s", i > 0 ? "\n" : "", moved->names[i]);
    capture->moved = nd_strbuf_take(&text);
    return capture->moved != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- tensors that a run could not give, as its spool says, and its sessions without them ---- */

static enum nd_status leave_out_one(struct nd_pass_plan *plan, size_t tensor, const char *reason,
                                    struct nd_error *err)
{
    if (plan->reasons[tensor] == NULL)
        plan->reasons[tensor] = nd_strdup(reason);
    return plan->reasons[tensor] != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status leave_out_missing(const struct nd_capture_job *capture, const struct nd_record *record,
                                        struct nd_pass_plan *plan, struct nd_error *err)
{
    ND_FREED char *output = nd_fields_text(record, "output"), *reason = nd_fields_text(record, "reason");
    ND_TRY_MEMORY(output != NULL && reason != NULL, err);
    for (size_t e = 0; e < capture->n_tensors; e++)
        if (strcmp(capture->tensors[e].onnx_name, output) == 0)
            ND_TRY(leave_out_one(plan, e, reason, err));
    return ND_OK;
}

/* The tensor that the failure names gave something different from what was announced: it is left out. Or what
 * the pass gives for a tensor of the first one is not what that gave: then all are left out that it records. */
static enum nd_status leave_out_changed(const struct nd_capture_job *capture, const struct nd_record *record,
                                        size_t pass, struct nd_pass_plan *plan, struct nd_error *err)
{
    uint64_t code = 0;
    ND_FREED char *output = nd_fields_text(record, "object"), *said = nd_fields_text(record, "message");
    ND_TRY_MEMORY(output != NULL && said != NULL, err);
    nd_fields_get_u64(record, "code", &code);
    for (size_t e = 0; code == ND_E_DEVICE_OUTPUT && e < capture->n_tensors; e++) {
        if (strcmp(capture->job.tensors[e].output, output) != 0)
            continue;
        if (capture->pass_of_tensor[e] == pass)
            return leave_out_one(plan, e, said, err);
        ND_FREED char *reason = nd_text("recording it changes the values of '%s'", capture->tensors[e].name);
        ND_TRY_MEMORY(reason != NULL, err);
        for (size_t x = 0; x < capture->n_tensors; x++)
            if (capture->pass_of_tensor[x] == pass)
                ND_TRY(leave_out_one(plan, x, reason, err));
    }
    return ND_OK;
}

static enum nd_status read_missing(const struct nd_capture_job *capture, const char *spool,
                                   struct nd_pass_plan *plan, struct nd_error *err)
{
    ND_CLEANUP(nd_spool_reader_close) struct nd_spool_reader reader = {0};
    struct nd_record record;
    size_t pass = 0;
    ND_TRY(nd_spool_reader_open(&reader, spool, err));
    while (nd_spool_next(&reader, &record))
        if (record.kind == ND_RECORD_PASS)
            pass = (size_t)record.index[0];
        else if (record.kind == ND_RECORD_MISSING)
            ND_TRY(leave_out_missing(capture, &record, plan, err));
        else if (record.kind == ND_RECORD_FAILURE)
            ND_TRY(leave_out_changed(capture, &record, pass, plan, err));
    return ND_OK;
}

/* The passes as they are, less what is left out. n_passes stays 0 where there is nothing to plan: none is left
 * out, or an output of the model is, or all that the first pass records, which the others are held against. */
static enum nd_status keep_passes(const struct nd_capture_job *capture, struct nd_pass_plan *plan,
                                  struct nd_error *err)
{
    size_t n_left_out = 0, n_first = 0, n_passes = 0;
    for (size_t e = 0; e < capture->n_tensors; e++) {
        if (plan->reasons[e] != NULL && capture->tensors[e].is_model_output)
            return ND_OK;
        n_left_out += plan->reasons[e] != NULL;
        n_first += plan->reasons[e] == NULL && capture->pass_of_tensor[e] == 0;
    }
    for (size_t p = 0; n_left_out > 0 && n_first > 0 && p < capture->job.n_passes; p++) {
        const struct nd_job_pass *old = &capture->job.passes[p];
        struct nd_planned_pass *pass = &plan->passes[n_passes];
        bool is_any = false;
        for (size_t e = 0; e < capture->n_tensors; e++) {
            if (capture->pass_of_tensor[e] != p)
                continue;
            plan->pass_of_tensor[e] = plan->reasons[e] == NULL ? n_passes : SIZE_MAX;
            is_any = is_any || plan->reasons[e] == NULL;
        }
        if (!is_any)
            continue;
        pass->checks = nd_calloc(old->n_checks, sizeof *pass->checks);
        plan->n_passes = ++n_passes;
        ND_TRY_MEMORY(pass->checks != NULL, err);
        for (size_t i = 0; i < old->n_checks; i++)
            if (plan->reasons[old->checks[i]] == NULL)
                pass->checks[pass->n_checks++] = old->checks[i];
    }
    return ND_OK;
}

/* Reads from the run in `folder` which tensors it could not give (those that a runner lacks, those that came
 * out different from what was announced, and those whose recording changes others), and plans its sessions
 * without them. plan->n_passes is 0 where there is nothing to plan: none is missing, or an output of the model
 * is, or all that the first session records. Freed by nd_pass_plan_deinit, on success only. */
static enum nd_status plan_without_missing(const struct nd_capture_job *capture, const char *folder,
                                           struct nd_pass_plan *plan, struct nd_error *err)
{
    ND_CLEANUP(nd_pass_plan_deinit) struct nd_pass_plan made = {.n_tensors = capture->n_tensors};
    ND_FREED char *spool = nd_path_join(folder, "spool.nds");
    made.pass_of_tensor = nd_calloc(capture->n_tensors, sizeof *made.pass_of_tensor);
    made.reasons = nd_calloc(capture->n_tensors, sizeof *made.reasons);
    made.passes = nd_calloc(capture->job.n_passes, sizeof *made.passes);
    ND_TRY_MEMORY(spool != NULL && made.pass_of_tensor != NULL && made.reasons != NULL && made.passes != NULL,
                  err);
    if (nd_path_exists(spool))
        ND_TRY(read_missing(capture, spool, &made, err));
    ND_TRY(keep_passes(capture, &made, err));
    return ND_GIVE(plan, made);
}

/* ---- planning ---- */

static bool has_all_outputs(const struct nd_capture_job *capture)
{
    size_t n = 0, n_outputs = 0;
    for (size_t e = 0; e < capture->n_tensors; e++)
        n += capture->tensors[e].is_model_output;
    for (size_t e = 0; e < nd_model_n_tensors(capture->model); e++)
        n_outputs += nd_model_tensor(capture->model, e)->is_model_output;
    return n == n_outputs;
}

/* Spreads the tensors over sessions in which looking changes nothing; *is_cut is false where there are none. */
static enum nd_status cut_into_passes(struct nd_capture_job *capture, struct nd_tries *trials,
                                      const struct nd_tried *first, bool *is_cut, struct nd_error *err)
{
    ND_CLEANUP(nd_pass_plan_deinit) struct nd_pass_plan plan = {0};
    const struct nd_recording recording = {.model = capture->model,
                                           .tensors = capture->selected,
                                           .n_tensors = capture->n_tensors,
                                           .do_outputs_hold =
                                               trials->do_outputs_hold && has_all_outputs(capture),
                                           .first = first,
                                           .trial = nd_tries_try,
                                           .has_time = nd_tries_have_time,
                                           .use_floats = nd_tries_use_floats,
                                           .context = trials};
    enum nd_status status = nd_plan_passes(&recording, &plan, err);
    *is_cut = status == ND_OK && plan.n_passes > 0;
    if (*is_cut)
        status = use_plan(capture, &plan, err);
    return status;
}

/* The session that records everything is not to be had, or moves nodes: makes the job one in which looking
 * moves nothing, where that is possible. *again says whether that job, or one that is allowed to fall back, is
 * to be run. What the device does with the outputs alone is its own doing: it is accepted with leave to fall
 * back, and else the first run tells of it. */
static enum nd_status plan_again(struct nd_capture_job *capture, struct nd_tries *trials,
                                 struct nd_tried *first, bool *again, struct nd_error *err)
{
    bool holds = false, is_cut = false, may_fall = capture->options->allow_fallback;
    enum nd_status status = nd_tries_begin(trials, &holds, err);
    bool can_be_cut = status == ND_OK && holds && (may_fall || trials->own.n == 0);
    nd_fell_back_subtract(&first->fell_back, &trials->own);
    bool is_changed = first->reason[0] != '\0' || first->fell_back.n > 0;
    if (can_be_cut && is_changed)
        status = cut_into_passes(capture, trials, first, &is_cut, err);
    bool is_placed = first->reason[0] == '\0';
    if (status == ND_OK && is_placed && is_changed && !is_cut && may_fall)
        status = note_moved(capture, &first->fell_back, err);
    capture->job.is_fallback_allowed = may_fall;
    *again = is_cut || (may_fall && is_placed);
    return status;
}

/* Runs what was planned, with the folder as its name; *folder is replaced. */
static enum nd_status run_again(struct nd_capture_job *capture, const char *name, char **folder,
                                struct nd_agent_exit *exit, struct nd_error *err)
{
    free(*folder);
    *folder = nd_path_join(capture->folder, name);
    *exit = (struct nd_agent_exit){0};
    return *folder != NULL ? nd_job_run(capture, &capture->job, *folder, capture->options, exit, err)
                           : nd_fail_memory(err);
}

/* Whether the run gave other outputs than the session of the outputs alone, or one pass others than another. */
static enum nd_status find_changed(const struct nd_tries *trials, const char *folder,
                                   const struct nd_agent_exit *exit, bool *is_changed, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried end = {0};
    bool do_agree = true, is_of_session;
    enum nd_status status = nd_tries_agree(trials, folder, &do_agree, err);
    if (status == ND_OK)
        status = nd_tried_read(folder, exit, &end, &is_of_session, err);
    *is_changed = !do_agree || strstr(end.reason, "exposing tensors changes results") != NULL;
    return status;
}

/* Looking changed what the model gives: plans again with sessions that run a sample, which must come out the
 * same. A device that gives other outputs each time cannot be asked; then passes are not compared. */
static enum nd_status run_checked(struct nd_capture_job *capture, struct nd_tries *trials, char **folder,
                                  struct nd_agent_exit *exit, struct nd_error *err)
{
    bool is_changed = false, is_steady = false, is_cut = false;
    enum nd_status status = find_changed(trials, *folder, exit, &is_changed, err);
    if (status != ND_OK || !is_changed || exit->stage != NULL || exit->can_resume)
        return status;
    nd_capture_report_stage(capture, "placement", exit->elapsed_s);
    status = nd_tries_use_sample(trials, &is_steady, err);
    if (status == ND_OK && is_steady)
        status = cut_into_passes(capture, trials, NULL, &is_cut, err);
    else if (status == ND_OK)
        status = nd_capture_job_set_passes(capture, capture->job.n_passes, NULL, err);
    return status == ND_OK && (is_cut || !is_steady) ? run_again(capture, "run-checked", folder, exit, err)
                                                     : status;
}

/* How often tensors are left out because a run could not give them, before it counts as failed. Chosen. */
enum { MAX_LESS = 8 };

/* Runs again without the tensors that a runner said it cannot give, and without those that came out different
 * from what was announced, or that change others: the rest is as good without them. */
static enum nd_status run_without_missing(struct nd_capture_job *capture, char **folder,
                                          struct nd_agent_exit *exit, struct nd_error *err)
{
    bool again = true;
    for (int i = 0; i < MAX_LESS && again && exit->error.id != 0 && exit->stage == NULL && !exit->can_resume;
         i++) {
        ND_CLEANUP(nd_pass_plan_deinit) struct nd_pass_plan plan = {0};
        ND_TRY(plan_without_missing(capture, *folder, &plan, err));
        again = plan.n_passes > 0;
        if (again)
            ND_TRY(use_plan(capture, &plan, err));
        if (again)
            ND_TRY(run_again(capture, "run-less", folder, exit, err));
    }
    return ND_OK;
}

/* Whether an operator of the model fell, and not only quantisers, which layout passes move: then it falls
 * whatever is recorded. */
static bool has_operator(const struct nd_model *model, const struct nd_fell_back *fell_back)
{
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        if (nd_model_is_operator(model, i) && nd_fell_back_has(fell_back, nd_model_node(model, i)->name))
            return true;
    return false;
}

/* The share of the capture's time limit for the untouched model, where more comes after it. Chosen: as for
 * sessions that are tried. */
static const double untouched_share = 0.5;

/* The model as it ships, before any tensor is recorded. *is_refused: it does not run on the NPU as a whole, and
 * may not run elsewhere; then *folder is its run, which says why. */
static enum nd_status look_at_placement(struct nd_capture_job *capture, char **folder,
                                        struct nd_agent_exit *exit, bool *is_refused, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried tried = {0};
    ND_FREED char *own = NULL;
    struct nd_agent_exit end = {0};
    bool is_of_session;
    nd_capture_report_stage(capture, "untouched", 0);
    ND_TRY(nd_untouched_run(capture, untouched_share, &own, &end, err));
    if (capture->untouched != NULL)
        return ND_OK;
    ND_TRY(nd_tried_read(own, &end, &tried, &is_of_session, err));
    *is_refused = !capture->options->allow_fallback && has_operator(capture->model, &tried.fell_back);
    if (*is_refused) {
        *exit = end;
        free(*folder);
        *folder = own;
        own = NULL;
        capture->n_untouched = 0; /* it is the run */
    }
    return ND_OK;
}

/* The first run takes no more than this share of the time to make its session: what does not come to be may in
 * several. Chosen. */
static const double first_session_share = 0.25;

/* Whether the capture is to be held against a run of the untouched model: it records outputs and more beside
 * them, with values, of a device whose values npudiff does not compute itself. */
static bool nd_untouched_is_wanted(const struct nd_capture_job *capture)
{
    const struct nd_capture_options *options = capture->options;
    size_t n_outputs = 0;
    for (size_t e = 0; e < capture->n_tensors; e++)
        n_outputs += capture->tensors[e].is_model_output;
    return !options->skips_untouched && !options->store_digests_only && !nd_capture_job_is_untouched(capture) &&
           !nd_device_is_evaluated(capture->device->kind) && n_outputs > 0 && n_outputs < capture->n_tensors &&
           nd_capture_job_n_samples(capture) > 0;
}

/* Runs in one session; where that one is not to be had, or moved nodes off the NPU, again in several. Leave to
 * fall back is leave for what the model itself does on the device: what falls because it is recorded is
 * recorded apart in either case. *folder is the run that counts. */
static enum nd_status run_all(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                              struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried first = {0};
    ND_CLEANUP(nd_tries_deinit) struct nd_tries trials = {.capture = capture};
    bool again = false, is_of_session = false, is_refused = false;
    bool can_be_cut = nd_device_is_npu(capture->device->kind) && !nd_capture_job_is_untouched(capture) &&
                      !capture->options->prefixes;
    struct nd_capture_options options = *capture->options;
    /* A link that is lost may cost that session, and not the run: a machine elsewhere has it after the run, or
       before it is cut. */
    bool is_compared = nd_untouched_is_wanted(capture), is_first = capture->remote == NULL;
    if (can_be_cut && is_compared && is_first)
        ND_TRY(look_at_placement(capture, folder, exit, &is_refused, err));
    if (is_refused)
        return ND_OK;
    if (can_be_cut) {
        capture->job.is_fallback_allowed = false; /* then it stops before it runs a sample */
        options.session_limit_s = first_session_share * options.time_limit_s;
    }
    *folder = nd_path_join(capture->folder, "run");
    enum nd_status status = *folder != NULL ? nd_job_run(capture, &capture->job, *folder, &options, exit, err)
                                            : nd_fail_memory(err);
    if (status == ND_OK && can_be_cut)
        status = nd_tried_read(*folder, exit, &first, &is_of_session, err);
    bool is_off = status == ND_OK && is_of_session && !first.holds && exit->stage == NULL && !exit->can_resume;
    if (is_off && is_compared && !is_first)
        status = look_at_placement(capture, folder, exit, &is_refused, err);
    if (is_refused)
        return ND_OK;
    if (status == ND_OK && is_off) {
        nd_capture_report_stage(capture, "placement", exit->elapsed_s);
        status = plan_again(capture, &trials, &first, &again, err);
    }
    if (status == ND_OK && again)
        status = run_again(capture, "run-again", folder, exit, err);
    if (status == ND_OK && again && (capture->job.n_passes > 1 || capture->n_left_out > 0))
        status = run_checked(capture, &trials, folder, exit, err);
    if (status == ND_OK)
        status = run_without_missing(capture, folder, exit, err);
    capture->n_tried = trials.n > 0 ? trials.n + 1 : 0;
    if (status == ND_OK && exit->error.id == 0 && is_compared && capture->n_untouched == 0) {
        ND_FREED char *own = NULL;
        struct nd_agent_exit end = {0};
        status = nd_untouched_run(capture, 1, &own, &end, err);
    }
    return status;
}

enum nd_status nd_capture_run_agent(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                                    struct nd_error *err)
{
    struct nd_error why = {0};
    enum nd_status status = run_all(capture, folder, exit, &why);
    /* Placement that cannot be tried on a machine elsewhere is that machine's failure. */
    if (status != ND_OK && capture->remote != NULL && *folder != NULL && nd_remote_is_of_device(&why)) {
        exit->error = why;
        exit->can_resume = why.id == ND_E_LINK_LOST;
        return ND_OK;
    }
    if (status != ND_OK && err != NULL)
        *err = why;
    return status;
}
