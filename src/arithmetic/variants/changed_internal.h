/* What coded_weights.c takes from changed_constants.c: it finds the quantised values of weights that the
 * operator reads as floats. */
#pragma once

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/variants/changed_constants.h"

enum { ND_CHANGED_WEIGHTS = 1, ND_CHANGED_BIAS = 2, ND_CHANGED_INPUTS = 4 };

/* Weights as rows of those that belong to one output, or as the model stores them. */
struct nd_weight_rows {
    size_t n, n_columns, inner; /* column k of row j is at k / inner * inner * n + j * inner + k % inner */
};

static inline size_t nd_weight_place(const struct nd_weight_rows *rows, size_t row, size_t column)
{
    return column / rows->inner * rows->inner * rows->n + row * rows->inner + column % rows->inner;
}

/* False: there is one row or column, or rows as they are stored are those of the outputs. */
bool nd_weight_rows_find(const struct nd_linear_call *call, bool is_as_stored, struct nd_weight_rows *rows);

/* Conv, ConvTranspose, Gemm or MatMul. */
bool nd_is_product(const struct nd_linear_call *call);
/* The operator by itself, with its weights. */
struct nd_float_node nd_float_node_of(const struct nd_linear_call *call);
