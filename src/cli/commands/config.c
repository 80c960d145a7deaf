#include <stdio.h>

#include "cli/options/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/compare/config.h"

struct values {
    bool verbose;
    bool json;
    bool quiet;
};

/* ---- one capture ---- */

/* Those that can change bits; `rows` are theirs. */
static int print_settings(const struct values *values, const struct nd_capture *capture, json_t *rows, size_t n,
                          size_t n_bits)
{
    static const struct nd_report_column columns[] = {{"key", "SETTING"}, {"value", "VALUE"}, {NULL, NULL}};
    const char *next[] = {"npudiff", "config", nd_capture_path(capture), "OTHER.h5"};
    if (values->quiet) {
        json_decref(rows);
        return 0;
    }
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    nd_report_screen_put(screen, "%s: %zu settings; these %zu can change values (-v lists all)\n\n",
                         cli_file_name(nd_capture_path(capture)), n, n_bits);
    cli_screen_rows(screen, rows, columns, "-v lists all");
    nd_report_screen_next(screen, "to see what differs from a different capture", next,
                          sizeof next / sizeof next[0]);
    return cli_print_screen(screen, NULL);
}

static int show(const struct values *values, const struct nd_capture *capture)
{
    static const struct nd_report_column columns[] = {
        {"key", "SETTING"}, {"value", "VALUE"}, {"effect", "EFFECT"}, {NULL, NULL}};
    struct nd_error err = {0};
    struct nd_config config = {0};
    if (nd_config_of_capture(capture, &config, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *rows = json_array();
    bool is_full = values->json || values->verbose;
    size_t n = config.n, n_bits = 0;
    for (size_t i = 0; i < config.n; i++) {
        const struct nd_config_item *item = &config.items[i];
        n_bits += item->effect == ND_CONFIG_BITS;
        if (!is_full && item->effect != ND_CONFIG_BITS)
            continue;
        json_array_append_new(rows,
                              json_pack("{s:o, s:o, s:s}", "key", cli_text(item->key), "value",
                                        cli_text(item->value), "effect", nd_config_effect_name(item->effect)));
    }
    nd_config_deinit(&config);
    if (!is_full)
        return print_settings(values, capture, rows, n, n_bits);
    return cli_print_rows(ND_DOCUMENT_SETTINGS, "settings", rows, columns, values->json);
}

/* ---- several ---- */

static json_t *change_rows(const struct nd_config_diff *diff)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < diff->n; i++) {
        const struct nd_config_change *change = &diff->changes[i];
        json_array_append_new(rows, json_pack("{s:o, s:o, s:o, s:s}", "key", cli_text(change->key), "ref",
                                              change->ref != NULL ? cli_text(change->ref) : json_null(), "test",
                                              change->test != NULL ? cli_text(change->test) : json_null(),
                                              "effect", nd_config_effect_name(change->effect)));
    }
    return rows;
}

/* The rows of the settings that can change bits; of all where there are none. */
static json_t *rows_that_change_bits(const json_t *rows, const struct nd_config_diff *diff)
{
    json_t *chosen = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        if (diff->n_bits == 0 || diff->changes[i].effect == ND_CONFIG_BITS)
            json_array_append(chosen, row);
    }
    return chosen;
}

static int print_pair(const struct values *values, const struct nd_capture *ref, const struct nd_capture *test,
                      const struct nd_config_diff *diff, json_t *rows)
{
    static const struct nd_report_column columns[] = {
        {"key", "SETTING"}, {"ref", "REF"}, {"test", "TEST"}, {"effect", "EFFECT"}, {NULL, NULL}};
    static const struct nd_report_column brief_columns[] = {
        {"key", "SETTING"}, {"ref", "REF"}, {"test", "TEST"}, {NULL, NULL}};
    if (values->verbose) {
        printf("%s against %s: %zu settings differ, %zu of them can change values\n", nd_capture_path(test),
               nd_capture_path(ref), diff->n, diff->n_bits);
        if (json_array_size(rows) > 0)
            cli_print_table(rows, columns);
        return ND_EXIT_SAME;
    }
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    size_t n_others = diff->n - diff->n_bits;
    if (diff->n == 0)
        nd_report_screen_put(screen, "SAME: all settings of '%s' and '%s' are equal\n", nd_capture_path(test),
                             nd_capture_path(ref));
    else
        nd_report_screen_put(screen, "DIFFERS: %zu settings of '%s' are not those of '%s' (REF)\n", diff->n,
                             nd_capture_path(test), nd_capture_path(ref));
    if (diff->n > 0)
        nd_report_screen_put(screen, "%zu of them can change values%s.\n\n", diff->n_bits,
                             n_others > 0 ? "; -v also lists those that cannot, or of which nobody knows" : "");
    json_t *shown = rows_that_change_bits(rows, diff);
    if (json_array_size(shown) > 0)
        cli_screen_rows(screen, shown, brief_columns, "-v lists all");
    else
        json_decref(shown);
    return cli_print_screen(screen, NULL);
}

/* The exit code; adds the pair to `pairs`. */
static int compare(const struct values *values, const struct nd_capture *ref, const char *path, json_t *pairs)
{
    struct nd_error err = {0};
    struct nd_capture *test = NULL;
    struct nd_config_diff diff = {0};
    if (nd_capture_open(path, &test, &err) != ND_OK || nd_config_diff(ref, test, &diff, &err) != ND_OK) {
        nd_capture_close(&test);
        return cli_report_error(&err);
    }
    json_t *rows = change_rows(&diff);
    int printed = ND_EXIT_SAME;
    if (!values->json && !values->quiet)
        printed = print_pair(values, ref, test, &diff, rows);
    json_array_append_new(pairs, json_pack("{s:o, s:o, s:I, s:o}", "ref", cli_text(nd_capture_path(ref)),
                                           "test", cli_text(path), "can_change_bits", (json_int_t)diff.n_bits,
                                           "settings", rows));
    int exit_code = cli_worse(printed, diff.n > 0 ? ND_EXIT_DIFFERS : ND_EXIT_SAME);
    nd_config_diff_deinit(&diff);
    nd_capture_close(&test);
    return exit_code;
}

static int compare_all(const struct values *values, const struct nd_capture *ref, const char *const *paths,
                       size_t n)
{
    json_t *pairs = json_array();
    int exit_code = 0;
    for (size_t i = 0; i < n && exit_code != ND_EXIT_TROUBLE; i++)
        exit_code = cli_worse(exit_code, compare(values, ref, paths[i], pairs));
    if (exit_code != ND_EXIT_TROUBLE && values->json)
        return cli_print_rows(ND_DOCUMENT_SETTINGS_DIFFERENCE, "pairs", pairs, NULL, true) != 0
                   ? ND_EXIT_TROUBLE
                   : exit_code;
    json_decref(pairs);
    return exit_code;
}

/* ---- the command ---- */

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_capture *ref = NULL;
    if (nd_capture_open(operands[0], &ref, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code =
        n_operands == 1 ? show(values, ref) : compare_all(values, ref, operands + 1, n_operands - 1);
    nd_capture_close(&ref);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_VERBOSE(struct values, "print all settings in full, with their effects"),
    OPT_JSON(struct values),
    OPT_QUIET_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff config captures/cpu.h5", "Prints all settings of one capture."},
    {"npudiff config captures/cpu.h5 captures/gen3.h5", "Prints the settings that differ."},
    {NULL, NULL},
};

const struct cli_command cmd_config = {
    .name = "config",
    .summary = "show how a device was configured, and what differs between captures",
    .synopsis = "CAPTURE.h5 [OTHER.h5 ...]",
    .details =
        "For one capture: chip, runtime, provider options, loaded libraries with their build ids, processor, "
        "and the HTP configuration that 'npudiff capture --htp-config' stored. One setting per line.\n"
        "For several captures: the settings in which each one differs from the first. Settings that can change "
        "bits come first.\n"
        "Each setting is marked 'can change bits' (the vendor's documentation says so, or it was measured), "
        "'performance only' or 'not known'.\n"
        "Exit code 0: no difference; 1: at least one; 2: wrong usage or a file problem.",
    .examples = examples,
    .options = options,
    .operand = CLI_VALUE_CAPTURE,
    .min_operands = 1,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct values),
    .run = run,
};
