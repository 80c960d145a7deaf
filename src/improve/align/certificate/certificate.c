/* Certificates as files, and the digests in them. */
#include "improve/align/certificate/certificate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/digest_stream.h"

/* ---- digests ---- */

void nd_certificate_print_digest(struct nd_digest digest, char digits[static ND_CERTIFICATE_DIGEST_BYTES])
{
    snprintf(digits, ND_CERTIFICATE_DIGEST_BYTES, "%016llx%016llx", (unsigned long long)digest.high,
             (unsigned long long)digest.low);
}

enum nd_status nd_certificate_probe_digest(const struct nd_probe *probe,
                                           char digits[static ND_CERTIFICATE_DIGEST_BYTES],
                                           struct nd_error *err)
{
    struct nd_digest_stream *stream = nd_digest_stream_create();
    if (stream == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < probe->n_inputs; i++) {
        const struct nd_probe_input *input = &probe->inputs[i];
        nd_digest_stream_add(stream, input->name, strlen(input->name) + 1);
        nd_digest_stream_add(stream, input->data, probe->n_samples * input->sample_bytes);
    }
    if (probe->labels != NULL)
        nd_digest_stream_add(stream, probe->labels, probe->n_samples * sizeof *probe->labels);
    nd_certificate_print_digest(nd_digest_stream_value(stream), digits);
    nd_digest_stream_destroy(&stream);
    return ND_OK;
}

/* ---- files ---- */

static enum nd_status take_root(struct nd_certificate *certificate, const char *data, size_t n_bytes,
                                struct nd_error *err)
{
    json_error_t where;
    const char *path = certificate->path;
    certificate->root = json_loadb(data, n_bytes, JSON_REJECT_DUPLICATES, &where);
    if (certificate->root == NULL)
        return nd_fail(err, ND_E_CERTIFICATE_FORMAT, path, "'%s' is no certificate: line %d, %s", path,
                       where.line, where.text);
    const char *kind = json_string_value(json_object_get(certificate->root, "kind"));
    if (kind == NULL || strcmp(kind, nd_document_word(ND_DOCUMENT_CERTIFICATE)) != 0)
        return nd_fail(err, ND_E_CERTIFICATE_FORMAT, path, "'%s' is no certificate: its kind is '%s'", path,
                       kind != NULL ? kind : "");
    const json_t *format = json_object_get(certificate->root, "format");
    if (!json_is_integer(format) || json_integer_value(format) != ND_JSON_FORMAT)
        return nd_fail(err, ND_E_CERTIFICATE_FORMAT, path,
                       "'%s' is a certificate of another format than %d, which this version reads", path,
                       ND_JSON_FORMAT);
    return ND_OK;
}

enum nd_status nd_certificate_read(const char *path, struct nd_certificate **out, struct nd_error *err)
{
    enum { MAX_BYTES = 256 << 20 };
    struct nd_certificate *certificate = nd_calloc(1, sizeof *certificate);
    void *data = NULL;
    size_t n_bytes = 0;
    if (certificate == NULL)
        return nd_fail_memory(err);
    certificate->path = nd_strdup(path);
    enum nd_status status = certificate->path != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_file_read(path, MAX_BYTES, &data, &n_bytes, err);
    if (status == ND_OK)
        status = take_root(certificate, data, n_bytes, err);
    free(data);
    if (status == ND_OK)
        *out = certificate;
    else
        nd_certificate_destroy(&certificate);
    return status;
}

void nd_certificate_destroy(struct nd_certificate **certificate)
{
    if (*certificate == NULL)
        return;
    json_decref((*certificate)->root);
    free((*certificate)->path);
    free(*certificate);
    *certificate = NULL;
}

/* The dimensions of the input of that name; NULL: the certificate has none. */
static const json_t *shape_of(const struct nd_certificate *certificate, const char *name)
{
    const json_t *inputs = json_object_get(certificate->root, "inputs"), *input;
    size_t i;
    json_array_foreach(inputs, i, input)
    {
        const char *other = json_string_value(json_object_get(input, "name"));
        if (other != NULL && strcmp(other, name) == 0)
            return json_object_get(input, "shape");
    }
    return NULL;
}

enum nd_status nd_certificate_set_dims(const struct nd_certificate *certificate, struct nd_model *model,
                                       struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < nd_model_n_inputs(model); i++) {
        const struct nd_model_io *input = nd_model_input(model, i);
        const json_t *shape = shape_of(certificate, input->name);
        for (int d = 0; d < input->shape.rank && status == ND_OK; d++) {
            json_int_t n = json_integer_value(json_array_get(shape, (size_t)d));
            if (input->shape.dims[d] < 0 && n > 0)
                status = nd_align_set_dim(model, i, d, n, err);
        }
    }
    return status;
}
