#include "devices/exec_device.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/device_options.h"
#include "devices/runner_job.h"
#include "devices/runners/find_runner.h"

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

enum nd_status nd_exec_apply_option(struct nd_device *device, const char *uri, const char *key,
                                    const char *value, struct nd_error *err)
{
    if (strcmp(key, ND_OFF_GRID_OPTION) == 0 && strcmp(value, "round") != 0)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': " ND_OFF_GRID_OPTION " is 'round', not '%s'", uri, value);
    return nd_device_set_option(device, key, value, err);
}

/* The program, by its name or its path. */
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
