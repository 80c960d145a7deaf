/* What the rest of npudiff needs of a model beyond npudiff/model.h: its external files, its constants, and
 * changed copies: a part of it, or a float model with quantisers. */
#pragma once

#include "npudiff/model/model.h"

/* The files beside the model that it keeps tensors or binaries in, each by its location relative to the model's
 * folder, in order of location. The index is asserted; borrowed. */
size_t nd_model_n_external(const struct nd_model *model);
const char *nd_model_external(const struct nd_model *model, size_t i);

/* The node that makes floats of the quantised values of a tensor, and the tensor of them; both borrowed. */
struct nd_dequantised {
    const char *node;
    const char *tensor;
};

/* Finds a DequantizeLinear that reads the quantised values of the tensor with the tensor's own scale, which is
 * above 0, and zero point, one each: of an output of the model the one that makes this output, else the first.
 * False where there is none. */
bool nd_model_find_dequantised(const struct nd_model *model, size_t tensor, struct nd_dequantised *out);

/* The tensor that an output of the model is, or whose quantised values it stands for; ND_NO_INDEX: none. */
size_t nd_model_output_tensor(const struct nd_model *model, size_t output);

/* Whether the node is a DequantizeLinear that is io_quantisation through other nodes: a copy of the model whose
 * outputs are quantised values still has it. */
bool nd_model_dequantises_before_end(const struct nd_model *model, size_t node);

/* How many initializers the node reads, or the DequantizeLinear before it, that are inputs of the graph as
 * well. From IR version 4 on a caller may replace the value of such an initializer, so that no runtime takes it
 * for a constant; 0 for older models. node < nd_model_n_nodes. */
size_t nd_model_n_open_constants(const struct nd_model *model, size_t node);

/* Whether the node counts where nodes are counted: an output depends on it, it is no quantiser, and it computes
 * from more than constants. node < nd_model_n_nodes. */
bool nd_model_is_operator(const struct nd_model *model, size_t node);

/* Which part of a model to write as a model of its own. Zeroed, with nodes, is complete. */
struct nd_model_cut {
    const size_t *nodes; /* indices of nd_model_node, in any order */
    size_t n_nodes;
    /* What a run of the model showed: types and shapes of tensors, by onnx_name. They win over what the model
     * declares and stand for what it does not. Nullable. */
    const struct nd_tensor *known;
    size_t n_known;
    bool is_open;       /* what the operators make inside is handed out, too (floats) */
    const char *output; /* a tensor inside that is handed out in any case, by its ONNX name; nullable */
};

/* Writes the given nodes as a model. Along come what makes their constants, the DequantizeLinear they read
 * from, and the operator before a QuantizeLinear that is given; nothing of these is handed out. What else they
 * read from other nodes becomes an input: quantised values behind which the DequantizeLinear still stands, or
 * floats. What others read of them, and what was an output of the model, becomes an output: quantised values
 * where a DequantizeLinear follows. Inputs of the model that are still read come first, in their order.
 * Initializers, descriptions and external files that are not needed are left out; all else survives (operator
 * sets, functions, metadata, fields of newer ONNX versions). Unnamed nodes get the name that nd_model_node
 * reports. The same call writes the same bytes. External data is placed as by nd_model_write_exposed.
 *
 * ND_ERR_IO when it cannot be written; nothing is left behind then. ND_ERR_USAGE for a node that does not
 * exist; ND_ERR_NOT_FOUND when nothing would be handed out; ND_ERR_UNSUPPORTED where a tensor at which it would
 * be cut has no known type; ND_ERR_MEMORY. Thread-safe. */
enum nd_status nd_model_write_subgraph(const struct nd_model *model, const struct nd_model_cut *cut,
                                       const char *path, struct nd_error *err);

/* How a tensor of a float model is to be quantised. */
struct nd_quantised_tensor {
    const char *tensor;
    enum nd_dtype dtype; /* of the codes: an 8-, 16- or 32-bit integer */
    int bits;            /* quantised values of a constant are clipped to so many; an activation has 8 or 16 */
    bool is_signed;      /* as dtype is */
    bool has_axis;       /* false: the axis of several scales is that of the operator that reads the tensor */
    const struct nd_quant
        *quant; /* n >= 1, scales finite and positive, zero points within the quantised values */
};

/* Writes a copy of a float model in QDQ form. A constant (an initializer or a Constant node's tensor, float32)
 * becomes quantised values "<tensor>_quantized" = nearbyint(value / scale) + zero point in float32, half to
 * even, clipped, and a DequantizeLinear; every other tensor gets a QuantizeLinear and a DequantizeLinear behind
 * it. Tensors are called as ONNX Runtime's quantiser calls them, so that tensors of the copy have the names of
 * the float model's tensors. The axis of a constant, where has_axis is false, is 0 for Conv and rank 1, 1 for
 * ConvTranspose, that of the outputs for Gemm and MatMul. The model's opset stays: a node that it cannot
 * express (16 bits before 21, an axis before 13) is of domain com.microsoft. External data is placed as by
 * nd_model_write_exposed. ND_ERR_UNSUPPORTED: a model with QuantizeLinear or DequantizeLinear nodes, a constant
 * that is no float32 or is sparse, an activation of other than 8 or 16 bits, a name that is taken;
 * ND_ERR_FORMAT (ND_E_ENCODINGS_MISMATCH): a tensor that does not exist, is given twice, has another number of
 * channels, or holds a NaN; ND_ERR_IO as nd_model_write_exposed. Nothing is left behind then. */
enum nd_status nd_model_write_quantised(const struct nd_model *model, const struct nd_quantised_tensor *items,
                                        size_t n_items, const char *path, struct nd_error *err);

/* A QuantizeLinear or DequantizeLinear with other parameters. */
struct nd_recoded_node {
    size_t node;                  /* index of nd_model_node */
    const struct nd_quant *quant; /* as many scales as the node has */
    const double *qvalues;        /* of the constant that it reads, in C order; NULL: they stay */
    size_t n_qvalues;
};

/* Writes a copy in which these nodes have the given scales and zero points, as constants, and read the given
 * quantised values. Types, shapes and axes stay. A constant keeps its name if all that read it now read its new
 * values; else the new one has "_aligned" behind its name. Nodes that share a quant share its constants.
 * External data is placed as by nd_model_write_exposed. ND_ERR_UNSUPPORTED: a scale that is no constant
 * float32, a zero point or quantised values that are no constant, another number of scales, a name that is
 * taken; ND_ERR_IO; ND_ERR_MEMORY. Nothing is left behind then. */
enum nd_status nd_model_write_recoded(const struct nd_model *model, const struct nd_recoded_node *nodes,
                                      size_t n_nodes, const char *path, struct nd_error *err);

/* (*out)[n_tensors]: the shape of each tensor, inferred where the model does not declare it; rank -1 where it
 * does not follow. The caller frees it. ND_ERR_MEMORY. */
enum nd_status nd_tensors_infer_shapes(const struct nd_model *model, struct nd_shape **out,
                                       struct nd_error *err);

/* Whether the graph has a tensor of that name: an input, a constant, or what a node makes. */
bool nd_model_has_tensor(const struct nd_model *model, const char *name);

/* Whether nd_model_set_dim has set any, or a node has no name. */
bool nd_model_needs_copy(const struct nd_model *model);

/* Writes a copy that differs from the model in nothing but the dimensions that were set, and the names of nodes
 * that have none: they get the name that nd_model_node reports, by which a runtime tells of them. External
 * files and errors: as nd_model_write_exposed. */
enum nd_status nd_model_write_whole(const struct nd_model *model, const char *path, struct nd_error *err);
