/* How far inputs can bring the values of a unit: what rounding and clipping took from them is put back, this
 * way and that. */
#include "explain/exam/diagnose_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "core/random.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/exam/exam.h"
#include "explain/exam/hypotheses.h"
#include "explain/exam/rounded_twice.h"
#include "explain/verdict/health.h"

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
    struct nd_reader *r = exam->reader;
    const struct nd_model_unit *unit = nd_plan_unit(exam->job->plan, exam->step);
    uint64_t random = pattern * 1000003 + exam->slot;
    for (size_t k = 0; k < unit->n_inputs; k++) {
        size_t edge = unit->inputs[k];
        bool is_first = true;
        for (size_t before = 0; before < k; before++)
            is_first = is_first && unit->inputs[before] != edge;
        if (is_first && r->given[edge].shape.rank >= 0 && nd_dtype_is_integer(r->given[edge].dtype))
            move_input(&r->given[edge], nd_model_edge(exam->job->plan->model, edge), pattern, &random);
    }
}

/* How far each value of the unit moves when what it reads is moved within what rounding, and clipping, may have
 * taken from it: reach[n_samples * n], in LSB. */
static enum nd_status nd_exam_find_reach(struct nd_exam *exam, double *reach, struct nd_error *err)
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
                status = nd_exam_run(exam, exam->edge, k == 0 ? still : moved, err);
        }
        for (size_t i = 0; i < n && k > 0; i++)
            reach[i] = fmax(reach[i], fabs(moved[i] - still[i]));
    }
    free(still);
    free(moved);
    return status;
}

/* ---- which edges ---- */

/* The input of the model that the edge quantises, in whatever shape, or SIZE_MAX. */
static size_t input_of(const struct nd_plan *plan, size_t step)
{
    size_t input = nd_exact_input_behind(plan->graph, plan->steps[step].edge), n_input, n_edge;
    if (input == SIZE_MAX)
        return SIZE_MAX;
    const struct nd_model_io *io = nd_model_input(plan->model, input);
    bool is_whole = io->dtype == ND_DTYPE_F32 && nd_shape_n_elems(&io->shape, &n_input, NULL) == ND_OK &&
                    nd_shape_n_elems(&plan->shapes[step], &n_edge, NULL) == ND_OK && n_input == n_edge;
    return is_whole ? input : SIZE_MAX;
}

bool nd_explain_is_input_quantiser(const struct nd_plan *plan, size_t step)
{
    const struct nd_edge *edge = nd_plan_edge(plan, step);
    return nd_dtype_is_integer(edge->dtype) && nd_dtype_size_bytes(edge->dtype) <= 2 && edge->quant.n > 0 &&
           input_of(plan, step) != SIZE_MAX;
}

/* ---- arithmetic that is known ---- */

enum way { BY_DIVISION, BY_PRODUCT, BY_HALF, BY_DOUBLE };

struct arithmetic {
    enum way way;
    enum nd_rounding rounding;
    const char *text;
};

/* Division in float32, half to even, is ONNX's. The HTP goes through half precision, or multiplies by 1 /
 * scale, and rounds half away from zero. */
static const struct arithmetic arithmetics[ND_N_INPUT_ARITHMETICS] = {
    {BY_DIVISION, ND_ROUND_HALF_EVEN, NULL},
    {BY_DIVISION, ND_ROUND_HALF_AWAY, "ties are rounded half away from zero, not half to even: no fault"},
    {BY_DIVISION, ND_ROUND_HALF_UP, "ties are rounded half up, not half to even: no fault"},
    {BY_DIVISION, ND_ROUND_HALF_DOWN, "ties are rounded half down, not half to even: no fault"},
    {BY_DOUBLE, ND_ROUND_HALF_EVEN, "divided exactly, not in float32"},
    {BY_PRODUCT, ND_ROUND_HALF_EVEN, "multiplied by 1 / scale in float32, not divided by the scale"},
    {BY_PRODUCT, ND_ROUND_HALF_AWAY,
     "multiplied by 1 / scale in float32 and rounded half away from zero, as the HTP does"},
    {BY_HALF, ND_ROUND_HALF_AWAY, "through half precision and rounded half away from zero, as the HTP does"},
};

/* To 11 bits, ties to even. What is too small for a normal number is 0 steps either way. */
static double to_half(double x)
{
    static const double bits = 0x1p11;
    int exponent;
    double mantissa = frexp(x, &exponent);
    return isfinite(x) ? ldexp(rint(mantissa * bits) / bits, exponent) : x;
}

double nd_input_arithmetic(size_t arithmetic, float x, float scale)
{
    const struct arithmetic *a = &arithmetics[arithmetic];
    const float quotient = x / scale, product = x * (1.0F / scale);
    switch (a->way) {
    case BY_DIVISION:
        return nd_round_value((double)quotient, a->rounding);
    case BY_PRODUCT:
        return nd_round_value((double)product, a->rounding);
    case BY_HALF:
        return nd_round_value(to_half((double)quotient), a->rounding);
    case BY_DOUBLE:
        break;
    }
    return nd_round_value((double)x / (double)scale, a->rounding);
}

const char *nd_input_arithmetic_text(size_t arithmetic)
{
    return arithmetics[arithmetic].text;
}

/* ---- faults ---- */

static const struct {
    enum nd_fault_kind kind;
    const char *text;
} faults[ND_N_INPUT_FAULTS] = {
    [ND_INPUT_TO_ZERO] = {ND_FAULT_ROUNDING, "truncated toward zero, not rounded"},
    [ND_INPUT_CODE_CUT] = {ND_FAULT_ROUNDING,
                           "truncated toward zero after the zero point is added, not rounded"},
    [ND_INPUT_FLOOR] = {ND_FAULT_ROUNDING, "rounded down, not to the nearest"},
    [ND_INPUT_CEIL] = {ND_FAULT_ROUNDING, "rounded up, not to the nearest"},
    [ND_INPUT_MAGNITUDE] = {ND_FAULT_MAGNITUDE,
                            "negative values are stored as their magnitude: the sign is dropped"},
};

double nd_input_fault_code(enum nd_input_fault fault, double steps, double zero_point)
{
    switch (fault) {
    case ND_INPUT_TO_ZERO:
        return trunc(steps) + zero_point;
    case ND_INPUT_CODE_CUT:
        return trunc(steps + zero_point) + 0.0; /* never -0 */
    case ND_INPUT_FLOOR:
        return floor(steps) + zero_point;
    case ND_INPUT_CEIL:
        return ceil(steps) + zero_point;
    case ND_INPUT_MAGNITUDE:
        break;
    }
    return rint(fabs(steps)) + zero_point;
}

/* ---- the examination ---- */

struct counts {
    size_t n_wrong[ND_N_INPUT_ARITHMETICS];
    size_t n_strange; /* codes that none of them gives, nor the doubt of float32 */
};

static enum nd_status make_room(struct nd_input_exam *input, struct nd_error *err)
{
    struct nd_exam *exam = &input->exam;
    enum nd_status status = nd_exam_size(exam, err);
    if (status != ND_OK)
        return status;
    size_t n = exam->n_samples * exam->n;
    exam->codes = nd_calloc(n, sizeof *exam->codes);
    exam->values = nd_calloc(n, sizeof *exam->values);
    exam->expected = nd_calloc(n, sizeof *exam->expected);
    exam->is_wanted = nd_calloc(exam->job->plan->n_steps, sizeof *exam->is_wanted);
    bool is_made =
        exam->codes != NULL && exam->values != NULL && exam->expected != NULL && exam->is_wanted != NULL;
    if (is_made) {
        exam->is_wanted[exam->step] =
            true; /* the reader leaves all other tensors of the captures where they are */
        exam->reader->is_wanted = exam->is_wanted;
    }
    for (size_t f = 0; f < ND_N_INPUT_FAULTS; f++) {
        input->faults[f] = nd_calloc(n, sizeof **input->faults);
        is_made = is_made && input->faults[f] != NULL;
    }
    return is_made ? ND_OK : nd_fail_memory(err);
}

/* Half a step, as far as float32 can tell: four units in the last place; chosen. */
static bool is_beside_tie(double steps, double whole)
{
    return fabs(fabs(steps - whole) - 0.5) <= fabs(steps) * 0x1p-21;
}

/* One sample: what each arithmetic makes of it. */
static void count_sample(struct nd_input_exam *input, size_t which, size_t arithmetic, struct counts *counts)
{
    struct nd_exam *exam = &input->exam;
    const struct nd_reader *r = exam->reader;
    const struct nd_edge *edge = nd_plan_edge(exam->job->plan, exam->step);
    size_t at = exam->slot * exam->n;
    double low, high;
    nd_code_range(edge->dtype, &low, &high);
    for (size_t i = 0; i < exam->n; i++) {
        size_t channel = nd_exact_channel(&edge->quant, &exam->job->plan->shapes[exam->step], i);
        float x = (float)r->inputs[which].x[i], scale = edge->quant.scale[channel];
        double zero = (double)edge->quant.zero_point[channel], steps = (double)(x / scale);
        double code = r->given[exam->edge].x[i];
        bool is_strange = isfinite(x);
        exam->codes[at + i] = code;
        exam->values[at + i] = steps + zero;
        for (size_t f = 0; f < ND_N_INPUT_FAULTS; f++)
            input->faults[f][at + i] =
                fmin(fmax(nd_input_fault_code((enum nd_input_fault)f, steps, zero), low), high);
        for (size_t a = 0; a < ND_N_INPUT_ARITHMETICS; a++) {
            double made = fmin(fmax(nd_input_arithmetic(a, x, scale) + zero, low), high);
            counts->n_wrong[a] += made != code && isfinite(x);
            is_strange = is_strange && made != code;
            if (a == arithmetic)
                exam->expected[at + i] = made;
        }
        counts->n_strange += is_strange && !is_beside_tie(steps, code - zero);
    }
}

static enum nd_status take_samples(struct nd_input_exam *input, size_t arithmetic, struct counts *counts,
                                   struct nd_error *err)
{
    struct nd_exam *exam = &input->exam;
    size_t which = input_of(exam->job->plan, exam->step);
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < exam->n_samples && status == ND_OK; i++) {
        status = nd_exam_load_sample(exam, i, err);
        if (status == ND_OK)
            count_sample(input, which, arithmetic, counts);
    }
    return status;
}

/* Several are the same where the zero point is 0, or no value is negative: the first says it. */
static void list_hypotheses(struct nd_input_exam *input)
{
    size_t n = input->exam.n_samples * input->exam.n;
    input->n_hypotheses = 0;
    for (size_t f = 0; f < ND_N_INPUT_FAULTS; f++) {
        bool is_new = true;
        for (size_t before = 0; before < f; before++)
            is_new =
                is_new && memcmp(input->faults[f], input->faults[before], n * sizeof *input->faults[f]) != 0;
        if (is_new)
            input->hypotheses[input->n_hypotheses++] =
                (struct nd_hypothesis){faults[f].kind, faults[f].text, input->faults[f]};
    }
}

static enum nd_status nd_input_exam_run(struct nd_input_exam *input, struct nd_error *err)
{
    struct counts counts = {.n_strange = 0}, again = {.n_strange = 0};
    size_t best = 0;
    enum nd_status status = make_room(input, err);
    if (status == ND_OK)
        status = take_samples(input, 0, &counts, err);
    for (size_t a = 1; a < ND_N_INPUT_ARITHMETICS; a++)
        best = counts.n_wrong[a] < counts.n_wrong[best] ? a : best;
    if (status == ND_OK && best > 0)
        status = take_samples(input, best, &again, err);
    if (status == ND_OK)
        list_hypotheses(input);
    if (status != ND_OK || counts.n_strange > 0)
        return status;
    bool is_whole = counts.n_wrong[best] == 0;
    input->why = is_whole && best > 0 ? "arithmetic" : is_whole ? "exact" : "float-rounding";
    input->follows = is_whole && best > 0 ? arithmetics[best].text : "";
    return ND_OK;
}

static void nd_input_exam_deinit(struct nd_input_exam *input)
{
    nd_exam_deinit(&input->exam);
    for (size_t f = 0; f < ND_N_INPUT_FAULTS; f++)
        free(input->faults[f]);
}

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
