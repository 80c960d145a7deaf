/* Types and shapes of tensors that a model does not declare, and the floating point operations of a node: what
 * is needed to weigh nodes, without running anything. */
#pragma once

#include "model/graph/loaded.h"

struct nd_tensor_info {
    enum nd_dtype dtype;   /* ND_DTYPE_NONE: not known */
    struct nd_shape shape; /* rank -1: not known; never a dimension that is open */
};

/* infos[graph.n_tensors]: what inputs, outputs, value_info and initializers say; the rest unknown. */
void nd_infer_declared(const struct nd_model *model, struct nd_tensor_info *infos);

/* Fills what is unknown, node by node, where it follows plainly from what is known. */
void nd_infer_propagate(const struct nd_model *model, struct nd_tensor_info *infos);

/* Of one inference, as npudiff/compare/placement.h lists them (nd_placement_examine). NaN: a shape is not
 * known, or nothing is known of the operator. */
double nd_node_flops(const struct nd_graph *graph, size_t node, const struct nd_tensor_info *infos);

/* Elements; NaN when the shape is not known. A double, since products of hostile shapes overflow. */
double nd_infer_elems(const struct nd_tensor_info *info);

/* Bytes as a runtime holds them; NaN when shape or type is not known. */
double nd_infer_bytes(const struct nd_tensor_info *info);

/* ---- shared by infer.c and flops.c ---- */

/* What input or output i of the node is known to be: a static "unknown" where it is omitted. */
const struct nd_tensor_info *nd_infer_input(const struct nd_graph *graph, size_t node, size_t i,
                                            const struct nd_tensor_info *infos);
const struct nd_tensor_info *nd_infer_output(const struct nd_graph *graph, size_t node, size_t i,
                                             const struct nd_tensor_info *infos);

/* Whether the operator is element by element with one result per element (broadcasting its operands). */
bool nd_infer_is_elementwise(const Onnx__NodeProto *node);

/* An Einsum of one or two operands without "...": the size of every letter that occurs (0: it does not). False
 * where the equation or the shapes are not understood. */
struct nd_einsum {
    double size[128];
    bool in_output[128];
    const char *output; /* the letters of the result; not terminated, n_output of them */
    size_t n_output, n_operands;
    char letters[ND_MAX_RANK];
};
bool nd_infer_einsum(const struct nd_graph *graph, size_t node, const struct nd_tensor_info *infos,
                     struct nd_einsum *out);
