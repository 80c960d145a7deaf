/* Normalisations: by mean and variance, by a norm, by the neighbours. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>

#include "core/memory.h"

/* Mean and 1 / sqrt(variance + epsilon) of n elements; without a mean (RMS) the mean is 0. */
struct moments {
    double mean;
    double inverse;
};

static struct moments moments_of(const double *x, size_t n, double epsilon, bool has_mean)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n && has_mean; i++)
        sum += x[i];
    double mean = has_mean ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return (struct moments){.mean = mean, .inverse = 1 / sqrt(squares / (double)n + epsilon)};
}

/* One line of n elements of LayerNormalization; scale and bias (nullable) have as many. */
/* The outputs for mean and inverse standard deviation; without a mean (RMS) only the latter, where the mean
 * would be. */
static enum nd_status make_moments(const struct nd_op_call *call, int axis, bool has_mean,
                                   struct nd_array **mean, struct nd_array **inverse, struct nd_error *err)
{
    struct nd_shape shape = call->inputs[0]->shape;
    enum nd_status status = ND_OK;
    for (int i = axis; i < shape.rank; i++)
        shape.dims[i] = 1;
    for (size_t i = 1; i <= 2 && status == ND_OK; i++)
        if (nd_op_out(call, i) != NULL)
            status = nd_op_make(call, i, call->inputs[0]->dtype, &shape, err);
    *mean = has_mean ? nd_op_out(call, 1) : NULL;
    *inverse = nd_op_out(call, has_mean ? 2 : 1);
    return status;
}

static void put(struct nd_array *array, size_t i, double value)
{
    if (array != NULL)
        array->x[i] = value;
}

/* What is normalised, over its axes from `axis` on. */
struct layer {
    const struct nd_array *x, *scale, *bias; /* bias is nullable */
    int axis;
    bool has_mean;
};

/* x and y from `axis` on. Scale and bias are as large as that part; one that would have to be repeated is
 * refused. */
static enum nd_status normalize_lines(const struct nd_op_call *call, const struct layer *layer,
                                      struct nd_error *err)
{
    const struct nd_array *x = layer->x, *scale = layer->scale, *bias = layer->bias;
    struct nd_array *y = call->outputs[0], *mean, *inverse;
    size_t n = nd_dims_product(&x->shape, layer->axis, x->shape.rank);
    double epsilon =
        nd_op_f(call, "epsilon", (double)(nd_op_is(call, "SkipLayerNormalization") ? 1e-12F : 1e-5F));
    if (scale->n != n || (bias != NULL && bias->n != n))
        return nd_op_unsupported(call, err, "a scale or bias that is not as large as what is normalised");
    enum nd_status status = make_moments(call, layer->axis, layer->has_mean, &mean, &inverse, err);
    for (size_t line = 0; status == ND_OK && x->n > 0 && line < x->n / n; line++) {
        const double *from = x->x + line * n;
        double *to = y->x + line * n;
        struct moments m = moments_of(from, n, epsilon, layer->has_mean);
        for (size_t i = 0; i < n; i++)
            to[i] = (from[i] - m.mean) * m.inverse * scale->x[i] + (bias != NULL ? bias->x[i] : 0);
        put(mean, line, m.mean);
        put(inverse, line, m.inverse);
    }
    return status;
}

enum nd_status nd_op_layer_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int axis = 0;
    enum nd_status status = nd_op_axis(call, nd_op_i(call, "axis", -1), x->shape.rank, &axis, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, x->dtype, &x->shape, err);
    const struct layer layer = {x, call->inputs[1], nd_op_in(call, 2), axis,
                                nd_op_is(call, "LayerNormalization")};
    return status == ND_OK ? normalize_lines(call, &layer, err) : status;
}

/* com.microsoft: input + skip (+ bias) is normalised over the last axis; output 3 is that sum. */
enum nd_status nd_op_skip_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *skip = call->inputs[1];
    bool has_mean = nd_op_is(call, "SkipLayerNormalization");
    const struct nd_array *beta = has_mean ? nd_op_in(call, 3) : NULL, *bias = nd_op_in(call, has_mean ? 4 : 3);
    struct nd_array *sum = nd_op_out(call, 3), own = {0};
    int rank = x->shape.rank;
    if (rank == 0 || !nd_shape_equal(&x->shape, &skip->shape) ||
        (bias != NULL && (int64_t)bias->n != x->shape.dims[rank - 1]))
        return nd_op_unsupported(call, err, "a skip or bias that has to be broadcast");
    if (sum == NULL)
        sum = &own;
    const struct layer layer = {sum, call->inputs[2], beta, rank - 1, has_mean};
    enum nd_status status = nd_array_copy(x, sum, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++)
        sum->x[i] += skip->x[i] + (bias != NULL ? bias->x[i % bias->n] : 0);
    if (status == ND_OK)
        status = nd_op_make(call, 0, x->dtype, &x->shape, err);
    if (status == ND_OK)
        status = normalize_lines(call, &layer, err);
    nd_array_deinit(&own);
    return status;
}

/* Instance: a group per channel. Group: num_groups of them; scale and bias are per group up to opset 20, per
 * channel since 21. */
enum nd_status nd_op_group_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *scale = call->inputs[1], *bias = call->inputs[2];
    if (x->shape.rank < 2)
        return nd_op_misfit(call, err, "a tensor of %d dimensions", x->shape.rank);
    bool is_group = nd_op_is(call, "GroupNormalization");
    int64_t n_channels = x->shape.dims[1], n_groups = is_group ? nd_op_i(call, "num_groups", 0) : n_channels;
    int64_t n_scales = is_group && call->opset < 21 ? n_groups : n_channels;
    if (n_groups < 1 || n_channels % n_groups != 0 || (int64_t)scale->n != n_scales ||
        (int64_t)bias->n != n_scales)
        return nd_op_misfit(call, err, "%lld channels in %lld groups with %zu scales and %zu biases",
                            (long long)n_channels, (long long)n_groups, scale->n, bias->n);
    enum nd_status status = nd_op_make(call, 0, x->dtype, &x->shape, err);
    if (status != ND_OK || x->n == 0)
        return status;
    double epsilon = nd_op_f(call, "epsilon", (double)1e-5F);
    size_t plane = nd_dims_product(&x->shape, 2, x->shape.rank);
    size_t per_group = (size_t)(n_channels / n_groups), per_scale = (size_t)(n_channels / n_scales);
    for (size_t at = 0; at < x->n; at += per_group * plane) {
        struct moments m = moments_of(x->x + at, per_group * plane, epsilon, true);
        for (size_t i = at; i < at + per_group * plane; i++) {
            size_t s = i / plane % (size_t)n_channels / per_scale;
            call->outputs[0]->x[i] = (x->x[i] - m.mean) * m.inverse * scale->x[s] + bias->x[s];
        }
    }
    return ND_OK;
}

enum nd_status nd_op_batch_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    if (nd_op_i(call, "training_mode", 0) != 0 || nd_op_out(call, 1) != NULL)
        return nd_op_unsupported(call, err, "training");
    if (nd_op_i(call, "spatial", 1) == 0)
        return nd_op_unsupported(call, err, "spatial = 0");
    size_t n_channels = x->shape.rank > 1 ? (size_t)x->shape.dims[1] : 1;
    for (size_t i = 1; i <= 4; i++)
        if (call->inputs[i]->n != n_channels)
            return nd_op_misfit(call, err, "input %zu has %zu elements for %zu channels", i, call->inputs[i]->n,
                                n_channels);
    const double *scale = call->inputs[1]->x, *bias = call->inputs[2]->x;
    const double *mean = call->inputs[3]->x, *variance = call->inputs[4]->x;
    double epsilon = nd_op_f(call, "epsilon", (double)1e-5F);
    size_t plane = nd_dims_product(&x->shape, 2, x->shape.rank);
    enum nd_status status = nd_op_make_room(call, 0, x->dtype, &x->shape, err);
    for (size_t first = 0; first < x->n && status == ND_OK; first += plane) {
        size_t c = first / plane % n_channels;
        double centre = mean[c], deviation = sqrt(variance[c] + epsilon), factor = scale[c], added = bias[c];
        const double *in = x->x + first;
        double *out = call->outputs[0]->x + first;
        for (size_t i = 0; i < plane; i++)
            out[i] = (in[i] - centre) / deviation * factor + added;
    }
    return status;
}

/* A line of zeros stays one. */
enum nd_status nd_op_lp_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int64_t p = nd_op_i(call, "p", 2);
    int axis = 0;
    if (p != 1 && p != 2)
        return nd_op_unsupported(call, err, "p = %lld", (long long)p);
    enum nd_status status = nd_op_axis(call, nd_op_i(call, "axis", -1), x->shape.rank, &axis, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, x->dtype, &x->shape, err);
    if (status != ND_OK || x->n == 0)
        return status;
    size_t n = (size_t)x->shape.dims[axis], step = nd_dims_product(&x->shape, axis + 1, x->shape.rank);
    for (size_t line = 0; line < x->n / n; line++) {
        size_t base = line / step * step * n + line % step;
        double norm = 0;
        for (size_t i = 0; i < n; i++) {
            double value = x->x[base + i * step];
            norm += p == 1 ? fabs(value) : value * value;
        }
        norm = p == 1 ? norm : sqrt(norm);
        for (size_t i = 0; i < n; i++)
            call->outputs[0]->x[base + i * step] = norm == 0 ? 0 : x->x[base + i * step] / norm;
    }
    return ND_OK;
}

/* y = x / (bias + alpha / size * (sum of the squares of the channels around))^beta. */
enum nd_status nd_op_lrn(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int64_t size = nd_op_i(call, "size", 0);
    if (x->shape.rank < 2 || size < 1)
        return nd_op_misfit(call, err, "a size of %lld on %d dimensions", (long long)size, x->shape.rank);
    double alpha = nd_op_f(call, "alpha", (double)1e-4F), beta = nd_op_f(call, "beta", 0.75);
    double bias = nd_op_f(call, "bias", 1);
    int64_t n_channels = x->shape.dims[1], before = (size - 1) / 2, after = size - 1 - before;
    size_t plane = nd_dims_product(&x->shape, 2, x->shape.rank);
    enum nd_status status = nd_op_make(call, 0, x->dtype, &x->shape, err);
    for (size_t i = 0; i < x->n && status == ND_OK; i++) {
        int64_t c = (int64_t)(i / plane) % n_channels;
        int64_t from = c > before ? c - before : 0,
                to = after < n_channels - 1 - c ? c + after : n_channels - 1;
        double squares = 0;
        for (int64_t other = from; other <= to; other++) {
            double value = x->x[(size_t)((int64_t)i + (other - c) * (int64_t)plane)];
            squares += value * value;
        }
        call->outputs[0]->x[i] = x->x[i] / pow(bias + alpha / (double)size * squares, beta);
    }
    return status;
}
