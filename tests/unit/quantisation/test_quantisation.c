/* Which layer loses accuracy by its quantisation, why, and what helps: models of a few layers in which the
 * cause is put by hand, so that the answer is known. What a remedy is said to gain is held against the model
 * that is really changed. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/quantised_bench.h"

/* The one layer that is accused, for this reason, and is said to have the greatest effect. */
static const struct nd_quantised_layer *accused(const struct fixture *f, const char *name,
                                                enum nd_loss_cause cause)
{
    const struct nd_quantised_layer *layer = quantised_layer_of(f, name);
    print_message("# %s: %s\n", name, layer->cause_text);
    assert_string_equal(nd_loss_cause_name(layer->cause), nd_loss_cause_name(cause));
    assert_true(f->e->quantisation->n_ranked > 0);
    assert_int_equal(f->e->quantisation->ranked[0], find_step(f, name));
    for (size_t s = 0; s < f->e->n_steps; s++)
        assert_int_equal(f->e->quantisation->layers[s].is_accused, &f->e->quantisation->layers[s] == layer);
    return layer;
}

static void assert_range_gain(struct bench *b, struct fixture *f, const char *tensor,
                              const struct nd_remedy *remedy)
{
    const struct nd_fit fit = nd_fit_range((struct nd_range){remedy->low, remedy->high}, 0, 255);
    size_t k = (size_t)(find_item(b, tensor) - b->items);
    double gain = remedy->output_gain_db;
    b->scales[k][0] = (float)fit.scale;
    b->zeros[k][0] = (int64_t)fit.zero;
    assert_gain(b, f, gain);
}

/* ---- activations ---- */

enum { WIDE = 8192 };

/* y = x * c * d: c is 1 but for one element of `far`, which d takes back. */
static void make_products(struct bench *b, float far)
{
    static float c[WIDE], d[WIDE];
    begin(b, WIDE);
    for (size_t i = 0; i < WIDE; i++)
        c[i] = d[i] = 1;
    c[77] = far;
    d[77] = 1 / far;
    nd_compose_constant(b->compose, "c", ND_DTYPE_F32, &b->shape, c);
    nd_compose_constant(b->compose, "d", ND_DTYPE_F32, &b->shape, d);
    node(b, "Mul", "x", "c", "h");
    node(b, "Mul", "h", "d", "y");
    quantise(b, "x", 0, 1);
    quantise(b, "h", 0, far);
    quantise(b, "y", 0, 1);
}

static void outlier_is_named_and_clipping_it_helps(void **state)
{
    (void)state;
    struct bench b;
    make_products(&b, 40);
    struct fixture f = run(&b);
    const struct nd_quantised_layer *layer = accused(&f, "h", ND_LOSS_OUTLIERS);
    assert_true(layer->used_share > 0.02 && layer->used_share < 0.03); /* 1 / 40 */
    assert_true(layer->effect_share > 0.99);
    /* The step of h is 40 times that of x. With 16 bits only the rounding of x is left: y has the same grid. */
    assert_true(fabs(remedy_of(layer, ND_REMEDY_16_BITS)->output_gain_db - 10 * log10(1600.0 + 1)) < 0.5);
    /* Clipped, the far element itself is lost: at the tensor that is worse, at the outputs it is one of 8192.
     */
    const struct nd_remedy *remedy = remedy_of(layer, ND_REMEDY_RANGE);
    assert_true(remedy->own_gain_db < 0 && remedy->output_gain_db > 10);
    assert_range_gain(&b, &f, "h", remedy);
    end(&b, &f);
}

static void healthy_model_is_not_accused(void **state)
{
    (void)state;
    struct bench b;
    make_products(&b, 1);
    struct fixture f = run(&b);
    for (size_t s = 0; s < f.e->n_steps; s++) {
        const struct nd_quantised_layer *layer = &f.e->quantisation->layers[s];
        assert_false(layer->is_accused);
        assert_true(layer->cause == ND_LOSS_ROUNDING || layer->cause == ND_LOSS_NONE);
    }
    close_fixture(&f);
    nd_compose_destroy(&b.compose);
}

/* What is introduced and passed on, of which the sizes are known: one rounding, and one before it. */
static void rounding_has_the_size_of_a_step(void **state)
{
    (void)state;
    struct bench b;
    make_products(&b, 1);
    struct nd_quantised_tensor *wide = find_item(&b, "y");
    b.scales[wide - b.items][0] *= 4; /* 63 steps; the values are multiples of a quarter of a step */
    struct fixture f = run(&b);
    const struct nd_quantised_layer *x = quantised_layer_of(&f, "x"), *h = quantised_layer_of(&f, "h"),
                                    *y = quantised_layer_of(&f, "y");
    double step = 1.0 / 255;
    assert_true(fabs(x->introduced / (step * step / 12) - 1) < 0.05);
    assert_true(x->passed_on == 0);
    assert_true(h->introduced < 1e-3 * x->introduced); /* it multiplies by 1 */
    assert_true(fabs(h->passed_on / x->introduced - 1) < 1e-3);
    /* Quarters of a step: 0, 1/16, 1/4, 1/16 on average. */
    assert_true(fabs(y->introduced / (16 * step * step * 6 / 64) - 1) < 0.05);
    assert_true(fabs(y->total / (y->introduced + y->passed_on) - 1) < 0.05);
    assert_true(y->clipping == 0 && y->constants < 1e-3 * y->introduced);
    end(&b, &f);
}

static void clipping_is_named_and_a_wider_range_helps(void **state)
{
    (void)state;
    struct bench b;
    make_products(&b, 1);
    b.scales[find_item(&b, "h") - b.items][0] = 0.5f / 255;
    struct fixture f = run(&b);
    const struct nd_quantised_layer *layer = accused(&f, "h", ND_LOSS_CLIPPING);
    assert_true(fabs(layer->clipped_share - 0.5) < 0.01);
    const struct nd_remedy *remedy = remedy_of(layer, ND_REMEDY_RANGE);
    assert_true(fabs(remedy->high - 1) < 0.01);
    assert_range_gain(&b, &f, "h", remedy);
    end(&b, &f);
}

static void range_of_other_values_is_named(void **state)
{
    (void)state;
    struct bench b;
    make_products(&b, 1);
    b.scales[find_item(&b, "h") - b.items][0] = 10.0f / 255;
    struct fixture f = run(&b);
    const struct nd_quantised_layer *layer = accused(&f, "h", ND_LOSS_RANGE);
    assert_range_gain(&b, &f, "h", remedy_of(layer, ND_REMEDY_RANGE));
    end(&b, &f);
}

static void zero_point_in_the_middle_of_positive_values_is_named(void **state)
{
    (void)state;
    struct bench b;
    make_products(&b, 1);
    size_t k = (size_t)(find_item(&b, "h") - b.items);
    b.scales[k][0] = 2.0f / 255;
    b.zeros[k][0] = 127;
    struct fixture f = run(&b);
    const struct nd_quantised_layer *layer = accused(&f, "h", ND_LOSS_ZERO_POINT);
    /* Steps of 2/255 of values on a grid of 1/255: half of them are off by half a step. */
    assert_range_gain(&b, &f, "h", remedy_of(layer, ND_REMEDY_RANGE));
    end(&b, &f);
}

/* y = Softmax(8 x + m): every eighth element is masked. */
static void mask_constant_is_named(void **state)
{
    (void)state;
    static const float masks[] = {-3.4e38f, -1e9f, -1e4f, -3.4e38f};
    enum { N_MASKS = sizeof masks / sizeof masks[0] };
    for (size_t k = 0; k < N_MASKS; k++) {
        enum { N = 256 };
        float gains[N], m[N];
        struct bench b;
        begin(&b, N);
        for (size_t i = 0; i < N; i++) {
            gains[i] = 8;
            m[i] = i % 8 == 3 ? masks[k] : 0;
        }
        nd_compose_constant(b.compose, "c", ND_DTYPE_F32, &b.shape, gains);
        nd_compose_constant(b.compose, "m", ND_DTYPE_F32, &b.shape, m);
        node(&b, "Mul", "x", "c", "s");
        node(&b, "Add", "s", "m", "masked");
        nd_compose_node(b.compose, "Softmax", (const char *const[]){"masked", NULL}, "y");
        quantise(&b, "x", 0, 1);
        quantise(&b, "s", 0, 8);
        quantise(&b, "masked", (double)masks[k], 8);
        quantise(&b, "y", 0, 0.04);
        if (k + 1 == N_MASKS) /* the constant, too, whose rounding is larger than all other errors */
            quantise(&b, "m", (double)masks[k], 0);
        struct fixture f = run(&b);
        const struct nd_quantised_layer *layer = accused(&f, "masked", ND_LOSS_MASK);
        assert_true(fabs(layer->mask / (double)masks[k] - 1) < 0.01);
        assert_true(fabs(layer->mask_share - 0.125) < 0.01);
        const struct nd_remedy *remedy = remedy_of(layer, ND_REMEDY_RANGE);
        assert_true(remedy->low > -20 && remedy->output_gain_db > 10);
        assert_range_gain(&b, &f, "masked", remedy);
        end(&b, &f);
    }
}

/* ---- constants ---- */

enum { NARROW = 16 };

/* y = (x W + b) * d: column j of W has the size of sizes[j], and d takes that back. */
static void make_product_of_matrices(struct bench *b, const float *sizes, const float *bias, bool has_relu)
{
    float w[NARROW * NARROW], d[NARROW];
    struct nd_shape square = {.rank = 2, .dims = {NARROW, NARROW}}, row = {.rank = 1, .dims = {NARROW}};
    uint64_t seed = 3;
    begin(b, NARROW);
    for (size_t i = 0; i < NARROW * NARROW; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        w[i] = ((float)(seed >> 40) / 0x1p23f - 1) * sizes[i % NARROW];
    }
    for (size_t i = 0; i < NARROW; i++)
        d[i] = 1 / sizes[i];
    nd_compose_constant(b->compose, "w", ND_DTYPE_F32, &square, w);
    nd_compose_constant(b->compose, "b", ND_DTYPE_F32, &row, bias);
    nd_compose_constant(b->compose, "d", ND_DTYPE_F32, &row, d);
    nd_compose_node(b->compose, "Gemm", (const char *const[]){"x", "w", "b", NULL}, has_relu ? "sum" : "h");
    if (has_relu)
        nd_compose_node(b->compose, "Relu", (const char *const[]){"sum", NULL}, "h");
    node(b, "Mul", "h", "d", "y");
    quantise(b, "x", 0, 1);
}

static void set_weights(struct bench *b, const float *sizes, size_t n)
{
    struct nd_quantised_tensor *weights = item(b, "w", ND_DTYPE_I8, n);
    size_t k = (size_t)(weights - b->items);
    b->quants[k].axis = n > 1 ? 1 : -1;
    weights->has_axis = n > 1;
    for (size_t c = 0; c < n; c++)
        b->scales[k][c] = sizes[c] / 127;
}

static void one_scale_for_channels_far_apart_is_named(void **state)
{
    (void)state;
    float sizes[NARROW], bias[NARROW] = {0};
    struct bench b;
    for (size_t i = 0; i < NARROW; i++)
        sizes[i] = i % 2 == 0 ? 1 : 0.01f;
    make_product_of_matrices(&b, sizes, bias, false);
    set_weights(&b, sizes, 1);
    size_t weights = b.n_items - 1;
    /* 16 bits for h, of which columns of a hundredth need 100 times finer steps. */
    item(&b, "h", ND_DTYPE_U16, 1);
    b.scales[b.n_items - 1][0] = 16.0f / 65535;
    b.zeros[b.n_items - 1][0] = 32768;
    quantise(&b, "y", -8, 8);
    struct fixture f = run(&b);
    const struct nd_quantised_layer *layer = accused(&f, "h", ND_LOSS_WEIGHT_CHANNELS);
    assert_true(layer->weight_ratio > 80 && layer->weight_ratio < 130);
    const struct nd_remedy *remedy = remedy_of(layer, ND_REMEDY_WEIGHT_CHANNELS);
    double gain = remedy->output_gain_db;
    assert_true(gain > 10);
    /* As the remedy has them: a column's largest weight is its last quantised value. */
    b.quants[weights].n = NARROW;
    b.quants[weights].axis = 1;
    b.items[weights].has_axis = true;
    uint64_t seed = 3;
    double largest[NARROW] = {0};
    for (size_t i = 0; i < NARROW * NARROW; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float w = ((float)(seed >> 40) / 0x1p23f - 1) * sizes[i % NARROW];
        largest[i % NARROW] = fmax(largest[i % NARROW], fabs((double)w));
    }
    for (size_t c = 0; c < NARROW; c++)
        b.scales[weights][c] = (float)(largest[c] / 127);
    assert_gain(&b, &f, gain);
    end(&b, &f);
}

/* ONNX Runtime's quantiser leaves a Relu out where the range begins at 0: what is clipped there is no loss, and
 * no error of the weights. */
static void relu_that_a_range_replaces_is_no_clipping(void **state)
{
    (void)state;
    float sizes[NARROW], bias[NARROW] = {0};
    struct bench b, with_relu;
    for (size_t i = 0; i < NARROW; i++)
        sizes[i] = 1;
    make_product_of_matrices(&with_relu, sizes, bias, true);
    make_product_of_matrices(&b, sizes, bias, false);
    set_weights(&b, sizes, 1);
    quantise(&b, "h", 0, 8);
    quantise(&b, "y", 0, 8);
    struct fixture f = run_beside(&b, with_relu.compose);
    const struct nd_quantised_layer *layer = quantised_layer_of(&f, "h");
    print_message("# rounding %g, clipping %g, constants %g, together %g\n", layer->rounding, layer->clipping,
                  layer->constants, layer->introduced);
    assert_true(layer->introduced > 0 && layer->clipping == 0);
    assert_true(fabs((layer->rounding + layer->constants) / layer->introduced - 1) < 0.5);
    end(&b, &f);
    nd_compose_destroy(&with_relu.compose);
}

static void coarse_bias_is_named(void **state)
{
    (void)state;
    float sizes[NARROW], bias[NARROW];
    struct bench b;
    for (size_t i = 0; i < NARROW; i++) {
        sizes[i] = 1;
        bias[i] = (float)i / 7 - 1;
    }
    make_product_of_matrices(&b, sizes, bias, false);
    set_weights(&b, sizes, 1);
    float products = b.scales[0][0] * b.scales[b.n_items - 1][0];
    item(&b, "b", ND_DTYPE_I32, 1);
    size_t k = b.n_items - 1;
    b.scales[k][0] = 0.5f;
    quantise(&b, "h", -8, 8);
    quantise(&b, "y", -8, 8);
    struct fixture f = run(&b);
    const struct nd_quantised_layer *layer = accused(&f, "h", ND_LOSS_BIAS);
    assert_true(layer->bias_error > 0.1 && layer->bias_error < 0.2); /* 0.5 / sqrt(12) */
    double gain = remedy_of(layer, ND_REMEDY_BIAS)->output_gain_db;
    b.scales[k][0] = products;
    assert_gain(&b, &f, gain);
    end(&b, &f);
}

/* All weights are a third of a step too small, and x has the mean 1/2: the error of the weights is mostly a
 * shift. */
static void mean_error_of_weights_can_be_taken_back(void **state)
{
    (void)state;
    enum { N = 64 };
    static float w[N * N], bias[N];
    struct nd_shape square = {.rank = 2, .dims = {N, N}}, row = {.rank = 1, .dims = {N}};
    struct bench b;
    begin(&b, N);
    for (size_t i = 0; i < N * N; i++)
        w[i] = ((float)((int)(i * 7 % 11) - 5) + 1.0f / 3) / 127;
    nd_compose_constant(b.compose, "w", ND_DTYPE_F32, &square, w);
    nd_compose_constant(b.compose, "b", ND_DTYPE_F32, &row, bias);
    nd_compose_node(b.compose, "Gemm", (const char *const[]){"x", "w", "b", NULL}, "y");
    const float size = 1;
    item(&b, "x", ND_DTYPE_U16, 1);
    b.scales[0][0] = 1.0f / 65535;
    set_weights(&b, &size, 1);
    item(&b, "b", ND_DTYPE_I32, 1);
    b.scales[2][0] = 1.0f / 65535 / 127;
    item(&b, "y", ND_DTYPE_U16, 1);
    b.scales[3][0] = 8.0f / 65535;
    b.zeros[3][0] = 32768;
    struct fixture f = run(&b);
    const struct nd_quantised_layer *layer = quantised_layer_of(&f, "y");
    assert_string_equal(nd_loss_cause_name(layer->cause), "weight-rounding");
    /* The error is sum(x) / 3 / 127: its mean squared is (N / 2)^2, its variance N / 12, and that of the mean
     * of ten samples a tenth of it. */
    double expected = 10 * log10(1 + 3.0 * N), gain = remedy_of(layer, ND_REMEDY_BIAS_SHIFT)->output_gain_db;
    print_message("# said %+.2f dB, expected %+.2f dB\n", gain, expected);
    assert_true(gain > expected - 6 && gain < expected + 6);
    end(&b, &f);
}

/* ---- calibration ---- */

static void calibrations_know_an_outlier(void **state)
{
    (void)state;
    enum { N = 20000 };
    static float sorted[N];
    for (size_t i = 0; i < N; i++)
        sorted[i] = (float)i / N;
    sorted[N - 1] = 100;
    struct nd_range range = nd_calibrate(ND_CALIBRATE_MIN_MAX, sorted, N, 256);
    assert_true(range.low == 0 && range.high == 100);
    /* Percentiles forget it. Entropy cannot see below its bins, of which 256 are an eighth of the range. The
     * square of one error of 99 in 4096 is more than those of all steps of 100/255: mse keeps it. */
    static const double most[] = {[ND_CALIBRATE_PERCENTILE_9999] = 1.01,
                                  [ND_CALIBRATE_PERCENTILE_999] = 1,
                                  [ND_CALIBRATE_ENTROPY] = 50,
                                  [ND_CALIBRATE_MSE] = 100};
    for (int m = ND_CALIBRATE_PERCENTILE_9999; m < ND_N_CALIBRATIONS; m++) {
        range = nd_calibrate((enum nd_calibration)m, sorted, N, 256);
        print_message("# %s: %g to %g\n", nd_calibration_name((enum nd_calibration)m), range.low, range.high);
        assert_true(range.low < 1e-3 && range.high > 0.99 && range.high <= most[m]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(outlier_is_named_and_clipping_it_helps, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(healthy_model_is_not_accused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(rounding_has_the_size_of_a_step, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(clipping_is_named_and_a_wider_range_helps, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(range_of_other_values_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(zero_point_in_the_middle_of_positive_values_is_named, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(mask_constant_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(one_scale_for_channels_far_apart_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(relu_that_a_range_replaces_is_no_clipping, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(coarse_bias_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(mean_error_of_weights_can_be_taken_back, make_folder, remove_folder),
        cmocka_unit_test(calibrations_know_an_outlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
