/* What a product by constants gives when these are not the model's, or are read in another way: exact values,
 * or those of an arithmetic. docs/reference/diagnoses.md has the faults that do so. */
#include "arithmetic/variants/changed_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/exact/linear/linear_values.h"
#include "arithmetic/operators/ops_shared.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"

/* A layer with other constants. */
struct changed {
    struct nd_exact_layer layer;
    struct nd_linear_call call;
    struct nd_linear_input inputs[ND_CHANGED_INPUTS];
    struct nd_array values; /* in the place of one of them */
    struct nd_quant quant;  /* of the weights, where it is another one */
    float *scale;           /* of it; owned */
    const double *zeros;    /* zero points of the weights, one for each; NULL: those of their quantisation */
    double nobody_knows;    /* what is read behind the last weight */
    size_t n_known;         /* the outputs before it read no such thing */
    bool is_other;          /* some constant is another one */
};

static bool is_op(const struct nd_linear_call *call, const char *name)
{
    return call->node != NULL && strcmp(call->node->op_type, name) == 0;
}

bool nd_is_product(const struct nd_linear_call *call)
{
    return is_op(call, "Conv") || is_op(call, "ConvTranspose") || is_op(call, "Gemm") || is_op(call, "MatMul");
}

static bool has_constants(const struct nd_exact_layer *layer)
{
    const struct nd_linear_call *call = layer->call;
    if (!nd_is_product(call) || call->n_inputs <= ND_CHANGED_WEIGHTS || call->n_inputs > ND_CHANGED_INPUTS ||
        call->out_quant->n != 1)
        return false;
    const struct nd_linear_input *weights = &call->inputs[ND_CHANGED_WEIGHTS];
    return layer->origins[0] != ND_EXACT_FROM_CONSTANT &&
           layer->origins[ND_CHANGED_WEIGHTS] == ND_EXACT_FROM_CONSTANT && weights->values != NULL &&
           weights->quant != NULL && weights->quant->n > 0;
}

/* ---- changes ---- */

/* How the channel of the output is counted in the weights: channel = i / inner % n. False: it is not. */
static bool find_channel(const struct nd_linear_call *call, size_t *n, size_t *inner)
{
    const struct nd_shape *shape = &call->inputs[ND_CHANGED_WEIGHTS].values->shape;
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

static double zero_of_weight(const struct changed *c, size_t i)
{
    return c->zeros != NULL ? c->zeros[i] : zero_of(&c->call.inputs[ND_CHANGED_WEIGHTS], i);
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
    if (c->call.n_inputs <= ND_CHANGED_BIAS || c->inputs[ND_CHANGED_BIAS].values == NULL)
        return ND_OK;
    enum nd_status status = copy_values(c, ND_CHANGED_BIAS, err);
    for (size_t i = 0; status == ND_OK && i < c->values.n; i++) {
        double zero = zero_of(&c->inputs[ND_CHANGED_BIAS], i), old = c->values.x[i];
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
    enum nd_status status = copy_values(c, ND_CHANGED_WEIGHTS, err);
    nd_qvalue_range(c->values.dtype, &low, &high);
    for (size_t i = 0; status == ND_OK && i < c->values.n; i++) {
        double zero = zero_of_weight(c, i), old = c->values.x[i];
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

/* The first other axis as long as that of the scales; -1: none. */
static int other_axis(const struct nd_linear_input *weights)
{
    const struct nd_shape *shape = &weights->values->shape;
    int own = weights->quant->axis < 0 ? weights->quant->axis + shape->rank : weights->quant->axis;
    for (int axis = 0; axis < shape->rank && weights->quant->n > 1; axis++)
        if (axis != own && (size_t)shape->dims[axis] == weights->quant->n)
            return axis;
    return -1;
}

static enum nd_status change_scale(struct changed *c, const struct nd_changed_constants *change,
                                   struct nd_error *err)
{
    const struct nd_quant *from = c->inputs[ND_CHANGED_WEIGHTS].quant;
    if (change->channel != SIZE_MAX && (from->n == 1 || change->channel >= from->n))
        return ND_OK;
    float *scale = c->scale = nd_calloc(from->n, sizeof *scale);
    ND_TRY_MEMORY(scale != NULL, err);
    for (size_t i = 0; i < from->n; i++) {
        bool is_meant = change->channel == SIZE_MAX || i == change->channel;
        scale[i] = is_meant ? (float)((double)from->scale[i] * change->amount) : from->scale[i];
    }
    c->quant = *from;
    c->quant.scale = scale;
    c->inputs[ND_CHANGED_WEIGHTS].quant = &c->quant;
    c->inputs[ND_CHANGED_WEIGHTS].packed_weights = NULL;
    c->inputs[ND_CHANGED_WEIGHTS].shorts = NULL;
    c->is_other = change->amount != 1;
    return ND_OK;
}

/* A backend counts channels along one axis, and the scales belong to another one of the same length. */
static void change_scales_axis(struct changed *c)
{
    const struct nd_linear_input *weights = &c->call.inputs[ND_CHANGED_WEIGHTS];
    int other = weights->quant != NULL ? other_axis(weights) : -1;
    if (other < 0)
        return;
    c->quant = *weights->quant;
    c->quant.axis = other;
    c->inputs[ND_CHANGED_WEIGHTS].quant = &c->quant;
    c->inputs[ND_CHANGED_WEIGHTS].packed_weights = NULL;
    c->inputs[ND_CHANGED_WEIGHTS].shorts = NULL;
    c->is_other = true;
}

static void copy_qvalues(struct changed *c)
{
    const struct nd_quant *quant = c->call.out_quant;
    for (size_t i = 0; i < c->call.n_inputs && quant->n == 1; i++) {
        const struct nd_quant *own = c->inputs[i].quant;
        if (own == NULL || own->n != 1 ||
            (own->scale[0] == quant->scale[0] && own->zero_point[0] == quant->zero_point[0]))
            continue;
        c->inputs[i].quant = quant;
        c->is_other = true;
    }
}

static enum nd_status change_kernels(struct changed *c, bool is_turned, struct nd_error *err)
{
    const struct nd_array *from = c->call.inputs[ND_CHANGED_WEIGHTS].values;
    int rank = from->shape.rank;
    if (strncmp(c->call.node->op_type, "Conv", 4) != 0 || rank != 4)
        return ND_OK;
    size_t rows = (size_t)from->shape.dims[2], columns = (size_t)from->shape.dims[3], size = rows * columns;
    if (size < 2 || (!is_turned && rows != columns))
        return ND_OK;
    enum nd_status status = copy_values(c, ND_CHANGED_WEIGHTS, err);
    for (size_t i = 0; status == ND_OK && i < from->n; i++) {
        size_t at = i % size, row = at / columns, column = at % columns;
        size_t other = is_turned ? size - 1 - at : column * columns + row;
        c->values.x[i] = from->x[i - at + other];
        c->is_other = c->is_other || c->values.x[i] != from->x[i];
    }
    return status;
}

/* ---- bits and places of the stored weights ---- */

static double read_bits(const struct nd_changed_constants *change, double qvalue, double zero, double low,
                        double half)
{
    bool is_upper = qvalue >= low + half;
    switch (change->kind) {
    case ND_CONSTANTS_ZERO_POINT_TAKEN:
        return qvalue + zero - low - change->amount * 2 * half;
    case ND_CONSTANTS_SIGN_FLIPPED:
        return is_upper ? qvalue - half : qvalue + half;
    default: /* ND_CONSTANTS_OTHER_TYPE */
        return low < 0 && !is_upper ? qvalue + 2 * half : low == 0 && is_upper ? qvalue - 2 * half : qvalue;
    }
}

static enum nd_status change_bits(struct changed *c, const struct nd_changed_constants *change,
                                  struct nd_error *err)
{
    double low, high;
    size_t n = 1, inner = 1;
    if (!nd_dtype_is_of_qvalues(c->call.inputs[ND_CHANGED_WEIGHTS].values->dtype) ||
        (change->is_alone && !find_channel(&c->call, &n, &inner)))
        return ND_OK;
    enum nd_status status = copy_values(c, ND_CHANGED_WEIGHTS, err);
    nd_qvalue_range(c->values.dtype, &low, &high);
    for (size_t i = 0; status == ND_OK && i < c->values.n; i++) {
        double old = c->values.x[i];
        if (!change->is_alone || i / inner % n > 0)
            c->values.x[i] = read_bits(change, old, zero_of_weight(c, i), low, (high - low + 1) / 2);
        c->is_other = c->is_other || c->values.x[i] != old;
    }
    return status;
}

bool nd_weight_rows_find(const struct nd_linear_call *call, bool is_as_stored, struct nd_weight_rows *rows)
{
    const struct nd_array *weights = call->inputs[ND_CHANGED_WEIGHTS].values;
    if (!find_channel(call, &rows->n, &rows->inner) || weights->n == 0)
        return false;
    bool is_other = rows->inner == 1 && rows->n > 1; /* than as they are stored */
    if (is_as_stored)
        rows->n = weights->n / (rows->inner = (size_t)weights->shape.dims[weights->shape.rank - 1]);
    rows->n_columns = weights->n / rows->n;
    return rows->n > 1 && rows->n_columns > 1 && (!is_as_stored || is_other);
}

static size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* How far apart rows are in memory, and are read: in weights. False: another change reads the same. */
static bool find_strides(const struct nd_changed_constants *change, size_t n_columns, size_t *stored,
                         size_t *read)
{
    *stored = round_up(n_columns, change->stored);
    *read = round_up(n_columns, change->read);
    for (size_t less = 1; less < change->stored || less < change->read; less = less == 1 ? 8 : 2 * less)
        if ((less < change->stored && round_up(n_columns, less) == *stored) ||
            (less < change->read && round_up(n_columns, less) == *read))
            return false;
    *read += (size_t)change->apart;
    return *read != *stored && *read > 0 && *read <= 2 * n_columns + change->read;
}

/* Between rows lie weights of 0. */
static enum nd_status change_rows(struct changed *c, const struct nd_changed_constants *change,
                                  struct nd_error *err)
{
    static const size_t most_unknown = 4; /* one of so many outputs; chosen: the others must tell */
    const struct nd_array *from = c->call.inputs[ND_CHANGED_WEIGHTS].values;
    struct nd_weight_rows rows;
    size_t stored, read;
    if (!nd_weight_rows_find(&c->call, change->is_as_stored, &rows) ||
        !find_strides(change, rows.n_columns, &stored, &read))
        return ND_OK;
    size_t n_whole = (rows.n * stored - rows.n_columns) / read + 1;
    if (n_whole < rows.n && (change->is_as_stored || (rows.n - n_whole) * most_unknown > rows.n))
        return ND_OK; /* rows as they are stored have a part in every output */
    c->n_known = n_whole < rows.n ? n_whole : SIZE_MAX;
    enum nd_status status = copy_values(c, ND_CHANGED_WEIGHTS, err);
    for (size_t j = 0; status == ND_OK && j < rows.n; j++)
        for (size_t k = 0; k < rows.n_columns; k++) {
            size_t at = j * read + k, row = at / stored, column = at % stored,
                   to = nd_weight_place(&rows, j, k);
            c->values.x[to] = row >= rows.n              ? zero_of_weight(c, to) + c->nobody_knows
                              : column >= rows.n_columns ? zero_of_weight(c, to)
                                                         : from->x[nd_weight_place(&rows, row, column)];
            c->is_other = c->is_other || c->values.x[to] != from->x[to];
        }
    return status;
}

/* Which terms of a sum of n the part is: false where there is none. */
static bool find_part(const struct nd_changed_constants *change, size_t n, size_t *from, size_t *to)
{
    size_t rest = n % change->read, length = change->part == 0 ? rest : n / change->read;
    *from = change->part > 0 ? 0 : n - length;
    *to = *from + length;
    return length > 0 && length < n && (change->part == 0 || rest == 0);
}

static enum nd_status lose_terms(struct changed *c, const struct nd_changed_constants *change,
                                 struct nd_error *err)
{
    struct nd_weight_rows rows;
    size_t from, to;
    if (!nd_weight_rows_find(&c->call, false, &rows) || !find_part(change, rows.n_columns, &from, &to))
        return ND_OK;
    enum nd_status status = copy_values(c, ND_CHANGED_WEIGHTS, err);
    for (size_t i = 0; status == ND_OK && i < rows.n * rows.n_columns; i++) {
        size_t k = i % rows.n_columns, at = nd_weight_place(&rows, i / rows.n_columns, k);
        double old = c->values.x[at];
        if ((k >= from && k < to) != change->is_alone)
            c->values.x[at] = zero_of_weight(c, at);
        c->is_other = c->is_other || c->values.x[at] != old;
    }
    return status;
}

static enum nd_status repeat_group(struct changed *c, const struct nd_changed_constants *change,
                                   struct nd_error *err)
{
    const struct nd_array *from = c->call.inputs[ND_CHANGED_WEIGHTS].values;
    struct nd_weight_rows rows;
    if (!nd_weight_rows_find(&c->call, false, &rows) || rows.n_columns <= change->read)
        return ND_OK;
    enum nd_status status = copy_values(c, ND_CHANGED_WEIGHTS, err);
    for (size_t i = 0; status == ND_OK && i < rows.n * rows.n_columns; i++) {
        size_t j = i / rows.n_columns, k = i % rows.n_columns, at = nd_weight_place(&rows, j, k);
        c->values.x[at] = from->x[nd_weight_place(&rows, j, k % change->read)];
        c->is_other = c->is_other || c->values.x[at] != from->x[at];
    }
    return status;
}

static enum nd_status swap_nibbles(struct changed *c, const struct nd_changed_constants *change,
                                   struct nd_error *err)
{
    const struct nd_array *from = c->call.inputs[ND_CHANGED_WEIGHTS].values;
    struct nd_weight_rows rows;
    if ((from->dtype != ND_DTYPE_U4 && from->dtype != ND_DTYPE_I4) ||
        !nd_weight_rows_find(&c->call, change->is_as_stored, &rows))
        return ND_OK;
    enum nd_status status = copy_values(c, ND_CHANGED_WEIGHTS, err);
    for (size_t j = 0; status == ND_OK && j < rows.n; j++)
        for (size_t k = 0; k < rows.n_columns; k++) {
            size_t to = nd_weight_place(&rows, j, k);
            if ((k ^ 1) < rows.n_columns)
                c->values.x[to] = from->x[nd_weight_place(&rows, j, k ^ 1)];
            c->is_other = c->is_other || c->values.x[to] != from->x[to];
        }
    return status;
}

/* The bytes of the transposed matrix, in the shape of the matrix. */
static enum nd_status transpose(struct changed *c, struct nd_error *err)
{
    const struct nd_array *from = c->call.inputs[ND_CHANGED_WEIGHTS].values;
    if ((!is_op(&c->call, "Gemm") && !is_op(&c->call, "MatMul")) || from->shape.rank != 2)
        return ND_OK;
    size_t n_rows = (size_t)from->shape.dims[0], n_columns = (size_t)from->shape.dims[1];
    enum nd_status status = copy_values(c, ND_CHANGED_WEIGHTS, err);
    for (size_t i = 0; status == ND_OK && i < from->n; i++) {
        c->values.x[i % n_columns * n_rows + i / n_columns] = from->x[i];
        c->is_other = c->is_other || from->x[i % n_columns * n_rows + i / n_columns] != from->x[i];
    }
    return status;
}

/* c is zeroed before, but for its call; deinit in any case. */
static enum nd_status change_call(struct changed *c, const struct nd_changed_constants *change,
                                  struct nd_error *err)
{
    enum nd_status status = ND_OK;
    memcpy(c->inputs, c->call.inputs, c->call.n_inputs * sizeof *c->inputs);
    c->call.shared = NULL;
    c->n_known = SIZE_MAX;
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
    case ND_CONSTANTS_ZERO_POINT_TAKEN:
    case ND_CONSTANTS_SIGN_FLIPPED:
    case ND_CONSTANTS_OTHER_TYPE:
        status = change_bits(c, change, err);
        break;
    case ND_CONSTANTS_SCALES_AXIS:
        change_scales_axis(c);
        break;
    case ND_CONSTANTS_QVALUES_COPIED:
        copy_qvalues(c);
        break;
    case ND_CONSTANTS_BOUNDS_LOST:
        c->is_other = isfinite(c->call.low) || isfinite(c->call.high);
        c->call.low = -HUGE_VAL;
        c->call.high = HUGE_VAL;
        break;
    case ND_CONSTANTS_NIBBLES_SWAPPED:
        status = swap_nibbles(c, change, err);
        break;
    case ND_CONSTANTS_ROWS_APART:
        status = change_rows(c, change, err);
        break;
    case ND_CONSTANTS_TERMS_LOST:
        status = lose_terms(c, change, err);
        break;
    case ND_CONSTANTS_GROUP_REPEATED:
        status = repeat_group(c, change, err);
        break;
    case ND_CONSTANTS_MATRIX_TRANSPOSED:
        status = transpose(c, err);
        break;
    case ND_CONSTANTS_KERNEL_TRANSPOSED:
    case ND_CONSTANTS_KERNEL_TURNED:
        status = change_kernels(c, change->kind == ND_CONSTANTS_KERNEL_TURNED, err);
        break;
    }
    c->call.inputs = c->inputs;
    return status;
}

static enum nd_status change_layer(const struct nd_exact_layer *layer,
                                   const struct nd_changed_constants *change, struct changed *c,
                                   struct nd_error *err)
{
    c->layer = *layer;
    c->call = *layer->call;
    c->layer.call = &c->call;
    return change_call(c, change, err);
}

static void changed_deinit(struct changed *c)
{
    nd_array_deinit(&c->values);
    free(c->scale);
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

enum nd_status nd_change_reals(const struct nd_float_node *node, const struct nd_coded_weights *weights,
                               const struct nd_changed_constants *change, size_t *input, struct nd_array *reals,
                               struct nd_error *err)
{
    struct nd_linear_input inputs[ND_CHANGED_INPUTS] = {0};
    ND_CLEANUP(changed_deinit) struct changed c = {.zeros = weights->zero_points, .nobody_knows = (double)NAN};
    bool is_bias = change->kind == ND_CONSTANTS_BIAS_LOST || change->kind == ND_CONSTANTS_BIAS_NEGATED;
    *input = is_bias ? ND_CHANGED_BIAS : ND_CHANGED_WEIGHTS;
    *reals = (struct nd_array){0};
    inputs[ND_CHANGED_WEIGHTS].values = &weights->qvalues;
    if (node->n_inputs > ND_CHANGED_BIAS && node->inputs[ND_CHANGED_BIAS].source == ND_FLOAT_CONSTANT)
        inputs[ND_CHANGED_BIAS].values = node->inputs[ND_CHANGED_BIAS].constant;
    c.call = (struct nd_linear_call){
        .node = node->proto, .opset = node->opset, .n_inputs = node->n_inputs, .inputs = inputs};
    ND_TRY(change_call(&c, change, err));
    for (size_t i = 0; c.is_other && !is_bias && i < c.values.n; i++)
        c.values.x[i] = (c.values.x[i] - (c.zeros != NULL ? c.zeros[i] : 0)) * weights->scales[i];
    if (c.is_other) {
        *reals = c.values;
        reals->dtype = ND_DTYPE_F32;
        c.values = (struct nd_array){0};
    }
    return ND_OK;
}

struct nd_float_node nd_float_node_of(const struct nd_linear_call *call)
{
    struct nd_float_node node = {.proto = call->node, .opset = call->opset, .n_inputs = call->n_inputs};
    node.inputs[ND_CHANGED_WEIGHTS].source = ND_FLOAT_CONSTANT;
    node.inputs[ND_CHANGED_WEIGHTS].constant = call->inputs[ND_CHANGED_WEIGHTS].values;
    return node;
}

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

/* What the operator of the call makes in doubles, rounded as the layer is. Left empty as above. */
static enum nd_status round_in_doubles(const struct nd_exact_layer *layer, const struct nd_linear_call *call,
                                       const struct nd_rounding_rule *usual, struct nd_array *qvalues,
                                       struct nd_error *err)
{
    struct nd_array reals[ND_CHANGED_INPUTS] = {{.n = 0}};
    const struct nd_array *pointers[ND_CHANGED_INPUTS] = {NULL};
    struct nd_error problem = {0};
    size_t n = 0;
    enum nd_status status = make_reals(call, reals, &n, &problem);
    for (size_t i = 0; i < n; i++)
        pointers[i] = call->inputs[i].values != NULL ? &reals[i] : NULL;
    if (status == ND_OK)
        status = nd_linear_run(call, call->node, pointers, n, qvalues, &problem);
    if (status == ND_OK)
        round_reals(layer, usual, qvalues);
    else
        nd_array_deinit(qvalues);
    for (size_t i = 0; i < ND_CHANGED_INPUTS; i++)
        nd_array_deinit(&reals[i]);
    return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK;
}

/* Of weights that are floats to the layer, because their scales are of blocks. */
static enum nd_status change_coded(const struct nd_exact_layer *layer, const struct nd_rounding_rule *usual,
                                   const struct nd_changed_constants *change, struct nd_array *qvalues,
                                   struct nd_error *err)
{
    const struct nd_float_node node = nd_float_node_of(layer->call);
    struct nd_linear_input inputs[ND_CHANGED_INPUTS];
    struct nd_linear_call call = *layer->call;
    struct nd_array reals;
    size_t input;
    enum nd_status status = nd_change_reals(&node, change->coded, change, &input, &reals, err);
    memcpy(inputs, call.inputs, call.n_inputs * sizeof *inputs);
    inputs[input] = (struct nd_linear_input){.values = &reals};
    call.inputs = inputs;
    call.shared = NULL;
    if (status == ND_OK && reals.n > 0)
        status = round_in_doubles(layer, &call, usual, qvalues, err);
    nd_array_deinit(&reals);
    return status;
}

/* Element i of the output is of channel i / *inner % *n. */
static void find_outputs(const struct nd_linear_call *call, const struct nd_shape *shape, size_t *n,
                         size_t *inner)
{
    int axis = is_op(call, "Conv") || is_op(call, "ConvTranspose") ? 1 : shape->rank - 1;
    *n = axis >= 0 && axis < shape->rank ? (size_t)shape->dims[axis] : 1;
    *inner = 1;
    for (int a = axis + 1; a < shape->rank; a++)
        *inner *= (size_t)shape->dims[a];
}

static size_t channel_of_output(const struct nd_linear_call *call, const struct nd_shape *shape, size_t i)
{
    size_t n, inner;
    find_outputs(call, shape, &n, &inner);
    return i / inner % n;
}

enum nd_status nd_layer_changed(const struct nd_exact_layer *layer,
                                const struct nd_layer_arithmetic *layer_arithmetic,
                                const struct nd_rounding_rule *usual, const struct nd_changed_constants *change,
                                struct nd_array *qvalues, struct nd_error *err)
{
    struct changed c = {.is_other = false};
    bool is_covered = false;
    *qvalues = (struct nd_array){0};
    if (change->coded != NULL)
        return change_coded(layer, usual, change, qvalues, err);
    bool is_of_any = change->kind == ND_CONSTANTS_QVALUES_COPIED || change->kind == ND_CONSTANTS_BOUNDS_LOST;
    if (is_of_any ? layer->call->n_inputs > ND_CHANGED_INPUTS : !has_constants(layer))
        return ND_OK;
    enum nd_status status = change_layer(layer, change, &c, err);
    if (status == ND_OK && c.is_other && layer_arithmetic != NULL)
        status = nd_layer_arithmetic_run(layer_arithmetic, &c.layer, NULL, qvalues, &is_covered, err);
    if (status == ND_OK && c.is_other && !is_covered)
        status = round_exact(&c.layer, usual, qvalues, err);
    if (status == ND_OK && c.is_other && qvalues->n == 0)
        status = round_in_doubles(&c.layer, &c.call, usual, qvalues, err);
    for (size_t i = 0; status == ND_OK && c.n_known != SIZE_MAX && i < qvalues->n; i++)
        if (channel_of_output(&c.call, &qvalues->shape, i) >= c.n_known)
            qvalues->x[i] = (double)NAN;
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
    double scale = (double)call->out_quant->scale[0], zero = (double)call->out_quant->zero_point[0];
    find_outputs(call, &out->products.shape, &out->n_channels, &out->n_inner);
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
    static const struct nd_changed_constants no_bias = {.kind = ND_CONSTANTS_BIAS_LOST, .channel = SIZE_MAX};
    ND_CLEANUP(changed_deinit) struct changed c = {.is_other = false};
    ND_CLEANUP(nd_array_deinit) struct nd_array added = {0};
    *out = (struct nd_product_parts){.n_channels = 0};
    if (!has_constants(layer))
        return ND_OK;
    ND_TRY(change_layer(layer, &no_bias, &c, err));
    ND_TRY(find_exact(&c, &out->products, err));
    ND_TRY(make_added(&layer->call->inputs[ND_CHANGED_WEIGHTS], shift, &added, err));
    c.inputs[ND_CHANGED_WEIGHTS].values = &added;
    c.inputs[ND_CHANGED_WEIGHTS].packed_weights = NULL;
    c.inputs[ND_CHANGED_WEIGHTS].shorts = NULL;
    ND_TRY(find_exact(&c, &out->moved, err));
    if (out->products.n > 0)
        describe(layer, out);
    return ND_OK;
}

void nd_product_parts_deinit(struct nd_product_parts *parts)
{
    nd_array_deinit(&parts->products);
    nd_array_deinit(&parts->moved);
}

/* ---- what is tried, and in words ---- */

/* Chosen: a sum is split in halves again and again, and computed in vectors of 4 to 128. */
static size_t list_terms(struct nd_changed_constants *out, size_t n)
{
    for (size_t parts = 2; parts <= 32; parts *= 2)
        for (int k = 0; k < 4; k++)
            out[n++] = (struct nd_changed_constants){
                .kind = ND_CONSTANTS_TERMS_LOST, .read = parts, .part = k % 2 == 0 ? 1 : -1, .is_alone = k < 2};
    for (size_t length = 4; length <= 128; length *= 2) {
        out[n++] = (struct nd_changed_constants){.kind = ND_CONSTANTS_TERMS_LOST, .read = length};
        out[n++] = (struct nd_changed_constants){.kind = ND_CONSTANTS_GROUP_REPEATED, .read = length};
    }
    return n;
}

size_t nd_list_changed_constants(struct nd_changed_constants out[ND_CONSTANTS_MAX_LISTED])
{
    static const struct nd_changed_constants whole[] = {
        {.kind = ND_CONSTANTS_BIAS_LOST},
        {.kind = ND_CONSTANTS_BIAS_NEGATED},
        {.kind = ND_CONSTANTS_KERNEL_TRANSPOSED},
        {.kind = ND_CONSTANTS_KERNEL_TURNED},
        {.kind = ND_CONSTANTS_MATRIX_TRANSPOSED},
        {.kind = ND_CONSTANTS_SCALES_AXIS},
        {.kind = ND_CONSTANTS_BOUNDS_LOST},
        {.kind = ND_CONSTANTS_ZERO_POINT_TAKEN, .amount = 0.5},
        {.kind = ND_CONSTANTS_ZERO_POINT_TAKEN, .amount = 0},
        {.kind = ND_CONSTANTS_ZERO_POINT_TAKEN, .amount = 0.5, .is_alone = true},
        {.kind = ND_CONSTANTS_ZERO_POINT_TAKEN, .amount = 0, .is_alone = true},
        {.kind = ND_CONSTANTS_SIGN_FLIPPED},
        {.kind = ND_CONSTANTS_OTHER_TYPE},
        {.kind = ND_CONSTANTS_NIBBLES_SWAPPED},
        {.kind = ND_CONSTANTS_NIBBLES_SWAPPED, .is_as_stored = true},
    };
    /* Chosen: memory is laid out in whole words and vectors, or off by as much as an index is. */
    static const size_t multiples[] = {1, 8, 16, 32, 64, 128};
    static const int apart[] = {-1, 1, -2, 2, -4, 4, -8, 8};
    enum { N_MULTIPLES = sizeof multiples / sizeof *multiples };
    size_t n = sizeof whole / sizeof *whole;
    memcpy(out, whole, sizeof whole);
    for (int is_as_stored = 0; is_as_stored < 2; is_as_stored++) {
        for (size_t k = 0; k < (size_t)N_MULTIPLES * N_MULTIPLES; k++)
            if (k / N_MULTIPLES != k % N_MULTIPLES)
                out[n++] = (struct nd_changed_constants){.kind = ND_CONSTANTS_ROWS_APART,
                                                         .is_as_stored = is_as_stored != 0,
                                                         .stored = multiples[k / N_MULTIPLES],
                                                         .read = multiples[k % N_MULTIPLES]};
        for (size_t k = 0; k < sizeof apart / sizeof *apart; k++)
            out[n++] = (struct nd_changed_constants){.kind = ND_CONSTANTS_ROWS_APART,
                                                     .is_as_stored = is_as_stored != 0,
                                                     .stored = 1,
                                                     .read = 1,
                                                     .apart = apart[k]};
    }
    n = list_terms(out, n);
    for (size_t k = 0; k < n; k++)
        out[k].channel = SIZE_MAX;
    return n;
}

static void say_rows(const struct nd_changed_constants *change, const struct nd_linear_call *call, double bytes,
                     char text[ND_CONSTANTS_TEXT_BYTES])
{
    const char *row = change->is_as_stored ? "row" : "output";
    struct nd_weight_rows rows = {0};
    size_t stored = 0, read = 0;
    (void)nd_weight_rows_find(call, change->is_as_stored, &rows);
    (void)find_strides(change, rows.n_columns, &stored, &read);
    double early = ((double)stored - (double)read) * bytes;
    snprintf(
        text, ND_CONSTANTS_TEXT_BYTES,
        "%s 0 is right, from %s 1 on the weights are read %g byte%s a row too %s: rows of %g bytes are read "
        "as of %g",
        row, row, fabs(early), fabs(early) == 1 ? "" : "s", early > 0 ? "early" : "late",
        (double)stored * bytes, (double)read * bytes);
}

static void say_terms(const struct nd_changed_constants *change, const struct nd_linear_call *call,
                      char text[ND_CONSTANTS_TEXT_BYTES])
{
    struct nd_weight_rows rows = {0};
    size_t from = 0, to = 0;
    (void)nd_weight_rows_find(call, false, &rows);
    (void)find_part(change, rows.n_columns, &from, &to);
    snprintf(text, ND_CONSTANTS_TEXT_BYTES, "%sterms %zu to %zu of the %zu of each sum are %s",
             change->is_alone ? "only " : "", from, to - 1, rows.n_columns,
             change->is_alone ? "summed" : "left out");
}

/* "the zero point of its weights is taken as 0 everywhere, not 8" */
static void say_zero_point(const struct nd_changed_constants *change, const struct nd_linear_call *call,
                           const double *zeros, char text[ND_CONSTANTS_TEXT_BYTES])
{
    const struct nd_linear_input *weights = &call->inputs[ND_CHANGED_WEIGHTS];
    double low, high, first = zeros != NULL ? zeros[0] : zero_of(weights, 0);
    bool is_one = true;
    char own[32] = "its own";
    nd_qvalue_range(weights->values->dtype, &low, &high);
    double taken = low + change->amount * (high - low + 1), from = low < 0 && taken == low ? low : 0;
    for (size_t i = 0; i < weights->values->n; i++)
        is_one = is_one && (zeros != NULL ? zeros[i] : zero_of(weights, i)) == first;
    if (is_one)
        snprintf(own, sizeof own, "%g", first - from);
    snprintf(text, ND_CONSTANTS_TEXT_BYTES, "the zero point of its weights%s is taken as %g %s, not %s",
             from < 0 ? ", as unsigned values," : "", taken - from,
             change->is_alone ? "in all channels but the first" : "everywhere", own);
}

/* "`what` of channel 3`then`", or with a number. */
static const struct {
    const char *what, *then, *number;
} phrases[] = {
    [ND_CONSTANTS_AS_THEY_ARE] = {"", "", NULL},
    [ND_CONSTANTS_BIAS_LOST] = {"its bias", " is lost: the values fit a bias of 0", NULL},
    [ND_CONSTANTS_BIAS_NEGATED] = {"its bias", " has the wrong sign", NULL},
    [ND_CONSTANTS_WEIGHTS_SCALED] = {"the scale of its weights", "", "%s%s is %.5g times as large"},
    [ND_CONSTANTS_WEIGHTS_RECODED] = {"its weights", "", "%s%s are %.5g times as large, and rounded anew"},
    [ND_CONSTANTS_WEIGHTS_MOVED] = {"its weights", "", "%s%s are %+g steps off, clipped to their type"},
    [ND_CONSTANTS_ZERO_POINT_MOVED] = {"the zero point of its weights", "", "%s%s is off by %+g"},
    [ND_CONSTANTS_NIBBLES_SWAPPED] = {"the two 4-bit weights of each byte are swapped", "", NULL},
    [ND_CONSTANTS_BOUNDS_LOST] = {"its Relu or Clip is left out", "", NULL},
    [ND_CONSTANTS_QVALUES_COPIED] =
        {"the quantised values of its inputs are taken over as they are, not brought "
         "to the scale and zero point of its output",
         "", NULL},
    [ND_CONSTANTS_MATRIX_TRANSPOSED] = {"its weights are transposed: their bytes are read in the other order",
                                        "", NULL},
    [ND_CONSTANTS_KERNEL_TRANSPOSED] = {"its kernels are transposed: their rows are read as columns", "", NULL},
    [ND_CONSTANTS_KERNEL_TURNED] = {"its kernels are turned by 180 degrees", "", NULL},
};

static void say_change(const struct nd_changed_constants *change, const struct nd_linear_call *call,
                       const double *zeros, char text[ND_CONSTANTS_TEXT_BYTES])
{
    const struct nd_linear_input *weights = &call->inputs[ND_CHANGED_WEIGHTS];
    enum nd_dtype dtype =
        call->n_inputs > ND_CHANGED_WEIGHTS && weights->values != NULL ? weights->values->dtype : ND_DTYPE_F64;
    double low = 0, high = 0;
    char where[40] = "";
    if (change->channel != SIZE_MAX)
        snprintf(where, sizeof where, " of channel %zu", change->channel);
    if (nd_dtype_is_of_qvalues(dtype))
        nd_qvalue_range(dtype, &low, &high);
    int bits = high > low ? (int)log2(high - low + 1) : 32;
    if (change->kind == ND_CONSTANTS_ZERO_POINT_TAKEN)
        say_zero_point(change, call, zeros, text);
    else if (change->kind == ND_CONSTANTS_ROWS_APART)
        say_rows(change, call, bits / 8.0, text);
    else if (change->kind == ND_CONSTANTS_TERMS_LOST)
        say_terms(change, call, text);
    else if (change->kind == ND_CONSTANTS_GROUP_REPEATED)
        snprintf(text, ND_CONSTANTS_TEXT_BYTES,
                 "the weights of the first %zu terms of each output are read for all groups of %zu",
                 change->read, change->read);
    else if (change->kind == ND_CONSTANTS_SIGN_FLIPPED)
        snprintf(
            text, ND_CONSTANTS_TEXT_BYTES,
            "the %d-bit values of its weights are read as signed, not as unsigned less %g, or the reverse (the "
            "value xor %g)",
            bits, ldexp(1, bits - 1), ldexp(1, bits - 1));
    else if (change->kind == ND_CONSTANTS_OTHER_TYPE)
        snprintf(text, ND_CONSTANTS_TEXT_BYTES, "the %d-bit values of its weights are read as %s, not %s", bits,
                 low < 0 ? "unsigned" : "signed", low < 0 ? "signed" : "unsigned");
    else if (change->kind == ND_CONSTANTS_SCALES_AXIS)
        snprintf(text, ND_CONSTANTS_TEXT_BYTES,
                 "the scales of its weights are taken along axis %d; they belong to axis %d",
                 other_axis(weights),
                 weights->quant->axis + (weights->quant->axis < 0 ? weights->values->shape.rank : 0));
    else if (phrases[change->kind].number == NULL)
        snprintf(text, ND_CONSTANTS_TEXT_BYTES, "%s%s%s", phrases[change->kind].what, where,
                 phrases[change->kind].then);
    else
        snprintf(text, ND_CONSTANTS_TEXT_BYTES, phrases[change->kind].number, phrases[change->kind].what, where,
                 change->kind == ND_CONSTANTS_ZERO_POINT_MOVED ? -change->amount : change->amount);
}

void nd_change_reals_text(const struct nd_float_node *node, const struct nd_coded_weights *weights,
                          const struct nd_changed_constants *change, char text[ND_CONSTANTS_TEXT_BYTES])
{
    const struct nd_linear_input inputs[] = {{.values = NULL}, {.values = &weights->qvalues}};
    const struct nd_linear_call call = {
        .node = node->proto, .opset = node->opset, .n_inputs = 2, .inputs = inputs};
    say_change(change, &call, weights->zero_points, text);
}

void nd_layer_changed_text(const struct nd_exact_layer *layer, const struct nd_changed_constants *change,
                           char text[ND_CONSTANTS_TEXT_BYTES])
{
    const struct nd_float_node node = nd_float_node_of(layer->call);
    if (change->coded != NULL)
        nd_change_reals_text(&node, change->coded, change, text);
    else
        say_change(change, layer->call, NULL, text);
}
