/* Shared by remote_look.c and remote_look.c: one run elsewhere while it is followed. */
#ifndef ND_REMOTE_REMOTE_SESSION_H
#define ND_REMOTE_REMOTE_SESSION_H

#include "devices/launch.h"
#include "devices/phones/remote.h"
#include "devices/phones/remote_look.h"

/* A run there, and its copy here. */
struct nd_remote_session {
    struct nd_remote *remote;
    const struct nd_remote_run *run;
    char *folder; /* there */
    char *agent;  /* there */
    char *job;    /* here */
    char *script; /* here */
    char *spool;  /* here */
    char *out;    /* here */
    int spool_fd, out_fd;
    uint64_t spool_bytes, out_bytes; /* that are here */
    bool is_holding;                 /* the spool there is still to be cut back to what was acknowledged */
    uint64_t held_bytes;
    bool is_started;
    double look_s; /* what one look takes */
    struct nd_run_look look;
    struct nd_watch watch;
};

/* Asks how the run is (session->look) and takes over what its spool and output have grown by. A lost link is
 * waited for; what the run did meanwhile is seen afterwards, and is no stall. ND_E_LINK_LOST in vain. */
enum nd_status nd_remote_look(struct nd_remote_session *session, struct nd_error *err);

#endif
