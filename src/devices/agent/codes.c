/* Codes of floats that a DequantizeLinear made: docs/reference/capture-format.md#from-floats. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "devices/agent/agent.h"

/* The codes of a type: from low to high. False for types that an edge is not recorded in through floats. */
static bool read_range(enum nd_dtype dtype, double *low, double *high)
{
    bool is_signed = dtype == ND_DTYPE_I8 || dtype == ND_DTYPE_I16;
    double span = ldexp(1, 8 * (int)nd_dtype_size_bytes(dtype)); /* codes that the type has */
    *low = is_signed ? -span / 2 : 0;
    *high = *low + span - 1;
    return is_signed || dtype == ND_DTYPE_U8 || dtype == ND_DTYPE_U16;
}

/* The low bits of a two's complement number are the same with and without a sign. */
static void put_code(void *bytes, size_t i, size_t code_bytes, double code)
{
    if (code_bytes == 1)
        ((uint8_t *)bytes)[i] = (uint8_t)(int32_t)code;
    else
        ((uint16_t *)bytes)[i] = (uint16_t)(int32_t)code;
}

static enum nd_status make_room(struct nd_agent_codes *codes, size_t n_bytes, struct nd_error *err)
{
    if (codes->bytes != NULL && codes->capacity >= n_bytes)
        return ND_OK;
    free(codes->bytes);
    codes->capacity = n_bytes;
    codes->bytes = nd_tensor_alloc(n_bytes);
    return codes->bytes != NULL ? ND_OK : nd_fail_memory(err);
}

/* A float has a code only where it is the very value of that code in float32, as DequantizeLinear defines it.
 * So a device whose DequantizeLinear rounds gives an error, and never a wrong code. */
static enum nd_status make_codes(struct nd_agent_codes *codes, const struct nd_job_edge *edge,
                                 struct nd_error *err)
{
    double low, high;
    size_t code_bytes = nd_dtype_size_bytes(edge->dtype), n = codes->floats->size_bytes / sizeof(float);
    if (codes->floats->dtype != ND_DTYPE_F32 || !read_range(edge->dtype, &low, &high))
        return nd_fail(err, ND_E_DEVICE_OUTPUT, edge->output, "output '%s' is %s, from which no %s is made",
                       edge->output, nd_dtype_name(codes->floats->dtype), nd_dtype_name(edge->dtype));
    enum nd_status status = make_room(codes, n * code_bytes, err);
    const float *floats = codes->floats->data;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        double steps = rint((double)floats[i] / (double)edge->scale), code = steps + (double)edge->zero_point;
        if (!(code >= low && code <= high) || (float)steps * edge->scale != floats[i])
            return nd_fail(err, ND_E_DEVICE_OUTPUT, edge->output,
                           "element %zu of output '%s' is %.9g, which is not the value of a quantised value", i,
                           edge->output, (double)floats[i]);
        put_code(codes->bytes, i, code_bytes, code);
    }
    codes->view = (struct nd_output_view){edge->dtype, codes->floats->shape, codes->bytes, n * code_bytes};
    return status;
}

enum nd_status nd_agent_make_codes(struct nd_agent *agent, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; status == ND_OK && e < agent->job->n_edges; e++)
        if (agent->codes[e].floats != NULL)
            status = make_codes(&agent->codes[e], &agent->job->edges[e], err);
    return status;
}
