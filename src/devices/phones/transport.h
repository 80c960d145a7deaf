/* Commands and files on another machine, by the system's own adb or ssh.
 *
 * Every command is run by the machine's `sh` and followed by a trailer with its exit code, so that a link that
 * broke never looks like a command that failed: without the trailer the link is lost. What it prints begins
 * behind a mark of its own, since a login may talk first. One transport belongs to one thread at a time;
 * several transports work at once. */
#pragma once

#include "core/processes/process.h"
#include "core/text/strbuf.h"
#include "npudiff/devices/device.h"

struct nd_transport_ops;

/* What was moved, for tests and for whoever asks where the time went. */
struct nd_transport_traffic {
    uint64_t bytes_sent;     /* of files */
    uint64_t bytes_received; /* of everything that commands printed */
    size_t n_commands;
    size_t n_lost; /* times the link was lost */
};

struct nd_transport {
    const struct nd_transport_ops *ops;
    char *tool;                          /* the executable: $NPUDIFF_ADB, $NPUDIFF_SSH or "adb", "ssh" */
    char *address;                       /* adb's serial and server, ssh's host; NULL for "sh" */
    char nonce[40];                      /* of the trailers */
    double link_limit_s;                 /* how long a lost link is waited for; 0: not at all */
    bool (*is_cancelled)(void *context); /* nullable; asked while waiting, ends it with ND_E_CANCELLED */
    void *cancel_context;
    struct nd_transport_traffic traffic;
    char *serial;        /* of adb */
    char *server;        /* of adb, as its -L takes it: "tcp:lab7:5037"; NULL: adb's own default */
    char *shared_folder; /* private; holds the socket of ssh's one connection. NULL: a login for each command */
};

/* A command, and where its input comes from. Zeroed, with a text, is complete. */
struct nd_remote_command {
    const char *text;          /* for sh; without newlines where the login shell may be a csh */
    const char *stdin_path;    /* of this machine; NULL: nothing to read */
    size_t stdout_limit_bytes; /* 0: 1 MiB. More is cut, and the command ended */
    double time_limit_s;       /* 0: 30 s. A command that takes longer counts as a lost link */
};

/* What came of it. Zeroed is empty. */
struct nd_remote_reply {
    int exit_code;
    bool is_truncated; /* it printed more than the limit: exit_code is then -1 */
    char *out;         /* NUL-terminated after out_bytes */
    size_t out_bytes;
    char *errors; /* what it wrote to standard error, without the trailer */
};
void nd_remote_reply_deinit(struct nd_remote_reply *reply);

/* Opens the way to a machine and makes sure that it answers. ND_TRANSPORT_NONE is `sh` on this machine, for
 * tests. address: see nd_device.address. The caller closes it. ND_E_TRANSPORT_TOOL (ND_ERR_IO): there is no adb
 * or ssh to run; ND_E_DEVICE_CONNECT (ND_ERR_DEVICE): the machine cannot be used, in the words of the field
 * (unauthorised, offline, not there, no permissions...); ND_E_CANCELLED. */
enum nd_status nd_transport_open(enum nd_transport_kind kind, const char *address,
                                 const struct nd_capture_options *options, struct nd_transport **out,
                                 struct nd_error *err);
void nd_transport_close(struct nd_transport **transport);

/* Runs the command once. ND_OK: it ran to its end, whatever its exit code. ND_E_LINK_LOST: nobody knows whether
 * it ran, or how far; *reply then holds what had come of its output (exit_code -1), and is the caller's as
 * well. */
enum nd_status nd_transport_run_once(struct nd_transport *transport, const struct nd_remote_command *command,
                                     struct nd_remote_reply *reply, struct nd_error *err);

/* The same, but a lost link is waited for, and the command run again: so it must do no harm twice.
 * ND_E_LINK_LOST after link_limit_s (then *reply is empty). */
enum nd_status nd_transport_run(struct nd_transport *transport, const struct nd_remote_command *command,
                                struct nd_remote_reply *reply, struct nd_error *err);

/* nd_transport_run of a text, which must end with exit code 0: else ND_E_DEVICE_COMMAND with what it wrote to
 * standard error. reply is nullable. */
enum nd_status nd_transport_shell(struct nd_transport *transport, const char *text,
                                  struct nd_remote_reply *reply, struct nd_error *err);

/* Waits for a lost link, at most link_limit_s; ND_E_LINK_LOST says for what in vain. */
enum nd_status nd_transport_reconnect(struct nd_transport *transport, struct nd_error *err);

/* Copies a file of this machine there: under a name of its own first, checked by its SHA-256 (of n bytes; as
 * nd_sha256_file gives it), then renamed. Its folder must be there. ND_E_DEVICE_PUSH: no space and the like. */
enum nd_status nd_transport_push(struct nd_transport *transport, const char *local, const char *sha256,
                                 const char *remote, bool is_executable, struct nd_error *err);

/* Appends the text as one word of sh: quoted, whatever it holds. */
void nd_shell_quote(struct nd_strbuf *command, const char *text);

/* ---- adb ---- */

/* One line of `adb devices -l`. */
struct nd_adb_device {
    char *serial;
    char *state; /* "device", "offline", "unauthorized", "no permissions", ... */
    char *model; /* "" when not said */
};
struct nd_adb_devices {
    struct nd_adb_device *items;
    size_t n;
    size_t capacity;
};

/* Those that adb's server knows of, in its order. server: "HOST:PORT"; NULL: adb's default, which is started
 * when there is none. ND_E_TRANSPORT_TOOL: no adb, or its server does not start; ND_E_DEVICE_CONNECT: the
 * server cannot be reached, which takes 15 s at most. */
enum nd_status nd_adb_devices_list(const char *server, struct nd_adb_devices *out, struct nd_error *err);
void nd_adb_devices_deinit(struct nd_adb_devices *devices);

/* Why a phone in that state cannot be used and what helps, without its name; NULL for "device", which can. */
const char *nd_adb_state_trouble(const char *state);

/* A server as nd_transport.server has it, in new memory: "tcp:HOST:PORT". */
char *nd_adb_name_server(const char *server);

/* ---- shared by the files transport*.c only, and by those that ask a phone one thing ---- */

enum { ND_TRANSPORT_MAX_ARGV = 24 };

struct nd_transport_ops {
    const char *name; /* "adb" */
    /* Fills argv (ended by NULL, at most ND_TRANSPORT_MAX_ARGV) for a command that is one text for the
     * machine's sh; *scratch is freed by the caller afterwards. False without memory. */
    bool (*command)(const struct nd_transport *transport, const char *text, bool has_stdin, const char **argv,
                    char **scratch);
    /* Tries once to reach the machine. ND_E_DEVICE_CONNECT with the reason; *is_final: waiting is no use. */
    enum nd_status (*connect)(struct nd_transport *transport, bool *is_final, struct nd_error *err);
    void (*leave)(struct nd_transport *transport); /* nullable; ends what connect left running */
};
extern const struct nd_transport_ops nd_transport_adb;
extern const struct nd_transport_ops nd_transport_ssh;

/* Runs the transport's own tool (adb devices...). ND_E_PROCESS when it cannot be started; ND_E_CANCELLED. */
enum nd_status nd_transport_tool(const struct nd_transport *transport, const char *const *argv,
                                 double time_limit_s, struct nd_process_end *end, struct nd_error *err);

/* ND_E_CANCELLED, which it returns. */
enum nd_status nd_transport_fail_cancelled(const struct nd_transport *transport, struct nd_error *err);

/* The last line of the text that is not empty, cut to size. */
void nd_transport_last_line(const char *text, char *line, size_t size);
