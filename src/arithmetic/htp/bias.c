/* Which numbers a product's bias becomes before the device rounds it to the accumulator.
 * docs/science/htp-arithmetic.md#biases. F is one operation on float32. */
#include <math.h>

#include "arithmetic/htp/htp_internal.h"

/* The provider takes the bias scale of a Conv for that of the accumulator up to this distance, whatever the
 * scales are (its source: `CheckBiasScaleMatch`; measured with QAIRT 2.51). */
static const float LARGEST_SCALE_DIFFERENCE = 1e-5F;

static float accumulator_scale(const struct nd_linear_call *call, size_t channel)
{
    return call->inputs[0].quant->scale[0] * (float)nd_linear_scale(&call->inputs[1], channel);
}

/* A Conv whose bias scales are not those of the accumulator gets quantised values of the provider's. */
static bool is_rescaled(const struct nd_htp_job *job)
{
    const struct nd_quant *quant = job->call->inputs[2].quant;
    if (!nd_htp_is_conv(job))
        return false;
    if (quant == NULL) /* floats */
        return true;
    for (size_t c = 0; c < quant->n; c++)
        if (fabsf(quant->scale[c] - accumulator_scale(job->call, c)) > LARGEST_SCALE_DIFFERENCE)
            return true;
    return false;
}

struct nd_htp_biases nd_htp_biases_of(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    struct nd_htp_biases biases = {.call = call};
    if (!nd_linear_has(call, 2))
        return biases;
    bool has_channels = call->inputs[1].quant->n > 1;
    biases.is_there = true;
    biases.is_rescaled = is_rescaled(job);
    for (size_t c = 0; has_channels && c < call->inputs[1].quant->n; c++)
        biases.largest_scale = fmaxf(biases.largest_scale, accumulator_scale(call, c));
    for (size_t c = 0; has_channels && c < call->inputs[2].values->n; c++) {
        double scale;
        biases.largest =
            fmaxf(biases.largest, fabsf((float)nd_htp_bias(&biases, c, &scale) * biases.largest_scale));
    }
    return biases;
}

double nd_htp_bias(const struct nd_htp_biases *biases, size_t channel, double *scale)
{
    *scale = 0;
    if (!biases->is_there)
        return 0;
    const struct nd_linear_input *input = &biases->call->inputs[2];
    double qvalue = input->values->x[channel];
    *scale = nd_linear_scale(input, channel);
    if (!biases->is_rescaled)
        return qvalue;
    float real = (float)(qvalue * *scale);
    *scale = (double)accumulator_scale(biases->call, channel);
    return fmin(fmax(round((double)real / *scale), INT32_MIN), INT32_MAX); /* halves away from zero */
}

bool nd_htp_is_known_bias(const struct nd_htp_job *job, size_t n_columns)
{
    if (!nd_linear_has(job->call, 2))
        return true;
    const struct nd_linear_input *bias = &job->call->inputs[2];
    const struct nd_quant *quant = bias->quant;
    if (quant == NULL)
        return nd_htp_is_conv(job) && bias->values->dtype == ND_DTYPE_F32 && bias->values->n == n_columns &&
               job->layer->origins[2] == ND_EXACT_FROM_CONSTANT;
    bool is_known = bias->values->dtype == ND_DTYPE_I32 && bias->values->n == n_columns &&
                    job->layer->origins[2] == ND_EXACT_FROM_CONSTANT &&
                    (quant->n == n_columns || (quant->n == 1 && job->call->inputs[1].quant->n == 1));
    for (size_t c = 0; is_known && c < quant->n; c++)
        is_known = quant->zero_point[c] == 0 && quant->scale[c] > 0 && isfinite(quant->scale[c]);
    return is_known;
}

/* The output channel, as if its weights fit 8 bits: else its bias takes fewer bits. */
static struct nd_htp_column column_of(const struct nd_htp_biases *biases, size_t channel)
{
    const struct nd_linear_call *call = biases->call;
    const struct nd_linear_input *w = &call->inputs[1];
    struct nd_htp_column column = {.scale_x = (double)call->inputs[0].quant->scale[0],
                                   .scale_w = nd_linear_scale(w, channel),
                                   .scale_y = (double)call->out_quant->scale[0],
                                   .zero_y = (double)call->out_quant->zero_point[0],
                                   .r = 1,
                                   .largest_bias_scale = biases->largest_scale,
                                   .largest_bias = biases->largest,
                                   .is_per_channel = w->quant->n > 1};
    for (size_t c = 0; c < w->quant->n; c++)
        column.largest_scale_w = fmax(column.largest_scale_w, (double)w->quant->scale[c]);
    column.bias = nd_htp_bias(biases, channel, &column.bias_scale);
    return column;
}

bool nd_layer_wraps_bias(const struct nd_exact_layer *layer)
{
    const struct nd_htp_job job = {.layer = layer, .call = layer->call};
    if (layer->dtype != ND_DTYPE_U8 || !nd_linear_has(layer->call, 2) || !nd_htp_is_product(&job))
        return false;
    size_t n = layer->call->inputs[2].values->n, n_scales = layer->call->inputs[1].quant->n;
    if (!nd_htp_is_known_bias(&job, n) || (n_scales > 1 && n_scales != n))
        return false;
    struct nd_htp_biases biases = nd_htp_biases_of(&job);
    for (size_t c = 0; c < n; c++) {
        struct nd_htp_column column = column_of(&biases, c);
        if (nd_htp_bias_wraps(&column))
            return true;
    }
    return false;
}
