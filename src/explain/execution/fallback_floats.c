/* Floats of steps that have no codes: science 2.3. On the grid of half precision, and there, whether they are
 * what the unit gives when it is computed in full and rounded to that grid once: what only passes through an
 * NPU is. */
#include <math.h>

#include "explain/execution/fallback.h"

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
    struct nd_reader reader;
    struct nd_fallback_floats *floats; /* [n_steps] of the device at hand */
};

static bool is_float(const struct nd_plan *plan, size_t step)
{
    const struct nd_edge *edge = nd_plan_edge(plan, step);
    return edge->quant.n == 0 && !edge->is_model_input &&
           (edge->dtype == ND_DTYPE_NONE || nd_dtype_is_float(edge->dtype));
}

static enum nd_status found(void *context, size_t edge, const struct nd_array *own, enum nd_exact_way way,
                            struct nd_error *err)
{
    (void)way;
    (void)err;
    struct look *look = context;
    size_t step = look->reader.plan->step_of_edge[edge];
    const struct nd_array *given = &look->reader.given[edge];
    if (step != SIZE_MAX && is_float(look->reader.plan, step) && given->shape.rank >= 0 && given->n == own->n)
        nd_fallback_count_floats(&look->floats[step], given->x, own->x, own->n);
    return ND_OK;
}

/* Of an edge that cannot be worked out the grid is known all the same. */
static enum nd_status missed(void *context, size_t edge, const struct nd_error *why, struct nd_error *err)
{
    (void)why;
    (void)err;
    struct look *look = context;
    size_t step = look->reader.plan->step_of_edge[edge];
    const struct nd_array *given = &look->reader.given[edge];
    if (step != SIZE_MAX && is_float(look->reader.plan, step) && given->shape.rank >= 0)
        nd_fallback_count_floats(&look->floats[step], given->x, NULL, given->n);
    return ND_OK;
}

static bool has_floats(const struct nd_plan *plan)
{
    for (size_t s = 0; s < plan->n_steps; s++)
        for (size_t d = 0; is_float(plan, s) && d < plan->n_devices; d++)
            if (!plan->sources[d].is_failed && plan->sources[d].edges[s] != SIZE_MAX)
                return true;
    return false;
}

static enum nd_status look_at_sample(struct look *look, struct nd_fallback_floats *floats, struct nd_error *err)
{
    struct nd_reader *r = &look->reader;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .given = r->given, .missed = missed};
    enum nd_status status = ND_OK;
    for (size_t d = 0; d < r->plan->n_devices && status == ND_OK; d++) {
        if (r->plan->sources[d].is_failed)
            continue;
        look->floats = floats + d * r->plan->n_steps;
        status = nd_reader_device(r, d, err);
        if (status == ND_OK)
            status = nd_exact_graph_run(r->plan->graph, r->inputs, &options, found, look, err);
    }
    return status;
}

enum nd_status nd_fallback_look_at_floats(const struct nd_plan *plan, struct nd_fallback_floats *floats,
                                          struct nd_error *err)
{
    struct look look = {.floats = NULL};
    size_t n = plan->n_samples < N_SAMPLES ? plan->n_samples : N_SAMPLES;
    if (!has_floats(plan))
        return ND_OK;
    enum nd_status status = nd_reader_init(&look.reader, plan, err);
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        status = nd_reader_load(&look.reader, i, n, err);
        if (status == ND_OK)
            status = look_at_sample(&look, floats, err);
    }
    nd_reader_deinit(&look.reader);
    return status;
}
