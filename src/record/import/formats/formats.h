/* The readers of foreign formats. That of qnn-net-run is in qnn/net_run.h. */
#ifndef ND_IMPORT_FORMATS_H
#define ND_IMPORT_FORMATS_H

#include "record/import/imported.h"

extern const struct nd_import_reader nd_import_numpy;
extern const struct nd_import_reader nd_import_raw;
extern const struct nd_import_reader nd_import_onnx_pb;
extern const struct nd_import_reader nd_import_aihub;
extern const struct nd_import_reader nd_import_polygraphy;

/* The reader of that name, or NULL. */
const struct nd_import_reader *nd_import_reader_find(const char *name);

/* Adds the arrays of a .npz, of a .npy (named after the file), or of a folder of both, to one side. */
enum nd_status nd_numpy_add(struct nd_imported *imported, enum nd_imported_side side, const char *path,
                            struct nd_error *err);

/* Adds a dataset of AI Hub to one side. */
enum nd_status nd_aihub_add(struct nd_imported *imported, enum nd_imported_side side, const char *path,
                            struct nd_error *err);

#endif
