/* Convolution of one plane each (depthwise): a product of matrices would have one row. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/kernels/convolutions.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"

enum { MAX_TAPS = 128, SLACK = 64 /* that kernels read behind the last element */ };

/* How many elements of the padded axis windows read, and how many of each phase of the stride. */
static ptrdiff_t length_of(const struct nd_window *w, int axis)
{
    return (w->out[axis] - 1) * w->stride[axis] + (w->kernel[axis] - 1) * w->dilation[axis] + 1;
}

static ptrdiff_t part_of(const struct nd_window *w, int axis)
{
    return (length_of(w, axis) + w->stride[axis] - 1) / w->stride[axis];
}

/* Where element (y, x) of the padded plane lies: elements that windows next to each other read with the same
 * tap lie next to each other. */
static ptrdiff_t place_of(const struct nd_conv_planes *planes, ptrdiff_t y, ptrdiff_t x)
{
    const struct nd_window *w = planes->w;
    if (w->stride[1] == 1 && w->stride[2] == 1) /* divisions cost more than a short row */
        return y * (ptrdiff_t)planes->in_row + x;
    ptrdiff_t phase = y % w->stride[1] * w->stride[2] + x % w->stride[2];
    return planes->starts[phase] + y / w->stride[1] * (ptrdiff_t)planes->in_row + x / w->stride[2];
}

bool nd_conv_planes_begin(struct nd_conv_planes *planes, const struct nd_window *w)
{
    *planes = (struct nd_conv_planes){.w = w};
    if (w->in[0] != 1 || w->kernel[0] != 1 || w->out[0] != 1 || w->pad_begin[0] != 0 || w->n_kernel < 2 ||
        w->n_kernel > MAX_TAPS || w->pad_begin[1] < 0 || w->pad_begin[2] < 0 || w->stride[1] > w->kernel[1] ||
        w->stride[2] > w->kernel[2])
        return false;
    size_t n_phases = (size_t)(w->stride[1] * w->stride[2]);
    size_t part = (size_t)(part_of(w, 1) * part_of(w, 2));
    planes->in_row = (size_t)part_of(w, 2);
    planes->room = nd_calloc(n_phases * part + SLACK, sizeof *planes->room);
    planes->offsets = nd_calloc((size_t)w->n_kernel, sizeof *planes->offsets);
    planes->starts = nd_calloc(n_phases, sizeof *planes->starts);
    if (planes->room == NULL || planes->offsets == NULL || planes->starts == NULL) {
        nd_conv_planes_end(planes);
        return false;
    }
    for (size_t i = 0; i < n_phases; i++)
        planes->starts[i] = (ptrdiff_t)(i * part);
    for (ptrdiff_t t = 0; t < w->n_kernel; t++)
        planes->offsets[t] =
            place_of(planes, t / w->kernel[2] * w->dilation[1], t % w->kernel[2] * w->dilation[2]);
    return true;
}

void nd_conv_planes_end(struct nd_conv_planes *planes)
{
    free(planes->room);
    free(planes->float_room);
    free(planes->offsets);
    free(planes->starts);
    *planes = (struct nd_conv_planes){0};
}

static void copy_plane(const struct nd_conv_planes *planes, const double *in)
{
    const struct nd_window *w = planes->w;
    ptrdiff_t n_rows = length_of(w, 1) - w->pad_begin[1], n = length_of(w, 2) - w->pad_begin[2];
    n_rows = n_rows < w->in[1] ? n_rows : w->in[1];
    n = n < w->in[2] ? n : w->in[2];
    for (ptrdiff_t y = 0; y < n_rows; y++, in += w->in[2])
        for (ptrdiff_t phase = 0; phase < w->stride[2] && phase < n; phase++) {
            double *to = planes->room + place_of(planes, y + w->pad_begin[1], phase + w->pad_begin[2]);
            if (w->stride[2] == 1)
                memcpy(to, in, (size_t)n * sizeof *in);
            else
                for (ptrdiff_t x = phase; x < n; x += w->stride[2])
                    *to++ = in[x];
        }
}

void nd_conv_planes_run(const struct nd_conv_planes *planes, const struct nd_conv_group *g)
{
    const struct nd_window *w = planes->w;
    copy_plane(planes, g->in);
    for (size_t c = 0; c < g->n_out; c++) {
        const struct nd_plane_taps taps = {.in = planes->room,
                                           .weights = g->weight + c * (size_t)w->n_kernel,
                                           .offsets = planes->offsets,
                                           .n_taps = (size_t)w->n_kernel,
                                           .n_rows = (size_t)w->out[1],
                                           .n_columns = (size_t)w->out[2],
                                           .in_row = planes->in_row,
                                           .out = g->out + c * (size_t)w->n_out};
        nd_gemm_kernels()->add_plane(&taps);
    }
}

static void copy_bytes(const struct nd_conv_planes *planes, const uint8_t *in, int zero)
{
    const struct nd_window *w = planes->w;
    ptrdiff_t n_rows = length_of(w, 1) - w->pad_begin[1], n = length_of(w, 2) - w->pad_begin[2];
    n_rows = n_rows < w->in[1] ? n_rows : w->in[1];
    n = n < w->in[2] ? n : w->in[2];
    for (ptrdiff_t y = 0; y < n_rows; y++, in += w->in[2])
        for (ptrdiff_t phase = 0; phase < w->stride[2] && phase < n; phase++) {
            float *to = planes->float_room + place_of(planes, y + w->pad_begin[1], phase + w->pad_begin[2]);
            if (w->stride[2] == 1)
                nd_gemm_kernels()->to_floats(in, zero, (size_t)n, to);
            else
                for (ptrdiff_t x = phase; x < n; x += w->stride[2])
                    *to++ = (float)(in[x] - zero);
        }
}

bool nd_conv_planes_each(struct nd_conv_planes *planes, const struct nd_conv_group *g, const float *weights,
                         const struct nd_byte_sums *bytes)
{
    const struct nd_window *w = planes->w;
    size_t n_room = (size_t)(w->stride[1] * w->stride[2] * part_of(w, 1) * part_of(w, 2)) + SLACK;
    ND_FREED double *sums = nd_tensor_room((size_t)w->n_out * sizeof *sums);
    if (planes->float_room == NULL)
        planes->float_room = nd_calloc(n_room, sizeof *planes->float_room);
    if (planes->float_room != NULL && sums != NULL)
        copy_bytes(planes, bytes->in, bytes->zero);
    for (size_t c = 0; c < g->n_out && planes->float_room != NULL && sums != NULL; c++) {
        const struct nd_float_taps taps = {.in = planes->float_room,
                                           .weights = weights + c * (size_t)w->n_kernel,
                                           .offsets = planes->offsets,
                                           .n_taps = (size_t)w->n_kernel,
                                           .n_rows = (size_t)w->out[1],
                                           .n_columns = (size_t)w->out[2],
                                           .in_row = planes->in_row,
                                           .out = sums};
        const struct nd_sums_block made = {
            .sums = sums, .n_channels = 1, .n = (size_t)w->n_out, .row = (size_t)w->n_out};
        nd_gemm_kernels()->add_float_plane(&taps);
        bytes->take(bytes->context, &made);
    }
    return planes->float_room != NULL && sums != NULL;
}
