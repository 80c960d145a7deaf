#include "explain/exam/rounded_twice.h"

#include <math.h>
#include <stdio.h>

/* A value that doubles put this near to a half, relative to it, is that half: the exact one is a sum of codes
 * over a count. */
static const double nearly = 0x1p-40;

static double settle_half(double v)
{
    double half = rint(v * 2) / 2;
    return fabs(v - half) <= nearly * fmax(fabs(v), 1) ? half : v;
}

/* ratio: a step of the input in steps of the output. */
static bool gives_all(const struct nd_exam *exam, double ratio, enum nd_rounding first, enum nd_rounding second)
{
    double low, high, zero = (double)nd_exam_quant(exam)->zero_point[0];
    nd_code_range(nd_plan_edge(exam->job->plan, exam->step)->dtype, &low, &high);
    for (size_t i = 0; i < exam->n_samples * exam->n; i++) {
        if (!isfinite(exam->values[i]))
            continue;
        double mean = nd_round_value(settle_half((exam->values[i] - zero) / ratio), first);
        double code = nd_round_value(settle_half(mean * ratio), second) + zero;
        if (fmin(fmax(code, low), high) != exam->codes[i])
            return false;
    }
    return true;
}

static bool rounds_to_input(const struct nd_exam *exam, const struct nd_edge *input, char *text)
{
    const struct nd_quant *to = nd_exam_quant(exam);
    if (!nd_dtype_is_integer(input->dtype) || input->quant.n != 1 || to->n != 1 || !(input->quant.scale[0] > 0))
        return false;
    double ratio = (double)input->quant.scale[0] / (double)to->scale[0];
    for (int first = ND_ROUND_HALF_EVEN; first <= ND_ROUND_TO_ZERO; first++)
        for (int second = ND_ROUND_HALF_EVEN; second <= ND_ROUND_HALF_DOWN; second++) {
            if (!gives_all(exam, ratio, (enum nd_rounding)first, (enum nd_rounding)second))
                continue;
            snprintf(text, ND_ROUNDED_TWICE_TEXT_BYTES,
                     "rounded twice: %s to the scale of '%.60s', then to its own",
                     nd_rounding_name((enum nd_rounding)first), input->name);
            return true;
        }
    return false;
}

bool nd_explain_rounds_twice(const struct nd_exam *exam, char text[ND_ROUNDED_TWICE_TEXT_BYTES])
{
    const struct nd_explain_job *job = exam->job;
    const struct nd_model_unit *unit = nd_plan_unit(job->plan, exam->step);
    if (!nd_unit_is_mean(unit) || job->habits->unit_program[exam->device] != SIZE_MAX ||
        job->plan->sources[exam->device].expectation != ND_EXPECT_ANY ||
        nd_is_emulated(job->plan->sources[exam->device].capture))
        return false;
    if (exam->has_other && exam->other.kind == ND_PROGRAM_DOUBLE) {
        snprintf(text, ND_ROUNDED_TWICE_TEXT_BYTES,
                 "rounded twice: to %d binary place%s of a step, then to a whole one", exam->other.n_bits,
                 exam->other.n_bits == 1 ? "" : "s");
        return true;
    }
    return rounds_to_input(exam, nd_model_edge(job->plan->model, unit->inputs[0]), text);
}
