/* uint8 Softmax of short rows: powers of 15 bits, times one over their sum as Div has it. Nearly.
 * docs/science/htp-arithmetic.md#softmax. */
#include <math.h>

#include "arith/htp_internal.h"

/* Elements: longer rows are made by htp_softmax.c. */
enum { LEAST_ROW = 3, MOST_ROW = 16 };

/* Scales of the output: with less the device loses bits (gen1 and gen3, QAIRT 2.51.0), with more was not held
 * against it. */
static const double least_scale = 0x1p-9, greatest_scale = 0x1p-7;

bool nd_htp_is_short_softmax(const struct nd_exact_unit *unit)
{
    const struct nd_shape *shape = &unit->call->inputs[0].values->shape;
    return shape->rank > 0 && shape->dims[shape->rank - 1] <= MOST_ROW;
}

static bool is_known(const struct nd_htp_job *job)
{
    if (job->call->n_inputs != 1 || !nd_htp_has_bytes(job) || !nd_htp_is_softmax_of_rows(job))
        return false;
    const struct nd_quant *y = nd_htp_plain_output(job);
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    return y->zero_point[0] == 0 && (double)y->scale[0] >= least_scale &&
           (double)y->scale[0] <= greatest_scale && shape->dims[shape->rank - 1] >= LEAST_ROW;
}

struct rows {
    size_t n; /* elements of each */
    double powers[UINT8_MAX + 1];
    struct nd_htp_factor factor; /* one over the scale of the output */
    struct nd_htp_bounds bounds;
};

static void fill_powers(struct rows *rows, double scale_x)
{
    const double one = 1 << ND_HTP_FACTOR_BITS;
    for (int i = 0; i <= UINT8_MAX; i++)
        rows->powers[i] = fmin(floor(one * exp(-i * scale_x) + 0.5), one - 1);
}

static void make_row(const struct rows *rows, const double *x, double *codes)
{
    const int64_t most = (1 << ND_HTP_FACTOR_BITS) - 1;
    double greatest = x[0], sum = 0;
    int exponent;
    for (size_t i = 1; i < rows->n; i++)
        greatest = fmax(greatest, x[i]);
    for (size_t i = 0; i < rows->n; i++)
        sum += rows->powers[(size_t)(greatest - x[i])];
    frexp(sum, &exponent);
    int64_t normal = nd_htp_shift((int64_t)sum, exponent - ND_HTP_FACTOR_BITS);
    int64_t inverse = nd_htp_inverse(normal < most ? normal : most);
    int right = exponent - 2 - rows->factor.exponent; /* what is not in the two shifts below */
    for (size_t i = 0; i < rows->n; i++) {
        int64_t power = (int64_t)rows->powers[(size_t)(greatest - x[i])];
        int64_t scaled = nd_htp_shift_cut(power * rows->factor.m, ND_HTP_FACTOR_BITS);
        int64_t share = nd_htp_shift(scaled * inverse, ND_HTP_FACTOR_BITS);
        codes[i] = fmin(fmax((double)nd_htp_shift(share, right), rows->bounds.low), rows->bounds.high);
    }
}

enum nd_status nd_htp_short_softmax(const struct nd_htp_job *job, struct nd_error *err)
{
    struct rows rows;
    if (!is_known(job) || !nd_htp_factor_init(&rows.factor, 1 / nd_htp_plain_output(job)->scale[0]))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    enum nd_status status = nd_array_make(job->codes, job->unit->dtype, &x->shape, err);
    if (status != ND_OK)
        return status;
    rows.n = (size_t)x->shape.dims[x->shape.rank - 1];
    rows.bounds = nd_htp_bounds_of(job);
    fill_powers(&rows, (double)nd_htp_plain(job, 0)->scale[0]);
    for (size_t first = 0; first < x->n; first += rows.n)
        make_row(&rows, x->x + first, job->codes->x + first);
    *job->is_covered = true;
    return ND_OK;
}
