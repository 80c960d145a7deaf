/* Writing small ONNX models, made to order: a probe of one operator, say. */
#include "model/rewrite/compose.h"

#include <stdio.h>

#include "core/files/file.h"
#include "core/items.h"
#include "onnx.pb-c.h"

/* Protobuf messages point at one another, so each piece is an allocation of its own; all are freed together. */
struct nd_compose {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    void **kept;
    size_t n_kept, kept_capacity;
    size_t inputs_capacity, outputs_capacity, nodes_capacity, constants_capacity;
    bool failed;
};

enum { IR_VERSION = 10 };

/* Zeroed memory that lives as long as the model; NULL once anything failed. */
static void *keep(struct nd_compose *c, size_t n, size_t size_bytes)
{
    void *block = c->failed ? NULL : nd_calloc(n, size_bytes);
    if (block == NULL || !nd_grow((void **)&c->kept, &c->kept_capacity, c->n_kept + 1, sizeof *c->kept)) {
        free(block);
        c->failed = true;
        return NULL;
    }
    c->kept[c->n_kept++] = block;
    return block;
}

static void *keep_copy(struct nd_compose *c, const void *data, size_t size_bytes)
{
    void *copy = keep(c, size_bytes, 1);
    if (copy != NULL && size_bytes > 0)
        memcpy(copy, data, size_bytes);
    return copy;
}

static char *keep_text(struct nd_compose *c, const char *text)
{
    return keep_copy(c, text, strlen(text) + 1);
}

enum nd_status nd_compose_create(int64_t opset, struct nd_compose **out, struct nd_error *err)
{
    struct nd_compose *c = nd_calloc(1, sizeof *c);
    ND_TRY_MEMORY(c != NULL, err);
    onnx__model_proto__init(&c->model);
    onnx__graph_proto__init(&c->graph);
    onnx__operator_set_id_proto__init(&c->opset);
    c->model.has_ir_version = 1;
    c->model.ir_version = IR_VERSION;
    c->model.graph = &c->graph;
    c->model.opset_import = c->opsets;
    c->model.n_opset_import = 1;
    c->opsets[0] = &c->opset;
    c->opset.domain = (char *)(uintptr_t) "";
    c->opset.has_version = 1;
    c->opset.version = opset;
    c->graph.name = (char *)(uintptr_t) "npudiff";
    *out = c;
    return ND_OK;
}

void nd_compose_destroy(struct nd_compose **compose)
{
    struct nd_compose *c = *compose;
    if (c == NULL)
        return;
    ND_FREE_ITEMS(c->kept, c->n_kept);
    ND_FREE_ALL(c->graph.input, c->graph.output, c->graph.node, c->graph.initializer, c);
    *compose = NULL;
}

/* ---- tensors ---- */

/* A value of the graph with its type; NULL when memory is out. */
static Onnx__ValueInfoProto *make_value(struct nd_compose *c, const char *name, enum nd_dtype dtype,
                                        const struct nd_shape *shape)
{
    struct value {
        Onnx__ValueInfoProto info;
        Onnx__TypeProto type;
        Onnx__TypeProto__Tensor tensor;
        Onnx__TensorShapeProto shape;
        Onnx__TensorShapeProto__Dimension dims[ND_MAX_RANK], *dim_list[ND_MAX_RANK];
    } *v = keep(c, 1, sizeof *v);
    if (v == NULL)
        return NULL;
    onnx__value_info_proto__init(&v->info);
    onnx__type_proto__init(&v->type);
    onnx__type_proto__tensor__init(&v->tensor);
    onnx__tensor_shape_proto__init(&v->shape);
    v->info.name = keep_text(c, name);
    v->info.type = &v->type;
    v->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    v->type.tensor_type = &v->tensor;
    v->tensor.has_elem_type = 1;
    v->tensor.elem_type = (int32_t)dtype;
    v->tensor.shape = &v->shape;
    v->shape.n_dim = (size_t)shape->rank;
    v->shape.dim = v->dim_list;
    for (int d = 0; d < shape->rank; d++) {
        onnx__tensor_shape_proto__dimension__init(&v->dims[d]);
        v->dims[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        v->dims[d].dim_value = shape->dims[d];
        v->dim_list[d] = &v->dims[d];
    }
    return v->info.name != NULL ? &v->info : NULL;
}

static void add_value(struct nd_compose *c, Onnx__ValueInfoProto ***list, size_t *n, size_t *capacity,
                      Onnx__ValueInfoProto *value)
{
    if (value == NULL || !nd_grow((void **)list, capacity, *n + 1, sizeof **list))
        c->failed = true;
    else
        (*list)[(*n)++] = value;
}

void nd_compose_input(struct nd_compose *c, const char *name, enum nd_dtype dtype, const struct nd_shape *shape)
{
    add_value(c, &c->graph.input, &c->graph.n_input, &c->inputs_capacity, make_value(c, name, dtype, shape));
}

void nd_compose_output(struct nd_compose *c, const char *name, enum nd_dtype dtype,
                       const struct nd_shape *shape)
{
    add_value(c, &c->graph.output, &c->graph.n_output, &c->outputs_capacity, make_value(c, name, dtype, shape));
}

void nd_compose_constant(struct nd_compose *c, const char *name, enum nd_dtype dtype,
                         const struct nd_shape *shape, const void *data)
{
    size_t size_bytes = 0;
    Onnx__TensorProto *tensor = keep(c, 1, sizeof *tensor);
    if (tensor == NULL || nd_shape_size_bytes(shape, dtype, &size_bytes, NULL) != ND_OK ||
        !nd_grow((void **)&c->graph.initializer, &c->constants_capacity, c->graph.n_initializer + 1,
                 sizeof *c->graph.initializer)) {
        c->failed = true;
        return;
    }
    onnx__tensor_proto__init(tensor);
    tensor->name = keep_text(c, name);
    tensor->has_data_type = 1;
    tensor->data_type = (int32_t)dtype;
    tensor->n_dims = (size_t)shape->rank;
    tensor->dims = keep_copy(c, shape->dims, (size_t)shape->rank * sizeof shape->dims[0]);
    tensor->has_raw_data = 1;
    tensor->raw_data.len = size_bytes;
    tensor->raw_data.data = keep_copy(c, data, size_bytes);
    c->graph.initializer[c->graph.n_initializer++] = tensor;
}

/* ---- nodes ---- */

void nd_compose_node(struct nd_compose *c, const char *op_type, const char *const *inputs, const char *output)
{
    size_t n = 0;
    while (inputs[n] != NULL)
        n++;
    Onnx__NodeProto *node = keep(c, 1, sizeof *node);
    char **names = keep(c, n + 1, sizeof *names);
    if (node == NULL || names == NULL ||
        !nd_grow((void **)&c->graph.node, &c->nodes_capacity, c->graph.n_node + 1, sizeof *c->graph.node)) {
        c->failed = true;
        return;
    }
    onnx__node_proto__init(node);
    for (size_t i = 0; i < n; i++)
        names[i] = keep_text(c, inputs[i]);
    names[n] = keep_text(c, output);
    node->name = names[n];
    node->op_type = keep_text(c, op_type);
    node->input = names;
    node->n_input = n;
    node->output = &names[n];
    node->n_output = 1;
    c->graph.node[c->graph.n_node++] = node;
}

/* A new attribute of the last node; NULL when memory is out. */
static Onnx__AttributeProto *add_attribute(struct nd_compose *c, const char *name,
                                           Onnx__AttributeProto__AttributeType type)
{
    enum { MAX_ATTRIBUTES = 8 };
    Onnx__AttributeProto *attribute = keep(c, 1, sizeof *attribute);
    if (attribute == NULL || c->graph.n_node == 0) {
        c->failed = true;
        return NULL;
    }
    Onnx__NodeProto *node = c->graph.node[c->graph.n_node - 1];
    if (node->attribute == NULL)
        node->attribute = keep(c, MAX_ATTRIBUTES, sizeof *node->attribute);
    if (node->attribute == NULL || node->n_attribute == MAX_ATTRIBUTES) {
        c->failed = true;
        return NULL;
    }
    onnx__attribute_proto__init(attribute);
    attribute->name = keep_text(c, name);
    attribute->has_type = 1;
    attribute->type = type;
    node->attribute[node->n_attribute++] = attribute;
    return attribute;
}

void nd_compose_attribute_i(struct nd_compose *c, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute = add_attribute(c, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    if (attribute == NULL)
        return;
    attribute->has_i = 1;
    attribute->i = value;
}

void nd_compose_attribute_ints(struct nd_compose *c, const char *name, const int64_t *values, size_t n)
{
    Onnx__AttributeProto *attribute = add_attribute(c, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    if (attribute == NULL)
        return;
    attribute->ints = keep_copy(c, values, n * sizeof *values);
    attribute->n_ints = n;
}

void nd_compose_attribute_f(struct nd_compose *c, const char *name, float value)
{
    Onnx__AttributeProto *attribute = add_attribute(c, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    if (attribute == NULL)
        return;
    attribute->has_f = 1;
    attribute->f = value;
}

void nd_compose_attribute_s(struct nd_compose *c, const char *name, const char *value)
{
    Onnx__AttributeProto *attribute = add_attribute(c, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    if (attribute == NULL)
        return;
    attribute->has_s = 1;
    attribute->s.len = strlen(value);
    attribute->s.data = (uint8_t *)keep_text(c, value);
}

/* ---- quantisation ---- */

static void add_conversion(struct nd_compose *c, const char *op_type, const char *input, const char *output,
                           const struct nd_quant *quant, enum nd_dtype dtype)
{
    bool is_per_channel = quant->n > 1;
    const struct nd_shape shape = {.rank = is_per_channel ? 1 : 0, .dims = {(int64_t)quant->n}};
    size_t name_bytes = strlen(output) + sizeof "_zero_point";
    char *scale = keep(c, name_bytes, 1), *zero_point = keep(c, name_bytes, 1);
    if (scale == NULL || zero_point == NULL)
        return;
    snprintf(scale, name_bytes, "%s_scale", output);
    snprintf(zero_point, name_bytes, "%s_zero_point", output);
    nd_compose_constant(c, scale, ND_DTYPE_F32, &shape, quant->scale);
    /* Zero points as elements of their type. */
    size_t element_bytes = nd_dtype_size_bytes(dtype);
    unsigned char *bytes = keep(c, quant->n, element_bytes);
    for (size_t i = 0; bytes != NULL && i < quant->n; i++)
        memcpy(bytes + i * element_bytes, &quant->zero_point[i], element_bytes); /* little endian */
    if (bytes != NULL)
        nd_compose_constant(c, zero_point, dtype, &shape, bytes);
    nd_compose_node(c, op_type, (const char *[]){input, scale, zero_point, NULL}, output);
    if (is_per_channel)
        nd_compose_attribute_i(c, "axis", quant->axis);
}

void nd_compose_dequantize(struct nd_compose *c, const char *input, const char *output,
                           const struct nd_quant *quant, enum nd_dtype dtype)
{
    add_conversion(c, "DequantizeLinear", input, output, quant, dtype);
}

void nd_compose_quantize(struct nd_compose *c, const char *input, const char *output,
                         const struct nd_quant *quant, enum nd_dtype dtype)
{
    add_conversion(c, "QuantizeLinear", input, output, quant, dtype);
}

enum nd_status nd_compose_write(const struct nd_compose *c, const char *path, struct nd_error *err)
{
    if (c->failed)
        return nd_fail_memory(err);
    size_t size_bytes = onnx__model_proto__get_packed_size(&c->model);
    ND_FREED uint8_t *bytes = nd_calloc(size_bytes, 1);
    ND_TRY_MEMORY(bytes != NULL, err);
    onnx__model_proto__pack(&c->model, bytes);
    return nd_file_put(path, bytes, size_bytes, err);
}
