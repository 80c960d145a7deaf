/* Beside the table of diagnosis.h: what is asked of values by a question of its own. */
#pragma once

#include "explain/diagnosis/diagnosis.h"

/* Indices of the largest of n values along an axis (the first of equal ones), and these values. */
struct nd_values_argmax {
    const char *name;         /* of the values */
    size_t n_outer, n, inner; /* x is [n_outer][n][inner], indices are [n_outer][inner]; all samples together */
    const double *ref, *test; /* indices */
    const double *x_ref, *x_test; /* values, finite */
};

/* Finds ND_FAULT_STEP when the indices of each side are those of its own values, everywhere, and differ. */
void nd_values_try_argmax(const struct nd_values_argmax *argmax, struct nd_findings *out);

/* What a device has far off in one tensor it hands on to the next ones, where it may look like anything. So the
 * first tensor of a device of which a hundredth is far off decides: a fault that is found there is followed
 * through later tensors, another one later is not told apart from what became of it. Zeroed before the first
 * tensor. */
struct nd_values_history {
    bool is_met;
    enum nd_fault_kind kind; /* ND_FAULT_UNEXPLAINED: none was found */
};

/* How many of the first findings are to be left out, tensor after tensor in their order. */
size_t nd_values_skip_passed_on(struct nd_values_history *history, const struct nd_findings *found);

/* Repeats of one sample that should be equal: launches[k] is the k-th run's, [n] each, two at least. step: of
 * quantised values, 0 for floats. Finds the first launch apart from all later ones (which are equal), and a
 * window of elements that alone changes from run to run. Single elements that change by a step or so are
 * rounding noise: nothing is found. */
void nd_values_compare_launches(const double *const *launches, size_t n_launches, size_t n, double step,
                                struct nd_findings *out);

/* How an error grows over depth. */
enum nd_growth {
    ND_GROWTH_UNKNOWN, /* too few layers, or no law is clearly better than the others */
    ND_GROWTH_NONE,
    ND_GROWTH_ROOT,   /* as the square root of the depth: independent errors of one size */
    ND_GROWTH_LINEAR, /* as the depth: errors of one size that add up */
    ND_GROWTH_RATE,   /* by a constant factor per layer */
};
/* "unknown", "none", "square-root", "linear", "constant-rate". Static. */
const char *nd_growth_name(enum nd_growth growth);

struct nd_growth_law {
    enum nd_growth growth;
    size_t n;           /* layers with an error */
    double factor;      /* ND_GROWTH_RATE: per layer; else 1 */
    double first, last; /* the law's error in the first and the last layer; NaN when unknown */
};

/* errors[k] is the relative error of the layer at depth k + 1; what is not a positive number is left out. A law
 * is named from 6 layers on. Growth needs a law that leaves half the variance of the logarithms or less; of two
 * laws the better one must leave three quarters of the other's. */
void nd_values_find_growth(const double *errors, size_t n, struct nd_growth_law *out);
