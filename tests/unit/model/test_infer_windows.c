/* Shapes of windows and of Resize. */
#include "support/main.h"

#include <math.h>

#include "model/graph/infer.h"
#include "model/rewrite/compose.h"
#include "npudiff/model/model.h"
#include "support/infer_model.h"
#include "support/scratch.h"

static struct nd_compose *resize_by(struct nd_shape x, const float *scales, size_t n)
{
    struct nd_compose *c = begin(x);
    nd_compose_constant(c, "scales", ND_DTYPE_F32, &SHAPE((int64_t)n), scales);
    nd_compose_node(c, "Resize", (const char *[]){"x", "", "scales", NULL}, "y");
    return c;
}

static void scales_multiply_as_floats_and_round_down(void **state)
{
    (void)state;
    expect_y(resize_by(SHAPE(1, 3, 5, 10), (const float[]){1, 1, 2.5f, 0.7f}, 4), SHAPE(1, 3, 12, 7));
    expect_y(resize_by(SHAPE(3), (const float[]){1.0f / 3}, 1), SHAPE(1));
    struct nd_compose *c = begin(SHAPE(4, 4)); /* operator set 10 */
    nd_compose_constant(c, "scales", ND_DTYPE_F32, &SHAPE(2), (const float[]){2, 0.5f});
    nd_compose_node(c, "Resize", (const char *[]){"x", "scales", NULL}, "y");
    expect_y(c, SHAPE(8, 2));
    c = resize_by(SHAPE(4, 4), (const float[]){3}, 1);
    nd_compose_attribute_ints(c, "axes", INTS(-1), 1);
    expect_y(c, SHAPE(4, 12));
}

static void scales_that_make_no_sense_are_unknown(void **state)
{
    static const float scales[] = {0, -1, (float)INFINITY, (float)NAN, 1e30f};
    (void)state;
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        expect_y(resize_by(SHAPE(4), &scales[i], 1), unknown);
    expect_y(resize_by(SHAPE(4, 4), (const float[]){2}, 1), unknown);
    struct nd_compose *c = resize_by(SHAPE(4), (const float[]){2}, 1);
    nd_compose_attribute_s(c, "coordinate_transformation_mode", "tf_crop_and_resize");
    expect_y(c, unknown);
}

/* Sizes with a policy that keeps the aspect ratio are bounds only. */
static void sizes_are_taken_unless_they_are_bounds(void **state)
{
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct nd_compose *c = begin(SHAPE(1, 4, 6));
        nd_compose_constant(c, "scales", ND_DTYPE_F32, &SHAPE(0), "");
        add_integers(c, "sizes", INTS(1, 9, 9), 3);
        nd_compose_node(c, "Resize", (const char *[]){"x", "", "scales", "sizes", NULL}, "y");
        nd_compose_attribute_s(c, "keep_aspect_ratio_policy", policies[i]);
        expect_y(c, i == 0 ? SHAPE(1, 9, 9) : unknown);
    }
    struct nd_compose *c = begin(SHAPE(1, 4, 6));
    nd_compose_constant(c, "scales", ND_DTYPE_F32, &SHAPE(3), (const float[]){1, 1, 1});
    add_integers(c, "sizes", INTS(1, 9, 9), 3);
    nd_compose_node(c, "Resize", (const char *[]){"x", "", "scales", "sizes", NULL}, "y");
    expect_y(c, unknown); /* both, which is not allowed */
}

static struct nd_compose *pool(int64_t n, int64_t k, int64_t stride)
{
    struct nd_compose *c = begin(SHAPE(1, 1, n));
    nd_compose_node(c, "MaxPool", (const char *[]){"x", NULL}, "y");
    nd_compose_attribute_ints(c, "kernel_shape", &k, 1);
    nd_compose_attribute_ints(c, "strides", &stride, 1);
    return c;
}

/* A last window over the rest counts unless it would begin behind the values. */
static void pooling_rounds_up_where_it_is_told_to(void **state)
{
    static const int64_t rows[][4] = {{7, 2, 2, 4}, {6, 2, 2, 3}, {2, 1, 2, 1}, {5, 2, 3, 2}, {4, 1, 3, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct nd_compose *c = pool(rows[i][0], rows[i][1], rows[i][2]);
        nd_compose_attribute_i(c, "ceil_mode", 1);
        expect_y(c, SHAPE(1, 1, rows[i][3]));
    }
    struct nd_compose *c = pool(7, 2, INT64_MAX);
    nd_compose_attribute_s(c, "auto_pad", "SAME_UPPER");
    expect_y(c, unknown);
}

static struct nd_compose *transposed(int64_t k)
{
    static const float weights[12];
    struct nd_compose *c = begin(SHAPE(1, 2, 4));
    nd_compose_constant(c, "w", ND_DTYPE_F32, &SHAPE(2, 3, k), weights);
    nd_compose_node(c, "ConvTranspose", (const char *[]){"x", "w", NULL}, "y");
    nd_compose_attribute_ints(c, "strides", INTS(2), 1);
    return c;
}

static void transposed_convolutions_count_what_pads_and_padding_leave(void **state)
{
    (void)state;
    expect_y(transposed(2), SHAPE(1, 3, 8));
    struct nd_compose *c = transposed(2);
    nd_compose_attribute_ints(c, "pads", INTS(1, 0), 2);
    nd_compose_attribute_ints(c, "output_padding", INTS(1), 1);
    expect_y(c, SHAPE(1, 3, 8));
    c = transposed(2);
    nd_compose_attribute_ints(c, "pads", INTS(INT64_MAX, INT64_MAX), 2);
    expect_y(c, unknown);
    c = transposed(2);
    nd_compose_attribute_s(c, "auto_pad", "SAME_UPPER");
    expect_y(c, SHAPE(1, 3, 8));
    c = transposed(1); /* where standard and runtime do not agree: 8 or 7 */
    nd_compose_attribute_s(c, "auto_pad", "SAME_UPPER");
    expect_y(c, unknown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(scales_multiply_as_floats_and_round_down),
        TEST(scales_that_make_no_sense_are_unknown),
        TEST(sizes_are_taken_unless_they_are_bounds),
        TEST(pooling_rounds_up_where_it_is_told_to),
        TEST(transposed_convolutions_count_what_pads_and_padding_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
