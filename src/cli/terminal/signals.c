#include "cli/terminal/signals.h"

#include <signal.h>
#include <stddef.h>

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
