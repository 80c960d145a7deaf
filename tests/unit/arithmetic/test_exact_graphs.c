/* Random quantised graphs against golden/oracle/exact_graphs.bin.gz, which tools/oracles/make_exact_graphs.py
 * made in exact rational arithmetic: every quantised value of every tensor. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/error.h"
#include "support/scratch.h"

enum { MAX_TENSORS = 64, MAX_INPUTS = 4 };

struct expected_tensor {
    char name[256]; /* of the tensor of quantised values */
    uint32_t n, n_free;
    int32_t *qvalues;
    uint32_t *free; /* indices of quantised values that the value does not decide, in order */
    bool is_found;
};

struct graph_case {
    uint32_t seed;
    bool is_linear; /* all layers are quotients */
    uint32_t size_bytes;
    unsigned char *bytes;
    size_t n_inputs, n_tensors;
    uint32_t n_elems[MAX_INPUTS];
    float *inputs[MAX_INPUTS];
    struct expected_tensor tensors[MAX_TENSORS];
};

struct run {
    enum nd_rounding rounding;
    bool is_quiet;
    struct graph_case *expected;
    const struct nd_model *model;
    size_t n_qvalues, n_wrong, n_not_ratio;
};

static void read_bytes(gzFile file, void *to, size_t n)
{
    assert_int_equal(gzread(file, to, (unsigned)n), (int)n);
}

static uint32_t read_number(gzFile file, size_t n_bytes)
{
    unsigned char bytes[4] = {0};
    read_bytes(file, bytes, n_bytes);
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* n elements of 4 bytes, in new memory. */
static void *read_words(gzFile file, uint32_t n)
{
    uint32_t *words = malloc((n + 1) * sizeof *words);
    assert_non_null(words);
    for (uint32_t i = 0; i < n; i++)
        words[i] = read_number(file, 4);
    return words;
}

static void read_case(gzFile file, struct graph_case *out)
{
    *out = (struct graph_case){.seed = read_number(file, 4)};
    out->is_linear = read_number(file, 1) != 0;
    out->size_bytes = read_number(file, 4);
    out->bytes = malloc(out->size_bytes);
    assert_non_null(out->bytes);
    read_bytes(file, out->bytes, out->size_bytes);
    out->n_inputs = read_number(file, 1);
    assert_in_range(out->n_inputs, 1, MAX_INPUTS);
    for (size_t i = 0; i < out->n_inputs; i++) {
        out->n_elems[i] = read_number(file, 4);
        out->inputs[i] = read_words(file, out->n_elems[i]);
    }
    out->n_tensors = read_number(file, 1);
    assert_in_range(out->n_tensors, 1, MAX_TENSORS);
    for (size_t e = 0; e < out->n_tensors; e++) {
        struct expected_tensor *tensor = &out->tensors[e];
        read_bytes(file, tensor->name, read_number(file, 1));
        tensor->n = read_number(file, 4);
        tensor->qvalues = read_words(file, tensor->n);
        tensor->n_free = read_number(file, 4);
        tensor->free = read_words(file, tensor->n_free);
    }
}

static void free_case(struct graph_case *one)
{
    for (size_t i = 0; i < one->n_inputs; i++)
        free(one->inputs[i]);
    for (size_t e = 0; e < one->n_tensors; e++) {
        free(one->tensors[e].qvalues);
        free(one->tensors[e].free);
    }
    free(one->bytes);
}

static bool is_free(const struct expected_tensor *tensor, size_t i)
{
    for (uint32_t k = 0; k < tensor->n_free; k++)
        if (tensor->free[k] == i)
            return true;
    return false;
}

static bool is_made_by_layer(const struct nd_model *model, size_t tensor)
{
    for (size_t u = 0; u < nd_model_n_layers(model); u++)
        if (nd_model_layer(model, u)->tensor == tensor)
            return true;
    return false;
}

static enum nd_status compare_tensor(void *context, size_t e, const struct nd_array *values,
                                     enum nd_exact_method method, struct nd_error *err)
{
    (void)err;
    struct run *run = context;
    const struct nd_tensor *known = nd_model_tensor(run->model, e);
    struct expected_tensor *tensor = run->expected->tensors;
    const struct expected_tensor *end = tensor + run->expected->n_tensors;
    while (tensor < end && strcmp(tensor->name, known->onnx_name) != 0)
        tensor++;
    assert_true(tensor < end && !tensor->is_found);
    assert_int_equal(values->n, tensor->n);
    tensor->is_found = true;
    run->n_qvalues += values->n;
    size_t n_wrong = 0;
    for (size_t i = 0; i < values->n; i++) {
        if (values->x[i] == (double)tensor->qvalues[i] || is_free(tensor, i))
            continue;
        if (n_wrong++ == 0 && !run->is_quiet)
            print_error("seed %u, '%s' (%s), element %zu: %g, not %d\n", (unsigned)run->expected->seed,
                        known->onnx_name, known->op_types, i, values->x[i], (int)tensor->qvalues[i]);
    }
    run->n_wrong += n_wrong;
    if (run->expected->is_linear && method != ND_EXACT_AS_RATIO && is_made_by_layer(run->model, e)) {
        print_error("seed %u, '%s' (%s): evaluated in double\n", (unsigned)run->expected->seed,
                    known->onnx_name, known->op_types);
        run->n_not_ratio++;
    }
    return ND_OK;
}

static struct nd_model *load(const struct graph_case *one)
{
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    char *path = in_folder("graph.onnx");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(one->bytes, 1, one->size_bytes, file), one->size_bytes);
    assert_int_equal(fclose(file), 0);
    expect_ok(nd_model_load(path, &model, &err), &err);
    free(path);
    return model;
}

static void run_case(struct graph_case *one, struct run *run)
{
    struct nd_error err = {0};
    struct nd_model *model = load(one);
    struct nd_exact_graph *graph = NULL;
    struct nd_array inputs[MAX_INPUTS] = {0};
    const struct nd_exact_options options = {.struct_size = sizeof options, .rounding = run->rounding};
    run->expected = one;
    run->model = model;
    assert_int_equal(nd_model_n_inputs(model), one->n_inputs);
    for (size_t i = 0; i < one->n_inputs; i++) {
        expect_ok(nd_array_make(&inputs[i], ND_DTYPE_F32, &nd_model_input(model, i)->shape, &err), &err);
        assert_int_equal(inputs[i].n, one->n_elems[i]);
        nd_array_load(ND_DTYPE_F32, one->inputs[i], inputs[i].n, inputs[i].x);
    }
    expect_ok(nd_exact_graph_create(model, &graph, &err), &err);
    expect_ok(nd_exact_graph_run(graph, inputs, &options, compare_tensor, run, &err), &err);
    for (size_t e = 0; e < one->n_tensors; e++)
        assert_true(one->tensors[e].is_found);
    for (size_t i = 0; i < one->n_inputs; i++)
        nd_array_deinit(&inputs[i]);
    nd_exact_graph_destroy(&graph);
    nd_model_destroy(&model);
}

/* All graphs of the file, counted in *run. */
static void run_all(struct run *run, uint32_t *n_graphs, uint32_t *n_linear)
{
    char path[4096], magic[8];
    snprintf(path, sizeof path, "%s/oracle/exact_graphs.bin.gz", getenv("GOLDEN"));
    gzFile file = gzopen(path, "rb");
    assert_non_null(file);
    read_bytes(file, magic, sizeof magic);
    assert_memory_equal(magic, "NDGRAPH1", sizeof magic);
    *n_graphs = read_number(file, 4);
    *n_linear = 0;
    for (uint32_t k = 0; k < *n_graphs; k++) {
        struct graph_case one;
        read_case(file, &one);
        *n_linear += one.is_linear;
        run_case(&one, run);
        free_case(&one);
    }
    assert_int_equal(gzclose_r(file), Z_OK);
}

static void random_graphs_have_the_qvalues_of_rational_arithmetic(void **state)
{
    (void)state;
    struct run run = {0};
    uint32_t n_graphs, n_linear;
    run_all(&run, &n_graphs, &n_linear);
    print_message("# %u graphs, %zu quantised values\n", (unsigned)n_graphs, run.n_qvalues);
    assert_in_range(n_linear, 200, n_graphs);
    assert_int_equal(run.n_wrong, 0);
    assert_int_equal(run.n_not_ratio, 0);
}

/* What is compared holds ties enough to tell half to even from its neighbours. */
static void other_ways_of_halving_are_told_apart(void **state)
{
    (void)state;
    static const enum nd_rounding others[] = {ND_ROUND_HALF_AWAY, ND_ROUND_HALF_UP, ND_ROUND_HALF_DOWN};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct run run = {.rounding = others[i], .is_quiet = true};
        uint32_t n_graphs, n_linear;
        run_all(&run, &n_graphs, &n_linear);
        assert_true(run.n_wrong > 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_graphs_have_the_qvalues_of_rational_arithmetic, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(other_ways_of_halving_are_told_apart, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
