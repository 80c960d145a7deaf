#include "arithmetic/variants/other_axis.h"

#include <math.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_families.h"
#include "core/error.h"

enum { WEIGHTS = 1, MAX_INPUTS = 4 };

static bool has_channels(const struct nd_exact_layer *layer)
{
    static const char *const names[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    const struct nd_linear_call *call = layer->call;
    bool is_product = false;
    for (size_t i = 0; call->node != NULL && i < sizeof names / sizeof *names; i++)
        is_product = is_product || strcmp(call->node->op_type, names[i]) == 0;
    if (!is_product || call->n_inputs <= WEIGHTS || call->n_inputs > MAX_INPUTS || call->out_quant->n != 1)
        return false;
    const struct nd_linear_input *weights = &call->inputs[WEIGHTS];
    return layer->origins[WEIGHTS] == ND_EXACT_FROM_CONSTANT && weights->values != NULL &&
           weights->quant != NULL && weights->quant->n > 1;
}

/* The first other axis of the same length; -1: none. */
static int find_axis(const struct nd_linear_input *weights, int *own)
{
    const struct nd_shape *shape = &weights->values->shape;
    *own = weights->quant->axis < 0 ? weights->quant->axis + shape->rank : weights->quant->axis;
    for (int axis = 0; axis < shape->rank; axis++)
        if (axis != *own && (size_t)shape->dims[axis] == weights->quant->n)
            return axis;
    return -1;
}

/* All inputs as real numbers, the weights by the other axis. */
static enum nd_status make_reals(const struct nd_linear_call *call, struct nd_array *reals, size_t *n,
                                 struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (*n = 0; *n < call->n_inputs && status == ND_OK; (*n)++)
        if (call->inputs[*n].values != NULL)
            status = nd_linear_reals(call, *n, &reals[*n], err);
    return status;
}

static void round_reals(const struct nd_exact_layer *layer, const struct nd_rounding_rule *usual,
                        struct nd_array *qvalues)
{
    const struct nd_linear_call *call = layer->call;
    double scale = (double)call->out_quant->scale[0], zero = (double)call->out_quant->zero_point[0];
    for (size_t i = 0; i < qvalues->n; i++) {
        const struct nd_ratio ratio = nd_ratio_of(fmin(fmax(qvalues->x[i], call->low), call->high), scale);
        qvalues->x[i] = nd_rounding_rule_qvalue(usual, &ratio, zero, layer->dtype);
    }
}

enum nd_status nd_layer_other_axis(const struct nd_exact_layer *layer, const struct nd_rounding_rule *usual,
                                   struct nd_array *qvalues, int *own, int *other, struct nd_error *err)
{
    struct nd_array reals[MAX_INPUTS] = {{.n = 0}};
    const struct nd_array *pointers[MAX_INPUTS] = {NULL};
    struct nd_linear_input inputs[MAX_INPUTS];
    struct nd_error problem = {0};
    size_t n = 0;
    *qvalues = (struct nd_array){0};
    if (!has_channels(layer) || (*other = find_axis(&layer->call->inputs[WEIGHTS], own)) < 0)
        return ND_OK;
    struct nd_linear_call call = *layer->call;
    memcpy(inputs, call.inputs, call.n_inputs * sizeof *inputs);
    struct nd_quant quant = *inputs[WEIGHTS].quant;
    quant.axis = *other;
    inputs[WEIGHTS].quant = &quant;
    inputs[WEIGHTS].packed_weights = NULL;
    call.shared = NULL;
    call.inputs = inputs;
    enum nd_status status = make_reals(&call, reals, &n, &problem);
    for (size_t i = 0; i < n; i++)
        pointers[i] = call.inputs[i].values != NULL ? &reals[i] : NULL;
    if (status == ND_OK)
        status = nd_linear_run(&call, call.node, pointers, n, qvalues, &problem);
    if (status == ND_OK)
        round_reals(layer, usual, qvalues);
    else
        nd_array_deinit(qvalues);
    for (size_t i = 0; i < MAX_INPUTS; i++)
        nd_array_deinit(&reals[i]);
    return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK;
}
