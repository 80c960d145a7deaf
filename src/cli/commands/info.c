/* `npudiff info` and `ls`: what a capture or a folder holds. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/capture/capture.h"
#include "npudiff/model/model.h"

struct values {
    bool list, all;
    const char *log;
    struct cli_answer answer;
    bool verbose;
};

static json_t *attr_value(const struct nd_attr *attr)
{
    switch (attr->type) {
    case ND_ATTR_STRING:
        return cli_text(attr->string);
    case ND_ATTR_I64:
        return json_integer(attr->i64);
    case ND_ATTR_F64: /* JSON has finite numbers only */
        return isfinite(attr->f64) ? json_real(attr->f64) : json_null();
    }
    return json_null();
}

/* {group: {key: value}}; the root's attributes are group "capture". */
static json_t *attributes(const struct nd_capture *capture)
{
    json_t *groups = json_object();
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        const char *name = attr->group[0] != '\0' ? attr->group : "capture";
        json_t *group = json_object_get(groups, name);
        if (group == NULL) {
            group = json_object();
            json_object_set_new(groups, name, group);
        }
        json_object_set_new(group, attr->key, attr_value(attr));
    }
    return groups;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the recorded latencies, or null when none was recorded, or the median is infinite. */
static json_t *median_latency(const struct nd_capture_probe *probe)
{
    size_t n = 0;
    double *known = calloc(probe->n_samples * probe->n_repeats + 1, sizeof *known);
    if (known == NULL)
        cli_errors_lost_memory();
    for (size_t i = 0; known != NULL && i < probe->n_samples * probe->n_repeats; i++)
        if (probe->latency_us[i] == probe->latency_us[i]) /* not NaN */
            known[n++] = probe->latency_us[i];
    json_t *median = json_null();
    if (n > 0) {
        qsort(known, n, sizeof *known, compare_doubles);
        double exact = n % 2 == 1 ? known[n / 2] : 0.5 * (known[n / 2 - 1] + known[n / 2]);
        double rounded = round(exact * 10) / 10; /* the clock means no more than that */
        if (isfinite(rounded))
            median = json_real(rounded);
    }
    free(known);
    return median;
}

/* Runs of samples that npudiff ran again, as far as any tensor shows. */
static json_int_t count_reruns(const struct nd_capture *capture, size_t p)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    size_t n = 0;
    for (size_t s = 0; s < probe->n_samples; s++) {
        size_t most = probe->n_repeats;
        for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
            size_t n_runs = nd_capture_n_runs(capture, p, e, s);
            most = n_runs > most ? n_runs : most;
        }
        n += most - probe->n_repeats;
    }
    return (json_int_t)n;
}

static json_t *probe_rows(const struct nd_capture *capture)
{
    json_t *rows = json_array();
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
        json_array_append_new(
            rows, json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:b, s:o}", "probe", cli_text(probe->name),
                            "source", cli_text(probe->source), "samples", (json_int_t)probe->n_samples,
                            "expected", (json_int_t)probe->n_samples_expected, "repeats",
                            (json_int_t)probe->n_repeats, "reruns", count_reruns(capture, p), "labels",
                            probe->labels != NULL, "median_us", median_latency(probe)));
    }
    return rows;
}

/* How many nodes each provider runs. */
static json_t *placement_counts(const struct nd_capture *capture)
{
    json_t *counts = json_object();
    for (size_t i = 0; i < nd_capture_n_nodes(capture); i++) {
        const char *provider = nd_capture_node(capture, i)->provider;
        json_int_t n = json_integer_value(json_object_get(counts, provider));
        json_object_set_new(counts, provider, json_integer(n + 1));
    }
    return counts;
}

static json_t *log_names(const struct nd_capture *capture)
{
    json_t *names = json_array();
    for (size_t i = 0; i < nd_capture_n_logs(capture); i++)
        json_array_append_new(names, cli_text(nd_capture_log_name(capture, i)));
    return names;
}

/* What the logs said when the capture was made. */
static json_t *finding_rows(const struct nd_capture *capture)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < nd_capture_n_findings(capture); i++) {
        const struct nd_capture_finding *finding = nd_capture_finding(capture, i);
        json_array_append_new(
            rows, json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "log", cli_text(finding->log),
                            "line", (json_int_t)finding->line, "kind", cli_text(finding->kind), "severity",
                            cli_text(finding->severity), "operator", cli_text(finding->op), "node",
                            cli_text(finding->node), "code", (json_int_t)finding->code, "symbol",
                            cli_text(finding->symbol), "text", cli_text(finding->text)));
    }
    return rows;
}

static json_t *describe(const struct nd_capture *capture)
{
    return json_pack("{s:o, s:s, s:o, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o}", "path",
                     cli_text(nd_capture_path(capture)), "status",
                     nd_capture_state_name(nd_capture_state(capture)), "attributes", attributes(capture),
                     "tensors", (json_int_t)nd_capture_n_tensors(capture), "left_out",
                     cli_tensor_rows(capture, "left_out", "reason"), "untouched_differs",
                     cli_tensor_rows(capture, "untouched_differs", "differs"), "not_known",
                     cli_tensor_rows(capture, "not_known", "reason"), "nodes",
                     (json_int_t)nd_capture_n_nodes(capture), "placement", placement_counts(capture), "probes",
                     probe_rows(capture), "logs", log_names(capture), "findings", finding_rows(capture));
}

static void print_group(const char *group, const json_t *members)
{
    const char *key;
    json_t *value;
    int width = 20;
    printf("%s\n", group);
    json_object_foreach((json_t *)(uintptr_t)members, key, value) {
        if ((int)strlen(key) > width && strlen(key) < 40)
            width = (int)strlen(key);
    }
    json_object_foreach((json_t *)(uintptr_t)members, key, value) {
        if (strcmp(group, "runtime") == 0 &&
            (strcmp(key, "left_out") == 0 || strcmp(key, "untouched_differs") == 0 ||
             strcmp(key, "not_known") == 0))
            continue; /* tables of their own */
        if (json_is_string(value))
            printf("  %-*s %s\n", width, key, json_string_value(value));
        else if (json_is_integer(value))
            printf("  %-*s %" JSON_INTEGER_FORMAT "\n", width, key, json_integer_value(value));
        else if (json_is_real(value))
            printf("  %-*s %g\n", width, key, json_real_value(value));
        else
            printf("  %-*s not finite\n", width, key);
    }
}

/* What is wrong with an emulated device is not told to whoever looks for it: only that it is written down. */
static void print_truth(const json_t *truth)
{
    const char *faulty = json_string_value(json_object_get(truth, "faulty"));
    size_t n = faulty != NULL && *faulty != '\0';
    for (; n > 0 && *faulty != '\0'; faulty++)
        n += *faulty == '\n';
    printf("truth\n  %-20s %zu, which --json tells\n", "faults", n);
}

/* All groups of attributes. */
static void print_groups(const json_t *info)
{
    const char *group, *provider;
    json_t *members, *count;
    printf("%s: %s\n", json_string_value(json_object_get(info, "path")),
           json_string_value(json_object_get(info, "status")));
    json_object_foreach(json_object_get(info, "attributes"), group, members) {
        if (strcmp(group, "truth") == 0)
            print_truth(members);
        else
            print_group(group, members);
    }
    printf("tensors: %" JSON_INTEGER_FORMAT "\nnodes: %" JSON_INTEGER_FORMAT,
           json_integer_value(json_object_get(info, "tensors")),
           json_integer_value(json_object_get(info, "nodes")));
    json_object_foreach(json_object_get(info, "placement"), provider, count)
        printf(", %" JSON_INTEGER_FORMAT " on %s", json_integer_value(count), provider);
    printf("\n\n");
}

static void print_some(const json_t *rows, const struct nd_report_column *columns)
{
    if (json_array_size(rows) == 0)
        return;
    cli_print_table(rows, columns);
    printf("\n");
}

static void print_text(const json_t *info)
{
    static const struct nd_report_column columns[] = {
        {"probe", "PROBE"},     {"source", "SOURCE"}, {"samples", "SAMPLES"},     {"expected", "ASKED"},
        {"repeats", "REPEATS"}, {"labels", "LABELS"}, {"median_us", "MEDIAN_US"}, {NULL, NULL}};
    static const struct nd_report_column left_out[] = {
        {"tensor", "LEFT_OUT"}, {"reason", "REASON"}, {NULL, NULL}};
    static const struct nd_report_column changed[] = {
        {"tensor", "RECORDING_CHANGES"}, {"differs", "WITHOUT_IT"}, {NULL, NULL}};
    static const struct nd_report_column not_known[] = {
        {"tensor", "NOT_KNOWN"}, {"reason", "REASON"}, {NULL, NULL}};
    print_groups(info);
    print_some(json_object_get(info, "left_out"), left_out);
    print_some(json_object_get(info, "untouched_differs"), changed);
    print_some(json_object_get(info, "not_known"), not_known);
    cli_print_table(json_object_get(info, "probes"), columns);
    /* What failed; 'npudiff logs' has the rest. */
    const json_t *findings = json_object_get(info, "findings");
    size_t n_failures = 0, i;
    json_t *finding;
    json_array_foreach(findings, i, finding) {
        if (strcmp(json_string_value(json_object_get(finding, "severity")), "failure") != 0)
            continue;
        if (n_failures++ == 0)
            printf("\nthe logs say\n");
        printf("  %s:%" JSON_INTEGER_FORMAT ": %s: %s\n", json_string_value(json_object_get(finding, "log")),
               json_integer_value(json_object_get(finding, "line")),
               json_string_value(json_object_get(finding, "kind")),
               json_string_value(json_object_get(finding, "text")));
    }
}

/* ---- one screen ---- */

/* The attribute as text, "" when there is none. */
static const char *attribute(const json_t *info, const char *group, const char *key)
{
    const json_t *members = json_object_get(json_object_get(info, "attributes"), group);
    const char *text = json_string_value(json_object_get(members, key));
    return text != NULL ? text : "";
}

/* "WORD, WORD (WORD)" of those that are known. */
static const char *joined(char out[512], const char *const *parts, size_t n)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i + 1 < n; i += 2) {
        int written = parts[i + 1][0] != '\0'
                          ? snprintf(out + used, 512 - used, "%s%s", used > 0 ? parts[i] : "", parts[i + 1])
                          : 0;
        used += written > 0 && used + (size_t)written < 512 ? (size_t)written : 0;
    }
    return out;
}

static void say_device(struct nd_report_screen *screen, const json_t *info)
{
    char text[512];
    const char *arch = attribute(info, "device", "arch");
    const json_t *device = json_object_get(json_object_get(info, "attributes"), "device");
    bool is_simulated = json_integer_value(json_object_get(device, "is_simulator")) == 1;
    const char *parts[] = {
        "",   attribute(info, "device", "uri"), ", ", attribute(info, "device", "marketing"), ", ", arch,
        ", ", is_simulated ? "simulated" : ""};
    nd_report_screen_put(screen, "device: %s\n", joined(text, parts, sizeof parts / sizeof parts[0]));
}

/* How many faults of an emulated device are written down, but not which: nobody shall see them by chance. */
static void say_truth(struct nd_report_screen *screen, const json_t *info)
{
    const char *faulty = attribute(info, "truth", "faulty");
    size_t n = faulty[0] != '\0';
    if (json_object_get(json_object_get(info, "attributes"), "truth") == NULL)
        return;
    for (; *faulty != '\0'; faulty++)
        n += *faulty == '\n';
    nd_report_screen_put(screen, "truth: emulated faults: %zu (--json says which)\n", n);
}

static void say_nodes(struct nd_report_screen *screen, const json_t *info)
{
    char text[256] = "";
    size_t used = 0;
    const char *provider;
    json_t *count;
    json_object_foreach(json_object_get(info, "placement"), provider, count) {
        int n = snprintf(text + used, sizeof text - used, ", %" JSON_INTEGER_FORMAT " on %s",
                         json_integer_value(count), provider);
        used += n > 0 && used + (size_t)n < sizeof text ? (size_t)n : 0;
    }
    nd_report_screen_put(screen, "nodes: %" JSON_INTEGER_FORMAT "%s\n",
                         json_integer_value(json_object_get(info, "nodes")), text);
}

/* What is recorded, and which tensors are not, with the reason. */
static void say_tensors(struct nd_report_screen *screen, const json_t *info)
{
    enum { MOST = 3 };
    const json_t *rows = json_object_get(info, "left_out"), *row;
    size_t n = json_array_size(rows), i;
    char more[64] = "";
    if (n > 0)
        snprintf(more, sizeof more, ", %zu left out", n);
    const char *binary = attribute(info, "model", "binary_chipset");
    nd_report_screen_put(screen, "model: %s, %" JSON_INTEGER_FORMAT " tensors recorded%s%s%s\n",
                         attribute(info, "model", "file"), json_integer_value(json_object_get(info, "tensors")),
                         more, binary[0] != '\0' ? ", a binary for " : "", binary);
    json_array_foreach(rows, i, row) {
        if (i < MOST)
            nd_report_screen_put(screen, "  left out: '%s': %s\n", cli_text_of(row, "tensor"),
                                 cli_text_of(row, "reason"));
    }
    if (n > MOST)
        nd_report_screen_put(screen, "  and %zu more, which -v lists\n", n - MOST);
    rows = json_object_get(info, "not_known");
    json_array_foreach(rows, i, row) {
        if (i < MOST)
            nd_report_screen_put(screen, "  not known: '%s': %s\n", cli_text_of(row, "tensor"),
                                 cli_text_of(row, "reason"));
    }
    if (json_array_size(rows) > MOST)
        nd_report_screen_put(screen, "  and %zu more, which -v lists\n", json_array_size(rows) - MOST);
    json_array_foreach(json_object_get(info, "untouched_differs"), i, row) {
        if (i < MOST)
            nd_report_screen_put(screen, "  recording changes '%s': without it, %s\n",
                                 cli_text_of(row, "tensor"), cli_text_of(row, "differs"));
    }
}

/* The first failures of the logs. */
static void say_findings(struct nd_report_screen *screen, const json_t *findings)
{
    enum { MOST = 3 };
    size_t n = 0, i;
    const json_t *finding;
    json_array_foreach(findings, i, finding) {
        if (strcmp(cli_text_of(finding, "severity"), "failure") != 0)
            continue;
        if (n++ == 0)
            nd_report_screen_put(screen, "\nthe logs say\n");
        if (n <= MOST)
            nd_report_screen_put(screen, "  %s:%" JSON_INTEGER_FORMAT ": %s: %s\n", cli_text_of(finding, "log"),
                                 json_integer_value(json_object_get(finding, "line")),
                                 cli_text_of(finding, "kind"), cli_text_of(finding, "text"));
    }
    if (n > MOST)
        nd_report_screen_put(screen, "  and %zu more failures\n", n - MOST);
}

static int print_brief(const json_t *info)
{
    static const struct nd_report_column columns[] = {
        {"probe", "PROBE"},   {"samples", "SAMPLES"},     {"expected", "ASKED"}, {"repeats", "REPEATS"},
        {"labels", "LABELS"}, {"median_us", "MEDIAN_US"}, {"source", "SOURCE"},  {NULL, NULL}};
    const char *path = cli_text_of(info, "path"), *status = cli_text_of(info, "status");
    const char *const run_parts[] = {"",
                                     attribute(info, "runtime", "id"),
                                     ", ONNX Runtime ",
                                     attribute(info, "runtime", "ort_version"),
                                     ", runner ",
                                     attribute(info, "runtime", "runner"),
                                     ", provider ",
                                     attribute(info, "runtime", "provider_version")};
    const char *const made_parts[] = {"",
                                      attribute(info, "capture", "created"),
                                      " by npudiff ",
                                      attribute(info, "capture", "npudiff_version"),
                                      " on ",
                                      attribute(info, "host", "machine")};
    char text[512];
    bool has_failed = json_object_get(json_object_get(info, "attributes"), "failure") != NULL;
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    nd_report_screen_put(screen, "%s: %s\n", path, status);
    if (has_failed)
        nd_report_screen_put(screen, "failure: %s: %s\n", attribute(info, "failure", "stage"),
                             attribute(info, "failure", "message"));
    say_device(screen, info);
    say_tensors(screen, info);
    nd_report_screen_put(screen, "runtime: %s\n",
                         joined(text, run_parts, sizeof run_parts / sizeof run_parts[0]));
    nd_report_screen_put(screen, "captured: %s\n",
                         joined(text, made_parts, sizeof made_parts / sizeof made_parts[0]));
    say_nodes(screen, info);
    say_truth(screen, info);
    if (json_array_size(json_object_get(info, "probes")) > 0) {
        nd_report_screen_put(screen, "\n");
        cli_screen_rows(screen, json_incref(json_object_get(info, "probes")), columns, "-v lists all");
    }
    say_findings(screen, json_object_get(info, "findings"));
    const char *next[] = {"npudiff", has_failed ? "logs" : "info", path, "-v"};
    nd_report_screen_next(screen,
                          has_failed ? "to see all that the logs say" : "to see all that the capture states",
                          next, has_failed ? 3 : 4);
    return cli_print_screen(screen);
}

/* ---- what is asked for ---- */

static int print_log(const struct nd_capture *capture, const char *name, bool is_json)
{
    for (size_t i = 0; i < nd_capture_n_logs(capture); i++) {
        if (strcmp(nd_capture_log_name(capture, i), name) != 0)
            continue;
        if (!is_json) {
            cli_put_raw(nd_capture_log_text(capture, i));
            return 0;
        }
        cli_print_json(ND_DOCUMENT_LOG,
                       json_pack("{s:o, s:o, s:o}", "path", cli_text(nd_capture_path(capture)), "log",
                                 cli_text(name), "text", cli_text(nd_capture_log_text(capture, i))));
        return 0;
    }
    return cli_fail(CLI_E_NO_OBJECT, nd_capture_path(capture), "'%s' has no log '%s'", nd_capture_path(capture),
                    name);
}

/* Without --all only what somebody recorded: inputs, outputs, labels, latencies. */
static bool is_tensor(const char *path)
{
    static const char *const hidden[] = {"/digests/", "/input_digests/", "/repeat_index/"};
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (strstr(path, hidden[i]) != NULL)
            return false;
    return strncmp(path, "/probes/", 8) == 0;
}

/* ---- --list: a model ---- */

static json_t *scales(const struct nd_quant *quant)
{
    json_t *list = json_array();
    for (size_t i = 0; i < quant->n; i++)
        json_array_append_new(list, json_real(quant->scale[i]));
    return list;
}

static json_t *zero_points(const struct nd_quant *quant)
{
    json_t *list = json_array();
    for (size_t i = 0; i < quant->n; i++)
        json_array_append_new(list, json_integer(quant->zero_point[i]));
    return list;
}

/* One scale and zero point in words; of several only how many, and along which axis. */
static json_t *quantisation_text(const struct nd_quant *quant)
{
    if (quant->n == 0)
        return json_string("-");
    if (quant->n > 1)
        return json_sprintf("%zu scales on axis %d", quant->n, quant->axis);
    return json_sprintf("scale %.9g, zero point %lld", (double)quant->scale[0],
                        (long long)quant->zero_point[0]);
}

static json_t *tensor_row(const struct nd_tensor *tensor)
{
    char shape[256];
    const char *role = tensor->is_model_input ? "input" : tensor->is_model_output ? "output" : "";
    return json_pack("{s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:i, s:s}", "tensor", cli_text(tensor->name),
                     "op_types", cli_text(tensor->op_types), "type", nd_dtype_name(tensor->dtype), "shape",
                     nd_shape_format(&tensor->shape, shape, sizeof shape), "onnx_name",
                     cli_text(tensor->onnx_name), "quantisation", quantisation_text(&tensor->quant), "scale",
                     scales(&tensor->quant), "zero_point", zero_points(&tensor->quant), "axis",
                     tensor->quant.axis, "role", role);
}

/* Of one scale the digits that a person reads. */
static void add_texts(json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        const json_t *list = json_object_get(row, "scale"), *zeros = json_object_get(row, "zero_point");
        bool is_one = json_array_size(list) == 1;
        json_object_set_new(row, "scale_text",
                            is_one ? json_sprintf("%.7g", json_real_value(json_array_get(list, 0)))
                                   : json_incref(json_object_get(row, "quantisation")));
        json_object_set(row, "zero_text", is_one ? json_array_get(zeros, 0) : json_null());
    }
}

static size_t count_quantised(const json_t *rows)
{
    size_t n = 0, i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        n += json_array_size(json_object_get(row, "scale")) > 0;
    }
    return n;
}

static int list_model(const struct values *values, const char *path)
{
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    if (nd_model_load(path, &model, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < nd_model_n_tensors(model); i++)
        json_array_append_new(rows, tensor_row(nd_model_tensor(model, i)));
    nd_model_destroy(&model);
    static const struct nd_report_column columns[] = {{"tensor", "TENSOR"},
                                                      {"op_types", "OPERATORS"},
                                                      {"type", "TYPE"},
                                                      {"scale_text", "SCALE"},
                                                      {"zero_text", "ZERO POINT"},
                                                      {NULL, NULL}},
                                         all_columns[] = {{"tensor", "TENSOR"},
                                                          {"op_types", "OPERATORS"},
                                                          {"type", "TYPE"},
                                                          {"quantisation", "QUANTISATION"},
                                                          {"onnx_name", "ONNX TENSOR"},
                                                          {NULL, NULL}};
    if (values->answer.json || values->verbose)
        return cli_print_rows(ND_DOCUMENT_MODEL, "tensors", rows, all_columns, values->answer.json);
    add_texts(rows);
    const char *next[] = {"npudiff", "capture", path, "-d", "cpu", "-o", "captures"};
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    size_t n = json_array_size(rows), n_quantised = count_quantised(rows);
    nd_report_screen_put(screen, "%s: a capture records %zu tensor%s, %zu of them quantised\n\n",
                         cli_file_name(path), n, n == 1 ? "" : "s", n_quantised);
    cli_screen_rows(screen, rows, columns, "-v lists all");
    nd_report_screen_next(screen, "to record them on a device", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}

/* ---- --list: a capture ---- */

static int print_objects(const struct nd_capture *capture, const char *path, json_t *rows,
                         const struct nd_report_column *columns)
{
    const char *next[] = {"npudiff", "info", path};
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    size_t n_samples = 0, n_tensors = nd_capture_n_tensors(capture), n_probes = nd_capture_n_probes(capture);
    double n_bytes = 0;
    for (size_t p = 0; p < n_probes; p++)
        n_samples += nd_capture_probe(capture, p)->n_samples;
    for (size_t i = 0; i < nd_capture_n_objects(capture); i++)
        n_bytes += (double)nd_capture_object(capture, i)->stored_bytes;
    nd_report_screen_put(screen, "%s: %zu tensor%s, %zu sample%s in %zu probe%s, %.3g MiB of data\n\n",
                         cli_file_name(path), n_tensors, n_tensors == 1 ? "" : "s", n_samples,
                         n_samples == 1 ? "" : "s", n_probes, n_probes == 1 ? "" : "s", n_bytes / (1 << 20));
    cli_screen_rows(screen, rows, columns, "-v lists all");
    nd_report_screen_next(screen, "to see the device and the runtime", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}

static int list_capture(const struct values *values, const struct nd_capture *capture)
{
    static const struct nd_report_column columns[] = {
        {"path", "PATH"}, {"type", "TYPE"}, {"shape", "SHAPE"}, {"stored_bytes", "BYTES"}, {NULL, NULL}};
    json_t *rows = json_array();
    for (size_t i = 0; i < nd_capture_n_objects(capture); i++) {
        const struct nd_capture_object *object = nd_capture_object(capture, i);
        if (values->all || values->answer.json || is_tensor(object->path)) {
            char shape[256];
            json_t *dims = json_array();
            for (int d = 0; d < object->shape.rank; d++)
                json_array_append_new(dims, json_integer(object->shape.dims[d]));
            json_t *type = object->dtype != ND_DTYPE_NONE ? json_string(nd_dtype_name(object->dtype))
                                                          : json_sprintf("text[%zu]", object->text_bytes);
            json_array_append_new(rows, json_pack("{s:o, s:o, s:o, s:s, s:I}", "path", cli_text(object->path),
                                                  "type", type, "dims", dims, "shape",
                                                  nd_shape_format(&object->shape, shape, sizeof shape),
                                                  "stored_bytes", (json_int_t)object->stored_bytes));
        }
    }
    return values->answer.json || values->verbose || values->all
               ? cli_print_rows(ND_DOCUMENT_CAPTURE_OBJECTS, "objects", rows, columns, values->answer.json)
               : print_objects(capture, nd_capture_path(capture), rows, columns);
}

/* ---- the command ---- */

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    bool is_model = cli_ends_with(operands[0], ".onnx");
    if (values->log != NULL && (values->list || is_model))
        return cli_usage_error("info", "--log is for captures, and not with --list");
    if (values->all && !values->list)
        return cli_usage_error("info", "--all needs --list");
    if (is_model)
        return cli_is_silent(&values->answer) ? 0 : list_model(values, operands[0]);
    if (nd_capture_open(operands[0], &capture, &err) != ND_OK)
        return cli_report_error(&err);
    if (values->log != NULL)
        return print_log(capture, values->log, values->answer.json);
    if (cli_is_silent(&values->answer))
        return 0;
    if (values->list)
        return list_capture(values, capture);
    json_auto_t *info = describe(capture);
    if (values->answer.json)
        cli_print_json(ND_DOCUMENT_CAPTURE, json_incref(info));
    else if (!values->verbose)
        return print_brief(info);
    else
        print_text(info);
    return 0;
}

static const struct cli_option options[] = {
    OPT_FLAG('l', "list", struct values, list,
             "list the tensors instead: the datasets of a capture, under the names that h5ls and h5py show; of "
             "a model the tensors that a capture records"),
    OPT_FLAG('a', "all", struct values, all, "with --list: also list tables, digests and logs"),
    OPT_TEXT(0, "log", struct values, log, CLI_A_TEXT("NAME"),
             "print one stored log instead: 'onnxruntime', 'stdout' or 'profile'"),
    OPT_VERBOSE(struct values, "print all attributes that the capture states; with --list everything in full, "
                               "however long, and of a model also the ONNX tensors"),
    OPT_ANSWER_PLAIN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff info captures/gen3.h5", "Says what was captured, where, and with which runtime."},
    {"npudiff info captures/gen3.h5 --list", "Lists the tensors in a capture."},
    {"npudiff info model.onnx", "Lists the tensors that a capture of the model records."},
};

const struct cli_command cmd_info = {
    .name = "info",
    .role = CLI_FILES,
    .summary = "show what a capture or a model holds: device, probes, tensors",
    .synopsis = "CAPTURE.h5|MODEL.onnx [--list [--all]] [--log NAME]",
    .details = "Prints device, runtime, model, host, placement and probes. If the device failed, it prints "
               "where and why.\n"
               "With --list it lists the datasets with type, shape and size. For an ONNX model it lists the "
               "tensors that a capture records, with operators, type, quantisation, and with -v the ONNX "
               "tensor that is made visible.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_CAPTURES_OR_MODEL, 1, 1),
};
