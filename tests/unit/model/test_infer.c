/* Shapes that are inferred. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/files/file.h"
#include "model/graph/infer.h"
#include "model/graph/onnx.h"
#include "model/rewrite/compose.h"
#include "npudiff/model/model.h"
#include "support/infer_model.h"
#include "support/scratch.h"

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

/* Writers of proto3 leave out what is zero. Then the type says that the attribute is there, as ONNX Runtime
 * reads it. */
static void attributes_left_out_because_they_are_zero_are_zero(void **state)
{
    (void)state;
    Onnx__AttributeProto attribute = ONNX__ATTRIBUTE_PROTO__INIT, *list = &attribute;
    Onnx__NodeProto node = ONNX__NODE_PROTO__INIT;
    char axis[] = "axis";
    attribute.name = axis;
    node.n_attribute = 1;
    node.attribute = &list;
    assert_int_equal(nd_onnx_attribute_i(&node, "axis", 1), 1);
    attribute.has_type = true;
    attribute.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    assert_int_equal(nd_onnx_attribute_i(&node, "axis", 1), 0);
    assert_f64_bits(nd_onnx_attribute_f(&node, "axis", 0.5), 0.5);
    attribute.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    assert_int_equal(nd_onnx_attribute_i(&node, "axis", 1), 1);
    assert_f64_bits(nd_onnx_attribute_f(&node, "axis", 0.5), 0);
    assert_int_equal(nd_onnx_attribute_i(&node, "axes", 7), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(golden_models_are_inferred_as_they_are_declared),
        TEST(attributes_left_out_because_they_are_zero_are_zero),
        TEST(slices_have_the_size_that_numpy_gives_them),
        TEST(slices_are_understood_however_they_are_given),
        TEST(slices_by_what_is_no_constant_or_no_axis_are_unknown),
        TEST(every_part_of_a_split_is_known),
        TEST(pads_add_and_cut),
        TEST(pads_that_do_not_fit_are_unknown),
        TEST(einsum_of_an_absurd_dimension_is_unknown),
        TEST(operators_nobody_knows_leave_their_output_unknown),
        TEST(operators_are_told_by_their_whole_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
