#include "record/sessions/missing_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/spool/record_fields.h"

static enum nd_status leave_out(const struct nd_capture_job *capture, const struct nd_record *record,
                                struct nd_pass_plan *plan, struct nd_error *err)
{
    char *output = nd_fields_text(record, "output"), *reason = nd_fields_text(record, "reason");
    enum nd_status status = output != NULL && reason != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t e = 0; status == ND_OK && e < capture->n_tensors; e++) {
        if (strcmp(capture->tensors[e].onnx_name, output) != 0 || plan->reasons[e] != NULL)
            continue;
        plan->pass_of_tensor[e] = SIZE_MAX;
        plan->reasons[e] = nd_strdup(reason);
        status = plan->reasons[e] != NULL ? ND_OK : nd_fail_memory(err);
    }
    free(output);
    free(reason);
    return status;
}

/* How many are left; 0 as well where an output of the model is among those left out. */
static size_t count_left(const struct nd_capture_job *capture, const struct nd_pass_plan *plan)
{
    size_t n = 0;
    for (size_t e = 0; e < capture->n_tensors; e++) {
        if (plan->reasons[e] != NULL && capture->tensors[e].is_model_output)
            return 0;
        n += plan->reasons[e] == NULL;
    }
    return n;
}

static enum nd_status read_missing(const struct nd_capture_job *capture, const char *spool,
                                   struct nd_pass_plan *plan, struct nd_error *err)
{
    struct nd_spool_reader reader = {0};
    struct nd_record record;
    enum nd_status status = nd_spool_reader_open(&reader, spool, err);
    while (status == ND_OK && nd_spool_next(&reader, &record))
        if (record.kind == ND_RECORD_MISSING)
            status = leave_out(capture, &record, plan, err);
    nd_spool_reader_close(&reader);
    return status;
}

enum nd_status nd_plan_without_missing(const struct nd_capture_job *capture, const char *folder,
                                       struct nd_pass_plan *plan, struct nd_error *err)
{
    struct nd_pass_plan made = {.n_tensors = capture->n_tensors};
    char *spool = nd_path_join(folder, "spool.nds");
    made.pass_of_tensor = nd_calloc(capture->n_tensors, sizeof *made.pass_of_tensor);
    made.reasons = nd_calloc(capture->n_tensors, sizeof *made.reasons);
    made.passes = nd_calloc(1, sizeof *made.passes);
    bool is_whole = spool != NULL && made.pass_of_tensor != NULL && made.reasons != NULL && made.passes != NULL;
    enum nd_status status = is_whole ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && nd_path_exists(spool))
        status = read_missing(capture, spool, &made, err);
    size_t n_left = status == ND_OK ? count_left(capture, &made) : 0;
    made.n_passes = n_left > 0 && n_left < capture->n_tensors ? 1 : 0;
    free(spool);
    if (status == ND_OK)
        *plan = made;
    else
        nd_pass_plan_deinit(&made);
    return status;
}
