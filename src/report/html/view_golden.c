/* Captures against a golden store: what is as it was accepted, and what changed between the two, such as the
 * SDK. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/html/html.h"

enum { MAX_TENSORS = 20 };

/* The check itself: of `golden check --runtime` it is a member of a row of the matrix. */
static const json_t *check_of(const json_t *row)
{
    const json_t *check = nd_doc_get(row, ND_KEY_CHECK);
    return json_is_object(check) ? check : row;
}

static const char *state_of(const char *verdict)
{
    if (strcmp(verdict, "same") == 0)
        return "ok";
    return strncmp(verdict, "failed", 6) == 0 || strcmp(verdict, "broken") == 0 ? "fail" : "note";
}

static void put_changes(struct nd_page *page, const json_t *check)
{
    const json_t *list = nd_doc_get(check, ND_KEY_CHANGED), *change;
    size_t i;
    if (json_array_size(list) == 0)
        return;
    nd_html_scroll(page, "What changed", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>What changed since it was accepted</caption>");
    nd_html_heads(page, "Of|Setting|Accepted|Now|Follows from");
    json_array_foreach(list, i, change)
    {
        nd_html_puts(page, "<tr>");
        nd_html_cell(page, nd_doc_text(change, ND_KEY_AXIS));
        nd_html_puts(page, "<th scope=\"row\">");
        nd_html_name(page, nd_doc_text(change, ND_KEY_KEY));
        nd_html_puts(page, "</th>");
        nd_html_cell(page, nd_doc_text(change, ND_KEY_REF));
        nd_html_cell(page, nd_doc_text(change, ND_KEY_TEST));
        nd_html_cell(page, nd_doc_text(change, ND_KEY_FOLLOWS_FROM));
        nd_html_puts(page, "</tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

static void put_tensor(struct nd_page *page, const json_t *tensor)
{
    char buf[ND_HTML_TEXT_BYTES];
    double share = nd_doc_number(tensor, ND_KEY_SHARE), lsb = nd_doc_number(tensor, ND_KEY_MAX_LSB);
    nd_html_puts(page, "<tr><th scope=\"row\">");
    nd_html_name(page, nd_doc_text(tensor, ND_KEY_NAME));
    nd_html_puts(page, "</th>");
    nd_html_cell(page, nd_doc_text(tensor, ND_KEY_OP_TYPES));
    nd_html_cell_number(page, isnan(share) ? "not stored" : nd_html_percent(share, buf), share);
    nd_html_cell_number(page, isnan(lsb) ? "" : nd_html_count(lsb, buf), lsb);
    nd_html_puts(page, "</tr>\n");
}

static void put_tensors(struct nd_page *page, const json_t *check)
{
    const json_t *list = nd_doc_get(check, ND_KEY_DIFFERENT), *tensor;
    size_t i, n = json_array_size(list);
    if (n == 0)
        return;
    nd_html_scroll(page, "Tensors that differ", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Tensors that differ from the accepted ones");
    if (n > MAX_TENSORS)
        nd_html_printf(page, ": the first %d of %zu", MAX_TENSORS, n);
    nd_html_puts(page, "</caption>");
    nd_html_heads(page, "Tensor|Operator|#Values that differ|#Largest, LSB");
    json_array_foreach(list, i, tensor)
    {
        if (i < MAX_TENSORS)
            put_tensor(page, tensor);
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

static void put_check(struct nd_page *page, const json_t *row)
{
    const json_t *check = check_of(row), *entry = nd_doc_get(check, ND_KEY_ENTRY);
    const char *verdict = nd_doc_text(check, ND_KEY_VERDICT);
    double n = nd_doc_number(check, ND_KEY_N_COMPARED), n_equal = nd_doc_number(check, ND_KEY_N_EQUAL);
    nd_html_printf(page, "<div class=\"card %s\"><p class=\"word\">", state_of(verdict));
    nd_html_text(page, verdict);
    nd_html_puts(page, " <span class=\"of\">");
    nd_html_name(page, nd_doc_text(check, ND_KEY_CAPTURE));
    nd_html_puts(page, "</span></p>\n");
    if (entry != NULL && json_is_object(entry)) {
        nd_html_puts(page, "<p>Against ");
        nd_html_name(page, nd_doc_text(entry, ND_KEY_LABEL));
        nd_html_puts(page, " (");
        nd_html_text(page, nd_doc_text(entry, ND_KEY_CHIPSET));
        nd_html_puts(page, ", ");
        nd_html_text(page, nd_doc_text(entry, ND_KEY_SDK));
        nd_html_puts(page, ")");
        if (!isnan(n) && !isnan(n_equal))
            nd_html_printf(page, ": %.0f of %.0f tensors are equal", n_equal, n);
        nd_html_puts(page, ".</p>\n");
    }
    nd_html_puts(page, "</div>\n");
    put_tensors(page, check);
    put_changes(page, check);
}

void nd_view_golden(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *golden = part->documents[ND_PAGE_GOLDEN], *row;
    const json_t *list = nd_doc_get(golden, ND_KEY_CHECKS);
    size_t i;
    if (!json_is_array(list))
        list = nd_doc_get(golden, ND_KEY_MATRIX);
    if (!json_is_array(list)) {
        put_check(page, golden);
        return;
    }
    json_array_foreach(list, i, row) put_check(page, row);
}
