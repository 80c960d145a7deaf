/* ties: floats whose quotient by the scale lies half-way between two codes. docs/reference/probes.md#ties. */
#include <string.h>

#include "record/probes/element.h"
#include "record/probes/generate.h"

/* A stride that is coprime to the number of ties of every quantiser (255 = 3*5*17, 65535 = 3*5*17*257): every
 * tie has its turn, and the few that fit into a small input are spread over the whole range. */
static const uint64_t tie_stride = 40504;

/* The values of a float type as integers in the order of the reals, so that neighbours differ by one; both
 * zeros are key 0. float64 inputs take float32 values. */
static int32_t key_of(enum nd_dtype dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = 0x80000000u;
    if (dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_BF16) {
        bits = dtype == ND_DTYPE_F16 ? nd_f16_from_f32(value) : nd_bf16_from_f32(value);
        sign = 0x8000u;
    }
    int32_t magnitude = (int32_t)(bits & (sign - 1u));
    return (bits & sign) != 0 ? -magnitude : magnitude;
}

static float value_of(enum nd_dtype dtype, int32_t key)
{
    uint32_t magnitude = (uint32_t)(key < 0 ? -key : key);
    float value;
    if (dtype == ND_DTYPE_F16)
        value = nd_f32_from_f16((uint16_t)magnitude);
    else if (dtype == ND_DTYPE_BF16)
        value = nd_f32_from_bf16((uint16_t)magnitude);
    else
        memcpy(&value, &magnitude, sizeof value);
    return key < 0 ? -value : value;
}

/* A value x of the type with x / scale == tie in float32; where there is none, the neighbour of the tie on the
 * side asked for. */
static float find_tie(enum nd_dtype dtype, float scale, float tie, bool above)
{
    static const int32_t nearest_first[] = {0, 1, -1, 2, -2};
    static const int32_t rising[] = {-2, -1, 0, 1, 2};
    int32_t middle = key_of(dtype, (float)((double)tie * (double)scale));
    for (size_t j = 0; j < 5; j++) {
        float x = value_of(dtype, middle + nearest_first[j]);
        float quotient = x / scale;
        if (quotient == tie)
            return x;
    }
    for (size_t j = 0; j < 5; j++) {
        float x = value_of(dtype, middle + (above ? rising[j] : -rising[j]));
        float quotient = x / scale;
        if (above ? quotient > tie : quotient < tie)
            return x;
    }
    return value_of(dtype, middle);
}

enum nd_status nd_generate_ties(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                void *data, struct nd_error *err)
{
    if (!nd_target_has_quantiser(target))
        return nd_generate_zeros(target, args, data, err);
    struct nd_quantiser quantiser;
    enum nd_status status = nd_quantiser_init(&quantiser, target, err);
    if (status != ND_OK)
        return status;
    size_t n = 0;
    nd_shape_n_elems(&target->shape, &n, NULL); /* checked when the probe was created */
    uint64_t n_ties = (uint64_t)(quantiser.code_max - quantiser.code_min);
    for (uint64_t j = 0; j < (uint64_t)args->n_samples * n; j++) {
        size_t channel = nd_quantiser_channel(&quantiser, (size_t)(j % n));
        uint64_t number = j % n_ties * tie_stride % n_ties;
        bool above = (number + j / n_ties) % 2 == 1;
        int64_t step = quantiser.code_min + (int64_t)number - quantiser.quant->zero_point[channel];
        float x = find_tie(target->dtype, quantiser.quant->scale[channel], (float)step + 0.5f, above);
        nd_element_put_float(target->dtype, data, (size_t)j, x);
    }
    return ND_OK;
}

enum nd_status nd_generate_check_ties(const struct nd_probe_target *targets, size_t n_targets,
                                      struct nd_error *err)
{
    for (size_t i = 0; i < n_targets; i++)
        if (nd_target_has_quantiser(&targets[i]))
            return ND_OK;
    if (n_targets == 0)
        return nd_fail(err, ND_E_PROBE_SPEC, "ties", "probe 'ties': the model has no inputs");
    const char *name = targets[0].name;
    if (nd_dtype_is_float(targets[0].dtype))
        return nd_fail(
            err, ND_E_PROBE_SPEC, name,
            "probe 'ties' needs an input that is quantised inside the model; %s'%s' has no quantiser",
            n_targets == 1 ? "input " : "no input has, input ", name);
    return nd_fail(
        err, ND_E_PROBE_SPEC, name,
        "probe 'ties' needs a float input that is quantised inside the model; %s'%s' takes %s codes, "
        "which are never rounded",
        n_targets == 1 ? "input " : "no input is one, input ", name, nd_dtype_name(targets[0].dtype));
}
