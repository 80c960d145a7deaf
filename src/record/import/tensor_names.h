/* Which tensor of a model a foreign name means. */
#ifndef ND_FOREIGN_TENSOR_NAMES_H
#define ND_FOREIGN_TENSOR_NAMES_H

#include "core/error.h"
#include "npudiff/model/model.h"

/* How a name was understood. */
enum nd_name_method { ND_NAME_AS_IT_IS, ND_NAME_ONNX, ND_NAME_SANITISED };

/* The tensor of the model that `name` is: a tensor's own name first, then an onnx_name, then the name or
 * onnx_name that sanitising (every byte but letters and digits becomes '_', with or without a '_' put before a
 * digit) makes equal to it. is_sanitised: the tool sanitises all names, so that an equal name says no more than
 * one that sanitising makes equal. ND_E_IMPORT_NOTHING: none; ND_E_IMPORT_MISMATCH: sanitised names of several
 * (the message lists them). The object of both is name. */
enum nd_status nd_name_find_tensor(const struct nd_model *model, const char *name, bool is_sanitised,
                                   size_t *tensor, enum nd_name_method *method, struct nd_error *err);

/* The same among the inputs that have to be fed. */
enum nd_status nd_name_find_input(const struct nd_model *model, const char *name, bool is_sanitised,
                                  size_t *input, enum nd_name_method *method, struct nd_error *err);

#endif
