/* Products that a device computes with other constants than the model's: it runs a changed model, and is
 * explained against the model. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/changed_model.h"
#include "support/explain_fixture.h"

#include <math.h>

static const char conv[] = "residual/conv", weights[] = "residual.weight_quantized",
                  bias[] = "residual.bias_quantized";
enum { N_WEIGHTS = 48 * 48 * 9, OF_CHANNEL = 48 * 9, ZERO_POINT = 130, CHANNEL = 7 };

static double clip(double qvalue)
{
    return qvalue < 0 ? 0 : qvalue > 255 ? 255 : qvalue;
}

/* Weights are uint8 with zero point 130, [48][48][3][3]; biases are int32, [48]. */
static void lose_bias(Onnx__ModelProto *proto)
{
    memset(tensor_of(proto, bias)->raw_data.data, 0, 48 * 4);
}

static void lose_bias_but_one(Onnx__ModelProto *proto)
{
    int32_t kept;
    uint8_t *bytes = tensor_of(proto, bias)->raw_data.data;
    memcpy(&kept, bytes + 4 * CHANNEL, 4);
    lose_bias(proto);
    memcpy(bytes + 4 * CHANNEL, &kept, 4);
}

/* Of 4 LSB of the output, and a quarter of that. */
static void set_biases(Onnx__ModelProto *proto, int32_t value)
{
    for (size_t c = 0; c < 48; c++) {
        memcpy(tensor_of(proto, bias)->raw_data.data + 4 * c, &value, sizeof value);
        value = -value; /* no shift of the output */
    }
}

static void make_biases_small(Onnx__ModelProto *proto)
{
    set_biases(proto, 2747);
}

static void quarter_small_biases(Onnx__ModelProto *proto)
{
    set_biases(proto, 2747 / 8);
}

static void lose_small_biases(Onnx__ModelProto *proto)
{
    set_biases(proto, 0);
}

static void scale_weights(Onnx__ModelProto *proto)
{
    Onnx__TensorProto *scale = tensor_of(proto, "residual.weight_scale");
    scale->float_data[0] *= 1.5F;
}

static void halve_channel(Onnx__ModelProto *proto)
{
    uint8_t *w = tensor_of(proto, weights)->raw_data.data + CHANNEL * OF_CHANNEL;
    for (size_t i = 0; i < OF_CHANNEL; i++)
        w[i] = (uint8_t)rint(ZERO_POINT + 0.5 * (w[i] - ZERO_POINT));
}

static void move_channel(Onnx__ModelProto *proto)
{
    uint8_t *w = tensor_of(proto, weights)->raw_data.data + CHANNEL * OF_CHANNEL;
    for (size_t i = 0; i < OF_CHANNEL; i++)
        w[i] = (uint8_t)clip(w[i] + 5);
}

static void move_half_a_channel(Onnx__ModelProto *proto)
{
    uint8_t *w = tensor_of(proto, weights)->raw_data.data + CHANNEL * OF_CHANNEL;
    for (size_t i = 0; i < OF_CHANNEL; i += 2)
        w[i] = (uint8_t)clip(w[i] + 5);
}

static void move_zero_point(Onnx__ModelProto *proto)
{
    tensor_of(proto, "residual.weight_zero_point")->int32_data[0] -= 3;
}

static void turn_kernels(Onnx__ModelProto *proto)
{
    uint8_t *w = tensor_of(proto, weights)->raw_data.data;
    for (size_t k = 0; k < N_WEIGHTS; k += 9)
        for (size_t i = 0; i < 4; i++) {
            uint8_t kept = w[k + i];
            w[k + i] = w[k + 8 - i];
            w[k + 8 - i] = kept;
        }
}

static void transpose_kernels(Onnx__ModelProto *proto)
{
    uint8_t *w = tensor_of(proto, weights)->raw_data.data;
    for (size_t k = 0; k < N_WEIGHTS; k += 9)
        for (size_t row = 0; row < 3; row++)
            for (size_t column = 0; column < row; column++) {
                uint8_t kept = w[k + 3 * row + column];
                w[k + 3 * row + column] = w[k + 3 * column + row];
                w[k + 3 * column + row] = kept;
            }
}

static void mix_kernels(Onnx__ModelProto *proto)
{
    uint8_t *w = tensor_of(proto, weights)->raw_data.data;
    for (size_t i = 0; i + 3 < N_WEIGHTS; i += 3) {
        uint8_t kept = w[i];
        w[i] = w[i + 3];
        w[i + 3] = kept;
    }
}

/* Of the 432 terms of each output those from..to - 1. */
static void lose_terms(Onnx__ModelProto *proto, size_t from, size_t to)
{
    uint8_t *w = tensor_of(proto, weights)->raw_data.data;
    for (size_t i = 0; i < N_WEIGHTS; i++)
        if (i % OF_CHANNEL >= from && i % OF_CHANNEL < to)
            w[i] = ZERO_POINT;
}

static void lose_all_but_first_eighth(Onnx__ModelProto *proto)
{
    lose_terms(proto, OF_CHANNEL / 8, OF_CHANNEL);
}

static void lose_last_half(Onnx__ModelProto *proto)
{
    lose_terms(proto, OF_CHANNEL / 2, OF_CHANNEL);
}

static void lose_rest(Onnx__ModelProto *proto)
{
    lose_terms(proto, OF_CHANNEL / 64 * 64, OF_CHANNEL);
}

static void lose_another_half(Onnx__ModelProto *proto)
{
    lose_terms(proto, OF_CHANNEL / 2 - 9, OF_CHANNEL - 9);
}

static void repeat_first(Onnx__ModelProto *proto)
{
    uint8_t *w = tensor_of(proto, weights)->raw_data.data;
    for (size_t i = 0; i < N_WEIGHTS; i++)
        w[i] = w[i - i % OF_CHANNEL + i % OF_CHANNEL % 32];
}

static void flip_signs(Onnx__ModelProto *proto)
{
    for (size_t i = 0; i < N_WEIGHTS; i++)
        tensor_of(proto, weights)->raw_data.data[i] ^= 0x80;
}

static void flip_signs_of_half(Onnx__ModelProto *proto)
{
    for (size_t i = 0; i < N_WEIGHTS; i += 2)
        tensor_of(proto, weights)->raw_data.data[i] ^= 0x80;
}

static void take_middle_as_zero_point(Onnx__ModelProto *proto)
{
    tensor_of(proto, "residual.weight_zero_point")->int32_data[0] = 128;
}

/* Rows of 432 bytes, read as if each took so many; behind the last nobody knows. */
static void read_rows_of(Onnx__ModelProto *proto, size_t stride)
{
    static uint8_t w[2 * N_WEIGHTS];
    memcpy(w, tensor_of(proto, weights)->raw_data.data, N_WEIGHTS);
    memset(w + N_WEIGHTS, 77, N_WEIGHTS);
    for (size_t row = 0; row < N_WEIGHTS / OF_CHANNEL; row++)
        memcpy(tensor_of(proto, weights)->raw_data.data + row * OF_CHANNEL, w + row * stride, OF_CHANNEL);
}

static void read_rows_of_448(Onnx__ModelProto *proto)
{
    read_rows_of(proto, 448);
}

static void read_rows_of_431(Onnx__ModelProto *proto)
{
    read_rows_of(proto, 431);
}

/* The changed model on such a device, as if it were the model. */
static void explain_against(struct fixture *f, const char *emulated, struct nd_model *model,
                            void (*change)(Onnx__ModelProto *proto))
{
    *f = (struct fixture){.model = load_changed("cnn.w8a8", change)};
    add_device(f, &(struct mc_device){.emulated = emulated, .stated = model});
    nd_model_destroy(&f->model);
    f->model = model;
    explain_ok(f);
}

static void explain_changed(struct fixture *f, const char *emulated, void (*change)(Onnx__ModelProto *proto))
{
    explain_against(f, emulated, load("cnn.w8a8"), change);
}

static const char *const devices[] = {"half-even", "double:8", "htp-v69", "htp-v73"};

static void constants_that_were_changed_are_named(void **state)
{
    (void)state;
    static const struct {
        void (*change)(Onnx__ModelProto *proto);
        const char *kind, *text;
    } rows[] = {
        {lose_bias, "bias", "its bias is lost"},
        {scale_weights, "weights-scale", "the scale of its weights is 1.5 times as large"},
        {halve_channel, "weights-scale", "its weights of channel 7 are 0.5 times as large"},
        {move_channel, "weights-zero-point", "of channel 7"},
        {move_zero_point, "weights-zero-point", "the zero point of its weights is off by -3"},
        {turn_kernels, "transposed-weights", "turned by 180 degrees"},
        {transpose_kernels, "transposed-weights", "its kernels are transposed"},
        {flip_signs, "weights-type",
         "8-bit values of its weights are read as signed, not as unsigned less 128"},
        {take_middle_as_zero_point, "weights-zero-point",
         "the zero point of its weights is taken as 128 everywhere, not 130"},
        {lose_all_but_first_eighth, "terms-lost", "only terms 0 to 53 of the 432 of each sum are summed"},
        {lose_last_half, "terms-lost", "only terms 0 to 215 of the 432 of each sum are summed"},
        {lose_rest, "terms-lost", "terms 384 to 431 of the 432 of each sum are left out"},
        {repeat_first, "weights-layout", "the first 32 terms of each output are read for all groups of 32"},
        {read_rows_of_448, "weights-layout", "a row too late: rows of 432 bytes are read as of 448"},
        {read_rows_of_431, "weights-layout", "from output 1 on the weights are read 1 byte a row too early"},
    };
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct fixture f;
            explain_changed(&f, devices[d], rows[i].change);
            const struct nd_explained_layer *layer = layer_of(&f, conv);
            assert_int_equal(f.e->devices[0].n_faulty, 1);
            assert_int_equal(layer->judgement.state, ND_LAYER_FAULTY);
            if (layer->judgement.fault.kind == NULL || strcmp(layer->judgement.fault.kind, rows[i].kind) != 0 ||
                strstr(layer->judgement.fault.text, rows[i].text) == NULL)
                fail_msg("%s, row %zu: %s: %s", devices[d], i, layer->judgement.fault.kind,
                         layer->judgement.fault.text);
            close_fixture(&f);
        }
}

/* Of these no change of that list gives all values. */
static void near_misses_are_not_named(void **state)
{
    (void)state;
    static void (*const changes[])(Onnx__ModelProto * proto) = {
        lose_bias_but_one, move_half_a_channel, mix_kernels, flip_signs_of_half, lose_another_half};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
            struct fixture f;
            explain_changed(&f, devices[d], changes[i]);
            const char *kind = layer_of(&f, conv)->judgement.fault.kind;
            assert_int_not_equal(layer_of(&f, conv)->judgement.state, ND_LAYER_FOLLOWS);
            if (kind != NULL && (strcmp(kind, "bias") == 0 || strcmp(kind, "terms-lost") == 0 ||
                                 strncmp(kind, "weights-", 8) == 0 || strcmp(kind, "transposed-weights") == 0))
                fail_msg("%s, row %zu: %s", devices[d], i, layer_of(&f, conv)->judgement.fault.text);
            close_fixture(&f);
        }
}

/* Where other arithmetic may make single steps, a quarter of 4 LSB is as near as nothing: a lost bias is said
 * where it gives the values. */
static void few_lsb_of_bias_are_not_called_lost(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (int is_lost = 0; is_lost < 2; is_lost++) {
            struct fixture f;
            explain_against(&f, devices[d], load_changed("cnn.w8a8", make_biases_small),
                            is_lost != 0 ? lose_small_biases : quarter_small_biases);
            const char *kind = layer_of(&f, conv)->judgement.fault.kind;
            assert_int_not_equal(layer_of(&f, conv)->judgement.state, ND_LAYER_FOLLOWS);
            if ((kind != NULL && strcmp(kind, "bias") == 0) != (is_lost != 0))
                fail_msg("%s, lost %d: %s", devices[d], is_lost, layer_of(&f, conv)->judgement.fault.text);
            close_fixture(&f);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(constants_that_were_changed_are_named),
        TEST(near_misses_are_not_named),
        TEST(few_lsb_of_bias_are_not_called_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
