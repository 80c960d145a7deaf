/* A sample through three runs: the quantised reference, the float model, and the float model's layers fed with
 * the inputs that they have in the quantised reference. */
#include <math.h>

#include "arithmetic/exact/linear/quick.h"
#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "explain/plan/replay.h"
#include "model/graph/loaded.h"
#include "model/graph/onnx.h"
#include "quantisation/study.h"

/* Which part of a graph has to run again when some of its tensors change. */

enum nd_status nd_rerun_init(struct nd_rerun *cut, const struct nd_model *model, struct nd_error *err)
{
    size_t n = nd_model_n_tensors(model);
    *cut = (struct nd_rerun){.is_skipped = nd_calloc(n, sizeof *cut->is_skipped),
                             .is_ignored = nd_calloc(n, sizeof *cut->is_ignored),
                             .is_below = nd_calloc(n, sizeof *cut->is_below)};
    bool has_all = cut->is_skipped != NULL && cut->is_ignored != NULL && cut->is_below != NULL;
    return has_all ? ND_OK : nd_fail_memory(err);
}

void nd_rerun_deinit(struct nd_rerun *cut)
{
    ND_FREE_ALL(cut->is_skipped, cut->is_ignored, cut->is_below);
    *cut = (struct nd_rerun){0};
}

/* The tensor of a tensor that a node uses or makes. */
static size_t tensor_of(const struct nd_model *model, size_t tensor)
{
    return tensor != ND_NO_INDEX ? model->tensor_of_value[tensor] : ND_NO_INDEX;
}

/* Forward: what depends on a changed tensor. is_below has one entry for each tensor. */
static void mark_below(const struct nd_model *model, bool *value_below, bool *tensor_below)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const struct nd_graph_node *node = &graph->nodes[n];
        bool is_below = false;
        for (size_t i = 0; i < node->n_uses && !is_below; i++) {
            size_t value = graph->uses[node->first_use + i], tensor = tensor_of(model, value);
            is_below =
                value != ND_NO_INDEX && (value_below[value] || (tensor != ND_NO_INDEX && tensor_below[tensor]));
        }
        for (size_t i = 0; i < node->n_made && is_below; i++) {
            size_t value = graph->made[node->first_made + i], tensor = tensor_of(model, value);
            if (value != ND_NO_INDEX)
                value_below[value] = true;
            if (tensor != ND_NO_INDEX)
                tensor_below[tensor] = true;
        }
    }
}

/* What a walk over the nodes marks: [n_tensors], the tensors beside it in nd_rerun and edge_needed. */
struct marks {
    bool *below, *needed, *tensor_needed;
};

/* Whether the node has to run: something that it makes depends on a change, or is needed and not given. */
static bool has_to_run(const struct nd_model *model, const struct nd_graph_node *node,
                       const struct nd_rerun *cut, const struct marks *marks, const bool *is_given)
{
    for (size_t i = 0; i < node->n_made; i++) {
        size_t value = model->graph.made[node->first_made + i], tensor = tensor_of(model, value);
        bool has_tensor = tensor != ND_NO_INDEX;
        if (value == ND_NO_INDEX)
            continue;
        bool is_needed = marks->needed[value] || (has_tensor && marks->tensor_needed[tensor]);
        if (marks->below[value] || (has_tensor && cut->is_below[tensor]) ||
            (is_needed && !(has_tensor && is_given[tensor])))
            return true;
    }
    return false;
}

/* Backward: what nodes that have to run read. */
static void mark_needed(const struct nd_model *model, const struct nd_rerun *cut, const struct marks *marks,
                        const bool *is_given)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t n = graph->n_nodes; n-- > 0;) {
        const struct nd_graph_node *node = &graph->nodes[n];
        if (!has_to_run(model, node, cut, marks, is_given))
            continue;
        for (size_t i = 0; i < node->n_uses; i++) {
            size_t value = graph->uses[node->first_use + i], tensor = tensor_of(model, value);
            if (value != ND_NO_INDEX)
                marks->needed[value] = true;
            if (tensor != ND_NO_INDEX)
                marks->tensor_needed[tensor] = true;
        }
    }
}

static enum nd_status make(struct nd_rerun *cut, const struct nd_model *model, const bool *is_given,
                           struct marks *marks, bool has_below, struct nd_error *err)
{
    size_t n_tensors = nd_model_n_tensors(model);
    bool has_all = marks->below != NULL && marks->needed != NULL && marks->tensor_needed != NULL;
    if (has_all && has_below)
        mark_below(model, marks->below, cut->is_below);
    if (has_all)
        mark_needed(model, cut, marks, is_given);
    for (size_t e = 0; e < n_tensors && has_all; e++) {
        cut->is_skipped[e] = !cut->is_below[e] && is_given[e];
        cut->is_ignored[e] = !cut->is_below[e] && !marks->tensor_needed[e];
    }
    ND_FREE_ALL(marks->below, marks->needed, marks->tensor_needed);
    return has_all ? ND_OK : nd_fail_memory(err);
}

static struct marks make_marks(const struct nd_model *model)
{
    const struct nd_graph *graph = &model->graph;
    return (struct marks){.below = nd_calloc(graph->n_tensors, sizeof(bool)),
                          .needed = nd_calloc(graph->n_tensors, sizeof(bool)),
                          .tensor_needed = nd_calloc(nd_model_n_tensors(model), sizeof(bool))};
}

enum nd_status nd_rerun_make(struct nd_rerun *cut, const struct nd_model *model, const bool *is_changed,
                             const bool *is_given, const bool *is_input_changed, struct nd_error *err)
{
    struct marks marks = make_marks(model);
    memcpy(cut->is_below, is_changed, nd_model_n_tensors(model) * sizeof *is_changed);
    for (size_t i = 0; i < model->n_inputs && is_input_changed != NULL && marks.below != NULL; i++) {
        size_t tensor = nd_names_find(&model->graph.names, model->inputs[i].name);
        if (tensor != ND_NO_INDEX)
            marks.below[tensor] = is_input_changed[i];
    }
    return make(cut, model, is_given, &marks, true, err);
}

enum nd_status nd_rerun_alone(struct nd_rerun *cut, const struct nd_model *model, const bool *is_wanted,
                              const bool *is_given, struct nd_error *err)
{
    struct marks marks = make_marks(model);
    memcpy(cut->is_below, is_wanted, nd_model_n_tensors(model) * sizeof *is_wanted);
    return make(cut, model, is_given, &marks, false, err);
}

/* Channels that the quantisation makes one value, as where boxes and scores share one scale: what is below half
 * a step becomes zero. docs/reference/diagnoses.md#quantisation has the criteria. */

/* All chosen. More channels are tokens or places. Values of a channel that are looked at; one of so many
 * channels is worth telling; the share of a channel's float values that are not its least one: a Relu makes
 * some channels nearly always 0, and nobody misses the rest. */
enum { MAX_CHANNELS = 4096, FEWEST_VALUES = 8, ONE_OF = 8 };
static const double fewest_moving = 0.5;

/* Of a Concat the axis along which it puts parts together, else axis 1 of images and the last of others. */
static int channel_axis(const struct nd_study *study, size_t step)
{
    const struct nd_model *model = study->plan->model;
    const struct nd_shape *shape = &study->plan->shapes[step];
    const struct nd_model_node *node = nd_model_tensor_operator(model, study->plan->steps[step].tensor);
    int64_t axis = shape->rank > 3 ? 1 : shape->rank - 1;
    if (node != NULL && strcmp(node->op_type, "Concat") == 0)
        axis = nd_onnx_attribute_i(model->graph.nodes[node - model->nodes].proto, "axis", axis);
    axis += axis < 0 ? shape->rank : 0;
    return axis >= 0 && axis < shape->rank ? (int)axis : -1;
}

enum nd_status nd_flat_channels_init(struct nd_study *study, size_t step, struct nd_error *err)
{
    const struct nd_shape *shape = &study->plan->shapes[step];
    struct nd_flat_channels *flats = &study->flats[step];
    int axis = channel_axis(study, step);
    if (axis < 0 || shape->dims[axis] < 2 || shape->dims[axis] > MAX_CHANNELS)
        return ND_OK;
    flats->n = (size_t)shape->dims[axis];
    flats->n_inner = nd_dims_product(shape, axis + 1, shape->rank);
    flats->flat = nd_calloc(study->n_samples * flats->n, sizeof *flats->flat);
    return flats->flat != NULL ? ND_OK : nd_fail_memory(err);
}

/* Looks at a sample of the step: real: of the quantised reference. */
static void flat_channels_take(const struct nd_study *study, size_t step, size_t sample,
                               const struct nd_array *values, const struct nd_array *real)
{
    const struct nd_flat_channels *flats = &study->flats[step];
    size_t block = flats->n * flats->n_inner, n_outer = block > 0 ? values->n / block : 0;
    for (size_t c = 0; c < flats->n && n_outer > 0; c++) {
        struct nd_flat_channel *flat = &flats->flat[sample * flats->n + c];
        size_t first = c * flats->n_inner, n_moving = 0;
        double least = HUGE_VAL;
        flat->value = (float)real->x[first];
        for (int pass = 0; pass < 2; pass++)
            for (size_t k = 0; k < n_outer * flats->n_inner; k++) {
                size_t i = k / flats->n_inner * block + first + k % flats->n_inner;
                if (real->x[i] != real->x[first])
                    flat->value = NAN;
                least = pass == 0 ? fmin(least, values->x[i]) : least;
                n_moving += pass == 1 && values->x[i] != least;
            }
        flat->moving = (float)n_moving / (float)(n_outer * flats->n_inner);
    }
}

static bool is_constant(const struct nd_study *study, const struct nd_flat_channels *flats, size_t c)
{
    double moving = 0;
    for (size_t k = 0; k < study->n_samples; k++) {
        moving += (double)flats->flat[k * flats->n + c].moving;
        if (!(flats->flat[k * flats->n + c].value == flats->flat[c].value)) /* NaN is none */
            return false;
    }
    return moving >= fewest_moving * (double)study->n_samples;
}

enum nd_status nd_flat_channels_say(const struct nd_study *study, size_t step, struct nd_error *err)
{
    const struct nd_flat_channels *flats = &study->flats[step];
    const struct nd_tensor *tensor = nd_plan_tensor(study->plan, step);
    struct nd_quantised_layer *layer = &study->out->layers[step];
    size_t first = SIZE_MAX, last = 0, n = 0, n_elements = 0;
    bool are_zero = true;
    for (size_t c = 0; c < flats->n && tensor->quant.n == 1; c++)
        if (is_constant(study, flats, c)) {
            first = first == SIZE_MAX ? c : first;
            last = c;
            n++;
            are_zero = are_zero && flats->flat[c].value == 0;
        }
    bool is_enough = nd_shape_n_elems(&study->plan->shapes[step], &n_elements, NULL) == ND_OK &&
                     n_elements / (flats->n + !flats->n) * study->n_samples >= FEWEST_VALUES;
    if (n == 0 || !is_enough || (n * ONE_OF < flats->n && !study->plan->steps[step].is_model_output))
        return ND_OK;
    struct nd_strbuf text = {0};
    if (last == first)
        nd_strbuf_printf(&text, "channel %zu is", first);
    else if (last - first + 1 == n)
        nd_strbuf_printf(&text, "channels %zu to %zu are", first, last);
    else
        nd_strbuf_printf(&text, "%zu channels from channel %zu on are", n, first);
    nd_strbuf_printf(&text,
                     " below %s of its scale %.4g, so %s %s; %zu of %zu channels %s constant where the "
                     "float model's are not",
                     are_zero ? "half a step" : "a step", (double)tensor->quant.scale[0],
                     n == 1 ? "it becomes" : "all of them become",
                     are_zero ? "0"
                     : n == 1 ? "one value"
                              : "one value each",
                     n, flats->n, n == 1 ? "is" : "are");
    layer->n_constant_channels = n;
    layer->constant_text = nd_strbuf_take(&text);
    return layer->constant_text != NULL ? ND_OK : nd_fail_memory(err);
}

/* The least and the greatest value of each channel between two layers. */

static struct nd_between *find_between(const struct nd_study *study, size_t step, size_t *n_channels)
{
    for (size_t p = 0; p < study->n_pairs; p++)
        for (size_t i = 0; i < study->pairs[p].n_between; i++)
            if (study->pairs[p].between[i].step == step) {
                *n_channels = study->pairs[p].n_channels;
                return &study->pairs[p].between[i];
            }
    return NULL;
}

/* Takes the least and the greatest value of each channel, if the step lies between two layers. Several samples
 * may be taken at once. values: of the float model. */
static void nd_pairs_take(const struct nd_study *study, size_t step, size_t sample,
                          const struct nd_array *values)
{
    size_t n = 0;
    const struct nd_between *between = find_between(study, step, &n);
    if (between == NULL || values->shape.rank < 2 || values->shape.dims[1] != (int64_t)n || values->n == 0)
        return;
    size_t inner = nd_dims_product(&values->shape, 2, values->shape.rank);
    double *low = between->low + sample * n, *high = between->high + sample * n;
    for (size_t c = 0; c < n; c++) {
        low[c] = HUGE_VAL;
        high[c] = -HUGE_VAL;
    }
    for (size_t start = 0, c = 0; start < values->n; start += inner, c = (c + 1) % n)
        for (size_t i = start; i < start + inner; i++) {
            low[c] = fmin(low[c], values->x[i]);
            high[c] = fmax(high[c], values->x[i]);
        }
}

/* What one layer introduces in one sample: sums over its elements. */

void nd_reals_before(const struct nd_exact_values *values, double *out)
{
    for (size_t i = 0; i < values->n && values->quick == NULL; i++)
        out[i] = nd_ratio_value(&values->v[i]);
    for (size_t first = 0; first < values->n && values->quick != NULL; first += ND_QUICK_BLOCK) {
        size_t left = values->n - first, n = left < ND_QUICK_BLOCK ? left : ND_QUICK_BLOCK;
        nd_quick_near(values->quick, first, n, out + first);
        for (size_t i = first; i < first + n; i++)
            if (isnan(out[i])) {
                const struct nd_ratio exact = nd_quick_exact(values->quick, i);
                out[i] = nd_ratio_value(&exact);
            }
    }
    size_t inner = nd_exact_inner(values->quant, values->shape, values->n), channel = 0;
    for (size_t start = 0; start < values->n; start += inner, channel = (channel + 1) % values->quant->n)
        for (size_t i = start; i < start + inner; i++)
            out[i] *= (double)values->quant->scale[channel];
}

static void add_element(struct nd_loss_sums *sums, double value, double real, double of_layer)
{
    double introduced = real - of_layer, passed_on = of_layer - value;
    sums->signal += value * value;
    sums->total += (real - value) * (real - value);
    sums->introduced += introduced * introduced;
    sums->passed_on += passed_on * passed_on;
    sums->low = value < sums->low ? value : sums->low;
    sums->high = value > sums->high ? value : sums->high;
}

/* Real values of the first and the last quantised value of a channel, moved outwards by a part of a step. */
static struct nd_range reach_of(const struct nd_quant *quant, enum nd_dtype dtype, size_t channel, double part)
{
    double low, high, scale = (double)quant->scale[channel], zero = (double)quant->zero_point[channel];
    nd_qvalue_range(dtype, &low, &high);
    return (struct nd_range){(low - zero - part) * scale, (high - zero + part) * scale};
}

/* Quantisers leave a Relu out where the range of the output begins at 0: then clipping is what the float layer
 * does, and no loss. So what is clipped counts only as far as the float layer's value lies beyond the quantised
 * values. */
static void stop_at_qvalues(const struct nd_loss_run *run, size_t step, const double *of_layer, double *exact)
{
    const struct nd_quant *quant = nd_loss_quant(run, step);
    enum nd_dtype dtype = nd_plan_tensor(run->study->plan, step)->dtype;
    size_t inner = nd_exact_inner(quant, &run->real.shape, run->real.n), channel = 0;
    for (size_t start = 0; start < run->real.n; start += inner, channel++) {
        const struct nd_range qvalues = reach_of(quant, dtype, channel % quant->n, 0);
        for (size_t i = start; i < start + inner; i++) { /* as fmin and fmax: NaN of one counts as the other */
            double low = of_layer[i] < qvalues.low ? of_layer[i] : qvalues.low;
            double high = of_layer[i] > qvalues.high ? of_layer[i] : qvalues.high;
            double below = exact[i] < high ? exact[i] : high;
            exact[i] = below > low ? below : low;
        }
    }
}

/* By channel of a layer with weights: what its constants add. */
static void add_shifts(const struct nd_loss_run *run, size_t step, const double *exact, const double *layer)
{
    const struct nd_loss_channels *channels = &run->study->channels[step];
    size_t channel = 0;
    for (size_t start = 0; channels->n > 0 && start < run->real.n; start += channels->n_inner) {
        double *shift = &channels->shift[run->sample * channels->n + channel];
        for (size_t i = start; i < start + channels->n_inner; i++)
            *shift += exact[i] - layer[i];
        channel = (channel + 1) % channels->n;
    }
}

/* What became of a value between the layer and its quantised values. */
static struct nd_loss_sums add_parts(const struct nd_loss_run *run, size_t step, const double *layer,
                                     struct nd_loss_sums sums)
{
    const struct nd_array *real = &run->real;
    struct nd_array *before = &run->before[step];
    const struct nd_quant *quant = nd_loss_quant(run, step);
    enum nd_dtype dtype = nd_plan_tensor(run->study->plan, step)->dtype;
    const double *exact = before->shape.rank >= 0 && before->n == real->n ? before->x : layer;
    bool is_qvalue = quant->n > 0 && nd_dtype_is_of_qvalues(dtype);
    size_t inner = nd_exact_inner(quant, &real->shape, real->n), channel = 0;
    if (is_qvalue && exact != layer)
        stop_at_qvalues(run, step, layer, before->x);
    add_shifts(run, step, exact, layer);
    for (size_t start = 0; start < real->n; start += inner, channel++) {
        struct nd_range reach = {-HUGE_VAL, HUGE_VAL};
        if (is_qvalue)
            reach = reach_of(quant, dtype, channel % quant->n, 0.5);
        for (size_t i = start; i < start + inner; i++) {
            double rounding = real->x[i] - exact[i], value = run->values[step].x[i];
            bool is_clipped = exact[i] < reach.low || exact[i] > reach.high;
            sums.n_clipped += value < reach.low || value > reach.high;
            sums.constants += (exact[i] - layer[i]) * (exact[i] - layer[i]);
            if (is_clipped)
                sums.clipping += rounding * rounding;
            else
                sums.rounding += rounding * rounding;
        }
    }
    return sums;
}

/* Some of the sample's values into their own place: spread over the tensor, not in step with its channels. */
static void keep_values(const struct nd_loss_run *run, size_t step, const struct nd_array *layer)
{
    const double golden = 0.6180339887498949;
    struct nd_loss_values *kept = &run->study->values[step];
    size_t first = run->sample * kept->n_per_sample;
    for (size_t i = 0; i < kept->n_per_sample && kept->values != NULL; i++) {
        double jitter = (double)i * golden;
        double at = ((double)i + jitter - floor(jitter)) * (double)layer->n / (double)kept->n_per_sample;
        size_t k = layer->n == kept->n_per_sample ? i : (size_t)at;
        k = k < layer->n ? k : layer->n - 1;
        kept->values[first + i] = (float)run->values[step].x[k];
        kept->errors[first + i] = (float)(run->real.x[k] - layer->x[k]);
    }
}

/* Fills the sums of the step, and keeps some of its values. layer: what the float model's layer gives for the
 * reference's inputs; run->real has the reference. */
static void nd_add_losses(const struct nd_loss_run *run, size_t step, const struct nd_array *layer)
{
    struct nd_loss_sums sums = {.is_known = true, .n = layer->n, .low = HUGE_VAL, .high = -HUGE_VAL};
    const double *values = run->values[step].x, *real = run->real.x;
    for (size_t i = 0; i < layer->n; i++)
        add_element(&sums, values[i], real[i], layer->x[i]);
    run->sums[step] = add_parts(run, step, layer->x, sums);
    keep_values(run, step, layer);
    nd_pairs_take(run->study, step, run->sample, &run->values[step]);
    flat_channels_take(run->study, step, run->sample, &run->values[step], &run->real);
}

/* The quantised reference of a sample, and the values of a step before they were rounded. */

/* ---- the whole ---- */

/* Copies; forgets. Room of the same size is used again. ND_ERR_MEMORY: `to` is empty. */
static enum nd_status nd_loss_keep(const struct nd_array *values, struct nd_array *to, struct nd_error *err)
{
    if (to->shape.rank < 0)
        *to = (struct nd_array){0};
    if (to->n == values->n && to->x != NULL) {
        memcpy(to->x, values->x, values->n * sizeof *values->x);
        to->shape = values->shape;
        to->dtype = values->dtype;
        return ND_OK;
    }
    nd_array_deinit(to);
    enum nd_status status = nd_array_copy(values, to, err);
    if (status != ND_OK)
        *to = nd_no_array();
    return status;
}

/* Rounds as the reference does, and keeps what was rounded. */
static enum nd_status round_reference(void *context, const struct nd_exact_values *values,
                                      struct nd_array *qvalues, struct nd_error *err)
{
    struct nd_loss_run *run = context;
    size_t step = run->study->plan->step_of_tensor[values->tensor];
    nd_round_half_even(values, qvalues);
    if (step == SIZE_MAX || run->sums == NULL || !run->study->holds_before || !nd_is_matched(run->study, step))
        return ND_OK;
    ND_TRY(nd_loss_keep(qvalues, &run->before[step], err));
    run->before[step].dtype = ND_DTYPE_F32;
    nd_reals_before(values, run->before[step].x);
    return ND_OK;
}

static enum nd_status found_reference(void *context, size_t tensor, const struct nd_array *values,
                                      enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct nd_loss_run *run = context;
    size_t step = run->study->plan->step_of_tensor[tensor];
    return nd_pack(values, &run->reference[step], err);
}

static void nd_loss_forget(struct nd_array *array)
{
    if (array->shape.rank >= 0)
        nd_array_deinit(array);
    *array = nd_no_array();
}

/* The sample through the quantised model, where the study does not have it. */
static enum nd_status nd_loss_run_reference(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_plan *plan = study->plan;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_reference,
                                             .takes_quick = true,
                                             .missed = nd_exact_let_go};
    bool is_kept = study->references != NULL;
    run->reference = is_kept ? study->references + run->sample * plan->n_steps : run->own_reference;
    if (is_kept && study->has_reference[run->sample])
        return ND_OK;
    for (size_t s = 0; s < plan->n_steps; s++) {
        run->reference[s].tensor_view.shape.rank = -1;
        nd_loss_forget(&run->before[s]);
    }
    enum nd_status status = nd_exact_graph_run(plan->graph, nd_study_inputs(study, run->sample), &options,
                                               found_reference, run, err);
    if (is_kept && status == ND_OK)
        study->has_reference[run->sample] = true;
    return status;
}

/* ---- a step before it was rounded ---- */

static enum nd_status round_alone(void *context, const struct nd_exact_values *values, struct nd_array *qvalues,
                                  struct nd_error *err)
{
    (void)err;
    struct nd_loss_run *run = context;
    size_t step = run->study->plan->step_of_tensor[values->tensor];
    nd_round_half_even(values, qvalues);
    run->before[step] = *qvalues;
    run->before[step].dtype = ND_DTYPE_F32;
    run->before[step].x = run->before_room;
    nd_reals_before(values, run->before_room);
    return ND_OK;
}

static enum nd_status found_alone(void *context, size_t tensor, const struct nd_array *values,
                                  enum nd_exact_method method, struct nd_error *err)
{
    (void)context;
    (void)tensor;
    (void)values;
    (void)method;
    (void)err;
    return ND_OK;
}

static void give_reference(void *context, size_t tensor, double *out)
{
    const struct nd_loss_run *run = context;
    nd_unpack(&run->reference[run->study->plan->step_of_tensor[tensor]], out);
}

/* Fills run->before[step], which may stay empty, until it is forgotten. */
static enum nd_status nd_loss_find_before(struct nd_loss_run *run, size_t step, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_plan *plan = study->plan;
    if (study->holds_before)
        return ND_OK;
    for (size_t e = 0; e < nd_model_n_tensors(plan->model); e++) {
        run->alone_given[e] = nd_no_array();
        run->is_alone_given[e] = false;
        run->is_alone[e] = e == plan->steps[step].tensor;
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t tensor = plan->steps[s].tensor;
        if (s == step || run->reference[s].tensor_view.shape.rank < 0)
            continue;
        run->alone_given[tensor] = run->reference[s].tensor_view;
        run->is_alone_given[tensor] = true;
    }
    if (nd_rerun_alone(&run->alone, plan->model, run->is_alone, run->is_alone_given, err) != ND_OK)
        return ND_ERR_MEMORY;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_alone,
                                             .takes_quick = true,
                                             .given = run->alone_given,
                                             .give = give_reference,
                                             .is_skipped = run->alone.is_skipped,
                                             .is_ignored = run->alone.is_ignored,
                                             .missed = nd_exact_let_go};
    return nd_exact_graph_run(plan->graph, nd_study_inputs(study, run->sample), &options, found_alone, run,
                              err);
}

/* ---- dequantised ---- */

/* out[n]: the reference of the step, dequantised; its type. */
static void nd_loss_unpack(const struct nd_loss_run *run, size_t step, double *out)
{
    const struct nd_array *tensor_view = &run->reference[step].tensor_view;
    const struct nd_quant *quant = nd_loss_quant(run, step);
    nd_unpack(&run->reference[step], out);
    size_t inner = nd_exact_inner(quant, &tensor_view->shape, tensor_view->n), channel = 0;
    for (size_t start = 0; start < tensor_view->n && quant->n > 0; start += inner) {
        double zero = (double)quant->zero_point[channel], scale = (double)quant->scale[channel];
        for (size_t i = start; i < start + inner; i++)
            out[i] = (out[i] - zero) * scale;
        channel = (channel + 1) % quant->n;
    }
}

/* Operators make integers of integers: what is dequantised is none. */
static enum nd_dtype nd_loss_real_dtype(const struct nd_loss_run *run, size_t step)
{
    return nd_loss_quant(run, step)->n > 0 ? ND_DTYPE_F32 : run->reference[step].tensor_view.dtype;
}

const struct nd_array *nd_loss_real(struct nd_loss_run *run, size_t step)
{
    double *x = run->real.x;
    run->real = run->reference[step].tensor_view;
    run->real.x = x;
    run->real.dtype = nd_loss_real_dtype(run, step);
    nd_loss_unpack(run, step, x);
    return &run->real;
}

/* ---- room ---- */

static struct nd_array *no_arrays(size_t n)
{
    struct nd_array *arrays = nd_calloc(n, sizeof *arrays);
    for (size_t i = 0; arrays != NULL && i < n; i++)
        arrays[i] = nd_no_array();
    return arrays;
}

static void free_arrays(struct nd_array *arrays, size_t n)
{
    for (size_t i = 0; arrays != NULL && i < n; i++)
        if (arrays[i].shape.rank >= 0)
            nd_array_deinit(&arrays[i]);
    free(arrays);
}

/* Elements of the largest step. */
static size_t largest_of(const struct nd_plan *plan)
{
    size_t most = 0;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t n = 0;
        if (nd_shape_n_elems(&plan->shapes[s], &n, NULL) == ND_OK && n > most)
            most = n;
    }
    return most;
}

enum nd_status nd_loss_run_init(struct nd_loss_run *run, const struct nd_study *study, struct nd_error *err)
{
    size_t n = study->plan->n_steps, n_tensors = nd_model_n_tensors(study->plan->float_model),
           n_own_tensors = nd_model_n_tensors(study->plan->model);
    *run = (struct nd_loss_run){.study = study,
                                .own_reference = nd_calloc(n, sizeof *run->own_reference),
                                .before = no_arrays(n),
                                .values = no_arrays(n),
                                .introduced = no_arrays(n),
                                .given = no_arrays(nd_model_n_tensors(study->plan->float_model)),
                                .float_inputs = no_arrays(study->n_float_inputs),
                                .real_inputs = nd_calloc(study->n_float_inputs, sizeof *run->real_inputs),
                                .alone_given = nd_calloc(n_own_tensors, sizeof *run->alone_given),
                                .is_alone = nd_calloc(n_own_tensors, sizeof *run->is_alone),
                                .is_alone_given = nd_calloc(n_own_tensors, sizeof *run->is_alone_given),
                                .is_given = nd_calloc(n_tensors, sizeof *run->is_given),
                                .is_asked = nd_calloc(n_tensors, sizeof *run->is_asked)};
    size_t largest = largest_of(study->plan);
    run->real.x = nd_tensor_room(largest * sizeof *run->real.x);
    run->before_room = study->holds_before ? NULL : nd_tensor_room(largest * sizeof *run->before_room);
    run->reference = run->own_reference;
    for (size_t s = 0; s < n && run->reference != NULL; s++)
        run->reference[s].tensor_view = nd_no_array();
    bool has_all = run->reference != NULL && run->before != NULL && run->values != NULL &&
                   run->introduced != NULL && run->given != NULL && run->float_inputs != NULL &&
                   run->real_inputs != NULL && run->alone_given != NULL && run->real.x != NULL &&
                   (study->holds_before || run->before_room != NULL) && run->is_given != NULL &&
                   run->is_asked != NULL && run->is_alone != NULL && run->is_alone_given != NULL;
    ND_TRY(has_all ? nd_rerun_init(&run->cut, study->plan->float_model, err) : nd_fail_memory(err));
    return nd_rerun_init(&run->alone, study->plan->model, err);
}

void nd_loss_run_deinit(struct nd_loss_run *run)
{
    if (run->study == NULL)
        return;
    size_t n = run->study->plan->n_steps;
    for (size_t s = 0; s < n && run->own_reference != NULL; s++)
        nd_packed_deinit(&run->own_reference[s]);
    for (size_t i = 0; i < run->study->n_float_inputs && run->real_inputs != NULL; i++)
        nd_array_deinit(&run->real_inputs[i]);
    nd_array_deinit(&run->real);
    ND_FREE_ALL(run->before_room, run->own_reference);
    free_arrays(run->before, n);
    free_arrays(run->values, n);
    free_arrays(run->introduced, n);
    nd_rerun_deinit(&run->cut);
    nd_rerun_deinit(&run->alone);
    free(run->alone_given);                                                                    /* views */
    ND_FREE_ALL(run->is_alone, run->is_alone_given, run->is_given, run->is_asked, run->given); /* views */
    ND_FREE_ALL(run->float_inputs, run->real_inputs);
    run->study = NULL;
}

/* ---- the float model ---- */

static enum nd_status found_float(void *context, size_t tensor, const struct nd_array *values,
                                  enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct nd_loss_run *run = context;
    size_t step = run->study->step_of_float[tensor];
    return step != SIZE_MAX ? nd_loss_keep(values, &run->values[step], err) : ND_OK;
}

/* What the study has kept of the float model's outputs. */
static enum nd_status take_outputs(struct nd_loss_run *run, struct nd_error *err)
{
    size_t n_steps = run->study->plan->n_steps;
    const struct nd_array *kept = run->study->outputs + run->sample * n_steps;
    for (size_t s = 0; s < n_steps; s++)
        if (kept[s].n > 0)
            ND_TRY(nd_loss_keep(&kept[s], &run->values[s], err));
    return ND_OK;
}

static enum nd_status run_float(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_array *inputs = nd_study_inputs(study, run->sample);
    const struct nd_exact_options options = {.struct_size = sizeof options, .missed = nd_exact_let_go};
    for (size_t i = 0; i < study->n_float_inputs; i++)
        run->float_inputs[i] = inputs[study->plan->float_inputs[i]];
    for (size_t s = 0; s < study->plan->n_steps; s++) {
        nd_loss_forget(&run->values[s]);
        if (study->float_input[s] != SIZE_MAX)
            ND_TRY(nd_loss_keep(&inputs[study->float_input[s]], &run->values[s], err));
    }
    if (run->takes_outputs)
        return take_outputs(run, err);
    return nd_exact_graph_run(study->plan->float_graph, run->float_inputs, &options, found_float, run, err);
}

/* ---- its layers, fed with the reference ---- */

static bool is_whole(const struct nd_loss_run *run, size_t step)
{
    const struct nd_array *tensor_view = &run->reference[step].tensor_view, *values = &run->values[step];
    return tensor_view->shape.rank >= 0 && values->shape.rank >= 0 && values->n == tensor_view->n;
}

/* layer: what the float model's layer gives for the reference's inputs. */
static enum nd_status take_layer(struct nd_loss_run *run, size_t step, const struct nd_array *layer,
                                 struct nd_error *err)
{
    if (!is_whole(run, step) || run->values[step].n != layer->n)
        return ND_OK;
    const double *real = nd_loss_real(run, step)->x;
    if (run->is_wanted != NULL && run->is_wanted[step]) {
        ND_TRY(nd_loss_keep(&run->real, &run->introduced[step], err));
        for (size_t i = 0; i < layer->n; i++)
            run->introduced[step].x[i] = real[i] - layer->x[i];
    }
    if (run->sums == NULL)
        return ND_OK;
    enum nd_status status = nd_loss_find_before(run, step, err);
    if (status == ND_OK)
        nd_add_losses(run, step, layer);
    if (!run->study->holds_before)
        run->before[step] = nd_no_array();
    return status;
}

static enum nd_status found_layer(void *context, size_t tensor, const struct nd_array *values,
                                  enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct nd_loss_run *run = context;
    size_t step = run->study->step_of_float[tensor];
    return step != SIZE_MAX ? take_layer(run, step, values, err) : ND_OK;
}

static void give_real(void *context, size_t tensor, double *out)
{
    const struct nd_loss_run *run = context;
    nd_loss_unpack(run, run->study->step_of_float[tensor], out);
}

/* The inputs of the float model as the quantised one reads them, and what their quantisers introduce. */
static enum nd_status quantise_inputs(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_array *inputs = nd_study_inputs(study, run->sample);
    for (size_t s = 0; s < study->plan->n_steps; s++) {
        size_t input = study->float_input[s];
        if (input == SIZE_MAX || !is_whole(run, s))
            continue;
        for (size_t i = 0; i < study->n_float_inputs; i++) {
            if (study->plan->float_inputs[i] != input)
                continue;
            ND_TRY(nd_array_copy(nd_loss_real(run, s), &run->real_inputs[i], err));
            run->float_inputs[i] = run->real_inputs[i];
        }
        ND_TRY(take_layer(run, s, &inputs[input], err));
    }
    return ND_OK;
}

/* Where sums are not wanted, only the layers that are. */
static enum nd_status choose_layers(struct nd_loss_run *run, struct nd_exact_options *options,
                                    struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_model *model = study->plan->float_model;
    if (run->sums != NULL || run->is_wanted == NULL)
        return ND_OK;
    memset(run->is_asked, 0, nd_model_n_tensors(model) * sizeof *run->is_asked);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        run->is_given[e] = run->given[e].shape.rank >= 0;
    for (size_t s = 0; s < study->plan->n_steps; s++)
        if (study->float_tensor[s] != SIZE_MAX && run->is_wanted[s])
            run->is_asked[study->float_tensor[s]] = true;
    options->is_skipped = run->cut.is_skipped;
    options->is_ignored = run->cut.is_ignored;
    return nd_rerun_alone(&run->cut, model, run->is_asked, run->is_given, err);
}

static enum nd_status run_layers(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    struct nd_exact_options options = {
        .struct_size = sizeof options, .given = run->given, .give = give_real, .missed = nd_exact_let_go};
    for (size_t s = 0; s < study->plan->n_steps; s++) {
        size_t tensor = study->float_tensor[s];
        if (tensor == SIZE_MAX)
            continue;
        run->given[tensor] = nd_no_array();
        if (is_whole(run, s))
            run->given[tensor] = (struct nd_array){
                .shape = run->values[s].shape, .n = run->values[s].n, .dtype = nd_loss_real_dtype(run, s)};
    }
    ND_TRY(quantise_inputs(run, err));
    ND_TRY(choose_layers(run, &options, err));
    return nd_exact_graph_run(study->plan->float_graph, run->float_inputs, &options, found_layer, run, err);
}

enum nd_status nd_loss_run_sample(struct nd_loss_run *run, size_t sample, bool with_errors,
                                  struct nd_error *err)
{
    run->sample = sample;
    enum nd_status status = nd_loss_run_reference(run, err);
    if (status == ND_OK)
        status = run_float(run, err);
    for (size_t s = 0; s < run->study->plan->n_steps; s++)
        nd_loss_forget(&run->introduced[s]);
    return status == ND_OK && with_errors ? run_layers(run, err) : status;
}
