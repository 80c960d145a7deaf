/* Bytes to message. What libprotobuf-c does not guard against is looked for in the raw bytes first. */
#include <string.h>

#include "model/graph/onnx.h"

/* Protobuf's own default, which ONNX Runtime has too. */
enum { MAX_DEPTH = 100 };

enum wire_type { WIRE_VARINT = 0, WIRE_64_BIT = 1, WIRE_BYTES = 2, WIRE_32_BIT = 5 };

struct reader {
    const uint8_t *at;
    const uint8_t *end;
};

static bool read_varint(struct reader *in, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned int shift = 0; shift < 70 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Steps over one field's value; *body is its content when it is a block of bytes. */
static bool skip_value(struct reader *in, unsigned int wire_type, struct reader *body)
{
    uint64_t n = 0;
    switch (wire_type) {
    case WIRE_VARINT:
        return read_varint(in, &n);
    case WIRE_64_BIT:
        n = 8;
        break;
    case WIRE_32_BIT:
        n = 4;
        break;
    case WIRE_BYTES:
        if (!read_varint(in, &n))
            return false;
        break;
    default: /* groups have been obsolete since before ONNX */
        return false;
    }
    if (n > (uint64_t)(in->end - in->at))
        return false;
    *body = (struct reader){in->at, in->at + n};
    in->at += n;
    return true;
}

static const char *check_message(const ProtobufCMessageDescriptor *type, struct reader in, int depth);

static const char *check_field(const ProtobufCFieldDescriptor *field, struct reader body, bool seen, int depth)
{
    if (field->type == PROTOBUF_C_TYPE_STRING && memchr(body.at, '\0', (size_t)(body.end - body.at)) != NULL)
        return "a name or text in it holds a NUL";
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return NULL;
    if (seen && field->label != PROTOBUF_C_LABEL_REPEATED)
        return "a part that belongs there once is there twice";
    return check_message(field->descriptor, body, depth + 1);
}

/* What is wrong with the message, or NULL. */
static const char *check_message(const ProtobufCMessageDescriptor *type, struct reader in, int depth)
{
    static const char damaged[] = "it is cut off or damaged";
    if (depth > MAX_DEPTH)
        return "it is nested too deeply";
    uint64_t seen = 0; /* one bit a field; every ONNX message has fewer than 64 */
    while (in.at < in.end) {
        uint64_t key;
        struct reader body = {in.end, in.end};
        if (!read_varint(&in, &key) || key >> 3 == 0 || key > UINT32_MAX ||
            !skip_value(&in, (unsigned int)(key & 7), &body))
            return damaged;
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(type, (unsigned int)(key >> 3));
        if (field == NULL || (key & 7) != WIRE_BYTES)
            continue;
        uint64_t bit = UINT64_C(1) << ((size_t)(field - type->fields) & 63);
        const char *reason = check_field(field, body, (seen & bit) != 0, depth);
        if (reason != NULL)
            return reason;
        seen |= bit;
    }
    return NULL;
}

/* Files that are commonly mistaken for ONNX, so that the message can say what it is. */
static const char *other_format(const char *bytes, size_t n)
{
    static const struct {
        size_t offset;
        const char *magic;
        const char *what;
    } formats[] = {
        {4, "ORTM", "it is in ONNX Runtime's own format"},
        {0, "version https://git-lfs", "it is a Git LFS pointer: fetch the file itself"},
        {0, "PK\003\004", "it is a zip archive"},
        {0, "\x89PNG", "it is a PNG image"},
        {1, "HDF\r\n", "it is an HDF5 file"},
        {4, "TFL3", "it is a TensorFlow Lite model"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t length = strlen(formats[i].magic);
        if (n >= formats[i].offset + length && memcmp(bytes + formats[i].offset, formats[i].magic, length) == 0)
            return formats[i].what;
    }
    return n == 0 ? "it is empty" : NULL;
}

static const char *what_is_missing(const Onnx__ModelProto *model)
{
    if (!model->has_ir_version || model->ir_version <= 0)
        return "it has no IR version";
    if (model->graph == NULL || (model->graph->n_node == 0 && model->graph->n_output == 0))
        return "it has no graph";
    return NULL;
}

enum nd_status nd_onnx_decode(const char *path, const void *bytes, size_t size_bytes, Onnx__ModelProto **out,
                              struct nd_error *err)
{
    const uint8_t *start = bytes;
    Onnx__ModelProto *model = NULL;
    const char *reason = other_format(bytes, size_bytes);
    if (reason == NULL)
        reason = check_message(&onnx__model_proto__descriptor, (struct reader){start, start + size_bytes}, 0);
    if (reason == NULL) {
        model = onnx__model_proto__unpack(NULL, size_bytes, bytes);
        reason = model == NULL ? "its protobuf cannot be decoded" : what_is_missing(model);
    }
    if (reason != NULL) {
        onnx__model_proto__free_unpacked(model, NULL);
        return nd_fail(err, ND_E_MODEL_PARSE, path, "'%s' is not an ONNX model: %s", path, reason);
    }
    *out = model;
    return ND_OK;
}

enum nd_status nd_onnx_decode_tensor(const char *path, const void *bytes, size_t size_bytes,
                                     Onnx__TensorProto **out, struct nd_error *err)
{
    const uint8_t *start = bytes;
    const char *reason = other_format(bytes, size_bytes);
    Onnx__TensorProto *tensor = NULL;
    if (reason == NULL)
        reason = check_message(&onnx__tensor_proto__descriptor, (struct reader){start, start + size_bytes}, 0);
    if (reason == NULL) {
        tensor = onnx__tensor_proto__unpack(NULL, size_bytes, bytes);
        reason = tensor == NULL ? "its protobuf cannot be decoded" : NULL;
    }
    if (reason != NULL)
        return nd_fail(err, ND_E_MODEL_PARSE, path, "'%s' is not an ONNX tensor: %s", path, reason);
    *out = tensor;
    return ND_OK;
}
