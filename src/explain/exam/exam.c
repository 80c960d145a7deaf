#include "explain/exam/exam.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"

/* Chosen: so that a layer costs seconds. */
enum {
    MOST_SAMPLES = 64, /* of a unit */
    MOST_CODES = 1 << 20,
};

/* ---- what is asked of it ---- */

/* Where the program explains most of the codes in another way, what is left is held against that. */
static void choose_way(struct nd_exam *exam, const struct nd_habit *habit, size_t program)
{
    uint64_t fewest = program == SIZE_MAX                          ? 0
                      : habit->units->n[program] == habit->n_codes ? habit->units->wrong[program]
                                                                   : habit->n_codes;
    for (size_t k = 0; k < ND_N_ALTERNATIVES && program != SIZE_MAX; k++) {
        const struct nd_other_tally *other = &habit->units->others[k];
        if (other->n[program] != habit->n_codes || other->wrong[program] >= fewest)
            continue;
        fewest = other->wrong[program];
        exam->is_other = true;
        exam->alternative = (enum nd_alternative)k;
        exam->is_helped = k == ND_ALTERNATIVE_FUSED;
    }
}

/* Another program that gives every code; plain rounding comes first in the list. */
static void choose_programs(struct nd_exam *exam)
{
    const struct nd_explain_job *job = exam->job;
    const struct nd_habit *habit = nd_habit_of(job, exam->device, exam->step);
    size_t n;
    const struct nd_program *programs = nd_programs(&n);
    exam->usual = programs[habit->program != SIZE_MAX ? habit->program : 0];
    size_t unit_program = job->habits->unit_program[exam->device], n_unit_programs;
    if (unit_program != SIZE_MAX && !habit->is_of_values)
        exam->unit_program = &nd_unit_programs(&n_unit_programs)[unit_program];
    choose_way(exam, habit, unit_program);
    for (size_t p = 0; p < n && !exam->has_other; p++)
        if (habit->tally->n_open > 0 && habit->tally->wrong[p] == 0) {
            exam->has_other = true;
            exam->other = programs[p];
        }
}

static void choose_fusions(struct nd_exam *exam)
{
    const struct nd_explain_job *job = exam->job;
    const struct nd_model_unit *unit = nd_plan_unit(job->plan, exam->step);
    for (size_t i = 0; i < unit->n_inputs && exam->n_fusions < ND_EXAM_FUSIONS; i++) {
        size_t input = job->plan->step_of_edge[unit->inputs[i]];
        bool is_known = input != SIZE_MAX && job->out->steps[input].is_unit &&
                        job->out->devices[exam->device].units[input].is_examined;
        for (size_t k = 0; k < exam->n_fusions; k++)
            is_known = is_known && exam->fused[k] != unit->inputs[i];
        if (is_known)
            exam->fused[exam->n_fusions++] = unit->inputs[i];
    }
}

static void choose_operands(struct nd_exam *exam)
{
    const struct nd_explain_job *job = exam->job;
    const struct nd_model_unit *unit = nd_plan_unit(job->plan, exam->step);
    for (size_t i = 0; i < unit->n_inputs && exam->n_operands < ND_EXAM_OPERANDS && exam->n_samples > 1; i++) {
        size_t input = job->plan->step_of_edge[unit->inputs[i]];
        bool is_known = input != SIZE_MAX && job->plan->sources[exam->device].edges[input] != SIZE_MAX;
        for (size_t k = 0; k < exam->n_operands; k++)
            is_known = is_known && exam->operands[k] != unit->inputs[i];
        if (is_known)
            exam->operands[exam->n_operands++] = unit->inputs[i];
    }
    if (exam->n_operands == 1)
        exam->n_operands = 0;
}

/* In steps of the output. */
static enum nd_status find_accumulator(struct nd_exam *exam, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->job;
    const struct nd_quant *quant = &nd_plan_edge(job->plan, exam->step)->quant;
    struct nd_wide *steps = NULL;
    struct nd_error ignored = {0};
    if (nd_exact_accumulator_steps(job->plan->graph, exam->edge, &steps, &exam->n_steps, &ignored) != ND_OK)
        return ND_OK; /* no accumulator of integers */
    exam->steps = nd_calloc(exam->n_steps, sizeof *exam->steps);
    for (size_t c = 0; c < exam->n_steps && exam->steps != NULL; c++)
        exam->steps[c] = steps[c].parts[0] / (double)quant->scale[quant->n > 1 ? c % quant->n : 0];
    free(steps);
    return exam->steps != NULL ? ND_OK : nd_fail_memory(err);
}

bool nd_exam_is_helper(const struct nd_exam *exam, size_t edge)
{
    return exam->is_helped && nd_fused_part_of(&exam->job->plan->alternatives, edge, exam->edge) != SIZE_MAX;
}

static void want(struct nd_exam *exam, size_t edge)
{
    const struct nd_plan *plan = exam->job->plan;
    const struct nd_model_unit *unit = nd_model_unit_of_edge(plan->model, edge);
    if (edge != SIZE_MAX && plan->step_of_edge[edge] != SIZE_MAX)
        exam->is_wanted[plan->step_of_edge[edge]] = true;
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++)
        if (plan->step_of_edge[unit->inputs[i]] != SIZE_MAX)
            exam->is_wanted[plan->step_of_edge[unit->inputs[i]]] = true;
}

/* Only what is worked out, and what that reads, is read from the capture. */
static enum nd_status choose_steps(struct nd_exam *exam, struct nd_error *err)
{
    const struct nd_plan *plan = exam->job->plan;
    if (!nd_exact_graph_is_pure(plan->graph))
        return ND_OK;
    exam->is_wanted = nd_calloc(plan->n_steps, sizeof *exam->is_wanted);
    if (exam->is_wanted == NULL)
        return nd_fail_memory(err);
    want(exam, exam->edge);
    for (size_t e = 0; e < nd_model_n_edges(plan->model); e++)
        if (nd_exam_is_helper(exam, e))
            want(exam, e);
    for (size_t k = 0; k < exam->n_fusions; k++)
        want(exam, exam->fused[k]);
    for (size_t k = 0; k < exam->n_remade; k++)
        want(exam, exam->remade[k].edge);
    for (size_t e = 0; e < nd_model_n_edges(plan->model); e++)
        exam->reader->is_ignored[e] =
            plan->step_of_edge[e] == SIZE_MAX || !exam->is_wanted[plan->step_of_edge[e]];
    exam->reader->is_wanted = exam->is_wanted;
    return ND_OK;
}

enum nd_status nd_exam_size(struct nd_exam *exam, struct nd_error *err)
{
    const struct nd_plan *plan = exam->job->plan;
    exam->edge = plan->steps[exam->step].edge;
    enum nd_status status = nd_shape_n_elems(&plan->shapes[exam->step], &exam->n, err);
    size_t most = exam->n > 0 ? MOST_CODES / exam->n : 0;
    most = most < 1 ? 1 : most > MOST_SAMPLES ? MOST_SAMPLES : most;
    exam->n_samples = plan->n_samples < most ? plan->n_samples : most;
    return status;
}

enum nd_status nd_exam_make(struct nd_exam *exam, struct nd_error *err)
{
    enum nd_status status = nd_exam_size(exam, err);
    if (status != ND_OK)
        return status;
    nd_explain_pairs_init(&exam->pairs);
    exam->constants.chosen = SIZE_MAX;
    choose_programs(exam);
    choose_fusions(exam);
    choose_operands(exam);
    nd_exam_choose_remade(exam);
    status = choose_steps(exam, err);
    if (status != ND_OK)
        return status;
    double **const arrays[] = {&exam->codes, &exam->values, &exam->expected, &exam->others};
    bool is_made = true;
    for (size_t k = 0; k < sizeof arrays / sizeof arrays[0]; k++) {
        *arrays[k] = nd_calloc(exam->n_samples * exam->n, sizeof **arrays[k]);
        is_made = is_made && *arrays[k] != NULL;
    }
    for (size_t k = 0; k < exam->n_fusions; k++) {
        exam->fusions[k] = nd_calloc(exam->n_samples * exam->n, sizeof *exam->fusions[k]);
        is_made = is_made && exam->fusions[k] != NULL;
    }
    for (size_t k = 0; k < exam->n_operands; k++) {
        exam->stale[k] = nd_calloc(exam->n_samples * exam->n, sizeof *exam->stale[k]);
        is_made = is_made && exam->stale[k] != NULL;
    }
    return is_made ? find_accumulator(exam, err) : nd_fail_memory(err);
}

void nd_exam_deinit(struct nd_exam *exam)
{
    free(exam->codes);
    free(exam->values);
    free(exam->expected);
    free(exam->others);
    free(exam->transposed);
    free(exam->other_scales);
    nd_explain_pairs_deinit(&exam->pairs);
    nd_explain_constants_deinit(&exam->constants);
    for (size_t k = 0; k < ND_EXAM_FUSIONS; k++)
        free(exam->fusions[k]);
    for (size_t k = 0; k < ND_EXAM_OPERANDS; k++) {
        free(exam->stale[k]);
        nd_array_deinit(&exam->before[k]);
    }
    free(exam->steps);
    if (exam->is_wanted != NULL)
        exam->reader->is_wanted = NULL;
    free(exam->is_wanted);
    nd_array_deinit(&exam->made);
}

/* ---- all samples of it ---- */

enum nd_status nd_exam_load_sample(struct nd_exam *exam, size_t i, struct nd_error *err)
{
    exam->slot = i;
    return nd_reader_sample(exam->reader, exam->device, i, exam->n_samples, err);
}

/* What the unit gives when one operand is late; then the operand is kept for the next sample. */
static enum nd_status run_late(struct nd_exam *exam, size_t k, struct nd_error *err)
{
    const struct nd_array *given = &exam->reader->given[exam->operands[k]];
    struct nd_array *before = &exam->before[k];
    bool is_known = exam->slot > 0 && before->x != NULL && before->n == given->n;
    enum nd_status status = ND_OK;
    exam->late = k + 1;
    if (is_known)
        status = nd_exam_run(exam, SIZE_MAX, exam->stale[k], err);
    exam->late = 0;
    for (size_t i = 0; i < exam->n && !is_known; i++)
        exam->stale[k][exam->slot * exam->n + i] = NAN;
    if (status == ND_OK && !is_known && given->shape.rank >= 0)
        status = nd_array_make(before, given->dtype, &given->shape, err);
    for (size_t i = 0; status == ND_OK && i < given->n && i < before->n; i++)
        before->x[i] = given->x[i];
    return status;
}

/* Once more, for the codes of the sum of pairs that fits best, if there is one. */
static enum nd_status collect_pairs(struct nd_exam *exam, struct nd_error *err)
{
    bool is_worth = false;
    size_t n_wrong = 0, n = exam->n_samples * exam->n;
    for (size_t i = 0; i < n; i++)
        n_wrong += exam->codes[i] != exam->expected[i];
    enum nd_status status = nd_explain_pairs_choose(&exam->pairs, n_wrong, n, &is_worth, err);
    for (size_t i = 0; i < exam->n_samples && is_worth && status == ND_OK; i++) {
        status = nd_exam_load_sample(exam, i, err);
        if (status == ND_OK)
            status = nd_exam_run(exam, SIZE_MAX, NULL, err);
    }
    return status;
}

enum nd_status nd_exam_collect(struct nd_exam *exam, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < exam->n_samples && status == ND_OK; i++) {
        status = nd_exam_load_sample(exam, i, err);
        if (status == ND_OK)
            status = nd_exam_run(exam, SIZE_MAX, NULL, err);
        for (size_t k = 0; k < exam->n_fusions && status == ND_OK; k++)
            status = nd_exam_run(exam, exam->fused[k], exam->fusions[k], err);
        for (size_t k = 0; k < exam->n_operands && exam->forced == 0 && status == ND_OK; k++)
            status = run_late(exam, k, err);
    }
    return status == ND_OK && exam->forced == 0 ? collect_pairs(exam, err) : status;
}
