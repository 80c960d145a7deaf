#include "align/align_stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/options.h"
#include "model/parts.h"

void nd_align_options_init_sized(struct nd_align_options *options, size_t struct_size)
{
    const struct nd_align_options own = {.budget_db = (double)NAN};
    nd_options_write(options, struct_size, &own, sizeof own);
}

const char *nd_align_state_name(enum nd_align_state state)
{
    static const char *const names[] = {"proven", "tested", "unknown", "differs"};
    return names[state];
}

void nd_alignment_destroy(struct nd_alignment **alignment)
{
    struct nd_alignment *old = *alignment;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_layers; i++) {
        free(old->layers[i].name);
        free(old->layers[i].op_types);
    }
    for (size_t i = 0; i < old->n_outputs; i++)
        free(old->outputs[i].name);
    for (size_t i = 0; i < old->n_arithmetics; i++)
        free(old->arithmetics[i]);
    for (size_t i = 0; i < old->n_devices; i++)
        free(old->devices[i]);
    free(old->layers);
    free(old->outputs);
    free(old->arithmetics);
    free(old->devices);
    free(old->groups);
    free(old->model);
    free(old->output);
    free(old->float_model);
    free(old);
    *alignment = NULL;
}

enum nd_status nd_align_tell(const struct nd_align_job *job, const char *stage, size_t n_done, size_t n_total,
                             struct nd_error *err)
{
    const struct nd_align_options *options = job->options;
    if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "cancelled");
    if (options->progress != NULL)
        options->progress(options->progress_context, stage, n_done, n_total);
    return ND_OK;
}

/* ---- before anything is done ---- */

static enum nd_status find_programs(struct nd_align_job *job, struct nd_error *err)
{
    static const char *const usual[] = {"htp-v69", "htp-v73"};
    const struct nd_align_options *options = job->options;
    const char *const *names = options->n_arithmetics > 0 ? options->arithmetics : usual;
    size_t n = options->n_arithmetics > 0 ? options->n_arithmetics : sizeof usual / sizeof usual[0];
    if (n < 2 || n > ND_ALIGN_MOST_PROGRAMS)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "2 to %d arithmetics can be aligned, not %zu",
                       ND_ALIGN_MOST_PROGRAMS, n);
    job->result->arithmetics = nd_calloc(n, sizeof *job->result->arithmetics);
    if (job->result->arithmetics == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        job->programs[i] = nd_unit_program_from_name(names[i]);
        if (job->programs[i] == NULL)
            return nd_fail(
                err, ND_E_OPTION_VALUE, names[i],
                "'%s' is no arithmetic of whole layers; known are htp-v69, htp-v73, htp-v69:2.48 and "
                "htp-v73:2.48",
                names[i]);
        job->result->arithmetics[i] = nd_strdup(names[i]);
        if (job->result->arithmetics[i] == NULL)
            return nd_fail_memory(err);
        job->result->n_arithmetics = job->n_programs = i + 1;
    }
    return ND_OK;
}

static enum nd_status check_options(const struct nd_align_options *options, struct nd_error *err)
{
    if (!isnan(options->budget_db) && (options->float_model == NULL || options->n_probes == 0))
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "a budget needs the float model and inputs");
    if (options->n_devices > 0 && options->n_probes == 0)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "devices need inputs");
    if (options->n_devices == 1)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "two devices or more are needed to compare them");
    if (options->output != NULL && !options->replace && nd_path_exists(options->output))
        return nd_fail(err, ND_E_FILE_EXISTS, options->output, "'%s' exists already", options->output);
    return ND_OK;
}

static enum nd_status check_model(const struct nd_model *model, struct nd_error *err)
{
    size_t n_quantised = 0;
    for (size_t u = 0; u < nd_model_n_units(model); u++)
        n_quantised += nd_model_edge(model, nd_model_unit(model, u)->edge)->quant.n > 0;
    if (n_quantised == 0)
        return nd_fail(
            err, ND_E_ALIGN_FLOAT, nd_model_path(model),
            "'%s' has no quantised layer; only a model with QuantizeLinear and DequantizeLinear can be "
            "aligned",
            nd_model_path(model));
    return nd_model_check_static(model, err);
}

static enum nd_status make_layers(struct nd_align_job *job, struct nd_error *err)
{
    const struct nd_model *model = job->model;
    struct nd_alignment *result = job->result;
    size_t n_edges = nd_model_n_edges(model);
    result->layers = nd_calloc(nd_model_n_units(model), sizeof *result->layers);
    job->layer_of_edge = nd_calloc(n_edges, sizeof *job->layer_of_edge);
    if (result->layers == NULL || job->layer_of_edge == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < n_edges; e++) {
        job->layer_of_edge[e] = SIZE_MAX;
        result->n_floats += nd_model_edge(model, e)->quant.n == 0;
    }
    for (size_t u = 0; u < nd_model_n_units(model); u++) {
        struct nd_alignment_layer *layer = &result->layers[u];
        result->n_layers = u + 1;
        job->layer_of_edge[nd_model_unit(model, u)->edge] = u;
        layer->name = nd_strdup(nd_model_unit(model, u)->name);
        layer->op_types = nd_strdup(nd_model_unit(model, u)->op_types);
        if (layer->name == NULL || layer->op_types == NULL)
            return nd_fail_memory(err);
    }
    result->model = nd_strdup(nd_model_path(model));
    if (job->options->float_model != NULL)
        result->float_model = nd_strdup(nd_model_path(job->options->float_model));
    return result->model != NULL && (job->options->float_model == NULL || result->float_model != NULL)
               ? ND_OK
               : nd_fail_memory(err);
}

/* ---- the stages ---- */

static bool is_product(const char *op_types)
{
    static const char *const products[] = {"Conv", "Gemm", "MatMul"};
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        size_t n = strlen(products[i]);
        if (strncmp(op_types, products[i], n) == 0 && (op_types[n] == '\0' || op_types[n] == '+'))
            return true;
    }
    return false;
}

/* What the plan says of the layers goes to the result. ND_E_ALIGN_NOTHING where it plans none of the products.
 */
static enum nd_status take_steps(struct nd_align_job *job, const struct nd_align_plan *plan,
                                 struct nd_error *err)
{
    struct nd_alignment *result = job->result;
    const struct nd_alignment_layer *first = NULL;
    for (size_t i = 0; i < result->n_layers; i++) {
        struct nd_alignment_layer *layer = &result->layers[i];
        const struct nd_align_step *step = &plan->steps[nd_model_unit(job->model, i)->edge];
        layer->is_product = is_product(layer->op_types);
        if (!layer->is_product)
            continue;
        layer->is_planned = step->is_planned;
        layer->obstacle = step->is_planned ? NULL : step->obstacle;
        layer->exponent = step->exponent;
        layer->has_exponents = step->has_exponents;
        layer->output_factor = step->output_factor;
        layer->weight_factor = step->weight_factor;
        layer->has_weights = step->has_weights;
        layer->is_from_float = step->is_from_float;
        first = first == NULL ? layer : first;
        result->n_products++;
        result->n_planned += step->is_planned;
        result->n_weighted += step->is_planned && step->has_weights;
        result->n_from_float += step->is_from_float;
    }
    if (first != NULL && result->n_planned == 0)
        return nd_fail(
            err, ND_E_ALIGN_NOTHING, nd_model_path(job->model),
            "none of the %zu Conv, Gemm and MatMul layers of '%s' can be aligned; the first, '%s': %s",
            result->n_products, nd_model_path(job->model), first->name, first->obstacle);
    if (job->options->float_model != NULL && result->n_weighted > 0 && result->n_from_float == 0)
        return nd_fail(
            err, ND_E_ALIGN_REFERENCE, result->float_model,
            "'%s' has the weights of none of the %zu layers of '%s': it is a different model, or weights were "
            "changed before they were quantised (as when BatchNormalization is folded)",
            result->float_model, result->n_weighted, nd_model_path(job->model));
    return ND_OK;
}

static void count_states(struct nd_alignment *result)
{
    size_t *counts[] = {&result->n_proven, &result->n_tested, &result->n_unknown, &result->n_differ};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        *counts[i] = 0;
    for (size_t i = 0; i < result->n_layers; i++)
        ++*counts[result->layers[i].state];
    result->end = result->n_differ > 0    ? ND_ALIGN_END_DIFFERS
                  : result->n_unknown > 0 ? ND_ALIGN_END_UNKNOWN
                                          : ND_ALIGN_END_ALIGNED;
    if (result->n_devices > 0 && result->n_tensors_equal < result->n_tensors)
        result->end = ND_ALIGN_END_DIFFERS;
}

static bool is_over_budget(const struct nd_alignment *result)
{
    for (size_t i = 0; i < result->n_outputs; i++)
        if (result->outputs[i].loss_db > result->budget_db)
            return true;
    return false;
}

static enum nd_status write_and_prove(struct nd_align_job *job, const struct nd_align_plan *plan,
                                      struct nd_error *err)
{
    enum nd_status status = nd_dir_make_temporary(&job->folder, err);
    char *path = status == ND_OK ? nd_path_join(job->folder, "aligned.onnx") : NULL;
    if (status == ND_OK && path == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_model_write_recoded(job->model, plan->nodes, plan->n_nodes, path, err);
    if (status == ND_OK)
        status = nd_model_load(path, &job->aligned, err);
    if (status == ND_OK)
        status = nd_align_tell(job, "prove", 0, 1, err);
    if (status == ND_OK)
        status = nd_align_prove(job, err);
    free(path);
    return status;
}

static enum nd_status weigh_and_write(struct nd_align_job *job, const struct nd_align_plan *plan,
                                      struct nd_error *err)
{
    struct nd_alignment *result = job->result;
    const struct nd_align_options *options = job->options;
    enum nd_status status = options->n_probes > 0 ? nd_align_price(job, err) : ND_OK;
    count_states(result);
    if (status != ND_OK)
        return status;
    if (is_over_budget(result)) {
        result->end = ND_ALIGN_END_OVER_BUDGET;
        return ND_OK;
    }
    if (options->n_devices > 0)
        status = nd_align_verify(job, err);
    count_states(result);
    if (status == ND_OK && options->output != NULL) {
        status = nd_model_write_recoded(job->model, plan->nodes, plan->n_nodes, options->output, err);
        result->output = status == ND_OK ? nd_strdup(options->output) : NULL;
        if (status == ND_OK && result->output == NULL)
            status = nd_fail_memory(err);
    }
    return status;
}

static enum nd_status align(struct nd_align_job *job, struct nd_error *err)
{
    struct nd_align_plan plan = {.model = job->model, .float_model = job->options->float_model};
    enum nd_status status = find_programs(job, err);
    plan.programs = job->programs;
    plan.n_programs = job->n_programs;
    if (status == ND_OK)
        status = make_layers(job, err);
    if (status == ND_OK)
        status = nd_align_tell(job, "plan", 0, 1, err);
    if (status == ND_OK)
        status = nd_align_plan_make(&plan, err);
    if (status == ND_OK)
        status = take_steps(job, &plan, err);
    if (status == ND_OK)
        status = write_and_prove(job, &plan, err);
    if (status == ND_OK)
        status = weigh_and_write(job, &plan, err);
    nd_align_plan_deinit(&plan);
    return status;
}

enum nd_status nd_align(const struct nd_model *model, const struct nd_align_options *options,
                        struct nd_alignment **out, struct nd_error *err)
{
    struct nd_align_options own;
    nd_align_options_init(&own);
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status == ND_OK)
        status = check_options(&own, err);
    if (status == ND_OK)
        status = check_model(model, err);
    if (status != ND_OK)
        return status;
    struct nd_align_job job = {.options = &own, .model = model, .result = nd_calloc(1, sizeof *job.result)};
    if (job.result == NULL)
        return nd_fail_memory(err);
    job.result->struct_size = sizeof *job.result;
    job.result->budget_db = own.budget_db;
    status = align(&job, err);
    nd_model_destroy(&job.aligned);
    if (job.folder != NULL)
        nd_dir_remove(job.folder);
    free(job.folder);
    free(job.layer_of_edge);
    if (status == ND_OK) {
        *out = job.result;
        job.result = NULL;
    }
    nd_alignment_destroy(&job.result);
    return status;
}
