/* Whole models in double precision and by exact layers. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/error.h"

enum { MAX_TENSORS = 96 };

struct model {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_array input;
    struct nd_array tensors[MAX_TENSORS]; /* rank < 0: not told of */
    enum nd_exact_method methods[MAX_TENSORS];
    struct nd_error why[MAX_TENSORS]; /* id 0: not missed */
    bool is_fatal;                    /* what is missed ends the run */
};

static enum nd_status keep(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    struct model *m = context;
    assert_true(tensor < MAX_TENSORS && m->tensors[tensor].shape.rank < 0); /* once each */
    m->tensors[tensor] = (struct nd_array){0};
    m->methods[tensor] = method;
    return nd_array_copy(values, &m->tensors[tensor], err);
}

static enum nd_status miss(void *context, size_t tensor, const struct nd_error *why, struct nd_error *err)
{
    struct model *m = context;
    assert_true(tensor < MAX_TENSORS && m->tensors[tensor].shape.rank < 0 && m->why[tensor].id == 0);
    m->why[tensor] = *why;
    return m->is_fatal ? nd_fail_memory(err) : ND_OK;
}

static void clear(struct model *m)
{
    memset(m->why, 0, sizeof m->why);
    for (size_t e = 0; e < MAX_TENSORS; e++) {
        if (m->tensors[e].shape.rank >= 0)
            nd_array_deinit(&m->tensors[e]);
        m->tensors[e].shape.rank = -1;
    }
}

static void open_from(struct model *m, const char *folder, const char *name, uint64_t seed)
{
    char path[512];
    struct nd_error err = {0};
    *m = (struct model){0};
    for (size_t e = 0; e < MAX_TENSORS; e++)
        m->tensors[e].shape.rank = -1;
    snprintf(path, sizeof path, "%s/%s/%s.onnx", getenv("GOLDEN"), folder, name);
    if (nd_model_load(path, &m->model, &err) != ND_OK ||
        nd_exact_graph_create(m->model, &m->graph, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_true(nd_model_n_tensors(m->model) <= MAX_TENSORS);
    const struct nd_model_io *io = nd_model_input(m->model, 0);
    assert_int_equal(nd_array_make(&m->input, io->dtype, &io->shape, &err), ND_OK);
    for (size_t i = 0; i < m->input.n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        m->input.x[i] = (double)(seed >> 40) / 0x1p24;
    }
}

static void open_model(struct model *m, const char *name, uint64_t seed)
{
    open_from(m, "models", name, seed);
}

static void close_model(struct model *m)
{
    clear(m);
    nd_array_deinit(&m->input);
    nd_exact_graph_destroy(&m->graph);
    nd_model_destroy(&m->model);
}

static void run(struct model *m, const struct nd_array *given)
{
    struct nd_error err = {0};
    struct nd_exact_options options = {.struct_size = sizeof options, .given = given};
    clear(m);
    if (nd_exact_graph_run(m->graph, &m->input, &options, keep, m, &err) != ND_OK)
        fail_msg("%s", err.message);
}

static bool is_same(const struct nd_array *a, const struct nd_array *b)
{
    return a->n == b->n && memcmp(a->x, b->x, a->n * sizeof *a->x) == 0;
}

static void model_every_tensor_is_told_of_once(void **state)
{
    (void)state;
    static const char *const names[] = {"cnn.w8a8",  "cnn.w8a16", "vit.w8a8",
                                        "vit.w8a16", "cnn.float", "vit.float"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct model m;
        open_model(&m, names[k], k);
        run(&m, NULL);
        for (size_t e = 0; e < nd_model_n_tensors(m.model); e++)
            if (m.tensors[e].shape.rank < 0)
                fail_msg("%s: '%s' was not computed", names[k], nd_model_tensor(m.model, e)->name);
        close_model(&m);
    }
}

/* Convolutions, products and sums are exact; norms, softmax and gelu are not linear. */
static void model_linear_units_are_quotients(void **state)
{
    (void)state;
    struct model m;
    open_model(&m, "vit.w8a8", 3);
    run(&m, NULL);
    for (size_t u = 0; u < nd_model_n_layers(m.model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(m.model, u);
        bool is_curved = strstr(layer->op_types, "Norm") != NULL ||
                         strstr(layer->op_types, "Softmax") != NULL || strstr(layer->op_types, "Gelu") != NULL;
        if ((m.methods[layer->tensor] == ND_EXACT_AS_DOUBLE) != is_curved)
            fail_msg("'%s' (%s) was evaluated the other way", layer->name, layer->op_types);
    }
    close_model(&m);
}

static void run_on_its_own_qvalues_has_no_local_error(void **state)
{
    (void)state;
    struct model m;
    struct nd_array given[MAX_TENSORS];
    open_model(&m, "cnn.w8a8", 7);
    run(&m, NULL);
    memcpy(given, m.tensors, sizeof given); /* taken over */
    for (size_t e = 0; e < MAX_TENSORS; e++)
        m.tensors[e].shape.rank = -1;
    run(&m, given);
    for (size_t e = 0; e < nd_model_n_tensors(m.model); e++)
        assert_true(is_same(&given[e], &m.tensors[e]));
    for (size_t e = 0; e < MAX_TENSORS; e++)
        if (given[e].shape.rank >= 0)
            nd_array_deinit(&given[e]);
    close_model(&m);
}

/* Constants that are let go and read again are the same: nothing is kept, or little. */
static void constants_within_a_limit_change_no_value(void **state)
{
    (void)state;
    static const char *const names[] = {"vit.w8a8", "vit.w8a16", "vit.float"};
    static const size_t limits[] = {0, (size_t)256 << 10};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct model all;
        open_model(&all, names[k], 5);
        run(&all, NULL);
        for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
            struct model m;
            struct nd_error err = {0};
            open_model(&m, names[k], 5);
            nd_exact_graph_destroy(&m.graph);
            if (nd_exact_graph_create_within(m.model, limits[i], &m.graph, &err) != ND_OK)
                fail_msg("%s", err.message);
            run(&m, NULL);
            assert_true(nd_exact_graph_kept_bytes(m.graph) < nd_exact_graph_kept_bytes(all.graph));
            for (size_t e = 0; e < nd_model_n_tensors(m.model); e++)
                assert_true(is_same(&all.tensors[e], &m.tensors[e]) && all.methods[e] == m.methods[e]);
            close_model(&m);
        }
        close_model(&all);
    }
}

/* A quantised value that a device got wrong is wrong there only: the layer's inputs are right, and the layers
 * behind it are computed from the wrong quantised value. */
static void given_qvalue_is_local_to_its_layer(void **state)
{
    (void)state;
    struct model m;
    struct nd_array given[MAX_TENSORS];
    open_model(&m, "cnn.w8a8", 11);
    run(&m, NULL);
    memcpy(given, m.tensors, sizeof given);
    for (size_t e = 0; e < MAX_TENSORS; e++)
        m.tensors[e].shape.rank = -1;
    const struct nd_model_layer *layer = nd_model_layer(m.model, 1);
    size_t wrong = layer->tensor;
    given[wrong].x[5] += given[wrong].x[5] < 255 ? 1 : -1;
    run(&m, given);
    size_t n_local = 0;
    for (size_t i = 0; i < given[wrong].n; i++)
        n_local += given[wrong].x[i] != m.tensors[wrong].x[i];
    assert_int_equal(n_local, 1);
    for (size_t e = 0; e < wrong; e++)
        assert_true(is_same(&given[e], &m.tensors[e]));
    for (size_t e = 0; e < MAX_TENSORS; e++)
        if (given[e].shape.rank >= 0)
            nd_array_deinit(&given[e]);
    close_model(&m);
}

/* The float model and the quantised one share the names of their tensors, and mean nearly the same. */
static void float_reference_is_near_the_quantised_one(void **state)
{
    (void)state;
    struct model f, q;
    open_model(&f, "cnn.float", 5);
    open_model(&q, "cnn.w8a16", 5);
    run(&f, NULL);
    run(&q, NULL);
    size_t n_shared = 0;
    for (size_t i = 0; i < nd_model_n_tensors(q.model); i++)
        for (size_t k = 0; k < nd_model_n_tensors(f.model); k++) {
            const struct nd_tensor *tensor = nd_model_tensor(q.model, i);
            if (strcmp(tensor->name, nd_model_tensor(f.model, k)->name) != 0 || tensor->quant.n != 1)
                continue;
            double error = 0, size = 0;
            for (size_t j = 0; j < f.tensors[k].n; j++) {
                double real =
                    (double)tensor->quant.scale[0] * (q.tensors[i].x[j] - (double)tensor->quant.zero_point[0]);
                error += (real - f.tensors[k].x[j]) * (real - f.tensors[k].x[j]);
                size += f.tensors[k].x[j] * f.tensors[k].x[j];
            }
            assert_true(error < 0.01 * size); /* weights of 8 bits: over 20 dB */
            n_shared++;
        }
    assert_true(n_shared > 5);
    close_model(&f);
    close_model(&q);
}

/* ---- what cannot be evaluated ---- */

static enum nd_status run_with_missed(struct model *m, const struct nd_array *given, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options, .given = given, .missed = miss};
    clear(m);
    return nd_exact_graph_run(m->graph, &m->input, &options, keep, m, err);
}

static size_t tensor_of(const struct model *m, const char *name)
{
    size_t e = 0;
    while (e < nd_model_n_tensors(m->model) && strcmp(nd_model_tensor(m->model, e)->name, name) != 0)
        e++;
    assert_true(e < nd_model_n_tensors(m->model));
    return e;
}

/* id 0: found. Else `word` is in its message. */
static void assert_tensor(const struct model *m, const char *name, int id, const char *word)
{
    size_t e = tensor_of(m, name);
    if (m->why[e].id != id || (m->tensors[e].shape.rank >= 0) != (id == 0) ||
        (id != 0 && strstr(m->why[e].message, word) == NULL))
        fail_msg("'%s': %d, %s", name, m->why[e].id, m->why[e].message);
}

static void give_nothing(struct nd_array *given)
{
    for (size_t e = 0; e < MAX_TENSORS; e++)
        given[e] = (struct nd_array){.shape.rank = -1};
}

static void give(const struct model *m, const char *name, int64_t n, struct nd_array *given)
{
    size_t e = tensor_of(m, name);
    const struct nd_shape shape = {.rank = 2, .dims = {1, n}};
    given[e] = (struct nd_array){0};
    assert_int_equal(nd_array_make(&given[e], ND_DTYPE_U8, &shape, NULL), ND_OK);
}

static void uncovered_operator_ends_a_run_without_missed(void **state)
{
    (void)state;
    struct model m;
    struct nd_error err = {0};
    open_from(&m, "cases", "sample.u8", 1);
    assert_int_equal(nd_exact_graph_run(m.graph, &m.input, NULL, keep, &m, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(err.id, ND_E_EXACT_OPERATOR);
    assert_non_null(strstr(err.message, "node 'sample' (RoiAlign)"));
    clear(&m);
    m.is_fatal = true;
    assert_int_equal(run_with_missed(&m, NULL, &err), ND_ERR_MEMORY);
    close_model(&m);
}

/* It costs what depends on it; where its quantised values are given, itself alone. */
static void uncovered_operator_costs_its_layer(void **state)
{
    (void)state;
    struct model m;
    struct nd_error err = {0};
    struct nd_array given[MAX_TENSORS];
    open_from(&m, "cases", "sample.u8", 1);
    assert_int_equal(run_with_missed(&m, NULL, &err), ND_OK);
    assert_tensor(&m, "x", 0, NULL);
    assert_tensor(&m, "front", 0, NULL);
    assert_tensor(&m, "sample", ND_E_EXACT_OPERATOR, "node 'sample' (RoiAlign)");
    assert_tensor(&m, "back", ND_E_EXACT_UNKNOWN, "'sample'");
    assert_tensor(&m, "y", ND_E_EXACT_UNKNOWN, "'sample'");
    assert_string_equal(m.why[tensor_of(&m, "y")].object, "sample");
    give_nothing(given);
    assert_int_equal(nd_array_copy(&m.tensors[tensor_of(&m, "front")], &given[tensor_of(&m, "front")], &err),
                     ND_OK);
    given[tensor_of(&m, "sample")] = given[tensor_of(&m, "front")]; /* of the same shape */
    given[tensor_of(&m, "front")] = (struct nd_array){.shape.rank = -1};
    assert_int_equal(run_with_missed(&m, given, &err), ND_OK);
    assert_tensor(&m, "sample", ND_E_EXACT_OPERATOR, "RoiAlign");
    assert_tensor(&m, "back", 0, NULL);
    assert_tensor(&m, "y", 0, NULL);
    nd_array_deinit(&given[tensor_of(&m, "sample")]);
    close_model(&m);
}

static void foreign_domains_and_subgraphs_cost_their_layers(void **state)
{
    (void)state;
    struct model m;
    struct nd_error err = {0};
    struct nd_array given[MAX_TENSORS];
    open_from(&m, "cases", "strange.u8", 1);
    assert_int_equal(run_with_missed(&m, NULL, &err), ND_OK);
    assert_tensor(&m, "first", 0, NULL);
    assert_tensor(&m, "third", ND_E_EXACT_OPERATOR, "node 'odd_half' (Odd)"); /* a constant */
    assert_tensor(&m, "odd", ND_E_EXACT_OPERATOR, "node 'odd' (Odd)");
    assert_tensor(&m, "second", ND_E_EXACT_UNKNOWN, "'odd'");
    assert_tensor(&m, "branch", ND_E_EXACT_OPERATOR, "node 'branch' (If)");
    assert_tensor(&m, "last", ND_E_EXACT_UNKNOWN, "'branch'");
    give_nothing(given);
    give(&m, "odd", 8, given);
    give(&m, "branch", 8, given);
    assert_int_equal(run_with_missed(&m, given, &err), ND_OK);
    assert_tensor(&m, "second", 0, NULL);
    assert_tensor(&m, "branch", ND_E_EXACT_OPERATOR, "If");
    assert_tensor(&m, "last", 0, NULL);
    assert_tensor(&m, "y", ND_E_EXACT_UNKNOWN, "'third'");
    nd_array_deinit(&given[tensor_of(&m, "odd")]);
    nd_array_deinit(&given[tensor_of(&m, "branch")]);
    close_model(&m);
}

static void given_qvalues_of_another_shape_are_missed(void **state)
{
    (void)state;
    struct model m;
    struct nd_error err = {0};
    struct nd_array given[MAX_TENSORS];
    open_from(&m, "cases", "strange.u8", 1);
    give_nothing(given);
    give(&m, "first", 1, given);
    const struct nd_exact_options options = {.struct_size = sizeof options, .given = given};
    assert_int_equal(nd_exact_graph_run(m.graph, &m.input, &options, keep, &m, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_EXACT_SHAPE);
    assert_int_equal(run_with_missed(&m, given, &err), ND_OK);
    assert_tensor(&m, "first", ND_E_EXACT_SHAPE, "another shape");
    nd_array_deinit(&given[tensor_of(&m, "first")]);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_every_tensor_is_told_of_once),
        cmocka_unit_test(model_linear_units_are_quotients),
        cmocka_unit_test(run_on_its_own_qvalues_has_no_local_error),
        cmocka_unit_test(constants_within_a_limit_change_no_value),
        cmocka_unit_test(given_qvalue_is_local_to_its_layer),
        cmocka_unit_test(float_reference_is_near_the_quantised_one),
        cmocka_unit_test(uncovered_operator_ends_a_run_without_missed),
        cmocka_unit_test(uncovered_operator_costs_its_layer),
        cmocka_unit_test(foreign_domains_and_subgraphs_cost_their_layers),
        cmocka_unit_test(given_qvalues_of_another_shape_are_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
