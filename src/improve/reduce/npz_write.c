#include "improve/reduce/npz_write.h"

#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

static const char *descr(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_F32:
        return "<f4";
    case ND_DTYPE_F64:
        return "<f8";
    case ND_DTYPE_F16:
        return "<f2";
    case ND_DTYPE_U8:
        return "|u1";
    case ND_DTYPE_I8:
        return "|i1";
    case ND_DTYPE_U16:
        return "<u2";
    case ND_DTYPE_I16:
        return "<i2";
    case ND_DTYPE_U32:
        return "<u4";
    case ND_DTYPE_I32:
        return "<i4";
    case ND_DTYPE_U64:
        return "<u8";
    case ND_DTYPE_I64:
        return "<i8";
    case ND_DTYPE_BOOL:
        return "|b1";
    default:
        return NULL;
    }
}

enum { PREFIX_BYTES = 10, ALIGNMENT = 64 };

/* Everything before the data, padded so that the data is aligned. */
static void put_header(struct nd_strbuf *out, const struct nd_npz_array *array)
{
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,", descr(array->dtype),
                     array->n_samples);
    for (int d = 0; d < array->shape.rank; d++)
        nd_strbuf_printf(&text, "%s%lld", d > 0 ? ", " : " ", (long long)array->shape.dims[d]);
    nd_strbuf_puts(&text, "), }");
    while (!text.failed && (PREFIX_BYTES + text.len + 1) % ALIGNMENT != 0)
        nd_strbuf_puts(&text, " ");
    nd_strbuf_puts(&text, "\n");
    const char prefix[PREFIX_BYTES] = {
        '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(text.len & 0xff), (char)(text.len >> 8 & 0xff)};
    nd_strbuf_append(out, prefix, sizeof prefix);
    nd_strbuf_append(out, text.text, text.len);
    out->failed = out->failed || text.failed;
    nd_strbuf_deinit(&text);
}

static enum nd_status add_array(zip_t *zip, const char *path, const struct nd_npz_array *array,
                                struct nd_error *err)
{
    const zip_int64_t day_one = 315532800; /* 1980-01-01, the first that zip knows */
    struct nd_strbuf file = {0}, name = {0};
    if (descr(array->dtype) == NULL)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, array->name, "'%s' is %s, which NumPy's files lack",
                       array->name, nd_dtype_name(array->dtype));
    put_header(&file, array);
    nd_strbuf_append(&file, array->data, array->size_bytes);
    nd_strbuf_printf(&name, "%s.npy", array->name);
    bool is_whole = !file.failed && !name.failed;
    zip_source_t *source = is_whole ? zip_source_buffer(zip, file.text, file.len, 1) : NULL;
    enum nd_status status = is_whole && source != NULL ? ND_OK : nd_fail_memory(err);
    if (source != NULL) {
        file = (struct nd_strbuf){0}; /* the source frees it */
        zip_int64_t index = zip_file_add(zip, name.text, source, ZIP_FL_ENC_UTF_8);
        bool is_added = index >= 0 &&
                        zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0) == 0 &&
                        zip_file_set_mtime(zip, (zip_uint64_t)index, day_one, 0) == 0;
        if (index < 0)
            zip_source_free(source);
        if (!is_added)
            status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, zip_strerror(zip));
    }
    nd_strbuf_deinit(&file);
    nd_strbuf_deinit(&name);
    return status;
}

enum nd_status nd_npz_write(const char *path, const struct nd_npz_array *arrays, size_t n_arrays,
                            struct nd_error *err)
{
    int code = 0;
    enum nd_status status = ND_OK;
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_EXCL, &code);
    if (zip == NULL)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot create '%s'", path);
    for (size_t i = 0; status == ND_OK && i < n_arrays; i++)
        status = add_array(zip, path, &arrays[i], err);
    if (status != ND_OK) {
        zip_discard(zip);
        return status;
    }
    if (zip_close(zip) != 0) {
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, zip_strerror(zip));
        zip_discard(zip);
    }
    return status;
}
