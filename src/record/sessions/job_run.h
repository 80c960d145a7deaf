/* One run of an agent, here or on another machine. */
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

#endif
