/* Whole models in double precision and by exact units. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/error.h"

enum { MAX_EDGES = 96 };

struct model {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_array input;
    struct nd_array edges[MAX_EDGES]; /* rank < 0: not told of */
    enum nd_exact_way ways[MAX_EDGES];
    struct nd_error why[MAX_EDGES]; /* id 0: not missed */
    bool is_fatal;                  /* what is missed ends the run */
};

static enum nd_status keep(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                           struct nd_error *err)
{
    struct model *m = context;
    assert_true(edge < MAX_EDGES && m->edges[edge].shape.rank < 0); /* once each */
    m->edges[edge] = (struct nd_array){0};
    m->ways[edge] = way;
    return nd_array_copy(values, &m->edges[edge], err);
}

static enum nd_status miss(void *context, size_t edge, const struct nd_error *why, struct nd_error *err)
{
    struct model *m = context;
    assert_true(edge < MAX_EDGES && m->edges[edge].shape.rank < 0 && m->why[edge].id == 0);
    m->why[edge] = *why;
    return m->is_fatal ? nd_fail_memory(err) : ND_OK;
}

static void clear(struct model *m)
{
    memset(m->why, 0, sizeof m->why);
    for (size_t e = 0; e < MAX_EDGES; e++) {
        if (m->edges[e].shape.rank >= 0)
            nd_array_deinit(&m->edges[e]);
        m->edges[e].shape.rank = -1;
    }
}

static void open_from(struct model *m, const char *folder, const char *name, uint64_t seed)
{
    char path[512];
    struct nd_error err = {0};
    *m = (struct model){0};
    for (size_t e = 0; e < MAX_EDGES; e++)
        m->edges[e].shape.rank = -1;
    snprintf(path, sizeof path, "%s/%s/%s.onnx", getenv("GOLDEN"), folder, name);
    if (nd_model_load(path, &m->model, &err) != ND_OK ||
        nd_exact_graph_create(m->model, &m->graph, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_true(nd_model_n_edges(m->model) <= MAX_EDGES);
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

static void model_every_edge_is_told_of_once(void **state)
{
    (void)state;
    static const char *const names[] = {"cnn.w8a8",  "cnn.w8a16", "vit.w8a8",
                                        "vit.w8a16", "cnn.float", "vit.float"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct model m;
        open_model(&m, names[k], k);
        run(&m, NULL);
        for (size_t e = 0; e < nd_model_n_edges(m.model); e++)
            if (m.edges[e].shape.rank < 0)
                fail_msg("%s: '%s' was not computed", names[k], nd_model_edge(m.model, e)->name);
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
    for (size_t u = 0; u < nd_model_n_units(m.model); u++) {
        const struct nd_model_unit *unit = nd_model_unit(m.model, u);
        bool is_curved = strstr(unit->op_types, "Norm") != NULL || strstr(unit->op_types, "Softmax") != NULL ||
                         strstr(unit->op_types, "Gelu") != NULL;
        if ((m.ways[unit->edge] == ND_EXACT_AS_DOUBLE) != is_curved)
            fail_msg("'%s' (%s) was evaluated the other way", unit->name, unit->op_types);
    }
    close_model(&m);
}

static void run_on_its_own_codes_has_no_local_error(void **state)
{
    (void)state;
    struct model m;
    struct nd_array given[MAX_EDGES];
    open_model(&m, "cnn.w8a8", 7);
    run(&m, NULL);
    memcpy(given, m.edges, sizeof given); /* taken over */
    for (size_t e = 0; e < MAX_EDGES; e++)
        m.edges[e].shape.rank = -1;
    run(&m, given);
    for (size_t e = 0; e < nd_model_n_edges(m.model); e++)
        assert_true(is_same(&given[e], &m.edges[e]));
    for (size_t e = 0; e < MAX_EDGES; e++)
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
            for (size_t e = 0; e < nd_model_n_edges(m.model); e++)
                assert_true(is_same(&all.edges[e], &m.edges[e]) && all.ways[e] == m.ways[e]);
            close_model(&m);
        }
        close_model(&all);
    }
}

/* A code that a device got wrong is wrong there only: the unit's inputs are right, and the units behind it are
 * computed from the wrong code. */
static void given_code_is_local_to_its_unit(void **state)
{
    (void)state;
    struct model m;
    struct nd_array given[MAX_EDGES];
    open_model(&m, "cnn.w8a8", 11);
    run(&m, NULL);
    memcpy(given, m.edges, sizeof given);
    for (size_t e = 0; e < MAX_EDGES; e++)
        m.edges[e].shape.rank = -1;
    const struct nd_model_unit *unit = nd_model_unit(m.model, 1);
    size_t wrong = unit->edge;
    given[wrong].x[5] += given[wrong].x[5] < 255 ? 1 : -1;
    run(&m, given);
    size_t n_local = 0;
    for (size_t i = 0; i < given[wrong].n; i++)
        n_local += given[wrong].x[i] != m.edges[wrong].x[i];
    assert_int_equal(n_local, 1);
    for (size_t e = 0; e < wrong; e++)
        assert_true(is_same(&given[e], &m.edges[e]));
    for (size_t e = 0; e < MAX_EDGES; e++)
        if (given[e].shape.rank >= 0)
            nd_array_deinit(&given[e]);
    close_model(&m);
}

/* The float model and the quantised one share the names of their edges, and mean nearly the same. */
static void float_reference_is_near_the_quantised_one(void **state)
{
    (void)state;
    struct model f, q;
    open_model(&f, "cnn.float", 5);
    open_model(&q, "cnn.w8a16", 5);
    run(&f, NULL);
    run(&q, NULL);
    size_t n_shared = 0;
    for (size_t i = 0; i < nd_model_n_edges(q.model); i++)
        for (size_t k = 0; k < nd_model_n_edges(f.model); k++) {
            const struct nd_edge *edge = nd_model_edge(q.model, i);
            if (strcmp(edge->name, nd_model_edge(f.model, k)->name) != 0 || edge->quant.n != 1)
                continue;
            double error = 0, size = 0;
            for (size_t j = 0; j < f.edges[k].n; j++) {
                double real =
                    (double)edge->quant.scale[0] * (q.edges[i].x[j] - (double)edge->quant.zero_point[0]);
                error += (real - f.edges[k].x[j]) * (real - f.edges[k].x[j]);
                size += f.edges[k].x[j] * f.edges[k].x[j];
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

static size_t edge_of(const struct model *m, const char *name)
{
    size_t e = 0;
    while (e < nd_model_n_edges(m->model) && strcmp(nd_model_edge(m->model, e)->name, name) != 0)
        e++;
    assert_true(e < nd_model_n_edges(m->model));
    return e;
}

/* id 0: found. Else `word` is in its message. */
static void assert_edge(const struct model *m, const char *name, int id, const char *word)
{
    size_t e = edge_of(m, name);
    if (m->why[e].id != id || (m->edges[e].shape.rank >= 0) != (id == 0) ||
        (id != 0 && strstr(m->why[e].message, word) == NULL))
        fail_msg("'%s': %d, %s", name, m->why[e].id, m->why[e].message);
}

static void give_nothing(struct nd_array *given)
{
    for (size_t e = 0; e < MAX_EDGES; e++)
        given[e] = (struct nd_array){.shape.rank = -1};
}

static void give(const struct model *m, const char *name, int64_t n, struct nd_array *given)
{
    size_t e = edge_of(m, name);
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

/* It costs what depends on it; where its codes are given, itself alone. */
static void uncovered_operator_costs_its_unit(void **state)
{
    (void)state;
    struct model m;
    struct nd_error err = {0};
    struct nd_array given[MAX_EDGES];
    open_from(&m, "cases", "sample.u8", 1);
    assert_int_equal(run_with_missed(&m, NULL, &err), ND_OK);
    assert_edge(&m, "x", 0, NULL);
    assert_edge(&m, "front", 0, NULL);
    assert_edge(&m, "sample", ND_E_EXACT_OPERATOR, "node 'sample' (RoiAlign)");
    assert_edge(&m, "back", ND_E_EXACT_UNKNOWN, "'sample'");
    assert_edge(&m, "y", ND_E_EXACT_UNKNOWN, "'sample'");
    assert_string_equal(m.why[edge_of(&m, "y")].object, "sample");
    give_nothing(given);
    assert_int_equal(nd_array_copy(&m.edges[edge_of(&m, "front")], &given[edge_of(&m, "front")], &err), ND_OK);
    given[edge_of(&m, "sample")] = given[edge_of(&m, "front")]; /* of the same shape */
    given[edge_of(&m, "front")] = (struct nd_array){.shape.rank = -1};
    assert_int_equal(run_with_missed(&m, given, &err), ND_OK);
    assert_edge(&m, "sample", ND_E_EXACT_OPERATOR, "RoiAlign");
    assert_edge(&m, "back", 0, NULL);
    assert_edge(&m, "y", 0, NULL);
    nd_array_deinit(&given[edge_of(&m, "sample")]);
    close_model(&m);
}

static void foreign_domains_and_subgraphs_cost_their_units(void **state)
{
    (void)state;
    struct model m;
    struct nd_error err = {0};
    struct nd_array given[MAX_EDGES];
    open_from(&m, "cases", "strange.u8", 1);
    assert_int_equal(run_with_missed(&m, NULL, &err), ND_OK);
    assert_edge(&m, "first", 0, NULL);
    assert_edge(&m, "third", ND_E_EXACT_OPERATOR, "node 'odd_half' (Odd)"); /* a constant */
    assert_edge(&m, "odd", ND_E_EXACT_OPERATOR, "node 'odd' (Odd)");
    assert_edge(&m, "second", ND_E_EXACT_UNKNOWN, "'odd'");
    assert_edge(&m, "branch", ND_E_EXACT_OPERATOR, "node 'branch' (If)");
    assert_edge(&m, "last", ND_E_EXACT_UNKNOWN, "'branch'");
    give_nothing(given);
    give(&m, "odd", 8, given);
    give(&m, "branch", 8, given);
    assert_int_equal(run_with_missed(&m, given, &err), ND_OK);
    assert_edge(&m, "second", 0, NULL);
    assert_edge(&m, "branch", ND_E_EXACT_OPERATOR, "If");
    assert_edge(&m, "last", 0, NULL);
    assert_edge(&m, "y", ND_E_EXACT_UNKNOWN, "'third'");
    nd_array_deinit(&given[edge_of(&m, "odd")]);
    nd_array_deinit(&given[edge_of(&m, "branch")]);
    close_model(&m);
}

static void given_codes_of_another_shape_are_missed(void **state)
{
    (void)state;
    struct model m;
    struct nd_error err = {0};
    struct nd_array given[MAX_EDGES];
    open_from(&m, "cases", "strange.u8", 1);
    give_nothing(given);
    give(&m, "first", 1, given);
    const struct nd_exact_options options = {.struct_size = sizeof options, .given = given};
    assert_int_equal(nd_exact_graph_run(m.graph, &m.input, &options, keep, &m, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_EXACT_SHAPE);
    assert_int_equal(run_with_missed(&m, given, &err), ND_OK);
    assert_edge(&m, "first", ND_E_EXACT_SHAPE, "another shape");
    nd_array_deinit(&given[edge_of(&m, "first")]);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_every_edge_is_told_of_once),
        cmocka_unit_test(model_linear_units_are_quotients),
        cmocka_unit_test(run_on_its_own_codes_has_no_local_error),
        cmocka_unit_test(constants_within_a_limit_change_no_value),
        cmocka_unit_test(given_code_is_local_to_its_unit),
        cmocka_unit_test(float_reference_is_near_the_quantised_one),
        cmocka_unit_test(uncovered_operator_ends_a_run_without_missed),
        cmocka_unit_test(uncovered_operator_costs_its_unit),
        cmocka_unit_test(foreign_domains_and_subgraphs_cost_their_units),
        cmocka_unit_test(given_codes_of_another_shape_are_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
