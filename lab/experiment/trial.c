/* Runs models that were made to order on the device whose arithmetic is in question, and keeps what it
 * answered. */
#include "lab/experiment/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "npudiff/capture/capture.h"

enum { MAX_INPUTS = 4 };

static enum nd_status input_bytes(const struct nd_bench_trial *trial, size_t i, size_t *sample_bytes,
                                  size_t *all_bytes, struct nd_error *err)
{
    const struct nd_trial_input *input = &trial->inputs[i];
    ND_TRY(nd_shape_size_bytes(&input->shape, input->dtype, sample_bytes, err));
    return nd_size_mul(*sample_bytes, trial->n_samples, all_bytes) ? ND_OK : nd_fail_memory(err);
}

/* What a trial is known by: model, inputs, device, runtime. */
static enum nd_status name_trial(const struct nd_bench *bench, const struct nd_bench_trial *trial,
                                 const char *model_path, char key[ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    enum nd_status status = nd_sha256_file(model_path, key, err);
    nd_strbuf_printf(&text, "%s\n%s\n%s\n%s\n%zu\n", key, bench->device->uri, bench->device->runtime.id,
                     trial->output, trial->n_samples);
    for (size_t i = 0; status == ND_OK && i < trial->n_inputs; i++) {
        size_t sample_bytes, all_bytes;
        status = input_bytes(trial, i, &sample_bytes, &all_bytes, err);
        if (status == ND_OK)
            nd_sha256_bytes(trial->inputs[i].data, all_bytes, key);
        nd_strbuf_printf(&text, "%s %s\n", trial->inputs[i].name, key);
    }
    if (status == ND_OK && text.failed)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        nd_sha256_bytes(text.text, text.len, key);
    return status;
}

static enum nd_status fill_probe(const struct nd_bench_trial *trial, struct nd_probe_input inputs[MAX_INPUTS],
                                 struct nd_error *err)
{
    for (size_t i = 0; i < trial->n_inputs; i++) {
        size_t all_bytes;
        inputs[i] = (struct nd_probe_input){.name = nd_strdup(trial->inputs[i].name),
                                            .dtype = trial->inputs[i].dtype,
                                            .shape = trial->inputs[i].shape};
        ND_TRY(input_bytes(trial, i, &inputs[i].sample_bytes, &all_bytes, err));
        inputs[i].data = nd_tensor_alloc(all_bytes);
        ND_TRY_MEMORY(inputs[i].name != NULL && inputs[i].data != NULL, err);
        memcpy(inputs[i].data, trial->inputs[i].data, all_bytes);
    }
    return ND_OK;
}

/* A device that is evaluated here is for one kind of models: to be asked about others is no error. */
static bool refuse(const struct nd_bench *bench, const struct nd_model *model, struct nd_trial_result *out)
{
    enum nd_device_kind kind = bench->device->kind;
    bool is_evaluated = nd_device_is_reference(kind) || kind == ND_DEVICE_EMULATED;
    if (!is_evaluated || (nd_model_n_layers(model) > 0) == (kind != ND_DEVICE_FLOAT64))
        return false;
    out->has_failed = true;
    snprintf(out->stage, sizeof out->stage, "model");
    snprintf(out->failure.message, sizeof out->failure.message, "the device is for %s models",
             kind == ND_DEVICE_FLOAT64 ? "float" : "quantised");
    return true;
}

/* out is only written where there is nothing to capture. */
static enum nd_status run_model(const struct nd_bench *bench, const struct nd_bench_trial *trial,
                                const char *model_path, const char *capture_path, struct nd_trial_result *out,
                                struct nd_error *err)
{
    struct nd_probe_input inputs[MAX_INPUTS] = {{0}};
    char name[] = "trial", source[] = "made to order";
    const struct nd_probe probe = {.name = name,
                                   .source = source,
                                   .n_samples = trial->n_samples,
                                   .n_inputs = trial->n_inputs,
                                   .inputs = inputs};
    const struct nd_probe *const probes[] = {&probe};
    struct nd_capture_options options = bench->options;
    struct nd_capture_outcome outcome;
    ND_CLEANUP(nd_model_destroy) struct nd_model *model = NULL;
    options.tensors = "all";
    options.n_repeats = 2;         /* a device that answers otherwise the second time has no arithmetic */
    options.allow_fallback = true; /* where it ran is read back */
    options.replace = true;        /* one that was left unfinished or failed */
    enum nd_status status = nd_model_load(model_path, &model, err);
    if (status == ND_OK)
        status = fill_probe(trial, inputs, err);
    if (status == ND_OK && !refuse(bench, model, out))
        status = nd_capture_run(&(struct nd_workload){model, bench->device, probes, 1}, capture_path, &options,
                                &outcome, err);
    for (size_t i = 0; i < MAX_INPUTS; i++) {
        free(inputs[i].name);
        free(inputs[i].data);
    }
    return status;
}

/* ---- reading what came out ---- */

static void read_failure(const struct nd_capture *capture, struct nd_trial_result *out)
{
    const char *stage = nd_capture_string(capture, "failure", "stage");
    const char *message = nd_capture_string(capture, "failure", "message");
    out->has_failed = true;
    snprintf(out->stage, sizeof out->stage, "%s", stage != NULL ? stage : "");
    snprintf(out->failure.message, sizeof out->failure.message, "%s",
             message != NULL ? message : "the device stopped early");
}

static enum nd_status read_output(const struct nd_bench *bench, const struct nd_capture *capture, size_t tensor,
                                  struct nd_trial_result *out, struct nd_error *err)
{
    const struct nd_tensor *e = nd_capture_tensor(capture, tensor);
    size_t n_samples = nd_capture_probe(capture, 0)->n_samples, sample_bytes, all_bytes;
    out->dtype = e->dtype;
    out->shape = e->shape;
    snprintf(out->provider, sizeof out->provider, "%s", nd_capture_tensor_provider(capture, tensor));
    out->is_on_npu =
        !nd_device_is_npu(bench->device->kind) || strcmp(out->provider, "QNNExecutionProvider") == 0;
    ND_TRY(nd_shape_size_bytes(&e->shape, e->dtype, &sample_bytes, err));
    ND_TRY_MEMORY(nd_size_mul(sample_bytes, n_samples, &all_bytes), err);
    out->n = all_bytes / nd_dtype_size_bytes(e->dtype);
    ND_FREED void *bytes = nd_tensor_alloc(all_bytes);
    out->x = nd_calloc(out->n, sizeof *out->x);
    ND_TRY_MEMORY(bytes != NULL && out->x != NULL, err);
    ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, 0, tensor}, 0, n_samples, bytes, err));
    nd_array_load(e->dtype, bytes, out->n, out->x);
    return ND_OK;
}

/* Whether a sample that was run again came out otherwise. */
static bool is_unstable(const struct nd_capture *capture, size_t tensor)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, 0);
    for (size_t i = 0; i < probe->n_samples; i++)
        for (size_t r = 1; r < probe->n_repeats; r++)
            if (!nd_digest_equal(nd_capture_digest(capture, 0, tensor, i, 0),
                                 nd_capture_digest(capture, 0, tensor, i, r)))
                return true;
    return false;
}

static enum nd_status read_capture(const struct nd_bench *bench, const struct nd_bench_trial *trial,
                                   const char *path, struct nd_trial_result *out, struct nd_error *err)
{
    ND_CLEANUP(nd_capture_close) struct nd_capture *capture = NULL;
    ND_TRY(nd_capture_open(path, &capture, err));
    size_t tensor = nd_capture_find_tensor(capture, trial->output);
    if (nd_capture_state(capture) != ND_CAPTURE_COMPLETE)
        read_failure(capture, out);
    else if (tensor == SIZE_MAX)
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, trial->output, "'%s' has no tensor '%s'", path,
                       trial->output);
    else
        ND_TRY(read_output(bench, capture, tensor, out, err));
    if (out->x != NULL)
        out->is_unstable = is_unstable(capture, tensor);
    return ND_OK;
}

/* Whether a trial that was kept can be used: a damaged one is run again. */
static bool is_kept(const struct nd_bench *bench, const struct nd_bench_trial *trial, const char *path,
                    struct nd_trial_result *out)
{
    if (!nd_path_exists(path))
        return false;
    if (read_capture(bench, trial, path, out, NULL) == ND_OK && !out->has_failed)
        return true;
    nd_trial_deinit(out);
    return false;
}

enum nd_status nd_trial_run(struct nd_bench *bench, const struct nd_bench_trial *trial,
                            struct nd_trial_result *out, struct nd_error *err)
{
    struct nd_trial_result result = {0};
    char key[ND_SHA256_HEX_BYTES], name[ND_SHA256_HEX_BYTES + 8];
    char *capture_path = NULL, *model_path = nd_path_join(bench->folder, "trial.onnx");
    if (trial->n_inputs > MAX_INPUTS)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "a trial has %zu inputs; at most %d are possible",
                       trial->n_inputs, MAX_INPUTS);
    enum nd_status status =
        model_path != NULL ? nd_compose_write(trial->model, model_path, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = name_trial(bench, trial, model_path, key, err);
    if (status == ND_OK) {
        snprintf(name, sizeof name, "%s.h5", key);
        capture_path = nd_path_join(bench->folder, name);
        status = capture_path != NULL ? ND_OK : nd_fail_memory(err);
    }
    if (status == ND_OK && is_kept(bench, trial, capture_path, &result)) {
        bench->n_kept++;
    } else if (status == ND_OK) {
        status = run_model(bench, trial, model_path, capture_path, &result, err);
        if (status == ND_OK && !result.has_failed)
            status = read_capture(bench, trial, capture_path, &result, err);
        bench->n_run++;
    }
    bench->n_unstable += status == ND_OK && result.is_unstable;
    free(model_path);
    free(capture_path);
    if (status == ND_OK)
        *out = result;
    else
        nd_trial_deinit(&result);
    return status;
}

void nd_trial_deinit(struct nd_trial_result *result)
{
    free(result->x);
    *result = (struct nd_trial_result){0};
}
