/* Layers that cannot be evaluated: the reference goes on with the values that a capture has of them. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/plan/plan.h"
#include "explain/plan/reader.h"
#include "explain/plan/survey.h"

/* A CPU's values are the nearest to the reference's own; else those of the first device that has them. */
static size_t find_donor(const struct nd_plan *plan, size_t step)
{
    size_t donor = SIZE_MAX;
    for (size_t d = 0; d < plan->n_devices; d++) {
        const struct nd_plan_source *source = &plan->sources[d];
        if (source->is_failed || source->edges[step] == SIZE_MAX)
            continue;
        if (source->expectation == ND_EXPECT_FLOAT)
            return d;
        donor = donor == SIZE_MAX ? d : donor;
    }
    return donor;
}

/* What has a reference once those values are given. */
static enum nd_status survey_again(struct nd_plan *plan, const struct nd_array *zeros, struct nd_error *err)
{
    struct nd_survey survey = {0};
    enum nd_status status = nd_survey_run(&survey, plan->model, plan->graph, zeros, err);
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
        size_t e = plan->steps[s].edge;
        size_t root = survey.edges[e].why != NULL ? plan->step_of_edge[nd_survey_root(&survey, e)] : SIZE_MAX;
        plan->steps[s].unreached_from =
            root != SIZE_MAX && plan->steps[root].taken_from != SIZE_MAX ? SIZE_MAX : root;
    }
    nd_survey_deinit(&survey);
    return status;
}

void nd_taken_free(const struct nd_plan *plan, struct nd_array **taken)
{
    for (size_t e = 0; *taken != NULL && e < nd_model_n_edges(plan->model); e++)
        if ((*taken)[e].shape.rank >= 0)
            nd_array_deinit(&(*taken)[e]);
    free(*taken);
    *taken = NULL;
}

enum nd_status nd_taken_make(const struct nd_plan *plan, struct nd_array **taken, struct nd_error *err)
{
    size_t n_edges = nd_model_n_edges(plan->model);
    enum nd_status status = ND_OK;
    *taken = nd_calloc(n_edges, sizeof **taken);
    if (*taken == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < n_edges; e++)
        (*taken)[e] = nd_no_array();
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
        size_t donor = plan->steps[s].taken_from;
        if (donor == SIZE_MAX)
            continue;
        const struct nd_plan_source *source = &plan->sources[donor];
        struct nd_array *array = &(*taken)[plan->steps[s].edge];
        *array = (struct nd_array){0};
        status = nd_array_make(array, nd_capture_edge(source->capture, source->edges[s])->dtype,
                               &plan->shapes[s], err);
    }
    return status;
}

void nd_taken_load(const struct nd_reader *reader, struct nd_array *taken)
{
    const struct nd_plan *plan = reader->plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t donor = plan->steps[s].taken_from;
        struct nd_array *array = &taken[plan->steps[s].edge];
        if (donor != SIZE_MAX)
            nd_array_load(array->dtype, nd_reader_raw(reader, donor, s), array->n, array->x);
    }
}

enum nd_status nd_plan_take_over(struct nd_plan *plan, struct nd_error *err)
{
    struct nd_array *zeros = NULL;
    bool is_any = false;
    for (size_t s = 0; s < plan->n_steps; s++) {
        plan->steps[s].taken_from = plan->not_covered[s] != NULL ? find_donor(plan, s) : SIZE_MAX;
        is_any = is_any || plan->steps[s].taken_from != SIZE_MAX;
    }
    if (!is_any)
        return ND_OK;
    enum nd_status status = nd_taken_make(plan, &zeros, err);
    if (status == ND_OK)
        status = survey_again(plan, zeros, err);
    nd_taken_free(plan, &zeros);
    return status;
}
