/* Inputs of a unit as they should be. What was recorded of a tensor need not be what its readers read: where
 * its maker does not follow known arithmetic, the unit is worked out once more from what the maker should have
 * made of its own recorded inputs. */
#include "explain/exam/exam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/variants/other_axis.h"
#include "arithmetic/variants/transposed.h"
#include "core/error.h"
#include "core/memory.h"
#include "explain/verdict/health.h"

static void nd_exam_choose_remade(struct nd_exam *exam);

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

/* Whether the maker of the edge makes a part of the unit, too, and is worked out for that. */
static bool nd_exam_is_helper(const struct nd_exam *exam, size_t edge)
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

static bool is_open(const struct nd_exam *exam, size_t edge)
{
    size_t step = exam->job->plan->step_of_edge[edge];
    return step != SIZE_MAX && exam->job->out->steps[step].is_unit && exam->is_open[step];
}

/* exam.c: fills remade from is_open. */
static void nd_exam_choose_remade(struct nd_exam *exam)
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

/* The input with that edge which the run at hand makes anew, or NULL. */
static struct nd_exam_remade *nd_exam_remade_of(struct nd_exam *exam, size_t edge)
{
    for (size_t k = 0; k < exam->n_remade; k++)
        if (exam->remade[k].edge == edge && exam->remade[k].is_made)
            return &exam->remade[k];
    return NULL;
}

/* The program of values that rounds what the maker of the edge makes. */
static const struct nd_program *nd_exam_program_of(const struct nd_exam *exam, size_t edge)
{
    size_t n, step = exam->job->plan->step_of_edge[edge];
    const struct nd_program *programs = nd_programs(&n);
    size_t program = nd_habit_of(exam->job, exam->device, step)->program;
    return &programs[program != SIZE_MAX ? program : 0];
}

/* What the maker of such an input should have made: *is_made false where no program of units says it. */
static enum nd_status nd_exam_make_input(struct nd_exam *exam, const struct nd_exact_unit *unit,
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

/* One sample of an examination: the unit is worked out from the device's codes, by each arithmetic that it is
 * held against. */

/* ---- what the unit would give ---- */

static double code_by(const struct nd_program *program, const struct nd_exact_values *values, size_t i)
{
    double zero = (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
    return nd_program_code(program, &values->v[i], zero, values->dtype);
}

static double unrounded(const struct nd_exact_values *values, size_t i)
{
    double zero = (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
    return nd_ratio_value(&values->v[i]) + zero;
}

static bool forces_output(const struct nd_exam *exam)
{
    return (exam->forced & ND_EXAM_FORCED_OUTPUT) != 0 &&
           exam->job->plan->alternatives.is_forced_here[exam->edge];
}

const struct nd_quant *nd_exam_quant(const struct nd_exam *exam)
{
    const struct nd_alternatives *a = &exam->job->plan->alternatives;
    return forces_output(exam) ? &a->forced[exam->edge]->quant
                               : &nd_plan_edge(exam->job->plan, exam->step)->quant;
}

/* From codes of one encoding to those of another, unrounded. */
static double recode(double code, const struct nd_quant *from, const struct nd_quant *to)
{
    return (code - (double)from->zero_point[0]) * (double)from->scale[0] / (double)to->scale[0] +
           (double)to->zero_point[0];
}

/* What the unit should give in the encoding that is forced on it. */
static void force_values(struct nd_exam *exam, enum nd_dtype dtype)
{
    const struct nd_quant *own = &nd_plan_edge(exam->job->plan, exam->step)->quant,
                          *quant = nd_exam_quant(exam);
    size_t at = exam->slot * exam->n;
    double low, high;
    nd_code_range(dtype, &low, &high);
    for (size_t i = at; i < at + exam->n && quant != own && own->n == 1; i++) {
        exam->values[i] = recode(exam->values[i], own, quant);
        exam->expected[i] = fmin(fmax(rint(exam->values[i]), low), high);
    }
}

/* A program of units has no value before it is rounded: the exact one stands for it, moved by as much as the
 * program's code is off. codes: those of round_exam. */
static void keep_values(struct nd_exam *exam, const struct nd_exact_values *values,
                        const struct nd_array *codes)
{
    size_t at = exam->slot * exam->n;
    bool is_made = exam->made.n == values->n;
    for (size_t i = 0; i < values->n; i++) {
        exam->values[at + i] = unrounded(values, i);
        exam->expected[at + i] = values->edge == exam->fusing ? code_by(&exam->usual, values, i) : codes->x[i];
        if (is_made) {
            exam->values[at + i] += exam->made.x[i] - exam->expected[at + i];
            exam->expected[at + i] = exam->made.x[i];
        }
        exam->codes[at + i] = exam->reader->given[exam->edge].x[i];
        if (exam->has_other)
            exam->others[at + i] = code_by(&exam->other, values, i);
    }
    if (exam->forced != 0)
        force_values(exam, values->dtype);
}

/* Of an input that is made anew: what was recorded of it, beside what should be. */
static void count_record(struct nd_exam *exam, struct nd_exam_remade *input, const struct nd_array *codes)
{
    const struct nd_array *given = &exam->reader->given[input->edge];
    for (size_t i = 0; given->n == codes->n && i < codes->n; i++)
        input->n_wrong += given->x[i] != codes->x[i];
    input->n += codes->n;
}

static enum nd_status round_exam(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                 struct nd_error *err)
{
    (void)err;
    struct nd_exam *exam = context;
    double low, high;
    nd_code_range(values->dtype, &low, &high);
    struct nd_exam_remade *remade = nd_exam_remade_of(exam, values->edge);
    const struct nd_program *usual = remade != NULL ? nd_exam_program_of(exam, values->edge) : &exam->usual;
    for (size_t i = 0; i < values->n; i++)
        codes->x[i] = values->edge == exam->fusing ? fmin(fmax(unrounded(values, i), low), high)
                                                   : code_by(usual, values, i);
    if (remade != NULL)
        count_record(exam, remade, codes);
    if (values->edge != exam->edge || values->n != exam->n)
        return ND_OK;
    bool is_made = exam->fusing == SIZE_MAX && exam->made.n == values->n;
    if (exam->to == NULL)
        keep_values(exam, values, codes);
    for (size_t i = 0; i < values->n && exam->to != NULL; i++)
        exam->to[exam->slot * exam->n + i] = is_made ? exam->made.x[i] : codes->x[i];
    return ND_OK;
}

static enum nd_status make_other(struct nd_exam *exam, const struct nd_exact_unit *unit, struct nd_error *err)
{
    struct nd_unit_trial *trial = &exam->reader->trial;
    size_t program = exam->job->habits->unit_program[exam->device];
    enum nd_status status = nd_unit_trial_run(trial, unit, &exam->reader->given[unit->edge], err);
    const struct nd_array *made = status == ND_OK && unit->edge == exam->edge
                                      ? nd_unit_trial_other(trial, exam->alternative, program)
                                      : NULL;
    if (made == NULL)
        return status;
    nd_array_deinit(&exam->made);
    status = nd_array_make(&exam->made, unit->dtype, &made->shape, err);
    if (status == ND_OK && made->n > 0)
        memcpy(exam->made.x, made->x, made->n * sizeof *made->x);
    return status;
}

/* Copies the codes of the sample at hand to *all, which is allocated where there are any. */
static enum nd_status keep_codes(const struct nd_exam *exam, const struct nd_array *codes, double **all,
                                 struct nd_error *err)
{
    if (codes->n == 0 || codes->n != exam->n)
        return ND_OK;
    if (*all == NULL)
        *all = nd_calloc(exam->n_samples * exam->n, sizeof **all);
    if (*all == NULL)
        return nd_fail_memory(err);
    memcpy(*all + exam->slot * exam->n, codes->x, codes->n * sizeof *codes->x);
    return ND_OK;
}

/* What the unit would give with its weights transposed, or with their scales along another axis. */
static enum nd_status keep_misread(struct nd_exam *exam, const struct nd_exact_unit *unit, struct nd_error *err)
{
    struct nd_array codes;
    enum nd_status status = nd_unit_transposed(unit, exam->unit_program, &exam->usual, &codes, err);
    if (status == ND_OK)
        status = keep_codes(exam, &codes, &exam->transposed, err);
    nd_array_deinit(&codes);
    if (status != ND_OK)
        return status;
    status = nd_unit_other_axis(unit, &exam->usual, &codes, &exam->own_axis, &exam->other_axis, err);
    if (status == ND_OK)
        status = keep_codes(exam, &codes, &exam->other_scales, err);
    nd_array_deinit(&codes);
    return status;
}

/* What the unit would give with sums of pairs in 16 bits. The HTP has none, and its programs are not linear. */
static enum nd_status keep_pairs(struct nd_exam *exam, const struct nd_exact_unit *unit, struct nd_error *err)
{
    const struct nd_array *given = &exam->reader->given[exam->edge];
    double *codes = exam->pairs.codes != NULL ? exam->pairs.codes + exam->slot * exam->n : NULL;
    if (exam->unit_program != NULL || exam->is_other || given->n != exam->n)
        return ND_OK;
    return nd_explain_pairs_look(&exam->pairs, unit, &exam->usual, given, codes, err);
}

static enum nd_status make_exam_codes(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                                      bool *is_made, struct nd_error *err)
{
    struct nd_exam *exam = context;
    struct nd_exam_remade *remade = nd_exam_remade_of(exam, unit->edge);
    bool is_covered;
    *is_made = false;
    if (remade != NULL) {
        enum nd_status status = ND_OK;
        if (exam->is_other && nd_exam_is_helper(exam, unit->edge))
            status = make_other(exam, unit, err);
        if (status == ND_OK)
            status = nd_exam_make_input(exam, unit, codes, is_made, err);
        if (status == ND_OK && *is_made)
            count_record(exam, remade, codes);
        return status;
    }
    bool is_of_constants = exam->constants.stage != ND_CONSTANTS_IDLE;
    if (unit->edge == exam->edge && is_of_constants) {
        enum nd_status status = nd_exam_look_at_constants(exam, unit, err);
        if (status != ND_OK)
            return status;
    }
    if (unit->edge == exam->edge && exam->to == NULL && exam->forced == 0 && !is_of_constants) {
        enum nd_status status = keep_misread(exam, unit, err);
        if (status == ND_OK)
            status = keep_pairs(exam, unit, err);
        if (status != ND_OK)
            return status;
    }
    if (exam->is_other && (unit->edge == exam->edge || nd_exam_is_helper(exam, unit->edge)))
        return make_other(exam, unit, err);
    nd_array_deinit(&exam->made);
    if (exam->unit_program == NULL || unit->edge != exam->edge)
        return ND_OK;
    return nd_unit_program_run(exam->unit_program, unit, NULL, &exam->made, &is_covered, err);
}

/* What the unit reads, as it is read with the encodings that are forced. The sample is loaded anew for each
 * run. */
static void force_inputs(struct nd_exam *exam)
{
    struct nd_reader *r = exam->reader;
    const struct nd_alternatives *a = &exam->job->plan->alternatives;
    const struct nd_model_unit *unit = nd_plan_unit(exam->job->plan, exam->step);
    for (size_t k = 0; k < unit->n_inputs; k++) {
        size_t edge = unit->inputs[k];
        const struct nd_quant *own = &nd_model_edge(exam->job->plan->model, edge)->quant;
        bool is_first = true;
        for (size_t before = 0; before < k; before++)
            is_first = is_first && unit->inputs[before] != edge;
        if (!is_first || a->forced[edge] == NULL || own->n != 1 || r->given[edge].shape.rank < 0)
            continue;
        for (size_t i = 0; i < r->given[edge].n; i++)
            r->given[edge].x[i] = recode(r->given[edge].x[i], &a->forced[edge]->quant, own);
    }
}

/* Works out the unit, and what is fused with it, from the device's codes. */
enum nd_status nd_exam_run(struct nd_exam *exam, size_t fusing, double *to, struct nd_error *err)
{
    struct nd_reader *r = exam->reader;
    const struct nd_explain_job *job = exam->job;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_exam,
                                             .make = make_exam_codes,
                                             .given = r->chain,
                                             .is_skipped = r->is_skipped,
                                             .is_ignored = exam->is_wanted != NULL ? r->is_ignored : NULL,
                                             .missed = nd_exact_let_go};
    for (size_t e = 0; e < nd_model_n_edges(job->plan->model); e++) {
        bool is_computed = e == exam->edge || e == fusing || nd_exam_remade_of(exam, e) != NULL;
        r->chain[e] = is_computed ? nd_no_array() : r->given[e];
        r->is_skipped[e] = !is_computed && !nd_exam_is_helper(exam, e);
    }
    if ((exam->forced & ND_EXAM_FORCED_INPUTS) != 0)
        force_inputs(exam);
    if (exam->late > 0)
        r->chain[exam->operands[exam->late - 1]] = exam->before[exam->late - 1];
    nd_unit_trial_begin(&r->trial);
    exam->fusing = fusing;
    exam->to = to;
    return nd_exact_graph_run(job->plan->graph, r->inputs, &options, NULL, exam, err);
}
