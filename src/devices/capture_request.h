/* One capture in the making: the tensors to record and the job that records them. */
#ifndef ND_DEVICE_CAPTURE_REQUEST_H
#define ND_DEVICE_CAPTURE_REQUEST_H

#include "devices/agent/spool/job_file.h"
#include "npudiff/devices/device.h"

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

/* Records a tensor of the model, by its index, through the floats that its DequantizeLinear makes, or again as
 * quantised values; from the next nd_capture_job_set_passes and nd_capture_job_trial on. False where no
 * DequantizeLinear makes floats of its quantised values, or out of memory: nothing changed then. */
bool nd_capture_job_use_floats(struct nd_capture_job *capture, size_t tensor, bool as_floats);

/* How a job records a tensor. index: of the tensor in the model. out->output belongs to the caller. */
enum nd_status nd_capture_job_tensor(const struct nd_capture_job *capture, const struct nd_tensor *tensor,
                                     size_t index, struct nd_job_tensor *out, struct nd_error *err);

/* A job that only tries the placement of a session exposing n of the model's tensors: no samples. Freed by the
 * caller with nd_capture_job_free_trial. */
enum nd_status nd_capture_job_trial(const struct nd_capture_job *capture, const size_t *tensors, size_t n,
                                    struct nd_agent_job *trial, struct nd_error *err);
void nd_capture_job_free_trial(struct nd_agent_job *trial);

/* Samples of all probes. */
size_t nd_capture_job_n_samples(const struct nd_capture_job *capture);

/* What a runner is told of a capture (docs/reference/runner.md#job), as JSON. */

/* One option of the URI's query that is npudiff's own and not the runner's: what becomes of floats between the
 * quantised values of a tensor. */
#define ND_OFF_GRID_OPTION "off-grid"

#endif
