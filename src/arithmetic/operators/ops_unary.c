/* One number in, one number out. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>
#include <string.h>

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
    static const char *const names[] = {"Acosh", "Atanh", "Ceil",           "Cos",    "Cosh",
                                        "Exp",   "Floor", "Round",          "Shrink", "Sin",
                                        "Sinh",  "Tan",   "ThresholdedRelu"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (nd_op_is(call, names[i]))
            return call->inputs[0]->dtype == ND_DTYPE_F32;
    return false;
}

enum nd_status nd_op_unary(const struct nd_op_call *call, struct nd_error *err)
{
    const struct unary *unary = find_unary(call->node->op_type);
    const struct nd_array *x = call->inputs[0];
    double a[MAX_ATTRIBUTES];
    for (int i = 0; i < MAX_ATTRIBUTES && unary->attributes[i].name != NULL; i++)
        a[i] = number_attribute(call, unary->attributes[i].name, unary->attributes[i].otherwise);
    bool is_test = nd_op_is(call, "IsInf") || nd_op_is(call, "IsNaN") || nd_op_is(call, "Not");
    enum nd_status status = nd_op_make_room(call, 0, is_test ? ND_DTYPE_BOOL : x->dtype, &x->shape, err);
    if (status != ND_OK)
        return status;
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

enum nd_status nd_op_clip(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    double low = -(double)INFINITY, high = (double)INFINITY;
    enum nd_status status = clip_bound(call, 1, "min", &low, err);
    if (status == ND_OK)
        status = clip_bound(call, 2, "max", &high, err);
    if (status == ND_OK)
        status = nd_op_make_room(call, 0, x->dtype, &x->shape, err);
    for (size_t i = 0; i < x->n && status == ND_OK; i++)
        call->outputs[0]->x[i] = below(above(x->x[i], low), high);
    return status;
}

enum nd_status nd_op_gelu(const struct nd_op_call *call, struct nd_error *err)
{
    char approximate[16];
    nd_op_text(call, "approximate", approximate, sizeof approximate);
    bool is_tanh = strcmp(approximate, "tanh") == 0;
    if (!is_tanh && approximate[0] != '\0' && strcmp(approximate, "none") != 0)
        return nd_op_unsupported(call, err, "approximate '%s'", approximate);
    const struct nd_array *x = call->inputs[0];
    enum nd_status status = nd_op_make_room(call, 0, x->dtype, &x->shape, err);
    for (size_t i = 0; i < x->n && status == ND_OK; i++)
        call->outputs[0]->x[i] = is_tanh ? gelu_tanh(x->x[i]) : gelu(x->x[i]);
    return status;
}

/* BiasGelu and FastGelu: a bias for the last axis is added first; the fast one is the formula with tanh. */
enum nd_status nd_op_bias_gelu(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *bias = nd_op_in(call, 1);
    size_t n = bias != NULL ? bias->n : 1;
    if (bias != NULL && (x->shape.rank == 0 || (int64_t)n != x->shape.dims[x->shape.rank - 1]))
        return nd_op_misfit(call, err, "a bias of %zu elements", n);
    bool is_fast = nd_op_is(call, "FastGelu");
    enum nd_status status = nd_op_make_room(call, 0, x->dtype, &x->shape, err);
    for (size_t i = 0; i < x->n && status == ND_OK; i++) {
        double sum = bias != NULL ? x->x[i] + bias->x[i % n] : x->x[i];
        call->outputs[0]->x[i] = is_fast ? gelu_tanh(sum) : gelu(sum);
    }
    return status;
}
