/* A folder of its own for every test: cmocka's set-up and tear-down, and paths in it. Include after
 * support/main.h. */
#ifndef ND_TESTS_SCRATCH_H
#define ND_TESTS_SCRATCH_H

#include <stdlib.h>

#include "core/files/file.h"

static char *folder;

__attribute__((unused)) static int make_folder(void **state)
{
    (void)state;
    return nd_dir_make_temporary(&folder, NULL) == ND_OK ? 0 : -1;
}

__attribute__((unused)) static int remove_folder(void **state)
{
    (void)state;
    nd_dir_remove(folder);
    free(folder);
    return 0;
}

/* The path of `name` in the folder, in new memory. */
__attribute__((unused)) static char *in_folder(const char *name)
{
    char *path = nd_path_join(folder, name);
    assert_non_null(path);
    return path;
}

/* Prints the message of what was expected to succeed. */
__attribute__((unused)) static void expect_ok(enum nd_status status, const struct nd_error *err)
{
    if (status != ND_OK)
        print_message("# %s\n", err->message);
    assert_int_equal(status, ND_OK);
}

#endif
