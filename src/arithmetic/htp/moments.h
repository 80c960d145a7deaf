/* Mean and inverse deviation of uint16 quantised values as the HTP's float instructions give them. */
#ifndef ND_ARITH_HTP_MOMENTS_H
#define ND_ARITH_HTP_MOMENTS_H

#include <stddef.h>

#include "arithmetic/htp/qfloat.h"

/* More quantised values than this make whole numbers that do not fit 64 bits. */
#define ND_HTP_MAX_MOMENTS 16384

struct nd_htp_moments {
    struct nd_qfloat mean, inverse_root; /* the latter of variance and epsilon */
};
/* Of n quantised values, up to ND_HTP_MAX_MOMENTS; epsilon in squares of quantised values, above 0. */
struct nd_htp_moments nd_htp_moments_of(const double *x, size_t n, float epsilon, int n_steps);
/* 1 / sqrt(value) of a positive number, after that many steps of Newton's method. Three: off by a few layers in
 * the last place; two, as uint8 has it: up to 5e-6 too small. */
struct nd_qfloat nd_htp_inverse_root(struct nd_qfloat value, int n_steps);

#endif
