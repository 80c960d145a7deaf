/* Starting an agent on this machine. */
#ifndef ND_DEVICE_LAUNCH_H
#define ND_DEVICE_LAUNCH_H

#include "devices/watch.h"

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

#endif
