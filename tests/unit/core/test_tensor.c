#include "support/main.h"

#include <string.h>

#include "npudiff/core/tensor.h"

static void dtype_names_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        enum nd_dtype dtype = (enum nd_dtype)i;
        const char *name = nd_dtype_name(dtype);
        if (nd_dtype_size_bytes(dtype) > 0)
            assert_int_equal(nd_dtype_from_name(name), dtype);
        else
            assert_string_equal(name, "none");
    }
    assert_int_equal(nd_dtype_from_name("float"), ND_DTYPE_NONE);
    assert_true(nd_dtype_is_signed_integer(ND_DTYPE_I16));
    assert_false(nd_dtype_is_signed_integer(ND_DTYPE_U16));
    assert_false(nd_dtype_is_integer(ND_DTYPE_BOOL));
    assert_true(nd_dtype_is_float(ND_DTYPE_BF16));
}

static void dtype_small_types_take_a_byte_and_have_onnx_numbers(void **state)
{
    (void)state;
    static const struct {
        int number;
        const char *name;
        bool is_float, is_signed;
    } types[] = {{17, "float8_e4m3fn", true, false},
                 {19, "float8_e5m2", true, false},
                 {21, "uint4", false, false},
                 {22, "int4", false, true}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        enum nd_dtype dtype = (enum nd_dtype)types[i].number;
        assert_string_equal(nd_dtype_name(dtype), types[i].name);
        assert_int_equal(nd_dtype_size_bytes(dtype), 1);
        assert_int_equal(nd_dtype_is_float(dtype), types[i].is_float);
        assert_int_equal(nd_dtype_is_integer(dtype), !types[i].is_float);
        assert_int_equal(nd_dtype_is_signed_integer(dtype), types[i].is_signed);
    }
    assert_int_equal(nd_dtype_size_bytes((enum nd_dtype)18), 0); /* float8_e4m3fnuz, which no device has */
}

static void shape_size_is_checked(void **state)
{
    (void)state;
    size_t n = 9;
    assert_int_equal(nd_shape_n_elems(&(struct nd_shape){0}, &n, NULL), ND_OK);
    assert_int_equal(n, 1);
    struct nd_shape huge = {.rank = 3, .dims = {INT64_MAX, INT64_MAX, 2}};
    assert_int_equal(nd_shape_n_elems(&huge, &n, NULL), ND_ERR_MEMORY);
    struct nd_shape negative = {.rank = 1, .dims = {-1}};
    assert_int_equal(nd_shape_n_elems(&negative, &n, NULL), ND_ERR_FORMAT);
    struct nd_shape wild = {.rank = 9};
    assert_int_equal(nd_shape_n_elems(&wild, &n, NULL), ND_ERR_FORMAT);
    struct nd_shape image = {.rank = 4, .dims = {1, 3, 5, 7}};
    assert_int_equal(nd_shape_size_bytes(&image, ND_DTYPE_F16, &n, NULL), ND_OK);
    assert_int_equal(n, 210);
    assert_int_equal(nd_shape_size_bytes(&image, ND_DTYPE_NONE, &n, NULL), ND_ERR_FORMAT);
    char text[64];
    assert_string_equal(nd_shape_format(&image, text, sizeof text), "1x3x5x7");
    assert_string_equal(nd_shape_format(&(struct nd_shape){0}, text, sizeof text), "scalar");
    char tiny[4];
    assert_string_equal(nd_shape_format(&image, tiny, sizeof tiny), "1x3");
}

static void digest_matches_the_published_value(void **state)
{
    (void)state;
    /* XXH3_128bits of the empty string, from xxHash's own sanity table. */
    struct nd_digest empty = nd_digest_bytes(NULL, 0);
    assert_true(empty.low == 0x6001C324468D497FULL && empty.high == 0x99AA06D3014798D8ULL);
    struct nd_digest a = nd_digest_bytes("a", 1), b = nd_digest_bytes("b", 1);
    assert_false(nd_digest_equal(a, b));
    assert_true(nd_digest_equal(a, a));
}

static void tensor_copy_is_deep(void **state)
{
    (void)state;
    float scale[2] = {0.5f, 0.25f};
    int64_t zero[2] = {1, 2};
    struct nd_tensor tensor = {.name = (char *)"n",
                               .onnx_name = (char *)"o",
                               .dtype = ND_DTYPE_U8,
                               .quant = {.n = 2, .axis = 1, .scale = scale, .zero_point = zero}};
    struct nd_tensor copy;
    assert_int_equal(nd_tensor_copy(&tensor, &copy, NULL), ND_OK);
    assert_ptr_not_equal(copy.name, tensor.name);
    assert_string_equal(copy.onnx_name, "o");
    assert_null(copy.node);
    assert_f32_bits(copy.quant.scale[1], 0.25f);
    assert_int_equal(copy.quant.zero_point[1], 2);
    nd_tensor_deinit(&copy);
    nd_tensor_deinit(&copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype_names_round_trip),
        cmocka_unit_test(dtype_small_types_take_a_byte_and_have_onnx_numbers),
        cmocka_unit_test(shape_size_is_checked),
        cmocka_unit_test(digest_matches_the_published_value),
        cmocka_unit_test(tensor_copy_is_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
