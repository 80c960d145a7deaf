/* The layouts below are those of QNN's system interface 1.x, in so far as they are needed. The SDKs from 2.47
 * to 2.51 all describe a binary in version 3 of it; another version is refused. */
#include "devices/agent/runtime/context_binary.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"

static const size_t max_context_bytes = (size_t)8 << 30;
enum { INTERFACE_MAJOR = 1, INFO_VERSION = 3, ENCODING_SCALE_OFFSET = 0, QUANTISATION_DEFINED = 1 };

struct qnn_tensor {
    uint32_t version;
    struct { /* versions 1 and 2 agree in what is read here */
        uint32_t id;
        const char *name;
        uint32_t type;
        uint32_t data_format;
        uint32_t data_type;
        struct {
            uint32_t definition;
            uint32_t encoding;
            union {
                struct {
                    float scale;
                    int32_t offset;
                } per_tensor;
                uint64_t other[4];
            } value;
        } quantisation;
        uint32_t rank;
        const uint32_t *dims;
        uint64_t other[6];
    } body;
};
_Static_assert(sizeof(struct qnn_tensor) == 144, "the layout of Qnn_Tensor_t on 64-bit machines");

struct qnn_graph {
    uint32_t version;
    struct { /* versions 1 to 3 begin alike */
        const char *name;
        uint32_t n_inputs;
        const struct qnn_tensor *inputs;
        uint32_t n_outputs;
        const struct qnn_tensor *outputs;
    } body;
};

struct qnn_binary {
    uint32_t version;
    struct {
        uint32_t backend;
        const char *build_id;
        struct nd_context_version core_api;
        struct nd_context_version backend_api;
        const char *soc_version;
        struct nd_context_version blob;
        uint64_t blob_bytes;
        uint32_t n_tensors;
        const struct qnn_tensor *tensors;
        uint32_t n_graphs;
        const struct qnn_graph *graphs; /* of which only the first is read: their size differs by version */
        const void *platform;
        uint32_t metadata_bytes;
        const void *metadata;
        uint32_t soc_model;
    } body;
};

struct qnn_system {
    uint32_t backend;
    const char *name;
    struct nd_context_version version;
    struct {
        uint64_t (*create)(void **handle);
        uint64_t (*get_binary_info)(void *handle, void *binary, uint64_t binary_bytes,
                                    const struct qnn_binary **info, uint64_t *info_bytes);
        uint64_t (*get_metadata)(void *handle, const void *binary, uint64_t binary_bytes,
                                 const struct qnn_binary **info);
        uint64_t (*destroy)(void *handle);
    } functions;
};

static enum nd_status load_system(const char *path, const struct qnn_system **out, struct nd_error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return nd_fail(err, ND_E_RUNTIME_LOAD, path, "cannot load '%s': %s", path, dlerror());
    void *symbol = dlsym(library, "QnnSystemInterface_getProviders");
    if (symbol == NULL)
        return nd_fail(err, ND_E_RUNTIME_API, path, "'%s' has no QnnSystemInterface_getProviders", path);
    uint64_t (*get_providers)(const struct qnn_system *const **list, uint32_t *n);
    memcpy(&get_providers, &symbol, sizeof get_providers); /* ISO C has no such cast */
    const struct qnn_system *const *list = NULL;
    uint32_t n = 0;
    if (get_providers(&list, &n) != 0 || n == 0 || list == NULL)
        return nd_fail(err, ND_E_RUNTIME_API, path, "'%s' offers no system interface", path);
    if (list[0]->version.major != INTERFACE_MAJOR)
        return nd_fail(err, ND_E_RUNTIME_API, path, "'%s' offers system interface %u.%u; %d.x is known", path,
                       (unsigned int)list[0]->version.major, (unsigned int)list[0]->version.minor,
                       INTERFACE_MAJOR);
    *out = list[0];
    return ND_OK;
}

static enum nd_status take_tensors(const struct qnn_tensor *from, uint32_t n, struct nd_context_tensor **out,
                                   struct nd_error *err)
{
    struct nd_context_tensor *tensors = nd_calloc(n, sizeof *tensors);
    ND_TRY_MEMORY(tensors != NULL, err);
    for (uint32_t i = 0; i < n; i++) {
        bool is_known = from[i].version == 1 || from[i].version == 2;
        if (!is_known || from[i].body.rank > ND_MAX_RANK) {
            free(tensors);
            return nd_fail(err, ND_E_PREPARE_CONTEXT, NULL,
                           "tensor %u of the context has version %u and rank %u, which is not handled",
                           (unsigned int)i, (unsigned int)from[i].version,
                           is_known ? (unsigned int)from[i].body.rank : 0);
        }
        tensors[i] = (struct nd_context_tensor){.name = from[i].body.name,
                                                .data_type = from[i].body.data_type,
                                                .shape = {.rank = (int)from[i].body.rank}};
        for (uint32_t d = 0; d < from[i].body.rank; d++)
            tensors[i].shape.dims[d] = from[i].body.dims[d];
        tensors[i].has_scale = from[i].body.quantisation.definition == QUANTISATION_DEFINED &&
                               from[i].body.quantisation.encoding == ENCODING_SCALE_OFFSET;
        tensors[i].scale = from[i].body.quantisation.value.per_tensor.scale;
        tensors[i].offset = from[i].body.quantisation.value.per_tensor.offset;
    }
    *out = tensors;
    return ND_OK;
}

typedef enum nd_status (*visit_info)(void *context, const struct nd_context_info *info, struct nd_error *err);

static enum nd_status tell(const struct qnn_binary *binary, visit_info visit, void *context,
                           struct nd_error *err)
{
    if (binary->version != INFO_VERSION || binary->body.n_graphs == 0)
        return nd_fail(err, ND_E_PREPARE_CONTEXT, NULL,
                       "the context is described in version %u, which is not known, or holds no graph",
                       (unsigned int)binary->version);
    const struct qnn_graph *graph = &binary->body.graphs[0];
    ND_FREED struct nd_context_tensor *inputs = NULL, *outputs = NULL;
    ND_TRY(take_tensors(graph->body.inputs, graph->body.n_inputs, &inputs, err));
    ND_TRY(take_tensors(graph->body.outputs, graph->body.n_outputs, &outputs, err));
    const struct nd_context_info info = {.build_id = binary->body.build_id,
                                         .backend = binary->body.backend,
                                         .soc_model = binary->body.soc_model,
                                         .core_api = binary->body.core_api,
                                         .backend_api = binary->body.backend_api,
                                         .n_graphs = binary->body.n_graphs,
                                         .graph = graph->body.name,
                                         .n_inputs = graph->body.n_inputs,
                                         .inputs = inputs,
                                         .n_outputs = graph->body.n_outputs,
                                         .outputs = outputs};
    return visit(context, &info, err);
}

enum nd_status nd_context_read(const char *library, const char *path, visit_info visit, void *context,
                               struct nd_error *err)
{
    const struct qnn_system *system = NULL;
    const struct qnn_binary *binary = NULL;
    void *handle = NULL;
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    uint64_t info_bytes = 0;
    ND_TRY(load_system(library, &system, err));
    ND_TRY(nd_file_read(path, max_context_bytes, &bytes, &n_bytes, err));
    if (system->functions.create(&handle) != 0)
        return nd_fail(err, ND_E_RUNTIME_API, library, "'%s' cannot make a system context", library);
    uint64_t code = system->functions.get_binary_info(handle, bytes, n_bytes, &binary, &info_bytes);
    enum nd_status status =
        code == 0 && binary != NULL
            ? tell(binary, visit, context, err)
            : nd_fail(err, ND_E_PREPARE_CONTEXT, path, "'%s' is no context binary for '%s' (error %llu)", path,
                      library, (unsigned long long)code);
    if (handle != NULL)
        system->functions.destroy(handle);
    return status;
}
