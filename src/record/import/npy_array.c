#include "record/import/npy_array.h"

#include <string.h>

/* Reads the header and makes sure that an imported tensor can have its type and rank. */
static enum nd_status open_array(struct nd_source *source, struct nd_npy *npy, struct nd_shape *shape,
                                 struct nd_error *err)
{
    char text[256];
    enum nd_status status = nd_npy_open(source, npy, err);
    if (status != ND_OK)
        return status;
    if (npy->dtype == ND_DTYPE_NONE)
        return nd_fail(
            err, ND_E_IMPORT_TYPE, source->path,
            "%s is of type %s; numbers of 8 to 64 bits and bool are read (of others, save the bits as an "
            "unsigned integer and give 'dtype' in a --map)",
            source->what, nd_npy_format_dtype(npy, text, sizeof text));
    if (npy->rank > ND_MAX_RANK)
        return nd_fail(err, ND_E_IMPORT_TYPE, source->path, "%s has %d dimensions; at most %d are read",
                       source->what, npy->rank, ND_MAX_RANK);
    *shape = (struct nd_shape){.rank = npy->rank};
    memcpy(shape->dims, npy->dims, (size_t)npy->rank * sizeof *npy->dims);
    return ND_OK;
}

enum nd_status nd_npy_add(struct nd_imported *imported, enum nd_imported_side side, const char *name,
                          size_t sample, struct nd_source *source, struct nd_error *err)
{
    struct nd_npy npy = {0};
    struct nd_imported_new added = {.side = side, .name = name, .where = source->what, .sample = sample};
    void *data = NULL;
    enum nd_status status = open_array(source, &npy, &added.shape, err);
    added.dtype = npy.dtype;
    if (status == ND_OK)
        status = nd_imported_add(imported, &added, &data, err);
    return status == ND_OK ? nd_npy_read(source, &npy, data, err) : status;
}
