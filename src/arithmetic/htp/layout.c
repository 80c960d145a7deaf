/* In which layout the HTP has a tensor: in blocks, as a Conv writes it, or flat. How quantised values are
 * brought to another encoding depends on it. docs/science/htp-arithmetic.md#layout. */
#include <string.h>

#include "arithmetic/htp/htp_internal.h"

static bool is_one_of(const char *op_type, const char *const names[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(op_type, names[i]) == 0)
            return true;
    return false;
}
#define IS_ONE_OF(op_type, names) is_one_of(op_type, names, sizeof(names) / sizeof *(names))

/* All of the inputs that are not constant, or one of them is enough. */
static enum nd_htp_layout inherit(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                                  bool takes_all)
{
    size_t n[] = {[ND_HTP_UNKNOWN] = 0, [ND_HTP_FLAT] = 0, [ND_HTP_BLOCKED] = 0};
    for (size_t i = 0; i < layer->call->n_inputs; i++)
        if (layer->origins[i] != ND_EXACT_FROM_CONSTANT)
            n[nd_htp_layout_of(memory, layer, i)]++;
    enum nd_htp_layout first = takes_all ? ND_HTP_FLAT : ND_HTP_BLOCKED,
                       last = takes_all ? ND_HTP_BLOCKED : ND_HTP_FLAT;
    return n[first] > 0 ? first : n[ND_HTP_UNKNOWN] > 0 ? ND_HTP_UNKNOWN : last;
}

bool nd_htp_reduces_one_axis(const struct nd_exact_layer *layer, int64_t *axis)
{
    const struct nd_op_call op_call = {.node = layer->call->node, .opset = layer->call->opset};
    const struct nd_array *given = nd_linear_has(layer->call, 1) ? layer->call->inputs[1].values : NULL;
    const int64_t *axes = NULL;
    size_t n = given != NULL ? given->n : nd_op_ints(&op_call, "axes", &axes);
    if (n == 1)
        *axis = given != NULL ? (int64_t)given->x[0] : axes[0];
    return n == 1;
}

/* Over several axes a ReduceMax is another operation. */
static bool is_greatest_of_planes(const struct nd_exact_layer *layer, const char *op_type)
{
    int64_t axis;
    return strcmp(op_type, "ReduceMax") == 0 && !nd_htp_reduces_one_axis(layer, &axis);
}

static bool shuffles_channels(const struct nd_exact_layer *layer, const char *op_type)
{
    char mode[8];
    const struct nd_op_call op_call = {.node = layer->call->node, .opset = layer->call->opset};
    nd_op_text(&op_call, "mode", mode, sizeof mode);
    return strcmp(op_type, "DepthToSpace") == 0 && strcmp(mode, "CRD") == 0;
}

enum nd_htp_layout nd_htp_layout_made(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                                      const char *op_type)
{
    static const char *const blocked[] = {
        "AveragePool",       "BatchNormalization",    "Conv",   "ConvTranspose", "DepthToSpace", "Gemm",
        "GlobalAveragePool", "InstanceNormalization", "MatMul", "MaxPool",       "Resize",       "Softmax"};
    static const char *const flat[] = {"Gather", "LayerNormalization", "SpaceToDepth"};
    static const char *const handed_on[] = {
        "Add",       "Clip",      "Div",        "Elu",       "Exp",       "Gelu", "HardSigmoid",
        "HardSwish", "LeakyRelu", "Max",        "Min",       "Mul",       "Neg",  "PRelu",
        "Pad",       "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Sigmoid",
        "Slice",     "Split",     "Sqrt",       "Sub",       "Tanh",      "Tile", "Transpose",
    };
    if (IS_ONE_OF(op_type, flat) || is_greatest_of_planes(layer, op_type) || shuffles_channels(layer, op_type))
        return ND_HTP_FLAT;
    if (IS_ONE_OF(op_type, blocked))
        return ND_HTP_BLOCKED;
    /* Other axes of what lies in blocks: a Relu after that is made in one way, a Clip in the other. */
    if (nd_htp_keeps_memory(op_type) && strcmp(op_type, "Transpose") != 0)
        return inherit(memory, layer, true) == ND_HTP_FLAT ? ND_HTP_FLAT : ND_HTP_UNKNOWN;
    bool joins = strcmp(op_type, "Concat") == 0;
    return joins || IS_ONE_OF(op_type, handed_on) ? inherit(memory, layer, joins) : ND_HTP_UNKNOWN;
}
