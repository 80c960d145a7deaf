/* Copies of a model that show some edges as floats. */
#ifndef ND_REWRITE_EXPOSE_H
#define ND_REWRITE_EXPOSE_H

#include "model/graph/parts.h"

/* Writes a copy as nd_model_write_exposed does, but with the floats that nd_model_find_dequantised names as the
 * output for every edge of which as_floats is true. as_floats: one for each edge of the model; NULL: none. An
 * edge has to have such floats. */
enum nd_status nd_model_write_shown(const struct nd_model *model, const size_t *edges, size_t n_edges,
                                    const bool *as_floats, const char *path, struct nd_error *err);

#endif
