/* Proofs that two arithmetics agree, held against the arithmetics themselves: of layers whose weights are all 1
 * every sum can be fed, and of others random and extreme inputs are. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/htp/htp.h"
#include "core/random.h"

enum { MAX_ROWS = 4096, MAX_INNER = 24, MAX_COLUMNS = 6 };

/* A Gemm of uint8 or uint16 quantised values with uint8 weights and an int32 bias. */
struct shown_layer {
    Onnx__NodeProto node;
    struct nd_array x, w, b;
    float scales[4]; /* x, w, b, y */
    int64_t zeros[4];
    struct nd_quant quants[4];
    struct nd_linear_input inputs[3];
    struct nd_linear_call call;
    struct nd_linear_shared shared;
    struct nd_exact_layer layer;
};

static const enum nd_exact_origin origins[] = {ND_EXACT_FROM_INPUT, ND_EXACT_FROM_CONSTANT,
                                               ND_EXACT_FROM_CONSTANT};
static const size_t tensors[] = {0, SIZE_MAX, SIZE_MAX};

static void make_array(struct nd_array *array, enum nd_dtype dtype, int rank, size_t a, size_t b)
{
    const struct nd_shape shape = {rank, {(int64_t)a, (int64_t)b}};
    assert_int_equal(nd_array_make(array, dtype, &shape, NULL), ND_OK);
}

static void open_layer(struct shown_layer *l, enum nd_dtype dtype, size_t n_rows, size_t n_inner,
                       size_t n_columns)
{
    *l = (struct shown_layer){0};
    onnx__node_proto__init(&l->node);
    static char *const names[] = {"x", "w", "b", "y"};
    l->node.op_type = (char *)"Gemm";
    l->node.input = (char **)(uintptr_t)names;
    l->node.n_input = 3;
    l->node.output = (char **)(uintptr_t)&names[3];
    l->node.n_output = 1;
    make_array(&l->x, dtype, 2, n_rows, n_inner);
    make_array(&l->w, ND_DTYPE_U8, 2, n_inner, n_columns);
    make_array(&l->b, ND_DTYPE_I32, 1, n_columns, 0);
    const struct nd_array *values[] = {&l->x, &l->w, &l->b};
    for (int i = 0; i < 4; i++)
        l->quants[i] =
            (struct nd_quant){.n = 1, .axis = -1, .scale = &l->scales[i], .zero_point = &l->zeros[i]};
    for (int i = 0; i < 3; i++)
        l->inputs[i] = (struct nd_linear_input){.values = values[i], .quant = &l->quants[i]};
    l->call = (struct nd_linear_call){.node = &l->node,
                                      .opset = 13,
                                      .n_inputs = 3,
                                      .inputs = l->inputs,
                                      .low = -HUGE_VAL,
                                      .high = HUGE_VAL,
                                      .out_quant = &l->quants[3],
                                      .shared = &l->shared};
    l->layer = (struct nd_exact_layer){
        .tensor = 1, .call = &l->call, .origins = origins, .input_tensors = tensors, .dtype = dtype};
}

static void close_layer(struct shown_layer *l)
{
    nd_linear_shared_deinit(&l->shared);
    nd_array_deinit(&l->x);
    nd_array_deinit(&l->w);
    nd_array_deinit(&l->b);
}

static void run_layer(struct shown_layer *l, const char *arithmetic, struct nd_array *qvalues)
{
    bool is_covered = false;
    *qvalues = (struct nd_array){0};
    nd_linear_shared_deinit(&l->shared);
    assert_int_equal(nd_layer_arithmetic_run(nd_layer_arithmetic_from_name(arithmetic), &l->layer, NULL,
                                             qvalues, &is_covered, NULL),
                     ND_OK);
    assert_true(is_covered);
}

static struct nd_layer_proof prove(struct shown_layer *l, bool *is_unequal)
{
    struct nd_layer_proof proof;
    assert_int_equal(nd_layer_product_prove(nd_layer_arithmetic_from_name("htp-v69"),
                                            nd_layer_arithmetic_from_name("htp-v73"), &l->layer, &proof,
                                            is_unequal, NULL),
                     ND_OK);
    return proof;
}

/* How many elements of the output the arithmetics make different, and by column. */
static size_t count_unequal(struct shown_layer *l, size_t *by_column)
{
    struct nd_array a, b;
    size_t n = 0, n_columns = l->b.n;
    run_layer(l, "htp-v69", &a);
    run_layer(l, "htp-v73", &b);
    assert_int_equal(a.n, b.n);
    for (size_t i = 0; i < a.n; i++) {
        n += a.x[i] != b.x[i];
        by_column[i % n_columns] += a.x[i] != b.x[i];
    }
    nd_array_deinit(&a);
    nd_array_deinit(&b);
    return n;
}

/* Scales whose multiplier is 2^-k, exactly or so far off, and a bias. */
static void draw_scales(struct shown_layer *l, uint64_t *state, bool is_power)
{
    int k = 2 + (int)(nd_splitmix_uniform(state) * 9);
    double off = is_power ? 1 : 0.75 + 0.2 * nd_splitmix_uniform(state);
    l->scales[0] = (float)(0.001 + 0.1 * nd_splitmix_uniform(state));
    l->scales[1] = (float)(0.0005 + 0.01 * nd_splitmix_uniform(state));
    l->scales[2] = nextafterf(l->scales[0] * l->scales[1], 1);
    l->scales[3] = nextafterf((float)(ldexp((double)l->scales[0] * (double)l->scales[1], k) * off), 1);
    l->zeros[1] = 128;
}

/* ---- every sum ---- */

/* Row i of x has the sum i - K z: all sums that K quantised values can have, with weights of 1. */
static void feed_every_sum(struct shown_layer *l, size_t n_inner)
{
    double most = l->x.dtype == ND_DTYPE_U8 ? 255 : 65535;
    for (size_t row = 0; row < l->x.n / n_inner; row++) {
        double left = (double)row;
        for (size_t i = 0; i < n_inner; i++) {
            l->x.x[row * n_inner + i] = fmin(left, most);
            left -= l->x.x[row * n_inner + i];
        }
    }
    for (size_t i = 0; i < l->w.n; i++)
        l->w.x[i] = 129;
}

static void check_every_sum(uint64_t seed, size_t counts[2])
{
    enum { K = 8, ROWS = K * 255 + 1 };
    struct shown_layer l;
    uint64_t state = seed;
    size_t by_column[MAX_COLUMNS] = {0};
    bool is_unequal[MAX_COLUMNS] = {false};
    open_layer(&l, ND_DTYPE_U8, ROWS, K, MAX_COLUMNS);
    draw_scales(&l, &state, seed % 2 == 0);
    l.zeros[0] = (int64_t)(nd_splitmix_uniform(&state) * 255);
    l.zeros[3] = (int64_t)(nd_splitmix_uniform(&state) * 255);
    for (size_t c = 0; c < MAX_COLUMNS; c++)
        l.b.x[c] = rint((nd_splitmix_uniform(&state) - 0.5) * 3000);
    feed_every_sum(&l, K);
    struct nd_layer_proof proof = prove(&l, is_unequal);
    size_t n = count_unequal(&l, by_column), n_columns = 0;
    print_message("# seed %llu: %zu sums differ\n", (unsigned long long)seed, n);
    assert_int_equal(proof.n_channels, MAX_COLUMNS);
    assert_true(proof.n_sums == (double)MAX_COLUMNS * ROWS);
    for (size_t c = 0; c < MAX_COLUMNS; c++) {
        assert_int_equal(is_unequal[c], by_column[c] > 0);
        n_columns += by_column[c] > 0;
    }
    assert_int_equal(proof.n_unequal, n_columns);
    assert_int_equal(proof.end, n > 0 ? ND_LAYER_PROOF_UNEQUAL : ND_LAYER_PROOF_EQUAL);
    counts[n > 0]++;
    if (n > 0) { /* the counterexample is one */
        struct nd_array a, b;
        size_t row = (size_t)(proof.sum + K * (double)l.zeros[0]);
        run_layer(&l, "htp-v69", &a);
        run_layer(&l, "htp-v73", &b);
        assert_true(a.x[row * MAX_COLUMNS + proof.channel] == proof.qvalues[0]);
        assert_true(b.x[row * MAX_COLUMNS + proof.channel] == proof.qvalues[1]);
        assert_true(proof.qvalues[0] != proof.qvalues[1]);
        nd_array_deinit(&a);
        nd_array_deinit(&b);
    }
    close_layer(&l);
}

static void proof_of_all_sums_is_that_of_trying_each(void **state)
{
    size_t counts[2] = {0, 0};
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        check_every_sum(seed, counts);
    assert_true(counts[0] >= 10 && counts[1] >= 10); /* both happen, or the test shows nothing */
}

/* ---- random layers ---- */

static void feed_at_random(struct shown_layer *l, uint64_t *state, double most)
{
    size_t n_columns = l->b.n, n_inner = l->w.n / n_columns;
    for (size_t i = 0; i < l->w.n; i++)
        l->w.x[i] = 128 + rint((nd_splitmix_uniform(state) - 0.5) * 254);
    for (size_t i = 0; i < l->x.n; i++) {
        size_t row = i / n_inner;
        l->x.x[i] = floor(nd_splitmix_uniform(state) * (most + 1));
        if (row < 2 * n_columns) /* the least and the greatest sum of each column */
            l->x.x[i] = (l->w.x[i % n_inner * n_columns + row / 2] > 128) == (row % 2 == 0) ? 0 : most;
    }
}

static void check_random_layer(enum nd_dtype dtype, uint64_t seed, size_t counts[2])
{
    struct shown_layer l;
    uint64_t state = seed;
    size_t by_column[MAX_COLUMNS] = {0};
    bool is_unequal[MAX_COLUMNS] = {false};
    double most = dtype == ND_DTYPE_U8 ? 255 : 65535;
    open_layer(&l, dtype, MAX_ROWS, 1 + (size_t)(nd_splitmix_uniform(&state) * MAX_INNER), MAX_COLUMNS);
    draw_scales(&l, &state, seed % 4 != 0);
    if (dtype == ND_DTYPE_U16) /* sums are 256 times as large */
        l.scales[3] *= 64;
    l.zeros[0] = (int64_t)(nd_splitmix_uniform(&state) * most);
    l.zeros[3] = (int64_t)(nd_splitmix_uniform(&state) * most) & ~(int64_t)255;
    for (size_t c = 0; c < MAX_COLUMNS; c++)
        l.b.x[c] = 256 * rint((nd_splitmix_uniform(&state) - 0.5) * 200);
    feed_at_random(&l, &state, most);
    struct nd_layer_proof proof = prove(&l, is_unequal);
    count_unequal(&l, by_column);
    print_message("# %s, seed %llu: %zu of %zu columns can differ\n", nd_dtype_name(dtype),
                  (unsigned long long)seed, proof.n_unequal, proof.n_channels);
    assert_true(proof.end != ND_LAYER_PROOF_NONE);
    for (size_t c = 0; c < MAX_COLUMNS; c++)
        assert_true(is_unequal[c] || by_column[c] == 0); /* what is proven holds */
    counts[proof.end == ND_LAYER_PROOF_UNEQUAL]++;
    close_layer(&l);
}

static void proven_layers_are_equal_on_random_and_extreme_inputs(void **state)
{
    size_t counts[2] = {0, 0};
    (void)state;
    for (uint64_t seed = 101; seed <= 120; seed++) {
        check_random_layer(ND_DTYPE_U8, seed, counts);
        check_random_layer(ND_DTYPE_U16, seed, counts);
    }
    assert_true(counts[0] >= 5 && counts[1] >= 5);
}

/* ---- what is not known ---- */

static void a_layer_without_known_arithmetic_is_not_proven(void **state)
{
    struct shown_layer l;
    uint64_t seed = 7;
    (void)state;
    open_layer(&l, ND_DTYPE_U8, 1, 4, 2);
    draw_scales(&l, &seed, true);
    l.b.dtype = ND_DTYPE_F32; /* no quantised value */
    struct nd_layer_proof proof = prove(&l, NULL);
    assert_int_equal(proof.end, ND_LAYER_PROOF_NONE);
    assert_non_null(proof.reason);
    l.b.dtype = ND_DTYPE_I32;
    assert_int_equal(prove(&l, NULL).end, ND_LAYER_PROOF_EQUAL);
    l.node.op_type = (char *)"Softmax";
    assert_int_equal(prove(&l, NULL).end, ND_LAYER_PROOF_NONE);
    close_layer(&l);
}

static void operands_that_are_rescaled_are_not_proven(void **state)
{
    static const enum nd_exact_origin fed[] = {ND_EXACT_FROM_INPUT, ND_EXACT_FROM_INPUT,
                                               ND_EXACT_FROM_CONSTANT};
    struct shown_layer l;
    uint64_t seed = 7;
    (void)state;
    open_layer(&l, ND_DTYPE_U8, 1, 4, 2);
    draw_scales(&l, &seed, true);
    l.layer.origins = fed;
    assert_int_equal(prove(&l, NULL).end, ND_LAYER_PROOF_EQUAL); /* -128..127 */
    for (l.zeros[1] = 0; l.zeros[1] < 256; l.zeros[1] += 51) {
        for (size_t i = 0; i < l.w.n; i++)
            l.w.x[i] = (double)l.zeros[1]; /* these fit, others would not */
        assert_int_equal(prove(&l, NULL).end, ND_LAYER_PROOF_NONE);
    }
    close_layer(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proof_of_all_sums_is_that_of_trying_each),
        cmocka_unit_test(proven_layers_are_equal_on_random_and_extreme_inputs),
        cmocka_unit_test(a_layer_without_known_arithmetic_is_not_proven),
        cmocka_unit_test(operands_that_are_rescaled_are_not_proven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
