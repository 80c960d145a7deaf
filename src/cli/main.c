#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/sigbus.h"

/* In the order in which they are used. */
static const struct cli_command *const commands[] = {
    &cmd_capture, &cmd_compare, &cmd_explain,     &cmd_placement, &cmd_prepare, &cmd_latency,
    &cmd_logs,    &cmd_reduce,  &cmd_fingerprint, &cmd_encodings, &cmd_config,  &cmd_qualify,
    &cmd_golden,  &cmd_triage,  &cmd_bundle,      &cmd_import,    &cmd_export,  &cmd_info,
    &cmd_ls,      &cmd_verify,  &cmd_devices,     &cmd_runtimes,  &cmd_probes,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_usage(FILE *out)
{
    fprintf(out,
            "npudiff %s: why does the same quantised model give different outputs on different chipsets?\n\n"
            "usage: npudiff COMMAND [OPTIONS] ...\n\ncommands:\n",
            nd_version());
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n'npudiff COMMAND --help' explains one. Exit codes: 0 same or within the gates, 1 differs,\n"
                 "2 usage or I/O trouble, 3 not comparable, 4 inconclusive, 5 a device failed.\n");
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return ND_EXIT_TROUBLE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("npudiff %s\n", nd_version());
        return 0;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, argv[1]) == 0)
            return cli_run(commands[i], argc - 2, argv + 2);
    fprintf(stderr, "npudiff: unknown command '%s'; see 'npudiff --help'\n", argv[1]);
    return ND_EXIT_TROUBLE;
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error to report, like a full disk */
    cli_handle_sigbus();
    int exit_code = run(argc, argv);
    /* A result that could not be written is no result. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "npudiff: cannot write to standard output\n");
        return ND_EXIT_TROUBLE;
    }
    return exit_code;
}
