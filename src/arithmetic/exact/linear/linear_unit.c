#include "arithmetic/exact/linear/linear_families.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"

static const struct {
    const char *op_type;
    nd_linear_family *family;
} operators[] = {
    {"Conv", nd_linear_product},
    {"ConvTranspose", nd_linear_product},
    {"Gemm", nd_linear_product},
    {"MatMul", nd_linear_product},
    {"Add", nd_linear_sum},
    {"Sub", nd_linear_sum},
    {"Sum", nd_linear_sum},
    {"Mul", nd_linear_pair},
    {"Div", nd_linear_pair},
    {"PRelu", nd_linear_pair},
    {"LeakyRelu", nd_linear_unary},
    {"HardSigmoid", nd_linear_unary},
    {"HardSwish", nd_linear_unary},
    {"AveragePool", nd_linear_pool},
    {"GlobalAveragePool", nd_linear_mean},
    {"ReduceMean", nd_linear_mean},
    {"ReduceSum", nd_linear_mean},
    {"Abs", nd_linear_choose},
    {"Clip", nd_linear_choose},
    {"Concat", nd_linear_choose},
    {"DepthToSpace", nd_linear_choose},
    {"Dropout", nd_linear_choose},
    {"Expand", nd_linear_choose},
    {"Flatten", nd_linear_choose},
    {"Gather", nd_linear_choose},
    {"GatherElements", nd_linear_choose},
    {"GatherND", nd_linear_choose},
    {"GlobalMaxPool", nd_linear_choose},
    {"Identity", nd_linear_choose},
    {"Max", nd_linear_choose},
    {"MaxPool", nd_linear_choose},
    {"Min", nd_linear_choose},
    {"Neg", nd_linear_choose},
    {"Pad", nd_linear_choose},
    {"ReduceMax", nd_linear_choose},
    {"ReduceMin", nd_linear_choose},
    {"Relu", nd_linear_choose},
    {"Reshape", nd_linear_choose},
    {"Resize", nd_linear_choose},
    {"Slice", nd_linear_choose},
    {"SpaceToDepth", nd_linear_choose},
    {"Split", nd_linear_choose},
    {"Squeeze", nd_linear_choose},
    {"Tile", nd_linear_choose},
    {"TopK", nd_linear_choose},
    {"Transpose", nd_linear_choose},
    {"Trilu", nd_linear_choose},
    {"Unsqueeze", nd_linear_choose},
    {"Upsample", nd_linear_choose},
    {"Where", nd_linear_choose},
};

enum nd_status nd_linear_make(struct nd_linear_result *result, const struct nd_shape *shape,
                              struct nd_error *err)
{
    size_t n;
    enum nd_status status = nd_shape_n_elems(shape, &n, err);
    if (status != ND_OK)
        return status;
    struct nd_ratio *v = nd_calloc(n, sizeof *v);
    if (v == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        v[i].denominator.parts[0] = 1;
    *result = (struct nd_linear_result){.shape = *shape, .n = n, .v = v};
    return ND_OK;
}

enum nd_status nd_linear_make_quick(struct nd_linear_result *result, const struct nd_shape *shape,
                                    enum nd_quick_kind kind, struct nd_error *err)
{
    size_t n;
    enum nd_status status = nd_shape_n_elems(shape, &n, err);
    if (status != ND_OK)
        return status;
    struct nd_quick *quick = nd_calloc(1, sizeof *quick);
    if (quick == NULL)
        return nd_fail_memory(err);
    *quick = (struct nd_quick){.kind = kind,
                               .n = n,
                               .n_inner = n > 0 ? n : 1,
                               .sign = 1,
                               .divisor = 1,
                               .low = -HUGE_VAL,
                               .high = HUGE_VAL};
    *result = (struct nd_linear_result){.shape = *shape, .n = n, .quick = quick};
    return ND_OK;
}

enum nd_status nd_linear_make_line(struct nd_linear_result *result, struct nd_array *x, double factor,
                                   struct nd_error *err)
{
    enum nd_status status = nd_linear_make_quick(result, &x->shape, ND_QUICK_LINE, err);
    if (status == ND_OK)
        status = nd_quick_make_lines(result->quick, 1, err);
    if (status != ND_OK)
        return status;
    result->quick->lines[0].factor = nd_wide_from(factor);
    result->quick->x = result->quick->own_x = x->x;
    *x = (struct nd_array){0};
    return ND_OK;
}

/* All values as quotients. */
static enum nd_status spread(struct nd_linear_result *result, struct nd_error *err)
{
    struct nd_linear_result made;
    enum nd_status status = nd_linear_make(&made, &result->shape, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < made.n; i++)
        made.v[i] = nd_quick_exact(result->quick, i);
    nd_linear_deinit(result);
    *result = made;
    return ND_OK;
}

void nd_linear_shared_deinit(struct nd_linear_shared *shared)
{
    nd_array_deinit(&shared->x);
    nd_array_deinit(&shared->sums);
}

void nd_linear_deinit(struct nd_linear_result *result)
{
    if (result->quick != NULL)
        nd_quick_deinit(result->quick);
    free(result->quick);
    free(result->v);
    *result = (struct nd_linear_result){0};
}

static nd_linear_family *find_family(const Onnx__NodeProto *node)
{
    if (node == NULL)
        return nd_linear_choose;
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (nd_onnx_domain(node->domain)[0] == 0 &&
            strcmp(nd_onnx_text(node->op_type), operators[i].op_type) == 0)
            return operators[i].family;
    return NULL;
}

static enum nd_status check_call(const struct nd_linear_call *call, struct nd_error *err)
{
    bool is_usable = nd_quant_is_sound(call->out_quant);
    for (size_t i = 0; i < call->n_inputs; i++)
        if (call->inputs[i].values != NULL && call->inputs[i].quant != NULL)
            is_usable = is_usable && nd_quant_is_sound(call->inputs[i].quant);
    if (!is_usable)
        return nd_linear_unsupported(call, err, "a scale that is unknown or not a positive number");
    return nd_linear_has(call, 0) ? ND_OK : nd_linear_unsupported(call, err, "no first input");
}

static double clip(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

/* Bounds, which are compared as real values, exactly; then steps of the output. */
static void finish(const struct nd_linear_call *call, struct nd_ratio *v, double scale)
{
    double divisor = v->denominator.parts[0];
    if (call->low > -HUGE_VAL && nd_wide_compare(v->numerator, nd_wide_product(call->low, divisor)) < 0) {
        v->numerator = nd_wide_from(call->low);
        divisor = 1;
    }
    if (call->high < HUGE_VAL && nd_wide_compare(v->numerator, nd_wide_product(call->high, divisor)) > 0) {
        v->numerator = nd_wide_from(call->high);
        divisor = 1;
    }
    v->denominator = nd_wide_product(divisor, scale);
}

/* Without the scale and the bounds of the call: those of each channel come behind. */
static enum nd_status spread_reals(struct nd_linear_result *result, const double own_bounds[2],
                                   struct nd_error *err)
{
    result->quick->low = own_bounds[0];
    result->quick->high = own_bounds[1];
    result->quick->scale = 1;
    return spread(result, err);
}

static enum nd_status finish_all(const struct nd_linear_call *call, struct nd_linear_result *result,
                                 struct nd_error *err)
{
    int axis;
    size_t n_inner, channel = 0;
    const struct nd_quant *quant = call->out_quant;
    enum nd_status status = nd_linear_layout(quant, &result->shape, &axis, &n_inner, err);
    if (status != ND_OK)
        return status;
    if (result->quick != NULL) {
        const double own_bounds[] = {result->quick->low, result->quick->high};
        result->quick->low = clip(own_bounds[0], call->low, call->high);
        result->quick->high = clip(own_bounds[1], call->low, call->high);
        result->quick->scale = (double)quant->scale[0];
        for (size_t i = 0; quant->n == 1 && i < result->quick->n_table; i++)
            finish(call, &result->quick->table[i], (double)quant->scale[0]);
        if (quant->n == 1 && nd_quick_finish(result->quick))
            return ND_OK;
        status = spread_reals(result, own_bounds, err);
        if (status != ND_OK)
            return status;
    }
    for (size_t start = 0; start < result->n; start += n_inner, channel = (channel + 1) % quant->n)
        for (size_t i = start; i < start + n_inner; i++)
            finish(call, &result->v[i], (double)quant->scale[channel]);
    return ND_OK;
}

enum nd_status nd_linear_unit(const struct nd_linear_call *call, struct nd_linear_result *result,
                              struct nd_error *err)
{
    struct nd_linear_result made = {0};
    enum nd_status status = nd_linear_unit_quick(call, &made, err);
    if (status == ND_OK && made.quick != NULL)
        status = spread(&made, err);
    if (status == ND_OK)
        *result = made;
    else
        nd_linear_deinit(&made);
    return status;
}

enum nd_status nd_linear_unit_quick(const struct nd_linear_call *call, struct nd_linear_result *result,
                                    struct nd_error *err)
{
    nd_linear_family *family = find_family(call->node);
    struct nd_linear_result made = {0};
    if (family == NULL)
        return nd_linear_unsupported(call, err, "not linear in codes");
    enum nd_status status = check_call(call, err);
    if (status == ND_OK)
        status = family(call, &made, err);
    if (status == ND_OK)
        status = finish_all(call, &made, err);
    if (status != ND_OK) {
        nd_linear_deinit(&made);
        return status;
    }
    *result = made;
    return ND_OK;
}

/* A bound of Clip: the attribute of old opsets, or the input. */
static bool read_bound(const Onnx__NodeProto *node, const char *name, const struct nd_linear_input *input,
                       double *bound)
{
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(node, name);
    if (attribute != NULL)
        *bound = (double)attribute->f;
    if (input == NULL || input->values == NULL)
        return true;
    const struct nd_quant *quant = input->quant;
    if (input->values->n != 1 || (quant != NULL && quant->n != 1))
        return false;
    double code = input->values->x[0];
    *bound = quant != NULL ? (code - (double)quant->zero_point[0]) * (double)quant->scale[0] : code;
    return !isnan(*bound);
}

bool nd_linear_fold(const Onnx__NodeProto *node, size_t n_inputs, const struct nd_linear_input *inputs,
                    double *low, double *high)
{
    double least = -HUGE_VAL, most = HUGE_VAL;
    const char *op_type = nd_onnx_text(node->op_type);
    if (nd_onnx_domain(node->domain)[0] != 0)
        return false;
    if (strcmp(op_type, "Relu") == 0)
        least = 0;
    else if (strcmp(op_type, "Clip") != 0 ||
             !read_bound(node, "min", n_inputs > 1 ? &inputs[1] : NULL, &least) ||
             !read_bound(node, "max", n_inputs > 2 ? &inputs[2] : NULL, &most))
        return false;
    *low = clip(*low, least, most);
    *high = clip(*high, least, most);
    return true;
}
