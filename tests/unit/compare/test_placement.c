/* Placement from captures that are written here, of golden/cases/erf.u8.onnx: MatMul (16x16), Erf, MatMul
 * (16x8). */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/write/write.h"
#include "npudiff/compare/placement.h"
#include "support/scratch.h"

#define QNN "QNNExecutionProvider"
#define CPU "CPUExecutionProvider"

struct row {
    const char *name, *op_type, *provider;
    int64_t subgraph;
};

/* As a session gives them: two fused subgraphs, every CPU node one of its own. */
static const struct row split[] = {{"x_DequantizeLinear", "DequantizeLinear", QNN, 1},
                                   {"front", "MatMul", QNN, 1},
                                   {"front_QuantizeLinear", "QuantizeLinear", QNN, 1},
                                   {"erf_DequantizeLinear", "DequantizeLinear", QNN, 2},
                                   {"back", "MatMul", QNN, 2},
                                   {"back_float_QuantizeLinear", "QuantizeLinear", QNN, 2},
                                   {"x_QuantizeLinear", "QuantizeLinear", CPU, 3},
                                   {"front_DequantizeLinear", "DequantizeLinear", CPU, 4},
                                   {"erf", "Erf", CPU, 5},
                                   {"erf_QuantizeLinear", "QuantizeLinear", CPU, 6},
                                   {"back_float_DequantizeLinear", "DequantizeLinear", CPU, 7}};
enum { N_SPLIT = sizeof split / sizeof split[0] };

struct bench {
    struct nd_model *model;
    struct nd_capture *capture;
    struct nd_placement_report *report;
};

static void put_attr(struct nd_capture_writer *writer, const char *group, const char *key, const char *value)
{
    char *texts[3] = {strdup(group), strdup(key), strdup(value)};
    const struct nd_attr attr = {
        .group = texts[0], .key = texts[1], .type = ND_ATTR_STRING, .string = texts[2]};
    assert_int_equal(nd_capture_writer_attr(writer, &attr, NULL), ND_OK);
    for (size_t i = 0; i < 3; i++)
        free(texts[i]);
}

static void put_nodes(struct nd_capture_writer *writer, const struct row *rows, size_t n)
{
    struct nd_capture_node *nodes = calloc(n + 1, sizeof *nodes);
    for (size_t i = 0; i < n; i++)
        nodes[i] = (struct nd_capture_node){(char *)(uintptr_t)rows[i].name, (char *)(uintptr_t)rows[i].op_type,
                                            (char *)(uintptr_t) "", (char *)(uintptr_t)rows[i].provider,
                                            rows[i].subgraph};
    assert_int_equal(nd_capture_writer_nodes(writer, nodes, n, NULL), ND_OK);
    free(nodes);
}

static void open_model(struct bench *bench)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/cases/erf.u8.onnx", getenv("GOLDEN"));
    assert_int_equal(nd_model_load(path, &bench->model, NULL), ND_OK);
}

/* provider NULL: a device without an NPU. logs: name, text, ..., NULL. */
static void bench_init(struct bench *bench, const struct row *rows, size_t n, const char *provider,
                       const char *const *logs)
{
    struct nd_capture_writer *writer = NULL;
    struct nd_error err = {0};
    char *path = in_folder("c.h5");
    *bench = (struct bench){0};
    open_model(bench);
    assert_int_equal(nd_capture_writer_create(path, true, &writer, &err), ND_OK);
    put_attr(writer, "model", "sha256", nd_model_sha256(bench->model));
    if (provider != NULL)
        put_attr(writer, "runtime", "provider", provider);
    put_nodes(writer, rows, n);
    for (; logs != NULL && *logs != NULL; logs += 2)
        assert_int_equal(nd_capture_writer_log(writer, logs[0], logs[1], strlen(logs[1]), &err), ND_OK);
    assert_int_equal(nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err), ND_OK);
    nd_capture_writer_destroy(&writer);
    assert_int_equal(nd_capture_open(path, &bench->capture, &err), ND_OK);
    assert_int_equal(nd_placement_examine(bench->model, bench->capture, &bench->report, &err), ND_OK);
    free(path);
}

static void bench_deinit(struct bench *bench)
{
    nd_placement_destroy(&bench->report);
    assert_null(bench->report);
    nd_capture_close(&bench->capture);
    nd_model_destroy(&bench->model);
}

static const struct nd_placed_node *node(const struct bench *bench, const char *name)
{
    for (size_t i = 0; i < bench->report->n_nodes; i++)
        if (strcmp(bench->report->nodes[i].name, name) == 0)
            return &bench->report->nodes[i];
    fail_msg("no node '%s'", name);
    return NULL;
}

static void split_graph_is_cut_into_pieces_with_their_bytes(void **state)
{
    (void)state;
    struct bench bench;
    bench_init(&bench, split, N_SPLIT, QNN, NULL);
    const struct nd_placement_report *r = bench.report;
    assert_true(r->is_npu);
    assert_int_equal(r->n_nodes, nd_model_n_nodes(bench.model));
    assert_int_equal(r->share.n_npu, 2); /* operators: quantisers are none */
    assert_int_equal(r->share.n_off, 1);
    assert_int_equal(r->share.n_unknown, 0);
    assert_true(r->share.nodes == 2.0 / 3);
    assert_true(isnan(r->share.time));
    assert_true(node(&bench, "front")->flops == 2 * 16 * 16);
    assert_true(node(&bench, "back")->flops == 2 * 16 * 8);
    assert_true(node(&bench, "erf")->flops == 16);
    /* Of operators: NPU 512 + 256, CPU 16. */
    assert_true(r->share.flops == 768.0 / 784);
    static const struct {
        enum nd_where where;
        size_t n_nodes;
        double in, out;
        bool is_io;
    } pieces[] = {{ND_WHERE_OFF, 1, 64, 16, true},
                  {ND_WHERE_NPU, 3, 16, 16, false},
                  {ND_WHERE_OFF, 3, 16, 16, false},
                  {ND_WHERE_NPU, 3, 16, 8, false},
                  {ND_WHERE_OFF, 1, 8, 32, true}};
    assert_int_equal(r->n_pieces, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(r->pieces[i].where, pieces[i].where);
        assert_int_equal(r->pieces[i].n_nodes, pieces[i].n_nodes);
        assert_int_equal(r->pieces[i].is_io_quantisation, pieces[i].is_io);
        assert_true(r->pieces[i].bytes_in == pieces[i].in && r->pieces[i].bytes_out == pieces[i].out);
        assert_true(isnan(r->pieces[i].us));
    }
    assert_int_equal(r->n_cuts, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(r->cuts[i].from, i);
        assert_int_equal(r->cuts[i].to, i + 1);
        assert_int_equal(r->cuts[i].n_tensors, 1);
    }
    assert_true(r->cuts[1].bytes == 16 && r->cuts[3].bytes == 8);
    assert_int_equal(r->n_problems, 0);
    bench_deinit(&bench);
}

#define KERNEL(name, us, provider)                                                                             \
    "{\"cat\":\"Node\",\"name\":\"" name "_kernel_time\",\"dur\":" #us ",\"args\":{\"provider\":\"" provider   \
    "\"}},\n"
#define RUN_OF(a, b)                                                                                           \
    KERNEL("fused_9", a, QNN)                                                                                  \
    KERNEL("erf", 10, CPU) KERNEL("fused_3", b, QNN) "{\"cat\":\"Session\",\"name\":\"model_run\"}"

static void times_are_those_of_later_runs(void **state)
{
    (void)state;
    struct bench bench;
    const char *const logs[] = {"profile", "[" RUN_OF(9000, 9000) ",\n" RUN_OF(70, 10) ",\n" RUN_OF(50, 50) "]",
                                NULL};
    bench_init(&bench, split, N_SPLIT, QNN, logs);
    const struct nd_placement_report *r = bench.report;
    assert_int_equal(r->share.n_runs, 2);
    assert_true(r->share.npu_us == 90 && r->share.all_us == 100);
    assert_true(r->share.time == 180.0 / 200);
    assert_true(r->pieces[1].us == 60 && r->pieces[2].us == 10 && r->pieces[3].us == 30);
    assert_true(isnan(r->pieces[0].us));
    assert_true(node(&bench, "erf")->profile_us == 10);
    assert_int_equal(r->n_problems, 0);
    bench_deinit(&bench);
}

static void one_run_gives_no_time(void **state)
{
    (void)state;
    struct bench bench;
    const char *const logs[] = {"profile", "[" RUN_OF(9000, 9000) "]", NULL};
    bench_init(&bench, split, N_SPLIT, QNN, logs);
    assert_int_equal(bench.report->share.n_runs, 0);
    assert_true(isnan(bench.report->share.time) && isnan(bench.report->pieces[1].us));
    bench_deinit(&bench);
}

static void contradictions_show_both_sides(void **state)
{
    (void)state;
    struct bench bench;
    const char *const logs[] = {
        "profile", "[" KERNEL("front", 5, CPU) "{\"cat\":\"Session\",\"name\":\"model_run\"}]", "qnn-profile",
        "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier\n"
        "0,NODE,5,CYCLES,BACKEND,SUB-EVENT,erf:OpId_4 (cycles)\n",
        NULL};
    bench_init(&bench, split, N_SPLIT, QNN, logs);
    const struct nd_placed_node *front = node(&bench, "front"), *erf = node(&bench, "erf");
    assert_true(front->is_contradicted && front->where == ND_WHERE_NPU);
    assert_string_equal(front->provider, QNN);
    assert_string_equal(front->profile_provider, CPU);
    assert_true(erf->is_contradicted && erf->where == ND_WHERE_OFF);
    assert_string_equal(erf->profile_provider, QNN);
    assert_int_equal(bench.report->n_problems, 2);
    assert_non_null(strstr(bench.report->problems[0], "node 'front': the assignment says " QNN));
    assert_non_null(strstr(bench.report->problems[0], "on " CPU));
    assert_int_equal(bench.report->n_events, 1);
    bench_deinit(&bench);
}

static void damaged_profiles_are_problems_and_no_shares(void **state)
{
    (void)state;
    struct bench bench;
    const char *const logs[] = {"profile", "[" KERNEL("front", 5, CPU), "qnn-profile", "a,b,c\n", NULL};
    bench_init(&bench, split, N_SPLIT, QNN, logs);
    assert_true(isnan(bench.report->share.time));
    assert_true(bench.report->share.nodes == 6.0 / 9);
    assert_int_equal(bench.report->n_problems, 2);
    assert_non_null(strstr(bench.report->problems[0], "profile 'profile', event 2: the profile is cut off"));
    assert_non_null(strstr(bench.report->problems[1], "'a,b,c'"));
    bench_deinit(&bench);
}

static void nodes_that_nobody_names_are_unknown_unless_they_lie_between(void **state)
{
    (void)state;
    struct bench bench;
    /* One subgraph; 'erf' renamed, its neighbours gone, 'back_float_QuantizeLinear' gone at the end. */
    static const struct row rows[] = {{"x_DequantizeLinear", "DequantizeLinear", QNN, 1},
                                      {"front_token_3", "MatMul", QNN, 1},
                                      {"front_QuantizeLinear", "QuantizeLinear", QNN, 1},
                                      {"erf_token_12", "Erf", QNN, 1},
                                      {"back", "MatMul", QNN, 1},
                                      {"Transpose_token_4", "Transpose", CPU, 2},
                                      {"x_QuantizeLinear", "QuantizeLinear", CPU, 3}};
    bench_init(&bench, rows, sizeof rows / sizeof rows[0], QNN, NULL);
    assert_string_equal(node(&bench, "front")->renamed_to, "front_token_3");
    assert_true(node(&bench, "erf")->where == ND_WHERE_NPU && !node(&bench, "erf")->is_inferred);
    const struct nd_placed_node *between = node(&bench, "erf_DequantizeLinear");
    assert_true(between->is_inferred && between->where == ND_WHERE_NPU);
    assert_true(node(&bench, "back_float_QuantizeLinear")->where == ND_WHERE_UNKNOWN);
    assert_string_equal(node(&bench, "back_float_QuantizeLinear")->provider, "");
    const struct nd_placed_node *added = node(&bench, "Transpose_token_4");
    assert_true(added->model_node == SIZE_MAX && added->where == ND_WHERE_OFF && isnan(added->flops));
    assert_int_equal(bench.report->share.n_unknown, 0); /* a quantiser is not counted */
    assert_int_equal(bench.report->share.n_off, 0);
    bench_deinit(&bench);
}

static void renamed_nodes_of_two_claims_are_not_matched(void **state)
{
    (void)state;
    struct bench bench;
    static const struct row rows[] = {{"erf_token_1", "Erf", QNN, 1},
                                      {"erf_token_2", "Erf", CPU, 2},
                                      {"front_token_1", "Add", CPU, 3},
                                      {"back_token_", "MatMul", CPU, 4}};
    bench_init(&bench, rows, 4, QNN, NULL);
    assert_true(node(&bench, "erf")->where == ND_WHERE_UNKNOWN);
    assert_int_equal(bench.report->n_nodes, nd_model_n_nodes(bench.model) + 4);
    /* The only MatMul that is not the model's is on the CPU: so are both that nobody names. */
    assert_true(node(&bench, "front")->where == ND_WHERE_OFF && node(&bench, "front")->is_inferred);
    bench_deinit(&bench);
}

static void device_without_npu_has_none_of_it(void **state)
{
    (void)state;
    struct bench bench;
    static const struct row rows[] = {
        {"front", "MatMul", CPU, 0}, {"erf", "Erf", CPU, 0}, {"back", "MatMul", CPU, 0}};
    bench_init(&bench, rows, 3, NULL, NULL);
    assert_false(bench.report->is_npu);
    assert_true(bench.report->share.nodes == 0 && bench.report->share.flops == 0);
    assert_int_equal(bench.report->share.n_unknown, 0);
    bench_deinit(&bench);
}

static void capture_alone_tells_of_operators(void **state)
{
    (void)state;
    struct bench bench;
    struct nd_placement_report *report = NULL;
    bench_init(&bench, split, N_SPLIT, QNN, NULL);
    assert_int_equal(nd_placement_examine(NULL, bench.capture, &report, NULL), ND_OK);
    assert_int_equal(report->n_nodes, N_SPLIT);
    assert_int_equal(report->share.n_npu, 2);
    assert_int_equal(report->share.n_off, 1);
    assert_int_equal(report->n_pieces, 0);
    assert_true(isnan(report->share.flops));
    nd_placement_destroy(&report);
    bench_deinit(&bench);
}

static void capture_of_another_model_is_refused(void **state)
{
    (void)state;
    struct bench bench;
    struct nd_model *other = NULL;
    struct nd_placement_report *report = NULL;
    struct nd_error err = {0};
    char path[4096];
    bench_init(&bench, split, N_SPLIT, QNN, NULL);
    snprintf(path, sizeof path, "%s/cases/dense.u8.onnx", getenv("GOLDEN"));
    assert_int_equal(nd_model_load(path, &other, NULL), ND_OK);
    assert_int_equal(nd_placement_examine(other, bench.capture, &report, &err), ND_ERR_NOT_COMPARABLE);
    assert_null(report);
    nd_model_destroy(&other);
    bench_deinit(&bench);
}

static void subgraphs_survive_the_file(void **state)
{
    (void)state;
    struct bench bench;
    bench_init(&bench, split, N_SPLIT, QNN, NULL);
    for (size_t i = 0; i < N_SPLIT; i++)
        assert_int_equal(nd_capture_node(bench.capture, i)->subgraph, split[i].subgraph);
    bench_deinit(&bench);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(split_graph_is_cut_into_pieces_with_their_bytes),
        TEST(times_are_those_of_later_runs),
        TEST(one_run_gives_no_time),
        TEST(contradictions_show_both_sides),
        TEST(damaged_profiles_are_problems_and_no_shares),
        TEST(nodes_that_nobody_names_are_unknown_unless_they_lie_between),
        TEST(renamed_nodes_of_two_claims_are_not_matched),
        TEST(device_without_npu_has_none_of_it),
        TEST(capture_alone_tells_of_operators),
        TEST(capture_of_another_model_is_refused),
        TEST(subgraphs_survive_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
