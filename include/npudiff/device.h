/* Devices, chipsets and runtimes, and capturing a model on them. */
#ifndef NPUDIFF_DEVICE_H
#define NPUDIFF_DEVICE_H

#include "npudiff/model.h"
#include "npudiff/probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- chipsets ---- */

/* One SoC. Strings are static; "" where nothing is known. */
struct nd_chipset {
    const char *sm;        /* "SM8650" */
    int soc_model;         /* QNN's number for it */
    const char *arch;      /* Hexagon architecture, "v75" */
    const char *alias;     /* "gen3" */
    const char *marketing; /* "Snapdragon 8 Gen 3" */
};
ND_PUBLIC const struct nd_chipset *nd_chipsets(size_t *n);

/* By SM number or alias, in any case; NULL when unknown. */
ND_PUBLIC const struct nd_chipset *nd_chipset_find(const char *name);

/* ---- runtimes ---- */

/* One runtime that is known or installed. Owned by the list. */
struct nd_runtime_info {
    char *id;               /* "qairt-2.51.0" */
    char *ort_version;      /* of ONNX Runtime */
    char *provider_version; /* of onnxruntime-qnn */
    char *folder;           /* where it is, or would be */
    char *ort_library;      /* full paths; NULL while it is not installed */
    char *provider_library;
    char *backend_library; /* the HTP backend with its simulator */
    char *missing;         /* why it cannot be used, with the command that helps; NULL when it can */
};

struct nd_runtime_list {
    size_t n;
    struct nd_runtime_info *items; /* by version, newest first */
};

/* What is installed under $NPUDIFF_RUNTIMES (default ${XDG_CACHE_HOME:-~/.cache}/npudiff/runtimes), and what
 * could be. */
ND_PUBLIC enum nd_status nd_runtimes_list(struct nd_runtime_list *out, struct nd_error *err);
ND_PUBLIC void nd_runtimes_deinit(struct nd_runtime_list *list);

/* ---- devices ---- */

enum nd_device_kind {
    ND_DEVICE_CPU,
    ND_DEVICE_HTP_SIM,
    ND_DEVICE_EXACT,    /* the quantised model by exact units: the quantised reference */
    ND_DEVICE_FLOAT64,  /* a float model in double precision: the float reference */
    ND_DEVICE_EMULATED, /* the quantised model by exact units with other programs and known faults */
};

/* "cpu", "htp-sim", "exact", "float64", "emu": as it starts a URI. Static storage. */
ND_PUBLIC const char *nd_device_kind_name(enum nd_device_kind kind);

/* Whether the device is what others are compared with: a reference, evaluated by npudiff itself. */
ND_PUBLIC bool nd_device_is_reference(enum nd_device_kind kind);

/* The kinds of URI that are understood, for `npudiff devices`; ends with a NULL syntax. Static. */
struct nd_device_syntax {
    const char *syntax;
    const char *summary;
};
ND_PUBLIC const struct nd_device_syntax *nd_device_syntaxes(void);

/* A device as a URI names it: KIND[:CHIPSET][@RUNTIME][?key=value[&key=value...]], or emu:ITEM[,ITEM...], or
 * emu:PROFILE.yaml. */
struct nd_device {
    enum nd_device_kind kind;
    char *uri;                        /* canonical: SM number and runtime spelled out */
    char *label;                      /* short, as the user wrote it: "cpu", "gen3", "gen3@qairt-2.50.40" */
    const struct nd_chipset *chipset; /* NULL for cpu */
    struct nd_runtime_info runtime;   /* a copy */
    char *optimisation;               /* graph optimisation level: "disable", "basic", "extended", "all" */
    int n_threads;
    size_t n_options; /* in the order given to the provider; "ep.*" and "session.*" go to the session instead */
    char **option_keys;
    char **option_values;
};

/* ND_E_DEVICE_UNKNOWN: no such kind, chipset or option (the message lists those there are);
 * ND_E_DEVICE_PROFILE: an emulated device that is described wrongly (whether a model has what it names is found
 * on capturing); ND_E_RUNTIME_MISSING: the runtime is not installed (the message says the command that installs
 * it). */
ND_PUBLIC enum nd_status nd_device_parse(const char *uri, struct nd_device *out, struct nd_error *err);
ND_PUBLIC void nd_device_deinit(struct nd_device *device);

/* ---- probes ---- */

/* Makes the probes that the specs describe (nd_probe_create) for the model's inputs: probes[n_specs], NULL
 * before; on failure the caller destroys those that were made. */
ND_PUBLIC enum nd_status nd_probes_for_model(const struct nd_model *model, const char *const *specs,
                                             size_t n_specs, struct nd_probe **probes, struct nd_error *err);

/* ---- capturing ---- */

/* Where a capture is; called by the thread that runs it, every 50 ms or so. */
struct nd_capture_progress {
    const char *device;  /* label */
    const char *stage;   /* "load", "session", "placement", "run", "write" */
    size_t samples_done; /* over all probes */
    size_t samples_total;
    double elapsed_s;
};
typedef void (*nd_progress_function)(void *context, const struct nd_capture_progress *progress);

struct nd_capture_options {
    size_t struct_size; /* sizeof(struct nd_capture_options) */
    const char *edges;  /* as nd_model_select_edges; NULL: "all" */
    bool prefixes;      /* every edge from a session of its own; see below */
    size_t n_repeats;   /* 0: 1 */
    int deflate_level;  /* 0..9 */
    bool store_digests_only;
    bool allow_fallback;
    bool profile;                 /* store ONNX Runtime's profile as a log */
    bool replace;                 /* replace an existing capture */
    int log_severity;             /* 0 verbose ... 4 fatal */
    double time_limit_s;          /* for the whole capture; 0: none */
    double stall_limit_s;         /* without any progress; 0: none */
    size_t memory_limit_bytes;    /* resident memory of the agent; 0: none */
    const char *htp_config;       /* text of an HTP configuration to keep with the capture, or NULL; no provider
                                     takes it */
    const char *htp_config_outer; /* of the file that names it, or NULL */
    const char *agent; /* path of npudiff-agent; NULL: $NPUDIFF_AGENT, else beside the running program, else the
                          installed one */
    nd_progress_function progress;
    void *progress_context;
    /* Asked every 50 ms or so; true stops the run: no capture is written (ND_E_CANCELLED). NULL: never. */
    bool (*is_cancelled)(void *context);
    void *cancel_context;
};
ND_PUBLIC void nd_capture_options_init(struct nd_capture_options *options);

/* How it ended, as stored in the capture as well. */
struct nd_capture_outcome {
    bool has_failed;
    size_t samples_done;
    size_t samples_total;
    char stage[32]; /* where it failed */
    struct nd_error failure;
};

/* Runs the model on the device with these probes in an agent process of its own and writes the capture to
 * `path`.
 *
 * With options->prefixes each edge is recorded in a session of the model cut behind that edge, so that nothing
 * but it is visible there: what the capture holds cannot come from looking at several tensors at once. Sessions
 * follow one another, that of the last edge in graph order first, then the others in graph order; limits of
 * time count over all of them. The temporary folder holds all cut models at once, each with the weights it
 * needs. Of a failure outcome->failure names the edge whose session failed. Not with edges "none"
 * (ND_E_OPTION_CONFLICT).
 *
 * A device that fails (refused session, fallback, crash, time or memory limit) still gives a capture: marked
 * failed, with the reason and every complete sample; the function then returns ND_OK and outcome->has_failed is
 * true. Errors are what prevents a capture: ND_ERR_NOT_FOUND for edge patterns, ND_ERR_IO when path cannot be
 * written (nothing is left half-written). Thread safe: several devices may be captured at once. */
ND_PUBLIC enum nd_status nd_capture_run(const struct nd_model *model, const struct nd_device *device,
                                        const struct nd_probe *const *probes, size_t n_probes, const char *path,
                                        const struct nd_capture_options *options,
                                        struct nd_capture_outcome *outcome, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
