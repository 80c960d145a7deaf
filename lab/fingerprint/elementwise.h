/* How a device adds, subtracts and multiplies uint8 codes: grids of all 256 x 256 pairs of quantised values
 * under several scales, and the arithmetics that they leave.
 *
 * The family that is solved for is what fixed point without a division can be: with r_i = s_i / s_y of a sum,
 * and r = s_1 s_2 / s_y of a product,
 *
 *     k = min(cap, shift - floor(log2 r))            the bits of the fraction; r: see nd_scaling_key
 *     m_i = round(r_i 2^k)
 *     y = clip(((t + R) >> first) + D) >> (k - first))
 *     sum:      t = A m_1 +- B m_2,                  D = round((z 2^k - z_1 m_1 -+ z_2 m_2) / 2^first) + half
 *     product:  t = ((A - z_1)(B - z_2) - P) m,      D = round(P m / 2^first) + z 2^(k - first) + half
 *
 * with half = 2^(k - first - 1), R = 0 or 2^(first - 1), and P = 2^g round(2^e (h - z_1)(h - z_2) / 2^g), or 0.
 * A D beyond so many signed bits lowers k, wraps or saturates. As floor((floor(a / 2^p) + D) / 2^q) = floor((a
 * + D 2^p) / 2^(p + q)), a grid shows m and the whole number C = D 2^first + R in y = floor((t + C) / 2^k): it
 * leaves an interval of C for every k and m. What gives a C in the intervals of all grids is an arithmetic that
 * is not excluded.
 *
 * Tried besides: the real number rounded once, and float32 operations as a CPU has them. */
#ifndef ND_FINGERPRINT_ELEMENTWISE_H
#define ND_FINGERPRINT_ELEMENTWISE_H

#include <stdint.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "lab/experiment/trial.h"

enum nd_elementwise_op { ND_ELEMENTWISE_ADD, ND_ELEMENTWISE_SUB, ND_ELEMENTWISE_MUL };

struct nd_elementwise_scales {
    enum nd_elementwise_op op;
    float s1, s2, sy;
    int64_t z1, z2, zy;
};

enum nd_elementwise_kind { ND_ELEMENTWISE_REAL, ND_ELEMENTWISE_FLOAT32, ND_ELEMENTWISE_FIXED };
/* What the logarithm is taken of. */
enum nd_scaling_key { ND_KEY_NONE, ND_KEY_SUM, ND_KEY_MAX, ND_KEY_PRODUCT };

/* What becomes of a D that needs more bits: another k, one less at a time; the low bits of it; the greatest. */
enum nd_offset_limit { ND_OFFSET_LOWERS_K, ND_OFFSET_WRAPS, ND_OFFSET_SATURATES };

struct nd_elementwise_arithmetic {
    enum nd_elementwise_kind kind;
    enum nd_rounding rounding; /* REAL: of the value; FIXED: of D and of P m */
    bool is_reciprocal;        /* FLOAT32: times F(1 / s_y), else divided by s_y */
    /* FIXED */
    enum nd_scaling_key key; /* NONE: k is cap */
    int shift, cap;          /* cap 0: none */
    enum nd_rounding multiplier_rounding;
    int first;
    bool rounds_first;            /* R is not 0 */
    bool has_centre;              /* P is not 0 */
    int centre_gain, centre_bits; /* e and g */
    double centre;                /* h */
    int offset_bits;              /* of D; 0: no limit */
    enum nd_offset_limit limit;
};

enum { ND_ELEMENTWISE_NAME_BYTES = 320, ND_ELEMENTWISE_QVALUES = 65536 };
/* The formula. */
const char *nd_elementwise_name(const struct nd_elementwise_arithmetic *arithmetic, enum nd_elementwise_op op,
                                char buf[ND_ELEMENTWISE_NAME_BYTES]);

/* An arithmetic made ready for scales: y = clip((t + offset) >> k), t with m1 and m2 (of a product: m1). */
struct nd_elementwise_ready {
    struct nd_elementwise_arithmetic arithmetic;
    struct nd_elementwise_scales scales;
    int64_t m1, m2, offset, d;
    int k;
};
/* False where the arithmetic has no numbers for these scales. */
bool nd_elementwise_prepare(const struct nd_elementwise_arithmetic *arithmetic,
                            const struct nd_elementwise_scales *scales, struct nd_elementwise_ready *out);

/* Quantised values of all pairs, [a][b]. Borrowed. */
struct nd_elementwise_grid {
    struct nd_elementwise_scales scales;
    const uint8_t *qvalues;
};

struct nd_elementwise_findings {
    struct nd_elementwise_arithmetic *arithmetics; /* not excluded: they give every quantised value; owned */
    size_t n_arithmetics;
    bool is_cut; /* more than are listed */
    /* Where none is left: the plain one that gives most. */
    struct nd_elementwise_arithmetic nearest;
    uint64_t n_nearest_wrong;
};
enum { ND_ELEMENTWISE_MAX_ARITHMETICS = 256 };

/* All grids are of one device and operator. ND_ERR_MEMORY. out->arithmetics needs free on success. */
enum nd_status nd_elementwise_solve(const struct nd_elementwise_grid *grids, size_t n,
                                    struct nd_elementwise_findings *out, struct nd_error *err);

/* Scales to ask a device about: i = 0 .. ND_ELEMENTWISE_GRIDS - 1 tell structures apart for which nothing is
 * known yet (some of a product have room for a limit of D, some are ties). */
enum { ND_ELEMENTWISE_GRIDS = 14 };
struct nd_elementwise_scales nd_elementwise_choose(enum nd_elementwise_op op, size_t i);
/* Those among random ones under which the arithmetics that are left disagree most; false: they agree everywhere
 * that was looked at. */
bool nd_elementwise_next(enum nd_elementwise_op op, const struct nd_elementwise_findings *findings,
                         uint64_t *seed, struct nd_elementwise_scales *out);

#endif
