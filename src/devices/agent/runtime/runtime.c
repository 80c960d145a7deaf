#include "devices/agent/runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "devices/agent/runtime/ort_runtime.h"

static void forward_log(void *context, int severity, const char *category, const char *log_id,
                        const char *code_location, const char *message)
{
    (void)category;
    (void)log_id;
    const struct nd_runtime *runtime = context;
    runtime->log(runtime->log_context, severity, code_location, message);
}

static void drop_log(void *context, int severity, const char *category, const char *log_id,
                     const char *code_location, const char *message)
{
    (void)context;
    (void)severity;
    (void)category;
    (void)log_id;
    (void)code_location;
    (void)message;
}

/* The provider's device is the one that carries the name under which its library was registered. */
static enum nd_status find_provider_device(struct nd_runtime *runtime, const char *name, struct nd_error *err)
{
    const struct nd_ort *ort = &runtime->ort;
    const struct ort_ep_device *const *devices = NULL;
    size_t n = 0;
    enum nd_status status =
        nd_ort_check(ort, ort->GetEpDevices(runtime->env, &devices, &n), "listing devices", err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        if (strcmp(ort->EpDevice_EpName(devices[i]), name) == 0) {
            runtime->provider_device = devices[i];
            return ND_OK;
        }
    }
    if (status != ND_OK)
        return status;
    return nd_fail(err, ND_E_RUNTIME_API, name, "provider '%s' offers no device on this machine", name);
}

enum nd_status nd_runtime_create(const struct nd_runtime_options *options, struct nd_runtime **out,
                                 struct nd_error *err)
{
    struct nd_runtime *runtime = nd_calloc(1, sizeof *runtime);
    if (runtime == NULL)
        return nd_fail_memory(err);
    runtime->log = options->log;
    runtime->log_context = options->log_context;
    enum nd_status status = nd_ort_load(options->ort_library, &runtime->ort, err);
    if (status != ND_OK) {
        free(runtime);
        return status;
    }
    const struct nd_ort *ort = &runtime->ort;
    status = nd_ort_check(ort,
                          ort->CreateEnvWithCustomLogger(options->log != NULL ? forward_log : drop_log, runtime,
                                                         options->log_severity, "npudiff", &runtime->env),
                          "creating the environment", err);
    if (status == ND_OK)
        status = nd_ort_check(ort, ort->DisableTelemetryEvents(runtime->env), "disabling telemetry", err);
    if (status == ND_OK && options->provider_name != NULL) {
        status = nd_ort_check(ort,
                              ort->RegisterExecutionProviderLibrary(runtime->env, options->provider_name,
                                                                    options->provider_library),
                              "registering the provider", err);
        if (status == ND_OK)
            status = find_provider_device(runtime, options->provider_name, err);
    }
    if (status != ND_OK) {
        nd_runtime_destroy(&runtime);
        return status;
    }
    *out = runtime;
    return ND_OK;
}

void nd_runtime_destroy(struct nd_runtime **runtime)
{
    if (*runtime == NULL)
        return;
    if ((*runtime)->env != NULL)
        (*runtime)->ort.ReleaseEnv((*runtime)->env);
    free(*runtime);
    *runtime = NULL;
}

const char *nd_runtime_version(const struct nd_runtime *runtime)
{
    return runtime->ort.version;
}

bool nd_runtime_starts_program(void)
{
    return false;
}

const char *nd_runtime_program(const struct nd_runtime *runtime)
{
    (void)runtime;
    return "";
}

const char *nd_runtime_build_info(const struct nd_runtime *runtime)
{
    return runtime->ort.GetBuildInfoString();
}

bool nd_optimisation_from_name(const char *name, enum nd_optimisation *out)
{
    static const struct {
        const char *name;
        enum nd_optimisation level;
    } levels[] = {{"disable", ND_OPTIMISATION_DISABLE},
                  {"basic", ND_OPTIMISATION_BASIC},
                  {"extended", ND_OPTIMISATION_EXTENDED},
                  {"all", ND_OPTIMISATION_ALL}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(levels[i].name, name) == 0) {
            *out = levels[i].level;
            return true;
        }
    }
    return false;
}
