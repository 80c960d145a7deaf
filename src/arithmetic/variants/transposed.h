/* What a layer gives when the bytes of its weights are read in the other order: a converter wrote the matrix of
 * a Gemm or MatMul transposed, and its shape says nothing of it (square ones, above all). */
#ifndef ND_ARITH_TRANSPOSED_H
#define ND_ARITH_TRANSPOSED_H

#include "arithmetic/exact/rounding_rule.h"
#include "arithmetic/htp/htp.h"

/* The quantised values of the layer so, by unit_program (NULL: the exact values, rounded by `usual`). codes->n
 * is 0 where the layer is no Gemm or MatMul with a constant matrix of weights, or where transposing it changes
 * nothing. The caller frees *quantised values. ND_ERR_MEMORY; what cannot be evaluated is no error. */
enum nd_status nd_layer_transposed(const struct nd_exact_layer *layer,
                                   const struct nd_layer_arithmetic *layer_arithmetic,
                                   const struct nd_rounding_rule *usual, struct nd_array *qvalues,
                                   struct nd_error *err);

#endif
