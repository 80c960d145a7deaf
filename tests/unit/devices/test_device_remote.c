/* Devices on other machines: their URIs, which phone is meant, and what they are once the machine was asked.
 * The adb here is a stand-in, a script that prints what adb prints. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "devices/launch.h"
#include "devices/phones/remote.h"
#include "devices/runtimes/sdk.h"
#include "npudiff/devices/device.h"
#include "support/scratch.h"

static void put_text(const char *name, const char *text, bool is_program)
{
    char *path = in_folder(name), *dir = nd_path_dir(path);
    assert_int_equal(nd_dir_make(dir, NULL), ND_OK);
    assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    if (is_program)
        assert_int_equal(chmod(path, 0755), 0);
    free(path);
    free(dir);
}

static void put_runtime(const char *id, const char *abi)
{
    static const char *const files[] = {"o.so", "p.so", "b.so"};
    char name[256], manifest[512];
    snprintf(manifest, sizeof manifest,
             "{\"onnxruntime\": \"9.8\", \"onnxruntime_qnn\": \"7.6\", \"ort_library\": \"o.so\","
             " \"provider_library\": \"p.so\", \"backend_library\": \"b.so\", \"abi\": \"%s\"}",
             abi);
    const char *dot = strcmp(abi, "x86_64-linux") == 0 ? "" : ".", *tail = *dot == '\0' ? "" : abi;
    snprintf(name, sizeof name, "runtimes/%s%s%s/runtime.json", id, dot, tail);
    put_text(name, manifest, false);
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "runtimes/%s%s%s/%s", id, dot, tail, files[i]);
        put_text(name, "", false);
    }
}

/* A stand-in for `adb devices -l` that lists these lines, and for `adb shell`, which a phone "slow" does not
 * answer. */
static void put_adb(const char *lines)
{
    char text[4096];
    snprintf(text, sizeof text,
             "#!/bin/sh\n# A stand-in for adb: prints what adb prints.\n[ \"$1\" = -L ] && shift 2\n"
             "if [ \"$1\" = devices ]; then printf 'List of devices attached\\n%s\\n'; exit 0; fi\n"
             "case \"$2\" in slow) sleep 60;; R5*) echo SM8650-AC;; *) printf '\\033[31mbad\\001\\n';; esac\n",
             lines);
    put_text("adb", text, true);
    char *path = in_folder("adb");
    setenv("NPUDIFF_ADB", path, 1);
    free(path);
}

static int make_all(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    put_runtime("qairt-2.48.40", "x86_64-linux");
    put_runtime("qairt-2.51.0", "aarch64-android");
    put_runtime("arm-only", "aarch64-linux");
    put_adb("R5CX10ABCDE            device product:e3q model:SM_S928B device:e3q transport_id:1\\n");
    put_text("ssh", "#!/bin/sh\nexit 255\n", true);
    char *runtimes = in_folder("runtimes"), *ssh = in_folder("ssh");
    setenv("NPUDIFF_RUNTIMES", runtimes, 1);
    setenv("NPUDIFF_SSH", ssh, 1);
    free(runtimes);
    free(ssh);
    return 0;
}

/* ---- URIs ---- */

static void remote_uri_is_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        enum nd_transport_kind transport;
        const char *address;
        enum nd_remote_method method;
        const char *rest, *device;
    } known[] = {
        {"adb:", ND_TRANSPORT_ADB, "", ND_REMOTE_AGENT, "", "htp"},
        {"adb:*", ND_TRANSPORT_ADB, "*", ND_REMOTE_AGENT, "", "htp"},
        {"adb:R5", ND_TRANSPORT_ADB, "R5", ND_REMOTE_AGENT, "", "htp"},
        {"adb:R5?vtcm_mb=4", ND_TRANSPORT_ADB, "R5", ND_REMOTE_AGENT, "?vtcm_mb=4", "htp?vtcm_mb=4"},
        {"adb:R5@r1", ND_TRANSPORT_ADB, "R5", ND_REMOTE_AGENT, "@r1", "htp@r1"},
        {"adb:R5/agent", ND_TRANSPORT_ADB, "R5", ND_REMOTE_AGENT, "/agent", "htp"},
        {"adb:R5/agent@r1?a=b/c", ND_TRANSPORT_ADB, "R5", ND_REMOTE_AGENT, "/agent@r1?a=b/c", "htp@r1?a=b/c"},
        {"adb:R5/qnn-net-run", ND_TRANSPORT_ADB, "R5", ND_REMOTE_QNN_NET_RUN, "/qnn-net-run", "htp"},
        {"adb:R5/qnn-net-run/htp:gen3", ND_TRANSPORT_ADB, "R5", ND_REMOTE_QNN_NET_RUN, "/qnn-net-run/htp:gen3",
         "htp:gen3"},
        {"adb:R5/agents", ND_TRANSPORT_ADB, "R5", ND_REMOTE_AGENT, "/agents", "agents"},
        {"adb:localhost:6501/agent/htp-sim:gen3@r?x=y", ND_TRANSPORT_ADB, "localhost:6501", ND_REMOTE_AGENT,
         "/agent/htp-sim:gen3@r?x=y", "htp-sim:gen3@r?x=y"},
        {"adb:/cpu", ND_TRANSPORT_ADB, "", ND_REMOTE_AGENT, "/cpu", "cpu"},
        {"adb:R5@lab7:5037", ND_TRANSPORT_ADB, "R5@lab7:5037", ND_REMOTE_AGENT, "", "htp"},
        {"adb:R5@lab7:5037@r1", ND_TRANSPORT_ADB, "R5@lab7:5037", ND_REMOTE_AGENT, "@r1", "htp@r1"},
        {"adb:R5@r1/htp-sim:gen3", ND_TRANSPORT_ADB, "R5", ND_REMOTE_AGENT, "@r1/htp-sim:gen3",
         "htp@r1/htp-sim:gen3"},
        {"adb:R5@lab7:5037/agent/htp-sim:gen3@r?x=y@z:1", ND_TRANSPORT_ADB, "R5@lab7:5037", ND_REMOTE_AGENT,
         "/agent/htp-sim:gen3@r?x=y@z:1", "htp-sim:gen3@r?x=y@z:1"},
        {"adb:10.0.0.7:5555@[::1]:5037?vtcm_mb=4", ND_TRANSPORT_ADB, "10.0.0.7:5555@[::1]:5037",
         ND_REMOTE_AGENT, "?vtcm_mb=4", "htp?vtcm_mb=4"},
        {"adb:*@lab7:5037/cpu", ND_TRANSPORT_ADB, "*@lab7:5037", ND_REMOTE_AGENT, "/cpu", "cpu"},
        {"adb:@lab7:5037", ND_TRANSPORT_ADB, "@lab7:5037", ND_REMOTE_AGENT, "", "htp"},
        {"adb:R5/cpu@r?x=y@z:1", ND_TRANSPORT_ADB, "R5", ND_REMOTE_AGENT, "/cpu@r?x=y@z:1", "cpu@r?x=y@z:1"},
        {"ssh:root@board", ND_TRANSPORT_SSH, "root@board", ND_REMOTE_AGENT, "", "htp"},
        {"ssh:root@::1/cpu@r2", ND_TRANSPORT_SSH, "root@::1", ND_REMOTE_AGENT, "/cpu@r2", "cpu@r2"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct nd_remote_uri parts;
        struct nd_error err = {0};
        expect_ok(nd_remote_uri_parse(known[i].uri, &parts, &err), &err);
        assert_int_equal(parts.transport, known[i].transport);
        assert_string_equal(parts.address, known[i].address);
        assert_int_equal(parts.method, known[i].method);
        assert_string_equal(parts.rest, known[i].rest);
        assert_string_equal(parts.device, known[i].device);
        nd_remote_uri_deinit(&parts);
    }
    assert_false(nd_uri_is_remote("adbx:1"));
    assert_false(nd_uri_is_remote("adb"));
    assert_false(nd_uri_is_remote("emu:stale@adb:x"));
}

static void remote_device_knows_what_its_uri_says(void **state)
{
    (void)state;
    static const struct {
        const char *uri, *canonical, *label, *address, *chipset, *runtime;
        enum nd_device_kind kind;
        enum nd_remote_method method;
    } known[] = {
        {"adb:R5", "adb:R5/agent/htp", "adb:R5", "R5", NULL, "", ND_DEVICE_HTP, ND_REMOTE_AGENT},
        {"adb:R5@lab7:5037/cpu@qairt-2.51.0", "adb:R5@lab7:5037/agent/cpu@qairt-2.51.0",
         "adb:R5@lab7:5037/cpu@qairt-2.51.0", "R5@lab7:5037", NULL, "qairt-2.51.0", ND_DEVICE_CPU,
         ND_REMOTE_AGENT},
        {"adb:@lab7:5037", "adb:R5CX10ABCDE@lab7:5037/agent/htp", "adb:R5CX10ABCDE@lab7:5037",
         "R5CX10ABCDE@lab7:5037", NULL, "", ND_DEVICE_HTP, ND_REMOTE_AGENT},
        {"adb:", "adb:R5CX10ABCDE/agent/htp", "adb:R5CX10ABCDE", "R5CX10ABCDE", NULL, "", ND_DEVICE_HTP,
         ND_REMOTE_AGENT},
        {"adb:/cpu", "adb:R5CX10ABCDE/agent/cpu", "adb:R5CX10ABCDE/cpu", "R5CX10ABCDE", NULL, "", ND_DEVICE_CPU,
         ND_REMOTE_AGENT},
        {"adb:R5/cpu@qairt-2.51.0?threads=2", "adb:R5/agent/cpu@qairt-2.51.0?threads=2",
         "adb:R5/cpu@qairt-2.51.0?threads=2", "R5", NULL, "qairt-2.51.0", ND_DEVICE_CPU, ND_REMOTE_AGENT},
        {"adb:R5/htp-sim", "adb:R5/agent/htp-sim", "adb:R5/htp-sim", "R5", NULL, "", ND_DEVICE_HTP_SIM,
         ND_REMOTE_AGENT},
        {"adb:localhost:1/agent/htp-sim:gen3", "adb:localhost:1/agent/htp-sim:SM8650",
         "adb:localhost:1/agent/htp-sim:gen3", "localhost:1", "SM8650", "", ND_DEVICE_HTP_SIM, ND_REMOTE_AGENT},
        {"ssh:me@board/qnn-net-run/htp:sm8550@arm-only", "ssh:me@board/qnn-net-run/htp:SM8550@arm-only",
         "ssh:me@board/qnn-net-run/htp:sm8550@arm-only", "me@board", "SM8550", "arm-only", ND_DEVICE_HTP,
         ND_REMOTE_QNN_NET_RUN},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct nd_device device, again;
        struct nd_error err = {0};
        expect_ok(nd_device_parse(known[i].uri, &device, &err), &err);
        assert_string_equal(device.uri, known[i].canonical);
        assert_string_equal(device.label, known[i].label);
        assert_string_equal(device.address, known[i].address);
        assert_string_equal(device.runtime.id, known[i].runtime);
        assert_null(device.runtime.ort_library);
        assert_int_equal(device.kind, known[i].kind);
        assert_int_equal(device.method, known[i].method);
        if (known[i].chipset != NULL)
            assert_string_equal(device.chipset->sm, known[i].chipset);
        else
            assert_null(device.chipset);
        assert_int_equal(device.n_options, 0); /* those of the provider follow from the machine */
        expect_ok(nd_device_parse(device.uri, &again, &err), &err); /* what a capture says can be asked for */
        assert_string_equal(again.uri, device.uri);
        nd_device_deinit(&again);
        nd_device_deinit(&device);
    }
}

static void bad_remote_uri_is_refused_in_clear_words(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        int id;
        const char *message;
    } bad[] = {
        {"adb:R5/", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/' ends with '/'; behind it goes what runs there, such as 'htp' or 'cpu'"},
        {"adb:R5/agent/", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/agent/' ends with '/'; behind it goes what runs there, such as 'htp' or 'cpu'"},
        {"adb:R5/exact", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/exact': references are evaluated on this machine; 'exact' alone is the device"},
        {"adb:R5/float64", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/float64': references are evaluated on this machine; 'float64' alone is the device"},
        {"adb:R5/emu:floor", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/emu:floor': a phone or board runs 'htp[:CHIPSET]', 'cpu' or 'htp-sim[:CHIPSET]', "
         "not "
         "'emu:floor'"},
        {"adb:R5/adb:R6", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/adb:R6': a phone or board runs 'htp[:CHIPSET]', 'cpu' or 'htp-sim[:CHIPSET]', not "
         "'adb:R6'"},
        {"adb:R5/agents", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/agents': a phone or board runs 'htp[:CHIPSET]', 'cpu' or 'htp-sim[:CHIPSET]', not "
         "'agents'"},
        {"adb:R5/htp:", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/htp:': unknown chipset ''; 'npudiff devices' lists all"},
        {"adb:R5/htp-sim:gen9", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/htp-sim:gen9': unknown chipset 'gen9'; 'npudiff devices' lists all"},
        {"adb:R5/qnn-net-run/cpu", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/qnn-net-run/cpu': qnn-net-run runs on 'htp', not on 'cpu', which the agent does"},
        {"adb:R5/cpu@qairt-9", ND_E_RUNTIME_MISSING,
         "there is no runtime 'qairt-9'; 'npudiff runtimes' lists all"},
        {"adb:R5/cpu?threads=none", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5/cpu?threads=none': threads is a number from 1 to 1024, not 'none'"},
        {"adb:R5?soc_model=3", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5?soc_model=3': option 'soc_model' follows from the device itself"},
        {"adb:R 5", ND_E_DEVICE_UNKNOWN, "device 'adb:R 5': a serial holds no blanks"},
        {"adb:-s", ND_E_DEVICE_UNKNOWN, "device 'adb:-s': a serial does not begin with '-'"},
        {"adb:R5*", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5*': '*' stands for all phones, or not at all, in a serial"},
        {"adb:*", ND_E_DEVICE_UNKNOWN, "device 'adb:*' stands for all phones; here one is needed"},
        {"adb:R5@lab7", ND_E_RUNTIME_MISSING,
         "device 'adb:R5@lab7' (an adb server is written with its port: '@HOST:5037'): there is no runtime "
         "'lab7'; "
         "'npudiff runtimes' lists all"},
        {"adb:R5@:5037", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5@:5037': adb's server is written HOST:PORT, with a port from 1 to 65535, such as "
         "'lab7:5037'"},
        {"adb:R5@lab7:0", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5@lab7:0': adb's server is written HOST:PORT, with a port from 1 to 65535, such as "
         "'lab7:5037'"},
        {"adb:R5@lab7:x/cpu", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5@lab7:x/cpu': adb's server is written HOST:PORT, with a port from 1 to 65535, such as "
         "'lab7:5037'"},
        {"adb:R5@-H:1", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R5@-H:1': adb's server is written HOST:PORT, with a port from 1 to 65535, such as "
         "'lab7:5037'"},
        {"adb:R*@lab7:1", ND_E_DEVICE_UNKNOWN,
         "device 'adb:R*@lab7:1': '*' stands for all phones, or not at all, in a serial"},
        {"adb:*@lab7:1", ND_E_DEVICE_UNKNOWN,
         "device 'adb:*@lab7:1' stands for all phones; here one is needed"},
        {"ssh:", ND_E_DEVICE_UNKNOWN, "device 'ssh:': ssh:HOST names one host, as 'ssh' takes it"},
        {"ssh:*", ND_E_DEVICE_UNKNOWN, "device 'ssh:*': ssh:HOST names one host, as 'ssh' takes it"},
        {"ssh:-oProxyCommand=x", ND_E_DEVICE_UNKNOWN,
         "device 'ssh:-oProxyCommand=x': a host does not begin with '-'"},
        {"ssh:/cpu", ND_E_DEVICE_UNKNOWN, "device 'ssh:/cpu': ssh:HOST names one host, as 'ssh' takes it"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct nd_error err = {0};
        struct nd_device device = {.n_threads = 77};
        assert_int_not_equal(nd_device_parse(bad[i].uri, &device, &err), ND_OK);
        assert_int_equal(err.id, bad[i].id);
        assert_string_equal(err.message, bad[i].message);
        assert_int_equal(device.n_threads, 77); /* untouched */
    }
}

static void own_npu_is_refused_where_there_is_none(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_device device;
    if (strcmp(nd_abi_here(), "x86_64-linux") != 0)
        return;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nd_device_parse(i == 0 ? "htp" : "htp:gen3", &device, &err), ND_ERR_USAGE);
        assert_non_null(
            strstr(err.message, "this computer (x86_64-linux) has no Hexagon NPU; 'htp-sim:CHIPSET'"));
    }
}

/* ---- which phone ---- */

static void expect_refusal(const char *uri, int id, const char *message)
{
    struct nd_error err = {0};
    struct nd_device device;
    assert_int_not_equal(nd_device_parse(uri, &device, &err), ND_OK);
    assert_int_equal(err.id, id);
    if (strstr(err.message, message) == NULL)
        fail_msg("'%s' gives: %s", uri, err.message);
}

static void the_only_phone_is_found_or_the_others_are_listed(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_device device;
    put_adb("R6\\tdevice product:x model:Pixel transport_id:2\\nR5\\tunauthorized usb:1-1 transport_id:1\\n");
    expect_ok(nd_device_parse("adb:", &device, &err), &err); /* the only one that can be used */
    assert_string_equal(device.address, "R6");
    nd_device_deinit(&device);
    put_adb("R6\\tdevice\\nR5\\tdevice\\nlocalhost:5\\toffline\\n");
    expect_refusal("adb:", ND_E_DEVICE_UNKNOWN,
                   "device 'adb:': there are several phones: R5, R6, localhost:5 (offline); name one, as in "
                   "'adb:R5', or all with 'adb:*'");
    put_adb("R5\\tunauthorized usb:1-1\\n");
    expect_refusal("adb:", ND_E_DEVICE_UNKNOWN, "no phone can be used: R5 (unauthorized); it is unauthorised");
    put_adb("");
    expect_refusal("adb:", ND_E_DEVICE_UNKNOWN, "device 'adb:': no phone is attached");
    expect_refusal("adb:R5/float64", ND_E_DEVICE_UNKNOWN, "references"); /* found before adb is asked */
    setenv("NPUDIFF_ADB", "/nowhere/adb", 1);
    expect_refusal("adb:R5", ND_E_TRANSPORT_TOOL,
                   "device 'adb:R5' needs adb, and there is no '/nowhere/adb'; install");
    expect_refusal("adb:", ND_E_TRANSPORT_TOOL, "needs adb");
    setenv("NPUDIFF_ADB", "no-such-adb-anywhere", 1);
    expect_refusal("adb:R5", ND_E_TRANSPORT_TOOL, "there is no 'no-such-adb-anywhere'");
    char *ssh = nd_strdup(getenv("NPUDIFF_SSH"));
    setenv("NPUDIFF_SSH", "/nowhere/ssh", 1);
    expect_refusal("ssh:board", ND_E_TRANSPORT_TOOL, "device 'ssh:board' needs ssh");
    setenv("NPUDIFF_SSH", ssh, 1);
    free(ssh);
}

static void star_stands_for_every_phone(void **state)
{
    (void)state;
    struct nd_error err = {0};
    char **uris = NULL;
    size_t n = 0;
    put_adb("R6\\tdevice\\nR5\\tunauthorized\\n10.0.0.7:5555\\toffline\\n");
    expect_ok(nd_device_expand("adb:*/agent/cpu?threads=2", &uris, &n, &err), &err);
    assert_int_equal(n, 3); /* those that cannot be used are not dropped silently */
    assert_string_equal(uris[0], "adb:10.0.0.7:5555/agent/cpu?threads=2");
    assert_string_equal(uris[1], "adb:R5/agent/cpu?threads=2");
    assert_string_equal(uris[2], "adb:R6/agent/cpu?threads=2");
    nd_device_uris_free(uris, n);
    expect_ok(nd_device_expand("adb:*@lab7:5037/cpu", &uris, &n, &err), &err);
    assert_int_equal(n, 3);
    assert_string_equal(uris[1], "adb:R5@lab7:5037/cpu");
    nd_device_uris_free(uris, n);
    static const char *const alone[] = {"adb:R5", "adb:",           "adb:R5@lab7:5037",
                                        "cpu",    "emu:zero@adb:*", "nonsense"};
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++) {
        expect_ok(nd_device_expand(alone[i], &uris, &n, &err), &err);
        assert_int_equal(n, 1);
        assert_string_equal(uris[0], alone[i]);
        nd_device_uris_free(uris, n);
    }
    put_adb("");
    uris = NULL;
    assert_int_equal(nd_device_expand("adb:*", &uris, &n, &err), ND_ERR_USAGE);
    assert_string_equal(err.message, "device 'adb:*': no phone is attached ('adb devices' lists none)");
    setenv("NPUDIFF_ADB", "/nowhere/adb", 1);
    assert_int_equal(nd_device_expand("adb:*", &uris, &n, &err), ND_ERR_IO);
    assert_null(uris);
}

static void phones_are_listed_with_what_they_say(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_phone *phones = NULL;
    size_t n = 0;
    put_adb("slow\\tdevice model:Slow\\nR5\\tdevice product:e3q model:SM_S928B transport_id:1\\n"
            "A1\\tdevice\\nR7\\tno permissions (user in plugdev group?); see [http]\\n");
    uint64_t before = nd_clock_ns();
    expect_ok(nd_phones_list(NULL, true, &phones, &n, &err), &err);
    assert_true((nd_clock_ns() - before) / 1000000000u < 30); /* a phone that hangs is not waited for */
    assert_int_equal(n, 4);
    assert_string_equal(phones[0].serial, "A1");
    assert_string_equal(phones[0].soc, "31mbad"); /* nothing that steers a terminal */
    assert_null(phones[0].chipset);
    assert_string_equal(phones[1].serial, "R5");
    assert_string_equal(phones[1].model, "SM_S928B");
    assert_string_equal(phones[1].soc, "SM8650-AC");
    assert_string_equal(phones[1].chipset->sm, "SM8650");
    assert_null(phones[1].trouble);
    assert_string_equal(phones[2].state, "no permissions");
    assert_non_null(phones[2].trouble);
    assert_string_equal(phones[3].serial, "slow");
    assert_string_equal(phones[3].soc, "");
    assert_null(phones[3].chipset);
    nd_phones_free(phones, n);
}

/* ---- when the machine was asked ---- */

static const char *option(const struct nd_device *device, const char *key)
{
    for (size_t i = 0; i < device->n_options; i++)
        if (strcmp(device->option_keys[i], key) == 0)
            return device->option_values[i];
    return NULL;
}

static enum nd_status resolve(const char *uri, const char *abi, const char *soc, struct nd_device *out,
                              struct nd_error *err)
{
    struct nd_device device;
    expect_ok(nd_device_parse(uri, &device, err), err);
    const struct nd_device_facts device_facts = {.abi = (char *)(uintptr_t)abi,
                                                 .soc = (char *)(uintptr_t)soc,
                                                 .chipset = soc != NULL ? nd_chipset_find(soc) : NULL};
    enum nd_status status = nd_device_resolve(&device, &device_facts, out, err);
    nd_device_deinit(&device);
    return status;
}

static void machine_completes_its_device(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_device device;
    put_adb("");
    expect_ok(resolve("adb:R5?vtcm_mb=4", "aarch64-android", "SM8650-AC", &device, &err), &err);
    assert_string_equal(device.uri, "adb:R5/agent/htp:SM8650@qairt-2.51.0?vtcm_mb=4");
    assert_string_equal(device.label, "adb:R5?vtcm_mb=4");
    assert_string_equal(device.optimisation, "all");
    assert_string_equal(option(&device, "soc_model"), "57");
    assert_string_equal(option(&device, "vtcm_mb"), "4");
    assert_string_equal(option(&device, "offload_graph_io_quantization"), "1");
    char *backend = in_folder("runtimes/qairt-2.51.0.aarch64-android/b.so");
    assert_string_equal(option(&device, "backend_path"), backend);
    free(backend);
    nd_device_deinit(&device);
    /* What the URI says goes before what the machine says, and before what is usual. */
    expect_ok(resolve("adb:R5/htp:sm8550?offload_graph_io_quantization=0", "aarch64-android", "SM8650", &device,
                      &err),
              &err);
    assert_string_equal(device.chipset->sm, "SM8550");
    assert_string_equal(option(&device, "soc_model"), "43");
    assert_string_equal(option(&device, "offload_graph_io_quantization"), "0");
    nd_device_deinit(&device);
    expect_ok(resolve("ssh:board/cpu@arm-only?threads=3", "aarch64-linux", NULL, &device, &err), &err);
    assert_string_equal(device.uri, "ssh:board/agent/cpu@arm-only?threads=3");
    assert_int_equal(device.n_threads, 3);
    assert_int_equal(device.n_options, 0);
    nd_device_deinit(&device);
    expect_ok(resolve("adb:R5/htp-sim", "x86_64-linux", "sm8350", &device, &err), &err);
    assert_string_equal(device.uri, "adb:R5/agent/htp-sim:SM8350@qairt-2.48.40");
    assert_null(option(&device, "enable_htp_fp16_precision"));
    nd_device_deinit(&device);
}

static void machine_that_cannot_run_it_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *uri, *abi, *soc, *message;
        int id;
    } bad[] = {
        {"adb:R5", "x86_64-linux", "SM8650",
         "device 'adb:R5' (x86_64-linux) has no Hexagon NPU; 'adb:R5/htp-sim:CHIPSET' simulates one there",
         ND_E_DEVICE_CONNECT},
        {"adb:R5/htp-sim:gen3", "aarch64-android", "SM8650",
         "device 'adb:R5/htp-sim:gen3' is aarch64-android, and the simulator of the NPU is for x86_64-linux",
         ND_E_DEVICE_CONNECT},
        {"adb:R5", "aarch64-android", "Tensor G3",
         "device 'adb:R5' calls its chipset 'Tensor G3', which is not known; name its chipset, as in "
         "'adb:R5/htp:sm8650'",
         ND_E_DEVICE_CONNECT},
        {"adb:R5", "aarch64-android", NULL,
         "device 'adb:R5' does not say which chipset it has; name its chipset, as in 'adb:R5/htp:sm8650'",
         ND_E_DEVICE_CONNECT},
        {"adb:R5/cpu", NULL, NULL, "device 'adb:R5/cpu' cannot be used: its ABI is ''", ND_E_DEVICE_CONNECT},
        {"adb:R5/cpu@arm-only", "aarch64-android", NULL, "arm-only", ND_E_RUNTIME_MISSING},
    };
    put_adb("");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct nd_error err = {0};
        struct nd_device device = {.n_threads = 77};
        assert_int_not_equal(resolve(bad[i].uri, bad[i].abi, bad[i].soc, &device, &err), ND_OK);
        assert_int_equal(err.id, bad[i].id);
        if (strstr(err.message, bad[i].message) == NULL)
            fail_msg("'%s' gives: %s", bad[i].uri, err.message);
        assert_int_equal(device.n_threads, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remote_uri_is_taken_apart),
        cmocka_unit_test(remote_device_knows_what_its_uri_says),
        cmocka_unit_test(bad_remote_uri_is_refused_in_clear_words),
        cmocka_unit_test(own_npu_is_refused_where_there_is_none),
        cmocka_unit_test(the_only_phone_is_found_or_the_others_are_listed),
        cmocka_unit_test(star_stands_for_every_phone),
        cmocka_unit_test(phones_are_listed_with_what_they_say),
        cmocka_unit_test(machine_completes_its_device),
        cmocka_unit_test(machine_that_cannot_run_it_is_refused),
    };
    return cmocka_run_group_tests(tests, make_all, remove_folder);
}
