#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "explain/internal.h"

/* What one sample shows of a model: the edges that are computed, and their shapes. */
struct survey {
    bool *is_found;
    struct nd_shape *shapes;
    size_t *n;
};

static enum nd_status note(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                           struct nd_error *err)
{
    (void)way;
    (void)err;
    struct survey *survey = context;
    survey->is_found[edge] = true;
    survey->shapes[edge] = values->shape;
    survey->n[edge] = values->n;
    return ND_OK;
}

static void survey_deinit(struct survey *survey)
{
    free(survey->is_found);
    free(survey->shapes);
    free(survey->n);
}

/* Takes a zeroed input through the graph: shapes do not depend on values in graphs that are evaluated here. */
static enum nd_status survey_init(struct survey *survey, const struct nd_model *model,
                                  const struct nd_exact_graph *graph, struct nd_error *err)
{
    size_t n_edges = nd_model_n_edges(model), n_inputs = nd_model_n_inputs(model);
    struct nd_array *inputs = nd_calloc(n_inputs, sizeof *inputs);
    survey->is_found = nd_calloc(n_edges, sizeof *survey->is_found);
    survey->shapes = nd_calloc(n_edges, sizeof *survey->shapes);
    survey->n = nd_calloc(n_edges, sizeof *survey->n);
    enum nd_status status = ND_OK;
    if (inputs == NULL || survey->is_found == NULL || survey->shapes == NULL || survey->n == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_explain_make_inputs(model, inputs, err);
    if (status == ND_OK)
        status = nd_exact_graph_run(graph, inputs, NULL, note, survey, err);
    for (size_t i = 0; inputs != NULL && i < n_inputs; i++)
        nd_array_deinit(&inputs[i]);
    free(inputs);
    return status;
}

const struct nd_model_unit *nd_explain_unit_of(const struct nd_model *model, size_t edge)
{
    for (size_t u = 0; u < nd_model_n_units(model); u++)
        if (nd_model_unit(model, u)->edge == edge)
            return nd_model_unit(model, u);
    return NULL;
}

static enum nd_status add_step(struct nd_explain_job *job, size_t e, const struct nd_shape *shape,
                               struct nd_error *err)
{
    const struct nd_edge *edge = nd_model_edge(job->model, e);
    struct nd_explained_step *step = &job->out->steps[job->n_steps];
    *step = (struct nd_explained_step){.name = nd_strdup(edge->name),
                                       .op_types = nd_strdup(edge->op_types),
                                       .edge = e,
                                       .is_unit = nd_explain_unit_of(job->model, e) != NULL,
                                       .is_model_output = edge->is_model_output};
    job->shapes[job->n_steps] = *shape;
    job->step_of_edge[e] = job->n_steps;
    job->out->n_steps = ++job->n_steps;
    return step->name != NULL && step->op_types != NULL ? ND_OK : nd_fail_memory(err);
}

/* Models of one family share a name or two: less than half of the names is another model. */
static enum nd_status check_float_model(const struct nd_explain_job *job, struct nd_error *err)
{
    size_t n = 0;
    for (size_t s = 0; s < job->n_steps; s++)
        n += job->out->steps[s].has_float;
    if (2 * n >= job->n_steps)
        return ND_OK;
    const char *path = nd_model_path(job->float_model);
    return nd_fail(err, ND_E_COMPARE_MODEL, path,
                   "'%s' is not '%s' before quantisation: it has %zu of its %zu tensors", path,
                   nd_model_path(job->model), n, job->n_steps);
}

/* Edges of the same name, number of elements and known scale. The input's float tensor is no edge of a float
 * model: its values are the probe's. */
static enum nd_status match_float_steps(struct nd_explain_job *job, const struct survey *quantised,
                                        struct nd_error *err)
{
    struct survey survey = {0};
    const struct nd_model *model = job->float_model;
    size_t n_edges = nd_model_n_edges(model);
    enum nd_status status = survey_init(&survey, model, job->float_graph, err);
    job->step_of_float = nd_calloc(n_edges, sizeof *job->step_of_float);
    if (status == ND_OK && job->step_of_float == NULL)
        status = nd_fail_memory(err);
    for (size_t e = 0; status == ND_OK && e < n_edges; e++) {
        job->step_of_float[e] = SIZE_MAX;
        for (size_t s = 0; s < job->n_steps && survey.is_found[e]; s++) {
            struct nd_explained_step *step = &job->out->steps[s];
            if (strcmp(step->name, nd_model_edge(model, e)->name) != 0 ||
                quantised->n[step->edge] != survey.n[e] || nd_model_edge(job->model, step->edge)->quant.n == 0)
                continue;
            job->step_of_float[e] = s;
            step->has_float = true;
        }
    }
    survey_deinit(&survey);
    return status == ND_OK ? check_float_model(job, err) : status;
}

enum nd_status nd_explain_find_steps(struct nd_explain_job *job, struct nd_error *err)
{
    struct survey survey = {0};
    size_t n_edges = nd_model_n_edges(job->model);
    enum nd_status status = survey_init(&survey, job->model, job->graph, err);
    job->out->steps = nd_calloc(n_edges, sizeof *job->out->steps);
    job->shapes = nd_calloc(n_edges, sizeof *job->shapes);
    job->step_of_edge = nd_calloc(n_edges, sizeof *job->step_of_edge);
    if (status == ND_OK && (job->out->steps == NULL || job->shapes == NULL || job->step_of_edge == NULL))
        status = nd_fail_memory(err);
    for (size_t e = 0; e < n_edges && status == ND_OK; e++) {
        job->step_of_edge[e] = SIZE_MAX;
        if (survey.is_found[e])
            status = add_step(job, e, &survey.shapes[e], err);
    }
    if (status == ND_OK && job->float_model != NULL)
        status = match_float_steps(job, &survey, err);
    survey_deinit(&survey);
    return status;
}

/* ---- what a device has of them ---- */

static bool is_code(enum nd_dtype dtype)
{
    return nd_dtype_is_integer(dtype) && nd_dtype_size_bytes(dtype) <= 4;
}

/* Finds the captured edge of a step; else *why says in `text` why it cannot be used. */
static enum nd_status find_edge(struct nd_explain_job *job, size_t device, size_t step, struct nd_strbuf *why,
                                struct nd_error *err)
{
    struct nd_explain_source *source = &job->sources[device];
    const struct nd_edge *wanted = nd_model_edge(job->model, job->out->steps[step].edge);
    size_t e = nd_capture_find_edge(source->capture, wanted->name);
    source->edges[step] = SIZE_MAX;
    if (e == SIZE_MAX) {
        nd_strbuf_puts(why, "not captured");
        return ND_OK;
    }
    if (!nd_capture_has_outputs(source->capture, source->probe, e)) {
        nd_strbuf_puts(why, "only digests are stored");
        return ND_OK;
    }
    const struct nd_edge *edge = nd_capture_edge(source->capture, e);
    bool is_float =
        nd_dtype_is_float(edge->dtype) && (wanted->dtype == ND_DTYPE_NONE || nd_dtype_is_float(wanted->dtype));
    if ((edge->dtype != wanted->dtype && !is_float) || !nd_shape_equal(&edge->shape, &job->shapes[step])) {
        char shape[256];
        nd_strbuf_printf(why, "captured as %s %s", nd_dtype_name(edge->dtype),
                         nd_shape_format(&edge->shape, shape, sizeof shape));
        return ND_OK;
    }
    source->edges[step] = e;
    return nd_shape_size_bytes(&edge->shape, edge->dtype, &source->sample_bytes[step], err);
}

/* Names an input that the unit cannot be given as the device had it. */
static void find_missing_input(const struct nd_explain_job *job, size_t device, size_t step,
                               struct nd_strbuf *why)
{
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, job->out->steps[step].edge);
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        size_t input = job->step_of_edge[unit->inputs[i]];
        if (input == SIZE_MAX || job->sources[device].edges[input] != SIZE_MAX)
            continue; /* an input of codes is the probe's */
        nd_strbuf_printf(why, "its input '%s' cannot be read", job->out->steps[input].name);
        return;
    }
}

static enum nd_status match_step(struct nd_explain_job *job, size_t device, size_t step, struct nd_error *err)
{
    struct nd_strbuf why = {0};
    struct nd_explained_unit *unit = &job->out->devices[device].units[step];
    enum nd_status status = find_edge(job, device, step, &why, err);
    if (status != ND_OK) {
        nd_strbuf_deinit(&why);
        return status;
    }
    bool is_read = job->sources[device].edges[step] != SIZE_MAX;
    unit->has_total = is_read && is_code(nd_model_edge(job->model, job->out->steps[step].edge)->dtype);
    if (is_read && !unit->has_total)
        nd_strbuf_puts(&why, "its values are no codes");
    else if (is_read)
        find_missing_input(job, device, step, &why);
    unit->is_examined = why.len == 0 && !why.failed;
    if (unit->is_examined)
        return ND_OK;
    unit->why_not = nd_strbuf_take(&why);
    return unit->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

/* Steps are in graph order: what a unit reads has been looked for before it. */
enum nd_status nd_explain_match_device(struct nd_explain_job *job, size_t device, struct nd_error *err)
{
    struct nd_explain_source *source = &job->sources[device];
    struct nd_explained_device *out = &job->out->devices[device];
    out->units = nd_calloc(job->n_steps, sizeof *out->units);
    source->edges = nd_calloc(job->n_steps, sizeof *source->edges);
    source->sample_bytes = nd_calloc(job->n_steps, sizeof *source->sample_bytes);
    if (out->units == NULL || source->edges == NULL || source->sample_bytes == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++) {
        if (!source->is_failed) {
            status = match_step(job, device, s, err);
            continue;
        }
        source->edges[s] = SIZE_MAX;
        out->units[s].why_not = nd_strdup("the device failed");
        status = out->units[s].why_not != NULL ? ND_OK : nd_fail_memory(err);
    }
    return status;
}
