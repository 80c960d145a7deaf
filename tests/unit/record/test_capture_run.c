#include "support/main.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/capture/capture.h"
#include "npudiff/devices/device.h"
#include "support/scratch.h"

/* Captures with the real agent and the newest runtime that is installed. */
struct bench {
    struct nd_model *model;
    struct nd_device device;
    struct nd_probe *probe;
    struct nd_capture_options options;
    struct nd_capture_outcome outcome;
    char *path; /* of the capture */
    char *temporary;
};

static void bench_open(struct bench *bench, const char *model, const char *probe)
{
    struct nd_error err = {0};
    *bench = (struct bench){.path = in_folder("out.h5"), .temporary = in_folder("tmp")};
    assert_non_null(getenv("GOLDEN"));
    char *path = nd_path_join(getenv("GOLDEN"), model);
    expect_ok(nd_model_load(path, &bench->model, &err), &err);
    free(path);
    expect_ok(nd_device_parse("cpu", &bench->device, &err), &err);
    const struct nd_model_io *input = nd_model_input(bench->model, 0);
    const struct nd_probe_target target = {.name = input->name,
                                           .dtype = input->dtype,
                                           .shape = input->shape,
                                           .quant = input->quant,
                                           .quant_dtype = input->quant_dtype};
    expect_ok(nd_probe_create(probe, &target, 1, &bench->probe, &err), &err);
    nd_capture_options_init(&bench->options);
    assert_int_equal(nd_dir_make(bench->temporary, NULL), ND_OK);
    setenv("TMPDIR", bench->temporary, 1);
}

static enum nd_status bench_run(struct bench *bench, struct nd_error *err)
{
    const struct nd_probe *probes[] = {bench->probe};
    return nd_capture_run(&(struct nd_workload){bench->model, &bench->device, probes, 1}, bench->path,
                          &bench->options, &bench->outcome, err);
}

static size_t n_entries(const char *path)
{
    size_t n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static void bench_close(struct bench *bench)
{
    assert_int_equal(n_entries(bench->temporary), 0); /* however it ended */
    unsetenv("TMPDIR");
    nd_model_destroy(&bench->model);
    nd_device_deinit(&bench->device);
    nd_probe_destroy(&bench->probe);
    unlink(bench->path);
    free(bench->path);
    free(bench->temporary);
}

struct stages {
    size_t n_calls;
    char last[32];
    size_t samples_done;
    size_t samples_total;
};

static void note_progress(void *context, const struct nd_capture_progress *progress)
{
    struct stages *stages = context;
    stages->n_calls++;
    assert_string_equal(progress->device, "cpu");
    assert_true(progress->samples_done <= progress->samples_total);
    assert_true(progress->elapsed_s >= 0);
    if (strcmp(progress->stage, "write") != 0) {
        assert_true(progress->samples_done >= stages->samples_done);
        stages->samples_done = progress->samples_done;
    }
    stages->samples_total = progress->samples_total;
    snprintf(stages->last, sizeof stages->last, "%s", progress->stage);
}

static void capture_on_the_cpu_is_complete(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    struct stages stages = {0};
    struct nd_capture *capture = NULL;
    bench_open(&bench, "models/cnn.w8a8.onnx", "uniform:3");
    bench.options.progress = note_progress;
    bench.options.progress_context = &stages;
    bench.options.n_repeats = 2;
    expect_ok(bench_run(&bench, &err), &err);
    assert_false(bench.outcome.has_failed);
    assert_int_equal(bench.outcome.samples_done, 3);
    assert_int_equal(bench.outcome.samples_total, 3);
    assert_true(stages.n_calls > 1);
    assert_int_equal(stages.samples_total, 3);
    assert_int_equal(stages.samples_done, 3);
    assert_string_equal(stages.last, "write");
    expect_ok(nd_capture_open(bench.path, &capture, &err), &err);
    assert_int_equal(nd_capture_state(capture), ND_CAPTURE_COMPLETE);
    assert_string_equal(nd_capture_string(capture, "device", "uri"), bench.device.uri);
    assert_string_equal(nd_capture_string(capture, "device", "kind"), "cpu");
    assert_string_equal(nd_capture_string(capture, "runtime", "ort_version"), bench.device.runtime.ort_version);
    assert_string_equal(nd_capture_string(capture, "runtime", "optimisation"), "disable");
    assert_string_equal(nd_capture_string(capture, "model", "sha256"), nd_model_sha256(bench.model));
    assert_int_equal(nd_capture_n_tensors(capture), nd_model_n_tensors(bench.model));
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        assert_string_equal(nd_capture_tensor_provider(capture, e), "CPUExecutionProvider");
        for (size_t s = 0; s < 3; s++)
            assert_true(nd_digest_equal(nd_capture_digest(capture, 0, e, s, 0),
                                        nd_capture_digest(capture, 0, e, s, 1)));
    }
    nd_capture_close(&capture);
    bench_close(&bench);
}

/* The device is only looked at: what it computes must not depend on what is exposed. */
static void exposing_tensors_does_not_change_the_outputs(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    static const char *const tensors[] = {"all", "outputs"};
    struct nd_digest digests[2];
    bench_open(&bench, "models/cnn.w8a8.onnx", "ramp");
    for (size_t i = 0; i < 2; i++) {
        struct nd_capture *capture = NULL;
        bench.options.tensors = tensors[i];
        bench.options.replace = true;
        expect_ok(bench_run(&bench, &err), &err);
        expect_ok(nd_capture_open(bench.path, &capture, &err), &err);
        size_t tensor = nd_capture_find_tensor(capture, "logits");
        assert_true(tensor != SIZE_MAX);
        digests[i] = nd_capture_digest(capture, 0, tensor, 0, 0);
        nd_capture_close(&capture);
    }
    assert_true(nd_digest_equal(digests[0], digests[1]));
    bench_close(&bench);
}

/* "none" leaves the file untouched, so the output is what an application gets: floats. */
static void untouched_model_gives_its_own_outputs(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    struct nd_capture *capture = NULL;
    bench_open(&bench, "models/cnn.w8a8.onnx", "zeros");
    bench.options.tensors = "none";
    bench.options.profile = true;
    expect_ok(bench_run(&bench, &err), &err);
    assert_false(bench.outcome.has_failed);
    expect_ok(nd_capture_open(bench.path, &capture, &err), &err);
    assert_int_equal(nd_capture_n_tensors(capture), 1);
    assert_int_equal(nd_capture_tensor(capture, 0)->dtype, ND_DTYPE_F32);
    assert_int_equal(nd_capture_tensor(capture, 0)->quant.n, 0);
    bool has_profile = false;
    for (size_t i = 0; i < nd_capture_n_logs(capture); i++)
        has_profile = has_profile || strcmp(nd_capture_log_name(capture, i), "profile") == 0;
    assert_true(has_profile);
    nd_capture_close(&capture);
    bench_close(&bench);
}

/* Each in a session that shows nothing else: of all tensors, and of one alone. */
static void prefixes_give_the_same_qvalues(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    struct nd_capture *all = NULL, *prefixes = NULL;
    struct stages stages = {0};
    bench_open(&bench, "models/cnn.w8a8.onnx", "uniform:2");
    expect_ok(bench_run(&bench, &err), &err);
    expect_ok(nd_capture_open(bench.path, &all, &err), &err);
    assert_string_equal(nd_capture_string(all, "runtime", "edges_in"), "one session");
    bench.options.replace = true;
    bench.options.prefixes = true;
    bench.options.profile = true;
    bench.options.progress = note_progress;
    bench.options.progress_context = &stages;
    expect_ok(bench_run(&bench, &err), &err);
    assert_false(bench.outcome.has_failed);
    expect_ok(nd_capture_open(bench.path, &prefixes, &err), &err);
    assert_string_equal(nd_capture_string(prefixes, "runtime", "edges_in"), "prefixes");
    size_t n = nd_capture_n_tensors(all);
    assert_int_equal(nd_capture_n_tensors(prefixes), n);
    assert_int_equal(stages.samples_done, 2 * n);
    for (size_t e = 0; e < n; e++) {
        assert_string_equal(nd_capture_tensor(prefixes, e)->name, nd_capture_tensor(all, e)->name);
        assert_string_equal(nd_capture_tensor_provider(prefixes, e), "CPUExecutionProvider");
        for (size_t s = 0; s < 2; s++)
            assert_true(
                nd_digest_equal(nd_capture_digest(prefixes, 0, e, s, 0), nd_capture_digest(all, 0, e, s, 0)));
    }
    /* The placement is that of the last tensor's session, not of one that holds a single node. */
    assert_true(nd_capture_n_nodes(prefixes) > n);
    nd_capture_close(&prefixes);
    bench.options.progress = NULL;
    bench.options.tensors = "logits";
    expect_ok(bench_run(&bench, &err), &err);
    expect_ok(nd_capture_open(bench.path, &prefixes, &err), &err);
    assert_string_equal(nd_capture_string(prefixes, "runtime", "edges_in"), "prefixes");
    assert_true(nd_digest_equal(nd_capture_digest(prefixes, 0, 0, 1, 0),
                                nd_capture_digest(all, 0, nd_capture_find_tensor(all, "logits"), 1, 0)));
    nd_capture_close(&prefixes);
    nd_capture_close(&all);
    bench_close(&bench);
}

static void failed_prefix_is_named(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    struct nd_capture *capture = NULL;
    char want[128];
    bench_open(&bench, "models/vit.w8a8.onnx", "uniform:100000");
    bench.options.prefixes = true;
    /* On a busy machine the first prefix begins only after a longer time. */
    for (bench.options.time_limit_s = 2; bench.options.time_limit_s < 200; bench.options.time_limit_s *= 4) {
        unlink(bench.path);
        expect_ok(bench_run(&bench, &err), &err);
        if (strstr(bench.outcome.failure.message, "tensor ") != NULL)
            break;
    }
    assert_true(bench.outcome.has_failed);
    assert_int_equal(bench.outcome.failure.id, ND_E_DEVICE_TIME);
    snprintf(want, sizeof want, "tensor 'logits': device 'cpu' was stopped after its time limit of %g s",
             bench.options.time_limit_s);
    assert_string_equal(bench.outcome.failure.message, want);
    expect_ok(nd_capture_open(bench.path, &capture, &err), &err);
    assert_int_equal(nd_capture_state(capture), ND_CAPTURE_FAILED);
    assert_string_equal(nd_capture_string(capture, "failure", "edge"), "logits");
    nd_capture_close(&capture);
    bench_close(&bench);
}

/* Before any session there is no tensor to blame. */
static void failure_before_the_first_prefix_names_none(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    struct nd_capture *capture = NULL;
    bench_open(&bench, "models/cnn.w8a8.onnx", "zeros");
    bench.options.prefixes = true;
    free(bench.device.runtime.ort_library);
    bench.device.runtime.ort_library = nd_strdup("/does/not/exist.so");
    expect_ok(bench_run(&bench, &err), &err);
    assert_true(bench.outcome.has_failed);
    assert_string_equal(bench.outcome.stage, "load");
    assert_null(strstr(bench.outcome.failure.message, "edge"));
    expect_ok(nd_capture_open(bench.path, &capture, &err), &err);
    assert_null(nd_capture_string(capture, "failure", "edge"));
    nd_capture_close(&capture);
    bench_close(&bench);
}

/* A relative TMPDIR once sent the agent to look for its model in the wrong folder. */
static void temporary_folder_may_be_relative(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    char *here = getcwd(NULL, 0);
    bench_open(&bench, "models/cnn.w8a8.onnx", "zeros");
    assert_int_equal(chdir(folder), 0);
    setenv("TMPDIR", "tmp", 1);
    enum nd_status status = bench_run(&bench, &err);
    assert_int_equal(chdir(here), 0);
    expect_ok(status, &err);
    assert_false(bench.outcome.has_failed);
    bench_close(&bench);
    free(here);
}

static void two_probes_of_one_name_are_refused(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    bench_open(&bench, "models/cnn.w8a8.onnx", "zeros");
    const struct nd_probe *probes[] = {bench.probe, bench.probe};
    const struct nd_workload workload = {bench.model, &bench.device, probes, 2};
    assert_int_equal(nd_capture_run(&workload, bench.path, &bench.options, &bench.outcome, &err), ND_ERR_USAGE);
    assert_int_equal(err.id, ND_E_OPTION_CONFLICT);
    assert_string_equal(err.message, "two probes are called 'zeros' ('zeros' and 'zeros')");
    assert_false(nd_path_exists(bench.path));
    bench_close(&bench);
}

static void unfit_options_are_refused_before_anything_runs(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    bench_open(&bench, "models/cnn.w8a8.onnx", "zeros");
    bench.options.deflate_level = 10;
    assert_int_equal(bench_run(&bench, &err), ND_ERR_USAGE);
    assert_int_equal(err.id, ND_E_OPTION_VALUE);
    bench.options.deflate_level = 0;
    bench.options.prefixes = true;
    bench.options.tensors = "none";
    assert_int_equal(bench_run(&bench, &err), ND_ERR_USAGE);
    assert_int_equal(err.id, ND_E_OPTION_CONFLICT);
    bench.options.prefixes = false;
    bench.options.tensors = "no such tensor";
    assert_int_equal(bench_run(&bench, &err), ND_ERR_NOT_FOUND);
    assert_int_equal(err.id, ND_E_MODEL_NO_TENSOR);
    bench.options.tensors = NULL;
    assert_int_equal(nd_file_put(bench.path, "mine", 4, NULL), ND_OK);
    assert_int_equal(bench_run(&bench, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(bench.path, 100, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "mine");
    free(text);
    bench_close(&bench);
}

static void missing_agent_is_an_error(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    bench_open(&bench, "models/cnn.w8a8.onnx", "zeros");
    bench.options.agent = "/does/not/exist";
    assert_int_equal(bench_run(&bench, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_DEVICE_AGENT);
    assert_string_equal(err.message, "cannot find the agent '/does/not/exist' to run devices with");
    assert_false(nd_path_exists(bench.path));
    bench_close(&bench);
}

/* A limit is the device's failure: there is a capture that tells of it, with what was done until then. */
static void time_limit_gives_a_failed_capture(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    struct nd_capture *capture = NULL;
    bench_open(&bench, "models/vit.w8a8.onnx", "uniform:100000");
    bench.options.time_limit_s = 0.3;
    expect_ok(bench_run(&bench, &err), &err);
    assert_true(bench.outcome.has_failed);
    assert_int_equal(bench.outcome.failure.id, ND_E_DEVICE_TIME);
    assert_string_equal(bench.outcome.failure.message,
                        "device 'cpu' was stopped after its time limit of 0.3 s");
    assert_true(bench.outcome.samples_done < bench.outcome.samples_total);
    assert_int_equal(bench.outcome.samples_total, 100000);
    expect_ok(nd_capture_open(bench.path, &capture, &err), &err);
    assert_int_equal(nd_capture_state(capture), ND_CAPTURE_FAILED);
    assert_int_equal(nd_capture_probe(capture, 0)->n_samples, bench.outcome.samples_done);
    assert_string_equal(nd_capture_string(capture, "failure", "message"), bench.outcome.failure.message);
    assert_string_equal(nd_capture_string(capture, "failure", "stage"), bench.outcome.stage);
    nd_capture_close(&capture);
    bench_close(&bench);
}

static void runtime_that_cannot_be_loaded_gives_a_failed_capture(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    struct nd_capture *capture = NULL;
    bench_open(&bench, "models/cnn.w8a8.onnx", "zeros");
    free(bench.device.runtime.ort_library);
    bench.device.runtime.ort_library = nd_strdup("/does/not/exist.so");
    expect_ok(bench_run(&bench, &err), &err);
    assert_true(bench.outcome.has_failed);
    assert_int_equal(bench.outcome.failure.id, ND_E_RUNTIME_LOAD);
    assert_string_equal(bench.outcome.stage, "load");
    assert_int_equal(bench.outcome.samples_done, 0);
    expect_ok(nd_capture_open(bench.path, &capture, &err), &err);
    assert_int_equal(nd_capture_state(capture), ND_CAPTURE_FAILED);
    nd_capture_close(&capture);
    bench_close(&bench);
}

static void folder_that_is_not_there_gives_no_capture(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    bench_open(&bench, "models/cnn.w8a8.onnx", "zeros");
    free(bench.path);
    bench.path = in_folder("not/there/out.h5");
    assert_int_equal(bench_run(&bench, &err), ND_ERR_IO);
    assert_non_null(strstr(err.message, "not/there"));
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capture_on_the_cpu_is_complete),
        cmocka_unit_test(exposing_tensors_does_not_change_the_outputs),
        cmocka_unit_test(untouched_model_gives_its_own_outputs),
        cmocka_unit_test(prefixes_give_the_same_qvalues),
        cmocka_unit_test(failed_prefix_is_named),
        cmocka_unit_test(failure_before_the_first_prefix_names_none),
        cmocka_unit_test(temporary_folder_may_be_relative),
        cmocka_unit_test(two_probes_of_one_name_are_refused),
        cmocka_unit_test(unfit_options_are_refused_before_anything_runs),
        cmocka_unit_test(missing_agent_is_an_error),
        cmocka_unit_test(time_limit_gives_a_failed_capture),
        cmocka_unit_test(runtime_that_cannot_be_loaded_gives_a_failed_capture),
        cmocka_unit_test(folder_that_is_not_there_gives_no_capture),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
