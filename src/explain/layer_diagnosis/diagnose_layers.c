/* How far inputs can bring the values of a layer: what rounding and clipping took from them is put back, this
 * way and that. */
#include <math.h>
#include <stdio.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "core/random.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"
#include "explain/verdict/health.h"

/* ---- means and sums that are rounded twice: an innocent way to be a step off, which many kernels have
 * ---- */

enum { ND_ROUNDED_TWICE_TEXT_BYTES = 160 };

/* What a device may have computed in a layer instead: the rival values that diagnosis is shown. */

static void ND_PRINTF(4, 5) add_hypothesis(struct nd_layer_diagnosis_hypotheses *h, enum nd_fault_kind kind,
                                           const double *qvalues, const char *fmt, ...)
{
    ND_PRINT_ARGUMENTS(h->texts[h->n], fmt);
    h->items[h->n] = (struct nd_hypothesis){kind, h->texts[h->n], qvalues};
    h->n++;
}

static void add_pairs(const struct nd_layer_diagnosis *diagnosis, struct nd_layer_diagnosis_hypotheses *h)
{
    char text[ND_PAIR_SUM_TEXT_BYTES];
    bool is_wrapping = nd_pair_sums()[diagnosis->pairs.chosen].is_wrapping;
    nd_explain_pairs_text(&diagnosis->pairs, text);
    add_hypothesis(h, is_wrapping ? ND_FAULT_PAIR_WRAP : ND_FAULT_PAIR_SATURATION, diagnosis->pairs.qvalues,
                   "%s", text);
}

static void add_constants(const struct nd_layer_diagnosis *diagnosis, struct nd_layer_diagnosis_hypotheses *h)
{
    const struct nd_explain_constants *constants = &diagnosis->constants;
    add_hypothesis(h, nd_fault_of_constants(constants->tried[constants->chosen].change.kind),
                   constants->qvalues, "%s", constants->text);
}

/* Of a layer diagnosis that has collected its quantised values. The struct need not be initialised. */
static void layer_diagnosis_make_hypotheses(const struct nd_layer_diagnosis *diagnosis,
                                            struct nd_layer_diagnosis_hypotheses *h)
{
    const struct nd_model *model = diagnosis->job->plan->model;
    char name[ND_ROUNDING_RULE_NAME_BYTES], usual[ND_ROUNDING_RULE_NAME_BYTES];
    bool is_float =
        diagnosis->other.kind == ND_ROUNDED_AS_FLOAT32 ||
        (diagnosis->other.kind == ND_ROUNDED_ONCE && diagnosis->other.rounding <= ND_ROUND_HALF_DOWN);
    /* Two rules for ties alone: what differs lies on ties. */
    bool is_tie = diagnosis->layer_arithmetic == NULL && diagnosis->usual.kind == ND_ROUNDED_ONCE &&
                  diagnosis->other.kind == ND_ROUNDED_ONCE && diagnosis->usual.rounding <= ND_ROUND_HALF_DOWN &&
                  diagnosis->other.rounding <= ND_ROUND_HALF_DOWN;
    h->n = 0;
    if (diagnosis->has_other && is_tie)
        add_hypothesis(h, ND_FAULT_FALLBACK, diagnosis->others, "ties are rounded %s, not %s, as floats may be",
                       nd_rounding_rule_name(&diagnosis->other, name),
                       nd_rounding_rule_name(&diagnosis->usual, usual));
    else if (diagnosis->has_other)
        add_hypothesis(h, is_float ? ND_FAULT_FALLBACK : ND_FAULT_ROUNDING, diagnosis->others,
                       is_float ? "rounded %s, as floats are" : "rounded by %s",
                       nd_rounding_rule_name(&diagnosis->other, name));
    for (size_t k = 0; k < diagnosis->n_fusions; k++)
        add_hypothesis(h, ND_FAULT_FUSION, diagnosis->fusions[k], "fused with '%.120s'",
                       nd_model_tensor(model, diagnosis->fused[k])->name);
    for (size_t k = 0; k < diagnosis->n_operands && diagnosis->forced == 0; k++)
        add_hypothesis(h, ND_FAULT_STALE_OPERAND, diagnosis->stale[k],
                       "computed with '%.100s' of the previous sample",
                       nd_model_tensor(model, diagnosis->operands[k])->name);
    if (diagnosis->pairs.qvalues != NULL && diagnosis->forced == 0)
        add_pairs(diagnosis, h);
    if (diagnosis->constants.qvalues != NULL && diagnosis->forced == 0)
        add_constants(diagnosis, h);
    if (diagnosis->attribute.qvalues != NULL)
        add_hypothesis(h, ND_FAULT_OTHER_ATTRIBUTE, diagnosis->attribute.qvalues, "%s",
                       diagnosis->attribute.text);
}

/* Whether a mean or sum is rounded twice. docs/reference/diagnoses.md. */

/* A value that doubles put this near to a half, relative to it, is that half: the exact one is a sum of
 * quantised values over a count. */
static const double nearly = 0x1p-40;

static double settle_half(double v)
{
    double half = rint(v * 2) / 2;
    return fabs(v - half) <= nearly * fmax(fabs(v), 1) ? half : v;
}

/* ratio: a step of the input in steps of the output. */
static bool gives_all(const struct nd_layer_diagnosis *diagnosis, double ratio, enum nd_rounding first,
                      enum nd_rounding second)
{
    double low, high, zero = (double)nd_layer_diagnosis_quant(diagnosis)->zero_point[0];
    nd_qvalue_range(nd_plan_tensor(diagnosis->job->plan, diagnosis->step)->dtype, &low, &high);
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n; i++) {
        if (!isfinite(diagnosis->values[i]))
            continue;
        double mean = nd_round_value(settle_half((diagnosis->values[i] - zero) / ratio), first);
        double qvalue = nd_round_value(settle_half(mean * ratio), second) + zero;
        if (fmin(fmax(qvalue, low), high) != diagnosis->qvalues[i])
            return false;
    }
    return true;
}

static bool rounds_to_input(const struct nd_layer_diagnosis *diagnosis, const struct nd_tensor *input,
                            char *text)
{
    const struct nd_quant *to = nd_layer_diagnosis_quant(diagnosis);
    if (!nd_dtype_is_integer(input->dtype) || input->quant.n != 1 || to->n != 1 || !(input->quant.scale[0] > 0))
        return false;
    double ratio = (double)input->quant.scale[0] / (double)to->scale[0];
    for (int first = ND_ROUND_HALF_EVEN; first <= ND_ROUND_TO_ZERO; first++)
        for (int second = ND_ROUND_HALF_EVEN; second <= ND_ROUND_HALF_DOWN; second++) {
            if (!gives_all(diagnosis, ratio, (enum nd_rounding)first, (enum nd_rounding)second))
                continue;
            snprintf(text, ND_ROUNDED_TWICE_TEXT_BYTES,
                     "rounded twice: %s to the scale of '%.60s', then to its own",
                     nd_rounding_name((enum nd_rounding)first), input->name);
            return true;
        }
    return false;
}

/* Whether one of two ways gives every value of the layer that was collected, which is a mean or a sum of one
 * tensor: to the scale of the input (a mean of whole numbers, divided in integers), and then to that of the
 * output; to some binary places of the output's step, and then to a whole quantised value (double:N of
 * arithmetic/exact/linear/rounding.h). Only of devices whose arithmetic the capture does not state. `text` says
 * which. ND_ERR_MEMORY is not possible: nothing is allocated. */
static bool explain_rounds_twice(const struct nd_layer_diagnosis *diagnosis,
                                 char text[ND_ROUNDED_TWICE_TEXT_BYTES])
{
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, diagnosis->step);
    if (!nd_layer_is_mean(layer) || job->observations->layer_arithmetic[diagnosis->device] != SIZE_MAX ||
        job->plan->sources[diagnosis->device].expectation != ND_EXPECT_ANY ||
        nd_is_emulated(job->plan->sources[diagnosis->device].capture))
        return false;
    if (diagnosis->has_other && diagnosis->other.kind == ND_ROUNDED_TWICE) {
        snprintf(text, ND_ROUNDED_TWICE_TEXT_BYTES,
                 "rounded twice: to %d binary place%s of a step, then to a whole one", diagnosis->other.n_bits,
                 diagnosis->other.n_bits == 1 ? "" : "s");
        return true;
    }
    return rounds_to_input(diagnosis, nd_model_tensor(job->plan->model, layer->inputs[0]), text);
}

/* Half a step up or down: all up, all down, or by chance. */
static double step_of(size_t pattern, uint64_t *random)
{
    if (pattern < 2)
        return pattern == 0 ? 0.5 : -0.5;
    return nd_random_next(random) >> 30 != 0 ? 0.5 : -0.5; /* the highest of its 31 bits */
}

/* What such an operator leaves at the end of its quantised values was not cut off. */
static bool ends_by_itself(const char *op_types)
{
    static const char *const names[] = {"Relu", "Clip", "Sigmoid", "Softmax", "HardSwish"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(op_types, names[i]) != NULL)
            return true;
    return false;
}

static void move_input(struct nd_array *qvalues, const struct nd_tensor *tensor, size_t pattern,
                       uint64_t *random)
{
    static const double cut_off = 0.25; /* of the range; chosen: what is clipped was hardly further out */
    double low, high;
    bool is_cut = !ends_by_itself(tensor->op_types);
    nd_qvalue_range(qvalues->dtype, &low, &high);
    for (size_t i = 0; i < qvalues->n; i++) {
        double x = qvalues->x[i], out = is_cut && x == low ? -1 : is_cut && x == high ? 1 : 0;
        qvalues->x[i] += out != 0 ? out * cut_off * (high - low) : step_of(pattern, random);
    }
}

static void move_inputs(struct nd_layer_diagnosis *diagnosis, size_t pattern)
{
    struct nd_reader *r = diagnosis->reader;
    const struct nd_model_layer *layer = nd_plan_layer(diagnosis->job->plan, diagnosis->step);
    uint64_t random = pattern * 1000003 + diagnosis->slot;
    for (size_t k = 0; k < layer->n_inputs; k++) {
        size_t tensor = layer->inputs[k];
        const struct nd_tensor *of_model = nd_model_tensor(diagnosis->job->plan->model, tensor);
        bool is_first = true;
        for (size_t before = 0; before < k; before++)
            is_first = is_first && layer->inputs[before] != tensor;
        if (is_first && r->given[tensor].shape.rank >= 0 && of_model->quant.n > 0 &&
            nd_dtype_is_of_qvalues(r->given[tensor].dtype))
            move_input(&r->given[tensor], of_model, pattern, &random);
    }
}

/* How far each value of the layer moves when what it reads is moved within what rounding, and clipping, may
 * have taken from it: reach[n_samples * n], in LSB. */
static enum nd_status nd_layer_diagnosis_find_reach(struct nd_layer_diagnosis *diagnosis, double *reach,
                                                    struct nd_error *err)
{
    enum { PATTERNS = 4 };
    size_t n = diagnosis->n_samples * diagnosis->n;
    ND_FREED double *still = nd_calloc(n, sizeof *still), *moved = nd_calloc(n, sizeof *moved);
    ND_TRY_MEMORY(still != NULL && moved != NULL, err);
    for (size_t k = 0; k <= PATTERNS; k++) {
        for (size_t i = 0; i < diagnosis->n_samples; i++) {
            ND_TRY(nd_layer_diagnosis_load_sample(diagnosis, i, err));
            if (k > 0)
                move_inputs(diagnosis, k - 1);
            ND_TRY(nd_layer_diagnosis_run(diagnosis, diagnosis->tensor, k == 0 ? still : moved, err));
        }
        for (size_t i = 0; i < n && k > 0; i++)
            reach[i] = fmax(reach[i], fabs(moved[i] - still[i]));
    }
    return ND_OK;
}

/* ---- which tensors ---- */

/* ---- arithmetic that is known ---- */

enum method { BY_DIVISION, BY_PRODUCT, BY_HALF, BY_DOUBLE };

struct arithmetic {
    enum method method;
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
    switch (a->method) {
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
    [ND_INPUT_QVALUE_CUT] = {ND_FAULT_ROUNDING,
                             "truncated toward zero after the zero point is added, not rounded"},
    [ND_INPUT_FLOOR] = {ND_FAULT_ROUNDING, "rounded down, not to the nearest"},
    [ND_INPUT_CEIL] = {ND_FAULT_ROUNDING, "rounded up, not to the nearest"},
    [ND_INPUT_MAGNITUDE] = {ND_FAULT_MAGNITUDE,
                            "negative values are stored as their magnitude: the sign is dropped"},
};

double nd_input_fault_qvalue(enum nd_input_fault fault, double steps, double zero_point)
{
    switch (fault) {
    case ND_INPUT_TO_ZERO:
        return trunc(steps) + zero_point;
    case ND_INPUT_QVALUE_CUT:
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
    size_t n_strange; /* quantised values that none of them gives, nor the doubt of float32 */
};

static enum nd_status make_room(struct nd_input_layer_diagnosis *input, struct nd_error *err)
{
    struct nd_layer_diagnosis *diagnosis = &input->diagnosis;
    ND_TRY(nd_layer_diagnosis_size(diagnosis, err));
    size_t n = diagnosis->n_samples * diagnosis->n;
    diagnosis->qvalues = nd_calloc(n, sizeof *diagnosis->qvalues);
    diagnosis->values = nd_calloc(n, sizeof *diagnosis->values);
    diagnosis->expected = nd_calloc(n, sizeof *diagnosis->expected);
    diagnosis->is_wanted = nd_calloc(diagnosis->job->plan->n_steps, sizeof *diagnosis->is_wanted);
    bool is_made = diagnosis->qvalues != NULL && diagnosis->values != NULL && diagnosis->expected != NULL &&
                   diagnosis->is_wanted != NULL;
    if (is_made) {
        diagnosis->is_wanted[diagnosis->step] =
            true; /* the reader leaves all other tensors of the captures where they are */
        diagnosis->reader->is_wanted = diagnosis->is_wanted;
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
static void count_sample(struct nd_input_layer_diagnosis *input, size_t which, size_t arithmetic,
                         struct counts *counts)
{
    struct nd_layer_diagnosis *diagnosis = &input->diagnosis;
    const struct nd_reader *r = diagnosis->reader;
    const struct nd_tensor *tensor = nd_plan_tensor(diagnosis->job->plan, diagnosis->step);
    size_t at = diagnosis->slot * diagnosis->n;
    double low, high;
    nd_qvalue_range(tensor->dtype, &low, &high);
    for (size_t i = 0; i < diagnosis->n; i++) {
        size_t channel = nd_exact_channel(&tensor->quant, &diagnosis->job->plan->shapes[diagnosis->step], i);
        float x = (float)r->inputs[which].x[i], scale = tensor->quant.scale[channel];
        double zero = (double)tensor->quant.zero_point[channel], steps = (double)(x / scale);
        double qvalue = r->given[diagnosis->tensor].x[i];
        bool is_strange = isfinite(x);
        diagnosis->qvalues[at + i] = qvalue;
        diagnosis->values[at + i] = steps + zero;
        for (size_t f = 0; f < ND_N_INPUT_FAULTS; f++)
            input->faults[f][at + i] =
                fmin(fmax(nd_input_fault_qvalue((enum nd_input_fault)f, steps, zero), low), high);
        for (size_t a = 0; a < ND_N_INPUT_ARITHMETICS; a++) {
            double made = fmin(fmax(nd_input_arithmetic(a, x, scale) + zero, low), high);
            counts->n_wrong[a] += made != qvalue && isfinite(x);
            is_strange = is_strange && made != qvalue;
            if (a == arithmetic)
                diagnosis->expected[at + i] = made;
        }
        counts->n_strange += is_strange && !is_beside_tie(steps, qvalue - zero);
    }
}

static enum nd_status take_samples(struct nd_input_layer_diagnosis *input, size_t arithmetic,
                                   struct counts *counts, struct nd_error *err)
{
    struct nd_layer_diagnosis *diagnosis = &input->diagnosis;
    size_t which = nd_explain_quantised_input(diagnosis->job->plan, diagnosis->step);
    for (size_t i = 0; i < diagnosis->n_samples; i++) {
        ND_TRY(nd_layer_diagnosis_load_sample(diagnosis, i, err));
        count_sample(input, which, arithmetic, counts);
    }
    return ND_OK;
}

static enum nd_status nd_input_layer_diagnosis_run(struct nd_input_layer_diagnosis *input, struct nd_error *err)
{
    struct counts counts = {.n_strange = 0}, again = {.n_strange = 0};
    size_t best = 0;
    ND_TRY(make_room(input, err));
    ND_TRY(take_samples(input, 0, &counts, err));
    for (size_t a = 1; a < ND_N_INPUT_ARITHMETICS; a++)
        best = counts.n_wrong[a] < counts.n_wrong[best] ? a : best;
    if (best > 0)
        ND_TRY(take_samples(input, best, &again, err));
    /* Several are the same where the zero point is 0, or no value is negative: the first says it. */
    size_t n = input->diagnosis.n_samples * input->diagnosis.n;
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
    if (counts.n_strange > 0)
        return ND_OK;
    bool is_whole = counts.n_wrong[best] == 0;
    input->why = is_whole && best > 0 ? "arithmetic" : is_whole ? "exact" : "float-rounding";
    input->follows = is_whole && best > 0 ? arithmetics[best].text : "";
    return ND_OK;
}

enum { MAX_LAYERS = 24 }; /* of a device: those with the greatest effect */

static void count_large(struct nd_explain_error_size *size, double expected, double seen[4])
{
    size_t k = 0;
    size->n_large++;
    while (k < size->n_kinds && seen[k] != expected)
        k++;
    if (k == size->n_kinds && k < 4)
        seen[size->n_kinds++] = expected;
}

/* Against what the device does in such layers. */
static struct nd_explain_error_size measure(const struct nd_layer_diagnosis *diagnosis)
{
    const struct nd_explain_job *job = diagnosis->job;
    double allowance = nd_explain_allowance(job, diagnosis->device, diagnosis->step), mean_square = 0;
    double sums[2] = {0}, squares[2] = {0}, product = 0; /* of what is expected, and of the values */
    double large = ND_EXPLAIN_FAR *
                   fmax(allowance, nd_explain_known_allowance(nd_plan_is_wide(job->plan, diagnosis->step)));
    double seen[4];
    struct nd_explain_error_size size = {.n = 0};
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n; i++) {
        double expected = diagnosis->expected[i], off = fabs(diagnosis->qvalues[i] - expected);
        if (!isfinite(expected) || !isfinite(diagnosis->values[i]))
            continue;
        size.n++;
        size.n_wrong += off > 0;
        size.n_beyond += off > allowance;
        size.n_far += off > ND_EXPLAIN_FAR * allowance;
        if (off > large)
            count_large(&size, expected, seen);
        size.max = fmax(size.max, off);
        mean_square += off * off;
        sums[0] += expected;
        sums[1] += diagnosis->qvalues[i];
        squares[0] += expected * expected;
        squares[1] += diagnosis->qvalues[i] * diagnosis->qvalues[i];
        product += expected * diagnosis->qvalues[i];
    }
    double n = size.n > 0 ? (double)size.n : 1;
    size.signal = fmax(squares[0] / n - (sums[0] / n) * (sums[0] / n), 0);
    double bias = (sums[1] - sums[0]) / n; /* a term is what unknown arithmetic may add */
    size.mean_square = fmax(mean_square / n - bias * bias, 0);
    double variance = fmax(squares[1] / n - (sums[1] / n) * (sums[1] / n), 0);
    if (size.signal > 0 && variance > 0)
        size.correlation = (product / n - sums[0] / n * sums[1] / n) / sqrt(size.signal * variance);
    return size;
}

/* Leaves in `past` the values that are wrong by more than the allowance and twice what their inputs can do. */
static enum nd_status keep_past(struct nd_layer_diagnosis *diagnosis, bool *past, struct nd_error *err)
{
    const struct nd_explain_job *job = diagnosis->job;
    /* Of the largest move that was seen of the value, and of the root mean square of all; chosen: a sum of many
       inputs moves further in one of a million cases than in four tries. */
    static const double of_own = 2, of_all = 4;
    size_t n = diagnosis->n_samples * diagnosis->n;
    ND_FREED double *reach = nd_calloc(n, sizeof *reach);
    double squares = 0;
    ND_TRY_MEMORY(reach != NULL, err);
    ND_TRY(nd_layer_diagnosis_find_reach(diagnosis, reach, err));
    for (size_t i = 0; i < n; i++)
        squares += isfinite(reach[i]) ? reach[i] * reach[i] : 0;
    bool is_any = !nd_explain_is_known(job, diagnosis->device, diagnosis->step) &&
                  nd_explain_forced(job, diagnosis->step) == 0;
    double allowance =
               nd_explain_allowance(job, diagnosis->device, diagnosis->step) * (is_any ? ND_EXPLAIN_FAR : 1),
           all = n > 0 ? sqrt(squares / (double)n) : 0;
    for (size_t i = 0; i < n; i++)
        past[i] = past[i] && fabs(diagnosis->qvalues[i] - diagnosis->expected[i]) >
                                 allowance + of_own * reach[i] + of_all * all;
    return ND_OK;
}

/* How the layer is worked out: as the model says (forced: 0), which is how it was chosen at first, or with
 * encodings that the provider forces. Collects anew. */
static enum nd_status collect_as(struct nd_layer_diagnosis *diagnosis, const struct nd_layer_diagnosis *own,
                                 unsigned forced, struct nd_error *err)
{
    bool is_own = forced == 0;
    diagnosis->forced = forced;
    diagnosis->is_other = is_own && own->is_other;
    diagnosis->has_other = is_own && own->has_other;
    diagnosis->layer_arithmetic = is_own ? own->layer_arithmetic : NULL;
    diagnosis->is_helped = is_own && own->is_helped;
    diagnosis->n_fusions = is_own ? own->n_fusions : 0;
    nd_array_deinit(&diagnosis->made);
    return nd_layer_diagnosis_collect(diagnosis, err);
}

/* Counts the values that are past, whichever encodings are taken. */
static enum nd_status find_past(struct nd_layer_diagnosis *diagnosis, const struct nd_layer_diagnosis *own,
                                struct nd_explain_error_size *size, struct nd_error *err)
{
    size_t n = diagnosis->n_samples * diagnosis->n;
    unsigned can = nd_explain_forced(diagnosis->job, diagnosis->step), first = diagnosis->forced;
    ND_FREED bool *past = nd_calloc(n, sizeof *past);
    ND_TRY_MEMORY(past != NULL, err);
    for (size_t i = 0; i < n; i++)
        past[i] = true;
    ND_TRY(keep_past(diagnosis, past, err));
    for (unsigned forced = 0; forced <= can; forced++) {
        if (forced == first || (forced & ~can) != 0)
            continue;
        ND_TRY(collect_as(diagnosis, own, forced, err));
        ND_TRY(keep_past(diagnosis, past, err));
    }
    for (size_t i = 0; i < n; i++)
        size->n_past += past[i];
    return ND_OK;
}

/* Which encodings the provider forces. */
static enum nd_status say_forced(const struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, diagnosis->step);
    struct nd_strbuf text = {0};
    nd_say_forced(&job->plan->alternatives, job->plan->model, layer,
                  job->plan->steps[diagnosis->step].is_model_output, &text);
    struct nd_explained_layer *out = &job->out->devices[diagnosis->device].layers[diagnosis->step];
    free(out->judgement.follows_text);
    out->judgement.follows_text = nd_strbuf_take(&text);
    return out->judgement.follows_text != NULL ? ND_OK : nd_fail_memory(err);
}

/* Whether encodings that the provider forces, on a chip, halve the largest error or better: then the best are
 * taken. */
static enum nd_status try_forced(struct nd_layer_diagnosis *diagnosis, const struct nd_layer_diagnosis *own,
                                 struct nd_error *err)
{
    const struct nd_explain_job *job = diagnosis->job;
    unsigned can = nd_explain_forced(job, diagnosis->step), best = 0;
    double max = measure(diagnosis).max, least = max / 2;
    if (can == 0 || max <= 1 || job->plan->sources[diagnosis->device].expectation == ND_EXPECT_FLOAT)
        return ND_OK;
    for (unsigned forced = can; forced > 0; forced--) { /* all of them first */
        if ((forced & ~can) != 0)
            continue;
        ND_TRY(collect_as(diagnosis, own, forced, err));
        double largest = measure(diagnosis).max;
        if (largest < least || (largest == least && best == 0)) {
            least = largest;
            best = forced;
        }
    }
    return diagnosis->forced != best ? collect_as(diagnosis, own, best, err) : ND_OK;
}

/* The evidence of a layer and of an input's quantiser alike; the rest is 0. */
static struct nd_evidence evidence_of(const struct nd_layer_diagnosis *diagnosis)
{
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_tensor *tensor = nd_plan_tensor(job->plan, diagnosis->step);
    return (struct nd_evidence){
        .n_samples = diagnosis->n_samples,
        .n = diagnosis->n,
        .shape = job->plan->shapes[diagnosis->step],
        .dtype = tensor->dtype,
        .quant = nd_layer_diagnosis_quant(diagnosis),
        .captured = diagnosis->qvalues,
        .exact = diagnosis->values,
        .expected = diagnosis->expected,
        .noise = nd_explain_allowance(job, diagnosis->device, diagnosis->step),
        .accumulator_step = diagnosis->forced != 0 ? NULL : diagnosis->steps,
        .n_steps = diagnosis->n_steps,
        .repeats_differ = nd_plan_differs_by_run(job->plan, diagnosis->device, diagnosis->step),
    };
}

/* An input whose maker is off by more than its allowance, and of which nobody can say what it should be: the
 * tensor, or SIZE_MAX. *max: by how many LSB. */
static size_t layer_diagnosis_find_doubtful(const struct nd_layer_diagnosis *diagnosis, double *max)
{
    const struct nd_explain_job *job = diagnosis->job;
    size_t arithmetic = job->observations->layer_arithmetic[diagnosis->device];
    for (size_t k = 0; k < diagnosis->n_remade; k++) {
        size_t step = job->plan->step_of_tensor[diagnosis->remade[k].tensor];
        const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, diagnosis->device, step);
        const struct nd_explained_layer *maker = &job->out->devices[diagnosis->device].layers[step];
        bool is_known = nd_explain_is_known(job, diagnosis->device, step) || observed->tally->n_open == 0;
        *max = arithmetic != SIZE_MAX && maker->is_covered ? observed->layers->max[arithmetic]
                                                           : maker->introduced.max;
        if (!is_known && *max > nd_explain_allowance(job, diagnosis->device, step))
            return diagnosis->remade[k].tensor;
    }
    return SIZE_MAX;
}

static enum nd_status diagnose(struct nd_layer_diagnosis *diagnosis, const struct nd_layer_diagnosis *own,
                               struct nd_error *err)
{
    const struct nd_explain_job *job = diagnosis->job;
    struct nd_layer_diagnosis_hypotheses hypotheses;
    struct nd_evidence evidence = evidence_of(diagnosis);
    struct nd_explain_error_size size = measure(diagnosis);
    bool is_off = size.n_beyond >= nd_explain_fewest_beyond(job, diagnosis->device, diagnosis->step);
    if (is_off && diagnosis->forced == 0)
        ND_TRY(nd_layer_diagnosis_find_constants(diagnosis, evidence.noise, err));
    if (is_off && diagnosis->forced == 0 && diagnosis->constants.qvalues == NULL)
        ND_TRY(nd_layer_diagnosis_find_attribute(
            diagnosis,
            fmax(evidence.noise, nd_explain_known_allowance(nd_plan_is_wide(job->plan, diagnosis->step))),
            err));
    layer_diagnosis_make_hypotheses(diagnosis, &hypotheses);
    evidence.inputs_repeat_same = nd_plan_inputs_repeat(job->plan, diagnosis->device, diagnosis->step);
    evidence.hypotheses = hypotheses.items;
    evidence.n_hypotheses = hypotheses.n;
    struct nd_diagnosis found;
    ND_TRY(nd_diagnose(&evidence, &found, err));
    if (diagnosis->forced != 0)
        ND_TRY(say_forced(diagnosis, err));
    size_t doubtful = layer_diagnosis_find_doubtful(diagnosis, &size.doubtful_max);
    size.doubtful = doubtful != SIZE_MAX ? nd_model_tensor(job->plan->model, doubtful)->name : NULL;
    if (nd_explain_needs_reach(job, diagnosis->device, diagnosis->step, &size))
        ND_TRY(find_past(diagnosis, own, &size, err));
    return nd_explain_fault_verdict(job, diagnosis->device, diagnosis->step, &size, &found, err);
}

/* Known arithmetic after all: nothing of it is left unexplained. */
static enum nd_status follow_after_all(const struct nd_layer_diagnosis *diagnosis, const char *why,
                                       const char *text, struct nd_error *err)
{
    struct nd_explained_layer *layer = &diagnosis->job->out->devices[diagnosis->device].layers[diagnosis->step];
    layer->n_unexplained = 0;
    layer->explained_fraction = 1;
    return nd_judge_follows(layer, why, text, err);
}

/* Whether what was recorded of an input is wrong, and not the layer. */
static enum nd_status try_records(struct nd_layer_diagnosis *diagnosis, struct nd_explain_record *record,
                                  struct nd_error *err)
{
    const struct nd_explain_job *job = diagnosis->job;
    struct nd_layer_diagnosis_innocence innocence;
    enum nd_status status = nd_layer_diagnosis_try_remade(
        diagnosis, nd_explain_allowance(job, diagnosis->device, diagnosis->step), &innocence, err);
    if (status != ND_OK || innocence.input == NULL)
        return status;
    *record = (struct nd_explain_record){.device = diagnosis->device,
                                         .step = job->plan->step_of_tensor[innocence.input->tensor],
                                         .reader = diagnosis->step,
                                         .n_wrong = innocence.input->n_wrong,
                                         .n = innocence.input->n,
                                         .n_mended = innocence.n_mended,
                                         .is_exact = innocence.is_exact};
    return nd_explain_acquit_reader(job, record, err);
}

/* Whether the layer is what an integer processor makes of it, which has the arithmetic elsewhere (SIZE_MAX: it
 * is none): every value, or, without an accumulator, that of plain rounding. */
static enum nd_status try_engine(struct nd_layer_diagnosis *diagnosis, size_t engine, bool *follows,
                                 struct nd_error *err)
{
    struct nd_engine_tally tally = {.only = engine + 1};
    char name[ND_ARITHMETIC_NAME_BYTES], text[ND_ARITHMETIC_NAME_BYTES + 32];
    size_t n_arithmetics;
    if (engine == SIZE_MAX)
        return ND_OK;
    enum nd_status status = nd_engine_look(diagnosis, SIZE_MAX, &tally, err);
    bool is_plain = diagnosis->has_other && diagnosis->other.kind == ND_ROUNDED_ONCE &&
                    diagnosis->other.rounding <= ND_ROUND_HALF_DOWN;
    bool is_given = nd_engine_gives(&tally, engine);
    *follows = is_given || (is_plain && tally.n_steps == 0);
    nd_engine_tally_deinit(&tally);
    if (status != ND_OK || !*follows)
        return status;
    nd_arithmetic_name(&nd_arithmetics(&n_arithmetics)[engine], name);
    snprintf(text, sizeof text,
             is_given ? "%s, as integer processors have it" : "rounded once; it is no product", name);
    return follow_after_all(diagnosis, "arithmetic", text, err);
}

/* The layer diagnosis is given job, reader, device, step and is_open. record: what it shows, or as it was. */
static enum nd_status diagnose_layer(struct nd_layer_diagnosis *diagnosis, size_t engine,
                                     struct nd_explain_record *record, struct nd_error *err)
{
    bool is_of_engine = false;
    enum nd_status status = nd_layer_diagnosis_make(diagnosis, err);
    if (status == ND_OK)
        status = try_engine(diagnosis, engine, &is_of_engine, err);
    if (status != ND_OK || is_of_engine) {
        nd_layer_diagnosis_deinit(diagnosis);
        return status;
    }
    status = nd_layer_diagnosis_collect(diagnosis, err);
    char text[ND_ROUNDED_TWICE_TEXT_BYTES];
    bool rounds_twice = status == ND_OK && explain_rounds_twice(diagnosis, text);
    if (rounds_twice)
        status = follow_after_all(diagnosis, "rounded-twice", text, err);
    else if (status == ND_OK)
        status = try_records(diagnosis, record, err);
    bool is_settled = rounds_twice || record->step != SIZE_MAX;
    const struct nd_layer_diagnosis own = *diagnosis;
    if (status == ND_OK && !is_settled)
        status = try_forced(diagnosis, &own, err);
    if (status == ND_OK && !is_settled)
        status = diagnose(diagnosis, &own, err);
    nd_layer_diagnosis_deinit(diagnosis);
    return status;
}

static enum nd_status diagnose_of_input(struct nd_input_layer_diagnosis *input, struct nd_error *err)
{
    const struct nd_layer_diagnosis *diagnosis = &input->diagnosis;
    const struct nd_explain_job *job = diagnosis->job;
    struct nd_explain_error_size size = measure(diagnosis);
    struct nd_evidence evidence = evidence_of(diagnosis);
    evidence.inputs_repeat_same = true;
    evidence.hypotheses = input->hypotheses;
    evidence.n_hypotheses = input->n_hypotheses;
    struct nd_diagnosis found;
    /* Values that are further off than float arithmetic of any kind brings a quantiser. */
    /* LSB of 8 bits, and of 16 in half precision (11 bits); chosen: twice what that makes. */
    static const double rounded = 1, rounded_wide = 32;
    const struct nd_tensor *tensor = nd_plan_tensor(diagnosis->job->plan, diagnosis->step);
    double most = fmax(evidence.noise, nd_dtype_size_bytes(tensor->dtype) > 1 ? rounded_wide : rounded);
    size_t n = 0;
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n; i++)
        n += isfinite(diagnosis->values[i]) && fabs(diagnosis->qvalues[i] - diagnosis->expected[i]) > most;
    size.n_past = n;
    ND_TRY(nd_diagnose(&evidence, &found, err));
    return nd_explain_fault_verdict(job, diagnosis->device, diagnosis->step, &size, &found, err);
}

/* Of a quantiser of the model's inputs: its exact values are the probe's floats. */
static enum nd_status diagnose_input(const struct nd_explain_job *job, struct nd_reader *reader, size_t device,
                                     size_t step, struct nd_error *err)
{
    struct nd_input_layer_diagnosis input = {
        .diagnosis = {.job = job, .reader = reader, .device = device, .step = step}};
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    enum nd_status status = nd_input_layer_diagnosis_run(&input, err);
    layer->n_unexplained = layer->introduced.n_differing;
    if (status == ND_OK && input.follows != NULL)
        status = nd_judge_follows(layer, input.why, input.follows[0] != '\0' ? input.follows : NULL, err);
    else if (status == ND_OK)
        status = diagnose_of_input(&input, err);
    if (layer->judgement.state == ND_LAYER_FOLLOWS)
        layer->n_unexplained = 0;
    nd_layer_diagnosis_deinit(&input.diagnosis);
    for (size_t f = 0; f < ND_N_INPUT_FAULTS; f++)
        free(input.faults[f]);
    return status;
}

/* The layer to look at after `last` (SIZE_MAX: the first) in order of falling effect; of equals the earlier. */
static size_t next_worst(const struct nd_explain_job *job, size_t d, size_t last)
{
    const struct nd_explained_layer *layers = job->out->devices[d].layers;
    size_t best = SIZE_MAX;
    double limit = last != SIZE_MAX ? nd_explain_badness(&layers[last]) : HUGE_VAL;
    for (size_t s = 0; s < job->plan->n_steps; s++) {
        double x = nd_explain_badness(&layers[s]);
        bool is_next = last == SIZE_MAX || x < limit || (x == limit && s > last);
        if (nd_explain_needs_layer_diagnosis(job, d, s) && !nd_explain_is_input_quantiser(job->plan, s) &&
            is_next && (best == SIZE_MAX || x > nd_explain_badness(&layers[best])))
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
    size_t *engine;            /* [n_devices] nd_engine_find; SIZE_MAX: none */
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
        enum nd_layer_state state = job->out->devices[d].layers[s].judgement.state;
        is_open[s] = state == ND_LAYER_UNEXPLAINED || state == ND_LAYER_FAULTY;
        if (nd_explain_needs_layer_diagnosis(job, d, s) && nd_explain_is_input_quantiser(job->plan, s))
            add_task(team, d, s); /* these are few, and cheap */
    }
    size_t step = SIZE_MAX, n = 0;
    size_t most = team->engine[d] != SIZE_MAX ? job->plan->n_steps : MAX_LAYERS;
    while (n++ < most && (step = next_worst(job, d, step)) != SIZE_MAX)
        add_task(team, d, step);
}

static enum nd_status run_task(void *context, size_t worker, size_t i, struct nd_error *err)
{
    struct team *team = context;
    const struct nd_explain_job *job = team->job;
    struct task *task = &team->tasks[i];
    struct nd_reader *reader = &team->readers[worker];
    ND_TRY(reader->plan == NULL ? nd_reader_init(reader, job->plan, err) : ND_OK);
    if (nd_explain_is_input_quantiser(job->plan, task->step))
        return diagnose_input(job, reader, task->device, task->step, err);
    struct nd_layer_diagnosis diagnosis = {.job = job,
                                           .reader = reader,
                                           .device = task->device,
                                           .step = task->step,
                                           .is_open = &team->is_open[task->device * job->plan->n_steps]};
    return diagnose_layer(&diagnosis, team->engine[task->device], &task->record, err);
}

enum nd_status nd_explain_diagnose(const struct nd_explain_job *job, struct nd_error *err)
{
    const struct nd_plan *plan = job->plan;
    struct team team = {.job = job,
                        .tasks = nd_calloc(plan->n_devices * plan->n_steps, sizeof *team.tasks),
                        .engine = nd_calloc(plan->n_devices, sizeof *team.engine),
                        .is_open = nd_calloc(plan->n_devices * plan->n_steps, sizeof *team.is_open),
                        .readers = nd_calloc(plan->n_threads, sizeof *team.readers)};
    struct nd_error introduced = {0};
    enum nd_status status =
        team.tasks != NULL && team.engine != NULL && team.is_open != NULL && team.readers != NULL
            ? ND_OK
            : nd_fail_memory(&introduced);
    if (status == ND_OK)
        status = nd_explain_decide_layers(job, &introduced);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        status = nd_engine_find(job, d, team.readers, &team.engine[d], &introduced);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        if (!plan->sources[d].is_failed)
            list_device(&team, d);
    if (status == ND_OK)
        status = nd_parallel_for(plan->n_threads, team.n_tasks, run_task, &team, &introduced);
    for (size_t i = 0; i < team.n_tasks && status == ND_OK; i++)
        if (team.tasks[i].record.step != SIZE_MAX)
            status = nd_explain_blame_record(job, &team.tasks[i].record, &introduced);
    if (status != ND_OK && err != NULL)
        *err = introduced;
    for (size_t i = 0; team.readers != NULL && i < plan->n_threads; i++)
        nd_reader_deinit(&team.readers[i]);
    ND_FREE_ALL(team.tasks, team.engine, team.is_open, team.readers);
    return status;
}
