/* Greater, Less and Equal: a tensor of zeros and ones that follows on both sides from what each of them
 * compares, and differs where that differs by little. */
#include <math.h>
#include <stdio.h>

#include "explain/diagnosis/look.h"

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
