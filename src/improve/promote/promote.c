/* More bits for few layers: what could be changed and what it costs, each put into the model, captured on all
 * devices, and held against the float model. docs/reference/commands.md#npudiff-promote. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "compare/engine/engine.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "model/graph/infer.h"
#include "model/rewrite/widen.h"
#include "npudiff/improve/promote.h"
#include "quantisation/study.h"
#include "record/sessions/capture_run.h"

/* The outputs of one model on one device. */
struct nd_measured {
    double sqnr_db; /* to the float model; NaN: not measured */
    size_t n_labelled, n_right;
};

struct nd_promote_job {
    const struct nd_promote_options *options;
    const struct nd_model *model;
    struct nd_promoted *result;
    char *folder; /* for what nobody keeps */
    struct nd_capture *floats;
    struct nd_capture **captures; /* [n_devices] of the model as it came */
    struct nd_plan plan;
    struct nd_promotions *promotions;
    size_t *order;           /* [result->n_layers] of the promotions, beside result->layers */
    size_t *kept;            /* [n_kept] of the promotions */
    struct nd_measured *now; /* [n_devices] with those that were kept */
};

/* ---- what could be changed, and what it costs ---- */

/* What could be changed. */

enum { MAX_CONSTANTS = ND_LOSS_CONSTANTS };

/* ---- as changes of the file ---- */

/* The axis of the channels of a constant that the step's layer reads; -1: it reads no such constant. */
static int axis_of(const struct nd_plan *plan, const struct nd_change *change)
{
    struct nd_exact_constant all[MAX_CONSTANTS];
    size_t n = nd_exact_layer_constants(plan->graph, plan->steps[change->step].tensor, all, MAX_CONSTANTS);
    for (size_t i = 0; i < n; i++)
        if (all[i].tensor == change->tensor)
            return all[i].channel_axis;
    return -1;
}

static void nd_widening_deinit(struct nd_widening *widening)
{
    ND_FREE_ALL((void *)(uintptr_t)widening->tensors, (void *)(uintptr_t)widening->weights);
    *widening = (struct nd_widening){0};
}

/* The changes of these promotions as the copy has them. The caller frees the arrays of *out. ND_ERR_MEMORY. */
static enum nd_status nd_promotions_as_widening(const struct nd_promote_job *job, const size_t *promotions,
                                                size_t n, struct nd_widening *out, struct nd_error *err)
{
    size_t n_changes = 0;
    for (size_t i = 0; i < n; i++)
        n_changes += job->promotions->items[promotions[i]].n_changes;
    struct nd_wide_tensor *tensors = nd_calloc(n_changes + 1, sizeof *tensors);
    struct nd_channel_weights *weights = nd_calloc(n_changes + 1, sizeof *weights);
    *out = (struct nd_widening){.tensors = tensors, .weights = weights};
    if (tensors == NULL || weights == NULL) {
        nd_widening_deinit(out);
        return nd_fail_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        const struct nd_promotion *promotion = &job->promotions->items[promotions[i]];
        for (size_t c = 0; c < promotion->n_changes; c++) {
            const struct nd_change *change = &promotion->changes[c];
            if (change->is_range)
                tensors[out->n_tensors++] = (struct nd_wide_tensor){
                    job->plan.steps[change->step].tensor, (float)change->fit.scale, (int64_t)change->fit.zero};
            else
                weights[out->n_weights++] = (struct nd_channel_weights){.tensor = change->tensor,
                                                                        .axis = axis_of(&job->plan, change),
                                                                        .shape = &change->values->shape,
                                                                        .values = change->values->x};
        }
    }
    return ND_OK;
}

/* ---- the list ---- */

/* Whether the file can be changed so. */
static bool can_be_made(const struct nd_promote_job *job, const struct nd_promotion *promotion)
{
    for (size_t c = 0; c < promotion->n_changes; c++) {
        const struct nd_change *change = &promotion->changes[c];
        if (change->is_range ? nd_widening_obstacle(job->model, job->plan.steps[change->step].tensor) != NULL
                             : axis_of(&job->plan, change) < 0)
            return false;
    }
    return true;
}

enum { SCALE_BYTES = sizeof(float), WIDE_BYTES = 2, FLOPS_OF_MULTIPLY_ADD = 2 };

/* Elements of a step; 0 where the shape is not known. */
static double elems_of(const struct nd_promote_job *job, size_t tensor)
{
    size_t step = tensor != ND_NO_INDEX ? job->plan.step_of_tensor[tensor] : SIZE_MAX, n = 0;
    return step == SIZE_MAX || nd_shape_n_elems(&job->plan.shapes[step], &n, NULL) != ND_OK ? 0 : (double)n;
}

/* Bytes of activations and constants, and multiply-adds, of the model as it came. */
struct whole {
    double bytes, multiply_adds;
};

static void add_node(const struct nd_promote_job *job, const struct nd_wide_parts *parts, size_t node,
                     const struct nd_tensor_info *infos, struct nd_promotion_cost *cost, struct whole *whole)
{
    const struct nd_graph *graph = &job->model->graph;
    const struct nd_graph_node *n = &graph->nodes[node];
    bool is_product = ND_IS_ONE_OF(n->proto->op_type, "Conv", "ConvTranspose", "Gemm", "MatMul");
    double flops = is_product ? nd_node_flops(graph, node, infos) : 0;
    double multiply_adds = isnan(flops) ? 0 : flops / FLOPS_OF_MULTIPLY_ADD;
    whole->multiply_adds += multiply_adds;
    cost->multiply_adds += parts->is_wide_node[node] ? multiply_adds : 0;
    if (n->kind == ND_NODE_DEQUANTIZE && n->is_constant) {
        double bytes = nd_infer_bytes(&infos[graph->uses[n->first_use]]);
        whole->bytes += isnan(bytes) ? 0 : bytes;
    }
    if (parts->is_converted[node]) {
        size_t qvalues = n->kind == ND_NODE_QUANTIZE ? graph->made[n->first_made] : graph->uses[n->first_use];
        cost->activation_bytes += WIDE_BYTES * elems_of(job, job->model->tensor_of_value[qvalues]);
        cost->n_conversions++;
    }
}

static void add_all(const struct nd_promote_job *job, const struct nd_wide_parts *parts,
                    const struct nd_tensor_info *infos, const struct nd_widening *what,
                    struct nd_promotion_cost *cost)
{
    const struct nd_model *model = job->model;
    struct whole whole = {0};
    for (size_t n = 0; n < model->graph.n_nodes; n++)
        if (model->graph.nodes[n].is_alive)
            add_node(job, parts, n, infos, cost, &whole);
    for (size_t e = 0; e < model->n_tensors; e++) {
        double n = elems_of(job, e);
        whole.bytes += n * (double)nd_dtype_size_bytes(model->tensors[e].dtype);
        cost->activation_bytes += parts->is_wide_tensor[e] ? n : 0; /* a byte more each */
    }
    for (size_t i = 0; i < what->n_weights; i++)
        cost->weight_bytes += SCALE_BYTES * (double)(what->weights[i].shape->dims[what->weights[i].axis] - 1);
    double bytes = cost->activation_bytes + cost->weight_bytes;
    cost->percent = 100 * fmax(whole.bytes > 0 ? bytes / whole.bytes : 0,
                               whole.multiply_adds > 0 ? cost->multiply_adds / whole.multiply_adds : 0);
}

/* Of these promotions together. */
static enum nd_status nd_promotion_cost_of(const struct nd_promote_job *job, const size_t *promotions, size_t n,
                                           struct nd_promotion_cost *out, struct nd_error *err)
{
    ND_CLEANUP(nd_widening_deinit) struct nd_widening what = {0};
    ND_CLEANUP(nd_wide_parts_deinit) struct nd_wide_parts parts = {0};
    ND_FREED struct nd_tensor_info *infos = nd_calloc(job->model->graph.n_tensors, sizeof *infos);
    *out = (struct nd_promotion_cost){0};
    ND_TRY(infos != NULL ? nd_promotions_as_widening(job, promotions, n, &what, err) : nd_fail_memory(err));
    ND_TRY(nd_wide_parts_find(job->model, what.tensors, what.n_tensors, &parts, err));
    nd_infer_declared(job->model, infos);
    nd_infer_propagate(job->model, infos);
    add_all(job, &parts, infos, &what, out);
    return ND_OK;
}

static enum nd_status add_layer(struct nd_promote_job *job, size_t index, struct nd_error *err)
{
    const struct nd_promotion *promotion = &job->promotions->items[index];
    const struct nd_explained_step *step = &job->plan.steps[promotion->step];
    struct nd_promoted *result = job->result;
    size_t n_devices = job->options->n_devices;
    struct nd_promoted_layer layer = {.name = nd_strdup(step->name),
                                      .op_types = nd_strdup(step->op_types),
                                      .kind = promotion->kind,
                                      .fate = ND_PROMOTE_NOT_TRIED,
                                      .effect_share = promotion->effect_share,
                                      .alone_db = NAN,
                                      .predicted_db = NAN,
                                      .measured_db = NAN,
                                      .device_db = nd_calloc(n_devices, sizeof(double))};
    enum nd_status status = layer.name != NULL && layer.op_types != NULL && layer.device_db != NULL
                                ? nd_promotion_cost_of(job, &index, 1, &layer.cost, err)
                                : nd_fail_memory(err);
    for (size_t d = 0; d < n_devices && layer.device_db != NULL; d++)
        layer.device_db[d] = NAN;
    result->layers[result->n_layers] = layer;
    job->order[result->n_layers] = index;
    result->n_layers++;
    return status;
}

/* Fills result->layers and job->order. */
static enum nd_status nd_find_proposals(struct nd_promote_job *job, struct nd_error *err)
{
    ND_TRY(nd_promotions_find(&job->plan, &job->promotions, err));
    size_t n = job->promotions->n;
    job->result->layers = nd_calloc(n + 1, sizeof *job->result->layers);
    job->order = nd_calloc(n + 1, sizeof *job->order);
    job->kept = nd_calloc(n + 1, sizeof *job->kept);
    ND_TRY_MEMORY(job->result->layers != NULL && job->order != NULL && job->kept != NULL, err);
    for (size_t i = 0; i < n; i++)
        if (can_be_made(job, &job->promotions->items[i]))
            ND_TRY(add_layer(job, i, err));
    return ND_OK;
}

/* ---- on devices, against the float model ---- */

static enum nd_status nd_try_proposals(struct nd_promote_job *job, struct nd_error *err);

/* One model on several devices. */
struct run {
    const struct nd_promote_job *job;
    const struct nd_model *model;
    const struct nd_device *const *devices;
    size_t n_devices;
    const char *stage;
    char **paths;                 /* [n_devices] */
    struct nd_capture **captures; /* [n_devices] */
    struct nd_error *failures;    /* [n_devices] of devices that failed: status ND_OK otherwise */
    size_t n_done;
};

static enum nd_status nd_promote_tell(const struct nd_promote_job *job, const char *stage, size_t n_done,
                                      size_t n_total, struct nd_error *err)
{
    const struct nd_promote_options *options = job->options;
    if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "cancelled");
    if (options->progress != NULL)
        options->progress(options->progress_context, stage, n_done, n_total);
    return ND_OK;
}

/* A nd_device_task. */
static enum nd_status capture_one(void *context, size_t task, struct nd_error *err)
{
    struct run *run = context;
    const struct nd_promote_options *options = run->job->options;
    struct nd_capture_options how;
    nd_capture_options_init(&how);
    how.tensors = "outputs";
    how.agent = options->agent;
    how.is_cancelled = options->is_cancelled;
    how.cancel_context = options->cancel_context;
    const struct nd_workload work = {run->model, run->devices[task], options->probes, options->n_probes};
    enum nd_status status =
        nd_capture_run_and_open(&work, run->paths[task], &how, &run->captures[task], &run->failures[task], err);
    return status == ND_OK ? nd_promote_tell(run->job, run->stage, ++run->n_done, run->n_devices, err) : status;
}

static void run_deinit(struct run *run)
{
    for (size_t d = 0; d < run->n_devices; d++) {
        if (run->captures != NULL)
            nd_capture_close(&run->captures[d]);
        if (run->paths != NULL && run->paths[d] != NULL)
            unlink(run->paths[d]);
        if (run->paths != NULL)
            free(run->paths[d]);
    }
    ND_FREE_ALL(run->captures, run->failures, run->paths);
}

/* The captures, or what failed. */
static enum nd_status run_all(struct run *run, struct nd_error *err)
{
    size_t n = run->n_devices;
    run->paths = nd_calloc(n, sizeof *run->paths);
    run->captures = nd_calloc(n, sizeof(void *));
    run->failures = nd_calloc(n, sizeof *run->failures);
    ND_TRY_MEMORY(run->paths != NULL && run->captures != NULL && run->failures != NULL, err);
    for (size_t d = 0; d < n; d++) {
        char name[64];
        snprintf(name, sizeof name, "%s%zu.h5", run->stage, d);
        run->paths[d] = nd_path_join(run->job->folder, name);
        ND_TRY_MEMORY(run->paths[d] != NULL, err);
    }
    return nd_devices_run(run->devices, n, 1, capture_one, run, err);
}

/* Takes the captures over; a device that failed is an error here. */
static enum nd_status take_captures(struct run *run, struct nd_capture **out, struct nd_error *err)
{
    enum nd_status status = run_all(run, err);
    for (size_t d = 0; d < run->n_devices && status == ND_OK; d++) {
        if (run->failures[d].status != ND_OK) {
            status = nd_capture_pass_on(&run->failures[d], run->model, run->devices[d], err);
        } else {
            out[d] = run->captures[d];
            run->captures[d] = NULL;
        }
    }
    run_deinit(run);
    return status;
}

/* The float model, and the model as it came on all devices. */
static enum nd_status nd_promote_capture(struct nd_promote_job *job, struct nd_error *err)
{
    const struct nd_promote_options *options = job->options;
    struct nd_device reference;
    struct nd_error local = {0};
    err = err != NULL ? err : &local;
    ND_TRY(nd_device_parse("float64", &reference, err));
    const struct nd_device *const references[] = {&reference};
    struct run floats = {
        .job = job, .model = options->float_model, .devices = references, .n_devices = 1, .stage = "float"};
    enum nd_status status = take_captures(&floats, &job->floats, err);
    nd_device_deinit(&reference);
    job->captures = nd_calloc(options->n_devices, sizeof(void *));
    if (status == ND_OK && job->captures == NULL)
        return nd_fail_memory(err);
    struct run run = {.job = job,
                      .model = job->model,
                      .devices = options->devices,
                      .n_devices = options->n_devices,
                      .stage = "capture"};
    return status == ND_OK ? take_captures(&run, job->captures, err) : status;
}

/* ---- against the float model ---- */

/* The captures held against the float model: out[n_devices]. */
static enum nd_status nd_promote_measure(const struct nd_promote_job *job, struct nd_capture *const *captures,
                                         struct nd_measured *out, struct nd_error *err)
{
    size_t n = job->options->n_devices;
    ND_FREED const struct nd_capture **all = nd_calloc(n + 1, sizeof(void *));
    ND_CLEANUP(nd_comparison_destroy) struct nd_comparison *comparison = NULL;
    struct nd_compare_options how = nd_compare_options_default();
    how.allow_different_models = true;
    how.tensors = "outputs";
    how.n_worst = 0;
    how.n_threads = job->options->n_threads;
    how.is_cancelled = job->options->is_cancelled;
    how.cancel_context = job->options->cancel_context;
    ND_TRY_MEMORY(all != NULL, err);
    all[0] = job->floats;
    for (size_t d = 0; d < n; d++)
        all[d + 1] = captures[d];
    enum nd_status status = nd_compare_captures(all, n + 1, &how, &comparison, err);
    for (size_t d = 0; d < n && status == ND_OK; d++) {
        out[d] = (struct nd_measured){.sqnr_db = nd_comparison_sqnr_db(comparison, d)};
        size_t device = d + 1;
        const struct nd_top1 *of_classes = nd_comparison_top1(comparison);
        for (size_t t = 0; of_classes != NULL && t < comparison->n_top1; t++) {
            const struct nd_top1 *top1 = &comparison->top1[t];
            if (!top1->has_labels || !top1->devices[device].exists || top1->tensor != of_classes->tensor)
                continue;
            out[d].n_labelled += top1->devices[device].n_samples;
            out[d].n_right += top1->devices[device].n_correct;
        }
        if (isnan(out[d].sqnr_db))
            status = nd_fail(err, ND_E_PROMOTE_REFERENCE, nd_model_path(job->options->float_model),
                             "no output of '%s' can be compared with '%s'", nd_model_path(job->model),
                             nd_model_path(job->options->float_model));
    }
    return status;
}

/* A model on all devices. *reason: why a device refuses it (owned by the caller), else NULL; then out is not
 * filled. */
static enum nd_status nd_promote_run(const struct nd_promote_job *job, const struct nd_model *model,
                                     struct nd_measured *out, char **reason, struct nd_error *err)
{
    const struct nd_promote_options *options = job->options;
    ND_CLEANUP(run_deinit)
    struct run run = {.job = job,
                      .model = model,
                      .devices = options->devices,
                      .n_devices = options->n_devices,
                      .stage = "verify"};
    *reason = NULL;
    ND_TRY(run_all(&run, err));
    for (size_t d = 0; d < options->n_devices && *reason == NULL; d++)
        if (run.failures[d].status != ND_OK) {
            nd_error_context(&run.failures[d], "%s", options->devices[d]->label);
            ND_TRY_MEMORY((*reason = nd_strdup(run.failures[d].message)) != NULL, err);
        }
    return *reason == NULL ? nd_promote_measure(job, run.captures, out, err) : ND_OK;
}

/* Promoted at most, unless the caller says: "a few". Chosen. */
enum { FEW_LAYERS = 4 };

const char *nd_promotion_fate_name(enum nd_promotion_fate fate)
{
    static const char *const names[] = {"kept", "no-gain", "refused", "over-budget", "not-tried"};
    return names[fate];
}

void nd_promote_options_init_sized(struct nd_promote_options *options, size_t struct_size)
{
    const struct nd_promote_options own = {.n_layers = FEW_LAYERS, .budget_percent = (double)NAN};
    nd_options_write(options, struct_size, &own, sizeof own);
}

void nd_promoted_destroy(struct nd_promoted **promoted)
{
    struct nd_promoted *old = *promoted;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_layers; i++) {
        ND_FREE_ALL(old->layers[i].name, old->layers[i].op_types, old->layers[i].reason,
                    old->layers[i].device_db);
    }
    ND_FREE_EACH(old->devices, old->n_devices, .label);
    ND_FREE_ALL(old->layers, old->model, old->float_model, old->output, old);
    *promoted = NULL;
}

/* ---- before anything is done ---- */

static size_t n_quantised_tensors(const struct nd_model *model)
{
    size_t n = 0;
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        n += nd_model_tensor(model, e)->quant.n > 0;
    return n;
}

static bool has_io(const struct nd_model *model, const char *name, size_t n,
                   const struct nd_model_io *(*io)(const struct nd_model *, size_t))
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(io(model, i)->name, name) == 0)
            return true;
    return false;
}

static enum nd_status check_models(const struct nd_model *model, const struct nd_model *floats,
                                   struct nd_error *err)
{
    const char *path = nd_model_path(model), *float_path = nd_model_path(floats), *missing = NULL;
    if (n_quantised_tensors(model) == 0)
        return nd_fail(err, ND_E_PROMOTE_FLOAT, path,
                       "'%s' has no quantised layer; only a model with QuantizeLinear and DequantizeLinear has "
                       "layers to promote",
                       path);
    if (n_quantised_tensors(floats) > 0)
        return nd_fail(err, ND_E_PROMOTE_REFERENCE, float_path,
                       "'%s' is quantised itself; the model before quantisation is needed", float_path);
    for (size_t i = 0; i < nd_model_n_inputs(floats) && missing == NULL; i++)
        if (!has_io(model, nd_model_input(floats, i)->name, nd_model_n_inputs(model), nd_model_input))
            missing = nd_model_input(floats, i)->name;
    for (size_t i = 0; i < nd_model_n_outputs(model) && missing == NULL; i++)
        if (!has_io(floats, nd_model_output(model, i)->name, nd_model_n_outputs(floats), nd_model_output))
            missing = nd_model_output(model, i)->name;
    if (missing != NULL)
        return nd_fail(err, ND_E_PROMOTE_REFERENCE, float_path,
                       "'%s' is not the float model of '%s': only one of them has '%s'", float_path, path,
                       missing);
    return nd_model_check_static(model, err);
}

/* ---- the stages ---- */

static enum nd_status name_things(struct nd_promote_job *job, struct nd_error *err)
{
    const struct nd_promote_options *options = job->options;
    struct nd_promoted *result = job->result;
    result->struct_size = sizeof *result;
    result->budget_percent = options->budget_percent;
    result->computed_before_db = result->computed_after_db = NAN;
    result->model = nd_strdup(nd_model_path(job->model));
    result->float_model = nd_strdup(nd_model_path(options->float_model));
    result->devices = nd_calloc(options->n_devices, sizeof *result->devices);
    job->now = nd_calloc(options->n_devices, sizeof *job->now);
    ND_TRY_MEMORY(result->model != NULL && result->float_model != NULL && result->devices != NULL &&
                      job->now != NULL,
                  err);
    for (size_t d = 0; d < options->n_devices; d++) {
        result->devices[d].label = nd_strdup(options->devices[d]->label);
        result->n_devices = d + 1;
        ND_TRY_MEMORY(result->devices[d].label != NULL, err);
    }
    for (size_t p = 0; p < options->n_probes; p++)
        result->n_samples += options->probes[p]->n_samples;
    return nd_dir_make_temporary(&job->folder, err);
}

/* Which layers lose what, from the inputs of the first capture. */
static enum nd_status find_layers(struct nd_promote_job *job, struct nd_error *err)
{
    const struct nd_question question = {job->model, job->options->float_model,
                                         (const struct nd_capture *const *)job->captures,
                                         job->options->n_devices};
    const struct nd_explain_options how = {.struct_size = sizeof how,
                                           .n_output_effect_samples = ND_EFFECT_SAMPLES,
                                           .n_threads = job->options->n_threads,
                                           .is_cancelled = job->options->is_cancelled,
                                           .cancel_context = job->options->cancel_context};
    ND_TRY(nd_promote_tell(job, "layers", 0, 1, err));
    ND_TRY(nd_plan_make(&job->plan, &question, &how, err));
    ND_TRY(nd_find_proposals(job, err));
    job->result->computed_before_db = job->result->computed_after_db =
        job->promotions->study.out->output_sqnr_db;
    job->result->n_computed_samples = job->promotions->study.n_effect_samples;
    return ND_OK;
}

static enum nd_status write_output(const struct nd_promote_job *job, struct nd_error *err)
{
    struct nd_widening what;
    struct nd_promoted *result = job->result;
    const char *path = job->options->output;
    if (result->n_kept == 0 || path == NULL)
        return ND_OK;
    ND_TRY(nd_promotions_as_widening(job, job->kept, result->n_kept, &what, err));
    enum nd_status status = nd_model_write_widened(job->model, &what, path, err);
    nd_widening_deinit(&what);
    result->output = status == ND_OK ? nd_strdup(path) : NULL;
    return status == ND_OK && result->output == NULL ? nd_fail_memory(err) : status;
}

static enum nd_status promote(struct nd_promote_job *job, struct nd_error *err)
{
    ND_TRY(name_things(job, err));
    ND_TRY(nd_promote_capture(job, err));
    ND_TRY(nd_promote_measure(job, job->captures, job->now, err));
    for (size_t d = 0; d < job->result->n_devices; d++) {
        job->result->devices[d].before_db = job->now[d].sqnr_db;
        job->result->devices[d].n_labelled = job->now[d].n_labelled;
        job->result->devices[d].n_right_before = job->now[d].n_right;
    }
    ND_TRY(find_layers(job, err));
    ND_TRY(nd_try_proposals(job, err));
    for (size_t d = 0; d < job->result->n_devices; d++) {
        job->result->devices[d].after_db = job->now[d].sqnr_db;
        job->result->devices[d].n_right_after = job->now[d].n_right;
    }
    return write_output(job, err);
}

static void job_deinit(struct nd_promote_job *job)
{
    nd_promotions_destroy(&job->promotions);
    nd_plan_deinit(&job->plan);
    nd_capture_close(&job->floats);
    for (size_t d = 0; job->captures != NULL && d < job->options->n_devices; d++)
        nd_capture_close(&job->captures[d]);
    nd_dir_remove(job->folder);
    ND_FREE_ALL(job->captures, job->folder, job->order, job->kept, job->now);
    nd_promoted_destroy(&job->result);
}

enum nd_status nd_promote(const struct nd_model *model, const struct nd_promote_options *options,
                          struct nd_promoted **out, struct nd_error *err)
{
    struct nd_promote_options own;
    nd_promote_options_init(&own);
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    if (own.float_model == NULL)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "the float model is needed: it says what is an error");
    if (own.n_probes == 0 || own.n_devices == 0)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "inputs and a device are needed to measure proposals");
    if (own.output != NULL && !own.replace && nd_path_exists(own.output))
        return nd_fail(err, ND_E_FILE_EXISTS, own.output, "'%s' exists already", own.output);
    ND_TRY(check_models(model, own.float_model, err));
    own.n_layers = own.n_layers > 0 ? own.n_layers : FEW_LAYERS;
    ND_CLEANUP(job_deinit)
    struct nd_promote_job job = {.options = &own, .model = model, .result = nd_calloc(1, sizeof *job.result)};
    ND_TRY_MEMORY(job.result != NULL, err);
    ND_TRY(promote(&job, err));
    *out = job.result;
    job.result = NULL;
    return ND_OK;
}

/* Proposals put into the model one after the other, the largest gain for its cost first: those that help on all
 * devices stay. After each that stays the gains of the others are computed anew, as layers hide each other. */

/* A proposal that gains less on a device, in dB, does not help; the same as computed: chosen. */
static const double min_gain_db = 0.05;
/* Below a thousandth of the model nothing is cheaper than the rest: chosen. */
static const double min_percent = 0.1;
/* So many may fail on the devices before the search ends: chosen, each is a run on every device. */
enum { MAX_FAILURES = 8 };

/* The model with the promotions that were kept and those of the proposal at hand. */
static enum nd_status write_and_run(const struct nd_promote_job *job, size_t n, struct nd_measured *out,
                                    char **reason, struct nd_error *err)
{
    struct nd_widening what = {0};
    struct nd_model *model = NULL;
    struct nd_error local = {0};
    char *path = nd_path_join(job->folder, "promoted.onnx");
    enum nd_status status =
        path != NULL ? nd_promotions_as_widening(job, job->kept, n, &what, &local) : nd_fail_memory(&local);
    *reason = NULL;
    if (status == ND_OK)
        status = nd_model_write_widened(job->model, &what, path, &local);
    if (status == ND_ERR_UNSUPPORTED)
        *reason = nd_strdup(local.message);
    if (status == ND_OK)
        status = nd_model_load(path, &model, &local);
    if (status == ND_OK)
        status = nd_promote_run(job, model, out, reason, &local);
    nd_model_destroy(&model);
    nd_widening_deinit(&what);
    if (path != NULL)
        unlink(path);
    free(path);
    if (*reason != NULL)
        return ND_OK;
    if (status != ND_OK && err != NULL)
        *err = local;
    return status;
}

/* The gains beside what was kept before; whether all devices gain. */
static bool helps(const struct nd_promote_job *job, const struct nd_measured *measured,
                  struct nd_promoted_layer *layer)
{
    layer->measured_db = HUGE_VAL;
    for (size_t d = 0; d < job->options->n_devices; d++) {
        layer->device_db[d] = measured[d].sqnr_db - job->now[d].sqnr_db;
        layer->measured_db = fmin(layer->measured_db, layer->device_db[d]);
    }
    return layer->measured_db >= min_gain_db;
}

/* The search. Layers before n_tried were tried, in their order; sqnr_db is beside the promotions. */
struct search {
    struct nd_promote_job *job;
    double *sqnr_db;
    struct nd_measured *measured;
    size_t n_tried, n_failed;
};

/* Of the layers that were not tried the one that is worth most; SIZE_MAX: none helps within the budget. */
static enum nd_status find_best(const struct search *s, size_t *out, struct nd_error *err)
{
    const struct nd_promote_job *job = s->job;
    struct nd_promoted *result = job->result;
    double best = 0;
    *out = SIZE_MAX;
    for (size_t i = s->n_tried; i < result->n_layers; i++) {
        struct nd_promotion_cost cost;
        double gain = s->sqnr_db[job->order[i]] - result->computed_after_db;
        job->kept[result->n_kept] = job->order[i];
        if (!(gain >= min_gain_db))
            continue;
        ND_TRY(nd_promotion_cost_of(job, job->kept, result->n_kept + 1, &cost, err));
        double worth = gain / fmax(cost.percent - result->cost.percent, min_percent);
        bool is_dear = cost.percent > result->budget_percent;
        result->layers[i].fate = is_dear ? ND_PROMOTE_OVER_BUDGET : ND_PROMOTE_NOT_TRIED;
        if (!is_dear && worth > best) {
            best = worth;
            *out = i;
        }
    }
    return ND_OK;
}

/* The layer becomes the next of those that were tried. */
static struct nd_promoted_layer *take(struct search *s, size_t i)
{
    struct nd_promote_job *job = s->job;
    struct nd_promoted_layer layer = job->result->layers[i];
    size_t promotion = job->order[i], n = i - s->n_tried;
    memmove(&job->result->layers[s->n_tried + 1], &job->result->layers[s->n_tried], n * sizeof layer);
    memmove(&job->order[s->n_tried + 1], &job->order[s->n_tried], n * sizeof promotion);
    job->result->layers[s->n_tried] = layer;
    job->order[s->n_tried] = promotion;
    return &job->result->layers[s->n_tried++];
}

/* Puts the layer into the model, and keeps it there if it helps. */
static enum nd_status try_layer(struct search *s, size_t i, struct nd_error *err)
{
    struct nd_promote_job *job = s->job;
    struct nd_promoted *result = job->result;
    struct nd_promoted_layer *layer = take(s, i);
    double sqnr_db = s->sqnr_db[job->order[s->n_tried - 1]];
    job->kept[result->n_kept] = job->order[s->n_tried - 1];
    layer->predicted_db = sqnr_db - result->computed_after_db;
    ND_TRY(write_and_run(job, result->n_kept + 1, s->measured, &layer->reason, err));
    layer->fate = layer->reason != NULL            ? ND_PROMOTE_REFUSED
                  : helps(job, s->measured, layer) ? ND_PROMOTE_KEPT
                                                   : ND_PROMOTE_NO_GAIN;
    if (layer->fate != ND_PROMOTE_KEPT) {
        s->n_failed++;
        return ND_OK;
    }
    memcpy(job->now, s->measured, job->options->n_devices * sizeof *s->measured);
    result->computed_after_db = sqnr_db;
    result->n_kept++;
    return nd_promotion_cost_of(job, job->kept, result->n_kept, &result->cost, err);
}

/* The gains with those that were kept; without any, those alone. */
static enum nd_status compute_gains(struct search *s, struct nd_error *err)
{
    const struct nd_promote_job *job = s->job;
    struct nd_promoted *result = job->result;
    enum nd_status status = nd_promotions_try(job->promotions, job->kept, result->n_kept, s->sqnr_db, err);
    for (size_t i = 0; i < result->n_layers && status == ND_OK && result->n_kept == 0; i++)
        result->layers[i].alone_db = s->sqnr_db[job->order[i]] - result->computed_before_db;
    return status;
}

static enum nd_status search(struct search *s, struct nd_error *err)
{
    const struct nd_promoted *result = s->job->result;
    ND_TRY(compute_gains(s, err));
    while (result->n_kept < s->job->options->n_layers && s->n_failed < MAX_FAILURES) {
        size_t n_kept = result->n_kept, next = SIZE_MAX;
        ND_TRY(nd_promote_tell(s->job, "proposals", s->n_tried, result->n_layers, err));
        ND_TRY(find_best(s, &next, err));
        if (next == SIZE_MAX)
            return ND_OK;
        ND_TRY(try_layer(s, next, err));
        if (result->n_kept > n_kept)
            ND_TRY(compute_gains(s, err));
    }
    return ND_OK;
}

/* Tries the proposals in their order, and keeps those that help. */
static enum nd_status nd_try_proposals(struct nd_promote_job *job, struct nd_error *err)
{
    struct search s = {.job = job,
                       .sqnr_db = nd_calloc(job->promotions->n + 1, sizeof *s.sqnr_db),
                       .measured = nd_calloc(job->options->n_devices, sizeof *s.measured)};
    enum nd_status status = s.sqnr_db != NULL && s.measured != NULL ? search(&s, err) : nd_fail_memory(err);
    ND_FREE_ALL(s.sqnr_db, s.measured);
    return status;
}
