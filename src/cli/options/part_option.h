/* --part K/N: of commands whose work is shared by several machines. */
#ifndef ND_CLI_PART_OPTION_H
#define ND_CLI_PART_OPTION_H

#include <stdbool.h>
#include <stddef.h>

/* "2/8" is the second of eight parts: *part 1, *n_parts 8. At most 65536 parts. */
bool cli_parse_part(const char *text, size_t *part, size_t *n_parts);

/* Says what --part takes; ND_EXIT_TROUBLE. */
int cli_part_error(const char *command, const char *text);

#endif
