/* What `npudiff sweep` found, as JSON and as text: a row for each setting. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "report/text/tree.h"

static const char *result_of(const struct nd_sweep_setting *setting)
{
    return setting->failure != NULL ? "failed" : setting->n_different > 0 ? "differs" : "same";
}

enum nd_status nd_report_sweep_json(const struct nd_sweep *sweep, char **out, struct nd_error *err)
{
    json_t *settings = json_array();
    for (size_t i = 0; i < sweep->n_settings; i++) {
        const struct nd_sweep_setting *setting = &sweep->settings[i];
        bool has_values = setting->failure == NULL, has_labels = setting->n_labelled > 0;
        nd_tree_append(
            settings,
            json_pack("{s:o, s:o, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                      "option", nd_or_null(setting->option), "value", nd_or_null(setting->value), "effect",
                      nd_config_effect_name(setting->effect), "uri", nd_json_string(setting->uri), "result",
                      result_of(setting), "failure", nd_or_null(setting->failure), "tensors",
                      nd_int(setting->n_tensors), "tensors_different", nd_int(setting->n_different),
                      "first_difference", nd_or_null(setting->first), "output_share",
                      has_values ? nd_json_number(setting->output_share) : json_null(), "output_lsb",
                      has_values ? nd_int(setting->output_lsb) : json_null(), "sqnr_db",
                      nd_json_known(setting->sqnr_db), "labelled", nd_int(setting->n_labelled), "right",
                      has_labels ? nd_int(setting->n_right) : json_null(), "classes_changed",
                      has_values ? nd_int(setting->n_changed) : json_null(), "median_us",
                      nd_json_known(setting->median_us)));
    }
    json_t *members = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "result",
                                sweep->n_failed > 0     ? "failed"
                                : sweep->n_changing > 0 ? "differs"
                                                        : "same",
                                "model", nd_json_string(sweep->model), "device", nd_json_string(sweep->device),
                                "environment", nd_json_string(sweep->environment), "samples",
                                nd_int(sweep->n_samples), "changing", nd_int(sweep->n_changing), "failed",
                                nd_int(sweep->n_failed + sweep->n_refused), "settings", settings);
    return nd_tree_end(ND_DOCUMENT_SWEEP, members, out, err);
}

static void say_headline(struct nd_report_screen *screen, const struct nd_sweep *sweep)
{
    size_t n = sweep->n_settings - 1 - sweep->n_refused;
    if (sweep->n_failed > 0)
        nd_report_screen_put(screen, "FAILED: the device fails with %zu of %zu settings; %zu change bits\n",
                             sweep->n_failed, n, sweep->n_changing);
    else if (sweep->n_changing > 0)
        nd_report_screen_put(screen, "DIFFERS: %zu of %zu settings change bits\n", sweep->n_changing, n);
    else
        nd_report_screen_put(screen, "SAME: all %zu settings give the same bits\n", n);
    if (sweep->n_refused > 0)
        nd_report_screen_put(screen, "The device does not run with %zu of the usual settings.\n",
                             sweep->n_refused);
    nd_report_screen_put(screen, "%s on %s%s%s%s, %zu sample%s\n", nd_path_base(sweep->model), sweep->device,
                         sweep->environment[0] != '\0' ? " (" : "", sweep->environment,
                         sweep->environment[0] != '\0' ? ")" : "", sweep->n_samples,
                         sweep->n_samples == 1 ? "" : "s");
}

static char *name_of(const struct nd_sweep_setting *setting)
{
    struct nd_strbuf text = {0};
    if (setting->option == NULL)
        nd_strbuf_puts(&text, "as it is");
    else
        nd_strbuf_printf(&text, "%s=%s", setting->option, setting->value);
    return nd_strbuf_take(&text);
}

static json_t *row_of(const struct nd_sweep_setting *setting)
{
    char text[96], *name = name_of(setting);
    json_t *row = json_pack("{s:o}", "setting", nd_json_string(name));
    free(name);
    if (setting->failure != NULL) {
        nd_tree_set(row, "tensors", nd_json_string("failed"));
        return row;
    }
    if (setting->option != NULL) {
        snprintf(text, sizeof text, "%zu of %zu", setting->n_different, setting->n_tensors);
        nd_tree_set(row, "tensors", nd_json_string(text));
        nd_tree_set(row, "first", setting->first != NULL ? nd_json_string(setting->first) : json_null());
        nd_tree_set(row, "outputs", json_string(ND_PERCENT(setting->output_share)));
    }
    if (setting->n_labelled > 0)
        nd_tree_set(row, "right", json_integer((json_int_t)setting->n_right));
    nd_tree_number(row, "sqnr", "%.2f", setting->sqnr_db);
    nd_tree_number(row, "time", setting->median_us < 1e6 ? "%.3g ms" : "%.0f ms", setting->median_us / 1e3);
    return row;
}

/* Without those that nobody asked for. */
static size_t choose_columns(const struct nd_sweep *sweep, struct nd_report_column columns[static 8])
{
    static const struct nd_report_column all[] = {
        {"setting", "SETTING"}, {"tensors", "TENSORS"}, {"first", "FIRST AT"}, {"outputs", "OUTPUTS"},
        {"right", "RIGHT"},     {"sqnr", "DB"},         {"time", "TIME"}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        bool is_empty = (strcmp(all[i].key, "right") == 0 && sweep->settings[0].n_labelled == 0) ||
                        (strcmp(all[i].key, "sqnr") == 0 && isnan(sweep->settings[0].sqnr_db)) ||
                        (strcmp(all[i].key, "first") == 0 && sweep->n_changing == 0);
        if (!is_empty)
            columns[n++] = all[i];
    }
    columns[n] = (struct nd_report_column){NULL, NULL};
    return n;
}

static void say_failures(struct nd_report_screen *screen, const struct nd_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_settings; i++)
        if (sweep->settings[i].failure != NULL) {
            nd_report_screen_put(screen, "%s=%s failed: %.200s\n", sweep->settings[i].option,
                                 sweep->settings[i].value, sweep->settings[i].failure);
            return; /* one is enough for a screen */
        }
}

enum nd_status nd_report_sweep_brief(const struct nd_sweep *sweep, size_t width, char **out,
                                     struct nd_error *err)
{
    struct nd_report_screen *screen = nd_report_screen_create(width);
    struct nd_report_column columns[8];
    json_t *rows = json_array();
    choose_columns(sweep, columns);
    for (size_t i = 0; i < sweep->n_settings; i++)
        nd_tree_append(rows, row_of(&sweep->settings[i]));
    say_headline(screen, sweep);
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, rows, columns, "-v shows all");
    nd_report_screen_put(screen,
                         "\nTENSORS, OUTPUTS: tensors and output values with another bit than as it is.%s%s\n",
                         sweep->settings[0].n_labelled > 0 ? " RIGHT: top-1 classes." : "",
                         isnan(sweep->settings[0].sqnr_db) ? "" : " DB: outputs to the float model.");
    if (strstr(sweep->environment, "simulator") != NULL)
        nd_report_screen_put(screen,
                             "TIME is the simulator's, on this computer: it says nothing of a chip's.\n");
    say_failures(screen, sweep);
    return nd_report_screen_end(&screen, out, err);
}

enum nd_status nd_report_sweep_text(const struct nd_sweep *sweep, size_t width, char **out,
                                    struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"setting", "SETTING"}, {"known", "WHAT IS KNOWN"},
                                                      {"tensors", "TENSORS"}, {"first", "FIRST AT"},
                                                      {"outputs", "OUTPUTS"}, {"lsb", "LSB"},
                                                      {"right", "RIGHT"},     {"changed", "CLASSES CHANGED"},
                                                      {"sqnr", "DB"},         {"time", "TIME"},

                                                      {"uri", "DEVICE"},      {NULL, NULL}};
    struct nd_strbuf text = {0};
    char *brief = NULL;
    ND_TRY(nd_report_sweep_brief(sweep, width, &brief, err));
    nd_strbuf_puts(&text, brief);
    free(brief);
    json_t *rows = json_array();
    for (size_t i = 0; i < sweep->n_settings; i++) {
        const struct nd_sweep_setting *setting = &sweep->settings[i];
        json_t *row = row_of(setting);
        bool has_values = setting->failure == NULL && setting->option != NULL;
        nd_tree_set(row, "known",
                    setting->option != NULL ? nd_json_string(nd_config_effect_name(setting->effect))
                                            : json_null());
        nd_tree_set(row, "lsb", has_values ? json_integer((json_int_t)setting->output_lsb) : json_null());
        nd_tree_set(row, "changed", has_values ? json_integer((json_int_t)setting->n_changed) : json_null());
        nd_tree_set(row, "uri", nd_json_string(setting->uri));
        nd_tree_append(rows, row);
    }
    nd_strbuf_puts(&text, "\nAll settings. LSB: the largest difference of an output, in its steps.\n");
    nd_rows_put(&text, rows, columns);
    json_decref(rows);
    for (size_t i = 0; i < sweep->n_settings; i++)
        if (sweep->settings[i].failure != NULL)
            nd_strbuf_printf(&text, "%s=%s failed: %s\n", sweep->settings[i].option, sweep->settings[i].value,
                             sweep->settings[i].failure);
    return nd_text_end(&text, out, err);
}
