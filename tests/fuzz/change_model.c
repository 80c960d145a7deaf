/* Changes of ONNX models that protobuf's lengths survive: operators, tensors between them, attributes, shapes
 * and types of constants. Every second change is one of bytes all the same. Both libFuzzer and driver.c call
 * it. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "fuzz/fuzz.h"
#include "onnx.pb-c.h"

struct dice {
    uint64_t state;
};

/* SplitMix64; 0 where there is nothing to choose from. */
static uint64_t draw(struct dice *dice, uint64_t below)
{
    uint64_t z = dice->state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return below > 0 ? (z ^ (z >> 31)) % below : 0;
}

static int64_t draw_integer(struct dice *dice)
{
    static const int64_t some[] = {
        0,         1,        2,   3,   4,    5,     7,     8,       16,        64,        -1,
        -2,        -3,       255, 256, -128, 32768, 65536, 1 << 20, INT32_MAX, INT32_MIN, (int64_t)1 << 40,
        INT64_MAX, INT64_MIN};
    return some[draw(dice, sizeof some / sizeof *some)];
}

static float draw_float(struct dice *dice)
{
    static const float some[] = {0,     -0.0f,  1,      -1,      0.5f,    1e-30f,
                                 1e30f, -1e30f, 1e-45f, 3.4e38f, 0x1p-8f, 1.0f / 65535};
    return draw(dice, 16) == 0 ? strtof(draw(dice, 2) ? "nan" : "inf", NULL)
                               : some[draw(dice, sizeof some / sizeof *some)];
}

static void set_text(char **text, const char *to)
{
    char *copy = nd_strdup(to);
    if (copy == NULL)
        abort();
    if (*text != protobuf_c_empty_string)
        free(*text);
    *text = copy;
}

/* A tensor of the graph; "": an input that is left out. */
static const char *choose_tensor(struct dice *dice, const Onnx__GraphProto *graph)
{
    const Onnx__NodeProto *node = graph->n_node > 0 ? graph->node[draw(dice, graph->n_node)] : NULL;
    switch (draw(dice, 8)) {
    case 0:
        return "";
    case 1:
        return graph->n_input > 0 ? graph->input[draw(dice, graph->n_input)]->name : "";
    case 2:
    case 3:
    case 4:
        return graph->n_initializer > 0 ? graph->initializer[draw(dice, graph->n_initializer)]->name : "";
    default:
        return node != NULL && node->n_output > 0 ? node->output[draw(dice, node->n_output)] : "";
    }
}

static const char *draw_tensor(struct dice *dice, const Onnx__GraphProto *graph)
{
    const char *name = choose_tensor(dice, graph);
    return name != NULL ? name : "";
}

static void change_operator(struct dice *dice, const Onnx__GraphProto *graph, Onnx__NodeProto *node)
{
    static const char *const types[] = {"Add",
                                        "Sub",
                                        "Mul",
                                        "Div",
                                        "Pow",
                                        "Min",
                                        "Max",
                                        "PRelu",
                                        "Where",
                                        "Equal",
                                        "Conv",
                                        "ConvTranspose",
                                        "Gemm",
                                        "MatMul",
                                        "AveragePool",
                                        "MaxPool",
                                        "GlobalAveragePool",
                                        "LpPool",
                                        "ReduceMean",
                                        "ReduceSum",
                                        "ReduceMax",
                                        "ArgMax",
                                        "Softmax",
                                        "LogSoftmax",
                                        "LayerNormalization",
                                        "InstanceNormalization",
                                        "BatchNormalization",
                                        "LRN",
                                        "Relu",
                                        "Clip",
                                        "Sigmoid",
                                        "HardSigmoid",
                                        "HardSwish",
                                        "Tanh",
                                        "Gelu",
                                        "Erf",
                                        "Elu",
                                        "LeakyRelu",
                                        "Sqrt",
                                        "Reciprocal",
                                        "Reshape",
                                        "Transpose",
                                        "Flatten",
                                        "Squeeze",
                                        "Unsqueeze",
                                        "Concat",
                                        "Split",
                                        "Slice",
                                        "Pad",
                                        "Gather",
                                        "GatherElements",
                                        "GatherND",
                                        "ScatterND",
                                        "ScatterElements",
                                        "Expand",
                                        "Tile",
                                        "Resize",
                                        "Upsample",
                                        "DepthToSpace",
                                        "SpaceToDepth",
                                        "Cast",
                                        "Shape",
                                        "ConstantOfShape",
                                        "Range",
                                        "TopK",
                                        "CumSum",
                                        "OneHot",
                                        "Einsum",
                                        "GridSample",
                                        "LSTM",
                                        "GRU",
                                        "Identity",
                                        "QuantizeLinear",
                                        "DequantizeLinear",
                                        "DynamicQuantizeLinear",
                                        "NonZero",
                                        "Constant",
                                        "Trilu",
                                        "RoiAlign"};
    const char *other = graph->node[draw(dice, graph->n_node)]->op_type;
    set_text(&node->op_type,
             other != NULL && draw(dice, 4) == 0 ? other : types[draw(dice, sizeof types / sizeof *types)]);
}

static void change_tensor(struct dice *dice, const Onnx__GraphProto *graph, Onnx__NodeProto *node)
{
    const char *tensor = draw_tensor(dice, graph);
    if (node->n_input > 0 && draw(dice, 3) > 0) {
        set_text(&node->input[draw(dice, node->n_input)], tensor);
        return;
    }
    if (node->n_input > 0 && draw(dice, 2) == 0) {
        free(node->input[--node->n_input]);
        return;
    }
    char **more = realloc(node->input, (node->n_input + 1) * sizeof *more);
    if (more == NULL)
        abort();
    node->input = more;
    node->input[node->n_input++] = nd_strdup(tensor);
}

static void change_integers(struct dice *dice, size_t *n, int64_t **values)
{
    uint64_t what = draw(dice, 4);
    if (what == 0 && *n > 0) {
        (*n)--;
    } else if (what == 1 || *n == 0) {
        int64_t *more = realloc(*values, (*n + 1) * sizeof *more);
        if (more == NULL)
            abort();
        *values = more;
        more[(*n)++] = draw_integer(dice);
    } else if (what == 2) {
        int64_t *one = &(*values)[draw(dice, *n)], *other = &(*values)[draw(dice, *n)], kept = *one;
        *one = *other;
        *other = kept;
    } else {
        (*values)[draw(dice, *n)] = draw_integer(dice);
    }
}

static void change_attribute(struct dice *dice, Onnx__NodeProto *node)
{
    static const char *const names[] = {"axis",     "axes",           "perm",         "pads",
                                        "strides",  "dilations",      "kernel_shape", "group",
                                        "alpha",    "beta",           "mode",         "to",
                                        "keepdims", "block_size",     "ceil_mode",    "count_include_pad",
                                        "auto_pad", "output_padding", "transA",       "epsilon",
                                        "split"};
    if (node->n_attribute == 0)
        return;
    size_t at = draw(dice, node->n_attribute);
    Onnx__AttributeProto *attribute = node->attribute[at];
    switch (draw(dice, 6)) {
    case 0:
        onnx__attribute_proto__free_unpacked(attribute, NULL);
        node->attribute[at] = node->attribute[--node->n_attribute];
        break;
    case 1:
        set_text(&attribute->name, names[draw(dice, sizeof names / sizeof *names)]);
        break;
    case 2:
        attribute->f = draw_float(dice);
        break;
    default:
        attribute->i = draw_integer(dice);
        if (attribute->n_ints > 0)
            change_integers(dice, &attribute->n_ints, &attribute->ints);
        break;
    }
}

static void change_constant(struct dice *dice, Onnx__TensorProto *tensor)
{
    static const int32_t types[] = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16, 17, 21, 22};
    switch (draw(dice, 4)) {
    case 0:
        change_integers(dice, &tensor->n_dims, &tensor->dims);
        break;
    case 1:
        tensor->data_type = types[draw(dice, sizeof types / sizeof *types)];
        break;
    case 2:
        if (tensor->n_float_data > 0)
            tensor->float_data[draw(dice, tensor->n_float_data)] = draw_float(dice);
        if (tensor->n_int64_data > 0)
            tensor->int64_data[draw(dice, tensor->n_int64_data)] = draw_integer(dice);
        if (tensor->has_raw_data && tensor->raw_data.len >= sizeof(float) && tensor->data_type == 1) {
            float value = draw_float(dice);
            memcpy(tensor->raw_data.data + sizeof value * draw(dice, tensor->raw_data.len / sizeof value),
                   &value, sizeof value);
        }
        break;
    default:
        if (tensor->has_raw_data && tensor->raw_data.len > 0)
            tensor->raw_data.len =
                LLVMFuzzerMutate(tensor->raw_data.data, tensor->raw_data.len, tensor->raw_data.len);
        break;
    }
}

static void change_shape(struct dice *dice, Onnx__ValueInfoProto *value)
{
    Onnx__TypeProto__Tensor *tensor =
        value->type != NULL && value->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
            ? value->type->tensor_type
            : NULL;
    if (tensor == NULL || tensor->shape == NULL || tensor->shape->n_dim == 0)
        return;
    Onnx__TensorShapeProto__Dimension *dim = tensor->shape->dim[draw(dice, tensor->shape->n_dim)];
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
        dim->dim_value = draw_integer(dice);
}

static void change_graph(struct dice *dice, Onnx__GraphProto *graph)
{
    if (graph->n_node == 0)
        return;
    Onnx__NodeProto *node = graph->node[draw(dice, graph->n_node)];
    switch (draw(dice, 8)) {
    case 0:
        change_operator(dice, graph, node);
        break;
    case 1:
    case 2:
        change_tensor(dice, graph, node);
        break;
    case 3:
    case 4:
        change_attribute(dice, node);
        break;
    case 5:
        if (graph->n_input > 0)
            change_shape(dice, graph->input[draw(dice, graph->n_input)]);
        break;
    default:
        if (graph->n_initializer > 0)
            change_constant(dice, graph->initializer[draw(dice, graph->n_initializer)]);
        break;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    struct dice dice = {seed};
    Onnx__ModelProto *model = draw(&dice, 2) == 0 ? onnx__model_proto__unpack(NULL, size, data) : NULL;
    size_t n = size;
    if (model == NULL || model->graph == NULL) {
        n = LLVMFuzzerMutate(data, size, room);
    } else {
        for (uint64_t i = 1 + draw(&dice, 3); i > 0; i--)
            change_graph(&dice, model->graph);
        if (onnx__model_proto__get_packed_size(model) <= room)
            n = onnx__model_proto__pack(model, data);
    }
    if (model != NULL)
        onnx__model_proto__free_unpacked(model, NULL);
    return n;
}
