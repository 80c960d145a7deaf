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

#endif
