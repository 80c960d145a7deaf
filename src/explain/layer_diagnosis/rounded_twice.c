/* Whether a mean or sum is rounded twice. docs/reference/diagnoses.md. */
#include "explain/layer_diagnosis/rounded_twice.h"

#include <math.h>
#include <stdio.h>

/* A value that doubles put this near to a half, relative to it, is that half: the exact one is a sum of
 * quantised values over a count. */
static const double nearly = 0x1p-40;

static double settle_half(double v)
{
    double half = rint(v * 2) / 2;
    return fabs(v - half) <= nearly * fmax(fabs(v), 1) ? half : v;
}

/* ratio: a step of the input in steps of the output. */
static bool gives_all(const struct nd_layer_diagnosis *diagnosis, double ratio, enum nd_rounding first,
                      enum nd_rounding second)
{
    double low, high, zero = (double)nd_layer_diagnosis_quant(diagnosis)->zero_point[0];
    nd_qvalue_range(nd_plan_tensor(diagnosis->job->plan, diagnosis->step)->dtype, &low, &high);
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n; i++) {
        if (!isfinite(diagnosis->values[i]))
            continue;
        double mean = nd_round_value(settle_half((diagnosis->values[i] - zero) / ratio), first);
        double qvalue = nd_round_value(settle_half(mean * ratio), second) + zero;
        if (fmin(fmax(qvalue, low), high) != diagnosis->qvalues[i])
            return false;
    }
    return true;
}

static bool rounds_to_input(const struct nd_layer_diagnosis *diagnosis, const struct nd_tensor *input,
                            char *text)
{
    const struct nd_quant *to = nd_layer_diagnosis_quant(diagnosis);
    if (!nd_dtype_is_integer(input->dtype) || input->quant.n != 1 || to->n != 1 || !(input->quant.scale[0] > 0))
        return false;
    double ratio = (double)input->quant.scale[0] / (double)to->scale[0];
    for (int first = ND_ROUND_HALF_EVEN; first <= ND_ROUND_TO_ZERO; first++)
        for (int second = ND_ROUND_HALF_EVEN; second <= ND_ROUND_HALF_DOWN; second++) {
            if (!gives_all(diagnosis, ratio, (enum nd_rounding)first, (enum nd_rounding)second))
                continue;
            snprintf(text, ND_ROUNDED_TWICE_TEXT_BYTES,
                     "rounded twice: %s to the scale of '%.60s', then to its own",
                     nd_rounding_name((enum nd_rounding)first), input->name);
            return true;
        }
    return false;
}

bool nd_explain_rounds_twice(const struct nd_layer_diagnosis *diagnosis, char text[ND_ROUNDED_TWICE_TEXT_BYTES])
{
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, diagnosis->step);
    if (!nd_layer_is_mean(layer) || job->observations->layer_arithmetic[diagnosis->device] != SIZE_MAX ||
        job->plan->sources[diagnosis->device].expectation != ND_EXPECT_ANY ||
        nd_is_emulated(job->plan->sources[diagnosis->device].capture))
        return false;
    if (diagnosis->has_other && diagnosis->other.kind == ND_ROUNDED_TWICE) {
        snprintf(text, ND_ROUNDED_TWICE_TEXT_BYTES,
                 "rounded twice: to %d binary place%s of a step, then to a whole one", diagnosis->other.n_bits,
                 diagnosis->other.n_bits == 1 ? "" : "s");
        return true;
    }
    return rounds_to_input(diagnosis, nd_model_tensor(job->plan->model, layer->inputs[0]), text);
}
