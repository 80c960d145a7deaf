#include <assert.h>

#include "capture/read/capture_internal.h"
#include "capture/read/view.h"

/* The rows of a tensor that are asked for. */
struct rows {
    const struct nd_index_object *object;
    size_t n_rows; /* that it has */
    size_t first, n;
};

static enum nd_status read_rows(const struct nd_capture *capture, struct rows rows, void *buf,
                                struct nd_error *err)
{
    const struct nd_index_object *object = rows.object;
    if (rows.first > rows.n_rows || rows.n > rows.n_rows - rows.first)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, object->path,
                       "'%s': samples %zu to %zu were asked for of %zu in '%s'", capture->path, rows.first,
                       rows.first + rows.n, rows.n_rows, object->path);
    enum nd_status status = nd_index_read(capture->index, object, rows.first, rows.n, buf, err);
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

enum nd_status nd_capture_read_outputs(const struct nd_capture_tensor *tensor, size_t first, size_t n,
                                       void *buf, struct nd_error *err)
{
    const struct nd_capture *capture = tensor->capture;
    assert(tensor->probe < capture->n_probes && tensor->edge < capture->n_edges);
    const struct nd_probe_data *data = &capture->probes[tensor->probe];
    const struct nd_index_object *outputs = data->edges[tensor->edge].outputs;
    if (outputs == NULL)
        return nd_capture_fail_no_outputs(capture, tensor->probe, tensor->edge, err);
    return read_rows(capture, (struct rows){outputs, data->probe.n_samples, first, n}, buf, err);
}

enum nd_status nd_capture_read_repeat(const struct nd_capture_tensor *tensor, size_t sample, size_t repeat,
                                      void *buf, struct nd_error *err)
{
    const struct nd_capture *capture = tensor->capture;
    assert(tensor->probe < capture->n_probes && tensor->edge < capture->n_edges);
    const struct nd_probe_data *data = &capture->probes[tensor->probe];
    const struct nd_probe_edge *part = &data->edges[tensor->edge];
    if (part->outputs == NULL)
        return nd_capture_fail_no_outputs(capture, tensor->probe, tensor->edge, err);
    if (sample >= data->probe.n_samples ||
        repeat >= nd_capture_n_runs(capture, tensor->probe, tensor->edge, sample))
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, part->outputs->path,
                       "'%s': sample %zu, repeat %zu was asked for of %zu samples, but there was no such run",
                       capture->path, sample, repeat, data->probe.n_samples);
    const struct nd_repeat_row *row = nd_capture_repeat_row(part, sample, repeat);
    if (row == NULL) /* opening made sure that the digests are then equal */
        return nd_capture_read_outputs(tensor, sample, 1, buf, err);
    return read_rows(capture, (struct rows){part->repeats, part->n_repeat_rows, row->row, 1}, buf, err);
}

/* kind: "edge" or "input". Of `where` only capture and probe count. */
static enum nd_status fail_damaged(const struct nd_capture_tensor *where, const char *kind, const char *name,
                                   size_t sample, struct nd_error *err)
{
    const struct nd_capture *capture = where->capture;
    return nd_fail(err, ND_E_CAPTURE_DIGEST, capture->path,
                   "'%s' is damaged: %s '%s', probe '%s', sample %zu is not what its digest was made of; "
                   "'npudiff verify' looks at everything",
                   capture->path, kind, name, capture->probes[where->probe].probe.name, sample);
}

enum nd_status nd_capture_read_inputs(const struct nd_capture_tensor *input, size_t first, size_t n, void *buf,
                                      struct nd_error *err)
{
    const struct nd_capture *capture = input->capture;
    assert(input->probe < capture->n_probes);
    const struct nd_probe_data *data = &capture->probes[input->probe];
    assert(input->edge < data->probe.n_inputs);
    const struct rows rows = {data->inputs[input->edge].object, data->probe.n_samples_expected, first, n};
    enum nd_status status = read_rows(capture, rows, buf, err);
    size_t sample_bytes = rows.n_rows > 0 ? rows.object->n_bytes / rows.n_rows : 0;
    for (size_t i = 0; status == ND_OK && !capture->is_trusted && i < n; i++)
        if (!nd_digest_equal(nd_digest_bytes((const unsigned char *)buf + i * sample_bytes, sample_bytes),
                             data->inputs[input->edge].digests[first + i]))
            status = fail_damaged(&(struct nd_capture_tensor){capture, input->probe, 0}, "input",
                                  data->probe.inputs[input->edge].name, first + i, err);
    return status;
}

/* ---- held against digests ---- */

void nd_capture_trust(struct nd_capture *capture)
{
    capture->is_trusted = true;
}

static size_t sample_bytes_of(const struct nd_capture_tensor *tensor)
{
    const struct nd_index_object *object = tensor->capture->probes[tensor->probe].edges[tensor->edge].outputs;
    size_t n_rows = (size_t)object->shape.dims[0];
    return n_rows > 0 ? object->n_bytes / n_rows : 0;
}

static enum nd_status check_sample(const struct nd_capture_tensor *tensor, size_t sample, size_t repeat,
                                   const void *bytes, struct nd_error *err)
{
    const struct nd_capture *capture = tensor->capture;
    if (capture->is_trusted)
        return ND_OK;
    enum nd_status status = nd_probe_need_digests(capture, tensor->probe, tensor->edge, err);
    if (status != ND_OK)
        return status;
    if (nd_digest_equal(nd_digest_bytes(bytes, sample_bytes_of(tensor)),
                        nd_capture_digest(capture, tensor->probe, tensor->edge, sample, repeat)))
        return ND_OK;
    return nd_capture_fail_damaged(capture, tensor->probe, tensor->edge, sample, err);
}

enum nd_status nd_capture_fail_damaged(const struct nd_capture *capture, size_t probe, size_t edge,
                                       size_t sample, struct nd_error *err)
{
    return fail_damaged(&(struct nd_capture_tensor){capture, probe, edge}, "edge", capture->edges[edge].name,
                        sample, err);
}

enum nd_status nd_capture_read_verified(const struct nd_capture_tensor *tensor, size_t first, size_t n,
                                        void *buf, struct nd_error *err)
{
    enum nd_status status = nd_capture_read_outputs(tensor, first, n, buf, err);
    size_t sample_bytes = status == ND_OK ? sample_bytes_of(tensor) : 0;
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = check_sample(tensor, first + i, 0, (const unsigned char *)buf + i * sample_bytes, err);
    return status;
}

enum nd_status nd_capture_read_repeat_verified(const struct nd_capture_tensor *tensor, size_t sample,
                                               size_t repeat, void *buf, struct nd_error *err)
{
    enum nd_status status = nd_capture_read_repeat(tensor, sample, repeat, buf, err);
    return status == ND_OK ? check_sample(tensor, sample, repeat, buf, err) : status;
}
