/* The exact values of a linear layer without making each as a quotient of wide numbers: a double near every
 * one, and the exact quotient of those for which that is not enough. */
#pragma once

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/array.h"

enum nd_quick_kind {
    ND_QUICK_LINE,     /* (factor x + bias) / divisor, by channel */
    ND_QUICK_SUM,      /* x + sign y */
    ND_QUICK_PRODUCT,  /* x y */
    ND_QUICK_QUOTIENT, /* x / y; without y: x */
    ND_QUICK_TABLE,    /* table[x] */
};

/* What elements of one channel share. */
struct nd_quick_line {
    struct nd_wide factor, bias;
};

struct nd_quick {
    enum nd_quick_kind kind;
    size_t n;
    const double *x, *y;         /* [n]; y NULL where there is none */
    double *own_x, *own_y;       /* what is to be freed of them */
    struct nd_quick_line *lines; /* [n_lines] of channels: element i is of channel i / n_inner % n_lines */
    double *factors, *biases;    /* [n_lines] of the lines, near, in steps of the output */
    struct nd_ratio *table;      /* of all quantised values from 0 on, finished */
    double *near_table;          /* the same, near */
    size_t n_lines, n_inner, n_table;
    double sign, divisor;
    double low, high, scale; /* bounds of real values, and the scale of the output */
    double largest;          /* of the magnitudes of x and y; of ND_QUICK_SUM */
};

/* A near value is within ND_QUICK_DOUBT of the exact one where its magnitude is below ND_QUICK_LARGEST: what is
 * added up there has at most twice that, and is rounded to 2^-51 of itself, a few times. */
#define ND_QUICK_DOUBT 0x1p-28
#define ND_QUICK_LARGEST 0x1p18

enum { ND_QUICK_BLOCK = 1024 };

/* One line, two operands of n elements, which it takes over (own_x and own_y are freed by deinit). */
enum nd_status nd_quick_make_lines(struct nd_quick *quick, size_t n_lines, struct nd_error *err);
void nd_quick_deinit(struct nd_quick *quick);

/* Once bounds and scale are known: false where near values are not near enough. */
bool nd_quick_finish(struct nd_quick *quick);

/* near[n] of the elements first .. first + n - 1; NaN where nothing is known. */
void nd_quick_near(const struct nd_quick *quick, size_t first, size_t n, double *near);
/* The same before bounds, of which a TABLE has none that it does not hold already. */
void nd_quick_near_unbounded(const struct nd_quick *quick, size_t first, size_t n, double *near);
struct nd_ratio nd_quick_exact(const struct nd_quick *quick, size_t i);

/* All rounded half to even, zero point added, within low .. high. */
void nd_quick_round(const struct nd_quick *quick, double zero, double low, double high, double *qvalues);
