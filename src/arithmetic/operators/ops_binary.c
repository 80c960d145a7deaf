/* Two and more numbers in, one out, with broadcasting. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>
#include <string.h>

/* One row of a result: y[i] of a and b, which have steps of their own. */
typedef void row_function(double *y, const double *a, ptrdiff_t step_a, const double *b, ptrdiff_t step_b,
                          ptrdiff_t n);

#define ROW_LOOP(at_a, at_b, type, formula)                                                                    \
    for (ptrdiff_t i = 0; i < n; i++) {                                                                        \
        double u = (double)(type)a[at_a], v = (double)(type)b[at_b];                                           \
        y[i] = formula;                                                                                        \
    }
/* Rows without gaps, and with one number for all, are worked out several elements at a time. */
#define ROW_OF(name, type, formula)                                                                            \
    static void name(double *y, const double *a, ptrdiff_t step_a, const double *b, ptrdiff_t step_b,          \
                     ptrdiff_t n)                                                                              \
    {                                                                                                          \
        if (step_a == 1 && step_b == 1) {                                                                      \
            ROW_LOOP(i, i, type, formula)                                                                      \
        } else if (step_a == 1 && step_b == 0) {                                                               \
            ROW_LOOP(i, 0, type, formula)                                                                      \
        } else {                                                                                               \
            ROW_LOOP(i *step_a, i *step_b, type, formula)                                                      \
        }                                                                                                      \
    }
#define ROW(name, formula) ROW_OF(row_##name, double, formula)

/* A function that jumps takes the float32 that ONNX makes of its operands: 255 times the float32 next to 2/255
 * is 2, not the double below it, and a negative number has a power of that exponent. Others take the exact
 * operands. */
#define ROW_OF_FLOATS(name, formula) ROW(name, formula) ROW_OF(floats_##name, float, formula)

/* The remainder with the sign of the divisor. */
static double modulo(double u, double v)
{
    double rest = fmod(u, v);
    return rest != 0 && (rest < 0) != (v < 0) ? rest + v : rest;
}

ROW(add, u + v)
ROW(sub, u - v)
ROW(mul, u *v)
ROW(div, u / v)
ROW(div_integer, trunc(u / v))
ROW_OF_FLOATS(pow, pow(u, v))
ROW_OF_FLOATS(mod, modulo(u, v))
ROW_OF_FLOATS(fmod, fmod(u, v))
ROW(min, u < v || isnan(u) ? u : v)
ROW(max, u > v || isnan(u) ? u : v)
ROW_OF_FLOATS(equal, u == v ? 1 : 0)
ROW_OF_FLOATS(less, u < v ? 1 : 0)
ROW_OF_FLOATS(less_equal, u <= v ? 1 : 0)
ROW_OF_FLOATS(greater, u > v ? 1 : 0)
ROW_OF_FLOATS(greater_equal, u >= v ? 1 : 0)
ROW(and, u != 0 && v != 0 ? 1 : 0)
ROW(or, u != 0 || v != 0 ? 1 : 0)
ROW(xor, (u != 0) != (v != 0) ? 1 : 0)
ROW(prelu, u < 0 ? u * v : u)

static const struct binary {
    const char *op_type;
    row_function *row;
    row_function *floats; /* of float32, where the function jumps */
    bool is_test;         /* it gives a truth value */
} binaries[] = {
    {"Add", row_add, NULL, false},
    {"Sum", row_add, NULL, false},
    {"Mean", row_add, NULL, false},
    {"Sub", row_sub, NULL, false},
    {"Mul", row_mul, NULL, false},
    {"Div", row_div, NULL, false},
    {"Pow", row_pow, floats_pow, false},
    {"Mod", row_mod, floats_mod, false},
    {"Min", row_min, NULL, false},
    {"Max", row_max, NULL, false},
    {"PRelu", row_prelu, NULL, false},
    {"Equal", row_equal, floats_equal, true},
    {"Less", row_less, floats_less, true},
    {"LessOrEqual", row_less_equal, floats_less_equal, true},
    {"Greater", row_greater, floats_greater, true},
    {"GreaterOrEqual", row_greater_equal, floats_greater_equal, true},
    {"And", row_and, NULL, true},
    {"Or", row_or, NULL, true},
    {"Xor", row_xor, NULL, true},
};

static const struct binary *find_binary(const char *op_type)
{
    const struct binary *found = binaries;
    while (strcmp(found->op_type, op_type) != 0) /* every operator of the list in ops.c has a row */
        found++;
    return found;
}

static void apply(row_function *row, const struct nd_array *a, const struct nd_array *b, struct nd_array *y)
{
    struct nd_walk walk = {0};
    ptrdiff_t strides[ND_MAX_RANK];
    nd_strides(&y->shape, strides);
    for (int axis = 0; axis < y->shape.rank; axis++)
        nd_walk_axis(&walk, y->shape.dims[axis], strides[axis], nd_broadcast_stride(a, &y->shape, axis),
                     nd_broadcast_stride(b, &y->shape, axis));
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        row(y->x + walk.at[0], a->x + walk.at[1], walk.step[1], b->x + walk.at[2], walk.step[2], walk.n);
}

/* Integers are divided as C does: toward zero. (So does ONNX Runtime; the specification is silent on signs.) */
static row_function *choose_row(const struct nd_op_call *call, const struct binary *binary)
{
    if (nd_op_is(call, "Div") && nd_dtype_is_integer(call->inputs[0]->dtype))
        return row_div_integer;
    bool is_float32 = call->inputs[0]->dtype == ND_DTYPE_F32;
    if (nd_op_is(call, "Mod") && nd_op_i(call, "fmod", 0) != 0)
        return is_float32 ? floats_fmod : row_fmod;
    return is_float32 && binary->floats != NULL ? binary->floats : binary->row;
}

/* Before opset 7 the second operand was laid over given axes of the first. */
static bool has_old_broadcast(const struct nd_op_call *call)
{
    return nd_op_i(call, "broadcast", 0) != 0 || nd_onnx_attribute(call->node, "axis") != NULL;
}

enum nd_status nd_op_binary(const struct nd_op_call *call, struct nd_error *err)
{
    const struct binary *binary = find_binary(call->node->op_type);
    const struct nd_array *a = call->inputs[0], *b = call->inputs[1];
    if (has_old_broadcast(call))
        return nd_op_unsupported(call, err, "broadcasting along an axis");
    struct nd_shape shape = a->shape;
    enum nd_status status = nd_op_broadcast(call, &b->shape, &shape, err);
    if (status == ND_OK)
        status = nd_op_make_room(call, 0, binary->is_test ? ND_DTYPE_BOOL : a->dtype, &shape, err);
    if (status != ND_OK)
        return status;
    apply(choose_row(call, binary), a, b, call->outputs[0]);
    return nd_op_wrap(call, call->outputs[0], err);
}

/* Min, Max, Sum and Mean of one tensor or more, from the first to the last. */
enum nd_status nd_op_variadic(const struct nd_op_call *call, struct nd_error *err)
{
    struct nd_array *y = call->outputs[0];
    struct nd_shape shape = call->inputs[0]->shape;
    enum nd_status status = ND_OK;
    for (size_t i = 1; i < call->n_inputs && status == ND_OK; i++)
        status = nd_op_in(call, i) == NULL ? nd_op_misfit(call, err, "input %zu is missing", i)
                                           : nd_op_broadcast(call, &call->inputs[i]->shape, &shape, err);
    if (status == ND_OK)
        status = nd_op_make_room(call, 0, call->inputs[0]->dtype, &shape, err);
    if (status != ND_OK)
        return status;
    const struct nd_array zero = {.n = 1, .x = &(double){-0.0}}; /* -0 + x is x, -0 included */
    row_function *row = find_binary(call->node->op_type)->row;
    if (call->n_inputs == 1)
        apply(row_add, call->inputs[0], &zero, y);
    else
        apply(row, call->inputs[0], call->inputs[1], y);
    for (size_t i = 2; i < call->n_inputs; i++)
        apply(row, y, call->inputs[i], y);
    for (size_t i = 0; i < y->n && nd_op_is(call, "Mean"); i++)
        y->x[i] /= (double)call->n_inputs;
    return nd_op_wrap(call, y, err);
}

enum nd_status nd_op_where(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *condition = call->inputs[0], *a = call->inputs[1], *b = call->inputs[2];
    struct nd_array *y = call->outputs[0];
    struct nd_shape shape = condition->shape;
    enum nd_status status = nd_op_broadcast(call, &a->shape, &shape, err);
    if (status == ND_OK)
        status = nd_op_broadcast(call, &b->shape, &shape, err);
    if (status == ND_OK)
        status = nd_op_make_room(call, 0, a->dtype, &shape, err);
    if (status != ND_OK)
        return status;
    struct nd_walk walk = {0};
    for (int axis = 0; axis < shape.rank; axis++)
        nd_walk_axis(&walk, shape.dims[axis], nd_broadcast_stride(condition, &shape, axis),
                     nd_broadcast_stride(a, &shape, axis), nd_broadcast_stride(b, &shape, axis));
    double *out = y->x;
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++)
            *out++ = condition->x[walk.at[0] + i * walk.step[0]] != 0 ? a->x[walk.at[1] + i * walk.step[1]]
                                                                      : b->x[walk.at[2] + i * walk.step[2]];
    return ND_OK;
}
