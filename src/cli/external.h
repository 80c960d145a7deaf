/* Commands that are programs of their own: npudiff NAME starts npudiff-NAME, as git starts git-NAME. */
#ifndef ND_CLI_EXTERNAL_H
#define ND_CLI_EXTERNAL_H

#include <stddef.h>

struct cli_external {
    const char *name, *summary;
};
extern const struct cli_external cli_externals[];
extern const size_t cli_n_externals;

/* Becomes npudiff-<name> with these arguments (argv[0] is the name), where the name is one of cli_externals:
 * the one beside this program, that of the build tree, or the first one in PATH. Returns when the name is
 * another, or, with the error on stderr that says which package has it, ends the process with exit code 2. */
void cli_run_external(const char *name, char *const argv[]);

#endif
