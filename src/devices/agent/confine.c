/* Takes from the agent, by kernel and C library, what runtime and model do not need: they are not ours. */
#include "devices/agent/confine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/items.h"
#include "devices/agent/stop.h"

#if defined __linux__ && (defined __x86_64__ || defined __aarch64__) && __has_include(<linux/landlock.h>) && \
    __has_include(<linux/seccomp.h>) && __has_include(<linux/filter.h>)
#define CAN_CONFINE 1
#endif

#ifdef CAN_CONFINE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- system calls ---- */

#if defined __x86_64__
#define OWN_ARCH AUDIT_ARCH_X86_64
#else
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

/* The same numbers on all machines, from FIRST_NEW on. Older headers lack them. */
enum {
    FIRST_NEW = 424,
    PIDFD_GETFD = 438,
    FCHMODAT2 = 452,
    SETXATTRAT = 463,
    REMOVEXATTRAT = 466,
    FILE_SETATTR = 469
};

/* The next instruction is left out where the value is another one. */
#define IF_EQUAL(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_##action)
#define DENY RETURN(ERRNO | EACCES)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))

/* Calls of another architecture (32 bits on x86-64) are refused as a whole. What those that are gated meet is
 * `gate`; where it asks they wait for an answer from *listener, and when that is closed they are refused. C
 * libraries try what is new, and go on by what is old where the kernel does not know it. */
static bool filter_calls(struct sock_filter gate, int *listener)
{
    struct sock_filter code[] = {
#include "devices/agent/calls.def"
    };
    const struct sock_fprog program = {(unsigned short)(sizeof code / sizeof code[0]), code};
    if (listener == NULL)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    *listener = (int)syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    return *listener >= 0;
}

/* ---- programs that are started before the model is there ---- */

/* Answers "go on" to every start of a program, in a thread of its own, until `stop` is closed on its other
 * side. */
struct gatekeeper {
    int listener, stop[2];
    pthread_t thread;
};
static struct gatekeeper gate = {.listener = -1, .stop = {-1, -1}};

static void let_through(int listener)
{
    struct seccomp_notif call = {0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
        return;
    struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static void *keep_gate(void *unused)
{
    (void)unused;
    struct pollfd wanted[] = {{.fd = gate.listener, .events = POLLIN}, {.fd = gate.stop[0], .events = POLLIN}};
    while (wanted[1].revents == 0) {
        if (poll(wanted, 2, -1) < 0 && errno != EINTR)
            break;
        if (wanted[1].revents == 0 && (wanted[0].revents & POLLIN) != 0)
            let_through(gate.listener);
    }
    return NULL;
}

/* Filters calls, and those of `gated` from the time when the gate is closed. A kernel before 5.5, or a
 * container with a listener of its own, leaves them free. */
static void filter_calls_later(void)
{
    if (pipe2(gate.stop, O_CLOEXEC) != 0)
        return;
    if (filter_calls((struct sock_filter)RETURN(USER_NOTIF), &gate.listener)) {
        if (pthread_create(&gate.thread, NULL, keep_gate, NULL) == 0)
            return;
        close(gate.listener); /* from now on nothing can be started: the runner's start fails, and says so */
        gate.listener = -1;
    }
    close(gate.stop[0]);
    close(gate.stop[1]);
    if (gate.listener < 0)
        filter_calls((struct sock_filter)RETURN(ALLOW), NULL);
}

static void close_gate(void)
{
    if (gate.listener < 0)
        return;
    close(gate.stop[1]);
    pthread_join(gate.thread, NULL);
    close(gate.stop[0]);
    close(gate.listener);
    gate.listener = -1;
}

/* ---- files ---- */

#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif

/* Everything that changes files, in the first version of landlock. */
static const uint64_t changes = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;

/* What is not there needs no leave. */
static bool allow_below(int rules, const char *folder, uint64_t access)
{
    int fd = open(folder, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == EACCES;
    const struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    long rc = syscall(__NR_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(fd);
    return rc == 0;
}

/* Options that name a file or folder which is written. A user has to allow them by --trust-options. */
static bool is_written(const char *key)
{
    static const char *const keys[] = {"ep.context_file_path", "profiling_file_path", "json_qnn_graph_dir"};
    return nd_find_text(keys, sizeof keys / sizeof keys[0], sizeof keys[0], key) != NULL;
}

static bool allow_named(int rules, const struct nd_agent_option *pairs, size_t n, uint64_t access)
{
    bool is_allowed = true;
    for (size_t i = 0; i < n && is_allowed; i++) {
        if (!is_written(pairs[i].key))
            continue;
        char *folder = nd_path_dir(pairs[i].value);
        is_allowed = folder != NULL && allow_below(rules, folder, access);
        free(folder);
    }
    return is_allowed;
}

/* A test that stops the agent asks for that by a file, which the agent removes (stop.h). */
static bool allow_stop_file(int rules, uint64_t access)
{
    const char *path = nd_stop_path();
    char *folder = path != NULL ? nd_path_dir(path) : NULL;
    bool is_allowed = path == NULL || (folder != NULL && allow_below(rules, folder, access));
    free(folder);
    return is_allowed;
}

/* As the kernel's headers have it since version 6 of landlock. */
struct ruleset {
    uint64_t files, network, scoped;
};
enum { SCOPE_SIGNAL = 1 << 1 };

static bool restrict_files(const struct nd_agent_job *job, bool are_programs_free)
{
    long version = syscall(__NR_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return false;
    uint64_t access = changes | (version >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0) |
                      (version >= 3 ? LANDLOCK_ACCESS_FS_TRUNCATE : 0);
    const struct ruleset attributes = {
        .files = are_programs_free ? access : access | LANDLOCK_ACCESS_FS_EXECUTE,
        .scoped = version >= 6 ? SCOPE_SIGNAL : 0,
    };
    int rules = (int)syscall(__NR_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    bool is_restricted = rules >= 0 && allow_below(rules, ".", access) && allow_below(rules, "/dev", access) &&
                         allow_named(rules, job->provider_options, job->n_provider_options, access) &&
                         allow_named(rules, job->config, job->n_config, access) &&
                         allow_stop_file(rules, access) && syscall(__NR_landlock_restrict_self, rules, 0) == 0;
    nd_fd_close(&rules);
    return is_restricted;
}

/* Of root's capabilities only those that read and write files of others, which landlock restricts: the rest
 * reaches into other processes and into the machine. A user has none. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct now[2] = {0};
    const uint32_t kept = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;
    if (syscall(__NR_capget, &header, now) != 0)
        return;
    now[0].effective &= kept;
    now[0].permitted &= kept;
    now[0].inheritable = now[1].effective = now[1].permitted = now[1].inheritable = 0;
    syscall(__NR_capset, &header, now);
}

/* ---- what holds ---- */

/* Bits of what is refused, with the words for them. */
enum { NETWORK = 1, PROGRAMS = 2, FILES = 4, ATTRIBUTES = 8, PROCESSES = 16, SIGNALS = 32 };
static const char *const words[] = {"network", "programs", "files", "attributes", "processes", "signals"};

static bool is_refused(long rc)
{
    return rc < 0 && (errno == EACCES || errno == EPERM || errno == ENOSYS);
}

static bool are_attributes_refused(void)
{
    static const char name[] = "confined";
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600), flags = 0;
    struct fsxattr more = {0};
    bool are =
        fd >= 0 && is_refused(fchmod(fd, 0600)) && is_refused(fchmodat(AT_FDCWD, name, 0600, 0)) &&
        is_refused(syscall(FCHMODAT2, AT_FDCWD, name, 0600, 0)) && is_refused(fchown(fd, getuid(), getgid())) &&
        is_refused(fchownat(AT_FDCWD, name, getuid(), getgid(), 0)) && is_refused(futimens(fd, NULL)) &&
        is_refused(setxattr(name, "user.x", "y", 1, 0)) && is_refused(fsetxattr(fd, "user.x", "y", 1, 0)) &&
        is_refused(removexattr(name, "user.x")) &&
        is_refused(syscall(SETXATTRAT, fd, "", 0, "user.x", NULL, 0)) &&
        is_refused(syscall(REMOVEXATTRAT, fd, "", 0, "user.x")) &&
        is_refused(syscall(FILE_SETATTR, fd, "", NULL, 0, 0)) &&
        is_refused(ioctl(fd, FS_IOC_SETFLAGS, &flags)) && is_refused(ioctl(fd, FS_IOC_FSSETXATTR, &more));
    if (fd >= 0) {
        close(fd);
        unlink(name);
    }
    return are;
}

/* A file that is outside wherever the own folder is; to empty it changes nothing. */
static bool are_files_refused(void)
{
    static const char path[] = "/proc/self/comm";
    return is_refused(open(path, O_WRONLY)) && is_refused(open(path, O_RDONLY | O_TRUNC)) &&
           is_refused(open(path, O_ACCMODE | O_TRUNC)) && is_refused(truncate(path, 0));
}

static bool is_memory_refused(pid_t pid)
{
    char path[64];
    struct iovec none = {path, 0};
    snprintf(path, sizeof path, "/proc/%ld/mem", (long)pid);
    return is_refused(open(path, O_RDWR)) && is_refused(process_vm_writev(pid, &none, 1, &none, 1, 0));
}

static bool are_processes_refused(pid_t host)
{
    struct rlimit limit;
    return is_memory_refused(host) && is_refused(ptrace(PTRACE_SEIZE, host, NULL, NULL)) &&
           is_refused(syscall(PIDFD_GETFD, -1, 0, 0)) && is_refused(prlimit(host, RLIMIT_CORE, NULL, &limit)) &&
           is_refused(ioctl(STDIN_FILENO, TIOCSTI, ""));
}

/* In a process that looks back at the agent and at npudiff, which started it, as a runner does. */
static int try_all(pid_t host, pid_t agent, bool starts_program)
{
    char *const none[] = {NULL};
    int held = 0;
    bool is_gate_safe = !starts_program || is_memory_refused(agent);
    held |= is_refused(socket(AF_INET, SOCK_STREAM, 0)) && is_refused(socket(AF_INET6, SOCK_DGRAM, 0)) &&
                    is_refused(socket(AF_PACKET, SOCK_RAW, 0)) &&
                    is_refused(syscall(425, 1, NULL)) /* io_uring */
                ? NETWORK
                : 0;
    held |= is_gate_safe && is_refused(execve("", none, none)) &&
                    is_refused(syscall(__NR_execveat, -1, "", none, none, AT_EMPTY_PATH))
                ? PROGRAMS
                : 0;
    held |= are_files_refused() ? FILES : 0;
    held |= is_gate_safe && are_attributes_refused() ? ATTRIBUTES : 0;
    held |= are_processes_refused(host) ? PROCESSES : 0;
    held |= is_refused(kill(host, 0)) ? SIGNALS : 0;
    return held;
}

/* The words for what is refused now, by trying. */
static const char *measure(bool starts_program)
{
    static char said[96];
    pid_t agent = getpid(), host = getppid(), child = fork();
    int how = 0;
    if (child == 0)
        _exit(try_all(host, agent, starts_program));
    while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    if (child < 0 || !WIFEXITED(how) || WEXITSTATUS(how) == 0)
        return "nothing";
    said[0] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if ((WEXITSTATUS(how) >> i & 1) != 0)
            snprintf(said + strlen(said), sizeof said - strlen(said), "%s%s", said[0] != '\0' ? ", " : "",
                     words[i]);
    return said;
}

static void confine(const struct nd_agent_job *job, bool starts_program)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return;
    drop_capabilities();
    if (starts_program)
        prctl(PR_SET_DUMPABLE, 0); /* the gate is in this memory, and a runner is of the same user */
    restrict_files(job, starts_program);
    if (starts_program)
        filter_calls_later();
    else
        filter_calls((struct sock_filter)DENY, NULL);
}
#else
static void close_gate(void)
{
}

static const char *measure(bool starts_program)
{
    (void)starts_program;
    return "nothing";
}

static void confine(const struct nd_agent_job *job, bool starts_program)
{
    (void)job;
    (void)starts_program;
}
#endif

/* Of this process. */
static const char *confined = "nothing";
static bool has_gate;

const char *nd_agent_confine(const struct nd_agent_job *job, bool starts_program)
{
    const char *wanted = getenv(ND_CONFINE_VARIABLE);
    bool is_off = wanted != NULL && strcmp(wanted, ND_CONFINE_OFF) == 0;
    if (is_off)
        return confined;
    confine(job, starts_program);
    has_gate = starts_program;
    return confined = has_gate ? confined : measure(false);
}

void nd_agent_confine_programs(void)
{
    close_gate();
    if (has_gate)
        confined = measure(true);
}

const char *nd_agent_confined(void)
{
    return confined;
}
