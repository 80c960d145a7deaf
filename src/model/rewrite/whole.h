/* Copies of a model that differ from it in nothing but the dimensions that were set. */
#ifndef ND_REWRITE_WHOLE_H
#define ND_REWRITE_WHOLE_H

#include "npudiff/model/model.h"

/* Whether nd_model_set_dim has set any. */
bool nd_model_has_set_dims(const struct nd_model *model);

/* Writes the copy. External files and errors: as nd_model_write_exposed. */
enum nd_status nd_model_write_whole(const struct nd_model *model, const char *path, struct nd_error *err);

#endif
