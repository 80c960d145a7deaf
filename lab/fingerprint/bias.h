/* How the biases of products, int32 quantised values of any scale, enter the accumulator.
 *
 * The family: a bias of another scale than s_x s_w may first become a quantised value of that scale, rounded in
 * double; real = b s_b; where biases have a common step S = (largest |real| of the tensor) / 2^p, real becomes
 * round(real / S) S; the shift of the accumulator is round'(real / (s_x s_w r)), together with the output's
 * zero point in the same steps, or apart. Calculated in doubles, or in float32 in that order; of a tensor with
 * scales per column, s_b and s_w are the column's own or the greatest.
 *
 * A column whose accumulator sweeps about its own -b shows its shift: between the least and the greatest with
 * which the arithmetic that requantises (requantise.h) gives all quantised values. */
#ifndef ND_FINGERPRINT_BIAS_H
#define ND_FINGERPRINT_BIAS_H

#include "lab/fingerprint/weights.h"

enum nd_bias_rescale {
    ND_BIAS_AS_IT_IS,
    ND_BIAS_RESCALED, /* half to even */
    ND_BIAS_RESCALED_TO_ZERO,
    ND_BIAS_RESCALED_FLOOR,
    ND_BIAS_RESCALES
};

struct nd_bias_arithmetic {
    enum nd_bias_rescale rescale;
    bool is_f32;
    int common_bits;     /* p: 8 .. 31; 0: no common step */
    bool has_reciprocal; /* float32: real times 1 / S, not divided by S */
    enum nd_rounding common_rounding;
    bool has_largest_bias_scale, has_largest_weight_scale;
    bool is_whole; /* else the shift is not rounded */
    enum nd_rounding rounding;
    bool joins_zero; /* the zero point is added before rounding; only where it is folded */
};

enum { ND_BIAS_NAME_BYTES = 160 };

/* One column and what it shares with others. */
struct nd_bias_column {
    double bias; /* quantised value */
    float bias_scale, largest_bias_scale;
    float scale_x, scale_w, largest_scale_w;
    double ratio;                       /* r of its weights (weights.h) */
    double largest_own, largest_shared; /* of |b s_b| in the tensor; with the greatest s_b in place of each */
    float largest_own_f32, largest_shared_f32; /* of the products in float32 */
    double zero;                               /* z_y / M */
    double zero_fold; /* what the arithmetic that requantises makes of that; 0: it folds none */
};

/* The shifts with which a requantiser gives all quantised values of accumulators, which it does between two:
 * its quantised values rise with the shift. low > high: there is none. low is -HUGE_VAL (high HUGE_VAL) without
 * a limit. */
struct nd_bias_range {
    double low, high;
};
struct nd_bias_range nd_bias_read(const struct nd_requantise_ready *requantiser, const double *accumulators,
                                  const double *qvalues, size_t n);

struct nd_bias_reading {
    struct nd_bias_column columns[ND_BIAS_RESCALES];
    struct nd_bias_range range;
};
struct nd_bias_findings {
    struct nd_bias_arithmetic *arithmetics; /* owned */
    size_t n_arithmetics;
    uint64_t n_readings, n_wrong; /* columns; those that the arithmetics do not give */
};
/* The arithmetics that give most of the columns. folds: the arithmetic that requantises folds the zero point.
 * ND_ERR_MEMORY. */
enum nd_status nd_bias_solve(const struct nd_bias_reading *readings, size_t n, bool folds,
                             struct nd_bias_findings *out, struct nd_error *err);

/* What an experiment found; the arithmetics belong to it. */
struct nd_bias {
    const struct nd_weights *weights; /* known; borrowed */
    bool is_per_channel;
    uint64_t n_qvalues;
    struct nd_bias_findings found;
};

#endif
