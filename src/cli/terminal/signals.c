/* Signals: those that ask the command to stop, and what it says then. */
#include "cli/terminal/signals.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/options/help.h"
#include "cli/terminal/errors.h"

static bool is_catching;
static volatile sig_atomic_t caught_signal; /* SIGINT or SIGTERM that asks to stop, or 0 */

static void note_signal(int number)
{
    caught_signal = number;
}

void cli_signals_catch(void)
{
    const struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    is_catching = true;
}

bool cli_signals_let_end(void)
{
    bool was_catching = is_catching;
    if (was_catching) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
    }
    is_catching = false;
    cli_signals_end_if_came();
    return was_catching;
}

bool cli_signals_came(void *context)
{
    (void)context;
    return caught_signal != 0;
}

void cli_signals_end_if_came(void)
{
    if (caught_signal == 0)
        return;
    signal(caught_signal, SIG_DFL);
    raise(caught_signal);
}

/* ---- limits of work here ---- */

static char at_the_limit[128]; /* what is said then */

static void end_at_the_limit(int number)
{
    (void)number;
    ssize_t n = write(STDERR_FILENO, at_the_limit, strlen(at_the_limit));
    (void)n;
    _exit(2);
}

void cli_limit_work(double time_limit_s, size_t memory_limit_mib)
{
    enum { USUAL_S = 3600, USUAL_MIB = 8192 }; /* chosen; those of capture */
    double s = ceil(time_limit_s > 0 ? time_limit_s : USUAL_S);
    snprintf(at_the_limit, sizeof at_the_limit, "npudiff: stopped after --time-limit, %g s; nothing is kept\n",
             s);
    signal(SIGALRM, end_at_the_limit);
    alarm((unsigned)s);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* which take more for themselves */
    struct rlimit data;
    rlim_t most = (rlim_t)(memory_limit_mib > 0 ? memory_limit_mib : USUAL_MIB) << 20;
    if (getrlimit(RLIMIT_DATA, &data) == 0 && most < data.rlim_cur) {
        data.rlim_cur = most;
        setrlimit(RLIMIT_DATA, &data);
    }
#else
    (void)memory_limit_mib;
#endif
}

/* ---- what is told ---- */

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
