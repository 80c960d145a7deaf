/* A comparison from its captures to its verdicts: groups of identical devices, differences, who is alone.
 * docs/reference/metrics.md#classes and #verdicts. */
#include <math.h>

#include "compare/engine/engine.h"
#include "compare/findings/predicates.h"
#include "compare/findings/top1_classes.h"
#include "compare/matching/matching.h"
#include "compare/metrics/block.h"
#include "compare/metrics/states.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

void nd_classes_make(size_t n, const bool *has_data, bool (*is_equal)(const void *context, size_t a, size_t b),
                     const void *context, int *classes)
{
    int n_classes = 0;
    for (size_t i = 0; i < n; i++) {
        classes[i] = -1;
        for (int k = 0; has_data[i] && k < n_classes && classes[i] < 0; k++) {
            bool joins = true;
            for (size_t j = 0; j < i && joins; j++)
                joins = classes[j] != k || is_equal(context, j, i);
            classes[i] = joins ? k : -1;
        }
        if (has_data[i] && classes[i] < 0)
            classes[i] = n_classes++;
    }
}

/* Whether two devices agree on one tensor, worked out once for all pairs: agrees[a * n + b]. */
struct tensor_equality {
    size_t n;
    bool *agrees;
};

static bool tensor_is_equal(const void *context, size_t a, size_t b)
{
    const struct tensor_equality *equality = context;
    return equality->agrees[a * equality->n + b];
}

/* All common samples of all probes have equal digests, and there is at least one. */
static bool has_equal_digests(const struct nd_aligned_captures *alignment, size_t tensor, size_t a, size_t b)
{
    size_t n_total = 0;
    for (size_t p = 0; p < alignment->n_probes; p++) {
        bool in_a = nd_aligned_probe(alignment, p, a) != NULL, in_b = nd_aligned_probe(alignment, p, b) != NULL;
        if (!in_a && !in_b)
            continue;
        size_t n_common = nd_align_n_common(alignment, p, a, b);
        bool is_unlike = n_common == 0 && (in_a != in_b || (nd_aligned_probe(alignment, p, a)->n_samples > 0 &&
                                                            nd_aligned_probe(alignment, p, b)->n_samples > 0));
        if (is_unlike)
            return false; /* the probe is missing in one, or was fed otherwise */
        for (size_t s = 0; s < n_common; s++)
            if (!nd_aligned_is_equal(alignment, tensor, p, a, b, s))
                return false;
        n_total += n_common;
    }
    return n_total > 0;
}

static enum nd_status compare_digests(const struct nd_aligned_captures *alignment, size_t tensor, size_t a,
                                      size_t b, bool *equal, struct nd_error *err)
{
    bool is_alike;
    ND_TRY(nd_align_is_alike(nd_aligned_tensor(alignment, tensor, a), nd_aligned_tensor(alignment, tensor, b),
                             &is_alike, err));
    *equal = is_alike && has_equal_digests(alignment, tensor, a, b);
    return ND_OK;
}

static bool has_samples(const struct nd_aligned_captures *alignment, size_t tensor, size_t capture)
{
    for (size_t p = 0; p < alignment->n_probes && nd_aligned_tensor(alignment, tensor, capture) != NULL; p++) {
        const struct nd_capture_probe *probe = nd_aligned_probe(alignment, p, capture);
        if (probe != NULL && probe->n_samples > 0)
            return true;
    }
    return false;
}

/* Fills class_id of compared->devices. */
static enum nd_status find_classes_of_tensor(const struct nd_aligned_captures *alignment, size_t tensor,
                                             struct nd_compared_tensor *compared, struct nd_error *err)
{
    size_t n = alignment->n_captures;
    ND_FREED bool *agrees = nd_calloc(n * n, sizeof *agrees), *has_data = nd_calloc(n, sizeof *has_data);
    ND_FREED int *classes = nd_calloc(n, sizeof *classes);
    struct tensor_equality equality = {.n = n, .agrees = agrees};
    ND_TRY_MEMORY(agrees != NULL && has_data != NULL && classes != NULL, err);
    for (size_t i = 0; i < n; i++)
        has_data[i] = has_samples(alignment, tensor, i);
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++)
            if (has_data[a] && has_data[b])
                ND_TRY(compare_digests(alignment, tensor, a, b, &agrees[a * n + b], err));
    nd_classes_make(n, has_data, tensor_is_equal, &equality, classes);
    for (size_t i = 0; i < n; i++)
        compared->devices[i].class_id = classes[i];
    return ND_OK;
}

/* Whether the tensor is not repeatable on one of two devices that have it: that they differ there then shows
 * nothing. */
static bool is_noisy(const struct nd_compared_tensor *tensor, size_t a, size_t b)
{
    const struct nd_tensor_on_device *x = &tensor->devices[a], *y = &tensor->devices[b];
    return x->class_id >= 0 && y->class_id >= 0 && (x->n_unstable > 0 || y->n_unstable > 0);
}

/* Overall: two devices agree when they are in one class on every tensor (or have both no data there), but for
 * those that are not repeatable on one of them. */
struct overall {
    const struct nd_comparison *comparison;
    bool outputs_only;
};

static bool overall_is_equal(const void *context, size_t a, size_t b)
{
    const struct overall *overall = context;
    for (size_t e = 0; e < overall->comparison->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &overall->comparison->tensors[e];
        if (overall->outputs_only && !tensor->is_model_output)
            continue;
        if (tensor->devices[a].class_id != tensor->devices[b].class_id && !is_noisy(tensor, a, b))
            return false;
    }
    return true;
}

static bool has_overall_data(const struct overall *overall, size_t device)
{
    for (size_t e = 0; e < overall->comparison->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &overall->comparison->tensors[e];
        if ((!overall->outputs_only || tensor->is_model_output) && tensor->devices[device].class_id >= 0)
            return true;
    }
    return false;
}

/* "a | b = c": classes in order, then who has no data. A device with fewer samples than asked for gets a '*'.
 */
static char *render(const struct nd_comparison *comparison, const int *classes)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    const char *bar = "";
    for (int k = 0; k < (int)comparison->n_devices; k++) {
        const char *separator = bar;
        for (size_t i = 0; i < comparison->n_devices; i++) {
            const struct nd_compared_device *device = &comparison->devices[i];
            if (classes[i] != k)
                continue;
            nd_strbuf_printf(&text, "%s%s%s", separator, device->label,
                             device->n_samples < device->n_samples_expected ? "*" : "");
            separator = " = ";
            bar = " | ";
        }
    }
    for (size_t i = 0; i < comparison->n_devices; i++) {
        if (classes[i] >= 0)
            continue;
        nd_strbuf_printf(&text, "%s(%s: no data)", bar, comparison->devices[i].label);
        bar = " | ";
    }
    return nd_strbuf_take(&text);
}

/* Fills class_id and output_class_id of the devices and the two texts from the tensors' classes. */
static enum nd_status find_overall_classes(struct nd_comparison *comparison, struct nd_error *err)
{
    size_t n = comparison->n_devices;
    ND_FREED bool *has_data = nd_calloc(n, sizeof *has_data);
    ND_FREED int *classes = nd_calloc(n, sizeof *classes);
    ND_TRY_MEMORY(has_data != NULL && classes != NULL, err);
    for (int outputs_only = 0; outputs_only < 2; outputs_only++) {
        struct overall overall = {comparison, outputs_only != 0};
        for (size_t i = 0; i < n; i++)
            has_data[i] = has_overall_data(&overall, i);
        nd_classes_make(n, has_data, overall_is_equal, &overall, classes);
        for (size_t i = 0; i < n; i++) {
            if (outputs_only)
                comparison->devices[i].output_class_id = classes[i];
            else
                comparison->devices[i].class_id = classes[i];
        }
        char **text = outputs_only ? &comparison->output_classes_text : &comparison->classes_text;
        *text = render(comparison, classes);
        ND_TRY_MEMORY(*text != NULL, err);
    }
    return ND_OK;
}

static enum nd_status nd_result_conclude(struct nd_comparison *comparison, const struct nd_gates *gates,
                                         struct nd_error *err);

const char *nd_verdict_name(enum nd_verdict verdict)
{
    static const char *const names[] = {"same",    "within",         "inconclusive",
                                        "differs", "not comparable", "failed"};
    return (size_t)verdict < sizeof names / sizeof names[0] ? names[verdict] : "unknown";
}

enum nd_exit nd_verdict_exit_code(enum nd_verdict verdict)
{
    static const enum nd_exit codes[] = {[ND_VERDICT_SAME] = ND_EXIT_SAME,
                                         [ND_VERDICT_WITHIN] = ND_EXIT_SAME,
                                         [ND_VERDICT_INCONCLUSIVE] = ND_EXIT_INCONCLUSIVE,
                                         [ND_VERDICT_DIFFERS] = ND_EXIT_DIFFERS,
                                         [ND_VERDICT_NOT_COMPARABLE] = ND_EXIT_NOT_COMPARABLE,
                                         [ND_VERDICT_FAILED] = ND_EXIT_DEVICE_FAILED};
    return (size_t)verdict < sizeof codes / sizeof codes[0] ? codes[verdict] : ND_EXIT_TROUBLE;
}

enum nd_verdict nd_verdict_worse(enum nd_verdict a, enum nd_verdict b)
{
    enum nd_exit of_a = nd_verdict_exit_code(a), of_b = nd_verdict_exit_code(b);
    if (of_a == of_b)
        return a > b ? a : b; /* same and within */
    return nd_exit_worse(of_a, of_b) == of_a ? a : b;
}

void nd_compare_options_init_sized(struct nd_compare_options *options, size_t struct_size)
{
    const struct nd_compare_options own = {.struct_size = sizeof own, .n_worst = 5};
    nd_options_write(options, struct_size, &own, sizeof own);
}

/* Gates and classes: what digests and options alone decide. */
static enum nd_status prepare_tensors(const struct nd_aligned_captures *alignment,
                                      const struct nd_compare_options *options,
                                      struct nd_comparison *comparison, struct nd_error *err)
{
    ND_TRY(nd_gates_check(options->gates, comparison->tensors, comparison->n_tensors, err));
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        struct nd_compared_tensor *tensor = &comparison->tensors[e];
        struct nd_gate_values gate =
            nd_gates_resolve(options->gates, tensor->name, nd_dtype_is_float(tensor->dtype));
        /* "bit-equal", "lsb <= 1", "ulp <= 4, |d| <= 0.1 + 0.01 |ref|" in new memory, NULL when out of memory.
         */
        ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
        const char *separator = "";
        char number[32];
        if (gate.bitwise) {
            nd_strbuf_puts(&text, "bit-equal");
            separator = ", ";
        }
        if (gate.has_lsb) {
            nd_strbuf_printf(&text, "%slsb <= %llu", separator, (unsigned long long)gate.lsb);
            separator = ", ";
        }
        if (gate.has_ulp) {
            nd_strbuf_printf(&text, "%sulp <= %llu", separator, (unsigned long long)gate.ulp);
            separator = ", ";
        }
        if (gate.has_tolerance) {
            nd_strbuf_printf(&text, "%s|d| <= %s", separator, nd_format_double(gate.atol, number));
            nd_strbuf_printf(&text, " + %s |ref|", nd_format_double(gate.rtol, number));
        }
        tensor->gate = nd_strbuf_take(&text);
        ND_TRY_MEMORY(tensor->gate != NULL, err);
        ND_TRY(find_classes_of_tensor(alignment, e, tensor, err));
    }
    return ND_OK;
}

/* Nothing was compared at all, and no failed device explains it: the files do not belong together. */
static enum nd_status check_common(const struct nd_comparison *comparison, struct nd_error *err)
{
    for (size_t c = 0; c < comparison->n_devices; c++)
        if (comparison->devices[c].status != ND_CAPTURE_COMPLETE)
            return ND_OK;
    const char *reason = "there are no tensors";
    for (size_t e = 0; e < comparison->n_tensors; e++)
        for (size_t t = 1; t < comparison->n_devices; t++) {
            const struct nd_compared_pair *pair = &comparison->tensors[e].pairs[t - 1];
            if (pair->total.coverage != ND_COVERAGE_NONE || pair->label != NULL)
                return ND_OK;
            if (e == 0 && t == 1)
                reason = comparison->tensors[e].pairs[0].total.reason;
        }
    return nd_fail(err, ND_E_COMPARE_NOTHING, comparison->devices[1].capture,
                   "'%s' and '%s' have nothing to compare: %s", comparison->devices[0].capture,
                   comparison->devices[1].capture, reason);
}

static enum nd_status check_options(const struct nd_compare_options *options, size_t n, struct nd_error *err)
{
    if (n < 2)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "a comparison needs at least two captures, not %zu", n);
    if (options->ulp_in != ND_DTYPE_NONE && !nd_dtype_is_float(options->ulp_in))
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "ULPs are counted in a float type, not in %s",
                       nd_dtype_name(options->ulp_in));
    if (options->n_worst > 1000)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "at most 1000 worst elements are kept, not %zu",
                       options->n_worst);
    if (options->cut != ND_CUT_NONE && (options->part >= options->n_parts || options->merge != NULL))
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "part %zu of %zu cannot be made", options->part + 1,
                       options->n_parts);
    if (options->cut != ND_CUT_NONE && options->per_channel)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "channels are not compared in parts");
    return ND_OK;
}

/* ---- each coordinate of one axis as a tensor of its own ---- */

enum { MAX_CHANNELS = 65536, DEFAULT_MEMORY = 512 << 20 };

/* One pair of captures at one tensor. */
struct channel_work {
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

static enum nd_status prepare(struct channel_work *w, struct nd_error *err)
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

static void gather(const struct channel_work *w, const unsigned char *sample, size_t elem_bytes, size_t c,
                   unsigned char *channel)
{
    size_t run = w->inner * elem_bytes;
    for (size_t o = 0; o < w->outer; o++)
        memcpy(channel + o * run, sample + (o * w->n_channels + c) * run, run);
}

static enum nd_status add_sample(struct channel_work *w, size_t probe, size_t sample, struct nd_error *err)
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
static void widen(const struct channel_work *w, size_t c, struct nd_difference_place *place)
{
    if (!place->has_index)
        return;
    size_t outer = place->index / w->inner, inner = place->index % w->inner;
    place->index = (outer * w->n_channels + c) * w->inner + inner;
    place->coordinates[w->axis] = (int64_t)c;
}

/* What needs a signal, taken from another difference; NULL: there is none, and all are NaN. */
static void nd_signal_copy(const struct nd_difference *from, struct nd_difference *to)
{
    for (size_t i = 0; i < nd_n_measures(); i++) {
        const struct nd_measure *measure = nd_measure(i);
        if (measure->need == ND_NEEDS_SIGNAL || measure->need == ND_NEEDS_GAIN)
            *(double *)(void *)((char *)to + measure->offset) =
                from != NULL ? nd_measure_value(measure, from) : NAN;
    }
    to->has_gain = from != NULL && from->has_gain;
}

static enum nd_status finish(struct channel_work *w, struct nd_compared_pair *pair, struct nd_error *err)
{
    size_t n_differing = 0;
    for (size_t p = 0; p < w->alignment->n_probes; p++)
        n_differing += pair->probes[p].difference.n_samples_differing > 0;
    pair->channels = nd_calloc(w->n_channels, sizeof *pair->channels);
    ND_TRY_MEMORY(pair->channels != NULL, err);
    pair->n_channels = w->n_channels;
    for (size_t c = 0; c < w->n_channels; c++) {
        struct nd_difference *d = &pair->channels[c];
        ND_TRY(nd_pair_state_finish(w->states[c], &w->contexts[c], d, err));
        if (n_differing > 1) {
            /* The samples of several probes have no signal in common: section 7. */
            d->has_signal = false;
            nd_signal_copy(NULL, d);
        }
        widen(w, c, &d->first);
        for (size_t i = 0; i < d->n_worst; i++)
            widen(w, c, &d->worst[i].place);
    }
    return ND_OK;
}

static enum nd_status compare_pair(struct channel_work *w, struct nd_compared_pair *pair, struct nd_error *err)
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
static bool set_axis(struct channel_work *w, const struct nd_shape *shape)
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

struct channel_context {
    const struct nd_aligned_captures *alignment;
    const struct nd_compare_options *options;
    const struct nd_kernels *kernels;
    struct nd_comparison *comparison;
};

static enum nd_status compare_tensor(void *context, size_t worker, size_t e, struct nd_error *err)
{
    (void)worker;
    const struct channel_context *c = context;
    struct nd_compared_tensor *tensor = &c->comparison->tensors[e];
    for (size_t p = 0; p < c->comparison->n_pairs; p++) {
        struct nd_compared_pair *pair = &tensor->pairs[p];
        const struct nd_difference *d = &pair->total.difference;
        struct channel_work work = {.alignment = c->alignment,
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

/* Fills n_channels and channels of every pair that differs, of tensors that have options->channel_axis. Reads
 * the samples that differ once more. ND_E_COMPARE_MEMORY when the states of the channels do not fit.
 * docs/reference/metrics.md#per-channel. */
static enum nd_status compare_channels(const struct nd_aligned_captures *alignment,
                                       const struct nd_compare_options *options,
                                       const struct nd_kernels *kernels, struct nd_comparison *comparison,
                                       struct nd_error *err)
{
    struct channel_context context = {alignment, options, kernels, comparison};
    return nd_parallel_for(options->n_threads, comparison->n_tensors, compare_tensor, &context, err);
}

/* ---- a comparison as a whole ---- */

/* Everything that needs the values of tensors. */
static enum nd_status compare_values(const struct nd_aligned_captures *alignment,
                                     const struct nd_compare_options *options, struct nd_comparison *comparison,
                                     struct nd_error *err)
{
    const struct nd_kernels *kernels;
    ND_TRY(nd_kernels_choose(options->cpu_cap, &kernels, err));
    if (options->merge != NULL)
        ND_TRY(nd_parts_check(options->merge, comparison, err));
    ND_TRY(nd_engine_run(alignment, options, kernels, comparison, err));
    if (options->cut == ND_CUT_NONE)
        ND_TRY(nd_repeats_measure(alignment, options, kernels, comparison, err));
    if (options->cut == ND_CUT_NONE)
        ND_TRY(nd_labels_find(alignment, comparison, err));
    return options->per_channel ? compare_channels(alignment, options, kernels, comparison, err) : ND_OK;
}

enum nd_status nd_compare_captures(const struct nd_capture *const *captures, size_t n,
                                   const struct nd_compare_options *options, struct nd_comparison **out,
                                   struct nd_error *err)
{
    struct nd_compare_options own = nd_compare_options_default();
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    options = &own;
    ND_CLEANUP(nd_matching_deinit) struct nd_aligned_captures alignment = {0};
    ND_TRY(check_options(options, n, err));
    ND_CLEANUP(nd_comparison_destroy) struct nd_comparison *comparison = nd_calloc(1, sizeof *comparison);
    ND_TRY_MEMORY(comparison != NULL, err);
    comparison->struct_size = sizeof *comparison;
    comparison->has_gates = nd_gates_any(options->gates);
    comparison->ulp_in = options->ulp_in;
    comparison->n_worst = options->n_worst;
    comparison->per_channel = options->per_channel;
    comparison->channel_axis = options->channel_axis;
    comparison->cut = options->cut;
    comparison->part = options->part;
    comparison->n_parts = options->n_parts;
    ND_TRY(nd_matching_make(captures, n, options->allow_different_models, &alignment,
                            &comparison->different_models, err));
    for (size_t c = 0; c < n && !options->trust_digests; c++)
        ND_TRY(nd_capture_check_content(captures[c], err));
    ND_TRY(nd_matching_select(&alignment, options->tensors, err));
    ND_TRY(nd_matching_select_probes(&alignment, options->probes, options->n_probes, err));
    comparison->n_tensors_left_out = alignment.n_left_out;
    comparison->unknown_models = alignment.unknown_models;
    comparison->unknown_inputs = alignment.unknown_inputs;
    ND_TRY(nd_result_describe(&alignment, options->all_pairs, comparison, err));
    ND_TRY(prepare_tensors(&alignment, options, comparison, err));
    ND_TRY(compare_values(&alignment, options, comparison, err));
    ND_TRY(find_overall_classes(comparison, err));
    ND_TRY(nd_result_conclude(comparison, options->gates, err));
    ND_TRY(check_common(comparison, err));
    if (options->cut == ND_CUT_NONE)
        ND_TRY(nd_predicates_find(&alignment, options, comparison, err));
    return ND_GIVE(out, comparison);
}

/* The pair as a whole: worst coverage of its probes, but some samples are never NONE. */
static enum nd_status sum_up_coverage(struct nd_compared_pair *pair, size_t n_probes, struct nd_error *err)
{
    bool has_some = false;
    struct nd_compared_part *total = &pair->total;
    for (size_t p = 0; p < n_probes; p++) {
        const struct nd_compared_part *part = &pair->probes[p];
        has_some = has_some || part->coverage != ND_COVERAGE_NONE;
        if (part->reason != NULL && total->reason == NULL)
            ND_TRY(nd_text_set(&total->reason, err, "%s", part->reason));
    }
    total->coverage = !has_some               ? ND_COVERAGE_NONE
                      : total->reason != NULL ? ND_COVERAGE_PART
                                              : ND_COVERAGE_FULL;
    if (total->coverage == ND_COVERAGE_NONE && total->reason == NULL)
        return nd_text_set(&total->reason, err, "there are no probes");
    return ND_OK;
}

/* Values that are equal although their types are not are within, never the same. */
static enum nd_verdict judge_values(const struct nd_compared_pair *pair, bool is_bitwise)
{
    const struct nd_difference *d = &pair->total.difference;
    if (pair->label != NULL)
        return ND_VERDICT_DIFFERS;
    if (pair->total.coverage != ND_COVERAGE_FULL)
        return ND_VERDICT_NOT_COMPARABLE;
    if (d->n_samples_differing == 0)
        return d->is_mixed ? ND_VERDICT_WITHIN : ND_VERDICT_SAME;
    if (!d->has_values)
        return is_bitwise && !d->is_mixed ? ND_VERDICT_DIFFERS : ND_VERDICT_NOT_COMPARABLE;
    return d->n_failing > 0 ? ND_VERDICT_DIFFERS : ND_VERDICT_WITHIN;
}

/* Section 16. */
static size_t find_odd(const struct nd_comparison *comparison, const struct nd_compared_tensor *tensor)
{
    size_t n = 0, n_classes = 0, odd = SIZE_MAX, counts[3] = {0};
    for (size_t c = 0; c < comparison->n_devices; c++) {
        int k = tensor != NULL ? tensor->devices[c].class_id : comparison->devices[c].class_id;
        if (k > 1)
            return SIZE_MAX;
        n += k >= 0;
        n_classes = k >= 0 && (size_t)k + 1 > n_classes ? (size_t)k + 1 : n_classes;
        counts[k >= 0 ? k : 2]++;
    }
    if (n < 3 || n_classes != 2 || (counts[0] != 1 && counts[1] != 1))
        return SIZE_MAX;
    int alone = counts[0] == 1 ? 0 : 1;
    for (size_t c = 0; c < comparison->n_devices && odd == SIZE_MAX; c++)
        if ((tensor != NULL ? tensor->devices[c].class_id : comparison->devices[c].class_id) == alone)
            odd = c;
    return odd;
}

static bool has_own_signal(const struct nd_compared_part *part)
{
    return part->coverage != ND_COVERAGE_NONE && part->difference.has_values && part->difference.has_signal &&
           part->difference.n_samples_differing > 0;
}

/* Section 7: what is said of all probes is said of the one with the lowest SQNR. A NaN (an energy that
 * overflowed) counts as lower than every number. */
static void choose_signal(struct nd_compared_pair *pair, size_t n_probes)
{
    struct nd_difference *total = &pair->total.difference;
    pair->signal_probe = SIZE_MAX;
    for (size_t p = 0; p < n_probes; p++) {
        const struct nd_difference *d = &pair->probes[p].difference;
        if (!has_own_signal(&pair->probes[p]))
            continue;
        bool is_first = pair->signal_probe == SIZE_MAX;
        double lowest = is_first ? INFINITY : pair->probes[pair->signal_probe].difference.sqnr_db;
        if (is_first || d->sqnr_db < lowest || (isnan(d->sqnr_db) && !isnan(lowest)))
            pair->signal_probe = p;
    }
    if (pair->signal_probe == SIZE_MAX)
        return;
    nd_signal_copy(&pair->probes[pair->signal_probe].difference, total);
}

/* Coverage and verdicts of all pairs; those of two tests have a verdict that counts for nothing else. */
static enum nd_status judge_tensor(struct nd_comparison *comparison, size_t e, const struct nd_gates *gates,
                                   struct nd_error *err)
{
    struct nd_compared_tensor *tensor = &comparison->tensors[e];
    struct nd_gate_values gate = nd_gates_resolve(gates, tensor->name, nd_dtype_is_float(tensor->dtype));
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < comparison->n_pairs && status == ND_OK; p++) {
        struct nd_compared_pair *pair = &tensor->pairs[p];
        status = sum_up_coverage(pair, comparison->n_probes, err);
        choose_signal(pair, comparison->n_probes);
        pair->is_unrecorded_input = tensor->is_model_input &&
                                    (!tensor->devices[pair->ref].exists || !tensor->devices[pair->test].exists);
        /* Section 19. A sample that is NaN on both sides was not compared: it may hide any difference. */
        enum nd_verdict verdict = judge_values(pair, gate.bitwise);
        if (pair->within_noise && pair->label == NULL && verdict == ND_VERDICT_DIFFERS)
            verdict = ND_VERDICT_INCONCLUSIVE;
        bool is_uncompared = pair->total.difference.numbers.n_samples_both_nan > 0;
        pair->verdict = is_uncompared ? nd_verdict_worse(verdict, ND_VERDICT_INCONCLUSIVE) : verdict;
    }
    return status;
}

/* A model input that one side did not record is no loss: what was fed is compared by the probes. has_counted:
 * of every device. */
static void conclude_tensor(struct nd_comparison *comparison, size_t e, bool *has_counted)
{
    struct nd_compared_tensor *tensor = &comparison->tensors[e];
    tensor->comparable = true;
    tensor->verdict = ND_VERDICT_SAME;
    tensor->odd_one_out = find_odd(comparison, tensor);
    for (size_t t = 1; t < comparison->n_devices; t++) {
        const struct nd_compared_pair *pair = &tensor->pairs[t - 1];
        struct nd_compared_device *device = &comparison->devices[t];
        tensor->comparable = tensor->comparable && pair->total.coverage == ND_COVERAGE_FULL;
        tensor->verdict = nd_verdict_worse(tensor->verdict, pair->verdict);
        if (!pair->is_unrecorded_input) {
            comparison->verdict = nd_verdict_worse(comparison->verdict, pair->verdict);
            has_counted[t] = true;
        }
        if (pair->total.difference.n_samples_differing == 0 || pair->within_noise)
            continue;
        if (device->first_tensor == SIZE_MAX)
            device->first_tensor = e;
        if (comparison->first_tensor == SIZE_MAX) {
            comparison->first_tensor = e;
            comparison->first_test = t;
        }
    }
    for (size_t c = 1; c < comparison->n_devices && comparison->first_tensor == SIZE_MAX; c++)
        if (tensor->devices[0].class_id < 0 && tensor->devices[c].class_id > 0)
            comparison->first_tensor = e; /* tests differ among themselves where the reference has no data */
}

static size_t first_member(const struct nd_comparison *comparison, int class_id)
{
    size_t c = 0;
    while (c < comparison->n_devices && comparison->devices[c].class_id != class_id)
        c++;
    return c;
}

static size_t part_at(const struct nd_comparison *comparison, size_t a, size_t b)
{
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &comparison->tensors[e];
        int x = tensor->devices[a].class_id, y = tensor->devices[b].class_id;
        if (x >= 0 && y >= 0 && x != y && !is_noisy(tensor, a, b))
            return e;
    }
    return SIZE_MAX;
}

static enum nd_status find_partings(struct nd_comparison *comparison, struct nd_error *err)
{
    int n_classes = 0;
    for (size_t c = 0; c < comparison->n_devices; c++)
        n_classes =
            comparison->devices[c].class_id >= n_classes ? comparison->devices[c].class_id + 1 : n_classes;
    size_t n = (size_t)n_classes;
    comparison->partings = nd_calloc(n * (n > 0 ? n - 1 : 0) / 2, sizeof *comparison->partings);
    ND_TRY_MEMORY(comparison->partings != NULL, err);
    for (int a = 0; a < n_classes; a++)
        for (int b = a + 1; b < n_classes; b++) {
            struct nd_parting *parting = &comparison->partings[comparison->n_partings++];
            *parting = (struct nd_parting){a, b, first_member(comparison, a), first_member(comparison, b), 0};
            parting->tensor = part_at(comparison, parting->device_a, parting->device_b);
        }
    return ND_OK;
}

/* After every tensor was compared, and the overall classes are there: coverage, verdicts, first differences,
 * who is alone and where classes part. docs/reference/metrics.md#classes and #verdicts. */
static enum nd_status nd_result_conclude(struct nd_comparison *comparison, const struct nd_gates *gates,
                                         struct nd_error *err)
{
    bool *has_counted = nd_calloc(comparison->n_devices, sizeof *has_counted);
    enum nd_status status = has_counted != NULL ? ND_OK : nd_fail_memory(err);
    comparison->verdict = ND_VERDICT_SAME;
    comparison->first_tensor = comparison->first_test = SIZE_MAX;
    for (size_t e = 0; e < comparison->n_tensors && status == ND_OK; e++) {
        status = judge_tensor(comparison, e, gates, err);
        conclude_tensor(comparison, e, has_counted);
    }
    for (size_t t = 1; t < comparison->n_devices && status == ND_OK; t++)
        if (!has_counted[t]) /* nothing of it was compared */
            comparison->verdict = nd_verdict_worse(comparison->verdict, ND_VERDICT_NOT_COMPARABLE);
    free(has_counted);
    for (size_t c = 0; c < comparison->n_devices; c++)
        if (comparison->devices[c].status == ND_CAPTURE_FAILED)
            comparison->verdict = ND_VERDICT_FAILED;
    comparison->odd_one_out = find_odd(comparison, NULL);
    nd_accuracy_conclude(comparison);
    if (comparison->broken_top1 != SIZE_MAX) /* that they agree on nonsense is no result */
        comparison->verdict = nd_verdict_worse(comparison->verdict, ND_VERDICT_INCONCLUSIVE);
    return status == ND_OK ? find_partings(comparison, err) : status;
}

double nd_comparison_sqnr_db(const struct nd_comparison *comparison, size_t pair)
{
    double sum = 0, n = 0;
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        const struct nd_compared_part *total = &comparison->tensors[e].pairs[pair].total;
        if (total->coverage != ND_COVERAGE_FULL || !total->difference.has_values)
            continue;
        sum += total->difference.has_signal ? pow(10, -total->difference.sqnr_db / 10) : 0;
        n += total->difference.has_signal || total->difference.n_samples_differing == 0;
    }
    return n > 0 ? -10 * log10(sum / n) : (double)NAN;
}
