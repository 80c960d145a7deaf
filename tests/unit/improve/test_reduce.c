/* Reduction: the search itself, what makes two failures one, inputs as files, and that every layer of the
 * golden models, cut out and fed with what was recorded, gives what was recorded. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "capture/write/write.h"
#include "core/error.h"
#include "core/memory.h"
#include "improve/reduce/reducer.h"
#include "npudiff/record/probe.h"
#include "support/scratch.h"

/* ---- delta debugging ---- */

/* Fails when all the guilty parts are in the set. */
struct crime {
    size_t guilty[8], n_guilty;
    size_t n_trials, limit;
};

static enum nd_status judge(void *context, const size_t *parts, size_t n, enum nd_trial *out,
                            struct nd_error *err)
{
    (void)err;
    struct crime *crime = context;
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || parts[i] > parts[i - 1]);
        for (size_t g = 0; g < crime->n_guilty; g++)
            n_found += parts[i] == crime->guilty[g];
    }
    if (crime->n_trials >= crime->limit) {
        *out = ND_TRIAL_STOP;
        return ND_OK;
    }
    crime->n_trials++;
    *out = n_found == crime->n_guilty ? ND_TRIAL_SAME : ND_TRIAL_NOT;
    return ND_OK;
}

static size_t run_ddmin(struct crime *crime, size_t n_parts, size_t *parts, bool *is_minimal)
{
    size_t n = n_parts;
    for (size_t i = 0; i < n_parts; i++)
        parts[i] = i;
    assert_int_equal(nd_ddmin(parts, &n, judge, crime, is_minimal, NULL), ND_OK);
    return n;
}

static void one_guilty_part_is_found_in_two_log_n_trials(void **state)
{
    (void)state;
    for (size_t n_parts = 1; n_parts <= 130; n_parts++)
        for (size_t guilty = 0; guilty < n_parts; guilty++) {
            size_t parts[130];
            bool is_minimal = false;
            struct crime crime = {.guilty = {guilty}, .n_guilty = 1, .limit = SIZE_MAX};
            assert_int_equal(run_ddmin(&crime, n_parts, parts, &is_minimal), 1);
            assert_int_equal(parts[0], guilty);
            assert_true(is_minimal);
            assert_true((double)crime.n_trials <= 2 * ceil(log2((double)n_parts)));
        }
}

static void several_guilty_parts_are_found_and_nothing_else(void **state)
{
    (void)state;
    uint64_t seed = 20261121;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t round = 0; round < 400; round++) {
        size_t parts[64], n_parts = 8 + round % 56;
        bool is_minimal = false;
        struct crime crime = {.n_guilty = 2 + round % 3, .limit = SIZE_MAX};
        for (size_t g = 0; g < crime.n_guilty; g++) {
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            /* Each from a stretch of its own, so that they differ and rise. */
            crime.guilty[g] = n_parts * g / crime.n_guilty + (size_t)(seed >> 40) % (n_parts / crime.n_guilty);
        }
        size_t n = run_ddmin(&crime, n_parts, parts, &is_minimal);
        assert_int_equal(n, crime.n_guilty);
        assert_memory_equal(parts, crime.guilty, n * sizeof *parts);
        assert_true(is_minimal);
    }
}

static void search_that_is_stopped_keeps_the_smallest_and_says_so(void **state)
{
    (void)state;
    size_t parts[64];
    bool is_minimal = true;
    struct crime crime = {.guilty = {0}, .n_guilty = 1, .limit = 3};
    assert_int_equal(run_ddmin(&crime, 64, parts, &is_minimal), 8);
    assert_int_equal(parts[0], 0);
    assert_false(is_minimal);
}

static void trials_are_remembered_by_their_set(void **state)
{
    (void)state;
    struct nd_trials trials = {0};
    enum nd_trial trial = ND_TRIAL_STOP;
    const size_t a[] = {1, 4, 7}, b[] = {1, 4, 8};
    assert_int_equal(nd_trials_add(&trials, a, 3, ND_TRIAL_SAME, NULL), ND_OK);
    assert_int_equal(nd_trials_add(&trials, a, 2, ND_TRIAL_NOT, NULL), ND_OK);
    assert_true(nd_trials_find(&trials, a, 3, &trial));
    assert_int_equal(trial, ND_TRIAL_SAME);
    assert_true(nd_trials_find(&trials, b, 2, &trial));
    assert_int_equal(trial, ND_TRIAL_NOT);
    assert_false(nd_trials_find(&trials, b, 3, &trial));
    nd_trials_deinit(&trials);
}

/* ---- failures ---- */

/* A capture that failed, with what was found in its logs. The caller closes it. */
static struct nd_capture *failed_capture(const struct nd_attr *attrs, size_t n_attrs,
                                         const struct nd_capture_finding *findings, size_t n_findings)
{
    struct nd_capture_writer *writer = NULL;
    struct nd_capture *capture = NULL;
    struct nd_error err = {0};
    char *path = in_folder("failed.h5");
    expect_ok(nd_capture_writer_create(path, true, &writer, &err), &err);
    for (size_t i = 0; i < n_attrs; i++)
        expect_ok(nd_capture_writer_attr(writer, &attrs[i], &err), &err);
    expect_ok(nd_capture_writer_log(writer, "runtime", "a line", 6, &err), &err);
    if (n_findings > 0)
        expect_ok(nd_capture_writer_findings(writer, findings, n_findings, &err), &err);
    expect_ok(nd_capture_writer_commit(writer, ND_CAPTURE_FAILED, &err), &err);
    nd_capture_writer_destroy(&writer);
    expect_ok(nd_capture_open(path, &capture, &err), &err);
    free(path);
    return capture;
}

#define TEXT(given_key, text)                                                                                  \
    {                                                                                                          \
        .group = (char *)"failure", .key = (char *)(given_key), .type = ND_ATTR_STRING,                        \
        .string = (char *)(text)                                                                               \
    }
#define NUMBER(given_key, number)                                                                              \
    {                                                                                                          \
        .group = (char *)"failure", .key = (char *)(given_key), .type = ND_ATTR_I64, .i64 = (number)           \
    }
#define FINDING(kind_, severity_, op_, node_, text_)                                                           \
    {                                                                                                          \
        .kind = (char *)(kind_), .severity = (char *)(severity_), .log = (char *)"runtime",                    \
        .op = (char *)(op_), .node = (char *)(node_), .symbol = (char *)"", .text = (char *)(text_), .line = 1 \
    }

static void finding_that_says_most_is_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *log_node;
        struct nd_capture_finding findings[3];
        const char *kind, *cause;
    } cases[] = {
        {"x",
         {FINDING("preparation", "warning", "q::Y", "", "a.cc:1::ERROR:no properties registered for q::Y"),
          FINDING("preparation", "failure", "q::QNN_Elu", "", "a.cc:2::ERROR:could not create op: q::QNN_Elu"),
          FINDING("preparation", "failure", "q::Other", "", "a.cc:2::ERROR:could not create op: q::Other")},
         "preparation",
         "could not create op: q::QNN_Elu"},
        {"x",
         {FINDING("failure", "failure", "Conv2d", "x", "[error] m.cc:7 F: graphAddNode() failed"),
          FINDING("quantisation", "failure", "", "", "a.cc:3207::ERROR:Output def has a bad scale"),
          FINDING("fallback", "failure", "Erf", "e", "Fallback to CPU")},
         "quantisation",
         "Output def has a bad scale"},
        {"x_token_2",
         {FINDING("validation", "warning", "Add", "other", "<E> not this one"),
          FINDING("validation", "warning", "Lrn", "x_token_2", "<E> Unsupported datatypes"),
          FINDING("fallback", "warning", "", "", "Some nodes were not assigned")},
         "validation",
         "Unsupported datatypes"},
        {"x",
         {FINDING("placement", "note", "", "", "a"), FINDING("fallback", "warning", "", "", "b"),
          FINDING("validation", "warning", "Add", "other", "c")},
         "",
         ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct nd_attr attrs[] = {TEXT("log_node", cases[i].log_node)};
        const struct nd_capture_outcome outcome = {.has_failed = true, .stage = "session"};
        struct nd_reduction_failure failure = {.cause = "old", .op = "old"};
        struct nd_capture *capture = failed_capture(attrs, 1, cases[i].findings, 3);
        nd_failure_read(&outcome, capture, &failure);
        assert_string_equal(failure.cause_kind, cases[i].kind);
        assert_string_equal(failure.cause, cases[i].cause);
        assert_string_equal(failure.op, "");
        nd_capture_close(&capture);
    }
}

static void failure_is_what_the_capture_says(void **state)
{
    (void)state;
    const struct nd_attr attrs[] = {
        TEXT("message", "Failed to finalize QNN graph."),
        TEXT("qnn_stage", "finalize"),
        NUMBER("raw_code", 1002),
        TEXT("symbol", "QNN_COMMON_ERROR_MEM_ALLOC"),
        TEXT("operator", "q::QNN_Elu"),
        TEXT("node", "broken"),
    };
    /* The message of the outcome goes on with what the logs say: names and counts, which change with the part.
     */
    const struct nd_capture_outcome outcome = {
        .has_failed = true,
        .stage = "session",
        .failure = {.id = ND_E_RUNTIME_CALL,
                    .message =
                        "Failed to finalize QNN graph.; root: q::QNN_Elu, 7 followers, 2 more that fail"}};
    struct nd_reduction_failure failure, bare;
    struct nd_capture *capture = failed_capture(attrs, sizeof attrs / sizeof attrs[0], NULL, 0);
    nd_failure_read(&outcome, capture, &failure);
    assert_string_equal(failure.stage, "session");
    assert_int_equal(failure.id, ND_E_RUNTIME_CALL);
    assert_string_equal(failure.message, "Failed to finalize QNN graph.");
    assert_string_equal(failure.qnn_stage, "finalize");
    assert_true(failure.has_raw_code);
    assert_int_equal(failure.raw_code, 1002);
    assert_string_equal(failure.symbol, "QNN_COMMON_ERROR_MEM_ALLOC");
    assert_string_equal(failure.op, "q::QNN_Elu");
    assert_string_equal(failure.node, "broken");
    nd_capture_close(&capture);
    nd_failure_read(&outcome, NULL, &bare);
    assert_string_equal(bare.message, outcome.failure.message);
    assert_false(bare.has_raw_code);
}

static void nodes_are_scored_by_findings_and_by_kind(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    char path[600];
    snprintf(path, sizeof path, "%s/failing/selu.u8.onnx", getenv("GOLDEN"));
    expect_ok(nd_model_load(path, &model, &err), &err);
    const struct nd_capture_finding findings[] = {FINDING("preparation", "failure", "", "front_token_3", "a"),
                                                  FINDING("validation", "warning", "", "back", "b"),
                                                  FINDING("preparation", "note", "", "x_QuantizeLinear", "c")};
    struct nd_capture *capture = failed_capture(NULL, 0, findings, 3);
    const struct nd_reduction_failure failure = {.op = "q::QNN_Elu", .node = "front_QuantizeLinear"};
    unsigned *score = nd_calloc(nd_model_n_nodes(model), sizeof *score);
    expect_ok(nd_failure_score_nodes(model, &failure, capture, score, &err), &err);
    static const struct {
        const char *name;
        unsigned score;
    } wanted[] = {{"broken", ND_FAILURE_BEST_SCORE}, {"front", 2}, {"back", 1}, {"x_QuantizeLinear", 0}};
    for (size_t n = 0; n < nd_model_n_nodes(model); n++)
        for (size_t w = 0; w < sizeof wanted / sizeof wanted[0]; w++)
            if (strcmp(nd_model_node(model, n)->name, wanted[w].name) == 0)
                assert_int_equal(score[n], wanted[w].score);
    free(score);
    nd_capture_close(&capture);
    nd_model_destroy(&model);
}

static void failures_are_the_same_but_for_names_and_addresses(void **state)
{
    (void)state;
    struct nd_reduction_failure a = {
        .stage = "session", .id = 511, .op = "c", .cause_kind = "memory", .qnn_stage = "finalize"};
    snprintf(a.message, sizeof a.message,
             "Node 'broken_token_2' at 0x12ab OpType:LRN, 1234567 bytes, Code: 1002");
    struct nd_reduction_failure b = a;
    snprintf(b.message, sizeof b.message, "Node 'x' at 0xffff OpType:LRN, 7654321 bytes, Code: 1002");
    assert_true(nd_failure_is_same(&a, &b));
    b.id = 531;
    assert_false(nd_failure_is_same(&a, &b));
    b = a;
    snprintf(b.stage, sizeof b.stage, "run");
    assert_false(nd_failure_is_same(&a, &b));
    b = a;
    snprintf(b.cause, sizeof b.cause, "d");
    assert_true(nd_failure_is_same(&a, &b)); /* its kind counts, not its names and sizes */
    snprintf(b.cause_kind, sizeof b.cause_kind, "device");
    assert_false(nd_failure_is_same(&a, &b));
    b = a;
    snprintf(b.op, sizeof b.op, "d");
    assert_false(nd_failure_is_same(&a, &b));
    b = a;
    snprintf(b.qnn_stage, sizeof b.qnn_stage, "compose");
    assert_false(nd_failure_is_same(&a, &b));
    b = a;
    b.raw_code = 6007;
    b.has_raw_code = true;
    assert_false(nd_failure_is_same(&a, &b));
    b = a;
    snprintf(b.message, sizeof b.message, "Node 'x' at 0xffff OpType:Conv, 7654321 bytes, Code: 1002");
    assert_false(nd_failure_is_same(&a, &b));
}

static void normalising_keeps_within_its_buffer(void **state)
{
    (void)state;
    uint64_t seed = 7;
    static const char alphabet[] = "'\"`0x9 12345678aZ\n\xff";
    for (size_t round = 0; round < 20000; round++) {
        char text[64], out[24];
        size_t n = round % (sizeof text - 1);
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            text[i] = alphabet[(seed >> 33) % (sizeof alphabet - 1)];
        }
        text[n] = '\0';
        nd_failure_normalise(text, out, sizeof out);
        assert_true(strlen(out) < sizeof out);
    }
}

/* ---- inputs as files ---- */

static void npz_is_read_back_bit_for_bit(void **state)
{
    (void)state;
    const uint16_t qvalues[] = {0, 1, 65535, 7, 8, 9};
    const uint32_t floats[] = {0x7fc00001, 0x80000000};
    const struct nd_npz_array arrays[] = {
        {"a/b", ND_DTYPE_U16, {.rank = 2, .dims = {1, 3}}, 2, qvalues, sizeof qvalues},
        {"x", ND_DTYPE_F32, {.rank = 0}, 2, floats, sizeof floats},
    };
    const struct nd_probe_target targets[] = {
        {.name = "a/b", .dtype = ND_DTYPE_U16, .shape = {.rank = 2, .dims = {1, 3}}},
        {.name = "x", .dtype = ND_DTYPE_F32, .shape = {.rank = 0}},
    };
    struct nd_error err = {0};
    struct nd_probe *probe = NULL;
    char *path = in_folder("inputs.npz"), spec[600];
    expect_ok(nd_npz_write(path, arrays, 2, &err), &err);
    snprintf(spec, sizeof spec, "inputs=%s", path);
    expect_ok(nd_probe_create(spec, targets, 2, &probe, &err), &err);
    assert_int_equal(probe->n_samples, 2);
    assert_memory_equal(probe->inputs[0].data, qvalues, sizeof qvalues);
    assert_memory_equal(probe->inputs[1].data, floats, sizeof floats);
    nd_probe_destroy(&probe);
    assert_int_equal(nd_npz_write(path, arrays, 2, &err), ND_ERR_IO); /* is there already */
    const struct nd_npz_array strange = {"s", ND_DTYPE_BF16, {.rank = 0}, 1, qvalues, 2};
    char *other = in_folder("strange.npz");
    assert_int_equal(nd_npz_write(other, &strange, 1, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(access(other, F_OK), -1);
    free(other);
    free(path);
}

static void difference_counts_steps_and_elements(void **state)
{
    (void)state;
    const uint8_t ref[] = {0, 255, 7, 8}, test[] = {3, 250, 7, 8};
    struct nd_reduction_difference out = {.max_lsb = NAN};
    nd_difference_of(ND_DTYPE_U8, true, ref, test, 4, &out);
    assert_true(out.max_lsb == 5 && out.fraction == 0.5);
    nd_difference_of(ND_DTYPE_I8, true, ref, test, 4, &out);
    assert_true(out.max_lsb == 5 && out.fraction == 0.5); /* -1 and -6 */
    const float a[] = {NAN, 1}, b[] = {-NAN, 1};
    nd_difference_of(ND_DTYPE_F32, false, a, b, 2, &out);
    assert_true(isnan(out.max_lsb) && out.fraction == 0);
    nd_difference_of(ND_DTYPE_U8, true, ref, test, 0, &out);
    assert_true(out.max_lsb == 0 && out.fraction == 0);
}

/* ---- layers cut out of whole models ---- */

/* A whole model on the CPU, recorded: what its layers are held against. */
struct whole {
    struct nd_model *model;
    struct nd_device cpu;
    struct nd_probe *probe;
    const struct nd_probe *probes[1];
    struct nd_reduction out;
    struct nd_reduce_options options;
    struct nd_reducer reducer;
};

static void record_whole(const char *name, struct whole *whole)
{
    struct nd_error err = {0};
    struct nd_run run = {0};
    char path[600];
    const char *spec = "uniform:2:5";
    *whole = (struct whole){0};
    snprintf(path, sizeof path, "%s/models/%s", getenv("GOLDEN"), name);
    expect_ok(nd_model_load(path, &whole->model, &err), &err);
    expect_ok(nd_device_parse("cpu", &whole->cpu, &err), &err);
    expect_ok(nd_probes_for_model(whole->model, &spec, 1, &whole->probe, &err), &err);
    nd_reduce_options_init(&whole->options);
    whole->probes[0] = whole->probe;
    whole->reducer = (struct nd_reducer){.model = whole->model,
                                         .device = &whole->cpu,
                                         .options = &whole->options,
                                         .out = &whole->out,
                                         .wanted_node = SIZE_MAX,
                                         .recorded = {.probes = whole->probes, .n_probes = 1, .n_samples = 2}};
    const struct nd_session session = {whole->model, &whole->cpu, whole->probes, 1, "all", folder, "whole.h5"};
    expect_ok(nd_reducer_run(&whole->reducer, &session, &run, &err), &err);
    assert_false(run.outcome.has_failed);
    expect_ok(nd_recorded_add(&whole->reducer.recorded, &run.capture, false, &err), &err);
    expect_ok(nd_pieces_of_layers(whole->model, &whole->reducer.pieces, &err), &err);
    nd_run_deinit(&run);
}

static void forget_whole(struct whole *whole)
{
    nd_recorded_deinit(&whole->reducer.recorded);
    nd_pieces_deinit(&whole->reducer.pieces);
    nd_probe_destroy(&whole->probe);
    nd_device_deinit(&whole->cpu);
    nd_model_destroy(&whole->model);
}

/* How many of the tensors that were recorded the part showed again, all of them bit for bit. */
static size_t check_outputs(const struct whole *whole, const struct nd_capture *capture)
{
    struct nd_error err = {0};
    size_t n = 0;
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        struct nd_reduction_difference difference;
        expect_ok(nd_difference_of_tensor(&whole->reducer.recorded, capture, e, true, &difference, &err), &err);
        n += difference.fraction == 0;
        /* The floats of an output are not recorded, only its quantised values. */
        assert_true(difference.fraction == 0 || isnan(difference.fraction));
    }
    return n;
}

/* Cuts piece p out and runs it. False where it shows nothing: a DequantizeLinear alone, from an input of
 * quantised values to an output of floats. */
static bool run_layer(struct whole *whole, size_t p, size_t *n_outputs)
{
    struct nd_error err = {0};
    struct nd_smaller_model candidate = {0};
    struct nd_run run = {0};
    size_t *nodes = NULL;
    struct nd_model_cut part = {0};
    char name[32];
    snprintf(name, sizeof name, "part-%zu", p);
    char *folder_of_part = in_folder(name);
    expect_ok(nd_pieces_nodes(&whole->reducer.pieces, &p, 1, &nodes, &part.n_nodes, &err), &err);
    part.nodes = nodes;
    expect_ok(nd_candidate_init(&candidate, &whole->reducer, &part, folder_of_part, &err), &err);
    assert_true(candidate.is_all_recorded);
    const struct nd_session session = nd_candidate_session(&candidate, &whole->cpu, "none", "again.h5");
    enum nd_status status = nd_reducer_run(&whole->reducer, &session, &run, &err);
    bool is_blind = status == ND_ERR_NOT_FOUND && part.n_nodes == 1;
    if (!is_blind)
        expect_ok(status, &err);
    if (run.outcome.has_failed)
        fail_msg("part %zu: %s", p, run.outcome.failure.message);
    if (!is_blind)
        *n_outputs += check_outputs(whole, run.capture);
    nd_run_deinit(&run);
    nd_candidate_deinit(&candidate);
    nd_dir_remove(folder_of_part);
    free(folder_of_part);
    free(nodes);
    return !is_blind;
}

static void run_layers(const char *name, size_t step)
{
    struct whole whole;
    size_t n_outputs = 0, n_blind = 0;
    record_whole(name, &whole);
    assert_true(whole.reducer.pieces.n >= nd_model_n_layers(whole.model));
    for (size_t p = 0; p < whole.reducer.pieces.n; p += step)
        n_blind += !run_layer(&whole, p, &n_outputs);
    assert_true(n_blind <= 1 && n_outputs >= whole.reducer.pieces.n / step - 1);
    forget_whole(&whole);
}

static void layer_alone_gives_what_it_gave_in_the_whole(void **state)
{
    (void)state;
    run_layers("cnn.w8a8.onnx", 1);
    run_layers("vit.w8a16.onnx", getenv("REDUCE_ALL") != NULL ? 1 : 7);
    if (getenv("REDUCE_ALL") != NULL) {
        run_layers("cnn.w8a16.onnx", 1);
        run_layers("vit.w8a8.onnx", 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_guilty_part_is_found_in_two_log_n_trials),
        cmocka_unit_test(several_guilty_parts_are_found_and_nothing_else),
        cmocka_unit_test(search_that_is_stopped_keeps_the_smallest_and_says_so),
        cmocka_unit_test(trials_are_remembered_by_their_set),
        cmocka_unit_test(finding_that_says_most_is_the_reason),
        cmocka_unit_test(failure_is_what_the_capture_says),
        cmocka_unit_test(nodes_are_scored_by_findings_and_by_kind),
        cmocka_unit_test(failures_are_the_same_but_for_names_and_addresses),
        cmocka_unit_test(normalising_keeps_within_its_buffer),
        cmocka_unit_test(npz_is_read_back_bit_for_bit),
        cmocka_unit_test(difference_counts_steps_and_elements),
        cmocka_unit_test(layer_alone_gives_what_it_gave_in_the_whole),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
