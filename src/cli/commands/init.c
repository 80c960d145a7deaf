/* `npudiff init`: a first campaign, with comments. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/devices/device.h"
#include "npudiff/model/model.h"

struct values {
    struct cli_list devices, probes, dims;
    const char *float_model, *output;
    bool no_phones, force;
    struct cli_answer answer;
};

/* ---- YAML ---- */

/* A text in single quotes. */
static void put_text(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text != '\0'; text++)
        fputs(*text == '\'' ? "''" : (const char[]){*text, '\0'}, out);
    fputc('\'', out);
}

/* NULL for what is not there: the campaign has it as it was given. */
static char *absolute_path(const char *path)
{
    errno = 0;
    char *absolute = realpath(path, NULL);
    if (absolute == NULL && errno == ENOMEM)
        cli_errors_lost_memory();
    return absolute;
}

/* Paths are relative to the campaign: unless it is made in this folder, they become absolute. */
static void put_path(FILE *out, const char *path, const char *campaign)
{
    CLI_FREED char *absolute = strchr(campaign, '/') != NULL ? absolute_path(path) : NULL;
    put_text(out, absolute != NULL ? absolute : path);
}

/* ---- the parts of the campaign ---- */

/* What the campaign depends on beside the options. */
struct facts {
    char *labelled;      /* the names of the probes with labels, as a list in YAML; "": none */
    size_t n_labelled;   /* samples of the smallest of them */
    bool has_ties;       /* the inputs have quantisers, and so ties */
    bool is_quantised;   /* the model; else the first device is the reference */
    char reference[256]; /* its label */
};

static void put_model(FILE *out, const struct values *values, const struct facts *facts, const char *model)
{
    fputs("models:\n  - quantised: ", out);
    put_path(out, model, values->output);
    if (values->float_model != NULL) {
        fputs("\n    float: ", out);
        put_path(out, values->float_model, values->output);
    } else {
        fputs("\n    # The model before quantisation splits the error into quantisation and the chip's part.\n"
              "    # float: model.float.onnx",
              out);
    }
    fputs(
        "\n    # Inputs. With your own samples and labels, accuracy is judged, too: digits=test.npz, an .npz "
        "with\n"
        "    # an array for each input of the model, and 'labels'. 'npudiff probes' lists the built-in ones.\n"
        "    probes:\n",
        out);
    static const char *const usual[] = {"uniform:64:1", "ties:16"};
    for (size_t i = 0; values->probes.n == 0 && i < (facts->has_ties ? 2 : 1); i++)
        fprintf(out, "      - %s\n", usual[i]);
    for (size_t i = 0; i < values->probes.n; i++) {
        fputs("      - ", out);
        /* A probe: NAME=PATH[,labels=PATH] holds a path, too. */
        const char *probe = values->probes.items[i];
        CLI_FREED char *joined = NULL;
        const char *equals = strchr(probe, '=');
        CLI_FREED char *absolute =
            equals != NULL && strchr(values->output, '/') != NULL && strchr(equals, ',') == NULL
                ? absolute_path(equals + 1)
                : NULL;
        if (absolute != NULL && asprintf(&joined, "%.*s=%s", (int)(equals - probe), probe, absolute) < 0) {
            joined = NULL;
            cli_errors_lost_memory();
        }
        put_text(out, joined != NULL ? joined : probe);
        fputc('\n', out);
    }
    for (size_t i = 0; i < values->dims.n; i++) {
        fputs(i == 0 ? "    dims:\n      - " : "      - ", out);
        put_text(out, values->dims.items[i]);
        fputc('\n', out);
    }
}

/* The chipsets of phones, which have an alias; others are named in a comment. */
static void put_chipsets(FILE *out)
{
    size_t n;
    const struct nd_chipset *chipsets = nd_chipsets(&n);
    struct nd_device device = {0};
    bool can_run = nd_device_parse("cpu", &device, NULL) == ND_OK;
    nd_device_deinit(&device);
    fprintf(out, "  # The CPU, and the simulator of these chipsets; 'npudiff devices' lists more.\n");
    if (!can_run)
        fprintf(
            out,
            "  # No runtime is installed here: install one with 'tools/setup', or 'npudiff runtimes add'.\n");
    fputs("  - chipsets: [cpu", out);
    for (size_t i = 0; i < n; i++)
        if (chipsets[i].alias[0] != '\0')
            fprintf(out, ", %s", chipsets[i].alias);
    fputs("]\n    # Two versions of the SDK at once ('npudiff runtimes'):\n"
          "    # runtimes: [qairt-2.50.40, qairt-2.51.0]\n",
          out);
}

static void put_phones(FILE *out, bool is_asked)
{
    struct nd_phone *phones = NULL;
    size_t n = 0;
    bool is_known = is_asked && nd_phones_list(NULL, true, &phones, &n, NULL) == ND_OK;
    for (size_t i = 0; is_known && i < n; i++) {
        fputs(phones[i].trouble == NULL ? "  - " : "  # not usable now: ", out);
        char *uri = NULL;
        if (asprintf(&uri, "adb:%s", phones[i].serial) >= 0)
            put_text(out, uri);
        else
            cli_errors_lost_memory();
        free(uri);
        fputc('\n', out);
    }
    if (!is_known || n == 0)
        fputs("  # Every attached phone, and a board:\n  # - 'adb:*'\n  # - ssh:HOST\n", out);
    nd_phones_free(phones, n);
}

static void put_devices(FILE *out, const struct values *values)
{
    fputs("devices:\n", out);
    for (size_t i = 0; i < values->devices.n; i++) {
        fputs("  - ", out);
        put_text(out, values->devices.items[i]);
        fputc('\n', out);
    }
    if (values->devices.n > 0)
        return;
    put_chipsets(out);
    put_phones(out, !values->no_phones);
}

/* The smallest round margin that so many samples can prove where one of them becomes wrong; 0: none. The upper
 * end of the one-sided 95 % score interval of a drop of 1 of n is about (1 + z^2 / 2 + z sqrt(1 + z^2 / 4)) / n
 * = 4.5 / n. */
static double provable_margin(size_t n_samples)
{
    static const double margins[] = {0.01, 0.02, 0.03, 0.05, 0.1, 0.2};
    for (size_t i = 0; i < sizeof margins / sizeof margins[0]; i++)
        if (margins[i] * (double)n_samples >= 4.5)
            return margins[i];
    return 1;
}

/* Where no probe has labels, or too few, the gates of classes are comments: a gate that has nothing to judge is
 * a mistake to qualify. */
static void put_policy(FILE *out, const struct values *values, const struct facts *facts)
{
    double margin = provable_margin(facts->n_labelled);
    const char *off = facts->labelled[0] == '\0' ? "# " : "";
    fprintf(out,
            "# What a device is compared with: 'quantised' is this model, evaluated exactly; a float model is\n"
            "# compared with a device.\n"
            "reference: %s\n"
            "# A sentence on the cause for every device that differs.\n"
            "explain: yes\n"
            "# The limits that every device must keep. 'npudiff qualify CAMPAIGN --suggest' proposes the "
            "strictest\n"
            "# ones that today's captures pass. docs/reference/campaign.md describes all gates.\n"
            "policy:\n"
            "  # Every device gives a complete capture.\n"
            "  - gate: finalize\n"
            "  # No node of an NPU device runs on the CPU; list exceptions under 'allow'.\n"
            "  - gate: fallback\n",
            facts->reference);
    if (facts->is_quantised)
        fputs("  # A quantised value differs from the reference by at most 'max' LSB, on every tensor.\n"
              "  - gate: lsb\n    max: 5\n",
              out);
    else if (values->devices.n != 1)
        fputs("  # Every tensor's signal-to-noise ratio to the reference is at least 'min' dB.\n"
              "  - gate: sqnr\n    min: 40\n",
              out);
    fprintf(out,
            "  # The same class as the reference, on this share of the samples, at every output.\n"
            "  %1$s- gate: agreement\n  %1$s  min: 0.99\n",
            off);
    if (facts->labelled[0] != '\0')
        fprintf(out, "    probes: [%s]\n", facts->labelled);
    fputs("  # Accuracy drops by less than this share, with labelled probes", out);
    if (facts->labelled[0] != '\0' && margin < 1 && margin > 0.01)
        fprintf(out, ". %zu samples prove no less than %g,\n  # 450 prove 0.01", facts->n_labelled, margin);
    else if (facts->labelled[0] != '\0' && margin > 0.01)
        fprintf(out, ". %zu samples prove none, 450 prove 0.01", facts->n_labelled);
    fprintf(out, ".\n  %1$s- gate: accuracy-drop\n  %1$s  margin: %2$g\n", margin < 1 ? "" : "# ",
            margin < 1 ? margin : 0.01);
    if (!facts->is_quantised && margin < 1)
        fprintf(out, "    reference: %s\n", facts->reference);
    if (values->float_model != NULL && margin < 1)
        fprintf(out,
                "  # The same against the float model: what quantisation and chip cost together.\n"
                "  - gate: accuracy-drop\n    reference: float\n    margin: %g\n",
                margin);
}

/* ---- the command ---- */

static char *make_campaign(const struct values *values, const char *model, const struct facts *facts)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL)
        return NULL;
    fprintf(out, "# A campaign of npudiff %s, for 'npudiff qualify'. Paths are relative to this file.\n",
            nd_version());
    put_model(out, values, facts, model);
    put_devices(out, values);
    put_policy(out, values, facts);
    bool has_failed = ferror(out) != 0;
    if (fclose(out) != 0 || has_failed) {
        free(text);
        return NULL;
    }
    return text;
}

/* Mistakes are found now, and not by qualify. */
static enum nd_status check(const struct values *values, const char *path, struct facts *facts,
                            struct nd_error *err)
{
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL, *float_model = NULL;
    CLI_OWNED(cli_probes_deinit) struct cli_probes probes = {0};
    CLI_TRY(cli_model_load(path, &values->dims, &model, err));
    CLI_TRY(nd_probes_check_static(model, values->probes.items, values->probes.n, err));
    /* Whether the inputs have ties, and whether there is anything quantised at all. */
    static const char *const ties[] = {"ties:16"};
    struct nd_probe *probe = NULL;
    facts->has_ties = nd_probes_for_model(model, ties, 1, &probe, NULL) == ND_OK;
    nd_probe_destroy(&probe);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        facts->is_quantised = facts->is_quantised || nd_model_tensor(model, e)->quant.n > 0;
    snprintf(facts->reference, sizeof facts->reference, facts->is_quantised ? "quantised" : "cpu");
    if (values->float_model != NULL)
        CLI_TRY(nd_model_load(values->float_model, &float_model, err));
    for (size_t i = 0; i < values->devices.n; i++) {
        CLI_OWNED(nd_device_deinit) struct nd_device device = {0};
        if (strcmp(values->devices.items[i], "adb:*") != 0)
            CLI_TRY(nd_device_parse(values->devices.items[i], &device, err));
        if (i == 0 && device.label != NULL && !facts->is_quantised)
            snprintf(facts->reference, sizeof facts->reference, "'%s'", device.label);
    }
    CLI_TRY(cli_probes_make(model, &values->probes, false, &probes, err));
    /* The names of the probes with labels, as a list in YAML (NULL: no memory), and the samples of the
     * smallest. */
    char *text = NULL;
    size_t n, n_labelled = 0;
    FILE *out = open_memstream(&text, &n);
    for (size_t i = 0; out != NULL && i < probes.n; i++) {
        if (probes.items[i]->labels == NULL)
            continue;
        fputs(n_labelled++ > 0 ? ", " : "", out);
        put_text(out, probes.items[i]->name);
        size_t n_samples = probes.items[i]->n_samples;
        facts->n_labelled = n_labelled == 1 || n_samples < facts->n_labelled ? n_samples : facts->n_labelled;
    }
    facts->labelled = out != NULL && fclose(out) == 0 ? text : NULL;
    return ND_OK;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    struct values values = *(const struct values *)context;
    struct nd_error err = {0};
    struct facts facts = {0};
    if (values.output == NULL)
        values.output = "campaign.yaml";
    if (cli_check_text_output(values.output, values.force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    if (check(&values, operands[0], &facts, &err) != ND_OK)
        return cli_report_error(&err);
    CLI_FREED char *text = facts.labelled != NULL ? make_campaign(&values, operands[0], &facts) : NULL;
    free(facts.labelled);
    if (text == NULL)
        return cli_fail_memory();
    int exit_code = cli_write_text(values.output, text, values.force);
    if (exit_code != 0)
        return exit_code;
    if (values.answer.json)
        cli_print_json(ND_DOCUMENT_INIT, json_pack("{s:o}", "campaign", cli_text(values.output)));
    else if (!values.answer.quiet)
        printf("%s is written. Edit it, then run: npudiff qualify %s -o results\n", values.output,
               values.output);
    return ND_EXIT_SAME;
}

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("CAMPAIGN.yaml"),
             "the campaign to write (campaign.yaml)"),
    OPT_TEXT(0, "float", struct values, float_model, CLI_A_MODEL("MODEL"), "the model before quantisation"),
    OPT_LIST('d', "device", struct values, devices, CLI_A_DEVICE,
             "a device of the campaign; may be repeated (the CPU, simulated chipsets and attached phones)"),
    OPT_LIST('p', "probe", struct values, probes, CLI_A_PROBE,
             "inputs of the campaign; may be repeated (uniform:64:1 and ties:16)"),
    OPT_DIM(struct values),
    OPT_FLAG(0, "no-phones", struct values, no_phones, "do not ask adb for phones; asking starts adb's server"),
    OPT_FORCE(struct values, "overwrite an existing campaign"),
    OPT_ANSWER_PLAIN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff init model.onnx -d cpu -d htp-sim:gen3 -o campaign.yaml", "Writes a campaign for two devices."},
    {"npudiff init model.onnx --float float.onnx -p digits=test.npz --no-phones -o all.yaml",
     "With the float model and your own samples, for the CPU and the simulated chipsets."},
};

const struct cli_command cmd_init = {
    .name = "init",
    .role = CLI_JUDGE,
    .summary = "write a first campaign for 'npudiff qualify', with comments",
    .synopsis = "MODEL.onnx [-o CAMPAIGN.yaml] [--float MODEL] [-d DEVICE ...] [-p PROBE ...]",
    .details = "Writes a campaign for the model and the devices that there are. Comments say what each line "
               "means and what else is possible. Edit it, then run it with 'npudiff qualify'.\n"
               "Exit code 0: written; 2: wrong usage or a file problem.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_MODEL, 1, 1),
};
