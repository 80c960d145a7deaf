#include "cli/commands.h"
#include "cli/rows.h"
#include "npudiff/device.h"

struct values {
    bool json;
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

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)operands;
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_device probe = {0};
    /* Whether a device can run here depends on its runtime alone: asking for one says what is missing. */
    const char *missing = nd_device_parse("cpu", &probe, &err) == ND_OK ? NULL : err.message;
    nd_device_deinit(&probe);
    json_t *syntaxes = syntax_rows();
    json_t *chipsets = chipset_rows(missing);
    if (values->json) {
        json_t *root = json_pack("{s:o, s:o}", "syntaxes", syntaxes, "chipsets", chipsets);
        cli_print_json(root);
        json_decref(root);
        return 0;
    }
    static const struct cli_column syntax_columns[] = {{"device", "DEVICE"}, {"runs", "RUNS"}, {NULL, NULL}};
    static const struct cli_column chipset_columns[] = {{"device", "SIMULATED CHIPSET"},
                                                        {"sm", "SM"},
                                                        {"soc_model", "SOC_MODEL"},
                                                        {"arch", "ARCH"},
                                                        {"marketing", "MARKETING"},
                                                        {"available", "AVAILABLE"},
                                                        {NULL, NULL}};
    cli_print_table(syntaxes, syntax_columns);
    printf("\n");
    cli_print_table(chipsets, chipset_columns);
    if (missing != NULL)
        printf("\nnot available: %s\n", missing);
    json_decref(syntaxes);
    json_decref(chipsets);
    return 0;
}

static const struct cli_option options[] = {
    {.name = "json", .kind = CLI_FLAG, .offset = offsetof(struct values, json), .help = "print JSON"},
    {.name = NULL},
};

const struct cli_command cmd_devices = {
    .name = "devices",
    .summary = "list the devices that can be captured here, and what is missing",
    .synopsis = "[--json]",
    .details = "Lists how a device is named (-d of 'npudiff capture') and the chipsets the simulator can stand "
               "for, by "
               "alias, SM number and QNN's soc_model.",
    .options = options,
    .values_bytes = sizeof(struct values),
    .run = run,
};
