/* The agents of one capture: the run itself, here or on another machine, and the trials of where its nodes go.
 */
#ifndef ND_RECORD_CAPTURE_AGENT_H
#define ND_RECORD_CAPTURE_AGENT_H

#include "devices/capture_request.h"
#include "devices/launch.h"

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

#endif
