#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "npudiff/devices/device.h"
#include "record/probes/for_model.h"

/* ---- values ---- */

/* The bits of a value that are all set in NaN and infinities (float8_e4m3fn has no infinities, and one NaN per
 * sign); 0 for types that have neither. */
static uint64_t special_bits(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_F64:
        return UINT64_C(0x7ff0000000000000);
    case ND_DTYPE_F32:
        return 0x7f800000;
    case ND_DTYPE_F16:
        return 0x7c00;
    case ND_DTYPE_BF16:
        return 0x7f80;
    case ND_DTYPE_F8E5M2:
        return 0x7c;
    case ND_DTYPE_F8E4M3FN:
        return 0x7f;
    default:
        return 0;
    }
}

/* The first element that is NaN or infinite, or n. Little endian, as probes are. */
static size_t find_special(enum nd_dtype dtype, const unsigned char *data, size_t n)
{
    uint64_t special = special_bits(dtype);
    size_t elem_bytes = nd_dtype_size_bytes(dtype);
    for (size_t i = 0; special != 0 && i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, data + i * elem_bytes, elem_bytes);
        if ((bits & special) == special)
            return i;
    }
    return n;
}

static enum nd_status check_values(const struct nd_probe *probe, struct nd_error *err)
{
    for (size_t k = 0; k < probe->n_inputs; k++) {
        const struct nd_probe_input *input = &probe->inputs[k];
        size_t elem_bytes = nd_dtype_size_bytes(input->dtype);
        size_t n = elem_bytes > 0 ? input->sample_bytes / elem_bytes : 0;
        size_t at = find_special(input->dtype, input->data, n * probe->n_samples);
        if (at < n * probe->n_samples)
            return nd_fail(
                err, ND_E_PROBE_VALUES, input->name,
                "probe '%s': input '%s' holds NaN or an infinity in sample %zu, element %zu ('npudiff "
                "capture' feeds it with --allow-nonfinite)",
                probe->name, input->name, at / n, at % n);
    }
    return ND_OK;
}

/* ---- labels ---- */

/* Elements of the largest output; 0 while one is not known. */
static size_t count_classes(const struct nd_model *model)
{
    size_t most = 0;
    for (size_t i = 0; i < nd_model_n_outputs(model); i++) {
        const struct nd_shape *shape = &nd_model_output(model, i)->shape;
        size_t n = 0;
        for (int d = 0; d < shape->rank; d++)
            if (shape->dims[d] < 0)
                return 0;
        if (shape->rank < 0 || nd_shape_n_elems(shape, &n, NULL) != ND_OK)
            return 0;
        most = n > most ? n : most;
    }
    return most;
}

static enum nd_status check_labels(const struct nd_model *model, const struct nd_probe *probe,
                                   struct nd_error *err)
{
    size_t n_classes = count_classes(model);
    for (size_t s = 0; probe->labels != NULL && n_classes > 1 && s < probe->n_samples; s++)
        if (probe->labels[s] < 0 || (uint64_t)probe->labels[s] >= n_classes)
            return nd_fail(err, ND_E_PROBE_LABELS, probe->name,
                           "probe '%s': the label of sample %zu is %lld; '%s' has %zu classes, 0 to %zu",
                           probe->name, s, (long long)probe->labels[s], nd_model_path(model), n_classes,
                           n_classes - 1);
    return ND_OK;
}

/* ---- all of it ---- */

enum nd_status nd_probe_for_model(const struct nd_model *model, const char *spec, struct nd_probe **out,
                                  struct nd_error *err)
{
    size_t n = nd_model_n_inputs(model);
    struct nd_probe_target *targets = nd_calloc(n, sizeof *targets);
    if (targets == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *input = nd_model_input(model, i);
        targets[i] = (struct nd_probe_target){.name = input->name,
                                              .dtype = input->dtype,
                                              .shape = input->shape,
                                              .quant = input->quant,
                                              .quant_dtype = input->quant_dtype};
    }
    enum nd_status status = nd_probe_create(spec, targets, n, out, err);
    free(targets);
    return status;
}

enum nd_status nd_probes_for_model_any(const struct nd_model *model, const char *const *specs, size_t n_specs,
                                       struct nd_probe **probes, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n_specs; i++) {
        status = nd_probe_for_model(model, specs[i], &probes[i], err);
        if (status == ND_OK)
            status = check_labels(model, probes[i], err);
    }
    return status;
}

enum nd_status nd_probes_for_model(const struct nd_model *model, const char *const *specs, size_t n_specs,
                                   struct nd_probe **probes, struct nd_error *err)
{
    enum nd_status status = nd_probes_for_model_any(model, specs, n_specs, probes, err);
    for (size_t i = 0; status == ND_OK && i < n_specs; i++)
        status = check_values(probes[i], err);
    return status;
}
