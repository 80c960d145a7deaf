/* Means: a sum of whole numbers, and how many they are. The operator's own mean of whole numbers is within an
 * ulp or two, so that times their count it rounds to their sum. */
#include "arithmetic/exact/linear/linear_families.h"

#include <math.h>
#include <string.h>

static const double largest_sum = 0x1p48;

static enum nd_status read_wholes(const struct nd_linear_call *call, struct nd_array *x, double *largest,
                                  struct nd_error *err)
{
    if (!nd_linear_has(call, 0))
        return nd_linear_unsupported(call, err, "an operand that is missing");
    if (nd_linear_n_scales(&call->inputs[0]) != 1)
        return nd_linear_unsupported(call, err, "scales per channel");
    enum nd_status status = nd_linear_wholes(call, 0, x, largest, err);
    if (status == ND_OK && *largest * (double)x->n > largest_sum)
        return nd_linear_unsupported(call, err, "sums that do not fit 48 bits");
    return status;
}

enum nd_status nd_linear_mean(const struct nd_linear_call *call, struct nd_linear_result *result,
                              struct nd_error *err)
{
    struct nd_array x = {0}, mean = {0};
    double largest;
    enum nd_status status = read_wholes(call, &x, &largest, err);
    if (status == ND_OK && (call->n_inputs > 2 || x.n == 0))
        status = nd_linear_unsupported(call, err, "nothing to add up, or too many inputs");
    const struct nd_array *inputs[] = {&x, call->n_inputs > 1 ? call->inputs[1].values : NULL};
    if (status == ND_OK)
        status = nd_linear_run(call, call->node, inputs, call->n_inputs, &mean, err);
    if (status == ND_OK) {
        bool is_sum = strcmp(call->node->op_type, "ReduceSum") == 0;
        double count = is_sum ? 1 : (double)(x.n / mean.n), scale = nd_linear_scale(&call->inputs[0], 0);
        for (size_t i = 0; i < mean.n; i++)
            mean.x[i] = rint(mean.x[i] * count);
        status = nd_linear_make_line(result, &mean, scale, err);
        if (status == ND_OK)
            result->quick->divisor = count;
    }
    nd_array_deinit(&x);
    nd_array_deinit(&mean);
    return status;
}

/* How many elements of the input each window of the pool covers: LpPool of ones with p = 1. */
static enum nd_status count_covered(const struct nd_linear_call *call, const struct nd_array *ones,
                                    struct nd_array *out, struct nd_error *err)
{
    enum { MAX_ATTRIBUTES = 16, OPSET = 18 /* the first with all attributes */ };
    Onnx__AttributeProto power = ONNX__ATTRIBUTE_PROTO__INIT, *kept[MAX_ATTRIBUTES + 1] = {&power};
    Onnx__NodeProto node = *call->node;
    struct nd_linear_call pool = *call;
    char power_name[] = "p", pool_name[] = "LpPool";
    if (node.n_attribute > MAX_ATTRIBUTES)
        return nd_linear_unsupported(call, err, "too many attributes");
    power.name = power_name;
    power.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    power.has_type = power.has_i = 1;
    power.i = 1;
    node.op_type = pool_name;
    node.attribute = kept;
    node.n_attribute = 1;
    for (size_t i = 0; i < call->node->n_attribute; i++)
        if (strcmp(nd_onnx_text(call->node->attribute[i]->name), "count_include_pad") != 0)
            kept[node.n_attribute++] = call->node->attribute[i];
    if (pool.opset < OPSET)
        pool.opset = OPSET;
    return nd_linear_run(&pool, &node, &ones, 1, out, err);
}

/* What each window is divided by, for one channel: the share of it that ones make up is covered / divisor. */
static enum nd_status find_divisors(const struct nd_linear_call *call, struct nd_array *divisors,
                                    struct nd_error *err)
{
    struct nd_array ones = {0}, shares = {0};
    const struct nd_array *input = &ones;
    struct nd_shape shape = call->inputs[0].values->shape;
    for (int axis = 0; axis < 2 && axis < shape.rank; axis++)
        shape.dims[axis] = 1;
    enum nd_status status = nd_array_make(&ones, ND_DTYPE_F32, &shape, err);
    for (size_t i = 0; status == ND_OK && i < ones.n; i++)
        ones.x[i] = 1;
    if (status == ND_OK)
        status = nd_linear_run(call, call->node, &input, 1, &shares, err);
    if (status == ND_OK)
        status = count_covered(call, &ones, divisors, err);
    if (status == ND_OK && divisors->n != shares.n)
        status = nd_linear_unsupported(call, err, "this pooling");
    for (size_t i = 0; status == ND_OK && i < shares.n; i++)
        divisors->x[i] = shares.x[i] > 0 ? rint(divisors->x[i] / shares.x[i]) : 1;
    nd_array_deinit(&ones);
    nd_array_deinit(&shares);
    return status;
}

enum nd_status nd_linear_pool(const struct nd_linear_call *call, struct nd_linear_result *result,
                              struct nd_error *err)
{
    struct nd_array x = {0}, mean = {0}, divisors = {0};
    const struct nd_array *input = &x;
    double largest;
    enum nd_status status = read_wholes(call, &x, &largest, err);
    if (status == ND_OK)
        status = nd_linear_run(call, call->node, &input, 1, &mean, err);
    if (status == ND_OK)
        status = find_divisors(call, &divisors, err);
    if (status == ND_OK)
        status = nd_linear_make(result, &mean.shape, err);
    double scale = nd_linear_scale(&call->inputs[0], 0);
    for (size_t i = 0; status == ND_OK && i < mean.n; i++) {
        double divisor = divisors.x[i % divisors.n];
        result->v[i].numerator = nd_wide_product(rint(mean.x[i] * divisor), scale);
        result->v[i].denominator = nd_wide_from(divisor);
    }
    nd_array_deinit(&x);
    nd_array_deinit(&mean);
    nd_array_deinit(&divisors);
    return status;
}
