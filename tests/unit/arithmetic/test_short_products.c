/* Products of whole numbers of 16 bits, and convolutions of one plane each, held against plain loops and
 * against the same operators on doubles, on every instruction set. */
#include "support/main.h"

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "arithmetic/operators/ops.h"
#include "support/linear_case.h"

static void sets_are_limited_by_name(void **state)
{
    (void)state;
    const struct nd_gemm_kernels *const *all;
    size_t n = nd_gemm_kernels_available(&all);
    assert_int_equal(setenv("NPUDIFF_CPU", "scalar", 1), 0); /* before anything asked */
    assert_string_equal(nd_gemm_kernels()->name, "scalar");
    assert_string_equal(nd_gemm_kernels_up_to(NULL)->name, all[n - 1]->name);
    assert_string_equal(nd_gemm_kernels_up_to("sse9")->name, all[n - 1]->name);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(nd_gemm_kernels_up_to(all[i]->name)->name, all[i]->name);
}

/* ---- kernels ---- */

enum { MOST = 120, COLUMNS = 3 * ND_SHORT_COLUMNS };

static void every_set_adds_pairs(void **state)
{
    (void)state;
    static int16_t a[MOST * MOST + 1], b[MOST * COLUMNS];
    static double x[MOST][COLUMNS], c[MOST * COLUMNS], wanted[MOST * COLUMNS];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < 60; round++) {
        struct nd_short_gemm g = {
            .n = (size_t)pick(1, 19), .m = (size_t)pick(1, COLUMNS), .a = a, .b = b, .c = c};
        size_t n_terms = (size_t)pick(1, MOST);
        int64_t most = pick(0, 3) == 0 ? 4000 : 255; /* sums of 120 stay below 2^31 */
        double offset = (double)pick(-40000, 40000);
        g.n_pairs = (n_terms + 1) / 2;
        g.a_row = n_terms;
        g.b_row = COLUMNS;
        g.c_row = g.m;
        for (size_t i = 0; i <= g.n * n_terms; i++)
            a[i] = (int16_t)pick(-most, most);
        for (size_t k = 0; k < n_terms; k++)
            for (size_t j = 0; j < g.m; j++)
                x[k][j] = (double)pick(-4000, 4000);
        for (size_t i = 0; i < g.n * g.m; i++) {
            wanted[i] = (double)i;
            for (size_t k = 0; k < n_terms; k++)
                wanted[i] += a[i / g.m * n_terms + k] * x[k][i % g.m];
        }
        for (size_t s = 0; s < n_kernels; s++) {
            for (size_t k = 0; k < n_terms; k += 2) {
                double first[COLUMNS], second[COLUMNS];
                for (size_t j = 0; j < g.m; j++) {
                    first[j] = x[k][j] + offset;
                    second[j] = k + 1 < n_terms ? x[k + 1][j] + offset : offset;
                }
                int16_t shorts[2][COLUMNS];
                kernels[s]->shorten(first, offset, g.m, shorts[0]);
                kernels[s]->shorten(second, offset, g.m, shorts[1]);
                kernels[s]->pair(shorts[0], k + 1 < n_terms ? shorts[1] : NULL, g.m, b + k * COLUMNS);
            }
            for (size_t i = 0; i < g.n * g.m; i++)
                c[i] = (double)i;
            kernels[s]->add_short(&g);
            if (memcmp(c, wanted, g.n * g.m * sizeof *c) != 0)
                fail_msg("%s: %zu x %zu x %zu", kernels[s]->name, g.n, n_terms, g.m);
        }
    }
}

static void every_set_adds_up_rows(void **state)
{
    (void)state;
    int16_t a[MOST], b[MOST];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < 100; round++) {
        size_t n = (size_t)pick(0, MOST);
        int32_t wanted = 0;
        for (size_t i = 0; i < n; i++) { /* sums of 120 stay below 2^31 */
            a[i] = (int16_t)pick(INT16_MIN, INT16_MAX);
            b[i] = (int16_t)pick(-500, 500);
            wanted += a[i] * b[i];
        }
        for (size_t s = 0; s < n_kernels; s++)
            assert_int_equal(kernels[s]->dot_short(a, b, n), wanted);
    }
}

static void every_set_finds_the_range(void **state)
{
    (void)state;
    static double x[MOST];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < 100; round++) {
        size_t n = (size_t)pick(1, MOST);
        double least = 1e9, most = -1e9, low, high;
        for (size_t i = 0; i < n; i++) {
            x[i] = (double)pick(-70000, 70000);
            least = fmin(least, x[i]);
            most = fmax(most, x[i]);
        }
        for (size_t s = 0; s < n_kernels; s++) {
            kernels[s]->range(x, n, &low, &high);
            assert_true(low == least && high == most);
        }
    }
}

static void every_set_adds_planes_in_the_same_order(void **state)
{
    (void)state;
    static double in[4096], weights[9], out[1024], wanted[1024];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < 60; round++) {
        ptrdiff_t offsets[9];
        size_t n_taps = (size_t)pick(1, 9);
        struct nd_plane_taps p = {.in = in,
                                  .weights = weights,
                                  .offsets = offsets,
                                  .n_taps = n_taps,
                                  .n_rows = (size_t)pick(1, 20),
                                  .n_columns = (size_t)pick(1, 40),
                                  .out = out};
        p.in_row = p.n_columns + (size_t)pick(0, 5);
        for (size_t i = 0; i < 4096; i++)
            in[i] = ldexp((double)pick(-1000000, 1000000), (int)pick(-20, 3));
        for (size_t t = 0; t < n_taps; t++) {
            offsets[t] = (ptrdiff_t)pick(0, 900);
            weights[t] = ldexp((double)pick(-1000000, 1000000), (int)pick(-20, 3));
        }
        for (size_t i = 0; i < p.n_rows * p.n_columns; i++) {
            const double *x = in + i / p.n_columns * p.in_row + i % p.n_columns;
            wanted[i] = 0;
            for (size_t t = 0; t < n_taps; t++)
                wanted[i] += weights[t] * x[offsets[t]];
        }
        for (size_t s = 0; s < n_kernels; s++) {
            memset(out, 0xff, sizeof out);
            kernels[s]->add_plane(&p);
            if (memcmp(out, wanted, p.n_rows * p.n_columns * sizeof *out) != 0)
                fail_msg("%s: %zu x %zu, %zu taps", kernels[s]->name, p.n_rows, p.n_columns, n_taps);
        }
    }
}

/* Numbers, infinities and NaN. */
static double any_number(void)
{
    static const double special[] = {0,    -0.0,  (double)INFINITY, -(double)INFINITY, (double)NAN, 0.5,
                                     -2.5, 0x1p60};
    if (pick(0, 19) == 0)
        return special[pick(0, 7)];
    return pick(0, 1) == 0 ? (double)pick(-300, 300)
                           : ldexp((double)pick(-1000000, 1000000), (int)pick(-15, 0));
}

/* Each set against the plainest. */
static void every_set_does_the_same_with_each_element(void **state)
{
    (void)state;
    enum { KINDS = 7 };
    static double x[MOST], y[MOST], wanted[KINDS][MOST], found[KINDS][MOST];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels), n_clear = 0, n_whole = 0;
    for (int round = 0; round < 400; round++) {
        size_t n = (size_t)pick(0, MOST);
        bool is_tame = pick(0, 1) == 0, is_clear[2] = {false}, is_whole[2] = {false};
        for (size_t i = 0; i < n; i++)
            y[i] = any_number();
        for (size_t i = 0; i < n; i++)
            x[i] = is_tame ? (double)pick(-300, 300) + (pick(0, 1) == 0 ? 0.25 : 0) * (pick(0, 20) == 0)
                           : any_number();
        for (size_t s = 0; s < n_kernels; s++) {
            double(*out)[MOST] = s == 0 ? wanted : found, largest[2];
            const struct nd_rounding_block block = {.near = x,
                                                    .n = n,
                                                    .zero = 3,
                                                    .low = -128,
                                                    .high = 127,
                                                    .most = 0.5 - 0x1p-28,
                                                    .largest = 0x1p18,
                                                    .qvalues = out[0]};
            is_clear[s > 0] = kernels[s]->round(&block);
            is_whole[s > 0] = kernels[s]->take_zero(x, n, 7, out[1], &largest[s > 0]);
            kernels[s]->follow_line(x, n, 0.1, 0.7, out[2]);
            kernels[s]->bound(out[2], n, -20, 13.5);
            const struct nd_pairs pairs = {x, y, n};
            kernels[s]->add_pairs(&pairs, -1, 0.3, out[3]);
            kernels[s]->multiply_pairs(&pairs, 0.3, out[4]);
            kernels[s]->divide_pairs(&pairs, 0.3, out[5]);
            memcpy(out[6], x, sizeof x);
            kernels[s]->scale(out[6], n, 0.3);
            if (s == 0)
                continue;
            assert_true(is_clear[0] == is_clear[1] && is_whole[0] == is_whole[1]);
            for (size_t k = 0; k < KINDS; k++)
                for (size_t i = 0; i < n; i++)
                    if (!(found[k][i] == wanted[k][i] || (isnan(found[k][i]) && isnan(wanted[k][i]))))
                        fail_msg("%s: %zu: %.17g, not %.17g", kernels[s]->name, k, found[k][i], wanted[k][i]);
        }
        for (size_t i = 0; i < n; i++)
            if (is_clear[0])
                assert_true(wanted[0][i] == fmin(fmax(rint(x[i]) + 3, -128), 127));
        n_clear += is_clear[0];
        n_whole += is_whole[0];
    }
    assert_true(n_clear > 50 && n_clear < 350 && n_whole > 20 && n_whole < 350);
}

/* ---- operators ---- */

/* Quantised values less a zero point, as 8 or 16 bits have them; of 16 bits many do not fit the type of kernels
 * as they are. */
static void fill_packed_weights(struct nd_array *x, bool is_wide)
{
    int64_t top = is_wide ? 65535 : 255, zero = pick(0, 2) == 0 ? pick(0, 1) * top : pick(0, top);
    for (size_t i = 0; i < x->n; i++)
        x->x[i] = (double)(pick(0, 9) == 0 ? pick(0, 1) * top : pick(0, top)) - (double)zero;
}

/* The same with and without what is known of the weights. */
static void compare_methods(struct node *node, const struct nd_shape *of_x, const struct nd_shape *of_w)
{
    struct nd_array x = {0}, w = {0}, y = {0}, wanted = {0};
    struct nd_array *outputs[] = {&wanted};
    const struct nd_array *inputs[] = {&x, &w};
    assert_int_equal(nd_array_make(&x, ND_DTYPE_F32, of_x, NULL), ND_OK);
    assert_int_equal(nd_array_make(&w, ND_DTYPE_F32, of_w, NULL), ND_OK);
    fill_packed_weights(&x, pick(0, 1) == 0);
    fill_packed_weights(&w, false);
    bool is_known = pick(0, 1) == 0;
    int16_t *weights = calloc(w.n + 1, sizeof *weights);
    assert_non_null(weights);
    struct nd_op_shorts shorts = {.weights = weights, .largest = 0};
    for (size_t i = 0; i < w.n; i++) {
        weights[i] = (int16_t)w.x[i];
        shorts.largest = fmax(shorts.largest, fabs(w.x[i]));
    }
    for (size_t i = 0; i < x.n && is_known; i++)
        shorts.left_largest = fmax(shorts.left_largest, fabs(x.x[i]));
    struct nd_op_call call = {
        .node = &node->proto, .opset = 21, .n_inputs = 2, .n_outputs = 1, .inputs = inputs, .outputs = outputs};
    assert_int_equal(nd_op_run(&call, NULL), ND_OK);
    outputs[0] = &y;
    call.shorts = &shorts;
    assert_int_equal(nd_op_run(&call, NULL), ND_OK);
    assert_true(nd_shape_equal(&y.shape, &wanted.shape));
    assert_memory_equal(y.x, wanted.x, y.n * sizeof *y.x);
    free(weights);
    nd_array_deinit(&x);
    nd_array_deinit(&w);
    nd_array_deinit(&y);
    nd_array_deinit(&wanted);
}

static void convolutions_of_shorts_are_those_of_doubles(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        bool is_pointwise = pick(0, 2) == 0;
        int64_t groups = pick(1, 3), n_in = pick(1, 40), n_out = pick(1, 20),
                kernel = is_pointwise ? 1 : pick(1, 3);
        int64_t in[] = {pick(4, 13), pick(4, 13)}, strides[] = {pick(1, 2), pick(1, 2)};
        int64_t pads[] = {pick(0, 1), pick(0, 1), pick(0, 1), pick(0, 1)}, none[4] = {0}, ones[] = {1, 1};
        struct nd_shape of_x = {.rank = 4, .dims = {2, groups * n_in, in[0], in[1]}};
        struct nd_shape of_w = {.rank = 4, .dims = {groups * n_out, n_in, kernel, kernel}};
        struct node node;
        node_begin(&node, "Conv", 1);
        node_int(&node, "group", groups);
        node_ints(&node, "strides", is_pointwise ? ones : strides, 2);
        node_ints(&node, "pads", is_pointwise ? none : pads, 4);
        compare_methods(&node, &of_x, &of_w);
    }
}

static void matrices_of_shorts_are_those_of_doubles(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        bool is_transposed = pick(0, 1) == 0;
        int64_t n = pick(0, 2) == 0 ? pick(1, 3) : pick(1, 30), inner = pick(1, 600), m = pick(1, 130);
        struct nd_shape of_x = {.rank = 2, .dims = {n, inner}};
        struct nd_shape of_w = {.rank = 2, .dims = {is_transposed ? m : inner, is_transposed ? inner : m}};
        struct nd_shape stack = {.rank = 3, .dims = {3, n, inner}}, plain = {.rank = 2, .dims = {inner, m}};
        struct node node;
        node_begin(&node, "Gemm", 1);
        node_int(&node, "transB", is_transposed);
        compare_methods(&node, &of_x, &of_w);
        node_begin(&node, "MatMul", 1);
        compare_methods(&node, &stack, &plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_limited_by_name),
        cmocka_unit_test(every_set_adds_pairs),
        cmocka_unit_test(every_set_adds_up_rows),
        cmocka_unit_test(every_set_finds_the_range),
        cmocka_unit_test(every_set_adds_planes_in_the_same_order),
        cmocka_unit_test(every_set_does_the_same_with_each_element),
        cmocka_unit_test(convolutions_of_shorts_are_those_of_doubles),
        cmocka_unit_test(matrices_of_shorts_are_those_of_doubles),
    };
    return cmocka_run_group_tests(tests, set_seed, NULL);
}
