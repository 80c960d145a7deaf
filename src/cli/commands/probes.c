/* `npudiff probes`: the inputs that there are, and what a description comes to. docs/reference/probes.md. */
#include "cli/options/commands.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/record/probe.h"

struct values {
    bool json;
};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)operands;
    (void)n_operands;
    const struct values *values = context;
    json_t *rows = json_array();
    for (const struct nd_probe_kind *kind = nd_probe_kinds(); kind->name != NULL; kind++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "name", kind->name, "syntax", kind->syntax,
                                              "summary", kind->summary));
    json_array_append_new(
        rows, json_pack("{s:s, s:s, s:s}", "name", "NAME", "syntax", "NAME=PATH[,labels=PATH]", "summary",
                        "your own: a .npy, a .npz, a folder of them, or a text list of files; with "
                        "an array 'labels' npudiff also gives the accuracy"));
    static const struct nd_report_column columns[] = {{"syntax", "PROBE"}, {"summary", "FEEDS"}, {NULL, NULL}};
    if (values->json)
        return cli_print_rows(ND_DOCUMENT_PROBES, "probes", rows, columns, true);
    const char *next[] = {"npudiff", "capture", "MODEL.onnx", "-d", "cpu",     "-p",
                          "zeros",   "-p",      "uniform:64", "-o", "captures"};
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    nd_report_screen_put(screen, "A probe is a set of fixed inputs, the same for every device.\n\n");
    cli_screen_rows(screen, rows, columns, "--json lists all");
    nd_report_screen_next(screen, "to run a model with some of them", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}

static const struct cli_option options[] = {
    OPT_JSON(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff probes", "Lists the built-in probes."},
    {"npudiff capture model.onnx -d cpu -p uniform:64:7 -p digits=test.npz -o captures-probes",
     "Uses 64 random samples with seed 7, and your own samples."},
};

const struct cli_command cmd_probes = {
    .name = "probes",
    .role = CLI_HERE,
    .summary = "list the built-in probes, and how to name your own data",
    .synopsis = "[--json]",
    .details = "A probe is a named set of fixed inputs: -p of 'npudiff capture'.",
    CLI_TABLES(struct values),
};
