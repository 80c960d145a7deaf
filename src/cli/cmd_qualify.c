#include <stdio.h>

#include "cli/commands.h"
#include "cli/rows.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "npudiff/judge.h"
#include "npudiff/report.h"

struct values {
    const char *output;
    size_t jobs;
    size_t n_threads;
    bool force;
    bool suggest;
    bool verbose;
    size_t width;
    const char *color;
    const char *format;
    bool json;
    bool quiet;
};

static void say(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "npudiff: %s\n", text);
}

/* What was asked for: the policy, or the result. */
static int print(const struct values *values, const struct nd_qualify_result *result)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_status status = ND_OK;
    if (!values->json && values->suggest)
        fputs(result->found.suggestion, stdout);
    else if (values->suggest)
        status = nd_report_suggestion_json(&result->found, &text, &err);
    else if (values->json)
        status = nd_report_qualification_json(&result->found, &text, &err);
    else if (values->verbose)
        status = nd_report_qualification_text(&result->found, &text, &err);
    else
        status = nd_report_qualification_brief(&result->found, result->folder, cli_text_width(values->width),
                                               &text, &err);
    return status == ND_OK && text == NULL
               ? 0
               : cli_print_answer(status, text,
                                  &(struct cli_style){values->json, values->color, values->format}, &err);
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_qualify_result result = {0};
    const struct nd_qualify_options options = {.struct_size = sizeof options,
                                               .folder = values->output,
                                               .force = values->force,
                                               .without_policy = values->suggest,
                                               .n_jobs = values->jobs,
                                               .n_threads = values->n_threads,
                                               .say = values->quiet ? NULL : say,
                                               .is_cancelled = cli_signals_came};
    cli_signals_catch();
    enum nd_status status = nd_qualify(operands[0], &options, &result, &err);
    /* Written again where nothing has changed, too: one of the files may have been lost. */
    if (status == ND_OK)
        status = nd_report_qualification_write(&result, &err);
    int exit_code = (int)result.found.exit_code;
    if (status == ND_OK && values->suggest)
        exit_code = ND_EXIT_SAME; /* it was not asked whether today's policy holds */
    if (status == ND_OK && (!values->quiet || values->suggest))
        exit_code = cli_worse(exit_code, print(values, &result));
    if (status != ND_OK && !cli_signals_came(NULL))
        exit_code = cli_report_error(&err);
    nd_qualify_result_deinit(&result);
    cli_signals_end_if_came();
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FOLDER("DIR"),
             "the folder of captures and results (the campaign's 'output')"),
    OPT_FLAG(0, "suggest", struct values, suggest,
             "print the tightest policy that the captures pass, as YAML for the campaign; a campaign without a "
             "policy will do; exit code 0"),
    OPT_FORCE(struct values, "capture and judge everything again"),
    OPT_JOBS(struct values, "run N devices of this machine at once; latencies then disturb one another (1). "
                            "Phones and boards run at the same time in any case"),
    OPT_NUMBER(0, "threads", struct values, n_threads, "N", 0, 256,
               "for comparing and explaining; 0: as many as the process may use (0); the result does not "
               "depend on it"),
    OPT_FLAG(0, "json", struct values, json, "print result.json; with --suggest the policy as JSON"),
    OPT_FLAG('v', "verbose", struct values, verbose,
             "print all tables: accuracy with intervals, every gate that does not hold (they are in "
             "result.txt, too)"),
    OPT_WIDTH(struct values),
    OPT_COLOR(struct values),
    OPT_FORMAT(struct values),
    OPT_QUIET_ANSWER(struct values),
    {.name = NULL},
};

const struct cli_command cmd_qualify = {
    .name = "qualify",
    .summary = "run a campaign: capture, compare, explain, hold against its policy",
    .synopsis = "CAMPAIGN.yaml [-o DIR] [--suggest] [--force] [-j N]",
    .details =
        "Captures what the campaign asks for and DIR/captures does not hold yet, or holds of another model, "
        "probe, "
        "runtime or option; compares every device with the reference, judges accuracy, and holds each gate of "
        "the "
        "policy against each device. Writes DIR/result.json, result.txt, result.csv and junit.xml. Where "
        "nothing "
        "has changed the result is that of the last run; what was interrupted goes on where it stopped.\n"
        "The campaign and its policy are described in docs/reference/campaign.md.\n"
        "Exit code 0: every gate passed; 1: one failed; 2: trouble, or a campaign or policy that cannot be "
        "followed; 3: something cannot be compared; 4: too few samples for a question; 5: a device failed. The "
        "worst of several, in the order 2, 5, 3, 1, 4.",
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
