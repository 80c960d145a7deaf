/* One run of an agent, here or on another machine, and what came of a session. */
#ifndef ND_RECORD_JOB_RUN_H
#define ND_RECORD_JOB_RUN_H

#include "devices/capture_request.h"
#include "devices/launch.h"

/* Runs the job in the folder, which is made anew. As nd_agent_launch. With options->resume the capture's own
 * job goes on with what an earlier agent acknowledged in that folder, or there. */
enum nd_status nd_job_run(const struct nd_capture_job *capture, const struct nd_job *job, const char *folder,
                          const struct nd_capture_options *options, struct nd_agent_exit *exit,
                          struct nd_error *err);

/* Whether an agent that ran in the folder has acknowledged samples there, which another can go on behind. With
 * cuts what was not acknowledged is cut off, so that whoever follows the spool reads no byte twice. */
bool nd_job_run_has_samples(const char *folder, bool cuts);

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

/* What the session of a run in `folder` did: its last, from its spool. trial->reason is empty where nodes fell.
 * *is_of_session: it held, or it did not for a reason of the session itself, which another set of tensors may
 * not have; false: it failed before or behind that. Freed by nd_tried_deinit. */
enum nd_status nd_tried_read(const struct nd_job *job, const char *folder, const struct nd_agent_exit *exit,
                             struct nd_tried *trial, bool *is_of_session, struct nd_error *err);

#endif
