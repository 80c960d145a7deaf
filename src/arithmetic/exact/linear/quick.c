/* Values of linear layers near their exact ones, and these themselves where a value is near a tie: the bounds
 * of the doubt are in quick.h. */
#include "arithmetic/exact/linear/quick.h"

#include <math.h>
#include <stdlib.h>

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/error.h"
#include "core/memory.h"

enum nd_status nd_quick_make_lines(struct nd_quick *quick, size_t n_lines, struct nd_error *err)
{
    quick->n_lines = n_lines;
    quick->lines = nd_calloc(n_lines, sizeof *quick->lines);
    quick->factors = nd_calloc(n_lines, sizeof *quick->factors);
    quick->biases = nd_calloc(n_lines, sizeof *quick->biases);
    return quick->lines != NULL && quick->factors != NULL && quick->biases != NULL ? ND_OK
                                                                                   : nd_fail_memory(err);
}

void nd_quick_deinit(struct nd_quick *quick)
{
    free(quick->own_x);
    free(quick->own_y);
    free(quick->lines);
    free(quick->factors);
    free(quick->biases);
    free(quick->table);
    free(quick->near_table);
    *quick = (struct nd_quick){0};
}

bool nd_quick_finish(struct nd_quick *quick)
{
    double step = quick->divisor * quick->scale;
    for (size_t c = 0; c < quick->n_lines; c++) {
        double bias = quick->lines[c].bias.parts[0] / step;
        quick->factors[c] = quick->lines[c].factor.parts[0] / step;
        quick->biases[c] = fabs(bias) < ND_QUICK_LARGEST ? bias : (double)NAN;
    }
    for (size_t i = 0; i < quick->n_table; i++)
        quick->near_table[i] = quick->table[i].numerator.parts[0] / quick->table[i].denominator.parts[0];
    return quick->kind != ND_QUICK_SUM || quick->largest / quick->scale < ND_QUICK_LARGEST;
}

static void follow_lines(const struct nd_quick *q, size_t first, size_t n, double *near)
{
    const double *x = q->x + first;
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    size_t line = first / q->n_inner % q->n_lines, left = q->n_inner - first % q->n_inner;
    if (q->n_inner > 1 || q->n_lines == 1) {
        for (size_t i = 0; i < n; line = line + 1 < q->n_lines ? line + 1 : 0, left = q->n_inner) {
            size_t end = q->n_lines == 1 || n - i < left ? n : i + left;
            double factor = q->factors[line], bias = q->biases[line];
            kernels->follow_line(x + i, end - i, factor, bias, near + i);
            i = end;
        }
        return;
    }
    for (size_t i = 0; i < n; line = 0) {
        size_t m = q->n_lines - line < n - i ? q->n_lines - line : n - i;
        for (size_t k = 0; k < m; k++)
            near[i + k] = x[i + k] * q->factors[line + k] + q->biases[line + k];
        i += m;
    }
}

void nd_quick_near_unbounded(const struct nd_quick *q, size_t first, size_t n, double *near)
{
    double inverse = 1 / q->scale;
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    const struct nd_pairs pairs = {q->x + first, q->y != NULL ? q->y + first : NULL, n};
    switch (q->kind) {
    case ND_QUICK_LINE:
        follow_lines(q, first, n, near);
        break;
    case ND_QUICK_SUM:
        kernels->add_pairs(&pairs, q->sign, inverse, near);
        break;
    case ND_QUICK_PRODUCT:
        kernels->multiply_pairs(&pairs, inverse, near);
        break;
    case ND_QUICK_QUOTIENT: /* without y as nd_ratio_value has it */
        for (size_t i = 0; i < n && q->y == NULL; i++)
            near[i] = q->x[first + i] / q->scale;
        if (q->y != NULL)
            kernels->divide_pairs(&pairs, q->scale, near);
        break;
    case ND_QUICK_TABLE: /* finished */
        for (size_t i = 0; i < n; i++)
            near[i] = q->near_table[(size_t)q->x[first + i]];
        break;
    }
}

void nd_quick_near(const struct nd_quick *q, size_t first, size_t n, double *near)
{
    double inverse = 1 / q->scale;
    nd_quick_near_unbounded(q, first, n, near);
    if (q->kind == ND_QUICK_TABLE)
        return;
    if (q->low > -HUGE_VAL || q->high < HUGE_VAL)
        nd_gemm_kernels()->bound(near, n, q->low * inverse, q->high * inverse);
}

/* Over *divisor, which is not negative. */
static struct nd_wide numerator_of(const struct nd_quick *q, size_t i, double *divisor)
{
    *divisor = q->divisor;
    if (q->kind == ND_QUICK_QUOTIENT) {
        double y = q->y != NULL ? q->y[i] : 1;
        *divisor = y < 0 ? -y : y;
        return nd_wide_from(y < 0 ? -q->x[i] : q->x[i]);
    }
    if (q->kind == ND_QUICK_SUM)
        return nd_wide_add(nd_wide_from(q->x[i]), nd_wide_from(q->sign * q->y[i]));
    if (q->kind == ND_QUICK_PRODUCT)
        return nd_wide_product(q->x[i], q->y[i]);
    const struct nd_quick_line *line = &q->lines[i / q->n_inner % q->n_lines];
    struct nd_wide value = nd_wide_scale(line->factor, q->x[i]);
    return line->bias.parts[0] != 0 ? nd_wide_add(value, line->bias) : value;
}

/* Bounds are compared as real values, exactly; then steps of the output. */
struct nd_ratio nd_quick_exact(const struct nd_quick *q, size_t i)
{
    if (q->kind == ND_QUICK_TABLE)
        return q->table[(size_t)q->x[i]];
    double divisor;
    struct nd_wide numerator = numerator_of(q, i, &divisor);
    if (q->low > -HUGE_VAL && nd_wide_compare(numerator, nd_wide_product(q->low, divisor)) < 0) {
        numerator = nd_wide_from(q->low);
        divisor = 1;
    }
    if (q->high < HUGE_VAL && nd_wide_compare(numerator, nd_wide_product(q->high, divisor)) > 0) {
        numerator = nd_wide_from(q->high);
        divisor = 1;
    }
    return (struct nd_ratio){numerator, nd_wide_product(divisor, q->scale)};
}

/* The nearest whole number of |x| < 2^51, ties to even, without a call. */
static inline double nearest(double x)
{
    const double shift = 0x1.8p52;
    return (x + shift) - shift;
}

void nd_quick_round(const struct nd_quick *q, double zero, double low, double high, double *qvalues)
{
    double near[ND_QUICK_BLOCK];
    const double most = 0.5 - ND_QUICK_DOUBT;
    for (size_t first = 0; first < q->n; first += ND_QUICK_BLOCK) {
        size_t n = q->n - first < ND_QUICK_BLOCK ? q->n - first : ND_QUICK_BLOCK;
        const struct nd_rounding_block block = {.near = near,
                                                .n = n,
                                                .zero = zero,
                                                .low = low,
                                                .high = high,
                                                .most = most,
                                                .largest = ND_QUICK_LARGEST,
                                                .qvalues = qvalues + first};
        nd_quick_near(q, first, n, near);
        bool is_clear = nd_gemm_kernels()->round(&block);
        for (size_t i = 0; i < n && !is_clear; i++) {
            if (fabs(near[i] - nearest(near[i])) < most && fabs(near[i]) < ND_QUICK_LARGEST)
                continue;
            struct nd_ratio v = nd_quick_exact(q, first + i);
            qvalues[first + i] = nd_ratio_is_nan(&v)
                                     ? low
                                     : fmin(fmax(nd_round_ratio(&v, ND_ROUND_HALF_EVEN) + zero, low), high);
        }
    }
}
