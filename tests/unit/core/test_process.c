#include "support/main.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/processes/process.h"
#include "support/interrupted_wait.h"
#include "support/process_end.h"
#include "support/scratch.h"

/* Runs a text of sh. */
static struct nd_process_end run(const char *text, struct nd_process process)
{
    const char *const argv[] = {"sh", "-c", text, NULL};
    struct nd_process_end end = {0};
    struct nd_error err = {0};
    process.argv = argv;
    expect_ok(nd_process_run(&process, &end, &err), &err);
    return end;
}

static double now_s(void)
{
    return (double)nd_clock_ns() * 1e-9;
}

static void both_outputs_and_the_exit_code_come_back(void **state)
{
    (void)state;
    struct nd_process_end end = run("printf 'a\\000b'; echo oops >&2; exit 7", (struct nd_process){0});
    assert_int_equal(end.exit_code, 7);
    assert_int_equal(end.signal, 0);
    assert_int_equal(end.out_bytes, 3);
    assert_memory_equal(end.out, "a\0b", 4);
    assert_string_equal(end.errors, "oops\n");
    assert_false(end.timed_out || end.is_truncated || end.is_cancelled);
    nd_process_end_deinit(&end);
    end = run(":", (struct nd_process){0});
    assert_int_equal(end.exit_code, 0);
    assert_string_equal(end.out, "");
    assert_string_equal(end.errors, "");
    nd_process_end_deinit(&end);
}

/* A signal to this process while it waits is not an ending that nobody knows. */
static void an_interrupted_wait_is_no_unknown_end(void **state)
{
    (void)state;
    is_interrupting = true;
    struct nd_process_end end = run("exit 7", (struct nd_process){0});
    is_interrupting = false;
    assert_int_equal(end.exit_code, 7);
    nd_process_end_deinit(&end);
}

static void a_signal_is_no_exit_code(void **state)
{
    (void)state;
    struct nd_process_end end = run("kill -SEGV $$", (struct nd_process){0});
    assert_int_equal(end.exit_code, -1);
    assert_int_equal(end.signal, SIGSEGV);
    nd_process_end_deinit(&end);
}

/* Who started this process may have left SIGCHLD ignored: then nobody can be waited for. */
static void without_sigchld_it_ends_and_says_so(void **state)
{
    (void)state;
    const char *const argv[] = {"sh", "-c", "exit 3", NULL};
    const struct nd_process process = {.argv = argv};
    struct nd_process_end end = {0};
    struct nd_error err = {0};
    alarm(60); /* it hung for ever */
    signal(SIGCHLD, SIG_IGN);
    enum nd_status status = nd_process_run(&process, &end, &err);
    struct nd_process_end late = run("sleep 60", (struct nd_process){.time_limit_s = 0.2});
    signal(SIGCHLD, SIG_DFL);
    alarm(0);
    assert_int_equal(status, ND_ERR_IO);
    assert_int_equal(err.id, ND_E_PROCESS_END);
    assert_non_null(strstr(err.message, "'sh'"));
    assert_true(late.timed_out);
    assert_int_equal(late.exit_code, -1);
    nd_process_end_deinit(&late);
}

static void input_is_nothing_or_a_file(void **state)
{
    (void)state;
    char *path = in_folder("with space \303\244'");
    assert_int_equal(nd_file_put(path, "one\ntwo", 7, NULL), ND_OK);
    struct nd_process_end end = run("cat", (struct nd_process){0});
    assert_string_equal(end.out, "");
    nd_process_end_deinit(&end);
    end = run("cat", (struct nd_process){.stdin_path = path});
    assert_string_equal(end.out, "one\ntwo");
    nd_process_end_deinit(&end);
    free(path);
}

/* A file that this process was given by whoever started it, or that a library has left open. */
static void other_descriptors_are_not_handed_on(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_process_end end = {0};
    const char *const argv[] = {"sh", "-c", "ls /proc/self/fd | wc -l; echo x >&9", NULL};
    int fd = dup2(STDIN_FILENO, 9);
    assert_int_equal(fd, 9);
    expect_ok(nd_process_run(&(struct nd_process){.argv = argv}, &end, &err), &err);
    close(fd);
    assert_int_equal(atoi(end.out), 4); /* the three, and the folder that ls reads */
    assert_int_not_equal(end.exit_code, 0);
    nd_process_end_deinit(&end);
}

static void what_cannot_be_started_is_an_error(void **state)
{
    (void)state;
    const char *const argv[] = {"npudiff-no-such-program", NULL};
    struct nd_process_end end = {0};
    struct nd_error err = {0};
    assert_int_equal(nd_process_run(&(struct nd_process){.argv = argv}, &end, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_PROCESS);
    assert_string_equal(err.message, "cannot start 'npudiff-no-such-program': No such file or directory");
    const char *const sh[] = {"true", NULL};
    assert_int_equal(
        nd_process_run(&(struct nd_process){.argv = sh, .stdin_path = "/no/such/file"}, &end, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_OPEN);
}

static void endless_output_is_cut_and_told(void **state)
{
    (void)state;
    double begun = now_s();
    struct nd_process_end end = run("yes", (struct nd_process){.stdout_limit_bytes = 100001});
    assert_true(end.is_truncated);
    assert_int_equal(end.out_bytes, 100001);
    assert_memory_equal(end.out, "y\ny\n", 4);
    assert_true(now_s() - begun < 10);
    nd_process_end_deinit(&end);
    /* Exactly the limit is not too much. */
    end = run("printf 12345", (struct nd_process){.stdout_limit_bytes = 5});
    assert_false(end.is_truncated);
    assert_string_equal(end.out, "12345");
    nd_process_end_deinit(&end);
}

static void of_many_messages_the_end_is_kept(void **state)
{
    (void)state;
    struct nd_process_end end = run("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done >&2; exit 3",
                                    (struct nd_process){.stderr_limit_bytes = 12});
    assert_int_equal(end.exit_code, 3);
    assert_string_equal(end.errors, "19998\n19999\n");
    nd_process_end_deinit(&end);
}

static void a_time_limit_ends_the_whole_group(void **state)
{
    (void)state;
    char *path = in_folder("child");
    char text[600];
    double begun = now_s();
    snprintf(text, sizeof text, "sleep 60 & echo $! > '%s'; echo begun; wait", path);
    struct nd_process_end end = run(text, (struct nd_process){.time_limit_s = 2});
    assert_true(end.timed_out);
    assert_int_equal(end.signal, SIGKILL);
    assert_string_equal(end.out, "begun\n");
    assert_true(now_s() - begun < 30);
    nd_process_end_deinit(&end);
    /* The child of the child is gone, too (or waits for somebody to take note of it). */
    assert_true(does_end(path));
    free(path);
}

static bool is_cancelled(void *context)
{
    return ++*(int *)context > 3;
}

static void cancelling_ends_it(void **state)
{
    (void)state;
    int n = 0;
    double begun = now_s();
    struct nd_process_end end =
        run("sleep 60", (struct nd_process){.is_cancelled = is_cancelled, .cancel_context = &n});
    assert_true(end.is_cancelled);
    assert_false(end.timed_out);
    assert_true(now_s() - begun < 10);
    nd_process_end_deinit(&end);
}

static void a_server_left_behind_holds_nothing_up(void **state)
{
    (void)state;
    double begun = now_s();
    struct nd_process_end end = run("echo here; sleep 30 & exit 0", (struct nd_process){0});
    assert_int_equal(end.exit_code, 0);
    assert_string_equal(end.out, "here\n");
    assert_true(now_s() - begun < 10);
    nd_process_end_deinit(&end);
}

/* One that it leaves behind and that prints without end. */
static void a_program_left_running_does_not_hold_it_up(void **state)
{
    (void)state;
    double begun = now_s();
    char pid[32];
    struct nd_process_end end = run("setsid yes >&2 & echo $!", (struct nd_process){0});
    assert_int_equal(end.exit_code, 0);
    snprintf(pid, sizeof pid, "%s", end.out);
    nd_process_end_deinit(&end);
    kill((pid_t)strtol(pid, NULL, 10), SIGKILL);
    assert_true(now_s() - begun < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_outputs_and_the_exit_code_come_back),
        cmocka_unit_test(an_interrupted_wait_is_no_unknown_end),
        cmocka_unit_test(a_signal_is_no_exit_code),
        cmocka_unit_test(without_sigchld_it_ends_and_says_so),
        cmocka_unit_test_setup_teardown(input_is_nothing_or_a_file, make_folder, remove_folder),
        cmocka_unit_test(other_descriptors_are_not_handed_on),
        cmocka_unit_test(what_cannot_be_started_is_an_error),
        cmocka_unit_test(endless_output_is_cut_and_told),
        cmocka_unit_test(of_many_messages_the_end_is_kept),
        cmocka_unit_test_setup_teardown(a_time_limit_ends_the_whole_group, make_folder, remove_folder),
        cmocka_unit_test(cancelling_ends_it),
        cmocka_unit_test(a_server_left_behind_holds_nothing_up),
        cmocka_unit_test(a_program_left_running_does_not_hold_it_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
