/* The report: one HTML file, made of the JSON documents that the commands print.
 *
 * In: documents of compare, explain, placement, latency, golden check, golden diff, golden history, qualify,
 * align and promote. Out: a page that needs no network and no server, is complete without JavaScript, and takes
 * no text of a capture for markup.
 *
 * The page has one part for each model (struct nd_page_part). A view writes the HTML of one part, and what
 * scripts need of it into the part's data. page.c puts the parts together. The next folder is cli. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"

/* ---- a page ---- */

enum nd_page_document {
    ND_PAGE_COMPARISON,
    ND_PAGE_IMAGES, /* of the comparison's samples */
    ND_PAGE_EXPLANATION,
    ND_PAGE_PLACEMENT,
    ND_PAGE_LATENCY,
    ND_PAGE_GOLDEN,
    ND_PAGE_HISTORY, /* of a golden store */
    ND_PAGE_QUALIFICATION,
    ND_PAGE_CHANGED, /* of align or promote: the model before and after */
    ND_PAGE_N_DOCUMENTS,
};

/* The devices that agree in every bit of every tensor, and are none with the reference. */
struct nd_page_group {
    size_t device; /* the first member */
    size_t n_devices;
    char *label; /* "gen3 = gen4"; owned */
};

/* Whether the document is as the schema (JSON, n_bytes) of its kind describes it. ND_E_REPORT_DOCUMENT: it is
 * not; the message names the place. */
enum nd_status nd_page_check(const struct nd_report_document *document, const json_t *tree, const char *kind,
                             const char *schema, size_t n_bytes, struct nd_error *err);

struct nd_page_part {
    const char *name;                             /* of the model; "" when the page has one part only */
    char prefix[24];                              /* of the ids in it: "", or "m2-" */
    const json_t *documents[ND_PAGE_N_DOCUMENTS]; /* borrowed; NULL: none of that kind was given */
    size_t n_groups;
    struct nd_page_group *groups; /* of the comparison */
};

/* Finds the groups of a comparison. ND_ERR_MEMORY. */
enum nd_status nd_page_find_groups(struct nd_page_part *part, struct nd_error *err);

struct nd_page {
    struct nd_strbuf *out; /* the views */
    struct nd_json data;   /* what scripts need: an object with one member for each view */
    bool has_graph;        /* the page needs the library that lays out graphs */
    bool has_chart;        /* ... and the one that draws series */
    size_t n_tables;
};

/* ---- views ----
 *
 * Each writes one <section>. Where the documents have nothing for it, it writes one sentence that says which
 * command does. */

void nd_view_verdict(struct nd_page *page, const struct nd_page_part *part);
void nd_view_tensors(struct nd_page *page, const struct nd_page_part *part);
void nd_view_flow(struct nd_page *page, const struct nd_page_part *part);
void nd_view_budget(struct nd_page *page, const struct nd_page_part *part);
void nd_view_samples(struct nd_page *page, const struct nd_page_part *part);
void nd_view_where(struct nd_page *page, const struct nd_page_part *part);

/* Parts of the verdict that are long enough for files of their own. */
void nd_view_campaign(struct nd_page *page, const struct nd_page_part *part);

/* ---- writing ---- */

/* The text of a number and the like, in a caller's buffer. */
enum { ND_HTML_TEXT_BYTES = 64 };

#define nd_html_puts(page, html) nd_strbuf_puts((page)->out, (html))
#define nd_html_printf(page, ...) nd_strbuf_printf((page)->out, __VA_ARGS__)

/* Text of a document: everything that HTML takes for markup is escaped, control characters become '?'. */
void nd_html_text(struct nd_page *page, const char *text);

/* A name: the same, kept apart from the direction of the text around it, and in a typeface of its own. */
void nd_html_name(struct nd_page *page, const char *name);

/* HTML with texts (const char *) in the places of '$t', as nd_html_text writes them, and names in those of
 * '$n': `nd_html_fill(page, "<li>$n: $t</li>", device, reason)`. */
void nd_html_fill(struct nd_page *page, const char *html, ...);

/* Begins a view: <section> with its heading. id: "tensors". */
void nd_html_section(struct nd_page *page, const struct nd_page_part *part, const char *id, const char *title);
void nd_html_section_end(struct nd_page *page);

/* "There is nothing here: " and the reason, with the command that gives it. */
void nd_html_absent(struct nd_page *page, const char *sentence, const char *command);

/* Begins the box of a table, which scrolls by itself. Its name gets a number, so that it is the only one on the
 * page. */
void nd_html_scroll(struct nd_page *page, const char *name, bool is_tall);

/* The head of a table up to <tbody>: titles (HTML) with '|' between them, '#' before that of a column of
 * numbers. */
void nd_html_heads(struct nd_page *page, const char *titles);

/* A number with groups of three: "5 987 800". */
const char *nd_html_count(double n, char buf[ND_HTML_TEXT_BYTES]);

/* "45.4 %", as nd_format_percent has it in texts. */
const char *nd_html_percent(double share, char buf[ND_HTML_TEXT_BYTES]);

/* Three significant digits; "?" when it is not known. */
const char *nd_html_real(double value, char buf[ND_HTML_TEXT_BYTES]);

/* A cell of a table; number: aligned to the right, with the value to sort by. */
void nd_html_cell(struct nd_page *page, const char *text);
void nd_html_cell_number(struct nd_page *page, const char *text, double value);

/* A number in the page's data, with seven digits: as many as a float has. */
void nd_html_data_real(struct nd_json *data, const char *key, double value);

/* The state of a verdict: the class of a badge, and the word that it shows. */
void nd_html_badge(struct nd_page *page, const char *state, const char *word);

/* "ok", "fail", "note" or "unknown" for a verdict of any document. */
const char *nd_html_state(const char *verdict);

/* ---- reading ----
 *
 * Documents may be files of strangers: a member that is missing or of another type is an unknown one. */

const json_t *nd_doc_get(const json_t *object, const char *key);

/* "" when there is none. */
const char *nd_doc_text(const json_t *object, const char *key);

/* The first object of a list whose text at the key is this one; NULL when there is none. */
const json_t *nd_doc_find(const json_t *list, const char *key, const char *text);

/* NaN when it is not known. */
double nd_doc_number(const json_t *object, const char *key);
double nd_doc_value(const json_t *value);

bool nd_doc_is(const json_t *object, const char *key);

/* A whole number from 0 to limit - 1, else SIZE_MAX. */
size_t nd_doc_index(const json_t *object, const char *key, size_t limit);

/* Rows of all devices in a table of layers. Chosen: so many that a browser opens at once. */
enum { ND_PAGE_MAX_ROWS = 4000, ND_PAGE_MIN_ROWS = 100 };

/* ---- the comparison ---- */

/* The pair of a tensor that has the first device as reference and this one as test; NULL when there is none. */
const json_t *nd_doc_pair(const json_t *tensor, size_t device);

/* The device's label in the comparison, else its URI. */
const char *nd_doc_device_label(const json_t *device);

/* What the page calls a device of another document: the label of its group in the comparison, which has the
 * same capture; without one its URI. */
const char *nd_page_device_label(const struct nd_page_part *part, const json_t *device);

/* The device of the explanation that has the capture of this one of the comparison, or NULL. */
const json_t *nd_page_explained(const struct nd_page_part *part, const json_t *device);

/* Of identical devices of an explanation the first stands for all: whether device d is that one. */
bool nd_doc_is_leader(const json_t *device, size_t d);
