/* Device options: see the header. */
#include "devices/device_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/agent/runtime/runtime.h"
#include "devices/capture_request.h"
#include "devices/runners/find_runner.h"
#include "npudiff/core/parse.h"

static enum nd_status nd_exec_apply_option(struct nd_device *device, const char *uri, const char *key,
                                           const char *value, struct nd_error *err);

enum nd_status nd_device_set_option(struct nd_device *device, const char *key, const char *value,
                                    struct nd_error *err)
{
    for (size_t i = 0; i < device->n_options; i++) {
        if (strcmp(device->option_keys[i], key) != 0)
            continue;
        char *copy = nd_strdup(value);
        if (copy == NULL)
            return nd_fail_memory(err);
        free(device->option_values[i]);
        device->option_values[i] = copy;
        return ND_OK;
    }
    size_t n = device->n_options + 1;
    char **keys = realloc(device->option_keys, n * sizeof *keys);
    if (keys != NULL)
        device->option_keys = keys;
    char **values = realloc(device->option_values, n * sizeof *values);
    if (values != NULL)
        device->option_values = values;
    if (keys == NULL || values == NULL)
        return nd_fail_memory(err);
    keys[n - 1] = nd_strdup(key);
    values[n - 1] = nd_strdup(value);
    device->n_options = n;
    return keys[n - 1] != NULL && values[n - 1] != NULL ? ND_OK : nd_fail_memory(err);
}

/* References have one option, and the float one has none. */
static enum nd_status apply_reference_option(struct nd_device *device, const char *uri, const char *key,
                                             const char *value, struct nd_error *err)
{
    enum nd_rounding rounding;
    if (device->kind != ND_DEVICE_EXACT || strcmp(key, "rounding") != 0)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': unknown option '%s'; %s", uri, key,
                       device->kind == ND_DEVICE_EXACT ? "exact has 'rounding'" : "float64 has none");
    if (!nd_rounding_from_name(value, &rounding))
        return nd_fail(
            err, ND_E_DEVICE_UNKNOWN, uri,
            "device '%s': rounding is half-even, half-away, half-up, half-down, floor, ceil or to-zero, "
            "not '%s'",
            uri, value);
    return nd_device_set_option(device, key, value, err);
}

/* One key=value of the URI's query. */
static enum nd_status apply_option(struct nd_device *device, const char *uri, const char *key,
                                   const char *value, struct nd_error *err)
{
    uint64_t n;
    enum nd_optimisation level;
    if (nd_device_is_reference(device->kind))
        return apply_reference_option(device, uri, key, value, err);
    if (device->kind == ND_DEVICE_EXEC && strcmp(key, "threads") != 0)
        return nd_exec_apply_option(device, uri, key, value, err);
    if (strcmp(key, "optimisation") == 0) {
        if (!nd_optimisation_from_name(value, &level))
            return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                           "device '%s': optimisation is 'disable', 'basic', 'extended' or 'all', not '%s'",
                           uri, value);
        free(device->optimisation);
        device->optimisation = nd_strdup(value);
        return device->optimisation != NULL ? ND_OK : nd_fail_memory(err);
    }
    if (strcmp(key, "threads") == 0) {
        if (!nd_parse_u64(value, &n) || n < 1 || n > 1024)
            return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                           "device '%s': threads is a number from 1 to 1024, not '%s'", uri, value);
        device->n_threads = (int)n;
        return ND_OK;
    }
    if (device->kind == ND_DEVICE_CPU)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': unknown option '%s'; a cpu has 'optimisation' and 'threads'", uri, key);
    if (strcmp(key, "soc_model") == 0 || strcmp(key, "backend_path") == 0 || strcmp(key, "backend_type") == 0)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': option '%s' follows from the device itself",
                       uri, key);
    return nd_device_set_option(device, key, value, err);
}

enum nd_status nd_device_apply_query(struct nd_device *device, const char *uri, char *query,
                                     struct nd_error *err)
{
    enum nd_status status = ND_OK;
    char *rest = query;
    char *pair;
    while (status == ND_OK && (pair = strsep(&rest, "&")) != NULL) {
        char *equals = strchr(pair, '=');
        if (equals == NULL || equals == pair)
            return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': '%s' is not of the form option=value",
                           uri, pair);
        *equals = '\0';
        status = apply_option(device, uri, pair, equals + 1, err);
    }
    return status;
}

/* Options that neither name a file nor load a library, as the QNN provider of QAIRT 2.47 to 2.51 knows them. */
static bool is_harmless(const char *key)
{
    static const char *const harmless[] = {
        "device_id",
        "disable_file_mapped_weights",
        "enable_block_quant_weight_optimization",
        "enable_htp_fp16_clamp_overflow",
        "enable_htp_fp16_precision",
        "enable_htp_graph_splitting",
        "enable_htp_monolithic_lstm",
        "enable_htp_shared_memory_allocator",
        "enable_htp_spill_fill_buffer",
        "enable_vtcm_backup_buffer_sharing",
        "extended_udma",
        "htp_arch",
        "htp_bf16_enable",
        "htp_graph_finalization_optimization_mode",
        "htp_graph_splitting_num_prepare_threads",
        "htp_performance_mode",
        "htp_reused_io_limit_mb",
        "htp_share_resource_optimization",
        "num_graph_prepare_threads",
        "offload_graph_io_quantization",
        "profiling_level",
        "qnn_context_priority",
        "rpc_control_latency",
        "session.disable_cpu_ep_fallback",
        "skip_backend_op_validation",
        "skip_qnn_version_check",
        "soc_model",
        "vtcm_mb",
    };
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(key, harmless[i]) == 0)
            return true;
    return false;
}

enum nd_status nd_device_check_options(const struct nd_device *device, const char *uri, struct nd_error *err)
{
    if (!nd_device_is_npu(device->kind))
        return ND_OK; /* others have options of ours alone */
    for (size_t i = 0; i < device->n_options; i++) {
        const char *key = device->option_keys[i];
        bool is_ours = strcmp(key, "backend_path") == 0; /* a URI cannot give it */
        if (!is_ours && !is_harmless(key))
            return nd_fail(
                err, ND_E_DEVICE_OPTION, uri,
                "device '%s': option '%s' may name a file or load a library: it is taken only from a "
                "command with --trust-options",
                uri, key);
    }
    return ND_OK;
}

/* Explicit, since defaults have changed between versions. */
enum nd_status nd_device_default_options(struct nd_device *device, struct nd_error *err)
{
    const struct nd_chipset *chipset = device->chipset;
    enum nd_status status = ND_OK;
    if (!nd_device_is_npu(device->kind))
        return ND_OK;
    if (device->runtime.backend_library != NULL)
        status = nd_device_set_option(device, "backend_path", device->runtime.backend_library, err);
    if (status == ND_OK && chipset != NULL) {
        char soc_model[16];
        snprintf(soc_model, sizeof soc_model, "%d", chipset->soc_model);
        status = nd_device_set_option(device, "soc_model", soc_model, err);
    }
    if (status == ND_OK)
        status = nd_device_set_option(device, "offload_graph_io_quantization", "1", err);
    /* v68 has no half precision, and refuses the option. */
    if (status == ND_OK && chipset != NULL && strcmp(chipset->arch, "v68") != 0)
        status = nd_device_set_option(device, "enable_htp_fp16_precision", "1", err);
    return status;
}

static const char scheme[] = "exec:";

bool nd_exec_is_uri(const char *uri)
{
    return strncmp(uri, scheme, strlen(scheme)) == 0;
}

enum nd_status nd_exec_check(const char *uri, struct nd_error *err)
{
    if (strchr(uri, '/') == NULL)
        return ND_OK;
    return nd_fail(
        err, ND_E_DEVICE_OPTION, uri,
        "device '%s' names a file: that is taken only from a command with --trust-options; a runner in "
        "$NPUDIFF_RUNNERS or PATH needs its name alone",
        uri);
}

/* One option of the query. ND_E_DEVICE_UNKNOWN. */
static enum nd_status nd_exec_apply_option(struct nd_device *device, const char *uri, const char *key,
                                           const char *value, struct nd_error *err)
{
    if (strcmp(key, ND_OFF_GRID_OPTION) == 0 && strcmp(value, "round") != 0)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': " ND_OFF_GRID_OPTION " is 'round', not '%s'", uri, value);
    return nd_device_set_option(device, key, value, err);
}

/* The arithmetic, by its name or its path. */
static enum nd_status find(struct nd_device *device, const char *uri, const char *what, struct nd_error *err)
{
    struct nd_runtime_info *runtime = &device->runtime;
    if (strchr(what, '/') != NULL)
        return nd_runner_use_path(what, &runtime->id, &runtime->ort_library, err);
    if (!nd_runner_is_name(what))
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': '%s' is no name of a runner: small letters, digits, '-' and '_'; 'npudiff "
                       "devices' lists those there are",
                       uri, what);
    enum nd_status status = nd_runner_find(what, &runtime->ort_library, err);
    if (status == ND_OK && (runtime->id = nd_strdup(what)) == NULL)
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status name(struct nd_device *device, const char *uri, bool is_path, const char *query,
                           struct nd_error *err)
{
    struct nd_strbuf canonical = {0};
    nd_strbuf_printf(&canonical, "%s%s%s%s", scheme, is_path ? device->runtime.ort_library : device->runtime.id,
                     query != NULL ? "?" : "", query != NULL ? query : "");
    device->uri = nd_strbuf_take(&canonical);
    device->label = nd_strdup(uri);
    device->optimisation = nd_strdup("default");
    bool is_whole = device->uri != NULL && device->label != NULL && device->optimisation != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_exec_parse(const char *uri, struct nd_device *out, struct nd_error *err)
{
    struct nd_device device = {.kind = ND_DEVICE_EXEC, .n_threads = 1};
    char *text = nd_strdup(uri + strlen(scheme));
    if (text == NULL)
        return nd_fail_memory(err);
    char *query = strchr(text, '?');
    if (query != NULL)
        *query++ = '\0';
    enum nd_status status = find(&device, uri, text, err);
    if (status == ND_OK)
        status = name(&device, uri, strchr(text, '/') != NULL, query, err);
    if (status == ND_OK && query != NULL)
        status = nd_device_apply_query(&device, uri, query, err);
    free(text);
    if (status == ND_OK)
        *out = device;
    else
        nd_device_deinit(&device);
    return status;
}
