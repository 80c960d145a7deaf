/* Options structs of callers that were compiled against an older or a newer header. */
#include "support/main.h"

#include <stdlib.h>
#include <string.h>

#include "npudiff/capture/logs.h"
#include "npudiff/core/error_ids.h"
#include "npudiff/explain/explain.h"
#include "npudiff/improve/align.h"
#include "npudiff/improve/certificate.h"
#include "npudiff/improve/lint.h"
#include "npudiff/improve/promote.h"
#include "npudiff/improve/reduce.h"
#include "npudiff/improve/sweep.h"
#include "npudiff/judge/campaign.h"
#include "npudiff/judge/judge.h"
#include "npudiff/lab/fingerprint.h"
#include "npudiff/record/import.h"
#include "npudiff/record/prepare.h"
#include "npudiff/report/report.h"

/* The bytes of an options struct of some version. */
union options {
    size_t struct_size;
    struct nd_latency_options latency;
    unsigned char bytes[1024];
};

static const double us[] = {1, 2, 3, 4, 5, 6, 7, 8};
enum { N = sizeof us / sizeof *us };

static enum nd_status examine(const union options *options, struct nd_latency *out, struct nd_error *err)
{
    return nd_latency_examine(us, N, &options->latency, out, err);
}

static void options_of_an_older_caller_keep_the_defaults_of_what_they_lack(void **state)
{
    (void)state;
    union options options = {0};
    struct nd_latency out;
    struct nd_error err = {0};
    /* It knows the warm-up alone, and what comes after its struct is not its to set. */
    memset(options.bytes, 0xff, sizeof options.bytes);
    options.struct_size = offsetof(struct nd_latency_options, min_runs);
    options.latency.n_warm_up = 3;
    assert_int_equal(examine(&options, &out, &err), ND_OK);
    assert_int_equal(out.n_warm_up, 3);
    assert_int_equal(out.verdict, ND_LATENCY_TOO_FEW); /* min_runs is the default */
    assert_int_equal(options.struct_size, offsetof(struct nd_latency_options, min_runs));
}

static void options_of_a_newer_caller_are_accepted_while_what_is_new_is_zero(void **state)
{
    (void)state;
    union options options = {0};
    struct nd_latency out;
    struct nd_error err = {0};
    nd_latency_options_init_sized(&options.latency, sizeof(struct nd_latency_options) + 16);
    assert_int_equal(options.struct_size, sizeof(struct nd_latency_options) + 16);
    assert_int_equal(examine(&options, &out, &err), ND_OK);
    options.bytes[sizeof(struct nd_latency_options) + 15] = 1;
    assert_int_equal(examine(&options, &out, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(err.id, ND_E_OPTION_NEWER);
    assert_non_null(strstr(err.message, nd_version()));
    options.bytes[sizeof(struct nd_latency_options) + 15] = 0;
    options.bytes[sizeof(struct nd_latency_options) + 16] = 1; /* not of the struct any more */
    assert_int_equal(examine(&options, &out, &err), ND_OK);
}

static void options_without_a_size_are_refused(void **state)
{
    (void)state;
    union options options = {0};
    struct nd_latency out;
    struct nd_error err = {0};
    for (options.struct_size = 0; options.struct_size < sizeof(size_t); options.struct_size++) {
        assert_int_equal(examine(&options, &out, &err), ND_ERR_USAGE);
        assert_int_equal(err.id, ND_E_OPTION_STRUCT);
    }
}

static void init_writes_no_more_than_the_caller_has(void **state)
{
    (void)state;
    for (size_t n = sizeof(size_t); n <= 512; n++) {
        union options options;
        struct nd_capture_options whole;
        memset(options.bytes, 0xa5, sizeof options.bytes);
        nd_capture_options_init(&whole);
        whole.struct_size = n;
        nd_capture_options_init_sized((struct nd_capture_options *)options.bytes, n);
        for (size_t i = 0; i < sizeof options.bytes; i++) {
            unsigned char wanted = i >= n ? 0xa5 : i < sizeof whole ? ((unsigned char *)&whole)[i] : 0;
            assert_int_equal(options.bytes[i], wanted);
        }
    }
}

/* Every public function that takes a struct with struct_size of its caller, with nothing but these. */
static enum nd_status call(size_t i, const void *o, struct nd_error *err)
{
    char *text = NULL;
    enum nd_exit exit_code;
    size_t n;
    switch (i) {
    case 0:
        return nd_capture_run(NULL, NULL, o, NULL, err);
    case 1:
        return nd_prepare(NULL, NULL, o, NULL, err);
    case 2:
        return nd_reduce(NULL, o, NULL, err);
    case 3:
        return nd_fingerprint_take(NULL, o, &text, err);
    case 4:
        return nd_latency_of_capture(NULL, 0, o, NULL, err);
    case 5:
        return nd_compare_captures(NULL, 0, o, NULL, err);
    case 6:
        return nd_report_text(NULL, o, &text, err);
    case 7:
        return nd_import(o, NULL, err);
    case 8:
        return nd_export_aihub(NULL, NULL, o, &n, err);
    case 9:
        return nd_qualify(NULL, o, NULL, err);
    case 10:
        return nd_golden_add(NULL, NULL, o, NULL, err);
    case 11:
        return nd_runtimes_check(NULL, o, &text, &exit_code, err);
    case 12:
        return nd_runtimes_add(NULL, 0, o, &text, err);
    case 13:
        return nd_explain(NULL, NULL, NULL, 0, o, NULL, err);
    case 14:
        return nd_identify_captures(NULL, NULL, 0, o, NULL, err);
    case 15:
        return nd_log_reader_create(o, NULL, err);
    case 16:
        return nd_capture_verify(NULL, (struct nd_capture_verification *)(uintptr_t)o, err);
    case 17:
        return nd_align(NULL, o, NULL, err);
    case 18:
        return nd_lint_model(o, o, NULL, err);
    case 19:
        return nd_promote(NULL, o, NULL, err);
    case 20:
        return nd_sweep(NULL, o, NULL, err);
    case 21:
        return nd_certificate_verify(NULL, NULL, o, NULL, err);
    case 22:
        return nd_campaign_plan(NULL, NULL, 0, o, NULL, err);
    case 23:
        return nd_campaign_task(NULL, NULL, o, NULL, err);
    }
    return nd_latency_examine(us, N, o, NULL, err);
}
enum { N_CALLS = 25 };

static void every_function_reads_options_of_other_versions_alike(void **state)
{
    (void)state;
    union options options = {0};
    for (size_t i = 0; i < N_CALLS; i++) {
        struct nd_error err = {0};
        memset(options.bytes, 0, sizeof options.bytes);
        assert_int_equal(call(i, &options, &err), ND_ERR_USAGE);
        assert_int_equal(err.id, ND_E_OPTION_STRUCT);
        options.struct_size = sizeof options;
        options.bytes[sizeof options - 1] = 1;
        assert_int_equal(call(i, &options, &err), ND_ERR_UNSUPPORTED);
        assert_int_equal(err.id, ND_E_OPTION_NEWER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_an_older_caller_keep_the_defaults_of_what_they_lack),
        cmocka_unit_test(options_of_a_newer_caller_are_accepted_while_what_is_new_is_zero),
        cmocka_unit_test(options_without_a_size_are_refused),
        cmocka_unit_test(init_writes_no_more_than_the_caller_has),
        cmocka_unit_test(every_function_reads_options_of_other_versions_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
