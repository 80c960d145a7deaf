/* The operators in double precision against golden/oracle/exact_ops.bin.gz, and what they do with calls that
 * make no sense. */
#include "support/main.h"

#include <math.h>

#include "core/error.h"
#include "support/exact_cases.h"

/* Against the oracle. */

static bool bits_equal(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static double largest_of(const struct nd_array *array)
{
    double largest = 0;
    for (size_t i = 0; i < array->n; i++)
        if (isfinite(array->x[i]) && fabs(array->x[i]) > largest)
            largest = fabs(array->x[i]);
    return largest;
}

/* To the bit, or within 1e-12 of the largest element. */
static bool is_expected(const struct exact_case *one, size_t output, const struct nd_array *made)
{
    const struct nd_array *wanted = &one->outputs.arrays[output];
    char text_made[128], text_wanted[128];
    if (!nd_shape_equal(&made->shape, &wanted->shape) || made->dtype != wanted->dtype) {
        print_error("%s: output %zu is %s %s, not %s %s\n", one->name, output, nd_dtype_name(made->dtype),
                    nd_shape_format(&made->shape, text_made, sizeof text_made), nd_dtype_name(wanted->dtype),
                    nd_shape_format(&wanted->shape, text_wanted, sizeof text_wanted));
        return false;
    }
    double tolerance = one->is_exact ? 0 : 1e-12 * largest_of(wanted);
    for (size_t i = 0; i < wanted->n; i++) {
        double x = made->x[i], e = wanted->x[i];
        if (bits_equal(x, e) || (x == 0 && e == 0) || (isfinite(e) && fabs(x - e) <= tolerance))
            continue;
        print_error("%s: element %zu of output %zu is %.17g, not %.17g\n", one->name, i, output, x, e);
        return false;
    }
    return true;
}

static bool passes(const struct exact_case *one)
{
    struct nd_array made[MAX_TENSORS] = {0};
    struct nd_error err = {0};
    bool is_right = exact_case_run(one, made, &err) == ND_OK;
    if (!is_right)
        print_error("%s: %s\n", one->name, err.message);
    for (size_t i = 0; i < one->outputs.n; i++) {
        if (is_right && one->outputs.is_present[i])
            is_right = is_expected(one, i, &made[i]);
        nd_array_deinit(&made[i]);
    }
    return is_right;
}

static void operators_of_the_oracle_give_what_the_specification_says(void **state)
{
    (void)state;
    struct exact_cases cases;
    struct exact_case one;
    size_t n = 0, n_wrong = 0;
    exact_cases_open(&cases);
    for (; exact_cases_next(&cases, &one); n++) {
        if (!passes(&one))
            n_wrong++;
        exact_case_free(&one);
    }
    exact_cases_close(&cases);
    assert_true(n > 800);
    assert_int_equal(n_wrong, 0);
}

/* Calls that make no sense. */

static uint64_t random_state;

static uint64_t random_below(uint64_t n)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % n;
}

static const double wild[] = {0,  1,   -1,    2,       -2,     3,           7,
                              -9, 0.5, 1e300, -0x1p63, 0x1p63, (double)NAN, (double)INFINITY};

/* Another shape of at most 4 elements an axis, with elements of which some are wild. Lists that say how large
 * something becomes (has_small_values) keep small numbers: memory is not what is tested here. */
static void replace_input(struct nd_array *array, bool has_small_values)
{
    struct nd_shape shape = {.rank = (int)random_below(6)};
    for (int axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = (int64_t)random_below(5);
    assert_int_equal(nd_array_make(array, array->dtype, &shape, NULL), ND_OK);
    for (size_t i = 0; i < array->n; i++)
        array->x[i] = has_small_values || random_below(4) != 0
                          ? (double)random_below(7) - 3
                          : wild[random_below(sizeof wild / sizeof wild[0])];
}

static int64_t random_attribute(int64_t now)
{
    static const int64_t numbers[] = {-9, -2, -1, 0, 1, 2, 3, 5};
    return random_below(2) == 0 ? now : numbers[random_below(sizeof numbers / sizeof numbers[0])];
}

/* What is an integer in an attribute becomes another one; a list may lose its last number. */
static void change_attributes(Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_attribute; i++) {
        Onnx__AttributeProto *attribute = node->attribute[i];
        attribute->i = random_attribute(attribute->i);
        for (size_t k = 0; k < attribute->n_ints; k++)
            attribute->ints[k] = random_attribute(attribute->ints[k]);
        if (attribute->n_ints > 0 && random_below(4) == 0)
            attribute->n_ints--;
    }
}

static bool takes_sizes(const char *op_type, size_t input)
{
    static const char *const names[] = {"ConstantOfShape", "Expand", "OneHot", "Pad",     "Range",
                                        "Reshape",         "Resize", "Tile",   "Upsample"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], op_type) == 0)
            return input > 0 || i == 0 || strcmp(op_type, "Range") == 0;
    return false;
}

static void run_changed(struct exact_case *one)
{
    struct nd_array made[MAX_TENSORS] = {0};
    struct nd_error err = {0};
    for (size_t i = 0; i < one->inputs.n; i++) {
        uint64_t how = random_below(4);
        if (one->inputs.is_present[i] && how == 0)
            replace_input(&one->inputs.arrays[i], takes_sizes(one->node->op_type, i));
        else if (how == 1 && random_below(4) == 0)
            one->inputs.is_present[i] = false;
    }
    if (random_below(2) == 0)
        change_attributes(one->node);
    enum nd_status status = exact_case_run(one, made, &err);
    if (status != ND_OK) {
        assert_true(status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT || status == ND_ERR_MEMORY);
        assert_non_null(strstr(err.message, one->node->op_type));
    }
    for (size_t i = 0; i < MAX_TENSORS; i++)
        nd_array_deinit(&made[i]);
}

static void changed_calls_work_or_say_why_not(void **state)
{
    (void)state;
    const char *seed = getenv("ND_SEED");
    random_state = seed != NULL ? strtoull(seed, NULL, 0) : 1;
    print_message("# seed %llu\n", (unsigned long long)random_state);
    for (int round = 0; round < 20; round++) {
        struct exact_cases cases;
        struct exact_case one;
        exact_cases_open(&cases);
        while (exact_cases_next(&cases, &one)) {
            run_changed(&one);
            exact_case_free(&one);
        }
        exact_cases_close(&cases);
    }
}

/* One node with an attribute, and vectors of two elements as inputs. */
static enum nd_status run_node(const char *op_type, const char *attribute_name, int64_t value, size_t n_inputs,
                               struct nd_error *err)
{
    double elements[2] = {1, 2};
    struct nd_array input = {.shape = {.rank = 1, .dims = {2}}, .n = 2, .dtype = ND_DTYPE_F32, .x = elements};
    struct nd_array output = {0};
    const struct nd_array *inputs[] = {&input, &input, &input};
    struct nd_array *outputs[] = {&output};
    char type[64], name[64];
    snprintf(type, sizeof type, "%s", op_type);
    snprintf(name, sizeof name, "%s", attribute_name != NULL ? attribute_name : "");
    Onnx__AttributeProto attribute = ONNX__ATTRIBUTE_PROTO__INIT, *attributes[] = {&attribute};
    attribute.name = name;
    attribute.has_i = 1;
    attribute.i = value;
    Onnx__NodeProto node = ONNX__NODE_PROTO__INIT;
    node.name = (char[]){"a node"};
    node.op_type = type;
    node.n_attribute = attribute_name != NULL ? 1 : 0;
    node.attribute = attributes;
    struct nd_op_call call = {
        .node = &node, .opset = 21, .n_inputs = n_inputs, .n_outputs = 1, .inputs = inputs, .outputs = outputs};
    enum nd_status status = nd_op_run(&call, err);
    nd_array_deinit(&output);
    return status;
}

static void operator_unknown_is_unsupported_and_named(void **state)
{
    (void)state;
    struct nd_error err = {0};
    assert_int_equal(run_node("NonMaxSuppression", NULL, 0, 1, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(err.id, ND_E_EXACT_OPERATOR);
    assert_string_equal(err.message,
                        "node 'a node' (NonMaxSuppression): the operator is not evaluated in double precision");
    assert_string_equal(err.object, "a node");
    assert_null(nd_op_find("com.example", "Add"));
    assert_non_null(nd_op_find("ai.onnx", "Add"));
    assert_non_null(nd_op_find(NULL, "Add"));
}

static void input_missing_is_a_format_error(void **state)
{
    (void)state;
    struct nd_error err = {0};
    assert_int_equal(run_node("Add", NULL, 0, 1, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_EXACT_SHAPE);
    assert_string_equal(err.message, "node 'a node' (Add): input 1 is missing");
}

static void attribute_not_covered_is_unsupported(void **state)
{
    (void)state;
    struct nd_error err = {0};
    assert_int_equal(run_node("Add", "axis", 0, 2, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(run_node("LpNormalization", "p", 3, 1, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(run_node("Resize", "antialias", 1, 3, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(run_node("Softmax", "axis", 1, 1, &err), ND_ERR_FORMAT);
    assert_int_equal(run_node("Softmax", "axis", -1, 1, &err), ND_OK);
}

/* Arrays. */

/* Every bit pattern is loaded to a number that is stored as that pattern again; NaN stays NaN. */
static void load_and_store_of_small_floats_return_every_pattern(void **state)
{
    (void)state;
    static const enum nd_dtype dtypes[] = {ND_DTYPE_F16, ND_DTYPE_BF16, ND_DTYPE_F8E4M3FN, ND_DTYPE_F8E5M2};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (uint32_t bits = 0; bits < 1U << 8 * nd_dtype_size_bytes(dtypes[d]); bits++) {
            uint16_t pattern = (uint16_t)bits, stored = 0;
            double x;
            nd_array_load(dtypes[d], &pattern, 1, &x);
            nd_array_store(dtypes[d], &x, 1, &stored);
            if (!isnan(x))
                assert_int_equal(stored, pattern);
        }
}

static uint32_t store_one(enum nd_dtype dtype, double x)
{
    uint32_t bits = 0;
    nd_array_store(dtype, &x, 1, &bits);
    return bits;
}

static void store_rounds_half_to_even_and_once(void **state)
{
    (void)state;
    assert_int_equal(store_one(ND_DTYPE_F16, 1 + 0x1p-11), 0x3c00);
    assert_int_equal(store_one(ND_DTYPE_F16, 1 + 3 * 0x1p-11), 0x3c02);
    assert_int_equal(store_one(ND_DTYPE_F16, 1 + 0x1p-11 + 0x1p-40), 0x3c01); /* not by way of a float */
    assert_int_equal(store_one(ND_DTYPE_F16, 65519), 0x7bff);
    assert_int_equal(store_one(ND_DTYPE_F16, 65520), 0x7c00);
    assert_int_equal(store_one(ND_DTYPE_F16, -0x1p-25), 0x8000);
    assert_int_equal(store_one(ND_DTYPE_F16, 0x1.8p-25), 0x0001);
    assert_int_equal(store_one(ND_DTYPE_BF16, 1 + 0x1p-8), 0x3f80);
    assert_int_equal(store_one(ND_DTYPE_BF16, 1e300), 0x7f80);
    assert_int_equal(store_one(ND_DTYPE_F8E4M3FN, 464), 0x7e);
    assert_int_equal(store_one(ND_DTYPE_F8E4M3FN, 465), 0x7f);
    assert_int_equal(store_one(ND_DTYPE_F32, 1 + 0x1p-24), 0x3f800000);
}

static void store_clips_integers_and_gives_0_for_nan(void **state)
{
    (void)state;
    double x[] = {2.5, 3.5, -1e30, 1e30, (double)NAN};
    uint8_t u8[5];
    int8_t i4[5];
    int64_t i64[5];
    uint64_t u64[5];
    nd_array_store(ND_DTYPE_U8, x, 5, u8);
    nd_array_store(ND_DTYPE_I4, x, 5, i4);
    nd_array_store(ND_DTYPE_I64, x, 5, i64);
    nd_array_store(ND_DTYPE_U64, x, 5, u64);
    assert_memory_equal(u8, ((uint8_t[]){2, 4, 0, 255, 0}), sizeof u8);
    assert_memory_equal(i4, ((int8_t[]){2, 4, -8, 7, 0}), sizeof i4);
    assert_memory_equal(i64, ((int64_t[]){2, 4, INT64_MIN, INT64_MAX, 0}), sizeof i64);
    assert_memory_equal(u64, ((uint64_t[]){2, 4, 0, UINT64_MAX, 0}), sizeof u64);
}

static void make_refuses_shapes_that_do_not_fit(void **state)
{
    (void)state;
    struct nd_array array = {0};
    struct nd_shape large = {.rank = 3, .dims = {1 << 30, 1 << 30, 1 << 30}};
    struct nd_shape hidden = {.rank = 3, .dims = {0, (int64_t)1 << 40, (int64_t)1 << 40}};
    struct nd_shape negative = {.rank = 1, .dims = {-1}};
    assert_int_equal(nd_array_make(&array, ND_DTYPE_F32, &large, NULL), ND_ERR_MEMORY);
    assert_int_equal(nd_array_make(&array, ND_DTYPE_F32, &hidden, NULL), ND_ERR_MEMORY);
    assert_int_equal(nd_array_make(&array, ND_DTYPE_F32, &negative, NULL), ND_ERR_FORMAT);
    assert_null(array.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_of_the_oracle_give_what_the_specification_says),
        cmocka_unit_test(changed_calls_work_or_say_why_not),
        cmocka_unit_test(operator_unknown_is_unsupported_and_named),
        cmocka_unit_test(input_missing_is_a_format_error),
        cmocka_unit_test(attribute_not_covered_is_unsupported),
        cmocka_unit_test(load_and_store_of_small_floats_return_every_pattern),
        cmocka_unit_test(store_rounds_half_to_even_and_once),
        cmocka_unit_test(store_clips_integers_and_gives_0_for_nan),
        cmocka_unit_test(make_refuses_shapes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
