/* What the tallies of a device leave possible: of each unit, of each operator type, and of the device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/identify/identification.h"

/* Of the codes that half-even does not give: what one class that is left must explain, or it is no claim.
 * Chosen: one code in a thousand may be contamination. */
static const double least_explained = 0.999;

/* Where none is left, a program of chance is no answer: it gives any code that is beside the value. */
static void choose_nearest(struct nd_identify_result *r)
{
    const struct nd_arithmetic *programs = nd_arithmetics(&(size_t){0});
    size_t best = SIZE_MAX;
    if (r->verdict != ND_IDENTIFY_NONE || r->best == SIZE_MAX ||
        !nd_arithmetic_is_stochastic(&programs[r->best]))
        return;
    for (size_t p = 0; p < r->n_programs; p++) {
        if (!r->is_applicable[p] || r->n_seen[p] == 0 || nd_arithmetic_is_stochastic(&programs[p]))
            continue;
        if (best == SIZE_MAX ||
            (double)r->n_wrong[p] * (double)r->n_seen[best] < (double)r->n_wrong[best] * (double)r->n_seen[p])
            best = p;
    }
    r->best = best != SIZE_MAX ? best : r->best;
}

static bool is_seen(const struct nd_identified_unit *unit)
{
    return unit->is_unit && unit->tally.n > 0;
}

/* NULL: all of them. */
static bool is_of(const struct nd_identified_unit *unit, const char *op_types)
{
    return is_seen(unit) && (op_types == NULL || strcmp(unit->op_types, op_types) == 0);
}

static void add_whole(const struct nd_identified_unit *unit, struct nd_answer *a)
{
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
        a->whole.n[p] += unit->as_whole.n[p];
        a->whole.wrong[p] += unit->as_whole.wrong[p];
    }
}

/* exceptions and reference are counted. */
static void say(struct nd_answer *a)
{
    static const char *const names[] = {"too-few", "none", "several", "single"};
    a->explained = a->reference > 0 ? 1 - (double)a->exceptions / (double)a->reference : NAN;
    bool is_claim = a->exceptions == 0 || a->explained >= least_explained;
    a->verdict =
        names[a->result.verdict == ND_IDENTIFY_SINGLE && !is_claim ? ND_IDENTIFY_NONE : a->result.verdict];
}

/* What the best program leaves in the units. Where it is not applicable it explains nothing. */
static void answer_units(const struct nd_identified_device *device, const char *op_types, struct nd_answer *a)
{
    choose_nearest(&a->result);
    for (size_t s = 0; s < device->n_units; s++) {
        const struct nd_identify_tally *tally = &device->units[s].tally;
        if (!is_of(&device->units[s], op_types))
            continue;
        size_t best = a->result.best != SIZE_MAX && tally->n_seen[a->result.best] > 0 ? a->result.best : 0;
        a->exceptions += tally->n_wrong[best];
        a->reference += tally->n_wrong[0];
        add_whole(&device->units[s], a);
    }
    say(a);
}

static enum nd_status answer_unit(struct nd_identified_unit *unit, struct nd_error *err)
{
    struct nd_answer *a = unit->answer = nd_calloc(1, sizeof *a);
    if (a == NULL)
        return nd_fail_memory(err);
    nd_identify_decide(&unit->tally, &a->result);
    choose_nearest(&a->result);
    a->exceptions = a->result.best != SIZE_MAX ? a->result.n_wrong[a->result.best] : 0;
    a->reference = a->result.n_wrong[0];
    add_whole(unit, a);
    say(a);
    return ND_OK;
}

static enum nd_status answer_type(const struct nd_identified_device *device, struct nd_identified_type *type,
                                  struct nd_error *err)
{
    const struct nd_identify_tally **tallies = nd_calloc(device->n_units, sizeof *tallies);
    if (tallies == NULL)
        return nd_fail_memory(err);
    for (size_t s = 0; s < device->n_units; s++)
        if (is_of(&device->units[s], type->op_types))
            tallies[type->n_units++] = &device->units[s].tally;
    enum nd_status status = nd_identify_group(tallies, type->n_units, &type->answer.result, err);
    free(tallies);
    if (status == ND_OK)
        answer_units(device, type->op_types, &type->answer);
    return status;
}

static bool is_first(const struct nd_identified_device *device, size_t s)
{
    for (size_t before = 0; before < s; before++)
        if (is_of(&device->units[before], device->units[s].op_types))
            return false;
    return true;
}

/* What is left in all types. A type that is not explained is none of the device's program. */
static enum nd_status answer_device(struct nd_identified_device *device, struct nd_error *err)
{
    struct nd_identify_result *results = nd_calloc(device->n_types + 1, sizeof *results);
    struct nd_answer *a = device->answer = nd_calloc(1, sizeof *a);
    bool has_none = false, has_split = false;
    if (results == NULL || a == NULL) {
        free(results);
        return nd_fail_memory(err);
    }
    for (size_t t = 0; t < device->n_types; t++) {
        const struct nd_answer *of_type = &device->types[t].answer;
        results[t] = of_type->result;
        has_none = has_none || strcmp(of_type->verdict, "none") == 0;
        has_split = has_split || of_type->result.is_split;
    }
    nd_identify_combine(results, device->n_types, &a->result);
    free(results);
    a->result.is_split = a->result.is_split || has_split;
    answer_units(device, NULL, a);
    a->verdict = has_none ? "none" : a->verdict;
    return ND_OK;
}

enum nd_status nd_identify_answer(struct nd_identified_device *device, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    device->types = nd_calloc(device->n_units, sizeof *device->types);
    if (device->types == NULL)
        return nd_fail_memory(err);
    for (size_t s = 0; s < device->n_units && status == ND_OK; s++) {
        if (!is_seen(&device->units[s]))
            continue;
        status = answer_unit(&device->units[s], err);
        if (status != ND_OK || !is_first(device, s))
            continue;
        struct nd_identified_type *type = &device->types[device->n_types++];
        type->op_types = device->units[s].op_types;
        status = answer_type(device, type, err);
    }
    return status == ND_OK ? answer_device(device, err) : status;
}

/* ---- what is asked of an answer ---- */

bool nd_identified_is_left(const struct nd_identify_result *r, size_t program)
{
    return r->is_applicable[program] && r->is_possible[program];
}

size_t nd_identified_next_class(const struct nd_identify_result *r, size_t after)
{
    for (size_t p = after == SIZE_MAX ? 0 : after + 1; p < r->n_programs && r->verdict != ND_IDENTIFY_TOO_FEW;
         p++) {
        size_t before = 0;
        while (before < p && (!nd_identified_is_left(r, before) || r->class_of[before] != r->class_of[p]))
            before++;
        if (nd_identified_is_left(r, p) && before == p)
            return p;
    }
    return SIZE_MAX;
}

bool nd_identified_is_crossed(const struct nd_identify_bracket *b)
{
    return b->n_down > 0 && b->n_up > 0 && b->max_down >= b->min_up;
}

const char *nd_identified_why_not(const struct nd_identified_unit *unit)
{
    if (unit->is_changing)
        return unit->has_fed ? "changes from run to run, as its inputs do" : "changes from run to run";
    return unit->why_not != NULL ? unit->why_not : "it has no exact values on what the device had";
}
