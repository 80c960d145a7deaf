/* One sample: the references once, then the model on every device's own codes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "explain/internal.h"

struct worker {
    struct nd_explain_job *job;
    bool is_made;
    struct nd_array *inputs;        /* [n_inputs of model] */
    struct nd_array *float_inputs;  /* [n_inputs of float_model]: views of inputs */
    struct nd_array *reference;     /* [n_steps] codes (or floats) of the quantised reference */
    struct nd_array *error;         /* [n_steps] first the float reference, then q in steps; rank < 0 without */
    struct nd_array *given;         /* [n_edges]: rank < 0 where nothing was captured */
    unsigned char **raw_inputs;     /* [n_inputs]: a block of samples */
    unsigned char **raw;            /* [n_devices * n_steps]: the same, NULL where nothing is read */
    size_t *input_bytes;            /* [n_inputs] of a sample */
    struct nd_explain_votes *votes; /* [n_devices][n_steps] */
    size_t sample, device;          /* at hand */
};

struct team {
    struct nd_explain_job *job;
    struct worker *workers;
};

static const struct nd_array no_array = {.shape.rank = -1};

enum nd_status nd_explain_make_inputs(const struct nd_model *model, struct nd_array *inputs,
                                      struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < nd_model_n_inputs(model) && status == ND_OK; i++) {
        const struct nd_model_io *io = nd_model_input(model, i);
        status = nd_array_make(&inputs[i], io->dtype, &io->shape, err);
    }
    return status;
}

/* ---- scratch ---- */

static enum nd_status make_block(size_t sample_bytes, unsigned char **out, struct nd_error *err)
{
    size_t bytes;
    if (!nd_size_mul(sample_bytes, ND_EXPLAIN_BLOCK, &bytes))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "a tensor is too large");
    *out = nd_tensor_alloc(bytes);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status make_worker_inputs(struct worker *w, struct nd_error *err)
{
    const struct nd_explain_job *job = w->job;
    enum nd_status status = nd_explain_make_inputs(job->model, w->inputs, err);
    for (size_t i = 0; i < nd_model_n_inputs(job->model) && status == ND_OK; i++) {
        const struct nd_model_io *io = nd_model_input(job->model, i);
        status = nd_shape_size_bytes(&io->shape, io->dtype, &w->input_bytes[i], err);
        if (status == ND_OK)
            status = make_block(w->input_bytes[i], &w->raw_inputs[i], err);
    }
    return status;
}

static enum nd_status make_worker_steps(struct worker *w, struct nd_error *err)
{
    const struct nd_explain_job *job = w->job;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++) {
        const struct nd_explained_step *step = &job->out->steps[s];
        const struct nd_edge *edge = nd_model_edge(job->model, step->edge);
        status = nd_array_make(&w->reference[s], edge->dtype, &job->shapes[s], err);
        if (status == ND_OK && step->has_float)
            status = nd_array_make(&w->error[s], ND_DTYPE_F64, &job->shapes[s], err);
        for (size_t d = 0; d < job->n_devices && status == ND_OK; d++)
            if (job->sources[d].edges[s] != SIZE_MAX)
                status = make_block(job->sources[d].sample_bytes[s], &w->raw[d * job->n_steps + s], err);
    }
    return status;
}

static enum nd_status make_worker(struct worker *w, struct nd_explain_job *job, struct nd_error *err)
{
    size_t n_inputs = nd_model_n_inputs(job->model), n_edges = nd_model_n_edges(job->model);
    size_t n_float = job->float_model != NULL ? nd_model_n_inputs(job->float_model) : 0;
    w->job = job;
    w->is_made = true;
    w->inputs = nd_calloc(n_inputs, sizeof *w->inputs);
    w->float_inputs = nd_calloc(n_float, sizeof *w->float_inputs);
    w->raw_inputs = nd_calloc(n_inputs, sizeof *w->raw_inputs);
    w->input_bytes = nd_calloc(n_inputs, sizeof *w->input_bytes);
    w->reference = nd_calloc(job->n_steps, sizeof *w->reference);
    w->error = nd_calloc(job->n_steps, sizeof *w->error);
    w->given = nd_calloc(n_edges, sizeof *w->given);
    w->raw = nd_calloc(job->n_devices * job->n_steps, sizeof *w->raw);
    w->votes = nd_calloc(job->n_devices * job->n_steps, sizeof *w->votes);
    if (w->inputs == NULL || w->float_inputs == NULL || w->raw_inputs == NULL || w->input_bytes == NULL ||
        w->reference == NULL || w->error == NULL || w->given == NULL || w->raw == NULL || w->votes == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < n_edges; e++)
        w->given[e] = no_array;
    enum nd_status status = make_worker_inputs(w, err);
    for (size_t i = 0; i < n_float && status == ND_OK; i++)
        w->float_inputs[i] = w->inputs[job->float_inputs[i]];
    return status == ND_OK ? make_worker_steps(w, err) : status;
}

static void worker_deinit(struct worker *w)
{
    const struct nd_explain_job *job = w->job;
    if (!w->is_made)
        return;
    for (size_t i = 0; i < nd_model_n_inputs(job->model); i++) {
        if (w->inputs != NULL)
            nd_array_deinit(&w->inputs[i]);
        if (w->raw_inputs != NULL)
            free(w->raw_inputs[i]);
    }
    for (size_t s = 0; s < job->n_steps; s++) {
        if (w->reference != NULL)
            nd_array_deinit(&w->reference[s]);
        if (w->error != NULL)
            nd_array_deinit(&w->error[s]);
    }
    for (size_t e = 0; w->given != NULL && e < nd_model_n_edges(job->model); e++)
        if (w->given[e].shape.rank >= 0)
            nd_array_deinit(&w->given[e]);
    for (size_t i = 0; w->raw != NULL && i < job->n_devices * job->n_steps; i++)
        free(w->raw[i]);
    free(w->inputs);
    free(w->float_inputs);
    free(w->raw_inputs);
    free(w->input_bytes);
    free(w->reference);
    free(w->error);
    free(w->given);
    free(w->raw);
    free(w->votes);
}

/* ---- the references ---- */

static enum nd_status keep(const struct nd_array *values, struct nd_array *to, const char *name,
                           struct nd_error *err)
{
    if (values->n != to->n)
        return nd_fail(err, ND_E_EXACT_SHAPE, name, "edge '%s' changes its shape from sample to sample", name);
    memcpy(to->x, values->x, values->n * sizeof *values->x);
    return ND_OK;
}

static enum nd_status found_reference(void *context, size_t edge, const struct nd_array *values,
                                      enum nd_exact_way way, struct nd_error *err)
{
    struct worker *w = context;
    size_t step = w->job->step_of_edge[edge];
    /* The quantisation of an input is ONNX's own operator, whatever way it takes. */
    w->job->reference[w->sample * w->job->n_steps + step].is_double =
        way == ND_EXACT_AS_DOUBLE && w->job->out->steps[step].is_unit;
    return keep(values, &w->reference[step], w->job->out->steps[step].name, err);
}

static enum nd_status found_float(void *context, size_t edge, const struct nd_array *values,
                                  enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    struct worker *w = context;
    size_t step = w->job->step_of_float[edge];
    return step != SIZE_MAX ? keep(values, &w->error[step], w->job->out->steps[step].name, err) : ND_OK;
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
static void take_error(struct worker *w, size_t step)
{
    const struct nd_explain_job *job = w->job;
    const struct nd_quant *quant = &nd_model_edge(job->model, job->out->steps[step].edge)->quant;
    const struct nd_array *codes = &w->reference[step];
    struct nd_explain_reference_sums *sums = &job->reference[w->sample * job->n_steps + step];
    double *x = w->error[step].x;
    size_t inner = inner_of(quant, &job->shapes[step], codes->n);
    for (size_t i = 0; i < codes->n; i++) {
        size_t channel = i / inner % quant->n;
        double steps = x[i] / (double)quant->scale[channel];
        double q = codes->x[i] - (double)quant->zero_point[channel] - steps;
        sums->signal += steps * steps;
        sums->quantisation += q * q;
        x[i] = q;
    }
}

static enum nd_status run_references(struct worker *w, struct nd_error *err)
{
    struct nd_explain_job *job = w->job;
    enum nd_status status = nd_exact_graph_run(job->graph, w->inputs, NULL, found_reference, w, err);
    if (status == ND_OK && job->float_graph != NULL)
        status = nd_exact_graph_run(job->float_graph, w->float_inputs, NULL, found_float, w, err);
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++)
        if (job->out->steps[s].has_float)
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
    struct worker *w = context;
    const struct nd_explain_job *job = w->job;
    size_t step = job->step_of_edge[values->edge];
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        codes->x[i] = nd_code_of_ratio(&values->v[i], (double)values->quant->zero_point[channel], values->dtype,
                                       ND_ROUND_HALF_EVEN);
    }
    if (job->out->devices[w->device].units[step].is_examined && w->given[values->edge].n == values->n)
        nd_explain_count_votes(&w->votes[w->device * job->n_steps + step], values, w->given[values->edge].x);
    return ND_OK;
}

static enum nd_status found_device(void *context, size_t edge, const struct nd_array *values,
                                   enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    struct worker *w = context;
    const struct nd_explain_job *job = w->job;
    size_t step = job->step_of_edge[edge];
    const struct nd_explained_unit *unit = &job->out->devices[w->device].units[step];
    if (!unit->has_total)
        return ND_OK;
    struct nd_explain_sums *sums = &job->sums[(w->sample * job->n_devices + w->device) * job->n_steps + step];
    const double *ref = w->reference[step].x, *given = w->given[edge].x, *own = values->x;
    const double *error = job->out->steps[step].has_float ? w->error[step].x : NULL;
    if (values->n != w->reference[step].n)
        return nd_fail(err, ND_E_EXACT_SHAPE, job->out->steps[step].name,
                       "edge '%s' changes its shape with its inputs", job->out->steps[step].name);
    sums->n_codes = values->n;
    for (size_t i = 0; i < values->n; i++) {
        double total = given[i] - ref[i];
        add_difference(&sums->total, total);
        if (error != NULL)
            sums->q_times_d += error[i] * total;
        if (!unit->is_examined)
            continue;
        double local = given[i] - own[i], inherited = own[i] - ref[i];
        add_difference(&sums->local, local);
        add_difference(&sums->inherited, inherited);
        sums->n_violations += total != local + inherited;
    }
    return ND_OK;
}

static enum nd_status load_given(struct worker *w, size_t in_block, struct nd_error *err)
{
    const struct nd_explain_job *job = w->job;
    const struct nd_explain_source *source = &job->sources[w->device];
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++) {
        struct nd_array *given = &w->given[job->out->steps[s].edge];
        if (given->shape.rank >= 0)
            nd_array_deinit(given);
        *given = no_array;
        if (source->edges[s] == SIZE_MAX)
            continue;
        enum nd_dtype dtype = nd_capture_edge(source->capture, source->edges[s])->dtype;
        *given = (struct nd_array){0};
        status = nd_array_make(given, dtype, &job->shapes[s], err);
        if (status == ND_OK)
            nd_array_load(dtype, w->raw[w->device * job->n_steps + s] + in_block * source->sample_bytes[s],
                          given->n, given->x);
    }
    return status;
}

static enum nd_status run_device(struct worker *w, size_t in_block, struct nd_error *err)
{
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .round = round_device, .given = w->given};
    enum nd_status status = load_given(w, in_block, err);
    if (status == ND_OK)
        status = nd_exact_graph_run(w->job->graph, w->inputs, &options, found_device, w, err);
    return status;
}

/* ---- blocks of samples ---- */

static enum nd_status read_block(struct worker *w, size_t first, size_t n, struct nd_error *err)
{
    const struct nd_explain_job *job = w->job;
    const struct nd_explain_source *leader = &job->sources[job->leader];
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < nd_model_n_inputs(job->model) && status == ND_OK; i++)
        status = nd_capture_read_inputs(leader->capture, leader->probe, job->inputs[i], first, n,
                                        w->raw_inputs[i], err);
    for (size_t d = 0; d < job->n_devices; d++)
        for (size_t s = 0; s < job->n_steps && status == ND_OK; s++)
            if (job->sources[d].edges[s] != SIZE_MAX)
                status = nd_capture_read_outputs(job->sources[d].capture, job->sources[d].probe,
                                                 job->sources[d].edges[s], first, n,
                                                 w->raw[d * job->n_steps + s], err);
    return status;
}

static enum nd_status run_sample(struct worker *w, size_t in_block, struct nd_error *err)
{
    struct nd_explain_job *job = w->job;
    for (size_t i = 0; i < nd_model_n_inputs(job->model); i++)
        nd_array_load(nd_model_input(job->model, i)->dtype, w->raw_inputs[i] + in_block * w->input_bytes[i],
                      w->inputs[i].n, w->inputs[i].x);
    enum nd_status status = run_references(w, err);
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++) {
        w->device = d;
        if (!job->sources[d].is_failed)
            status = run_device(w, in_block, err);
    }
    return status;
}

static enum nd_status run_block(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct team *team = context;
    struct worker *w = &team->workers[worker];
    size_t first = task * ND_EXPLAIN_BLOCK;
    size_t n = team->job->n_samples - first;
    n = n < ND_EXPLAIN_BLOCK ? n : ND_EXPLAIN_BLOCK;
    enum nd_status status = w->is_made ? ND_OK : make_worker(w, team->job, err);
    if (status == ND_OK)
        status = read_block(w, first, n, err);
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        w->sample = first + i;
        status = run_sample(w, i, err);
    }
    return status;
}

enum nd_status nd_explain_run(struct nd_explain_job *job, size_t n_threads, struct nd_error *err)
{
    size_t n_workers = n_threads > 0 ? n_threads : nd_parallel_n_threads();
    struct team team = {.job = job, .workers = nd_calloc(n_workers, sizeof *team.workers)};
    struct nd_error local = {0};
    if (team.workers == NULL)
        return nd_fail_memory(err);
    size_t n_blocks = (job->n_samples + ND_EXPLAIN_BLOCK - 1) / ND_EXPLAIN_BLOCK;
    enum nd_status status = nd_parallel_for(n_workers, n_blocks, run_block, &team, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    for (size_t i = 0; i < n_workers; i++) {
        for (size_t k = 0; k < job->n_devices * job->n_steps && team.workers[i].votes != NULL; k++)
            nd_explain_merge_votes(&team.workers[i].votes[k], &job->votes[k]);
        worker_deinit(&team.workers[i]);
    }
    for (size_t k = 0; k < job->n_devices * job->n_steps; k++)
        nd_explain_finish_votes(&job->votes[k]);
    free(team.workers);
    return status;
}
