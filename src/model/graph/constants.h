/* Constants of a graph that are read as floats. */
#ifndef ND_MODEL_CONSTANTS_H
#define ND_MODEL_CONSTANTS_H

#include "core/memory.h"
#include "model/graph/loaded.h"

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

#endif
