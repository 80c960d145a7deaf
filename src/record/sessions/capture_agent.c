#include "record/sessions/capture_agent.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/phones/remote.h"
#include "record/sessions/job_run.h"
#include "record/sessions/missing_tensors.h"
#include "record/sessions/pass_trials.h"

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
            if (text.len < MAX_TEXT)
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
    struct nd_pass_plan plan = {0};
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
    nd_pass_plan_deinit(&plan);
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
static enum nd_status find_changed(const struct nd_capture_job *capture, const struct nd_tries *trials,
                                   const char *folder, const struct nd_agent_exit *exit, bool *is_changed,
                                   struct nd_error *err)
{
    struct nd_tried end = {0};
    bool do_agree = true, is_of_session;
    enum nd_status status = nd_tries_agree(trials, folder, &do_agree, err);
    if (status == ND_OK)
        status = nd_tried_read(&capture->job, folder, exit, &end, &is_of_session, err);
    *is_changed = !do_agree || strstr(end.reason, "exposing tensors changes results") != NULL;
    nd_tried_deinit(&end);
    return status;
}

/* Looking changed what the model gives: plans again with sessions that run a sample, which must come out the
 * same. A device that gives other outputs each time cannot be asked; then passes are not held against each
 * other. */
static enum nd_status run_checked(struct nd_capture_job *capture, struct nd_tries *trials, char **folder,
                                  struct nd_agent_exit *exit, struct nd_error *err)
{
    bool is_changed = false, is_steady = false, is_cut = false;
    enum nd_status status = find_changed(capture, trials, *folder, exit, &is_changed, err);
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

/* A runner said which tensors it cannot give, before it ran a sample: runs again without them. */
static enum nd_status run_without_missing(struct nd_capture_job *capture, char **folder,
                                          struct nd_agent_exit *exit, struct nd_error *err)
{
    struct nd_pass_plan plan = {0};
    enum nd_status status = nd_plan_without_missing(capture, *folder, &plan, err);
    bool again = status == ND_OK && plan.n_passes > 0;
    if (again)
        status = use_plan(capture, &plan, err);
    nd_pass_plan_deinit(&plan);
    return again && status == ND_OK ? run_again(capture, "run-again", folder, exit, err) : status;
}

/* The first run takes no more than this share of the time to make its session: what does not come to be may in
 * several. Chosen. */
static const double first_session_share = 0.25;

/* Runs in one session; where that one is not to be had, or moved nodes off the NPU, again in several. Leave to
 * fall back is leave for what the model itself does on the device: what falls because it is recorded is
 * recorded apart in either case. *folder is the run that counts. */
static enum nd_status run_all(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                              struct nd_error *err)
{
    struct nd_tried first = {0};
    struct nd_tries trials = {.capture = capture};
    bool again = false, is_of_session = false;
    bool can_be_cut = nd_device_is_npu(capture->device->kind) && !nd_capture_job_is_untouched(capture) &&
                      !capture->options->prefixes;
    struct nd_capture_options options = *capture->options;
    if (can_be_cut) {
        capture->job.is_fallback_allowed = false; /* then it stops before it runs a sample */
        options.session_limit_s = first_session_share * options.time_limit_s;
    }
    *folder = nd_path_join(capture->folder, "run");
    enum nd_status status = *folder != NULL ? nd_job_run(capture, &capture->job, *folder, &options, exit, err)
                                            : nd_fail_memory(err);
    bool may_miss = capture->device->kind == ND_DEVICE_EXEC && capture->job.n_passes == 1;
    if (status == ND_OK && may_miss && exit->error.id != 0 && !exit->can_resume)
        status = run_without_missing(capture, folder, exit, err);
    if (status == ND_OK && can_be_cut)
        status = nd_tried_read(&capture->job, *folder, exit, &first, &is_of_session, err);
    if (status == ND_OK && is_of_session && !first.holds && exit->stage == NULL && !exit->can_resume) {
        nd_capture_report_stage(capture, "placement", exit->elapsed_s);
        status = plan_again(capture, &trials, &first, &again, err);
    }
    if (status == ND_OK && again)
        status = run_again(capture, "run-again", folder, exit, err);
    if (status == ND_OK && again && (capture->job.n_passes > 1 || capture->n_left_out > 0))
        status = run_checked(capture, &trials, folder, exit, err);
    capture->n_tried = trials.n > 0 ? trials.n + 1 : 0;
    nd_tried_deinit(&first);
    nd_tries_deinit(&trials);
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
