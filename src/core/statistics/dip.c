/* Hartigan and Hartigan (1985), "The dip test of unimodality", with the geometry of Applied Statistics AS 217
 * and the corrections known since. Distances are counted in steps of the distribution function; positions are
 * indices of the sorted series. */
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/statistics/series.h"

struct dip_work {
    const double *x;
    size_t n;
    size_t *below;    /* [j]: the knot before j of the convex minorant of points 0 .. j */
    size_t *above;    /* [j]: the knot after j of the concave majorant of points j .. n - 1 */
    size_t *minorant; /* knots of the minorant within [low, high], from high down */
    size_t *majorant; /* knots of the majorant within [low, high], from low up */
    size_t n_minorant, n_majorant;
};

static double steps(size_t from, size_t to)
{
    return (double)to - (double)from;
}

static void find_below(struct dip_work *w)
{
    const double *x = w->x;
    w->below[0] = 0;
    for (size_t j = 1; j < w->n; j++) {
        size_t a = j - 1;
        while (a != 0 && (x[j] - x[a]) * steps(w->below[a], a) >= (x[a] - x[w->below[a]]) * steps(a, j))
            a = w->below[a];
        w->below[j] = a;
    }
}

static void find_above(struct dip_work *w)
{
    const double *x = w->x;
    size_t last = w->n - 1;
    w->above[last] = last;
    for (size_t k = last; k-- > 0;) {
        size_t a = k + 1;
        while (a != last && (x[k] - x[a]) * steps(w->above[a], a) >= (x[a] - x[w->above[a]]) * steps(a, k))
            a = w->above[a];
        w->above[k] = a;
    }
}

static void collect_knots(struct dip_work *w, size_t low, size_t high)
{
    size_t n = 0;
    w->minorant[n++] = high;
    while (w->minorant[n - 1] > low) {
        w->minorant[n] = w->below[w->minorant[n - 1]];
        n++;
    }
    w->n_minorant = n;
    n = 0;
    w->majorant[n++] = low;
    while (w->majorant[n - 1] < high) {
        w->majorant[n] = w->above[w->majorant[n - 1]];
        n++;
    }
    w->n_majorant = n;
}

/* The largest distance between minorant and majorant, and the knots where it is. */
static double widest(const struct dip_work *w, size_t *at_minorant, size_t *at_majorant)
{
    const double *x = w->x;
    double d = 0;
    size_t ix = w->n_minorant - 2, iv = 1;
    *at_minorant = w->n_minorant - 1;
    *at_majorant = w->n_majorant - 1;
    if (w->n_minorant == 2 && w->n_majorant == 2)
        return 1;
    do {
        size_t g = w->minorant[ix], l = w->majorant[iv];
        if (g > l) {
            size_t g1 = w->minorant[ix + 1];
            double dx = steps(g1, l) + 1 - (x[l] - x[g1]) * steps(g1, g) / (x[g] - x[g1]);
            iv++;
            if (dx >= d) {
                d = dx;
                *at_minorant = ix + 1;
                *at_majorant = iv - 1;
            }
        } else {
            size_t l1 = w->majorant[iv - 1];
            double dx = (x[g] - x[l1]) * steps(l1, l) / (x[l] - x[l1]) - (steps(l1, g) - 1);
            bool is_first = ix == 0;
            if (dx >= d) {
                d = dx;
                *at_minorant = ix;
                *at_majorant = iv;
            }
            ix -= is_first ? 0 : 1;
        }
        if (iv > w->n_majorant - 1)
            iv = w->n_majorant - 1;
    } while (w->minorant[ix] != w->majorant[iv]);
    return d;
}

/* How far the distribution function leaves the chord from point `from` to point `to`, on one side. */
static double sag(const double *x, size_t from, size_t to, bool is_above)
{
    double most = 1;
    if (to - from < 2 || x[to] <= x[from])
        return most;
    double slope = steps(from, to) / (x[to] - x[from]);
    for (size_t i = from; i <= to; i++) {
        double chord = (x[i] - x[from]) * slope;
        double t = is_above ? steps(from, i) + 1 - chord : chord - (steps(from, i) - 1);
        most = t > most ? t : most;
    }
    return most;
}

static double dip_steps(struct dip_work *w)
{
    size_t low = 0, high = w->n - 1, g, l;
    double dip = 1;
    for (;;) {
        collect_knots(w, low, high);
        double d = widest(w, &g, &l);
        if (d < dip)
            return dip;
        double most = 0;
        for (size_t j = g; j + 1 < w->n_minorant; j++)
            most = fmax(most, sag(w->x, w->minorant[j + 1], w->minorant[j], true));
        for (size_t j = l; j + 1 < w->n_majorant; j++)
            most = fmax(most, sag(w->x, w->majorant[j], w->majorant[j + 1], false));
        dip = fmax(dip, most);
        if (low == w->minorant[g] && high == w->majorant[l])
            return dip;
        low = w->minorant[g];
        high = w->majorant[l];
    }
}

enum nd_status nd_series_dip(const double *sorted, size_t n, double *dip, struct nd_error *err)
{
    if (n < 4 || sorted[0] >= sorted[n - 1]) {
        *dip = 0.5 / (double)n;
        return ND_OK;
    }
    size_t *knots = nd_calloc(n, 4 * sizeof *knots);
    if (knots == NULL)
        return nd_fail_memory(err);
    struct dip_work work = {.x = sorted,
                            .n = n,
                            .below = knots,
                            .above = knots + n,
                            .minorant = knots + 2 * n,
                            .majorant = knots + 3 * n};
    find_below(&work);
    find_above(&work);
    *dip = dip_steps(&work) / (2 * (double)n);
    free(knots);
    return ND_OK;
}
