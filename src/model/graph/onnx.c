#include "model/graph/onnx.h"

#include <string.h>

#include "core/memory.h"
#include "core/text/names.h"

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
    enum nd_status status = ND_OK;
    for (unsigned int f = 0; f < message->descriptor->n_fields; f++) {
        ProtobufCMessage *const *items = NULL;
        size_t n;
        field_messages(message, &message->descriptor->fields[f], &items, &n);
        for (size_t i = 0; i < n && status == ND_OK; i++)
            status = nd_onnx_visit_tensors(items[i], visit, context, err);
    }
    return status;
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
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n && status == ND_OK; i++)
        status = check_name(texts[i], err);
    return status;
}

enum nd_status nd_onnx_check_names(const ProtobufCMessage *message, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (unsigned int f = 0; f < message->descriptor->n_fields && status == ND_OK; f++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[f];
        ProtobufCMessage *const *items = NULL;
        size_t n;
        if (is_name(field))
            status = check_texts(message, field, err);
        field_messages(message, field, &items, &n);
        for (size_t i = 0; i < n && status == ND_OK; i++)
            status = nd_onnx_check_names(items[i], err);
    }
    return status;
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

bool nd_onnx_is_mover(const Onnx__NodeProto *node)
{
    static const char *const movers[] = {"DepthToSpace", "Expand",    "Flatten", "Gather",   "Identity",
                                         "MaxPool",      "Reshape",   "Slice",   "Split",    "SpaceToDepth",
                                         "Squeeze",      "Transpose", "Tile",    "Unsqueeze"};
    for (size_t i = 0; i < sizeof movers / sizeof movers[0]; i++)
        if (strcmp(nd_onnx_text(node->op_type), movers[i]) == 0 && nd_onnx_domain(node->domain)[0] == '\0')
            return true;
    return false;
}
