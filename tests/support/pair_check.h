/* Pairs of tensors in memory for tests of what is computed from them: every element type, seeded random
 * elements with special values among them, and what an element is worth, worked out here from its bits and not
 * by the library. Include after support/main.h. */
#ifndef ND_TESTS_PAIR_CHECK_H
#define ND_TESTS_PAIR_CHECK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/metrics/layout.h"
#include "compare/metrics/states.h"
#include "core/memory.h"

static const enum nd_dtype all_dtypes[] = {
    ND_DTYPE_U8,  ND_DTYPE_I8,  ND_DTYPE_U16, ND_DTYPE_I16,  ND_DTYPE_U32,    ND_DTYPE_I32,
    ND_DTYPE_U64, ND_DTYPE_I64, ND_DTYPE_U4,  ND_DTYPE_I4,   ND_DTYPE_BOOL,   ND_DTYPE_F8E4M3FN,
    ND_DTYPE_F16, ND_DTYPE_F32, ND_DTYPE_F64, ND_DTYPE_BF16, ND_DTYPE_F8E5M2,
};
enum { N_DTYPES = sizeof all_dtypes / sizeof all_dtypes[0] };

/* ND_SEED replays a run. */
static inline uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20240607;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static inline uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline size_t below(uint64_t *seed, size_t n)
{
    return (size_t)(next_random(seed) % n);
}

/* Elements as their bits. */

static inline int n_bits_of(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_BOOL                         ? 1
           : dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4 ? 4
                                                          : 8 * (int)nd_dtype_size_bytes(dtype);
}

/* The lowest n_bits_of(dtype) bits are stored as the type wants them: an int4 is sign extended. */
static inline void put_bits(void *elems, enum nd_dtype dtype, size_t i, uint64_t bits)
{
    size_t size = nd_dtype_size_bytes(dtype);
    int n_bits = n_bits_of(dtype);
    if (n_bits < 64)
        bits &= ((uint64_t)1 << n_bits) - 1;
    if (dtype == ND_DTYPE_I4 && bits > 7)
        bits |= 0xf0;
    memcpy((char *)elems + i * size, &bits, size);
}

static inline uint64_t get_bits(const void *elems, enum nd_dtype dtype, size_t i)
{
    uint64_t bits = 0;
    size_t size = nd_dtype_size_bytes(dtype);
    memcpy(&bits, (const char *)elems + i * size, size);
    return dtype == ND_DTYPE_I4 ? bits & 15 : bits;
}

/* Exponent and fraction bits of a float type. */
static inline void float_widths(enum nd_dtype dtype, int *exponent, int *fraction)
{
    const struct nd_float_format *format = nd_float_format(dtype);
    *exponent = format->exponent_bits;
    *fraction = format->fraction_bits;
}

/* What the bits mean: exact but for 64-bit integers, where it is rounded to long double. */
static inline long double value_of(enum nd_dtype dtype, uint64_t bits)
{
    int n_bits = n_bits_of(dtype);
    if (!nd_dtype_is_float(dtype)) {
        bool is_negative = nd_dtype_is_signed_integer(dtype) && (bits >> (n_bits - 1) & 1);
        return (long double)bits - (is_negative ? ldexpl(1, n_bits) : 0);
    }
    int e, f;
    float_widths(dtype, &e, &f);
    uint64_t fraction = bits & (((uint64_t)1 << f) - 1);
    int exponent = (int)(bits >> f & (((uint64_t)1 << e) - 1)), top = (1 << e) - 1;
    long double sign = bits >> (e + f) & 1 ? -1 : 1;
    if (dtype == ND_DTYPE_F8E4M3FN) {
        if ((bits & 0x7f) == 0x7f)
            return NAN;
    } else if (exponent == top) {
        return fraction != 0 ? (long double)NAN : sign * INFINITY;
    }
    long double whole = (long double)fraction + (exponent > 0 ? ldexpl(1, f) : 0);
    return sign * ldexpl(whole, (exponent > 0 ? exponent : 1) - top / 2 - f);
}

/* Floats in order: neighbours differ by 1, both zeros are 0. */
static inline __int128 ordered_of(enum nd_dtype dtype, uint64_t bits)
{
    int n_bits = n_bits_of(dtype);
    __int128 magnitude = (__int128)(bits & (((uint64_t)1 << (n_bits - 1)) - 1));
    return bits >> (n_bits - 1) & 1 ? -magnitude : magnitude;
}

/* |test - ref| in steps or ULPs. */
static inline uint64_t distance_of(enum nd_dtype dtype, uint64_t ref, uint64_t test)
{
    __int128 d;
    if (nd_dtype_is_float(dtype))
        d = ordered_of(dtype, test) - ordered_of(dtype, ref);
    else
        d = (__int128)value_of(dtype, test) - (__int128)value_of(dtype, ref);
    return (uint64_t)(d < 0 ? -d : d);
}

/* A random element; of floats every eighth or so is special. */
static inline uint64_t random_bits(enum nd_dtype dtype, uint64_t *seed)
{
    uint64_t bits = next_random(seed);
    int n_bits = n_bits_of(dtype), e, f;
    if (nd_dtype_is_float(dtype) && below(seed, 8) == 0) {
        float_widths(dtype, &e, &f);
        uint64_t sign = (bits & 1) << (e + f), exponents = (((uint64_t)1 << e) - 1) << f;
        const uint64_t specials[] = {0,
                                     1,
                                     ((uint64_t)1 << f) - 1,
                                     (uint64_t)1 << f,
                                     exponents - 1,
                                     exponents,
                                     exponents | 1,
                                     exponents | (uint64_t)1 << (f - 1)};
        bits = specials[below(seed, 8)] | sign;
    } else if (nd_dtype_is_float(dtype) && below(seed, 4) != 0 && n_bits > 8) {
        float_widths(dtype, &e, &f); /* of moderate size */
        uint64_t exponent = (((uint64_t)1 << (e - 1)) - 4 + below(seed, 8)) << f;
        bits = (bits & ~((((uint64_t)1 << e) - 1) << f)) | exponent;
    }
    return n_bits < 64 ? bits & (((uint64_t)1 << n_bits) - 1) : bits;
}

static inline void fill_random(void *elems, enum nd_dtype dtype, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        put_bits(elems, dtype, i, random_bits(dtype, seed));
}

/* Some elements of test become others, mostly near ones. */
static inline void perturb(const void *ref, void *test, enum nd_dtype dtype, size_t n, size_t one_in,
                           uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = get_bits(ref, dtype, i);
        if (below(seed, one_in) == 0)
            bits = below(seed, 4) == 0 ? random_bits(dtype, seed) : bits + below(seed, 9) - 4;
        put_bits(test, dtype, i, bits);
    }
}

static inline struct nd_tensor tensor_of(enum nd_dtype dtype, size_t n)
{
    return (struct nd_tensor){
        .name = (char *)(uintptr_t) "e", .dtype = dtype, .shape = {.rank = 1, .dims = {(int64_t)n}}};
}

/* Comparing. */

static inline struct nd_pair_context context_of(const struct nd_tensor *ref, const struct nd_tensor *test,
                                                const struct nd_compare_options *options)
{
    const struct nd_compare_options defaults = nd_compare_options_default();
    const struct nd_kernels *kernels;
    struct nd_pair_context context;
    assert_int_equal(nd_kernels_choose(NULL, &kernels, NULL), ND_OK);
    assert_int_equal(
        nd_pair_context_make(ref, test, options != NULL ? options : &defaults, kernels, &context, NULL), ND_OK);
    return context;
}

static inline struct nd_pair_context simple_context(enum nd_dtype dtype, size_t n)
{
    struct nd_tensor tensor = tensor_of(dtype, n); /* nothing of it is borrowed: it has no scale */
    return context_of(&tensor, &tensor, NULL);
}

static inline bool do_bytes_differ(const struct nd_pair_context *context, const void *ref, const void *test)
{
    return context->is_mixed || memcmp(ref, test, context->ref.sample_bytes) != 0;
}

enum { PAIR_PROBE = 3, PAIR_SAMPLE = 5 };

/* One sample. The caller frees .worst. */
static inline struct nd_difference compare_pair(const struct nd_pair_context *context, const void *ref,
                                                const void *test)
{
    struct nd_difference out;
    struct nd_pair_state *state = nd_pair_state_create(context, NULL);
    assert_non_null(state);
    assert_int_equal(nd_sample_compare(state, context, do_bytes_differ(context, ref, test), ref, test,
                                       PAIR_PROBE, PAIR_SAMPLE, NULL),
                     ND_OK);
    assert_int_equal(nd_pair_state_finish(state, context, &out, NULL), ND_OK);
    nd_pair_state_destroy(&state);
    return out;
}

static inline uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The same result to the bit. */

static inline void assert_same_stats(const struct nd_error_stats *a, const struct nd_error_stats *b)
{
    assert_f64_bits(a->max, b->max);
    assert_f64_bits(a->mean, b->mean);
    assert_f64_bits(a->median, b->median);
    assert_f64_bits(a->p99, b->p99);
}

static inline void assert_same_side(const struct nd_side *a, const struct nd_side *b)
{
    assert_int_equal(a->n_elems, b->n_elems);
    assert_int_equal(a->n_nan, b->n_nan);
    assert_int_equal(a->n_inf, b->n_inf);
    assert_int_equal(a->n_zero, b->n_zero);
    assert_int_equal(a->n_subnormal, b->n_subnormal);
    assert_int_equal(a->n_saturated, b->n_saturated);
    assert_int_equal(a->n_stuck_samples, b->n_stuck_samples);
    assert_f64_bits(a->min, b->min);
    assert_f64_bits(a->max, b->max);
}

static inline void assert_same_structure(const struct nd_structure *a, const struct nd_structure *b)
{
    assert_int_equal(a->pattern, b->pattern);
    assert_int_equal(a->first_index, b->first_index);
    assert_int_equal(a->last_index, b->last_index);
    assert_int_equal(a->stride, b->stride);
    assert_int_equal(a->n_runs, b->n_runs);
    assert_int_equal(a->longest_run, b->longest_run);
    assert_int_equal(a->axis, b->axis);
    for (size_t i = 0; i < ND_MAX_RANK; i++) {
        assert_int_equal(a->axes[i].is_known, b->axes[i].is_known);
        assert_int_equal(a->axes[i].n, b->axes[i].n);
        assert_int_equal(a->axes[i].first, b->axes[i].first);
        assert_int_equal(a->axes[i].last, b->axes[i].last);
        assert_int_equal(a->permutation[i], b->permutation[i]);
    }
}

static inline void assert_same_place(const struct nd_difference_place *a, const struct nd_difference_place *b)
{
    assert_int_equal(a->probe, b->probe);
    assert_int_equal(a->sample, b->sample);
    assert_int_equal(a->has_index, b->has_index);
    assert_int_equal(a->index, b->index);
    assert_memory_equal(a->coordinates, b->coordinates, sizeof a->coordinates);
}

static inline void assert_same_worst(const struct nd_difference *a, const struct nd_difference *b)
{
    assert_int_equal(a->n_worst, b->n_worst);
    for (size_t i = 0; i < a->n_worst; i++) {
        assert_same_place(&a->worst[i].place, &b->worst[i].place);
        assert_f64_bits(a->worst[i].abs_error, b->worst[i].abs_error);
        assert_f64_bits(a->worst[i].ref, b->worst[i].ref);
        assert_f64_bits(a->worst[i].test, b->worst[i].test);
        assert_f64_bits(a->worst[i].ref_real, b->worst[i].ref_real);
        assert_f64_bits(a->worst[i].test_real, b->worst[i].test_real);
    }
}

static inline void assert_same_signal(const struct nd_difference *a, const struct nd_difference *b)
{
    assert_same_stats(&a->abs, &b->abs);
    assert_same_stats(&a->rel, &b->rel);
    assert_f64_bits(a->rmse, b->rmse);
    assert_int_equal(a->n_rel_undefined, b->n_rel_undefined);
    assert_f64_bits(a->sqnr_db, b->sqnr_db);
    assert_f64_bits(a->cosine, b->cosine);
    assert_f64_bits(a->norm_ratio, b->norm_ratio);
    assert_f64_bits(a->pearson, b->pearson);
    assert_int_equal(a->has_gain, b->has_gain);
    assert_f64_bits(a->gain, b->gain);
    assert_f64_bits(a->offset, b->offset);
    assert_same_side(&a->ref_side, &b->ref_side);
    assert_same_side(&a->test_side, &b->test_side);
}

static inline void assert_same_tolerance(const struct nd_tolerance *a, const struct nd_tolerance *b)
{
    assert_int_equal(a->is_possible, b->is_possible);
    assert_int_equal(a->has_lsb, b->has_lsb);
    assert_int_equal(a->has_ulp, b->has_ulp);
    assert_true(a->lsb == b->lsb && a->ulp == b->ulp);
    assert_f64_bits(a->atol, b->atol);
    assert_f64_bits(a->rtol, b->rtol);
}

static inline void assert_same_distribution(const struct nd_distribution *a, const struct nd_distribution *b)
{
    assert_int_equal(a->exists, b->exists);
    assert_int_equal(a->is_softmax, b->is_softmax);
    assert_int_equal(a->n_samples, b->n_samples);
    assert_int_equal(a->n_infinite, b->n_infinite);
    assert_int_equal(a->n_invalid, b->n_invalid);
    assert_f64_bits(a->kl, b->kl);
    assert_int_equal(a->top_k, b->top_k);
    assert_f64_bits(a->topk_overlap, b->topk_overlap);
}

/* The counts that have no sign: they are the same when the sides are swapped. */
static inline void assert_same_counts(const struct nd_difference *a, const struct nd_difference *b)
{
    assert_int_equal(a->n_samples, b->n_samples);
    assert_int_equal(a->n_samples_differing, b->n_samples_differing);
    assert_int_equal(a->n_elems, b->n_elems);
    assert_int_equal(a->has_values, b->has_values);
    assert_int_equal(a->is_mixed, b->is_mixed);
    assert_int_equal(a->n_differing, b->n_differing);
    assert_f64_bits(a->share, b->share);
    assert_int_equal(a->is_integer, b->is_integer);
    assert_true(a->max_lsb == b->max_lsb && a->max_ulp == b->max_ulp && a->max_ulp_in == b->max_ulp_in);
    assert_int_equal(a->has_ulp_in, b->has_ulp_in);
    assert_f64_bits(a->mean_lsb, b->mean_lsb);
    assert_int_equal(a->n_nan_mismatch, b->n_nan_mismatch);
    assert_int_equal(a->n_nan_payload, b->n_nan_payload);
    assert_int_equal(a->n_inf_mismatch, b->n_inf_mismatch);
    assert_int_equal(a->n_zero_sign, b->n_zero_sign);
    assert_int_equal(a->n_saturation_mismatch, b->n_saturation_mismatch);
    assert_int_equal(a->has_first, b->has_first);
    assert_same_place(&a->first, &b->first);
}

static inline void assert_same_difference(const struct nd_difference *a, const struct nd_difference *b)
{
    assert_same_counts(a, b);
    assert_int_equal(a->n_failing, b->n_failing);
    for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
        assert_int_equal(a->lsb_histogram[i], b->lsb_histogram[i]);
    assert_memory_equal(a->lsb_tail, b->lsb_tail, sizeof a->lsb_tail);
    assert_f64_bits(a->signed_mean_lsb, b->signed_mean_lsb);
    assert_f64_bits(a->signed_mean, b->signed_mean);
    assert_true(a->n_above == b->n_above && a->n_below == b->n_below);
    assert_same_signal(a, b);
    assert_same_structure(&a->structure, &b->structure);
    assert_same_tolerance(&a->tolerance, &b->tolerance);
    assert_same_distribution(&a->distribution, &b->distribution);
    assert_same_worst(a, b);
}

#endif
