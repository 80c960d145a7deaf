/* uniform: a counter-based generator, so that an element depends on nothing but its own place.
 * docs/reference/probes.md#uniform. */
#include "core/random.h"
#include "record/probes/element.h"
#include "record/probes/generate.h"

/* FNV-1a, 64 bits. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const unsigned char *at = (const unsigned char *)name; *at != '\0'; at++)
        hash = (hash ^ *at) * 0x100000001b3u;
    return hash;
}

static float uniform_float(uint64_t bits, const struct nd_quantiser *quantiser, size_t i)
{
    if (quantiser->quant == NULL)
        return (float)(bits >> 40) * 0x1p-24f;
    size_t channel = nd_quantiser_channel(quantiser, i);
    double scale = (double)quantiser->quant->scale[channel];
    double low = scale * (double)(quantiser->code_min - quantiser->quant->zero_point[channel]);
    double width = scale * (double)(quantiser->code_max - quantiser->code_min);
    double share = nd_random_share(bits);
    double offset = share * width;
    return (float)(low + offset);
}

enum nd_status nd_generate_uniform(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                   void *data, struct nd_error *err)
{
    size_t n = 0;
    nd_shape_n_elems(&target->shape, &n, NULL); /* checked when the probe was created */
    struct nd_quantiser quantiser = {0};
    if (nd_target_has_quantiser(target)) {
        enum nd_status status = nd_quantiser_init(&quantiser, target, err);
        if (status != ND_OK)
            return status;
    }
    bool is_float = nd_dtype_is_float(target->dtype);
    struct nd_code_range range = {0, 1, 1}; /* of bool */
    if (nd_dtype_is_integer(target->dtype))
        range = nd_code_range_of_input(target);
    uint64_t stream = nd_splitmix_output(nd_splitmix_output(args->seed) ^ hash_name(target->name));
    for (size_t sample = 0; sample < args->n_samples; sample++) {
        uint64_t state = nd_splitmix_output(stream + sample * ND_SPLITMIX_GAMMA);
        for (size_t i = 0; i < n; i++) {
            uint64_t bits = nd_splitmix_output(state + (i + 1) * ND_SPLITMIX_GAMMA);
            if (is_float)
                nd_element_put_float(target->dtype, data, sample * n + i, uniform_float(bits, &quantiser, i));
            else
                nd_element_put_bits(target->dtype, data, sample * n + i,
                                    (uint64_t)range.min + (bits >> (64u - range.n_bits)));
        }
    }
    return ND_OK;
}
