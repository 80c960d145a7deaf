/* Arithmetics of the table, and finding them from quantised values. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/emulator/emulate.h"
#include "explain/identify/identify.h"

static uint64_t seed = 20261121;

static uint64_t next_random(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed ^ seed >> 32) * 0x9e3779b97f4a7c15u;
}

static double uniform(void)
{
    return (double)(next_random() >> 11) * 0x1p-53;
}

static struct nd_arithmetic named(const char *name)
{
    struct nd_arithmetic arithmetic;
    if (!nd_arithmetic_from_name(name, &arithmetic))
        fail_msg("no arithmetic '%s'", name);
    return arithmetic;
}

/* ---- the table ---- */

static void table_is_read_back(void **state)
{
    (void)state;
    size_t n;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    char a[ND_ARITHMETIC_NAME_BYTES], b[ND_ARITHMETIC_NAME_BYTES];
    assert_true(n > 70 && n <= ND_ARITHMETIC_MAX);
    assert_string_equal(nd_arithmetic_name(&arithmetics[0], a), "half-even");
    for (size_t p = 0; p < n; p++) {
        struct nd_arithmetic again = named(nd_arithmetic_name(&arithmetics[p], a));
        assert_string_equal(nd_arithmetic_name(&again, b), a);
        assert_ptr_equal(again.family, arithmetics[p].family);
        for (size_t q = 0; q < p; q++)
            if (nd_arithmetic_is_same(&arithmetics[p], &arithmetics[q]))
                fail_msg("'%s' is there twice", a);
    }
}

static void other_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",           "half",        "double:0",          "double:13",          "multiplier-fp8",
        "drop-bits:", "drop-bits:0", "stochastic-bits:0", "stochastic-bits:17", "stochastic:x",
        "value-fp16 "};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct nd_arithmetic arithmetic;
        if (nd_arithmetic_from_name(names[i], &arithmetic))
            fail_msg("'%s' was taken", names[i]);
    }
}

static struct nd_arithmetic_outcome outcome_of(const char *name, double a, double multiplier, double scale)
{
    const struct nd_arithmetic arithmetic = named(name);
    const struct nd_ratio v = nd_ratio_of(a * multiplier, 1);
    const struct nd_arithmetic_scaling scaling = {
        .multiplier = multiplier, .zero = 10, .low = 0, .high = 65535, .scale = scale};
    const struct nd_arithmetic_element element = {.v = &v, .place = nd_place_of(&v), .a = a};
    struct nd_arithmetic_ready ready;
    assert_true(nd_arithmetic_prepare(&arithmetic, &scaling, false, &ready));
    return nd_arithmetic_run(&ready, &element);
}

/* Worked out by hand. */
static void arithmetics_do_what_they_say(void **state)
{
    (void)state;
    assert_f64_bits(outcome_of("half-even", 10, 0.25, 1).qvalue, 12);
    assert_f64_bits(outcome_of("half-away", 10, 0.25, 1).qvalue, 13);
    assert_f64_bits(outcome_of("double:1", 9, 0.25, 1).qvalue, 13);     /* 2.25, to 2.5, to 3 */
    assert_f64_bits(outcome_of("drop-bits:3", 23, 0.25, 1).qvalue, 14); /* 16 / 4 */
    assert_f64_bits(outcome_of("value-fp16", 4097, 1, 1).qvalue, 4106); /* steps of 4 from 4096 on */
    assert_f64_bits(outcome_of("value-bf16", 257, 1, 1).qvalue, 266);
    /* 1 + 2^-11 is 1 as fp16 (ties to even), and 1 + 3 2^-11 is 1 + 2^-9 */
    assert_f64_bits(outcome_of("multiplier-fp16", 4096, 1 + 0x1p-11, 1).qvalue, 4106);
    assert_f64_bits(outcome_of("multiplier-fp16", 4096, 1 + 0x3p-11, 1).qvalue, 4096 + 8 + 10);
    assert_f64_bits(outcome_of("multiplier-fp16", 0x1p20, 0x1.8p-24, 1).qvalue, 10); /* subnormal: 2^-23 2^20 */
    assert_f64_bits(outcome_of("multiplier-bf16", 512, 1 + 0x1p-8, 1).qvalue, 522);
    assert_f64_bits(outcome_of("float-execution", 3, 0.5, 1).qvalue, 12);
    /* 2^-5 is 2^30 2^-31 2^-4: 15 becomes 8, and 8 / 16 rounds up; 15 / 32 rounds down. */
    assert_f64_bits(outcome_of("gemmlowp", 15, 0x1p-5, 1).qvalue, 11);
    assert_f64_bits(outcome_of("tosa-single", 15, 0x1p-5, 1).qvalue, 10);
    assert_f64_bits(outcome_of("gemmlowp", -15, 0x1p-5, 1).qvalue, 10); /* -7.5 becomes -7 */
    assert_f64_bits(outcome_of("gemmlowp", -16, 0x1p-5, 1).qvalue, 9);
    assert_f64_bits(outcome_of("tosa-single", -16, 0x1p-5, 1).qvalue, 10);
    assert_f64_bits(outcome_of("tosa-double", 15, 0x1p-5, 1).qvalue, 11); /* 15 2^30 + 2^34 + 2^30 is 2^35 */
    assert_f64_bits(outcome_of("tosa-double", -15, 0x1p-5, 1).qvalue, 10);
    assert_f64_bits(outcome_of("tosa-double", -16, 0x1p-5, 1).qvalue, 9);
    assert_f64_bits(outcome_of("gemmlowp", 3, 2.5, 1).qvalue,
                    18); /* 7.5: the first rounding, and nothing to shift */
    assert_f64_bits(outcome_of("gemmlowp", 0x1p20, 1 - 0x1p-40, 1).qvalue, 0x1p15 * 2 - 1);
    const struct nd_arithmetic_outcome chance = outcome_of("stochastic", 11, 0.25, 1);
    assert_f64_bits(chance.qvalue, 12);
    assert_f64_bits(chance.other, 13);
    assert_f64_bits(chance.p, 0.75);
    assert_f64_bits(outcome_of("stochastic-bits:1", 11, 0.25, 1).p, 0.5);
    assert_f64_bits(outcome_of("stochastic-bits:1", 9, 0.25, 1).p, 0);
    assert_f64_bits(outcome_of("stochastic-equal", 9, 0.25, 1).p, 0.5);
    assert_f64_bits(outcome_of("stochastic-equal", 8, 0.25, 1).p, 0);
}

static void arithmetics_without_accumulator_are_not_applicable(void **state)
{
    (void)state;
    const struct nd_arithmetic_scaling scaling = {.high = 255, .scale = 1};
    size_t n, n_applicable = 0;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    for (size_t p = 0; p < n; p++) {
        struct nd_arithmetic_ready ready;
        bool applies = nd_arithmetic_prepare(&arithmetics[p], &scaling, false, &ready);
        assert_true(!applies || !nd_arithmetic_needs_accumulator(&arithmetics[p]));
        n_applicable += applies;
    }
    assert_true(n_applicable > 20 && n_applicable < n);
}

static void arithmetics_are_devices(void **state)
{
    (void)state;
    size_t n;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    for (size_t p = 0; p < n; p++) {
        char name[ND_ARITHMETIC_NAME_BYTES + 2];
        struct nd_emulation emulation;
        nd_arithmetic_name(&arithmetics[p], name);
        if (strcmp(name, "stochastic") == 0)
            snprintf(name, sizeof name, "stochastic:1");
        enum nd_status status = nd_emulation_parse(name, &emulation, NULL);
        assert_int_equal(status == ND_OK, !nd_arithmetic_needs_fused(&arithmetics[p]));
        if (status == ND_OK)
            nd_emulation_deinit(&emulation);
    }
}

/* ---- a device on accumulators that are made up ---- */

enum { N_GENERIC = 16384, N_TIES = 256, N_MAX = N_GENERIC };

struct bench {
    struct nd_ratio v[N_MAX];
    double given[N_MAX];
    struct nd_shape shape;
    float scale;
    int64_t zero;
    struct nd_quant quant;
    struct nd_wide step;
    struct nd_exact_values values;
    struct nd_identify_sample sample;
};

/* n accumulators up to `most`, or all that are half way where the multiplier is a power of two. */
static void fill(struct bench *b, size_t n, double multiplier, double most, bool has_accumulator)
{
    b->shape = (struct nd_shape){.rank = 1, .dims = {(int64_t)n}};
    b->scale = 1;
    b->zero = 128;
    b->quant = (struct nd_quant){.n = 1, .scale = &b->scale, .zero_point = &b->zero};
    b->step = nd_wide_from(multiplier);
    for (size_t i = 0; i < n; i++) {
        double a = rint((2 * uniform() - 1) * most);
        if (n == N_TIES)
            a = (2 * ((double)i - N_TIES / 2) + 1) * 0.5 / multiplier;
        b->v[i] = (struct nd_ratio){nd_wide_product(a, multiplier), nd_wide_from(1)};
    }
    b->values = (struct nd_exact_values){
        .shape = &b->shape, .n = n, .v = b->v, .quant = &b->quant, .dtype = ND_DTYPE_U8};
    b->sample = (struct nd_identify_sample){.values = &b->values,
                                            .given = b->given,
                                            .key = n,
                                            .steps = has_accumulator ? &b->step : NULL,
                                            .n_steps = has_accumulator};
}

static void answer(struct bench *b, const struct nd_arithmetic *arithmetic, double eps)
{
    const struct nd_arithmetic_scaling scaling = {
        .multiplier = b->sample.n_steps > 0 ? b->step.parts[0] : 0, .zero = 128, .high = 255, .scale = 1};
    struct nd_arithmetic_ready ready;
    assert_true(nd_arithmetic_prepare(arithmetic, &scaling, false, &ready));
    for (size_t i = 0; i < b->values.n; i++) {
        struct nd_arithmetic_element element = {.v = &b->v[i], .place = nd_place_of(&b->v[i])};
        if (b->sample.n_steps > 0)
            element.a = nd_arithmetic_accumulator(&b->v[i], 1, &b->step);
        const struct nd_arithmetic_outcome outcome = nd_arithmetic_run(&ready, &element);
        b->given[i] = uniform() < outcome.p ? outcome.other : outcome.qvalue;
        if (uniform() < eps)
            b->given[i] = fmin(fmax(b->given[i] + (uniform() < 0.5 ? 1 : -1), 0), 255);
    }
}

static const double generic_multiplier = 0x1.b3a5c7p-9; /* 1/300, of 25 bits */

/* Both kinds of data: generic values, and ties. */
static void observe(struct bench *b, const struct nd_arithmetic *arithmetic, double eps, size_t against,
                    struct nd_identify_tally *tally)
{
    *tally = (struct nd_identify_tally){0};
    fill(b, N_GENERIC, generic_multiplier, 45000, true);
    b->sample.against = against;
    answer(b, arithmetic, eps);
    assert_int_equal(nd_identify_layer(tally, &b->sample, NULL), ND_OK);
    fill(b, N_TIES, 0.25, 0, true);
    b->sample.against = against;
    answer(b, arithmetic, eps);
    assert_int_equal(nd_identify_layer(tally, &b->sample, NULL), ND_OK);
}

struct score {
    size_t n_devices, n_wrong_single, n_single;
    double right[ND_ARITHMETIC_MAX], missed[ND_ARITHMETIC_MAX], foreign[ND_ARITHMETIC_MAX];
};

/* Whether the quantised values can tell them apart: three of them at least; chances, only where the cut is
 * seen. */
static bool are_apart(const struct nd_identify_tally *tally, const struct nd_arithmetic *arithmetics,
                      size_t truth, size_t p)
{
    if (nd_arithmetic_is_stochastic(&arithmetics[truth]) && nd_arithmetic_is_stochastic(&arithmetics[p]))
        return arithmetics[truth].kind == arithmetics[p].kind
                   ? arithmetics[truth].n_bits < 4 && arithmetics[p].n_bits < 4
                   : arithmetics[truth].n_bits < 8 && arithmetics[p].n_bits < 8;
    return tally->n_apart[p] >= 3;
}

static void score_one(struct score *score, const struct nd_identify_tally *tally, size_t truth)
{
    struct nd_identify_result r;
    size_t n;
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    nd_identify_decide(tally, &r);
    score->n_devices++;
    score->n_single += r.verdict == ND_IDENTIFY_SINGLE;
    if (r.is_possible[truth])
        score->right[truth]++;
    else
        score->missed[truth]++;
    if (!r.is_possible[truth]) {
        print_message("lost: %s, verdict %d\n", nd_arithmetic_name(&arithmetics[truth], name), (int)r.verdict);
        score->n_wrong_single += r.verdict == ND_IDENTIFY_SINGLE;
    }
    for (size_t p = 0; p < n; p++)
        if (r.is_applicable[p] && r.is_possible[p] && r.class_of[p] != r.class_of[truth] &&
            are_apart(tally, arithmetics, truth, p)) {
            score->foreign[p]++;
            print_message("%s is left ", nd_arithmetic_name(&arithmetics[p], name));
            print_message("to %s\n", nd_arithmetic_name(&arithmetics[truth], name));
        }
}

static void arithmetics_are_found(void **state)
{
    (void)state;
    struct bench *b = calloc(1, sizeof *b);
    struct nd_identify_tally *tally = calloc(1, sizeof *tally);
    struct score *score = calloc(1, sizeof *score);
    assert_true(b != NULL && tally != NULL && score != NULL);
    size_t n, n_labels = 0;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int noisy = 0; noisy < 2; noisy++)
        for (size_t p = 0; p < n; p++) {
            char name[ND_ARITHMETIC_NAME_BYTES];
            if (strcmp(nd_arithmetic_name(&arithmetics[p], name), "unrounded-inputs") == 0)
                continue; /* devices of which fuse */
            if (noisy && p % 2 == 1)
                continue; /* time */
            observe(b, &arithmetics[p], noisy ? 0.01 : 0, p, tally);
            score_one(score, tally, p);
        }
    double sum = 0;
    for (size_t p = 0; p < n; p++)
        if (score->right[p] + score->missed[p] > 0) {
            sum += 2 * score->right[p] / (2 * score->right[p] + score->missed[p] + score->foreign[p]);
            n_labels++;
        }
    print_message("# %zu devices, macro-F1 %.4f, %zu single\n", score->n_devices, sum / (double)n_labels,
                  score->n_single);
    assert_true(sum / (double)n_labels >= 0.99);
    assert_int_equal(score->n_wrong_single, 0);
    assert_true(score->n_single > score->n_devices / 4);
    free(score);
    free(tally);
    free(b);
}

/* Nothing of the table is claimed of what is not in it. */
static void unknown_arithmetics_are_none(void **state)
{
    (void)state;
    static const char *const names[] = {"multiplier:7+rounding:floor",
                                        "multiplier:8+granule:4+rounding:half-up",
                                        "granule:2+half+rounding:floor"};
    struct bench *b = calloc(1, sizeof *b);
    struct nd_identify_tally *tally = calloc(1, sizeof *tally);
    assert_true(b != NULL && tally != NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int noisy = 0; noisy < 2; noisy++) {
            const struct nd_arithmetic arithmetic = named(names[i]);
            struct nd_identify_result r;
            observe(b, &arithmetic, noisy ? 0.01 : 0, 0, tally);
            nd_identify_decide(tally, &r);
            if (r.verdict != ND_IDENTIFY_NONE)
                fail_msg("'%s' was taken for one of the table", names[i]);
        }
    free(tally);
    free(b);
}

/* ---- tallies ---- */

static void tallies_merge_in_any_order(void **state)
{
    (void)state;
    enum { N = 4 };
    struct bench *b = calloc(1, sizeof *b);
    struct nd_identify_tally *parts = calloc(N, sizeof *parts), *all = calloc(3, sizeof *all);
    assert_true(b != NULL && parts != NULL && all != NULL);
    const struct nd_arithmetic arithmetic = named("stochastic");
    for (size_t i = 0; i < N; i++) {
        fill(b, 500 + 100 * i, generic_multiplier, 30000, true);
        answer(b, &arithmetic, 0.01);
        b->sample.key = i;
        assert_int_equal(nd_identify_layer(&parts[i], &b->sample, NULL), ND_OK);
        assert_int_equal(nd_identify_layer(&all[0], &b->sample, NULL), ND_OK);
    }
    for (size_t i = 0; i < N; i++) {
        nd_identify_merge(&parts[i], &all[1]);
        nd_identify_merge(&parts[N - 1 - i], &all[2]);
    }
    assert_memory_equal(&all[0], &all[1], sizeof all[0]);
    assert_memory_equal(&all[0], &all[2], sizeof all[0]);
    free(b);
    free(parts);
    free(all);
}

static void curve_and_brackets_show_the_threshold(void **state)
{
    (void)state;
    struct bench *b = calloc(1, sizeof *b);
    struct nd_identify_tally *tally = calloc(1, sizeof *tally);
    assert_true(b != NULL && tally != NULL);
    const struct nd_arithmetic twice = named("double:2"), chance = named("stochastic");
    fill(b, N_GENERIC, generic_multiplier, 30000, true);
    answer(b, &twice, 0);
    assert_int_equal(nd_identify_layer(tally, &b->sample, NULL), ND_OK);
    /* Two fraction bits, then to the nearest: up from 3/8 on away from zero. */
    const struct nd_identify_bracket above = nd_identify_threshold(tally, false),
                                     below = nd_identify_threshold(tally, true);
    assert_true(above.max_down < 0.375 && above.min_up >= 0.375 && above.min_up - above.max_down < 0.01);
    assert_true(below.max_down < 0.625 && below.min_up >= 0.625 && below.min_up - below.max_down < 0.01);
    *tally = (struct nd_identify_tally){0};
    answer(b, &chance, 0);
    assert_int_equal(nd_identify_layer(tally, &b->sample, NULL), ND_OK);
    size_t n_inside = 0;
    for (size_t bin = 0; bin < ND_IDENTIFY_BINS; bin++) {
        const struct nd_identify_point point = nd_identify_curve(tally, bin);
        double middle = ((double)bin + 0.5) / ND_IDENTIFY_BINS;
        assert_true(point.n > 300 && point.low <= point.p && point.p <= point.high);
        n_inside += point.low <= middle && middle <= point.high;
    }
    assert_true(n_inside >= 27); /* of 32, each with 95 % */
    free(b);
    free(tally);
}

/* A layer without an accumulator excludes nothing that works on one, and does not claim it. */
static void sets_intersect_over_layers(void **state)
{
    (void)state;
    struct bench *b = calloc(1, sizeof *b);
    struct nd_identify_tally *tally = calloc(2, sizeof *tally);
    struct nd_identify_result *layers = calloc(4, sizeof *layers);
    assert_true(b != NULL && tally != NULL && layers != NULL);
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&(size_t){0});
    const struct nd_arithmetic granule = named("granule:3+half+rounding:half-up"), plain = named("half-even");
    size_t p = 0;
    while (!nd_arithmetic_is_same(&arithmetics[p], &granule))
        p++;
    observe(b, &granule, 0, 0, &tally[0]);
    nd_identify_decide(&tally[0], &layers[0]);
    fill(b, N_GENERIC, generic_multiplier, 30000, false);
    answer(b, &plain, 0);
    assert_int_equal(nd_identify_layer(&tally[1], &b->sample, NULL), ND_OK);
    nd_identify_decide(&tally[1], &layers[1]);
    assert_false(layers[1].is_applicable[p]);
    assert_true(layers[0].is_possible[p] && layers[1].is_possible[p] && !layers[0].is_possible[0]);
    /* What applies nowhere joins no classes: one layer alone has as many as before. */
    nd_identify_combine(layers, 1, &layers[2]);
    assert_memory_equal(layers[2].is_possible, layers[0].is_possible, sizeof layers[0].is_possible);
    nd_identify_combine(&layers[1], 1, &layers[2]);
    assert_int_equal(layers[2].n_classes, layers[1].n_classes);
    for (size_t q = 0; q < layers[1].n_arithmetics; q++)
        if (layers[1].is_applicable[q])
            assert_int_equal(layers[2].class_of[q], layers[1].class_of[q]);
    nd_identify_combine(layers, 2, &layers[2]);
    assert_int_equal(layers[2].verdict, ND_IDENTIFY_SINGLE);
    assert_true(layers[2].is_possible[p] && !layers[2].is_possible[0]);
    /* Two layers with accumulators that differ share nothing. */
    fill(b, N_GENERIC, generic_multiplier, 30000, true);
    answer(b, &plain, 0);
    tally[1] = (struct nd_identify_tally){0};
    assert_int_equal(nd_identify_layer(&tally[1], &b->sample, NULL), ND_OK);
    nd_identify_decide(&tally[1], &layers[1]);
    nd_identify_combine(layers, 2, &layers[3]);
    assert_int_equal(layers[3].verdict, ND_IDENTIFY_NONE);
    assert_true(layers[3].is_split);
    free(b);
    free(tally);
    free(layers);
}

/* ---- what TensorFlow Lite's kernels specify, by their own words ---- */

/* SaturatingRoundingDoublingHighMul and RoundingDivideByPOT of gemmlowp. */
static int64_t multiplied(int64_t x, int64_t q, int e)
{
    int64_t product = x * (e > 0 ? (int64_t)1 << e : 1) * q;
    int64_t high = (product + (product >= 0 ? (int64_t)1 << 30 : 1 - ((int64_t)1 << 30))) / ((int64_t)1 << 31);
    int right = e < 0 ? -e : 0;
    int64_t mask = ((int64_t)1 << right) - 1, rest = high & mask;
    return (high >> right) + (rest > (mask >> 1) + (high < 0));
}

/* The 31 bits of QuantizeMultiplier. */
static int64_t bits_of(double multiplier, int *e)
{
    return (int64_t)round(frexp(multiplier, e) * 0x1p31);
}

static void tally_specified(struct bench *b, const struct nd_specified_sum *specified, size_t n,
                            struct nd_identify_result *result)
{
    struct nd_identify_tally *tally = calloc(1, sizeof *tally);
    assert_non_null(tally);
    b->shape.dims[0] = (int64_t)n;
    b->values.n = n;
    b->sample = (struct nd_identify_sample){.values = &b->values, .given = b->given, .specified = *specified};
    assert_int_equal(nd_identify_layer(tally, &b->sample, NULL), ND_OK);
    nd_identify_decide(tally, result);
    free(tally);
}

static size_t index_of(const char *name)
{
    const struct nd_arithmetic arithmetic = named(name);
    size_t n, p = 0;
    for (const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
         !nd_arithmetic_is_same(&arithmetics[p], &arithmetic);)
        p++;
    return p;
}

/* QuantizeLeakyRelu: another multiplier below zero. */
static void slopes_have_two_multipliers(void **state)
{
    (void)state;
    struct bench *b = calloc(1, sizeof *b);
    struct nd_identify_result result;
    const double scale = 0.0713, slope = 0.2;
    int e, e_below;
    int64_t q = bits_of(scale, &e), q_below = bits_of(scale * slope, &e_below);
    assert_non_null(b);
    fill(b, N_GENERIC, generic_multiplier, 1, false);
    for (int i = 0; i < 4096; i++) {
        int x = i - 2048;
        b->v[i] = nd_ratio_of((double)x * (x < 0 ? slope : 1) * scale, 1);
        b->given[i] = (double)(128 + (x < 0 ? multiplied(x, q_below, e_below) : multiplied(x, q, e)));
        b->given[i] = fmin(fmax(b->given[i], 0), 255);
    }
    tally_specified(b, &(struct nd_specified_sum){.step = scale, .slope = slope}, 4096, &result);
    assert_true(result.is_applicable[index_of("gemmlowp")] && result.is_possible[index_of("gemmlowp")]);
    assert_true(result.n_wrong[index_of("gemmlowp")] == 0 && result.n_wrong[0] > 0);
    assert_false(result.is_applicable[index_of("multiplier:11+rounding:half-up")]);
    free(b);
}

/* QuantizedMeanOrSum: the multiplier of the scales is divided by how many numbers there are, and cut. */
static void means_of_any_number_are_found(void **state)
{
    (void)state;
    enum { N_AVERAGED = 49, SHIFT = 5 };
    struct bench *b = calloc(1, sizeof *b);
    struct nd_identify_result result;
    const double ratio = 1.31;
    int e;
    int64_t q = (bits_of(ratio, &e) << SHIFT) / N_AVERAGED;
    assert_non_null(b);
    fill(b, N_GENERIC, generic_multiplier, 1, false);
    for (int i = 0; i < 8192; i++) {
        int sum = i - 4096;
        b->v[i] = nd_ratio_of((double)sum * ratio, N_AVERAGED);
        b->given[i] = fmin(fmax((double)(128 + multiplied(sum, q, e - SHIFT)), 0), 255);
    }
    tally_specified(b, &(struct nd_specified_sum){.step = ratio / N_AVERAGED, .n_averaged = N_AVERAGED}, 8192,
                    &result);
    assert_true(result.is_possible[index_of("gemmlowp")] && result.n_wrong[index_of("gemmlowp")] == 0);
    assert_true(result.n_wrong[0] > 0);
    free(b);
}

static void few_qvalues_exclude_nothing(void **state)
{
    (void)state;
    struct bench *b = calloc(1, sizeof *b);
    struct nd_identify_tally *tally = calloc(1, sizeof *tally);
    assert_true(b != NULL && tally != NULL);
    const struct nd_arithmetic floor_arithmetic = named("floor");
    struct nd_identify_result r;
    nd_identify_decide(tally, &r);
    assert_int_equal(r.verdict, ND_IDENTIFY_TOO_FEW);
    assert_true(r.best == SIZE_MAX);
    fill(b, ND_IDENTIFY_MIN - 1, generic_multiplier, 30000, true);
    answer(b, &floor_arithmetic, 0);
    assert_int_equal(nd_identify_layer(tally, &b->sample, NULL), ND_OK);
    nd_identify_decide(tally, &r);
    assert_int_equal(r.verdict, ND_IDENTIFY_TOO_FEW);
    for (size_t p = 0; p < r.n_arithmetics; p++)
        assert_true(r.is_possible[p]);
    free(b);
    free(tally);
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_read_back),
        cmocka_unit_test(other_names_are_refused),
        cmocka_unit_test(arithmetics_do_what_they_say),
        cmocka_unit_test(arithmetics_without_accumulator_are_not_applicable),
        cmocka_unit_test(arithmetics_are_devices),
        cmocka_unit_test(arithmetics_are_found),
        cmocka_unit_test(unknown_arithmetics_are_none),
        cmocka_unit_test(tallies_merge_in_any_order),
        cmocka_unit_test(curve_and_brackets_show_the_threshold),
        cmocka_unit_test(sets_intersect_over_layers),
        cmocka_unit_test(slopes_have_two_multipliers),
        cmocka_unit_test(means_of_any_number_are_found),
        cmocka_unit_test(few_qvalues_exclude_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
