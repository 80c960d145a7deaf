/* The result of a campaign as JUnit XML, for servers that show tests: docs/guides/ci.md. golden/junit.rng is
 * its form. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"

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
static void put_text(struct nd_strbuf *out, const char *text)
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
    put_text(out, text);
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
        put_text(&w->cases, message);
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
static void put_case(struct writing *w, const char *class_name, const char *name, size_t line,
                     const char *verdict, const char *message)
{
    nd_strbuf_puts(&w->cases, "    <testcase name=\"");
    put_text(&w->cases, name);
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

static void put_cases(struct writing *w, const struct nd_qualified_model *model,
                      const struct nd_qualified_device *device, const char *class_name)
{
    for (size_t i = 0; i < w->result->cases.n; i++) {
        const struct nd_qualified_case *one = &w->result->cases.items[i];
        if (!nd_qualified_is_about(one, model, device))
            continue;
        const struct nd_qualified_gate *gate = nd_qualified_gate_of(w->result, one);
        put_case(w, class_name, gate->text, has_namesake(w, one, model, device) ? gate->line : SIZE_MAX,
                 one->verdict, one->message);
    }
    if (w->suite.tests == 0 && device->failure[0] != '\0')
        put_case(w, class_name, "capture", SIZE_MAX, "device failed", device->failure);
}

static void put_suite(struct writing *w, const struct nd_qualified_model *model,
                      const struct nd_qualified_device *device)
{
    char *text = nd_text("%s.%s.%s", w->result->campaign, model->name, device->label);
    w->suite = (struct counts){.seconds = device->run_s > 0 ? device->run_s : 0};
    put_cases(w, model, device, text != NULL ? text : "");
    w->suites.failed = w->suites.failed || text == NULL;
    free(text);

    nd_strbuf_puts(&w->suites, "  <testsuite name=\"");
    put_text(&w->suites, model->name);
    nd_strbuf_puts(&w->suites, " on ");
    put_text(&w->suites, device->label);
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
