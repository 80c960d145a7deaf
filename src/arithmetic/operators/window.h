/* Windows that slide over the spatial axes of a tensor N x C x D1 x ...: the geometry of convolution and
 * pooling. */
#pragma once

#include "arithmetic/operators/ops_shared.h"

/* Larger axes, strides, pads and the like are refused, so that nothing overflows. */
enum { ND_WINDOW_AXES = 3, ND_WINDOW_MAX = 1 << 30 };

/* No attribute of ONNX: the number that a device pads with, in the unit of the input (variants/attributes.h).
 */
#define ND_PADDING "padding"

/* Always three axes; the leading ones are of length 1 where there are fewer. Window o of an axis reads the
 * elements o * stride + k * dilation - pad_begin for k = 0..kernel - 1, as far as they lie in 0..in - 1. */
struct nd_window {
    int n_axes; /* that the tensor really has */
    ptrdiff_t in[ND_WINDOW_AXES], out[ND_WINDOW_AXES];
    ptrdiff_t kernel[ND_WINDOW_AXES], stride[ND_WINDOW_AXES], dilation[ND_WINDOW_AXES];
    ptrdiff_t pad_begin[ND_WINDOW_AXES], pad_end[ND_WINDOW_AXES];
    ptrdiff_t n_in, n_out, n_kernel; /* products */
};

/* Reads strides, dilations, pads and auto_pad; x has one to three spatial axes; kernel has as many entries. out
 * is left 0. ND_E_EXACT_OPERATOR: more axes. ND_E_EXACT_SHAPE: lists of another length, values out of range. */
enum nd_status nd_window_read(const struct nd_op_call *call, const struct nd_shape *x, const int64_t *kernel,
                              struct nd_window *out, struct nd_error *err);

/* The output of a forward window: out and, for auto_pad, the pads. */
enum nd_status nd_window_fit(const struct nd_op_call *call, struct nd_window *window, struct nd_error *err);

/* Fills the products. */
void nd_window_close(struct nd_window *window);

/* Whether each window is one element, in order: each plane is a row of the matrix of columns already. */
bool nd_window_is_pointwise(const struct nd_window *window);

/* Of which windows tap k of an axis lies inside: *from..*to - 1, possibly none. */
void nd_window_range(const struct nd_window *window, int axis, ptrdiff_t k, ptrdiff_t *from, ptrdiff_t *to);

/* n x channels x out. */
struct nd_shape nd_window_shape(const struct nd_window *window, int64_t n, int64_t channels);
