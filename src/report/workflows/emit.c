/* What the scripts of all engines have in common, and those that are lists of commands: of a shell and of make.
 */
#include "report/text/summary.h"

#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "report/text/tree.h"

static void nd_emit_github(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);
static void nd_emit_slurm(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);
static void nd_emit_snakemake(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);

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
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf safe = {0};
    nd_strbuf_printf(&safe, "%s%s", path[0] == '-' ? "./" : "", path);
    nd_shell_put(out, safe.text != NULL ? safe.text : "");
    out->failed = out->failed || safe.failed;
}

/* The command that does the task, quoted for a shell: one line. */
static void nd_emit_command(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan,
                            const struct nd_task *task)
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

/* Appends the text as JSON, Python and YAML all read it: in double quotes. It is UTF-8. */
static void nd_emit_literal(struct nd_strbuf *out, const char *text)
{
    json_auto_t *value = json_string(text);
    ND_FREED char *literal = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    out->failed = out->failed || literal == NULL;
    nd_strbuf_puts(out, literal != NULL ? literal : "");
}

/* A comment of one line: what was made of what; "how" says how it is run. */
static void nd_emit_head(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, const char *what,
                         const char *how)
{
    size_t n = plan->n - plan->n_done;
    nd_strbuf_printf(out, "# %s, made by npudiff %s of the campaign '%s': %zu task%s", what, plan->version,
                     plan->campaign, n, n == 1 ? "" : "s");
    if (plan->n_done > 0)
        nd_strbuf_printf(out, " (%zu more are done)", plan->n_done);
    nd_strbuf_printf(out, ".\n# %s\n", how);
}

/* What to ask of an engine for a task, with room for one that takes longer or needs more than was estimated. */
static unsigned long long nd_emit_minutes(const struct nd_task *task)
{
    double minutes = ceil(task->seconds * time_reserve / 60);
    return minutes > MIN_MINUTES ? (unsigned long long)minutes : MIN_MINUTES;
}

static unsigned long long nd_emit_memory_mib(const struct nd_task *task)
{
    double steps = ceil((double)task->memory_bytes * memory_reserve / (1 << 20) / STEP_MEMORY_MIB);
    return STEP_MEMORY_MIB * (steps > 1 ? (unsigned long long)steps : 1);
}

/* The last task: the one that judges. */
static const struct nd_task *nd_emit_judge(const struct nd_plan_of_campaign *plan)
{
    return &plan->tasks[plan->n - 1];
}

/* ---- a shell ---- */

static void nd_emit_tasks(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
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
static void nd_emit_make(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
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
    json_auto_t *value = json_string(text); /* takes nothing else */
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
                "'%s' has a brace, which means something else in a Snakefile or workflow; change the name",
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
    ND_TRY(check_names(plan, found->needs_utf8, err));
    if (found->max_captures > 0 && count_captures(plan) > found->max_captures)
        return nd_fail(err, ND_E_OPTION_VALUE, engine, "%s runs at most %zu captures of one campaign, not %zu",
                       engine, found->max_captures, count_captures(plan));
    found->emit(&text, plan);
    return nd_text_end(&text, out, err);
}

/* Tasks as a Snakefile. Its rules are made in a loop over a list, so that each is written once. */

static void put_task(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, size_t i)
{
    const struct nd_task *task = &plan->tasks[i];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf command = {0};
    nd_strbuf_printf(out, "    (%zu, \"%s\", ", i, nd_task_kind_name(task->kind));
    nd_emit_literal(out, task->file);
    nd_strbuf_puts(out, ", [");
    bool is_first = true;
    for (size_t k = 0; k < task->n_needs; k++)
        if (!plan->tasks[task->needs[k]].is_done) {
            nd_strbuf_printf(out, "%s%zu", is_first ? "" : ", ", task->needs[k]);
            is_first = false;
        }
    nd_strbuf_printf(out, "], %llu, %llu,\n     ", nd_emit_minutes(task), nd_emit_memory_mib(task));
    nd_emit_command(&command, plan, task);
    nd_emit_literal(out, command.text != NULL ? command.text : "");
    nd_strbuf_puts(out, "),\n");
    out->failed = out->failed || command.failed;
}

/* A task's file ends with the digest beside it, which is written last. The verdict has no output for Snakemake:
 * of a gate that fails it would remove the result. */
static void nd_emit_snakemake(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    nd_emit_head(out, plan, "A Snakefile",
                 "In the folder in which this was made: snakemake -s FILE --cores 8. The last rule fails when "
                 "the verdict is not 'passed'.");
    nd_strbuf_puts(out, "FOLDER = ");
    nd_emit_literal(out, plan->folder);
    nd_strbuf_puts(
        out, "\n# number, kind, file, numbers of the tasks before it, minutes, MiB, command\nTASKS = [\n");
    for (size_t i = 0; i < plan->n; i++)
        if (!plan->tasks[i].is_done)
            put_task(out, plan, i);
    nd_strbuf_puts(out,
                   "]\n"
                   "DONE = {number: f\"{FOLDER}/{file}.key\" for number, _, file, *_ in TASKS}\n"
                   "\n"
                   "for number, kind, file, needs, minutes, mebibytes, command in TASKS[-1:] + TASKS[:-1]:\n"
                   "    if kind == \"judge\":\n"
                   "        rule:\n"
                   "            name: \"verdict\"\n"
                   "            input: [DONE[i] for i in needs]\n"
                   "            params: command=command\n"
                   "            resources: runtime=minutes, mem_mb=mebibytes\n"
                   "            shell: \"{params.command}\"\n"
                   "    else:\n"
                   "        rule:\n"
                   "            name: f\"{kind}_{number}\"\n"
                   "            input: [DONE[i] for i in needs]\n"
                   "            output: DONE[number]\n"
                   "            params: command=command\n"
                   "            resources: runtime=minutes, mem_mb=mebibytes\n"
                   "            shell: \"{params.command}\"\n");
}

/* Tasks as a workflow of GitHub Actions: a matrix of captures, one of comparisons, one of explanations, a job
 * that judges. Its machines share no folder: each job keeps its files as an artifact and begins with those of
 * the jobs before it. */

enum { INSTALL_MINUTES = 10 }; /* chosen: for npudiff and its runtimes */

static size_t count(const struct nd_plan_of_campaign *plan, enum nd_task_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n; i++)
        n += plan->tasks[i].kind == kind && !plan->tasks[i].is_done;
    return n;
}

static void put_entry(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, size_t i)
{
    const struct nd_task *task = &plan->tasks[i];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf command = {0};
    nd_emit_command(&command, plan, task);
    nd_strbuf_printf(out, "          - {number: %zu, minutes: %llu, command: ", i + 1,
                     nd_emit_minutes(task) + INSTALL_MINUTES);
    nd_emit_literal(out, command.text != NULL ? command.text : "");
    nd_strbuf_puts(out, ", machine: ");
    if (task->transport == ND_TRANSPORT_ADB) { /* a runner beside the phone, with the serial as its label */
        nd_strbuf_puts(out, "[self-hosted, ");
        nd_emit_literal(out, task->address);
        nd_strbuf_puts(out, "]}\n");
    } else {
        nd_strbuf_puts(out, "ubuntu-latest}\n");
    }
    out->failed = out->failed || command.failed;
}

static void put_install(struct nd_strbuf *out)
{
    nd_strbuf_puts(out, "      - uses: actions/checkout@v4\n"
                        "      - run: .github/npudiff-install # yours: npudiff and the runtimes, in PATH\n");
}

/* The files of the jobs before. */
static void put_download(struct nd_strbuf *out)
{
    nd_strbuf_puts(out, "      - uses: actions/download-artifact@v4\n"
                        "        with: {pattern: \"npudiff-*\", path: \"${{ runner.temp }}/npudiff\"}\n"
                        "      - run: |\n"
                        "          mkdir -p \"$FOLDER\"\n"
                        "          for archive in \"$RUNNER_TEMP\"/npudiff/*/*.tar; do tar -xf \"$archive\" -C "
                        "\"$FOLDER\"; done\n");
}

static void put_matrix(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, enum nd_task_kind kind,
                       const char *before)
{
    const char *name = nd_task_kind_name(kind);
    if (count(plan, kind) == 0)
        return;
    nd_strbuf_printf(out, "  %s:\n", name);
    if (before[0] != '\0')
        nd_strbuf_printf(out, "    needs: [%s]\n", before);
    nd_strbuf_puts(out, "    runs-on: ${{ matrix.machine }}\n    timeout-minutes: ${{ matrix.minutes }}\n"
                        "    strategy:\n      fail-fast: false\n      matrix:\n        include:\n");
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tasks[i].kind == kind && !plan->tasks[i].is_done)
            put_entry(out, plan, i);
    nd_strbuf_puts(out, "    steps:\n");
    put_install(out);
    if (before[0] != '\0')
        put_download(out);
    nd_strbuf_printf(
        out,
        "      - run: |\n"
        "          mkdir -p \"$FOLDER\"\n"
        "          touch \"$RUNNER_TEMP/begin\"\n"
        "          eval \"$COMMAND\"\n"
        "          (cd \"$FOLDER\" && find captures parts -newer \"$RUNNER_TEMP/begin\" -type f -print0 "
        "2> /dev/null || true) > \"$RUNNER_TEMP/files\"\n"
        "          tar -cf \"$RUNNER_TEMP/%s-$NUMBER.tar\" -C \"$FOLDER\" --null -T \"$RUNNER_TEMP/files\"\n"
        "        env: {COMMAND: \"${{ matrix.command }}\", NUMBER: \"${{ matrix.number }}\"}\n"
        "      - uses: actions/upload-artifact@v4\n"
        "        with: {name: \"npudiff-%s-${{ matrix.number }}\", path: \"${{ runner.temp "
        "}}/%s-${{ matrix.number }}.tar\"}\n",
        name, name, name);
}

static void nd_emit_github(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf before = {0}, command = {0};
    nd_emit_head(out, plan, "A workflow for GitHub Actions",
                 "Keep it as .github/workflows/NAME.yml. It calls .github/npudiff-install of your repository.");
    nd_strbuf_puts(out, "name: npudiff\non: workflow_dispatch\nenv:\n  FOLDER: ");
    nd_emit_literal(out, plan->folder);
    nd_strbuf_puts(out, "\njobs:\n");
    for (int kind = ND_TASK_CAPTURE; kind < ND_TASK_JUDGE; kind++) {
        put_matrix(out, plan, (enum nd_task_kind)kind, before.text != NULL ? before.text : "");
        if (count(plan, (enum nd_task_kind)kind) > 0)
            nd_strbuf_printf(&before, "%s%s", before.len > 0 ? ", " : "",
                             nd_task_kind_name((enum nd_task_kind)kind));
    }
    nd_strbuf_puts(out, "  judge:\n");
    if (before.len > 0)
        nd_strbuf_printf(out, "    needs: [%s]\n", before.text);
    nd_strbuf_puts(out, "    runs-on: ubuntu-latest\n    steps:\n");
    put_install(out);
    if (before.len > 0)
        put_download(out);
    nd_emit_command(&command, plan, nd_emit_judge(plan));
    nd_strbuf_puts(out, "      - run: eval \"$COMMAND\"\n        env: {COMMAND: ");
    nd_emit_literal(out, command.text != NULL ? command.text : "");
    nd_strbuf_puts(out, "}\n"
                        "      - uses: actions/upload-artifact@v4\n"
                        "        if: always()\n"
                        "        with: {name: result, path: \"${{ env.FOLDER }}/*.*\"}\n");
    out->failed = out->failed || before.failed || command.failed;
}

/* Tasks as jobs of Slurm: an array of the captures of each model that ask for the same, one job for each
 * comparison and explanation, one that judges. */

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
    ND_FREED size_t *first = nd_calloc(plan->n, sizeof *first), *n_members = nd_calloc(plan->n, sizeof *first);
    size_t n_groups = 0;
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
    return is_whole ? n_groups : SIZE_MAX;
}

/* ---- one call of sbatch ---- */

/* A file name in which '%' means itself. */
static void put_log_folder(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf name = {0};
    for (const char *at = plan->folder; *at != '\0'; at++)
        nd_strbuf_append(&name, *at == '%' ? "%%" : at, *at == '%' ? 2 : 1);
    nd_strbuf_puts(&name, "/logs/%x-%A-%a.txt");
    nd_shell_put(out, name.text != NULL ? name.text : "");
    out->failed = out->failed || name.failed;
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
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf cases = {0};
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

static void nd_emit_slurm(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    ND_FREED size_t *groups = nd_calloc(plan->n, sizeof *groups);
    ND_FREED bool *is_in = nd_calloc(plan->n + 1, sizeof *is_in);
    size_t n_groups = groups != NULL && is_in != NULL ? group_captures(plan, groups) : SIZE_MAX;
    if (n_groups == SIZE_MAX) {
        out->failed = true;
    } else {
        nd_strbuf_puts(out, "#!/bin/sh\n");
        nd_emit_head(out, plan, "Jobs for Slurm",
                     "In the folder in which this was made, which all nodes share: sh FILE [--wait]. With "
                     "--wait the exit code is that of 'qualify'.\n# SBATCH_PARTITION and other variables of "
                     "sbatch hold for all jobs.");
        nd_strbuf_puts(out, "set -eu\nmkdir -p -- ");
        nd_shell_put(out, plan->folder);
        nd_strbuf_puts(out, "/logs\n");
        for (size_t g = 1; g <= n_groups; g++)
            put_array(out, plan, groups, g);
        for (size_t i = 0; i < plan->n; i++)
            if (plan->tasks[i].kind != ND_TASK_CAPTURE && !plan->tasks[i].is_done)
                put_single(out, plan, i, groups, is_in);
    }
}
