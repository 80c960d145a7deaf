/* What foreign code in the agent can no longer do, and what it still can. */
#include "support/main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <utime.h>

#include "core/files/file.h"
#include "devices/agent/confine.h"
#include "support/scratch.h"

/* What was expected and did not come, as an exit code; each is one bit of `found`. */
enum {
    INTERNET = 1,
    PROGRAM = 2,
    NEW_FILE = 4,
    OLD_FILE = 8,
    REMOVED = 16,
    OWN_FOLDER = 32,
    NAMED_FOLDER = 64,
    OPEN_FILE = 128,
};

static bool is_refused(int rc)
{
    return rc < 0 && (errno == EACCES || errno == EPERM || errno == ENOSYS);
}

static bool can_write(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    bool can = fd >= 0 && write(fd, "x", 1) == 1;
    if (fd >= 0)
        close(fd);
    return can;
}

/* In a process of its own: tries everything, and reports what does not hold of what was said to. */
static int try_all(const char *outside, const char *named, const char *old)
{
    struct nd_agent_option option = {.key = (char *)(uintptr_t) "profiling_file_path"};
    option.value = nd_path_join(named, "profile.csv");
    const struct nd_agent_job job = {.provider_options = &option, .n_provider_options = 1};
    int open_file = open(old, O_WRONLY | O_CLOEXEC);
    const char *said = nd_agent_confine(&job, false);
    bool is_network = strstr(said, "network") != NULL, are_programs = strstr(said, "programs") != NULL;
    bool are_files = strstr(said, "files") != NULL;
    char *const arguments[] = {(char *)(uintptr_t) "true", NULL}, *const none[] = {NULL};
    int found = 0;
    found |= is_network && !is_refused(socket(AF_INET, SOCK_STREAM, 0)) ? INTERNET : 0;
    found |= is_network && !is_refused(socket(AF_INET6, SOCK_DGRAM, 0)) ? INTERNET : 0;
    found |= are_programs && !is_refused(execve("/bin/true", arguments, none)) ? PROGRAM : 0;
    found |= are_files && !is_refused(open(outside, O_WRONLY | O_CREAT, 0600)) ? NEW_FILE : 0;
    found |= are_files && !is_refused(open(old, O_WRONLY)) ? OLD_FILE : 0;
    found |= are_files && !is_refused(unlink(old)) ? REMOVED : 0;
    found |= !can_write("spool") || !can_write("/dev/null") || open(old, O_RDONLY) < 0 ? OWN_FOLDER : 0;
    found |= !can_write(option.value) ? NAMED_FOLDER : 0;
    found |= write(open_file, "x", 1) != 1 ? OPEN_FILE : 0;
    free(option.value);
    return found;
}

static void foreign_code_reaches_what_it_needs_and_no_more(void **state)
{
    (void)state;
    char *own = in_folder("own"), *named = in_folder("named"), *outside = in_folder("new"),
         *old = in_folder("old");
    assert_int_equal(nd_dir_make(own, NULL), ND_OK);
    assert_int_equal(nd_dir_make(named, NULL), ND_OK);
    assert_true(can_write(old));
    pid_t child = fork();
    if (child == 0)
        _exit(chdir(own) == 0 ? try_all(outside, named, old) : 255);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(access(old, F_OK), 0);
    free(own);
    free(named);
    free(outside);
    free(old);
}

/* In a process of its own: 0 where owner, mode, times and attributes of an open file, and of its name, stay. */
static int try_metadata(const char *path)
{
    const struct nd_agent_job job = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (strstr(nd_agent_confine(&job, false), "network") == NULL)
        return 0;
    bool are = is_refused(chmod(path, 0777)) && is_refused(fchmod(fd, 0777)) &&
               is_refused(fchmodat(AT_FDCWD, path, 0777, 0)) && is_refused(chown(path, getuid(), getgid())) &&
               is_refused(fchown(fd, getuid(), getgid())) && is_refused(lchown(path, getuid(), getgid())) &&
               is_refused((int)syscall(452, AT_FDCWD, path, 0777, 0)) &&
               is_refused(utimensat(AT_FDCWD, path, NULL, 0)) && is_refused(futimens(fd, NULL)) &&
               is_refused(setxattr(path, "user.x", "y", 1, 0)) &&
               is_refused(fsetxattr(fd, "user.x", "y", 1, 0)) && is_refused(removexattr(path, "user.x"));
    return are ? 0 : 1;
}

static void owner_mode_times_and_attributes_stay(void **state)
{
    (void)state;
    char *file = in_folder("file");
    struct stat before, after;
    assert_true(can_write(file));
    assert_int_equal(stat(file, &before), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(try_metadata(file));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(stat(file, &after), 0);
    assert_int_equal(before.st_mode, after.st_mode);
    assert_int_equal(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
    free(file);
}

/* In a process of its own: 0 where nobody else can be reached. */
static int try_others(void)
{
    const struct nd_agent_job job = {0};
    struct rlimit limit;
    if (strstr(nd_agent_confine(&job, false), "network") == NULL)
        return 0;
    bool are = is_refused((int)syscall(__NR_pidfd_getfd, -1, 0, 0)) && is_refused(ioctl(0, TIOCSTI, "x")) &&
               is_refused(prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit));
    return are && prlimit(0, RLIMIT_NOFILE, NULL, &limit) == 0 && prlimit(0, RLIMIT_NOFILE, &limit, NULL) == 0
               ? 0
               : 1;
}

/* Descriptors and limits of other processes, and the terminal. */
static void other_processes_are_not_reached(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0)
        _exit(try_others());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Where this kernel has them, they are used. */
static void what_the_kernel_has_is_used(void **state)
{
    (void)state;
    int ends[2];
    char said[100] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        const struct nd_agent_job job = {0};
        const char *text = nd_agent_confine(&job, false);
        _exit(write(ends[1], text, strlen(text)) > 0 ? 0 : 1);
    }
    close(ends[1]);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    waitpid(child, NULL, 0);
    if (access("/proc/sys/kernel/seccomp/actions_avail", F_OK) == 0)
        assert_non_null(strstr(said, "network, programs"));
    print_message("# confined: %s\n", said);
}

static void it_can_be_switched_off(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        const struct nd_agent_job job = {0};
        bool is_off =
            setenv("NPUDIFF_CONFINE", "off", 1) == 0 && strcmp(nd_agent_confine(&job, false), "nothing") == 0;
        _exit(is_off && socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- escapes: what succeeds is what the words do not say ---- */

/* The version of landlock that the agent finds: -1 that of this kernel, 0 none. It handles only what that
 * version knows, and so does then the kernel. */
static long landlock_version = -1;

/* It reads six arguments, whatever there are. */
__attribute__((no_sanitize("address"))) long syscall(long number, ...)
{
    static long (*real)(long number, ...);
    long a[6];
    va_list args;
    va_start(args, number);
    for (size_t i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    bool is_landlock = number >= 444 && number <= 446;
    if (is_landlock && landlock_version == 0) {
        errno = ENOSYS;
        return -1;
    }
    return number == 444 && a[0] == 0 && landlock_version > 0
               ? landlock_version
               : real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Where the escapes lead: files of the user, and the process that started the agent. */
static struct {
    char *old, *empty, *target;
    int fd; /* of old, open for reading */
    pid_t host;
} out;

static bool did(long rc)
{
    return rc >= 0;
}

#define SOCKET(family, type) did(socket(family, type, 0))
#define OPEN(flags) did(open(out.old, (flags) | O_CLOEXEC, 0600))
enum { X32 = 0x40000000 };

static bool runs_memory(void)
{
    char *const arguments[] = {(char *)(uintptr_t) "false", NULL}, *const none[] = {NULL};
    char block[65536];
    int from = open("/bin/false", O_RDONLY | O_CLOEXEC), to = memfd_create("x", 0);
    for (ssize_t n; (n = read(from, block, sizeof block)) > 0;)
        if (write(to, block, (size_t)n) != n)
            return false;
    fexecve(to, arguments, none);
    return false; /* the program ends with 1 */
}

static bool executes(long call)
{
    char *const arguments[] = {(char *)(uintptr_t) "false", NULL}, *const none[] = {NULL};
    if (call == __NR_execveat)
        syscall(call, open("/bin/false", O_PATH | O_CLOEXEC), "", arguments, none, AT_EMPTY_PATH);
    else
        syscall(call, "/bin/false", arguments, none);
    return false;
}

static bool spawns(void)
{
    pid_t pid;
    char *const arguments[] = {(char *)(uintptr_t) "false", NULL}, *const none[] = {NULL};
    return posix_spawn(&pid, "/bin/false", NULL, NULL, arguments, none) == 0;
}

/* One that answers in the place of the agent's own. */
static bool gets_listener(void)
{
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {1, code};
    return did(syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

static bool opens_by_openat2(void)
{
    const uint64_t how[3] = {O_RDONLY | O_TRUNC, 0, 0};
    return did(syscall(437, AT_FDCWD, out.old, how, sizeof how));
}

static bool reopens(int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", out.fd);
    return did(open(path, flags));
}

static bool chmods_open_file(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", out.fd);
    return did(chmod(path, 0777));
}

static bool moves_out(void)
{
    int fd = open("own", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    return fd >= 0 && did(rename("own", out.target));
}

static bool binds(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", out.target);
    return strlen(out.target) < sizeof name.sun_path &&
           did(bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&name, sizeof name));
}

static bool writes_proc(const char *file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)out.host, file);
    return did(open(path, O_RDWR));
}

static bool sets_flags(unsigned long request)
{
    struct fsxattr more = {.fsx_xflags = FS_XFLAG_NODUMP};
    int flags = FS_NODUMP_FL;
    return did(ioctl(out.fd, request, request == FS_IOC_FSSETXATTR ? (void *)&more : (void *)&flags));
}

static bool sets_xattrat(void)
{
    char value[] = "y";
    const struct {
        uint64_t value;
        uint32_t size, flags;
    } args = {(uint64_t)(uintptr_t)value, 1, 0};
    return did(syscall(463, AT_FDCWD, out.old, 0, "user.at", &args, sizeof args));
}

static bool sets_file_attributes(void)
{
    const uint64_t attributes[4] = {FS_XFLAG_NODUMP};
    return did(syscall(469, AT_FDCWD, out.old, attributes, 24, 0));
}

static bool changes_memory(void)
{
    static char mine[] = "x";
    struct iovec local = {mine, 1}, remote = {mine, 1}; /* a fork: it lies there as well */
    return did(process_vm_writev(out.host, &local, 1, &remote, 1, 0));
}

static bool takes_descriptor(void)
{
    int pidfd = (int)syscall(434, out.host, 0);
    return pidfd >= 0 && did(syscall(438, pidfd, 0, 0));
}

static bool sends_by_pidfd(void)
{
    int pidfd = (int)syscall(434, out.host, 0);
    return pidfd >= 0 && did(syscall(424, pidfd, 0, NULL, 0));
}

static bool sets_limit(void)
{
    struct rlimit limit;
    return did(prlimit(out.host, RLIMIT_CORE, NULL, &limit)) &&
           did(prlimit(out.host, RLIMIT_CORE, &limit, NULL));
}

static bool reclaims_memory(void)
{
    int pidfd = (int)syscall(434, out.host, 0);
    struct iovec all = {(void *)&out, 4096};
    return pidfd >= 0 && did(syscall(440, pidfd, &all, 1, 21 /* MADV_PAGEOUT */, 0));
}

static bool enters_namespaces(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/ns/uts", (long)out.host);
    return did(setns(open(path, O_RDONLY | O_CLOEXEC), 0));
}

static bool clones(unsigned long flags)
{
    long pid = syscall(__NR_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        _exit(0);
    return pid > 0;
}

#define CASES                                                                                                  \
    ESCAPE("network", SOCKET(AF_INET, SOCK_STREAM))                                                            \
    ESCAPE("network", SOCKET(AF_INET, SOCK_DGRAM))                                                             \
    ESCAPE("network", SOCKET(AF_INET, SOCK_RAW))                                                               \
    ESCAPE("network", SOCKET(AF_INET6, SOCK_STREAM))                                                           \
    ESCAPE("network", SOCKET(AF_INET6, SOCK_DGRAM))                                                            \
    ESCAPE("network", SOCKET(AF_PACKET, SOCK_RAW))                                                             \
    ESCAPE("network", SOCKET(AF_NETLINK, SOCK_RAW))                                                            \
    ESCAPE("network", SOCKET(AF_VSOCK, SOCK_STREAM))                                                           \
    ESCAPE("network", SOCKET(AF_ALG, SOCK_SEQPACKET))                                                          \
    ESCAPE("network", did(syscall(425, 1, (char[256]){0})))                                                    \
    ESCAPE("network", did(syscall(X32 + __NR_socket, AF_INET, SOCK_STREAM, 0)))                                \
    ESCAPE("programs", executes(__NR_execve))                                                                  \
    ESCAPE("programs", executes(__NR_execveat))                                                                \
    ESCAPE("programs", executes(X32 + 520))                                                                    \
    ESCAPE("programs", runs_memory())                                                                          \
    ESCAPE("programs", spawns())                                                                               \
    ESCAPE("programs", system("true") == 0)                                                                    \
    ESCAPE("programs", gets_listener())                                                                        \
    ESCAPE("files", OPEN(O_WRONLY))                                                                            \
    ESCAPE("files", OPEN(O_RDWR))                                                                              \
    ESCAPE("files", OPEN(O_WRONLY | O_APPEND))                                                                 \
    ESCAPE("files", OPEN(O_WRONLY | O_TRUNC))                                                                  \
    ESCAPE("files", OPEN(O_RDONLY | O_TRUNC))                                                                  \
    ESCAPE("files", OPEN(O_ACCMODE | O_TRUNC))                                                                 \
    ESCAPE("files", OPEN(O_RDONLY | O_TRUNC | O_CREAT))                                                        \
    ESCAPE("files", did(syscall(__NR_open, out.old, O_RDONLY | O_TRUNC, 0)))                                   \
    ESCAPE("files", opens_by_openat2())                                                                        \
    ESCAPE("files", reopens(O_WRONLY))                                                                         \
    ESCAPE("files", reopens(O_RDONLY | O_TRUNC))                                                               \
    ESCAPE("files", did(creat(out.old, 0600)))                                                                 \
    ESCAPE("files", did(truncate(out.old, 0)))                                                                 \
    ESCAPE("files", did(ftruncate(out.fd, 0)))                                                                 \
    ESCAPE("files", did(open(out.target, O_WRONLY | O_CREAT, 0600)))                                           \
    ESCAPE("files", did(open(out.target, O_RDONLY | O_CREAT, 0600)))                                           \
    ESCAPE("files", did(mkdir(out.target, 0700)))                                                              \
    ESCAPE("files", did(symlink("x", out.target)))                                                             \
    ESCAPE("files", did(link(out.old, out.target)))                                                            \
    ESCAPE("files", did(rename(out.old, out.target)))                                                          \
    ESCAPE("files", moves_out())                                                                               \
    ESCAPE("files", did(unlink(out.old)))                                                                      \
    ESCAPE("files", did(rmdir(out.empty)))                                                                     \
    ESCAPE("files", did(mkfifo(out.target, 0600)))                                                             \
    ESCAPE("files", binds())                                                                                   \
    ESCAPE("files", writes_proc("oom_score_adj"))                                                              \
    ESCAPE("files", did(mount("none", out.empty, "tmpfs", 0, NULL)))                                           \
    ESCAPE("files", did(chroot(out.empty)))                                                                    \
    ESCAPE("attributes", did(chmod(out.old, 0777)))                                                            \
    ESCAPE("attributes", did(fchmod(out.fd, 0777)))                                                            \
    ESCAPE("attributes", did(fchmodat(AT_FDCWD, out.old, 0777, 0)))                                            \
    ESCAPE("attributes", did(syscall(452, AT_FDCWD, out.old, 0777, 0)))                                        \
    ESCAPE("attributes", chmods_open_file())                                                                   \
    ESCAPE("attributes", did(chown(out.old, getuid(), getgid())))                                              \
    ESCAPE("attributes", did(lchown(out.old, getuid(), getgid())))                                             \
    ESCAPE("attributes", did(fchown(out.fd, getuid(), getgid())))                                              \
    ESCAPE("attributes", did(fchownat(AT_FDCWD, out.old, getuid(), getgid(), 0)))                              \
    ESCAPE("attributes", did(utime(out.old, NULL)))                                                            \
    ESCAPE("attributes", did(utimes(out.old, NULL)))                                                           \
    ESCAPE("attributes", did(utimensat(AT_FDCWD, out.old, NULL, 0)))                                           \
    ESCAPE("attributes", did(futimens(out.fd, NULL)))                                                          \
    ESCAPE("attributes", did(setxattr(out.old, "user.x", "y", 1, 0)))                                          \
    ESCAPE("attributes", did(fsetxattr(out.fd, "user.x", "y", 1, 0)))                                          \
    ESCAPE("attributes", did(removexattr(out.old, "user.before")))                                             \
    ESCAPE("attributes", sets_xattrat())                                                                       \
    ESCAPE("attributes", did(syscall(466, AT_FDCWD, out.old, 0, "user.before")))                               \
    ESCAPE("attributes", sets_file_attributes())                                                               \
    ESCAPE("attributes", sets_flags(FS_IOC_SETFLAGS))                                                          \
    ESCAPE("attributes", sets_flags(FS_IOC32_SETFLAGS))                                                        \
    ESCAPE("attributes", sets_flags(FS_IOC_FSSETXATTR))                                                        \
    ESCAPE("attributes", sets_flags(FS_IOC_SETVERSION))                                                        \
    ESCAPE("processes", writes_proc("mem"))                                                                    \
    ESCAPE("processes", changes_memory())                                                                      \
    ESCAPE("processes", did(ptrace(PTRACE_SEIZE, out.host, NULL, NULL)))                                       \
    ESCAPE("processes", did(ptrace(PTRACE_ATTACH, out.host, NULL, NULL)))                                      \
    ESCAPE("processes", takes_descriptor())                                                                    \
    ESCAPE("processes", sets_limit())                                                                          \
    ESCAPE("processes", reclaims_memory())                                                                     \
    ESCAPE("processes", did(ioctl(0, TIOCSTI, "x")))                                                           \
    ESCAPE("processes", enters_namespaces())                                                                   \
    ESCAPE("processes", did(unshare(CLONE_NEWUSER)))                                                           \
    ESCAPE("processes", clones(CLONE_NEWUSER))                                                                 \
    ESCAPE("processes", did(syscall(__NR_process_vm_readv, out.host, NULL, 0, NULL, 0, 0)))                    \
    ESCAPE("signals", did(kill(out.host, 0)))                                                                  \
    ESCAPE("signals", did(syscall(__NR_tgkill, out.host, out.host, 0)))                                        \
    ESCAPE("signals", did(syscall(__NR_tkill, out.host, 0)))                                                   \
    ESCAPE("signals", sends_by_pidfd())

#define ESCAPE(word, try) {word, #try},
static const struct {
    const char *word, *text;
} escapes[] = {CASES};
#undef ESCAPE
enum { N_ESCAPES = sizeof escapes / sizeof escapes[0] };

static bool escape(size_t wanted)
{
    size_t i = 0;
#define ESCAPE(word, try)                                                                                      \
    if (i++ == wanted)                                                                                         \
        return try;
    CASES
    return false;
}

/* Each in a process of its own: some end it, or lead into another program, which ends with 1. */
static bool escapes_by(size_t i)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(escape(i) ? 1 : 0);
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

/* In a process that is the agent; what is wrong goes to standard output. Its exit code: how many escaped though
 * the words say that none can. */
static int count_escapes(const char *own, bool starts_program, const char *expected)
{
    const struct nd_agent_job job = {0};
    int n_wrong = 0, n_escaped = 0;
    if (chdir(own) != 0)
        return 200;
    nd_agent_confine(&job, starts_program);
    nd_agent_confine_programs();
    const char *said = nd_agent_confined();
    for (size_t i = 0; i < N_ESCAPES; i++) {
        bool has_escaped = escapes_by(i), is_wrong = has_escaped && strstr(said, escapes[i].word) != NULL;
        n_escaped += has_escaped;
        n_wrong += is_wrong;
        if (is_wrong)
            printf("# escaped: %s, though '%s' holds\n", escapes[i].text, escapes[i].word);
    }
    printf("# landlock %ld%s: %d of %d escape; '%s' holds\n", landlock_version,
           starts_program ? ", a runner" : "", n_escaped, (int)N_ESCAPES, said);
    fflush(stdout);
    return strcmp(said, expected) == 0 ? n_wrong : 201;
}

static void try_landlock(long version, bool starts_program, const char *expected)
{
    char *own = in_folder("own");
    mkdir(own, 0700);
    out.old = in_folder("old"), out.empty = in_folder("empty"), out.target = in_folder("target");
    mkdir(out.empty, 0700);
    assert_true(can_write(out.old));
    setxattr(out.old, "user.before", "y", 1, 0);
    out.fd = open(out.old, O_RDONLY | O_CLOEXEC);
    out.host = getpid();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        landlock_version = version;
        _exit(count_escapes(own, starts_program, expected));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(out.fd);
    remove(out.target);
    free(own);
    free(out.old);
    free(out.empty);
    free(out.target);
}

/* With the landlock of this kernel, of versions 1, 2 and 3, and without: what succeeds is what is not said. */
static void what_escapes_is_what_the_words_do_not_say(void **state)
{
    (void)state;
    static const char without[] = "network, programs, attributes, processes",
                      with[] = "network, programs, files, attributes, processes",
                      all[] = "network, programs, files, attributes, processes, signals";
    long version = syscall(444, NULL, 0, 1);
    if (access("/proc/sys/kernel/seccomp/actions_avail", F_OK) != 0 || version < 3 || getuid() != 0)
        skip();
    assert_true(N_ESCAPES >= 60);
    for (int runner = 0; runner < 2; runner++) {
        try_landlock(-1, runner == 1, version >= 6 ? all : with);
        for (long v = 3; v > 0; v--)
            try_landlock(v, runner == 1, with);
        try_landlock(0, runner == 1, without);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(foreign_code_reaches_what_it_needs_and_no_more, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(owner_mode_times_and_attributes_stay, make_folder, remove_folder),
        cmocka_unit_test(other_processes_are_not_reached),
        cmocka_unit_test_setup_teardown(what_escapes_is_what_the_words_do_not_say, make_folder, remove_folder),
        cmocka_unit_test(what_the_kernel_has_is_used),
        cmocka_unit_test(it_can_be_switched_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
