/* What tensors of the whole model held when a reference ran it, and how far what a device computed is from what
 * it should be. */
#include "improve/reduce/difference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

/* The index of the tensor that records the tensor, or SIZE_MAX. */
static size_t nd_recorded_find(const struct nd_capture *capture, const char *tensor)
{
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++)
        if (strcmp(nd_capture_tensor(capture, e)->onnx_name, tensor) == 0)
            return e;
    return SIZE_MAX;
}

enum nd_status nd_recorded_add(struct nd_recorded *recorded, struct nd_capture **capture, bool is_of_part,
                               struct nd_error *err)
{
    size_t n = nd_capture_n_tensors(*capture);
    ND_TRY_MEMORY(
        nd_grow((void **)&recorded->known, &recorded->capacity, recorded->n_known + n, sizeof *recorded->known),
        err);
    for (size_t e = 0; e < n; e++) {
        struct nd_tensor tensor = *nd_capture_tensor(*capture, e);
        /* A reference hands out floats in double precision; the model itself computes in float32. */
        if (tensor.dtype == ND_DTYPE_F64)
            tensor.dtype = ND_DTYPE_F32;
        recorded->known[recorded->n_known++] = tensor;
    }
    recorded->is_of_part[recorded->n_captures] = is_of_part;
    recorded->captures[recorded->n_captures++] = *capture;
    *capture = NULL;
    return ND_OK;
}

void nd_recorded_deinit(struct nd_recorded *recorded)
{
    for (size_t i = 0; i < recorded->n_captures; i++)
        nd_capture_close(&recorded->captures[i]);
    free(recorded->known);
    *recorded = (struct nd_recorded){0};
}

/* Sample number `sample` of all probes together: which probe, and which of its own. */
static bool locate_array(const struct nd_recorded *recorded, size_t *probe, size_t *sample)
{
    for (*probe = 0; *probe < recorded->n_probes; ++*probe) {
        if (*sample < recorded->probes[*probe]->n_samples)
            return true;
        *sample -= recorded->probes[*probe]->n_samples;
    }
    return false;
}

static bool read_probe(const struct nd_recorded *recorded, const struct nd_wanted_record *wanted)
{
    size_t p, sample = wanted->sample, size_bytes = wanted->size_bytes;
    if (!locate_array(recorded, &p, &sample))
        return false;
    const struct nd_probe *probe = recorded->probes[p];
    for (size_t i = 0; i < probe->n_inputs; i++) {
        const struct nd_probe_input *input = &probe->inputs[i];
        if (strcmp(input->name, wanted->tensor) != 0 || input->sample_bytes != size_bytes)
            continue;
        if (size_bytes > 0)
            memcpy(wanted->out, (const unsigned char *)input->data + sample * size_bytes, size_bytes);
        return true;
    }
    return false;
}

/* Of the probe's own samples. */
static enum nd_status read_narrowed(const struct nd_capture *capture, size_t probe, size_t tensor,
                                    size_t sample, const struct nd_wanted_record *wanted, struct nd_error *err)
{
    float *out = wanted->out;
    size_t n = wanted->size_bytes / sizeof *out;
    ND_FREED double *wide = nd_calloc(n, sizeof *wide);
    ND_TRY_MEMORY(wide != NULL, err);
    ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, sample, 1, wide, err));
    for (size_t i = 0; i < n; i++)
        out[i] = (float)wide[i];
    return ND_OK;
}

static enum nd_status read_capture(const struct nd_recorded *recorded, size_t c,
                                   const struct nd_wanted_record *wanted, bool *is_found, struct nd_error *err)
{
    const struct nd_capture *capture = recorded->captures[c];
    size_t probe = 0, sample = wanted->sample, tensor = nd_recorded_find(capture, wanted->tensor),
           has_bytes = 0;
    if (tensor == SIZE_MAX || (!recorded->is_of_part[c] && !locate_array(recorded, &probe, &sample)))
        return ND_OK;
    const struct nd_tensor *known = nd_capture_tensor(capture, tensor);
    if (probe >= nd_capture_n_probes(capture) || sample >= nd_capture_probe(capture, probe)->n_samples ||
        !nd_capture_has_outputs(capture, probe, tensor))
        return ND_OK;
    bool is_narrowed = known->dtype == ND_DTYPE_F64 && wanted->dtype == ND_DTYPE_F32;
    enum nd_status status = nd_shape_size_bytes(&known->shape, known->dtype, &has_bytes, err);
    if (status != ND_OK || has_bytes != (is_narrowed ? 2 * wanted->size_bytes : wanted->size_bytes) ||
        (known->dtype != wanted->dtype && !is_narrowed))
        return status;
    status = is_narrowed ? read_narrowed(capture, probe, tensor, sample, wanted, err)
                         : nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, sample,
                                                    1, wanted->out, err);
    *is_found = status == ND_OK;
    return status;
}

enum nd_status nd_recorded_read(const struct nd_recorded *recorded, const struct nd_wanted_record *wanted,
                                bool *is_found, struct nd_error *err)
{
    *is_found = read_probe(recorded, wanted);
    for (size_t c = 0; !*is_found && c < recorded->n_captures; c++)
        ND_TRY(read_capture(recorded, c, wanted, is_found, err));
    if (!*is_found)
        memset(wanted->out, 0, wanted->size_bytes);
    return ND_OK;
}

/* ---- differences ---- */

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
    ND_FREED void *ref = nd_tensor_alloc(n_bytes), *got = nd_tensor_alloc(n_bytes);
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
    return status;
}
