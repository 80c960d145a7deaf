/* Conv, Gemm and MatMul of 8-bit weights, constant or calculated.
 * docs/science/htp-arithmetic.md#products-conv-gemm-matmul. */
#include <math.h>
#include <string.h>

#include "arith/htp_internal.h"

struct product {
    const struct nd_htp_job *job;
    struct nd_htp_weights weights;
    struct nd_array x, sums;              /* codes less zero point; the operator on them and the weights */
    size_t n_channels, n_inner, n_matrix; /* of the output, see column_of */
    struct nd_htp_column common;
};

static bool is_op(const struct nd_htp_job *job, const char *op_type)
{
    return strcmp(job->call->node->op_type, op_type) == 0;
}

static bool is_plain_gemm(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    return nd_op_f(&op_call, "alpha", 1) == 1 && nd_op_f(&op_call, "beta", 1) == 1 &&
           nd_op_i(&op_call, "transA", 0) == 0;
}

/* Scales along the output channels of constant weights, or one scale. */
static bool has_known_scales(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_linear_input *w = &job->call->inputs[1];
    int rank = w->values->shape.rank, axis = w->quant->axis < 0 ? w->quant->axis + rank : w->quant->axis;
    bool is_first = is_op(job, "Conv") || nd_op_i(&op_call, "transB", 0) != 0;
    for (size_t c = 0; c < w->quant->n; c++)
        if (!(w->quant->scale[c] > 0 && isfinite(w->quant->scale[c])))
            return false;
    if (w->quant->n == 1)
        return true;
    return job->unit->origins[1] == ND_EXACT_FROM_CONSTANT && axis == (is_first ? 0 : 1) &&
           (is_op(job, "Conv") || rank == 2);
}

static bool are_known_operands(const struct nd_htp_job *job)
{
    const struct nd_linear_input *x = &job->call->inputs[0], *w = &job->call->inputs[1];
    bool is_constant = job->unit->origins[1] == ND_EXACT_FROM_CONSTANT;
    if (nd_htp_plain(job, 0) == NULL || nd_htp_plain_output(job) == NULL || !nd_linear_has(job->call, 1) ||
        w->quant == NULL || w->quant->n == 0 || w->values->n == 0 || x->values->dtype != job->unit->dtype)
        return false;
    if (w->values->dtype == ND_DTYPE_U16) /* only what is calculated becomes 8-bit numbers */
        return !is_constant && x->values->dtype == ND_DTYPE_U16 && w->quant->n == 1 && is_op(job, "MatMul");
    return w->values->dtype == ND_DTYPE_U8 || (w->values->dtype == ND_DTYPE_I8 && is_constant);
}

static bool is_known_bias(const struct nd_htp_job *job, size_t n_columns)
{
    if (!nd_linear_has(job->call, 2))
        return true;
    const struct nd_linear_input *bias = &job->call->inputs[2];
    const struct nd_quant *quant = bias->quant;
    bool is_known = quant != NULL && bias->values->dtype == ND_DTYPE_I32 && bias->values->n == n_columns &&
                    job->unit->origins[2] == ND_EXACT_FROM_CONSTANT && (quant->n == 1 || quant->n == n_columns);
    for (size_t c = 0; is_known && c < quant->n; c++)
        is_known = quant->zero_point[c] == 0 && quant->scale[c] > 0 && isfinite(quant->scale[c]);
    return is_known;
}

static bool is_known_unit(const struct nd_htp_job *job)
{
    size_t n_inputs = job->call->n_inputs;
    if (n_inputs < 2 || n_inputs > 3 || !are_known_operands(job) || !has_known_scales(job))
        return false;
    int rank = job->call->inputs[1].values->shape.rank;
    if (is_op(job, "Gemm"))
        return is_plain_gemm(job);
    return is_op(job, "Conv") ? rank >= 3 : rank >= 2 && job->call->inputs[0].values->shape.rank >= 2;
}

/* The operator's attributes mean the same for weights and for what they were made of. */
static enum nd_status add_up(struct product *p, struct nd_error *err)
{
    const struct nd_array *inputs[] = {&p->x, &p->weights.w8};
    double largest;
    enum nd_status status = nd_linear_wholes(p->job->call, 0, &p->x, &largest, err);
    if (status == ND_OK)
        status = nd_linear_run(p->job->call, p->job->call->node, inputs, 2, &p->sums, err);
    if (status != ND_OK)
        return status;
    const struct nd_shape *shape = &p->sums.shape;
    bool is_conv = is_op(p->job, "Conv");
    p->n_channels = (size_t)shape->dims[is_conv ? 1 : shape->rank - 1];
    p->n_inner = is_conv ? nd_dims_product(shape, 2, shape->rank) : 1;
    p->n_matrix = is_conv ? 0 : p->n_channels * (size_t)shape->dims[shape->rank - 2];
    return ND_OK;
}

/* The column of the weights that goes into element i of the output. */
static size_t column_of(const struct product *p, size_t i)
{
    size_t channel = i / p->n_inner % p->n_channels;
    if (p->weights.n_columns == p->n_channels)
        return channel;
    return i / p->n_matrix * p->n_channels + channel; /* a matrix each */
}

static bool has_a_column_each(const struct product *p)
{
    return p->weights.n_columns == p->n_channels ||
           (p->n_matrix > 0 && p->sums.n / p->n_matrix * p->n_channels == p->weights.n_columns);
}

/* What all columns share. False: weights per channel that do not fit 8 bits, on which there is no evidence. */
static bool find_common(struct product *p)
{
    const struct nd_linear_call *call = p->job->call;
    const struct nd_linear_input *w = &call->inputs[1];
    struct nd_htp_column *common = &p->common;
    *common = (struct nd_htp_column){.scale_x = (double)call->inputs[0].quant->scale[0],
                                     .scale_y = (double)call->out_quant->scale[0],
                                     .zero_x = (double)call->inputs[0].quant->zero_point[0],
                                     .zero_y = (double)call->out_quant->zero_point[0],
                                     .is_per_channel = w->quant->n > 1};
    for (size_t c = 0; c < w->quant->n; c++)
        common->largest_scale_w = fmax(common->largest_scale_w, (double)w->quant->scale[c]);
    for (size_t c = 0; c < p->weights.n_columns && common->is_per_channel; c++)
        if (p->weights.r[c] != 1)
            return false;
    if (!nd_linear_has(call, 2))
        return true;
    const struct nd_linear_input *bias = &call->inputs[2];
    for (size_t c = 0; c < bias->quant->n; c++)
        common->largest_bias_scale = fmax(common->largest_bias_scale, (double)bias->quant->scale[c]);
    for (size_t c = 0; c < bias->values->n; c++) {
        float product = (float)bias->values->x[c] * (float)common->largest_bias_scale;
        common->largest_bias = fmax(common->largest_bias, fabs((double)product));
    }
    return true;
}

static struct nd_htp_scaling scaling_of(const struct product *p, size_t c)
{
    const struct nd_linear_call *call = p->job->call;
    struct nd_htp_column column = p->common;
    column.scale_w = p->weights.scale > 0 ? p->weights.scale : nd_linear_scale(&call->inputs[1], c);
    if (p->weights.scale > 0)
        column.largest_scale_w = p->weights.scale;
    column.r = p->weights.r[c];
    column.sum = p->weights.sums[c];
    if (nd_linear_has(call, 2)) {
        column.bias = call->inputs[2].values->x[c];
        column.bias_scale = nd_linear_scale(&call->inputs[2], c);
    }
    enum nd_htp_arch arch = p->job->program->arch;
    return p->job->unit->dtype == ND_DTYPE_U8 ? nd_htp_scaling8(arch, &column)
                                              : nd_htp_scaling16(arch, &column);
}

/* uint16: the sums of products with codes, not with what is left of them, lose 8 bits. */
static double shorten(const struct product *p, size_t column, double sum)
{
    double correction = p->common.zero_x * p->weights.sums[column];
    return floor((sum + correction) * 0x1p-8) - floor((correction + 128) * 0x1p-8);
}

static void requantise(struct product *p)
{
    struct nd_htp_bounds bounds = nd_htp_bounds_of(p->job);
    struct nd_htp_scaling scaling = {0};
    size_t known = SIZE_MAX;
    bool is_short = p->job->unit->dtype == ND_DTYPE_U16;
    for (size_t i = 0; i < p->sums.n; i++) {
        size_t column = column_of(p, i);
        if (column != known)
            scaling = scaling_of(p, column);
        known = column;
        double sum = is_short ? shorten(p, column, p->sums.x[i]) : p->sums.x[i];
        p->job->codes->x[i] = nd_htp_scale(&scaling, sum, &bounds);
    }
}

enum nd_status nd_htp_linear(const struct nd_htp_job *job, struct nd_error *err)
{
    struct product p = {.job = job};
    if (!is_known_unit(job))
        return ND_OK;
    enum nd_status status = nd_htp_weights_init(&p.weights, job, err);
    if (status == ND_OK)
        status = add_up(&p, err);
    bool is_covered =
        status == ND_OK && has_a_column_each(&p) && is_known_bias(job, p.weights.n_columns) && find_common(&p);
    if (is_covered)
        status = nd_array_make(job->codes, job->unit->dtype, &p.sums.shape, err);
    if (is_covered && status == ND_OK)
        requantise(&p);
    *job->is_covered = is_covered && status == ND_OK;
    nd_htp_weights_deinit(&p.weights);
    nd_array_deinit(&p.x);
    nd_array_deinit(&p.sums);
    return status;
}
