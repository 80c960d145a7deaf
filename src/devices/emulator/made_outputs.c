/* Outputs of a model as tensors that an evaluation of it makes. */
#include "devices/emulator/made_outputs.h"

#include "arithmetic/exact/eval_graph.h"
#include "core/memory.h"
#include "model/graph/parts.h"

static enum nd_status describe(struct nd_made_outputs *outputs, const struct nd_model *model, size_t i,
                               struct nd_error *err)
{
    const char *name = nd_model_output(model, i)->name;
    struct nd_made_output *output = &outputs->items[i];
    size_t e = nd_model_output_tensor(model, i);
    const struct nd_tensor *tensor = e != SIZE_MAX ? nd_model_tensor(model, e) : NULL;
    bool is_tensor = tensor != NULL && strcmp(tensor->onnx_name, name) == 0;
    if (!is_tensor && (tensor == NULL || tensor->quant.n == 0 || strcmp(tensor->name, name) != 0))
        return nd_fail(err, ND_E_EXACT_OPERATOR, name, "output '%s' cannot be had as it is: record tensors",
                       name);
    if (!is_tensor)
        output->quant = &tensor->quant;
    else if (nd_dtype_is_integer(tensor->dtype) || tensor->dtype == ND_DTYPE_BOOL)
        output->dtype = tensor->dtype;
    output->next = outputs->last_of[e];
    outputs->last_of[e] = i;
    return ND_OK;
}

enum nd_status nd_made_outputs_init(struct nd_made_outputs *outputs, const struct nd_model *model,
                                    enum nd_dtype float_dtype, struct nd_error *err)
{
    size_t n = nd_model_n_outputs(model), n_tensors = nd_model_n_tensors(model);
    outputs->items = nd_calloc(n, sizeof *outputs->items);
    outputs->last_of = nd_calloc(n_tensors, sizeof *outputs->last_of);
    ND_TRY_MEMORY(outputs->items != NULL && outputs->last_of != NULL, err);
    memset(outputs->last_of, 0xFF, n_tensors * sizeof *outputs->last_of);
    for (; outputs->n < n; outputs->n++) {
        outputs->items[outputs->n].dtype = float_dtype;
        ND_TRY(describe(outputs, model, outputs->n, err));
    }
    return ND_OK;
}

void nd_made_outputs_deinit(struct nd_made_outputs *outputs)
{
    ND_FREE_ALL(outputs->items, outputs->last_of);
    *outputs = (struct nd_made_outputs){0};
}

void nd_made_output_store(const struct nd_made_output *output, const struct nd_array *values, void *bytes)
{
    if (output->quant == NULL)
        nd_array_store(output->dtype, values->x, values->n, bytes);
    for (size_t i = 0; output->quant != NULL && i < values->n; i++) {
        size_t channel = nd_exact_channel(output->quant, &values->shape, i);
        double real = (values->x[i] - (double)output->quant->zero_point[channel]) *
                      (double)output->quant->scale[channel]; /* exact */
        nd_array_store(output->dtype, &real, 1,
                       (unsigned char *)bytes + i * nd_dtype_size_bytes(output->dtype));
    }
}
