#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/names.h"
#include "core/text/strbuf.h"
#include "devices/device_options.h"
#include "devices/emulated.h"
#include "devices/exec_device.h"
#include "devices/resolve.h"
#include "npudiff/core/parse.h"
#include "devices/phones/phones.h"
#include "devices/phones/remote_uri.h"
#include "devices/runtimes/sdk.h"

const struct nd_device_syntax *nd_device_syntaxes(void)
{
    static const struct nd_device_syntax syntaxes[] = {
        {"cpu[@RUNTIME][?optimisation=LEVEL&threads=N]",
         "ONNX Runtime's CPU provider; optimisation is 'disable' unless asked"},
        {"htp-sim:CHIPSET[@RUNTIME][?OPTION=VALUE&...]",
         "Qualcomm's QNN HTP backend in its x86 simulator; other options go to the provider"},
        {"htp[:CHIPSET][@RUNTIME][?OPTION=VALUE&...]",
         "the NPU of this machine, a Snapdragon that runs Linux; CHIPSET where the machine does not say it"},
        {"exact[?rounding=ROUNDING]",
         "the quantised reference: every layer computed exactly and rounded once; half-even unless asked "
         "(half-away, floor, ...)"},
        {"float64", "the float reference: a float model in double precision"},
        {"emu:ITEM[,ITEM...] or emu:PROFILE.yaml",
         "an emulated device: the arithmetic of a chip (htp-v73), and faults of tensors (stale@TENSOR)"},
        {"exec:RUNNER[?OPTION=VALUE&...]",
         "a program that runs models for npudiff: npudiff-runner-RUNNER in $NPUDIFF_RUNNERS or PATH"},
        {"adb:[SERIAL][/DEVICE] or adb:*[/DEVICE]",
         "a phone, through adb: what runs there is htp, cpu or htp-sim[:CHIPSET] with its @RUNTIME and "
         "options, "
         "htp unless given; no SERIAL: the only phone; *: every phone"},
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
    static const char *const names[] = {"cpu", "htp-sim", "htp", "exact", "float64", "emu", "exec"};
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

const char *nd_device_agent_suffix(enum nd_device_kind kind)
{
    return nd_device_is_evaluated(kind) ? "-exact" : kind == ND_DEVICE_EXEC ? "-exec" : "";
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
    free(device->address);
    nd_runtime_info_deinit(&device->runtime);
    for (size_t i = 0; i < device->n_options; i++) {
        free(device->option_keys[i]);
        free(device->option_values[i]);
    }
    free(device->option_keys);
    free(device->option_values);
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
                                        "htp", "exec",  "adb",     "ssh"};
    char word[64], meant[ND_DID_YOU_MEAN_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(kind, ":"), kind);
    nd_did_you_mean(word, kinds, sizeof kinds / sizeof kinds[0], sizeof kinds[0], meant);
    const struct nd_chipset *chipset = nd_chipset_find(strcmp(kind, "htp-sim") == 0 ? "gen3" : kind);
    if (chipset != NULL) /* "gen3", or "htp-sim" without a chipset */
        snprintf(meant, sizeof meant, "; did you mean 'htp-sim:%s'?",
                 chipset->alias[0] != '\0' ? chipset->alias : chipset->sm);
    return nd_fail(
        err, ND_E_DEVICE_UNKNOWN, uri,
        "unknown device '%s'; devices are 'cpu', 'exact', 'float64', 'emu:ITEM,...', 'htp-sim:CHIPSET', 'htp', "
        "'exec:RUNNER', 'adb:SERIAL' and 'ssh:HOST'; 'npudiff devices' lists them%s",
        uri, meant);
}

static enum nd_status parse_kind(struct nd_device *device, const char *uri, const char *kind,
                                 struct nd_error *err)
{
    static const enum nd_device_kind plain[] = {ND_DEVICE_CPU, ND_DEVICE_EXACT, ND_DEVICE_FLOAT64};
    static const enum nd_device_kind npus[] = {ND_DEVICE_HTP_SIM, ND_DEVICE_HTP};
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

enum nd_status nd_device_name(struct nd_device *device, const char *query, struct nd_error *err)
{
    struct nd_strbuf canonical = {0};
    if (device->transport != ND_TRANSPORT_NONE)
        nd_strbuf_printf(&canonical, "%s:%s/%s/", nd_transport_name(device->transport), device->address,
                         nd_remote_way_name(device->way));
    put_kind(&canonical, device);
    if (query != NULL)
        nd_strbuf_printf(&canonical, "?%s", query);
    free(device->uri);
    device->uri = nd_strbuf_take(&canonical);
    return device->uri != NULL ? ND_OK : nd_fail_memory(err);
}

/* References need no runtime but npudiff itself. What is installed for another machine is seen when its ABI is
 * known. */
static enum nd_status find_runtime(struct nd_device *device, const char *uri, const char *id,
                                   struct nd_error *err)
{
    if (device->transport != ND_TRANSPORT_NONE)
        return nd_runtime_name(id, &device->runtime, err);
    if (!nd_device_is_evaluated(device->kind)) {
        enum nd_status status = nd_runtime_find(id, &device->runtime, err);
        if (status != ND_OK)
            return status;
        return nd_runtime_require(
            &device->runtime, nd_device_is_npu(device->kind) ? ND_RUNTIME_FOR_NPU : ND_RUNTIME_FOR_CPU, err);
    }
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

/* KIND[:CHIPSET][@RUNTIME][?QUERY] into a device that says already where it is; `what` is that part of the
 * URI. */
static enum nd_status parse_plain(const char *uri, const char *what, struct nd_device *device,
                                  struct nd_error *err)
{
    char *text = nd_strdup(what);
    if (text == NULL)
        return nd_fail_memory(err);
    char *query = strchr(text, '?');
    if (query != NULL)
        *query++ = '\0';
    char *runtime = strchr(text, '@');
    if (runtime != NULL)
        *runtime++ = '\0';
    enum nd_status status = parse_kind(device, uri, text, err);
    if (status == ND_OK && device->transport != ND_TRANSPORT_NONE)
        status = nd_device_suits_elsewhere(device, uri, err);
    else if (status == ND_OK && device->kind == ND_DEVICE_HTP)
        status = nd_device_find_own_npu(device, uri, err);
    if (status == ND_OK)
        status = find_runtime(device, uri, runtime, err);
    if (status == ND_OK) {
        /* As a reference the CPU provider must not fuse quantised groups into operators of other arithmetic; an
         * NPU gets what applications use. */
        device->optimisation = nd_strdup(nd_device_is_npu(device->kind) ? "all" : "disable");
        if (device->optimisation == NULL)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK && device->transport == ND_TRANSPORT_NONE)
        status = nd_device_name(device, query, err);
    if (status == ND_OK && device->transport == ND_TRANSPORT_NONE)
        status = nd_device_default_options(device, err);
    if (status == ND_OK && query != NULL)
        status = nd_device_apply_query(device, uri, query, err);
    free(text);
    return status;
}

static enum nd_status parse_here(const char *uri, struct nd_device *device, struct nd_error *err)
{
    const char *colon = strchr(uri, ':');
    enum nd_status status = parse_plain(uri, uri, device, err);
    if (status != ND_OK)
        return status;
    device->label = nd_strdup(device->kind == ND_DEVICE_HTP_SIM && colon != NULL ? colon + 1 : uri);
    return device->label != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status parse_elsewhere(const char *uri, struct nd_device *device, struct nd_error *err)
{
    struct nd_remote_uri parts = {0};
    struct nd_strbuf label = {0};
    enum nd_status status = nd_remote_uri_parse(uri, &parts, err);
    if (status == ND_OK) {
        device->transport = parts.transport;
        device->way = parts.way;
        status = parse_plain(uri, parts.device, device, err);
        if (status != ND_OK && err != NULL && err->id == ND_E_RUNTIME_MISSING && parts.rest[0] == '@')
            nd_error_context(err, "device '%s' (an adb server is written with its port: '@HOST:5037')", uri);
    }
    if (status == ND_OK)
        status = nd_device_reach(uri, parts.transport, &parts.address, err);
    if (status == ND_OK) {
        device->address = parts.address;
        parts.address = NULL;
        nd_strbuf_printf(&label, "%s:%s%s", nd_transport_name(device->transport), device->address, parts.rest);
        device->label = nd_strbuf_take(&label);
        const char *query = strchr(parts.device, '?');
        status = device->label != NULL ? nd_device_name(device, query != NULL ? query + 1 : NULL, err)
                                       : nd_fail_memory(err);
    }
    nd_remote_uri_deinit(&parts);
    return status;
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
    struct nd_device device = {.n_threads = 1};
    enum nd_status status =
        nd_uri_is_remote(uri) ? parse_elsewhere(uri, &device, err) : parse_here(uri, &device, err);
    if (status == ND_OK)
        *out = device;
    else
        nd_device_deinit(&device);
    return status;
}
