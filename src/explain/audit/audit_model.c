/* What a capture says of its model, against the model. */
#include <string.h>

#include "explain/audit/audit_checks.h"
#include "core/error.h"
#include "core/text/names.h"

/* A different model is the caller's mistake, not damage. */
enum nd_status nd_audit_model(const struct nd_capture *capture, const struct nd_model *model,
                              struct nd_audit_check *check, struct nd_error *err)
{
    const char *sha256 = nd_capture_string(capture, "model", "sha256"), *path = nd_capture_path(capture);
    if (model == NULL)
        nd_audit_not_done(check, "no --model");
    else if (sha256 == NULL)
        nd_audit_not_done(check, "the capture does not say the digest of its model");
    else if (strcmp(sha256, nd_model_sha256(model)) != 0)
        return nd_fail(err, ND_E_COMPARE_MODEL, path,
                       "'%s' is a capture of a different model than '%s': sha256 %s and %s", path,
                       nd_model_path(model), sha256, nd_model_sha256(model));
    else
        check->n = 1;
    return ND_OK;
}

static bool is_known(const struct nd_shape *shape)
{
    bool is = shape->rank >= 0;
    for (int i = 0; is && i < shape->rank; i++)
        is = shape->dims[i] >= 0;
    return is;
}

static bool has_same_scales(const struct nd_quant *a, const struct nd_quant *b)
{
    return a->n == b->n &&
           (a->n == 0 || (memcmp(a->scale, b->scale, a->n * sizeof *a->scale) == 0 &&
                          memcmp(a->zero_point, b->zero_point, a->n * sizeof *a->zero_point) == 0));
}

static void compare_tensor(const struct nd_edge *recorded, const struct nd_edge *own,
                           struct nd_audit_check *check)
{
    check->n++;
    if (own == NULL)
        nd_audit_wrong(check, "the model has no tensor '%s'", recorded->onnx_name);
    else if (strcmp(recorded->name, own->name) != 0)
        nd_audit_wrong(check, "tensor '%s' is called '%s' in the capture", own->name, recorded->name);
    else if (nd_dtype_is_integer(own->dtype) && own->quant.n > 0 && recorded->dtype != own->dtype)
        nd_audit_wrong(check, "tensor '%s' is %s in the capture, %s in the model", own->name,
                       nd_dtype_name(recorded->dtype), nd_dtype_name(own->dtype));
    else if (is_known(&own->shape) && is_known(&recorded->shape) &&
             !nd_shape_equal(&own->shape, &recorded->shape))
        nd_audit_wrong(check, "tensor '%s' has a different shape in the capture", own->name);
    else if (recorded->quant.n > 0 && !has_same_scales(&recorded->quant, &own->quant))
        nd_audit_wrong(check, "tensor '%s' has different scales in the capture", own->name);
}

enum nd_status nd_audit_tensors(const struct nd_capture *capture, const struct nd_model *model,
                                struct nd_audit_check *check, struct nd_error *err)
{
    struct nd_names names = {0};
    enum nd_status status = ND_OK;
    if (model == NULL) {
        nd_audit_not_done(check, "no --model");
        return ND_OK;
    }
    for (size_t e = 0; e < nd_model_n_edges(model) && status == ND_OK; e++) {
        const char *tensor = nd_model_edge(model, e)->onnx_name;
        if (nd_names_find(&names, tensor) == SIZE_MAX && !nd_names_add(&names, tensor, e))
            status = nd_fail_memory(err);
    }
    for (size_t e = 0; e < nd_capture_n_edges(capture) && status == ND_OK; e++) {
        const struct nd_edge *recorded = nd_capture_edge(capture, e);
        size_t own = nd_names_find(&names, recorded->onnx_name);
        compare_tensor(recorded, own != SIZE_MAX ? nd_model_edge(model, own) : NULL, check);
    }
    nd_names_deinit(&names);
    return status;
}
