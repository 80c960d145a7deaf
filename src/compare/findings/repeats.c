/* What a device does when it is asked twice: own noise, and outputs that do not depend on the input.
 * docs/reference/metrics.md#repeats. */
#include "compare/findings/top1_classes.h"

#include <math.h>

#include "core/memory.h"
#include "core/statistics/distributions.h"

double nd_repeats_bound(uint64_t k, uint64_t n)
{
    return nd_binomial_upper(k, n, 0.05);
}

/* All samples gave one output although they were fed differently. */
static bool is_stuck(const struct nd_aligned_captures *a, size_t tensor, size_t probe, size_t capture)
{
    const struct nd_capture_probe *described = nd_aligned_probe(a, probe, capture);
    const struct nd_digest *inputs = a->inputs[probe * a->n_captures + capture];
    bool are_inputs_equal = true;
    if (nd_aligned_tensor_digest(a, tensor, probe, capture) != NULL) /* then not all samples are equal */
        return false;
    for (size_t s = 1; s < described->n_samples; s++) {
        if (!nd_digest_equal(nd_aligned_digest(a, tensor, probe, capture, s),
                             nd_aligned_digest(a, tensor, probe, capture, 0)))
            return false;
        are_inputs_equal = are_inputs_equal && inputs != NULL && nd_digest_equal(inputs[s], inputs[0]);
    }
    return inputs != NULL && described->n_samples > 1 && !are_inputs_equal;
}

static bool is_repeat_equal(const struct nd_aligned_captures *a, size_t tensor, size_t probe, size_t capture,
                            size_t sample, size_t repeat)
{
    const struct nd_probe_values item = nd_aligned_values(a, tensor, probe, capture);
    if (nd_aligned_tensor_digest(a, tensor, probe, capture) != NULL) /* then every repeat is equal */
        return true;
    return nd_digest_equal(nd_capture_digest(item.capture, item.probe, item.tensor, sample, repeat),
                           nd_aligned_digest(a, tensor, probe, capture, sample));
}

static size_t count_runs(const struct nd_aligned_captures *a, size_t tensor, size_t probe, size_t capture,
                         size_t sample)
{
    const struct nd_probe_values item = nd_aligned_values(a, tensor, probe, capture);
    return nd_capture_n_runs(item.capture, item.probe, item.tensor, sample);
}

void nd_repeats_count(const struct nd_aligned_captures *alignment, size_t tensor, size_t capture,
                      struct nd_tensor_on_device *on)
{
    for (size_t p = 0; p < alignment->n_probes; p++) {
        const struct nd_capture_probe *probe = nd_aligned_probe(alignment, p, capture);
        if (probe == NULL)
            continue;
        for (size_t s = 0; s < probe->n_samples; s++) {
            uint64_t n_unequal = 0;
            size_t n_runs = count_runs(alignment, tensor, p, capture, s);
            for (size_t r = 1; r < n_runs; r++)
                n_unequal += !is_repeat_equal(alignment, tensor, p, capture, s, r);
            on->n_repeats += n_runs - 1;
            on->n_repeats_unequal += n_unequal;
            on->n_unstable += n_unequal > 0;
        }
        on->is_stuck = on->is_stuck || is_stuck(alignment, tensor, p, capture);
    }
    on->unstable_bound = nd_repeats_bound(on->n_repeats_unequal, on->n_repeats);
}

/* The repeats of one tensor on one device. */
struct work {
    const struct nd_aligned_captures *alignment;
    size_t tensor, capture;
    struct nd_pair_context context;
    struct nd_pair_state *state;
    unsigned char *first, *repeat; /* a sample each */
};

static enum nd_status add_sample(struct work *w, size_t p, size_t sample, size_t n_repeats,
                                 struct nd_error *err)
{
    const struct nd_aligned_captures *a = w->alignment;
    const struct nd_probe_values tensor = nd_aligned_values(a, w->tensor, p, w->capture);
    bool is_read = false;
    for (size_t r = 1; r < n_repeats; r++) {
        bool differs = !is_repeat_equal(a, w->tensor, p, w->capture, sample, r);
        if (differs && !is_read)
            ND_TRY(nd_capture_read_verified(&tensor, sample, 1, w->first, err));
        is_read = is_read || differs;
        if (differs)
            ND_TRY(nd_capture_read_repeat_verified(&tensor, sample, r, w->repeat, err));
        ND_TRY(nd_sample_compare(w->state, &w->context, differs, w->first, w->repeat, p, sample, err));
    }
    return ND_OK;
}

static enum nd_status measure(struct work *w, struct nd_difference *out, struct nd_error *err)
{
    const struct nd_aligned_captures *a = w->alignment;
    w->state = nd_pair_state_create(&w->context, err);
    w->first = nd_tensor_alloc(w->context.ref.sample_bytes);
    w->repeat = nd_tensor_alloc(w->context.ref.sample_bytes);
    enum nd_status status = ND_OK;
    if (w->state == NULL || w->first == NULL || w->repeat == NULL)
        status = nd_fail_memory(err);
    for (size_t p = 0; p < a->n_probes && status == ND_OK; p++) {
        const struct nd_capture_probe *probe = nd_aligned_probe(a, p, w->capture);
        for (size_t s = 0; probe != NULL && s < probe->n_samples && status == ND_OK; s++)
            status = add_sample(w, p, s, count_runs(a, w->tensor, p, w->capture, s), err);
    }
    if (status == ND_OK)
        status = nd_pair_state_finish(w->state, &w->context, out, err);
    else
        nd_error_context(err, "reading the repeats in '%s'", nd_capture_path(a->captures[w->capture]));
    nd_pair_state_destroy(&w->state);
    ND_FREE_ALL(w->first, w->repeat);
    return status;
}

static bool has_values(const struct nd_aligned_captures *a, size_t tensor, size_t capture)
{
    bool has_some = false;
    for (size_t p = 0; p < a->n_probes; p++) {
        if (nd_aligned_probe(a, p, capture) == NULL)
            continue;
        if (!nd_capture_has_outputs(a->captures[capture], a->probes[p * a->n_captures + capture],
                                    a->tensors[tensor * a->n_captures + capture]))
            return false;
        has_some = true;
    }
    return has_some;
}

/* A few reruns know a noise only roughly. A difference is inside it up to 8 times its largest value, and up to
 * twice the share of values that its probability can be thought to give (section 17). Chosen; the largest of a
 * few runs of YOLOv8n was 2 to 5 times too small. */
static const double largest_slack = 8, share_slack = 2;

/* The share of the values that a device changes from run to run, at most (95 %). */
static double max_noise(const struct nd_tensor_on_device *on)
{
    if (on->noise == NULL || on->n_repeats_unequal == 0)
        return 0;
    double of_unequal = on->noise->share * (double)on->n_repeats / (double)on->n_repeats_unequal;
    return of_unequal * on->unstable_bound;
}

static bool is_within_size(const struct nd_difference *d, const struct nd_tensor_on_device *a,
                           const struct nd_tensor_on_device *b)
{
    double max = fmax(a->noise != NULL ? a->noise->abs.max : 0, b->noise != NULL ? b->noise->abs.max : 0);
    return d->abs.max <= largest_slack * max && d->share <= share_slack * (max_noise(a) + max_noise(b));
}

/* The probability that a sample of this tensor changes from run to run, at most, on a device that is not
 * repeatable. */
static double max_rare(const struct nd_compared_device *device, const struct nd_tensor_on_device *on)
{
    return device->n_unstable_tensors > 0 ? on->unstable_bound : 0;
}

/* The reruns of this tensor are equal, those of a different tensor are not: so few samples differ that noise
 * may be the cause, which the few reruns did not show here. */
static bool is_within_rare(const struct nd_comparison *comparison, const struct nd_compared_tensor *tensor,
                           const struct nd_compared_pair *pair)
{
    const struct nd_difference *d = &pair->total.difference;
    double same = (1 - max_rare(&comparison->devices[pair->ref], &tensor->devices[pair->ref])) *
                  (1 - max_rare(&comparison->devices[pair->test], &tensor->devices[pair->test]));
    return (double)d->n_samples_differing <= ceil((1 - same) * (double)d->n_samples);
}

enum nd_status nd_repeats_measure(const struct nd_aligned_captures *alignment,
                                  const struct nd_compare_options *options, const struct nd_kernels *kernels,
                                  struct nd_comparison *comparison, struct nd_error *err)
{
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        struct nd_compared_tensor *tensor = &comparison->tensors[e];
        for (size_t c = 0; c < comparison->n_devices; c++) {
            struct nd_tensor_on_device *on = &tensor->devices[c];
            if (on->n_repeats_unequal == 0 || !has_values(alignment, e, c))
                continue;
            struct work work = {.alignment = alignment, .tensor = e, .capture = c};
            const struct nd_tensor *tensor_of_c = nd_aligned_tensor(alignment, e, c);
            ND_TRY(nd_pair_context_make(tensor_of_c, tensor_of_c, options, kernels, &work.context, err));
            on->noise = nd_calloc(1, sizeof *on->noise);
            ND_TRY_MEMORY(on->noise != NULL, err);
            ND_TRY(measure(&work, on->noise, err));
        }
        for (size_t p = 0; p < comparison->n_pairs; p++) {
            struct nd_compared_pair *pair = &tensor->pairs[p];
            const struct nd_tensor_on_device *a = &tensor->devices[pair->ref],
                                             *b = &tensor->devices[pair->test];
            const struct nd_difference *d = &pair->total.difference;
            bool is_measured = a->n_repeats_unequal + b->n_repeats_unequal > 0;
            bool is_any = d->has_values && d->n_differing > 0 && d->n_nan_mismatch + d->n_inf_mismatch == 0;
            pair->within_noise =
                is_any && (is_measured ? is_within_size(d, a, b) : is_within_rare(comparison, tensor, pair));
        }
    }
    return ND_OK;
}

/* ---- runs that are another capture's ---- */

/* One run of a sample. */
struct run {
    const struct nd_capture *capture;
    size_t probe;
    const size_t *tensors;
    size_t sample, repeat;
};

static bool is_same_at(const struct run *a, const struct run *b, size_t tensor)
{
    size_t x = a->tensors[tensor], y = b->tensors[tensor];
    return y != SIZE_MAX && a->repeat < nd_capture_n_runs(a->capture, a->probe, x, a->sample) &&
           b->repeat < nd_capture_n_runs(b->capture, b->probe, y, b->sample) &&
           nd_capture_tensor(a->capture, x)->dtype == nd_capture_tensor(b->capture, y)->dtype &&
           nd_digest_equal(nd_capture_digest(a->capture, a->probe, x, a->sample, a->repeat),
                           nd_capture_digest(b->capture, b->probe, y, b->sample, b->repeat));
}

/* Whether runs of the sample differ there. */
static bool is_unsteady_at(const struct run *run, size_t tensor)
{
    struct run other = *run;
    size_t n = run->tensors[tensor] != SIZE_MAX
                   ? nd_capture_n_runs(run->capture, run->probe, run->tensors[tensor], run->sample)
                   : 0;
    for (other.repeat = 1; other.repeat < n; other.repeat++)
        if (!is_same_at(run, &other, tensor))
            return true;
    return false;
}

static bool is_same_run(const struct run *a, const struct run *b, const size_t *tensors, size_t n)
{
    size_t i = 0;
    while (i < n && is_same_at(a, b, tensors[i]))
        i++;
    return i == n && n > 0;
}

/* differing: [n_tensors] */
static void count_sample(struct nd_runs_of *runs, size_t sample, size_t *differing)
{
    const struct nd_capture_probe *p = nd_capture_probe(runs->own, runs->own_probe);
    struct run run = {runs->own, runs->own_probe, runs->own_tensors, sample, 0}, rest = run,
               other = {runs->other, runs->other_probe, runs->other_tensors, sample, 0};
    size_t n = 0, n_other = 0;
    double us[2] = {0, 0};
    bool is_rest_one = true;
    for (size_t t = 0; t < runs->n_tensors; t++)
        if (is_unsteady_at(&run, t)) {
            differing[n++] = t;
            if (is_unsteady_at(&other, t))
                return;
        }
    rest.repeat = SIZE_MAX;
    for (run.repeat = 0; run.repeat < p->n_repeats; run.repeat++) {
        bool is_other = is_same_run(&run, &other, differing, n);
        n_other += is_other;
        us[is_other] += p->latency_us[sample * p->n_repeats + run.repeat];
        rest.repeat = !is_other && rest.repeat == SIZE_MAX ? run.repeat : rest.repeat;
        is_rest_one = is_rest_one && (is_other || is_same_run(&run, &rest, differing, n));
    }
    if (n_other == 0 || n_other == p->n_repeats || (n_other == 1 && !is_rest_one))
        return;
    runs->n += p->n_repeats;
    runs->n_other += n_other;
    runs->us += us[false];
    runs->us_other += us[true];
    runs->n_differing = n > runs->n_differing ? n : runs->n_differing;
}

enum nd_status nd_repeats_count_of(struct nd_runs_of *runs, struct nd_error *err)
{
    size_t n = nd_capture_probe(runs->own, runs->own_probe)->n_samples,
           n_other = nd_capture_probe(runs->other, runs->other_probe)->n_samples;
    ND_FREED size_t *differing = nd_calloc(runs->n_tensors, sizeof *differing);
    ND_TRY_MEMORY(differing != NULL, err);
    for (size_t s = 0; s < n && s < n_other; s++)
        count_sample(runs, s, differing);
    return ND_OK;
}
