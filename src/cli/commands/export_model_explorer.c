/* `npudiff export model-explorer`: node data for Google's Model Explorer. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/commands/export.h"
#include "cli/commands/report_documents.h"
#include "cli/options/capture_paths.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"

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
    json_t *rows = json_array();
    if (!cli_make_folder(values->output, &n_old)) {
        json_decref(rows);
        return ND_EXIT_TROUBLE;
    }
    int exit_code = write_files(values, data, rows);
    if (values->answer.json) {
        json_t *root = json_pack("{s:o, s:o, s:o, s:O}", "model", cli_text(model), "graph",
                                 cli_text(data->graph), "folder", cli_text(values->output), "files", rows);
        cli_print_json(ND_DOCUMENT_NODE_DATA, root);
        json_decref(root);
    } else if (exit_code == 0 && !values->answer.quiet) {
        struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
        nd_report_screen_put(screen, "%s: %zu file%s. Open them in Model Explorer, over the model %s.\n",
                             values->output, data->n, data->n == 1 ? "" : "s", model);
        exit_code = cli_print_screen(screen, NULL);
    }
    json_decref(rows);
    return exit_code;
}

int cli_export_model_explorer(const struct export_values *values, const char *const *operands, size_t n)
{
    struct nd_error err = {0};
    struct nd_node_data data = {0};
    struct nd_model *model = NULL;
    struct report_documents *documents = calloc(1, sizeof *documents);
    if (documents == NULL)
        return cli_fail_memory();
    const struct report_sources sources = {.quantised = operands[0], .quiet = values->answer.quiet};
    enum nd_status status = nd_model_load(operands[0], &model, &err);
    if (status == ND_OK)
        status = report_documents_of_operands(documents, operands + 1, n - 1, &sources, &err);
    if (status == ND_OK)
        status = nd_report_node_data(model, documents->items, documents->n, &data, &err);
    int exit_code = status == ND_OK ? write_all(values, operands[0], &data) : cli_report_error(&err);
    nd_node_data_deinit(&data);
    nd_model_destroy(&model);
    report_documents_deinit(documents);
    free(documents);
    return exit_code;
}
