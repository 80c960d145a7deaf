/* uint8 functions of one input: a table of 256 entries. docs/science/htp-arithmetic.md#tables. */
#include <math.h>
#include <string.h>

#include "arith/htp_internal.h"

enum { N_ENTRIES = 256 };

static bool is_known_function(const struct nd_htp_job *job)
{
    char text[16];
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (strcmp(job->call->node->op_type, "Gelu") != 0)
        return true;
    nd_op_text(&op_call, "approximate", text, sizeof text);
    return text[0] == '\0' || strcmp(text, "none") == 0;
}

/* The operator on the 256 values that codes stand for. */
static enum nd_status make_values(const struct nd_htp_job *job, struct nd_array *values, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 1, .dims = {N_ENTRIES}};
    const struct nd_quant *quant = job->call->inputs[0].quant;
    struct nd_array x = {0};
    const struct nd_array *input = &x;
    enum nd_status status = nd_array_make(&x, ND_DTYPE_F32, &shape, err);
    for (int64_t code = 0; status == ND_OK && code < N_ENTRIES; code++)
        x.x[code] = (double)((float)(code - quant->zero_point[0]) * quant->scale[0]);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, &input, 1, values, err);
    nd_array_deinit(&x);
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

enum nd_status nd_htp_table(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array values = {0};
    if (job->call->n_inputs != 1 || !nd_htp_all_are(job, 1, ND_DTYPE_U8) || !is_known_function(job) ||
        !has_entries(job->call->inputs[0].values))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    enum nd_status status = make_values(job, &values, err);
    if (status == ND_OK)
        status = nd_array_make(job->codes, job->unit->dtype, &x->shape, err);
    if (status == ND_OK) {
        struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
        float inverse = 1 / job->call->out_quant->scale[0];
        double zero = (double)job->call->out_quant->zero_point[0], table[N_ENTRIES];
        for (size_t code = 0; code < N_ENTRIES; code++) {
            double y = (double)rintf((float)values.x[code] * inverse) + zero;
            table[code] = isnan(y) ? zero : fmin(fmax(y, bounds.low), bounds.high);
        }
        for (size_t i = 0; i < x->n; i++)
            job->codes->x[i] = table[(size_t)x->x[i]];
        *job->is_covered = true;
    }
    nd_array_deinit(&values);
    return status;
}
