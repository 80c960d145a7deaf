/* GlobalAveragePool, ReduceMean, AveragePool and uint8 ReduceSum: a sum of all that is averaged, times a
 * multiplier. docs/science/htp-arithmetic.md#means.
 */
#include <math.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"

static double multiplier_of(const struct nd_htp_job *job, double count)
{
    return (double)job->call->inputs[0].quant->scale[0] / ((double)job->call->out_quant->scale[0] * count);
}

/* What makes quantised values of sums. */
struct averages {
    bool is_apart; /* in the way of sums */
    struct nd_htp_sums sums;
    struct nd_htp_scaling scaling;
};

static bool is_sum(const struct nd_htp_job *job)
{
    return strcmp(job->call->node->op_type, "ReduceSum") == 0;
}

/* Of one element, and where the scales are a power of two apart, the device gives some sums one step further
 * (seen with 1 to 4 elements, steps of 1/4 to 2; network 46008 of tools/studies/strangers). */
static bool is_known_sum(double multiplier, size_t count)
{
    int exponent;
    return count > 1 && frexp(multiplier, &exponent) != 0.5;
}

/* False: not known. */
static bool averages_init(struct averages *a, const struct nd_htp_job *job, size_t count)
{
    double multiplier = multiplier_of(job, is_sum(job) ? 1 : (double)count);
    *a = (struct averages){.scaling = {.step = 1, .zero = (double)job->call->out_quant->zero_point[0]}};
    a->scaling.c = nd_multiplier_round(multiplier, 14, ND_ROUND_HALF_EVEN);
    a->is_apart = is_sum(job);
    if (is_sum(job))
        return is_known_sum(multiplier, count) && nd_htp_is_byte_sum(job) &&
               nd_htp_sums_init(&a->sums, job, count, multiplier);
    if (job->layer->dtype != ND_DTYPE_U8 || strcmp(job->call->node->op_type, "ReduceMean") != 0)
        return true;
    if (!nd_htp_is_byte_mean(job, count, &a->is_apart))
        return false;
    return !a->is_apart || nd_htp_sums_init(&a->sums, job, count, multiplier);
}

enum nd_status nd_htp_mean(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array x = {0}, mean = {0};
    double largest;
    if (job->layer->dtype == ND_DTYPE_U16 && strcmp(job->call->node->op_type, "ReduceMean") == 0 &&
        !nd_htp_is_plane_mean(job))
        return ND_OK; /* htp_reduce16.c */
    if (job->call->n_inputs > 2 || !nd_htp_all_are(job, 1, job->layer->dtype) ||
        job->call->inputs[0].values->n == 0)
        return ND_OK;
    const struct nd_array *inputs[] = {&x, nd_linear_has(job->call, 1) ? job->call->inputs[1].values : NULL};
    enum nd_status status = nd_linear_packed_weights(job->call, 0, &x, &largest, err);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &mean, err);
    struct averages averages;
    bool is_known = status == ND_OK && mean.n > 0 && averages_init(&averages, job, x.n / mean.n);
    if (is_known)
        status = nd_array_make(job->qvalues, job->layer->dtype, &mean.shape, err);
    if (is_known && status == ND_OK) {
        struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
        double count = is_sum(job) ? 1 : (double)(x.n / mean.n);
        /* The mean of whole numbers is within some ulp: times their count it rounds to their sum. */
        for (size_t i = 0; i < mean.n; i++) {
            double sum = rint(mean.x[i] * count);
            double qvalue = averages.is_apart ? (double)nd_htp_scale_bytes(&averages.sums, (int64_t)sum)
                                              : nd_htp_scale(&averages.scaling, sum, &bounds);
            job->qvalues->x[i] = fmin(fmax(qvalue, bounds.low), bounds.high);
        }
        *job->is_covered = true;
    }
    nd_array_deinit(&x);
    nd_array_deinit(&mean);
    return status;
}

/* AveragePool: how the device makes it. */
enum method {
    UNKNOWN,
    APART, /* windows of 2 x 2 or 3 x 3 that neither overlap nor reach beyond the plane: a sum and a multiplier
            */
    PRODUCT, /* steps of one place: a Conv whose weights are all alike */
    STRIDED, /* steps of two: the same as a depthwise Conv of uint8 by steps of two */
    COUNTED, /* windows that reach beyond the plane, whose places there are not counted */
    FLOATS,  /* uint16: a mean of float32 */
};

struct windows {
    int64_t size, stride, pad; /* the same along both axes, pad at all four sides */
    bool counts_padding;
    enum method method;
};

enum {
    MULTIPLIER_BITS = 14, /* behind the leading one */
    AVERAGE_WEIGHT = 32,  /* of each place, as 8-bit weights have it: fitted for 3 x 3 with steps of two */
    COUNTED_BITS = 16, /* of a multiplier divided by a count, from the leading bit of the ratio of scales on */
    MIN_HALF_LOG = -8, /* of what 2 x 2 windows and COUNTED add beside the half */
    GREATEST_WINDOW = 5, /* that was seen to follow */
};

static enum method method_of(const struct windows *w, int64_t n_channels)
{
    bool is_odd = w->size % 2 == 1 && w->size >= 3, is_whole = w->pad == 0 || w->counts_padding;
    if (w->pad == 0 && w->stride == w->size && (w->size == 2 || w->size == 3))
        return APART;
    if (!is_odd || w->size > GREATEST_WINDOW || w->pad > w->size / 2)
        return UNKNOWN;
    if (is_whole && w->stride == 1)
        return PRODUCT;
    if (is_whole && w->stride == 2 && n_channels > 1)
        return STRIDED;
    bool is_counted = !is_whole && w->size == 3 && w->stride <= 2 && n_channels > 1;
    return is_counted ? COUNTED : UNKNOWN;
}

/* The same of uint16. */
static enum method method_of_words(const struct windows *w, int64_t n_channels)
{
    enum { SIZE = 3 }; /* of windows that overlap */
    enum method method = method_of(w, n_channels);
    bool is_small = w->size == 2 && w->stride == 1 && w->pad == 0;
    if (n_channels > 1 && (is_small || (method == COUNTED && w->stride == 2)))
        return FLOATS;
    return method == APART || (w->size == SIZE && (method == PRODUCT || method == STRIDED)) ? method : UNKNOWN;
}

static bool are_all(const int64_t *values, size_t n, int64_t value)
{
    for (size_t i = 0; i < n; i++)
        if (values[i] != value)
            return false;
    return true;
}

static struct windows windows_of(const struct nd_linear_call *call)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    const struct nd_shape *x = &call->inputs[0].values->shape;
    const int64_t *kernel, *strides = NULL, *pads = NULL, *dilations = NULL;
    char auto_pad[16];
    struct windows w = {.stride = 1, .counts_padding = nd_op_i(&op_call, "count_include_pad", 0) != 0};
    size_t n_strides = nd_op_ints(&op_call, "strides", &strides), n_pads = nd_op_ints(&op_call, "pads", &pads),
           n_dilations = nd_op_ints(&op_call, "dilations", &dilations);
    nd_op_text(&op_call, "auto_pad", auto_pad, sizeof auto_pad);
    if (x->rank != 4 || nd_op_ints(&op_call, "kernel_shape", &kernel) != 2 || kernel[0] != kernel[1] ||
        (auto_pad[0] != '\0' && strcmp(auto_pad, "NOTSET") != 0) || nd_op_i(&op_call, "ceil_mode", 0) != 0 ||
        !are_all(dilations, n_dilations, 1))
        return w;
    w.size = kernel[0];
    w.stride = n_strides > 0 ? strides[0] : 1;
    w.pad = n_pads > 0 ? pads[0] : 0;
    if (are_all(strides, n_strides, w.stride) && are_all(pads, n_pads, w.pad))
        w.method = call->inputs[0].values->dtype == ND_DTYPE_U16 ? method_of_words(&w, x->dims[1])
                                                                 : method_of(&w, x->dims[1]);
    return w;
}

bool nd_htp_is_apart(const struct nd_linear_call *call)
{
    return windows_of(call).method == APART;
}

int64_t nd_htp_window_size(const struct nd_linear_call *call)
{
    return windows_of(call).size;
}

bool nd_htp_averages_as_product(const struct nd_linear_call *call)
{
    return call->n_inputs == 1 && nd_linear_has(call, 0) && windows_of(call).method == PRODUCT;
}

/* How many places along one axis a window has inside of the plane. */
static int64_t n_inside(const struct windows *w, int64_t i, int64_t length)
{
    int64_t first = i * w->stride - w->pad, end = first + w->size;
    return (end < length ? end : length) - (first > 0 ? first : 0);
}

/* Beside the half: a step that is lost on the way, of the ratio of the two scales. */
static double more_of(double ratio)
{
    int exponent;
    frexp(ratio, &exponent);
    return ratio >= 2 ? 0 : ldexp(1, exponent - 6 > MIN_HALF_LOG ? exponent - 6 : MIN_HALF_LOG);
}

/* The same of uint16 windows of 3 x 3, of the multiplier. */
static double more_of_nine(double m)
{
    enum { BITS = 15, LOG_OF_NINE = 3 };
    int exponent; /* m < 2^exponent */
    frexp(m, &exponent);
    int log = -exponent - 1 > LOG_OF_NINE ? -exponent - 1 : LOG_OF_NINE;
    return m >= 0.5 ? 0 : ldexp(1, log + exponent - BITS);
}

/* What makes quantised values of sums, by the number of places that were summed. */
struct averaging {
    const struct nd_htp_job *job;
    struct windows windows;
    struct nd_htp_bounds bounds;
    double weight, more; /* of each place; beside the half */
    struct nd_htp_scaling scalings[GREATEST_WINDOW * GREATEST_WINDOW + 1];
};

static struct nd_htp_scaling scaling_of(const struct nd_htp_job *job, enum method method, double count)
{
    const struct nd_quant *x = nd_htp_plain(job, 0), *y = nd_htp_plain_output(job);
    struct nd_htp_column column = {.scale_x = (double)(x->scale[0] / y->scale[0]),
                                   .scale_y = 1,
                                   .zero_x = (double)x->zero_point[0],
                                   .zero_y = (double)y->zero_point[0],
                                   .scale_w = (double)(float)(1 / (count * AVERAGE_WEIGHT)),
                                   .r = 1};
    bool is_word = job->layer->dtype == ND_DTYPE_U16;
    if (method == STRIDED)
        return is_word ? nd_htp_scaling_whole16(&column) : nd_htp_scaling_strided(&column);
    if (method == PRODUCT)
        return is_word ? nd_htp_scaling16(job->arithmetic->arch, &column)
                       : nd_htp_scaling8(job->arithmetic->arch, &column);
    double ratio = (double)x->scale[0] / (double)y->scale[0];
    struct nd_htp_scaling scaling = {.step = 1, .zero = column.zero_y};
    scaling.c = nd_multiplier_round(ratio / count, MULTIPLIER_BITS, ND_ROUND_HALF_UP);
    if (method == COUNTED) {
        int exponent;
        frexp(ratio, &exponent);
        int bits = COUNTED_BITS + 1 - exponent;
        double c = nd_multiplier_round(ratio, MULTIPLIER_BITS, ND_ROUND_HALF_UP);
        scaling.c = ldexp(floor(ldexp(c / count, bits) + 0.5), -bits);
    }
    return scaling;
}

static struct averaging averaging_of(const struct nd_htp_job *job)
{
    struct averaging a = {
        .job = job, .windows = windows_of(job->call), .bounds = nd_htp_bounds_of(job), .weight = 1};
    bool is_product = a.windows.method == PRODUCT || a.windows.method == STRIDED;
    int64_t most = a.windows.size * a.windows.size;
    double ratio = (double)nd_htp_plain(job, 0)->scale[0] / (double)nd_htp_plain_output(job)->scale[0];
    if (is_product)
        a.weight = AVERAGE_WEIGHT;
    else if (a.windows.method == COUNTED || a.windows.size == 2)
        a.more = more_of(ratio);
    else if (job->layer->dtype == ND_DTYPE_U16)
        a.more = more_of_nine(ratio / (double)most);
    for (int64_t n = a.windows.method == COUNTED ? 1 : most; a.windows.method != UNKNOWN && n <= most; n++)
        a.scalings[n] = scaling_of(job, a.windows.method, (double)n);
    return a;
}

/* Element i of the output: each place as float32, added row by row. */
static double qvalue_of_floats(const struct averaging *a, size_t i)
{
    const struct nd_array *x = a->job->call->inputs[0].values;
    const struct nd_quant *from = nd_htp_plain(a->job, 0), *to = nd_htp_plain_output(a->job);
    const struct windows *w = &a->windows;
    int64_t rows = x->shape.dims[2], columns = x->shape.dims[3], n = 0;
    int64_t out_rows = a->job->qvalues->shape.dims[2], out_columns = a->job->qvalues->shape.dims[3];
    int64_t first_row = (int64_t)i / out_columns % out_rows * w->stride - w->pad;
    int64_t first_column = (int64_t)i % out_columns * w->stride - w->pad;
    const double *plane = x->x + (int64_t)i / (out_rows * out_columns) * rows * columns;
    float sum = 0;
    for (int64_t row = first_row; row < first_row + w->size; row++)
        for (int64_t column = first_column; column < first_column + w->size; column++) {
            if (row < 0 || row >= rows || column < 0 || column >= columns)
                continue;
            sum += (float)(plane[row * columns + column] - (double)from->zero_point[0]) * from->scale[0];
            n++;
        }
    float inverse = 1 / to->scale[0], steps = sum / (float)n * inverse;
    float qvalue = rintf(steps + (float)to->zero_point[0]);
    return fmin(fmax((double)qvalue, a->bounds.low), a->bounds.high);
}

/* Element i of the output, of which the mean is known. */
static double qvalue_of(const struct averaging *a, size_t i, double mean)
{
    if (a->windows.method == FLOATS)
        return qvalue_of_floats(a, i);
    const struct nd_shape *from = &a->job->call->inputs[0].values->shape, *to = &a->job->qvalues->shape;
    int64_t column = (int64_t)i % to->dims[3], row = (int64_t)i / to->dims[3] % to->dims[2];
    int64_t n = a->windows.size * a->windows.size;
    if (a->windows.method == COUNTED)
        n = n_inside(&a->windows, row, from->dims[2]) * n_inside(&a->windows, column, from->dims[3]);
    const struct nd_htp_scaling *scaling = &a->scalings[n];
    double sum = rint(mean * (double)n) * a->weight;
    if (a->job->layer->dtype == ND_DTYPE_U16 && a->windows.method == PRODUCT)
        sum = nd_htp_shorten(sum, (double)nd_htp_plain(a->job, 0)->zero_point[0] * a->weight * (double)n);
    if (a->more == 0)
        return nd_htp_scale(scaling, sum, &a->bounds);
    return fmin(fmax(floor(sum * scaling->c + 0.5 + a->more) + scaling->zero, a->bounds.low), a->bounds.high);
}

enum nd_status nd_htp_pool(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array x = {0};
    double largest;
    if (job->call->n_inputs != 1 || !nd_htp_all_are(job, 1, job->layer->dtype))
        return ND_OK;
    struct averaging averaging = averaging_of(job);
    if (averaging.windows.method == UNKNOWN)
        return ND_OK;
    const struct nd_array *inputs[] = {&x};
    enum nd_status status = nd_linear_packed_weights(job->call, 0, &x, &largest, err);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, inputs, 1, job->qvalues, err);
    nd_array_deinit(&x);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < job->qvalues->n; i++)
        job->qvalues->x[i] = qvalue_of(&averaging, i, job->qvalues->x[i]);
    job->qvalues->dtype = job->layer->dtype;
    *job->is_covered = true;
    return ND_OK;
}
