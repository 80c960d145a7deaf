/* How wide the integer sums of a device are: products of uint8 quantised values, 127 x 127 each, of 4 to 262
 * 144 terms. An accumulator of fewer bits saturates or wraps, and is seen doing so in the quantised values,
 * whatever else happens to them on the way. */
#ifndef ND_FINGERPRINT_LONG_SUMS_H
#define ND_FINGERPRINT_LONG_SUMS_H

#include "lab/experiment/product.h"

struct nd_long_sums {
    size_t n_terms_failed; /* the first sums that could not be run, which the experiment's failure explains; 0:
                              all */
    size_t n_qvalues, n_wrong; /* wrong: a few units from where the sum is */
    /* Largest magnitude below which, and least from which on, sums of one sign come out wrong. wrong is 0 where
     * none did; then all up to `right` were. */
    int64_t right, wrong;
    /* Sums of one sign from `wrong` on, and how many are what a wrapping or a saturating accumulator of
     * nd_long_sums_bits leaves of them. */
    size_t n_beyond, n_wrapped, n_saturated;
    size_t n_cancelled_wrong; /* sums that are further away on the way than at their end */
    /* Pairs of 255 x 127, which two products in 16 bits (VPMADDUBSW) do not hold, in sums up to `right`;
     * has_pairs: there are any. */
    bool has_pairs;
    size_t n_pairs, n_pairs_wrong;
};

/* Widths of two's complement accumulators that what was right rules out: 2 to the result; 0: none. */
int nd_long_sums_excluded_bits(const struct nd_long_sums *sums);
/* The only width between right and wrong; 0: none, or not the only one. */
int nd_long_sums_bits(const struct nd_long_sums *sums);

/* Makes the experiment a patient one; it has failed where not even 4 terms could be run. */
void nd_long_sums_take(struct nd_experiment *experiment, struct nd_long_sums *out);

#endif
