#include "record/pass_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct nd_pass_memory {
    pthread_mutex_t lock;
    const struct nd_model *model; /* NULL: nothing is kept */
    size_t *edges;                /* [plan.n_edges]: indices into the model */
    struct nd_pass_plan plan;
};

struct nd_pass_memory *nd_pass_memory_create(void)
{
    struct nd_pass_memory *memory = nd_calloc(1, sizeof *memory);
    if (memory != NULL)
        pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

static void forget(struct nd_pass_memory *memory)
{
    nd_pass_plan_deinit(&memory->plan);
    free(memory->edges);
    memory->edges = NULL;
    memory->model = NULL;
}

void nd_pass_memory_destroy(struct nd_pass_memory **memory)
{
    if (*memory == NULL)
        return;
    forget(*memory);
    pthread_mutex_destroy(&(*memory)->lock);
    free(*memory);
    *memory = NULL;
}

/* Of n > 0 numbers, in new memory; NULL when there is none. */
static size_t *copy_numbers(const size_t *numbers, size_t n)
{
    size_t *copy = nd_calloc(n, sizeof *copy);
    if (copy != NULL && n > 0)
        memcpy(copy, numbers, n * sizeof *copy);
    return copy;
}

/* Of a plan without reasons. */
static enum nd_status copy_plan(const struct nd_pass_plan *plan, struct nd_pass_plan *out, struct nd_error *err)
{
    struct nd_pass_plan copy = {.pass_of_edge = copy_numbers(plan->pass_of_edge, plan->n_edges),
                                .reasons = nd_calloc(plan->n_edges, sizeof *copy.reasons),
                                .n_edges = plan->n_edges,
                                .passes = nd_calloc(plan->n_passes, sizeof *copy.passes),
                                .n_passes = plan->n_passes};
    bool is_whole = copy.pass_of_edge != NULL && copy.reasons != NULL && copy.passes != NULL;
    for (size_t p = 0; is_whole && p < plan->n_passes; p++) {
        copy.passes[p] = (struct nd_planned_pass){
            copy_numbers(plan->passes[p].checks, plan->passes[p].n_checks), plan->passes[p].n_checks};
        is_whole = copy.passes[p].checks != NULL;
    }
    if (!is_whole) {
        nd_pass_plan_deinit(&copy);
        return nd_fail_memory(err);
    }
    *out = copy;
    return ND_OK;
}

enum nd_status nd_pass_memory_keep(struct nd_pass_memory *memory, const struct nd_recording *recording,
                                   const struct nd_pass_plan *plan, struct nd_error *err)
{
    if (memory == NULL || plan->n_passes == 0)
        return ND_OK;
    for (size_t i = 0; i < plan->n_edges; i++)
        if (plan->pass_of_edge[i] == SIZE_MAX)
            return ND_OK;
    struct nd_pass_plan copy = {0};
    size_t *edges = copy_numbers(recording->edges, recording->n_edges);
    enum nd_status status = edges != NULL ? copy_plan(plan, &copy, err) : nd_fail_memory(err);
    if (status != ND_OK) {
        free(edges);
        return status;
    }
    pthread_mutex_lock(&memory->lock);
    forget(memory);
    memory->model = recording->model;
    memory->edges = edges;
    memory->plan = copy;
    pthread_mutex_unlock(&memory->lock);
    return ND_OK;
}

static enum nd_status recall(struct nd_pass_memory *memory, const struct nd_recording *recording,
                             struct nd_pass_plan *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    pthread_mutex_lock(&memory->lock);
    if (memory->model == recording->model && memory->plan.n_edges == recording->n_edges &&
        memcmp(memory->edges, recording->edges, recording->n_edges * sizeof *memory->edges) == 0)
        status = copy_plan(&memory->plan, out, err);
    pthread_mutex_unlock(&memory->lock);
    return status;
}

/* The session of one pass: its edges and its checks. scratch: [n_edges]. */
static enum nd_status try_pass(const struct nd_recording *recording, const struct nd_pass_plan *plan, size_t p,
                               size_t *scratch, bool *holds, struct nd_error *err)
{
    const struct nd_planned_pass *pass = &plan->passes[p];
    struct nd_tried tried = {0};
    size_t n = 0;
    for (size_t i = 0; i < plan->n_edges; i++) {
        bool is_shown = plan->pass_of_edge[i] == p;
        for (size_t k = 0; k < pass->n_checks; k++)
            is_shown = is_shown || pass->checks[k] == i;
        if (is_shown)
            scratch[n++] = recording->edges[i];
    }
    *holds = recording->has_time == NULL || recording->has_time(recording->context);
    enum nd_status status = *holds ? recording->trial(recording->context, scratch, n, &tried, err) : ND_OK;
    *holds = *holds && status == ND_OK && tried.holds;
    nd_tried_deinit(&tried);
    return status;
}

enum nd_status nd_pass_memory_try(struct nd_pass_memory *memory, const struct nd_recording *recording,
                                  struct nd_pass_plan *out, struct nd_error *err)
{
    struct nd_pass_plan plan = {0};
    bool holds = true;
    *out = (struct nd_pass_plan){0};
    if (memory == NULL)
        return ND_OK;
    size_t *scratch = nd_calloc(recording->n_edges, sizeof *scratch);
    enum nd_status status = scratch != NULL ? recall(memory, recording, &plan, err) : nd_fail_memory(err);
    for (size_t p = 0; status == ND_OK && holds && p < plan.n_passes; p++) {
        status = try_pass(recording, &plan, p, scratch, &holds, err);
        plan.n_trials++;
    }
    free(scratch);
    if (status == ND_OK && holds)
        *out = plan;
    else
        nd_pass_plan_deinit(&plan);
    return status;
}
