/* `npudiff export`: results as files for other tools. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/record/import.h"

struct export_values {
    const char *output, *probe;
    bool inputs, outputs, force;
    struct cli_answer answer;
};

/* ---- Model Explorer ---- */

/* Adds what was written to rows. */
static int write_files(const struct export_values *values, const struct nd_node_data *data, json_t *rows)
{
    int exit_code = 0;
    for (size_t i = 0; exit_code == 0 && i < data->n; i++) {
        const struct nd_node_data_file *file = &data->files[i];
        char *path = cli_path_in(values->output, file->name);
        exit_code = path != NULL ? cli_write_text(path, file->json, values->force) : cli_fail_memory();
        if (exit_code == 0)
            json_array_append_new(rows, json_pack("{s:o, s:s, s:I}", "path", cli_text(path), "measure",
                                                  file->measure, "nodes", (json_int_t)file->n_nodes));
        free(path);
    }
    return exit_code;
}

static int write_all(const struct export_values *values, const char *model, const struct nd_node_data *data)
{
    size_t n_old = 0;
    json_auto_t *rows = json_array();
    if (!cli_make_folder(values->output, &n_old))
        return ND_EXIT_TROUBLE;
    int exit_code = write_files(values, data, rows);
    if (values->answer.json) {
        cli_print_json(ND_DOCUMENT_NODE_DATA,
                       json_pack("{s:o, s:o, s:o, s:O}", "model", cli_text(model), "graph",
                                 cli_text(data->graph), "folder", cli_text(values->output), "files", rows));
    } else if (exit_code == 0 && !values->answer.quiet) {
        struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
        nd_report_screen_put(screen, "%s: %zu file%s. Open them in Model Explorer, over the model %s.\n",
                             values->output, data->n, data->n == 1 ? "" : "s", model);
        exit_code = cli_print_screen(screen);
    }
    return exit_code;
}

/* operands: the model, and the captures or results. Returns the exit code. */
static int cli_export_model_explorer(const struct export_values *values, const char *const *operands, size_t n)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_node_data_deinit) struct nd_node_data data = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    CLI_OWNED(report_documents_deinit) struct report_documents documents = {0};
    const struct report_sources sources = {.quantised = operands[0], .quiet = values->answer.quiet};
    if (nd_model_load(operands[0], &model, &err) != ND_OK ||
        report_documents_of_operands(&documents, operands + 1, n - 1, &sources, &err) != ND_OK ||
        nd_report_node_data(model, documents.items, documents.n, &data, &err) != ND_OK)
        return cli_report_error(&err);
    return write_all(values, operands[0], &data);
}

/* ---- the command ---- */

enum { AIHUB, MODEL_EXPLORER };

static const char *const action_names[] = {[AIHUB] = "aihub", [MODEL_EXPLORER] = "model-explorer", NULL};

static int export_aihub(const struct export_values *values, const char *capture)
{
    struct nd_error err = {0};
    size_t n_tensors = 0;
    const struct nd_export_options options = {.struct_size = sizeof options,
                                              .probe = values->probe,
                                              .inputs = values->inputs,
                                              .replace = values->force};
    if (values->inputs && values->outputs)
        return cli_usage_error("export", "--inputs and --outputs cannot be given together");
    if (cli_check_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    if (nd_export_aihub(capture, values->output, &options, &n_tensors, &err) != ND_OK)
        return cli_report_error(&err);
    if (values->answer.json)
        cli_print_json(ND_DOCUMENT_EXPORT, json_pack("{s:o, s:I}", "dataset", cli_text(values->output),
                                                     "tensors", (json_int_t)n_tensors));
    else if (!values->answer.quiet)
        printf("%s: %zu %s\n", values->output, n_tensors, n_tensors == 1 ? "tensor" : "tensors");
    return ND_EXIT_SAME;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct export_values *values = context;
    if (values->output == NULL)
        return cli_usage_error("export", "--output is missing");
    if (strcmp(operands[0], action_names[AIHUB]) == 0) {
        if (n_operands != 2)
            return cli_usage_error("export", "'export aihub' takes one capture, not %zu", n_operands - 1);
        return export_aihub(values, operands[1]);
    }
    if (n_operands < 3)
        return cli_usage_error("export",
                               "'export model-explorer' takes a model, and captures or RESULT.json after it");
    if (values->probe != NULL || values->inputs || values->outputs)
        return cli_usage_error("export", "--probe, --inputs and --outputs are for 'export aihub'");
    return cli_export_model_explorer(values, operands + 1, n_operands - 1);
}

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct export_values, output, CLI_A_FILE("OUT"),
             "the dataset OUT.h5, or the folder for Model Explorer's files, to write"),
    OPT_TEXT('p', "probe", struct export_values, probe, CLI_A_PROBE_NAME,
             "aihub: the probe to export (the only one)"),
    OPT_FLAG(0, "outputs", struct export_values, outputs,
             "aihub: write what the device computed: the model's outputs, or all tensors if the capture does "
             "not say which are outputs (this is the default)"),
    OPT_FLAG(0, "inputs", struct export_values, inputs, "aihub: write the inputs of the run"),
    OPT_FORCE(struct export_values, "overwrite existing files"),
    OPT_ANSWER_PLAIN(struct export_values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff export aihub captures/cpu.h5 -p zeros -o outputs.h5", "Writes the outputs of one probe."},
    {"npudiff export aihub captures/cpu.h5 -p zeros --inputs -o inputs.h5",
     "Writes the inputs, for a job on AI Hub."},
    {"npudiff export model-explorer model.onnx captures/cpu.h5 captures/gen3.h5 -o overlays",
     "Colours the nodes of the graph in Model Explorer by what differs, and by whose fault it is."},
};

const struct cli_command cmd_export = {
    .name = "export",
    .role = CLI_FILES,
    .summary = "write a capture's tensors, or what differs, for a different tool",
    .synopsis = "aihub CAPTURE.h5 -o OUT.h5 | model-explorer MODEL.onnx RESULT.json|CAPTURE.h5 ... -o FOLDER",
    .details = "aihub: writes a dataset that Qualcomm AI Hub's client reads and uploads: names, types and "
               "shapes as in the capture, one array per sample. Quantised values stay quantised. Types that "
               "HDF5 lacks (bfloat16, 8-bit floats, 4-bit integers) are an error.\n"
               "model-explorer: writes a file for each device and measure that Google's Model Explorer shows "
               "over the graph of the model: verdict, share of values that differ, largest difference in LSB; "
               "layer (healthy, unexplained, faulty), share of values that differ because of the layer, and "
               "its effect on the outputs. RESULT.json: what compare, explain or run printed with --json. "
               "CAPTURE.h5: several are compared with the first, and all are explained.\n"
               "Exit code 0: written; 2: something is missing or cannot be written.",
    CLI_TABLES(struct export_values),
    .actions = action_names,
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 2, CLI_ANY_NUMBER),
};
