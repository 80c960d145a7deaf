#include "devices/resolve.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/device_options.h"
#include "devices/phones/remote_uri.h"
#include "devices/runtimes/sdk.h"

/* ---- when the URI is read ---- */

enum nd_status nd_device_suits_elsewhere(const struct nd_device *device, const char *uri, struct nd_error *err)
{
    if (nd_device_is_evaluated(device->kind))
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': references are evaluated on this machine; '%s' alone is the device", uri,
                       nd_device_kind_name(device->kind));
    if (device->way == ND_REMOTE_QNN_NET_RUN && device->kind != ND_DEVICE_HTP)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': qnn-net-run runs on 'htp', not on '%s', which the agent does", uri,
                       nd_device_kind_name(device->kind));
    return ND_OK;
}

static bool is_arm(const char *abi)
{
    return strncmp(abi, "aarch64-", 8) == 0;
}

enum nd_status nd_device_find_own_npu(struct nd_device *device, const char *uri, struct nd_error *err)
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

enum nd_status nd_runtime_name(const char *id, struct nd_runtime_info *out, struct nd_error *err)
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

/* ---- when the machine was asked ---- */

/* What runs there must be something that can run there: else the libraries would fail later in words that
 * nobody understands, or, worse, a simulator would pass for silicon. */
static enum nd_status check_machine(const struct nd_device *device, const struct nd_identity *identity,
                                    struct nd_error *err)
{
    if (identity->abi == NULL)
        return nd_fail(
            err, ND_E_DEVICE_CONNECT, device->label,
            "device '%s' cannot be used: its ABI is '%s'%s, and npudiff runs on arm64-v8a, on aarch64 "
            "and on x86_64 with Linux",
            device->label, identity->said_abi != NULL ? identity->said_abi : "",
            identity->is_android ? " with Android" : "");
    if (device->kind == ND_DEVICE_HTP && !is_arm(identity->abi))
        return nd_fail(err, ND_E_DEVICE_CONNECT, device->label,
                       "device '%s' (%s) has no Hexagon NPU; '%s:%s/htp-sim:CHIPSET' simulates one there",
                       device->label, identity->abi, nd_transport_name(device->transport), device->address);
    if (device->kind == ND_DEVICE_HTP_SIM && strcmp(identity->abi, "x86_64-linux") != 0)
        return nd_fail(err, ND_E_DEVICE_CONNECT, device->label,
                       "device '%s' is %s, and the simulator of the NPU is for x86_64-linux", device->label,
                       identity->abi);
    if (nd_device_is_npu(device->kind) && device->chipset == NULL && identity->chipset == NULL)
        return nd_fail(
            err, ND_E_DEVICE_CONNECT, device->label,
            "device '%s' %s%s%s; name its chipset, as in '%s:%s/%s:sm8650'", device->label,
            identity->soc != NULL ? "calls its chipset '" : "does not say which chipset it has",
            identity->soc != NULL ? identity->soc : "", identity->soc != NULL ? "', which is not known" : "",
            nd_transport_name(device->transport), device->address, nd_device_kind_name(device->kind));
    return ND_OK;
}

static enum nd_status find_runtime(const struct nd_device *device, const char *abi, struct nd_runtime_info *out,
                                   struct nd_error *err)
{
    const char *id = device->runtime.id[0] != '\0' ? device->runtime.id : NULL;
    if (device->way == ND_REMOTE_QNN_NET_RUN)
        return nd_runtime_find(id, out, err);
    enum nd_status status = nd_runtime_find_abi(id, abi, out, err);
    if (status != ND_OK)
        return status;
    status =
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

enum nd_status nd_device_resolve(const struct nd_device *device, const struct nd_identity *identity,
                                 struct nd_device *out, struct nd_error *err)
{
    struct nd_device resolved = {.kind = device->kind,
                                 .chipset = device->chipset,
                                 .n_threads = device->n_threads,
                                 .transport = device->transport,
                                 .way = device->way};
    const char *query = strchr(device->uri, '?');
    enum nd_status status = check_machine(device, identity, err);
    if (resolved.chipset == NULL && nd_device_is_npu(device->kind))
        resolved.chipset = identity->chipset;
    if (status == ND_OK)
        status = copy_texts(device, &resolved, err);
    if (status == ND_OK)
        status = find_runtime(device, identity->abi, &resolved.runtime, err);
    if (status == ND_OK)
        status = nd_device_name(&resolved, query != NULL ? query + 1 : NULL, err);
    if (status == ND_OK)
        status = nd_device_default_options(&resolved, err);
    for (size_t i = 0; status == ND_OK && i < device->n_options; i++)
        status = nd_device_set_option(&resolved, device->option_keys[i], device->option_values[i], err);
    if (status == ND_OK)
        *out = resolved;
    else
        nd_device_deinit(&resolved);
    return status;
}
