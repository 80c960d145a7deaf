/* Units that work element by element: real inputs are exact doubles, and so are sums and products of two as
 * wide numbers. */
#include "arithmetic/exact/linear/linear_families.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"

static bool is_op(const struct nd_linear_call *call, const char *op_type)
{
    return strcmp(call->node->op_type, op_type) == 0;
}

/* The shape that all inputs are repeated to. */
static enum nd_status common_shape(const struct nd_linear_call *call, struct nd_shape *shape,
                                   struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    enum nd_status status = ND_OK;
    if (call->opset < 7)
        return nd_linear_unsupported(call, err, "broadcasting before opset 7");
    *shape = call->inputs[0].values->shape;
    for (size_t i = 1; i < call->n_inputs && status == ND_OK; i++)
        status = !nd_linear_has(call, i)
                     ? nd_linear_unsupported(call, err, "an operand that is missing")
                     : nd_op_broadcast(&op_call, &call->inputs[i].values->shape, shape, err);
    return status;
}

static void add_operand(const struct nd_array *operand, double sign, struct nd_linear_result *result)
{
    struct nd_walk walk = {0};
    for (int axis = 0; axis < result->shape.rank; axis++)
        nd_walk_axis(&walk, result->shape.dims[axis], nd_broadcast_stride(operand, &result->shape, axis), 0, 0);
    struct nd_ratio *v = result->v;
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++, v++)
            v->numerator =
                nd_wide_add(v->numerator, nd_wide_from(sign * operand->x[walk.at[0] + i * walk.step[0]]));
}

/* Repeated to the shape; what needs no repetition is taken over. */
static enum nd_status expand(struct nd_array *operand, const struct nd_shape *shape, struct nd_error *err)
{
    struct nd_array whole = {0};
    if (nd_shape_equal(&operand->shape, shape))
        return ND_OK;
    enum nd_status status = nd_array_make(&whole, operand->dtype, shape, err);
    if (status != ND_OK)
        return status;
    struct nd_walk walk = {0};
    for (int axis = 0; axis < shape->rank; axis++)
        nd_walk_axis(&walk, shape->dims[axis], nd_broadcast_stride(operand, shape, axis), 0, 0);
    double *to = whole.x;
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++)
            *to++ = operand->x[walk.at[0] + i * walk.step[0]];
    nd_array_deinit(operand);
    *operand = whole;
    return ND_OK;
}

static double largest_of(const struct nd_array *array)
{
    double low = 0, high = 0;
    if (array->n > 0)
        nd_gemm_kernels()->range(array->x, array->n, &low, &high);
    return fmax(fabs(low), fabs(high));
}

/* A tensor and a number: x + number, x * number or x / number. */
static enum nd_status make_line(struct nd_linear_result *result, enum nd_quick_kind kind, struct nd_array *x,
                                double number, struct nd_error *err)
{
    enum nd_status status = nd_linear_make_line(result, x, kind == ND_QUICK_PRODUCT ? number : 1, err);
    if (status != ND_OK)
        return status;
    struct nd_quick_line *line = &result->quick->lines[0];
    if (kind == ND_QUICK_SUM)
        line->bias = nd_wide_from(number);
    if (kind == ND_QUICK_QUOTIENT && number < 0)
        line->factor = nd_wide_from(-1);
    if (kind == ND_QUICK_QUOTIENT)
        result->quick->divisor = fabs(number);
    return ND_OK;
}

/* Whether the operand is a number that a line can have. */
static bool is_number(const struct nd_array *operand, const struct nd_array *other,
                      const struct nd_shape *shape)
{
    return operand->n == 1 && isfinite(operand->x[0]) && nd_shape_equal(&other->shape, shape);
}

/* Two operands, left quick. Arrays go over to the result, but for a number, which becomes a part of a line. */
static enum nd_status make_pair(struct nd_linear_result *result, enum nd_quick_kind kind, struct nd_array *a,
                                struct nd_array *b, const struct nd_shape *shape, struct nd_error *err)
{
    if (is_number(b, a, shape) && (kind != ND_QUICK_QUOTIENT || b->x[0] != 0))
        return make_line(result, kind, a, b->x[0], err);
    if (is_number(a, b, shape) && kind != ND_QUICK_QUOTIENT)
        return make_line(result, kind, b, a->x[0], err);
    enum nd_status status = expand(a, shape, err);
    if (status == ND_OK)
        status = expand(b, shape, err);
    if (status == ND_OK)
        status = nd_linear_make_quick(result, shape, kind, err);
    if (status != ND_OK)
        return status;
    if (kind == ND_QUICK_SUM)
        result->quick->largest = largest_of(a) + largest_of(b);
    result->quick->x = result->quick->own_x = a->x;
    result->quick->y = result->quick->own_y = b->x;
    *a = *b = (struct nd_array){0};
    return ND_OK;
}

/* Makes a difference of a sum. */
static void take_away(struct nd_quick *quick, bool is_from_number)
{
    if (quick->kind == ND_QUICK_SUM)
        quick->sign = -1;
    else if (is_from_number)
        quick->lines[0].factor = nd_wide_from(-1);
    else
        quick->lines[0].bias = nd_wide_negate(quick->lines[0].bias);
}

static enum nd_status sum_of_two(const struct nd_linear_call *call, const struct nd_shape *shape,
                                 struct nd_linear_result *result, struct nd_error *err)
{
    struct nd_array a = {0}, b = {0};
    enum nd_status status = nd_linear_reals(call, 0, &a, err);
    if (status == ND_OK)
        status = nd_linear_reals(call, 1, &b, err);
    if (status == ND_OK)
        status = make_pair(result, ND_QUICK_SUM, &a, &b, shape, err);
    if (status == ND_OK && is_op(call, "Sub"))
        take_away(result->quick, a.x != NULL);
    nd_array_deinit(&a);
    nd_array_deinit(&b);
    return status;
}

enum nd_status nd_linear_sum(const struct nd_linear_call *call, struct nd_linear_result *result,
                             struct nd_error *err)
{
    struct nd_shape shape;
    struct nd_array operand = {0};
    enum nd_status status = common_shape(call, &shape, err);
    if (status == ND_OK && call->n_inputs == 2)
        return sum_of_two(call, &shape, result, err);
    if (status == ND_OK)
        status = nd_linear_make(result, &shape, err);
    for (size_t i = 0; i < call->n_inputs && status == ND_OK; i++) {
        status = nd_linear_reals(call, i, &operand, err);
        if (status == ND_OK)
            add_operand(&operand, i > 0 && is_op(call, "Sub") ? -1 : 1, result);
    }
    nd_array_deinit(&operand);
    return status;
}

/* A product with the slope left of 0, and with 1 elsewhere. Arrays go over to the result. */
static enum nd_status follow_slopes(struct nd_linear_result *result, struct nd_array *x,
                                    struct nd_array *slopes, const struct nd_shape *shape, struct nd_error *err)
{
    enum nd_status status = expand(x, shape, err);
    if (status == ND_OK)
        status = expand(slopes, shape, err);
    if (status == ND_OK)
        status = nd_linear_make_quick(result, shape, ND_QUICK_PRODUCT, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < x->n; i++)
        slopes->x[i] = x->x[i] < 0 ? slopes->x[i] : 1;
    result->quick->x = result->quick->own_x = x->x;
    result->quick->y = result->quick->own_y = slopes->x;
    *x = *slopes = (struct nd_array){0};
    return ND_OK;
}

enum nd_status nd_linear_pair(const struct nd_linear_call *call, struct nd_linear_result *result,
                              struct nd_error *err)
{
    struct nd_shape shape;
    struct nd_array a = {0}, b = {0};
    if (call->n_inputs != 2)
        return nd_linear_unsupported(call, err, "another number of inputs than two");
    enum nd_status status = common_shape(call, &shape, err);
    if (status == ND_OK)
        status = nd_linear_reals(call, 0, &a, err);
    if (status == ND_OK)
        status = nd_linear_reals(call, 1, &b, err);
    if (status == ND_OK && is_op(call, "PRelu")) {
        status = follow_slopes(result, &a, &b, &shape, err);
    } else if (status == ND_OK) {
        status =
            make_pair(result, is_op(call, "Mul") ? ND_QUICK_PRODUCT : ND_QUICK_QUOTIENT, &a, &b, &shape, err);
    }
    nd_array_deinit(&a);
    nd_array_deinit(&b);
    return status;
}

/* x (x + 3) / 6 between -3 and 3: the 1/6 of the specification as the number that it is. */
static struct nd_ratio hard_swish_of(double x)
{
    if (fabs(x) >= 3)
        return nd_ratio_of(x > 0 ? x : 0, 1);
    return (struct nd_ratio){nd_wide_add(nd_wide_product(x, x), nd_wide_product(3, x)), nd_wide_from(6)};
}

enum { N_CODES = 256, LEAST_FOR_TABLE = 512 /* chosen: twice what the table costs */ };

/* Codes that a table has: those that were moved, to see how far an error reaches, may lie outside. */
static bool has_entries(const struct nd_array *codes)
{
    for (size_t i = 0; i < codes->n; i++)
        if (!(codes->x[i] >= 0 && codes->x[i] < N_CODES && codes->x[i] == (double)(int)codes->x[i]))
            return false;
    return codes->dtype == ND_DTYPE_U8 && codes->n >= LEAST_FOR_TABLE;
}

/* The family's values of all codes, and which of them each element has. */
static enum nd_status look_up(const struct nd_linear_call *call, struct nd_linear_result *result,
                              struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 1, .dims = {N_CODES}};
    struct nd_array all = {0}, codes = {0};
    struct nd_linear_result table = {0};
    enum nd_status status = nd_array_make(&all, ND_DTYPE_U8, &shape, err);
    for (size_t i = 0; i < all.n; i++)
        all.x[i] = (double)i;
    const struct nd_linear_input input = {.values = &all, .quant = call->inputs[0].quant};
    struct nd_linear_call of_all = *call;
    of_all.inputs = &input;
    of_all.n_inputs = 1;
    of_all.shared = NULL;
    if (status == ND_OK)
        status = nd_linear_unary(&of_all, &table, err);
    if (status == ND_OK)
        status = nd_array_copy(call->inputs[0].values, &codes, err);
    if (status == ND_OK)
        status = nd_linear_make_quick(result, &codes.shape, ND_QUICK_TABLE, err);
    if (status == ND_OK) {
        result->quick->x = result->quick->own_x = codes.x;
        codes = (struct nd_array){0};
        result->quick->table = table.v;
        table.v = NULL;
        result->quick->n_table = N_CODES;
        result->quick->near_table = nd_calloc(N_CODES, sizeof *result->quick->near_table);
        status = result->quick->near_table != NULL ? ND_OK : nd_fail_memory(err);
    }
    nd_array_deinit(&all);
    nd_array_deinit(&codes);
    nd_linear_deinit(&table);
    return status;
}

/* alpha x left of 0. */
static enum nd_status leaky_relu(struct nd_linear_result *result, struct nd_array *x, double alpha,
                                 struct nd_error *err)
{
    const struct nd_shape shape = x->shape;
    struct nd_array slopes = {0};
    enum nd_status status = nd_array_make_room(&slopes, ND_DTYPE_F32, &shape, err);
    for (size_t i = 0; i < slopes.n && status == ND_OK; i++)
        slopes.x[i] = alpha;
    if (status == ND_OK)
        status = follow_slopes(result, x, &slopes, &shape, err);
    nd_array_deinit(&slopes);
    return status;
}

/* alpha x + beta between 0 and 1. */
static enum nd_status hard_sigmoid(struct nd_linear_result *result, struct nd_array *x, double alpha,
                                   double beta, struct nd_error *err)
{
    enum nd_status status = nd_linear_make_line(result, x, alpha, err);
    if (status != ND_OK)
        return status;
    result->quick->lines[0].bias = nd_wide_from(beta);
    result->quick->low = 0;
    result->quick->high = 1;
    return ND_OK;
}

static enum nd_status hard_swish(struct nd_linear_result *result, const struct nd_array *x,
                                 struct nd_error *err)
{
    enum nd_status status = nd_linear_make(result, &x->shape, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++)
        result->v[i] = hard_swish_of(x->x[i]);
    return status;
}

enum nd_status nd_linear_unary(const struct nd_linear_call *call, struct nd_linear_result *result,
                               struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    bool is_sigmoid = is_op(call, "HardSigmoid"), is_swish = is_op(call, "HardSwish");
    double alpha = nd_op_f(&op_call, "alpha", (double)(is_sigmoid ? 0.2f : 0.01f));
    struct nd_array x = {0};
    const struct nd_linear_input *input = &call->inputs[0];
    if (is_swish && call->n_inputs == 1 && input->quant != NULL && input->quant->n == 1 &&
        has_entries(input->values))
        return look_up(call, result, err);
    enum nd_status status = nd_linear_reals(call, 0, &x, err);
    if (status == ND_OK && is_sigmoid)
        status = hard_sigmoid(result, &x, alpha, nd_op_f(&op_call, "beta", 0.5), err);
    else if (status == ND_OK && is_swish)
        status = hard_swish(result, &x, err);
    else if (status == ND_OK)
        status = leaky_relu(result, &x, alpha, err);
    nd_array_deinit(&x);
    return status;
}
