/* The attributes of ONNX operators that devices are known to take otherwise: their values by operator, and
 * nodes that have them. docs/science/verdicts.md#float-layers. */
#include "arithmetic/variants/attributes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/window.h"

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
    {POOLS " Conv ConvTranspose", "dilations", ND_ATTRIBUTE_BY_AXIS, "1 first last exchanged"},
    {"Conv", ND_PADDING, ND_ATTRIBUTE_REAL, "0"},
    {"MaxPool", ND_PADDING, ND_ATTRIBUTE_REAL, "-inf"},
    {NORMS, "epsilon", ND_ATTRIBUTE_REAL, "1e-05"},
    {"LeakyRelu", "alpha", ND_ATTRIBUTE_REAL, "0.01"},
    {"Elu Celu ThresholdedRelu", "alpha", ND_ATTRIBUTE_REAL, "1"},
    {"Selu", "alpha", ND_ATTRIBUTE_REAL, "1.6732632"},
    {"Selu", "gamma", ND_ATTRIBUTE_REAL, "1.0507010"},
    {"HardSigmoid", "alpha", ND_ATTRIBUTE_REAL, "0.2"},
    {"HardSigmoid", "beta", ND_ATTRIBUTE_REAL, "0.5"},
    {"LRN", "alpha", ND_ATTRIBUTE_REAL, "0.0001"},
    {"LRN", "bias", ND_ATTRIBUTE_REAL, "1"},
    /* Last: a Relu is near a LeakyRelu of small alpha, which is solved for. */
    {"HardSwish", "operator", ND_ATTRIBUTE_OPERATOR, "HardSigmoid Sigmoid Relu Identity"},
    {"LeakyRelu PRelu Elu Celu Selu Gelu", "operator", ND_ATTRIBUTE_OPERATOR, "Relu Identity"},
    {"Sigmoid HardSigmoid Tanh", "operator", ND_ATTRIBUTE_OPERATOR, "Sigmoid HardSigmoid Tanh Identity"},
    {"AveragePool MaxPool", "operator", ND_ATTRIBUTE_OPERATOR, "AveragePool MaxPool"},
    {"GlobalAveragePool GlobalMaxPool", "operator", ND_ATTRIBUTE_OPERATOR, "GlobalAveragePool GlobalMaxPool"},
    {REDUCTIONS, "operator", ND_ATTRIBUTE_OPERATOR, "ReduceMean ReduceSum ReduceMax ReduceMin"},
    {"Add Sub Mul Div Max Min", "operator", ND_ATTRIBUTE_OPERATOR, "Add Sub Mul Max Min"},
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

/* "[2, 1]" */
static void write_list(const int64_t *ints, size_t n, char buf[32])
{
    size_t at = (size_t)snprintf(buf, 32, "[");
    for (size_t i = 0; i < n && at < 32; i++)
        at += (size_t)snprintf(buf + at, 32 - at, "%s%lld%s", i > 0 ? ", " : "", (long long)ints[i],
                               i + 1 == n ? "]" : "");
}

const char *nd_attribute_own(const Onnx__NodeProto *node, const struct nd_attribute_row *row, char buf[32])
{
    size_t length;
    const Onnx__AttributeProto *own = nd_onnx_attribute(node, row->name);
    const char *value = word(row->values, 0, &length);
    if (row->type == ND_ATTRIBUTE_OPERATOR)
        snprintf(buf, 32, "%s", nd_onnx_text(node->op_type));
    else if (row->type == ND_ATTRIBUTE_BY_AXIS && own != NULL)
        write_list(own->ints, own->n_ints, buf);
    else if (own == NULL || own->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS)
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

/* False where that is what the node has. */
static bool change_by_axis(const Onnx__AttributeProto *own, const char *word, struct nd_changed_node *out)
{
    size_t n = own != NULL ? own->n_ints : 0;
    if (n == 0 || n > ND_MAX_RANK)
        return false;
    out->changed.n_ints = n;
    for (size_t i = 0; i < n; i++)
        out->ints[i] = *word == '1'   ? 1
                       : *word == 'f' ? own->ints[0]
                       : *word == 'l' ? own->ints[n - 1]
                                      : own->ints[n - 1 - i];
    write_list(out->ints, n, out->text);
    return memcmp(out->ints, own->ints, n * sizeof *out->ints) != 0;
}

/* A window of another size begins where it did; what it is short of at the end is not padded, or is. False: the
 * shape would be another one. */
static bool keep_shape(const Onnx__NodeProto *node, const Onnx__AttributeProto *own,
                       struct nd_changed_node *out)
{
    const Onnx__AttributeProto *kernel = nd_onnx_attribute(node, "kernel_shape"),
                               *pads = nd_onnx_attribute(node, "pads");
    size_t n = own->n_ints;
    if (kernel == NULL || kernel->n_ints != n || (pads != NULL && pads->n_ints != 2 * n))
        return false;
    onnx__attribute_proto__init(&out->pads);
    out->pads.name = (char *)"pads";
    out->pads.has_type = 1;
    out->pads.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    out->pads.ints = out->pad_ints;
    out->pads.n_ints = 2 * n;
    bool fits = true;
    for (size_t i = 0; i < 2 * n; i++) {
        int64_t longer = i < n ? 0 : (out->ints[i - n] - own->ints[i - n]) * (kernel->ints[i - n] - 1);
        out->pad_ints[i] = (pads != NULL ? pads->ints[i] : 0) + longer;
        fits = fits && out->pad_ints[i] >= 0;
    }
    return fits;
}

/* Puts the changed attributes beside the node's others. */
static bool put(const Onnx__NodeProto *node, struct nd_changed_node *out)
{
    enum { MAX_ATTRIBUTES = sizeof out->list / sizeof out->list[0] };
    Onnx__AttributeProto *const changed[] = {&out->changed, &out->pads};
    size_t n = 0, n_changed = out->pads.n_ints > 0 ? 2 : 1;
    for (size_t i = 0; i < node->n_attribute && n + n_changed < MAX_ATTRIBUTES; i++) {
        bool is_kept = true;
        for (size_t k = 0; k < n_changed; k++)
            is_kept = is_kept && strcmp(nd_onnx_text(node->attribute[i]->name), changed[k]->name) != 0;
        if (is_kept)
            out->list[n++] = node->attribute[i];
    }
    for (size_t k = 0; k < n_changed; k++)
        out->list[n++] = changed[k];
    out->node = *node;
    out->node.attribute = out->list;
    out->node.n_attribute = n;
    return node->n_attribute + n_changed < MAX_ATTRIBUTES;
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
    out->pads.n_ints = 0;
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
    case ND_ATTRIBUTE_OPERATOR: /* the HardSigmoid of a HardSwish is no other's */
        out->changed.name = (char *)"alpha";
        out->changed.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
        out->changed.has_f = 1;
        out->changed.f = strcmp(nd_onnx_text(node->op_type), "HardSwish") == 0 ? 1 / 6.0F : 0.2F;
        break;
    case ND_ATTRIBUTE_REAL:
        out->changed.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
        out->changed.has_f = 1;
        out->changed.f = own != NULL ? own->f : strtof(out->text, NULL);
        return put(node, out);
    default:
        out->changed.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        out->ints[0] = strtol(out->text, NULL, 10);
        out->changed.n_ints = 1;
        if ((is_mirrored && !mirror(own, out)) ||
            (row->type == ND_ATTRIBUTE_BY_AXIS &&
             !(change_by_axis(own, value, out) && keep_shape(node, own, out))))
            return false;
        return put(node, out);
    }
    bool is_put = strcmp(nd_attribute_own(node, row, has), out->text) != 0 && put(node, out);
    if (row->type == ND_ATTRIBUTE_OPERATOR)
        out->node.op_type = out->text;
    return is_put;
}
