/* The writer of captures: what it leaves behind, misuse, a full disk, threads. */
#include "support/main.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "support/capture_fixture.h"
#include "support/scratch.h"
static size_t n_files_in_folder(void)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static const struct fix_options deflated = {.level = 6, .with_big = true};
static const struct fix_options plain = {.level = 0, .with_big = true};

static void file_existing_is_replaced_only_on_demand(void **state)
{
    (void)state;
    struct nd_error err;
    char *path = in_folder("kept.h5");
    struct nd_capture_writer *writer = NULL;
    fix_ok(nd_file_put(path, "precious", 8, &err), &err);
    size_t n_before = n_files_in_folder();
    assert_int_equal(nd_capture_writer_create(path, false, &writer, &err), ND_ERR_IO);
    assert_int_equal(err.id, 214);
    assert_null(writer);
    /* made by somebody else between create and commit */
    unlink(path);
    writer = fix_begin(path, false, &(struct fix_options){.level = 1});
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("precious", file);
    fclose(file);
    assert_int_equal(nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err), ND_ERR_IO);
    nd_capture_writer_destroy(&writer);
    void *bytes = NULL;
    size_t n;
    fix_ok(nd_file_read(path, 100, &bytes, &n, &err), &err);
    assert_string_equal(bytes, "precious");
    free(bytes);
    assert_int_equal(n_files_in_folder(), n_before);
    fix_write(path, &(struct fix_options){.level = 1});
    struct nd_capture *capture = NULL;
    fix_ok(nd_capture_open(path, &capture, &err), &err);
    nd_capture_close(&capture);
    assert_int_equal(n_files_in_folder(), n_before);
    free(path);
}

static void writer_destroyed_leaves_nothing(void **state)
{
    (void)state;
    struct nd_error err;
    char *path = in_folder("gone.h5");
    size_t n_before = n_files_in_folder();
    struct nd_capture_writer *writer = fix_begin(path, false, &deflated);
    struct nd_capture_writer *second = NULL;
    assert_int_equal(n_files_in_folder(), n_before + 1);
    assert_int_equal(nd_capture_writer_create(path, false, &second, &err), ND_ERR_IO);
    nd_capture_writer_destroy(&writer);
    assert_null(writer);
    assert_int_equal(n_files_in_folder(), n_before);
    nd_capture_writer_destroy(&writer);
    char *nowhere = in_folder("no such folder/x.h5");
    assert_int_equal(nd_capture_writer_create(nowhere, false, &writer, &err), ND_ERR_IO);
    assert_non_null(strstr(err.message, "No such file or directory"));
    free(nowhere);
    free(path);
}

/* Agents are started by other threads while a capture is written; until they exec they hold its descriptors. */
static void child_that_holds_the_file_does_not_stop_the_writer(void **state)
{
    (void)state;
    struct nd_error err;
    char *path = in_folder("held.h5");
    struct nd_capture_writer *writer = fix_begin(path, false, &plain);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    enum nd_status status = nd_capture_writer_commit(writer, ND_CAPTURE_PARTIAL, &err);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    fix_ok(status, &err);
    nd_capture_writer_destroy(&writer);
    free(path);
}

static void writer_misused_says_so(void **state)
{
    (void)state;
    struct nd_error err;
    char *path = in_folder("misused.h5");
    char *text = calloc(70000, 1);
    assert_non_null(text);
    memset(text, 'x', 69999);
    struct nd_capture_writer *writer = fix_begin(path, false, &(struct fix_options){.level = 6});
    struct nd_attr attr = {.group = "device", .key = "uri", .type = ND_ATTR_STRING, .string = "twice"};
    assert_int_equal(nd_capture_writer_attr(writer, &attr, &err), ND_ERR_FORMAT);
    attr.key = "long";
    attr.string = text;
    assert_int_equal(nd_capture_writer_attr(writer, &attr, &err), ND_ERR_FORMAT);
    attr.group = "";
    attr.key = "status";
    assert_int_equal(nd_capture_writer_attr(writer, &attr, &err), ND_ERR_FORMAT);
    assert_int_equal(nd_capture_writer_probe(writer, &fix_probes[0], &err), ND_ERR_FORMAT);
    struct nd_capture_probe probe = fix_probes[0];
    probe.name = "third";
    struct nd_capture_dataset *dataset = NULL;
    nd_capture_writer_level(writer, 0);
    fix_ok(nd_capture_writer_probe(writer, &probe, &err), &err);
    fix_ok(nd_capture_writer_outputs_begin(
               writer, &(struct nd_capture_output){.probe = &probe, .tensor = &fix_tensors[0]}, &dataset, &err),
           &err);
    assert_int_equal(nd_capture_writer_chunk(dataset, 0, text, 3, &err), ND_ERR_FORMAT);
    assert_int_equal(nd_capture_writer_chunk(dataset, 1, text, 24, &err), ND_ERR_FORMAT);
    assert_int_equal(nd_capture_writer_outputs_end(&dataset, &err), ND_ERR_FORMAT);
    assert_null(dataset);
    fix_ok(nd_capture_writer_outputs_begin(
               writer, &(struct nd_capture_output){.probe = &probe, .tensor = &fix_tensors[1]}, &dataset, &err),
           &err);
    fix_ok(nd_capture_writer_chunk(dataset, 0, text, 20, &err), &err);
    assert_int_equal(nd_capture_writer_chunk(dataset, 0, text, 20, &err), ND_ERR_FORMAT);
    nd_capture_dataset_destroy(&dataset);
    /* A capture that could not be read is not published. */
    assert_int_equal(nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err), ND_ERR_FORMAT);
    nd_capture_writer_destroy(&writer);
    assert_false(nd_path_exists(path));
    free(text);
    free(path);
}

static int write_with_limit(const char *path, rlim_t limit, int level)
{
    signal(SIGXFSZ, SIG_IGN);
    alarm(60);
    struct rlimit bytes = {limit, limit};
    if (setrlimit(RLIMIT_FSIZE, &bytes) != 0)
        return 9;
    struct nd_error err = {0};
    struct nd_capture_writer *writer = NULL;
    enum nd_status status = nd_capture_writer_create(path, false, &writer, &err);
    struct nd_capture_probe probe = fix_probes[0];
    probe.n_samples_expected = 100;
    probe.labels = NULL;
    struct nd_capture_input input = {"x", ND_DTYPE_U8, {1, {10000}}};
    probe.inputs = &input;
    probe.n_inputs = 1;
    unsigned char *data = calloc(100, 10000);
    uint64_t random = 1;
    for (size_t i = 0; data != NULL && i < 1000000; i++) /* does not deflate */
        data[i] = (unsigned char)fix_random(&random);
    if (status == ND_OK)
        nd_capture_writer_level(writer, level);
    if (status == ND_OK)
        status = nd_capture_writer_probe(writer, &probe, &err);
    if (status == ND_OK)
        status = nd_capture_writer_input(writer, &probe, 0, data, &err);
    if (status == ND_OK)
        status = nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err);
    nd_capture_writer_destroy(&writer);
    free(data);
    return status == ND_ERR_IO && err.message[0] != '\0' ? 0 : 8;
}

static void disk_full_is_an_error_and_leaves_nothing(void **state)
{
    (void)state;
    static const rlim_t limits[] = {0, 3000, 100000, 300000, 500000, 900000, 1200000};
    size_t n_before = n_files_in_folder();
    for (size_t i = 0; i < 2 * sizeof limits / sizeof limits[0]; i++) {
        char *path = in_folder("full.h5");
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            exit(write_with_limit(path, limits[i / 2], i % 2 == 0 ? 0 : 6));
        int rc = -1;
        assert_int_equal(waitpid(child, &rc, 0), child);
        if (rc != 0)
            print_message("# limit %llu, level %d: wait status %#x\n", (unsigned long long)limits[i / 2],
                          i % 2 == 0 ? 0 : 6, (unsigned)rc);
        assert_true(WIFEXITED(rc) && WEXITSTATUS(rc) == 0);
        assert_int_equal(n_files_in_folder(), n_before);
        free(path);
    }
}

static void *write_and_read(void *argument)
{
    const char *path = argument;
    struct nd_error err = {0};
    size_t n_bad = 0;
    for (int round = 0; round < 5; round++) {
        struct nd_capture_writer *writer = NULL;
        struct nd_capture *capture = NULL;
        struct nd_capture_verification found = {.struct_size = sizeof found};
        bool is_good =
            nd_capture_writer_create(path, true, &writer, &err) == ND_OK &&
            nd_capture_writer_tensors(writer, fix_tensors, fix_providers, FIX_TENSORS, &err) == ND_OK &&
            nd_capture_writer_log(writer, "log", fix_log, sizeof fix_log, &err) == ND_OK &&
            nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err) == ND_OK &&
            nd_capture_open(path, &capture, &err) == ND_OK && nd_capture_n_tensors(capture) == FIX_TENSORS &&
            nd_capture_verify(capture, &found, &err) == ND_OK && found.content_matches;
        if (!is_good)
            print_message("# %s, round %d: %s\n", path, round, err.message);
        n_bad += !is_good;
        nd_capture_close(&capture);
        nd_capture_writer_destroy(&writer);
    }
    return n_bad == 0 ? NULL : argument;
}

static void threads_write_and_read_side_by_side(void **state)
{
    (void)state;
    pthread_t threads[4];
    char *paths[4];
    for (int i = 0; i < 4; i++) {
        char name[] = "thread-0.h5";
        name[7] = (char)('0' + i);
        paths[i] = in_folder(name);
        assert_int_equal(pthread_create(&threads[i], NULL, write_and_read, paths[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *result = paths;
        pthread_join(threads[i], &result);
        assert_null(result);
        free(paths[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_existing_is_replaced_only_on_demand),
        cmocka_unit_test(writer_destroyed_leaves_nothing),
        cmocka_unit_test(child_that_holds_the_file_does_not_stop_the_writer),
        cmocka_unit_test(writer_misused_says_so),
        cmocka_unit_test(disk_full_is_an_error_and_leaves_nothing),
        cmocka_unit_test(threads_write_and_read_side_by_side),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
