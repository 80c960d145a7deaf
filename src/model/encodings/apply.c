#include <stdlib.h>

#include "core/memory.h"
#include "model/encodings/building.h"
#include "model/graph/parts.h"

enum nd_status nd_encodings_match(const struct nd_encodings *encodings, const struct nd_model *model,
                                  struct nd_encodings_match *out, struct nd_error *err)
{
    struct nd_encodings_match match = {.omitted = nd_calloc(encodings->n, sizeof *match.omitted)};
    if (match.omitted == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < encodings->n; i++) {
        const struct nd_encoding *item = &encodings->items[i];
        struct nd_encodings_omission omission = {.name = item->name};
        if (!nd_model_has_tensor(model, item->name)) {
            omission.why = "the model has no such tensor";
            omission.is_unknown = true;
        } else if (item->unhandled != NULL) {
            omission.why = item->unhandled;
        }
        if (omission.why != NULL)
            match.omitted[match.n_omitted++] = omission;
        else
            match.n_applicable++;
    }
    *out = match;
    return ND_OK;
}

void nd_encodings_match_deinit(struct nd_encodings_match *match)
{
    free(match->omitted);
    *match = (struct nd_encodings_match){0};
}

/* Quantised values of few bits lie in bytes: every reader of the model knows those, and the reals are the same.
 */
static enum nd_dtype container(const struct nd_encoding *item)
{
    if (item->dtype == ND_DTYPE_U4)
        return ND_DTYPE_U8;
    return item->dtype == ND_DTYPE_I4 ? ND_DTYPE_I8 : item->dtype;
}

enum nd_status nd_encodings_apply(const struct nd_encodings *encodings, const struct nd_model *model,
                                  const char *path, struct nd_error *err)
{
    struct nd_encodings_match match = {0};
    struct nd_quantised_tensor *items = nd_calloc(encodings->n, sizeof *items);
    enum nd_status status =
        items != NULL ? nd_encodings_match(encodings, model, &match, err) : nd_fail_memory(err);
    size_t n = 0;
    for (size_t i = 0, omitted = 0; status == ND_OK && i < encodings->n; i++) {
        const struct nd_encoding *item = &encodings->items[i];
        if (omitted < match.n_omitted && match.omitted[omitted].name == item->name) {
            omitted++;
            continue;
        }
        items[n++] = (struct nd_quantised_tensor){.tensor = item->name,
                                                  .dtype = container(item),
                                                  .bits = item->bits,
                                                  .is_signed = nd_dtype_is_signed_integer(item->dtype),
                                                  .has_axis = item->has_axis,
                                                  .quant = &item->quant};
    }
    if (status == ND_OK && n == 0)
        status = nd_fail(err, ND_E_MODEL_NO_TENSOR, nd_model_path(model),
                         "none of the %zu encodings of '%s' is for a tensor of '%s'", encodings->n,
                         encodings->path, nd_model_path(model));
    if (status == ND_OK)
        status = nd_model_write_quantised(model, items, n, path, err);
    nd_encodings_match_deinit(&match);
    free(items);
    return status;
}
