/* What a sweep runs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "improve/sweep/sweep_job.h"

/* Of the options that a URI may give (src/devices/device_options.c) those that npudiff/compare/config.h says can change bits,
 * and one that is about times alone; each with the values that Qualcomm's provider documents and that differ
 * from its defaults. htp_graph_finalization_optimization_mode is 0, offload_graph_io_quantization and
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
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s%c%s=%s", uri, strchr(uri, '?') != NULL ? '&' : '?', option, value);
    return nd_strbuf_take(&text);
}

/* By the name that captures give the option. */
static enum nd_config_effect effect_of(const char *option)
{
    struct nd_strbuf name = {0};
    bool is_ours = strcmp(option, "optimisation") == 0 || strcmp(option, "threads") == 0;
    nd_strbuf_printf(&name, "runtime.%s%s", is_ours ? "" : "option_", option);
    char *key = nd_strbuf_take(&name);
    enum nd_config_effect effect = key != NULL ? nd_config_effect_of(key) : ND_CONFIG_UNKNOWN;
    free(key);
    return effect;
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
    if (settings == NULL || devices == NULL)
        return nd_fail_memory(err);
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
    enum nd_status status = nd_device_parse(settings[n].uri, &devices[n], err);
    if (status != ND_OK)
        return status;
    job->n_devices = n + 1;
    settings[n].effect = option != NULL ? effect_of(option) : ND_CONFIG_UNKNOWN;
    return ND_OK;
}

/* "OPTION=VALUE,VALUE" */
static enum nd_status add_variation(struct nd_sweep_job *job, const char *variation, struct nd_error *err)
{
    char *text = nd_strdup(variation), *rest = NULL;
    char *equals = text != NULL ? strchr(text, '=') : NULL;
    enum nd_status status = text != NULL ? ND_OK : nd_fail_memory(err);
    size_t n_values = 0;
    if (equals != NULL && equals > text) {
        *equals = '\0';
        for (char *value = strtok_r(equals + 1, ",", &rest); value != NULL && status == ND_OK;
             value = strtok_r(NULL, ",", &rest), n_values++)
            status = add_setting(job, text, value, err);
    }
    if (status == ND_OK && n_values == 0)
        status = nd_fail(err, ND_E_OPTION_VALUE, variation, "'%s' is not of the form OPTION=VALUE[,VALUE...]",
                         variation);
    free(text);
    return status;
}

enum nd_status nd_sweep_list(struct nd_sweep_job *job, struct nd_error *err)
{
    enum nd_status status = add_setting(job, NULL, NULL, err);
    if (status != ND_OK)
        return status;
    const char *const *defaults = nd_sweep_defaults(job->devices[0].kind);
    if (job->options->n_variations == 0 && defaults[0] == NULL)
        return nd_fail(
            err, ND_E_OPTION_VALUE, job->options->device,
            "no options of '%s' are known to change bits or times; name some: --set OPTION=VALUE,VALUE",
            job->options->device);
    for (size_t i = 0; i < job->options->n_variations && status == ND_OK; i++)
        status = add_variation(job, job->options->variations[i], err);
    for (size_t i = 0; job->options->n_variations == 0 && defaults[i] != NULL && status == ND_OK; i++)
        status = add_variation(job, defaults[i], err);
    return status;
}
