#include "execution/fallback.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "diagnosis/diagnosis.h"

struct fallback {
    const struct nd_plan *plan;
    const struct nd_evaluation *evaluation;
    const size_t *unit_program; /* [n_devices] of nd_unit_programs; SIZE_MAX: none */
    struct nd_explanation *out;
    bool hides_placement;
    size_t half_even;                  /* of nd_programs */
    struct nd_fallback_counts *counts; /* [n_devices][n_steps] */
    struct nd_fallback_floats *floats; /* [n_devices][n_steps] */
    double *alone;  /* [n_devices][n_steps] weight of the codes by what is known of the operator */
    double *values; /* [n_devices][n_steps] of codes, by all that is known, and floats */
};

static size_t at(const struct fallback *f, size_t device, size_t step)
{
    return device * f->plan->n_steps + step;
}

static const struct nd_edge *edge_of(const struct fallback *f, size_t step)
{
    return nd_plan_edge(f->plan, step);
}

static struct nd_explained_execution *execution_of(const struct fallback *f, size_t device, size_t step)
{
    return &f->out->devices[device].units[step].execution;
}

/* Inputs are given, and a runtime quantises them where it likes. */
static bool is_judged(const struct fallback *f, size_t device, size_t step)
{
    return !f->plan->sources[device].is_failed && !edge_of(f, step)->is_model_input;
}

/* ---- codes ---- */

/* Codes of one sample are alike: many come from the same values. How much that matters shows in the spread from
 * sample to sample. */
static double spread_of(const struct nd_evaluation *evaluation, size_t device, size_t step)
{
    size_t n_samples = evaluation->plan->n_samples;
    double n = 0, n_off = 0, squares = 0, expected = 0;
    for (size_t i = 0; i < n_samples; i++) {
        const struct nd_sums *sums = nd_sums_of(evaluation, i, device, step);
        n += (double)sums->n_codes;
        n_off += (double)sums->local.n_differing;
    }
    double share = n > 0 ? n_off / n : 0;
    for (size_t i = 0; i < n_samples; i++) {
        const struct nd_sums *sums = nd_sums_of(evaluation, i, device, step);
        double mean = (double)sums->n_codes * share, d = (double)sums->local.n_differing - mean;
        squares += d * d;
        expected += mean * (1 - share);
    }
    return n_samples > 1 && expected > 0 ? fmax(squares / expected, 1) : 1;
}

static void count_codes(struct fallback *f, size_t device, size_t step)
{
    const struct nd_explained_unit *unit = &f->out->devices[device].units[step];
    const struct nd_code_tally *tally = nd_tally_of(f->evaluation, device, step);
    struct nd_fallback_counts *counts = &f->counts[at(f, device, step)];
    struct nd_explained_execution *execution = execution_of(f, device, step);
    counts->is_wide = nd_dtype_size_bytes(edge_of(f, step)->dtype) > 1;
    counts->spread = 1;
    if (!f->out->steps[step].is_unit || !unit->is_examined)
        return;
    execution->n_off = tally->wrong[f->half_even];
    execution->n_far = tally->far[f->half_even];
    execution->n_deciding = tally->n_open > execution->n_off ? tally->n_open : execution->n_off;
    counts->n = (double)execution->n_deciding;
    counts->n_off = (double)execution->n_off;
    counts->n_far = (double)execution->n_far;
    counts->spread = spread_of(f->evaluation, device, step);
}

/* Exact codes have no spread to see: that of the run's others stands for it, as a correlation between the codes
 * of one sample: spread = 1 + (codes of a sample - 1) correlation. */
static void lend_spread(struct fallback *f, size_t device)
{
    static const double usual = 0.001;
    double sum = 0, n = 0, n_samples = (double)f->plan->n_samples;
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        const struct nd_fallback_counts *counts = &f->counts[at(f, device, s)];
        if (counts->n_far == 0 || counts->n < 2 * n_samples)
            continue;
        sum += (counts->spread - 1) / (counts->n / n_samples - 1);
        n++;
    }
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        struct nd_fallback_counts *counts = &f->counts[at(f, device, s)];
        if (counts->n_far == 0 && counts->n > n_samples)
            counts->spread = 1 + (counts->n / n_samples - 1) * fmin(n > 0 ? sum / n : usual, 1);
    }
}

/* A fault says nothing of where a layer ran: a wrong scale or a permutation is off everywhere. Nor does an
 * error that no rounding makes, whether it has a name or not. */
static bool is_spoilt(const struct fallback *f, size_t device, size_t step)
{
    /* LSB of 8 and of 16 bits; chosen: 4 bits of the 8 or 16 are lost, which no HTP operator was seen to do
     * alone. */
    static const double most = 16, most_wide = 4096;
    const struct nd_explained_unit *unit = &f->out->devices[device].units[step];
    bool is_place = unit->fault.kind == nd_fault_name(ND_FAULT_FALLBACK) ||
                    unit->fault.kind == nd_fault_name(ND_FAULT_ROUNDING);
    if (unit->state == ND_LAYER_FAULTY && !is_place)
        return true;
    return unit->state == ND_LAYER_UNEXPLAINED &&
           unit->local.max > (f->counts[at(f, device, step)].is_wide ? most_wide : most);
}

/* What the NPU does in this very unit on other runs, or in units of the kind on this one: as far as that is
 * plain from the operator alone. */
enum { MOST_SIBLINGS = 32 };
struct siblings {
    double rates[MOST_SIBLINGS]; /* of codes that are off, sorted */
    size_t n_units;              /* at most MOST_SIBLINGS */
    bool is_same_unit;
};

static void add_sibling(const struct fallback *f, size_t device, size_t step, struct siblings *siblings)
{
    size_t k = at(f, device, step), i = siblings->n_units;
    if (f->alone[k] < ND_FALLBACK_DECISION || f->counts[k].n <= 0 || i == MOST_SIBLINGS ||
        is_spoilt(f, device, step))
        return;
    double rate = f->counts[k].n_off / f->counts[k].n;
    for (; i > 0 && siblings->rates[i - 1] > rate; i--)
        siblings->rates[i] = siblings->rates[i - 1];
    siblings->rates[i] = rate;
    siblings->n_units++;
}

/* The median, the lower one of two: one run that is broken must not set what is expected of the others. */
static double usual_rate(const struct siblings *siblings)
{
    return siblings->rates[(siblings->n_units - 1) / 2];
}

static struct siblings find_siblings(const struct fallback *f, size_t device, size_t step)
{
    struct siblings siblings = {.is_same_unit = true};
    const struct nd_explained_step *steps = f->out->steps;
    for (size_t d = 0; d < f->plan->n_devices; d++)
        if (d != device && f->plan->sources[d].same_as != f->plan->sources[device].same_as)
            add_sibling(f, d, step, &siblings);
    if (siblings.n_units > 0)
        return siblings;
    siblings.is_same_unit = false;
    bool is_wide = f->counts[at(f, device, step)].is_wide;
    for (size_t s = 0; s < f->plan->n_steps; s++)
        if (s != step && strcmp(steps[s].op_types, steps[step].op_types) == 0 &&
            f->counts[at(f, device, s)].is_wide == is_wide)
            add_sibling(f, device, s, &siblings);
    return siblings;
}

/* A layer whose codes follow known arithmetic in another way, fused with its neighbour for instance, is no
 * witness against the NPU. */
static bool follows_otherwise(const struct nd_explained_unit *unit)
{
    return unit->state == ND_LAYER_FOLLOWS && unit->why_follows != NULL &&
           strcmp(unit->why_follows, "exact") != 0;
}

/* Codes; chosen, as in accuse.c. Of 180 healthy networks (seeds 5000 to 5179) 16 layers of gen3 had 2 to 19
 * codes apart from the program, all of them exact. */
enum { FEWEST_AGAINST = 20 };

/* Where the device has a program of whole units: the codes of the unit on which that and exact rounding differ.
 * *is_told stays false where there are none, or where they are neither's. A handful of codes that are exact
 * tells nothing: a fused layer may be exact by chance. Then the other weight, which is of the same codes, tells
 * nothing either. */
static enum nd_status judge_by_program(struct fallback *f, size_t device, size_t step, bool *is_told,
                                       struct nd_error *err)
{
    size_t program = f->unit_program[device], n_programs;
    const struct nd_unit_tally *units = nd_unit_tally_of(f->evaluation, device, step);
    if (program == SIZE_MAX || units->doubt[program] >= 1 ||
        units->n[program] < f->out->devices[device].units[step].n_codes)
        return ND_OK;
    double weight =
        nd_fallback_weigh_program(units->apart[program], units->apart_as_made[program],
                                  units->apart_as_exact[program], f->counts[at(f, device, step)].spread);
    if (weight == 0)
        return ND_OK;
    *is_told = true;
    if (weight < 0 &&
        (units->apart[program] < FEWEST_AGAINST || follows_otherwise(&f->out->devices[device].units[step])))
        return ND_OK;
    f->values[at(f, device, step)] = weight;
    const char *name = nd_unit_programs(&n_programs)[program].name;
    return nd_fallback_add(execution_of(f, device, step), "program", weight, err,
                           "of %" PRIu64 " codes on which %s and exact rounding differ %" PRIu64
                           " are the former's and %" PRIu64 " the latter's",
                           units->apart[program], name, units->apart_as_made[program],
                           units->apart_as_exact[program]);
}

static enum nd_status judge_codes(struct fallback *f, size_t device, size_t step, struct nd_error *err)
{
    struct nd_explained_execution *execution = execution_of(f, device, step);
    const struct nd_fallback_counts *counts = &f->counts[at(f, device, step)];
    struct nd_fallback_rates rates = nd_fallback_rates_of(f->out->steps[step].op_types, counts->is_wide);
    bool is_told = false;
    if (is_spoilt(f, device, step))
        return ND_OK;
    enum nd_status status = judge_by_program(f, device, step, &is_told, err);
    if (status != ND_OK || is_told)
        return status;
    struct siblings siblings = find_siblings(f, device, step);
    if (siblings.n_units > 0)
        nd_fallback_learn(&rates, usual_rate(&siblings), siblings.n_units, siblings.is_same_unit);
    double weight = nd_fallback_weigh(counts, &rates);
    f->values[at(f, device, step)] = weight;
    const char *base = siblings.n_units == 0   ? "as in such units on simulated NPUs"
                       : siblings.is_same_unit ? "as in this unit on other runs of this comparison"
                                               : "as in other units of its kind on this run";
    if (weight > 0)
        return nd_fallback_add(execution, "fixed-point", weight, err,
                               "%" PRIu64 " of %" PRIu64
                               " deciding codes are not what float arithmetic gives, %" PRIu64
                               " of them not next to a tie",
                               execution->n_off, execution->n_deciding, execution->n_far);
    return nd_fallback_add(
        execution, "bit-equal", weight, err,
        "%" PRIu64 " of %" PRIu64
        " deciding codes are not what float arithmetic gives, where an NPU would have some %.2g%% "
        "%s",
        execution->n_off, execution->n_deciding, 100 * rates.off, base);
}

/* ---- floats ---- */

static enum nd_status judge_floats(struct fallback *f, size_t device, size_t step, struct nd_error *err)
{
    enum { FEWEST = 24 };
    /* A runtime may hand what the CPU computed through a piece of the NPU's that only moves it: in one of five
     * units next to one it did (measured: docs/science/fallback.md). So being on the grid says little, and
     * being off it much. */
    static const double passed_on = 0.2, off_on_npu = 0.002, rounded_off = 0.02;
    /* Shares of the floats on the grid: at most the first is off it, the second or more is on it, anything
     * between is neither; chosen. */
    static const double off_grid = 0.5, on_grid = 0.98;
    const struct nd_fallback_floats *floats = &f->floats[at(f, device, step)];
    struct nd_explained_execution *execution = execution_of(f, device, step);
    double share = floats->n > 0 ? (double)floats->n_on_grid / (double)floats->n : 0, weight;
    if (floats->n < FEWEST || (share > off_grid && share < on_grid))
        return ND_OK;
    if (share <= off_grid) {
        f->values[at(f, device, step)] = log2(off_on_npu);
        return nd_fallback_add(execution, "off-fp16-grid", log2(off_on_npu), err,
                               "%zu of %zu floats have more bits than half precision",
                               floats->n - floats->n_on_grid, floats->n);
    }
    weight = -log2(passed_on);
    f->values[at(f, device, step)] = weight;
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
    f->values[at(f, device, step)] += fmax(more, 0);
    return nd_fallback_add(
        execution, "fp16-arithmetic", fmax(more, 0), err,
        "%zu of %zu are not what its own inputs give when they are rounded to half precision "
        "once",
        floats->n_off, floats->n_known);
}

/* ---- what is around it, and what is recorded ---- */

/* Where nothing else was computed by an NPU, this one hardly was. The other way round it says nothing: single
 * units that are not is what is looked for. */
static enum nd_status judge_neighbours(struct fallback *f, size_t device, size_t step, struct nd_error *err)
{
    enum { FEWEST = 3 };
    static const double most = 5; /* bits; docs/science/fallback.md#the-run */
    size_t n_npu = 0, n_not = 0;
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        if (s == step)
            continue;
        n_npu += f->values[at(f, device, s)] >= ND_FALLBACK_DECISION;
        n_not += f->values[at(f, device, s)] <= -ND_FALLBACK_DECISION;
    }
    if (n_npu + n_not < FEWEST)
        return ND_OK;
    double weight = fmin(fmax(log2(((double)n_npu + 0.5) / ((double)n_not + 0.5)), -most), 0);
    return nd_fallback_add(execution_of(f, device, step), "neighbours", weight, err,
                           "of the run's other units that tell, %zu were computed by an NPU and %zu were not",
                           n_npu, n_not);
}

static enum nd_status judge_placement(struct fallback *f, size_t device, size_t step, struct nd_error *err)
{
    const struct nd_plan_source *source = &f->plan->sources[device];
    size_t edge = nd_capture_find_edge(source->capture, edge_of(f, step)->name);
    const char *provider = edge != SIZE_MAX ? nd_capture_edge_provider(source->capture, edge) : "";
    const char *stated = nd_fallback_stated_other(source->capture);
    if (!f->hides_placement && provider[0] == '\0' && stated != NULL)
        return nd_fallback_add(execution_of(f, device, step), "stated", -ND_FALLBACK_MOST, err,
                               "the import states that the device is a %s", stated);
    if (f->hides_placement || provider[0] == '\0')
        return ND_OK;
    bool is_npu = strcmp(provider, "CPUExecutionProvider") != 0;
    if (is_npu && !nd_capture_is_called_npu(source->capture))
        return ND_OK; /* an emulated device's own */
    return nd_fallback_add(execution_of(f, device, step), "placement",
                           is_npu ? ND_FALLBACK_MOST : -ND_FALLBACK_MOST, err, "the capture says %s", provider);
}

/* Why nothing can be said of a unit that left no evidence of its own. */
static const char *why_unknown(const struct fallback *f, size_t device, size_t step)
{
    const struct nd_explained_unit *unit = &f->out->devices[device].units[step];
    const struct nd_fallback_floats *floats = &f->floats[at(f, device, step)];
    if (unit->execution.verdict != ND_EXECUTION_UNKNOWN)
        return NULL;
    if (unit->execution.is_contradictory)
        return "the evidence contradicts itself";
    if (floats->n > 0)
        return "its floats would be these wherever it ran";
    if (!f->out->steps[step].is_unit || !unit->is_examined)
        return "it was not examined";
    if (is_spoilt(f, device, step))
        return "its values are spoilt, which says nothing of where it ran";
    if (unit->execution.n_deciding == 0)
        return "it only moves codes: they are the same wherever it runs";
    return "its codes may be these wherever it runs";
}

/* ---- all of it ---- */

static enum nd_status judge_step(struct fallback *f, size_t device, size_t step, struct nd_error *err)
{
    enum nd_status status = judge_neighbours(f, device, step, err);
    if (status == ND_OK)
        status = judge_placement(f, device, step, err);
    nd_fallback_conclude(execution_of(f, device, step));
    execution_of(f, device, step)->why_unknown = why_unknown(f, device, step);
    return status;
}

static enum nd_status judge_values(struct fallback *f, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    const struct nd_plan *plan = f->plan;
    for (size_t d = 0; d < plan->n_devices; d++) {
        for (size_t s = 0; s < plan->n_steps && !plan->sources[d].is_failed; s++)
            count_codes(f, d, s);
        lend_spread(f, d);
        for (size_t s = 0; s < plan->n_steps; s++) {
            const struct nd_fallback_counts *counts = &f->counts[at(f, d, s)];
            struct nd_fallback_rates rates = nd_fallback_rates_of(f->out->steps[s].op_types, counts->is_wide);
            f->alone[at(f, d, s)] = nd_fallback_weigh(counts, &rates);
        }
    }
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
            if (!is_judged(f, d, s))
                continue;
            status = judge_codes(f, d, s, err);
            if (status == ND_OK)
                status = judge_floats(f, d, s, err);
        }
    return status;
}

static enum nd_status judge_device(struct fallback *f, size_t device, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (f->plan->sources[device].is_failed)
        return ND_OK;
    for (size_t s = 0; s < f->plan->n_steps && status == ND_OK; s++)
        if (is_judged(f, device, s))
            status = judge_step(f, device, s, err);
    if (status == ND_OK)
        status = nd_fallback_judge_run(f->plan, device, &f->values[at(f, device, 0)], f->hides_placement,
                                       f->out, err);
    return status;
}

static size_t find_half_even(void)
{
    size_t n, p = 0;
    const struct nd_program *programs = nd_programs(&n);
    while (p + 1 < n && (programs[p].kind != ND_PROGRAM_SINGLE || programs[p].rounding != ND_ROUND_HALF_EVEN))
        p++;
    return p;
}

enum nd_status nd_find_execution(const struct nd_evaluation *evaluation, const size_t *unit_program,
                                 bool hides_placement, struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    size_t n = plan->n_devices * plan->n_steps; /* as in nd_evaluation_init, which was checked */
    struct fallback f = {.plan = plan,
                         .evaluation = evaluation,
                         .unit_program = unit_program,
                         .out = out,
                         .hides_placement = hides_placement,
                         .half_even = find_half_even(),
                         .counts = nd_calloc(n, sizeof *f.counts),
                         .floats = nd_calloc(n, sizeof *f.floats),
                         .alone = nd_calloc(n, sizeof *f.alone),
                         .values = nd_calloc(n, sizeof *f.values)};
    enum nd_status status = ND_OK;
    if (n > 0 && (f.counts == NULL || f.floats == NULL || f.alone == NULL || f.values == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK && n > 0)
        status = nd_fallback_look_at_floats(plan, f.floats, err);
    if (status == ND_OK)
        status = judge_values(&f, err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        status = judge_device(&f, d, err);
    free(f.counts);
    free(f.floats);
    free(f.alone);
    free(f.values);
    return status;
}
