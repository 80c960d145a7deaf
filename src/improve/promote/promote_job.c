/* Proposals put into the model one after the other, the largest gain for its cost first: those that help on all
 * devices stay. After each that stays the gains of the others are computed anew, as layers hide each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "improve/promote/promote_job.h"

/* A proposal that gains less on a device, in dB, does not help; the same as computed: chosen. */
static const double least_gain_db = 0.05;
/* Below a thousandth of the model nothing is cheaper than the rest: chosen. */
static const double least_percent = 0.1;
/* So many may fail on the devices before the search ends: chosen, each is a run on every device. */
enum { MOST_FAILURES = 8 };

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
    return layer->measured_db >= least_gain_db;
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
    enum nd_status status = ND_OK;
    *out = SIZE_MAX;
    for (size_t i = s->n_tried; i < result->n_layers && status == ND_OK; i++) {
        struct nd_promotion_cost cost;
        double gain = s->sqnr_db[job->order[i]] - result->computed_after_db;
        job->kept[result->n_kept] = job->order[i];
        if (!(gain >= least_gain_db))
            continue;
        status = nd_promotion_cost_of(job, job->kept, result->n_kept + 1, &cost, err);
        double worth = gain / fmax(cost.percent - result->cost.percent, least_percent);
        bool is_dear = cost.percent > result->budget_percent;
        result->layers[i].fate = is_dear ? ND_PROMOTE_OVER_BUDGET : ND_PROMOTE_NOT_TRIED;
        if (!is_dear && worth > best) {
            best = worth;
            *out = i;
        }
    }
    return status;
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
    enum nd_status status = write_and_run(job, result->n_kept + 1, s->measured, &layer->reason, err);
    if (status != ND_OK)
        return status;
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
    enum nd_status status = compute_gains(s, err);
    while (status == ND_OK && result->n_kept < s->job->options->n_layers && s->n_failed < MOST_FAILURES) {
        size_t n_kept = result->n_kept, next = SIZE_MAX;
        status = nd_promote_tell(s->job, "proposals", s->n_tried, result->n_layers, err);
        if (status == ND_OK)
            status = find_best(s, &next, err);
        if (status != ND_OK || next == SIZE_MAX)
            return status;
        status = try_layer(s, next, err);
        if (status == ND_OK && result->n_kept > n_kept)
            status = compute_gains(s, err);
    }
    return status;
}

enum nd_status nd_try_proposals(struct nd_promote_job *job, struct nd_error *err)
{
    struct search s = {.job = job,
                       .sqnr_db = nd_calloc(nd_promotions_n(job->promotions) + 1, sizeof *s.sqnr_db),
                       .measured = nd_calloc(job->options->n_devices, sizeof *s.measured)};
    enum nd_status status = s.sqnr_db != NULL && s.measured != NULL ? search(&s, err) : nd_fail_memory(err);
    free(s.sqnr_db);
    free(s.measured);
    return status;
}
