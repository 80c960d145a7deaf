/* Captures of a golden model as an exact device would make them, with another rounding or a quantised value
 * that is wrong. Include after main.h and scratch.h. */
#ifndef ND_TESTS_MODEL_CAPTURE_H
#define ND_TESTS_MODEL_CAPTURE_H

#include <stdio.h>
#include <string.h>

#include "capture/write/write.h"
#include "core/error.h"
#include "core/memory.h"
#include "devices/emulator/emulate.h"

enum { MC_MAX_TENSORS = 96, MC_SAMPLES = 10 };

struct mc_run;
struct mc_device {
    enum nd_rounding rounding;
    const char *wrong_tensor;   /* sample 3, element 5 is a step off; NULL: none */
    const char *missing_tensor; /* not captured; NULL: none */
    enum nd_capture_status state;
    float brightness; /* of the inputs; 0 stands for 1 */
    /* Changes what is stored of a tensor, not what lies behind it; run: what was stored so far of this sample.
     * NULL: nothing */
    void (*change)(const struct mc_run *run, const struct nd_tensor *tensor, struct nd_array *qvalues);
    const char *import;     /* the kind that an import states; NULL: it is none. "import": it states nothing */
    const char *arch, *sdk; /* that the capture states; NULL: nothing */
    const char
        *emulated; /* what emulator/emulate.h reads, in the place of rounding and wrong_edge; NULL: none */
    const struct nd_model *stated; /* that the capture says it is of; NULL: its own */
    const struct nd_shape *shape;  /* of tensors of which the model declares none */
};

struct mc_run {
    const struct nd_model *model;
    const struct mc_device *device;
    struct nd_array given[MC_MAX_TENSORS];
    unsigned char *qvalues[MC_MAX_TENSORS]; /* all samples */
    size_t bytes[MC_MAX_TENSORS], sample;
};

static enum nd_status mc_found(void *context, size_t e, const struct nd_array *values,
                               enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    struct mc_run *run = context;
    const struct nd_tensor *tensor = nd_model_tensor(run->model, e);
    bool is_wrong = run->sample == 3 && run->device->wrong_tensor != NULL &&
                    strcmp(tensor->name, run->device->wrong_tensor) == 0;
    if (run->qvalues[e] == NULL)
        run->qvalues[e] = nd_tensor_alloc(MC_SAMPLES * values->n * nd_dtype_size_bytes(tensor->dtype));
    assert_non_null(run->qvalues[e]);
    run->bytes[e] = values->n * nd_dtype_size_bytes(tensor->dtype);
    struct nd_array copy = {0};
    assert_int_equal(nd_array_copy(values, &copy, err), ND_OK);
    if (is_wrong)
        copy.x[5] += copy.x[5] < 255 ? 1 : -1;
    if (run->device->change != NULL)
        run->device->change(run, tensor, &copy);
    nd_array_store(tensor->dtype, copy.x, copy.n, run->qvalues[e] + run->sample * run->bytes[e]);
    if (is_wrong)
        memcpy(run->given[e].x, copy.x, copy.n * sizeof *copy.x);
    nd_array_deinit(&copy);
    return ND_OK;
}

/* The quantised values of that tensor in the sample at hand: of an uint8 one that was stored already. */
__attribute__((unused)) static const unsigned char *mc_qvalues(const struct mc_run *run, const char *name)
{
    size_t e = 0;
    while (e < nd_model_n_tensors(run->model) && strcmp(nd_model_tensor(run->model, e)->name, name) != 0)
        e++;
    assert_true(e < nd_model_n_tensors(run->model) && run->qvalues[e] != NULL);
    return run->qvalues[e] + run->sample * run->bytes[e];
}

static void mc_text(struct nd_capture_writer *writer, const char *group, const char *key, const char *value)
{
    char *text = nd_strdup(value), *name = nd_strdup(key), *place = nd_strdup(group);
    const struct nd_attr attr = {.group = place, .key = name, .type = ND_ATTR_STRING, .string = text};
    assert_int_equal(nd_capture_writer_attr(writer, &attr, NULL), ND_OK);
    free(text);
    free(name);
    free(place);
}

static void mc_write_tensor(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                            const struct nd_tensor *tensor, const unsigned char *qvalues, size_t bytes)
{
    struct nd_error err = {0};
    struct nd_digest digests[MC_SAMPLES];
    for (size_t i = 0; i < MC_SAMPLES; i++)
        digests[i] = nd_digest_bytes(qvalues + i * bytes, bytes);
    expect_ok(nd_capture_writer_digests(writer, probe, tensor, digests, &err), &err);
    size_t sample_bytes;
    expect_ok(nd_shape_size_bytes(&tensor->shape, tensor->dtype, &sample_bytes, &err), &err);
    assert_int_equal(sample_bytes, bytes);
    expect_ok(nd_capture_writer_outputs(writer, &(struct nd_capture_output){probe, tensor, "exact", NULL},
                                        qvalues, &err),
              &err);
}

static void mc_write(const struct mc_run *run, const char *path, const float *inputs)
{
    struct nd_error err = {0};
    struct nd_capture_writer *writer = NULL;
    const struct nd_model_io *io = nd_model_input(run->model, 0);
    char probe_name[] = "random", *input_name = nd_strdup(io->name);
    struct nd_capture_input input = {input_name, io->dtype, io->shape};
    const struct nd_capture_probe probe = {.name = probe_name,
                                           .source = probe_name,
                                           .n_samples = MC_SAMPLES,
                                           .n_samples_expected = MC_SAMPLES,
                                           .n_repeats = 1,
                                           .n_inputs = 1,
                                           .inputs = &input};
    struct nd_tensor tensors[MC_MAX_TENSORS];
    const char *providers[MC_MAX_TENSORS];
    size_t indices[MC_MAX_TENSORS], n = 0;
    for (size_t e = 0; e < nd_model_n_tensors(run->model); e++) {
        const struct nd_tensor *tensor = nd_model_tensor(run->model, e);
        if (run->device->missing_tensor != NULL && strcmp(tensor->name, run->device->missing_tensor) == 0)
            continue;
        tensors[n] = *tensor; /* borrowed */
        tensors[n].shape = run->given[e].shape;
        providers[n] = "exact";
        indices[n++] = e;
    }
    expect_ok(nd_capture_writer_create(path, true, &writer, &err), &err);
    const struct nd_model *stated = run->device->stated != NULL ? run->device->stated : run->model;
    mc_text(writer, "model", "sha256", nd_model_sha256(stated));
    mc_text(writer, "device", "uri", "test");
    if (run->device->import != NULL || run->device->emulated != NULL)
        mc_text(writer, "device", "kind", run->device->import != NULL ? run->device->import : "emu");
    if (run->device->import != NULL)
        mc_text(writer, "import", "format", "numpy");
    if (run->device->arch != NULL)
        mc_text(writer, "device", "arch", run->device->arch);
    if (run->device->sdk != NULL)
        mc_text(writer, "runtime", "sdk_version", run->device->sdk);
    expect_ok(nd_capture_writer_tensors(writer, tensors, providers, n, &err), &err);
    expect_ok(nd_capture_writer_probe(writer, &probe, &err), &err);
    expect_ok(nd_capture_writer_input(writer, &probe, 0, inputs, &err), &err);
    for (size_t i = 0; i < n; i++)
        mc_write_tensor(writer, &probe, &tensors[i], run->qvalues[indices[i]], run->bytes[indices[i]]);
    expect_ok(nd_capture_writer_commit(writer, run->device->state, &err), &err);
    nd_capture_writer_destroy(&writer);
    free(input_name);
}

/* Only the wrong quantised value is given; what lies behind it is computed from it. */
static void mc_give(struct mc_run *run, size_t e)
{
    struct nd_error err = {0};
    const struct nd_tensor *tensor = nd_model_tensor(run->model, e);
    run->given[e] = (struct nd_array){0};
    const struct nd_shape *shape = tensor->shape.rank < 0 ? run->device->shape : &tensor->shape;
    assert_non_null(shape);
    expect_ok(nd_array_make(&run->given[e], tensor->dtype, shape, &err), &err);
}

/* NULL for a device that is not emulated. */
static struct nd_emulator *mc_emulator(const struct mc_run *run, const struct nd_exact_graph *graph,
                                       struct nd_emulation *emulation)
{
    struct nd_error err = {0};
    const struct nd_emulator_options options = {.struct_size = sizeof options};
    struct nd_emulator *emulator = NULL;
    if (run->device->emulated == NULL)
        return NULL;
    expect_ok(nd_emulation_parse(run->device->emulated, emulation, &err), &err);
    expect_ok(nd_emulator_create(emulation, run->model, graph, &options, &emulator, &err), &err);
    return emulator;
}

/* Runs the model (of one float input) on random samples and writes the capture of that name in the folder. */
static void mc_capture(const struct nd_model *model, const struct mc_device *device, const char *path)
{
    struct nd_error err = {0};
    struct mc_run run = {.model = model, .device = device};
    struct nd_exact_graph *graph = NULL;
    struct nd_array input = {0};
    const struct nd_model_io *io = nd_model_input(model, 0);
    struct nd_array given[MC_MAX_TENSORS];
    uint64_t seed = 1;
    assert_true(nd_model_n_tensors(model) <= MC_MAX_TENSORS);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        mc_give(&run, e);
    expect_ok(nd_exact_graph_create(model, &graph, &err), &err);
    expect_ok(nd_array_make(&input, io->dtype, &io->shape, &err), &err);
    struct nd_emulation emulation = {0};
    struct nd_emulator *emulator = mc_emulator(&run, graph, &emulation);
    float *inputs = nd_calloc(MC_SAMPLES * input.n, sizeof *inputs);
    assert_non_null(inputs);
    for (run.sample = 0; run.sample < MC_SAMPLES; run.sample++) {
        for (size_t i = 0; i < input.n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            float value = (float)(seed >> 40) / 0x1p24f * (device->brightness > 0 ? device->brightness : 1);
            inputs[run.sample * input.n + i] = value;
            input.x[i] = (double)value;
        }
        for (size_t e = 0; e < MC_MAX_TENSORS; e++)
            given[e] = (struct nd_array){.shape.rank = -1};
        for (size_t e = 0; e < nd_model_n_tensors(model) && run.sample == 3; e++)
            if (device->wrong_tensor != NULL &&
                strcmp(nd_model_tensor(model, e)->name, device->wrong_tensor) == 0)
                given[e] = run.given[e];
        const struct nd_exact_options options = {
            .struct_size = sizeof options, .rounding = device->rounding, .given = given};
        enum nd_status status = emulator != NULL
                                    ? nd_emulator_run(emulator, &input, mc_found, &run, &err)
                                    : nd_exact_graph_run(graph, &input, &options, mc_found, &run, &err);
        expect_ok(status, &err);
    }
    mc_write(&run, path, inputs);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
        nd_array_deinit(&run.given[e]);
        free(run.qvalues[e]);
    }
    free(inputs);
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    nd_array_deinit(&input);
    nd_exact_graph_destroy(&graph);
}

#endif
