/* Which tensors that a file has as floats are codes. */
#ifndef ND_FOREIGN_MATCH_CODES_H
#define ND_FOREIGN_MATCH_CODES_H

#include "record/import/map.h"

/* Turns the tensor into codes where every value is the real of one (GRID: grid.h), or, where the map says that
 * it holds codes as numbers, where each is one. Type and scale are those of the map, else of the file, else of
 * the model (nullable). *text is then what the types are from; NULL: the tensor stays as it is.
 * ND_E_IMPORT_MISMATCH: the map states codes or a scale, and the values contradict it. */
enum nd_status nd_match_codes(struct nd_imported *imported, struct nd_imported_tensor *t,
                              const struct nd_map_item *item, const struct nd_edge *model, char **text,
                              struct nd_error *err);

#endif
