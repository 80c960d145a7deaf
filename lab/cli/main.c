/* npudiff-lab: what finds arithmetic that nobody knows yet. Its commands are those of npudiff, too: 'npudiff
 * fingerprint' starts npudiff-fingerprint, a link to this program. */
#include <stdio.h>
#include <string.h>

#include "cli/options/help.h"
#include "cli/terminal/output.h"
#include "cli/terminal/program.h"
#include "npudiff/core/status.h"

extern const struct cli_command cmd_fingerprint;
static const struct cli_command *const commands[] = {&cmd_fingerprint};

static int run(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *name = argc == 0 ? "" : slash != NULL ? slash + 1 : argv[0];
    if (strcmp(name, "npudiff-lab") == 0) {
        argc--;
        argv++;
        name = argc > 0 ? argv[0] : "";
    }
    if (strcmp(name, "--option-table") == 0)
        return cli_print_option_table(commands, sizeof commands / sizeof commands[0]);
    if (strncmp(name, "npudiff-", 8) == 0)
        name += 8;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return cli_run(commands[i], argc - 1, argv + 1);
    bool wants_help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    FILE *out = wants_help ? stdout : stderr;
    fprintf(out, "usage: npudiff-lab COMMAND [OPTIONS] ...\n\ncommands:\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    return wants_help ? 0 : ND_EXIT_TROUBLE;
}

int main(int argc, char **argv)
{
    return cli_program(argc, argv, run);
}
