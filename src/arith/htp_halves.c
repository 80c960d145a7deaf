/* Operators whose input is an input of the graph in floats, and whose output is quantised: the HTP works in
 * float16 and quantises what comes of it. docs/science/htp-arithmetic.md#floats. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arith/htp_internal.h"
#include "arith/requantise.h"
#include "base/memory.h"

enum {
    HALF_BITS = 10,     /* of float16, behind the leading one */
    VECTOR_BYTES = 128, /* of an HVX register */
};

/* The greatest that is not infinite as float16. */
static const double most_of_half = 65504;

static const struct {
    const char *op_type;
    bool is_flat; /* one run over all codes: of uint8, what does not fill a vector at its end is rounded down */
} operators[] = {
    {"Relu", false},   {"Clip", false},  {"AveragePool", false}, {"Pad", false},
    {"Resize", false}, {"Gather", true}, {"Flatten", true},
};

static double as_half(double v, enum nd_rounding rounding)
{
    return v == 0 ? 0 : copysign(nd_multiplier_round(fabs(v), HALF_BITS, rounding), v);
}

static double half_away(double v)
{
    return copysign(floor(fabs(v) + 0.5), v);
}

/* Windows of uint16 averages that were seen to follow: 2 x 2 is off by one in a tenth of the codes. */
static bool is_known_pool(const struct nd_htp_job *job)
{
    enum { EXACT_WINDOW = 3 };
    const struct nd_op_call call = {.node = job->call->node, .opset = job->call->opset};
    const int64_t *kernel;
    bool has_window = nd_op_ints(&call, "kernel_shape", &kernel) == 2;
    return nd_htp_is_apart(job->call) &&
           (job->unit->dtype == ND_DTYPE_U8 || (has_window && kernel[0] == EXACT_WINDOW));
}

static bool is_nearest(const struct nd_htp_job *job)
{
    char mode[16];
    const struct nd_op_call call = {.node = job->call->node, .opset = job->call->opset};
    nd_op_text(&call, "mode", mode, sizeof mode);
    return mode[0] == '\0' || strcmp(mode, "nearest") == 0;
}

/* The row of `operators`, or -1. */
static int find_operator(const struct nd_htp_job *job)
{
    const char *op_type = job->call->node->op_type;
    const struct nd_linear_call *call = job->call;
    enum { N = sizeof operators / sizeof operators[0] };
    int row = 0;
    while (row < N && strcmp(operators[row].op_type, op_type) != 0)
        row++;
    bool is_known = row < N && call->n_inputs > 0 && nd_linear_has(call, 0) && call->inputs[0].quant == NULL &&
                    job->unit->origins[0] == ND_EXACT_FROM_INPUT &&
                    call->inputs[0].values->dtype == ND_DTYPE_F32 && nd_htp_plain_output(job) != NULL;
    for (size_t i = 1; is_known && i < call->n_inputs; i++)
        is_known = call->inputs[i].quant == NULL;
    if (!is_known || (strcmp(op_type, "AveragePool") == 0 && !is_known_pool(job)) ||
        (strcmp(op_type, "Resize") == 0 && !is_nearest(job)))
        return -1;
    return row;
}

/* Of the real value, in steps of the output. */
static double code_of(const struct nd_htp_job *job, double value, bool is_down)
{
    const struct nd_quant *y = job->call->out_quant;
    float steps = (float)as_half(value, ND_ROUND_HALF_EVEN) * (1 / y->scale[0]);
    if (job->unit->dtype == ND_DTYPE_U16)
        return half_away((double)steps) + (double)y->zero_point[0];
    return (is_down ? floor((double)steps) : half_away(as_half((double)steps, ND_ROUND_HALF_EVEN))) +
           (double)y->zero_point[0];
}

static bool round_input(const struct nd_array *x, struct nd_array *halves)
{
    for (size_t i = 0; i < x->n; i++) {
        if (!(fabs(x->x[i]) <= most_of_half))
            return false;
        halves->x[i] = as_half(x->x[i], ND_ROUND_HALF_AWAY);
    }
    return true;
}

/* The operator on float16; takes inputs, of which the first becomes float16. */
static enum nd_status run(const struct nd_htp_job *job, const struct nd_array **inputs, bool is_flat,
                          struct nd_error *err)
{
    struct nd_array halves = {0}, made = {0};
    enum nd_status status = nd_array_copy(inputs[0], &halves, err);
    bool is_known = status == ND_OK && round_input(inputs[0], &halves);
    inputs[0] = &halves;
    if (is_known)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &made, err);
    nd_array_deinit(&halves);
    if (!is_known || status != ND_OK) {
        nd_array_deinit(&made);
        return status;
    }
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    size_t n_whole = is_flat && job->unit->dtype == ND_DTYPE_U8 ? made.n - made.n % VECTOR_BYTES : made.n;
    for (size_t i = 0; i < made.n; i++)
        made.x[i] = fmin(fmax(code_of(job, made.x[i], i >= n_whole), bounds.low), bounds.high);
    made.dtype = job->unit->dtype;
    *job->codes = made;
    *job->is_covered = true;
    return ND_OK;
}

bool nd_htp_reads_floats(const struct nd_exact_unit *unit)
{
    return unit->call->n_inputs > 0 && unit->call->inputs[0].quant == NULL;
}

enum nd_status nd_htp_halves(const struct nd_htp_job *job, struct nd_error *err)
{
    int row = find_operator(job);
    if (row < 0)
        return ND_OK;
    const struct nd_array **inputs = nd_calloc(job->call->n_inputs, sizeof *inputs);
    if (inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < job->call->n_inputs; i++)
        inputs[i] = job->call->inputs[i].values;
    enum nd_status status = run(job, inputs, operators[row].is_flat, err);
    free(inputs);
    return status;
}
