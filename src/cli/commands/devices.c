/* `npudiff devices`: which devices there are here, and what a URI resolves to. docs/reference/devices.md. */
#include <stdio.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/devices/device.h"

struct values {
    bool json, verbose, no_phones, trust_options;
    const char *check, *server;
};

static json_t *syntax_rows(void)
{
    json_t *rows = json_array();
    for (const struct nd_device_syntax *row = nd_device_syntaxes(); row->syntax != NULL; row++)
        json_array_append_new(rows, json_pack("{s:s, s:s}", "device", row->syntax, "runs", row->summary));
    return rows;
}

static json_t *chipset_rows(const char *missing)
{
    size_t n;
    const struct nd_chipset *chipsets = nd_chipsets(&n);
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *name = chipsets[i].alias[0] != '\0' ? chipsets[i].alias : chipsets[i].sm;
        json_array_append_new(rows, json_pack("{s:o, s:s, s:s, s:i, s:s, s:s, s:b, s:s}", "device",
                                              json_sprintf("htp-sim:%s", name), "sm", chipsets[i].sm, "alias",
                                              chipsets[i].alias, "soc_model", chipsets[i].soc_model, "arch",
                                              chipsets[i].arch, "marketing", chipsets[i].marketing, "available",
                                              missing == NULL, "reason", missing == NULL ? "" : missing));
    }
    return rows;
}

/* The phones that adb knows of, or its server elsewhere; NULL, and why, where it cannot be asked. */
static json_t *phone_rows(const char *server, struct nd_error *err)
{
    struct nd_phone *phones = NULL;
    const char *at = server != NULL ? "@" : "";
    size_t n = 0;
    if (nd_phones_list(server, true, &phones, &n, err) != ND_OK)
        return NULL;
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct nd_phone *phone = &phones[i];
        const char *soc = phone->chipset != NULL ? phone->chipset->sm : phone->soc;
        json_t *uri = cli_text(phone->serial);
        json_array_append_new(
            rows,
            json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s}", "device",
                      json_sprintf("adb:%s%s%s", json_string_value(uri), at, server != NULL ? server : ""),
                      "serial", uri, "state", cli_text(phone->state), "model", cli_text(phone->model), "soc",
                      cli_text(soc), "chipset",
                      phone->chipset != NULL ? json_string(phone->chipset->sm) : json_null(), "available",
                      phone->trouble == NULL, "reason", phone->trouble != NULL ? phone->trouble : ""));
    }
    nd_phones_free(phones, n);
    return rows;
}

/* The runners that are found, also those that cannot be started. */
static json_t *runner_rows(void)
{
    struct nd_runner *runners = NULL;
    size_t n = 0;
    json_t *rows = json_array();
    if (nd_runners_list(&runners, &n, NULL) != ND_OK)
        return rows;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            rows, json_pack("{s:o, s:o, s:b, s:s}", "device", json_sprintf("exec:%s", runners[i].name), "path",
                            cli_text(runners[i].path), "available", runners[i].trouble == NULL, "reason",
                            runners[i].trouble != NULL ? runners[i].trouble : ""));
    nd_runners_free(runners, n);
    return rows;
}

static const struct nd_report_column phone_columns[] = {{"device", "PHONE"},  {"model", "MODEL"},
                                                        {"soc", "CHIPSET"},   {"state", "STATE"},
                                                        {"reason", "REASON"}, {NULL, NULL}};

static void print_tables(const json_t *root, const struct nd_error *phone_trouble, const char *missing)
{
    static const struct nd_report_column syntax_columns[] = {
        {"device", "DEVICE"}, {"runs", "RUNS"}, {NULL, NULL}};
    static const struct nd_report_column chipset_columns[] = {{"device", "SIMULATED CHIPSET"},
                                                              {"sm", "SM"},
                                                              {"soc_model", "SOC_MODEL"},
                                                              {"arch", "ARCH"},
                                                              {"marketing", "MARKETING"},
                                                              {"available", "AVAILABLE"},
                                                              {NULL, NULL}};
    cli_print_table(json_object_get(root, "syntaxes"), syntax_columns);
    printf("\n");
    cli_print_table(json_object_get(root, "chipsets"), chipset_columns);
    if (missing != NULL)
        printf("\nnot available: %s\n", missing);
    const json_t *runners = json_object_get(root, "runners");
    static const struct nd_report_column columns[] = {
        {"device", "RUNNER"}, {"path", "PROGRAM"}, {"reason", "REASON"}, {NULL, NULL}};
    printf("\n");
    if (json_array_size(runners) == 0)
        printf("runners: none is found\n");
    else
        cli_print_table(runners, columns);
    if (phone_trouble != NULL) {
        const json_t *phones = json_object_get(root, "phones");
        printf("\n");
        if (phones == NULL)
            printf("not available: %s\n", phone_trouble->message);
        else if (json_array_size(phones) == 0)
            printf("phones: none is attached\n");
        else
            cli_print_table(phones, phone_columns);
    }
}

/* ---- the answer in one screen ---- */

static json_t *brief_rows(void)
{
    static const char *const rows[][2] = {
        {"cpu", "ONNX Runtime's CPU provider"},
        {"htp-sim:gen3", "Qualcomm's HTP simulator, here as a Snapdragon 8 Gen 3"},
        {"twin:gen3", "the bits of that chip without its SDK, as far as they are known"},
        {"htp", "the NPU of this machine, where it has one"},
        {"adb:SERIAL", "a phone; adb:* is every phone that is attached"},
        {"ssh:HOST", "a board or laptop that runs Linux"},
        {"exec:RUNNER", "a program that runs models, such as another vendor's runtime"},
        {"exact", "the quantised reference: every layer exact, rounded once"},
        {"float64", "the float reference, for a float model"},
        {"emu:htp-v73", "an emulated chip; emu:htp-v73,stale@TENSOR has a fault"},
    };
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "device", rows[i][0], "runs", rows[i][1]));
    return list;
}

static void say_runners(struct nd_report_screen *screen, const json_t *runners)
{
    size_t i;
    const json_t *runner;
    char names[200] = "";
    size_t used = 0;
    json_array_foreach(runners, i, runner) {
        const char *reason = cli_text_of(runner, "reason");
        if (reason[0] != '\0')
            nd_report_screen_put(screen, "Runner %s cannot be used: %s\n", cli_text_of(runner, "device"),
                                 reason);
        else if (used + 80 < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "",
                                     cli_text_of(runner, "device"));
    }
    if (used > 0)
        nd_report_screen_put(screen, "Runners: %s\n", names);
}

static void say_phones(struct nd_report_screen *screen, const json_t *phones, const struct nd_error *trouble)
{
    size_t i;
    const json_t *phone;
    if (phones == NULL)
        nd_report_screen_put(screen, "Phones: %s\n", trouble->message);
    else if (json_array_size(phones) == 0)
        nd_report_screen_put(screen, "Phones: none is attached\n");
    json_array_foreach(phones, i, phone) {
        const char *reason = cli_text_of(phone, "reason");
        nd_report_screen_put(screen, "Phone: %s, %s, chipset %s%s%s\n", cli_text_of(phone, "device"),
                             cli_text_of(phone, "model"), cli_text_of(phone, "soc"),
                             reason[0] != '\0' ? ": " : "", reason);
    }
}

static int print_brief(const json_t *root, const struct nd_error *phone_trouble, const char *missing)
{
    static const struct nd_report_column columns[] = {{"device", "DEVICE"}, {"runs", "RUNS"}, {NULL, NULL}};
    const char *next[] = {"npudiff", "run", "MODEL.onnx", "-d", "cpu", "-d", "htp-sim:gen3"};
    const json_t *chipsets = json_object_get(root, "chipsets"), *chipset;
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    char names[128] = "";
    size_t used = 0, i;
    json_array_foreach(chipsets, i, chipset) {
        const char *alias = cli_text_of(chipset, "alias");
        if (alias[0] != '\0' && used + strlen(alias) + 3 < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", alias);
    }
    cli_screen_rows(screen, brief_rows(), columns, "-v lists all");
    nd_report_screen_put(
        screen, "\nThe simulator knows %zu chipsets: %s and, by their numbers, others (-v lists them).\n",
        json_array_size(chipsets), names);
    if (missing != NULL)
        nd_report_screen_put(screen, "cpu and htp-sim cannot run here: %s\n", missing);
    say_runners(screen, json_object_get(root, "runners"));
    if (phone_trouble != NULL)
        say_phones(screen, json_object_get(root, "phones"), phone_trouble);
    nd_report_screen_next(screen, "to compare a model on two devices", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}

/* ---- testing a runner ---- */

static json_t *trial_rows(const struct nd_runner_report *report)
{
    static const char *const states[] = {"passed", "refused", "failed"};
    json_t *rows = json_array();
    for (size_t i = 0; i < report->n; i++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:o}", "trial", report->trials[i].name, "state",
                                              states[report->trials[i].state], "said",
                                              cli_text(report->trials[i].said)));
    return rows;
}

static int check_runner(const struct values *values)
{
    static const struct nd_report_column columns[] = {
        {"trial", "TRIAL"}, {"state", "STATE"}, {"said", "REASON"}, {NULL, NULL}};
    struct nd_error err = {0};
    CLI_OWNED(nd_device_deinit) struct nd_device device = {0};
    struct nd_runner_report report;
    if ((values->trust_options ? nd_device_parse_trusted : nd_device_parse)(values->check, &device, &err) !=
            ND_OK ||
        nd_runner_check(&device, &report, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *trials = trial_rows(&report);
    if (!values->json) {
        printf("%s: %s\n\n", report.has_passed ? "PASSED" : "FAILED", values->check);
        cli_print_table(trials, columns);
        json_decref(trials);
    } else {
        cli_print_json(ND_DOCUMENT_DEVICES,
                       json_pack("{s:o, s:o, s:b, s:o}", "syntaxes", syntax_rows(), "chipsets", json_array(),
                                 "has_passed", report.has_passed, "trials", trials));
    }
    return report.has_passed ? ND_EXIT_SAME : ND_EXIT_DEVICE_FAILED;
}

/* ---- the phones of a different machine ---- */

/* Nothing else is listed: so an answer that does not come is an error. */
static int list_server(const struct values *values)
{
    struct nd_error err = {0};
    json_auto_t *phones = phone_rows(values->server, &err);
    if (phones == NULL)
        return cli_report_error(&err);
    if (values->json)
        cli_print_json(ND_DOCUMENT_DEVICES, json_pack("{s:o, s:o, s:O}", "syntaxes", syntax_rows(), "chipsets",
                                                      json_array(), "phones", phones));
    else if (json_array_size(phones) == 0)
        printf("phones: none is attached there\n");
    else
        cli_print_table(phones, phone_columns);
    return 0;
}

/* ---- the command ---- */

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)operands;
    (void)n_operands;
    const struct values *values = context;
    if (values->check != NULL)
        return check_runner(values);
    if (values->server != NULL)
        return list_server(values);
    struct nd_error err = {0}, phone_trouble = {0};
    struct nd_device probe = {0};
    /* Whether a device can run here depends on its runtime alone: asking for one says what is missing. */
    enum nd_status status = nd_device_parse("cpu", &probe, &err);
    nd_device_deinit(&probe);
    if (status == ND_ERR_MEMORY || status == ND_ERR_IO) /* that says nothing of the runtime */
        return cli_report_error(&err);
    const char *missing = status == ND_OK ? NULL : err.message;
    json_auto_t *root = json_pack("{s:o, s:o}", "syntaxes", syntax_rows(), "chipsets", chipset_rows(missing));
    json_object_set_new(root, "runners", runner_rows());
    json_t *phones = values->no_phones ? NULL : phone_rows(NULL, &phone_trouble);
    if (phones != NULL)
        json_object_set_new(root, "phones", phones);
    else if (!values->no_phones)
        json_object_set_new(root, "phones_reason", cli_text(phone_trouble.message));
    const struct nd_error *trouble = values->no_phones ? NULL : &phone_trouble;
    if (values->json)
        cli_print_json(ND_DOCUMENT_DEVICES, json_incref(root));
    else if (!values->verbose)
        return print_brief(root, trouble, missing);
    else
        print_tables(root, trouble, missing);
    return 0;
}

static const struct cli_option options[] = {
    OPT_FLAG(0, "no-phones", struct values, no_phones, "do not ask adb for phones; asking starts adb's server"),
    OPT_TEXT(0, "server", struct values, server, CLI_A_TEXT("HOST:PORT"),
             "list only the phones of adb's server at HOST:PORT, which a different machine runs"),
    OPT_TEXT(0, "check", struct values, check, CLI_A_DEVICE,
             "try whether a runner keeps to the protocol: order, types, batches, large tensors, NaN, wrong "
             "names, a damaged model, its end"),
    OPT_FLAG(0, "trust-options", struct values, trust_options,
             "with --check: accept a runner that is named by its path"),
    OPT_VERBOSE(struct values, "print all chipsets, and all forms of a device"),
    OPT_JSON(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff devices", "Lists devices, chipsets and attached phones."},
    {"npudiff devices --check exec:ort", "Tests a runner, one line for each trial."},
    {"npudiff devices --no-phones --json", "The same for a program, without asking adb."},
};

const struct cli_command cmd_devices = {
    .name = "devices",
    .role = CLI_HERE,
    .summary = "list the devices that can be captured here, and what is missing",
    .synopsis = "[--check exec:RUNNER | --server HOST:PORT] [--no-phones] [--json]",
    .details =
        "Lists how to write a device (-d of 'npudiff capture'), the chipsets that the simulator knows, by "
        "alias, SM number and QNN's soc_model, the runners that are found, and the phones that adb knows, with "
        "their chipsets. If adb is missing or a phone does not answer, the rest is listed.\n"
        "A runner is a program npudiff-runner-NAME in a folder of $NPUDIFF_RUNNERS (default "
        "${XDG_CACHE_HOME:-~/.cache}/npudiff/runners) or of PATH. --check exits with 5 when a trial fails.\n"
        "--server exits with 5 when the server cannot be reached, after 15 s at the latest.\n"
        "$NPUDIFF_ADB and $NPUDIFF_SSH name other programs than adb and ssh.",
    CLI_TABLES(struct values),
};
