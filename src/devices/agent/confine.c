/* Takes from the agent, by kernel and C library, what runtime and model do not need: they are not ours. */
#include "devices/agent/confine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "devices/agent/stop.h"

#if defined __linux__ && (defined __x86_64__ || defined __aarch64__) && __has_include(<linux/landlock.h>) && \
    __has_include(<linux/seccomp.h>) && __has_include(<linux/filter.h>)
#define CAN_CONFINE 1
#endif

#ifdef CAN_CONFINE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- system calls ---- */

#if defined __x86_64__
#define OWN_ARCH AUDIT_ARCH_X86_64
#else
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

/* Of Qualcomm's processors among themselves; the driver of the NPU may use it. */
enum { FAMILY_QIPCRTR = 42 };
/* The same number on all machines. Older headers lack it. */
enum { FCHMODAT2 = 452 };

/* The next instruction is left out where the value is another one. */
#define IF_EQUAL(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1)
#define DENY BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES)
#define ASK BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* No programs, no sockets but those within the machine, nothing typed into a terminal, no other owner, mode,
 * time or attribute of a file (landlock has no rule for these), and none of the ways around that. Calls of
 * another architecture (32 bits on x86-64) are refused as a whole. What a program that is to be started meets,
 * or a file that is to have another mode, is `program_call`; with ASK it waits for an answer from *listener,
 * and when that is closed none can be started.
 */
static bool filter_calls(struct sock_filter program_call, int *listener)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0),
        DENY,
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef __x86_64__
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), /* x32 */
        DENY,
#endif
        IF_EQUAL(__NR_execve),
        program_call,
        IF_EQUAL(__NR_execveat),
        program_call,
#ifdef __NR_chmod
        IF_EQUAL(__NR_chmod),
        program_call,
        IF_EQUAL(__NR_chown),
        program_call,
        IF_EQUAL(__NR_lchown),
        program_call,
        IF_EQUAL(__NR_utime),
        program_call,
        IF_EQUAL(__NR_utimes),
        program_call,
        IF_EQUAL(__NR_futimesat),
        program_call,
#endif
        IF_EQUAL(__NR_fchmod),
        program_call,
        IF_EQUAL(__NR_fchmodat),
        program_call,
        IF_EQUAL(FCHMODAT2),
        program_call,
        IF_EQUAL(__NR_fchown),
        program_call,
        IF_EQUAL(__NR_fchownat),
        program_call,
        IF_EQUAL(__NR_utimensat),
        program_call,
        IF_EQUAL(__NR_setxattr),
        program_call,
        IF_EQUAL(__NR_lsetxattr),
        program_call,
        IF_EQUAL(__NR_fsetxattr),
        program_call,
        IF_EQUAL(__NR_removexattr),
        program_call,
        IF_EQUAL(__NR_lremovexattr),
        program_call,
        IF_EQUAL(__NR_fremovexattr),
        program_call,
#ifndef __SANITIZE_ADDRESS__ /* which looks for leaks by it, when the agent ends */
        IF_EQUAL(__NR_ptrace),
        DENY,
#endif
        IF_EQUAL(__NR_process_vm_writev),
        DENY,
#ifdef __NR_io_uring_setup
        IF_EQUAL(__NR_io_uring_setup),
        DENY,
#endif
#ifdef __NR_pidfd_getfd /* the listener of the gate below would be a runner's */
        IF_EQUAL(__NR_pidfd_getfd),
        DENY,
#endif
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_prlimit64, 0, 4), /* of itself alone */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        IF_EQUAL(0),
        ALLOW,
        DENY,
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 0, 6), /* nothing is typed into a terminal */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        IF_EQUAL(TIOCSTI),
        DENY,
        IF_EQUAL(TIOCLINUX),
        DENY,
        ALLOW,
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 1, 0),
        ALLOW,
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        IF_EQUAL(AF_UNIX),
        ALLOW,
        IF_EQUAL(FAMILY_QIPCRTR),
        ALLOW,
        DENY,
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

/* Filters calls, and programs from the time when the gate is closed; what of them holds then. A kernel
 * before 5.5, or a container with a listener of its own, leaves programs free. */
static const char *filter_calls_later(void)
{
    if (pipe2(gate.stop, O_CLOEXEC) != 0)
        return "";
    if (filter_calls((struct sock_filter)ASK, &gate.listener)) {
        if (pthread_create(&gate.thread, NULL, keep_gate, NULL) == 0)
            return "network, programs";
        close(gate.listener); /* from now on nothing can be started: the runner's start fails, and says so */
        gate.listener = -1;
    }
    close(gate.stop[0]);
    close(gate.stop[1]);
    return filter_calls((struct sock_filter)ALLOW, NULL) ? "network" : "";
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
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
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

static bool restrict_files(const struct nd_agent_job *job, bool are_programs_free)
{
    long version = syscall(__NR_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return false;
    uint64_t access = changes | (version >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0) |
                      (version >= 3 ? LANDLOCK_ACCESS_FS_TRUNCATE : 0);
    const struct landlock_ruleset_attr attributes = {
        .handled_access_fs = are_programs_free ? access : access | LANDLOCK_ACCESS_FS_EXECUTE};
    int rules = (int)syscall(__NR_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    bool is_restricted = rules >= 0 && allow_below(rules, ".", access) && allow_below(rules, "/dev", access) &&
                         allow_named(rules, job->provider_options, job->n_provider_options, access) &&
                         allow_named(rules, job->config, job->n_config, access) &&
                         allow_stop_file(rules, access) && syscall(__NR_landlock_restrict_self, rules, 0) == 0;
    if (rules >= 0)
        close(rules);
    return is_restricted;
}

static const char *confine(const struct nd_agent_job *job, bool starts_program)
{
    static char said[64];
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return "nothing";
    bool are_files = restrict_files(job, starts_program);
    const char *calls = starts_program                                 ? filter_calls_later()
                        : filter_calls((struct sock_filter)DENY, NULL) ? "network, programs"
                        : are_files                                    ? "programs"
                                                                       : "";
    bool has_calls = calls[0] != '\0';
    snprintf(said, sizeof said, "%s%s%s", calls, has_calls && are_files ? ", " : "", are_files ? "files" : "");
    return said[0] != '\0' ? said : "nothing";
}
#else
static void close_gate(void)
{
}

static const char *confine(const struct nd_agent_job *job, bool starts_program)
{
    (void)job;
    (void)starts_program;
    return "nothing";
}
#endif

/* Of this process. */
static const char *confined = "nothing";

const char *nd_agent_confine(const struct nd_agent_job *job, bool starts_program)
{
    const char *wanted = getenv(ND_CONFINE_VARIABLE);
    bool is_off = wanted != NULL && strcmp(wanted, ND_CONFINE_OFF) == 0;
    return confined = is_off ? "nothing" : confine(job, starts_program);
}

void nd_agent_confine_programs(void)
{
    close_gate();
}

const char *nd_agent_confined(void)
{
    return confined;
}
