/* Scales with which a product is multiplied by a power of two. docs/science/align.md. */
#include "improve/align/power_scales.h"

#include <math.h>

/* A multiplier that is off by less counts as the power of two: float32 scales give no better (2^-23), and the
 * arithmetics keep 21 bits at most. */
static const double slack = 1e-7;

/* Not more than v, not less. */
static float float_below(double v)
{
    float f = (float)v;
    return (double)f > v ? nextafterf(f, 0) : f;
}

static float float_above(double v)
{
    float f = (float)v;
    return (double)f < v ? nextafterf(f, HUGE_VALF) : f;
}

/* The k of the least 2^-k that is not below m; and of the greatest that is not above it. */
static int exponent_above(double m)
{
    return (int)floor(-log2(m) + slack);
}

static int exponent_below(double m)
{
    return (int)ceil(-log2(m) - slack);
}

/* The mean squared error of an output, in steps of the old one squared, times 12: of rounding to a step that is
 * `factor` times as coarse, and of weights that are rounded. */
static double cost_of(const struct nd_align_task *task, double factor)
{
    double of_weights = 0;
    for (size_t c = 0; c < task->n; c++) {
        double m = task->scale_x * task->least[c] / (task->scale_y * factor);
        double step = ldexp(factor, -exponent_above(m));
        of_weights += step * step;
    }
    return factor * factor + task->n_rows * task->rms_x * task->rms_x * of_weights / (double)task->n;
}

/* By how much the output becomes coarser: not at all, or so that the weights of one channel need not. */
static double choose_factor(const struct nd_align_task *task)
{
    enum { MAX_TRIED = 64 }; /* chosen: channels crowd between 1 and 2 */
    double best = 1, least = cost_of(task, 1);
    size_t stride = task->n / MAX_TRIED + 1;
    for (size_t c = 0; c < task->n && !task->is_y_settled; c += stride) {
        double m = task->scale_x * task->least[c] / task->scale_y, factor = ldexp(m, exponent_below(m));
        double cost = factor > 1 ? cost_of(task, factor) : HUGE_VAL;
        if (cost < least) {
            least = cost;
            best = factor;
        }
    }
    return best;
}

static bool choose_output(const struct nd_align_task *task, struct nd_align_scales *out)
{
    double m = task->scale_x * task->least[0] / task->scale_y;
    int exponent = exponent_below(m);
    double factor = ldexp(m, exponent);
    if (task->is_y_settled && fabs(factor - 1) > slack)
        return false;
    out->scale_y = task->is_y_settled ? (float)task->scale_y
                                      : float_above(ldexp(task->scale_x * task->least[0], exponent));
    out->exponent[0] = exponent;
    out->output_factor = factor > 1 ? factor : 1;
    out->weight_factor = 1;
    return true;
}

bool nd_align_choose_scales(const struct nd_align_task *task, struct nd_align_scales *out)
{
    if (task->is_w_settled)
        return choose_output(task, out);
    double factor = choose_factor(task), squares = 0;
    out->scale_y = factor > 1 ? float_above(task->scale_y * factor) : (float)task->scale_y;
    out->output_factor = factor;
    for (size_t c = 0; c < task->n; c++) {
        double m = task->scale_x * task->least[c] / (double)out->scale_y;
        out->exponent[c] = exponent_above(m);
        out->scale_w[c] = float_below(ldexp((double)out->scale_y / task->scale_x, -out->exponent[c]));
        double coarser = (double)out->scale_w[c] / task->least[c];
        squares += coarser * coarser;
    }
    out->weight_factor = sqrt(squares / (double)task->n);
    return true;
}
