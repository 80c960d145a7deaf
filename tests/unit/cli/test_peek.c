#include "support/main.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli/terminal/output.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_read_is_not_the_end_of_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
