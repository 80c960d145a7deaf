/* Operators that work element by element: functions of one number, and of two and more with broadcasting. */
#include <math.h>
#include <string.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/text/strbuf.h"

/* ---- one number in ---- */

enum { MAX_ATTRIBUTES = 2 };

/* exp(-x) may overflow to infinity, and that is right, too; but small results keep their digits this way. */
static double sigmoid(double x)
{
    double e = exp(-fabs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static double above(double x, double low)
{
    return x < low ? low : x;
}

static double below(double x, double high)
{
    return x > high ? high : x;
}

/* x Phi(x), Phi the normal distribution. */
static double gelu(double x)
{
    return 0.5 * x * erfc(-x * M_SQRT1_2);
}

static double gelu_tanh(double x)
{
    double inner = sqrt(M_2_PI) * (x + 0.044715 * x * x * x); /* sqrt(2 / pi) */
    return 0.5 * x * (1 + tanh(inner));
}

/* The functions by operator, of n numbers, which may become what they are; a holds the attributes. */
#define FUNCTION(name, formula)                                                                                \
    static void do_##name(const double *in, size_t n, const double *a, double *out)                            \
    {                                                                                                          \
        (void)a;                                                                                               \
        for (size_t i = 0; i < n; i++) {                                                                       \
            double x = in[i];                                                                                  \
            out[i] = formula;                                                                                  \
        }                                                                                                      \
    }

FUNCTION(abs, fabs(x))
FUNCTION(acos, acos(x))
FUNCTION(acosh, acosh(x))
FUNCTION(asin, asin(x))
FUNCTION(asinh, asinh(x))
FUNCTION(atan, atan(x))
FUNCTION(atanh, atanh(x))
FUNCTION(ceil, ceil(x))
FUNCTION(celu, x < 0 ? a[0] * expm1(x / a[0]) : x)
FUNCTION(cos, cos(x))
FUNCTION(cosh, cosh(x))
FUNCTION(elu, x < 0 ? a[0] * expm1(x) : x)
FUNCTION(erf, erf(x))
FUNCTION(exp, exp(x))
FUNCTION(floor, floor(x))
FUNCTION(hard_sigmoid, below(above(a[0] * x + a[1], 0), 1))
FUNCTION(hard_swish, x *below(above(x / 6 + 0.5, 0), 1))
FUNCTION(is_inf, (a[0] != 0 && x == -(double)INFINITY) || (a[1] != 0 && x == (double)INFINITY) ? 1 : 0)
FUNCTION(is_nan, isnan(x) ? 1 : 0)
FUNCTION(leaky_relu, x < 0 ? a[0] * x : x)
FUNCTION(log, log(x))
FUNCTION(mish, x *tanh(softplus(x)))
FUNCTION(neg, -x)
FUNCTION(not, x != 0 ? 0 : 1)
FUNCTION(quick_gelu, x *sigmoid(a[0] * x))
FUNCTION(reciprocal, 1 / x)
FUNCTION(relu, above(x, 0))
FUNCTION(round, rint(x))
FUNCTION(selu, x > 0 ? a[1] * x : a[1] * (a[0] * expm1(x)))
FUNCTION(shrink, x<-a[1] ? x + a[0] : x> a[1] ? x - a[0] : 0)
FUNCTION(sigmoid, sigmoid(x))
FUNCTION(sign, x > 0 ? 1 : x < 0 ? -1 : x)
FUNCTION(sin, sin(x))
FUNCTION(sinh, sinh(x))
FUNCTION(softplus, softplus(x))
FUNCTION(softsign, x / (1 + fabs(x)))
FUNCTION(sqrt, sqrt(x))
FUNCTION(tan, tan(x))
FUNCTION(tanh, tanh(x))
FUNCTION(thresholded_relu, x > a[0] ? x : 0)

static const struct unary {
    const char *op_type;
    void (*function)(const double *in, size_t n, const double *attributes, double *out);
    struct {
        const char *name;
        float otherwise;
    } attributes[MAX_ATTRIBUTES];
} unaries[] = {
    {"Abs", do_abs, {{0}}},
    {"Acos", do_acos, {{0}}},
    {"Acosh", do_acosh, {{0}}},
    {"Asin", do_asin, {{0}}},
    {"Asinh", do_asinh, {{0}}},
    {"Atan", do_atan, {{0}}},
    {"Atanh", do_atanh, {{0}}},
    {"Ceil", do_ceil, {{0}}},
    {"Celu", do_celu, {{"alpha", 1}}},
    {"Cos", do_cos, {{0}}},
    {"Cosh", do_cosh, {{0}}},
    {"Elu", do_elu, {{"alpha", 1}}},
    {"Erf", do_erf, {{0}}},
    {"Exp", do_exp, {{0}}},
    {"Floor", do_floor, {{0}}},
    {"HardSigmoid", do_hard_sigmoid, {{"alpha", 0.2F}, {"beta", 0.5F}}},
    {"HardSwish", do_hard_swish, {{0}}},
    {"IsInf", do_is_inf, {{"detect_negative", 1}, {"detect_positive", 1}}},
    {"IsNaN", do_is_nan, {{0}}},
    {"LeakyRelu", do_leaky_relu, {{"alpha", 0.01F}}},
    {"Log", do_log, {{0}}},
    {"Mish", do_mish, {{0}}},
    {"Neg", do_neg, {{0}}},
    {"Not", do_not, {{0}}},
    {"QuickGelu", do_quick_gelu, {{"alpha", 1.702F}}},
    {"Reciprocal", do_reciprocal, {{0}}},
    {"Relu", do_relu, {{0}}},
    {"Round", do_round, {{0}}},
    {"Selu", do_selu, {{"alpha", 1.67326319217681884765625F}, {"gamma", 1.05070102214813232421875F}}},
    {"Shrink", do_shrink, {{"bias", 0}, {"lambd", 0.5F}}},
    {"Sigmoid", do_sigmoid, {{0}}},
    {"Sign", do_sign, {{0}}},
    {"Sin", do_sin, {{0}}},
    {"Sinh", do_sinh, {{0}}},
    {"Softplus", do_softplus, {{0}}},
    {"Softsign", do_softsign, {{0}}},
    {"Sqrt", do_sqrt, {{0}}},
    {"Tan", do_tan, {{0}}},
    {"Tanh", do_tanh, {{0}}},
    {"ThresholdedRelu", do_thresholded_relu, {{"alpha", 1}}},
};

static const struct unary *find_unary(const char *op_type)
{
    const struct unary *found = unaries;
    while (strcmp(found->op_type, op_type) != 0) /* every operator of the list in ops.c has a row */
        found++;
    return found;
}

/* An attribute of either number type: the two of IsInf are integers. */
static double number_attribute(const struct nd_op_call *call, const char *name, float otherwise)
{
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(call->node, name);
    if (nd_onnx_is_integer(attribute))
        return (double)attribute->i;
    return nd_op_f(call, name, (double)otherwise);
}

/* A function that jumps, or is so steep somewhere that the last bit of a float32 counts, takes the float32 that
 * ONNX makes of its operand; others take the exact one (ops_binary.c says why). */
static bool takes_float32(const struct nd_op_call *call)
{
    return call->inputs[0]->dtype == ND_DTYPE_F32 &&
           ND_IS_ONE_OF(call->node->op_type, "Acosh", "Atanh", "Ceil", "Cos", "Cosh", "Exp", "Floor", "Round",
                        "Shrink", "Sin", "Sinh", "Tan", "ThresholdedRelu");
}

static enum nd_status nd_op_unary(const struct nd_op_call *call, struct nd_error *err)
{
    const struct unary *unary = find_unary(call->node->op_type);
    const struct nd_array *x = call->inputs[0];
    double a[MAX_ATTRIBUTES];
    for (int i = 0; i < MAX_ATTRIBUTES && unary->attributes[i].name != NULL; i++)
        a[i] = number_attribute(call, unary->attributes[i].name, unary->attributes[i].otherwise);
    bool is_test = nd_op_is(call, "IsInf") || nd_op_is(call, "IsNaN") || nd_op_is(call, "Not");
    ND_TRY(nd_op_make_room(call, 0, is_test ? ND_DTYPE_BOOL : x->dtype, &x->shape, err));
    bool is_of_floats = takes_float32(call);
    double *out = call->outputs[0]->x;
    for (size_t i = 0; i < x->n && is_of_floats; i++)
        out[i] = (double)(float)x->x[i];
    unary->function(is_of_floats ? out : x->x, x->n, a, out);
    return nd_op_wrap(call, call->outputs[0], err);
}

/* A bound of Clip: an input since opset 11, an attribute before. */
static enum nd_status clip_bound(const struct nd_op_call *call, size_t input, const char *name, double *bound,
                                 struct nd_error *err)
{
    const struct nd_array *given = nd_op_in(call, input);
    if (given != NULL && given->n != 1)
        return nd_op_misfit(call, err, "'%s' has %zu elements", name, given->n);
    *bound = given != NULL ? given->x[0] : nd_op_f(call, name, *bound);
    return ND_OK;
}

static enum nd_status nd_op_clip(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    double low = -(double)INFINITY, high = (double)INFINITY;
    ND_TRY(clip_bound(call, 1, "min", &low, err));
    ND_TRY(clip_bound(call, 2, "max", &high, err));
    ND_TRY(nd_op_make_room(call, 0, x->dtype, &x->shape, err));
    for (size_t i = 0; i < x->n; i++)
        call->outputs[0]->x[i] = below(above(x->x[i], low), high);
    return ND_OK;
}

static enum nd_status nd_op_gelu(const struct nd_op_call *call, struct nd_error *err)
{
    char approximate[16];
    nd_op_text(call, "approximate", approximate, sizeof approximate);
    bool is_tanh = strcmp(approximate, "tanh") == 0;
    if (!is_tanh && approximate[0] != '\0' && strcmp(approximate, "none") != 0)
        return nd_op_unsupported(call, err, "approximate '%s'", approximate);
    const struct nd_array *x = call->inputs[0];
    ND_TRY(nd_op_make_room(call, 0, x->dtype, &x->shape, err));
    for (size_t i = 0; i < x->n; i++)
        call->outputs[0]->x[i] = is_tanh ? gelu_tanh(x->x[i]) : gelu(x->x[i]);
    return ND_OK;
}

/* BiasGelu and FastGelu: a bias for the last axis is added first; the fast one is the formula with tanh. */
static enum nd_status nd_op_bias_gelu(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *bias = nd_op_in(call, 1);
    size_t n = bias != NULL ? bias->n : 1;
    if (bias != NULL && (x->shape.rank == 0 || (int64_t)n != x->shape.dims[x->shape.rank - 1]))
        return nd_op_misfit(call, err, "a bias of %zu elements", n);
    bool is_fast = nd_op_is(call, "FastGelu");
    ND_TRY(nd_op_make_room(call, 0, x->dtype, &x->shape, err));
    for (size_t i = 0; i < x->n; i++) {
        double sum = bias != NULL ? x->x[i] + bias->x[i % n] : x->x[i];
        call->outputs[0]->x[i] = is_fast ? gelu_tanh(sum) : gelu(sum);
    }
    return ND_OK;
}

/* ---- two and more numbers in ---- */

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

static enum nd_status nd_op_binary(const struct nd_op_call *call, struct nd_error *err)
{
    const struct binary *binary = find_binary(call->node->op_type);
    const struct nd_array *a = call->inputs[0], *b = call->inputs[1];
    if (has_old_broadcast(call))
        return nd_op_unsupported(call, err, "broadcasting along an axis");
    struct nd_shape shape = a->shape;
    ND_TRY(nd_op_broadcast(call, &b->shape, &shape, err));
    ND_TRY(nd_op_make_room(call, 0, binary->is_test ? ND_DTYPE_BOOL : a->dtype, &shape, err));
    apply(choose_row(call, binary), a, b, call->outputs[0]);
    return nd_op_wrap(call, call->outputs[0], err);
}

/* Min, Max, Sum and Mean of one tensor or more, from the first to the last. */
static enum nd_status nd_op_variadic(const struct nd_op_call *call, struct nd_error *err)
{
    struct nd_array *y = call->outputs[0];
    struct nd_shape shape = call->inputs[0]->shape;
    for (size_t i = 1; i < call->n_inputs; i++)
        ND_TRY(nd_op_in(call, i) == NULL ? nd_op_misfit(call, err, "input %zu is missing", i)
                                         : nd_op_broadcast(call, &call->inputs[i]->shape, &shape, err));
    ND_TRY(nd_op_make_room(call, 0, call->inputs[0]->dtype, &shape, err));
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

static enum nd_status nd_op_where(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *condition = call->inputs[0], *a = call->inputs[1], *b = call->inputs[2];
    struct nd_array *y = call->outputs[0];
    struct nd_shape shape = condition->shape;
    ND_TRY(nd_op_broadcast(call, &a->shape, &shape, err));
    ND_TRY(nd_op_broadcast(call, &b->shape, &shape, err));
    ND_TRY(nd_op_make_room(call, 0, a->dtype, &shape, err));
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

/* ---- the operators ---- */

const struct nd_op nd_ops_elements[] = {
    {"", "Add", 2, nd_op_binary},
    {"", "Sub", 2, nd_op_binary},
    {"", "Mul", 2, nd_op_binary},
    {"", "Div", 2, nd_op_binary},
    {"", "Pow", 2, nd_op_binary},
    {"", "Mod", 2, nd_op_binary},
    {"", "Equal", 2, nd_op_binary},
    {"", "Less", 2, nd_op_binary},
    {"", "LessOrEqual", 2, nd_op_binary},
    {"", "Greater", 2, nd_op_binary},
    {"", "GreaterOrEqual", 2, nd_op_binary},
    {"", "And", 2, nd_op_binary},
    {"", "Or", 2, nd_op_binary},
    {"", "Xor", 2, nd_op_binary},
    {"", "PRelu", 2, nd_op_binary},
    {"", "Min", 1, nd_op_variadic},
    {"", "Max", 1, nd_op_variadic},
    {"", "Sum", 1, nd_op_variadic},
    {"", "Mean", 1, nd_op_variadic},
    {"", "Where", 3, nd_op_where},
    {"", "Abs", 1, nd_op_unary},
    {"", "Acos", 1, nd_op_unary},
    {"", "Acosh", 1, nd_op_unary},
    {"", "Asin", 1, nd_op_unary},
    {"", "Asinh", 1, nd_op_unary},
    {"", "Atan", 1, nd_op_unary},
    {"", "Atanh", 1, nd_op_unary},
    {"", "Ceil", 1, nd_op_unary},
    {"", "Celu", 1, nd_op_unary},
    {"", "Cos", 1, nd_op_unary},
    {"", "Cosh", 1, nd_op_unary},
    {"", "Elu", 1, nd_op_unary},
    {"", "Erf", 1, nd_op_unary},
    {"", "Exp", 1, nd_op_unary},
    {"", "Floor", 1, nd_op_unary},
    {"", "HardSigmoid", 1, nd_op_unary},
    {"", "HardSwish", 1, nd_op_unary},
    {"", "IsInf", 1, nd_op_unary},
    {"", "IsNaN", 1, nd_op_unary},
    {"", "LeakyRelu", 1, nd_op_unary},
    {"", "Log", 1, nd_op_unary},
    {"", "Mish", 1, nd_op_unary},
    {"", "Neg", 1, nd_op_unary},
    {"", "Not", 1, nd_op_unary},
    {"", "Reciprocal", 1, nd_op_unary},
    {"", "Relu", 1, nd_op_unary},
    {"", "Round", 1, nd_op_unary},
    {"", "Selu", 1, nd_op_unary},
    {"", "Shrink", 1, nd_op_unary},
    {"", "Sigmoid", 1, nd_op_unary},
    {"", "Sign", 1, nd_op_unary},
    {"", "Sin", 1, nd_op_unary},
    {"", "Sinh", 1, nd_op_unary},
    {"", "Softplus", 1, nd_op_unary},
    {"", "Softsign", 1, nd_op_unary},
    {"", "Sqrt", 1, nd_op_unary},
    {"", "Tan", 1, nd_op_unary},
    {"", "Tanh", 1, nd_op_unary},
    {"", "ThresholdedRelu", 1, nd_op_unary},
    {MS, "QuickGelu", 1, nd_op_unary},
    {"", "Clip", 1, nd_op_clip},
    {"", "Gelu", 1, nd_op_gelu},
    {MS, "Gelu", 1, nd_op_gelu},
    {MS, "BiasGelu", 2, nd_op_bias_gelu},
    {MS, "FastGelu", 1, nd_op_bias_gelu},
    {NULL, NULL, 0, NULL},
};

bool nd_op_is_function(const Onnx__NodeProto *node)
{
    const struct nd_op *op = nd_op_in_list(nd_ops_elements, node->domain, nd_onnx_text(node->op_type));
    return op != NULL && node->n_input == 1 && (op->run == nd_op_unary || op->run == nd_op_gelu);
}
