/* The model of a capture: found again by the path and the digest that the capture states, with the sizes that
 * its inputs had (docs/reference/capture-format.md). */
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/capture/captured_model.h"
#include "npudiff/model/model.h"

/* "" where it is not stated. */
static const char *stated(const struct nd_capture *capture, const char *key)
{
    const char *text = nd_capture_string(capture, "model", key);
    return text != NULL ? text : "";
}

static bool is_one_of(const char *path, const char *const *before, size_t n_before)
{
    for (size_t i = 0; i < n_before; i++)
        if (before[i] != NULL && strcmp(before[i], path) == 0)
            return true;
    return false;
}

/* Takes the file, if it is the model that was captured. ND_OK without a model: it is not, and why is appended
 * to `tried`. */
static enum nd_status try_model(const char *path, const char *sha256, struct nd_strbuf *tried,
                                struct nd_model **out, struct nd_error *err)
{
    struct nd_error problem = {0};
    struct nd_model *model = NULL;
    enum nd_status status = access(path, F_OK) == 0 ? nd_model_load(path, &model, &problem) : ND_ERR_NOT_FOUND;
    ND_TRY_MEMORY(status != ND_ERR_MEMORY, err);
    if (status == ND_OK && strcmp(nd_model_sha256(model), sha256) == 0) {
        *out = model;
        return ND_OK;
    }
    nd_strbuf_printf(tried, "%s'%s' ", tried->len > 0 ? ", " : "", path);
    if (status == ND_OK)
        nd_strbuf_printf(tried, "was changed (its sha256 is %.12s...)", nd_model_sha256(model));
    else
        nd_strbuf_puts(tried, problem.message[0] != '\0' ? "cannot be read" : "does not exist");
    nd_model_destroy(&model);
    return ND_OK;
}

/* A file of this name beside the capture; NULL without one, or when memory is out. */
static char *path_beside(const struct nd_capture *capture, const char *file)
{
    const char *path = nd_capture_path(capture);
    if (file[0] == '\0' || nd_capture_is_url(path))
        return NULL;
    ND_FREED char *folder = nd_path_dir(path);
    return folder != NULL ? nd_path_join(folder, file) : NULL;
}

enum nd_status nd_capture_load_model(const struct nd_capture *capture, struct nd_model **out,
                                     struct nd_error *err)
{
    const char *path = stated(capture, "path"), *file = stated(capture, "file");
    const char *sha256 = stated(capture, "sha256");
    if (sha256[0] == '\0')
        return nd_fail(err, ND_E_MODEL_GONE, nd_capture_path(capture),
                       "'%s' does not say which model was captured", nd_capture_path(capture));
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf tried = {0};
    struct nd_model *model = NULL;
    ND_FREED char *beside = path_beside(capture, file);
    const char *candidates[] = {path, file, beside};
    for (size_t i = 0; model == NULL && i < sizeof candidates / sizeof candidates[0]; i++)
        if (candidates[i] != NULL && candidates[i][0] != '\0' && !is_one_of(candidates[i], candidates, i))
            ND_TRY(try_model(candidates[i], sha256, &tried, &model, err));
    ND_FREED char *text = nd_strbuf_take(&tried);
    if (model == NULL)
        return nd_fail(err, ND_E_MODEL_GONE, nd_capture_path(capture),
                       "the model of '%s' (sha256 %.12s...) is not found: %s", nd_capture_path(capture), sha256,
                       text != NULL && text[0] != '\0' ? text : "the capture does not say where it was");
    *out = model;
    return ND_OK;
}

/* The size that this axis of the input has in the capture, or -1. */
static int64_t captured_size(const struct nd_capture *capture, const struct nd_model_io *input, int axis)
{
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
        for (size_t i = 0; i < probe->n_inputs; i++)
            if (strcmp(probe->inputs[i].name, input->name) == 0 &&
                probe->inputs[i].shape.rank == input->shape.rank)
                return probe->inputs[i].shape.dims[axis];
    }
    return -1;
}

enum nd_status nd_capture_set_dims(const struct nd_capture *capture, struct nd_model *model,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < nd_model_n_inputs(model); i++)
        for (int d = 0; d < nd_model_input(model, i)->shape.rank; d++) {
            const struct nd_model_io *input = nd_model_input(model, i);
            int64_t n = input->shape.dims[d] < 0 ? captured_size(capture, input, d) : -1;
            struct nd_strbuf name = {0};
            if (n < 1)
                continue;
            if (input->dim_params[d] != NULL)
                nd_strbuf_puts(&name, input->dim_params[d]);
            else
                nd_strbuf_printf(&name, "%s:%d", input->name, d);
            ND_FREED char *text = nd_strbuf_take(&name);
            ND_TRY(text != NULL ? nd_model_set_dim(model, text, n, err) : nd_fail_memory(err));
        }
    return ND_OK;
}
