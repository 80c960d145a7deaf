/* What --help and `npudiff help` print, made from the tables of commands and options. */
#ifndef ND_CLI_HELP_H
#define ND_CLI_HELP_H

#include <stddef.h>

#include "cli/options/command_options.h"

/* The help of one command, on stdout, as wide as the terminal: 60 to 100 columns; 80 where there is none. */
void cli_print_help(const struct cli_command *command);

/* Prints a text of several paragraphs. Its lines begin at column `indent`; the first one is there already. */
void cli_print_wrapped(const char *text, size_t indent);

#endif
