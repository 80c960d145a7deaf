/* What a campaign comes to, as text and as JSON. */
#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "npudiff/judge/campaign.h"
#include "report/text/tree.h"

enum { TEXT_BYTES = 64 };

/* "0.4 s", "12 s", "3 min", "2.5 h", "4 days": two digits are more than an estimate is worth. */
static const char *duration(double seconds, char buf[static TEXT_BYTES])
{
    if (seconds < 10)
        snprintf(buf, TEXT_BYTES, "%.1f s", seconds);
    else if (seconds < 100)
        snprintf(buf, TEXT_BYTES, "%.0f s", seconds);
    else if (seconds < 6000)
        snprintf(buf, TEXT_BYTES, "%.0f min", seconds / 60);
    else if (seconds < 100 * 3600)
        snprintf(buf, TEXT_BYTES, "%.1f h", seconds / 3600);
    else
        snprintf(buf, TEXT_BYTES, "%.0f days", seconds / 86400);
    return buf;
}

static const char *size(uint64_t bytes, char buf[static TEXT_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(buf, TEXT_BYTES, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buf;
}

/* ---- text ---- */

static json_t *row(const char *what, size_t n, size_t n_done, double seconds, uint64_t bytes)
{
    char time[TEXT_BYTES], disk[TEXT_BYTES];
    return json_pack("{s:s, s:I, s:I, s:s, s:s}", "what", what, "tasks", (json_int_t)n, "done",
                     (json_int_t)n_done, "time", duration(seconds, time), "disk", size(bytes, disk));
}

static json_t *rows_of_kinds(const struct nd_plan_of_campaign *plan)
{
    json_t *rows = json_array();
    for (int kind = 0; kind < ND_TASK_N_KINDS; kind++) {
        size_t n = 0, n_done = 0;
        double seconds = 0;
        uint64_t bytes = 0;
        for (size_t i = 0; i < plan->n; i++) {
            const struct nd_task *task = &plan->tasks[i];
            if ((int)task->kind != kind)
                continue;
            n++;
            n_done += task->is_done;
            seconds += task->seconds;
            bytes += task->bytes;
        }
        if (n > 0)
            nd_tree_append(rows, row(nd_task_kind_name((enum nd_task_kind)kind), n, n_done, seconds, bytes));
    }
    nd_tree_append(rows, row("all", plan->n, plan->n_done, plan->seconds, plan->bytes));
    return rows;
}

/* Every task: this may be long. */
enum nd_status nd_report_plan_text(const struct nd_plan_of_campaign *plan, char **out, struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"file", "TASK MAKES"},
                                                      {"done", "DONE"},
                                                      {"time", "TIME"},
                                                      {"disk", "DISK"},
                                                      {"memory", "MEMORY"},
                                                      {"source", "ESTIMATED FROM"},
                                                      {NULL, NULL}};
    struct nd_strbuf text = {0};
    ND_FREED char *brief = NULL;
    json_auto_t *rows = json_array();
    ND_TRY(nd_report_plan_brief(plan, 0, &brief, err));
    for (size_t i = 0; i < plan->n; i++) {
        const struct nd_task *task = &plan->tasks[i];
        char time[TEXT_BYTES], disk[TEXT_BYTES], memory[TEXT_BYTES];
        nd_tree_append(rows,
                       json_pack("{s:o, s:s, s:s, s:s, s:s, s:o}", "file", nd_json_string(task->file), "done",
                                 task->is_done ? "yes" : "", "time", duration(task->seconds, time), "disk",
                                 size(task->bytes, disk), "memory", size(task->memory_bytes, memory), "source",
                                 nd_json_string(task->source)));
    }
    nd_strbuf_printf(&text, "%s\n", brief);
    nd_rows_put(&text, rows, columns);
    return nd_text_end(&text, out, err);
}

enum nd_status nd_report_plan_brief(const struct nd_plan_of_campaign *plan, size_t width, char **out,
                                    struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"what", ""},     {"tasks", "TASKS"}, {"done", "DONE"},
                                                      {"time", "TIME"}, {"disk", "DISK"},   {NULL, NULL}};
    const char *next[] = {"npudiff", "qualify", plan->path, "-o", plan->folder};
    char left[TEXT_BYTES], longest[TEXT_BYTES], memory[TEXT_BYTES], disk[TEXT_BYTES];
    struct nd_report_screen *screen = nd_report_screen_create(width);
    nd_report_screen_put(screen, "%s: %zu task%s, %zu of them done\n\n", plan->campaign, plan->n,
                         plan->n == 1 ? "" : "s", plan->n_done);
    nd_screen_rows(screen, rows_of_kinds(plan), columns, "");
    nd_report_screen_put(screen,
                         "\n%s about %s one after the other, and at least %s on many machines. They need %s of "
                         "disk. The largest task needs %s of memory.\n",
                         plan->n_done > 0 ? "The others take" : "They take", duration(plan->seconds_left, left),
                         duration(plan->longest_s, longest), size(plan->bytes_left, disk),
                         size(plan->memory_bytes, memory));
    nd_report_screen_put(screen,
                         "%zu of %zu estimates are from what the same or a like task took; the others are "
                         "defaults, which may be far off. -v lists the tasks.\n",
                         plan->n_measured, plan->n);
    nd_report_screen_next(screen, "to run all on this computer", next, sizeof next / sizeof next[0]);
    return nd_report_screen_end(&screen, out, err);
}

/* ---- JSON ---- */

enum nd_status nd_report_plan_json(const struct nd_plan_of_campaign *plan, char **out, struct nd_error *err)
{
    json_t *tasks = json_array();
    for (size_t i = 0; i < plan->n; i++) {
        const struct nd_task *task = &plan->tasks[i];
        json_t *needs = json_array();
        for (size_t k = 0; k < task->n_needs; k++)
            nd_tree_append(needs, json_integer((json_int_t)task->needs[k]));
        nd_tree_append(
            tasks,
            json_pack("{s:s, s:o, s:s, s:o, s:o, s:s, s:o, s:o, s:b, s:I, s:o, s:I, s:I, s:o}", "task",
                      nd_task_kind_name(task->kind), "file", nd_json_string(task->file), "key", task->key,
                      "model", nd_json_string(task->model), "device", nd_json_string(task->device),
                      "kind_of_device", task->kind_of_device, "address", nd_json_string(task->address), "needs",
                      needs, "done", task->is_done, "runs", (json_int_t)task->n_runs, "seconds",
                      nd_json_number(task->seconds), "bytes", (json_int_t)task->bytes, "memory_bytes",
                      (json_int_t)task->memory_bytes, "source", nd_json_string(task->source)));
    }
    json_t *members = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o}", "campaign", nd_json_string(plan->campaign),
        "path", nd_json_string(plan->path), "folder", nd_json_string(plan->folder), "seconds",
        nd_json_number(plan->seconds), "seconds_left", nd_json_number(plan->seconds_left), "longest_seconds",
        nd_json_number(plan->longest_s), "bytes", (json_int_t)plan->bytes, "bytes_left",
        (json_int_t)plan->bytes_left, "memory_bytes", (json_int_t)plan->memory_bytes, "tasks", tasks);
    return nd_tree_end(ND_DOCUMENT_PLAN, members, out, err);
}
