/* Devices, chipsets and runtimes, and capturing a model on a device.
 *
 * A device is named by a URI: "cpu", "htp-sim:gen3" (Qualcomm's simulator), "adb:SERIAL" (a phone),
 * "ssh:HOST" (a board), "exact" (npudiff's own exact arithmetic). A runtime is a set of libraries that runs
 * models: an ONNX Runtime, with or without Qualcomm's provider. A device always runs in a process of its
 * own, the agent, so that a crash of the runtime becomes a failed capture and not a crash of the caller.
 *
 * Example:
 *
 *     static enum nd_status capture(const struct nd_model *model, const char *path, struct nd_error *err)
 *     {
 *         const char *specs[] = {"uniform:16"};
 *         struct nd_device device = {0};
 *         struct nd_probe *probe = NULL;
 *         struct nd_capture_options options;
 *         struct nd_capture_outcome outcome;
 *         nd_capture_options_init(&options);
 *         enum nd_status status = nd_device_parse("cpu", &device, err);
 *         if (status != ND_OK)
 *             return status;
 *         status = nd_probes_for_model(model, specs, 1, &probe, err);
 *         const struct nd_probe *const probes[] = {probe};
 *         const struct nd_workload work = {model, &device, probes, 1};
 *         if (status == ND_OK)
 *             status = nd_capture_run(&work, path, &options, &outcome, err);
 *         if (status == ND_OK && outcome.has_failed)
 *             fprintf(stderr, "%s: %s\n", device.label, outcome.failure.message);
 *         nd_probe_destroy(&probe);
 *         nd_device_deinit(&device);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_DEVICE_H
#define NPUDIFF_DEVICE_H

#include "npudiff/arithmetic/chipset.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- runtimes ---- */

/* One runtime that is known or installed. Owned by the list. */
struct nd_runtime_info {
    char *id;               /* "qairt-2.51.0" */
    char *ort_version;      /* of ONNX Runtime */
    char *provider_version; /* of onnxruntime-qnn */
    char *folder;           /* where it is, or would be */
    char *ort_library;      /* full paths; NULL while it is not installed */
    char *provider_library;
    char *backend_library; /* the HTP backend, on x86-64 with its simulator; with provider_library NULL where
                              the runtime is an ONNX Runtime alone, which does for the CPU */
    char *net_run;         /* qnn-net-run, when the runtime has it (an SDK that was added); else NULL */
    char *missing;         /* why it cannot be used, with the command that helps; NULL when it can */
    char *abi;             /* of the libraries: "x86_64-linux", "aarch64-linux", "aarch64-android" */
    char *build_id; /* of QNN, as the backend library says: "v2.51.0.260929181845"; NULL when not known */
    char *archs;    /* Hexagon architectures that it has code for: "v73 v75"; NULL without any, and for
                       the simulator, which knows all */
    bool is_added;  /* by 'npudiff runtimes add' */
    size_t n_files; /* what another machine needs of it, full paths, the libraries above among them */
    char **files;
};

struct nd_runtime_list {
    size_t n;
    struct nd_runtime_info *items; /* by version, newest first */
    char *folder;                  /* where they were looked for */
};

/* Lists the runtimes that are installed under $NPUDIFF_RUNTIMES (default
 * ${XDG_CACHE_HOME:-~/.cache}/npudiff/runtimes), and those that are known but not installed. */
ND_PUBLIC enum nd_status nd_runtimes_list(struct nd_runtime_list *out, struct nd_error *err);
ND_PUBLIC void nd_runtimes_deinit(struct nd_runtime_list *list);

/* Options of nd_runtimes_add. */
struct nd_runtime_adding {
    size_t struct_size; /* sizeof(struct nd_runtime_adding) */
    const char *id;     /* NULL: from the versions, "qairt-2.51.0", "ort-1.31.1", "qnn-2.51.0" */
    const char
        *with;    /* a runtime that gives the ONNX Runtime and the provider that the sources lack; or NULL */
    bool replace; /* one of that id and ABI that was added before */
    /* Asked while files are copied; true stops (ND_E_CANCELLED), and nothing is left behind. NULL: never. */
    bool (*is_cancelled)(void *context);
    void *cancel_context;
};

/* Makes runtimes of wheels, AARs (both are zip files) and folders (an unpacked package, a QAIRT SDK), one for
 * each ABI that they have libraries for; together they are one id. What a file is for is read from its ELF
 * header. The files are copied into the folder of the runtimes; a runtime appears there whole or not at all.
 *
 * *report, to be freed, is JSON: {"added": [{"runtime", "abi", "folder", "onnxruntime", "onnxruntime_qnn",
 * "build_id", "archs": [..], "uses": ["cpu", "htp", "qnn-net-run"], "files", "bytes"}], "notes": [text]}.
 * ND_E_RUNTIME_SOURCE: nothing that makes a runtime, or an archive that is damaged or unsafe; the message says
 * what was found. ND_E_RUNTIME_LIBRARY: a damaged library. ND_E_RUNTIME_EXISTS: one is there already.
 * ND_E_FILE_WRITE: no space, no permission. Calls of several processes take turns. */
ND_PUBLIC enum nd_status nd_runtimes_add(const char *const *sources, size_t n_sources,
                                         const struct nd_runtime_adding *how, char **report,
                                         struct nd_error *err);

/* Removes what nd_runtimes_add made of that id: for one ABI, or NULL for all. *removed, to be freed, is a JSON
 * array of the folders. ND_E_RUNTIME_MISSING, ND_E_RUNTIME_EXISTS (another installed it). */
ND_PUBLIC enum nd_status nd_runtimes_remove(const char *id, const char *abi, char **removed,
                                            struct nd_error *err);

/* Options of nd_runtimes_check. */
struct nd_runtime_checking {
    size_t struct_size; /* sizeof(struct nd_runtime_checking) */
    const char *agent;  /* as nd_capture_options.agent */
    bool files_only;    /* run nothing */
    /* Told what is looked at: "files", "cpu", a chipset. NULL: nobody. */
    void (*progress)(void *context, const char *runtime, const char *what);
    void *progress_context;
    /* Asked while agents run; true stops (ND_E_CANCELLED). NULL: never. */
    bool (*is_cancelled)(void *context);
    void *cancel_context;
};

/* Looks at the installed runtimes of that id, or at all for NULL: whether every file is there and as it was
 * when it was added, for which machine it is, its build ids, and what it needs of the device. Those for this
 * machine are run, in agent processes: a small model on the CPU and, where there is the simulator, on each
 * chipset. For the NPU of other machines the chipsets are those that there is a skeleton for.
 *
 * *report, to be freed, is JSON: {"runtimes": [{"runtime", "abi", "state": "ok" | "failed", "problems": [text],
 * "folder", "onnxruntime", "onnxruntime_qnn", "build_id", "uses": [..], "loads": true | false | null (not tried
 * here), "needs": [library], "files": [{"path", "bytes", "machine", "gnu_build_id", "state": "ok" | "gone" |
 * "changed" | "damaged" | "not recorded"}], "chipsets": [{"chipset", "arch", "state": "runs" | "fails" | "has
 * code" | "no code", "reason"}]}]}. *exit_code is ND_EXIT_DEVICE_FAILED when one failed: a file is gone,
 * changed or for another machine, it does not load, or no chipset runs. ND_E_RUNTIME_MISSING: no such runtime
 * is installed. */
ND_PUBLIC enum nd_status nd_runtimes_check(const char *id, const struct nd_runtime_checking *how, char **report,
                                           enum nd_exit *exit_code, struct nd_error *err);

/* ---- devices ---- */

enum nd_device_kind {
    ND_DEVICE_CPU,
    ND_DEVICE_HTP_SIM,
    ND_DEVICE_HTP,      /* the NPU of the machine that runs the agent */
    ND_DEVICE_EXACT,    /* the quantised model by exact layers: the quantised reference */
    ND_DEVICE_FLOAT64,  /* a float model in double precision: the float reference */
    ND_DEVICE_EMULATED, /* the quantised model by exact layers with other programs and known faults */
    ND_DEVICE_EXEC,     /* a program that speaks the runner's protocol (docs/reference/runner.md) */
    ND_DEVICE_TWIN,     /* a chip's bits without the chip: by the arithmetic that `explain` knows of it */
};

/* "cpu", "htp-sim", "htp", "exact", "float64", "emu", "exec", "twin": as it starts a URI. Static storage. */
ND_PUBLIC const char *nd_device_kind_name(enum nd_device_kind kind);

/* Whether Qualcomm's QNN provider runs the model, on an NPU or in its simulator. */
ND_PUBLIC bool nd_device_is_npu(enum nd_device_kind kind);

/* Whether the device is what others are compared with: a reference, evaluated by npudiff itself. */
ND_PUBLIC bool nd_device_is_reference(enum nd_device_kind kind);

/* The kinds of URI that are understood, for `npudiff devices`; ends with a NULL syntax. Static. */
struct nd_device_syntax {
    const char *syntax;
    const char *summary;
};
ND_PUBLIC const struct nd_device_syntax *nd_device_syntaxes(void);

/* How a device on another machine is reached, and what runs there. */
enum nd_transport_kind { ND_TRANSPORT_NONE, ND_TRANSPORT_ADB, ND_TRANSPORT_SSH };
enum nd_remote_method { ND_REMOTE_AGENT, ND_REMOTE_QNN_NET_RUN };

/* A device as a URI names it: KIND[:CHIPSET][@RUNTIME][?key=value[&key=value...]], or emu:ITEM[,ITEM...], or
 * emu:PROFILE.yaml, or exec:RUNNER[?key=value...]; on another machine
 * adb:[SERIAL][@SERVER:PORT][/agent|/qnn-net-run][/DEVICE] or ssh:HOST[/agent|/qnn-net-run][/DEVICE], where
 * DEVICE is a KIND with what follows it, "htp" unless given. */
struct nd_device {
    enum nd_device_kind kind;
    char *uri;                        /* canonical: SM number and runtime spelled out */
    char *label;                      /* short, as the user wrote it: "cpu", "gen3", "gen3@qairt-2.50.40",
                                         "adb:R5CX10ABCDE", "adb:R5CX10ABCDE/cpu" */
    const struct nd_chipset *chipset; /* NULL for cpu; on another machine, where the URI names none, until the
                                         machine was asked, which is when a capture begins */
    struct nd_runtime_info runtime;   /* a copy. On another machine, whose ABI is not known beforehand, there is
                                         only an id, which is "" where the URI names none (then it is the newest
                                         that is there for that ABI) */
    char *optimisation;               /* graph optimisation level: "disable", "basic", "extended", "all" */
    int n_threads;
    enum nd_transport_kind transport; /* ND_TRANSPORT_NONE: this machine */
    char *address;                    /* adb's serial (and "@SERVER:PORT"), ssh's host; NULL on this machine */
    enum nd_remote_method method;
    size_t n_options; /* in the order given to the provider; "ep.*" and "session.*" go to the session instead.
                         On another machine only those of the URI: the others follow when it was asked */
    char **option_keys;
    char **option_values;
};

/* A program that runs models for npudiff: npudiff-runner-NAME in a folder of $NPUDIFF_RUNNERS (else in the
 * cache,
 * ~/.cache/npudiff/runners) or of $PATH. */
struct nd_runner {
    char *name;
    char *path;
    const char *trouble; /* why it cannot be started, and what helps; NULL when it can. Static */
};

/* Those on this machine, by name; where folders have the same name, the first counts. No program is run. The
 * caller frees *out with nd_runners_free, on success only. */
ND_PUBLIC enum nd_status nd_runners_list(struct nd_runner **out, size_t *n, struct nd_error *err);
ND_PUBLIC void nd_runners_free(struct nd_runner *runners, size_t n);

/* Reads a URI. It does not contact another machine: a machine that cannot be used gives a failed capture later.
 * Only "adb:", which means the one phone that is attached, asks adb for its serial. ND_E_DEVICE_UNKNOWN: no
 * such kind, chipset or option (the message lists those there are), more than 16384 bytes, no phone or several
 * for "adb:" (lists them), references on another machine, "adb:*" (nd_device_expand makes devices of it);
 * ND_E_TRANSPORT_TOOL: no adb or ssh here; ND_E_DEVICE_PROFILE: an emulated device that is described wrongly
 * (whether a model has what it names is found on capturing); ND_E_RUNTIME_MISSING: the runtime is not installed
 * (the message says the command that installs it; for another machine only an id that no ABI has is an error).
 * The caller frees *out with nd_device_deinit, on success only. Thread safe. ND_E_DEVICE_OPTION: the URI has an
 * option of the provider or the session that may name a file or load a library, or names a runner by its path.
 * ND_E_RUNNER_MISSING, ND_E_RUNNER_START: there is no runner of that name, or it cannot be started. A URI may
 * come from a stranger's campaign or capture. */
ND_PUBLIC enum nd_status nd_device_parse(const char *uri, struct nd_device *out, struct nd_error *err);

/* The same for a URI that the user wrote: every option goes to the provider or the session as it is. */
ND_PUBLIC enum nd_status nd_device_parse_trusted(const char *uri, struct nd_device *out, struct nd_error *err);
ND_PUBLIC void nd_device_deinit(struct nd_device *device);

/* One thing that a runner was tried with. */
enum nd_trial_state {
    ND_TRIAL_PASSED,
    ND_TRIAL_REFUSED, /* it says that it cannot, where that is an answer */
    ND_TRIAL_FAILED,
};
struct nd_runner_trial {
    const char *name; /* "batches of 4", ...; static */
    enum nd_trial_state state;
    char said[1024]; /* why it failed or was refused; else "" */
};
enum { ND_RUNNER_MAX_TRIALS = 16 };
struct nd_runner_report {
    bool has_passed; /* no trial failed */
    size_t n;
    struct nd_runner_trial trials[ND_RUNNER_MAX_TRIALS];
};

/* Tries whether the runner of the device keeps to the protocol (docs/reference/runner.md#check): small models,
 * each in a process of its own, without the agent's confinement. A trial that fails is a result.
 * ND_E_DEVICE_UNKNOWN: the device is no runner; ND_ERR_IO: the models cannot be written. */
ND_PUBLIC enum nd_status nd_runner_check(const struct nd_device *device, struct nd_runner_report *report,
                                         struct nd_error *err);

/* The URIs that a URI stands for: "adb:*", with or without what may follow, becomes one for each phone that adb
 * (or the server that the URI names) knows of, in the order of their serials, also for those that cannot be
 * used now (capturing on them fails and says why); "@LABEL", with or without what may follow, becomes one for
 * each device of that label in the fleet file that $NPUDIFF_FLEET names, in its order; every other URI itself.
 * ND_E_TRANSPORT_TOOL: no adb; ND_E_DEVICE_UNKNOWN: no phone is attached, or no device has the label;
 * ND_E_DEVICE_CONNECT: the server cannot be reached; ND_E_FLEET: the fleet file is wrong. The caller frees *out
 * with nd_device_uris_free, on success only. */
ND_PUBLIC enum nd_status nd_device_expand(const char *uri, char ***out, size_t *n, struct nd_error *err);
ND_PUBLIC void nd_device_uris_free(char **uris, size_t n);

/* One phone that adb knows of. */
struct nd_phone {
    char *serial;
    char *state;                      /* as adb calls it: "device", "offline", "unauthorized", ... */
    char *model;                      /* "SM_S928B", "" when not said */
    const char *trouble;              /* why it cannot be used and what helps; NULL when it can. Static */
    char *soc;                        /* as it calls its SoC, "" when not asked or not said */
    const struct nd_chipset *chipset; /* NULL: unknown */
};

/* The phones of adb's server, by serial. server: "HOST:PORT"; NULL: that of this machine, which is started
 * where there is none. with_chipsets: asks those that can be used, all at once and for a few seconds at most.
 * ND_E_TRANSPORT_TOOL: no adb; ND_E_DEVICE_CONNECT: the server cannot be reached (15 s at most);
 * ND_E_DEVICE_UNKNOWN: that is no server. The caller frees *out with nd_phones_free, on success only. */
ND_PUBLIC enum nd_status nd_phones_list(const char *server, bool with_chipsets, struct nd_phone **out,
                                        size_t *n, struct nd_error *err);
ND_PUBLIC void nd_phones_free(struct nd_phone *phones, size_t n);

/* ---- probes ---- */

/* Makes the probes that the specs describe (nd_probe_create) for the model's inputs: probes[n_specs], NULL
 * before; on failure the caller destroys those that were made. ND_E_PROBE_VALUES: an input holds NaN or an
 * infinity, which says nothing of a device that computes with quantised values; no built-in probe has one.
 * ND_E_PROBE_LABELS: a label is none of the classes, of which there are as many as the largest output of the
 * model has elements. */
ND_PUBLIC enum nd_status nd_probes_for_model(const struct nd_model *model, const char *const *specs,
                                             size_t n_specs, struct nd_probe **probes, struct nd_error *err);

/* nd_model_check_static; the message proposes sizes with which the arrays of the specs fit. nd_probes_for_model
 * does the same first. */
ND_PUBLIC enum nd_status nd_probes_check_static(const struct nd_model *model, const char *const *specs,
                                                size_t n_specs, struct nd_error *err);

/* The same as nd_probes_for_model for inputs that hold anything. */
ND_PUBLIC enum nd_status nd_probes_for_model_any(const struct nd_model *model, const char *const *specs,
                                                 size_t n_specs, struct nd_probe **probes,
                                                 struct nd_error *err);

/* ---- capturing ---- */

/* How far a capture has got. The thread that runs the capture reports it about every 50 ms. */
struct nd_capture_progress {
    const char *device; /* label */
    const char *
        stage; /* "load", "session", "placement", "run", "write"; on another machine "lease", "connect", "push",
                  ... before these */
    size_t samples_done; /* over all probes */
    size_t samples_total;
    double elapsed_s;
};
typedef void (*nd_progress_function)(void *context, const struct nd_capture_progress *progress);

struct nd_capture_options {
    size_t struct_size;  /* sizeof(struct nd_capture_options) */
    const char *tensors; /* as nd_model_select_tensors; NULL: "all" */
    bool prefixes;       /* every tensor from a session of its own; see below */
    size_t n_repeats; /* runs of each sample; 0: one, and a few samples are run again (up to 4 of each probe, at
                         most 5 % of all, but one) to see whether the device repeats itself */
    int deflate_level; /* 0..9 */
    bool store_digests_only;
    bool allow_fallback;  /* accept nodes that the device leaves to the CPU whatever is recorded. A node that
                             falls  only because tensors are recorded is recorded in another session in either
                             case */
    bool profile;         /* store ONNX Runtime's profile as a log */
    bool replace;         /* replace an existing capture */
    int log_severity;     /* 0 verbose ... 4 fatal */
    double time_limit_s;  /* for the whole capture; 0: none */
    double stall_limit_s; /* without any progress; 0: none */
    double link_limit_s;  /* how long to wait for a device whose connection is lost; 0: not at all */
    bool resume;          /* go on where a run on another machine was interrupted; with `replace` a
                             capture that holds more samples than this run comes to is not replaced */
    bool clean_device;    /* leave nothing on another machine, not even what a next run would need */
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
    double session_limit_s; /* for a session to come to be; 0: the limits above. A session that takes longer is
                               given up, and its tensors are spread over several */
    bool is_resumable;      /* the caller offers `resume`: a run that is stopped, or has no room left, keeps its
                               samples for a day in the temporary folder, and messages say so. Else it keeps nothing
                             */
    bool skips_untouched;   /* do not run the untouched model as well. Without it a capture that records outputs
                               and   more beside them, with values, holds its outputs against that run: see
                               `untouched_changed` in docs/reference/capture-format.md. It is one session more,
                               and on   an NPU the first: what falls back there is refused before any tensor is
                               recorded */
};
ND_PUBLIC void nd_capture_options_init_sized(struct nd_capture_options *options, size_t struct_size);
static inline void nd_capture_options_init(struct nd_capture_options *options)
{
    nd_capture_options_init_sized(options, sizeof *options);
}

/* A model, its inputs, and the device that runs it; all borrowed. */
struct nd_workload {
    const struct nd_model *model;
    const struct nd_device *device;
    const struct nd_probe *const *probes;
    size_t n_probes;
};

/* How a capture ended. The capture file states the same. */
struct nd_capture_outcome {
    bool has_failed;
    bool is_partial; /* failed, but a later run with options.resume can go on behind its samples */
    size_t samples_done;
    size_t samples_total;
    char stage[32]; /* where it failed */
    struct nd_error failure;
    size_t n_left_out; /* tensors that no session shows without changing what the model does: the attribute
                          "left_out" of /runtime names them, with the reasons */
    char anew[256];  /* with options.resume: why an interrupted run was not continued; "" where it was, or there
                        was none */
    bool is_changed; /* a run of the untouched model gives other outputs, or could not be compared with: the
                        attribute "untouched_differs" or "untouched_unknown" of /runtime says it */
    size_t n_sessions; /* in all, with those that were only tried to find out where nodes go */
};

/* Runs the workload in an agent process of its own and writes the capture to `path`.
 *
 * With options->prefixes each tensor is recorded in a session of the model cut behind that tensor, so that
 * nothing but it is visible there: what the capture holds cannot come from looking at several tensors at once.
 * Sessions follow one another, that of the last tensor in graph order first, then the others in graph order;
 * limits of time count over all of them. The temporary folder holds all cut models at once, each with the
 * weights it needs. Of a failure outcome->failure names the tensor whose session failed. Not with tensors
 * "none" (ND_E_OPTION_CONFLICT).
 *
 * A device that fails (refused session, fallback, crash, time or memory limit) still gives a capture: marked
 * failed, with the reason and every complete sample; the function then returns ND_OK and outcome->has_failed is
 * true. Errors are what prevents a capture: ND_ERR_NOT_FOUND for tensor patterns, ND_ERR_IO when path cannot be
 * written (nothing is left half-written), has no room for the samples, or is being made by another process.
 * After an error outcome->is_partial says whether samples are kept for `resume`; nothing else of *outcome is
 * set. Thread safe: several devices may be captured at once. */
ND_PUBLIC enum nd_status nd_capture_run(const struct nd_workload *workload, const char *path,
                                        const struct nd_capture_options *options,
                                        struct nd_capture_outcome *outcome, struct nd_error *err);

/* Removes what runs for that capture that were interrupted, here, have kept for `resume`: for a capture that is
 * complete after all. Best effort. Thread safe. */
ND_PUBLIC void nd_capture_forget_run(const char *path);

/* ---- on several devices ---- */

/* Task `task` of nd_devices_run, on devices[task]. err is never NULL. */
typedef enum nd_status nd_device_task(void *context, size_t task, struct nd_error *err);

/* Runs n tasks, one for each device: on every other machine one after the other, in their order; on this one
 * n_here (0: 1) at once; on different machines at the same time, in threads of this process. After a task that
 * gave an error nothing more is begun, and what runs is waited for; the error of the machine that stands first
 * is returned. A device that fails is no error of its task. ND_ERR_MEMORY: nothing was run. */
ND_PUBLIC enum nd_status nd_devices_run(const struct nd_device *const *devices, size_t n, size_t n_here,
                                        nd_device_task *run, void *context, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
