#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#if defined __GLIBC__ /* known after a header of the library */
#include <malloc.h>
#endif

#include "cli/commands.h"
#include "cli/complete.h"
#include "cli/help.h"
#include "cli/help_errors.h"
#include "cli/json_memory.h"
#include "cli/option_table.h"
#include "cli/safe_output.h"
#include "cli/sigbus.h"
#include "cli/signals.h"
#include "cli/stopped.h"
#include "npudiff/parse.h"
#include "npudiff/report.h"

/* In the order in which they are used. */
static const struct cli_command *const commands[] = {
    &cmd_run,         &cmd_capture,   &cmd_compare, &cmd_explain, &cmd_report, &cmd_placement, &cmd_prepare,
    &cmd_latency,     &cmd_logs,      &cmd_reduce,  &cmd_align,   &cmd_lint,   &cmd_promote,   &cmd_sweep,
    &cmd_fingerprint, &cmd_encodings, &cmd_config,  &cmd_init,    &cmd_plan,   &cmd_qualify,   &cmd_golden,
    &cmd_triage,      &cmd_bundle,    &cmd_import,  &cmd_export,  &cmd_info,   &cmd_ls,        &cmd_verify,
    &cmd_devices,     &cmd_runtimes,  &cmd_probes,
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
    fprintf(out, "\nhelp:\n"
                 "  npudiff help COMMAND   what a command does, with examples and options\n"
                 "  npudiff help ND-204    what an error means, and what to do\n"
                 "  npudiff help errors    all errors\n"
                 "  npudiff --version      the versions of npudiff and its libraries\n\n"
                 "Exit codes: 0 same or within the gates, 1 differs, 2 wrong usage or a file\n"
                 "problem, 3 not comparable, 4 inconclusive, 5 a device failed.\n");
}

static const struct cli_command *find_command(const char *name)
{
    const char *names[N_COMMANDS];
    char meant[ND_DID_YOU_MEAN_BYTES];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i]->name;
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    nd_did_you_mean(name, names, N_COMMANDS, sizeof names[0], meant);
    cli_fail(CLI_E_OPTION_UNKNOWN, name, "unknown command '%s'%s%s 'npudiff help' lists the commands", name,
             meant, meant[0] != '\0' ? "" : ";");
    return NULL;
}

/* 'npudiff help', 'npudiff help COMMAND', which is 'npudiff COMMAND --help', and the help on errors. */
static int help(int argc, char **argv)
{
    if (argc == 0) {
        print_usage(stdout);
        return 0;
    }
    if (strcmp(argv[0], "errors") == 0)
        return cli_print_errors();
    if (cli_is_error_id(argv[0]))
        return cli_print_error_help(argv[0]);
    const struct cli_command *command = find_command(argv[0]);
    if (command == NULL)
        return ND_EXIT_TROUBLE;
    cli_print_help(command);
    return 0;
}

static int print_versions(void)
{
    char *text = nd_report_versions();
    if (text == NULL)
        return cli_fail_memory();
    fputs(text, stdout);
    free(text);
    return 0;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return ND_EXIT_TROUBLE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return help(argc - 2, argv + 2);
    if (strcmp(argv[1], "--option-table") == 0) /* for scripts of this project: in no help */
        return cli_print_option_table(commands, N_COMMANDS);
    if (strcmp(argv[1], "--complete") == 0 && argc > 2) /* for completions: in no help */
        return cli_complete(argv[2], (const char *const *)argv + 3, (size_t)argc - 3);
    if (strcmp(argv[1], "--version") == 0)
        return print_versions();
    const struct cli_command *command = find_command(argv[1]);
    return command != NULL ? cli_run(command, argc - 2, argv + 2) : ND_EXIT_TROUBLE;
}

/* Known before the options are parsed, as wrong options are errors, too. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

/* Tensors come and go thousands of times in an explanation. glibc gives their pages back to the system each
 * time, and gets them again, filled with zeros. One heap for all threads keeps up to 256 MiB for the next one;
 * tensors of 32 MiB and more still go back at once. Chosen. */
static void keep_freed_memory(void)
{
#if defined __GLIBC__
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
#endif
}

/* Every capture that is open takes a file, and the usual soft limit is 1024. It is raised up to the hard one,
 * but not beyond what a large campaign needs, because the programs that npudiff starts inherit it, and some of
 * them close every file that there might be. Chosen. */
static void allow_many_files(void)
{
    const rlim_t most = 32768;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= most)
        return;
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
    keep_freed_memory();
    allow_many_files();
    cli_guard_output();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error to report, like a full disk */
    signal(SIGCHLD, SIG_DFL); /* who started this may ignore it, and then nobody could wait for adb or ssh */
    cli_handle_sigbus();
    cli_reserve_json_memory(cli_errors_lost_memory);
    cli_errors_begin(wants_json(argc, argv));
    cli_stopped_set_command(argc, argv);
    int exit_code = cli_errors_end(run(argc, argv));
    /* A result that could not be written is no result. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_signals_end_if_came(); /* which may be why: safe_output.c */
        fprintf(stderr, "npudiff: cannot write to standard output\n");
        return ND_EXIT_TROUBLE;
    }
    return exit_code;
}
