/* Twins for programs: the same bits however samples are spread, what is asked for and nothing else, and what
 * cannot be had is named. That they are the bits of `capture -d twin:` is tested in
 * tests/library/test_python.py. */
#include "support/golden_models.h"

#include "arithmetic/trials/twin.h"
#include "core/random.h"
#include "npudiff/devices/twin.h"

enum { N_SAMPLES = 7, GUARD = 16 };

/* A model, a twin of it, and a buffer for each of its tensors and outputs, filled with 0xAA. */
struct bench {
    struct nd_model *model;
    struct nd_twin_model *twin;
    float *input;
    unsigned char **buffers[2];
};

static const enum nd_twin_kind kinds[2] = {ND_TWIN_OUTPUT, ND_TWIN_TENSOR};

static size_t n_of(const struct bench *b, enum nd_twin_kind kind)
{
    size_t n;
    nd_twin_model_values(b->twin, kind, &n);
    return n;
}

static const struct nd_twin_value *value_of(const struct bench *b, enum nd_twin_kind kind, size_t i)
{
    size_t n;
    const struct nd_twin_value *values = nd_twin_model_values(b->twin, kind, &n);
    assert_true(i < n);
    return &values[i];
}

static struct nd_twin_mark mark_of(const struct bench *b, size_t tensor)
{
    return value_of(b, ND_TWIN_TENSOR, tensor)->mark;
}

static size_t bytes_of(const struct bench *b, size_t k, size_t i)
{
    return N_SAMPLES * value_of(b, kinds[k], i)->size_bytes + GUARD;
}

static void open_bench(struct bench *b, const char *name, const char *chip, size_t n_threads)
{
    struct nd_error err = {0};
    uint64_t random = 7;
    b->model = load(name);
    if (nd_twin_model_open(b->model, chip, n_threads, &b->twin, &err) != ND_OK)
        fail_msg("%s", err.message);
    size_t n = N_SAMPLES * value_of(b, ND_TWIN_INPUT, 0)->size_bytes / sizeof *b->input;
    b->input = malloc(n * sizeof *b->input);
    for (size_t i = 0; i < n; i++)
        b->input[i] = (float)nd_splitmix_uniform(&random);
    for (size_t k = 0; k < 2; k++) {
        size_t n_values = n_of(b, kinds[k]);
        b->buffers[k] = calloc(n_values, sizeof *b->buffers[k]);
        for (size_t i = 0; i < n_values; i++) {
            b->buffers[k][i] = malloc(bytes_of(b, k, i));
            memset(b->buffers[k][i], 0xAA, bytes_of(b, k, i));
        }
    }
}

static enum nd_status run(struct bench *b, bool with_outputs, bool with_tensors, struct nd_error *err)
{
    const void *const inputs[] = {b->input};
    const struct nd_twin_samples samples = {.n = N_SAMPLES,
                                            .inputs = inputs,
                                            .outputs = with_outputs ? (void *const *)b->buffers[0] : NULL,
                                            .tensors = with_tensors ? (void *const *)b->buffers[1] : NULL};
    return nd_twin_model_run(b->twin, &samples, err);
}

static void close_bench(struct bench *b)
{
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < n_of(b, kinds[k]); i++)
            free(b->buffers[k][i]);
        free(b->buffers[k]);
    }
    free(b->input);
    nd_twin_model_close(&b->twin);
    nd_twin_model_close(&b->twin);
    nd_model_destroy(&b->model);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    static const char *const names[] = {"models/cnn.w8a8.onnx", "models/vit.w8a8.onnx",
                                        "models/cnn.w8a16.onnx"};
    for (size_t m = 0; m < 3; m++) {
        struct bench one, two;
        open_bench(&one, names[m], "gen3", 1);
        open_bench(&two, names[m], "SM8650@qairt-2.51", 3);
        assert_int_equal(run(&one, true, true, NULL), ND_OK);
        assert_int_equal(run(&two, true, true, NULL), ND_OK);
        for (size_t k = 0; k < 2; k++)
            for (size_t i = 0; i < n_of(&one, kinds[k]); i++)
                assert_memory_equal(one.buffers[k][i], two.buffers[k][i], bytes_of(&one, k, i));
        for (size_t e = 0; e < nd_model_n_tensors(one.model); e++) {
            assert_ptr_equal(mark_of(&one, e).why, mark_of(&two, e).why);
            assert_int_equal(mark_of(&one, e).is_behind, mark_of(&two, e).is_behind);
        }
        close_bench(&one);
        close_bench(&two);
    }
}

/* What nd_twin_run finds of the last sample is in the buffers, and nothing is written behind them. */
static enum nd_status check_found(void *context, size_t tensor, const struct nd_array *values,
                                  enum nd_exact_method method, struct nd_error *err)
{
    (void)method, (void)err;
    struct bench *b = context;
    const struct nd_twin_value *value = value_of(b, ND_TWIN_TENSOR, tensor);
    unsigned char *expected = malloc(value->size_bytes);
    assert_int_equal(values->n * nd_dtype_size_bytes(value->io.dtype), value->size_bytes);
    nd_array_store(value->io.dtype, values->x, values->n, expected);
    assert_memory_equal(b->buffers[1][tensor] + (N_SAMPLES - 1) * value->size_bytes, expected,
                        value->size_bytes);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(b->buffers[1][tensor][N_SAMPLES * value->size_bytes + i], 0xAA);
    free(expected);
    return ND_OK;
}

static void samples_are_where_they_belong(void **state)
{
    (void)state;
    struct bench b;
    struct nd_exact_graph *graph = NULL;
    struct nd_twin_chip chip;
    struct nd_twin *twin = NULL;
    struct nd_array input = {0};
    open_bench(&b, "models/cnn.w8a8.onnx", "gen1", 2);
    assert_int_equal(run(&b, true, true, NULL), ND_OK);
    assert_true(nd_twin_chip_of("v69", ND_TWIN_NEWEST_SDK, &chip));
    assert_int_equal(nd_exact_graph_create(b.model, &graph, NULL), ND_OK);
    assert_int_equal(nd_twin_create(b.model, graph, &chip, NULL, &twin, NULL), ND_OK);
    assert_int_equal(nd_array_make(&input, ND_DTYPE_F32, &nd_model_input(b.model, 0)->shape, NULL), ND_OK);
    nd_array_load(ND_DTYPE_F32, b.input + (N_SAMPLES - 1) * input.n, input.n, input.x);
    assert_int_equal(nd_twin_run(twin, &input, check_found, &b, NULL), ND_OK);
    nd_array_deinit(&input);
    nd_twin_destroy(&twin);
    nd_exact_graph_destroy(&graph);
    close_bench(&b);
}

/* An output is the tensor of its name as real numbers; who asks for outputs alone gets nothing else. */
static void outputs_are_what_the_model_gives(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, "models/cnn.w8a8.onnx", "gen3", 0);
    size_t logits = tensor_index(b.model, "logits");
    const struct nd_twin_value *value = value_of(&b, ND_TWIN_TENSOR, logits);
    const struct nd_twin_value *output = value_of(&b, ND_TWIN_OUTPUT, 0);
    assert_int_equal(value->io.dtype, ND_DTYPE_U8);
    assert_int_equal(output->io.dtype, ND_DTYPE_F32);
    assert_int_equal(output->io.quant_dtype, ND_DTYPE_U8);
    assert_int_equal(output->size_bytes, 4 * value->size_bytes);
    assert_int_equal(run(&b, true, false, NULL), ND_OK);
    assert_int_equal(b.buffers[1][logits][0], 0xAA);
    assert_int_equal(run(&b, false, true, NULL), ND_OK);
    for (size_t i = 0; i < N_SAMPLES * value->size_bytes; i++) {
        float real;
        memcpy(&real, b.buffers[0][0] + 4 * i, 4);
        assert_f32_bits(real,
                        (float)(((double)b.buffers[1][logits][i] - (double)value->io.quant->zero_point[0]) *
                                (double)value->io.quant->scale[0]));
    }
    assert_int_equal(nd_twin_model_run(b.twin, &(struct nd_twin_samples){.n = 0}, NULL), ND_OK);
    close_bench(&b);
}

/* One layer of the uint16 network is not claimed in every value; strict refuses it by name, and only it. */
static void what_is_not_known_is_said(void **state)
{
    (void)state;
    struct bench b;
    struct nd_error err = {0};
    open_bench(&b, "models/cnn.w8a16.onnx", "gen3", 2);
    size_t average = tensor_index(b.model, "average");
    assert_null(mark_of(&b, average).why); /* zeros, with which it was opened, do not count */
    assert_int_equal(run(&b, true, false, &err), ND_OK);
    for (size_t e = 0; e < nd_model_n_tensors(b.model); e++) {
        assert_int_equal(mark_of(&b, e).why != NULL, e == average);
        assert_int_equal(mark_of(&b, e).is_behind, e > average);
    }
    close_bench(&b);
    open_bench(&b, "models/cnn.w8a16.onnx", "gen3?strict=1", 2);
    assert_int_equal(run(&b, true, true, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(err.id, ND_E_EXACT_OPERATOR);
    assert_string_equal(err.object, "average");
    assert_non_null(strstr(err.message, nd_model_tensor(b.model, average)->op_types));
    close_bench(&b);
    open_bench(&b, "models/cnn.w8a8.onnx", "gen3?strict=1", 2);
    assert_int_equal(run(&b, true, true, &err), ND_OK);
    close_bench(&b);
}

/* Of two samples with different marks it does not matter which came first. */
static void marks_are_added_in_any_order(void **state)
{
    (void)state;
    const struct nd_twin_mark marks[] = {{0}, {"floats", false}, {"defect", true}, {NULL, true}};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            struct nd_twin_mark a = marks[i], b = marks[k];
            nd_twin_mark_merge(&marks[k], &a);
            nd_twin_mark_merge(&marks[i], &b);
            assert_ptr_equal(a.why, b.why);
            assert_int_equal(a.is_behind, b.is_behind);
            assert_int_equal(a.why != NULL, marks[i].why != NULL || marks[k].why != NULL);
        }
}

static void what_cannot_be_had_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *model, *chip, *said;
    } cases[] = {{"models/cnn.w8a8.onnx", "gen9", "gen9"},
                 {"models/cnn.w8a8.onnx", "", "chipset"},
                 {"models/cnn.w8a8.onnx", "gen3@qairt-2.52", "qairt-2.47"},
                 {"models/cnn.w8a8.onnx", "gen3?rounding=floor", "strict=1"},
                 {"models/cnn.float.onnx", "gen3", "for quantised models"},
                 {"models/cnn.w8a8.onnx", "twin:gen3", "twin:gen3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nd_model *model = load(cases[i].model);
        struct nd_twin_model *twin = NULL;
        struct nd_error err = {0};
        assert_int_not_equal(nd_twin_model_open(model, cases[i].chip, 1, &twin, &err), ND_OK);
        assert_int_equal(err.id, ND_E_DEVICE_UNKNOWN);
        if (strstr(err.message, cases[i].said) == NULL)
            fail_msg("'%s' is not in '%s'", cases[i].said, err.message);
        assert_null(twin);
        nd_model_destroy(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(samples_are_where_they_belong),
        cmocka_unit_test(outputs_are_what_the_model_gives),
        cmocka_unit_test(what_is_not_known_is_said),
        cmocka_unit_test(marks_are_added_in_any_order),
        cmocka_unit_test(what_cannot_be_had_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
