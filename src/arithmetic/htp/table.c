/* uint8 functions of one input, what else they read being constant: a table of 256 entries
 * (docs/science/htp-arithmetic.md#tables); of PRelu, with a constant slope for each channel, two multipliers
 * with one shift (docs/science/htp-arithmetic.md#prelu). */
#include <math.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

enum { N_ENTRIES = 256, MAX_INPUTS = 3 /* of Clip */ };

static bool is_power(const struct nd_htp_job *job)
{
    return strcmp(job->call->node->op_type, "Pow") == 0;
}

static bool is_known_function(const struct nd_htp_job *job)
{
    char text[16];
    if (is_power(job)) /* by a number in floats it is made in float16 */
        return nd_htp_plain(job, 0) != NULL && nd_htp_plain(job, 1) != NULL;
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (strcmp(job->call->node->op_type, "LeakyRelu") == 0 ||
        strcmp(job->call->node->op_type, "HardSwish") == 0)
        return !nd_htp_is_made_with_matrix(job);
    if (strcmp(job->call->node->op_type, "Gelu") != 0)
        return true;
    nd_op_text(&op_call, "approximate", text, sizeof text);
    return text[0] == '\0' || strcmp(text, "none") == 0;
}

/* The input that varies: all others are constant numbers, as are the bounds of Clip. */
static bool find_variable(const struct nd_htp_job *job, size_t *variable)
{
    const struct nd_linear_call *call = job->call;
    size_t n = 0;
    if (call->n_inputs > MAX_INPUTS || nd_htp_plain_output(job) == NULL || job->layer->dtype != ND_DTYPE_U8)
        return false;
    for (size_t i = 0; i < call->n_inputs; i++) {
        bool is_number = i > 0 || call->n_inputs == 2 ? nd_htp_is_number(job, i) : false;
        if (!is_number && nd_linear_has(call, i)) {
            *variable = i;
            n++;
        }
    }
    return n == 1 && nd_htp_plain(job, *variable) != NULL &&
           call->inputs[*variable].values->dtype == ND_DTYPE_U8;
}

/* The operator on real numbers; NULL: on the 256 that quantised values stand for. */
static enum nd_status make_values(const struct nd_htp_job *job, size_t variable, const struct nd_array *of,
                                  struct nd_array *values, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 1, .dims = {of != NULL ? (int64_t)of->n : N_ENTRIES}};
    const struct nd_quant *quant = job->call->inputs[variable].quant;
    struct nd_array reals[MAX_INPUTS] = {0};
    const struct nd_array *inputs[MAX_INPUTS] = {0};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < job->call->n_inputs && status == ND_OK; i++) {
        if (i == variable)
            status = nd_array_make(&reals[i], ND_DTYPE_F32, &shape, err);
        else if (nd_linear_has(job->call, i))
            status = nd_linear_reals(job->call, i, &reals[i], err);
        else
            continue;
        reals[i].shape.rank = i == variable; /* numbers have no axes */
        inputs[i] = &reals[i];
        if (i != variable && status == ND_OK)
            reals[i].x[0] = (double)(float)reals[i].x[0];
    }
    for (int64_t k = 0; status == ND_OK && k < shape.dims[0]; k++)
        reals[variable].x[k] =
            of != NULL ? of->x[k] : (double)((float)(k - quant->zero_point[0]) * quant->scale[0]);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, values, err);
    for (size_t i = 0; i < MAX_INPUTS; i++)
        nd_array_deinit(&reals[i]);
    return status;
}

/* Inputs that are moved, to see how far an error of theirs reaches, may lie outside of the codes: the table has
 * no entry for them. */
static bool has_entries(const struct nd_array *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (!(x->x[i] >= 0 && x->x[i] < N_ENTRIES))
            return false;
    return true;
}

/* Numbers of higher rank than what varies would give the output axes of theirs. */
static bool is_shaped_alike(const struct nd_htp_job *job, size_t variable)
{
    for (size_t i = 0; i < job->call->n_inputs; i++)
        if (nd_linear_has(job->call, i) &&
            job->call->inputs[i].values->shape.rank > job->call->inputs[variable].values->shape.rank)
            return false;
    return true;
}

/* A value of the function in steps of the output. */
static double entry_of(const struct nd_htp_job *job, const struct nd_htp_bounds *bounds, double value)
{
    float inverse = 1 / job->call->out_quant->scale[0], zero = (float)job->call->out_quant->zero_point[0];
    float steps = (float)value * inverse; /* on its own: two roundings, not one */
    double y = (double)rintf(steps + zero);
    double of_nan = strcmp(nd_htp_op_type(job->layer), "Log") == 0 ? bounds->low : bounds->high;
    return isnan(y) ? of_nan : nd_within(y, bounds->low, bounds->high);
}

/* The quantised value of the input that a product is rounded to before the function of it. */
static double round_product(const struct nd_quant *quant, double product)
{
    float steps = (float)product * (1 / quant->scale[0]);
    return nd_within((double)rintf(steps + (float)quant->zero_point[0]), 0, N_ENTRIES - 1);
}

bool nd_htp_is_shape_of_parts(const struct nd_shape *shape)
{
    enum { ROWS = 8 };
    int64_t n_rows = shape->rank >= 2 ? shape->dims[shape->rank - 2] : 1;
    return n_rows > ROWS && n_rows % ROWS == 0 && (shape->rank == 2 || shape->dims[shape->rank - 3] == 1);
}

bool nd_htp_is_in_parts(const struct nd_htp_job *job, size_t i)
{
    return !nd_htp_is_laid_out(job, i) && nd_htp_is_shape_of_parts(&job->call->inputs[i].values->shape);
}

/* Tensors of more axes are handled in another way. */
static bool has_known_rank(const struct nd_htp_job *job, size_t i)
{
    enum { MAX_RANK = 4 };
    return job->call->inputs[i].values->shape.rank <= MAX_RANK;
}

/* What reads the layer and multiplies with a number, or divides by one, is made as one table with it: found for
 * all functions and many shapes (docs/science/htp-arithmetic.md#two-tables). */
static struct nd_htp_table_note note_of(const struct nd_htp_job *job, size_t variable)
{
    const char *op_type = nd_htp_op_type(job->layer);
    if (ND_IS_ONE_OF(op_type, "LeakyRelu", "PRelu") || !has_known_rank(job, variable))
        return (struct nd_htp_table_note){0};
    bool is_whole = !nd_htp_is_in_parts(job, variable);
    return (struct nd_htp_table_note){.is_known = is_whole || !ND_IS_ONE_OF(op_type, "Add", "Sub"),
                                      .of_mul = is_whole ||
                                                ND_IS_ONE_OF(op_type, "Clip", "Mul", "Relu", "Sigmoid", "Tanh"),
                                      .of_div = is_whole || !ND_IS_ONE_OF(op_type, "Mul", "Tanh")};
}

/* Whether the function is one table with a product that it reads. */
static bool reads_products(const struct nd_htp_job *job, size_t variable)
{
    return has_known_rank(job, variable) &&
           (!nd_htp_is_in_parts(job, variable) ||
            ND_IS_ONE_OF(nd_htp_op_type(job->layer), "Add", "Clip", "Mul", "Relu", "Sigmoid", "Sub", "Tanh"));
}

bool nd_htp_joins_table(const struct nd_htp_job *job, size_t i)
{
    struct nd_htp_table_note note = nd_htp_table_note_of(job, i);
    bool is_div = strcmp(nd_htp_op_type(job->layer), "Div") == 0,
         is_product = nd_htp_recall_before(job, i, ND_HTP_BEFORE_ROUNDING) != NULL;
    return is_product ? has_known_rank(job, i) && (!is_div || !nd_htp_is_in_parts(job, i))
           : is_div   ? note.of_div
                      : note.of_mul;
}

enum nd_status nd_htp_remember_product(const struct nd_htp_job *job, size_t i, struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array values = {0};
    struct nd_array products = {0};
    const struct nd_array *x = job->call->inputs[i].values;
    if (job->memory == NULL || !nd_htp_is_unbounded(job) || !has_entries(x))
        return ND_OK;
    if (strcmp(nd_htp_op_type(job->layer), "Mul") == 0) {
        const struct nd_linear_input *number = &job->call->inputs[!i];
        double factor =
            (number->values->x[0] - (double)number->quant->zero_point[0]) * (double)number->quant->scale[0];
        nd_htp_note_scale(job, job->call->inputs[i].quant->scale[0] * (float)factor);
        ND_TRY(nd_array_copy(x, &products, err));
        nd_htp_remember_before(job, ND_HTP_BEFORE_FACTOR, &products);
    }
    ND_TRY(make_values(job, i, NULL, &values, err));
    ND_TRY(nd_array_make(&products, ND_DTYPE_F32, &x->shape, err));
    for (size_t k = 0; k < x->n; k++)
        products.x[k] = (double)(float)values.x[(size_t)x->x[k]];
    nd_htp_remember_before(job, ND_HTP_BEFORE_ROUNDING, &products);
    return ND_OK;
}

enum nd_status nd_htp_table(const struct nd_htp_job *job, struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array values = {0};
    size_t variable = 0;
    if (!find_variable(job, &variable) || !is_known_function(job) || !is_shaped_alike(job, variable) ||
        !has_entries(job->call->inputs[variable].values))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[variable].values;
    const struct nd_array *products =
        reads_products(job, variable) ? nd_htp_recall_before(job, variable, ND_HTP_BEFORE_ROUNDING) : NULL;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    /* The sum of a product, no quotient, is rounded once. */
    bool is_once = products != NULL && nd_htp_scale_before(job, variable) != 0 &&
                   ND_IS_ONE_OF(nd_htp_op_type(job->layer), "Add", "Sub");
    ND_TRY(make_values(job, variable, is_once ? products : NULL, &values, err));
    ND_TRY(nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err));
    for (size_t k = 0; k < values.n; k++)
        values.x[k] = entry_of(job, &bounds, values.x[k]);
    for (size_t k = 0; k < x->n; k++) {
        double qvalue =
            products != NULL ? round_product(job->call->inputs[variable].quant, products->x[k]) : x->x[k];
        job->qvalues->x[k] = values.x[is_once ? k : (size_t)qvalue];
    }
    *job->is_covered = true;
    nd_htp_note_table(job, note_of(job, variable));
    return ND_OK;
}

/* ---- PRelu ---- */

enum {
    RANK = 4,
    MULTIPLIER_LOG = 14, /* floor(log2) of the greater multiplier, which has 15 bits */
    MAX_SHIFT = 15,
    MORE_BITS = 7, /* what is added beside the half: the shift's layer, times 2^(MULTIPLIER_LOG - MORE_BITS) */
};

/* Quotients of scales that the formula was held against (measured, see the docs), and the greatest slope, of
 * either sign, that the encoding of the slopes has a quantised value for. */
static const double min_ratio = 0.25, max_ratio = 8, greatest_slope = 20;

static double greatest_slope_of(const struct nd_quant *slopes)
{
    double zero = (double)slopes->zero_point[0];
    return fmax(zero, UINT8_MAX - zero) * (double)slopes->scale[0];
}

size_t nd_htp_run_of_slopes(const struct nd_htp_job *job)
{
    return job->call->inputs[1].values->n == 1 ? 1 : nd_htp_run_of(job, 1);
}

static bool has_float_slopes(const struct nd_htp_job *job)
{
    return job->call->inputs[1].quant == NULL && job->call->inputs[1].values->dtype == ND_DTYPE_F32;
}

/* *is_half: slopes of another type are made in float16. */
static bool is_known_prelu(const struct nd_htp_job *job, bool *is_half)
{
    const struct nd_linear_call *call = job->call;
    if (call->n_inputs != 2 || !nd_htp_all_are(job, 1, job->layer->dtype) || !nd_linear_has(call, 1) ||
        (!has_float_slopes(job) && nd_htp_plain(job, 1) == NULL) ||
        job->layer->origins[1] != ND_EXACT_FROM_CONSTANT)
        return false;
    double ratio = (double)(call->inputs[0].quant->scale[0] / call->out_quant->scale[0]);
    *is_half = call->inputs[1].values->dtype != job->layer->dtype;
    return nd_htp_run_of_slopes(job) > 0 &&
           (*is_half || (job->layer->dtype == ND_DTYPE_U8 && ratio >= min_ratio && ratio < max_ratio &&
                         greatest_slope_of(call->inputs[1].quant) <= greatest_slope));
}

/* Of a multiplier of 15 bits. */
static int shift_of(double multiplier)
{
    int shift = MULTIPLIER_LOG - nd_htp_floor_log2(multiplier);
    return shift > MAX_SHIFT ? MAX_SHIFT : shift;
}

static double half_slope(const struct nd_htp_job *job, size_t i)
{
    const struct nd_linear_input *slopes = &job->call->inputs[1];
    return has_float_slopes(job) ? nd_htp_as_half(slopes->values->x[i], ND_ROUND_HALF_EVEN)
                                 : nd_htp_half_of_qvalue(slopes, i);
}

static enum nd_status make_half_prelu(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_linear_input *inputs = job->call->inputs;
    const struct nd_array *x = inputs[0].values;
    size_t run = nd_htp_run_of_slopes(job), n_slopes = inputs[1].values->n;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++) {
        double v = nd_htp_half_of_qvalue(&inputs[0], i);
        if (v < 0)
            v = nd_htp_as_half(v * half_slope(job, i / run % n_slopes), ND_ROUND_HALF_AWAY);
        job->qvalues->x[i] = nd_within(nd_htp_qvalue_of_half(job, v, false), bounds.low, bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

static enum nd_status make_prelu(const struct nd_htp_job *job, struct nd_error *err)
{
    bool is_half;
    if (!is_known_prelu(job, &is_half))
        return ND_OK;
    if (is_half)
        return make_half_prelu(job, err);
    if (job->call->inputs[1].values->n == 1)
        return nd_htp_table(job, err);
    const struct nd_array *x = job->call->inputs[0].values, *slopes = job->call->inputs[1].values;
    const struct nd_quant *from = job->call->inputs[0].quant, *to = job->call->out_quant;
    ND_TRY(nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err));
    float slope_scale = job->call->inputs[1].quant->scale[0];
    double slope_zero = (double)job->call->inputs[1].quant->zero_point[0];
    double ratio = (double)(from->scale[0] / to->scale[0]);
    double most = greatest_slope_of(job->call->inputs[1].quant);
    int full_shift = shift_of(ratio), shift = shift_of(ratio * fmax(most, 1)),
        slope_shift = MULTIPLIER_LOG - nd_htp_floor_log2(most);
    double full = floor(ldexp(ratio, full_shift) + 0.5), m = floor(ldexp(ratio, shift) + 0.5),
           half = 0.5 + ldexp(1, MORE_BITS - shift);
    size_t run = nd_htp_run_of(job, 1);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    for (size_t i = 0; i < x->n; i++) {
        float slope = (float)(slopes->x[i / run % slopes->n] - slope_zero) * slope_scale;
        double negative =
            floor(ldexp(rint(ldexp((double)slope, slope_shift)) * full, shift - full_shift - slope_shift));
        double v = x->x[i] - (double)from->zero_point[0];
        double y = floor(ldexp(v * (v >= 0 ? m : negative), -shift) + half) + (double)to->zero_point[0];
        job->qvalues->x[i] = fmin(fmax(y, bounds.low), bounds.high);
    }
    *job->is_covered = true;
    return ND_OK;
}

/* ---- CumSum ---- */

enum { ROWS = 8 /* of a block */, FIRST_OF_BLOCK_AXES = 1, LAST_OF_BLOCK_AXES = 2 };

/* Along the axis, and whether the device, in its four axes, has that within its blocks. False: not known. */
static bool find_cumsum(const struct nd_htp_job *job, int *axis, bool *is_in_blocks)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (job->call->n_inputs != 2 || !nd_htp_all_are(job, 1, ND_DTYPE_U8) || !nd_htp_is_number(job, 1) ||
        !has_entries(job->call->inputs[0].values) || nd_htp_is_laid_out(job, 0) ||
        nd_op_i(&op_call, "exclusive", 0) != 0 || nd_op_i(&op_call, "reverse", 0) != 0)
        return false;
    int rank = job->call->inputs[0].values->shape.rank;
    *axis = (int)job->call->inputs[1].values->x[0];
    *axis += *axis < 0 ? rank : 0;
    int place = *axis + RANK - rank;
    *is_in_blocks = place >= FIRST_OF_BLOCK_AXES && place <= LAST_OF_BLOCK_AXES;
    return rank <= RANK;
}

/* docs/science/htp-arithmetic.md#cumsum: within blocks of the quantised values as they are, each block
 * beginning with the last one that was made; along other axes of those of a table, each sum clipped. */
static enum nd_status make_cumsum(const struct nd_htp_job *job, struct nd_error *err)
{
    int axis;
    bool is_in_blocks;
    if (!find_cumsum(job, &axis, &is_in_blocks))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    const struct nd_quant *from = job->call->inputs[0].quant, *to = job->call->out_quant;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    float inverse = 1 / to->scale[0], ratio = from->scale[0] * inverse, zero = (float)to->zero_point[0];
    size_t step = nd_dims_product(&x->shape, axis + 1, x->shape.rank), length = (size_t)x->shape.dims[axis];
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t line = 0; status == ND_OK && line < x->n / length; line++) {
        size_t at = line / step * step * length + line % step;
        double sum = 0, y = is_in_blocks ? 0 : (double)zero;
        for (size_t k = 0; k < length; k++, at += step) {
            float real = (float)(x->x[at] - (double)from->zero_point[0]) * from->scale[0],
                  steps = real * inverse;
            sum = (k % ROWS == 0 ? y : sum) + x->x[at];
            y = is_in_blocks
                    ? floor((sum - 2 * (double)from->zero_point[0]) * (double)ratio + (double)zero + 0.5)
                    : y + (double)rintf(steps + zero) - (double)zero;
            job->qvalues->x[at] = y = fmin(fmax(y, bounds.low), bounds.high);
        }
    }
    *job->is_covered = status == ND_OK;
    return status;
}

const struct nd_htp_operator nd_htp_tables[] = {
    {"Abs Atan Ceil Clip Cos Elu Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Relu Round Sigmoid "
     "Sign Sin Softplus Sqrt Tanh Pow",
     nd_htp_table, false},
    {"CumSum", make_cumsum, false},
    {"PRelu", make_prelu, false},
    {.op_types = NULL},
};
