/* What nd_align and nd_certificate_verify begin with, and how they count. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "core/text/strbuf.h"
#include "explain/known/expectation.h"
#include "improve/align/align_stages.h"
#include "improve/align/equalise.h"
#include "improve/align/observed.h"
#include "model/graph/parts.h"
#include "model/rewrite/fold.h"

static const char not_examined[] = "it was not examined";

static enum nd_status add_arithmetic(struct nd_align_job *job, const char *name, struct nd_error *err)
{
    const struct nd_layer_arithmetic *arithmetic = nd_layer_arithmetic_from_name(name);
    for (size_t i = 0; i < job->n_arithmetics; i++)
        if (job->arithmetics[i] == arithmetic && arithmetic != NULL)
            return ND_OK;
    if (arithmetic == NULL)
        return nd_fail(err, ND_E_OPTION_VALUE, name,
                       "'%s' is no arithmetic of whole layers; known are htp-v69, htp-v73, htp-v69:2.48 and "
                       "htp-v73:2.48",
                       name);
    if (job->n_arithmetics == ND_ALIGN_MAX_ARITHMETICS)
        return nd_fail(err, ND_E_OPTION_VALUE, name, "at most %d arithmetics can be aligned",
                       ND_ALIGN_MAX_ARITHMETICS);
    job->arithmetics[job->n_arithmetics] = arithmetic;
    job->result->arithmetics[job->n_arithmetics] = nd_strdup(name);
    if (job->result->arithmetics[job->n_arithmetics] == NULL)
        return nd_fail_memory(err);
    job->result->n_arithmetics = ++job->n_arithmetics;
    return ND_OK;
}

/* That of the newest SDK. */
static enum nd_status add_chipset(struct nd_align_job *job, const char *name, struct nd_error *err)
{
    const struct nd_chipset *chipset = nd_chipset_find(name);
    if (chipset == NULL)
        return nd_fail(err, ND_E_OPTION_VALUE, name,
                       "'%s' is no chipset that npudiff knows; 'npudiff devices' lists them", name);
    switch (nd_expect_of_arch(chipset->arch)) {
    case ND_EXPECT_V69:
        return add_arithmetic(job, "htp-v69", err);
    case ND_EXPECT_V73:
        return add_arithmetic(job, "htp-v73", err);
    default:
        return nd_fail(err, ND_E_OPTION_VALUE, name, "the arithmetic of '%s' (%s) is not known", name,
                       chipset->arch);
    }
}

enum nd_status nd_align_find_arithmetics(struct nd_align_job *job, const char *const *names, size_t n,
                                         struct nd_error *err)
{
    static const char *const usual[] = {"htp-v69", "htp-v73"};
    const struct nd_align_options *options = job->options;
    enum nd_status status = ND_OK;
    if (n == 0 && options->n_chipsets == 0) {
        names = usual;
        n = sizeof usual / sizeof usual[0];
    }
    job->result->arithmetics = nd_calloc(ND_ALIGN_MAX_ARITHMETICS, sizeof *job->result->arithmetics);
    if (job->result->arithmetics == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n && status == ND_OK; i++)
        status = add_arithmetic(job, names[i], err);
    for (size_t i = 0; i < options->n_chipsets && status == ND_OK; i++)
        status = add_chipset(job, options->chipsets[i], err);
    if (status == ND_OK && job->n_arithmetics < 2)
        status = nd_fail(err, ND_E_OPTION_VALUE, job->result->arithmetics[0],
                         "all of them have one arithmetic, %s: they give the same bits already",
                         job->result->arithmetics[0]);
    return status;
}

enum nd_status nd_align_make_layers(struct nd_align_job *job, const struct nd_model *model,
                                    struct nd_error *err)
{
    struct nd_alignment *result = job->result;
    size_t n_tensors = nd_model_n_tensors(model);
    result->layers = nd_calloc(nd_model_n_layers(model), sizeof *result->layers);
    job->layer_of_tensor = nd_calloc(n_tensors, sizeof *job->layer_of_tensor);
    if (result->layers == NULL || job->layer_of_tensor == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < n_tensors; e++) {
        job->layer_of_tensor[e] = SIZE_MAX;
        result->n_floats += nd_model_tensor(model, e)->quant.n == 0;
    }
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        struct nd_alignment_layer *layer = &result->layers[u];
        result->n_layers = u + 1;
        job->layer_of_tensor[nd_model_layer(model, u)->tensor] = u;
        layer->state = ND_ALIGN_UNKNOWN;
        layer->reason = not_examined;
        layer->name = nd_strdup(nd_model_layer(model, u)->name);
        layer->op_types = nd_strdup(nd_model_layer(model, u)->op_types);
        if (layer->name == NULL || layer->op_types == NULL)
            return nd_fail_memory(err);
    }
    result->model = nd_strdup(nd_model_path(job->original != NULL ? job->original : model));
    if (job->options->float_model != NULL)
        result->float_model = nd_strdup(nd_model_path(job->options->float_model));
    return result->model != NULL && (job->options->float_model == NULL || result->float_model != NULL)
               ? ND_OK
               : nd_fail_memory(err);
}

enum nd_status nd_align_fold(struct nd_align_job *job, struct nd_error *err)
{
    char *path;
    enum nd_status status = nd_align_name_file(job, "folded.onnx", &path, err);
    if (status == ND_OK)
        status = nd_model_write_folded(job->original, path, &job->result->n_folded, err);
    if (status == ND_OK && job->result->n_folded > 0)
        status = nd_model_load(path, &job->folded, err);
    if (job->folded != NULL)
        job->model = job->folded;
    free(path);
    return status;
}

/* Counts the states of the layers, and sets the end by them. */
static void nd_align_count_states(struct nd_alignment *result)
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
    for (size_t u = 0; u < nd_model_n_layers(model); u++)
        n_quantised += nd_model_tensor(model, nd_model_layer(model, u)->tensor)->quant.n > 0;
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
        const struct nd_align_step *step = &plan->steps[nd_model_layer(job->model, i)->tensor];
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
    enum nd_status status = options->n_probes > 0 ? nd_align_accuracy_cost(job, NULL, err) : ND_OK;
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
    size_t *tensors = NULL, n = 0;
    if (layers == NULL)
        return ND_OK;
    if (strcmp(layers, "auto") == 0) {
        enum nd_status status = nd_align_curve(job, is_chosen, err);
        return status == ND_OK && *is_chosen == NULL ? refuse(job, err) : status;
    }
    enum nd_status status = nd_model_select_tensors(job->model, layers, &tensors, &n, err);
    if (status == ND_OK) {
        *is_chosen = nd_calloc(nd_model_n_tensors(job->model), sizeof **is_chosen);
        status = *is_chosen != NULL ? ND_OK : nd_fail_memory(err);
    }
    for (size_t i = 0; i < n && status == ND_OK; i++)
        (*is_chosen)[tensors[i]] = true;
    free(tensors);
    return status;
}

static enum nd_status align_chosen(struct nd_align_job *job, const bool *is_chosen, struct nd_error *err)
{
    struct nd_align_plan plan = {.model = job->model,
                                 .float_model = job->options->float_model,
                                 .arithmetics = job->arithmetics,
                                 .n_arithmetics = job->n_arithmetics,
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
        nd_align_find_arithmetics(job, job->options->arithmetics, job->options->n_arithmetics, err);
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
    free(job.layer_of_tensor);
    if (status == ND_OK) {
        *out = job.result;
        job.result = NULL;
    }
    nd_alignment_destroy(&job.result);
    return status;
}
