/* Which arithmetic a layer follows, and a device: quantised values made by known programs from random values.
 */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain/layers/device_arithmetics.h"
#include "explain/verdict/health.h"

enum { N = 4000, MAX_LAYERS = 12 };

static uint64_t random_state;

static double uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)((random_state ^ random_state >> 29) >> 11) * 0x1p-53;
}

static void seed_random(void)
{
    const char *text = getenv("ND_SEED"); /* replays a run */
    random_state = text != NULL ? strtoull(text, NULL, 10) : 20261121;
    printf("# seed %llu\n", (unsigned long long)random_state);
}

static size_t index_of(const char *name)
{
    size_t n;
    char buf[ND_ROUNDING_RULE_NAME_BYTES];
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    for (size_t p = 0; p < n; p++)
        if (strcmp(nd_rounding_rule_name(&arithmetics[p], buf), name) == 0)
            return p;
    fail_msg("no arithmetic '%s'", name);
    return 0;
}

/* A layer of u8 or u16 quantised values that follows the arithmetic, but for the quantised values that are
 * moved by one. */
struct layer {
    const char *op_types, *arithmetic;
    size_t n, n_wrong;
    bool is_u16, is_float, is_table; /* is_float: v is off by 2^-22 of the range when the device rounds it */
};

static struct nd_qvalue_tally count(const struct layer *layer)
{
    static struct nd_ratio v[N];
    static double given[N];
    struct nd_qvalue_tally tally = {0};
    float scale = 1;
    int64_t zero = layer->is_u16 ? 30000 : 100;
    const struct nd_quant quant = {.scale = &scale, .zero_point = &zero, .n = 1, .axis = -1};
    struct nd_shape shape = {.rank = 1, .dims = {(int64_t)layer->n}};
    double range = layer->is_u16 ? 65535 : 255;
    size_t n_arithmetics;
    const struct nd_rounding_rule *arithmetic = &nd_rounding_rules(&n_arithmetics)[index_of(layer->arithmetic)];
    for (size_t i = 0; i < layer->n; i++) {
        double value = uniform() * range * 1.2 - range / 2;
        v[i] = nd_ratio_of(value, 1);
        const struct nd_ratio moved =
            nd_ratio_of(value + (layer->is_float ? (uniform() - 0.5) * range * 0x1p-22 : 0), 1);
        const struct nd_place place = nd_place_of(&moved);
        double qvalue = nd_rounding_rule_round(arithmetic, &moved, &place) + (double)zero;
        given[i] = fmin(fmax(qvalue, 0), range);
        if (i < layer->n_wrong)
            given[i] += given[i] < range ? 1 : -1;
    }
    const struct nd_exact_values values = {.shape = &shape,
                                           .n = layer->n,
                                           .v = v,
                                           .quant = &quant,
                                           .dtype = layer->is_u16 ? ND_DTYPE_U16 : ND_DTYPE_U8};
    nd_qvalue_tally_add(&tally, &values, given);
    nd_qvalue_tally_finish(&tally);
    return tally;
}

static void every_arithmetic_is_recognised(void **state)
{
    (void)state;
    seed_random();
    size_t n;
    char buf[ND_ROUNDING_RULE_NAME_BYTES];
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    for (size_t p = 0; p < n; p++) {
        const struct layer layer = {
            .arithmetic = nd_rounding_rule_name(&arithmetics[p], buf), .n = N, .n_wrong = p % 3};
        struct nd_qvalue_tally tally = count(&layer);
        assert_int_equal(tally.wrong[p], layer.n_wrong);
        /* Without ties four of them are one; what is rare (double:12) may not show. */
        for (size_t q = 0; q < n; q++) {
            bool is_rare = arithmetics[q].kind == ND_ROUNDED_TWICE && arithmetics[q].n_bits > 8;
            bool is_alike =
                nd_is_plain(p) || (arithmetics[p].kind == ND_ROUNDED_TWICE && arithmetics[p].n_bits > 8);
            if (q != p && !is_rare && !(is_alike && nd_is_plain(q)) &&
                !(is_alike && arithmetics[q].kind == ND_ROUNDED_TWICE && arithmetics[q].n_bits > 6))
                assert_true(tally.wrong[q] > layer.n_wrong);
        }
    }
}

/* The tally counts what applying every arithmetic to every quantised value counts. */
static void shortcuts_count_what_arithmetics_give(void **state)
{
    (void)state;
    seed_random();
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    for (int trial = 0; trial < 300; trial++) {
        bool is_u16 = trial % 2 == 0;
        double range = is_u16 ? 65535 : 255;
        float scale = 1;
        int64_t zero = (int64_t)(uniform() * range);
        const struct nd_quant quant = {.scale = &scale, .zero_point = &zero, .n = 1, .axis = -1};
        struct nd_shape shape = {.rank = 1, .dims = {50}};
        struct nd_ratio v[50];
        double given[50];
        uint64_t wrong[ND_MAX_ARITHMETICS] = {0};
        struct nd_qvalue_tally tally = {0};
        for (size_t i = 0; i < 50; i++) {
            double value = floor(uniform() * range * 64) / 64 - (double)zero; /* ties and whole numbers, too */
            v[i] = nd_ratio_of(value + (i % 5 == 0 ? uniform() : 0), 1);
            given[i] = fmin(fmax(floor(value + uniform() * 2) + (double)zero, 0), range);
            const struct nd_place place = nd_place_of(&v[i]);
            for (size_t p = 0; p < n; p++)
                wrong[p] += fmin(fmax(nd_rounding_rule_round(&arithmetics[p], &v[i], &place) + (double)zero, 0),
                                 range) != given[i];
        }
        const struct nd_exact_values values = {
            .shape = &shape, .n = 50, .v = v, .quant = &quant, .dtype = is_u16 ? ND_DTYPE_U16 : ND_DTYPE_U8};
        nd_qvalue_tally_add(&tally, &values, given);
        nd_qvalue_tally_finish(&tally);
        for (size_t p = 0; p < n; p++) {
            assert_int_equal(tally.wrong[p], wrong[p]);
            assert_true(tally.far[p] <= tally.wrong[p]);
        }
    }
}

static void floats_are_forgiven_what_they_cannot_do(void **state)
{
    (void)state;
    seed_random();
    const struct layer layer = {.arithmetic = "half-even", .n = N, .is_u16 = true, .is_float = true};
    struct nd_qvalue_tally tally = count(&layer);
    assert_true(tally.wrong[0] > 0);
    assert_int_equal(tally.far[0], 0);
}

/* ---- devices ---- */

struct fleet {
    struct nd_qvalue_tally tally[MAX_LAYERS];
    struct nd_observed_arithmetic observations[MAX_LAYERS];
    size_t n, arithmetic;
};

static void find(struct fleet *fleet, const struct layer *layers, size_t n)
{
    fleet->n = n;
    for (size_t i = 0; i < n; i++) {
        fleet->tally[i] = count(&layers[i]);
        fleet->observations[i] = (struct nd_observed_arithmetic){.op_types = layers[i].op_types,
                                                                 .is_counted = true,
                                                                 .tally = &fleet->tally[i],
                                                                 .is_table = layers[i].is_table};
    }
    nd_find_observed_arithmetics(fleet->observations, n, &fleet->arithmetic);
}

static void one_layer_that_is_off_is_found(void **state)
{
    (void)state;
    seed_random();
    const struct layer layers[] = {{"Conv", "double:6", N, 0, false, false, false},
                                   {"Conv", "double:6", N, 0, false, false, false},
                                   {"Add", "double:6", N, 1, false, false, false},
                                   {"Gemm", "double:6", N, 0, false, false, false},
                                   {"Softmax", "double:6", 10, 0, false, false, false}};
    struct fleet fleet;
    find(&fleet, layers, 5);
    assert_int_equal(fleet.arithmetic, index_of("double:6"));
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(fleet.observations[i].follows, i != 2);
}

static void float_layers_of_a_fixed_point_device_are_fallback(void **state)
{
    (void)state;
    seed_random();
    /* Most of the units: what is left shows the device's own arithmetic. */
    const struct layer layers[] = {{"Conv", "half-even", N, 0, false, false, false},
                                   {"Conv", "half-even", N, 0, false, false, false},
                                   {"Conv", "half-even", N, 0, false, false, false},
                                   {"Add", "double:6", N, 0, false, false, false},
                                   {"Gemm", "double:6", N, 0, false, false, false}};
    struct fleet fleet;
    find(&fleet, layers, 5);
    assert_int_equal(fleet.arithmetic, index_of("double:6"));
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(fleet.observations[i].follows, i > 2);
    /* One type of layers is enough, when all others are of one other type. */
    find(&fleet, layers, 4);
    assert_int_equal(fleet.arithmetic, index_of("double:6"));
    assert_false(fleet.observations[0].follows);
    assert_true(fleet.observations[3].follows);
}

/* Tables of plain rounding neither choose the device's arithmetic nor are held to it. */
static void tables_say_how_their_entries_were_rounded_and_no_more(void **state)
{
    (void)state;
    seed_random();
    const struct layer layers[] = {
        {"Sqrt", "half-even", N, 0, false, false, true}, {"Tanh", "half-even", N, 0, false, false, true},
        {"Tanh", "half-even", N, 0, false, false, true}, {"ReduceMean", "double:1", N, 0, false, false, false},
        {"Exp", "double:1", N, 0, false, false, true},   {"Exp", "half-even", N, 1, false, false, true}};
    struct fleet fleet;
    find(&fleet, layers, 6);
    assert_int_equal(fleet.arithmetic, index_of("double:1"));
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(fleet.observations[i].follows, i < 5);
        assert_int_equal(fleet.observations[i].is_apart, i < 3);
    }
    assert_int_equal(fleet.observations[0].arithmetic, index_of("half-even"));
    assert_int_equal(fleet.observations[4].arithmetic, index_of("double:1"));
    find(&fleet, layers, 3); /* nothing else is there to tell */
    assert_true(fleet.arithmetic != SIZE_MAX && nd_is_plain(fleet.arithmetic));
    assert_true(fleet.observations[0].follows && !fleet.observations[0].is_apart);
}

static void operator_types_may_have_their_own_arithmetic(void **state)
{
    (void)state;
    seed_random();
    const struct layer layers[] = {{"Conv", "double:6", N, 0, false, false, false},
                                   {"Conv", "double:6", N, 0, false, false, false},
                                   {"Conv", "double:6", N, 0, false, false, false},
                                   {"Add", "floor", N, 0, false, false, false},
                                   {"Add", "floor", N, 0, false, false, false}};
    struct fleet fleet;
    find(&fleet, layers, 5);
    assert_int_equal(fleet.observations[0].arithmetic, index_of("double:6"));
    assert_int_equal(fleet.observations[4].arithmetic, index_of("floor"));
    for (size_t i = 0; i < 5; i++)
        assert_true(fleet.observations[i].follows);
}

/* One type that rounds down does not make the others float. */
static void floor_of_one_type_is_its_own(void **state)
{
    (void)state;
    seed_random();
    const struct layer layers[] = {{"Conv", "half-even", N, 0, false, false, false},
                                   {"Gemm", "half-even", N, 0, false, false, false},
                                   {"Conv", "half-even", N, 0, false, false, false},
                                   {"Add", "floor", N, 0, false, false, false},
                                   {"Add", "floor", N, 0, false, false, false}};
    struct fleet fleet;
    find(&fleet, layers, 5);
    assert_true(fleet.arithmetic != SIZE_MAX && nd_is_plain(fleet.arithmetic));
    for (size_t i = 0; i < 5; i++)
        assert_true(fleet.observations[i].follows);
    assert_int_equal(fleet.observations[4].arithmetic, index_of("floor"));
}

static void float_device_is_held_to_what_floats_can_do(void **state)
{
    (void)state;
    seed_random();
    const struct layer layers[] = {{"Conv", "half-even", N, 0, true, true, false},
                                   {"Add", "half-even", N, 0, true, true, false},
                                   {"Gemm", "half-even", N, 3, true, true, false},
                                   {"Add", "half-even", N, 0, true, true, false}};
    struct fleet fleet;
    find(&fleet, layers, 4);
    assert_true(fleet.arithmetic != SIZE_MAX && nd_is_plain(fleet.arithmetic));
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(fleet.observations[i].follows, i != 2);
}

static void unknown_arithmetic_accuses_nobody(void **state)
{
    (void)state;
    seed_random();
    const struct layer layers[] = {{"Conv", "half-even", N, 50, false, false, false},
                                   {"Conv", "half-even", N, 30, false, false, false},
                                   {"Add", "half-even", N, 90, false, false, false},
                                   {"Add", "half-even", N, 0, false, false, false},
                                   {"Gemm", "half-even", N, 4, false, false, false}};
    struct fleet fleet;
    find(&fleet, layers, 5);
    assert_int_equal(fleet.arithmetic, SIZE_MAX);
    for (size_t i = 0; i < 5; i++)
        assert_true(fleet.observations[i].follows);
}

/* What ties of a layer show: n values that are multiples of 1/4 from low on, which float arithmetic may have
 * moved before they are rounded. */
static const char *tie_rule(const char *arithmetic, size_t n, double low, double moved)
{
    static struct nd_ratio v[N];
    static double given[N];
    struct nd_qvalue_tally tally = {0};
    struct nd_explained_layer layer = {.n_qvalues = n};
    float scale = 1;
    int64_t zero = 100;
    const struct nd_quant quant = {.scale = &scale, .zero_point = &zero, .n = 1, .axis = -1};
    struct nd_shape shape = {.rank = 1, .dims = {(int64_t)n}};
    size_t n_arithmetics;
    const struct nd_rounding_rule *rule = &nd_rounding_rules(&n_arithmetics)[index_of(arithmetic)];
    for (size_t i = 0; i < n; i++) {
        double value = low + floor(uniform() * 200) / 4;
        const struct nd_ratio off = nd_ratio_of(value + (uniform() - 0.5) * moved, 1);
        const struct nd_place place = nd_place_of(&off);
        v[i] = nd_ratio_of(value, 1);
        given[i] = nd_rounding_rule_round(rule, &off, &place) + (double)zero;
        layer.introduced.n_differing += given[i] != rint(value) + (double)zero;
    }
    const struct nd_exact_values values = {
        .shape = &shape, .n = n, .v = v, .quant = &quant, .dtype = ND_DTYPE_U8};
    nd_qvalue_tally_add(&tally, &values, given);
    nd_qvalue_tally_finish(&tally);
    nd_explain_find_tie_rule(&tally, &layer);
    assert_int_equal(layer.n_ties, layer.tie_rule != NULL ? layer.introduced.n_differing : 0);
    return layer.tie_rule;
}

static void ties_show_their_rule(void **state)
{
    (void)state;
    seed_random();
    assert_string_equal(tie_rule("half-up", N, -25, 0), "half up");
    assert_string_equal(tie_rule("half-down", N, -25, 0), "half down");
    assert_string_equal(tie_rule("half-away", N, -25, 0), "half away from zero");
    assert_string_equal(tie_rule("half-up", N, 0, 0), "half up or half away from zero");
    assert_string_equal(tie_rule("half-down", N, -60, 0), "half down or half away from zero");
    assert_null(tie_rule("half-even", N, -25, 0));
    assert_null(tie_rule("half-even", N, -25, 1e-9)); /* either way, as floats do */
    assert_null(tie_rule("half-up", N, -25, 0.01));
    assert_null(tie_rule("floor", N, -25, 0));
    assert_null(tie_rule("half-up", 40, -25, 0)); /* one in eight differs: too few */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_arithmetic_is_recognised),
        cmocka_unit_test(shortcuts_count_what_arithmetics_give),
        cmocka_unit_test(floats_are_forgiven_what_they_cannot_do),
        cmocka_unit_test(one_layer_that_is_off_is_found),
        cmocka_unit_test(float_layers_of_a_fixed_point_device_are_fallback),
        cmocka_unit_test(tables_say_how_their_entries_were_rounded_and_no_more),
        cmocka_unit_test(operator_types_may_have_their_own_arithmetic),
        cmocka_unit_test(floor_of_one_type_is_its_own),
        cmocka_unit_test(float_device_is_held_to_what_floats_can_do),
        cmocka_unit_test(unknown_arithmetic_accuses_nobody),
        cmocka_unit_test(ties_show_their_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
