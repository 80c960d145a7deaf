/* uint8 Softmax of short rows: of 3 to 16 elements powers of 15 bits times one over their sum, of 2 a table of
 * the logistic function. docs/science/htp-arithmetic.md#short-softmax. */
#include <math.h>

#include "arith/htp_internal.h"

enum {
    LEAST_ROW = 3,
    MOST_ROW = 16,
    MOST_LANES = 4, /* the sum of rows up to this has no lowest bit */
    POWER_BITS = 15,
    INVERSE_BITS = 14,
    SHARE_BITS = 10, /* of a sum: what it has more are bits of a share after the point */
    DIGIT_BITS = 4,  /* of a distance, whose powers are those of its two digits */
    N_DIGITS = 1 << DIGIT_BITS,
    MIDDLE = 128, /* of the zero points of the output but 0 the only one that counts */
};

/* Of the output: with less, the inverse of the scale has more than 15 bits, and rows are made as long ones. */
static const float least_scale = 0x1p-9F;
/* In which a row of 2 is made, before it is brought to the scale of the output. */
static const double pair_scale = 0x1p-8;

static int64_t row_of(const struct nd_htp_job *job)
{
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    return shape->dims[shape->rank - 1];
}

static bool is_row_of_bytes(const struct nd_htp_job *job)
{
    return job->call->n_inputs == 1 && nd_htp_has_bytes(job) && nd_htp_is_softmax_of_rows(job);
}

bool nd_htp_is_short_softmax(const struct nd_htp_job *job)
{
    int64_t n = row_of(job), zero = nd_htp_plain_output(job)->zero_point[0];
    return n == 2 || (n >= LEAST_ROW && n <= MOST_ROW && (zero == 0 || zero == MIDDLE) &&
                      nd_htp_plain_output(job)->scale[0] >= least_scale);
}

struct rows {
    size_t n; /* elements of each */
    int64_t powers[UINT8_MAX + 1];
    int64_t factor; /* one over the scale of the output, in steps of 2^-6 */
    double zero;
    struct nd_htp_bounds bounds;
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

static void make_row(const struct rows *rows, const double *x, double *codes)
{
    double greatest = x[0];
    int64_t sum = 0;
    int bits;
    for (size_t i = 1; i < rows->n; i++)
        greatest = fmax(greatest, x[i]);
    for (size_t i = 0; i < rows->n; i++)
        sum += rows->powers[(size_t)(greatest - x[i])];
    if (rows->n <= MOST_LANES)
        sum -= sum & 1;
    frexp((double)sum, &bits);
    int64_t place = nd_htp_shift_cut(sum, bits - 1 - ND_HTP_PLACE_BITS) - (1 << ND_HTP_PLACE_BITS);
    int64_t inverse = nd_htp_shift(nd_htp_inverse(place) * rows->factor, INVERSE_BITS);
    for (size_t i = 0; i < rows->n; i++) {
        int64_t share = nd_htp_shift(rows->powers[(size_t)(greatest - x[i])] * inverse, POWER_BITS);
        double code = (double)nd_htp_shift(share, bits - SHARE_BITS) + rows->zero;
        codes[i] = nd_within(code, rows->bounds.low, rows->bounds.high);
    }
}

static void make_rows(const struct nd_htp_job *job, const struct nd_array *x, double *codes)
{
    static const float step = 0x1p-6F; /* of the factor */
    const struct nd_quant *y = nd_htp_plain_output(job);
    double factor = floor((double)(1 / step / y->scale[0]) + 0.5);
    struct rows rows = {.n = (size_t)row_of(job),
                        .factor = (int64_t)fmin(factor, INT16_MAX),
                        .zero = (double)y->zero_point[0],
                        .bounds = nd_htp_bounds_of(job)};
    fill_powers(&rows, nd_htp_plain(job, 0)->scale[0]);
    for (size_t first = 0; first < x->n; first += rows.n)
        make_row(&rows, x->x + first, codes + first);
}

/* The second of two in steps of 1/255, and the first as what is left, as codes of the output. */
static void make_pairs(const struct nd_htp_job *job, const struct nd_htp_rescaling *r, const struct nd_array *x,
                       double *codes)
{
    double scale = (double)nd_htp_plain(job, 0)->scale[0];
    double zero = (double)nd_htp_plain_output(job)->zero_point[0];
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    for (size_t i = 0; i < x->n; i += 2) {
        double second = floor(UINT8_MAX / (1 + exp((x->x[i] - x->x[i + 1]) * scale)) + 0.5);
        codes[i] = nd_within(nd_htp_rescale(r, UINT8_MAX - second) + zero, bounds.low, bounds.high);
        codes[i + 1] = nd_within(nd_htp_rescale(r, second) + zero, bounds.low, bounds.high);
    }
}

enum nd_status nd_htp_short_softmax(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_htp_rescaling r;
    bool is_pair = row_of(job) == 2;
    if (!is_row_of_bytes(job) ||
        (is_pair &&
         !nd_htp_rescaling_init(&r, ND_HTP_FIXED, pair_scale, (double)nd_htp_plain_output(job)->scale[0])))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    enum nd_status status = nd_array_make(job->codes, job->unit->dtype, &x->shape, err);
    if (status != ND_OK)
        return status;
    if (is_pair)
        make_pairs(job, &r, x, job->codes->x);
    else
        make_rows(job, x, job->codes->x);
    *job->is_covered = true;
    return ND_OK;
}
