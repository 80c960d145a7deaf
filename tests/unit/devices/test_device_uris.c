/* Devices by their URIs. */
#include "support/main.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "npudiff/devices/device.h"
#include "support/device_uris.h"
#include "support/scratch.h"

static void cpu_uri_gives_a_reference(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_device device;
    expect_ok(nd_device_parse("cpu", &device, &err), &err);
    assert_int_equal(device.kind, ND_DEVICE_CPU);
    assert_string_equal(device.uri, "cpu@qairt-2.48.40");
    assert_string_equal(device.label, "cpu");
    assert_null(device.chipset);
    assert_string_equal(device.optimisation, "disable"); /* fused operators would have other arithmetic */
    assert_int_equal(device.n_threads, 1);
    assert_int_equal(device.n_options, 0);
    nd_device_deinit(&device);
    nd_device_deinit(&device); /* the zeroed is accepted */
    expect_ok(nd_device_parse("cpu@qairt-2.47.0?optimisation=extended&threads=4", &device, &err), &err);
    assert_string_equal(device.uri, "cpu@qairt-2.47.0?optimisation=extended&threads=4");
    assert_string_equal(device.label, "cpu@qairt-2.47.0?optimisation=extended&threads=4");
    assert_string_equal(device.runtime.id, "qairt-2.47.0");
    assert_string_equal(device.optimisation, "extended");
    assert_int_equal(device.n_threads, 4);
    nd_device_deinit(&device);
}

static const char *option(const struct nd_device *device, const char *key)
{
    for (size_t i = 0; i < device->n_options; i++)
        if (strcmp(device->option_keys[i], key) == 0)
            return device->option_values[i];
    return NULL;
}

static void a_uri_has_a_most_length(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_device device;
    static const char *const begins[] = {"emu:double:8,stale@", "cpu?ep.x=", "exec:", "adb:"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t most = 16384, n = strlen(begins[i]);
        char *uri = malloc(most + 2);
        assert_non_null(uri);
        memset(uri, 'x', most + 1);
        memcpy(uri, begins[i], n);
        uri[most + 1] = '\0';
        assert_int_equal(nd_device_parse(uri, &device, &err), ND_ERR_USAGE);
        assert_non_null(strstr(err.message, "has 16385 bytes; 16384 are the most"));
        assert_int_equal(nd_device_parse_trusted(uri, &device, &err), ND_ERR_USAGE);
        assert_non_null(strstr(err.message, "has 16385 bytes; 16384 are the most"));
        if (i == 0) {
            uri[most] = '\0';
            expect_ok(nd_device_parse(uri, &device, &err), &err);
            nd_device_deinit(&device);
        }
        free(uri);
    }
}

static void a_twin_needs_no_runtime(void **state)
{
    (void)state;
    static const struct {
        const char *uri, *canonical, *arch, *sdk;
    } rows[] = {
        {"twin:gen1", "twin:SM8450@qairt-2.51", "v69", "2.51"},
        {"twin:SM8650@qairt-2.48.40", "twin:SM8650@qairt-2.48.40", "v75", "2.48.40"},
        {"twin:gen5@qairt-2.47?strict=1", "twin:SM8850@qairt-2.47?strict=1", "v81", "2.47"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct nd_error err = {0};
        struct nd_device device;
        expect_ok(nd_device_parse(rows[i].uri, &device, &err), &err);
        assert_int_equal(device.kind, ND_DEVICE_TWIN);
        assert_string_equal(device.uri, rows[i].canonical);
        assert_string_equal(device.label, rows[i].uri);
        assert_string_equal(option(&device, "arch"), rows[i].arch);
        assert_string_equal(option(&device, "sdk"), rows[i].sdk);
        nd_device_deinit(&device);
    }
}

static void emulated_uri_is_a_profile(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_device device;
    assert_int_equal(nd_device_parse("emu:double:8,stale@a/b@c?d=", &device, &err), ND_ERR_USAGE);
    assert_int_equal(err.id, ND_E_DEVICE_PROFILE);
    /* What separates a runtime or options elsewhere may be in the name of a tensor. */
    expect_ok(nd_device_parse("emu:double:8,stale@a/b@c?d", &device, &err), &err);
    assert_int_equal(device.kind, ND_DEVICE_EMULATED);
    assert_string_equal(nd_device_kind_name(device.kind), "emu");
    assert_false(nd_device_is_reference(device.kind));
    assert_string_equal(device.uri, "emu:round=double:8,stale@a/b@c?d");
    assert_string_equal(device.label, "emu:double:8,stale@a/b@c?d");
    assert_int_equal(device.n_options, 1);
    assert_string_equal(option(&device, "profile"), "round=double:8,stale@a/b@c?d");
    nd_device_deinit(&device);
}

static void emulated_profiles_come_from_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", ":1:1: a mapping with 'items' is needed"},
        {"- a\n", ":1:1: a mapping with 'items' is needed"},
        {"seed: 1\n", ":1:1: there are no 'items'"},
        {"items: []\n", ":1:8: 'items' is a list of one text or more"},
        {"items: {a: b}\n", ":1:8: 'items' is a list of one text or more"},
        {"items: [floor]\nseeds: 1\n", ":2:1: keys are 'items' and 'seed', not 'seeds'"},
        {"items: [floor]\n[a]: 1\n", ":2:1: keys are 'items' and 'seed', not ''"},
        {"items: [floor]\nseed: 1\nseed: 1\n", ":3:1: there is a second 'seed'"},
        {"items: [floor]\nseed: -1\n", ":2:7: item 'seed=-1' is not of the form seed=N"},
        {"items:\n  - floor\n  - [floor]\n", ":3:5: an item is a text"},
        {"items:\n  - floor\n  -   fuse\n", ":3:7: item 'fuse' is not of the form fuse@TENSOR"},
        {"items: [floor\n", ":2:1: did not find expected ',' or ']'"},
        {"items: [\"a\\0b\"]\n", ":1:9: an item is a text"},
        {"items: [floor]\n--- 1\n", ": there is a second document"},
        {"items: [*a]\n", ":1:9: found undefined alias"},
    };
    struct nd_error err = {0};
    struct nd_device device;
    char *path = in_folder("device.yml"), uri[4200];
    snprintf(uri, sizeof uri, "emu:%s", path);
    put_text("device.yml", "items:\n- round=floor # all of them\n- 'zero@a b'\nseed: 0x7\n");
    assert_int_equal(nd_device_parse(uri, &device, &err), ND_ERR_USAGE);
    put_text("device.yml", "items:\n- round=floor # all of them\n- 'zero@a b'\nseed: 7\n");
    expect_ok(nd_device_parse(uri, &device, &err), &err);
    assert_string_equal(device.uri, "emu:round=floor,zero@a b,seed=7");
    assert_string_equal(device.label, "emu:device.yml");
    assert_string_equal(option(&device, "profile_file"), "device.yml");
    assert_int_equal(strlen(option(&device, "profile_sha256")), 64);
    assert_non_null(strstr(option(&device, "profile_text"), "# all of them"));
    nd_device_deinit(&device);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_text("device.yml", bad[i].text);
        assert_int_equal(nd_device_parse(uri, &device, &err), ND_ERR_USAGE);
        assert_int_equal(err.id, ND_E_DEVICE_PROFILE);
        if (strstr(err.message, bad[i].message) == NULL || strstr(err.message, path) == NULL)
            fail_msg("'%s' gives: %s", bad[i].text, err.message);
    }
    assert_int_equal(nd_device_parse("emu:/nowhere/x.yaml", &device, &err), ND_ERR_IO);
    free(path);
}

static void simulator_uri_gives_explicit_options(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_device device;
    char *backend = in_folder("uris/qairt-2.48.40/b.so");
    expect_ok(nd_device_parse("htp-sim:Gen3", &device, &err), &err);
    assert_int_equal(device.kind, ND_DEVICE_HTP_SIM);
    assert_string_equal(device.uri, "htp-sim:SM8650@qairt-2.48.40");
    assert_string_equal(device.label, "Gen3");
    assert_string_equal(device.chipset->sm, "SM8650");
    assert_string_equal(device.optimisation, "all");
    assert_int_equal(device.n_options, 4);
    assert_string_equal(option(&device, "backend_path"), backend);
    assert_string_equal(option(&device, "soc_model"), "57");
    assert_string_equal(option(&device, "offload_graph_io_quantization"), "1");
    assert_string_equal(option(&device, "enable_htp_fp16_precision"), "1");
    nd_device_deinit(&device);
    /* v68 has no half precision. */
    expect_ok(nd_device_parse("htp-sim:sm8350", &device, &err), &err);
    assert_null(option(&device, "enable_htp_fp16_precision"));
    assert_string_equal(option(&device, "soc_model"), "30");
    nd_device_deinit(&device);
    free(backend);
}

static void query_sets_and_overrides_provider_options(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_device device;
    expect_ok(nd_device_parse_trusted(
                  "htp-sim:gen1@qairt-2.47.0?offload_graph_io_quantization=0&new=a=b&empty=&threads=2", &device,
                  &err),
              &err);
    assert_string_equal(device.label,
                        "gen1@qairt-2.47.0?offload_graph_io_quantization=0&new=a=b&empty=&threads=2");
    assert_int_equal(device.n_options, 6);
    assert_string_equal(option(&device, "offload_graph_io_quantization"), "0");
    assert_string_equal(option(&device, "new"), "a=b");
    assert_string_equal(option(&device, "empty"), "");
    assert_int_equal(device.n_threads, 2);
    nd_device_deinit(&device);
}

static void bad_uri_is_refused_in_clear_words(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        int id;
        const char *message;
    } bad[] = {
        {"", ND_E_DEVICE_UNKNOWN,
         "unknown device ''; devices are 'cpu', 'exact', 'float64', 'emu:ITEM,...', 'htp-sim:CHIPSET', "
         "'twin:CHIPSET', 'htp', 'exec:RUNNER', 'adb:SERIAL' and 'ssh:HOST'; 'npudiff devices' lists them"},
        {"CPU", ND_E_DEVICE_UNKNOWN,
         "unknown device 'CPU'; devices are 'cpu', 'exact', 'float64', 'emu:ITEM,...', 'htp-sim:CHIPSET', "
         "'twin:CHIPSET', 'htp', 'exec:RUNNER', 'adb:SERIAL' and 'ssh:HOST'; 'npudiff devices' lists them; did "
         "you mean "
         "'cpu'?"},
        {"cpu:", ND_E_DEVICE_UNKNOWN,
         "unknown device 'cpu:'; devices are 'cpu', 'exact', 'float64', 'emu:ITEM,...', 'htp-sim:CHIPSET', "
         "'twin:CHIPSET', 'htp', 'exec:RUNNER', 'adb:SERIAL' and 'ssh:HOST'; 'npudiff devices' lists them"},
        {"htp-sim", ND_E_DEVICE_UNKNOWN,
         "unknown device 'htp-sim'; devices are 'cpu', 'exact', 'float64', 'emu:ITEM,...', 'htp-sim:CHIPSET', "
         "'twin:CHIPSET', 'htp', 'exec:RUNNER', 'adb:SERIAL' and 'ssh:HOST'; 'npudiff devices' lists them; did "
         "you mean "
         "'htp-sim:gen3'?"},
        {"htp-sim:", ND_E_DEVICE_UNKNOWN, "device 'htp-sim:': unknown chipset ''; 'npudiff devices' lists all"},
        {"htp-sim:gen9", ND_E_DEVICE_UNKNOWN,
         "device 'htp-sim:gen9': unknown chipset 'gen9'; 'npudiff devices' lists all"},
        {"htp-sim:gen9@x", ND_E_DEVICE_UNKNOWN,
         "device 'htp-sim:gen9@x': unknown chipset 'gen9'; 'npudiff devices' lists all"},
        {"cpu@", ND_E_RUNTIME_MISSING, "there is no runtime ''; 'npudiff runtimes' lists all"},
        {"cpu@qairt-1", ND_E_RUNTIME_MISSING, "there is no runtime 'qairt-1'; 'npudiff runtimes' lists all"},
        {"cpu?", ND_E_DEVICE_UNKNOWN, "device 'cpu?': '' is not of the form option=value"},
        {"cpu?threads", ND_E_DEVICE_UNKNOWN, "device 'cpu?threads': 'threads' is not of the form option=value"},
        {"cpu?=1", ND_E_DEVICE_UNKNOWN, "device 'cpu?=1': '=1' is not of the form option=value"},
        {"cpu?threads=1&", ND_E_DEVICE_UNKNOWN, "device 'cpu?threads=1&': '' is not of the form option=value"},
        {"cpu?threads=0", ND_E_DEVICE_UNKNOWN,
         "device 'cpu?threads=0': threads is a number from 1 to 1024, not '0'"},
        {"cpu?threads=2x", ND_E_DEVICE_UNKNOWN,
         "device 'cpu?threads=2x': threads is a number from 1 to 1024, not '2x'"},
        {"cpu?threads=1025", ND_E_DEVICE_UNKNOWN,
         "device 'cpu?threads=1025': threads is a number from 1 to 1024, not '1025'"},
        {"cpu?optimisation=most", ND_E_DEVICE_UNKNOWN,
         "device 'cpu?optimisation=most': optimisation is 'disable', 'basic', 'extended' or 'all', not 'most'"},
        {"cpu?soc_model=3", ND_E_DEVICE_UNKNOWN,
         "device 'cpu?soc_model=3': unknown option 'soc_model'; a cpu has 'optimisation' and 'threads'"},
        {"exact@qairt-1", ND_E_DEVICE_UNKNOWN, "device 'exact@qairt-1' has no runtime to choose"},
        {"exact?threads=2", ND_E_DEVICE_UNKNOWN,
         "device 'exact?threads=2': unknown option 'threads'; exact has 'rounding'"},
        {"float64?rounding=floor", ND_E_DEVICE_UNKNOWN,
         "device 'float64?rounding=floor': unknown option 'rounding'; float64 has none"},
        {"exact?rounding=up", ND_E_DEVICE_UNKNOWN,
         "device 'exact?rounding=up': rounding is half-even, half-away, half-up, half-down, floor, ceil or "
         "to-zero, not 'up'"},
        {"twin:gen9", ND_E_DEVICE_UNKNOWN,
         "device 'twin:gen9': unknown chipset 'gen9'; 'npudiff devices' lists all"},
        {"twin:gen3@qairt-2.46", ND_E_DEVICE_UNKNOWN,
         "device 'twin:gen3@qairt-2.46': the arithmetic of v75 with qairt-2.46 is not known; known are v68 to "
         "v81 with "
         "qairt-2.47 to qairt-2.51"},
        {"twin:gen3@qairt-2.480", ND_E_DEVICE_UNKNOWN, NULL},
        {"twin:gen3@2.48", ND_E_DEVICE_UNKNOWN, NULL},
        {"twin:gen3?strict=2", ND_E_DEVICE_UNKNOWN,
         "device 'twin:gen3?strict=2': a twin has the option strict=1 (or 0), not 'strict=2'"},
        {"twin:gen3?threads=2", ND_E_DEVICE_UNKNOWN, NULL},
        {"htp-sim:gen1?soc_model=3", ND_E_DEVICE_UNKNOWN,
         "device 'htp-sim:gen1?soc_model=3': option 'soc_model' follows from the device itself"},
        {"htp-sim:gen1?backend_path=x", ND_E_DEVICE_UNKNOWN,
         "device 'htp-sim:gen1?backend_path=x': option 'backend_path' follows from the device itself"},
        {"htp-sim:gen1?vtcm_mb=4&op_packages=x.so:f", ND_E_DEVICE_OPTION,
         "device 'htp-sim:gen1?vtcm_mb=4&op_packages=x.so:f': option 'op_packages' may name a file or load a "
         "library: it is taken only from a command with --trust-options"},
        {"htp-sim:gen1?htp_performace_mode=burst", ND_E_DEVICE_OPTION,
         "device 'htp-sim:gen1?htp_performace_mode=burst': option 'htp_performace_mode' is not known; did you "
         "mean 'htp_performance_mode'?"},
        {"htp-sim:gen1?mode=burst", ND_E_DEVICE_OPTION,
         "device 'htp-sim:gen1?mode=burst': option 'mode' may name a file or load a library: it is taken only "
         "from a command with --trust-options"},
        {"htp-sim:gen1?qnn_saver_path=x", ND_E_DEVICE_OPTION, NULL},
        {"htp-sim:gen1?qnn_ir_backend_path=x", ND_E_DEVICE_OPTION, NULL},
        {"htp-sim:gen1?profiling_file_path=x", ND_E_DEVICE_OPTION, NULL},
        {"htp-sim:gen1?ep.context_file_path=x", ND_E_DEVICE_OPTION, NULL},
        {"htp-sim:gen1?backend_type=cpu", ND_E_DEVICE_UNKNOWN,
         "device 'htp-sim:gen1?backend_type=cpu': option 'backend_type' follows from the device itself"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct nd_error err = {0};
        struct nd_device device = {.n_threads = 77};
        enum nd_status status = nd_device_parse(bad[i].uri, &device, &err);
        assert_int_equal(status, bad[i].id == ND_E_RUNTIME_MISSING ? ND_ERR_NOT_FOUND : ND_ERR_USAGE);
        assert_int_equal(err.id, bad[i].id);
        if (bad[i].message != NULL)
            assert_string_equal(err.message, bad[i].message);
        assert_int_equal(device.n_threads, 77); /* untouched */
    }
}

static void syntaxes_end_with_null(void **state)
{
    (void)state;
    const struct nd_device_syntax *syntax = nd_device_syntaxes();
    size_t n = 0;
    for (; syntax[n].syntax != NULL; n++)
        assert_true(strlen(syntax[n].summary) > 0);
    assert_int_equal(n, 12);
}

int main(void)
{
#define WITH_FAKE_RUNTIME(test) cmocka_unit_test_setup_teardown(test, use_fake_runtime, use_real_runtimes)
#define WITH_OWN_RUNTIME(test) cmocka_unit_test_setup_teardown(test, NULL, use_real_runtimes)
    const struct CMUnitTest tests[] = {
        WITH_FAKE_RUNTIME(cpu_uri_gives_a_reference),
        WITH_FAKE_RUNTIME(simulator_uri_gives_explicit_options),
        WITH_FAKE_RUNTIME(query_sets_and_overrides_provider_options),
        WITH_FAKE_RUNTIME(bad_uri_is_refused_in_clear_words),
        cmocka_unit_test(a_uri_has_a_most_length),
        cmocka_unit_test(emulated_uri_is_a_profile),
        cmocka_unit_test(emulated_profiles_come_from_files),
        cmocka_unit_test(a_twin_needs_no_runtime),
        cmocka_unit_test(syntaxes_end_with_null),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
