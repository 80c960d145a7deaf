/* How a device turns the sum (or the largest) of a window's quantised values into a quantised value.
 *
 * With S = sum (x - z_x) over the n quantised values of the window, or their largest, M = s_x / (s_y n) or s_x
 * / s_y, and c = M with few bits, whose last one is worth u:
 *
 *     quantised value = clip(round(c A + 2^b u) + z_y),   A = S, or g (floor(S / g) + h) with a granule g
 * (requantise.h)
 *
 * 2^b u is what a first shift by b + 1 bits that rounds adds. Where kernel and stride are equal a window may be
 * worked on in stages, smaller windows first: the quantised values between them are quantised values, too, and
 * the scale changes in the first stage or in the last. */
#ifndef ND_FINGERPRINT_MEAN_H
#define ND_FINGERPRINT_MEAN_H

#include "arithmetic/arithmetics/requantise.h"
#include "core/error.h"

enum { ND_MEAN_MAX_SIDE = 8, ND_MEAN_MAX_STAGES = 3, ND_MEAN_NO_SHIFT = -1, ND_MEAN_NAME_BYTES = 160 };

struct nd_mean_arithmetic {
    struct nd_requantise requantise;
    int first_shift; /* b, of windows of two in a stage, else of all; ND_MEAN_NO_SHIFT: nothing is added */
    size_t n_stages; /* 1: the whole window at once */
    uint8_t stages[ND_MEAN_MAX_STAGES]; /* sides of the windows of the stages */
    bool requantises_last;
};

/* "stages:3,2+requantises-first+multiplier:14+rounding:half-up+first-shift:11". */
const char *nd_mean_name(const struct nd_mean_arithmetic *arithmetic, char buf[ND_MEAN_NAME_BYTES]);

/* Windows under one pair of scales, and the quantised values that they gave. Borrowed. */
struct nd_mean_sample {
    bool is_max;
    double ratio; /* s_x / s_y, in double from the float32 scales */
    double zero_x, zero_y;
    size_t n_rows, n_columns; /* of a window */
    size_t n;
    const uint8_t *windows; /* [n][n_rows][n_columns] */
    const double *qvalues;  /* [n] */
};

double nd_mean_qvalue(const struct nd_mean_arithmetic *arithmetic, const struct nd_mean_sample *sample,
                      const uint8_t *window);

struct nd_mean_findings {
    uint64_t n_qvalues;
    bool is_of_sum;                         /* windows of one sum (one largest) have one quantised value */
    struct nd_mean_arithmetic *arithmetics; /* not excluded; owned */
    size_t n_arithmetics;
    struct nd_mean_arithmetic nearest; /* of those with an exact multiplier, at once */
    uint64_t n_nearest_wrong;
};

/* All samples are of windows of one shape, and of one is_max. The granule is tried from 0 to 6 bits.
 * out->arithmetics needs free on success. ND_ERR_MEMORY. */
enum nd_status nd_mean_solve(const struct nd_mean_sample *samples, size_t n, bool may_be_staged,
                             struct nd_mean_findings *out, struct nd_error *err);

#endif
