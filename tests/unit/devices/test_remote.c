/* Runs on another machine: what is sent, what comes back, what is resumed and cleaned. */
#include "support/main.h"

#include <fcntl.h>
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
    snprintf(expected, sizeof expected, "/work|%s|../job.nds spool.nds\ndone\n", bench.remote.runtime.folder);
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

/* An agent that is confined can change its working folder: what the script writes and what is read of the spool
 * goes through no link of it. */
static void links_of_an_agent_lead_nowhere(void **state)
{
    (void)state;
    struct bench bench;
    char *victim = write_file("victim", "kept", 0600);
    bench_open(&bench, "for f in pid agent.pid exit.part exit stdout.txt job.nds run.sh spool.nds; do "
                       "ln -s \"$here/victim\" $f; done; ls >&2");
    expect_ok(bench_run(&bench), &bench.err);
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(victim, 100, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "kept");
    free(text);
    char *spool = nd_path_join(bench.here, "spool.nds"), *out = nd_path_join(bench.here, "stdout.txt");
    assert_int_equal(nd_file_read(spool, 100, &text, &n, NULL), ND_OK);
    assert_int_equal(n, 0);
    free(text);
    assert_int_equal(nd_file_read(out, 1000, &text, &n, NULL), ND_OK);
    assert_non_null(strstr(text, "exit.part\n"));
    free(text);
    free(spool);
    free(out);
    free(victim);
    bench_close(&bench);
}

/* Its digest is right, and yet it cannot be run. */
static void an_agent_that_lost_its_mode_is_sent_again(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "exit 0");
    expect_ok(bench_run(&bench), &bench.err);
    char *agent = nd_path_join(bench.remote.agent.folder, "npudiff-agent");
    assert_int_equal(chmod(agent, 0600), 0);
    bench_close(&bench);
    bench_open(&bench, "exit 0");
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    assert_int_equal(access(agent, X_OK), 0);
    free(agent);
    bench_close(&bench);
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
        "sleep 0.6; kill -9 -$(cut -d' ' -f1 ../pid); sleep 60";
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
    assert_string_equal(text, "../job.nds spool.nds\n--resume ../job.nds spool.nds\n");
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
    static const char script[] = "until [ -s ../pid ]; do sleep 0.02; done; echo call >> \"$here/calls\"; "
                                 "cat \"$here/made.nds\" > spool.nds; sleep 2";
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
    char *spool = nd_path_join(bench.here, "spool.nds"), *calls = in_folder("calls");
    assert_true(does_appear(calls));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    bench.options.resume = true;
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
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
    bench_open(
        &bench,
        "until [ -s ../pid ]; do sleep 0.02; done; echo $$ >> \"$here/pids\"; n=$(wc -l < \"$here/pids\"); "
        "[ $n -gt 1 ] && exit 0; exec sleep 60");
    pid_t child = fork();
    if (child == 0) {
        bench_run(&bench);
        _exit(0);
    }
    char *pids = in_folder("pids");
    assert_true(does_appear(pids));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    assert_true(does_end(pids));
    free(pids);
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

static void what_a_dead_machine_lost_stays_here(void **state)
{
    (void)state;
    struct bench bench;
    struct stat info;
    bench_open(&bench, "exit 0");
    const struct nd_remote_run run = {.device = &bench.device, .options = &bench.options};
    char *there = in_folder("a run");
    char *pid = write_file("a run/pid", "999999999 of-before-the-restart\n", 0600);
    char *none = write_file("a run/work/spool.nds", "", 0600), *copy = write_file("copy", "0123456789", 0600);
    struct nd_remote_session session = {.remote = &bench.remote,
                                        .run = &run,
                                        .folder = there,
                                        .spool = copy,
                                        .spool_fd = open(copy, O_WRONLY | O_APPEND),
                                        .out_fd = -1,
                                        .spool_bytes = 10};
    nd_watch_begin(&session.watch, &bench.options, "dev", copy, 6, 0);
    expect_ok(nd_remote_look(&session, &bench.err), &bench.err);
    assert_int_equal(session.look.state, ND_RUN_RESTARTED);
    assert_int_equal(session.spool_bytes, 10);
    assert_int_equal(stat(copy, &info), 0);
    assert_int_equal(info.st_size, 10);
    nd_watch_end(&session.watch);
    close(session.spool_fd);
    free(there);
    free(pid);
    free(none);
    free(copy);
    bench_close(&bench);
}

/* The link was gone when the agent failed: the next one tries again behind what is acknowledged. */
static void a_run_that_failed_alone_is_gone_on_with(void **state)
{
    (void)state;
    struct bench bench;
    char *made = make_spool();
    bench_open(
        &bench,
        "echo $$ > \"$here/agent-id\"; echo \"$*\" >> \"$here/calls\"; if [ \"$1\" = --resume ]; then cat "
        "\"$here/made.nds\" > spool.nds; exit 0; fi; echo x > spool.nds; sleep 1.5; exit 1");
    pid_t child = fork();
    if (child == 0) {
        bench_run(&bench);
        _exit(0);
    }
    char *calls = in_folder("calls");
    assert_true(does_appear(calls));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    char *agent = in_folder("agent-id");
    assert_true(does_end(agent));
    free(agent);
    bench.options.resume = true;
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(calls, 1000, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "../job.nds spool.nds\n--resume ../job.nds spool.nds\n");
    free(text);
    free(calls);
    bench_close(&bench);
    free(made);
}

/* Two devices on one phone: the first that is done must not clean the other's run away, nor one that was
 * interrupted. */
static void cleaning_waits_for_the_others(void **state)
{
    (void)state;
    struct bench bench;
    struct nd_remote other = {0};
    bench_open(&bench, "exit 0");
    bench.options.clean_device = true;
    expect_ok(nd_remote_open(&other, &bench.device, &bench.options, &bench.err), &bench.err);
    expect_ok(bench_run(&bench), &bench.err);
    nd_remote_close(&other);
    assert_int_equal(count_in(&bench, "store"), 3);
    char *root = nd_strdup(bench.root), *old = in_folder("device's folder/runs/old");
    assert_int_equal(nd_dir_make(old, NULL), ND_OK);
    bench_close(&bench);
    assert_int_equal(access(old, F_OK), 0);
    bench_open(&bench, "exit 0");
    bench.options.clean_device = true;
    assert_int_equal(rmdir(old), 0);
    bench_close(&bench);
    assert_int_not_equal(access(root, F_OK), 0);
    free(root);
    free(old);
}

/* The caller frees what is in *end, which *look points into. */
static void look_at(const char *run, uint64_t spool_offset, struct nd_process_end *end,
                    struct nd_run_look *look)
{
    char *text = nd_script_look(run, spool_offset, 100, 0, 100);
    const char *const argv[] = {"sh", "-c", text, NULL};
    struct nd_error err = {0};
    expect_ok(nd_process_run(&(struct nd_process){.argv = argv}, end, &err), &err);
    assert_true(nd_run_look_parse(end->out, end->out_bytes, look));
    free(text);
}

/* A process that is waited for between opening its statm and reading it: the file is empty, and no number of
 * the answer may be missing. */
static void an_agent_that_ends_while_it_is_looked_at_is_understood(void **state)
{
    (void)state;
    char pid[1024];
    struct nd_process_end end = {0};
    struct nd_run_look look;
    snprintf(pid, sizeof pid, "../%s/ended", folder);
    char *run = in_folder("ending"), *statm = write_file("ended/statm", "", 0600),
         *agent = write_file("ending/agent.pid", pid, 0600);
    look_at(run, 0, &end, &look);
    assert_int_equal(look.state, ND_RUN_MADE);
    assert_int_equal(look.resident_pages, 0);
    nd_process_end_deinit(&end);
    free(run);
    free(statm);
    free(agent);
}

/* Offsets around what 32 bits and the halves of the reckoning hold, of files with holes. */
static void pieces_of_large_spools_are_found(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 9, 999999, 1000000, 1000009, 2147483648, 3000000123, 5000000000};
    char *run = in_folder("it's"), *spool = in_folder("it's/work/spool.nds"), *work = in_folder("it's/work");
    assert_int_equal(nd_dir_make(work, NULL), ND_OK);
    free(work);
    assert_int_equal(nd_file_put(spool, "", 0, NULL), ND_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(truncate(spool, (off_t)sizes[i]), 0);
        const uint64_t offsets[] = {0,      sizes[i] > 8 ? sizes[i] - 8 : 0, sizes[i], sizes[i] + 1, 999999,
                                    1000000};
        for (size_t k = 0; k < sizeof offsets / sizeof offsets[0]; k++) {
            uint64_t left = sizes[i] > offsets[k] ? sizes[i] - offsets[k] : 0;
            struct nd_process_end end = {0};
            struct nd_run_look look;
            look_at(run, offsets[k], &end, &look);
            assert_int_equal(look.spool_bytes, sizes[i]);
            assert_int_equal(look.n_spool, left < 100 ? left : 100);
            assert_int_equal(end.out_bytes - (size_t)(look.bytes - end.out), look.n_spool);
            nd_process_end_deinit(&end);
        }
    }
    /* No number of the reckoning is beyond 31 bits, which are all that mksh has. */
    char *text = nd_script_look(run, 3000000123, 100, 0, 100);
    assert_non_null(strstr(text, "h=$((h-3000)); "));
    assert_null(strstr(text, "$((n-"));
    free(text);
    free(run);
    free(spool);
}

static void a_push_that_was_interrupted_goes_on_by_the_file(void **state)
{
    (void)state;
    struct bench bench;
    uint64_t free_bytes = 1 << 20;
    struct nd_bundle bundle = {0}, *const bundles[] = {&bundle};
    static const char *const names[] = {"a", "sub folder/it's b", "\346\224\266"};
    bench_open(&bench, "exit 0");
    for (size_t i = 0; i < 3; i++) {
        char *path = write_file(names[i], names[i], 0600);
        expect_ok(nd_bundle_add(&bundle, names[i], path, false, &bench.err), &bench.err);
        free(path);
    }
    struct nd_transport *sh = bench.remote.transport;
    expect_ok(nd_bundles_place(bundles, 1, sh, bench.root, &free_bytes, &bench.err), &bench.err);
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
    expect_ok(nd_bundles_place(bundles, 1, sh, bench.root, &free_bytes, &bench.err), &bench.err);
    assert_true(bundle.was_there);
    assert_int_equal(sh->traffic.bytes_sent, whole);
    /* One file is damaged, another lost, and the mark is not there yet: these two are sent. */
    char *mark = nd_path_join(bundle.folder, ".complete"), *first = nd_path_join(bundle.folder, names[0]),
         *second = nd_path_join(bundle.folder, names[1]);
    unlink(mark);
    unlink(second);
    assert_int_equal(nd_file_put(first, "b", 1, NULL), ND_OK);
    expect_ok(nd_bundles_place(bundles, 1, sh, bench.root, &free_bytes, &bench.err), &bench.err);
    assert_int_equal(sh->traffic.bytes_sent, whole + strlen(names[0]) + strlen(names[1]));
    check_same(first, bundle.files[0].path);
    check_same(second, bundle.files[1].path);
    assert_false(bundle.was_damaged);
    /* Of a complete one a file that is another of the same size, and one that is cut. */
    assert_int_equal(nd_file_put(first, "b", 1, NULL), ND_OK);
    expect_ok(nd_bundles_place(bundles, 1, sh, bench.root, &free_bytes, &bench.err), &bench.err);
    assert_true(bundle.was_damaged);
    assert_false(bundle.was_there);
    check_same(first, bundle.files[0].path);
    assert_int_equal(nd_file_put(second, "", 0, NULL), ND_OK);
    expect_ok(nd_bundles_place(bundles, 1, sh, bench.root, &free_bytes, &bench.err), &bench.err);
    check_same(second, bundle.files[1].path);
    free(mark);
    free(first);
    free(second);
    nd_bundle_deinit(&bundle);
    bench_close(&bench);
}

/* What became another in the store, at equal size, is neither run nor believed; what is there is measured
 * before each run, also of one connection. */
static void what_changed_in_the_store_is_not_run(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "echo run >> \"$here/calls\"; exit 0");
    expect_ok(bench_run(&bench), &bench.err);
    char *calls = in_folder("calls"), *bad = in_folder("bad");
    char *agent = nd_path_join(bench.remote.agent.folder, "npudiff-agent");
    char *model = nd_path_join(bench.remote.model.folder, "model.onnx");
    char *library = nd_path_join(bench.remote.runtime.folder, "libort.so");
    void *text = NULL, *forged = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(agent, 10000, &forged, &n, NULL), ND_OK);
    memcpy(forged, "#!/bin/sh\n>\"$PWD/../../../bad\"\nexit 1;exit 1;", 43);
    assert_int_equal(nd_file_put(agent, forged, n, NULL), ND_OK);
    assert_int_equal(nd_file_put(model, "b model", 7, NULL), ND_OK);
    assert_int_equal(nd_file_put(library, "b library", 9, NULL), ND_OK);
    expect_ok(bench_run(&bench), &bench.err);
    assert_int_equal(bench.exit.error.id, 0);
    assert_int_not_equal(access(bad, F_OK), 0);
    check_same(agent, bench.agent);
    check_same(model, bench.model);
    check_same(library, bench.device.runtime.ort_library);
    free(text);
    assert_int_equal(nd_file_read(calls, 1000, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "run\nrun\n");
    free(text);
    free(forged);
    free(calls);
    free(bad);
    free(agent);
    free(model);
    free(library);
    bench_close(&bench);
}

/* A run that was left there by an agent from a damaged store. */
static void what_ran_from_a_damaged_store_is_not_gone_on_with(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "echo \"$*\" >> \"$here/calls\"; [ $(wc -l < \"$here/calls\") -gt 1 ] && exit 0; "
                       "echo x > spool.nds; kill -9 -$(cut -d' ' -f1 ../pid); sleep 60");
    expect_ok(bench_run(&bench), &bench.err);
    assert_true(bench.exit.can_resume);
    char *model = nd_path_join(bench.remote.model.folder, "model.onnx"), *calls = in_folder("calls");
    assert_int_equal(nd_file_put(model, "b model", 7, NULL), ND_OK);
    bench.options.resume = true;
    expect_ok(bench_run(&bench), &bench.err);
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(calls, 1000, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "../job.nds spool.nds\n../job.nds spool.nds\n");
    check_same(model, bench.model);
    free(text);
    free(model);
    free(calls);
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
        IN_FOLDER(links_of_an_agent_lead_nowhere),
        IN_FOLDER(an_agent_that_lost_its_mode_is_sent_again),
        IN_FOLDER(the_second_run_sends_the_job_alone),
        IN_FOLDER(a_run_that_was_killed_is_resumed),
        IN_FOLDER(a_run_that_went_on_alone_is_collected),
        IN_FOLDER(without_resume_an_old_run_is_stopped_and_removed),
        IN_FOLDER(cleaning_leaves_nothing),
        IN_FOLDER(what_a_dead_machine_lost_stays_here),
        IN_FOLDER(a_run_that_failed_alone_is_gone_on_with),
        IN_FOLDER(cleaning_waits_for_the_others),
        IN_FOLDER(an_agent_that_ends_while_it_is_looked_at_is_understood),
        IN_FOLDER(pieces_of_large_spools_are_found),
        IN_FOLDER(a_push_that_was_interrupted_goes_on_by_the_file),
        IN_FOLDER(what_changed_in_the_store_is_not_run),
        IN_FOLDER(what_ran_from_a_damaged_store_is_not_gone_on_with),
        IN_FOLDER(a_device_without_space_says_how_much_is_needed),
        IN_FOLDER(a_missing_agent_says_how_it_is_built),
        cmocka_unit_test(answers_that_are_cut_or_wrong_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
