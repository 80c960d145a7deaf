/* In which order faults are tried: science 2.10. Chance first, because it hides the rest; then what the caller
 * worked out, which has nothing left to fit; constants and types; parameters; cut-offs; memory. Shifts and
 * layouts cost most and come when nothing else fits. */
#include "diagnosis/diagnosis.h"

#include <assert.h>
#include <math.h>

#include "diagnosis/diagnosis_parts.h"
#include "diagnosis/values.h"

static const char *const names[ND_N_FAULT_KINDS] = {
    [ND_FAULT_UNEXPLAINED] = "unexplained",
    [ND_FAULT_ROUNDING] = "rounding",
    [ND_FAULT_FALLBACK] = "fallback",
    [ND_FAULT_FUSION] = "fusion",
    [ND_FAULT_TRANSPOSED_WEIGHTS] = "transposed-weights",
    [ND_FAULT_SCALES_AXIS] = "scales-of-other-axis",
    [ND_FAULT_PAIR_SATURATION] = "pair-saturation",
    [ND_FAULT_PAIR_WRAP] = "pair-wrap",
    [ND_FAULT_STOCHASTIC_ROUNDING] = "stochastic-rounding",
    [ND_FAULT_FLIPS] = "flips",
    [ND_FAULT_SCALE] = "scale",
    [ND_FAULT_CHANNEL_SCALE] = "channel-scale",
    [ND_FAULT_ZERO_POINT] = "zero-point",
    [ND_FAULT_CHANNEL_ZERO_POINT] = "channel-zero-point",
    [ND_FAULT_ENCODING] = "scale-and-zero-point",
    [ND_FAULT_OFFSET_256] = "offset-256",
    [ND_FAULT_OFFSET_SIGN] = "offset-sign",
    [ND_FAULT_AXIS_PERMUTATION] = "axis-permutation",
    [ND_FAULT_CHANNEL_PERMUTATION] = "channel-permutation",
    [ND_FAULT_STALE] = "stale",
    [ND_FAULT_SHIFTED] = "shifted",
    [ND_FAULT_ALL_ZERO] = "all-zero",
    [ND_FAULT_CONSTANT] = "constant",
    [ND_FAULT_UNWRITTEN_WINDOW] = "unwritten-window",
    [ND_FAULT_WRONG_TYPE] = "wrong-type",
    [ND_FAULT_ACCUMULATOR_SATURATION] = "accumulator-saturation",
    [ND_FAULT_ACCUMULATOR_WRAP] = "accumulator-wrap",
    [ND_FAULT_SATURATION] = "saturation",
    [ND_FAULT_HARD_CLIFF] = "hard-cliff",
    [ND_FAULT_FP16_GRID] = "fp16-grid",
    [ND_FAULT_BF16_GRID] = "bf16-grid",
    [ND_FAULT_OFF_GRID] = "off-grid",
    [ND_FAULT_SAME_CODE_OTHER_FLOAT] = "same-code-other-float",
    [ND_FAULT_TRUNCATION] = "truncation",
    [ND_FAULT_ONE_SIDED] = "one-sided",
    [ND_FAULT_WRAP] = "wrap",
    [ND_FAULT_PERIODIC] = "periodic",
    [ND_FAULT_CONSTANT_LINES] = "constant-lines",
    [ND_FAULT_PASSED_THROUGH] = "passed-through",
    [ND_FAULT_STALE_OPERAND] = "stale-operand",
    [ND_FAULT_OTHER_PLACES] = "other-places",
    [ND_FAULT_FIRST_LAUNCH] = "first-launch",
    [ND_FAULT_TIES] = "ties",
    [ND_FAULT_MAGNITUDE] = "magnitude",
    [ND_FAULT_REUSED_BUFFER] = "reused-buffer",
    [ND_FAULT_UNCLAMPED] = "activation-left-out",
    [ND_FAULT_STEP] = "step",
    [ND_FAULT_COMMON_STEP] = "common-step",
};

const char *nd_fault_name(enum nd_fault_kind kind)
{
    assert((unsigned)kind < ND_N_FAULT_KINDS);
    return names[kind];
}

bool nd_fault_is_note(enum nd_fault_kind kind)
{
    return kind == ND_FAULT_FP16_GRID || kind == ND_FAULT_BF16_GRID || kind == ND_FAULT_TIES ||
           kind == ND_FAULT_STEP || kind == ND_FAULT_ONE_SIDED || kind == ND_FAULT_COMMON_STEP;
}

static struct nd_doctor_span predict_hypothesis(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                                size_t s, size_t j)
{
    double code = f->predicted[s * d->e->n + j];
    return isnan(code) ? (struct nd_doctor_span){.is_known = false} : nd_doctor_exactly(code);
}

static size_t count_left(const struct nd_doctor *d, const struct nd_hypothesis *h)
{
    size_t n = 0;
    for (size_t i = 0; i < d->e->n_samples * d->e->n; i++)
        n += nd_doctor_is_known(d, i) && !isnan(h->codes[i]) && d->e->codes[i] != h->codes[i];
    return n;
}

/* Those that leave the fewest wrong codes. */
static void try_hypotheses(struct nd_doctor *d)
{
    size_t least = SIZE_MAX;
    for (size_t h = 0; h < d->e->n_hypotheses; h++) {
        size_t n_left = count_left(d, &d->e->hypotheses[h]);
        least = n_left < least ? n_left : least;
    }
    for (size_t h = 0; h < d->e->n_hypotheses; h++) {
        const struct nd_hypothesis *hypothesis = &d->e->hypotheses[h];
        struct nd_doctor_fault f = {.kind = hypothesis->kind,
                                    .channel = SIZE_MAX,
                                    .axis = -1,
                                    .predict = predict_hypothesis,
                                    .predicted = hypothesis->codes};
        if (count_left(d, hypothesis) == least)
            nd_doctor_try(d, &f, "%s", hypothesis->text);
    }
}

enum { MIN_HARD = 3 };

/* What changes the value or the place of codes needs codes that are no rounding of the value: of another
 * rounding program there are none, or few. */
static bool is_hard(const struct nd_doctor *d)
{
    return d->n_hard >= MIN_HARD && d->n_hard * 4 >= d->n_wrong;
}

static enum nd_status try_changes(struct nd_doctor *d, struct nd_error *err)
{
    nd_doctor_try_constant(d);
    if (d->out->is_found) /* every clamp and window fits it, too */
        return ND_OK;
    nd_doctor_try_type(d);
    enum nd_status status = nd_doctor_try_values(d, err);
    if (status != ND_OK)
        return status;
    nd_doctor_try_range(d);
    nd_doctor_try_samples(d);
    nd_doctor_try_window(d);
    if (!d->out->is_found)
        nd_doctor_try_stochastic(d);
    if (!d->out->is_found)
        nd_doctor_try_shifts(d);
    if (!d->out->is_found || d->out->best.kind == ND_FAULT_SHIFTED) /* channels that rotate are both */
        status = nd_doctor_try_layouts(d, err);
    return status;
}

/* What is judged by whole tensors, codes and floats alike: here the codes, in steps, beside the expected ones.
 */
static enum nd_status try_whole(struct nd_doctor *d, struct nd_error *err)
{
    const struct nd_evidence *e = d->e;
    struct nd_value_findings found;
    const struct nd_values values = {.n_samples = e->n_samples,
                                     .n = e->n,
                                     .shape = e->shape,
                                     .dtype = e->dtype,
                                     .step = 1,
                                     .ref_step = 1,
                                     .ref = e->expected,
                                     .test = e->codes};
    enum nd_status status = nd_values_examine_gross(&values, &found, err);
    if (status != ND_OK || found.n_gross == 0)
        return status;
    const struct nd_finding *best = &found.items[0];
    struct nd_doctor_fault f = {
        .kind = best->kind, .channel = SIZE_MAX, .axis = best->axis, .amount = best->amount};
    nd_doctor_add(d, &f, best->explained, "%s", best->text);
    d->out->best.chance = best->chance;
    return ND_OK;
}

static void try_unexplained(struct nd_doctor *d)
{
    bool is_many = d->n_hard >= MIN_HARD && d->n_hard * 1000 >= d->n_known;
    is_many = is_many || (d->n_wrong >= MIN_HARD && d->n_wrong * 20 >= d->n_known);
    if (d->out->is_found || !is_many)
        return;
    double share = (double)d->n_wrong / (double)d->n_known;
    struct nd_doctor_fault f = {.kind = ND_FAULT_UNEXPLAINED, .channel = SIZE_MAX, .axis = -1, .amount = share};
    bool is_random = d->e->repeats_differ && d->e->inputs_repeat_same;
    nd_doctor_add(d, &f, 0, "%zu of %zu codes are wrong and no known fault fits%s", d->n_wrong, d->n_known,
                  is_random ? "; runs differ" : "");
}

/* Beside arithmetic that is not known. A scale or a zero point that is a little off is what such arithmetic may
 * look like, and chance cannot be told from it: only what moves or cuts off codes can. */
static enum nd_status try_changes_over_noise(struct nd_doctor *d, struct nd_error *err)
{
    nd_doctor_try_constant(d);
    if (d->out->is_found)
        return ND_OK;
    nd_doctor_try_type(d);
    nd_doctor_try_range(d);
    nd_doctor_try_samples(d);
    nd_doctor_try_window(d);
    if (!d->out->is_found)
        nd_doctor_try_shifts(d);
    if (!d->out->is_found || d->out->best.kind == ND_FAULT_SHIFTED)
        return nd_doctor_try_layouts(d, err);
    return ND_OK;
}

static enum nd_status examine_over_noise(const struct nd_evidence *evidence, struct nd_diagnosis *found,
                                         struct nd_error *err)
{
    struct nd_diagnosis over_noise = {0};
    struct nd_doctor d;
    bool is_known = found->is_found && found->best.kind != ND_FAULT_UNEXPLAINED;
    if (!(evidence->noise > 0) || is_known)
        return ND_OK;
    nd_doctor_prepare(evidence, evidence->noise, &over_noise, &d);
    enum nd_status status = is_hard(&d) ? try_changes_over_noise(&d, err) : ND_OK;
    if (status == ND_OK && over_noise.is_found)
        *found = over_noise;
    return status;
}

enum nd_status nd_doctor_examine(const struct nd_evidence *evidence, struct nd_diagnosis *out,
                                 struct nd_error *err)
{
    struct nd_diagnosis found = {0};
    struct nd_doctor d;
    enum nd_status status = ND_OK;
    assert(nd_dtype_is_integer(evidence->dtype));
    if (evidence->n_samples > 0 && evidence->n > 0) {
        nd_doctor_prepare(evidence, 0, &found, &d);
        if (evidence->repeats_differ && evidence->inputs_repeat_same)
            nd_doctor_try_flips(&d);
        bool is_wrong = d.n_wrong > 0 && !found.is_found;
        if (is_wrong)
            try_hypotheses(&d);
        if (is_wrong && is_hard(&d))
            status = try_changes(&d, err);
        if (is_wrong && status == ND_OK && !found.is_found)
            status = try_whole(&d, err);
        if (is_wrong)
            try_unexplained(&d);
        if (status == ND_OK && is_wrong)
            status = examine_over_noise(evidence, &found, err);
    }
    if (status == ND_OK)
        *out = found;
    return status;
}
