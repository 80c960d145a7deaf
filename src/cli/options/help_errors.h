/* `npudiff help ND-204` and `npudiff help errors`: what the errors mean (npudiff/error_help.def). */
#ifndef ND_CLI_HELP_ERRORS_H
#define ND_CLI_HELP_ERRORS_H

#include <stdbool.h>

/* Whether the word looks like an error id: "ND-204", "nd-204", "ND204" or "204", also one that no error has. */
bool cli_is_error_id(const char *word);

/* Prints what the error means, its usual cause and what to do. 0, or the exit code after an error. */
int cli_print_error_help(const char *word);

/* Prints all errors, one per line, and how to read more of one. 0. */
int cli_print_errors(void);

#endif
