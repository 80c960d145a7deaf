/* What a product gives when the scales of its weights are taken along another axis: sums by hand. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>

#include "arithmetic/variants/changed_constants.h"
#include "support/assert_text.h"
#include "support/linear_case.h"

enum { N = 3, ROWS = 4 };

static const float scales[N] = {0.5f, 0.25f, 2};
static const int64_t zeros[N] = {0, 1, -2};

/* x[ROWS][N] times w[N][N]; as a Conv: N channels, ROWS places. */
struct product {
    double x[ROWS * N], w[N * N], bias[N];
    struct nd_array arrays[3];
    struct nd_quant x_quant, w_quant, y_quant;
    float x_scale, y_scale;
    int64_t x_zero, y_zero;
    struct nd_linear_input inputs[3];
    struct node node;
    struct nd_linear_call call;
    enum nd_exact_origin origins[3];
    size_t tensors[3];
    struct nd_exact_layer layer;
    char text[ND_CONSTANTS_TEXT_BYTES];
};

static void prepare(struct product *p, const char *op_type, const struct nd_shape *x, const struct nd_shape *w,
                    int axis)
{
    for (size_t i = 0; i < ROWS * N; i++)
        p->x[i] = (double)pick(0, 255);
    for (size_t i = 0; i < N * N; i++)
        p->w[i] = (double)pick(-127, 127);
    p->x_scale = 0.125f;
    p->y_scale = 3;
    p->x_zero = 100;
    p->y_zero = 90;
    p->x_quant = (struct nd_quant){.n = 1, .axis = -1, .scale = &p->x_scale, .zero_point = &p->x_zero};
    p->y_quant = (struct nd_quant){.n = 1, .axis = -1, .scale = &p->y_scale, .zero_point = &p->y_zero};
    p->w_quant =
        (struct nd_quant){.n = N, .axis = axis, .scale = (float *)scales, .zero_point = (int64_t *)zeros};
    p->arrays[0] = (struct nd_array){.dtype = ND_DTYPE_U8, .shape = *x, .n = ROWS * N, .x = p->x};
    p->arrays[1] = (struct nd_array){.dtype = ND_DTYPE_I8, .shape = *w, .n = N * N, .x = p->w};
    p->inputs[0] = (struct nd_linear_input){.values = &p->arrays[0], .quant = &p->x_quant};
    p->inputs[1] = (struct nd_linear_input){.values = &p->arrays[1], .quant = &p->w_quant};
    node_begin(&p->node, op_type, 1);
    p->call = (struct nd_linear_call){.node = &p->node.proto,
                                      .opset = 21,
                                      .n_inputs = 2,
                                      .inputs = p->inputs,
                                      .low = -HUGE_VAL,
                                      .high = HUGE_VAL,
                                      .out_quant = &p->y_quant};
    p->tensors[0] = 0;
    p->tensors[1] = SIZE_MAX;
    p->origins[0] = ND_EXACT_FROM_LAYER;
    p->origins[1] = ND_EXACT_FROM_CONSTANT;
    p->layer = (struct nd_exact_layer){
        .call = &p->call, .origins = p->origins, .input_tensors = p->tensors, .dtype = ND_DTYPE_U8};
}

static double qvalue_of(const struct product *p, double real)
{
    return fmin(fmax(nd_round_value(real / (double)p->y_scale, ND_ROUND_HALF_EVEN) + (double)p->y_zero, 0),
                255);
}

static const struct nd_rounding_rule half_even = {.kind = ND_ROUNDED_ONCE, .rounding = ND_ROUND_HALF_EVEN};

static void run(struct product *p, struct nd_array *qvalues)
{
    static const struct nd_changed_constants change = {.kind = ND_CONSTANTS_SCALES_AXIS, .channel = SIZE_MAX};
    struct nd_error err = {0};
    assert_int_equal(nd_layer_changed(&p->layer, NULL, &half_even, &change, qvalues, &err), ND_OK);
    if (qvalues->n > 0)
        nd_layer_changed_text(&p->layer, &change, p->text);
}

/* The scales belong to the columns; they are taken along the rows, which are summed over. */
static void rows_of_a_matrix_take_the_scales_of_its_columns(void **state)
{
    (void)state;
    for (int trial = 0; trial < 20; trial++) {
        struct product p;
        struct nd_array qvalues;
        prepare(&p, trial % 2 == 0 ? "MatMul" : "Gemm", &(struct nd_shape){2, {ROWS, N}},
                &(struct nd_shape){2, {N, N}}, trial % 4 < 2 ? 1 : -1);
        run(&p, &qvalues);
        assert_int_equal(qvalues.n, ROWS * N);
        assert_has(p.text, "along axis 0; they belong to axis 1");
        for (size_t r = 0; r < ROWS; r++)
            for (size_t c = 0; c < N; c++) {
                double sum = 0;
                for (size_t k = 0; k < N; k++)
                    sum += (p.x[r * N + k] - 100) * 0.125 * (p.w[k * N + c] - (double)zeros[k]) *
                           (double)scales[k];
                assert_true(qvalues.x[r * N + c] == qvalue_of(&p, sum));
            }
        nd_array_deinit(&qvalues);
    }
}

static void input_channels_of_a_conv_take_the_scales_of_its_outputs(void **state)
{
    (void)state;
    struct product p;
    struct nd_array qvalues;
    prepare(&p, "Conv", &(struct nd_shape){4, {1, N, ROWS, 1}}, &(struct nd_shape){4, {N, N, 1, 1}}, 0);
    p.call.low = 0; /* a Relu follows */
    run(&p, &qvalues);
    assert_int_equal(qvalues.n, ROWS * N);
    assert_has(p.text, "along axis 1; they belong to axis 0");
    for (size_t o = 0; o < N; o++)
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (size_t k = 0; k < N; k++)
                sum +=
                    (p.x[k * ROWS + r] - 100) * 0.125 * (p.w[o * N + k] - (double)zeros[k]) * (double)scales[k];
            assert_true(qvalues.x[o * ROWS + r] == qvalue_of(&p, fmax(sum, 0)));
        }
    nd_array_deinit(&qvalues);
}

static void what_cannot_be_taken_otherwise_is_left_alone(void **state)
{
    (void)state;
    const struct nd_shape x = {2, {ROWS, N}}, square = {2, {N, N}};
    for (int trial = 0; trial < 5; trial++) {
        struct product p;
        struct nd_array qvalues;
        struct nd_shape w = square;
        prepare(&p, trial == 0 ? "Add" : "MatMul", &x, &w, 1);
        if (trial == 1)
            p.w_quant.n = 1;
        if (trial == 2)
            p.origins[1] = ND_EXACT_FROM_LAYER;
        if (trial == 3)
            p.arrays[1].shape = (struct nd_shape){2, {1, N}};
        if (trial == 4)
            p.inputs[1].quant = NULL;
        run(&p, &qvalues);
        assert_int_equal(qvalues.n, 0);
        nd_array_deinit(&qvalues);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_matrix_take_the_scales_of_its_columns),
        cmocka_unit_test(input_channels_of_a_conv_take_the_scales_of_its_outputs),
        cmocka_unit_test(what_cannot_be_taken_otherwise_is_left_alone),
    };
    return cmocka_run_group_tests(tests, set_seed, NULL);
}
