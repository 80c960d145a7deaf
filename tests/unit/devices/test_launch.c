#include "support/main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/spool/spool.h"
#include "devices/launch.h"
#include "devices/runtimes/sdk.h"
#include "npudiff/capture/capture.h"
#include "support/interrupted_wait.h"

/* Agents are small scripts here, which do what real ones do when they go wrong. */
struct bench {
    char *folder;
    char *agent;
    struct nd_capture_options options;
    struct nd_agent_exit exit;
    struct nd_error err;
};

static void write_script(const char *path, const char *text)
{
    char script[2048];
    int n = snprintf(script, sizeof script, "#!/bin/sh\n%s\n", text);
    assert_int_equal(nd_file_put(path, script, (size_t)n, NULL), ND_OK);
    assert_int_equal(chmod(path, 0700), 0);
}

static void bench_open(struct bench *bench, const char *script)
{
    *bench = (struct bench){0};
    assert_int_equal(nd_dir_make_temporary(&bench->folder, NULL), ND_OK);
    bench->agent = nd_path_join(bench->folder, "agent");
    write_script(bench->agent, script);
    nd_capture_options_init(&bench->options);
}

static enum nd_status bench_launch(struct bench *bench)
{
    const struct nd_agent_start start = {.agent = bench->agent,
                                         .folder = bench->folder,
                                         .options = &bench->options,
                                         .label = "dev",
                                         .samples_total = 12};
    return nd_agent_launch(&start, &bench->exit, &bench->err);
}

static void bench_close(struct bench *bench)
{
    nd_dir_remove(bench->folder);
    free(bench->folder);
    free(bench->agent);
}

/* Runs the script; the message of its death must be this one ("" for none). */
static void check_death(const char *script, int id, const char *message)
{
    struct bench bench;
    bench_open(&bench, script);
    assert_int_equal(bench_launch(&bench), ND_OK);
    assert_int_equal(bench.exit.error.id, id);
    assert_string_equal(bench.exit.error.message, message);
    assert_true(bench.exit.elapsed_s >= 0 && bench.exit.elapsed_s < 5);
    bench_close(&bench);
}

static void agent_death_is_described(void **state)
{
    (void)state;
    check_death("exit 0", 0, "");
    check_death("exit 1", ND_E_DEVICE_CRASH, "the agent of device 'dev' ended early with exit code 1");
    check_death("exit 127", ND_E_DEVICE_CRASH, "the agent of device 'dev' ended early with exit code 127");
    check_death("kill -SEGV $$", ND_E_DEVICE_CRASH,
                "the agent of device 'dev' was killed by signal 11 (Segmentation fault)");
    check_death("kill -KILL $$", ND_E_DEVICE_CRASH,
                "the agent of device 'dev' was killed by signal 9 (Killed)");
}

/* A signal to this process while it waits is not "ignores the signal SIGCHLD". */
static void an_interrupted_wait_is_no_unknown_end(void **state)
{
    is_interrupting = true;
    agent_death_is_described(state);
    is_interrupting = false;
}

static void agent_that_cannot_store_is_an_error(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "exit 3");
    assert_int_equal(bench_launch(&bench), ND_ERR_IO);
    assert_int_equal(bench.err.id, ND_E_FILE_WRITE);
    assert_non_null(strstr(bench.err.message, "the agent of device 'dev' cannot store its results in '"));
    bench_close(&bench);
}

static void file_that_is_no_program_is_an_error(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "exit 0");
    assert_int_equal(nd_file_put(bench.agent, "rubbish", 7, NULL), ND_OK);
    assert_int_equal(chmod(bench.agent, 0700), 0);
    assert_int_equal(bench_launch(&bench), ND_ERR_IO);
    assert_int_equal(bench.err.id, ND_E_DEVICE_AGENT);
    assert_non_null(strstr(bench.err.message, "Exec format error"));
    bench_close(&bench);
}

static void agent_is_stopped_at_its_limits(void **state)
{
    (void)state;
    static const struct {
        double time_limit_s, stall_limit_s;
        size_t memory_limit_bytes;
        const char *script;
        int id;
        const char *message;
    } limits[] = {
        {0.15, 0, 0, "exec sleep 20", ND_E_DEVICE_TIME,
         "device 'dev' was stopped after its time limit of 0.15 s"},
        {0, 0.15, 0, "exec sleep 20", ND_E_DEVICE_TIME, "device 'dev' was stopped: no progress for 0.15 s"},
        {0, 0, (size_t)50 << 20, "exec dd bs=200M count=100000 if=/dev/zero of=/dev/null", ND_E_DEVICE_MEMORY,
         "MiB resident are over its limit of 50 MiB"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct bench bench;
        bench_open(&bench, limits[i].script);
        bench.options.time_limit_s = limits[i].time_limit_s;
        bench.options.stall_limit_s = limits[i].stall_limit_s;
        bench.options.memory_limit_bytes = limits[i].memory_limit_bytes;
        assert_int_equal(bench_launch(&bench), ND_OK);
        assert_int_equal(bench.exit.error.id, limits[i].id);
        assert_non_null(strstr(bench.exit.error.message, limits[i].message));
        assert_true(bench.exit.elapsed_s < 10);
        bench_close(&bench);
    }
}

/* What it prints goes to a file, it reads nothing, and works in its own folder. */
static void agent_runs_in_its_folder_without_the_terminal(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "echo \"$1 $2\"; echo to stderr >&2; cat; ls");
    assert_int_equal(bench_launch(&bench), ND_OK);
    assert_int_equal(bench.exit.error.id, 0);
    char *path = nd_path_join(bench.folder, "stdout.txt");
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(path, 1000, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "job.nds spool.nds\nto stderr\nagent\nstdout.txt\n");
    free(text);
    free(path);
    bench_close(&bench);
}

/* ---- progress ---- */

struct seen {
    size_t done;
    size_t total;
    char stages[256]; /* each once, in order */
    char last[32];
};

static void note(void *context, const struct nd_capture_progress *progress)
{
    struct seen *seen = context;
    assert_true(progress->samples_done >= seen->done); /* never back */
    seen->done = progress->samples_done;
    seen->total = progress->samples_total;
    if (strcmp(seen->last, progress->stage) != 0) {
        snprintf(seen->last, sizeof seen->last, "%s", progress->stage);
        size_t n = strlen(seen->stages);
        snprintf(seen->stages + n, sizeof seen->stages - n, "%s ", progress->stage);
    }
}

static void put_records(const char *path, const struct nd_record *records, size_t n)
{
    struct nd_spool_writer writer;
    assert_int_equal(nd_spool_writer_open(&writer, path, NULL), ND_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(nd_spool_append(&writer, &records[i], NULL), ND_OK);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
}

/* Two passes over one probe: the count once began again in the second, since the probe did not change. */
static void progress_counts_the_samples_of_every_pass(void **state)
{
    (void)state;
    static const struct nd_record first[] = {{.kind = ND_RECORD_RUNTIME},
                                             {.kind = ND_RECORD_PASS, .index = {0}},
                                             {.kind = ND_RECORD_OUTPUT, .index = {0}},
                                             {.kind = ND_RECORD_ACK, .index = {0, 2}},
                                             {.kind = ND_RECORD_ACK, .index = {0, 6}}};
    static const struct nd_record second[] = {{.kind = ND_RECORD_PASS, .index = {1}},
                                              {.kind = ND_RECORD_OUTPUT, .index = {1}},
                                              {.kind = ND_RECORD_ACK, .index = {0, 1}},
                                              {.kind = ND_RECORD_ACK, .index = {0, 6}}};
    struct bench bench;
    struct seen seen = {0};
    bench_open(&bench, "cat first > spool.nds; sleep 0.2; cat second >> spool.nds; sleep 0.1");
    char *path = nd_path_join(bench.folder, "first");
    put_records(path, first, sizeof first / sizeof first[0]);
    free(path);
    path = nd_path_join(bench.folder, "second");
    put_records(path, second, sizeof second / sizeof second[0]);
    free(path);
    bench.options.progress = note;
    bench.options.progress_context = &seen;
    assert_int_equal(bench_launch(&bench), ND_OK);
    assert_int_equal(seen.done, 12);
    assert_int_equal(seen.total, 12);
    assert_string_equal(seen.last, "run");
    bench_close(&bench);
}

/* Records keep a slow agent alive; silence does not. */
static void progress_keeps_the_agent_from_stalling(void **state)
{
    (void)state;
    struct bench bench;
    static const struct nd_record one = {.kind = ND_RECORD_LOG};
    bench_open(&bench, "for i in 1 2 3 4 5 6; do cat one >> spool.nds; sleep 0.6; done");
    char *path = nd_path_join(bench.folder, "one");
    put_records(path, &one, 1);
    free(path);
    bench.options.stall_limit_s = 3;
    assert_int_equal(bench_launch(&bench), ND_OK);
    assert_int_equal(bench.exit.error.id, 0);
    assert_true(bench.exit.elapsed_s > 3);
    bench_close(&bench);
}

/* ---- finding the agent ---- */

static void agent_is_taken_from_the_option_then_the_environment(void **state)
{
    (void)state;
    struct bench bench;
    struct nd_error err = {0};
    char *path = NULL, *kept = nd_strdup(getenv("NPUDIFF_AGENT"));
    bench_open(&bench, "exit 0");
    setenv("NPUDIFF_AGENT", bench.agent, 1);
    assert_int_equal(nd_agent_find("/bin/sh", "", &path, &err), ND_OK);
    assert_int_equal(strncmp(path, "/", 1), 0);
    assert_null(strstr(path, bench.agent));
    free(path);
    assert_int_equal(nd_agent_find(NULL, "", &path, &err), ND_OK);
    assert_string_equal(nd_path_base(path), "agent");
    free(path);
    setenv("NPUDIFF_AGENT", "/does/not/exist", 1);
    path = NULL;
    assert_int_equal(nd_agent_find(NULL, "", &path, &err), ND_ERR_IO); /* what was asked for, or nothing */
    assert_int_equal(err.id, ND_E_DEVICE_AGENT);
    assert_null(path);
    unsetenv("NPUDIFF_AGENT");
    if (kept != NULL)
        setenv("NPUDIFF_AGENT", kept, 1);
    free(kept);
    bench_close(&bench);
}

/* ---- whole captures with such agents ---- */

static struct nd_model *load_model(void)
{
    struct nd_model *model = NULL;
    assert_non_null(getenv("GOLDEN"));
    char *path = nd_path_join(getenv("GOLDEN"), "models/cnn.w8a8.onnx");
    assert_int_equal(nd_model_load(path, &model, NULL), ND_OK);
    free(path);
    return model;
}

static enum nd_status capture(struct bench *bench, const char *uri, const char *path,
                              struct nd_capture_outcome *outcome)
{
    struct nd_model *model = load_model();
    struct nd_device device;
    struct nd_probe *probe = NULL;
    const struct nd_model_io *input = nd_model_input(model, 0);
    const struct nd_probe_target target = {.name = input->name, .dtype = input->dtype, .shape = input->shape};
    assert_int_equal(nd_device_parse(uri, &device, NULL), ND_OK);
    assert_int_equal(nd_probe_create("uniform:200", &target, 1, &probe, NULL), ND_OK);
    bench->options.agent = bench->agent;
    const struct nd_probe *probes[] = {probe};
    enum nd_status status = nd_capture_run(&(struct nd_workload){model, &device, probes, 1}, path,
                                           &bench->options, outcome, &bench->err);
    nd_probe_destroy(&probe);
    nd_device_deinit(&device);
    nd_model_destroy(&model);
    return status;
}

/* Also on a simulated NPU, whose placement is read from a spool that is not there. */
static void agent_that_dies_at_once_gives_a_failed_capture(void **state)
{
    (void)state;
    static const char *const uris[] = {"cpu", "htp-sim:gen3"};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        struct nd_capture_outcome outcome;
        struct nd_capture *file = NULL;
        bench_open(&bench, "echo last words; kill -ABRT $$");
        char *path = nd_path_join(bench.folder, "out.h5");
        assert_int_equal(capture(&bench, uris[i], path, &outcome), ND_OK);
        assert_true(outcome.has_failed);
        assert_int_equal(outcome.failure.id, ND_E_DEVICE_CRASH);
        assert_non_null(strstr(outcome.failure.message, "killed by signal 6 (Aborted)"));
        assert_string_equal(outcome.stage, "start");
        assert_int_equal(nd_capture_open(path, &file, NULL), ND_OK);
        assert_int_equal(nd_capture_state(file), ND_CAPTURE_FAILED);
        assert_string_equal(nd_capture_log_text(file, 0), "last words\n");
        nd_capture_close(&file);
        free(path);
        bench_close(&bench);
    }
}

/* The real agent under a limit on the size of files, before its first acknowledgement: an error, and no capture
 * that looks like the device's fault. */
static void full_disk_of_the_real_agent_is_an_error(void **state)
{
    (void)state;
    char script[1024];
    struct bench bench;
    struct nd_capture_outcome outcome;
    assert_non_null(getenv("NPUDIFF_AGENT"));
    /* LeakSanitizer needs ptrace, which the agent gives up. */
    snprintf(script, sizeof script, "ulimit -f 8\nexport ASAN_OPTIONS=detect_leaks=0\nexec '%s' \"$@\"",
             getenv("NPUDIFF_AGENT"));
    bench_open(&bench, script);
    bench.options.deflate_level = 0;
    char *path = nd_path_join(bench.folder, "out.h5");
    assert_int_equal(capture(&bench, "cpu", path, &outcome), ND_ERR_IO);
    assert_int_equal(bench.err.id, ND_E_FILE_WRITE);
    assert_non_null(strstr(bench.err.message, "is the disk full?"));
    assert_false(nd_path_exists(path));
    free(path);
    bench_close(&bench);
}

/* Killed in the middle of its work, by a watcher that waits until it has stopped itself there (agent/stop.h).
 */
static void real_agent_killed_keeps_what_it_acknowledged(void **state)
{
    (void)state;
    char script[1024];
    struct bench bench;
    struct nd_capture_outcome outcome;
    struct nd_capture *file = NULL;
    struct nd_capture_verification sound = {.struct_size = sizeof sound};
    assert_non_null(getenv("NPUDIFF_AGENT"));
    snprintf(script, sizeof script,
             "echo acknowledged 1 >stop; export NPUDIFF_TEST_AGENT_STOP=\"$PWD/stop\"\n"
             "(until grep -q '^State:.T' /proc/$$/status; do sleep 0.02; done; kill -KILL $$) &\n"
             "exec '%s' \"$@\"",
             getenv("NPUDIFF_AGENT"));
    bench_open(&bench, script);
    bench.options.n_repeats = 1000;
    char *path = nd_path_join(bench.folder, "out.h5");
    assert_int_equal(capture(&bench, "cpu", path, &outcome), ND_OK);
    assert_true(outcome.has_failed);
    assert_non_null(strstr(outcome.failure.message, "killed by signal 9"));
    assert_string_equal(outcome.stage, "run");
    assert_true(outcome.samples_done >= 1 && outcome.samples_done < 200);
    assert_int_equal(nd_capture_open(path, &file, NULL), ND_OK);
    assert_int_equal(nd_capture_probe(file, 0)->n_samples, outcome.samples_done);
    assert_int_equal(nd_capture_verify(file, &sound, NULL), ND_OK);
    assert_true(sound.n_wrong == 0 && sound.content_matches);
    nd_capture_close(&file);
    free(path);
    bench_close(&bench);
}

/* A disk that is full when samples have been acknowledged: they are in the capture, which is partial. */
static void what_was_acknowledged_before_the_disk_was_full_is_kept(void **state)
{
    (void)state;
    char script[1024];
    struct bench bench;
    struct nd_capture_outcome outcome = {0};
    snprintf(script, sizeof script, "'%s' \"$@\"\ntruncate -s -56 spool.nds # its end\nexit 3",
             getenv("NPUDIFF_AGENT"));
    bench_open(&bench, script);
    bench.options.is_resumable = true;
    char *path = nd_path_join(bench.folder, "out.h5");
    if (capture(&bench, "cpu", path, &outcome) != ND_OK)
        fail_msg("%s", bench.err.message);
    assert_true(outcome.is_partial && outcome.samples_done > 0);
    assert_int_equal(outcome.failure.id, ND_E_FILE_WRITE);
    assert_non_null(strstr(outcome.failure.message, "is the disk full? The samples before are kept"));
    struct nd_capture *kept = NULL;
    assert_int_equal(nd_capture_open(path, &kept, NULL), ND_OK);
    assert_int_equal(nd_capture_state(kept), ND_CAPTURE_PARTIAL);
    nd_capture_close(&kept);
    free(path);
    bench_close(&bench);
}

/* Who offers no --resume keeps nothing, and promises nothing: a full disk is an error, and the folder goes. */
static void without_resume_a_full_disk_keeps_nothing(void **state)
{
    (void)state;
    char script[2000];
    struct bench bench;
    struct nd_capture_outcome outcome = {0};
    bench_open(&bench, "exit 0");
    char *path = nd_path_join(bench.folder, "out.h5"), *where = nd_path_join(bench.folder, "where");
    snprintf(script, sizeof script, "'%s' \"$@\"\ntruncate -s -56 spool.nds # its end\npwd >'%s'\nexit 3",
             getenv("NPUDIFF_AGENT"), where);
    write_script(bench.agent, script);
    assert_int_equal(capture(&bench, "cpu", path, &outcome), ND_ERR_IO);
    assert_int_equal(bench.err.id, ND_E_FILE_WRITE);
    assert_null(strstr(bench.err.message, "resume"));
    assert_false(outcome.is_partial || nd_path_exists(path));
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(where, 4096, &text, &n, NULL), ND_OK);
    ((char *)text)[n - 1] = '\0';
    assert_false(nd_path_exists(text));
    free(text);
    free(where);
    free(path);
    bench_close(&bench);
}

/* ---- what it prints ---- */

/* 200 MB of text take a part of that on the disk; the last words are there. */
static void what_is_printed_does_not_fill_the_disk(void **state)
{
    (void)state;
    struct bench bench;
    struct stat info;
    bench_open(
        &bench,
        "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 20000000 /dev/zero; sleep 0.2; done; echo last words");
    assert_int_equal(bench_launch(&bench), ND_OK);
    assert_int_equal(bench.exit.error.id, 0);
    char *path = nd_path_join(bench.folder, "stdout.txt"), words[11];
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 200000011);
    assert_true((long long)info.st_blocks * 512 < 130LL << 20);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, -11, SEEK_END), 0);
    assert_int_equal(fread(words, 1, sizeof words, file), 11);
    assert_memory_equal(words, "last words\n", 11);
    fclose(file);
    free(path);
    bench_close(&bench);
}

/* ---- stops of this process ---- */

/* Stops its parent for 3 s, and is as silent as before afterwards. */
static void a_stop_of_the_host_is_no_stall(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "(sleep 0.2; kill -STOP $PPID; sleep 3; kill -CONT $PPID) & wait; sleep 0.3");
    bench.options.stall_limit_s = 2;
    bench.options.time_limit_s = 2.5;
    uint64_t begun_ns = nd_clock_ns(), awake_ns = nd_clock_awake_ns();
    assert_int_equal(bench_launch(&bench), ND_OK);
    if (bench.exit.error.id != 0)
        fail_msg("%s", bench.exit.error.message);
    double passed_s = (double)(nd_clock_ns() - begun_ns) * 1e-9;
    double awake_s = (double)(nd_clock_awake_ns() - awake_ns) * 1e-9;
    assert_true(passed_s > 3 && awake_s < passed_s - 2);
    assert_true(bench.exit.elapsed_s < 2);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agent_death_is_described),
        cmocka_unit_test(an_interrupted_wait_is_no_unknown_end),
        cmocka_unit_test(agent_that_cannot_store_is_an_error),
        cmocka_unit_test(file_that_is_no_program_is_an_error),
        cmocka_unit_test(agent_is_stopped_at_its_limits),
        cmocka_unit_test(agent_runs_in_its_folder_without_the_terminal),
        cmocka_unit_test(progress_counts_the_samples_of_every_pass),
        cmocka_unit_test(progress_keeps_the_agent_from_stalling),
        cmocka_unit_test(agent_is_taken_from_the_option_then_the_environment),
        cmocka_unit_test(agent_that_dies_at_once_gives_a_failed_capture),
        cmocka_unit_test(full_disk_of_the_real_agent_is_an_error),
        cmocka_unit_test(what_was_acknowledged_before_the_disk_was_full_is_kept),
        cmocka_unit_test(real_agent_killed_keeps_what_it_acknowledged),
        cmocka_unit_test(without_resume_a_full_disk_keeps_nothing),
        cmocka_unit_test(what_is_printed_does_not_fill_the_disk),
        cmocka_unit_test(a_stop_of_the_host_is_no_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
