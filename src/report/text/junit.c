#include <libxml/tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/print.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"
#include "report/json/qualification.h"

#define XML(text) ((const xmlChar *)(text))

/* libxml2 says that memory is out with NULL, here and there; it is looked at once, at the end. */
struct writing {
    const struct nd_qualified *result;
    xmlNodePtr suite;
    size_t n, n_failures, n_errors, n_skipped;
    bool failed;
};

static void set(struct writing *w, xmlNodePtr node, const char *name, const char *text)
{
    char *clean = nd_clean_text(text); /* XML has no place for control characters */
    if (node == NULL || clean == NULL || xmlNewProp(node, XML(name), XML(clean)) == NULL)
        w->failed = true;
    free(clean);
}

static void set_count(struct writing *w, xmlNodePtr node, const char *name, size_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", n);
    set(w, node, name, text);
}

static void set_counts(struct writing *w, xmlNodePtr node, const size_t counts[static 4])
{
    static const char *const names[] = {"tests", "failures", "errors", "skipped"};
    for (size_t i = 0; i < 4; i++)
        set_count(w, node, names[i], counts[i]);
    set(w, node, "time", "0");
}

static xmlNodePtr add(struct writing *w, xmlNodePtr parent, const char *name)
{
    xmlNodePtr node = parent != NULL ? xmlNewChild(parent, NULL, XML(name), NULL) : NULL;
    w->failed = w->failed || node == NULL;
    return node;
}

static xmlNodePtr add_case(struct writing *w, const struct nd_qualified_model *model,
                           const struct nd_qualified_device *device, const char *name)
{
    struct nd_strbuf class_name = {0};
    nd_strbuf_printf(&class_name, "%s.%s.%s", w->result->campaign, model->name, device->label);
    char *text = nd_strbuf_take(&class_name);
    xmlNodePtr node = add(w, w->suite, "testcase");
    set(w, node, "name", name);
    set(w, node, "classname", text != NULL ? text : "");
    set(w, node, "time", "0");
    w->failed = w->failed || text == NULL;
    free(text);
    w->n++;
    return node;
}

static void add_outcome(struct writing *w, xmlNodePtr node, const char *verdict, const char *message)
{
    bool is_skipped = strcmp(verdict, "inconclusive") == 0, is_failure = strcmp(verdict, "failed") == 0;
    if (strcmp(verdict, "passed") == 0)
        return;
    if (strcmp(verdict, "warned") == 0) {
        char *clean = nd_clean_text(message);
        xmlNodePtr text = clean != NULL ? xmlNewTextChild(node, NULL, XML("system-out"), XML(clean)) : NULL;
        w->failed = w->failed || text == NULL;
        free(clean);
        return;
    }
    xmlNodePtr outcome = add(w, node, is_skipped ? "skipped" : is_failure ? "failure" : "error");
    set(w, outcome, "message", message);
    if (!is_skipped)
        set(w, outcome, "type", verdict);
    (*(is_skipped ? &w->n_skipped : is_failure ? &w->n_failures : &w->n_errors))++;
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

static void add_gate(struct writing *w, const struct nd_qualified_model *model,
                     const struct nd_qualified_device *device, const struct nd_qualified_case *one)
{
    const struct nd_qualified_gate *gate = nd_qualified_gate_of(w->result, one);
    struct nd_strbuf name = {0};
    nd_strbuf_puts(&name, gate->text);
    if (has_namesake(w, one, model, device))
        nd_strbuf_printf(&name, " (line %zu)", gate->line);
    char *text = nd_strbuf_take(&name);
    xmlNodePtr node = add_case(w, model, device, text != NULL ? text : "");
    if (node != NULL)
        add_outcome(w, node, one->verdict, one->message);
    w->failed = w->failed || text == NULL;
    free(text);
}

static void add_suite(struct writing *w, xmlNodePtr parent, const struct nd_qualified_model *model,
                      const struct nd_qualified_device *device)
{
    const size_t before[] = {w->n, w->n_failures, w->n_errors, w->n_skipped};
    struct nd_strbuf name = {0};
    nd_strbuf_printf(&name, "%s on %s", model->name, device->label);
    char *text = nd_strbuf_take(&name);
    w->suite = add(w, parent, "testsuite");
    set(w, w->suite, "name", text != NULL ? text : "");
    free(text);
    for (size_t i = 0; w->suite != NULL && i < w->result->cases.n; i++)
        if (nd_qualified_is_about(&w->result->cases.items[i], model, device))
            add_gate(w, model, device, &w->result->cases.items[i]);
    const char *failure = device->failure;
    if (w->n == before[0] && failure[0] != '\0') {
        xmlNodePtr node = add_case(w, model, device, "capture");
        if (node != NULL)
            add_outcome(w, node, "device failed", failure);
    }
    const size_t counts[] = {w->n - before[0], w->n_failures - before[1], w->n_errors - before[2],
                             w->n_skipped - before[3]};
    set_counts(w, w->suite, counts);
}

static void add_suites(struct writing *w, xmlNodePtr top)
{
    set(w, top, "name", w->result->campaign);
    for (size_t m = 0; m < w->result->models.n; m++) {
        const struct nd_qualified_model *model = &w->result->models.items[m];
        for (size_t d = 0; d < model->devices.n; d++)
            add_suite(w, top, model, &model->devices.items[d]);
    }
    const size_t counts[] = {w->n, w->n_failures, w->n_errors, w->n_skipped};
    set_counts(w, top, counts);
}

enum nd_status nd_report_qualification_junit(const struct nd_qualified *result, char **out,
                                             struct nd_error *err)
{
    struct writing w = {.result = result};
    xmlDocPtr document = xmlNewDoc(XML("1.0"));
    xmlNodePtr top = document != NULL ? xmlNewDocNode(document, NULL, XML("testsuites"), NULL) : NULL;
    xmlChar *text = NULL;
    int n_bytes = 0;
    if (top != NULL) {
        xmlDocSetRootElement(document, top);
        add_suites(&w, top);
        xmlDocDumpFormatMemoryEnc(document, &text, &n_bytes, "UTF-8", 1);
    }
    char *copy = text != NULL && !w.failed && !nd_take_lost_text() ? strdup((const char *)text) : NULL;
    xmlFree(text);
    xmlFreeDoc(document);
    if (copy == NULL)
        return nd_fail_memory(err);
    *out = copy;
    return ND_OK;
}
