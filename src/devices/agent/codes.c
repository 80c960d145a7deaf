/* Codes of floats that a DequantizeLinear made: docs/reference/capture-format.md#from-floats. */
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "devices/agent/agent.h"

/* The codes of a type: from low to high. False for types that a tensor is not recorded in through floats. */
static bool read_range(enum nd_dtype dtype, double *low, double *high)
{
    bool is_signed = dtype == ND_DTYPE_I8 || dtype == ND_DTYPE_I16;
    double span = ldexp(1, 8 * (int)nd_dtype_size_bytes(dtype)); /* codes that the type has */
    *low = is_signed ? -span / 2 : 0;
    *high = *low + span - 1;
    return is_signed || dtype == ND_DTYPE_U8 || dtype == ND_DTYPE_U16;
}

static enum nd_status make_room(struct nd_agent_codes *qvalues, size_t n_bytes, struct nd_error *err)
{
    if (qvalues->bytes != NULL && qvalues->capacity >= n_bytes)
        return ND_OK;
    free(qvalues->bytes);
    qvalues->capacity = n_bytes;
    qvalues->bytes = nd_tensor_alloc(n_bytes);
    return qvalues->bytes != NULL ? ND_OK : nd_fail_memory(err);
}

/* A float has a code only where it is the very value of that code in float32, as DequantizeLinear defines it.
 * So a device whose DequantizeLinear rounds gives an error, and never a wrong code. */
static enum nd_status make_qvalues(struct nd_agent_codes *qvalues, const struct nd_job_tensor *tensor,
                                   struct nd_error *err)
{
    double low, high;
    size_t code_bytes = nd_dtype_size_bytes(tensor->dtype), n = qvalues->floats->size_bytes / sizeof(float);
    if (qvalues->floats->dtype != ND_DTYPE_F32 || !read_range(tensor->dtype, &low, &high))
        return nd_fail(err, ND_E_DEVICE_OUTPUT, tensor->output, "output '%s' is %s, from which no %s is made",
                       tensor->output, nd_dtype_name(qvalues->floats->dtype), nd_dtype_name(tensor->dtype));
    enum nd_status status = make_room(qvalues, n * code_bytes, err);
    const float *floats = qvalues->floats->data;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        double steps = rint((double)floats[i] / (double)tensor->scale),
               code = steps + (double)tensor->zero_point;
        if (!(code >= low && code <= high) || (float)steps * tensor->scale != floats[i])
            return nd_fail(err, ND_E_DEVICE_OUTPUT, tensor->output,
                           "element %zu of output '%s' is %.9g, which is not the value of a quantised value", i,
                           tensor->output, (double)floats[i]);
        /* The low bits of a two's complement number are the same with and without a sign. */
        if (code_bytes == 1)
            ((uint8_t *)qvalues->bytes)[i] = (uint8_t)(int32_t)code;
        else
            ((uint16_t *)qvalues->bytes)[i] = (uint16_t)(int32_t)code;
    }
    qvalues->view =
        (struct nd_output_view){tensor->dtype, qvalues->floats->shape, qvalues->bytes, n * code_bytes};
    return status;
}

enum nd_status nd_agent_make_codes(struct nd_agent *agent, struct nd_error *err)
{
    for (size_t e = 0; e < agent->job->n_tensors; e++)
        if (agent->qvalues[e].floats != NULL)
            ND_TRY(make_qvalues(&agent->qvalues[e], &agent->job->tensors[e], err));
    return ND_OK;
}
