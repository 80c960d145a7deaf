/* Calls of waitpid that a signal interrupts. A test program includes it once. */
#ifndef ND_TESTS_INTERRUPTED_WAIT_H
#define ND_TESTS_INTERRUPTED_WAIT_H

#include <errno.h>
#include <stdbool.h>
#include <sys/wait.h>

/* Each call of waitpid is interrupted once, where that is wished. */
static bool is_interrupting;

pid_t waitpid(pid_t pid, int *how, int options)
{
    static bool was_interrupted;
    if (is_interrupting && (was_interrupted = !was_interrupted)) {
        errno = EINTR;
        return -1;
    }
    return wait4(pid, how, options, NULL);
}

#endif
