/* A model and a capture of it, both of a stranger: explained. The capture is that of an NPU whose codes the
 * last bytes of the model change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/write/write.h"
#include "core/memory.h"
#include "devices/emulator/emulate.h"
#include "fuzz/fuzz.h"
#include "fuzz/small_model.h"
#include "npudiff/explain/explain.h"

struct run {
    const struct nd_model *model;
    struct nd_array *found; /* [n_edges] */
    const uint8_t *data;
    size_t size;
};

/* Every tensor whose turn it is has one code in eight changed. */
static enum nd_status keep(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct run *run = context;
    struct nd_array *kept = &run->found[tensor];
    enum nd_status status = nd_array_copy(values, kept, err);
    uint8_t how = run->data[run->size - 1 - tensor % run->size];
    for (size_t i = how % 8; status == ND_OK && how > 127 && i < kept->n; i += 8)
        kept->x[i] += how % 16 < 8 ? 1 : -2;
    return status;
}

static void emulate(const struct small_model *small, struct run *run)
{
    struct nd_exact_graph *graph = NULL;
    struct nd_emulation emulation = {0};
    struct nd_emulator *emulator = NULL;
    const struct nd_emulator_options options = {.struct_size = sizeof options};
    if (nd_exact_graph_create(small->model, &graph, NULL) == ND_OK &&
        nd_emulation_parse(run->data[0] % 2 ? "htp-v69" : "htp-v73", &emulation, NULL) == ND_OK &&
        nd_emulator_create(&emulation, small->model, graph, &options, &emulator, NULL) == ND_OK)
        nd_emulator_run(emulator, small->inputs, keep, run, NULL);
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    nd_exact_graph_destroy(&graph);
}

static void write_text(struct nd_capture_writer *writer, const char *group, const char *key, const char *value)
{
    char *text = nd_strdup(value), *name = nd_strdup(key), *place = nd_strdup(group);
    const struct nd_attr attr = {.group = place, .key = name, .type = ND_ATTR_STRING, .string = text};
    nd_capture_writer_attr(writer, &attr, NULL);
    free(text);
    free(name);
    free(place);
}

/* The bytes of an array, freed by the caller. */
static void *bytes_of(const struct nd_array *array, enum nd_dtype dtype)
{
    void *bytes = nd_tensor_alloc(array->n * nd_dtype_size_bytes(dtype));
    if (bytes == NULL)
        abort();
    nd_array_store(dtype, array->x, array->n, bytes);
    return bytes;
}

static void write_tensors(struct nd_capture_writer *writer, const struct run *run,
                          const struct nd_capture_probe *probe)
{
    size_t n = 0, n_tensors = nd_model_n_tensors(run->model);
    struct nd_tensor *tensors = nd_calloc(n_tensors, sizeof *tensors);
    const char **providers = nd_calloc(n_tensors, sizeof *providers);
    const struct nd_array **values = nd_calloc(n_tensors, sizeof *values);
    if (tensors == NULL || providers == NULL || values == NULL)
        abort();
    for (size_t e = 0; e < n_tensors; e++) {
        if (run->found[e].x == NULL || nd_model_tensor(run->model, e)->dtype == ND_DTYPE_NONE)
            continue;
        tensors[n] = *nd_model_tensor(run->model, e);
        tensors[n].shape = run->found[e].shape;
        providers[n] = "QNNExecutionProvider";
        values[n++] = &run->found[e];
    }
    nd_capture_writer_tensors(writer, tensors, providers, n, NULL);
    nd_capture_writer_probe(writer, probe, NULL);
    for (size_t i = 0; i < n; i++) {
        void *bytes = bytes_of(values[i], tensors[i].dtype);
        struct nd_digest digest = nd_digest_bytes(bytes, values[i]->n * nd_dtype_size_bytes(tensors[i].dtype));
        nd_capture_writer_digests(writer, probe, &tensors[i], &digest, NULL);
        nd_capture_writer_outputs(writer, &(struct nd_capture_output){probe, &tensors[i], providers[i], NULL},
                                  bytes, NULL);
        free(bytes);
    }
    free(tensors);
    free(providers);
    free(values);
}

static void write_capture(const struct small_model *small, const struct run *run, const char *path)
{
    struct nd_capture_writer *writer = NULL;
    size_t n = nd_model_n_inputs(small->model);
    char name[] = "x";
    struct nd_capture_input *inputs = nd_calloc(n, sizeof *inputs);
    for (size_t i = 0; i < n && inputs != NULL; i++) {
        const struct nd_model_io *io = nd_model_input(small->model, i);
        inputs[i] = (struct nd_capture_input){nd_strdup(io->name), io->dtype, io->shape};
    }
    const struct nd_capture_probe probe = {.name = name,
                                           .source = name,
                                           .n_samples = 1,
                                           .n_samples_expected = 1,
                                           .n_repeats = 1,
                                           .n_inputs = n,
                                           .inputs = inputs};
    if (nd_capture_writer_create(path, true, &writer, NULL) == ND_OK) {
        write_text(writer, "model", "sha256", nd_model_sha256(small->model));
        write_text(writer, "device", "uri", "gen3");
        write_text(writer, "device", "arch", run->data[0] % 2 ? "v69" : "v73");
        write_tensors(writer, run, &probe);
        for (size_t i = 0; i < n && inputs != NULL; i++) {
            void *bytes = bytes_of(&small->inputs[i], inputs[i].dtype);
            nd_capture_writer_input(writer, &probe, i, bytes, NULL);
            free(bytes);
        }
        nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, NULL);
    }
    nd_capture_writer_destroy(&writer);
    for (size_t i = 0; i < n && inputs != NULL; i++)
        free(inputs[i].name);
    free(inputs);
}

static void explain(const struct small_model *small, const char *path)
{
    struct nd_capture *capture = NULL;
    struct nd_explanation *explanation = NULL;
    const struct nd_explain_options options = {
        .struct_size = sizeof options, .n_output_effect_samples = 1, .n_threads = 1};
    if (nd_capture_open(path, &capture, NULL) != ND_OK)
        return;
    const struct nd_capture *const captures[] = {capture};
    nd_explain(small->model, NULL, captures, 1, &options, &explanation, NULL);
    nd_explanation_destroy(&explanation);
    nd_capture_close(&capture);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct small_model small;
    char path[4096];
    snprintf(path, sizeof path, "%s/x.h5", fuzz_folder());
    if (small_model_open(&small, data, size) && size > 0) {
        size_t n = nd_model_n_tensors(small.model);
        struct run run = {small.model, nd_calloc(n, sizeof *run.found), data, size};
        if (run.found == NULL)
            abort();
        emulate(&small, &run);
        write_capture(&small, &run, path);
        explain(&small, path);
        for (size_t e = 0; e < n; e++)
            nd_array_deinit(&run.found[e]);
        free(run.found);
    }
    small_model_close(&small);
    return 0;
}
