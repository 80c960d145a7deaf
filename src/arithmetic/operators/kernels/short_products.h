/* Products of whole numbers of 16 bits: several times as many at once as of doubles, with the same bits. */
#pragma once

#include "arithmetic/operators/array.h"

/* What is known of input 1 of a Conv, Gemm or MatMul whose inputs are whole numbers. */
struct nd_op_shorts {
    const int16_t *weights; /* the same numbers in the same order, and one more that may be anything */
    double largest;         /* of their magnitudes */
    double left_largest;    /* of those of input 0; 0: not known */
};

/* How input 0 is taken: less an offset, so many terms at a time. */
struct nd_short_range {
    double offset;
    size_t n_terms; /* even; 0: not that way */
};
/* x: whole numbers. A sum of n_terms products fits 32 bits. */
struct nd_short_range nd_short_range_of(const struct nd_array *x, const struct nd_op_shorts *shorts);

/* a (n x inner) b (inner x m), or a and the transpose of b (m x inner). */
struct nd_short_factors {
    const struct nd_array *a;
    const struct nd_op_shorts *b;
    bool is_transposed;
    size_t n, inner, m;
};
/* c (n x m) becomes the product. False: not that way, or no memory; c is untouched. */
bool nd_short_product(const struct nd_short_factors *f, double *c);
