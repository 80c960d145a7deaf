/* All commands and their options as JSON, from which the reference, man pages and shell completion are made. */
#ifndef ND_CLI_OPTION_TABLE_H
#define ND_CLI_OPTION_TABLE_H

#include "cli/options/help.h"

/* Prints {"commands": [{"name", "role", "summary", "synopsis", "details", "options": [{"name", "letter",
 * "kind", "value", "argument", "help"}]}]}. letter, value and argument are null where there is none. A number
 * has "min" and "max", a choice has "choices". 0, or exit code 2 when memory is out. */
int cli_print_option_table(const struct cli_command *const *commands, size_t n);

#endif
