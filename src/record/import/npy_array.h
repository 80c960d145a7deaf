/* Arrays in .npy form, wherever they lie, as imported tensors. */
#ifndef ND_FOREIGN_NPY_ARRAY_H
#define ND_FOREIGN_NPY_ARRAY_H

#include "record/import/imported.h"
#include "record/probes/npy.h"

/* Adds the array as nd_imported_add does: sample ND_IMPORTED_ARRAY for one that may hold several.
 * ND_E_IMPORT_TYPE: a type or rank that imported tensors lack; else as nd_npy_open. */
enum nd_status nd_npy_add(struct nd_imported *imported, enum nd_imported_side side, const char *name,
                          size_t sample, struct nd_source *source, struct nd_error *err);

#endif
