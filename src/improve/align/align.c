/* A model aligned: what the caller asks is checked, its stages run in order; of a budget, layers are taken in
 * the order of their effect on the outputs. docs/science/align.md. */
#include <math.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "explain/plan/replay.h"
#include "improve/align/align_stages.h"
#include "model/graph/parts.h"
#include "model/rewrite/requantise_model.h"

/* Two arithmetics on one model: in how many values they differ, and what each layer adds to that. Where an
 * arithmetic does not cover a layer, both round its exact values. */

struct contrast {
    const struct nd_align_job *job;
    const struct nd_model *model;
    struct nd_exact_graph *graph;
    size_t n_tensors;
    struct nd_align_contrast *counts; /* [n_samples]; NULL: effects are wanted */
    bool *is_different;               /* [n_samples][n_edges] */
    const bool *is_product;           /* [n_edges], of the effects */
    double *effects;                  /* [n_samples][n_edges] */
};

/* One run. All layers have the arithmetic `usual`, but for one. */
struct run {
    const struct contrast *c;
    const struct nd_layer_arithmetic *usual, *other;
    size_t other_tensor; /* SIZE_MAX: none */
    struct nd_array *kept;
    struct nd_array *given; /* [n_edges] views of kept: before other_edge nothing changes. NULL: none */
    bool *is_skipped;       /* [n_edges], of these */
    bool is_first;          /* values are kept, else held against those that were */
    bool *is_different;
    struct nd_align_contrast counts;
    double noise, signal; /* at the outputs */
};

static enum nd_status make(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    const struct run *r = context;
    return nd_layer_arithmetic_run(layer->tensor == r->other_tensor ? r->other : r->usual, layer, NULL, qvalues,
                                   is_made, err);
}

static void hold_against(struct run *r, size_t tensor, const struct nd_array *values)
{
    const struct nd_tensor *known = nd_model_tensor(r->c->model, tensor);
    const struct nd_array *before = &r->kept[tensor];
    size_t n_different = 0;
    for (size_t i = 0; i < values->n && i < before->n; i++) {
        double difference = values->x[i] - before->x[i], level = before->x[i];
        n_different += difference != 0;
        if (!known->is_model_output)
            continue;
        if (known->quant.n > 0) {
            size_t c = nd_exact_channel(&known->quant, &values->shape, i);
            level = (level - (double)known->quant.zero_point[c]) * (double)known->quant.scale[c];
            difference *= (double)known->quant.scale[c];
        }
        r->noise += difference * difference;
        r->signal += level * level;
    }
    if (r->is_different != NULL)
        r->is_different[tensor] = r->is_different[tensor] || n_different > 0;
    if (known->is_model_output) {
        r->counts.n_values += values->n;
        r->counts.n_different += n_different;
    }
}

static enum nd_status take(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    struct run *r = context;
    (void)method;
    if (!r->is_first) {
        hold_against(r, tensor, values);
        return ND_OK;
    }
    return nd_array_copy(values, &r->kept[tensor], err);
}

static enum nd_status run_once(struct run *r, const struct nd_array *inputs, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .make = make,
                                             .given = r->given,
                                             .is_skipped = r->is_skipped,
                                             .missed = nd_exact_let_go};
    return nd_exact_graph_run(r->c->graph, inputs, &options, take, r, err);
}

/* ---- one sample ---- */

static enum nd_status contrast_all(const struct contrast *c, struct run *r, size_t sample,
                                   const struct nd_array *inputs, struct nd_error *err)
{
    r->is_different = c->is_different + sample * c->n_tensors;
    for (size_t p = 1; p < c->job->n_arithmetics; p++) {
        r->usual = c->job->arithmetics[p];
        ND_TRY(run_once(r, inputs, err));
    }
    c->counts[sample] = r->counts;
    return ND_OK;
}

/* The noise at the outputs of another arithmetic in one layer, by the signal; of several the most. */
static enum nd_status contrast_each(const struct contrast *c, struct run *r, size_t sample,
                                    const struct nd_array *inputs, struct nd_error *err)
{
    ND_FREED struct nd_array *given = nd_calloc(c->n_tensors, sizeof *given);
    ND_FREED bool *is_skipped = nd_calloc(c->n_tensors, sizeof *is_skipped);
    ND_TRY_MEMORY(given != NULL && is_skipped != NULL, err);
    for (size_t e = 0; e < c->n_tensors; e++)
        given[e] = nd_no_array();
    r->given = given;
    r->is_skipped = is_skipped;
    for (size_t e = 0; e < c->n_tensors; e++) {
        for (size_t p = 1; p < c->job->n_arithmetics && c->is_product[e]; p++) {
            double *effect = &c->effects[sample * c->n_tensors + e];
            r->other = c->job->arithmetics[p];
            r->other_tensor = e;
            r->noise = r->signal = 0;
            ND_TRY(run_once(r, inputs, err));
            double found = r->signal > 0 ? r->noise / r->signal : r->noise;
            *effect = found > *effect ? found : *effect;
        }
        if (r->kept[e].n > 0 && nd_model_tensor(c->model, e)->quant.n > 0) {
            given[e] = r->kept[e];
            is_skipped[e] = true;
        }
    }
    return ND_OK;
}

static enum nd_status take_sample(void *context, size_t worker, size_t sample, struct nd_error *err)
{
    const struct contrast *c = context;
    struct nd_array *inputs = NULL;
    struct run r = {.c = c,
                    .usual = c->job->arithmetics[0],
                    .other_tensor = SIZE_MAX,
                    .kept = nd_calloc(c->n_tensors, sizeof *r.kept),
                    .is_first = true};
    enum nd_status status = r.kept != NULL ? nd_inputs_create(c->model, &inputs, err) : nd_fail_memory(err);
    if (status == ND_OK && worker == 0)
        status = nd_align_tell(c->job, "curve", 0, 1, err);
    if (status == ND_OK) {
        size_t in_probe = sample;
        nd_align_load_sample(c->job, &in_probe, inputs);
        status = run_once(&r, inputs, err);
    }
    r.is_first = false;
    if (status == ND_OK)
        status = (c->counts != NULL ? contrast_all : contrast_each)(c, &r, sample, inputs, err);
    for (size_t e = 0; r.kept != NULL && e < c->n_tensors; e++)
        nd_array_deinit(&r.kept[e]);
    nd_inputs_destroy(&inputs);
    free(r.kept);
    return status;
}

/* ---- all samples ---- */

static enum nd_status take_samples(struct contrast *c, size_t n_samples, struct nd_error *err)
{
    struct nd_error ignored;
    c->n_tensors = nd_model_n_tensors(c->model);
    enum nd_status status = nd_exact_graph_create(c->model, &c->graph, err);
    if (status == ND_OK)
        status = nd_parallel_for(c->job->options->n_threads, n_samples, take_sample, c,
                                 err != NULL ? err : &ignored);
    nd_exact_graph_destroy(&c->graph);
    return status;
}

static enum nd_status nd_align_contrast(const struct nd_align_job *job, const struct nd_model *model,
                                        size_t n_samples, struct nd_align_contrast *out, struct nd_error *err)
{
    size_t n_tensors = nd_model_n_tensors(model);
    struct contrast c = {.job = job,
                         .model = model,
                         .counts = nd_calloc(n_samples, sizeof *c.counts),
                         .is_different = nd_calloc(n_samples * n_tensors, sizeof *c.is_different)};
    enum nd_status status =
        c.counts != NULL && c.is_different != NULL ? take_samples(&c, n_samples, err) : nd_fail_memory(err);
    *out = (struct nd_align_contrast){0};
    for (size_t s = 0; s < n_samples && status == ND_OK; s++) {
        out->n_values += c.counts[s].n_values;
        out->n_different += c.counts[s].n_different;
    }
    for (size_t e = 0; e < n_tensors && status == ND_OK; e++) {
        bool is_different = false;
        for (size_t s = 0; s < n_samples; s++)
            is_different = is_different || c.is_different[s * n_tensors + e];
        out->n_tensors++;
        out->n_tensors_different += is_different;
    }
    ND_FREE_ALL(c.counts, c.is_different);
    return status;
}

/* effects[n_edges]: noise by signal at the outputs if the layer alone has another arithmetic. */
static enum nd_status nd_align_effects(const struct nd_align_job *job, const bool *is_product, size_t n_samples,
                                       double *effects, struct nd_error *err)
{
    size_t n_tensors = nd_model_n_tensors(job->model);
    ND_FREED double *all = nd_calloc(n_samples * n_tensors, sizeof *all);
    struct contrast c = {.job = job, .model = job->model, .is_product = is_product, .effects = all};
    ND_TRY_MEMORY(all != NULL, err);
    ND_TRY(take_samples(&c, n_samples, err));
    for (size_t e = 0; e < n_tensors; e++) {
        effects[e] = 0;
        for (size_t s = 0; s < n_samples; s++)
            effects[e] += all[s * n_tensors + e] / (double)n_samples;
    }
    return ND_OK;
}

/* All chosen. Each point plans, writes and evaluates the model; each effect is a run of it. */
enum {
    MAX_POINTS = 16,
    EFFECT_SAMPLES = 4,
    CONTRAST_SAMPLES = 16,
    ACCURACY_COST_SAMPLES = 64,
};

struct ranked {
    size_t tensor;
    double effect; /* noise by signal */
};

struct curve {
    struct nd_align_job *job;
    struct ranked *ranked; /* [n], the largest effect first */
    size_t n;
    bool *is_chosen; /* [n_edges], of the point at hand */
};

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- the order ---- */

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->effect != y->effect)
        return x->effect > y->effect ? -1 : 1;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static enum nd_status rank(struct curve *c, struct nd_error *err)
{
    const struct nd_model *model = c->job->model;
    size_t n_tensors = nd_model_n_tensors(model);
    ND_FREED bool *is_product = nd_calloc(n_tensors, sizeof *is_product);
    ND_FREED double *effects = nd_calloc(n_tensors, sizeof *effects);
    c->ranked = nd_calloc(n_tensors, sizeof *c->ranked);
    c->is_chosen = nd_calloc(n_tensors, sizeof *c->is_chosen);
    ND_TRY_MEMORY(is_product != NULL && effects != NULL && c->ranked != NULL && c->is_chosen != NULL, err);
    for (size_t u = 0; u < nd_model_n_layers(model); u++)
        is_product[nd_model_layer(model, u)->tensor] = nd_align_is_product(nd_model_layer(model, u)->op_types);
    ND_TRY(nd_align_effects(c->job, is_product, min_of(EFFECT_SAMPLES, nd_align_n_samples(c->job->options)),
                            effects, err));
    for (size_t e = 0; e < n_tensors; e++)
        if (is_product[e])
            c->ranked[c->n++] = (struct ranked){e, effects[e]};
    if (c->n > 0)
        qsort(c->ranked, c->n, sizeof *c->ranked, compare_ranked);
    return ND_OK;
}

/* ---- one point ---- */

static enum nd_status measure(struct nd_align_job *trial, struct nd_alignment_point *point,
                              struct nd_error *err)
{
    struct nd_align_contrast contrast;
    ND_TRY(nd_align_accuracy_cost(trial, NULL, err));
    point->sqnr_db = HUGE_VAL;
    point->loss_db = trial->result->n_outputs > 0 ? -HUGE_VAL : (double)NAN;
    for (size_t i = 0; i < trial->result->n_outputs; i++) {
        const struct nd_alignment_output *output = &trial->result->outputs[i];
        point->sqnr_db = output->sqnr_after_db < point->sqnr_db ? output->sqnr_after_db : point->sqnr_db;
        point->loss_db =
            output->loss_db > point->loss_db || isnan(output->loss_db) ? output->loss_db : point->loss_db;
    }
    ND_TRY(nd_align_contrast(trial, trial->aligned,
                             min_of(CONTRAST_SAMPLES, nd_align_n_samples(trial->options)), &contrast, err));
    point->n_values = contrast.n_values;
    point->n_different = contrast.n_different;
    point->n_tensors = contrast.n_tensors;
    point->n_tensors_different = contrast.n_tensors_different;
    return ND_OK;
}

/* The model in which the first n layers are aligned, on n_samples. */
static enum nd_status try_first(struct curve *c, size_t n, size_t n_samples, struct nd_alignment_point *point,
                                struct nd_error *err)
{
    struct nd_align_options options = *c->job->options;
    struct nd_align_job trial = *c->job;
    struct nd_align_plan plan = {.model = trial.model,
                                 .float_model = options.float_model,
                                 .arithmetics = trial.arithmetics,
                                 .n_arithmetics = trial.n_arithmetics,
                                 .is_chosen = c->is_chosen,
                                 .observed = trial.observed};
    options.n_samples = n_samples;
    options.progress = NULL; /* the points are counted */
    trial.options = &options;
    trial.folder = NULL;
    trial.aligned = trial.model;
    trial.read_again = NULL;
    trial.result = nd_calloc(1, sizeof *trial.result);
    memset(c->is_chosen, 0, nd_model_n_tensors(trial.model) * sizeof *c->is_chosen);
    for (size_t i = 0; i < n; i++)
        c->is_chosen[c->ranked[i].tensor] = true;
    enum nd_status status = trial.result != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && n > 0)
        status = nd_align_plan_make(&plan, err);
    if (status == ND_OK && n > 0)
        status = nd_align_write(&trial, &plan, err);
    if (status == ND_OK)
        status = measure(&trial, point, err);
    nd_align_plan_deinit(&plan);
    nd_model_destroy(&trial.read_again);
    nd_dir_remove(trial.folder);
    free(trial.folder);
    nd_alignment_destroy(&trial.result);
    return status;
}

/* ---- the curve ---- */

static enum nd_status make_point(struct curve *c, size_t n_layers, struct nd_error *err)
{
    struct nd_alignment *result = c->job->result;
    struct nd_alignment_point *point = &result->points[result->n_points];
    point->n_layers = n_layers;
    point->effect_db = (double)NAN;
    result->n_points++;
    if (n_layers > 0) {
        const struct ranked *last = &c->ranked[n_layers - 1];
        point->layer = nd_strdup(nd_model_tensor(c->job->model, last->tensor)->name);
        point->effect_db = -10 * log10(last->effect);
        ND_TRY_MEMORY(point->layer != NULL, err);
    }
    return try_first(c, n_layers, result->n_curve_samples, point, err);
}

static enum nd_status make_points(struct curve *c, struct nd_error *err)
{
    struct nd_alignment *result = c->job->result;
    size_t n_points = min_of(MAX_POINTS, c->n + 1);
    result->n_curve_samples = min_of(ACCURACY_COST_SAMPLES, nd_align_n_samples(c->job->options));
    result->points = nd_calloc(n_points, sizeof *result->points);
    ND_TRY_MEMORY(result->points != NULL, err);
    for (size_t i = 0; i < n_points; i++) {
        ND_TRY(nd_align_tell(c->job, "curve", i, n_points, err));
        ND_TRY(make_point(c, n_points > 1 ? i * c->n / (n_points - 1) : 0, err));
    }
    return ND_OK;
}

/* The point with the most layers that the budget allows on all samples, whose layers are chosen then. */
static enum nd_status choose(struct curve *c, bool *is_found, struct nd_error *err)
{
    const struct nd_alignment *result = c->job->result;
    size_t n_samples = nd_align_n_samples(c->job->options);
    enum nd_status status = ND_OK;
    *is_found = false;
    for (size_t i = result->n_points; i-- > 1 && status == ND_OK && !*is_found;) {
        struct nd_alignment_point point = {0};
        if (!(result->points[i].loss_db <= result->budget_db))
            continue;
        status = try_first(c, result->points[i].n_layers, n_samples, &point, err);
        *is_found = status == ND_OK && point.loss_db <= result->budget_db;
    }
    return status;
}

/* Layers by their effect, and what the first of them cost. *is_chosen [n_edges], owned by the
 * caller: those that the budget allows; NULL: not even one. */
static enum nd_status nd_align_curve(struct nd_align_job *job, bool **is_chosen, struct nd_error *err)
{
    struct curve c = {.job = job};
    bool is_found = false;
    enum nd_status status = rank(&c, err);
    if (status == ND_OK)
        status = make_points(&c, err);
    if (status == ND_OK)
        status = choose(&c, &is_found, err);
    if (status == ND_OK && is_found) {
        *is_chosen = c.is_chosen;
        c.is_chosen = NULL;
    }
    ND_FREE_ALL(c.ranked, c.is_chosen);
    return status;
}

/* ---- nd_align ---- */

enum nd_status nd_align_fold(struct nd_align_job *job, struct nd_error *err)
{
    ND_FREED char *path = NULL;
    ND_TRY(nd_align_name_file(job, "folded.onnx", &path, err));
    ND_TRY(nd_model_write_folded(job->original, path, &job->result->n_folded, err));
    if (job->result->n_folded > 0)
        ND_TRY(nd_model_load(path, &job->folded, err));
    if (job->folded != NULL)
        job->model = job->folded;
    return ND_OK;
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

/* ---- the stages ---- */

/* What the plan says of the layers goes to the result. ND_E_ALIGN_NOTHING: it plans none of the products. */
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
        return nd_fail(err, ND_E_ALIGN_REFERENCE, result->float_model,
                       "'%s' has the weights of none of the %zu layers of '%s': it is a different model, or "
                       "weights were changed before they were quantised (as when BatchNormalization is folded)",
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

/* job->model is what it was before. A plan that was made of the equalised one can only be freed then. */
static enum nd_status nd_align_unequalise(struct nd_align_job *job, struct nd_error *err)
{
    if (job->equalised == NULL)
        return ND_OK;
    nd_align_equalised_destroy(&job->equalised);
    job->model = job->folded != NULL ? job->folded : job->original;
    job->result->n_equalised = 0;
    nd_observed_destroy(&job->observed);
    return nd_align_observe(job, &job->observed, err);
}

/* What a part of the layers would cost is told with the refusal. */
static enum nd_status refuse(struct nd_align_job *job, struct nd_error *err)
{
    ND_FREED bool *is_chosen = NULL;
    enum nd_status status = nd_align_unequalise(job, err);
    if (status == ND_OK && job->result->n_points == 0)
        status = nd_align_curve(job, &is_chosen, err);
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
    ND_FREED size_t *tensors = NULL;
    size_t n = 0;
    if (layers == NULL)
        return ND_OK;
    if (strcmp(layers, "auto") == 0) {
        ND_TRY(nd_align_curve(job, is_chosen, err));
        return *is_chosen == NULL ? refuse(job, err) : ND_OK;
    }
    ND_TRY(nd_model_select_tensors(job->model, layers, &tensors, &n, err));
    *is_chosen = nd_calloc(nd_model_n_tensors(job->model), sizeof **is_chosen);
    ND_TRY_MEMORY(*is_chosen != NULL, err);
    for (size_t i = 0; i < n; i++)
        (*is_chosen)[tensors[i]] = true;
    return ND_OK;
}

static enum nd_status align_chosen(struct nd_align_job *job, const bool *is_chosen, struct nd_error *err)
{
    ND_CLEANUP(nd_align_plan_deinit)
    struct nd_align_plan plan = {.model = job->model,
                                 .float_model = job->options->float_model,
                                 .arithmetics = job->arithmetics,
                                 .n_arithmetics = job->n_arithmetics,
                                 .is_chosen = is_chosen,
                                 .observed = job->observed,
                                 .scaled = job->equalised != NULL ? job->equalised->scaled : NULL,
                                 .n_scaled = job->equalised != NULL ? job->equalised->n_scaled : 0};
    ND_TRY(nd_align_tell(job, "plan", 0, 1, err));
    ND_TRY(nd_align_plan_make(&plan, err));
    ND_TRY(take_steps(job, &plan, err));
    ND_TRY(nd_align_write(job, &plan, err));
    ND_TRY(nd_align_tell(job, "prove", 0, 1, err));
    ND_TRY(nd_align_prove(job, err));
    return weigh_and_write(job, &plan, err);
}

static enum nd_status align(struct nd_align_job *job, struct nd_error *err)
{
    ND_FREED bool *is_chosen = NULL;
    ND_TRY(nd_align_find_arithmetics(job, job->options->arithmetics, job->options->n_arithmetics, err));
    const char *layers = job->options->layers; /* those that are not named stay as they are */
    if (layers == NULL || strcmp(layers, "auto") == 0)
        ND_TRY(nd_align_fold(job, err));
    ND_TRY(nd_align_make_layers(job, job->model, err));
    ND_TRY(nd_align_observe(job, &job->observed, err));
    if (layers == NULL && !job->options->keeps_channels)
        ND_TRY(nd_align_equalise_best(job, err));
    ND_TRY(choose_layers(job, &is_chosen, err));
    return job->result->end != ND_ALIGN_END_OVER_BUDGET ? align_chosen(job, is_chosen, err) : ND_OK;
}

enum nd_status nd_align(const struct nd_model *model, const struct nd_align_options *options,
                        struct nd_alignment **out, struct nd_error *err)
{
    struct nd_align_options own;
    nd_align_options_init(&own);
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    ND_TRY(check_options(&own, err));
    size_t n_quantised = 0;
    for (size_t u = 0; u < nd_model_n_layers(model); u++)
        n_quantised += nd_model_tensor(model, nd_model_layer(model, u)->tensor)->quant.n > 0;
    if (n_quantised == 0)
        return nd_fail(
            err, ND_E_ALIGN_FLOAT, nd_model_path(model),
            "'%s' has no quantised layer; only a model with QuantizeLinear and DequantizeLinear can be aligned",
            nd_model_path(model));
    ND_TRY(nd_model_check_static(model, err));
    struct nd_align_job job = {
        .options = &own, .original = model, .model = model, .result = nd_calloc(1, sizeof *job.result)};
    ND_TRY_MEMORY(job.result != NULL, err);
    job.result->struct_size = sizeof *job.result;
    job.result->budget_db = own.budget_db;
    enum nd_status status = align(&job, err);
    nd_observed_destroy(&job.observed);
    nd_model_destroy(&job.read_again);
    nd_model_destroy(&job.folded);
    nd_align_equalised_destroy(&job.equalised);
    nd_dir_remove(job.folder);
    ND_FREE_ALL(job.folder, job.layer_of_tensor);
    if (status == ND_OK) {
        *out = job.result;
        job.result = NULL;
    }
    nd_alignment_destroy(&job.result);
    return status;
}
