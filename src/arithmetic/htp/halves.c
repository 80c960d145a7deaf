/* Operators whose input is an input of the graph in floats, and whose output is quantised: the HTP works in
 * float16 and quantises what comes of it, or quantises before. docs/science/htp-arithmetic.md#floats. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/htp/qfloat.h"
#include "core/memory.h"

enum {
    HALF_BITS = 10,      /* of float16, behind the leading one */
    MIN_NORMAL = -14,    /* log2 of the least float16 that has them all */
    SUBNORMAL_BITS = 24, /* behind the point, of those below */
    VECTOR_BYTES = 128,  /* of an HVX register */
};

/* The greatest that is not infinite as float16. */
static const double max_of_half = 65504;

static const struct method {
    const char *op_type;
    bool is_flat; /* one run over all codes: of uint8, what does not fill a vector at its end is rounded down */
    bool is_qvalues; /* ONNX Runtime quantises the input of the graph: no float16 */
} methods[] = {
    {"Relu", false, false},     {"Clip", false, false},   {"AveragePool", false, false},
    {"Pad", false, false},      {"Resize", false, false}, {"Gather", true, false},
    {"Flatten", true, false},   {"Slice", false, true},   {"MaxPool", false, true},
    {"Reshape", false, true},   {"Squeeze", false, true}, {"Transpose", false, true},
    {"Unsqueeze", false, true},
};
/* A Slice with a Relu or Clip behind it, all in floats. */
static const struct method cut_and_narrowed = {"Slice", false, false};
/* A MaxPool or Resize that reads float16 of another float operator; others were not looked at. */
static const struct method chained = {"MaxPool", false, false};

double nd_htp_round_to_half(double v, enum nd_rounding rounding)
{
    return v == 0 ? v : copysign(nd_multiplier_round(fabs(v), HALF_BITS, rounding), v);
}

double nd_htp_as_half(double v)
{
    if (fabs(v) < ldexp(1, MIN_NORMAL))
        return copysign(ldexp(rint(ldexp(fabs(v), SUBNORMAL_BITS)), -SUBNORMAL_BITS), v);
    return nd_htp_round_to_half(v, ND_ROUND_HALF_EVEN);
}

static double half_away(double v)
{
    return copysign(floor(fabs(v) + 0.5), v);
}

static bool is_nearest(const struct nd_htp_job *job)
{
    char mode[16];
    const struct nd_op_call call = {.node = job->call->node, .opset = job->call->opset};
    nd_op_text(&call, "mode", mode, sizeof mode);
    return mode[0] == '\0' || strcmp(mode, "nearest") == 0;
}

/* NULL: not known. */
static const struct method *find_method(const struct nd_htp_job *job)
{
    const char *op_type = job->call->node->op_type;
    const struct nd_linear_call *call = job->call;
    enum { N = sizeof methods / sizeof methods[0] };
    int row = 0;
    while (row < N && strcmp(methods[row].op_type, op_type) != 0)
        row++;
    bool is_known = row < N && call->n_inputs > 0 && nd_linear_has(call, 0) && call->inputs[0].quant == NULL &&
                    job->layer->origins[0] != ND_EXACT_FROM_CONSTANT &&
                    call->inputs[0].values->dtype == ND_DTYPE_F32 && nd_htp_plain_output(job) != NULL;
    for (size_t i = 1; is_known && i < call->n_inputs; i++)
        is_known = call->inputs[i].quant == NULL;
    if (!is_known ||
        (strcmp(op_type, "AveragePool") == 0 && nd_htp_half_pool_of(call) == ND_HTP_HALF_POOL_UNKNOWN) ||
        (strcmp(op_type, "Resize") == 0 && !is_nearest(job) &&
         (!nd_htp_is_half_resize(job) || job->layer->origins[0] == ND_EXACT_FROM_LAYER)))
        return NULL;
    if (job->layer->origins[0] == ND_EXACT_FROM_LAYER)
        return strcmp(op_type, "MaxPool") == 0 || strcmp(op_type, "Resize") == 0 ? &chained : NULL;
    if (methods[row].is_qvalues && !nd_htp_is_unbounded(job))
        return strcmp(op_type, "Slice") == 0 ? &cut_and_narrowed : NULL;
    return &methods[row];
}

/* Of a float32 that is quantised before the operator: half to even, as ONNX Runtime's CPU provider has it. */
static double qvalue_of_input(const struct nd_quant *y, float value)
{
    float steps = value / y->scale[0];
    return rint((double)steps) + (double)y->zero_point[0];
}

static double qvalue_of(const struct nd_htp_job *job, float half, bool is_down)
{
    const struct nd_quant *y = job->call->out_quant;
    float inverse = 1 / y->scale[0];
    if (job->layer->dtype == ND_DTYPE_U16) {
        struct nd_qfloat product = nd_qfloat_product(nd_qfloat_from(half), nd_qfloat_from(inverse));
        return half_away(nd_qfloat_value(product)) + (double)y->zero_point[0];
    }
    float steps = half * inverse;
    return (is_down ? floor((double)steps)
                    : half_away(nd_htp_round_to_half((double)steps, ND_ROUND_HALF_EVEN))) +
           (double)y->zero_point[0];
}

double nd_htp_qvalue_of_half(const struct nd_htp_job *job, double value)
{
    return qvalue_of(job, (float)nd_htp_round_to_half(value, ND_ROUND_HALF_EVEN), false);
}

static bool round_input(const struct nd_array *x, struct nd_array *halves)
{
    for (size_t i = 0; i < x->n; i++) {
        if (!(fabs(x->x[i]) <= max_of_half))
            return false;
        halves->x[i] = nd_htp_round_to_half(x->x[i], ND_ROUND_HALF_AWAY);
    }
    return true;
}

/* The operator on float16, or float32; takes inputs, of which the first becomes what is read. */
static enum nd_status run(const struct nd_htp_job *job, const struct nd_array **inputs,
                          const struct method *method, struct nd_error *err)
{
    struct nd_array halves = {0}, made = {0};
    enum nd_status status = nd_array_copy(inputs[0], &halves, err);
    bool is_known = status == ND_OK && (method->is_qvalues || round_input(inputs[0], &halves));
    inputs[0] = &halves;
    if (is_known)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &made, err);
    if (is_known && status == ND_OK && strcmp(job->call->node->op_type, "AveragePool") == 0)
        nd_htp_half_pool(job, &halves, &made);
    if (is_known && status == ND_OK && strcmp(job->call->node->op_type, "Resize") == 0 && !is_nearest(job))
        is_known = nd_htp_half_resize(&halves, &made);
    nd_array_deinit(&halves);
    if (!is_known || status != ND_OK) {
        nd_array_deinit(&made);
        return status;
    }
    /* A Relu or Clip behind the operator is made in float16, too. */
    struct nd_htp_bounds bounds = nd_htp_bounds_between(job, -HUGE_VAL, HUGE_VAL);
    size_t n_whole =
        method->is_flat && job->layer->dtype == ND_DTYPE_U8 ? made.n - made.n % VECTOR_BYTES : made.n;
    for (size_t i = 0; i < made.n; i++) {
        double value = fmin(fmax(made.x[i], job->call->low), job->call->high);
        double qvalue =
            method->is_qvalues
                ? qvalue_of_input(job->call->out_quant, (float)value)
                : qvalue_of(job, (float)nd_htp_round_to_half(value, ND_ROUND_HALF_EVEN), i >= n_whole);
        made.x[i] = fmin(fmax(qvalue, bounds.low), bounds.high);
    }
    made.dtype = job->layer->dtype;
    *job->qvalues = made;
    *job->is_covered = true;
    return ND_OK;
}

bool nd_htp_reads_floats(const struct nd_exact_layer *layer)
{
    return layer->call->n_inputs > 0 && layer->call->inputs[0].quant == NULL;
}

enum nd_status nd_htp_halves(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct method *method = find_method(job);
    if (method == NULL)
        return ND_OK;
    const struct nd_array **inputs = nd_calloc(job->call->n_inputs, sizeof *inputs);
    if (inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < job->call->n_inputs; i++)
        inputs[i] = job->call->inputs[i].values;
    enum nd_status status = run(job, inputs, method, err);
    free(inputs);
    return status;
}
