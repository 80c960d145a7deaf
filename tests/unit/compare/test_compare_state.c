/* States of pairs: merging has no order, text brings every bit back, and malformed text is refused. */
#include "support/main.h"

#include <stdio.h>

#include "compare/metrics/states.h"
#include "support/pair_check.h"

enum { N = 1100, N_SAMPLES = 7, MAX_STATES = 5 };

struct samples {
    enum nd_dtype dtype;
    struct nd_pair_context context;
    unsigned char ref[N_SAMPLES][8 * N], test[N_SAMPLES][8 * N];
    double ref_reals[N_SAMPLES][8], test_reals[N_SAMPLES][8];
};

static struct samples *make_samples(enum nd_dtype dtype, uint64_t *seed)
{
    struct samples *s = calloc(1, sizeof *s);
    struct nd_compare_options options = nd_compare_options_default();
    struct nd_tensor tensor = tensor_of(dtype, 0);
    tensor.shape = (struct nd_shape){.rank = 3, .dims = {10, 11, 10}};
    options.ulp_in = ND_DTYPE_F16;
    assert_non_null(s);
    s->dtype = dtype;
    s->context = context_of(&tensor, &tensor, &options);
    for (size_t k = 0; k < N_SAMPLES; k++) {
        fill_random(s->ref[k], dtype, N, seed);
        perturb(s->ref[k], s->test[k], dtype, N, k == 2 ? SIZE_MAX : k == 5 ? 1000 : 6, seed);
        for (size_t i = 0; i < 8; i++) {
            s->ref_reals[k][i] = (double)below(seed, 1000) / 100 - (k == 1 && i == 0 ? INFINITY : 0);
            s->test_reals[k][i] = (double)below(seed, 1000) / 100;
        }
    }
    return s;
}

static void add_sample(struct nd_pair_state *state, const struct samples *s, size_t k)
{
    struct nd_probabilities ref = {.n = 8, .values = s->ref_reals[k]},
                            test = {.n = 8, .values = s->test_reals[k]};
    assert_int_equal(nd_sample_compare(state, &s->context, do_bytes_differ(&s->context, s->ref[k], s->test[k]),
                                       s->ref[k], s->test[k], k % 2, k, NULL),
                     ND_OK);
    nd_probabilities_describe(&ref);
    nd_probabilities_describe(&test);
    nd_distribution_add(&state->distribution, &ref, &test);
}

static struct nd_pair_state *make_state(const struct samples *s)
{
    struct nd_pair_state *state = nd_pair_state_create(&s->context, NULL);
    assert_non_null(state);
    return state;
}

static struct nd_pair_state *make_whole(const struct samples *s)
{
    struct nd_pair_state *state = make_state(s);
    for (size_t k = 0; k < N_SAMPLES; k++)
        add_sample(state, s, k);
    return state;
}

static void assert_same_state(const struct samples *s, const struct nd_pair_state *a,
                              const struct nd_pair_state *b)
{
    struct nd_difference x, y;
    char *x_text = nd_pair_state_format(a), *y_text = nd_pair_state_format(b);
    assert_int_equal(nd_pair_state_finish(a, &s->context, &x, NULL), ND_OK);
    assert_int_equal(nd_pair_state_finish(b, &s->context, &y, NULL), ND_OK);
    assert_same_difference(&x, &y);
    assert_string_equal(x_text, y_text); /* one content has one text */
    free(x.worst);
    free(y.worst);
    free(x_text);
    free(y_text);
}

static struct nd_pair_state *reread(const struct samples *s, const struct nd_pair_state *state)
{
    struct nd_pair_state *read = make_state(s);
    struct nd_error err = {0};
    char *text = nd_pair_state_format(state);
    assert_non_null(text);
    if (nd_pair_state_parse(read, text, &err) != ND_OK)
        fail_msg("%s: %s", nd_dtype_name(s->dtype), err.message);
    free(text);
    return read;
}

static void state_merged_in_any_order_is_that_of_one_run(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (size_t run = 0; run < 6 * N_DTYPES; run++) {
        struct samples *s = make_samples(all_dtypes[run % N_DTYPES], &seed);
        struct nd_pair_state *whole = make_whole(s), *merged = make_state(s), *parts[MAX_STATES];
        size_t n_parts = 2 + below(&seed, MAX_STATES - 1), order[N_SAMPLES];
        for (size_t i = 0; i < n_parts; i++)
            parts[i] = make_state(s);
        for (size_t k = 0; k < N_SAMPLES; k++) { /* a random order of the samples */
            size_t at = below(&seed, k + 1);
            order[k] = order[at];
            order[at] = k;
        }
        for (size_t k = 0; k < N_SAMPLES; k++)
            add_sample(parts[below(&seed, n_parts)], s, order[k]);
        for (size_t n_left = n_parts; n_left > 0; n_left--) {
            size_t i = below(&seed, n_left);
            if (run % 2 == 1) { /* by way of text */
                struct nd_pair_state *read = reread(s, parts[i]);
                nd_pair_state_destroy(&parts[i]);
                parts[i] = read;
            }
            assert_int_equal(nd_pair_state_merge(merged, parts[i], NULL), ND_OK);
            nd_pair_state_destroy(&parts[i]);
            parts[i] = parts[n_left - 1];
        }
        assert_same_state(s, whole, merged);
        nd_pair_state_destroy(&whole);
        nd_pair_state_destroy(&merged);
        free(s);
    }
}

static void state_as_text_comes_back(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (size_t k = 0; k < N_DTYPES; k++) {
        struct samples *s = make_samples(all_dtypes[k], &seed);
        struct nd_pair_state *whole = make_whole(s), *empty = make_state(s);
        struct nd_pair_state *read = reread(s, whole), *read_empty = reread(s, empty);
        assert_same_state(s, whole, read);
        assert_same_state(s, empty, read_empty);
        nd_pair_state_destroy(&whole);
        nd_pair_state_destroy(&empty);
        nd_pair_state_destroy(&read);
        nd_pair_state_destroy(&read_empty);
        free(s);
    }
}

/* A text that is read nevertheless must not do any harm. */
static bool is_read(const struct samples *s, const char *text, const struct nd_pair_state *good)
{
    struct nd_pair_state *read = make_state(s), *merged = make_state(s);
    struct nd_error err = {0};
    struct nd_difference d;
    enum nd_status status = nd_pair_state_parse(read, text, &err);
    if (status == ND_OK) {
        assert_int_equal(nd_pair_state_merge(merged, good, NULL), ND_OK);
        if (nd_pair_state_merge(merged, read, NULL) == ND_OK &&
            nd_pair_state_finish(merged, &s->context, &d, NULL) == ND_OK)
            free(d.worst);
    } else {
        assert_int_equal(err.id, ND_E_COMPARE_PART);
    }
    nd_pair_state_destroy(&read);
    nd_pair_state_destroy(&merged);
    return status == ND_OK;
}

static void state_cut_short_or_prolonged_is_refused(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct samples *s = make_samples(ND_DTYPE_F32, &seed);
    struct nd_pair_state *whole = make_whole(s);
    char *text = nd_pair_state_format(whole);
    size_t len = strlen(text), last_word = (size_t)(strrchr(text, ' ') - text) + 2;
    char *longer = malloc(len + 3);
    assert_non_null(longer);
    for (size_t n = len; n-- > 0;) {
        text[n] = '\0';
        assert_true(n >= last_word || !is_read(s, text, whole));
    }
    free(text);
    text = nd_pair_state_format(whole);
    static const char *const tails[] = {" ", " 0", "x", "-", "\n"};
    for (size_t i = 0; i < 5; i++) {
        snprintf(longer, len + 3, "%s%s", text, tails[i]);
        assert_false(is_read(s, longer, whole));
    }
    free(longer);
    free(text);
    nd_pair_state_destroy(&whole);
    free(s);
}

static void mutate(char *text, size_t len, uint64_t *seed)
{
    static const char alphabet[] = "0123456789abcdefpinz :,-=+x";
    for (size_t k = 1 + below(seed, 3); k > 0; k--) {
        size_t at = below(seed, len), n = below(seed, 12), from = below(seed, len);
        switch (below(seed, 4)) {
        case 0:
            text[at] = alphabet[below(seed, sizeof alphabet - 1)];
            break;
        case 1: /* digits become nines */
            for (size_t i = at; i < len && i < at + n; i++)
                text[i] = text[i] >= '0' && text[i] <= '9' ? '9' : text[i];
            break;
        case 2: /* a piece from elsewhere */
            n = n < len - at ? n : len - at;
            n = n < len - from ? n : len - from;
            memmove(text + at, text + from, n);
            break;
        default: /* one less */
            memmove(text + at, text + at + 1, len - at);
            len--;
        }
    }
}

static void state_mutated_does_no_harm(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (size_t k = 0; k < N_DTYPES; k++) {
        struct samples *s = make_samples(all_dtypes[k], &seed);
        struct nd_pair_state *whole = make_whole(s);
        char *text = nd_pair_state_format(whole), *copy = strdup(text);
        size_t n_read = 0;
        assert_non_null(copy);
        for (size_t run = 0; run < 400; run++) {
            memcpy(copy, text, strlen(text) + 1);
            mutate(copy, strlen(text), &seed);
            n_read += is_read(s, copy, whole);
        }
        assert_true(n_read < 400);
        free(text);
        free(copy);
        nd_pair_state_destroy(&whole);
        free(s);
    }
}

/* The states of other tensors have other dimensions. */
static void state_of_another_shape_is_refused(void **state)
{
    (void)state;
    const uint8_t ref[24] = {0}, test[24] = {0, 1};
    struct nd_tensor tensors[2] = {tensor_of(ND_DTYPE_U8, 24), tensor_of(ND_DTYPE_U8, 24)};
    tensors[1].shape = (struct nd_shape){.rank = 2, .dims = {300, 0}};
    struct nd_pair_context contexts[2] = {context_of(&tensors[0], &tensors[0], NULL),
                                          context_of(&tensors[1], &tensors[1], NULL)};
    struct nd_pair_state *made = nd_pair_state_create(&contexts[0], NULL);
    assert_int_equal(nd_sample_compare(made, &contexts[0], true, ref, test, 0, 0, NULL), ND_OK);
    char *text = nd_pair_state_format(made);
    struct nd_pair_state *read = nd_pair_state_create(&contexts[1], NULL);
    assert_int_equal(nd_pair_state_parse(read, text, NULL), ND_ERR_FORMAT);
    nd_pair_state_destroy(&read);
    nd_pair_state_destroy(&made);
    free(text);
}

/* An element of a tensor that has none. */
static void state_of_an_empty_tensor_with_a_first_element_does_no_harm(void **state)
{
    (void)state;
    struct nd_tensor tensor = tensor_of(ND_DTYPE_U8, 0);
    struct nd_pair_context context = context_of(&tensor, &tensor, NULL);
    struct nd_pair_state *made = nd_pair_state_create(&context, NULL);
    made->bits.n_samples = made->bits.n_samples_differing = 1;
    made->bits.first = (struct nd_first){.is_set = true, .has_index = true, .index = 3};
    char *text = nd_pair_state_format(made);
    struct nd_pair_state *read = nd_pair_state_create(&context, NULL);
    struct nd_difference d = {0};
    if (nd_pair_state_parse(read, text, NULL) == ND_OK)
        nd_pair_state_finish(read, &context, &d, NULL);
    free(d.worst);
    free(text);
    nd_pair_state_destroy(&made);
    nd_pair_state_destroy(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_merged_in_any_order_is_that_of_one_run),
        cmocka_unit_test(state_as_text_comes_back),
        cmocka_unit_test(state_cut_short_or_prolonged_is_refused),
        cmocka_unit_test(state_mutated_does_no_harm),
        cmocka_unit_test(state_of_another_shape_is_refused),
        cmocka_unit_test(state_of_an_empty_tensor_with_a_first_element_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
