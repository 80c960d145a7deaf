/* Frames that do not come whole, or not in time. */
#include "support/main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/processes/process.h"
#include "devices/agent/runner/connection.h"

static const char whole[] = "NDR1\2\0\0\0\3\0\0\0\0\0\0\0{}abc";
enum { N_BYTES = sizeof whole - 1 };

/* The first n bytes, of a writer that is gone or is still there. */
static enum nd_frame_end read_first(size_t n, bool is_gone, uint64_t end_ns, struct nd_frame *frame)
{
    char problem[ND_FRAME_PROBLEM_BYTES];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], whole, n), n);
    if (is_gone)
        close(ends[1]);
    enum nd_frame_end end = nd_frame_read(ends[0], end_ns, N_BYTES, frame, problem);
    close(ends[0]);
    if (!is_gone)
        close(ends[1]);
    return end;
}

static void every_part_has_to_come_in_time(void **state)
{
    (void)state;
    struct nd_frame frame = {0};
    for (size_t n = 0; n <= N_BYTES; n++) {
        uint64_t begun = nd_clock_ns();
        enum nd_frame_end expected = n < N_BYTES ? ND_FRAME_LATE : ND_FRAME_WHOLE;
        assert_int_equal(read_first(n, false, begun + 20 * 1000 * 1000, &frame), expected);
        assert_true(n == N_BYTES || nd_clock_ns() >= begun + 20 * 1000 * 1000);
        assert_int_equal(read_first(n, true, ND_FRAME_NO_END, &frame),
                         n < N_BYTES ? ND_FRAME_CLOSED : ND_FRAME_WHOLE);
    }
    assert_memory_equal(frame.data, "abc", 3);
    nd_frame_deinit(&frame);
}

/* What is there already is read, however late it is. */
static void nothing_is_waited_for_after_the_end(void **state)
{
    (void)state;
    struct nd_frame frame = {0};
    assert_int_equal(read_first(N_BYTES, false, 0, &frame), ND_FRAME_WHOLE);
    assert_int_equal(read_first(N_BYTES - 1, false, 0, &frame), ND_FRAME_LATE);
    nd_frame_deinit(&frame);
}

/* A runner that does not read what it is asked, or says something that nobody asked for. */
static void a_runner_that_does_not_read_delays_nobody_for_ever(void **state)
{
    (void)state;
    enum { N = 4 << 20 };
    static const char frame[] = "NDR1\x14\0\0\0\0\0\0\0\0\0\0\0{\"message\":\"result\"}";
    int to[2], from[2];
    struct nd_error err = {0};
    void *data = calloc(N, 1);
    json_auto_t *message = json_pack("{s:s}", "message", "run");
    assert_true(pipe(to) == 0 && pipe(from) == 0 && data != NULL && fcntl(to[1], F_SETFL, O_NONBLOCK) == 0);
    const struct nd_frame_part part = {data, N};
    const struct nd_runner_question question = {.message = message,
                                                .parts = &part,
                                                .n_parts = 1,
                                                .answer = "result",
                                                .timeout_ms = 100,
                                                .doing = "run"};
    char name[] = "deaf";
    struct nd_runner_connection connection = {.name = name, .to = to[1], .from = from[0]};
    assert_int_equal(nd_runner_ask(&connection, &question, &err), ND_ERR_DEVICE);
    assert_non_null(strstr(err.message, "did not answer in time"));
    assert_int_equal(write(from[1], frame, 16 + 20), 16 + 20);
    assert_int_equal(nd_runner_ask(&connection, &question, &err), ND_ERR_DEVICE);
    assert_string_equal(err.message,
                        "runner 'deaf' sent a message 'result' that nobody asked for, before it was to run");
    nd_frame_deinit(&connection.frame);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
    free(data);
}

/* What this process does with SIGPIPE stays as it is: it would end this test. */
static void a_reader_that_is_gone_is_an_error_of_the_write(void **state)
{
    (void)state;
    int ends[2];
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct sigaction before;
    sigset_t waiting;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(nd_pipe_write(ends[1], &part, 1), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(sigaction(SIGPIPE, NULL, &before), 0);
    assert_true(before.sa_handler == SIG_DFL);
    sigpending(&waiting);
    assert_int_equal(sigismember(&waiting, SIGPIPE), 0);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_has_to_come_in_time),
        cmocka_unit_test(nothing_is_waited_for_after_the_end),
        cmocka_unit_test(a_runner_that_does_not_read_delays_nobody_for_ever),
        cmocka_unit_test(a_reader_that_is_gone_is_an_error_of_the_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
