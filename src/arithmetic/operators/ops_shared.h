/* What the families of operators share, and the list of each. */
#pragma once

#include "arithmetic/operators/ops.h"

/* Failing. nd_op_run puts the node and the operator in front of the message. */
enum nd_status nd_op_unsupported(const struct nd_op_call *call, struct nd_error *err, const char *fmt, ...)
    ND_PRINTF(3, 4);
enum nd_status nd_op_misfit(const struct nd_op_call *call, struct nd_error *err, const char *fmt, ...)
    ND_PRINTF(3, 4);

/* Input or output i, NULL when it is omitted. */
const struct nd_array *nd_op_in(const struct nd_op_call *call, size_t i);
struct nd_array *nd_op_out(const struct nd_op_call *call, size_t i);
bool nd_op_is(const struct nd_op_call *call, const char *op_type);

/* An output of that type and shape; the elements are 0. */
enum nd_status nd_op_make(const struct nd_op_call *call, size_t i, enum nd_dtype dtype,
                          const struct nd_shape *shape, struct nd_error *err);
/* The same with anything in it, for who writes every element. */
enum nd_status nd_op_make_room(const struct nd_op_call *call, size_t i, enum nd_dtype dtype,
                               const struct nd_shape *shape, struct nd_error *err);

/* An axis counted from the end counted from the front: 0..rank - 1. */
enum nd_status nd_op_axis(const struct nd_op_call *call, int64_t axis, int rank, int *out,
                          struct nd_error *err);

/* Element i as a whole number, clipped to the type. */
int64_t nd_op_whole(const struct nd_array *array, size_t i);

/* A short list of whole numbers: axes, pads, sizes. */
struct nd_op_list {
    bool is_given; /* an empty list may have been given, too */
    size_t n;
    int64_t v[2 * ND_MAX_RANK];
};
/* From input i, or from the attribute where there is no such input (either may be impossible: SIZE_MAX, NULL).
 */
enum nd_status nd_op_list(const struct nd_op_call *call, size_t i, const char *name, struct nd_op_list *out,
                          struct nd_error *err);
/* Axes of a tensor of that rank as flags. ND_E_EXACT_SHAPE: out of range, or given twice. */
enum nd_status nd_op_axes(const struct nd_op_call *call, const struct nd_op_list *list, int rank,
                          bool marks[ND_MAX_RANK], struct nd_error *err);

/* The product of dimensions from..to - 1. */
size_t nd_dims_product(const struct nd_shape *shape, int from, int to);

/* The shape that two tensors are repeated to; *shape is one of the two and becomes the result. */
enum nd_status nd_op_broadcast(const struct nd_op_call *call, const struct nd_shape *other,
                               struct nd_shape *shape, struct nd_error *err);
/* The stride of an operand along an axis of the shape that it is repeated to. */
ptrdiff_t nd_broadcast_stride(const struct nd_array *array, const struct nd_shape *shape, int axis);

/* Integer results as integer types keep them: without a fraction, modulo 2^bits. Floats stay.
 * ND_E_EXACT_OPERATOR where a double cannot tell the integer (over 2^53, or not finite). */
enum nd_status nd_op_wrap(const struct nd_op_call *call, struct nd_array *array, struct nd_error *err);

/* A stored tensor. ND_E_EXACT_OPERATOR: a type that is not handled, or external data. ND_E_EXACT_SHAPE: other
 * data than its shape says. */
enum nd_status nd_op_tensor(const Onnx__TensorProto *tensor, struct nd_array *out, struct nd_error *err);

/* Going through up to three tensors at once, each with strides of its own (0 repeats, negative runs backwards):
 * the loop of everything that broadcasts, permutes, slices or reduces.
 *
 *     struct nd_walk walk = {0};
 *     nd_walk_axis(&walk, dim, strides...);       outermost axis first
 *     for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
 *         for (ptrdiff_t i = 0; i < walk.n; i++)
 *             ... x[walk.at[0] + i * walk.step[0]] ...
 *
 * Elements come in C order of the axes. Axes that follow each other in memory are merged, so that rows are
 * long. */
enum { ND_WALK_RANK = 2 * ND_MAX_RANK, ND_WALK_OPERANDS = 3 };

struct nd_walk {
    ptrdiff_t at[ND_WALK_OPERANDS];   /* where the row begins, in elements; may be set before nd_walk_begin */
    ptrdiff_t step[ND_WALK_OPERANDS]; /* from one element of the row to the next */
    ptrdiff_t n;                      /* elements of the row */
    int rank;
    bool is_empty;
    ptrdiff_t dims[ND_WALK_RANK];
    ptrdiff_t strides[ND_WALK_OPERANDS][ND_WALK_RANK];
    ptrdiff_t index[ND_WALK_RANK];
};

/* Adds an axis inside of those there are; at most ND_WALK_RANK. */
void nd_walk_axis(struct nd_walk *walk, int64_t dim, ptrdiff_t stride0, ptrdiff_t stride1, ptrdiff_t stride2);

/* The first row; false when there is no element at all. */
bool nd_walk_begin(struct nd_walk *walk);
bool nd_walk_next(struct nd_walk *walk);

/* The strides of a tensor in C order, in elements. */
void nd_strides(const struct nd_shape *shape, ptrdiff_t strides[ND_MAX_RANK]);

/* ---- the families ---- */

/* The operators of each: rows, behind the last of which comes one without a function. */
/* The domain of the operators that ONNX Runtime adds. */
#define MS "com.microsoft"

extern const struct nd_op nd_ops_elements[], nd_ops_quant[], nd_ops_convolutions[], nd_ops_products[],
    nd_ops_pools[], nd_ops_axes[], nd_ops_moves[], nd_ops_gathers[], nd_ops_samplers[], nd_ops_recurrent[],
    nd_ops_makers[];
/* NULL: it is not among them. */
const struct nd_op *nd_op_in_list(const struct nd_op *list, const char *domain, const char *op_type);

typedef enum nd_status nd_op_function(const struct nd_op_call *call, struct nd_error *err);
nd_op_function nd_op_conv, nd_op_matmul; /* of doubles: ops_quant.c has those of quantised values */
