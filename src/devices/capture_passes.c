/* The sessions of a capture: which file each reads, and what it exposes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/capture_request.h"
#include "model/rewrite/expose.h"
#include "model/rewrite/whole.h"

static void free_passes(struct nd_job *job)
{
    for (size_t p = 0; p < job->n_passes; p++) {
        free(job->passes[p].model);
        free(job->passes[p].checks);
    }
    free(job->passes);
    for (size_t e = 0; e < job->n_edges; e++)
        free(job->edges[e].output);
    free(job->edges);
    job->passes = NULL;
    job->n_passes = 0;
    job->edges = NULL;
    job->n_edges = 0;
}

/* ---- edges that are recorded through floats ---- */

bool nd_capture_job_use_floats(struct nd_capture_job *capture, size_t edge, bool as_floats)
{
    struct nd_dequantised floats;
    if (!nd_model_find_dequantised(capture->model, edge, &floats) || capture->as_floats[edge] == as_floats)
        return false;
    if (!as_floats)
        nd_job_remove_float_node(&capture->job, floats.node);
    else if (!nd_job_add_float_node(&capture->job, floats.node))
        return false;
    capture->as_floats[edge] = as_floats;
    return true;
}

enum nd_status nd_capture_job_edge(const struct nd_capture_job *capture, const struct nd_edge *edge,
                                   size_t index, struct nd_job_edge *out, struct nd_error *err)
{
    struct nd_dequantised floats = {.tensor = edge->onnx_name};
    struct nd_job_edge made = {.dtype = edge->dtype};
    if (capture->as_floats[index] && nd_model_find_dequantised(capture->model, index, &floats)) {
        made.scale = edge->quant.scale[0];
        made.zero_point = edge->quant.zero_point[0];
    }
    made.output = nd_strdup(floats.tensor);
    if (made.output == NULL)
        return nd_fail_memory(err);
    *out = made;
    return ND_OK;
}

/* ---- models and passes ---- */

/* The file that a session reads: the model itself, or a copy that exposes these edges. Providers take no model
 * whose shapes are open: where dimensions were set, the untouched model is a copy, too. */
static enum nd_status make_model(const struct nd_capture_job *capture, const char *name, const size_t *edges,
                                 size_t n_edges, char **path, struct nd_error *err)
{
    const char *original = nd_model_path(capture->model);
    bool is_untouched = nd_capture_job_is_untouched(capture);
    if (is_untouched && !nd_model_has_set_dims(capture->model)) {
        *path = realpath(original, NULL); /* the agent works in another folder */
        return *path != NULL
                   ? ND_OK
                   : nd_fail(err, ND_E_FILE_OPEN, original, "cannot find '%s': %s", original, strerror(errno));
    }
    *path = nd_path_join(capture->folder, name);
    if (*path == NULL)
        return nd_fail_memory(err);
    return is_untouched ? nd_model_write_whole(capture->model, *path, err)
                        : nd_model_write_shown(capture->model, edges, n_edges, capture->as_floats, *path, err);
}

static bool records_any(const struct nd_capture_job *capture, size_t p)
{
    for (size_t e = 0; e < capture->n_edges; e++)
        if (capture->pass_of_edge[e] == p)
            return true;
    return false;
}

static bool is_checked(const struct nd_job_pass *pass, size_t edge)
{
    for (size_t i = 0; i < pass->n_checks; i++)
        if (pass->checks[i] == edge)
            return true;
    return false;
}

static enum nd_status make_pass(struct nd_capture_job *capture, size_t p, const struct nd_planned_pass *planned,
                                struct nd_error *err)
{
    struct nd_job_pass *pass = &capture->job.passes[p];
    bool exposes_all = !records_any(capture, p);
    size_t *exposed = nd_calloc(capture->n_edges, sizeof *exposed);
    pass->checks = nd_calloc(planned != NULL ? planned->n_checks : 0, sizeof *pass->checks);
    if (exposed == NULL || pass->checks == NULL) {
        free(exposed);
        return nd_fail_memory(err);
    }
    size_t n_exposed = 0;
    for (size_t i = 0; planned != NULL && i < planned->n_checks; i++)
        pass->checks[pass->n_checks++] = planned->checks[i];
    for (size_t e = 0; e < capture->n_edges; e++)
        if (is_checked(pass, e) || exposes_all || capture->pass_of_edge[e] == p)
            exposed[n_exposed++] = capture->selected[e];
    char name[32];
    snprintf(name, sizeof name, "pass%zu.onnx", p);
    enum nd_status status = make_model(capture, name, exposed, n_exposed, &pass->model, err);
    free(exposed);
    return status;
}

enum nd_status nd_capture_job_set_passes(struct nd_capture_job *capture, size_t n_passes,
                                         const struct nd_planned_pass *planned, struct nd_error *err)
{
    struct nd_job *job = &capture->job;
    free_passes(job);
    job->passes = nd_calloc(n_passes, sizeof *job->passes);
    job->edges = nd_calloc(capture->n_edges, sizeof *job->edges);
    enum nd_status status = job->passes != NULL && job->edges != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t p = 0; status == ND_OK && p < n_passes; p++) {
        job->n_passes = p + 1;
        status = make_pass(capture, p, planned != NULL ? &planned[p] : NULL, err);
    }
    for (size_t e = 0; status == ND_OK && e < capture->n_edges; e++) {
        job->n_edges = e + 1;
        status = nd_capture_job_edge(capture, &capture->edges[e], capture->selected[e], &job->edges[e], err);
        job->edges[e].pass = capture->pass_of_edge[e];
    }
    return status;
}

enum nd_status nd_capture_job_trial(const struct nd_capture_job *capture, const size_t *edges, size_t n,
                                    struct nd_job *trial, struct nd_error *err)
{
    struct nd_job job = capture->job; /* shares everything but its pass */
    job.n_probes = 0;
    job.edges = NULL;
    job.n_edges = 0;
    job.n_passes = 1;
    job.passes = nd_calloc(1, sizeof *job.passes);
    enum nd_status status = job.passes != NULL
                                ? make_model(capture, "trial.onnx", edges, n, &job.passes[0].model, err)
                                : nd_fail_memory(err);
    if (status == ND_OK)
        *trial = job;
    else
        free_passes(&job);
    return status;
}

void nd_capture_job_free_trial(struct nd_job *trial)
{
    free_passes(trial);
}
