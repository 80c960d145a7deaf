/* Add and uint8 Mul: 16-bit multipliers, a first shift that drops bits, an offset with them.
 * docs/science/htp-arithmetic.md#elements. */
#include <math.h>

#include "arith/htp_internal.h"
#include "base/memory.h"

/* y = clip(((f(a, b) >> first) + offset + half) >> shift) in 64-bit integers, where shifts are floors. */
struct fixed_point {
    int64_t m1, m2, z1, z2, p0, rounding, offset, half, zero;
    int shift;
};
typedef int64_t element(const struct fixed_point *f, int64_t a, int64_t b);

static int floor_log2(double v)
{
    int exponent;
    frexp(v, &exponent);
    return exponent - 1;
}

static enum nd_status for_each(const struct nd_htp_job *job, const struct fixed_point *f, element *function,
                               const struct nd_htp_bounds *bounds, struct nd_array *out, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_array *a = job->call->inputs[0].values, *b = job->call->inputs[1].values;
    struct nd_shape shape = a->shape;
    enum nd_status status = nd_op_broadcast(&op_call, &b->shape, &shape, err);
    if (status == ND_OK)
        status = nd_array_make(out, job->unit->dtype, &shape, err);
    if (status != ND_OK)
        return status;
    struct nd_walk walk = {0};
    double *y = out->x;
    for (int axis = 0; axis < shape.rank; axis++)
        nd_walk_axis(&walk, shape.dims[axis], nd_broadcast_stride(a, &shape, axis),
                     nd_broadcast_stride(b, &shape, axis), 0);
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++, y++) {
            int64_t code = function(f, (int64_t)a->x[walk.at[0] + i * walk.step[0]],
                                    (int64_t)b->x[walk.at[1] + i * walk.step[1]]);
            *y = fmin(fmax((double)code, bounds->low), bounds->high);
        }
    return ND_OK;
}

static enum nd_status make_codes(const struct nd_htp_job *job, const struct fixed_point *f, element *function,
                                 struct nd_error *err)
{
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    enum nd_status status = for_each(job, f, function, &bounds, job->codes, err);
    *job->is_covered = status == ND_OK;
    return status;
}

static int64_t add_bytes(const struct fixed_point *f, int64_t a, int64_t b)
{
    return (((a * f->m1 + b * f->m2) >> 8) + f->offset + f->half) >> f->shift;
}

static int64_t add_words(const struct fixed_point *f, int64_t a, int64_t b)
{
    return (a * f->m1 + b * f->m2 + f->offset) >> f->shift;
}

/* The zero points and the half that rounding adds: what uint8 keeps in units of 2^8, and uint16 in units of 2.
 */
static int64_t offset_of(const struct fixed_point *f, int64_t zero, int k)
{
    return zero * ((int64_t)1 << k) - f->z1 * f->m1 - f->z2 * f->m2;
}

enum { ZERO_OF_BYTES = 128 };

/* The sum once more with the zero point that makes of it signed 8-bit weights. */
static enum nd_status remember_sum(const struct nd_htp_job *job, const struct fixed_point *f,
                                   struct nd_error *err)
{
    static const struct nd_htp_bounds bounds = {0, 255};
    struct nd_array bytes = {0};
    enum nd_status status = for_each(job, f, add_bytes, &bounds, &bytes, err);
    for (size_t i = 0; status == ND_OK && i < bytes.n; i++)
        bytes.x[i] -= ZERO_OF_BYTES;
    if (status == ND_OK)
        nd_htp_remember(job, &bytes);
    nd_array_deinit(&bytes);
    return status;
}

/* uint8 scalars go another way, which is not known. Of Add it gave the values of exact rounding wherever that
 * and the program differ: 588 values of 13 networks on gen3. uint16 Add by a scalar is as by any other operand.
 */
static bool has_scalar(const struct nd_htp_job *job)
{
    return job->call->inputs[0].values->n <= 1 || job->call->inputs[1].values->n <= 1;
}

enum nd_status nd_htp_add(const struct nd_htp_job *job, struct nd_error *err)
{
    bool is_word = job->unit->dtype == ND_DTYPE_U16;
    if (job->call->n_inputs != 2 || job->call->opset < 7 || !nd_htp_all_are(job, 2, job->unit->dtype) ||
        (!is_word && has_scalar(job)))
        return ND_OK;
    const struct nd_quant *a = nd_htp_plain(job, 0), *b = nd_htp_plain(job, 1), *y = job->call->out_quant;
    double r1 = (double)a->scale[0] / (double)y->scale[0], r2 = (double)b->scale[0] / (double)y->scale[0];
    int bits = is_word ? floor_log2(fmax(r1, r2)) + 1 : floor_log2(r1 + r2) + 2;
    int least = is_word ? -1 : 0, k = 15 - (bits > least ? bits : least);
    if (k < 9) /* scales that are no sane addition */
        return ND_OK;
    struct fixed_point f = {
        .m1 = llrint(ldexp(r1, k)), .m2 = llrint(ldexp(r2, k)), .z1 = a->zero_point[0], .z2 = b->zero_point[0]};
    if (is_word) {
        f.offset = 2 * ((offset_of(&f, y->zero_point[0], k) + ((int64_t)1 << (k - 1)) + 1) >> 1); /* even */
        f.shift = k;
        return make_codes(job, &f, add_words, err);
    }
    f.half = (int64_t)1 << (k - 9);
    f.shift = k - 8;
    f.offset = -((128 - offset_of(&f, ZERO_OF_BYTES, k)) >> 8);
    enum nd_status status = job->memory != NULL ? remember_sum(job, &f, err) : ND_OK;
    f.offset = -((128 - offset_of(&f, y->zero_point[0], k)) >> 8);
    return status == ND_OK ? make_codes(job, &f, add_bytes, err) : status;
}

static int64_t multiply(const struct fixed_point *f, int64_t a, int64_t b)
{
    int64_t product = (a - f->z1) * (b - f->z2) - f->p0;
    return ((((product * f->m1 + f->rounding) >> 15) + f->offset + f->half) >> f->shift) + f->zero;
}

enum nd_status nd_htp_mul(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { LEAST_SHIFT = 15, GREATEST_SHIFT = 22, GREATEST_OFFSET = 32767 };
    if (job->call->n_inputs != 2 || job->call->opset < 7 || !nd_htp_all_are(job, 2, ND_DTYPE_U8) ||
        has_scalar(job))
        return ND_OK;
    const struct nd_quant *a = nd_htp_plain(job, 0), *b = nd_htp_plain(job, 1), *y = job->call->out_quant;
    double m = (double)a->scale[0] * (double)b->scale[0] / (double)y->scale[0];
    int64_t shift = 14 - floor_log2(m), z1 = a->zero_point[0], z2 = b->zero_point[0], zero = y->zero_point[0];
    struct fixed_point f = {
        .z1 = z1, .z2 = z2, .zero = zero, .rounding = job->program->rounds_products ? 1 << 14 : 0};
    f.p0 = 256 * (int64_t)floor(2 * (127.5 - (double)z1) * (127.5 - (double)z2) / 256 + 0.5);
    for (shift = shift > GREATEST_SHIFT ? GREATEST_SHIFT : shift;; shift--) {
        if (shift <= LEAST_SHIFT) /* no room left: products that are no sane multiplication */
            return ND_OK;
        f.m1 = llrint(ldexp(m, (int)shift));
        f.offset = (f.p0 * f.m1 + (1 << 14)) >> 15;
        f.half = (int64_t)1 << (shift - 16);
        if (f.offset + zero * ((int64_t)1 << (shift - 15)) + f.half <= GREATEST_OFFSET)
            break;
    }
    f.shift = (int)shift - 15;
    return make_codes(job, &f, multiply, err);
}
