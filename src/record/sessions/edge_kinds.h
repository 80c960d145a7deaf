/* Which edges of a model are alike: made and read by the same operators, at the same places. The blocks of a
 * network repeat each other, and so do the kinds of their edges. */
#ifndef ND_RECORD_EDGE_KINDS_H
#define ND_RECORD_EDGE_KINDS_H

#include "npudiff/model/model.h"

/* *kinds: [n edges of the model], a number for each edge, equal for edges that are alike; freed by the caller.
 */
enum nd_status nd_edge_kinds(const struct nd_model *model, size_t **kinds, struct nd_error *err);

#endif
