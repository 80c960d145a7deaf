#include "support/main.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "devices/agent/spool/job_file.h"
#include "devices/agent/spool/spool.h"

struct place {
    char *folder;
    char *path;
};

static int make_place(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    if (place == NULL || nd_dir_make_temporary(&place->folder, NULL) != ND_OK)
        return -1;
    place->path = nd_path_join(place->folder, "a.nds");
    *state = place;
    return 0;
}

static int remove_place(void **state)
{
    struct place *place = *state;
    nd_dir_remove(place->folder);
    free(place->folder);
    free(place->path);
    free(place);
    return 0;
}

enum { N_RECORDS = 7 };

/* Records of growing payloads; offsets[i] is where record i begins, offsets[N_RECORDS] the end. */
static void write_records(const char *path, size_t offsets[N_RECORDS + 1])
{
    struct nd_spool_writer writer;
    assert_int_equal(nd_spool_writer_open(&writer, path, NULL), ND_OK);
    offsets[0] = 0;
    for (uint64_t i = 0; i < N_RECORDS; i++) {
        unsigned char payload[64];
        memset(payload, (int)i + 1, sizeof payload);
        struct nd_record record = {
            .kind = ND_RECORD_CHUNK, .index = {i, i * 10, 3, 4}, .payload = payload, .payload_bytes = i * 9};
        assert_int_equal(nd_spool_append(&writer, &record, NULL), ND_OK);
        offsets[i + 1] = offsets[i] + 56 + i * 9;
    }
    assert_int_equal(nd_spool_sync(&writer, NULL), ND_OK);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
}

/* How many whole records the file holds; checks each. */
static size_t count_records(const char *path, size_t *torn_bytes)
{
    struct nd_spool_reader reader;
    struct nd_record record;
    size_t n = 0;
    assert_int_equal(nd_spool_reader_open(&reader, path, NULL), ND_OK);
    while (nd_spool_next(&reader, &record)) {
        assert_int_equal(record.kind, ND_RECORD_CHUNK);
        assert_int_equal(record.index[0], n);
        assert_int_equal(record.index[1], n * 10);
        assert_int_equal(record.payload_bytes, n * 9);
        for (size_t i = 0; i < record.payload_bytes; i++)
            assert_int_equal(((const unsigned char *)record.payload)[i], n + 1);
        n++;
    }
    *torn_bytes = reader.torn_bytes;
    nd_spool_reader_close(&reader);
    return n;
}

static void spool_written_reads_back(void **state)
{
    const struct place *place = *state;
    size_t offsets[N_RECORDS + 1], torn = 1;
    write_records(place->path, offsets);
    assert_int_equal(count_records(place->path, &torn), N_RECORDS);
    assert_int_equal(torn, 0);
    struct nd_spool_writer writer;
    struct nd_error err;
    assert_int_equal(nd_spool_writer_open(&writer, place->path, &err), ND_ERR_IO); /* never overwritten */
}

static void spool_cut_anywhere_keeps_what_is_whole(void **state)
{
    const struct place *place = *state;
    size_t offsets[N_RECORDS + 1], torn;
    write_records(place->path, offsets);
    for (size_t size = offsets[N_RECORDS] + 1; size-- > 0;) {
        assert_int_equal(truncate(place->path, (off_t)size), 0);
        size_t whole = 0;
        while (whole < N_RECORDS && offsets[whole + 1] <= size)
            whole++;
        assert_int_equal(count_records(place->path, &torn), whole);
        assert_int_equal(torn, size - offsets[whole]);
    }
}

static void spool_with_any_bit_flipped_ends_before_that_record(void **state)
{
    const struct place *place = *state;
    size_t offsets[N_RECORDS + 1], torn;
    write_records(place->path, offsets);
    int fd = open(place->path, O_RDWR);
    for (size_t at = 0; at < offsets[N_RECORDS]; at++) {
        unsigned char byte, flipped;
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        flipped = byte ^ (unsigned char)(1u << (at % 8));
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
        size_t hit = 0;
        while (offsets[hit + 1] <= at)
            hit++;
        assert_int_equal(count_records(place->path, &torn), hit);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    close(fd);
}

/* Pages of files that this process has in memory. */
static size_t count_file_pages(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long all = 0, resident = 0, shared = 0;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu %lu", &all, &resident, &shared), 3);
    fclose(file);
    return shared;
}

/* 64 MiB, of which a quarter may be in memory at a time; what was read before is still there. */
static void spool_that_is_mapped_leaves_memory(void **state)
{
    struct place *place = *state;
    enum { N = 64, BYTES = 1 << 20, MAX_BYTES = N * BYTES / 4 };
    static unsigned char payload[BYTES];
    struct nd_spool_writer writer;
    assert_int_equal(nd_spool_writer_open(&writer, place->path, NULL), ND_OK);
    for (uint64_t i = 0; i < N; i++) {
        memset(payload, (int)i + 1, sizeof payload);
        struct nd_record record = {
            .kind = ND_RECORD_CHUNK, .payload = payload, .payload_bytes = sizeof payload};
        assert_int_equal(nd_spool_append(&writer, &record, NULL), ND_OK);
    }
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    struct nd_spool_reader reader;
    struct nd_record records[N];
    size_t n = 0, page = (size_t)sysconf(_SC_PAGESIZE), before = count_file_pages();
    assert_int_equal(nd_spool_reader_map(&reader, place->path, NULL), ND_OK);
    while (n < N && nd_spool_next(&reader, &records[n])) {
        n++;
        assert_true((count_file_pages() - before) * page < MAX_BYTES);
    }
    assert_int_equal(n, N);
    for (size_t i = 0; i < N; i++) {
        memset(payload, (int)i + 1, sizeof payload);
        assert_memory_equal(records[i].payload, payload, sizeof payload);
    }
    nd_spool_reader_close(&reader);
}

/* A mapping would send SIGBUS. A record that is longer than a piece is whole, too; what is left of the file is
 * read to its end. */
static void spool_that_is_shortened_meanwhile_ends(void **state)
{
    struct place *place = *state;
    static unsigned char payload[ND_SPOOL_PIECE_BYTES + 7], read[sizeof payload];
    struct nd_spool_writer writer;
    struct nd_error err;
    assert_int_equal(nd_spool_writer_open(&writer, place->path, NULL), ND_OK);
    for (size_t i = 0; i < 4; i++) {
        memset(payload, (int)i + 1, sizeof payload);
        struct nd_record record = {.kind = ND_RECORD_CHUNK,
                                   .payload = payload,
                                   .payload_bytes = i == 0 ? ND_SPOOL_PIECE_BYTES : sizeof payload};
        assert_int_equal(nd_spool_append(&writer, &record, NULL), ND_OK);
    }
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    struct nd_spool_reader reader;
    struct nd_record record;
    assert_int_equal(nd_spool_reader_open(&reader, place->path, NULL), ND_OK);
    assert_true(nd_spool_next(&reader, &record));
    memset(payload, 1, sizeof payload);
    assert_memory_equal(record.payload, payload, record.payload_bytes);
    assert_true(nd_spool_next(&reader, &record));
    assert_null(record.payload);
    memset(payload, 2, sizeof payload);
    assert_int_equal(nd_spool_load(&reader, record.offset_bytes, read, sizeof read, &err), ND_OK);
    assert_memory_equal(read, payload, sizeof read);
    assert_int_equal(truncate(place->path, (off_t)(reader.offset_bytes + 100)), 0);
    assert_false(nd_spool_next(&reader, &record));
    assert_true(reader.torn_bytes > 0);
    assert_int_equal(truncate(place->path, (off_t)(record.offset_bytes + sizeof read - 1)), 0);
    assert_int_equal(nd_spool_load(&reader, record.offset_bytes, read, sizeof read, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_READ);
    assert_int_equal(nd_spool_load(&reader, record.offset_bytes, read, sizeof read - 1, &err), ND_OK);
    nd_spool_reader_close(&reader);
}

static void follower_sees_records_as_they_come(void **state)
{
    const struct place *place = *state;
    struct nd_spool_follower follower = {.fd = -1};
    struct nd_record record;
    assert_false(nd_spool_follow(&follower, place->path, &record)); /* no file yet */
    size_t offsets[N_RECORDS + 1];
    write_records(place->path, offsets);
    size_t n = 0;
    while (nd_spool_follow(&follower, place->path, &record))
        assert_int_equal(record.index[0], n++);
    assert_int_equal(n, N_RECORDS);
    nd_spool_follower_close(&follower);
}

static void fields_survive_and_malformed_ones_end(void **state)
{
    (void)state;
    struct nd_strbuf payload = {0};
    nd_fields_add(&payload, "a", "1");
    nd_fields_add(&payload, "empty", NULL);
    nd_fields_add(&payload, "a", "2");
    nd_fields_add_u64(&payload, "n", UINT64_MAX);
    struct nd_record record = {.payload = payload.text, .payload_bytes = payload.len};
    char *value = nd_fields_get(&record, "a");
    assert_string_equal(value, "1");
    free(value);
    value = nd_fields_get(&record, "empty");
    assert_string_equal(value, "");
    free(value);
    assert_null(nd_fields_get(&record, "b"));
    uint64_t n = 0;
    assert_true(nd_fields_get_u64(&record, "n", &n));
    assert_true(n == UINT64_MAX);
    assert_false(nd_fields_get_u64(&record, "empty", &n));
    for (record.payload_bytes = 0; record.payload_bytes < payload.len; record.payload_bytes++) {
        size_t offset = 0;
        struct nd_record_field field;
        while (nd_fields_next(&record, &offset, &field))
            assert_true(offset <= record.payload_bytes);
    }
    nd_strbuf_deinit(&payload);
}

static const float input_data[2][3] = {{1, 2, 3}, {4, 5, 6}};

/* A job with one of everything. */
static void fill_job(struct nd_agent_job *job)
{
    static struct nd_agent_option option = {(char *)"soc_model", (char *)"57"};
    static struct nd_agent_option config = {(char *)"key", (char *)"value"};
    static char *io_nodes[] = {(char *)"q", (char *)"dq"}, *float_nodes[] = {(char *)"x_dq"};
    static struct nd_job_tensor tensors[] = {
        {.output = (char *)"x_q", .dtype = ND_DTYPE_U8, .scale = 0x1.99999ap-4F, .zero_point = -3},
        {.output = (char *)"y", .pass = 1}};
    static size_t checks[] = {0};
    static struct nd_job_pass passes[] = {{.model = (char *)"m0.onnx"},
                                          {.model = (char *)"m1.onnx", .checks = checks, .n_checks = 1}};
    static struct nd_job_target target = {
        .name = (char *)"x", .dtype = ND_DTYPE_F32, .shape = {.rank = 1, .dims = {3}}, .sample_bytes = 12};
    static const void *inputs[] = {input_data};
    static struct nd_job_probe probe = {.name = (char *)"p", .n_samples = 2, .inputs = inputs};
    *job = (struct nd_agent_job){.ort_library = (char *)"/o.so",
                                 .provider_name = (char *)"P",
                                 .provider_library = (char *)"/p.so",
                                 .optimisation = 99,
                                 .n_threads = 1,
                                 .n_repeats = 3,
                                 .deflate_level = 4,
                                 .store = ND_STORE_DIGEST,
                                 .log_severity = 2,
                                 .is_fallback_allowed = 1,
                                 .is_untouched = 1,
                                 .provider_options = &option,
                                 .n_provider_options = 1,
                                 .config = &config,
                                 .n_config = 1,
                                 .io_nodes = io_nodes,
                                 .n_io_nodes = 2,
                                 .float_nodes = float_nodes,
                                 .n_float_nodes = 1,
                                 .passes = passes,
                                 .n_passes = 2,
                                 .tensors = tensors,
                                 .n_tensors = 2,
                                 .targets = &target,
                                 .n_targets = 1,
                                 .probes = &probe,
                                 .n_probes = 1};
}

static void job_written_reads_back(void **state)
{
    const struct place *place = *state;
    struct nd_agent_job job, back = {0};
    fill_job(&job);
    assert_int_equal(nd_job_write(&job, place->path, NULL), ND_OK);
    assert_int_equal(nd_job_read(place->path, &back, NULL), ND_OK);
    assert_string_equal(back.ort_library, "/o.so");
    assert_string_equal(back.profile_prefix, "");
    assert_int_equal(back.optimisation, 99);
    assert_int_equal(back.n_repeats, 3);
    assert_int_equal(back.store, ND_STORE_DIGEST);
    assert_string_equal(back.provider_options[0].key, "soc_model");
    assert_string_equal(back.config[0].value, "value");
    assert_int_equal(back.n_io_nodes, 2);
    assert_string_equal(back.io_nodes[1], "dq");
    assert_int_equal(back.n_float_nodes, 1);
    assert_string_equal(back.float_nodes[0], "x_dq");
    assert_int_equal(back.n_passes, 2);
    assert_string_equal(back.passes[1].model, "m1.onnx");
    assert_int_equal(back.passes[1].n_checks, 1);
    assert_string_equal(back.tensors[1].output, "y");
    assert_int_equal(back.tensors[1].pass, 1);
    assert_int_equal(back.tensors[0].dtype, ND_DTYPE_U8);
    assert_memory_equal(&back.tensors[0].scale, &job.tensors[0].scale, sizeof(float));
    assert_int_equal(back.tensors[0].zero_point, -3);
    assert_true(back.tensors[1].scale == 0 && back.tensors[1].zero_point == 0);
    assert_int_equal(back.targets[0].shape.dims[0], 3);
    assert_memory_equal(back.probes[0].inputs[0], input_data, sizeof input_data);
    nd_job_deinit(&back);
}

static void job_cut_anywhere_is_refused(void **state)
{
    const struct place *place = *state;
    struct nd_agent_job job, back = {0};
    struct nd_error err = {0};
    fill_job(&job);
    assert_int_equal(nd_job_write(&job, place->path, NULL), ND_OK);
    struct stat info;
    assert_int_equal(stat(place->path, &info), 0);
    for (off_t size = info.st_size - 1; size >= 0; size--) {
        assert_int_equal(truncate(place->path, size), 0);
        assert_int_equal(nd_job_read(place->path, &back, &err), ND_ERR_FORMAT);
        assert_non_null(strstr(err.message, place->path));
    }
}

static void dims_parse_what_shapes_print(void **state)
{
    (void)state;
    char text[128];
    const struct nd_shape shapes[] = {{0}, {.rank = 1, .dims = {0}}, {.rank = 4, .dims = {1, 3, 224, 224}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct nd_shape back = {.rank = 7};
        assert_true(nd_dims_parse(nd_shape_format(&shapes[i], text, sizeof text), &back));
        assert_true(nd_shape_equal(&back, &shapes[i]));
    }
    static const char *const bad[] = {"", "x", "1x", "1xx2", "-1", "1x2x3x4x5x6x7x8x9", "unknown"};
    struct nd_shape back;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(nd_dims_parse(bad[i], &back));
}

static void append(struct nd_spool_writer *writer, uint32_t kind, uint64_t index)
{
    const struct nd_record record = {.kind = kind, .index = {index}, .payload = "xyz", .payload_bytes = 3};
    assert_int_equal(nd_spool_append(writer, &record, NULL), ND_OK);
}

/* What is kept of a spool, wherever it is cut, ends in an acknowledgement or begins a later pass. */
static void spool_keeps_what_is_acknowledged(void **state)
{
    const struct place *place = *state;
    enum { SIZE = 59, N = 11 };
    static const uint32_t kinds[N] = {ND_RECORD_JOB,  ND_RECORD_PASS, ND_RECORD_NODE,    ND_RECORD_ACK,
                                      ND_RECORD_LOG,  ND_RECORD_ACK,  ND_RECORD_PROFILE, ND_RECORD_PASS,
                                      ND_RECORD_NODE, ND_RECORD_ACK,  ND_RECORD_END};
    static const uint64_t indices[N] = {[7] = 1};
    static const bool is_kept[N] = {[3] = true, [5] = true, [7] = true, [9] = true, [10] = true};
    struct nd_spool_writer writer;
    struct nd_spool_kept kept = {.size_bytes = 1, .has_ended = true};
    assert_int_equal(nd_spool_keep(place->path, &kept, NULL), ND_OK); /* a missing one */
    assert_int_equal(kept.size_bytes, 0);
    assert_false(kept.has_ended);
    assert_int_equal(nd_spool_writer_open(&writer, place->path, NULL), ND_OK);
    for (size_t i = 0; i < N; i++)
        append(&writer, kinds[i], indices[i]);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    for (size_t size = N * SIZE + 1; size-- > 0;) {
        assert_int_equal(truncate(place->path, (off_t)size), 0);
        size_t expected = 0;
        for (size_t i = 0; i < size / SIZE; i++)
            expected = is_kept[i] ? (i + 1) * SIZE : expected;
        assert_int_equal(nd_spool_keep(place->path, &kept, NULL), ND_OK);
        assert_int_equal(kept.size_bytes, expected);
        assert_int_equal(kept.has_ended, size == N * SIZE);
    }
}

static void spool_reopened_is_cut_and_appended_to(void **state)
{
    const struct place *place = *state;
    size_t offsets[N_RECORDS + 1], torn;
    struct nd_spool_writer writer, second;
    struct nd_error err;
    write_records(place->path, offsets);
    assert_int_equal(nd_spool_writer_reopen(&writer, place->path, NULL), ND_OK);
    assert_int_equal(nd_spool_writer_reopen(&second, place->path, &err), ND_ERR_IO); /* one at a time */
    assert_int_equal(err.id, ND_E_SPOOL_RESUME);
    assert_int_equal(nd_spool_writer_cut(&writer, offsets[2], NULL), ND_OK);
    unsigned char payload[18];
    memset(payload, 3, sizeof payload);
    const struct nd_record record = {
        .kind = ND_RECORD_CHUNK, .index = {2, 20, 3, 4}, .payload = payload, .payload_bytes = sizeof payload};
    assert_int_equal(nd_spool_append(&writer, &record, NULL), ND_OK);
    assert_int_equal(writer.size_bytes, offsets[3]);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    assert_int_equal(count_records(place->path, &torn), 3);
    assert_int_equal(torn, 0);
}

/* Quantisers of the graph's own inputs and outputs may be on the CPU. ONNX Runtime put a transpose behind the
 * last layer of a network here: the model's quantiser went to the NPU with it, and a new one ends the graph. */
static void quantiser_that_took_the_place_of_one_may_be_on_the_cpu(void **state)
{
    (void)state;
    char *io_nodes[] = {(char *)"image_QuantizeLinear", (char *)"map_DequantizeLinear"};
    const char npu[] = "QNNExecutionProvider", cpu[] = "CPUExecutionProvider";
    struct nd_agent_job job = {
        .provider_name = (char *)npu, .io_nodes = io_nodes, .n_io_nodes = 2, .is_untouched = 1};
    struct nd_job_node nodes[] = {{cpu, "image_QuantizeLinear", "QuantizeLinear"},
                                  {npu, "sigmoid", "Sigmoid"},
                                  {npu, "map_DequantizeLinear", "DequantizeLinear"},
                                  {npu, "Transpose_token_342", "Transpose"},
                                  {npu, "QuantizeLinear_token_369", "QuantizeLinear"},
                                  {cpu, "DequantizeLinear_token_370", "DequantizeLinear"},
                                  {cpu, "DequantizeLinear_token_371", "DequantizeLinear"}};
    enum { N = sizeof nodes / sizeof nodes[0] };
    bool is_fell_back[N];
    nd_job_find_fell_back(&job, nodes, N - 1, is_fell_back);
    for (size_t i = 0; i < N - 1; i++)
        assert_false(is_fell_back[i]);
    nd_job_find_fell_back(&job, nodes, N, is_fell_back); /* one took a place, the other did not */
    for (size_t i = 0; i < N; i++)
        assert_int_equal(is_fell_back[i], i == N - 1);
    nodes[2].provider = cpu; /* then no place is free */
    nd_job_find_fell_back(&job, nodes, N - 1, is_fell_back);
    assert_true(is_fell_back[N - 2]);
    nodes[2].provider = npu;
    nodes[1].provider = cpu;
    nd_job_find_fell_back(&job, nodes, N - 1, is_fell_back);
    assert_true(is_fell_back[1] && !is_fell_back[N - 2]);
    job.is_untouched = 0; /* a copy gives out quantised values */
    nd_job_find_fell_back(&job, nodes, N - 1, is_fell_back);
    assert_true(is_fell_back[N - 2]);
    job.float_nodes = &io_nodes[1]; /* but for this one */
    job.n_float_nodes = 1;
    nd_job_find_fell_back(&job, nodes, N, is_fell_back);
    assert_true(!is_fell_back[N - 2] && is_fell_back[N - 1]);
    nodes[2].provider = cpu;
    nd_job_find_fell_back(&job, nodes, N, is_fell_back);
    assert_true(!is_fell_back[2] && is_fell_back[N - 2] && is_fell_back[N - 1]);
}

/* A Reshape stands between the graph's input and its quantiser, and another before its output. */
static void quantiser_that_was_moved_to_an_end_may_be_on_the_cpu(void **state)
{
    (void)state;
    const char npu[] = "QNNExecutionProvider", cpu[] = "CPUExecutionProvider";
    struct nd_job_target target = {.name = (char *)"x"};
    struct nd_job_tensor tensor = {.output = (char *)"y"};
    struct nd_agent_job job = {
        .provider_name = (char *)npu, .targets = &target, .n_targets = 1, .tensors = &tensor, .n_tensors = 1};
    struct nd_job_node nodes[] = {{cpu, "x_q", "QuantizeLinear"}, {cpu, "y_dq", "DequantizeLinear"},
                                  {cpu, "y_q", "QuantizeLinear"}, {cpu, "x_dq", "DequantizeLinear"},
                                  {cpu, "x_q", "Conv"},           {cpu, "xx_q", "QuantizeLinear"}};
    enum { N = sizeof nodes / sizeof nodes[0] };
    bool is_fell_back[N];
    nd_job_find_fell_back(&job, nodes, N, is_fell_back);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(is_fell_back[i], i >= 2);
}

/* A full disk at a record that nobody waits for, such as a library: no end may follow, or nobody would miss it.
 */
static void spool_that_lacks_a_record_gets_no_end(void **state)
{
    const struct place *place = *state;
    struct nd_error err = {0};
    struct nd_spool_writer writer;
    struct rlimit before, limit;
    static const unsigned char big[4096];
    const char *path = place->path;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){1024, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(nd_spool_writer_open(&writer, path, NULL), ND_OK);
    const struct nd_record stage = {.kind = ND_RECORD_STAGE},
                           library = {.kind = ND_RECORD_LIBRARY, .payload = big, .payload_bytes = sizeof big},
                           end = {.kind = ND_RECORD_END}, failure = {.kind = ND_RECORD_FAILURE};
    assert_int_equal(nd_spool_append(&writer, &stage, NULL), ND_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(nd_spool_append(&writer, &library, NULL), ND_ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(nd_spool_append(&writer, &end, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_WRITE);
    assert_int_equal(writer.size_bytes, 56); /* the stage */
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    /* The same where memory was out, which the agent may say. */
    assert_int_equal(nd_spool_writer_reopen(&writer, path, NULL), ND_OK);
    nd_spool_lose(&writer, ND_ERR_MEMORY);
    assert_int_equal(nd_spool_append(&writer, &end, NULL), ND_ERR_MEMORY);
    assert_int_equal(nd_spool_append(&writer, &failure, NULL), ND_OK);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        IN_PLACE(spool_written_reads_back),
        IN_PLACE(spool_cut_anywhere_keeps_what_is_whole),
        IN_PLACE(spool_with_any_bit_flipped_ends_before_that_record),
        IN_PLACE(spool_that_is_mapped_leaves_memory),
        IN_PLACE(spool_that_is_shortened_meanwhile_ends),
        IN_PLACE(follower_sees_records_as_they_come),
        IN_PLACE(spool_keeps_what_is_acknowledged),
        IN_PLACE(spool_reopened_is_cut_and_appended_to),
        cmocka_unit_test(fields_survive_and_malformed_ones_end),
        IN_PLACE(job_written_reads_back),
        IN_PLACE(job_cut_anywhere_is_refused),
        cmocka_unit_test(dims_parse_what_shapes_print),
        cmocka_unit_test(quantiser_that_took_the_place_of_one_may_be_on_the_cpu),
        cmocka_unit_test(quantiser_that_was_moved_to_an_end_may_be_on_the_cpu),
        cmocka_unit_test_setup_teardown(spool_that_lacks_a_record_gets_no_end, make_place, remove_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
