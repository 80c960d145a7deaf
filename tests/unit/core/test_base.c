#include "support/main.h"

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

static void error_filled_carries_id_status_object_and_message(void **state)
{
    (void)state;
    struct nd_error err = {0};
    assert_int_equal(nd_fail(&err, ND_E_FILE_OPEN, "x.h5", "cannot open '%s'", "x.h5"), ND_ERR_IO);
    assert_int_equal(err.status, ND_ERR_IO);
    assert_int_equal(err.id, 204);
    assert_string_equal(err.object, "x.h5");
    nd_error_context(&err, "comparing");
    assert_string_equal(err.message, "comparing: cannot open 'x.h5'");
    assert_int_equal(nd_fail(NULL, ND_E_MEMORY, NULL, "no error wanted"), ND_ERR_MEMORY);
}

static void error_too_long_is_cut_and_terminated(void **state)
{
    (void)state;
    struct nd_error err = {0};
    char text[3000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    nd_fail(&err, ND_E_FILE_OPEN, text, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    nd_error_context(&err, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(strlen(err.object), sizeof err.object - 1);
}

static void exit_code_follows_the_documented_list(void **state)
{
    (void)state;
    assert_int_equal(nd_status_exit_code(ND_OK), 0);
    assert_int_equal(nd_status_exit_code(ND_ERR_IO), 2);
    assert_int_equal(nd_status_exit_code(ND_ERR_FORMAT), 2);
    assert_int_equal(nd_status_exit_code(ND_ERR_NOT_COMPARABLE), 3);
    assert_int_equal(nd_status_exit_code(ND_ERR_DEVICE), 5);
}

static void size_overflowing_is_refused(void **state)
{
    (void)state;
    size_t out = 7;
    assert_false(nd_size_mul(SIZE_MAX, 2, &out));
    assert_false(nd_size_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 7);
    assert_true(nd_size_mul(6, 7, &out));
    assert_int_equal(out, 42);
    assert_null(nd_tensor_alloc(SIZE_MAX - 3));
}

static void tensor_buffer_is_aligned_and_padded(void **state)
{
    (void)state;
    for (size_t n = 0; n < 200; n++) {
        unsigned char *memory = nd_tensor_alloc(n);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < n + 64; i++)
            assert_int_equal(memory[i], 0);
        free(memory);
    }
}

static void number_with_rubbish_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", " 1", "1 ", "1x", "+1", "-1", "0x10", "18446744073709551616", "nan"};
    uint64_t u = 5;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(nd_parse_u64(bad[i], &u));
    assert_int_equal(u, 5);
    assert_true(nd_parse_u64("18446744073709551615", &u));
    assert_true(u == UINT64_MAX);
    int64_t s = 0;
    assert_true(nd_parse_i64("-9223372036854775808", &s));
    assert_true(s == INT64_MIN);
    assert_false(nd_parse_i64("9223372036854775808", &s));
    double d = 0;
    assert_false(nd_parse_double("nan", &d));
    assert_false(nd_parse_double("inf", &d));
    assert_false(nd_parse_double("1e999", &d));
    assert_false(nd_parse_double("1,5", &d));
    assert_false(nd_parse_double("0x1p3", &d));
    assert_true(nd_parse_double("-1.5e-3", &d));
    assert_f64_bits(d, -1.5e-3);
}

static void number_formatted_reads_back_to_the_same_bits(void **state)
{
    (void)state;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed: a decimal comma must not appear */
    static const double values[] = {0.0, -0.0, 0.1, 1.0 / 3.0, 1e300, 5e-324, 123456789.125, -2.5};
    char buf[32];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        double back = 1;
        assert_true(nd_parse_double(nd_format_double(values[i], buf), &back));
        assert_f64_bits(back, values[i]);
    }
    assert_string_equal(nd_format_double(0.1, buf), "0.1");
    assert_string_equal(nd_format_double(NAN, buf), "NaN");
    assert_string_equal(nd_format_double(-INFINITY, buf), "-Infinity");
    setlocale(LC_ALL, "C");
}

static void strbuf_collects_and_hands_over(void **state)
{
    (void)state;
    struct nd_strbuf buf = {0};
    for (int i = 0; i < 1000; i++)
        nd_strbuf_printf(&buf, "%d,", i);
    nd_strbuf_puts(&buf, "end");
    char *text = nd_strbuf_take(&buf);
    assert_non_null(text);
    assert_int_equal(strlen(text), 10 * 2 + 90 * 3 + 900 * 4 + 3);
    assert_null(buf.text);
    free(text);
    text = nd_strbuf_take(&buf);
    assert_string_equal(text, "");
    free(text);
}

/* A file that was only just written is read each time; an old one, until its times change. */
static void file_is_hashed_again_when_it_may_have_changed(void **state)
{
    (void)state;
    char path[] = "/tmp/npudiff-test-XXXXXX", first[ND_SHA256_HEX_BYTES], again[ND_SHA256_HEX_BYTES],
         plain[ND_SHA256_HEX_BYTES];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pwrite(fd, i % 2 == 0 ? "even" : "odds", 4, 0), 4);
        assert_int_equal(nd_sha256_file_once(path, first, NULL), ND_OK);
        assert_int_equal(nd_sha256_file_once(path, again, NULL), ND_OK);
        assert_int_equal(nd_sha256_file(path, plain, NULL), ND_OK);
        assert_string_equal(first, plain);
        assert_string_equal(again, plain);
    }
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
    assert_true(nd_sha256_file_once(path, first, NULL) != ND_OK);
    assert_int_equal(nd_sha256_file_once("/proc/self/exe", first, NULL), ND_OK);
    assert_int_equal(nd_sha256_file_once("/proc/self/exe", again, NULL), ND_OK);
    assert_string_equal(first, again);
}

static void sha256_matches_the_standard_vector(void **state)
{
    (void)state;
    char hex[ND_SHA256_HEX_BYTES];
    nd_sha256_bytes("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void files_and_folders_say_what_is_wrong_with_them(void **state)
{
    (void)state;
    char *dir = NULL;
    assert_int_equal(nd_dir_make_temporary(&dir, NULL), ND_OK);
    char *a = nd_path_join(dir, "a"), *b = nd_path_join(dir, "b"), *deep = nd_path_join(dir, "x/y/z");
    assert_int_equal(nd_file_put(b, "two", 3, NULL), ND_OK);
    struct nd_error err = {0};
    void *data = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(b, 2, &data, &n, &err), ND_ERR_MEMORY);
    assert_int_equal(nd_file_read(dir, 100, &data, &n, &err), ND_ERR_IO);
    assert_int_equal(nd_file_read(a, 100, &data, &n, &err), ND_ERR_IO);
    assert_non_null(strstr(err.message, a));
    assert_int_equal(nd_dir_make(deep, NULL), ND_OK);
    assert_int_equal(nd_dir_make(deep, NULL), ND_OK);
    assert_int_equal(nd_dir_make(b, &err), ND_ERR_IO);
    nd_dir_remove(dir);
    assert_false(nd_path_exists(dir));
    free(a);
    free(b);
    free(deep);
    free(dir);
}

/* ---- words ---- */

static void the_nearest_word_is_the_one_with_the_fewest_changes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int other;
    } words[] = {{"kind", 0}, {"label", 1}, {"labels", 2}, {"latency_us", 3}};
    assert_int_equal(nd_word_distance("", ""), 0);
    assert_int_equal(nd_word_distance("kind", ""), 4);
    assert_int_equal(nd_word_distance("kitten", "sitting"), 3);
    assert_int_equal(nd_word_nearest("knid", &words[0].name, 4, sizeof words[0]), 0);
    assert_int_equal(nd_word_nearest("labels", &words[0].name, 4, sizeof words[0]), 2);
    assert_int_equal(nd_word_nearest("latency", &words[0].name, 4, sizeof words[0]), 3);
    assert_true(nd_word_nearest("x", NULL, 0, 1) == SIZE_MAX);
    char lengthy[300];
    memset(lengthy, 'a', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    assert_int_equal(nd_word_distance(lengthy, "a"), 62);
}

/* Room for a file of a terabyte is never asked for, and /dev/zero is not read to its end. */
static void file_over_the_limit_is_refused_before_it_is_read(void **state)
{
    (void)state;
    char *dir = NULL;
    struct nd_error err = {0};
    void *data = NULL;
    size_t n = 0;
    assert_int_equal(nd_dir_make_temporary(&dir, NULL), ND_OK);
    char *path = nd_path_join(dir, "large");
    assert_int_equal(nd_file_put(path, "", 0, NULL), ND_OK);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_int_equal(nd_file_read(path, 1000, &data, &n, &err), ND_ERR_MEMORY);
    assert_int_equal(err.id, ND_E_SIZE_OVERFLOW);
    assert_non_null(strstr(err.message, "larger than the 1000 bytes"));
    err = (struct nd_error){0};
    assert_int_equal(nd_file_read("/dev/zero", 100000, &data, &n, &err), ND_ERR_MEMORY);
    assert_int_equal(err.id, ND_E_SIZE_OVERFLOW);
    /* Exactly the limit is fine. */
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(nd_file_read(path, 1000, &data, &n, &err), ND_OK);
    assert_int_equal(n, 1000);
    free(data);
    free(path);
    nd_dir_remove(dir);
    free(dir);
}

/* The reference program of SplitMix64, and MMIX by hand: 1442695040888963407 / 2^33 for the state 0. */
static void random_numbers_are_those_of_the_published_generators(void **state)
{
    (void)state;
    uint64_t seed = 1234567, other = 1234567, zero = 0;
    assert_true(nd_splitmix_next(&seed) == 6457827717110365317u);
    assert_true(nd_splitmix_next(&seed) == 3203168211198807973u);
    assert_true(nd_splitmix_hash(1234567) == 6457827717110365317u);
    assert_int_equal(nd_splitmix_below(&other, 1000), 350); /* 0.35008 of 1000 */
    assert_true(nd_splitmix_output(0) == 0);
    assert_int_equal(nd_random_next(&zero), 167951807);
}

static void ends_of_texts_are_told(void **state)
{
    (void)state;
    assert_true(nd_ends_with("a.onnx", ".onnx") && nd_ends_with(".onnx", ".onnx"));
    assert_false(nd_ends_with("onnx", ".onnx") || nd_ends_with("a.onnx ", ".onnx"));
    assert_int_equal(nd_stem_bytes("a.onnx", ".onnx"), 1);
    assert_int_equal(nd_stem_bytes(".onnx", ".onnx"), 0);
    assert_int_equal(nd_stem_bytes("a.h5", ".onnx"), 0);
}

static void a_mistyped_word_is_told_which_was_meant_and_a_strange_one_is_not(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int other;
    } words[] = {{"capture", 1}, {"compare", 2}, {"ls", 3}, {"htp-sim:gen3", 4}, {"gen1", 5}, {"gen2", 6}};
    static const struct {
        const char *typed, *told;
    } cases[] = {
        {"captrue", "; did you mean 'capture'?"},
        {"COMPARE", "; did you mean 'compare'?"},
        {"l", "; did you mean 'ls'?"},
        {"lt", "; did you mean 'ls'?"},
        {"sl", "; did you mean 'ls'?"},
        {"htpsim:gen3", "; did you mean 'htp-sim:gen3'?"},
        {"ls", ""},
        {"xy", ""},
        {"", ""},
        {"weather", ""},
        {"gen9", ""},
        {"gen1x", "; did you mean 'gen1'?"},
        {"capturesque-and-more", ""},
    };
    char buf[ND_DID_YOU_MEAN_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(
            nd_did_you_mean(cases[i].typed, words, sizeof words / sizeof words[0], sizeof words[0], buf),
            cases[i].told);
    assert_string_equal(nd_did_you_mean("capture", NULL, 0, 0, buf), "");
}

static void words_are_found_whole(void **state)
{
    (void)state;
    assert_true(nd_has_word("Conv Gemm", "Conv") && nd_has_word("Conv Gemm", "Gemm") &&
                nd_has_word("yes no ", "no"));
    assert_false(nd_has_word("ConvTranspose Gemm", "Conv") || nd_has_word("Conv Gemm", "Gem") ||
                 nd_has_word("Conv Gemm", "Conv Gemm") || nd_has_word("", "Conv"));
    assert_true(nd_has_word("", "") && !nd_has_word("Conv", "") && !nd_has_word("yes ", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_found_whole),
        cmocka_unit_test(error_filled_carries_id_status_object_and_message),
        cmocka_unit_test(error_too_long_is_cut_and_terminated),
        cmocka_unit_test(exit_code_follows_the_documented_list),
        cmocka_unit_test(size_overflowing_is_refused),
        cmocka_unit_test(tensor_buffer_is_aligned_and_padded),
        cmocka_unit_test(number_with_rubbish_is_refused),
        cmocka_unit_test(number_formatted_reads_back_to_the_same_bits),
        cmocka_unit_test(strbuf_collects_and_hands_over),
        cmocka_unit_test(sha256_matches_the_standard_vector),
        cmocka_unit_test(files_and_folders_say_what_is_wrong_with_them),
        cmocka_unit_test(file_is_hashed_again_when_it_may_have_changed),
        cmocka_unit_test(the_nearest_word_is_the_one_with_the_fewest_changes),
        cmocka_unit_test(a_mistyped_word_is_told_which_was_meant_and_a_strange_one_is_not),
        cmocka_unit_test(file_over_the_limit_is_refused_before_it_is_read),
        cmocka_unit_test(random_numbers_are_those_of_the_published_generators),
        cmocka_unit_test(ends_of_texts_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
