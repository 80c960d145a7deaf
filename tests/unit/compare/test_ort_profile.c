/* The readers of ONNX Runtime's profile and of the provider's CSV: whole files, damaged ones, others' versions.
 */
#include "support/main.h"

#include <stdlib.h>
#include <string.h>

#include "compare/placement/profiles.h"

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed ^ *seed >> 32) * 0x9e3779b97f4a7c15u;
}

static size_t random_below(uint64_t *seed, size_t n)
{
    return (size_t)((next_random(seed) >> 11) % n);
}

/* ND_SEED replays. */
static uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20250711;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

#define RUN                                                                                                    \
    "{\"cat\" : \"Session\",\"dur\" :9,\"name\" :\"SequentialExecutor::Execute\",\"args\" : {}},\n"            \
    "{\"cat\" : \"Session\",\"dur\" :9,\"name\" :\"model_run\",\"args\" : {}}"
#define KERNEL(name, us, provider)                                                                             \
    "{\"args\" : {\"provider\" : \"" provider "\",\"op_name\" : \"x\"},\"name\" :\"" name                      \
    "_kernel_time\",\"dur\" :" #us ",\"cat\" : \"Node\"},\n"

/* Two runs of a CPU kernel, whose name says otherwise, and of a fused one; with what does not count. */
static const char profile_text[] =
    "[\n{\"cat\" : \"Session\",\"dur\" :5,\"ts\" :1,\"name\" :\"session_initialization\",\"args\" : {}},\n"
    "{\"cat\" : \"Node\",\"dur\" :7,\"name\" :\"a_fence_before\",\"args\" : {\"provider\" : \"CPU\"}},\n"
    "{\"cat\" : \"Kernel\",\"dur\" :7,\"name\" :\"a_kernel_time\",\"args\" : {\"provider\" : "
    "\"CPU\"}},\n" KERNEL("QNN{\\\"a", 100, "CPUExecutionProvider")
        KERNEL("fused_1", 900, "QNNExecutionProvider") RUN ",\n" KERNEL("QNN{\\\"a", 10, "CPUExecutionProvider")
            KERNEL("fused_1", 30, "QNNExecutionProvider") RUN
    ",\n" KERNEL("QNN{\\\"a", 12, "CPUExecutionProvider") KERNEL("fused_1", 50, "QNNExecutionProvider") RUN
    "\n]\n";

static enum nd_status read_profile(const char *text, size_t n, struct nd_ort_profile *out, struct nd_error *err)
{
    /* In memory of its own size, so that a sanitizer sees a byte too far. */
    char *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    enum nd_status status = nd_ort_profile_read("profile", copy, n, out, err);
    free(copy);
    return status;
}

static const struct nd_kernel *find(const struct nd_ort_profile *profile, const char *node)
{
    for (size_t i = 0; i < profile->n_kernels; i++)
        if (strcmp(profile->kernels[i].name, node) == 0)
            return &profile->kernels[i];
    return NULL;
}

static void profile_runs_are_summed_by_provider_without_the_first(void **state)
{
    (void)state;
    struct nd_ort_profile profile;
    struct nd_error err = {0};
    assert_int_equal(read_profile(profile_text, sizeof profile_text - 1, &profile, &err), ND_OK);
    assert_int_equal(profile.n_runs, 3);
    assert_int_equal(profile.n_unfinished, 0);
    assert_int_equal(profile.n_kernels, 2);
    const struct nd_kernel *cpu = find(&profile, "QNN{\"a");
    assert_non_null(cpu);
    assert_string_equal(cpu->provider, "CPUExecutionProvider");
    assert_true(cpu->first_us == 100 && cpu->total_us == 22 && cpu->n == 2);
    const struct nd_kernel *npu = find(&profile, "fused_1");
    assert_non_null(npu);
    assert_true(npu->first_us == 900 && npu->total_us == 80);
    assert_string_equal(npu->provider, "QNNExecutionProvider");
    nd_ort_profile_deinit(&profile);
}

static void profile_cut_anywhere_is_an_error_that_names_the_log(void **state)
{
    (void)state;
    size_t whole = sizeof profile_text - 1;
    while (profile_text[whole - 1] != ']')
        whole--;
    for (size_t n = 0; n < whole; n++) {
        struct nd_ort_profile profile;
        struct nd_error err = {0};
        assert_int_equal(read_profile(profile_text, n, &profile, &err), ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_PROFILE_FORMAT);
        assert_non_null(strstr(err.message, "'profile'"));
    }
}

static void profile_with_nonsense_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"{}", "not a JSON array"},
        {"[1]", "event 1: not an object"},
        {"[{\"cat\":\"Node\"}]", "no 'cat' and 'name'"},
        {"[{\"cat\":\"Node\",\"name\":\"a_kernel_time\",\"dur\":1,\"args\":{}}]", "args.provider"},
        {"[{\"cat\":\"Node\",\"name\":\"a_kernel_time\",\"dur\":\"1\",\"args\":{\"provider\":\"C\"}}]",
         "'dur'"},
        {"[{\"cat\":\"Node\",\"name\":\"a_kernel_time\",\"dur\":-1,\"args\":{\"provider\":\"C\"}}]", "'dur'"},
        {"[{\"cat\":\"a\",\"name\":\"b\"} {\"cat\":\"a\",\"name\":\"b\"}]", "comma"},
        {"[] x", "follows the end"},
        {"[{\"cat\" 1}]", "event 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct nd_ort_profile profile;
        struct nd_error err = {0};
        assert_int_equal(read_profile(bad[i].text, strlen(bad[i].text), &profile, &err), ND_ERR_FORMAT);
        assert_non_null(strstr(err.message, bad[i].message));
    }
}

#define HEADER "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier"

static enum nd_status read_csv(const char *text, size_t n, struct nd_qnn_csv *out, struct nd_error *err)
{
    char *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    enum nd_status status = nd_qnn_csv_read("qnn-profile", copy, n, out, err);
    free(copy);
    return status;
}

static const char csv_text[] = HEADER "\r\n"
                                      "UNKNOWN,EXECUTE,10,US,BACKEND,ROOT,QNN (execute) time\r\n"
                                      "5,NODE,7,CYCLES,BACKEND,SUB-EVENT,a,b\"c:OpId_7 (cycles)\n"
                                      "6,NODE,8,CYCLES,HW,SUB-EVENT,a,b\"c:OpId_7 (cycles)\n" HEADER "\n"
                                      "7,BACKEND,1,COUNT,BACKEND,ROOT,NULL\n"
                                      "not a row\n"
                                      "8,WARP,1,PARSECS,BACKEND,ROOT,x\n"
                                      "9,EXECUTE,10,US,BACK";

static void csv_is_split_at_six_commas_and_summed(void **state)
{
    (void)state;
    struct nd_qnn_csv csv;
    struct nd_error err = {0};
    assert_int_equal(read_csv(csv_text, sizeof csv_text - 1, &csv, &err), ND_OK);
    assert_int_equal(csv.n_rows, 5);
    assert_int_equal(csv.n_untimed, 1);
    assert_int_equal(csv.n_malformed, 1);
    assert_int_equal(csv.first_malformed, 7);
    assert_true(csv.is_truncated);
    assert_string_equal(csv.unknown, "message 'WARP', unit 'PARSECS'");
    assert_int_equal(csv.n_events, 4);
    assert_string_equal(csv.events[1].identifier, "a,b\"c:OpId_7 (cycles)");
    assert_true(csv.events[1].n == 2 && csv.events[1].total == 15);
    assert_int_equal(nd_qnn_node_name(csv.events[1].identifier), 5);
    assert_string_equal(csv.events[2].identifier, "");
    assert_int_equal(nd_qnn_node_name("QNN (execute) time"), 0);
    nd_qnn_csv_deinit(&csv);
}

static void csv_of_another_version_says_what_is_unknown(void **state)
{
    (void)state;
    struct nd_qnn_csv csv;
    struct nd_error err = {0};
    static const char newer[] = HEADER ",ONNX Source Ops,Moon Phase\n1,EXECUTE,2,US,BACKEND,ROOT,t,Conv,full\n";
    assert_int_equal(read_csv(newer, sizeof newer - 1, &csv, &err), ND_OK);
    assert_non_null(strstr(csv.unknown, "Moon Phase"));
    assert_string_equal(csv.events[0].identifier, "t,Conv,full");
    nd_qnn_csv_deinit(&csv);
    static const char known[] = HEADER ",ONNX Source Ops\n";
    assert_int_equal(read_csv(known, sizeof known - 1, &csv, &err), ND_OK);
    assert_string_equal(csv.unknown, "");
    nd_qnn_csv_deinit(&csv);
    static const char other[] = "Timestamp,What,Time\n1,EXECUTE,2\n";
    assert_int_equal(read_csv(other, sizeof other - 1, &csv, &err), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'Timestamp,What,Time'"));
    assert_int_equal(read_csv("", 0, &csv, &err), ND_ERR_FORMAT);
}

/* Bytes flipped, cut, doubled and moved: either read or refused, never a crash, and never more than was there.
 */
static void mutated_profiles_are_read_or_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {profile_text, csv_text};
    const size_t sizes[] = {sizeof profile_text - 1, sizeof csv_text - 1};
    uint64_t seed = random_seed();
    char buffer[2 * sizeof profile_text];
    size_t n_read = 0, n_refused = 0;
    for (size_t i = 0; i < 20000; i++) {
        size_t which = i % 2, n = sizes[which];
        memcpy(buffer, texts[which], n);
        for (size_t k = random_below(&seed, 3) + 1; k > 0; k--)
            buffer[random_below(&seed, n)] = random_below(&seed, 2) != 0
                                                 ? "{}[]\",:\\\n\0e9"[random_below(&seed, 12)]
                                                 : (char)random_below(&seed, 256);
        if (random_below(&seed, 4) == 0)
            n = random_below(&seed, n);
        struct nd_ort_profile profile;
        struct nd_qnn_csv csv;
        struct nd_error err = {0};
        enum nd_status status =
            which == 0 ? read_profile(buffer, n, &profile, &err) : read_csv(buffer, n, &csv, &err);
        assert_true(status == ND_OK || status == ND_ERR_FORMAT);
        n_read += status == ND_OK;
        n_refused += status != ND_OK;
        if (status == ND_OK && which == 0)
            nd_ort_profile_deinit(&profile);
        else if (status == ND_OK)
            nd_qnn_csv_deinit(&csv);
    }
    print_message("# %zu read, %zu refused\n", n_read, n_refused);
    assert_true(n_read > 1000 && n_refused > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile_runs_are_summed_by_provider_without_the_first),
        cmocka_unit_test(profile_cut_anywhere_is_an_error_that_names_the_log),
        cmocka_unit_test(profile_with_nonsense_is_refused),
        cmocka_unit_test(csv_is_split_at_six_commas_and_summed),
        cmocka_unit_test(csv_of_another_version_says_what_is_unknown),
        cmocka_unit_test(mutated_profiles_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
