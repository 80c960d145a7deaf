#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/rows.h"
#include "cli/terminal.h"
#include "npudiff/device.h"

struct values {
    bool json;
    bool verbose;
    bool no_phones;
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

/* The phones that adb knows of; NULL, and why, where it cannot be asked. */
static json_t *phone_rows(struct nd_error *err)
{
    struct nd_phone *phones = NULL;
    size_t n = 0;
    if (nd_phones_list(true, &phones, &n, err) != ND_OK)
        return NULL;
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct nd_phone *phone = &phones[i];
        const char *soc = phone->chipset != NULL ? phone->chipset->sm : phone->soc;
        json_t *uri = cli_text(phone->serial);
        json_array_append_new(
            rows,
            json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s}", "device",
                      json_sprintf("adb:%s", json_string_value(uri)), "serial", uri, "state",
                      cli_text(phone->state), "model", cli_text(phone->model), "soc", cli_text(soc), "chipset",
                      phone->chipset != NULL ? json_string(phone->chipset->sm) : json_null(), "available",
                      phone->trouble == NULL, "reason", phone->trouble != NULL ? phone->trouble : ""));
    }
    nd_phones_free(phones, n);
    return rows;
}

static void print_phones(const json_t *phones, const struct nd_error *trouble)
{
    static const struct nd_report_column columns[] = {{"device", "PHONE"},  {"model", "MODEL"},
                                                      {"soc", "CHIPSET"},   {"state", "STATE"},
                                                      {"reason", "REASON"}, {NULL, NULL}};
    printf("\n");
    if (phones == NULL)
        printf("not available: %s\n", trouble->message);
    else if (json_array_size(phones) == 0)
        printf("phones: none is attached\n");
    else
        cli_print_table(phones, columns);
}

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
    if (phone_trouble != NULL)
        print_phones(json_object_get(root, "phones"), phone_trouble);
}

/* ---- the answer in one screen ---- */

static json_t *brief_rows(void)
{
    static const char *const rows[][2] = {
        {"cpu", "ONNX Runtime's CPU provider"},
        {"htp-sim:gen3", "Qualcomm's HTP simulator, here as a Snapdragon 8 Gen 3"},
        {"htp", "the NPU of this machine, where it has one"},
        {"adb:SERIAL", "a phone; adb:* is every phone that is attached"},
        {"ssh:HOST", "a board or laptop that runs Linux"},
        {"exact", "the quantised reference: every layer exact, rounded once"},
        {"float64", "the float reference, for a float model"},
        {"emu:htp-v73", "an emulated chip; emu:htp-v73,stale@TENSOR has a fault"},
    };
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "device", rows[i][0], "runs", rows[i][1]));
    return list;
}

static void say_phones(struct nd_report_screen *screen, const json_t *phones, const struct nd_error *trouble)
{
    size_t i;
    const json_t *phone;
    if (phones == NULL)
        nd_report_screen_put(screen, "Phones: %s\n", trouble->message);
    else if (json_array_size(phones) == 0)
        nd_report_screen_put(screen, "Phones: none is attached\n");
    json_array_foreach(phones, i, phone)
    {
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
    json_array_foreach(chipsets, i, chipset)
    {
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
    if (phone_trouble != NULL)
        say_phones(screen, json_object_get(root, "phones"), phone_trouble);
    nd_report_screen_next(screen, "to compare a model on two devices", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen, NULL);
}

/* ---- the command ---- */

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)operands;
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0}, phone_trouble = {0};
    struct nd_device probe = {0};
    /* Whether a device can run here depends on its runtime alone: asking for one says what is missing. */
    const char *missing = nd_device_parse("cpu", &probe, &err) == ND_OK ? NULL : err.message;
    nd_device_deinit(&probe);
    json_t *root = json_pack("{s:o, s:o}", "syntaxes", syntax_rows(), "chipsets", chipset_rows(missing));
    json_t *phones = values->no_phones ? NULL : phone_rows(&phone_trouble);
    if (phones != NULL)
        json_object_set_new(root, "phones", phones);
    else if (!values->no_phones)
        json_object_set_new(root, "phones_reason", cli_text(phone_trouble.message));
    int exit_code = 0;
    if (values->json)
        cli_print_json(ND_DOCUMENT_DEVICES, root);
    else if (!values->verbose)
        exit_code = print_brief(root, values->no_phones ? NULL : &phone_trouble, missing);
    else
        print_tables(root, values->no_phones ? NULL : &phone_trouble, missing);
    json_decref(root);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_FLAG(0, "no-phones", struct values, no_phones, "do not ask adb for phones; asking starts adb's server"),
    OPT_VERBOSE(struct values, "print all chipsets, and all forms of a device"),
    OPT_JSON(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff devices", "Lists devices, chipsets and attached phones."},
    {"npudiff devices --no-phones --json", "The same for a program, without asking adb."},
    {NULL, NULL},
};

const struct cli_command cmd_devices = {
    .name = "devices",
    .summary = "list the devices that can be captured here, and what is missing",
    .synopsis = "[--no-phones] [--json]",
    .details = "Lists how to write a device (-d of 'npudiff capture'), the chipsets that the simulator knows, "
               "by alias, SM number and QNN's soc_model, and the phones that adb knows, with their chipsets. "
               "If adb is missing or a phone does not answer, the rest is listed.\n"
               "$NPUDIFF_ADB and $NPUDIFF_SSH name other programs than adb and ssh.",
    .examples = examples,
    .options = options,
    .values_bytes = sizeof(struct values),
    .run = run,
};
