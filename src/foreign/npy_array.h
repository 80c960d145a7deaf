/* Arrays in .npy form, wherever they lie, as imported tensors. */
#ifndef ND_FOREIGN_NPY_ARRAY_H
#define ND_FOREIGN_NPY_ARRAY_H

#include "foreign/imported.h"
#include "probe/npy.h"

/* Reads the header and makes sure that an imported tensor can have its type and rank. ND_E_IMPORT_TYPE; else as
 * nd_npy_open. */
enum nd_status nd_npy_open_array(struct nd_source *source, struct nd_npy *npy, struct nd_shape *shape,
                                 struct nd_error *err);

/* Adds the array as nd_imported_array does, or as sample `sample` of the tensor. */
enum nd_status nd_npy_add_array(struct nd_imported *imported, enum nd_imported_side side, const char *name,
                                struct nd_source *source, struct nd_error *err);
enum nd_status nd_npy_add_sample(struct nd_imported *imported, enum nd_imported_side side, const char *name,
                                 size_t sample, struct nd_source *source, struct nd_error *err);

#endif
