/* The table of recognisers, and in which order they are asked. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/diagnosis/look.h"
#include "explain/diagnosis/values.h"

/* Accumulators that are cut off: their limits are powers of two of a known step, which a clamp of any other
 * origin meets once in a hundred times. */

static double accumulator_step(const struct nd_look *look, const struct nd_fault *f, size_t j)
{
    return look->e->accumulator_step[look->e->n_steps == 1 ? 0 : j / f->first % look->e->n_steps];
}

/* What is left of the accumulator in that many bits. mode 0 clips, 1 wraps. */
static struct nd_span predict_accumulator(const struct nd_look *look, const struct nd_fault *f, size_t s,
                                          size_t j)
{
    size_t i = s * look->e->n + j;
    double step = accumulator_step(look, f, j), zero_point = nd_zero_point(look, j);
    double acc = (look->e->exact[i] - zero_point) / step, limit = ldexp(1, (int)f->amount - 1);
    if (fabs(acc - rint(acc)) < 1e-6 * fmax(1, fabs(acc)))
        acc = rint(acc);
    if (!(step > 0) || (acc >= -limit && acc <= limit - 1))
        return nd_exactly(look->e->expected[i]);
    if (f->mode == 0)
        acc = fmin(fmax(acc, -limit), limit - 1);
    else
        acc -= 2 * limit * floor((acc + limit) / (2 * limit));
    return nd_qvalues_of(look, zero_point + acc * step);
}

/* inner: of the axis that the steps count along. The most bits that fit: with fewer the rest would be cut, too.
 */
static bool try_bits(const struct nd_look *look, int mode, size_t inner)
{
    const char *what = mode == 0 ? "saturates" : "wraps";
    struct nd_fault f = nd_fault_of(mode == 0 ? ND_FAULT_ACCUMULATOR_SATURATION : ND_FAULT_ACCUMULATOR_WRAP, 0,
                                    predict_accumulator);
    f.first = inner;
    f.mode = mode;
    for (int bits = 32; bits >= 8; bits--) {
        f.amount = bits;
        if (nd_try(look, &f, "the accumulator %s at %d bits", what, bits))
            return true;
    }
    return false;
}

static void try_accumulators(const struct nd_look *look)
{
    struct nd_axis axes[ND_CHANNEL_AXES] = {{-1, 1, 1}};
    size_t n_axes = look->e->n_steps == 1 ? 1 : nd_channel_axes(look, axes);
    bool is_found[2] = {false, false};
    for (size_t a = 0; a < n_axes && look->e->accumulator_step != NULL; a++) {
        for (int mode = 0; mode < 2; mode++) {
            if (!is_found[mode] && axes[a].n == look->e->n_steps)
                is_found[mode] = try_bits(look, mode, axes[a].inner);
        }
    }
}

/* Chance: rounding up with the probability of the fraction, and flips of a step. */

enum { N_BINS = 16, MIN_ELEMENTS = 24, MIN_AWAY = 6 };

struct bin {
    double expected, variance, up; /* how many are rounded up: mean and variance by the law, and as given */
};

struct stochastic {
    struct bin bins[N_BINS];
    size_t n, n_beside; /* elements with a fraction; quantised values that are neither floor nor ceil */
    double away, away_expected, away_variance; /* from the nearest */
};

static struct stochastic count(const struct nd_look *look)
{
    struct stochastic x = {0};
    const struct nd_evidence *e = look->e;
    for (size_t i = 0; i < e->n_samples * e->n; i++) {
        if (!nd_is_inside(look, i))
            continue;
        double floored = floor(e->exact[i]), f = e->exact[i] - floored, rise = e->captured[i] - floored;
        if (f == 0 && rise == 0)
            continue;
        x.n++;
        if (rise != 0 && rise != 1) {
            x.n_beside++;
            continue;
        }
        struct bin *bin = &x.bins[(int)(f * N_BINS)];
        bin->expected += f;
        bin->variance += f * (1 - f);
        bin->up += rise;
        x.away += rise != (f > 0.5);
        x.away_expected += fmin(f, 1 - f);
        x.away_variance += f * (1 - f);
    }
    return x;
}

/* Chi-square, with neighbours pooled until a bin can say something. */
static double chi_square(const struct stochastic *x, double *freedom)
{
    double sum = 0;
    struct bin pool = {0};
    *freedom = 0;
    for (int b = 0; b < N_BINS; b++) {
        pool.expected += x->bins[b].expected;
        pool.variance += x->bins[b].variance;
        pool.up += x->bins[b].up;
        if (pool.variance < 1 && !(b + 1 == N_BINS && pool.variance > 0.25))
            continue;
        sum += (pool.up - pool.expected) * (pool.up - pool.expected) / pool.variance;
        *freedom += 1;
        pool = (struct bin){0};
    }
    return sum;
}

/* Exceeded once in 10^5 (Wilson and Hilferty). */
static double critical(double freedom)
{
    double a = 2 / (9 * freedom), root = 1 - a + 4.265 * sqrt(a);
    return freedom * root * root * root;
}

/* By the fractions alone: the runs need not differ (a seeded generator repeats itself). */
static void try_stochastic(const struct nd_look *look)
{
    struct stochastic x = count(look);
    double freedom = 0, sum = chi_square(&x, &freedom);
    if (x.n < MIN_ELEMENTS || x.away < MIN_AWAY || x.n_beside * 100 > x.n || !(sum < critical(freedom)))
        return;
    /* The bins of a few elements would pass a device that is off only now and then. */
    if (fabs(x.away - x.away_expected) > 4.5 * sqrt(x.away_variance))
        return;
    double explained = 1 - (double)x.n_beside / (double)x.n;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_STOCHASTIC_ROUNDING, sum / freedom, explained, 0);
    nd_add(look, &f, "rounded up as often as the fraction says (chi-square %.1f of %g bins)", sum, freedom);
}

/* By the fractions alone: the runs need not differ (a seeded generator repeats itself).
 * Runs differ and their inputs do not. */
static void try_flips(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    try_stochastic(look);
    if (nd_is_found(look))
        return;
    size_t n_step = 0;
    for (size_t i = 0; i < e->n_samples * e->n; i++)
        n_step += nd_is_known(look, i) && fabs(e->captured[i] - e->expected[i]) == 1;
    if (n_step * 100 < look->n_wrong * 95)
        return;
    double share = look->n_known > 0 ? (double)look->n_wrong / (double)look->n_known : 0;
    double explained = look->n_wrong > 0 ? (double)n_step / (double)look->n_wrong : 1;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_FLIPS, share, explained, 0);
    nd_add(look, &f, "runs of the same input differ; %.3g %% of these quantised values are off by one",
           100 * share);
}

/* Right values at the wrong time: another sample's, or of another tensor; and values that are all the same. */

static bool is_expected_constant(const struct nd_look *look)
{
    double first = NAN;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i))
            continue;
        first = isnan(first) ? look->e->expected[i] : first;
        if (look->e->expected[i] != first)
            return false;
    }
    return true;
}

/* A tensor that should be constant shows a shift, not a loss. */
static void try_constant(const struct nd_look *look)
{
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_is_known(look, i) && look->e->captured[i] != look->low)
            return;
    if (look->n_far < look->criteria->min_far || is_expected_constant(look))
        return;
    enum nd_fault_kind kind = nd_is_zero(look, look->low) ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT;
    struct nd_finding f = nd_finding_of(look, kind, look->low, 1, 0);
    if (nd_is_exact(look))
        nd_add(look, &f, "every value is %g", look->low);
    else
        nd_add(look, &f, "every value is %.6g; the reference's are not", look->low);
}

/* ---- another sample's ---- */

/* What sample s - shift should have. */
static struct nd_span predict_other_sample(const struct nd_look *look, const struct nd_fault *f, size_t s,
                                           size_t j)
{
    ptrdiff_t from = (ptrdiff_t)s - f->shift;
    bool is_known = from >= 0 && from < (ptrdiff_t)look->e->n_samples;
    return nd_exactly(is_known ? look->e->expected[(size_t)from * look->e->n + j] : NAN);
}

static struct nd_span predict_first_sample(const struct nd_look *look, const struct nd_fault *f, size_t s,
                                           size_t j)
{
    (void)f, (void)s;
    return nd_exactly(look->e->expected[j]);
}

static bool is_equal(const struct nd_evidence *e, size_t a, size_t b)
{
    return memcmp(e->captured + a * e->n, e->captured + b * e->n, e->n * sizeof *e->captured) == 0;
}

static size_t count_apart(const struct nd_look *look, size_t a, size_t b)
{
    const struct nd_evidence *e = look->e;
    size_t n = 0;
    for (size_t j = 0; j < e->n; j++)
        n += fabs(e->expected[a * e->n + j] - e->expected[b * e->n + j]) > look->far;
    return n;
}

static bool is_one_value(const struct nd_evidence *e, size_t s)
{
    for (size_t j = 1; j < e->n; j++)
        if (memcmp(&e->captured[s * e->n + j], &e->captured[s * e->n], sizeof *e->captured) != 0)
            return false;
    return true;
}

static size_t count_far(const struct nd_look *look, size_t s)
{
    size_t n = 0;
    for (size_t j = 0; j < look->e->n; j++)
        n += nd_is_far(look, s * look->e->n + j);
    return n;
}

/* Whole samples of one value, the same in each, as of a batch of which only a part is computed. They equal the
 * sample before, too, but say nothing of it. */
static bool try_constant_samples(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    size_t n_constant = 0, first = 0, last = 0, n_far = 0;
    for (size_t s = 0; s < e->n_samples; s++) {
        size_t n = count_far(look, s);
        /* Many values are right by themselves when half of the reference's are zero, as a Relu leaves them.
         * Chosen. */
        bool is_many = n * 2 >= e->n || (n >= ND_MIN_DECISIVE && n * 8 >= e->n);
        if (n < 2 || !is_many || !is_one_value(e, s))
            continue;
        first = n_constant++ == 0 ? s : first;
        if (e->captured[s * e->n] != e->captured[first * e->n])
            return false;
        last = s;
        n_far += n;
    }
    if (n_far < ND_MIN_DECISIVE || is_expected_constant(look))
        return false;
    double value = e->captured[first * e->n];
    struct nd_finding f = nd_finding_of(look, value == 0 ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT, value,
                                        nd_share_of_far(look, n_far), 0);
    if (n_constant == last - first + 1 && n_constant > 1)
        nd_add(look, &f, "every value of samples %zu to %zu is %.6g; the reference's are not",
               e->first_sample + first, e->first_sample + last, value);
    else
        nd_add(look, &f, "every value of %zu of %zu samples is %.6g, the first is sample %zu", n_constant,
               e->n_samples, value, e->first_sample + first);
    return true;
}

/* Samples that are bit for bit the one before, while the reference's differ: whatever that one holds. A sample
 * of one value is no evidence: a device that gives nothing gives it twice. */
static void try_repeated(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    size_t n_repeated = 0, n_asked = 0, first = 0, n_apart = 0, n_far = 0;
    for (size_t s = 1; s < e->n_samples; s++) {
        size_t n = is_one_value(e, s) ? 0 : count_apart(look, s, s - 1);
        n_asked += n > 0;
        if (n == 0 || !is_equal(e, s, s - 1))
            continue;
        n_apart += n;
        n_far += count_far(look, s);
        first = n_repeated++ == 0 ? s : first;
    }
    if (n_repeated == 0 || n_apart < ND_MIN_DECISIVE)
        return;
    /* Where every sample holds the same values even the first may be wrong. */
    double explained = n_repeated == n_asked ? 1 : nd_share_of_far(look, n_far);
    struct nd_finding f = nd_finding_of(look, ND_FAULT_STALE, n_repeated == n_asked ? 0 : 1, explained, 0);
    if (n_repeated == n_asked)
        nd_add(look, &f, "every sample holds the same values; the reference's samples differ");
    else
        nd_add(look, &f, "%zu of %zu samples repeat the output of the sample before, the first is sample %zu",
               n_repeated, n_asked, e->first_sample + first);
}

static void try_samples(const struct nd_look *look)
{
    size_t n_samples = look->e->n_samples, n_before = look->out->n;
    struct nd_fault f = nd_fault_of(ND_FAULT_STALE, 0, predict_other_sample);
    for (size_t k = 1; k < n_samples; k++) {
        f.shift = (ptrdiff_t)k;
        f.amount = (double)k;
        if (k == 1)
            nd_try(look, &f, "every sample holds the result of the sample before it");
        else
            nd_try(look, &f, "every sample holds the result of the sample %zu before it", k);
    }
    f.predict = predict_first_sample;
    f.amount = 0;
    if (n_samples > 1)
        nd_try(look, &f, "every sample holds the result of the first one");
    f = nd_fault_of(ND_FAULT_SHIFTED, 0, predict_other_sample);
    for (size_t k = 1; k < n_samples; k++) {
        f.shift = -(ptrdiff_t)k;
        f.amount = -(double)k;
        if (k == 1)
            nd_try(look, &f, "every sample holds the result of the sample after it");
        else
            nd_try(look, &f, "every sample holds the result of the sample %zu after it", k);
    }
    /* Exact quantised values come to these as a whole tensor. */
    if (n_samples > 1 && !nd_is_exact(look) && look->out->n == n_before && !try_constant_samples(look))
        try_repeated(look);
}

/* ---- another tensor's ---- */

static struct nd_span predict_other(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    return nd_exactly(((const struct nd_other *)f->data)->test[s * look->e->n + j]);
}

static void try_passed(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_PASSED_THROUGH, 0, predict_other);
    bool is_found = false;
    for (size_t k = 0; k < look->e->n_others && !is_found; k++) {
        f.data = &look->e->others[k];
        is_found =
            nd_try(look, &f, "equal to '%.80s', as if the operator did nothing", look->e->others[k].name);
    }
}

enum { ADDED, SUBTRACTED, MULTIPLIED, N_MODES };

static struct nd_span predict_operand(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const double *x = ((const struct nd_other *)f->data)->ref;
    if (s == 0)
        return nd_exactly(NAN);
    size_t i = s * look->e->n + j;
    double now = x[i], before = x[i - look->e->n], expected = look->e->expected[i];
    if (f->mode == MULTIPLIED)
        return nd_exactly(fabs(now) > 0 ? expected * (before / now) : NAN);
    return nd_exactly(f->mode == ADDED ? expected + (before - now) : expected - (before - now));
}

/* An Add, Sub or Mul of which one operand is late. Quantised values are clipped and tell nothing there: the
 * judge leaves 1 %. */
static void try_operand(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_STALE_OPERAND, 0, predict_operand);
    for (size_t k = 0; k < look->e->n_others; k++)
        for (f.mode = 0; f.mode < N_MODES; f.mode++) {
            f.data = &look->e->others[k];
            if (look->e->n_samples > 1 &&
                nd_try(look, &f, "computed with '%.80s' of the previous sample", look->e->others[k].name))
                return;
        }
}

/* Quantised values that are called by the type of the other sign. */

/* mode 0: bits of the dtype's quantised values, read with or without a sign. mode 1: the device used the other
 * type for the quantised values, too, so that they are half a range off before that. */
static struct nd_span predict_type(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    double expected = look->e->expected[s * look->e->n + j], range = look->highest - look->lowest + 1;
    bool is_upper = expected >= look->lowest + range / 2;
    if (f->mode == 1)
        return nd_exactly(is_upper ? expected - range / 2 : expected + range / 2);
    if (look->lowest < 0)
        return nd_exactly(is_upper ? expected : expected + range);
    return nd_exactly(is_upper ? expected - range : expected);
}

static void try_type(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_WRONG_TYPE, 0, predict_type);
    const char *other = look->lowest < 0 ? "unsigned" : "signed";
    nd_try(look, &f, "%s values are read as %s", nd_dtype_name(look->e->dtype), other);
    f.mode = 1;
    nd_try(look, &f, "%s values are read as %s", other, nd_dtype_name(look->e->dtype));
}

/* ---- one bit of a quantised value is the other one ---- */

/* The bit in which it is not what was expected, but for the noise, or -1. The lowest two are what rounding
 * moves. */
static int flipped_bit(const struct nd_look *look, size_t i)
{
    enum { LOWEST = 2 };
    double qvalue = look->e->captured[i] - look->lowest, last = look->highest - look->lowest;
    for (int bit = LOWEST; ldexp(1, bit) < last; bit++) {
        if (ldexp(1, bit) <= 4 * look->noise) /* of as many differences most would fit */
            continue;
        bool is_set = fmod(floor(ldexp(qvalue, -bit)), 2) == 1;
        double other = qvalue + (is_set ? -ldexp(1, bit) : ldexp(1, bit)) + look->lowest;
        if (fabs(other - look->e->expected[i]) <= look->noise)
            return bit;
    }
    return -1;
}

/* One bit in all of them; or, in six and more, any: of two bytes one in 40 differs in one of these six bits. */
static void try_flipped_bits(const struct nd_look *look)
{
    enum { FEWEST_OF_ANY = 6 };
    size_t n[64] = {0}, n_any = 0;
    int most = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        int bit = nd_is_known(look, i) && nd_is_wrong(look, i) ? flipped_bit(look, i) : -1;
        if (bit < 0)
            continue;
        n_any++;
        n[bit]++;
        most = n[bit] > n[most] ? bit : most;
    }
    bool is_one = (double)n[most] >= look->criteria->min_explained * (double)look->n_wrong;
    size_t n_flipped = is_one ? n[most] : n_any;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_FLIPPED_BIT, is_one ? most : -1,
                                        (double)n_flipped / (double)look->n_wrong, 0);
    if (is_one)
        nd_add(look, &f, "a bit is flipped: bit %d in %zu of %zu values", most, n_flipped, look->n_known);
    else if (n_flipped >= FEWEST_OF_ANY)
        nd_add(look, &f, "a bit is flipped in %zu of %zu values, not the same one in all", n_flipped,
               look->n_known);
}

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
    [ND_FAULT_TERMS_LOST] = "terms-lost",
    [ND_FAULT_BOUNDS_LOST] = "bounds-lost",
    [ND_FAULT_NOT_REQUANTISED] = "not-requantised",
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

/* ---- a clamp that only the reference has ---- */

struct end {
    double sign, at;              /* -1: the low end; its value in the reference */
    size_t n, n_beyond, n_within; /* elements of the reference there; the test's further on; not before it */
    size_t n_far;                 /* far ones of them */
    double least, most;           /* the test's values there */
};

static struct end count_end(const struct nd_look *look, double sign)
{
    const struct nd_evidence *e = look->e;
    struct end x = {.sign = sign, .at = -sign * HUGE_VAL, .least = HUGE_VAL, .most = -HUGE_VAL};
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_is_known(look, i) && sign * e->expected[i] > sign * x.at)
            x.at = e->expected[i];
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i) || e->expected[i] != x.at || !isfinite(e->captured[i]))
            continue;
        double beyond = sign * (e->captured[i] - x.at);
        x.n++;
        x.n_beyond += beyond > 0;
        x.n_within += beyond > -look->far;
        x.n_far += beyond > look->far;
        x.least = fmin(x.least, e->captured[i]);
        x.most = fmax(x.most, e->captured[i]);
    }
    return x;
}

/* The reference has one value in many elements, its least or its largest, and the test goes on there in nearly
 * all of them; elsewhere the two agree. Quantised values that are not zero there may be the end of the
 * reference's type. All chosen. */
static bool is_left_out(const struct nd_look *look, const struct end *x)
{
    bool may_be_end_of_type = look->e->ref_step > 0 && x->at != 0;
    return !may_be_end_of_type && x->n_far >= ND_MIN_DECISIVE && x->n_beyond * 10 >= x->n * 9 &&
           x->n_within * 100 >= x->n * 99 && x->n_far * 100 >= look->n_far * 95 &&
           x->most - x->least > look->far;
}

static void try_unclamped(const struct nd_look *look)
{
    for (double sign = -1; sign <= 1; sign += 2) {
        struct end x = count_end(look, sign);
        if (!is_left_out(look, &x))
            continue;
        struct nd_finding f = nd_finding_of(look, ND_FAULT_UNCLAMPED, x.at, nd_share_of_far(look, x.n_far), 0);
        nd_add(look, &f,
               "values go on %s %.6g in %zu of %zu elements where the reference stops there, as if a %s was "
               "left out",
               sign < 0 ? "below" : "above", x.at, x.n_beyond, x.n, sign < 0 && x.at == 0 ? "Relu" : "Clip");
        return;
    }
}

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
    {"one value", try_constant, EXACT | NOISY | WHOLE, ENDS},
    {"a line of the reference", nd_try_relations, WHOLE, ALWAYS},
    {"bits of the other sign", try_type, EXACT | NOISY, ALWAYS},
    {"scale and zero point", nd_try_scales, EXACT, ALWAYS},
    {"no clip", nd_try_lost_clip, EXACT, ALWAYS},
    {"accumulator", try_accumulators, EXACT | NOISY, ALWAYS},
    {"of another sample", try_samples, EXACT | NOISY | WHOLE, ALWAYS},
    {"equal to another tensor", try_passed, WHOLE, ALWAYS},
    {"an operand of the previous sample", try_operand, WHOLE, ALWAYS},
    {"a clamp left out", try_unclamped, WHOLE, ALWAYS},
    {"clamp and gain", nd_try_clamp, EXACT | NOISY | WHOLE, ALWAYS},
    {"cliff", nd_try_cliff, EXACT | NOISY | WHOLE, ALWAYS},
    {"window", nd_try_window, EXACT | NOISY | WHOLE, ALWAYS},
    {"flipped bits", try_flipped_bits, EXACT | NOISY, IF_NONE},
    {"rounded at random", try_stochastic, EXACT, IF_NONE},
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
        try_flips(&look);
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
