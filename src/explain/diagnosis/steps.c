/* Differences that a quantiser or a step function makes of (almost) equal inputs. */
#include <math.h>
#include <stdio.h>

#include "explain/diagnosis/look.h"
#include "explain/diagnosis/values.h"

/* Greater, Less and Equal: a tensor of zeros and ones that follows on both sides from what each of them
 * compares, and differs where that differs by little. */

/* Chosen, as for other step functions: zeros and ones of each kind that must be there. Fewer follow many a rule
 * by chance. */
enum { MIN_TELLING = 8 };
/* Chosen, as for values that are far off: a larger part of the spread of what is compared is no small
 * difference. */
static const double small_part = 1.0 / 8;

enum relation { GREATER, GREATER_OR_EQUAL, LESS, LESS_OR_EQUAL, EQUAL, N_RELATIONS };

/* a > b is b < a: values do not say which of the two the model has. */
static const char *const names[N_RELATIONS] = {"Greater or Less", "GreaterOrEqual or LessOrEqual",
                                               "Greater or Less", "GreaterOrEqual or LessOrEqual", "Equal"};
static const char *const signs[N_RELATIONS] = {">", ">=", "<", "<=", "="};

static bool is_true(enum relation relation, double a, double b)
{
    switch (relation) {
    case GREATER:
        return a > b;
    case GREATER_OR_EQUAL:
        return a >= b;
    case LESS:
        return a < b;
    case LESS_OR_EQUAL:
        return a <= b;
    default:
        return a == b;
    }
}

/* What is counted of a relation that holds. */
struct comparison {
    size_t n_differing;
    double most; /* by which what is compared differs there */
};

/* Zeros and one other value on both sides, enough of each. */
static bool is_two_valued(const struct nd_evidence *e, size_t n)
{
    double one = 0;
    size_t n_ones[2] = {0, 0};
    for (size_t side = 0; side < 2; side++)
        for (size_t i = 0; i < n; i++) {
            double x = side == 0 ? e->expected[i] : e->captured[i];
            one = one == 0 ? x : one;
            if (!isfinite(x) || (x != 0 && x != one))
                return false;
            n_ones[side] += x != 0;
        }
    for (size_t side = 0; side < 2; side++)
        if (n_ones[side] < MIN_TELLING || n - n_ones[side] < MIN_TELLING)
            return false;
    return true;
}

static bool is_finite(const struct nd_other *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x->ref[i]) || !isfinite(x->test[i]))
            return false;
    return true;
}

/* ---- of two tensors ---- */

static bool holds(const struct nd_look *look, const struct nd_other *a, const struct nd_other *b,
                  enum relation relation, struct comparison *out)
{
    const struct nd_evidence *e = look->e;
    *out = (struct comparison){0};
    for (size_t i = 0; i < look->n_total; i++) {
        if (is_true(relation, a->ref[i], b->ref[i]) != (e->expected[i] != 0) ||
            is_true(relation, a->test[i], b->test[i]) != (e->captured[i] != 0))
            return false;
        if (e->expected[i] == e->captured[i])
            continue;
        out->n_differing++;
        out->most = fmax(out->most, fabs((a->test[i] - b->test[i]) - (a->ref[i] - b->ref[i])));
    }
    return out->most > 0 && out->most <= small_part * nd_look_spread(a->ref, b->ref, look->n_total);
}

static bool try_pair(const struct nd_look *look, const struct nd_other *a, const struct nd_other *b)
{
    struct comparison found;
    for (int r = 0; r < N_RELATIONS; r++) {
        if (!holds(look, a, b, (enum relation)r, &found))
            continue;
        struct nd_finding f = nd_finding_of(look, ND_FAULT_STEP, found.most, 1, 0);
        nd_add(look, &f,
               "%s ('%.24s' %s '%.24s') amplifies: their difference changes by at most %.3g in the %zu "
               "elements that differ",
               names[r], a->name, signs[r], b->name, found.most, found.n_differing);
        return true;
    }
    return false;
}

/* ---- of a tensor and a constant ---- */

/* The values of both sides that are compared, by outcome. */
struct range {
    double low[2], high[2]; /* of what gives 0, of what gives 1 */
    struct comparison found;
};

static struct range measure(const struct nd_look *look, const struct nd_other *x)
{
    const struct nd_evidence *e = look->e;
    struct range range = {.low = {HUGE_VAL, HUGE_VAL}, .high = {-HUGE_VAL, -HUGE_VAL}};
    for (size_t i = 0; i < look->n_total; i++) {
        int ref = e->expected[i] != 0, test = e->captured[i] != 0;
        range.low[ref] = fmin(range.low[ref], x->ref[i]);
        range.high[ref] = fmax(range.high[ref], x->ref[i]);
        range.low[test] = fmin(range.low[test], x->test[i]);
        range.high[test] = fmax(range.high[test], x->test[i]);
        if (ref == test)
            continue;
        range.found.n_differing++;
        range.found.most = fmax(range.found.most, fabs(x->ref[i] - x->test[i]));
    }
    return range;
}

/* What gives 1 is one number, and nothing else is that number. */
static bool is_one_number(const struct nd_look *look, const struct nd_other *x, double number)
{
    for (size_t i = 0; i < look->n_total; i++)
        if ((x->ref[i] == number) != (look->e->expected[i] != 0) ||
            (x->test[i] == number) != (look->e->captured[i] != 0))
            return false;
    return true;
}

static bool try_constant(const struct nd_look *look, const struct nd_other *x)
{
    const struct range range = measure(look, x);
    const struct comparison *found = &range.found;
    char what[96] = "";
    if (!(found->most > 0) || found->most > small_part * nd_look_spread(x->ref, NULL, look->n_total))
        return false;
    if (range.high[0] < range.low[1])
        snprintf(what, sizeof what, "Greater or Less (a constant from %.6g to %.6g)", range.high[0],
                 range.low[1]);
    else if (range.high[1] < range.low[0])
        snprintf(what, sizeof what, "Greater or Less (a constant from %.6g to %.6g)", range.high[1],
                 range.low[0]);
    else if (range.low[1] == range.high[1] && is_one_number(look, x, range.low[1]))
        snprintf(what, sizeof what, "Equal (the constant %.6g)", range.low[1]);
    else
        return false;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_STEP, found->most, 1, 0);
    nd_add(look, &f, "%s amplifies: '%.24s' differs by at most %.3g in the %zu elements that differ", what,
           x->name, found->most, found->n_differing);
    return true;
}

void nd_try_comparison(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    if (look->n_known != look->n_total || !is_two_valued(e, look->n_total))
        return;
    for (size_t a = 0; a < e->n_others; a++)
        for (size_t b = a + 1; b < e->n_others; b++)
            if (is_finite(&e->others[a], look->n_total) && is_finite(&e->others[b], look->n_total) &&
                try_pair(look, &e->others[a], &e->others[b]))
                return;
    for (size_t a = 0; a < e->n_others; a++)
        if (is_finite(&e->others[a], look->n_total) && try_constant(look, &e->others[a]))
            return;
}

/* ---- ties ---- */

enum tie { HALF_EVEN, HALF_AWAY, HALF_UP, HALF_DOWN, HALF_TO_ZERO, N_TIES };

static const char *const tie_names[N_TIES] = {"to even", "away from zero", "up", "down", "toward zero"};

static double round_tie(double x, enum tie tie)
{
    switch (tie) {
    case HALF_EVEN:
        return rint(x);
    case HALF_AWAY:
        return x < 0 ? floor(x) : ceil(x);
    case HALF_UP:
        return ceil(x);
    case HALF_DOWN:
        return floor(x);
    default:
        return trunc(x);
    }
}

/* A quotient that is a tie but for the rounding of the division. */
static bool is_tie(double x)
{
    return fabs(fabs(x - floor(x)) - 0.5) <= 1e-6 * fmax(1, fabs(x)) && fabs(x) < 0x1p20;
}

struct ties {
    size_t n, n_differing, n_beside; /* n_beside: elements that differ and are no ties */
    size_t n_wrong[2][N_TIES];       /* of ref and test: ties that the rule does not give */
};

/* x is what the quantiser read: both sides have it alike. */
static void count_tie(const struct nd_evidence *e, size_t i, double x, struct ties *ties)
{
    double quotient = x / e->step,
           qvalues[2] = {rint(e->expected[i] / e->step), rint(e->captured[i] / e->step)};
    bool is_different = qvalues[0] != qvalues[1];
    if (!is_tie(quotient)) {
        ties->n_beside += is_different;
        return;
    }
    quotient = floor(quotient) + 0.5;
    ties->n++;
    ties->n_differing += is_different;
    for (int side = 0; side < 2; side++)
        for (int t = 0; t < N_TIES; t++) {
            /* Even is even of the quotient: the zero point is added after rounding. */
            ties->n_wrong[side][t] += round_tie(quotient, (enum tie)t) != qvalues[side];
        }
}

static const char *name_tie(const size_t n_wrong[N_TIES])
{
    for (int t = 0; t < N_TIES; t++)
        if (n_wrong[t] == 0)
            return tie_names[t];
    return NULL;
}

static bool try_ties(const struct nd_look *look, const struct nd_other *x)
{
    enum { MIN_DIFFERING = 3 };
    const struct nd_evidence *e = look->e;
    struct ties ties = {0};
    for (size_t i = 0; i < look->n_total && ties.n_beside == 0; i++) {
        bool is_inside = e->captured[i] > look->low && e->captured[i] < look->high;
        if (nd_is_known(look, i) && is_inside && x->ref[i] == x->test[i] && isfinite(x->ref[i]))
            count_tie(e, i, x->ref[i], &ties);
    }
    if (ties.n_differing < MIN_DIFFERING || ties.n_beside > 0)
        return false;
    const char *ref = name_tie(ties.n_wrong[0]), *test = name_tie(ties.n_wrong[1]);
    if (ref == NULL || test == NULL || ref == test)
        return false; /* no rule of either side: these are not its ties */
    struct nd_finding f = nd_finding_of(look, ND_FAULT_TIES, (double)ties.n_differing, 1, 0);
    nd_add(look, &f, "all %zu differences are ties of '%.40s': the reference rounds half %s, the test half %s",
           ties.n_differing, x->name, ref, test);
    return true;
}

void nd_try_ties(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    if (!(e->step > 0) || e->step != e->ref_step)
        return;
    for (size_t k = 0; k < e->n_others; k++)
        if (try_ties(look, &e->others[k]))
            return;
}

/* ---- step functions ---- */

static double sign_of(double x)
{
    return (double)((x > 0) - (x < 0));
}

static const struct {
    const char *name;
    double (*f)(double x);
} steps[] = {{"Floor", floor}, {"Ceil", ceil}, {"Round", rint}, {"Sign", sign_of}};

/* Codes: the nearest one. */
static bool is_result(double step, double exact, double value)
{
    return step > 0 ? fabs(exact - value) <= 0.5001 * step : exact == value;
}

/* Both sides are the step function of what each of them has in x, everywhere; x differs by little where they
 * differ. */
static bool is_step(const struct nd_look *look, const struct nd_other *x, double (*f)(double), double *most,
                    size_t *n_differing)
{
    const struct nd_evidence *e = look->e;
    size_t n_moved = 0;
    *most = 0;
    *n_differing = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!isfinite(x->ref[i]) || !isfinite(x->test[i]) || !nd_is_known(look, i))
            continue;
        if (e->step > 0 && (e->captured[i] <= look->low || e->captured[i] >= look->high))
            continue; /* clipped quantised values */
        if (!is_result(e->ref_step, f(x->ref[i]), e->expected[i]) ||
            !is_result(e->step, f(x->test[i]), e->captured[i]))
            return false;
        n_moved += fabs(f(x->ref[i]) - x->ref[i]) > e->step;
        if (e->expected[i] == e->captured[i])
            continue;
        *most = fmax(*most, fabs(x->ref[i] - x->test[i]));
        ++*n_differing;
    }
    /* A quantiser alone moves values by half a step: a step function moves them further. */
    return n_moved >= 8 && *n_differing > 0 && *most < 0.5;
}

static void say_step(const struct nd_look *look, const char *function, const char *name, double most, size_t n)
{
    struct nd_finding f = nd_finding_of(look, ND_FAULT_STEP, most, 1, 0);
    nd_add(look, &f, "%s amplifies: its input '%.40s' differs by at most %.3g in the %zu elements that differ",
           function, name, most, n);
}

void nd_try_step(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    double most;
    size_t n;
    for (size_t k = 0; k < e->n_others; k++)
        for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
            if (is_step(look, &e->others[k], steps[s].f, &most, &n)) {
                say_step(look, steps[s].name, e->others[k].name, most, n);
                return;
            }
}

/* ---- ArgMax ---- */

static size_t argmax(const double *x, size_t n, size_t inner)
{
    size_t at = 0;
    for (size_t k = 1; k < n; k++)
        at = x[k * inner] > x[at * inner] ? k : at;
    return at;
}

void nd_values_try_argmax(const struct nd_values_argmax *a, struct nd_findings *out)
{
    double most = 0;
    size_t n_differing = 0;
    *out = (struct nd_findings){0};
    for (size_t o = 0; o < a->n_outer; o++)
        for (size_t i = 0; i < a->inner; i++) {
            const double *ref = a->x_ref + o * a->n * a->inner + i, *test = a->x_test + o * a->n * a->inner + i;
            size_t j = o * a->inner + i, at_ref = argmax(ref, a->n, a->inner),
                   at_test = argmax(test, a->n, a->inner);
            if ((double)at_ref != a->ref[j] || (double)at_test != a->test[j])
                return;
            if (at_ref == at_test)
                continue;
            n_differing++;
            most = fmax(most, fabs(ref[at_ref * a->inner] - ref[at_test * a->inner]));
        }
    if (n_differing == 0)
        return;
    struct nd_finding f = {ND_FAULT_STEP, SIZE_MAX, -1, most, 1, n_differing, "", 0};
    snprintf(
        f.text, sizeof f.text,
        "ArgMax amplifies: where its index differs (%zu times), the values of '%.32s' are at most %.3g apart",
        n_differing, a->name, most);
    out->items[out->n++] = f;
}
