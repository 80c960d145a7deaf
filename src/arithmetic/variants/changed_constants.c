/* What a product by constants gives when these are not the model's, or are read in another way: exact values,
 * or those of an arithmetic. docs/reference/diagnoses.md has the faults that do so. */
#include "arithmetic/variants/changed_constants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_values.h"
#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/operators/ops_shared.h"
#include "core/error.h"
#include "core/memory.h"

enum { WEIGHTS = 1, BIAS = 2, MAX_INPUTS = 4 };

/* A layer with other constants. */
struct changed {
    struct nd_exact_layer layer;
    struct nd_linear_call call;
    struct nd_linear_input inputs[MAX_INPUTS];
    struct nd_array values; /* in the place of one of them */
    struct nd_quant quant;  /* of the weights; scale is owned where it is another one */
    bool is_other;          /* some constant is another one */
};

static bool is_op(const struct nd_linear_call *call, const char *name)
{
    return call->node != NULL && strcmp(call->node->op_type, name) == 0;
}

static bool has_constants(const struct nd_exact_layer *layer)
{
    const struct nd_linear_call *call = layer->call;
    bool is_product =
        is_op(call, "Conv") || is_op(call, "ConvTranspose") || is_op(call, "Gemm") || is_op(call, "MatMul");
    if (!is_product || call->n_inputs <= WEIGHTS || call->n_inputs > MAX_INPUTS || call->out_quant->n != 1)
        return false;
    const struct nd_linear_input *weights = &call->inputs[WEIGHTS];
    return layer->origins[0] != ND_EXACT_FROM_CONSTANT && layer->origins[WEIGHTS] == ND_EXACT_FROM_CONSTANT &&
           weights->values != NULL && weights->quant != NULL && weights->quant->n > 0;
}

/* ---- changes ---- */

/* How the channel of the output is counted in the weights: channel = i / inner % n. False: it is not. */
static bool find_channel(const struct nd_linear_call *call, size_t *n, size_t *inner)
{
    const struct nd_shape *shape = &call->inputs[WEIGHTS].values->shape;
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    bool is_first = is_op(call, "Conv") || (is_op(call, "Gemm") && nd_op_i(&op_call, "transB", 0) != 0);
    bool is_second = is_op(call, "ConvTranspose") && nd_op_i(&op_call, "group", 1) == 1;
    int axis = is_first ? 0 : is_second ? 1 : shape->rank - 1;
    if ((is_op(call, "ConvTranspose") && !is_second) || shape->rank < 2)
        return false;
    *n = (size_t)shape->dims[axis];
    *inner = 1;
    for (int a = axis + 1; a < shape->rank; a++)
        *inner *= (size_t)shape->dims[a];
    return true;
}

static double zero_of(const struct nd_linear_input *input, size_t i)
{
    const struct nd_quant *quant = input->quant;
    if (quant == NULL || quant->n == 0)
        return 0;
    return (double)quant->zero_point[nd_exact_channel(quant, &input->values->shape, i)];
}

static enum nd_status copy_values(struct changed *c, size_t place, struct nd_error *err)
{
    enum nd_status status = nd_array_copy(c->call.inputs[place].values, &c->values, err);
    c->inputs[place].values = &c->values;
    c->inputs[place].packed_weights = NULL;
    c->inputs[place].shorts = NULL;
    return status;
}

static enum nd_status change_bias(struct changed *c, const struct nd_changed_constants *change, double factor,
                                  struct nd_error *err)
{
    if (c->call.n_inputs <= BIAS || c->inputs[BIAS].values == NULL)
        return ND_OK;
    enum nd_status status = copy_values(c, BIAS, err);
    for (size_t i = 0; status == ND_OK && i < c->values.n; i++) {
        double zero = zero_of(&c->inputs[BIAS], i), old = c->values.x[i];
        if (change->channel == SIZE_MAX || i == change->channel)
            c->values.x[i] = zero + factor * (old - zero);
        c->is_other = c->is_other || c->values.x[i] != old;
    }
    return status;
}

static enum nd_status change_qvalues(struct changed *c, const struct nd_changed_constants *change,
                                     struct nd_error *err)
{
    size_t n = 1, inner = 1;
    double low, high;
    if (change->channel != SIZE_MAX && !find_channel(&c->call, &n, &inner))
        return ND_OK;
    enum nd_status status = copy_values(c, WEIGHTS, err);
    nd_qvalue_range(c->values.dtype, &low, &high);
    for (size_t i = 0; status == ND_OK && i < c->values.n; i++) {
        double zero = zero_of(&c->inputs[WEIGHTS], i), old = c->values.x[i];
        bool is_meant = change->channel == SIZE_MAX || i / inner % n == change->channel;
        double qvalue = change->kind == ND_CONSTANTS_WEIGHTS_RECODED
                            ? rint(zero + change->amount * (old - zero))
                            : old + change->amount;
        if (change->kind != ND_CONSTANTS_ZERO_POINT_MOVED)
            qvalue = fmin(fmax(qvalue, low), high);
        c->values.x[i] = is_meant ? qvalue : old;
        c->is_other = c->is_other || c->values.x[i] != old;
    }
    return status;
}

static enum nd_status change_scale(struct changed *c, const struct nd_changed_constants *change,
                                   struct nd_error *err)
{
    const struct nd_quant *from = c->inputs[WEIGHTS].quant;
    if (change->channel != SIZE_MAX && (from->n == 1 || change->channel >= from->n))
        return ND_OK;
    float *scale = nd_calloc(from->n, sizeof *scale);
    if (scale == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < from->n; i++) {
        bool is_meant = change->channel == SIZE_MAX || i == change->channel;
        scale[i] = is_meant ? (float)((double)from->scale[i] * change->amount) : from->scale[i];
    }
    c->quant = *from;
    c->quant.scale = scale;
    c->inputs[WEIGHTS].quant = &c->quant;
    c->inputs[WEIGHTS].packed_weights = NULL;
    c->inputs[WEIGHTS].shorts = NULL;
    c->is_other = change->amount != 1;
    return ND_OK;
}

static enum nd_status change_kernels(struct changed *c, bool is_turned, struct nd_error *err)
{
    const struct nd_array *from = c->call.inputs[WEIGHTS].values;
    int rank = from->shape.rank;
    if (strncmp(c->call.node->op_type, "Conv", 4) != 0 || rank != 4)
        return ND_OK;
    size_t rows = (size_t)from->shape.dims[2], columns = (size_t)from->shape.dims[3], size = rows * columns;
    if (size < 2 || (!is_turned && rows != columns))
        return ND_OK;
    enum nd_status status = copy_values(c, WEIGHTS, err);
    for (size_t i = 0; status == ND_OK && i < from->n; i++) {
        size_t at = i % size, row = at / columns, column = at % columns;
        size_t other = is_turned ? size - 1 - at : column * columns + row;
        c->values.x[i] = from->x[i - at + other];
        c->is_other = c->is_other || c->values.x[i] != from->x[i];
    }
    return status;
}

/* c is zeroed before; deinit in any case. */
static enum nd_status change_layer(const struct nd_exact_layer *layer,
                                   const struct nd_changed_constants *change, struct changed *c,
                                   struct nd_error *err)
{
    c->layer = *layer;
    c->call = *layer->call;
    memcpy(c->inputs, c->call.inputs, c->call.n_inputs * sizeof *c->inputs);
    c->call.shared = NULL;
    enum nd_status status = ND_OK;
    switch (change->kind) {
    case ND_CONSTANTS_AS_THEY_ARE:
        break;
    case ND_CONSTANTS_BIAS_LOST:
        status = change_bias(c, change, 0, err);
        break;
    case ND_CONSTANTS_BIAS_NEGATED:
        status = change_bias(c, change, -1, err);
        break;
    case ND_CONSTANTS_WEIGHTS_SCALED:
        status = change_scale(c, change, err);
        break;
    case ND_CONSTANTS_WEIGHTS_RECODED:
    case ND_CONSTANTS_WEIGHTS_MOVED:
    case ND_CONSTANTS_ZERO_POINT_MOVED:
        status = change_qvalues(c, change, err);
        break;
    case ND_CONSTANTS_KERNEL_TRANSPOSED:
    case ND_CONSTANTS_KERNEL_TURNED:
        status = change_kernels(c, change->kind == ND_CONSTANTS_KERNEL_TURNED, err);
        break;
    }
    c->call.inputs = c->inputs;
    c->layer.call = &c->call;
    return status;
}

static void changed_deinit(struct changed *c)
{
    nd_array_deinit(&c->values);
    free(c->quant.scale);
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

enum nd_status nd_layer_changed(const struct nd_exact_layer *layer,
                                const struct nd_layer_arithmetic *layer_arithmetic,
                                const struct nd_rounding_rule *usual, const struct nd_changed_constants *change,
                                struct nd_array *qvalues, struct nd_error *err)
{
    struct changed c = {.is_other = false};
    bool is_covered = false;
    *qvalues = (struct nd_array){0};
    if (!has_constants(layer))
        return ND_OK;
    enum nd_status status = change_layer(layer, change, &c, err);
    if (status == ND_OK && c.is_other && layer_arithmetic != NULL)
        status = nd_layer_arithmetic_run(layer_arithmetic, &c.layer, NULL, qvalues, &is_covered, err);
    if (status == ND_OK && c.is_other && !is_covered)
        status = round_exact(&c.layer, usual, qvalues, err);
    changed_deinit(&c);
    if (status != ND_OK)
        nd_array_deinit(qvalues);
    return status;
}

/* Without bounds. Left empty as above. */
static enum nd_status find_exact(struct changed *c, struct nd_array *values, struct nd_error *err)
{
    struct nd_linear_result result;
    struct nd_error problem = {0};
    c->call.low = -HUGE_VAL;
    c->call.high = HUGE_VAL;
    enum nd_status status = nd_linear_layer(&c->call, &result, &problem);
    if (status != ND_OK)
        return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK;
    status = nd_array_make(values, ND_DTYPE_F64, &result.shape, err);
    for (size_t i = 0; status == ND_OK && i < result.n; i++)
        values->x[i] = nd_ratio_value(&result.v[i]);
    nd_linear_deinit(&result);
    return status;
}

static void describe(const struct nd_exact_layer *layer, struct nd_product_parts *out)
{
    const struct nd_linear_call *call = layer->call;
    const struct nd_shape *shape = &out->products.shape;
    double scale = (double)call->out_quant->scale[0], zero = (double)call->out_quant->zero_point[0];
    int axis = is_op(call, "Conv") || is_op(call, "ConvTranspose") ? 1 : shape->rank - 1;
    out->n_channels = axis >= 0 && axis < shape->rank ? (size_t)shape->dims[axis] : 1;
    out->n_inner = 1;
    for (int a = axis + 1; a < shape->rank; a++)
        out->n_inner *= (size_t)shape->dims[a];
    nd_qvalue_range(layer->dtype, &out->low, &out->high);
    out->low = fmax(out->low, zero + call->low / scale);
    out->high = fmin(out->high, zero + call->high / scale);
}

/* What is added to the weights, as quantised values of such weights. */
static enum nd_status make_added(const struct nd_linear_input *weights, double shift, struct nd_array *out,
                                 struct nd_error *err)
{
    double low, high;
    nd_qvalue_range(weights->values->dtype, &low, &high);
    enum nd_status status = nd_array_copy(weights->values, out, err);
    for (size_t i = 0; status == ND_OK && i < out->n; i++) {
        double added = shift == 0 ? 1 : fmin(fmax(out->x[i] + shift, low), high) - out->x[i];
        out->x[i] = zero_of(weights, i) + added;
    }
    return status;
}

enum nd_status nd_layer_product_parts(const struct nd_exact_layer *layer, double shift,
                                      struct nd_product_parts *out, struct nd_error *err)
{
    static const struct nd_changed_constants no_bias = {ND_CONSTANTS_BIAS_LOST, SIZE_MAX, 0};
    struct changed c = {.is_other = false};
    struct nd_array added = {0};
    *out = (struct nd_product_parts){.n_channels = 0};
    if (!has_constants(layer))
        return ND_OK;
    enum nd_status status = change_layer(layer, &no_bias, &c, err);
    if (status == ND_OK)
        status = find_exact(&c, &out->products, err);
    if (status == ND_OK)
        status = make_added(&layer->call->inputs[WEIGHTS], shift, &added, err);
    c.inputs[WEIGHTS].values = &added;
    c.inputs[WEIGHTS].packed_weights = NULL;
    c.inputs[WEIGHTS].shorts = NULL;
    if (status == ND_OK)
        status = find_exact(&c, &out->moved, err);
    if (status == ND_OK && out->products.n > 0)
        describe(layer, out);
    nd_array_deinit(&added);
    changed_deinit(&c);
    return status;
}

void nd_product_parts_deinit(struct nd_product_parts *parts)
{
    nd_array_deinit(&parts->products);
    nd_array_deinit(&parts->moved);
}

/* ---- a matrix of weights whose bytes are read in the other order ---- */

enum { MAX_MATRIX_INPUTS = 8 };

/* The place of the weights in the layer's inputs, or SIZE_MAX. */
static bool has_matrix(const struct nd_exact_layer *layer)
{
    const struct nd_linear_call *call = layer->call;
    const char *op = call->node != NULL ? call->node->op_type : "";
    if ((strcmp(op, "Gemm") != 0 && strcmp(op, "MatMul") != 0) || call->n_inputs <= WEIGHTS ||
        call->n_inputs > MAX_MATRIX_INPUTS || layer->origins[WEIGHTS] != ND_EXACT_FROM_CONSTANT)
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

enum nd_status nd_layer_transposed(const struct nd_exact_layer *layer,
                                   const struct nd_layer_arithmetic *layer_arithmetic,
                                   const struct nd_rounding_rule *usual, struct nd_array *qvalues,
                                   struct nd_error *err)
{
    struct nd_array turned = {0};
    struct nd_linear_input inputs[MAX_MATRIX_INPUTS];
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

/* ---- the scales of weights along another axis ---- */

static bool has_scales_along_axis(const struct nd_exact_layer *layer)
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
    if (!has_scales_along_axis(layer) || (*other = find_axis(&layer->call->inputs[WEIGHTS], own)) < 0)
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
