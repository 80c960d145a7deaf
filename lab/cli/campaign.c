/* `npudiff fingerprint --campaign`: datasheets of several devices and runtimes in one folder
 * (docs/reference/datasheet.md#campaigns). */
#include "lab/cli/campaign.h"
#include "core/memory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "lab/cli/brief.h"

/* ---- devices ---- */

/* "htp-sim:gen3?key=value" with a runtime is "htp-sim:gen3@RUNTIME?key=value". */
static char *with_runtime(const char *uri, const char *runtime)
{
    size_t n = strcspn(uri, "?"), size = strlen(uri) + strlen(runtime) + 2;
    char *text = malloc(size);
    if (text != NULL)
        snprintf(text, size, "%.*s@%s%s", (int)n, uri, runtime, uri + n);
    return text;
}

static enum nd_status add_device(struct cli_fleet *fleet, const char *uri, const char *runtime,
                                 struct nd_error *err)
{
    ND_FREED char *text = with_runtime(uri, runtime);
    const char *items[] = {text};
    return text != NULL ? cli_fleet_set_devices(fleet, &(struct cli_list){items, 1}, err)
                        : cli_memory_error(err);
}

/* Every device with every runtime, or as it was named. */
static enum nd_status set_devices(const struct fingerprint_values *values, struct cli_fleet *fleet,
                                  struct nd_error *err)
{
    if (values->runtimes.n == 0)
        return cli_fleet_set_devices(fleet, &values->devices, err);
    for (size_t r = 0; r < values->runtimes.n; r++)
        for (size_t d = 0; d < values->devices.n; d++)
            ND_TRY(add_device(fleet, values->devices.items[d], values->runtimes.items[r], err));
    return ND_OK;
}

/* ---- what is there ---- */

static bool is_asked_for(const struct fingerprint_values *values, const char *section)
{
    size_t i = 0;
    while (i < values->sections.n && strcmp(values->sections.items[i], section) != 0)
        i++;
    return i < values->sections.n;
}

/* The sections that a cell is taken with: those that are asked for, and those that its datasheet has already;
 * none stands for all. The caller frees the items; false: memory is out. */
static bool choose_sections(const struct fingerprint_values *values, const json_t *sheet, struct cli_list *list)
{
    const char *section;
    json_t *entries, *sections = json_object_get(sheet, "sections");
    size_t n = values->sections.n;
    *list = (struct cli_list){calloc(n + json_object_size(sections) + 1, sizeof *list->items), n};
    if (list->items == NULL || n == 0)
        return list->items != NULL;
    memcpy(list->items, values->sections.items, n * sizeof *list->items);
    json_object_foreach(sections, section, entries) {
        if (!is_asked_for(values, section))
            list->items[list->n++] = section;
    }
    return true;
}

/* Nothing is left to take: the datasheet has every section that is asked for, and is of this version of
 * npudiff. The next one may know more arithmetics. */
static bool is_complete(const struct fingerprint_values *values, const json_t *sheet)
{
    const json_t *sections = json_object_get(sheet, "sections");
    const char *name;
    for (size_t i = 0; i < values->sections.n; i++)
        if (json_object_get(sections, values->sections.items[i]) == NULL)
            return false;
    for (size_t i = 0; values->sections.n == 0 && (name = nd_fingerprint_section(i)) != NULL; i++)
        if (json_object_get(sections, name) == NULL)
            return false;
    return strcmp(cli_text_of(sheet, "npudiff"), nd_version()) == 0;
}

/* The cell's datasheet, NULL: there is none. A file that is not it is not overwritten. */
static enum nd_status find_sheet(const struct fingerprint_values *values, const struct cli_cell *cell,
                                 json_t **sheet, struct nd_error *err)
{
    *sheet = NULL;
    if (access(cell->path, F_OK) != 0)
        return ND_OK;
    json_t *found = json_load_file(cell->path, 0, NULL);
    if (strcmp(cli_text_of(json_object_get(found, "device"), "uri"), cell->device.uri) == 0) {
        *sheet = found;
        return ND_OK;
    }
    json_decref(found);
    return values->force
               ? ND_OK
               : cli_error(err, ND_ERR_IO, CLI_E_FILE_EXISTS, cell->path,
                           "'%s' exists already and is not the datasheet of '%s'; --force overwrites it",
                           cell->path, cell->device.uri);
}

/* ---- taking ---- */

struct campaign {
    const struct fingerprint_values *values;
    struct cli_fleet fleet;
    struct cli_progress *progress;
    char *answers;
    size_t n_kept;
    int exit_code;
};

/* Keeps what was taken, unless the device failed in everything: then it is tried again the next time. */
static int keep(const struct cli_cell *cell, const char *text)
{
    json_auto_t *sheet = json_loads(text, 0, NULL);
    if (sheet == NULL)
        return cli_fail_memory();
    int exit_code = fingerprint_judge(sheet, cell->device.label);
    return exit_code != 0 ? exit_code : cli_write_text(cell->path, text, true);
}

/* Sheet: what is there of it; nullable. */
static int take_cell(struct campaign *c, size_t i, const json_t *sheet)
{
    const struct cli_cell *cell = &c->fleet.cells[i];
    struct fingerprint_order order = {.device = &cell->device,
                                      .label = cell->device.label,
                                      .answers = c->answers,
                                      .progress = c->progress,
                                      .index = i};
    struct nd_error err = {0};
    char *text = NULL;
    if (!choose_sections(c->values, sheet, &order.sections))
        return cli_fail_memory();
    enum nd_status status = fingerprint_take(c->values, &order, &text, &err);
    cli_progress_done(c->progress, i);
    int exit_code = 0;
    if (!cli_signals_came(NULL))
        exit_code = status == ND_OK ? keep(cell, text) : cli_report_error(&err);
    free(text);
    free(order.sections.items);
    return exit_code;
}

static int run_cell(struct campaign *c, size_t i)
{
    struct nd_error err = {0};
    json_t *sheet = NULL;
    if (find_sheet(c->values, &c->fleet.cells[i], &sheet, &err) != ND_OK)
        return cli_report_error(&err);
    bool is_kept = sheet != NULL && !c->values->force && is_complete(c->values, sheet);
    int exit_code = is_kept ? 0 : take_cell(c, i, sheet);
    json_decref(sheet);
    if (exit_code == 0 && !cli_signals_came(NULL))
        c->n_kept++;
    return exit_code;
}

/* A cell that cannot be taken does not end the campaign. */
static void run_cells(struct campaign *c)
{
    char kept[200];
    c->progress = cli_progress_create(c->fleet.n_cells, 1, c->values->answer.quiet);
    cli_signals_catch();
    for (size_t i = 0; i < c->fleet.n_cells && !cli_signals_came(NULL); i++)
        c->exit_code = cli_worse(c->exit_code, run_cell(c, i));
    cli_progress_destroy(c->progress);
    snprintf(kept, sizeof kept, "%zu of %zu datasheets are kept, and the answers of the next", c->n_kept,
             c->fleet.n_cells);
    cli_stopped_tell(kept, "");
    cli_signals_end_if_came();
}

/* ---- the table ---- */

struct sheets {
    struct nd_datasheet *items; /* [n]: texts and names are owned */
    size_t n;
};

static int is_json_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && cli_ends_with(entry->d_name, ".json");
}

static void free_sheets(struct sheets *sheets)
{
    for (size_t i = 0; i < sheets->n; i++) {
        free((char *)(uintptr_t)sheets->items[i].text);
        free((char *)(uintptr_t)sheets->items[i].name);
    }
    free(sheets->items);
}

/* All files of the folder, by name. 0, or the exit code of an error. */
static int read_sheets(const char *folder, struct sheets *sheets)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_json_file, alphasort), exit_code = 0;
    if (n < 0)
        return cli_fail(CLI_E_FILE_READ, folder, "cannot read the folder '%s'", folder);
    sheets->items = calloc((size_t)n + 1, sizeof *sheets->items);
    for (int i = 0; i < n; i++) {
        char *path = sheets->items != NULL && exit_code == 0 ? cli_path_in(folder, entries[i]->d_name) : NULL;
        char *text = path != NULL ? fingerprint_read(path) : NULL;
        if (text != NULL)
            sheets->items[sheets->n++] = (struct nd_datasheet){text, path};
        else
            free(path);
        exit_code = text != NULL ? exit_code : ND_EXIT_TROUBLE;
        free(entries[i]);
    }
    free(entries);
    if (exit_code == 0 && n == 0)
        return cli_fail(CLI_E_FILE_READ, folder, "'%s' holds no datasheet; -d DEVICE takes one", folder);
    return exit_code;
}

static int print_table(const struct fingerprint_values *values)
{
    struct sheets sheets = {0};
    struct nd_error err = {0};
    char *json = NULL;
    bool is_same = true;
    int exit_code = read_sheets(values->campaign, &sheets);
    if (exit_code == 0 && nd_fingerprint_campaign(sheets.items, sheets.n, &json, &is_same, &err) != ND_OK)
        exit_code = cli_report_error(&err);
    free_sheets(&sheets);
    if (exit_code != 0)
        return exit_code;
    json_auto_t *table = json_loads(json, 0, NULL);
    if (table == NULL)
        exit_code = cli_fail_memory();
    else if (values->answer.json)
        exit_code = cli_print_made(ND_OK, json, true, NULL);
    else if (!values->answer.quiet)
        exit_code = fingerprint_print_campaign(table, values->campaign, values->verbose);
    if (!values->answer.json || table == NULL)
        free(json);
    return exit_code != 0 || is_same ? exit_code : ND_EXIT_DIFFERS;
}

int fingerprint_campaign(const struct fingerprint_values *values)
{
    struct campaign c = {.values = values, .answers = cli_path_in(values->campaign, "answers")};
    struct nd_error err = {0};
    size_t n_old;
    enum nd_status status = set_devices(values, &c.fleet, &err);
    if (status == ND_OK && (c.answers == NULL || !cli_name_files(&c.fleet, values->campaign, ".json")))
        status = cli_memory_error(&err);
    int exit_code = status != ND_OK ? cli_report_error(&err) : 0;
    if (exit_code == 0 && c.fleet.n_cells > 0) {
        exit_code = cli_make_folder(values->campaign, &n_old) ? 0 : ND_EXIT_TROUBLE;
        if (exit_code == 0)
            run_cells(&c);
    }
    if (exit_code == 0)
        exit_code = c.exit_code != ND_EXIT_TROUBLE ? cli_worse(c.exit_code, print_table(values)) : c.exit_code;
    cli_fleet_deinit(&c.fleet);
    free(c.answers);
    return exit_code;
}
