/* A device by its URI: its kind, its options, its runtime, and what follows when the machine it is on has been
 * asked. docs/reference/devices.md lists the URIs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/trials/twin.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "devices/agent/runtime/runtime.h"
#include "devices/emulator/emulate.h"
#include "devices/launch.h"
#include "devices/phones/fleet.h"
#include "devices/phones/remote.h"
#include "devices/runners/find_runner.h"
#include "devices/runtimes/sdk.h"
#include "npudiff/core/parse.h"
#include "npudiff/devices/device.h"

/* Adds the option, or gives it another value where it stands. */
static enum nd_status nd_device_set_option(struct nd_device *device, const char *key, const char *value,
                                           struct nd_error *err)
{
    for (size_t i = 0; i < device->n_options; i++) {
        if (strcmp(device->option_keys[i], key) != 0)
            continue;
        char *copy = nd_strdup(value);
        ND_TRY_MEMORY(copy != NULL, err);
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
    ND_TRY_MEMORY(keys != NULL && values != NULL, err);
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
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': rounding is half-even, half-away, half-up, half-down, floor, ceil or "
                       "to-zero, not '%s'",
                       uri, value);
    return nd_device_set_option(device, key, value, err);
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

/* One key=value of the URI's query. */
static enum nd_status apply_option(struct nd_device *device, const char *uri, const char *key,
                                   const char *value, struct nd_error *err)
{
    uint64_t n;
    enum nd_optimisation level;
    if (nd_device_is_reference(device->kind))
        return apply_reference_option(device, uri, key, value, err);
    if (device->kind == ND_DEVICE_TWIN) {
        if (strcmp(key, "strict") != 0 || (strcmp(value, "1") != 0 && strcmp(value, "0") != 0))
            return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                           "device '%s': a twin has the option strict=1 (or 0), not "
                           "'%s=%s'",
                           uri, key, value);
        return nd_device_set_option(device, key, value, err);
    }
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

/* The options of a URI's query ("a=b&c=d", which is cut up). ND_E_DEVICE_UNKNOWN. */
static enum nd_status nd_device_apply_query(struct nd_device *device, const char *uri, char *query,
                                            struct nd_error *err)
{
    char *rest = query;
    char *pair;
    while ((pair = strsep(&rest, "&")) != NULL) {
        char *equals = strchr(pair, '=');
        if (equals == NULL || equals == pair)
            return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': '%s' is not of the form option=value",
                           uri, pair);
        *equals = '\0';
        ND_TRY(apply_option(device, uri, pair, equals + 1, err));
    }
    return ND_OK;
}

/* Options that neither name a file nor load a library, as the QNN provider of QAIRT 2.47 to 2.51 knows them. */
static const char *const harmless[] = {"device_id",
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
                                       "vtcm_mb"};

static bool is_harmless(const char *key)
{
    return nd_find_text(harmless, sizeof harmless / sizeof *harmless, sizeof *harmless, key) != NULL;
}

/* ND_E_DEVICE_OPTION when an option is not known to be harmless: it may name a file to write, or a library. */
static enum nd_status nd_device_check_options(const struct nd_device *device, const char *uri,
                                              struct nd_error *err)
{
    if (!nd_device_is_npu(device->kind))
        return ND_OK; /* others have options of ours alone */
    for (size_t i = 0; i < device->n_options; i++) {
        const char *key = device->option_keys[i];
        bool is_ours = strcmp(key, "backend_path") == 0; /* a URI cannot give it */
        char meant[ND_DID_YOU_MEAN_BYTES];
        if (is_ours || is_harmless(key))
            continue;
        nd_did_you_mean(key, harmless, sizeof harmless / sizeof *harmless, sizeof *harmless, meant);
        return nd_fail(err, ND_E_DEVICE_OPTION, uri,
                       meant[0] != '\0' ? "device '%s': option '%s' is not known%s"
                                        : "device '%s': option '%s' may name a file or load a library%s: it is "
                                          "taken only from a command with --trust-options",
                       uri, key, meant);
    }
    return ND_OK;
}

/* What the provider of an NPU is told unless the URI says otherwise, as far as runtime and chipset are known;
 * nothing for other devices. Explicit, since defaults have changed between versions. */
static enum nd_status nd_device_default_options(struct nd_device *device, struct nd_error *err)
{
    const struct nd_chipset *chipset = device->chipset;
    if (!nd_device_is_npu(device->kind))
        return ND_OK;
    if (device->runtime.backend_library != NULL)
        ND_TRY(nd_device_set_option(device, "backend_path", device->runtime.backend_library, err));
    if (chipset != NULL) {
        char soc_model[16];
        snprintf(soc_model, sizeof soc_model, "%d", chipset->soc_model);
        ND_TRY(nd_device_set_option(device, "soc_model", soc_model, err));
    }
    ND_TRY(nd_device_set_option(device, "offload_graph_io_quantization", "1", err));
    /* v68 has no half precision, and refuses the option. */
    if (chipset != NULL && strcmp(chipset->arch, "v68") != 0)
        ND_TRY(nd_device_set_option(device, "enable_htp_fp16_precision", "1", err));
    return ND_OK;
}

/* ---- exec:RUNNER[?key=value&...]: any arithmetic that speaks the runner's protocol as a device ---- */

static const char scheme[] = "exec:";

/* Whether the URI is of this form. */
static bool nd_exec_is_uri(const char *uri)
{
    return strncmp(uri, scheme, strlen(scheme)) == 0;
}

/* ND_E_DEVICE_OPTION for a URI that names a file, as the runner or in an option. */
static enum nd_status nd_exec_check(const char *uri, struct nd_error *err)
{
    if (strchr(uri, '/') == NULL)
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_OPTION, uri,
                   "device '%s' names a file: that is taken only from a command with --trust-options; a runner "
                   "in $NPUDIFF_RUNNERS or PATH needs its name alone",
                   uri);
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
    ND_TRY(nd_runner_find(what, &runtime->ort_library, err));
    return (runtime->id = nd_strdup(what)) != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status name(struct nd_device *device, const char *uri, bool is_path, const char *query,
                           struct nd_error *err)
{
    device->uri = nd_text("%s%s%s%s", scheme, is_path ? device->runtime.ort_library : device->runtime.id,
                          query != NULL ? "?" : "", query != NULL ? query : "");
    device->label = nd_strdup(uri);
    device->optimisation = nd_strdup("default");
    bool is_whole = device->uri != NULL && device->label != NULL && device->optimisation != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

/* Reads such a URI. The name of a runner is looked for; what has a '/' is a path. ND_E_RUNNER_MISSING,
 * ND_E_RUNNER_START, ND_E_DEVICE_UNKNOWN: no name, or an option that is not of the form key=value. */
static enum nd_status nd_exec_parse(const char *uri, struct nd_device *out, struct nd_error *err)
{
    ND_CLEANUP(nd_device_deinit) struct nd_device device = {.kind = ND_DEVICE_EXEC, .n_threads = 1};
    ND_FREED char *text = nd_strdup(uri + strlen(scheme));
    ND_TRY_MEMORY(text != NULL, err);
    char *query = strchr(text, '?');
    if (query != NULL)
        *query++ = '\0';
    ND_TRY(find(&device, uri, text, err));
    ND_TRY(name(&device, uri, strchr(text, '/') != NULL, query, err));
    if (query != NULL)
        ND_TRY(nd_device_apply_query(&device, uri, query, err));
    return ND_GIVE(out, device);
}

/* The profile of an emulated device (emulator/emulate.h): from the URI or from a YAML file. */

static enum nd_status nd_device_find_own_npu(struct nd_device *device, const char *uri, struct nd_error *err);

const struct nd_device_syntax *nd_device_syntaxes(void)
{
    static const struct nd_device_syntax syntaxes[] = {
        {"cpu[@RUNTIME][?optimisation=LEVEL&threads=N]",
         "ONNX Runtime's CPU provider; optimisation is 'disable' unless asked"},
        {"htp-sim:CHIPSET[@RUNTIME][?OPTION=VALUE&...]",
         "Qualcomm's QNN HTP backend in its x86 simulator; other options go to the provider"},
        {"htp[:CHIPSET][@RUNTIME][?OPTION=VALUE&...]",
         "the NPU of this machine, a Snapdragon that runs Linux; CHIPSET where the machine does not say it"},
        {"exact[?rounding=ROUNDING]", "the quantised reference: every layer computed exactly and rounded once; "
                                      "half-even unless asked (half-away, floor, ...)"},
        {"float64", "the float reference: a float model in double precision"},
        {"emu:ITEM[,ITEM...] or emu:PROFILE.yaml",
         "an emulated device: the arithmetic of a chip (htp-v73), and faults of tensors (stale@TENSOR)"},
        {"twin:CHIPSET[@qairt-VERSION][?strict=1]",
         "the bits of that chipset without the chipset or its SDK, as far as its arithmetic is known; what is "
         "not "
         "known is rounded exactly, and marked, or refused with strict=1"},
        {"exec:RUNNER[?OPTION=VALUE&...]",
         "a program that runs models for npudiff: npudiff-runner-RUNNER in $NPUDIFF_RUNNERS or PATH"},
        {"adb:[SERIAL][/DEVICE] or adb:*[/DEVICE]",
         "a phone, through adb: what runs there is htp, cpu or htp-sim[:CHIPSET] with its @RUNTIME and "
         "options, htp unless given; no SERIAL: the only phone; *: every phone"},
        {"adb:[SERIAL]@HOST:PORT[/DEVICE]",
         "a phone that hangs on a different machine, through adb's server there (*: every phone)"},
        {"adb:[SERIAL]/qnn-net-run[/htp[:CHIPSET]]", "the same phone, through the vendor's qnn-net-run"},
        {"ssh:HOST[/DEVICE] or ssh:HOST/qnn-net-run",
         "a board or laptop that runs Linux, likewise through ssh"},
        {NULL, NULL},
    };
    return syntaxes;
}

const char *nd_device_kind_name(enum nd_device_kind kind)
{
    static const char *const names[] = {"cpu", "htp-sim", "htp", "exact", "float64", "emu", "exec", "twin"};
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

bool nd_device_is_reference(enum nd_device_kind kind)
{
    return kind == ND_DEVICE_EXACT || kind == ND_DEVICE_FLOAT64;
}

bool nd_device_is_npu(enum nd_device_kind kind)
{
    return kind == ND_DEVICE_HTP_SIM || kind == ND_DEVICE_HTP;
}

bool nd_device_is_evaluated(enum nd_device_kind kind)
{
    return nd_device_is_reference(kind) || kind == ND_DEVICE_EMULATED || kind == ND_DEVICE_TWIN;
}

void nd_device_deinit(struct nd_device *device)
{
    ND_FREE_ALL(device->uri, device->label, device->optimisation, device->address);
    nd_runtime_info_deinit(&device->runtime);
    for (size_t i = 0; i < device->n_options; i++)
        ND_FREE_ALL(device->option_keys[i], device->option_values[i]);
    ND_FREE_ALL(device->option_keys, device->option_values);
    *device = (struct nd_device){0};
}

/* "htp", "htp:CHIPSET" or "htp-sim:CHIPSET" of `kind`; whoever says no chipset leaves it NULL. */
static enum nd_status parse_npu(struct nd_device *device, const char *uri, enum nd_device_kind kind,
                                const char *rest, struct nd_error *err)
{
    device->kind = kind;
    if (*rest == '\0')
        return ND_OK;
    device->chipset = nd_chipset_find(rest + 1);
    if (device->chipset == NULL) {
        size_t n;
        char meant[ND_DID_YOU_MEAN_BYTES];
        const struct nd_chipset *chipsets = nd_chipsets(&n);
        nd_did_you_mean(rest + 1, &chipsets[0].alias, n, sizeof chipsets[0], meant);
        if (meant[0] == '\0')
            nd_did_you_mean(rest + 1, &chipsets[0].sm, n, sizeof chipsets[0], meant);
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': unknown chipset '%s'; 'npudiff devices' lists all%s", uri, rest + 1,
                       meant);
    }
    return ND_OK;
}

static enum nd_status fail_unknown(const char *uri, const char *kind, struct nd_error *err)
{
    static const char *const kinds[] = {"cpu", "exact", "float64", "emu", "htp-sim",
                                        "htp", "exec",  "adb",     "ssh", "twin"};
    char word[64], meant[ND_DID_YOU_MEAN_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(kind, ":"), kind);
    nd_did_you_mean(word, kinds, sizeof kinds / sizeof kinds[0], sizeof kinds[0], meant);
    const struct nd_chipset *chipset = nd_chipset_find(strcmp(kind, "htp-sim") == 0 ? "gen3" : kind);
    if (chipset != NULL) /* "gen3", or "htp-sim" without a chipset */
        snprintf(meant, sizeof meant, "; did you mean 'htp-sim:%s'?",
                 chipset->alias[0] != '\0' ? chipset->alias : chipset->sm);
    return nd_fail(
        err, ND_E_DEVICE_UNKNOWN, uri,
        "unknown device '%s'; devices are 'cpu', 'exact', 'float64', 'emu:ITEM,...', 'htp-sim:CHIPSET', "
        "'twin:CHIPSET', 'htp', "
        "'exec:RUNNER', 'adb:SERIAL' and 'ssh:HOST'; 'npudiff devices' lists them%s",
        uri, meant);
}

static enum nd_status parse_kind(struct nd_device *device, const char *uri, const char *kind,
                                 struct nd_error *err)
{
    static const enum nd_device_kind plain[] = {ND_DEVICE_CPU, ND_DEVICE_EXACT, ND_DEVICE_FLOAT64};
    static const enum nd_device_kind npus[] = {ND_DEVICE_HTP_SIM, ND_DEVICE_HTP, ND_DEVICE_TWIN};
    bool is_remote = device->transport != ND_TRANSPORT_NONE;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(kind, nd_device_kind_name(plain[i])) == 0) {
            device->kind = plain[i];
            return ND_OK;
        }
    for (size_t i = 0; i < sizeof npus / sizeof npus[0]; i++) {
        const char *name = nd_device_kind_name(npus[i]);
        size_t n = strlen(name);
        /* Which chipset a phone has, or a board, it knows itself. */
        bool may_be_alone = is_remote || npus[i] == ND_DEVICE_HTP;
        if (strncmp(kind, name, n) == 0 && (kind[n] == ':' || (kind[n] == '\0' && may_be_alone)))
            return parse_npu(device, uri, npus[i], kind + n, err);
    }
    if (is_remote)
        return nd_fail(
            err, ND_E_DEVICE_UNKNOWN, uri,
            "device '%s': a phone or board runs 'htp[:CHIPSET]', 'cpu' or 'htp-sim[:CHIPSET]', not '%s'", uri,
            kind);
    return fail_unknown(uri, kind, err);
}

/* The canonical form of what runs there, without where. */
static void put_kind(struct nd_strbuf *out, const struct nd_device *device)
{
    nd_strbuf_puts(out, nd_device_kind_name(device->kind));
    if (nd_device_is_reference(device->kind))
        return;
    if (device->chipset != NULL)
        nd_strbuf_printf(out, ":%s", device->chipset->sm);
    if (device->runtime.id[0] != '\0')
        nd_strbuf_printf(out, "@%s", device->runtime.id);
}

/* Makes the canonical URI, of runtime and chipset as far as known. query: what follows '?', or NULL. */
static enum nd_status nd_device_name(struct nd_device *device, const char *query, struct nd_error *err)
{
    struct nd_strbuf canonical = {0};
    if (device->transport != ND_TRANSPORT_NONE)
        nd_strbuf_printf(&canonical, "%s:%s/%s/", nd_transport_name(device->transport), device->address,
                         nd_remote_method_name(device->method));
    put_kind(&canonical, device);
    if (query != NULL)
        nd_strbuf_printf(&canonical, "?%s", query);
    free(device->uri);
    device->uri = nd_strbuf_take(&canonical);
    return device->uri != NULL ? ND_OK : nd_fail_memory(err);
}

/* Names the runtime of a device whose ABI is not known yet: its id ("" for the newest that the machine can
 * run), and nothing else. ND_E_RUNTIME_MISSING: no ABI has one of that id. */
static enum nd_status nd_runtime_name(const char *id, struct nd_runtime_info *out, struct nd_error *err)
{
    struct nd_runtime_list list;
    bool is_there = id == NULL;
    enum nd_status status = nd_runtimes_list(&list, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; !is_there && i < list.n; i++)
        is_there = strcmp(list.items[i].id, id) == 0;
    if (!is_there)
        status = nd_runtime_fail_unknown(&list, id, err);
    nd_runtimes_deinit(&list);
    if (status != ND_OK)
        return status;
    out->id = nd_strdup(id != NULL ? id : "");
    return out->id != NULL ? ND_OK : nd_fail_memory(err);
}

/* The SDK whose arithmetic a twin has, which need not be installed. */
static enum nd_status find_twin(struct nd_device *device, const char *uri, const char *id, struct nd_error *err)
{
    static const char scheme_of_sdk[] = "qairt-";
    struct nd_twin_chip chip;
    const char *sdk = id != NULL ? id + strlen(scheme_of_sdk) : ND_TWIN_NEWEST_SDK;
    if ((id != NULL && strncmp(id, scheme_of_sdk, strlen(scheme_of_sdk)) != 0) ||
        !nd_twin_chip_of(device->chipset->arch, sdk, &chip))
        return nd_fail(
            err, ND_E_DEVICE_UNKNOWN, uri,
            "device '%s': the arithmetic of %s with %s is not known; known are v68 to v81 with qairt-2.47 "
            "to qairt-" ND_TWIN_NEWEST_SDK,
            uri, device->chipset->arch, id != NULL ? id : "qairt-" ND_TWIN_NEWEST_SDK);
    device->runtime.id = nd_text("%s%s", scheme_of_sdk, sdk);
    ND_TRY(nd_device_set_option(device, "arch", device->chipset->arch, err));
    return nd_device_set_option(device, "sdk", sdk, err);
}

/* The runtime of that id for this machine, or the newest installed one for NULL. */
static enum nd_status nd_runtime_find(const char *id, struct nd_runtime_info *out, struct nd_error *err)
{
    return nd_runtime_find_abi(id, nd_abi_here(), out, err);
}

/* References need no runtime but npudiff itself. What is installed for another machine is seen when its ABI is
 * known. */
static enum nd_status find_runtime(struct nd_device *device, const char *uri, const char *id,
                                   struct nd_error *err)
{
    if (device->transport != ND_TRANSPORT_NONE)
        return nd_runtime_name(id, &device->runtime, err);
    if (!nd_device_is_evaluated(device->kind)) {
        ND_TRY(nd_runtime_find(id, &device->runtime, err));
        return nd_runtime_require(
            &device->runtime, nd_device_is_npu(device->kind) ? ND_RUNTIME_FOR_NPU : ND_RUNTIME_FOR_CPU, err);
    }
    if (device->kind == ND_DEVICE_TWIN)
        ND_TRY(find_twin(device, uri, id, err));
    else if (id != NULL)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s' has no runtime to choose", uri);
    else
        device->runtime.id = nd_strdup("npudiff-" ND_VERSION);
    device->runtime.ort_library = nd_strdup("");
    return device->runtime.id != NULL && device->runtime.ort_library != NULL ? ND_OK : nd_fail_memory(err);
}

/* The profile as options: what it says and, of a file, how it says it. */
static enum nd_status set_profile(struct nd_device *device, const struct nd_emulation *emulation,
                                  const struct nd_profile_file *file, const char *what, struct nd_error *err)
{
    char *items = nd_emulation_text(emulation);
    enum nd_status status =
        items != NULL ? nd_device_set_option(device, "profile", items, err) : nd_fail_memory(err);
    free(items);
    if (file->text == NULL || status != ND_OK)
        return status;
    status = nd_device_set_option(device, "profile_file", nd_path_base(what), err);
    if (status == ND_OK)
        status = nd_device_set_option(device, "profile_sha256", file->sha256, err);
    return status == ND_OK ? nd_device_set_option(device, "profile_text", file->text, err) : status;
}

/* A URI of its own grammar: tensors may be called anything. */
static enum nd_status parse_emulated(const char *uri, const char *what, struct nd_device *out,
                                     struct nd_error *err)
{
    ND_CLEANUP(nd_device_deinit) struct nd_device device = {.kind = ND_DEVICE_EMULATED, .n_threads = 1};
    ND_CLEANUP(nd_emulation_deinit) struct nd_emulation emulation = {0};
    struct nd_profile_file file = {0};
    enum nd_status status = nd_profile_read(what, &emulation, &file, err);
    ND_FREED char *text = file.text;
    if (status == ND_OK)
        status = set_profile(&device, &emulation, &file, what, err);
    if (status == ND_OK)
        status = find_runtime(&device, uri, NULL, err);
    if (status != ND_OK) {
        nd_error_context(err, "device '%s'", uri);
        return status;
    }
    device.uri = nd_text("emu:%s", device.option_values[0]);
    device.label = nd_text("emu:%s", text != NULL ? nd_path_base(what) : what);
    device.optimisation = nd_strdup("disable");
    ND_TRY_MEMORY(device.uri != NULL && device.label != NULL && device.optimisation != NULL, err);
    return ND_GIVE(out, device);
}

/* Whether a device of this kind and way can run elsewhere. ND_E_DEVICE_UNKNOWN. */
static enum nd_status nd_device_suits_elsewhere(const struct nd_device *device, const char *uri,
                                                struct nd_error *err)
{
    if (nd_device_is_evaluated(device->kind))
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': references are evaluated on this machine; '%s' alone is the device", uri,
                       nd_device_kind_name(device->kind));
    if (device->method == ND_REMOTE_QNN_NET_RUN && device->kind != ND_DEVICE_HTP)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': qnn-net-run runs on 'htp', not on '%s', which the agent does", uri,
                       nd_device_kind_name(device->kind));
    return ND_OK;
}

/* KIND[:CHIPSET][@RUNTIME][?QUERY] into a device that says already where it is; `what` is that part of the
 * URI. */
static enum nd_status parse_plain(const char *uri, const char *what, struct nd_device *device,
                                  struct nd_error *err)
{
    ND_FREED char *text = nd_strdup(what);
    ND_TRY_MEMORY(text != NULL, err);
    char *query = strchr(text, '?');
    if (query != NULL)
        *query++ = '\0';
    char *runtime = strchr(text, '@');
    if (runtime != NULL)
        *runtime++ = '\0';
    ND_TRY(parse_kind(device, uri, text, err));
    if (device->transport != ND_TRANSPORT_NONE)
        ND_TRY(nd_device_suits_elsewhere(device, uri, err));
    else if (device->kind == ND_DEVICE_HTP)
        ND_TRY(nd_device_find_own_npu(device, uri, err));
    ND_TRY(find_runtime(device, uri, runtime, err));
    /* As a reference the CPU provider must not fuse quantised groups into operators of other arithmetic; an
     * NPU gets what applications use. */
    device->optimisation = nd_strdup(nd_device_is_npu(device->kind) ? "all" : "disable");
    ND_TRY_MEMORY(device->optimisation != NULL, err);
    if (device->transport == ND_TRANSPORT_NONE)
        ND_TRY(nd_device_name(device, query, err));
    if (device->transport == ND_TRANSPORT_NONE)
        ND_TRY(nd_device_default_options(device, err));
    return query != NULL ? nd_device_apply_query(device, uri, query, err) : ND_OK;
}

static enum nd_status parse_here(const char *uri, struct nd_device *device, struct nd_error *err)
{
    const char *colon = strchr(uri, ':');
    ND_TRY(parse_plain(uri, uri, device, err));
    device->label = nd_strdup(device->kind == ND_DEVICE_HTP_SIM && colon != NULL ? colon + 1 : uri);
    return device->label != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status parse_elsewhere(const char *uri, struct nd_device *device, struct nd_error *err)
{
    ND_CLEANUP(nd_remote_uri_deinit) struct nd_remote_uri parts = {0};
    ND_TRY(nd_remote_uri_parse(uri, &parts, err));
    device->transport = parts.transport;
    device->method = parts.method;
    enum nd_status status = parse_plain(uri, parts.device, device, err);
    if (status != ND_OK && err != NULL && err->id == ND_E_RUNTIME_MISSING && parts.rest[0] == '@')
        nd_error_context(err, "device '%s' (an adb server is written with its port: '@HOST:5037')", uri);
    if (status != ND_OK)
        return status;
    ND_TRY(nd_device_reach(uri, parts.transport, &parts.address, err));
    device->address = parts.address;
    parts.address = NULL;
    device->label = nd_text("%s:%s%s", nd_transport_name(device->transport), device->address, parts.rest);
    ND_TRY_MEMORY(device->label != NULL, err);
    const char *query = strchr(parts.device, '?');
    return nd_device_name(device, query != NULL ? query + 1 : NULL, err);
}

/* Captures store it as a text; a longer one would fail as the capture is written. */
static enum nd_status check_length(const char *uri, struct nd_error *err)
{
    size_t n = strlen(uri);
    return n <= ND_MAX_NAME_BYTES
               ? ND_OK
               : nd_fail(err, ND_E_DEVICE_UNKNOWN, NULL, "device '%.40s...' has %zu bytes; %d are the most",
                         uri, n, ND_MAX_NAME_BYTES);
}

enum nd_status nd_device_parse(const char *uri, struct nd_device *out, struct nd_error *err)
{
    struct nd_device device;
    if (nd_exec_is_uri(uri)) /* before a file that it names is looked at */
        return nd_exec_check(uri, err) == ND_OK ? nd_device_parse_trusted(uri, out, err) : ND_ERR_USAGE;
    enum nd_status status = nd_device_parse_trusted(uri, &device, err);
    if (status == ND_OK && (status = nd_device_check_options(&device, uri, err)) != ND_OK)
        nd_device_deinit(&device);
    else if (status == ND_OK)
        *out = device;
    return status;
}

enum nd_status nd_device_parse_trusted(const char *uri, struct nd_device *out, struct nd_error *err)
{
    static const char emulated[] = "emu:";
    if (check_length(uri, err) != ND_OK)
        return ND_ERR_USAGE;
    if (strncmp(uri, emulated, strlen(emulated)) == 0)
        return parse_emulated(uri, uri + strlen(emulated), out, err);
    if (nd_exec_is_uri(uri))
        return nd_exec_parse(uri, out, err);
    ND_CLEANUP(nd_device_deinit) struct nd_device device = {.n_threads = 1};
    ND_TRY(nd_uri_is_remote(uri) ? parse_elsewhere(uri, &device, err) : parse_here(uri, &device, err));
    return ND_GIVE(out, device);
}

/* ---- when the URI is read ---- */

static bool is_arm(const char *abi)
{
    return strncmp(abi, "aarch64-", 8) == 0;
}

/* The chipset of `htp` on this machine, unless the URI names one: from /sys/devices/soc0. ND_E_DEVICE_UNKNOWN
 * on a machine that cannot have that NPU, or does not say which. */
static enum nd_status nd_device_find_own_npu(struct nd_device *device, const char *uri, struct nd_error *err)
{
    static const char machine_path[] = "/sys/devices/soc0/machine";
    void *bytes = NULL;
    size_t n = 0;
    char name[64] = "";
    if (!is_arm(nd_abi_here()))
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': this computer (%s) has no Hexagon NPU; 'htp-sim:CHIPSET' simulates one, "
                       "'adb:SERIAL' is a phone, 'ssh:HOST' a board",
                       uri, nd_abi_here());
    if (device->chipset != NULL)
        return ND_OK;
    if (nd_file_read(machine_path, sizeof name - 1, &bytes, &n, NULL) == ND_OK) {
        memcpy(name, bytes, n);
        name[strcspn(name, " \r\n")] = '\0';
    }
    free(bytes);
    device->chipset = nd_chipset_find(name);
    if (device->chipset == NULL)
        return nd_fail(
            err, ND_E_DEVICE_UNKNOWN, uri,
            "device '%s': %s says '%s', and npudiff does not know this chipset; name it: 'htp:CHIPSET'", uri,
            machine_path, name);
    return ND_OK;
}

/* ---- when the machine was asked ---- */

/* What runs there must be something that can run there: else the libraries would fail later in words that
 * nobody understands, or, worse, a simulator would pass for silicon. */
static enum nd_status check_machine(const struct nd_device *device, const struct nd_device_facts *device_facts,
                                    struct nd_error *err)
{
    if (device_facts->abi == NULL)
        return nd_fail(err, ND_E_DEVICE_CONNECT, device->label,
                       "device '%s' cannot be used: its ABI is '%s'%s, and npudiff runs on arm64-v8a, on "
                       "aarch64 and on x86_64 with Linux",
                       device->label, device_facts->said_abi != NULL ? device_facts->said_abi : "",
                       device_facts->is_android ? " with Android" : "");
    if (device->kind == ND_DEVICE_HTP && !is_arm(device_facts->abi))
        return nd_fail(err, ND_E_DEVICE_CONNECT, device->label,
                       "device '%s' (%s) has no Hexagon NPU; '%s:%s/htp-sim:CHIPSET' simulates one there",
                       device->label, device_facts->abi, nd_transport_name(device->transport), device->address);
    if (device->kind == ND_DEVICE_HTP_SIM && strcmp(device_facts->abi, "x86_64-linux") != 0)
        return nd_fail(err, ND_E_DEVICE_CONNECT, device->label,
                       "device '%s' is %s, and the simulator of the NPU is for x86_64-linux", device->label,
                       device_facts->abi);
    if (nd_device_is_npu(device->kind) && device->chipset == NULL && device_facts->chipset == NULL)
        return nd_fail(err, ND_E_DEVICE_CONNECT, device->label,
                       "device '%s' %s%s%s; name its chipset, as in '%s:%s/%s:sm8650'", device->label,
                       device_facts->soc != NULL ? "calls its chipset '" : "does not say which chipset it has",
                       device_facts->soc != NULL ? device_facts->soc : "",
                       device_facts->soc != NULL ? "', which is not known" : "",
                       nd_transport_name(device->transport), device->address,
                       nd_device_kind_name(device->kind));
    return ND_OK;
}

static enum nd_status find_runtime_of_resolve(const struct nd_device *device, const char *abi,
                                              struct nd_runtime_info *out, struct nd_error *err)
{
    const char *id = device->runtime.id[0] != '\0' ? device->runtime.id : NULL;
    if (device->method == ND_REMOTE_QNN_NET_RUN)
        return nd_runtime_find(id, out, err);
    ND_TRY(nd_runtime_find_abi(id, abi, out, err));
    enum nd_status status =
        nd_runtime_require(out, nd_device_is_npu(device->kind) ? ND_RUNTIME_FOR_NPU : ND_RUNTIME_FOR_CPU, err);
    if (status != ND_OK)
        nd_runtime_info_deinit(out);
    return status;
}

static enum nd_status copy_texts(const struct nd_device *device, struct nd_device *out, struct nd_error *err)
{
    out->label = nd_strdup(device->label);
    out->optimisation = nd_strdup(device->optimisation);
    out->address = nd_strdup(device->address);
    return out->label != NULL && out->optimisation != NULL && out->address != NULL ? ND_OK
                                                                                   : nd_fail_memory(err);
}

enum nd_status nd_device_resolve(const struct nd_device *device, const struct nd_device_facts *device_facts,
                                 struct nd_device *out, struct nd_error *err)
{
    ND_CLEANUP(nd_device_deinit)
    struct nd_device resolved = {.kind = device->kind,
                                 .chipset = device->chipset,
                                 .n_threads = device->n_threads,
                                 .transport = device->transport,
                                 .method = device->method};
    const char *query = strchr(device->uri, '?');
    ND_TRY(check_machine(device, device_facts, err));
    if (resolved.chipset == NULL && nd_device_is_npu(device->kind))
        resolved.chipset = device_facts->chipset;
    ND_TRY(copy_texts(device, &resolved, err));
    ND_TRY(find_runtime_of_resolve(device, device_facts->abi, &resolved.runtime, err));
    ND_TRY(nd_device_name(&resolved, query != NULL ? query + 1 : NULL, err));
    ND_TRY(nd_device_default_options(&resolved, err));
    for (size_t i = 0; i < device->n_options; i++)
        ND_TRY(nd_device_set_option(&resolved, device->option_keys[i], device->option_values[i], err));
    *out = resolved;
    resolved = (struct nd_device){0};
    return ND_OK;
}
