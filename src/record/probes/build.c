#include "record/probes/build.h"

#include <stdlib.h>

#include "core/memory.h"

enum nd_status nd_probe_create_empty(const char *name, const char *source,
                                     const struct nd_probe_target *targets, size_t n_targets,
                                     struct nd_probe **out, struct nd_error *err)
{
    enum nd_status status;
    struct nd_probe *probe = nd_calloc(1, sizeof *probe);
    if (probe == NULL)
        return nd_fail_memory(err);
    probe->name = nd_strdup(name);
    probe->source = nd_strdup(source);
    probe->inputs = nd_calloc(n_targets, sizeof *probe->inputs);
    if (probe->name == NULL || probe->source == NULL || probe->inputs == NULL) {
        status = nd_fail_memory(err);
        goto out;
    }
    probe->n_inputs = n_targets;
    for (size_t i = 0; i < n_targets; i++) {
        struct nd_probe_input *input = &probe->inputs[i];
        if (targets[i].dtype > ND_DTYPE_BF16) { /* the model's reader gives none of these */
            status =
                nd_fail(err, ND_E_MODEL_UNSUPPORTED, targets[i].name, "input '%s' is %s, which no probe makes",
                        targets[i].name, nd_dtype_name(targets[i].dtype));
            goto out;
        }
        status = nd_shape_size_bytes(&targets[i].shape, targets[i].dtype, &input->sample_bytes, err);
        if (status != ND_OK) {
            nd_error_context(err, "input '%s'", targets[i].name);
            goto out;
        }
        input->dtype = targets[i].dtype;
        input->shape = targets[i].shape;
        input->name = nd_strdup(targets[i].name);
        if (input->name == NULL) {
            status = nd_fail_memory(err);
            goto out;
        }
    }
    *out = probe;
    probe = NULL;
    status = ND_OK;
out:
    nd_probe_destroy(&probe);
    return status;
}

size_t nd_probe_most_bytes(void)
{
    size_t memory = nd_machine_memory();
    return memory < ND_PROBE_MAX_BYTES ? memory : (size_t)ND_PROBE_MAX_BYTES;
}

enum nd_status nd_probe_set_samples(struct nd_probe *probe, size_t n_samples, struct nd_error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < probe->n_inputs; i++) {
        size_t bytes;
        if (!nd_size_mul(n_samples, probe->inputs[i].sample_bytes, &bytes) ||
            !nd_size_add(total, bytes, &total) || total > nd_probe_most_bytes())
            return nd_fail(err, ND_E_SIZE_OVERFLOW, probe->name,
                           "probe '%s': %zu samples take more than the %zu bytes accepted here", probe->name,
                           n_samples, nd_probe_most_bytes());
    }
    probe->n_samples = n_samples;
    return ND_OK;
}

enum nd_status nd_probe_alloc_input(const struct nd_probe *probe, size_t input, struct nd_error *err)
{
    struct nd_probe_input *made = &probe->inputs[input];
    made->data = nd_tensor_alloc(probe->n_samples * made->sample_bytes); /* nd_probe_set_samples checked it */
    return made->data != NULL ? ND_OK : nd_fail_memory(err);
}

void nd_probe_destroy(struct nd_probe **probe)
{
    if (*probe == NULL)
        return;
    for (size_t i = 0; i < (*probe)->n_inputs; i++) {
        free((*probe)->inputs[i].name);
        free((*probe)->inputs[i].data);
    }
    free((*probe)->inputs);
    free((*probe)->labels);
    nd_probe_goals_deinit(*probe);
    free((*probe)->name);
    free((*probe)->source);
    free(*probe);
    *probe = NULL;
}
