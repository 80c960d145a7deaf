/* GlobalAveragePool, ReduceMean and uint8 AveragePool: a sum of all that is averaged, times a multiplier.
 * docs/science/htp-arithmetic.md#means.
 */
#include <math.h>
#include <string.h>

#include "arith/htp_internal.h"
#include "arith/requantise.h"

enum nd_status nd_htp_mean(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array x = {0}, mean = {0};
    double largest;
    if (job->unit->dtype == ND_DTYPE_U16 && strcmp(job->call->node->op_type, "ReduceMean") == 0)
        return ND_OK; /* right in 8 of 28 layers of the study with strangers: not known */
    if (job->call->n_inputs > 2 || !nd_htp_all_are(job, 1, job->unit->dtype) ||
        job->call->inputs[0].values->n == 0)
        return ND_OK;
    const struct nd_array *inputs[] = {&x, nd_linear_has(job->call, 1) ? job->call->inputs[1].values : NULL};
    enum nd_status status = nd_linear_wholes(job->call, 0, &x, &largest, err);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &mean, err);
    if (status == ND_OK && mean.n > 0)
        status = nd_array_make(job->codes, job->unit->dtype, &mean.shape, err);
    if (status == ND_OK && mean.n > 0) {
        struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
        double count = (double)(x.n / mean.n), scale_x = (double)job->call->inputs[0].quant->scale[0];
        double m = scale_x / ((double)job->call->out_quant->scale[0] * count);
        struct nd_htp_scaling scaling = {.c = nd_multiplier_round(m, 14, ND_ROUND_HALF_EVEN),
                                         .step = 1,
                                         .zero = (double)job->call->out_quant->zero_point[0]};
        /* The mean of whole numbers is within some ulp: times their count it rounds to their sum. */
        for (size_t i = 0; i < mean.n; i++)
            job->codes->x[i] = nd_htp_scale(&scaling, rint(mean.x[i] * count), &bounds);
        *job->is_covered = true;
    }
    nd_array_deinit(&x);
    nd_array_deinit(&mean);
    return status;
}

/* Of AveragePool with windows that neither overlap nor reach beyond the plane: 2 x 2 and 3 x 3. 0: another. */
static int window_of(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const int64_t *kernel, *strides, *pads, *dilations;
    char auto_pad[16];
    size_t n_pads = nd_op_ints(&op_call, "pads", &pads);
    nd_op_text(&op_call, "auto_pad", auto_pad, sizeof auto_pad);
    if (nd_op_ints(&op_call, "kernel_shape", &kernel) != 2 || nd_op_ints(&op_call, "strides", &strides) != 2 ||
        (auto_pad[0] != '\0' && strcmp(auto_pad, "NOTSET") != 0) || nd_op_i(&op_call, "ceil_mode", 0) != 0)
        return 0;
    for (size_t i = 0; i < n_pads; i++)
        if (pads[i] != 0)
            return 0;
    for (size_t i = 0, n = nd_op_ints(&op_call, "dilations", &dilations); i < n; i++)
        if (dilations[i] != 1)
            return 0;
    bool is_square = kernel[0] == kernel[1] && strides[0] == kernel[0] && strides[1] == kernel[0];
    return is_square && (kernel[0] == 2 || kernel[0] == 3) ? (int)kernel[0] : 0;
}

/* What 2 x 2 windows add beside the half; 3 x 3 ones nothing. */
static double more_of(int window, double m)
{
    enum { LEAST_LOG = -8 };
    if (window != 2 || m >= 0.5)
        return 0;
    int exponent;
    frexp(m, &exponent);
    return ldexp(1, exponent - 4 > LEAST_LOG ? exponent - 4 : LEAST_LOG);
}

enum nd_status nd_htp_pool(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array x = {0};
    double largest;
    int window = job->call->n_inputs == 1 && nd_htp_all_are(job, 1, ND_DTYPE_U8) ? window_of(job) : 0;
    if (window == 0)
        return ND_OK;
    const struct nd_array *inputs[] = {&x};
    enum nd_status status = nd_linear_wholes(job->call, 0, &x, &largest, err);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, inputs, 1, job->codes, err);
    nd_array_deinit(&x);
    if (status != ND_OK)
        return status;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    const struct nd_quant *y = job->call->out_quant;
    double n = (double)window * window;
    double m = (double)job->call->inputs[0].quant->scale[0] / ((double)y->scale[0] * n);
    double c = nd_multiplier_round(m, 14, ND_ROUND_HALF_UP), more = more_of(window, m);
    for (size_t i = 0; i < job->codes->n; i++) {
        double code = floor(rint(job->codes->x[i] * n) * c + 0.5 + more) + (double)y->zero_point[0];
        job->codes->x[i] = fmin(fmax(code, bounds.low), bounds.high);
    }
    job->codes->dtype = job->unit->dtype;
    *job->is_covered = true;
    return ND_OK;
}
