/* `npudiff plan`: what a campaign comes to, before anything of it is done. */
#include "cli/options/commands.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/judge/campaign.h"
#include "npudiff/report/report.h"

struct values {
    const char *output;
    struct cli_list from;
    size_t explain_parts;
    bool suggest;
    bool verbose;
    bool json;
    size_t width;
};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_plan_of_campaign plan;
    char *text = NULL;
    const struct nd_qualify_options options = {.struct_size = sizeof options,
                                               .folder = values->output,
                                               .without_policy = values->suggest,
                                               .n_explain_parts = values->explain_parts};
    enum nd_status status =
        nd_campaign_plan(operands[0], values->from.items, values->from.n, &options, &plan, &err);
    if (status != ND_OK)
        return cli_report_error(&err);
    if (values->json)
        status = nd_report_plan_json(&plan, &text, &err);
    else if (values->verbose)
        status = nd_report_plan_text(&plan, &text, &err);
    else
        status = nd_report_plan_brief(&plan, cli_text_width(values->width), &text, &err);
    nd_plan_of_campaign_deinit(&plan);
    return cli_print_made(status, text, values->json, &err);
}

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FOLDER("DIR"),
             "the folder for captures and results (the campaign's 'output')"),
    OPT_LIST(0, "from", struct values, from, CLI_A_FOLDER("DIR"),
             "a folder of results of an earlier campaign: its times are used, too; may be repeated"),
    OPT_NUMBER(0, "explain-parts", struct values, explain_parts, "N", 1, 1000,
               "count N tasks for each explanation and one that merges them, as 'qualify --emit "
               "--explain-parts' makes them (1)"),
    OPT_FLAG(0, "suggest", struct values, suggest, "the campaign needs no policy, as with 'qualify --suggest'"),
    OPT_JSON(struct values),
    OPT_VERBOSE(struct values, "list every task with its estimate, and where that is from"),
    OPT_WIDTH(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff plan campaign.yaml -o results", "Estimates time and disk of a campaign."},
    {"npudiff plan campaign.yaml -o results --from last -v",
     "Also by the times of an earlier campaign; lists the tasks."},
    {NULL, NULL},
};

const struct cli_command cmd_plan = {
    .name = "plan",
    .summary = "say what a campaign will take: tasks, time, disk, memory",
    .synopsis = "CAMPAIGN.yaml [-o DIR] [--from DIR]... [-v]",
    .details = "plan checks a campaign as 'qualify' does, and captures nothing. It lists the tasks (captures, "
               "comparisons, "
               "explanations, the verdict), which of them are done, and what the others take.\n"
               "An estimate is what the same task took before, in DIR or in a folder of --from: the same model "
               "on the same "
               "device, else on a device of the same kind, by the number of samples. Of a model that was never "
               "captured it is "
               "a default, which may be far off.\n"
               "'npudiff qualify --emit' writes the tasks as a script for many machines.",
    .examples = examples,
    .options = options,
    .operand = CLI_VALUE_FILE,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
