/* The battery of accumulator probes: which of the emulated devices it tells apart, and what it says of those it
 * does not know. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/accumulator_zoo.h"

static struct nd_accumulator_battery battery;
static struct nd_accumulator zoo[ND_N_ZOO];

static uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20261121;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static bool is_same_item(const struct nd_accumulator *a, const struct nd_accumulator *b)
{
    char name_a[ND_ACCUMULATOR_NAME_BYTES], name_b[ND_ACCUMULATOR_NAME_BYTES];
    return strcmp(nd_accumulator_name(a, name_a), nd_accumulator_name(b, name_b)) == 0;
}

static bool has_item(const struct nd_accumulator_findings *findings, const struct nd_accumulator *item)
{
    for (size_t i = 0; i < findings->n; i++)
        if (is_same_item(&findings->items[i], item))
            return true;
    return false;
}

static void identify(struct nd_accumulator *item, const struct nd_accumulator *hypotheses, size_t n,
                     struct nd_accumulator_findings *out)
{
    float *outputs[ND_BATTERY_BLOCKS];
    zoo_run_battery(&battery, item, outputs);
    const float *const borrowed[] = {outputs[0], outputs[1]};
    assert_int_equal(nd_accumulator_identify(&battery, borrowed, hypotheses, n, out, NULL), ND_OK);
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        free(outputs[b]);
}

static void battery_is_small_and_of_halves(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++) {
        int64_t factors[ND_BATTERY_TERMS];
        n += battery.blocks[b].n_rows;
        assert_true(nd_accumulator_factors(battery.blocks[b].w, ND_BATTERY_TERMS, factors));
        for (size_t r = 0; r < battery.blocks[b].n_rows; r++)
            assert_true(
                nd_accumulator_factors(battery.blocks[b].x + r * ND_BATTERY_TERMS, ND_BATTERY_TERMS, factors));
    }
    assert_true(n <= 6500);
}

/* The set that is left is the class that brute force finds, for every device of the zoo. */
static void zoo_classes_are_those_of_brute_force(void **state)
{
    (void)state;
    size_t classes[ND_N_ZOO], n_unique = 0;
    zoo_classes(zoo, ND_N_ZOO, random_seed(), 6, classes);
    for (size_t i = 0; i < ND_N_ZOO; i++) {
        struct nd_accumulator_findings findings;
        size_t n = 0;
        identify(&zoo[i], zoo, ND_N_ZOO, &findings);
        for (size_t k = 0; k < ND_N_ZOO; k++) {
            n += classes[k] == classes[i];
            assert_int_equal(classes[k] == classes[i], has_item(&findings, &zoo[k]));
        }
        assert_int_equal(findings.n, n);
        n_unique += n == 1;
        /* A tree that is claimed is the device's. */
        struct nd_sum_tree tree;
        nd_sum_tree_of(&zoo[i].order, ND_BATTERY_TERMS, &tree);
        if (findings.readings.has_tree)
            assert_true(nd_sum_tree_equal(&tree, &findings.readings.tree));
        nd_accumulator_findings_deinit(&findings);
    }
    assert_true(n_unique >= 170);
}

/* What is twice in the list of hypotheses stays there twice: the set is never a guess of one. */
static void equal_hypotheses_all_stay(void **state)
{
    (void)state;
    struct nd_accumulator items[4] = {{.sum = ND_SUM_EXACT, .extra_bits = -1, .output = ND_SUM_F16},
                                      {.sum = ND_SUM_EXACT, .extra_bits = -1, .output = ND_SUM_F16},
                                      {.sum = ND_SUM_F16, .extra_bits = -1, .output = ND_SUM_F16},
                                      {.sum = ND_SUM_F16, .extra_bits = -1, .output = ND_SUM_F16}};
    items[1].order = (struct nd_sum_order){ND_SUM_REVERSED, 0};
    items[3].order = (struct nd_sum_order){ND_SUM_FUSED, 32};
    struct nd_accumulator_findings findings;
    identify(&items[0], items, 4, &findings);
    assert_int_equal(findings.n, 3);
    assert_false(has_item(&findings, &items[2]));
    assert_int_equal(findings.readings.exact_block, 32);
    assert_false(findings.readings.has_tree);
    nd_accumulator_findings_deinit(&findings);
}

static void write_contains(const struct nd_accumulator_findings *findings, const char *text)
{
    struct nd_strbuf words = {0};
    nd_accumulator_findings_write(findings, &words);
    if (strstr(words.text, text) == NULL)
        fail_msg("no '%s' in:\n%s", text, words.text);
    nd_strbuf_deinit(&words);
}

static void family_has_the_device_and_confirms_it(void **state)
{
    (void)state;
    static const size_t some[] = {0, 133};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct nd_accumulator item = zoo[some[i]];
        struct nd_accumulator_findings findings;
        item.is_flushing_sums = item.is_flushing_sums && item.sum == ND_SUM_F16;
        identify(&item, NULL, 0, &findings);
        assert_true(has_item(&findings, &item));
        write_contains(&findings, "not confirmed: 0 random vectors agree");
        assert_int_equal(nd_accumulator_confirm(&findings, zoo_device, &item, ND_CONFIRMING_VECTORS, 5, NULL),
                         ND_OK);
        assert_true(has_item(&findings, &item));
        assert_true(nd_accumulator_is_confirmed(&findings));
        write_contains(&findings, "confirmed on 114688 random vectors");
        nd_accumulator_findings_deinit(&findings);
    }
}

/* A device as found, but every thousandth vector is a unit off. */
struct flaky {
    struct nd_accumulator item;
    size_t n;
};

static enum nd_status flaky_device(void *context, const float *w, const float *x, size_t n_rows, float *out,
                                   struct nd_error *err)
{
    struct flaky *flaky = context;
    enum nd_status status = zoo_device(&flaky->item, w, x, n_rows, out, err);
    for (size_t i = 0; i < n_rows; i++)
        if (++flaky->n % 1000 == 0)
            out[i] = nextafterf(out[i], 1);
    return status;
}

static void another_device_is_not_confirmed(void **state)
{
    (void)state;
    struct flaky flaky = {.item = zoo[0]};
    struct nd_accumulator_findings findings;
    identify(&flaky.item, zoo, ND_N_ZOO, &findings);
    assert_int_equal(findings.n, 1);
    assert_int_equal(nd_accumulator_confirm(&findings, flaky_device, &flaky, 16384, 5, NULL), ND_OK);
    assert_int_equal(findings.n_failed, 16);
    assert_int_equal(findings.n_confirmed, 16384 - 16);
    assert_false(nd_accumulator_is_confirmed(&findings));
    write_contains(&findings, "not confirmed: 16368 random vectors agree, 16 do not");
    nd_accumulator_findings_deinit(&findings);
}

/* Nothing that is known: no set, and no claim. */
static void unknown_devices_leave_nothing(void **state)
{
    (void)state;
    struct nd_accumulator item = zoo[0];
    struct nd_accumulator_findings findings;
    item.rounding = ND_ROUND_CEIL;
    identify(&item, zoo, ND_N_ZOO, &findings);
    assert_int_equal(findings.n, 0);
    assert_true(findings.n_nearest > 0);
    write_contains(&findings, "nearest, not claimed: ");
    assert_false(nd_accumulator_is_confirmed(&findings));
    nd_accumulator_findings_deinit(&findings);
}

/* Interleaved halves of three: no named order has it, the tree of P1 does. */
static void unnamed_orders_are_read_as_trees(void **state)
{
    (void)state;
    struct nd_accumulator item = zoo[0];
    struct nd_accumulator_findings findings;
    item.order = (struct nd_sum_order){ND_SUM_LANES, 3};
    identify(&item, NULL, 0, &findings);
    struct nd_sum_tree tree;
    nd_sum_tree_of(&item.order, ND_BATTERY_TERMS, &tree);
    assert_true(findings.readings.has_tree);
    assert_true(nd_sum_tree_equal(&tree, &findings.readings.tree));
    item.order = (struct nd_sum_order){ND_SUM_GIVEN, 0};
    assert_true(has_item(&findings, &item));
    nd_accumulator_findings_deinit(&findings);
}

static void conversions_one_unit_up_are_taken_back(void **state)
{
    (void)state;
    struct nd_accumulator item = {
        .sum = ND_SUM_F32, .extra_bits = -1, .order = {ND_SUM_FUSED, 32}, .output = ND_SUM_F16};
    struct nd_accumulator_findings findings;
    float *outputs[ND_BATTERY_BLOCKS];
    zoo_run_battery(&battery, &item, outputs);
    const float *const borrowed[] = {outputs[0], outputs[1]};
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        for (size_t r = 0; r < battery.blocks[b].n_rows; r++) {
            float value = isinf(outputs[b][r]) ? copysignf(65536, outputs[b][r]) : outputs[b][r];
            int exponent = value == 0 || fabsf(value) < 0x1p-14F ? -14 : ilogbf(value);
            outputs[b][r] = value + copysignf(ldexpf(1, exponent - 23), value);
        }
    assert_int_equal(nd_accumulator_identify(&battery, borrowed, NULL, 0, &findings, NULL), ND_OK);
    assert_true(findings.readings.is_one_up);
    assert_true(has_item(&findings, &item));
    write_contains(&findings, "adds one unit in the last place of float32");
    nd_accumulator_findings_deinit(&findings);
    outputs[1][3] = 1.5F;
    assert_int_equal(nd_accumulator_identify(&battery, borrowed, zoo, ND_N_ZOO, &findings, NULL), ND_OK);
    assert_false(findings.readings.is_one_up);
    assert_int_equal(findings.n, 0);
    nd_accumulator_findings_deinit(&findings);
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        free(outputs[b]);
}

static int setup(void **state)
{
    (void)state;
    nd_accumulator_zoo(zoo);
    return nd_accumulator_battery_init(&battery, NULL) == ND_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    nd_accumulator_battery_deinit(&battery);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(battery_is_small_and_of_halves),
        cmocka_unit_test(zoo_classes_are_those_of_brute_force),
        cmocka_unit_test(equal_hypotheses_all_stay),
        cmocka_unit_test(family_has_the_device_and_confirms_it),
        cmocka_unit_test(another_device_is_not_confirmed),
        cmocka_unit_test(unknown_devices_leave_nothing),
        cmocka_unit_test(unnamed_orders_are_read_as_trees),
        cmocka_unit_test(conversions_one_unit_up_are_taken_back),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
