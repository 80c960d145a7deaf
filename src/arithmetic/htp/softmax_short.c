/* uint8 Softmax of short rows: of 3 to 16 elements powers of 15 bits times one over their sum, of 2 a table of
 * the logistic function. docs/science/htp-arithmetic.md#short-softmax. */
#include <math.h>

#include "arithmetic/htp/htp_internal.h"

enum {
    MIN_ROW = 3,
    MAX_ROW = 16,
    MAX_LANES = 4, /* the sum of rows up to this has no lowest bit */
    POWER_BITS = 15,
    INVERSE_BITS = 14,
    SHARE_BITS = 10, /* of a sum: what it has more are bits of a share after the point */
    DIGIT_BITS = 4,  /* of a distance, whose powers are those of its two digits */
    N_DIGITS = 1 << DIGIT_BITS,
};

/* Of the output: with less, the inverse of the scale has more than 15 bits, and rows are made as long ones. */
static const float min_scale = 0x1p-9F;

bool nd_htp_is_short_row(int64_t n, float scale)
{
    return n >= MIN_ROW && n <= MAX_ROW && scale >= min_scale;
}

struct rows {
    size_t n; /* elements of each */
    int64_t powers[UINT8_MAX + 1];
    int64_t factor; /* one over the scale of the output, in steps of 2^-6 */
};

/* The table of one digit, in float32: 32767 times a power, to the nearest. */
static void fill_digit(float step, int64_t digits[N_DIGITS])
{
    for (int i = 0; i < N_DIGITS; i++) {
        float power = (float)exp((double)((float)-i * step));
        digits[i] = (int64_t)rintf(power * (float)INT16_MAX);
    }
}

static void fill_powers(struct rows *rows, float scale)
{
    int64_t low[N_DIGITS], high[N_DIGITS];
    fill_digit(scale, low);
    fill_digit(scale * (float)N_DIGITS, high);
    for (int i = 0; i <= UINT8_MAX; i++)
        rows->powers[i] = nd_htp_shift(high[i >> DIGIT_BITS] * low[i % N_DIGITS], POWER_BITS);
}

static void make_row(const struct rows *rows, double *x)
{
    double greatest = x[0];
    int64_t sum = 0;
    int bits;
    for (size_t i = 1; i < rows->n; i++)
        greatest = fmax(greatest, x[i]);
    for (size_t i = 0; i < rows->n; i++)
        sum += rows->powers[(size_t)(greatest - x[i])];
    if (rows->n <= MAX_LANES)
        sum -= sum & 1;
    frexp((double)sum, &bits);
    int64_t place = nd_htp_shift_cut(sum, bits - 1 - ND_HTP_PLACE_BITS) - (1 << ND_HTP_PLACE_BITS);
    int64_t inverse = nd_htp_shift(nd_htp_inverse(place) * rows->factor, INVERSE_BITS);
    for (size_t i = 0; i < rows->n; i++) {
        int64_t share = nd_htp_shift(rows->powers[(size_t)(greatest - x[i])] * inverse, POWER_BITS);
        x[i] = fmin((double)nd_htp_shift(share, bits - SHARE_BITS), UINT8_MAX);
    }
}

void nd_htp_short_softmax(float scale_x, float scale, size_t n, double *x, size_t count)
{
    static const float step = 0x1p-6F; /* of the factor */
    double factor = floor((double)(1 / step / scale) + 0.5);
    struct rows rows = {.n = n, .factor = (int64_t)fmin(factor, INT16_MAX)};
    fill_powers(&rows, scale_x);
    for (size_t first = 0; first < count; first += n)
        make_row(&rows, x + first);
}

void nd_htp_softmax_of_pairs(float scale_x, double *x, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        double distance = (x[i] - x[i + 1]) * (double)scale_x;
        x[i + 1] = floor(UINT8_MAX / (1 + exp(distance)) + 0.5);
        x[i] = UINT8_MAX - x[i + 1];
    }
}
