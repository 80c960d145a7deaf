/* Where the constants of a layer are, and what they were before they were quantised. */
#ifndef ND_ALIGN_ALIGN_CONSTANTS_H
#define ND_ALIGN_ALIGN_CONSTANTS_H

#include "arithmetic/exact/linear/linear_layer.h"
#include "improve/align/align_plan.h"

size_t nd_align_node_of(const struct nd_graph *graph, const Onnx__NodeProto *proto);

/* The DequantizeLinear of input i; ND_NO_INDEX: none. *is_shared: others read what it makes. */
size_t nd_align_dequantizer_of(const struct nd_graph *graph, size_t node, size_t i, bool *is_shared);

/* The operand as the float model has it, [n] values, owned by the caller; *out stays NULL where it has none
 * that fits. ND_ERR_MEMORY. */
enum nd_status nd_align_find_floats(const struct nd_align_plan *plan, size_t dequantizer,
                                    const struct nd_linear_input *input, double **out, struct nd_error *err);

#endif
