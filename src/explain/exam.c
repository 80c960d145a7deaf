#include "explain/exam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arith/other_axis.h"
#include "arith/transposed.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"

enum {
    MOST_SAMPLES = 64, /* of a unit */
    MOST_CODES = 1 << 20,
};

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

const struct nd_quant *nd_exam_quant(const struct nd_exam *exam)
{
    const struct nd_explain_alternatives *a = &exam->worker->job->alternatives;
    return exam->is_forced && a->is_forced_here[exam->edge]
               ? &a->forced[exam->edge]->quant
               : &nd_model_edge(exam->worker->job->model, exam->edge)->quant;
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
    const struct nd_quant *own = &nd_model_edge(exam->worker->job->model, exam->edge)->quant,
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
 * program's code is off. */
static void keep_values(struct nd_exam *exam, const struct nd_exact_values *values)
{
    size_t at = exam->slot * exam->n;
    bool is_made = exam->made.n == values->n;
    for (size_t i = 0; i < values->n; i++) {
        exam->values[at + i] = unrounded(values, i);
        exam->expected[at + i] = code_by(&exam->usual, values, i);
        if (is_made) {
            exam->values[at + i] += exam->made.x[i] - exam->expected[at + i];
            exam->expected[at + i] = exam->made.x[i];
        }
        exam->codes[at + i] = exam->worker->given[exam->edge].x[i];
        if (exam->has_other)
            exam->others[at + i] = code_by(&exam->other, values, i);
    }
    if (exam->is_forced)
        force_values(exam, values->dtype);
}

static enum nd_status round_exam(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                 struct nd_error *err)
{
    (void)err;
    struct nd_exam *exam = context;
    double low, high;
    nd_code_range(values->dtype, &low, &high);
    for (size_t i = 0; i < values->n; i++)
        codes->x[i] = values->edge == exam->fusing ? fmin(fmax(unrounded(values, i), low), high)
                                                   : code_by(&exam->usual, values, i);
    if (values->edge != exam->edge || values->n != exam->n)
        return ND_OK;
    bool is_made = exam->late > 0 && exam->made.n == values->n;
    if (exam->to == NULL)
        keep_values(exam, values);
    for (size_t i = 0; i < values->n && exam->to != NULL; i++)
        exam->to[exam->slot * exam->n + i] = is_made ? exam->made.x[i] : codes->x[i];
    return ND_OK;
}

static enum nd_status make_other(struct nd_exam *exam, const struct nd_exact_unit *unit, struct nd_error *err)
{
    struct nd_explain_trial *trial = &exam->worker->trial;
    size_t program = exam->worker->job->unit_program[exam->device];
    enum nd_status status = nd_explain_trial_run(trial, unit, &exam->worker->given[unit->edge], err);
    const struct nd_array *made = status == ND_OK && unit->edge == exam->edge
                                      ? nd_explain_trial_other(trial, exam->alternative, program)
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
    const struct nd_array *given = &exam->worker->given[exam->edge];
    double *codes = exam->pairs.codes != NULL ? exam->pairs.codes + exam->slot * exam->n : NULL;
    if (exam->unit_program != NULL || exam->is_other || given->n != exam->n)
        return ND_OK;
    return nd_explain_pairs_look(&exam->pairs, unit, &exam->usual, given, codes, err);
}

static enum nd_status make_exam_codes(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                                      bool *is_made, struct nd_error *err)
{
    (void)codes;
    struct nd_exam *exam = context;
    bool is_covered;
    *is_made = false;
    if (unit->edge == exam->edge && exam->to == NULL && !exam->is_forced) {
        enum nd_status status = keep_misread(exam, unit, err);
        if (status == ND_OK)
            status = keep_pairs(exam, unit, err);
        if (status != ND_OK)
            return status;
    }
    if (exam->is_other && (unit->edge == exam->edge || unit->edge == exam->helper))
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
    struct nd_explain_worker *w = exam->worker;
    const struct nd_explain_alternatives *a = &w->job->alternatives;
    const struct nd_model_unit *unit = nd_explain_unit_of(w->job->model, exam->edge);
    for (size_t k = 0; k < unit->n_inputs; k++) {
        size_t edge = unit->inputs[k];
        const struct nd_quant *own = &nd_model_edge(w->job->model, edge)->quant;
        bool is_first = true;
        for (size_t before = 0; before < k; before++)
            is_first = is_first && unit->inputs[before] != edge;
        if (!is_first || a->forced[edge] == NULL || own->n != 1 || w->given[edge].shape.rank < 0)
            continue;
        for (size_t i = 0; i < w->given[edge].n; i++)
            w->given[edge].x[i] = recode(w->given[edge].x[i], &a->forced[edge]->quant, own);
    }
}

/* Works out the unit, and what is fused with it, from the device's codes. */
static enum nd_status run_exam(struct nd_exam *exam, size_t fusing, double *to, struct nd_error *err)
{
    struct nd_explain_worker *w = exam->worker;
    const struct nd_explain_job *job = w->job;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_exam,
                                             .make = make_exam_codes,
                                             .given = w->chain,
                                             .is_skipped = w->is_skipped,
                                             .missed = nd_explain_let_go};
    for (size_t e = 0; e < nd_model_n_edges(job->model); e++) {
        bool is_computed = e == exam->edge || e == fusing;
        w->chain[e] = is_computed ? nd_explain_no_array() : w->given[e];
        w->is_skipped[e] = !is_computed && e != exam->helper;
    }
    if (exam->is_forced)
        force_inputs(exam);
    if (exam->late > 0)
        w->chain[exam->operands[exam->late - 1]] = exam->before[exam->late - 1];
    nd_explain_trial_begin(&w->trial);
    exam->fusing = fusing;
    exam->to = to;
    return nd_exact_graph_run(job->graph, w->inputs, &options, NULL, exam, err);
}

enum nd_status nd_exam_load_sample(struct nd_exam *exam, size_t i, struct nd_error *err)
{
    struct nd_explain_worker *w = exam->worker;
    enum nd_status status = ND_OK;
    size_t left = exam->n_samples - i;
    w->device = exam->device;
    w->sample = i;
    w->in_block = i % ND_EXPLAIN_BLOCK;
    exam->slot = i;
    if (w->in_block == 0)
        status = nd_explain_read_block(w, i, left < ND_EXPLAIN_BLOCK ? left : ND_EXPLAIN_BLOCK, err);
    nd_explain_load_inputs(w);
    return status == ND_OK ? nd_explain_load_device(w, err) : status;
}

/* What the unit gives when one operand is late; then the operand is kept for the next sample. */
static enum nd_status run_late(struct nd_exam *exam, size_t k, struct nd_error *err)
{
    const struct nd_array *given = &exam->worker->given[exam->operands[k]];
    struct nd_array *before = &exam->before[k];
    bool is_known = exam->slot > 0 && before->x != NULL && before->n == given->n;
    enum nd_status status = ND_OK;
    exam->late = k + 1;
    if (is_known)
        status = run_exam(exam, SIZE_MAX, exam->stale[k], err);
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
            status = run_exam(exam, SIZE_MAX, NULL, err);
    }
    return status;
}

enum nd_status nd_exam_collect(struct nd_exam *exam, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < exam->n_samples && status == ND_OK; i++) {
        status = nd_exam_load_sample(exam, i, err);
        if (status == ND_OK)
            status = run_exam(exam, SIZE_MAX, NULL, err);
        for (size_t k = 0; k < exam->n_fusions && status == ND_OK; k++)
            status = run_exam(exam, exam->fused[k], exam->fusions[k], err);
        for (size_t k = 0; k < exam->n_operands && !exam->is_forced && status == ND_OK; k++)
            status = run_late(exam, k, err);
    }
    return status == ND_OK && !exam->is_forced ? collect_pairs(exam, err) : status;
}

/* ---- how far inputs can bring it ---- */

/* Half a step up or down: all up, all down, or by chance. */
static double step_of(size_t pattern, uint64_t *random)
{
    if (pattern < 2)
        return pattern == 0 ? 0.5 : -0.5;
    return nd_random_next(random) >> 30 != 0 ? 0.5 : -0.5; /* the highest of its 31 bits */
}

/* What such an operator leaves at the end of its codes was not cut off. */
static bool ends_by_itself(const char *op_types)
{
    static const char *const names[] = {"Relu", "Clip", "Sigmoid", "Softmax", "HardSwish"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(op_types, names[i]) != NULL)
            return true;
    return false;
}

static void move_input(struct nd_array *codes, const struct nd_edge *edge, size_t pattern, uint64_t *random)
{
    static const double cut_off = 0.25; /* of the range; chosen: what is clipped was hardly further out */
    double low, high;
    bool is_cut = !ends_by_itself(edge->op_types);
    nd_code_range(codes->dtype, &low, &high);
    for (size_t i = 0; i < codes->n; i++) {
        double x = codes->x[i], out = is_cut && x == low ? -1 : is_cut && x == high ? 1 : 0;
        codes->x[i] += out != 0 ? out * cut_off * (high - low) : step_of(pattern, random);
    }
}

static void move_inputs(struct nd_exam *exam, size_t pattern)
{
    struct nd_explain_worker *w = exam->worker;
    const struct nd_model_unit *unit = nd_explain_unit_of(w->job->model, exam->edge);
    uint64_t random = pattern * 1000003 + exam->slot;
    for (size_t k = 0; k < unit->n_inputs; k++) {
        size_t edge = unit->inputs[k];
        bool is_first = true;
        for (size_t before = 0; before < k; before++)
            is_first = is_first && unit->inputs[before] != edge;
        if (is_first && w->given[edge].shape.rank >= 0 && nd_dtype_is_integer(w->given[edge].dtype))
            move_input(&w->given[edge], nd_model_edge(w->job->model, edge), pattern, &random);
    }
}

enum nd_status nd_exam_find_reach(struct nd_exam *exam, double *reach, struct nd_error *err)
{
    enum { PATTERNS = 4 };
    size_t n = exam->n_samples * exam->n;
    double *still = nd_calloc(n, sizeof *still), *moved = nd_calloc(n, sizeof *moved);
    enum nd_status status = still != NULL && moved != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t k = 0; k <= PATTERNS && status == ND_OK; k++) {
        for (size_t i = 0; i < exam->n_samples && status == ND_OK; i++) {
            status = nd_exam_load_sample(exam, i, err);
            if (k > 0)
                move_inputs(exam, k - 1);
            if (status == ND_OK)
                status = run_exam(exam, exam->edge, k == 0 ? still : moved, err);
        }
        for (size_t i = 0; i < n && k > 0; i++)
            reach[i] = fmax(reach[i], fabs(moved[i] - still[i]));
    }
    free(still);
    free(moved);
    return status;
}

/* ---- what is asked of it ---- */

/* Where the program explains most of the codes in another way, what is left is held against that. */
static void choose_way(struct nd_exam *exam, const struct nd_explain_habit *habit, size_t program)
{
    const struct nd_explain_alternatives *a = &exam->worker->job->alternatives;
    uint64_t fewest = program == SIZE_MAX                          ? 0
                      : habit->units->n[program] == habit->n_codes ? habit->units->wrong[program]
                                                                   : habit->n_codes;
    for (size_t k = 0; k < ND_N_ALTERNATIVES && program != SIZE_MAX; k++) {
        const struct nd_explain_other_tally *other = &habit->units->others[k];
        if (other->n[program] != habit->n_codes || other->wrong[program] >= fewest)
            continue;
        fewest = other->wrong[program];
        exam->is_other = true;
        exam->alternative = (enum nd_explain_alternative)k;
        exam->helper = k == ND_ALTERNATIVE_FUSED ? a->fused_from[exam->edge] : SIZE_MAX;
    }
}

/* Another program that gives every code; plain rounding comes first in the list. */
static void choose_programs(struct nd_exam *exam)
{
    const struct nd_explain_job *job = exam->worker->job;
    const struct nd_explain_habit *habit = &job->habits[exam->device * job->n_steps + exam->step];
    size_t n;
    const struct nd_program *programs = nd_programs(&n);
    exam->usual = programs[habit->program != SIZE_MAX ? habit->program : 0];
    size_t unit_program = job->unit_program[exam->device], n_unit_programs;
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
    const struct nd_explain_job *job = exam->worker->job;
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, exam->edge);
    for (size_t i = 0; i < unit->n_inputs && exam->n_fusions < ND_EXAM_FUSIONS; i++) {
        size_t input = job->step_of_edge[unit->inputs[i]];
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
    const struct nd_explain_job *job = exam->worker->job;
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, exam->edge);
    for (size_t i = 0; i < unit->n_inputs && exam->n_operands < ND_EXAM_OPERANDS && exam->n_samples > 1; i++) {
        size_t input = job->step_of_edge[unit->inputs[i]];
        bool is_known = input != SIZE_MAX && job->sources[exam->device].edges[input] != SIZE_MAX;
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
    const struct nd_explain_job *job = exam->worker->job;
    const struct nd_quant *quant = &nd_model_edge(job->model, exam->edge)->quant;
    struct nd_wide *steps = NULL;
    struct nd_error ignored = {0};
    if (nd_exact_accumulator_steps(job->graph, exam->edge, &steps, &exam->n_steps, &ignored) != ND_OK)
        return ND_OK; /* no accumulator of integers */
    exam->steps = nd_calloc(exam->n_steps, sizeof *exam->steps);
    for (size_t c = 0; c < exam->n_steps && exam->steps != NULL; c++)
        exam->steps[c] = steps[c].parts[0] / (double)quant->scale[quant->n > 1 ? c % quant->n : 0];
    free(steps);
    return exam->steps != NULL ? ND_OK : nd_fail_memory(err);
}

size_t nd_exam_n_samples(const struct nd_explain_job *job, size_t n)
{
    size_t most = n > 0 ? MOST_CODES / n : 0;
    most = most < 1 ? 1 : most > MOST_SAMPLES ? MOST_SAMPLES : most;
    return job->n_samples < most ? job->n_samples : most;
}

enum nd_status nd_exam_make(struct nd_exam *exam, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->worker->job;
    exam->edge = job->out->steps[exam->step].edge;
    exam->n = exam->worker->reference[exam->step].n;
    exam->n_samples = nd_exam_n_samples(job, exam->n);
    nd_explain_pairs_init(&exam->pairs);
    choose_programs(exam);
    choose_fusions(exam);
    choose_operands(exam);
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
    for (size_t k = 0; k < ND_EXAM_FUSIONS; k++)
        free(exam->fusions[k]);
    for (size_t k = 0; k < ND_EXAM_OPERANDS; k++) {
        free(exam->stale[k]);
        nd_array_deinit(&exam->before[k]);
    }
    free(exam->steps);
    nd_array_deinit(&exam->made);
}
