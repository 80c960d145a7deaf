/* What the scripts of all engines have in common, and those that are lists of commands: of a shell and of make.
 */
#include "report/workflows/emit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "npudiff/report/report.h"
#include "report/text/tree.h"

/* An estimate may be too low. Chosen: a job that is stopped for its limits costs a repetition. */
static const double time_reserve = 3, memory_reserve = 1.5;
enum {
    MIN_MINUTES = 2,       /* chosen: below this starting costs the most */
    STEP_MEMORY_MIB = 256, /* chosen: tasks that need about the same ask for the same */
};

void nd_shell_put(struct nd_strbuf *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        nd_strbuf_puts(out, word);
        return;
    }
    nd_strbuf_puts(out, "'");
    for (; *word != '\0'; word++)
        if (*word == '\'')
            nd_strbuf_puts(out, "'\\''");
        else
            nd_strbuf_append(out, word, 1);
    nd_strbuf_puts(out, "'");
}

/* A file or folder that begins with a dash would be read as an option. */
static void put_path(struct nd_strbuf *out, const char *path)
{
    struct nd_strbuf safe = {0};
    nd_strbuf_printf(&safe, "%s%s", path[0] == '-' ? "./" : "", path);
    nd_shell_put(out, safe.text != NULL ? safe.text : "");
    out->failed = out->failed || safe.failed;
    nd_strbuf_deinit(&safe);
}

void nd_emit_command(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, const struct nd_task *task)
{
    nd_strbuf_puts(out, "npudiff qualify ");
    put_path(out, plan->path);
    nd_strbuf_puts(out, " -o ");
    put_path(out, plan->folder);
    nd_strbuf_puts(out, " --task ");
    nd_shell_put(out, task->file);
    nd_strbuf_printf(out, " --key %s", task->key);
    if (plan->n_explain_parts > 1 && (task->kind == ND_TASK_EXPLAIN_PART || task->kind == ND_TASK_EXPLAIN))
        nd_strbuf_printf(out, " --explain-parts %zu", plan->n_explain_parts);
}

void nd_emit_literal(struct nd_strbuf *out, const char *text)
{
    json_t *value = json_string(text);
    char *literal = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    out->failed = out->failed || literal == NULL;
    nd_strbuf_puts(out, literal != NULL ? literal : "");
    free(literal);
    json_decref(value);
}

void nd_emit_head(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, const char *what,
                  const char *how)
{
    size_t n = plan->n - plan->n_done;
    nd_strbuf_printf(out, "# %s, made by npudiff %s of the campaign '%s': %zu task%s", what, plan->version,
                     plan->campaign, n, n == 1 ? "" : "s");
    if (plan->n_done > 0)
        nd_strbuf_printf(out, " (%zu more are done)", plan->n_done);
    nd_strbuf_printf(out, ".\n# %s\n", how);
}

unsigned long long nd_emit_minutes(const struct nd_task *task)
{
    double minutes = ceil(task->seconds * time_reserve / 60);
    return minutes > MIN_MINUTES ? (unsigned long long)minutes : MIN_MINUTES;
}

unsigned long long nd_emit_memory_mib(const struct nd_task *task)
{
    double steps = ceil((double)task->memory_bytes * memory_reserve / (1 << 20) / STEP_MEMORY_MIB);
    return STEP_MEMORY_MIB * (steps > 1 ? (unsigned long long)steps : 1);
}

const struct nd_task *nd_emit_judge(const struct nd_plan_of_campaign *plan)
{
    return &plan->tasks[plan->n - 1];
}

/* ---- a shell ---- */

void nd_emit_tasks(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    static const char *const titles[ND_TASK_N_KINDS] = {
        "Captures. All of them may run at the same time.", "Comparisons, after the captures.",
        "Parts of explanations, after the comparisons.", "Explanations, after the comparisons and their parts.",
        "The verdict, after all others. Its exit code is that of 'qualify'."};
    int kind = -1;
    nd_emit_head(out, plan, "Commands",
                 "Run each line by a shell, in the folder in which this was made; or all: sh FILE");
    for (size_t i = 0; i < plan->n; i++) {
        const struct nd_task *task = &plan->tasks[i];
        if (task->is_done)
            continue;
        if ((int)task->kind != kind)
            nd_strbuf_printf(out, "# %s\n", titles[task->kind]);
        kind = (int)task->kind;
        nd_emit_command(out, plan, task);
        nd_strbuf_puts(out, "\n");
    }
}

/* ---- make ---- */

/* In a recipe only the dollar means something to make. */
static void put_recipe(struct nd_strbuf *out, const char *command)
{
    for (; *command != '\0'; command++)
        nd_strbuf_append(out, *command == '$' ? "$$" : command, *command == '$' ? 2 : 1);
}

/* Targets are numbers, and always made: npudiff itself knows by content what is done, and names of files may
 * hold anything. */
void nd_emit_make(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    nd_emit_head(out, plan, "A Makefile",
                 "In the folder in which this was made: make -f FILE -j 8. The exit code of make is not the "
                 "verdict's; result.json has that.");
    nd_strbuf_printf(out, "verdict: %zu\n", plan->n);
    for (size_t i = 0; i < plan->n; i++) {
        const struct nd_task *task = &plan->tasks[i];
        struct nd_strbuf command = {0};
        if (task->is_done)
            continue;
        nd_strbuf_printf(out, "%zu:", i + 1);
        for (size_t k = 0; k < task->n_needs; k++)
            if (!plan->tasks[task->needs[k]].is_done)
                nd_strbuf_printf(out, " %zu", task->needs[k] + 1);
        nd_emit_command(&command, plan, task);
        nd_strbuf_puts(out, "\n\t");
        put_recipe(out, command.text != NULL ? command.text : "");
        nd_strbuf_puts(out, "\n");
        out->failed = out->failed || command.failed;
        nd_strbuf_deinit(&command);
    }
    nd_strbuf_puts(out, ".PHONY: verdict");
    for (size_t i = 0; i < plan->n; i++)
        if (!plan->tasks[i].is_done)
            nd_strbuf_printf(out, " %zu", i + 1);
    nd_strbuf_puts(out, "\n");
}

/* ---- all ---- */

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

static bool is_utf8(const char *text)
{
    json_t *value = json_string(text); /* takes nothing else */
    json_decref(value);
    return value != NULL;
}

/* One task is one line, and some of the files have an encoding. */
static enum nd_status check_names(const struct nd_plan_of_campaign *plan, bool needs_utf8, struct nd_error *err)
{
    const char *const fixed[] = {plan->path, plan->folder, plan->campaign};
    for (size_t i = 0; i < plan->n + 3; i++) {
        const char *text = i < 3 ? fixed[i] : plan->tasks[i - 3].file;
        if (has_control(text) || (needs_utf8 && !is_utf8(text)))
            return nd_fail(err, ND_E_OPTION_CONFLICT, text,
                           "'%s' has a character that cannot stand in a script; change the name", text);
        if (needs_utf8 && strpbrk(text, "{}") != NULL)
            return nd_fail(
                err, ND_E_OPTION_CONFLICT, text,
                "'%s' has a brace, which means something else in a Snakefile or workflow; change the "
                "name",
                text);
    }
    return ND_OK;
}

static size_t count_captures(const struct nd_plan_of_campaign *plan)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n; i++)
        n += plan->tasks[i].kind == ND_TASK_CAPTURE && !plan->tasks[i].is_done;
    return n;
}

static const struct engine {
    const char *name;
    void (*emit)(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);
    bool needs_utf8;
    size_t max_captures; /* that its own limits leave room for; 0: any number */
} engines[] = {
    {"tasks", nd_emit_tasks, false, 0},        {"slurm", nd_emit_slurm, false, 0},
    {"snakemake", nd_emit_snakemake, true, 0}, {"make", nd_emit_make, false, 0},
    {"github", nd_emit_github, true, 256}, /* jobs of a matrix */
};

enum nd_status nd_report_plan_script(const struct nd_plan_of_campaign *plan, const char *engine, char **out,
                                     struct nd_error *err)
{
    const struct engine *found = NULL;
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++)
        if (strcmp(engines[i].name, engine) == 0)
            found = &engines[i];
    if (found == NULL)
        return nd_fail(err, ND_E_OPTION_VALUE, engine, "no scripts are made for '%s'", engine);
    enum nd_status status = check_names(plan, found->needs_utf8, err);
    if (status != ND_OK)
        return status;
    if (found->max_captures > 0 && count_captures(plan) > found->max_captures)
        return nd_fail(err, ND_E_OPTION_VALUE, engine, "%s runs at most %zu captures of one campaign, not %zu",
                       engine, found->max_captures, count_captures(plan));
    found->emit(&text, plan);
    return nd_text_end(&text, out, err);
}
