/* Files of a campaign and their keys: what is made again, and what is an error. */
#include "support/main.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "judge/campaign/policy.h"
#include "support/scratch.h"

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER_KEY "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char *made, *beside;

static void put_files(void)
{
    char sha256[ND_SHA256_HEX_BYTES];
    struct nd_error err;
    unlink(made);
    nd_sha256_bytes("values", 6, sha256);
    expect_ok(nd_file_put(made, "values", 6, &err), &err);
    expect_ok(nd_keyed_write(made, KEY, sha256, true, &err), &err);
}

static int make_files(void **state)
{
    make_folder(state);
    made = in_folder("made.h5");
    beside = in_folder("made.h5.key");
    put_files();
    return 0;
}

static int remove_files(void **state)
{
    free(made);
    free(beside);
    return remove_folder(state);
}

static void expect_found(const char *key, bool is_current, bool is_final)
{
    struct nd_error err;
    struct nd_keyed found;
    expect_ok(nd_keyed_look(made, key, &found, &err), &err);
    assert_int_equal(found.is_current, is_current);
    assert_int_equal(found.is_final, is_final);
}

static void expect_unreadable(const char *path)
{
    struct nd_error err = {0};
    struct nd_keyed found;
    assert_int_not_equal(nd_keyed_look(made, KEY, &found, &err), ND_OK);
    assert_false(found.is_current);
    assert_non_null(strstr(err.message, path));
}

static void what_was_made_for_the_key_is_current(void **state)
{
    struct nd_keyed found;
    struct nd_error err;
    (void)state;
    expect_found(KEY, true, true);
    expect_found(OTHER_KEY, false, false);
    expect_ok(nd_keyed_look(made, KEY, &found, &err), &err);
    expect_ok(nd_keyed_write(made, KEY, found.sha256, false, &err), &err);
    expect_found(KEY, true, false);
}

static void what_is_missing_or_changed_is_made_again(void **state)
{
    struct nd_error err;
    (void)state;
    expect_ok(nd_file_put(made, "valves", 6, &err), &err);
    expect_found(KEY, false, false);
    assert_int_equal(unlink(made), 0);
    expect_found(KEY, false, false);
    put_files();
    assert_int_equal(unlink(beside), 0);
    expect_found(KEY, false, false);
}

static void what_cannot_be_reached_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(unlink(made), 0);
    assert_int_equal(symlink("made.h5", made), 0); /* to itself */
    expect_unreadable(made);
    put_files();
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(mkdir(beside, 0777), 0);
    expect_unreadable(beside);
}

static void no_descriptor_is_an_error(void **state)
{
    struct rlimit before, low;
    (void)state;
    int next = open("/dev/null", O_RDONLY);
    assert_true(next >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(next);
    low = (struct rlimit){(rlim_t)next, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct nd_error err = {0};
    struct nd_keyed found;
    enum nd_status status = nd_keyed_look(made, KEY, &found, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_not_equal(status, ND_OK);
    assert_non_null(strstr(err.message, "made.h5"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_made_for_the_key_is_current, make_files, remove_files),
        cmocka_unit_test_setup_teardown(what_is_missing_or_changed_is_made_again, make_files, remove_files),
        cmocka_unit_test_setup_teardown(what_cannot_be_reached_is_an_error, make_files, remove_files),
        cmocka_unit_test_setup_teardown(no_descriptor_is_an_error, make_files, remove_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
