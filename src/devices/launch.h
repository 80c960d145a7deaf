/* Starting an agent on this machine. */
#ifndef ND_DEVICE_LAUNCH_H
#define ND_DEVICE_LAUNCH_H

#include "devices/agent/spool/spool.h"
#include "npudiff/devices/device.h"

/* Watching a run by the spool that it writes: how far it is, and whether it keeps to its limits. The same for
 * an agent on this machine and for one elsewhere, whose spool is copied here as it grows. */

/* How an agent process ended. */
struct nd_agent_exit {
    struct nd_error
        error; /* id 0 unless it was killed by a signal or one of the host's limits, or left with an error */
    double elapsed_s;
    const char *stage; /* of an agent elsewhere that never wrote a record: "connect", "push", "start"; static */
    bool cannot_resume; /* the spool that was to be gone on with is of another job, or damaged */
    char anew[256];     /* why the run began anew in the place of going on; "" where it did not */
    bool can_resume;    /* what it had done until then is safe, and a next run can go on from there */
};

struct nd_watch {
    const struct nd_capture_options *options; /* borrowed, as are label and spool */
    const char *label;
    const char *spool; /* path; may come to be later */
    size_t samples_total;
    uint64_t started_ns;     /* of nd_clock_awake_ns, as the next two */
    uint64_t begun_ns;       /* of the capture */
    uint64_t progress_ns;    /* of the last sign of life */
    uint64_t samples_before; /* of probes and passes that are finished */
    uint64_t samples_probe;  /* acknowledged of the probe in work */
    uint64_t probe;
    struct nd_spool_follower follower;
    char stage[32];
};

/* begun_ns: the time limit counts from there; 0: from now. Call nd_watch_end afterwards. */
void nd_watch_begin(struct nd_watch *watch, const struct nd_capture_options *options, const char *label,
                    const char *spool, size_t samples_total, uint64_t begun_ns);
void nd_watch_end(struct nd_watch *watch);

/* Takes in what has come since the last look. */
void nd_watch_follow(struct nd_watch *watch);

/* Tells the caller of the capture. */
void nd_watch_report(const struct nd_watch *watch);

/* ND_OK while the run keeps to its limits, of which ND_E_DEVICE_TIME and ND_E_DEVICE_MEMORY tell, and goes on:
 * ND_E_CANCELLED. resident_bytes: 0 when not known. */
enum nd_status nd_watch_check(const struct nd_watch *watch, size_t resident_bytes, struct nd_error *err);

/* Whether any sample was acknowledged. */
bool nd_watch_is_cancelled(const struct nd_watch *watch);
double nd_watch_elapsed_s(const struct nd_watch *watch);

/* How an agent that left with this code, or was killed by this signal (0: not), died. */
void nd_watch_describe_death(const char *label, int exit_code, int signal, struct nd_error *error);

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
