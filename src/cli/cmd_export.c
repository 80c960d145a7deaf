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
    if (values->output == NULL)
        return cli_usage_error("export", "--output is missing");
    if (values->inputs && values->outputs)
        return cli_usage_error("export", "--inputs and --outputs cannot be given together");
    if (cli_check_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    if (nd_export_aihub(operands[1], values->output, &options, &n_tensors, &err) != ND_OK)
        return cli_report_error(&err);
    if (values->json) {
        json_t *root =
            json_pack("{s:o, s:I}", "dataset", cli_text(values->output), "tensors", (json_int_t)n_tensors);
        cli_print_json(ND_DOCUMENT_EXPORT, root);
        json_decref(root);
    } else if (!values->quiet) {
        printf("%s: %zu %s\n", values->output, n_tensors, n_tensors == 1 ? "tensor" : "tensors");
    }
    return ND_EXIT_SAME;
}

static const char *const action_names[] = {"aihub", NULL};

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("OUT.h5"), "the dataset to write"),
    OPT_TEXT('p', "probe", struct values, probe, CLI_A_PROBE_NAME, "the probe to export (the only one)"),
    OPT_FLAG(0, "outputs", struct values, outputs,
             "write what the device computed: the model's outputs, or all tensors if the capture does not say "
             "which are outputs (this is the default)"),
    OPT_FLAG(0, "inputs", struct values, inputs, "write the inputs of the run"),
    OPT_FORCE(struct values, "overwrite OUT.h5"),
    OPT_QUIET(struct values),
    OPT_JSON(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff export aihub captures/cpu.h5 -p zeros -o outputs.h5", "Writes the outputs of one probe."},
    {"npudiff export aihub captures/cpu.h5 -p zeros --inputs -o inputs.h5",
     "Writes the inputs, for a job on AI Hub."},
    {NULL, NULL},
};

const struct cli_command cmd_export = {
    .name = "export",
    .summary = "write a capture's tensors for a different tool",
    .synopsis = "aihub CAPTURE.h5 -o OUT.h5 [--probe NAME] [--inputs|--outputs]",
    .details = "Writes a dataset that Qualcomm AI Hub's client reads and uploads: names, types and shapes as "
               "in the capture, one array per sample. Quantised values stay quantised. Types that HDF5 lacks "
               "(bfloat16, 8-bit floats, 4-bit integers) are an error.\n"
               "Exit code 0: written; 2: something is missing or cannot be written, and no file was made.",
    .examples = examples,
    .options = options,
    .actions = action_names,
    .operand = CLI_VALUE_CAPTURE,
    .min_operands = 2,
    .max_operands = 2,
    .values_bytes = sizeof(struct values),
    .run = run,
};
