/* What becomes of the command when a mapped file loses the pages that it is reading. */
#ifndef CLI_SIGBUS_H
#define CLI_SIGBUS_H

/* From now on, a SIGBUS for a page that no longer exists (the file was truncated, or the disk failed) ends the
 * process with a message on standard error and exit code 2, as other I/O trouble does. Any other SIGBUS stays
 * the crash that it is. */
void cli_handle_sigbus(void);

#endif
