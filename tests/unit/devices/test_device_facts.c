/* What a machine says of itself, in the words that phones and boards use, and in none that make sense. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/processes/process.h"
#include "core/text/strbuf.h"
#include "devices/phones/device_facts.h"
#include "npudiff/devices/device.h"
#include "support/scratch.h"

#define MARKER "mark-7"

/* ---- answers ---- */

static const char phone_properties[] =
    "\n" MARKER " getprop\n"
    "[ro.board.platform]: [pineapple]\n"
    "[ro.build.fingerprint]: [samsung/e3qxeea/e3q:14/UP1A/S928B:user/rel]\r\n"
    "[ro.build.version.release]: [14]\n"
    "[ro.build.version.sdk]: [34]\n"
    "[ro.product.cpu.abi]: [arm64-v8a]\n"
    "[ro.product.device]: [e3q]\n"
    "[ro.product.manufacturer]: [samsung]\n"
    "[ro.product.model]: [SM-S928B]\n"
    "[ro.product.model.extra]: [no]\n"
    "[ro.serialno]: [R5CX10ABCDE]\n"
    "[ro.soc.manufacturer]: [QTI]\n"
    "[ro.soc.model]: [SM8650-AC]\n";

static const char battery[] = "\n" MARKER " battery\n"
                              "Current Battery Service state:\n"
                              "  AC powered: false\n  USB powered: true\n  Wireless powered: false\n"
                              "  Max charging current: 500000\n  status: 2\n  health: 2\n  present: true\n"
                              "  level: 84\n  scale: 100\n  voltage: 4210\n  temperature: 305\n"
                              "  technology: Li-ion\nlevel: 3\n";

static const char thermal[] = "\n" MARKER " thermal\n"
                              "IsStatusOverride: false\nThermal Status: 1\nCached temperatures:\n"
                              "\tTemperature{mValue=90.0, mType=3, mName=old, mStatus=0}\n"
                              "HAL Ready: true\nCurrent temperatures from HAL:\n"
                              "\tTemperature{mValue=45.3, mType=0, mName=CPU0, mStatus=0}\n"
                              "\tTemperature{mValue=51.25, mType=9, mName=NPU, mStatus=0}\n"
                              "\tTemperature{mValue=60.0, mType=8, mName=soc, mStatus=0}\n"
                              "\tTemperature{mValue=-274.0, mType=1, mName=GPU, mStatus=0}\n"
                              "\tTemperature{mValue=NaN, mType=3, mName=skin, mStatus=0}\n"
                              "Current cooling devices from HAL:\n"
                              "\tCoolingDevice{mValue=99, mType=0, mName=fan}\n";

static const struct nd_attr *find(const struct nd_attr_list *facts, const char *key)
{
    const struct nd_attr *found = NULL;
    for (size_t i = 0; i < facts->n; i++) {
        assert_string_equal(facts->attrs[i].group, "device");
        if (strcmp(facts->attrs[i].key, key) == 0) {
            assert_null(found); /* each once */
            found = &facts->attrs[i];
        }
    }
    return found;
}

static void expect_text(const struct nd_attr_list *facts, const char *key, const char *expected)
{
    const struct nd_attr *attr = find(facts, key);
    if (expected == NULL) {
        if (attr != NULL)
            fail_msg("'%s' is there", key);
        return;
    }
    if (attr == NULL)
        fail_msg("'%s' is not there", key);
    assert_int_equal(attr->type, ND_ATTR_STRING);
    assert_string_equal(attr->string, expected);
}

static void expect_number(const struct nd_attr_list *facts, const char *key, int64_t expected)
{
    const struct nd_attr *attr = find(facts, key);
    if (attr == NULL)
        fail_msg("'%s' is not there", key);
    assert_int_equal(attr->type, ND_ATTR_I64);
    assert_int_equal(attr->i64, expected);
}

static void expect_real(const struct nd_attr_list *facts, const char *key, double expected)
{
    const struct nd_attr *attr = find(facts, key);
    if (attr == NULL)
        fail_msg("'%s' is not there", key);
    assert_int_equal(attr->type, ND_ATTR_F64);
    assert_f64_bits(attr->f64, expected);
}

static struct nd_device_facts parse(const char *answer, size_t n)
{
    struct nd_device_facts device_facts;
    struct nd_error err = {0};
    expect_ok(nd_device_facts_parse(MARKER, answer, n, &device_facts, &err), &err);
    return device_facts;
}

static struct nd_device_facts parse_text(const char *const *parts)
{
    struct nd_strbuf text = {0};
    for (; *parts != NULL; parts++)
        nd_strbuf_puts(&text, *parts);
    char *answer = nd_strbuf_take(&text);
    assert_non_null(answer);
    struct nd_device_facts device_facts = parse(answer, strlen(answer));
    free(answer);
    return device_facts;
}

/* ---- machines ---- */

static void phone_is_known_by_its_properties(void **state)
{
    (void)state;
    const char *const parts[] = {phone_properties,
                                 "\n" MARKER " uname\nLinux\n6.1.57-android14\naarch64\n",
                                 "\n" MARKER " linker\nandroid\n",
                                 "\n" MARKER " clock\n1767225600\n",
                                 "\n" MARKER " soc\nnot asked\n",
                                 battery,
                                 thermal,
                                 "\n" MARKER " end\n",
                                 NULL};
    struct nd_device_facts device_facts = parse_text(parts);
    const struct nd_attr_list *facts = &device_facts.facts, *warmth = &device_facts.warmth;
    assert_string_equal(device_facts.abi, "aarch64-android");
    assert_true(device_facts.is_android);
    assert_string_equal(device_facts.soc, "SM8650-AC");
    assert_string_equal(device_facts.chipset->sm, "SM8650");
    assert_int_equal(device_facts.clock_s, 1767225600);
    expect_text(facts, "phone", "samsung SM-S928B");
    expect_text(facts, "phone_device", "e3q");
    expect_text(facts, "phone_platform", "pineapple");
    expect_text(facts, "android_release", "14");
    expect_text(facts, "android_sdk", "34");
    expect_text(facts, "firmware", "samsung/e3qxeea/e3q:14/UP1A/S928B:user/rel");
    expect_text(facts, "firmware_source", "getprop ro.build.fingerprint");
    expect_text(facts, "serial", "R5CX10ABCDE");
    expect_text(facts, "serial_source", "getprop ro.serialno");
    expect_text(facts, "machine_soc", "SM8650-AC");
    expect_text(facts, "machine_soc_source", "getprop ro.soc.model");
    expect_text(facts, "machine_soc_manufacturer", "QTI");
    expect_text(facts, "machine_chipset", "SM8650");
    expect_text(facts, "machine_abi", "aarch64-android");
    expect_text(facts, "machine_kernel", "6.1.57-android14");
    expect_text(facts, "machine_architecture", "aarch64");
    expect_text(facts, "board", NULL);
    expect_number(warmth, "battery_before_percent", 84);
    expect_real(warmth, "battery_before_celsius", 30.5);
    expect_text(warmth, "battery_before_state", "charging");
    expect_text(warmth, "battery_before_power", "usb");
    expect_text(warmth, "battery_before_source", "dumpsys battery");
    expect_number(warmth, "thermal_before_throttling", 1);
    expect_real(warmth, "thermal_before_celsius", 51.25);
    expect_text(warmth, "thermal_before_sensor", "NPU");
    expect_text(warmth, "thermal_before_sensors", "CPU0=45.3 NPU=51.2");
    expect_text(warmth, "thermal_before_source", "dumpsys thermalservice");
    nd_device_facts_deinit(&device_facts);
    nd_device_facts_deinit(&device_facts); /* the zeroed is accepted */
}

static void board_is_known_by_its_files(void **state)
{
    (void)state;
    const char *const parts[] = {"\n" MARKER " getprop\n",
                                 "\n" MARKER " uname\nLinux\n6.6.0\naarch64\n",
                                 "\n" MARKER " linker\n\n" MARKER " clock\n12x\n",
                                 "\n" MARKER " os\nNAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
                                 "\n" MARKER " soc\nQCS8550\n",
                                 "\n" MARKER " board\nQualcomm Technologies, Inc. RB5",
                                 "\n" MARKER " battery\n\n" MARKER " thermal\n",
                                 "\n" MARKER " supplies\n- - ac -\n77 312 BAT0 Not charging\n12 1 BAT1 Full\n",
                                 "\n" MARKER " zones\n41000 cpu0-thermal\n- -\n-274000 gpu\n55500 nsp 0\nx y\n",
                                 "\n" MARKER " end\n",
                                 NULL};
    struct nd_device_facts device_facts = parse_text(parts);
    const struct nd_attr_list *facts = &device_facts.facts, *warmth = &device_facts.warmth;
    assert_string_equal(device_facts.abi, "aarch64-linux");
    assert_int_equal(device_facts.clock_s, 0);
    assert_string_equal(device_facts.chipset->sm, "QCS8550");
    expect_text(facts, "machine_soc_source", "/sys/devices/soc0/machine");
    expect_text(facts, "board", "Qualcomm Technologies, Inc. RB5");
    expect_text(facts, "board_source", "/proc/device-tree/model");
    expect_text(facts, "firmware", "Debian GNU/Linux 12 (bookworm)");
    expect_text(facts, "firmware_source", "/etc/os-release");
    expect_text(facts, "phone", NULL);
    expect_text(facts, "serial", NULL);
    expect_number(warmth, "battery_before_percent", 77);
    expect_real(warmth, "battery_before_celsius", 31.2);
    expect_text(warmth, "battery_before_state", "Not charging");
    expect_text(warmth, "battery_before_source", "/sys/class/power_supply/BAT0");
    expect_real(warmth, "thermal_before_celsius", 55.5);
    expect_text(warmth, "thermal_before_sensor", "nsp 0");
    expect_text(warmth, "thermal_before_source", "/sys/class/thermal");
    nd_device_facts_deinit(&device_facts);
}

static void unknown_stays_unknown(void **state)
{
    (void)state;
    static const char *const answers[] = {"",
                                          "\n",
                                          "sh: getprop: not found\n",
                                          MARKER,
                                          "\n" MARKER " getprop",
                                          "\n" MARKER " uname\n\n\n\n" MARKER " soc\n\n" MARKER
                                          " battery\nCan't find service: battery\n",
                                          "\n" MARKER " uname\nLinux\n5.4\nriscv64\n",
                                          "\n" MARKER " battery\nlevel: -1\nlevel: 9000000000\n"};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct nd_device_facts device_facts = parse(answers[i], strlen(answers[i]));
        assert_null(device_facts.abi);
        assert_null(device_facts.chipset);
        assert_null(device_facts.soc);
        assert_int_equal(device_facts.warmth.n, 0);
        expect_text(&device_facts.facts, "machine_soc", NULL);
        expect_text(&device_facts.facts, "machine_chipset", NULL);
        expect_text(&device_facts.facts, "phone", NULL);
        nd_device_facts_deinit(&device_facts);
    }
    const char *const strange[] = {"\n" MARKER " getprop\n[ro.soc.model]: [Tensor G3]\n"
                                   "[ro.product.cpu.abi]: [armeabi-v7a]\n[ro.product.model]: [Pixel 8]\n",
                                   "\n" MARKER " uname\nLinux\n5.15\naarch64\n", NULL};
    struct nd_device_facts device_facts = parse_text(strange);
    assert_null(device_facts.abi); /* a 64-bit kernel under programs of 32 bits */
    assert_string_equal(device_facts.soc, "Tensor G3");
    assert_null(device_facts.chipset);
    expect_text(&device_facts.facts, "phone", "Pixel 8");
    nd_device_facts_deinit(&device_facts);
}

static void abi_is_told_by_what_runs_programs(void **state)
{
    (void)state;
    static const struct {
        const char *properties, *linker, *machine, *abi;
    } known[] = {
        {"", "", "x86_64", "x86_64-linux"},
        {"", "", "aarch64", "aarch64-linux"},
        {"[ro.product.cpu.abi]: [arm64-v8a]\n", "android\n", "aarch64", "aarch64-android"},
        {"[ro.product.cpu.abi]: [arm64-v8a]\n", "", "x86_64", "aarch64-linux"},
        {"[ro.product.cpu.abi]: [x86_64]\n", "", "x86_64", "x86_64-linux"},
        {"[ro.product.cpu.abi]: [x86_64]\n", "android\n", "x86_64", NULL},
        {"", "android\n", "aarch64", "aarch64-android"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char uname[128];
        snprintf(uname, sizeof uname, "\n" MARKER " uname\nLinux\n1\n%s\n", known[i].machine);
        const char *const parts[] = {"\n" MARKER " getprop\n",
                                     known[i].properties,
                                     "\n" MARKER " linker\n",
                                     known[i].linker,
                                     uname,
                                     NULL};
        struct nd_device_facts device_facts = parse_text(parts);
        if (known[i].abi == NULL)
            assert_null(device_facts.abi);
        else
            assert_string_equal(device_facts.abi, known[i].abi);
        nd_device_facts_deinit(&device_facts);
    }
}

static void after_a_run_comes_what_was_logged(void **state)
{
    (void)state;
    struct nd_error err = {0};
    const char *const before[] = {phone_properties, battery, NULL};
    struct nd_device_facts device_facts = parse_text(before);
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, battery);
    nd_strbuf_puts(&text,
                   "\n" MARKER " logcat\n01-01 00:00:01.000  12  13 E QnnDsp: Failed\n\n" MARKER " end\n");
    char *answer = nd_strbuf_take(&text);
    expect_ok(nd_device_facts_parse_after(MARKER, answer, strlen(answer), &device_facts, &err), &err);
    expect_number(&device_facts.warmth, "battery_before_percent", 84);
    expect_number(&device_facts.warmth, "battery_after_percent", 84);
    assert_string_equal(device_facts.logcat, "01-01 00:00:01.000  12  13 E QnnDsp: Failed\n");
    assert_int_equal(device_facts.logcat_bytes, strlen(device_facts.logcat));
    nd_device_facts_deinit(&device_facts);
    free(answer);
    device_facts = parse("", 0);
    static const char empty[] = "\n" MARKER " logcat\n\n" MARKER " end";
    expect_ok(nd_device_facts_parse_after(MARKER, empty, strlen(empty), &device_facts, &err), &err);
    assert_null(device_facts.logcat); /* an empty log is none */
    nd_device_facts_deinit(&device_facts);
}

/* ---- whatever a device prints ---- */

static void expect_clean(const struct nd_attr_list *facts)
{
    for (size_t i = 0; i < facts->n; i++) {
        if (facts->attrs[i].type != ND_ATTR_STRING)
            continue;
        const char *text = facts->attrs[i].string;
        struct nd_text_piece piece = {text, strlen(text)};
        char *again = nd_piece_copy(piece, 100000);
        assert_string_equal(again, text); /* what is clean stays as it is */
        assert_true(strlen(text) <= 2000);
        for (; *text != '\0'; text++)
            assert_false((unsigned char)*text < 0x20 || *text == 0x7f);
        free(again);
    }
}

static void texts_are_cleaned(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *clean;
    } known[] = {
        {"  plain \t", "plain"},
        {"Galaxy S24 \xc3\x9cltra", "Galaxy S24 \xc3\x9cltra"},
        {"\xe5\xb0\x8f\xe7\xb1\xb3", "\xe5\xb0\x8f\xe7\xb1\xb3"},
        {"\xf0\x9f\x93\xb1", "\xf0\x9f\x93\xb1"},
        {"a\x1b[31mb\x7f\x01", "a [31mb"},
        {"\xff\xc3", "??"},
        {"\xc0\xaf", "??"},           /* overlong */
        {"\xed\xa0\x80", "???"},      /* a surrogate */
        {"\xf4\x90\x80\x80", "????"}, /* beyond Unicode */
        {"\xc2\x9b"
         "31m",
         "31m"}, /* a control of two bytes */
        {"", ""},
        {" \r\n", ""},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char *clean = nd_piece_copy((struct nd_text_piece){known[i].bytes, strlen(known[i].bytes)}, 256);
        assert_string_equal(clean, known[i].clean);
        free(clean);
    }
    char *cut = nd_piece_copy((struct nd_text_piece){"ab\xc3\x9c", 4}, 3);
    assert_string_equal(cut, "ab"); /* not within a character */
    free(cut);
}

static void endless_properties_do_no_harm(void **state)
{
    (void)state;
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "\n" MARKER " getprop\n[ro.product.model]: [");
    for (size_t i = 0; i < 1000000; i++)
        nd_strbuf_puts(&text, "endless \x1b[");
    size_t n = text.len;
    char *answer = nd_strbuf_take(&text);
    struct nd_device_facts device_facts = parse(answer, n);
    const struct nd_attr *phone = find(&device_facts.facts, "phone");
    assert_non_null(phone);
    assert_true(strlen(phone->string) <= 256 && strlen(phone->string) > 200);
    expect_clean(&device_facts.facts);
    nd_device_facts_deinit(&device_facts);
    free(answer);
}

/* Whole answers with bytes changed, cut, doubled and taken out, and plain noise. */
static void noise_is_read_without_harm(void **state)
{
    (void)state;
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, phone_properties);
    nd_strbuf_puts(&text, "\n" MARKER " uname\nLinux\n6\naarch64\n");
    nd_strbuf_puts(&text, battery);
    nd_strbuf_puts(&text, thermal);
    nd_strbuf_puts(&text, "\n" MARKER " supplies\n1 2 BAT Full\n\n" MARKER " zones\n1 z\n\n" MARKER " end\n");
    size_t whole = text.len;
    char *good = nd_strbuf_take(&text), *bad = malloc(whole);
    assert_non_null(bad);
    uint64_t seed = 0x9e3779b97f4a7c15u;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t round = 0; round < 4000; round++) {
        memcpy(bad, good, whole);
        size_t n = whole;
        for (size_t k = 0; k < 1 + round % 40; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(seed >> 33) % whole;
            bad[at] = (char)(seed >> 25);
            if (k == 0 && round % 3 == 0)
                n = at;
        }
        char *exact = malloc(n > 0 ? n : 1); /* so that reading past the end is seen */
        assert_non_null(exact);
        memcpy(exact, bad, n);
        struct nd_error err = {0};
        struct nd_device_facts device_facts = parse(exact, n);
        expect_ok(nd_device_facts_parse_after(MARKER, exact, n, &device_facts, &err), &err);
        expect_clean(&device_facts.facts);
        expect_clean(&device_facts.warmth);
        nd_device_facts_deinit(&device_facts);
        free(exact);
    }
    free(bad);
    free(good);
}

/* ---- the questions ---- */

static char *ask(const char *question, size_t *n)
{
    const char *const argv[] = {"sh", "-c", question, NULL};
    const struct nd_process process = {.argv = argv, .time_limit_s = 60};
    struct nd_process_end end;
    struct nd_error err = {0};
    expect_ok(nd_process_run(&process, &end, &err), &err);
    assert_int_equal(end.exit_code, 0);
    assert_false(end.timed_out);
    char *out = end.out;
    *n = end.out_bytes;
    free(end.errors);
    return out;
}

/* This machine answers like any other: what it says of itself is what uname says. */
static void questions_are_answered_by_a_shell(void **state)
{
    (void)state;
    struct nd_error err = {0};
    size_t n;
    char *question = nd_device_facts_question(MARKER),
         *after = nd_device_facts_question_after(MARKER, 1700000000);
    assert_null(strchr(question, '\n'));
    assert_null(strchr(after, '\n'));
    char *answer = ask(question, &n);
    struct nd_device_facts device_facts = parse(answer, n);
    expect_text(&device_facts.facts, "machine_system", "Linux");
    assert_true(device_facts.clock_s > 1700000000);
    assert_non_null(device_facts.abi);
    assert_non_null(strstr(answer, MARKER " end"));
    free(answer);
    answer = ask(after, &n);
    expect_ok(nd_device_facts_parse_after(MARKER, answer, n, &device_facts, &err), &err);
    assert_non_null(strstr(answer, MARKER " end"));
    free(answer);
    nd_device_facts_deinit(&device_facts);
    free(question);
    free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phone_is_known_by_its_properties),
        cmocka_unit_test(board_is_known_by_its_files),
        cmocka_unit_test(unknown_stays_unknown),
        cmocka_unit_test(abi_is_told_by_what_runs_programs),
        cmocka_unit_test(after_a_run_comes_what_was_logged),
        cmocka_unit_test(texts_are_cleaned),
        cmocka_unit_test(endless_properties_do_no_harm),
        cmocka_unit_test(noise_is_read_without_harm),
        cmocka_unit_test(questions_are_answered_by_a_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
