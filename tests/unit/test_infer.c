/* Shapes and types that a model does not declare. Sizes expected here are those that ONNX Runtime shows. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/infer.h"
#include "model/names.h"
#include "npudiff/model.h"
#include "rewrite/compose.h"
#include "support/scratch.h"

#define INTS(...) ((const int64_t[]){__VA_ARGS__})
#define SHAPE(...)                                                                                             \
    ((struct nd_shape){.rank = sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = {__VA_ARGS__}})

static const struct nd_shape unknown = {.rank = -1};

static void add_integers(struct nd_compose *c, const char *name, const int64_t *values, size_t n)
{
    nd_compose_constant(c, name, ND_DTYPE_I64, &(struct nd_shape){1, {(int64_t)n}}, values);
}

/* A model with input x, of which the caller makes y: nothing but x and the constants is declared. */
static struct nd_compose *begin(struct nd_shape x)
{
    struct nd_compose *c = NULL;
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_F32, &x);
    return c;
}

/* Loads the model and forgets what it declares of tensors that nodes make; *declared keeps it. */
static struct nd_model *load_blind(const char *path, struct nd_tensor_info **infos,
                                   struct nd_tensor_info **declared)
{
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    expect_ok(nd_model_load(path, &model, &err), &err);
    size_t n = model->graph.n_tensors;
    *infos = calloc(n, sizeof **infos);
    *declared = calloc(n, sizeof **declared);
    assert_true(*infos != NULL && *declared != NULL);
    nd_infer_declared(model, *declared);
    for (size_t t = 0; t < n; t++)
        (*infos)[t] = model->graph.tensors[t].producer == ND_NO_INDEX
                          ? (*declared)[t]
                          : (struct nd_tensor_info){.shape = unknown};
    nd_infer_propagate(model, *infos);
    return model;
}

static void assert_shape(const char *what, const struct nd_shape *shape, const struct nd_shape *want)
{
    bool is_same = shape->rank == want->rank;
    for (int i = 0; is_same && i < want->rank; i++)
        is_same = shape->dims[i] == want->dims[i];
    if (!is_same) {
        print_message("# %s: rank %d", what, shape->rank);
        for (int i = 0; i < shape->rank; i++)
            print_message(" %lld", (long long)shape->dims[i]);
        print_message("\n");
    }
    assert_true(is_same);
}

static struct nd_tensor_info info_in(const char *path, const char *tensor)
{
    struct nd_tensor_info *infos, *declared;
    struct nd_model *model = load_blind(path, &infos, &declared);
    size_t at = nd_names_find(&model->graph.names, tensor);
    assert_true(at != SIZE_MAX);
    struct nd_tensor_info info = infos[at];
    free(infos);
    free(declared);
    nd_model_destroy(&model);
    return info;
}

/* Ends what begin() began: what is known of y. */
static void expect_y(struct nd_compose *c, struct nd_shape want)
{
    struct nd_error err = {0};
    char *path = in_folder("model.onnx");
    expect_ok(nd_compose_write(c, path, &err), &err);
    struct nd_tensor_info info = info_in(path, "y");
    assert_shape("y", &info.shape, &want);
    assert_int_equal(info.dtype, ND_DTYPE_F32);
    nd_compose_destroy(&c);
    free(path);
}

/* ---- whole models ---- */

/* From inputs and constants alone what the golden models declare must follow. */
static void golden_models_are_inferred_as_they_are_declared(void **state)
{
    static const struct {
        const char *name;
        size_t n_declared; /* tensors that nodes make */
    } models[] = {
        {"cnn.float", 13},
        {"cnn.w8a8", 9},
        {"cnn.w8a16", 9},
        {"vit.float", 63},
        {"vit.w8a8", 63},
        {"vit.w8a16", 63},
        {"random-residual.u8", 58},
        {"random-residual.float", 17},
        {"random-attention.w8a8", 61},
        {"random-attention.float", 17},
    };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[4096];
        size_t n_checked = 0;
        struct nd_tensor_info *infos, *declared;
        assert_true(snprintf(path, sizeof path, "%s/models/%s.onnx", getenv("GOLDEN"), models[i].name) <
                    (int)sizeof path);
        struct nd_model *model = load_blind(path, &infos, &declared);
        for (size_t t = 0; t < model->graph.n_tensors; t++) {
            if (model->graph.tensors[t].producer == ND_NO_INDEX || declared[t].shape.rank < 0)
                continue;
            assert_shape(model->graph.tensors[t].name, &infos[t].shape, &declared[t].shape);
            assert_int_equal(infos[t].dtype, declared[t].dtype);
            n_checked++;
        }
        assert_int_equal(n_checked, models[i].n_declared);
        free(infos);
        free(declared);
        nd_model_destroy(&model);
    }
}

/* ---- Slice ---- */

struct slice_row {
    int64_t start, end, step, size; /* of 10; size -1: not known */
};

static void slices_have_the_size_that_numpy_gives_them(void **state)
{
    static const struct slice_row rows[] = {
        {0, 10, 1, 10},
        {2, 5, 1, 3},
        {-3, INT64_MAX, 1, 3},
        {-100, 100, 3, 4},
        {5, 5, 1, 0},
        {7, 2, 1, 0},
        {9, 0, -1, 9},
        {9, INT64_MIN, -1, 10},
        {-1, -11, -3, 4},
        {INT64_MAX, INT64_MIN, INT64_MIN, 1},
        {INT64_MIN, INT64_MAX, INT64_MAX, 1},
        {0, 10, 0, -1},
        {9, INT64_MAX, -1, -1}, /* runtimes do not agree */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct nd_compose *c = begin(SHAPE(2, 10, 3));
        add_integers(c, "start", &rows[i].start, 1);
        add_integers(c, "end", &rows[i].end, 1);
        add_integers(c, "axis", INTS(-2), 1);
        add_integers(c, "step", &rows[i].step, 1);
        nd_compose_node(c, "Slice", (const char *[]){"x", "start", "end", "axis", "step", NULL}, "y");
        expect_y(c, rows[i].size < 0 ? unknown : SHAPE(2, rows[i].size, 3));
    }
}

/* 32 bits wide, of the first axes; as attributes, as before operator set 10. */
static void slices_are_understood_however_they_are_given(void **state)
{
    (void)state;
    struct nd_compose *c = begin(SHAPE(4, 5, 6));
    nd_compose_constant(c, "start", ND_DTYPE_I32, &SHAPE(2), (const int32_t[]){1, -2});
    nd_compose_constant(c, "end", ND_DTYPE_I32, &SHAPE(2), (const int32_t[]){3, INT32_MAX});
    nd_compose_node(c, "Slice", (const char *[]){"x", "start", "end", NULL}, "y");
    expect_y(c, SHAPE(2, 2, 6));
    c = begin(SHAPE(4, 5, 6));
    nd_compose_node(c, "Slice", (const char *[]){"x", NULL}, "y");
    nd_compose_attribute_ints(c, "starts", INTS(1), 1);
    nd_compose_attribute_ints(c, "ends", INTS(-1), 1);
    nd_compose_attribute_ints(c, "axes", INTS(2), 1);
    expect_y(c, SHAPE(4, 5, 4));
}

static void slices_by_what_is_no_constant_or_no_axis_are_unknown(void **state)
{
    (void)state;
    struct nd_compose *c = begin(SHAPE(4, 5));
    nd_compose_input(c, "start", ND_DTYPE_I64, &SHAPE(1));
    add_integers(c, "end", INTS(3), 1);
    nd_compose_node(c, "Slice", (const char *[]){"x", "start", "end", NULL}, "y");
    expect_y(c, unknown);
    static const int64_t axes[][2] = {{0, 2}, {-3, 0}, {1, -1}, {INT64_MIN, INT64_MAX}};
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        c = begin(SHAPE(4, 5));
        add_integers(c, "start", INTS(0, 0), 2);
        add_integers(c, "end", INTS(1, 1), 2);
        add_integers(c, "axes", axes[i], 2);
        nd_compose_node(c, "Slice", (const char *[]){"x", "start", "end", "axes", NULL}, "y");
        expect_y(c, unknown);
    }
    c = begin(SHAPE(4, 5)); /* more starts than ends */
    add_integers(c, "start", INTS(0, 0), 2);
    add_integers(c, "end", INTS(1), 1);
    nd_compose_node(c, "Slice", (const char *[]){"x", "start", "end", NULL}, "y");
    expect_y(c, unknown);
}

/* ---- Split ---- */

/* Writes what was composed with the outputs y0 .. y<n - 1> for the only node, since compose gives it one. */
static void write_with_outputs(struct nd_compose *c, const char *path, size_t n)
{
    static char names[][4] = {"y0", "y1", "y2", "y3", "y4"};
    char *outputs[sizeof names / sizeof names[0]];
    void *bytes;
    size_t size_bytes;
    assert_true(n <= sizeof names / sizeof names[0]);
    for (size_t i = 0; i < n; i++)
        outputs[i] = names[i];
    assert_int_equal(nd_compose_write(c, path, NULL), ND_OK);
    assert_int_equal(nd_file_read(path, 1 << 20, &bytes, &size_bytes, NULL), ND_OK);
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, size_bytes, bytes);
    free(bytes);
    assert_non_null(model);
    Onnx__NodeProto *node = model->graph->node[0];
    char **kept = node->output;
    node->output = outputs;
    node->n_output = n;
    size_bytes = onnx__model_proto__get_packed_size(model);
    bytes = malloc(size_bytes);
    assert_non_null(bytes);
    onnx__model_proto__pack(model, bytes);
    node->output = kept;
    node->n_output = 1;
    onnx__model_proto__free_unpacked(model, NULL);
    assert_int_equal(nd_file_put(path, bytes, size_bytes, NULL), ND_OK);
    free(bytes);
}

struct split_row {
    int64_t whole;
    size_t n;
    int64_t n_given; /* of sizes; 0: none */
    int64_t sizes[4];
    int64_t num_outputs; /* 0: no such attribute */
    int64_t want[4];     /* -1: not known */
};

static void expect_split(const struct split_row *row, bool is_attribute)
{
    struct nd_compose *c = begin(SHAPE(2, row->whole));
    bool has_sizes = row->n_given > 0;
    if (has_sizes && !is_attribute)
        add_integers(c, "sizes", row->sizes, (size_t)row->n_given);
    nd_compose_node(c, "Split", (const char *[]){"x", has_sizes && !is_attribute ? "sizes" : NULL, NULL}, "y0");
    nd_compose_attribute_i(c, "axis", -1);
    if (has_sizes && is_attribute)
        nd_compose_attribute_ints(c, "split", row->sizes, (size_t)row->n_given);
    if (row->num_outputs > 0)
        nd_compose_attribute_i(c, "num_outputs", row->num_outputs);
    char *path = in_folder("split.onnx");
    write_with_outputs(c, path, row->n);
    for (size_t i = 0; i < row->n; i++) {
        struct nd_tensor_info info = info_in(path, (const char *[]){"y0", "y1", "y2", "y3"}[i]);
        assert_shape("part", &info.shape, row->want[i] < 0 ? &unknown : &SHAPE(2, row->want[i]));
        assert_int_equal(info.dtype, ND_DTYPE_F32);
    }
    nd_compose_destroy(&c);
    free(path);
}

static void every_part_of_a_split_is_known(void **state)
{
    static const struct split_row rows[] = {
        {9, 3, 0, {0}, 0, {3, 3, 3}},
        {9, 3, 3, {2, 0, 7}, 0, {2, 0, 7}},
        {10, 4, 0, {0}, 4, {3, 3, 3, 1}},
        {8, 4, 0, {0}, 4, {2, 2, 2, 2}},
        {7, 1, 0, {0}, 1, {7}},
        {10, 4, 0, {0}, 0, {-1, -1, -1, -1}},  /* uneven, and nothing says that it may be */
        {5, 4, 0, {0}, 4, {-1, -1, -1, -1}},   /* 2 + 2 + 2 is too many */
        {4, 3, 0, {0}, 3, {-1, -1, -1}},       /* 2 + 2 leaves nothing */
        {8, 4, 0, {0}, 3, {-1, -1, -1, -1}},   /* another number of outputs */
        {9, 3, 3, {2, 0, 6}, 0, {-1, -1, -1}}, /* not the whole */
        {9, 3, 2, {2, 7}, 0, {-1, -1, -1}},
        {9, 2, 2, {10, -1}, 0, {-1, -1}},
        {9, 2, 2, {INT64_MAX, INT64_MAX}, 0, {-1, -1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_split(&rows[i], false);
        expect_split(&rows[i], true);
    }
}

/* ---- Pad ---- */

static void pads_add_and_cut(void **state)
{
    (void)state;
    struct nd_compose *c = begin(SHAPE(1, 4, 6));
    add_integers(c, "pads", INTS(0, 1, 2, 0, 3, -4), 6);
    nd_compose_node(c, "Pad", (const char *[]){"x", "pads", NULL}, "y");
    expect_y(c, SHAPE(1, 8, 4));
    c = begin(SHAPE(1, 4, 6));
    add_integers(c, "pads", INTS(1, 2, 3, 4), 4);
    add_integers(c, "axes", INTS(-1, 0), 2);
    nd_compose_node(c, "Pad", (const char *[]){"x", "pads", "", "axes", NULL}, "y");
    expect_y(c, SHAPE(7, 4, 10));
    c = begin(SHAPE(2, 2));
    nd_compose_node(c, "Pad", (const char *[]){"x", NULL}, "y"); /* operator set 2 */
    nd_compose_attribute_ints(c, "pads", INTS(0, 0, 1, 1), 4);
    expect_y(c, SHAPE(3, 3));
}

static void pads_that_do_not_fit_are_unknown(void **state)
{
    static const int64_t rows[][4] = {{0, -2, 0, -3}, {INT64_MAX, 0, INT64_MAX, 0}, {INT64_MIN, 0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct nd_compose *c = begin(SHAPE(4, 4));
        add_integers(c, "pads", rows[i], 4);
        nd_compose_node(c, "Pad", (const char *[]){"x", "pads", NULL}, "y");
        expect_y(c, unknown);
    }
    for (size_t n = 1; n < 4; n++) { /* too few */
        struct nd_compose *c = begin(SHAPE(4, 4));
        add_integers(c, "pads", INTS(1, 1, 1), n);
        nd_compose_node(c, "Pad", (const char *[]){"x", "pads", NULL}, "y");
        expect_y(c, unknown);
    }
}

/* ---- Resize ---- */

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

/* ---- windows ---- */

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

/* ---- the others that move data ---- */

static void einsum_of_an_absurd_dimension_is_unknown(void **state)
{
    static const int64_t sizes[] = {5, INT64_MAX};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct nd_compose *c = begin(SHAPE(2, sizes[i]));
        nd_compose_node(c, "Einsum", (const char *[]){"x", NULL}, "y");
        nd_compose_attribute_s(c, "equation", "ij->ji");
        expect_y(c, i == 0 ? SHAPE(5, 2) : unknown);
    }
}

static void operators_nobody_knows_leave_their_output_unknown(void **state)
{
    (void)state;
    struct nd_compose *c = begin(SHAPE(4));
    nd_compose_node(c, "NonZero", (const char *[]){"x", NULL}, "middle");
    nd_compose_node(c, "Relu", (const char *[]){"middle", NULL}, "y");
    expect_y(c, unknown);
}

/* A rule for all that begin with Reduce, and none for what only begins like another operator. */
static void operators_are_told_by_their_whole_name(void **state)
{
    (void)state;
    struct nd_compose *c = begin(SHAPE(4, 5));
    nd_compose_node(c, "ReduceLogSumExp", (const char *[]){"x", NULL}, "y");
    nd_compose_attribute_ints(c, "axes", INTS(1), 1);
    nd_compose_attribute_i(c, "keepdims", 0);
    expect_y(c, SHAPE(4));
    c = begin(SHAPE(4, 5));
    nd_compose_node(c, "TransposeAll", (const char *[]){"x", NULL}, "y");
    expect_y(c, unknown);
    c = begin(SHAPE(4, 5));
    nd_compose_node(c, "Trans", (const char *[]){"x", NULL}, "y");
    expect_y(c, unknown);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(golden_models_are_inferred_as_they_are_declared),
        TEST(slices_have_the_size_that_numpy_gives_them),
        TEST(slices_are_understood_however_they_are_given),
        TEST(slices_by_what_is_no_constant_or_no_axis_are_unknown),
        TEST(every_part_of_a_split_is_known),
        TEST(pads_add_and_cut),
        TEST(pads_that_do_not_fit_are_unknown),
        TEST(scales_multiply_as_floats_and_round_down),
        TEST(scales_that_make_no_sense_are_unknown),
        TEST(sizes_are_taken_unless_they_are_bounds),
        TEST(pooling_rounds_up_where_it_is_told_to),
        TEST(transposed_convolutions_count_what_pads_and_padding_leave),
        TEST(einsum_of_an_absurd_dimension_is_unknown),
        TEST(operators_nobody_knows_leave_their_output_unknown),
        TEST(operators_are_told_by_their_whole_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
