#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/commands/info_brief.h"
#include "cli/terminal/left_out.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/safe_output.h"
#include "npudiff/capture/capture.h"

struct values {
    bool json;
    bool verbose;
    const char *log;
    bool quiet;
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
        for (size_t e = 0; e < nd_capture_n_edges(capture); e++) {
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
    return json_pack(
        "{s:o, s:s, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o}", "path", cli_text(nd_capture_path(capture)),
        "status", nd_capture_state_name(nd_capture_state(capture)), "attributes", attributes(capture),
        "tensors", (json_int_t)nd_capture_n_edges(capture), "left_out", cli_left_out_rows(capture), "nodes",
        (json_int_t)nd_capture_n_nodes(capture), "placement", placement_counts(capture), "probes",
        probe_rows(capture), "logs", log_names(capture), "findings", finding_rows(capture));
}

static void print_group(const char *group, const json_t *members)
{
    const char *key;
    json_t *value;
    int width = 20;
    printf("%s\n", group);
    json_object_foreach((json_t *)(uintptr_t)members, key, value)
    {
        if ((int)strlen(key) > width && strlen(key) < 40)
            width = (int)strlen(key);
    }
    json_object_foreach((json_t *)(uintptr_t)members, key, value)
    {
        if (strcmp(group, "runtime") == 0 && strcmp(key, "left_out") == 0)
            continue; /* a table of its own */
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

/* What failed; 'npudiff logs' has the rest. */
static void print_findings(const json_t *findings)
{
    size_t n_failures = 0, i;
    json_t *finding;
    json_array_foreach(findings, i, finding)
    {
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

/* All groups of attributes. */
static void print_groups(const json_t *info)
{
    const char *group, *provider;
    json_t *members, *count;
    printf("%s: %s\n", json_string_value(json_object_get(info, "path")),
           json_string_value(json_object_get(info, "status")));
    json_object_foreach(json_object_get(info, "attributes"), group, members)
    {
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

static void print_text(const json_t *info)
{
    static const struct nd_report_column columns[] = {
        {"probe", "PROBE"},     {"source", "SOURCE"}, {"samples", "SAMPLES"},     {"expected", "ASKED"},
        {"repeats", "REPEATS"}, {"labels", "LABELS"}, {"median_us", "MEDIAN_US"}, {NULL, NULL}};
    static const struct nd_report_column left_out[] = {
        {"tensor", "LEFT_OUT"}, {"reason", "REASON"}, {NULL, NULL}};
    print_groups(info);
    if (json_array_size(json_object_get(info, "left_out")) > 0) {
        cli_print_table(json_object_get(info, "left_out"), left_out);
        printf("\n");
    }
    cli_print_table(json_object_get(info, "probes"), columns);
    print_findings(json_object_get(info, "findings"));
}

static int print_log(const struct nd_capture *capture, const char *name, bool is_json)
{
    for (size_t i = 0; i < nd_capture_n_logs(capture); i++) {
        if (strcmp(nd_capture_log_name(capture, i), name) != 0)
            continue;
        if (!is_json) {
            cli_put_raw(nd_capture_log_text(capture, i));
            return 0;
        }
        json_t *log = json_pack("{s:o, s:o, s:o}", "path", cli_text(nd_capture_path(capture)), "log",
                                cli_text(name), "text", cli_text(nd_capture_log_text(capture, i)));
        cli_print_json(ND_DOCUMENT_LOG, log);
        json_decref(log);
        return 0;
    }
    return cli_fail(CLI_E_NO_OBJECT, nd_capture_path(capture), "'%s' has no log '%s'", nd_capture_path(capture),
                    name);
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_capture *capture = NULL;
    if (nd_capture_open(operands[0], &capture, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = 0;
    if (values->log != NULL) {
        exit_code = print_log(capture, values->log, values->json);
    } else {
        json_t *info = describe(capture);
        if (values->json)
            cli_print_json(ND_DOCUMENT_CAPTURE, info);
        else if (values->verbose)
            print_text(info);
        else if (!values->quiet)
            exit_code = info_print_brief(info);
        json_decref(info);
    }
    nd_capture_close(&capture);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_JSON(struct values),
    OPT_TEXT(0, "log", struct values, log, CLI_A_TEXT("NAME"),
             "print one stored log instead: 'onnxruntime', 'stdout' or 'profile'"),
    OPT_QUIET(struct values),
    OPT_VERBOSE(struct values, "print all attributes that the capture states"),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff info captures/gen3.h5", "Says what was captured, where, and with which runtime."},
    {"npudiff info captures/gen3.h5 --log onnxruntime", "Prints the log of the runtime."},
    {NULL, NULL},
};

const struct cli_command cmd_info = {
    .name = "info",
    .summary = "show what a capture holds: device, runtime, model, probes, failure",
    .synopsis = "CAPTURE.h5 [--log NAME]",
    .details = "Prints device, runtime, model, host, placement and probes. If the device failed, it prints "
               "where and why.",
    .examples = examples,
    .options = options,
    .operand = CLI_VALUE_CAPTURE,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
