/* `npudiff report`: one HTML page of captures, results or a campaign. */
#include <stdio.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/terminal/signals.h"

struct values {
    const char *output, *quantised, *float_model, *title;
    size_t n_threads, memory_limit_mib;
    double time_limit_s;
    bool quiet;
};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_error err = {0};
    const char *output = values->output != NULL ? values->output : "report.html";
    int exit_code = cli_report_check(output);
    if (exit_code != 0)
        return exit_code;
    cli_limit_work(values->time_limit_s, values->memory_limit_mib); /* captures are explained, too */
    CLI_OWNED(report_documents_deinit) struct report_documents documents = {0};
    const struct report_sources sources = {.quantised = values->quantised,
                                           .float_model = values->float_model,
                                           .finds_model = true,
                                           .is_explained_if_possible =
                                               values->quantised == NULL && values->float_model == NULL,
                                           .n_threads = values->n_threads,
                                           .quiet = values->quiet,
                                           .takes_campaigns = true};
    if (report_documents_of_operands(&documents, operands, n_operands, &sources, &err) != ND_OK)
        return cli_report_error(&err);
    exit_code = cli_report_write(output, documents.items, documents.n, values->title);
    if (exit_code == 0 && !values->quiet)
        printf("%s: open it in a browser\n", output);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("FILE.html"),
             "write the page to this file (report.html); overwrites an older report"),
    OPT_TEXT(0, "quantised", struct values, quantised, CLI_A_MODEL("MODEL"),
             "the ONNX model that was captured (found by the path and the digest that the captures state): "
             "shows also which layer introduces a difference, and where nodes ran"),
    OPT_TEXT(0, "float", struct values, float_model, CLI_A_MODEL("MODEL"),
             "the model before quantisation: also shows how much of the error is quantisation"),
    OPT_TEXT(0, "title", struct values, title, CLI_A_TEXT("TEXT"), "the title of the page (the model's name)"),
    OPT_THREADS(struct values),
    OPT_TIME_LIMIT(struct values, "give up after S seconds (3600)"),
    OPT_MEMORY_LIMIT(struct values, "give up when more memory is needed (8192)"),
    OPT_QUIET(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff report captures/cpu.h5 captures/gen3.h5 -o report.html",
     "Compares and explains the captures: heat map, error flow, samples, accuracy, latencies."},
    {"npudiff report --float float.onnx captures/*.h5",
     "All views: also how much of the error is quantisation."},
    {"npudiff report results -o results.html",
     "The result of 'npudiff qualify', with a comparison of each model."},
};

const struct cli_command cmd_report = {
    .name = "report",
    .role = CLI_FIND,
    .summary = "make one HTML page of captures or results, to pass on",
    .synopsis = "REF.h5 TEST.h5 ... | RESULT.json ... | FOLDER [-o report.html]",
    .details = "Writes one HTML file that needs no network: the verdict, a heat map of tensors and devices, "
               "the flow of the error through the model, the error budget, samples and accuracy, and where the "
               "model ran. A view whose data is not there says which command gives it.\n"
               "REF.h5 TEST.h5: compares the captures and, where their model is found, explains them, too.\n"
               "RESULT.json: what compare, explain, placement, latency, golden check, golden diff, golden "
               "history, qualify, align or promote printed with --json; one of each command.\n"
               "FOLDER: the folder of 'npudiff qualify'.\n"
               "Exit code 0: the page is written, whatever it says; 2: trouble.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 1, CLI_ANY_NUMBER),
};
