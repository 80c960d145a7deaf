/* `npudiff logs`: what the lines of a log mean. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/logs.h"
#include "npudiff/compare/latency.h"
#include "npudiff/model/model.h"

enum { MAX_KEPT = 100000 };

struct values {
    const char *kind, *model;
    bool unknown;
    struct cli_answer answer;
    bool verbose;
};

struct reading {
    const struct values *values;
    struct nd_log_findings findings; /* of all logs */
    json_t *logs;                    /* one object per log */
    json_t *unknown;                 /* lines, of the log that is read */
    const char *name;
    struct nd_log_verdict verdict;
    const char *silent; /* the first file of which no line is known */
    bool is_placed;     /* the capture that is read says of every node where it ran, and none fell back */
};

/* ---- the text of one screen ---- */

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
    json_array_foreach(logs, i, log) {
        const char *name = cli_file_name(cli_text_of(log, "log"));
        int n_chars =
            i < MOST ? snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", name) : 0;
        used += n_chars > 0 && used + (size_t)n_chars < sizeof names ? (size_t)n_chars : 0;
    }
    nd_report_screen_put(screen, "%zu log%s (%s%s), %zu line%s, %zu warning%s\n", n, plural(n), names,
                         n > MOST ? ", ..." : "", n_lines, plural(n_lines), n_warnings, plural(n_warnings));
}

/* What an NPU did not do: "470 of 476 nodes run on the CPU", or the operators that it refused; "": nothing. */
static const char *fallback_text(const struct nd_log_verdict *verdict, char out[128])
{
    size_t n = verdict->n_fallbacks;
    bool is_failed = verdict->outcome == ND_LOG_FAILED;
    if (verdict->on_cpu > 0 && verdict->total > 0)
        snprintf(out, 128, "%.0f of %.0f nodes run on the CPU", verdict->on_cpu, verdict->total);
    else if (verdict->on_cpu > 0)
        snprintf(out, 128, "%.0f node%s on the CPU", verdict->on_cpu, verdict->on_cpu == 1 ? " runs" : "s run");
    else if (verdict->n_refused == 1)
        snprintf(out, 128, "the NPU refused '%.60s'%s", verdict->refused,
                 is_failed ? "" : ", so it runs on the CPU");
    else if (verdict->n_refused > 1)
        snprintf(out, 128, "the NPU refused %zu operators%s", verdict->n_refused,
                 is_failed ? "" : ", so they run on the CPU");
    else
        snprintf(out, n > 0 ? 128 : 1, "%zu line%s that nodes ran on the CPU", n, n == 1 ? " says" : "s say");
    return out;
}

static void say_verdict(struct nd_report_screen *screen, const struct reading *reading)
{
    const struct nd_log_verdict *verdict = &reading->verdict;
    size_t n_logs = json_array_size(reading->logs), n_lines = 0, n_unknown = verdict->n_unknown_errors, i;
    char text[128];
    const char *fallback = fallback_text(verdict, text);
    const json_t *log;
    json_array_foreach(reading->logs, i, log) {
        n_lines += (size_t)json_integer_value(json_object_get(log, "lines"));
    }
    if (verdict->outcome == ND_LOG_FAILED)
        nd_report_screen_put(screen, "FAILED: %zu line%s report%s a failure%s%s\n", verdict->n_failures,
                             plural(verdict->n_failures), verdict->n_failures == 1 ? "s" : "",
                             *fallback != '\0' ? "; " : "", fallback);
    else if (verdict->outcome == ND_LOG_FELL_BACK)
        nd_report_screen_put(screen, "FALLBACK: %s\n", fallback);
    else if (verdict->outcome == ND_LOG_UNKNOWN_ERRORS)
        nd_report_screen_put(screen,
                             "UNKNOWN ERRORS: npudiff does not know %zu line%s that speak%s of errors\n",
                             n_unknown, plural(n_unknown), n_unknown == 1 ? "s" : "");
    else if (verdict->outcome == ND_LOG_ON_CPU)
        nd_report_screen_put(screen, "ON THE CPU: %s; no line tells whether that was wanted\n", fallback);
    else if (n_logs == 0)
        nd_report_screen_put(screen, "NO LOG: no log is stored\n");
    else if (reading->silent != NULL)
        nd_report_screen_put(screen,
                             n_lines == 0 ? "EMPTY: '%s' has no line\n"
                                          : "NOT UNDERSTOOD: npudiff knows no line of '%s'\n",
                             cli_file_name(reading->silent));
    else
        nd_report_screen_put(screen, "OK: the logs tell of no failure and no fallback\n");
    if (n_logs > 0)
        say_logs(screen, reading->logs, n_lines, verdict->n_warnings);
}

/* Of operators that could not be constructed those that failed first. */
static void say_roots(struct nd_report_screen *screen, const json_t *cascade)
{
    enum { MOST = 3 };
    size_t i, n = 0;
    const json_t *failure;
    json_array_foreach(json_object_get(cascade, "failures"), i, failure) {
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

static bool is_shown_finding(const struct reading *reading, const struct nd_log_finding *finding)
{
    if (reading->values->kind != NULL)
        return strcmp(nd_log_kind_name(finding->kind), reading->values->kind) == 0;
    return finding->severity != ND_LOG_NOTE;
}

/* The line, and what its numbers mean: what -v prints, without the place and the kind. */
static json_t *explained_text(const struct nd_log_finding *finding)
{
    struct nd_error err = {0};
    CLI_FREED char *line = NULL;
    int n = snprintf(NULL, 0, "%s:%zu: %s, %s: ", finding->log, finding->line,
                     nd_log_severity_name(finding->severity), nd_log_kind_name(finding->kind));
    json_t *text = NULL;
    if (nd_report_log_finding(finding, &line, &err) == ND_OK && n >= 0 && strlen(line) > (size_t)n) {
        line[strcspn(line, "\n")] = '\0';
        text = cli_text(line + n);
    }
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
static json_t *make_rows(const struct reading *reading)
{
    json_t *rows = json_array(), *seen = json_object();
    for (int severity = ND_LOG_BAD; severity >= (int)ND_LOG_NOTE; severity--) {
        for (size_t i = 0; i < reading->findings.n; i++) {
            const struct nd_log_finding *finding = &reading->findings.items[i];
            if ((int)finding->severity != severity || !is_shown_finding(reading, finding))
                continue;
            json_t *text = cli_text(finding->text);
            const char *words = json_string_value(text) != NULL ? json_string_value(text) : "";
            json_t *row = json_object_get(seen, words);
            if (row == NULL) {
                row = make_row(finding, json_array_size(reading->logs) > 1);
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

/* An exit code. */
static int logs_print_brief(const struct reading *reading, const json_t *cascade)
{
    static const struct nd_report_column columns[] = {
        {"place", "LINE"}, {"kind", "KIND"}, {"n", "TIMES"}, {"text", "TEXT"}, {NULL, NULL}};
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    json_t *rows = make_rows(reading);
    say_verdict(screen, reading);
    say_roots(screen, cascade);
    if (reading->findings.n_left_out > 0)
        nd_report_screen_put(screen, "%zu more findings are not kept\n", reading->findings.n_left_out);
    if (json_array_size(rows) > 0) {
        nd_report_screen_put(screen, "\n");
        cli_screen_rows(screen, rows, columns, "-v lists all, and notes");
    } else {
        json_decref(rows);
    }
    return cli_print_screen(screen);
}

/* With -v: all operators that could not be constructed, those that failed first and those nobody can place. */
static void logs_print_cascade(const json_t *cascade)
{
    enum { MAX_REASONS = 20 };
    size_t i, n_said = 0;
    json_t *failure;
    const json_t *failures = json_object_get(cascade, "failures");
    if (json_array_size(failures) == 0)
        return;
    printf("\noperators that could not be constructed: %zu\n", json_array_size(failures));
    json_array_foreach(failures, i, failure) {
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

/* ---- reading ---- */

static void take_unknown(void *context, size_t line, const char *text, size_t text_bytes)
{
    struct reading *reading = context;
    CLI_FREED char *copy = strndup(text, text_bytes);
    if (copy == NULL)
        cli_errors_lost_memory();
    else if (!reading->values->answer.json)
        printf("%s:%zu: unknown: %s\n", reading->name, line, copy);
    else if (json_array_size(reading->unknown) < MAX_KEPT)
        json_array_append_new(reading->unknown,
                              json_pack("{s:I, s:o}", "line", (json_int_t)line, "text", cli_text(copy)));
}

static struct nd_log_options options_of(struct reading *reading)
{
    json_decref(reading->unknown);
    reading->unknown = json_array();
    return (struct nd_log_options){.struct_size = sizeof(struct nd_log_options),
                                   .name = reading->name,
                                   .visit = nd_log_findings_add,
                                   .context = &reading->findings};
}

/* The visitor's context is the findings; lines that nobody knows go by the reading around them. */
static bool visit(void *context, const struct nd_log_finding *finding)
{
    struct reading *reading = context;
    struct nd_log_finding seen = *finding;
    /* "Some nodes were not assigned" is of the quantisation of inputs and outputs then, and what was refused at
     * first was taken later. */
    if (reading->is_placed && (seen.kind == ND_LOG_PLACEMENT || seen.kind == ND_LOG_VALIDATION))
        seen.severity = ND_LOG_NOTE;
    return nd_log_findings_add(&reading->findings, &seen);
}

/* Whether a capture is of the CPU, or tells of all its nodes that they ran where they were asked to. */
static bool is_placed_well(const struct nd_capture *capture)
{
    const char *kind = nd_capture_string(capture, "device", "kind");
    if (kind != NULL && strcmp(kind, "cpu") == 0)
        return true;
    for (size_t i = 0; i < nd_capture_n_nodes(capture); i++) {
        const struct nd_capture_node *node = nd_capture_node(capture, i);
        bool is_quantisation =
            strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0;
        if (!is_quantisation &&
            (node->provider[0] == '\0' || strcmp(node->provider, "CPUExecutionProvider") == 0))
            return false;
    }
    return nd_capture_n_nodes(capture) > 0;
}

static enum nd_status read_text(struct reading *reading, const char *name, const void *bytes, size_t n,
                                struct nd_error *err)
{
    struct nd_log_summary summary;
    reading->name = name;
    struct nd_log_options options = options_of(reading);
    options.visit = visit;
    options.context = reading;
    options.unknown = reading->values->unknown ? take_unknown : NULL;
    enum nd_status status = bytes != NULL ? nd_log_read_bytes(bytes, n, &options, &summary, err)
                                          : nd_log_read_file(name, &options, &summary, err);
    if (status == ND_OK) {
        json_t *kinds = json_object();
        for (int k = 0; k < ND_LOG_N_KINDS; k++)
            if (summary.n_by_kind[k] > 0)
                json_object_set_new(kinds, nd_log_kind_name((enum nd_log_kind)k),
                                    json_integer((json_int_t)summary.n_by_kind[k]));
        json_t *log = json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:s, s:o}", "log", cli_text(reading->name),
                                "encoding", summary.encoding, "lines", (json_int_t)summary.n_lines, "unknown",
                                (json_int_t)summary.n_unknown, "cut", (json_int_t)summary.n_cut, "findings",
                                (json_int_t)summary.n_findings, "worst", nd_log_severity_name(summary.worst),
                                "kinds", kinds);
        if (reading->values->unknown && reading->values->answer.json)
            json_object_set(log, "unknown_lines", reading->unknown);
        json_array_append_new(reading->logs, log);
    }
    if (status == ND_OK && bytes == NULL && summary.n_findings == 0 && reading->silent == NULL)
        reading->silent = name;
    return status;
}

/* A profile of ONNX Runtime says where the nodes ran, and no more. false: the file is none. */
static bool read_profile(struct reading *reading, const char *path, enum nd_status *status,
                         struct nd_error *err)
{
    struct nd_latency_list list = {0};
    struct nd_error ignored = {0};
    char start[8 + 1] = "", first = '\0', text[512];
    if (cli_peek(path, start, 8) != 8 || sscanf(start, " [ %c", &first) != 1 || first != '{' ||
        nd_latency_read(path, NULL, NULL, &list, &ignored) != ND_OK)
        return false;
    bool has_kernels = list.where != NULL;
    snprintf(text, sizeof text, "a profile of ONNX Runtime, which 'npudiff latency' reads: %.400s",
             has_kernels ? list.where : "");
    if (has_kernels)
        *status = read_text(reading, path, text, strlen(text), err);
    nd_latency_list_deinit(&list);
    return has_kernels;
}

/* A stored log may hold NUL bytes: its length is that of its dataset. */
static size_t stored_bytes(const struct nd_capture *capture, const char *name)
{
    for (size_t i = 0; i < nd_capture_n_objects(capture); i++) {
        const struct nd_capture_object *object = nd_capture_object(capture, i);
        if (strncmp(object->path, "/logs/", 6) == 0 && strcmp(object->path + 6, name) == 0)
            return (size_t)object->shape.dims[0];
    }
    return SIZE_MAX;
}

static enum nd_status read_capture(struct reading *reading, const char *path, struct nd_error *err)
{
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    CLI_TRY(nd_capture_open(path, &capture, err));
    enum nd_status status = ND_OK;
    reading->is_placed = is_placed_well(capture);
    reading->is_placed = status == ND_OK && is_placed_well(capture);
    for (size_t i = 0; status == ND_OK && i < nd_capture_n_logs(capture); i++) {
        const char *log = nd_capture_log_name(capture, i), *text = nd_capture_log_text(capture, i);
        char name[4096];
        if (strstr(log, "profile") != NULL)
            continue; /* measurements, which other commands read */
        size_t n = stored_bytes(capture, log);
        snprintf(name, sizeof name, "%s/%s", path, log);
        status = read_text(reading, name, text, n != SIZE_MAX ? n : strlen(text), err);
    }
    reading->is_placed = false;
    return status;
}

/* ---- findings ---- */

static json_t *amounts_of(const struct nd_log_finding *finding)
{
    json_t *amounts = json_object();
    for (size_t i = 0; i < finding->n_amounts; i++)
        json_object_set_new(amounts, finding->amounts[i].name, json_real(finding->amounts[i].value));
    return amounts;
}

static bool is_shown(const struct values *values, const struct nd_log_finding *finding)
{
    if (values->kind != NULL)
        return strcmp(nd_log_kind_name(finding->kind), values->kind) == 0;
    return values->answer.json || values->verbose || finding->severity != ND_LOG_NOTE;
}

static int print_finding(const struct nd_log_finding *finding)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_status status = nd_report_log_finding(finding, &text, &err);
    return cli_print_made(status, text, false, &err);
}

/* ---- the cascade ---- */

static json_t *failure_row(const struct nd_log_finding *findings, const struct nd_failure_cascade *cascade,
                           size_t i)
{
    static const char *const roles[] = {"root", "follower", "unplaced"};
    const struct nd_failure *failure = &cascade->failures[i];
    const struct nd_log_finding *finding = &findings[failure->finding];
    const struct nd_failure *root = &cascade->failures[failure->root];
    size_t n_followers = 0;
    for (size_t k = 0; k < cascade->n; k++)
        n_followers += k != i && cascade->failures[k].root == i;
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "role", roles[failure->role], "operator",
                     cli_text(failure->op), "op_id", cli_text(failure->op_id), "log_node",
                     cli_text(failure->log_node), "node", cli_text(failure->model_node), "log",
                     cli_text(finding->log), "line", (json_int_t)finding->line, "followers",
                     (json_int_t)n_followers, "root_line", (json_int_t)findings[root->finding].line);
}

static void count_more(json_t *counts, const char *key, size_t n)
{
    json_object_set_new(counts, key,
                        json_integer(json_integer_value(json_object_get(counts, key)) + (json_int_t)n));
}

/* Those of one log: operators of two runs have nothing to do with one another. */
static enum nd_status add_cascade(const struct nd_log_finding *findings, size_t n, const struct nd_model *model,
                                  json_t *counts, struct nd_error *err)
{
    struct nd_failure_cascade cascade = {0};
    enum nd_status status = model != NULL ? nd_failure_cascade_of_model(findings, n, model, &cascade, err)
                                          : nd_failure_cascade_find(findings, n, NULL, &cascade, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < cascade.n; i++)
        json_array_append_new(json_object_get(counts, "failures"), failure_row(findings, &cascade, i));
    count_more(counts, "roots", cascade.n_roots);
    count_more(counts, "followers", cascade.n_followers);
    count_more(counts, "unplaced", cascade.n_unplaced);
    nd_failure_cascade_deinit(&cascade);
    return ND_OK;
}

static enum nd_status find_cascade(const struct reading *reading, json_t **out, struct nd_error *err)
{
    const struct nd_log_finding *items = reading->findings.items;
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    if (reading->values->model != NULL)
        CLI_TRY(nd_model_load(reading->values->model, &model, err));
    *out = json_pack("{s:i, s:i, s:i, s:[]}", "roots", 0, "followers", 0, "unplaced", 0, "failures");
    for (size_t i = 0, end; i < reading->findings.n; i = end) {
        for (end = i + 1; end < reading->findings.n && strcmp(items[end].log, items[i].log) == 0;)
            end++;
        CLI_TRY(add_cascade(items + i, end - i, model, *out, err));
    }
    return ND_OK;
}

/* ---- the command ---- */

static void print_summary(const struct reading *reading)
{
    size_t i;
    json_t *log, *count;
    const char *kind;
    json_array_foreach(reading->logs, i, log) {
        const char *encoding = json_string_value(json_object_get(log, "encoding"));
        printf("%s: %" JSON_INTEGER_FORMAT " lines", json_string_value(json_object_get(log, "log")),
               json_integer_value(json_object_get(log, "lines")));
        if (strcmp(encoding, "bytes") != 0)
            printf(" (%s)", encoding);
        json_object_foreach(json_object_get(log, "kinds"), kind, count)
            printf(", %s %" JSON_INTEGER_FORMAT, kind, json_integer_value(count));
        printf(", unknown %" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(log, "unknown")));
        if (json_integer_value(json_object_get(log, "cut")) > 0)
            printf(", of %" JSON_INTEGER_FORMAT " only the first 16384 bytes were read",
                   json_integer_value(json_object_get(log, "cut")));
        putchar('\n');
    }
}

/* An exit code. */
static int print_all(struct reading *reading, const json_t *cascade)
{
    const struct values *values = reading->values;
    int exit_code = 0;
    if (!values->answer.json && !values->verbose && !values->unknown)
        return values->answer.quiet ? 0 : logs_print_brief(reading, cascade);
    json_auto_t *rows = json_array();
    for (size_t i = 0; i < reading->findings.n; i++) {
        const struct nd_log_finding *finding = &reading->findings.items[i];
        if (is_shown(reading->values, finding) && reading->values->answer.json) {
            json_array_append_new(
                rows,
                json_pack("{s:o, s:I, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "log",
                          cli_text(finding->log), "line", (json_int_t)finding->line, "kind",
                          nd_log_kind_name(finding->kind), "severity", nd_log_severity_name(finding->severity),
                          "stage", nd_log_stage_name(finding->stage), "operator", cli_text(finding->op), "node",
                          cli_text(finding->node), "op_id", cli_text(finding->op_id), "tensor",
                          cli_text(finding->tensor), "code",
                          finding->has_code ? json_integer(finding->code) : json_null(), "symbol",
                          finding->symbol, "amounts", amounts_of(finding), "text", cli_text(finding->text)));
        } else if (is_shown(reading->values, finding))
            exit_code = cli_worse(exit_code, print_finding(finding));
    }
    if (reading->values->answer.json) {
        cli_print_json(ND_DOCUMENT_LOGS,
                       json_pack("{s:s, s:O, s:O, s:I, s:O}", "outcome",
                                 nd_log_outcome_name(reading->verdict.outcome), "logs", reading->logs,
                                 "findings", rows, "left_out", (json_int_t)reading->findings.n_left_out,
                                 "cascade", (json_t *)(uintptr_t)cascade));
    } else {
        if (reading->findings.n_left_out > 0)
            printf("%zu findings more are left out\n", reading->findings.n_left_out);
        logs_print_cascade(cascade);
        if (reading->findings.n > 0)
            putchar('\n');
        print_summary(reading);
    }
    return exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct reading reading = {.values = values, .findings = {.max = MAX_KEPT}};
    struct nd_error err = {0};
    enum nd_log_kind kind;
    enum nd_status status = ND_OK;
    json_auto_t *cascade = NULL;
    if (values->kind != NULL && !nd_log_kind_from_name(values->kind, &kind))
        return cli_usage_error("logs", "there is no kind of finding '%s'", values->kind);
    reading.logs = json_array();
    for (size_t i = 0; i < n_operands && status == ND_OK; i++)
        if (cli_is_hdf5(operands[i]))
            status = read_capture(&reading, operands[i], &err);
        else if (!read_profile(&reading, operands[i], &status, &err))
            status = read_text(&reading, operands[i], NULL, 0, &err);
    if (status == ND_OK)
        status = find_cascade(&reading, &cascade, &err);
    nd_log_judge(reading.findings.items, reading.findings.n, reading.silent == NULL, &reading.verdict);
    int exit_code = status != ND_OK ? cli_report_error(&err) : print_all(&reading, cascade);
    if (status == ND_OK && reading.verdict.outcome != ND_LOG_OK)
        exit_code = cli_worse(exit_code, reading.verdict.outcome >= ND_LOG_FELL_BACK ? ND_EXIT_DIFFERS
                                                                                     : ND_EXIT_INCONCLUSIVE);
    if (reading.findings.failed)
        exit_code = cli_fail_memory();
    nd_log_findings_deinit(&reading.findings);
    json_decref(reading.unknown);
    json_decref(reading.logs);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_TEXT(
        0, "kind", struct values, kind, CLI_A_TEXT("KIND"),
        "print only findings of this kind, also the harmless ones: fallback, placement, fusion, quantisation, "
        "preparation, failure, validation, version, arch, library, device, memory or unknown-error"),
    OPT_TEXT(0, "model", struct values, model, CLI_A_MODEL("MODEL.onnx"),
             "the model that failed: helps to find the operator that failed first"),
    OPT_FLAG(0, "unknown", struct values, unknown, "also print the lines that npudiff does not know"),
    OPT_VERBOSE(struct values,
                "print every finding in full, and notes: lines that are harmless or only inform"),
    OPT_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff logs captures/gen3.h5", "Explains the logs that a capture stores."},
    {"npudiff logs qnn-net-run.log --model model.onnx",
     "Explains a log file, and finds the operator that failed first."},
};

const struct cli_command cmd_logs = {
    .name = "logs",
    .role = CLI_FIND,
    .summary = "explain the logs of a runtime or phone",
    .synopsis = "LOG|CAPTURE.h5 ...",
    .details =
        "Reads logs of ONNX Runtime, QNN and qnn-net-run, LiteRT, ExecuTorch, RKNN, OpenVINO, NeuroPilot and "
        "llama.cpp, of Android's logcat and the kernel, or the logs in captures. It prints what matters: "
        "fallback to the CPU, operators that were refused or failed, graphs that failed with their error "
        "codes, versions, libraries, memory, crashes.\n"
        "A line that speaks of an error, and that npudiff does not know, is printed as an unknown error: then "
        "the logs are never OK. Nor is a log OK of which npudiff knows no line.\n"
        "When operators could not be made, npudiff separates the one that failed first from those that "
        "failed because of it. It uses the operators' ids in the log and, with --model, the graph.\n"
        "Exit code 0: no failure and no fallback, though there may be warnings; 1: at least one, also an "
        "operator that the NPU refused; 2: wrong usage or a file problem; 4: inconclusive: only unknown "
        "errors, no known line, or nodes on the CPU where nothing tells whether an NPU was wanted.",
    CLI_EXAMPLES,
    .options = options,
    .operand = CLI_VALUE_CAPTURE,
    .min_operands = 1,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct values),
    .run = run,
};
