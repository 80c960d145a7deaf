/* One sample: the references once, then the model on every device's own codes. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "explain/harm.h"
#include "explain/vote.h"

struct team {
    struct nd_explain_job *job;
    const struct nd_explain_options *options;
    atomic_size_t n_done; /* samples */
    struct nd_explain_worker *workers;
};

/* ---- the references ---- */

static struct nd_explain_reference_sums *reference_of(const struct nd_explain_worker *w, size_t step)
{
    return &w->job->reference[w->sample * w->job->n_steps + step];
}

/* False: the edge changes its shape from sample to sample. */
static bool keep(const struct nd_array *values, struct nd_array *to)
{
    if (values->n != to->n)
        return false;
    if (values->n > 0)
        memcpy(to->x, values->x, values->n * sizeof *values->x);
    return true;
}

static enum nd_status found_reference(void *context, size_t edge, const struct nd_array *values,
                                      enum nd_exact_way way, struct nd_error *err)
{
    (void)err;
    struct nd_explain_worker *w = context;
    size_t step = w->job->step_of_edge[edge];
    struct nd_explain_reference_sums *sums = reference_of(w, step);
    /* The quantisation of an input is ONNX's own operator, whatever way it takes. */
    sums->is_double = way == ND_EXACT_AS_DOUBLE && w->job->out->steps[step].is_unit;
    sums->is_missed = !keep(values, &w->reference[step]);
    return ND_OK;
}

static enum nd_status missed_reference(void *context, size_t edge, const struct nd_error *why,
                                       struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_explain_worker *w = context;
    reference_of(w, w->job->step_of_edge[edge])->is_missed = true;
    return ND_OK;
}

static enum nd_status found_float(void *context, size_t edge, const struct nd_array *values,
                                  enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    (void)err;
    struct nd_explain_worker *w = context;
    size_t step = w->job->step_of_float[edge];
    if (step != SIZE_MAX)
        reference_of(w, step)->is_float_missed = !keep(values, &w->error[step]);
    return ND_OK;
}

static enum nd_status missed_float(void *context, size_t edge, const struct nd_error *why, struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_explain_worker *w = context;
    size_t step = w->job->step_of_float[edge];
    if (step != SIZE_MAX)
        reference_of(w, step)->is_float_missed = true;
    return ND_OK;
}

/* How many elements that follow each other share a scale. */
static size_t inner_of(const struct nd_quant *quant, const struct nd_shape *shape, size_t n)
{
    size_t inner = quant->n > 1 ? 1 : n;
    int axis = quant->axis < 0 ? quant->axis + shape->rank : quant->axis;
    for (int d = shape->rank - 1; d > axis && quant->n > 1; d--)
        inner *= (size_t)shape->dims[d];
    return inner > 0 ? inner : 1;
}

/* Turns the float reference into the quantisation error, both in steps of the channel. */
static void take_error(struct nd_explain_worker *w, size_t step)
{
    const struct nd_explain_job *job = w->job;
    const struct nd_quant *quant = &nd_model_edge(job->model, job->out->steps[step].edge)->quant;
    const struct nd_array *codes = &w->reference[step];
    struct nd_explain_reference_sums *sums = reference_of(w, step);
    double *x = w->error[step].x;
    size_t inner = inner_of(quant, &job->shapes[step], codes->n);
    for (size_t i = 0; i < codes->n; i++) {
        size_t channel = i / inner % quant->n;
        double steps = x[i] / (double)quant->scale[channel];
        double q = codes->x[i] - (double)quant->zero_point[channel] - steps;
        sums->signal += steps * steps;
        sums->quantisation += q * q;
        if (nd_explain_is_clipped(codes->x[i] - q, codes->dtype)) {
            sums->n_clipped++;
            sums->clipped_quantisation += q * q;
        }
        x[i] = q;
    }
}

bool nd_explain_is_clipped(double value, enum nd_dtype dtype)
{
    double low, high;
    if (!nd_dtype_is_integer(dtype))
        return false;
    nd_code_range(dtype, &low, &high);
    return value < low - 0.5 || value > high + 0.5;
}

static enum nd_status run_references(struct nd_explain_worker *w, struct nd_error *err)
{
    struct nd_explain_job *job = w->job;
    const struct nd_exact_options options = {.struct_size = sizeof options, .missed = missed_reference};
    const struct nd_exact_options of_floats = {.struct_size = sizeof options, .missed = missed_float};
    enum nd_status status = nd_exact_graph_run(job->graph, w->inputs, &options, found_reference, w, err);
    if (status == ND_OK && job->float_graph != NULL)
        status = nd_exact_graph_run(job->float_graph, w->float_inputs, &of_floats, found_float, w, err);
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++)
        if (job->out->steps[s].has_float && !reference_of(w, s)->is_missed &&
            !reference_of(w, s)->is_float_missed)
            take_error(w, s);
    return status;
}

/* ---- a device ---- */

static void add_difference(struct nd_explain_part_sums *part, double d)
{
    part->n_differing += d != 0;
    part->max = fabs(d) > part->max ? fabs(d) : part->max;
    part->sum += d;
    part->energy += d * d;
}

/* The quantised reference's rounding; and which programs would have given what the device has. */
static enum nd_status round_device(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                   struct nd_error *err)
{
    (void)err;
    struct nd_explain_worker *w = context;
    const struct nd_explain_job *job = w->job;
    size_t step = job->step_of_edge[values->edge];
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        codes->x[i] = nd_code_of_ratio(&values->v[i], (double)values->quant->zero_point[channel], values->dtype,
                                       ND_ROUND_HALF_EVEN);
    }
    if (!job->out->devices[w->device].units[step].is_examined || w->given[values->edge].n != values->n)
        return ND_OK;
    size_t at = w->device * job->n_steps + step;
    nd_explain_tally_codes(&w->tally[at], values, w->given[values->edge].x);
    if (w->trial.edge == values->edge)
        nd_explain_trial_count(&w->trial, w->given[values->edge].x, codes->x, values->n, &w->unit_tally[at]);
    return ND_OK;
}

/* What programs of units make of it, before it is worked out exactly. */
static enum nd_status try_unit(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                               bool *is_made, struct nd_error *err)
{
    (void)codes;
    struct nd_explain_worker *w = context;
    *is_made = false;
    return nd_explain_trial_run(&w->trial, unit, &w->given[unit->edge], err);
}

/* What the unit makes of the device's own inputs, held against what the device has and, where there is one,
 * against the reference. */
static void add_unit(struct nd_explain_worker *w, size_t step, const struct nd_array *values)
{
    const struct nd_explain_job *job = w->job;
    const struct nd_explained_unit *unit = &job->out->devices[w->device].units[step];
    struct nd_explain_sums *sums = nd_explain_sums_of(job, w->sample, w->device, step);
    const double *given = w->given[job->out->steps[step].edge].x, *own = values->x;
    const double *ref = unit->has_total && !reference_of(w, step)->is_missed ? w->reference[step].x : NULL;
    const double *error = ref != NULL && job->out->steps[step].has_float ? w->error[step].x : NULL;
    sums->n_codes = values->n;
    for (size_t i = 0; i < values->n; i++) {
        double local = given[i] - own[i];
        if (unit->is_examined)
            add_difference(&sums->local, local);
        if (ref == NULL)
            continue;
        double total = given[i] - ref[i], inherited = own[i] - ref[i];
        add_difference(&sums->total, total);
        if (error != NULL) {
            sums->q_times_d += error[i] * total;
            if (total != 0 && nd_explain_is_clipped(ref[i] - error[i], w->reference[step].dtype))
                sums->clipped_divergence += total * total;
        }
        if (!unit->is_examined)
            continue;
        add_difference(&sums->inherited, inherited);
        sums->n_violations += total != local + inherited;
    }
}

static enum nd_status found_device(void *context, size_t edge, const struct nd_array *values,
                                   enum nd_exact_way way, struct nd_error *err)
{
    (void)err;
    struct nd_explain_worker *w = context;
    const struct nd_explain_job *job = w->job;
    size_t step = job->step_of_edge[edge];
    const struct nd_explained_unit *unit = &job->out->devices[w->device].units[step];
    if (!unit->has_total && !unit->is_examined)
        return ND_OK;
    if (reference_of(w, step)->is_missed) /* nobody else has said it */
        reference_of(w, step)->is_double = way == ND_EXACT_AS_DOUBLE && job->out->steps[step].is_unit;
    bool is_kept = values->n == w->own[step].n;
    if (is_kept && nd_explain_is_harm_sample(job, w->sample))
        is_kept = keep(values, &w->own[step]);
    nd_explain_sums_of(job, w->sample, w->device, step)->is_missed = !is_kept;
    if (is_kept)
        add_unit(w, step, values);
    return ND_OK;
}

static enum nd_status missed_device(void *context, size_t edge, const struct nd_error *why,
                                    struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_explain_worker *w = context;
    nd_explain_sums_of(w->job, w->sample, w->device, w->job->step_of_edge[edge])->is_missed = true;
    return ND_OK;
}

static enum nd_status run_device(struct nd_explain_worker *w, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_device,
                                             .make = try_unit,
                                             .given = w->given,
                                             .missed = missed_device};
    enum nd_status status = nd_explain_load_device(w, err);
    nd_explain_trial_begin(&w->trial);
    if (status == ND_OK)
        status = nd_exact_graph_run(w->job->graph, w->inputs, &options, found_device, w, err);
    return status;
}

/* Where chipsets share a lineage, one of them is worked out. */
static enum nd_status run_sample(struct nd_explain_worker *w, struct nd_error *err)
{
    struct nd_explain_job *job = w->job;
    nd_explain_load_inputs(w);
    enum nd_status status = run_references(w, err);
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++) {
        w->device = d;
        if (job->sources[d].is_failed || job->sources[d].same_as != d)
            continue;
        status = run_device(w, err);
        if (status == ND_OK && nd_explain_is_harm_sample(job, w->sample))
            status = nd_explain_measure_harm(w, err);
    }
    if (status == ND_OK)
        nd_explain_vote(w);
    return status;
}

/* What was worked out for another capture with the same codes. */
static void share_results(struct nd_explain_job *job, size_t device)
{
    size_t from = job->sources[device].same_as, n = job->n_steps;
    if (from == device)
        return;
    memcpy(job->tally + device * n, job->tally + from * n, n * sizeof *job->tally);
    memcpy(job->unit_tally + device * n, job->unit_tally + from * n, n * sizeof *job->unit_tally);
    for (size_t i = 0; i < job->n_samples; i++)
        memcpy(job->sums + (i * job->n_devices + device) * n, job->sums + (i * job->n_devices + from) * n,
               n * sizeof *job->sums);
}

static enum nd_status run_block(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct team *team = context;
    struct nd_explain_worker *w = &team->workers[worker];
    size_t first = task * ND_EXPLAIN_BLOCK;
    size_t n = team->job->n_samples - first;
    n = n < ND_EXPLAIN_BLOCK ? n : ND_EXPLAIN_BLOCK;
    enum nd_status status = w->is_made ? ND_OK : nd_explain_worker_init(w, team->job, err);
    if (status == ND_OK)
        status = nd_explain_read_block(w, first, n, err);
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        w->sample = first + i;
        w->in_block = i;
        status = run_sample(w, err);
        size_t n_done = atomic_fetch_add(&team->n_done, 1) + 1;
        if (worker == 0 && team->options->progress != NULL) /* the calling thread */
            team->options->progress(team->options->progress_context, n_done, team->job->n_samples);
    }
    return status;
}

enum nd_status nd_explain_run(struct nd_explain_job *job, const struct nd_explain_options *options,
                              struct nd_error *err)
{
    size_t n_workers = options->n_threads > 0 ? options->n_threads : nd_parallel_n_threads();
    struct team team = {.job = job, .options = options, .workers = nd_calloc(n_workers, sizeof *team.workers)};
    struct nd_error local = {0};
    if (team.workers == NULL)
        return nd_fail_memory(err);
    size_t n_blocks = (job->n_samples + ND_EXPLAIN_BLOCK - 1) / ND_EXPLAIN_BLOCK;
    enum nd_status status = nd_parallel_for(n_workers, n_blocks, run_block, &team, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    for (size_t i = 0; i < n_workers; i++) {
        for (size_t k = 0; k < job->n_devices * job->n_steps && team.workers[i].unit_tally != NULL; k++) {
            nd_explain_tally_merge(&team.workers[i].tally[k], &job->tally[k]);
            nd_explain_unit_tally_merge(&team.workers[i].unit_tally[k], &job->unit_tally[k]);
        }
        nd_explain_worker_deinit(&team.workers[i]);
    }
    for (size_t k = 0; k < job->n_devices * job->n_steps; k++)
        nd_explain_tally_finish(&job->tally[k]);
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++)
        share_results(job, d);
    free(team.workers);
    return status == ND_OK ? nd_explain_settle(job, err) : status;
}
