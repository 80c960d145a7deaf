/* What a device does to sums of products of uint16 activations and 8-bit weights.
 *
 * The family: low bits are dropped from the sum and from what the zero point contributes, each rounded in its
 * own way, or from their difference; what is left is requantised (requantise.h):
 *
 *     q = round(sum x w / 2^p) - round'(z_x sum w / 2^p), or round(sum (x - z_x) w / 2^p)
 *     quantised value = requantise(q) under the multiplier 2^p s_x s_w / s_y, from doubles or from float32
 * products
 *
 * With quantised values that are multiples of 2^8 and such a zero point nothing is lost up to p = 8, and sum /
 * 2^8 sweeps in steps of 1: threshold sweep leave requantisations. Quantised values at random then leave p and
 * its roundings. */
#ifndef ND_FINGERPRINT_LINEAR_U16_H
#define ND_FINGERPRINT_LINEAR_U16_H

#include "lab/fingerprint/linear.h"

struct nd_word_arithmetic {
    int dropped_bits; /* p: 0 .. ND_WORD_MAX_DROPPED */
    bool drops_together;
    enum nd_rounding sum_rounding, zero_rounding; /* the latter of the zero point's part, unless together */
    bool is_multiplier_f32;
    struct nd_requantise rest;
};

enum { ND_WORD_MAX_DROPPED = 12, ND_WORD_NAME_BYTES = ND_REQUANTISE_NAME_BYTES + 96 };

/* Sums of products that a device was asked about under one multiplier. Borrowed. */
struct nd_word_qvalues {
    float scale_x, scale_w, scale_y;
    double zero_y;
    size_t n;
    const double *sums;    /* [n]: of x w */
    const double *zeros;   /* [n]: of z_x w */
    const double *qvalues; /* [n] */
};

struct nd_word_findings {
    struct nd_word_arithmetic *arithmetics; /* owned */
    size_t n_arithmetics;
    uint64_t n_qvalues, n_right; /* of the sets below */
};
/* The arithmetics that give most of the quantised values, for each requantisation that is not excluded.
 * ND_ERR_MEMORY. *out needs its arithmetics freed. */
enum nd_status nd_word_solve(const struct nd_requantise *rests, size_t n_rests,
                             const struct nd_word_qvalues *sets, size_t n_sets, struct nd_word_findings *out,
                             struct nd_error *err);

#endif
