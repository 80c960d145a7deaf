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
    struct nd_shape shape;                /* -1 where the dimension is dynamic */
    const char *dim_params[ND_MAX_RANK];  /* its symbolic name ("N"), or NULL */
    const struct nd_quant *quant;         /* of the edge that stands for it; NULL when it is not quantised */
    enum nd_dtype quant_dtype;            /* type of the codes of that edge; ND_DTYPE_NONE without one */
};

/* A node of the graph, in topological order as stored. */
struct nd_model_node {
    const char *name;   /* never "": a node without a name is called by its first output */
    const char *op_type;
    const char *domain; /* "" is the default ONNX domain */
    bool is_io_quantisation; /* QuantizeLinear of a graph input or DequantizeLinear to a graph output: may run on the CPU */
};

/* The smallest thing a device requantises: DequantizeLinear* -> op(s) -> QuantizeLinear. */
struct nd_model_unit {
    const char *name;      /* of the edge that it makes */
    const char *op_types;  /* joined with '+' in graph order */
    size_t edge;           /* index of the edge that it makes */
    size_t n_inputs;
    const size_t *inputs;  /* indices of the edges it reads (constants are not edges) */
};

/* Reads an ONNX file and finds its edges. External data is not loaded, but must exist.
 * ND_ERR_IO: cannot be read, or external data is missing; ND_ERR_FORMAT: not an ONNX model, or a graph that
 * contradicts itself; ND_ERR_UNSUPPORTED: a tensor rank over ND_MAX_RANK. The message names the file. The caller
 * destroys *out. */
ND_PUBLIC enum nd_status nd_model_load(const char *path, struct nd_model **out, struct nd_error *err);
ND_PUBLIC void nd_model_destroy(struct nd_model **model);

ND_PUBLIC const char *nd_model_path(const struct nd_model *model);

/* SHA-256 (hexadecimal) of the file; with external data, of "<sha of file>\n" and then "<location> <sha>\n" of every
 * external file in order of location. Computed on loading. Borrowed. */
ND_PUBLIC const char *nd_model_sha256(const struct nd_model *model);

/* Version of the default operator set; 0 when none is declared. */
ND_PUBLIC int64_t nd_model_opset(const struct nd_model *model);

ND_PUBLIC size_t nd_model_n_inputs(const struct nd_model *model);
ND_PUBLIC const struct nd_model_io *nd_model_input(const struct nd_model *model, size_t i);
ND_PUBLIC size_t nd_model_n_outputs(const struct nd_model *model);
ND_PUBLIC const struct nd_model_io *nd_model_output(const struct nd_model *model, size_t i);
ND_PUBLIC size_t nd_model_n_nodes(const struct nd_model *model);
ND_PUBLIC const struct nd_model_node *nd_model_node(const struct nd_model *model, size_t i);

/* Edges in graph order: graph inputs that are quantised first, then in the order of the nodes that make them.
 * A quantised edge is named after its float tensor (a "_QuantizeLinear_Input" suffix that ONNX Runtime's quantiser
 * adds is removed; where a DequantizeLinear of it is a graph output, that output's name is the name). A tensor
 * without quantisation is an edge of its own unless it lies inside a unit. Constants are not edges. */
ND_PUBLIC size_t nd_model_n_edges(const struct nd_model *model);
ND_PUBLIC const struct nd_edge *nd_model_edge(const struct nd_model *model, size_t i);

ND_PUBLIC size_t nd_model_n_units(const struct nd_model *model);
ND_PUBLIC const struct nd_model_unit *nd_model_unit(const struct nd_model *model, size_t i);

/* Gives the symbolic dimension `name` (or every dynamic dimension when it is the only one left unnamed) the size n.
 * ND_ERR_NOT_FOUND when no input has such a dimension: the message lists those there are. */
ND_PUBLIC enum nd_status nd_model_set_dim(struct nd_model *model, const char *name, int64_t n, struct nd_error *err);

/* ND_OK when every input has a fixed shape; else ND_ERR_UNSUPPORTED, and the message says which --dim to give. */
ND_PUBLIC enum nd_status nd_model_check_static(const struct nd_model *model, struct nd_error *err);

/* Which edges to make visible: "all", "outputs" (the model's outputs, as codes), "none" (the outputs exactly as the
 * model has them; the file is left untouched), or a comma-separated list of glob patterns over edge names.
 * *selected is a new array of edge indices in graph order, freed by the caller. With "none" it lists the model's outputs.
 * ND_ERR_NOT_FOUND when a pattern matches nothing. */
ND_PUBLIC enum nd_status nd_model_select_edges(const struct nd_model *model, const char *spec, size_t **selected,
                                               size_t *n_selected, struct nd_error *err);

/* Writes a model whose graph outputs are exactly the given edges' `onnx_name`s, in that order: codes where the edge is
 * quantised, else floats. Never the QuantizeLinear and the DequantizeLinear output of one edge together. Nodes that feed
 * no output any more are left out; unnamed nodes get the name nd_model_node reports; dimensions set by
 * nd_model_set_dim are written. External data files are linked (or copied) beside it under their relative location,
 * so that the copy works from its folder. ND_ERR_IO when it cannot be written; nothing is left behind then. */
ND_PUBLIC enum nd_status nd_model_write_exposed(const struct nd_model *model, const size_t *edges, size_t n_edges,
                                                const char *path, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
