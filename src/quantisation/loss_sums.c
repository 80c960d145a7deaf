/* What one layer introduces in one sample: sums over its elements. */
#include <math.h>

#include "core/tensors/scales.h"
#include "arithmetic/exact/linear/quick.h"
#include "quantisation/study.h"

void nd_reals_before(const struct nd_exact_values *values, double *out)
{
    for (size_t i = 0; i < values->n && values->quick == NULL; i++)
        out[i] = nd_ratio_value(&values->v[i]);
    for (size_t first = 0; first < values->n && values->quick != NULL; first += ND_QUICK_BLOCK) {
        size_t left = values->n - first, n = left < ND_QUICK_BLOCK ? left : ND_QUICK_BLOCK;
        nd_quick_near(values->quick, first, n, out + first);
        for (size_t i = first; i < first + n; i++)
            if (isnan(out[i])) {
                const struct nd_ratio exact = nd_quick_exact(values->quick, i);
                out[i] = nd_ratio_value(&exact);
            }
    }
    size_t inner = nd_exact_inner(values->quant, values->shape, values->n), channel = 0;
    for (size_t start = 0; start < values->n; start += inner, channel = (channel + 1) % values->quant->n)
        for (size_t i = start; i < start + inner; i++)
            out[i] *= (double)values->quant->scale[channel];
}

static void add_element(struct nd_loss_sums *sums, double value, double real, double layer)
{
    double introduced = real - layer, passed_on = layer - value;
    sums->signal += value * value;
    sums->total += (real - value) * (real - value);
    sums->introduced += introduced * introduced;
    sums->passed_on += passed_on * passed_on;
    sums->low = value < sums->low ? value : sums->low;
    sums->high = value > sums->high ? value : sums->high;
}

/* Real values of the first and the last code of a channel, moved outwards by a part of a step. */
static struct nd_range reach_of(const struct nd_quant *quant, enum nd_dtype dtype, size_t channel, double part)
{
    double low, high, scale = (double)quant->scale[channel], zero = (double)quant->zero_point[channel];
    nd_code_range(dtype, &low, &high);
    return (struct nd_range){(low - zero - part) * scale, (high - zero + part) * scale};
}

/* Quantisers leave a Relu out where the range of the output begins at 0: then clipping is what the float layer
 * does, and no loss. So what is clipped counts only as far as the float layer's value lies beyond the codes. */
static void stop_at_codes(const struct nd_loss_run *run, size_t step, const double *layer, double *exact)
{
    const struct nd_quant *quant = nd_loss_quant(run, step);
    enum nd_dtype dtype = nd_plan_edge(run->study->plan, step)->dtype;
    size_t inner = nd_exact_inner(quant, &run->real.shape, run->real.n), channel = 0;
    for (size_t start = 0; start < run->real.n; start += inner, channel++) {
        const struct nd_range codes = reach_of(quant, dtype, channel % quant->n, 0);
        for (size_t i = start; i < start + inner; i++) { /* as fmin and fmax: NaN of one counts as the other */
            double low = layer[i] < codes.low ? layer[i] : codes.low;
            double high = layer[i] > codes.high ? layer[i] : codes.high;
            double below = exact[i] < high ? exact[i] : high;
            exact[i] = below > low ? below : low;
        }
    }
}

/* By channel of a layer with weights: what its constants add. */
static void add_shifts(const struct nd_loss_run *run, size_t step, const double *exact, const double *layer)
{
    const struct nd_loss_channels *channels = &run->study->channels[step];
    size_t channel = 0;
    for (size_t start = 0; channels->n > 0 && start < run->real.n; start += channels->n_inner) {
        double *shift = &channels->shift[run->sample * channels->n + channel];
        for (size_t i = start; i < start + channels->n_inner; i++)
            *shift += exact[i] - layer[i];
        channel = (channel + 1) % channels->n;
    }
}

/* What became of a value between the layer and its codes. */
static struct nd_loss_sums add_parts(const struct nd_loss_run *run, size_t step, const double *layer,
                                     struct nd_loss_sums sums)
{
    const struct nd_array *real = &run->real;
    struct nd_array *before = &run->before[step];
    const struct nd_quant *quant = nd_loss_quant(run, step);
    enum nd_dtype dtype = nd_plan_edge(run->study->plan, step)->dtype;
    const double *exact = before->shape.rank >= 0 && before->n == real->n ? before->x : layer;
    bool is_code = quant->n > 0 && nd_dtype_is_of_codes(dtype);
    size_t inner = nd_exact_inner(quant, &real->shape, real->n), channel = 0;
    if (is_code && exact != layer)
        stop_at_codes(run, step, layer, before->x);
    add_shifts(run, step, exact, layer);
    for (size_t start = 0; start < real->n; start += inner, channel++) {
        struct nd_range reach = {-HUGE_VAL, HUGE_VAL};
        if (is_code)
            reach = reach_of(quant, dtype, channel % quant->n, 0.5);
        for (size_t i = start; i < start + inner; i++) {
            double rounding = real->x[i] - exact[i], value = run->values[step].x[i];
            bool is_clipped = exact[i] < reach.low || exact[i] > reach.high;
            sums.n_clipped += value < reach.low || value > reach.high;
            sums.constants += (exact[i] - layer[i]) * (exact[i] - layer[i]);
            if (is_clipped)
                sums.clipping += rounding * rounding;
            else
                sums.rounding += rounding * rounding;
        }
    }
    return sums;
}

/* Some of the sample's values into their own place: spread over the tensor, but not in step with its channels.
 */
static void keep_values(const struct nd_loss_run *run, size_t step, const struct nd_array *layer)
{
    const double golden = 0.6180339887498949;
    struct nd_loss_values *kept = &run->study->values[step];
    size_t first = run->sample * kept->n_per_sample;
    for (size_t i = 0; i < kept->n_per_sample && kept->values != NULL; i++) {
        double jitter = (double)i * golden;
        double at = ((double)i + jitter - floor(jitter)) * (double)layer->n / (double)kept->n_per_sample;
        size_t k = layer->n == kept->n_per_sample ? i : (size_t)at;
        k = k < layer->n ? k : layer->n - 1;
        kept->values[first + i] = (float)run->values[step].x[k];
        kept->errors[first + i] = (float)(run->real.x[k] - layer->x[k]);
    }
}

void nd_add_losses(const struct nd_loss_run *run, size_t step, const struct nd_array *layer)
{
    struct nd_loss_sums sums = {.is_known = true, .n = layer->n, .low = HUGE_VAL, .high = -HUGE_VAL};
    const double *values = run->values[step].x, *real = run->real.x;
    for (size_t i = 0; i < layer->n; i++)
        add_element(&sums, values[i], real[i], layer->x[i]);
    run->sums[step] = add_parts(run, step, layer->x, sums);
    keep_values(run, step, layer);
    nd_pairs_take(run->study, step, run->sample, &run->values[step]);
}
