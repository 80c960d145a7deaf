#include "explain/plan/survey.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/plan/replay.h"

/* A survey under way. */
struct walk {
    struct nd_survey *survey;
    const struct nd_model *model;
};

static enum nd_status found(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                            struct nd_error *err)
{
    (void)way;
    (void)err;
    struct walk *walk = context;
    struct nd_survey_sight *sight = &walk->survey->edges[edge];
    sight->is_found = true;
    sight->shape = values->shape;
    sight->n = values->n;
    return ND_OK;
}

static enum nd_status missed(void *context, size_t edge, const struct nd_error *why, struct nd_error *err)
{
    struct walk *walk = context;
    struct nd_survey_sight *sight = &walk->survey->edges[edge];
    walk->survey->n_missed++;
    sight->why = nd_strdup(why->message);
    sight->needs = SIZE_MAX;
    for (size_t e = 0; e < walk->survey->n_edges && why->id == ND_E_EXACT_UNKNOWN; e++)
        if (walk->survey->edges[e].why != NULL && e != edge &&
            strcmp(nd_model_edge(walk->model, e)->name, why->object) == 0)
            sight->needs = e;
    return sight->why != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_survey_run(struct nd_survey *survey, const struct nd_model *model,
                             const struct nd_exact_graph *graph, const struct nd_array *given,
                             struct nd_error *err)
{
    struct nd_array *inputs = NULL;
    struct walk walk = {.survey = survey, .model = model};
    const struct nd_exact_options options = {.struct_size = sizeof options, .given = given, .missed = missed};
    survey->n_edges = nd_model_n_edges(model);
    survey->edges = nd_calloc(survey->n_edges, sizeof *survey->edges);
    enum nd_status status = survey->edges != NULL ? nd_inputs_create(model, &inputs, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_exact_graph_run(graph, inputs, &options, found, &walk, err);
    nd_inputs_destroy(model, &inputs);
    return status;
}

void nd_survey_deinit(struct nd_survey *survey)
{
    for (size_t e = 0; survey->edges != NULL && e < survey->n_edges; e++)
        free(survey->edges[e].why);
    free(survey->edges);
    *survey = (struct nd_survey){0};
}

size_t nd_survey_root(const struct nd_survey *survey, size_t e)
{
    while (survey->edges[e].needs != SIZE_MAX)
        e = survey->edges[e].needs; /* one that was met before it */
    return e;
}
