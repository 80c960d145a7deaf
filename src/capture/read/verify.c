#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "capture/read/capture_internal.h"
#include "capture/read/content.h"

/* What is being hashed, for the report. */
struct subject {
    const struct nd_capture *capture;
    const char *probe;
    const char *kind; /* "edge" or "input" */
    const char *name;
    enum nd_dtype dtype;
    struct nd_capture_verification *out;
};

static void count_wrong(const struct subject *subject, size_t sample, size_t repeat)
{
    struct nd_capture_verification *out = subject->out;
    if (out->n_wrong++ > 0)
        return;
    int n = snprintf(out->first_wrong, sizeof out->first_wrong, "probe '%s', %s '%s', sample %zu",
                     subject->probe, subject->kind, subject->name, sample);
    if (repeat > 0 && n > 0 && (size_t)n < sizeof out->first_wrong)
        snprintf(out->first_wrong + n, sizeof out->first_wrong - (size_t)n, ", repeat %zu", repeat);
}

/* Digest of row i: digests[i * stride]; of a stored repeat, rows[i] says whose it is. */
struct expectation {
    const struct nd_digest *digests;
    size_t stride;
    const struct nd_repeat_row *rows;
};

/* Every byte is a value of every type but the 4-bit integers. */
static bool has_values_only(enum nd_dtype dtype, const unsigned char *data, size_t n_bytes)
{
    unsigned char outside = 0;
    if (dtype != ND_DTYPE_U4 && dtype != ND_DTYPE_I4)
        return true;
    unsigned char shift = dtype == ND_DTYPE_I4 ? 8 : 0; /* -8..7 as 0..15 */
    for (size_t i = 0; i < n_bytes; i++)
        outside |= (unsigned char)(data[i] + shift) & 0xf0;
    return outside == 0;
}

static void check_row(const struct subject *subject, const struct expectation *expected, size_t i,
                      const unsigned char *data, size_t row_bytes)
{
    size_t sample = i, repeat = 0;
    if (expected->rows != NULL) {
        sample = (size_t)expected->rows[i].sample;
        repeat = (size_t)expected->rows[i].repeat;
    }
    subject->out->n_tensors++;
    /* data NULL: the row could not even be decoded */
    if (data == NULL || !has_values_only(subject->dtype, data, row_bytes) ||
        !nd_digest_equal(nd_digest_bytes(data, row_bytes), expected->digests[i * expected->stride]))
        count_wrong(subject, sample, repeat);
}

/* Hashes every row, a chunk at a time so that none is inflated twice. */
static enum nd_status check_tensor(const struct subject *subject, const struct nd_index_object *object,
                                   const struct expectation *expected, struct nd_error *err)
{
    size_t n = (size_t)object->shape.dims[0];
    size_t row_bytes = n > 0 ? object->n_bytes / n : 0;
    size_t n_batch = object->chunks != NULL ? object->layout.samples_per_chunk : 1;
    n_batch = n_batch < n ? n_batch : n;
    size_t batch_bytes;
    enum nd_status status = ND_OK;
    unsigned char *data = nd_size_mul(n_batch, row_bytes, &batch_bytes) ? nd_tensor_alloc(batch_bytes) : NULL;
    if (data == NULL)
        return nd_fail_memory(err);
    for (size_t first = 0; first < n && status == ND_OK; first += n_batch) {
        size_t n_rows = n - first < n_batch ? n - first : n_batch;
        status = nd_index_read(subject->capture->index, object, first, n_rows, data, err);
        bool is_read = status == ND_OK;
        if (status == ND_ERR_FORMAT)
            status = ND_OK; /* damage is what is looked for */
        for (size_t i = 0; i < n_rows && status == ND_OK; i++)
            check_row(subject, expected, first + i, is_read ? data + i * row_bytes : NULL, row_bytes);
    }
    free(data);
    return status;
}

/* Stored repeats are kept sorted by sample; hashing goes by row. */
static enum nd_status check_repeats(const struct subject *subject, size_t probe, size_t edge,
                                    struct nd_error *err)
{
    const struct nd_probe_edge *part = &subject->capture->probes[probe].edges[edge];
    struct nd_repeat_row *rows = nd_calloc(part->n_repeat_rows, sizeof *rows);
    struct nd_digest *digests = nd_calloc(part->n_repeat_rows, sizeof *digests);
    for (size_t i = 0; rows != NULL && digests != NULL && i < part->n_repeat_rows; i++) {
        const struct nd_repeat_row *row = &part->repeat_rows[i];
        rows[row->row] = *row;
        digests[row->row] =
            nd_capture_digest(subject->capture, probe, edge, (size_t)row->sample, (size_t)row->repeat);
    }
    struct expectation expected = {digests, 1, rows};
    enum nd_status status = rows != NULL && digests != NULL
                                ? check_tensor(subject, part->repeats, &expected, err)
                                : nd_fail_memory(err);
    free(rows);
    free(digests);
    return status;
}

static enum nd_status check_probe(const struct nd_capture *capture, size_t p,
                                  struct nd_capture_verification *out, struct nd_error *err)
{
    const struct nd_probe_data *data = &capture->probes[p];
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < data->probe.n_inputs && status == ND_OK; i++) {
        struct subject subject = {
            capture, data->probe.name, "input", data->probe.inputs[i].name, data->probe.inputs[i].dtype, out};
        struct expectation expected = {data->inputs[i].digests, 1, NULL};
        status = check_tensor(&subject, data->inputs[i].object, &expected, err);
    }
    for (size_t i = 0; i < capture->n_edges && status == ND_OK; i++) {
        const struct nd_probe_edge *part = &data->edges[i];
        struct subject subject = {
            capture, data->probe.name, "edge", capture->edges[i].name, capture->edges[i].dtype, out};
        status = nd_probe_need_digests(capture, p, i, err);
        struct expectation expected = {part->digests, data->probe.n_repeats, NULL};
        if (status == ND_OK && part->outputs != NULL)
            status = check_tensor(&subject, part->outputs, &expected, err);
        if (status == ND_OK && part->repeats != NULL)
            status = check_repeats(&subject, p, i, err);
    }
    return status;
}

/* Digests that opening has not read are stood for by what is stated of them. */
static enum nd_status content_of(const struct nd_capture *capture, char hex[static ND_CONTENT_DIGEST_BYTES],
                                 struct nd_error *err)
{
    if (capture->deferred == NULL)
        return nd_content_digest(capture->index, NULL, hex, err);
    const struct nd_index *index = capture->index;
    const struct nd_digest **stated = nd_calloc(index->n_objects, sizeof(const struct nd_digest *));
    if (stated == NULL)
        return nd_fail_memory(err);
    for (size_t p = 0; p < capture->n_probes; p++)
        for (size_t e = 0; e < capture->n_edges; e++) {
            const struct nd_index_object *object = capture->probes[p].edges[e].digests_object;
            if (object != NULL)
                stated[object - index->objects] = nd_capture_edge_digest(capture, p, e);
        }
    enum nd_status status = nd_content_digest(index, stated, hex, err);
    free(stated);
    return status;
}

enum nd_status nd_capture_check_content(const struct nd_capture *capture, struct nd_error *err)
{
    char digest[ND_CONTENT_DIGEST_BYTES];
    const char *stored = nd_capture_string(capture, "", "content_digest");
    if (capture->is_trusted || capture->is_checked)
        return ND_OK;
    enum nd_status status = content_of(capture, digest, err);
    bool is_right = status == ND_OK && stored != NULL && strcmp(stored, digest) == 0;
    if (is_right && capture->deferred == NULL)
        is_right = nd_capture_are_edge_digests_right(capture);
    if (status == ND_OK && !is_right)
        return nd_fail(
            err, ND_E_CAPTURE_DIGEST, capture->path,
            "'%s' is damaged: its tables, attributes or digests are not what its content digest was made of; "
            "'npudiff verify' looks at everything",
            capture->path);
    if (status != ND_OK)
        nd_error_context(err, "'%s'", capture->path);
    return status;
}

enum nd_status nd_capture_verify(const struct nd_capture *capture, struct nd_capture_verification *out,
                                 struct nd_error *err)
{
    struct nd_capture_verification found = {0};
    char digest[ND_CONTENT_DIGEST_BYTES];
    enum nd_status status = nd_content_digest(capture->index, NULL, digest, err);
    if (status == ND_OK) {
        const char *stored = nd_capture_string(capture, "", "content_digest");
        found.content_matches =
            stored != NULL && strcmp(stored, digest) == 0 && nd_capture_are_edge_digests_right(capture);
    } else if (status == ND_ERR_FORMAT) {
        status = ND_OK; /* a table that cannot be read does not match either */
    }
    for (size_t i = 0; i < capture->n_probes && status == ND_OK; i++)
        status = check_probe(capture, i, &found, err);
    if (status == ND_OK)
        *out = found;
    return status;
}
