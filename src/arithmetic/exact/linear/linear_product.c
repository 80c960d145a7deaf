/* Conv, ConvTranspose, Gemm, MatMul: a sum of products of whole numbers, which doubles hold exactly below 2^53,
 * times the scales, plus the bias. */
#include "arithmetic/exact/linear/linear_values.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

struct product {
    struct nd_array own[3]; /* of the following, where they are not borrowed */
    const struct nd_array *left, *right, *sums;
    int channel_axis;  /* of the right operand: what its scales may belong to; -1: nothing */
    size_t n_terms;    /* of each sum, at most */
    size_t n_inner;    /* elements of the output that follow each other in one channel */
    size_t n_channels; /* of the output */
    struct nd_wide
        *factors; /* [n_factors]: what a step of a sum is worth, by channel of the output modulo n_factors */
    size_t n_factors;
    struct nd_wide *bias; /* [n_bias], NULL without one */
    size_t n_bias;
    ptrdiff_t bias_row, bias_channel; /* strides: along the rows of Gemm's output, along the channels */
    double alpha, beta;
};

static void describe_operands(const struct nd_linear_call *call, struct product *product)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    const struct nd_shape *right = &call->inputs[1].values->shape;
    const char *op_type = call->node->op_type;
    size_t n_right = call->inputs[1].values->n;
    product->alpha = product->beta = 1;
    if (strcmp(op_type, "Conv") == 0)
        product->channel_axis = 0;
    else if (strcmp(op_type, "ConvTranspose") == 0)
        product->channel_axis = 1; /* within the group */
    else if (strcmp(op_type, "Gemm") == 0) {
        product->channel_axis = nd_op_i(&op_call, "transB", 0) != 0 ? 0 : 1;
        product->alpha = nd_op_f(&op_call, "alpha", 1);
        product->beta = nd_op_f(&op_call, "beta", 1);
    } else { /* MatMul: a vector has no channels */
        product->channel_axis = right->rank - 1 > 0 ? right->rank - 1 : -1;
        product->n_terms = right->rank > 0 ? (size_t)right->dims[right->rank > 1 ? right->rank - 2 : 0] : 1;
        return;
    }
    size_t n_channels = product->channel_axis < right->rank ? (size_t)right->dims[product->channel_axis] : 1;
    product->n_terms = n_channels > 0 ? n_right / n_channels : 0;
}

static enum nd_status read_operands(const struct nd_linear_call *call, struct product *product,
                                    struct nd_error *err)
{
    double left = 0, right = 0;
    int axis;
    size_t n_inner;
    ND_TRY(nd_linear_borrow_packed_weights(call, 0, &product->own[0], &product->left, &left, err));
    ND_TRY(nd_linear_borrow_packed_weights(call, 1, &product->own[1], &product->right, &right, err));
    ND_TRY(nd_linear_layout(call->inputs[1].quant, &call->inputs[1].values->shape, &axis, &n_inner, err));
    if (nd_linear_n_scales(&call->inputs[0]) != 1 || (axis >= 0 && axis != product->channel_axis))
        return nd_linear_unsupported(call, err, "scales along an axis that is summed over");
    if (left * right * (double)product->n_terms >= ND_LINEAR_LARGEST)
        return nd_linear_unsupported(call, err, "sums that do not fit 53 bits");
    return ND_OK;
}

/* The operator on the whole numbers, without bias and factors. */
static enum nd_status add_up(const struct nd_linear_call *call, struct product *product, struct nd_error *err)
{
    enum { MAX_ATTRIBUTES = 32 };
    Onnx__AttributeProto *kept[MAX_ATTRIBUTES];
    Onnx__NodeProto node = *call->node;
    if (node.n_attribute > MAX_ATTRIBUTES)
        return nd_linear_unsupported(call, err, "too many attributes");
    node.attribute = kept;
    node.n_attribute = 0;
    for (size_t i = 0; i < call->node->n_attribute; i++) {
        const char *name = nd_onnx_text(call->node->attribute[i]->name);
        if (strcmp(name, "alpha") != 0 && strcmp(name, "beta") != 0)
            kept[node.n_attribute++] = call->node->attribute[i];
    }
    const struct nd_array *inputs[] = {product->left, product->right};
    return nd_linear_add_up(call, &node, inputs, &product->own[2], &product->sums, err);
}

static enum nd_status make_factors(const struct nd_linear_call *call, struct product *product,
                                   struct nd_error *err)
{
    product->n_factors = nd_linear_n_scales(&call->inputs[1]);
    product->factors = nd_calloc(product->n_factors, sizeof *product->factors);
    ND_TRY_MEMORY(product->factors != NULL, err);
    for (size_t c = 0; c < product->n_factors; c++) {
        double left = nd_linear_scale(&call->inputs[0], 0), right = nd_linear_scale(&call->inputs[1], c);
        product->factors[c] = nd_wide_scale(nd_wide_product(left, right), product->alpha);
    }
    return ND_OK;
}

/* A bias is short: its quantised values times scales times beta are made wide beforehand. */
static enum nd_status make_bias(const struct nd_linear_call *call, struct product *product,
                                struct nd_error *err)
{
    if (!nd_linear_has(call, 2))
        return ND_OK;
    const struct nd_linear_input *input = &call->inputs[2];
    const struct nd_array *values = input->values;
    int axis;
    size_t n_inner;
    ND_TRY(nd_linear_layout(input->quant, &values->shape, &axis, &n_inner, err));
    product->n_bias = values->n;
    product->bias = nd_calloc(values->n, sizeof *product->bias);
    ND_TRY_MEMORY(product->bias != NULL, err);
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = i / n_inner % nd_linear_n_scales(input);
        double zero = input->quant != NULL ? (double)input->quant->zero_point[channel] : 0;
        struct nd_wide real = nd_wide_product(values->x[i] - zero, nd_linear_scale(input, channel));
        product->bias[i] = nd_wide_scale(real, product->beta);
    }
    return ND_OK;
}

static enum nd_status describe_output(const struct nd_linear_call *call, struct product *product,
                                      struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    const struct nd_shape *shape = &product->sums->shape;
    bool is_conv = strncmp(call->node->op_type, "Conv", 4) == 0,
         is_gemm = strcmp(call->node->op_type, "Gemm") == 0;
    int channel_axis = is_conv ? 1 : shape->rank - 1;
    product->n_channels = channel_axis >= 0 ? (size_t)shape->dims[channel_axis] : 1;
    product->n_inner = is_conv ? nd_dims_product(shape, 2, shape->rank) : 1;
    if (product->bias == NULL)
        return ND_OK;
    product->bias_channel = 1;
    if (!is_gemm)
        return product->n_bias == product->n_channels
                   ? ND_OK
                   : nd_op_misfit(&op_call, err, "a bias per channel is needed");
    struct nd_shape repeated = *shape;
    ND_TRY(nd_op_broadcast(&op_call, &call->inputs[2].values->shape, &repeated, err));
    if (!nd_shape_equal(&repeated, shape))
        return nd_op_misfit(&op_call, err, "a bias larger than the output");
    product->bias_row = nd_broadcast_stride(call->inputs[2].values, shape, 0);
    product->bias_channel = nd_broadcast_stride(call->inputs[2].values, shape, 1);
    return ND_OK;
}

static void fill(const struct product *product, struct nd_ratio *v)
{
    for (size_t start = 0, block = 0; start < product->sums->n; start += product->n_inner, block++) {
        size_t channel = block % product->n_channels, row = block / product->n_channels;
        struct nd_wide factor = product->factors[channel % product->n_factors], bias = {{0}};
        if (product->bias != NULL)
            bias =
                product->bias[(ptrdiff_t)row * product->bias_row + (ptrdiff_t)channel * product->bias_channel];
        for (size_t i = start; i < start + product->n_inner; i++)
            v[i].numerator = nd_wide_add(nd_wide_scale(factor, product->sums->x[i]), bias);
    }
}

/* One line for each channel. */
static enum nd_status fill_lines(struct product *product, struct nd_linear_result *result, struct nd_error *err)
{
    ND_TRY(nd_linear_make_quick(result, &product->sums->shape, ND_QUICK_LINE, err));
    ND_TRY(nd_quick_make_lines(result->quick, product->n_channels, err));
    for (size_t c = 0; c < product->n_channels; c++) {
        result->quick->lines[c].factor = product->factors[c % product->n_factors];
        if (product->bias != NULL)
            result->quick->lines[c].bias = product->bias[(ptrdiff_t)c * product->bias_channel];
    }
    result->quick->n_inner = product->n_inner;
    result->quick->x = product->sums->x;
    if (product->sums == &product->own[2]) {
        result->quick->own_x = product->own[2].x;
        product->own[2] = (struct nd_array){0};
    }
    return ND_OK;
}

static void product_deinit(struct product *product)
{
    for (size_t i = 0; i < sizeof product->own / sizeof product->own[0]; i++)
        nd_array_deinit(&product->own[i]);
    ND_FREE_ALL(product->factors, product->bias);
}

enum nd_status nd_linear_product(const struct nd_linear_call *call, struct nd_linear_result *result,
                                 struct nd_error *err)
{
    ND_CLEANUP(product_deinit) struct product product = {0};
    if (!nd_linear_has(call, 0) || !nd_linear_has(call, 1))
        return nd_linear_unsupported(call, err, "an operand that is missing");
    describe_operands(call, &product);
    ND_TRY(read_operands(call, &product, err));
    ND_TRY(add_up(call, &product, err));
    ND_TRY(make_factors(call, &product, err));
    ND_TRY(make_bias(call, &product, err));
    ND_TRY(describe_output(call, &product, err));
    if (product.bias_row == 0 && product.n_channels > 0 && product.sums->n > 0)
        return fill_lines(&product, result, err);
    ND_TRY(nd_linear_make(result, &product.sums->shape, err));
    fill(&product, result->v);
    return ND_OK;
}
