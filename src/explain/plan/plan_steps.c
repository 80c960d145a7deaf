/* The steps of a plan: tensors of the graphs matched with those of the captures. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/plan/plan.h"
#include "model/graph/onnx.h"

/* ---- what a device has of them ---- */

/* Finds the captured tensor of a step; else *why says in `text` why it cannot be used. */
static enum nd_status find_tensor(struct nd_plan *plan, size_t device, size_t step, struct nd_strbuf *why,
                                  struct nd_error *err)
{
    struct nd_plan_source *source = &plan->sources[device];
    const struct nd_tensor *wanted = nd_plan_tensor(plan, step);
    size_t e = nd_capture_find_tensor(source->capture, wanted->name);
    source->tensors[step] = SIZE_MAX;
    if (e == SIZE_MAX) {
        nd_strbuf_puts(why, "not captured");
        return ND_OK;
    }
    if (!nd_capture_has_outputs(source->capture, source->probe, e)) {
        nd_strbuf_puts(why, "only digests are stored");
        return ND_OK;
    }
    const struct nd_tensor *tensor = nd_capture_tensor(source->capture, e);
    bool is_float = nd_dtype_is_float(tensor->dtype) &&
                    (wanted->dtype == ND_DTYPE_NONE || nd_dtype_is_float(wanted->dtype));
    if ((tensor->dtype != wanted->dtype && !is_float) || !nd_shape_equal(&tensor->shape, &plan->shapes[step])) {
        char shape[256];
        if (nd_onnx_is_qoperator(wanted->op_types)) {
            nd_strbuf_puts(why,
                           "in QOperator format, in which no scale is known; quantise with QuantFormat.QDQ");
            return ND_OK;
        }
        nd_strbuf_printf(why, "captured as %s %s", nd_dtype_name(tensor->dtype),
                         nd_shape_format(&tensor->shape, shape, sizeof shape));
        return ND_OK;
    }
    source->tensors[step] = e;
    return nd_shape_size_bytes(&tensor->shape, tensor->dtype, &source->sample_bytes[step], err);
}

/* Names an input that the layer cannot be given as the device had it. */
static void find_missing_input(const struct nd_plan *plan, size_t device, size_t step, struct nd_strbuf *why)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        if (input == SIZE_MAX || nd_plan_has(plan, device, input))
            continue; /* an input of quantised values is the probe's */
        nd_strbuf_printf(why, "its input '%s' cannot be read", plan->steps[input].name);
        return;
    }
}

static enum nd_status match_step(struct nd_plan *plan, size_t device, size_t step, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf why = {0};
    struct nd_planned_layer *layer = &plan->sources[device].layers[step];
    ND_TRY(find_tensor(plan, device, step, &why, err));
    bool is_read = plan->sources[device].tensors[step] != SIZE_MAX;
    bool is_known = is_read && nd_plan_is_of_qvalues(plan, step);
    if (plan->not_covered[step] != NULL) {
        nd_strbuf_deinit(&why); /* to capture it would not help */
        nd_strbuf_puts(&why, plan->not_covered[step]);
    } else if (is_read && !is_known) {
        nd_strbuf_puts(&why, "its values are no quantised values");
    } else if (is_read) {
        find_missing_input(plan, device, step, &why);
    }
    layer->is_examined = why.len == 0 && !why.failed;
    if (layer->is_examined)
        return ND_OK;
    layer->why_not = nd_strbuf_take(&why);
    return layer->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

void nd_plan_find_totals(struct nd_plan *plan)
{
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps; s++)
            plan->sources[d].layers[s].has_total =
                plan->sources[d].tensors[s] != SIZE_MAX && nd_plan_is_of_qvalues(plan, s) &&
                plan->steps[s].unreached_from == SIZE_MAX && plan->steps[s].substituted_from == SIZE_MAX;
}

/* Steps are in graph order: what a layer reads has been looked for before it. */
enum nd_status nd_plan_match_device(struct nd_plan *plan, size_t device, struct nd_error *err)
{
    struct nd_plan_source *source = &plan->sources[device];
    source->layers = nd_calloc(plan->n_steps, sizeof *source->layers);
    source->tensors = nd_calloc(plan->n_steps, sizeof *source->tensors);
    source->sample_bytes = nd_calloc(plan->n_steps, sizeof *source->sample_bytes);
    source->carried = nd_calloc(plan->n_steps, sizeof *source->carried);
    ND_TRY_MEMORY(source->layers != NULL && source->tensors != NULL && source->sample_bytes != NULL &&
                      source->carried != NULL,
                  err);
    for (size_t s = 0; s < plan->n_steps; s++) {
        if (!source->is_failed) {
            ND_TRY(match_step(plan, device, s, err));
            continue;
        }
        source->tensors[s] = SIZE_MAX;
        source->layers[s].why_not = nd_strdup("the device failed");
        ND_TRY_MEMORY(source->layers[s].why_not != NULL, err);
    }
    return ND_OK;
}

/* Layers that only lacked an input. */
enum nd_status nd_plan_match_carried(struct nd_plan *plan, size_t device, struct nd_error *err)
{
    struct nd_plan_source *source = &plan->sources[device];
    for (size_t s = 0; s < plan->n_steps; s++)
        if (source->tensors[s] != SIZE_MAX && nd_plan_reads_carried(plan, device, s)) {
            free(source->layers[s].why_not);
            source->layers[s].why_not = NULL;
            ND_TRY(match_step(plan, device, s, err));
        }
    return ND_OK;
}

bool nd_plan_reads_carried(const struct nd_plan *plan, size_t device, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        if (input != SIZE_MAX && plan->sources[device].carried[input] != NULL)
            return true;
    }
    return false;
}
