#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/rows.h"
#include "npudiff/import.h"

struct values {
    const char *output;
    const char *probe;
    bool inputs;
    bool outputs;
    bool force;
    bool json;
    bool quiet;
};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    size_t n_tensors = 0;
    const struct nd_export_options options = {.struct_size = sizeof options,
                                              .probe = values->probe,
                                              .inputs = values->inputs,
                                              .replace = values->force};
    if (strcmp(operands[0], "aihub") != 0)
        return cli_usage_error("export", "there is no format '%s'; there is aihub", operands[0]);
    if (values->output == NULL)
        return cli_usage_error("export", "--output is needed");
    if (values->inputs && values->outputs)
        return cli_usage_error("export", "--inputs and --outputs exclude one another");
    if (cli_check_output(values->output, values->force, "--force replaces it") != 0)
        return ND_EXIT_TROUBLE;
    if (nd_export_aihub(operands[1], values->output, &options, &n_tensors, &err) != ND_OK)
        return cli_report_error(&err);
    if (values->json) {
        json_t *root =
            json_pack("{s:o, s:I}", "dataset", cli_text(values->output), "tensors", (json_int_t)n_tensors);
        cli_print_json(root);
        json_decref(root);
    } else if (!values->quiet) {
        printf("%s: %zu %s\n", values->output, n_tensors, n_tensors == 1 ? "tensor" : "tensors");
    }
    return ND_EXIT_SAME;
}

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("OUT.h5"), "the dataset to make"),
    OPT_TEXT(0, "probe", struct values, probe, CLI_A_PROBE_NAME, "which probe (default: the only one)"),
    OPT_FLAG(0, "outputs", struct values, outputs,
             "what the device gave: the model's outputs, or all edges where the capture does not know them "
             "(default)"),
    OPT_FLAG(0, "inputs", struct values, inputs, "what it was fed"),
    OPT_FORCE(struct values, "replace OUT.h5"),
    OPT_QUIET(struct values),
    OPT_JSON(struct values),
    {.name = NULL},
};

const struct cli_command cmd_export = {
    .name = "export",
    .summary = "write a capture's tensors for another tool",
    .synopsis = "aihub CAPTURE.h5 -o OUT.h5 [--probe NAME] [--inputs|--outputs]",
    .details = "Writes a dataset as Qualcomm AI Hub's client reads and uploads it: names, types and shapes as "
               "in the capture, every sample apart. Codes stay codes. Types that HDF5 lacks (bfloat16, 8-bit "
               "floats, 4-bit integers) are refused.\nExit code 0, or 2 when something is missing or cannot be "
               "written; then nothing is left behind.",
    .options = options,
    .min_operands = 2,
    .max_operands = 2,
    .values_bytes = sizeof(struct values),
    .run = run,
};
