/* The data of a .npy file. */
#include "probe/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static void swap_bytes(unsigned char *data, size_t n_elems, size_t size)
{
    for (size_t i = 0; i < n_elems; i++, data += size)
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char kept = data[a];
            data[a] = data[b];
            data[b] = kept;
        }
}

/* From the first index running fastest to the last index running fastest. */
static void reorder_to_c(const struct nd_npy *npy, const unsigned char *from, unsigned char *to)
{
    size_t size = nd_dtype_size_bytes(npy->dtype);
    size_t stride[ND_NPY_MAX_RANK];
    int64_t index[ND_NPY_MAX_RANK] = {0};
    size_t step = 1;
    for (int d = 0; d < npy->rank; d++) {
        stride[d] = step;
        step *= (size_t)npy->dims[d];
    }
    size_t source = 0;
    for (size_t i = 0; i < npy->n_elems; i++) {
        memcpy(to + i * size, from + source * size, size);
        for (int d = npy->rank - 1; d >= 0; d--) {
            source += stride[d];
            if (++index[d] < npy->dims[d])
                break;
            source -= stride[d] * (size_t)npy->dims[d];
            index[d] = 0;
        }
    }
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
    void *fortran = NULL;
    if (npy->is_fortran_order && npy->rank > 1) {
        fortran = nd_calloc(npy->size_bytes, 1);
        if (fortran == NULL)
            return nd_fail_memory(err);
    }
    enum nd_status status = nd_source_read(source, fortran != NULL ? fortran : out, npy->size_bytes, err);
    if (status == ND_OK)
        status = nd_source_finish(source, err);
    if (status != ND_OK)
        goto out;
    if (fortran != NULL)
        reorder_to_c(npy, fortran, out);
    if (npy->is_big_endian)
        swap_bytes(out, npy->n_elems, nd_dtype_size_bytes(npy->dtype));
    if (npy->dtype == ND_DTYPE_BOOL)
        status = nd_npy_check_bools(source, out, npy->n_elems, err);
out:
    free(fortran);
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
