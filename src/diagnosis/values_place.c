/* Right values at the wrong time or place, and elements that nobody wrote. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "diagnosis/values_internal.h"

void nd_values_try_constant(const struct nd_values_look *look)
{
    const struct nd_values *v = look->v;
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_values_is_known(look, i) && v->test[i] != look->test_low)
            return;
    if (look->n_known < ND_VALUES_MIN_DECISIVE || look->n_far < ND_VALUES_MIN_DECISIVE)
        return;
    bool is_zero = look->test_low == 0;
    struct nd_finding f =
        nd_values_finding(look, is_zero ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT, look->test_low, 1, 0);
    nd_values_add(look, &f, "every value is %.6g; the reference's are not", look->test_low);
}

/* ---- the previous sample's ---- */

static double predict_sample(const struct nd_values_look *look, const void *fault, size_t s, size_t j)
{
    size_t back = *(const size_t *)fault, from = back == SIZE_MAX ? 0 : s - back;
    return back != SIZE_MAX && s < back ? NAN : look->v->ref[from * look->v->n + j];
}

static bool is_equal(const struct nd_values *v, size_t a, size_t b)
{
    return memcmp(v->test + a * v->n, v->test + b * v->n, v->n * sizeof *v->test) == 0;
}

static size_t count_apart(const struct nd_values_look *look, size_t a, size_t b)
{
    const struct nd_values *v = look->v;
    size_t n = 0;
    for (size_t j = 0; j < v->n; j++)
        n += fabs(v->ref[a * v->n + j] - v->ref[b * v->n + j]) > look->far;
    return n;
}

static bool is_one_value(const struct nd_values *v, size_t s)
{
    for (size_t j = 1; j < v->n; j++)
        if (memcmp(&v->test[s * v->n + j], &v->test[s * v->n], sizeof *v->test) != 0)
            return false;
    return true;
}

static size_t count_far(const struct nd_values_look *look, size_t s)
{
    size_t n = 0;
    for (size_t j = 0; j < look->v->n; j++)
        n += nd_values_is_far(look, s * look->v->n + j);
    return n;
}

/* Whole samples of one value, the same in each, as of a batch of which only a part is computed. They equal the
 * sample before, too, but say nothing of it. */
static bool try_constant_samples(const struct nd_values_look *look)
{
    const struct nd_values *v = look->v;
    size_t n_constant = 0, first = 0, last = 0, n_far = 0;
    for (size_t s = 0; s < v->n_samples; s++) {
        size_t n = count_far(look, s);
        /* Many values are right by themselves when half of the reference's are zero, as a Relu leaves them.
         * Chosen. */
        bool is_many = n * 2 >= v->n || (n >= ND_VALUES_MIN_DECISIVE && n * 8 >= v->n);
        if (n < 2 || !is_many || !is_one_value(v, s))
            continue;
        first = n_constant++ == 0 ? s : first;
        if (v->test[s * v->n] != v->test[first * v->n])
            return false;
        last = s;
        n_far += n;
    }
    if (n_far < ND_VALUES_MIN_DECISIVE)
        return false;
    double value = v->test[first * v->n];
    struct nd_finding f = nd_values_finding(look, value == 0 ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT, value,
                                            nd_values_share_of_far(look, n_far), 0);
    if (n_constant == last - first + 1 && n_constant > 1)
        nd_values_add(look, &f, "every value of samples %zu to %zu is %.6g; the reference's are not",
                      v->first_sample + first, v->first_sample + last, value);
    else
        nd_values_add(look, &f, "every value of %zu of %zu samples is %.6g, the first is sample %zu",
                      n_constant, v->n_samples, value, v->first_sample + first);
    return true;
}

/* Samples that are bit for bit the one before, while the reference's differ: whatever that one holds. A sample
 * of one value is no evidence: a device that gives nothing gives it twice. */
static void try_repeated(const struct nd_values_look *look)
{
    const struct nd_values *v = look->v;
    size_t n_repeated = 0, n_asked = 0, first = 0, n_apart = 0, n_far = 0;
    for (size_t s = 1; s < v->n_samples; s++) {
        size_t n = is_one_value(v, s) ? 0 : count_apart(look, s, s - 1);
        n_asked += n > 0;
        if (n == 0 || !is_equal(v, s, s - 1))
            continue;
        n_apart += n;
        n_far += count_far(look, s);
        first = n_repeated++ == 0 ? s : first;
    }
    if (n_repeated == 0 || n_apart < ND_VALUES_MIN_DECISIVE)
        return;
    /* Where every sample holds the same values even the first may be wrong. */
    double explained = n_repeated == n_asked ? 1 : nd_values_share_of_far(look, n_far);
    struct nd_finding f = nd_values_finding(look, ND_FAULT_STALE, n_repeated == n_asked ? 0 : 1, explained, 0);
    if (n_repeated == n_asked)
        nd_values_add(look, &f, "every sample holds the same values; the reference's samples differ");
    else
        nd_values_add(look, &f,
                      "%zu of %zu samples repeat the output of the sample before, the first is sample %zu",
                      n_repeated, n_asked, v->first_sample + first);
}

void nd_values_try_previous(const struct nd_values_look *look)
{
    double explained, chance;
    size_t n = look->out->n;
    if (look->v->n_samples < 2)
        return;
    for (size_t back = 1; back < look->v->n_samples && back <= 2; back++) {
        if (!nd_values_holds(look, predict_sample, &back, &explained, &chance))
            continue;
        struct nd_finding f = nd_values_finding(look, ND_FAULT_STALE, (double)back, explained, chance);
        nd_values_add(look, &f, "every sample holds what the sample %zu before it should have", back);
        return;
    }
    if (look->out->n == n && !try_constant_samples(look))
        try_repeated(look);
}

/* ---- another tensor's ---- */

static double predict_other(const struct nd_values_look *look, const void *fault, size_t s, size_t j)
{
    return ((const struct nd_values_other *)fault)->test[s * look->v->n + j];
}

void nd_values_try_passed(const struct nd_values_look *look)
{
    double explained, chance;
    for (size_t k = 0; k < look->v->n_others; k++) {
        const struct nd_values_other *other = &look->v->others[k];
        if (!nd_values_holds(look, predict_other, other, &explained, &chance))
            continue;
        struct nd_finding f = nd_values_finding(look, ND_FAULT_PASSED_THROUGH, 0, explained, chance);
        nd_values_add(look, &f, "equal to '%.80s', as if the operator did nothing", other->name);
        return;
    }
}

struct operand {
    const struct nd_values_other *other;
    int mode; /* 0: added, 1: subtracted, 2: multiplied */
};

static double predict_operand(const struct nd_values_look *look, const void *fault, size_t s, size_t j)
{
    const struct operand *o = fault;
    if (s == 0)
        return NAN;
    size_t i = s * look->v->n + j;
    double now = o->other->ref[i], before = o->other->ref[i - look->v->n], ref = look->v->ref[i];
    if (o->mode == 2)
        return fabs(now) > 0 ? ref * (before / now) : NAN;
    return o->mode == 0 ? ref + (before - now) : ref - (before - now);
}

/* An Add, Sub or Mul of which one operand is late. Codes are clipped and tell nothing there: the judge leaves 1
 * %. */
void nd_values_try_operand(const struct nd_values_look *look)
{
    double explained, chance;
    for (size_t k = 0; k < look->v->n_others; k++)
        for (int mode = 0; mode < 3; mode++) {
            const struct operand o = {&look->v->others[k], mode};
            if (look->v->n_samples < 2 || !nd_values_holds(look, predict_operand, &o, &explained, &chance))
                continue;
            struct nd_finding f = nd_values_finding(look, ND_FAULT_STALE_OPERAND, 0, explained, chance);
            nd_values_add(look, &f, "computed with '%.80s' of the previous sample", o.other->name);
            return;
        }
}

/* ---- windows ---- */

/* The elements of all samples that are far off lie in one window of at most half the tensor, and fill a quarter
 * of it (chosen: half of what a Relu gives is zero, and right by itself). What it holds is the same in every
 * sample. */
void nd_values_try_window(const struct nd_values_look *look)
{
    const struct nd_values *v = look->v;
    size_t first = SIZE_MAX, end = 0, n_moving = 0;
    bool is_same = true, is_constant = true;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_values_is_far(look, i))
            continue;
        first = i % v->n < first ? i % v->n : first;
        end = i % v->n >= end ? i % v->n + 1 : end;
    }
    size_t n_window = first < end ? (end - first) * v->n_samples : 0;
    if (n_window < ND_VALUES_MIN_DECISIVE || (end - first) * 2 > v->n || look->n_far * 4 < n_window)
        return;
    for (size_t s = 0; s < v->n_samples; s++)
        for (size_t j = first; j < end; j++) {
            double x = v->test[s * v->n + j], here = v->test[j], there = v->test[first];
            is_same = is_same && memcmp(&x, &here, sizeof x) == 0;
            is_constant = is_constant && memcmp(&x, &there, sizeof x) == 0;
            n_moving += fabs(v->ref[s * v->n + j] - v->ref[j]) > look->far;
        }
    is_same = is_same && n_moving >= ND_VALUES_MIN_DECISIVE;
    if (!is_same && !is_constant)
        return;
    struct nd_finding f = nd_values_finding(look, ND_FAULT_UNWRITTEN_WINDOW, (double)(end - first), 1, 0);
    if (is_constant)
        nd_values_add(look, &f, "elements %zu to %zu hold %.6g, all others are right", first, end - 1,
                      v->test[first]);
    else
        nd_values_add(look, &f, "elements %zu to %zu are the same in every sample, all others are right", first,
                      end - 1);
}

/* ---- runs ---- */

struct changes {
    size_t n, first, end;
    double most;
};

static struct changes compare_runs(const double *a, const double *b, size_t n)
{
    struct changes c = {.first = SIZE_MAX};
    for (size_t j = 0; j < n; j++) {
        if (memcmp(&a[j], &b[j], sizeof a[j]) == 0)
            continue;
        c.n++;
        c.first = j < c.first ? j : c.first;
        c.end = j + 1;
        c.most = isfinite(a[j]) && isfinite(b[j]) ? fmax(c.most, fabs(a[j] - b[j])) : HUGE_VAL;
    }
    return c;
}

static double largest(const double *x, size_t n)
{
    double most = 0;
    for (size_t j = 0; j < n; j++)
        most = isfinite(x[j]) ? fmax(most, fabs(x[j])) : most;
    return most;
}

static void say_launches(const struct changes *c, bool is_first_apart, const double *x, size_t n,
                         struct nd_value_findings *out)
{
    bool is_window = (c->end - c->first) * 2 <= n && c->n * 2 >= c->end - c->first && c->n >= 2;
    struct nd_finding f = {
        is_window ? ND_FAULT_UNWRITTEN_WINDOW : ND_FAULT_FIRST_LAUNCH, SIZE_MAX, -1, 0, 1, c->n, "", 0};
    if (!is_window && !is_first_apart)
        return;
    f.amount = is_window ? (double)(c->end - c->first) : (double)c->n;
    bool is_constant = true;
    for (size_t j = c->first; j < c->end; j++)
        is_constant = is_constant && x[j] == x[c->first];
    char held[48] = "";
    if (is_constant && is_first_apart)
        snprintf(held, sizeof held, "; the first run holds %.6g there", x[c->first]);
    if (is_window)
        snprintf(f.text, sizeof f.text, "elements %zu to %zu %s of the same input, all others do not%s",
                 c->first, c->end - 1,
                 is_first_apart ? "differ between the first and all later runs" : "change from run to run",
                 held);
    else
        snprintf(f.text, sizeof f.text,
                 "the first run differs from all later ones of the same input in %zu of %zu "
                 "values, by up to %.3g",
                 c->n, n, c->most);
    out->items[out->n++] = f;
}

void nd_values_compare_launches(const double *const *launches, size_t n_launches, size_t n, double step,
                                struct nd_value_findings *out)
{
    *out = (struct nd_value_findings){0};
    struct changes all = {.first = SIZE_MAX}, later = {.first = SIZE_MAX};
    for (size_t k = 1; k < n_launches; k++) {
        struct changes c = compare_runs(launches[0], launches[k], n);
        if (c.n > all.n)
            all.n = c.n;
        all.first = c.first < all.first ? c.first : all.first;
        all.end = c.end > all.end ? c.end : all.end;
        all.most = fmax(all.most, c.most);
        c = k > 1 ? compare_runs(launches[1], launches[k], n) : (struct changes){0};
        later.n += c.n;
    }
    /* One more run than two shows that the later ones are stable. Rounding that depends on the run is no fault.
     */
    bool is_first_apart = later.n == 0 && n_launches > 2;
    double noise = step > 0 ? 2 * step : ldexp(largest(launches[n_launches - 1], n), -6);
    if (all.n > 0 && all.most > noise)
        say_launches(&all, is_first_apart, launches[0], n, out);
}
