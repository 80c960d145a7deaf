/* Each coordinate of one axis compared as a tensor of its own. docs/reference/metrics.md#per-channel. */
#include "compare/findings/top1_classes.h"

#include <string.h>

#include "compare/metrics/states.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"

enum { MAX_CHANNELS = 65536, DEFAULT_MEMORY = 512 << 20 };

/* One pair of captures at one tensor. */
struct work {
    const struct nd_aligned_captures *alignment;
    const struct nd_compare_options *options;
    const struct nd_kernels *kernels;
    size_t tensor, ref, test;
    size_t axis, n_channels, outer, inner; /* elements: [outer][n_channels][inner] */
    size_t ref_bytes, test_bytes;          /* of an element */
    struct nd_pair_context *contexts;      /* [n_channels] */
    struct nd_pair_state **states;         /* [n_channels] */
    unsigned char *ref_sample, *test_sample, *ref_channel, *test_channel;
};

/* The tensor as channel c sees it. The scale is borrowed from the tensor. */
static struct nd_tensor slice_tensor(const struct nd_tensor *tensor, size_t axis, size_t c)
{
    struct nd_tensor slice = *tensor;
    slice.shape.dims[axis] = 1;
    if (tensor->quant.n > 1 && tensor->quant.axis == (int)axis) {
        slice.quant.n = 1;
        slice.quant.axis = -1;
        slice.quant.scale += c;
        slice.quant.zero_point += c;
    }
    return slice;
}

static enum nd_status prepare(struct work *w, struct nd_error *err)
{
    const struct nd_tensor *ref = nd_aligned_tensor(w->alignment, w->tensor, w->ref),
                           *test = nd_aligned_tensor(w->alignment, w->tensor, w->test);
    w->ref_bytes = nd_dtype_size_bytes(ref->dtype);
    w->test_bytes = nd_dtype_size_bytes(test->dtype);
    size_t n_slice = w->outer * w->inner, n_elems = n_slice * w->n_channels;
    w->contexts = nd_calloc(w->n_channels, sizeof *w->contexts);
    w->states = nd_calloc(w->n_channels, sizeof *w->states);
    w->ref_sample = nd_tensor_alloc(n_elems * w->ref_bytes);
    w->test_sample = nd_tensor_alloc(n_elems * w->test_bytes);
    w->ref_channel = nd_tensor_alloc(n_slice * w->ref_bytes);
    w->test_channel = nd_tensor_alloc(n_slice * w->test_bytes);
    ND_TRY_MEMORY(w->contexts != NULL && w->states != NULL && w->ref_sample != NULL && w->test_sample != NULL &&
                      w->ref_channel != NULL && w->test_channel != NULL,
                  err);
    for (size_t c = 0; c < w->n_channels; c++) {
        struct nd_tensor ref_slice = slice_tensor(ref, w->axis, c), test_slice = slice_tensor(test, w->axis, c);
        ND_TRY(nd_pair_context_make(&ref_slice, &test_slice, w->options, w->kernels, &w->contexts[c], err));
        if ((w->states[c] = nd_pair_state_create(&w->contexts[c], err)) == NULL)
            return ND_ERR_MEMORY;
    }
    return ND_OK;
}

static void gather(const struct work *w, const unsigned char *sample, size_t elem_bytes, size_t c,
                   unsigned char *channel)
{
    size_t run = w->inner * elem_bytes;
    for (size_t o = 0; o < w->outer; o++)
        memcpy(channel + o * run, sample + (o * w->n_channels + c) * run, run);
}

static enum nd_status add_sample(struct work *w, size_t probe, size_t sample, struct nd_error *err)
{
    const struct nd_aligned_captures *a = w->alignment;
    const struct nd_probe_values ref = nd_aligned_values(a, w->tensor, probe, w->ref),
                                 test = nd_aligned_values(a, w->tensor, probe, w->test);
    bool is_mixed = w->contexts[0].is_mixed;
    bool differs = is_mixed || !nd_aligned_is_equal(a, w->tensor, probe, w->ref, w->test, sample);
    if (differs)
        ND_TRY(nd_capture_read_verified(&ref, sample, 1, w->ref_sample, err));
    if (differs)
        ND_TRY(nd_capture_read_verified(&test, sample, 1, w->test_sample, err));
    for (size_t c = 0; c < w->n_channels; c++) {
        bool channel_differs = differs;
        if (differs) {
            gather(w, w->ref_sample, w->ref_bytes, c, w->ref_channel);
            gather(w, w->test_sample, w->test_bytes, c, w->test_channel);
            channel_differs =
                is_mixed || memcmp(w->ref_channel, w->test_channel, w->outer * w->inner * w->ref_bytes) != 0;
        }
        ND_TRY(nd_sample_compare(w->states[c], &w->contexts[c], channel_differs, w->ref_channel,
                                 w->test_channel, probe, sample, err));
    }
    return ND_OK;
}

/* A place in the channel's tensor, as a place in the whole one. */
static void widen(const struct work *w, size_t c, struct nd_difference_place *place)
{
    if (!place->has_index)
        return;
    size_t outer = place->index / w->inner, inner = place->index % w->inner;
    place->index = (outer * w->n_channels + c) * w->inner + inner;
    place->coordinates[w->axis] = (int64_t)c;
}

/* The samples of several probes have no signal in common: section 7. */
static void leave_out_signal(struct nd_difference *d)
{
    d->has_signal = false;
    nd_signal_copy(NULL, d);
}

static enum nd_status finish(struct work *w, struct nd_compared_pair *pair, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n_differing = 0;
    for (size_t p = 0; p < w->alignment->n_probes; p++)
        n_differing += pair->probes[p].difference.n_samples_differing > 0;
    pair->channels = nd_calloc(w->n_channels, sizeof *pair->channels);
    ND_TRY_MEMORY(pair->channels != NULL, err);
    pair->n_channels = w->n_channels;
    for (size_t c = 0; c < w->n_channels && status == ND_OK; c++) {
        struct nd_difference *d = &pair->channels[c];
        status = nd_pair_state_finish(w->states[c], &w->contexts[c], d, err);
        if (status == ND_OK && n_differing > 1)
            leave_out_signal(d);
        widen(w, c, &d->first);
        for (size_t i = 0; i < d->n_worst; i++)
            widen(w, c, &d->worst[i].place);
    }
    return status;
}

static enum nd_status compare_pair(struct work *w, struct nd_compared_pair *pair, struct nd_error *err)
{
    enum nd_status status = prepare(w, err);
    for (size_t p = 0; p < w->alignment->n_probes && status == ND_OK; p++) {
        if (pair->probes[p].coverage == ND_COVERAGE_NONE)
            continue;
        size_t n_common = (size_t)pair->probes[p].difference.n_samples;
        for (size_t s = 0; s < n_common && status == ND_OK; s++)
            status = add_sample(w, p, s, err);
    }
    if (status == ND_OK)
        status = finish(w, pair, err);
    for (size_t c = 0; w->states != NULL && c < w->n_channels; c++)
        nd_pair_state_destroy(&w->states[c]);
    ND_FREE_ALL(w->states, w->contexts, w->ref_sample, w->test_sample, w->ref_channel, w->test_channel);
    return status;
}

/* False where the tensor has no such axis. */
static bool set_axis(struct work *w, const struct nd_shape *shape)
{
    int axis = w->options->channel_axis < 0 ? shape->rank + w->options->channel_axis : w->options->channel_axis;
    if (axis < 0 || axis >= shape->rank || shape->dims[axis] < 1 || shape->dims[axis] > MAX_CHANNELS)
        return false;
    w->axis = (size_t)axis;
    w->n_channels = (size_t)shape->dims[axis];
    w->outer = w->inner = 1;
    for (int i = 0; i < shape->rank; i++) {
        w->outer *= i < axis ? (size_t)shape->dims[i] : 1;
        w->inner *= i > axis ? (size_t)shape->dims[i] : 1;
    }
    return w->outer > 0 && w->inner > 0;
}

struct context {
    const struct nd_aligned_captures *alignment;
    const struct nd_compare_options *options;
    const struct nd_kernels *kernels;
    struct nd_comparison *comparison;
};

static enum nd_status compare_tensor(void *context, size_t worker, size_t e, struct nd_error *err)
{
    (void)worker;
    const struct context *c = context;
    struct nd_compared_tensor *tensor = &c->comparison->tensors[e];
    for (size_t p = 0; p < c->comparison->n_pairs; p++) {
        struct nd_compared_pair *pair = &tensor->pairs[p];
        const struct nd_difference *d = &pair->total.difference;
        struct work work = {.alignment = c->alignment,
                            .options = c->options,
                            .kernels = c->kernels,
                            .tensor = e,
                            .ref = pair->ref,
                            .test = pair->test};
        if (!d->has_values || d->n_differing == 0 ||
            !set_axis(&work, &nd_aligned_tensor(c->alignment, e, pair->ref)->shape))
            continue;
        size_t budget = c->options->memory_bytes > 0 ? c->options->memory_bytes : DEFAULT_MEMORY;
        if (work.n_channels > budget / 4 / sizeof(struct nd_pair_state))
            return nd_fail(err, ND_E_COMPARE_MEMORY, tensor->name,
                           "the %zu channels of tensor '%s' need %zu MiB", work.n_channels, tensor->name,
                           (4 * work.n_channels * sizeof(struct nd_pair_state) >> 20) + 1);
        ND_TRY(compare_pair(&work, pair, err));
    }
    return ND_OK;
}

enum nd_status nd_channels_compare(const struct nd_aligned_captures *alignment,
                                   const struct nd_compare_options *options, const struct nd_kernels *kernels,
                                   struct nd_comparison *comparison, struct nd_error *err)
{
    struct context context = {alignment, options, kernels, comparison};
    return nd_parallel_for(options->n_threads, comparison->n_tensors, compare_tensor, &context, err);
}
