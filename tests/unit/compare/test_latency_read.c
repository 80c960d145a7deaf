/* Lists of latencies that other tools wrote. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>

#include "core/files/file.h"
#include "npudiff/compare/latency.h"
#include "support/scratch.h"

static enum nd_status read_bytes(const char *name, const void *bytes, size_t n, const char *column,
                                 const char *unit, struct nd_latency_list *list, struct nd_error *err)
{
    char *path = in_folder(name);
    expect_ok(nd_file_put(path, bytes, n, err), err);
    enum nd_status status = nd_latency_read(path, column, unit, list, err);
    free(path);
    return status;
}

struct good {
    const char *text, *column, *unit, *format;
    double expected[3];
};

static void every_form_is_read(void **state)
{
    (void)state;
    static const struct good cases[] = {
        {"1\n2.5\n3e1\n", NULL, NULL, "text", {1, 2.5, 30}},
        {"\xef\xbb\xbf# note\r\n 1 \r\n\r\n2 # x\r\n3", NULL, "us", "text", {1, 2, 3}},
        {"latency\n1\n2\n3\n", NULL, "ms", "csv", {1000, 2000, 3000}},
        {"run,\"a, \"\"b\"\"\",c\n1,4,x\n2,\"5\",\n3, 6 ,y\n", "a, \"b\"", NULL, "csv", {4, 5, 6}},
        {"a;b\n1;7\n1;8\n1;9\n", "b", "ns", "csv", {7 * 1e-3, 8 * 1e-3, 9 * 1e-3}},
        {"a\tb\n1\t7\n1\t8\n1\t9\n", "b", NULL, "csv", {7, 8, 9}},
        {"  [1, 2.5, 3]", NULL, "s", "json", {1e6, 2.5e6, 3e6}},
        {"{\"a\": {\"b.c\": [1, 2, 3]}, \"d\": [4]}", "a.b.c", NULL, "json", {1, 2, 3}},
        {"{\"execution_summary\": {\"all_inference_times\": [10, 11, 12]}}",
         NULL,
         NULL,
         "ai-hub",
         {10, 11, 12}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nd_latency_list list = {0};
        struct nd_error err = {0};
        expect_ok(read_bytes("list", cases[i].text, strlen(cases[i].text), cases[i].column, cases[i].unit,
                             &list, &err),
                  &err);
        assert_string_equal(list.format, cases[i].format);
        assert_int_equal(list.n, 3);
        for (size_t k = 0; k < 3; k++)
            assert_f64_bits(list.us[k], cases[i].expected[k]);
        nd_latency_list_deinit(&list);
        assert_null(list.us);
    }
}

#define KERNEL(name, op, provider)                                                                             \
    "{\"cat\": \"Node\", \"name\": \"" name "_kernel_time\", \"dur\": 3, \"args\": {\"op_name\": \"" op        \
    "\", \"provider\": \"" provider "ExecutionProvider\"}},"
#define RUN(us) "{\"cat\": \"Session\", \"name\": \"model_run\", \"dur\": " us "}"

static void profiles_give_the_times_of_runs_and_say_where_kernels_ran(void **state)
{
    (void)state;
    static const struct {
        const char *kernels, *where;
    } cases[] = {
        {KERNEL("x_Q", "QuantizeLinear", "CPU") KERNEL("c", "QLinearConv", "CPU"),
         "kernels: 2 of 2 ran on CPUExecutionProvider"},
        {KERNEL("x_Q", "QuantizeLinear", "CPU") KERNEL("f_1_0", "f_1", "QNN"),
         "kernels but quantisers: 0 of 1 ran on CPUExecutionProvider, beside QNNExecutionProvider"},
        {KERNEL("x_Q", "QuantizeLinear", "CPU") KERNEL("f_1_0", "f_1", "QNN") KERNEL("erf", "Erf", "CPU"),
         "fallback of kernels but quantisers: 1 of 2 ran on CPUExecutionProvider, beside QNNExecutionProvider: "
         "'erf'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nd_latency_list list = {0};
        struct nd_error err = {0};
        char text[2048];
        snprintf(text, sizeof text, "[%s" RUN("10") ",\n" RUN("12.5") "]", cases[i].kernels);
        expect_ok(read_bytes("profile", text, strlen(text), NULL, "ms", &list, &err), &err);
        assert_string_equal(list.format, "ort-profile");
        assert_int_equal(list.n, 2);
        assert_f64_bits(list.us[1], 12.5);
        assert_string_equal(list.where, cases[i].where);
        nd_latency_list_deinit(&list);
    }
}

struct bad {
    const char *text, *column;
    enum nd_status status;
    const char *says;
};

static void bad_lists_are_refused_with_their_place(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"", NULL, ND_ERR_FORMAT, "has no latencies"},
        {"# only\n\n", NULL, ND_ERR_FORMAT, "has no latencies"},
        {"time\n", NULL, ND_ERR_FORMAT, "has no latencies"},
        {"[]", NULL, ND_ERR_FORMAT, "has no latencies"},
        {"1\n2\nthree\n", NULL, ND_ERR_FORMAT, "line 3: 'three' is no number"},
        {"1\nnan\n", NULL, ND_ERR_FORMAT, "line 2: 'nan'"},
        {"1\ninf\n", NULL, ND_ERR_FORMAT, "line 2: 'inf'"},
        {"1\n1e400\n", NULL, ND_ERR_FORMAT, "line 2"},
        {"1\n\n-4\n", NULL, ND_ERR_FORMAT, "line 3: -4 is not a positive time"},
        {"0\n", NULL, ND_ERR_FORMAT, "line 1: 0 is not a positive time"},
        {"1,2\n3,4\n", NULL, ND_ERR_FORMAT, "no header"},
        {"hello world\nfoo\n", NULL, ND_ERR_FORMAT, "line 2: 'foo' is no number"},
        {"a,b\n1,2\n", NULL, ND_ERR_NOT_FOUND, "name one of its columns: 'a', 'b'"},
        {"a,b\n1,2\n", "c", ND_ERR_NOT_FOUND, "has no column 'c', but 'a', 'b'"},
        {"a,b\n1,2\n3\n", "b", ND_ERR_FORMAT, "line 3: 1 cells"},
        {"a,b\n1,\n", "b", ND_ERR_FORMAT, "line 2: '' is no number"},
        {"1\n2\n", "c", ND_ERR_NOT_FOUND, "plain list"},
        {"[1, \"2\"]", NULL, ND_ERR_FORMAT, "element 1 is no number"},
        {"[1, 0]", NULL, ND_ERR_FORMAT, "element 1: 0 is not"},
        {"[1, 2", NULL, ND_ERR_FORMAT, "no whole JSON"},
        {"[1]", "c", ND_ERR_NOT_FOUND, "plain array"},
        {"{\"a\": {\"b\": [1]}, \"t\": [\"x\"]}", NULL, ND_ERR_NOT_FOUND, "name one of its columns: 'a.b'"},
        {"{\"a\": 1}", NULL, ND_ERR_NOT_FOUND, "no list of numbers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nd_latency_list list = {.n = 77};
        struct nd_error err = {0};
        enum nd_status status =
            read_bytes("list", cases[i].text, strlen(cases[i].text), cases[i].column, NULL, &list, &err);
        print_message("# %s\n", err.message);
        assert_int_equal(status, cases[i].status);
        assert_non_null(strstr(err.message, cases[i].says));
        assert_int_equal(list.n, 77);
    }
}

static void other_encodings_and_units_are_refused(void **state)
{
    (void)state;
    struct nd_latency_list list;
    struct nd_error err = {0};
    assert_int_equal(read_bytes("l",
                                "\xff\xfe"
                                "1\0\n\0",
                                6, NULL, NULL, &list, &err),
                     ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "UTF-8"));
    assert_int_equal(read_bytes("l", "Zeit in \xb5s\n1\n", 13, NULL, NULL, &list, &err), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "UTF-8"));
    assert_int_equal(read_bytes("l", "1\n", 2, NULL, "min", &list, &err), ND_ERR_USAGE);
    assert_int_equal(read_bytes("l.npy", "\x93NUMPY", 6, NULL, NULL, &list, &err), ND_ERR_FORMAT);
    assert_int_equal(read_bytes("l.npz", "PK", 2, NULL, NULL, &list, &err), ND_ERR_FORMAT);
    assert_int_equal(nd_latency_read("/nonexistent/l", NULL, NULL, &list, &err), ND_ERR_IO);
}

static void npy_is_read(void **state)
{
    (void)state;
    static const char header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }";
    unsigned char bytes[128 + 24];
    const double values[3] = {1.5, 2, 3};
    memset(bytes, ' ', sizeof bytes);
    memcpy(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(bytes + 10, header, sizeof header - 1);
    bytes[127] = '\n';
    memcpy(bytes + 128, values, sizeof values);
    struct nd_latency_list list = {0};
    struct nd_error err = {0};
    expect_ok(read_bytes("l.npy", bytes, sizeof bytes, NULL, "ms", &list, &err), &err);
    assert_string_equal(list.format, "npy");
    assert_int_equal(list.n, 3);
    assert_f64_bits(list.us[0], 1500);
    nd_latency_list_deinit(&list);
}

/* Mutated lists end in a list or an error, never in anything else. */
static void mutated_lists_are_read_or_refused(void **state)
{
    (void)state;
    static const char *const seeds[] = {"a,\"b\"\n1,\"2\"\n3,4\n", "{\"a\": [1, 2, 3]}", "1\n2\n3 # x\n"};
    uint64_t random = 7;
    for (size_t i = 0; i < 3000; i++) {
        char text[64];
        size_t n = strlen(seeds[i % 3]);
        memcpy(text, seeds[i % 3], n);
        for (size_t k = 0; k < 1 + i % 4; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[(random >> 33) % n] = (char)(random >> 56);
        }
        struct nd_latency_list list = {0};
        struct nd_error err = {0};
        enum nd_status status = read_bytes("m", text, n - i % 2, i % 5 == 0 ? "a" : NULL, NULL, &list, &err);
        assert_true(status == ND_OK ? list.n > 0 : err.message[0] != '\0');
        for (size_t k = 0; k < list.n; k++)
            assert_true(list.us[k] > 0 && isfinite(list.us[k]));
        nd_latency_list_deinit(&list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_read),
        cmocka_unit_test(profiles_give_the_times_of_runs_and_say_where_kernels_ran),
        cmocka_unit_test(bad_lists_are_refused_with_their_place),
        cmocka_unit_test(other_encodings_and_units_are_refused),
        cmocka_unit_test(npy_is_read),
        cmocka_unit_test(mutated_lists_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
