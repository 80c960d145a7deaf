/* Standard output and error without control sequences of strangers. Names and messages of models, captures and
 * logs are printed as they are, and could otherwise move the cursor, change the terminal's title or hide lines.
 */
#ifndef ND_CLI_SAFE_OUTPUT_H
#define ND_CLI_SAFE_OUTPUT_H

#include <stdio.h>

/* From now on, whatever is printed to stdout or stderr has its control characters shown as "\x1b": those of
 * ASCII but tab and newline, those of ISO 8859 (in UTF-8), and the marks that turn the direction of text; and
 * so one byte of what a log of CI obeys: "::" where a line begins, "##name[". Once, at the start. Without
 * memory the streams stay as they are. */
void cli_guard_output(void);

/* Sends one of our own control sequences to the terminal behind stdout or stderr. */
void cli_put_escape(FILE *stream, const char *sequence);

/* Prints text as it is where stdout is no terminal and no log of CI, for programs that read it. */
void cli_put_raw(const char *text);

#endif
