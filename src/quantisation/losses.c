/* A sample through three runs: the quantised reference, the float model, and the float model's layers fed with
 * the inputs that they have in the quantised reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "quantisation/study.h"
#include "explain/plan/reader.h"

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
    size_t n = study->plan->n_steps, n_edges = nd_model_n_edges(study->plan->float_model),
           n_own_edges = nd_model_n_edges(study->plan->model);
    *run = (struct nd_loss_run){.study = study,
                                .own_reference = nd_calloc(n, sizeof *run->own_reference),
                                .before = no_arrays(n),
                                .values = no_arrays(n),
                                .introduced = no_arrays(n),
                                .given = no_arrays(nd_model_n_edges(study->plan->float_model)),
                                .float_inputs = no_arrays(study->n_float_inputs),
                                .real_inputs = nd_calloc(study->n_float_inputs, sizeof *run->real_inputs),
                                .alone_given = nd_calloc(n_own_edges, sizeof *run->alone_given),
                                .is_alone = nd_calloc(n_own_edges, sizeof *run->is_alone),
                                .is_alone_given = nd_calloc(n_own_edges, sizeof *run->is_alone_given),
                                .is_given = nd_calloc(n_edges, sizeof *run->is_given),
                                .is_asked = nd_calloc(n_edges, sizeof *run->is_asked)};
    size_t largest = largest_of(study->plan);
    run->real.x = nd_tensor_room(largest * sizeof *run->real.x);
    run->before_room = study->holds_before ? NULL : nd_tensor_room(largest * sizeof *run->before_room);
    run->reference = run->own_reference;
    for (size_t s = 0; s < n && run->reference != NULL; s++)
        run->reference[s].husk = nd_no_array();
    bool has_all = run->reference != NULL && run->before != NULL && run->values != NULL &&
                   run->introduced != NULL && run->given != NULL && run->float_inputs != NULL &&
                   run->real_inputs != NULL && run->alone_given != NULL && run->real.x != NULL &&
                   (study->holds_before || run->before_room != NULL) && run->is_given != NULL &&
                   run->is_asked != NULL && run->is_alone != NULL && run->is_alone_given != NULL;
    enum nd_status status =
        has_all ? nd_rerun_init(&run->cut, study->plan->float_model, err) : nd_fail_memory(err);
    return status == ND_OK ? nd_rerun_init(&run->alone, study->plan->model, err) : status;
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
    free(run->before_room);
    free(run->own_reference);
    free_arrays(run->before, n);
    free_arrays(run->values, n);
    free_arrays(run->introduced, n);
    nd_rerun_deinit(&run->cut);
    nd_rerun_deinit(&run->alone);
    free(run->alone_given); /* views */
    free(run->is_alone);
    free(run->is_alone_given);
    free(run->is_given);
    free(run->is_asked);
    free(run->given); /* views */
    free(run->float_inputs);
    free(run->real_inputs);
    run->study = NULL;
}

enum nd_status nd_loss_keep(const struct nd_array *values, struct nd_array *to, struct nd_error *err)
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

void nd_loss_forget(struct nd_array *array)
{
    if (array->shape.rank >= 0)
        nd_array_deinit(array);
    *array = nd_no_array();
}

/* ---- the float model ---- */

static enum nd_status found_float(void *context, size_t edge, const struct nd_array *values,
                                  enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    struct nd_loss_run *run = context;
    size_t step = run->study->step_of_float[edge];
    return step != SIZE_MAX ? nd_loss_keep(values, &run->values[step], err) : ND_OK;
}

/* What the study has kept of the float model's outputs. */
static enum nd_status take_outputs(struct nd_loss_run *run, struct nd_error *err)
{
    size_t n_steps = run->study->plan->n_steps;
    const struct nd_array *kept = run->study->outputs + run->sample * n_steps;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < n_steps && status == ND_OK; s++)
        if (kept[s].n > 0)
            status = nd_loss_keep(&kept[s], &run->values[s], err);
    return status;
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
        nd_loss_forget(&run->values[s]);
        if (study->float_input[s] != SIZE_MAX)
            status = nd_loss_keep(&inputs[study->float_input[s]], &run->values[s], err);
    }
    if (status == ND_OK && run->takes_outputs)
        return take_outputs(run, err);
    return status == ND_OK ? nd_exact_graph_run(study->plan->float_graph, run->float_inputs, &options,
                                                found_float, run, err)
                           : status;
}

/* ---- its layers, fed with the reference ---- */

static bool is_whole(const struct nd_loss_run *run, size_t step)
{
    const struct nd_array *husk = &run->reference[step].husk, *values = &run->values[step];
    return husk->shape.rank >= 0 && values->shape.rank >= 0 && values->n == husk->n;
}

/* layer: what the float model's layer gives for the reference's inputs. */
static enum nd_status take_layer(struct nd_loss_run *run, size_t step, const struct nd_array *layer,
                                 struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (!is_whole(run, step) || run->values[step].n != layer->n)
        return ND_OK;
    const double *real = nd_loss_real(run, step)->x;
    if (run->is_wanted != NULL && run->is_wanted[step])
        status = nd_loss_keep(&run->real, &run->introduced[step], err);
    for (size_t i = 0; i < layer->n && status == ND_OK && run->is_wanted != NULL && run->is_wanted[step]; i++)
        run->introduced[step].x[i] = real[i] - layer->x[i];
    if (run->sums == NULL || status != ND_OK)
        return status;
    status = nd_loss_find_before(run, step, err);
    if (status == ND_OK)
        nd_add_losses(run, step, layer);
    nd_loss_forget_before(run, step);
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

static void give_real(void *context, size_t edge, double *out)
{
    const struct nd_loss_run *run = context;
    nd_loss_unpack(run, run->study->step_of_float[edge], out);
}

/* The inputs of the float model as the quantised one reads them, and what their quantisers introduce. */
static enum nd_status quantise_inputs(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_array *inputs = nd_study_inputs(study, run->sample);
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < study->plan->n_steps && status == ND_OK; s++) {
        size_t input = study->float_input[s];
        if (input == SIZE_MAX || !is_whole(run, s))
            continue;
        for (size_t i = 0; i < study->n_float_inputs && status == ND_OK; i++) {
            if (study->plan->float_inputs[i] != input)
                continue;
            status = nd_array_copy(nd_loss_real(run, s), &run->real_inputs[i], err);
            run->float_inputs[i] = run->real_inputs[i];
        }
        if (status == ND_OK)
            status = take_layer(run, s, &inputs[input], err);
    }
    return status;
}

/* Where sums are not wanted, only the layers that are. */
static enum nd_status choose_layers(struct nd_loss_run *run, struct nd_exact_options *options,
                                    struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_model *model = study->plan->float_model;
    if (run->sums != NULL || run->is_wanted == NULL)
        return ND_OK;
    memset(run->is_asked, 0, nd_model_n_edges(model) * sizeof *run->is_asked);
    for (size_t e = 0; e < nd_model_n_edges(model); e++)
        run->is_given[e] = run->given[e].shape.rank >= 0;
    for (size_t s = 0; s < study->plan->n_steps; s++)
        if (study->float_edge[s] != SIZE_MAX && run->is_wanted[s])
            run->is_asked[study->float_edge[s]] = true;
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
        size_t edge = study->float_edge[s];
        if (edge == SIZE_MAX)
            continue;
        run->given[edge] = nd_no_array();
        if (is_whole(run, s))
            run->given[edge] = (struct nd_array){
                .shape = run->values[s].shape, .n = run->values[s].n, .dtype = nd_loss_real_dtype(run, s)};
    }
    enum nd_status status = quantise_inputs(run, err);
    if (status == ND_OK)
        status = choose_layers(run, &options, err);
    return status == ND_OK ? nd_exact_graph_run(study->plan->float_graph, run->float_inputs, &options,
                                                found_layer, run, err)
                           : status;
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

/* ---- all samples ---- */

struct team {
    struct nd_study *study;
    struct nd_loss_run *runs; /* one for each worker */
};

static enum nd_status keep_outputs(const struct nd_loss_run *run, struct nd_study *study, struct nd_error *err)
{
    const struct nd_plan *plan = study->plan;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++)
        if (plan->steps[s].is_model_output && run->values[s].shape.rank >= 0)
            status = nd_array_copy(&run->values[s], &study->outputs[run->sample * plan->n_steps + s], err);
    return status;
}

static enum nd_status measure_sample(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct team *team = context;
    struct nd_loss_run *run = &team->runs[worker];
    enum nd_status status = run->study == NULL ? nd_loss_run_init(run, team->study, err) : ND_OK;
    run->sums = team->study->sums + task * team->study->plan->n_steps;
    if (status == ND_OK)
        status = nd_loss_run_sample(run, task, true, err);
    return status == ND_OK ? keep_outputs(run, team->study, err) : status;
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
