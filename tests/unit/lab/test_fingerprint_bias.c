/* Solving for what weights become and how biases enter. The quantised values come from formulas that are
 * written here a second time, and from a device that npudiff evaluates itself. */
#include "support/main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "core/error.h"
#include "core/random.h"
#include "lab/fingerprint/bias.h"
#include "lab/fingerprint/section.h"
#include "support/scratch.h"

static struct nd_requantise arithmetic(const char *name)
{
    struct nd_requantise p;
    assert_true(nd_requantise_from_name(name, &p));
    return p;
}

/* ---- weights ---- */

enum { ROWS = 2001, TERMS = 4, COLUMNS = 255, SPLIT = 2 };

/* A device whose weights above 127 are w / r, r = w_max / 127 with `bits` behind its leading one, by a factor
 * of 13 bits cut off, rounded half up. */
struct made {
    struct nd_weight_answers answers;
    uint8_t x[TERMS * ROWS];
    double w[COLUMNS * TERMS], qvalues[COLUMNS * ROWS];
};

static double few_bits(double v, int bits)
{
    int exponent;
    double mantissa = frexp(v, &exponent);
    return ldexp(rint(ldexp(mantissa, bits + 1)), exponent - bits - 1);
}

static void answer(struct made *m, const struct nd_requantise *rest, int bits, bool is_plain)
{
    m->answers = (struct nd_weight_answers){
        .about = {.n_rows = ROWS, .n_terms = TERMS, .n_columns = COLUMNS, .zero_x = 128, .zero_y = 120},
        .x = m->x,
        .w = m->w,
        .qvalues = m->qvalues,
        .multiplier = 0x1.3c0ca4p-9};
    for (size_t c = 0; c < COLUMNS; c++) {
        const double *w = m->w + c * TERMS;
        double most = 0;
        for (size_t t = 0; t < TERMS; t++)
            most = fmax(most, w[t]);
        double r = most > 127 ? few_bits(most / 127, bits) : 1, factor = floor(0x1p13 / r) * 0x1p-13;
        const struct nd_requantise_ready q = nd_requantise_prepare(rest, m->answers.multiplier * r, 120);
        for (size_t i = 0; i < ROWS; i++) {
            double sum = 0;
            for (size_t t = 0; t < TERMS; t++) {
                double w8 = is_plain ? rint(w[t] / r) : floor(w[t] * factor + 0.5);
                sum += fmin(w8, 127) * ((double)m->x[t * ROWS + i] - 128);
            }
            m->qvalues[c * ROWS + i] = nd_requantise_qvalue(&q, sum, 0, 255);
        }
    }
}

/* All of a column's weights are c + 1; the sum of x is -508 .. 508 twice. */
static void fill_equal(struct made *m)
{
    for (size_t i = 0; i < ROWS; i++) {
        int rest = (int)(i % 1017) - 508;
        for (int t = 0; t < TERMS; t++) {
            int share = rest / (TERMS - t);
            m->x[(size_t)t * ROWS + i] = (uint8_t)(128 + share);
            rest -= share;
        }
    }
    for (size_t i = 0; i < (size_t)COLUMNS * TERMS; i++)
        m->w[i] = (double)(i / TERMS + 1);
}

static void fill_table(struct made *m, double great)
{
    uint64_t seed = 9;
    for (size_t i = 0; i < (size_t)TERMS * ROWS; i++)
        m->x[i] = (uint8_t)nd_random_next(&seed);
    for (size_t i = 0; i < (size_t)COLUMNS * TERMS; i++)
        m->w[i] = i % TERMS < SPLIT ? great : (double)(i / TERMS + 1);
}

static void weights_that_are_made_to_fit_are_found(void **state)
{
    (void)state;
    const struct nd_requantise rest = arithmetic("multiplier:14+rounding:half-up");
    struct made *equal = calloc(1, sizeof *equal), *table = calloc(2, sizeof *table);
    struct nd_weight_findings found;
    assert_non_null(equal);
    assert_non_null(table);
    fill_equal(equal);
    answer(equal, &rest, 6, false);
    assert_int_equal(nd_weight_solve_ratio(&rest, &equal->answers, 1, &found, NULL), ND_OK);
    assert_int_equal(found.n_wrong, 0);
    assert_true(found.n_deciding > 1000);
    assert_true(found.n_arithmetics > 0);
    for (size_t i = 0; i < found.n_arithmetics; i++) {
        assert_int_equal(found.arithmetics[i].scope, ND_WEIGHTS_FIT_COLUMN);
        assert_false(found.arithmetics[i].is_always);
        assert_true(found.arithmetics[i].greatest < 127.5);
        assert_int_equal(found.arithmetics[i].r_bits, 6);
    }
    fill_table(&table[0], 255);
    fill_table(&table[1], 201);
    answer(&table[0], &rest, 6, false);
    answer(&table[1], &rest, 6, false);
    const struct nd_weight_answers answers[] = {table[0].answers, table[1].answers};
    const struct nd_weight_entry entry =
        nd_weight_read_entry(&rest, &found.arithmetics[0], &answers[0], SPLIT, 99);
    assert_true(entry.is_known);
    /* 100 / 2 = 50: 255 / 127 is 2 in 6 bits. */
    assert_int_equal((int)entry.low, 50);
    assert_int_equal((int)entry.high, 50);
    assert_int_equal(nd_weight_solve_table(&rest, answers, 2, SPLIT, &found, NULL), ND_OK);
    bool is_there = false;
    for (size_t i = 0; i < found.n_arithmetics; i++)
        is_there = is_there || (found.arithmetics[i].factor_bits == 13 &&
                                found.arithmetics[i].factor_rounding == ND_ROUND_FLOOR &&
                                found.arithmetics[i].rounding == ND_ROUND_HALF_UP);
    assert_true(is_there);
    /* A weight that no arithmetic makes leaves none. */
    for (size_t i = 0; i < ROWS; i++)
        table[1].qvalues[149 * ROWS + i] = table[1].qvalues[9 * ROWS + i];
    assert_int_equal(nd_weight_solve_table(&rest, answers, 2, SPLIT, &found, NULL), ND_OK);
    assert_int_equal(found.n_arithmetics, 0);
    free(found.arithmetics);
    free(equal);
    free(table);
}

static void ratios_of_other_bits_are_not_confused(void **state)
{
    (void)state;
    const struct nd_requantise rest = arithmetic("multiplier:14+rounding:half-up");
    struct made *m = calloc(1, sizeof *m);
    struct nd_weight_findings found;
    assert_non_null(m);
    fill_equal(m);
    for (int bits = 3; bits <= 7; bits += 2) {
        answer(m, &rest, bits, true);
        assert_int_equal(nd_weight_solve_ratio(&rest, &m->answers, 1, &found, NULL), ND_OK);
        assert_int_equal(found.n_wrong, 0);
        for (size_t i = 0; i < found.n_arithmetics; i++)
            assert_int_equal(found.arithmetics[i].r_bits, bits);
        free(found.arithmetics);
    }
    free(m);
}

/* ---- biases ---- */

/* The shift lies where all quantised values are the ones that the device gave. */
static void shifts_are_read_to_one_unit(void **state)
{
    (void)state;
    enum { N = 400 };
    const struct nd_requantise rest = arithmetic("multiplier:11+granule:3+half+rounding:half-up");
    const struct nd_requantise_ready r = nd_requantise_prepare(&rest, 0x1.4p-5, 100);
    double a[N], qvalues[N];
    for (int shift = -1500; shift <= 1500; shift += 293) {
        struct nd_requantise_ready shifted = r;
        shifted.fold = shift;
        for (int i = 0; i < N; i++) {
            a[i] = i - N / 2;
            qvalues[i] = nd_requantise_qvalue(&shifted, a[i], 0, 255);
        }
        const struct nd_bias_range range = nd_bias_read(&r, a, qvalues, N);
        assert_true(range.low <= shift && range.low > shift - 1);
        assert_true(range.high >= shift && range.high < shift + 1);
    }
    qvalues[N / 2] += 40; /* no shift does that */
    const struct nd_bias_range none = nd_bias_read(&r, a, qvalues, N);
    assert_true(none.low > none.high);
}

/* One tensor of biases with a step of 2^-20 of the greatest, float32, cut: each shift known to one unit. */
static void fill_readings(struct nd_bias_reading *readings, size_t n, uint64_t *seed)
{
    float scale_x = (float)nd_random_between(seed, 0.01, 0.04), scale_w = 0.0078431F;
    float unit = scale_x * scale_w, largest = 0;
    for (size_t i = 0; i < n; i++) {
        struct nd_bias_column *c = &readings[i].columns[0];
        *c = (struct nd_bias_column){.bias = floor(nd_random_between(seed, -1e5, 1e5)) * (i == 3 ? 1000 : 1),
                                     .bias_scale = unit,
                                     .largest_bias_scale = unit,
                                     .scale_x = scale_x,
                                     .scale_w = scale_w,
                                     .largest_scale_w = scale_w,
                                     .ratio = 1};
        largest = fmaxf(largest, fabsf((float)c->bias * unit));
    }
    for (size_t i = 0; i < n; i++) {
        struct nd_bias_column *c = &readings[i].columns[0];
        float step = (float)((double)largest * 0x1p-20);
        float real = rintf((float)c->bias * unit / step) * step;
        double shift = trunc((double)(real / unit));
        c->largest_own = c->largest_shared = (double)largest;
        c->largest_own_f32 = c->largest_shared_f32 = largest;
        for (int k = 1; k < ND_BIAS_RESCALES; k++)
            readings[i].columns[k] = *c;
        readings[i].range = (struct nd_bias_range){shift, shift + 0.9999};
    }
}

static void a_common_step_of_biases_is_found(void **state)
{
    (void)state;
    enum { N = 200 };
    struct nd_bias_reading *readings = calloc(N, sizeof *readings);
    struct nd_bias_findings found;
    uint64_t seed = 5;
    assert_non_null(readings);
    fill_readings(readings, N, &seed);
    assert_int_equal(nd_bias_solve(readings, N, false, &found, NULL), ND_OK);
    assert_int_equal(found.n_wrong, 0);
    assert_int_equal(found.n_readings, N);
    assert_true(found.n_arithmetics > 0);
    for (size_t i = 0; i < found.n_arithmetics; i++) {
        assert_int_equal(found.arithmetics[i].common_bits, 20);
        assert_false(found.arithmetics[i].joins_zero);
    }
    free(found.arithmetics);
    /* A column that is off is counted, and the others still decide. */
    readings[17].range.low += 50;
    readings[17].range.high += 50;
    assert_int_equal(nd_bias_solve(readings, N, false, &found, NULL), ND_OK);
    assert_int_equal(found.n_wrong, 1);
    assert_int_equal(found.arithmetics[0].common_bits, 20);
    free(found.arithmetics);
    free(readings);
}

/* ---- whole sections ---- */

static json_t *take(const char *uri, nd_section *section)
{
    struct nd_device device;
    struct nd_error err = {0};
    json_t *entries = json_array();
    expect_ok(nd_device_parse(uri, &device, &err), &err);
    struct nd_bench bench = {.device = &device, .folder = folder};
    nd_capture_options_init(&bench.options);
    expect_ok(section(&bench, entries, &err), &err);
    assert_true(bench.n_run + bench.n_kept > 0);
    nd_device_deinit(&device);
    return entries;
}

static const char *first_arithmetic(const json_t *entry)
{
    return json_string_value(json_array_get(json_object_get(entry, "possible_arithmetic"), 0));
}

static json_int_t count_of(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(entry, "evidence"), key));
}

/* The quantised reference multiplies with the weights that there are, and adds biases as real numbers. */
static void reference_changes_neither_weights_nor_biases(void **state)
{
    (void)state;
    json_t *weights = take("exact", nd_section_weights), *biases = take("exact", nd_section_bias), *entry;
    size_t i;
    json_array_foreach(weights, i, entry) {
        assert_string_equal(json_string_value(json_object_get(entry, "verdict")), "identified");
        assert_string_equal(first_arithmetic(entry), "stay");
        assert_true(count_of(entry, "fresh") >= ND_CONFIRMING_QVALUES);
        assert_int_equal(count_of(entry, "right"), count_of(entry, "fresh"));
    }
    assert_int_equal(i, 1);
    json_array_foreach(biases, i, entry) {
        assert_string_equal(json_string_value(json_object_get(entry, "verdict")), "identified");
        assert_string_equal(first_arithmetic(entry), "double+rounding:none");
        assert_true(count_of(entry, "fresh") >= ND_CONFIRMING_QVALUES);
        assert_int_equal(count_of(entry, "right"), count_of(entry, "fresh"));
        assert_int_equal(count_of(entry, "refused") + count_of(entry, "not_on_npu"), 0);
    }
    assert_int_equal(i, 2);
    json_decref(weights);
    json_decref(biases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_that_are_made_to_fit_are_found),
        cmocka_unit_test(ratios_of_other_bits_are_not_confused),
        cmocka_unit_test(shifts_are_read_to_one_unit),
        cmocka_unit_test(a_common_step_of_biases_is_found),
        cmocka_unit_test_setup_teardown(reference_changes_neither_weights_nor_biases, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
