#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/stages.h"
#include "explain/layers/unit_programs.h"

static enum nd_status name_program(size_t program, char **out, struct nd_error *err)
{
    size_t n;
    char buf[ND_PROGRAM_NAME_BYTES];
    const struct nd_program *programs = nd_programs(&n);
    *out = program < n ? nd_strdup(nd_program_name(&programs[program], buf)) : NULL;
    return *out != NULL || program >= n ? ND_OK : nd_fail_memory(err);
}

static enum nd_status name_unit_program(size_t program, char **out, struct nd_error *err)
{
    size_t n;
    *out = nd_strdup(nd_unit_programs(&n)[program].name);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

/* Those that give every code; of units first, where the device has one. */
static enum nd_status list_programs(const struct nd_habit *habit, struct nd_explained_unit *unit,
                                    struct nd_error *err)
{
    size_t n;
    nd_programs(&n);
    unit->programs = nd_calloc(n + ND_MAX_UNIT_PROGRAMS, sizeof *unit->programs);
    if (unit->programs == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS && status == ND_OK; p++) {
        if (habit->standing == ND_STANDING_NONE || !nd_follows(habit, p))
            continue;
        status = name_unit_program(p, &unit->programs[unit->n_programs], err);
        unit->n_programs += status == ND_OK;
    }
    for (size_t p = 0; p < n && status == ND_OK; p++) {
        if (habit->tally->wrong[p] > 0)
            continue;
        status = name_program(p, &unit->programs[unit->n_programs], err);
        unit->n_programs += status == ND_OK;
    }
    return status;
}

static uint64_t fewest_wrong(const struct nd_code_tally *tally)
{
    size_t n;
    nd_programs(&n);
    uint64_t fewest = tally->wrong[0];
    for (size_t p = 1; p < n; p++)
        fewest = tally->wrong[p] < fewest ? tally->wrong[p] : fewest;
    return fewest;
}

/* Of a device that has a program of units. */
static enum nd_status judge_by_unit_program(struct nd_habit *habit, size_t program,
                                            struct nd_explained_unit *unit, struct nd_error *err)
{
    uint64_t fewest = fewest_wrong(habit->tally), n_local = unit->local.n_differing;
    unit->is_covered = habit->units->n[program] == unit->n_codes;
    habit->is_suspect = habit->standing == ND_STANDING_FAULTY;
    bool is_of_units = unit->is_covered && habit->standing != ND_STANDING_UNKNOWN && !habit->is_of_values;
    unit->n_unexplained = is_of_units           ? habit->units->wrong[program]
                          : habit->is_of_values ? habit->tally->wrong[habit->program]
                                                : fewest;
    if (habit->standing == ND_STANDING_FOLLOWS)
        fewest = unit->n_unexplained;
    unit->explained_fraction = n_local > 0 ? 1 - fmin((double)fewest / (double)n_local, 1) : 1;
    enum nd_status status = ND_OK;
    if (is_of_units)
        status = name_unit_program(program, &unit->program, err);
    else
        status = name_program(habit->program, &unit->program, err);
    return status == ND_OK ? list_programs(habit, unit, err) : status;
}

static enum nd_status judge_unit(struct nd_habit *habit, struct nd_explained_unit *unit, struct nd_error *err)
{
    uint64_t fewest = fewest_wrong(habit->tally), n_local = unit->local.n_differing;
    bool is_known = habit->program != SIZE_MAX;
    habit->is_suspect = is_known && !habit->follows;
    unit->n_unexplained = fewest;
    if (is_known)
        unit->n_unexplained = (habit->is_exact ? habit->tally->wrong : habit->tally->far)[habit->program];
    unit->explained_fraction = n_local > 0 ? 1 - (double)fewest / (double)n_local : 1;
    enum nd_status status = name_program(habit->program, &unit->program, err);
    return status == ND_OK ? list_programs(habit, unit, err) : status;
}

/* The program, and all that what follows it leaves possible. */
static enum nd_status name_device_programs(struct nd_explained_device *device, size_t program,
                                           size_t unit_program, const bool *is_possible, struct nd_error *err)
{
    device->programs = nd_calloc(ND_MAX_UNIT_PROGRAMS, sizeof *device->programs);
    if (device->programs == NULL)
        return nd_fail_memory(err);
    if (unit_program == SIZE_MAX)
        return name_program(program, &device->program, err);
    enum nd_status status = name_unit_program(unit_program, &device->program, err);
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS && status == ND_OK; p++) {
        if (!is_possible[p])
            continue;
        status = name_unit_program(p, &device->programs[device->n_programs], err);
        device->n_programs += status == ND_OK;
    }
    return status;
}

/* What it does is what it does everywhere, and yet costs much. */
static bool is_lossy(const struct nd_habit *habit, const struct nd_explained_unit *unit)
{
    static const double many_steps = 10; /* LSB; chosen: it only selects what is listed as a loss, no verdict */
    return habit->standing == ND_STANDING_FOLLOWS && !habit->is_of_values && unit->local.max >= many_steps;
}

/* Share of the values of a unit that double precision may bring to the other side of a tie; chosen. */
static const double most_beside_ties = 0.01;

/* One rounding of a value in double precision next to a tie may fall either way; and a device in float32 that
 * does what it does everywhere is as good as it can be. */
static bool is_within_step(const struct nd_explained_step *step, const struct nd_explained_unit *unit,
                           const struct nd_habit *habit)
{
    if (unit->local.n_differing > 0 && habit->program != SIZE_MAX && nd_is_plain(habit->program))
        return habit->follows && unit->local.max <= 1;
    return step->is_double && unit->local.n_differing > 0 && unit->local.max <= 1 &&
           (double)unit->local.n_differing < most_beside_ties * (double)unit->n_codes;
}

/* Says of a step that some of its exact values are no numbers. */
static enum nd_status tell_of_nan(size_t s, const struct nd_explained_unit *unit,
                                  struct nd_explained_device *device, struct nd_error *err)
{
    double share = (double)unit->n_nan / (double)unit->n_codes;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text,
                     "%.3g %% of its exact values are not numbers (0 / 0, or the root, logarithm or power of a "
                     "negative number). ONNX does not say which code they have, so npudiff does not judge them",
                     100 * share);
    return nd_explain_add_finding(device, s, "not-a-number", share, nd_strbuf_take(&text), err);
}

/* nd_habit.places of a unit: one number for all its channels. */
static size_t places_of(const struct nd_plan *plan, size_t s)
{
    struct nd_wide *steps = NULL;
    struct nd_error ignored = {0};
    size_t n_steps = 0, n, found = SIZE_MAX;
    const struct nd_quant *quant = &nd_plan_edge(plan, s)->quant;
    const struct nd_program *programs = nd_programs(&n);
    if (quant->n != 1 ||
        nd_exact_accumulator_steps(plan->graph, plan->steps[s].edge, &steps, &n_steps, &ignored) != ND_OK)
        return SIZE_MAX;
    for (size_t i = 0; i < n_steps; i++) {
        int exponent;
        size_t p = 0;
        frexp(steps[i].parts[0] / (double)quant->scale[0], &exponent);
        while (p < n && !(programs[p].kind == ND_PROGRAM_DOUBLE && programs[p].n_bits == -exponent))
            p++;
        found = p == n || (i > 0 && p != found) ? SIZE_MAX : p;
        if (found == SIZE_MAX)
            break;
    }
    free(steps);
    return found;
}

/* What is asked of each step of the device. */
static void begin_habits(const struct nd_evaluation *evaluation, size_t d,
                         const struct nd_explained_device *device, struct nd_habit *units)
{
    const struct nd_plan *plan = evaluation->plan;
    bool is_emulated = nd_is_emulated(plan->sources[d].capture);
    bool is_runner = nd_is_runner(plan->sources[d].capture);
    for (size_t s = 0; s < plan->n_steps; s++)
        units[s] =
            (struct nd_habit){.op_types = plan->steps[s].op_types,
                              .is_counted = plan->steps[s].is_unit && device->units[s].is_examined &&
                                            device->units[s].fault.kind == NULL,
                              .tally = nd_tally_of(evaluation, d, s),
                              .units = nd_unit_tally_of(evaluation, d, s),
                              .n_codes = device->units[s].n_codes,
                              .places = is_runner && plan->steps[s].is_unit ? places_of(plan, s) : SIZE_MAX,
                              .is_table = !is_emulated && nd_unit_is_table(plan->model, nd_plan_unit(plan, s))};
}

static enum nd_status identify_device(const struct nd_evaluation *evaluation, size_t d,
                                      struct nd_habits *habits, struct nd_explanation *out,
                                      struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_device *device = &out->devices[d];
    struct nd_habit *units = &habits->units[d * plan->n_steps];
    size_t program, *unit_program = &habits->unit_program[d];
    bool is_possible[ND_MAX_UNIT_PROGRAMS];
    enum nd_expectation expectation = plan->sources[d].expectation;
    device->losses = nd_calloc(plan->n_steps, sizeof *device->losses);
    if (device->losses == NULL)
        return nd_fail_memory(err);
    begin_habits(evaluation, d, device, units);
    if (expectation == ND_EXPECT_FLOAT)
        nd_hold_to_float(units, plan->n_steps, &program);
    else
        nd_find_habits(units, plan->n_steps, &program);
    nd_settle_places(units, plan->n_steps);
    nd_find_unit_habits(units, plan->n_steps, expectation, unit_program, is_possible, &device->is_refuted);
    enum nd_status status = name_device_programs(device, program, *unit_program, is_possible, err);
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
        struct nd_explained_unit *unit = &device->units[s];
        if (units[s].is_counted)
            status = *unit_program == SIZE_MAX ? judge_unit(&units[s], unit, err)
                                               : judge_by_unit_program(&units[s], *unit_program, unit, err);
        if (units[s].is_counted && is_lossy(&units[s], unit))
            device->losses[device->n_losses++] = s;
        unit->n_nan = unit->is_examined && units[s].tally != NULL ? units[s].tally->n_nan : 0;
        if (status == ND_OK && unit->n_nan > 0)
            status = tell_of_nan(s, unit, device, err);
        unit->is_within_step = unit->is_examined && is_within_step(&out->steps[s], unit, &units[s]);
    }
    return status;
}

enum nd_status nd_explain_identify(const struct nd_evaluation *evaluation, struct nd_habits *habits,
                                   struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    *habits = (struct nd_habits){.units = nd_calloc(plan->n_devices * plan->n_steps, sizeof *habits->units),
                                 .unit_program = nd_calloc(plan->n_devices, sizeof *habits->unit_program)};
    enum nd_status status = habits->units != NULL && habits->unit_program != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        if (!plan->sources[d].is_failed)
            status = identify_device(evaluation, d, habits, out, err);
    return status;
}

void nd_habits_deinit(struct nd_habits *habits)
{
    free(habits->units);
    free(habits->unit_program);
}
