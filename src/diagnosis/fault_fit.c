/* How well a fault predicts the codes. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "diagnosis/diagnosis_parts.h"
#include "eval/rounding.h"

/* A program that rounds twice, or through a multiplier of few bits, misses the nearest code only where the
 * value is this close to a tie (with 8 bits 1/512). Codes within it prove nothing about the value. */
static const double slack = 1.0 / 256;

bool nd_doctor_is_known(const struct nd_doctor *d, size_t i)
{
    return isfinite(d->e->values[i]) && isfinite(d->e->expected[i]);
}

static bool is_within(const struct nd_doctor *d, double code)
{
    return code > d->lowest && code < d->highest;
}

bool nd_doctor_is_inside(const struct nd_doctor *d, size_t i)
{
    return nd_doctor_is_known(d, i) && is_within(d, d->e->codes[i]) && is_within(d, d->e->expected[i]);
}

double nd_doctor_clip(const struct nd_doctor *d, double code)
{
    return fmin(fmax(code, d->lowest), d->highest);
}

double nd_doctor_zero_point(const struct nd_doctor *d, size_t j)
{
    const struct nd_quant *quant = d->e->quant;
    if (quant == NULL || quant->n == 0)
        return 0;
    if (quant->n == 1)
        return (double)quant->zero_point[0];
    size_t inner = 1;
    for (int k = quant->axis + 1; k < d->e->shape.rank; k++)
        inner *= (size_t)d->e->shape.dims[k];
    return (double)quant->zero_point[j / inner % quant->n];
}

bool nd_doctor_is_far_off(const struct nd_doctor *d)
{
    enum {
        MIN_FAR = 16
    }; /* elements; chosen, as are two steps and a quarter: chance is then out of the question */
    size_t n_far = 0;
    for (size_t i = 0; i < d->e->n_samples * d->e->n; i++)
        n_far += nd_doctor_is_known(d, i) && fabs(d->e->codes[i] - d->e->expected[i]) > 2;
    return n_far >= MIN_FAR && n_far * 4 >= d->n_wrong;
}

struct nd_doctor_span nd_doctor_exactly(double code)
{
    return (struct nd_doctor_span){true, code, code};
}

struct nd_doctor_span nd_doctor_of_value(const struct nd_doctor *d, double value)
{
    double low = ceil(value - d->below - slack), high = floor(value + d->above + slack);
    return (struct nd_doctor_span){true, nd_doctor_clip(d, low), nd_doctor_clip(d, high)};
}

static bool holds(const struct nd_doctor *d, struct nd_doctor_span span, double code)
{
    return code >= span.low - d->noise && code <= span.high + d->noise;
}

bool nd_doctor_is_wrong(const struct nd_doctor *d, size_t i)
{
    return fabs(d->e->codes[i] - d->e->expected[i]) > d->noise;
}

bool nd_doctor_is_hard(const struct nd_doctor *d, size_t i)
{
    return nd_doctor_is_wrong(d, i) && !holds(d, nd_doctor_of_value(d, d->e->values[i]), d->e->codes[i]);
}

/* The usual program may be any: how far its codes lie from their values shows which kind it is. Never taken
 * for narrower than rounding, which a few elements would suggest. */
static void measure_program(struct nd_doctor *d)
{
    const struct nd_evidence *e = d->e;
    double least = 0, most = 0;
    for (size_t i = 0; i < e->n_samples * e->n; i++) {
        if (!nd_doctor_is_known(d, i) || !is_within(d, e->expected[i]))
            continue;
        least = fmin(least, e->expected[i] - e->values[i]);
        most = fmax(most, e->expected[i] - e->values[i]);
    }
    bool is_floor = least < -0.6 && most<slack, is_ceil = most> 0.6 && least > -slack;
    d->below = is_ceil ? 0 : fmax(is_floor ? 1 : 0.5, -least);
    d->above = is_floor ? 0 : fmax(is_ceil ? 1 : 0.5, most);
}

void nd_doctor_prepare(const struct nd_evidence *e, double noise, struct nd_diagnosis *out, struct nd_doctor *d)
{
    *d = (struct nd_doctor){.e = e, .out = out, .noise = noise};
    nd_code_range(e->dtype, &d->lowest, &d->highest);
    measure_program(d);
    for (size_t i = 0; i < e->n_samples * e->n; i++) {
        if (!nd_doctor_is_known(d, i))
            continue;
        d->n_known++;
        if (!nd_doctor_is_wrong(d, i))
            continue;
        d->n_wrong++;
        d->n_hard += nd_doctor_is_hard(d, i);
    }
}

size_t nd_doctor_channel(const struct nd_doctor_axis *axis, size_t j)
{
    return j / axis->inner % axis->n;
}

size_t nd_doctor_axes(const struct nd_doctor *d, struct nd_doctor_axis out[ND_DOCTOR_AXES])
{
    const struct nd_shape *shape = &d->e->shape;
    const struct nd_quant *quant = d->e->quant;
    int axes[ND_DOCTOR_AXES] = {quant != NULL && quant->n > 1 ? quant->axis : -1, 1, shape->rank - 1};
    size_t n = 0;
    for (int a = 0; a < ND_DOCTOR_AXES; a++) {
        bool is_new = axes[a] >= 0 && axes[a] < shape->rank && shape->dims[axes[a]] > 1;
        for (size_t k = 0; k < n; k++)
            is_new = is_new && out[k].axis != axes[a];
        if (!is_new)
            continue;
        out[n] = (struct nd_doctor_axis){axes[a], (size_t)shape->dims[axes[a]], 1};
        for (int k = axes[a] + 1; k < shape->rank; k++)
            out[n].inner *= (size_t)shape->dims[k];
        n++;
    }
    return n;
}

struct score {
    size_t n_right, n_missed; /* of the wrong codes of which something is predicted */
    size_t n_broken;          /* right codes that the fault would have changed */
};

/* Most faults that are tried are hopeless: soon seen. */
static bool is_hopeless(const struct nd_doctor *d, const struct score *score)
{
    if ((score->n_missed + score->n_broken) * 100 > 2 * d->n_wrong)
        return true;
    return score->n_missed + score->n_broken > 32 && score->n_missed + score->n_broken > score->n_right;
}

static bool judge(const struct nd_doctor *d, const struct nd_doctor_fault *f, double *explained)
{
    const struct nd_evidence *e = d->e;
    struct score score = {0};
    for (size_t s = 0; s < e->n_samples; s++) {
        for (size_t j = 0; j < e->n; j++) {
            size_t i = s * e->n + j;
            if (!nd_doctor_is_known(d, i))
                continue;
            struct nd_doctor_span span = f->predict(d, f, s, j);
            if (!span.is_known)
                continue;
            bool is_fit = holds(d, span, e->codes[i]);
            /* The fault leaves it alone, and the program may not be quite the usual one. */
            if (!is_fit && holds(d, span, e->expected[i]) && !nd_doctor_is_hard(d, i))
                continue;
            if (!nd_doctor_is_wrong(d, i))
                score.n_broken += !is_fit;
            else if (is_fit)
                score.n_right++;
            else
                score.n_missed++;
            if (!is_fit && is_hopeless(d, &score))
                return false;
        }
    }
    size_t n = score.n_right + score.n_missed;
    if (n == 0 || n * 4 < d->n_wrong) /* what cannot be predicted must stay an exception */
        return false;
    *explained = (double)score.n_right / (double)n;
    return score.n_missed * 100 <= n && score.n_broken * 100 <= n;
}

static void ND_PRINTF(4, 0)
    add(struct nd_doctor *d, const struct nd_doctor_fault *f, double explained, const char *fmt, va_list args)
{
    struct nd_diagnosis *out = d->out;
    struct nd_finding finding = {f->kind, f->channel, f->axis, f->amount, explained, d->n_wrong, "", 0};
    vsnprintf(finding.text, sizeof finding.text, fmt, args);
    if (!out->is_found)
        out->best = finding;
    else if (out->n_rivals < ND_MAX_RIVALS)
        out->rivals[out->n_rivals++] = finding;
    out->is_found = true;
}

void nd_doctor_add(struct nd_doctor *d, const struct nd_doctor_fault *f, double explained, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(d, f, explained, fmt, args);
    va_end(args);
}

bool nd_doctor_try(struct nd_doctor *d, const struct nd_doctor_fault *f, const char *fmt, ...)
{
    double explained = 0;
    if (!judge(d, f, &explained))
        return false;
    va_list args;
    va_start(args, fmt);
    add(d, f, explained, fmt, args);
    va_end(args);
    return true;
}
