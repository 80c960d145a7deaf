/* Writing text, numbers and names into HTML. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "report/html/html.h"
#include "report/text/tree.h"

/* What HTML takes for markup, in text and in quoted attributes alike; NULL: the byte stands for itself. */
static const char *escape_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void nd_html_text(struct nd_page *page, const char *text)
{
    ND_FREED char *shown = nd_shown_text(text != NULL ? text : "");
    if (shown == NULL) {
        page->out->failed = true;
        return;
    }
    const char *start = shown;
    for (const char *c = shown; *c != '\0'; c++) {
        const char *escape = escape_of(*c);
        if (escape == NULL)
            continue;
        nd_strbuf_append(page->out, start, (size_t)(c - start));
        nd_strbuf_puts(page->out, escape);
        start = c + 1;
    }
    nd_strbuf_puts(page->out, start);
}

void nd_html_name(struct nd_page *page, const char *name)
{
    nd_html_fill(page, "<bdi class=\"name\">$t</bdi>", name);
}

void nd_html_fill(struct nd_page *page, const char *html, ...)
{
    va_list args;
    va_start(args, html);
    for (const char *place; (place = strchr(html, '$')) != NULL; html = place + 2) {
        nd_strbuf_append(page->out, html, (size_t)(place - html));
        (place[1] == 'n' ? nd_html_name : nd_html_text)(page, va_arg(args, const char *));
    }
    va_end(args);
    nd_html_puts(page, html);
}

/* ---- sections ---- */

void nd_html_section(struct nd_page *page, const struct nd_page_part *part, const char *id, const char *title)
{
    nd_html_printf(page, "<section id=\"%s%s\" aria-labelledby=\"%s%s-title\">\n<h2 id=\"%s%s-title\">%s",
                   part->prefix, id, part->prefix, id, part->prefix, id, title);
    if (part->name[0] != '\0') {
        nd_html_fill(page, " <span class=\"of\">$n</span>", part->name);
    }
    nd_html_puts(page, "</h2>\n");
}

void nd_html_section_end(struct nd_page *page)
{
    nd_html_puts(page, "</section>\n");
}

void nd_html_absent(struct nd_page *page, const char *sentence, const char *command)
{
    nd_html_printf(page, "<p class=\"absent\">%s <code class=\"command\">%s</code></p>\n", sentence, command);
}

/* ---- tables ---- */

void nd_html_scroll(struct nd_page *page, const char *name, bool is_tall)
{
    nd_html_printf(page, "<div class=\"scroll%s\" tabindex=\"0\" role=\"region\" aria-label=\"%s, table %zu\">",
                   is_tall ? " tall" : "", name, ++page->n_tables);
}

void nd_html_heads(struct nd_page *page, const char *titles)
{
    nd_html_puts(page, "\n<thead><tr>");
    for (const char *title = titles; *title != '\0';) {
        bool is_number = *title == '#';
        title += is_number;
        size_t n = strcspn(title, "|");
        nd_html_printf(page, "<th scope=\"col\"%s>%.*s</th>", is_number ? " class=\"n\"" : "", (int)n, title);
        title += n + (title[n] == '|');
    }
    nd_html_puts(page, "</tr></thead>\n<tbody>\n");
}

/* ---- numbers ---- */

const char *nd_html_count(double n, char buf[ND_HTML_TEXT_BYTES])
{
    char digits[32];
    size_t at = 0;
    if (isnan(n) || fabs(n) >= 1e15) {
        snprintf(buf, ND_HTML_TEXT_BYTES, "%s", isnan(n) ? "?" : "over 1e15");
        return buf;
    }
    size_t length = (size_t)snprintf(digits, sizeof digits, "%.0f", n);
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-') {
            memcpy(buf + at, "\u202f", 3); /* a narrow blank at which no line breaks */
            at += 3;
        }
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

const char *nd_html_percent(double share, char buf[ND_HTML_TEXT_BYTES])
{
    return nd_format_percent(share, "\u202f%", buf);
}

const char *nd_html_real(double value, char buf[ND_HTML_TEXT_BYTES])
{
    if (isnan(value))
        snprintf(buf, ND_HTML_TEXT_BYTES, "?");
    else if (isinf(value))
        snprintf(buf, ND_HTML_TEXT_BYTES, value > 0 ? "infinite" : "-infinite");
    else if (fabs(value) >= 999.5 && fabs(value) < 1e7)
        nd_html_count(value, buf);
    else
        snprintf(buf, ND_HTML_TEXT_BYTES, "%.3g", value);
    return buf;
}

void nd_html_cell(struct nd_page *page, const char *text)
{
    nd_html_fill(page, "<td>$t</td>", text);
}

void nd_html_cell_number(struct nd_page *page, const char *text, double value)
{
    char buf[ND_HTML_TEXT_BYTES];
    nd_html_puts(page, "<td class=\"n\"");
    if (isfinite(value))
        nd_html_printf(page, " data-v=\"%s\"", nd_format_double(value, buf));
    nd_html_fill(page, ">$t</td>", text);
}

/* ---- verdicts ---- */

void nd_html_badge(struct nd_page *page, const char *state, const char *word)
{
    nd_html_printf(page, "<span class=\"badge %s\">", state);
    nd_html_fill(page, "$t</span>", word);
}

const char *nd_html_state(const char *verdict)
{
    static const struct {
        const char *verdict, *state;
    } states[] = {{"same", "ok"},           {"within", "ok"},       {"ok", "ok"},
                  {"healthy", "ok"},        {"passed", "ok"},       {"warned", "note"},
                  {"steady", "ok"},         {"follows", "ok"},      {"differs", "note"},
                  {"within-1-lsb", "note"}, {"failed", "fail"},     {"device failed", "fail"},
                  {"faulty", "fail"},       {"regressed", "fail"},  {"two modes", "note"},
                  {"regimes", "note"},      {"not steady", "note"}, {"different", "note"}};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (strcmp(states[i].verdict, verdict) == 0)
            return states[i].state;
    return "unknown";
}

/* ---- data ---- */

void nd_html_data_real(struct nd_json *data, const char *key, double value)
{
    char text[ND_HTML_TEXT_BYTES];
    double rounded = value;
    snprintf(text, sizeof text, "%.7g", value);
    if (isfinite(value) && !nd_parse_double(text, &rounded))
        rounded = value;
    nd_json_real(data, key, rounded);
}
