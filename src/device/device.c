#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "device/emulated.h"
#include "device/internal.h"
#include "exact/rounding.h"
#include "npudiff/parse.h"
#include "runtime/runtime.h"

const struct nd_device_syntax *nd_device_syntaxes(void)
{
    static const struct nd_device_syntax syntaxes[] = {
        {"cpu[@RUNTIME][?optimisation=LEVEL&threads=N]",
         "ONNX Runtime's CPU provider; optimisation is 'disable' unless asked"},
        {"htp-sim:CHIPSET[@RUNTIME][?OPTION=VALUE&...]",
         "Qualcomm's QNN HTP backend in its x86 simulator; other options go to the provider"},
        {"exact[?rounding=ROUNDING]",
         "the quantised reference: exact units, rounded once; half-even unless asked (half-away, floor, ...)"},
        {"float64", "the float reference: a float model in double precision"},
        {"emu:ITEM[,ITEM...] or emu:PROFILE.yaml",
         "an emulated device with known faults: exact units with other rounding (round=double:8) and faults of "
         "edges (stale@EDGE)"},
        {NULL, NULL},
    };
    return syntaxes;
}

const char *nd_device_kind_name(enum nd_device_kind kind)
{
    static const char *const names[] = {"cpu", "htp-sim", "exact", "float64", "emu"};
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

bool nd_device_is_reference(enum nd_device_kind kind)
{
    return kind == ND_DEVICE_EXACT || kind == ND_DEVICE_FLOAT64;
}

bool nd_device_is_evaluated(enum nd_device_kind kind)
{
    return nd_device_is_reference(kind) || kind == ND_DEVICE_EMULATED;
}

void nd_device_deinit(struct nd_device *device)
{
    free(device->uri);
    free(device->label);
    free(device->optimisation);
    nd_runtime_info_deinit(&device->runtime);
    for (size_t i = 0; i < device->n_options; i++) {
        free(device->option_keys[i]);
        free(device->option_values[i]);
    }
    free(device->option_keys);
    free(device->option_values);
    *device = (struct nd_device){0};
}

static enum nd_status set_option(struct nd_device *device, const char *key, const char *value,
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
    return set_option(device, key, value, err);
}

/* One key=value of the URI's query. */
static enum nd_status apply_option(struct nd_device *device, const char *uri, const char *key,
                                   const char *value, struct nd_error *err)
{
    uint64_t n;
    enum nd_optimisation level;
    if (nd_device_is_reference(device->kind))
        return apply_reference_option(device, uri, key, value, err);
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
    return set_option(device, key, value, err);
}

static enum nd_status apply_query(struct nd_device *device, const char *uri, char *query, struct nd_error *err)
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

static enum nd_status parse_kind(struct nd_device *device, const char *uri, const char *kind,
                                 struct nd_error *err)
{
    static const char simulator[] = "htp-sim:";
    static const enum nd_device_kind plain[] = {ND_DEVICE_CPU, ND_DEVICE_EXACT, ND_DEVICE_FLOAT64};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(kind, nd_device_kind_name(plain[i])) == 0) {
            device->kind = plain[i];
            return ND_OK;
        }
    if (strncmp(kind, simulator, strlen(simulator)) != 0)
        return nd_fail(
            err, ND_E_DEVICE_UNKNOWN, uri,
            "unknown device '%s': expected 'cpu', 'exact', 'float64', 'emu:ITEM,...' or 'htp-sim:CHIPSET' "
            "('npudiff devices' lists them)",
            uri);
    const char *name = kind + strlen(simulator);
    device->kind = ND_DEVICE_HTP_SIM;
    device->chipset = nd_chipset_find(name);
    if (device->chipset == NULL)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': unknown chipset '%s' ('npudiff devices' lists those there are)", uri,
                       name);
    return ND_OK;
}

/* What the simulator is always told. Explicit, since defaults have changed between versions. */
static enum nd_status default_options(struct nd_device *device, struct nd_error *err)
{
    if (device->kind != ND_DEVICE_HTP_SIM)
        return ND_OK;
    char soc_model[16];
    snprintf(soc_model, sizeof soc_model, "%d", device->chipset->soc_model);
    enum nd_status status = set_option(device, "backend_path", device->runtime.backend_library, err);
    if (status == ND_OK)
        status = set_option(device, "soc_model", soc_model, err);
    if (status == ND_OK)
        status = set_option(device, "offload_graph_io_quantization", "1", err);
    /* v68 has no half precision, and refuses the option. */
    if (status == ND_OK && strcmp(device->chipset->arch, "v68") != 0)
        status = set_option(device, "enable_htp_fp16_precision", "1", err);
    return status;
}

static enum nd_status name_device(struct nd_device *device, const char *uri, const char *query,
                                  struct nd_error *err)
{
    struct nd_strbuf canonical = {0}, label = {0};
    if (nd_device_is_reference(device->kind))
        nd_strbuf_puts(&canonical, nd_device_kind_name(device->kind));
    else if (device->kind == ND_DEVICE_CPU)
        nd_strbuf_printf(&canonical, "cpu@%s", device->runtime.id);
    else
        nd_strbuf_printf(&canonical, "htp-sim:%s@%s", device->chipset->sm, device->runtime.id);
    if (query != NULL)
        nd_strbuf_printf(&canonical, "?%s", query);
    const char *colon = strchr(uri, ':');
    nd_strbuf_puts(&label, device->kind != ND_DEVICE_HTP_SIM || colon == NULL ? uri : colon + 1);
    device->uri = nd_strbuf_take(&canonical);
    device->label = nd_strbuf_take(&label);
    return device->uri != NULL && device->label != NULL ? ND_OK : nd_fail_memory(err);
}

/* References need no runtime but npudiff itself. */
static enum nd_status find_runtime(struct nd_device *device, const char *uri, const char *id,
                                   struct nd_error *err)
{
    if (!nd_device_is_evaluated(device->kind))
        return nd_runtime_find(id, &device->runtime, err);
    if (id != NULL)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s' has no runtime to choose", uri);
    device->runtime.id = nd_strdup("npudiff-" ND_VERSION);
    device->runtime.ort_library = nd_strdup("");
    return device->runtime.id != NULL && device->runtime.ort_library != NULL ? ND_OK : nd_fail_memory(err);
}

/* The profile as options: what it says and, of a file, how it says it. */
static enum nd_status set_profile(struct nd_device *device, const struct nd_emulation *emulation,
                                  const struct nd_profile_file *file, const char *what, struct nd_error *err)
{
    char *items = nd_emulation_text(emulation);
    enum nd_status status = items != NULL ? set_option(device, "profile", items, err) : nd_fail_memory(err);
    free(items);
    if (file->text == NULL || status != ND_OK)
        return status;
    status = set_option(device, "profile_file", nd_path_base(what), err);
    if (status == ND_OK)
        status = set_option(device, "profile_sha256", file->sha256, err);
    return status == ND_OK ? set_option(device, "profile_text", file->text, err) : status;
}

/* A URI of its own grammar: edges may be called anything. */
static enum nd_status parse_emulated(const char *uri, const char *what, struct nd_device *out,
                                     struct nd_error *err)
{
    struct nd_device device = {.kind = ND_DEVICE_EMULATED, .n_threads = 1};
    struct nd_emulation emulation = {0};
    struct nd_profile_file file = {0};
    struct nd_strbuf canonical = {0}, label = {0};
    enum nd_status status = nd_profile_read(what, &emulation, &file, err);
    if (status == ND_OK)
        status = set_profile(&device, &emulation, &file, what, err);
    if (status == ND_OK)
        status = find_runtime(&device, uri, NULL, err);
    if (status == ND_OK) {
        nd_strbuf_printf(&canonical, "emu:%s", device.option_values[0]);
        nd_strbuf_printf(&label, "emu:%s", file.text != NULL ? nd_path_base(what) : what);
        device.uri = nd_strbuf_take(&canonical);
        device.label = nd_strbuf_take(&label);
        device.optimisation = nd_strdup("disable");
        if (device.uri == NULL || device.label == NULL || device.optimisation == NULL)
            status = nd_fail_memory(err);
    } else {
        nd_error_context(err, "device '%s'", uri);
    }
    nd_emulation_deinit(&emulation);
    free(file.text);
    if (status == ND_OK)
        *out = device;
    else
        nd_device_deinit(&device);
    return status;
}

enum nd_status nd_device_parse(const char *uri, struct nd_device *out, struct nd_error *err)
{
    static const char emulated[] = "emu:";
    if (strncmp(uri, emulated, strlen(emulated)) == 0)
        return parse_emulated(uri, uri + strlen(emulated), out, err);
    struct nd_device device = {.n_threads = 1};
    char *text = nd_strdup(uri);
    if (text == NULL)
        return nd_fail_memory(err);
    char *query = strchr(text, '?');
    if (query != NULL)
        *query++ = '\0';
    char *runtime = strchr(text, '@');
    if (runtime != NULL)
        *runtime++ = '\0';
    enum nd_status status = parse_kind(&device, uri, text, err);
    if (status == ND_OK)
        status = find_runtime(&device, uri, runtime, err);
    if (status == ND_OK) {
        /* As a reference the CPU provider must not fuse quantised groups into operators of other arithmetic; an
         * NPU gets what applications use. */
        device.optimisation = nd_strdup(device.kind != ND_DEVICE_HTP_SIM ? "disable" : "all");
        if (device.optimisation == NULL)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK)
        status = name_device(&device, uri, query, err);
    if (status == ND_OK)
        status = default_options(&device, err);
    if (status == ND_OK && query != NULL)
        status = apply_query(&device, uri, query, err);
    free(text);
    if (status != ND_OK) {
        nd_device_deinit(&device);
        return status;
    }
    *out = device;
    return ND_OK;
}
