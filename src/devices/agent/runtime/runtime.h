/* Running a model: one runtime (ONNX Runtime and at most one plug-in provider) and one session at a time.
 *
 * Everything here is called by one thread, but the log callback, which ONNX Runtime may call from any of its
 * own. */
#pragma once

#include <stdbool.h>

#include "npudiff/core/tensor.h"

/* severity: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal. The strings live for the call only. */
typedef void (*nd_runtime_log)(void *context, int severity, const char *location, const char *message);

struct nd_option_pair {
    const char *key;
    const char *value;
};

struct nd_runtime_options {
    const char *ort_library;      /* path of libonnxruntime.so */
    const char *provider_name;    /* NULL: the CPU provider only */
    const char *provider_library; /* path of the plug-in */
    nd_runtime_log log;           /* nullable */
    void *log_context;
    int log_severity; /* the lowest that is reported */
};

struct nd_runtime;

/* Loads libraries, makes the environment, registers the provider. ND_ERR_DEVICE with the library's message. */
enum nd_status nd_runtime_create(const struct nd_runtime_options *options, struct nd_runtime **out,
                                 struct nd_error *err);
void nd_runtime_destroy(struct nd_runtime **runtime);

const char *nd_runtime_version(const struct nd_runtime *runtime);    /* of ONNX Runtime; borrowed */
const char *nd_runtime_build_info(const struct nd_runtime *runtime); /* borrowed */

/* Whether nd_runtime_create starts a program of its own: a runner. */
bool nd_runtime_starts_program(void);

/* SHA-256, in hexadecimal, of the files of the program that was started; "" where none was. Borrowed. */
const char *nd_runtime_program(const struct nd_runtime *runtime);

/* Values of ONNX Runtime's GraphOptimizationLevel. */
enum nd_optimisation {
    ND_OPTIMISATION_DISABLE = 0,
    ND_OPTIMISATION_BASIC = 1,
    ND_OPTIMISATION_EXTENDED = 2,
    ND_OPTIMISATION_ALL = 99,
};

/* The level called "disable", "basic", "extended" or "all"; false for any other word. */
bool nd_optimisation_from_name(const char *name, enum nd_optimisation *out);

struct nd_session_options {
    const char *model_path;
    enum nd_optimisation optimisation;
    int n_threads;
    const struct nd_option_pair *provider_options;
    size_t n_provider_options;
    const struct nd_option_pair *config; /* session configuration entries */
    size_t n_config;
    const char *profile_prefix; /* NULL: no profile */
    const char *const *outputs; /* that are used of it; only a runner has to be told (others give all) */
    size_t n_outputs;
};

struct nd_runtime_session;

/* Creates the session (this compiles the graph for the device). The session must not outlive the runtime. */
enum nd_status nd_session_create(struct nd_runtime *runtime, const struct nd_session_options *options,
                                 struct nd_runtime_session **out, struct nd_error *err);
void nd_session_destroy(struct nd_runtime_session **session);

/* An input or output as the session has it; shape.rank is -1 for outputs (known after a run). */
struct nd_session_io {
    char *name;
    enum nd_dtype dtype;
    struct nd_shape shape;
};

/* Of a session; borrowed. The caller sets the shape with which an input is fed where the model leaves
 * dimensions open (-1). */
struct nd_session_ends {
    struct nd_session_io *inputs;
    size_t n_inputs;
    const struct nd_session_io *outputs;
    size_t n_outputs;
};
struct nd_session_ends nd_session_ends(const struct nd_runtime_session *session);

/* Outputs that were asked for and that the session cannot give, one call each, with the reason. Only runners
 * have some. The strings live for the call only. */
typedef void nd_missing_visit(void *context, const char *output, const char *reason);
void nd_session_missing(const struct nd_runtime_session *session, nd_missing_visit *visit, void *context);

/* Where the runtime put each node of the graph it was given. A fused subgraph lists its nodes one by one. */
struct nd_placement {
    const char *provider;
    const char *name;
    const char *op_type;
    const char *domain;
    size_t subgraph; /* from 0, in the order of the runtime: equal numbers were given to a provider together */
};
/* *out is a new array, freed by the caller; its strings live as long as the session. */
enum nd_status nd_session_placement(const struct nd_runtime_session *session, struct nd_placement **out,
                                    size_t *n, struct nd_error *err);

/* A tensor that a run produced. data lives until the next run or the session's end. */
struct nd_output_view {
    enum nd_dtype dtype;
    struct nd_shape shape;
    const void *data;
    size_t size_bytes;
};

/* The next run is one more of the sample that ran last. Only an emulated device, which counts samples, needs to
 * know.
 */
void nd_session_repeat(struct nd_runtime_session *session);

/* Samples that will be run next, in this order: inputs[s * n_inputs + i] points at the bytes of input i of
 * sample s, and stays valid until all were run. A session that computes on this machine's processors may run up
 * to n of them now, side by side, and nd_session_run then hands out what was made. How many it ran; 0: none. */
size_t nd_session_ahead(struct nd_runtime_session *session, const void *const *inputs, size_t n);

/* Runs once. inputs[i] points at the bytes of session input i, in its shape and type; views[i] receives session
 * output i. ND_ERR_DEVICE with the runtime's message; then views are not valid. Outputs of a type or rank that
 * this program does not know are ND_E_DEVICE_OUTPUT. */
enum nd_status nd_session_run(struct nd_runtime_session *session, const void *const *inputs,
                              struct nd_output_view *views, struct nd_error *err);

/* What an emulated device did wrong up to now: the attributes of /truth in docs/reference/capture-format.md,
 * one call each. No call for devices that are real. The strings live for the call only. */
typedef void nd_truth_visit(void *context, const char *key, const char *value);
enum nd_status nd_session_truth(const struct nd_runtime_session *session, nd_truth_visit *visit, void *context,
                                struct nd_error *err);

/* Ends profiling and hands over the path of the JSON file (freed by the caller). */
enum nd_status nd_session_end_profile(struct nd_runtime_session *session, char **path, struct nd_error *err);

/* Every shared object of this process right now: path and build id (hexadecimal, "" without one). */
typedef void (*nd_library_visitor)(void *context, const char *path, const char *build_id);
void nd_runtime_visit_libraries(nd_library_visitor visit, void *context);
