/* How an error grows over depth: least squares of its logarithm. */
#include <math.h>

#include "explain/diagnosis/values.h"

enum { MIN_LAYERS = 6 };
/* Chosen: a law of growth must leave half of the variance or less, and three quarters of the next best law's;
 * without growth the logarithm changes by less than log 2 over all layers. */
static const double min_gain = 0.5, clear_of_next = 0.75;

const char *nd_growth_name(enum nd_growth growth)
{
    static const char *const names[] = {"unknown", "none", "square-root", "linear", "constant-rate"};
    return names[growth];
}

struct fit {
    double a, b, rest; /* log error = a + b x; rest: sum of squares */
};

/* x: 0 for none, else log depth (b is given) or depth (b is fitted). */
static struct fit fit_law(const double *errors, size_t n_errors, enum nd_growth law)
{
    double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
    struct fit fit = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t k = 0; k < n_errors; k++) {
            double depth = (double)(k + 1), y = log(errors[k]), x = law == ND_GROWTH_RATE ? depth : log(depth);
            if (!(errors[k] > 0) || !isfinite(y))
                continue;
            double rest = y - fit.a - fit.b * x;
            n += pass == 0;
            sum_x += pass == 0 ? x : 0;
            sum_y += pass == 0 ? y : 0;
            sum_xx += pass == 0 ? x * x : 0;
            sum_xy += pass == 0 ? x * y : 0;
            fit.rest += pass == 1 ? rest * rest : 0;
        }
        if (pass == 1 || n == 0)
            continue;
        double spread = sum_xx - sum_x * sum_x / n;
        fit.b = law == ND_GROWTH_LINEAR ? 1 : law == ND_GROWTH_ROOT ? 0.5 : 0;
        if (law == ND_GROWTH_RATE && spread > 0)
            fit.b = (sum_xy - sum_x * sum_y / n) / spread;
        fit.a = (sum_y - fit.b * sum_x) / n;
    }
    return fit;
}

static void count_layers(const double *errors, size_t n, size_t *n_layers, size_t *first, size_t *last)
{
    *n_layers = *first = *last = 0;
    for (size_t k = 0; k < n; k++) {
        if (!(errors[k] > 0) || !isfinite(errors[k]))
            continue;
        *first = *n_layers == 0 ? k + 1 : *first;
        *last = k + 1;
        ++*n_layers;
    }
}

static double at_depth(const struct fit *fit, enum nd_growth law, size_t depth)
{
    double x = law == ND_GROWTH_RATE ? (double)depth : log((double)depth);
    return exp(fit->a + fit->b * x);
}

void nd_values_find_growth(const double *errors, size_t n, struct nd_growth_law *out)
{
    size_t first, last;
    *out = (struct nd_growth_law){.factor = 1, .first = NAN, .last = NAN};
    count_layers(errors, n, &out->n, &first, &last);
    if (out->n < MIN_LAYERS)
        return;
    struct fit none = fit_law(errors, n, ND_GROWTH_NONE), fits[ND_GROWTH_RATE + 1];
    enum nd_growth best = ND_GROWTH_ROOT, next = ND_GROWTH_ROOT;
    for (enum nd_growth g = ND_GROWTH_ROOT; g <= ND_GROWTH_RATE; g++) {
        fits[g] = fit_law(errors, n, g);
        if (fits[g].rest < fits[best].rest)
            best = g;
    }
    next = best == ND_GROWTH_ROOT ? ND_GROWTH_LINEAR : ND_GROWTH_ROOT;
    for (enum nd_growth g = ND_GROWTH_ROOT; g <= ND_GROWTH_RATE; g++)
        if (g != best && fits[g].rest < fits[next].rest)
            next = g;
    double change = fabs(fits[ND_GROWTH_RATE].b) * (double)(last - first);
    bool is_clear = fits[best].rest <= min_gain * none.rest && fits[best].b > 0 &&
                    fits[best].rest <= clear_of_next * fits[next].rest;
    if (is_clear && change >= log(2))
        out->growth = best;
    else if (change < log(2))
        out->growth = ND_GROWTH_NONE;
    if (out->growth == ND_GROWTH_UNKNOWN)
        return;
    const struct fit *fit = out->growth == ND_GROWTH_NONE ? &none : &fits[best];
    out->factor = out->growth == ND_GROWTH_RATE ? exp(fit->b) : 1;
    out->first = at_depth(fit, out->growth, first);
    out->last = at_depth(fit, out->growth, last);
}
