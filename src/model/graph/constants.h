/* Constants of a graph: as numbers and floats, and the quantisation parameters of QuantizeLinear and
 * DequantizeLinear nodes. */
#pragma once

#include "core/memory.h"
#include "model/graph/graph.h"
#include "model/graph/loaded.h"

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

struct nd_float_constant {
    float *values; /* owned */
    size_t n;
    const int64_t *dims; /* borrowed from the model */
    size_t rank;
};

/* The values of an initializer, or of a Constant node's tensor; *is_constant is false, and *out untouched, for
 * every other tensor. ND_E_MODEL_UNSUPPORTED for a constant that is no float32 or sparse, ND_E_MODEL_GRAPH
 * where the data does not fit the shape. The caller frees out->values. */
enum nd_status nd_float_constant_read(const struct nd_graph *graph, size_t tensor, const char *model_path,
                                      struct nd_float_constant *out, bool *is_constant, struct nd_error *err);

/* The name of the float constant whose quantised values the DequantizeLinear of this index reads, as
 * nd_model_visit_constants has it. The caller frees it; NULL: out of memory. */
char *nd_model_constant_name(const struct nd_graph *graph, size_t index);
