/* What becomes of a command when a file that it reads is cut meanwhile. */
#include "cli/terminal/sigbus.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

/* Only functions that are allowed in signal handlers. */
static void handle(int number, siginfo_t *info, void *context)
{
    static const char message[] = "npudiff: a file was truncated while it was being read\n";
    (void)context;
    if (info->si_code == BUS_ADRERR) {
        ssize_t n = write(STDERR_FILENO, message, sizeof message - 1);
        (void)n;
        _exit(2);
    }
    signal(number, SIG_DFL);
    raise(number);
}

void cli_handle_sigbus(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
