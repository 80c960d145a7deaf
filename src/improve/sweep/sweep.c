/* Every setting captured, and all of them compared with the device as it is. */
#include <math.h>
#include <stdio.h>

#include "compare/engine/engine.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/compare/latency.h"
#include "npudiff/improve/sweep.h"
#include "record/sessions/capture_run.h"

struct nd_sweep_job {
    const struct nd_sweep_options *options;
    const struct nd_model *model;
    struct nd_sweep *result;
    struct nd_device *devices; /* [n_settings] */
    size_t n_devices;          /* that were parsed */
    char *folder;              /* for what nobody keeps */
};

struct run {
    struct nd_sweep_job *job;
    struct nd_capture **captures; /* [n_settings] */
    struct nd_capture *floats;
    size_t n_done;
};

/* ---- capturing ---- */

static enum nd_status tell(const struct nd_sweep_job *job, const char *stage, size_t n_done, size_t n_total,
                           struct nd_error *err)
{
    if (job->options->is_cancelled != NULL && job->options->is_cancelled(job->options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "cancelled");
    if (job->options->progress != NULL)
        job->options->progress(job->options->progress_context, stage, n_done, n_total);
    return ND_OK;
}

/* A device that gives no values is no error: *failure says why, and *out stays NULL. */
static enum nd_status capture(const struct nd_sweep_job *job, const struct nd_workload *work, const char *name,
                              struct nd_capture **out, struct nd_error *failure, struct nd_error *err)
{
    struct nd_capture_options how;
    ND_FREED char *path = nd_path_join(job->folder, name);
    nd_capture_options_init(&how);
    how.skips_untouched = true;
    how.n_repeats = job->options->n_repeats;
    how.agent = job->options->agent;
    how.is_cancelled = job->options->is_cancelled;
    how.cancel_context = job->options->cancel_context;
    return path != NULL ? nd_capture_run_and_open(work, path, &how, out, failure, err) : nd_fail_memory(err);
}

static enum nd_status capture_floats(struct run *run, struct nd_error *err)
{
    const struct nd_sweep_options *options = run->job->options;
    ND_CLEANUP(nd_device_deinit) struct nd_device reference = {0};
    struct nd_error failure = {0};
    if (options->float_model == NULL)
        return ND_OK;
    ND_TRY(nd_device_parse("float64", &reference, err));
    const struct nd_workload work = {options->float_model, &reference, options->probes, options->n_probes};
    enum nd_status status = capture(run->job, &work, "float.h5", &run->floats, &failure, err);
    if (status == ND_OK && run->floats == NULL)
        status = nd_capture_pass_on(&failure, options->float_model, &reference, err);
    return status;
}

static enum nd_status capture_all(struct run *run, struct nd_error *err)
{
    struct nd_sweep_job *job = run->job;
    ND_TRY(capture_floats(run, err));
    for (size_t i = 0; i < job->result->n_settings; i++) {
        struct nd_sweep_setting *setting = &job->result->settings[i];
        const struct nd_workload work = {job->model, &job->devices[i], job->options->probes,
                                         job->options->n_probes};
        struct nd_error failure = {0};
        char name[32];
        snprintf(name, sizeof name, "setting%zu.h5", i);
        ND_TRY(tell(job, "capture", i, job->result->n_settings, err));
        ND_TRY(capture(job, &work, name, &run->captures[i], &failure, err));
        if (run->captures[i] != NULL)
            continue;
        if (i == 0)
            return nd_capture_pass_on(&failure, job->model, &job->devices[0], err);
        setting->failure = nd_strdup(failure.message);
        *(job->options->n_variations > 0 ? &job->result->n_failed : &job->result->n_refused) += 1;
        ND_TRY_MEMORY(setting->failure != NULL, err);
    }
    return ND_OK;
}

/* ---- comparing ---- */

/* Two captures at a time, so that names of tensors and labels never mix. */
static enum nd_status compare(const struct run *run, const struct nd_capture *ref,
                              const struct nd_capture *test, const char *tensors, struct nd_comparison **out,
                              struct nd_error *err)
{
    const struct nd_capture *const both[] = {ref, test};
    struct nd_compare_options how = nd_compare_options_default();
    how.allow_different_models = true; /* the float model */
    how.tensors = tensors;
    how.n_worst = 0;
    how.n_threads = run->job->options->n_threads;
    how.is_cancelled = run->job->options->is_cancelled;
    how.cancel_context = run->job->options->cancel_context;
    return nd_compare_captures(both, 2, &how, out, err);
}

static enum nd_status read_differences(const struct nd_comparison *comparison, struct nd_sweep_setting *setting,
                                       struct nd_error *err)
{
    double n_values = 0, n_differing = 0;
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &comparison->tensors[e];
        const struct nd_difference *difference = &tensor->pairs[0].total.difference;
        if (tensor->pairs[0].total.coverage == ND_COVERAGE_NONE)
            continue;
        bool differs = difference->n_samples_differing > 0;
        setting->n_tensors++;
        setting->n_different += differs;
        if (differs && setting->first == NULL) {
            setting->first = nd_strdup(tensor->name);
            ND_TRY_MEMORY(setting->first != NULL, err);
        }
        if (!tensor->is_model_output)
            continue;
        n_values += (double)difference->n_elems;
        n_differing += (double)difference->n_differing;
        setting->output_lsb =
            difference->max_lsb > setting->output_lsb ? difference->max_lsb : setting->output_lsb;
    }
    setting->output_share = n_values > 0 ? n_differing / n_values : 0;
    return ND_OK;
}

/* Of the output that has classes. device: 1, the test, or 0. */
static void read_classes(const struct nd_comparison *comparison, size_t device,
                         struct nd_sweep_setting *setting)
{
    const struct nd_top1 *of_classes = nd_comparison_top1(comparison);
    for (size_t t = 0; of_classes != NULL && t < comparison->n_top1; t++) {
        const struct nd_top1 *top1 = &comparison->top1[t];
        if (top1->tensor != of_classes->tensor)
            continue;
        if (top1->devices[device].exists && top1->has_labels) {
            setting->n_labelled += top1->devices[device].n_samples;
            setting->n_right += top1->devices[device].n_correct;
        }
        if (device == 1 && top1->pairs[0].exists)
            setting->n_changed += top1->pairs[0].n_samples - top1->pairs[0].n_agree;
    }
}

static enum nd_status hold_against_floats(const struct run *run, size_t i, struct nd_error *err)
{
    ND_CLEANUP(nd_comparison_destroy) struct nd_comparison *comparison = NULL;
    if (run->floats == NULL)
        return ND_OK;
    ND_TRY(compare(run, run->floats, run->captures[i], "outputs", &comparison, err));
    run->job->result->settings[i].sqnr_db = nd_comparison_sqnr_db(comparison, 0);
    return ND_OK;
}

static enum nd_status read_setting(const struct run *run, size_t i, struct nd_error *err)
{
    struct nd_sweep *result = run->job->result;
    struct nd_sweep_setting *setting = &result->settings[i];
    struct nd_latency latency;
    ND_CLEANUP(nd_comparison_destroy) struct nd_comparison *comparison = NULL;
    if (setting->failure != NULL)
        return ND_OK;
    /* The device as it is beside itself: for its tensors and classes. */
    ND_TRY(compare(run, run->captures[0], run->captures[i], NULL, &comparison, err));
    ND_TRY(read_differences(comparison, setting, err));
    read_classes(comparison, 1, setting);
    if (i == 0) {
        result->environment = nd_strdup(comparison->devices[0].environment);
        ND_TRY_MEMORY(result->environment != NULL, err);
    }
    result->n_changing += setting->n_different > 0;
    ND_TRY(nd_latency_of_capture(run->captures[i], 0, NULL, &latency, err));
    setting->median_us = latency.n_timed > 0 ? latency.median_us : latency.first_us;
    return hold_against_floats(run, i, err);
}

/* Runs and compares them. */
static enum nd_status nd_sweep_run(struct nd_sweep_job *job, struct nd_error *err)
{
    struct run run = {.job = job, .captures = nd_calloc(job->result->n_settings, sizeof(void *))};
    enum nd_status status = run.captures != NULL ? capture_all(&run, err) : nd_fail_memory(err);
    for (size_t i = 0; i < job->result->n_settings && status == ND_OK; i++) {
        status = tell(job, "compare", i, job->result->n_settings, err);
        if (status == ND_OK)
            status = read_setting(&run, i, err);
    }
    for (size_t i = 0; i < job->result->n_settings && run.captures != NULL; i++)
        nd_capture_close(&run.captures[i]);
    nd_capture_close(&run.floats);
    free(run.captures);
    return status;
}

/* What a sweep runs. */

/* Of the options that a URI may give (src/devices/device.c) those that npudiff/compare/config.h says can change
 * bits, and one that is about times alone; each with the values that Qualcomm's provider documents and that
 * differ from its defaults. htp_graph_finalization_optimization_mode is 0, offload_graph_io_quantization and
 * enable_htp_fp16_precision are 1, optimisation is "all" (npudiff's defaults). */
const char *const *nd_sweep_defaults(enum nd_device_kind kind)
{
    static const char *const of_npu[] = {"htp_graph_finalization_optimization_mode=1,2,3",
                                         "vtcm_mb=2,4,8",
                                         "enable_htp_fp16_precision=0",
                                         "offload_graph_io_quantization=0",
                                         "optimisation=disable,basic",
                                         "htp_performance_mode=burst",
                                         NULL};
    static const char *const of_cpu[] = {"optimisation=disable,basic,extended", "threads=1,2", NULL};
    static const char *const none[] = {NULL};
    return nd_device_is_npu(kind) ? of_npu : kind == ND_DEVICE_CPU ? of_cpu : none;
}

/* The URI with one more option. The caller frees it. */
static char *with_option(const char *uri, const char *option, const char *value)
{
    return nd_text("%s%c%s=%s", uri, strchr(uri, '?') != NULL ? '&' : '?', option, value);
}

/* By the name that captures give the option. */
static enum nd_config_effect effect_of(const char *option)
{
    bool is_ours = strcmp(option, "optimisation") == 0 || strcmp(option, "threads") == 0;
    ND_FREED char *key = nd_text("runtime.%s%s", is_ours ? "" : "option_", option);
    return key != NULL ? nd_config_effect_of(key) : ND_CONFIG_UNKNOWN;
}

/* option and value NULL: the device as it is. */
static enum nd_status add_setting(struct nd_sweep_job *job, const char *option, const char *value,
                                  struct nd_error *err)
{
    const char *uri = job->options->device;
    struct nd_sweep *result = job->result;
    size_t n = result->n_settings;
    struct nd_sweep_setting *settings = realloc(result->settings, (n + 1) * sizeof *settings);
    if (settings != NULL)
        result->settings = settings;
    struct nd_device *devices = realloc(job->devices, (n + 1) * sizeof *devices);
    if (devices != NULL)
        job->devices = devices;
    ND_TRY_MEMORY(settings != NULL && devices != NULL, err);
    settings[n] =
        (struct nd_sweep_setting){.option = option != NULL ? nd_strdup(option) : NULL,
                                  .value = value != NULL ? nd_strdup(value) : NULL,
                                  .uri = option != NULL ? with_option(uri, option, value) : nd_strdup(uri),
                                  .sqnr_db = NAN,
                                  .median_us = NAN};
    result->n_settings = n + 1;
    if (settings[n].uri == NULL ||
        (option != NULL && (settings[n].option == NULL || settings[n].value == NULL)))
        return nd_fail_memory(err);
    ND_TRY(nd_device_parse(settings[n].uri, &devices[n], err));
    job->n_devices = n + 1;
    settings[n].effect = option != NULL ? effect_of(option) : ND_CONFIG_UNKNOWN;
    return ND_OK;
}

/* "OPTION=VALUE,VALUE" */
static enum nd_status add_variation(struct nd_sweep_job *job, const char *variation, struct nd_error *err)
{
    ND_FREED char *text = nd_strdup(variation);
    ND_TRY_MEMORY(text != NULL, err);
    char *equals = strchr(text, '='), *rest = NULL;
    size_t n_values = 0;
    if (equals != NULL && equals > text) {
        *equals = '\0';
        for (char *value = strtok_r(equals + 1, ",", &rest); value != NULL;
             value = strtok_r(NULL, ",", &rest), n_values++)
            ND_TRY(add_setting(job, text, value, err));
    }
    if (n_values == 0)
        return nd_fail(err, ND_E_OPTION_VALUE, variation, "'%s' is not of the form OPTION=VALUE[,VALUE...]",
                       variation);
    return ND_OK;
}

/* Settings that nobody asked for leave what the device's URI sets, and half precision where there is none. */
static bool is_for_device(const struct nd_sweep_job *job, const char *variation)
{
    const struct nd_device *device = &job->devices[0];
    ND_FREED char *option = strndup(variation, strcspn(variation, "=") + 1);
    const char *query = strchr(job->options->device, '?');
    bool is_v68 = device->chipset != NULL && strcmp(device->chipset->arch, "v68") == 0;
    return option != NULL && (query == NULL || strstr(query, option) == NULL) &&
           !(is_v68 && strcmp(option, "enable_htp_fp16_precision=") == 0);
}

/* Fills result->settings, and parses their devices. */
static enum nd_status nd_sweep_list(struct nd_sweep_job *job, struct nd_error *err)
{
    ND_TRY(add_setting(job, NULL, NULL, err));
    const char *const *defaults = nd_sweep_defaults(job->devices[0].kind);
    if (job->options->n_variations == 0 && defaults[0] == NULL)
        return nd_fail(
            err, ND_E_OPTION_VALUE, job->options->device,
            "no options of '%s' are known to change bits or times; name some: --set OPTION=VALUE,VALUE",
            job->options->device);
    for (size_t i = 0; i < job->options->n_variations; i++)
        ND_TRY(add_variation(job, job->options->variations[i], err));
    for (size_t i = 0; job->options->n_variations == 0 && defaults[i] != NULL; i++)
        if (is_for_device(job, defaults[i]))
            ND_TRY(add_variation(job, defaults[i], err));
    return ND_OK;
}

void nd_sweep_options_init_sized(struct nd_sweep_options *options, size_t struct_size)
{
    const struct nd_sweep_options own = {0};
    nd_options_write(options, struct_size, &own, sizeof own);
}

void nd_sweep_destroy(struct nd_sweep **sweep)
{
    struct nd_sweep *old = *sweep;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_settings; i++) {
        ND_FREE_ALL(old->settings[i].option, old->settings[i].value, old->settings[i].uri,
                    old->settings[i].failure, old->settings[i].first);
    }
    ND_FREE_ALL(old->settings, old->model, old->device, old->environment, old);
    *sweep = NULL;
}

static enum nd_status sweep(struct nd_sweep_job *job, struct nd_error *err)
{
    struct nd_sweep *result = job->result;
    result->struct_size = sizeof *result;
    for (size_t p = 0; p < job->options->n_probes; p++)
        result->n_samples += job->options->probes[p]->n_samples;
    ND_TRY(nd_sweep_list(job, err));
    result->model = nd_strdup(nd_model_path(job->model));
    result->device = nd_strdup(job->devices[0].label);
    ND_TRY_MEMORY(result->model != NULL && result->device != NULL, err);
    ND_TRY(nd_dir_make_temporary(&job->folder, err));
    return nd_sweep_run(job, err);
}

enum nd_status nd_sweep(const struct nd_model *model, const struct nd_sweep_options *options,
                        struct nd_sweep **out, struct nd_error *err)
{
    struct nd_sweep_options own;
    nd_sweep_options_init(&own);
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    if (own.device == NULL || own.n_probes == 0)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "a device and inputs are needed");
    ND_TRY(nd_model_check_static(model, err));
    struct nd_sweep_job job = {.options = &own, .model = model, .result = nd_calloc(1, sizeof *job.result)};
    ND_TRY_MEMORY(job.result != NULL, err);
    enum nd_status status = sweep(&job, err);
    if (status == ND_OK) {
        *out = job.result;
        job.result = NULL;
    }
    for (size_t d = 0; d < job.n_devices; d++)
        nd_device_deinit(&job.devices[d]);
    nd_dir_remove(job.folder);
    ND_FREE_ALL(job.devices, job.folder);
    nd_sweep_destroy(&job.result);
    return status;
}
