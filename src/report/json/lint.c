/* What `npudiff lint` found, as JSON and as SARIF. */
#include <math.h>

#include "core/documents/json_out.h"
#include "npudiff/npudiff.h"
#include "report/text/tree.h"

static json_t *text_or_null(const char *text)
{
    return text != NULL ? nd_json_string(text) : json_null();
}

static json_t *count(size_t n)
{
    return json_integer((json_int_t)n);
}

/* ---- JSON ---- */

static json_t *rule_json(const struct nd_lint_rule *rule)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "id", rule->id, "level",
                     nd_lint_level_name(rule->level), "what", rule->what, "why", rule->why, "where",
                     rule->where, "cost", rule->cost, "mend", rule->mend, "evidence", rule->evidence,
                     "mended_by_fix", (int)rule->is_mended);
}

static json_t *rules_json(void)
{
    size_t n;
    const struct nd_lint_rule *rules = nd_lint_rules(&n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        nd_tree_append(list, rule_json(&rules[i]));
    return list;
}

static json_t *finding_json(const struct nd_lint_finding *finding)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "rule", finding->rule->id, "level",
                     nd_lint_level_name(finding->rule->level), "tensor", nd_json_string(finding->tensor),
                     "node", nd_json_string(finding->node), "operator", nd_json_string(finding->op_type),
                     "message", nd_json_string(finding->message), "effect_lsb",
                     nd_json_known(finding->effect_lsb), "mended", (int)finding->is_mended, "change",
                     text_or_null(finding->change), "obstacle", text_or_null(finding->obstacle));
}

enum nd_status nd_report_lint_json(const struct nd_lint *lint, char **out, struct nd_error *err)
{
    json_t *findings = json_array();
    for (size_t i = 0; i < lint->n_findings; i++)
        nd_tree_append(findings, finding_json(&lint->findings[i]));
    json_t *counts = json_pack("{s:o, s:o, s:o, s:o, s:o}", "layers", count(lint->n_layers), "errors",
                               count(lint->n_errors), "warnings", count(lint->n_warnings), "notes",
                               count(lint->n_notes), "left", count(lint->n_left));
    json_t *members = json_pack("{s:s, s:o, s:o, s:o, s:o}", "result", lint->n_left > 0 ? "findings" : "clean",
                                "model", nd_json_string(lint->model), "output", text_or_null(lint->output),
                                "counts", counts, "findings", findings);
    return nd_tree_end(ND_DOCUMENT_LINT, members, out, err);
}

enum nd_status nd_report_lint_rules_json(char **out, struct nd_error *err)
{
    return nd_tree_end(ND_DOCUMENT_LINT_RULES, json_pack("{s:o}", "rules", rules_json()), out, err);
}

/* ---- SARIF 2.1.0 ---- */

static json_t *sarif_text(const char *text)
{
    return json_pack("{s:o}", "text", nd_json_string(text));
}

static json_t *sarif_rules(void)
{
    size_t n;
    const struct nd_lint_rule *rules = nd_lint_rules(&n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        nd_tree_append(list, json_pack("{s:s, s:o, s:o, s:o, s:{s:s}, s:{s:s, s:s, s:s}}", "id", rules[i].id,
                                       "shortDescription", sarif_text(rules[i].what), "fullDescription",
                                       sarif_text(rules[i].why), "help", sarif_text(rules[i].mend),
                                       "defaultConfiguration", "level", nd_lint_level_name(rules[i].level),
                                       "properties", "where", rules[i].where, "cost", rules[i].cost, "evidence",
                                       rules[i].evidence));
    return list;
}

/* The model is the file; within it the node is named, since a binary file has no lines. */
static json_t *sarif_result(const struct nd_lint *lint, const struct nd_lint_finding *finding)
{
    return json_pack("{s:s, s:s, s:o, s:[{s:{s:{s:o}}, s:[{s:o, s:o, s:s}]}], s:{s:b, s:o}}", "ruleId",
                     finding->rule->id, "level", nd_lint_level_name(finding->rule->level), "message",
                     sarif_text(finding->message), "locations", "physicalLocation", "artifactLocation", "uri",
                     nd_json_string(lint->model), "logicalLocations", "name", nd_json_string(finding->tensor),
                     "fullyQualifiedName", nd_json_string(finding->node), "kind", "element", "properties",
                     "mended", (int)finding->is_mended, "effect_lsb", nd_json_known(finding->effect_lsb));
}

enum nd_status nd_report_lint_sarif(const struct nd_lint *lint, char **out, struct nd_error *err)
{
    json_t *results = json_array();
    for (size_t i = 0; i < lint->n_findings; i++)
        nd_tree_append(results, sarif_result(lint, &lint->findings[i]));
    json_t *root =
        json_pack("{s:s, s:s, s:[{s:{s:{s:s, s:s, s:o}}, s:o}]}", "$schema",
                  "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs", "tool", "driver",
                  "name", "npudiff", "version", nd_version(), "rules", sarif_rules(), "results", results);
    *out = root != NULL ? nd_json_dump(root, 1) : NULL;
    json_decref(root);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}
