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

#endif
