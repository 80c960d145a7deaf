/* The yardstick of tools/bench.sh: the same session with the same inputs and outputs as a capture, run in a
 * bare loop that looks at nothing and stores nothing. Prints "<seconds to create the session> <seconds of the
 * loop>".
 *
 * usage: bare_loop MODEL DEVICE PROBE [SESSIONS RUNS]   (the arguments that npudiff capture gets; all tensors
 * are outputs)
 *
 * With SESSIONS it makes the session so often, one after the other, and runs RUNS samples in the last one: what
 * a capture of several passes, or with samples that ran again, had to do. Else one session, and every sample
 * once. */
#include <stdio.h>
#include <stdlib.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/runtime/runtime.h"
#include "npudiff/core/parse.h"
#include "npudiff/devices/device.h"

struct bare {
    struct nd_model *model;
    struct nd_device device;
    struct nd_probe *probe;
    struct nd_runtime *runtime;
    struct nd_runtime_session *session;
    char *folder;
    uint64_t n_sessions, n_runs; /* n_runs 0: every sample once */
};

static enum nd_status make_probe(struct bare *bare, const char *spec, struct nd_error *err)
{
    struct nd_probe_target targets[16];
    size_t n = nd_model_n_inputs(bare->model);
    if (n > sizeof targets / sizeof targets[0])
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, NULL, "too many inputs for this benchmark");
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *input = nd_model_input(bare->model, i);
        targets[i] = (struct nd_probe_target){.name = input->name,
                                              .dtype = input->dtype,
                                              .shape = input->shape,
                                              .quant = input->quant,
                                              .quant_dtype = input->quant_dtype};
    }
    return nd_probe_create(spec, targets, n, &bare->probe, err);
}

static enum nd_status create_session(struct bare *bare, struct nd_error *err)
{
    const struct nd_device *device = &bare->device;
    bool is_npu = device->kind != ND_DEVICE_CPU;
    size_t *tensors = NULL, n_tensors = 0;
    struct nd_option_pair options[32];
    enum nd_optimisation optimisation = ND_OPTIMISATION_DISABLE;
    nd_optimisation_from_name(device->optimisation, &optimisation);
    for (size_t i = 0; i < device->n_options && i < 32; i++)
        options[i] = (struct nd_option_pair){device->option_keys[i], device->option_values[i]};
    enum nd_status status = nd_dir_make_temporary(&bare->folder, err);
    char *path = status == ND_OK ? nd_path_join(bare->folder, "exposed.onnx") : NULL;
    if (status == ND_OK)
        status = nd_model_select_tensors(bare->model, "all", &tensors, &n_tensors, err);
    if (status == ND_OK)
        status = nd_model_write_exposed(bare->model, tensors, n_tensors, path, err);
    const struct nd_runtime_options runtime = {
        .ort_library = device->runtime.ort_library,
        .provider_name = is_npu ? "QNNExecutionProvider" : NULL,
        .provider_library = is_npu ? device->runtime.provider_library : NULL,
        .log_severity = 3,
    };
    if (status == ND_OK)
        status = nd_runtime_create(&runtime, &bare->runtime, err);
    const struct nd_session_options session = {.model_path = path,
                                               .optimisation = optimisation,
                                               .n_threads = device->n_threads,
                                               .provider_options = options,
                                               .n_provider_options = device->n_options};
    for (uint64_t i = 0; status == ND_OK && i < bare->n_sessions; i++) {
        nd_session_destroy(&bare->session);
        status = nd_session_create(bare->runtime, &session, &bare->session, err);
    }
    free(tensors);
    free(path);
    return status;
}

static enum nd_status loop(struct bare *bare, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    const void *inputs[16];
    struct nd_output_view *views = nd_calloc(nd_session_n_outputs(bare->session), sizeof *views);
    if (views == NULL)
        return nd_fail_memory(err);
    size_t n_runs = bare->n_runs > 0 ? (size_t)bare->n_runs : bare->probe->n_samples;
    for (size_t run = 0; status == ND_OK && run < n_runs; run++) {
        size_t s = run % bare->probe->n_samples;
        for (size_t i = 0; i < bare->probe->n_inputs; i++)
            inputs[i] = (const char *)bare->probe->inputs[i].data + s * bare->probe->inputs[i].sample_bytes;
        status = nd_session_run(bare->session, inputs, views, err);
    }
    free(views);
    return status;
}

int main(int argc, char **argv)
{
    struct bare bare = {.n_sessions = 1};
    struct nd_error err = {0};
    bool is_counted = argc == 6 && nd_parse_u64(argv[4], &bare.n_sessions) &&
                      nd_parse_u64(argv[5], &bare.n_runs) && bare.n_sessions > 0;
    if (argc != 4 && !is_counted) {
        fprintf(stderr, "usage: bare_loop MODEL DEVICE PROBE [SESSIONS RUNS]\n");
        return 2;
    }
    enum nd_status status = nd_model_load(argv[1], &bare.model, &err);
    if (status == ND_OK)
        status = nd_device_parse(argv[2], &bare.device, &err);
    if (status == ND_OK)
        status = make_probe(&bare, argv[3], &err);
    uint64_t start_ns = nd_clock_ns();
    if (status == ND_OK)
        status = create_session(&bare, &err);
    uint64_t created_ns = nd_clock_ns();
    if (status == ND_OK)
        status = loop(&bare, &err);
    uint64_t end_ns = nd_clock_ns();
    if (status == ND_OK)
        /* The provider prints on stdout as it likes: the result goes where it does not. */
        fprintf(stderr, "bare %.6f %.6f\n", (double)(created_ns - start_ns) * 1e-9,
                (double)(end_ns - created_ns) * 1e-9);
    else
        fprintf(stderr, "bare_loop: %s\n", err.message);
    nd_session_destroy(&bare.session);
    nd_runtime_destroy(&bare.runtime);
    nd_probe_destroy(&bare.probe);
    nd_device_deinit(&bare.device);
    nd_model_destroy(&bare.model);
    if (bare.folder != NULL)
        nd_dir_remove(bare.folder);
    free(bare.folder);
    return status == ND_OK ? 0 : 1;
}
