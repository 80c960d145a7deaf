/* Commands that are programs of their own, found as git finds them: `npudiff fingerprint` is `npudiff-lab`. */
#include "cli/external.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal/errors.h"
#include "npudiff/core/error_ids.h"
#include "npudiff/core/status.h"

const struct cli_external cli_externals[] = {
    {"fingerprint", "what is the arithmetic of a device? (package npudiff-lab)"},
};
const size_t cli_n_externals = sizeof cli_externals / sizeof cli_externals[0];

void cli_run_external(const char *name, char *const argv[])
{
    bool is_external = false;
    for (size_t i = 0; i < cli_n_externals; i++)
        is_external = is_external || strcmp(cli_externals[i].name, name) == 0;
    if (!is_external)
        return;
    char self[PATH_MAX], program[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    static const char *const folders[] = {"", "../../lab/"};
    for (size_t i = 0; slash != NULL && i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(program, sizeof program, "%.*s%snpudiff-%s", (int)(slash + 1 - self), self, folders[i], name);
        execv(program, argv);
    }
    snprintf(program, sizeof program, "npudiff-%s", name);
    execvp(program, argv);
    exit(cli_errors_end(
        cli_fail(CLI_E_OPTION_UNKNOWN, name,
                 "the command '%s' is a program of its own, '%s', which is not installed (package "
                 "npudiff-lab)",
                 name, program)));
}
