#include "improve/align/align_stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "improve/align/equalise.h"
#include "improve/align/observed.h"
#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "model/graph/parts.h"

void nd_align_options_init_sized(struct nd_align_options *options, size_t struct_size)
{
    const struct nd_align_options own = {.budget_db = (double)NAN};
    nd_options_write(options, struct_size, &own, sizeof own);
}

/* ---- before anything is done ---- */

static enum nd_status check_options(const struct nd_align_options *options, struct nd_error *err)
{
    if (!isnan(options->budget_db) && (options->float_model == NULL || options->n_probes == 0))
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "a budget needs the float model and inputs");
    if (options->n_devices > 0 && options->n_probes == 0)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "devices need inputs");
    if (options->layers != NULL && strcmp(options->layers, "auto") == 0 && isnan(options->budget_db))
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "layers are chosen by the budget, and there is none");
    if (options->n_devices == 1)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "two devices or more are needed to compare them");
    if (options->output != NULL && !options->replace && nd_path_exists(options->output))
        return nd_fail(err, ND_E_FILE_EXISTS, options->output, "'%s' exists already", options->output);
    if (options->certificate != NULL && options->output == NULL)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "a certificate needs an output: it is about that file");
    if (options->certificate != NULL && !options->replace && nd_path_exists(options->certificate))
        return nd_fail(err, ND_E_FILE_EXISTS, options->certificate, "'%s' exists already",
                       options->certificate);
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

/* ---- the stages ---- */

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
        layer->is_product = nd_align_is_product(layer->op_types);
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
            err, ND_E_ALIGN_NOTHING, nd_model_path(job->original),
            "none of the %zu Conv, Gemm and MatMul layers of '%s' can be aligned; the first, '%s': %s",
            result->n_products, nd_model_path(job->original), first->name, first->obstacle);
    if (job->options->float_model != NULL && result->n_weighted > 0 && result->n_from_float == 0)
        return nd_fail(
            err, ND_E_ALIGN_REFERENCE, result->float_model,
            "'%s' has the weights of none of the %zu layers of '%s': it is a different model, or weights were "
            "changed before they were quantised (as when BatchNormalization is folded)",
            result->float_model, result->n_weighted, nd_model_path(job->original));
    return ND_OK;
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
    enum nd_status status = nd_align_write(job, plan, err);
    if (status == ND_OK)
        status = nd_align_tell(job, "prove", 0, 1, err);
    return status == ND_OK ? nd_align_prove(job, err) : status;
}

/* What a part of the layers would cost is told with the refusal. */
static enum nd_status refuse(struct nd_align_job *job, struct nd_error *err)
{
    bool *is_chosen = NULL;
    enum nd_status status = nd_align_unequalise(job, err);
    if (status == ND_OK && job->result->n_points == 0)
        status = nd_align_curve(job, &is_chosen, err);
    free(is_chosen);
    nd_align_count_states(job->result);
    job->result->end = ND_ALIGN_END_OVER_BUDGET;
    return status;
}

static enum nd_status weigh_and_write(struct nd_align_job *job, const struct nd_align_plan *plan,
                                      struct nd_error *err)
{
    struct nd_alignment *result = job->result;
    const struct nd_align_options *options = job->options;
    enum nd_status status = options->n_probes > 0 ? nd_align_price(job, NULL, err) : ND_OK;
    nd_align_count_states(result);
    if (status != ND_OK)
        return status;
    if (is_over_budget(result))
        return refuse(job, err);
    if (options->n_devices > 0)
        status = nd_align_verify(job, err);
    nd_align_count_states(result);
    if (status == ND_OK && options->output != NULL) {
        status = nd_model_write_recoded(job->model, plan->nodes, plan->n_nodes, options->output, err);
        result->output = status == ND_OK ? nd_strdup(options->output) : NULL;
        if (status == ND_OK && result->output == NULL)
            status = nd_fail_memory(err);
    }
    return status == ND_OK && options->certificate != NULL ? nd_align_certify(job, err) : status;
}

/* The layers that `layers` names; *is_chosen stays NULL for all of them. */
static enum nd_status choose_layers(struct nd_align_job *job, bool **is_chosen, struct nd_error *err)
{
    const char *layers = job->options->layers;
    size_t *edges = NULL, n = 0;
    if (layers == NULL)
        return ND_OK;
    if (strcmp(layers, "auto") == 0) {
        enum nd_status status = nd_align_curve(job, is_chosen, err);
        return status == ND_OK && *is_chosen == NULL ? refuse(job, err) : status;
    }
    enum nd_status status = nd_model_select_edges(job->model, layers, &edges, &n, err);
    if (status == ND_OK) {
        *is_chosen = nd_calloc(nd_model_n_edges(job->model), sizeof **is_chosen);
        status = *is_chosen != NULL ? ND_OK : nd_fail_memory(err);
    }
    for (size_t i = 0; i < n && status == ND_OK; i++)
        (*is_chosen)[edges[i]] = true;
    free(edges);
    return status;
}

static enum nd_status align_chosen(struct nd_align_job *job, const bool *is_chosen, struct nd_error *err)
{
    struct nd_align_plan plan = {.model = job->model,
                                 .float_model = job->options->float_model,
                                 .programs = job->programs,
                                 .n_programs = job->n_programs,
                                 .is_chosen = is_chosen,
                                 .observed = job->observed,
                                 .scaled = job->equalised != NULL ? job->equalised->scaled : NULL,
                                 .n_scaled = job->equalised != NULL ? job->equalised->n_scaled : 0};
    enum nd_status status = nd_align_tell(job, "plan", 0, 1, err);
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

static enum nd_status align(struct nd_align_job *job, struct nd_error *err)
{
    bool *is_chosen = NULL;
    enum nd_status status =
        nd_align_find_programs(job, job->options->arithmetics, job->options->n_arithmetics, err);
    const char *layers = job->options->layers; /* those that are not named stay as they are */
    if (status == ND_OK && (layers == NULL || strcmp(layers, "auto") == 0))
        status = nd_align_fold(job, err);
    if (status == ND_OK)
        status = nd_align_make_layers(job, job->model, err);
    if (status == ND_OK)
        status = nd_align_observe(job, &job->observed, err);
    if (status == ND_OK && layers == NULL && !job->options->keeps_channels)
        status = nd_align_equalise_best(job, err);
    if (status == ND_OK)
        status = choose_layers(job, &is_chosen, err);
    if (status == ND_OK && job->result->end != ND_ALIGN_END_OVER_BUDGET)
        status = align_chosen(job, is_chosen, err);
    free(is_chosen);
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
    struct nd_align_job job = {
        .options = &own, .original = model, .model = model, .result = nd_calloc(1, sizeof *job.result)};
    if (job.result == NULL)
        return nd_fail_memory(err);
    job.result->struct_size = sizeof *job.result;
    job.result->budget_db = own.budget_db;
    status = align(&job, err);
    nd_observed_destroy(&job.observed);
    nd_model_destroy(&job.read_again);
    nd_model_destroy(&job.folded);
    nd_align_equalised_destroy(&job.equalised);
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
