/* uint16 Conv of one channel each (depthwise) that moves by two: the sum keeps all its bits and the weights
 * theirs. docs/science/htp-arithmetic.md#depthwise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/error.h"
#include "core/memory.h"

static bool is_two_by_two(const int64_t *sides, size_t n)
{
    return n == 2 && sides[0] == 2 && sides[1] == 2;
}

bool nd_htp_is_strided_depthwise16(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *w = &job->call->inputs[1].values->shape;
    const int64_t *strides;
    size_t n = nd_op_ints(&op_call, "strides", &strides);
    int64_t group = nd_op_i(&op_call, "group", 1);
    bool is_strided = false;
    for (size_t i = 0; i < n; i++)
        is_strided = is_strided || strides[i] == 2;
    if (strcmp(job->call->node->op_type, "Conv") != 0 || job->layer->dtype != ND_DTYPE_U16 || !is_strided ||
        group < 2 || w->rank < 3 || w->dims[0] != group || w->dims[1] != 1)
        return false;
    /* From v73 on windows of 2 x 2 are no exception. */
    bool is_small = w->rank == 4 && is_two_by_two(&w->dims[2], 2);
    return !(is_small && job->arithmetic != NULL && job->arithmetic->arch == ND_HTP_V73);
}

/* Windows that were seen: 3 x 3, and 2 x 2 on v69, by two in either direction. With 5 x 5 sums are off by up to
 * 25 now and then. */
static bool is_known(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *w = &job->call->inputs[1].values->shape;
    const int64_t *strides, *dilations;
    size_t n = nd_op_ints(&op_call, "strides", &strides),
           n_dilations = nd_op_ints(&op_call, "dilations", &dilations);
    for (size_t i = 0; i < n_dilations; i++)
        if (dilations[i] != 1)
            return false;
    return w->rank == 4 && is_two_by_two(strides, n) && w->dims[2] == w->dims[3] && w->dims[2] <= 3;
}

/* The whole biases are known where their scales are those of the sums. */
static bool has_own_bias_scale(const struct nd_htp_job *job, size_t channel, double scale)
{
    double sums =
        (double)(job->call->inputs[0].quant->scale[0] * (float)nd_linear_scale(&job->call->inputs[1], channel));
    return scale == 0 || scale == sums;
}

/* The scalings of all channels; false: not known. */
static bool find_scalings(const struct nd_htp_job *job, struct nd_htp_scaling *scalings)
{
    const struct nd_linear_call *call = job->call;
    const struct nd_linear_input *w = &call->inputs[1];
    struct nd_htp_biases biases = nd_htp_biases_of(job);
    struct nd_htp_column column = {.scale_x = (double)call->inputs[0].quant->scale[0],
                                   .scale_y = (double)call->out_quant->scale[0],
                                   .zero_y = (double)call->out_quant->zero_point[0],
                                   .r = 1,
                                   .is_per_channel = w->quant->n > 1};
    for (size_t c = 0; c < w->quant->n; c++)
        column.largest_scale_w = fmax(column.largest_scale_w, (double)w->quant->scale[c]);
    for (size_t c = 0; c < (size_t)w->values->shape.dims[0]; c++) {
        column.scale_w = nd_linear_scale(w, c);
        column.bias = nd_htp_bias(&biases, c, &column.bias_scale);
        scalings[c] = nd_htp_scaling_whole16(&column);
        if (!has_own_bias_scale(job, c, column.bias_scale))
            return false;
    }
    return true;
}

enum nd_status nd_htp_depthwise16(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!nd_htp_is_product(job) || !nd_htp_is_strided_depthwise16(job) || !is_known(job) ||
        job->layer->origins[1] != ND_EXACT_FROM_CONSTANT)
        return ND_OK;
    size_t n = (size_t)job->call->inputs[1].values->shape.dims[0];
    struct nd_array own[3] = {0};
    const struct nd_array *inputs[2], *sums = NULL;
    double largest;
    if (!nd_htp_is_known_bias(job, n))
        return ND_OK;
    struct nd_htp_scaling *scalings = nd_calloc(n, sizeof *scalings);
    enum nd_status status = scalings != NULL ? ND_OK : nd_fail_memory(err);
    bool is_covered = status == ND_OK && find_scalings(job, scalings);
    for (size_t i = 0; i < 2 && is_covered && status == ND_OK; i++)
        status = nd_linear_borrow_packed_weights(job->call, i, &own[i], &inputs[i], &largest, err);
    if (is_covered && status == ND_OK)
        status = nd_linear_add_up(job->call, job->call->node, inputs, &own[2], &sums, err);
    if (is_covered && status == ND_OK)
        status = nd_array_make(job->qvalues, job->layer->dtype, &sums->shape, err);
    if (is_covered && status == ND_OK) {
        struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
        size_t n_inner = nd_dims_product(&sums->shape, 2, sums->shape.rank);
        for (size_t i = 0; i < sums->n; i++)
            job->qvalues->x[i] = nd_htp_scale(&scalings[i / n_inner % n], sums->x[i], &bounds);
        *job->is_covered = true;
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        nd_array_deinit(&own[i]);
    free(scalings);
    return status;
}
