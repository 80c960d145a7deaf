/* Where units were computed: the evidence of their codes, floats, neighbours and placement, summed up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/execution/fallback_parts.h"

/* ---- floats ---- */

static enum nd_status judge_floats(struct nd_fallback *f, size_t device, size_t step, struct nd_error *err)
{
    enum { FEWEST = 24 };
    /* A runtime may hand what the CPU computed through a piece of the NPU's that only moves it: in one of five
     * units next to one it did (measured: docs/science/fallback.md). So being on the grid says little, and
     * being off it much. */
    static const double passed_on = 0.2, off_on_npu = 0.002, rounded_off = 0.02;
    /* Shares of the floats on the grid: at most the first is off it, the second or more is on it, anything
     * between is neither; chosen. */
    static const double off_grid = 0.5, on_grid = 0.98;
    const struct nd_fallback_floats *floats = &f->floats[nd_fallback_at(f, device, step)];
    struct nd_explained_execution *execution = nd_fallback_execution_of(f, device, step);
    double share = floats->n > 0 ? (double)floats->n_on_grid / (double)floats->n : 0, weight;
    if (floats->n < FEWEST || (share > off_grid && share < on_grid))
        return ND_OK;
    if (share <= off_grid) {
        f->values[nd_fallback_at(f, device, step)] = log2(off_on_npu);
        return nd_fallback_add(execution, "off-fp16-grid", log2(off_on_npu), err,
                               "%zu of %zu floats have more bits than half precision",
                               floats->n - floats->n_on_grid, floats->n);
    }
    weight = -log2(passed_on);
    f->values[nd_fallback_at(f, device, step)] = weight;
    enum nd_status status = nd_fallback_add(execution, "fp16-grid", weight, err,
                                            "%zu of %zu floats are numbers of half precision, which an NPU may "
                                            "also have made of others'",
                                            floats->n_on_grid, floats->n);
    if (status != ND_OK || floats->n_off == 0)
        return status;
    const struct nd_fallback_rates rates = {.exact = 0.5, .off = 0.1, .other = off_on_npu};
    struct nd_fallback_counts counts = {
        .n = (double)floats->n_known, .n_off = (double)floats->n_off, .spread = 4};
    counts.n_far = counts.n_off > counts.n * rounded_off ? counts.n_off : 0;
    double more = nd_fallback_weigh(&counts, &rates);
    f->values[nd_fallback_at(f, device, step)] += fmax(more, 0);
    return nd_fallback_add(
        execution, "fp16-arithmetic", fmax(more, 0), err,
        "%zu of %zu are not what its own inputs give when they are rounded to half precision "
        "once",
        floats->n_off, floats->n_known);
}

/* ---- what is around it, and what is recorded ---- */

/* Units of a run whose values tell where they were computed. */
struct decided {
    size_t n_npu, n_not;
};

static struct decided count_decided(const struct nd_fallback *f, size_t device)
{
    struct decided all = {0};
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        all.n_npu += f->values[nd_fallback_at(f, device, s)] >= ND_FALLBACK_DECISION;
        all.n_not += f->values[nd_fallback_at(f, device, s)] <= -ND_FALLBACK_DECISION;
    }
    return all;
}

/* Where nothing else was computed by an NPU, this one hardly was. The other way round it says nothing: single
 * units that are not is what is looked for. */
static enum nd_status judge_neighbours(struct nd_fallback *f, size_t device, size_t step,
                                       const struct decided *all, struct nd_error *err)
{
    enum { FEWEST = 3 };
    static const double most = 5; /* bits; docs/science/fallback.md#the-run */
    double own = f->values[nd_fallback_at(f, device, step)];
    size_t n_npu = all->n_npu - (own >= ND_FALLBACK_DECISION);
    size_t n_not = all->n_not - (own <= -ND_FALLBACK_DECISION);
    if (n_npu + n_not < FEWEST)
        return ND_OK;
    double weight = fmin(fmax(log2(((double)n_npu + 0.5) / ((double)n_not + 0.5)), -most), 0);
    return nd_fallback_add(nd_fallback_execution_of(f, device, step), "neighbours", weight, err,
                           "of the run's other units that tell, %zu were computed by an NPU and %zu were not",
                           n_npu, n_not);
}

static enum nd_status judge_placement(struct nd_fallback *f, size_t device, size_t step, struct nd_error *err)
{
    const struct nd_plan_source *source = &f->plan->sources[device];
    size_t edge = nd_capture_find_edge(source->capture, nd_plan_edge(f->plan, step)->name);
    const char *provider = edge != SIZE_MAX ? nd_capture_edge_provider(source->capture, edge) : "";
    const char *stated = nd_fallback_stated_other(source->capture);
    if (!f->hides_placement && provider[0] == '\0' && stated != NULL)
        return nd_fallback_add(nd_fallback_execution_of(f, device, step), "stated", -ND_FALLBACK_MOST, err,
                               "the import states that the device is a %s", stated);
    if (f->hides_placement || provider[0] == '\0')
        return ND_OK;
    bool is_npu = strcmp(provider, "CPUExecutionProvider") != 0;
    if (is_npu && !nd_capture_is_called_npu(source->capture))
        return ND_OK; /* an emulated device's own */
    return nd_fallback_add(nd_fallback_execution_of(f, device, step), "placement",
                           is_npu ? ND_FALLBACK_MOST : -ND_FALLBACK_MOST, err, "the capture says %s", provider);
}

/* Why nothing can be said of a unit that left no evidence of its own. */
static const char *why_unknown(const struct nd_fallback *f, size_t device, size_t step)
{
    const struct nd_explained_unit *unit = &f->out->devices[device].units[step];
    const struct nd_fallback_floats *floats = &f->floats[nd_fallback_at(f, device, step)];
    if (unit->execution.verdict != ND_EXECUTION_UNKNOWN)
        return NULL;
    if (unit->execution.is_contradictory)
        return "the evidence contradicts itself";
    if (floats->n > 0)
        return "its floats would be these wherever it ran";
    if (!f->out->steps[step].is_unit || !unit->is_examined)
        return "it was not examined";
    if (nd_fallback_is_spoilt(f, device, step))
        return "its values are spoilt, which says nothing of where it ran";
    if (unit->execution.n_deciding == 0)
        return "it only moves codes: they are the same wherever it runs";
    return "its codes may be these wherever it runs";
}

/* ---- all of it ---- */

static enum nd_status judge_step(struct nd_fallback *f, size_t device, size_t step, const struct decided *all,
                                 struct nd_error *err)
{
    enum nd_status status = judge_neighbours(f, device, step, all, err);
    if (status == ND_OK)
        status = judge_placement(f, device, step, err);
    nd_fallback_conclude(nd_fallback_execution_of(f, device, step));
    nd_fallback_execution_of(f, device, step)->why_unknown = why_unknown(f, device, step);
    return status;
}

static enum nd_status judge_values(struct nd_fallback *f, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    const struct nd_plan *plan = f->plan;
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        status = nd_fallback_count_codes(f, d, err);
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
            if (!nd_fallback_is_judged(f, d, s))
                continue;
            status = nd_fallback_judge_codes(f, d, s, err);
            if (status == ND_OK)
                status = judge_floats(f, d, s, err);
        }
    return status;
}

static enum nd_status judge_device(struct nd_fallback *f, size_t device, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (f->plan->sources[device].is_failed)
        return ND_OK;
    const struct decided all = count_decided(f, device);
    for (size_t s = 0; s < f->plan->n_steps && status == ND_OK; s++)
        if (nd_fallback_is_judged(f, device, s))
            status = judge_step(f, device, s, &all, err);
    if (status == ND_OK)
        status = nd_fallback_judge_run(f->plan, device, &f->values[nd_fallback_at(f, device, 0)],
                                       f->hides_placement, f->out, err);
    return status;
}

enum nd_status nd_find_execution(const struct nd_evaluation *evaluation, const size_t *unit_program,
                                 bool hides_placement, struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    size_t n = plan->n_devices * plan->n_steps; /* as in nd_evaluation_init, which was checked */
    struct nd_fallback f = {.plan = plan,
                            .evaluation = evaluation,
                            .unit_program = unit_program,
                            .out = out,
                            .hides_placement = hides_placement,
                            .half_even = nd_half_even_program(),
                            .counts = nd_calloc(n, sizeof *f.counts),
                            .floats = nd_calloc(n, sizeof *f.floats),
                            .kin = nd_calloc(n, sizeof *f.kin),
                            .alone = nd_calloc(n, sizeof *f.alone),
                            .values = nd_calloc(n, sizeof *f.values)};
    enum nd_status status = ND_OK;
    if (n > 0 && (f.counts == NULL || f.floats == NULL || f.kin == NULL || f.alone == NULL || f.values == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK && n > 0)
        status = nd_fallback_look_at_floats(plan, f.floats, err);
    if (status == ND_OK)
        status = judge_values(&f, err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        status = judge_device(&f, d, err);
    free(f.counts);
    free(f.floats);
    free(f.kin);
    free(f.alone);
    free(f.values);
    return status;
}
