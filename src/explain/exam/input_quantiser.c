#include "explain/exam/input_quantiser.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/linear/rounding.h"

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

enum nd_status nd_input_exam_run(struct nd_input_exam *input, struct nd_error *err)
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

void nd_input_exam_deinit(struct nd_input_exam *input)
{
    nd_exam_deinit(&input->exam);
    for (size_t f = 0; f < ND_N_INPUT_FAULTS; f++)
        free(input->faults[f]);
}
