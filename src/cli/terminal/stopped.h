/* What a command says when Ctrl-C stopped it: what is kept, and the command that continues. */
#ifndef ND_CLI_STOPPED_H
#define ND_CLI_STOPPED_H

#include "npudiff/core/status.h"

/* The words of this call, borrowed. main calls it once. */
void cli_stopped_set_command(int argc, char **argv);

/* Prints on stderr, if a signal came: "npudiff: stopped; KEPT", and, if `option` is not NULL, the words of this
 * call with the option (such as "--resume", or "" for none), quoted for a shell. --force goes, which would
 * overwrite what is kept. */
void cli_stopped_tell(const char *kept, const char *option);

/* After work that keeps nothing when it is stopped: tells of the signal, if one came, or else of the error. The
 * exit code; 0: the work was done. */
int cli_stopped_or_failed(enum nd_status status, const struct nd_error *err);

#endif
