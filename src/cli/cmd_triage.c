#include "cli/commands.h"
#include "cli/golden.h"
#include "cli/rows.h"
#include "cli/terminal.h"
#include "npudiff/report.h"

struct values {
    const char *against;
    const char *color;
    bool json;
};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_golden *store = NULL;
    struct nd_triage triage;
    char *text = NULL;
    if (values->against == NULL)
        return cli_usage_error("triage", "--against STORE is needed");
    if (nd_golden_open(values->against, false, &store, &err) != ND_OK)
        return cli_report_error(&err);
    if (nd_triage(store, operands[0], &triage, &err) != ND_OK) {
        nd_golden_close(&store);
        return cli_report_error(&err);
    }
    int exit_code = cli_worse((int)triage.exit_code, golden_tell_problems(values->against, store));
    enum nd_status status = values->json
                                ? nd_report_triage_json(&triage, operands[0], store, &text, &err)
                                : nd_report_triage_text(&triage, operands[0], cli_text_width(0), &text, &err);
    nd_triage_deinit(&triage);
    nd_golden_close(&store);
    return cli_worse(exit_code, cli_print_answer(status, text,
                                                 &(struct cli_style){values->json, values->color, NULL}, &err));
}

static const struct cli_option options[] = {
    OPT_TEXT(0, "against", struct values, against, CLI_A_FOLDER("STORE"),
             "the golden store ('npudiff golden')"),
    OPT_JSON(struct values),
    OPT_COLOR(struct values),
    {.name = NULL},
};

const struct cli_command cmd_triage = {
    .name = "triage",
    .summary = "say which accepted class a capture or bundle from the field is",
    .synopsis = "FIELD.h5|BUNDLE.json --against STORE",
    .details = "Looks in a golden store for entries with the same digests: which chipsets and SDKs give these "
               "codes. Where there is none it names the nearest, an entry of the same chipset if there is one, "
               "by the number of equal edges, the share of differing codes where both sides keep them, and the "
               "first edge that differs, and the command to run next. Codes that only another chipset gives "
               "are new for a chipset that has entries of its own.\nExit code 0: known; 1: new; 2: usage or "
               "I/O trouble, or a damaged entry; 3: the store has nothing comparable.",
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
