/* What is counted of many quantised values at once, held against plain loops, on every instruction set: random
 * lengths, none and odd ones among them, values at the ends of their types, and values that are no quantised
 * values. */
#include "support/main.h"

#include "arithmetic/exact/linear/quick.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "arithmetic/operators/ops.h"
#include "explain/evaluate/qvalue_tally.h"
#include "support/linear_case.h"

enum { MOST = 700, ROUNDS = 40 };

static const double strange[] = {0.5, -1, 65536, 1e300, -1e300, (double)NAN, (double)INFINITY, -0.0};

static double strange_or(double x)
{
    return pick(0, 40) == 0 ? strange[pick(0, 7)] : x;
}

/* ---- packing and differences ---- */

static void words_are_packed(void **state)
{
    (void)state;
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < ROUNDS; round++) {
        double x[MOST], back[MOST], low = pick(0, 1) == 0 ? 0 : -32768;
        size_t n = (size_t)pick(0, MOST);
        bool is_clean = pick(0, 1) == 0, are_qvalues = true;
        for (size_t i = 0; i < n; i++) {
            x[i] = (double)(pick(0, 9) == 0 ? pick(0, 1) * UINT16_MAX : pick(0, UINT16_MAX)) + low;
            x[i] = is_clean ? x[i] : strange_or(x[i]);
            double qvalue = x[i] - low;
            are_qvalues = are_qvalues && qvalue >= 0 && qvalue <= UINT16_MAX && qvalue == floor(qvalue);
        }
        for (size_t k = 0; k < n_kernels; k++) {
            uint16_t words[MOST];
            assert_int_equal(kernels[k]->narrow_words(x, low, n, words), are_qvalues);
            kernels[k]->spread_words(words, low, n, back);
            for (size_t i = 0; i < n && are_qvalues; i++)
                assert_true(back[i] == x[i]);
        }
    }
}

static void check_differences(const struct nd_gemm_kernels *kernels, size_t width, size_t n)
{
    static uint16_t a[70000], b[70000];
    static uint8_t small_a[70000], small_b[70000];
    int64_t top = width == 1 ? UINT8_MAX : UINT16_MAX, kind = pick(0, 2);
    struct nd_qvalue_differences wanted = {0}, found;
    for (size_t i = 0; i < n; i++) {
        a[i] = (uint16_t)(kind == 0 ? pick(0, 1) * top : pick(0, top));
        b[i] = (uint16_t)(kind == 0 ? top - a[i] : kind == 1 ? a[i] : pick(0, top));
        small_a[i] = (uint8_t)a[i];
        small_b[i] = (uint8_t)b[i];
        int64_t d = (int64_t)a[i] - b[i];
        wanted.n_differing += d != 0;
        wanted.sum += d;
        wanted.energy += (uint64_t)(d * d);
        wanted.max = (uint64_t)llabs(d) > wanted.max ? (uint64_t)llabs(d) : wanted.max;
    }
    if (width == 1)
        kernels->compare_bytes(small_a, small_b, n, &found);
    else
        kernels->compare_words(a, b, n, &found);
    assert_true(found.n_differing == wanted.n_differing && found.sum == wanted.sum &&
                found.energy == wanted.energy && found.max == wanted.max);
}

static void differences_are_exact(void **state)
{
    (void)state;
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (size_t k = 0; k < n_kernels; k++)
        for (int round = 0; round < ROUNDS; round++)
            check_differences(kernels[k], (size_t)pick(1, 2),
                              (size_t)(round < 4 ? 70000 - round : pick(0, MOST)));
}

static void scaled_qvalues_are_rounded_twice(void **state)
{
    (void)state;
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < ROUNDS; round++) {
        double qvalues[MOST], made[MOST], wanted[MOST], largest, wanted_largest;
        size_t n = (size_t)pick(0, MOST);
        const struct nd_scaled_qvalues from = {qvalues, (double)pick(0, UINT16_MAX), (double)random_scale()};
        bool is_clean = pick(0, 1) == 0;
        for (size_t i = 0; i < n; i++)
            qvalues[i] = is_clean ? (double)pick(0, UINT16_MAX) : strange_or((double)pick(0, UINT16_MAX));
        for (size_t k = 0; k < n_kernels; k++) {
            bool is_whole = kernels[k]->take_zero(qvalues, n, from.zero, wanted, &wanted_largest);
            assert_int_equal(kernels[k]->take_scaled(&from, n, made, &largest), is_whole);
            kernels[k]->scale(wanted, n, from.factor);
            assert_memory_equal(&largest, &wanted_largest, sizeof largest);
            for (size_t i = 0; i < n; i++)
                assert_true(made[i] == wanted[i] || (isnan(made[i]) && isnan(wanted[i])));
        }
    }
}

/* ---- counts ---- */

static void methods_are_compared(void **state)
{
    (void)state;
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < ROUNDS; round++) {
        double given[MOST], made[MOST], exact[MOST];
        struct nd_methods_compared wanted = {0}, found;
        size_t n = (size_t)pick(0, MOST);
        for (size_t i = 0; i < n; i++) {
            given[i] = strange_or((double)pick(0, 3));
            made[i] = strange_or((double)pick(0, 3));
            exact[i] = (double)pick(0, 3);
            double off = fabs(given[i] - made[i]);
            bool is_apart = made[i] != exact[i];
            wanted.n_wrong += off != 0;
            wanted.max = off > wanted.max ? off : wanted.max;
            wanted.n_apart += is_apart;
            wanted.n_apart_as_made += is_apart && off == 0;
            wanted.n_apart_as_exact += is_apart && given[i] == exact[i];
        }
        for (size_t k = 0; k < n_kernels; k++) {
            kernels[k]->compare_methods(given, made, exact, n, &found);
            assert_memory_equal(&found, &wanted, sizeof found);
        }
    }
}

static void ends_are_counted(void **state)
{
    (void)state;
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < ROUNDS; round++) {
        double qvalues[MOST], ref[MOST];
        bool is_signed = pick(0, 1) == 0;
        const struct nd_qvalue_ends e = {is_signed ? -8 : 0, is_signed ? 7 : 15, 2, is_signed ? -HUGE_VAL : 8,
                                         is_signed ? 0 : HUGE_VAL};
        const struct nd_pairs pairs = {qvalues, ref, (size_t)pick(0, MOST)};
        struct nd_ends_counted wanted = {0}, found;
        for (size_t i = 0; i < pairs.n; i++) {
            qvalues[i] = e.low + (double)pick(0, 15);
            ref[i] = e.low + (double)pick(0, 15);
            bool is_near = fabs(qvalues[i] - ref[i]) <= 2,
                 is_other = is_signed ? qvalues[i] < 0 : qvalues[i] >= 8;
            wanted.n_near += is_near;
            wanted.n_signed += is_other;
            wanted.n_signed_near += is_other && is_near;
            wanted.at_end[0] += qvalues[i] == e.low;
            wanted.at_end[1] += qvalues[i] == e.high;
            wanted.ref_at_end[0] += ref[i] == e.low;
            wanted.ref_at_end[1] += ref[i] == e.high;
            wanted.far[0] += qvalues[i] == e.low && !is_near;
            wanted.far[1] += qvalues[i] == e.high && !is_near;
        }
        for (size_t k = 0; k < n_kernels; k++) {
            kernels[k]->count_ends(&e, &pairs, &found);
            assert_memory_equal(&found, &wanted, sizeof found);
        }
    }
}

static void pairs_have_keys(void **state)
{
    (void)state;
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < ROUNDS; round++) {
        double x[MOST], y[MOST], low = pick(0, 1) == 0 ? 0 : -128;
        const struct nd_pairs pairs = {x, y, (size_t)pick(0, MOST)};
        bool is_clean = pick(0, 1) == 0, are_qvalues = true;
        for (size_t i = 0; i < pairs.n; i++) {
            x[i] = (double)pick(-ND_KEY_LARGEST, ND_KEY_LARGEST);
            y[i] = (double)pick(0, UINT8_MAX) + low;
            x[i] = is_clean ? x[i] : strange_or(x[i]);
            are_qvalues = are_qvalues && fabs(x[i]) <= ND_KEY_LARGEST && x[i] == floor(x[i]);
        }
        if (pairs.n > 0 && pick(0, 3) == 0) {
            y[pairs.n - 1] = low + 255.5;
            are_qvalues = false;
        }
        for (size_t k = 0; k < n_kernels; k++) {
            uint32_t keys[MOST];
            assert_int_equal(kernels[k]->pair_keys(&pairs, low, keys), are_qvalues);
            for (size_t i = 0; i < pairs.n && are_qvalues; i++)
                assert_true(keys[i] == (x[i] + ND_KEY_LARGEST) * 256 + y[i] - low);
        }
    }
}

/* ---- cases ---- */

enum { N_CELLS = 1 << 14, N_WHOLE = 1 << 16 };

/* Of one value, in integers and with branches. */
static int32_t key_of(const struct nd_case_limits *l, double v, double given, size_t *n_wrong)
{
    if (v < l->cut_low && v > -l->largest) {
        *n_wrong += given != l->end_qvalues[0];
        return 2 * N_CELLS * ND_CASE_OUTCOMES;
    }
    if (v > l->cut_high && v < l->largest) {
        *n_wrong += given != l->end_qvalues[1];
        return 2 * N_CELLS * ND_CASE_OUTCOMES;
    }
    if (!(v > l->low && v < l->high) || v >= N_WHOLE - 1)
        return (2 * N_CELLS + 1) * ND_CASE_OUTCOMES;
    int64_t place = (int64_t)floor((v + N_WHOLE) * N_CELLS), whole = (place >> 14) - N_WHOLE,
            cell = place % N_CELLS;
    double qvalue = (double)whole + l->zero, outcome = given - qvalue + 1;
    double at = (double)cell;
    bool is_half = at >= l->half_low && at <= l->half_high, is_large = fabs((double)whole) >= l->large;
    bool is_one =
        qvalue >= l->qvalue_low && qvalue < l->qvalue_high && outcome >= 0 && outcome < ND_CASE_OUTCOMES;
    if (!is_one || (is_half && is_large))
        return (2 * N_CELLS + 1) * ND_CASE_OUTCOMES;
    return (int32_t)(((whole < 0 ? N_CELLS : 0) + cell) * ND_CASE_OUTCOMES + (int64_t)outcome);
}

static double random_near(double top)
{
    static const double others[] = {0, -0.0, 65535, -65536, 1e9, -1e9, (double)NAN, (double)INFINITY, -65536.5};
    double v = (double)pick(-(1 << 20), 1 << 20) * top * 0x1.4p-20;
    return pick(0, 30) == 0  ? others[pick(0, 8)]
           : pick(0, 5) == 0 ? floor(v) + 0.5
           : pick(0, 5) == 0 ? floor(v)
                             : v;
}

static void cases_are_found(void **state)
{
    (void)state;
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < 4 * ROUNDS; round++) {
        double near[MOST], given[MOST], top = pick(0, 1) == 0 ? UINT8_MAX : UINT16_MAX;
        static const double zeros[] = {0, 1, 0.5};
        double zero = floor(zeros[pick(0, 2)] * top);
        bool is_bounded = pick(0, 1) == 0;
        const struct nd_case_limits l = {.n_cells = N_CELLS,
                                         .n_whole = N_WHOLE,
                                         .largest = 0x1p18,
                                         .cut_low = is_bounded ? -ND_QUICK_DOUBT : -0x1p18,
                                         .cut_high = is_bounded ? top / 2 : 0x1p18,
                                         .low = is_bounded ? ND_QUICK_DOUBT : -N_WHOLE,
                                         .high = is_bounded ? top / 2 - ND_QUICK_DOUBT : N_WHOLE,
                                         .qvalue_low = 0,
                                         .qvalue_high = top,
                                         .zero = zero,
                                         .end_qvalues = {zero, top},
                                         .large = top > UINT8_MAX ? 256 : HUGE_VAL,
                                         .half_low = N_CELLS / 2 - N_CELLS / 64,
                                         .half_high = N_CELLS / 2 + N_CELLS / 64};
        const struct nd_pairs pairs = {near, given, (size_t)pick(0, MOST)};
        int32_t wanted[MOST], keys[MOST];
        size_t n_wrong = 0;
        for (size_t i = 0; i < pairs.n; i++) {
            near[i] = random_near(top);
            given[i] = fmin(fmax(rint(isfinite(near[i]) ? near[i] : 0) + zero + (double)pick(-2, 2), 0), top);
            wanted[i] = key_of(&l, near[i], given[i], &n_wrong);
        }
        for (size_t k = 0; k < n_kernels; k++) {
            assert_int_equal(kernels[k]->find_cases(&l, &pairs, keys), n_wrong);
            assert_memory_equal(keys, wanted, pairs.n * sizeof *keys);
        }
    }
}

/* ---- of few values ---- */

/* A layer that hands on quantised values with other scales: large enough to be counted by pairs. */
static void few_values_are_counted_as_each(void **state)
{
    (void)state;
    enum { N = 20011 };
    static double x[N], given[N];
    static struct nd_ratio v[N];
    for (int round = 0; round < 12; round++) {
        double zero_in = (double)(pick(0, 2) * 127), zero = pick(0, 2) == 0 ? 255 : (double)pick(0, 255);
        const float scale = round % 3 == 0 ? 1 : random_scale();
        struct nd_quick quick = {.kind = ND_QUICK_LINE,
                                 .n = N,
                                 .x = x,
                                 .n_inner = N,
                                 .sign = 1,
                                 .divisor = 1,
                                 .low = round % 2 == 0 ? 0 : -HUGE_VAL,
                                 .high = HUGE_VAL,
                                 .scale = (double)scale};
        assert_int_equal(nd_quick_make_lines(&quick, 1, NULL), ND_OK);
        quick.lines[0].factor = nd_wide_from((double)scale * (round % 3 == 0 ? 1 : 0.7));
        assert_true(nd_quick_finish(&quick));
        for (size_t i = 0; i < N; i++) {
            x[i] = (double)pick(0, 255) - zero_in;
            v[i] = nd_quick_exact(&quick, i);
            double qvalue = nd_qvalue_of_ratio(&v[i], zero, ND_DTYPE_U8, ND_ROUND_HALF_EVEN);
            given[i] = pick(0, 9) == 0 ? fmin(fmax(qvalue + (double)pick(-3, 3), 0), 255) : qvalue;
        }
        const int64_t zero_point = (int64_t)zero;
        const struct nd_shape shape = {.rank = 1, .dims = {N}};
        const struct nd_quant quant = {.scale = (float *)&scale, .zero_point = (int64_t *)&zero_point, .n = 1};
        struct nd_exact_values values = {
            .shape = &shape, .n = N, .v = v, .quant = &quant, .dtype = ND_DTYPE_U8};
        struct nd_qvalue_tally one_by_one = {0}, at_once = {0};
        nd_qvalue_tally_add(&one_by_one, &values, given);
        values.v = NULL;
        values.quick = &quick;
        nd_qvalue_tally_add(&at_once, &values, given);
        assert_memory_equal(&at_once, &one_by_one, sizeof at_once);
        nd_quick_deinit(&quick);
    }
}

/* ---- pools ---- */

/* Without places a row of windows is taken at a time, with them one window after another. */
static void maxima_are_the_same_with_their_places(void **state)
{
    (void)state;
    static const double others[] = {(double)NAN, -(double)INFINITY, (double)INFINITY, -0.0, 0};
    for (int round = 0; round < 3 * ROUNDS; round++) {
        int64_t kernel[2], strides[2], dilations[2], pads[4];
        for (int a = 0; a < 2; a++) {
            kernel[a] = pick(1, 4);
            strides[a] = pick(1, 3);
            dilations[a] = pick(1, 2);
            pads[a] = pick(0, kernel[a] - 1);
            pads[a + 2] = pick(0, kernel[a] - 1);
        }
        const struct nd_shape shape = {.rank = 4, .dims = {pick(1, 2), pick(1, 3), pick(7, 15), pick(7, 40)}};
        struct nd_array x = {0}, y = {0}, with_places = {0}, places = {0};
        const struct nd_array *inputs[] = {&x};
        struct nd_array *outputs[] = {&y}, *both[] = {&with_places, &places};
        struct node node;
        node_begin(&node, "MaxPool", 1);
        node_ints(&node, "kernel_shape", kernel, 2);
        node_ints(&node, "strides", strides, 2);
        node_ints(&node, "dilations", dilations, 2);
        node_ints(&node, "pads", pads, 4);
        assert_int_equal(nd_array_make(&x, ND_DTYPE_F32, &shape, NULL), ND_OK);
        for (size_t i = 0; i < x.n; i++)
            x.x[i] = pick(0, 9) == 0 ? others[pick(0, 4)] : (double)pick(-5, 5);
        struct nd_op_call call = {.node = &node.proto,
                                  .opset = 21,
                                  .n_inputs = 1,
                                  .n_outputs = 1,
                                  .inputs = inputs,
                                  .outputs = outputs};
        assert_int_equal(nd_op_run(&call, NULL), ND_OK);
        call.n_outputs = 2;
        call.outputs = both;
        assert_int_equal(nd_op_run(&call, NULL), ND_OK);
        assert_int_equal(y.n, with_places.n);
        for (size_t i = 0; i < y.n; i++)
            if (!isnan(y.x[i]) || !isnan(with_places.x[i]))
                assert_memory_equal(&y.x[i], &with_places.x[i], sizeof y.x[i]);
        nd_array_deinit(&x);
        nd_array_deinit(&y);
        nd_array_deinit(&with_places);
        nd_array_deinit(&places);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_packed),
        cmocka_unit_test(differences_are_exact),
        cmocka_unit_test(scaled_qvalues_are_rounded_twice),
        cmocka_unit_test(methods_are_compared),
        cmocka_unit_test(ends_are_counted),
        cmocka_unit_test(pairs_have_keys),
        cmocka_unit_test(cases_are_found),
        cmocka_unit_test(few_values_are_counted_as_each),
        cmocka_unit_test(maxima_are_the_same_with_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
