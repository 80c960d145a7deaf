/* Starting an agent on this machine. */
#pragma once

#include "devices/agent/spool/job_file.h"
#include "devices/agent/spool/spool.h"
#include "devices/phones/device_facts.h"
#include "npudiff/devices/device.h"

/* Watching a run by the spool that it writes: how far it is, and whether it keeps to its limits. The same for
 * an agent on this machine and for one elsewhere, whose spool is copied here as it grows. */

/* How an agent process ended. */
struct nd_agent_exit {
    struct nd_error
        error; /* id 0 unless it was killed by a signal or one of the host's limits, or left with an error */
    double elapsed_s;
    const char *stage; /* of an agent elsewhere that never wrote a record: "connect", "push", "start"; static */
    bool cannot_resume; /* the spool that was to be gone on with is of another job, or damaged */
    char anew[256];     /* why the run began anew in the place of going on; "" where it did not */
    bool can_resume;    /* what it had done until then is safe, and a next run can go on from there */
};

struct nd_watch {
    const struct nd_capture_options *options; /* borrowed, as are label and spool */
    const char *label;
    const char *spool; /* path; may come to be later */
    size_t samples_total;
    uint64_t started_ns;     /* of nd_clock_awake_ns, as the next two */
    uint64_t begun_ns;       /* of the capture */
    uint64_t progress_ns;    /* of the last sign of life */
    uint64_t samples_before; /* of probes and passes that are finished */
    uint64_t samples_probe;  /* acknowledged of the probe in work */
    uint64_t probe;
    struct nd_spool_follower follower;
    char stage[32];
};

/* begun_ns: the time limit counts from there; 0: from now. Call nd_watch_end afterwards. */
void nd_watch_begin(struct nd_watch *watch, const struct nd_capture_options *options, const char *label,
                    const char *spool, size_t samples_total, uint64_t begun_ns);
void nd_watch_end(struct nd_watch *watch);

/* Takes in what has come since the last look. */
void nd_watch_follow(struct nd_watch *watch);

/* Tells the caller of the capture. */
void nd_watch_report(const struct nd_watch *watch);

/* ND_OK while the run keeps to its limits, of which ND_E_DEVICE_TIME and ND_E_DEVICE_MEMORY tell, and goes on:
 * ND_E_CANCELLED. resident_bytes: 0 when not known. */
enum nd_status nd_watch_check(const struct nd_watch *watch, size_t resident_bytes, struct nd_error *err);

/* Whether any sample was acknowledged. */
bool nd_watch_is_cancelled(const struct nd_watch *watch);
double nd_watch_elapsed_s(const struct nd_watch *watch);

/* How an agent that left with this code, or was killed by this signal (0: not), died. */
void nd_watch_describe_death(const char *label, int exit_code, int signal, struct nd_error *error);

/* Of what an agent prints the end is kept, so much of it. Chosen. */
enum { ND_KEPT_PRINTED_BYTES = 8 << 20 };

/* What to start and how to watch it. */
struct nd_agent_start {
    const char *agent;  /* path of the executable */
    const char *folder; /* its working folder: job.nds is there, spool.nds, stdout.txt come there */
    const struct nd_capture_options *options;
    const char *label;
    bool is_resuming; /* spool.nds is there: the agent goes on with it */
    size_t samples_total;
    uint64_t begun_ns; /* the time limit counts from here, over all agents of a capture; 0: from the start */
};

/* Starts an agent, watches its time, memory and progress, and waits for its end. A dead agent is an outcome
 * (exit->error), not an error; ND_E_DEVICE_AGENT when it cannot be started, ND_E_FILE_WRITE when it could not
 * store what it produced. */
enum nd_status nd_agent_launch(const struct nd_agent_start *start, struct nd_agent_exit *exit,
                               struct nd_error *err);

/* ---- one capture in the making: the tensors to record and the job that records them ---- */

struct nd_remote; /* remote/remote.h */

/* What was asked for (borrowed), and what is made of it. */
struct nd_capture_job {
    const struct nd_model *model;
    const struct nd_device *device;
    const struct nd_probe *const *probes;
    size_t n_probes;
    const struct nd_capture_options *options;
    uint64_t begun_ns;         /* nd_clock_awake_ns when the capture began */
    const char *folder;        /* temporary: models and runs go there */
    struct nd_remote *remote;  /* the machine that runs it; NULL: this one */
    size_t *selected;          /* indices into the model's tensors */
    struct nd_tensor *tensors; /* copies of them, as they will be recorded */
    size_t n_tensors;
    size_t *pass_of_tensor;
    bool *as_floats; /* [tensors of the model]: recorded through the floats of its DequantizeLinear */
    char *moved;     /* nodes that fell to the CPU only because tensors were recorded, one a line, or NULL */
    char *left_out;  /* tensors that no session shows: name, tab and reason, one a line; NULL: none */
    size_t n_left_out;
    char *untouched;         /* path of a capture of the untouched model; NULL: there is none */
    char *untouched_why;     /* why there is none, although one was asked for; or NULL */
    size_t n_untouched;      /* sessions of that model */
    size_t n_tried;          /* sessions that were tried before the run that counts; 0: it was the first */
    struct nd_agent_job job; /* complete but for passes and tensors, which nd_capture_job_set_passes makes */
};

/* Whether the model is run as it is, outputs and all (--tensors none). */
bool nd_capture_job_is_untouched(const struct nd_capture_job *capture);

/* Chooses the tensors and fills the job; the request's fields are set by the caller. One pass records
 * everything, or with options->prefixes each tensor has one of its own. */
enum nd_status nd_capture_job_init(struct nd_capture_job *capture, struct nd_error *err);
void nd_capture_job_deinit(struct nd_capture_job *capture);

/* What a pass exposes beside the tensors that it records. */
struct nd_planned_pass {
    size_t *checks; /* positions of tensors, all of pass 0, that this pass (> 0) exposes as well: they must come
                       out equal */
    size_t n_checks;
};

/* Writes the model of each pass and makes the job's passes and tensors of pass_of_edge. planned: [n_passes], or
 * NULL: no pass exposes more than it records. A pass that records no tensor exposes all of them. */
enum nd_status nd_capture_job_set_passes(struct nd_capture_job *capture, size_t n_passes,
                                         const struct nd_planned_pass *planned, struct nd_error *err);

/* How a job records a tensor. index: of the tensor in the model. out->output belongs to the caller. */
enum nd_status nd_capture_job_tensor(const struct nd_capture_job *capture, const struct nd_tensor *tensor,
                                     size_t index, struct nd_job_tensor *out, struct nd_error *err);

/* A job that only tries the placement of a session exposing n of the model's tensors: no samples. Freed by the
 * caller with nd_capture_job_free_passes. */
enum nd_status nd_capture_job_trial(const struct nd_capture_job *capture, const size_t *tensors, size_t n,
                                    struct nd_agent_job *trial, struct nd_error *err);
void nd_capture_job_free_passes(struct nd_agent_job *trial);

/* Samples of all probes. */
size_t nd_capture_job_n_samples(const struct nd_capture_job *capture);

/* What a runner is told of a capture (docs/reference/runner.md#job), as JSON. */

/* One option of the URI's query that is npudiff's own and not the runner's: what becomes of floats between the
 * quantised values of a tensor. */
#define ND_OFF_GRID_OPTION "off-grid"

/* Devices: their options, and what of one on another machine is known only when the machine was asked. */

/* ND_E_DEVICE_UNKNOWN: float64 is for float models, and what else is evaluated here for quantised ones. */
enum nd_status nd_device_suits_model(const struct nd_device *device, const struct nd_model *model,
                                     struct nd_error *err);

/* A device on another machine as it can be run there: with the runtime of the machine's ABI (of way
 * ND_REMOTE_QNN_NET_RUN that of this machine, which prepares the model), the chipset, the provider's options
 * and the URI that follow; a copy. libraries are paths on this machine. ND_E_DEVICE_CONNECT: the machine is not
 * what the URI asks for (ND_ERR_DEVICE); ND_E_RUNTIME_MISSING. The caller frees *out with nd_device_deinit. */
enum nd_status nd_device_resolve(const struct nd_device *device, const struct nd_device_facts *device_facts,
                                 struct nd_device *out, struct nd_error *err);

/* Whether npudiff evaluates the device itself, without a runtime, by npudiff-agent-exact. */
bool nd_device_is_evaluated(enum nd_device_kind kind);
