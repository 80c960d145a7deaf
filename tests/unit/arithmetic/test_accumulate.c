/* Dot products as accelerators sum them: held against the host's own floats where these do the same, and
 * against results worked out by hand. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/arithmetics/accumulate.h"

enum { N = 32 };

/* Half precision values given as float32. */
static float accumulate(const struct nd_accumulator *accumulator, const float *x, const float *w, size_t n)
{
    struct nd_sum_tree tree;
    int64_t factors_x[ND_SUM_MAX_TERMS], factors_w[ND_SUM_MAX_TERMS];
    nd_sum_tree_of(&accumulator->order, n, &tree);
    bool is_half = nd_accumulator_factors(x, n, factors_x) && nd_accumulator_factors(w, n, factors_w);
    assert_true(is_half);
    return nd_accumulate_factors(accumulator, &tree, factors_x, factors_w);
}

static const struct nd_accumulator plain = {
    .sum = ND_SUM_F32, .extra_bits = -1, .order = {ND_SUM_SEQUENTIAL, 0}, .output = ND_SUM_F32};

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed ^ *seed >> 32) * 0x9e3779b97f4a7c15u;
}

static uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20261121;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void random_halves(uint64_t *seed, float x[N], int low, int high)
{
    for (int i = 0; i < N; i++) {
        int exponent = low + (int)(next_random(seed) % (uint64_t)(high - low + 1));
        float value = (float)(1024 + (next_random(seed) & 1023)) * 0x1p-10F;
        x[i] = ldexpf(next_random(seed) & 1 ? -value : value, exponent);
    }
}

/* fmaf is the definition of a fused sum of float32; x86's float addition that of the others. */
static void f32_sums_are_those_of_the_host(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct nd_accumulator item = plain;
    for (int trial = 0; trial < 20000; trial++) {
        float x[N], w[N], in_order = 0, backwards = 0, lanes[4] = {0}, halves[N];
        random_halves(&seed, x, -8, 8);
        random_halves(&seed, w, -4, 4);
        for (int i = 0; i < N; i++) {
            in_order = fmaf(x[i], w[i], in_order);
            backwards = fmaf(x[N - 1 - i], w[N - 1 - i], backwards);
            lanes[i % 4] = fmaf(x[i], w[i], lanes[i % 4]);
            halves[i] = x[i] * w[i]; /* 22 bits: exact */
        }
        for (int n = N / 2; n > 0; n /= 2)
            for (int i = 0; i < n; i++)
                halves[i] += halves[i + n];
        item.order = (struct nd_sum_order){ND_SUM_SEQUENTIAL, 0};
        assert_f32_bits(accumulate(&item, x, w, N) + 0.0F, in_order + 0.0F);
        item.order = (struct nd_sum_order){ND_SUM_REVERSED, 0};
        assert_f32_bits(accumulate(&item, x, w, N) + 0.0F, backwards + 0.0F);
        item.order = (struct nd_sum_order){ND_SUM_LANES, 4};
        assert_f32_bits(accumulate(&item, x, w, N) + 0.0F, lanes[0] + lanes[1] + (lanes[2] + lanes[3]) + 0.0F);
        item.order = (struct nd_sum_order){ND_SUM_HALVING, 0};
        assert_f32_bits(accumulate(&item, x, w, N) + 0.0F, halves[0] + 0.0F);
    }
}

/* The compiler's own half precision, where it has one, would do; here nearby doubles are searched instead. */
static float nearest_half(double value)
{
    double magnitude = fabs(value), step = ldexp(1, (magnitude < 0x1p-14 ? -14 : ilogb(magnitude)) - 10);
    double rounded = rint(magnitude / step) * step;
    return (float)copysign(rounded >= 65520 ? INFINITY : rounded, value);
}

static void f16_sums_round_after_each_addition(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct nd_accumulator item = plain;
    item.sum = item.output = ND_SUM_F16;
    for (int trial = 0; trial < 20000; trial++) {
        float x[N], w[N], fused = 0, unfused = 0;
        /* Up to infinity, and down to subnormal sums. */
        random_halves(&seed, x, trial % 2 ? -13 : -5, trial % 2 ? -6 : 8);
        random_halves(&seed, w, trial % 2 ? -8 : -4, trial % 2 ? -1 : 5);
        for (int i = 0; i < N; i++) { /* at most 50 bits: exact in double */
            fused = nearest_half((double)fused + (double)x[i] * (double)w[i]);
            unfused = nearest_half((double)unfused + (double)nearest_half((double)x[i] * (double)w[i]));
        }
        item.product = ND_SUM_EXACT;
        item.is_from_zero = true;
        assert_f32_bits(accumulate(&item, x, w, N) + 0.0F, fused + 0.0F);
        item.product = ND_SUM_F16;
        assert_f32_bits(accumulate(&item, x, w, N) + 0.0F, unfused + 0.0F);
    }
}

static float sum_of(const struct nd_accumulator *item, float a, float b, float c)
{
    const float x[] = {a, b, c}, w[] = {1, 1, 1};
    return accumulate(item, x, w, 3);
}

/* (1 + 2^-10)^2 ends in 2^-20, which a register of half precision loses before the second product comes. */
static void first_products_are_rounded_from_zero(void **state)
{
    (void)state;
    const float x[] = {0x1.004p0F, -0x1.008p0F}, w[] = {0x1.004p0F, 1};
    struct nd_accumulator item = plain;
    item.sum = ND_SUM_F16;
    assert_f32_bits(accumulate(&item, x, w, 2), 0x1p-20F);
    item.is_from_zero = true;
    assert_f32_bits(accumulate(&item, x, w, 2), 0);
    item.order = (struct nd_sum_order){ND_SUM_REVERSED, 0};
    assert_f32_bits(accumulate(&item, x, w, 2), 0x1p-20F);
}

static void roundings_and_widths_by_hand(void **state)
{
    (void)state;
    struct nd_accumulator item = plain;
    item.sum = ND_SUM_BF16;
    assert_f32_bits(sum_of(&item, 256, 1, -256), 0); /* a tie, to even */
    assert_f32_bits(sum_of(&item, 258, 1, -256), 4); /* a tie at an odd number */
    assert_f32_bits(sum_of(&item, 256, 1.5F, -256), 2);
    item.rounding = ND_ROUND_TO_ZERO;
    assert_f32_bits(sum_of(&item, 256, 1.5F, -256), 0);
    assert_f32_bits(sum_of(&item, -256, 0.5F, 256), 1); /* the last bit below 256 is 1 */
    item.rounding = ND_ROUND_HALF_AWAY;
    assert_f32_bits(sum_of(&item, 256, 1, -256), 2);
    assert_f32_bits(sum_of(&item, -256, -1, 256), -2);
}

static void aligned_adders_cut_before_they_add(void **state)
{
    (void)state;
    struct nd_accumulator item = plain;
    item.sum = ND_SUM_13BITS;
    item.order = (struct nd_sum_order){ND_SUM_FUSED, 4};
    const float w[] = {1, 1, 1, 1}, x[] = {0x1p13F, 0.75F, 0.75F, 0.75F}, y[] = {0x1p13F, 1.5F, 1.5F, -0x1p13F};
    assert_f32_bits(accumulate(&item, x, w, 4), 0x1p13F + 2); /* 2.25 */
    item.extra_bits = 0;
    assert_f32_bits(accumulate(&item, x, w, 4), 0x1p13F);
    assert_f32_bits(accumulate(&item, y, w, 4), 2);
    item.extra_bits = 1;
    assert_f32_bits(accumulate(&item, x, w, 4), 0x1p13F + 2); /* 1.5, a tie, to even */
    assert_f32_bits(accumulate(&item, y, w, 4), 3);
}

static void subnormals_are_flushed_where_asked(void **state)
{
    (void)state;
    struct nd_accumulator item = plain;
    item.sum = item.output = ND_SUM_F16;
    assert_f32_bits(sum_of(&item, 0x1p-15F, 0, 0), 0x1p-15F);
    assert_f32_bits(sum_of(&item, 0x1.8p-14F, -0x1p-14F, 1), 1);
    item.is_flushing_output = true;
    assert_f32_bits(sum_of(&item, 0x1p-15F, 0, 0), 0);
    assert_f32_bits(sum_of(&item, 0x1.8p-14F, -0x1p-14F, 0x1p-14F), 0x1.8p-14F);
    item.is_flushing_sums = true;
    assert_f32_bits(sum_of(&item, 0x1.8p-14F, -0x1p-14F, 0x1p-14F), 0x1p-14F);
    item.is_flushing_output = item.is_flushing_sums = false;
    item.is_flushing_inputs = true;
    assert_f32_bits(sum_of(&item, 0x1p-15F, 0x1p-15F, 0x1p-14F), 0x1p-14F);
    const float x[] = {0x1p-15F}, w[] = {0x1p10F};
    assert_f32_bits(accumulate(&item, x, w, 1), 0);
    item.is_flushing_inputs = false;
    assert_f32_bits(accumulate(&item, x, w, 1), 0x1p-5F);
}

static void overflow_is_infinite_or_clamped(void **state)
{
    (void)state;
    struct nd_accumulator item = plain;
    item.sum = item.output = ND_SUM_F16;
    assert_f32_bits(sum_of(&item, 0x1p15F, 0x1p15F, -0x1p15F), INFINITY);
    assert_f32_bits(sum_of(&item, 65504, 15, 0), 65504);
    assert_f32_bits(sum_of(&item, 65504, 16, 0), INFINITY); /* 65520, a tie */
    assert_f32_bits(sum_of(&item, -65504, -65504, 65504), -INFINITY);
    item.overflow = ND_SUM_TO_LARGEST;
    assert_f32_bits(sum_of(&item, 0x1p15F, 0x1p15F, -0x1p15F), 32736);
    item.overflow = ND_SUM_TO_INFINITY;
    item.rounding = ND_ROUND_TO_ZERO;
    assert_f32_bits(sum_of(&item, 0x1p15F, 0x1p15F, -0x1p15F), 32736);
    item.rounding = ND_ROUND_HALF_EVEN;
    item.sum = ND_SUM_F32;
    assert_f32_bits(sum_of(&item, 0x1p15F, 0x1p15F, -0x1p15F), 0x1p15F);
    item.order = (struct nd_sum_order){ND_SUM_PAIRWISE, 0};
    item.sum = ND_SUM_F16;
    const float x[] = {65504, 65504, -65504, -65504}, w[] = {1, 1, 1, 1};
    assert_true(isnan(accumulate(&item, x, w, 4)));
}

static void what_is_no_half_is_refused(void **state)
{
    (void)state;
    int64_t factor;
    const float good[] = {0, -0.0F, 0x1p-24F, 65504, -65504, 0x1.ff8p-15F, 1.0009765625F};
    const float bad[] = {0x1p-25F, 65505, 65536, INFINITY, NAN, 1.00048828125F, 0x1.8p-24F, 1e30F};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(nd_accumulator_factors(&good[i], 1, &factor));
        assert_f32_bits((float)factor * 0x1p-24F, good[i] + 0.0F);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(nd_accumulator_factors(&bad[i], 1, &factor));
}

static void orders_are_the_trees_they_say(void **state)
{
    (void)state;
    static const struct {
        struct nd_sum_order order;
        const char *name, *tree;
        size_t n;
    } cases[] = {
        {{ND_SUM_SEQUENTIAL, 0}, "sequential", "(((0 1) 2) 3)", 4},
        {{ND_SUM_REVERSED, 0}, "reversed", "(((3 2) 1) 0)", 4},
        {{ND_SUM_PAIRWISE, 0}, "pairwise", "((0 1) (2 3))", 4},
        {{ND_SUM_PAIRWISE, 0}, "pairwise", "(((0 1) (2 3)) 4)", 5},
        {{ND_SUM_HALVING, 0}, "halving", "((0 2) (1 3))", 4},
        {{ND_SUM_LANES, 2}, "lanes:2", "(((0 2) 4) ((1 3) 5))", 6},
        {{ND_SUM_BLOCKS, 2}, "blocks:2", "(((0 1) (2 3)) 4)", 5},
        {{ND_SUM_BLOCKS, 3}, "blocks:3", "(((0 1) 2) ((3 4) 5))", 6},
        {{ND_SUM_TREES, 4}, "trees:4", "(((0 1) (2 3)) ((4 5) (6 7)))", 8},
        {{ND_SUM_FUSED, 4}, "fused:4", "((0 1 2 3) 4 5 6 7)", 8},
        {{ND_SUM_FUSED, 4}, "fused:4", "((0 1 2 3) 4)", 5},
        {{ND_SUM_FUSED, 32}, "fused:32", "(0 1 2)", 3},
        {{ND_SUM_SEQUENTIAL, 0}, "sequential", "(0)", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nd_sum_tree tree;
        char text[256], name[ND_SUM_ORDER_NAME_BYTES];
        assert_string_equal(nd_sum_order_name(&cases[i].order, name), cases[i].name);
        nd_sum_tree_of(&cases[i].order, cases[i].n, &tree);
        nd_sum_tree_format(&tree, text, sizeof text);
        assert_string_equal(text, cases[i].tree);
    }
}

/* A random tree of n terms: random ones of the slots that are left are added until one is. */
static void random_tree(uint64_t *seed, size_t n, struct nd_sum_tree *tree)
{
    uint16_t left[ND_SUM_MAX_TERMS];
    *tree = (struct nd_sum_tree){.n_terms = n};
    for (size_t i = 0; i < n; i++)
        left[i] = (uint16_t)i;
    while (n > 1) {
        size_t n_children = 2 + next_random(seed) % 3, first = tree->first[tree->n_nodes];
        n_children = n_children < n ? n_children : n;
        for (size_t c = 0; c < n_children; c++) {
            size_t at = next_random(seed) % n;
            tree->children[first + c] = left[at];
            left[at] = left[--n];
        }
        left[n++] = (uint16_t)(tree->n_terms + tree->n_nodes);
        tree->first[++tree->n_nodes] = (uint16_t)(first + n_children);
    }
}

static void trees_come_back_from_their_joins(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int trial = 0; trial < 3000; trial++) {
        struct nd_sum_tree tree, back;
        uint8_t l[ND_SUM_MAX_TERMS * ND_SUM_MAX_TERMS];
        size_t n = 2 + next_random(&seed) % (ND_SUM_MAX_TERMS - 1);
        random_tree(&seed, n, &tree);
        nd_sum_tree_joins(&tree, l);
        assert_true(nd_sum_tree_from_joins(l, n, &back));
        assert_true(nd_sum_tree_equal(&tree, &back));
        /* One wrong number is no tree, or another one. */
        size_t i = next_random(&seed) % n, j = (i + 1 + next_random(&seed) % (n - 1)) % n;
        l[i * n + j] = (uint8_t)(l[i * n + j] == 2 ? 3 : l[i * n + j] - 1);
        assert_false(nd_sum_tree_from_joins(l, n, &back));
        /* Rubbish does not hang. */
        for (size_t k = 0; k < n * n; k++)
            l[k] = (uint8_t)(next_random(&seed) % (n + 2));
        (void)nd_sum_tree_from_joins(l, n, &back);
    }
}

static void names_tell_all(void **state)
{
    (void)state;
    char name[ND_ACCUMULATOR_NAME_BYTES];
    struct nd_accumulator item = {
        .sum = ND_SUM_F32, .extra_bits = -1, .order = {ND_SUM_FUSED, 32}, .output = ND_SUM_F16};
    assert_string_equal(nd_accumulator_name(&item, name), "sum=f32:half-even order=fused:32");
    item.extra_bits = 2;
    item.product = ND_SUM_BF16;
    item.is_flushing_inputs = item.is_flushing_output = true;
    item.overflow = ND_SUM_TO_LARGEST;
    item.output_rounding = ND_ROUND_TO_ZERO;
    assert_string_equal(nd_accumulator_name(&item, name),
                        "sum=f32:half-even aligned+2 order=fused:32 product=bf16 flush=inputs+output "
                        "overflow=largest output=f16:to-zero");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_sums_are_those_of_the_host),
        cmocka_unit_test(f16_sums_round_after_each_addition),
        cmocka_unit_test(first_products_are_rounded_from_zero),
        cmocka_unit_test(roundings_and_widths_by_hand),
        cmocka_unit_test(aligned_adders_cut_before_they_add),
        cmocka_unit_test(subnormals_are_flushed_where_asked),
        cmocka_unit_test(overflow_is_infinite_or_clamped),
        cmocka_unit_test(what_is_no_half_is_refused),
        cmocka_unit_test(orders_are_the_trees_they_say),
        cmocka_unit_test(trees_come_back_from_their_joins),
        cmocka_unit_test(names_tell_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
