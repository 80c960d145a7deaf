/* Doing a job: load the runtime, create the session, check placement, run every sample, store what comes. */
#ifndef ND_AGENT_RUN_H
#define ND_AGENT_RUN_H

#include "devices/agent/resume.h"
#include "devices/agent/spool/job_file.h"

/* Does the whole job and writes the spool, or what resume (nullable) leaves of it. A failure of the device is
 * itself recorded (ND_RECORD_FAILURE) and returned. */
enum nd_status nd_agent_run(const struct nd_agent_job *job, const struct nd_resume *resume,
                            struct nd_spool_writer *writer, struct nd_error *err);

#endif
