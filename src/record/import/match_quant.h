/* The scales of a tensor: from the map, the model and the file, which must not contradict one another. */
#ifndef ND_FOREIGN_MATCH_QUANT_H
#define ND_FOREIGN_MATCH_QUANT_H

#include "record/import/map.h"

/* item and model are nullable; the model's scales are those of codes only. *out (n 0: nobody states any)
 * borrows from whoever states it, which *from names ("map.yaml:3:5", "the model", "the file", "not stated").
 * ND_E_IMPORT_MISMATCH: two state other ones, scales of floats, scales that the tensor has no dimension for. */
enum nd_status nd_match_quant(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                              const struct nd_edge *model, struct nd_quant *out, const char **from,
                              struct nd_error *err);

#endif
