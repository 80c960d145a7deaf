/* The arithmetics of the HTP: which there are, and which family has the layers of an operator. Formulas, and
 * the evidence for each: docs/science/htp-arithmetic.md. */
#include "arithmetic/htp/htp.h"

#include <math.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"

static const struct nd_layer_arithmetic arithmetics[] = {
    {"htp-v73", "HTP v73, v75, v79 and v81, QAIRT 2.47 and 2.51", ND_HTP_V73, false, false},
    {"htp-v69", "HTP v68 and v69, QAIRT 2.47 and 2.51", ND_HTP_V69, false, false},
    {"htp-v73:2.48", "HTP v73, v75, v79 and v81, QAIRT 2.48 to 2.50", ND_HTP_V73, true, false},
    {"htp-v69:2.48", "HTP v68 and v69, QAIRT 2.48 to 2.50", ND_HTP_V69, true, false},
};

struct named_family {
    const char *op_type;
    nd_htp_family *family;
};

/* Asked first, of uint16; what they do not cover is asked of the others. */
static const struct named_family families_of_words[] = {
    {"Relu", nd_htp_narrow16},
    {"Clip", nd_htp_narrow16},
    {"Neg", nd_htp_neg16},
    {"Abs", nd_htp_abs16},
    {"LeakyRelu", nd_htp_leaky16},
    {"HardSigmoid", nd_htp_hard_sigmoid16},
    {"Sigmoid", nd_htp_curve16},
    {"Tanh", nd_htp_curve16},
    {"Concat", nd_htp_move16},
    {"Slice", nd_htp_move16},
    {"Split", nd_htp_move16},
    {"ReduceMax", nd_htp_move16},
    {"ReduceMin", nd_htp_move16},
    {"Mul", nd_htp_mul16},
    {"Sub", nd_htp_add},
    {"Gelu", nd_htp_gelu16},
    {"Conv", nd_htp_depthwise16},
    {"ReduceMean", nd_htp_reduce16},
    {"ReduceSum", nd_htp_reduce16},
    {"Exp", nd_htp_exp16},
    {"Elu", nd_htp_elu16},
    {"Sqrt", nd_htp_sqrt16},
    {"HardSwish", nd_htp_hard_swish16},
    {"Softmax", nd_htp_softmax16},
    {"Div", nd_htp_div},
    {"PRelu", nd_htp_prelu16},
    {"InstanceNormalization", nd_htp_instance_norm},
};

static const struct named_family families[] = {
    {"Conv", nd_htp_linear},
    {"ConvTranspose", nd_htp_linear},
    {"Gemm", nd_htp_linear},
    {"MatMul", nd_htp_linear},
    {"Add", nd_htp_add},
    {"Sub", nd_htp_add},
    {"Mul", nd_htp_mul},
    {"Div", nd_htp_div},
    {"Reciprocal", nd_htp_reciprocal},
    {"Max", nd_htp_choose},
    {"Min", nd_htp_choose},
    {"Neg", nd_htp_negate},
    {"AveragePool", nd_htp_pool},
    {"GlobalAveragePool", nd_htp_mean},
    {"ReduceMean", nd_htp_mean},
    {"ReduceSum", nd_htp_mean},
    {"LayerNormalization", nd_htp_norm},
    {"InstanceNormalization", nd_htp_instance_norm},
    {"Softmax", nd_htp_softmax},
    {"BatchNormalization", nd_htp_batch_norm},
    {"Abs", nd_htp_table},
    {"Atan", nd_htp_table},
    {"Ceil", nd_htp_table},
    {"Clip", nd_htp_table},
    {"Cos", nd_htp_table},
    {"Elu", nd_htp_table},
    {"Exp", nd_htp_table},
    {"Floor", nd_htp_table},
    {"Gelu", nd_htp_table},
    {"HardSigmoid", nd_htp_table},
    {"HardSwish", nd_htp_table},
    {"LeakyRelu", nd_htp_table},
    {"Log", nd_htp_table},
    {"Relu", nd_htp_table},
    {"Round", nd_htp_table},
    {"Sigmoid", nd_htp_table},
    {"Sign", nd_htp_table},
    {"Sin", nd_htp_table},
    {"Softplus", nd_htp_table},
    {"Sqrt", nd_htp_table},
    {"Tanh", nd_htp_table},
    {"PRelu", nd_htp_prelu},
    {"Concat", nd_htp_move},
    {"DepthToSpace", nd_htp_move},
    {"Expand", nd_htp_move},
    {"Flatten", nd_htp_move},
    {"Gather", nd_htp_move},
    {"GlobalMaxPool", nd_htp_move},
    {"Identity", nd_htp_move},
    {"MaxPool", nd_htp_move},
    {"ReduceMax", nd_htp_move},
    {"ReduceMin", nd_htp_move},
    {"Pad", nd_htp_pad},
    {"Reshape", nd_htp_move},
    {"Resize", nd_htp_resize},
    {"Slice", nd_htp_move},
    {"SpaceToDepth", nd_htp_move},
    {"Split", nd_htp_move},
    {"Squeeze", nd_htp_move},
    {"Tile", nd_htp_move},
    {"Transpose", nd_htp_move},
    {"Unsqueeze", nd_htp_move},
};

const struct nd_layer_arithmetic *nd_layer_arithmetics(size_t *n)
{
    *n = sizeof arithmetics / sizeof arithmetics[0];
    return arithmetics;
}

const struct nd_layer_arithmetic *nd_layer_arithmetic_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof arithmetics / sizeof arithmetics[0]; i++)
        if (strcmp(arithmetics[i].name, name) == 0)
            return &arithmetics[i];
    return NULL;
}

/* Asks the first of n families that has the operator of the layer. */
static enum nd_status ask(const struct named_family *from, size_t n, const struct nd_htp_job *job,
                          struct nd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(nd_onnx_text(job->call->node->op_type), from[i].op_type) != 0)
            continue;
        struct nd_error why;
        enum nd_status status = from[i].family(job, &why);
        if (status == ND_ERR_UNSUPPORTED) { /* its operator is not evaluated */
            nd_array_deinit(job->qvalues);
            return ND_OK;
        }
        if (status != ND_OK && err != NULL)
            *err = why;
        return status;
    }
    return ND_OK;
}

/* ONNX, or the Gelu that ONNX Runtime makes of its parts, which the HTP computes as ONNX's. */
static bool has_known_domain(const Onnx__NodeProto *node)
{
    const char *domain = nd_onnx_domain(node->domain);
    return domain[0] == '\0' ||
           (strcmp(domain, "com.microsoft") == 0 && strcmp(nd_onnx_text(node->op_type), "Gelu") == 0);
}

enum nd_status nd_layer_arithmetic_run(const struct nd_layer_arithmetic *arithmetic,
                                       const struct nd_exact_layer *layer, struct nd_layer_memory *memory,
                                       struct nd_array *qvalues, bool *is_covered, struct nd_error *err)
{
    const struct nd_htp_job job = {.arithmetic = arithmetic,
                                   .layer = layer,
                                   .call = layer->call,
                                   .memory = memory,
                                   .qvalues = qvalues,
                                   .is_covered = is_covered};
    const Onnx__NodeProto *node = layer->call->node;
    *is_covered = false;
    if (node == NULL || !has_known_domain(node) ||
        (layer->dtype != ND_DTYPE_U8 && layer->dtype != ND_DTYPE_U16))
        return ND_OK;
    nd_htp_note_tensor(memory, layer);
    enum nd_status status = ND_OK;
    if (layer->dtype == ND_DTYPE_U16)
        status = ask(families_of_words, sizeof families_of_words / sizeof families_of_words[0], &job, err);
    if (status == ND_OK && !*is_covered && nd_htp_reads_floats(layer))
        status = nd_htp_halves(&job, err);
    if (status == ND_OK && !*is_covered)
        status = ask(families, sizeof families / sizeof families[0], &job, err);
    return status;
}

enum nd_status nd_layer_run_as_v81(const struct nd_layer_arithmetic *arithmetic,
                                   const struct nd_exact_layer *layer, struct nd_layer_memory *memory,
                                   struct nd_array *qvalues, bool *is_covered, struct nd_error *err)
{
    struct nd_layer_arithmetic other = *arithmetic;
    *is_covered = false;
    if (arithmetic->arch != ND_HTP_V73 || !nd_htp_is_other_on_v81(layer))
        return ND_OK;
    other.is_v81 = true;
    return nd_layer_arithmetic_run(&other, layer, memory, qvalues, is_covered, err);
}
