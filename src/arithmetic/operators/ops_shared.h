/* What the families of operators share, and the entry point of each. */
#ifndef ND_OPERATORS_OPS_SHARED_H
#define ND_OPERATORS_OPS_SHARED_H

#include "arithmetic/operators/ops.h"
#include "arithmetic/operators/walk.h"

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

/* Element i of the indices as a place on an axis of that size: counted from the end if negative. */
enum nd_status nd_op_place(const struct nd_op_call *call, const struct nd_array *indices, size_t i, int64_t dim,
                           ptrdiff_t *out, struct nd_error *err);

/* The least and the greatest quantised value of an integer type. */
void nd_op_qvalue_range(enum nd_dtype dtype, double *low, double *high);

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

/* GatherElements, ScatterElements: a walk over the indices (inputs[1]), at[0], and beside it over the data
 * (inputs[0]), at[1], where the axis itself is not counted. The ranks are equal. ND_E_EXACT_SHAPE: indices that
 * are larger than the data. */
struct nd_walk;
enum nd_status nd_op_walk_indices(const struct nd_op_call *call, int axis, struct nd_walk *walk,
                                  ptrdiff_t data_strides[ND_MAX_RANK], struct nd_error *err);

/* The shape that two tensors are repeated to; *shape is one of the two and becomes the result. */
enum nd_status nd_op_broadcast(const struct nd_op_call *call, const struct nd_shape *other,
                               struct nd_shape *shape, struct nd_error *err);
/* The stride of an operand along an axis of the shape that it is repeated to. */
ptrdiff_t nd_broadcast_stride(const struct nd_array *array, const struct nd_shape *shape, int axis);

/* Integer results as integer types keep them: without a fraction, modulo 2^bits. Floats stay.
 * ND_E_EXACT_OPERATOR where a double cannot tell the integer (over 2^53, or not finite). */
enum nd_status nd_op_wrap(const struct nd_op_call *call, struct nd_array *array, struct nd_error *err);

/* c = a b for matrices n x inner and inner x m that lie in C order; each element is added up in order of inner.
 */
void nd_matrix_product(const double *a, const double *b, double *c, size_t n, size_t inner, size_t m);

/* A stored tensor. ND_E_EXACT_OPERATOR: a type that is not handled, or external data. ND_E_EXACT_SHAPE: other
 * data than its shape says. */
enum nd_status nd_op_tensor(const Onnx__TensorProto *tensor, struct nd_array *out, struct nd_error *err);

typedef enum nd_status nd_op_function(const struct nd_op_call *call, struct nd_error *err);

nd_op_function nd_op_unary, nd_op_clip, nd_op_gelu, nd_op_bias_gelu; /* ops_unary.c */
nd_op_function nd_op_binary, nd_op_variadic, nd_op_where;            /* ops_binary.c */
nd_op_function nd_op_quantize, nd_op_dequantize;                     /* ops_quant.c */
nd_op_function nd_op_matmul, nd_op_gemm;                             /* ops_matmul.c */
nd_op_function nd_op_conv, nd_op_conv_transpose;                     /* ops_conv.c */
nd_op_function nd_op_pool, nd_op_global_pool;                        /* ops_pool.c */
nd_op_function nd_op_reduce;                                         /* ops_reduce.c */
nd_op_function nd_op_softmax, nd_op_arg, nd_op_cumsum, nd_op_topk;   /* ops_axis.c */
nd_op_function nd_op_layer_norm, nd_op_skip_norm, nd_op_group_norm, nd_op_batch_norm, nd_op_lp_norm,
    nd_op_lrn; /* ops_norm.c */
nd_op_function nd_op_reshape, nd_op_flatten, nd_op_squeeze, nd_op_unsqueeze, nd_op_identity, nd_op_dropout,
    nd_op_shape, nd_op_size; /* ops_shape.c */
nd_op_function nd_op_transpose, nd_op_expand, nd_op_tile, nd_op_concat, nd_op_split, nd_op_slice, nd_op_pad,
    nd_op_depth_to_space, nd_op_space_to_depth, nd_op_trilu;                        /* ops_move.c */
nd_op_function nd_op_gather, nd_op_gather_elements, nd_op_gather_nd, nd_op_one_hot; /* ops_gather.c */
nd_op_function nd_op_constant, nd_op_constant_of_shape, nd_op_range, nd_op_cast;    /* ops_make.c */
nd_op_function nd_op_resize;                                                        /* ops_resize.c */
nd_op_function nd_op_einsum;                                                        /* ops_einsum.c */
nd_op_function nd_op_recurrent;                                                     /* ops_recurrent.c */
nd_op_function nd_op_scatter_elements, nd_op_scatter_nd;                            /* ops_scatter.c */
nd_op_function nd_op_grid_sample;                                                   /* ops_grid.c */
nd_op_function nd_op_integer_conv, nd_op_integer_matmul;                            /* ops_integer.c */

#endif
