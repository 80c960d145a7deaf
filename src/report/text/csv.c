/* A campaign's result as CSV: a row for each case. docs/reference/campaign.md. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

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

/* "conv*" "logits" as one text; none stands for all. */
static void put_patterns(struct nd_strbuf *out, const struct nd_qualified_texts *patterns)
{
    struct nd_strbuf joined = {0};
    for (size_t i = 0; i < patterns->n; i++)
        nd_strbuf_printf(&joined, "%s%s", i > 0 ? " " : "", patterns->items[i]);
    ND_FREED char *text = nd_strbuf_take(&joined);
    if (text == NULL)
        out->failed = true;
    else
        put_text(out, text[0] != '\0' ? text : "*", false);
}

static void put_case(struct nd_strbuf *out, const struct nd_qualified *result,
                     const struct nd_qualified_case *one)
{
    const struct nd_qualified_gate *gate = nd_qualified_gate_of(result, one);
    put_text(out, one->model, false);
    put_text(out, one->device, false);
    put_cell(out, gate->gate, false);
    put_cell(out, gate->text, false);
    put_patterns(out, &gate->tensors);
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
