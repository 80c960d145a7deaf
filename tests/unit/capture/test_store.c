#include "support/main.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "capture/hdf5/chunk_decode.h"
#include "core/files/file.h"
#include "core/tensors/chunk.h"
#include "support/fake_run.h"

enum { N_CONFIGS = 7, MAX_REPEATS = 3, MAX_SAMPLES = 5 };

static const struct fake_options configs[N_CONFIGS] = {
    {.n_repeats = 1, .level = 0, .n_passes = 1},
    {.n_repeats = 1, .level = 1, .n_passes = 2, .pauses = true},
    {.n_repeats = 3, .level = 0, .n_passes = 2, .pauses = true},
    {.n_repeats = 3, .level = 1, .n_passes = 1, .pauses = true},
    {.n_repeats = 3, .level = 1, .n_passes = 2},
    {.n_repeats = 2, .level = 9, .n_passes = 1},
    {.n_repeats = 3, .level = 1, .n_passes = 2, .digests_only = true, .pauses = true},
};

static char *folder;
static char *spools[N_CONFIGS];

static char *in_folder(const char *name)
{
    char *path = nd_path_join(folder, name);
    assert_non_null(path);
    return path;
}

static int make_spools(void **state)
{
    (void)state;
    struct fake_task tasks[N_CONFIGS];
    if (nd_dir_make_temporary(&folder, NULL) != ND_OK)
        return -1;
    for (size_t i = 0; i < N_CONFIGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "config%zu.nds", i);
        spools[i] = nd_path_join(folder, name);
        tasks[i] = (struct fake_task){.path = spools[i], .options = &configs[i]};
    }
    return fake_spools(tasks, N_CONFIGS) ? 0 : -1;
}

static int remove_spools(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CONFIGS; i++)
        free(spools[i]);
    nd_dir_remove(folder);
    free(folder);
    return 0;
}

/* ---- reading a spool back ---- */

/* What has been seen of each run and each sample so far. */
struct seen {
    const struct fake_options *options;
    size_t pass;
    bool has_output[FAKE_TENSORS];
    unsigned char *data[FAKE_PROBES][FAKE_TENSORS];         /* all samples of repeat 0 */
    size_t n_bytes[FAKE_PROBES][FAKE_TENSORS][MAX_SAMPLES]; /* of the sample that were there, at least once */
    bool has_fragment[FAKE_PROBES][FAKE_TENSORS][MAX_SAMPLES];
    bool has_run[FAKE_PASSES][FAKE_PROBES][MAX_SAMPLES][MAX_REPEATS];
    bool has_repeat[FAKE_PROBES][FAKE_TENSORS][MAX_SAMPLES][MAX_REPEATS];
    size_t acknowledged[FAKE_PASSES][FAKE_PROBES];
    size_t n_acks[FAKE_PASSES][FAKE_PROBES];
    size_t n_fragments;
};

static void check_bytes(size_t probe, size_t tensor, size_t sample, size_t repeat, const void *bytes)
{
    size_t n = fake_bytes(tensor);
    unsigned char *expected = malloc(n + 1);
    assert_non_null(expected);
    fake_output(probe, tensor, sample, repeat, expected);
    if (n > 0 && memcmp(bytes, expected, n) != 0)
        fail_msg("probe %zu, tensor %zu, sample %zu, repeat %zu has other bytes", probe, tensor, sample,
                 repeat);
    free(expected);
}

static void take_output(struct seen *seen, const struct nd_record *record)
{
    size_t tensor = (size_t)record->index[0];
    uint64_t dtype = 0;
    struct nd_shape shape;
    assert_in_range(tensor, 0, FAKE_TENSORS - 1);
    assert_int_equal(fake_pass(seen->options, tensor), seen->pass);
    assert_false(seen->has_output[tensor]);
    assert_true(nd_fields_get_u64(record, "dtype", &dtype));
    assert_int_equal(dtype, fake_tensors[tensor].dtype);
    char *dims = nd_fields_get(record, "dims");
    assert_true(dims != NULL && nd_dims_parse(dims, &shape));
    assert_true(nd_shape_equal(&shape, &fake_tensors[tensor].shape));
    free(dims);
    seen->has_output[tensor] = true;
}

static void take_chunk(struct seen *seen, const struct nd_record *record)
{
    size_t p = (size_t)record->index[0], e = (size_t)record->index[1];
    struct nd_chunk_layout layout;
    struct nd_chunk_span span;
    assert_true(p < FAKE_PROBES && e < FAKE_TENSORS);
    assert_int_equal(fake_pass(seen->options, e), seen->pass);
    assert_int_equal(
        nd_chunk_layout_make(&fake_tensors[e].shape, fake_tensors[e].dtype, fake_samples[p], &layout, NULL),
        ND_OK);
    assert_true(record->index[2] < layout.n_chunks);
    nd_chunk_span(&layout, (size_t)record->index[2], &span);
    unsigned char *raw = malloc(layout.chunk_bytes);
    assert_non_null(raw);
    if (seen->options->level > 0) {
        struct nd_chunk_decoder decoder = {0};
        const struct nd_stored_chunk stored = {record->payload, record->payload_bytes, layout.elem_bytes, true,
                                               true};
        assert_int_equal(nd_chunk_decode(&decoder, &stored, raw, layout.chunk_bytes, NULL), ND_OK);
        nd_chunk_decoder_deinit(&decoder);
        for (size_t i = span.n_bytes; i < layout.chunk_bytes; i++)
            assert_int_equal(raw[i], 0); /* else the bytes would depend on what was there before */
    } else {
        assert_int_equal(record->payload_bytes, span.n_bytes);
        memcpy(raw, record->payload, span.n_bytes);
    }
    memcpy(seen->data[p][e] + span.first_sample * layout.sample_bytes + span.offset_bytes, raw, span.n_bytes);
    for (size_t i = 0; i < span.n_samples; i++)
        seen->n_bytes[p][e][span.first_sample + i] += span.n_bytes / span.n_samples;
    free(raw);
}

static void take_fragment(struct seen *seen, const struct nd_record *record)
{
    size_t p = (size_t)record->index[0], e = (size_t)record->index[1];
    size_t first = (size_t)record->index[2], n = (size_t)record->index[3];
    assert_true(p < FAKE_PROBES && e < FAKE_TENSORS && n > 0 && first + n <= fake_samples[p]);
    assert_int_equal(record->payload_bytes, n * fake_bytes(e));
    for (size_t i = 0; i < n; i++) {
        assert_false(seen->has_fragment[p][e][first + i]);
        seen->has_fragment[p][e][first + i] = true;
        check_bytes(p, e, first + i, 0, (const char *)record->payload + i * fake_bytes(e));
    }
    seen->n_fragments++;
}

static void take_sample(struct seen *seen, const struct nd_record *record)
{
    size_t p = (size_t)record->index[0], s = (size_t)record->index[1], r = (size_t)record->index[2], n = 0;
    assert_true(p < FAKE_PROBES && s < fake_samples[p] && r < seen->options->n_repeats);
    assert_false(seen->has_run[seen->pass][p][s][r]);
    seen->has_run[seen->pass][p][s][r] = true;
    assert_int_equal(record->index[3], fake_latency_ns(seen->pass, p, s, r));
    unsigned char *bytes = malloc(fake_bytes(TENSOR_BIG));
    assert_non_null(bytes);
    for (size_t e = 0; e < FAKE_TENSORS; e++) {
        if (fake_pass(seen->options, e) != seen->pass)
            continue;
        struct nd_digest digest;
        memcpy(&digest, (const char *)record->payload + n++ * sizeof digest, sizeof digest);
        fake_output(p, e, s, r, bytes);
        assert_true(nd_digest_equal(digest, nd_digest_bytes(bytes, fake_bytes(e))));
    }
    assert_int_equal(record->payload_bytes, n * sizeof(struct nd_digest));
    free(bytes);
}

static void take_repeat(struct seen *seen, const struct nd_record *record)
{
    size_t p = (size_t)record->index[0], e = (size_t)record->index[1];
    size_t s = (size_t)record->index[2], r = (size_t)record->index[3];
    assert_true(p < FAKE_PROBES && e < FAKE_TENSORS && s < fake_samples[p] && r < seen->options->n_repeats);
    assert_true(fake_differs(p, e, s, r));
    assert_int_equal(record->payload_bytes, fake_bytes(e));
    check_bytes(p, e, s, r, record->payload);
    seen->has_repeat[p][e][s][r] = true;
}

/* What an acknowledgement promises: every run of these samples, and their bytes, are in the file before it. */
static void check_promise(const struct seen *seen, size_t p, size_t n)
{
    for (size_t s = 0; s < n; s++)
        for (size_t r = 0; r < seen->options->n_repeats; r++) {
            assert_true(seen->has_run[seen->pass][p][s][r]);
            for (size_t e = 0; !seen->options->digests_only && e < FAKE_TENSORS; e++) {
                if (fake_pass(seen->options, e) != seen->pass)
                    continue;
                assert_true(seen->n_bytes[p][e][s] == fake_bytes(e) || seen->has_fragment[p][e][s]);
                if (fake_bytes(e) > 0)
                    assert_int_equal(seen->has_repeat[p][e][s][r], fake_differs(p, e, s, r));
            }
        }
}

static void take_ack(struct seen *seen, const struct nd_record *record)
{
    size_t p = (size_t)record->index[0], n = (size_t)record->index[1];
    assert_true(p < FAKE_PROBES && n <= fake_samples[p]);
    assert_true(n > seen->acknowledged[seen->pass][p]);
    seen->acknowledged[seen->pass][p] = n;
    seen->n_acks[seen->pass][p]++;
    check_promise(seen, p, n);
}

static void take_record(struct seen *seen, const struct nd_record *record)
{
    switch (record->kind) {
    case ND_RECORD_PASS:
        seen->pass = (size_t)record->index[0];
        break;
    case ND_RECORD_OUTPUT:
        take_output(seen, record);
        break;
    case ND_RECORD_CHUNK:
        take_chunk(seen, record);
        break;
    case ND_RECORD_FRAGMENT:
        take_fragment(seen, record);
        break;
    case ND_RECORD_SAMPLE:
        take_sample(seen, record);
        break;
    case ND_RECORD_REPEAT:
        take_repeat(seen, record);
        break;
    case ND_RECORD_ACK:
        take_ack(seen, record);
        break;
    default:
        break;
    }
}

static void check_end(const struct seen *seen)
{
    for (size_t p = 0; p < FAKE_PROBES; p++) {
        for (size_t pass = 0; pass < seen->options->n_passes; pass++)
            assert_int_equal(seen->acknowledged[pass][p], fake_samples[p]);
        for (size_t e = 0; e < FAKE_TENSORS; e++) {
            assert_true(seen->has_output[e]);
            for (size_t s = 0; s < fake_samples[p]; s++) {
                assert_int_equal(seen->n_bytes[p][e][s], seen->options->digests_only ? 0 : fake_bytes(e));
                if (!seen->options->digests_only)
                    check_bytes(p, e, s, 0, seen->data[p][e] + s * fake_bytes(e));
            }
        }
    }
    /* The end, and 2 or 3 of the 5 samples: a pause is longer than the time between two acknowledgements, but
     * on a slow disk one can take so long that the second pause has none. */
    if (seen->options->pauses)
        assert_true(seen->n_acks[0][1] >= 2);
    if (seen->options->pauses && !seen->options->digests_only)
        assert_true(seen->n_fragments > 0);
    if (seen->options->digests_only)
        assert_int_equal(seen->n_fragments, 0);
}

static void check_spool(size_t config)
{
    struct seen *seen = calloc(1, sizeof *seen);
    struct nd_spool_reader reader;
    struct nd_record record = {0};
    assert_non_null(seen);
    seen->options = &configs[config];
    for (size_t p = 0; p < FAKE_PROBES; p++)
        for (size_t e = 0; e < FAKE_TENSORS; e++)
            assert_non_null(seen->data[p][e] = malloc(fake_samples[p] * fake_bytes(e) + 1));
    assert_int_equal(nd_spool_reader_open(&reader, spools[config], NULL), ND_OK);
    while (nd_spool_next(&reader, &record))
        take_record(seen, &record);
    assert_int_equal(reader.torn_bytes, 0);
    assert_int_equal(record.kind, ND_RECORD_END);
    check_end(seen);
    nd_spool_reader_close(&reader);
    for (size_t p = 0; p < FAKE_PROBES; p++)
        for (size_t e = 0; e < FAKE_TENSORS; e++)
            free(seen->data[p][e]);
    free(seen);
}

static void runs_stored_read_back_bit_for_bit(void **state)
{
    (void)state;
    for (size_t config = 0; config < N_CONFIGS; config++)
        check_spool(config);
}

/* The layouts that the tensors are there for; should the target size of chunks change, so must they. */
static void tensors_of_the_test_are_cut_in_every_way(void **state)
{
    (void)state;
    static const struct {
        size_t tensor, samples_per_chunk, chunks_per_sample, n_chunks;
    } cuts[] = {{TENSOR_QVALUES, 5, 1, 1}, {TENSOR_PAIR, 2, 1, 3},   {TENSOR_BIG, 1, 2, 10},
                {TENSOR_EMPTY, 5, 1, 0},   {TENSOR_SCALAR, 5, 1, 1}, {TENSOR_WHOLE, 1, 1, 5}};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        const struct fake_tensor *tensor = &fake_tensors[cuts[i].tensor];
        struct nd_chunk_layout layout;
        assert_int_equal(nd_chunk_layout_make(&tensor->shape, tensor->dtype, 5, &layout, NULL), ND_OK);
        assert_int_equal(layout.samples_per_chunk, cuts[i].samples_per_chunk);
        assert_int_equal(layout.chunks_per_sample, cuts[i].chunks_per_sample);
        assert_int_equal(layout.n_chunks, cuts[i].n_chunks);
    }
}

/* ---- one pass by hand ---- */

struct bench {
    struct fake_options options;
    struct fake_job fake;
    struct fake_views views;
    struct nd_spool_writer writer;
    struct nd_store_thread *store;
    char *path;
};

static void bench_open(struct bench *bench, const char *name)
{
    *bench = (struct bench){.options = {.n_repeats = 1, .level = 1, .n_passes = 1}, .path = in_folder(name)};
    fake_job_fill(&bench->fake, &bench->options);
    assert_true(fake_views_make(&bench->views, &bench->options, 0));
    assert_int_equal(nd_spool_writer_open(&bench->writer, bench->path, NULL), ND_OK);
    assert_int_equal(nd_store_start(&bench->fake.job, 0, &bench->writer, &bench->store, NULL), ND_OK);
}

static void bench_close(struct bench *bench)
{
    assert_null(bench->store);
    assert_int_equal(nd_spool_writer_close(&bench->writer, NULL), ND_OK);
    fake_views_free(&bench->views);
    free(bench->path);
}

/* The last acknowledgement in the file, and the number of records of a kind. */
static size_t last_ack(const char *path)
{
    struct nd_spool_follower follower = {.fd = -1};
    struct nd_record record;
    size_t n = 0;
    while (nd_spool_follow(&follower, path, &record))
        if (record.kind == ND_RECORD_ACK && record.index[0] == 1)
            n = (size_t)record.index[1];
    nd_spool_follower_close(&follower);
    return n;
}

static void slow_runs_are_acknowledged_within_half_a_second(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "slow.nds");
    for (size_t s = 0; s < 3; s++) {
        assert_int_equal(fake_put(bench.store, &bench.views, 1, s, 0, NULL), ND_OK);
        fake_pause(300);
        assert_true(last_ack(bench.path) >= s); /* everything older than 600 ms */
    }
    assert_int_equal(nd_store_finish(&bench.store, NULL), ND_OK);
    assert_int_equal(last_ack(bench.path), 3);
    bench_close(&bench);
}

/* The clock runs from the oldest sample that waits, not from the newest: once it was 800 ms for the first of
 * two. */
static void second_run_does_not_delay_the_first_ones_acknowledgement(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, "delayed.nds");
    assert_int_equal(fake_put(bench.store, &bench.views, 1, 0, 0, NULL), ND_OK);
    fake_pause(360);
    assert_int_equal(fake_put(bench.store, &bench.views, 1, 1, 0, NULL), ND_OK);
    fake_pause(240);
    assert_true(last_ack(bench.path) >= 1);
    assert_int_equal(nd_store_finish(&bench.store, NULL), ND_OK);
    bench_close(&bench);
}

static void run_of_another_type_or_shape_is_refused(void **state)
{
    (void)state;
    for (int change = 0; change < 3; change++) {
        struct nd_error err = {0};
        struct bench bench;
        char name[32];
        snprintf(name, sizeof name, "change%d.nds", change);
        bench_open(&bench, name);
        assert_int_equal(fake_put(bench.store, &bench.views, 1, 0, 0, &err), ND_OK);
        struct nd_output_view *view = &bench.views.all[TENSOR_PAIR], kept = *view;
        if (change == 0)
            view->dtype = ND_DTYPE_I16;
        else if (change == 1)
            view->shape = (struct nd_shape){2, {45000, 1}};
        else
            view->shape.rank = 1;
        const struct nd_store_run run = {.probe = 1, .sample = 1, .views = bench.views.of_pass};
        assert_int_equal(nd_store_put(bench.store, &run, &err), ND_ERR_DEVICE);
        assert_int_equal(err.id, ND_E_DEVICE_OUTPUT);
        assert_string_equal(err.message, "output 'pair' changed its type or shape between two runs");
        *view = kept;
        assert_int_equal(nd_store_finish(&bench.store, &err), ND_OK); /* what was before is kept */
        assert_int_equal(last_ack(bench.path), 1);
        bench_close(&bench);
    }
}

static void output_of_too_high_a_rank_is_refused(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct bench bench;
    bench_open(&bench, "rank.nds");
    bench.views.all[TENSOR_QVALUES].shape = (struct nd_shape){ND_MAX_RANK, {1, 1, 1, 1, 1, 1, 3, 4}};
    const struct nd_store_run run = {.probe = 0, .views = bench.views.of_pass};
    assert_int_equal(nd_store_put(bench.store, &run, &err), ND_ERR_DEVICE);
    assert_string_equal(err.message, "output 'conv/codes' has rank 8; at most 7 can be stored");
    assert_int_equal(nd_store_finish(&bench.store, &err), ND_OK);
    bench_close(&bench);
}

static void nothing_put_is_nothing_stored(void **state)
{
    (void)state;
    struct bench bench;
    struct nd_store_thread *none = NULL;
    bench_open(&bench, "nothing.nds");
    assert_int_equal(nd_store_finish(&bench.store, NULL), ND_OK);
    assert_int_equal(nd_store_finish(&none, NULL), ND_OK);
    struct nd_spool_reader reader;
    assert_int_equal(nd_spool_reader_open(&reader, bench.path, NULL), ND_OK);
    assert_int_equal(reader.size_bytes, 0);
    assert_false(nd_spool_next(&reader, &(struct nd_record){0}));
    nd_spool_reader_close(&reader);
    bench_close(&bench);
}

static void limit_file_size(rlim_t n_bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n_bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Whole records only. */
static void check_whole(const char *path)
{
    struct nd_spool_reader reader;
    struct nd_record record = {0};
    assert_int_equal(nd_spool_reader_open(&reader, path, NULL), ND_OK);
    while (nd_spool_next(&reader, &record))
        ;
    assert_int_equal(reader.torn_bytes, 0);
    nd_spool_reader_close(&reader);
}

/* The error comes out of some later put, at the latest out of finish. Nobody waits for ever. */
static void full_disk_is_reported_and_leaves_whole_records(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < 300000; limit += 27001) {
        struct nd_error err = {0};
        struct bench bench;
        char name[64];
        snprintf(name, sizeof name, "full%llu.nds", (unsigned long long)limit);
        bench_open(&bench, name);
        bench.fake.job.deflate_level = 0;
        limit_file_size(limit);
        enum nd_status status = ND_OK;
        for (size_t s = 0; status == ND_OK && s < fake_samples[1]; s++)
            status = fake_put(bench.store, &bench.views, 1, s, 0, &err);
        enum nd_status finished = nd_store_finish(&bench.store, &err);
        limit_file_size(RLIM_INFINITY);
        assert_int_equal(finished, ND_ERR_IO);
        assert_true(status == ND_OK || status == finished);
        assert_int_equal(err.id, ND_E_FILE_WRITE);
        assert_non_null(strstr(err.message, bench.path));
        /* There is room again, but a record is missing: nothing may be appended behind it. */
        assert_int_equal(nd_spool_append(&bench.writer, &(struct nd_record){.kind = ND_RECORD_FAILURE}, NULL),
                         ND_ERR_IO);
        check_whole(bench.path);
        bench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_the_test_are_cut_in_every_way),
        cmocka_unit_test(runs_stored_read_back_bit_for_bit),
        cmocka_unit_test(slow_runs_are_acknowledged_within_half_a_second),
        cmocka_unit_test(second_run_does_not_delay_the_first_ones_acknowledgement),
        cmocka_unit_test(run_of_another_type_or_shape_is_refused),
        cmocka_unit_test(output_of_too_high_a_rank_is_refused),
        cmocka_unit_test(nothing_put_is_nothing_stored),
        cmocka_unit_test(full_disk_is_reported_and_leaves_whole_records),
    };
    return cmocka_run_group_tests(tests, make_spools, remove_spools);
}
