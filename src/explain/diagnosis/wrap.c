/* Values that wrap around, and quantised values that lost their high bits. */
#include <math.h>
#include <stdlib.h>

#include "explain/diagnosis/look.h"

/* Quantised values that lack the clip: 8 bits of a wider integer. */
static struct nd_span predict_lost_clip(const struct nd_look *look, const struct nd_fault *f, size_t s,
                                        size_t j)
{
    (void)f;
    size_t i = s * look->e->n + j;
    double value = look->e->exact[i];
    if (look->e->expected[i] > look->lowest && look->e->expected[i] < look->highest)
        return nd_exactly(look->e->expected[i]);
    double turns = floor((rint(value) - look->lowest) / 256);
    return turns == 0 ? nd_exactly(look->e->expected[i]) : nd_qvalues_of(look, value - 256 * turns);
}

void nd_try_lost_clip(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_OFFSET_256, 0, predict_lost_clip);
    if (look->highest - look->lowest == 255)
        nd_try(look, &f, "values wrap modulo 256 where they should clip");
}

/* ---- any period ---- */

/* The period is room, its window begins at low. */
static struct nd_span predict_wrap(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    double x = look->e->expected[s * look->e->n + j];
    return nd_exactly(x - f->room * floor((x - f->low) / f->room));
}

/* The distances by which elements are off, sorted into scratch; returns how many. */
static size_t sort_distances(const struct nd_look *look)
{
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_is_far(look, i) && isfinite(look->e->captured[i]))
            look->scratch[n++] = fabs(look->e->captured[i] - look->e->expected[i]);
    (void)nd_look_quantile(look->scratch, n, 0);
    return n;
}

/* A period that is a power of two of quantised values, or of whole numbers, is exactly that. */
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

/* Values that are all off by the same are no multiples of anything. */
static bool has_other_multiples(const struct nd_look *look, double period)
{
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (size_t i = 0; i < look->n_total; i++) {
        double multiple = rint((look->e->captured[i] - look->e->expected[i]) / period);
        if (nd_is_known(look, i) && isfinite(multiple)) {
            least = fmin(least, multiple);
            most = fmax(most, multiple);
        }
    }
    return least < most;
}

/* The window is that of the numbers of so many bits, and holds every value of the test. */
static bool try_period(const struct nd_look *look, double period, int n_bits)
{
    const struct nd_evidence *e = look->e;
    double unit = e->step > 0 ? e->step : 1, zero = e->step > 0 ? -e->step * e->zero_point : 0;
    const double lows[] = {zero, zero - period / 2, look->low};
    struct nd_fault f = nd_fault_of(ND_FAULT_WRAP, period / unit, predict_wrap);
    f.room = period;
    for (size_t k = 0; k < sizeof lows / sizeof lows[0]; k++) {
        f.low = lows[k];
        if (!(period > 0) || (n_bits == 0 && !has_other_multiples(look, period)) ||
            look->low < f.low - look->far || look->high > f.low + period + look->far)
            continue;
        bool is_found =
            n_bits > 0
                ? nd_try(look, &f, "%s wrap around modulo 2^%d", e->step > 0 ? "codes" : "values", n_bits)
                : nd_try(look, &f, "values wrap around: they are off by multiples of %.6g", period);
        if (is_found)
            return true;
    }
    return false;
}

/* Quantised values of fewer bits than their type: all lie in one window of 2^8 or 2^16 steps, the reference's
 * do not, and the low bits are near the reference's in 99 % of the elements, and of those that are beyond the
 * window. Chosen: near is an eighth of the period, to which chance comes in one of four; a device's own
 * differences are many steps of 16 bits. */
static bool try_low_bits(const struct nd_look *look, int n_bits)
{
    const struct nd_evidence *e = look->e;
    double period = e->step * ldexp(1, n_bits), least = HUGE_VAL, most = -HUGE_VAL;
    size_t n_right = 0, n_beyond = 0, n_beyond_right = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        least = nd_is_known(look, i) && e->expected[i] < least ? e->expected[i] : least;
        most = nd_is_known(look, i) && e->expected[i] > most ? e->expected[i] : most;
    }
    bool is_narrow = look->high - look->low < period && most - least > period;
    for (size_t i = 0; i < look->n_total && is_narrow; i++) {
        if (!nd_is_known(look, i))
            continue;
        bool is_right = fabs(remainder(e->captured[i] - e->expected[i], period)) <= period / 8;
        bool is_beyond = fabs(e->captured[i] - e->expected[i]) > period / 2;
        n_right += is_right;
        n_beyond += is_beyond;
        n_beyond_right += is_beyond && is_right;
    }
    if (!is_narrow || n_right * 100 < look->n_known * 99 || n_beyond < ND_MIN_DECISIVE ||
        n_beyond_right * 100 < n_beyond * 99)
        return false;
    double chance = (double)n_beyond * log10(0.25);
    struct nd_finding f =
        nd_finding_of(look, ND_FAULT_WRAP, period / e->step, (double)n_right / (double)look->n_known, chance);
    nd_add(look, &f, "values wrap around modulo 2^%d", n_bits);
    return true;
}

/* Low bits that follow the reference's although a device's own differences are many steps: a 16 bit quantised
 * value may be off by forty, a sixth of 2^8. Chosen: the mean direction of (test - reference) on the circle of
 * the period, each quantised value of the reference once, is 0.3 long at least and twice as long as the values
 * of both sides alone make it; of 64 quantised values and more beyond the window, which span four periods. For
 * directions without relation exp(-n length^2) is the chance (Rayleigh). */
enum { MIN_DIRECTIONS = 64 };
static const double min_direction = 0.3, min_periods = 4, max_direction_chance = -12;

struct pair {
    double ref, test;
};

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return (x->ref > y->ref) - (x->ref < y->ref);
}

/* The elements beyond the window, each quantised value of the reference once; scratch has room for a pair of
 * each element. */
static size_t collect_beyond(const struct nd_look *look, double period, struct pair *pairs)
{
    const struct nd_evidence *e = look->e;
    size_t n = 0, n_distinct = 0;
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_is_known(look, i) && fabs(e->captured[i] - e->expected[i]) > period / 2)
            pairs[n++] = (struct pair){e->expected[i], e->captured[i]};
    qsort(pairs, n, sizeof *pairs, compare_pairs);
    for (size_t k = 0; k < n; k++)
        if (n_distinct == 0 || pairs[k].ref != pairs[n_distinct - 1].ref)
            pairs[n_distinct++] = pairs[k];
    return n_distinct;
}

static double direction_of(double (*get)(const struct pair *), const struct pair *pairs, size_t n,
                           double period)
{
    double x = 0, y = 0;
    for (size_t k = 0; k < n; k++) {
        double angle = 2 * acos(-1) * get(&pairs[k]) / period;
        x += cos(angle);
        y += sin(angle);
    }
    return n > 0 ? hypot(x, y) / (double)n : 0;
}

static double get_ref(const struct pair *p)
{
    return p->ref;
}

static double get_test(const struct pair *p)
{
    return p->test;
}

static double get_apart(const struct pair *p)
{
    return p->test - p->ref;
}

static bool try_noisy_low_bits(const struct nd_look *look, int n_bits)
{
    const struct nd_evidence *e = look->e;
    double period = e->step * ldexp(1, n_bits);
    struct pair *pairs = (struct pair *)look->scratch;
    if (look->high - look->low >= period)
        return false;
    size_t n = collect_beyond(look, period, pairs), n_near = 0;
    if (n < MIN_DIRECTIONS || pairs[n - 1].ref - pairs[0].ref < min_periods * period)
        return false;
    double length = direction_of(get_apart, pairs, n, period);
    double of_both = direction_of(get_ref, pairs, n, period) * direction_of(get_test, pairs, n, period);
    double chance = -(double)n * length * length / log(10);
    if (length < min_direction || length < 2 * of_both || chance > max_direction_chance)
        return false;
    for (size_t i = 0; i < look->n_total; i++)
        n_near += nd_is_far(look, i) && fabs(remainder(e->captured[i] - e->expected[i], period)) <= period / 4;
    double spread = sqrt(-2 * log(length)) * period / (2 * acos(-1)) / e->step;
    struct nd_finding f =
        nd_finding_of(look, ND_FAULT_WRAP, period / e->step, nd_share_of_far(look, n_near), chance);
    nd_add(look, &f, "values wrap around modulo 2^%d, besides differences of about %.0f steps", n_bits, spread);
    return true;
}

/* The least distance is the period, or the least two or three times it where few values are that near. */
void nd_try_wrap(const struct nd_look *look)
{
    bool has_steps = look->e->step > 0;
    if (has_steps && (try_low_bits(look, 8) || try_low_bits(look, 16)))
        return;
    if (has_steps && (try_noisy_low_bits(look, 8) || try_noisy_low_bits(look, 16)))
        return;
    size_t n = sort_distances(look);
    const size_t ranks[] = {0, n / 100};
    for (size_t r = 0; r < sizeof ranks / sizeof ranks[0] && n >= ND_MIN_DECISIVE; r++) {
        /* The middle of those within half as much again as the given one. */
        size_t end = ranks[r];
        while (end < n && look->scratch[end] <= 1.5 * look->scratch[ranks[r]])
            end++;
        double period = end - ranks[r] >= 3 ? look->scratch[(ranks[r] + end) / 2] : NAN;
        for (int divisor = 1; divisor <= 3; divisor++) {
            int n_bits;
            double sharp = sharpen(period / divisor, look->e->step > 0 ? look->e->step : 1, &n_bits);
            if (try_period(look, sharp, n_bits))
                return;
        }
    }
}
