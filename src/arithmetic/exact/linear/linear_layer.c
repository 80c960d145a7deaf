/* The exact values of a layer whose operator is linear in quantised values: sums, products, quotients, means
 * and choices; products of matrices are in linear_product.c. linear_layer.h has the formula. */
#include "arithmetic/exact/linear/linear_layer.h"

#include <math.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_values.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

/* Makes real values, as quotients of a number and a positive double divisor: the result is that of
 * nd_linear_make with v being real values. */
typedef enum nd_status nd_linear_family(const struct nd_linear_call *call, struct nd_linear_result *result,
                                        struct nd_error *err);

/* One line without a bias. The values of x go over to the result. */
static enum nd_status make_plain_line(struct nd_linear_result *result, struct nd_array *x, double factor,
                                      struct nd_error *err)
{
    ND_TRY(nd_linear_make_quick(result, &x->shape, ND_QUICK_LINE, err));
    ND_TRY(nd_quick_make_lines(result->quick, 1, err));
    result->quick->lines[0].factor = nd_wide_from(factor);
    result->quick->x = result->quick->own_x = x->x;
    *x = (struct nd_array){0};
    return ND_OK;
}

/* ---- means ----
 *
 * A sum of whole numbers, and how many they are. The operator's own mean of whole numbers is within an ulp or
 * two, so that times their count it rounds to their sum. */

static const double largest_sum = 0x1p48;

static enum nd_status read_packed_weights(const struct nd_linear_call *call, struct nd_array *x,
                                          double *largest, struct nd_error *err)
{
    if (!nd_linear_has(call, 0))
        return nd_linear_unsupported(call, err, "an operand that is missing");
    if (nd_linear_n_scales(&call->inputs[0]) != 1)
        return nd_linear_unsupported(call, err, "scales per channel");
    ND_TRY(nd_linear_packed_weights(call, 0, x, largest, err));
    if (*largest * (double)x->n > largest_sum)
        return nd_linear_unsupported(call, err, "sums that do not fit 48 bits");
    return ND_OK;
}

static enum nd_status make_mean(const struct nd_linear_call *call, struct nd_linear_result *result,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array x = {0}, mean = {0};
    double largest;
    ND_TRY(read_packed_weights(call, &x, &largest, err));
    if (call->n_inputs > 2 || x.n == 0)
        return nd_linear_unsupported(call, err, "nothing to add up, or too many inputs");
    const struct nd_array *inputs[] = {&x, call->n_inputs > 1 ? call->inputs[1].values : NULL};
    ND_TRY(nd_linear_run(call, call->node, inputs, call->n_inputs, &mean, err));
    bool is_sum = strcmp(call->node->op_type, "ReduceSum") == 0;
    double count = is_sum ? 1 : (double)(x.n / mean.n), scale = nd_linear_scale(&call->inputs[0], 0);
    for (size_t i = 0; i < mean.n; i++)
        mean.x[i] = rint(mean.x[i] * count);
    ND_TRY(make_plain_line(result, &mean, scale, err));
    result->quick->divisor = count;
    return ND_OK;
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
    ND_CLEANUP(nd_array_deinit) struct nd_array ones = {0}, shares = {0};
    const struct nd_array *input = &ones;
    struct nd_shape shape = call->inputs[0].values->shape;
    for (int axis = 0; axis < 2 && axis < shape.rank; axis++)
        shape.dims[axis] = 1;
    ND_TRY(nd_array_make(&ones, ND_DTYPE_F32, &shape, err));
    for (size_t i = 0; i < ones.n; i++)
        ones.x[i] = 1;
    ND_TRY(nd_linear_run(call, call->node, &input, 1, &shares, err));
    ND_TRY(count_covered(call, &ones, divisors, err));
    if (divisors->n != shares.n)
        return nd_linear_unsupported(call, err, "this pooling");
    for (size_t i = 0; i < shares.n; i++)
        divisors->x[i] = shares.x[i] > 0 ? rint(divisors->x[i] / shares.x[i]) : 1;
    return ND_OK;
}

static enum nd_status make_pool(const struct nd_linear_call *call, struct nd_linear_result *result,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array x = {0}, mean = {0}, divisors = {0};
    const struct nd_array *input = &x;
    double largest;
    ND_TRY(read_packed_weights(call, &x, &largest, err));
    ND_TRY(nd_linear_run(call, call->node, &input, 1, &mean, err));
    ND_TRY(find_divisors(call, &divisors, err));
    ND_TRY(nd_linear_make(result, &mean.shape, err));
    double scale = nd_linear_scale(&call->inputs[0], 0);
    for (size_t i = 0; i < mean.n; i++) {
        double divisor = divisors.x[i % divisors.n];
        result->v[i].numerator = nd_wide_product(rint(mean.x[i] * divisor), scale);
        result->v[i].denominator = nd_wide_from(divisor);
    }
    return ND_OK;
}

/* ---- element by element ----
 *
 * Real inputs are exact doubles, and so are sums and products of two as wide numbers. */

static bool is_op(const struct nd_linear_call *call, const char *op_type)
{
    return strcmp(call->node->op_type, op_type) == 0;
}

/* The shape that all inputs are repeated to. */
static enum nd_status common_shape(const struct nd_linear_call *call, struct nd_shape *shape,
                                   struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    if (call->opset < 7)
        return nd_linear_unsupported(call, err, "broadcasting before opset 7");
    *shape = call->inputs[0].values->shape;
    for (size_t i = 1; i < call->n_inputs; i++)
        ND_TRY(!nd_linear_has(call, i) ? nd_linear_unsupported(call, err, "an operand that is missing")
                                       : nd_op_broadcast(&op_call, &call->inputs[i].values->shape, shape, err));
    return ND_OK;
}

static void add_operand(const struct nd_array *operand, double sign, struct nd_linear_result *result)
{
    struct nd_walk walk = {0};
    for (int axis = 0; axis < result->shape.rank; axis++)
        nd_walk_axis(&walk, result->shape.dims[axis], nd_broadcast_stride(operand, &result->shape, axis), 0, 0);
    struct nd_ratio *v = result->v;
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++, v++)
            v->numerator =
                nd_wide_add(v->numerator, nd_wide_from(sign * operand->x[walk.at[0] + i * walk.step[0]]));
}

/* Repeated to the shape; what needs no repetition is taken over. */
static enum nd_status expand(struct nd_array *operand, const struct nd_shape *shape, struct nd_error *err)
{
    struct nd_array whole = {0};
    if (nd_shape_equal(&operand->shape, shape))
        return ND_OK;
    ND_TRY(nd_array_make(&whole, operand->dtype, shape, err));
    struct nd_walk walk = {0};
    for (int axis = 0; axis < shape->rank; axis++)
        nd_walk_axis(&walk, shape->dims[axis], nd_broadcast_stride(operand, shape, axis), 0, 0);
    double *to = whole.x;
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++)
            *to++ = operand->x[walk.at[0] + i * walk.step[0]];
    nd_array_deinit(operand);
    *operand = whole;
    return ND_OK;
}

static double largest_of(const struct nd_array *array)
{
    double low = 0, high = 0;
    if (array->n > 0)
        nd_gemm_kernels()->range(array->x, array->n, &low, &high);
    return fmax(fabs(low), fabs(high));
}

/* A tensor and a number: x + number, x * number or x / number. */
static enum nd_status make_line(struct nd_linear_result *result, enum nd_quick_kind kind, struct nd_array *x,
                                double number, struct nd_error *err)
{
    ND_TRY(make_plain_line(result, x, kind == ND_QUICK_PRODUCT ? number : 1, err));
    struct nd_quick_line *line = &result->quick->lines[0];
    if (kind == ND_QUICK_SUM)
        line->bias = nd_wide_from(number);
    if (kind == ND_QUICK_QUOTIENT && number < 0)
        line->factor = nd_wide_from(-1);
    if (kind == ND_QUICK_QUOTIENT)
        result->quick->divisor = fabs(number);
    return ND_OK;
}

/* Whether the operand is a number that a line can have. */
static bool is_number(const struct nd_array *operand, const struct nd_array *other,
                      const struct nd_shape *shape)
{
    return operand->n == 1 && isfinite(operand->x[0]) && nd_shape_equal(&other->shape, shape);
}

/* Two operands, left quick. Arrays go over to the result, but for a number, which becomes a part of a line. */
static enum nd_status make_pair(struct nd_linear_result *result, enum nd_quick_kind kind, struct nd_array *a,
                                struct nd_array *b, const struct nd_shape *shape, struct nd_error *err)
{
    if (is_number(b, a, shape) && (kind != ND_QUICK_QUOTIENT || b->x[0] != 0))
        return make_line(result, kind, a, b->x[0], err);
    if (is_number(a, b, shape) && kind != ND_QUICK_QUOTIENT)
        return make_line(result, kind, b, a->x[0], err);
    ND_TRY(expand(a, shape, err));
    ND_TRY(expand(b, shape, err));
    ND_TRY(nd_linear_make_quick(result, shape, kind, err));
    if (kind == ND_QUICK_SUM)
        result->quick->largest = largest_of(a) + largest_of(b);
    result->quick->x = result->quick->own_x = a->x;
    result->quick->y = result->quick->own_y = b->x;
    *a = *b = (struct nd_array){0};
    return ND_OK;
}

/* Makes a difference of a sum. */
static void take_away(struct nd_quick *quick, bool is_from_number)
{
    if (quick->kind == ND_QUICK_SUM)
        quick->sign = -1;
    else if (is_from_number)
        quick->lines[0].factor = nd_wide_from(-1);
    else
        quick->lines[0].bias = nd_wide_negate(quick->lines[0].bias);
}

static enum nd_status sum_of_two(const struct nd_linear_call *call, const struct nd_shape *shape,
                                 struct nd_linear_result *result, struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array a = {0}, b = {0};
    ND_TRY(nd_linear_reals(call, 0, &a, err));
    ND_TRY(nd_linear_reals(call, 1, &b, err));
    ND_TRY(make_pair(result, ND_QUICK_SUM, &a, &b, shape, err));
    if (is_op(call, "Sub"))
        take_away(result->quick, a.x != NULL);
    return ND_OK;
}

static enum nd_status make_sum(const struct nd_linear_call *call, struct nd_linear_result *result,
                               struct nd_error *err)
{
    struct nd_shape shape;
    ND_CLEANUP(nd_array_deinit) struct nd_array operand = {0};
    ND_TRY(common_shape(call, &shape, err));
    if (call->n_inputs == 2)
        return sum_of_two(call, &shape, result, err);
    ND_TRY(nd_linear_make(result, &shape, err));
    for (size_t i = 0; i < call->n_inputs; i++) {
        ND_TRY(nd_linear_reals(call, i, &operand, err));
        add_operand(&operand, i > 0 && is_op(call, "Sub") ? -1 : 1, result);
    }
    return ND_OK;
}

/* A product with the slope left of 0, and with 1 elsewhere. Arrays go over to the result. */
static enum nd_status follow_slopes(struct nd_linear_result *result, struct nd_array *x,
                                    struct nd_array *slopes, const struct nd_shape *shape, struct nd_error *err)
{
    ND_TRY(expand(x, shape, err));
    ND_TRY(expand(slopes, shape, err));
    ND_TRY(nd_linear_make_quick(result, shape, ND_QUICK_PRODUCT, err));
    for (size_t i = 0; i < x->n; i++)
        slopes->x[i] = x->x[i] < 0 ? slopes->x[i] : 1;
    result->quick->x = result->quick->own_x = x->x;
    result->quick->y = result->quick->own_y = slopes->x;
    *x = *slopes = (struct nd_array){0};
    return ND_OK;
}

static enum nd_status make_operands(const struct nd_linear_call *call, struct nd_linear_result *result,
                                    struct nd_error *err)
{
    struct nd_shape shape;
    ND_CLEANUP(nd_array_deinit) struct nd_array a = {0}, b = {0};
    if (call->n_inputs != 2)
        return nd_linear_unsupported(call, err, "another number of inputs than two");
    enum nd_status status = common_shape(call, &shape, err);
    if (status == ND_OK)
        status = nd_linear_reals(call, 0, &a, err);
    if (status == ND_OK)
        status = nd_linear_reals(call, 1, &b, err);
    if (status == ND_OK && is_op(call, "PRelu")) {
        status = follow_slopes(result, &a, &b, &shape, err);
    } else if (status == ND_OK) {
        status =
            make_pair(result, is_op(call, "Mul") ? ND_QUICK_PRODUCT : ND_QUICK_QUOTIENT, &a, &b, &shape, err);
    }
    return status;
}

/* x (x + 3) / 6 between -3 and 3: the 1/6 of the specification as the number that it is. */
static struct nd_ratio hard_swish_of(double x)
{
    if (fabs(x) >= 3)
        return nd_ratio_of(x > 0 ? x : 0, 1);
    return (struct nd_ratio){nd_wide_add(nd_wide_product(x, x), nd_wide_product(3, x)), nd_wide_from(6)};
}

enum { N_QVALUES = 256, MIN_FOR_TABLE = 512 /* chosen: twice what the table costs */ };

/* Quantised values that a table has: those that were moved, to see how far an error reaches, may lie outside.
 */
static bool has_entries(const struct nd_array *qvalues)
{
    for (size_t i = 0; i < qvalues->n; i++)
        if (!(qvalues->x[i] >= 0 && qvalues->x[i] < N_QVALUES && qvalues->x[i] == (double)(int)qvalues->x[i]))
            return false;
    return qvalues->dtype == ND_DTYPE_U8 && qvalues->n >= MIN_FOR_TABLE;
}

static nd_linear_family make_unary;

/* The family's values of all quantised values, and which of them each element has. */
static enum nd_status look_up(const struct nd_linear_call *call, struct nd_linear_result *result,
                              struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 1, .dims = {N_QVALUES}};
    ND_CLEANUP(nd_array_deinit) struct nd_array all = {0}, qvalues = {0};
    ND_CLEANUP(nd_linear_deinit) struct nd_linear_result table = {0};
    ND_TRY(nd_array_make(&all, ND_DTYPE_U8, &shape, err));
    for (size_t i = 0; i < all.n; i++)
        all.x[i] = (double)i;
    const struct nd_linear_input input = {.values = &all, .quant = call->inputs[0].quant};
    struct nd_linear_call of_all = *call;
    of_all.inputs = &input;
    of_all.n_inputs = 1;
    of_all.shared = NULL;
    ND_TRY(make_unary(&of_all, &table, err));
    ND_TRY(nd_array_copy(call->inputs[0].values, &qvalues, err));
    ND_TRY(nd_linear_make_quick(result, &qvalues.shape, ND_QUICK_TABLE, err));
    result->quick->x = result->quick->own_x = qvalues.x;
    qvalues = (struct nd_array){0};
    result->quick->table = table.v;
    table.v = NULL;
    result->quick->n_table = N_QVALUES;
    result->quick->near_table = nd_calloc(N_QVALUES, sizeof *result->quick->near_table);
    return result->quick->near_table != NULL ? ND_OK : nd_fail_memory(err);
}

/* alpha x left of 0. */
static enum nd_status leaky_relu(struct nd_linear_result *result, struct nd_array *x, double alpha,
                                 struct nd_error *err)
{
    const struct nd_shape shape = x->shape;
    ND_CLEANUP(nd_array_deinit) struct nd_array slopes = {0};
    ND_TRY(nd_array_make_room(&slopes, ND_DTYPE_F32, &shape, err));
    for (size_t i = 0; i < slopes.n; i++)
        slopes.x[i] = alpha;
    return follow_slopes(result, x, &slopes, &shape, err);
}

/* alpha x + beta between 0 and 1. */
static enum nd_status hard_sigmoid(struct nd_linear_result *result, struct nd_array *x, double alpha,
                                   double beta, struct nd_error *err)
{
    ND_TRY(make_plain_line(result, x, alpha, err));
    result->quick->lines[0].bias = nd_wide_from(beta);
    result->quick->low = 0;
    result->quick->high = 1;
    return ND_OK;
}

static enum nd_status hard_swish(struct nd_linear_result *result, const struct nd_array *x,
                                 struct nd_error *err)
{
    ND_TRY(nd_linear_make(result, &x->shape, err));
    for (size_t i = 0; i < x->n; i++)
        result->v[i] = hard_swish_of(x->x[i]);
    return ND_OK;
}

static enum nd_status make_unary(const struct nd_linear_call *call, struct nd_linear_result *result,
                                 struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    bool is_sigmoid = is_op(call, "HardSigmoid"), is_swish = is_op(call, "HardSwish");
    double alpha = nd_op_f(&op_call, "alpha", (double)(is_sigmoid ? 0.2f : 0.01f));
    ND_CLEANUP(nd_array_deinit) struct nd_array x = {0};
    const struct nd_linear_input *input = &call->inputs[0];
    if (is_swish && call->n_inputs == 1 && input->quant != NULL && input->quant->n == 1 &&
        has_entries(input->values))
        return look_up(call, result, err);
    enum nd_status status = nd_linear_reals(call, 0, &x, err);
    if (status == ND_OK && is_sigmoid)
        status = hard_sigmoid(result, &x, alpha, nd_op_f(&op_call, "beta", 0.5), err);
    else if (status == ND_OK && is_swish)
        status = hard_swish(result, &x, err);
    else if (status == ND_OK)
        status = leaky_relu(result, &x, alpha, err);
    return status;
}

/* ---- what moves values or chooses among them ----
 *
 * The exact real numbers go through the operator unharmed. */

/* Resize interpolates unless it takes the nearest, which is the default. */
static bool only_chooses(const struct nd_linear_call *call)
{
    char mode[16];
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    if (strcmp(call->node->op_type, "Resize") != 0 && strcmp(call->node->op_type, "Upsample") != 0)
        return true;
    nd_op_text(&op_call, "mode", mode, sizeof mode);
    return mode[0] == '\0' || strcmp(mode, "nearest") == 0;
}

/* Operators that only move elements of one tensor: what they move may as well be quantised values, of which
 * there are sometimes far fewer behind it (a Gather from a table of words). */
static bool only_moves(const struct nd_linear_call *call)
{
    bool is_mover = call->inputs[0].quant != NULL && call->inputs[0].quant->n == 1;
    for (size_t i = 1; i < call->n_inputs; i++)
        is_mover = is_mover && call->inputs[i].quant == NULL;
    return is_mover && ND_IS_ONE_OF(call->node->op_type, "DepthToSpace", "Dropout", "Expand", "Flatten",
                                    "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
                                    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze");
}

static enum nd_status run_on_qvalues(const struct nd_linear_call *call, struct nd_array *out,
                                     struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array moved = {0};
    const struct nd_linear_input input = {.values = &moved, .quant = call->inputs[0].quant};
    struct nd_linear_call of_moved = *call;
    of_moved.inputs = &input;
    of_moved.n_inputs = 1;
    ND_FREED const struct nd_array **inputs = nd_calloc(call->n_inputs, sizeof *inputs);
    ND_TRY_MEMORY(inputs != NULL, err);
    for (size_t i = 0; i < call->n_inputs; i++)
        inputs[i] = call->inputs[i].values;
    ND_TRY(nd_linear_run(call, call->node, inputs, call->n_inputs, &moved, err));
    return nd_linear_reals(&of_moved, 0, out, err);
}

static enum nd_status run_on_reals(const struct nd_linear_call *call, struct nd_array *out,
                                   struct nd_error *err)
{
    enum nd_status status = ND_OK;
    ND_FREED struct nd_array *reals = nd_calloc(call->n_inputs, sizeof *reals);
    ND_FREED const struct nd_array **inputs = nd_calloc(call->n_inputs, sizeof *inputs);
    if (reals == NULL || inputs == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; i < call->n_inputs && status == ND_OK; i++) {
        if (!nd_linear_has(call, i))
            continue;
        inputs[i] = call->inputs[i].values;
        if (call->inputs[i].quant == NULL)
            continue;
        status = nd_linear_reals(call, i, &reals[i], err);
        inputs[i] = &reals[i];
    }
    if (status == ND_OK)
        status = nd_linear_run(call, call->node, inputs, call->n_inputs, out, err);
    for (size_t i = 0; i < call->n_inputs && reals != NULL; i++)
        nd_array_deinit(&reals[i]);
    return status;
}

static enum nd_status make_choice(const struct nd_linear_call *call, struct nd_linear_result *result,
                                  struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array real = {0};
    if (call->node == NULL)
        ND_TRY(nd_linear_reals(call, 0, &real, err));
    else if (only_moves(call))
        ND_TRY(run_on_qvalues(call, &real, err));
    else if (only_chooses(call))
        ND_TRY(run_on_reals(call, &real, err));
    else
        return nd_linear_unsupported(call, err, "interpolation");
    return make_plain_line(result, &real, 1, err);
}

/* ---- the layer ---- */

static const struct {
    const char *op_types;
    nd_linear_family *family;
} operators[] = {
    {"Conv ConvTranspose Gemm MatMul", nd_linear_product},
    {"Add Sub Sum", make_sum},
    {"Mul Div PRelu", make_operands},
    {"LeakyRelu HardSigmoid HardSwish", make_unary},
    {"AveragePool", make_pool},
    {"GlobalAveragePool ReduceMean ReduceSum", make_mean},
    {"Abs Clip Concat DepthToSpace Dropout Expand Flatten Gather GatherElements GatherND GlobalMaxPool "
     "Identity Max MaxPool Min Neg Pad ReduceMax ReduceMin Relu Reshape Resize Slice SpaceToDepth "
     "Split Squeeze Tile TopK Transpose Trilu Unsqueeze Upsample Where",
     make_choice},
};

/* All values as quotients. */
static enum nd_status spread(struct nd_linear_result *result, struct nd_error *err)
{
    struct nd_linear_result made;
    ND_TRY(nd_linear_make(&made, &result->shape, err));
    for (size_t i = 0; i < made.n; i++)
        made.v[i] = nd_quick_exact(result->quick, i);
    nd_linear_deinit(result);
    *result = made;
    return ND_OK;
}

static nd_linear_family *find_family(const Onnx__NodeProto *node)
{
    if (node == NULL)
        return make_choice;
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (nd_onnx_domain(node->domain)[0] == 0 &&
            nd_has_word(operators[i].op_types, nd_onnx_text(node->op_type)))
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
    ND_TRY(nd_linear_layout(quant, &result->shape, &axis, &n_inner, err));
    if (result->quick != NULL) {
        const double own_bounds[] = {result->quick->low, result->quick->high};
        result->quick->low = clip(own_bounds[0], call->low, call->high);
        result->quick->high = clip(own_bounds[1], call->low, call->high);
        result->quick->scale = (double)quant->scale[0];
        for (size_t i = 0; quant->n == 1 && i < result->quick->n_table; i++)
            finish(call, &result->quick->table[i], (double)quant->scale[0]);
        if (quant->n == 1 && nd_quick_finish(result->quick))
            return ND_OK;
        ND_TRY(spread_reals(result, own_bounds, err));
    }
    for (size_t start = 0; start < result->n; start += n_inner, channel = (channel + 1) % quant->n)
        for (size_t i = start; i < start + n_inner; i++)
            finish(call, &result->v[i], (double)quant->scale[channel]);
    return ND_OK;
}

enum nd_status nd_linear_layer(const struct nd_linear_call *call, struct nd_linear_result *result,
                               struct nd_error *err)
{
    ND_CLEANUP(nd_linear_deinit) struct nd_linear_result made = {0};
    ND_TRY(nd_linear_layer_quick(call, &made, err));
    if (made.quick != NULL)
        ND_TRY(spread(&made, err));
    *result = made;
    made = (struct nd_linear_result){0};
    return ND_OK;
}

enum nd_status nd_linear_layer_quick(const struct nd_linear_call *call, struct nd_linear_result *result,
                                     struct nd_error *err)
{
    nd_linear_family *family = find_family(call->node);
    ND_CLEANUP(nd_linear_deinit) struct nd_linear_result made = {0};
    if (family == NULL)
        return nd_linear_unsupported(call, err, "not linear in quantised values");
    ND_TRY(check_call(call, err));
    ND_TRY(family(call, &made, err));
    ND_TRY(finish_all(call, &made, err));
    *result = made;
    made = (struct nd_linear_result){0};
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
    double qvalue = input->values->x[0];
    *bound = quant != NULL ? (qvalue - (double)quant->zero_point[0]) * (double)quant->scale[0] : qvalue;
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
