/* GlobalAveragePool and ReduceMean: a sum of all that is averaged, times a multiplier.
 * docs/science/htp-arithmetic.md#means.
 */
#include <math.h>

#include "arith/htp_internal.h"
#include "arith/requantise.h"

enum nd_status nd_htp_mean(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array x = {0}, mean = {0};
    double largest;
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
