/* Ways of the evaluation that cost less: each gives the bits of the plain way. */
#include "support/main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/random.h"
#include "model/rewrite/compose.h"
#include "support/scratch.h"

#define SHAPE(...)                                                                                             \
    ((struct nd_shape){.rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = {__VA_ARGS__}})

struct fixture {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_array found[8]; /* by tensor */
};

static enum nd_status keep(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    struct fixture *f = context;
    (void)method;
    assert_true(tensor < 8);
    return nd_array_copy(values, &f->found[tensor], err);
}

static void begin(struct fixture *f, struct nd_compose *c)
{
    struct nd_error err = {0};
    char *path = in_folder("model.onnx");
    *f = (struct fixture){0};
    if (nd_compose_write(c, path, &err) != ND_OK || nd_model_load(path, &f->model, &err) != ND_OK ||
        nd_exact_graph_create(f->model, &f->graph, &err) != ND_OK)
        fail_msg("%s", err.message);
    nd_compose_destroy(&c);
    free(path);
}

static void end(struct fixture *f)
{
    for (size_t e = 0; e < 8; e++)
        nd_array_deinit(&f->found[e]);
    nd_exact_graph_destroy(&f->graph);
    nd_model_destroy(&f->model);
}

static const struct nd_array *run(struct fixture *f, const struct nd_array *input, const char *name)
{
    struct nd_error err = {0};
    const struct nd_exact_options options = {.struct_size = sizeof options};
    if (nd_exact_graph_run(f->graph, input, &options, keep, f, &err) != ND_OK)
        fail_msg("%s", err.message);
    for (size_t e = 0; e < nd_model_n_tensors(f->model); e++)
        if (strcmp(nd_model_tensor(f->model, e)->name, name) == 0)
            return &f->found[e];
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static struct nd_compose *new_model(void)
{
    struct nd_compose *c = NULL;
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    return c;
}

/* ---- functions by quantised value ---- */

static double sigmoid(double x)
{
    double e = exp(-fabs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

static double expected_qvalue(double qvalue, const struct nd_quant *in, const struct nd_quant *out,
                              double least, double most)
{
    double real = (qvalue - (double)in->zero_point[0]) * (double)in->scale[0];
    double whole = rint(sigmoid(real) / (double)out->scale[0]) + (double)out->zero_point[0];
    return fmin(fmax(whole, least), most);
}

/* Twice, so that the second run has a table that is there, on as many elements as `n`. */
static void check_sigmoid(enum nd_dtype dtype, double least, double most, int64_t n, uint64_t seed)
{
    float scales[] = {(float)(16 / (most - least)), (float)(1 / (most - least))};
    int64_t zeros[] = {(int64_t)(least + most) / 2 + 7, (int64_t)least};
    const struct nd_quant in = {.n = 1, .axis = -1, .scale = &scales[0], .zero_point = &zeros[0]};
    const struct nd_quant out = {.n = 1, .axis = -1, .scale = &scales[1], .zero_point = &zeros[1]};
    struct nd_compose *c = new_model();
    nd_compose_input(c, "x", dtype, &SHAPE(1, n));
    nd_compose_dequantize(c, "x", "x.dq", &in, dtype);
    nd_compose_node(c, "Sigmoid", (const char *[]){"x.dq", NULL}, "s");
    nd_compose_quantize(c, "s", "y", &out, dtype);
    nd_compose_output(c, "y", dtype, &SHAPE(1, n));
    struct fixture f;
    struct nd_array x = {0};
    uint64_t random = seed;
    begin(&f, c);
    assert_int_equal(nd_array_make(&x, dtype, &SHAPE(1, n), NULL), ND_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < x.n; i++)
            x.x[i] = least + (double)(nd_random_next(&random) % ((uint64_t)(most - least) + 1));
        const struct nd_array *y = run(&f, &x, "y");
        assert_int_equal(y->n, x.n);
        for (size_t i = 0; i < x.n; i++)
            if (y->x[i] != expected_qvalue(x.x[i], &in, &out, least, most))
                fail_msg("quantised value %g: %g", x.x[i], y->x[i]);
    }
    nd_array_deinit(&x);
    end(&f);
}

static void functions_of_qvalues_have_the_values_of_their_operator(void **state)
{
    (void)state;
    for (int64_t n = 3; n < 10000; n = n * 12 + 5) { /* below and above what a table is made for */
        check_sigmoid(ND_DTYPE_U8, 0, 255, n, 1);
        check_sigmoid(ND_DTYPE_I8, -128, 127, n, 2);
        check_sigmoid(ND_DTYPE_U16, 0, 65535, n, 3);
        check_sigmoid(ND_DTYPE_I16, -32768, 32767, n, 4);
    }
}

/* ---- an operator of several layers ---- */

static struct nd_compose *two_layers(bool is_output)
{
    static float scales[] = {0.5f, 0.25f, 2.0f};
    static int64_t zeros[] = {10, 3, 100};
    struct nd_compose *c = new_model();
    struct nd_quant quants[3];
    for (size_t i = 0; i < 3; i++)
        quants[i] = (struct nd_quant){.n = 1, .axis = -1, .scale = &scales[i], .zero_point = &zeros[i]};
    nd_compose_input(c, "x", ND_DTYPE_U8, &SHAPE(1, 4));
    nd_compose_dequantize(c, "x", "x.dq", &quants[0], ND_DTYPE_U8);
    nd_compose_node(c, "Neg", (const char *[]){"x.dq", NULL}, "t");
    nd_compose_quantize(c, "t", "a", &quants[1], ND_DTYPE_U8);
    nd_compose_quantize(c, "t", "b", &quants[2], ND_DTYPE_U8);
    nd_compose_output(c, "a", ND_DTYPE_U8, &SHAPE(1, 4));
    nd_compose_output(c, "b", ND_DTYPE_U8, &SHAPE(1, 4));
    if (is_output)
        nd_compose_output(c, "t", ND_DTYPE_F32, &SHAPE(1, 4));
    return c;
}

static void an_operator_of_several_layers_does_not_make_a_graph_impure(void **state)
{
    static double qvalues[] = {0, 9, 10, 200};
    static const double a[] = {23, 5, 3, 0},
                        b[] = {102, 100, 100, 52}; /* -(x - 10) / 2 in steps, and clipped */
    struct nd_array x = {.shape = SHAPE(1, 4), .n = 4, .dtype = ND_DTYPE_U8, .x = qvalues};
    struct fixture f;
    (void)state;
    begin(&f, two_layers(false));
    assert_true(nd_exact_graph_is_pure(f.graph));
    assert_memory_equal(run(&f, &x, "a")->x, a, sizeof a);
    assert_memory_equal(run(&f, &x, "b")->x, b, sizeof b);
    end(&f);
    begin(&f, two_layers(true)); /* floats that somebody else reads */
    assert_false(nd_exact_graph_is_pure(f.graph));
    end(&f);
}

/* ---- products ---- */

static void fill(uint64_t *random, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)(nd_random_next(random) % 2001) - 1000) / 1024.0f;
}

static struct nd_array array_of(const struct nd_shape *shape, const float *x)
{
    struct nd_array array = {0};
    assert_int_equal(nd_array_make(&array, ND_DTYPE_F32, shape, NULL), ND_OK);
    for (size_t i = 0; i < array.n; i++)
        array.x[i] = (double)x[i];
    return array;
}

/* x[1][GROUPS * IN][H][W] by w[GROUPS * IN][OUT][KH][KW], strides KH and KW. */
enum { GROUPS = 2, IN = 5, OUT = 3, H = 4, W = 7, KH = 2, KW = 3 };

static void transposed_convolutions_whose_windows_do_not_overlap_are_products(void **state)
{
    (void)state;
    static float x[GROUPS * IN * H * W], w[GROUPS * IN * OUT * KH * KW];
    uint64_t random = 11;
    fill(&random, x, sizeof x / sizeof *x);
    fill(&random, w, sizeof w / sizeof *w);
    struct nd_compose *c = new_model();
    nd_compose_input(c, "x", ND_DTYPE_F32, &SHAPE(1, GROUPS * IN, H, W));
    nd_compose_constant(c, "w", ND_DTYPE_F32, &SHAPE(GROUPS * IN, OUT, KH, KW), w);
    nd_compose_node(c, "ConvTranspose", (const char *[]){"x", "w", NULL}, "y");
    nd_compose_attribute_ints(c, "strides", (const int64_t[]){KH, KW}, 2);
    nd_compose_attribute_i(c, "group", GROUPS);
    nd_compose_output(c, "y", ND_DTYPE_F32, &SHAPE(1, GROUPS * OUT, H * KH, W * KW));
    struct fixture f;
    begin(&f, c);
    struct nd_array input = array_of(&SHAPE(1, GROUPS * IN, H, W), x);
    const struct nd_array *y = run(&f, &input, "y");
    assert_int_equal(y->n, GROUPS * OUT * H * KH * W * KW);
    for (size_t i = 0; i < y->n; i++) {
        size_t column = i % (W * KW), row = i / (W * KW) % (H * KH), m = i / (W * KW * H * KH);
        size_t group = m / OUT, tap = row % KH * KW + column % KW;
        double sum = 0;
        for (size_t k = 0; k < IN; k++) {
            size_t channel = group * IN + k;
            double product = (double)w[(channel * OUT + m % OUT) * KH * KW + tap] *
                             (double)x[channel * H * W + row / KH * W + column / KW];
            sum += product;
        }
        assert_true(y->x[i] == sum);
    }
    nd_array_deinit(&input);
    end(&f);
}

/* Rows of a product with a transpose: few are multiplied as it lies there, many after it was transposed. */
static void products_of_few_rows_have_the_same_bits(void **state)
{
    enum { INNER = 37, COLUMNS = 21, MOST = 5 };
    (void)state;
    static float a[MOST * INNER], b[COLUMNS * INNER];
    double first[COLUMNS] = {0};
    uint64_t random = 12;
    fill(&random, a, sizeof a / sizeof *a);
    fill(&random, b, sizeof b / sizeof *b);
    for (int64_t n = MOST; n > 0; n--) {
        struct nd_compose *c = new_model();
        nd_compose_input(c, "x", ND_DTYPE_F32, &SHAPE(n, INNER));
        nd_compose_constant(c, "w", ND_DTYPE_F32, &SHAPE(COLUMNS, INNER), b);
        nd_compose_node(c, "Gemm", (const char *[]){"x", "w", NULL}, "y");
        nd_compose_attribute_i(c, "transB", 1);
        nd_compose_output(c, "y", ND_DTYPE_F32, &SHAPE(n, COLUMNS));
        struct fixture f;
        begin(&f, c);
        struct nd_array input = array_of(&SHAPE(n, INNER), a);
        const struct nd_array *y = run(&f, &input, "y");
        if (n == MOST)
            memcpy(first, y->x, sizeof first);
        assert_memory_equal(y->x, first, sizeof first);
        nd_array_deinit(&input);
        end(&f);
    }
}

/* ---- weights that are no numbers ---- */

enum { N_IN = 2, N_OUT = 4, N_TAPS = 9 };

/* Without the padding, which infinity would make a NaN of. */
static double inside_sum(const float *weights, const struct nd_array *x, int64_t size, int64_t at)
{
    double sum = 0;
    int64_t m = at / (size * size), row = at / size % size, column = at % size;
    for (int64_t c = 0; c < N_IN; c++)
        for (int64_t t = 0; t < N_TAPS; t++) {
            int64_t i = row + t / 3 - 1, j = column + t % 3 - 1;
            if (i >= 0 && i < size && j >= 0 && j < size)
                sum += (double)weights[(m * N_IN + c) * N_TAPS + t] * x->x[(c * size + i) * size + j];
        }
    return sum;
}

/* Of outputs that are fewer than the weights, and of more. */
static void check_infinite_weight(int64_t size)
{
    float weights[N_OUT * N_IN * N_TAPS];
    struct nd_compose *c = new_model();
    struct nd_array x = {0};
    struct fixture f;
    for (size_t i = 0; i < N_OUT * N_IN * N_TAPS; i++)
        weights[i] = (float)(i % 7) - 3;
    weights[2 * N_IN * N_TAPS] = INFINITY; /* the first tap of the third channel */
    nd_compose_input(c, "x", ND_DTYPE_F32, &SHAPE(1, N_IN, size, size));
    nd_compose_constant(c, "w", ND_DTYPE_F32, &SHAPE(N_OUT, N_IN, 3, 3), weights);
    nd_compose_node(c, "Conv", (const char *[]){"x", "w", NULL}, "y");
    nd_compose_attribute_ints(c, "pads", (const int64_t[]){1, 1, 1, 1}, 4);
    nd_compose_output(c, "y", ND_DTYPE_F32, &SHAPE(1, N_OUT, size, size));
    begin(&f, c);
    assert_int_equal(nd_array_make(&x, ND_DTYPE_F32, &SHAPE(1, N_IN, size, size), NULL), ND_OK);
    for (size_t i = 0; i < x.n; i++)
        x.x[i] = (double)(i % 5) - 1;
    const struct nd_array *y = run(&f, &x, "y");
    for (size_t i = 0; i < y->n; i++) {
        double wanted = inside_sum(weights, &x, size, (int64_t)i);
        assert_true(isnan(wanted) ? isnan(y->x[i]) : y->x[i] == wanted);
    }
    nd_array_deinit(&x);
    end(&f);
}

static void weights_that_are_no_numbers_do_not_meet_the_padding(void **state)
{
    (void)state;
    check_infinite_weight(3);
    check_infinite_weight(9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(functions_of_qvalues_have_the_values_of_their_operator, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(an_operator_of_several_layers_does_not_make_a_graph_impure, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(transposed_convolutions_whose_windows_do_not_overlap_are_products,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(products_of_few_rows_have_the_same_bits, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(weights_that_are_no_numbers_do_not_meet_the_padding, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
