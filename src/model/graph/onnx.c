/* ONNX protobufs: bytes to message, and what single messages say. What libprotobuf-c does not guard against is
 * looked for in the raw bytes first. */
#include "model/graph/onnx.h"

#include "core/memory.h"
#include "core/text/strbuf.h"

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
    uint64_t n = wire_type == WIRE_64_BIT ? 8 : wire_type == WIRE_32_BIT ? 4 : 0;
    if (wire_type == WIRE_VARINT)
        return read_varint(in, &n);
    /* Groups have been obsolete since before ONNX. */
    if (n == 0 && (wire_type != WIRE_BYTES || !read_varint(in, &n)))
        return false;
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

/* ---- what messages say ---- */

typedef enum nd_status (*visit_function)(const Onnx__TensorProto *, void *, struct nd_error *);

/* The messages that a field of `message` holds: *items with *n entries. */
static void field_messages(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                           ProtobufCMessage *const **items, size_t *n)
{
    const char *base = (const char *)message;
    const void *member = base + field->offset;
    const void *quantifier = base + field->quantifier_offset;
    *n = 0;
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        memcpy(n, quantifier, sizeof *n);
        memcpy(items, member, sizeof *items);
        return;
    }
    uint32_t chosen = field->id;
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
        memcpy(&chosen, quantifier, sizeof chosen);
    *items = member;
    *n = chosen == field->id && **items != NULL ? 1 : 0;
}

enum nd_status nd_onnx_visit_tensors(const ProtobufCMessage *message, visit_function visit, void *context,
                                     struct nd_error *err)
{
    if (message->descriptor == &onnx__tensor_proto__descriptor)
        return visit((const Onnx__TensorProto *)message, context, err);
    for (unsigned int f = 0; f < message->descriptor->n_fields; f++) {
        ProtobufCMessage *const *items = NULL;
        size_t n;
        field_messages(message, &message->descriptor->fields[f], &items, &n);
        for (size_t i = 0; i < n; i++)
            ND_TRY(nd_onnx_visit_tensors(items[i], visit, context, err));
    }
    return ND_OK;
}

/* All texts but these are names; values are what tools note of a model. */
static bool is_name(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_STRING && strcmp(field->name, "doc_string") != 0 &&
           strcmp(field->name, "value") != 0;
}

static enum nd_status check_name(const char *name, struct nd_error *err)
{
    size_t n = strlen(nd_onnx_text(name));
    if (n <= ND_MAX_NAME_BYTES)
        return ND_OK;
    return nd_fail(err, ND_E_MODEL_UNSUPPORTED, NULL,
                   "a name in the model has %zu bytes; at most %d are accepted: '%.60s...'", n,
                   (int)ND_MAX_NAME_BYTES, name);
}

static enum nd_status check_texts(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                                  struct nd_error *err)
{
    const unsigned char *base = (const unsigned char *)message;
    char *const *texts = (char *const *)(const void *)(base + field->offset);
    size_t n = 1;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        memcpy(&n, base + field->quantifier_offset, sizeof n);
        texts = *(char *const *const *)(const void *)texts;
    } else if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        uint32_t chosen;
        memcpy(&chosen, base + field->quantifier_offset, sizeof chosen);
        n = chosen == field->id;
    }
    for (size_t i = 0; i < n; i++)
        ND_TRY(check_name(texts[i], err));
    return ND_OK;
}

enum nd_status nd_onnx_check_names(const ProtobufCMessage *message, struct nd_error *err)
{
    for (unsigned int f = 0; f < message->descriptor->n_fields; f++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[f];
        ProtobufCMessage *const *items = NULL;
        size_t n;
        if (is_name(field))
            ND_TRY(check_texts(message, field, err));
        field_messages(message, field, &items, &n);
        for (size_t i = 0; i < n; i++)
            ND_TRY(nd_onnx_check_names(items[i], err));
    }
    return ND_OK;
}

const char *nd_onnx_text(const char *text)
{
    return text != NULL ? text : "";
}

enum nd_dtype nd_onnx_dtype(int32_t elem_type)
{
    /* Our types are numbered as ONNX's are. */
    enum nd_dtype dtype = elem_type > 0 ? (enum nd_dtype)elem_type : ND_DTYPE_NONE;
    switch (dtype) {
    case ND_DTYPE_U4: /* ONNX packs two to a byte, we do not */
    case ND_DTYPE_I4:
    case ND_DTYPE_F8E4M3FN: /* no probe can make them, and their quantisation parameters are no integers */
    case ND_DTYPE_F8E5M2:
        return ND_DTYPE_NONE;
    default:
        return nd_dtype_size_bytes(dtype) > 0 ? dtype : ND_DTYPE_NONE;
    }
}

const Onnx__TypeProto__Tensor *nd_onnx_tensor_type(const Onnx__ValueInfoProto *value)
{
    if (value == NULL || value->type == NULL || value->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return NULL;
    return value->type->tensor_type;
}

enum nd_status nd_onnx_shape(const Onnx__TypeProto__Tensor *type, const char *name, struct nd_shape *shape,
                             struct nd_error *err)
{
    struct nd_shape made = {.rank = -1};
    if (type != NULL && type->shape != NULL) {
        if (type->shape->n_dim > ND_MAX_RANK)
            return nd_fail(err, ND_E_MODEL_UNSUPPORTED, name, "tensor '%s' has %zu dimensions, %d are handled",
                           name, type->shape->n_dim, ND_MAX_RANK);
        made.rank = (int)type->shape->n_dim;
        for (size_t i = 0; i < type->shape->n_dim; i++) {
            const Onnx__TensorShapeProto__Dimension *dim = type->shape->dim[i];
            bool is_fixed = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                            dim->dim_value >= 0; /* some exporters write -1 for a dynamic one */
            made.dims[i] = is_fixed ? dim->dim_value : -1;
        }
    }
    *shape = made;
    return ND_OK;
}

bool nd_onnx_n_elems(const Onnx__TensorProto *tensor, size_t *out)
{
    size_t n = 1;
    for (size_t i = 0; i < tensor->n_dims; i++)
        if (tensor->dims[i] < 0 || !nd_size_mul(n, (size_t)tensor->dims[i], &n))
            return false;
    *out = n;
    return true;
}

const Onnx__AttributeProto *nd_onnx_attribute(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (strcmp(nd_onnx_text(node->attribute[i]->name), name) == 0)
            return node->attribute[i];
    return NULL;
}

static bool has_type(const Onnx__AttributeProto *attribute, Onnx__AttributeProto__AttributeType type)
{
    return attribute != NULL && attribute->has_type && attribute->type == type;
}

bool nd_onnx_is_integer(const Onnx__AttributeProto *attribute)
{
    return has_type(attribute, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT) ||
           (attribute != NULL && attribute->has_i && !attribute->has_f);
}

int64_t nd_onnx_attribute_i(const Onnx__NodeProto *node, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(node, name);
    return nd_onnx_is_integer(attribute) ? attribute->i : otherwise;
}

double nd_onnx_attribute_f(const Onnx__NodeProto *node, const char *name, double otherwise)
{
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(node, name);
    bool is_float = has_type(attribute, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT) ||
                    (attribute != NULL && attribute->has_f);
    return is_float ? (double)attribute->f : otherwise;
}

const char *nd_onnx_domain(const char *domain)
{
    const char *text = nd_onnx_text(domain);
    return strcmp(text, "ai.onnx") == 0 ? "" : text;
}

bool nd_onnx_is_qoperator(const char *op_type)
{
    return strncmp(op_type, "QLinear", 7) == 0 || strcmp(op_type, "QGemm") == 0 ||
           strcmp(op_type, "QAttention") == 0;
}

bool nd_onnx_is_mover(const Onnx__NodeProto *node)
{
    return ND_IS_ONE_OF(node->op_type, "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool",
                        "Reshape", "Slice", "Split", "SpaceToDepth", "Squeeze", "Transpose", "Tile",
                        "Unsqueeze") &&
           nd_onnx_domain(node->domain)[0] == '\0';
}
