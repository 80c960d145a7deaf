#include "explain/verdict/noise.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"

enum { MOST_RUNS = 64 }; /* that are read */

struct reader {
    const struct nd_plan_source *source;
    size_t edge, n; /* n: values of a sample */
    enum nd_dtype dtype;
    unsigned char *bytes;
    double *first, *other;
};

static enum nd_status read_run(const struct reader *r, size_t sample, size_t repeat, double *to,
                               struct nd_error *err)
{
    const struct nd_capture_tensor tensor = {r->source->capture, r->source->probe, r->edge};
    enum nd_status status = repeat == 0
                                ? nd_capture_read_verified(&tensor, sample, 1, r->bytes, err)
                                : nd_capture_read_repeat_verified(&tensor, sample, repeat, r->bytes, err);
    if (status == ND_OK)
        nd_array_load(r->dtype, r->bytes, r->n, to);
    return status;
}

static bool is_run_other(const struct reader *r, size_t sample, size_t repeat)
{
    return !nd_digest_equal(nd_capture_digest(r->source->capture, r->source->probe, r->edge, sample, 0),
                            nd_capture_digest(r->source->capture, r->source->probe, r->edge, sample, repeat));
}

static enum nd_status compare_runs(const struct reader *r, size_t n_samples, struct nd_explain_noise *out,
                                   struct nd_error *err)
{
    size_t n_differing = 0;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n_samples && status == ND_OK; i++) {
        size_t n_runs = nd_capture_n_runs(r->source->capture, r->source->probe, r->edge, i);
        for (size_t k = 1; k < n_runs && out->n_repeats < MOST_RUNS && status == ND_OK; k++) {
            if (!is_run_other(r, i, k))
                continue;
            status = read_run(r, i, 0, r->first, err);
            if (status == ND_OK)
                status = read_run(r, i, k, r->other, err);
            out->n_repeats += status == ND_OK;
            for (size_t j = 0; status == ND_OK && j < r->n; j++) {
                double off = fabs(r->other[j] - r->first[j]);
                n_differing += off != 0;
                out->max = fmax(out->max, off);
            }
        }
    }
    double n = (double)out->n_repeats * (double)r->n;
    out->share = n > 0 ? (double)n_differing / n : 0;
    return status;
}

enum nd_status nd_explain_measure_noise(const struct nd_plan *plan, size_t device, size_t step,
                                        struct nd_explain_noise *out, struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[device];
    *out = (struct nd_explain_noise){.is_any = nd_plan_differs_by_run(plan, device, step),
                                     .is_own = nd_plan_inputs_repeat(plan, device, step)};
    if (!out->is_any)
        return ND_OK;
    struct reader r = {.source = source, .edge = source->edges[step]};
    r.dtype = nd_capture_edge(source->capture, r.edge)->dtype;
    enum nd_status status = nd_shape_n_elems(&plan->shapes[step], &r.n, err);
    if (status != ND_OK)
        return status;
    r.bytes = nd_tensor_alloc(source->sample_bytes[step]);
    r.first = nd_calloc(r.n, sizeof *r.first);
    r.other = nd_calloc(r.n, sizeof *r.other);
    status = r.bytes != NULL && r.first != NULL && r.other != NULL ? compare_runs(&r, plan->n_samples, out, err)
                                                                   : nd_fail_memory(err);
    free(r.bytes);
    free(r.first);
    free(r.other);
    return status;
}
