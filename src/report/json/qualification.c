/* A campaign's result as JSON, and the files of it in a folder. docs/reference/json.md. */
#include "core/memory.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "core/files/file.h"
#include "core/text/strbuf.h"
#include "judge/release/qualify.h"
#include "npudiff/core/parse.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

/* The result of a campaign as JUnit XML, for servers that show tests: docs/guides/ci.md. golden/junit.rng is
 * its form. */

struct counts {
    size_t tests, failures, errors;
    double seconds; /* that the runs took */
};

/* An element opens with the counts of what is in it, so its content is written before it. */
struct writing {
    const struct nd_qualified *result;
    struct nd_strbuf suites, cases; /* content of the root, and of the suite that is being written */
    struct counts all, suite;
};

/* Text of an element or of a quoted attribute. XML has no place for control characters and broken UTF-8: they
 * become '?', line feeds and tabs, too. */
static void put_junit_text(struct nd_strbuf *out, const char *text)
{
    static const char marks[] = "&<>\"";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    ND_FREED char *clean = nd_clean_text(text);
    for (const char *at = clean; at != NULL && *at != '\0';) {
        size_t n_plain = strcspn(at, marks);
        nd_strbuf_append(out, at, n_plain);
        at += n_plain;
        if (*at != '\0')
            nd_strbuf_puts(out, entities[strchr(marks, *at++) - marks]);
    }
    out->failed = out->failed || clean == NULL;
}

static void put_attribute(struct nd_strbuf *out, const char *name, const char *text)
{
    nd_strbuf_printf(out, " %s=\"", name);
    put_junit_text(out, text);
    nd_strbuf_puts(out, "\"");
}

/* The end of an element that holds tests, from its counts on. Takes the content. */
static void put_tests(struct nd_strbuf *out, const struct counts *n, struct nd_strbuf *content, const char *end)
{
    ND_FREED char *text = nd_strbuf_take(content);
    nd_strbuf_printf(out, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"0\" time=\"%.3f\"",
                     n->tests, n->failures, n->errors, n->seconds);
    if (text != NULL && text[0] != '\0')
        nd_strbuf_printf(out, ">\n%s%s\n", text, end);
    else
        nd_strbuf_puts(out, "/>\n");
    out->failed = out->failed || text == NULL;
}

static void put_outcome(struct writing *w, const char *verdict, const char *message)
{
    bool is_failure = strcmp(verdict, "failed") == 0;
    if (strcmp(verdict, "warned") == 0) {
        nd_strbuf_puts(&w->cases, "      <system-out>");
        put_junit_text(&w->cases, message);
        nd_strbuf_puts(&w->cases, "</system-out>\n");
        return;
    }
    nd_strbuf_printf(&w->cases, "      <%s", is_failure ? "failure" : "error");
    put_attribute(&w->cases, "message", message);
    put_attribute(&w->cases, "type", verdict);
    nd_strbuf_puts(&w->cases, "/>\n");
    (*(is_failure ? &w->suite.failures : &w->suite.errors))++;
}

/* A test of the suite; the first one has the time that the device ran. line: of the campaign, SIZE_MAX when the
 * name tells enough. */
static void put_junit_case(struct writing *w, const char *class_name, const char *name, size_t line,
                           const char *verdict, const char *message)
{
    nd_strbuf_puts(&w->cases, "    <testcase name=\"");
    put_junit_text(&w->cases, name);
    if (line != SIZE_MAX)
        nd_strbuf_printf(&w->cases, " (line %zu)", line);
    nd_strbuf_puts(&w->cases, "\"");
    put_attribute(&w->cases, "classname", class_name);
    nd_strbuf_printf(&w->cases, " time=\"%.3f\"", w->suite.tests++ == 0 ? w->suite.seconds : 0);
    if (strcmp(verdict, "passed") == 0) {
        nd_strbuf_puts(&w->cases, "/>\n");
        return;
    }
    nd_strbuf_puts(&w->cases, ">\n");
    put_outcome(w, verdict, message);
    nd_strbuf_puts(&w->cases, "    </testcase>\n");
}

/* Two gates of the same words would be one test to those who read this. */
static bool has_namesake(const struct writing *w, const struct nd_qualified_case *one,
                         const struct nd_qualified_model *model, const struct nd_qualified_device *device)
{
    const char *text = nd_qualified_gate_of(w->result, one)->text;
    for (size_t i = 0; i < w->result->cases.n; i++) {
        const struct nd_qualified_case *other = &w->result->cases.items[i];
        if (other != one && nd_qualified_is_about(other, model, device) &&
            strcmp(nd_qualified_gate_of(w->result, other)->text, text) == 0)
            return true;
    }
    return false;
}

static void put_suite(struct writing *w, const struct nd_qualified_model *model,
                      const struct nd_qualified_device *device)
{
    char *text = nd_text("%s.%s.%s", w->result->campaign, model->name, device->label);
    w->suite = (struct counts){.seconds = device->run_s > 0 ? device->run_s : 0};
    const char *class_name = text != NULL ? text : "";
    for (size_t i = 0; i < w->result->cases.n; i++) {
        const struct nd_qualified_case *one = &w->result->cases.items[i];
        if (!nd_qualified_is_about(one, model, device))
            continue;
        const struct nd_qualified_gate *gate = nd_qualified_gate_of(w->result, one);
        put_junit_case(w, class_name, gate->text, has_namesake(w, one, model, device) ? gate->line : SIZE_MAX,
                       one->verdict, one->message);
    }
    if (w->suite.tests == 0 && device->failure[0] != '\0')
        put_junit_case(w, class_name, "capture", SIZE_MAX, "device failed", device->failure);
    w->suites.failed = w->suites.failed || text == NULL;
    free(text);

    nd_strbuf_puts(&w->suites, "  <testsuite name=\"");
    put_junit_text(&w->suites, model->name);
    nd_strbuf_puts(&w->suites, " on ");
    put_junit_text(&w->suites, device->label);
    nd_strbuf_puts(&w->suites, "\"");
    put_tests(&w->suites, &w->suite, &w->cases, "  </testsuite>");
    w->all.tests += w->suite.tests;
    w->all.failures += w->suite.failures;
    w->all.errors += w->suite.errors;
    w->all.seconds += w->suite.seconds;
}

enum nd_status nd_report_qualification_junit(const struct nd_qualified *result, char **out,
                                             struct nd_error *err)
{
    struct writing w = {.result = result};
    struct nd_strbuf document = {0};
    for (size_t m = 0; m < result->models.n; m++)
        for (size_t d = 0; d < result->models.items[m].devices.n; d++)
            put_suite(&w, &result->models.items[m], &result->models.items[m].devices.items[d]);
    nd_strbuf_puts(&document, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites");
    put_attribute(&document, "name", result->campaign);
    put_tests(&document, &w.all, &w.suites, "</testsuites>");
    char *text = nd_strbuf_take(&document);
    bool is_lost = nd_take_lost_text();
    if (text == NULL || is_lost) {
        free(text);
        return nd_fail_memory(err);
    }
    *out = text;
    return ND_OK;
}

/* A campaign's result as CSV: a row for each case. docs/reference/campaign.md. */

static void put_cell(struct nd_strbuf *out, const char *text, bool is_last)
{
    bool is_quoted = strpbrk(text, ",\"\r\n") != NULL;
    nd_strbuf_puts(out, is_quoted ? "\"" : "");
    for (; *text != '\0'; text++)
        nd_strbuf_append(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    nd_strbuf_printf(out, "%s%s", is_quoted ? "\"" : "", is_last ? "\r\n" : ",");
}

/* What others wrote. A spreadsheet takes a text that begins so for a formula, and runs it; an apostrophe makes
 * it a text. */
static void put_text(struct nd_strbuf *out, const char *text, bool is_last)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf kept = {0};
    bool is_formula = text[0] != '\0' && strchr("=+-@\t\r", text[0]) != NULL;
    char *clean = nd_clean_text(text);
    nd_strbuf_printf(&kept, "%s%s", is_formula ? "'" : "", clean != NULL ? clean : "");
    out->failed = out->failed || kept.failed || clean == NULL;
    free(clean);
    put_cell(out, kept.text != NULL ? kept.text : "", is_last);
}

/* Every digit: arithmetics read it. Nothing where it is not known. */
static void put_count(struct nd_strbuf *out, size_t n)
{
    char number[ND_NUMBER_BYTES] = "";
    if (n != SIZE_MAX)
        snprintf(number, sizeof number, "%zu", n);
    put_cell(out, number, false);
}

static void put_real(struct nd_strbuf *out, double value)
{
    char number[ND_NUMBER_BYTES] = "";
    if (isinf(value))
        nd_format_double(value, number);
    else if (!isnan(value))
        nd_format_real(value, number);
    put_cell(out, number, false);
}

static void put_case(struct nd_strbuf *out, const struct nd_qualified *result,
                     const struct nd_qualified_case *one)
{
    const struct nd_qualified_gate *gate = nd_qualified_gate_of(result, one);
    put_text(out, one->model, false);
    put_text(out, one->device, false);
    put_cell(out, gate->gate, false);
    put_cell(out, gate->text, false);
    /* "conv*" "logits" as one text; none stands for all. */
    struct nd_strbuf joined = {0};
    for (size_t i = 0; i < gate->tensors.n; i++)
        nd_strbuf_printf(&joined, "%s%s", i > 0 ? " " : "", gate->tensors.items[i]);
    ND_FREED char *text = nd_strbuf_take(&joined);
    if (text == NULL)
        out->failed = true;
    else
        put_text(out, text[0] != '\0' ? text : "*", false);
    put_cell(out, one->verdict, false);
    put_real(out, one->value);
    put_real(out, one->bound);
    put_text(out, one->tensor, false);
    put_text(out, one->probe, false);
    put_count(out, one->n_checked);
    put_count(out, one->n_failing);
    put_count(out, one->n_samples);
    put_count(out, one->n_samples_needed);
    put_text(out, one->message, true);
}

enum nd_status nd_report_qualification_csv(const struct nd_qualified *result, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    nd_strbuf_puts(&buf, "model,device,gate,text,tensors,verdict,value,bound,worst_tensor,worst_probe,checked,"
                         "failing,samples,samples_needed,message\r\n");
    for (size_t i = 0; i < result->cases.n; i++)
        put_case(&buf, result, &result->cases.items[i]);
    return nd_text_end(&buf, out, err);
}

/* ---- JSON ---- */

/* An object that begins with what it is. The version is that which made the result. */
static struct nd_json begin(struct nd_strbuf *buf, size_t indent, enum nd_document kind)
{
    struct nd_json json = {.out = buf, .indent = indent};
    nd_json_open(&json, NULL, '{');
    nd_json_text(&json, "kind", nd_document_word(kind));
    nd_json_int(&json, "format", ND_JSON_FORMAT);
    return json;
}

enum nd_status nd_report_qualification_json(const struct nd_qualified *result, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, 1, ND_DOCUMENT_QUALIFICATION);
    nd_json_put_members(&json, &nd_qualified_members, result);
    return nd_document_end(&json, out, err);
}

enum nd_status nd_report_suggestion_json(const struct nd_qualified *result, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, 2, ND_DOCUMENT_SUGGESTION);
    nd_json_text(&json, "npudiff", result->version);
    nd_json_text(&json, "campaign", result->campaign);
    nd_json_text(&json, "yaml", result->suggestion);
    nd_json_put_members(&json, &nd_suggestion_members, result);
    return nd_document_end(&json, out, err);
}

/* ---- files ---- */

static enum nd_status put(const char *folder, const char *name, const char *text, struct nd_error *err)
{
    ND_FREED char *path = nd_path_join(folder, name);
    return path != NULL ? nd_file_put(path, text, strlen(text), err) : nd_fail_memory(err);
}

enum nd_status nd_report_qualification_write(const struct nd_qualify_result *result, struct nd_error *err)
{
    static const struct {
        const char *name;
        enum nd_status (*make)(const struct nd_qualified *result, char **out, struct nd_error *err);
    } files[] = {{"result.txt", nd_report_qualification_text},
                 {"result.csv", nd_report_qualification_csv},
                 {"junit.xml", nd_report_qualification_junit},
                 /* The last one: where it is, the others are, too. */
                 {"result.json", nd_report_qualification_json}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ND_FREED char *text = NULL;
        ND_TRY(files[i].make(&result->found, &text, err));
        ND_TRY(put(result->folder, files[i].name, text, err));
    }
    return ND_OK;
}
