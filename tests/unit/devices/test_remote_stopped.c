/* Runs on another machine that die, are stopped or reach a limit. */
#include "support/main.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/phones/remote.h"
#include "support/fake_run.h"
#include "support/process_end.h"
#include "support/remote_bench.h"
#include "support/scratch.h"

static void deaths_are_described_as_on_this_machine(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int id;
        const char *message;
        const char *stage;
    } deaths[] = {
        {"echo x > spool.nds; exit 1", ND_E_DEVICE_CRASH,
         "the agent of device 'dev' ended early with exit code 1", NULL},
        {"echo x > spool.nds; kill -SEGV $$", ND_E_DEVICE_CRASH,
         "the agent of device 'dev' was killed by signal 11 (Segmentation fault)", NULL},
        {"echo 'cannot write: No space left on device'; exit 3", ND_E_DEVICE_PUSH,
         "the agent of device 'dev' cannot store its results there: is there no space? cannot write: No space "
         "left on device",
         NULL},
        {"echo one; echo 'libz.so.1: cannot open shared object file' >&2; exit 127", ND_E_DEVICE_START,
         "the agent cannot be started on device 'dev' (exit code 127): libz.so.1: cannot open shared object "
         "file",
         "start"},
    };
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++) {
        struct bench bench;
        bench_open(&bench, deaths[i].script);
        expect_ok(bench_run(&bench), &bench.err);
        assert_int_equal(bench.exit.error.id, deaths[i].id);
        assert_string_equal(bench.exit.error.message, deaths[i].message);
        assert_false(bench.exit.can_resume);
        assert_int_equal(bench.exit.stage != NULL, deaths[i].stage != NULL);
        assert_int_equal(count_in(&bench, "runs"), 0);
        bench_close(&bench);
    }
}

static void a_run_is_stopped_at_its_limits(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "sleep 60 & echo $! > \"$here/child\"; wait");
    bench.options.time_limit_s = 1;
    uint64_t begun = nd_clock_ns();
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, ND_E_DEVICE_TIME);
    assert_string_equal(bench.exit.error.message, "device 'dev' was stopped after its time limit of 1 s");
    assert_true(nd_clock_ns() - begun < 20u * 1000000000u);
    /* And what it had started with it. */
    char *child = in_folder("child");
    assert_true(does_end(child));
    free(child);
    bench_close(&bench);
}

static void a_cancelled_run_is_stopped_and_can_be_gone_on_with(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "exec sleep 60");
    uint64_t until = nd_clock_ns() + 1500000000u;
    bench.options.is_cancelled = cancel_late;
    bench.options.cancel_context = &until;
    assert_int_equal(bench_run(&bench), ND_ERR_IO);
    assert_int_equal(bench.err.id, ND_E_CANCELLED);
    assert_int_equal(count_in(&bench, "runs"), 1);
    bench_close(&bench);
}

static void endless_output_of_an_agent_is_cut(void **state)
{
    (void)state;
    struct bench bench;
    struct stat info;
    bench_open(&bench, "yes 0123456789abcdef | head -c 30000000; exit 0");
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    char *out = nd_path_join(bench.here, "stdout.txt");
    assert_int_equal(stat(out, &info), 0);
    assert_int_equal(info.st_size, 8 << 20);
    free(out);
    bench_close(&bench);
}

/* Puts programs of the device's before its own. */
static void put_in_path(const char *name, const char *script)
{
    char text[2048];
    snprintf(text, sizeof text, "bin/%s", name);
    char *path = write_file(text, script, 0700), *bin = in_folder("bin");
    snprintf(text, sizeof text, "%s:%s", bin, getenv("PATH"));
    setenv("PATH", text, 1);
    free(path);
    free(bin);
}

static char *keep_path(void)
{
    char *copy = nd_strdup(getenv("PATH"));
    assert_non_null(copy);
    return copy;
}

static void give_back_path(char *path)
{
    setenv("PATH", path, 1);
    free(path);
}

static void a_machine_that_hands_nothing_over_is_no_endless_wait(void **state)
{
    (void)state;
    struct bench bench;
    char *path = keep_path();
    put_in_path("tail", "#!/bin/sh\ncase $1 in -c) exit 1;; esac\nexec /usr/bin/tail \"$@\"\n");
    bench_open(&bench, "echo some bytes > spool.nds");
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, ND_E_DEVICE_COMMAND);
    assert_non_null(strstr(bench.exit.error.message, "hands over no more than 0; 'tail -c' and 'head -c'"));
    bench_close(&bench);
    give_back_path(path);
}

/* As one that waits within a driver: here what is killed is always another process by then. */
static void an_agent_that_cannot_be_killed_is_left(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(
        &bench,
        "setsid sh -c 'cd ..; b=$(cat /proc/sys/kernel/random/boot_id); for i in $(seq 60); do rm -f "
        "agent.pid; "
        "sleep 1 & echo \"$! $b\" > p && mv p pid || exit; sleep 0.3; done' 2>/dev/null & exec sleep 15");
    bench.options.time_limit_s = 1;
    uint64_t begun = nd_clock_ns();
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, ND_E_DEVICE_TIME);
    assert_true(nd_clock_ns() - begun < 25u * UINT64_C(1000000000));
    bench_close(&bench);
}

static bool is_looking(void *context)
{
    return access(context, F_OK) == 0;
}

/* The cancellation is seen while the machine is asked how the run is. */
static void a_cancelled_run_is_stopped_whenever_it_is_noticed(void **state)
{
    (void)state;
    struct bench bench;
    char *path = keep_path(), *looking = in_folder("looking");
    char script[2048];
    snprintf(script, sizeof script,
             "#!/bin/sh\n[ -f '%s/agent.pid' ] && touch '%s' && sleep 0.5\nexec /usr/bin/wc\n", folder,
             looking);
    put_in_path("wc", script);
    bench_open(&bench, "echo $$ > \"$here/agent.pid\"; echo x > spool.nds; exec sleep 60");
    bench.options.is_cancelled = is_looking;
    bench.options.cancel_context = looking;
    assert_int_equal(bench_run(&bench), ND_ERR_IO);
    assert_int_equal(bench.err.id, ND_E_CANCELLED);
    char *agent_pid = in_folder("agent.pid");
    assert_true(does_end(agent_pid));
    free(agent_pid);
    bench_close(&bench);
    free(looking);
    give_back_path(path);
}

static void the_time_limit_holds_while_files_are_sent(void **state)
{
    (void)state;
    struct bench bench;
    char *path = keep_path();
    bench_open(&bench, "exit 0");
    put_in_path("sha256sum", "#!/bin/sh\nsleep 20\nexec /usr/bin/sha256sum\n");
    bench.options.time_limit_s = 1;
    uint64_t begun = nd_clock_ns();
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, ND_E_DEVICE_TIME);
    assert_string_equal(bench.exit.stage, "push");
    assert_non_null(strstr(bench.exit.error.message, "time limit of 1 s, in which nothing had run yet"));
    assert_true(nd_clock_ns() - begun < 10u * UINT64_C(1000000000));
    bench_close(&bench);
    give_back_path(path);
}

/* Else an agent that needs a moment to come up would have none after a long push. */
static void the_time_of_sending_is_not_the_agents(void **state)
{
    (void)state;
    struct bench bench;
    char *path = keep_path();
    bench_open(&bench, "exit 0");
    put_in_path("sha256sum", "#!/bin/sh\nsleep 1\nexec /usr/bin/sha256sum\n");
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    assert_true(bench.exit.elapsed_s < 4); /* five files were sent */
    bench_close(&bench);
    give_back_path(path);
}

/* What would be killed is printed instead. */
static void stopping_never_kills_everybody(void **state)
{
    (void)state;
    static const struct {
        const char *pid, *killed;
    } cases[] = {{"1", ""}, {"0", ""}, {"", ""}, {"-1", ""}, {"12x", ""}, {"4321", "-9 -4321 4321\n"}};
    char *run = in_folder("run");
    char *stop = nd_script_stop(run);
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "kill() { echo \"$@\"; }; %s", stop);
    const char *const argv[] = {"sh", "-c", text.text, NULL};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char command[200];
        struct nd_process_end end = {0};
        struct nd_error err = {0};
        free(write_file("run/pid", cases[i].pid, 0600));
        snprintf(command, sizeof command,
                 "printf ' %%s\\n' \"$(cat /proc/sys/kernel/random/boot_id)\" >> '%s/pid'", run);
        assert_int_equal(system(command), 0);
        expect_ok(nd_process_run(&(struct nd_process){.argv = argv}, &end, &err), &err);
        assert_string_equal(end.out, cases[i].killed);
        nd_process_end_deinit(&end);
    }
    nd_strbuf_deinit(&text);
    free(stop);
    free(run);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(deaths_are_described_as_on_this_machine),
        IN_FOLDER(a_run_is_stopped_at_its_limits),
        IN_FOLDER(a_cancelled_run_is_stopped_and_can_be_gone_on_with),
        IN_FOLDER(endless_output_of_an_agent_is_cut),
        IN_FOLDER(a_machine_that_hands_nothing_over_is_no_endless_wait),
        IN_FOLDER(an_agent_that_cannot_be_killed_is_left),
        IN_FOLDER(a_cancelled_run_is_stopped_whenever_it_is_noticed),
        IN_FOLDER(the_time_limit_holds_while_files_are_sent),
        IN_FOLDER(the_time_of_sending_is_not_the_agents),
        IN_FOLDER(stopping_never_kills_everybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
