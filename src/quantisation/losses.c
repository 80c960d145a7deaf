/* A sample through three runs: the quantised reference, the float model, and the float model's layers fed with
 * the inputs that they have in the quantised reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "eval/quick.h"
#include "quantisation/study.h"
#include "replay/reader.h"

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

enum nd_status nd_loss_run_init(struct nd_loss_run *run, const struct nd_study *study, struct nd_error *err)
{
    size_t n = study->plan->n_steps;
    *run = (struct nd_loss_run){.study = study,
                                .reference = no_arrays(n),
                                .real = no_arrays(n),
                                .before = no_arrays(n),
                                .values = no_arrays(n),
                                .introduced = no_arrays(n),
                                .given = no_arrays(nd_model_n_edges(study->plan->float_model)),
                                .float_inputs = no_arrays(study->n_float_inputs)};
    bool has_all = run->reference != NULL && run->real != NULL && run->before != NULL && run->values != NULL &&
                   run->introduced != NULL && run->given != NULL && run->float_inputs != NULL;
    return has_all ? ND_OK : nd_fail_memory(err);
}

void nd_loss_run_deinit(struct nd_loss_run *run)
{
    if (run->study == NULL)
        return;
    size_t n = run->study->plan->n_steps;
    free_arrays(run->reference, n);
    free_arrays(run->real, n);
    free_arrays(run->before, n);
    free_arrays(run->values, n);
    free_arrays(run->introduced, n);
    free(run->given); /* views */
    free(run->float_inputs);
    run->study = NULL;
}

static enum nd_status keep(const struct nd_array *values, struct nd_array *to, struct nd_error *err)
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

static void forget(struct nd_array *array)
{
    if (array->shape.rank >= 0)
        nd_array_deinit(array);
    *array = nd_no_array();
}

/* ---- the quantised reference ---- */

static const struct nd_quant *quant_of(const struct nd_loss_run *run, size_t step)
{
    return &nd_plan_edge(run->study->plan, step)->quant;
}

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

/* Rounds as the reference does, and keeps what was rounded. */
static enum nd_status round_reference(void *context, const struct nd_exact_values *values,
                                      struct nd_array *codes, struct nd_error *err)
{
    struct nd_loss_run *run = context;
    size_t step = run->study->plan->step_of_edge[values->edge];
    nd_round_half_even(values, codes);
    if (step == SIZE_MAX || run->sums == NULL || !nd_is_matched(run->study, step))
        return ND_OK;
    enum nd_status status = keep(codes, &run->before[step], err);
    if (status == ND_OK)
        run->before[step].dtype = ND_DTYPE_F32;
    if (status == ND_OK)
        nd_reals_before(values, run->before[step].x);
    return status;
}

static enum nd_status found_reference(void *context, size_t edge, const struct nd_array *values,
                                      enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    struct nd_loss_run *run = context;
    size_t step = run->study->plan->step_of_edge[edge];
    const struct nd_quant *quant = quant_of(run, step);
    enum nd_status status = keep(values, &run->reference[step], err);
    if (status == ND_OK)
        status = keep(values, &run->real[step], err);
    if (status != ND_OK || quant->n == 0)
        return status;
    size_t inner = nd_exact_inner(quant, &values->shape, values->n), channel = 0;
    run->real[step].dtype = ND_DTYPE_F32; /* operators make integers of integers */
    for (size_t start = 0; start < values->n; start += inner, channel = (channel + 1) % quant->n) {
        double zero = (double)quant->zero_point[channel], scale = (double)quant->scale[channel];
        for (size_t i = start; i < start + inner; i++)
            run->real[step].x[i] = (values->x[i] - zero) * scale;
    }
    return ND_OK;
}

static enum nd_status run_reference(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_reference,
                                             .takes_quick = true,
                                             .missed = nd_exact_let_go};
    for (size_t s = 0; s < study->plan->n_steps; s++) {
        forget(&run->reference[s]);
        forget(&run->before[s]);
    }
    return nd_exact_graph_run(study->plan->graph, nd_study_inputs(study, run->sample), &options,
                              found_reference, run, err);
}

/* ---- the float model ---- */

static enum nd_status found_float(void *context, size_t edge, const struct nd_array *values,
                                  enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    struct nd_loss_run *run = context;
    size_t step = run->study->step_of_float[edge];
    return step != SIZE_MAX ? keep(values, &run->values[step], err) : ND_OK;
}

static enum nd_status run_float(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_array *inputs = nd_study_inputs(study, run->sample);
    const struct nd_exact_options options = {.struct_size = sizeof options, .missed = nd_exact_let_go};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < study->n_float_inputs; i++)
        run->float_inputs[i] = inputs[study->plan->float_inputs[i]];
    for (size_t s = 0; s < study->plan->n_steps && status == ND_OK; s++) {
        forget(&run->values[s]);
        if (study->float_input[s] != SIZE_MAX)
            status = keep(&inputs[study->float_input[s]], &run->values[s], err);
    }
    if (status == ND_OK)
        status =
            nd_exact_graph_run(study->plan->float_graph, run->float_inputs, &options, found_float, run, err);
    return status;
}

/* ---- its layers, fed with the reference ---- */

static bool is_whole(const struct nd_loss_run *run, size_t step, size_t n)
{
    return run->reference[step].shape.rank >= 0 && run->values[step].shape.rank >= 0 &&
           run->values[step].n == n && run->real[step].n == n;
}

static void add_element(struct nd_loss_sums *sums, double value, double real, double layer)
{
    double introduced = real - layer, passed_on = layer - value;
    sums->signal += value * value;
    sums->total += (real - value) * (real - value);
    sums->introduced += introduced * introduced;
    sums->passed_on += passed_on * passed_on;
    sums->low = value < sums->low ? value : sums->low;
    sums->high = value > sums->high ? value : sums->high;
}

/* Real values that the codes of a channel reach, half a step beyond them included. */
static struct nd_range reach_of(const struct nd_quant *quant, enum nd_dtype dtype, size_t channel)
{
    double low, high, scale = (double)quant->scale[channel], zero = (double)quant->zero_point[channel];
    nd_code_range(dtype, &low, &high);
    return (struct nd_range){(low - zero - 0.5) * scale, (high - zero + 0.5) * scale};
}

/* By channel of a layer with weights: what its constants add. */
static void add_shifts(const struct nd_loss_run *run, size_t step, const double *exact, const double *layer)
{
    const struct nd_loss_channels *channels = &run->study->channels[step];
    size_t channel = 0;
    for (size_t start = 0; channels->n > 0 && start < run->real[step].n; start += channels->n_inner) {
        double *shift = &channels->shift[run->sample * channels->n + channel];
        for (size_t i = start; i < start + channels->n_inner; i++)
            *shift += exact[i] - layer[i];
        channel = (channel + 1) % channels->n;
    }
}

/* What became of a value between the layer and its codes. */
static struct nd_loss_sums add_parts(const struct nd_loss_run *run, size_t step, const double *layer,
                                     struct nd_loss_sums sums)
{
    const struct nd_array *before = &run->before[step], *real = &run->real[step];
    const struct nd_quant *quant = quant_of(run, step);
    enum nd_dtype dtype = nd_plan_edge(run->study->plan, step)->dtype;
    const double *exact = before->shape.rank >= 0 && before->n == real->n ? before->x : layer;
    bool is_code = quant->n > 0 && nd_dtype_is_integer(dtype) && nd_dtype_size_bytes(dtype) <= 4;
    size_t inner = nd_exact_inner(quant, &real->shape, real->n), channel = 0;
    add_shifts(run, step, exact, layer);
    for (size_t start = 0; start < real->n; start += inner, channel++) {
        struct nd_range reach = {-HUGE_VAL, HUGE_VAL};
        if (is_code)
            reach = reach_of(quant, dtype, channel % quant->n);
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

/* Some of the sample's values into their own place: spread over the tensor, but not in step with its channels.
 */
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
        kept->errors[first + i] = (float)(run->real[step].x[k] - layer->x[k]);
    }
}

/* layer: what the float model's layer gives for the reference's inputs. */
static enum nd_status take_layer(struct nd_loss_run *run, size_t step, const struct nd_array *layer,
                                 struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (!is_whole(run, step, layer->n))
        return ND_OK;
    if (run->is_wanted != NULL && run->is_wanted[step])
        status = keep(&run->real[step], &run->introduced[step], err);
    for (size_t i = 0; i < layer->n && status == ND_OK && run->is_wanted != NULL && run->is_wanted[step]; i++)
        run->introduced[step].x[i] = run->real[step].x[i] - layer->x[i];
    if (run->sums == NULL || status != ND_OK)
        return status;
    struct nd_loss_sums sums = {.is_known = true, .n = layer->n, .low = HUGE_VAL, .high = -HUGE_VAL};
    const double *values = run->values[step].x, *real = run->real[step].x;
    for (size_t i = 0; i < layer->n; i++)
        add_element(&sums, values[i], real[i], layer->x[i]);
    run->sums[step] = add_parts(run, step, layer->x, sums);
    keep_values(run, step, layer);
    return status;
}

static enum nd_status found_layer(void *context, size_t edge, const struct nd_array *values,
                                  enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    struct nd_loss_run *run = context;
    size_t step = run->study->step_of_float[edge];
    return step != SIZE_MAX ? take_layer(run, step, values, err) : ND_OK;
}

static enum nd_status run_layers(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .given = run->given, .missed = nd_exact_let_go};
    const struct nd_array *inputs = nd_study_inputs(study, run->sample);
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < study->plan->n_steps && status == ND_OK; s++) {
        size_t edge = study->float_edge[s], input = study->float_input[s];
        if (edge != SIZE_MAX && is_whole(run, s, run->real[s].n)) {
            run->given[edge] = run->real[s];
            run->given[edge].shape = run->values[s].shape;
        } else if (edge != SIZE_MAX) {
            run->given[edge] = nd_no_array();
        }
        if (input == SIZE_MAX || !is_whole(run, s, run->real[s].n))
            continue;
        for (size_t i = 0; i < study->n_float_inputs; i++)
            if (study->plan->float_inputs[i] == input)
                run->float_inputs[i] = run->real[s];
        status = take_layer(run, s, &inputs[input], err);
    }
    return status == ND_OK ? nd_exact_graph_run(study->plan->float_graph, run->float_inputs, &options,
                                                found_layer, run, err)
                           : status;
}

enum nd_status nd_loss_run_sample(struct nd_loss_run *run, size_t sample, bool with_errors,
                                  struct nd_error *err)
{
    run->sample = sample;
    enum nd_status status = run_reference(run, err);
    if (status == ND_OK)
        status = run_float(run, err);
    for (size_t s = 0; s < run->study->plan->n_steps; s++)
        forget(&run->introduced[s]);
    return status == ND_OK && with_errors ? run_layers(run, err) : status;
}

/* ---- all samples ---- */

struct team {
    struct nd_study *study;
    struct nd_loss_run *runs; /* one for each worker */
};

static enum nd_status measure_sample(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct team *team = context;
    struct nd_loss_run *run = &team->runs[worker];
    enum nd_status status = run->study == NULL ? nd_loss_run_init(run, team->study, err) : ND_OK;
    run->sums = team->study->sums + task * team->study->plan->n_steps;
    return status == ND_OK ? nd_loss_run_sample(run, task, true, err) : status;
}

enum nd_status nd_measure_losses(struct nd_study *study, struct nd_error *err)
{
    struct team team = {study, nd_calloc(study->n_threads, sizeof *team.runs)};
    if (team.runs == NULL)
        return nd_fail_memory(err);
    struct nd_error local = {0};
    enum nd_status status = nd_parallel_for(study->n_threads, study->n_samples, measure_sample, &team, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    for (size_t i = 0; i < study->n_threads; i++)
        nd_loss_run_deinit(&team.runs[i]);
    free(team.runs);
    return status;
}
