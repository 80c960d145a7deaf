/* The quantisation parameters of QuantizeLinear and DequantizeLinear nodes. */
#ifndef ND_MODEL_QUANT_H
#define ND_MODEL_QUANT_H

#include "model/graph/graph.h"

struct nd_node_quant {
    enum nd_dtype dtype; /* of the quantised values as far as the node itself tells; ND_DTYPE_NONE when it does
                            not, or cannot */
    struct nd_quant
        quant; /* n = 0: the scale is computed at run time, in blocks, or of a type that is not handled */
};

/* Reads scale, zero point and axis of a node of kind Q or DQ. A negative axis stays negative: the rank is not
 * known here. A zero point that is absent is 0. ND_E_MODEL_GRAPH where they contradict each other;
 * ND_E_FILE_READ or ND_E_MODEL_EXTERNAL when they lie in a file that cannot be read. The caller owns
 * the arrays of out->quant. */
enum nd_status nd_node_quant_read(const struct nd_graph *graph, size_t node, const char *model_path,
                                  struct nd_node_quant *out, struct nd_error *err);

/* The numbers of a constant: an initializer, what a Constant node gives, or an Identity of these. *n is 0, and
 * *values NULL, for every other tensor and for types that are not read (4 bits, 64 bits). The caller frees
 * *values. Fails as nd_node_quant_read. */
enum nd_status nd_constant_numbers(const struct nd_graph *graph, size_t tensor, const char *model_path,
                                   double **values, size_t *n, struct nd_error *err);

#endif
