#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "core/files/file.h"
#include "record/sessions/assemble_outputs.h"
#include "support/failing_memory.h"
#include "support/fake_run.h"

enum { N_CONFIGS = 6, DIGESTS = 4, FAILS = 5, N_RANDOM_CUTS = 12 / ND_SANITIZED_SHARE };

static const struct fake_options configs[N_CONFIGS] = {
    {.n_repeats = 1, .level = 1, .n_passes = 1, .pauses = true},
    {.n_repeats = 3, .level = 0, .n_passes = 2, .pauses = true},
    {.n_repeats = 3, .level = 1, .n_passes = 2, .pauses = true},
    {.n_repeats = 1, .level = 0, .n_passes = 1, .pauses = true},
    {.n_repeats = 3, .level = 1, .n_passes = 1, .pauses = true, .digests_only = true},
    {.n_repeats = 1, .level = 1, .n_passes = 1, .fails = true},
};

static char *folder, *capture_path, *cut_path;
static char *spools[N_CONFIGS];
static void *bytes[N_CONFIGS]; /* of the spools */
static size_t n_bytes[N_CONFIGS];

static int make_spools(void **state)
{
    (void)state;
    struct fake_task tasks[N_CONFIGS];
    if (nd_dir_make_temporary(&folder, NULL) != ND_OK)
        return -1;
    capture_path = nd_path_join(folder, "a.h5");
    cut_path = nd_path_join(folder, "cut.nds");
    for (size_t i = 0; i < N_CONFIGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "config%zu.nds", i);
        spools[i] = nd_path_join(folder, name);
        tasks[i] = (struct fake_task){.path = spools[i], .options = &configs[i]};
    }
    if (!fake_spools(tasks, N_CONFIGS))
        return -1;
    for (size_t i = 0; i < N_CONFIGS; i++)
        if (nd_file_read(spools[i], 1u << 30, &bytes[i], &n_bytes[i], NULL) != ND_OK)
            return -1;
    return 0;
}

static int remove_spools(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CONFIGS; i++) {
        free(spools[i]);
        free(bytes[i]);
    }
    free(capture_path);
    free(cut_path);
    nd_dir_remove(folder);
    free(folder);
    return 0;
}

/* ---- the request ---- */

/* What the host knows: tensors as the model has them, before the run tells more, and probes. */
struct request {
    struct nd_tensor tensors[FAKE_TENSORS];
    const struct nd_tensor *tensor_list[FAKE_TENSORS];
    size_t pass_of_tensor[FAKE_TENSORS];
    struct nd_probe_input inputs[FAKE_PROBES];
    struct nd_probe probes[FAKE_PROBES];
    const struct nd_probe *probe_list[FAKE_PROBES];
    struct nd_assembly assembly;
};

static float scales[3] = {0.5f, 0.25f, 0.125f};
static int64_t zero_points[3] = {128, 3, 7};
static unsigned char input_data[5 * 6 + 64];
static int64_t labels[5] = {4, 3, 2, 1, 0};

static void fill_tensors(struct request *request, const struct fake_options *options)
{
    for (size_t e = 0; e < FAKE_TENSORS; e++) {
        request->tensors[e] =
            (struct nd_tensor){.name = (char *)(uintptr_t)fake_tensors[e].name,
                               .onnx_name = (char *)(uintptr_t)fake_tensors[e].name,
                               .op_types = (char *)(uintptr_t) "Op",
                               .node = (char *)(uintptr_t)(e == TENSOR_QVALUES ? "n0" : "other"),
                               .dtype = fake_tensors[e].dtype,
                               .shape = fake_tensors[e].shape,
                               .quant = {.axis = -1}};
        request->tensor_list[e] = &request->tensors[e];
        request->pass_of_tensor[e] = fake_pass(options, e);
    }
    request->tensors[TENSOR_QVALUES].quant = (struct nd_quant){1, -1, scales, zero_points};
    /* Not known before a run: the type of one, the shape of others, and so where an axis is. */
    request->tensors[TENSOR_SCALAR].dtype = ND_DTYPE_NONE;
    request->tensors[TENSOR_SCALAR].shape.rank = -1;
    request->tensors[TENSOR_BIG].shape = (struct nd_shape){.rank = -1};
    request->tensors[TENSOR_BIG].quant = (struct nd_quant){3, -2, scales, zero_points};
}

static struct request *make_request(size_t config, const char *spool)
{
    const struct fake_options *options = &configs[config];
    struct request *request = calloc(1, sizeof *request);
    assert_non_null(request);
    fill_tensors(request, options);
    for (size_t i = 0; i < sizeof input_data; i++)
        input_data[i] = (unsigned char)(i * 3);
    for (size_t p = 0; p < FAKE_PROBES; p++) {
        request->inputs[p] =
            (struct nd_probe_input){(char *)(uintptr_t) "in", ND_DTYPE_U8, {2, {2, 3}}, 6, input_data + p};
        request->probes[p] = (struct nd_probe){.name = (char *)(uintptr_t)fake_probe_names[p],
                                               .source = (char *)(uintptr_t) "fake",
                                               .n_samples = fake_samples[p],
                                               .n_inputs = 1,
                                               .inputs = &request->inputs[p],
                                               .labels = p == 1 ? labels : NULL};
        request->probe_list[p] = &request->probes[p];
    }
    request->assembly = (struct nd_assembly){.spool_path = spool,
                                             .path = capture_path,
                                             .replace = true,
                                             .tensors = request->tensor_list,
                                             .pass_of_tensor = request->pass_of_tensor,
                                             .n_tensors = FAKE_TENSORS,
                                             .n_passes = options->n_passes,
                                             .probes = request->probe_list,
                                             .n_probes = FAKE_PROBES,
                                             .n_repeats = options->n_repeats,
                                             .deflate_level = options->level,
                                             .store_digests_only = options->digests_only};
    return request;
}

static struct nd_capture *assemble(const struct request *request, struct nd_assembled *assembled)
{
    struct nd_error err = {0};
    struct nd_capture *capture = NULL;
    enum nd_status status = nd_capture_assemble(&request->assembly, assembled, &err);
    if (status == ND_OK)
        status = nd_capture_open(capture_path, &capture, &err);
    if (status != ND_OK)
        print_message("# %s\n", err.message);
    assert_int_equal(status, ND_OK);
    return capture;
}

/* ---- what must be in the capture ---- */

static void check_sample(const struct nd_capture *capture, size_t config, size_t p, size_t e, size_t s)
{
    struct nd_error err = {0};
    size_t n = fake_bytes(e);
    unsigned char *expected = nd_tensor_alloc(n), *found = nd_tensor_alloc(n);
    assert_true(expected != NULL && found != NULL);
    for (size_t r = 0; r < configs[config].n_repeats; r++) {
        fake_output(p, e, s, r, expected);
        assert_true(nd_digest_equal(nd_capture_digest(capture, p, e, s, r), nd_digest_bytes(expected, n)));
        if (configs[config].digests_only)
            continue;
        memset(found, 0xa5, n);
        enum nd_status status =
            nd_capture_read_repeat(&(struct nd_probe_values){capture, p, e}, s, r, found, &err);
        if (status != ND_OK || (n > 0 && memcmp(found, expected, n) != 0))
            fail_msg("config %zu, probe %zu, tensor %zu, sample %zu, repeat %zu: %s", config, p, e, s, r,
                     status != ND_OK ? err.message : "other bytes");
    }
    free(expected);
    free(found);
}

static void check_probe(const struct nd_capture *capture, size_t config, size_t p, size_t n_complete)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    unsigned char inputs[5 * 6];
    assert_string_equal(probe->name, fake_probe_names[p]);
    assert_string_equal(probe->source, "fake");
    assert_int_equal(probe->n_samples, n_complete);
    assert_int_equal(probe->n_samples_expected, fake_samples[p]);
    assert_int_equal(probe->n_repeats, configs[config].n_repeats);
    assert_int_equal(
        nd_capture_read_inputs(&(struct nd_probe_values){capture, p, 0}, 0, fake_samples[p], inputs, NULL),
        ND_OK);
    assert_memory_equal(inputs, input_data + p, 6 * fake_samples[p]);
    assert_true(p == 1 ? probe->labels[4] == 0 && probe->labels[0] == 4 : probe->labels == NULL);
    for (size_t s = 0; s < n_complete; s++)
        for (size_t r = 0; r < probe->n_repeats; r++)
            assert_f64_bits(probe->latency_us[s * probe->n_repeats + r],
                            (double)fake_latency_ns(0, p, s, r) * 1e-3);
    for (size_t e = 0; e < FAKE_TENSORS; e++) {
        assert_int_equal(nd_capture_has_outputs(capture, p, e),
                         n_complete > 0 && !configs[config].digests_only);
        for (size_t s = 0; s < n_complete; s++)
            check_sample(capture, config, p, e, s);
    }
}

/* What the records promise: samples that every pass has acknowledged. */
struct promise {
    size_t n_complete[FAKE_PROBES];
    bool has_end;
    size_t n_nodes; /* of pass 0 */
    bool is_big_in_later_pass;
    bool has_big; /* the run has told the shape of EDGE_BIG */
    char stage[32];
};

static struct promise read_promise(size_t config, const char *path)
{
    size_t acknowledged[FAKE_PASSES][FAKE_PROBES] = {{0}}, pass = 0;
    struct promise promise = {.stage = "start", .is_big_in_later_pass = configs[config].n_passes > 1};
    struct nd_spool_reader reader;
    struct nd_record record;
    assert_int_equal(nd_spool_reader_open(&reader, path, NULL), ND_OK);
    while (nd_spool_next(&reader, &record)) {
        if (record.kind == ND_RECORD_PASS)
            pass = (size_t)record.index[0];
        else if (record.kind == ND_RECORD_ACK)
            acknowledged[pass][record.index[0]] = (size_t)record.index[1];
        promise.has_end = promise.has_end || record.kind == ND_RECORD_END;
        promise.n_nodes += record.kind == ND_RECORD_NODE;
        promise.has_big = promise.has_big || (record.kind == ND_RECORD_OUTPUT && record.index[0] == TENSOR_BIG);
        if (record.kind == ND_RECORD_STAGE) {
            char *stage = nd_fields_get(&record, "stage");
            snprintf(promise.stage, sizeof promise.stage, "%s", stage);
            free(stage);
        }
    }
    nd_spool_reader_close(&reader);
    for (size_t p = 0; p < FAKE_PROBES; p++) {
        promise.n_complete[p] = acknowledged[0][p];
        if (configs[config].n_passes > 1 && acknowledged[1][p] < promise.n_complete[p])
            promise.n_complete[p] = acknowledged[1][p];
    }
    return promise;
}

static int64_t failure_code(const struct nd_capture *capture)
{
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        if (strcmp(attr->group, "failure") == 0 && strcmp(attr->key, "code") == 0)
            return attr->i64;
    }
    return -1;
}

static void check_tensors(const struct nd_capture *capture, const struct promise *promise)
{
    assert_int_equal(nd_capture_n_tensors(capture), FAKE_TENSORS);
    assert_string_equal(nd_capture_tensor_provider(capture, TENSOR_QVALUES),
                        promise->n_nodes > 0 ? "FakeProvider" : "");
    /* Its node is not listed: known only while all that is listed for its pass ran on one provider. */
    bool is_known = promise->n_nodes == 1 && !promise->is_big_in_later_pass;
    assert_string_equal(nd_capture_tensor_provider(capture, TENSOR_BIG), is_known ? "FakeProvider" : "");
    assert_int_equal(nd_capture_tensor(capture, TENSOR_QVALUES)->quant.n, 1);
    const struct nd_tensor *big = nd_capture_tensor(capture, TENSOR_BIG);
    /* An axis that counts from the end has no meaning without a rank. */
    assert_int_equal(big->shape.rank, promise->has_big ? 2 : -1);
    assert_int_equal(big->quant.n, promise->has_big ? 3 : 0);
    assert_int_equal(big->quant.axis, promise->has_big ? 0 : -1);
}

/* Assembles this spool and holds the capture against what its records promise. */
static struct promise check_assembly(size_t config, const char *spool)
{
    struct nd_assembled assembled = {0};
    struct nd_capture_verification sound = {.struct_size = sizeof sound};
    struct request *request = make_request(config, spool);
    const struct promise promise = read_promise(config, spool);
    struct nd_capture *capture = assemble(request, &assembled);
    enum nd_capture_status state = promise.has_end ? ND_CAPTURE_COMPLETE : ND_CAPTURE_FAILED;
    assert_int_equal(assembled.state, state);
    assert_int_equal(nd_capture_state(capture), state);
    assert_int_equal(assembled.samples_done, promise.n_complete[0] + promise.n_complete[1]);
    check_tensors(capture, &promise);
    for (size_t p = 0; p < FAKE_PROBES; p++)
        check_probe(capture, config, p, promise.n_complete[p]);
    assert_int_equal(nd_capture_verify(capture, &sound, NULL), ND_OK);
    assert_int_equal(sound.n_wrong, 0);
    assert_true(sound.content_matches);
    if (!promise.has_end) {
        assert_string_equal(assembled.stage, promise.stage);
        assert_string_equal(nd_capture_string(capture, "failure", "stage"), promise.stage);
        assert_int_equal(failure_code(capture), assembled.failure.id);
        assert_string_equal(nd_capture_string(capture, "failure", "message"), assembled.failure.message);
    } else {
        assert_null(nd_capture_string(capture, "failure", "stage"));
    }
    nd_capture_close(&capture);
    free(request);
    return promise;
}

/* ---- whole spools ---- */

static void whole_spool_gives_a_complete_capture(void **state)
{
    (void)state;
    for (size_t config = 0; config < N_CONFIGS; config++) {
        struct promise promise = check_assembly(config, spools[config]);
        assert_int_equal(promise.has_end, config != FAILS);
        assert_int_equal(promise.n_complete[1], fake_samples[1]);
    }
}

static void same_spool_gives_the_same_bytes(void **state)
{
    (void)state;
    void *text[2];
    size_t n[2];
    for (size_t i = 0; i < 2; i++) {
        struct nd_assembled assembled;
        struct request *request = make_request(2, spools[2]);
        struct nd_capture *capture = assemble(request, &assembled);
        nd_capture_close(&capture);
        assert_int_equal(nd_file_read(capture_path, 1u << 30, &text[i], &n[i], NULL), ND_OK);
        free(request);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(text[0], text[1], n[0]);
    free(text[0]);
    free(text[1]);
}

static void logs_and_versions_are_kept(void **state)
{
    (void)state;
    struct nd_assembled assembled;
    struct request *request = make_request(0, spools[0]);
    char *printed = nd_path_join(folder, "stdout.txt");
    assert_int_equal(nd_file_put(printed, "hello\n", 6, NULL), ND_OK);
    request->assembly.stdout_path = printed;
    struct nd_capture *capture = assemble(request, &assembled);
    assert_string_equal(nd_capture_string(capture, "runtime", "ort_version"), "1.2.3");
    assert_string_equal(nd_capture_string(capture, "runtime", "ort_build_info"), "fake build");
    assert_string_equal(nd_capture_string(capture, "runtime", "library_000_path"), "/no/such/lib.so");
    assert_string_equal(nd_capture_string(capture, "runtime", "library_000_sha256"), "unreadable");
    assert_string_equal(nd_capture_string(capture, "runtime", "library_000_build_id"), "c0ffee");
    assert_int_equal(nd_capture_n_nodes(capture), 2);
    assert_string_equal(nd_capture_node(capture, 0)->op_type, "Conv");
    assert_int_equal(nd_capture_n_logs(capture), 2);
    assert_string_equal(nd_capture_log_name(capture, 0), "onnxruntime");
    assert_string_equal(nd_capture_log_text(capture, 0), "[warning] here: a warning\n");
    assert_string_equal(nd_capture_log_name(capture, 1), "stdout");
    assert_string_equal(nd_capture_log_text(capture, 1), "hello\n");
    nd_capture_close(&capture);
    free(request);
    free(printed);
}

/* A device that prints without end: its last words are kept. */
static void log_too_long_keeps_its_end(void **state)
{
    (void)state;
    struct nd_assembled assembled;
    struct request *request = make_request(FAILS, spools[FAILS]);
    char *printed = nd_path_join(folder, "long.txt");
    size_t size = (8u << 20) + 1000;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, 'x', size);
    memcpy(text + size - 5, "dying", 5);
    assert_int_equal(nd_file_put(printed, text, size, NULL), ND_OK);
    request->assembly.stdout_path = printed;
    struct nd_capture *capture = assemble(request, &assembled);
    const char *log = nd_capture_log_text(capture, nd_capture_n_logs(capture) - 1);
    assert_int_equal(strlen(log), 8u << 20);
    assert_string_equal(log + strlen(log) - 5, "dying");
    nd_capture_close(&capture);
    free(request);
    free(printed);
    free(text);
}

static void reproducible_leaves_out_what_differs_between_runs(void **state)
{
    (void)state;
    struct nd_assembled assembled;
    for (size_t config = 2; config < N_CONFIGS; config += FAILS - 2) {
        struct request *request = make_request(config, spools[config]);
        request->assembly.is_reproducible = true;
        struct nd_capture *capture = assemble(request, &assembled);
        for (size_t p = 0; p < FAKE_PROBES; p++)
            for (size_t i = 0; i < fake_samples[p] * configs[config].n_repeats; i++)
                assert_true(isnan(nd_capture_probe(capture, p)->latency_us[i]));
        assert_int_equal(nd_capture_n_logs(capture), config == FAILS); /* why it failed is worth more */
        nd_capture_close(&capture);
        free(request);
    }
}

/* ---- failures ---- */

static void failure_of_the_device_is_told_in_its_words(void **state)
{
    (void)state;
    struct nd_assembled assembled;
    struct request *request = make_request(FAILS, spools[FAILS]);
    struct nd_error death = {0};
    nd_fail(&death, ND_E_DEVICE_CRASH, "dev", "the agent ended early");
    request->assembly.death = &death;
    struct nd_capture *capture = assemble(request, &assembled);
    assert_int_equal(assembled.state, ND_CAPTURE_FAILED);
    assert_int_equal(assembled.failure.status, ND_ERR_DEVICE);
    assert_int_equal(failure_code(capture), ND_E_DEVICE_FALLBACK);
    assert_string_equal(nd_capture_string(capture, "failure", "stage"), "run");
    assert_string_equal(nd_capture_string(capture, "failure", "message"), "a node fell");
    assert_string_equal(nd_capture_string(capture, "failure", "object"), "n0");
    nd_capture_close(&capture);
    free(request);
}

static void missing_or_empty_spool_gives_a_failed_capture(void **state)
{
    (void)state;
    char *none = nd_path_join(folder, "none.nds"), *empty = nd_path_join(folder, "empty.nds");
    assert_int_equal(nd_file_put(empty, "", 0, NULL), ND_OK);
    for (size_t i = 0; i < 4; i++) {
        struct nd_assembled assembled = {0};
        struct request *request = make_request(2, i % 2 == 0 ? none : empty);
        struct nd_error death = {0};
        nd_fail(&death, ND_E_DEVICE_TIME, "dev", "it was stopped");
        request->assembly.death = i < 2 ? &death : NULL;
        struct nd_capture *capture = assemble(request, &assembled);
        assert_int_equal(nd_capture_state(capture), ND_CAPTURE_FAILED);
        assert_int_equal(assembled.samples_done, 0);
        assert_string_equal(assembled.stage, "start");
        assert_int_equal(failure_code(capture), i < 2 ? ND_E_DEVICE_TIME : ND_E_SPOOL_FORMAT);
        assert_string_equal(nd_capture_string(capture, "failure", "message"),
                            i < 2 ? "it was stopped" : "the agent's spool ends before its end");
        for (size_t p = 0; p < FAKE_PROBES; p++)
            check_probe(capture, 2, p, 0);
        nd_capture_close(&capture);
        free(request);
    }
    free(none);
    free(empty);
}

/* An agent that says it has done everything and has not must not look complete. */
static void end_without_all_samples_is_a_failure(void **state)
{
    (void)state;
    struct nd_spool_writer writer;
    struct nd_assembled assembled = {0};
    unlink(cut_path);
    assert_int_equal(nd_spool_writer_open(&writer, cut_path, NULL), ND_OK);
    assert_int_equal(fake_head(&writer, NULL), ND_OK);
    assert_int_equal(nd_spool_append(&writer, &(struct nd_record){.kind = ND_RECORD_END}, NULL), ND_OK);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    struct request *request = make_request(0, cut_path);
    struct nd_capture *capture = assemble(request, &assembled);
    assert_int_equal(nd_capture_state(capture), ND_CAPTURE_FAILED);
    assert_string_equal(nd_capture_string(capture, "failure", "message"),
                        "the agent ended without all samples");
    nd_capture_close(&capture);
    free(request);
}

/* Records that no agent of ours writes end the reading; what was before them counts. */
static void record_out_of_range_ends_the_spool(void **state)
{
    (void)state;
    static const struct nd_record strange[] = {
        {.kind = 99},
        {.kind = ND_RECORD_PASS, .index = {1}},
        {.kind = ND_RECORD_CHUNK, .index = {FAKE_PROBES}},
        {.kind = ND_RECORD_FRAGMENT, .index = {0, FAKE_TENSORS}},
        {.kind = ND_RECORD_REPEAT, .index = {0, 0, 1, 1}},
        {.kind = ND_RECORD_REPEAT, .index = {0, 0, 0, 1}},
        {.kind = ND_RECORD_SAMPLE, .index = {0, 0, 0}},
        {.kind = ND_RECORD_SAMPLE, .index = {0, 1, 0}},
        {.kind = ND_RECORD_ACK, .index = {0, 2}},
        {.kind = ND_RECORD_OUTPUT, .index = {FAKE_TENSORS}},
        {.kind = ND_RECORD_OUTPUT, .index = {0}},
    };
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        struct nd_spool_writer writer;
        unlink(cut_path);
        assert_int_equal(nd_spool_writer_open(&writer, cut_path, NULL), ND_OK);
        assert_int_equal(fake_head(&writer, NULL), ND_OK);
        assert_int_equal(nd_spool_append(&writer, &strange[i], NULL), ND_OK);
        assert_int_equal(nd_spool_append(&writer, &(struct nd_record){.kind = ND_RECORD_END}, NULL), ND_OK);
        assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
        struct nd_assembled assembled = {0};
        struct request *request = make_request(0, cut_path);
        struct nd_capture *capture = assemble(request, &assembled);
        assert_int_equal(nd_capture_state(capture), ND_CAPTURE_FAILED);
        assert_string_equal(nd_capture_string(capture, "failure", "message"),
                            "the agent's spool ends before its end");
        assert_string_equal(nd_capture_string(capture, "runtime", "ort_version"), "1.2.3");
        nd_capture_close(&capture);
        free(request);
    }
}

/* An agent gone mad, which acknowledges a sample whose data is not there, or in a form that does not fit its
 * chunks. */
static void acknowledged_sample_without_its_data_is_refused(void **state)
{
    (void)state;
    static const size_t missing[] = {TENSOR_QVALUES, TENSOR_PAIR, TENSOR_BIG, TENSOR_WHOLE};
    for (size_t i = 0; i < 2 * sizeof missing / sizeof missing[0]; i++) {
        size_t tensor = missing[i / 2];
        struct nd_error err = {0};
        struct nd_assembled assembled;
        struct nd_spool_reader reader;
        struct nd_spool_writer writer;
        struct nd_record record;
        unsigned char *data = nd_tensor_alloc(fake_bytes(tensor));
        assert_non_null(data);
        fake_output(0, tensor, 0, 0, data);
        unlink(cut_path);
        assert_int_equal(nd_spool_reader_open(&reader, spools[0], NULL), ND_OK);
        assert_int_equal(nd_spool_writer_open(&writer, cut_path, NULL), ND_OK);
        const struct nd_record stray = {.kind = ND_RECORD_FRAGMENT,
                                        .index = {0, tensor, 0, 1},
                                        .payload = data,
                                        .payload_bytes = fake_bytes(tensor)};
        while (nd_spool_next(&reader, &record)) {
            bool is_data = record.kind == ND_RECORD_CHUNK || record.kind == ND_RECORD_FRAGMENT;
            if (!(is_data && record.index[1] == tensor))
                assert_int_equal(nd_spool_append(&writer, &record, NULL), ND_OK);
            if (i % 2 == 1 && record.kind == ND_RECORD_PASS)
                assert_int_equal(nd_spool_append(&writer, &stray, NULL), ND_OK);
        }
        nd_spool_reader_close(&reader);
        assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
        unlink(capture_path);
        struct request *request = make_request(0, cut_path);
        assert_int_equal(nd_capture_assemble(&request->assembly, &assembled, &err), ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_SPOOL_FORMAT);
        assert_non_null(strstr(err.message, "but lacks its data"));
        assert_non_null(strstr(err.message, fake_tensors[tensor].name));
        /* The stray fragment is all there is of the first probe, unless a sample of the tensor takes several
         * chunks. */
        bool is_stray_taken = i % 2 == 1 && tensor != TENSOR_BIG;
        assert_non_null(strstr(err.message, is_stray_taken ? "probe 'five'" : "probe 'one'"));
        assert_false(nd_path_exists(capture_path));
        free(request);
        free(data);
    }
}

/* The spool of `config` with one byte changed in the n-th record of this kind, whose checksum is right; false
 * when there are not so many. */
static bool put_changed(size_t config, enum nd_record_kind kind, size_t n)
{
    struct nd_spool_reader reader;
    struct nd_spool_writer writer;
    struct nd_record record;
    bool is_changed = false;
    unlink(cut_path);
    assert_int_equal(nd_spool_reader_open(&reader, spools[config], NULL), ND_OK);
    assert_int_equal(nd_spool_writer_open(&writer, cut_path, NULL), ND_OK);
    while (nd_spool_next(&reader, &record)) {
        unsigned char *payload = malloc(record.payload_bytes + 1);
        assert_non_null(payload);
        memcpy(payload, record.payload, record.payload_bytes);
        if (record.kind == kind && record.payload_bytes > 0 && n-- == 0) {
            payload[record.payload_bytes / 2] ^= 1;
            is_changed = true;
        }
        record.payload = (const char *)payload;
        assert_int_equal(nd_spool_append(&writer, &record, NULL), ND_OK);
        free(payload);
    }
    nd_spool_reader_close(&reader);
    assert_int_equal(nd_spool_writer_close(&writer, NULL), ND_OK);
    return is_changed;
}

/* A capture of it would be one that verify calls damaged. */
static void data_that_is_not_its_digest_is_refused(void **state)
{
    (void)state;
    static const enum nd_record_kind kinds[] = {ND_RECORD_CHUNK, ND_RECORD_REPEAT, ND_RECORD_SAMPLE};
    size_t n_of[3] = {0};
    for (size_t config = 0; config < 2; config++)
        for (size_t k = 0; k < 3; k++)
            for (size_t n = 0; put_changed(config, kinds[k], n); n++) {
                struct nd_error err = {0};
                struct nd_assembled assembled;
                struct request *request = make_request(config, cut_path);
                unlink(capture_path);
                if (nd_capture_assemble(&request->assembly, &assembled, &err) != ND_ERR_FORMAT)
                    fail_msg("config %zu, kind %d, record %zu: '%s'", config, (int)kinds[k], n, err.message);
                assert_false(nd_path_exists(capture_path));
                n_of[k]++;
                free(request);
            }
    assert_true(n_of[0] > 10 && n_of[1] > 0 && n_of[2] > 5);
}

/* Going on with a capture that a later run does not even reach. */
static void a_capture_with_more_samples_is_not_replaced(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_assembled assembled;
    size_t n_samples = 0;
    struct request *request = make_request(FAILS, "no such spool");
    const struct nd_error death = {.status = ND_ERR_DEVICE, .id = ND_E_DEVICE_CONNECT, .message = "not there"};
    request->assembly.death = &death;
    request->assembly.death_stage = "connect";
    request->assembly.n_kept = 1;
    assert_int_equal(nd_file_put(capture_path, "mine", 4, NULL), ND_OK);
    assert_int_equal(nd_capture_assemble(&request->assembly, &assembled, &err), ND_OK);
    assert_int_equal(assembled.state, ND_CAPTURE_FAILED);
    assert_int_equal(assembled.samples_done, 1);
    assert_int_equal(assembled.failure.id, ND_E_DEVICE_CONNECT);
    assert_string_equal(assembled.stage, "connect");
    assert_non_null(strstr(assembled.failure.message, "stays with its 1 sample"));
    assert_non_null(strstr(assembled.failure.message, "not there"));
    void *data = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(capture_path, 100, &data, &n, NULL), ND_OK);
    assert_int_equal(n, 4);
    free(data);
    /* As many are enough. */
    for (size_t p = 0; p < FAKE_PROBES; p++)
        n_samples += fake_samples[p];
    request->assembly.spool_path = spools[0];
    request->assembly.death = NULL;
    request->assembly.n_kept = n_samples;
    assert_int_equal(nd_capture_assemble(&request->assembly, &assembled, &err), ND_OK);
    assert_int_equal(assembled.samples_done, n_samples);
    free(request);
    unlink(capture_path);
}

static void existing_capture_is_kept_unless_replaced(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_assembled assembled;
    struct request *request = make_request(FAILS, spools[FAILS]);
    assert_int_equal(nd_file_put(capture_path, "mine", 4, NULL), ND_OK);
    request->assembly.replace = false;
    assert_int_equal(nd_capture_assemble(&request->assembly, &assembled, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    void *text = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(capture_path, 100, &text, &n, NULL), ND_OK);
    assert_string_equal(text, "mine");
    free(text);
    free(request);
}

/* ---- spools that end early ---- */

static void put_cut(size_t config, size_t size)
{
    FILE *file = fopen(cut_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes[config], 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Cuts behind every record; how many different numbers of complete samples there were. */
static size_t cut_at_records(size_t config)
{
    struct nd_spool_reader reader;
    struct nd_record record;
    size_t n_seen[8] = {0}, n_different = 0;
    assert_int_equal(nd_spool_reader_open(&reader, spools[config], NULL), ND_OK);
    do {
        put_cut(config, reader.offset_bytes);
        struct promise promise = check_assembly(config, cut_path);
        n_different += n_seen[promise.n_complete[0] + promise.n_complete[1]]++ == 0;
    } while (nd_spool_next(&reader, &record));
    nd_spool_reader_close(&reader);
    return n_different;
}

static void spool_cut_behind_any_record_keeps_complete_samples(void **state)
{
    (void)state;
    assert_true(cut_at_records(0) >= 4); /* 0, 1, 3 and 5 samples at least */
}

static void spool_of_two_passes_cut_behind_any_record_keeps_complete_samples(void **state)
{
    (void)state;
    assert_true(cut_at_records(2) >= 4);
}

static void spool_of_digests_cut_behind_any_record_keeps_complete_samples(void **state)
{
    (void)state;
    assert_true(cut_at_records(DIGESTS) >= 4);
}

static void spool_cut_at_random_bytes_keeps_complete_samples(void **state)
{
    (void)state;
    const char *text = getenv("ND_SEED");
    unsigned int seed = text != NULL ? (unsigned int)strtoul(text, NULL, 10) : 20251;
    print_message("# ND_SEED=%u\n", seed);
    srandom(seed);
    for (size_t config = 0; config < N_CONFIGS; config++)
        for (size_t i = 0; i < N_RANDOM_CUTS; i++) {
            put_cut(config, (size_t)random() % n_bytes[config]);
            check_assembly(config, cut_path);
        }
}

/* A damaged record is like the end: nothing from it on is believed. */
static void spool_with_a_flipped_bit_keeps_what_is_before(void **state)
{
    (void)state;
    srandom(7);
    for (size_t i = 0; i < N_RANDOM_CUTS; i++) {
        size_t at = (size_t)random() % n_bytes[1];
        ((unsigned char *)bytes[1])[at] ^= 0x10;
        put_cut(1, n_bytes[1]);
        ((unsigned char *)bytes[1])[at] ^= 0x10;
        struct promise promise = check_assembly(1, cut_path);
        assert_false(promise.has_end);
    }
}

/* Of a spool in which all is well, with one allocation failing: memory is out, which is nobody's fault but this
 * machine's, or the capture is complete. Never is it the device that failed. */
static void assembling_survives_every_failed_allocation(void **state)
{
    (void)state;
    enum { CONFIG = 2, STEP = 11 };
    struct request *request = make_request(CONFIG, spools[CONFIG]);
    size_t n_out = 0;
    for (long long n = 0;; n += STEP) {
        struct nd_assembled assembled = {0};
        struct nd_error err = {0};
        unlink(capture_path);
        atomic_store(&n_left, n);
        enum nd_status status = nd_capture_assemble(&request->assembly, &assembled, &err);
        bool has_failed = atomic_exchange(&n_left, -1) < 0;
        if (status == ND_OK) {
            if (assembled.state != ND_CAPTURE_COMPLETE)
                fail_msg("allocation %lld: stage '%s': %s", n, assembled.stage, assembled.failure.message);
        } else {
            n_out++;
            if (status != ND_ERR_MEMORY || err.id != ND_E_MEMORY)
                fail_msg("allocation %lld: status %d, ND-%d: %s", n, (int)status, err.id, err.message);
            struct nd_capture *whole = NULL;
            if (nd_path_exists(capture_path)) { /* only the folder was not synced any more */
                assert_int_equal(nd_capture_open(capture_path, &whole, &err), ND_OK);
                assert_int_equal(nd_capture_state(whole), ND_CAPTURE_COMPLETE);
                nd_capture_close(&whole);
            }
        }
        if (!has_failed)
            break;
    }
    assert_true(n_out > 20);
    free(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_spool_gives_a_complete_capture),
        cmocka_unit_test(same_spool_gives_the_same_bytes),
        cmocka_unit_test(logs_and_versions_are_kept),
        cmocka_unit_test(log_too_long_keeps_its_end),
        cmocka_unit_test(reproducible_leaves_out_what_differs_between_runs),
        cmocka_unit_test(failure_of_the_device_is_told_in_its_words),
        cmocka_unit_test(missing_or_empty_spool_gives_a_failed_capture),
        cmocka_unit_test(end_without_all_samples_is_a_failure),
        cmocka_unit_test(record_out_of_range_ends_the_spool),
        cmocka_unit_test(acknowledged_sample_without_its_data_is_refused),
        cmocka_unit_test(data_that_is_not_its_digest_is_refused),
        cmocka_unit_test(a_capture_with_more_samples_is_not_replaced),
        cmocka_unit_test(existing_capture_is_kept_unless_replaced),
        cmocka_unit_test(spool_cut_behind_any_record_keeps_complete_samples),
        cmocka_unit_test(spool_of_two_passes_cut_behind_any_record_keeps_complete_samples),
        cmocka_unit_test(spool_of_digests_cut_behind_any_record_keeps_complete_samples),
        cmocka_unit_test(spool_cut_at_random_bytes_keeps_complete_samples),
        cmocka_unit_test(spool_with_a_flipped_bit_keeps_what_is_before),
        cmocka_unit_test(assembling_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, make_spools, remove_spools);
}
