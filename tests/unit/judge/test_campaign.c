/* Campaign files: what is read from them, and where what they hold is looked for. */
#include <string.h>

#include "support/main.h"

#include "support/scratch.h"

#include "core/files/file.h"
#include "judge/campaign/policy.h"

static struct nd_campaign campaign;
static struct nd_error err;

static enum nd_status read_text(const char *text, size_t n_bytes, bool without_policy)
{
    char *path = in_folder("c.yaml");
    assert_int_equal(nd_file_put(path, text, n_bytes, NULL), ND_OK);
    nd_campaign_deinit(&campaign);
    enum nd_status status = nd_campaign_read(path, without_policy, &campaign, &err);
    free(path);
    return status;
}

static enum nd_status read_campaign(const char *text)
{
    return read_text(text, strlen(text), false);
}

static void expect_bad(const char *text, const char *part)
{
    assert_int_equal(read_campaign(text), ND_ERR_USAGE);
    if (strstr(err.message, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, err.message);
    assert_null(campaign.models);
}

#define MODEL "models: [{quantised: m.onnx, probes: zeros}]\n"
#define POLICY "policy: [{gate: finalize}]\n"

static void campaign_without_words_has_defaults(void **state)
{
    (void)state;
    expect_ok(read_campaign(MODEL "devices: [cpu]\n" POLICY), &err);
    assert_string_equal(campaign.name, "c");
    assert_string_equal(campaign.tensors, "all");
    assert_string_equal(campaign.reference, "quantised");
    assert_null(campaign.output);
    assert_false(campaign.explain);
    assert_int_equal(campaign.n_repeats, 0); /* once, and a few samples again */
    assert_true(campaign.margin == 0.01 && campaign.confidence == 0.95 && campaign.power == 0.9);
    assert_string_equal(campaign.models[0].name, "m");
    assert_string_equal(campaign.policy.rules[0].to, "quantised");
}

/* As files for version 0.1 have them, in the campaign and in gates; but not beside the new name. */
static void old_name_of_tensors_is_read(void **state)
{
    (void)state;
    expect_ok(
        read_campaign(MODEL "devices: [cpu]\nedges: outputs\npolicy: [{gate: lsb, max: 1, tensors: [a, b]}]\n"),
        &err);
    assert_string_equal(campaign.tensors, "outputs");
    assert_int_equal(campaign.policy.rules[0].tensors.n, 2);
    expect_bad(MODEL "devices: [cpu]\nedges: all\ntensors: all\n" POLICY,
               "c.yaml:4:1: 'tensors' and 'edges' are one key");
    expect_bad(MODEL "devices: [cpu]\ntensors: all\nedges: all\n" POLICY,
               "c.yaml:4:1: 'tensors' and 'edges' are one key");
    expect_bad(MODEL "devices: [cpu]\nedges: all\nedges: all\n" POLICY, "there is a second 'edges'");
    expect_bad(MODEL "devices: [cpu]\nedge: all\n" POLICY, "nearest: 'tensors'");
}

static void campaign_paths_are_relative_to_it(void **state)
{
    (void)state;
    char expected[600];
    expect_ok(read_campaign("models:\n- {name: a, quantised: q.onnx, float: /abs/f.onnx, probes: [ties:8, "
                            "'d=x.npz,labels=l.npy', 'e=/abs/y.npz']}\n"
                            "devices: ['emu:p.yaml', 'emu:floor', {device: cpu, prepared: {a: ctx.onnx}}]\n"
                            "output: out\n" POLICY),
              &err);
    const struct nd_campaign_model *model = &campaign.models[0];
    snprintf(expected, sizeof expected, "%s/q.onnx", folder);
    assert_string_equal(model->quantised, expected);
    assert_string_equal(model->float_model, "/abs/f.onnx");
    assert_string_equal(model->probes.items[0], "ties:8");
    snprintf(expected, sizeof expected, "d=%s/x.npz,labels=%s/l.npy", folder, folder);
    assert_string_equal(model->probes.items[1], expected);
    assert_string_equal(model->probes.items[2], "e=/abs/y.npz");
    snprintf(expected, sizeof expected, "emu:%s/p.yaml", folder);
    assert_string_equal(campaign.devices[0].uri, expected);
    assert_string_equal(campaign.devices[1].uri, "emu:floor");
    snprintf(expected, sizeof expected, "%s/ctx.onnx", folder);
    assert_string_equal(campaign.devices[2].prepared[0].path, expected);
    snprintf(expected, sizeof expected, "%s/out", folder);
    assert_string_equal(campaign.output, expected);
}

static void campaign_devices_are_all_combinations(void **state)
{
    (void)state;
    static const char *const uris[] = {
        "exact",
        "cpu@r1",
        "cpu@r1?threads=2",
        "cpu@r2",
        "cpu@r2?threads=2",
        "htp-sim:gen3@r1",
        "htp-sim:gen3@r1?threads=2",
        "htp-sim:gen3@r2",
        "htp-sim:gen3@r2?threads=2",
        "htp-sim:gen1",
    };
    expect_ok(read_campaign(MODEL "devices:\n- exact\n- chipsets: [cpu, gen3]\n  runtimes: [r1, r2]\n"
                                  "  options: [none, threads=2]\n- chipsets: gen1\n" POLICY),
              &err);
    assert_int_equal(campaign.n_devices, sizeof uris / sizeof uris[0]);
    for (size_t i = 0; i < campaign.n_devices; i++)
        assert_string_equal(campaign.devices[i].uri, uris[i]);
}

static void campaign_that_is_wrong_is_refused(void **state)
{
    (void)state;
    expect_bad("", "a campaign is a mapping");
    expect_bad("a: [", "c.yaml:");
    expect_bad(MODEL "devices: [cpu]\n", "needs the key 'policy'");
    expect_bad(MODEL POLICY, "needs the key 'devices'");
    expect_bad("devices: [cpu]\n" POLICY, "needs the key 'models'");
    expect_bad("models: [{quantised: m.onnx}]\ndevices: [cpu]\n" POLICY,
               "c.yaml:1:10: a model needs the key 'probes'");
    expect_bad("models: [{quantised: m.onnx, probes: []}]\ndevices: [cpu]\n" POLICY, "list of at least one");
    expect_bad("models: [{quantised: [m], probes: a}]\ndevices: [cpu]\n" POLICY, "'quantised' is a text");
    expect_bad(
        "models: [{quantised: a/m.onnx, probes: a}, {quantised: m.onnx, probes: a}]\ndevices: [cpu]\n" POLICY,
        "a second model 'm'");
    expect_bad("models: [{name: ., quantised: m.onnx, probes: a}]\ndevices: [cpu]\n" POLICY,
               "that of a folder");
    expect_bad(MODEL "devices: [cpu, cpu]\n" POLICY, "c.yaml:2:16: there is a second device 'cpu'");
    expect_bad(MODEL "devices: [[cpu]]\n" POLICY, "a device is a mapping");
    expect_bad(MODEL "devices: [{device: cpu, chipsets: gen1}]\n" POLICY, "a device is named by");
    expect_bad(MODEL "devices: [{device: cpu, runtimes: r1}]\n" POLICY, "a device is named by");
    expect_bad(MODEL "devices: [{runtimes: r1}]\n" POLICY, "a device is named by");
    expect_bad(MODEL "devices: [{device: cpu, prepared: {n: a.onnx}}]\n" POLICY, "there is no model 'n'");
    expect_bad(MODEL "devices: [{device: cpu, prepared: {m: a.onnx, m: b.onnx}}]\n" POLICY, "a second 'm'");
    expect_bad(MODEL "devices: [cpu]\ntensors: none\n" POLICY, "nothing to judge");
    expect_bad(MODEL "devices: [cpu]\nmargin: 2\n" POLICY, "'margin' is a number");
    expect_bad(MODEL "devices: [cpu]\nrepeats: 0\n" POLICY, "'repeats' is a whole number");
    expect_bad(MODEL "devices: [cpu]\n? [a]\n: b\n" POLICY, "has no key ''");
    expect_bad("a: &a [*a]\n", "c.yaml:");
    expect_bad(MODEL "devices: [cpu]\nname: \"a\\0b\"\n" POLICY, "'name' is a text");
    static const char with_nul[] = MODEL "devices: [cpu]\n\0" POLICY;
    assert_int_equal(read_text(with_nul, sizeof with_nul - 1, false), ND_ERR_USAGE);
}

static void campaign_for_a_suggestion_needs_no_policy(void **state)
{
    (void)state;
    static const char text[] = MODEL "devices: [cpu]\n";
    expect_ok(read_text(text, sizeof text - 1, true), &err);
    assert_int_equal(campaign.policy.n, 0);
}

static void campaign_cut_off_anywhere_is_no_crash(void **state)
{
    (void)state;
    static const char text[] =
        "models:\n- {name: a, quantised: q.onnx, float: f.onnx, probes: ['d=x.npz,labels=l']}\n"
        "devices: ['emu:p.yaml', {device: cpu, prepared: {a: c.onnx}}, {chipsets: [cpu, gen3], "
        "runtimes: [r1, r2]}]\nexplain: yes\npolicy:\n- {gate: lsb, max: 1, tensors: [a, b], "
        "reason: r, owner: o, until: 2026-06-30}\n";
    for (size_t n = 0; n < sizeof text; n++)
        (void)read_text(text, n, false);
}

static int leave(void **state)
{
    nd_campaign_deinit(&campaign);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_name_of_tensors_is_read),
        cmocka_unit_test(campaign_without_words_has_defaults),
        cmocka_unit_test(campaign_paths_are_relative_to_it),
        cmocka_unit_test(campaign_devices_are_all_combinations),
        cmocka_unit_test(campaign_that_is_wrong_is_refused),
        cmocka_unit_test(campaign_for_a_suggestion_needs_no_policy),
        cmocka_unit_test(campaign_cut_off_anywhere_is_no_crash),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_folder, leave);
}
