#include "support/main.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "judge/golden/store.h"
#include "npudiff/judge/judge.h"
#include "support/golden_capture.h"
#include "support/scratch.h"

enum { N_EACH = 40, N_KILLS = 40 / ND_SANITIZED_SHARE, N_COPIES = 10 };

/* A share that does not lock says yes and does nothing. */
static bool is_lockless;
int flock(int fd, int operation)
{
    return is_lockless ? 0 : (int)syscall(SYS_flock, fd, operation);
}

/* The captures that the writers add: "<i>.h5", each with other codes. */
static void make_captures(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "%zu.h5", i);
        char *path = in_folder(name);
        gold_write(path, &(struct gold){.qvalues = {(unsigned char)i}});
        free(path);
    }
}

/* Adds captures [first, first + n), in a process of its own; _exit tells how it went. */
static pid_t start_writer(size_t first, size_t n)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct nd_golden *store = NULL;
    struct nd_error err = {0};
    const struct nd_golden_acceptance how = {.struct_size = sizeof how};
    char *path = in_folder("store");
    enum nd_status status = nd_golden_open(path, true, &store, &err);
    for (size_t i = first; status == ND_OK && i < first + n; i++) {
        char name[32];
        struct nd_golden_added added = {0};
        snprintf(name, sizeof name, "%zu.h5", i);
        char *capture = in_folder(name);
        status = nd_golden_add(store, capture, &how, &added, &err);
        free(capture);
        nd_golden_entry_deinit(&added.entry);
    }
    if (status != ND_OK)
        fprintf(stderr, "# writer: %s\n", err.message);
    nd_golden_close(&store);
    free(path);
    _exit(status == ND_OK ? 0 : 1);
}

static size_t n_files(const char *pattern)
{
    glob_t found;
    char *path = in_folder(pattern);
    size_t n = glob(path, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (n > 0)
        globfree(&found);
    free(path);
    return n;
}

/* Every entry is whole and has its object; the number of entries. */
static size_t check_sound(const char *name)
{
    struct nd_error err;
    struct nd_golden *store = NULL;
    char *path = in_folder(name);
    expect_ok(nd_golden_open(path, true, &store, &err), &err);
    assert_int_equal(nd_golden_n_problems(store), 0);
    size_t n = nd_golden_n_entries(store);
    for (size_t i = 0; i < n; i++) {
        struct nd_golden_entry entry;
        struct nd_capture *capture = NULL;
        expect_ok(nd_golden_entry(store, i, &entry, &err), &err);
        expect_ok(nd_golden_open_capture(store, entry.id, &capture, &err), &err);
        nd_capture_close(&capture);
        nd_golden_entry_deinit(&entry);
    }
    free(path);
    nd_golden_close(&store);
    return n;
}

static void let_two_write(void)
{
    make_captures((size_t)2 * N_EACH);
    pid_t writers[2] = {start_writer(0, N_EACH), start_writer(N_EACH, N_EACH)};
    for (int i = 0; i < 2; i++) {
        int result = 0;
        assert_int_equal(waitpid(writers[i], &result, 0), writers[i]);
        assert_int_equal(result, 0);
    }
    assert_int_equal(check_sound("store"), 2 * N_EACH);
    assert_int_equal(n_files("store/*/*.tmp-*"), 0);
}

static void two_writers_lose_nothing(void **state)
{
    (void)state;
    let_two_write();
}

/* docs/reference/store.md#shares: names are digests, so that only pruning needs the lock. */
static void two_writers_lose_nothing_where_nothing_locks(void **state)
{
    (void)state;
    is_lockless = true;
    char *path = in_folder("store");
    struct nd_golden *store = NULL;
    struct nd_error err;
    expect_ok(nd_golden_open(path, true, &store, &err), &err); /* one makes the store, before the others come */
    nd_golden_close(&store);
    free(path);
    let_two_write();
    is_lockless = false;
}

static int run_in_folder(const char *command)
{
    char *place = in_folder("");
    char text[1000];
    snprintf(text, sizeof text, "cd '%s' && %s", place, command);
    free(place);
    return system(text);
}

/* docs/reference/store.md#shares: of a store that somebody writes to, entries first. What an entry names was
 * there before it. */
static void a_copy_made_meanwhile_is_sound(void **state)
{
    (void)state;
    make_captures(N_EACH);
    int result = 0;
    pid_t first = start_writer(0, 1);
    assert_int_equal(waitpid(first, &result, 0), first);
    pid_t writer = start_writer(1, N_EACH - 1);
    size_t n_before = 0;
    for (int i = 0; i < N_COPIES; i++) {
        assert_int_equal(run_in_folder("mkdir -p copy/entries copy/objects && cp store/store.json copy/ && "
                                       "find store/entries -name '*.json' -exec cp -t copy/entries {} + && "
                                       "find store/objects -name '*.h5' -exec cp -t copy/objects {} +"),
                         0);
        size_t n = check_sound("copy");
        assert_true(n > 0 && n >= n_before);
        n_before = n;
    }
    assert_int_equal(waitpid(writer, &result, 0), writer);
    assert_int_equal(result, 0);
}

static void killed_writers_leave_a_sound_store(void **state)
{
    (void)state;
    const char *given = getenv("ND_SEED");
    unsigned int seed = given != NULL ? (unsigned int)strtoul(given, NULL, 10) : 20261122;
    print_message("# ND_SEED=%u\n", seed);
    make_captures(N_EACH);
    size_t n_before = 0;
    for (int trial = 0; trial < N_KILLS; trial++) {
        pid_t pid = start_writer((size_t)trial % N_EACH, N_EACH - (size_t)trial % N_EACH);
        usleep((useconds_t)(rand_r(&seed) % 150000));
        kill(pid, SIGKILL);
        int result = 0;
        assert_int_equal(waitpid(pid, &result, 0), pid);
        size_t n = check_sound("store");
        assert_true(n >= n_before); /* nothing that was there is lost */
        n_before = n;
    }
    pid_t last = start_writer(0, N_EACH);
    int result = 0;
    assert_int_equal(waitpid(last, &result, 0), last);
    assert_int_equal(result, 0);
    assert_int_equal(check_sound("store"), N_EACH);
    struct nd_error err;
    struct nd_golden *store = NULL;
    char *path = in_folder("store");
    expect_ok(nd_golden_open(path, false, &store, &err), &err);
    struct nd_golden_pruning pruning;
    expect_ok(nd_golden_prune(store, 0, false, &pruning, &err), &err);
    nd_golden_pruning_deinit(&pruning);
    assert_int_equal(n_files("store/*.tmp-*") + n_files("store/*/*.tmp-*"), 0);
    assert_int_equal(n_files("store/objects/*"), N_EACH);
    nd_golden_close(&store);
    free(path);
}

static void leftovers_are_in_nobodys_way(void **state)
{
    (void)state;
    struct nd_error err;
    make_captures(1);
    pid_t pid = start_writer(0, 1);
    int result = 0;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    char *object = in_folder("store/objects/0.h5.tmp-0123456789abcdef"),
         *entry = in_folder("store/entries/0.json.tmp-0123456789abcdef");
    char *orphan = in_folder("store/objects/"
                             "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.h5");
    expect_ok(nd_file_put(object, "cut", 3, &err), &err);
    expect_ok(nd_file_put(entry, "cut", 3, &err), &err);
    expect_ok(nd_file_put(orphan, "cut", 3, &err), &err);
    assert_int_equal(check_sound("store"), 1);
    struct nd_golden *store = NULL;
    char *path = in_folder("store");
    expect_ok(nd_golden_open(path, false, &store, &err), &err);
    struct nd_golden_pruning pruning;
    expect_ok(nd_golden_prune(store, 0, false, &pruning, &err), &err);
    nd_golden_pruning_deinit(&pruning);
    assert_int_equal(n_files("store/objects/*"), 1);
    assert_int_equal(n_files("store/entries/*"), 1);
    nd_golden_close(&store);
    free(path);
    free(object);
    free(entry);
    free(orphan);
}

static void add_one(struct nd_golden *store, size_t i)
{
    struct nd_error err = {0};
    const struct nd_golden_acceptance how = {.struct_size = sizeof how};
    struct nd_golden_added added = {0};
    char name[32];
    snprintf(name, sizeof name, "%zu.h5", i);
    char *capture = in_folder(name);
    expect_ok(nd_golden_add(store, capture, &how, &added, &err), &err);
    nd_golden_entry_deinit(&added.entry);
    free(capture);
}

static void each_entry_is_read_once(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_golden *store = NULL;
    char *path = in_folder("store");
    make_captures(8);
    expect_ok(nd_golden_open(path, true, &store, &err), &err);
    for (size_t i = 0; i < 4; i++)
        add_one(store, i);
    assert_int_equal(store->n_read, 4);
    nd_golden_close(&store);
    expect_ok(nd_golden_open(path, false, &store, &err), &err);
    add_one(store, 4);
    assert_int_equal(store->n_read, 5);
    /* What others add and remove meanwhile is seen. */
    pid_t writer = start_writer(5, 2);
    int result = 0;
    assert_int_equal(waitpid(writer, &result, 0), writer);
    assert_int_equal(result, 0);
    char *removed = nd_store_path(store, "entries", store->entries[0].id, ".json");
    assert_int_equal(unlink(removed), 0);
    add_one(store, 7);
    assert_int_equal(store->n_read, 8);
    assert_int_equal(store->n, 7);
    assert_int_equal(store->n_problems, 0);
    nd_golden_close(&store);
    free(removed);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_writers_lose_nothing, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(two_writers_lose_nothing_where_nothing_locks, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_copy_made_meanwhile_is_sound, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(killed_writers_leave_a_sound_store, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(each_entry_is_read_once, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(leftovers_are_in_nobodys_way, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
