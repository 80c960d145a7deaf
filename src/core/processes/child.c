#include "core/processes/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What this process was given by whoever started it, beyond the three, is not the child's. Ours close by
 * themselves; a kernel before 5.11 knows no such call, and leaves the others open. */
static void close_others(void)
{
#ifdef __NR_close_range
    const unsigned int on_exec = 1U << 2; /* CLOSE_RANGE_CLOEXEC, which older C libraries do not declare */
    syscall(__NR_close_range, STDERR_FILENO + 1, ~0U, on_exec);
#endif
}

/* In the child: only what is safe between fork and exec. */
static void become(const struct nd_child *child, pid_t host, int report_fd)
{
    const struct rlimit no_core = {0, 0};
    char *const *argv = (char *const *)(uintptr_t)child->argv;
    if (child->has_group)
        setpgid(0, 0);
    if (child->has_no_core)
        setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGPIPE, SIG_DFL);
    /* The host may have died before this was set. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != host)
        _exit(127);
    if ((child->folder == NULL || chdir(child->folder) == 0) && dup2(child->in, STDIN_FILENO) >= 0 &&
        dup2(child->out, STDOUT_FILENO) >= 0 && dup2(child->errors, STDERR_FILENO) >= 0) {
        close_others();
        if (child->uses_path)
            execvp(child->program, argv);
        else
            execv(child->program, argv);
    }
    int problem = errno;
    ssize_t written = write(report_fd, &problem, sizeof problem);
    (void)written;
    _exit(127);
}

/* A pipe that closes on exec tells whether the program could be run. */
int nd_child_start(const struct nd_child *child, pid_t *pid)
{
    int report[2] = {-1, -1};
    int problem = 0;
    if (pipe2(report, O_CLOEXEC) != 0)
        return errno;
    pid_t host = getpid();
    pid_t made = fork();
    if (made == 0)
        become(child, host, report[1]);
    if (made < 0)
        problem = errno;
    close(report[1]);
    ssize_t n = -1;
    while (made > 0 && (n = read(report[0], &problem, sizeof problem)) < 0 && errno == EINTR)
        ;
    close(report[0]);
    if (n == (ssize_t)sizeof problem)
        waitpid(made, NULL, 0);
    if (problem != 0)
        return problem;
    if (child->has_group)
        setpgid(made, made); /* whichever of the two comes first; it fails after the exec, and then it was */
    *pid = made;
    return 0;
}
