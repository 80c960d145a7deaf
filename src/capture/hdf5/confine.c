/* Confines the child process that runs libhdf5 on strangers' files. docs/architecture.md#confined. */
#include "capture/hdf5/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ND_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ND_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ND_AUDIT_ARCH
/* One comparison each: equal falls through to "allow", else two instructions on. */
#define ALLOW(call)                                                                                            \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Reading and writing what is open, memory, and ending. */
#define ALLOWED_ALWAYS                                                                                         \
    ALLOW(__NR_read), ALLOW(__NR_pread64), ALLOW(__NR_write), ALLOW(__NR_lseek), ALLOW(__NR_fstat),            \
        ALLOW(__NR_newfstatat), ALLOW(__NR_close), ALLOW(__NR_brk), ALLOW(__NR_mmap), ALLOW(__NR_munmap),      \
        ALLOW(__NR_mremap), ALLOW(__NR_mprotect), ALLOW(__NR_madvise), ALLOW(__NR_futex),                      \
        ALLOW(__NR_getrandom), ALLOW(__NR_clock_gettime), ALLOW(__NR_gettimeofday),                            \
        ALLOW(__NR_rt_sigprocmask), ALLOW(__NR_rt_sigaction), ALLOW(__NR_rt_sigreturn),                        \
        ALLOW(__NR_sigaltstack), ALLOW(__NR_getpid), ALLOW(__NR_gettid), ALLOW(__NR_sched_yield),              \
        ALLOW(__NR_exit), ALLOW(__NR_exit_group)

static void set_filter(struct sock_filter *code, size_t n)
{
    const struct sock_fprog program = {(unsigned short)n, code};
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#define BEGIN                                                                                                  \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),                                   \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ND_AUDIT_ARCH, 1, 0), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL), \
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define DENY BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

/* Opening for reading is still allowed, and the second filter. */
static void filter_to_reading(void)
{
    struct sock_filter code[] = {
        BEGIN,
        ALLOWED_ALWAYS,
        ALLOW(__NR_prctl),
        ALLOW(__NR_fcntl),
        ALLOW(__NR_flock),
        ALLOW(__NR_faccessat),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        DENY,
    };
    set_filter(code, sizeof code / sizeof code[0]);
}

static void filter_calls(void)
{
    struct sock_filter code[] = {
        BEGIN,
        ALLOWED_ALWAYS,
        DENY,
    };
    set_filter(code, sizeof code / sizeof code[0]);
}
#else
static void filter_to_reading(void)
{
}

static void filter_calls(void)
{
}
#endif

void nd_confine_to_reading(uint64_t max_cpu_s)
{
    const struct rlimit none = {0, 0}, time = {max_cpu_s, max_cpu_s};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &time);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        filter_to_reading();
}

void nd_confine(void)
{
    filter_calls(); /* on top of the first: what either denies is denied */
}
