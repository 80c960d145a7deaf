/* runtime.h by ONNX Runtime: its library is opened, a session is made with the options of its provider, run,
 * and asked where its nodes went. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/items.h"
#include "devices/agent/runtime/ort.h"
#include "devices/agent/runtime/runtime.h"

struct nd_runtime {
    struct nd_ort ort;
    struct ort_env *env;
    const struct ort_ep_device *provider_device; /* NULL: the CPU provider only */
    nd_runtime_log log;
    void *log_context;
};

struct nd_runtime_session {
    struct nd_runtime *runtime;
    struct ort_session *handle;
    struct ort_memory_info *cpu_memory;
    size_t n_inputs;
    size_t n_outputs;
    struct nd_session_io *inputs;
    struct nd_session_io *outputs;
    const char **input_names;
    const char **output_names;
    struct ort_value **input_values;  /* of the run in progress */
    struct ort_value **output_values; /* of the last run */
};

struct api_base {
    const void *const *(*get_api)(uint32_t version);
    const char *(*get_version_string)(void);
};

/* Loads the library and fills the table. ND_E_RUNTIME_LOAD: cannot be loaded; ND_E_RUNTIME_API: not ONNX
 * Runtime, or older than ND_ORT_API_VERSION. */
static enum nd_status nd_ort_load(const char *path, struct nd_ort *out, struct nd_error *err)
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
    return code < 0 || (size_t)code >= sizeof names / sizeof names[0] ? "UNKNOWN" : names[code];
}

/* Turns a status of ONNX Runtime into ours and releases it: ND_OK for NULL, else ND_E_RUNTIME_CALL with
 * "<doing>: <code name>: <text>". */
static enum nd_status nd_ort_check(const struct nd_ort *ort, ort_status *status, const char *doing,
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

struct rows {
    struct nd_placement *items;
    size_t n, capacity;
};

static enum nd_status add_nodes(const struct nd_ort *ort, const struct ort_ep_subgraph *subgraph, size_t number,
                                struct rows *rows, struct nd_error *err)
{
    static const char doing[] = "reading placement";
    const char *provider = NULL;
    const struct ort_ep_node *const *nodes = NULL;
    size_t n_nodes = 0;
    ND_TRY(nd_ort_check(ort, ort->EpAssignedSubgraph_GetEpName(subgraph, &provider), doing, err));
    ND_TRY(nd_ort_check(ort, ort->EpAssignedSubgraph_GetNodes(subgraph, &nodes, &n_nodes), doing, err));
    ND_TRY_MEMORY(nd_grow((void **)&rows->items, &rows->capacity, rows->n + n_nodes, sizeof *rows->items), err);
    for (size_t i = 0; i < n_nodes; i++) {
        struct nd_placement *row = &rows->items[rows->n];
        row->provider = provider;
        row->subgraph = number;
        ND_TRY(nd_ort_check(ort, ort->EpAssignedNode_GetName(nodes[i], &row->name), doing, err));
        ND_TRY(nd_ort_check(ort, ort->EpAssignedNode_GetDomain(nodes[i], &row->domain), doing, err));
        ND_TRY(nd_ort_check(ort, ort->EpAssignedNode_GetOperatorType(nodes[i], &row->op_type), doing, err));
        rows->n++;
    }
    return ND_OK;
}

enum nd_status nd_session_placement(const struct nd_runtime_session *session, struct nd_placement **out,
                                    size_t *n, struct nd_error *err)
{
    const struct nd_ort *ort = &session->runtime->ort;
    const struct ort_ep_subgraph *const *subgraphs = NULL;
    size_t n_subgraphs = 0;
    struct rows rows = {0};
    enum nd_status status =
        nd_ort_check(ort, ort->Session_GetEpGraphAssignmentInfo(session->handle, &subgraphs, &n_subgraphs),
                     "reading placement", err);
    for (size_t i = 0; status == ND_OK && i < n_subgraphs; i++)
        status = add_nodes(ort, subgraphs[i], i, &rows, err);
    if (status != ND_OK) {
        free(rows.items);
        return status;
    }
    *out = rows.items;
    *n = rows.n;
    return ND_OK;
}

enum { ARENA_ALLOCATOR = 1, DEFAULT_MEMORY = 0 }; /* OrtAllocatorType, OrtMemType */

/* The types that models may have here (see nd_onnx_dtype). 4-bit integers above all are not ours as they come:
 * ONNX Runtime packs two to a byte. */
static bool is_handled(enum nd_dtype dtype)
{
    return nd_dtype_size_bytes(dtype) > 0 && dtype <= ND_DTYPE_BF16;
}

static enum nd_status read_tensor_info(const struct nd_ort *ort, const struct ort_tensor_info *info,
                                       const char *name, enum nd_dtype *dtype, struct nd_shape *shape,
                                       struct nd_error *err)
{
    int element_type = 0;
    size_t rank = 0;
    ND_TRY(nd_ort_check(ort, ort->GetTensorElementType(info, &element_type), "reading a tensor's type", err));
    ND_TRY(nd_ort_check(ort, ort->GetDimensionsCount(info, &rank), "reading a tensor's rank", err));
    if (!is_handled((enum nd_dtype)element_type))
        return nd_fail(err, ND_E_DEVICE_OUTPUT, name,
                       "tensor '%s' has element type %d (%s), which is not handled", name, element_type,
                       nd_dtype_name((enum nd_dtype)element_type));
    if (rank > ND_MAX_RANK)
        return nd_fail(err, ND_E_DEVICE_OUTPUT, name, "tensor '%s' has rank %zu; at most %d are handled", name,
                       rank, ND_MAX_RANK);
    *dtype = (enum nd_dtype)element_type;
    *shape = (struct nd_shape){.rank = (int)rank};
    return nd_ort_check(ort, ort->GetDimensions(info, shape->dims, rank), "reading a tensor's shape", err);
}

/* Copies a name that ONNX Runtime allocated. */
static enum nd_status take_name(const struct nd_ort *ort, struct ort_allocator *allocator, char *theirs,
                                char **out, struct nd_error *err)
{
    *out = nd_strdup(theirs);
    ND_TRY(nd_ort_check(ort, ort->AllocatorFree(allocator, theirs), "freeing a name", err));
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status describe_input(struct nd_runtime_session *session, struct ort_allocator *allocator,
                                     size_t i, struct nd_error *err)
{
    const struct nd_ort *ort = &session->runtime->ort;
    struct nd_session_io *io = &session->inputs[i];
    char *name = NULL;
    ND_TRY(nd_ort_check(ort, ort->SessionGetInputName(session->handle, i, allocator, &name),
                        "reading an input's name", err));
    ND_TRY(take_name(ort, allocator, name, &io->name, err));
    struct ort_type_info *type = NULL;
    enum nd_status status =
        nd_ort_check(ort, ort->SessionGetInputTypeInfo(session->handle, i, &type), "reading an input", err);
    const struct ort_tensor_info *info = NULL;
    if (status == ND_OK)
        status = nd_ort_check(ort, ort->CastTypeInfoToTensorInfo(type, &info), "reading an input", err);
    if (status == ND_OK && info == NULL)
        status = nd_fail(err, ND_E_DEVICE_OUTPUT, io->name, "input '%s' is not a tensor", io->name);
    if (status == ND_OK)
        status = read_tensor_info(ort, info, io->name, &io->dtype, &io->shape, err);
    if (type != NULL)
        ort->ReleaseTypeInfo(type);
    session->input_names[i] = io->name;
    return status;
}

static enum nd_status describe_output(struct nd_runtime_session *session, struct ort_allocator *allocator,
                                      size_t i, struct nd_error *err)
{
    const struct nd_ort *ort = &session->runtime->ort;
    struct nd_session_io *io = &session->outputs[i];
    char *name = NULL;
    ND_TRY(nd_ort_check(ort, ort->SessionGetOutputName(session->handle, i, allocator, &name),
                        "reading an output's name", err));
    ND_TRY(take_name(ort, allocator, name, &io->name, err));
    io->shape.rank = -1;
    session->output_names[i] = io->name;
    return ND_OK;
}

static enum nd_status describe(struct nd_runtime_session *session, struct nd_error *err)
{
    const struct nd_ort *ort = &session->runtime->ort;
    struct ort_allocator *allocator = NULL;
    size_t n_inputs = 0, n_outputs = 0;
    ND_TRY(nd_ort_check(ort, ort->GetAllocatorWithDefaultOptions(&allocator), "getting the allocator", err));
    ND_TRY(nd_ort_check(ort, ort->SessionGetInputCount(session->handle, &n_inputs), "counting inputs", err));
    ND_TRY(nd_ort_check(ort, ort->SessionGetOutputCount(session->handle, &n_outputs), "counting outputs", err));
    ND_TRY(nd_ort_check(ort, ort->CreateCpuMemoryInfo(ARENA_ALLOCATOR, DEFAULT_MEMORY, &session->cpu_memory),
                        "describing memory", err));
    session->inputs = nd_calloc(n_inputs, sizeof *session->inputs);
    session->outputs = nd_calloc(n_outputs, sizeof *session->outputs);
    session->input_names = nd_calloc(n_inputs, sizeof *session->input_names);
    session->output_names = nd_calloc(n_outputs, sizeof *session->output_names);
    session->input_values = nd_calloc(n_inputs, sizeof *session->input_values);
    session->output_values = nd_calloc(n_outputs, sizeof *session->output_values);
    ND_TRY_MEMORY(session->inputs != NULL && session->outputs != NULL && session->input_names != NULL &&
                      session->output_names != NULL && session->input_values != NULL &&
                      session->output_values != NULL,
                  err);
    session->n_inputs = n_inputs;
    session->n_outputs = n_outputs;
    for (size_t i = 0; i < n_inputs; i++)
        ND_TRY(describe_input(session, allocator, i, err));
    for (size_t i = 0; i < n_outputs; i++)
        ND_TRY(describe_output(session, allocator, i, err));
    return ND_OK;
}

static enum nd_status apply_config(const struct nd_ort *ort, struct ort_session_options *handle,
                                   const struct nd_session_options *options, struct nd_error *err)
{
    /* Where each node went is asked for every time: one that quietly leaves work to the CPU must be seen. */
    ND_TRY(nd_ort_check(ort, ort->AddSessionConfigEntry(handle, "session.record_ep_graph_assignment_info", "1"),
                        "asking for placement", err));
    for (size_t i = 0; i < options->n_config; i++)
        ND_TRY(nd_ort_check(
            ort, ort->AddSessionConfigEntry(handle, options->config[i].key, options->config[i].value),
            options->config[i].key, err));
    ND_TRY(nd_ort_check(ort, ort->SetSessionGraphOptimizationLevel(handle, (int)options->optimisation),
                        "setting the optimisation level", err));
    ND_TRY(nd_ort_check(ort, ort->SetIntraOpNumThreads(handle, options->n_threads), "setting threads", err));
    if (options->profile_prefix != NULL)
        ND_TRY(nd_ort_check(ort, ort->EnableProfiling(handle, options->profile_prefix), "enabling the profile",
                            err));
    return ND_OK;
}

static enum nd_status append_provider(struct nd_runtime *runtime, struct ort_session_options *handle,
                                      const struct nd_session_options *options, struct nd_error *err)
{
    ND_FREED const char **keys = nd_calloc(options->n_provider_options, sizeof *keys);
    ND_FREED const char **values = nd_calloc(options->n_provider_options, sizeof *values);
    ND_TRY_MEMORY(keys != NULL && values != NULL, err);
    for (size_t i = 0; i < options->n_provider_options; i++) {
        keys[i] = options->provider_options[i].key;
        values[i] = options->provider_options[i].value;
    }
    return nd_ort_check(
        &runtime->ort,
        runtime->ort.SessionOptionsAppendExecutionProvider_V2(handle, runtime->env, &runtime->provider_device,
                                                              1, keys, values, options->n_provider_options),
        "appending the provider", err);
}

enum nd_status nd_session_create(struct nd_runtime *runtime, const struct nd_session_options *options,
                                 struct nd_runtime_session **out, struct nd_error *err)
{
    const struct nd_ort *ort = &runtime->ort;
    ND_CLEANUP(nd_session_destroy) struct nd_runtime_session *session = nd_calloc(1, sizeof *session);
    ND_TRY_MEMORY(session != NULL, err);
    session->runtime = runtime;
    struct ort_session_options *handle = NULL;
    enum nd_status status =
        nd_ort_check(ort, ort->CreateSessionOptions(&handle), "creating session options", err);
    if (status == ND_OK)
        status = apply_config(ort, handle, options, err);
    if (status == ND_OK && runtime->provider_device != NULL)
        status = append_provider(runtime, handle, options, err);
    if (status == ND_OK)
        status =
            nd_ort_check(ort, ort->CreateSession(runtime->env, options->model_path, handle, &session->handle),
                         "creating the session", err);
    if (status == ND_OK)
        status = describe(session, err);
    if (handle != NULL)
        ort->ReleaseSessionOptions(handle);
    return status == ND_OK ? ND_GIVE(out, session) : status;
}

static void release_values(const struct nd_ort *ort, struct ort_value **values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (values[i] != NULL)
            ort->ReleaseValue(values[i]);
        values[i] = NULL;
    }
}

void nd_session_destroy(struct nd_runtime_session **session)
{
    struct nd_runtime_session *dead = *session;
    if (dead == NULL)
        return;
    const struct nd_ort *ort = &dead->runtime->ort;
    release_values(ort, dead->input_values, dead->n_inputs);
    release_values(ort, dead->output_values, dead->n_outputs);
    if (dead->handle != NULL)
        ort->ReleaseSession(dead->handle);
    if (dead->cpu_memory != NULL)
        ort->ReleaseMemoryInfo(dead->cpu_memory);
    for (size_t i = 0; i < dead->n_inputs; i++)
        free(dead->inputs[i].name);
    ND_FREE_EACH(dead->outputs, dead->n_outputs, .name);
    ND_FREE_ALL(dead->inputs, dead->input_names, dead->output_names, dead->input_values, dead->output_values,
                dead);
    *session = NULL;
}

struct nd_session_ends nd_session_ends(const struct nd_runtime_session *session)
{
    return (struct nd_session_ends){session->inputs, session->n_inputs, session->outputs, session->n_outputs};
}

static enum nd_status view_output(struct nd_runtime_session *session, size_t i, struct nd_output_view *view,
                                  struct nd_error *err)
{
    const struct nd_ort *ort = &session->runtime->ort;
    struct ort_value *value = session->output_values[i];
    const char *name = session->outputs[i].name;
    int is_tensor = 0;
    enum nd_status status = nd_ort_check(ort, ort->IsTensor(value, &is_tensor), "reading an output", err);
    if (status == ND_OK && !is_tensor)
        status = nd_fail(err, ND_E_DEVICE_OUTPUT, name, "output '%s' is not a tensor", name);
    struct ort_tensor_info *info = NULL;
    if (status == ND_OK)
        status = nd_ort_check(ort, ort->GetTensorTypeAndShape(value, &info), "reading an output", err);
    if (status == ND_OK)
        status = read_tensor_info(ort, info, name, &view->dtype, &view->shape, err);
    if (info != NULL)
        ort->ReleaseTensorTypeAndShapeInfo(info);
    void *data = NULL;
    if (status == ND_OK)
        status = nd_ort_check(ort, ort->GetTensorMutableData(value, &data), "reading an output", err);
    if (status == ND_OK)
        status = nd_shape_size_bytes(&view->shape, view->dtype, &view->size_bytes, err);
    view->data = data;
    return status;
}

void nd_session_missing(const struct nd_runtime_session *session, nd_missing_visit *visit, void *context)
{
    (void)session;
    (void)visit;
    (void)context;
}

void nd_session_repeat(struct nd_runtime_session *session)
{
    (void)session; /* a device that counts samples is emulated_session.c */
}

size_t nd_session_ahead(struct nd_runtime_session *session, const void *const *inputs, size_t n)
{
    (void)session, (void)inputs, (void)n; /* one sample after the other, as an application does it */
    return 0;
}

enum nd_status nd_session_run(struct nd_runtime_session *session, const void *const *inputs,
                              struct nd_output_view *views, struct nd_error *err)
{
    const struct nd_ort *ort = &session->runtime->ort;
    enum nd_status status = ND_OK;
    release_values(ort, session->output_values, session->n_outputs);
    for (size_t i = 0; status == ND_OK && i < session->n_inputs; i++) {
        const struct nd_session_io *io = &session->inputs[i];
        size_t size_bytes = 0;
        status = nd_shape_size_bytes(&io->shape, io->dtype, &size_bytes, err);
        if (status == ND_OK) /* ONNX Runtime takes the memory without const, and only reads inputs */
            status =
                nd_ort_check(ort,
                             ort->CreateTensorWithDataAsOrtValue(
                                 session->cpu_memory, (void *)(uintptr_t)inputs[i], size_bytes, io->shape.dims,
                                 (size_t)io->shape.rank, (int)io->dtype, &session->input_values[i]),
                             "making an input", err);
    }
    if (status == ND_OK)
        status =
            nd_ort_check(ort,
                         ort->Run(session->handle, NULL, session->input_names,
                                  (const struct ort_value *const *)session->input_values, session->n_inputs,
                                  session->output_names, session->n_outputs, session->output_values),
                         "running the model", err);
    release_values(ort, session->input_values, session->n_inputs);
    for (size_t i = 0; status == ND_OK && i < session->n_outputs; i++)
        status = view_output(session, i, &views[i], err);
    return status;
}

enum nd_status nd_session_end_profile(struct nd_runtime_session *session, char **path, struct nd_error *err)
{
    const struct nd_ort *ort = &session->runtime->ort;
    struct ort_allocator *allocator = NULL;
    char *theirs = NULL;
    ND_TRY(nd_ort_check(ort, ort->GetAllocatorWithDefaultOptions(&allocator), "getting the allocator", err));
    ND_TRY(nd_ort_check(ort, ort->SessionEndProfiling(session->handle, allocator, &theirs),
                        "ending the profile", err));
    return take_name(ort, allocator, theirs, path, err);
}

enum nd_status nd_session_truth(const struct nd_runtime_session *session, nd_truth_visit *visit, void *context,
                                struct nd_error *err)
{
    (void)session;
    (void)visit;
    (void)context;
    (void)err;
    return ND_OK; /* nobody knows */
}

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
    ND_TRY(nd_ort_check(ort, ort->GetEpDevices(runtime->env, &devices, &n), "listing devices", err));
    for (size_t i = 0; i < n; i++) {
        if (strcmp(ort->EpDevice_EpName(devices[i]), name) == 0) {
            runtime->provider_device = devices[i];
            return ND_OK;
        }
    }
    return nd_fail(err, ND_E_RUNTIME_API, name, "provider '%s' offers no device on this machine", name);
}

enum nd_status nd_runtime_create(const struct nd_runtime_options *options, struct nd_runtime **out,
                                 struct nd_error *err)
{
    ND_CLEANUP(nd_runtime_destroy) struct nd_runtime *runtime = nd_calloc(1, sizeof *runtime);
    ND_TRY_MEMORY(runtime != NULL, err);
    runtime->log = options->log;
    runtime->log_context = options->log_context;
    ND_TRY(nd_ort_load(options->ort_library, &runtime->ort, err));
    const struct nd_ort *ort = &runtime->ort;
    ND_TRY(nd_ort_check(ort,
                        ort->CreateEnvWithCustomLogger(options->log != NULL ? forward_log : drop_log, runtime,
                                                       options->log_severity, "npudiff", &runtime->env),
                        "creating the environment", err));
    ND_TRY(nd_ort_check(ort, ort->DisableTelemetryEvents(runtime->env), "disabling telemetry", err));
    if (options->provider_name != NULL) {
        ND_TRY(nd_ort_check(ort,
                            ort->RegisterExecutionProviderLibrary(runtime->env, options->provider_name,
                                                                  options->provider_library),
                            "registering the provider", err));
        ND_TRY(find_provider_device(runtime, options->provider_name, err));
    }
    return ND_GIVE(out, runtime);
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
