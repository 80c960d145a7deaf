#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/plan/plan.h"

/* ---- who is asked ---- */

enum nd_status nd_plan_failure(const struct nd_capture *capture, char **out, struct nd_error *err)
{
    const char *stage = nd_capture_string(capture, "failure", "stage");
    const char *message = nd_capture_string(capture, "failure", "message");
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s%s%s", stage != NULL ? stage : "", stage != NULL ? ": " : "",
                     message != NULL ? message : "failed");
    *out = nd_strbuf_take(&text);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status check_model(const struct nd_plan *plan, const struct nd_capture *capture,
                                  struct nd_error *err)
{
    const char *sha = nd_capture_string(capture, "model", "sha256");
    if (sha != NULL && strcmp(sha, nd_model_sha256(plan->model)) == 0)
        return ND_OK;
    const char *path = nd_capture_path(capture);
    return nd_fail(err, ND_E_COMPARE_MODEL, path,
                   "'%s' is a capture of a different model than '%s': sha256 %s and %s", path,
                   nd_model_path(plan->model), sha != NULL ? sha : "unknown", nd_model_sha256(plan->model));
}

/* ---- what they were asked ---- */

static bool all_hold(const struct nd_plan *plan, const char *probe)
{
    for (size_t d = 0; d < plan->n_devices; d++)
        if (!plan->sources[d].is_failed && nd_capture_find_probe(plan->sources[d].capture, probe) == SIZE_MAX)
            return false;
    return true;
}

/* Finds the probe in every capture that is used, and how many samples all have. By itself it takes the one with
 * the most samples: zeros and ones hide more than they show. */
static enum nd_status choose_probe(struct nd_plan *plan, const struct nd_explain_options *options,
                                   struct nd_error *err)
{
    const struct nd_capture *leader = plan->sources[plan->leader].capture;
    const char *name = options->probe;
    size_t most = 0;
    for (size_t p = 0; options->probe == NULL && p < nd_capture_n_probes(leader); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(leader, p);
        if (!all_hold(plan, probe->name) || probe->n_samples <= most)
            continue;
        name = probe->name;
        most = probe->n_samples;
    }
    if (name == NULL || !all_hold(plan, name))
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, name, "no probe '%s' is in all captures",
                       name != NULL ? name : "");
    plan->probe = nd_strdup(name);
    if (plan->probe == NULL)
        return nd_fail_memory(err);
    plan->n_samples = options->n_samples > 0 ? options->n_samples : SIZE_MAX;
    for (size_t d = 0; d < plan->n_devices; d++) {
        struct nd_plan_source *source = &plan->sources[d];
        if (source->is_failed)
            continue;
        source->probe = nd_capture_find_probe(source->capture, name);
        size_t n = nd_capture_probe(source->capture, source->probe)->n_samples;
        plan->n_samples = n < plan->n_samples ? n : plan->n_samples;
    }
    if (plan->n_samples == 0)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, name, "probe '%s' has no sample that all devices have run",
                       name);
    size_t n_harm = options->n_harm_samples;
    plan->n_harm_samples = n_harm < plan->n_samples ? n_harm : plan->n_samples;
    return ND_OK;
}

static enum nd_status match_inputs(struct nd_plan *plan, struct nd_error *err)
{
    const struct nd_plan_source *leader = &plan->sources[plan->leader];
    const struct nd_capture_probe *probe = nd_capture_probe(leader->capture, leader->probe);
    size_t n = nd_model_n_inputs(plan->model);
    plan->inputs = nd_calloc(n, sizeof *plan->inputs);
    if (plan->inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *io = nd_model_input(plan->model, i);
        size_t k = 0;
        while (k < probe->n_inputs && strcmp(probe->inputs[k].name, io->name) != 0)
            k++;
        if (k == probe->n_inputs || probe->inputs[k].dtype != io->dtype ||
            !nd_shape_equal(&probe->inputs[k].shape, &io->shape))
            return nd_fail(err, ND_E_COMPARE_NOTHING, io->name,
                           "'%s' does not hold the model's input '%s', or with a different shape or type",
                           nd_capture_path(leader->capture), io->name);
        plan->inputs[i] = k;
    }
    return ND_OK;
}

/* One reference is held against all devices, so all must have been fed the same. */
static enum nd_status check_inputs(const struct nd_plan *plan, size_t device, struct nd_error *err)
{
    const struct nd_plan_source *a = &plan->sources[plan->leader], *b = &plan->sources[device];
    const struct nd_capture_probe *ref = nd_capture_probe(a->capture, a->probe);
    const struct nd_capture_probe *test = nd_capture_probe(b->capture, b->probe);
    bool is_same = ref->n_inputs == test->n_inputs;
    for (size_t k = 0; k < ref->n_inputs && is_same; k++) {
        is_same = strcmp(ref->inputs[k].name, test->inputs[k].name) == 0;
        for (size_t i = 0; i < plan->n_samples && is_same; i++)
            is_same = nd_digest_equal(nd_capture_input_digest(a->capture, a->probe, k, i),
                                      nd_capture_input_digest(b->capture, b->probe, k, i));
    }
    if (is_same)
        return ND_OK;
    return nd_fail(err, ND_E_COMPARE_NOTHING, ref->name, "'%s' and '%s' have other inputs in probe '%s'",
                   nd_capture_path(a->capture), nd_capture_path(b->capture), ref->name);
}

static enum nd_status match_float_inputs(struct nd_plan *plan, struct nd_error *err)
{
    size_t n = nd_model_n_inputs(plan->float_model);
    plan->float_inputs = nd_calloc(n, sizeof *plan->float_inputs);
    if (plan->float_inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *io = nd_model_input(plan->float_model, i);
        size_t k = 0;
        while (k < nd_model_n_inputs(plan->model) &&
               strcmp(nd_model_input(plan->model, k)->name, io->name) != 0)
            k++;
        if (k == nd_model_n_inputs(plan->model) || nd_model_input(plan->model, k)->dtype != io->dtype ||
            !nd_shape_equal(&nd_model_input(plan->model, k)->shape, &io->shape))
            return nd_fail(
                err, ND_E_COMPARE_MODEL, io->name,
                "the float model's input '%s' is none of the quantised model's, or has a different shape "
                "or type",
                io->name);
        plan->float_inputs[i] = k;
    }
    return ND_OK;
}

/* ---- all of it ---- */

static enum nd_status plan_graphs(struct nd_plan *plan, struct nd_error *err)
{
    enum { OF_CONSTANTS = 2, OF_FLOAT_CONSTANTS = 4 }; /* chosen: a half and a quarter of all memory */
    enum nd_status status = nd_model_check_static(plan->model, err);
    if (status == ND_OK && plan->float_model != NULL)
        status = nd_model_check_static(plan->float_model, err);
    if (status == ND_OK)
        status =
            nd_exact_graph_create_within(plan->model, nd_plan_share(plan, OF_CONSTANTS), &plan->graph, err);
    if (status == ND_OK && plan->float_model != NULL)
        status = nd_exact_graph_create_within(plan->float_model, nd_plan_share(plan, OF_FLOAT_CONSTANTS),
                                              &plan->float_graph, err);
    if (status == ND_OK)
        status = match_inputs(plan, err);
    if (status == ND_OK && plan->float_model != NULL)
        status = match_float_inputs(plan, err);
    if (status == ND_OK)
        status = nd_plan_find_steps(plan, err);
    if (status == ND_OK && plan->float_model != NULL)
        status = nd_plan_follow_equalised(plan, err);
    if (status == ND_OK)
        status = nd_alternatives_init(&plan->alternatives, plan->model, err);
    return status;
}

static bool has_same_codes(const struct nd_plan *plan, size_t a, size_t b)
{
    const struct nd_plan_source *x = &plan->sources[a], *y = &plan->sources[b];
    bool is_same = !x->is_failed && !y->is_failed, is_any = false;
    for (size_t s = 0; s < plan->n_steps && is_same; s++) {
        is_same = (x->edges[s] == SIZE_MAX) == (y->edges[s] == SIZE_MAX);
        is_any = is_any || x->edges[s] != SIZE_MAX;
        for (size_t i = 0; i < plan->n_samples && is_same && x->edges[s] != SIZE_MAX; i++)
            is_same = nd_digest_equal(nd_capture_digest(x->capture, x->probe, x->edges[s], i, 0),
                                      nd_capture_digest(y->capture, y->probe, y->edges[s], i, 0));
    }
    return is_same && is_any;
}

static void find_lineages(struct nd_plan *plan)
{
    for (size_t d = 0; d < plan->n_devices; d++) {
        size_t first = 0;
        while (first < d && (plan->sources[first].same_as != first || !has_same_codes(plan, first, d)))
            first++;
        plan->sources[d].same_as = first;
    }
}

enum nd_status nd_plan_make(struct nd_plan *plan, const struct nd_question *question,
                            const struct nd_explain_options *options, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *plan = (struct nd_plan){.model = question->model,
                             .float_model = question->float_model,
                             .n_devices = question->n_captures,
                             .leader = SIZE_MAX,
                             .block = 1,
                             .n_threads = 1,
                             .sources = nd_calloc(question->n_captures, sizeof *plan->sources)};
    if (plan->sources == NULL)
        return nd_fail_memory(err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++) {
        struct nd_plan_source *source = &plan->sources[d];
        source->capture = question->captures[d];
        source->is_failed = nd_capture_state(source->capture) == ND_CAPTURE_FAILED;
        source->expectation = nd_expect(source->capture);
        status = check_model(plan, source->capture, err);
        if (!source->is_failed && plan->leader == SIZE_MAX)
            plan->leader = d;
    }
    if (status != ND_OK || plan->leader == SIZE_MAX)
        return status; /* all failed: nothing to explain */
    nd_plan_take_memory(plan, options);
    status = choose_probe(plan, options, err);
    for (size_t d = plan->leader + 1; d < plan->n_devices && status == ND_OK; d++)
        if (!plan->sources[d].is_failed)
            status = check_inputs(plan, d, err);
    if (status == ND_OK)
        status = plan_graphs(plan, err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        status = nd_plan_match_device(plan, d, err);
    if (status == ND_OK)
        status = nd_plan_take_over(plan, err);
    if (status == ND_OK)
        nd_plan_find_totals(plan);
    for (size_t k = 0; k < options->n_untouched && status == ND_OK; k++)
        status = check_model(plan, options->untouched[k], err);
    if (status == ND_OK)
        status = nd_plan_observe(plan, options->untouched, options->n_untouched, err);
    if (status == ND_OK)
        find_lineages(plan);
    if (status == ND_OK)
        nd_plan_fit(plan, options);
    return status;
}

static void deinit_source(struct nd_plan_source *source, size_t n_steps)
{
    for (size_t s = 0; source->units != NULL && s < n_steps; s++)
        free(source->units[s].why_not);
    free(source->units);
    free(source->edges);
    free(source->sample_bytes);
}

void nd_plan_deinit(struct nd_plan *plan)
{
    nd_plan_release(plan);
    for (size_t d = 0; plan->sources != NULL && d < plan->n_devices; d++)
        deinit_source(&plan->sources[d], plan->n_steps);
    for (size_t s = 0; plan->steps != NULL && s < plan->n_steps; s++) {
        free(plan->steps[s].name);
        free(plan->steps[s].op_types);
        free(plan->steps[s].inputs);
    }
    for (size_t s = 0; plan->not_covered != NULL && s < plan->n_steps; s++)
        free(plan->not_covered[s]);
    free(plan->sources);
    free(plan->steps);
    free(plan->not_covered);
    free(plan->probe);
    nd_alternatives_deinit(&plan->alternatives);
    free(plan->inputs);
    free(plan->float_inputs);
    free(plan->step_of_edge);
    nd_names_deinit(&plan->step_of_name);
    free(plan->step_of_float);
    free(plan->equalised);
    free(plan->shapes);
    nd_exact_graph_destroy(&plan->graph);
    nd_exact_graph_destroy(&plan->float_graph);
}

/* ---- what is asked of a plan ---- */

const struct nd_model_unit *nd_plan_unit(const struct nd_plan *plan, size_t step)
{
    return nd_model_unit_of_edge(plan->model, plan->steps[step].edge);
}

const struct nd_edge *nd_plan_edge(const struct nd_plan *plan, size_t step)
{
    return nd_model_edge(plan->model, plan->steps[step].edge);
}

bool nd_plan_has_codes(const struct nd_plan *plan)
{
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps && !plan->sources[d].is_failed; s++)
            if (plan->sources[d].units[s].has_total || plan->sources[d].units[s].is_examined)
                return true;
    return false;
}

bool nd_plan_is_worked_out(const struct nd_plan *plan, size_t device)
{
    return !plan->sources[device].is_failed && plan->sources[device].same_as == device;
}

bool nd_plan_is_wide(const struct nd_plan *plan, size_t step)
{
    return nd_dtype_size_bytes(nd_plan_edge(plan, step)->dtype) > 1;
}

bool nd_plan_differs_by_run(const struct nd_plan *plan, size_t device, size_t step)
{
    const struct nd_plan_source *source = &plan->sources[device];
    size_t edge = source->edges[step];
    for (size_t i = 0; i < plan->n_samples && edge != SIZE_MAX; i++)
        for (size_t r = 1, n = nd_capture_n_runs(source->capture, source->probe, edge, i); r < n; r++)
            if (!nd_digest_equal(nd_capture_digest(source->capture, source->probe, edge, i, 0),
                                 nd_capture_digest(source->capture, source->probe, edge, i, r)))
                return true;
    return false;
}

bool nd_plan_inputs_repeat(const struct nd_plan *plan, size_t device, size_t step)
{
    const struct nd_model_unit *unit = nd_plan_unit(plan, step);
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        size_t input = plan->step_of_edge[unit->inputs[i]];
        if (input != SIZE_MAX && nd_plan_differs_by_run(plan, device, input))
            return false;
    }
    return true;
}
