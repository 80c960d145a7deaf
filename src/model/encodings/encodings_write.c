/* Encodings as files: AIMET 1.0.0, which the converters of QNN read, too, and ONNX Runtime's overrides. */
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/files/new_file.h"
#include "model/encodings/building.h"

static bool is_signed(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_I8 || dtype == ND_DTYPE_I16 || dtype == ND_DTYPE_I32 || dtype == ND_DTYPE_I4;
}

/* ---- AIMET 1.0.0 ---- */

/* real = scale (unsigned quantised value + offset). */
static json_t *aimet_item(const struct nd_encoding *encoding)
{
    int64_t shift = is_signed(encoding->dtype) ? (int64_t)1 << (encoding->bits - 1) : 0;
    bool is_centred = is_signed(encoding->dtype);
    json_t *scales = json_array(), *offsets = json_array();
    for (size_t i = 0; i < encoding->quant.n; i++) {
        nd_tree_append(scales, json_real((double)encoding->quant.scale[i]));
        nd_tree_append(offsets, json_integer(-(encoding->quant.zero_point[i] + shift)));
        is_centred = is_centred && encoding->quant.zero_point[i] == 0;
    }
    return json_pack("{s:o, s:s, s:s, s:i, s:b, s:o, s:o}", "name", nd_json_string(encoding->name), "dtype",
                     "INT", "enc_type", encoding->quant.n > 1 ? "PER_CHANNEL" : "PER_TENSOR", "bw",
                     encoding->bits, "is_sym", (int)is_centred, "scale", scales, "offset", offsets);
}

static json_t *aimet(const struct nd_encodings *encodings)
{
    json_t *activations = json_array(), *params = json_array();
    for (size_t i = 0; i < encodings->n; i++)
        if (encodings->items[i].quant.n > 0 && encodings->items[i].converted_from == NULL)
            nd_tree_append(encodings->items[i].role == ND_ENCODING_PARAM ? params : activations,
                           aimet_item(&encodings->items[i]));
    return json_pack("{s:s, s:{s:s, s:s}, s:o, s:o}", "version", "1.0.0", "producer", "package", "npudiff",
                     "version", ND_VERSION, "activation_encodings", activations, "param_encodings", params);
}

/* ---- ONNX Runtime ---- */

/* The names of QuantType; NULL: it has none, as for biases. */
static const char *quant_type(enum nd_dtype dtype)
{
    static const struct {
        enum nd_dtype dtype;
        const char *name;
    } types[] = {{ND_DTYPE_I8, "QInt8"},    {ND_DTYPE_U8, "QUInt8"}, {ND_DTYPE_I16, "QInt16"},
                 {ND_DTYPE_U16, "QUInt16"}, {ND_DTYPE_I4, "QInt4"},  {ND_DTYPE_U4, "QUInt4"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype)
            return types[i].name;
    return NULL;
}

static json_t *override_of(const struct nd_encoding *encoding, const char *type)
{
    json_t *list = json_array();
    for (size_t i = 0; i < encoding->quant.n; i++) {
        json_t *item =
            json_pack("{s:s, s:f, s:I}", "quant_type", type, "scale", (double)encoding->quant.scale[i],
                      "zero_point", (json_int_t)encoding->quant.zero_point[i]);
        if (encoding->quant.n > 1)
            nd_tree_set(item, "axis", json_integer(encoding->quant.axis));
        nd_tree_append(list, item);
    }
    return list;
}

/* What some nodes read in the place of the tensor, which they read in other quantised values. */
static json_t *convert_of(const struct nd_encoding *encoding, const char *type)
{
    json_t *readers = json_array();
    for (size_t i = 0; i < encoding->n_readers; i++)
        nd_tree_append(readers, nd_json_string(encoding->readers[i]));
    return json_pack("{s:s, s:f, s:I, s:o}", "quant_type", type, "scale", (double)encoding->quant.scale[0],
                     "zero_point", (json_int_t)encoding->quant.zero_point[0], "recv_nodes", readers);
}

static json_t *overrides(const struct nd_encodings *encodings)
{
    json_t *all = json_object();
    for (size_t i = 0; i < encodings->n; i++) {
        const struct nd_encoding *encoding = &encodings->items[i];
        const char *type = quant_type(encoding->dtype);
        if (encoding->quant.n > 0 && type != NULL && encoding->converted_from == NULL)
            nd_tree_set(all, encoding->name, override_of(encoding, type));
    }
    for (size_t i = 0; i < encodings->n; i++) {
        const struct nd_encoding *encoding = &encodings->items[i];
        const char *type = quant_type(encoding->dtype), *from = encoding->converted_from;
        json_t *item = from != NULL ? json_array_get(json_object_get(all, from), 0) : NULL;
        /* ONNX Runtime knows one conversion of a tensor. */
        if (item != NULL && type != NULL && encoding->quant.n == 1 && encoding->n_readers > 0 &&
            json_object_get(item, "convert") == NULL)
            nd_tree_set(item, "convert", convert_of(encoding, type));
    }
    return all;
}

enum nd_status nd_encodings_write(const struct nd_encodings *encodings, enum nd_encodings_format format,
                                  const char *path, bool replace, struct nd_error *err)
{
    json_t *root = format == ND_ENCODINGS_AIMET ? aimet(encodings) : overrides(encodings);
    char *text = root != NULL ? nd_json_dump(root, 1) : NULL;
    enum nd_status status =
        text != NULL ? nd_file_put_new(path, text, strlen(text), replace, err) : nd_fail_memory(err);
    free(text);
    json_decref(root);
    return status;
}
