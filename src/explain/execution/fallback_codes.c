/* What the codes of a unit say of where it was computed. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/text/names.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/execution/fallback_parts.h"

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

static void count_codes(struct nd_fallback *f, size_t device, size_t step)
{
    const struct nd_explained_unit *unit = &f->out->devices[device].units[step];
    const struct nd_code_tally *tally = nd_tally_of(f->evaluation, device, step);
    struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, step)];
    struct nd_explained_execution *execution = nd_fallback_execution_of(f, device, step);
    counts->is_wide = nd_dtype_size_bytes(nd_plan_edge(f->plan, step)->dtype) > 1;
    counts->is_by_constant = f->out->steps[step].is_unit && nd_plan_unit(f->plan, step)->n_inputs == 1 &&
                             nd_fallback_is_pairwise(f->plan->steps[step].op_types);
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
static void lend_spread(struct nd_fallback *f, size_t device)
{
    /* Measured on gen1 and gen3 of the simulator (QAIRT 2.51.0; nine models of golden/models and
     * golden/fallback; probe uniform:32:7, of ViT uniform:12:7): the mean over 255 layers is 0.0005, and 93 %
     * of them have less than this. */
    static const double usual = 0.001;
    double sum = 0, n = 0, n_samples = (double)f->plan->n_samples;
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        const struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, s)];
        if (counts->n_far == 0 || counts->n < 2 * n_samples)
            continue;
        sum += (counts->spread - 1) / (counts->n / n_samples - 1);
        n++;
    }
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, s)];
        if (counts->n_far == 0 && counts->n > n_samples)
            counts->spread = 1 + (counts->n / n_samples - 1) * fmin(n > 0 ? sum / n : usual, 1);
    }
}

/* A fault says nothing of where a layer ran: a wrong scale or a permutation is off everywhere. Nor does an
 * error that no rounding makes, whether it has a name or not. */
bool nd_fallback_is_spoilt(const struct nd_fallback *f, size_t device, size_t step)
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
           unit->local.max > (f->counts[nd_fallback_at(f, device, step)].is_wide ? most_wide : most);
}

/* What the NPU does in this very unit on other runs, or in units of the kind on this one: as far as that is
 * plain from the operator alone. */
enum { MOST_SIBLINGS = 32 };
struct siblings {
    double rates[MOST_SIBLINGS]; /* of codes that are off, sorted */
    size_t n_units;              /* at most MOST_SIBLINGS */
    bool is_same_unit;
};

/* Whether it tells what an NPU does. */
static bool is_telling(const struct nd_fallback *f, size_t device, size_t step)
{
    size_t k = nd_fallback_at(f, device, step);
    return f->alone[k] >= ND_FALLBACK_DECISION && f->counts[k].n > 0 && !nd_fallback_is_spoilt(f, device, step);
}

static void add_sibling(const struct nd_fallback *f, size_t device, size_t step, struct siblings *siblings)
{
    size_t k = nd_fallback_at(f, device, step), i = siblings->n_units;
    if (i == MOST_SIBLINGS)
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

static struct siblings find_siblings(const struct nd_fallback *f, size_t device, size_t step)
{
    struct siblings siblings = {.is_same_unit = true};
    for (size_t d = 0; d < f->plan->n_devices; d++)
        if (d != device && f->plan->sources[d].same_as != f->plan->sources[device].same_as &&
            is_telling(f, d, step))
            add_sibling(f, d, step, &siblings);
    if (siblings.n_units > 0)
        return siblings;
    siblings.is_same_unit = false;
    const struct nd_fallback_kin *kin = &f->kin[nd_fallback_at(f, device, 0)];
    for (size_t s = kin[kin[step].kind].first; s != SIZE_MAX && siblings.n_units < MOST_SIBLINGS;
         s = kin[s].next)
        if (s != step)
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

/* A layer with codes that neither the device's program nor floats give: the program may be incomplete there, as
 * it is for a depthwise Conv of uint16 and stride 2. A CPU gives no code that is far from a tie, so the layer
 * is no witness against the NPU. */
static bool is_neither(const struct nd_fallback *f, size_t device, size_t step)
{
    return f->out->devices[device].units[step].state == ND_LAYER_UNEXPLAINED &&
           f->counts[nd_fallback_at(f, device, step)].n_far > 0;
}

/* Whether what speaks against the program is what it leaves open (nd_unit_program_doubt): an NPU has such
 * codes, too. Where each code follows from one code, those of one value are any share of them: which of two
 * ways the NPU goes is not known, and all codes of a background may lie where the ways differ. */
static bool is_left_open(const struct nd_fallback *f, size_t device, size_t step, size_t program)
{
    const struct nd_unit_tally *units = nd_unit_tally_of(f->evaluation, device, step);
    bool is_of_one_code = f->counts[nd_fallback_at(f, device, step)].is_by_constant ||
                          nd_fallback_is_move(f->plan->steps[step].op_types);
    return units->doubt[program] > 0 && units->max[program] <= 1 &&
           (is_of_one_code ||
            (double)units->wrong[program] <= units->doubt[program] * (double)units->n[program]);
}

/* Where the device has a program of whole units: the codes of the unit on which that and exact rounding differ.
 * *is_told stays false where they are neither's. Where there are none, and the program gives all codes, these
 * say nothing. A handful of codes that are exact tells nothing: a fused layer may be exact by chance. Then the
 * other weight, which is of the same codes, tells nothing either. */
static enum nd_status judge_by_program(struct nd_fallback *f, size_t device, size_t step, bool *is_told,
                                       struct nd_error *err)
{
    size_t program = f->unit_program[device], n_programs;
    const struct nd_unit_tally *units = nd_unit_tally_of(f->evaluation, device, step);
    if (program == SIZE_MAX || units->doubt[program] >= 1 ||
        units->n[program] < f->out->devices[device].units[step].n_codes)
        return ND_OK;
    double weight = nd_fallback_weigh_program(units->apart[program], units->apart_as_made[program],
                                              units->apart_as_exact[program],
                                              f->counts[nd_fallback_at(f, device, step)].spread);
    bool gives_all = units->wrong[program] == 0 && units->apart[program] == 0;
    if (weight == 0 && !gives_all)
        return ND_OK;
    *is_told = true;
    if (gives_all) /* and so does exact rounding: an NPU gives these codes, too, however many there are */
        return ND_OK;
    if (weight < 0 &&
        (is_neither(f, device, step) || units->apart[program] < FEWEST_AGAINST ||
         is_left_open(f, device, step, program) || follows_otherwise(&f->out->devices[device].units[step])))
        return ND_OK;
    f->values[nd_fallback_at(f, device, step)] = weight;
    const char *name = nd_unit_programs(&n_programs)[program].name;
    return nd_fallback_add(nd_fallback_execution_of(f, device, step), "program", weight, err,
                           "of %" PRIu64 " codes on which %s and exact rounding differ %" PRIu64
                           " are the former's and %" PRIu64 " the latter's",
                           units->apart[program], name, units->apart_as_made[program],
                           units->apart_as_exact[program]);
}

enum nd_status nd_fallback_judge_codes(struct nd_fallback *f, size_t device, size_t step, struct nd_error *err)
{
    struct nd_explained_execution *execution = nd_fallback_execution_of(f, device, step);
    const struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, step)];
    struct nd_fallback_rates rates = nd_fallback_rates_of(f->out->steps[step].op_types, counts);
    bool is_told = false;
    if (nd_fallback_is_spoilt(f, device, step))
        return ND_OK;
    enum nd_status status = judge_by_program(f, device, step, &is_told, err);
    if (status != ND_OK || is_told)
        return status;
    struct siblings siblings = {0};
    if (!counts->is_by_constant)
        siblings = find_siblings(f, device, step);
    if (siblings.n_units > 0)
        nd_fallback_learn(&rates, usual_rate(&siblings), siblings.n_units, siblings.is_same_unit);
    double weight = nd_fallback_weigh(counts, &rates);
    f->values[nd_fallback_at(f, device, step)] = weight;
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

/* Units of the same operators and width are of one kind. */
static enum nd_status find_kin(struct nd_fallback *f, size_t device, struct nd_error *err)
{
    struct nd_names kinds[2] = {{0}}; /* narrow, wide */
    struct nd_fallback_kin *kin = &f->kin[nd_fallback_at(f, device, 0)];
    size_t n = f->plan->n_steps;
    bool is_made = true;
    for (size_t s = 0; s < n && is_made; s++) {
        struct nd_names *names = &kinds[f->counts[nd_fallback_at(f, device, s)].is_wide];
        size_t kind = nd_names_find(names, f->out->steps[s].op_types);
        is_made = kind != SIZE_MAX || nd_names_add(names, f->out->steps[s].op_types, s);
        kin[s] = (struct nd_fallback_kin){kind != SIZE_MAX ? kind : s, SIZE_MAX, SIZE_MAX};
    }
    for (size_t s = n; s-- > 0 && is_made;)
        if (is_telling(f, device, s)) {
            kin[s].next = kin[kin[s].kind].first;
            kin[kin[s].kind].first = s;
        }
    nd_names_deinit(&kinds[0]);
    nd_names_deinit(&kinds[1]);
    return is_made ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_fallback_count_codes(struct nd_fallback *f, size_t device, struct nd_error *err)
{
    for (size_t s = 0; s < f->plan->n_steps && !f->plan->sources[device].is_failed; s++)
        count_codes(f, device, s);
    lend_spread(f, device);
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        const struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, s)];
        struct nd_fallback_rates rates = nd_fallback_rates_of(f->plan->steps[s].op_types, counts);
        f->alone[nd_fallback_at(f, device, s)] = nd_fallback_weigh(counts, &rates);
    }
    return find_kin(f, device, err);
}
