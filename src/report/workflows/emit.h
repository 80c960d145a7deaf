/* The tasks of a campaign as scripts, one file for each engine. */
#ifndef ND_REPORT_EMIT_H
#define ND_REPORT_EMIT_H

#include "core/text/strbuf.h"
#include "npudiff/judge/campaign.h"

/* Appends the word as a shell reads it back. */
void nd_shell_put(struct nd_strbuf *out, const char *word);

/* The command that does the task, quoted for a shell: one line. */
void nd_emit_command(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, const struct nd_task *task);

/* Appends the text as JSON, Python and YAML all read it: in double quotes. It is UTF-8. */
void nd_emit_literal(struct nd_strbuf *out, const char *text);

/* A comment of one line: what was made of what; "how" says how it is run. */
void nd_emit_head(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan, const char *what,
                  const char *how);

/* What to ask of an engine for a task, with room for one that takes longer or needs more than was estimated. */
unsigned long long nd_emit_minutes(const struct nd_task *task);
unsigned long long nd_emit_memory_mib(const struct nd_task *task);

/* The last task: the one that judges. */
const struct nd_task *nd_emit_judge(const struct nd_plan_of_campaign *plan);

void nd_emit_tasks(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);
void nd_emit_make(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);
void nd_emit_slurm(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);
void nd_emit_snakemake(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);
void nd_emit_github(struct nd_strbuf *out, const struct nd_plan_of_campaign *plan);

#endif
