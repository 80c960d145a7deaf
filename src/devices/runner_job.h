/* What a runner is told of a capture (docs/reference/runner.md#job), as JSON. */
#ifndef ND_DEVICE_RUNNER_JOB_H
#define ND_DEVICE_RUNNER_JOB_H

#include "devices/capture_request.h"

/* {"inputs", "tensors", "probes", "repeats", "threads", "rounds_off_grid", "options"} of the capture, whose
 * edges and number of repeats are known, in new memory; NULL when memory is out. The agent adds the model, and
 * which of the tensors the session is asked for. */
char *nd_runner_job_text(const struct nd_capture_job *capture);

/* One option of the URI's query that is npudiff's own and not the runner's: what becomes of floats between the
 * quantised values of a tensor. */
#define ND_OFF_GRID_OPTION "off-grid"

#endif
