/* Tasks as jobs of Slurm: an array of the captures of each model that ask for the same, one job for each
 * comparison and explanation, one that judges. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "report/workflows/emit.h"

enum { MAX_ARRAY = 1000 }; /* Slurm's MaxArraySize is 1001 unless it was changed: indices up to 1000 */

/* ---- arrays of captures ---- */

/* What one machine does by itself; what is elsewhere goes by the machine, which does one thing at a time. */
static bool is_alike(const struct nd_task *a, const struct nd_task *b)
{
    if (a->transport != b->transport)
        return false;
    return a->transport != ND_TRANSPORT_NONE
               ? strcmp(a->address, b->address) == 0
               : strcmp(a->model, b->model) == 0 && nd_emit_minutes(a) == nd_emit_minutes(b) &&
                     nd_emit_memory_mib(a) == nd_emit_memory_mib(b);
}

/* groups[i]: of task i, from 1; 0: it is no capture, or done. Returns how many there are. */
static size_t group_captures(const struct nd_plan_of_campaign *plan, size_t *groups)
{
    size_t n_groups = 0, *first = nd_calloc(plan->n, sizeof *first),
           *n_members = nd_calloc(plan->n, sizeof *first);
    for (size_t i = 0; first != NULL && n_members != NULL && i < plan->n; i++) {
        if (plan->tasks[i].kind != ND_TASK_CAPTURE || plan->tasks[i].is_done)
            continue;
        size_t g = 0;
        while (g < n_groups &&
               (n_members[g] == MAX_ARRAY || !is_alike(&plan->tasks[first[g]], &plan->tasks[i])))
            g++;
        if (g == n_groups)
            first[n_groups++] = i;
        n_members[g]++;
        groups[i] = g + 1;
    }
    bool is_whole = first != NULL && n_members != NULL;
    free(first);
    free(n_members);
    return is_whole ? n_groups : SIZE_MAX;
}

/* ---- one call of sbatch ---- */

/* A file name in which '%' means itself. */
static void put_log_folder(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    struct nd_strbuf name = {0};
    for (const char *at = plan->folder; *at != '\0'; at++)
        nd_strbuf_append(&name, *at == '%' ? "%%" : at, *at == '%' ? 2 : 1);
    nd_strbuf_puts(&name, "/logs/%x-%A-%a.txt");
    nd_shell_put(out, name.text != NULL ? name.text : "");
    out->failed = out->failed || name.failed;
    nd_strbuf_deinit(&name);
}

/* Tasks that ask for the same; `asks` is the largest of each. */
static void put_limits(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan,
                       const struct nd_task *asks)
{
    nd_strbuf_printf(out,
                     " --job-name=npudiff-%s --time=%llu --mem=%llu --output=", nd_task_kind_name(asks->kind),
                     nd_emit_minutes(asks), nd_emit_memory_mib(asks));
    put_log_folder(out, plan);
}

/* A phone is a resource of its node, "phone:SERIAL"; of the serial only what Slurm takes in a name. One that
 * hangs on adb's server of some machine ("SERIAL@HOST:PORT") can be reached from every node. */
static void put_phone(struct nd_strbuf *out, const struct nd_task *task)
{
    if (task->transport != ND_TRANSPORT_ADB || strchr(task->address, '@') != NULL)
        return;
    nd_strbuf_puts(out, " --gres=phone:");
    for (const char *at = task->address; *at != '\0'; at++) {
        bool is_plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        nd_strbuf_append(out, is_plain ? at : "_", 1);
    }
    nd_strbuf_puts(out, ":1");
}

/* The end of the script that sbatch reads: no name holds it, as it has the key of the whole campaign. */
static void put_mark(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    nd_strbuf_printf(out, "end-%s", strchr(nd_emit_judge(plan)->key, '/') + 1);
}

static void open_script(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    nd_strbuf_puts(out, " <<'");
    put_mark(out, plan);
    nd_strbuf_puts(out, "'\n#!/bin/sh\n");
}

static void close_script(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    put_mark(out, plan);
    nd_strbuf_puts(out, "\n");
}

static void put_array(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, const size_t *groups,
                      size_t g)
{
    struct nd_strbuf cases = {0};
    struct nd_task asks = {0};
    size_t n = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const struct nd_task *task = &plan->tasks[i];
        if (groups[i] != g)
            continue;
        double seconds = task->seconds > asks.seconds ? task->seconds : asks.seconds;
        uint64_t memory = task->memory_bytes > asks.memory_bytes ? task->memory_bytes : asks.memory_bytes;
        asks = *task;
        asks.seconds = seconds;
        asks.memory_bytes = memory;
        nd_strbuf_printf(&cases, "%zu) exec ", ++n);
        nd_emit_command(&cases, plan, task);
        nd_strbuf_puts(&cases, " ;;\n");
    }
    bool is_here = asks.transport == ND_TRANSPORT_NONE;
    nd_strbuf_printf(out, "job_%zu=$(sbatch --parsable --array=1-%zu%s", g, n, is_here ? "" : "%1");
    put_limits(out, plan, &asks);
    put_phone(out, &asks);
    open_script(out, plan);
    nd_strbuf_printf(out, "case $SLURM_ARRAY_TASK_ID in\n%sesac\n", cases.text != NULL ? cases.text : "");
    close_script(out, plan);
    nd_strbuf_puts(out, ")\n");
    out->failed = out->failed || cases.failed;
    nd_strbuf_deinit(&cases);
}

/* ---- what comes after ---- */

/* The jobs that a task needs: of captures each array once. is_in[g] is for scratch. A job whose needs failed is
 * cancelled; the one that judges runs in any case, and its exit code says that something is missing: that of
 * `sbatch --wait` is 0 for a job that was cancelled. */
static void put_dependency(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan,
                           const struct nd_task *task, const size_t *groups, bool *is_in)
{
    bool is_first = true;
    memset(is_in, 0, plan->n + 1);
    for (size_t k = 0; k < task->n_needs; k++) {
        size_t i = task->needs[k];
        if (plan->tasks[i].is_done || (groups[i] != 0 && is_in[groups[i]]))
            continue;
        is_in[groups[i]] = true;
        nd_strbuf_puts(out, !is_first                     ? ""
                            : task->kind == ND_TASK_JUDGE ? " --dependency=afterany"
                                                          : " --kill-on-invalid-dep=yes --dependency=afterok");
        if (groups[i] != 0)
            nd_strbuf_printf(out, ":${job_%zu%%%%;*}", groups[i]);
        else
            nd_strbuf_printf(out, ":${task_%zu%%%%;*}", i);
        is_first = false;
    }
}

static void put_single(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, size_t i,
                       const size_t *groups, bool *is_in)
{
    const struct nd_task *task = &plan->tasks[i];
    bool is_judge = task->kind == ND_TASK_JUDGE;
    if (is_judge)
        nd_strbuf_puts(out, "exec sbatch");
    else
        nd_strbuf_printf(out, "task_%zu=$(sbatch --parsable", i);
    put_limits(out, plan, task);
    put_dependency(out, plan, task, groups, is_in);
    nd_strbuf_puts(out, is_judge ? " \"$@\"" : "");
    open_script(out, plan);
    nd_strbuf_puts(out, "exec ");
    nd_emit_command(out, plan, task);
    nd_strbuf_puts(out, "\n");
    close_script(out, plan);
    nd_strbuf_puts(out, is_judge ? "" : ")\n");
}

void nd_emit_slurm(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    size_t *groups = nd_calloc(plan->n, sizeof *groups);
    bool *is_in = nd_calloc(plan->n + 1, sizeof *is_in);
    size_t n_groups = groups != NULL && is_in != NULL ? group_captures(plan, groups) : SIZE_MAX;
    if (n_groups == SIZE_MAX) {
        out->failed = true;
    } else {
        nd_strbuf_puts(out, "#!/bin/sh\n");
        nd_emit_head(
            out, plan, "Jobs for Slurm",
            "In the folder in which this was made, which all nodes share: sh FILE [--wait]. With --wait the "
            "exit code is that of 'qualify'.\n# SBATCH_PARTITION and other variables of sbatch hold for all "
            "jobs.");
        nd_strbuf_puts(out, "set -eu\nmkdir -p -- ");
        nd_shell_put(out, plan->folder);
        nd_strbuf_puts(out, "/logs\n");
        for (size_t g = 1; g <= n_groups; g++)
            put_array(out, plan, groups, g);
        for (size_t i = 0; i < plan->n; i++)
            if (plan->tasks[i].kind != ND_TASK_CAPTURE && !plan->tasks[i].is_done)
                put_single(out, plan, i, groups, is_in);
    }
    free(groups);
    free(is_in);
}
