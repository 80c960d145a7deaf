/* What a command says when Ctrl-C stopped it. */
#include "cli/terminal/stopped.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/terminal/errors.h"
#include "cli/terminal/output.h"

static struct {
    int argc;
    char **argv;
} command;

void cli_stopped_set_command(int argc, char **argv)
{
    command.argc = argc;
    command.argv = argv;
}

static void print_quoted(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fprintf(stderr, " %s", word);
        return;
    }
    fputs(" '", stderr);
    for (; *word != '\0'; word++)
        fprintf(stderr, *word == '\'' ? "'\\''" : "%c", *word);
    fputc('\'', stderr);
}

void cli_stopped_tell(const char *kept, const char *option)
{
    if (!cli_signals_came(NULL))
        return;
    fprintf(stderr, "npudiff: stopped; %s\n", kept);
    if (option == NULL)
        return;
    bool is_there = option[0] == '\0';
    fputs("npudiff: to continue, run: npudiff", stderr);
    for (int i = 1; i < command.argc; i++) {
        if (strcmp(command.argv[i], "--force") == 0 || strcmp(command.argv[i], "-f") == 0)
            continue;
        is_there = is_there || strcmp(command.argv[i], option) == 0;
        print_quoted(command.argv[i]);
    }
    fprintf(stderr, "%s%s\n", is_there ? "" : " ", is_there ? "" : option);
}

int cli_stopped_or_failed(enum nd_status status, const struct nd_error *err)
{
    if (cli_signals_came(NULL)) {
        cli_stopped_tell("nothing is kept", NULL);
        return ND_EXIT_TROUBLE;
    }
    return status == ND_OK ? 0 : cli_report_error(err);
}
