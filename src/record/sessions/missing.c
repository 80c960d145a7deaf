/* Tensors that a run could not give, as its spool says,, and its sessions without them. capture_run.h. */
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/agent/spool/record_fields.h"
#include "devices/agent/spool/spool.h"
#include "record/sessions/capture_run.h"

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

/* The passes as they are, less what is left out. n_passes stays 0 where there is nothing to plan: nothing is
 * left out, or an output of the model is, or all that the first pass records, which the others are held
 * against. */
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

enum nd_status nd_plan_without_missing(const struct nd_capture_job *capture, const char *folder,
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
    *plan = made;
    made = (struct nd_pass_plan){0};
    return ND_OK;
}
