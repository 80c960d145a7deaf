/* Values that are cut off or multiplied, and a clamp that only the reference has. */
#include <math.h>
#include <stdio.h>

#include "diagnosis/values_internal.h"
#include "eval/rounding.h"

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

/* ---- a clamp that only the reference has ---- */

struct end {
    double sign, at;              /* -1: the low end; its value in the reference */
    size_t n, n_beyond, n_within; /* elements of the reference there; the test's further on; not before it */
    size_t n_far;                 /* far ones of them */
    double least, most;           /* the test's values there */
};

static struct end count_end(const struct nd_values_look *look, double sign)
{
    const struct nd_values *v = look->v;
    struct end e = {.sign = sign, .at = -sign * HUGE_VAL, .least = HUGE_VAL, .most = -HUGE_VAL};
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_values_is_known(look, i) && sign * v->ref[i] > sign * e.at)
            e.at = v->ref[i];
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_values_is_known(look, i) || v->ref[i] != e.at || !isfinite(v->test[i]))
            continue;
        double beyond = sign * (v->test[i] - e.at);
        e.n++;
        e.n_beyond += beyond > 0;
        e.n_within += beyond > -look->far;
        e.n_far += beyond > look->far;
        e.least = fmin(e.least, v->test[i]);
        e.most = fmax(e.most, v->test[i]);
    }
    return e;
}

/* The reference has one value in many elements, its least or its largest, and the test goes on there in nearly
 * all of them; elsewhere the two agree. Codes that are not zero there may be the end of the reference's type.
 * All chosen. */
static bool is_left_out(const struct nd_values_look *look, const struct end *e)
{
    bool may_be_end_of_type = look->v->ref_step > 0 && e->at != 0;
    return !may_be_end_of_type && e->n_far >= ND_VALUES_MIN_DECISIVE && e->n_beyond * 10 >= e->n * 9 &&
           e->n_within * 100 >= e->n * 99 && e->n_far * 100 >= look->n_far * 95 &&
           e->most - e->least > look->far;
}

void nd_values_try_unclamped(const struct nd_values_look *look)
{
    for (double sign = -1; sign <= 1; sign += 2) {
        struct end e = count_end(look, sign);
        if (!is_left_out(look, &e))
            continue;
        struct nd_finding f =
            nd_values_finding(look, ND_FAULT_UNCLAMPED, e.at, nd_values_share_of_far(look, e.n_far), 0);
        nd_values_add(
            look, &f,
            "values go on %s %.6g in %zu of %zu elements where the reference stops there, as if a %s was left "
            "out",
            sign < 0 ? "below" : "above", e.at, e.n_beyond, e.n, sign < 0 && e.at == 0 ? "Relu" : "Clip");
        return;
    }
}
