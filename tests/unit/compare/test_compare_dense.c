/* What the kernels and the metrics find in pairs of which nothing, little, half or everything differs, against
 * plain loops over the elements: every statistic to the bit, for every type, at odd sizes, in one state and in
 * several that are merged, with and without counting pairs of quantised values, with every set of kernels. The
 * order of sums is that of docs/reference/metrics.md#sums. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/metrics/kernels/exact_sum.h"
#include "compare/metrics/kernels/log_histogram.h"
#include "compare/metrics/layout.h"
#include "compare/metrics/states.h"

enum { N_SAMPLES = 3, MAX_ELEMS = 5000 };

static uint64_t state_of_random;

static uint64_t next_random(void)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (state_of_random ^ state_of_random >> 33) * 0x9e3779b97f4a7c15u >> 7;
}

static const enum nd_dtype dtypes[] = {ND_DTYPE_U8,  ND_DTYPE_I8,  ND_DTYPE_U16,   ND_DTYPE_I16, ND_DTYPE_U32,
                                       ND_DTYPE_I32, ND_DTYPE_U64, ND_DTYPE_I64,   ND_DTYPE_F16, ND_DTYPE_BF16,
                                       ND_DTYPE_F32, ND_DTYPE_F64, ND_DTYPE_F8E5M2};

struct pair {
    size_t n, elem_bytes;
    enum nd_dtype dtype;
    struct nd_pair_context context;
    unsigned char ref[N_SAMPLES][MAX_ELEMS * 8], test[N_SAMPLES][MAX_ELEMS * 8];
};

/* Few exponents, many zeros, and now and then any bits at all. */
static uint64_t random_bits(const struct pair *pair, bool is_wild)
{
    uint64_t bits = next_random() ^ next_random() << 32;
    const struct nd_float_format *format = nd_float_format(pair->dtype);
    if (is_wild && bits % 64 == 0)
        return next_random() ^ next_random() << 32;
    if (bits % 7 == 0)
        return 0;
    if (format == NULL)
        return bits >> (8 * (8 - pair->elem_bytes)) >> (pair->elem_bytes > 1 ? next_random() % 7 : 0);
    uint64_t one = (((uint64_t)1 << (format->exponent_bits - 1)) - 1) << format->fraction_bits;
    uint64_t fraction = bits >> 8 & (((uint64_t)1 << (format->fraction_bits + 2)) - 1);
    return (one ^ fraction) | (bits & 1) << (8 * pair->elem_bytes - 1);
}

static void fill(struct pair *pair, double density, bool is_wild)
{
    for (size_t s = 0; s < N_SAMPLES; s++)
        for (size_t i = 0; i < pair->n; i++) {
            uint64_t r = random_bits(pair, is_wild), t = r;
            if ((double)(next_random() % 1000000) < density * 1e6)
                t = next_random() % 8 == 0 ? random_bits(pair, is_wild) : r + next_random() % 15 - 7;
            memcpy(pair->ref[s] + i * pair->elem_bytes, &r, pair->elem_bytes);
            memcpy(pair->test[s] + i * pair->elem_bytes, &t, pair->elem_bytes);
        }
}

/* The plain way. */
struct plain {
    uint64_t n_elems, n_differing, n_absolute, n_relative, n_undefined, n_above, n_below, n_failing;
    uint64_t histogram[ND_LSB_BUCKETS], tail[2][ND_LSB_TAIL], max_steps, max_ulp, n_zero_sign, n_saturation;
    uint64_t n_nan_mismatch, n_nan_payload, n_inf_mismatch, n_nan_equal, n_runs, longest_run;
    double max_absolute, max_relative;
    struct nd_exact_sum steps, signed_steps, absolute, squares, relative, rises;
    struct nd_log_histogram absolutes, relatives;
};

struct lanes {
    double lane[ND_LANES];
};

static double combine(struct lanes *lanes)
{
    for (int width = ND_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lanes->lane[i] = lanes->lane[2 * i] + lanes->lane[2 * i + 1];
    return lanes->lane[0];
}

struct block_sums {
    struct lanes absolute, squares, relative, rises;
};

static void count_steps(const struct pair *pair, struct plain *plain, const unsigned char *r,
                        const unsigned char *t)
{
    bool is_above = nd_layout_is_less(&pair->context.ref, r, t, 0);
    uint64_t a = 0, b = 0, distance,
             mask = pair->elem_bytes < 8 ? ((uint64_t)1 << 8 * pair->elem_bytes) - 1 : UINT64_MAX;
    memcpy(&a, r, pair->elem_bytes);
    memcpy(&b, t, pair->elem_bytes);
    distance = (is_above ? b - a : a - b) & mask;
    plain->max_steps = distance > plain->max_steps ? distance : plain->max_steps;
    int bucket = distance > 3 ? 4 : (int)distance;
    plain->histogram[is_above ? 4 + bucket : 4 - bucket]++;
    for (size_t k = 0; k < ND_LSB_TAIL; k++)
        plain->tail[is_above][k] +=
            distance >> (k + 2) == 1 || (k == ND_LSB_TAIL - 1 && distance >> (k + 2) > 1);
    nd_exact_add(&plain->steps, (double)(distance >> 32) * 0x1p32);
    nd_exact_add(&plain->steps, (double)(distance & UINT32_MAX));
    nd_exact_add(&plain->signed_steps, (is_above ? 1 : -1) * (double)(distance >> 32) * 0x1p32);
    nd_exact_add(&plain->signed_steps, (is_above ? 1 : -1) * (double)(distance & UINT32_MAX));
}

static void add_errors(const struct pair *pair, struct plain *plain, struct block_sums *sums, size_t lane,
                       double r, double t)
{
    const struct nd_layout *layout = &pair->context.ref;
    double d = t - r, absolute = fabs(d), low = layout->low - layout->zero, high = layout->high - layout->zero;
    plain->n_absolute++;
    plain->n_above += d > 0;
    plain->n_below += d < 0;
    plain->n_zero_sign += layout->is_float && r == 0 && t == 0;
    plain->n_saturation += (r == low || r == high) != (t == low || t == high);
    plain->max_absolute = fmax(plain->max_absolute, absolute);
    sums->absolute.lane[lane] += absolute;
    sums->squares.lane[lane] += d * d;
    sums->rises.lane[lane] += d;
    nd_log_histogram_add(&plain->absolutes, absolute);
    plain->n_failing += fabs(layout->unit) * absolute > 0.5 + 0.25 * fabs(layout->unit * r);
    if (r == 0 && absolute > 0) {
        plain->n_undefined++;
        return;
    }
    double relative = r == 0 ? 0 : absolute / fabs(r);
    plain->n_relative++;
    plain->max_relative = fmax(plain->max_relative, relative);
    sums->relative.lane[lane] += relative;
    nd_log_histogram_add(&plain->relatives, relative);
}

static void add_element(const struct pair *pair, struct plain *plain, struct block_sums *sums, size_t s,
                        size_t i)
{
    const unsigned char *r = pair->ref[s] + i * pair->elem_bytes, *t = pair->test[s] + i * pair->elem_bytes;
    double zero = pair->context.ref.zero, x = nd_layout_stored(&pair->context.ref, r) - zero,
           y = nd_layout_stored(&pair->context.ref, t) - zero;
    bool differs = memcmp(r, t, pair->elem_bytes) != 0;
    plain->n_nan_equal += !differs && isnan(x);
    if (!differs)
        return;
    plain->n_differing++;
    if (!pair->context.ref.is_float)
        count_steps(pair, plain, r, t);
    if (isfinite(x) && isfinite(y)) {
        add_errors(pair, plain, sums, i % ND_BLOCK % ND_LANES, x, y);
        if (pair->context.ref.is_float) {
            uint64_t ulp = nd_float_distance_in(pair->context.ulp_format, x, y);
            plain->max_ulp = ulp > plain->max_ulp ? ulp : plain->max_ulp;
        }
        return;
    }
    plain->n_nan_mismatch += isnan(x) != isnan(y);
    plain->n_nan_payload += isnan(x) && isnan(y);
    plain->n_inf_mismatch += !isnan(x) && !isnan(y);
    plain->n_failing += !isnan(x) || !isnan(y);
}

static void add_sample(const struct pair *pair, struct plain *plain, size_t s)
{
    uint64_t run = 0;
    plain->n_elems += pair->n;
    for (size_t first = 0; first < pair->n; first += ND_BLOCK, run = 0) {
        size_t before = plain->n_differing, end = first + ND_BLOCK < pair->n ? first + ND_BLOCK : pair->n;
        struct block_sums sums = {0};
        for (size_t i = first; i < end; i++) {
            uint64_t n_differing = plain->n_differing;
            add_element(pair, plain, &sums, s, i);
            run = plain->n_differing > n_differing ? run + 1 : 0;
            plain->n_runs += run == 1;
            plain->longest_run = run > plain->longest_run ? run : plain->longest_run;
        }
        if (plain->n_differing == before)
            continue;
        nd_exact_add(&plain->absolute, combine(&sums.absolute));
        nd_exact_add(&plain->squares, combine(&sums.squares));
        nd_exact_add(&plain->relative, combine(&sums.relative));
        nd_exact_add(&plain->rises, combine(&sums.rises));
    }
}

static void same_real(double a, double b)
{
    assert_true(memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)) || (a == 0 && b == 0));
}

static void check_errors(const struct plain *plain, const struct nd_pair_context *context,
                         const struct nd_difference *d)
{
    uint64_t n = plain->n_elems - (plain->n_differing - plain->n_absolute), n_counted = n - plain->n_undefined;
    double unit = fabs(context->ref.unit);
    assert_int_equal(d->has_errors, n > plain->n_nan_equal);
    if (!d->has_errors || n_counted == 0)
        return;
    same_real(d->abs.max, unit * plain->max_absolute);
    same_real(d->abs.mean, unit * (nd_exact_round(&plain->absolute) / (double)n));
    same_real(d->abs.median, unit * nd_log_histogram_quantile(&plain->absolutes, 1, 2, n - plain->n_absolute));
    same_real(d->abs.p99, unit * nd_log_histogram_quantile(&plain->absolutes, 99, 100, n - plain->n_absolute));
    same_real(d->rel.max, plain->max_relative);
    same_real(d->rel.mean, nd_exact_round(&plain->relative) / (double)n_counted);
    same_real(d->rel.median, nd_log_histogram_quantile(&plain->relatives, 1, 2, n_counted - plain->n_relative));
    same_real(d->rel.p99, nd_log_histogram_quantile(&plain->relatives, 99, 100, n_counted - plain->n_relative));
    same_real(d->rmse, unit * sqrt(nd_exact_round(&plain->squares) / (double)n));
    same_real(d->signed_mean, context->ref.unit * (nd_exact_round(&plain->rises) / (double)n));
    assert_int_equal(d->n_above, context->ref.unit < 0 ? plain->n_below : plain->n_above);
    assert_int_equal(d->n_below, context->ref.unit < 0 ? plain->n_above : plain->n_below);
}

static void check(const struct plain *plain, const struct nd_pair_context *context,
                  const struct nd_difference *d)
{
    assert_int_equal(d->n_elems, plain->n_elems);
    assert_int_equal(d->n_differing, plain->n_differing);
    assert_int_equal(d->n_failing, context->gate.bitwise ? plain->n_differing : plain->n_failing);
    assert_int_equal(d->n_rel_undefined, plain->n_undefined);
    assert_int_equal(d->n_nan_mismatch, plain->n_nan_mismatch);
    assert_int_equal(d->n_nan_payload, plain->n_nan_payload);
    assert_int_equal(d->n_inf_mismatch, plain->n_inf_mismatch);
    assert_int_equal(d->n_zero_sign, plain->n_zero_sign);
    assert_int_equal(d->n_saturation_mismatch, plain->n_saturation);
    assert_int_equal(d->structure.n_runs, plain->n_runs);
    assert_int_equal(d->structure.longest_run, plain->longest_run);
    assert_int_equal(d->max_ulp, plain->max_ulp);
    if (!context->ref.is_float) {
        assert_int_equal(d->max_lsb, plain->max_steps);
        for (size_t b = 0; b < ND_LSB_BUCKETS; b++)
            if (b != 4)
                assert_int_equal(d->lsb_histogram[b], plain->histogram[b]);
        assert_memory_equal(d->lsb_tail, plain->tail, sizeof plain->tail);
        same_real(d->mean_lsb, nd_exact_round(&plain->steps) / (double)plain->n_elems);
        same_real(d->signed_mean_lsb, nd_exact_round(&plain->signed_steps) / (double)plain->n_elems);
    }
    check_errors(plain, context, d);
}

/* In one state, or in one for each sample, merged. */
static void compare(const struct pair *pair, bool is_split, struct nd_difference *out)
{
    struct nd_pair_state *state = nd_pair_state_create(&pair->context, NULL);
    assert_non_null(state);
    for (size_t s = 0; s < N_SAMPLES; s++) {
        bool differs = memcmp(pair->ref[s], pair->test[s], pair->n * pair->elem_bytes) != 0;
        struct nd_pair_state *part = is_split ? nd_pair_state_create(&pair->context, NULL) : state;
        assert_non_null(part);
        assert_int_equal(
            nd_sample_compare(part, &pair->context, differs, pair->ref[s], pair->test[s], 0, s, NULL), ND_OK);
        if (!is_split)
            continue;
        assert_int_equal(nd_pair_state_merge(state, part, NULL), ND_OK);
        nd_pair_state_destroy(&part);
    }
    assert_int_equal(nd_pair_state_finish(state, &pair->context, out, NULL), ND_OK);
    nd_pair_state_destroy(&state);
}

static void check_pair(struct pair *pair, struct nd_tensor *tensor)
{
    const struct nd_kernels *const *kernels;
    size_t n_kernels = nd_kernels_available(&kernels);
    static struct plain plain;
    memset(&plain, 0, sizeof plain);
    for (size_t k = 0; k < n_kernels; k++) {
        struct nd_compare_options options = {.n_worst = 3};
        assert_int_equal(nd_pair_context_make(tensor, tensor, &options, kernels[k], &pair->context, NULL),
                         ND_OK);
        pair->context.gate = (struct nd_gate_values){.has_tolerance = true, .atol = 0.5, .rtol = 0.25};
        for (size_t s = 0; s < N_SAMPLES && k == 0; s++)
            if (memcmp(pair->ref[s], pair->test[s], pair->n * pair->elem_bytes) != 0)
                add_sample(pair, &plain, s);
            else
                plain.n_elems += pair->n;
        for (int mode = 0; mode < 8; mode++) {
            struct nd_difference d;
            pair->context.may_join = mode / 2 % 2 == 1 && nd_joint_fits(&pair->context);
            pair->context.gate.bitwise = mode >= 4;
            compare(pair, mode % 2 == 1, &d);
            check(&plain, &pair->context, &d);
            free(d.worst);
        }
    }
    nd_log_histogram_deinit(&plain.absolutes);
    nd_log_histogram_deinit(&plain.relatives);
}

static void test_every_density(void **state)
{
    (void)state;
    static const double densities[] = {0, 1e-6, 0.02, 0.5, 1};
    static const size_t sizes[] = {1, 7, 1023, 1024, 1025, 4999};
    static float scales[] = {0.05f, -0.5f};
    static int64_t zeros[] = {3, 0};
    static struct pair pair;
    const char *given = getenv("ND_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20261123;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++)
        for (size_t k = 0; k < sizeof densities / sizeof densities[0]; k++)
            for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++, seed++) {
                char name[] = "x";
                bool is_float = nd_dtype_is_float(dtypes[t]);
                state_of_random = seed;
                struct nd_tensor tensor = {
                    .name = name,
                    .onnx_name = name,
                    .dtype = dtypes[t],
                    .shape = {1, {(int64_t)sizes[n]}},
                    .quant = {is_float ? 0 : 1, -1, &scales[seed % 2], &zeros[seed % 2]}};
                pair.n = sizes[n];
                pair.dtype = dtypes[t];
                pair.elem_bytes = nd_dtype_size_bytes(dtypes[t]);
                fill(&pair, densities[k], n % 2 == 0);
                check_pair(&pair, &tensor);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_density)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
