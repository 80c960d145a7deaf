/* --dim NAME=N: sizes of a model's dynamic dimensions. */
#ifndef ND_CLI_DIM_OPTIONS_H
#define ND_CLI_DIM_OPTIONS_H

#include "cli/options/command_options.h"
#include "npudiff/model/model.h"

/* Sets all of them. What is not of the form NAME=N is reported, in the name of the command: then *usage is the
 * exit code, and ND_ERR_USAGE is returned. Other errors as nd_model_set_dim. */
enum nd_status cli_set_dims(const char *command, struct nd_model *model, const struct cli_list *dims,
                            int *usage, struct nd_error *err);

/* Loads the model, if a path is given, and sets them. *out: the model, which the caller destroys after a
 * failure, too; untouched without a path. Errors: nd_model_load, cli_set_dims. */
enum nd_status cli_model_load(const char *command, const char *path, const struct cli_list *dims,
                              struct nd_model **out, int *usage, struct nd_error *err);

#endif
