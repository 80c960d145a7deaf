/* ONNX models: their inputs, nodes, tensors and layers, and changed copies of them.
 *
 * Tensors here are those that npudiff records and compares. In a quantised model such a tensor is the output of
 * a QuantizeLinear. It has the name of the float tensor that was quantised, so that a float model and its
 * quantised copy use the same name. A layer is DequantizeLinear, then one or more operators, then
 * QuantizeLinear. It is the smallest part of a model whose result a device rounds.
 *
 * A model changes after loading only by nd_model_set_dim; until then, and afterwards, several threads may
 * read it.
 *
 * Example:
 *
 *     static int print_layers(const char *path)
 *     {
 *         struct nd_model *model = NULL;
 *         struct nd_error err;
 *         if (nd_model_load(path, &model, &err) != ND_OK) {
 *             fprintf(stderr, "%s\n", err.message);
 *             return 1;
 *         }
 *         for (size_t i = 0; i < nd_model_n_layers(model); i++)
 *             printf("%s (%s)\n", nd_model_layer(model, i)->name, nd_model_layer(model, i)->op_types);
 *         nd_model_destroy(&model);
 *         return 0;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_MODEL_H
#define NPUDIFF_MODEL_H

#include "npudiff/core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_model;

/* An input or output of the graph. Strings are borrowed from the model. */
struct nd_model_io {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape;               /* -1 where the dimension is dynamic */
    const char *dim_params[ND_MAX_RANK]; /* its symbolic name ("N"), or NULL; gone once it is set */
    const struct nd_quant *quant;        /* of its tensor; NULL when it is not quantised */
    enum nd_dtype quant_dtype; /* type of its quantised values; ND_DTYPE_NONE when it is not quantised */
};

/* A node of the graph, in topological order as stored. */
struct nd_model_node {
    const char *name;  /* never "": a node without a name gets the name of its first output */
    bool has_own_name; /* the file has the name */
    const char *op_type;
    const char *domain;      /* "" is the default ONNX domain */
    bool is_io_quantisation; /* QuantizeLinear of a graph input, or DequantizeLinear to a graph output, also
                                through Identity, Transpose, Reshape, Squeeze, Unsqueeze and Flatten: may run on
                                the CPU */
};

/* A layer: DequantizeLinear* -> operator(s) -> QuantizeLinear. */
struct nd_model_layer {
    const char *name;     /* the name of its output tensor */
    const char *op_types; /* joined with '+' in graph order; "requantise" when there is no operator between */
    size_t tensor;        /* index of its output tensor */
    size_t n_inputs;
    const size_t *inputs; /* indices of the tensors it reads (constants are not tensors) */
};

/* Reads an ONNX file of up to 2 GiB (protobuf's own limit) and finds its tensors. External data is hashed, not
 * loaded. It must exist, under a relative path inside the model's folder; so must the binary that an EPContext
 * node names. ND_ERR_IO: the model cannot be read, or external data is missing or outside of the folder;
 * ND_ERR_FORMAT: not an ONNX model, or a graph that contradicts itself; ND_ERR_UNSUPPORTED: a tensor rank over
 * ND_MAX_RANK, or an input that is not a tensor; ND_ERR_MEMORY. The message names the file. The caller destroys
 * *out. */
ND_PUBLIC enum nd_status nd_model_load(const char *path, struct nd_model **out, struct nd_error *err);

/* Frees the model and sets *model to NULL; NULL in *model is accepted. */
ND_PUBLIC void nd_model_destroy(struct nd_model **model);

/* The path that was given to nd_model_load. Borrowed. */
ND_PUBLIC const char *nd_model_path(const struct nd_model *model);

/* SHA-256 (hexadecimal) of the file; with external data, of "<sha of file>\n" and then "<location> <sha>\n" of
 * every external file in order of location. Computed on loading. Borrowed. */
ND_PUBLIC const char *nd_model_sha256(const struct nd_model *model);

/* The name of the graph; "" without one. Borrowed. */
ND_PUBLIC const char *nd_model_graph_name(const struct nd_model *model);

/* Version of the default operator set; 0 when none is declared. */
ND_PUBLIC int64_t nd_model_opset(const struct nd_model *model);

/* Inputs without an initializer (inputs with one are constants), outputs and nodes, all in the order of the
 * file. Indices must be in range: this is asserted. Pointers are borrowed and stay valid until the model is
 * destroyed; nd_model_set_dim changes what they point to. */
ND_PUBLIC size_t nd_model_n_inputs(const struct nd_model *model);
ND_PUBLIC const struct nd_model_io *nd_model_input(const struct nd_model *model, size_t i);
ND_PUBLIC size_t nd_model_n_outputs(const struct nd_model *model);
ND_PUBLIC const struct nd_model_io *nd_model_output(const struct nd_model *model, size_t i);
ND_PUBLIC size_t nd_model_n_nodes(const struct nd_model *model);
ND_PUBLIC const struct nd_model_node *nd_model_node(const struct nd_model *model, size_t i);

/* Tensors in graph order: first quantised graph inputs, then all others in the order of the nodes that make
 * them. Constants, tensors computed from constants only, and tensors on which no output depends are not
 * tensors.
 *
 * Codes: the output of a QuantizeLinear (domain "" or "com.microsoft"), and any other tensor that a
 * DequantizeLinear reads, such as a graph input or an operator's integer output. Such a tensor is named after
 * the float tensor it stands for (a "_QuantizeLinear_Input" suffix that ONNX Runtime's quantiser adds is
 * removed); where it or its DequantizeLinear is a graph output, that output's name is the name. Quantised
 * values made of a dequantised tensor, and tensors whose name is taken, have the name of the QuantizeLinear's
 * output without
 * "_QuantizeLinear_Output". Names are unique. quant.n is 0 when the scale is not a constant, is given in
 * blocks, or the quantised values are of a type that enum nd_dtype lacks (4 bits, 8-bit floats). quant.axis
 * counts from the end (< 0) while the rank is unknown.
 *
 * Floats: a tensor without quantisation is a tensor of its own unless it lies inside a layer, a QuantizeLinear
 * reads it, or it is a graph input. dtype is ND_DTYPE_NONE, and shape.rank -1, where the model does not declare
 * them (or not all dimensions are fixed).
 *
 * node is "" and op_types "input" for a graph input of quantised values; op_types is "input" for its
 * QuantizeLinear, too.
 */
ND_PUBLIC size_t nd_model_n_tensors(const struct nd_model *model);
ND_PUBLIC const struct nd_tensor *nd_model_tensor(const struct nd_model *model, size_t i);

/* The node whose output is quantised to the tensor of this index: the last operator of its layer. NULL where
 * none is before its QuantizeLinear, or the tensor is not made by one. */
ND_PUBLIC const struct nd_model_node *nd_model_tensor_operator(const struct nd_model *model, size_t i);

/* Layers in graph order. An operator belongs to a layer if it depends on a dequantised tensor and everything
 * that is computed from its outputs goes into this layer. The operator right before the QuantizeLinear always
 * belongs to the layer, so an operator with several quantised outputs (Split) belongs to several layers. The
 * inputs of a layer are tensors, quantised or not. The QuantizeLinear of a graph input is not a layer. */
ND_PUBLIC size_t nd_model_n_layers(const struct nd_model *model);

/* How many nodes are in ONNX Runtime's QOperator format (QLinearConv, QLinearMatMul, ...): they take quantised
 * values themselves, so that no QuantizeLinear or DequantizeLinear tells the scales of what is between them.
 * *first: the type of the first, borrowed from the model; "" if there is none. */
ND_PUBLIC size_t nd_model_n_qoperators(const struct nd_model *model, const char **first);
ND_PUBLIC const struct nd_model_layer *nd_model_layer(const struct nd_model *model, size_t i);
/* The layer that makes the tensor, or NULL. tensor < nd_model_n_tensors (asserted). */
ND_PUBLIC const struct nd_model_layer *nd_model_layer_of_tensor(const struct nd_model *model, size_t tensor);

/* Sets the dynamic dimension `name` of the inputs to n, everywhere in the model. A dimension without a name is
 * called "<input>:<axis>" ("image:0"). Changes the shapes of inputs, outputs and tensors; not
 * thread-safe. ND_ERR_NOT_FOUND when no input has such a dimension: the message lists all dimensions.
 * ND_ERR_USAGE for n < 1. ND_ERR_FORMAT when the size contradicts the number of scales of a tensor; destroy the
 * model then. */
ND_PUBLIC enum nd_status nd_model_set_dim(struct nd_model *model, const char *name, int64_t n,
                                          struct nd_error *err);

/* ND_OK when every input has a fixed shape; else ND_ERR_UNSUPPORTED, and the message says which --dim NAME=N to
 * give. */
ND_PUBLIC enum nd_status nd_model_check_static(const struct nd_model *model, struct nd_error *err);

/* The same; the message proposes sizes[n_inputs] instead of 1 where they are above 0. NULL: none is known. */
ND_PUBLIC enum nd_status nd_model_check_static_for(const struct nd_model *model, const struct nd_shape *sizes,
                                                   struct nd_error *err);

/* Which tensors to make visible: "all", "outputs" (the model's outputs, as quantised values), "none" (the
 * outputs exactly as the model has them; but for dimensions that were set, the file is left untouched), or a
 * comma-separated list of glob patterns over tensor names:
 * '*' and '?' also match '/', every name matches itself even if it contains such characters, "\," is a comma.
 * A tensor that is a graph input itself (an input of quantised values) is never selected: its bytes are those
 * of the probe, and providers may refuse to return it. *selected is a new array of tensor indices in graph
 * order, freed by the caller. With "none" it lists the model's outputs. ND_ERR_NOT_FOUND when a pattern matches
 * no tensor, or the model has none; ND_ERR_USAGE for an empty pattern. */
ND_PUBLIC enum nd_status nd_model_select_tensors(const struct nd_model *model, const char *spec,
                                                 size_t **selected, size_t *n_selected, struct nd_error *err);

/* Writes a model whose graph outputs are exactly the given tensors' `onnx_name`s, in that order: quantised
 * values where the tensor is quantised, else floats. The QuantizeLinear and the DequantizeLinear output of one
 * tensor are never both outputs. Nodes and initializers that no output needs are left out; graph inputs all
 * stay; unnamed nodes get the name nd_model_node reports; dimensions set by nd_model_set_dim are written;
 * fields of newer ONNX versions survive. The same call writes the same bytes. External data files are linked
 * (or copied) to their relative location beside the copy, so that the copy works from its folder. An existing
 * file with different content is not replaced. (While such a hard link exists, the onnx Python package
 * from 1.21 on refuses to load the external data of either model; ONNX Runtime does not mind.) ND_ERR_IO when
 * it cannot be written; nothing is left behind then. ND_ERR_USAGE for a tensor that is a graph input or is
 * given twice, ND_ERR_NOT_FOUND for no tensors at all. */
ND_PUBLIC enum nd_status nd_model_write_exposed(const struct nd_model *model, const size_t *tensors,
                                                size_t n_tensors, const char *path, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
