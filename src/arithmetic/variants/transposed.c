#include "arithmetic/variants/transposed.h"

#include <math.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "core/error.h"

enum { WEIGHTS = 1, MAX_INPUTS = 8 };

/* The place of the weights in the layer's inputs, or SIZE_MAX. */
static bool has_matrix(const struct nd_exact_layer *layer)
{
    const struct nd_linear_call *call = layer->call;
    const char *op = call->node != NULL ? call->node->op_type : "";
    if ((strcmp(op, "Gemm") != 0 && strcmp(op, "MatMul") != 0) || call->n_inputs <= WEIGHTS ||
        call->n_inputs > MAX_INPUTS || layer->origins[WEIGHTS] != ND_EXACT_FROM_CONSTANT)
        return false;
    const struct nd_array *weights = call->inputs[WEIGHTS].values;
    return weights != NULL && weights->shape.rank == 2 && weights->shape.dims[0] > 1 &&
           weights->shape.dims[1] > 1;
}

/* The bytes of the transposed matrix, in the shape of the matrix. */
static enum nd_status transpose(const struct nd_array *from, struct nd_array *to, bool *is_other,
                                struct nd_error *err)
{
    size_t n_rows = (size_t)from->shape.dims[0], n_columns = (size_t)from->shape.dims[1];
    enum nd_status status = nd_array_make(to, from->dtype, &from->shape, err);
    *is_other = false;
    for (size_t r = 0; status == ND_OK && r < n_rows; r++)
        for (size_t c = 0; c < n_columns; c++) {
            size_t at = c * n_rows + r;
            to->x[at] = from->x[r * n_columns + c];
            *is_other = *is_other || to->x[at] != from->x[at];
        }
    return status;
}

/* By exact values. Left empty where the operator or its quantisation is not covered. */
static enum nd_status round_exact(const struct nd_exact_layer *layer, const struct nd_rounding_rule *usual,
                                  struct nd_array *qvalues, struct nd_error *err)
{
    struct nd_linear_result result;
    struct nd_error problem = {0};
    const struct nd_quant *quant = layer->call->out_quant;
    enum nd_status status = nd_linear_layer(layer->call, &result, &problem);
    if (status == ND_ERR_MEMORY)
        return nd_fail_memory(err);
    if (status != ND_OK)
        return ND_OK;
    if (quant->n == 1)
        status = nd_array_make(qvalues, layer->dtype, &result.shape, err);
    for (size_t i = 0; status == ND_OK && quant->n == 1 && i < result.n; i++)
        qvalues->x[i] =
            nd_rounding_rule_qvalue(usual, &result.v[i], (double)quant->zero_point[0], layer->dtype);
    nd_linear_deinit(&result);
    return status;
}

enum nd_status nd_layer_transposed(const struct nd_exact_layer *layer,
                                   const struct nd_layer_arithmetic *layer_arithmetic,
                                   const struct nd_rounding_rule *usual, struct nd_array *qvalues,
                                   struct nd_error *err)
{
    struct nd_array turned = {0};
    struct nd_linear_input inputs[MAX_INPUTS];
    bool is_other = false, is_covered = false;
    *qvalues = (struct nd_array){0};
    if (!has_matrix(layer))
        return ND_OK;
    enum nd_status status = transpose(layer->call->inputs[WEIGHTS].values, &turned, &is_other, err);
    struct nd_linear_call call = *layer->call;
    memcpy(inputs, call.inputs, call.n_inputs * sizeof *inputs);
    inputs[WEIGHTS].values = &turned;
    inputs[WEIGHTS].packed_weights = NULL;
    call.shared = NULL;
    call.inputs = inputs;
    struct nd_exact_layer changed = *layer;
    changed.call = &call;
    if (status == ND_OK && is_other && layer_arithmetic != NULL)
        status = nd_layer_arithmetic_run(layer_arithmetic, &changed, NULL, qvalues, &is_covered, err);
    if (status == ND_OK && is_other && !is_covered)
        status = round_exact(&changed, usual, qvalues, err);
    nd_array_deinit(&turned);
    if (status != ND_OK)
        nd_array_deinit(qvalues);
    return status;
}
