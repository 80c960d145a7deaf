/* How far a device's values are from what they should be. */
#include "improve/reduce/difference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

/* Codes fit in a double exactly but for those of 64 bits, which no quantised tensor has. */
static double code_at(enum nd_dtype dtype, const void *data, size_t i)
{
    switch (dtype) {
    case ND_DTYPE_U8:
    case ND_DTYPE_U4:
        return ((const uint8_t *)data)[i];
    case ND_DTYPE_I8:
    case ND_DTYPE_I4:
        return ((const int8_t *)data)[i];
    case ND_DTYPE_U16:
        return ((const uint16_t *)data)[i];
    case ND_DTYPE_I16:
        return ((const int16_t *)data)[i];
    case ND_DTYPE_I32:
        return ((const int32_t *)data)[i];
    case ND_DTYPE_U32:
        return ((const uint32_t *)data)[i];
    default:
        return NAN;
    }
}

static bool is_equal(enum nd_dtype dtype, const unsigned char *ref, const unsigned char *test, size_t size)
{
    if (memcmp(ref, test, size) == 0)
        return true;
    if (dtype == ND_DTYPE_F32) {
        float a, b;
        memcpy(&a, ref, sizeof a);
        memcpy(&b, test, sizeof b);
        return isnan(a) && isnan(b);
    }
    return false;
}

void nd_difference_of(enum nd_dtype dtype, bool is_qvalues, const void *ref, const void *test, size_t n,
                      struct nd_reduction_difference *out)
{
    size_t n_different = 0, size = nd_dtype_size_bytes(dtype);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        n_different += !is_equal(dtype, (const unsigned char *)ref + i * size,
                                 (const unsigned char *)test + i * size, size);
        if (is_qvalues) {
            double steps = fabs(code_at(dtype, ref, i) - code_at(dtype, test, i));
            worst = steps > worst ? steps : worst;
        }
    }
    out->max_lsb = is_qvalues ? worst : NAN;
    out->fraction = n > 0 ? (double)n_different / (double)n : 0;
}

bool nd_difference_exceeds(const struct nd_reduction_difference *difference,
                           const struct nd_reduce_options *options)
{
    /* NaN on either side is not looked at, and never more. */
    return difference->max_lsb > options->lsb || difference->fraction > options->fraction;
}

bool nd_difference_is_worse(const struct nd_reduction_difference *a, const struct nd_reduction_difference *b)
{
    double steps_a = isnan(a->max_lsb) ? 0 : a->max_lsb, steps_b = isnan(b->max_lsb) ? 0 : b->max_lsb;
    return steps_a > steps_b || (!(steps_a < steps_b) && a->fraction > b->fraction);
}

/* Sample `sample` of all probes together, as a capture of the whole model holds it. */
static void locate(const struct nd_capture *capture, size_t *probe, size_t *sample)
{
    for (*probe = 0; *probe + 1 < nd_capture_n_probes(capture); ++*probe) {
        if (*sample < nd_capture_probe(capture, *probe)->n_samples)
            return;
        *sample -= nd_capture_probe(capture, *probe)->n_samples;
    }
}

enum nd_status nd_difference_of_tensor(const struct nd_recorded *recorded, const struct nd_capture *test,
                                       size_t tensor, bool is_of_part, struct nd_reduction_difference *out,
                                       struct nd_error *err)
{
    const struct nd_tensor *known = nd_capture_tensor(test, tensor);
    size_t n = 0, n_bytes = 0;
    bool is_known = true;
    *out = (struct nd_reduction_difference){.max_lsb = NAN, .fraction = NAN};
    enum nd_status status = nd_shape_n_elems(&known->shape, &n, err);
    if (status == ND_OK)
        status = nd_shape_size_bytes(&known->shape, known->dtype, &n_bytes, err);
    if (status != ND_OK)
        return status;
    void *ref = nd_tensor_alloc(n_bytes), *got = nd_tensor_alloc(n_bytes);
    if (ref == NULL || got == NULL)
        status = nd_fail_memory(err);
    for (size_t s = 0; status == ND_OK && is_known && s < recorded->n_samples; s++) {
        size_t probe = 0, sample = s;
        struct nd_reduction_difference one = {.max_lsb = NAN};
        if (!is_of_part)
            locate(test, &probe, &sample);
        if (probe >= nd_capture_n_probes(test) || sample >= nd_capture_probe(test, probe)->n_samples)
            break;
        const struct nd_wanted_record wanted = {known->onnx_name, s, known->dtype, ref, n_bytes};
        status = nd_recorded_read(recorded, &wanted, &is_known, err);
        if (status != ND_OK || !is_known)
            break;
        status = nd_capture_read_verified(&(struct nd_probe_values){test, probe, tensor}, sample, 1, got, err);
        nd_difference_of(known->dtype, known->quant.n > 0, ref, got, n, &one);
        if (status == ND_OK && (s == 0 || nd_difference_is_worse(&one, out)))
            *out = one;
    }
    if (!is_known)
        out->fraction = NAN;
    snprintf(out->tensor, sizeof out->tensor, "%.255s", known->name);
    free(ref);
    free(got);
    return status;
}
