#include "cli/options/dim_options.h"

#include <stdlib.h>
#include <string.h>

#include "npudiff/core/parse.h"

enum nd_status cli_set_dims(const char *command, struct nd_model *model, const struct cli_list *dims,
                            int *usage, struct nd_error *err)
{
    for (size_t i = 0; i < dims->n; i++) {
        const char *equals = strchr(dims->items[i], '=');
        int64_t n;
        if (equals == NULL || equals == dims->items[i] || !nd_parse_i64(equals + 1, &n) || n < 1) {
            *usage = cli_usage_error_as(CLI_E_OPTION_VALUE, command, "--dim takes NAME=N with N >= 1, not '%s'",
                                        dims->items[i]);
            return ND_ERR_USAGE;
        }
        char *name = strndup(dims->items[i], (size_t)(equals - dims->items[i]));
        enum nd_status status = name != NULL ? nd_model_set_dim(model, name, n, err) : cli_memory_error(err);
        free(name);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

enum nd_status cli_model_load(const char *command, const char *path, const struct cli_list *dims,
                              struct nd_model **out, int *usage, struct nd_error *err)
{
    if (path == NULL)
        return ND_OK;
    enum nd_status status = nd_model_load(path, out, err);
    return status == ND_OK ? cli_set_dims(command, *out, dims, usage, err) : status;
}
