/* Twins for programs: samples are spread over threads, each of which has a twin of its own, of one graph. */
#include "npudiff/devices/twin.h"

#include "arithmetic/trials/twin.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "core/text/strbuf.h"
#include "devices/emulator/made_outputs.h"
#include "devices/launch.h"

enum { N_KINDS = ND_TWIN_TENSOR + 1 };

struct nd_twin_model {
    const struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_twin_chip chip;
    bool is_strict;
    size_t n_threads;
    struct nd_made_outputs outputs;
    struct nd_twin_value *values[N_KINDS];
    size_t n_values[N_KINDS];
};

/* ---- a run ---- */

/* One thread's. */
struct worker {
    struct nd_twin *twin; /* NULL: it has not begun */
    struct nd_array *inputs;
    const struct run *run;
    size_t sample;
};

struct run {
    struct nd_twin_model *of;
    const struct nd_twin_samples *samples; /* NULL: one of zeros, from which shapes are learnt */
    bool *is_hidden;                       /* [n tensors] */
    struct worker *workers;
    size_t n_workers;
};

static void end_run(struct run *run)
{
    for (size_t w = 0; run->workers != NULL && w < run->n_workers; w++) {
        struct nd_array *inputs = run->workers[w].inputs;
        for (size_t i = 0; inputs != NULL && i < run->of->n_values[ND_TWIN_INPUT]; i++)
            nd_array_deinit(&inputs[i]);
        free(inputs);
        nd_twin_destroy(&run->workers[w].twin);
    }
    ND_FREE_ALL(run->workers, run->is_hidden);
}

static enum nd_status begin_worker(struct worker *worker, const struct run *run, struct nd_error *err)
{
    const struct nd_twin_model *of = run->of;
    worker->run = run;
    if (worker->twin != NULL)
        return ND_OK;
    worker->inputs = nd_calloc(of->n_values[ND_TWIN_INPUT], sizeof *worker->inputs);
    ND_TRY_MEMORY(worker->inputs != NULL, err);
    for (size_t i = 0; i < of->n_values[ND_TWIN_INPUT]; i++) {
        const struct nd_twin_value *input = &of->values[ND_TWIN_INPUT][i];
        ND_TRY(nd_array_make(&worker->inputs[i], input->io.dtype, &input->io.shape, err));
    }
    return nd_twin_create(of->model, of->graph, &of->chip, run->is_hidden, &worker->twin, err);
}

/* The buffer, if one is wanted, gets the values of the sample at hand. Shapes come from a first run: a model
 * need not declare them, and may declare wrong ones. */
static enum nd_status put(const struct worker *worker, enum nd_twin_kind kind, size_t i,
                          const struct nd_array *values, struct nd_error *err)
{
    struct nd_twin_value *value = &worker->run->of->values[kind][i];
    const struct nd_made_output as_tensor = {.dtype = value->io.dtype};
    const struct nd_twin_samples *samples = worker->run->samples;
    if (samples == NULL) {
        value->io.shape = values->shape;
        return nd_shape_size_bytes(&values->shape, value->io.dtype, &value->size_bytes, err);
    }
    void *const *buffers = kind == ND_TWIN_OUTPUT ? samples->outputs : samples->tensors;
    if (buffers == NULL || buffers[i] == NULL)
        return ND_OK;
    if (values->n * nd_dtype_size_bytes(value->io.dtype) != value->size_bytes)
        return nd_fail(err, ND_E_EXACT_SHAPE, value->io.name, "'%s' has a different shape in sample %zu",
                       value->io.name, worker->sample);
    nd_made_output_store(kind == ND_TWIN_OUTPUT ? &worker->run->of->outputs.items[i] : &as_tensor, values,
                         (unsigned char *)buffers[i] + worker->sample * value->size_bytes);
    return ND_OK;
}

static enum nd_status found(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    const struct worker *worker = context;
    const struct nd_made_outputs *outputs = &worker->run->of->outputs;
    for (size_t i = outputs->last_of[tensor]; i != SIZE_MAX; i = outputs->items[i].next)
        ND_TRY(put(worker, ND_TWIN_OUTPUT, i, values, err));
    return put(worker, ND_TWIN_TENSOR, tensor, values, err);
}

static enum nd_status run_sample(void *context, size_t number, size_t sample, struct nd_error *err)
{
    const struct run *run = context;
    const struct nd_twin_model *of = run->of;
    struct worker *worker = &run->workers[number];
    ND_TRY(begin_worker(worker, run, err));
    worker->sample = sample;
    for (size_t i = 0; run->samples != NULL && i < of->n_values[ND_TWIN_INPUT]; i++) {
        const struct nd_twin_value *input = &of->values[ND_TWIN_INPUT][i];
        nd_array_load(input->io.dtype,
                      (const unsigned char *)run->samples->inputs[i] + sample * input->size_bytes,
                      worker->inputs[i].n, worker->inputs[i].x);
    }
    ND_TRY(nd_twin_run(worker->twin, worker->inputs, found, worker, err));
    return of->is_strict && run->samples != NULL ? nd_twin_refuse_unknown(worker->twin, NULL, err) : ND_OK;
}

enum nd_status nd_twin_model_run(struct nd_twin_model *twin, const struct nd_twin_samples *samples,
                                 struct nd_error *err)
{
    size_t n = samples != NULL ? samples->n : 1;
    ND_CLEANUP(end_run)
    struct run run = {.of = twin, .samples = samples, .n_workers = n < twin->n_threads ? n : twin->n_threads};
    run.is_hidden = nd_calloc(twin->n_values[ND_TWIN_TENSOR], sizeof *run.is_hidden);
    run.workers = nd_calloc(run.n_workers, sizeof *run.workers);
    ND_TRY_MEMORY(run.is_hidden != NULL && run.workers != NULL, err);
    for (size_t e = 0; samples != NULL && e < twin->n_values[ND_TWIN_TENSOR]; e++)
        run.is_hidden[e] =
            twin->outputs.last_of[e] == SIZE_MAX && (samples->tensors == NULL || samples->tensors[e] == NULL);
    ND_TRY(nd_parallel_for(run.n_workers, n, run_sample, &run, err));
    for (size_t w = 0; samples != NULL && w < run.n_workers; w++)
        for (size_t e = 0; run.workers[w].twin != NULL && e < twin->n_values[ND_TWIN_TENSOR]; e++)
            nd_twin_mark_merge(&nd_twin_marks(run.workers[w].twin)[e], &twin->values[ND_TWIN_TENSOR][e].mark);
    return ND_OK;
}

/* ---- a model on a chip ---- */

static enum nd_status describe(struct nd_twin_model *twin, struct nd_error *err)
{
    for (size_t i = 0; i < twin->n_values[ND_TWIN_INPUT]; i++) {
        struct nd_twin_value *input = &twin->values[ND_TWIN_INPUT][i];
        input->io = *nd_model_input(twin->model, i);
        ND_TRY(nd_shape_size_bytes(&input->io.shape, input->io.dtype, &input->size_bytes, err));
    }
    for (size_t i = 0; i < twin->n_values[ND_TWIN_OUTPUT]; i++) {
        twin->values[ND_TWIN_OUTPUT][i].io = *nd_model_output(twin->model, i);
        twin->values[ND_TWIN_OUTPUT][i].io.dtype = twin->outputs.items[i].dtype;
        twin->values[ND_TWIN_OUTPUT][i].io.shape.rank = -1;
    }
    for (size_t e = 0; e < twin->n_values[ND_TWIN_TENSOR]; e++) {
        const struct nd_tensor *tensor = nd_model_tensor(twin->model, e);
        bool is_whole = nd_dtype_is_integer(tensor->dtype) || tensor->dtype == ND_DTYPE_BOOL;
        struct nd_twin_value *value = &twin->values[ND_TWIN_TENSOR][e];
        value->op_types = tensor->op_types;
        value->io = (struct nd_model_io){.name = tensor->name,
                                         .dtype = is_whole ? tensor->dtype : ND_DTYPE_F32,
                                         .shape.rank = -1,
                                         .quant = tensor->quant.n > 0 ? &tensor->quant : NULL,
                                         .quant_dtype = tensor->quant.n > 0 ? tensor->dtype : ND_DTYPE_NONE};
    }
    return ND_OK;
}

static enum nd_status find_chip(struct nd_twin_model *twin, const char *text, struct nd_error *err)
{
    ND_FREED char *uri = nd_text("twin:%s", text);
    ND_CLEANUP(nd_device_deinit) struct nd_device device = {0};
    ND_TRY_MEMORY(uri != NULL, err);
    ND_TRY(nd_device_parse(uri, &device, err));
    ND_TRY(nd_device_suits_model(&device, twin->model, err));
    for (size_t i = 0; i < device.n_options; i++)
        if (strcmp(device.option_keys[i], "strict") == 0)
            twin->is_strict = strcmp(device.option_values[i], "1") == 0;
    nd_twin_chip_of(device.chipset->arch, device.runtime.id + strlen("qairt-"), &twin->chip); /* it is known */
    return ND_OK;
}

enum nd_status nd_twin_model_open(const struct nd_model *model, const char *chip, size_t n_threads,
                                  struct nd_twin_model **out, struct nd_error *err)
{
    ND_CLEANUP(nd_twin_model_close) struct nd_twin_model *twin = nd_calloc(1, sizeof *twin);
    ND_TRY_MEMORY(twin != NULL, err);
    *twin = (struct nd_twin_model){
        .model = model,
        .n_threads = n_threads > 0 ? n_threads : nd_parallel_n_threads(),
        .n_values = {nd_model_n_inputs(model), nd_model_n_outputs(model), nd_model_n_tensors(model)}};
    for (size_t kind = 0; kind < N_KINDS; kind++)
        ND_TRY_MEMORY(
            (twin->values[kind] = nd_calloc(twin->n_values[kind], sizeof *twin->values[kind])) != NULL, err);
    ND_TRY(find_chip(twin, chip, err));
    ND_TRY(nd_model_check_static(model, err));
    ND_TRY(nd_made_outputs_init(&twin->outputs, model, ND_DTYPE_F32, err));
    ND_TRY(describe(twin, err));
    ND_TRY(nd_exact_graph_create(model, &twin->graph, err));
    ND_TRY(nd_twin_model_run(twin, NULL, err));
    return ND_GIVE(out, twin);
}

void nd_twin_model_close(struct nd_twin_model **twin)
{
    struct nd_twin_model *t = *twin;
    if (t == NULL)
        return;
    nd_exact_graph_destroy(&t->graph);
    nd_made_outputs_deinit(&t->outputs);
    for (size_t kind = 0; kind < N_KINDS; kind++)
        free(t->values[kind]);
    free(t);
    *twin = NULL;
}

const struct nd_twin_value *nd_twin_model_values(const struct nd_twin_model *twin, enum nd_twin_kind kind,
                                                 size_t *n)
{
    *n = twin->n_values[kind];
    return twin->values[kind];
}
