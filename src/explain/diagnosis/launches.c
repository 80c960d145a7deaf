/* Runs of one input that should be equal. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "explain/diagnosis/look.h"
#include "explain/diagnosis/values.h"

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
                         struct nd_findings *out)
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
    /* Elements beside it may hold the same, and be right by chance. */
    size_t first = c->first, end = c->end;
    while (is_constant && first > 0 && x[first - 1] == x[c->first])
        first--;
    while (is_constant && end < n && x[end] == x[c->first])
        end++;
    char held[48] = "";
    if (is_constant && is_first_apart)
        snprintf(held, sizeof held, "; the first run holds %.6g there", x[c->first]);
    if (is_window)
        snprintf(f.text, sizeof f.text, "elements %zu to %zu %s of the same input, all others do not%s",
                 nd_roundest(first, c->first, false), nd_roundest(c->end, end, true) - 1,
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
                                struct nd_findings *out)
{
    *out = (struct nd_findings){0};
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
