/* Tasks as a Snakefile. Its rules are made in a loop over a list, so that each is written once. */
#include "report/workflows/emit.h"

static void put_task(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, size_t i)
{
    const struct nd_task *task = &plan->tasks[i];
    struct nd_strbuf command = {0};
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
    nd_strbuf_deinit(&command);
}

/* A task's file ends with the digest beside it, which is written last. The verdict has no output for Snakemake:
 * of a gate that fails it would remove the result. */
void nd_emit_snakemake(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan)
{
    nd_emit_head(
        out, plan, "A Snakefile",
        "In the folder in which this was made: snakemake -s FILE --cores 8. The last rule fails when the "
        "verdict is not 'passed'.");
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
