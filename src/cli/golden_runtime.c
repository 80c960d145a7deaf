#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/fleet.h"
#include "cli/golden.h"
#include "cli/resume.h"
#include "cli/rows.h"
#include "cli/signals.h"
#include "npudiff/compare.h"
#include "npudiff/device.h"

struct regression {
    const struct golden_values *values;
    const char *store_path;
    const struct nd_golden *store;
    struct nd_model *model;
    struct nd_probe **probes; /* [values->probes.n] */
    json_t *cells;            /* of nd_golden_plan, each with "path" once it was captured */
    json_t *rows;
};

/* ---- capturing ---- */

static enum nd_status make_probes(struct regression *regression, struct nd_error *err)
{
    const struct cli_list *specs = &regression->values->probes;
    enum nd_status status = nd_model_check_static(regression->model, err);
    return status == ND_OK
               ? nd_probes_for_model(regression->model, specs->items, specs->n, regression->probes, err)
               : status;
}

/* "KIND:CHIPSET@OLD?options" with another runtime, in new memory. What is before the last '/' says where it is:
 * "ssh:user@host/agent/cpu". */
static char *with_runtime(const char *uri, const char *runtime)
{
    size_t n_rest = strcspn(uri, "?"), size = strlen(uri) + strlen(runtime) + 2;
    const char *slash = memrchr(uri, '/', n_rest), *kind = slash != NULL ? slash + 1 : uri;
    size_t n_before = (size_t)(kind - uri) + strcspn(kind, "@?");
    char *out = malloc(size);
    if (out != NULL)
        snprintf(out, size, "%.*s@%s%s", (int)n_before, uri, runtime, uri + n_rest);
    return out;
}

static char *cell_path(const struct golden_values *values, const json_t *cell, size_t i)
{
    const char *chipset = cli_text_of(cell, "chipset");
    size_t size = strlen(values->output) + strlen(chipset) + strlen(values->runtime) + 48;
    char *path = malloc(size);
    if (path == NULL)
        return NULL;
    int n = snprintf(path, size, "%s/", values->output);
    snprintf(path + n, size - (size_t)n, "%zu-%s@%s.h5", i + 1, chipset, values->runtime);
    for (char *at = path + n; *at != '\0'; at++)
        *at = *at == '/' || *at == ' ' ? '-' : *at;
    return path;
}

static bool is_captured_alike(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "record"), json_object_get(b, "record")) &&
           json_equal(json_object_get(a, "prefixes"), json_object_get(b, "prefixes")) &&
           json_equal(json_object_get(a, "fallback_allowed"), json_object_get(b, "fallback_allowed"));
}

static enum nd_status fill_cell(const struct golden_values *values, json_t *planned, size_t i,
                                struct cli_cell *cell, struct nd_error *err)
{
    char *uri = with_runtime(cli_text_of(planned, "uri"), values->runtime);
    cell->path = cell_path(values, planned, i);
    enum nd_status status =
        uri != NULL && cell->path != NULL && json_object_set_new(planned, "path", json_string(cell->path)) == 0
            ? ND_OK
            : cli_memory_error(err);
    if (status == ND_OK)
        status = nd_device_parse(uri, &cell->device, err);
    free(uri);
    return status;
}

/* All cells from `first` on that are captured with the same options, which a fleet has in common. */
static int capture_alike(struct regression *regression, size_t first)
{
    const struct golden_values *values = regression->values;
    struct nd_error err = {0};
    size_t n = json_array_size(regression->cells);
    const json_t *like = json_array_get(regression->cells, first);
    const char *record = cli_text_of(like, "record");
    struct cli_fleet fleet = {.model = regression->model,
                              .probes = (const struct nd_probe *const *)regression->probes,
                              .n_probes = values->probes.n,
                              .cells = calloc(n, sizeof *fleet.cells),
                              .n_threads = values->jobs,
                              .is_quiet = true}; /* stdout is for the matrix */
    nd_capture_options_init(&fleet.options);
    fleet.options.edges = record[0] != '\0' ? record : NULL;
    fleet.options.replace = values->force;
    fleet.options.resume = values->resume;
    fleet.options.prefixes = json_is_true(json_object_get(like, "prefixes"));
    fleet.options.allow_fallback = json_is_true(json_object_get(like, "fallback_allowed"));
    enum nd_status status = fleet.cells != NULL ? ND_OK : cli_memory_error(&err);
    for (size_t i = first; status == ND_OK && i < n; i++) {
        json_t *planned = json_array_get(regression->cells, i);
        if (json_object_get(planned, "path") == NULL && is_captured_alike(planned, like))
            status = fill_cell(values, planned, i, &fleet.cells[fleet.n_cells++], &err);
    }
    if (status == ND_OK && values->resume)
        status = cli_resume(&fleet, &err);
    int exit_code = status == ND_OK ? cli_fleet_capture(&fleet) : cli_report_error(&err);
    cli_fleet_deinit(&fleet);
    return exit_code;
}

static int capture_cells(struct regression *regression)
{
    int exit_code = 0;
    const json_t *cell;
    size_t i;
    json_array_foreach(regression->cells, i, cell)
    {
        /* A device that failed gave a capture, and its row. */
        if (json_object_get(cell, "path") == NULL && exit_code != ND_EXIT_TROUBLE)
            exit_code = cli_worse(exit_code, capture_alike(regression, i));
    }
    return exit_code == ND_EXIT_TROUBLE ? exit_code : 0;
}

/* ---- judging ---- */

/* "48/50 -> 47/50, p 1" where labels exist and the entry keeps its capture, else "". */
static void tell_accuracy(const struct nd_golden *store, const char *id, const char *path, json_t *row)
{
    struct nd_capture *sides[2] = {NULL, NULL};
    struct nd_comparison *comparison = NULL;
    char text[96] = "";
    if (nd_golden_open_capture(store, id, &sides[0], NULL) == ND_OK &&
        nd_capture_open(path, &sides[1], NULL) == ND_OK &&
        nd_compare_captures((const struct nd_capture *const *)sides, 2, NULL, &comparison, NULL) == ND_OK) {
        for (size_t i = 0; text[0] == '\0' && i < comparison->n_top1; i++) {
            const struct nd_top1 *top1 = &comparison->top1[i];
            const struct nd_top1_pair *pair = &top1->pairs[0];
            if (!top1->has_labels || !pair->exists)
                continue;
            snprintf(text, sizeof text, "%zu/%zu -> %zu/%zu, p %.3g", top1->devices[0].n_correct,
                     pair->n_samples, top1->devices[1].n_correct, pair->n_samples, pair->p_value);
            json_object_set_new(
                row, "top1",
                json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "samples", (json_int_t)pair->n_samples,
                          "right_before", (json_int_t)top1->devices[0].n_correct, "right_after",
                          (json_int_t)top1->devices[1].n_correct, "lost", (json_int_t)pair->n_lost, "gained",
                          (json_int_t)pair->n_gained, "p_value", pair->p_value));
        }
    }
    json_object_set_new(row, "accuracy", json_string(text));
    nd_comparison_destroy(&comparison);
    nd_capture_close(&sides[0]);
    nd_capture_close(&sides[1]);
}

/* The operators of the differing edges, each once, in graph order. */
static json_t *operators(const json_t *report)
{
    char text[256] = "";
    size_t i, n = 0;
    const json_t *edge;
    json_array_foreach(json_object_get(report, "different"), i, edge)
    {
        const char *types = cli_text_of(edge, "op_types");
        size_t length = strlen(types);
        bool is_told = false;
        for (const char *at = text; !is_told && (at = strstr(at, types)) != NULL; at++)
            is_told = (at == text || at[-1] == ' ') && (at[length] == '\0' || at[length] == ',');
        if (!is_told && length > 0 && n + length + 3 < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? ", " : "", types);
    }
    return json_string(text);
}

static int judge_cell(struct regression *regression, const json_t *cell)
{
    struct nd_error err = {0};
    char *text = NULL, changed[48];
    enum nd_exit exit_code = ND_EXIT_TROUBLE;
    const char *path = cli_text_of(cell, "path");
    if (nd_golden_check(regression->store, path, regression->values->blame, &text, &exit_code, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *report = golden_read(text);
    if (report == NULL)
        return ND_EXIT_TROUBLE;
    const json_t *entry = json_object_get(report, "entry");
    size_t n_changed = json_array_size(json_object_get(report, "different"));
    snprintf(changed, sizeof changed, "%zu/%" JSON_INTEGER_FORMAT, n_changed,
             json_integer_value(json_object_get(report, "n_edges")));
    json_object_del(report, "problems");
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:o, s:o}", "chipset", cli_text_of(cell, "chipset"),
                  "ref", cli_text_of(entry, "sdk"), "test", regression->values->runtime, "verdict",
                  cli_text_of(report, "verdict"), "class_changed", exit_code != ND_EXIT_SAME, "changed",
                  changed, "first", cli_text_of(json_object_get(report, "first"), "name"), "operators",
                  operators(report), "capture", cli_text(path));
    tell_accuracy(regression->store, cli_text_of(entry, "id"), path, row);
    json_object_set_new(row, "check", report);
    return json_array_append_new(regression->rows, row) == 0 ? (int)exit_code : cli_fail_memory();
}

static int judge_cells(struct regression *regression)
{
    static const struct cli_column columns[] = {
        {"chipset", "CHIPSET"},     {"ref", "FROM"},       {"test", "TO"},
        {"verdict", "VERDICT"},     {"changed", "EDGES"},  {"first", "FIRST"},
        {"operators", "OPERATORS"}, {"accuracy", "TOP-1"}, {NULL, NULL}};
    int exit_code = 0;
    const json_t *cell, *row;
    size_t i;
    json_array_foreach(regression->cells, i, cell)
    {
        exit_code = cli_worse(exit_code, judge_cell(regression, cell));
    }
    if (regression->values->json) {
        json_t *root = json_pack("{s:O}", "matrix", regression->rows);
        cli_print_json(root);
        json_decref(root);
        return exit_code;
    }
    cli_print_table(regression->rows, columns);
    json_array_foreach(regression->rows, i, row)
    {
        if (json_is_true(json_object_get(row, "class_changed"))) {
            putchar('\n');
            golden_print_check(cli_text_of(row, "capture"), json_object_get(row, "check"));
        }
    }
    return exit_code;
}

/* ---- all of it ---- */

static int make_plan(struct regression *regression)
{
    struct nd_error err = {0};
    char *text = NULL;
    const struct golden_values *values = regression->values;
    if (nd_golden_plan(regression->store, nd_model_sha256(regression->model), values->runtime, &text, &err) !=
        ND_OK)
        return cli_report_error(&err);
    json_t *plan = golden_read(text);
    int exit_code = plan != NULL ? golden_tell_problems(regression->store_path, plan) : ND_EXIT_TROUBLE;
    regression->cells = json_incref(json_object_get(plan, "cells"));
    json_decref(plan);
    return exit_code;
}

static int run_regression(struct regression *regression)
{
    struct nd_error err = {0};
    const struct golden_values *values = regression->values;
    int exit_code = make_plan(regression);
    if (regression->cells == NULL)
        return exit_code;
    if (json_array_size(regression->cells) == 0) {
        cli_fail(CLI_E_STORE_ENTRY, regression->store_path,
                 "'%s' has no entry of model '%s' with another runtime than '%s'", regression->store_path,
                 values->model, values->runtime);
        return cli_worse(exit_code, ND_EXIT_NOT_COMPARABLE);
    }
    if (make_probes(regression, &err) != ND_OK)
        return cli_report_error(&err);
    if (mkdir(values->output, 0777) != 0 && errno != EEXIST)
        return cli_fail(CLI_E_FILE_WRITE, values->output, "cannot create folder '%s': %s", values->output,
                        strerror(errno));
    int captured = capture_cells(regression);
    if (captured != 0)
        return captured;
    return cli_worse(exit_code, judge_cells(regression));
}

int golden_check_runtime(const struct golden_values *values, const char *store_path,
                         const struct nd_golden *store)
{
    struct nd_error err = {0};
    static const char *default_probes[] = {"zeros", "ones", "ramp", "uniform"};
    struct golden_values with_probes = *values;
    if (values->probes.n == 0)
        with_probes.probes = (struct cli_list){.items = default_probes, .n = 4};
    struct regression regression = {.values = &with_probes, .store_path = store_path, .store = store};
    if (nd_model_load(values->model, &regression.model, &err) != ND_OK)
        return cli_report_error(&err);
    regression.probes = calloc(with_probes.probes.n, sizeof *regression.probes);
    regression.rows = json_array();
    int exit_code =
        regression.probes != NULL && regression.rows != NULL ? run_regression(&regression) : cli_fail_memory();
    for (size_t i = 0; regression.probes != NULL && i < with_probes.probes.n; i++)
        nd_probe_destroy(&regression.probes[i]);
    free(regression.probes);
    json_decref(regression.cells);
    json_decref(regression.rows);
    nd_model_destroy(&regression.model);
    cli_signals_end_if_came();
    return exit_code;
}
