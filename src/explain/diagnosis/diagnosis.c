/* The table of recognisers, and in which order they are asked. */
#include "explain/diagnosis/diagnosis.h"

#include <assert.h>
#include <math.h>

#include "core/error.h"
#include "explain/diagnosis/look.h"
#include "explain/diagnosis/values.h"

static const char *const names[ND_N_FAULT_KINDS] = {
    [ND_FAULT_UNEXPLAINED] = "unexplained",
    [ND_FAULT_ROUNDING] = "rounding",
    [ND_FAULT_FALLBACK] = "fallback",
    [ND_FAULT_FUSION] = "fusion",
    [ND_FAULT_TRANSPOSED_WEIGHTS] = "transposed-weights",
    [ND_FAULT_SCALES_AXIS] = "scales-of-other-axis",
    [ND_FAULT_BIAS] = "bias",
    [ND_FAULT_WEIGHTS_SCALE] = "weights-scale",
    [ND_FAULT_WEIGHTS_ZERO_POINT] = "weights-zero-point",
    [ND_FAULT_WEIGHTS_TYPE] = "weights-type",
    [ND_FAULT_WEIGHTS_LAYOUT] = "weights-layout",
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
    [ND_FAULT_FLIPPED_BIT] = "flipped-bit",
    [ND_FAULT_SATURATION] = "saturation",
    [ND_FAULT_HARD_CLIFF] = "hard-cliff",
    [ND_FAULT_FP16_GRID] = "fp16-grid",
    [ND_FAULT_BF16_GRID] = "bf16-grid",
    [ND_FAULT_OFF_GRID] = "off-grid",
    [ND_FAULT_SAME_QVALUE_OTHER_FLOAT] = "same-code-other-float",
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
    [ND_FAULT_WRONG_RECORD] = "wrong-record",
    [ND_FAULT_UNCLAMPED] = "activation-left-out",
    [ND_FAULT_STEP] = "step",
    [ND_FAULT_SIGN] = "sign",
    [ND_FAULT_OWN_STEP] = "own-step",
    [ND_FAULT_CONSTANT_CHANNELS] = "constant-channels",
    [ND_FAULT_COMMON_STEP] = "common-step",
    [ND_FAULT_OTHER_ATTRIBUTE] = "other-attribute",
    [ND_FAULT_OTHER_CONSTANT] = "other-constant",
    [ND_FAULT_FLAT_INDEX] = "flat-index",
    [ND_FAULT_NARROW_TYPE] = "narrow-type",
};

const char *nd_fault_name(enum nd_fault_kind kind)
{
    assert((unsigned)kind < ND_N_FAULT_KINDS);
    return names[kind];
}

bool nd_fault_is_note(enum nd_fault_kind kind)
{
    return kind == ND_FAULT_FP16_GRID || kind == ND_FAULT_BF16_GRID || kind == ND_FAULT_TIES ||
           kind == ND_FAULT_STEP || kind == ND_FAULT_ONE_SIDED || kind == ND_FAULT_COMMON_STEP ||
           kind == ND_FAULT_OWN_STEP;
}

/* ---- the table ---- */

/* Of which evidence a recogniser can say something. */
enum {
    EXACT = 1, /* quantised values with exact values */
    NOISY = 2, /* the same, beside arithmetic that is not known. A scale or a zero point that is a little off is
                  what such arithmetic may look like, and chance cannot be told from it: only what moves or cuts
                  off quantised values can */
    WHOLE = 4, /* elements that are far off, without exact values */
    SMALL = 8, /* differences of any size, without exact values: what they show is no gross error */
};

/* What becomes of the rest of the table when exact quantised values fit a fault. (Of whole tensors the share
 * decides that a fault explains.) */
enum when {
    ENDS,         /* after it nothing else is asked: every clamp and window fits one value, too, and what a
                     hypothesis of the caller explains has nothing left to fit */
    ALWAYS,       /* what it finds is a rival of what was found before */
    IF_NONE,      /* it is not asked: it costs much, or fits more than the simpler ones */
    IF_NONE_MOVED /* it is asked only after a shift or a permutation: channels that rotate are both */
};

/* The simplest first: chance and the caller's hypotheses come before the table, because the one hides the rest
 * and the others have nothing left to fit. Then constants and types, parameters, limits, samples, memory.
 * Shifts and layouts cost most. Each has its thresholds and their sources in its own file; what the two
 * measures ask of all of them is in judge.c, what they ask differently of one in look.c. */
static const struct {
    const char *name;
    nd_recogniser run;
    int of;
    enum when when;
} table[] = {
    {"one value", nd_try_constant, EXACT | NOISY | WHOLE, ENDS},
    {"a line of the reference", nd_try_relations, WHOLE, ALWAYS},
    {"bits of the other sign", nd_try_type, EXACT | NOISY, ALWAYS},
    {"scale and zero point", nd_try_scales, EXACT, ALWAYS},
    {"no clip", nd_try_lost_clip, EXACT, ALWAYS},
    {"accumulator", nd_try_accumulators, EXACT | NOISY, ALWAYS},
    {"of another sample", nd_try_samples, EXACT | NOISY | WHOLE, ALWAYS},
    {"equal to another tensor", nd_try_passed, WHOLE, ALWAYS},
    {"an operand of the previous sample", nd_try_operand, WHOLE, ALWAYS},
    {"a clamp left out", nd_try_unclamped, WHOLE, ALWAYS},
    {"clamp and gain", nd_try_clamp, EXACT | NOISY | WHOLE, ALWAYS},
    {"cliff", nd_try_cliff, EXACT | NOISY | WHOLE, ALWAYS},
    {"window", nd_try_window, EXACT | NOISY | WHOLE, ALWAYS},
    {"flipped bits", nd_try_flipped_bits, EXACT | NOISY, IF_NONE},
    {"rounded at random", nd_try_stochastic, EXACT, IF_NONE},
    {"padded, read as dense", nd_try_padded, WHOLE, ALWAYS},
    {"lines further on", nd_try_lines_on, EXACT | NOISY | WHOLE, IF_NONE},
    {"shifted", nd_try_shifts, EXACT | NOISY | WHOLE, IF_NONE},
    {"permuted axes", nd_try_axes, EXACT | NOISY | WHOLE, IF_NONE_MOVED},
    {"permuted channels", nd_try_channels, EXACT | NOISY, IF_NONE_MOVED},
    {"at other places", nd_try_elsewhere, WHOLE, ALWAYS},
    {"wrap-around", nd_try_wrap, WHOLE, ALWAYS},
    {"unwritten beginning or end", nd_try_unwritten, WHOLE, ALWAYS},
    {"lines", nd_try_lines, WHOLE, ALWAYS},
    {"constant channels", nd_try_constant_channels, SMALL, ALWAYS},
    {"grid", nd_try_grid, SMALL, ALWAYS},
    {"multiples of a step", nd_try_multiples, SMALL, ALWAYS},
    {"truncation", nd_try_truncation, SMALL, ALWAYS},
    {"ties", nd_try_ties, SMALL, ALWAYS},
    {"step", nd_try_step, SMALL, ALWAYS},
    {"comparison", nd_try_comparison, SMALL, ALWAYS},
};
enum { N_RECOGNISERS = sizeof table / sizeof table[0] };

/* ---- quantised values with exact values ---- */

static bool is_asked(const struct nd_look *look, enum when when)
{
    enum nd_fault_kind best = nd_is_found(look) ? look->out->items[0].kind : ND_FAULT_UNEXPLAINED;
    bool is_moved =
        (best == ND_FAULT_SHIFTED && look->out->items[0].axis < 0) || best == ND_FAULT_AXIS_PERMUTATION;
    return when == ENDS || when == ALWAYS || !nd_is_found(look) || (when == IF_NONE_MOVED && is_moved);
}

/* Drops what explains too little: a recogniser that does not ask the judge may find that. */
static void drop_weak(const struct nd_look *look, size_t first)
{
    struct nd_findings *out = look->out;
    size_t n = first;
    for (size_t k = first; k < out->n; k++)
        if (out->items[k].explained >= look->criteria->min_explained)
            out->items[n++] = out->items[k];
    out->n = n;
}

static void run_exact(const struct nd_look *look, int of)
{
    for (size_t k = 0; k < N_RECOGNISERS; k++) {
        size_t n_before = look->out->n;
        if ((table[k].of & of) == 0 || !is_asked(look, table[k].when))
            continue;
        table[k].run(look);
        drop_weak(look, n_before);
        if (table[k].when == ENDS && nd_is_found(look))
            return;
    }
}

static struct nd_span predict_hypothesis(const struct nd_look *look, const struct nd_fault *f, size_t s,
                                         size_t j)
{
    return nd_exactly(((const double *)f->data)[s * look->e->n + j]);
}

static size_t count_left(const struct nd_look *look, const struct nd_hypothesis *h)
{
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++)
        n += nd_is_known(look, i) && !isnan(h->qvalues[i]) && look->e->captured[i] != h->qvalues[i];
    return n;
}

/* A scale of the output looks like one of the weights, and a zero point like a bias. */
static bool is_last_resort(enum nd_fault_kind kind)
{
    return kind == ND_FAULT_BIAS || kind == ND_FAULT_WEIGHTS_SCALE || kind == ND_FAULT_WEIGHTS_ZERO_POINT;
}

/* Those that leave the fewest wrong quantised values. */
static void try_hypotheses(const struct nd_look *look, bool is_last)
{
    size_t least = SIZE_MAX;
    for (size_t h = 0; h < look->e->n_hypotheses; h++) {
        size_t n_left = count_left(look, &look->e->hypotheses[h]);
        least = n_left < least && is_last_resort(look->e->hypotheses[h].kind) == is_last ? n_left : least;
    }
    for (size_t h = 0; h < look->e->n_hypotheses; h++) {
        const struct nd_hypothesis *hypothesis = &look->e->hypotheses[h];
        struct nd_fault f = nd_fault_of(hypothesis->kind, 0, predict_hypothesis);
        f.data = hypothesis->qvalues;
        if (is_last_resort(hypothesis->kind) == is_last && count_left(look, hypothesis) == least)
            nd_try(look, &f, "%s", hypothesis->text);
    }
}

enum { MIN_HARD = 3 };

/* What changes the value or the place of quantised values needs quantised values that are no rounding of the
 * value: of another rounding arithmetic there are none, or few. */
static bool is_hard(const struct nd_look *look)
{
    return look->n_far >= MIN_HARD && look->n_far * 4 >= look->n_wrong;
}

static void try_unexplained(const struct nd_look *look)
{
    bool is_many = look->n_far >= MIN_HARD && look->n_far * 1000 >= look->n_known;
    is_many = is_many || (look->n_wrong >= MIN_HARD && look->n_wrong * 20 >= look->n_known);
    if (nd_is_found(look) || !is_many)
        return;
    double share = (double)look->n_wrong / (double)look->n_known;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_UNEXPLAINED, share, 0, 0);
    bool is_random = look->e->repeats_differ && look->e->inputs_repeat_same;
    nd_add(look, &f, "%zu of %zu values are wrong and no known fault fits%s", look->n_wrong, look->n_known,
           is_random ? "; runs differ" : "");
}

/* ---- whole tensors ---- */

/* Of the gross faults the one that explains the largest share of the far elements; of those that explain about
 * as much the first, which is the simplest. */
static void run_whole(const struct nd_look *look)
{
    /* Chosen: a fault that explains this much ends the search, and another one must explain more by the rest.
     */
    static const double almost_all = 0.95;
    struct nd_findings *out = look->out;
    struct nd_finding best = {0};
    for (size_t k = 0; k < N_RECOGNISERS && best.explained < almost_all; k++) {
        if ((table[k].of & WHOLE) == 0)
            continue;
        out->n = 0;
        table[k].run(look);
        drop_weak(look, 0);
        if (out->n > 0 && out->items[0].explained > best.explained + (1 - almost_all))
            best = out->items[0];
    }
    out->n = best.explained > 0;
    out->items[0] = best;
}

static enum nd_status examine_whole(const struct nd_evidence *evidence, bool is_gross_only,
                                    struct nd_findings *out, struct nd_error *err)
{
    struct nd_look look;
    *out = (struct nd_findings){0};
    if (evidence->n_samples * evidence->n == 0)
        return ND_OK;
    enum nd_status status = nd_look_open(evidence, 0, out, &look, err);
    if (status != ND_OK || look.n_wrong == 0)
        return status;
    if (look.n_far > 0)
        run_whole(&look);
    out->n_gross = out->n;
    out->far_share = (double)look.n_far / (double)look.n_known;
    for (size_t k = 0; k < N_RECOGNISERS && !is_gross_only; k++)
        if ((table[k].of & SMALL) != 0)
            table[k].run(&look);
    nd_look_close(&look);
    return ND_OK;
}

enum nd_status nd_diagnose_tensor(const struct nd_evidence *evidence, struct nd_findings *out,
                                  struct nd_error *err)
{
    assert(evidence->exact == NULL);
    return examine_whole(evidence, false, out, err);
}

/* ---- both ---- */

/* The gross errors of quantised values that no fault explains exactly. */
static enum nd_status examine_qvalues_whole(const struct nd_evidence *evidence, struct nd_findings *out,
                                            struct nd_error *err)
{
    struct nd_evidence whole = *evidence;
    whole.exact = NULL;
    whole.step = whole.ref_step = 1;
    whole.zero_point = 0;
    return examine_whole(&whole, true, out, err);
}

static enum nd_status examine_exact(const struct nd_evidence *e, struct nd_findings *out, struct nd_error *err)
{
    struct nd_look look;
    enum nd_status status = nd_look_open(e, 0, out, &look, err);
    if (status != ND_OK)
        return status;
    if (e->repeats_differ && e->inputs_repeat_same)
        nd_try_flips(&look);
    if (look.n_wrong > 0 && !nd_is_found(&look)) {
        try_hypotheses(&look, false);
        if (is_hard(&look))
            run_exact(&look, EXACT);
        if (!nd_is_found(&look))
            try_hypotheses(&look, true);
        if (!nd_is_found(&look))
            status = examine_qvalues_whole(e, out, err);
        try_unexplained(&look);
    }
    nd_look_close(&look);
    return status;
}

static enum nd_status examine_over_noise(const struct nd_evidence *e, struct nd_findings *out,
                                         struct nd_error *err)
{
    struct nd_findings over_noise = {0};
    struct nd_look look;
    enum nd_status status = nd_look_open(e, e->noise, &over_noise, &look, err);
    if (status == ND_OK && is_hard(&look))
        run_exact(&look, NOISY);
    if (status == ND_OK && !nd_is_found(&look)) /* constants are known to the bit, and the rest is arithmetic */
        try_hypotheses(&look, true);
    nd_look_close(&look);
    if (over_noise.n > 0)
        *out = over_noise;
    return status;
}

enum nd_status nd_diagnose(const struct nd_evidence *evidence, struct nd_diagnosis *out, struct nd_error *err)
{
    struct nd_findings found = {0};
    assert(nd_dtype_is_integer(evidence->dtype));
    if (evidence->n_samples > 0 && evidence->n > 0)
        ND_TRY(examine_exact(evidence, &found, err));
    bool is_known = found.n > 0 && found.items[0].kind != ND_FAULT_UNEXPLAINED;
    if (evidence->noise > 0 && !is_known && evidence->n_samples > 0 && evidence->n > 0)
        ND_TRY(examine_over_noise(evidence, &found, err));
    *out = (struct nd_diagnosis){0};
    for (size_t k = 0; k < found.n; k++)
        nd_diagnosis_add(out, &found.items[k]);
    return ND_OK;
}

size_t nd_values_skip_passed_on(struct nd_values_history *history, const struct nd_findings *found)
{
    static const double min_far = 0.01; /* chosen */
    bool is_found = found->n_gross > 0, was_met = history->is_met;
    if (!was_met && (is_found || found->far_share >= min_far))
        *history = (struct nd_values_history){true, is_found ? found->items[0].kind : ND_FAULT_UNEXPLAINED};
    return is_found && was_met && found->items[0].kind != history->kind ? found->n_gross : 0;
}
