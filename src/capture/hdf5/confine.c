/* Confines the child process that runs libhdf5 on strangers' files. docs/architecture.md#confined. */
#include "capture/hdf5/reading.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ND_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ND_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ND_AUDIT_ARCH
/* Reading what is open, memory, and ending; and writing to the parent. */
static bool filter_calls(int pipe)
{
    static const unsigned allowed[] = {__NR_read,           __NR_pread64,       __NR_brk,
                                       __NR_mmap,           __NR_munmap,        __NR_mremap,
                                       __NR_mprotect,       __NR_madvise,       __NR_futex,
                                       __NR_getrandom,      __NR_clock_gettime, __NR_gettimeofday,
                                       __NR_rt_sigprocmask, __NR_rt_sigaction,  __NR_rt_sigreturn,
                                       __NR_sigaltstack,    __NR_getpid,        __NR_gettid,
                                       __NR_sched_yield,    __NR_exit,          __NR_exit_group};
    enum { N_ALLOWED = sizeof allowed / sizeof allowed[0] };
    struct sock_filter code[4 + 2 * N_ALLOWED + 5] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ND_AUDIT_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    const struct sock_filter end[5] = {
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), /* its low half */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)pipe, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    for (size_t i = 0; i < N_ALLOWED; i++) { /* equal: the next instruction; else the one behind it */
        code[4 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        code[5 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    memcpy(code + 4 + 2 * N_ALLOWED, end, sizeof end);
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#else
static bool filter_calls(int pipe)
{
    (void)pipe;
    errno = ENOSYS;
    return false;
}
#endif

static void close_from_to(unsigned first, unsigned last)
{
    if (first > last)
        return;
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0) == 0)
        return;
#endif
    long max = sysconf(_SC_OPEN_MAX); /* Linux before 5.9 */
    for (unsigned fd = first; fd <= last && (max < 0 || fd < (unsigned long)max); fd++)
        close((int)fd);
}

static void close_all_but(const int *fds, size_t n)
{
    unsigned first = 0;
    do {
        unsigned next = ~0u; /* the lowest that is kept, from first on */
        for (size_t i = 0; i < n; i++)
            if (fds[i] >= 0 && (unsigned)fds[i] >= first && (unsigned)fds[i] < next)
                next = (unsigned)fds[i];
        close_from_to(first, next == ~0u ? next : next - 1);
        first = next + 1;
    } while (first != 0);
}

/* Memory that other processes see as well goes, but for what starts at `shared`: what is read-only now,
 * mprotect may make writable. All addresses that are left, in bytes; 0: there is no /proc. */
static uint64_t unshare_memory(const void *shared)
{
    uint64_t n_bytes = 0, first, end;
    char line[512], mode[8];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &first, &end, mode) != 3)
            continue;                        /* the rest of a long name */
        void *at = (void *)(uintptr_t)first; /* NOLINT */
        if (mode[3] == 's' && at != shared && munmap(at, end - first) == 0)
            continue;
        n_bytes += end - first;
    }
    if (maps != NULL)
        fclose(maps);
    return n_bytes;
}

static bool limit(__rlimit_resource_t what, uint64_t n)
{
    const struct rlimit most = {(rlim_t)n, (rlim_t)n};
    return setrlimit(what, &most) == 0;
}

enum nd_status nd_confine(const struct nd_confinement *c, struct nd_error *err)
{
    const char *wanted = getenv(ND_CONFINE_VARIABLE);
    if (wanted != NULL && strcmp(wanted, ND_CONFINE_OFF) == 0)
        return ND_OK;
    uint64_t n_bytes = unshare_memory(c->shared);
    close_all_but(c->fds, c->n_fds);
    bool is_done = limit(RLIMIT_CORE, 0) && limit(RLIMIT_CPU, c->max_cpu_s) &&
                   (n_bytes == 0 || limit(RLIMIT_AS, n_bytes + c->max_more_memory)) &&
                   prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && filter_calls(c->pipe);
    return is_done ? ND_OK
                   : nd_fail(err, ND_E_FILE_READ, c->path,
                             "cannot read '%s': this system cannot confine the process that runs "
                             "libhdf5 (%s); " ND_CONFINE_VARIABLE "=" ND_CONFINE_OFF " reads without",
                             c->path, strerror(errno));
}
