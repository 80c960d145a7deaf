/* `npudiff lint`: options, fixes, SARIF, exit code. docs/reference/lint.md. */
#include <stdio.h>

#include "cli/options/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/terminal.h"
#include "npudiff/improve/lint.h"
#include "npudiff/report/report.h"

struct values {
    bool fix;
    const char *output, *sarif;
    bool rules, force, verbose;
    struct cli_answer answer;
};

static int print_rules(const struct values *values)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_status status = values->answer.json ? nd_report_lint_rules_json(&text, &err)
                                                : nd_report_lint_rules_text(cli_text_width(0), &text, &err);
    return cli_print_answer(status, text, &values->answer, &err);
}

static int write_sarif(const struct values *values, const struct nd_lint *lint)
{
    struct nd_error err = {0};
    CLI_FREED char *text = NULL;
    return nd_report_lint_sarif(lint, &text, &err) == ND_OK ? cli_write_text(values->sarif, text, values->force)
                                                            : cli_report_error(&err);
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    CLI_OWNED(nd_lint_destroy) struct nd_lint *lint = NULL;
    struct nd_lint_options options;
    if (values->rules)
        return n_operands > 0 ? cli_usage_error("lint", "--rules takes no model") : print_rules(values);
    if (n_operands == 0)
        return cli_usage_error("lint", "MODEL.onnx is missing");
    if (values->fix != (values->output != NULL))
        return cli_usage_error("lint", values->fix ? "--fix needs -o OUT.onnx: the model itself stays as it is"
                                                   : "-o needs --fix: without it no model is written");
    if (values->output != NULL && cli_check_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    if (values->sarif != NULL &&
        cli_check_text_output(values->sarif, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    nd_lint_options_init(&options);
    options.output = values->output;
    options.replace = values->force;
    if (nd_model_load(operands[0], &model, &err) != ND_OK ||
        nd_lint_model(model, &options, &lint, &err) != ND_OK)
        return cli_report_error(&err);
    char *text = NULL;
    int exit_code = lint->n_left > 0             ? ND_EXIT_DIFFERS
                    : nd_lint_has_examined(lint) ? ND_EXIT_SAME
                                                 : ND_EXIT_INCONCLUSIVE;
    if (values->sarif != NULL)
        exit_code = cli_worse(exit_code, write_sarif(values, lint));
    enum nd_status status = values->answer.json ? nd_report_lint_json(lint, &text, &err)
                            : values->verbose   ? nd_report_lint_text(lint, cli_text_width(0), &text, &err)
                                                : nd_report_lint_brief(lint, cli_text_width(0), &text, &err);
    exit_code = cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
    if (values->output != NULL && lint->output == NULL && !values->answer.json)
        printf("Nothing can be mended, so '%s' was not written.\n", values->output);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_FLAG(0, "fix", struct values, fix,
             "write a copy in which is mended what changes the model by rounding at most"),
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("OUT.onnx"), "the copy that --fix writes"),
    OPT_TEXT(0, "sarif", struct values, sarif, CLI_A_FILE("FILE"),
             "also write the findings as SARIF 2.1.0, which code hosts and editors show"),
    OPT_FLAG(0, "rules", struct values, rules,
             "print the rules: what, why, where it was seen, cost, what mends it"),
    OPT_FORCE(struct values, "overwrite existing files"),
    OPT_VERBOSE(struct values, "print every finding, and of its rule why, where it was seen and what it costs"),
    OPT_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff lint model.onnx", "Lists what an HTP would compute wrongly or less precisely."},
    {"npudiff lint model.onnx --fix -o mended.onnx", "Mends what it can and says what it changed."},
    {"npudiff lint model.onnx --sarif lint.sarif -q", "For CI: the exit code and a file for the code host."},
};

const struct cli_command cmd_lint = {
    .name = "lint",
    .role = CLI_MEND,
    .summary = "find faults of a quantised model that an NPU punishes",
    .synopsis = "MODEL.onnx [--fix -o OUT.onnx] [--sarif FILE] | --rules",
    .details =
        "Reads a model in QDQ form and applies rules. Each rule was measured in Qualcomm's simulator, "
        "or is cited; --rules "
        "prints them, with what they cost and on which chipsets and SDKs they were seen.\n"
        "error: the NPU gives wrong values, or refuses the model. warning: it loses precision, or "
        "computes in another "
        "way. note: worth knowing; values are right, or off by a step. UP TO LSB: how far values of the "
        "layer can be "
        "off, in steps of its "
        "output; ?: not known without a run.\n"
        "--fix changes scales, zero points and biases only where no value changes by more than "
        "rounding, or where the NPU "
        "reads another value than the model says. What it does not mend, it says with the reason (-v). "
        "Without anything to "
        "mend no file is written.\n"
        "Exit code 0: no errors and no warnings, or all are mended (notes do not count); 1: errors or "
        "warnings are left; "
        "2: wrong usage, a file problem, or a model that is not quantised; 4: no layer was examined, for "
        "instance because the model is in QOperator format (QLinearConv) and not in QDQ form.",
    CLI_EXAMPLES,
    .options = options,
    .operand = CLI_VALUE_MODEL,
    .min_operands = 0,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
