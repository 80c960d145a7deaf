/* Of one or two operands (docs/science/htp-arithmetic.md#elements): Add, Mul and Sub: multipliers, a first
 * shift that drops bits, an offset with them. Min and Max. By one constant number
 * (docs/science/htp-arithmetic.md#numbers) another encoding, as Neg. Div
 * (docs/science/htp-arithmetic.md#division): one over the divisor from four quadratic pieces, times the
 * dividend with 15 bits. Reciprocal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "core/error.h"
#include "core/memory.h"

/* y = clip((((f(a, b) >> first) + offset + half) >> shift) step + zero) in 64-bit integers, where shifts are
 * floors. */
struct fixed_point {
    int64_t m1, m2, z1, z2, p0, rounding, offset, half, step, zero;
    int shift;
};

/* The quantised value that becomes of two. */
typedef int64_t of_pair(const void *parameters, int64_t a, int64_t b);

/* Makes the quantised values of the layer from inputs 0 and 1, either of which may be broadcast. */
static enum nd_status for_pairs(const struct nd_htp_job *job, of_pair *function, const void *parameters,
                                const struct nd_htp_bounds *bounds, struct nd_array *out, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_array *a = job->call->inputs[0].values, *b = job->call->inputs[1].values;
    struct nd_shape shape = a->shape;
    ND_TRY(nd_op_broadcast(&op_call, &b->shape, &shape, err));
    ND_TRY(nd_array_make(out, job->layer->dtype, &shape, err));
    struct nd_walk walk = {0};
    double *y = out->x;
    for (int axis = 0; axis < shape.rank; axis++)
        nd_walk_axis(&walk, shape.dims[axis], nd_broadcast_stride(a, &shape, axis),
                     nd_broadcast_stride(b, &shape, axis), 0);
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++, y++) {
            int64_t qvalue = function(parameters, (int64_t)a->x[walk.at[0] + i * walk.step[0]],
                                      (int64_t)b->x[walk.at[1] + i * walk.step[1]]);
            *y = nd_within((double)qvalue, bounds->low, bounds->high);
        }
    return ND_OK;
}

static enum nd_status make_qvalues(const struct nd_htp_job *job, const struct fixed_point *f, of_pair *function,
                                   struct nd_error *err)
{
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    enum nd_status status = for_pairs(job, function, f, &bounds, job->qvalues, err);
    *job->is_covered = status == ND_OK;
    return status;
}

static int64_t add_bytes(const void *parameters, int64_t a, int64_t b)
{
    const struct fixed_point *f = parameters;
    return ((((a * f->m1 + b * f->m2) >> 8) + f->offset + f->half) >> f->shift) * f->step + f->zero;
}

static int64_t add_words(const void *parameters, int64_t a, int64_t b)
{
    const struct fixed_point *f = parameters;
    return (a * f->m1 + b * f->m2 + f->offset) >> f->shift;
}

/* The zero points and the half that rounding adds: what uint8 keeps in units of 2^8, and uint16 in units of 2.
 */
static int64_t offset_of(const struct fixed_point *f, int64_t zero, int k)
{
    return zero * ((int64_t)1 << k) - f->z1 * f->m1 - f->z2 * f->m2;
}

/* uint8: a constant number makes a table of the sum. uint16 Add by a number is as by any other operand. */
static bool has_number(const struct nd_htp_job *job)
{
    return nd_htp_is_number(job, 0) || nd_htp_is_number(job, 1);
}

static bool is_spread(const struct nd_array *b, const struct nd_array *a)
{
    bool is_same = a->shape.rank == b->shape.rank;
    for (int axis = 0; is_same && axis < a->shape.rank; axis++)
        is_same = a->shape.dims[axis] == b->shape.dims[axis];
    return !is_same;
}

/* Sub, its second operand broadcast: 65535 - b is added in its place, and the offset is even with that. */
static int64_t complement_of(const struct nd_htp_job *job, const struct fixed_point *f)
{
    bool is_complement = f->m2 < 0 && is_spread(job->call->inputs[1].values, job->call->inputs[0].values);
    return is_complement ? UINT16_MAX * f->m2 : 0;
}

static enum nd_status add_as_words(const struct nd_htp_job *job, struct fixed_point *f, int k,
                                   struct nd_error *err)
{
    int64_t zero = job->call->out_quant->zero_point[0], half = (int64_t)1 << (k - 1);
    int64_t taken = complement_of(job, f);
    f->offset = 2 * ((offset_of(f, zero, k) + half + taken + 1) >> 1) - taken; /* even */
    f->shift = k;
    return make_qvalues(job, f, add_words, err);
}

static enum nd_status add_as_bytes(const struct nd_htp_job *job, struct fixed_point *f, int k,
                                   struct nd_error *err)
{
    int64_t zero = job->call->out_quant->zero_point[0];
    int lost = k < 8 ? 8 - k : 0;
    f->half = ((int64_t)1 << k) >> 9;
    f->shift = k - 8 + lost;
    f->step = (int64_t)1 << lost;
    f->zero = lost > 0 ? zero : 0;
    f->offset = -((128 - offset_of(f, zero - f->zero, k)) >> 8);
    return make_qvalues(job, f, add_bytes, err);
}

/* uint16 where an operand is broadcast is another operation; but not where the first one is a constant vector
 * along the last axis. */
static bool is_spread_sum(const struct nd_htp_job *job)
{
    const struct nd_array *first = job->call->inputs[0].values, *second = job->call->inputs[1].values;
    int rank = first->shape.rank;
    bool is_vector = job->layer->origins[0] == ND_EXACT_FROM_CONSTANT && rank > 0 && first->n > 1 &&
                     (size_t)first->shape.dims[rank - 1] == first->n;
    return job->layer->dtype == ND_DTYPE_U16 && is_spread(second, first) && !is_vector;
}

/* What brings input i to the scale of the output. How it is rounded decides where a multiplier lies half
 * between two numbers. */
static double ratio_of(const struct nd_htp_job *job, size_t i)
{
    float scale = job->call->inputs[i].quant->scale[0], out = job->call->out_quant->scale[0];
    return (double)(is_spread_sum(job) ? scale / out : nd_htp_quotient(scale, out));
}

/* Behind the leading one of what decides how many bits the multipliers of uint8 have, and the fewest that were
 * looked at, behind the point: measured, see the docs. */
enum { RATIO_BITS = 10, LEAST_BITS = 3 };

/* And Sub: an Add with the second multiplier below 0. uint16 with its first operand broadcast: not looked at.
 */
static enum nd_status add_two(const struct nd_htp_job *job, struct nd_error *err)
{
    bool is_word = job->layer->dtype == ND_DTYPE_U16, subtracts = job->call->node->op_type[0] == 'S';
    if (job->call->n_inputs != 2 || job->call->opset < 7 || !nd_htp_all_are(job, 2, job->layer->dtype))
        return ND_OK;
    const struct nd_array *first = job->call->inputs[0].values, *second = job->call->inputs[1].values;
    if (is_word && subtracts && first->n < second->n)
        return ND_OK;
    const struct nd_quant *a = nd_htp_plain(job, 0), *b = nd_htp_plain(job, 1);
    double r1 = ratio_of(job, 0), r2 = ratio_of(job, 1);
    /* Quantisers give many sums the scale a + b, so that their sum is next to 1. */
    double both = nd_multiplier_round(subtracts ? fmax(r1, r2) : r1 + r2, RATIO_BITS, ND_ROUND_HALF_UP);
    int bits = is_word ? nd_htp_floor_log2(fmax(r1, r2)) + 1 : nd_htp_floor_log2(both) + 2;
    int least = is_word ? -1 : 0, k = 15 - (bits > least ? bits : least);
    if (is_word) /* multipliers are signed numbers of 16 bits: what is rounded up to 2^15 has one bit less */
        k -= llrint(ldexp(fmax(r1, r2), k)) > INT16_MAX;
    if (k < (is_word ? 9 : LEAST_BITS)) /* scales that are no sane addition */
        return ND_OK;
    struct fixed_point f = {
        .m1 = llrint(ldexp(r1, k)), .m2 = llrint(ldexp(r2, k)), .z1 = a->zero_point[0], .z2 = b->zero_point[0]};
    if (subtracts)
        f.m2 = -f.m2;
    return is_word ? add_as_words(job, &f, k, err) : add_as_bytes(job, &f, k, err);
}

/* With a number a table, unless it is made in parts and what reads it is no table, either
 * (docs/science/htp-arithmetic.md#two-tables). */
static enum nd_status add(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_htp_replaced other;
    if (job->layer->dtype == ND_DTYPE_U16 || job->call->n_inputs != 2)
        return add_two(job, err);
    if (!has_number(job))
        return add_two(nd_htp_read_before_table(job, &other), err);
    ND_TRY(nd_htp_table(job, err));
    size_t from = nd_htp_is_number(job, 0) ? 1 : 0;
    if (!*job->is_covered || job->memory == NULL || !nd_htp_is_in_parts(job, from))
        return ND_OK;
    ND_CLEANUP(nd_array_deinit) struct nd_array sums = {0};
    bool is_covered = false;
    struct nd_htp_job alone = *job;
    alone.qvalues = &sums;
    alone.is_covered = &is_covered;
    ND_TRY(add_two(&alone, err));
    if (is_covered)
        nd_htp_remember_before(job, ND_HTP_BEFORE_TABLE, &sums);
    return ND_OK;
}

static enum nd_status make_sum(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_htp_signed made;
    enum nd_status status = add(job, err);
    if (status != ND_OK || !*job->is_covered || !nd_htp_signed_init(&made, job))
        return status;
    status = add(&made.job, err);
    nd_htp_signed_remember(&made, job);
    return status;
}

/* Both operands in the encoding of the output, then the less or the greater. */
static int64_t min_of(const void *parameters, int64_t a, int64_t b)
{
    (void)parameters;
    return a < b ? a : b;
}

static int64_t greatest_of(const void *parameters, int64_t a, int64_t b)
{
    (void)parameters;
    return a > b ? a : b;
}

/* Input i, of uint16, in the encoding of the output, where the product is cut: quantised values of the output,
 * clipped. False: a quotient of scales that was not looked at. */
static bool rescale_words(const struct nd_htp_job *job, size_t i, struct nd_array *qvalues)
{
    enum { SHIFT = ND_HTP_LINE_BITS - ND_HTP_LINE_QVALUE_BITS };
    const struct nd_quant *x = job->call->inputs[i].quant, *y = job->call->out_quant;
    struct nd_htp_line16 line;
    if (!nd_htp_line16_init(&line, x, y, false))
        return false;
    int64_t moved = (x->zero_point[0] * line.m + ((int64_t)1 << (SHIFT - 1))) >> SHIFT;
    line.offset = y->zero_point[0] * (1 << ND_HTP_LINE_QVALUE_BITS) - moved;
    for (size_t k = 0; k < qvalues->n; k++) {
        int64_t sum = (((int64_t)qvalues->x[k] * line.m) >> SHIFT) + line.offset;
        qvalues->x[k] =
            fmin(fmax((double)((sum + (1 << (ND_HTP_LINE_QVALUE_BITS - 1))) >> ND_HTP_LINE_QVALUE_BITS), 0),
                 UINT16_MAX);
    }
    return true;
}

/* Quantised values of input i in the encoding of the output. False: it is not known how they get there. */
static bool rescale_operand(const struct nd_htp_job *job, size_t i, struct nd_array *qvalues)
{
    const struct nd_quant *quant = nd_htp_plain(job, i);
    struct nd_htp_rescaling r;
    if (job->layer->dtype == ND_DTYPE_U16)
        return rescale_words(job, i, qvalues);
    if (!nd_htp_rescaling_init(&r, ND_HTP_FIXED, (double)quant->scale[0],
                               (double)job->call->out_quant->scale[0]))
        return false;
    nd_htp_rescale_all(job, &r, (double)quant->zero_point[0], 1, qvalues);
    return true;
}

static enum nd_status choose(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array operands[2] = {0};
    struct nd_linear_input inputs[2];
    struct nd_linear_call call = *job->call;
    struct nd_htp_job other = *job;
    enum nd_status status = ND_OK;
    bool is_wide = job->layer->dtype == ND_DTYPE_U16;
    if (call.n_inputs != 2 || !nd_htp_all_are(job, 2, job->layer->dtype) ||
        (is_wide && !(nd_htp_are_words(job, 2) && nd_htp_is_unbounded(job))))
        return ND_OK;
    if (!is_wide && has_number(job))
        return nd_htp_table(job, err);
    bool is_known = true;
    for (size_t i = 0; i < 2 && is_known && status == ND_OK; i++) {
        status = nd_array_copy(call.inputs[i].values, &operands[i], err);
        is_known = status == ND_OK && rescale_operand(job, i, &operands[i]);
        inputs[i] = (struct nd_linear_input){.values = &operands[i], .quant = call.out_quant};
    }
    call.inputs = inputs;
    other.call = &call;
    if (is_known)
        status = make_qvalues(&other, NULL, call.node->op_type[1] == 'i' ? min_of : greatest_of, err);
    nd_array_deinit(&operands[0]);
    nd_array_deinit(&operands[1]);
    return status;
}

/* By a negative constant the simulator goes another way. */
static enum nd_status scale_by(const struct nd_htp_job *job, size_t constant, bool divides,
                               struct nd_error *err)
{
    const struct nd_linear_input *number = &job->call->inputs[constant], *other = &job->call->inputs[!constant];
    double factor =
        (number->values->x[0] - (double)number->quant->zero_point[0]) * (double)number->quant->scale[0];
    if (number->values->shape.rank > other->values->shape.rank)
        return ND_OK;
    bool is_table = nd_htp_joins_table(job, !constant);
    if (!is_table && !(factor > 0))
        return ND_OK;
    enum nd_htp_method method = nd_htp_is_rounded_in_layout(job, !constant) ? ND_HTP_LAYOUT : ND_HTP_FIXED;
    struct nd_htp_replaced with;
    const struct nd_htp_job *read = divides ? job : nd_htp_read_before_table(job, &with);
    ND_TRY(is_table ? nd_htp_table(job, err)
                    : nd_htp_multiply_by(read, !constant, method, divides ? 1 / factor : factor, err));
    return *job->is_covered ? nd_htp_remember_product(job, !constant, err) : ND_OK;
}

static int64_t multiply(const void *parameters, int64_t a, int64_t b)
{
    const struct fixed_point *f = parameters;
    int64_t product = (a - f->z1) * (b - f->z2) - f->p0;
    return ((((product * f->m1 + f->rounding) >> 15) + f->offset + f->half) >> f->shift) + f->zero;
}

/* uint16: all products are seen from the middle one, p0. */
enum {
    WORD_BITS = 34,       /* of the multiplier, after the point */
    WORD_QVALUE_BITS = 3, /* of the product, after the point */
};
/* Quotients of scales that the formula was held against (QAIRT 2.51, gen1 and gen3); usual ones are about
 * 2^-16. */
static const double min_of_words = 0x1p-20, max_of_words = 0x1p-12;

/* The quotients of scales of which it was drawn how uint16 numbers are made in blocks (QAIRT 2.51.0, gen1 and
 * gen3): with 1/300 and 1/2500 3 and 119 of 1024 quantised values differed. */
static const double min_by_number = 0x1p-6, max_by_number = 16;

static int64_t multiply_words(const void *parameters, int64_t a, int64_t b)
{
    const struct fixed_point *f = parameters;
    int64_t product = ((a - f->z1) * (b - f->z2) - f->p0) * f->m1;
    return (((product >> f->shift) + f->offset + (1 << (WORD_QVALUE_BITS - 1))) >> WORD_QVALUE_BITS) + f->zero;
}

/* Whether input i is a number of which it is not known what becomes of it in blocks, as nd_htp_words_by_number
 * has it: a negative one, or one that changes the scale by too much. */
static bool is_unknown_number(const struct nd_htp_job *job, size_t i)
{
    const struct nd_linear_input *number = &job->call->inputs[i];
    if (!nd_htp_is_number(job, i))
        return false;
    double value =
        (number->values->x[0] - (double)number->quant->zero_point[0]) * (double)number->quant->scale[0];
    double ratio =
        value * (double)job->call->inputs[!i].quant->scale[0] / (double)job->call->out_quant->scale[0];
    return !(ratio >= min_by_number && ratio < max_by_number);
}

/* Where it is x Sigmoid(x), the device makes one operation of it: nd_layer_run_gated; of x and a positive
 * number: nd_layer_run_laid_out. */
static enum nd_status make_product16(const struct nd_htp_job *job, struct nd_error *err)
{
    if (job->call->n_inputs != 2 || job->call->opset < 7 || !nd_htp_all_are(job, 2, ND_DTYPE_U16) ||
        is_unknown_number(job, 0) || is_unknown_number(job, 1))
        return ND_OK;
    const struct nd_quant *a = nd_htp_plain(job, 0), *b = nd_htp_plain(job, 1), *y = job->call->out_quant;
    float m = a->scale[0] * b->scale[0] / y->scale[0];
    if (!((double)m >= min_of_words && (double)m <= max_of_words))
        return ND_OK;
    struct fixed_point f = {.z1 = a->zero_point[0], .z2 = b->zero_point[0], .zero = y->zero_point[0]};
    f.shift = WORD_BITS - WORD_QVALUE_BITS;
    f.m1 = llrint(ldexp((double)m, WORD_BITS));
    f.p0 = ((UINT16_MAX - 2 * f.z1) * (UINT16_MAX - 2 * f.z2)) >> 1;
    f.offset = (f.p0 * f.m1 + ((int64_t)1 << (f.shift - 1))) >> f.shift;
    return make_qvalues(job, &f, multiply_words, err);
}

static enum nd_status make_product(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { MIN_SHIFT = 15, GREATEST_SHIFT = 22, GREATEST_OFFSET = 32767 };
    if (job->call->n_inputs != 2 || job->call->opset < 7 || !nd_htp_all_are(job, 2, ND_DTYPE_U8))
        return ND_OK;
    if (has_number(job))
        return scale_by(job, nd_htp_is_number(job, 1), false, err);
    const struct nd_quant *a = nd_htp_plain(job, 0), *b = nd_htp_plain(job, 1), *y = job->call->out_quant;
    double m = (double)a->scale[0] * (double)b->scale[0] / (double)y->scale[0];
    int64_t shift = 14 - nd_htp_floor_log2(m), z1 = a->zero_point[0], z2 = b->zero_point[0],
            zero = y->zero_point[0];
    struct fixed_point f = {
        .z1 = z1, .z2 = z2, .zero = zero, .rounding = job->arithmetic->rounds_products ? 1 << 14 : 0};
    f.p0 = 256 * (int64_t)floor(2 * (127.5 - (double)z1) * (127.5 - (double)z2) / 256 + 0.5);
    for (shift = shift > GREATEST_SHIFT ? GREATEST_SHIFT : shift;; shift--) {
        if (shift <= MIN_SHIFT) /* no room left: products that are no sane multiplication */
            return ND_OK;
        f.m1 = llrint(ldexp(m, (int)shift));
        f.offset = (f.p0 * f.m1 + (1 << 14)) >> 15;
        f.half = (int64_t)1 << (shift - 16);
        if (f.offset + zero * ((int64_t)1 << (shift - 15)) + f.half <= GREATEST_OFFSET)
            break;
    }
    f.shift = (int)shift - 15;
    return make_qvalues(job, &f, multiply, err);
}

/* ---- Div and Reciprocal ---- */

enum {
    MIN_NORMAL = 1 << (ND_HTP_FACTOR_BITS - 1), /* a magnitude is brought to 2^14 .. 2^15 - 1 */
    INVERSE_BITS = 28,                          /* a normal divisor times its inverse is 2^28 */
};

struct quotient {
    struct nd_htp_factor factor; /* of the scales */
    int64_t zero_a, zero_b, zero_y;
    bool is_short; /* uint8 */
    struct nd_htp_bounds bounds;
};

/* value 2^-*exponent, cut to 2^14 .. 2^15 - 1. */
static int64_t normal_of(int64_t value, int *exponent)
{
    frexp((double)value, exponent);
    *exponent -= ND_HTP_FACTOR_BITS;
    return nd_htp_shift_cut(value, *exponent);
}

/* The divisor has 15 bits, the place 16 after the leading one. */
static int64_t inverse_of(int64_t normal)
{
    return nd_htp_inverse((normal - MIN_NORMAL) << (ND_HTP_PLACE_BITS - ND_HTP_FACTOR_BITS + 1));
}

/* By zero: the greatest quantised value, or the least below zero. */
static int64_t divide(const void *parameters, int64_t a, int64_t b)
{
    const struct quotient *q = parameters;
    a -= q->zero_a;
    b -= q->zero_b;
    if (b == 0)
        return (int64_t)(a < 0 ? q->bounds.low : q->bounds.high);
    if (a == 0)
        return q->zero_y;
    int exponent_a, exponent_b;
    int64_t sign = (a < 0) == (b < 0) ? 1 : -1;
    int64_t dividend = normal_of(llabs(a), &exponent_a);
    if (q->is_short && sign < 0 && dividend == MIN_NORMAL) { /* -2^15 is a signed number of 16 bits, too */
        dividend *= 2;
        exponent_a--;
    }
    dividend *= q->factor.m;
    int64_t inverse = inverse_of(normal_of(llabs(b), &exponent_b));
    int right = INVERSE_BITS + exponent_b - exponent_a - q->factor.exponent;
    if (!q->is_short)
        return q->zero_y + sign * nd_htp_shift(nd_htp_shift(dividend, ND_HTP_FACTOR_BITS) * inverse, right);
    /* Of bytes the signed numbers are rounded, and once more on the way. */
    int64_t product = nd_htp_shift(sign * dividend, ND_HTP_FACTOR_BITS) * inverse;
    return q->zero_y + nd_htp_shift(nd_htp_shift(product, ND_HTP_FACTOR_BITS), right - ND_HTP_FACTOR_BITS);
}

static enum nd_status make_quotient(const struct nd_htp_job *job, struct nd_error *err)
{
    bool is_short = nd_htp_all_are(job, 2, ND_DTYPE_U8);
    if (job->call->n_inputs != 2 || job->call->opset < 7 || nd_htp_is_number(job, 0) ||
        !(is_short || nd_htp_are_words(job, 2)))
        return ND_OK;
    /* Of bytes a multiplication by its inverse. Of words the quantised values may stay what they are, where
     * only the scale changes (a hard-swish that divides by 6). */
    if (nd_htp_is_number(job, 1))
        return is_short ? scale_by(job, 1, true, err) : ND_OK;
    const struct nd_quant *a = job->call->inputs[0].quant, *b = job->call->inputs[1].quant;
    const struct nd_quant *y = job->call->out_quant;
    struct quotient q = {.zero_a = a->zero_point[0],
                         .zero_b = b->zero_point[0],
                         .zero_y = y->zero_point[0],
                         .is_short = is_short};
    float ratio = nd_htp_quotient(nd_htp_quotient(a->scale[0], b->scale[0]), y->scale[0]);
    if (!nd_htp_is_unbounded(job) || !nd_htp_factor_init(&q.factor, ratio) ||
        (is_short && !(nd_htp_are_within(job->call->inputs[0].values, UINT8_MAX) &&
                       nd_htp_are_within(job->call->inputs[1].values, UINT8_MAX))))
        return ND_OK;
    q.bounds = nd_htp_bounds_of(job);
    enum nd_status status = for_pairs(job, divide, &q, &q.bounds, job->qvalues, err);
    *job->is_covered = status == ND_OK;
    return status;
}

double nd_reciprocal_dividend(const struct nd_quant *x, enum nd_dtype dtype, bool *is_clipped)
{
    double low, high, steps = rint(1 / (double)x->scale[0]), zero = (double)x->zero_point[0];
    nd_qvalue_range(dtype, &low, &high);
    *is_clipped = steps + zero > high + 1;
    return fmin(steps + zero, high) - zero;
}

/* One over x: of the quantised value that is one in the scale of x, or of uint8 the greatest, which is divided,
 * of uint8 in floats (nd_reciprocal_dividend). */
static enum nd_status make_reciprocal(const struct nd_htp_job *job, struct nd_error *err)
{
    bool is_short = nd_htp_all_are(job, 1, ND_DTYPE_U8), is_clipped;
    if (job->call->n_inputs != 1 || !(is_short || nd_htp_has_words(job)) || !nd_htp_is_unbounded(job))
        return ND_OK;
    const struct nd_array *values = job->call->inputs[0].values;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    float one = (float)nd_reciprocal_dividend(x, job->layer->dtype, &is_clipped);
    float inverse = 1 / y->scale[0], zero = (float)y->zero_point[0];
    struct quotient q = {
        .zero_b = x->zero_point[0], .zero_y = y->zero_point[0], .bounds = nd_htp_bounds_of(job)};
    const struct nd_htp_bounds bounds = q.bounds;
    if ((is_clipped && !is_short) || !nd_htp_factor_init(&q.factor, inverse))
        return ND_OK;
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &values->shape, err);
    for (size_t i = 0; status == ND_OK && i < values->n; i++) {
        float below = (float)(values->x[i] - (double)x->zero_point[0]), quotient = one / below;
        double qvalue = below == 0 ? bounds.high
                        : is_short ? (double)rintf(quotient * inverse + zero)
                                   : (double)divide(&q, (int64_t)one, (int64_t)values->x[i]);
        job->qvalues->x[i] = fmin(fmax(qvalue, bounds.low), bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

/* ---- Neg ---- */

static enum nd_status negate(const struct nd_htp_job *job, struct nd_error *err)
{
    if (job->call->n_inputs != 1 || !nd_htp_all_are(job, 1, ND_DTYPE_U8))
        return ND_OK;
    return nd_htp_multiply_by(job, 0, ND_HTP_FIXED, -1, err);
}

/* ---- uint16 Mul, Div and Sub by one number, in blocks ---- */

/* uint16 in blocks: input i by a quotient, a float32, which decides where the multiplier lies half between two
 * numbers, with that zero point in the place of the output's. */
static enum nd_status rescale_by_number(const struct nd_htp_job *job, size_t i, float quotient, int64_t zero,
                                        struct nd_error *err)
{
    struct nd_quant quant = *job->call->out_quant;
    struct nd_linear_call call = *job->call;
    struct nd_htp_job moved = *job;
    struct nd_htp_rescaling r;
    if (!((double)quotient >= min_by_number && (double)quotient < max_by_number) ||
        !nd_htp_rescaling_init(&r, ND_HTP_LAYOUT, (double)quotient, 1))
        return ND_OK;
    ND_TRY(nd_array_copy(call.inputs[i].values, job->qvalues, err));
    quant.zero_point = &zero;
    call.out_quant = &quant;
    moved.call = &call;
    nd_htp_rescale_all(&moved, &r, (double)call.inputs[i].quant->zero_point[0], 1, job->qvalues);
    *job->is_covered = true;
    return ND_OK;
}

static bool is_by_number(const struct nd_htp_job *job, size_t *constant)
{
    const struct nd_linear_call *call = job->call;
    if (call->n_inputs != 2 || call->node == NULL || !nd_htp_are_words(job, 2) || !nd_htp_is_unbounded(job) ||
        nd_htp_is_number(job, 0) == nd_htp_is_number(job, 1))
        return false;
    *constant = nd_htp_is_number(job, 1);
    return call->inputs[*constant].values->shape.rank <= call->inputs[!*constant].values->shape.rank &&
           (*constant == 1 || strcmp(call->node->op_type, "Mul") == 0);
}

enum nd_status nd_htp_words_by_number(const struct nd_htp_job *job, struct nd_error *err)
{
    size_t constant;
    if (!is_by_number(job, &constant))
        return ND_OK;
    const char *op_type = job->call->node->op_type;
    const struct nd_linear_input *number = &job->call->inputs[constant];
    const struct nd_quant *x = nd_htp_plain(job, !constant), *y = nd_htp_plain_output(job);
    float steps = (float)(number->values->x[0] - (double)number->quant->zero_point[0]);
    float value = steps * number->quant->scale[0];
    /* x - number: the number is rounded to whole steps of the output, which are put into its zero point. One
     * above 65535 wraps, a defect of the SDK: not covered, so that its values are not taken for right ones. */
    double zero = rint((double)y->zero_point[0] - (double)value / (double)y->scale[0]);
    if (strcmp(op_type, "Sub") == 0)
        return zero <= UINT16_MAX ? rescale_by_number(job, 0, x->scale[0] / y->scale[0], (int64_t)zero, err)
                                  : ND_OK;
    bool multiplies = strcmp(op_type, "Mul") == 0;
    if (!(value > 0) || (!multiplies && strcmp(op_type, "Div") != 0))
        return ND_OK;
    float scale = multiplies ? x->scale[0] * value : x->scale[0] / value;
    return rescale_by_number(job, !constant, scale / y->scale[0], y->zero_point[0], err);
}

/* uint16, by 2: the product of the input with itself. */
static enum nd_status make_power16(const struct nd_htp_job *job, struct nd_error *err)
{
    if (job->call->n_inputs != 2 || !nd_htp_are_words(job, 2) || !nd_htp_is_number(job, 1))
        return ND_OK;
    const struct nd_linear_input *x = &job->call->inputs[0], *exponent = &job->call->inputs[1],
                                 both[2] = {*x, *x};
    float n =
        (float)(exponent->values->x[0] - (double)exponent->quant->zero_point[0]) * exponent->quant->scale[0];
    if (n != 2)
        return nd_htp_power16(job, n, err);
    struct nd_linear_call call = *job->call;
    struct nd_htp_job product = *job;
    call.inputs = both;
    call.shared = NULL;
    product.call = &call;
    return make_product16(&product, err);
}

const struct nd_htp_operator nd_htp_elements[] = {
    {"Mul", make_product16, true},
    {"Pow", make_power16, true},
    {"Sub", make_sum, true},
    {"Div", make_quotient, true},
    {"Add", make_sum, false},
    {"Sub", make_sum, false},
    {"Mul", make_product, false},
    {"Div", make_quotient, false},
    {"Reciprocal", make_reciprocal, false},
    {"Max", choose, false},
    {"Min", choose, false},
    {"Neg", negate, false},
    {.op_types = NULL},
};
