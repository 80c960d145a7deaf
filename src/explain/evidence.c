#include "explain/evidence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "explain/doctor/doctor.h"
#include "explain/health.h"

enum {
    MOST_UNITS = 24,   /* of a device: those with the greatest effect */
    MOST_SAMPLES = 64, /* of a unit */
    MOST_FUSIONS = 6,  /* inputs of a unit that it may be fused with */
    MOST_CODES = 1 << 20,
};

/* One unit of one device under examination. */
struct exam {
    struct nd_explain_worker *worker;
    size_t device, step, edge;
    size_t n_samples, n; /* elements of a sample */
    struct nd_program usual, other;
    bool has_other;
    const struct nd_unit_program *unit_program; /* in the place of usual; NULL: none */
    struct nd_array made;                       /* by it, of the unit that is worked out next */
    bool is_other;                              /* it is made in another way, */
    enum nd_explain_alternative alternative;    /* in this one, for which */
    size_t helper;                              /* the edge before it is worked out, too; SIZE_MAX: none */
    bool is_forced; /* worked out exactly, with the encodings that the provider forces on what it reads and makes */
    size_t n_fusions;
    size_t fused[MOST_FUSIONS]; /* edges */
    double *codes, *values, *expected, *others, *fusions[MOST_FUSIONS];
    double *steps; /* of the accumulator, in steps of the output; NULL for other operators */
    size_t n_steps;
    /* of the run at hand */
    size_t slot;
    size_t fusing; /* the edge that keeps its fractions, or SIZE_MAX */
    double *to;
};

/* ---- what the unit would give ---- */

static double code_by(const struct nd_program *program, const struct nd_exact_values *values, size_t i)
{
    double low, high;
    nd_code_range(values->dtype, &low, &high);
    const struct nd_place place = nd_place_of(&values->v[i]);
    double zero = (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
    return fmin(fmax(nd_program_round(program, &values->v[i], &place) + zero, low), high);
}

static double unrounded(const struct nd_exact_values *values, size_t i)
{
    double zero = (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
    return nd_ratio_value(&values->v[i]) + zero;
}

/* The encoding in which the unit's codes are. */
static const struct nd_quant *quant_of(const struct exam *exam)
{
    const struct nd_explain_alternatives *a = &exam->worker->job->alternatives;
    return exam->is_forced && a->is_forced_here[exam->edge] ? &a->forced[exam->edge]->quant
                                                             : &nd_model_edge(exam->worker->job->model, exam->edge)->quant;
}

/* From codes of one encoding to those of another, unrounded. */
static double recode(double code, const struct nd_quant *from, const struct nd_quant *to)
{
    return (code - (double)from->zero_point[0]) * (double)from->scale[0] / (double)to->scale[0] +
           (double)to->zero_point[0];
}

/* What the unit should give in the encoding that is forced on it. */
static void force_values(struct exam *exam, enum nd_dtype dtype)
{
    const struct nd_quant *own = &nd_model_edge(exam->worker->job->model, exam->edge)->quant, *quant = quant_of(exam);
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
static void keep_values(struct exam *exam, const struct nd_exact_values *values)
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
    struct exam *exam = context;
    double low, high;
    nd_code_range(values->dtype, &low, &high);
    for (size_t i = 0; i < values->n; i++)
        codes->x[i] = values->edge == exam->fusing ? fmin(fmax(unrounded(values, i), low), high)
                                                   : code_by(&exam->usual, values, i);
    if (values->edge != exam->edge || values->n != exam->n)
        return ND_OK;
    if (exam->fusing == SIZE_MAX)
        keep_values(exam, values);
    for (size_t i = 0; i < values->n && exam->fusing != SIZE_MAX; i++)
        exam->to[exam->slot * exam->n + i] = codes->x[i];
    return ND_OK;
}

static enum nd_status make_other(struct exam *exam, const struct nd_exact_unit *unit, struct nd_error *err)
{
    struct nd_explain_trial *trial = &exam->worker->trial;
    size_t program = exam->worker->job->unit_program[exam->device];
    enum nd_status status = nd_explain_trial_run(trial, unit, &exam->worker->given[unit->edge], err);
    const struct nd_array *made =
        status == ND_OK && unit->edge == exam->edge ? nd_explain_trial_other(trial, exam->alternative, program) : NULL;
    if (made == NULL)
        return status;
    nd_array_deinit(&exam->made);
    status = nd_array_make(&exam->made, unit->dtype, &made->shape, err);
    if (status == ND_OK && made->n > 0)
        memcpy(exam->made.x, made->x, made->n * sizeof *made->x);
    return status;
}

static enum nd_status make_exam_codes(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                                      bool *is_made, struct nd_error *err)
{
    (void)codes;
    struct exam *exam = context;
    bool is_covered;
    *is_made = false;
    if (exam->is_other && (unit->edge == exam->edge || unit->edge == exam->helper))
        return make_other(exam, unit, err);
    nd_array_deinit(&exam->made);
    if (exam->unit_program == NULL || unit->edge != exam->edge)
        return ND_OK;
    return nd_unit_program_run(exam->unit_program, unit, NULL, &exam->made, &is_covered, err);
}

/* What the unit reads, as it is read with the encodings that are forced. The sample is loaded anew for each run. */
static void force_inputs(struct exam *exam)
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
static enum nd_status run_exam(struct exam *exam, size_t fusing, double *to, struct nd_error *err)
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
    nd_explain_trial_begin(&w->trial);
    exam->fusing = fusing;
    exam->to = to;
    return nd_exact_graph_run(job->graph, w->inputs, &options, NULL, exam, err);
}

static enum nd_status collect(struct exam *exam, struct nd_error *err)
{
    struct nd_explain_worker *w = exam->worker;
    enum nd_status status = ND_OK;
    w->device = exam->device;
    for (size_t i = 0; i < exam->n_samples && status == ND_OK; i++) {
        w->sample = i;
        w->in_block = i % ND_EXPLAIN_BLOCK;
        exam->slot = i;
        size_t left = exam->n_samples - i;
        if (w->in_block == 0)
            status = nd_explain_read_block(w, i, left < ND_EXPLAIN_BLOCK ? left : ND_EXPLAIN_BLOCK, err);
        nd_explain_load_inputs(w);
        if (status == ND_OK)
            status = nd_explain_load_device(w, err);
        if (status == ND_OK)
            status = run_exam(exam, SIZE_MAX, NULL, err);
        for (size_t k = 0; k < exam->n_fusions && status == ND_OK; k++)
            status = run_exam(exam, exam->fused[k], exam->fusions[k], err);
    }
    return status;
}

/* ---- what is asked of it ---- */

/* Where the program explains most of the codes in another way, what is left is held against that. */
static void choose_way(struct exam *exam, const struct nd_explain_habit *habit, size_t program)
{
    const struct nd_explain_alternatives *a = &exam->worker->job->alternatives;
    uint64_t fewest = program == SIZE_MAX                              ? 0
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
static void choose_programs(struct exam *exam)
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

static void choose_fusions(struct exam *exam)
{
    const struct nd_explain_job *job = exam->worker->job;
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, exam->edge);
    for (size_t i = 0; i < unit->n_inputs && exam->n_fusions < MOST_FUSIONS; i++) {
        size_t input = job->step_of_edge[unit->inputs[i]];
        bool is_known = input != SIZE_MAX && job->out->steps[input].is_unit &&
                        job->out->devices[exam->device].units[input].is_examined;
        for (size_t k = 0; k < exam->n_fusions; k++)
            is_known = is_known && exam->fused[k] != unit->inputs[i];
        if (is_known)
            exam->fused[exam->n_fusions++] = unit->inputs[i];
    }
}

/* In steps of the output. */
static enum nd_status find_accumulator(struct exam *exam, struct nd_error *err)
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

static enum nd_status make_exam(struct exam *exam, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->worker->job;
    exam->edge = job->out->steps[exam->step].edge;
    exam->n = exam->worker->reference[exam->step].n;
    size_t most = exam->n > 0 ? MOST_CODES / exam->n : 0;
    most = most < 1 ? 1 : most > MOST_SAMPLES ? MOST_SAMPLES : most;
    exam->n_samples = job->n_samples < most ? job->n_samples : most;
    choose_programs(exam);
    choose_fusions(exam);
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
    return is_made ? find_accumulator(exam, err) : nd_fail_memory(err);
}

static void exam_deinit(struct exam *exam)
{
    free(exam->codes);
    free(exam->values);
    free(exam->expected);
    free(exam->others);
    for (size_t k = 0; k < MOST_FUSIONS; k++)
        free(exam->fusions[k]);
    free(exam->steps);
    nd_array_deinit(&exam->made);
}

/* ---- the verdict ---- */

/* Against what the device does in such units. */
static struct nd_explain_error_size measure(const struct exam *exam)
{
    const struct nd_explain_job *job = exam->worker->job;
    double allowance = nd_explain_allowance(job, exam->device, exam->step), sum = 0, squares = 0, energy = 0;
    struct nd_explain_error_size size = {.n = 0};
    for (size_t i = 0; i < exam->n_samples * exam->n; i++) {
        double expected = exam->expected[i], off = fabs(exam->codes[i] - expected);
        if (!isfinite(expected) || !isfinite(exam->values[i]))
            continue;
        size.n++;
        size.n_wrong += off > 0;
        size.n_beyond += off > allowance;
        size.max = fmax(size.max, off);
        energy += off * off;
        sum += expected;
        squares += expected * expected;
    }
    double n = size.n > 0 ? (double)size.n : 1;
    size.energy = energy / n;
    size.signal = fmax(squares / n - (sum / n) * (sum / n), 0);
    return size;
}

/* Which encodings the provider forces. */
static enum nd_status say_forced(const struct exam *exam, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->worker->job;
    const struct nd_explain_alternatives *a = &job->alternatives;
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, exam->edge);
    struct nd_strbuf text = {0};
    if (a->is_forced_here[exam->edge])
        nd_strbuf_printf(&text, "the provider writes its codes with scale %s, not with the model's",
                         a->forced[exam->edge]->text);
    for (size_t i = 0; i < unit->n_inputs; i++)
        if (a->forced[unit->inputs[i]] != NULL)
            nd_strbuf_printf(&text, "%sthe provider reads '%s' with scale %s, not with the model's", text.len > 0 ? "; " : "",
                             nd_model_edge(job->model, unit->inputs[i])->name, a->forced[unit->inputs[i]]->text);
    struct nd_explained_unit *out = &job->out->devices[exam->device].units[exam->step];
    free(out->follows_text);
    out->follows_text = nd_strbuf_take(&text);
    return out->follows_text != NULL ? ND_OK : nd_fail_memory(err);
}

/* Whether the encodings that the provider forces, on a chip, leave fewer gross errors: then they are taken. */
static enum nd_status try_forced(struct exam *exam, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->worker->job;
    const struct nd_explain_alternatives *a = &job->alternatives;
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, exam->edge);
    enum nd_explain_expectation expectation = job->sources[exam->device].expectation;
    bool has_any = a->is_forced_here[exam->edge];
    for (size_t i = 0; i < unit->n_inputs; i++)
        has_any = has_any || a->forced[unit->inputs[i]] != NULL;
    size_t n_beyond = measure(exam).n_beyond;
    if (!has_any || n_beyond == 0 || expectation == ND_EXPECT_FLOAT)
        return ND_OK;
    const struct exam before = *exam;
    exam->is_forced = true;
    exam->is_other = exam->has_other = false;
    exam->unit_program = NULL;
    exam->helper = SIZE_MAX;
    exam->n_fusions = 0;
    nd_array_deinit(&exam->made);
    enum nd_status status = collect(exam, err);
    if (status != ND_OK || 2 * measure(exam).n_beyond < n_beyond)
        return status;
    exam->is_forced = false;
    exam->is_other = before.is_other;
    exam->has_other = before.has_other;
    exam->unit_program = before.unit_program;
    exam->helper = before.helper;
    exam->n_fusions = before.n_fusions;
    return collect(exam, err);
}

static enum nd_status ask_doctor(const struct exam *exam, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->worker->job;
    const struct nd_explain_source *source = &job->sources[exam->device];
    const struct nd_edge *edge = nd_model_edge(job->model, exam->edge);
    struct nd_hypothesis hypotheses[1 + MOST_FUSIONS];
    char texts[1 + MOST_FUSIONS][160], name[ND_PROGRAM_NAME_BYTES];
    size_t n = 0;
    if (exam->has_other) {
        bool is_float = exam->other.kind == ND_PROGRAM_FLOAT32 ||
                        (exam->other.kind == ND_PROGRAM_SINGLE && exam->other.rounding <= ND_ROUND_HALF_DOWN);
        snprintf(texts[n], sizeof texts[n], is_float ? "rounded %s, as floats are" : "rounded by %s",
                 nd_program_name(&exam->other, name));
        hypotheses[n] =
            (struct nd_hypothesis){is_float ? ND_FAULT_FALLBACK : ND_FAULT_ROUNDING, texts[n], exam->others};
        n++;
    }
    for (size_t k = 0; k < exam->n_fusions; k++, n++) {
        snprintf(texts[n], sizeof texts[n], "fused with '%.120s'",
                 nd_model_edge(job->model, exam->fused[k])->name);
        hypotheses[n] = (struct nd_hypothesis){ND_FAULT_FUSION, texts[n], exam->fusions[k]};
    }
    const struct nd_evidence evidence = {
        .name = edge->name,
        .n_samples = exam->n_samples,
        .n = exam->n,
        .shape = job->shapes[exam->step],
        .dtype = edge->dtype,
        .quant = quant_of(exam),
        .codes = exam->codes,
        .values = exam->values,
        .expected = exam->expected,
        .noise = nd_explain_allowance(job, exam->device, exam->step),
        .accumulator_step = exam->is_forced ? NULL : exam->steps,
        .n_steps = exam->n_steps,
        .n_repeats = nd_capture_probe(source->capture, source->probe)->n_repeats,
        .repeats_differ = nd_explain_differs_by_run(job, exam->device, exam->step),
        .inputs_repeat_same = nd_explain_inputs_repeat(job, exam->device, exam->step),
        .hypotheses = hypotheses,
        .n_hypotheses = n,
    };
    struct nd_diagnosis diagnosis;
    enum nd_status status = nd_doctor_examine(&evidence, &diagnosis, err);
    const struct nd_explain_error_size size = measure(exam);
    if (status == ND_OK && exam->is_forced)
        status = say_forced(exam, err);
    return status == ND_OK ? nd_explain_accuse(job, exam->device, exam->step, &size, &diagnosis, err) : status;
}

static enum nd_status diagnose_unit(struct nd_explain_worker *w, size_t device, size_t step,
                                    struct nd_error *err)
{
    struct exam exam = {.worker = w, .device = device, .step = step, .helper = SIZE_MAX};
    enum nd_status status = make_exam(&exam, err);
    if (status == ND_OK)
        status = collect(&exam, err);
    if (status == ND_OK)
        status = try_forced(&exam, err);
    if (status == ND_OK)
        status = ask_doctor(&exam, err);
    exam_deinit(&exam);
    return status;
}

/* The unit to look at after `last` (SIZE_MAX: the first) in order of falling effect; of equals the earlier. */
static size_t next_worst(const struct nd_explain_job *job, size_t d, size_t last)
{
    const struct nd_explained_unit *units = job->out->devices[d].units;
    size_t best = SIZE_MAX;
    double limit = last != SIZE_MAX ? nd_explain_badness(&units[last]) : HUGE_VAL;
    for (size_t s = 0; s < job->n_steps; s++) {
        double x = nd_explain_badness(&units[s]);
        bool is_next = last == SIZE_MAX || x < limit || (x == limit && s > last);
        if (nd_explain_needs_exam(job, d, s) && is_next && (best == SIZE_MAX || x > nd_explain_badness(&units[best])))
            best = s;
    }
    return best;
}

static enum nd_status diagnose_device(struct nd_explain_worker *w, size_t d, struct nd_error *err)
{
    struct nd_explain_job *job = w->job;
    enum nd_status status = ND_OK;
    size_t step = SIZE_MAX, *order = nd_calloc(MOST_UNITS, sizeof *order), n = 0;
    if (order == NULL)
        return nd_fail_memory(err);
    while (n < MOST_UNITS && (step = next_worst(job, d, step)) != SIZE_MAX)
        order[n++] = step;
    for (size_t i = 0; i < n && status == ND_OK; i++)
        status = diagnose_unit(w, d, order[i], err);
    free(order);
    return status;
}

enum nd_status nd_explain_diagnose(struct nd_explain_job *job, struct nd_error *err)
{
    struct nd_explain_worker worker = {0};
    enum nd_status status = nd_explain_worker_init(&worker, job, err);
    if (status == ND_OK)
        status = nd_explain_settle_layers(job, err);
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++)
        if (!job->sources[d].is_failed)
            status = diagnose_device(&worker, d, err);
    nd_explain_worker_deinit(&worker);
    return status;
}
