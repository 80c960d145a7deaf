/* Exact sums and products of doubles by error-free transformations (Dekker 1971, Knuth; Shewchuk 1997). */
#include "arithmetic/exact/linear/rounding.h"

#include <math.h>

/* The rounded sum, and in *error exactly what it lacks (Knuth). */
static double two_sum(double a, double b, double *error)
{
    double sum = a + b, b_part = sum - a;
    *error = (a - (sum - b_part)) + (b - b_part);
    return sum;
}

static int drop_zeros(double *x, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (x[i] != 0)
            x[kept++] = x[i];
    return kept;
}

/* Replaces x[n], wherever the numbers lie, by numbers of the same sum of which each is the rounded sum of
 * itself and the next. Every pass of two-sums comes closer; n - 1 suffice, mostly it is two. Three such numbers
 * hold any 159 bits. */
static struct nd_wide distil(double *x, int n)
{
    struct nd_wide wide = {{0}};
    n = drop_zeros(x, n);
    for (bool has_changed = n > 1; has_changed; n = drop_zeros(x, n)) {
        has_changed = false;
        double sum = n > 0 ? x[n - 1] : 0;
        for (int i = n - 1; i > 0; i--) {
            double error, above = two_sum(x[i - 1], sum, &error);
            has_changed = has_changed || above != x[i - 1];
            x[i] = error;
            sum = above;
        }
        if (!isfinite(sum)) {
            wide.parts[0] = sum;
            return wide;
        }
        if (n > 0)
            x[0] = sum;
    }
    for (int i = 0; i < n && i < ND_WIDE_PARTS; i++)
        wide.parts[i] = x[i];
    return wide;
}

struct nd_wide nd_wide_from(double value)
{
    return (struct nd_wide){{value}};
}

struct nd_wide nd_wide_product(double a, double b)
{
    double product = a * b;
    if (!isfinite(product))
        return nd_wide_from(product);
    return (struct nd_wide){{product, fma(a, b, -product)}};
}

struct nd_wide nd_wide_add(struct nd_wide a, struct nd_wide b)
{
    double x[2 * ND_WIDE_PARTS];
    for (int i = 0; i < ND_WIDE_PARTS; i++) {
        x[2 * i] = a.parts[i];
        x[2 * i + 1] = b.parts[i];
    }
    return distil(x, 2 * ND_WIDE_PARTS);
}

struct nd_wide nd_wide_scale(struct nd_wide a, double factor)
{
    if (a.parts[1] == 0)
        return nd_wide_product(a.parts[0], factor);
    double x[2 * ND_WIDE_PARTS];
    for (int i = 0; i < ND_WIDE_PARTS; i++) {
        struct nd_wide product = nd_wide_product(a.parts[i], factor);
        x[2 * i] = product.parts[0];
        x[2 * i + 1] = product.parts[1];
    }
    return distil(x, 2 * ND_WIDE_PARTS);
}

struct nd_wide nd_wide_negate(struct nd_wide a)
{
    for (int i = 0; i < ND_WIDE_PARTS; i++)
        a.parts[i] = -a.parts[i];
    return a;
}

int nd_wide_sign(struct nd_wide a)
{
    return (a.parts[0] > 0) - (a.parts[0] < 0);
}

int nd_wide_compare(struct nd_wide a, struct nd_wide b)
{
    if (a.parts[1] == 0 && b.parts[1] == 0)
        return (a.parts[0] > b.parts[0]) - (a.parts[0] < b.parts[0]);
    /* The rest of each is at most 2^-53 of its first part, and a little. */
    double apart = a.parts[0] - b.parts[0];
    if (fabs(apart) > 0x1p-50 * (fabs(a.parts[0]) + fabs(b.parts[0])))
        return (apart > 0) - (apart < 0);
    return nd_wide_sign(nd_wide_add(a, nd_wide_negate(b)));
}
