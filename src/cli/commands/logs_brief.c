/* The default text of `npudiff logs`: one line for each kind of finding. */
#include "cli/commands/logs_brief.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

/* "2 logs (onnxruntime, stdout), 5 lines, 0 warnings". */
static void say_logs(struct nd_report_screen *screen, const json_t *logs, size_t n_lines, size_t n_warnings)
{
    enum { MOST = 3 };
    size_t n = json_array_size(logs), used = 0, i;
    char names[256] = "";
    const json_t *log;
    json_array_foreach(logs, i, log)
    {
        const char *name = cli_file_name(cli_text_of(log, "log"));
        int n_chars =
            i < MOST ? snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", name) : 0;
        used += n_chars > 0 && used + (size_t)n_chars < sizeof names ? (size_t)n_chars : 0;
    }
    nd_report_screen_put(screen, "%zu log%s (%s%s), %zu line%s, %zu warning%s\n", n, plural(n), names,
                         n > MOST ? ", ..." : "", n_lines, plural(n_lines), n_warnings, plural(n_warnings));
}

static void say_verdict(struct nd_report_screen *screen, const struct logs_shown *shown)
{
    size_t n_logs = json_array_size(shown->logs), n_fallback = 0, n_failures = 0, n_warnings = 0, n_lines = 0,
           i;
    const json_t *log;
    json_array_foreach(shown->logs, i, log)
    {
        n_lines += (size_t)json_integer_value(json_object_get(log, "lines"));
    }
    for (i = 0; i < shown->findings->n; i++) {
        const struct nd_log_finding *finding = &shown->findings->items[i];
        n_fallback += finding->severity == ND_LOG_BAD && finding->kind == ND_LOG_FALLBACK;
        n_failures += finding->severity == ND_LOG_BAD && finding->kind != ND_LOG_FALLBACK;
        n_warnings += finding->severity == ND_LOG_WARNING;
    }
    if (n_logs == 0)
        nd_report_screen_put(screen, "OK: no log is stored\n");
    else if (n_failures > 0)
        nd_report_screen_put(screen, "FAILED: %zu line%s report%s a failure%s\n", n_failures,
                             plural(n_failures), n_failures == 1 ? "s" : "",
                             n_fallback > 0 ? ", others a fallback to the CPU" : "");
    else if (n_fallback > 0)
        nd_report_screen_put(screen, "FALLBACK: %zu line%s that nodes ran on the CPU\n", n_fallback,
                             n_fallback == 1 ? " says" : "s say");
    else
        nd_report_screen_put(screen, "OK: the logs tell of no failure and no fallback\n");
    if (n_logs > 0)
        say_logs(screen, shown->logs, n_lines, n_warnings);
}

/* Of operators that could not be constructed those that failed first. */
static void say_roots(struct nd_report_screen *screen, const json_t *cascade)
{
    enum { MOST = 3 };
    size_t i, n = 0;
    const json_t *failure;
    json_array_foreach(json_object_get(cascade, "failures"), i, failure)
    {
        const char *node = cli_text_of(failure, "node"), *log_node = cli_text_of(failure, "log_node");
        const char *name = *node != '\0' ? node : log_node;
        json_int_t n_followers = json_integer_value(json_object_get(failure, "followers"));
        if (strcmp(cli_text_of(failure, "role"), "root") != 0 || n++ >= MOST)
            continue;
        nd_report_screen_put(screen, "%s%s%s%s failed first", cli_text_of(failure, "operator"),
                             *name != '\0' ? " '" : "", name, *name != '\0' ? "'" : "");
        if (n_followers > 0)
            nd_report_screen_put(screen, "  %" JSON_INTEGER_FORMAT " operator%s failed because of it",
                                 n_followers, plural((size_t)n_followers));
    }
    json_int_t n_unplaced = json_integer_value(json_object_get(cascade, "unplaced"));
    if (n_unplaced > 0)
        nd_report_screen_put(
            screen,
            "%" JSON_INTEGER_FORMAT
            " operator%s could not be constructed; --model MODEL may tell which one failed first\n",
            n_unplaced, plural((size_t)n_unplaced));
    if (n > MOST)
        nd_report_screen_put(screen, "%zu more operators failed by themselves\n", n - MOST);
}

static bool is_shown(const struct logs_shown *shown, const struct nd_log_finding *finding)
{
    if (shown->kind != NULL)
        return strcmp(nd_log_kind_name(finding->kind), shown->kind) == 0;
    return finding->severity != ND_LOG_NOTE;
}

/* The line, and what its numbers mean: what -v prints, without the place and the kind. */
static json_t *explained_text(const struct nd_log_finding *finding)
{
    struct nd_error err = {0};
    char *line = NULL;
    int n = snprintf(NULL, 0, "%s:%zu: %s, %s: ", finding->log, finding->line,
                     nd_log_severity_name(finding->severity), nd_log_kind_name(finding->kind));
    json_t *text = NULL;
    if (nd_report_log_finding(finding, &line, &err) == ND_OK && n >= 0 && strlen(line) > (size_t)n) {
        line[strcspn(line, "\n")] = '\0';
        text = cli_text(line + n);
    }
    free(line);
    return text != NULL ? text : cli_text(finding->text);
}

static json_t *make_row(const struct nd_log_finding *finding, bool has_logs)
{
    json_t *place = has_logs ? json_sprintf("%s:%zu", cli_file_name(finding->log), finding->line)
                             : json_sprintf("%zu", finding->line);
    json_t *text = explained_text(finding);
    return json_pack("{s:o, s:s, s:i, s:o}", "place", place, "kind", nd_log_kind_name(finding->kind), "n", 0,
                     "text", text);
}

/* One row for equal lines, with the place of the first; failures come before warnings. */
static json_t *make_rows(const struct logs_shown *shown)
{
    json_t *rows = json_array(), *seen = json_object();
    for (int severity = ND_LOG_BAD; severity >= (int)ND_LOG_NOTE; severity--) {
        for (size_t i = 0; i < shown->findings->n; i++) {
            const struct nd_log_finding *finding = &shown->findings->items[i];
            if ((int)finding->severity != severity || !is_shown(shown, finding))
                continue;
            json_t *text = cli_text(finding->text);
            const char *words = json_string_value(text) != NULL ? json_string_value(text) : "";
            json_t *row = json_object_get(seen, words);
            if (row == NULL) {
                row = make_row(finding, json_array_size(shown->logs) > 1);
                json_array_append_new(rows, row);
                json_object_set(seen, words, row);
            }
            json_object_set_new(row, "n", json_integer(json_integer_value(json_object_get(row, "n")) + 1));
            json_decref(text);
        }
    }
    json_decref(seen);
    return rows;
}

int logs_print_brief(const struct logs_shown *shown)
{
    static const struct nd_report_column columns[] = {
        {"place", "LINE"}, {"kind", "KIND"}, {"n", "TIMES"}, {"text", "TEXT"}, {NULL, NULL}};
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    json_t *rows = make_rows(shown);
    say_verdict(screen, shown);
    say_roots(screen, shown->cascade);
    if (shown->findings->n_left_out > 0)
        nd_report_screen_put(screen, "%zu more findings are not kept\n", shown->findings->n_left_out);
    if (json_array_size(rows) > 0) {
        nd_report_screen_put(screen, "\n");
        cli_screen_rows(screen, rows, columns, "-v lists all, and notes");
    } else {
        json_decref(rows);
    }
    return cli_print_screen(screen, NULL);
}

void logs_print_cascade(const json_t *cascade)
{
    enum { MAX_REASONS = 20 };
    size_t i, n_said = 0;
    json_t *failure;
    const json_t *failures = json_object_get(cascade, "failures");
    if (json_array_size(failures) == 0)
        return;
    printf("\noperators that could not be constructed: %zu\n", json_array_size(failures));
    json_array_foreach(failures, i, failure)
    {
        const char *role = json_string_value(json_object_get(failure, "role"));
        const char *node = json_string_value(json_object_get(failure, "node"));
        const char *log_node = json_string_value(json_object_get(failure, "log_node"));
        if (strcmp(role, "follower") == 0 || n_said++ >= MAX_REASONS)
            continue;
        printf("  %s: %s", role, json_string_value(json_object_get(failure, "operator")));
        if (*node != '\0' || *log_node != '\0')
            printf(" at %s '%s'", *node != '\0' ? "node" : "what the log calls",
                   *node != '\0' ? node : log_node);
        printf(", line %" JSON_INTEGER_FORMAT "; followers: %" JSON_INTEGER_FORMAT "\n",
               json_integer_value(json_object_get(failure, "line")),
               json_integer_value(json_object_get(failure, "followers")));
    }
    if (n_said > MAX_REASONS)
        printf("  and %zu more\n", n_said - MAX_REASONS);
}
