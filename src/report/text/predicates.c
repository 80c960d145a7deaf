#include "report/text/compare.h"

#include <math.h>

/* Beyond this the chance is no number anybody needs (chosen): 2^20 is a million. */
static const double chance_bits_shown = 20;

static void put_predicate(const struct nd_text_report *report, const struct nd_compared_predicate *p)
{
    struct nd_strbuf line = {0};
    double bits = fmin(-p->log2_chance, chance_bits_shown);
    nd_strbuf_puts(report->out, "  ");
    nd_strbuf_puts(&line, p->text);
    if (p->tensor == SIZE_MAX)
        nd_strbuf_printf(&line, " (wrong: %s",
                         report->comparison->has_gates
                             ? "fails its gate"
                             : "SQNR below 20 dB, more than 2 LSB off, or NaN or infinity on one side");
    if (!isnan(p->log2_chance))
        nd_strbuf_printf(&line, "%sby chance in less than 1 of %.0f)", p->tensor == SIZE_MAX ? "; " : " (",
                         floor(exp2(bits)));
    nd_text_put_wrapped(report, line.text != NULL ? line.text : "", 4);
    nd_strbuf_puts(report->out, "\n");
    report->out->failed = report->out->failed || line.failed;
    nd_strbuf_deinit(&line);
}

void nd_text_predicates(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    if (c->n_predicates > 0)
        nd_strbuf_puts(report->out, "\nwhere it is wrong:\n");
    for (size_t i = 0; i < c->n_predicates && i < nd_text_list_limit(report); i++)
        put_predicate(report, &c->predicates[i]);
    nd_text_put_more(report, c->n_predicates);
}
