/* AveragePool of an input of the graph in floats. docs/science/htp-arithmetic.md#floats. */
#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/htp/qfloat.h"

enum {
    WINDOW = 3, /* of ND_HTP_HALF_POOL_PRODUCT */
    HALF_BITS = 10,
};

enum nd_htp_half_pool nd_htp_half_pool_of(const struct nd_linear_call *call)
{
    enum { PAIR = 2 };
    int64_t size = nd_htp_window_size(call);
    if (nd_htp_is_apart(call))
        return size == PAIR ? ND_HTP_HALF_POOL_PAIRS : ND_HTP_HALF_POOL_EXACT;
    /* Of a plane no higher than the window the float16 values are others (measured, see the docs). */
    const struct nd_shape *x = &call->inputs[0].values->shape;
    bool is_product =
        nd_htp_averages_as_product(call) && size == WINDOW && x->dims[2] > WINDOW && x->dims[3] > WINDOW;
    return is_product ? ND_HTP_HALF_POOL_PRODUCT : ND_HTP_HALF_POOL_UNKNOWN;
}

/* The average of two places below one another and the two at their right. */
static double pairs_of(const double *x, int64_t width)
{
    struct nd_qfloat left = nd_qfloat_sum(nd_qfloat_from((float)x[0]), nd_qfloat_from((float)x[width])),
                     right = nd_qfloat_sum(nd_qfloat_from((float)x[1]), nd_qfloat_from((float)x[width + 1]));
    return nd_qfloat_value(nd_qfloat_product(nd_qfloat_sum(left, right), nd_qfloat_read(0.25F)));
}

struct plane {
    const double *x;
    int64_t n_rows, n_columns;
    bool is_exact; /* v69 does not make the sum a float32 */
};

/* A window that begins at that row and column, both from -1 on: the sum of products with one ninth as a
 * float16, exact: of v73 rounded to float32. */
static double product_of(const struct plane *plane, int64_t row, int64_t column)
{
    double ninth = nd_multiplier_round(1.0 / (WINDOW * WINDOW), HALF_BITS, ND_ROUND_HALF_EVEN), sum = 0;
    for (int64_t i = row; i < row + WINDOW; i++)
        for (int64_t j = column; j < column + WINDOW; j++) {
            if (i < 0 || i >= plane->n_rows || j < 0 || j >= plane->n_columns)
                continue;
            sum += plane->x[i * plane->n_columns + j] * ninth;
        }
    return plane->is_exact ? sum : (double)(float)sum;
}

void nd_htp_half_pool(const struct nd_htp_job *job, const struct nd_array *halves, struct nd_array *made)
{
    enum nd_htp_half_pool method = nd_htp_half_pool_of(job->call);
    if (method != ND_HTP_HALF_POOL_PAIRS && method != ND_HTP_HALF_POOL_PRODUCT)
        return;
    struct plane plane = {.n_rows = halves->shape.dims[2],
                          .n_columns = halves->shape.dims[3],
                          .is_exact = job->arithmetic->arch == ND_HTP_V69};
    int64_t width = made->shape.dims[3], height = made->shape.dims[2];
    int64_t pad = (height + WINDOW - 1 - plane.n_rows) / 2; /* of steps of one, the same at all sides */
    for (size_t i = 0; i < made->n; i++) {
        int64_t column = (int64_t)i % width, row = (int64_t)i / width % height;
        plane.x = halves->x + (int64_t)i / (width * height) * plane.n_rows * plane.n_columns;
        made->x[i] = method == ND_HTP_HALF_POOL_PAIRS
                         ? pairs_of(plane.x + 2 * row * plane.n_columns + 2 * column, plane.n_columns)
                         : product_of(&plane, row - pad, column - pad);
    }
}
