#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "explain/explain_job.h"

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
static enum nd_status list_programs(const struct nd_explain_habit *habit, struct nd_explained_unit *unit,
                                    struct nd_error *err)
{
    size_t n;
    nd_programs(&n);
    unit->programs = nd_calloc(n + ND_EXPLAIN_MAX_UNIT_PROGRAMS, sizeof *unit->programs);
    if (unit->programs == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < ND_EXPLAIN_MAX_UNIT_PROGRAMS && status == ND_OK; p++) {
        if (habit->standing == ND_STANDING_NONE || !nd_explain_follows(habit, p))
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

static uint64_t fewest_wrong(const struct nd_explain_tally *tally)
{
    size_t n;
    nd_programs(&n);
    uint64_t fewest = tally->wrong[0];
    for (size_t p = 1; p < n; p++)
        fewest = tally->wrong[p] < fewest ? tally->wrong[p] : fewest;
    return fewest;
}

bool nd_explain_differs_by_run(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_explain_source *source = &job->sources[device];
    size_t edge = source->edges[step], n_repeats = nd_capture_probe(source->capture, source->probe)->n_repeats;
    for (size_t i = 0; i < job->n_samples && edge != SIZE_MAX; i++)
        for (size_t r = 1; r < n_repeats; r++)
            if (!nd_digest_equal(nd_capture_digest(source->capture, source->probe, edge, i, 0),
                                 nd_capture_digest(source->capture, source->probe, edge, i, r)))
                return true;
    return false;
}

bool nd_explain_inputs_repeat(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, job->out->steps[step].edge);
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        size_t input = job->step_of_edge[unit->inputs[i]];
        if (input != SIZE_MAX && nd_explain_differs_by_run(job, device, input))
            return false;
    }
    return true;
}

/* Of a device that has a program of units. */
static enum nd_status judge_by_unit_program(struct nd_explain_habit *habit, size_t program,
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

static enum nd_status judge_unit(struct nd_explain_habit *habit, struct nd_explained_unit *unit,
                                 struct nd_error *err)
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
    device->programs = nd_calloc(ND_EXPLAIN_MAX_UNIT_PROGRAMS, sizeof *device->programs);
    if (device->programs == NULL)
        return nd_fail_memory(err);
    if (unit_program == SIZE_MAX)
        return name_program(program, &device->program, err);
    enum nd_status status = name_unit_program(unit_program, &device->program, err);
    for (size_t p = 0; p < ND_EXPLAIN_MAX_UNIT_PROGRAMS && status == ND_OK; p++) {
        if (!is_possible[p])
            continue;
        status = name_unit_program(p, &device->programs[device->n_programs], err);
        device->n_programs += status == ND_OK;
    }
    return status;
}

/* What it does is what it does everywhere, and yet costs much. */
static bool is_lossy(const struct nd_explain_habit *habit, const struct nd_explained_unit *unit)
{
    static const double many_steps = 10;
    return habit->standing == ND_STANDING_FOLLOWS && !habit->is_of_values && unit->local.max >= many_steps;
}

static bool is_table(const struct nd_explain_job *job, size_t step)
{
    return nd_explain_is_table(job->model, nd_explain_unit_of(job->model, job->out->steps[step].edge));
}

enum nd_status nd_explain_judge(struct nd_explain_job *job, size_t d, struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[d];
    struct nd_explain_habit *habits = &job->habits[d * job->n_steps];
    size_t program;
    bool is_possible[ND_EXPLAIN_MAX_UNIT_PROGRAMS];
    enum nd_explain_expectation expectation = job->sources[d].expectation;
    bool is_emulated = nd_explain_is_emulated(job->sources[d].capture);
    device->losses = nd_calloc(job->n_steps, sizeof *device->losses);
    if (device->losses == NULL)
        return nd_fail_memory(err);
    for (size_t s = 0; s < job->n_steps; s++)
        habits[s] = (struct nd_explain_habit){.op_types = job->out->steps[s].op_types,
                                              .is_counted = job->out->steps[s].is_unit &&
                                                            device->units[s].is_examined &&
                                                            device->units[s].fault.kind == NULL,
                                              .tally = &job->tally[d * job->n_steps + s],
                                              .units = &job->unit_tally[d * job->n_steps + s],
                                              .n_codes = device->units[s].n_codes,
                                              .is_table = !is_emulated && is_table(job, s)};
    if (expectation == ND_EXPECT_FLOAT)
        nd_explain_hold_to_float(habits, job->n_steps, &program);
    else
        nd_explain_find_habits(habits, job->n_steps, &program);
    nd_explain_find_unit_habits(habits, job->n_steps, expectation, &job->unit_program[d], is_possible,
                                &device->is_refuted);
    enum nd_status status = name_device_programs(device, program, job->unit_program[d], is_possible, err);
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++) {
        if (!habits[s].is_counted)
            continue;
        status = job->unit_program[d] == SIZE_MAX
                     ? judge_unit(&habits[s], &device->units[s], err)
                     : judge_by_unit_program(&habits[s], job->unit_program[d], &device->units[s], err);
        if (is_lossy(&habits[s], &device->units[s]))
            device->losses[device->n_losses++] = s;
    }
    return status;
}
