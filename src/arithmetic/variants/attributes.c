/* The attributes of ONNX operators that devices are known to take otherwise: their values by operator, and
 * nodes that have them. docs/science/verdicts.md#float-layers. */
#include "arithmetic/variants/attributes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AXES " 0 1 2 3 4 5"
#define POOLS "AveragePool MaxPool LpPool"
#define NORMS                                                                                                  \
    "BatchNormalization InstanceNormalization GroupNormalization LayerNormalization RMSNormalization "         \
    "SimplifiedLayerNormalization SkipLayerNormalization MeanVarianceNormalization"
#define REDUCTIONS                                                                                             \
    "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "      \
    "ReduceSumSquare"

static const struct nd_attribute_row rows[] = {
    {"Resize", "coordinate_transformation_mode", ND_ATTRIBUTE_TEXT,
     "half_pixel asymmetric align_corners pytorch_half_pixel half_pixel_symmetric"},
    {"Resize", "nearest_mode", ND_ATTRIBUTE_TEXT, "round_prefer_floor floor ceil round_prefer_ceil"},
    {"Resize Upsample", "mode", ND_ATTRIBUTE_TEXT, "nearest linear cubic"},
    {"Resize", "exclude_outside", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"Resize", "cubic_coeff_a", ND_ATTRIBUTE_REAL, "-0.75"},
    {"GridSample", "mode", ND_ATTRIBUTE_TEXT, "linear nearest cubic bilinear bicubic"},
    {"GridSample", "padding_mode", ND_ATTRIBUTE_TEXT, "zeros border reflection"},
    {"GridSample", "align_corners", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"Softmax LogSoftmax Hardmax ArgMax ArgMin TopK Concat LayerNormalization LpNormalization", "axis",
     ND_ATTRIBUTE_WHOLE, AXES},
    {REDUCTIONS, "axes", ND_ATTRIBUTE_AXES, AXES},
    {"ArgMax ArgMin", "select_last_index", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"TopK", "largest", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"CumSum", "exclusive", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"CumSum", "reverse", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"DepthToSpace", "mode", ND_ATTRIBUTE_TEXT, "DCR CRD"},
    {"Pad", "mode", ND_ATTRIBUTE_TEXT, "constant reflect edge wrap"},
    {"Gelu", "approximate", ND_ATTRIBUTE_APPROXIMATION, "none tanh"},
    {"Mod", "fmod", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"Gemm", "transA", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"Gemm", "transB", ND_ATTRIBUTE_WHOLE, "0 1"},
    {"AveragePool LpPool", "count_include_pad", ND_ATTRIBUTE_WHOLE, "0 1"},
    {POOLS, "ceil_mode", ND_ATTRIBUTE_WHOLE, "0 1"},
    {POOLS " Conv ConvTranspose", "auto_pad", ND_ATTRIBUTE_TEXT, "NOTSET SAME_UPPER SAME_LOWER VALID"},
    {POOLS " Conv ConvTranspose Pad", "pads", ND_ATTRIBUTE_MIRRORED, NULL},
    {NORMS, "epsilon", ND_ATTRIBUTE_REAL, "1e-05"},
    {"LeakyRelu", "alpha", ND_ATTRIBUTE_REAL, "0.01"},
    {"Elu Celu ThresholdedRelu", "alpha", ND_ATTRIBUTE_REAL, "1"},
    {"Selu", "alpha", ND_ATTRIBUTE_REAL, "1.6732632"},
    {"Selu", "gamma", ND_ATTRIBUTE_REAL, "1.0507010"},
    {"HardSigmoid", "alpha", ND_ATTRIBUTE_REAL, "0.2"},
    {"HardSigmoid", "beta", ND_ATTRIBUTE_REAL, "0.5"},
    {"LRN", "alpha", ND_ATTRIBUTE_REAL, "0.0001"},
    {"LRN", "bias", ND_ATTRIBUTE_REAL, "1"},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* Word k of them; the length is 0 where there is none. */
static const char *word(const char *words, size_t k, size_t *length)
{
    for (; words != NULL && k > 0; k--)
        words = (words = strchr(words, ' ')) != NULL ? words + 1 : NULL;
    *length = words != NULL ? strcspn(words, " ") : 0;
    return words;
}

const struct nd_attribute_row *nd_attribute_row_of(const Onnx__NodeProto *node, size_t *at)
{
    const char *op_type = nd_onnx_text(node->op_type);
    for (; *at < N_ROWS; ++*at) {
        size_t length = 1;
        for (size_t k = 0; length > 0; k++) {
            const char *name = word(rows[*at].op_types, k, &length);
            if (length > 0 && strlen(op_type) == length && strncmp(name, op_type, length) == 0)
                return &rows[*at];
        }
    }
    return NULL;
}

const char *nd_attribute_own(const Onnx__NodeProto *node, const struct nd_attribute_row *row, char buf[32])
{
    size_t length;
    const Onnx__AttributeProto *own = nd_onnx_attribute(node, row->name);
    const char *value = word(row->values, 0, &length);
    if (own == NULL || own->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS)
        snprintf(buf, 32, "%.*s", (int)length, length > 0 ? value : "");
    else if (own->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING)
        snprintf(buf, 32, "%.*s", (int)own->s.len, (const char *)own->s.data);
    else if (own->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT)
        snprintf(buf, 32, "%lld", (long long)own->i);
    else
        snprintf(buf, 32, "%.6g", (double)own->f);
    return buf;
}

/* Begins and ends exchanged: false where both are the same. */
static bool mirror(const Onnx__AttributeProto *own, struct nd_changed_node *out)
{
    if (own == NULL || own->n_ints % 2 != 0 || own->n_ints > sizeof out->ints / sizeof out->ints[0])
        return false;
    size_t half = own->n_ints / 2;
    out->changed.n_ints = own->n_ints;
    for (size_t i = 0; i < own->n_ints; i++)
        out->ints[i] = own->ints[(i + half) % own->n_ints];
    return memcmp(out->ints, own->ints, own->n_ints * sizeof *out->ints) != 0;
}

/* Puts the changed attribute beside the node's others. */
static bool put(const Onnx__NodeProto *node, const char *name, struct nd_changed_node *out)
{
    enum { MAX_ATTRIBUTES = sizeof out->list / sizeof out->list[0] };
    size_t n = 0;
    for (size_t i = 0; i < node->n_attribute && n < MAX_ATTRIBUTES; i++)
        if (strcmp(nd_onnx_text(node->attribute[i]->name), name) != 0)
            out->list[n++] = node->attribute[i];
    if (n == MAX_ATTRIBUTES)
        return false;
    out->list[n++] = &out->changed;
    out->node = *node;
    out->node.attribute = out->list;
    out->node.n_attribute = n;
    return true;
}

bool nd_attribute_change(const Onnx__NodeProto *node, const struct nd_attribute_row *row, size_t k,
                         struct nd_changed_node *out)
{
    const Onnx__AttributeProto *own = nd_onnx_attribute(node, row->name);
    size_t length = 0;
    char has[32];
    const char *value = word(row->values, k, &length);
    bool is_mirrored = row->type == ND_ATTRIBUTE_MIRRORED && k == 0;
    if ((length == 0 && !is_mirrored) || (row->type == ND_ATTRIBUTE_REAL && k > 0))
        return false;
    onnx__attribute_proto__init(&out->changed);
    out->changed.name = (char *)row->name;
    out->changed.has_type = 1;
    out->changed.ints = out->ints;
    snprintf(out->text, sizeof out->text, "%.*s", is_mirrored ? 0 : (int)length, is_mirrored ? "" : value);
    switch (row->type) {
    case ND_ATTRIBUTE_TEXT:
    case ND_ATTRIBUTE_APPROXIMATION:
        out->changed.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        out->changed.has_s = 1;
        out->changed.s = (ProtobufCBinaryData){length, (uint8_t *)out->text};
        break;
    case ND_ATTRIBUTE_WHOLE:
        out->changed.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
        out->changed.has_i = 1;
        out->changed.i = strtol(out->text, NULL, 10);
        break;
    case ND_ATTRIBUTE_REAL:
        out->changed.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
        out->changed.has_f = 1;
        out->changed.f = own != NULL ? own->f : strtof(out->text, NULL);
        return put(node, row->name, out);
    default:
        out->changed.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        out->ints[0] = strtol(out->text, NULL, 10);
        out->changed.n_ints = 1;
        if (is_mirrored && !mirror(own, out))
            return false;
        return put(node, row->name, out);
    }
    return strcmp(nd_attribute_own(node, row, has), out->text) != 0 && put(node, row->name, out);
}
