#include "explain/evidence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "explain/doctor/doctor.h"

enum {
    MOST_UNITS = 8,    /* of a device */
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

static enum nd_status make_exam_codes(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                                      bool *is_made, struct nd_error *err)
{
    (void)codes;
    struct exam *exam = context;
    bool is_covered;
    *is_made = false;
    nd_array_deinit(&exam->made);
    if (exam->unit_program == NULL || unit->edge != exam->edge)
        return ND_OK;
    return nd_unit_program_run(exam->unit_program, unit, NULL, &exam->made, &is_covered, err);
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
        w->is_skipped[e] = !is_computed;
    }
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
    for (size_t k = 0; k < exam->n_fusions; k++)
        free(exam->fusions[k]);
    free(exam->steps);
    nd_array_deinit(&exam->made);
}

/* ---- the verdict ---- */

static enum nd_status keep_diagnosis(const struct nd_diagnosis *diagnosis, struct nd_explained_unit *unit,
                                     struct nd_error *err)
{
    const struct nd_finding *best = &diagnosis->best;
    /* That nothing fits is news only where the device's arithmetic is known. */
    if (!diagnosis->is_found || (best->kind == ND_FAULT_UNEXPLAINED && !unit->is_faulty))
        return ND_OK;
    unit->fault = (struct nd_explained_fault){
        .kind = nd_fault_name(best->kind),
        .text = nd_strdup(best->text),
        .channel = best->channel,
        .amount = best->amount,
        .explained = best->explained,
        .rival = diagnosis->n_rivals > 0 ? nd_fault_name(diagnosis->rivals[0].kind) : NULL};
    return unit->fault.text != NULL ? ND_OK : nd_fail_memory(err);
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
        .quant = &edge->quant,
        .codes = exam->codes,
        .values = exam->values,
        .expected = exam->expected,
        .accumulator_step = exam->steps,
        .n_steps = exam->n_steps,
        .n_repeats = nd_capture_probe(source->capture, source->probe)->n_repeats,
        .repeats_differ = nd_explain_differs_by_run(job, exam->device, exam->step),
        .inputs_repeat_same = nd_explain_inputs_repeat(job, exam->device, exam->step),
        .hypotheses = hypotheses,
        .n_hypotheses = n,
    };
    struct nd_diagnosis diagnosis;
    enum nd_status status = nd_doctor_examine(&evidence, &diagnosis, err);
    return status == ND_OK ? keep_diagnosis(&diagnosis, &job->out->devices[exam->device].units[exam->step], err)
                           : status;
}

static enum nd_status diagnose_unit(struct nd_explain_worker *w, size_t device, size_t step,
                                    struct nd_error *err)
{
    struct exam exam = {.worker = w, .device = device, .step = step};
    enum nd_status status = make_exam(&exam, err);
    if (status == ND_OK)
        status = collect(&exam, err);
    if (status == ND_OK)
        status = ask_doctor(&exam, err);
    exam_deinit(&exam);
    return status;
}

/* Of units of which the device's program says nothing those that are off by more than single steps: they may be
 * gross faults. */
static enum nd_status diagnose_unknown(struct nd_explain_worker *w, size_t d, struct nd_error *err)
{
    enum { MOST_UNKNOWN = 4 };
    const struct nd_explain_job *job = w->job;
    size_t n = 0;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps && status == ND_OK && n < MOST_UNKNOWN; s++) {
        const struct nd_explain_habit *habit = &job->habits[d * job->n_steps + s];
        if (habit->standing != ND_STANDING_UNKNOWN || job->out->devices[d].units[s].local.max <= 1)
            continue;
        n++;
        status = diagnose_unit(w, d, s, err);
    }
    return status;
}

/* Units that are out of line; of a device whose arithmetic is not known, those where it begins to differ. */
static enum nd_status diagnose_device(struct nd_explain_worker *w, size_t d, struct nd_error *err)
{
    const struct nd_explained_device *device = &w->job->out->devices[d];
    bool is_known = device->n_faulty > 0 || device->program != NULL;
    const size_t *steps = is_known ? device->faulty : device->sources;
    size_t n = is_known ? device->n_faulty : device->n_sources;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n && i < MOST_UNITS && status == ND_OK; i++)
        if (w->job->out->steps[steps[i]].is_unit)
            status = diagnose_unit(w, d, steps[i], err);
    if (status == ND_OK && w->job->sources[d].same_as == d)
        status = diagnose_unknown(w, d, err);
    return status;
}

enum nd_status nd_explain_diagnose(struct nd_explain_job *job, struct nd_error *err)
{
    struct nd_explain_worker worker = {0};
    enum nd_status status = nd_explain_worker_init(&worker, job, err);
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++)
        if (!job->sources[d].is_failed)
            status = diagnose_device(&worker, d, err);
    nd_explain_worker_deinit(&worker);
    return status;
}
