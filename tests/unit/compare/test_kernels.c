/* The kernels of every instruction set that this processor has, against their definition. */
#include "support/main.h"

#include <stdlib.h>

#include "compare/metrics/kernels/kernels.h"
#include "support/kernel_check.h"

/* ND_SEED replays a run. */
static uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20250711;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void check_kinds(enum nd_elem_kind first, enum nd_elem_kind last)
{
    const struct nd_kernels *const *kernels;
    size_t n = nd_kernels_available(&kernels);
    uint64_t seed = random_seed();
    for (size_t i = 0; i < n; i++) {
        print_message("# %s\n", kernels[i]->name);
        for (enum nd_elem_kind kind = first; kind <= last; kind++)
            assert_true(check_elements(kernels[i], kind, seed));
    }
}

static void integers_match_their_definition(void **state)
{
    (void)state;
    check_kinds(ND_ELEM_U8, ND_ELEM_I64);
}

static void floats_match_their_definition(void **state)
{
    (void)state;
    check_kinds(ND_ELEM_F8E4M3FN, ND_ELEM_F64);
}

static void sums_match_their_definition(void **state)
{
    (void)state;
    const struct nd_kernels *const *kernels;
    size_t n = nd_kernels_available(&kernels);
    uint64_t seed = random_seed();
    for (size_t i = 0; i < n; i++)
        assert_true(check_sums(kernels[i], seed) && check_self_elems(kernels[i], seed));
}

static void steps_are_sign_exponent_and_first_bit(void **state)
{
    (void)state;
    static const double d[] = {0, 1, -1, 2, 3, -3, 4, 6, 7, -1024, 65535, -0x1p31};
    static const uint8_t wanted[] = {ND_NO_STEP, 0, 128, 2, 3, 131, 4, 5, 5, 148, 31, 190};
    enum { N = sizeof d / sizeof d[0] };
    const struct nd_kernels *const *kernels;
    size_t n = nd_kernels_available(&kernels);
    for (size_t i = 0; i < n; i++)
        for (size_t from = 0; from < N; from++) {
            double ref[N], test[N];
            uint8_t steps[N];
            for (size_t k = 0; k < N; k++) {
                ref[k] = (double)(k * 100);
                test[k] = ref[k] + d[(from + k) % N];
            }
            kernels[i]->steps(ref, test, N, steps);
            for (size_t k = 0; k < N; k++)
                assert_int_equal(steps[k], wanted[(from + k) % N]);
        }
}

/* Of all lengths: differences from 1 to 2^15 - 1 on both sides. */
static void steps_from_a_limit_are_counted(void **state)
{
    (void)state;
    static const enum nd_elem_kind kinds[] = {ND_ELEM_U8, ND_ELEM_I8, ND_ELEM_U16, ND_ELEM_I16};
    const struct nd_kernels *const *kernels;
    size_t n_kernels = nd_kernels_available(&kernels);
    uint64_t seed = random_seed();
    for (size_t k = 0; k < n_kernels; k++)
        for (size_t n = 0; n <= ND_BLOCK; n = next_length(n))
            for (size_t t = 0; t < sizeof kinds / sizeof kinds[0]; t++) {
                bool is_byte = kind_infos[kinds[t]].bytes == 1, is_signed = kind_infos[kinds[t]].is_signed;
                int span = is_byte ? 256 : 32768, least = is_signed ? -span / 2 : 0;
                uint16_t limit = (uint16_t)(1 + check_random(&seed) % (uint64_t)(span - 1));
                uint32_t above = 0, below = 0, wanted_above = 0, wanted_below = 0;
                unsigned char ref[2 * ND_BLOCK], test[2 * ND_BLOCK];
                for (size_t i = 0; i < n; i++) {
                    int r = least + (int)(check_random(&seed) % (uint64_t)span),
                        x = least + (int)(check_random(&seed) % (uint64_t)span);
                    put_element(&kind_infos[kinds[t]], ref, i, (uint64_t)(int64_t)r);
                    put_element(&kind_infos[kinds[t]], test, i, (uint64_t)(int64_t)x);
                    wanted_above += x - r >= limit;
                    wanted_below += r - x >= limit;
                }
                kernels[k]->steps_from[kinds[t]](ref, test, n, limit, &above, &below);
                assert_int_equal(above, wanted_above);
                assert_int_equal(below, wanted_below);
            }
}

/* Pieces of a sum have few bits: the largest sums fit. */
static void sums_of_extremes_are_whole(void **state)
{
    (void)state;
    const struct nd_kernels *const *kernels;
    size_t n = nd_kernels_available(&kernels);
    static const uint16_t qvalues[] = {0, 127, 128, 255, 32767, 32768, 65535};
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < sizeof qvalues / sizeof qvalues[0]; b++)
            for (enum nd_elem_kind kind = ND_ELEM_U8; kind <= ND_ELEM_I16; kind++) {
                uint16_t block[ND_BLOCK];
                struct nd_self_sums sums;
                const double x[] = {(uint8_t)qvalues[b], (int8_t)qvalues[b], qvalues[b], (int16_t)qvalues[b]};
                for (size_t k = 0; k < ND_BLOCK; k++)
                    put_element(&kind_infos[kind], (unsigned char *)block, k, qvalues[b]);
                kernels[i]->self_elems[kind](block, ND_BLOCK, x[kind], 0x1p-1074, &sums);
                assert_f64_bits(sums.sum, 0);
                assert_f64_bits(sums.sum_squares, 0);
                assert_int_equal(sums.n_tiny, ND_BLOCK);
                kernels[i]->self_elems[kind](block, ND_BLOCK, 0, 0x1p-1074, &sums);
                assert_f64_bits(sums.sum, ND_BLOCK * x[kind]);
                assert_f64_bits(sums.sum_squares, ND_BLOCK * x[kind] * x[kind]);
            }
}

/* Of all lengths, with much that is equal. */
static void pairs_of_bytes_are_counted(void **state)
{
    (void)state;
    enum { QVALUES = 256 };
    const struct nd_kernels *const *kernels;
    size_t n_kernels = nd_kernels_available(&kernels);
    uint64_t seed = random_seed();
    static struct nd_joint_cell cells[QVALUES * QVALUES];
    static struct nd_error_values got;
    for (size_t i = 0; i < QVALUES * QVALUES; i++)
        cells[i].ratio = i % QVALUES == i / QVALUES ? 0 : 1 / (double)(i + 3);
    for (size_t k = 0; k < n_kernels; k++)
        for (size_t n = 0; n <= ND_BLOCK; n = next_length(n)) {
            uint8_t ref[ND_BLOCK], test[ND_BLOCK];
            double ratio[ND_BLOCK], max[2] = {0};
            static uint32_t wanted[QVALUES * QVALUES];
            memset(wanted, 0, sizeof wanted);
            for (size_t i = 0; i < n; i++) {
                ref[i] = (uint8_t)(check_random(&seed) >> 40);
                test[i] =
                    n % 3 == 0 ? (uint8_t)(ref[i] + check_random(&seed) % 2) : (uint8_t)check_random(&seed);
                ratio[i] = cells[ref[i] * QVALUES + test[i]].ratio;
                wanted[ref[i] * QVALUES + test[i]]++;
                max[0] = fmax(max[0], abs(ref[i] - test[i]));
                max[1] = fmax(max[1], abs((int8_t)ref[i] - (int8_t)test[i]));
            }
            for (size_t i = 0; i < QVALUES * QVALUES; i++)
                cells[i].n[0] = cells[i].n[1] = 0;
            kernels[k]->join(ref, test, n, n % 2 == 1, cells, &got);
            assert_f64_bits(got.sum_relative, lane_sum(ratio, NULL, n));
            assert_f64_bits(got.max_absolute, max[n % 2]);
            for (size_t i = 0; i < QVALUES * QVALUES; i++)
                if (i % QVALUES != i / QVALUES)
                    assert_true(cells[i].n[0] + cells[i].n[1] == wanted[i]);
        }
}

/* Values that anyone can look up: they hold the reference itself. */
static void values_of_small_floats_are_those_of_their_papers(void **state)
{
    (void)state;
    static const struct {
        enum nd_elem_kind kind;
        uint64_t bits;
        double value;
    } rows[] = {
        {ND_ELEM_F8E4M3FN, 0x7e, 448},      {ND_ELEM_F8E4M3FN, 0x08, 0x1p-6},
        {ND_ELEM_F8E4M3FN, 0x01, 0x1p-9},   {ND_ELEM_F8E4M3FN, 0x38, 1},
        {ND_ELEM_F8E4M3FN, 0xb8, -1},       {ND_ELEM_F8E4M3FN, 0x80, -0.0},
        {ND_ELEM_F8E5M2, 0x7b, 57344},      {ND_ELEM_F8E5M2, 0x04, 0x1p-14},
        {ND_ELEM_F8E5M2, 0x01, 0x1p-16},    {ND_ELEM_F8E5M2, 0xfc, -(double)INFINITY},
        {ND_ELEM_F16, 0x7bff, 65504},       {ND_ELEM_F16, 0x0001, 0x1p-24},
        {ND_ELEM_F16, 0x0400, 0x1p-14},     {ND_ELEM_F16, 0x3555, 0x1.554p-2},
        {ND_ELEM_F16, 0x8000, -0.0},        {ND_ELEM_BF16, 0x3f80, 1},
        {ND_ELEM_BF16, 0x7f7f, 0x1.fep127}, {ND_ELEM_BF16, 0x0001, 0x1p-133},
    };
    const struct nd_kernels *const *kernels;
    size_t n = nd_kernels_available(&kernels);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            double value;
            kernels[k]->load[rows[i].kind](&rows[i].bits, 1, 0, &value);
            assert_f64_bits(value, rows[i].value);
        }
    double nan;
    kernels[0]->load[ND_ELEM_F8E4M3FN]("\x7f", 1, 0, &nan);
    assert_true(isnan(nan));
    kernels[0]->load[ND_ELEM_F8E4M3FN]("\xff", 1, 0, &nan);
    assert_true(isnan(nan));
}

static void mask_finds_one_bit_at_its_place(void **state)
{
    (void)state;
    static unsigned char ref[8 * ND_BLOCK], test[8 * ND_BLOCK];
    const struct nd_kernels *const *kernels;
    size_t n_kernels = nd_kernels_available(&kernels);
    uint8_t mask[ND_BLOCK];
    for (size_t k = 0; k < n_kernels; k++)
        for (size_t log2_bytes = 0; log2_bytes < 4; log2_bytes++)
            for (size_t bit = 0; bit < (size_t)8 * ND_BLOCK << log2_bytes; bit++) {
                test[bit / 8] ^= (unsigned char)(1u << bit % 8);
                size_t found = kernels[k]->mask[log2_bytes](ref, test, ND_BLOCK, mask);
                assert_int_equal(found, 1);
                assert_int_equal(mask[bit / 8 >> log2_bytes], 1);
                test[bit / 8] ^= (unsigned char)(1u << bit % 8);
            }
}

static void bits_are_those_of_the_mask(void **state)
{
    (void)state;
    const struct nd_kernels *const *kernels;
    size_t n_kernels = nd_kernels_available(&kernels);
    uint8_t mask[ND_BLOCK];
    for (size_t i = 0; i < ND_BLOCK; i++)
        mask[i] = i * i % 7 < 3;
    for (size_t k = 0; k < n_kernels; k++)
        for (size_t n = 0; n <= ND_BLOCK; n++) {
            uint64_t bits[ND_BLOCK / 64];
            memset(bits, 0xff, sizeof bits);
            kernels[k]->bits(mask, n, bits);
            for (size_t i = 0; i < ND_BLOCK; i++)
                assert_int_equal(bits[i / 64] >> i % 64 & 1, i < n ? mask[i] : 0);
        }
}

static const struct nd_kernels *chosen(const char *cap)
{
    const struct nd_kernels *kernels = NULL;
    assert_int_equal(nd_kernels_choose(cap, &kernels, NULL), ND_OK);
    return kernels;
}

static void choice_is_the_best_below_the_cap(void **state)
{
    (void)state;
    const struct nd_kernels *const *kernels;
    size_t n = nd_kernels_available(&kernels);
    assert_true(n >= 1);
    assert_string_equal(kernels[0]->name, "scalar");
    assert_ptr_equal(chosen(NULL), kernels[n - 1]);
    assert_ptr_equal(chosen(""), kernels[n - 1]);
    for (size_t i = 0; i < n; i++)
        assert_ptr_equal(chosen(kernels[i]->name), kernels[i]);
    if (n < 3)
        assert_ptr_equal(chosen("avx512"), kernels[n - 1]);
    assert_non_null(chosen("neon"));
    assert_non_null(chosen("avx2"));
}

static void choice_of_an_unknown_name_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"sse", "AVX2", "avx2 ", "avx", "scalar,avx2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct nd_kernels *kernels = NULL;
        struct nd_error err;
        assert_int_equal(nd_kernels_choose(names[i], &kernels, &err), ND_ERR_USAGE);
        assert_null(kernels);
        assert_int_equal(err.id, 117);
    }
}

static void kinds_have_the_size_of_their_type(void **state)
{
    (void)state;
    size_t n_known = 0;
    for (int dtype = 0; dtype < 64; dtype++) {
        size_t bytes = nd_dtype_size_bytes((enum nd_dtype)dtype);
        if (bytes == 0)
            continue;
        n_known++;
        const struct kind_info *kind = &kind_infos[nd_elem_kind_of((enum nd_dtype)dtype)];
        assert_int_equal(kind->bytes, bytes);
        assert_int_equal(kind_is_float(kind), nd_dtype_is_float((enum nd_dtype)dtype));
        if (nd_dtype_is_integer((enum nd_dtype)dtype))
            assert_int_equal(kind->is_signed, nd_dtype_is_signed_integer((enum nd_dtype)dtype));
    }
    assert_int_equal(n_known, 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_match_their_definition),
        cmocka_unit_test(floats_match_their_definition),
        cmocka_unit_test(sums_match_their_definition),
        cmocka_unit_test(steps_from_a_limit_are_counted),
        cmocka_unit_test(sums_of_extremes_are_whole),
        cmocka_unit_test(pairs_of_bytes_are_counted),
        cmocka_unit_test(steps_are_sign_exponent_and_first_bit),
        cmocka_unit_test(values_of_small_floats_are_those_of_their_papers),
        cmocka_unit_test(mask_finds_one_bit_at_its_place),
        cmocka_unit_test(bits_are_those_of_the_mask),
        cmocka_unit_test(choice_is_the_best_below_the_cap),
        cmocka_unit_test(choice_of_an_unknown_name_is_refused),
        cmocka_unit_test(kinds_have_the_size_of_their_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
