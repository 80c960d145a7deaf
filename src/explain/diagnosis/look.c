/* What is counted of evidence once, and the questions that every recogniser asks of an element. */
#include "explain/diagnosis/look.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/statistics/series.h"

/* Chosen: far off is an eighth of the reference's spread and four steps. Healthy devices, with 8 bits through
 * some sixty layers, stay below in nearly every element. */
static const double far_of_spread = 1.0 / 8, far_steps = 4;

static const struct nd_criteria criteria[ND_N_MEASURES] = {
    [ND_MEASURE_EXACT] = {.min_explained = 0.99,
                          .min_far = 3,
                          .min_window = 3,
                          .largest_window = 1,
                          .min_filled = 0,
                          .is_room_for_steps = true},
    [ND_MEASURE_WHOLE] = {.min_explained = 1.0 / 3,
                          .min_far = ND_MIN_DECISIVE,
                          .min_window = ND_MIN_DECISIVE,
                          .largest_window = 0.5,
                          .min_filled = 0.25,
                          .is_room_for_steps = false},
};

static bool is_within(const struct nd_look *look, double qvalue)
{
    return qvalue > look->lowest && qvalue < look->highest;
}

bool nd_is_inside(const struct nd_look *look, size_t i)
{
    return nd_is_known(look, i) && is_within(look, look->e->captured[i]) &&
           is_within(look, look->e->expected[i]);
}

bool nd_has_far_qvalues(const struct nd_look *look)
{
    enum {
        MIN_FAR = 16
    }; /* elements; chosen, as are two steps and a quarter: chance is then out of the question */
    size_t n_far = 0;
    for (size_t i = 0; i < look->n_total; i++)
        n_far += nd_is_known(look, i) && fabs(look->e->captured[i] - look->e->expected[i]) > 2;
    return n_far >= MIN_FAR && n_far * 4 >= look->n_wrong;
}

double nd_zero_point(const struct nd_look *look, size_t j)
{
    const struct nd_quant *quant = look->e->quant;
    if (quant == NULL || quant->n == 0)
        return 0;
    if (quant->n == 1)
        return (double)quant->zero_point[0];
    size_t inner = 1;
    for (int k = quant->axis + 1; k < look->e->shape.rank; k++)
        inner *= (size_t)look->e->shape.dims[k];
    return (double)quant->zero_point[j / inner % quant->n];
}

bool nd_is_zero(const struct nd_look *look, double x)
{
    return x == 0 || x == nd_zero_point(look, 0);
}

double nd_clip(const struct nd_look *look, double qvalue)
{
    return nd_is_exact(look) ? fmin(fmax(qvalue, look->lowest), look->highest) : qvalue;
}

static int mantissa_bits(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_F16:
        return 10;
    case ND_DTYPE_BF16:
        return 7;
    case ND_DTYPE_F64:
        return 52;
    case ND_DTYPE_F8E4M3FN:
        return 3;
    case ND_DTYPE_F8E5M2:
        return 2;
    default:
        return 23;
    }
}

double nd_layer_at(double x, int bits, int min_exponent)
{
    int exponent = 0;
    frexp(x, &exponent);
    exponent = exponent - 1 > min_exponent ? exponent - 1 : min_exponent;
    return ldexp(1, exponent - bits);
}

double nd_spacing(enum nd_dtype dtype, double step, double x)
{
    if (step > 0 || !nd_dtype_is_float(dtype))
        return step > 0 ? step : 1;
    return x == 0 ? 0 : nd_layer_at(x, mantissa_bits(dtype), INT_MIN / 2);
}

double nd_share_of_far(const struct nd_look *look, size_t n_far)
{
    return look->n_far > 0 ? (double)n_far / (double)look->n_far : 0;
}

const char *nd_noun(const struct nd_look *look)
{
    return nd_is_exact(look) ? "codes" : "values";
}

size_t nd_channel_of(const struct nd_axis *axis, size_t j)
{
    return j / axis->inner % axis->n;
}

size_t nd_channel_axes(const struct nd_look *look, struct nd_axis out[ND_CHANNEL_AXES])
{
    const struct nd_shape *shape = &look->e->shape;
    const struct nd_quant *quant = look->e->quant;
    int axes[ND_CHANNEL_AXES] = {quant != NULL && quant->n > 1 ? quant->axis : -1, 1, shape->rank - 1};
    size_t n = 0;
    for (int a = 0; a < ND_CHANNEL_AXES; a++) {
        bool is_new = axes[a] >= 0 && axes[a] < shape->rank && shape->dims[axes[a]] > 1;
        for (size_t k = 0; k < n; k++)
            is_new = is_new && out[k].axis != axes[a];
        if (!is_new)
            continue;
        out[n] = (struct nd_axis){axes[a], (size_t)shape->dims[axes[a]], 1};
        for (int k = axes[a] + 1; k < shape->rank; k++)
            out[n].inner *= (size_t)shape->dims[k];
        n++;
    }
    return n;
}

double nd_look_quantile(double *x, size_t n, double part)
{
    if (n == 0)
        return NAN;
    nd_series_sort(x, n);
    return x[(size_t)(part * (double)(n - 1))];
}

double nd_look_spread(const double *x, const double *y, size_t n)
{
    double sum = 0, squares = 0;
    size_t n_known = 0;
    for (size_t i = 0; i < n; i++) {
        double z = y != NULL ? x[i] - y[i] : x[i];
        n_known += isfinite(z) ? 1 : 0;
        sum += isfinite(z) ? z : 0;
    }
    double mean = n_known > 0 ? sum / (double)n_known : 0;
    for (size_t i = 0; i < n; i++) {
        double z = (y != NULL ? x[i] - y[i] : x[i]) - mean;
        squares += isfinite(z) ? z * z : 0;
    }
    return n_known > 0 ? sqrt(squares / (double)n_known) : 0;
}

struct nd_fault nd_fault_of(enum nd_fault_kind kind, double amount, nd_predict predict)
{
    return (struct nd_fault){
        .kind = kind, .channel = SIZE_MAX, .axis = -1, .amount = amount, .predict = predict};
}

static void count(struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    look->low = HUGE_VAL;
    look->high = -HUGE_VAL;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i))
            continue;
        bool is_finite = isfinite(e->captured[i]);
        look->n_known++;
        look->n_wrong += nd_is_wrong(look, i);
        look->n_far += nd_is_far(look, i);
        look->n_lost += !is_finite;
        if (is_finite) {
            look->low = fmin(look->low, e->captured[i]);
            look->high = fmax(look->high, e->captured[i]);
        }
    }
}

enum nd_status nd_look_open(const struct nd_evidence *e, double noise, struct nd_findings *out,
                            struct nd_look *look, struct nd_error *err)
{
    enum nd_measure measure = e->exact != NULL ? ND_MEASURE_EXACT : ND_MEASURE_WHOLE;
    *look = (struct nd_look){.e = e,
                             .measure = measure,
                             .criteria = &criteria[measure],
                             .n_total = e->n_samples * e->n,
                             .noise = noise,
                             .out = out};
    look->spread = nd_look_spread(e->expected, NULL, look->n_total);
    double step = fmax(nd_spacing(e->dtype, e->step, look->spread), e->ref_step);
    look->far = fmax(far_of_spread * look->spread, far_steps * step);
    if (nd_is_exact(look)) {
        nd_qvalue_range(e->dtype, &look->lowest, &look->highest);
        nd_measure_arithmetic(look);
    }
    count(look);
    size_t n_arrays =
        nd_is_exact(look) ? 4 : 2; /* scale.c lists two intervals of two numbers for each quantised value */
    if (look->n_wrong == 0)
        return ND_OK;
    look->scratch = nd_calloc(n_arrays * look->n_total, sizeof *look->scratch);
    if (look->scratch == NULL)
        return nd_fail_memory(err);
    look->scratch2 = look->scratch + look->n_total;
    return ND_OK;
}

void nd_look_close(struct nd_look *look)
{
    free(look->scratch);
    look->scratch = look->scratch2 = NULL;
}
