/* Values between pixels: Resize and Upsample, one axis after the other; GridSample, at places that a second
 * tensor names. */
#include <math.h>
#include <string.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"

/* ---- Resize and Upsample ---- */

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };
enum nearest_mode { NEAREST_PREFER_FLOOR, NEAREST_PREFER_CEIL, NEAREST_FLOOR, NEAREST_CEIL };
enum coordinates {
    HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    TF_HALF_PIXEL_FOR_NN,
    TF_CROP_AND_RESIZE,
};

struct resize {
    enum resize_mode mode;
    enum nearest_mode nearest;
    enum coordinates coordinates;
    double cubic_a;
    double extrapolation;
    bool excludes_outside;
};

/* What becomes of one axis. */
struct resized_axis {
    int64_t in, out;
    double scale;
    double from, to; /* region of interest, in parts of the axis */
};

enum { MAX_TAPS = 4 };

/* The elements that one element of the output is made of; none: the extrapolation value. */
struct taps {
    int n;
    ptrdiff_t at[MAX_TAPS];
    double weight[MAX_TAPS];
};

/* The nearest element is chosen by a coordinate in float32, as ONNX Runtime has it: in double another one would
 * be the nearest where the coordinate is whole but for an error of rounding. Weights are in double. */
static double step(const struct resize *resize, double x)
{
    return resize->mode == RESIZE_NEAREST ? (double)(float)x : x;
}

/* (i + 1/2) / scale. */
static double middle(const struct resize *resize, const struct resized_axis *axis, double i)
{
    return step(resize, step(resize, i + 0.5) / step(resize, axis->scale));
}

/* Where element i of the output lies on the input. */
static double coordinate(const struct resize *resize, const struct resized_axis *axis, double i)
{
    double in = (double)axis->in, out = (double)axis->out;
    switch (resize->coordinates) {
    case HALF_PIXEL_SYMMETRIC: {
        double exact_out = step(resize, step(resize, axis->scale) * in); /* not always whole */
        double offset = step(resize, in / 2 * step(resize, 1 - step(resize, out / exact_out)));
        /* The one expression that ONNX Runtime has in double, of a scale in float32. */
        return step(resize, offset + (i + 0.5) / step(resize, axis->scale) - 0.5);
    }
    case PYTORCH_HALF_PIXEL:
        return axis->out > 1 ? step(resize, middle(resize, axis, i) - 0.5) : 0;
    case ALIGN_CORNERS:
        return axis->out > 1 ? step(resize, i * (in - 1) / (out - 1)) : 0;
    case ASYMMETRIC:
        return step(resize, i / step(resize, axis->scale));
    case TF_HALF_PIXEL_FOR_NN:
        return middle(resize, axis, i);
    case TF_CROP_AND_RESIZE:
        if (axis->out == 1)
            return 0.5 * (axis->from + axis->to) * (in - 1);
        return axis->from * (in - 1) + i * (axis->to - axis->from) * (in - 1) / (out - 1);
    default:
        return step(resize, middle(resize, axis, i) - 0.5);
    }
}

static ptrdiff_t clamp(double at, int64_t n)
{
    return at < 0 ? 0 : at > (double)(n - 1) ? (ptrdiff_t)n - 1 : (ptrdiff_t)at;
}

static double round_nearest(double x, enum nearest_mode mode)
{
    switch (mode) {
    case NEAREST_PREFER_CEIL:
        return floor(x + 0.5);
    case NEAREST_FLOOR:
        return floor(x);
    case NEAREST_CEIL:
        return ceil(x);
    default:
        return ceil(x - 0.5);
    }
}

/* The weight of an element at that distance in cubic convolution. */
static double cubic(double distance, double a)
{
    double d = fabs(distance);
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* Elements past the ends are those at the ends, or (exclude_outside) have no weight. */
static void interpolate(const struct resize *resize, const struct resized_axis *axis, double x,
                        struct taps *taps)
{
    double first = floor(x) - (resize->mode == RESIZE_CUBIC ? 1 : 0), sum = 0;
    taps->n = resize->mode == RESIZE_CUBIC ? 4 : 2;
    for (int k = 0; k < taps->n; k++) {
        double at = first + k, distance = x - at;
        bool is_outside = at < 0 || at > (double)(axis->in - 1);
        taps->at[k] = clamp(at, axis->in);
        taps->weight[k] = resize->mode == RESIZE_CUBIC ? cubic(distance, resize->cubic_a) : 1 - fabs(distance);
        if (is_outside && resize->excludes_outside)
            taps->weight[k] = 0;
        sum += taps->weight[k];
    }
    for (int k = 0; k < taps->n && resize->excludes_outside && sum != 0; k++)
        taps->weight[k] /= sum;
}

static struct taps taps_of(const struct resize *resize, const struct resized_axis *axis, int64_t i)
{
    double x = coordinate(resize, axis, (double)i);
    struct taps taps = {.n = 1, .weight = {1}};
    if (resize->coordinates == TF_CROP_AND_RESIZE && (x < 0 || x > (double)(axis->in - 1)))
        taps.n = 0;
    else if (resize->mode == RESIZE_NEAREST)
        taps.at[0] = clamp(round_nearest(x, resize->nearest), axis->in);
    else
        interpolate(resize, axis, x, &taps);
    return taps;
}

/* One line of n_inner elements that follow each other. */
static void resample_row(const struct taps *taps, const double *x, double *y, size_t n_inner,
                         double extrapolation)
{
    for (size_t i = 0; i < n_inner; i++)
        y[i] = taps->n > 0 ? taps->weight[0] * x[(size_t)taps->at[0] * n_inner + i] : extrapolation;
    for (int k = 1; k < taps->n; k++)
        for (size_t i = 0; i < n_inner; i++)
            y[i] += taps->weight[k] * x[(size_t)taps->at[k] * n_inner + i];
}

/* *array, with that axis resized, takes the place of *array. */
static enum nd_status resample(const struct resize *resize, const struct resized_axis *plan, int axis,
                               struct nd_array *array, struct nd_error *err)
{
    struct nd_array made = {0};
    struct nd_shape shape = array->shape;
    shape.dims[axis] = plan->out;
    ND_TRY(nd_array_make(&made, array->dtype, &shape, err));
    size_t n_outer = nd_dims_product(&shape, 0, axis), n_inner = nd_dims_product(&shape, axis + 1, shape.rank);
    for (int64_t i = 0; i < plan->out && made.n > 0; i++) {
        struct taps taps = taps_of(resize, plan, i);
        for (size_t outer = 0; outer < n_outer; outer++)
            resample_row(&taps, array->x + outer * (size_t)plan->in * n_inner,
                         made.x + (outer * (size_t)plan->out + (size_t)i) * n_inner, n_inner,
                         resize->extrapolation);
    }
    nd_array_deinit(array);
    *array = made;
    return ND_OK;
}

/* Which of the names the text attribute has; `otherwise` when it is absent, -1 when it is none of them. */
static int choose(const struct nd_op_call *call, const char *attribute, const char *const *names, int n,
                  int otherwise)
{
    char text[32];
    nd_op_text(call, attribute, text, sizeof text);
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    return text[0] == '\0' ? otherwise : -1;
}

/* Upsample and the Resize of opset 10 know one rule: x / scale, rounded down. */
static bool is_old(const struct nd_op_call *call)
{
    return nd_op_is(call, "Upsample") || call->opset < 11;
}

static enum nd_status read_modes(const struct nd_op_call *call, struct resize *out, struct nd_error *err)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    static const char *const coordinates[] = {
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
        "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"};
    int mode = choose(call, "mode", modes, 3, 0);
    int rule = choose(call, "nearest_mode", nearest, 4, is_old(call) ? NEAREST_FLOOR : NEAREST_PREFER_FLOOR);
    int where =
        choose(call, "coordinate_transformation_mode", coordinates, 7, is_old(call) ? ASYMMETRIC : HALF_PIXEL);
    if (mode < 0 || rule < 0 || where < 0)
        return nd_op_unsupported(call, err, "a mode that is not known");
    if (nd_op_i(call, "antialias", 0) != 0)
        return nd_op_unsupported(call, err, "antialias");
    *out = (struct resize){
        .mode = (enum resize_mode)mode,
        .nearest = (enum nearest_mode)rule,
        .coordinates = (enum coordinates)where,
        .cubic_a = nd_op_f(call, "cubic_coeff_a", -0.75),
        .extrapolation = nd_op_f(call, "extrapolation_value", 0),
        .excludes_outside = nd_op_i(call, "exclude_outside", 0) != 0,
    };
    return ND_OK;
}

/* The size that a scale gives. In single precision, as shape inference and ONNX Runtime work it out: 5 * 1.4f
 * is 7 there, and just below it in double. */
static int64_t scaled_size(int64_t in, double scale)
{
    float size = floorf((float)in * (float)scale);
    return size < (float)(1 << 30) ? (int64_t)size : (int64_t)1 << 30;
}

/* Sizes that keep the aspect ratio follow from the least or the largest of the scales that were asked for. */
static void keep_aspect(bool is_min, const struct nd_op_list *axes, struct resized_axis *plans)
{
    double scale = plans[axes->v[0]].scale;
    for (size_t i = 1; i < axes->n; i++) {
        double other = plans[axes->v[i]].scale;
        if (is_min ? other < scale : other > scale)
            scale = other;
    }
    for (size_t i = 0; i < axes->n; i++) {
        struct resized_axis *plan = &plans[axes->v[i]];
        plan->scale = scale;
        plan->out = (int64_t)floor(scale * (double)plan->in + 0.5);
    }
}

/* The axes that scales, sizes and region speak of, counted from the front. */
static enum nd_status read_axes(const struct nd_op_call *call, struct nd_op_list *out, struct nd_error *err)
{
    int rank = call->inputs[0]->shape.rank;
    bool marks[ND_MAX_RANK];
    ND_TRY(nd_op_list(call, SIZE_MAX, "axes", out, err));
    ND_TRY(nd_op_axes(call, out, rank, marks, err));
    for (size_t i = 0; i < out->n; i++)
        out->v[i] += out->v[i] < 0 ? rank : 0;
    if (!out->is_given)
        for (out->n = 0; out->n < (size_t)rank; out->n++)
            out->v[out->n] = (int64_t)out->n;
    return ND_OK;
}

static const struct nd_array *given(const struct nd_array *array)
{
    return array != NULL && array->n > 0 ? array : NULL;
}

static enum nd_status plan_axes(const struct nd_op_call *call, const struct nd_op_list *axes,
                                const double *scales, const struct nd_array *sizes, struct resized_axis *plans,
                                struct nd_error *err)
{
    const struct nd_array *roi = is_old(call) ? NULL : given(nd_op_in(call, 1));
    for (int axis = 0; axis < call->inputs[0]->shape.rank; axis++) {
        int64_t dim = call->inputs[0]->shape.dims[axis];
        plans[axis] = (struct resized_axis){.in = dim, .out = dim, .scale = 1, .to = 1};
    }
    for (size_t i = 0; i < axes->n; i++) {
        struct resized_axis *plan = &plans[axes->v[i]];
        plan->out = sizes != NULL ? nd_op_whole(sizes, i) : 0;
        plan->scale = sizes != NULL ? (double)plan->out / (double)plan->in : scales[i];
        if (!(plan->scale > 0) || plan->in < 1)
            return nd_op_misfit(call, err, "an axis of %lld with the scale %g", (long long)plan->in,
                                plan->scale);
        if (roi != NULL && roi->n == 2 * axes->n) {
            plan->from = roi->x[i];
            plan->to = roi->x[axes->n + i];
        }
        if (sizes == NULL)
            plan->out = scaled_size(plan->in, plan->scale);
    }
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
    int policy = choose(call, "keep_aspect_ratio_policy", policies, 3, 0);
    if (policy < 0)
        return nd_op_unsupported(call, err, "a policy that is not known");
    if (policy > 0 && sizes != NULL && axes->n > 0)
        keep_aspect(policy == 1, axes, plans);
    return ND_OK;
}

/* Scales are an input: 2 since opset 11, 1 before; or (Upsample up to opset 8) an attribute. */
static enum nd_status read_plans(const struct nd_op_call *call, struct resized_axis *plans,
                                 struct nd_error *err)
{
    const struct nd_array *scales = given(nd_op_in(call, is_old(call) ? 1 : 2));
    const struct nd_array *sizes = is_old(call) ? NULL : given(nd_op_in(call, 3));
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(call->node, "scales");
    struct nd_op_list axes;
    double values[ND_MAX_RANK];
    ND_TRY(read_axes(call, &axes, err));
    bool has_attribute = sizes == NULL && scales == NULL && attribute != NULL;
    size_t n = sizes != NULL ? sizes->n : scales != NULL ? scales->n : has_attribute ? attribute->n_floats : 0;
    if (n != axes.n)
        return nd_op_misfit(call, err, "%zu scales or sizes for %zu axes", n, axes.n);
    for (size_t i = 0; i < n && sizes == NULL; i++)
        values[i] = has_attribute ? (double)attribute->floats[i] : scales->x[i];
    return plan_axes(call, &axes, values, sizes, plans, err);
}

static enum nd_status nd_op_resize(const struct nd_op_call *call, struct nd_error *err)
{
    struct resize resize = {0};
    struct resized_axis plans[ND_MAX_RANK] = {0};
    ND_CLEANUP(nd_array_deinit) struct nd_array now = {0};
    ND_TRY(read_modes(call, &resize, err));
    ND_TRY(read_plans(call, plans, err));
    ND_TRY(nd_array_copy(call->inputs[0], &now, err));
    for (int axis = 0; axis < now.shape.rank; axis++) {
        bool stays = plans[axis].scale == 1 && plans[axis].out == plans[axis].in && plans[axis].from == 0 &&
                     plans[axis].to == 1;
        if (!stays)
            ND_TRY(resample(&resize, &plans[axis], axis, &now, err));
    }
    *call->outputs[0] = now;
    now = (struct nd_array){0};
    return nd_op_wrap(call, call->outputs[0], err);
}

/* ---- GridSample of images ---- */

enum mode { LINEAR, NEAREST, CUBIC };
enum padding { ZEROS, BORDER, REFLECTION };
enum { MAX_PIXELS = 4 }; /* pixels along an axis, at most */

struct sampler {
    enum mode mode;
    enum padding padding;
    bool is_aligned;
};

/* Pixels along one axis, and what each counts; index -1: a zero outside. */
struct pixels {
    int n;
    int64_t index[MAX_PIXELS];
    double weight[MAX_PIXELS];
};

/* Mirrored at both ends as often as it takes. */
static double reflect(double x, double low, double high)
{
    double range = high - low, beyond = x < low ? low - x : x - high;
    if (beyond <= 0 || !(range > 0))
        return x < low || x > high ? low : x;
    double times = floor(beyond / range), rest = beyond - times * range;
    bool is_even = fmod(times, 2) == 0;
    return (x < low) == is_even ? low + rest : high - rest;
}

/* The pixel that stands at a place beside the image or on it. */
static int64_t pixel_at(const struct sampler *s, double at, int64_t size, double low, double high)
{
    double last = (double)size - 1;
    if (isnan(at))
        return -1;
    if (s->padding == ZEROS)
        return at < 0 || at > last ? -1 : (int64_t)at;
    if (s->padding == REFLECTION)
        at = trunc(reflect(at, low, high));
    return (int64_t)fmin(fmax(at, 0), last);
}

/* Keys' cubic with a = -0.75, as ONNX has it. */
static void cubic_weights(double t, double w[MAX_PIXELS])
{
    static const double a = -0.75;
    double far[2] = {1 + t, 2 - t}, near[2] = {t, 1 - t};
    for (int side = 0; side < 2; side++) {
        double f = far[side], n = near[side];
        w[side * 3] = ((a * f - 5 * a) * f + 8 * a) * f - 4 * a;
        w[side + 1] = ((a + 2) * n - (a + 3)) * n * n + 1;
    }
}

/* x: from -1 to 1 over the image. */
static struct pixels find_pixels(const struct sampler *s, double x, int64_t size)
{
    double n = (double)size, low = s->is_aligned ? 0 : -0.5, high = s->is_aligned ? n - 1 : n - 0.5;
    double at = s->is_aligned ? (x + 1) / 2 * (n - 1) : ((x + 1) * n - 1) / 2;
    struct pixels pixels = {.n = s->mode == NEAREST ? 1 : s->mode == LINEAR ? 2 : MAX_PIXELS, .weight = {1}};
    if (s->mode == NEAREST)
        at = rint(at);
    /* A cubic goes on beyond the border, as ONNX Runtime and PyTorch have it: only its pixels are clamped. */
    if (s->padding == BORDER && s->mode != CUBIC && (at < low || at > high))
        at = fmin(fmax(at, 0), n - 1);
    else if (s->padding == REFLECTION && (at < low || at > high))
        at = reflect(at, low, high);
    double first = floor(at), t = at - first;
    if (s->mode == LINEAR) {
        pixels.weight[0] = 1 - t;
        pixels.weight[1] = t;
    } else if (s->mode == CUBIC) {
        cubic_weights(t, pixels.weight);
        first -= 1;
    }
    for (int i = 0; i < pixels.n; i++)
        pixels.index[i] = pixel_at(s, first + i, size, low, high);
    return pixels;
}

static enum nd_status read_sampler(const struct nd_op_call *call, struct sampler *out, struct nd_error *err)
{
    static const char *const modes[][2] = {
        {"bilinear", "linear"}, {"nearest", "nearest"}, {"bicubic", "cubic"}};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    char mode[16], padding[16];
    nd_op_text(call, "mode", mode, sizeof mode);
    nd_op_text(call, "padding_mode", padding, sizeof padding);
    bool has_mode = mode[0] == '\0', has_padding = padding[0] == '\0';
    *out = (struct sampler){.is_aligned = nd_op_i(call, "align_corners", 0) != 0};
    for (int i = 0; i < 3; i++) {
        if (strcmp(mode, modes[i][0]) == 0 || strcmp(mode, modes[i][1]) == 0) {
            out->mode = (enum mode)i;
            has_mode = true;
        }
        if (strcmp(padding, paddings[i]) == 0) {
            out->padding = (enum padding)i;
            has_padding = true;
        }
    }
    return has_mode && has_padding ? ND_OK
                                   : nd_op_unsupported(call, err, "mode '%s' or padding '%s'", mode, padding);
}

static double sample(const double *image, int64_t width, const struct pixels *ys, const struct pixels *xs)
{
    double sum = 0;
    for (int i = 0; i < ys->n; i++)
        for (int k = 0; k < xs->n; k++)
            if (ys->index[i] >= 0 && xs->index[k] >= 0)
                sum += ys->weight[i] * xs->weight[k] * image[ys->index[i] * width + xs->index[k]];
    return sum;
}

static enum nd_status nd_op_grid_sample(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *grid = call->inputs[1];
    const struct nd_shape *in = &x->shape, *at = &grid->shape;
    struct sampler sampler;
    ND_TRY(read_sampler(call, &sampler, err));
    if (in->rank != 4 || at->rank != 4)
        return nd_op_unsupported(call, err, "a tensor of %d dimensions", in->rank);
    if (at->dims[0] != in->dims[0] || at->dims[3] != 2)
        return nd_op_misfit(call, err, "a grid that does not fit to the images");
    struct nd_shape shape = {.rank = 4, .dims = {in->dims[0], in->dims[1], at->dims[1], at->dims[2]}};
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    if (call->outputs[0]->n == 0 || x->n == 0)
        return ND_OK;
    size_t n_places = (size_t)(at->dims[1] * at->dims[2]), n_pixels = (size_t)(in->dims[2] * in->dims[3]);
    for (size_t p = 0; p < (size_t)at->dims[0] * n_places; p++) {
        struct pixels xs = find_pixels(&sampler, grid->x[2 * p], in->dims[3]),
                      ys = find_pixels(&sampler, grid->x[2 * p + 1], in->dims[2]);
        for (size_t c = 0; c < (size_t)in->dims[1]; c++) {
            size_t image = p / n_places * (size_t)in->dims[1] + c;
            call->outputs[0]->x[image * n_places + p % n_places] =
                sample(x->x + image * n_pixels, in->dims[3], &ys, &xs);
        }
    }
    return ND_OK;
}

/* ---- the operators ---- */

const struct nd_op nd_ops_samplers[] = {
    {"", "Resize", 1, nd_op_resize},
    {"", "Upsample", 1, nd_op_resize},
    {"", "GridSample", 2, nd_op_grid_sample},
    {NULL, NULL, 0, NULL},
};
