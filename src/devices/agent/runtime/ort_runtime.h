/* Shared by the files of runtime/ only. */
#ifndef ND_RUNTIME_ORT_RUNTIME_H
#define ND_RUNTIME_ORT_RUNTIME_H

#include "devices/agent/runtime/ort.h"
#include "devices/agent/runtime/runtime.h"

struct nd_runtime {
    struct nd_ort ort;
    struct ort_env *env;
    const struct ort_ep_device *provider_device; /* NULL: the CPU provider only */
    nd_runtime_log log;
    void *log_context;
};

struct nd_session {
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

#endif
