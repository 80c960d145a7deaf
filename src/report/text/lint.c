/* What `npudiff lint` found, as JSON, as SARIF and as text. */
#include <math.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

/* ---- JSON ---- */

static json_t *rules_json(void)
{
    size_t n;
    const struct nd_lint_rule *rules = nd_lint_rules(&n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        nd_tree_append(list,
                       json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "id", rules[i].id, "level",
                                 nd_lint_level_name(rules[i].level), "what", rules[i].what, "why", rules[i].why,
                                 "where", rules[i].where, "cost", rules[i].cost, "mend", rules[i].mend,
                                 "evidence", rules[i].evidence, "mended_by_fix", (int)rules[i].is_mended));
    }
    return list;
}

enum nd_status nd_report_lint_json(const struct nd_lint *lint, char **out, struct nd_error *err)
{
    json_t *findings = json_array();
    for (size_t i = 0; i < lint->n_findings; i++) {
        const struct nd_lint_finding *finding = &lint->findings[i];
        nd_tree_append(
            findings,
            json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "rule", finding->rule->id, "level",
                      nd_lint_level_name(finding->rule->level), "tensor", nd_json_string(finding->tensor),
                      "node", nd_json_string(finding->node), "operator", nd_json_string(finding->op_type),
                      "message", nd_json_string(finding->message), "effect_lsb",
                      nd_json_known(finding->effect_lsb), "mended", (int)finding->is_mended, "change",
                      nd_or_null(finding->change), "obstacle", nd_or_null(finding->obstacle)));
    }
    json_t *counts =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "layers", nd_int(lint->n_layers), "qoperators",
                  nd_int(lint->n_qoperators), "errors", nd_int(lint->n_errors), "warnings",
                  nd_int(lint->n_warnings), "notes", nd_int(lint->n_notes), "left", nd_int(lint->n_left));
    json_t *members = json_pack("{s:s, s:o, s:o, s:o, s:o}", "result",
                                lint->n_left > 0             ? "findings"
                                : nd_lint_has_examined(lint) ? "clean"
                                                             : "not-examined",
                                "model", nd_json_string(lint->model), "output", nd_or_null(lint->output),
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

enum nd_status nd_report_lint_sarif(const struct nd_lint *lint, char **out, struct nd_error *err)
{
    json_t *results = json_array();
    for (size_t i = 0; i < lint->n_findings; i++) {
        /* The model is the file; within it the node is named, since a binary file has no lines. */
        const struct nd_lint_finding *finding = &lint->findings[i];
        nd_tree_append(results,
                       json_pack("{s:s, s:s, s:o, s:[{s:{s:{s:o}}, s:[{s:o, s:o, s:s}]}], s:{s:b, s:o}}",
                                 "ruleId", finding->rule->id, "level", nd_lint_level_name(finding->rule->level),
                                 "message", sarif_text(finding->message), "locations", "physicalLocation",
                                 "artifactLocation", "uri", nd_json_string(lint->model), "logicalLocations",
                                 "name", nd_json_string(finding->tensor), "fullyQualifiedName",
                                 nd_json_string(finding->node), "kind", "element", "properties", "mended",
                                 (int)finding->is_mended, "effect_lsb", nd_json_known(finding->effect_lsb)));
    }
    json_t *root =
        json_pack("{s:s, s:s, s:[{s:{s:{s:s, s:s, s:o}}, s:o}]}", "$schema",
                  "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs", "tool", "driver",
                  "name", "npudiff", "version", nd_version(), "rules", sarif_rules(), "results", results);
    *out = root != NULL ? nd_json_dump(root, 1) : NULL;
    json_decref(root);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- the answer in one screen ---- */

/* "2 errors, 1 warning and 3 notes", without those that there are none of. */
static void put_counts(struct nd_strbuf *out, const struct nd_lint *lint)
{
    const size_t counts[] = {lint->n_errors, lint->n_warnings, lint->n_notes};
    size_t n_kinds = 0, n_put = 0;
    for (size_t i = 0; i < 3; i++)
        n_kinds += counts[i] > 0;
    for (size_t i = 0; i < 3; i++)
        if (counts[i] > 0) {
            n_put++;
            nd_strbuf_printf(out, "%s%zu %s%s",
                             n_put == 1         ? ""
                             : n_put == n_kinds ? " and "
                                                : ", ",
                             counts[i], nd_lint_level_name((enum nd_lint_level)i), nd_plural(counts[i]));
        }
}

static void say_headline(struct nd_report_screen *screen, const struct nd_lint *lint)
{
    struct nd_strbuf counts = {0};
    size_t n_rules, n_mended = 0;
    nd_lint_rules(&n_rules);
    put_counts(&counts, lint);
    ND_FREED char *text = nd_strbuf_take(&counts);
    for (size_t i = 0; i < lint->n_findings; i++)
        n_mended += lint->findings[i].is_mended;
    const char *state = lint->n_left > 0                        ? "FAULTS"
                        : lint->n_errors + lint->n_warnings > 0 ? "MENDED"
                                                                : "CLEAN";
    if (!nd_lint_has_examined(lint))
        nd_report_screen_put(screen, "NOT EXAMINED: no rule found a layer between quantisers\n");
    else if (lint->n_findings == 0)
        nd_report_screen_put(screen, "CLEAN: none of %zu rules finds anything\n", n_rules);
    else if (text == NULL)
        nd_report_screen_lose(screen);
    else if (n_mended > 0)
        nd_report_screen_put(screen, "%s: %s; %zu mended\n", state, text, n_mended);
    else
        nd_report_screen_put(screen, "%s: %s\n", state, text);
    nd_report_screen_put(screen, "%s: %zu layer%s; nothing was run\n", nd_path_base(lint->model),
                         lint->n_layers, nd_plural(lint->n_layers));
    if (lint->n_qoperators > 0)
        nd_report_screen_put(screen,
                             "%zu operator%s (%s...) in QOperator format, which lint does not examine: "
                             "quantise with QuantFormat.QDQ\n",
                             lint->n_qoperators, nd_plural(lint->n_qoperators), lint->qoperator);
    if (lint->output != NULL)
        nd_report_screen_put(screen, "Written to '%s'.\n", lint->output);
}

/* One row for all findings of a rule. */
static json_t *rule_row(const struct nd_lint *lint, size_t first)
{
    static const double max_exact = 100; /* above, whole steps are shown */
    const struct nd_lint_rule *rule = lint->findings[first].rule;
    double worst = (double)NAN;
    size_t n = 0, n_mended = 0;
    for (size_t i = first; i < lint->n_findings && lint->findings[i].rule == rule; i++) {
        worst = fmax(worst, lint->findings[i].effect_lsb);
        n_mended += lint->findings[i].is_mended;
        n++;
    }
    char number[64] = "?";
    if (!isnan(worst))
        snprintf(number, sizeof number, worst < max_exact ? "%.3g" : "%.0f", worst);
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:o}", "rule", rule->id, "level",
                     nd_lint_level_name(rule->level), "n", (json_int_t)n, "mended", (json_int_t)n_mended,
                     "worst", number, "first", nd_json_string(lint->findings[first].tensor));
}

/* The first finding that is left, in full: what is wrong, what it does, what to do. */
static void say_first(struct nd_report_screen *screen, const struct nd_lint *lint)
{
    size_t i = 0, n_can = 0;
    while (i < lint->n_findings && lint->findings[i].is_mended)
        i++;
    if (i == lint->n_findings)
        return;
    const struct nd_lint_finding *finding = &lint->findings[i];
    nd_report_screen_put(screen, "\n'%s' (%s, %s): %s.\n", finding->tensor, finding->op_type, finding->rule->id,
                         finding->message);
    nd_report_screen_put(screen, "%s\n", finding->rule->why);
    nd_report_screen_put(screen, "Cost, as measured: %s Seen on: %s\n", finding->rule->cost,
                         finding->rule->where);
    nd_report_screen_put(screen, "To mend it: %s\n", finding->rule->mend);
    for (i = 0; i < lint->n_findings; i++)
        n_can += lint->findings[i].change != NULL && !lint->findings[i].is_mended;
    const char *const words[] = {"npudiff", "lint", lint->model, "--fix", "-o", "mended.onnx"};
    if (n_can > 0)
        nd_report_screen_next(screen, "to mend what can be mended without changing the model's meaning", words,
                              sizeof words / sizeof words[0]);
}

static void say_changes(struct nd_report_screen *screen, const struct nd_lint *lint)
{
    enum { MOST = 5 }; /* of one screen */
    size_t n = 0;
    for (size_t i = 0; i < lint->n_findings; i++) {
        const struct nd_lint_finding *finding = &lint->findings[i];
        if (finding->is_mended && n++ < MOST)
            nd_report_screen_put(screen, "%s'%s' (%s): %s.\n", n == 1 ? "\nChanged:\n  " : "  ",
                                 finding->tensor, finding->op_type, finding->change);
    }
    if (n > MOST)
        nd_report_screen_put(screen, "  and %zu more (-v shows all)\n", n - MOST);
}

enum nd_status nd_report_lint_brief(const struct nd_lint *lint, size_t width, char **out, struct nd_error *err)
{
    struct nd_report_screen *screen = nd_report_screen_create(width);
    say_headline(screen, lint);
    if (lint->n_findings > 0) {
        static const struct nd_report_column columns[] = {
            {"rule", "RULE"},       {"level", "LEVEL"},       {"n", "FOUND"}, {"mended", "MENDED"},
            {"worst", "UP TO LSB"}, {"first", "FIRST LAYER"}, {NULL, NULL}};
        json_t *rows = json_array();
        for (size_t i = 0; i < lint->n_findings; i++)
            if (i == 0 || lint->findings[i].rule != lint->findings[i - 1].rule)
                nd_tree_append(rows, rule_row(lint, i));
        nd_report_screen_put(screen, "\n");
        nd_screen_rows(screen, rows, columns, "-v shows all");
    }
    say_changes(screen, lint);
    say_first(screen, lint);
    return nd_report_screen_end(&screen, out, err);
}

/* ---- everything ---- */

static void put_rule(struct nd_strbuf *out, size_t width, const struct nd_lint_rule *rule)
{
    nd_summary_put(out, width, 0, 2, "%s (%s): %s", rule->id, nd_lint_level_name(rule->level), rule->what);
    nd_summary_put(out, width, 2, 4, "Why: %s", rule->why);
    nd_summary_put(out, width, 2, 4, "Seen on: %s", rule->where);
    nd_summary_put(out, width, 2, 4, "Cost: %s", rule->cost);
    nd_summary_put(out, width, 2, 4, "To mend it: %s%s", rule->mend,
                   rule->is_mended ? " --fix does it where it can." : "");
    nd_summary_put(out, width, 2, 4, "Evidence: docs/%s", rule->evidence);
}

static void put_finding(struct nd_strbuf *out, size_t width, const struct nd_lint_finding *finding)
{
    nd_summary_put(out, width, 2, 4, "'%s' (%s '%s'): %s.", finding->tensor, finding->op_type, finding->node,
                   finding->message);
    if (finding->is_mended)
        nd_summary_put(out, width, 4, 6, "mended: %s", finding->change);
    if (finding->obstacle != NULL)
        nd_summary_put(out, width, 4, 6, "--fix does not mend it: %s", finding->obstacle);
}

enum nd_status nd_report_lint_text(const struct nd_lint *lint, size_t width, char **out, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    char *brief = NULL;
    ND_TRY(nd_report_lint_brief(lint, width, &brief, err));
    nd_strbuf_puts(&text, brief);
    free(brief);
    for (size_t i = 0; i < lint->n_findings; i++) {
        if (i == 0 || lint->findings[i].rule != lint->findings[i - 1].rule) {
            nd_strbuf_puts(&text, "\n");
            put_rule(&text, nd_summary_width(width), lint->findings[i].rule);
        }
        put_finding(&text, nd_summary_width(width), &lint->findings[i]);
    }
    return nd_text_end(&text, out, err);
}

enum nd_status nd_report_lint_rules_text(size_t width, char **out, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    size_t n;
    const struct nd_lint_rule *rules = nd_lint_rules(&n);
    for (size_t i = 0; i < n; i++) {
        nd_strbuf_puts(&text, i > 0 ? "\n" : "");
        put_rule(&text, nd_summary_width(width), &rules[i]);
    }
    return nd_text_end(&text, out, err);
}
