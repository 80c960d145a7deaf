#include "compare/engine/engine.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "capture/read/view.h"
#include "compare/engine/deliver.h"
#include "compare/engine/part.h"
#include "compare/engine/unit.h"

enum { DEFAULT_MEMORY = 512 << 20, WORKER_MEMORY = 3 << 20 };

struct engine {
    const struct nd_matching *alignment;
    const struct nd_compare_options *options;
    struct nd_comparison *comparison;
    size_t n_workers;
    struct nd_worker **workers;
    struct nd_job **jobs;
    size_t n_jobs, jobs_capacity;
    size_t *first_unit; /* [n_jobs + 1]: units are numbered over all jobs */
    pthread_mutex_t lock;
    atomic_size_t n_done; /* units */
    struct nd_delivery delivery;
};

static enum nd_status plan_edge(struct engine *engine, const struct nd_job_options *job_options, size_t e,
                                struct nd_error *err)
{
    struct nd_compared_edge *edge = &engine->comparison->edges[e];
    bool *is_mixed = nd_calloc(engine->comparison->n_pairs, sizeof *is_mixed);
    enum nd_status status = is_mixed != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t p = 0; p < engine->comparison->n_pairs && status == ND_OK; p++) {
        struct nd_compared_pair *pair = &edge->pairs[p];
        status = nd_align_edges(nd_aligned_edge(engine->alignment, e, pair->ref),
                                nd_aligned_edge(engine->alignment, e, pair->test), &is_mixed[p],
                                &pair->total.reason, err);
    }
    for (size_t probe = 0; probe < engine->comparison->n_probes && status == ND_OK; probe++)
        status = nd_jobs_plan(engine->alignment, e, probe, job_options, edge, is_mixed, &engine->jobs,
                              &engine->n_jobs, &engine->jobs_capacity, err);
    free(is_mixed);
    return status;
}

static enum nd_status plan(struct engine *engine, const struct nd_kernels *kernels, struct nd_error *err)
{
    struct nd_comparison *comparison = engine->comparison;
    struct nd_job_options job_options = {.compare = engine->options,
                                         .kernels = kernels,
                                         .n_pairs = comparison->n_pairs,
                                         .n_workers = engine->n_workers};
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < comparison->n_edges; e++)
        job_options.has_outputs = job_options.has_outputs || comparison->edges[e].is_model_output;
    for (size_t e = 0; e < comparison->n_edges && status == ND_OK; e++) {
        job_options.pairs = comparison->edges[e].pairs;
        status = plan_edge(engine, &job_options, e, err);
    }
    if (status != ND_OK)
        return status;
    engine->first_unit = nd_calloc(engine->n_jobs + 1, sizeof *engine->first_unit);
    if (engine->first_unit == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < engine->n_jobs; i++)
        engine->first_unit[i + 1] = engine->first_unit[i] + engine->jobs[i]->n_units;
    return ND_OK;
}

/* Fewer threads where their buffers would not fit; one must. */
static enum nd_status fit_memory(struct engine *engine, struct nd_error *err)
{
    size_t budget = engine->options->memory_bytes > 0 ? engine->options->memory_bytes : DEFAULT_MEMORY,
           most = 0;
    const struct nd_job *largest = NULL;
    for (size_t i = 0; i < engine->n_jobs; i++)
        if (nd_job_memory(engine->jobs[i]) > most) {
            largest = engine->jobs[i];
            most = nd_job_memory(largest);
        }
    size_t each = most + WORKER_MEMORY;
    if (each > budget)
        return nd_fail(err, ND_E_COMPARE_MEMORY,
                       engine->alignment->edge_names[largest != NULL ? largest->edge : 0],
                       "edge '%s' needs %zu MiB for the chunks of %zu captures, and %zu MiB were granted",
                       engine->alignment->edge_names[largest != NULL ? largest->edge : 0], (each >> 20) + 1,
                       largest != NULL ? largest->n_streams : 0, budget >> 20);
    if (engine->n_workers > budget / each)
        engine->n_workers = budget / each;
    return ND_OK;
}

static enum nd_status make_workers(struct engine *engine, struct nd_error *err)
{
    size_t n_streams = 1, n_pairs = 1;
    for (size_t i = 0; i < engine->n_jobs; i++) {
        n_streams = engine->jobs[i]->n_streams > n_streams ? engine->jobs[i]->n_streams : n_streams;
        n_pairs = engine->jobs[i]->n_pairs > n_pairs ? engine->jobs[i]->n_pairs : n_pairs;
    }
    engine->workers = nd_calloc(engine->n_workers, sizeof(struct nd_worker *));
    if (engine->workers == NULL)
        return nd_fail_memory(err);
    for (size_t w = 0; w < engine->n_workers; w++)
        if ((engine->workers[w] = nd_worker_create(w, n_streams, n_pairs, err)) == NULL)
            return ND_ERR_MEMORY;
    return ND_OK;
}

/* The last job whose units begin at or before that number, and which has any. */
static size_t find_job(const struct engine *engine, size_t unit)
{
    size_t low = 0, high = engine->n_jobs;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (engine->first_unit[middle] <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum nd_status run_task(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct engine *engine = context;
    size_t j = find_job(engine, task);
    struct nd_job *job = engine->jobs[j];
    const struct nd_compare_options *options = engine->options;
    if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "the comparison was stopped on request");
    enum nd_status status = nd_unit_run(engine->workers[worker], job, task - engine->first_unit[j], err);
    if (options->progress != NULL)
        options->progress(options->progress_context, "compare", atomic_fetch_add(&engine->n_done, 1) + 1,
                          engine->first_unit[engine->n_jobs]);
    if (status != ND_OK || atomic_fetch_sub(&job->n_units_left, 1) > 1)
        return status;
    pthread_mutex_lock(&engine->lock);
    status = nd_deliver(&engine->delivery, job, err);
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static enum nd_status run(struct engine *engine, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < engine->n_jobs && status == ND_OK; i++)
        if (engine->jobs[i]->n_units == 0)
            status = nd_deliver(&engine->delivery, engine->jobs[i], err);
    if (status == ND_OK)
        status = nd_parallel_for(engine->n_workers, engine->first_unit[engine->n_jobs], run_task, engine, err);
    /* In order of the jobs, so that of several damaged samples always the same one is named. */
    for (size_t i = 0; i < engine->n_jobs && status == ND_OK && engine->options->merge == NULL; i++)
        if (engine->jobs[i]->n_units > 0)
            status = nd_deliver_check(engine->jobs[i], err);
    /* What looks damaged in a file that was changed meanwhile is no damage: the change is the error. */
    bool may_be_changed = status == ND_OK || status == ND_ERR_FORMAT;
    for (size_t c = 0; c < engine->alignment->n_captures && may_be_changed; c++) {
        enum nd_status unchanged = nd_capture_check_unchanged(engine->alignment->captures[c], err);
        may_be_changed = unchanged == ND_OK;
        status = unchanged != ND_OK ? unchanged : status;
    }
    return status;
}

enum nd_status nd_engine_run(const struct nd_matching *alignment, const struct nd_compare_options *options,
                             const struct nd_kernels *kernels, struct nd_comparison *comparison,
                             struct nd_error *err)
{
    struct engine engine = {.alignment = alignment, .options = options, .comparison = comparison};
    engine.n_workers = options->n_threads > 0 ? options->n_threads : nd_parallel_n_threads();
    engine.delivery =
        (struct nd_delivery){.alignment = alignment, .options = options, .comparison = comparison};
    pthread_mutex_init(&engine.lock, NULL);
    enum nd_status status = plan(&engine, kernels, err);
    if (status == ND_OK)
        status = fit_memory(&engine, err);
    if (status == ND_OK)
        status = make_workers(&engine, err);
    if (status == ND_OK)
        status = nd_delivery_init(&engine.delivery, engine.jobs, engine.n_jobs, err);
    if (status == ND_OK)
        status = run(&engine, err);
    if (status == ND_OK)
        status = nd_accuracy_count(alignment, &engine.delivery.rows, comparison, err);
    if (status == ND_OK && options->merge != NULL)
        status = nd_parts_load_top1(options->merge, comparison, err);
    nd_delivery_deinit(&engine.delivery);
    for (size_t w = 0; engine.workers != NULL && w < engine.n_workers; w++)
        nd_worker_destroy(&engine.workers[w]);
    free(engine.workers);
    for (size_t i = 0; i < engine.n_jobs; i++)
        nd_job_destroy(&engine.jobs[i]);
    free(engine.jobs);
    free(engine.first_unit);
    pthread_mutex_destroy(&engine.lock);
    return status;
}
