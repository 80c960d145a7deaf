/* The data of a .npy file. */
#include "record/probes/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "record/probes/build.h"

enum nd_status nd_loader_init(struct nd_loader *loader, struct nd_probe *probe, bool has_explicit_labels,
                              struct nd_error *err)
{
    struct nd_loader made = {.probe = probe, .has_explicit_labels = has_explicit_labels};
    made.filled = nd_calloc(probe->n_inputs, sizeof *made.filled);
    if (made.filled == NULL)
        return nd_fail_memory(err);
    *loader = made;
    return ND_OK;
}

void nd_loader_deinit(struct nd_loader *loader)
{
    free(loader->samples_from);
    free(loader->labels);
    free(loader->filled);
    memset(loader, 0, sizeof *loader);
}

/* ---- Types and shapes ---- */

static enum nd_status check_type(const struct nd_source *source, const struct nd_npy *npy,
                                 const struct nd_probe_input *input, struct nd_error *err)
{
    char found[96];
    if (npy->dtype == input->dtype)
        return ND_OK;
    return nd_fail(err, ND_E_PROBE_TYPE, source->path, "%s for input '%s' is %s, expected %s%s", source->what,
                   input->name, nd_npy_format_dtype(npy, found, sizeof found), nd_dtype_name(input->dtype),
                   input->dtype == ND_DTYPE_BF16 ? " (which .npy cannot hold: use .raw files in a list)" : "");
}

static bool dims_equal(const int64_t *a, const int64_t *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

/* The number of samples in an array: [S] + shape, or [S] + shape[1:] where a sample's own first dimension is 1,
 * or a single sample of exactly the shape. No two of these have the same rank unless they mean the same. */
static bool count_samples(const struct nd_npy *npy, const struct nd_shape *shape, size_t *n_samples)
{
    if (npy->rank == shape->rank + 1 && dims_equal(npy->dims + 1, shape->dims, shape->rank)) {
        *n_samples = (size_t)npy->dims[0];
        return true;
    }
    if (npy->rank != shape->rank)
        return false;
    if (shape->rank > 0 && shape->dims[0] == 1 && dims_equal(npy->dims + 1, shape->dims + 1, shape->rank - 1)) {
        *n_samples = (size_t)npy->dims[0];
        return true;
    }
    if (!dims_equal(npy->dims, shape->dims, shape->rank))
        return false;
    *n_samples = 1;
    return true;
}

static enum nd_status check_shape(const struct nd_source *source, const struct nd_npy *npy,
                                  const struct nd_probe_input *input, size_t *n_samples, struct nd_error *err)
{
    char found[256], expected[256];
    struct nd_npy wanted = {.rank = input->shape.rank};
    memcpy(wanted.dims, input->shape.dims, sizeof input->shape.dims);
    nd_npy_format_shape(&wanted, expected, sizeof expected);
    nd_npy_format_shape(npy, found, sizeof found);
    if (!count_samples(npy, &input->shape, n_samples)) {
        bool is_batch = input->shape.rank > 0 && input->shape.dims[0] == 1;
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path,
                       "%s for input '%s' has shape %s, expected samples of shape %s%s", source->what,
                       input->name, found, expected,
                       is_batch ? " along the first dimension" : " behind a dimension of samples");
    }
    if (*n_samples == 0)
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path, "%s for input '%s' has no samples (shape %s)",
                       source->what, input->name, found);
    return ND_OK;
}

/* The header of an array for an input, of the right type and shape. */
static enum nd_status open_array(const struct nd_loader *loader, size_t input, struct nd_source *source,
                                 struct nd_npy *npy, size_t *n_samples, struct nd_error *err)
{
    const struct nd_probe_input *wanted = &loader->probe->inputs[input];
    if (loader->filled[input])
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s is the second data for input '%s'",
                       source->what, wanted->name);
    enum nd_status status = nd_npy_open(source, npy, err);
    if (status == ND_OK)
        status = check_type(source, npy, wanted, err);
    if (status == ND_OK)
        status = check_shape(source, npy, wanted, n_samples, err);
    return status;
}

/* ---- By whole inputs ---- */

static enum nd_status agree_on_samples(struct nd_loader *loader, size_t n_samples, const char *from,
                                       struct nd_error *err)
{
    if (loader->samples_from != NULL) {
        if (n_samples == loader->probe->n_samples)
            return ND_OK;
        return nd_fail(err, ND_E_PROBE_SHAPE, NULL, "%s has %zu samples, but %s has %zu", from, n_samples,
                       loader->samples_from, loader->probe->n_samples);
    }
    enum nd_status status = nd_probe_set_samples(loader->probe, n_samples, err);
    if (status != ND_OK)
        return status;
    loader->samples_from = nd_strdup(from);
    return loader->samples_from != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_loader_read_input(struct nd_loader *loader, size_t input, struct nd_source *source,
                                    struct nd_error *err)
{
    struct nd_npy npy;
    size_t n_samples = 0;
    enum nd_status status = open_array(loader, input, source, &npy, &n_samples, err);
    if (status == ND_OK)
        status = agree_on_samples(loader, n_samples, source->what, err);
    if (status == ND_OK)
        status = nd_probe_alloc_input(loader->probe, input, err);
    if (status == ND_OK)
        status = nd_npy_read(source, &npy, loader->probe->inputs[input].data, err);
    if (status == ND_OK)
        loader->filled[input] = true;
    return status;
}

/* ---- Sample by sample ---- */

enum nd_status nd_loader_begin_samples(struct nd_loader *loader, size_t n_samples, const char *from,
                                       struct nd_error *err)
{
    enum nd_status status = agree_on_samples(loader, n_samples, from, err);
    for (size_t i = 0; i < loader->probe->n_inputs && status == ND_OK; i++)
        status = nd_probe_alloc_input(loader->probe, i, err);
    return status;
}

void nd_loader_next_sample(struct nd_loader *loader)
{
    memset(loader->filled, 0, loader->probe->n_inputs * sizeof *loader->filled);
}

static void *place_of(const struct nd_loader *loader, size_t input, size_t sample)
{
    const struct nd_probe_input *made = &loader->probe->inputs[input];
    return (unsigned char *)made->data + sample * made->sample_bytes;
}

enum nd_status nd_loader_read_sample(struct nd_loader *loader, size_t input, size_t sample,
                                     struct nd_source *source, struct nd_error *err)
{
    struct nd_npy npy;
    size_t n_samples = 0;
    enum nd_status status = open_array(loader, input, source, &npy, &n_samples, err);
    if (status != ND_OK)
        return status;
    if (n_samples != 1)
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path, "%s holds %zu samples of input '%s', expected one",
                       source->what, n_samples, loader->probe->inputs[input].name);
    status = nd_npy_read(source, &npy, place_of(loader, input, sample), err);
    if (status == ND_OK)
        loader->filled[input] = true;
    return status;
}

enum nd_status nd_loader_read_raw(struct nd_loader *loader, size_t input, size_t sample,
                                  struct nd_source *source, struct nd_error *err)
{
    const struct nd_probe_input *wanted = &loader->probe->inputs[input];
    char shape[256];
    if (loader->filled[input])
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s is the second data for input '%s'",
                       source->what, wanted->name);
    if (source->size_bytes != wanted->sample_bytes)
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path,
                       "%s for input '%s' has %zu bytes, expected %zu: %s %s without a header", source->what,
                       wanted->name, source->size_bytes, wanted->sample_bytes, nd_dtype_name(wanted->dtype),
                       nd_shape_format(&wanted->shape, shape, sizeof shape));
    void *place = place_of(loader, input, sample);
    enum nd_status status = nd_source_read(source, place, wanted->sample_bytes, err);
    if (status == ND_OK)
        status = nd_source_finish(source, err);
    if (status == ND_OK && wanted->dtype == ND_DTYPE_BOOL)
        status = nd_npy_check_bools(source, place, wanted->sample_bytes, err);
    if (status == ND_OK)
        loader->filled[input] = true;
    return status;
}

/* ---- At the end ---- */

enum nd_status nd_loader_check_filled(const struct nd_loader *loader, const char *where, struct nd_error *err)
{
    for (size_t i = 0; i < loader->probe->n_inputs; i++)
        if (!loader->filled[i])
            return nd_fail(err, ND_E_PROBE_INPUT, where, "'%s' has no data for input '%s'", where,
                           loader->probe->inputs[i].name);
    return ND_OK;
}
