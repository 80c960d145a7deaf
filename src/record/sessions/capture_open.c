#include "record/sessions/capture_open.h"

#include "core/error.h"

enum nd_status nd_capture_run_and_open(const struct nd_workload *workload, const char *path,
                                       const struct nd_capture_options *options, struct nd_capture **out,
                                       struct nd_error *failure, struct nd_error *err)
{
    struct nd_capture_outcome outcome = {0};
    enum nd_status status = nd_capture_run(workload, path, options, &outcome, err);
    if (status != ND_OK || !outcome.has_failed)
        return status == ND_OK ? nd_capture_open(path, out, err) : status;
    *failure = outcome.failure;
    failure->status = failure->status != ND_OK ? failure->status : ND_ERR_DEVICE;
    return ND_OK;
}

enum nd_status nd_capture_pass_on(const struct nd_error *failure, const struct nd_model *model,
                                  const struct nd_device *device, struct nd_error *err)
{
    if (err != NULL) {
        *err = *failure;
        nd_error_context(err, "'%s' on '%s'", nd_model_path(model), device->label);
    }
    return failure->status;
}
