/* Values beside what they should be: which fault makes a whole tensor of one device differ from the
 * reference's.
 *
 * It looks at real numbers, so it judges codes (as multiples of their step) and floats of every type alike. It
 * knows nothing of models: the reference is what another device, the quantised reference or the float model has
 * in the same elements. The diagnoses stand in one table (values.c); a file for each group holds their tests:
 *   values_grid.c    the grid that floats lie on; cut to it instead of rounded
 *   values_range.c   clamps with a gain, a clamp that only the reference has
 *   values_cliff.c   cliffs
 *   values_wrap.c    wrap-around
 *   values_blank.c   the beginning or the end of every sample, of one value
 *   values_axes.c    permuted axes
 *   values_compare.c  Greater, Less, Equal that amplify a small difference
 *   values_lines.c   constant and periodic lines along an axis
 *   values_multiples.c  floats that all are multiples of one step
 *   values_moved.c   right values at other places of their sample
 *   values_place.c   right values at the wrong time or place: the previous sample's, an input's, nobody's
 *   values_reading.c bytes of another type
 *   values_step.c    ties of a quantiser, step functions
 *
 * Every diagnosis is held against the innocent explanations. An element counts as far off only beyond an eighth
 * of the spread of the reference and four steps. A fault must predict 99 % of the elements in which it says
 * something else than the reference, at least 12 of them, each to a quarter of the distance between the two: by
 * chance that happens in less than 4^-12 of all cases. What the reference has too is no finding.
 *
 * All functions are pure and safe to call from any thread on data that nobody changes. */
#ifndef ND_DIAGNOSIS_VALUES_H
#define ND_DIAGNOSIS_VALUES_H

#include "diagnosis/diagnosis.h"

/* Another tensor of the same samples and elements: an input of the probe, or what a different operator gives.
 */
struct nd_values_other {
    const char *name;
    const double *ref, *test; /* [n_samples][n] */
};

/* NaN in ref: nothing is known of the element. NaN or infinity in test where ref is finite: the value is lost.
 */
struct nd_values {
    size_t n_samples, n; /* n: elements of a sample */
    size_t first_sample; /* what the first of them is called; 0 unless it is a part of more */
    bool is_part;        /* there are more samples than these */
    struct nd_shape
        shape; /* of one sample, batch dimension included; rank -1 when the n elements are a selection */
    enum nd_dtype dtype;      /* of the test's values as they are stored */
    double step;              /* real units of a code of the test; 0: floats */
    double zero_point;        /* of the test */
    double ref_step;          /* of the reference; 0: floats */
    const double *ref, *test; /* [n_samples][n] real numbers */
    const struct nd_values_other *others;
    size_t n_others;
};

enum { ND_MAX_VALUE_FINDINGS = 4 };

struct nd_value_findings {
    size_t n;
    size_t n_gross;   /* of them, the first ones explain elements that are far off */
    double far_share; /* of the known elements: those that are far off */
    struct nd_finding items[ND_MAX_VALUE_FINDINGS];
};

/* Gross errors first, of which only the simplest explanation is kept; then what small differences show. Nothing
 * is found in empty tensors. ND_ERR_MEMORY is the only failure. Memory: four doubles for each element. */
enum nd_status nd_values_examine(const struct nd_values *values, struct nd_value_findings *out,
                                 struct nd_error *err);

/* The gross errors alone. */
enum nd_status nd_values_examine_gross(const struct nd_values *values, struct nd_value_findings *out,
                                       struct nd_error *err);

/* Whether the values of one side, own, are too far from those of the other one, x, for rounding, [n] each:
 * their bytes may be called by a wrong type. */
bool nd_values_may_be_mislabelled(const double *x, const double *own, size_t n);
/* Whether these bytes, read as another type, are what the other side has. */
bool nd_values_is_reading(const double *x, const double *reading, size_t n);

/* Indices of the largest of n values along an axis (the first of equal ones), and these values. */
struct nd_values_argmax {
    const char *name;         /* of the values */
    size_t n_outer, n, inner; /* x is [n_outer][n][inner], indices are [n_outer][inner]; all samples together */
    const double *ref, *test; /* indices */
    const double *x_ref, *x_test; /* values, finite */
};

/* Finds ND_FAULT_STEP when the indices of each side are those of its own values, everywhere, and differ. */
void nd_values_try_argmax(const struct nd_values_argmax *argmax, struct nd_value_findings *out);

/* What a device has far off in one tensor it hands on to the next ones, where it may look like anything. So the
 * first tensor of a device of which a hundredth is far off decides: a fault that is found there is followed
 * through later tensors, another one later is not told apart from what became of it. Zeroed before the first
 * tensor. */
struct nd_values_history {
    bool is_met;
    enum nd_fault_kind kind; /* ND_FAULT_UNEXPLAINED: none was found */
};

/* How many of the first findings are to be left out, tensor after tensor in their order. */
size_t nd_values_skip_inherited(struct nd_values_history *history, const struct nd_value_findings *found);

/* Repeats of one sample that should be equal: launches[k] is the k-th run's, [n] each, two at least. step: of
 * codes, 0 for floats. Finds the first launch apart from all later ones (which are equal), and a window of
 * elements that alone changes from run to run. Single elements that change by a step or so are rounding noise:
 * nothing is found. */
void nd_values_compare_launches(const double *const *launches, size_t n_launches, size_t n, double step,
                                struct nd_value_findings *out);

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

#endif
