/* The samples of the probes as files of the codes that the context takes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "record/probes/element.h"
#include "record/qnn/prepare_internal.h"

char *nd_prepare_input_path(const struct nd_prepare_work *work, size_t probe, size_t sample, size_t input)
{
    /* An item of an input list ends at a space: the probe's own name may hold anything. */
    char *name = nd_native_name(work->probes[probe]->name);
    struct nd_strbuf text = {0};
    if (name == NULL)
        return NULL;
    nd_strbuf_printf(&text, "inputs/%zu_%.60s/%06zu/%s.raw", probe, name, sample,
                     work->inputs[input].context_name);
    free(name);
    return nd_strbuf_take(&text);
}

/* ---- codes ---- */

static void put_code(enum nd_dtype dtype, void *codes, size_t i, int64_t code)
{
    if (nd_dtype_size_bytes(dtype) == 1)
        ((uint8_t *)codes)[i] = (uint8_t)code;
    else
        ((uint16_t *)codes)[i] = (uint16_t)code;
}

void nd_prepare_quantise(const float *values, size_t n, const struct nd_quant *quant, size_t n_inner,
                         enum nd_dtype dtype, void *codes)
{
    const struct nd_code_range range = nd_code_range_of(dtype);
    const float lowest = (float)range.min, highest = (float)((int64_t)range.max);
    for (size_t i = 0; i < n; i++) {
        size_t channel = (i / n_inner) % quant->n;
        float zero_point = (float)quant->zero_point[channel];
        float scaled = values[i] / quant->scale[channel];
        /* Clipped before it is rounded, so that the conversion cannot overflow; NaN fails every comparison. */
        if (!(scaled > lowest - zero_point))
            scaled = lowest - zero_point;
        if (scaled > highest - zero_point)
            scaled = highest - zero_point;
        put_code(dtype, codes, i, (int64_t)nearbyintf(scaled) + quant->zero_point[channel]);
    }
}

static enum nd_status quantise_sample(const struct nd_prepare_work *work,
                                      const struct nd_prepared_tensor *tensor, const void *data, void *codes,
                                      struct nd_error *err)
{
    const struct nd_model_io *input = nd_model_input(work->model, tensor->index);
    const struct nd_probe_target target = {.name = input->name,
                                           .dtype = input->dtype,
                                           .shape = input->shape,
                                           .quant = tensor->quant,
                                           .quant_dtype = tensor->dtype};
    struct nd_quantiser quantiser;
    size_t n = 0;
    if (input->dtype != ND_DTYPE_F32 || tensor->quant == NULL)
        return nd_fail(
            err, ND_E_PREPARE_INPUT, input->name,
            "input '%s' is %s and quantised in a way that is not handled here: float32 with constant "
            "scales is",
            input->name, nd_dtype_name(input->dtype));
    enum nd_status status = nd_quantiser_init(&quantiser, &target, err);
    if (status == ND_OK)
        status = nd_shape_n_elems(&input->shape, &n, err);
    if (status == ND_OK)
        nd_prepare_quantise(data, n, tensor->quant, quantiser.n_inner, tensor->dtype, codes);
    return status;
}

/* ---- files ---- */

static enum nd_status write_input(struct nd_prepare_work *work, size_t probe, size_t sample, size_t input,
                                  struct nd_digest *digest, struct nd_error *err)
{
    const struct nd_prepared_tensor *tensor = &work->inputs[input];
    const struct nd_probe_input *from = &work->probes[probe]->inputs[tensor->index];
    const char *data = (const char *)from->data + sample * from->sample_bytes;
    void *codes = NULL;
    enum nd_status status = ND_OK;
    char *path = nd_prepare_input_path(work, probe, sample, input);
    if (path == NULL)
        return nd_fail_memory(err);
    if (tensor->is_quantised_here) {
        codes = nd_tensor_alloc(tensor->size_bytes);
        status = codes != NULL ? quantise_sample(work, tensor, data, codes, err) : nd_fail_memory(err);
        data = codes;
    }
    if (status == ND_OK) {
        *digest = nd_digest_bytes(data, tensor->size_bytes);
        status = nd_prepare_put(work, path, data, tensor->size_bytes, err);
    }
    free(codes);
    free(path);
    return status;
}

static enum nd_status add_line(struct nd_prepare_work *work, size_t probe, size_t sample,
                               struct nd_digest *digests, struct nd_strbuf *list, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < work->n_inputs; i++) {
        status = write_input(work, probe, sample, i, &digests[i], err);
        char *path = nd_prepare_input_path(work, probe, sample, i);
        if (path == NULL)
            return nd_fail_memory(err);
        nd_strbuf_printf(list, "%s%s:=%s", i > 0 ? " " : "", work->inputs[i].context_name, path);
        free(path);
    }
    nd_strbuf_puts(list, "\n");
    return status;
}

enum nd_status nd_prepare_inputs(struct nd_prepare_work *work, struct nd_error *err)
{
    struct nd_strbuf list = {0};
    size_t n_samples = 0, n = 0, at = 0;
    for (size_t p = 0; p < work->n_probes; p++)
        n_samples += work->probes[p]->n_samples;
    if (work->n_inputs == 0)
        return nd_fail(err, ND_E_PREPARE_INPUT, nd_model_path(work->model),
                       "'%s' has no inputs, and qnn-net-run needs some to run it", nd_model_path(work->model));
    if (!nd_size_mul(n_samples, work->n_inputs, &n) ||
        (work->digests = nd_calloc(n, sizeof *work->digests)) == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t p = 0; status == ND_OK && p < work->n_probes; p++)
        for (size_t s = 0; status == ND_OK && s < work->probes[p]->n_samples; s++) {
            status = add_line(work, p, s, &work->digests[at], &list, err);
            at += work->n_inputs;
        }
    size_t n_bytes = list.len;
    char *text = nd_strbuf_take(&list);
    if (status == ND_OK && text == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_prepare_put(work, "input_list.txt", text, n_bytes, err);
    free(text);
    return status;
}
