/* Starting another program. Running it to its end and reading what it prints: process.h. */
#ifndef ND_BASE_CHILD_H
#define ND_BASE_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

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

#endif
