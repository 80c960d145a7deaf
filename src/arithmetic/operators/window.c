/* The geometry of windows that slide over a tensor, as convolution and pooling have them: ONNX names the
 * attributes. */
#include "arithmetic/operators/window.h"

#include <string.h>

/* A list that is absent is 1 everywhere, and never less; that of pads is 0, and may be negative. */
static enum nd_status read_list(const struct nd_op_call *call, const char *name, size_t n, int64_t *out,
                                struct nd_error *err)
{
    bool is_pads = strcmp(name, "pads") == 0;
    int64_t least = is_pads ? -ND_WINDOW_MAX : 1;
    const int64_t *values = NULL;
    size_t given = nd_op_ints(call, name, &values);
    if (given != 0 && given != n)
        return nd_op_misfit(call, err, "'%s' has %zu numbers, not %zu", name, given, n);
    for (size_t i = 0; i < n; i++) {
        out[i] = given != 0 ? values[i] : !is_pads;
        if (out[i] < least || out[i] > ND_WINDOW_MAX)
            return nd_op_misfit(call, err, "'%s' has the number %lld", name, (long long)out[i]);
    }
    return ND_OK;
}

enum nd_status nd_window_read(const struct nd_op_call *call, const struct nd_shape *x, const int64_t *kernel,
                              struct nd_window *out, struct nd_error *err)
{
    int n = x->rank - 2;
    int64_t strides[ND_WINDOW_AXES], dilations[ND_WINDOW_AXES], pads[2 * ND_WINDOW_AXES];
    if (n < 1)
        return nd_op_misfit(call, err, "a tensor of %d dimensions", x->rank);
    if (n > ND_WINDOW_AXES)
        return nd_op_unsupported(call, err, "%d spatial axes", n);
    ND_TRY(read_list(call, "strides", (size_t)n, strides, err));
    ND_TRY(read_list(call, "dilations", (size_t)n, dilations, err));
    ND_TRY(read_list(call, "pads", 2 * (size_t)n, pads, err));
    struct nd_window made = {.n_axes = n};
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        int own = axis - (ND_WINDOW_AXES - n);
        made.in[axis] = own < 0 ? 1 : (ptrdiff_t)x->dims[own + 2];
        made.kernel[axis] = own < 0 ? 1 : (ptrdiff_t)kernel[own];
        made.stride[axis] = own < 0 ? 1 : (ptrdiff_t)strides[own];
        made.dilation[axis] = own < 0 ? 1 : (ptrdiff_t)dilations[own];
        made.pad_begin[axis] = own < 0 ? 0 : (ptrdiff_t)pads[own];
        made.pad_end[axis] = own < 0 ? 0 : (ptrdiff_t)pads[own + n];
        if (made.kernel[axis] < 1 || made.kernel[axis] > ND_WINDOW_MAX || made.in[axis] > ND_WINDOW_MAX)
            return nd_op_misfit(call, err, "a kernel of %td on an axis of %td", made.kernel[axis],
                                made.in[axis]);
    }
    *out = made;
    return ND_OK;
}

static ptrdiff_t divide_up(ptrdiff_t a, ptrdiff_t b)
{
    return a > 0 ? (a + b - 1) / b : -(-a / b);
}

/* SAME: as many windows as strides cover the input, padded evenly; the odd one goes to the end (UPPER) or the
 * beginning. */
static void fit_same(struct nd_window *window, int axis, bool is_upper)
{
    ptrdiff_t reach = (window->kernel[axis] - 1) * window->dilation[axis] + 1;
    window->out[axis] = divide_up(window->in[axis], window->stride[axis]);
    ptrdiff_t total = (window->out[axis] - 1) * window->stride[axis] + reach - window->in[axis];
    if (total < 0)
        total = 0;
    window->pad_begin[axis] = is_upper ? total / 2 : total - total / 2;
    window->pad_end[axis] = total - window->pad_begin[axis];
}

static void fit_padded(struct nd_window *window, int axis, bool ceils)
{
    ptrdiff_t reach = (window->kernel[axis] - 1) * window->dilation[axis] + 1, stride = window->stride[axis];
    ptrdiff_t room = window->in[axis] + window->pad_begin[axis] + window->pad_end[axis] - reach;
    window->out[axis] = room < 0 ? 0 : (ceils ? divide_up(room, stride) : room / stride) + 1;
    /* A window that would begin in the padding at the end is none. */
    if (ceils && window->out[axis] > 0 &&
        (window->out[axis] - 1) * stride >= window->in[axis] + window->pad_begin[axis])
        window->out[axis]--;
}

enum nd_status nd_window_fit(const struct nd_op_call *call, struct nd_window *window, struct nd_error *err)
{
    char mode[16];
    nd_op_text(call, "auto_pad", mode, sizeof mode);
    bool is_valid = strcmp(mode, "VALID") == 0, is_upper = strcmp(mode, "SAME_UPPER") == 0;
    bool is_same = is_upper || strcmp(mode, "SAME_LOWER") == 0;
    if (!is_valid && !is_same && mode[0] != '\0' && strcmp(mode, "NOTSET") != 0)
        return nd_op_unsupported(call, err, "auto_pad '%s'", mode);
    bool ceils = nd_op_i(call, "ceil_mode", 0) != 0;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        if (is_valid)
            window->pad_begin[axis] = window->pad_end[axis] = 0;
        if (is_same)
            fit_same(window, axis, is_upper);
        else
            fit_padded(window, axis, ceils);
        if (window->out[axis] <= 0)
            return nd_op_misfit(call, err, "a kernel of %td on an axis of %td", window->kernel[axis],
                                window->in[axis]);
    }
    nd_window_close(window);
    return ND_OK;
}

void nd_window_close(struct nd_window *window)
{
    window->n_in = window->n_out = window->n_kernel = 1;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        window->n_in *= window->in[axis];
        window->n_out *= window->out[axis];
        window->n_kernel *= window->kernel[axis];
    }
}

bool nd_window_is_pointwise(const struct nd_window *w)
{
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        if (w->kernel[axis] != 1 || w->stride[axis] != 1 || w->pad_begin[axis] != 0 ||
            w->in[axis] != w->out[axis])
            return false;
    return true;
}

void nd_window_range(const struct nd_window *window, int axis, ptrdiff_t k, ptrdiff_t *from, ptrdiff_t *to)
{
    ptrdiff_t offset = window->pad_begin[axis] - k * window->dilation[axis];
    ptrdiff_t stride = window->stride[axis];
    ptrdiff_t first = divide_up(offset, stride), end = divide_up(window->in[axis] + offset, stride);
    *from = first < 0 ? 0 : first;
    *to = end > window->out[axis] ? window->out[axis] : end;
}

struct nd_shape nd_window_shape(const struct nd_window *window, int64_t n, int64_t channels)
{
    struct nd_shape shape = {.rank = 2 + window->n_axes, .dims = {n, channels}};
    for (int i = 0; i < window->n_axes; i++)
        shape.dims[2 + i] = window->out[ND_WINDOW_AXES - window->n_axes + i];
    return shape;
}
