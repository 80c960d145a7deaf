/* Values that are one constant, or lost, from some limit on. */
#include <math.h>
#include <stdio.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/look.h"

/* Values that are cut off or multiplied, and a clamp that only the reference has. */

/* ---- clamps and a gain ---- */

struct clamp {
    double gain, low, high;
    bool has_low, has_high;
};

static struct nd_span predict_clamp(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const struct clamp *c = f->data;
    double x = c->gain * look->e->expected[s * look->e->n + j];
    x = c->has_low ? fmax(x, c->low) : x;
    return nd_exactly(c->has_high ? fmin(x, c->high) : x);
}

/* Many elements have the extreme value where the reference goes on: it has values on both sides of it there. Of
 * exact quantised values one that is no rounding is enough. */
static bool is_clamped(const struct nd_look *look, double extreme, double sign)
{
    enum { MIN_CLAMPED = 8 };
    double least = HUGE_VAL, most = -HUGE_VAL;
    size_t n = 0;
    for (size_t i = 0; i < look->n_total && nd_is_exact(look); i++)
        if (look->e->captured[i] == extreme && nd_is_far(look, i))
            return true;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i) || look->e->captured[i] != extreme)
            continue;
        n++;
        least = fmin(least, sign * look->e->expected[i]);
        most = fmax(most, sign * look->e->expected[i]);
    }
    return !nd_is_exact(look) && n >= MIN_CLAMPED && most - least > look->far;
}

/* Exact quantised values of another scale are scale.c's. */
static double find_gain(const struct nd_look *look, const struct clamp *c)
{
    static const double min_gain =
        0.02; /* chosen: more than a scale loses in half precision, many times over */
    const struct nd_evidence *e = look->e;
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        bool is_end = (c->has_low && e->captured[i] == c->low) || (c->has_high && e->captured[i] == c->high);
        if (nd_is_known(look, i) && isfinite(e->captured[i]) && !is_end && fabs(e->expected[i]) > look->far)
            look->scratch[n++] = e->captured[i] / e->expected[i];
    }
    double gain = n >= ND_MIN_DECISIVE && !nd_is_exact(look) ? nd_look_quantile(look->scratch, n, 0.5) : 1;
    return gain > 0 && fabs(gain - 1) > min_gain ? gain : 1;
}

/* What lies beyond a clamp is exactly the clamp: of 99 elements in 100. (So the judge asks of exact quantised
 * values.) */
static bool is_sharp(const struct nd_look *look, const struct clamp *c)
{
    size_t n = 0, n_sharp = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double x = c->gain * look->e->expected[i];
        bool is_low = c->has_low && x < c->low - look->far, is_high = c->has_high && x > c->high + look->far;
        if (!nd_is_known(look, i) || (!is_low && !is_high))
            continue;
        n++;
        n_sharp += look->e->captured[i] == (is_low ? c->low : c->high);
    }
    return n_sharp * 100 >= n * 99;
}

void nd_ends_of_type(const struct nd_evidence *e, double *low, double *high)
{
    bool has_ends = e->step > 0 && nd_dtype_is_of_qvalues(e->dtype);
    if (has_ends)
        nd_qvalue_range(e->dtype, low, high);
    *low = has_ends ? e->step * (*low - e->zero_point) : -HUGE_VAL;
    *high = has_ends ? e->step * (*high - e->zero_point) : HUGE_VAL;
}

/* The clamps are the ends of the type, which every value that is too large meets. */
static bool is_end_of_type(const struct nd_look *look, const struct clamp *c)
{
    double low, high, half = look->e->step / 2;
    nd_ends_of_type(look->e, &low, &high);
    return (!c->has_low || fabs(c->low - low) < half) && (!c->has_high || fabs(c->high - high) < half);
}

void nd_try_clamp(const struct nd_look *look)
{
    struct clamp c = {.low = look->low, .high = look->high};
    c.has_low = is_clamped(look, c.low, -1);
    c.has_high = is_clamped(look, c.high, 1);
    c.gain = find_gain(look, &c);
    bool has_gain = c.gain != 1;
    if ((!c.has_low && !c.has_high) || (has_gain && is_end_of_type(look, &c)) || !is_sharp(look, &c))
        return; /* of a gain alone relations.c knows more */
    struct nd_fault f = nd_fault_of(ND_FAULT_SATURATION, c.has_high ? c.high : c.low, predict_clamp);
    f.data = &c;
    char gain[64] = "";
    if (has_gain)
        snprintf(gain, sizeof gain, ", values between are %s times as large", ND_FACTOR(c.gain, 4));
    if (c.has_low && c.has_high)
        nd_try(look, &f, "clamped at both ends, to %.6g..%.6g%s", c.low, c.high, gain);
    else
        nd_try(look, &f, "%s stop %s %.6g%s", nd_is_exact(look) ? "codes" : "values",
               c.has_high ? "above" : "below", f.amount, gain);
}

/* A device that computes its own values falls off at its own: a value whose own noise carries it over the limit
 * is on the other side than the reference's. Chosen: such elements are a tenth of the broken ones at most, and
 * all but 1 % lie within four times the noise (root mean square) of the limit. */
enum { BROKEN_TO_EXCEPTIONS = 10, BROKEN_TO_STRAYS = 100 };
static const double noises_around_limit = 4;

/* From a value of x on, in the tensor itself or in another, elements are one constant or lost. mode 1: up, -1:
 * down, 0: magnitudes up. */
struct cliff {
    const double *x, *x_test;
    int mode;
    double right, broken; /* x on both sides of the limit */
    size_t n_right, n_broken;
    size_t n_right_behind, n_broken_before; /* exceptions */
    double band;                            /* in which the exceptions lie */
    double before;                          /* the test's value in the last right element */
};

static double measure_of(const struct cliff *c, double x)
{
    return c->mode == 0 ? fabs(x) : c->mode * x;
}

enum side { NEITHER, RIGHT, BROKEN };

/* Elements that hold the constant and are not far off belong to neither side. */
static enum side side_of(const struct nd_look *look, const struct cliff *c, size_t i, double constant)
{
    if (!nd_is_known(look, i) || isnan(c->x[i]))
        return NEITHER;
    double x = look->e->captured[i];
    bool is_constant = isfinite(constant) ? x == constant : !isfinite(x);
    return !is_constant ? RIGHT : nd_is_far(look, i) ? BROKEN : NEITHER;
}

/* Sorts the measures of the right elements into scratch, of the broken ones into scratch2; and how far the
 * test's x is from the reference's where it is no error. */
static void sort_sides(const struct nd_look *look, double constant, struct cliff *c)
{
    double squares = 0;
    size_t n_near = 0;
    c->n_right = c->n_broken = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        enum side side = side_of(look, c, i, constant);
        double off = c->x_test[i] - c->x[i];
        if (side == BROKEN)
            look->scratch2[c->n_broken++] = measure_of(c, c->x[i]);
        if (side != RIGHT)
            continue;
        look->scratch[c->n_right++] = measure_of(c, c->x[i]);
        if (isfinite(off) && !nd_is_far(look, i)) {
            squares += off * off;
            n_near++;
        }
    }
    (void)nd_look_quantile(look->scratch, c->n_right, 0);
    (void)nd_look_quantile(look->scratch2, c->n_broken, 0);
    c->band = n_near > 0 ? noises_around_limit * sqrt(squares / (double)n_near) : 0;
}

/* The limit that leaves the fewest exceptions: broken elements from scratch2[cut] on are behind it. */
static void find_limit(const struct nd_look *look, struct cliff *c)
{
    size_t fewest = SIZE_MAX, n_before = 0; /* right elements before the limit */
    for (size_t cut = 0; cut < c->n_broken; cut++) {
        while (n_before < c->n_right && look->scratch[n_before] < look->scratch2[cut])
            n_before++;
        if (cut + c->n_right - n_before >= fewest)
            continue;
        fewest = cut + c->n_right - n_before;
        c->broken = look->scratch2[cut];
        c->right = n_before > 0 ? look->scratch[n_before - 1] : -HUGE_VAL;
        c->n_broken_before = cut;
        c->n_right_behind = c->n_right - n_before;
    }
}

/* Whether the broken elements and the right ones part at one value of x, up to the device's own noise. */
static bool is_parted(const struct nd_look *look, double constant, struct cliff *c)
{
    sort_sides(look, constant, c);
    if (c->n_broken < 3 || c->n_right < 8)
        return false;
    find_limit(look, c);
    size_t n_exceptions = c->n_broken_before + c->n_right_behind, n_strays = 0;
    if (n_exceptions * BROKEN_TO_EXCEPTIONS > c->n_broken || c->n_right - c->n_right_behind < 8)
        return false;
    for (size_t k = 0; k < c->n_broken_before; k++)
        n_strays += look->scratch2[k] < c->broken - c->band;
    for (size_t k = c->n_right - c->n_right_behind; k < c->n_right; k++)
        n_strays += look->scratch[k] > c->right + c->band;
    if (n_strays * BROKEN_TO_STRAYS > c->n_broken)
        return false;
    for (size_t i = 0; i < look->n_total; i++)
        if (side_of(look, c, i, constant) == RIGHT && measure_of(c, c->x[i]) == c->right)
            c->before = look->e->captured[i];
    return true;
}

/* The constant behind the cliff: NAN when values are lost; *is_one: 90 % of the far elements hold it. */
static double find_constant(const struct nd_look *look, bool *is_one)
{
    size_t n = 0, longest = 0, run = 0;
    double constant = NAN;
    *is_one = look->n_lost * 10 >= look->n_far * 9;
    if (look->n_lost > 0)
        return NAN;
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_is_far(look, i))
            look->scratch[n++] = look->e->captured[i];
    (void)nd_look_quantile(look->scratch, n, 0);
    for (size_t k = 0; k < n; k++) {
        run = k > 0 && look->scratch[k] == look->scratch[k - 1] ? run + 1 : 1;
        constant = run > longest ? look->scratch[k] : constant;
        longest = run > longest ? run : longest;
    }
    *is_one = longest * 10 >= n * 9;
    return constant;
}

/* Limits of arithmetic that a cliff may stand at; the largest value that is right, rounded. */
static const struct {
    double at;
    const char *text;
} limits[] = {
    {65504, "half precision ends at 65504"},
    {57344, "float8_e5m2 ends at 57344"},
    {448, "float8_e4m3fn ends at 448"},
    {11.0899, "exp of more than 11.09 overflows half precision"},
    {88.7228, "exp of more than 88.72 overflows float32"},
    {255.938, "the square of more than 255.9 overflows half precision"},
    {40.3109, "the cube of more than 40.31 overflows half precision"},
    {3.38953e38, "bfloat16 ends at 3.39e38"},
};

/* The limit between the last right value and the first broken one; the nearest to them where there are several.
 * A gap of more than a factor of 4 says too little. */
static const char *explain_limit(const struct cliff *c)
{
    double right = fabs(c->right), broken = fabs(c->broken);
    for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++)
        if (c->mode >= 0 && limits[k].at >= right * (1 - 1e-3) && limits[k].at <= broken * (1 + 1e-3) &&
            broken <= 4 * right)
            return limits[k].text;
    return NULL;
}

static double log10_choose(double n, double k)
{
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10);
}

enum { NAME_BYTES = 48 };

static const char *name_constant(const struct nd_look *look, double constant, char text[NAME_BYTES])
{
    size_t n_nan = 0;
    for (size_t i = 0; i < look->n_total && !isfinite(constant); i++)
        n_nan += nd_is_known(look, i) && isnan(look->e->captured[i]);
    if (!isfinite(constant))
        return n_nan * 2 > look->n_lost ? "NaN" : "infinite";
    snprintf(text, NAME_BYTES, "%.6g%s", constant,
             nd_is_exact(look) && nd_is_zero(look, constant) ? " (the quantised value of zero)" : "");
    return text;
}

static bool try_cliff(const struct nd_look *look, double constant, const char *name, struct cliff *c)
{
    if (!is_parted(look, constant, c))
        return false;
    /* Of all ways to choose the broken ones, those with as many exceptions on each side. */
    double chance = log10_choose((double)c->n_right, (double)c->n_right_behind) +
                    log10_choose((double)c->n_broken, (double)c->n_broken_before) -
                    log10_choose((double)(c->n_right + c->n_broken), (double)c->n_broken);
    size_t n_exceptions = c->n_right_behind + c->n_broken_before;
    bool is_jump = !isfinite(constant) || fabs(c->before - constant) > look->far;
    if (chance > -6 || !is_jump)
        return false;
    double sign = c->mode < 0 ? -1 : 1;
    char number[NAME_BYTES], of[80] = "", but[48] = "";
    const char *limit = explain_limit(c);
    if (n_exceptions > 0)
        snprintf(but, sizeof but, " but for %zu beside the limit", n_exceptions);
    if (name != NULL)
        snprintf(of, sizeof of, " of '%.40s'", name);
    struct nd_finding f =
        nd_finding_of(look, ND_FAULT_HARD_CLIFF, sign * c->broken, nd_share_of_far(look, c->n_broken), chance);
    nd_add(look, &f, "%s where the %s%s is %.6g or %s (right up to %.6g)%s%s%s",
           name_constant(look, constant, number), c->mode == 0 ? "magnitude" : "value", of, sign * c->broken,
           c->mode < 0 ? "less" : "more", sign * c->right, but, limit != NULL ? ": " : "",
           limit != NULL ? limit : "");
    return true;
}

void nd_try_cliff(const struct nd_look *look)
{
    static const int modes[] = {0, 1, -1};
    const struct nd_evidence *e = look->e;
    bool is_one;
    double constant = find_constant(look, &is_one);
    if (!is_one)
        return;
    for (size_t k = 0; k <= e->n_others; k++)
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            const double *own = nd_is_exact(look) ? e->exact : e->expected;
            struct cliff c = {.x = k == 0 ? own : e->others[k - 1].ref,
                              .x_test = k > 0               ? e->others[k - 1].test
                                        : nd_is_exact(look) ? e->exact
                                                            : e->captured,
                              .mode = modes[m]};
            if (try_cliff(look, constant, k == 0 ? NULL : e->others[k - 1].name, &c))
                return;
        }
}
