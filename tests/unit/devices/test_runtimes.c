/* Runtimes of several ABIs, what their names and libraries say, and libraries that are damaged. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/runtime/runtime.h"
#include "devices/runtimes/runtimes.h"
#include "devices/runtimes/sdk.h"
#include "support/scratch.h"

static uint64_t seed;

static uint64_t next_random(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

static void put_text(const char *name, const char *text)
{
    char *path = in_folder(name), *dir = nd_path_dir(path);
    assert_int_equal(nd_dir_make(dir, NULL), ND_OK);
    assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    free(dir);
    free(path);
}

static int use_folder(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    return setenv("NPUDIFF_RUNTIMES", folder, 1);
}

/* A runtime with empty files: what is looked at here are names. */
static void put_runtime(const char *place, const char *abi, const char *more)
{
    char name[256], text[1024];
    snprintf(name, sizeof name, "%s/runtime.json", place);
    snprintf(text, sizeof text, "{\"abi\": \"%s\", \"onnxruntime\": \"1.2\", \"ort_library\": \"o.so\"%s}", abi,
             more);
    put_text(name, text);
    snprintf(name, sizeof name, "%s/o.so", place);
    put_text(name, "");
}

/* ---- finding ---- */

static void one_id_is_found_for_each_of_its_abis(void **state)
{
    (void)state;
    struct nd_runtime_info info;
    struct nd_error err = {0};
    put_runtime("mine", "x86_64-linux", "");
    put_runtime("mine.aarch64-linux", "aarch64-linux", "");
    const char *const abis[] = {"x86_64-linux", "aarch64-linux"};
    for (size_t i = 0; i < 2; i++) {
        expect_ok(nd_runtime_find_abi("mine", abis[i], &info, &err), &err);
        assert_string_equal(info.id, "mine");
        assert_string_equal(info.abi, abis[i]);
        nd_runtime_info_deinit(&info);
    }
    assert_int_equal(nd_runtime_find_abi("mine", "aarch64-android", &info, &err), ND_ERR_NOT_FOUND);
    assert_int_equal(err.id, ND_E_RUNTIME_MISSING);
    assert_string_equal(err.message,
                        "runtime 'mine' is not installed for aarch64-android, only for x86_64-linux, "
                        "aarch64-linux; add its libraries with 'npudiff runtimes add WHEEL...'");
    assert_int_equal(nd_runtime_find_abi("other", "aarch64-android", &info, &err), ND_ERR_NOT_FOUND);
    assert_string_equal(err.message, "there is no runtime 'other'; 'npudiff runtimes' lists all");
}

static void newest_of_an_abi_is_the_default(void **state)
{
    (void)state;
    struct nd_runtime_info info;
    struct nd_error err = {0};
    assert_int_equal(nd_runtime_find_abi(NULL, "aarch64-linux", &info, &err), ND_ERR_NOT_FOUND);
    assert_string_equal(err.message,
                        "no runtime for aarch64-linux is installed; add one with 'npudiff runtimes "
                        "add WHEEL...'");
    put_runtime("zz-9.9.aarch64-linux", "aarch64-linux", "");
    expect_ok(nd_runtime_find_abi(NULL, "aarch64-linux", &info, &err), &err);
    assert_string_equal(info.id, "zz-9.9"); /* there is none of ours */
    nd_runtime_info_deinit(&info);
    put_runtime("qairt-2.9.0.aarch64-linux", "aarch64-linux", "");
    put_runtime("qairt-2.10.0.aarch64-linux", "aarch64-linux", "");
    put_runtime("qairt-9.0.0", "x86_64-linux", "");
    expect_ok(nd_runtime_find_abi(NULL, "aarch64-linux", &info, &err), &err);
    assert_string_equal(info.id, "qairt-2.10.0");
    nd_runtime_info_deinit(&info);
}

static void what_a_device_needs_is_required(void **state)
{
    (void)state;
    struct nd_runtime_info info;
    struct nd_error err = {0};
    put_runtime("cpu-only", "x86_64-linux", "");
    expect_ok(nd_runtime_find_abi("cpu-only", "x86_64-linux", &info, &err), &err);
    assert_int_equal(nd_runtime_require(&info, ND_RUNTIME_FOR_CPU, &err), ND_OK);
    assert_int_equal(nd_runtime_require(&info, ND_RUNTIME_FOR_NPU, &err), ND_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "has no QNN provider: it is for the CPU alone"));
    assert_int_equal(nd_runtime_require(&info, ND_RUNTIME_FOR_NET_RUN, &err), ND_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "has no qnn-net-run"));
    assert_string_equal(info.provider_version, "none");
    nd_runtime_info_deinit(&info);
    put_text("sdk/runtime.json", "{\"net_run\": \"qnn-net-run\", \"backend_library\": \"libQnnHtp.so\"}");
    put_text("sdk/qnn-net-run", "");
    put_text("sdk/libQnnHtp.so", "");
    expect_ok(nd_runtime_find_abi("sdk", "x86_64-linux", &info, &err), &err);
    assert_int_equal(nd_runtime_require(&info, ND_RUNTIME_FOR_NET_RUN, &err), ND_OK);
    assert_int_equal(nd_runtime_require(&info, ND_RUNTIME_FOR_CPU, &err), ND_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "it is for qnn-net-run alone"));
    nd_runtime_info_deinit(&info);
}

/* ---- files ---- */

static bool has_file(const struct nd_runtime_info *info, const char *name)
{
    for (size_t i = 0; i < info->n_files; i++)
        if (strcmp(nd_path_base(info->files[i]), name) == 0)
            return true;
    return false;
}

static void files_are_found_by_rule_where_none_are_listed(void **state)
{
    (void)state;
    static const char *const there[] = {"q/libQnnHtp.so",
                                        "q/libonnxruntime_providers_qnn.so",
                                        "q/libQnnSystem.so",
                                        "q/libQnnHtpV75Skel.so",
                                        "q/libQnnHtpV69Skel.so",
                                        "q/libQnnHtpV75Stub.so",
                                        "q.libs/libc++-71.so.1.0",
                                        "q/libGenie.so",
                                        "q/libQnnGpu.so",
                                        "q/libHtpPrepare.so",
                                        "q/LICENSE",
                                        "o.so"};
    struct nd_runtime_info info;
    struct nd_error err = {0};
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "rule/%s", there[i]);
        put_text(name, "");
    }
    put_text("rule/runtime.json", "{\"ort_library\": \"o.so\", \"backend_library\": \"q/libQnnHtp.so\", "
                                  "\"provider_library\": \"q/libonnxruntime_providers_qnn.so\"}");
    expect_ok(nd_runtime_find_abi("rule", "x86_64-linux", &info, &err), &err);
    assert_int_equal(info.n_files, 8);
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++)
        assert_int_equal(has_file(&info, nd_path_base(there[i])), i < 7 || i == 11);
    assert_string_equal(info.archs, "v69 v75");
    nd_runtime_info_deinit(&info);
    /* A list is believed, and must be there. */
    put_text("rule/runtime.json", "{\"ort_library\": \"o.so\", \"files\": [\"o.so\", \"q/LICENSE\"]}");
    expect_ok(nd_runtime_find_abi("rule", "x86_64-linux", &info, &err), &err);
    assert_int_equal(info.n_files, 2);
    nd_runtime_info_deinit(&info);
    put_text("rule/runtime.json", "{\"ort_library\": \"o.so\", \"files\": [\"o.so\", \"q/gone.so\"]}");
    assert_int_equal(nd_runtime_find_abi("rule", "x86_64-linux", &info, &err), ND_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "a library of it is gone"));
}

static void names_tell_architectures_and_needs(void **state)
{
    (void)state;
    assert_int_equal(nd_runtime_arch_of("libQnnHtpV75Skel.so", "Skel"), 75);
    assert_int_equal(nd_runtime_arch_of("libQnnHtpV75Stub.so", "Skel"), 0);
    assert_int_equal(nd_runtime_arch_of("libQnnHtpV75Skel.so.bak", "Skel"), 0);
    assert_int_equal(nd_runtime_arch_of("libQnnHtpVSkel.so", "Skel"), 0);
    assert_int_equal(nd_runtime_arch_of("libQnnHtpV99999999999Skel.so", "Skel"), 0);
    assert_true(nd_runtime_file_serves("/x/libQnnHtpV75Skel.so", "v75", ND_RUNTIME_FOR_NPU));
    assert_false(nd_runtime_file_serves("/x/libQnnHtpV75Skel.so", "v73", ND_RUNTIME_FOR_NPU));
    assert_true(nd_runtime_file_serves("/x/libQnnHtpV75Skel.so", NULL, ND_RUNTIME_FOR_NPU));
    assert_false(nd_runtime_file_serves("/x/libQnnHtpNetRunExtensions.so", "v75", ND_RUNTIME_FOR_NPU));
    assert_true(nd_runtime_file_serves("/x/libQnnHtpNetRunExtensions.so", "v75", ND_RUNTIME_FOR_NET_RUN));
    assert_false(nd_runtime_file_serves("/x/libonnxruntime.so.1", "v75", ND_RUNTIME_FOR_NET_RUN));
    assert_false(nd_runtime_file_serves("/x/libQnnHtp.so", NULL, ND_RUNTIME_FOR_CPU));
    assert_true(nd_runtime_file_serves("/x/libonnxruntime.so.1", NULL, ND_RUNTIME_FOR_CPU));
}

static void build_id_comes_from_the_manifest_or_the_backend(void **state)
{
    (void)state;
    static const struct {
        const char *more, *bytes, *of_manifest, *of_backend;
    } cases[] = {{", \"backend_library\": \"b.so\", \"build_id\": \"v2.1.0.111111\"", "v2.2.0.222222",
                  "v2.1.0.111111", "v2.2.0.222222"},
                 {", \"backend_library\": \"b.so\"", "..v2.2.0.222222..", "none", "v2.2.0.222222"},
                 {", \"backend_library\": \"b.so\"", "nothing", "none", "none"},
                 {"", "v2.2.0.222222", "none", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_runtime_info info;
        struct nd_error err = {0};
        char *build = NULL;
        put_runtime("built", "x86_64-linux", cases[i].more);
        put_text("built/b.so", cases[i].bytes);
        expect_ok(nd_runtime_find_abi("built", "x86_64-linux", &info, &err), &err);
        assert_string_equal(info.build_id != NULL ? info.build_id : "none", cases[i].of_manifest);
        assert_int_equal(info.backend_library != NULL, cases[i].of_backend != NULL);
        if (info.backend_library != NULL) {
            expect_ok(nd_elf_find_qnn_build(info.backend_library, &build, &err), &err);
            assert_string_equal(build != NULL ? build : "none", cases[i].of_backend);
        }
        free(build);
        nd_runtime_info_deinit(&info);
    }
}

/* ---- the store ---- */

static void put_made(const struct nd_runtime_store *store, const char *abi, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s/runtime.json", store->work, abi);
    put_text(name, text);
}

static void what_was_put_is_taken_back_when_the_next_fails(void **state)
{
    (void)state;
    struct nd_runtime_store store;
    struct nd_error err = {0};
    put_text("r/runtime.json", "old");
    expect_ok(nd_runtime_store_open(&store, &err), &err);
    put_made(&store, "x86_64-linux", "new");
    expect_ok(nd_runtime_store_put(&store, "r", "x86_64-linux", &err), &err);
    char *path = in_folder("r/runtime.json"), *work = nd_strdup(store.work);
    void *data = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(path, 100, &data, &n, NULL), ND_OK);
    assert_string_equal((char *)data, "new");
    free(data);
    /* Nothing was made for this ABI. */
    assert_int_equal(nd_runtime_store_put(&store, "r", "aarch64-linux", &err), ND_ERR_IO);
    assert_int_equal(nd_file_read(path, 100, &data, &n, NULL), ND_OK);
    assert_string_equal((char *)data, "old");
    free(data);
    nd_runtime_store_close(&store);
    assert_false(nd_path_exists(work));
    free(work);
    free(path);
}

/* ---- libraries ---- */

struct search {
    char path[4096];
    char build_id[200];
};

static void take_libc(void *context, const char *path, const char *build_id)
{
    struct search *search = context;
    if (strstr(path, "libc.so") != NULL) {
        snprintf(search->path, sizeof search->path, "%s", path);
        snprintf(search->build_id, sizeof search->build_id, "%s", build_id);
    }
}

/* The C library of this process, whose build id the dynamic linker shows another way. */
static void real_library_says_what_the_linker_says(void **state)
{
    (void)state;
    struct search search = {0};
    struct nd_elf_facts facts;
    struct nd_error err = {0};
    bool is_elf = false;
    nd_runtime_visit_libraries(take_libc, &search);
    assert_string_not_equal(search.path, "");
    expect_ok(nd_elf_read(search.path, &is_elf, &facts, &err), &err);
    assert_true(is_elf);
    assert_string_equal(facts.abi, nd_abi_here());
    assert_string_equal(facts.soname, "libc.so.6");
    assert_true(facts.n_needed > 0);
    assert_string_equal(facts.build_id != NULL ? facts.build_id : "", search.build_id);
    nd_elf_deinit(&facts);
}

/* Bytes changed at random places of a real library, and cuts of any length: an answer or an error. */
static void damaged_libraries_never_crash_the_reader(void **state)
{
    (void)state;
    struct search search = {0};
    void *data = NULL;
    size_t n = 0, n_errors = 0, n_read = 0;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    nd_runtime_visit_libraries(take_libc, &search);
    assert_int_equal(nd_file_read(search.path, (size_t)1 << 26, &data, &n, NULL), ND_OK);
    char *path = in_folder("mutant.so");
    unsigned char *mutant = nd_calloc(n, 1);
    assert_non_null(mutant);
    for (int round = 0; round < 400; round++) {
        memcpy(mutant, data, n);
        /* Headers are where offsets are; the rest of a library matters little here. */
        for (int k = 0; k < 1 + round % 8; k++)
            mutant[next_random() % (round % 2 == 0 ? 1024 : n)] = (unsigned char)next_random();
        size_t length = round % 5 == 0 ? next_random() % n : n;
        struct nd_elf_facts facts = {0};
        struct nd_error err = {0};
        bool is_elf = false;
        assert_int_equal(nd_file_put(path, mutant, length, NULL), ND_OK);
        enum nd_status status = nd_elf_read(path, &is_elf, &facts, &err);
        if (status != ND_OK)
            assert_true(err.id == ND_E_RUNTIME_LIBRARY && strstr(err.message, "is damaged") != NULL);
        n_errors += status != ND_OK;
        n_read += status == ND_OK && is_elf;
        nd_elf_deinit(&facts);
    }
    assert_true(n_errors > 20 && n_read > 20);
    free(mutant);
    free(path);
    free(data);
}

static void build_ids_are_found_wherever_they_lie(void **state)
{
    (void)state;
    static const char build[] = "v2.51.0.260929181845";
    static const size_t places[] = {0, 1, (1 << 20) - 25, (1 << 20) - 3, (1 << 20) - 1, 1 << 20, (1 << 21) + 7};
    const size_t n = (1 << 21) + 64;
    char *path = in_folder("build.bin"), *found = NULL;
    char *text = nd_calloc(n, 1);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        for (int is_end = 0; is_end < 2; is_end++) {
            memset(text, 'v', n); /* every byte could be the start of one */
            memcpy(text + places[i], build, strlen(build));
            text[places[i] + strlen(build)] = '_';
            size_t length = is_end ? places[i] + strlen(build) : n;
            assert_int_equal(nd_file_put(path, text, length, NULL), ND_OK);
            assert_int_equal(nd_elf_find_qnn_build(path, &found, NULL), ND_OK);
            assert_string_equal(found != NULL ? found : "none", build);
            free(found);
        }
    static const char *const none[] = {"",
                                       "v2",
                                       "v2.51.0",
                                       "v2.51.0.12345",
                                       "v3.51.0.260929181845",
                                       "v2..0.260929181845",
                                       "v2.51.0,260929181845",
                                       "v2.51.0.x260929181845"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_int_equal(nd_file_put(path, none[i], strlen(none[i]), NULL), ND_OK);
        assert_int_equal(nd_elf_find_qnn_build(path, &found, NULL), ND_OK);
        assert_null(found);
    }
    free(text);
    free(path);
}

int main(void)
{
    const char *given = getenv("ND_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : 20261122;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_id_is_found_for_each_of_its_abis, use_folder, remove_folder),
        cmocka_unit_test_setup_teardown(newest_of_an_abi_is_the_default, use_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_a_device_needs_is_required, use_folder, remove_folder),
        cmocka_unit_test_setup_teardown(files_are_found_by_rule_where_none_are_listed, use_folder,
                                        remove_folder),
        cmocka_unit_test(names_tell_architectures_and_needs),
        cmocka_unit_test_setup_teardown(build_id_comes_from_the_manifest_or_the_backend, use_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_was_put_is_taken_back_when_the_next_fails, use_folder,
                                        remove_folder),
        cmocka_unit_test(real_library_says_what_the_linker_says),
        cmocka_unit_test_setup_teardown(damaged_libraries_never_crash_the_reader, use_folder, remove_folder),
        cmocka_unit_test_setup_teardown(build_ids_are_found_wherever_they_lie, use_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
