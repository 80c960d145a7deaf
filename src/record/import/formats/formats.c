#include "record/import/formats/formats.h"

#include <string.h>

#include "record/qnn/net_run.h"

/* In the order of the help. A new format is one line here and its extern in formats.h. */
static const struct nd_import_reader *const readers[] = {
    &nd_import_numpy, &nd_import_raw,        &nd_import_onnx_pb,
    &nd_import_aihub, &nd_import_polygraphy, &nd_import_qnn_net_run,
};

enum { N_READERS = sizeof readers / sizeof readers[0] };

const struct nd_import_reader *nd_import_reader_find(const char *name)
{
    for (size_t i = 0; i < N_READERS; i++)
        if (strcmp(readers[i]->format.name, name) == 0)
            return readers[i];
    return NULL;
}

const struct nd_import_format *nd_import_format(size_t i)
{
    return i < N_READERS ? &readers[i]->format : NULL;
}
