/* Floats of steps that have no codes: science 2.3. On the grid of half precision, and there, whether they are
 * what the unit gives when it is computed in full and rounded to that grid once: what only passes through an
 * NPU is. */
#include <math.h>

#include "explain/fallback.h"

/* Largest of half precision, and the least that has all its bits. */
static const double largest = 65504, least = 0x1p-14;

enum { N_SAMPLES = 4 };

/* Step of half precision at x, which is normal there. */
static double step_at(double x)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, exponent - 11);
}

void nd_fallback_count_floats(struct nd_fallback_floats *floats, const double *given, const double *own,
                              size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = fabs(given[i]);
        if (!isfinite(x) || x < least || x > largest)
            continue;
        double step = step_at(x), nearest = rint(x / step) * step;
        floats->n++;
        /* Qualcomm's simulator gives the float next to the one of half precision. */
        if (fabs(x - nearest) > step * 0x1p-13)
            continue;
        floats->n_on_grid++;
        if (own == NULL || !isfinite(own[i]))
            continue;
        floats->n_known++;
        floats->n_off += fabs(given[i] - own[i]) >= 0.75 * step;
    }
}

struct look {
    struct nd_explain_worker worker;
    struct nd_fallback_floats *floats; /* [n_steps] of the device at hand */
};

static bool is_float(const struct nd_explain_job *job, size_t step)
{
    const struct nd_edge *edge = nd_model_edge(job->model, job->out->steps[step].edge);
    return edge->quant.n == 0 && !edge->is_model_input &&
           (edge->dtype == ND_DTYPE_NONE || nd_dtype_is_float(edge->dtype));
}

static enum nd_status found(void *context, size_t edge, const struct nd_array *own, enum nd_exact_way way,
                            struct nd_error *err)
{
    (void)way;
    (void)err;
    struct look *look = context;
    size_t step = look->worker.job->step_of_edge[edge];
    const struct nd_array *given = &look->worker.given[edge];
    if (step != SIZE_MAX && is_float(look->worker.job, step) && given->shape.rank >= 0 && given->n == own->n)
        nd_fallback_count_floats(&look->floats[step], given->x, own->x, own->n);
    return ND_OK;
}

/* Of an edge that cannot be worked out the grid is known all the same. */
static enum nd_status missed(void *context, size_t edge, const struct nd_error *why, struct nd_error *err)
{
    (void)why;
    (void)err;
    struct look *look = context;
    size_t step = look->worker.job->step_of_edge[edge];
    const struct nd_array *given = &look->worker.given[edge];
    if (step != SIZE_MAX && is_float(look->worker.job, step) && given->shape.rank >= 0)
        nd_fallback_count_floats(&look->floats[step], given->x, NULL, given->n);
    return ND_OK;
}

static bool has_floats(const struct nd_explain_job *job)
{
    for (size_t s = 0; s < job->n_steps; s++)
        for (size_t d = 0; is_float(job, s) && d < job->n_devices; d++)
            if (!job->sources[d].is_failed && job->sources[d].edges[s] != SIZE_MAX)
                return true;
    return false;
}

static enum nd_status look_at_sample(struct look *look, struct nd_fallback_floats *floats, struct nd_error *err)
{
    struct nd_explain_worker *w = &look->worker;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .given = w->given, .missed = missed};
    enum nd_status status = ND_OK;
    nd_explain_load_inputs(w);
    for (size_t d = 0; d < w->job->n_devices && status == ND_OK; d++) {
        if (w->job->sources[d].is_failed)
            continue;
        w->device = d;
        look->floats = floats + d * w->job->n_steps;
        status = nd_explain_load_device(w, err);
        if (status == ND_OK)
            status = nd_exact_graph_run(w->job->graph, w->inputs, &options, found, look, err);
    }
    return status;
}

enum nd_status nd_fallback_look_at_floats(struct nd_explain_job *job, struct nd_fallback_floats *floats,
                                          struct nd_error *err)
{
    struct look look = {0};
    size_t n = job->n_samples < N_SAMPLES ? job->n_samples : N_SAMPLES;
    if (!has_floats(job))
        return ND_OK;
    enum nd_status status = nd_explain_worker_init(&look.worker, job, err);
    if (status == ND_OK)
        status = nd_explain_read_block(&look.worker, 0, n, err);
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        look.worker.sample = look.worker.in_block = i;
        status = look_at_sample(&look, floats, err);
    }
    nd_explain_worker_deinit(&look.worker);
    return status;
}
