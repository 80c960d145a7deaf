/* npudiff NAME for the commands of this program, for help and versions, and for commands that are programs of
 * their own: npudiff NAME starts npudiff-NAME, as git starts git-NAME. */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options/commands.h"
#include "cli/options/help.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/program.h"
#include "npudiff/core/parse.h"
#include "npudiff/core/status.h"
#include "npudiff/report/report.h"

struct cli_external {
    const char *name, *summary;
};
extern const struct cli_external cli_externals[];
extern const size_t cli_n_externals;

/* ---- programs of their own ---- */

const struct cli_external cli_externals[] = {
    {"fingerprint", "what is the arithmetic of a device? (package npudiff-lab)"},
};
const size_t cli_n_externals = sizeof cli_externals / sizeof cli_externals[0];

/* Becomes npudiff-<name> with these arguments (argv[0] is the name), where the name is one of cli_externals:
 * the one beside this program, that of the build tree, or the first one in PATH. Returns when the name is
 * another, or, with the error on stderr that says which package has it, ends the process with exit code 2. */
static void cli_run_external(const char *name, char *const argv[])
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
                 "the command '%s' is a program of its own, '%s', which is not installed (package npudiff-lab)",
                 name, program)));
}

/* ---- this one ---- */

/* By role, and in the order in which they are used. */
static const struct cli_command *const commands[] = {
    &cmd_run,    &cmd_capture, &cmd_compare,   &cmd_explain, &cmd_report,   &cmd_placement, &cmd_latency,
    &cmd_logs,   &cmd_init,    &cmd_qualify,   &cmd_golden,  &cmd_triage,   &cmd_twin,      &cmd_lint,
    &cmd_align,  &cmd_promote, &cmd_reduce,    &cmd_sweep,   &cmd_import,   &cmd_export,    &cmd_info,
    &cmd_verify, &cmd_prepare, &cmd_encodings, &cmd_devices, &cmd_runtimes, &cmd_probes,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* Old names of what a command does with this word; to be removed in 0.3. They are in no help and no
 * completion. */
static const struct {
    const char *old, *now, *word;
} joined[] = {
    {"ls", "info", "--list"},
    {"plan", "qualify", "--plan"},
    {"bundle", "golden", "bundle"},
    {"config", "compare", "--config"},
};
enum { N_JOINED = sizeof joined / sizeof joined[0] };

static void print_usage(FILE *out)
{
    static const char *const roles[CLI_N_ROLES] = {
        [CLI_FIND] = "find what differs, and why",
        [CLI_JUDGE] = "judge whether it may ship",
        [CLI_MEND] = "mend the model or the settings",
        [CLI_FILES] = "files",
        [CLI_HERE] = "what is here",
    };
    fprintf(out,
            "npudiff %s: why does the same quantised model give different outputs on\n"
            "different chipsets?\n\nusage: npudiff COMMAND [OPTIONS] ...\n",
            nd_version());
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (i == 0 || commands[i]->role != commands[i - 1]->role)
            fprintf(out, "\n%s:\n", roles[commands[i]->role]);
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(out, "\nprograms of their own:\n");
    for (size_t i = 0; i < cli_n_externals; i++)
        fprintf(out, "  %-11s %s\n", cli_externals[i].name, cli_externals[i].summary);
    fprintf(out, "\nhelp:\n"
                 "  npudiff help COMMAND   what a command does, with examples and options\n"
                 "  npudiff help ND-204    what an error means, and what to do\n"
                 "  npudiff help errors    all errors\n"
                 "  npudiff --version      the versions of npudiff and its libraries\n\n"
                 "Exit codes: 0 same or within the gates, 1 differs, 2 wrong usage or a file\n"
                 "problem, 3 not comparable, 4 inconclusive, 5 a device failed.\n");
}

/* NULL after a message. *word: what an old name puts before the arguments, else NULL. */
static const struct cli_command *find_command(const char *name, char **word)
{
    const char *names[N_COMMANDS];
    char meant[ND_DID_YOU_MEAN_BYTES];
    const char *wanted = name;
    *word = NULL;
    for (size_t i = 0; i < N_JOINED; i++)
        if (strcmp(joined[i].old, name) == 0) {
            wanted = joined[i].now;
            *word = (char *)(uintptr_t)joined[i].word;
        }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i]->name;
        if (strcmp(commands[i]->name, wanted) == 0)
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
    cli_run_external(argv[0], (char *[]){argv[0], "--help", NULL});
    char *word;
    const struct cli_command *command = find_command(argv[0], &word);
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
    cli_run_external(argv[1], argv + 1);
    char *word;
    const struct cli_command *command = find_command(argv[1], &word);
    if (command == NULL)
        return ND_EXIT_TROUBLE;
    if (word == NULL)
        return cli_run(command, argc - 2, argv + 2);
    argv[1] = word;
    return cli_run(command, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    return cli_program(argc, argv, run);
}
