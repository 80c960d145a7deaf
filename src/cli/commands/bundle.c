#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/commands/golden.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/judge/judge.h"

struct values {
    const char *output;
    bool force;
    bool json;
    bool quiet;
};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_capture *capture = NULL;
    char *text = NULL;
    if (values->output == NULL)
        return cli_usage_error("bundle", "-o FILE.json is missing");
    if (cli_check_text_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    enum nd_status status = nd_capture_open(operands[0], &capture, &err);
    if (status == ND_OK)
        status = nd_bundle_make(capture, &text, &err);
    nd_capture_close(&capture);
    if (status != ND_OK)
        return cli_report_error(&err);
    int exit_code = cli_write_text(values->output, text, values->force);
    if (exit_code == 0 && values->json) {
        json_t *row = json_pack("{s:o, s:o, s:I}", "capture", cli_text(operands[0]), "bundle",
                                cli_text(values->output), "bytes", (json_int_t)strlen(text));
        cli_print_json(ND_DOCUMENT_BUNDLE, row);
        json_decref(row);
    } else if (exit_code == 0 && !values->quiet) {
        const char *next[] = {"npudiff", "triage", values->output, "--against", "STORE"};
        struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
        nd_report_screen_put(screen, "%s: %zu bytes, digests only\n", values->output, strlen(text));
        nd_report_screen_next(screen, "for whoever has the accepted captures", next,
                              sizeof next / sizeof next[0]);
        exit_code = cli_print_screen(screen, NULL);
    }
    free(text);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("FILE.json"), "the bundle to write"),
    OPT_FORCE(struct values, "overwrite an existing file"),
    OPT_JSON(struct values),
    OPT_QUIET(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff bundle captures/gen3.h5 -o bundle.json", "Writes a report that is small enough for a mail."},
    {"npudiff triage bundle.json --against store", "What the receiver runs."},
    {NULL, NULL},
};

const struct cli_command cmd_bundle = {
    .name = "bundle",
    .summary = "make a small field report of a capture, without data, names or model",
    .synopsis = "CAPTURE.h5 -o FILE.json",
    .details = "Writes a few kilobytes for 'npudiff triage': the device, its runtime, options and host, and "
               "one digest per tensor and probe. Names of tensors and probes are replaced by the start of "
               "their SHA-256; only a golden store that has the names can find them again. The bundle holds no "
               "inputs, outputs, labels, shapes, operators, paths or logs.\n"
               "Exit code 0: written; 2: it cannot be written.",
    .examples = examples,
    .options = options,
    .operand = CLI_VALUE_CAPTURE,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
