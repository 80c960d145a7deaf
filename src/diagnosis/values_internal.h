/* What the files of values.h share. */
#ifndef ND_DIAGNOSIS_VALUES_INTERNAL_H
#define ND_DIAGNOSIS_VALUES_INTERNAL_H

#include "diagnosis/values.h"

/* Chosen so that a healthy device passes: see values.h. */
enum { ND_VALUES_MIN_DECISIVE = 12 };

/* Values and what is counted of them once. */
struct nd_values_look {
    const struct nd_values *v;
    size_t n_total;
    double spread; /* root mean square of the reference about its mean */
    double far;    /* a larger difference is no rounding */
    size_t n_known, n_differing, n_far;
    size_t n_lost;              /* of n_far: the test is not finite where the reference is */
    double test_low, test_high; /* of its finite values */
    double *scratch, *scratch2; /* [n_total] each, one behind the other */
    struct nd_value_findings *out;
};

/* The reference is finite: something is known of element i. */
bool nd_values_is_known(const struct nd_values_look *look, size_t i);
/* Known, and the test is further from it than rounding goes, or lost. */
bool nd_values_is_far(const struct nd_values_look *look, size_t i);

/* What the test would hold in element j of a sample under a fault; NaN: the fault says nothing of it. */
typedef double (*nd_values_predict)(const struct nd_values_look *look, const void *fault, size_t sample,
                                    size_t j);

/* Whether the fault predicts the values, as values.h says. *explained: share of the far elements that it
 * explains; *chance as in struct nd_finding. */
bool nd_values_holds(const struct nd_values_look *look, nd_values_predict predict, const void *fault,
                     double *explained, double *chance);

/* Adds a finding, while there is room; its text is made from fmt. */
void nd_values_add(const struct nd_values_look *look, const struct nd_finding *finding, const char *fmt, ...)
    ND_PRINTF(3, 4);

/* n_far of the far elements, as the share that a finding explains. */
double nd_values_share_of_far(const struct nd_values_look *look, size_t n_far);

/* A finding of the whole tensor; explained: the share of the far elements. */
struct nd_finding nd_values_finding(const struct nd_values_look *look, enum nd_fault_kind kind, double amount,
                                    double explained, double chance);

/* The k-th smallest part of x[0 .. n - 1], 0 <= part <= 1; sorts x. NaN when n is 0. */
double nd_values_quantile(double *x, size_t n, double part);

/* A unit in the last place of the float type at x; of codes their step. */
double nd_values_spacing(enum nd_dtype dtype, double step, double x);

/* The tests of the table, each adds what it finds. */
void nd_values_try_grid(const struct nd_values_look *look);
void nd_values_try_multiples(const struct nd_values_look *look);
void nd_values_try_truncation(const struct nd_values_look *look);
void nd_values_try_constant(const struct nd_values_look *look);
void nd_values_try_unwritten(const struct nd_values_look *look);
void nd_values_try_axes(const struct nd_values_look *look);
void nd_values_try_padded(const struct nd_values_look *look);
void nd_values_try_elsewhere(const struct nd_values_look *look);
void nd_values_try_previous(const struct nd_values_look *look);
void nd_values_try_passed(const struct nd_values_look *look);
void nd_values_try_operand(const struct nd_values_look *look);
void nd_values_try_clamp(const struct nd_values_look *look);
void nd_values_try_unclamped(const struct nd_values_look *look);
void nd_values_try_wrap(const struct nd_values_look *look);
void nd_values_try_cliff(const struct nd_values_look *look);
void nd_values_try_window(const struct nd_values_look *look);
void nd_values_try_lines(const struct nd_values_look *look);
void nd_values_try_ties(const struct nd_values_look *look);
void nd_values_try_comparison(const struct nd_values_look *look);
void nd_values_try_step(const struct nd_values_look *look);

#endif
