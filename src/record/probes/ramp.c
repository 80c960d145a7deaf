/* zeros, ones and ramp: the probes that need neither samples nor a seed. docs/reference/probes.md#constants and
 * #ramp. */
#include "record/probes/element.h"
#include "record/probes/generate.h"

static size_t sample_elems(const struct nd_probe_target *target)
{
    size_t n = 0;
    nd_shape_n_elems(&target->shape, &n, NULL); /* checked when the probe was created */
    return n;
}

static void fill_constant(const struct nd_probe_target *target, size_t n_samples, unsigned value, void *data)
{
    size_t n = n_samples * sample_elems(target);
    for (size_t i = 0; i < n; i++) {
        if (nd_dtype_is_float(target->dtype))
            nd_element_put_float(target->dtype, data, i, (float)value);
        else
            nd_element_put_bits(target->dtype, data, i, value);
    }
}

enum nd_status nd_generate_zeros(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                 void *data, struct nd_error *err)
{
    (void)err;
    fill_constant(target, args->n_samples, 0, data);
    return ND_OK;
}

enum nd_status nd_generate_ones(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                void *data, struct nd_error *err)
{
    (void)err;
    fill_constant(target, args->n_samples, 1, data);
    return ND_OK;
}

/* floor(i * last / (n - 1)), where n is below 2^36 and last below 2^16: from 0 to last as i runs over n
 * elements. */
static uint64_t ramp_step(uint64_t i, uint64_t n, uint64_t last)
{
    return n > 1 ? i * last / (n - 1) : 0;
}

static float ramp_without_quantiser(uint64_t i, uint64_t n)
{
    return n > 1 ? (float)((double)(2 * (int64_t)i - (int64_t)(n - 1)) / (double)(n - 1)) : -1.0f;
}

static void ramp_codes(const struct nd_probe_target *target, size_t n, void *data)
{
    struct nd_code_range range = nd_code_range_of_input(target);
    uint64_t mask = target->dtype == ND_DTYPE_BOOL ? 1 : UINT64_MAX >> (64u - range.n_bits);
    for (size_t i = 0; i < n; i++) {
        uint64_t code = i & mask;
        if (target->dtype != ND_DTYPE_BOOL && code > range.max)
            code -= mask + 1; /* past the largest code: go on with the smallest, which is negative */
        nd_element_put_bits(target->dtype, data, i, code);
    }
}

enum nd_status nd_generate_ramp(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                void *data, struct nd_error *err)
{
    (void)args;
    size_t n = sample_elems(target);
    if (!nd_dtype_is_float(target->dtype)) {
        ramp_codes(target, n, data);
        return ND_OK;
    }
    struct nd_quantiser quantiser = {0};
    bool has_quantiser = nd_target_has_quantiser(target);
    enum nd_status status = has_quantiser ? nd_quantiser_init(&quantiser, target, err) : ND_OK;
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < n; i++) {
        float value;
        if (has_quantiser) {
            size_t channel = nd_quantiser_channel(&quantiser, i);
            uint64_t last = (uint64_t)(quantiser.code_max - quantiser.code_min);
            int64_t code = quantiser.code_min + (int64_t)ramp_step(i, n, last);
            value = quantiser.quant->scale[channel] * (float)(code - quantiser.quant->zero_point[channel]);
        } else {
            value = ramp_without_quantiser(i, n);
        }
        nd_element_put_float(target->dtype, data, i, value);
    }
    return ND_OK;
}
