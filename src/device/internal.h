/* Shared by the files of device/ only. */
#ifndef ND_DEVICE_INTERNAL_H
#define ND_DEVICE_INTERNAL_H

#include "npudiff/device.h"

/* The runtime of that id, or the newest installed one for NULL. ND_E_RUNTIME_MISSING says what to do. */
enum nd_status nd_runtime_find(const char *id, struct nd_runtime_info *out, struct nd_error *err);
void nd_runtime_info_deinit(struct nd_runtime_info *info);

/* Whether npudiff evaluates the device itself, without a runtime, by npudiff-agent-exact. */
bool nd_device_is_evaluated(enum nd_device_kind kind);

/* How an agent process ended. */
struct nd_agent_exit {
    struct nd_error
        error; /* id 0 unless it was killed by a signal or one of the host's limits, or left with an error */
    double elapsed_s;
};

/* What to start and how to watch it. */
struct nd_agent_start {
    const char *agent;  /* path of the executable */
    const char *folder; /* its working folder: job.nds is there, spool.nds, stdout.txt come there */
    const struct nd_capture_options *options;
    const char *label;
    size_t samples_total;
    uint64_t begun_ns; /* the time limit counts from here, over all agents of a capture; 0: from the start */
};

/* Starts an agent, watches its time, memory and progress, and waits for its end. A dead agent is an outcome
 * (exit->error), not an error; ND_E_DEVICE_AGENT when it cannot be started, ND_E_FILE_WRITE when it could not
 * store what it produced. */
enum nd_status nd_agent_launch(const struct nd_agent_start *start, struct nd_agent_exit *exit,
                               struct nd_error *err);

/* The path of npudiff-agent (see nd_capture_options.agent), in new memory; with is_exact that of
 * npudiff-agent-exact, which lies beside it. */
enum nd_status nd_agent_find(const char *wanted, bool is_exact, char **path, struct nd_error *err);

#endif
