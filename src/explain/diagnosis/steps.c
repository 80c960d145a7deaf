/* Differences that a quantiser or a step function makes of (almost) equal inputs. */
#include <math.h>
#include <stdio.h>

#include "explain/diagnosis/look.h"
#include "explain/diagnosis/values.h"

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
