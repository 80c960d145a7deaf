/* SIGINT and SIGTERM while agents run: they are stopped and temporary files removed before the program ends. */
#ifndef ND_CLI_SIGNALS_H
#define ND_CLI_SIGNALS_H

#include <stdbool.h>

/* From now on the two signals are only noted. */
void cli_signals_catch(void);

/* From now on the two signals end the process, as one that came before does at once. Whether they were noted.
 */
bool cli_signals_let_end(void);

/* Whether one came; nd_capture_options.is_cancelled. The context is not looked at. */
bool cli_signals_came(void *context);

/* Ends the process as the signal that came wants it, after all cleaning up; returns when none came. */
void cli_signals_end_if_came(void);

#endif
