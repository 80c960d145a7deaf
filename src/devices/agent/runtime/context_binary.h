/* What a context binary of Qualcomm's says of itself, read by the SDK's own libQnnSystem.so. */
#pragma once

#include "core/error.h"
#include "npudiff/core/tensor.h"

/* A tensor at an end of the graph. */
struct nd_context_tensor {
    const char *name;
    uint32_t data_type; /* Qnn_DataType_t, such as 0x0408 */
    struct nd_shape shape;
    bool has_scale; /* one scale and offset: real = scale * (code + offset) */
    float scale;
    int32_t offset;
};

struct nd_context_version {
    uint32_t major, minor, patch;
};

/* Borrowed for the call of the visitor. */
struct nd_context_info {
    const char *build_id; /* "v2.51.0.260929181845" */
    uint32_t backend;     /* 6: HTP */
    uint32_t soc_model;
    struct nd_context_version core_api, backend_api;
    size_t n_graphs;
    const char *graph; /* name of the first */
    size_t n_inputs;   /* of the first */
    const struct nd_context_tensor *inputs;
    size_t n_outputs;
    const struct nd_context_tensor *outputs;
};

/* Loads the library (path of libQnnSystem.so, which stays loaded) and calls visit once; returns what that
 * returns. ND_E_RUNTIME_LOAD when the library cannot be loaded or lacks the interface, ND_E_PREPARE_CONTEXT
 * when it refuses the binary or describes it in a version that is not known here, ND_ERR_IO when that cannot be
 * read. Not thread-safe where the library is not. */
enum nd_status nd_context_read(const char *library, const char *path,
                               enum nd_status (*visit)(void *context, const struct nd_context_info *info,
                                                       struct nd_error *err),
                               void *context, struct nd_error *err);
