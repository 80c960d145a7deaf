/* Captures that the library makes for itself, to read at once. */
#pragma once

#include "capture/write/write.h"
#include "devices/launch.h"
#include "model/graph/prepared.h"
#include "npudiff/arithmetic/chipset.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/logs.h"
#include "npudiff/devices/device.h"
#include "npudiff/model/model.h"
#include "record/sessions/assemble_outputs.h"

/* nd_capture_run, and opens what it wrote. A device that gives no values is no error: *failure says why, its
 * status is never ND_OK then, and *out stays as it was. The caller closes *out. */
enum nd_status nd_capture_run_and_open(const struct nd_workload *workload, const char *path,
                                       const struct nd_capture_options *options, struct nd_capture **out,
                                       struct nd_error *failure, struct nd_error *err);

/* Where nothing can be done without that device: the failure becomes the error, "'MODEL' on 'DEVICE': ...". */
enum nd_status nd_capture_pass_on(const struct nd_error *failure, const struct nd_model *model,
                                  const struct nd_device *device, struct nd_error *err);

enum { ND_BINARY_BYTES = 64 };

/* The chipset that a binary was made for, or NULL where it says none that is known. name: "SM8650 (v75)", or
 * what the binary says; "" when it says nothing. */
const struct nd_chipset *nd_binary_chipset(const struct nd_prepared *binary, char name[static ND_BINARY_BYTES]);

/* The agents of one capture: the run itself, here or elsewhere, and the trials of where its nodes go. */

/* Runs the job in one pass; where exposing the tensors moved nodes off the NPU, again in several. *folder:
 * where the run that counts left its spool and output, in new memory. Errors as nd_agent_launch. */
enum nd_status nd_capture_run_agent(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                                    struct nd_error *err);

/* Runs a job of the capture, its own or another one, in the folder, which is made anew. As nd_agent_launch.
 * With options->resume the capture's own job goes on with what an earlier agent acknowledged in that folder, or
 * there. */
enum nd_status nd_job_run(const struct nd_capture_job *capture, const struct nd_agent_job *job,
                          const char *folder, const struct nd_capture_options *options,
                          struct nd_agent_exit *exit, struct nd_error *err);

/* Tells the caller of the capture what it is at. */
void nd_capture_report_stage(const struct nd_capture_job *capture, const char *stage, double elapsed_s);

/* Whether an agent that ran in the folder has acknowledged samples there, which another can go on behind. With
 * cuts what was not acknowledged is cut off, so that whoever follows the spool reads no byte twice. */
bool nd_job_run_has_samples(const char *folder, bool cuts);

/* What the logs of a failed device say of why: stage, code, operator, memory; and the findings as rows of a
 * table.
 */

/* Rows of /findings, and how much of a line they keep. */
enum { ND_FINDINGS_MAX_ROWS = 2000, ND_FINDINGS_MAX_TEXT = 240 };

/* The table /findings; nothing where there are none. Of very many the failures and warnings are kept first, and
 * the last row says how many were left out. */
enum nd_status nd_findings_write(struct nd_capture_writer *writer, const struct nd_log_findings *findings,
                                 struct nd_error *err);

/* Attributes of /failure from the message of the failure and the findings, and the operator at the end of the
 * message. model is nullable: nodes are then called as the log calls them. */
enum nd_status nd_failure_write(struct nd_capture_writer *writer, const struct nd_log_findings *findings,
                                const struct nd_model *model, struct nd_error *failure, struct nd_error *err);

/* Puts into the message of a refused placement which operators of the model do not run on the NPU, and why as
 * far as the provider said it in the log. Operators are counted as nd_model_is_operator does, in a session as
 * in the model. Leaves the message where the rows of the spool do not say which nodes these are, or memory is
 * out. */
void nd_fallback_say(const struct nd_spool_index *index, const struct nd_model *model,
                     struct nd_error *failure);

/* Cutting a capture into passes.
 *
 * Making many tensors visible at once can change where a provider places nodes (its layout pass meets a graph
 * output where it wanted to move a transpose), or keep a session from coming to be, although the model itself
 * runs on the NPU as a whole. What a capture must never do is change what it observes. So sessions are tried
 * before anything runs, and the tensors are spread over several that hold.
 *
 * A pass grows by bisection: a set that does not hold beside what the pass has is split, down to single
 * tensors. Two things make that short. Tensors near the nodes that fell are the first suspects. And where one
 * tensor is guilty, so is mostly its like in every other block of the network: tensors with the same
 * neighbourhood are of one kind, and kinds are split from one another before any is split. Both only order the
 * trials: every session that is recorded was tried as it is. */

/* Names of nodes that did not go to the provider. */
struct nd_fell_back {
    char **names;
    size_t n;
};
void nd_fell_back_deinit(struct nd_fell_back *fell_back);
bool nd_fell_back_has(const struct nd_fell_back *fell_back, const char *node);

/* Leaves in `fallen` the nodes that are not in `own` as well. A node that a layout pass added goes by a number
 * that is another in every session: of those that differ by that alone, as many are left out as `own` has. */
void nd_fell_back_subtract(struct nd_fell_back *fell_back, const struct nd_fell_back *own);

/* What a session did that exposes some tensors. */
struct nd_tried {
    bool holds;                    /* it came to be, and exposing the tensors moved no node */
    bool is_placed;                /* it came to be, whatever its samples gave */
    struct nd_fell_back fell_back; /* the nodes that it moved; may be empty where it does not hold */
    char reason[256];              /* why it does not hold; empty where the fallen nodes say it */
};
void nd_tried_deinit(struct nd_tried *trial);

/* Tries a session that exposes `edges`: indices into the model, in ascending order, at least one. Fills *out,
 * freed by nd_tried_deinit. */
typedef enum nd_status (*nd_session_trial)(void *context, const size_t *tensors, size_t n_tensors,
                                           struct nd_tried *out, struct nd_error *err);

/* What is to be recorded, and how to find out what a session does. */
struct nd_recording {
    const struct nd_model *model;
    const size_t *tensors; /* indices into the model, ascending */
    size_t n_tensors;
    bool do_outputs_hold;         /* a session that exposes all outputs of the model, and nothing else, holds */
    const struct nd_tried *first; /* of all tensors at once, which does not hold; NULL: not tried */
    nd_session_trial trial;
    bool (*has_time)(void *context); /* whether there is time for a further trial; NULL: always */
    /* From now on, trials and passes show the tensor of the model through floats, or as codes again; false
     * where it has no floats. NULL: none has. */
    bool (*use_floats)(void *context, size_t tensor, bool as_floats);
    void *context; /* of these functions */
};

/* Positions are those of the recording's tensors. */
struct nd_pass_plan {
    size_t *pass_of_tensor; /* [n_edges]; SIZE_MAX: no session shows it */
    char **reasons;         /* [n_edges]: why no session shows it; NULL where one does */
    size_t n_tensors;
    struct nd_planned_pass *passes;
    size_t n_passes;
    size_t n_trials;
};
void nd_pass_plan_deinit(struct nd_pass_plan *plan);

/* Assigns the tensors to passes. A later pass exposes the model's outputs again wherever that holds, else the
 * tensors that its own are computed from: what both passes have must come out equal. A tensor whose codes no
 * session shows is tried through its floats. A tensor that no session shows has no pass. Freed by
 * nd_pass_plan_deinit, on success only. */
enum nd_status nd_plan_passes(const struct nd_recording *recording, struct nd_pass_plan *plan,
                              struct nd_error *err);
