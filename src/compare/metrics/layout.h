/* One side of a pair: how its elements are stored and what they mean. docs/reference/metrics.md#sums and
 * #mixed-types. */
#pragma once

#include "compare/metrics/kernels/kernels.h"
#include "npudiff/core/tensor.h"

/* Values of a block are loaded as `x`: quantised value - zero point, or the float itself; `unit * x` is the
 * real value. With a scale per channel, and where real values were asked for, x is the real value already and
 * unit is 1. */
struct nd_layout {
    enum nd_dtype dtype;
    enum nd_elem_kind kind;
    bool is_float;
    bool is_real;          /* x is the real value */
    struct nd_shape shape; /* of one sample */
    size_t n_elems;        /* of one sample */
    size_t elem_bytes, sample_bytes;
    size_t n_channels;         /* 0: plain numbers; 1: per tensor; else dims[axis] */
    size_t inner;              /* elements from one channel to the next */
    const float *scale;        /* [n_channels], borrowed */
    const int64_t *zero_point; /* [n_channels], borrowed */
    double zero;               /* taken off by the kernel */
    double unit;
    double low, high; /* the ends of the range of the type, as the kernel loads them with zero 0 */
    double tiny;      /* |x| below it are zeros and, of floats, subnormals */
};

/* Fills layout for a tensor. ND_ERR_FORMAT: unknown dtype or shape, or quantisation parameters that do not fit
 * it. The tensor's quantisation arrays stay borrowed. */
enum nd_status nd_layout_make(const struct nd_tensor *tensor, struct nd_layout *layout, struct nd_error *err);

/* The same tensor with real values from the start, for pairs of mixed types. */
void nd_layout_make_real(struct nd_layout *layout);

/* The x of n <= ND_BLOCK elements at flat index `first`, stored at bytes. */
void nd_layout_load(const struct nd_layout *layout, const struct nd_kernels *kernels,
                    const unsigned char *bytes, size_t first, size_t n, double *x);

/* Whether x is a quantised value less its zero point such that differences, and their sums of a block, are
 * whole numbers below 2^53, and so exact. */
bool nd_layout_is_narrow(const struct nd_layout *layout);

/* Whether integer i at a is less than the one at b. */
bool nd_layout_is_less(const struct nd_layout *layout, const unsigned char *a, const unsigned char *b,
                       size_t i);

/* The number that is stored at bytes: the quantised value, or the float. */
double nd_layout_stored(const struct nd_layout *layout, const unsigned char *bytes);

/* Coordinates of a flat index. coordinates has ND_MAX_RANK entries. */
void nd_layout_coordinates(const struct nd_shape *shape, size_t index, int64_t *coordinates);

/* ---- float types: their ranges, and rounding a double to one of them: docs/reference/metrics.md#ulp ---- */

struct nd_float_format {
    enum nd_dtype dtype;
    int exponent_bits;
    int fraction_bits;
    double max; /* the largest finite value */
};

/* The format of a float dtype (nd_dtype_is_float), NULL for others. Static storage. */
const struct nd_float_format *nd_float_format(enum nd_dtype dtype);

double nd_float_max(const struct nd_float_format *format);

/* The least positive normal value. */
double nd_float_min_normal(const struct nd_float_format *format);

/* How many floats of the format the two values are apart once they are rounded to it; neither may be NaN. */
uint64_t nd_float_distance_in(const struct nd_float_format *format, double a, double b);

/* ---- tensors whose axes were exchanged. docs/reference/metrics.md#structure ---- */

/* Permutations of the dimensions longer than 1 are numbered from 0 in lexicographic order, 0 being the
 * identity. The number of the first one under which `test` holds the elements of `ref` (test's dimension i runs
 * over ref's dimension p[i]), 0 when there is none or more than 6 dimensions are longer than 1. Both hold a
 * tensor of `shape`, not empty. */
uint64_t nd_permutation_find(const struct nd_shape *shape, size_t elem_bytes, const unsigned char *ref,
                             const unsigned char *test);

/* The permutation of that number, for all dimensions; the identity when there is none of that number. */
void nd_permutation_describe(const struct nd_shape *shape, uint64_t number, int *permutation);
