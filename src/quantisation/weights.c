/* The weights and biases of a layer, before and after their quantisation. */
#include "quantisation/weights.h"

#include <math.h>
#include <stdlib.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/statistics/series.h"

/* Elements of a channel that follow each other, and how many channels there are. */
struct layout {
    size_t n_inner, n_channels;
};

static struct layout layout_of(const struct nd_array *real, int axis)
{
    struct layout layout = {real->n > 0 ? real->n : 1, 1};
    if (axis < 0)
        return layout;
    layout.n_inner = nd_dims_product(&real->shape, axis + 1, real->shape.rank);
    layout.n_channels = (size_t)real->shape.dims[axis];
    return layout;
}

/* The largest magnitude of each channel: a new array. */
static double *channel_sizes(const struct nd_array *real, const struct layout *layout)
{
    double *sizes = nd_calloc(layout->n_channels, sizeof *sizes);
    for (size_t first = 0, c = 0; sizes != NULL && first < real->n; first += layout->n_inner) {
        for (size_t i = first; i < first + layout->n_inner; i++)
            sizes[c] = fabs(real->x[i]) > sizes[c] ? fabs(real->x[i]) : sizes[c];
        c = c + 1 < layout->n_channels ? c + 1 : 0;
    }
    return sizes;
}

enum nd_status nd_channels_ratio(const struct nd_array *real, int axis, double *ratio, struct nd_error *err)
{
    struct layout layout = layout_of(real, axis);
    ND_FREED double *sizes = channel_sizes(real, &layout);
    size_t first = 0, n = layout.n_channels;
    ND_TRY_MEMORY(sizes != NULL, err);
    nd_series_sort(sizes, n);
    while (first < n && sizes[first] == 0)
        first++;
    *ratio = first < n ? sizes[n - 1] / sizes[first + (n - first) / 4] : NAN;
    return ND_OK;
}

double nd_mean_square_between(const struct nd_array *a, const struct nd_array *b)
{
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += (a->x[i] - b->x[i]) * (a->x[i] - b->x[i]);
    return a->n > 0 ? sum / (double)a->n : 0;
}

double nd_mean_square(const struct nd_array *a)
{
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += a->x[i] * a->x[i];
    return a->n > 0 ? sum / (double)a->n : 0;
}

enum nd_status nd_weights_quantised(const struct nd_array *real, int axis, int bits, struct nd_array *out,
                                    struct nd_error *err)
{
    struct layout layout = layout_of(real, axis);
    double *sizes = channel_sizes(real, &layout), last = ldexp(1, bits - 1) - 1;
    enum nd_status status = sizes != NULL ? nd_array_copy(real, out, err) : nd_fail_memory(err);
    for (size_t first = 0, c = 0; status == ND_OK && first < real->n; first += layout.n_inner) {
        double scale = (double)(float)(sizes[c] / last);
        for (size_t i = first; i < first + layout.n_inner; i++)
            out->x[i] = scale > 0 ? fmin(fmax(rint(real->x[i] / scale), -last), last) * scale : 0;
        c = c + 1 < layout.n_channels ? c + 1 : 0;
    }
    free(sizes);
    return status;
}

/* Only of biases somebody reads the quantised values. */
static const struct nd_array *qvalues_of(const struct nd_exact_constant *constant)
{
    return constant->is_bias ? constant->qvalues : NULL;
}

enum nd_status nd_pair_hold(const struct nd_plan *plan, const struct nd_exact_constant *constant,
                            const struct nd_array *before, struct nd_error *err)
{
    ND_TRY(nd_exact_hold(plan->graph, constant->real, err));
    enum nd_status status = nd_exact_hold(plan->graph, qvalues_of(constant), err);
    if (status == ND_OK) {
        status = nd_exact_hold(plan->float_graph, before, err);
        if (status == ND_OK)
            return ND_OK;
        nd_exact_release(plan->graph, qvalues_of(constant));
    }
    nd_exact_release(plan->graph, constant->real);
    return status;
}

void nd_pair_release(const struct nd_plan *plan, const struct nd_exact_constant *constant,
                     const struct nd_array *before)
{
    nd_exact_release(plan->float_graph, before);
    nd_exact_release(plan->graph, qvalues_of(constant));
    nd_exact_release(plan->graph, constant->real);
}
