/* The data of a .npy file. */
#include "record/probes/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

static void swap_bytes(unsigned char *data, size_t n_elems, size_t size)
{
    for (size_t i = 0; i < n_elems; i++, data += size)
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char kept = data[a];
            data[a] = data[b];
            data[b] = kept;
        }
}

/* Reads elements of which the first index runs fastest, and puts them where they are when the last one does. */
static enum nd_status read_fortran(struct nd_source *source, const struct nd_npy *npy, unsigned char *to,
                                   struct nd_error *err)
{
    enum { BLOCK_BYTES = 1 << 16 }; /* a multiple of every element's size */
    size_t size = nd_dtype_size_bytes(npy->dtype), stride[ND_NPY_MAX_RANK], step = 1, target = 0;
    int64_t index[ND_NPY_MAX_RANK] = {0};
    unsigned char block[BLOCK_BYTES];
    enum nd_status status = ND_OK;
    for (int d = npy->rank - 1; d >= 0; step *= (size_t)npy->dims[d--])
        stride[d] = step;
    for (size_t i = 0; i < npy->n_elems; i++) {
        size_t at = i * size % BLOCK_BYTES, n_left = npy->size_bytes - i * size;
        if (at == 0)
            status = nd_source_read(source, block, n_left < BLOCK_BYTES ? n_left : BLOCK_BYTES, err);
        if (status != ND_OK)
            return status;
        memcpy(to + target * size, block + at, size);
        for (int d = 0; d < npy->rank; d++) {
            target += stride[d];
            if (++index[d] < npy->dims[d])
                break;
            target -= stride[d] * (size_t)npy->dims[d];
            index[d] = 0;
        }
    }
    return ND_OK;
}

enum nd_status nd_npy_check_bools(const struct nd_source *source, const void *data, size_t n,
                                  struct nd_error *err)
{
    const unsigned char *bools = data;
    for (size_t i = 0; i < n; i++)
        if (bools[i] > 1)
            return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s has the bool %u at element %zu",
                           source->what, bools[i], i);
    return ND_OK;
}

enum nd_status nd_npy_read(struct nd_source *source, const struct nd_npy *npy, void *out, struct nd_error *err)
{
    enum nd_status status = npy->is_fortran_order && npy->rank > 1
                                ? read_fortran(source, npy, out, err)
                                : nd_source_read(source, out, npy->size_bytes, err);
    if (status == ND_OK)
        status = nd_source_finish(source, err);
    if (status == ND_OK && npy->is_big_endian)
        swap_bytes(out, npy->n_elems, nd_dtype_size_bytes(npy->dtype));
    if (status == ND_OK && npy->dtype == ND_DTYPE_BOOL)
        status = nd_npy_check_bools(source, out, npy->n_elems, err);
    return status;
}

char *nd_npy_format_shape(const struct nd_npy *npy, char *buf, size_t buf_size)
{
    size_t at = (size_t)snprintf(buf, buf_size, "(");
    for (int i = 0; i < npy->rank && at < buf_size; i++)
        at += (size_t)snprintf(buf + at, buf_size - at, i > 0 ? ", %lld" : "%lld", (long long)npy->dims[i]);
    if (at < buf_size)
        snprintf(buf + at, buf_size - at, npy->rank == 1 ? ",)" : ")");
    return buf;
}

char *nd_npy_format_dtype(const struct nd_npy *npy, char *buf, size_t buf_size)
{
    if (npy->dtype != ND_DTYPE_NONE)
        snprintf(buf, buf_size, "%s", nd_dtype_name(npy->dtype));
    else if (strcmp(npy->descr, "|O") == 0)
        snprintf(buf, buf_size, "an object array ('|O', a pickle), which is never loaded");
    else if (npy->descr[0] == '[')
        snprintf(buf, buf_size, "a structured type");
    else
        snprintf(buf, buf_size, "'%s'", npy->descr);
    return buf;
}
