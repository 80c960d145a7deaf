/* Known defects of SDKs: which layers have them, and what is said of those that are off. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/explain_fixture.h"
#include "support/linear_case.h"

#include "arithmetic/known/conditions.h"
#include "explain/known/defects.h"
#include "model/rewrite/compose.h"

/* ---- the layers ---- */

struct layer_of_two {
    double x[64], w[64];
    struct nd_array arrays[2];
    float scale;
    int64_t zero;
    struct nd_quant quant;
    struct nd_linear_input inputs[2];
    struct node node;
    struct nd_linear_call call;
    size_t tensors[2];
    enum nd_exact_origin origins[2];
    struct nd_exact_layer layer;
};

static size_t count(const struct nd_shape *shape)
{
    size_t n = 1;
    for (int k = 0; k < shape->rank; k++)
        n *= (size_t)shape->dims[k];
    return n;
}

static void begin(struct layer_of_two *l, const char *op_type, enum nd_dtype dtype, const struct nd_shape *x,
                  const struct nd_shape *w)
{
    *l = (struct layer_of_two){.scale = 0.001f,
                               .zero = 0,
                               .tensors = {0, SIZE_MAX},
                               .origins = {ND_EXACT_FROM_INPUT, ND_EXACT_FROM_CONSTANT}};
    l->quant = (struct nd_quant){.n = 1, .axis = -1, .scale = &l->scale, .zero_point = &l->zero};
    l->arrays[0] = (struct nd_array){.dtype = dtype, .shape = *x, .n = count(x), .x = l->x};
    l->arrays[1] = (struct nd_array){.dtype = dtype, .shape = *w, .n = count(w), .x = l->w};
    for (size_t i = 0; i < 64; i++)
        l->x[i] = 1000 + (double)i;
    for (size_t i = 0; i < 2; i++)
        l->inputs[i] = (struct nd_linear_input){.values = &l->arrays[i], .quant = &l->quant};
    node_begin(&l->node, op_type, 1);
    l->call = (struct nd_linear_call){.node = &l->node.proto,
                                      .opset = 21,
                                      .n_inputs = w->rank > 0 ? 2 : 1,
                                      .inputs = l->inputs,
                                      .out_quant = &l->quant};
    l->layer = (struct nd_exact_layer){
        .call = &l->call, .origins = l->origins, .input_tensors = l->tensors, .dtype = dtype};
}

static bool is(const struct layer_of_two *l, enum nd_layer_condition condition)
{
    size_t n_held = 0;
    for (int c = 0; c < ND_N_LAYER_CONDITIONS; c++)
        n_held += nd_layer_is(NULL, &l->layer, (enum nd_layer_condition)c);
    const struct nd_known_defect *found = nd_known_defect_of(nd_layer_conditions(NULL, &l->layer));
    bool is_held = nd_layer_is(NULL, &l->layer, condition);
    assert_int_equal(n_held, is_held);
    assert_true(is_held ? found != NULL && found->condition == condition : found == NULL);
    return is_held;
}

static const struct nd_shape none = {0, {0}}, image = {4, {1, 4, 4, 4}};

static void depthwise_convolutions_of_1x1_are_known(void **state)
{
    (void)state;
    struct layer_of_two l;
    static const struct {
        struct nd_shape x, w;
        bool is_known;
    } rows[] = {{{4, {1, 4, 4, 4}}, {4, {4, 1, 1, 1}}, true},  {{4, {1, 4, 4, 4}}, {4, {4, 1, 3, 3}}, false},
                {{4, {1, 4, 4, 4}}, {4, {4, 1, 1, 3}}, false}, {{4, {1, 4, 4, 4}}, {4, {4, 4, 1, 1}}, false},
                {{4, {1, 1, 4, 4}}, {4, {4, 1, 1, 1}}, false}, {{3, {1, 4, 4}}, {3, {4, 1, 1}}, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(&l, "Conv", ND_DTYPE_U8, &rows[i].x, &rows[i].w);
        assert_int_equal(is(&l, ND_LAYER_DEPTHWISE_1X1), rows[i].is_known);
        begin(&l, "ConvTranspose", ND_DTYPE_U8, &rows[i].x, &rows[i].w);
        assert_false(is(&l, ND_LAYER_DEPTHWISE_1X1));
    }
}

static void set_text(struct layer_of_two *l, const char *name, const char *value)
{
    Onnx__AttributeProto *attribute =
        node_attribute(&l->node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    attribute->has_s = 1;
    attribute->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)value};
}

static void resize_to_floor_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *mode, *coordinates, *rounding; /* NULL: the default */
        bool is_known;
    } rows[] = {{NULL, NULL, "floor", true},
                {"nearest", "half_pixel", "floor", true},
                {NULL, NULL, NULL, false},
                {"linear", NULL, "floor", false},
                {NULL, "asymmetric", "floor", false},
                {NULL, NULL, "ceil", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct layer_of_two l;
        begin(&l, "Resize", ND_DTYPE_U8, &image, &none);
        if (rows[i].mode != NULL)
            set_text(&l, "mode", rows[i].mode);
        if (rows[i].coordinates != NULL)
            set_text(&l, "coordinate_transformation_mode", rows[i].coordinates);
        if (rows[i].rounding != NULL)
            set_text(&l, "nearest_mode", rows[i].rounding);
        assert_int_equal(is(&l, ND_LAYER_RESIZE_TO_FLOOR), rows[i].is_known);
    }
}

static void reciprocals_of_fine_steps_are_known(void **state)
{
    (void)state;
    static const struct {
        enum nd_dtype dtype;
        float scale;
        bool is_known;
        int64_t zero;
    } rows[] = {{ND_DTYPE_U8, 0x1p-8f, false, 0},    {ND_DTYPE_U8, 0x1.fp-9f, true, 0},
                {ND_DTYPE_U8, 0x1p-20f, true, 0},    {ND_DTYPE_U16, 0x1p-16f, false, 0},
                {ND_DTYPE_U16, 0x1.fp-17f, true, 0}, {ND_DTYPE_U16, 0x1p-8f, false, 0},
                {ND_DTYPE_U8, 0.02f, false, 205},    {ND_DTYPE_U8, 0.02f, true, 207}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct layer_of_two l;
        begin(&l, "Reciprocal", rows[i].dtype, &image, &none);
        l.scale = rows[i].scale;
        l.zero = rows[i].zero;
        assert_int_equal(is(&l, ND_LAYER_RECIPROCAL_OF_FINE), rows[i].is_known);
    }
}

/* Quantised values from 1000 to 1063 of 0.001 each, in rows of 4. */
static void softmax_of_nearly_equal_values_is_known(void **state)
{
    (void)state;
    struct layer_of_two l;
    begin(&l, "Softmax", ND_DTYPE_U16, &image, &none);
    assert_true(is(&l, ND_LAYER_SOFTMAX_OF_EQUALS));
    l.scale = 0.2f; /* 0.6 from the least to the greatest: a factor of 1.8 */
    assert_true(is(&l, ND_LAYER_SOFTMAX_OF_EQUALS));
    l.scale = 0.25f;
    assert_false(is(&l, ND_LAYER_SOFTMAX_OF_EQUALS));
    begin(&l, "Softmax", ND_DTYPE_U8, &image, &none);
    assert_false(is(&l, ND_LAYER_SOFTMAX_OF_EQUALS));
}

static void concat_of_clipped_values_is_known(void **state)
{
    (void)state;
    struct layer_of_two l;
    begin(&l, "Concat", ND_DTYPE_U16, &image, &none);
    assert_false(is(&l, ND_LAYER_CONCAT_OF_CLIPPED));
    l.x[63] = 65535;
    assert_true(is(&l, ND_LAYER_CONCAT_OF_CLIPPED));
    begin(&l, "Concat", ND_DTYPE_U8, &image, &none);
    l.x[63] = 255;
    assert_false(is(&l, ND_LAYER_CONCAT_OF_CLIPPED));
    begin(&l, "Concat", ND_DTYPE_U16, &image, &none); /* of floats, which have no greatest code */
    l.x[63] = 65535;
    l.arrays[0].dtype = ND_DTYPE_F32;
    assert_false(is(&l, ND_LAYER_CONCAT_OF_CLIPPED));
}

/* Two pools of the model's input, and the input itself. */
static void concat_with_an_input_of_another_encoding_is_known(void **state)
{
    (void)state;
    struct nd_model *model = load("../found/concat.u8");
    struct layer_of_two l;
    float to_scale = 0.002f;
    struct nd_quant to = {.n = 1, .axis = -1, .scale = &to_scale, .zero_point = &l.zero};
    for (size_t n = 2; n <= 3; n++)
        for (size_t input = 0; input < n; input++) { /* tensor 0 is the input, the next two are the pools */
            begin(&l, "Concat", ND_DTYPE_U8, &image, &none);
            struct nd_linear_input parts[3] = {l.inputs[0], l.inputs[0], l.inputs[0]};
            size_t tensors[3] = {1, 2, 1};
            tensors[input] = 0;
            l.call.inputs = parts;
            l.call.n_inputs = n;
            l.call.out_quant = &to;
            l.layer.input_tensors = tensors;
            bool is_known = n > 2;
            assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_CONCAT_WITH_INPUT), is_known);
            assert_false(nd_layer_is(NULL, &l.layer, ND_LAYER_CONCAT_WITH_INPUT));
            l.call.out_quant = &l.quant; /* nothing to rescale */
            assert_false(nd_layer_is(model, &l.layer, ND_LAYER_CONCAT_WITH_INPUT));
            l.call.out_quant = &to;
            l.layer.dtype = ND_DTYPE_U16;
            assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_CONCAT_WITH_INPUT), is_known);
        }
    nd_model_destroy(&model);
}

/* Behind the ConvTranspose "made": eight channels. The constant is the second operand. */
static void sum_behind_a_transposed_convolution_is_known(void **state)
{
    (void)state;
    static const struct {
        struct nd_shape constant;
        enum nd_exact_origin origin;
        double low; /* 0: a Relu is part of the layer */
        const char *reads;
        bool is_known;
    } rows[] = {{{4, {1, 8, 1, 1}}, ND_EXACT_FROM_CONSTANT, -HUGE_VAL, "made", true},
                {{3, {8, 1, 1}}, ND_EXACT_FROM_CONSTANT, -HUGE_VAL, "made", true},
                {{1, {1}}, ND_EXACT_FROM_CONSTANT, -HUGE_VAL, "made", false},
                {{4, {1, 8, 1, 1}}, ND_EXACT_FROM_LAYER, -HUGE_VAL, "made", false},
                {{4, {1, 8, 1, 1}}, ND_EXACT_FROM_CONSTANT, 0, "made", false},
                {{4, {1, 8, 1, 1}}, ND_EXACT_FROM_CONSTANT, -HUGE_VAL, "x", false}};
    struct nd_model *model = load("../found/transposed-sum.u8");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct layer_of_two l;
        begin(&l, "Add", ND_DTYPE_U8, &(struct nd_shape){4, {1, 8, 2, 2}}, &rows[i].constant);
        enum nd_exact_origin origins[] = {ND_EXACT_FROM_LAYER, rows[i].origin};
        l.layer.origins = origins;
        l.call.low = rows[i].low;
        l.call.high = HUGE_VAL;
        for (size_t e = 0; e < nd_model_n_tensors(model); e++)
            if (strcmp(nd_model_tensor(model, e)->name, rows[i].reads) == 0)
                l.tensors[0] = e;
        assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_SUM_OF_TRANSPOSED), rows[i].is_known);
        assert_false(nd_layer_is(NULL, &l.layer, ND_LAYER_SUM_OF_TRANSPOSED));
    }
    nd_model_destroy(&model);
}

static void norm_of_what_a_slice_makes_is_known(void **state)
{
    (void)state;
    struct nd_model *model = load("../found/slice-norm.u8");
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        for (int wide = 0; wide < 2; wide++) {
            struct layer_of_two l;
            begin(&l, "BatchNormalization", wide ? ND_DTYPE_U16 : ND_DTYPE_U8, &image, &none);
            l.tensors[0] = e;
            bool is_cut = strcmp(nd_model_tensor(model, e)->name, "cut_off") == 0;
            assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_NORM_OF_SLICE), is_cut && !wide);
            assert_false(nd_layer_is(NULL, &l.layer, ND_LAYER_NORM_OF_SLICE));
        }
    nd_model_destroy(&model);
}

/* The second reads a Pad and counts padding: without it, it is the third, a mean over the wrong count. */
static void mean_of_what_a_slice_or_pad_makes_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *model, *tensor;
        int64_t counts;
        enum nd_layer_condition condition;
    } rows[] = {{"../found/slice-pool.u8", "cut_off", 0, ND_LAYER_MEAN_OF_SHIFTED},
                {"../found/slice-pool.u8", "cut_off", 1, ND_LAYER_MEAN_OF_SHIFTED},
                {"../found/pad-pool.u8", "padded", 1, ND_LAYER_MEAN_OF_SHIFTED},
                {"../found/pad-pool.u8", "padded", 0, ND_LAYER_MEAN_OF_PADDED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct nd_model *model = load(rows[i].model);
        struct layer_of_two l;
        begin(&l, "AveragePool", ND_DTYPE_U8, &image, &none);
        node_int(&l.node, "count_include_pad", rows[i].counts);
        for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
            l.tensors[0] = e;
            bool is_moved = strcmp(nd_model_tensor(model, e)->name, rows[i].tensor) == 0;
            const struct nd_known_defect *found = nd_known_defect_of(nd_layer_conditions(model, &l.layer));
            assert_int_equal(found != NULL && found->condition == rows[i].condition, is_moved);
            assert_null(nd_known_defect_of(nd_layer_conditions(NULL, &l.layer)));
        }
        nd_model_destroy(&model);
    }
}

static void pad_of_a_pad_is_known(void **state)
{
    (void)state;
    struct nd_model *model = load("../found/pads.u16");
    struct layer_of_two l;
    begin(&l, "Pad", ND_DTYPE_U16, &image, &none);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
        l.tensors[0] = e;
        bool is_padded = strcmp(nd_model_tensor(model, e)->op_types, "Pad") == 0;
        assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_PAD_OF_PAD), is_padded);
    }
    nd_model_destroy(&model);
}

static void tanh_of_16_rows_is_known(void **state)
{
    (void)state;
    static const struct nd_shape rows[] = {{2, {16, 4}}, {3, {1, 16, 3}}, {2, {8, 4}}, {1, {16}}};
    for (size_t i = 0; i < 4; i++) {
        struct layer_of_two l;
        begin(&l, "Tanh", ND_DTYPE_U16, &rows[i], &none);
        assert_int_equal(is(&l, ND_LAYER_TANH_OF_ROWS), i < 2);
        begin(&l, "Tanh", ND_DTYPE_U8, &rows[i], &none);
        assert_false(is(&l, ND_LAYER_TANH_OF_ROWS));
    }
}

static size_t tensor_named(const struct nd_model *model, const char *name)
{
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (strcmp(nd_model_tensor(model, e)->name, name) == 0)
            return e;
    fail_msg("no tensor %s", name);
    return 0;
}

/* The model has the operators; the shape is that of the layer. */
static void silu_of_an_odd_height_is_known(void **state)
{
    (void)state;
    struct nd_model *model = load("../found/silu-512.w8a16");
    static const struct {
        const char *op_type, *tensor, *read;
        int64_t height;
        bool is_known;
    } rows[] = {{"Sigmoid", "sigmoid7", "conv4", 4, true},
                {"Sigmoid", "sigmoid7", "conv4", 8, false},
                {"Mul", "mul10.dq", "conv4", 4, true},
                {"Conv", "conv4", "image", 4, false},
                {"Conv", "conv4", "mul10.dq", 4, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct layer_of_two l;
        const struct nd_shape shape = {4, {1, 1, rows[i].height, 4}};
        begin(&l, rows[i].op_type, ND_DTYPE_U16, &shape, &none);
        l.layer.tensor = tensor_named(model, rows[i].tensor);
        l.tensors[0] = tensor_named(model, rows[i].read);
        assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_SILU_RACES), rows[i].is_known);
        assert_false(nd_layer_is(NULL, &l.layer, ND_LAYER_SILU_RACES));
        l.layer.dtype = ND_DTYPE_U8;
        assert_false(nd_layer_is(model, &l.layer, ND_LAYER_SILU_RACES));
    }
    nd_model_destroy(&model);
}

/* Ends in a Div, which is right by itself. */
static void add_behind_a_hard_swish_is_known(void **state)
{
    (void)state;
    struct nd_model *model = load("../found/hard-swish-div.u8");
    struct layer_of_two l;
    begin(&l, "Add", ND_DTYPE_U8, &image, &none);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
        l.layer.tensor = e;
        assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_HARD_SWISH_IN_PARTS),
                         e == tensor_named(model, "y"));
    }
    nd_model_destroy(&model);
}

/* The bounds are -8, which no quantised value has, and 1; the tensor `made` is the Conv's. */
static void clip_of_a_conv_is_known(void **state)
{
    (void)state;
    static float scales[] = {0x1p-5F, 0x1p-13F};
    static int64_t zeros[] = {128, 32768};
    struct nd_model *model = load("../found/clip.u8");
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        for (int wide = 0; wide < 2; wide++)
            for (int end = 0; end < 4; end++) {
                struct layer_of_two l;
                struct nd_quant quant = {
                    .n = 1, .axis = -1, .scale = &scales[wide], .zero_point = &zeros[wide]};
                begin(&l, "Clip", wide ? ND_DTYPE_U16 : ND_DTYPE_U8, &image, &none);
                l.tensors[0] = e;
                l.call.out_quant = &quant;
                l.call.low = end & 1 ? -1 : -8;
                l.call.high = end & 2 ? 1 : 8;
                bool is_made = strcmp(nd_model_tensor(model, e)->name, "made") == 0;
                bool is_left_out = wide ? end != 0 : end == 1 || end == 2;
                assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_CLIP_LEFT_OUT), is_made && is_left_out);
                assert_false(nd_layer_is(NULL, &l.layer, ND_LAYER_CLIP_LEFT_OUT));
            }
    nd_model_destroy(&model);
}

/* 64 rows of `n` quantised values; index i of `n_indices` is 63, the others are 62. */
static void gather_of_the_last_row_is_known(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, n, n_indices, last;
        enum nd_dtype dtype;
        bool is_known;
    } cases[] = {{64, 8, 32, 31, ND_DTYPE_U8, true},   {64, 8, 32, 0, ND_DTYPE_U8, true},
                 {64, 8, 33, 32, ND_DTYPE_U8, false},  {64, 8, 31, 0, ND_DTYPE_U8, false},
                 {64, 8, 32, 32, ND_DTYPE_U8, false},  {64, 4, 32, 0, ND_DTYPE_U8, false},
                 {64, 12, 32, 0, ND_DTYPE_U8, false},  {64, 16, 32, 0, ND_DTYPE_U8, true},
                 {64, 32, 32, 0, ND_DTYPE_U8, true},   {64, 64, 32, 0, ND_DTYPE_U8, false},
                 {64, 4, 32, 31, ND_DTYPE_U16, true},  {64, 2, 32, 31, ND_DTYPE_U16, false},
                 {64, 32, 32, 0, ND_DTYPE_U16, false}, {65, 8, 32, 0, ND_DTYPE_U8, false},
                 {49, 8, 32, 0, ND_DTYPE_U8, false},   {1, 8, 32, 0, ND_DTYPE_U8, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct layer_of_two l;
        begin(&l, "Gather", cases[i].dtype, &none, &(struct nd_shape){1, {cases[i].n_indices}});
        l.arrays[0].shape =
            (struct nd_shape){3, {1, cases[i].rows, cases[i].n}}; /* the quantised values are not read */
        l.call.n_inputs = 2;
        for (int64_t k = 0; k < cases[i].n_indices; k++)
            l.w[k] = (double)cases[i].rows - (k == cases[i].last ? 1 : 2);
        Onnx__AttributeProto *axis =
            node_attribute(&l.node, "axis", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
        axis->has_i = 1;
        axis->i = 1;
        assert_int_equal(is(&l, ND_LAYER_GATHER_LOSES_LAST), cases[i].is_known);
    }
}

/* M = 2^-24: a zero point of 128 is 2^31 steps of the sum. */
static void bias_that_wraps_is_known(void **state)
{
    (void)state;
    static const struct {
        double bias;
        int64_t zero;
        bool is_known;
    } rows[] = {{0x1p31 - 1, 0, true},    {0x1p31 - 256, 0, false}, {0x1p20, 128, true},
                {-0x1p20, 128, false},    {-0x1p31, 0, false},      {0x1p30, 64, true},
                {0x1p30 - 256, 64, false}};
    static const char *const types[] = {"Conv", "ConvTranspose", "Gemm"};
    for (size_t i = 0; i < 3 * sizeof rows / sizeof rows[0]; i++) {
        struct layer_of_two l;
        bool is_matrix = i % 3 == 2;
        struct nd_shape x = {is_matrix ? 2 : 4, {1, 1, 1, 1}};
        begin(&l, types[i % 3], ND_DTYPE_U8, &x, &x);
        float scales[] = {0x1p-26F, 1, 0x1p-26F, 0.25F};
        int64_t zeros[] = {0, rows[i / 3].zero};
        struct nd_quant quants[4];
        for (size_t k = 0; k < 4; k++)
            quants[k] =
                (struct nd_quant){.n = 1, .axis = -1, .scale = &scales[k], .zero_point = &zeros[k == 3]};
        double bias = rows[i / 3].bias;
        struct nd_array qvalue = {.dtype = ND_DTYPE_I32, .shape = {1, {1}}, .n = 1, .x = &bias};
        l.arrays[1].dtype = ND_DTYPE_I8;
        struct nd_linear_input inputs[] = {{.values = &l.arrays[0], .quant = &quants[0]},
                                           {.values = &l.arrays[1], .quant = &quants[1]},
                                           {.values = &qvalue, .quant = &quants[2]}};
        enum nd_exact_origin origins[] = {ND_EXACT_FROM_LAYER, ND_EXACT_FROM_CONSTANT, ND_EXACT_FROM_CONSTANT};
        l.call.inputs = inputs;
        l.call.n_inputs = 3;
        l.call.out_quant = &quants[3];
        l.layer.origins = origins;
        assert_int_equal(is(&l, ND_LAYER_BIAS_WRAPS), rows[i / 3].is_known);
    }
}

static void pool_of_floats_that_leaves_its_padding_out_is_known(void **state)
{
    (void)state;
    static int64_t some[] = {0, 0, 1, 1}, zeros[] = {0, 0, 0, 0};
    static const struct {
        int64_t *pads, counts;
        const char *auto_pad; /* NULL: the default */
        bool is_float, is_known;
    } rows[] = {{some, 0, NULL, true, true},    {some, 0, NULL, false, false},
                {some, 1, NULL, true, false},   {zeros, 0, NULL, true, false},
                {NULL, 0, NULL, true, false},   {NULL, 0, "SAME_UPPER", true, true},
                {NULL, 0, "VALID", true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct layer_of_two l;
        begin(&l, "AveragePool", ND_DTYPE_U8, &image, &none);
        if (rows[i].is_float)
            l.inputs[0].quant = NULL;
        if (rows[i].auto_pad != NULL)
            set_text(&l, "auto_pad", rows[i].auto_pad);
        if (rows[i].pads != NULL)
            node_ints(&l.node, "pads", rows[i].pads, 4);
        node_int(&l.node, "count_include_pad", rows[i].counts);
        assert_int_equal(is(&l, ND_LAYER_POOL_OF_FLOATS), rows[i].is_known);
    }
}

/* The tensor `turned` is a Transpose of the input x, `deep` a SpaceToDepth of the Conv `made`. */
static void pads_and_concats_that_keep_qvalues_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *reads, *mode;
        int64_t zero;
        bool is_pad_known, is_concat_known;
    } rows[] = {
        {"x", "reflect", 7, true, false},     {"x", "edge", 7, true, false},
        {"x", "constant", 7, false, false},   {"x", NULL, 7, false, false},
        {"turned", "reflect", 7, true, true}, {"turned", "reflect", 0, true, false},
        {"deep", "reflect", 7, true, true},   {"deep", NULL, 7, false, true},
        {"made", "reflect", 7, false, false}, {"pooled", "reflect", 7, false, false},
    };
    struct nd_model *model = load("../found/concat-moved.u8");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int is_pad = 0; is_pad < 2; is_pad++) {
            struct layer_of_two l;
            float scale = 0.002f;
            int64_t zero = 9;
            struct nd_quant to = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
            enum nd_layer_condition condition = is_pad ? ND_LAYER_PAD_OF_KEPT : ND_LAYER_CONCAT_OF_KEPT;
            begin(&l, is_pad ? "Pad" : "Concat", ND_DTYPE_U8, &image, &none);
            l.tensors[0] = tensor_named(model, rows[i].reads);
            l.zero = rows[i].zero;
            l.call.out_quant = &to;
            if (is_pad && rows[i].mode != NULL)
                set_text(&l, "mode", rows[i].mode);
            bool is_known = is_pad ? rows[i].is_pad_known : rows[i].is_concat_known;
            assert_int_equal(nd_layer_is(model, &l.layer, condition), is_known);
            const struct nd_array *kept = nd_layer_kept_qvalues(model, &l.layer, 0);
            assert_true(is_pad || kept == (is_known ? &l.arrays[0] : NULL));
            const struct nd_known_defect *found = nd_known_defect_of(nd_layer_conditions(model, &l.layer));
            assert_true(!is_known || (found != NULL && found->condition == condition));
            l.layer.dtype = ND_DTYPE_U16; /* quantised values at the end of the range are another defect, which
                                             predicts nothing */
            l.x[0] = 0;
            found = nd_known_defect_of(nd_layer_conditions(model, &l.layer));
            assert_true(!is_known || (found != NULL && found->condition == condition));
            assert_false(nd_layer_is(NULL, &l.layer, condition));
            l.call.out_quant = &l.quant; /* nothing to rescale */
            assert_false(nd_layer_is(model, &l.layer, condition));
        }
    nd_model_destroy(&model);
}

/* The tensors `box` and `score` are parts of a Split, `placed` a Mul of the first. */
static void concats_of_parts_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *reads, *beside;
        int rank;
        enum nd_dtype dtype;
        int64_t zero, out_zero;
        bool is_known;
    } rows[] = {{"score", "placed", 5, ND_DTYPE_U8, 7, 9, true},
                {"score", "placed", 4, ND_DTYPE_U8, 7, 9, false},
                {"score", "x", 5, ND_DTYPE_U8, 7, 9, false},
                {"share", "placed", 5, ND_DTYPE_U8, 7, 9, false},
                {"score", "placed", 5, ND_DTYPE_U8, 0, 9, false},
                {"score", "placed", 5, ND_DTYPE_U8, 0, 0, true},
                {"score", "placed", 5, ND_DTYPE_I8, 0, 9, true},
                {"score", "placed", 5, ND_DTYPE_I8, -128, 9, false},
                {"score", "placed", 5, ND_DTYPE_I8, -128, -128, true}};
    struct nd_model *model = load("../found/concat-split.u8");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct nd_shape shape = {rows[i].rank, {1, 1, 2, 2, 2}};
        struct layer_of_two l;
        float scale = 0.002f;
        int64_t zero = rows[i].out_zero;
        struct nd_quant to = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
        begin(&l, "Concat", rows[i].dtype, &shape, &shape);
        l.tensors[0] = tensor_named(model, rows[i].reads);
        l.tensors[1] = tensor_named(model, rows[i].beside);
        l.zero = rows[i].zero;
        l.call.out_quant = &to;
        assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_CONCAT_OF_PART), rows[i].is_known);
        assert_true(nd_layer_kept_qvalues(model, &l.layer, 0) == (rows[i].is_known ? &l.arrays[0] : NULL));
        l.call.out_quant = &l.quant; /* nothing to rescale */
        assert_false(nd_layer_is(model, &l.layer, ND_LAYER_CONCAT_OF_PART));
    }
    nd_model_destroy(&model);
}

static void pool_with_padding_behind_a_pad_is_known(void **state)
{
    (void)state;
    static int64_t some[] = {1, 1, 1, 1}, zeros[] = {0, 0, 0, 0};
    struct nd_model *model = load("../found/max-pool.u8");
    for (int has_pads = 0; has_pads < 2; has_pads++)
        for (int is_behind = 0; is_behind < 2; is_behind++) {
            struct layer_of_two l;
            begin(&l, "MaxPool", ND_DTYPE_U8, &image, &none);
            node_ints(&l.node, "pads", has_pads ? some : zeros, 4);
            l.tensors[0] = tensor_named(model, is_behind ? "padded" : "made");
            assert_int_equal(nd_layer_is(model, &l.layer, ND_LAYER_POOL_OF_PADDED), has_pads && is_behind);
            assert_false(nd_layer_is(NULL, &l.layer, ND_LAYER_POOL_OF_PADDED));
        }
    nd_model_destroy(&model);
}

/* ---- captures ---- */

static const struct nd_shape compose_shape = {4, {1, 4, 6, 6}}, padded_shape = {4, {1, 4, 8, 8}};

static struct nd_quant quant_of(float *scale, int64_t *zero)
{
    return (struct nd_quant){.n = 1, .axis = -1, .scale = scale, .zero_point = zero};
}

/* A depthwise Conv of 1x1, or a Relu; and a mean after Pad, or not. */
static struct nd_model *compose(const char *first, bool has_pad)
{
    static float x_scale = 1 / 255.0f, w_scale = 0.01f, y_scale = 1 / 128.0f;
    static int64_t zero = 0;
    static const int8_t w[] = {100, 50, 25, 80};
    static const int64_t pads[] = {0, 0, 1, 1, 0, 0, 1, 1};
    struct nd_quant x = quant_of(&x_scale, &zero), weights = quant_of(&w_scale, &zero),
                    y = quant_of(&y_scale, &zero);
    struct nd_error err = {0};
    struct nd_compose *c = NULL;
    struct nd_model *model = NULL;
    expect_ok(nd_compose_create(21, &c, &err), &err);
    nd_compose_input(c, "x", ND_DTYPE_F32, &compose_shape);
    nd_compose_quantize(c, "x", "x_codes", &x, ND_DTYPE_U8);
    nd_compose_dequantize(c, "x_codes", "x_real", &x, ND_DTYPE_U8);
    nd_compose_constant(c, "w_codes", ND_DTYPE_I8, &(struct nd_shape){4, {4, 1, 1, 1}}, w);
    nd_compose_dequantize(c, "w_codes", "w", &weights, ND_DTYPE_I8);
    nd_compose_node(c, first,
                    strcmp(first, "Conv") == 0 ? (const char *[]){"x_real", "w", NULL}
                                               : (const char *[]){"x_real", NULL},
                    "a");
    if (strcmp(first, "Conv") == 0)
        nd_compose_attribute_i(c, "group", 4);
    nd_compose_quantize(c, "a", "a_codes", &y, ND_DTYPE_U8);
    nd_compose_dequantize(c, "a_codes", "a_real", &y, ND_DTYPE_U8);
    nd_compose_constant(c, "pads", ND_DTYPE_I64, &(struct nd_shape){1, {8}}, pads);
    nd_compose_node(c, has_pad ? "Pad" : "Abs",
                    has_pad ? (const char *[]){"a_real", "pads", NULL} : (const char *[]){"a_real", NULL}, "b");
    nd_compose_quantize(c, "b", "b_codes", &y, ND_DTYPE_U8);
    nd_compose_dequantize(c, "b_codes", "b_real", &y, ND_DTYPE_U8);
    nd_compose_node(c, "GlobalAveragePool", (const char *[]){"b_real", NULL}, "m");
    nd_compose_quantize(c, "m", "m_codes", &y, ND_DTYPE_U8);
    nd_compose_dequantize(c, "m_codes", "y", &y, ND_DTYPE_U8);
    nd_compose_output(c, "a_real", ND_DTYPE_F32, &compose_shape); /* so that the fixture knows their shapes */
    nd_compose_output(c, "b_real", ND_DTYPE_F32, has_pad ? &padded_shape : &compose_shape);
    nd_compose_output(c, "y", ND_DTYPE_F32, &(struct nd_shape){4, {1, 4, 1, 1}});
    char *path = in_folder("model.onnx");
    expect_ok(nd_compose_write(c, path, &err), &err);
    expect_ok(nd_model_load(path, &model, &err), &err);
    free(path);
    nd_compose_destroy(&c);
    return model;
}

/* What a broken operator makes: anything. The seed of the fixture's probe is its own. */
static void scatter(const struct mc_run *run, const struct nd_tensor *tensor, struct nd_array *qvalues)
{
    if (strcmp(tensor->name, "a_real") != 0)
        return;
    for (size_t i = 0; i < qvalues->n; i++)
        qvalues->x[i] = (double)((i * 7919 + run->sample * 104729) * 2654435761u >> 8 & 255);
}

/* 64/36 times as large: 6 x 6 values that are padded to 8 x 8. */
static void leave_padding_out(const struct mc_run *run, const struct nd_tensor *tensor,
                              struct nd_array *qvalues)
{
    (void)run;
    for (size_t i = 0; i < qvalues->n && strcmp(tensor->name, "y") == 0; i++)
        qvalues->x[i] = fmin(rint(qvalues->x[i] * 64 / 36), 255);
}

static void explain_composed(struct fixture *f, const char *first, bool has_pad, const struct mc_device *device)
{
    *f = (struct fixture){.model = compose(first, has_pad)};
    add_device(f, device);
    explain_ok(f);
}

static void layer_with_a_known_defect_is_faulty_by_its_own_evidence_and_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *first, *sdk, *says, *says_more; /* NULL: no defect is known */
    } rows[] = {{"Conv", "2.51.0", "a known defect of QAIRT 2.51.0", "depthwise"},
                {"Conv", "v2.51.0.260101", "a known defect of QAIRT 2.51.0", "gen3"},
                {"Conv", "2.52.0", "depthwise", "made with 2.52.0, which was not measured"},
                {"Conv", "2.51.01", "depthwise", "which was not measured"},
                {"Conv", NULL, "depthwise", "does not say which SDK"},
                {"Relu", "2.51.0", NULL, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture f;
        explain_composed(
            &f, rows[i].first, false,
            &(struct mc_device){
                .emulated = "htp-v73", .import = "npu", .arch = "v75", .sdk = rows[i].sdk, .change = scatter});
        const struct nd_explained_layer *layer = layer_of(&f, "a_real");
        assert_int_equal(layer->judgement.state, ND_LAYER_FAULTY);
        assert_int_equal(f.e->health, ND_HEALTH_FAULTY);
        assert_true((layer->judgement.known_defect != NULL) == (rows[i].says != NULL));
        assert_true((layer->judgement.remedy != NULL) == (rows[i].says != NULL));
        if (rows[i].says != NULL && (strstr(layer->judgement.known_defect, rows[i].says) == NULL ||
                                     strstr(layer->judgement.known_defect, rows[i].says_more) == NULL))
            fail_msg("row %zu: %s", i, layer->judgement.known_defect);
        close_fixture(&f);
    }
}

/* A layer of that kind that repeats samples has another fault, and a CPU has none of these defects. */
static void what_the_defect_does_not_look_like_is_not_put_down_to_it(void **state)
{
    (void)state;
    struct fixture f;
    explain_composed(&f, "Conv", false,
                     &(struct mc_device){
                         .emulated = "htp-v73,stale@a_real", .import = "npu", .arch = "v75", .sdk = "2.51.0"});
    assert_int_equal(layer_of(&f, "a_real")->judgement.state, ND_LAYER_FAULTY);
    assert_string_equal(layer_of(&f, "a_real")->judgement.fault.kind, "stale");
    assert_null(layer_of(&f, "a_real")->judgement.known_defect);
    close_fixture(&f);
    explain_composed(&f, "Conv", false, &(struct mc_device){.emulated = "half-even", .change = scatter});
    assert_int_equal(layer_of(&f, "a_real")->judgement.state, ND_LAYER_FAULTY);
    assert_null(layer_of(&f, "a_real")->judgement.known_defect);
    close_fixture(&f);
    explain_composed(
        &f, "Conv", false, /* and nothing is wrong here */
        &(struct mc_device){.emulated = "htp-v73", .import = "npu", .arch = "v75", .sdk = "2.51.0"});
    assert_int_equal(f.e->devices[0].n_faulty, 0);
    assert_null(layer_of(&f, "a_real")->judgement.known_defect);
    close_fixture(&f);
}

static void mean_after_pad_is_known(void **state)
{
    (void)state;
    for (int has_pad = 0; has_pad < 2; has_pad++) {
        struct fixture f;
        explain_composed(&f, "Relu", has_pad == 1,
                         &(struct mc_device){.emulated = "htp-v73",
                                             .import = "npu",
                                             .arch = "v75",
                                             .sdk = "2.51.0",
                                             .change = leave_padding_out});
        const struct nd_explained_layer *layer = layer_of(&f, "y");
        assert_int_equal(layer->judgement.state, ND_LAYER_FAULTY);
        assert_string_equal(layer->judgement.fault.kind, "scale");
        assert_int_equal(layer->judgement.known_defect != NULL, has_pad);
        assert_true(has_pad == 0 || strstr(layer->judgement.known_defect, "padding") != NULL);
        close_fixture(&f);
    }
}

/* A near miss behind each: of another type, of larger numbers, around the middle. */
static void logs_powers_and_running_sums_are_known(void **state)
{
    (void)state;
    enum { BEYOND = 40000, MIDDLE = 32768 };
    struct layer_of_two l;
    const struct nd_shape x = {2, {4, 8}}, one_number = {1, {1}};
    begin(&l, "CumSum", ND_DTYPE_U8, &x, &one_number);
    assert_true(is(&l, ND_LAYER_CUMSUM_OF_BYTES));
    begin(&l, "CumSum", ND_DTYPE_U16, &x, &one_number);
    assert_false(is(&l, ND_LAYER_CUMSUM_OF_BYTES));
    begin(&l, "Log", ND_DTYPE_U16, &x, &none);
    assert_false(is(&l, ND_LAYER_LOG_OF_FINE));
    l.scale = 1e-5F;
    assert_true(is(&l, ND_LAYER_LOG_OF_FINE));
    begin(&l, "Pow", ND_DTYPE_U16, &x, &one_number);
    int64_t zero = BEYOND;
    float by = 1;
    const struct nd_quant out = {.n = 1, .axis = -1, .scale = &l.scale, .zero_point = &zero},
                          power = {.n = 1, .axis = -1, .scale = &by, .zero_point = &l.zero};
    l.inputs[1].quant = &power;
    l.call.out_quant = &out;
    l.zero = MIDDLE;
    l.w[0] = MIDDLE + 1;
    assert_true(is(&l, ND_LAYER_POW_CLIPS)); /* from -31 on, of up to 25 */
    l.w[0] = MIDDLE + 2;
    assert_false(is(&l, ND_LAYER_POW_CLIPS)); /* has no sign */
    l.w[0] = MIDDLE + 1;
    zero = MIDDLE;
    assert_false(is(&l, ND_LAYER_POW_CLIPS));
}

static void scales_along_the_sum_are_known(void **state)
{
    (void)state;
    struct layer_of_two l;
    float scales[] = {0.001F, 0.002F};
    int64_t zeros[] = {0, 0};
    struct nd_quant channels = {.n = 2, .axis = 1, .scale = scales, .zero_point = zeros};
    const struct nd_shape square = {2, {2, 2}};
    begin(&l, "MatMul", ND_DTYPE_U8, &square, &square);
    l.inputs[1].quant = &channels;
    assert_false(is(&l, ND_LAYER_WEIGHT_AXIS));
    channels.axis = 0;
    assert_true(is(&l, ND_LAYER_WEIGHT_AXIS));
    l.inputs[1].quant = &l.quant;
    l.inputs[0].quant = &channels;
    assert_true(is(&l, ND_LAYER_WEIGHT_AXIS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depthwise_convolutions_of_1x1_are_known),
        cmocka_unit_test(logs_powers_and_running_sums_are_known),
        cmocka_unit_test(scales_along_the_sum_are_known),
        cmocka_unit_test(resize_to_floor_is_known),
        cmocka_unit_test(reciprocals_of_fine_steps_are_known),
        cmocka_unit_test(softmax_of_nearly_equal_values_is_known),
        cmocka_unit_test(concat_of_clipped_values_is_known),
        cmocka_unit_test(concat_with_an_input_of_another_encoding_is_known),
        cmocka_unit_test(sum_behind_a_transposed_convolution_is_known),
        cmocka_unit_test(norm_of_what_a_slice_makes_is_known),
        cmocka_unit_test(mean_of_what_a_slice_or_pad_makes_is_known),
        cmocka_unit_test(pad_of_a_pad_is_known),
        cmocka_unit_test(tanh_of_16_rows_is_known),
        cmocka_unit_test(silu_of_an_odd_height_is_known),
        cmocka_unit_test(add_behind_a_hard_swish_is_known),
        cmocka_unit_test(clip_of_a_conv_is_known),
        cmocka_unit_test(gather_of_the_last_row_is_known),
        cmocka_unit_test(bias_that_wraps_is_known),
        cmocka_unit_test(pool_of_floats_that_leaves_its_padding_out_is_known),
        cmocka_unit_test(pads_and_concats_that_keep_qvalues_are_known),
        cmocka_unit_test(concats_of_parts_are_known),
        cmocka_unit_test(pool_with_padding_behind_a_pad_is_known),
        cmocka_unit_test_setup_teardown(layer_with_a_known_defect_is_faulty_by_its_own_evidence_and_says_so,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_the_defect_does_not_look_like_is_not_put_down_to_it, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(mean_after_pad_is_known, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, set_seed, NULL);
}
