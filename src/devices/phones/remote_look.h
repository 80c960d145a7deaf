/* The texts for sh with which a run elsewhere is made, started, looked at, stopped and removed, and what its
 * answers mean. All are in new memory, NULL without any; all may be run twice. */
#ifndef ND_REMOTE_REMOTE_SCRIPT_H
#define ND_REMOTE_REMOTE_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
