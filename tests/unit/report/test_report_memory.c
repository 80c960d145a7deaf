/* Reports for which memory ends: each allocation fails once, and then there is no text, or it is whole. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npudiff/report/report.h"

static size_t fails_at, n_made; /* counted from 1; 0: none fails */

#if defined __GLIBC__ && !ND_HAS_SANITIZER /* which have an allocator of their own */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static bool must_fail(void)
{
    return fails_at > 0 && ++n_made == fails_at;
}

void *malloc(size_t size)
{
    return must_fail() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size)
{
    return must_fail() ? NULL : __libc_realloc(memory, size);
}
#endif

typedef enum nd_status report(const void *of, char **out, struct nd_error *err);

static void check_each(report *make, const void *of)
{
    struct nd_error err;
    char *whole = NULL, *text = NULL;
    assert_int_equal(make(of, &whole, &err), ND_OK);
    for (size_t at = 1;; at++) {
        fails_at = at;
        n_made = 0;
        enum nd_status status = make(of, &text, &err);
        bool was_last = n_made < at;
        fails_at = 0;
        if (status == ND_OK)
            assert_string_equal(text, whole);
        else
            assert_int_equal(status, ND_ERR_MEMORY);
        free(text);
        text = NULL;
        if (was_last)
            break;
    }
    free(whole);
}

/* ---- a sweep ---- */

static enum nd_status sweep_brief(const void *of, char **out, struct nd_error *err)
{
    return nd_report_sweep_brief(of, 80, out, err);
}

static enum nd_status sweep_text(const void *of, char **out, struct nd_error *err)
{
    return nd_report_sweep_text(of, 80, out, err);
}

static enum nd_status sweep_json(const void *of, char **out, struct nd_error *err)
{
    return nd_report_sweep_json(of, out, err);
}

static void test_sweep(void **state)
{
    (void)state;
    struct nd_sweep_setting settings[] = {
        {.uri = (char *)"cpu", .n_tensors = 8, .sqnr_db = 31.5, .median_us = 120},
        {.option = (char *)"threads",
         .value = (char *)"2",
         .uri = (char *)"cpu?threads=2",
         .n_tensors = 8,
         .n_different = 2,
         .first = (char *)"conv1",
         .output_share = 0.25,
         .sqnr_db = 31,
         .median_us = 80},
        {.option = (char *)"threads",
         .value = (char *)"3",
         .uri = (char *)"cpu?threads=3",
         .failure = (char *)"the agent died"},
    };
    const struct nd_sweep sweep = {.struct_size = sizeof sweep,
                                   .model = (char *)"m.onnx",
                                   .device = (char *)"cpu",
                                   .environment = (char *)"",
                                   .n_samples = 4,
                                   .n_settings = 3,
                                   .settings = settings,
                                   .n_changing = 1,
                                   .n_failed = 1};
    check_each(sweep_brief, &sweep);
    check_each(sweep_text, &sweep);
    check_each(sweep_json, &sweep);
}

/* ---- an alignment ---- */

static enum nd_status alignment_text(const void *of, char **out, struct nd_error *err)
{
    return nd_report_alignment_text(of, out, err);
}

static enum nd_status alignment_json(const void *of, char **out, struct nd_error *err)
{
    return nd_report_alignment_json(of, out, err);
}

static void test_alignment(void **state)
{
    (void)state;
    char *arithmetics[] = {(char *)"htp-v69", (char *)"htp-v73"};
    struct nd_alignment_layer layers[] = {
        {.name = (char *)"a",
         .op_types = (char *)"Conv",
         .is_product = true,
         .is_planned = true,
         .exponent = 5,
         .output_factor = 1.2,
         .weight_factor = 1,
         .n_channels = 3,
         .n_sums = 1000},
        {.name = (char *)"b",
         .op_types = (char *)"Gemm",
         .state = ND_ALIGN_DIFFERS,
         .reason = "it differs",
         .is_product = true,
         .n_channels = 4,
         .n_unequal = 1,
         .against = 1,
         .sum = 12,
         .values = {3, 4}},
        {.name = (char *)"c", .op_types = (char *)"Softmax", .state = ND_ALIGN_UNKNOWN, .reason = "no proof"},
    };
    struct nd_alignment_output outputs[] = {
        {.name = (char *)"y", .sqnr_before_db = 30, .sqnr_after_db = 29, .loss_db = 1}};
    const struct nd_alignment alignment = {.struct_size = sizeof alignment,
                                           .model = (char *)"m.onnx",
                                           .output = (char *)"x.onnx",
                                           .n_arithmetics = 2,
                                           .arithmetics = arithmetics,
                                           .n_layers = 3,
                                           .layers = layers,
                                           .n_proven = 1,
                                           .n_unknown = 1,
                                           .n_differ = 1,
                                           .n_products = 2,
                                           .n_planned = 1,
                                           .n_outputs = 1,
                                           .outputs = outputs,
                                           .n_samples = 4,
                                           .budget_db = (double)NAN};
    check_each(alignment_text, &alignment);
    check_each(alignment_json, &alignment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sweep), cmocka_unit_test(test_alignment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
