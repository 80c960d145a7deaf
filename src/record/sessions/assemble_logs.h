/* The logs of a capture that is assembled. */
#ifndef ND_RECORD_ASSEMBLE_LOGS_H
#define ND_RECORD_ASSEMBLE_LOGS_H

#include "capture/write/write.h"
#include "npudiff/capture/logs.h"
#include "record/sessions/assemble.h"
#include "record/sessions/spool_index.h"

/* Stores the logs of the runtime, of the agent's output, of the transfer and of the device's system, and the
 * profiles. Adds what the logs say to findings. */
enum nd_status nd_assemble_logs(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                const struct nd_spool_index *index, struct nd_log_findings *findings,
                                struct nd_error *err);

#endif
