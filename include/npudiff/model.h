/* ONNX models: their inputs, nodes, quantised edges and units; and copies whose edges are graph outputs.
 *
 * A model is immutable after loading but for nd_model_set_dim; reading it from several threads is safe then. */
#ifndef NPUDIFF_MODEL_H
#define NPUDIFF_MODEL_H

#include "npudiff/tensor.h"

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
    const struct nd_quant *quant;        /* of the edge that stands for it; NULL when it is not quantised */
    enum nd_dtype quant_dtype;           /* type of the codes of that edge; ND_DTYPE_NONE without one */
};

/* A node of the graph, in topological order as stored. */
struct nd_model_node {
    const char *name; /* never "": a node without a name is called by its first output */
    const char *op_type;
    const char *domain;      /* "" is the default ONNX domain */
    bool is_io_quantisation; /* QuantizeLinear of a graph input or DequantizeLinear to a graph output: may run
                                on the CPU */
};

/* The smallest thing a device requantises: DequantizeLinear* -> op(s) -> QuantizeLinear. */
struct nd_model_unit {
    const char *name;     /* of the edge that it makes */
    const char *op_types; /* joined with '+' in graph order; "requantise" when there is no operator between */
    size_t edge;          /* index of the edge that it makes */
    size_t n_inputs;
    const size_t *inputs; /* indices of the edges it reads (constants are not edges) */
};

/* Reads an ONNX file of up to 2 GiB (protobuf's own limit) and finds its edges. External data is not loaded,
 * but hashed, so it must exist: under a relative path inside the model's folder. The binary that an EPContext
 * node names is external data, too. ND_ERR_IO: cannot be read, or
 * external data is missing or outside of the folder; ND_ERR_FORMAT: not an ONNX model, or a graph that
 * contradicts itself; ND_ERR_UNSUPPORTED: a tensor rank over ND_MAX_RANK, or an input that is not a tensor;
 * ND_ERR_MEMORY. The message names the file. The caller destroys *out. */
ND_PUBLIC enum nd_status nd_model_load(const char *path, struct nd_model **out, struct nd_error *err);

/* Frees the model and sets *model to NULL; NULL in *model is accepted. */
ND_PUBLIC void nd_model_destroy(struct nd_model **model);

/* As it was given to nd_model_load. Borrowed. */
ND_PUBLIC const char *nd_model_path(const struct nd_model *model);

/* SHA-256 (hexadecimal) of the file; with external data, of "<sha of file>\n" and then "<location> <sha>\n" of
 * every external file in order of location. Computed on loading. Borrowed. */
ND_PUBLIC const char *nd_model_sha256(const struct nd_model *model);

/* The files beside the model that it keeps tensors or binaries in, each by its location relative to the model's
 * folder, in order of location. The index is asserted; borrowed. */
ND_PUBLIC size_t nd_model_n_external(const struct nd_model *model);
ND_PUBLIC const char *nd_model_external(const struct nd_model *model, size_t i);

/* Version of the default operator set; 0 when none is declared. */
ND_PUBLIC int64_t nd_model_opset(const struct nd_model *model);

/* Inputs that have to be fed (those with an initializer are constants), outputs and nodes, all in the order of
 * the file. Indices are asserted. What is returned is borrowed; a pointer stays valid until the model is
 * destroyed, what it points to changes with nd_model_set_dim. */
ND_PUBLIC size_t nd_model_n_inputs(const struct nd_model *model);
ND_PUBLIC const struct nd_model_io *nd_model_input(const struct nd_model *model, size_t i);
ND_PUBLIC size_t nd_model_n_outputs(const struct nd_model *model);
ND_PUBLIC const struct nd_model_io *nd_model_output(const struct nd_model *model, size_t i);
ND_PUBLIC size_t nd_model_n_nodes(const struct nd_model *model);
ND_PUBLIC const struct nd_model_node *nd_model_node(const struct nd_model *model, size_t i);

/* Edges in graph order: graph inputs that are quantised first, then in the order of the nodes that make them.
 * Only what an output of the graph depends on is an edge; constants, and whatever is computed from constants,
 * are none.
 *
 * Codes: the output of a QuantizeLinear (domain "" or "com.microsoft"), and any other tensor that a
 * DequantizeLinear reads, such as a graph input or an operator's integer output. Such an edge is named after
 * the float tensor it stands for (a "_QuantizeLinear_Input" suffix that ONNX Runtime's quantiser adds is
 * removed); where it or its DequantizeLinear is a graph output, that output's name is the name. Codes made of a
 * dequantised tensor, and edges whose name is taken, are called by the QuantizeLinear's output less
 * "_QuantizeLinear_Output". Names are unique. quant.n is 0 when the scale is not a constant, is given in
 * blocks, or the codes are of a type that enum nd_dtype lacks (4 bits, 8-bit floats). quant.axis counts from
 * the end (< 0) while the rank is unknown.
 *
 * Floats: a tensor without quantisation is an edge of its own unless it lies inside a unit, a QuantizeLinear
 * reads it, or it is a graph input. dtype is ND_DTYPE_NONE, and shape.rank -1, where the model does not declare
 * them (or not all dimensions are fixed).
 *
 * node is "" and op_types "input" for a graph input of codes; op_types is "input" for its QuantizeLinear, too.
 */
ND_PUBLIC size_t nd_model_n_edges(const struct nd_model *model);
ND_PUBLIC const struct nd_edge *nd_model_edge(const struct nd_model *model, size_t i);

/* Units in graph order. An operator lies in a unit when all that is made of its outputs goes into that unit and
 * it depends on a dequantised tensor; the operator right before the QuantizeLinear always does, so one with
 * several quantised outputs (Split) lies in several units. What a unit reads is found among the edges,
 * quantised or not. The QuantizeLinear of a graph input is no unit. */
ND_PUBLIC size_t nd_model_n_units(const struct nd_model *model);
ND_PUBLIC const struct nd_model_unit *nd_model_unit(const struct nd_model *model, size_t i);

/* Gives the dynamic dimension `name` of the inputs the size n, everywhere in the model where it is named. One
 * without a name is called "<input>:<axis>" ("image:0"). Changes the shapes of inputs, outputs and edges; not
 * thread-safe. ND_ERR_NOT_FOUND when no input has such a dimension: the message lists those there are.
 * ND_ERR_USAGE for n < 1. ND_ERR_FORMAT when the size contradicts the number of scales of an edge; the model is
 * of no use then. */
ND_PUBLIC enum nd_status nd_model_set_dim(struct nd_model *model, const char *name, int64_t n,
                                          struct nd_error *err);

/* ND_OK when every input has a fixed shape; else ND_ERR_UNSUPPORTED, and the message says which --dim NAME=N to
 * give. */
ND_PUBLIC enum nd_status nd_model_check_static(const struct nd_model *model, struct nd_error *err);

/* Which edges to make visible: "all", "outputs" (the model's outputs, as codes), "none" (the outputs exactly as
 * the model has them; the file is left untouched), or a comma-separated list of glob patterns over edge names:
 * '*' and '?' match '/' as well, a name always matches itself whatever it holds, "\," is a comma. An edge that
 * is a graph input itself (an input of codes) is never selected: its bytes are those of the probe, and
 * providers may refuse to return it. *selected is a new array of edge indices in graph order, freed by the
 * caller. With "none" it lists the model's outputs. ND_ERR_NOT_FOUND when a pattern, or everything, matches
 * nothing; ND_ERR_USAGE for an empty pattern. */
ND_PUBLIC enum nd_status nd_model_select_edges(const struct nd_model *model, const char *spec,
                                               size_t **selected, size_t *n_selected, struct nd_error *err);

/* Writes a model whose graph outputs are exactly the given edges' `onnx_name`s, in that order: codes where the
 * edge is quantised, else floats. Never the QuantizeLinear and the DequantizeLinear output of one edge
 * together. Nodes and initializers that feed no output any more are left out; graph inputs all stay; unnamed
 * nodes get the name nd_model_node reports; dimensions set by nd_model_set_dim are written; fields of newer
 * ONNX versions survive. The same call writes the same bytes. External data files are linked (or copied) beside
 * it under their relative location, so that the copy works from its folder; one that is there already with
 * other content is not replaced. (While such a hard link exists, the onnx Python package from 1.21 on refuses
 * to load the external data of either model; ONNX Runtime does not mind.) ND_ERR_IO when it cannot be written;
 * nothing is left behind then. ND_ERR_USAGE for an edge that is a graph input or is given twice,
 * ND_ERR_NOT_FOUND for no edges at all. */
ND_PUBLIC enum nd_status nd_model_write_exposed(const struct nd_model *model, const size_t *edges,
                                                size_t n_edges, const char *path, struct nd_error *err);

/* Which part of a model to write as a model of its own. Zeroed, with nodes, is complete. */
struct nd_model_cut {
    const size_t *nodes; /* indices of nd_model_node, in any order */
    size_t n_nodes;
    /* What a run of the model showed: types and shapes of tensors, by onnx_name. They win over what the model
     * declares and stand for what it does not. Nullable. */
    const struct nd_edge *known;
    size_t n_known;
    bool is_open;       /* what the operators make inside is handed out, too (floats) */
    const char *output; /* a tensor inside that is handed out in any case, by its ONNX name; nullable */
};

/* The unit that each node lies in, by its index, SIZE_MAX for none: unit_of_node[nd_model_n_nodes]. An operator
 * whose results go to several units lies in none. DequantizeLinear lies in none. */
ND_PUBLIC enum nd_status nd_model_node_units(const struct nd_model *model, size_t *unit_of_node,
                                             struct nd_error *err);

/* Writes the given nodes as a model. Along come what makes their constants, the DequantizeLinear they read
 * from, and the operator before a QuantizeLinear that is given; nothing of these is handed out. What else they
 * read from other nodes becomes an input: codes behind which the DequantizeLinear still stands, or floats. What
 * others read of them, and what was an output of the model, becomes an output: codes where a DequantizeLinear
 * follows. Inputs of the model that are still read come first, in their order. Initializers, descriptions and
 * external files that are not needed are left out; all else survives (operator sets, functions, metadata,
 * fields of newer ONNX versions). Unnamed nodes get the name that nd_model_node reports. The same call writes
 * the same bytes. External data is placed as by nd_model_write_exposed.
 *
 * ND_ERR_IO when it cannot be written; nothing is left behind then. ND_ERR_USAGE for a node that does not
 * exist; ND_ERR_NOT_FOUND when nothing would be handed out; ND_ERR_UNSUPPORTED where a tensor at which it would
 * be cut has no known type; ND_ERR_MEMORY. Thread-safe. */
ND_PUBLIC enum nd_status nd_model_write_subgraph(const struct nd_model *model, const struct nd_model_cut *cut,
                                                 const char *path, struct nd_error *err);

/* How a tensor of a float model is to be quantised. */
struct nd_quantised_tensor {
    const char *tensor;
    enum nd_dtype dtype; /* of the codes: an 8-, 16- or 32-bit integer */
    int bits;            /* codes of a constant are clipped to so many; an activation has 8 or 16 */
    bool is_signed;      /* as dtype is */
    bool has_axis;       /* false: the axis of several scales is that of the operator that reads the tensor */
    const struct nd_quant *quant; /* n >= 1, scales finite and positive, zero points within the codes */
};

/* Writes a copy of a float model in QDQ form. A constant (an initializer or a Constant node's tensor, float32)
 * becomes codes "<tensor>_quantized" = nearbyint(value / scale) + zero point in float32, half to even, clipped,
 * and a DequantizeLinear; every other tensor gets a QuantizeLinear and a DequantizeLinear behind it. Tensors
 * are called as ONNX Runtime's quantiser calls them, so that edges of the copy have the names of the float
 * model's tensors. The axis of a constant, where has_axis is false, is 0 for Conv and rank 1, 1 for
 * ConvTranspose, that of the outputs for Gemm and MatMul. The model's opset stays: a node that it cannot
 * express (16 bits before 21, an axis before 13) is of domain com.microsoft. External data is placed as by
 * nd_model_write_exposed. ND_ERR_UNSUPPORTED: a model with QuantizeLinear or DequantizeLinear nodes, a constant
 * that is no float32 or is sparse, an activation of other than 8 or 16 bits, a name that is taken;
 * ND_ERR_FORMAT (ND_E_ENCODINGS_MISMATCH): a tensor that does not exist, is given twice, has another number of
 * channels, or holds a NaN; ND_ERR_IO as nd_model_write_exposed. Nothing is left behind then. */
ND_PUBLIC enum nd_status nd_model_write_quantised(const struct nd_model *model,
                                                  const struct nd_quantised_tensor *items, size_t n_items,
                                                  const char *path, struct nd_error *err);

/* Whether the graph has a tensor of that name: an input, a constant, or what a node makes. */
ND_PUBLIC bool nd_model_has_tensor(const struct nd_model *model, const char *name);

/* Calls visit for every constant that a DequantizeLinear reads, in graph order, until it returns something else
 * than ND_OK; returns that. name is that of the float constant: the DequantizeLinear's output less
 * "_DequantizeLinear_Output" or "_qdq", or that of a float constant that is quantised in the graph. quant.n is
 * 0 as in an edge's. Everything is borrowed for the call. Errors of reading as nd_model_load. */
ND_PUBLIC enum nd_status
nd_model_visit_constants(const struct nd_model *model,
                         enum nd_status (*visit)(void *context, const char *name, enum nd_dtype dtype,
                                                 const struct nd_quant *quant, struct nd_error *err),
                         void *context, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
