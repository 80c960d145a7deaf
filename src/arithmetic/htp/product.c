/* Which products there is evidence of, by operator, attributes and operands. */
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/tensors/scales.h"

static bool is_op(const struct nd_htp_job *job, const char *op_type)
{
    return strcmp(job->call->node->op_type, op_type) == 0;
}

bool nd_htp_is_transposed(const struct nd_htp_job *job)
{
    return is_op(job, "ConvTranspose");
}

bool nd_htp_is_conv(const struct nd_htp_job *job)
{
    return is_op(job, "Conv") || nd_htp_is_transposed(job);
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
    bool is_first = is_op(job, "Conv") || (is_op(job, "Gemm") && nd_op_i(&op_call, "transB", 0) != 0);
    if (w->quant->n == 1 || !nd_quant_is_sound(w->quant))
        return nd_quant_is_sound(w->quant);
    return job->layer->origins[1] == ND_EXACT_FROM_CONSTANT && axis == (is_first ? 0 : 1) &&
           (nd_htp_is_conv(job) || rank == 2);
}

static bool are_known_operands(const struct nd_htp_job *job)
{
    const struct nd_linear_input *x = &job->call->inputs[0], *w = &job->call->inputs[1];
    bool is_constant = job->layer->origins[1] == ND_EXACT_FROM_CONSTANT;
    if (nd_htp_plain(job, 0) == NULL || nd_htp_plain_output(job) == NULL || !nd_linear_has(job->call, 1) ||
        w->quant == NULL || w->quant->n == 0 || w->values->n == 0 || x->values->dtype != job->layer->dtype)
        return false;
    if (w->values->dtype == ND_DTYPE_U16) /* only what is calculated becomes 8-bit numbers */
        return !is_constant && x->values->dtype == ND_DTYPE_U16 && w->quant->n == 1 && is_op(job, "MatMul");
    return w->values->dtype == ND_DTYPE_U8 || (w->values->dtype == ND_DTYPE_I8 && is_constant);
}

bool nd_htp_is_product(const struct nd_htp_job *job)
{
    size_t n_inputs = job->call->n_inputs;
    if (n_inputs < 2 || n_inputs > 3 || !are_known_operands(job) || !has_known_scales(job))
        return false;
    int rank = job->call->inputs[1].values->shape.rank;
    if (is_op(job, "Gemm"))
        return is_plain_gemm(job);
    if (nd_htp_is_transposed(job))
        return nd_htp_is_known_transposed(job);
    return is_op(job, "Conv") ? rank >= 3 : rank >= 2 && job->call->inputs[0].values->shape.rank >= 2;
}
