/* Chipsets, runtimes, several devices at once. */
#include "support/main.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/devices/device.h"
#include "support/device_uris.h"
#include "support/scratch.h"

static void chipset_table_names_each_chip_once(void **state)
{
    (void)state;
    size_t n = 0, n_aliases = 0;
    const struct nd_chipset *all = nd_chipsets(&n);
    assert_true(n >= 20);
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(all[i].sm) > 4 && strlen(all[i].marketing) > 0);
        assert_true(all[i].soc_model > 0);
        assert_true(all[i].arch[0] == 'v' && strlen(all[i].arch) == 3 &&
                    isdigit((unsigned char)all[i].arch[1]));
        n_aliases += all[i].alias[0] != '\0';
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(all[k].soc_model, all[i].soc_model);
            assert_string_not_equal(all[k].sm, all[i].sm);
            if (all[i].alias[0] != '\0')
                assert_string_not_equal(all[k].alias, all[i].alias);
        }
    }
    assert_int_equal(n_aliases, 5);
}

static void chipset_is_found_by_number_and_alias_in_any_case(void **state)
{
    (void)state;
    static const struct {
        const char *alias, *sm, *arch;
        int soc_model;
    } known[] = {{"gen1", "SM8450", "v69", 36},
                 {"gen2", "SM8550", "v73", 43},
                 {"gen3", "SM8650", "v75", 57},
                 {"gen4", "SM8750", "v79", 69},
                 {"gen5", "SM8850", "v81", 87}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const struct nd_chipset *chipset = nd_chipset_find(known[i].alias);
        assert_non_null(chipset);
        assert_string_equal(chipset->sm, known[i].sm);
        assert_string_equal(chipset->arch, known[i].arch);
        assert_int_equal(chipset->soc_model, known[i].soc_model);
        assert_ptr_equal(nd_chipset_find(known[i].sm), chipset);
    }
    assert_ptr_equal(nd_chipset_find("sm8650"), nd_chipset_find("GEN3"));
    assert_string_equal(nd_chipset_find("sM8845")->marketing,
                        "Snapdragon 8 Gen 5"); /* not the Elite, which is gen5 */
    assert_null(nd_chipset_find(""));
    assert_null(nd_chipset_find("gen"));
    assert_null(nd_chipset_find("gen33"));
    assert_null(nd_chipset_find("SM8650 "));
    assert_ptr_equal(nd_chipset_find("SM8650-AC"), nd_chipset_find("gen3")); /* as phones call a bin of it */
    assert_null(nd_chipset_find("SM8650P"));
    assert_null(nd_chipset_find("gen3-x"));
    assert_null(nd_chipset_find("-"));
    assert_null(nd_chipset_find("57"));
}

static void runtimes_of_an_empty_folder_are_known_but_missing(void **state)
{
    (void)state;
    struct nd_runtime_list list;
    struct nd_device device;
    struct nd_error err = {0};
    use_runtimes("nowhere");
    expect_ok(nd_runtimes_list(&list, &err), &err);
    assert_int_equal(list.n, 5);
    for (size_t i = 0; i < list.n; i++) {
        char expected[256];
        snprintf(expected, sizeof expected, "not installed; install it with 'tools/setup --runtime %s'",
                 list.items[i].id);
        assert_string_equal(list.items[i].missing, expected);
        assert_null(list.items[i].ort_library);
        assert_true(i == 0 || strverscmp(list.items[i - 1].id, list.items[i].id) > 0); /* newest first */
    }
    assert_string_equal(list.items[0].id, "qairt-2.51.0");
    assert_string_equal(list.items[0].ort_version, "1.31.1");
    assert_string_equal(list.items[0].provider_version, "2.7.0");
    nd_runtimes_deinit(&list);
    assert_int_equal(nd_device_parse("cpu", &device, &err), ND_ERR_NOT_FOUND);
    assert_int_equal(err.id, ND_E_RUNTIME_MISSING);
    assert_non_null(strstr(err.message, "no runtime is installed in '"));
    assert_non_null(strstr(err.message, "/nowhere'; install one with 'tools/setup'"));
    assert_int_equal(nd_device_parse("cpu@qairt-2.51.0", &device, &err), ND_ERR_NOT_FOUND);
    assert_string_equal(err.message, "runtime 'qairt-2.51.0' cannot be used: not installed; install it with "
                                     "'tools/setup --runtime qairt-2.51.0'");
}

static void runtimes_in_every_state_are_told_apart(void **state)
{
    (void)state;
    struct nd_runtime_list list;
    struct nd_error err = {0};
    put_text("states/qairt-2.51.0/half.txt", "");
    put_text("states/qairt-2.50.40/runtime.json", "{\"onnxruntime\":");
    put_text("states/qairt-2.47.0/runtime.json", "[1, \"o.so\"]");
    put_runtime("states", "qairt-2.49.40", "sub/p.so");
    put_runtime("states", "qairt-2.48.40", NULL);
    put_runtime("states", "my-build", NULL);
    put_runtime("states", ".hidden", NULL);
    put_text("states/no-runtime/readme.txt", "");
    use_runtimes("states");
    expect_ok(nd_runtimes_list(&list, &err), &err);
    assert_int_equal(list.n, 6);
    assert_string_equal(find(&list, "qairt-2.51.0")->missing,
                        "installed only in part; install it with 'tools/setup --runtime qairt-2.51.0'");
    assert_string_equal(
        find(&list, "qairt-2.50.40")->missing,
        "its manifest runtime.json is damaged: line 1, unexpected token near end of file; install it with "
        "'tools/setup --runtime qairt-2.50.40'");
    assert_string_equal(find(&list, "qairt-2.47.0")->missing,
                        "its manifest runtime.json is damaged: it is no JSON object; install it with "
                        "'tools/setup --runtime qairt-2.47.0'");
    assert_non_null(strstr(find(&list, "qairt-2.49.40")->missing, "a library of it is gone; "));
    const struct nd_runtime_info *whole = find(&list, "qairt-2.48.40");
    assert_null(whole->missing);
    assert_string_equal(whole->ort_version, "9.8"); /* what is there counts, not what was expected */
    assert_string_equal(whole->provider_version, "7.6");
    char *path = in_folder("states/qairt-2.48.40/sub/p.so");
    assert_string_equal(whole->provider_library, path);
    free(path);
    assert_null(find(&list, "my-build")->missing);
    nd_runtimes_deinit(&list);
    struct nd_device device;
    expect_ok(nd_device_parse("cpu", &device, &err), &err);
    assert_string_equal(device.runtime.id, "qairt-2.48.40"); /* the newest that can be used */
    nd_device_deinit(&device);
    expect_ok(nd_device_parse("cpu@my-build", &device, &err), &err);
    assert_string_equal(device.runtime.ort_version, "9.8");
    nd_device_deinit(&device);
}

/* Agents work in folders of their own, so a relative path must not reach them. */
static void runtimes_of_a_relative_folder_get_full_paths(void **state)
{
    (void)state;
    struct nd_runtime_list list;
    char *here = getcwd(NULL, 0);
    put_runtime("relative", "qairt-2.48.40", NULL);
    assert_int_equal(chdir(folder), 0);
    setenv("NPUDIFF_RUNTIMES", "relative", 1);
    assert_int_equal(nd_runtimes_list(&list, NULL), ND_OK);
    assert_int_equal(chdir(here), 0);
    const struct nd_runtime_info *info = find(&list, "qairt-2.48.40");
    assert_int_equal(info->ort_library[0], '/');
    assert_true(nd_path_exists(info->ort_library) && nd_path_exists(info->backend_library));
    nd_runtimes_deinit(&list);
    free(here);
}

static void runtimes_default_to_the_cache_folder(void **state)
{
    (void)state;
    struct nd_runtime_list list;
    char *home = nd_strdup(getenv("HOME")), *cache = nd_strdup(getenv("XDG_CACHE_HOME"));
    unsetenv("NPUDIFF_RUNTIMES");
    setenv("HOME", "/home/of/nobody", 1);
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(nd_runtimes_list(&list, NULL), ND_OK);
    assert_string_equal(list.items[0].folder, "/home/of/nobody/.cache/npudiff/runtimes/qairt-2.51.0");
    nd_runtimes_deinit(&list);
    setenv("XDG_CACHE_HOME", "/cache", 1);
    assert_int_equal(nd_runtimes_list(&list, NULL), ND_OK);
    assert_string_equal(list.items[0].folder, "/cache/npudiff/runtimes/qairt-2.51.0");
    nd_runtimes_deinit(&list);
    setenv("XDG_CACHE_HOME", "not/absolute", 1); /* the specification of that variable: to be ignored */
    assert_int_equal(nd_runtimes_list(&list, NULL), ND_OK);
    assert_string_equal(list.items[0].folder, "/home/of/nobody/.cache/npudiff/runtimes/qairt-2.51.0");
    nd_runtimes_deinit(&list);
    if (home != NULL)
        setenv("HOME", home, 1);
    unsetenv("XDG_CACHE_HOME");
    if (cache != NULL)
        setenv("XDG_CACHE_HOME", cache, 1);
    free(home);
    free(cache);
}

struct shift {
    const struct nd_device *const *devices;
    pthread_mutex_t lock;
    size_t n_running[3], n_max[3]; /* of this machine, a phone, a board */
    size_t n_at_once;              /* so many tasks run at once */
    pthread_barrier_t all_at_work;
    size_t order[N_TASKS], n_run; /* tasks as they began */
    size_t failing;
};

static size_t machine_of(const struct nd_device *device)
{
    return device->transport == ND_TRANSPORT_NONE ? 0 : device->transport == ND_TRANSPORT_ADB ? 1 : 2;
}

static enum nd_status work_a_shift(void *context, size_t task, struct nd_error *err)
{
    struct shift *shift = context;
    size_t machine = machine_of(shift->devices[task]);
    pthread_mutex_lock(&shift->lock);
    bool is_first = shift->n_run < shift->n_at_once;
    shift->order[shift->n_run++] = task;
    if (++shift->n_running[machine] > shift->n_max[machine])
        shift->n_max[machine] = shift->n_running[machine];
    pthread_mutex_unlock(&shift->lock);
    if (is_first) /* waits for ever where fewer run at once */
        pthread_barrier_wait(&shift->all_at_work);
    usleep(1000);
    pthread_mutex_lock(&shift->lock);
    shift->n_running[machine]--;
    pthread_mutex_unlock(&shift->lock);
    return task == shift->failing ? nd_fail(err, ND_E_CANCELLED, NULL, "task %zu", task) : ND_OK;
}

/* Two on this machine at once, one on each other; all machines beside each other. */
static void tasks_of_one_machine_take_turns(void **state)
{
    (void)state;
    static const struct nd_device here = {0}, phone = {.transport = ND_TRANSPORT_ADB, .address = "A"},
                                  board = {.transport = ND_TRANSPORT_SSH, .address = "A"};
    const struct nd_device *const devices[N_TASKS] = {&here, &phone, &here,  &board, &phone,
                                                      &here, &here,  &phone, &board};
    struct shift shift = {
        .devices = devices, .lock = PTHREAD_MUTEX_INITIALIZER, .failing = SIZE_MAX, .n_at_once = 4};
    struct nd_error err = {0};
    pthread_barrier_init(&shift.all_at_work, NULL, 4);
    expect_ok(nd_devices_run(devices, N_TASKS, 2, work_a_shift, &shift, &err), &err);
    assert_int_equal(shift.n_run, N_TASKS);
    assert_int_equal(shift.n_max[0], 2);
    assert_int_equal(shift.n_max[1], 1);
    assert_int_equal(shift.n_max[2], 1);
    size_t last[3] = {0};
    for (size_t i = 0; i < N_TASKS; i++) { /* in their order on each machine */
        size_t machine = machine_of(devices[shift.order[i]]);
        assert_true(shift.order[i] + 1 > last[machine]);
        last[machine] = shift.order[i] + 1;
    }
    expect_ok(nd_devices_run(devices, 0, 2, work_a_shift, &shift, &err), &err);
    assert_int_equal(shift.n_run, N_TASKS);
    pthread_barrier_destroy(&shift.all_at_work);
}

static void after_a_task_that_failed_none_begins(void **state)
{
    (void)state;
    static const struct nd_device here = {0};
    const struct nd_device *const devices[N_TASKS] = {&here, &here, &here, &here, &here,
                                                      &here, &here, &here, &here};
    struct shift shift = {.devices = devices, .lock = PTHREAD_MUTEX_INITIALIZER, .failing = 2};
    struct nd_error err = {0};
    assert_int_equal(nd_devices_run(devices, N_TASKS, 0, work_a_shift, &shift, &err),
                     nd_fail(NULL, ND_E_CANCELLED, NULL, "x"));
    assert_string_equal(err.message, "task 2");
    assert_int_equal(shift.n_run, 3);
    assert_int_equal(shift.n_max[0], 1);
}

int main(void)
{
#define WITH_FAKE_RUNTIME(test) cmocka_unit_test_setup_teardown(test, use_fake_runtime, use_real_runtimes)
#define WITH_OWN_RUNTIME(test) cmocka_unit_test_setup_teardown(test, NULL, use_real_runtimes)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chipset_table_names_each_chip_once),
        cmocka_unit_test(chipset_is_found_by_number_and_alias_in_any_case),
        WITH_OWN_RUNTIME(runtimes_of_an_empty_folder_are_known_but_missing),
        WITH_OWN_RUNTIME(runtimes_in_every_state_are_told_apart),
        WITH_OWN_RUNTIME(runtimes_of_a_relative_folder_get_full_paths),
        WITH_OWN_RUNTIME(runtimes_default_to_the_cache_folder),
        cmocka_unit_test(tasks_of_one_machine_take_turns),
        cmocka_unit_test(after_a_task_that_failed_none_begins),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
