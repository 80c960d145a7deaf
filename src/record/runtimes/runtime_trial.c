#include "record/runtimes/runtime_trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/capture/capture.h"
#include "model/rewrite/compose.h"

enum { N_ELEMENTS = 64, CODE_OF_SUM = 2, TIME_LIMIT_S = 120 };

/* c = a + b, all with the same scale: from codes of 1, the probe "ones", codes of 2. */
static enum nd_status write_model(const char *path, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 2, .dims = {1, N_ELEMENTS}};
    float scale = 0.5f;
    int64_t zero_point = 0;
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero_point};
    struct nd_compose *c = NULL;
    enum nd_status status = nd_compose_create(21, &c, err);
    if (status != ND_OK)
        return status;
    nd_compose_input(c, "a", ND_DTYPE_U8, &shape);
    nd_compose_input(c, "b", ND_DTYPE_U8, &shape);
    nd_compose_dequantize(c, "a", "a_real", &quant, ND_DTYPE_U8);
    nd_compose_dequantize(c, "b", "b_real", &quant, ND_DTYPE_U8);
    nd_compose_node(c, "Add", (const char *[]){"a_real", "b_real", NULL}, "sum");
    nd_compose_quantize(c, "sum", "c", &quant, ND_DTYPE_U8);
    nd_compose_output(c, "c", ND_DTYPE_U8, &shape);
    status = nd_compose_write(c, path, err);
    nd_compose_destroy(&c);
    return status;
}

enum nd_status nd_runtime_trial_open(const struct nd_runtime_checking *how, struct nd_runtime_trial *out,
                                     struct nd_error *err)
{
    static const char *const specs[] = {"ones"};
    struct nd_runtime_trial trial = {.how = how};
    char *path = NULL;
    enum nd_status status = nd_dir_make_temporary(&trial.folder, err);
    if (status == ND_OK) {
        path = nd_path_join(trial.folder, "sum.onnx");
        status = path != NULL ? write_model(path, err) : nd_fail_memory(err);
    }
    if (status == ND_OK)
        status = nd_model_load(path, &trial.model, err);
    if (status == ND_OK)
        status = nd_probes_for_model(trial.model, specs, 1, &trial.probe, err);
    free(path);
    if (status == ND_OK)
        *out = trial;
    else
        nd_runtime_trial_close(&trial);
    return status;
}

void nd_runtime_trial_close(struct nd_runtime_trial *trial)
{
    nd_probe_destroy(&trial->probe);
    nd_model_destroy(&trial->model);
    if (trial->folder != NULL)
        nd_dir_remove(trial->folder);
    free(trial->folder);
    *trial = (struct nd_runtime_trial){0};
}

/* Whether the capture holds the sums, and which ONNX Runtime made it. */
static enum nd_status read_capture(const char *path, struct nd_runtime_trial_result *out, struct nd_error *err)
{
    struct nd_capture *capture = NULL;
    uint8_t codes[N_ELEMENTS] = {0};
    enum nd_status status = nd_capture_open(path, &capture, err);
    if (status != ND_OK)
        return status;
    const char *found = nd_capture_string(capture, "runtime", "ort_version");
    snprintf(out->version, sizeof out->version, "%s", found != NULL ? found : "unknown");
    size_t edge = nd_capture_find_edge(capture, "c");
    if (edge == SIZE_MAX || nd_capture_edge(capture, edge)->dtype != ND_DTYPE_U8)
        nd_fail(&out->failure, ND_E_DEVICE_OUTPUT, "c", "it did not give the sum of two tensors");
    else
        status = nd_capture_read_verified(&(struct nd_capture_tensor){capture, 0, edge}, 0, 1, codes, err);
    for (size_t i = 0; status == ND_OK && out->failure.id == 0 && i < N_ELEMENTS; i++)
        if (codes[i] != CODE_OF_SUM)
            nd_fail(&out->failure, ND_E_DEVICE_OUTPUT, "c", "the sum of ones is code %d, not %d", codes[i],
                    CODE_OF_SUM);
    nd_capture_close(&capture);
    return status;
}

static enum nd_status run_device(struct nd_runtime_trial *trial, const struct nd_device *device,
                                 const char *path, struct nd_error *failure, struct nd_error *err)
{
    const struct nd_probe *const probes[] = {trial->probe};
    struct nd_capture_outcome outcome = {0};
    struct nd_capture_options options;
    nd_capture_options_init(&options);
    options.agent = trial->how->agent;
    options.time_limit_s = TIME_LIMIT_S;
    options.replace = true;
    options.is_cancelled = trial->how->is_cancelled;
    options.cancel_context = trial->how->cancel_context;
    enum nd_status status =
        nd_capture_run(&(struct nd_workload){trial->model, device, probes, 1}, path, &options, &outcome, err);
    if (status == ND_OK && outcome.has_failed)
        *failure = outcome.failure;
    if (status == ND_OK && outcome.has_failed && failure->id == 0)
        nd_fail(failure, ND_E_DEVICE_CRASH, NULL, "it failed at stage '%s'", outcome.stage);
    return status;
}

enum nd_status nd_runtime_trial_run(struct nd_runtime_trial *trial, const char *id,
                                    const struct nd_chipset *chipset, struct nd_runtime_trial_result *out,
                                    struct nd_error *err)
{
    *out = (struct nd_runtime_trial_result){0};
    struct nd_strbuf uri = {0};
    struct nd_device device = {0};
    nd_strbuf_printf(&uri, "%s%s@%s", chipset != NULL ? "htp-sim:" : "cpu", chipset != NULL ? chipset->sm : "",
                     id);
    char *text = nd_strbuf_take(&uri), *path = nd_path_join(trial->folder, "trial.h5");
    enum nd_status status =
        text != NULL && path != NULL ? nd_device_parse(text, &device, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = run_device(trial, &device, path, &out->failure, err);
    if (status == ND_OK && out->failure.id == 0)
        status = read_capture(path, out, err);
    nd_device_deinit(&device);
    free(text);
    free(path);
    return status;
}
