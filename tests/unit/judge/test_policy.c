/* Policies: what they say, what they match, and when they contradict themselves. */
#include <string.h>

#include "support/main.h"

#include "support/assert_text.h"

#include "judge/campaign/policy.h"

static const struct nd_scope_tensor tensors[] = {
    {"stem/conv", true, false, false}, {"pool", true, false, false}, {"logits", false, true, true}};
static char logits[] = "logits";
static struct nd_probe_goal goal = {.output = logits};
static const struct nd_probe with_goal = {.n_goals = 1, .goals = &goal};
static const struct nd_scope_probe probes[] = {{"digits", true, &with_goal}, {"ties", false, NULL}};
static const struct nd_scope_model models[] = {{"cnn", true, 3, 2, tensors, probes},
                                               {"mul", false, 1, 1, tensors, probes}};
static const char *const devices[] = {"cpu", "gen1", "gen3"};
static const struct nd_scope scope = {2, 3, models, devices};

static struct nd_policy policy;
static struct nd_error err;

/* Reads "policy" of the text and checks it against the scope. */
static enum nd_status read_policy(const char *text)
{
    static const struct nd_policy_defaults defaults = {ND_REFERENCE_QUANTISED, 0.01, 0.95, 0.9};
    const yaml_node_t *node = NULL;
    const struct nd_yaml_key key = {"policy", ND_YAML_NODE, 0, 0, 0, true};
    const struct nd_yaml_file file = {"p.yaml", "a campaign", ND_E_CAMPAIGN_FORMAT};
    struct nd_yaml yaml;
    nd_policy_deinit(&policy);
    enum nd_status status = nd_yaml_load(&yaml, &file, text, strlen(text), &err);
    if (status == ND_OK)
        status =
            nd_yaml_map(&yaml, nd_yaml_root(&yaml), &(struct nd_yaml_kind){"a campaign", &key, 1}, &node, &err);
    if (status == ND_OK)
        status = nd_policy_read(&yaml, node, &defaults, &policy, &err);
    nd_yaml_deinit(&yaml);
    return status == ND_OK ? nd_policy_check(&policy, &scope, "p.yaml", &err) : status;
}

static void expect_good(const char *text)
{
    if (read_policy(text) != ND_OK)
        fail_msg("%s", err.message);
}

static void expect_bad(const char *text, const char *part)
{
    assert_int_equal(read_policy(text), ND_ERR_USAGE);
    if (strstr(err.message, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, err.message);
}

#define LOOSE ", reason: r, owner: o, until: 2026-06-30"

static void policy_words_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"bit-equal-to", "bit-equal to quantised"},
        {"lsb, max: 2, tensors: [stem*, pool]", "lsb <= 2 on 'stem*', 'pool'"},
        {"ulp, max: 3, to: cpu", "ulp <= 3 against cpu"},
        {"differing-share, max: 0.25, probes: ties", "differing-share <= 0.25 with 'ties'"},
        {"sqnr, min: 20", "sqnr >= 20 dB"},
        {"agreement, min: 0.99", "agreement >= 0.99"},
        {"accuracy-drop", "accuracy-drop < 0.01 against quantised at 95 %"},
        {"accuracy-drop, reference: float, models: cnn, margin: 0.02",
         "accuracy-drop < 0.02 against float at 95 %"},
        {"target-error, max: 0.25, models: cnn",
         "target-error: mean-error at most 0.25 worse than quantised at 95 %"},
        {"target-error, max: 1, metric: sqnr, reference: float, confidence: 0.99, models: cnn",
         "target-error: sqnr at most 1 dB worse than float at 99 %"},
        {"fallback", "no fallback"},
        {"fallback, allow: [Gelu, 'head/*']", "fallback only of 'Gelu', 'head/*'"},
        {"latency-cv", "latency-cv <= 0.15 (warns above 0.05)"},
        {"latency-cv, fail: 0.02", "latency-cv <= 0.02 (warns above 0.02)"},
        {"finalize", "finalize"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, "policy: [{gate: %s}]", cases[i].text);
        expect_good(text);
        char *words = nd_policy_describe(&policy.rules[0]);
        assert_string_equal(words, cases[i].words);
        free(words);
    }
}

static void policy_that_matches_nothing_is_refused(void **state)
{
    (void)state;
    expect_bad("policy: [{gate: lsb, max: 1, tensors: conv*}]",
               "p.yaml:1:10: gate 'lsb' matches nothing: there is no tensor 'conv*'");
    expect_bad("policy: [{gate: finalize, devices: [cpu, gen9]}]", "there is no device 'gen9'");
    expect_bad("policy: [{gate: finalize, models: [cn?, a]}]", "there is no model 'a'");
    expect_bad("policy: [{gate: bit-equal-to, probes: [digits, zeros]}]", "there is no probe 'zeros'");
    /* Every pattern matches something, but never together. */
    expect_bad("policy: [{gate: lsb, max: 1, tensors: logits}]", "matches nothing");
    expect_bad("policy: [{gate: ulp, max: 1, tensors: pool}]", "matches nothing");
    expect_bad("policy: [{gate: lsb, max: 1, models: mul, tensors: pool}]", "matches nothing");
    expect_bad("policy: [{gate: accuracy-drop, probes: ties}]", "no probe with labels");
    expect_bad("policy: [{gate: target-error, max: 1, probes: ties}]", "no probe with a target");
    expect_bad("policy: [{gate: target-error, max: 1, tensors: pool}]", "no probe with a target");
    expect_bad("policy: [{gate: target-error, max: 1, metric: rmse}]", "'metric' is mean-error or sqnr");
    expect_bad("policy: [{gate: target-error}]", "needs the key 'max'");
    expect_bad("policy: [{gate: target-error, max: 1, margin: 0.1}]", "has no key 'margin'");
    expect_bad("policy: [{gate: lsb, max: 1, metric: sqnr}]", "has no key 'metric'");
    expect_bad("policy: [{gate: bit-equal-to, to: cpu, devices: cpu}]", "matches nothing");
    expect_bad("policy: [{gate: bit-equal-to, to: tpu}]", "unknown reference");
    expect_good("policy: [{gate: accuracy-drop, reference: float, probes: digits, models: cnn}]");
}

static void policy_loosening_needs_its_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second;
        bool is_looser;
    } cases[] = {
        {"lsb, max: 0", "lsb, max: 1", true},
        {"lsb, max: 1", "lsb, max: 1, tensors: pool", false},
        {"lsb, max: 1", "lsb, max: 0, tensors: pool", false},
        {"lsb, max: 0, tensors: pool", "lsb, max: 1, tensors: stem*", false},
        {"lsb, max: 0, devices: cpu", "lsb, max: 1, devices: gen*", false},
        {"lsb, max: 0, devices: gen1", "lsb, max: 1, devices: gen*", true},
        {"lsb, max: 0, probes: ties", "lsb, max: 1, probes: digits", false},
        {"lsb, max: 0, to: cpu", "lsb, max: 1", false},
        {"target-error, max: 1", "target-error, max: 2", true},
        {"target-error, max: 1", "target-error, max: 2, metric: sqnr", false},
        {"target-error, max: 1", "target-error, max: 1, confidence: 0.9", true},
        {"target-error, max: 1", "target-error, max: 0.5", false},
        {"bit-equal-to", "lsb, max: 1", true},
        {"bit-equal-to", "lsb, max: 0", false},
        {"bit-equal-to", "ulp, max: 1", true},
        {"bit-equal-to", "differing-share, max: 0.1", true},
        {"lsb, max: 1", "bit-equal-to", false},
        {"lsb, max: 1", "differing-share, max: 0.1", false},
        {"sqnr, min: 30", "sqnr, min: 20", true},
        {"sqnr, min: 20", "sqnr, min: 30", false},
        {"agreement, min: 1", "agreement, min: 0.5", true},
        {"accuracy-drop, margin: 0.01", "accuracy-drop, margin: 0.02", true},
        {"accuracy-drop, margin: 0.02", "accuracy-drop, margin: 0.01", false},
        {"accuracy-drop, margin: 0.02", "accuracy-drop, margin: 0.01, confidence: 0.9", true},
        {"accuracy-drop", "accuracy-drop, margin: 0.02, reference: float, models: cnn", false},
        {"latency-cv", "latency-cv, fail: 0.3", true},
        {"latency-cv", "latency-cv, warn: 0.1, fail: 0.15", true},
        {"fallback", "fallback, allow: Gelu", true},
        {"fallback, allow: [Gelu, Add]", "fallback, allow: Gelu", false},
        {"finalize", "finalize", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[400];
        snprintf(text, sizeof text, "policy:\n- {gate: %s}\n- {gate: %s}", cases[i].first, cases[i].second);
        if (cases[i].is_looser)
            expect_bad(text, "p.yaml:3:3:");
        else
            expect_good(text);
        snprintf(text, sizeof text, "policy:\n- {gate: %s}\n- {gate: %s" LOOSE "}", cases[i].first,
                 cases[i].second);
        expect_good(text);
    }
}

static void policy_later_looser_gate_takes_over(void **state)
{
    (void)state;
    expect_good("policy:\n- {gate: lsb, max: 0}\n- {gate: lsb, max: 2, devices: gen*" LOOSE "}\n"
                "- {gate: lsb, max: 1, devices: gen3, tensors: pool}\n- {gate: finalize}");
    const struct {
        const char *device;
        size_t tensor;
        bool governs[4];
    } cases[] = {
        {"cpu", 0, {true, false, false, true}},
        {"gen1", 1, {false, true, false, true}},
        /* A stricter one beside a looser one: both hold. */
        {"gen3", 1, {false, true, true, true}},
        {"gen3", 0, {false, true, false, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t r = 0; r < 4; r++) {
            const struct nd_policy_cell cell = {"cnn", cases[i].device, &tensors[cases[i].tensor], &probes[0]};
            assert_int_equal(nd_policy_governs(&policy, r, &cell), cases[i].governs[r]);
        }
}

static void policy_loosening_ends(void **state)
{
    (void)state;
    char today[16];
    expect_good("policy: [{gate: lsb, max: 1" LOOSE "}, {gate: finalize}]");
    assert_false(nd_policy_has_expired(&policy.rules[0], "2026-06-29"));
    assert_false(nd_policy_has_expired(&policy.rules[0], "2026-06-30"));
    assert_true(nd_policy_has_expired(&policy.rules[0], "2026-07-01"));
    assert_false(nd_policy_has_expired(&policy.rules[1], "9999-12-31"));
    setenv("SOURCE_DATE_EPOCH", "1782864000", 1);
    nd_policy_today(today);
    unsetenv("SOURCE_DATE_EPOCH");
    assert_string_equal(today, "2026-07-01");
    expect_bad("policy: [{gate: lsb, max: 1, reason: r, owner: o, until: 2026-02-29}]", "'until' is a date");
    expect_bad("policy: [{gate: lsb, max: 1, reason: r, owner: o, until: tomorrow}]", "'until' is a date");
    expect_bad("policy: [{gate: lsb, max: 1, owner: o, until: 2026-06-30}]", "reason, owner and until");
}

static void policy_keys_without_use_are_refused(void **state)
{
    (void)state;
    expect_bad("policy: [{gate: lsb}]", "needs the key 'max'");
    expect_bad("policy: [{gate: lsb, min: 1, max: 1}]", "has no key 'min'");
    expect_bad("policy: [{gate: lsb, max: 1.5}]", "whole number");
    expect_bad("policy: [{gate: lsb, max: nan}]", "number from 0");
    expect_bad("policy: [{gate: lsb, max: -1}]", "number from 0");
    expect_bad("policy: [{gate: differing-share, max: 1.01}]", "from 0 to 1");
    expect_bad("policy: [{gate: agreement, min: -0.1}]", "from 0 to 1");
    expect_bad("policy: [{gate: lsb, max: 1, reference: float}]", "has no key 'reference'");
    expect_bad("policy: [{gate: finalize, to: cpu}]", "has no key 'to'");
    expect_bad("policy: [{gate: finalize, devices: []}]", "list of at least one");
    expect_bad("policy: [{gate: finalize, devices: {a: b}}]", "list of at least one");
    expect_bad("policy: [finalize]", "a gate is a mapping");
    expect_bad("policy: []", "list of at least one");
    expect_bad("policy: [{gate: finalize, gate: lsb}]", "p.yaml:1:27: there is a second 'gate'");
}

static int free_policy(void **state)
{
    (void)state;
    nd_policy_deinit(&policy);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policy_words_are_told),
        cmocka_unit_test(policy_that_matches_nothing_is_refused),
        cmocka_unit_test(policy_loosening_needs_its_reasons),
        cmocka_unit_test(policy_later_looser_gate_takes_over),
        cmocka_unit_test(policy_loosening_ends),
        cmocka_unit_test(policy_keys_without_use_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, free_policy);
}
