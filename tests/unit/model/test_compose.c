/* Models that are written to order, read back by the loader. */
#include "support/main.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "model/rewrite/compose.h"
#include "npudiff/model/model.h"
#include "support/scratch.h"

/* x (uint8 quantised values) times constant weights, one scale per column, requantised. */
static struct nd_compose *make_product(void)
{
    const struct nd_shape x = {.rank = 2, .dims = {4, 3}}, w = {.rank = 2, .dims = {3, 2}},
                          y = {.rank = 2, .dims = {4, 2}};
    float x_scale = 0.5f, w_scales[2] = {0.25f, 0.125f}, y_scale = 2;
    int64_t x_zero = 7, w_zeros[2] = {0, -3}, y_zero = 300;
    const struct nd_quant x_quant = {.n = 1, .axis = -1, .scale = &x_scale, .zero_point = &x_zero},
                          w_quant = {.n = 2, .axis = 1, .scale = w_scales, .zero_point = w_zeros},
                          y_quant = {.n = 1, .axis = -1, .scale = &y_scale, .zero_point = &y_zero};
    const int8_t weights[6] = {1, -2, 3, -4, 5, -128};
    struct nd_compose *c = NULL;
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_U8, &x);
    nd_compose_constant(c, "w", ND_DTYPE_I8, &w, weights);
    nd_compose_dequantize(c, "x", "x_real", &x_quant, ND_DTYPE_U8);
    nd_compose_dequantize(c, "w", "w_real", &w_quant, ND_DTYPE_I8);
    nd_compose_node(c, "MatMul", (const char *[]){"x_real", "w_real", NULL}, "product");
    nd_compose_quantize(c, "product", "y", &y_quant, ND_DTYPE_U16);
    nd_compose_output(c, "y", ND_DTYPE_U16, &y);
    return c;
}

static void written_model_is_read_back(void **state)
{
    (void)state;
    struct nd_compose *c = make_product();
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    char *path = in_folder("product.onnx");
    expect_ok(nd_compose_write(c, path, &err), &err);
    expect_ok(nd_model_load(path, &model, &err), &err);
    assert_int_equal(nd_model_opset(model), 21);
    assert_int_equal(nd_model_n_layers(model), 1);
    assert_string_equal(nd_model_layer(model, 0)->op_types, "MatMul");
    const struct nd_tensor *tensor = nd_model_tensor(model, nd_model_layer(model, 0)->tensor);
    assert_int_equal(tensor->dtype, ND_DTYPE_U16);
    assert_int_equal(tensor->quant.zero_point[0], 300);
    assert_true(tensor->quant.scale[0] == 2.0f);
    assert_int_equal(nd_model_input(model, 0)->dtype, ND_DTYPE_U8);
    assert_int_equal(nd_model_input(model, 0)->shape.dims[1], 3);
    nd_model_destroy(&model);
    nd_compose_destroy(&c);
    free(path);
}

static void same_calls_write_same_bytes(void **state)
{
    (void)state;
    void *bytes[2];
    size_t n[2];
    for (size_t i = 0; i < 2; i++) {
        struct nd_compose *c = make_product();
        char *path = in_folder(i == 0 ? "a.onnx" : "b.onnx");
        assert_int_equal(nd_compose_write(c, path, NULL), ND_OK);
        assert_int_equal(nd_compose_write(c, path, NULL), ND_OK); /* again, over the first */
        assert_int_equal(nd_file_read(path, 1 << 20, &bytes[i], &n[i], NULL), ND_OK);
        nd_compose_destroy(&c);
        free(path);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
}

/* Where the folder does not exist nothing is written, and the message names the file. */
static void unwritable_path_is_told(void **state)
{
    (void)state;
    struct nd_compose *c = make_product();
    struct nd_error err = {0};
    char *path = in_folder("none/product.onnx");
    assert_int_equal(nd_compose_write(c, path, &err), ND_ERR_IO);
    assert_non_null(strstr(err.message, "product.onnx"));
    nd_compose_destroy(&c);
    free(path);
}

static void attributes_belong_to_the_last_node(void **state)
{
    (void)state;
    const struct nd_shape shape = {.rank = 4, .dims = {1, 1, 4, 4}}, out = {.rank = 4, .dims = {1, 1, 2, 2}};
    struct nd_compose *c = NULL;
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    char *path = in_folder("pool.onnx");
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_F32, &shape);
    nd_compose_node(c, "AveragePool", (const char *[]){"x", NULL}, "y");
    nd_compose_attribute_ints(c, "kernel_shape", (const int64_t[]){2, 2}, 2);
    nd_compose_attribute_ints(c, "strides", (const int64_t[]){2, 2}, 2);
    nd_compose_attribute_i(c, "ceil_mode", 0);
    nd_compose_attribute_s(c, "auto_pad", "VALID");
    nd_compose_output(c, "y", ND_DTYPE_F32, &out);
    expect_ok(nd_compose_write(c, path, &err), &err);
    expect_ok(nd_model_load(path, &model, &err), &err);
    assert_int_equal(nd_model_n_nodes(model), 1);
    assert_string_equal(nd_model_node(model, 0)->op_type, "AveragePool");
    nd_model_destroy(&model);
    nd_compose_destroy(&c);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(written_model_is_read_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(same_calls_write_same_bytes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(unwritable_path_is_told, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(attributes_belong_to_the_last_node, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
