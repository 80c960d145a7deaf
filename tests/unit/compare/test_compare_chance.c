/* A reference that is right by chance only: captures that agree with it are not the same, they are broken
 * alike. */
#include "support/main.h"

#include "npudiff/report/report.h"
#include "support/assert_text.h"
#include "support/fleet_compare.h"

enum { SAMPLES = FAKE_SAMPLES };

static int64_t labels[FAKE_SAMPLES];

/* The labels are what a test makes them: with shift 0 every sample is right, with 1 none is. */
static void start(struct fleet *f, size_t n, size_t shift)
{
    fleet_start(f, n);
    for (size_t c = 0; c < n; c++) {
        struct nd_capture *capture = f->captures[c];
        capture->probes[0].n_samples = capture->probes[0].n_samples_expected = SAMPLES;
        capture->probes[0].labels = labels;
        capture->tensors[FLEET_LOGITS].is_model_output = false;
        for (size_t s = 0; s < SAMPLES; s++) {
            labels[s] = (int64_t)((s + shift) % FLEET_CLASSES);
            for (size_t k = 0; k < FLEET_CLASSES; k++)
                fleet_set_score(capture, s, k, k == s % FLEET_CLASSES ? 1.0f : 0.0f);
        }
    }
}

static const struct nd_comparison *compare_text(struct fleet *f, char **text)
{
    const struct nd_comparison *c = fleet_compare(f);
    *text = NULL;
    assert_int_equal(nd_report_text(c, NULL, text, NULL), ND_OK);
    assert_non_null(*text);
    return c;
}

static void captures_that_are_never_right_are_not_the_same(void **state)
{
    (void)state;
    struct fleet f;
    char *text;
    start(&f, 2, 1);
    const struct nd_comparison *c = compare_text(&f, &text);
    assert_int_equal(c->top1[0].devices[0].n_correct, 0);
    assert_int_equal(c->verdict, ND_VERDICT_INCONCLUSIVE);
    assert_has(text,
               "\nTHE REFERENCE IS BROKEN: every capture, 'cpu' too, is right no more often than by chance at");
    assert_has(text, "\nverdict: inconclusive (the reference is broken)\n");
    assert_true(strstr(text, "THE REFERENCE") < strstr(text, "\nbit-equal, "));
    free(text);
    f.captures[1]->outputs[0][FLEET_CONV][3] ^= 1; /* a difference stays one */
    c = compare_text(&f, &text);
    assert_int_equal(c->verdict, ND_VERDICT_DIFFERS);
    assert_has(text, "THE REFERENCE IS BROKEN");
    free(text);
    fleet_stop(&f);
}

static void reference_that_is_right_is_not_accused(void **state)
{
    (void)state;
    struct fleet f;
    char *text;
    start(&f, 2, 0);
    assert_int_equal(compare_text(&f, &text)->verdict, ND_VERDICT_SAME);
    assert_has_not(text, "BROKEN");
    free(text);
    for (size_t s = 0; s < SAMPLES; s++) /* the test alone is broken: it differs, the reference is fine */
        fleet_set_score(f.captures[1], s, (s + 2) % FLEET_CLASSES, 2);
    assert_int_equal(compare_text(&f, &text)->verdict, ND_VERDICT_DIFFERS);
    assert_has_not(text, "BROKEN");
    free(text);
    fleet_stop(&f);
}

static void few_samples_and_low_labels_accuse_nobody(void **state)
{
    (void)state;
    struct fleet f;
    char *text;
    start(&f, 2, 1);
    for (size_t c = 0; c < 2; c++)
        f.captures[c]->probes[0].n_samples = f.captures[c]->probes[0].n_samples_expected = 4;
    assert_int_equal(compare_text(&f, &text)->verdict, ND_VERDICT_SAME);
    free(text);
    for (size_t c = 0; c < 2; c++)
        f.captures[c]->probes[0].n_samples = f.captures[c]->probes[0].n_samples_expected = SAMPLES;
    for (size_t s = 0; s < SAMPLES; s++) /* these may be features, of which the first two never win */
        labels[s] = (int64_t)(s % 5 == 0 ? 1 : 0);
    assert_int_equal(compare_text(&f, &text)->verdict, ND_VERDICT_SAME);
    assert_has_not(text, "BROKEN");
    free(text);
    fleet_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_that_are_never_right_are_not_the_same),
        cmocka_unit_test(reference_that_is_right_is_not_accused),
        cmocka_unit_test(few_samples_and_low_labels_accuse_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
