/* A machine elsewhere on which an agent runs: what it is, what it keeps, and one run on it.
 *
 * Everything lies in one folder there, $NPUDIFF_DEVICE_FOLDER of that machine, else
 * /data/local/tmp/npudiff, else npudiff-<uid> in its temporary folder:
 *
 *   store/<digest>/  agent; libraries; models: each set under a digest of what is in it (see below)
 *   runs/<id>/       job.nds, run.sh, spool.nds, stdout.txt, pid, agent.pid, exit; the id is a digest
 *                    of the job and of what it needs
 *
 *   runs/.<nonce>    for each host that is there
 *
 * What nothing has used for a month goes when it is left. The agent runs without the link, which may break and
 * come back.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/tensors/sha256.h"
#include "devices/agent/spool/job_file.h"
#include "devices/launch.h"
#include "devices/phones/device_facts.h"
#include "devices/phones/transport.h"
#include "devices/runtimes/sdk.h"
#include "npudiff/devices/device.h"

/* Files that a machine elsewhere keeps between runs: sets of them under names that follow from what is in them,
 * so that nothing is sent twice. */

struct nd_bundle_file {
    char *name; /* in the bundle; may have folders */
    char *path; /* on this machine */
    char sha256[ND_SHA256_HEX_BYTES];
    uint64_t size_bytes;
    bool is_executable;
    bool is_missing; /* there, when it was last placed */
};

/* Zeroed is empty. */
struct nd_bundle {
    struct nd_bundle_file *files;
    size_t n;
    size_t capacity;
    char *folder;     /* there; NULL until it was placed */
    bool was_there;   /* complete, before it was placed */
    bool was_damaged; /* marked as complete, while a file was another one or gone */
};

/* Adds a file and reads its digest. A name that is there already is left out, with the same content or not: the
 * first counts, as on a search path. */
enum nd_status nd_bundle_add(struct nd_bundle *bundle, const char *name, const char *path, bool is_executable,
                             struct nd_error *err);
void nd_bundle_deinit(struct nd_bundle *bundle);

/* Makes sure that the machine has the bundles, whole, each at <root>/store/<digest of names and contents>: what
 * is there from a push that was interrupted stays. The machine measures the digest of every file now
 * (sha256sum); what differs, at whatever size, is sent again. *free_bytes: what the machine has left; goes down
 * by what is sent. n >= 1. ND_E_DEVICE_PUSH: no space (how much is needed, how much there is), a file that does
 * not arrive. */
enum nd_status nd_bundles_place(struct nd_bundle *const *bundles, size_t n, struct nd_transport *transport,
                                const char *root, uint64_t *free_bytes, struct nd_error *err);

/* The path there of what is `path` here, in new memory. *out is NULL when it is not in the bundle. */
enum nd_status nd_bundle_find(const struct nd_bundle *bundle, const char *path, char **out,
                              struct nd_error *err);

/* The digest that was measured there, when the bundle was placed, of the file at that path there; NULL when it
 * is not of this bundle. Borrowed. */
const char *nd_bundle_sha256(const struct nd_bundle *bundle, const char *path_there);

/* ---- the machine ---- */

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

/* The texts for sh with which a run elsewhere is made, started, looked at, stopped and removed, and what its
 * answers mean. All are in new memory, NULL without any; all may be run twice. */

/* Starts run.sh, once; it goes on without the link. */
char *nd_script_stop(const char *folder);
/* Prints how the run is, then what spool and standard output hold from the offsets on: at most so many bytes of
 * each. */
char *nd_script_look(const char *folder, uint64_t spool_offset, size_t max_spool, uint64_t stdout_offset,
                     size_t max_stdout);

enum nd_run_state {
    ND_RUN_NONE, /* there is no such folder */
    ND_RUN_MADE, /* it has not started yet */
    ND_RUN_RUNNING,
    ND_RUN_ENDED,    /* exit_code is known */
    ND_RUN_DEAD,     /* it was killed as a whole: nobody wrote an exit code */
    ND_RUN_RESTARTED /* the same, since the machine was restarted */
};

/* The first line of the answer of nd_script_look. */
struct nd_run_look {
    enum nd_run_state state;
    int exit_code;
    uint64_t resident_pages;
    uint64_t spool_bytes; /* all of it there */
    uint64_t stdout_bytes;
    size_t n_spool; /* in this answer */
    size_t n_stdout;
    const char *bytes; /* those of the spool, then those of standard output; in the answer */
};

/* answer: NUL-terminated after n bytes. False when even its first line is not whole. */
bool nd_run_look_parse(const char *answer, size_t n, struct nd_run_look *out);

/* ---- shared by remote_look.c and remote_look.c: one run elsewhere while it is followed ---- */

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

/* Devices on other machines, as a URI names them:
 *
 *     adb:[SERIAL][@SERVER:PORT][/agent|/qnn-net-run][/DEVICE]      ssh:HOST[/agent|/qnn-net-run][/DEVICE]
 *
 * DEVICE is what runs there, with its own @RUNTIME and ?options; "htp" unless it is given, and then these may
 * follow what is before ("adb:SERIAL?vtcm_mb=4"). An '@' before the first '/' belongs to the host of ssh
 * ("ssh:root@board"). For adb it begins a server when a ':' follows before the next '/', '?' or '@', else a
 * runtime: a runtime's id has no ':'. No SERIAL: the only phone there is; "*": every phone. */

struct nd_remote_uri {
    enum nd_transport_kind transport;
    char *
        address; /* "" for the only phone, "*" for all; of adb with its server: "R5@lab7:5037", "*@lab7:5037" */
    enum nd_remote_method method;
    char *rest;   /* the URI behind the address: "", "/agent/cpu", "?vtcm_mb=4" */
    char *device; /* "htp", "cpu@qairt-2.51.0?threads=2" */
};

/* Whether it begins with "adb:" or "ssh:". */
bool nd_uri_is_remote(const char *uri);

/* Where the serial of an address of adb ends: at its '@', or at its end. */
size_t nd_adb_serial_length(const char *address);

/* The server of such an address, "lab7:5037"; NULL: adb's own default. Points into the address. */
const char *nd_adb_server(const char *address);

/* ND_E_DEVICE_UNKNOWN: it is no "HOST:PORT"; uri is what the message names. */
enum nd_status nd_adb_check_server(const char *uri, const char *server, struct nd_error *err);

/* "adb", "ssh"; "agent", "qnn-net-run". Static storage. */
const char *nd_transport_name(enum nd_transport_kind transport);
const char *nd_remote_method_name(enum nd_remote_method method);

/* Splits it; what is in its parts is not looked at but for what no address can be. ND_E_DEVICE_UNKNOWN. The
 * caller frees *out with nd_remote_uri_deinit. */
enum nd_status nd_remote_uri_parse(const char *uri, struct nd_remote_uri *out, struct nd_error *err);
void nd_remote_uri_deinit(struct nd_remote_uri *uri);
