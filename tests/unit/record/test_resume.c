/* Runs that are interrupted anywhere and gone on with come out as if nothing had happened. */
#include "support/main.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/agent/agent.h"
#include "record/sessions/assemble_outputs.h"
#include "support/fake_runtime.h"
#include "support/scratch.h"

enum { N_CONFIGS = 8, N_TRIALS = 80 / ND_SANITIZED_SHARE, MAX_KILLS = 3, SMALL = 5 };

static const struct config {
    struct fake_options options;
    bool is_remembering;
} configs[N_CONFIGS] = {
    {{.n_repeats = 1, .level = 1, .n_passes = 1}, false},
    {{.n_repeats = 3, .level = 0, .n_passes = 2}, false},
    {{.n_repeats = 3, .level = 1, .n_passes = 2}, true},
    {{.n_repeats = 1, .level = 0, .n_passes = 2}, false},
    {{.n_repeats = 2, .level = 0, .n_passes = 1}, false},
    {{.n_repeats = 3, .level = 1, .n_passes = 2, .digests_only = true}, false},
    {{.n_repeats = 1, .level = 1, .n_passes = 2, .has_reruns = true}, false},
    {{.n_repeats = 1, .level = 0, .n_passes = 1, .has_reruns = true}, true},
};

static struct fake_agent_job jobs[N_CONFIGS];
static void *spools[N_CONFIGS]; /* undisturbed, with several acknowledgements in a probe */
static size_t spool_bytes[N_CONFIGS];
static void *captures[N_CONFIGS];
static size_t capture_bytes[N_CONFIGS];
static char *spool_path, *capture_path;

/* ---- one life of an agent ---- */

static void wake(size_t config)
{
    fake_device = healthy_device;
    fake_device.options = configs[config].options;
    fake_device.is_remembering = configs[config].is_remembering;
}

static enum nd_status run_undisturbed(size_t config, const char *path, struct nd_error *err)
{
    struct nd_spool_writer writer;
    wake(config);
    fake_device.options.pauses = true;
    enum nd_status status = nd_spool_writer_open(&writer, path, err);
    if (status == ND_OK)
        status = nd_agent_run(&jobs[config].base.job, NULL, &writer, err);
    nd_spool_writer_close(&writer, NULL);
    return status;
}

/* Goes on with the spool; whether it went on, and did not start over. */
static bool go_on(size_t config, bool may_fail, struct nd_error *err)
{
    struct nd_spool_writer writer;
    struct nd_resume resume = {0};
    const struct nd_agent_job *job = &jobs[config].base.job;
    expect_ok(nd_resume_open(job, spool_path, &writer, &resume, err), err);
    bool has_more = !resume.has_ended, went_on = has_more && !resume.is_fresh;
    if (went_on && !fake_device.is_remembering) { /* the other kind of device is shown all again */
        fake_device.first[0] = resume.probe;
        fake_device.first[1] = resume.sample;
        fake_device.first[2] = resume.repeat;
    }
    if (has_more) {
        enum nd_status status = nd_agent_run(job, &resume, &writer, err);
        if (!(may_fail && status == ND_ERR_DEVICE))
            expect_ok(status, err);
        assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    }
    nd_resume_close(&resume);
    return went_on;
}

/* ---- captures ---- */

static struct nd_capture *assemble(size_t config, const char *spool)
{
    static unsigned char data[64];
    struct nd_error err = {0};
    struct nd_tensor tensors[FAKE_TENSORS];
    const struct nd_tensor *tensor_list[FAKE_TENSORS];
    size_t pass_of_tensor[FAKE_TENSORS];
    struct nd_probe_input input = {(char *)(uintptr_t) "in", ND_DTYPE_U8, {1, {2}}, 2, data};
    struct nd_probe probes[FAKE_PROBES];
    const struct nd_probe *probe_list[FAKE_PROBES];
    const struct fake_options *options = &configs[config].options;
    for (size_t e = 0; e < FAKE_TENSORS; e++) {
        char *name = (char *)(uintptr_t)fake_tensors[e].name;
        tensors[e] = (struct nd_tensor){.name = name,
                                        .onnx_name = name,
                                        .op_types = (char *)(uintptr_t) "Op",
                                        .node = (char *)(uintptr_t)(e % 2 == 0 ? "n0" : "n1"),
                                        .dtype = ND_DTYPE_NONE,
                                        .shape.rank = -1,
                                        .quant = {.axis = -1}};
        tensor_list[e] = &tensors[e];
        pass_of_tensor[e] = fake_pass(options, e);
    }
    for (size_t p = 0; p < FAKE_PROBES; p++) {
        probes[p] = (struct nd_probe){.name = (char *)(uintptr_t)fake_probe_names[p],
                                      .source = (char *)(uintptr_t) "fake",
                                      .n_samples = fake_samples[p],
                                      .n_inputs = 1,
                                      .inputs = &input};
        probe_list[p] = &probes[p];
    }
    for (size_t e = 0; e < FAKE_TENSORS; e++) { /* as a model says it */
        tensors[e].dtype = fake_tensors[e].dtype;
        tensors[e].shape = fake_tensors[e].shape;
    }
    const struct nd_assembly assembly = {.spool_path = spool,
                                         .path = capture_path,
                                         .replace = true,
                                         .tensors = tensor_list,
                                         .pass_of_tensor = pass_of_tensor,
                                         .n_tensors = FAKE_TENSORS,
                                         .n_passes = options->n_passes,
                                         .probes = probe_list,
                                         .n_probes = FAKE_PROBES,
                                         .n_repeats = options->n_repeats,
                                         .has_reruns = options->has_reruns,
                                         .deflate_level = options->level,
                                         .store_digests_only = options->digests_only,
                                         .is_reproducible = true};
    struct nd_assembled assembled;
    struct nd_capture *capture = NULL;
    expect_ok(nd_capture_assemble(&assembly, &assembled, &err), &err);
    if (assembled.state != ND_CAPTURE_COMPLETE)
        print_message("# %s: %s\n", assembled.stage, assembled.failure.message);
    assert_int_equal(assembled.state, ND_CAPTURE_COMPLETE);
    expect_ok(nd_capture_open(capture_path, &capture, &err), &err);
    return capture;
}

static int64_t n_resumed(const struct nd_capture *capture)
{
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        if (strcmp(attr->group, "runtime") == 0 && strcmp(attr->key, "resumed") == 0)
            return attr->i64;
    }
    return 0;
}

/* The capture of a spool as bytes, without what says that there was an interruption. */
static void read_capture(size_t config, void **bytes, size_t *n)
{
    struct nd_capture *capture = assemble(config, spool_path);
    assert_int_equal(n_resumed(capture), 0);
    nd_capture_close(&capture);
    assert_int_equal(nd_file_read(capture_path, 1u << 30, bytes, n, NULL), ND_OK);
}

/* ---- spools ---- */

static void put_spool(const void *bytes, size_t n)
{
    FILE *file = fopen(spool_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static size_t file_size(void)
{
    FILE *file = fopen(spool_path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    fclose(file);
    return (size_t)size;
}

/* How many records of each kind the spool holds; all records are whole. */
struct census {
    size_t n[64];
};

static struct census count_all(void)
{
    struct census census = {{0}};
    struct nd_spool_reader reader;
    struct nd_record record;
    assert_int_equal(nd_spool_reader_open(&reader, spool_path, NULL), ND_OK);
    while (nd_spool_next(&reader, &record)) {
        assert_true(record.kind < 64);
        census.n[record.kind]++;
        if (record.kind == ND_RECORD_RESUME) /* they are numbered */
            assert_int_equal(record.index[3], census.n[record.kind]);
    }
    assert_int_equal(reader.torn_bytes, 0);
    nd_spool_reader_close(&reader);
    return census;
}

/* Rewrites the spool without the records of a kind. */
static void drop(uint32_t kind)
{
    char *other = in_folder("other.nds");
    struct nd_spool_reader reader;
    struct nd_spool_writer writer;
    struct nd_record record;
    assert_int_equal(nd_spool_reader_open(&reader, spool_path, NULL), ND_OK);
    assert_int_equal(nd_spool_writer_open(&writer, other, NULL), ND_OK);
    while (nd_spool_next(&reader, &record))
        if (record.kind != kind)
            assert_int_equal(nd_spool_append(&writer, &record, NULL), ND_OK);
    nd_spool_reader_close(&reader);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    assert_int_equal(rename(other, spool_path), 0);
    free(other);
}

/* What is recorded once is there once, however often the run was resumed. */
static const uint32_t single_kinds[] = {
    ND_RECORD_JOB,    ND_RECORD_RUNTIME, ND_RECORD_LIBRARY, ND_RECORD_NODE,   ND_RECORD_PASS,
    ND_RECORD_OUTPUT, ND_RECORD_CHUNK,   ND_RECORD_SAMPLE,  ND_RECORD_REPEAT, ND_RECORD_END};
enum { N_SINGLE = sizeof single_kinds / sizeof single_kinds[0] };
static struct census undisturbed[N_CONFIGS];

static int make_spools(void **state)
{
    (void)state;
    pid_t children[N_CONFIGS];
    if (nd_dir_make_temporary(&folder, NULL) != ND_OK)
        return -1;
    for (size_t i = 0; i < N_CONFIGS; i++) { /* which mostly wait */
        char name[32];
        snprintf(name, sizeof name, "config%zu.nds", i);
        fake_agent_job_fill(&jobs[i], &configs[i].options);
        char *path = in_folder(name);
        children[i] = fork();
        if (children[i] == 0)
            _exit(run_undisturbed(i, path, NULL) == ND_OK ? 0 : 1);
        free(path);
    }
    spool_path = in_folder("spool.nds");
    capture_path = in_folder("a.h5");
    for (size_t i = 0; i < N_CONFIGS; i++) {
        char name[32];
        int status;
        snprintf(name, sizeof name, "config%zu.nds", i);
        char *path = in_folder(name);
        if (waitpid(children[i], &status, 0) != children[i] || status != 0 ||
            nd_file_read(path, 1u << 30, &spools[i], &spool_bytes[i], NULL) != ND_OK)
            return -1;
        free(path);
        put_spool(spools[i], spool_bytes[i]);
        undisturbed[i] = count_all();
        if (undisturbed[i].n[ND_RECORD_ACK] <
            3 * configs[i].options.n_passes) /* one, then two in the other probe */
            return -1;
        read_capture(i, &captures[i], &capture_bytes[i]);
    }
    return 0;
}

static int remove_spools(void **state)
{
    for (size_t i = 0; i < N_CONFIGS; i++) {
        free(spools[i]);
        free(captures[i]);
    }
    free(spool_path);
    free(capture_path);
    return remove_folder(state);
}

/* The spool in place is whole, and gives the capture of an undisturbed run; how often it was resumed. */
static size_t check_whole(size_t config)
{
    void *bytes = NULL;
    size_t n = 0;
    const struct census census = count_all();
    size_t n_resumptions = census.n[ND_RECORD_RESUME];
    for (size_t k = 0; k < N_SINGLE; k++)
        assert_int_equal(census.n[single_kinds[k]], undisturbed[config].n[single_kinds[k]]);
    assert_int_equal(census.n[ND_RECORD_FAILURE], 0);
    struct nd_capture *capture = assemble(config, spool_path);
    assert_int_equal(n_resumed(capture), n_resumptions);
    nd_capture_close(&capture);
    drop(ND_RECORD_RESUME);
    read_capture(config, &bytes, &n);
    assert_int_equal(n, capture_bytes[config]);
    assert_memory_equal(bytes, captures[config], n);
    free(bytes);
    return n_resumptions;
}

/* How many samples every pass acknowledges together. */
static size_t n_acknowledged(void)
{
    size_t n = 0, acknowledged[FAKE_PROBES] = {0};
    struct nd_spool_reader reader;
    struct nd_record record;
    assert_int_equal(nd_spool_reader_open(&reader, spool_path, NULL), ND_OK);
    while (nd_spool_next(&reader, &record)) {
        if (record.kind == ND_RECORD_ACK) {
            n += (size_t)record.index[1] - acknowledged[record.index[0]];
            acknowledged[record.index[0]] = (size_t)record.index[1];
        } else if (record.kind == ND_RECORD_PASS) {
            memset(acknowledged, 0, sizeof acknowledged);
        }
    }
    nd_spool_reader_close(&reader);
    return n;
}

/* A pass runs a sample 4 times when its first two runs differ at any of its tensors, and twice else. */
static void samples_that_are_run_again_are_in_the_capture(void **state)
{
    (void)state;
    for (size_t config = N_CONFIGS - 2; config < N_CONFIGS; config++) {
        put_spool(spools[config], spool_bytes[config]);
        struct nd_capture *capture = assemble(config, spool_path);
        size_t n_by_runs[5] = {0};
        for (size_t p = 0; p < FAKE_PROBES; p++)
            for (size_t s = 0; s < fake_samples[p]; s++)
                for (size_t e = 0; e < FAKE_TENSORS; e++) {
                    const struct nd_probe_values tensor = {capture, p, e};
                    size_t n = nd_capture_n_runs(capture, p, e, s),
                           pass = fake_pass(&configs[config].options, e);
                    bool differs = false;
                    for (size_t other = 0; other < FAKE_TENSORS; other++)
                        differs = differs || (fake_pass(&configs[config].options, other) == pass &&
                                              fake_differs(p, other, s, 1) && fake_bytes(other) > 0);
                    assert_int_equal(n, s >= 4 ? 1 : differs ? 4 : 2);
                    n_by_runs[n]++;
                    for (size_t r = 1; r < n; r++) {
                        unsigned char *wanted = nd_tensor_alloc(fake_bytes(e)),
                                      *got = nd_tensor_alloc(fake_bytes(e));
                        fake_output(p, e, s, r, wanted);
                        assert_int_equal(nd_capture_read_repeat_verified(&tensor, s, r, got, NULL), ND_OK);
                        assert_memory_equal(got, wanted, fake_bytes(e));
                        free(wanted);
                        free(got);
                    }
                }
        assert_true(n_by_runs[1] > 0 && n_by_runs[4] > 0);
        struct nd_capture_verification verified = {.struct_size = sizeof verified};
        assert_int_equal(nd_capture_verify(capture, &verified, NULL), ND_OK);
        assert_true(verified.content_matches && verified.n_wrong == 0);
        nd_capture_close(&capture);
    }
}

/* 4 samples of a probe, at most one in 20 of all, at least one; the last probe before the first. */
static void few_samples_are_run_again(void **state)
{
    static const struct {
        size_t n_samples[3], n_rerun[3];
    } plans[] = {{{1, 1, 1}, {0, 0, 1}},   {{0, 1, 0}, {0, 1, 0}},   {{1, 1, 64}, {1, 1, 1}},
                 {{700, 0, 1}, {4, 0, 1}}, {{1, 1, 700}, {1, 1, 4}}, {{1000, 1000, 1000}, {4, 4, 4}},
                 {{19, 0, 0}, {1, 0, 0}},  {{40, 0, 0}, {2, 0, 0}},  {{0, 0, 0}, {0, 0, 0}}};
    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        struct nd_job_probe probes[3] = {{0}};
        struct nd_agent_job job = {.probes = probes, .n_probes = 3, .n_repeats = 1};
        for (size_t p = 0; p < 3; p++)
            probes[p].n_samples = plans[i].n_samples[p];
        nd_job_plan_reruns(&job);
        for (size_t p = 0; p < 3; p++)
            assert_int_equal(probes[p].n_rerun, plans[i].n_rerun[p]);
    }
}

/* ---- interruptions ---- */

static void cut_at(size_t size)
{
    assert_int_equal(truncate(spool_path, (off_t)size), 0);
}

static void interrupted_anywhere_comes_out_as_if_nothing_had_happened(void **state)
{
    (void)state;
    const char *text = getenv("ND_SEED");
    unsigned int seed = text != NULL ? (unsigned int)strtoul(text, NULL, 10) : 20269;
    size_t n_kills = 0, n_went_on = 0, n_failed = 0;
    print_message("# ND_SEED=%u\n", seed);
    srandom(seed);
    for (size_t trial = 0; trial < N_TRIALS; trial++) {
        size_t config = trial % N_CONFIGS, n_lives = 1 + (size_t)random() % MAX_KILLS;
        struct nd_error err = {0};
        put_spool(spools[config], spool_bytes[config]);
        for (size_t life = 1; life <= n_lives; life++) {
            cut_at((size_t)random() % file_size());
            size_t before = n_acknowledged();
            wake(config);
            /* But the last, lives may also end in a failure of the device, which is taken back. */
            if (life < n_lives)
                fake_device.fails_at = 1 + (size_t)random() % 20;
            bool went_on = go_on(config, life < n_lives, &err);
            assert_true(went_on || before == 0);
            assert_true(n_acknowledged() >= before);
            n_failed += count_all().n[ND_RECORD_FAILURE];
            n_went_on += went_on;
            n_kills++;
        }
        check_whole(config);
    }
    print_message("# %zu interruptions, %zu gone on with, %zu failures between\n", n_kills, n_went_on,
                  n_failed);
    assert_true(n_went_on > N_TRIALS / 2 && n_failed > N_TRIALS / 10);
}

/* Behind every record and, of the shorter spool, within its first and its last bytes. */
static void interrupted_at_any_record_comes_out_the_same(void **state)
{
    (void)state;
    static const int nudges[] = {0, 1, -1};
    for (size_t i = 0; i < 2; i++) {
        size_t config = i == 0 ? SMALL : SMALL - 1, offset = 0, n_went_on = 0;
        bool is_end = false;
        while (!is_end) {
            struct nd_error err = {0};
            struct nd_spool_reader reader = {.map = spools[config], .size_bytes = spool_bytes[config]};
            struct nd_record record;
            reader.offset_bytes = offset;
            for (size_t k = 0; k < (i == 0 ? 3 : 1); k++) {
                if ((offset == 0 && nudges[k] < 0) || (offset == spool_bytes[config] && nudges[k] > 0))
                    continue;
                put_spool(spools[config], (size_t)((long)offset + nudges[k]));
                wake(config);
                n_went_on += go_on(config, false, &err);
                check_whole(config);
            }
            is_end = !nd_spool_next(&reader, &record);
            offset = reader.offset_bytes;
        }
        assert_true(n_went_on > 20);
    }
}

/* A bit that flips on the device's storage: what is before it is kept. */
static void damaged_spool_is_gone_on_with_from_before_the_damage(void **state)
{
    (void)state;
    srandom(11);
    for (size_t i = 0; i < 24; i++) {
        size_t config = i % N_CONFIGS, at = (size_t)random() % spool_bytes[config];
        struct nd_error err = {0};
        ((unsigned char *)spools[config])[at] ^= 0x10;
        put_spool(spools[config], spool_bytes[config]);
        ((unsigned char *)spools[config])[at] ^= 0x10;
        if (at < 4)
            continue; /* then it is no spool */
        wake(config);
        go_on(config, false, &err);
        check_whole(config);
    }
}

static void missing_and_ended_spools_need_no_care(void **state)
{
    (void)state;
    struct nd_error err = {0};
    void *bytes = NULL;
    size_t n = 0;
    unlink(spool_path);
    wake(SMALL);
    assert_false(go_on(SMALL, false, &err));
    assert_int_equal(check_whole(SMALL), 0);
    put_spool(spools[SMALL], spool_bytes[SMALL]);
    fake_device.n_runs = 0;
    assert_false(go_on(SMALL, false, &err));
    assert_int_equal(fake_device.n_runs, 0);
    assert_int_equal(nd_file_read(spool_path, 1u << 30, &bytes, &n, NULL), ND_OK);
    assert_int_equal(n, spool_bytes[SMALL]);
    assert_memory_equal(bytes, spools[SMALL], n);
    free(bytes);
}

/* ---- what is refused ---- */

/* nd_resume_open refuses with these words, and the file stays as it is. */
static void check_refused(const struct nd_agent_job *job, const char *words)
{
    struct nd_error err = {0};
    struct nd_spool_writer writer;
    struct nd_resume resume = {0};
    void *before = NULL, *after = NULL;
    size_t n_before = 0, n_after = 0;
    assert_int_equal(nd_file_read(spool_path, 1u << 30, &before, &n_before, NULL), ND_OK);
    assert_int_equal(nd_resume_open(job, spool_path, &writer, &resume, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_SPOOL_RESUME);
    if (strstr(err.message, words) == NULL)
        fail_msg("%s", err.message);
    assert_int_equal(nd_file_read(spool_path, 1u << 30, &after, &n_after, NULL), ND_OK);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, n_before);
    free(before);
    free(after);
}

static void spool_of_another_job_is_refused(void **state)
{
    (void)state;
    struct nd_agent_job other = jobs[SMALL].base.job;
    put_spool(spools[SMALL], spool_bytes[SMALL] / 2);
    other.digest.high ^= 1;
    check_refused(&other, "is of another job");
    drop(ND_RECORD_JOB);
    check_refused(&jobs[SMALL].base.job, "does not say which job it is of");
    put_spool("Dear diary", 10);
    check_refused(&jobs[SMALL].base.job, "is not a spool");
}

static void spool_of_a_living_agent_is_refused(void **state)
{
    (void)state;
    struct nd_spool_writer writer, second;
    unlink(spool_path);
    assert_int_equal(nd_spool_writer_open(&writer, spool_path, NULL), ND_OK);
    check_refused(&jobs[SMALL].base.job, "another agent is still writing");
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    assert_int_equal(nd_spool_writer_reopen(&second, spool_path, NULL), ND_OK);
    assert_int_equal(nd_spool_writer_close(&second, NULL), ND_OK);
}

/* Records that are whole and cannot be of this job: nothing is cut, nothing is believed. */
static void spool_that_contradicts_the_job_is_refused(void **state)
{
    (void)state;
    static const struct nd_digest digests[2 * FAKE_TENSORS];
    static const struct nd_record strange[] = {
        {.kind = ND_RECORD_PASS, .index = {2}},
        {.kind = ND_RECORD_PASS, .index = {1}}, /* before the first is done */
        {.kind = ND_RECORD_CHUNK, .index = {0, FAKE_TENSORS, 0}},
        {.kind = ND_RECORD_CHUNK, .index = {0, TENSOR_BIG, 0}}, /* of another pass */
        {.kind = ND_RECORD_FRAGMENT, .index = {FAKE_PROBES, 0, 0, 1}},
        {.kind = ND_RECORD_OUTPUT, .index = {TENSOR_QVALUES}},
        {.kind = ND_RECORD_SAMPLE, .index = {0, 0, 1}},
        {.kind = ND_RECORD_SAMPLE, .index = {1, 0, 0}},
        {.kind = ND_RECORD_SAMPLE, .payload = digests, .payload_bytes = sizeof digests[0]},
    };
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        struct nd_spool_reader reader = {.map = spools[1], .size_bytes = spool_bytes[1]};
        struct nd_spool_writer writer;
        struct nd_record record;
        unlink(spool_path);
        assert_int_equal(nd_spool_writer_open(&writer, spool_path, NULL), ND_OK);
        do { /* up to the first session */
            assert_true(nd_spool_next(&reader, &record));
            assert_int_equal(nd_spool_append(&writer, &record, NULL), ND_OK);
        } while (record.kind != ND_RECORD_NODE);
        assert_int_equal(nd_spool_append(&writer, &strange[i], NULL), ND_OK);
        assert_int_equal(
            nd_spool_append(&writer, &(struct nd_record){.kind = ND_RECORD_ACK, .index = {0, 1}}, NULL), ND_OK);
        assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
        check_refused(&jobs[1].base.job, "contradicts the job at byte");
    }
}

/* An acknowledged sample whose bytes are nowhere: found before the session runs on. */
static void acknowledged_sample_without_its_bytes_is_refused(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_spool_writer writer;
    struct nd_resume resume = {0};
    put_spool(spools[0], spool_bytes[0]);
    drop(ND_RECORD_FRAGMENT);
    struct nd_spool_reader reader;
    struct nd_record record;
    size_t n_acks = 0, size = 0;
    assert_int_equal(nd_spool_reader_open(&reader, spool_path, NULL), ND_OK);
    while (n_acks < 2 && nd_spool_next(&reader, &record)) {
        n_acks += record.kind == ND_RECORD_ACK;
        size = reader.offset_bytes;
    }
    nd_spool_reader_close(&reader);
    cut_at(size);
    wake(0);
    assert_int_equal(nd_resume_open(&jobs[0].base.job, spool_path, &writer, &resume, NULL), ND_OK);
    assert_int_equal(nd_agent_run(&jobs[0].base.job, &resume, &writer, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_SPOOL_RESUME);
    assert_non_null(strstr(err.message, "lacks its data"));
    assert_int_equal(fake_device.n_runs, 0);
    nd_resume_close(&resume);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
}

/* A device that is another one now: its samples do not belong to those that are stored. Once it is the old one
 * again the run goes on. */
static void device_that_changed_meanwhile_fails(void **state)
{
    (void)state;
    struct nd_error err = {0};
    static const char *const words[] = {"the runtime is ONNX Runtime 1.2.4", "'/no/such/lib.so'",
                                        "node 'n1' (Add)"};
    for (size_t i = 0; i < 3; i++) {
        struct nd_spool_writer writer;
        struct nd_resume resume = {0};
        struct nd_spool_kept kept;
        put_spool(spools[SMALL], spool_bytes[SMALL] * 9 / 10);
        assert_int_equal(nd_spool_keep(spool_path, &kept, NULL), ND_OK);
        wake(SMALL);
        fake_device.version = i == 0 ? "1.2.4" : fake_device.version;
        fake_device.build_id = i == 1 ? "decaf" : fake_device.build_id;
        fake_device.provider = i == 2 ? "A" : fake_device.provider;
        assert_int_equal(nd_resume_open(&jobs[SMALL].base.job, spool_path, &writer, &resume, NULL), ND_OK);
        assert_true(resume.has_runs);
        assert_int_equal(nd_agent_run(&jobs[SMALL].base.job, &resume, &writer, &err), ND_ERR_DEVICE);
        if (strstr(err.message, words[i]) == NULL)
            fail_msg("%s", err.message);
        assert_int_equal(fake_device.n_runs, 0);
        nd_resume_close(&resume);
        assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
        assert_int_equal(count_all().n[ND_RECORD_FAILURE], 1);
        wake(SMALL);
        assert_true(go_on(SMALL, false, &err));
        assert_int_equal(check_whole(SMALL), 1); /* the failed resumption is taken back with what it recorded */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_that_are_run_again_are_in_the_capture),
        cmocka_unit_test(few_samples_are_run_again),
        cmocka_unit_test(interrupted_anywhere_comes_out_as_if_nothing_had_happened),
        cmocka_unit_test(interrupted_at_any_record_comes_out_the_same),
        cmocka_unit_test(damaged_spool_is_gone_on_with_from_before_the_damage),
        cmocka_unit_test(missing_and_ended_spools_need_no_care),
        cmocka_unit_test(spool_of_another_job_is_refused),
        cmocka_unit_test(spool_of_a_living_agent_is_refused),
        cmocka_unit_test(spool_that_contradicts_the_job_is_refused),
        cmocka_unit_test(acknowledged_sample_without_its_bytes_is_refused),
        cmocka_unit_test(device_that_changed_meanwhile_fails),
    };
    return cmocka_run_group_tests(tests, make_spools, remove_spools);
}
