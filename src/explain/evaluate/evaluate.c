/* One sample: the references once, then the model on every device's own codes. */
#include <math.h>

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"
#include "explain/evaluate/evaluation.h"

/* A group of identical devices: devices whose quantised values are all the same have one vote. */
static bool counts_in(const struct nd_plan *plan, size_t device, size_t step)
{
    return nd_plan_is_worked_out(plan, device) && plan->sources[device].layers[step].has_total;
}

struct poll {
    double qvalue; /* that most have; of equals the smallest */
    uint64_t most, second;
    uint64_t n;
};

static struct poll poll_element(const double *counts, size_t n_counts, size_t stride, size_t i)
{
    struct poll poll = {.n = n_counts};
    for (size_t a = 0; a < n_counts; a++) {
        double qvalue = counts[a * stride + i];
        uint64_t n = 0;
        bool is_first = true;
        for (size_t b = 0; b < n_counts; b++) {
            bool is_equal = counts[b * stride + i] == qvalue;
            n += is_equal;
            is_first = is_first && !(is_equal && b < a);
        }
        if (!is_first)
            continue;
        if (n > poll.most || (n == poll.most && qvalue < poll.qvalue)) {
            poll.second = poll.most;
            poll.most = n;
            poll.qvalue = qvalue;
        } else if (n > poll.second) {
            poll.second = n;
        }
    }
    return poll;
}

/* w->step has the reference. */
static void count_element(struct nd_evaluator *w, size_t step, size_t i, const size_t *voters, size_t n_voters)
{
    const struct nd_plan *plan = w->reader.plan;
    struct nd_reference_sums *sums = nd_reference_sums_of(w->evaluation, w->reader.sample, step);
    const struct poll poll = poll_element(w->counts, n_voters, w->count_n, i);
    double shared = poll.qvalue - w->step.x[i];
    bool has_error = plan->steps[step].has_float && !sums->is_float_missed;
    double error = shared + (has_error ? w->error[step].x[i] : 0);
    sums->n_voted++;
    sums->common_divergence += shared * shared;
    sums->common_error += error * error;
    if (poll.most < poll.n) {
        sums->n_split++;
        sums->margin += (double)(poll.most - poll.second);
    }
    for (size_t k = 0; k < n_voters; k++) {
        struct nd_sums *own = nd_sums_of(w->evaluation, w->reader.sample, voters[k], step);
        double d = w->counts[k * w->count_n + i] - poll.qvalue;
        own->own_squares += d * d;
    }
}

/* evaluate.c: what chipsets have in common, the plurality of their quantised values, element by element.
 * Lineages vote, not devices. docs/science/theory.md#majority. Of the sample at hand: fills the majority's part
 * of the sums of outputs. */
static void nd_count_counts(struct nd_evaluator *w)
{
    const struct nd_plan *plan = w->reader.plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t n = 0;
        if (!plan->steps[s].is_model_output ||
            nd_reference_sums_of(w->evaluation, w->reader.sample, s)->is_missed)
            continue;
        for (size_t d = 0; d < plan->n_devices; d++) {
            const struct nd_plan_source *source = &plan->sources[d];
            if (!counts_in(plan, d, s))
                continue;
            nd_array_load(nd_capture_tensor(source->capture, source->tensors[s])->dtype,
                          nd_reader_raw(&w->reader, d, s), w->reference[s].tensor_view.n,
                          w->counts + n * w->count_n);
            w->voters[n++] = d;
        }
        nd_reference_array(w, s);
        for (size_t i = 0; n > 0 && i < w->step.n; i++)
            count_element(w, s, i, w->voters, n);
    }
}

/* Samples 0, n/k, 2n/k, ...: of a probe in order of classes some of each. */
bool nd_is_output_effect_sample(const struct nd_plan *plan, size_t sample)
{
    size_t k = plan->n_output_effect_samples, n = plan->n_samples;
    return sample * k / n != (sample + 1) * k / n;
}

static bool depends_on(const struct nd_plan *plan, const bool *is_below, size_t step)
{
    const struct nd_model_layer *layer = nd_model_layer_of_tensor(plan->model, plan->steps[step].tensor);
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        if (input != SIZE_MAX && is_below[layer->inputs[i]])
            return true;
    }
    return layer == NULL && !nd_model_tensor(plan->model, plan->steps[step].tensor)->is_model_input;
}

static bool has_reference(const struct nd_evaluator *w, size_t step)
{
    return !nd_reference_sums_of(w->evaluation, w->reader.sample, step)->is_missed;
}

/* Of what is given, only what something below reads is needed. */
static void ignore_unread(struct nd_evaluator *w)
{
    const struct nd_plan *plan = w->reader.plan;
    bool *is_ignored = w->reader.is_ignored;
    for (size_t s = 0; s < plan->n_steps; s++)
        is_ignored[plan->steps[s].tensor] = w->reader.is_skipped[plan->steps[s].tensor];
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_model_layer *layer = nd_model_layer_of_tensor(plan->model, plan->steps[s].tensor);
        for (size_t i = 0; layer != NULL && w->is_below[plan->steps[s].tensor] && i < layer->n_inputs; i++)
            is_ignored[layer->inputs[i]] = false;
    }
}

/* Gives the reference's quantised values of all that does not depend on the step, and the rest is computed.
 * Whether an output is among the rest; *is_known: whether every such output has a reference. */
static bool give_reference(struct nd_evaluator *w, size_t step, bool *is_known)
{
    const struct nd_plan *plan = w->reader.plan;
    bool reaches_output = false, *is_below = w->is_below;
    *is_known = true;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t tensor = plan->steps[s].tensor;
        is_below[tensor] = s == step || (s > step && depends_on(plan, is_below, s));
        bool is_given = s == step || (!is_below[tensor] && has_reference(w, s));
        w->reader.chain[tensor] = is_given ? w->reference[s].tensor_view : nd_no_array();
        w->reader.is_skipped[tensor] = is_given;
        if (!plan->steps[s].is_model_output || !is_below[tensor])
            continue;
        reaches_output = true;
        *is_known = *is_known && has_reference(w, s);
    }
    ignore_unread(w);
    return reaches_output;
}

static enum nd_status found_harmed(void *context, size_t tensor, const struct nd_array *values,
                                   enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    struct nd_evaluator *w = context;
    const struct nd_plan *plan = w->reader.plan;
    size_t step = plan->step_of_tensor[tensor];
    if (step == w->harmful || !plan->steps[step].is_model_output || !has_reference(w, step))
        return ND_OK;
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, w->harmful);
    if (values->n != w->reference[step].tensor_view.n) {
        sums->is_output_effect_missed = true;
        return ND_OK;
    }
    const struct nd_array *reference = nd_reference_array(w, step);
    for (size_t i = 0; i < values->n; i++) {
        double d = values->x[i] - reference->x[i];
        sums->n_harmed += d != 0;
        sums->output_effect_squares += d * d;
    }
    return ND_OK;
}

static enum nd_status missed_harmed(void *context, size_t tensor, const struct nd_error *why,
                                    struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_tensor[tensor];
    if (w->reader.plan->steps[step].is_model_output && has_reference(w, step))
        nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, w->harmful)->is_output_effect_missed =
            true;
    return ND_OK;
}

/* reference + introduced error, within the type. */
static enum nd_status nd_inject_error(struct nd_evaluator *w, size_t step, const struct nd_array *own,
                                      struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_planned_layer *layer = &plan->sources[w->reader.device].layers[step];
    const struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    double low, high;
    if (!plan->steps[step].is_layer || !layer->is_examined || sums->introduced.n_differing == 0 ||
        !has_reference(w, step))
        return ND_OK;
    const struct nd_array *qvalues = nd_reference_array(w, step),
                          *given = nd_reader_given(&w->reader, plan->steps[step].tensor);
    nd_qvalue_range(qvalues->dtype, &low, &high);
    for (size_t i = 0; i < qvalues->n; i++)
        qvalues->x[i] = nd_within(qvalues->x[i] + given->x[i] - own->x[i], low, high);
    return nd_pack(qvalues, &w->injected[step], err);
}

static void give_chain(void *context, size_t tensor, double *out)
{
    const struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_tensor[tensor];
    nd_unpack(step == w->harmful ? &w->injected[step] : &w->reference[step], out);
}

/* What the introduced error of an output is to the outputs. */
static enum nd_status add_own_output_effect(struct nd_evaluator *w, size_t step, struct nd_sums *sums,
                                            struct nd_error *err)
{
    const struct nd_array *reference = nd_reference_array(w, step);
    ND_FREED double *qvalues = nd_calloc(reference->n, sizeof *qvalues);
    ND_TRY_MEMORY(qvalues != NULL, err);
    nd_unpack(&w->injected[step], qvalues);
    for (size_t i = 0; i < reference->n; i++) {
        double d = qvalues[i] - reference->x[i];
        sums->n_harmed += d != 0;
        sums->output_effect_squares += d * d;
    }
    return ND_OK;
}

/* Whether every step has a reference that was evaluated: then a run has all that it reads. */
static bool has_all_references(const struct nd_evaluator *w)
{
    const struct nd_plan *plan = w->reader.plan;
    bool has_all = w->incremental.plan != NULL;
    for (size_t s = 0; s < plan->n_steps && has_all; s++)
        has_all = has_reference(w, s) && plan->steps[s].substituted_from == SIZE_MAX;
    return has_all;
}

static enum nd_status follow_incremental(struct nd_evaluator *w, size_t step, struct nd_sums *sums,
                                         bool *is_done, struct nd_error *err)
{
    struct nd_incremental_sums found;
    ND_TRY(nd_incremental_run(&w->incremental, w->reference, step, &w->injected[step], &found, is_done, err));
    if (*is_done) {
        sums->n_harmed += found.n_changed;
        sums->output_effect_squares += found.squares;
    }
    return ND_OK;
}

/* What the changed values are a share of. */
static uint64_t count_output_qvalues(const struct nd_evaluator *w)
{
    const struct nd_plan *plan = w->reader.plan;
    uint64_t n = 0;
    for (size_t s = 0; s < plan->n_steps; s++)
        if (plan->steps[s].is_model_output && has_reference(w, s))
            n += w->reference[s].tensor_view.n;
    return n;
}

static enum nd_status measure_step(struct nd_evaluator *w, size_t step, bool has_all, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_exact_options options = {
        .struct_size = sizeof options,
        .given = w->reader.chain,
        .give = give_chain,
        .is_skipped = w->reader.is_skipped,
        .is_ignored = nd_exact_graph_is_pure(plan->graph) ? w->reader.is_ignored : NULL,
        .missed = missed_harmed};
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    sums->is_output_effect_missed = sums->is_missed || !has_reference(w, step);
    if (sums->is_output_effect_missed || sums->introduced.n_differing == 0)
        return ND_OK;
    w->harmful = step;
    if (plan->steps[step].is_model_output)
        ND_TRY(add_own_output_effect(w, step, sums, err));
    bool is_done = false;
    if (has_all)
        ND_TRY(follow_incremental(w, step, sums, &is_done, err));
    if (is_done)
        return ND_OK;
    bool is_known, reaches_output = give_reference(w, step, &is_known);
    sums->is_output_effect_missed = !is_known;
    return reaches_output && is_known
               ? nd_exact_graph_run(plan->graph, w->reader.inputs, &options, found_harmed, w, err)
               : ND_OK;
}

/* For the sample and device at hand, after `reference` and `injected` of all steps are known. */
static enum nd_status nd_measure_output_effect(struct nd_evaluator *w, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    bool has_all = has_all_references(w);
    uint64_t n_qvalues = count_output_qvalues(w);
    for (size_t s = 0; s < plan->n_steps; s++)
        if (plan->sources[w->reader.device].layers[s].is_examined && plan->steps[s].is_layer) {
            nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, s)->n_output_effect_qvalues +=
                n_qvalues;
            ND_TRY(measure_step(w, s, has_all, err));
        }
    return ND_OK;
}

/* Sums over the elements of one layer: what quantisation makes of the float model, and what a device has beside
 * the references. */

/* ---- the references ---- */

/* Values, in quantised values, that lie more than half a step beyond those of the type are clipped. */
static void clip_limits(enum nd_dtype dtype, double *low, double *high)
{
    *low = -HUGE_VAL;
    *high = HUGE_VAL;
    if (!nd_dtype_is_integer(dtype))
        return;
    nd_qvalue_range(dtype, low, high);
    *low -= 0.5;
    *high += 0.5;
}

/* Turns the float reference, w->error, into the quantisation error, both in steps of the channel. */
static void nd_take_error(struct nd_evaluator *w, size_t step)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_quant *quant = &nd_model_tensor(plan->model, plan->steps[step].tensor)->quant;
    const struct nd_array *qvalues = nd_reference_array(w, step);
    struct nd_reference_sums sums = *nd_reference_of(w, step); /* x could be what it has in memory */
    double *x = w->error[step].x;
    size_t inner = nd_exact_inner(quant, &plan->shapes[step], qvalues->n), channel = 0;
    double low, high;
    clip_limits(qvalues->dtype, &low, &high);
    for (size_t start = 0; start < qvalues->n; start += inner, channel = (channel + 1) % quant->n) {
        double scale = (double)quant->scale[channel], zero = (double)quant->zero_point[channel];
        for (size_t i = start; i < start + inner; i++) {
            double steps = x[i] / scale, q = qvalues->x[i] - zero - steps, value = qvalues->x[i] - q;
            sums.signal += steps * steps;
            sums.quantisation += q * q;
            if (value < low || value > high) {
                sums.n_clipped++;
                sums.clipped_quantisation += q * q;
            }
            x[i] = q;
        }
    }
    *nd_reference_of(w, step) = sums;
}

/* ---- a device ---- */

/* Quantised values, of which there are so few that sums of squares of differences stay exact, whatever the
 * order. */
static bool are_exact(const struct nd_array *values)
{
    double low, high;
    if (!nd_dtype_is_integer(values->dtype) || nd_dtype_size_bytes(values->dtype) > 2)
        return false;
    nd_qvalue_range(values->dtype, &low, &high);
    return (double)values->n * (high - low) * (high - low) < 0x1p53;
}

static void add_difference(struct nd_part_sums *part, double d)
{
    part->n_differing += d != 0;
    part->max = fabs(d) > part->max ? fabs(d) : part->max;
    part->sum += d;
    part->squares += d * d;
}

/* What the differences of a device are to the errors of quantisation, in the order of the elements. */
static void add_errors(struct nd_sums *sums, enum nd_dtype dtype, const double *given, const double *ref,
                       const double *error, size_t n)
{
    double low, high, q_times_d = sums->q_times_d, clipped = sums->clipped_divergence;
    clip_limits(dtype, &low, &high);
    for (size_t i = 0; i < n; i++) {
        double total = given[i] - ref[i], value = ref[i] - error[i];
        q_times_d += error[i] * total;
        clipped += value < low || value > high ? total * total : 0;
    }
    sums->q_times_d = q_times_d;
    sums->clipped_divergence = clipped;
}

/* One layer of a device: what it has, what the layer makes of the device's own inputs, and the reference. */
struct decoded {
    const struct nd_array *captured, *own;
    const struct nd_packed *reference; /* NULL: there is none */
    const double *error;               /* of quantisation, in steps; NULL: there is none */
    const void *raw;                   /* what was captured, as it is stored */
    bool is_examined;
};

/* ---- in whole numbers ---- */

enum { BLOCK = 2048 }; /* elements that stay in the first cache: chosen */

/* What of a block of quantised values of one width is held against what. */
struct qvalue_block {
    const void *given, *own, *reference; /* the last one may be NULL */
    size_t width, n;
};

static void compare_qvalues(const struct qvalue_block *block, const void *a, const void *b,
                            struct nd_part_sums *part)
{
    struct nd_qvalue_differences found;
    if (block->width == 1)
        nd_gemm_kernels()->compare_bytes(a, b, block->n, &found);
    else
        nd_gemm_kernels()->compare_words(a, b, block->n, &found);
    part->n_differing += found.n_differing;
    part->max = fmax(part->max, (double)found.max);
    part->sum += (double)found.sum;
    part->squares += (double)found.energy;
}

/* False: nothing was added, since there are other values than quantised values of an unsigned type of 8 or 16
 * bits. */
static bool add_qvalues(struct nd_sums *sums, const struct decoded *decoded)
{
    const struct nd_array *own = decoded->own;
    const struct nd_sums before = *sums;
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    size_t width = own->dtype == ND_DTYPE_U8 ? 1 : 2;
    uint16_t made[BLOCK];
    if ((own->dtype != ND_DTYPE_U8 && own->dtype != ND_DTYPE_U16) || decoded->captured->dtype != own->dtype ||
        !are_exact(own) ||
        (decoded->reference != NULL &&
         (decoded->reference->tensor_view.dtype != own->dtype || decoded->reference->width != width)))
        return false;
    for (size_t first = 0; first < own->n; first += BLOCK) {
        size_t n = own->n - first < BLOCK ? own->n - first : BLOCK;
        bool are_qvalues = width == 1 ? kernels->narrow(own->x + first, 0, n, (uint8_t *)made)
                                      : kernels->narrow_words(own->x + first, 0, n, made);
        if (!are_qvalues) {
            *sums = before;
            return false;
        }
        const struct qvalue_block block = {
            (const uint8_t *)decoded->raw + first * width, made,
            decoded->reference != NULL ? (const uint8_t *)decoded->reference->bytes + first * width : NULL,
            width, n};
        if (decoded->is_examined)
            compare_qvalues(&block, block.given, block.own, &sums->introduced);
        if (block.reference != NULL)
            compare_qvalues(&block, block.given, block.reference, &sums->total);
        if (block.reference != NULL && decoded->is_examined)
            compare_qvalues(&block, block.own, block.reference, &sums->passed_on);
    }
    return true;
}

/* ---- in any ---- */

static void add_values(struct nd_sums *sums, const struct decoded *decoded, const double *ref)
{
    const double *given = decoded->captured->x, *own = decoded->own->x;
    for (size_t i = 0; i < decoded->own->n; i++) {
        double introduced = given[i] - own[i];
        if (decoded->is_examined)
            add_difference(&sums->introduced, introduced);
        if (ref == NULL)
            continue;
        double total = given[i] - ref[i], passed_on = own[i] - ref[i];
        add_difference(&sums->total, total);
        if (!decoded->is_examined)
            continue;
        add_difference(&sums->passed_on, passed_on);
        sums->n_violations += total != introduced + passed_on; /* of whole numbers none can be */
    }
}

/* What the layer makes of the device's own inputs, held against what the device has and, where there is one,
 * against the reference. */
static void nd_add_layer(struct nd_evaluator *w, size_t step, const struct nd_array *values)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_planned_layer *layer = &plan->sources[w->reader.device].layers[step];
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    bool has_reference = layer->has_total && !nd_reference_of(w, step)->is_missed;
    bool has_error = has_reference && plan->steps[step].has_float && !nd_reference_of(w, step)->is_float_missed;
    const struct decoded decoded = {.captured = nd_reader_given(&w->reader, plan->steps[step].tensor),
                                    .own = values,
                                    .reference = has_reference ? &w->reference[step] : NULL,
                                    .error = has_error ? w->error[step].x : NULL,
                                    .raw = nd_reader_raw(&w->reader, w->reader.device, step),
                                    .is_examined = layer->is_examined};
    sums->n_qvalues = values->n;
    bool is_added = add_qvalues(sums, &decoded);
    const double *ref =
        has_reference && (!is_added || decoded.error != NULL) ? nd_reference_array(w, step)->x : NULL;
    if (decoded.error != NULL)
        add_errors(sums, decoded.reference->tensor_view.dtype, decoded.captured->x, ref, decoded.error,
                   values->n);
    if (!is_added)
        add_values(sums, &decoded, ref);
}

/* ---- the references ---- */

/* False: the tensor changes its shape from sample to sample. */
static bool keep(const struct nd_array *values, struct nd_array *to)
{
    if (values->n != to->n)
        return false;
    if (values->n > 0)
        memcpy(to->x, values->x, values->n * sizeof *values->x);
    return true;
}

/* The same of quantised values, with the shape and type that the tensor has in the plan. */
static enum nd_status keep_packed(const struct nd_array *values, struct nd_packed *to, bool *is_kept,
                                  struct nd_error *err)
{
    struct nd_array view = to->tensor_view;
    *is_kept = values->n == to->tensor_view.n;
    view.x = values->x;
    return *is_kept ? nd_pack(&view, to, err) : ND_OK;
}

static enum nd_status found_reference(void *context, size_t tensor, const struct nd_array *values,
                                      enum nd_exact_method method, struct nd_error *err)
{
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_tensor[tensor];
    struct nd_reference_sums *sums = nd_reference_of(w, step);
    bool is_kept;
    /* The quantisation of an input is ONNX's own operator, whatever way it takes. */
    sums->is_double = method == ND_EXACT_AS_DOUBLE && w->reader.plan->steps[step].is_layer;
    enum nd_status status = keep_packed(values, &w->reference[step], &is_kept, err);
    sums->is_missed = !is_kept;
    return status;
}

/* What is taken from a capture goes on as if it had been computed. */
static enum nd_status missed_reference(void *context, size_t tensor, const struct nd_error *why,
                                       struct nd_error *err)
{
    (void)why;
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_tensor[tensor];
    bool is_kept = false;
    enum nd_status status = ND_OK;
    if (w->reader.plan->steps[step].substituted_from != SIZE_MAX)
        status = keep_packed(&w->substituted[tensor], &w->reference[step], &is_kept, err);
    nd_reference_of(w, step)->is_missed = !is_kept;
    return status;
}

static enum nd_status found_float(void *context, size_t tensor, const struct nd_array *values,
                                  enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_float[tensor];
    if (step != SIZE_MAX)
        nd_reference_of(w, step)->is_float_missed = !keep(values, &w->error[step]);
    return ND_OK;
}

static enum nd_status missed_float(void *context, size_t tensor, const struct nd_error *why,
                                   struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_float[tensor];
    if (step != SIZE_MAX)
        nd_reference_of(w, step)->is_float_missed = true;
    return ND_OK;
}

static enum nd_status run_references(struct nd_evaluator *w, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .given = w->substituted, .missed = missed_reference};
    const struct nd_exact_options of_floats = {.struct_size = sizeof options, .missed = missed_float};
    nd_substituted_load(&w->reader, w->substituted);
    ND_TRY(nd_exact_graph_run(plan->graph, w->reader.inputs, &options, found_reference, w, err));
    if (plan->float_graph != NULL)
        ND_TRY(nd_exact_graph_run(plan->float_graph, w->float_inputs, &of_floats, found_float, w, err));
    for (size_t s = 0; s < plan->n_steps; s++)
        if (plan->steps[s].has_float && !nd_reference_of(w, s)->is_missed &&
            !nd_reference_of(w, s)->is_float_missed)
            nd_take_error(w, s);
    return ND_OK;
}

/* ---- a device ---- */

/* The quantised reference's rounding; and which arithmetics would have given what the device has. */
static enum nd_status round_device(void *context, const struct nd_exact_values *values,
                                   struct nd_array *qvalues, struct nd_error *err)
{
    (void)err;
    struct nd_evaluator *w = context;
    struct nd_reader *r = &w->reader;
    size_t step = r->plan->step_of_tensor[values->tensor], at = r->device * r->plan->n_steps + step;
    const struct nd_array *given = nd_reader_given(r, values->tensor);
    nd_round_half_even(values, qvalues);
    if (!r->plan->sources[r->device].layers[step].is_examined || given->n != values->n)
        return ND_OK;
    nd_qvalue_tally_add(&w->tally[at], values, given->x);
    if (r->trial.tensor == values->tensor)
        nd_layer_trial_count(&r->trial, given->x, qvalues->x, values->n, &w->layer_tally[at]);
    return ND_OK;
}

static void give_device(void *context, size_t tensor, double *out)
{
    const struct nd_evaluator *w = context;
    nd_reader_give(&w->reader, tensor, out);
}

static enum nd_status found_device(void *context, size_t tensor, const struct nd_array *values,
                                   enum nd_exact_method method, struct nd_error *err)
{
    struct nd_evaluator *w = context;
    const struct nd_plan *plan = w->reader.plan;
    size_t step = plan->step_of_tensor[tensor];
    const struct nd_planned_layer *layer = &plan->sources[w->reader.device].layers[step];
    if (!layer->has_total && !layer->is_examined)
        return ND_OK;
    if (nd_reference_of(w, step)->is_missed) /* nobody else has said it */
        nd_reference_of(w, step)->is_double = method == ND_EXACT_AS_DOUBLE && plan->steps[step].is_layer;
    bool is_kept = values->n == w->reference[step].tensor_view.n;
    nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step)->is_missed = !is_kept;
    if (!is_kept)
        return ND_OK;
    nd_add_layer(w, step, values);
    return nd_is_output_effect_sample(plan, w->reader.sample) ? nd_inject_error(w, step, values, err) : ND_OK;
}

static enum nd_status missed_device(void *context, size_t tensor, const struct nd_error *why,
                                    struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_evaluator *w = context;
    nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, w->reader.plan->step_of_tensor[tensor])
        ->is_missed = true;
    return ND_OK;
}

static enum nd_status run_device(struct nd_evaluator *w, size_t device, struct nd_error *err)
{
    struct nd_reader *r = &w->reader;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_device,
                                             .takes_quick = true,
                                             .make = nd_reader_try_layer,
                                             .given = r->given,
                                             .give = give_device,
                                             .missed = missed_device};
    ND_TRY(nd_reader_device(r, device, err));
    nd_layer_trial_begin(&r->trial);
    return nd_exact_graph_run(r->plan->graph, r->inputs, &options, found_device, w, err);
}

/* Where chipsets share a group of identical devices, one of them is worked out. */
static enum nd_status run_sample(void *state, struct nd_error *err)
{
    struct nd_evaluator *w = state;
    const struct nd_plan *plan = w->reader.plan;
    ND_TRY(run_references(w, err));
    for (size_t d = 0; d < plan->n_devices; d++) {
        if (!nd_plan_is_worked_out(plan, d))
            continue;
        ND_TRY(run_device(w, d, err));
        if (nd_is_output_effect_sample(plan, w->reader.sample))
            ND_TRY(nd_measure_output_effect(w, err));
    }
    nd_count_counts(w);
    return ND_OK;
}

/* ---- a thread ---- */

/* From now on quantised values of a device are held for one tensor at a time. ND_ERR_MEMORY. */
static enum nd_status reader_be_lazy(struct nd_reader *r, struct nd_error *err)
{
    r->is_lazy = true;
    r->decoded_tensor = SIZE_MAX;
    /* Room for the largest of them. */
    size_t most = 0;
    for (size_t s = 0; s < r->plan->n_steps; s++) {
        size_t n = 0;
        if (nd_shape_n_elems(&r->plan->shapes[s], &n, NULL) == ND_OK && n > most)
            most = n;
    }
    r->decoded.x = nd_tensor_room(most * sizeof *r->decoded.x);
    return r->decoded.x != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status make_steps(struct nd_evaluator *w, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    size_t most = 0;
    for (size_t s = 0; s < plan->n_steps; s++) {
        struct nd_array *tensor_view = &w->reference[s].tensor_view;
        *tensor_view = (struct nd_array){.shape = plan->shapes[s], .dtype = nd_plan_tensor(plan, s)->dtype};
        ND_TRY(nd_shape_n_elems(&tensor_view->shape, &tensor_view->n, err));
        w->injected[s].tensor_view = *tensor_view;
        if (plan->steps[s].has_float)
            ND_TRY(nd_array_make_room(&w->error[s], ND_DTYPE_F64, &plan->shapes[s], err));
        most = tensor_view->n > most ? tensor_view->n : most;
        if (plan->steps[s].is_model_output && tensor_view->n > w->count_n)
            w->count_n = tensor_view->n;
    }
    w->step.x = nd_tensor_room(most * sizeof *w->step.x);
    return w->step.x != NULL ? reader_be_lazy(&w->reader, err) : nd_fail_memory(err);
}

static enum nd_status begin(void *state, void *context, struct nd_error *err)
{
    struct nd_evaluator *w = state;
    const struct nd_plan *plan = w->reader.plan;
    size_t n_layers = plan->n_devices * plan->n_steps;
    size_t n_float = plan->float_model != NULL ? nd_model_n_inputs(plan->float_model) : 0;
    w->evaluation = context;
    w->float_inputs = nd_calloc(n_float, sizeof *w->float_inputs);
    w->reference = nd_calloc(plan->n_steps, sizeof *w->reference);
    w->error = nd_calloc(plan->n_steps, sizeof *w->error);
    w->injected = nd_calloc(plan->n_steps, sizeof *w->injected);
    w->is_below = nd_calloc(nd_model_n_tensors(plan->model), sizeof *w->is_below);
    w->voters = nd_calloc(plan->n_devices, sizeof *w->voters);
    w->tally = nd_calloc(n_layers, sizeof *w->tally);
    w->layer_tally = nd_calloc(n_layers, sizeof *w->layer_tally);
    ND_TRY_MEMORY(w->float_inputs != NULL && w->reference != NULL && w->error != NULL && w->injected != NULL &&
                      w->is_below != NULL && w->voters != NULL && w->tally != NULL && w->layer_tally != NULL,
                  err);
    for (size_t i = 0; i < n_float; i++)
        w->float_inputs[i] = w->reader.inputs[plan->float_inputs[i]];
    ND_TRY(make_steps(w, err));
    if (w->evaluation->layers != NULL)
        ND_TRY(nd_incremental_init(&w->incremental, plan, w->evaluation->layers, err));
    ND_TRY(nd_substituted_make(plan, &w->substituted, err));
    size_t n;
    if (!nd_size_mul(w->count_n, w->reader.plan->n_devices, &n))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "an output is too large");
    w->counts = nd_calloc(n, sizeof *w->counts);
    return w->counts != NULL || n == 0 ? ND_OK : nd_fail_memory(err);
}

/* Its tallies go into the whole. */
static void end(void *state, void *context)
{
    struct nd_evaluator *w = state;
    struct nd_evaluation *evaluation = context;
    const struct nd_plan *plan = evaluation->plan;
    for (size_t k = 0; k < plan->n_devices * plan->n_steps && w->tally != NULL && w->layer_tally != NULL; k++) {
        nd_qvalue_tally_merge(&w->tally[k], &evaluation->tally[k]);
        nd_layer_tally_merge(&w->layer_tally[k], &evaluation->layer_tally[k]);
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        if (w->reference != NULL)
            nd_packed_deinit(&w->reference[s]);
        if (w->injected != NULL)
            nd_packed_deinit(&w->injected[s]);
        if (w->error != NULL)
            nd_array_deinit(&w->error[s]);
    }
    nd_incremental_deinit(&w->incremental);
    nd_substituted_free(plan, &w->substituted);
    ND_FREE_ALL(w->float_inputs, w->reference, w->error, w->injected);
    nd_array_deinit(&w->step);
    ND_FREE_ALL(w->is_below, w->counts, w->voters, w->tally, w->layer_tally);
}

/* ---- all of it ---- */

/* What was worked out for another capture with the same quantised values. */
static void share_results(struct nd_evaluation *evaluation, size_t device)
{
    const struct nd_plan *plan = evaluation->plan;
    size_t from = plan->sources[device].same_as, n = plan->n_steps;
    if (from == device)
        return;
    memcpy(evaluation->tally + device * n, evaluation->tally + from * n, n * sizeof *evaluation->tally);
    memcpy(evaluation->layer_tally + device * n, evaluation->layer_tally + from * n,
           n * sizeof *evaluation->layer_tally);
    for (size_t i = 0; i < plan->n_samples; i++)
        memcpy(nd_sums_of(evaluation, i, device, 0), nd_sums_of(evaluation, i, from, 0),
               n * sizeof *evaluation->sums);
}

enum nd_status nd_evaluate(struct nd_evaluation *evaluation, struct nd_sample_span span,
                           const struct nd_explain_options *options, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    const struct nd_replay replay = {.plan = plan,
                                     .span = span,
                                     .state_bytes = sizeof(struct nd_evaluator),
                                     .context = evaluation,
                                     .begin = begin,
                                     .run = run_sample,
                                     .end = end,
                                     .progress = options->progress,
                                     .progress_context = options->progress_context,
                                     .is_cancelled = options->is_cancelled,
                                     .cancel_context = options->cancel_context};
    enum nd_status status =
        plan->n_output_effect_samples > 0 ? nd_incremental_find_layers(plan, &evaluation->layers, err) : ND_OK;
    if (status == ND_OK)
        status = nd_replay_run(&replay, err);
    nd_byte_layers_destroy(&evaluation->layers);
    return status;
}

void nd_evaluate_finish(struct nd_evaluation *evaluation)
{
    const struct nd_plan *plan = evaluation->plan;
    for (size_t k = 0; k < plan->n_devices * plan->n_steps; k++)
        nd_qvalue_tally_finish(&evaluation->tally[k]);
    for (size_t d = 0; d < plan->n_devices; d++)
        share_results(evaluation, d);
}
