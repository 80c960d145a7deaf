#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "record/pass_plan.h"

/* 8 passes of at most 8 rounds and 32 ways back, and the one that finds that it is too many. */
enum { MAX_PAIRS = 64, MAX_TRIALS = 8 * (8 + 32) + 8 };

static struct nd_model *model;
static size_t *edges;
static size_t n_edges;

static int load_model(void **state)
{
    (void)state;
    const char *root = getenv("GOLDEN");
    char *path = root != NULL ? nd_path_join(root, "models/vit.w8a8.onnx") : NULL;
    bool is_whole = path != NULL && nd_model_load(path, &model, NULL) == ND_OK &&
                    nd_model_select_edges(model, "all", &edges, &n_edges, NULL) == ND_OK;
    free(path);
    return is_whole ? 0 : -1;
}

static int free_model(void **state)
{
    (void)state;
    nd_model_destroy(&model);
    free(edges);
    return 0;
}

/* ---- a provider that moves nodes ---- */

/* Where both edges of a pair are exposed together, the node that makes the first one falls. */
struct pair {
    size_t a, b; /* indices into the model's edges */
};

struct provider {
    struct pair pairs[MAX_PAIRS];
    size_t n_pairs;
    bool falls_always;
    size_t n_trials;
    size_t fails_at; /* the trial that fails; SIZE_MAX: none */
};

static bool is_exposed(const size_t *exposed, size_t n, size_t edge)
{
    for (size_t i = 0; i < n; i++)
        if (exposed[i] == edge)
            return true;
    return false;
}

static bool add_fallen(struct nd_fallen *fallen, size_t edge)
{
    char **grown = realloc(fallen->names, (fallen->n + 1) * sizeof *grown);
    if (grown == NULL)
        return false;
    fallen->names = grown;
    grown[fallen->n] = nd_strdup(nd_model_edge(model, edge)->node);
    return grown[fallen->n++] != NULL;
}

static enum nd_status try_exposed(void *context, const size_t *exposed, size_t n, struct nd_fallen *fallen,
                                  struct nd_error *err)
{
    struct provider *provider = context;
    assert_true(n > 0); /* a model without outputs is none */
    for (size_t i = 1; i < n; i++)
        assert_true(exposed[i - 1] < exposed[i]);
    bool is_whole = true;
    for (size_t i = 0; i < provider->n_pairs; i++)
        if (is_exposed(exposed, n, provider->pairs[i].a) && is_exposed(exposed, n, provider->pairs[i].b))
            is_whole = is_whole && add_fallen(fallen, provider->pairs[i].a);
    for (size_t i = 0; provider->falls_always && i < n; i++)
        is_whole = is_whole && add_fallen(fallen, exposed[i]);
    assert_true(is_whole);
    if (provider->n_trials++ == provider->fails_at)
        return nd_fail(err, ND_E_DEVICE_AGENT, "agent", "trial %zu fails", provider->n_trials - 1);
    return ND_OK;
}

/* Plans, and checks what holds for every plan; the number of passes. */
static size_t plan(struct provider *provider, size_t *pass_of_edge)
{
    struct nd_error err = {0};
    size_t n_passes = 0;
    bool has_edge[16] = {false};
    const struct nd_recording recording = {model, edges, n_edges, try_exposed, provider};
    provider->fails_at = SIZE_MAX;
    provider->n_trials = 0;
    enum nd_status status = nd_plan_passes(&recording, pass_of_edge, &n_passes, &err);
    assert_int_equal(status, ND_OK);
    assert_in_range(n_passes, 1, 8);
    assert_in_range(provider->n_trials, 1, MAX_TRIALS);
    for (size_t i = 0; i < n_edges; i++) {
        assert_true(pass_of_edge[i] < n_passes);
        has_edge[pass_of_edge[i]] = true;
    }
    for (size_t p = 0; p < n_passes; p++)
        assert_true(has_edge[p]);
    return n_passes;
}

static size_t pass_of(const size_t *pass_of_edge, size_t edge)
{
    for (size_t i = 0; i < n_edges; i++)
        if (edges[i] == edge)
            return pass_of_edge[i];
    fail_msg("edge %zu is not in the plan", edge);
    return 0;
}

static void check_pairs(const struct provider *provider, const size_t *pass_of_edge)
{
    for (size_t i = 0; i < provider->n_pairs; i++)
        assert_int_not_equal(pass_of(pass_of_edge, provider->pairs[i].a),
                             pass_of(pass_of_edge, provider->pairs[i].b));
}

static size_t *new_plan(void)
{
    size_t *pass_of_edge = calloc(n_edges, sizeof *pass_of_edge);
    assert_non_null(pass_of_edge);
    return pass_of_edge;
}

/* An edge that a unit makes. */
static size_t made_edge(size_t unit)
{
    return nd_model_unit(model, unit)->edge;
}

/* ---- tests ---- */

static void provider_that_holds_gets_one_pass_after_one_trial(void **state)
{
    (void)state;
    struct provider provider = {0};
    size_t *pass_of_edge = new_plan();
    assert_int_equal(plan(&provider, pass_of_edge), 1);
    assert_int_equal(provider.n_trials, 1);
    free(pass_of_edge);
}

static void one_pair_is_split_and_all_else_stays_together(void **state)
{
    (void)state;
    struct provider provider = {.n_pairs = 1};
    size_t *pass_of_edge = new_plan();
    for (size_t unit = 0; unit < nd_model_n_units(model); unit += 5) {
        const struct nd_model_unit *of = nd_model_unit(model, unit);
        if (of->n_inputs == 0 || !is_exposed(edges, n_edges, of->inputs[0]))
            continue;
        provider.pairs[0] = (struct pair){of->edge, of->inputs[0]};
        assert_int_equal(plan(&provider, pass_of_edge), 2);
        check_pairs(&provider, pass_of_edge);
        size_t n_later = 0;
        for (size_t i = 0; i < n_edges; i++)
            n_later += pass_of_edge[i] == 1;
        assert_int_equal(n_later, 1);
    }
    free(pass_of_edge);
}

static void pairs_at_random_never_share_a_pass(void **state)
{
    (void)state;
    const char *text = getenv("ND_SEED");
    unsigned int seed = text != NULL ? (unsigned int)strtoul(text, NULL, 10) : 4711;
    print_message("# ND_SEED=%u\n", seed);
    srandom(seed);
    size_t *pass_of_edge = new_plan();
    for (int round = 0; round < 200; round++) {
        struct provider provider = {.n_pairs = 1 + (size_t)random() % 6};
        for (size_t i = 0; i < provider.n_pairs; i++) {
            struct pair *pair = &provider.pairs[i];
            pair->a = made_edge((size_t)random() % nd_model_n_units(model));
            do {
                pair->b = edges[(size_t)random() % n_edges];
            } while (pair->b == pair->a);
        }
        assert_true(plan(&provider, pass_of_edge) > 1);
        check_pairs(&provider, pass_of_edge);
    }
    free(pass_of_edge);
}

/* n edges of which no two may be exposed together. */
static void make_clique(struct provider *provider, size_t n)
{
    provider->n_pairs = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            if (i != k && provider->n_pairs < MAX_PAIRS)
                provider->pairs[provider->n_pairs++] = (struct pair){made_edge(3 * i), made_edge(3 * k)};
}

static void edges_that_exclude_one_another_get_a_pass_each(void **state)
{
    (void)state;
    struct provider provider = {0};
    size_t *pass_of_edge = new_plan();
    for (size_t n = 2; n <= 8; n++) {
        make_clique(&provider, n);
        assert_int_equal(plan(&provider, pass_of_edge), n);
        check_pairs(&provider, pass_of_edge);
    }
    free(pass_of_edge);
}

static void model_that_always_falls_back_stays_in_one_pass(void **state)
{
    (void)state;
    struct provider provider = {.falls_always = true};
    size_t *pass_of_edge = new_plan();
    assert_int_equal(plan(&provider, pass_of_edge), 1);
    assert_in_range(provider.n_trials, 1, 8);
    free(pass_of_edge);
}

/* A node that belongs to no unit: nothing can be taken out for it. */
static enum nd_status always_the_same(void *context, const size_t *exposed, size_t n, struct nd_fallen *fallen,
                                      struct nd_error *err)
{
    (void)exposed;
    (void)n;
    (void)err;
    ++*(size_t *)context;
    fallen->names = malloc(sizeof *fallen->names);
    assert_non_null(fallen->names);
    fallen->names[0] = nd_strdup("some/Transpose_token_12");
    fallen->n = 1;
    return ND_OK;
}

static void node_of_no_unit_stays_in_one_pass(void **state)
{
    (void)state;
    size_t n_passes = 0, n_trials = 0, *pass_of_edge = new_plan();
    const struct nd_recording recording = {model, edges, n_edges, always_the_same, &n_trials};
    assert_int_equal(nd_plan_passes(&recording, pass_of_edge, &n_passes, NULL), ND_OK);
    assert_int_equal(n_passes, 1);
    assert_int_equal(n_trials, 1);
    for (size_t i = 0; i < n_edges; i++)
        assert_int_equal(pass_of_edge[i], 0);
    free(pass_of_edge);
}

static void failing_trial_is_passed_on(void **state)
{
    (void)state;
    struct provider provider = {0};
    size_t *pass_of_edge = new_plan();
    make_clique(&provider, 3);
    plan(&provider, pass_of_edge);
    size_t n_trials = provider.n_trials;
    assert_true(n_trials > 4);
    const struct nd_recording recording = {model, edges, n_edges, try_exposed, &provider};
    for (size_t at = 0; at < n_trials; at++) {
        struct nd_error err = {0};
        char expected[64];
        size_t n_passes = 77;
        provider.fails_at = at;
        provider.n_trials = 0;
        assert_int_equal(nd_plan_passes(&recording, pass_of_edge, &n_passes, &err), ND_ERR_IO);
        snprintf(expected, sizeof expected, "trial %zu fails", at);
        assert_string_equal(err.message, expected);
        assert_int_equal(provider.n_trials, at + 1);
        assert_int_equal(n_passes, 77);
    }
    free(pass_of_edge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(provider_that_holds_gets_one_pass_after_one_trial),
        cmocka_unit_test(one_pair_is_split_and_all_else_stays_together),
        cmocka_unit_test(pairs_at_random_never_share_a_pass),
        cmocka_unit_test(edges_that_exclude_one_another_get_a_pass_each),
        cmocka_unit_test(model_that_always_falls_back_stays_in_one_pass),
        cmocka_unit_test(node_of_no_unit_stays_in_one_pass),
        cmocka_unit_test(failing_trial_is_passed_on),
    };
    return cmocka_run_group_tests(tests, load_model, free_model);
}
