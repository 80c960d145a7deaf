/* A capture by qnn-net-run on another machine: the folder is prepared here, run there, and what comes back is
 * put down as an agent would have. */
#ifndef ND_QNN_PREPARE_REMOTE_H
#define ND_QNN_PREPARE_REMOTE_H

#include "devices/capture_request.h"
#include "devices/launch.h"
#include "devices/phones/remote.h"

/* One run of a prepared folder. */
struct nd_prepared_run {
    const char *folder;                /* here, as nd_prepare wrote it */
    const char *scratch;               /* a folder here, made, for what is sent */
    const struct nd_runtime_info *sdk; /* for that machine, with net_run; NULL: the machine has its own */
    const struct nd_capture_options *options;
    uint64_t begun_ns;
};

/* Sends the folder, and the SDK when there is one, to the machine (what it has is not sent again), runs run.sh
 * there, without the link if need be, and waits for its end. *out: the folder there in which output/ is, new
 * memory; *exit_code of qnn-net-run; *said: what it wrote, new memory. ND_ERR_DEVICE: the machine, or the link
 * (ND_E_LINK_LOST), or a limit; ND_E_CANCELLED. */
enum nd_status nd_prepared_run(struct nd_remote *remote, const struct nd_prepared_run *run, char **out,
                               int *exit_code, char **said, struct nd_error *err);

/* The run of capture->device, of way ND_REMOTE_QNN_NET_RUN, on capture->remote. As nd_capture_run_agent:
 * *folder, new memory, is where spool.nds and stdout.txt are; what fails there is an outcome (*exit). */
enum nd_status nd_prepared_capture(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                                   struct nd_error *err);

/* prepare_capture.c: what came back, as a spool. */
struct nd_prepare_work;
struct nd_returned {
    const struct nd_capture_job *capture;
    const struct nd_prepare_work *work;
    struct nd_remote *remote;
    const char *prepared; /* the folder here */
    const char *out;      /* the folder there in which output/ is */
};

#endif
