/* Shapes of what cuts, pads and scales by constants. */
#include <math.h>
#include <string.h>

#include "model/graph/infer_rules.h"

/* What arguments of one number per axis are for: axis[0 .. n). */
struct axes {
    int64_t axis[ND_MAX_RANK];
    int n;
};

/* n axes of `rank`: the constant ones of attribute or input, else the first n. False when they are not known,
 * not n, or not each another axis. */
static bool read_axes(const struct nd_infer_view *view, size_t input, int n, int rank, struct axes *axes)
{
    unsigned seen = 0;
    bool is_given = nd_onnx_attribute(view->proto, "axes") != NULL || nd_infer_has_arg(view, input);
    axes->n = is_given ? nd_infer_argument(view, "axes", input, axes->axis, ND_MAX_RANK) : n;
    if (axes->n != n || n < 0 || n > rank)
        return false;
    for (int i = 0; i < n; i++) {
        int axis = nd_infer_axis(is_given ? axes->axis[i] : i, rank);
        if (axis < 0 || (seen >> axis & 1) != 0)
            return false;
        seen |= 1u << axis;
        axes->axis[i] = axis;
    }
    return true;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* How many of n places lie in start:end:step, negative places counting from the end. step is not 0. */
static int64_t slice_size(int64_t n, int64_t start, int64_t end, int64_t step)
{
    bool is_back = step < 0;
    start = clamp(start + (start < 0 ? n : 0), 0, is_back ? n - 1 : n);
    end = clamp(end + (end < 0 ? n : 0), is_back ? -1 : 0, is_back ? n - 1 : n);
    int64_t span = is_back ? start - end : end - start;
    if (span <= 0 || n == 0)
        return 0;
    int64_t more = (span - 1) / step; /* -step may not exist, and this does */
    return 1 + (is_back ? -more : more);
}

static struct nd_shape slice(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int64_t starts[ND_MAX_RANK], ends[ND_MAX_RANK], steps[ND_MAX_RANK];
    struct axes axes;
    int n = nd_infer_argument(view, "starts", 1, starts, ND_MAX_RANK);
    if (out.rank < 0 || nd_infer_argument(view, "ends", 2, ends, ND_MAX_RANK) != n ||
        !read_axes(view, 3, n, out.rank, &axes))
        return nd_infer_unknown.shape;
    bool has_steps = nd_infer_has_arg(view, 4);
    if (has_steps && nd_infer_integers(view, 4, steps, ND_MAX_RANK) != n)
        return nd_infer_unknown.shape;
    for (int i = 0; i < n; i++) {
        int64_t step = has_steps ? steps[i] : 1, *dim = &out.dims[axes.axis[i]];
        /* An end that is the greatest number means the first place to ONNX Runtime when it goes backwards. */
        if (step == 0 || (step < 0 && (ends[i] == INT64_MAX || ends[i] == INT32_MAX)))
            return nd_infer_unknown.shape;
        *dim = slice_size(*dim, starts[i], ends[i], step);
    }
    return out;
}

/* Part i of n where no sizes are given: alike, or, where the model says how many, the last one smaller. -1 when
 * that does not come out. */
static int64_t even_part(const struct nd_infer_view *view, int64_t whole, int64_t n)
{
    const Onnx__AttributeProto *wanted = nd_onnx_attribute(view->proto, "num_outputs");
    int64_t part = whole / n + (whole % n != 0);
    if (wanted != NULL && wanted->i != n)
        return -1;
    if (whole % n == 0)
        return part;
    if (wanted == NULL || part > (whole - 1) / (n - 1)) /* (n - 1) parts leave nothing for the last */
        return -1;
    return (int64_t)view->output == n - 1 ? whole - part * (n - 1) : part;
}

static struct nd_shape split(const struct nd_infer_view *view)
{
    enum { MAX_PARTS = 256 };
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int64_t sizes[MAX_PARTS], sum = 0;
    int axis = nd_infer_axis(nd_onnx_attribute_i(view->proto, "axis", 0), out.rank);
    size_t n_parts = view->proto->n_output;
    if (axis < 0 || n_parts > MAX_PARTS)
        return nd_infer_unknown.shape;
    int64_t *dim = &out.dims[axis];
    int n = nd_infer_argument(view, "split", 1, sizes, MAX_PARTS);
    if (n == 0) {
        *dim = even_part(view, *dim, (int64_t)n_parts);
        return *dim < 0 ? nd_infer_unknown.shape : out;
    }
    if (n < 0 || (size_t)n != n_parts)
        return nd_infer_unknown.shape;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || sizes[i] > *dim - sum)
            return nd_infer_unknown.shape;
        sum += sizes[i];
    }
    if (sum != *dim)
        return nd_infer_unknown.shape;
    *dim = sizes[view->output];
    return out;
}

static struct nd_shape pad(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int64_t pads[2 * ND_MAX_RANK];
    struct axes axes;
    int n = nd_infer_argument(view, "pads", 1, pads, 2 * ND_MAX_RANK);
    bool has_axes = nd_infer_has_arg(view, 3);
    if (out.rank < 0 || n < 0 || n % 2 != 0 || (!has_axes && n != 2 * out.rank) ||
        !read_axes(view, 3, n / 2, out.rank, &axes))
        return nd_infer_unknown.shape;
    for (int i = 0; i < axes.n; i++) {
        int64_t before = pads[i], after = pads[i + axes.n], *dim = &out.dims[axes.axis[i]];
        const int64_t limit = ND_INFER_MAX_DIM;
        if (*dim > limit || before < -limit || before > limit || after < -limit || after > limit)
            return nd_infer_unknown.shape;
        *dim += before + after; /* below 0: it is cut off */
        if (*dim < 0)
            return nd_infer_unknown.shape;
    }
    return out;
}

static bool is_text(const struct nd_infer_view *view, const char *attribute, const char *text)
{
    const Onnx__AttributeProto *given = nd_onnx_attribute(view->proto, attribute);
    return given != NULL && given->s.len == strlen(text) && memcmp(given->s.data, text, given->s.len) == 0;
}

/* The product is a float's, as in ONNX Runtime: 10 by 0.7 is 7, though the float next to 0.7 is below it. */
static struct nd_shape resize_by_scales(const struct nd_infer_view *view, size_t input)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    float scales[ND_MAX_RANK];
    struct axes axes;
    int n = nd_infer_floats(view, input, scales, ND_MAX_RANK);
    bool is_whole = nd_onnx_attribute(view->proto, "axes") != NULL || n == out.rank;
    /* With a region of interest the size is a matter of which runtime is asked. */
    if (out.rank < 0 || !is_whole || !read_axes(view, SIZE_MAX, n, out.rank, &axes) ||
        is_text(view, "coordinate_transformation_mode", "tf_crop_and_resize"))
        return nd_infer_unknown.shape;
    for (int i = 0; i < n; i++) {
        int64_t *dim = &out.dims[axes.axis[i]];
        float size = scales[i] * (float)*dim;
        if (!(scales[i] > 0) || !(size <= (float)ND_INFER_MAX_DIM))
            return nd_infer_unknown.shape;
        *dim = (int64_t)floorf(size);
    }
    return out;
}

static struct nd_shape resize_to_sizes(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int64_t sizes[ND_MAX_RANK];
    struct axes axes;
    int n = nd_infer_integers(view, 3, sizes, ND_MAX_RANK);
    bool is_whole = nd_onnx_attribute(view->proto, "axes") != NULL || n == out.rank;
    bool is_stretched = nd_onnx_attribute(view->proto, "keep_aspect_ratio_policy") == NULL ||
                        is_text(view, "keep_aspect_ratio_policy", "stretch");
    if (out.rank < 0 || !is_whole || !is_stretched || !read_axes(view, SIZE_MAX, n, out.rank, &axes))
        return nd_infer_unknown.shape;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0)
            return nd_infer_unknown.shape;
        out.dims[axes.axis[i]] = sizes[i];
    }
    return out;
}

/* Inputs: x, scales (operator set 10); or x, region, scales, sizes, one of the last two left out or empty. */
static struct nd_shape resize(const struct nd_infer_view *view)
{
    float scale;
    size_t at = view->proto->n_input == 2 ? 1 : 2;
    bool is_empty = nd_infer_has_arg(view, at) && nd_infer_floats(view, at, &scale, 0) == 0;
    if (nd_infer_has_arg(view, at) && !is_empty)
        return nd_infer_has_arg(view, 3) ? nd_infer_unknown.shape : resize_by_scales(view, at);
    return resize_to_sizes(view);
}

const struct nd_infer_rule nd_infer_size_rules[] = {
    {"Pad", pad}, {"Resize", resize}, {"Slice", slice}, {"Split", split}, {NULL, NULL},
};
