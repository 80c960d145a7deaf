/* Repeats of one device that differ, and how its error grows over the tensors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/diagnosis/values.h"
#include "explain/symptoms/symptoms.h"

enum { MOST_RUNS = 8, MOST_ELEMENTS = 1 << 20 };

static bool is_equal(struct nd_digest a, struct nd_digest b)
{
    return a.low == b.low && a.high == b.high;
}

/* The first sample of which runs differ, and its runs that can be read: their numbers. */
static size_t find_runs(const struct nd_capture *capture, size_t probe, size_t edge, size_t *sample,
                        size_t runs[MOST_RUNS])
{
    const struct nd_capture_probe *p = nd_capture_probe(capture, probe);
    for (size_t s = 0; s < p->n_samples; s++) {
        size_t n = 0;
        bool differs = false;
        for (size_t r = 0, n_runs = nd_capture_n_runs(capture, probe, edge, s); r < n_runs; r++) {
            struct nd_digest digest = nd_capture_digest(capture, probe, edge, s, r);
            differs = differs || !is_equal(digest, nd_capture_digest(capture, probe, edge, s, 0));
            if (n < MOST_RUNS)
                runs[n++] = r;
        }
        *sample = s;
        if (differs)
            return n;
    }
    return 0;
}

static enum nd_status compare_runs(const struct nd_capture *capture, size_t probe, size_t edge, size_t n,
                                   struct nd_findings *found, struct nd_error *err)
{
    const struct nd_edge *e = nd_capture_edge(capture, edge);
    size_t runs[MOST_RUNS], sample, n_runs = find_runs(capture, probe, edge, &sample, runs);
    double *x = n_runs > 1 ? nd_calloc(n_runs * n, sizeof *x) : NULL;
    const double *launches[MOST_RUNS];
    enum nd_status status = ND_OK;
    if (n_runs < 2)
        return ND_OK;
    if (x == NULL)
        return nd_fail_memory(err);
    for (size_t k = 0; k < n_runs && status == ND_OK; k++) {
        bool is_first = is_equal(nd_capture_digest(capture, probe, edge, sample, runs[k]),
                                 nd_capture_digest(capture, probe, edge, sample, 0));
        const struct nd_diagnose_range range = {sample, 1, is_first ? 0 : runs[k]};
        launches[k] = x + k * n;
        status = nd_diagnose_read(capture, probe, edge, &range, x + k * n, err);
    }
    double step = nd_dtype_is_integer(e->dtype) ? 1 : 0;
    for (size_t c = 0; c < e->quant.n && step > 0; c++)
        step = fmax(c == 0 ? 0 : step, fabs((double)e->quant.scale[c]));
    if (status == ND_OK)
        nd_values_compare_launches(launches, n_runs, n, step, found);
    free(x);
    return status;
}

/* Later tensors inherit what the first unstable one has: it alone is looked at, with those of the graph's
 * outputs. */
enum nd_status nd_diagnose_runs(struct nd_comparison *comparison, const struct nd_capture *const *captures,
                                size_t device, struct nd_error *err)
{
    const struct nd_capture *capture = captures[device];
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < comparison->n_edges && status == ND_OK; e++) {
        size_t edge = nd_capture_find_edge(capture, comparison->edges[e].name), size_bytes;
        if (edge == SIZE_MAX || comparison->edges[e].devices[device].n_unstable == 0)
            continue;
        const struct nd_edge *captured = nd_capture_edge(capture, edge);
        if (nd_shape_size_bytes(&captured->shape, captured->dtype, &size_bytes, NULL) != ND_OK)
            continue;
        size_t n = size_bytes / nd_dtype_size_bytes(captured->dtype);
        for (size_t p = 0; p < nd_capture_n_probes(capture) && n > 0 && n <= MOST_ELEMENTS && status == ND_OK;
             p++) {
            struct nd_findings found = {0};
            if (!nd_capture_has_outputs(capture, p, edge))
                continue;
            status = compare_runs(capture, p, edge, n, &found, err);
            if (found.n == 0 || status != ND_OK)
                continue;
            status = nd_diagnose_add(comparison, device, e, &found.items[0], true, err);
            break;
        }
    }
    return status;
}

/* ---- depth ---- */

/* The share of codes that differ, of floats the relative error over the samples that differ; NaN: none. */
static double error_of(const struct nd_compared_pair *pair, bool is_share)
{
    const struct nd_difference *d = &pair->total.difference;
    if (pair->total.coverage == ND_COVERAGE_NONE || !d->has_values || d->n_differing == 0 ||
        d->is_integer != is_share)
        return NAN;
    return is_share ? d->share : pow(10, -d->sqnr_db / 20);
}

static bool has_half(const struct nd_comparison *c, const struct nd_capture *capture, size_t device)
{
    for (size_t i = 0; i < c->n_diagnoses; i++)
        if (c->diagnoses[i].device == device &&
            strcmp(c->diagnoses[i].kind, nd_fault_name(ND_FAULT_FP16_GRID)) == 0)
            return true;
    for (size_t e = 0; e < nd_capture_n_edges(capture); e++)
        if (nd_capture_edge(capture, e)->dtype == ND_DTYPE_F16)
            return true;
    return false;
}

static void find_depth(const struct nd_comparison *c, size_t device, double *errors,
                       struct nd_compared_depth *depth)
{
    size_t n_codes = 0, n_floats = 0, n = 0;
    *depth = (struct nd_compared_depth){.device = device, .largest = NAN};
    for (size_t e = 0; e < c->n_edges; e++) {
        const struct nd_compared_pair *pair = &c->edges[e].pairs[device - 1];
        const struct nd_side *side = &pair->total.difference.ref_side;
        n_codes += isfinite(error_of(pair, true)) != 0;
        n_floats += isfinite(error_of(pair, false)) != 0;
        double largest = fmax(fabs(side->min), fabs(side->max));
        if (side->n_elems == 0 || !isfinite(largest) || largest <= depth->largest) /* NaN at first */
            continue;
        depth->largest = largest;
        depth->largest_edge = e;
    }
    depth->is_share = n_codes > n_floats;
    for (size_t e = 0; e < c->n_edges; e++)
        if (!c->edges[e].is_model_input)
            errors[n++] = error_of(&c->edges[e].pairs[device - 1], depth->is_share);
    struct nd_growth_law law;
    nd_values_find_growth(errors, n, &law);
    depth->growth = nd_growth_name(law.growth);
    depth->n_tensors = law.n;
    depth->factor = law.factor;
    depth->first = law.first;
    depth->last = law.last;
}

enum nd_status nd_diagnose_depths(struct nd_comparison *comparison, const struct nd_capture *const *captures,
                                  struct nd_error *err)
{
    if (comparison->n_devices < 2 || comparison->n_edges == 0)
        return ND_OK;
    double *errors = nd_calloc(comparison->n_edges, sizeof *errors);
    comparison->depths = nd_calloc(comparison->n_devices - 1, sizeof *comparison->depths);
    enum nd_status status = errors != NULL && comparison->depths != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t d = 1; d < comparison->n_devices && status == ND_OK; d++) {
        struct nd_compared_depth *depth = &comparison->depths[comparison->n_depths++];
        find_depth(comparison, d, errors, depth);
        depth->is_half = has_half(comparison, captures[d], d);
    }
    free(errors);
    return status;
}
