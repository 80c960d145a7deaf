/* Digests of files by content: what is kept, what is read again. */
#include "support/main.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "judge/release/qualify.h"
#include "support/scratch.h"

static char *cache_path, *library;

static int make_files(void **state)
{
    make_folder(state);
    cache_path = in_folder("digests");
    library = in_folder("lib.so");
    return 0;
}

static int remove_files(void **state)
{
    free(cache_path);
    free(library);
    return remove_folder(state);
}

static void put(const char *text)
{
    struct nd_error err;
    expect_ok(nd_file_put(library, text, strlen(text), &err), &err);
}

/* The digest, and how many files were read for it. */
static size_t find(char hex[static ND_SHA256_HEX_BYTES])
{
    struct nd_error err;
    struct nd_digest_cache cache;
    expect_ok(nd_digest_cache_open(cache_path, &cache, &err), &err);
    expect_ok(nd_digest_cache_find(&cache, library, hex, &err), &err);
    size_t n_read = cache.n_read;
    nd_digest_cache_close(&cache);
    return n_read;
}

/* Until the file is older than two seconds and may be kept. */
static void wait_until_settled(void)
{
    struct stat info;
    assert_int_equal(stat(library, &info), 0);
    while (time(NULL) <= info.st_ctim.tv_sec + 2)
        usleep(50000);
}

static void digest_of_the_same_size_and_time_is_of_the_content(void **state)
{
    (void)state;
    char first[ND_SHA256_HEX_BYTES], second[ND_SHA256_HEX_BYTES], expected[ND_SHA256_HEX_BYTES];
    put("one");
    wait_until_settled();
    assert_int_equal(find(first), 1);
    assert_int_equal(find(second), 0); /* kept */
    assert_string_equal(first, second);
    struct stat info;
    assert_int_equal(stat(library, &info), 0);
    FILE *file = fopen(library, "r+"); /* the same inode and size */
    assert_non_null(file);
    fputs("two", file);
    assert_int_equal(fclose(file), 0);
    const struct timespec times[2] = {info.st_atim, info.st_mtim}; /* and, set back, the same time */
    assert_int_equal(utimensat(AT_FDCWD, library, times, 0), 0);
    assert_int_equal(find(second), 1);
    nd_sha256_bytes("two", 3, expected);
    assert_string_equal(second, expected);
}

static void file_that_was_just_changed_is_not_kept(void **state)
{
    (void)state;
    char hex[ND_SHA256_HEX_BYTES];
    put("now");
    assert_int_equal(find(hex), 1);
    assert_int_equal(find(hex), 1);
}

/* Two machines, or two tasks, each of which asks for a file that the other does not ask for. */
static void files_that_another_asked_for_are_kept(void **state)
{
    (void)state;
    char hex[ND_SHA256_HEX_BYTES], *first = library, *second = in_folder("second.so");
    put("one");
    library = second;
    put("two");
    wait_until_settled();
    assert_int_equal(find(hex), 1);
    library = first;
    assert_int_equal(find(hex), 1);
    library = second;
    assert_int_equal(find(hex), 0);
    library = first;
    assert_int_equal(find(hex), 0);
    free(second);
}

static void cache_that_is_damaged_is_only_slower(void **state)
{
    (void)state;
    struct nd_error err;
    static const char *const texts[] = {"", "\n\n", "rubbish\n", "zz", "0123 x\n"};
    char hex[ND_SHA256_HEX_BYTES], expected[ND_SHA256_HEX_BYTES];
    put("one");
    nd_sha256_bytes("one", 3, expected);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        expect_ok(nd_file_put(cache_path, texts[i], strlen(texts[i]), &err), &err);
        assert_int_equal(find(hex), 1);
        assert_string_equal(hex, expected);
    }
    struct nd_digest_cache cache;
    expect_ok(nd_digest_cache_open(cache_path, &cache, &err), &err);
    assert_int_equal(nd_digest_cache_find(&cache, "/nowhere/lib.so", hex, &err), ND_ERR_IO);
    nd_digest_cache_close(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(digest_of_the_same_size_and_time_is_of_the_content, make_files,
                                        remove_files),
        cmocka_unit_test_setup_teardown(file_that_was_just_changed_is_not_kept, make_files, remove_files),
        cmocka_unit_test_setup_teardown(files_that_another_asked_for_are_kept, make_files, remove_files),
        cmocka_unit_test_setup_teardown(cache_that_is_damaged_is_only_slower, make_files, remove_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
