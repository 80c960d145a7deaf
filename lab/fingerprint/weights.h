/* What a device multiplies with where weights, quantised values less their zero point, do not fit 8 bits with a
 * sign.
 *
 * The family: of a column, or of the whole tensor, r = max(most / greatest, least / lowest) rounded to a few
 * bits; w8 = clip(round(w F)), F = 1 / r in steps of 2^-p; and the accumulator of w8 has the multiplier r
 * s_x s_w / s_y. Where they fit r is 1. Or weights stay what they are.
 *
 * Columns of equal weights show r: w8 is the greatest that there is, and the multiplier meets the accumulator
 * in thresholds as of threshold sweep.h. Columns with one great weight and another one show what each becomes.
 */
#ifndef ND_FINGERPRINT_WEIGHTS_H
#define ND_FINGERPRINT_WEIGHTS_H

#include "lab/experiment/columns.h"
#include "lab/fingerprint/linear.h"

enum nd_weight_scope { ND_WEIGHTS_STAY, ND_WEIGHTS_FIT_COLUMN, ND_WEIGHTS_FIT_TENSOR };

struct nd_weight_arithmetic {
    enum nd_weight_scope scope;
    bool is_always; /* r also where the weights fit */
    double greatest, lowest;
    int r_bits; /* ND_MULTIPLIER_EXACT: not rounded */
    enum nd_rounding r_rounding;
    int factor_bits; /* p; ND_MULTIPLIER_EXACT: w / r */
    enum nd_rounding factor_rounding;
    enum nd_rounding rounding; /* of w F */
};

enum { ND_WEIGHT_NAME_BYTES = 128 };

/* All columns [n_columns][n_terms] of w; w8 of the same size, r [n_columns]. */
void nd_weight_fit(const struct nd_weight_arithmetic *arithmetic, const double *w, size_t n_columns,
                   size_t n_terms, double *w8, double *r);

/* Answers: quantised values [n_columns][n_rows] under multiplier and zero_y, of w [n_columns][n_terms].
 * Borrowed. */
struct nd_weight_answers {
    struct nd_columns about;
    const uint8_t *x;      /* [n_terms][n_rows] */
    const double *w;       /* [n_columns][n_terms] */
    const double *qvalues; /* [n_columns][n_rows] */
    double multiplier;
};

struct nd_weight_findings {
    struct nd_weight_arithmetic *arithmetics; /* owned */
    size_t n_arithmetics;
    uint64_t n_deciding, n_wrong; /* of the first arithmetic */
};

/* Of columns with equal weights: what r may be. The factor is left exact in what is found. ND_ERR_MEMORY. */
enum nd_status nd_weight_solve_ratio(const struct nd_requantise *rest, const struct nd_weight_answers *answers,
                                     size_t n_answers, struct nd_weight_findings *out, struct nd_error *err);

/* Of columns with the same great weight in the first terms and another in all terms from `split` on: the w8 of
 * the latter that agree best with a column's quantised values, low .. high; n_wrong counts quantised values
 * that even those do not give. Where the other one decides r, and not the great one, is_known is false. */
struct nd_weight_entry {
    bool is_known;
    double low, high;
    uint64_t n_wrong;
};
struct nd_weight_entry nd_weight_read_entry(const struct nd_requantise *rest,
                                            const struct nd_weight_arithmetic *arithmetic,
                                            const struct nd_weight_answers *answers, size_t split,
                                            size_t column);

/* Completes what nd_weight_solve_ratio found with all factors and roundings that agree with the entries of
 * answers: [n_answers]. found->arithmetics is replaced. */
enum nd_status nd_weight_solve_table(const struct nd_requantise *rest, const struct nd_weight_answers *answers,
                                     size_t n_answers, size_t split, struct nd_weight_findings *found,
                                     struct nd_error *err);

/* What an experiment found; the arithmetics belong to it. */
struct nd_weights {
    bool has_rest; /* the arithmetic that requantises is known; else nothing below is */
    struct nd_requantise rest;
    struct nd_weight_findings found;
    uint64_t n_qvalues, n_entries; /* weights whose w8 was read off */
};
/* uint8 weights of any zero point in Conv, no bias. */
void nd_weights_take(struct nd_experiment *experiment, struct nd_weights *out);
bool nd_weights_are_known(const struct nd_experiment *experiment, const struct nd_weights *weights);

#endif
