/* Models that options name or captures state, and --dim NAME=N. */
#include "cli/options/dim_options.h"

#include <stdlib.h>
#include <string.h>

#include "npudiff/capture/captured_model.h"
#include "npudiff/core/parse.h"

enum nd_status cli_set_dims(struct nd_model *model, const struct cli_list *dims, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < dims->n; i++) {
        const char *equals = strchr(dims->items[i], '=');
        int64_t n = 0;
        nd_parse_i64(equals + 1, &n); /* the option parser has checked it */
        char *name = strndup(dims->items[i], (size_t)(equals - dims->items[i]));
        status = name != NULL ? nd_model_set_dim(model, name, n, err) : cli_memory_error(err);
        free(name);
    }
    return status;
}

enum nd_status cli_model_load(const char *path, const struct cli_list *dims, struct nd_model **out,
                              struct nd_error *err)
{
    if (path == NULL)
        return ND_OK;
    enum nd_status status = nd_model_load(path, out, err);
    return status == ND_OK ? cli_set_dims(*out, dims, err) : status;
}

enum nd_status cli_captured_model(struct nd_capture *const *captures, size_t n, const struct cli_list *dims,
                                  struct nd_model **out, struct nd_error *err)
{
    struct nd_error first = {0}, problem;
    enum nd_status status = ND_ERR_NOT_FOUND;
    for (size_t i = 0; status == ND_ERR_NOT_FOUND && i < n; i++)
        status = nd_capture_load_model(captures[i], out, i == 0 ? &first : &problem);
    if (status == ND_OK)
        return dims != NULL ? cli_set_dims(*out, dims, err) : ND_OK;
    if (status == ND_ERR_NOT_FOUND)
        return cli_error(err, status, CLI_E_MODEL_GONE, first.object, "%s; --quantised MODEL names it",
                         first.message);
    return cli_memory_error(err);
}
