#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "npudiff/device.h"

enum nd_status nd_probes_for_model(const struct nd_model *model, const char *const *specs, size_t n_specs,
                                   struct nd_probe **probes, struct nd_error *err)
{
    size_t n = nd_model_n_inputs(model);
    struct nd_probe_target *targets = nd_calloc(n + 1, sizeof *targets);
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
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n_specs; i++)
        status = nd_probe_create(specs[i], targets, n, &probes[i], err);
    free(targets);
    return status;
}
