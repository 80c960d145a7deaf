/* Mean and inverse deviation of uint16 quantised values as the HTP's float instructions give them.
 * docs/science/htp-arithmetic.md#instance-normalization-16. */
#include "arithmetic/htp/moments.h"

#include <stdint.h>
#include <string.h>

enum {
    SUM_BITS = 16, /* sums of quantised values are cut into two numbers there, before either becomes a float */
    SQUARE_BITS = 32, /* sums of squares there */
};

/* The first guess of an inverse root is this less half of the float, both as whole numbers. */
static const int32_t guess_of_root = 0x5f375a86;

/* A whole number of up to 32 bits times a float: its upper and its lower bits are floats of their own. */
static struct nd_qfloat scaled(int64_t whole, float factor)
{
    int64_t upper = whole >> SUM_BITS << SUM_BITS;
    struct nd_qfloat by = nd_qfloat_read(factor);
    return nd_qfloat_sum(nd_qfloat_product(nd_qfloat_read((float)upper), by),
                         nd_qfloat_product(nd_qfloat_read((float)(whole - upper)), by));
}

/* The same of more bits: the lowest 32 of them as above. */
static struct nd_qfloat scaled_squares(int64_t whole, float factor)
{
    int64_t upper = whole >> SQUARE_BITS << SQUARE_BITS;
    return nd_qfloat_sum(nd_qfloat_product(nd_qfloat_read((float)upper), nd_qfloat_read(factor)),
                         scaled(whole - upper, factor));
}

struct nd_qfloat nd_htp_inverse_root(struct nd_qfloat value, int n_steps)
{
    float number = (float)nd_qfloat_value(value), guess;
    int32_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits = guess_of_root - (bits >> 1);
    memcpy(&guess, &bits, sizeof guess);
    struct nd_qfloat root = nd_qfloat_read(guess), middle = nd_qfloat_read(1.5F),
                     half = nd_qfloat_settled(nd_qfloat_product(nd_qfloat_read(0.5F), value));
    for (int i = 0; i < n_steps; i++) {
        struct nd_qfloat square = nd_qfloat_settled(nd_qfloat_product(half, root));
        square = nd_qfloat_settled(nd_qfloat_product(square, root));
        root = nd_qfloat_settled(
            nd_qfloat_product(root, nd_qfloat_settled(nd_qfloat_sum(middle, nd_qfloat_minus(square)))));
    }
    return root;
}

struct nd_htp_moments nd_htp_moments_of(const double *x, size_t n, float epsilon, int n_steps)
{
    int64_t sum = 0, squares = 0, count = (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        int64_t qvalue = (int64_t)x[i];
        sum += qvalue;
        squares += qvalue * qvalue;
    }
    float square_of_n = (float)n * (float)n;
    struct nd_qfloat variance = nd_qfloat_settled(scaled_squares(count * squares - sum * sum, 1 / square_of_n));
    struct nd_qfloat more = nd_qfloat_settled(nd_qfloat_sum(variance, nd_qfloat_read(epsilon)));
    return (struct nd_htp_moments){nd_qfloat_settled(scaled(sum, 1 / (float)n)),
                                   nd_htp_inverse_root(more, n_steps)};
}
