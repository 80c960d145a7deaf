/* Labels: integer class indices, one for each sample. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "record/probes/loader.h"

/* Element i of an integer array; false when it does not fit in int64. */
static bool widen(enum nd_dtype dtype, const void *data, size_t i, int64_t *out)
{
    size_t size = nd_dtype_size_bytes(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)data + i * size, size);
    if (nd_dtype_is_signed_integer(dtype)) {
        uint64_t sign = (uint64_t)1 << (8 * size - 1);
        bits = (bits ^ sign) - sign;
    } else if (bits > INT64_MAX) {
        return false;
    }
    memcpy(out, &bits, sizeof *out);
    return true;
}

/* All elements of an integer .npy source, in new memory. They are widened where they are, from the back: a wide
 * element never covers a narrow one that is still to come. */
static enum nd_status read_integers(struct nd_source *source, const struct nd_npy *npy, int64_t **out,
                                    struct nd_error *err)
{
    int64_t *labels = nd_calloc(npy->n_elems, sizeof *labels);
    enum nd_status status = labels != NULL ? nd_npy_read(source, npy, labels, err) : nd_fail_memory(err);
    bool is_read = status == ND_OK;
    for (size_t i = npy->n_elems; is_read && i-- > 0;)
        if (!widen(npy->dtype, labels, i, &labels[i])) /* the first element that fails is told */
            status = nd_fail(err, ND_E_PROBE_LABELS, source->path, "%s has a label above %lld at element %zu",
                             source->what, (long long)INT64_MAX, i);
    if (status == ND_OK)
        *out = labels;
    else
        free(labels);
    return status;
}

static enum nd_status open_labels(struct nd_source *source, struct nd_npy *npy, struct nd_error *err)
{
    char found[96];
    enum nd_status status = nd_npy_open(source, npy, err);
    if (status == ND_OK && !nd_dtype_is_integer(npy->dtype))
        status = nd_fail(err, ND_E_PROBE_LABELS, source->path, "%s for labels is %s, expected an integer type",
                         source->what, nd_npy_format_dtype(npy, found, sizeof found));
    return status;
}

static enum nd_status check_number(const struct nd_loader *loader, struct nd_error *err)
{
    if (loader->n_labels == loader->probe->n_samples)
        return ND_OK;
    return nd_fail(err, ND_E_PROBE_LABELS, loader->probe->name, "probe '%s' has %zu labels for %zu samples",
                   loader->probe->name, loader->n_labels, loader->probe->n_samples);
}

enum nd_status nd_loader_read_labels(struct nd_loader *loader, struct nd_source *source, struct nd_error *err)
{
    struct nd_npy npy;
    char shape[256];
    int64_t *labels = NULL;
    enum nd_status status = open_labels(source, &npy, err);
    if (status != ND_OK)
        return status;
    if (npy.rank != 1)
        return nd_fail(err, ND_E_PROBE_LABELS, source->path,
                       "%s for labels has shape %s, expected one dimension: a label for each sample",
                       source->what, nd_npy_format_shape(&npy, shape, sizeof shape));
    loader->n_labels = npy.n_elems;
    status = check_number(loader, err);
    if (status == ND_OK)
        status = read_integers(source, &npy, &labels, err);
    if (status != ND_OK)
        return status;
    free(loader->labels);
    loader->labels = labels;
    return ND_OK;
}

enum nd_status nd_loader_read_label(struct nd_loader *loader, size_t sample, struct nd_source *source,
                                    struct nd_error *err)
{
    struct nd_npy npy;
    char shape[256];
    int64_t *label = NULL;
    enum nd_status status = open_labels(source, &npy, err);
    if (status != ND_OK)
        return status;
    if (npy.rank > 1 || npy.n_elems != 1)
        return nd_fail(err, ND_E_PROBE_LABELS, source->path,
                       "%s has shape %s, expected the label of one sample", source->what,
                       nd_npy_format_shape(&npy, shape, sizeof shape));
    if (loader->labels == NULL) {
        loader->labels = nd_calloc(loader->probe->n_samples, sizeof *loader->labels);
        if (loader->labels == NULL)
            return nd_fail_memory(err);
    }
    status = read_integers(source, &npy, &label, err);
    if (status != ND_OK)
        return status;
    loader->labels[sample] = *label;
    loader->n_labels++;
    free(label);
    return ND_OK;
}

enum nd_status nd_loader_finish(struct nd_loader *loader, struct nd_error *err)
{
    enum nd_status status = loader->labels != NULL ? check_number(loader, err) : ND_OK;
    if (status != ND_OK)
        return status;
    loader->probe->labels = loader->labels;
    loader->labels = NULL;
    return ND_OK;
}
