#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "explain/explain_job.h"

/* ---- who is asked ---- */

static enum nd_status describe_failure(const struct nd_capture *capture, char **out, struct nd_error *err)
{
    const char *stage = nd_capture_string(capture, "failure", "stage");
    const char *message = nd_capture_string(capture, "failure", "message");
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s%s%s", stage != NULL ? stage : "", stage != NULL ? ": " : "",
                     message != NULL ? message : "failed");
    *out = nd_strbuf_take(&text);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status describe_device(struct nd_explain_job *job, size_t d, struct nd_error *err)
{
    const struct nd_capture *capture = job->sources[d].capture;
    struct nd_explained_device *device = &job->out->devices[d];
    const char *uri = nd_capture_string(capture, "device", "uri");
    const char *chipset = nd_capture_string(capture, "device", "chipset");
    device->uri = nd_strdup(uri != NULL ? uri : "?");
    device->chipset = nd_strdup(chipset != NULL ? chipset : "");
    device->capture = nd_strdup(nd_capture_path(capture));
    if (device->uri == NULL || device->chipset == NULL || device->capture == NULL)
        return nd_fail_memory(err);
    job->sources[d].is_failed = nd_capture_state(capture) == ND_CAPTURE_FAILED;
    job->sources[d].expectation = nd_explain_expect(capture);
    device->expected = nd_explain_expectation_name(job->sources[d].expectation);
    return job->sources[d].is_failed ? describe_failure(capture, &device->failure, err) : ND_OK;
}

static enum nd_status describe(struct nd_explain_job *job, struct nd_error *err)
{
    struct nd_explanation *out = job->out;
    out->n_devices = job->n_devices;
    out->devices = nd_calloc(job->n_devices, sizeof *out->devices);
    job->sources = nd_calloc(job->n_devices, sizeof *job->sources);
    out->model = nd_strdup(nd_model_path(job->model));
    out->model_sha256 = nd_strdup(nd_model_sha256(job->model));
    out->float_model = job->float_model != NULL ? nd_strdup(nd_model_path(job->float_model)) : NULL;
    if (out->devices == NULL || job->sources == NULL || out->model == NULL || out->model_sha256 == NULL ||
        (job->float_model != NULL && out->float_model == NULL))
        return nd_fail_memory(err);
    return ND_OK;
}

static enum nd_status check_model(const struct nd_explain_job *job, const struct nd_capture *capture,
                                  struct nd_error *err)
{
    const char *sha = nd_capture_string(capture, "model", "sha256");
    if (sha != NULL && strcmp(sha, nd_model_sha256(job->model)) == 0)
        return ND_OK;
    const char *path = nd_capture_path(capture);
    return nd_fail(err, ND_E_COMPARE_MODEL, path,
                   "'%s' is a capture of another model than '%s': sha256 %s and %s", path,
                   nd_model_path(job->model), sha != NULL ? sha : "unknown", nd_model_sha256(job->model));
}

/* ---- what they were asked ---- */

static bool all_hold(const struct nd_explain_job *job, const char *probe)
{
    for (size_t d = 0; d < job->n_devices; d++)
        if (!job->sources[d].is_failed && nd_capture_find_probe(job->sources[d].capture, probe) == SIZE_MAX)
            return false;
    return true;
}

/* Finds the probe in every capture that is used, and how many samples all have. By itself it takes the one with
 * the most samples: zeros and ones hide more than they show. */
static enum nd_status choose_probe(struct nd_explain_job *job, const struct nd_explain_options *options,
                                   struct nd_error *err)
{
    const struct nd_capture *leader = job->sources[job->leader].capture;
    const char *name = options->probe;
    size_t most = 0;
    for (size_t p = 0; options->probe == NULL && p < nd_capture_n_probes(leader); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(leader, p);
        if (!all_hold(job, probe->name) || probe->n_samples <= most)
            continue;
        name = probe->name;
        most = probe->n_samples;
    }
    if (name == NULL || !all_hold(job, name))
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, name, "no probe '%s' is in all captures",
                       name != NULL ? name : "");
    job->out->probe = nd_strdup(name);
    if (job->out->probe == NULL)
        return nd_fail_memory(err);
    job->n_samples = options->n_samples > 0 ? options->n_samples : SIZE_MAX;
    for (size_t d = 0; d < job->n_devices; d++) {
        struct nd_explain_source *source = &job->sources[d];
        if (source->is_failed)
            continue;
        source->probe = nd_capture_find_probe(source->capture, name);
        size_t n = nd_capture_probe(source->capture, source->probe)->n_samples;
        job->n_samples = n < job->n_samples ? n : job->n_samples;
    }
    if (job->n_samples == 0)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, name, "probe '%s' has no sample that all devices have run",
                       name);
    job->out->n_samples = job->n_samples;
    size_t n_harm = options->n_harm_samples;
    job->n_harm_samples = job->out->n_harm_samples = n_harm < job->n_samples ? n_harm : job->n_samples;
    return ND_OK;
}

static enum nd_status match_inputs(struct nd_explain_job *job, struct nd_error *err)
{
    const struct nd_explain_source *leader = &job->sources[job->leader];
    const struct nd_capture_probe *probe = nd_capture_probe(leader->capture, leader->probe);
    size_t n = nd_model_n_inputs(job->model);
    job->inputs = nd_calloc(n, sizeof *job->inputs);
    if (job->inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *io = nd_model_input(job->model, i);
        size_t k = 0;
        while (k < probe->n_inputs && strcmp(probe->inputs[k].name, io->name) != 0)
            k++;
        if (k == probe->n_inputs || probe->inputs[k].dtype != io->dtype ||
            !nd_shape_equal(&probe->inputs[k].shape, &io->shape))
            return nd_fail(err, ND_E_COMPARE_NOTHING, io->name,
                           "'%s' does not hold the model's input '%s', or with another shape or type",
                           nd_capture_path(leader->capture), io->name);
        job->inputs[i] = k;
    }
    return ND_OK;
}

/* One reference is held against all devices, so all must have been fed the same. */
static enum nd_status check_inputs(const struct nd_explain_job *job, size_t device, struct nd_error *err)
{
    const struct nd_explain_source *a = &job->sources[job->leader], *b = &job->sources[device];
    const struct nd_capture_probe *ref = nd_capture_probe(a->capture, a->probe);
    const struct nd_capture_probe *test = nd_capture_probe(b->capture, b->probe);
    bool is_same = ref->n_inputs == test->n_inputs;
    for (size_t k = 0; k < ref->n_inputs && is_same; k++) {
        is_same = strcmp(ref->inputs[k].name, test->inputs[k].name) == 0;
        for (size_t i = 0; i < job->n_samples && is_same; i++)
            is_same = nd_digest_equal(nd_capture_input_digest(a->capture, a->probe, k, i),
                                      nd_capture_input_digest(b->capture, b->probe, k, i));
    }
    if (is_same)
        return ND_OK;
    return nd_fail(err, ND_E_COMPARE_NOTHING, ref->name, "'%s' and '%s' have other inputs in probe '%s'",
                   nd_capture_path(a->capture), nd_capture_path(b->capture), ref->name);
}

static enum nd_status match_float_inputs(struct nd_explain_job *job, struct nd_error *err)
{
    size_t n = nd_model_n_inputs(job->float_model);
    job->float_inputs = nd_calloc(n, sizeof *job->float_inputs);
    if (job->float_inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *io = nd_model_input(job->float_model, i);
        size_t k = 0;
        while (k < nd_model_n_inputs(job->model) && strcmp(nd_model_input(job->model, k)->name, io->name) != 0)
            k++;
        if (k == nd_model_n_inputs(job->model) || nd_model_input(job->model, k)->dtype != io->dtype ||
            !nd_shape_equal(&nd_model_input(job->model, k)->shape, &io->shape))
            return nd_fail(
                err, ND_E_COMPARE_MODEL, io->name,
                "the float model's input '%s' is none of the quantised model's, or has another shape "
                "or type",
                io->name);
        job->float_inputs[i] = k;
    }
    return ND_OK;
}

/* ---- all of it ---- */

static enum nd_status make_sums(struct nd_explain_job *job, struct nd_error *err)
{
    size_t n, n_all;
    if (!nd_size_mul(job->n_samples, job->n_steps, &n) || !nd_size_mul(n, job->n_devices, &n_all))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "too many samples");
    job->sums = nd_calloc(n_all, sizeof *job->sums);
    job->reference = nd_calloc(n, sizeof *job->reference);
    job->tally = nd_calloc(job->n_devices * job->n_steps, sizeof *job->tally);
    job->unit_tally = nd_calloc(job->n_devices * job->n_steps, sizeof *job->unit_tally);
    job->habits = nd_calloc(job->n_devices * job->n_steps, sizeof *job->habits);
    job->unit_program = nd_calloc(job->n_devices, sizeof *job->unit_program);
    bool is_made = job->sums != NULL && job->reference != NULL && job->tally != NULL &&
                   job->unit_tally != NULL && job->habits != NULL && job->unit_program != NULL;
    return is_made ? ND_OK : nd_fail_memory(err);
}

static enum nd_status check_fixed(const struct nd_model *model, struct nd_error *err)
{
    const char *path = nd_model_path(model);
    if (nd_model_check_static(model, NULL) == ND_OK)
        return ND_OK;
    return nd_fail(
        err, ND_E_MODEL_DYNAMIC, path,
        "'%s' has inputs with dynamic dimensions: only models whose shapes are fixed can be explained", path);
}

static enum nd_status plan_graphs(struct nd_explain_job *job, struct nd_error *err)
{
    enum nd_status status = check_fixed(job->model, err);
    if (status == ND_OK && job->float_model != NULL)
        status = check_fixed(job->float_model, err);
    if (status == ND_OK)
        status = nd_exact_graph_create(job->model, &job->graph, err);
    if (status == ND_OK && job->float_model != NULL)
        status = nd_exact_graph_create(job->float_model, &job->float_graph, err);
    if (status == ND_OK)
        status = match_inputs(job, err);
    if (status == ND_OK && job->float_model != NULL)
        status = match_float_inputs(job, err);
    if (status == ND_OK)
        status = nd_explain_find_steps(job, err);
    if (status == ND_OK)
        status = nd_explain_alternatives_init(&job->alternatives, job->model, err);
    return status;
}

static bool has_same_codes(const struct nd_explain_job *job, size_t a, size_t b)
{
    const struct nd_explain_source *x = &job->sources[a], *y = &job->sources[b];
    bool is_same = !x->is_failed && !y->is_failed, is_any = false;
    for (size_t s = 0; s < job->n_steps && is_same; s++) {
        is_same = (x->edges[s] == SIZE_MAX) == (y->edges[s] == SIZE_MAX);
        is_any = is_any || x->edges[s] != SIZE_MAX;
        for (size_t i = 0; i < job->n_samples && is_same && x->edges[s] != SIZE_MAX; i++)
            is_same = nd_digest_equal(nd_capture_digest(x->capture, x->probe, x->edges[s], i, 0),
                                      nd_capture_digest(y->capture, y->probe, y->edges[s], i, 0));
    }
    return is_same && is_any;
}

static void find_lineages(struct nd_explain_job *job)
{
    for (size_t d = 0; d < job->n_devices; d++) {
        size_t first = 0;
        while (first < d && (job->sources[first].same_as != first || !has_same_codes(job, first, d)))
            first++;
        job->sources[d].same_as = job->out->devices[d].same_as = first;
    }
}

enum nd_status nd_explain_plan(struct nd_explain_job *job, const struct nd_capture *const *captures,
                               const struct nd_explain_options *options, struct nd_error *err)
{
    enum nd_status status = describe(job, err);
    job->leader = SIZE_MAX;
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++) {
        job->sources[d].capture = captures[d];
        status = check_model(job, captures[d], err);
        if (status == ND_OK)
            status = describe_device(job, d, err);
        if (status == ND_OK && !job->sources[d].is_failed && job->leader == SIZE_MAX)
            job->leader = d;
    }
    if (status != ND_OK || job->leader == SIZE_MAX)
        return status; /* all failed: nothing to explain */
    status = choose_probe(job, options, err);
    for (size_t d = job->leader + 1; d < job->n_devices && status == ND_OK; d++)
        if (!job->sources[d].is_failed)
            status = check_inputs(job, d, err);
    if (status == ND_OK)
        status = plan_graphs(job, err);
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++)
        status = nd_explain_match_device(job, d, err);
    for (size_t k = 0; k < options->n_untouched && status == ND_OK; k++)
        status = check_model(job, options->untouched[k], err);
    if (status == ND_OK)
        status = nd_explain_observe(job, options->untouched, options->n_untouched, err);
    if (status == ND_OK)
        find_lineages(job);
    return status == ND_OK ? make_sums(job, err) : status;
}

void nd_explain_job_deinit(struct nd_explain_job *job)
{
    for (size_t d = 0; job->sources != NULL && d < job->n_devices; d++) {
        free(job->sources[d].edges);
        free(job->sources[d].sample_bytes);
    }
    free(job->sources);
    nd_explain_alternatives_deinit(&job->alternatives);
    free(job->inputs);
    free(job->float_inputs);
    free(job->step_of_edge);
    free(job->step_of_float);
    free(job->shapes);
    for (size_t s = 0; job->not_covered != NULL && s < job->n_steps; s++)
        free(job->not_covered[s]);
    free(job->not_covered);
    free(job->sums);
    free(job->reference);
    free(job->tally);
    free(job->unit_tally);
    free(job->habits);
    free(job->unit_program);
    nd_exact_graph_destroy(&job->graph);
    nd_exact_graph_destroy(&job->float_graph);
}
