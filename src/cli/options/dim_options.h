/* Models that options name or captures state, and --dim NAME=N: sizes of their dynamic dimensions. */
#ifndef ND_CLI_DIM_OPTIONS_H
#define ND_CLI_DIM_OPTIONS_H

#include "cli/options/help.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/captured_model.h"
#include "npudiff/model/model.h"

/* Sets all of them. Errors: nd_model_set_dim. */
enum nd_status cli_set_dims(struct nd_model *model, const struct cli_list *dims, struct nd_error *err);

/* Loads the model, if a path is given, and sets them. *out: the model, which the caller destroys after a
 * failure, too; untouched without a path. Errors: nd_model_load, cli_set_dims. */
enum nd_status cli_model_load(const char *path, const struct cli_list *dims, struct nd_model **out,
                              struct nd_error *err);

/* The model of the first capture whose model is found (nd_capture_load_model), with the dimensions set; dims:
 * nullable. The message of ND_ERR_NOT_FOUND names the option --quantised. */
enum nd_status cli_captured_model(struct nd_capture *const *captures, size_t n, const struct cli_list *dims,
                                  struct nd_model **out, struct nd_error *err);

#endif
