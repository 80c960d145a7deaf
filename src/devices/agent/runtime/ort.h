/* ONNX Runtime's C API, reached by dlopen and slot number: no header of it is needed to build.
 *
 * Only declared here; runtime.h is what the rest of the program uses. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

struct ort_env;
struct ort_session;
struct ort_session_options;
struct ort_run_options;
struct ort_value;
struct ort_type_info;
struct ort_tensor_info;
struct ort_memory_info;
struct ort_allocator;
struct ort_ep_device;
struct ort_ep_subgraph;
struct ort_ep_node;
typedef struct ort_status_object ort_status;
typedef void (*ort_log_function)(void *context, int severity, const char *category, const char *log_id,
                                 const char *code_location, const char *message);

/* The API version asked for: the first that tells where each node was placed (ONNX Runtime 1.24). */
enum { ND_ORT_API_VERSION = 24 };

struct nd_ort {
    void *library; /* dlopen handle; never closed: providers leave threads behind */
    const char *version;
#define ORT_FUNCTION(slot, name, result, arguments) result(*name) arguments;
#include "devices/agent/runtime/ort_table.def"
#undef ORT_FUNCTION
};

/* "INVALID_GRAPH", ... for an OrtErrorCode; "UNKNOWN" for any other number. */
const char *nd_ort_error_name(int code);
