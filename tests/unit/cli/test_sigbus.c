#include "support/main.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/terminal/output.h"
#include "cli/terminal/signals.h"

/* Each call of read is interrupted once, and then gives a byte, where that is wished. */
static bool is_slow;

ssize_t read(int fd, void *bytes, size_t n)
{
    static bool was_interrupted;
    if (is_slow && (was_interrupted = !was_interrupted)) {
        errno = EINTR;
        return -1;
    }
    struct iovec part = {bytes, is_slow && n > 1 ? 1 : n};
    return readv(fd, &part, 1);
}

/* Whether a file is a report is told from its first bytes, however slowly they come. */
static void a_short_read_is_not_the_end_of_a_file(void **state)
{
    (void)state;
    char path[64], start[64] = "";
    int fd = memfd_create("report", MFD_CLOEXEC);
    assert_int_equal(write(fd, "<!DOCTYPE html> and more", 24), 24);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    is_slow = true;
    assert_int_equal(cli_peek(path, start, 15), 15);
    assert_int_equal(cli_peek(path, start, sizeof start), 24);
    is_slow = false;
    assert_memory_equal(start, "<!DOCTYPE html> and more", 24);
    close(fd);
}

/* Runs in a child: reads a mapped page that the file no longer has. */
static void read_truncated_file(void)
{
    int fd = memfd_create("truncated", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 1 << 16) != 0)
        _exit(99);
    const volatile unsigned char *map = mmap(NULL, 1 << 16, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || map[1 << 15] != 0 || ftruncate(fd, 10) != 0)
        _exit(98);
    _exit(map[1 << 15] == 0 ? 97 : 96);
}

/* What the child wrote to standard error is in text; its wait status is returned. */
static int run_child(void (*act)(void), char *text, size_t text_size)
{
    int ends[2], status = -1;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(ends[1], STDERR_FILENO);
        cli_handle_sigbus();
        act();
        _exit(95);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n + 1 < text_size && (got = read(ends[0], text + n, text_size - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void file_truncated_ends_with_a_message(void **state)
{
    (void)state;
    char text[256];
    int status = run_child(read_truncated_file, text, sizeof text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_string_equal(text, "npudiff: a file was truncated while it was being read\n");
}

static void send_to_itself(void)
{
    raise(SIGBUS);
}

static void signal_of_another_cause_stays_a_crash(void **state)
{
    (void)state;
    char text[256];
    int status = run_child(send_to_itself, text, sizeof text);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_read_is_not_the_end_of_a_file),
        cmocka_unit_test(file_truncated_ends_with_a_message),
        cmocka_unit_test(signal_of_another_cause_stays_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
