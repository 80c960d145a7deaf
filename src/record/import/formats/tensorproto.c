/* TensorProto files: ONNX's test data. A folder test_data_set_N is a sample: input_K.pb and output_K.pb. */
#include "record/import/imported.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"

/* The numbers of enum nd_dtype are ONNX's own. */
static enum nd_dtype find_dtype(int32_t data_type)
{
    enum nd_dtype dtype = (enum nd_dtype)data_type;
    return data_type > 0 && data_type < 64 && nd_dtype_size_bytes(dtype) > 0 ? dtype : ND_DTYPE_NONE;
}

/* Bytes of what is packed: two 4-bit integers to a byte. */
static bool is_packed(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4;
}

enum nd_status nd_tensorproto_describe(const Onnx__TensorProto *proto, const char *path, enum nd_dtype *dtype,
                                       struct nd_shape *shape, struct nd_error *err)
{
    int32_t data_type = proto->has_data_type ? proto->data_type : 0;
    bool is_external =
        proto->has_data_location && proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    if (proto->segment != NULL || is_external)
        return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' keeps its data elsewhere (%s), which is not read",
                       path, is_external ? "external data" : "a segment");
    *dtype = find_dtype(data_type);
    if (*dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_IMPORT_TYPE, path, "'%s' has the ONNX element type %d, which captures lack",
                       path, (int)data_type);
    if (proto->n_dims >= ND_MAX_RANK)
        return nd_fail(err, ND_E_IMPORT_TYPE, path, "'%s' has %zu dimensions; at most %d are stored", path,
                       proto->n_dims, ND_MAX_RANK - 1);
    *shape = (struct nd_shape){.rank = (int)proto->n_dims};
    for (size_t d = 0; d < proto->n_dims; d++) {
        if (proto->dims[d] < 0)
            return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' has a dimension of %lld", path,
                           (long long)proto->dims[d]);
        shape->dims[d] = proto->dims[d];
    }
    size_t n_elems = 0, n_there = proto->raw_data.len * 2 + proto->n_float_data + proto->n_int32_data * 2 +
                                  proto->n_int64_data + proto->n_double_data + proto->n_uint64_data;
    enum nd_status status = nd_shape_n_elems(shape, &n_elems, err);
    if (status == ND_OK && n_elems > n_there) /* before anything of that size is allocated */
        status = nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' says that it has %zu elements, but holds fewer",
                         path, n_elems);
    return status;
}

/* The two numbers in a byte, the first in its low half. */
static void put_nibble(enum nd_dtype dtype, unsigned char packed, size_t i, unsigned char *out)
{
    unsigned nibble = i % 2 == 0 ? packed & 15u : packed >> 4u;
    out[i] = (unsigned char)(dtype == ND_DTYPE_I4 && nibble > 7 ? nibble | 0xf0u : nibble);
}

static enum nd_status fail_count(const char *path, const char *field, size_t n_found, const char *what,
                                 size_t n, struct nd_error *err)
{
    return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' has %zu %s in %s; its shape and type take %zu", path,
                   n_found, what, field, n);
}

static enum nd_status unpack_raw(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                 size_t n, unsigned char *out, struct nd_error *err)
{
    size_t n_bytes = is_packed(dtype) ? n / 2 + n % 2 : n * nd_dtype_size_bytes(dtype);
    if (proto->raw_data.len != n_bytes)
        return fail_count(path, "raw_data", proto->raw_data.len, "bytes", n_bytes, err);
    for (size_t i = 0; is_packed(dtype) && i < n; i++)
        put_nibble(dtype, proto->raw_data.data[i / 2], i, out);
    if (!is_packed(dtype) && n_bytes > 0)
        memcpy(out, proto->raw_data.data, n_bytes);
    return ND_OK;
}

/* Whether the low bytes are the value: an int32 may stand for quantised values or the bits of a small float. */
static bool fits(enum nd_dtype dtype, int32_t value)
{
    size_t n_bits = is_packed(dtype) ? 8 : 8 * nd_dtype_size_bytes(dtype);
    if (n_bits >= 32)
        return true;
    if (dtype == ND_DTYPE_BOOL)
        return value == 0 || value == 1;
    if (nd_dtype_is_signed_integer(dtype) && !is_packed(dtype))
        return value >= -(INT32_C(1) << (n_bits - 1)) && value < INT32_C(1) << (n_bits - 1);
    return value >= 0 && value < INT32_C(1) << n_bits;
}

static enum nd_status unpack_int32(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                   size_t n, unsigned char *out, struct nd_error *err)
{
    size_t size = nd_dtype_size_bytes(dtype), n_fields = is_packed(dtype) ? n / 2 + n % 2 : n;
    if (proto->n_int32_data != n_fields)
        return fail_count(path, "int32_data", proto->n_int32_data, "numbers", n_fields, err);
    for (size_t i = 0; i < n_fields; i++)
        if (!fits(dtype, proto->int32_data[i]))
            return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s': element %zu is %ld, which is no %s", path, i,
                           (long)proto->int32_data[i], nd_dtype_name(dtype));
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)proto->int32_data[is_packed(dtype) ? i / 2 : i];
        if (is_packed(dtype))
            put_nibble(dtype, (unsigned char)bits, i, out);
        else
            memcpy(out + i * size, &bits, size); /* little endian, as all of npudiff's data */
    }
    return ND_OK;
}

static enum nd_status unpack_uint64(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                    size_t n, unsigned char *out, struct nd_error *err)
{
    size_t size = nd_dtype_size_bytes(dtype);
    if (proto->n_uint64_data != n)
        return fail_count(path, "uint64_data", proto->n_uint64_data, "numbers", n, err);
    for (size_t i = 0; i < n; i++) {
        uint64_t value = proto->uint64_data[i];
        if (size == 4 && value > UINT32_MAX)
            return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s': element %zu is %llu, which is no uint32", path,
                           i, (unsigned long long)value);
        memcpy(out + i * size, &value, size);
    }
    return ND_OK;
}

enum nd_status nd_tensorproto_unpack(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                     const struct nd_shape *shape, void *data, struct nd_error *err)
{
    size_t n = 0;
    int n_fields = (proto->n_float_data > 0) + (proto->n_int32_data > 0) + (proto->n_int64_data > 0) +
                   (proto->n_double_data > 0) + (proto->n_uint64_data > 0) + (proto->n_string_data > 0);
    ND_TRY(nd_shape_n_elems(shape, &n, err));
    if (n_fields + (proto->has_raw_data && proto->raw_data.len > 0) > 1)
        return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' holds its data in several fields", path);
    if (proto->has_raw_data && n_fields == 0)
        return unpack_raw(proto, path, dtype, n, data, err);
    if (dtype == ND_DTYPE_U32 || dtype == ND_DTYPE_U64)
        return unpack_uint64(proto, path, dtype, n, data, err);
    const struct {
        enum nd_dtype dtype;
        const char *name;
        const void *values;
        size_t n;
    } fields[] = {{ND_DTYPE_F32, "float_data", proto->float_data, proto->n_float_data},
                  {ND_DTYPE_F64, "double_data", proto->double_data, proto->n_double_data},
                  {ND_DTYPE_I64, "int64_data", proto->int64_data, proto->n_int64_data}};
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
        if (fields[f].dtype != dtype)
            continue;
        if (fields[f].n != n)
            return fail_count(path, fields[f].name, fields[f].n, "numbers", n, err);
        if (n > 0)
            memcpy(data, fields[f].values, n * nd_dtype_size_bytes(dtype));
        return ND_OK;
    }
    return unpack_int32(proto, path, dtype, n, data, err);
}

enum { MAX_TENSORS = 1000000 };

/* Protobuf's own limit. */
static const size_t max_file_bytes = INT32_MAX;

/* ---- one file ---- */

/* The name in the file, else that of the model's input or output of this number, else "output_3". */
static char *choose_name(const struct nd_import_options *options, enum nd_imported_side side, size_t index,
                         const char *stored)
{
    char text[48];
    const struct nd_model *model = options->model;
    if (stored != NULL && stored[0] != '\0')
        return nd_strdup(stored);
    if (model != NULL && side == ND_IMPORTED_INPUT && index < nd_model_n_inputs(model))
        return nd_strdup(nd_model_input(model, index)->name);
    if (model != NULL && side == ND_IMPORTED_OUTPUT && index < nd_model_n_outputs(model))
        return nd_strdup(nd_model_output(model, index)->name);
    snprintf(text, sizeof text, "%s_%zu", side == ND_IMPORTED_INPUT ? "input" : "output", index);
    return nd_strdup(text);
}

/* What is read, and how far. */
struct reading {
    const struct nd_import_options *options;
    struct nd_imported *imported;
    size_t n_samples, n_files;
};

static enum nd_status add_tensor(struct reading *r, enum nd_imported_side side, size_t index, size_t sample,
                                 const char *path, struct nd_error *err)
{
    void *bytes = NULL, *data = NULL;
    size_t n_bytes = 0;
    ND_FREED char *name = NULL;
    Onnx__TensorProto *proto = NULL;
    struct nd_imported_new added = {.side = side, .sample = sample};
    struct nd_strbuf where = {0};
    nd_strbuf_printf(&where, "'%s'", path);
    ND_FREED char *what = nd_strbuf_take(&where);
    enum nd_status status =
        what != NULL ? nd_file_read(path, max_file_bytes, &bytes, &n_bytes, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_onnx_decode_tensor(path, bytes, n_bytes, &proto, err);
    free(bytes);
    if (status == ND_OK)
        status = nd_tensorproto_describe(proto, path, &added.dtype, &added.shape, err);
    added.where = what;
    if (status == ND_OK && (name = choose_name(r->options, side, index, proto->name)) == NULL)
        status = nd_fail_memory(err);
    added.name = name;
    if (status == ND_OK)
        status = nd_imported_add(r->imported, &added, &data, err);
    if (status == ND_OK)
        status = nd_tensorproto_unpack(proto, path, added.dtype, &added.shape, data, err);
    if (proto != NULL)
        onnx__tensor_proto__free_unpacked(proto, NULL);
    return status;
}

/* ---- folders ---- */

/* N of "<prefix>N<suffix>", or SIZE_MAX. */
static size_t number_in(const char *name, const char *prefix, const char *suffix)
{
    size_t n = strlen(name), n_prefix = strlen(prefix), n_suffix = strlen(suffix);
    uint64_t number = 0;
    if (n <= n_prefix + n_suffix || n - n_prefix - n_suffix > 9 || strncmp(name, prefix, n_prefix) != 0 ||
        strcmp(name + n - n_suffix, suffix) != 0)
        return SIZE_MAX;
    char digits[10];
    snprintf(digits, sizeof digits, "%.*s", (int)(n - n_prefix - n_suffix), name + n_prefix);
    return nd_parse_u64(digits, &number) ? (size_t)number : SIZE_MAX;
}

/* How many "<prefix>0<suffix>", ... are there; with a gap it is an error. */
static enum nd_status count_numbered(const char *folder, const char *prefix, const char *suffix, size_t *out,
                                     struct nd_error *err)
{
    size_t n = 0, highest = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, folder, "cannot open folder '%s': %s", folder, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        size_t number = number_in(entry->d_name, prefix, suffix);
        if (number == SIZE_MAX)
            continue;
        n++;
        highest = number > highest ? number : highest;
    }
    closedir(dir);
    if (n > 0 && (highest + 1 != n || n > MAX_TENSORS))
        return nd_fail(
            err, ND_E_IMPORT_FORMAT, folder,
            "folder '%s' has %zu of '%sN%s', but the highest number is %zu: they count from 0 without gaps",
            folder, n, prefix, suffix, highest);
    *out = n;
    return ND_OK;
}

static enum nd_status add_side(struct reading *r, enum nd_imported_side side, const char *folder, size_t sample,
                               struct nd_error *err)
{
    size_t n = 0;
    const char *prefix = side == ND_IMPORTED_INPUT ? "input_" : "output_";
    ND_TRY(count_numbered(folder, prefix, ".pb", &n, err));
    for (size_t i = 0; i < n; i++) {
        ND_FREED char *file = nd_text("%s/%s%zu.pb", folder, prefix, i);
        ND_TRY(file != NULL ? add_tensor(r, side, i, sample, file, err) : nd_fail_memory(err));
    }
    if (n == 0 && side == ND_IMPORTED_OUTPUT)
        return nd_fail(err, ND_E_IMPORT_NOTHING, folder,
                       "folder '%s' has neither output_0.pb nor test_data_set_0", folder);
    return ND_OK;
}

static enum nd_status add_data_set(struct reading *r, const char *folder, struct nd_error *err)
{
    size_t sample = r->n_samples++;
    enum nd_status status = add_side(r, ND_IMPORTED_INPUT, folder, sample, err);
    return status == ND_OK ? add_side(r, ND_IMPORTED_OUTPUT, folder, sample, err) : status;
}

/* A folder of data sets, one data set, or a file that is an output. */
static enum nd_status add_path(struct reading *r, const char *path, struct nd_error *err)
{
    struct stat info;
    size_t n = 0;
    if (stat(path, &info) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return add_tensor(r, ND_IMPORTED_OUTPUT, r->n_files++, 0, path, err);
    ND_TRY(count_numbered(path, "test_data_set_", "", &n, err));
    if (n == 0)
        return add_data_set(r, path, err);
    for (size_t i = 0; i < n; i++) {
        ND_FREED char *folder = nd_text("%s/test_data_set_%zu", path, i);
        ND_TRY(folder != NULL ? add_data_set(r, folder, err) : nd_fail_memory(err));
    }
    return ND_OK;
}

static enum nd_status read_onnx_pb(const struct nd_import_options *options, struct nd_imported *imported,
                                   struct nd_error *err)
{
    static const char *const facts[][2] = {{"names", "TensorProto, or its place among the model's outputs"},
                                           {"types", "TensorProto"},
                                           {"shapes", "TensorProto"},
                                           {"samples", "one of each test_data_set_N"}};
    struct reading reading = {.options = options, .imported = imported};
    for (size_t i = 0; i < options->n_paths; i++)
        ND_TRY(add_path(&reading, options->paths[i], err));
    if (reading.n_samples > 0 && reading.n_files > 0)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->paths[0],
                       "single .pb files and folders do not go together");
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        ND_TRY(nd_imported_fact(imported, facts[i][0], NULL, facts[i][1], err));
    if (imported->sides[ND_IMPORTED_INPUT].n > 0)
        ND_TRY(nd_imported_fact(imported, "inputs", NULL, "input_K.pb", err));
    return ND_OK;
}

const struct nd_import_reader nd_import_onnx_pb = {
    .format = {"onnx-pb", "FOLDER|OUTPUT.pb...",
               "ONNX TensorProto files: folders test_data_set_N (each is a sample, with input_K.pb and "
               "output_K.pb), a folder that holds them, or single .pb files"},
    .read = read_onnx_pb,
};
