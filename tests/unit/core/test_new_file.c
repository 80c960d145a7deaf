#include "support/main.h"

/* Files that appear under their name when they are whole, and what they never replace. */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"

struct bench {
    char *dir;
    char *path;
};

static int make_bench(void **state)
{
    static struct bench bench;
    if (nd_dir_make_temporary(&bench.dir, NULL) != ND_OK)
        return -1;
    bench.path = nd_path_join(bench.dir, "x");
    *state = &bench;
    return bench.path != NULL ? 0 : -1;
}

static int remove_bench(void **state)
{
    struct bench *bench = *state;
    nd_dir_remove(bench->dir);
    free(bench->path);
    free(bench->dir);
    return 0;
}

static size_t n_temporaries(const struct bench *bench)
{
    char pattern[4200];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*.tmp-*", bench->dir);
    int rc = glob(pattern, 0, NULL, &found);
    size_t n = rc == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return n;
}

static void expect_content(const char *path, const char *text)
{
    void *data = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(path, 1000, &data, &n, NULL), ND_OK);
    assert_string_equal(data, text);
    free(data);
}

static void a_file_is_replaced_only_when_asked(void **state)
{
    const struct bench *bench = *state;
    struct nd_error err = {0};
    struct stat info;
    mode_t mask = umask(027);
    assert_int_equal(nd_file_put_new(bench->path, "one", 3, false, &err), ND_OK);
    umask(mask);
    assert_int_equal(stat(bench->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(nd_file_put_new(bench->path, "two", 3, false, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    expect_content(bench->path, "one");
    assert_int_equal(nd_file_put_new(bench->path, "three", 5, true, &err), ND_OK);
    expect_content(bench->path, "three");
    assert_int_equal(n_temporaries(bench), 0);
}

/* A file that comes while ours is being made stays as it is. */
static void a_file_that_came_meanwhile_stays(void **state)
{
    const struct bench *bench = *state;
    struct nd_error err = {0};
    struct nd_new_file file;
    assert_int_equal(nd_new_file_create(bench->path, false, &file, &err), ND_OK);
    FILE *other = fopen(bench->path, "w");
    assert_non_null(other);
    fputs("other", other);
    fclose(other);
    assert_int_equal(nd_new_file_commit(&file, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    nd_new_file_discard(&file);
    expect_content(bench->path, "other");
    assert_int_equal(n_temporaries(bench), 0);
}

/* Names that leave no room for ".tmp-" and its digits. */
static void a_long_name_is_written_and_its_leftovers_are_its_own(void **state)
{
    const struct bench *bench = *state;
    char name[256], other[256];
    for (size_t n = 233; n <= 255; n++) {
        struct nd_error err = {0};
        struct nd_new_file file, left;
        memset(name, 'n', n);
        name[n] = '\0';
        memcpy(other, name, n + 1);
        other[n - 1] = 'm'; /* differs where the temporary name is cut */
        char *path = nd_path_join(bench->dir, name), *other_path = nd_path_join(bench->dir, other);
        assert_int_equal(nd_new_file_create(path, true, &left, &err), ND_OK);
        assert_true(nd_file_is_temporary(nd_path_base(left.temporary)));
        /* As of a writer that was killed: the name stays, the lock does not. */
        left.is_ours = false;
        nd_new_file_discard(&left);
        assert_int_equal(n_temporaries(bench), 1);
        assert_int_equal(nd_new_file_create(other_path, true, &file, &err), ND_OK);
        assert_int_equal(n_temporaries(bench), 2);
        nd_new_file_discard(&file);
        assert_int_equal(nd_file_put_new(path, "long", 4, true, &err), ND_OK);
        expect_content(path, "long");
        assert_int_equal(n_temporaries(bench), 0);
        assert_int_equal(unlink(path), 0);
        free(path);
        free(other_path);
    }
    struct nd_error err = {0};
    assert_int_equal(nd_file_put_new("", "x", 1, true, &err), ND_ERR_IO);
    assert_string_equal(err.message, "the name of the file to write is empty");
}

static void only_a_regular_file_is_replaced(void **state)
{
    const struct bench *bench = *state;
    struct nd_new_file file;
    struct nd_error err = {0};
    struct stat info;
    assert_int_equal(mkdir(bench->path, 0777), 0);
    assert_int_equal(nd_new_file_create(bench->path, true, &file, &err), ND_ERR_IO);
    assert_non_null(strstr(err.message, "is a folder"));
    assert_int_equal(rmdir(bench->path), 0);

    assert_int_equal(symlink("/dev/null", bench->path), 0);
    assert_int_equal(nd_new_file_create(bench->path, true, &file, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    assert_non_null(strstr(err.message, "is a symbolic link"));
    /* Text goes through the link, into the device. */
    assert_int_equal(nd_file_put(bench->path, "gone", 4, &err), ND_OK);
    assert_int_equal(lstat(bench->path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(unlink(bench->path), 0);

    assert_int_equal(mkfifo(bench->path, 0666), 0);
    assert_int_equal(nd_new_file_create(bench->path, true, &file, &err), ND_ERR_IO);
    assert_non_null(strstr(err.message, "pipe"));
    assert_int_equal(lstat(bench->path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void a_pipe_is_written_into(void **state)
{
    const struct bench *bench = *state;
    char got[8] = "";
    assert_int_equal(mkfifo(bench->path, 0666), 0);
    int reader = open(bench->path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_int_equal(nd_file_put(bench->path, "bytes", 5, NULL), ND_OK);
    assert_int_equal(read(reader, got, sizeof got), 5);
    assert_memory_equal(got, "bytes", 5);
    close(reader);
}

/* What stood at the name that an older version would have used: a link to somebody's file. */
static void a_planted_link_is_not_followed(void **state)
{
    const struct bench *bench = *state;
    char planted[4200], *victim = nd_path_join(bench->dir, "victim");
    assert_int_equal(nd_file_put(victim, "precious", 8, NULL), ND_OK);
    snprintf(planted, sizeof planted, "%s.tmp-%ld", bench->path, (long)getpid());
    assert_int_equal(symlink(victim, planted), 0);
    assert_int_equal(nd_file_put(bench->path, "mine", 4, NULL), ND_OK);
    expect_content(victim, "precious");
    expect_content(bench->path, "mine");
    free(victim);
}

static void kill_while_writing(const char *path)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct nd_new_file file;
        if (nd_new_file_create(path, true, &file, NULL) != ND_OK)
            _exit(1);
        raise(SIGKILL);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
}

/* What a killed writer has left goes; what a living one is writing, and what is like it but of another file,
 * stays. */
static void leftovers_of_killed_writers_go(void **state)
{
    const struct bench *bench = *state;
    struct nd_new_file living;
    char *other = nd_path_join(bench->dir, "xy");
    kill_while_writing(bench->path);
    kill_while_writing(other);
    assert_int_equal(n_temporaries(bench), 2);
    assert_int_equal(nd_new_file_create(bench->path, true, &living, NULL), ND_OK);
    assert_int_equal(n_temporaries(bench), 2); /* that of "xy", and the living one's */
    assert_int_equal(nd_file_put(bench->path, "second", 6, NULL), ND_OK);
    assert_int_equal(n_temporaries(bench), 2);
    assert_int_equal(nd_file_write_all(living.fd, "first", 5, "x", NULL), ND_OK);
    assert_int_equal(nd_new_file_commit(&living, NULL), ND_OK);
    expect_content(bench->path, "first");
    assert_int_equal(n_temporaries(bench), 1);
    free(other);
}

static void a_folder_without_the_right_says_so(void **state)
{
    const struct bench *bench = *state;
    struct nd_error err = {0};
    char *path = nd_path_join(bench->path, "deep/y");
    assert_int_equal(nd_file_put(path, "", 0, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_WRITE);
    assert_non_null(strstr(err.message, path));
    free(path);
}

/* A process that makes a folder with a file in it, tells its path, and waits to be killed. */
static pid_t start_holder(char path[static 4200])
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t holder = fork();
    if (holder == 0) {
        char *made = NULL, *file = NULL;
        if (nd_dir_make_temporary(&made, NULL) == ND_OK && (file = nd_path_join(made, "spool.nds")) != NULL &&
            nd_file_put(file, "x", 1, NULL) == ND_OK && write(pipes[1], made, strlen(made) + 1) > 0)
            for (;;)
                pause();
        _exit(1);
    }
    close(pipes[1]);
    assert_true(holder > 0 && read(pipes[0], path, 4200) > 0);
    close(pipes[0]);
    return holder;
}

/* Folders of hosts that were killed go when the next run makes one; those of living hosts stay, as does what is
 * no folder of ours. */
static void folders_of_killed_processes_go(void **state)
{
    const struct bench *bench = *state;
    char killed[4200], living[4200], *made = NULL;
    char *plain = nd_path_join(bench->dir, "npudiff-abcdef"),
         *other = nd_path_join(bench->dir, "npudiff-abcde");
    const char *before = getenv("TMPDIR");
    char *kept = before != NULL ? strdup(before) : NULL;
    assert_int_equal(setenv("TMPDIR", bench->dir, 1), 0);
    assert_int_equal(mkdir(plain, 0700), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    pid_t holders[2] = {start_holder(killed), start_holder(living)};
    assert_int_equal(kill(holders[0], SIGKILL), 0);
    assert_int_equal(waitpid(holders[0], NULL, 0), holders[0]);
    assert_true(nd_path_exists(killed) && nd_path_exists(living));
    assert_int_equal(nd_dir_make_temporary(&made, NULL), ND_OK);
    assert_false(nd_path_exists(killed));
    assert_true(nd_path_exists(living) && nd_path_exists(plain) && nd_path_exists(other));
    /* Our own is held as long as it is there. */
    char *second = NULL;
    assert_int_equal(nd_dir_make_temporary(&second, NULL), ND_OK);
    assert_true(nd_path_exists(made));
    nd_dir_remove(made);
    nd_dir_remove(second);
    assert_false(nd_path_exists(made) || nd_path_exists(second));
    assert_int_equal(kill(holders[1], SIGKILL), 0);
    assert_int_equal(waitpid(holders[1], NULL, 0), holders[1]);
    if (kept != NULL)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    free(kept);
    free(made);
    free(second);
    free(plain);
    free(other);
}

/* A killed host may have just forked: that process has its lock until it is something else. */
static void folders_whose_lock_is_inherited_go(void **state)
{
    const struct bench *bench = *state;
    char path[4200], *made = NULL;
    int pipes[2];
    const char *before = getenv("TMPDIR");
    char *kept = before != NULL ? strdup(before) : NULL;
    assert_int_equal(setenv("TMPDIR", bench->dir, 1), 0);
    assert_int_equal(pipe(pipes), 0);
    pid_t host = fork();
    if (host == 0) {
        bool is_told =
            nd_dir_make_for("x.h5", false, &made, NULL) == ND_OK && write(pipes[1], made, strlen(made) + 1) > 0;
        if (is_told && fork() == 0) {
            usleep(100000);
            _exit(0);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(host, NULL, 0), host);
    assert_true(read(pipes[0], path, sizeof path) > 0);
    close(pipes[0]);
    close(pipes[1]);
    assert_true(nd_path_exists(path));
    assert_int_equal(nd_dir_make_for("x.h5", false, &made, NULL), ND_OK);
    assert_false(nd_path_exists(path));
    nd_dir_remove(made);
    free(made);
    if (kept != NULL)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    free(kept);
}

/* Two that make the same at the same time would take each other's work. */
static void folders_of_one_purpose_are_made_once_at_a_time(void **state)
{
    const struct bench *bench = *state;
    struct nd_error err = {0};
    char *first = NULL, *second = NULL, *other = NULL;
    const char *before = getenv("TMPDIR");
    char *kept = before != NULL ? strdup(before) : NULL;
    assert_int_equal(setenv("TMPDIR", bench->dir, 1), 0);
    assert_int_equal(nd_dir_make_for("x.h5", false, &first, NULL), ND_OK);
    for (int takes_over = 0; takes_over < 2; takes_over++) {
        assert_int_equal(nd_dir_make_for("x.h5", takes_over, &second, &err), ND_ERR_IO);
        assert_int_equal(err.id, ND_E_FILE_BUSY);
        assert_string_equal(err.message, "'x.h5' is being made by another process");
        assert_true(second == NULL && nd_path_exists(first));
    }
    assert_int_equal(nd_dir_make_for("y.h5", true, &other, NULL), ND_OK);
    nd_dir_leave(first);
    assert_int_equal(nd_dir_make_for("x.h5", true, &second, NULL), ND_OK);
    assert_string_equal(second, first);
    nd_dir_remove(second);
    nd_dir_remove(other);
    free(first);
    free(second);
    free(other);
    if (kept != NULL)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    free(kept);
}

/* Whoever is killed while it removes its folder leaves one that is known by its purpose, until its lock goes.
 */
static void the_purpose_of_a_folder_goes_after_its_files(void **state)
{
    const struct bench *bench = *state;
    char events[4096], *made = NULL;
    const char *last[2] = {"", ""};
    assert_int_equal(setenv("TMPDIR", bench->dir, 1), 0);
    assert_int_equal(nd_dir_make_for("x.h5", false, &made, NULL), ND_OK);
    for (char name[] = "a"; name[0] <= 'z'; name[0]++) {
        char *path = nd_path_join(made, name);
        assert_int_equal(nd_file_put(path, "", 0, NULL), ND_OK);
        free(path);
    }
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    assert_true(fd >= 0 && inotify_add_watch(fd, made, IN_DELETE) >= 0);
    nd_dir_remove(made);
    ssize_t n = read(fd, events, sizeof events);
    assert_true(n > 0 && (size_t)n < sizeof events);
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(events + at);
        at += (ssize_t)sizeof *event + (ssize_t)event->len;
        if (event->len == 0)
            continue;
        last[0] = last[1];
        last[1] = event->name;
    }
    assert_string_equal(last[0], ".npudiff-for");
    assert_string_equal(last[1], ".npudiff-lock");
    assert_int_not_equal(access(made, F_OK), 0);
    close(fd);
    unsetenv("TMPDIR");
    free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_long_name_is_written_and_its_leftovers_are_its_own, make_bench,
                                        remove_bench),
        cmocka_unit_test_setup_teardown(a_file_is_replaced_only_when_asked, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(a_file_that_came_meanwhile_stays, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(only_a_regular_file_is_replaced, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(a_pipe_is_written_into, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(a_planted_link_is_not_followed, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(leftovers_of_killed_writers_go, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(a_folder_without_the_right_says_so, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(folders_of_killed_processes_go, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(folders_whose_lock_is_inherited_go, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(the_purpose_of_a_folder_goes_after_its_files, make_bench, remove_bench),
        cmocka_unit_test_setup_teardown(folders_of_one_purpose_are_made_once_at_a_time, make_bench,
                                        remove_bench),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
