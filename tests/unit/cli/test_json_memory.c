/* Trees whose memory fails: libjansson itself corrupts the heap then. */
#include "support/main.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/terminal/program.h"
#include "support/failing_memory.h"

static size_t n_lost;

static void note_lost(void)
{
    n_lost++;
}

/* Texts of every length up to 300, so that a buffer grows at each of their places. */
static char *make_text(void)
{
    enum { N = 300 };
    char *text = malloc(N * N), *at = text;
    assert_non_null(text);
    *at++ = '[';
    for (int n = 1; n < N; n++) {
        *at++ = '"';
        for (int i = 0; i < n; i++)
            *at++ = (char)('a' + i % 26);
        *at++ = '"';
        *at++ = n + 1 < N ? ',' : ']';
    }
    *at = '\0';
    return text;
}

static void check_tree(const json_t *tree)
{
    assert_int_equal(json_array_size(tree), 299);
    for (size_t n = 1; n < 300; n++) {
        const char *text = json_string_value(json_array_get(tree, n - 1));
        assert_int_equal(strlen(text), n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(text[i], 'a' + (int)(i % 26));
    }
}

static void every_failed_allocation_is_noted_and_the_tree_is_whole(void **state)
{
    (void)state;
    char *text = make_text();
    long long n_fail = 0;
    for (bool has_failed = true; has_failed; n_fail++) {
        n_lost = 0;
        cli_reserve_json_memory(note_lost);
        atomic_store(&n_left, n_fail);
        json_t *tree = json_loads(text, 0, NULL);
        has_failed = atomic_load(&n_left) < 0;
        atomic_store(&n_left, -1);
        assert_int_equal(n_lost, has_failed);
        check_tree(tree);
        json_decref(tree);
    }
    assert_true(n_fail > 600); /* a value and a text for each */
    free(text);
}

static void a_reserve_that_is_used_up_ends_the_process_with_a_message(void **state)
{
    (void)state;
    int ends[2], status = -1;
    char said[256];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        cli_reserve_json_memory(note_lost);
        for (;;) {
            atomic_store(&n_left, 0);
            if (json_string("a text of some bytes") == NULL)
                _exit(99);
        }
    }
    close(ends[1]);
    ssize_t n = read(ends[0], said, sizeof said - 1);
    assert_true(n >= 0);
    said[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_string_equal(said, "npudiff: out of memory\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failed_allocation_is_noted_and_the_tree_is_whole),
        cmocka_unit_test(a_reserve_that_is_used_up_ends_the_process_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
