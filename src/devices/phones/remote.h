/* A machine elsewhere on which an agent runs: what it is, what it keeps, and one run on it.
 *
 * Everything lies in one folder there, $NPUDIFF_DEVICE_FOLDER of that machine, else
 * /data/local/tmp/npudiff, else npudiff-<uid> in its temporary folder:
 *
 *   store/<digest>/  agent; libraries; models: each set under a digest of what is in it (remote_job.h)
 *   runs/<id>/       job.nds, run.sh, spool.nds, stdout.txt, pid, agent.pid, exit; the id is a digest
 *                    of the job and of what it needs
 *
 *   runs/.<nonce>    for each host that is there
 *
 * What nothing has used for a month goes when it is left. The agent runs without the link, which may break and
 * come back.
 */
#ifndef ND_REMOTE_REMOTE_H
#define ND_REMOTE_REMOTE_H

#include "devices/agent/spool/job_file.h"
#include "devices/launch.h"
#include "devices/phones/device_facts.h"
#include "devices/phones/remote_job.h"
#include "devices/runtimes/sdk.h"

/* A library as the machine that loaded it has it. */
struct nd_remote_library {
    char *path;
    char sha256[65]; /* "" where it cannot be read */
};

/* Zeroed is closed. It stays where it is while it is open: the transport points to it. */
struct nd_remote {
    struct nd_transport *transport;
    struct nd_device_facts device_facts;
    const struct nd_capture_options *options; /* borrowed */
    const char *label;                        /* borrowed */
    const char *stage;                        /* "connect", "push", "start": what it is at */
    uint64_t begun_ns;
    char *root;
    uint64_t free_bytes;
    uint64_t page_bytes;
    struct nd_bundle agent;
    struct nd_bundle runtime;
    struct nd_bundle model;              /* of the last run */
    struct nd_remote_library *libraries; /* that the last run loaded, with their digests */
    size_t n_libraries;
    bool is_quiet;        /* during trials, which are one stage to whoever watches */
    uint64_t reported_ns; /* when progress was last told of */
    bool is_lost;         /* the link did not come back: nothing more is tried */
    bool is_watched;      /* something runs there, and whoever follows it sees to the time limit */
    bool is_out_of_time;  /* the time limit was met before the run had begun */
};

/* Connects and asks what the machine is. Errors are those of nd_transport_open and nd_device_facts_read; then
 * it is closed. */
enum nd_status nd_remote_open(struct nd_remote *remote, const struct nd_device *device,
                              const struct nd_capture_options *options, struct nd_error *err);

/* Leaves the machine; with options->clean_device without anything of npudiff on it, unless a run is there that
 * can be gone on with, or somebody else is at work there. */
void nd_remote_close(struct nd_remote *remote);

/* One run of an agent there. */
struct nd_remote_run {
    const struct nd_agent_job *job; /* with paths of this machine */
    const struct nd_device *device; /* resolved */
    const struct nd_model *model;   /* whose external files lie beside the models of the job */
    const char *folder;             /* of this machine: job.nds, spool.nds and stdout.txt come there */
    const struct nd_capture_options *options;
    uint64_t begun_ns; /* as nd_agent_start */
    size_t samples_total;
    bool is_trial; /* its model is not kept */
};

/* Sends what the machine lacks, runs the job and copies its spool here as it grows. As for nd_agent_launch a
 * device that fails is an outcome (exit->error, and exit->stage when the agent did not come to write a record);
 * errors are those of this machine: ND_E_TRANSPORT_TOOL, ND_E_CANCELLED, ND_ERR_MEMORY, files. */
enum nd_status nd_remote_run(struct nd_remote *remote, const struct nd_remote_run *run,
                             struct nd_agent_exit *exit, struct nd_error *err);

/* Where the time limit was met while something was sent, makes of the cancellation that it looks like the
 * device's failure. */
void nd_remote_explain_time(const struct nd_remote *remote, struct nd_error *err);

/* Whether the error is one of the device and what is on it, not of this machine. */
bool nd_remote_is_of_device(const struct nd_error *err);

/* What was moved to and from the machine until now, as a line of text. */
void nd_remote_describe_traffic(const struct nd_remote *remote, char *text, size_t size);

/* ---- shared by the files remote*.c only ---- */

/* The job as it is there: everything that it reads is sent first. *agent: the path of the agent there. The
 * caller frees *out with nd_remote_job_free, and *agent. */
enum nd_status nd_remote_job_make(struct nd_remote *remote, const struct nd_remote_run *run,
                                  struct nd_agent_job *out, char **agent, struct nd_error *err);
void nd_remote_job_free(struct nd_agent_job *job);

/* Asks the machine for the digests of the libraries that the spool names, which is a file here: those that were
 * not sent there. Fills remote->libraries; what cannot be read there stays without. nd_remote_is_of_device
 * tells whether an error is the machine's. */
enum nd_status nd_remote_read_libraries(struct nd_remote *remote, const char *spool, struct nd_error *err);
void nd_remote_free_libraries(struct nd_remote *remote);

/* Tells the caller of the capture that something goes on, and asks whether it shall. */
bool nd_remote_tick(void *remote);

#endif
