/* GridSample of images: values between pixels, at places that a second tensor names. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>
#include <string.h>

enum mode { LINEAR, NEAREST, CUBIC };
enum padding { ZEROS, BORDER, REFLECTION };
enum { TAPS = 4 }; /* pixels along an axis, at most */

struct sampler {
    enum mode mode;
    enum padding padding;
    bool is_aligned;
};

/* Pixels along one axis, and what each counts; index -1: a zero outside. */
struct taps {
    int n;
    int64_t index[TAPS];
    double weight[TAPS];
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
static void cubic_weights(double t, double w[TAPS])
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
static struct taps find_taps(const struct sampler *s, double x, int64_t size)
{
    double n = (double)size, low = s->is_aligned ? 0 : -0.5, high = s->is_aligned ? n - 1 : n - 0.5;
    double at = s->is_aligned ? (x + 1) / 2 * (n - 1) : ((x + 1) * n - 1) / 2;
    struct taps taps = {.n = s->mode == NEAREST ? 1 : s->mode == LINEAR ? 2 : TAPS, .weight = {1}};
    if (s->mode == NEAREST)
        at = rint(at);
    /* A cubic goes on beyond the border, as ONNX Runtime and PyTorch have it: only its pixels are clamped. */
    if (s->padding == BORDER && s->mode != CUBIC && (at < low || at > high))
        at = fmin(fmax(at, 0), n - 1);
    else if (s->padding == REFLECTION && (at < low || at > high))
        at = reflect(at, low, high);
    double first = floor(at), t = at - first;
    if (s->mode == LINEAR) {
        taps.weight[0] = 1 - t;
        taps.weight[1] = t;
    } else if (s->mode == CUBIC) {
        cubic_weights(t, taps.weight);
        first -= 1;
    }
    for (int i = 0; i < taps.n; i++)
        taps.index[i] = pixel_at(s, first + i, size, low, high);
    return taps;
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

static double sample(const double *image, int64_t width, const struct taps *ys, const struct taps *xs)
{
    double sum = 0;
    for (int i = 0; i < ys->n; i++)
        for (int k = 0; k < xs->n; k++)
            if (ys->index[i] >= 0 && xs->index[k] >= 0)
                sum += ys->weight[i] * xs->weight[k] * image[ys->index[i] * width + xs->index[k]];
    return sum;
}

enum nd_status nd_op_grid_sample(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *grid = call->inputs[1];
    const struct nd_shape *in = &x->shape, *at = &grid->shape;
    struct sampler sampler;
    enum nd_status status = read_sampler(call, &sampler, err);
    if (status != ND_OK)
        return status;
    if (in->rank != 4 || at->rank != 4)
        return nd_op_unsupported(call, err, "a tensor of %d dimensions", in->rank);
    if (at->dims[0] != in->dims[0] || at->dims[3] != 2)
        return nd_op_misfit(call, err, "a grid that does not fit to the images");
    struct nd_shape shape = {.rank = 4, .dims = {in->dims[0], in->dims[1], at->dims[1], at->dims[2]}};
    status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status != ND_OK || call->outputs[0]->n == 0 || x->n == 0)
        return status;
    size_t n_places = (size_t)(at->dims[1] * at->dims[2]), n_pixels = (size_t)(in->dims[2] * in->dims[3]);
    for (size_t p = 0; p < (size_t)at->dims[0] * n_places; p++) {
        struct taps xs = find_taps(&sampler, grid->x[2 * p], in->dims[3]),
                    ys = find_taps(&sampler, grid->x[2 * p + 1], in->dims[2]);
        for (size_t c = 0; c < (size_t)in->dims[1]; c++) {
            size_t image = p / n_places * (size_t)in->dims[1] + c;
            call->outputs[0]->x[image * n_places + p % n_places] =
                sample(x->x + image * n_pixels, in->dims[3], &ys, &xs);
        }
    }
    return ND_OK;
}
