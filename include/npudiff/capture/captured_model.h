/* The model that a capture is of: where it is, read again, with the dimensions that it was captured with.
 *
 * Every function is thread safe, and what it returns does not change.
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_CAPTURED_MODEL_H
#define NPUDIFF_CAPTURED_MODEL_H

#include "npudiff/capture/capture.h"
#include "npudiff/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the model of the capture is: the path that it was captured from or, in the current folder, a file of
 * that name; NULL where neither can be read. Lives as long as the capture. */
ND_PUBLIC const char *nd_capture_model_path(const struct nd_capture *capture);

/* Loads the model that was captured: the file at the path that the capture states, else one of that name in the
 * current folder or beside the capture, if its digest is the one in the capture. The caller destroys *out.
 * ND_ERR_NOT_FOUND (ND_E_MODEL_GONE): there is none; the message says which files were looked for and what is
 * wrong with each. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_capture_load_model(const struct nd_capture *capture, struct nd_model **out,
                                               struct nd_error *err);

/* Gives the model's dynamic dimensions, as far as they are not set yet, the sizes that the inputs in the
 * capture have. Inputs that the capture does not hold, or with a different rank, stay as they are. Errors as
 * nd_model_set_dim. */
ND_PUBLIC enum nd_status nd_capture_set_dims(const struct nd_capture *capture, struct nd_model *model,
                                             struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
