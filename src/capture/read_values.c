#include <assert.h>

#include "capture/capture_internal.h"
#include "capture/view.h"

/* Rows [first, first + n) of a tensor; `what` and `name` say whose it is. */
static enum nd_status read_rows(const struct nd_capture *capture, const struct nd_index_object *object,
                                size_t n_rows, size_t first, size_t n, void *buf, struct nd_error *err)
{
    if (first > n_rows || n > n_rows - first)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, object->path,
                       "'%s': samples %zu to %zu were asked for of %zu in '%s'", capture->path, first,
                       first + n, n_rows, object->path);
    enum nd_status status = nd_index_read(capture->index, object, first, n, buf, err);
    if (status != ND_OK)
        nd_error_context(err, "'%s'", capture->path);
    return status;
}

enum nd_status nd_capture_fail_no_outputs(const struct nd_capture *capture, size_t probe, size_t edge,
                                          struct nd_error *err)
{
    return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, capture->edges[edge].name,
                   "'%s': of edge '%s' of probe '%s' only digests are stored", capture->path,
                   capture->edges[edge].name, capture->probes[probe].probe.name);
}

enum nd_status nd_capture_read_outputs(const struct nd_capture *capture, size_t probe, size_t edge,
                                       size_t first, size_t n, void *buf, struct nd_error *err)
{
    assert(probe < capture->n_probes && edge < capture->n_edges);
    const struct nd_probe_data *data = &capture->probes[probe];
    if (data->edges[edge].outputs == NULL)
        return nd_capture_fail_no_outputs(capture, probe, edge, err);
    return read_rows(capture, data->edges[edge].outputs, data->probe.n_samples, first, n, buf, err);
}

enum nd_status nd_capture_read_repeat(const struct nd_capture *capture, size_t probe, size_t edge,
                                      size_t sample, size_t repeat, void *buf, struct nd_error *err)
{
    assert(probe < capture->n_probes && edge < capture->n_edges);
    const struct nd_probe_data *data = &capture->probes[probe];
    const struct nd_probe_edge *part = &data->edges[edge];
    if (part->outputs == NULL)
        return nd_capture_fail_no_outputs(capture, probe, edge, err);
    if (sample >= data->probe.n_samples || repeat >= data->probe.n_repeats)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, part->outputs->path,
                       "'%s': sample %zu, repeat %zu was asked for of %zu samples in %zu repeats",
                       capture->path, sample, repeat, data->probe.n_samples, data->probe.n_repeats);
    const struct nd_repeat_row *row = nd_capture_repeat_row(part, sample, repeat);
    if (row == NULL) /* opening made sure that the digests are then equal */
        return read_rows(capture, part->outputs, data->probe.n_samples, sample, 1, buf, err);
    return read_rows(capture, part->repeats, part->n_repeat_rows, row->row, 1, buf, err);
}

enum nd_status nd_capture_read_inputs(const struct nd_capture *capture, size_t probe, size_t input,
                                      size_t first, size_t n, void *buf, struct nd_error *err)
{
    assert(probe < capture->n_probes && input < capture->probes[probe].probe.n_inputs);
    const struct nd_probe_data *data = &capture->probes[probe];
    return read_rows(capture, data->inputs[input].object, data->probe.n_samples_expected, first, n, buf, err);
}

/* ---- held against digests ---- */

void nd_capture_trust(struct nd_capture *capture)
{
    capture->is_trusted = true;
}

static enum nd_status check_rows(const struct nd_capture *capture, size_t probe, size_t edge, size_t first,
                                 size_t n, size_t repeat, const void *buf, struct nd_error *err)
{
    const struct nd_index_object *object = capture->probes[probe].edges[edge].outputs;
    size_t n_rows = (size_t)object->shape.dims[0], row_bytes = n_rows > 0 ? object->n_bytes / n_rows : 0;
    for (size_t i = 0; i < n && !capture->is_trusted; i++)
        if (!nd_digest_equal(nd_digest_bytes((const unsigned char *)buf + i * row_bytes, row_bytes),
                             nd_capture_digest(capture, probe, edge, first + i, repeat)))
            return nd_capture_fail_damaged(capture, probe, edge, first + i, err);
    return ND_OK;
}

enum nd_status nd_capture_fail_damaged(const struct nd_capture *capture, size_t probe, size_t edge,
                                       size_t sample, struct nd_error *err)
{
    return nd_fail(
        err, ND_E_CAPTURE_DIGEST, capture->path,
        "'%s' is damaged: edge '%s', probe '%s', sample %zu is not what its digest was made of; 'npudiff "
        "verify' looks at everything",
        capture->path, capture->edges[edge].name, capture->probes[probe].probe.name, sample);
}

enum nd_status nd_capture_read_verified(const struct nd_capture *capture, size_t probe, size_t edge,
                                        size_t first, size_t n, void *buf, struct nd_error *err)
{
    enum nd_status status = nd_capture_read_outputs(capture, probe, edge, first, n, buf, err);
    return status == ND_OK ? check_rows(capture, probe, edge, first, n, 0, buf, err) : status;
}

enum nd_status nd_capture_read_repeat_verified(const struct nd_capture *capture, size_t probe, size_t edge,
                                               size_t sample, size_t repeat, void *buf, struct nd_error *err)
{
    enum nd_status status = nd_capture_read_repeat(capture, probe, edge, sample, repeat, buf, err);
    return status == ND_OK ? check_rows(capture, probe, edge, sample, 1, repeat, buf, err) : status;
}
