/* Tasks as a workflow of GitHub Actions: a matrix of captures, one of comparisons, one of explanations, a job
 * that judges. Its machines share no folder: each job keeps its files as an artifact and begins with those of
 * the jobs before it. */
#include <string.h>

#include "report/workflows/emit.h"

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
    struct nd_strbuf command = {0};
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
    nd_strbuf_deinit(&command);
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
        "          tar -cf \"$RUNNER_TEMP/%s-$NUMBER.tar\" -C \"$FOLDER\" --null -T "
        "\"$RUNNER_TEMP/files\"\n"
        "        env: {COMMAND: \"${{ matrix.command }}\", NUMBER: \"${{ matrix.number }}\"}\n"
        "      - uses: actions/upload-artifact@v4\n"
        "        with: {name: \"npudiff-%s-${{ matrix.number }}\", path: \"${{ runner.temp "
        "}}/%s-${{ matrix.number }}.tar\"}\n",
        name, name, name);
}

void nd_emit_github(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    struct nd_strbuf before = {0}, command = {0};
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
    nd_strbuf_deinit(&before);
    nd_strbuf_deinit(&command);
}
