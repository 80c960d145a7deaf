/* Inputs of a unit as they should be. What was recorded of a tensor need not be what its readers read: where
 * its maker does not follow known arithmetic, the unit is worked out once more from what the maker should have
 * made of its own recorded inputs. */
#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/exam/exam.h"
#include "explain/verdict/health.h"

static bool is_open(const struct nd_exam *exam, size_t edge)
{
    size_t step = exam->job->plan->step_of_edge[edge];
    return step != SIZE_MAX && exam->job->out->steps[step].is_unit && exam->is_open[step];
}

void nd_exam_choose_remade(struct nd_exam *exam)
{
    const struct nd_model_unit *unit = nd_plan_unit(exam->job->plan, exam->step);
    for (size_t i = 0; exam->is_open != NULL && i < unit->n_inputs && exam->n_remade < ND_EXAM_REMADE; i++) {
        bool is_new = is_open(exam, unit->inputs[i]);
        for (size_t k = 0; k < exam->n_remade; k++)
            is_new = is_new && exam->remade[k].edge != unit->inputs[i];
        if (is_new)
            exam->remade[exam->n_remade++] = (struct nd_exam_remade){.edge = unit->inputs[i]};
    }
}

struct nd_exam_remade *nd_exam_remade_of(struct nd_exam *exam, size_t edge)
{
    for (size_t k = 0; k < exam->n_remade; k++)
        if (exam->remade[k].edge == edge && exam->remade[k].is_made)
            return &exam->remade[k];
    return NULL;
}

const struct nd_program *nd_exam_program_of(const struct nd_exam *exam, size_t edge)
{
    size_t n, step = exam->job->plan->step_of_edge[edge];
    const struct nd_program *programs = nd_programs(&n);
    size_t program = nd_habit_of(exam->job, exam->device, step)->program;
    return &programs[program != SIZE_MAX ? program : 0];
}

enum nd_status nd_exam_make_input(struct nd_exam *exam, const struct nd_exact_unit *unit,
                                  struct nd_array *codes, bool *is_made, struct nd_error *err)
{
    size_t program = exam->job->habits->unit_program[exam->device], n;
    size_t step = exam->job->plan->step_of_edge[unit->edge];
    *is_made = false;
    if (program == SIZE_MAX || nd_habit_of(exam->job, exam->device, step)->is_of_values)
        return ND_OK;
    return nd_unit_program_run(&nd_unit_programs(&n)[program], unit, NULL, codes, is_made, err);
}

static enum nd_status run(struct nd_exam *exam, struct nd_exam_remade *input, double *to, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    input->is_made = true;
    input->n = input->n_wrong = 0;
    for (size_t i = 0; i < exam->n_samples && status == ND_OK; i++) {
        status = nd_exam_load_sample(exam, i, err);
        if (status == ND_OK)
            status = nd_exam_run(exam, SIZE_MAX, to, err);
    }
    input->is_made = false;
    return status;
}

static bool is_any_beyond(const struct nd_exam *exam, double allowance)
{
    for (size_t i = 0; i < exam->n_samples * exam->n; i++)
        if (isfinite(exam->expected[i]) && isfinite(exam->values[i]) &&
            fabs(exam->codes[i] - exam->expected[i]) > allowance)
            return true;
    return false;
}

/* Whether the values are those of `made`, and how many of them the record does not give. */
static bool fits(const struct nd_exam *exam, const double *made, double allowance,
                 struct nd_exam_innocence *out)
{
    *out = (struct nd_exam_innocence){.is_exact = true};
    for (size_t i = 0; i < exam->n_samples * exam->n; i++) {
        double off = fabs(exam->codes[i] - made[i]);
        if (!isfinite(exam->expected[i]) || !isfinite(exam->values[i]))
            continue;
        if (!(off <= allowance))
            return false;
        out->is_exact = out->is_exact && off == 0;
        out->n_mended += fabs(exam->codes[i] - exam->expected[i]) > allowance;
    }
    return out->n_mended > 0;
}

enum nd_status nd_exam_try_remade(struct nd_exam *exam, double allowance, struct nd_exam_innocence *out,
                                  struct nd_error *err)
{
    *out = (struct nd_exam_innocence){0};
    if (exam->n_remade == 0 || !is_any_beyond(exam, allowance)) /* nothing to mend */
        return ND_OK;
    double *made = nd_calloc(exam->n_samples * exam->n, sizeof *made);
    enum nd_status status = made != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t k = 0; k < exam->n_remade && status == ND_OK && out->input == NULL; k++) {
        struct nd_exam_remade *input = &exam->remade[k];
        status = run(exam, input, made, err);
        if (status == ND_OK && input->n_wrong > 0 && fits(exam, made, allowance, out))
            out->input = input;
    }
    free(made);
    return status;
}

size_t nd_exam_find_doubtful(const struct nd_exam *exam, double *max)
{
    const struct nd_explain_job *job = exam->job;
    size_t program = job->habits->unit_program[exam->device];
    for (size_t k = 0; k < exam->n_remade; k++) {
        size_t step = job->plan->step_of_edge[exam->remade[k].edge];
        const struct nd_habit *habit = nd_habit_of(job, exam->device, step);
        const struct nd_explained_unit *maker = &job->out->devices[exam->device].units[step];
        bool is_known = nd_explain_is_known(job, exam->device, step) || habit->tally->n_open == 0;
        *max = program != SIZE_MAX && maker->is_covered ? habit->units->max[program] : maker->local.max;
        if (!is_known && *max > nd_explain_allowance(job, exam->device, step))
            return exam->remade[k].edge;
    }
    return SIZE_MAX;
}
