/* Sums and means: ReduceSum, ReduceMean, GlobalAveragePool and AveragePool: a sum of quantised values times a
 * multiplier. docs/science/htp-arithmetic.md#sums and docs/science/htp-arithmetic.md#means. */
#include <math.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"
#include "core/tensors/scales.h"

enum { MAX_AXES = 4 };

/* Which axes are reduced; false: none, or too many. */
static bool mark_axes(const struct nd_htp_job *job, bool reduced[MAX_AXES])
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    const struct nd_array *given = nd_linear_has(job->call, 1) ? job->call->inputs[1].values : NULL;
    const int64_t *axes = NULL;
    size_t n = given != NULL ? given->n : nd_op_ints(&op_call, "axes", &axes);
    memset(reduced, 0, MAX_AXES * sizeof reduced[0]);
    for (size_t i = 0; i < n; i++) {
        int64_t axis = given != NULL ? (int64_t)given->x[i] : axes[i];
        axis += axis < 0 ? shape->rank : 0;
        if (axis < 0 || axis >= shape->rank || axis >= MAX_AXES)
            return false;
        reduced[axis] = true;
    }
    return n > 0 && shape->rank <= MAX_AXES;
}

/* The same of tensors that were looked at. */
static bool find_axes(const struct nd_htp_job *job, bool reduced[MAX_AXES])
{
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    bool is_known = shape->rank >= 2 && (shape->rank == 2 || shape->dims[0] == 1) && mark_axes(job, reduced);
    return is_known && !reduced[0]; /* the first one was not looked at */
}

/* Whether it is a ReduceMean over all axes between the first and the last, of the layout that the device has:
 * the HTP makes it as GlobalAveragePool. */
static bool is_plane_mean(const struct nd_htp_job *job)
{
    bool reduced[MAX_AXES];
    if (job->call->n_inputs == 0 || job->call->inputs[0].values == NULL ||
        strcmp(job->call->node->op_type, "ReduceMean") != 0 || !find_axes(job, reduced))
        return false;
    int rank = job->call->inputs[0].values->shape.rank;
    if (rank >= MAX_AXES - 1 && (nd_htp_is_laid_out(job, 0) || nd_htp_is_merged(job, 0)))
        return !reduced[1] && reduced[2] && reduced[rank - 1];
    bool all = rank > 2 && !reduced[rank - 1];
    for (int i = 1; i < rank - 1; i++)
        all = all && reduced[i];
    return all;
}

/* Multipliers that the formulas were held against. */
static const float min_multiplier = 0x1p-12F, max_multiplier = 8;

/* s_x over s_y, of a mean s_x / n over s_y, a hundred thousandth smaller: each step a float32. Read out of 91
 * models whose multiplier lies next to a half (gen3, QAIRT 2.51.0). */
static bool make_factor(float scale, float scale_y, struct nd_htp_factor *out)
{
    static const float shrunk = 0.99999F;
    float value = nd_htp_quotient(scale, scale_y);
    return value >= min_multiplier && value <= max_multiplier && nd_htp_factor_init(out, value * shrunk);
}

/* A sum of quantised values, and what it is multiplied by. */
struct sums {
    struct nd_htp_factor factor;
    int64_t count, zero_x, zero_y;
};

/* Of the sum of quantised values less zero points. The sum and what the zero points add lose their lowest bits
 * before one is taken from the other: of multipliers below a half few, and the rest is cut one step too high.
 */
static int64_t scale_sum(const struct sums *s, int64_t sum)
{
    int right = ND_HTP_FACTOR_BITS - s->factor.exponent, first = right;
    int64_t m = s->factor.m, moved = s->count * s->zero_x;
    if (s->factor.exponent < 0) {
        int log;
        frexp((double)s->count, &log); /* floor(log2(count)) + 1 */
        first = log > -s->factor.exponent ? log : -s->factor.exponent;
    }
    int64_t rest = nd_htp_shift((sum + moved) * m, first) - ((moved * m) >> first);
    return (rest >> (right - first)) + (first < right) + s->zero_y;
}

/* Whether it is known how uint8 ReduceMean of so many elements is made: with one multiplier for the sum of
 * quantised values less zero points, or, apart, for that of the quantised values and that of the zero points.
 */
static bool is_byte_mean(const struct nd_htp_job *job, size_t count, bool *is_apart)
{
    enum { BATCH, HEIGHT, WIDTH, DEPTH, MAX_TOGETHER = 4 };
    static const int as_they_are[] = {BATCH, HEIGHT, WIDTH, DEPTH}, laid_out[] = {BATCH, DEPTH, HEIGHT, WIDTH};
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    bool reduced[MAX_AXES], kept[MAX_AXES] = {false}, gone[MAX_AXES] = {false};
    if (!mark_axes(job, reduced) || (shape->rank == MAX_AXES && shape->dims[0] != 1))
        return false;
    bool is_laid_out = shape->rank >= MAX_AXES - 1 && nd_htp_is_laid_out(job, 0);
    for (int i = 0; i < shape->rank; i++) {
        int axis = is_laid_out ? laid_out[i] : as_they_are[MAX_AXES - shape->rank + i];
        kept[axis] = shape->dims[i] > 1 && !reduced[i];
        gone[axis] = shape->dims[i] > 1 && reduced[i];
    }
    bool is_plane = !gone[DEPTH] && !kept[HEIGHT] && !kept[WIDTH];
    bool is_short = !gone[HEIGHT] && !gone[WIDTH] && count <= MAX_TOGETHER;
    *is_apart = !is_plane && !is_short;
    return true;
}

/* Whether it is known how a uint8 ReduceSum is made: over axes of one sample. */
static bool is_byte_sum(const struct nd_htp_job *job)
{
    bool reduced[MAX_AXES];
    return job->layer->dtype == ND_DTYPE_U8 && find_axes(job, reduced);
}

/* Of a uint8 ReduceMean that is made apart, or a ReduceSum, of so many elements: their sum times the
 * multiplier. False: one that the formula was not held against. */
static bool sums_init(struct sums *s, const struct nd_htp_job *job, size_t count, double multiplier)
{
    const struct nd_quant *x = nd_htp_plain(job, 0), *y = nd_htp_plain_output(job);
    if (!(multiplier >= min_multiplier && multiplier <= max_multiplier))
        return false;
    *s = (struct sums){.count = (int64_t)count, .zero_x = x->zero_point[0], .zero_y = y->zero_point[0]};
    double mantissa = frexp(multiplier, &s->factor.exponent);
    s->factor.m = (int64_t)floor(mantissa * INT16_MAX + 0.5);
    return true;
}

/* Of the sum of quantised values less zero points; not clipped. */
static int64_t scale_bytes(const struct sums *s, int64_t sum)
{
    int right = ND_HTP_FACTOR_BITS - s->factor.exponent;
    int64_t m = s->factor.m, moved = s->factor.exponent >= 0 ? s->count * s->zero_x : 0;
    return nd_htp_shift((sum + moved) * m, right) - ((moved * m) >> right) + s->zero_y;
}

static enum nd_status scale_all(const struct nd_htp_job *job, const struct nd_array *values, double factor,
                                struct sums *s, struct nd_error *err)
{
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &values->shape, err);
    for (size_t i = 0; status == ND_OK && i < values->n; i++) {
        double qvalue = (double)scale_sum(s, llrint(values->x[i] * factor));
        job->qvalues->x[i] = fmin(fmax(qvalue, bounds.low), bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

static enum nd_status reduce_words(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { MAX_COUNT = 2048 }; /* that was looked at */
    ND_CLEANUP(nd_array_deinit) struct nd_array x = {0}, reduced = {0};
    bool axes[MAX_AXES];
    double largest;
    if (job->call->n_inputs > 2 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        job->call->inputs[0].values->n == 0 || is_plane_mean(job) || !find_axes(job, axes))
        return ND_OK;
    const struct nd_array *inputs[] = {&x, nd_linear_has(job->call, 1) ? job->call->inputs[1].values : NULL};
    ND_TRY(nd_linear_packed_weights(job->call, 0, &x, &largest, err));
    ND_TRY(nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &reduced, err));
    if (reduced.n > 0) {
        bool is_mean = strcmp(job->call->node->op_type, "ReduceMean") == 0;
        const struct nd_quant *from = job->call->inputs[0].quant, *to = job->call->out_quant;
        struct sums s = {
            .count = (int64_t)(x.n / reduced.n), .zero_x = from->zero_point[0], .zero_y = to->zero_point[0]};
        float count = is_mean ? (float)s.count : 1;
        if (s.count <= MAX_COUNT && make_factor(from->scale[0] / count, to->scale[0], &s.factor))
            /* The mean of whole numbers is within some ulp: times their count it rounds to their sum. */
            ND_TRY(scale_all(job, &reduced, (double)count, &s, err));
    }
    return ND_OK;
}

/* ---- means ---- */

static double multiplier_of(const struct nd_htp_job *job, double count)
{
    return (double)job->call->inputs[0].quant->scale[0] / ((double)job->call->out_quant->scale[0] * count);
}

/* What makes quantised values of sums. */
struct averages {
    bool is_apart; /* in the way of sums */
    struct sums sums;
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
        return is_known_sum(multiplier, count) && is_byte_sum(job) &&
               sums_init(&a->sums, job, count, multiplier);
    if (job->layer->dtype != ND_DTYPE_U8 || strcmp(job->call->node->op_type, "ReduceMean") != 0)
        return true;
    if (!is_byte_mean(job, count, &a->is_apart))
        return false;
    return !a->is_apart || sums_init(&a->sums, job, count, multiplier);
}

/* A GlobalAveragePool of planes of one place is a change of the encoding, as Slice makes it. */
static bool is_mean_of_one(const struct nd_htp_job *job)
{
    const struct nd_array *x = job->call->n_inputs > 0 ? job->call->inputs[0].values : NULL;
    return strcmp(job->call->node->op_type, "GlobalAveragePool") == 0 && x != NULL && x->shape.rank > 2 &&
           nd_dims_product(&x->shape, 2, x->shape.rank) == 1 && nd_htp_all_are(job, 1, job->layer->dtype) &&
           !nd_quant_is_same(job->call->inputs[0].quant, job->call->out_quant);
}

static enum nd_status make_mean_of_one(const struct nd_htp_job *job, struct nd_error *err)
{
    enum nd_htp_layout layout = nd_htp_layout_of(job->memory, job->layer, 0);
    if (layout == ND_HTP_UNKNOWN || job->layer->dtype == ND_DTYPE_U16)
        return layout == ND_HTP_UNKNOWN ? ND_OK : nd_htp_move16(job, err);
    return nd_htp_rescale_input(job, layout == ND_HTP_FLAT ? ND_HTP_FIXED : ND_HTP_LAYOUT, err);
}

static enum nd_status make_mean(const struct nd_htp_job *job, struct nd_error *err)
{
    if (is_mean_of_one(job))
        return make_mean_of_one(job, err);
    ND_CLEANUP(nd_array_deinit) struct nd_array x = {0}, mean = {0};
    double largest;
    if (job->layer->dtype == ND_DTYPE_U16 && strcmp(job->call->node->op_type, "ReduceMean") == 0 &&
        !is_plane_mean(job))
        return ND_OK; /* reduce_words */
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
            double qvalue = averages.is_apart ? (double)scale_bytes(&averages.sums, (int64_t)sum)
                                              : nd_htp_scale(&averages.scaling, sum, &bounds);
            job->qvalues->x[i] = fmin(fmax(qvalue, bounds.low), bounds.high);
        }
        *job->is_covered = true;
    }
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

/* Whether its one window is the plane: the HTP makes it as GlobalAveragePool. */
static bool is_over_planes(const struct nd_linear_call *call)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    const struct nd_shape *x = &call->inputs[0].values->shape;
    const int64_t *kernel, *pads = NULL;
    size_t n_pads = nd_op_ints(&op_call, "pads", &pads);
    return x->rank == MAX_AXES && nd_op_ints(&op_call, "kernel_shape", &kernel) == 2 &&
           kernel[0] == x->dims[2] && kernel[1] == x->dims[3] && are_all(pads, n_pads, 0);
}

static enum nd_status make_pool(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array x = {0};
    double largest;
    if (job->call->n_inputs != 1 || !nd_htp_all_are(job, 1, job->layer->dtype))
        return ND_OK;
    if (is_over_planes(job->call))
        return make_mean(job, err);
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

const struct nd_htp_operator nd_htp_means[] = {
    {"ReduceMean", reduce_words, true},
    {"ReduceSum", reduce_words, true},
    {"AveragePool", make_pool, false},
    {"GlobalAveragePool", make_mean, false},
    {"ReduceMean", make_mean, false},
    {"ReduceSum", make_mean, false},
    {.op_types = NULL},
};
