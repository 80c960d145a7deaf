/* Values that are cut off, multiplied, wrapped around, or lost from some limit on. */
#include <math.h>
#include <stdio.h>

#include "eval/rounding.h"
#include "explain/doctor/values_internal.h"

/* ---- clamps and a gain ---- */

struct clamp {
    double gain, low, high;
    bool has_low, has_high;
};

static double predict_clamp(const struct nd_values_look *look, const void *fault, size_t s, size_t j)
{
    const struct clamp *c = fault;
    double x = c->gain * look->v->ref[s * look->v->n + j];
    if (c->has_low)
        x = fmax(x, c->low);
    return c->has_high ? fmin(x, c->high) : x;
}

/* Many elements have the extreme value where the reference goes on: it has values on both sides of it there. */
static bool is_clamped(const struct nd_values_look *look, double extreme, double sign)
{
    enum { MIN_CLAMPED = 8 };
    double least = HUGE_VAL, most = -HUGE_VAL;
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_values_is_known(look, i) || look->v->test[i] != extreme)
            continue;
        n++;
        least = fmin(least, sign * look->v->ref[i]);
        most = fmax(most, sign * look->v->ref[i]);
    }
    return n >= MIN_CLAMPED && most - least > look->far;
}

static double find_gain(const struct nd_values_look *look, const struct clamp *c)
{
    const struct nd_values *v = look->v;
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        bool is_end = (c->has_low && v->test[i] == c->low) || (c->has_high && v->test[i] == c->high);
        if (nd_values_is_known(look, i) && isfinite(v->test[i]) && !is_end && fabs(v->ref[i]) > look->far)
            look->scratch[n++] = v->test[i] / v->ref[i];
    }
    return n >= ND_VALUES_MIN_DECISIVE ? nd_values_quantile(look->scratch, n, 0.5) : 1;
}

/* What lies beyond a clamp is exactly the clamp: of 99 elements in 100. */
static bool is_sharp(const struct nd_values_look *look, const struct clamp *c)
{
    size_t n = 0, n_sharp = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double x = c->gain * look->v->ref[i];
        bool is_low = c->has_low && x < c->low - look->far, is_high = c->has_high && x > c->high + look->far;
        if (!nd_values_is_known(look, i) || (!is_low && !is_high))
            continue;
        n++;
        n_sharp += look->v->test[i] == (is_low ? c->low : c->high);
    }
    return n_sharp * 100 >= n * 99;
}

/* The clamps are the ends of the type, which every value that is too large meets. */
static bool is_end_of_type(const struct nd_values_look *look, const struct clamp *c)
{
    const struct nd_values *v = look->v;
    double low, high;
    if (!(v->step > 0) || !nd_dtype_is_integer(v->dtype) || nd_dtype_size_bytes(v->dtype) > 4)
        return false;
    nd_code_range(v->dtype, &low, &high);
    bool is_low = fabs(c->low / v->step + v->zero_point - low) < 0.5;
    bool is_high = fabs(c->high / v->step + v->zero_point - high) < 0.5;
    return (!c->has_low || is_low) && (!c->has_high || is_high);
}

void nd_values_try_clamp(const struct nd_values_look *look)
{
    struct clamp c = {.low = look->test_low, .high = look->test_high};
    double explained, chance;
    c.has_low = is_clamped(look, c.low, -1);
    c.has_high = is_clamped(look, c.high, 1);
    c.gain = find_gain(look, &c);
    bool has_gain = fabs(c.gain - 1) > 0.02 && c.gain > 0, has_clamp = c.has_low || c.has_high;
    c.gain = has_gain ? c.gain : 1;
    if ((!has_gain && !has_clamp) || !is_sharp(look, &c) ||
        !nd_values_holds(look, predict_clamp, &c, &explained, &chance))
        return;
    bool is_end = has_gain && is_end_of_type(look, &c);
    has_clamp = has_clamp && !is_end;
    enum nd_fault_kind kind = has_clamp ? ND_FAULT_SATURATION : ND_FAULT_SCALE;
    double amount = !has_clamp ? c.gain : c.has_high ? c.high : c.low;
    struct nd_finding f = nd_values_finding(look, kind, amount, explained, chance);
    char gain[64] = "";
    if (has_gain)
        snprintf(gain, sizeof gain, "%s values %sare %.4g times as large", has_clamp ? "," : "",
                 has_clamp ? "between " : "", c.gain);
    if (!has_clamp)
        nd_values_add(look, &f, "all%s as the reference's%s", gain,
                      is_end && (c.has_low || c.has_high) ? ", as far as the type goes" : "");
    else if (c.has_low && c.has_high)
        nd_values_add(look, &f, "clamped at both ends, to %.6g..%.6g%s", c.low, c.high, gain);
    else
        nd_values_add(look, &f, "values stop %s %.6g%s", c.has_high ? "above" : "below", amount, gain);
}

/* ---- wrap-around ---- */

struct wrap {
    double period, low;
};

static double predict_wrap(const struct nd_values_look *look, const void *fault, size_t s, size_t j)
{
    const struct wrap *w = fault;
    double x = look->v->ref[s * look->v->n + j];
    return x - w->period * floor((x - w->low) / w->period);
}

/* The distances by which elements are off, sorted into scratch; returns how many. */
static size_t sort_distances(const struct nd_values_look *look)
{
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_values_is_far(look, i) && isfinite(look->v->test[i]))
            look->scratch[n++] = fabs(look->v->test[i] - look->v->ref[i]);
    (void)nd_values_quantile(look->scratch, n, 0);
    return n;
}

/* The middle of those within half as much again as the given one. */
static double period_at(const double *distances, size_t n, size_t from)
{
    size_t end = from;
    while (end < n && distances[end] <= 1.5 * distances[from])
        end++;
    return end - from >= 3 ? distances[(from + end) / 2] : NAN;
}

/* A period that is a power of two of codes, or of whole numbers, is exactly that. */
static double sharpen(double period, double unit, int *n_bits)
{
    static const int bits[] = {4, 8, 16, 32};
    *n_bits = 0;
    for (size_t b = 0; b < sizeof bits / sizeof bits[0]; b++)
        if (fabs(period / unit / ldexp(1, bits[b]) - 1) < 0.01) {
            *n_bits = bits[b];
            return unit * ldexp(1, bits[b]);
        }
    return period;
}

/* The window is that of the numbers of so many bits, and holds every value of the test. */
static bool try_period(const struct nd_values_look *look, double period, int n_bits)
{
    const struct nd_values *v = look->v;
    double unit = v->step > 0 ? v->step : 1, zero = v->step > 0 ? -v->step * v->zero_point : 0, explained,
           chance;
    const double lows[] = {zero, zero - period / 2, look->test_low};
    for (size_t k = 0; k < sizeof lows / sizeof lows[0]; k++) {
        const struct wrap w = {period, lows[k]};
        if (!(period > 0) || look->test_low < w.low - look->far || look->test_high > w.low + period + look->far)
            continue;
        if (!nd_values_holds(look, predict_wrap, &w, &explained, &chance))
            continue;
        struct nd_finding f = nd_values_finding(look, ND_FAULT_WRAP, period / unit, explained, chance);
        if (n_bits > 0)
            nd_values_add(look, &f, "%s wrap around modulo 2^%d", v->step > 0 ? "codes" : "values", n_bits);
        else
            nd_values_add(look, &f, "values wrap around: they are off by multiples of %.6g", period);
        return true;
    }
    return false;
}

/* Codes of fewer bits than their type: all lie in one window of 2^8 or 2^16 steps, the reference's do not, and
 * the low bits are the reference's, up to four steps, in 99 % of the elements. */
static bool try_low_bits(const struct nd_values_look *look, int n_bits)
{
    const struct nd_values *v = look->v;
    double period = v->step * ldexp(1, n_bits), least = HUGE_VAL, most = -HUGE_VAL;
    size_t n_right = 0, n_beyond = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_values_is_known(look, i))
            continue;
        least = fmin(least, v->ref[i]);
        most = fmax(most, v->ref[i]);
        n_right += fabs(remainder(v->test[i] - v->ref[i], period)) <= 4.5 * v->step;
        n_beyond += fabs(v->test[i] - v->ref[i]) > period / 2;
    }
    bool is_narrow = look->test_high - look->test_low < period && most - least > period;
    if (!is_narrow || n_right * 100 < look->n_known * 99 || n_beyond < ND_VALUES_MIN_DECISIVE)
        return false;
    double chance = (double)n_beyond * log10(9 * v->step / period);
    struct nd_finding f = nd_values_finding(look, ND_FAULT_WRAP, period / v->step,
                                            (double)n_right / (double)look->n_known, chance);
    nd_values_add(look, &f, "codes wrap around modulo 2^%d", n_bits);
    return true;
}

/* The least distance is the period, or the least two or three times it where few values are that near. */
void nd_values_try_wrap(const struct nd_values_look *look)
{
    if (look->v->step > 0 && (try_low_bits(look, 8) || try_low_bits(look, 16)))
        return;
    size_t n = sort_distances(look);
    const size_t ranks[] = {0, n / 100};
    for (size_t r = 0; r < sizeof ranks / sizeof ranks[0] && n >= ND_VALUES_MIN_DECISIVE; r++) {
        double period = period_at(look->scratch, n, ranks[r]);
        for (int divisor = 1; divisor <= 3; divisor++) {
            int n_bits;
            double sharp = sharpen(period / divisor, look->v->step > 0 ? look->v->step : 1, &n_bits);
            if (try_period(look, sharp, n_bits))
                return;
        }
    }
}

/* ---- cliffs ---- */

/* From a value of x on, in the tensor itself or in another, elements are one constant or lost. mode 1: up, -1:
 * down, 0: magnitudes up. */
struct cliff {
    const double *x;
    int mode;
    double right, broken; /* the last x that is right and the first that is not */
    size_t n_right, n_broken;
    double before; /* the test's value in the last right element */
};

static double measure_of(const struct cliff *c, size_t i)
{
    return c->mode == 0 ? fabs(c->x[i]) : c->mode * c->x[i];
}

static bool is_behind(const struct nd_values_look *look, size_t i, double constant)
{
    double x = look->v->test[i];
    return isfinite(constant) ? x == constant : !isfinite(x);
}

/* Whether the broken elements and the right ones part at one value of x. Elements that hold the constant and
 * are not far off belong to neither. */
static bool is_parted(const struct nd_values_look *look, double constant, struct cliff *c)
{
    c->right = -HUGE_VAL;
    c->broken = HUGE_VAL;
    c->n_right = c->n_broken = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_values_is_known(look, i) || isnan(c->x[i]))
            continue;
        bool is_constant = is_behind(look, i, constant), is_far = nd_values_is_far(look, i);
        double x = measure_of(c, i);
        if (is_constant && is_far) {
            c->n_broken++;
            c->broken = fmin(c->broken, x);
        } else if (!is_constant) {
            c->n_right++;
            c->before = x > c->right ? look->v->test[i] : c->before;
            c->right = fmax(c->right, x);
        }
    }
    return c->n_broken >= 3 && c->n_right >= 8 && c->right < c->broken;
}

/* The constant behind the cliff: NAN when values are lost; *is_one: 90 % of the far elements hold it. */
static double find_constant(const struct nd_values_look *look, bool *is_one)
{
    size_t n = 0, longest = 0, run = 0;
    double constant = NAN;
    *is_one = look->n_lost * 10 >= look->n_far * 9;
    if (look->n_lost > 0)
        return NAN;
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_values_is_far(look, i))
            look->scratch[n++] = look->v->test[i];
    (void)nd_values_quantile(look->scratch, n, 0);
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

static const char *name_constant(const struct nd_values_look *look, double constant, char text[32])
{
    size_t n_nan = 0;
    for (size_t i = 0; i < look->n_total && !isfinite(constant); i++)
        n_nan += nd_values_is_known(look, i) && isnan(look->v->test[i]);
    if (!isfinite(constant))
        return n_nan * 2 > look->n_lost ? "NaN" : "infinite";
    snprintf(text, 32, "%.6g", constant);
    return text;
}

static bool try_cliff(const struct nd_values_look *look, double constant, const char *name, struct cliff *c)
{
    if (!is_parted(look, constant, c))
        return false;
    double chance = -log10_choose((double)(c->n_right + c->n_broken), (double)c->n_broken);
    bool is_jump = !isfinite(constant) || fabs(c->before - constant) > look->far;
    if (chance > -6 || !is_jump)
        return false;
    double sign = c->mode < 0 ? -1 : 1;
    char number[32], of[80] = "";
    const char *limit = explain_limit(c);
    if (name != NULL)
        snprintf(of, sizeof of, " of '%.40s'", name);
    struct nd_finding f = nd_values_finding(look, ND_FAULT_HARD_CLIFF, sign * c->broken,
                                            (double)c->n_broken / (double)look->n_far, chance);
    nd_values_add(look, &f, "%s where the %s%s is %.6g or %s (right up to %.6g)%s%s",
                  name_constant(look, constant, number), c->mode == 0 ? "magnitude" : "value", of,
                  sign * c->broken, c->mode < 0 ? "less" : "more", sign * c->right, limit != NULL ? ": " : "",
                  limit != NULL ? limit : "");
    return true;
}

void nd_values_try_cliff(const struct nd_values_look *look)
{
    static const int modes[] = {0, 1, -1};
    const struct nd_values *v = look->v;
    bool is_one;
    double constant = find_constant(look, &is_one);
    if (!is_one)
        return;
    for (size_t k = 0; k <= v->n_others; k++)
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            struct cliff c = {.x = k == 0 ? v->ref : v->others[k - 1].ref, .mode = modes[m]};
            if (try_cliff(look, constant, k == 0 ? NULL : v->others[k - 1].name, &c))
                return;
        }
}
