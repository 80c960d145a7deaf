#include "support/main.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "device/remote/remote.h"
#include "device/remote/remote_script.h"
#include "support/fake_run.h"
#include "support/scratch.h"

/* "Another machine" is this one, by the transport sh. Agents are small scripts, which do what real ones do when
 * they go wrong; those that work hand over a spool that was made before. */
struct bench {
    struct nd_capture_options options;
    struct nd_device device;
    struct nd_remote remote;
    struct nd_job_pass pass;
    struct nd_job job;
    char *root, *agent, *model, *here;
    struct nd_agent_exit exit;
    struct nd_error err;
};

static char *write_file(const char *name, const char *text, mode_t mode)
{
    char *path = in_folder(name);
    char *dir = nd_path_dir(path);
    assert_int_equal(nd_dir_make(dir, NULL), ND_OK);
    assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    assert_int_equal(chmod(path, mode), 0);
    free(dir);
    return path;
}

static void bench_open(struct bench *bench, const char *script)
{
    char text[4096];
    *bench = (struct bench){0};
    snprintf(text, sizeof text, "#!/bin/sh\nhere='%s'\n%s\n", folder, script);
    bench->root = in_folder("device's folder");
    setenv("NPUDIFF_DEVICE_FOLDER", bench->root, 1);
    unsetenv("NPUDIFF_AGENTS");
    bench->agent = write_file("agent", text, 0700);
    bench->model = write_file("model.onnx", "a model", 0600);
    bench->here = in_folder("here");
    bench->device.label = (char *)(uintptr_t) "dev";
    bench->device.runtime.ort_library = write_file("lib/libort.so", "a library", 0600);
    bench->pass.model = bench->model;
    bench->job = (struct nd_job){.ort_library = bench->device.runtime.ort_library,
                                 .n_repeats = 1,
                                 .passes = &bench->pass,
                                 .n_passes = 1};
    nd_capture_options_init(&bench->options);
    bench->options.agent = bench->agent;
    bench->options.link_limit_s = 1;
    expect_ok(nd_remote_open(&bench->remote, &bench->device, &bench->options, &bench->err), &bench->err);
}

static enum nd_status bench_run(struct bench *bench)
{
    const struct nd_remote_run run = {.job = &bench->job,
                                      .device = &bench->device,
                                      .folder = bench->here,
                                      .options = &bench->options,
                                      .samples_total = 6};
    bench->exit = (struct nd_agent_exit){0};
    nd_dir_remove(bench->here);
    return nd_remote_run(&bench->remote, &run, &bench->exit, &bench->err);
}

static void bench_close(struct bench *bench)
{
    nd_remote_close(&bench->remote);
    free(bench->root);
    free(bench->agent);
    free(bench->model);
    free(bench->here);
    free(bench->device.runtime.ort_library);
}

/* How many there are in a folder of the device, without ".complete". */
static int count_in(const struct bench *bench, const char *name)
{
    char command[1024], line[32];
    snprintf(command, sizeof command, "ls \"%s/%s\" 2>/dev/null | wc -l", bench->root, name);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    pclose(pipe);
    return atoi(line);
}

static void check_same(const char *a, const char *b)
{
    void *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    assert_int_equal(nd_file_read(a, (size_t)1 << 30, &x, &n, NULL), ND_OK);
    assert_int_equal(nd_file_read(b, (size_t)1 << 30, &y, &m, NULL), ND_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static char *make_spool(void)
{
    char *path = in_folder("made.nds");
    struct nd_error err = {0};
    const struct fake_options options = {.n_repeats = 1, .level = 1, .n_passes = 1};
    expect_ok(fake_spool(path, &options, &err), &err);
    return path;
}

/* ---- runs ---- */

static void a_run_hands_over_spool_and_output(void **state)
{
    (void)state;
    struct bench bench;
    char *made = make_spool();
    bench_open(&bench,
               "echo \"$PWD|$LD_LIBRARY_PATH|$*\"; head -c 1000 \"$here/made.nds\" > spool.nds; sleep 0.4; "
               "tail -c +1001 \"$here/made.nds\" >> spool.nds; echo done >&2");
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    char *spool = nd_path_join(bench.here, "spool.nds"), *out = nd_path_join(bench.here, "stdout.txt");
    check_same(made, spool);
    void *text = NULL;
    size_t n = 0;
    char expected[2048];
    assert_int_equal(nd_file_read(out, 10000, &text, &n, NULL), ND_OK);
    char *runs = nd_path_join(bench.root, "runs/");
    assert_memory_equal(text, runs, strlen(runs));
    snprintf(expected, sizeof expected, "|%s|job.nds spool.nds\ndone\n", bench.remote.runtime.folder);
    assert_non_null(strstr(text, expected));
    /* Nothing of the run stays there; agent, libraries and model do. */
    assert_int_equal(count_in(&bench, "runs"), 0);
    assert_int_equal(count_in(&bench, "store"), 3);
    free(runs);
    free(text);
    free(spool);
    free(out);
    bench_close(&bench);
    free(made);
}

static void the_second_run_sends_the_job_alone(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "exit 0");
    expect_ok(bench_run(&bench), &bench.err);
    uint64_t first = bench.remote.transport->traffic.bytes_sent;
    bench_close(&bench);
    bench_open(&bench, "exit 0");
    expect_ok(bench_run(&bench), &bench.err);
    uint64_t second = bench.remote.transport->traffic.bytes_sent;
    struct stat job, script;
    char *job_path = nd_path_join(bench.here, "job.nds"), *script_path = nd_path_join(bench.here, "run.sh");
    assert_int_equal(stat(job_path, &job), 0);
    assert_int_equal(stat(script_path, &script), 0);
    assert_int_equal(second, (uint64_t)job.st_size + (uint64_t)script.st_size);
    assert_true(first > second);
    /* A model that became another is sent. */
    assert_int_equal(nd_file_put(bench.model, "a model!", 8, NULL), ND_OK);
    expect_ok(bench_run(&bench), &bench.err);
    assert_true(bench.remote.transport->traffic.bytes_sent - second > second);
    free(job_path);
    free(script_path);
    bench_close(&bench);
}

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
    assert_int_equal(
        system("sleep 0.2; s=$(cat /proc/$(cat \"$(dirname \"$NPUDIFF_DEVICE_FOLDER\")/child\")/stat "
               "2>/dev/null); case \"$s\" in ''|*') Z '*) exit 0;; esac; exit 1"),
        0);
    bench_close(&bench);
}

static bool cancel_late(void *context)
{
    uint64_t *until = context;
    return nd_clock_ns() > *until;
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

/* The session of the agent is killed as a whole, as by a restart; the next run gets what is missing. */
static void a_run_that_was_killed_is_resumed(void **state)
{
    (void)state;
    struct bench bench;
    char *made = make_spool();
    static const char script[] =
        "echo \"$*\" >> \"$here/calls\"\n"
        "if [ \"$1\" = --resume ]; then\n"
        /* Cuts the spool back first, as agents do. */
        "  sleep 0.5; head -c 500 spool.nds > cut && cat cut > spool.nds; sleep 0.5\n"
        "  tail -c +501 \"$here/made.nds\" >> spool.nds; exit 0\n"
        "fi\n"
        "{ head -c 500 \"$here/made.nds\"; echo rubbish that no reader has seen acknowledged; } > spool.nds\n"
        "sleep 0.6; kill -9 -$(cut -d' ' -f1 pid); sleep 60";
    bench_open(&bench, script);
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, ND_E_DEVICE_CRASH);
    assert_true(bench.exit.can_resume);
    assert_non_null(strstr(bench.exit.error.message, "the agent of device 'dev' is gone: it was killed; "));
    assert_non_null(strstr(bench.exit.error.message, "'--resume'"));
    assert_int_equal(count_in(&bench, "runs"), 1);
    bench_close(&bench);

    bench_open(&bench, script);
    bench.options.resume = true;
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    char *spool = nd_path_join(bench.here, "spool.nds"), *calls = in_folder("calls");
    check_same(made, spool);
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(calls, 1000, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "job.nds spool.nds\n--resume job.nds spool.nds\n");
    assert_int_equal(count_in(&bench, "runs"), 0);
    free(text);
    free(calls);
    free(spool);
    bench_close(&bench);
    free(made);
}

static void a_run_that_went_on_alone_is_collected(void **state)
{
    (void)state;
    struct bench bench;
    char *made = make_spool();
    static const char script[] = "echo call >> \"$here/calls\"; cat \"$here/made.nds\" > spool.nds; sleep 2";
    bench_open(&bench, script);
    uint64_t until = nd_clock_ns() + 100000000000u;
    bench.options.is_cancelled = cancel_late;
    bench.options.cancel_context = &until;
    /* The host dies in the middle: nobody stops the agent. */
    pid_t child = fork();
    if (child == 0) {
        bench_run(&bench);
        _exit(0);
    }
    sleep(1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    bench.options.resume = true;
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    char *spool = nd_path_join(bench.here, "spool.nds"), *calls = in_folder("calls");
    check_same(made, spool);
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(calls, 1000, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "call\n");
    free(text);
    free(calls);
    free(spool);
    bench_close(&bench);
    free(made);
}

static void without_resume_an_old_run_is_stopped_and_removed(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench,
               "echo $$ >> \"$here/pids\"; n=$(wc -l < \"$here/pids\"); [ $n -gt 1 ] && exit 0; exec sleep 60");
    pid_t child = fork();
    if (child == 0) {
        bench_run(&bench);
        _exit(0);
    }
    sleep(1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    assert_int_equal(
        system(
            "sleep 0.2; p=$(head -n 1 \"$(dirname \"$NPUDIFF_DEVICE_FOLDER\")/pids\"); s=$(cat /proc/$p/stat "
            "2>/dev/null); case \"$s\" in ''|*') Z '*) exit 0;; esac; exit 1"),
        0);
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

static void cleaning_leaves_nothing(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "exit 0");
    bench.options.clean_device = true;
    expect_ok(bench_run(&bench), &bench.err);
    char *root = nd_strdup(bench.root);
    bench_close(&bench);
    assert_int_not_equal(access(root, F_OK), 0);
    free(root);
}

/* ---- bundles ---- */

static void a_push_that_was_interrupted_goes_on_by_the_file(void **state)
{
    (void)state;
    struct bench bench;
    uint64_t free_bytes = 1 << 20;
    struct nd_bundle bundle = {0};
    static const char *const names[] = {"a", "sub folder/it's b", "\346\224\266"};
    bench_open(&bench, "exit 0");
    for (size_t i = 0; i < 3; i++) {
        char *path = write_file(names[i], names[i], 0600);
        expect_ok(nd_bundle_add(&bundle, names[i], path, false, &bench.err), &bench.err);
        free(path);
    }
    struct nd_transport *sh = bench.remote.transport;
    expect_ok(nd_bundle_place(&bundle, sh, bench.root, &free_bytes, &bench.err), &bench.err);
    uint64_t whole = sh->traffic.bytes_sent;
    assert_false(bundle.was_there);
    assert_int_equal(free_bytes, (1 << 20) - whole);
    for (size_t i = 0; i < 3; i++) {
        char *there = nd_path_join(bundle.folder, names[i]), *found = NULL;
        check_same(there, bundle.files[i].path);
        expect_ok(nd_bundle_find(&bundle, bundle.files[i].path, &found, &bench.err), &bench.err);
        assert_string_equal(found, there);
        assert_string_equal(nd_bundle_sha256(&bundle, there), bundle.files[i].sha256);
        free(there);
        free(found);
    }
    expect_ok(nd_bundle_place(&bundle, sh, bench.root, &free_bytes, &bench.err), &bench.err);
    assert_true(bundle.was_there);
    assert_int_equal(sh->traffic.bytes_sent, whole);
    /* One file is damaged, another lost, and the mark is not there yet: these two are sent. */
    char *mark = nd_path_join(bundle.folder, ".complete"), *first = nd_path_join(bundle.folder, names[0]),
         *second = nd_path_join(bundle.folder, names[1]);
    unlink(mark);
    unlink(second);
    assert_int_equal(nd_file_put(first, "b", 1, NULL), ND_OK);
    expect_ok(nd_bundle_place(&bundle, sh, bench.root, &free_bytes, &bench.err), &bench.err);
    assert_int_equal(sh->traffic.bytes_sent, whole + strlen(names[0]) + strlen(names[1]));
    check_same(first, bundle.files[0].path);
    check_same(second, bundle.files[1].path);
    /* Of a complete one a file that is cut. */
    assert_int_equal(nd_file_put(second, "", 0, NULL), ND_OK);
    expect_ok(nd_bundle_place(&bundle, sh, bench.root, &free_bytes, &bench.err), &bench.err);
    check_same(second, bundle.files[1].path);
    free(mark);
    free(first);
    free(second);
    nd_bundle_deinit(&bundle);
    bench_close(&bench);
}

static void a_device_without_space_says_how_much_is_needed(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "exit 0");
    bench.remote.free_bytes = 3;
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, ND_E_DEVICE_PUSH);
    assert_string_equal(bench.exit.stage, "push");
    assert_non_null(strstr(bench.exit.error.message, "no space on the device"));
    assert_non_null(strstr(bench.exit.error.message, "needs 1 MiB, has 0 MiB"));
    bench_close(&bench);
}

static void a_missing_agent_says_how_it_is_built(void **state)
{
    (void)state;
    char *path = NULL;
    struct nd_error err = {0};
    unsetenv("NPUDIFF_AGENTS");
    assert_int_equal(nd_agent_find_abi(NULL, "riscv64-linux", &path, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_DEVICE_AGENT);
    assert_non_null(strstr(err.message, "tools/build_agent riscv64-linux"));
    char *agent = write_file("agents/riscv64-linux/npudiff-agent", "x", 0600), *agents = in_folder("agents");
    setenv("NPUDIFF_AGENTS", agents, 1);
    expect_ok(nd_agent_find_abi(NULL, "riscv64-linux", &path, &err), &err);
    char *real = realpath(agent, NULL);
    assert_string_equal(path, real);
    unsetenv("NPUDIFF_AGENTS");
    free(path);
    free(real);
    free(agent);
    free(agents);
}

/* ---- answers ---- */

static void answers_that_are_cut_or_wrong_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "running",
                                      "running 1 2 3 4 5",
                                      "running 1 2 3 4\n",
                                      "what 1 2 3 4 5\n",
                                      "\n",
                                      "running 1 2 x 4 5\n"};
    struct nd_run_look look;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(nd_run_look_parse(bad[i], strlen(bad[i]), &look));
    static const char good[] = "137 4 20 6 3 2\nabcde";
    assert_true(nd_run_look_parse(good, strlen(good), &look));
    assert_int_equal(look.state, ND_RUN_ENDED);
    assert_int_equal(look.exit_code, 137);
    assert_int_equal(look.resident_pages, 4);
    assert_int_equal(look.spool_bytes, 20);
    assert_int_equal(look.stdout_bytes, 6);
    assert_int_equal(look.n_spool, 3);
    assert_int_equal(look.n_stdout, 2);
    assert_string_equal(look.bytes, "abcde");
    assert_true(nd_run_look_parse("restarted 0 0 0 0 0\n", 20, &look));
    assert_int_equal(look.state, ND_RUN_RESTARTED);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_run_hands_over_spool_and_output),
        IN_FOLDER(the_second_run_sends_the_job_alone),
        IN_FOLDER(deaths_are_described_as_on_this_machine),
        IN_FOLDER(a_run_is_stopped_at_its_limits),
        IN_FOLDER(a_cancelled_run_is_stopped_and_can_be_gone_on_with),
        IN_FOLDER(a_run_that_was_killed_is_resumed),
        IN_FOLDER(a_run_that_went_on_alone_is_collected),
        IN_FOLDER(without_resume_an_old_run_is_stopped_and_removed),
        IN_FOLDER(endless_output_of_an_agent_is_cut),
        IN_FOLDER(cleaning_leaves_nothing),
        IN_FOLDER(a_push_that_was_interrupted_goes_on_by_the_file),
        IN_FOLDER(a_device_without_space_says_how_much_is_needed),
        IN_FOLDER(a_missing_agent_says_how_it_is_built),
        cmocka_unit_test(answers_that_are_cut_or_wrong_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
