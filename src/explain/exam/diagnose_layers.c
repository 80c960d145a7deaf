#include "explain/exam/diagnose_layers.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/exam/exam.h"
#include "explain/exam/hypotheses.h"
#include "explain/exam/input_quantiser.h"
#include "explain/exam/rounded_twice.h"
#include "explain/verdict/health.h"

enum { MOST_UNITS = 24 }; /* of a device: those with the greatest effect */

/* Against what the device does in such units. */
static struct nd_explain_error_size measure(const struct nd_exam *exam)
{
    const struct nd_explain_job *job = exam->job;
    double allowance = nd_explain_allowance(job, exam->device, exam->step), energy = 0;
    double sums[2] = {0}, squares[2] = {0}, product = 0; /* of what is expected, and of the values */
    struct nd_explain_error_size size = {.n = 0};
    for (size_t i = 0; i < exam->n_samples * exam->n; i++) {
        double expected = exam->expected[i], off = fabs(exam->codes[i] - expected);
        if (!isfinite(expected) || !isfinite(exam->values[i]))
            continue;
        size.n++;
        size.n_wrong += off > 0;
        size.n_beyond += off > allowance;
        size.n_far += off > ND_EXPLAIN_FAR * allowance;
        size.max = fmax(size.max, off);
        energy += off * off;
        sums[0] += expected;
        sums[1] += exam->codes[i];
        squares[0] += expected * expected;
        squares[1] += exam->codes[i] * exam->codes[i];
        product += expected * exam->codes[i];
    }
    double n = size.n > 0 ? (double)size.n : 1;
    size.signal = fmax(squares[0] / n - (sums[0] / n) * (sums[0] / n), 0);
    double bias = (sums[1] - sums[0]) / n; /* a term is what unknown arithmetic may add */
    size.energy = fmax(energy / n - bias * bias, 0);
    double variance = fmax(squares[1] / n - (sums[1] / n) * (sums[1] / n), 0);
    if (size.signal > 0 && variance > 0)
        size.correlation = (product / n - sums[0] / n * sums[1] / n) / sqrt(size.signal * variance);
    return size;
}

/* Leaves in `past` the values that are wrong by more than the allowance and twice what their inputs can do. */
static enum nd_status keep_past(struct nd_exam *exam, bool *past, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->job;
    /* Of the largest move that was seen of the value, and of the root mean square of all; chosen: a sum of many
       inputs moves further in one of a million cases than in four tries. */
    static const double of_own = 2, of_all = 4;
    size_t n = exam->n_samples * exam->n;
    double *reach = nd_calloc(n, sizeof *reach), squares = 0;
    enum nd_status status = reach != NULL ? nd_exam_find_reach(exam, reach, err) : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        squares += isfinite(reach[i]) ? reach[i] * reach[i] : 0;
    bool is_any =
        !nd_explain_is_known(job, exam->device, exam->step) && nd_explain_forced(job, exam->step) == 0;
    double allowance = nd_explain_allowance(job, exam->device, exam->step) * (is_any ? ND_EXPLAIN_FAR : 1),
           all = n > 0 ? sqrt(squares / (double)n) : 0;
    for (size_t i = 0; status == ND_OK && i < n; i++)
        past[i] =
            past[i] && fabs(exam->codes[i] - exam->expected[i]) > allowance + of_own * reach[i] + of_all * all;
    free(reach);
    return status;
}

/* How the unit is worked out: as the model says (forced: 0), which is how it was chosen at first, or with
 * encodings that the provider forces. Collects anew. */
static enum nd_status collect_as(struct nd_exam *exam, const struct nd_exam *own, unsigned forced,
                                 struct nd_error *err)
{
    bool is_own = forced == 0;
    exam->forced = forced;
    exam->is_other = is_own && own->is_other;
    exam->has_other = is_own && own->has_other;
    exam->unit_program = is_own ? own->unit_program : NULL;
    exam->is_helped = is_own && own->is_helped;
    exam->n_fusions = is_own ? own->n_fusions : 0;
    nd_array_deinit(&exam->made);
    return nd_exam_collect(exam, err);
}

/* Counts the values that are past, whichever encodings are taken. */
static enum nd_status find_past(struct nd_exam *exam, const struct nd_exam *own,
                                struct nd_explain_error_size *size, struct nd_error *err)
{
    size_t n = exam->n_samples * exam->n;
    unsigned can = nd_explain_forced(exam->job, exam->step), first = exam->forced;
    bool *past = nd_calloc(n, sizeof *past);
    if (past == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        past[i] = true;
    enum nd_status status = keep_past(exam, past, err);
    for (unsigned forced = 0; forced <= can && status == ND_OK; forced++) {
        if (forced == first || (forced & ~can) != 0)
            continue;
        status = collect_as(exam, own, forced, err);
        if (status == ND_OK)
            status = keep_past(exam, past, err);
    }
    for (size_t i = 0; i < n; i++)
        size->n_past += past[i];
    free(past);
    return status;
}

/* Which encodings the provider forces. */
static enum nd_status say_forced(const struct nd_exam *exam, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->job;
    const struct nd_model_unit *unit = nd_plan_unit(job->plan, exam->step);
    struct nd_strbuf text = {0};
    nd_say_forced(&job->plan->alternatives, job->plan->model, unit,
                  job->plan->steps[exam->step].is_model_output, &text);
    struct nd_explained_unit *out = &job->out->devices[exam->device].units[exam->step];
    free(out->follows_text);
    out->follows_text = nd_strbuf_take(&text);
    return out->follows_text != NULL ? ND_OK : nd_fail_memory(err);
}

/* Whether encodings that the provider forces, on a chip, halve the largest error or better: then the best are
 * taken. */
static enum nd_status try_forced(struct nd_exam *exam, const struct nd_exam *own, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->job;
    unsigned can = nd_explain_forced(job, exam->step), best = 0;
    double max = measure(exam).max, least = max / 2;
    if (can == 0 || max <= 1 || job->plan->sources[exam->device].expectation == ND_EXPECT_FLOAT)
        return ND_OK;
    enum nd_status status = ND_OK;
    for (unsigned forced = can; forced > 0 && status == ND_OK; forced--) { /* all of them first */
        if ((forced & ~can) != 0)
            continue;
        status = collect_as(exam, own, forced, err);
        double largest = status == ND_OK ? measure(exam).max : HUGE_VAL;
        if (largest < least || (largest == least && best == 0)) {
            least = largest;
            best = forced;
        }
    }
    return status == ND_OK && exam->forced != best ? collect_as(exam, own, best, err) : status;
}

/* The evidence of a layer and of an input's quantiser alike; the rest is 0. */
static struct nd_evidence evidence_of(const struct nd_exam *exam)
{
    const struct nd_explain_job *job = exam->job;
    const struct nd_edge *edge = nd_plan_edge(job->plan, exam->step);
    return (struct nd_evidence){
        .n_samples = exam->n_samples,
        .n = exam->n,
        .shape = job->plan->shapes[exam->step],
        .dtype = edge->dtype,
        .quant = nd_exam_quant(exam),
        .captured = exam->codes,
        .exact = exam->values,
        .expected = exam->expected,
        .noise = nd_explain_allowance(job, exam->device, exam->step),
        .accumulator_step = exam->forced != 0 ? NULL : exam->steps,
        .n_steps = exam->n_steps,
        .repeats_differ = nd_plan_differs_by_run(job->plan, exam->device, exam->step),
    };
}

static enum nd_status diagnose(struct nd_exam *exam, const struct nd_exam *own, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->job;
    struct nd_exam_hypotheses hypotheses;
    struct nd_evidence evidence = evidence_of(exam);
    struct nd_explain_error_size size = measure(exam);
    enum nd_status status = ND_OK;
    bool is_off = size.n_beyond >= nd_explain_fewest_beyond(job, exam->device, exam->step);
    if (is_off && exam->forced == 0 && nd_explain_multiplies_constants(job, exam->step))
        status = nd_exam_find_constants(exam, evidence.noise, err);
    if (status != ND_OK)
        return status;
    nd_exam_make_hypotheses(exam, &hypotheses);
    evidence.inputs_repeat_same = nd_plan_inputs_repeat(job->plan, exam->device, exam->step);
    evidence.hypotheses = hypotheses.items;
    evidence.n_hypotheses = hypotheses.n;
    struct nd_diagnosis diagnosis;
    status = nd_diagnose(&evidence, &diagnosis, err);
    if (status == ND_OK && exam->forced != 0)
        status = say_forced(exam, err);
    size_t doubtful = nd_exam_find_doubtful(exam, &size.doubtful_max);
    size.doubtful = doubtful != SIZE_MAX ? nd_model_edge(job->plan->model, doubtful)->name : NULL;
    if (status == ND_OK && nd_explain_needs_reach(job, exam->device, exam->step, &size))
        status = find_past(exam, own, &size, err);
    return status == ND_OK ? nd_explain_accuse(job, exam->device, exam->step, &size, &diagnosis, err) : status;
}

/* Known arithmetic after all: nothing of it is left unexplained. */
static enum nd_status follow_rounding(const struct nd_exam *exam, const char *text, struct nd_error *err)
{
    struct nd_explained_unit *unit = &exam->job->out->devices[exam->device].units[exam->step];
    unit->n_unexplained = 0;
    unit->explained_fraction = 1;
    return nd_explain_follow(unit, "rounded-twice", text, err);
}

/* Whether what was recorded of an input is wrong, and not the layer. */
static enum nd_status try_records(struct nd_exam *exam, struct nd_explain_record *record, struct nd_error *err)
{
    const struct nd_explain_job *job = exam->job;
    struct nd_exam_innocence innocence;
    enum nd_status status =
        nd_exam_try_remade(exam, nd_explain_allowance(job, exam->device, exam->step), &innocence, err);
    if (status != ND_OK || innocence.input == NULL)
        return status;
    *record = (struct nd_explain_record){.device = exam->device,
                                         .step = job->plan->step_of_edge[innocence.input->edge],
                                         .reader = exam->step,
                                         .n_wrong = innocence.input->n_wrong,
                                         .n = innocence.input->n,
                                         .n_mended = innocence.n_mended,
                                         .is_exact = innocence.is_exact};
    return nd_explain_acquit_reader(job, record, err);
}

/* The exam is given job, reader, device, step and is_open. record: what it shows, or as it was. */
static enum nd_status diagnose_unit(struct nd_exam *exam, struct nd_explain_record *record,
                                    struct nd_error *err)
{
    enum nd_status status = nd_exam_make(exam, err);
    if (status == ND_OK)
        status = nd_exam_collect(exam, err);
    char text[ND_ROUNDED_TWICE_TEXT_BYTES];
    bool rounds_twice = status == ND_OK && nd_explain_rounds_twice(exam, text);
    if (rounds_twice)
        status = follow_rounding(exam, text, err);
    else if (status == ND_OK)
        status = try_records(exam, record, err);
    bool is_settled = rounds_twice || record->step != SIZE_MAX;
    const struct nd_exam own = *exam;
    if (status == ND_OK && !is_settled)
        status = try_forced(exam, &own, err);
    if (status == ND_OK && !is_settled)
        status = diagnose(exam, &own, err);
    nd_exam_deinit(exam);
    return status;
}

/* Values that are further off than float arithmetic of any kind brings a quantiser. */
static size_t count_past(const struct nd_exam *exam, double allowance)
{
    /* LSB of 8 bits, and of 16 in half precision (11 bits); chosen: twice what that makes. */
    static const double rounded = 1, rounded_wide = 32;
    const struct nd_edge *edge = nd_plan_edge(exam->job->plan, exam->step);
    double most = fmax(allowance, nd_dtype_size_bytes(edge->dtype) > 1 ? rounded_wide : rounded);
    size_t n = 0;
    for (size_t i = 0; i < exam->n_samples * exam->n; i++)
        n += isfinite(exam->values[i]) && fabs(exam->codes[i] - exam->expected[i]) > most;
    return n;
}

static enum nd_status diagnose_of_input(struct nd_input_exam *input, struct nd_error *err)
{
    const struct nd_exam *exam = &input->exam;
    const struct nd_explain_job *job = exam->job;
    struct nd_explain_error_size size = measure(exam);
    struct nd_evidence evidence = evidence_of(exam);
    evidence.inputs_repeat_same = true;
    evidence.hypotheses = input->hypotheses;
    evidence.n_hypotheses = input->n_hypotheses;
    struct nd_diagnosis diagnosis;
    size.n_past = count_past(exam, evidence.noise);
    enum nd_status status = nd_diagnose(&evidence, &diagnosis, err);
    return status == ND_OK ? nd_explain_accuse(job, exam->device, exam->step, &size, &diagnosis, err) : status;
}

/* Of a quantiser of the model's inputs: its exact values are the probe's floats. */
static enum nd_status diagnose_input(const struct nd_explain_job *job, struct nd_reader *reader, size_t device,
                                     size_t step, struct nd_error *err)
{
    struct nd_input_exam input = {.exam = {.job = job, .reader = reader, .device = device, .step = step}};
    struct nd_explained_unit *unit = &job->out->devices[device].units[step];
    enum nd_status status = nd_input_exam_run(&input, err);
    unit->n_unexplained = unit->local.n_differing;
    if (status == ND_OK && input.follows != NULL)
        status = nd_explain_follow(unit, input.why, input.follows[0] != '\0' ? input.follows : NULL, err);
    else if (status == ND_OK)
        status = diagnose_of_input(&input, err);
    if (unit->state == ND_LAYER_FOLLOWS)
        unit->n_unexplained = 0;
    nd_input_exam_deinit(&input);
    return status;
}

/* The unit to look at after `last` (SIZE_MAX: the first) in order of falling effect; of equals the earlier. */
static size_t next_worst(const struct nd_explain_job *job, size_t d, size_t last)
{
    const struct nd_explained_unit *units = job->out->devices[d].units;
    size_t best = SIZE_MAX;
    double limit = last != SIZE_MAX ? nd_explain_badness(&units[last]) : HUGE_VAL;
    for (size_t s = 0; s < job->plan->n_steps; s++) {
        double x = nd_explain_badness(&units[s]);
        bool is_next = last == SIZE_MAX || x < limit || (x == limit && s > last);
        if (nd_explain_needs_exam(job, d, s) && !nd_explain_is_input_quantiser(job->plan, s) && is_next &&
            (best == SIZE_MAX || x > nd_explain_badness(&units[best])))
            best = s;
    }
    return best;
}

/* ---- all of them ---- */

struct task {
    size_t device, step;
    struct nd_explain_record record; /* what it shows of one */
};

/* Each task writes what is said of its own layer, and reads nothing that another writes. */
struct team {
    const struct nd_explain_job *job;
    struct task *tasks;
    size_t n_tasks;
    bool *is_open;             /* [n_devices * n_steps] layers that nothing explained before */
    struct nd_reader *readers; /* [n_threads] of the plan */
};

static void add_task(struct team *team, size_t device, size_t step)
{
    team->tasks[team->n_tasks++] = (struct task){device, step, {.step = SIZE_MAX}};
}

static void list_device(struct team *team, size_t d)
{
    const struct nd_explain_job *job = team->job;
    bool *is_open = &team->is_open[d * job->plan->n_steps];
    for (size_t s = 0; s < job->plan->n_steps; s++) {
        enum nd_layer_state state = job->out->devices[d].units[s].state;
        is_open[s] = state == ND_LAYER_UNEXPLAINED || state == ND_LAYER_FAULTY;
        if (nd_explain_needs_exam(job, d, s) && nd_explain_is_input_quantiser(job->plan, s))
            add_task(team, d, s); /* these are few, and cheap */
    }
    size_t step = SIZE_MAX, n = 0;
    while (n++ < MOST_UNITS && (step = next_worst(job, d, step)) != SIZE_MAX)
        add_task(team, d, step);
}

static enum nd_status run_task(void *context, size_t worker, size_t i, struct nd_error *err)
{
    struct team *team = context;
    const struct nd_explain_job *job = team->job;
    struct task *task = &team->tasks[i];
    struct nd_reader *reader = &team->readers[worker];
    enum nd_status status = reader->plan == NULL ? nd_reader_init(reader, job->plan, err) : ND_OK;
    if (status != ND_OK)
        return status;
    if (nd_explain_is_input_quantiser(job->plan, task->step))
        return diagnose_input(job, reader, task->device, task->step, err);
    struct nd_exam exam = {.job = job,
                           .reader = reader,
                           .device = task->device,
                           .step = task->step,
                           .is_open = &team->is_open[task->device * job->plan->n_steps]};
    return diagnose_unit(&exam, &task->record, err);
}

enum nd_status nd_explain_diagnose(const struct nd_explain_job *job, struct nd_error *err)
{
    const struct nd_plan *plan = job->plan;
    struct team team = {.job = job,
                        .tasks = nd_calloc(plan->n_devices * plan->n_steps, sizeof *team.tasks),
                        .is_open = nd_calloc(plan->n_devices * plan->n_steps, sizeof *team.is_open),
                        .readers = nd_calloc(plan->n_threads, sizeof *team.readers)};
    struct nd_error local = {0};
    enum nd_status status =
        team.tasks != NULL && team.is_open != NULL && team.readers != NULL ? ND_OK : nd_fail_memory(&local);
    if (status == ND_OK)
        status = nd_explain_settle_layers(job, &local);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        if (!plan->sources[d].is_failed)
            list_device(&team, d);
    if (status == ND_OK)
        status = nd_parallel_for(plan->n_threads, team.n_tasks, run_task, &team, &local);
    for (size_t i = 0; i < team.n_tasks && status == ND_OK; i++)
        if (team.tasks[i].record.step != SIZE_MAX)
            status = nd_explain_blame_record(job, &team.tasks[i].record, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    for (size_t i = 0; team.readers != NULL && i < plan->n_threads; i++)
        nd_reader_deinit(&team.readers[i]);
    free(team.tasks);
    free(team.is_open);
    free(team.readers);
    return status;
}
