/* Frames that do not come whole, or not in time. */
#include "support/main.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_has_to_come_in_time),
        cmocka_unit_test(nothing_is_waited_for_after_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
