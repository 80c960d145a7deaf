#include "cli/commands/info_brief.h"

#include <stdio.h>
#include <string.h>

#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"

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
    json_object_foreach(json_object_get(info, "placement"), provider, count)
    {
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
    nd_report_screen_put(screen, "model: %s, %" JSON_INTEGER_FORMAT " tensors recorded%s\n",
                         attribute(info, "model", "file"), json_integer_value(json_object_get(info, "tensors")),
                         more);
    json_array_foreach(rows, i, row)
    {
        if (i < MOST)
            nd_report_screen_put(screen, "  left out: '%s': %s\n", cli_text_of(row, "tensor"),
                                 cli_text_of(row, "reason"));
    }
    if (n > MOST)
        nd_report_screen_put(screen, "  and %zu more, which -v lists\n", n - MOST);
}

/* The first failures of the logs. */
static void say_findings(struct nd_report_screen *screen, const json_t *findings)
{
    enum { MOST = 3 };
    size_t n = 0, i;
    const json_t *finding;
    json_array_foreach(findings, i, finding)
    {
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

int info_print_brief(const json_t *info)
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
    return cli_print_screen(screen, NULL);
}
