/* Layers in the order of their effect on the outputs, and what it costs to align the first of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "improve/align/align_stages.h"
#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"

/* All chosen. Each point plans, writes and evaluates the model; each effect is a run of it. */
enum {
    MOST_POINTS = 16,
    EFFECT_SAMPLES = 4,
    CONTRAST_SAMPLES = 16,
    PRICE_SAMPLES = 64,
};

struct ranked {
    size_t edge;
    double effect; /* noise by signal */
};

struct curve {
    struct nd_align_job *job;
    struct ranked *ranked; /* [n], the largest effect first */
    size_t n;
    bool *is_chosen; /* [n_edges], of the point at hand */
};

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- the order ---- */

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->effect != y->effect)
        return x->effect > y->effect ? -1 : 1;
    return x->edge < y->edge ? -1 : x->edge > y->edge;
}

static enum nd_status rank(struct curve *c, struct nd_error *err)
{
    const struct nd_model *model = c->job->model;
    size_t n_edges = nd_model_n_edges(model);
    bool *is_product = nd_calloc(n_edges, sizeof *is_product);
    double *effects = nd_calloc(n_edges, sizeof *effects);
    c->ranked = nd_calloc(n_edges, sizeof *c->ranked);
    c->is_chosen = nd_calloc(n_edges, sizeof *c->is_chosen);
    enum nd_status status = is_product != NULL && effects != NULL && c->ranked != NULL && c->is_chosen != NULL
                                ? ND_OK
                                : nd_fail_memory(err);
    for (size_t u = 0; u < nd_model_n_units(model) && status == ND_OK; u++)
        is_product[nd_model_unit(model, u)->edge] = nd_align_is_product(nd_model_unit(model, u)->op_types);
    if (status == ND_OK)
        status = nd_align_effects(c->job, is_product,
                                  least_of(EFFECT_SAMPLES, nd_align_n_samples(c->job->options)), effects, err);
    for (size_t e = 0; e < n_edges && status == ND_OK; e++)
        if (is_product[e])
            c->ranked[c->n++] = (struct ranked){e, effects[e]};
    if (status == ND_OK && c->n > 0)
        qsort(c->ranked, c->n, sizeof *c->ranked, compare_ranked);
    free(is_product);
    free(effects);
    return status;
}

/* ---- one point ---- */

static void take_price(const struct nd_alignment *result, struct nd_alignment_point *point)
{
    point->sqnr_db = HUGE_VAL;
    point->loss_db = result->n_outputs > 0 ? -HUGE_VAL : (double)NAN;
    for (size_t i = 0; i < result->n_outputs; i++) {
        const struct nd_alignment_output *output = &result->outputs[i];
        point->sqnr_db = output->sqnr_after_db < point->sqnr_db ? output->sqnr_after_db : point->sqnr_db;
        point->loss_db =
            output->loss_db > point->loss_db || isnan(output->loss_db) ? output->loss_db : point->loss_db;
    }
}

static enum nd_status measure(struct nd_align_job *trial, struct nd_alignment_point *point,
                              struct nd_error *err)
{
    struct nd_align_contrast contrast;
    enum nd_status status = nd_align_price(trial, NULL, err);
    if (status != ND_OK)
        return status;
    take_price(trial->result, point);
    status = nd_align_contrast(trial, trial->aligned,
                               least_of(CONTRAST_SAMPLES, nd_align_n_samples(trial->options)), &contrast, err);
    if (status != ND_OK)
        return status;
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
                                 .programs = trial.programs,
                                 .n_programs = trial.n_programs,
                                 .is_chosen = c->is_chosen,
                                 .observed = trial.observed};
    options.n_samples = n_samples;
    options.progress = NULL; /* the points are counted */
    trial.options = &options;
    trial.folder = NULL;
    trial.aligned = trial.model;
    trial.read_again = NULL;
    trial.result = nd_calloc(1, sizeof *trial.result);
    memset(c->is_chosen, 0, nd_model_n_edges(trial.model) * sizeof *c->is_chosen);
    for (size_t i = 0; i < n; i++)
        c->is_chosen[c->ranked[i].edge] = true;
    enum nd_status status = trial.result != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && n > 0)
        status = nd_align_plan_make(&plan, err);
    if (status == ND_OK && n > 0)
        status = nd_align_write(&trial, &plan, err);
    if (status == ND_OK)
        status = measure(&trial, point, err);
    nd_align_plan_deinit(&plan);
    nd_model_destroy(&trial.read_again);
    if (trial.folder != NULL)
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
        point->layer = nd_strdup(nd_model_edge(c->job->model, last->edge)->name);
        point->effect_db = -10 * log10(last->effect);
        if (point->layer == NULL)
            return nd_fail_memory(err);
    }
    return try_first(c, n_layers, result->n_curve_samples, point, err);
}

static enum nd_status make_points(struct curve *c, struct nd_error *err)
{
    struct nd_alignment *result = c->job->result;
    size_t n_points = least_of(MOST_POINTS, c->n + 1);
    result->n_curve_samples = least_of(PRICE_SAMPLES, nd_align_n_samples(c->job->options));
    result->points = nd_calloc(n_points, sizeof *result->points);
    enum nd_status status = result->points != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < n_points && status == ND_OK; i++) {
        status = nd_align_tell(c->job, "curve", i, n_points, err);
        if (status == ND_OK)
            status = make_point(c, n_points > 1 ? i * c->n / (n_points - 1) : 0, err);
    }
    return status;
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

enum nd_status nd_align_curve(struct nd_align_job *job, bool **is_chosen, struct nd_error *err)
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
    free(c.ranked);
    free(c.is_chosen);
    return status;
}
