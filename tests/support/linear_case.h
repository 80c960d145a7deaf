/* Small random cases for linear units: nodes, quantised tensors, and the check of a result against expected
 * values. Include after main.h. */
#ifndef ND_TESTS_LINEAR_CASE_H
#define ND_TESTS_LINEAR_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "support/rational.h"

static uint64_t seed;

static inline uint64_t next_random(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed ^ seed >> 32) * 0x9e3779b97f4a7c15u;
}

/* low..high */
static inline int64_t pick(int64_t low, int64_t high)
{
    return low + (int64_t)((next_random() >> 8) % (uint64_t)(high - low + 1));
}

/* ND_SEED replays a run. */
static inline int set_seed(void **state)
{
    (void)state;
    const char *text = getenv("ND_SEED");
    seed = text != NULL ? strtoull(text, NULL, 10) : 20251003;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return 0;
}

/* Whether the scales of this case are powers of two: ties abound then. */
static bool has_simple_scales;

enum { MAX_ATTRIBUTES = 8, MAX_NAMES = 4 };

struct node {
    Onnx__NodeProto proto;
    Onnx__AttributeProto attributes[MAX_ATTRIBUTES], *attribute_list[MAX_ATTRIBUTES];
    char op_type[32], names[MAX_ATTRIBUTES][40], output[8], *outputs[MAX_NAMES];
};

static inline void node_begin(struct node *node, const char *op_type, size_t n_outputs)
{
    memset(node, 0, sizeof *node);
    has_simple_scales = pick(0, 2) == 0;
    onnx__node_proto__init(&node->proto);
    snprintf(node->op_type, sizeof node->op_type, "%s", op_type);
    snprintf(node->output, sizeof node->output, "y");
    node->proto.op_type = node->op_type;
    for (size_t i = 0; i < n_outputs; i++)
        node->outputs[i] = node->output;
    node->proto.output = node->outputs;
    node->proto.n_output = n_outputs;
    node->proto.attribute = node->attribute_list;
}

static inline Onnx__AttributeProto *node_attribute(struct node *node, const char *name, int type)
{
    size_t i = node->proto.n_attribute++;
    assert_true(i < MAX_ATTRIBUTES);
    Onnx__AttributeProto *attribute = node->attribute_list[i] = &node->attributes[i];
    onnx__attribute_proto__init(attribute);
    snprintf(node->names[i], sizeof node->names[i], "%s", name);
    attribute->name = node->names[i];
    attribute->has_type = 1;
    attribute->type = (Onnx__AttributeProto__AttributeType)type;
    return attribute;
}

static inline void node_int(struct node *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute = node_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    attribute->has_i = 1;
    attribute->i = value;
}

static inline void node_float(struct node *node, const char *name, float value)
{
    Onnx__AttributeProto *attribute = node_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    attribute->has_f = 1;
    attribute->f = value;
}

/* text stays where it is, and so do values below */
static inline void node_text(struct node *node, const char *name, char *text)
{
    Onnx__AttributeProto *attribute = node_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    attribute->has_s = 1;
    attribute->s = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
}

static inline void node_ints(struct node *node, const char *name, int64_t *values, size_t n)
{
    Onnx__AttributeProto *attribute = node_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    attribute->ints = values;
    attribute->n_ints = n;
}

enum { MAX_SCALES = 32, MAX_INPUTS = 4 };

/* A quantised tensor: its quantised values, and beside them quantised values less zero point as integers. */
struct tensor {
    struct nd_array qvalues;
    struct nd_quant quant;
    float scales[MAX_SCALES];
    int64_t zero_points[MAX_SCALES];
    int64_t *whole; /* [n] */
    size_t n_inner; /* elements with the same scale that follow each other */
};

static inline float random_scale(void)
{
    if (has_simple_scales)
        return ldexpf(1, (int)pick(-8, 1));
    return ldexpf((float)pick(1 << 23, (1 << 24) - 1), (int)pick(-30, -22));
}

static inline struct nd_shape shape_of(int rank, const int64_t *dims)
{
    struct nd_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++)
        shape.dims[i] = dims[i];
    return shape;
}

/* Extremes are common. */
static inline double random_qvalue(enum nd_dtype dtype)
{
    double low, high;
    nd_qvalue_range(dtype, &low, &high);
    int64_t kind = pick(0, 5);
    return kind == 0 ? low : kind == 1 ? high : (double)pick((int64_t)low, (int64_t)high);
}

/* axis -1: one scale. */
static inline void tensor_make(struct tensor *tensor, enum nd_dtype dtype, struct nd_shape shape, int axis)
{
    memset(tensor, 0, sizeof *tensor);
    assert_int_equal(nd_array_make(&tensor->qvalues, dtype, &shape, NULL), ND_OK);
    tensor->whole = calloc(tensor->qvalues.n + 1, sizeof *tensor->whole);
    assert_non_null(tensor->whole);
    tensor->quant = (struct nd_quant){1, axis, tensor->scales, tensor->zero_points};
    tensor->n_inner = tensor->qvalues.n > 0 ? tensor->qvalues.n : 1;
    if (axis >= 0) {
        tensor->quant.n = (size_t)shape.dims[axis];
        tensor->n_inner = 1;
        for (int i = axis + 1; i < shape.rank; i++)
            tensor->n_inner *= (size_t)shape.dims[i];
        if (pick(0, 1) == 0)
            tensor->quant.axis -= shape.rank;
    }
    assert_true(tensor->quant.n <= MAX_SCALES);
    bool is_symmetric = dtype == ND_DTYPE_I32 || pick(0, 3) == 0;
    for (size_t c = 0; c < tensor->quant.n; c++) {
        tensor->scales[c] = random_scale();
        tensor->zero_points[c] = is_symmetric ? 0 : (int64_t)random_qvalue(dtype);
    }
    for (size_t i = 0; i < tensor->qvalues.n; i++) {
        tensor->qvalues.x[i] = random_qvalue(dtype);
        tensor->whole[i] =
            (int64_t)tensor->qvalues.x[i] - tensor->zero_points[i / tensor->n_inner % tensor->quant.n];
    }
}

static inline void tensor_free(struct tensor *tensor)
{
    nd_array_deinit(&tensor->qvalues);
    free(tensor->whole);
    tensor->whole = NULL;
}

static inline struct rational tensor_scale(const struct tensor *tensor, size_t channel)
{
    return rational_of_double((double)tensor->scales[tensor->quant.n == 1 ? 0 : channel]);
}

static inline struct rational tensor_real(const struct tensor *tensor, size_t i)
{
    return rational_mul(rational_of(tensor->whole[i], 1),
                        tensor_scale(tensor, i / tensor->n_inner % tensor->quant.n));
}

/* A call at work: its inputs, and what it gave. */
struct layer_case {
    struct nd_linear_call call;
    struct nd_linear_input inputs[MAX_INPUTS];
    struct nd_quant out_quant;
    float out_scales[MAX_SCALES];
    int64_t out_zero_points[MAX_SCALES];
    size_t out_inner; /* elements of the output with the same scale that follow each other */
    struct nd_linear_result result;
    size_t n_ties;
};

static inline void layer_begin(struct layer_case *layer, const struct node *node, int64_t opset)
{
    memset(layer, 0, sizeof *layer);
    layer->out_quant = (struct nd_quant){1, -1, layer->out_scales, layer->out_zero_points};
    layer->out_scales[0] = random_scale();
    layer->out_inner = 1;
    layer->call = (struct nd_linear_call){.node = node != NULL ? &node->proto : NULL,
                                          .opset = opset,
                                          .inputs = layer->inputs,
                                          .low = -HUGE_VAL,
                                          .high = HUGE_VAL,
                                          .out_quant = &layer->out_quant};
}

static inline void layer_add(struct layer_case *layer, const struct tensor *tensor)
{
    assert_true(layer->call.n_inputs < MAX_INPUTS);
    layer->inputs[layer->call.n_inputs++] =
        (struct nd_linear_input){.values = &tensor->qvalues, .quant = &tensor->quant};
}

static inline void unit_add_real(struct layer_case *layer, const struct nd_array *values)
{
    assert_true(layer->call.n_inputs < MAX_INPUTS);
    layer->inputs[layer->call.n_inputs++] = (struct nd_linear_input){.values = values};
}

/* An output with a scale per index of that axis. */
static inline void unit_scale_output(struct layer_case *layer, const struct nd_shape *shape, int axis)
{
    layer->out_quant.n = (size_t)shape->dims[axis];
    assert_true(layer->out_quant.n <= MAX_SCALES);
    layer->out_quant.axis = axis;
    for (size_t c = 0; c < layer->out_quant.n; c++)
        layer->out_scales[c] = random_scale();
    for (int i = axis + 1; i < shape->rank; i++)
        layer->out_inner *= (size_t)shape->dims[i];
}

/* Bounds as Relu and Clip leave them, at multiples of a quarter: right on values that occur when scales are
 * powers of two. */
static inline void layer_bound(struct layer_case *layer)
{
    if (pick(0, 2) == 0)
        layer->call.low = (double)pick(-8, 0) / 4;
    if (pick(0, 2) == 0)
        layer->call.high = (double)pick(1, 24) / 4;
}

static inline void layer_run(struct layer_case *layer)
{
    struct nd_error err = {0};
    if (nd_linear_layer(&layer->call, &layer->result, &err) != ND_OK)
        fail_msg("%s", err.message);
}

static inline void layer_shape_is(const struct layer_case *layer, struct nd_shape shape)
{
    char actual[128], expected[128];
    if (!nd_shape_equal(&layer->result.shape, &shape))
        fail_msg("%s, not %s", nd_shape_format(&layer->result.shape, actual, sizeof actual),
                 nd_shape_format(&shape, expected, sizeof expected));
}

/* Element i is exactly real, within the bounds, in steps of the output scale. */
static inline void layer_check(struct layer_case *layer, size_t i, struct rational real)
{
    assert_true(i < layer->result.n);
    if (layer->call.low > -HUGE_VAL && rational_compare(real, rational_of_double(layer->call.low)) < 0)
        real = rational_of_double(layer->call.low);
    if (layer->call.high < HUGE_VAL && rational_compare(real, rational_of_double(layer->call.high)) > 0)
        real = rational_of_double(layer->call.high);
    float scale = layer->out_scales[i / layer->out_inner % layer->out_quant.n];
    struct rational v = rational_div(real, rational_of_double((double)scale));
    layer->n_ties += v.d == 2;
    struct rational actual = rational_of_ratio(&layer->result.v[i]);
    if (!rational_equal(actual, v))
        fail_msg("element %zu: %.17g instead of %.17g", i, (double)actual.n / (double)actual.d,
                 (double)v.n / (double)v.d);
}

static inline void layer_end(struct layer_case *layer)
{
    nd_linear_deinit(&layer->result);
    assert_null(layer->result.v);
}

#endif
