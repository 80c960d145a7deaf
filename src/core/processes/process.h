/* Other programs: started; or run to their end, and what they print is read. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/error.h"

/* Everything is borrowed for the call. */
struct nd_child {
    const char *program;     /* a path; with uses_path a name that is looked for in $PATH */
    const char *const *argv; /* NULL-terminated */
    const char *folder;      /* it works there; NULL: where this process does */
    int in, out, errors;     /* its standard input, output and error */
    bool uses_path;          /* in $PATH, and a text without "#!" is run by the shell */
    bool has_group;          /* a process group of its own, which bears its process id */
    bool has_no_core;        /* leaves no core file */
};

/* Starts it, to die with this process. 0 and its process id, or errno of what went wrong: it could not be
 * forked, connected, or found and run. The caller waits for it. Thread safe. */
int nd_child_start(const struct nd_child *child, pid_t *pid);

/* waitpid that a signal does not end. */
pid_t nd_child_wait(pid_t pid, int *how, int options);

/* Between the two a peer that is gone raises no SIGPIPE in this thread, whatever this process does with that
 * signal; one that was waiting before still is. release keeps errno. Thread safe. */
struct nd_sigpipe {
    sigset_t before;
    bool was_waiting;
};
void nd_sigpipe_hold(struct nd_sigpipe *held);
void nd_sigpipe_release(const struct nd_sigpipe *held);

/* writev to a pipe whose reader may be gone: EPIPE then, and no signal SIGPIPE, whatever this process does with
 * it. Thread safe. */
ssize_t nd_pipe_write(int fd, const struct iovec *parts, int n_parts);

/* Running another program and waiting for it: what it printed, how it ended, and limits that always hold. */

/* Zeroed, with argv, is complete. Everything is borrowed for the call. */
struct nd_process {
    const char *const *argv;   /* the program by PATH, its arguments, NULL */
    const char *stdin_path;    /* NULL: /dev/null */
    size_t stdout_limit_bytes; /* more than that ends the program (is_truncated); 0: 16 MiB */
    size_t stderr_limit_bytes; /* of more the end is kept, and the program goes on; 0: 64 KiB */
    double time_limit_s;       /* 0: none */
    /* Asked every 50 ms or so; true ends the program (is_cancelled). NULL: never. */
    bool (*is_cancelled)(void *context);
    void *cancel_context;
    bool keeps_group; /* a program that leaves a server behind: not killed as a group at a limit */
};

/* How it ended. Zeroed is empty. */
struct nd_process_end {
    int exit_code; /* -1 when a signal ended it */
    int signal;    /* 0 when it left by itself */
    bool timed_out;
    bool is_cancelled;
    bool is_truncated; /* standard output went over its limit */
    char *out;         /* NUL-terminated after out_bytes; never NULL after success */
    size_t out_bytes;
    char *errors; /* the same of standard error */
    size_t errors_bytes;
};

/* Runs it in a process group of its own, which is killed when a limit is met, and which dies with this process.
 * A program that fails is a result, not an error. ND_E_PROCESS: it cannot be started (the message says why, and
 * err->object is the program); ND_E_PROCESS_END: it has ended, but this process ignores SIGCHLD, so nobody can
 * tell how; ND_E_FILE_OPEN for stdin_path; ND_ERR_MEMORY. The caller frees *end with nd_process_end_deinit, on
 * success only. Programs that the program leaves running do not hold it up. Thread safe. */
enum nd_status nd_process_run(const struct nd_process *process, struct nd_process_end *end,
                              struct nd_error *err);
void nd_process_end_deinit(struct nd_process_end *end);

/* What a process has started, and what that has started: on Linux, by /proc; elsewhere there is nothing. */

/* Every process below root, those that were started first before what they have started. */
void nd_process_tree_visit(pid_t root, void (*visit)(void *context, pid_t pid), void *context);

/* From now on processes below this one whose parent ends come under this one, and so are found. */
void nd_process_tree_keep(void);

/* Kills every process below root, also those that start while it looks. Root itself stays. Where root is this
 * process, all its children are waited for: nobody else may wait for one. */
void nd_process_tree_kill(pid_t root);
