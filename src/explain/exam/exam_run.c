/* One sample of an examination: the unit is worked out from the device's codes, by each arithmetic that it is
 * held against. */
#include <math.h>
#include <string.h>

#include "arithmetic/variants/other_axis.h"
#include "arithmetic/variants/transposed.h"
#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/linear/rounding.h"
#include "explain/exam/exam.h"

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
