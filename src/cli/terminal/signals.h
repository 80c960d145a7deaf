/* Signals: those that ask the command to stop, what it says then, and a mapped file that loses its pages. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "npudiff/core/status.h"

/* SIGINT and SIGTERM while agents run: they are stopped and temporary files removed before the program ends. */

/* From now on the two signals are only noted. */
void cli_signals_catch(void);

/* Whether one came; nd_capture_options.is_cancelled. The context is not looked at. */
bool cli_signals_came(void *context);

/* From now on the two signals end the process, as one that came before does at once. Whether they were noted.
 */
bool cli_signals_let_end(void);

/* Ends the process as the signal that came wants it, after all cleaning up; returns when none came. */
void cli_signals_end_if_came(void);

/* The words of this call, borrowed. main calls it once. */
void cli_stopped_set_command(int argc, char **argv);

/* Prints on stderr, if a signal came: "npudiff: stopped; KEPT", and, if `option` is not NULL, the words of this
 * call with the option (such as "--resume", or "" for none), quoted for a shell. --force goes, which would
 * overwrite what is kept. */
void cli_stopped_tell(const char *kept, const char *option);

/* After work that keeps nothing when it is stopped: tells of the signal, if one came, or else of the error. The
 * exit code; 0: the work was done. */
int cli_stopped_or_failed(enum nd_status status, const struct nd_error *err);

/* Limits of a command that computes here what a stranger's model wants: after so many seconds the process ends
 * with a message and exit code 2; memory beyond so many MiB is refused, which is the error ND_E_MEMORY.
 * Programs that it starts have limits of their own. 0: 3600 s, and 8192 MiB. */
void cli_limit_work(double time_limit_s, size_t memory_limit_mib);
