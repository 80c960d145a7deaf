/* Few words that tell wrong tensors or samples from right ones: said when exact, and not when chance explains
 * it. */
#include "support/main.h"

#include <stdio.h>
#include <string.h>

#include "compare/findings/predicates.h"
#include "npudiff/report/report.h"
#include "support/assert_text.h"
#include "support/fleet_compare.h"

enum { N_TYPES = 5, N_SIZES = 8, N_CELLS = N_TYPES * N_SIZES, N_RANDOM = 1000 };

static const char *const types[N_TYPES] = {"uint8", "int8", "uint16", "int16", "float16"};

/* Tensors of all types and sizes: "int8.n3", in that order. */
struct table {
    bool is_wrong[N_CELLS];
    struct nd_cells cells;
    struct nd_predicate found;
};

static size_t type_of(size_t cell)
{
    return cell / N_SIZES;
}

static size_t size_of(size_t cell)
{
    return cell % N_SIZES + 1;
}

static void add_cell(struct nd_cells *cells, size_t cell)
{
    char name[32];
    const char *type = types[type_of(cell)];
    snprintf(name, sizeof name, "case.n%zu", size_of(cell));
    assert_int_equal(nd_cells_add(cells, cell, ND_FACT_TYPE, type, strlen(type), 0, NULL), ND_OK);
    assert_int_equal(nd_cells_add_name(cells, cell, name, NULL), ND_OK);
    assert_int_equal(nd_cells_add(cells, cell, ND_FACT_ELEMENTS, "", 0, (int64_t)(16 * size_of(cell)), NULL),
                     ND_OK);
}

/* The facts come in the other order when is_reversed. */
static void start(struct table *t, bool is_reversed)
{
    *t = (struct table){.cells = {.n = N_CELLS, .n_searches = 1}};
    t->cells.is_wrong = t->is_wrong;
    for (size_t i = 0; i < N_CELLS; i++)
        add_cell(&t->cells, is_reversed ? N_CELLS - 1 - i : i);
}

static const char *find(struct table *t)
{
    static char text[256];
    assert_int_equal(nd_predicate_find(&t->cells, &t->found, NULL), ND_OK);
    text[0] = '\0';
    for (size_t i = 0; i < t->found.n_conditions; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? " and " : "",
                 t->found.conditions[i]);
    nd_predicate_deinit(&t->found);
    return text;
}

static void exact_patterns_are_told(void **state)
{
    (void)state;
    for (int is_reversed = 0; is_reversed < 2; is_reversed++) {
        struct table t;
        start(&t, is_reversed);
        for (size_t i = 0; i < N_CELLS; i++)
            t.is_wrong[i] = type_of(i) == 0;
        assert_string_equal(find(&t), "of type uint8");
        for (size_t i = 0; i < N_CELLS; i++)
            t.is_wrong[i] = type_of(i) != 4;
        assert_string_equal(find(&t), "not of type float16");
        for (size_t i = 0; i < N_CELLS; i++)
            t.is_wrong[i] = size_of(i) >= 5; /* the element count says so, too; the name comes first */
        assert_string_equal(find(&t), "with n >= 5");
        for (size_t i = 0; i < N_CELLS; i++)
            t.is_wrong[i] = size_of(i) % 3 == 0; /* 3 and 6 */
        assert_string_equal(find(&t), "with n a multiple of 3");
        for (size_t i = 0; i < N_CELLS; i++)
            t.is_wrong[i] = type_of(i) == 0 && size_of(i) >= 5;
        assert_string_equal(find(&t), "of type uint8 and with n >= 5");
        for (size_t i = 0; i < N_CELLS; i++)
            t.is_wrong[i] = size_of(i) >= 3 && size_of(i) <= 6;
        assert_string_equal(find(&t), "with n >= 3 and with n <= 6");
        nd_cells_deinit(&t.cells);
    }
}

static void one_cell_that_contradicts_silences(void **state)
{
    (void)state;
    struct table t;
    start(&t, false);
    for (size_t i = 0; i < N_CELLS; i++)
        t.is_wrong[i] = type_of(i) == 0 && size_of(i) >= 3;
    assert_string_equal(find(&t), "of type uint8 and with n >= 3");
    for (size_t i = 0; i < N_CELLS; i++) {
        bool is_tensor = type_of(i) == 0 && size_of(i) <= 3; /* with it or without it the pattern is another */
        t.is_wrong[i] = !t.is_wrong[i];
        const char *text = find(&t);
        if (!is_tensor && strlen(text) > 0)
            fail_msg("cell %zu: '%s'", i, text);
        assert_string_not_equal(text, "of type uint8 and with n >= 3");
        t.is_wrong[i] = !t.is_wrong[i];
    }
    nd_cells_deinit(&t.cells);
}

static void trivial_patterns_are_silent(void **state)
{
    (void)state;
    struct table t;
    start(&t, false);
    assert_string_equal(find(&t), ""); /* all right */
    memset(t.is_wrong, true, sizeof t.is_wrong);
    assert_string_equal(find(&t), ""); /* all wrong */
    memset(t.is_wrong, false, sizeof t.is_wrong);
    t.is_wrong[0] = true; /* one of many: any words would do */
    assert_string_equal(find(&t), "");
    for (size_t i = 0; i < N_CELLS; i++)
        t.is_wrong[i] = type_of(i) >= 4;
    assert_string_equal(find(&t), "of type float16");
    t.cells.is_inherited = true; /* everything after the first one: the order explains it */
    assert_string_equal(find(&t), "");
    for (size_t i = 0; i < N_CELLS; i++)
        t.is_wrong[i] = type_of(i) == 1; /* one run */
    assert_string_equal(find(&t), "");
    for (size_t i = 0; i < N_CELLS; i++)
        t.is_wrong[i] = size_of(i) == 5; /* five, each of one tensor: no run explains that */
    assert_string_equal(find(&t), "with n = 5");
    nd_cells_deinit(&t.cells);
}

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return *seed >> 33;
}

/* How many of N_RANDOM patterns are told: of single tensors, or of runs, as an error makes that dies away. */
static size_t count_told(struct table *t, uint64_t *seed)
{
    size_t n_told = 0;
    for (size_t trial = 0; trial < N_RANDOM; trial++) {
        uint64_t limit = 1 + draw(seed) % 99, length = 1 + draw(seed) % 10;
        bool is_wrong = false;
        for (size_t i = 0; i < t->cells.n; i++) {
            is_wrong =
                t->cells.is_inherited ? is_wrong ^ (draw(seed) % (2 * length) == 0) : draw(seed) % 100 < limit;
            t->is_wrong[i] = is_wrong;
        }
        n_told += find(t)[0] != '\0';
    }
    return n_told;
}

/* 12 and 16 tensors make chance hits frequent, which only the criterion keeps silent. */
static void random_patterns_are_silent(void **state)
{
    (void)state;
    static const size_t sizes[] = {8, 12, 16, 24, N_CELLS};
    enum { N_TABLES = 2 * sizeof sizes / sizeof sizes[0] };
    uint64_t seed = 20261122;
    size_t n_told = 0;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t k = 0; k < N_TABLES; k++) {
        struct table t = {.cells = {.n = sizes[k / 2], .n_searches = 1, .is_inherited = k % 2}};
        t.cells.is_wrong = t.is_wrong;
        for (size_t i = 0; i < t.cells.n; i++)
            add_cell(&t.cells, i);
        n_told += count_told(&t, &seed);
        nd_cells_deinit(&t.cells);
    }
    print_message("# %zu of %d are told\n", n_told, N_TABLES * N_RANDOM);
    assert_true(n_told <= N_TABLES * N_RANDOM / 1000);
}

/* Few cells, of which the words may say anything. */
static void few_cells_are_silent(void **state)
{
    (void)state;
    bool is_wrong[6] = {true, true, true};
    struct nd_cells cells = {.n = 6, .is_wrong = is_wrong, .n_searches = 1};
    struct nd_predicate found;
    for (size_t i = 0; i < 6; i++)
        add_cell(&cells, i);
    assert_int_equal(nd_predicate_find(&cells, &found, NULL), ND_OK);
    assert_int_equal(found.n_conditions, 0);
    assert_true(found.log2_chance > -9); /* there was one */
    nd_cells_deinit(&cells);
}

static void samples_are_told_by_their_position(void **state)
{
    (void)state;
    enum { N = 64 };
    bool is_wrong[N];
    struct nd_cells cells = {.n = N, .is_wrong = is_wrong, .n_searches = 16};
    struct nd_predicate found;
    for (size_t i = 0; i < N; i++)
        assert_int_equal(nd_cells_add(&cells, i, ND_FACT_SAMPLE, "", 0, (int64_t)i, NULL), ND_OK);
    static const struct {
        size_t modulus, remainder;
        const char *text;
    } cases[] = {{2, 1, "with sample index odd"},
                 {4, 3, "with sample index = 3 modulo 4"},
                 {8, 0, "with sample index a multiple of 8"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        for (size_t i = 0; i < N; i++)
            is_wrong[i] = i % cases[k].modulus == cases[k].remainder;
        assert_int_equal(nd_predicate_find(&cells, &found, NULL), ND_OK);
        assert_int_equal(found.n_conditions, 1);
        assert_string_equal(found.conditions[0], cases[k].text);
        nd_predicate_deinit(&found);
    }
    nd_cells_deinit(&cells);
}

static void wrong_is_more_than_a_rounding(void **state)
{
    (void)state;
    struct nd_difference d = {
        .is_integer = true, .max_lsb = 2, .n_differing = 9, .has_signal = true, .sqnr_db = 20};
    assert_false(nd_predicates_is_wrong(&d, false));
    d.max_lsb = 3;
    assert_true(nd_predicates_is_wrong(&d, false));
    assert_false(nd_predicates_is_wrong(&d, true)); /* the gate lets it pass */
    d.n_failing = 1;
    assert_true(nd_predicates_is_wrong(&d, true));
    d = (struct nd_difference){.n_differing = 9, .has_signal = true, .sqnr_db = 19.9};
    assert_true(nd_predicates_is_wrong(&d, false));
    d = (struct nd_difference){.n_nan_mismatch = 1};
    assert_true(nd_predicates_is_wrong(&d, false));
}

/* Every second sample of a tensor, from captures to the report. */
static void report_says_which_samples_differ(void **state)
{
    (void)state;
    struct fleet f;
    char *text = NULL, *json = NULL;
    fleet_start(&f, 2);
    for (size_t c = 0; c < 2; c++)
        f.captures[c]->probes[0].n_samples = f.captures[c]->probes[0].n_samples_expected = FAKE_SAMPLES;
    const size_t n_elems = 24;
    for (size_t s = 1; s < FAKE_SAMPLES; s += 2)
        for (size_t i = 0; i < n_elems; i++)
            f.captures[1]->outputs[0][FLEET_CONV][s * n_elems + i] ^= 0x40;
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(nd_report_text(c, NULL, &text, NULL), ND_OK);
    assert_int_equal(nd_report_json(c, &json, NULL), ND_OK);
    assert_int_equal(c->n_predicates, 1);
    assert_has(text, "\nwhere it is wrong:\n  the ");
    assert_has(text, "with sample index odd");
    assert_has(json, "\"predicate\": [\n");
    assert_has(json, "\"conditions\": [");
    free(text);
    free(json);
    fleet_stop(&f);
}

/* Samples 3 and 11 are off by half the range, all others by a step in every fifth quantised value. */
static void gross_samples_among_rounded_ones_are_told(void **state)
{
    (void)state;
    struct fleet f;
    char *text = NULL, *json = NULL;
    fleet_start(&f, 2);
    for (size_t c = 0; c < 2; c++)
        f.captures[c]->probes[0].n_samples = f.captures[c]->probes[0].n_samples_expected = FAKE_SAMPLES;
    const size_t n_elems = 24;
    for (size_t s = 0; s < FAKE_SAMPLES; s++)
        for (size_t i = 0; i < n_elems; i++) {
            size_t at = s * n_elems + i;
            f.captures[0]->outputs[0][FLEET_CONV][at] = (unsigned char)(i * 37 + s * 11) & 0xfe;
            f.captures[1]->outputs[0][FLEET_CONV][at] =
                f.captures[0]->outputs[0][FLEET_CONV][at] ^ (i % 5 == 0);
            if (s == 3 || s == 11)
                f.captures[1]->outputs[0][FLEET_CONV][at] ^= 0x80;
        }
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(nd_report_text(c, NULL, &text, NULL), ND_OK);
    assert_int_equal(nd_report_json(c, &json, NULL), ND_OK);
    assert_int_equal(c->n_predicates, 1);
    assert_int_equal(c->predicates[0].n_wrong, 2);
    assert_int_equal(f.captures[1]->n_reads, 2); /* the comparison, and all samples at once */
    assert_has(c->predicates[0].text, "that are wrong by more than rounding on ");
    assert_has(c->predicates[0].text,
               " are exactly those with sample index 3 or 11; all others differ by rounding");
    assert_has(json, "\"log2_chance\": null");
    free(text);
    free(json);
    fleet_stop(&f);
}

static void sizes_part_only_with_a_gap(void **state)
{
    (void)state;
    bool gross[4];
    assert_true(nd_sample_sizes_part((const double[]){0.001, 0.5, 0, 0.002}, 4, gross));
    assert_true(!gross[0] && gross[1] && !gross[2] && !gross[3]);
    assert_true(nd_sample_sizes_part((const double[]){0.001, HUGE_VAL, 0, 0.002}, 4, gross));
    assert_false(nd_sample_sizes_part((const double[]){0.06, 0.5, 0, 0.002}, 4, gross));   /* no gap */
    assert_false(nd_sample_sizes_part((const double[]){0.5, 0.5, 0.6, 0.4}, 4, gross));    /* all of them */
    assert_false(nd_sample_sizes_part((const double[]){0.001, 0.05, 0, 0.002}, 4, gross)); /* none is gross */
    assert_false(nd_sample_sizes_part((const double[]){NAN, 0.5, 0, 0.002}, 4, gross));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gross_samples_among_rounded_ones_are_told),
        cmocka_unit_test(sizes_part_only_with_a_gap),
        cmocka_unit_test(exact_patterns_are_told),
        cmocka_unit_test(one_cell_that_contradicts_silences),
        cmocka_unit_test(trivial_patterns_are_silent),
        cmocka_unit_test(random_patterns_are_silent),
        cmocka_unit_test(few_cells_are_silent),
        cmocka_unit_test(samples_are_told_by_their_position),
        cmocka_unit_test(wrong_is_more_than_a_rounding),
        cmocka_unit_test(report_says_which_samples_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
