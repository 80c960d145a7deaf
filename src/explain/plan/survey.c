/* What one zeroed sample shows of a model: shapes, and what cannot be evaluated. */
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

static enum nd_status found(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    struct walk *walk = context;
    struct nd_survey_sight *sight = &walk->survey->tensors[tensor];
    sight->is_found = true;
    sight->shape = values->shape;
    sight->n = values->n;
    return ND_OK;
}

static enum nd_status missed(void *context, size_t tensor, const struct nd_error *why, struct nd_error *err)
{
    struct walk *walk = context;
    struct nd_survey_sight *sight = &walk->survey->tensors[tensor];
    walk->survey->n_missed++;
    sight->why = nd_strdup(why->message);
    sight->needs = SIZE_MAX;
    for (size_t e = 0; e < walk->survey->n_tensors && why->id == ND_E_EXACT_UNKNOWN; e++)
        if (walk->survey->tensors[e].why != NULL && e != tensor &&
            strcmp(nd_model_tensor(walk->model, e)->name, why->object) == 0)
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
    survey->n_tensors = nd_model_n_tensors(model);
    survey->tensors = nd_calloc(survey->n_tensors, sizeof *survey->tensors);
    enum nd_status status =
        survey->tensors != NULL ? nd_inputs_create(model, &inputs, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_exact_graph_run(graph, inputs, &options, found, &walk, err);
    nd_inputs_destroy(model, &inputs);
    return status;
}

void nd_survey_deinit(struct nd_survey *survey)
{
    for (size_t e = 0; survey->tensors != NULL && e < survey->n_tensors; e++)
        free(survey->tensors[e].why);
    free(survey->tensors);
    *survey = (struct nd_survey){0};
}

size_t nd_survey_root(const struct nd_survey *survey, size_t e)
{
    while (survey->tensors[e].needs != SIZE_MAX)
        e = survey->tensors[e].needs; /* one that was met before it */
    return e;
}
