/* Softmax, uint8 and uint16: powers of two of 15 bits, times one over their sum
 * (docs/science/htp-arithmetic.md#softmax). uint8 of short rows (docs/science/htp-arithmetic.md#short-softmax):
 * of 3 to 16 elements powers of 15 bits times one over their sum, of 2 a table of the logistic function. */
#include <math.h>

#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"

enum {
    PLACE_BITS = 16, /* of an exponent, after the point */
    PIECE_BITS = 14, /* of the place within a piece */
    N_PIECES = 4,
    NEWTON_STEPS = 5,
    MAX_INVERSE_BITS = 16,
    MAX_WHOLE = 40, /* powers below 2^-40 are 0 */
};

/* 2^t in steps of 2^-15, by rising powers of t; the first two are in halves. */
struct piece {
    int32_t ones, first, second;
};

/* What the two types have of their own. */
static const struct kind {
    int min_row, max_row; /* elements: those that it was held against; shorter rows are made in another way */
    float min_x, max_x;   /* likewise, scales of the input and of the output */
    float min_y, max_y;
    int step_bits, max_step_bits; /* of one quantised value as an exponent: after the point, and in all; the
                                     rest is cut off */
    int scale_bits;               /* of the output's scale, which bytes have after the point and words in all */
    int number_bits;              /* that are cut off their product with the sum */
    float usual_scale;            /* of quantised values that are rescaled then */
    bool is_rounded;              /* half up to the quantised values of the output, cut before; else cut once */
    struct piece pieces[N_PIECES];
} bytes =
    {
        .min_row = 3,
        .max_row = 2000,
        .min_x = 3.9e-4F,
        .max_x = 1.6F,
        .min_y = 1.3e-4F,
        .max_y = 0.077F,
        .step_bits = 14,
        .max_step_bits = 8,
        .scale_bits = 16,
        .number_bits = 8,
        .usual_scale = 0x1p-8F,
        .is_rounded = true,
        .pieces = {{32769, 22652, 4300}, {32876, 21816, 5119}, {33371, 19857, 6087}, {34675, 16404, 7230}},
},
  words = {
      .min_row = 3,
      .max_row = 5000,
      .min_x = 2.5e-6F,
      .max_x = 0.19F,
      .min_y = 4e-8F,
      .max_y = 2.2e-2F,
      .step_bits = 22,
      .max_step_bits = 16,
      .scale_bits = 16,
      .number_bits = 16,
      .usual_scale = 0x1p-16F,
      .pieces = {{32769, 22652, 4300}, {32876, 21816, 5119}, {33371, 19857, 6087}, {34681, 16401, 7227}},
};

struct softmax {
    const struct kind *kind;
    int64_t step;    /* of one quantised value as an exponent, in steps of 2^-step_bits */
    int64_t scale_y; /* times 2^exponent_y it is the output's scale, less what is cut off */
    int exponent_y;
    int64_t most; /* the greatest quantised value */
    size_t n;     /* of a row */
};

/* 2^-(distance from the greatest of the row). */
static int64_t power_of(const struct softmax *s, int64_t distance)
{
    int64_t place = nd_htp_shift_cut(distance * s->step, s->kind->step_bits - PLACE_BITS);
    int64_t whole = place >> PLACE_BITS, rest = UINT16_MAX - (place & UINT16_MAX);
    const struct piece *p = &s->kind->pieces[rest >> PIECE_BITS];
    int64_t slope = (((int64_t)p->first << (PLACE_BITS - 1)) + p->second * rest) >> PLACE_BITS;
    int64_t power = (((int64_t)p->ones << (PLACE_BITS - 1)) + slope * rest) >> PLACE_BITS;
    return whole > MAX_WHOLE ? 0 : (power < INT16_MAX ? power : INT16_MAX) >> whole;
}

/* m 2^-(kept + size) is one over a whole number. */
struct inverse {
    int64_t m;
    int kept, size; /* bits */
};

/* Steps of Newton's method in whole numbers from the same start for all, as precise as the number has bits. */
static struct inverse inverse_of(int64_t number)
{
    int size;
    frexp((double)number, &size);
    int n = size - 1, kept = n < MAX_INVERSE_BITS ? n : MAX_INVERSE_BITS;
    int64_t m = (int64_t)1 << (kept - 1);
    for (int i = 0; i < NEWTON_STEPS; i++)
        m += (m * (((int64_t)1 << n) - ((m * number) >> kept))) >> n;
    return (struct inverse){.m = m, .kept = kept, .size = n};
}

static void make_row(const struct softmax *s, const double *x, double *y)
{
    double greatest = x[0];
    int64_t sum = 0;
    for (size_t i = 1; i < s->n; i++)
        greatest = fmax(greatest, x[i]);
    for (size_t i = 0; i < s->n; i++) {
        int64_t power = power_of(s, (int64_t)(greatest - x[i]));
        y[i] = (double)power;
        sum += power;
    }
    struct inverse inverse = inverse_of((sum * s->scale_y) >> s->kind->number_bits);
    int right = inverse.size + s->kind->number_bits + s->exponent_y;
    for (size_t i = 0; i < s->n; i++) {
        int64_t share = (int64_t)y[i] * inverse.m;
        int64_t qvalue = s->kind->is_rounded ? nd_htp_shift(share >> inverse.kept, right)
                                             : nd_htp_shift_cut(share, inverse.kept + right);
        y[i] = (double)(qvalue < s->most ? qvalue : s->most);
    }
}

/* At most so many bits of value, and none behind the point. */
static int64_t cut(float value, int max_bits)
{
    int bits;
    frexpf(value, &bits);
    int more = bits > max_bits ? bits - max_bits : 0;
    return (int64_t)ldexpf(value, -more) << more;
}

/* The axis; -1: it is not known, as of one axis alone, and of several that are one before opset 13. */
static int64_t axis_of(const struct nd_htp_job *job)
{
    enum { ONE_AXIS_OPSET = 13 };
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    int64_t rank = job->call->inputs[0].values->shape.rank;
    int64_t axis = nd_op_i(&op_call, "axis", job->call->opset < ONE_AXIS_OPSET ? 1 : -1);
    axis += axis < 0 ? rank : 0;
    bool is_one = job->call->opset >= ONE_AXIS_OPSET || axis == rank - 1;
    return rank >= 2 && axis >= 0 && axis < rank && is_one ? axis : -1;
}

/* Whether the first input holds quantised values of uint8. Inputs that are moved, to see how far an error of
 * theirs reaches, may hold others. */
static bool has_bytes(const struct nd_htp_job *job)
{
    if (!nd_htp_all_are(job, 1, ND_DTYPE_U8))
        return false;
    const struct nd_array *x = job->call->inputs[0].values;
    for (size_t i = 0; i < x->n; i++)
        if (!(x->x[i] >= 0 && x->x[i] <= UINT8_MAX && x->x[i] == floor(x->x[i])))
            return false;
    return true;
}

static bool is_known(const struct nd_htp_job *job, const struct kind *kind, int64_t n, float scale)
{
    const struct nd_quant *x = nd_htp_plain(job, 0);
    return n >= kind->min_row && n <= kind->max_row && x->scale[0] >= kind->min_x &&
           x->scale[0] <= kind->max_x && scale >= kind->min_y && scale <= kind->max_y;
}

static int64_t step_of(const struct kind *kind, float scale_x)
{
    return cut(ldexpf(scale_x / (float)0.69314718055994530942, kind->step_bits), kind->max_step_bits);
}

/* Rows, n quantised values one behind the other, in place. */
static void make_long_rows(const struct kind *kind, float scale_x, struct softmax *s, double *x, size_t count)
{
    s->kind = kind;
    s->step = step_of(kind, scale_x);
    for (size_t row = 0; row < count; row += s->n)
        make_row(s, x + row, x + row);
}

/* ---- uint8 of short rows ---- */

enum {
    MIN_SHORT_ROW = 3,
    MAX_SHORT_ROW = 16,
    MAX_LANES = 4, /* the sum of rows up to this has no lowest bit */
    POWER_BITS = 15,
    INVERSE_BITS = 14,
    SHARE_BITS = 10, /* of a sum: what it has more are bits of a share after the point */
    DIGIT_BITS = 4,  /* of a distance, whose powers are those of its two digits */
    N_DIGITS = 1 << DIGIT_BITS,
};

/* Of the output: with less, the inverse of the scale has more than 15 bits, and rows are made as long ones. */
static const float min_scale = 0x1p-9F;

/* Whether rows of n are made by make_short_rows, for a scale of the output. */
static bool is_short_row(int64_t n, float scale)
{
    return n >= MIN_SHORT_ROW && n <= MAX_SHORT_ROW && scale >= min_scale;
}

struct short_rows {
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

static void fill_powers(struct short_rows *rows, float scale)
{
    int64_t low[N_DIGITS], high[N_DIGITS];
    fill_digit(scale, low);
    fill_digit(scale * (float)N_DIGITS, high);
    for (int i = 0; i <= UINT8_MAX; i++)
        rows->powers[i] = nd_htp_shift(high[i >> DIGIT_BITS] * low[i % N_DIGITS], POWER_BITS);
}

static void make_short_row(const struct short_rows *rows, double *x)
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

/* Of uint8 quantised values in that scale, in place: rows one behind the other become quantised values with the
 * zero point 0. */
static void make_short_rows(float scale_x, float scale, size_t n, double *x, size_t count)
{
    static const float step = 0x1p-6F; /* of the factor */
    double factor = floor((double)(1 / step / scale) + 0.5);
    struct short_rows rows = {.n = n, .factor = (int64_t)fmin(factor, INT16_MAX)};
    fill_powers(&rows, scale_x);
    for (size_t first = 0; first < count; first += n)
        make_short_row(&rows, x + first);
}

/* The same of rows of 2, for the scale 2^-8. */
static void make_pairs(float scale_x, double *x, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        double distance = (x[i] - x[i + 1]) * (double)scale_x;
        x[i + 1] = floor(UINT8_MAX / (1 + exp(distance)) + 0.5);
        x[i] = UINT8_MAX - x[i + 1];
    }
}

/* ---- rows of any length ---- */

typedef void make_rows(float scale_x, float scale, size_t n, double *x, size_t count);

/* Short rows, too, as long ones: where the zero point does not count. */
static void make_long_bytes(float scale_x, float scale, size_t n, double *x, size_t count)
{
    struct softmax s = {.scale_y = (int64_t)ldexpf(scale, bytes.scale_bits),
                        .exponent_y = -bytes.scale_bits,
                        .most = UINT8_MAX,
                        .n = n};
    make_long_rows(&bytes, scale_x, &s, x, count);
}

static void make_bytes(float scale_x, float scale, size_t n, double *x, size_t count)
{
    if (n == 2)
        make_pairs(scale_x, x, count);
    else
        (is_short_row((int64_t)n, scale) ? make_short_rows : make_long_bytes)(scale_x, scale, n, x, count);
}

static void make_words(float scale_x, float scale, size_t n, double *x, size_t count)
{
    struct softmax s = {.most = UINT16_MAX, .n = n};
    float mantissa = frexpf(scale, &s.exponent_y);
    s.scale_y = (int64_t)ldexpf(mantissa, words.scale_bits);
    s.exponent_y -= words.scale_bits;
    make_long_rows(&words, scale_x, &s, x, count);
}

/* Rows whose n elements lie `step` apart become rows of neighbours, or the other way round. */
static void turn(const struct nd_array *from, size_t n, size_t step, bool is_back, double *to)
{
    for (size_t first = 0; first < from->n; first += n * step)
        for (size_t row = 0; row < step; row++)
            for (size_t i = 0; i < n; i++) {
                size_t apart = first + i * step + row, near = first + row * n + i;
                to[is_back ? apart : near] = from->x[is_back ? near : apart];
            }
}

/* Quantised values of that scale and the zero point 0, along whichever axis: it plays no part. */
static enum nd_status make(const struct nd_htp_job *job, int64_t axis, float scale, make_rows *function,
                           struct nd_error *err)
{
    const struct nd_array *x = job->call->inputs[0].values;
    ND_CLEANUP(nd_array_deinit) struct nd_array rows = {0};
    size_t n = (size_t)x->shape.dims[axis], step = nd_dims_product(&x->shape, (int)axis + 1, x->shape.rank);
    ND_TRY(nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err));
    ND_TRY(nd_array_make(&rows, job->layer->dtype, &x->shape, err));
    turn(x, n, step, false, rows.x);
    function(nd_htp_plain(job, 0)->scale[0], scale, n, rows.x, rows.n);
    turn(&rows, n, step, true, job->qvalues->x);
    return ND_OK;
}

/* In the scale of the output, or in that of its type and then rescaled in that way. */
static enum nd_status make_output(const struct nd_htp_job *job, int64_t axis, make_rows *function,
                                  const enum nd_htp_method *method, struct nd_error *err)
{
    const struct kind *kind = function == make_words ? &words : &bytes;
    float scale_y = nd_htp_plain_output(job)->scale[0], scale = method != NULL ? kind->usual_scale : scale_y;
    int64_t n = job->call->inputs[0].values->shape.dims[axis];
    struct nd_htp_rescaling r;
    if (!(function == make_bytes && (n == 2 || is_short_row(n, scale))) && !is_known(job, kind, n, scale))
        return ND_OK;
    if (method != NULL && !nd_htp_rescaling_init(&r, *method, (double)scale, (double)scale_y))
        return ND_OK;
    enum nd_status status = make(job, axis, scale, function, err);
    if (status == ND_OK && method != NULL)
        nd_htp_rescale_all(job, &r, 0, 1, job->qvalues);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    for (size_t i = 0; status == ND_OK && i < job->qvalues->n; i++)
        job->qvalues->x[i] = nd_within(job->qvalues->x[i], bounds.low, bounds.high);
    *job->is_covered = status == ND_OK;
    return status;
}

/* Rows of 2 whose scale is that near to the usual one are not rescaled: of 26 scales on gen3 those up to 0.0049
 * of it. */
static const float near_usual = 0.005F;

/* Another zero point than 0 and 128, of int8 than -128, does not count, which is a defect
 * (docs/results/found.md#softmax). */
static enum nd_status make_own_softmax(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { MIDDLE = 128 };
    static const enum nd_htp_method of_pairs = ND_HTP_FIXED, of_rows = ND_HTP_LAYOUT;
    int64_t axis = job->call->n_inputs == 1 && has_bytes(job) ? axis_of(job) : -1;
    if (axis < 0)
        return ND_OK;
    int64_t zero = nd_htp_plain_output(job)->zero_point[0];
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    float ratio = nd_htp_plain_output(job)->scale[0] / bytes.usual_scale;
    bool is_pair = shape->dims[axis] == 2;
    if (is_pair && axis != shape->rank - 1)
        return ND_OK; /* seen once: nearly exact rounding, 11 of 2 560 values off by 1 */
    bool is_kept = !job->is_signed && zero == MIDDLE;
    make_rows *function = is_pair || is_kept || zero == 0 ? make_bytes : make_long_bytes;
    const enum nd_htp_method *method = is_pair ? &of_pairs : is_kept ? &of_rows : NULL;
    return make_output(job, axis, function, is_pair && fabsf(ratio - 1) < near_usual ? NULL : method, err);
}

/* From it on, which a mask of the least float has, all but the greatest of a row are 0: e^-32 is none of 16
 * bits. */
static const float steep = 32;

/* The greatest of each row become the greatest byte, all others 0. */
static enum nd_status only_greatest(const struct nd_array *x, int64_t axis, struct nd_array *out,
                                    struct nd_error *err)
{
    size_t n = (size_t)x->shape.dims[axis], step = nd_dims_product(&x->shape, (int)axis + 1, x->shape.rank);
    ND_TRY(nd_array_copy(x, out, err));
    for (size_t k = 0; k < x->n; k++) {
        size_t first = k - k / step % n * step;
        double greatest = x->x[first];
        for (size_t i = 1; i < n; i++)
            greatest = fmax(greatest, x->x[first + i * step]);
        out->x[k] = x->x[k] == greatest ? UINT8_MAX : 0;
    }
    return ND_OK;
}

/* A Mul by a positive number before it only changes the scale of what it reads. */
static enum nd_status make_softmax(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_linear_input *own = &job->call->inputs[0];
    if (job->call->n_inputs != 1 || !nd_linear_has(job->call, 0) || own->quant == NULL || own->quant->n != 1)
        return ND_OK;
    ND_CLEANUP(nd_array_deinit) struct nd_array greatest = {0};
    const struct nd_array *before =
        nd_htp_is_laid_out(job, 0) ? NULL : nd_htp_recall_before(job, 0, ND_HTP_BEFORE_FACTOR);
    bool has_factor = before != NULL && nd_htp_scale_before(job, 0) > 0;
    float scale = has_factor ? nd_htp_scale_before(job, 0) : own->quant->scale[0];
    int64_t axis = axis_of(job);
    struct nd_quant quant = *own->quant;
    struct nd_htp_replaced other;
    nd_htp_replace(job, &other);
    struct nd_linear_input *input = &other.inputs[0];
    input->values = has_factor ? before : own->values;
    if (scale >= steep && axis >= 0 && input->values->n > 0) {
        ND_TRY(only_greatest(input->values, axis, &greatest, err));
        input->values = &greatest;
        scale = bytes.max_x;
    }
    quant.scale = &scale;
    input->quant = &quant;
    return make_own_softmax(&other.job, err);
}

static enum nd_status make_softmax16(const struct nd_htp_job *job, struct nd_error *err)
{
    static const enum nd_htp_method of_rows = ND_HTP_LAYOUT;
    bool is_usual = job->call->n_inputs == 1 && nd_htp_has_words(job) && nd_htp_is_unbounded(job);
    int64_t axis = is_usual ? axis_of(job) : -1;
    if (axis < 0)
        return ND_OK;
    bool is_rescaled = nd_htp_plain_output(job)->zero_point[0] != 0;
    return make_output(job, axis, make_words, is_rescaled ? &of_rows : NULL, err);
}

/* ---- LogSoftmax of uint8 (docs/science/htp-arithmetic.md#log-softmax) ---- */

enum { SCALE_BITS = 8, FACTOR_BITS = 16, MAX_MORE_BITS = 5, LOG_BITS = 15 };

/* ln(1 + t) in steps of 2^-15, by rising powers of t. Found by linear programming over 20 916 rows (gen3, QAIRT
 * 2.51.0), all but 79 of which it gives. */
static const double log_pieces[N_PIECES][5] = {{.041, 32763.583, -16232.836, 9709.517, -4180.354},
                                               {20.709, 32431.968, -14430.061, 5580.743, -645.584},
                                               {105.814, 31867.486, -13242.704, 4936.364, -954.597},
                                               {139.169, 31682.132, -12856.989, 4580.357, -831.66}};

static double log_of(int64_t sum)
{
    static const double of_two = 22713.047; /* 2^15 ln 2 */
    int size;
    double t = 2 * frexp((double)sum, &size) - 1;
    const double *p = log_pieces[(int)(t * N_PIECES)];
    return p[0] + t * (p[1] + t * (p[2] + t * (p[3] + t * p[4]))) + (size - 1 - LOG_BITS) * of_two;
}

/* Less the zero point. Distances and logarithms are whole numbers of the last bit of the scale of x. */
static void make_logs(float scale_x, float scale, size_t n, double *x, size_t count)
{
    struct softmax s = {.kind = &bytes, .step = step_of(&bytes, scale_x)};
    int exponent, out;
    int64_t scale8 = (int64_t)ldexpf(frexpf(scale_x, &exponent), SCALE_BITS);
    int64_t factor = (int64_t)ldexpf(frexpf(ldexpf(1 / scale, exponent - SCALE_BITS), &out), FACTOR_BITS);
    int more = -out < MAX_MORE_BITS ? -out : MAX_MORE_BITS;
    for (double *row = x; row < x + count; row += n) {
        double greatest = row[0];
        int64_t sum = 0;
        for (size_t i = 1; i < n; i++)
            greatest = fmax(greatest, row[i]);
        for (size_t i = 0; i < n; i++)
            sum += power_of(&s, (int64_t)(greatest - row[i]));
        int64_t whole = (int64_t)floor(ldexp(log_of(sum), SCALE_BITS - exponent - LOG_BITS));
        for (size_t i = 0; i < n; i++) {
            int64_t total = ((int64_t)(greatest - row[i]) * scale8 + whole) * factor;
            row[i] = (double)(((1 << (more - 1)) - (total >> (FACTOR_BITS - out - more))) >> more);
        }
    }
}

static enum nd_status make_log_softmax(const struct nd_htp_job *job, struct nd_error *err)
{
    /* Scales that the formula was held against. */
    static const float min_x = 0.0055F, max_x = 0.7F, min_y = 0.0128F, max_ratio = 8;
    int64_t axis = job->call->n_inputs == 1 && has_bytes(job) && nd_htp_is_unbounded(job) ? axis_of(job) : -1;
    if (axis < 0 || axis != job->call->inputs[0].values->shape.rank - 1)
        return ND_OK;
    float scale_x = nd_htp_plain(job, 0)->scale[0], scale = nd_htp_plain_output(job)->scale[0];
    if (scale_x < min_x || scale_x > max_x || scale < min_y || scale_x >= max_ratio * scale)
        return ND_OK;
    ND_TRY(make(job, axis, scale, make_logs, err));
    double zero = (double)nd_htp_plain_output(job)->zero_point[0];
    for (size_t i = 0; i < job->qvalues->n; i++)
        job->qvalues->x[i] = nd_within(job->qvalues->x[i] + zero, 0, UINT8_MAX);
    *job->is_covered = true;
    return ND_OK;
}

const struct nd_htp_operator nd_htp_softmaxes[] = {
    {"LogSoftmax", make_log_softmax, false},
    {"Softmax", make_softmax16, true},
    {"Softmax", make_softmax, false},
    {.op_types = NULL},
};
