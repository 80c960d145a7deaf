#include "explain/worker.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

struct nd_array nd_explain_no_array(void)
{
    return (struct nd_array){.shape.rank = -1};
}

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

static enum nd_status make_worker_inputs(struct nd_explain_worker *w, struct nd_error *err)
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

static enum nd_status make_worker_steps(struct nd_explain_worker *w, struct nd_error *err)
{
    const struct nd_explain_job *job = w->job;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++) {
        const struct nd_explained_step *step = &job->out->steps[s];
        const struct nd_edge *edge = nd_model_edge(job->model, step->edge);
        status = nd_array_make(&w->reference[s], edge->dtype, &job->shapes[s], err);
        if (status == ND_OK)
            status = nd_array_make(&w->own[s], edge->dtype, &job->shapes[s], err);
        if (status == ND_OK && step->has_float)
            status = nd_array_make(&w->error[s], ND_DTYPE_F64, &job->shapes[s], err);
        for (size_t d = 0; d < job->n_devices && status == ND_OK; d++)
            if (job->sources[d].edges[s] != SIZE_MAX)
                status = make_block(job->sources[d].sample_bytes[s], &w->raw[d * job->n_steps + s], err);
    }
    return status;
}

static enum nd_status make_ballots(struct nd_explain_worker *w, struct nd_error *err)
{
    const struct nd_explain_job *job = w->job;
    size_t n;
    for (size_t s = 0; s < job->n_steps; s++)
        if (job->out->steps[s].is_model_output && w->reference[s].n > w->ballot_n)
            w->ballot_n = w->reference[s].n;
    if (!nd_size_mul(w->ballot_n, job->n_devices, &n))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "an output is too large");
    w->ballots = nd_calloc(n, sizeof *w->ballots);
    return w->ballots != NULL || n == 0 ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_explain_worker_init(struct nd_explain_worker *w, struct nd_explain_job *job,
                                      struct nd_error *err)
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
    w->own = nd_calloc(job->n_steps, sizeof *w->own);
    w->given = nd_calloc(n_edges, sizeof *w->given);
    w->chain = nd_calloc(n_edges, sizeof *w->chain);
    w->is_skipped = nd_calloc(n_edges, sizeof *w->is_skipped);
    w->is_below = nd_calloc(n_edges, sizeof *w->is_below);
    w->voters = nd_calloc(job->n_devices, sizeof *w->voters);
    w->raw = nd_calloc(job->n_devices * job->n_steps, sizeof *w->raw);
    w->tally = nd_calloc(job->n_devices * job->n_steps, sizeof *w->tally);
    w->unit_tally = nd_calloc(job->n_devices * job->n_steps, sizeof *w->unit_tally);
    if (w->inputs == NULL || w->float_inputs == NULL || w->raw_inputs == NULL || w->input_bytes == NULL ||
        w->reference == NULL || w->error == NULL || w->own == NULL || w->given == NULL || w->chain == NULL ||
        w->is_skipped == NULL || w->is_below == NULL || w->voters == NULL || w->raw == NULL ||
        w->tally == NULL || w->unit_tally == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < n_edges; e++)
        w->given[e] = nd_explain_no_array();
    enum nd_status status = nd_explain_trial_init(&w->trial, job->model, &job->alternatives, err);
    if (status == ND_OK)
        status = make_worker_inputs(w, err);
    for (size_t i = 0; i < n_float && status == ND_OK; i++)
        w->float_inputs[i] = w->inputs[job->float_inputs[i]];
    if (status == ND_OK)
        status = make_worker_steps(w, err);
    return status == ND_OK ? make_ballots(w, err) : status;
}

void nd_explain_worker_deinit(struct nd_explain_worker *w)
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
        if (w->own != NULL)
            nd_array_deinit(&w->own[s]);
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
    free(w->own);
    free(w->given);
    free(w->chain);
    free(w->is_skipped);
    free(w->is_below);
    free(w->ballots);
    free(w->voters);
    free(w->raw);
    free(w->tally);
    free(w->unit_tally);
    nd_explain_trial_deinit(&w->trial);
}

/* ---- what captures hold ---- */

enum nd_status nd_explain_read_block(struct nd_explain_worker *w, size_t first, size_t n, struct nd_error *err)
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
                status = nd_capture_read_verified(job->sources[d].capture, job->sources[d].probe,
                                                  job->sources[d].edges[s], first, n,
                                                  w->raw[d * job->n_steps + s], err);
    return status;
}

void nd_explain_load_inputs(struct nd_explain_worker *w)
{
    const struct nd_explain_job *job = w->job;
    for (size_t i = 0; i < nd_model_n_inputs(job->model); i++)
        nd_array_load(nd_model_input(job->model, i)->dtype, w->raw_inputs[i] + w->in_block * w->input_bytes[i],
                      w->inputs[i].n, w->inputs[i].x);
}

enum nd_status nd_explain_load_device(struct nd_explain_worker *w, struct nd_error *err)
{
    const struct nd_explain_job *job = w->job;
    const struct nd_explain_source *source = &job->sources[w->device];
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++) {
        struct nd_array *given = &w->given[job->out->steps[s].edge];
        if (given->shape.rank >= 0)
            nd_array_deinit(given);
        *given = nd_explain_no_array();
        if (source->edges[s] == SIZE_MAX)
            continue;
        enum nd_dtype dtype = nd_capture_edge(source->capture, source->edges[s])->dtype;
        *given = (struct nd_array){0};
        status = nd_array_make(given, dtype, &job->shapes[s], err);
        if (status == ND_OK)
            nd_array_load(dtype, w->raw[w->device * job->n_steps + s] + w->in_block * source->sample_bytes[s],
                          given->n, given->x);
    }
    return status;
}
