#include "devices/agent/runtime/ort.h"

#include <dlfcn.h>
#include <string.h>

struct api_base {
    const void *const *(*get_api)(uint32_t version);
    const char *(*get_version_string)(void);
};

enum nd_status nd_ort_load(const char *path, struct nd_ort *out, struct nd_error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return nd_fail(err, ND_E_RUNTIME_LOAD, path, "cannot load ONNX Runtime '%s': %s", path, dlerror());
    void *symbol = dlsym(library, "OrtGetApiBase");
    if (symbol == NULL)
        return nd_fail(err, ND_E_RUNTIME_API, path, "'%s' is not ONNX Runtime: it has no OrtGetApiBase", path);
    const struct api_base *(*get_base)(void);
    memcpy(&get_base, &symbol, sizeof get_base); /* ISO C has no cast from object to function pointer */
    const struct api_base *base = get_base();
    const void *const *slots = base->get_api(ND_ORT_API_VERSION);
    if (slots == NULL)
        return nd_fail(err, ND_E_RUNTIME_API, path, "'%s' is ONNX Runtime %s, older than the 1.%d needed", path,
                       base->get_version_string(), ND_ORT_API_VERSION);
    struct nd_ort ort = {.library = library, .version = base->get_version_string()};
#define ORT_FUNCTION(slot, name, result, arguments) memcpy(&ort.name, &slots[slot], sizeof ort.name);
#include "devices/agent/runtime/ort_table.def"
#undef ORT_FUNCTION
    *out = ort;
    return ND_OK;
}

const char *nd_ort_error_name(int code)
{
    static const char *const names[] = {"OK",
                                        "FAIL",
                                        "INVALID_ARGUMENT",
                                        "NO_SUCHFILE",
                                        "NO_MODEL",
                                        "ENGINE_ERROR",
                                        "RUNTIME_EXCEPTION",
                                        "INVALID_PROTOBUF",
                                        "MODEL_LOADED",
                                        "NOT_IMPLEMENTED",
                                        "INVALID_GRAPH",
                                        "EP_FAIL",
                                        "MODEL_LOAD_CANCELED",
                                        "MODEL_REQUIRES_COMPILATION",
                                        "NOT_FOUND"};
    if (code < 0 || (size_t)code >= sizeof names / sizeof names[0])
        return "UNKNOWN";
    return names[code];
}

enum nd_status nd_ort_check(const struct nd_ort *ort, ort_status *status, const char *doing,
                            struct nd_error *err)
{
    if (status == NULL)
        return ND_OK;
    enum nd_status result =
        nd_fail(err, ND_E_RUNTIME_CALL, doing, "%s: %s: %s", doing,
                nd_ort_error_name(ort->GetErrorCode(status)), nd_said(ort->GetErrorMessage(status)));
    ort->ReleaseStatus(status);
    return result;
}
