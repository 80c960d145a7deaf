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
    return rc < 0 && (errno == EACCES || errno == EPERM);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(foreign_code_reaches_what_it_needs_and_no_more, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(owner_mode_times_and_attributes_stay, make_folder, remove_folder),
        cmocka_unit_test(other_processes_are_not_reached),
        cmocka_unit_test(what_the_kernel_has_is_used),
        cmocka_unit_test(it_can_be_switched_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
