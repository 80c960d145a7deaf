/* The engine against golden/oracle/compare, which tools/oracles/make_compare_oracle.py works out from
 * docs/reference/metrics.md in exact arithmetic: every number to the bit, with every set of kernels. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/findings/top1_classes.h"
#include "compare/metrics/layout.h"
#include "compare/metrics/states.h"
#include "core/statistics/evidence.h"
#include "support/oracle_case.h"

enum { N_MODES = 2 };

/* What the engine finds. */

static void add_sample(struct nd_pair_state *state, const struct nd_pair_context *context,
                       const struct oracle_case *c, size_t s)
{
    bool differs =
        context->is_mixed || memcmp(c->ref.bytes[s], c->test.bytes[s], c->n_elems * c->ref.elem_bytes) != 0;
    assert_int_equal(
        nd_sample_compare(state, context, differs, c->ref.bytes[s], c->test.bytes[s], s / 2, s % 2, NULL),
        ND_OK);
}

/* In one state, or (mode 1) sample by sample from the last to the first, merged. */
static void compare(const struct oracle_case *c, const struct nd_pair_context *context, int mode,
                    struct nd_difference *out)
{
    struct nd_pair_state *state = nd_pair_state_create(context, NULL);
    assert_non_null(state);
    for (size_t s = 0; s < c->n_samples && mode == 0; s++)
        add_sample(state, context, c, s);
    for (size_t s = c->n_samples; s-- > 0 && mode == 1;) {
        struct nd_pair_state *one = nd_pair_state_create(context, NULL);
        assert_non_null(one);
        add_sample(one, context, c, s);
        assert_int_equal(nd_pair_state_merge(state, one, NULL), ND_OK);
        nd_pair_state_destroy(&one);
    }
    assert_int_equal(nd_pair_state_finish(state, context, out, NULL), ND_OK);
    nd_pair_state_destroy(&state);
}

/* Against what is expected. */

enum number_kind { COUNT, REAL, FLAG };

#define NUMBER(name, member, kind)                                                                             \
    {                                                                                                          \
        name, offsetof(struct nd_difference, member), kind                                                     \
    }
#define ERRORS(side)                                                                                           \
    NUMBER(#side ".max", side.max, REAL), NUMBER(#side ".mean", side.mean, REAL),                              \
        NUMBER(#side ".median", side.median, REAL), NUMBER(#side ".p99", side.p99, REAL)
#define SIDE(side)                                                                                             \
    NUMBER(#side ".elements", side.n_elems, COUNT), NUMBER(#side ".nan", side.n_nan, COUNT),                   \
        NUMBER(#side ".inf", side.n_inf, COUNT), NUMBER(#side ".zero", side.n_zero, COUNT),                    \
        NUMBER(#side ".subnormal", side.n_subnormal, COUNT),                                                   \
        NUMBER(#side ".saturated", side.n_saturated, COUNT),                                                   \
        NUMBER(#side ".stuck", side.n_stuck_samples, COUNT), NUMBER(#side ".min", side.min, REAL),             \
        NUMBER(#side ".max", side.max, REAL)

static const struct number {
    const char *name;
    size_t offset;
    enum number_kind kind;
} numbers[] = {
    NUMBER("n_samples", n_samples, COUNT),
    NUMBER("n_samples_differing", n_samples_differing, COUNT),
    NUMBER("n_elems", n_elems, COUNT),
    NUMBER("n_differing", n_differing, COUNT),
    NUMBER("share", share, REAL),
    NUMBER("n_failing", n_failing, COUNT),
    NUMBER("max_lsb", max_lsb, COUNT),
    NUMBER("mean_lsb", mean_lsb, REAL),
    NUMBER("signed_mean_lsb", signed_mean_lsb, REAL),
    NUMBER("max_ulp", max_ulp, COUNT),
    NUMBER("max_ulp_in", max_ulp_in, COUNT),
    ERRORS(abs),
    ERRORS(rel),
    NUMBER("rmse", rmse, REAL),
    NUMBER("n_rel_undefined", n_rel_undefined, COUNT),
    NUMBER("sqnr_db", sqnr_db, REAL),
    NUMBER("cosine", cosine, REAL),
    NUMBER("norm_ratio", norm_ratio, REAL),
    NUMBER("pearson", pearson, REAL),
    NUMBER("has_gain", has_gain, FLAG),
    NUMBER("gain", gain, REAL),
    NUMBER("offset", offset, REAL),
    NUMBER("n_nan_mismatch", n_nan_mismatch, COUNT),
    NUMBER("n_nan_payload", n_nan_payload, COUNT),
    NUMBER("n_inf_mismatch", n_inf_mismatch, COUNT),
    NUMBER("n_zero_sign", n_zero_sign, COUNT),
    NUMBER("n_saturation_mismatch", n_saturation_mismatch, COUNT),
    SIDE(ref_side),
    SIDE(test_side),
    NUMBER("structure.first_index", structure.first_index, COUNT),
    NUMBER("structure.last_index", structure.last_index, COUNT),
    NUMBER("structure.stride", structure.stride, COUNT),
    NUMBER("structure.n_runs", structure.n_runs, COUNT),
    NUMBER("structure.longest_run", structure.longest_run, COUNT),
    NUMBER("tolerance.is_possible", tolerance.is_possible, FLAG),
    NUMBER("tolerance.lsb", tolerance.lsb, COUNT),
    NUMBER("tolerance.ulp", tolerance.ulp, COUNT),
    NUMBER("tolerance.atol", tolerance.atol, REAL),
    NUMBER("tolerance.rtol", tolerance.rtol, REAL),
    NUMBER("n_dequantised", n_dequantised, COUNT),
};
enum { N_NUMBERS = sizeof numbers / sizeof numbers[0] };

struct check {
    const struct oracle_case *c;
    const char *kernels;
    size_t line; /* of pairs.json */
    int mode;
    size_t n_wrong;
};

static void wrong(struct check *check, const char *what, const char *got, const char *expected)
{
    check->n_wrong++;
    fprintf(stderr, "pairs.json:%zu (%s and %s, %s, mode %d): %s is %s, not %s\n", check->line,
            nd_dtype_name(check->c->ref.tensor.dtype), nd_dtype_name(check->c->test.tensor.dtype),
            check->kernels, check->mode, what, got, expected);
}

/* Equal bits, or both NaN. The logarithm is the C library's, which may differ in the last bit. */
static bool is_equal(double got, double expected, bool is_logarithm)
{
    if (isnan(expected) || isnan(got))
        return isnan(expected) && isnan(got);
    double slack = is_logarithm && isfinite(expected) ? 0x1p-52 * fabs(expected) : 0;
    return memcmp(&got, &expected, sizeof got) == 0 || fabs(got - expected) <= slack;
}

static void check_real(struct check *check, const char *what, double got, double expected)
{
    char texts[2][40];
    if (is_equal(got, expected, strcmp(what, "sqnr_db") == 0) && signbit(got) == signbit(expected))
        return;
    if (isnan(got) && isnan(expected))
        return;
    snprintf(texts[0], sizeof texts[0], "%.17g", got);
    snprintf(texts[1], sizeof texts[1], "%.17g", expected);
    wrong(check, what, texts[0], texts[1]);
}

static void check_count(struct check *check, const char *what, uint64_t got, uint64_t expected)
{
    char texts[2][40];
    if (got == expected)
        return;
    snprintf(texts[0], sizeof texts[0], "%llu", (unsigned long long)got);
    snprintf(texts[1], sizeof texts[1], "%llu", (unsigned long long)expected);
    wrong(check, what, texts[0], texts[1]);
}

static void check_number(struct check *check, const struct number *number, const struct nd_difference *d,
                         const char *expected)
{
    const unsigned char *at = (const unsigned char *)d + number->offset;
    uint64_t count = 0;
    double real;
    bool flag;
    memcpy(&count, at, sizeof count);
    memcpy(&real, at, sizeof real);
    memcpy(&flag, at, sizeof flag);
    if (number->kind != REAL)
        check_count(check, number->name, number->kind == FLAG ? flag : count, strtoull(expected, NULL, 10));
    else
        check_real(check, number->name, real, expected[0] == 'x' ? double_of_word(expected) : 0);
}

static bool is_of(size_t i, const char *name)
{
    return strcmp(numbers[i].name, name) == 0;
}

static void check_numbers(struct check *check, const struct nd_difference *d, const json_t *names,
                          const json_t *expect)
{
    const char *words = json_string_value(json_object_get(expect, "numbers"));
    assert_int_equal(json_array_size(names), N_NUMBERS);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        bool has_meaning = (d->has_gain || !is_of(i, "gain")) && (d->has_gain || !is_of(i, "offset")) &&
                           (d->tolerance.is_possible || strncmp(numbers[i].name, "tolerance.", 10) != 0);
        assert_string_equal(text_at(names, i), numbers[i].name);
        assert_true(words != NULL && *words != '\0');
        if (has_meaning)
            check_number(check, &numbers[i], d, words);
        words += strcspn(words, " ");
        words += *words == ' ';
    }
    assert_string_equal(words, "");
}

static void check_list(struct check *check, const char *what, const uint64_t *got, size_t n,
                       const json_t *expected)
{
    for (size_t i = 0; i < n; i++)
        check_count(check, what, got[i], (uint64_t)json_integer_value(json_array_get(expected, i)));
}

static void check_place(struct check *check, const char *what, const struct nd_difference_place *place,
                        const json_t *expected)
{
    check_list(check, what, (const uint64_t[]){place->probe, place->sample, place->index}, 3, expected);
    size_t index = 0;
    for (int i = 0; i < check->c->ref.tensor.shape.rank; i++)
        index = index * (size_t)check->c->ref.tensor.shape.dims[i] + (size_t)place->coordinates[i];
    check_count(check, "flat index of the coordinates", index, place->index);
}

static void check_worst(struct check *check, const struct nd_difference *d, const json_t *expected)
{
    check_count(check, "n_worst", d->n_worst, json_array_size(expected));
    for (size_t i = 0; i < d->n_worst && i < json_array_size(expected); i++) {
        const struct nd_worst *item = &d->worst[i];
        const double got[] = {item->abs_error, item->ref, item->test, item->ref_real, item->test_real};
        static const char *const names[] = {"worst abs_error", "worst ref", "worst test", "worst ref_real",
                                            "worst test_real"};
        const json_t *row = json_array_get(expected, i);
        check_place(check, "worst place", &item->place, row);
        for (size_t v = 0; v < 5; v++)
            check_real(check, names[v], got[v], double_of_word(text_at(row, 3 + v)));
    }
}

/* Looked for by those who have whole tensors: nd_sample_compare does not. */
static void check_permutation(struct check *check, const json_t *expected)
{
    const struct oracle_case *c = check->c;
    const struct nd_shape *shape = &c->ref.tensor.shape;
    int permutation[ND_MAX_RANK];
    uint64_t number = nd_permutation_find(shape, c->ref.elem_bytes, c->ref.bytes[0], c->test.bytes[0]);
    check_count(check, "is permuted", number > 0, true);
    nd_permutation_describe(shape, number, permutation);
    for (size_t i = 0; i < json_array_size(expected); i++)
        check_count(check, "permutation", (uint64_t)permutation[i],
                    (uint64_t)json_integer_value(json_array_get(expected, i)));
}

static void check_structure(struct check *check, const struct nd_structure *structure, const json_t *expect)
{
    const json_t *axes = json_object_get(expect, "axes"), *axis = json_object_get(expect, "axis");
    const json_t *permutation = json_object_get(expect, "permutation");
    const char *pattern = json_string_value(json_object_get(expect, "pattern"));
    const char *got = nd_pattern_name(structure->pattern);
    if (permutation != NULL)
        check_permutation(check, permutation);
    else if (strcmp(got, pattern != NULL ? pattern : "none") != 0)
        wrong(check, "pattern", got, pattern);
    for (size_t i = 0; i < json_array_size(axes); i++) {
        const struct nd_axis_span *span = &structure->axes[i];
        check_list(check, "axis", (const uint64_t[]){span->n, span->first, span->last}, 3,
                   json_array_get(axes, i));
    }
    if (axis != NULL)
        check_count(check, "one coordinate's axis", (uint64_t)structure->axis,
                    (uint64_t)json_integer_value(axis));
}

static void check_difference(struct check *check, const struct nd_difference *d, const json_t *names,
                             const json_t *expect)
{
    const json_t *first = json_object_get(expect, "first"), *histogram = json_object_get(expect, "histogram");
    check_numbers(check, d, names, expect);
    check_count(check, "has_first", d->has_first, first != NULL);
    if (d->has_first && first != NULL)
        check_place(check, "first", &d->first, first);
    check_count(check, "is_integer", d->is_integer, histogram != NULL);
    if (histogram != NULL)
        check_list(check, "histogram", d->lsb_histogram, ND_LSB_BUCKETS, histogram);
    check_structure(check, &d->structure, expect);
    check_worst(check, d, json_object_get(expect, "worst"));
}

static size_t check_case(const json_t *row, const json_t *head, size_t line)
{
    const struct nd_kernels *const *kernels;
    size_t n_kernels = nd_kernels_available(&kernels);
    struct oracle_case *c = read_case(row, head);
    struct check check = {.c = c, .line = line};
    for (size_t k = 0; k < n_kernels; k++)
        for (check.mode = 0; check.mode < N_MODES; check.mode++) {
            struct nd_pair_context context;
            struct nd_difference d = {0};
            check.kernels = kernels[k]->name;
            assert_int_equal(
                nd_pair_context_make(&c->ref.tensor, &c->test.tensor, &c->options, kernels[k], &context, NULL),
                ND_OK);
            context.gate = c->gate;
            compare(c, &context, check.mode, &d);
            check_difference(&check, &d, json_object_get(head, "numbers"), json_object_get(row, "expect"));
            free(d.worst);
        }
    free_case(c);
    return check.n_wrong;
}

static void pairs_match_the_oracle(void **state)
{
    (void)state;
    json_t *rows = load("pairs");
    size_t n_wrong = 0;
    for (size_t i = 1; i < json_array_size(rows); i++)
        n_wrong += check_case(json_array_get(rows, i), json_array_get(rows, 0), i + 2);
    assert_int_equal(n_wrong, 0);
    json_decref(rows);
}

static uint64_t ulps_between(const struct nd_tensor *tensor, uint64_t ref, uint64_t test)
{
    const struct nd_compare_options options = nd_compare_options_default();
    const struct nd_kernels *const *kernels;
    struct nd_pair_context context;
    struct nd_difference d = {0};
    struct nd_pair_state *state;
    (void)nd_kernels_available(&kernels);
    assert_int_equal(nd_pair_context_make(tensor, tensor, &options, kernels[0], &context, NULL), ND_OK);
    assert_non_null(state = nd_pair_state_create(&context, NULL));
    assert_int_equal(nd_sample_compare(state, &context, ref != test, (const unsigned char *)&ref,
                                       (const unsigned char *)&test, 0, 0, NULL),
                     ND_OK);
    assert_int_equal(nd_pair_state_finish(state, &context, &d, NULL), ND_OK);
    if (ref != test)
        assert_int_equal(d.n_worst, 1);
    nd_pair_state_destroy(&state);
    free(d.worst);
    return d.max_ulp;
}

static void ulp_matches_the_oracle(void **state)
{
    (void)state;
    json_t *rows = load("ulp");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const struct nd_tensor tensor = {
            .name = (char *)"e", .dtype = nd_dtype_from_name(text_at(row, 0)), .shape = {.rank = 0}};
        uint64_t a = strtoull(text_at(row, 1), NULL, 16), b = strtoull(text_at(row, 2), NULL, 16);
        uint64_t expected = strtoull(text_at(row, 3), NULL, 10);
        assert_true(ulps_between(&tensor, a, b) == expected);
        assert_true(ulps_between(&tensor, b, a) == expected);
    }
    json_decref(rows);
}

static void mcnemar_matches_the_oracle(void **state)
{
    (void)state;
    json_t *rows = load("mcnemar");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        size_t lost = (size_t)integer_of(row, "lost"), gained = (size_t)integer_of(row, "gained");
        double p = nd_mcnemar_mid_p(lost, gained), expected = double_of_bits(hex_of(row, "p"));
        assert_true(fabs(p - expected) <= expected * ldexp((double)(lost + gained + 4), -50) + 5e-324);
        assert_f64_bits(p, nd_mcnemar_mid_p(gained, lost));
    }
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_match_the_oracle),
        cmocka_unit_test(ulp_matches_the_oracle),
        cmocka_unit_test(mcnemar_matches_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
