/* `npudiff triage`: a capture or bundle against the store. docs/guides/field-triage.md. */
#include "cli/commands/golden.h"
#include "cli/options/commands.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

struct values {
    const char *against;
    struct cli_answer answer;
};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_golden_close) struct nd_golden *store = NULL;
    CLI_OWNED(nd_triage_deinit) struct nd_triage triage = {0};
    char *text = NULL;
    if (values->against == NULL)
        return cli_usage_error("triage", "--against STORE is missing");
    if (nd_golden_open(values->against, false, &store, &err) != ND_OK ||
        nd_triage(store, operands[0], &triage, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = cli_worse((int)triage.exit_code, golden_tell_problems(values->against, store));
    enum nd_status status = values->answer.json
                                ? nd_report_triage_json(&triage, operands[0], store, &text, &err)
                                : nd_report_triage_text(&triage, operands[0], cli_text_width(0), &text, &err);
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
}

static const struct cli_option options[] = {
    OPT_TEXT(0, "against", struct values, against, CLI_A_FOLDER("STORE"),
             "the golden store to search; see 'npudiff golden'"),
    OPT_ANSWER_COLOR(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff triage field.h5 --against store", "Says which accepted capture has the same values."},
    {"npudiff triage bundle.json --against store", "The same for a bundle, which holds digests only."},
};

const struct cli_command cmd_triage = {
    .name = "triage",
    .role = CLI_JUDGE,
    .summary = "say whether a capture or bundle from the field has known values",
    .synopsis = "FIELD.h5|BUNDLE.json --against STORE",
    .details =
        "Searches a golden store for entries with the same digests, and so tells which chipsets and SDKs give "
        "these values. If there is no such entry, it names the nearest one, of the same chipset where "
        "possible: how many tensors are equal, which share of the values differs, which tensor differs first, "
        "and which command to run next.\n"
        "Values that only a different chipset gives count as new if the store has entries of this chipset.\n"
        "Exit code 0: known; 1: new; 2: wrong usage, a file problem, or a damaged entry; 3: the store has "
        "nothing comparable.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 1, 1),
};
