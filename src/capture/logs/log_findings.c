/* The list of findings in a log: joined, counted, sorted. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "npudiff/capture/logs.h"

enum { DEFAULT_MAX = 1000000 };

static const char *const kind_names[] = {
    "fallback", "placement", "fusion",  "quantisation", "preparation", "failure",       "validation",
    "version",  "arch",      "library", "device",       "memory",      "unknown-error", "limit"};

const char *nd_log_kind_name(enum nd_log_kind kind)
{
    return kind_names[kind];
}

bool nd_log_kind_from_name(const char *name, enum nd_log_kind *out)
{
    for (int i = 0; i < ND_LOG_N_KINDS; i++)
        if (strcmp(kind_names[i], name) == 0) {
            *out = (enum nd_log_kind)i;
            return true;
        }
    return false;
}

const char *nd_log_severity_name(enum nd_log_severity severity)
{
    static const char *const names[] = {"note", "warning", "failure"};
    return names[severity];
}

const char *nd_log_stage_name(enum nd_log_stage stage)
{
    static const char *const names[] = {"", "compose", "finalize", "execute"};
    return names[stage];
}

static void finding_deinit(struct nd_log_finding *finding)
{
    free(finding->log);
    free(finding->op);
    free(finding->node);
    free(finding->op_id);
    free(finding->tensor);
    free(finding->text);
}

static bool copy_finding(const struct nd_log_finding *from, struct nd_log_finding *out)
{
    struct nd_log_finding copy = *from;
    copy.log = nd_strdup(from->log);
    copy.op = nd_strdup(from->op);
    copy.node = nd_strdup(from->node);
    copy.op_id = nd_strdup(from->op_id);
    copy.tensor = nd_strdup(from->tensor);
    copy.text = nd_strdup(from->text);
    if (copy.log == NULL || copy.op == NULL || copy.node == NULL || copy.op_id == NULL || copy.tensor == NULL ||
        copy.text == NULL) {
        finding_deinit(&copy);
        return false;
    }
    *out = copy;
    return true;
}

bool nd_log_findings_add(void *context, const struct nd_log_finding *finding)
{
    struct nd_log_findings *list = context;
    if (list->n >= (list->max != 0 ? list->max : DEFAULT_MAX)) {
        list->n_left_out++;
        return true;
    }
    if (!nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items) ||
        !copy_finding(finding, &list->items[list->n])) {
        list->failed = true;
        return false;
    }
    list->n++;
    return true;
}

void nd_log_findings_deinit(struct nd_log_findings *findings)
{
    for (size_t i = 0; i < findings->n; i++)
        finding_deinit(&findings->items[i]);
    free(findings->items);
    *findings = (struct nd_log_findings){0};
}
