/* The steps of a plan: tensors of the graphs matched with those of the captures. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "explain/plan/plan.h"
#include "explain/plan/survey.h"
#include "model/graph/onnx.h"

/* ---- what of the model can be evaluated ---- */

/* Two surveys: what the model makes of its inputs alone has a reference; and with the tensors that have none
 * given as captures have them, what lies behind them can still be worked out from a device's own inputs. */
struct finding {
    struct nd_survey alone, given;
    struct nd_array *zeros; /* [n_edges] */
};

static void finding_deinit(struct finding *finding)
{
    for (size_t e = 0; finding->zeros != NULL && e < finding->alone.n_tensors; e++)
        if (finding->zeros[e].shape.rank >= 0)
            nd_array_deinit(&finding->zeros[e]);
    free(finding->zeros);
    nd_survey_deinit(&finding->alone);
    nd_survey_deinit(&finding->given);
}

/* Zeros of the shape that a device captured; nothing when none did. */
static enum nd_status make_zeros(const struct nd_plan *plan, size_t e, struct nd_array *zeros,
                                 struct nd_error *err)
{
    for (size_t d = 0; d < plan->n_devices; d++) {
        const struct nd_plan_source *source = &plan->sources[d];
        size_t k = source->is_failed
                       ? SIZE_MAX
                       : nd_capture_find_tensor(source->capture, nd_model_tensor(plan->model, e)->name);
        if (k == SIZE_MAX || nd_capture_tensor(source->capture, k)->shape.rank < 0)
            continue;
        *zeros = (struct nd_array){0};
        return nd_array_make(zeros, nd_capture_tensor(source->capture, k)->dtype,
                             &nd_capture_tensor(source->capture, k)->shape, err);
    }
    return ND_OK;
}

static enum nd_status survey_given(const struct nd_plan *plan, struct finding *finding, struct nd_error *err)
{
    size_t n = finding->alone.n_tensors;
    finding->zeros = nd_calloc(n, sizeof *finding->zeros);
    ND_TRY_MEMORY(finding->zeros != NULL, err);
    for (size_t e = 0; e < n; e++)
        finding->zeros[e].shape.rank = -1;
    for (size_t e = 0; e < n; e++)
        if (finding->alone.tensors[e].why != NULL)
            ND_TRY(make_zeros(plan, e, &finding->zeros[e], err));
    return nd_survey_run(&finding->given, plan->model, plan->graph, finding->zeros, err);
}

/* Computed, captured, or what the model says. */
static struct nd_shape shape_of(const struct nd_plan *plan, const struct finding *finding, size_t e)
{
    const struct nd_shape *declared = &nd_model_tensor(plan->model, e)->shape;
    if (finding->alone.tensors[e].is_found)
        return finding->alone.tensors[e].shape;
    if (finding->given.tensors[e].is_found)
        return finding->given.tensors[e].shape;
    if (finding->zeros[e].shape.rank >= 0)
        return finding->zeros[e].shape;
    bool is_fixed = declared->rank >= 0;
    for (int d = 0; d < declared->rank; d++)
        is_fixed = is_fixed && declared->dims[d] >= 0;
    return is_fixed ? *declared : (struct nd_shape){.rank = 1}; /* nobody has values of it */
}

/* What a layer reads that is not known is said of each device. */
static enum nd_status say_uncovered(struct nd_plan *plan, const struct finding *finding, size_t s,
                                    struct nd_error *err)
{
    const struct nd_explained_step *step = &plan->steps[s];
    const struct nd_survey_sight *sight = &finding->given.tensors[step->tensor];
    if (sight->why == NULL || (sight->needs != SIZE_MAX && step->is_layer))
        return ND_OK;
    plan->not_covered[s] = nd_text("%s cannot be evaluated: %s", step->op_types, sight->why);
    return plan->not_covered[s] != NULL ? ND_OK : nd_fail_memory(err);
}

/* Once all steps are known: those that each layer reads. */
static enum nd_status find_inputs(struct nd_plan *plan, struct nd_error *err)
{
    for (size_t s = 0; s < plan->n_steps; s++) {
        struct nd_explained_step *step = &plan->steps[s];
        const struct nd_model_layer *layer = nd_model_layer_of_tensor(plan->model, step->tensor);
        if (layer == NULL)
            continue;
        step->inputs = nd_calloc(layer->n_inputs + 1, sizeof *step->inputs);
        ND_TRY_MEMORY(step->inputs != NULL, err);
        for (size_t i = 0; i < layer->n_inputs; i++)
            if (plan->step_of_tensor[layer->inputs[i]] != SIZE_MAX)
                step->inputs[step->n_inputs++] = plan->step_of_tensor[layer->inputs[i]];
    }
    return ND_OK;
}

/* Once all steps are known. */
static enum nd_status find_unreached(struct nd_plan *plan, const struct finding *finding, struct nd_error *err)
{
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t e = plan->steps[s].tensor;
        if (finding->alone.tensors[e].why == NULL)
            continue;
        plan->steps[s].unreached_from = plan->step_of_tensor[nd_survey_root(&finding->alone, e)];
        ND_TRY(say_uncovered(plan, finding, s, err));
    }
    return ND_OK;
}

static enum nd_status add_step(struct nd_plan *plan, const struct finding *finding, size_t e,
                               struct nd_error *err)
{
    const struct nd_tensor *tensor = nd_model_tensor(plan->model, e);
    struct nd_explained_step *step = &plan->steps[plan->n_steps];
    *step = (struct nd_explained_step){.name = nd_strdup(tensor->name),
                                       .op_types = nd_strdup(tensor->op_types),
                                       .tensor = e,
                                       .is_layer = nd_model_layer_of_tensor(plan->model, e) != NULL,
                                       .is_model_output = tensor->is_model_output,
                                       .unreached_from = SIZE_MAX,
                                       .substituted_from = SIZE_MAX};
    plan->shapes[plan->n_steps] = shape_of(plan, finding, e);
    plan->step_of_tensor[e] = plan->n_steps;
    plan->n_steps++;
    return step->name != NULL && step->op_types != NULL &&
                   nd_names_add(&plan->step_of_name, tensor->name, plan->n_steps - 1)
               ? ND_OK
               : nd_fail_memory(err);
}

/* ---- the float model ---- */

/* Models of one family share a name or two: less than half of the names is another model. n_floats: tensors of
 * the same name that are floats in both. */
static enum nd_status check_float_model(const struct nd_plan *plan, size_t n_floats, struct nd_error *err)
{
    size_t n = 0;
    for (size_t s = 0; s < plan->n_steps; s++)
        n += plan->steps[s].has_float || plan->steps[s].lacks_float;
    if (2 * n >= plan->n_steps)
        return ND_OK;
    const char *path = nd_model_path(plan->float_model);
    if (2 * (n + n_floats) >= plan->n_steps)
        return nd_fail(err, ND_E_COMPARE_MODEL, path,
                       "'%s' has %zu of the %zu tensors of '%s', but %zu of them are floats there, too, and "
                       "were not quantised: without --float it is explained as it is",
                       path, n + n_floats, plan->n_steps, nd_model_path(plan->model), n_floats);
    return nd_fail(err, ND_E_COMPARE_MODEL, path,
                   "'%s' is not '%s' before quantisation: it has %zu of its %zu tensors", path,
                   nd_model_path(plan->model), n, plan->n_steps);
}

/* A tensor of the same name, number of elements and known scale. The input's float tensor is no tensor of a
 * float model: its values are the probe's. */
static void match_float_tensor(struct nd_plan *plan, const struct nd_survey_sight *sight, size_t e,
                               size_t *n_floats)
{
    size_t s = nd_names_find(&plan->step_of_name, nd_model_tensor(plan->float_model, e)->name), n;
    if (s == SIZE_MAX)
        return;
    if (nd_plan_tensor(plan, s)->quant.n == 0) {
        ++*n_floats;
        return;
    }
    struct nd_explained_step *step = &plan->steps[s];
    step->lacks_float |= sight->why != NULL;
    if (!sight->is_found || nd_shape_n_elems(&plan->shapes[s], &n, NULL) != ND_OK || n != sight->n)
        return;
    plan->step_of_float[e] = s;
    step->has_float = true;
}

static enum nd_status match_float_steps(struct nd_plan *plan, struct nd_error *err)
{
    ND_CLEANUP(nd_survey_deinit) struct nd_survey survey = {0};
    size_t n_tensors = nd_model_n_tensors(plan->float_model), n_floats = 0;
    ND_TRY(nd_survey_run(&survey, plan->float_model, plan->float_graph, NULL, err));
    plan->step_of_float = nd_calloc(n_tensors, sizeof *plan->step_of_float);
    ND_TRY_MEMORY(plan->step_of_float != NULL, err);
    for (size_t e = 0; e < n_tensors; e++) {
        plan->step_of_float[e] = SIZE_MAX;
        match_float_tensor(plan, &survey.tensors[e], e, &n_floats);
    }
    return check_float_model(plan, n_floats, err);
}

enum nd_status nd_plan_find_steps(struct nd_plan *plan, struct nd_error *err)
{
    struct finding finding = {0};
    size_t n_tensors = nd_model_n_tensors(plan->model);
    enum nd_status status = nd_survey_run(&finding.alone, plan->model, plan->graph, NULL, err);
    if (status == ND_OK && finding.alone.n_missed > 0)
        status = survey_given(plan, &finding, err);
    plan->steps = nd_calloc(n_tensors, sizeof *plan->steps);
    plan->shapes = nd_calloc(n_tensors, sizeof *plan->shapes);
    plan->step_of_tensor = nd_calloc(n_tensors, sizeof *plan->step_of_tensor);
    plan->not_covered = nd_calloc(n_tensors, sizeof *plan->not_covered);
    if (status == ND_OK && (plan->steps == NULL || plan->shapes == NULL || plan->step_of_tensor == NULL ||
                            plan->not_covered == NULL))
        status = nd_fail_memory(err);
    for (size_t e = 0; e < n_tensors && status == ND_OK; e++) {
        plan->step_of_tensor[e] = SIZE_MAX;
        if (finding.alone.tensors[e].is_found || finding.alone.tensors[e].why != NULL)
            status = add_step(plan, &finding, e, err);
    }
    if (status == ND_OK)
        status = find_unreached(plan, &finding, err);
    if (status == ND_OK)
        status = find_inputs(plan, err);
    finding_deinit(&finding);
    if (status == ND_OK && plan->float_model != NULL)
        status = match_float_steps(plan, err);
    return status;
}

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
        if (input == SIZE_MAX || plan->sources[device].tensors[input] != SIZE_MAX)
            continue; /* an input of quantised values is the probe's */
        nd_strbuf_printf(why, "its input '%s' cannot be read", plan->steps[input].name);
        return;
    }
}

/* Whole numbers without a scale, such as indices, are the operator's or not: floats/judge_floats.c has them. */
static bool is_of_qvalues(const struct nd_plan *plan, size_t step)
{
    const struct nd_tensor *tensor = nd_plan_tensor(plan, step);
    return nd_dtype_is_of_qvalues(tensor->dtype) && tensor->quant.n > 0;
}

static enum nd_status match_step(struct nd_plan *plan, size_t device, size_t step, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf why = {0};
    struct nd_planned_layer *layer = &plan->sources[device].layers[step];
    ND_TRY(find_tensor(plan, device, step, &why, err));
    bool is_read = plan->sources[device].tensors[step] != SIZE_MAX;
    bool is_known = is_read && is_of_qvalues(plan, step);
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
                plan->sources[d].tensors[s] != SIZE_MAX && is_of_qvalues(plan, s) &&
                plan->steps[s].unreached_from == SIZE_MAX && plan->steps[s].substituted_from == SIZE_MAX;
}

/* Steps are in graph order: what a layer reads has been looked for before it. */
enum nd_status nd_plan_match_device(struct nd_plan *plan, size_t device, struct nd_error *err)
{
    struct nd_plan_source *source = &plan->sources[device];
    source->layers = nd_calloc(plan->n_steps, sizeof *source->layers);
    source->tensors = nd_calloc(plan->n_steps, sizeof *source->tensors);
    source->sample_bytes = nd_calloc(plan->n_steps, sizeof *source->sample_bytes);
    ND_TRY_MEMORY(source->layers != NULL && source->tensors != NULL && source->sample_bytes != NULL, err);
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
