/* One finding of a log in a line. */
#include <string.h>

#include "report/text/tree.h"

static const double *amount_of(const struct nd_log_finding *finding, const char *name)
{
    for (size_t i = 0; i < finding->n_amounts; i++)
        if (strcmp(finding->amounts[i].name, name) == 0)
            return &finding->amounts[i].value;
    return NULL;
}

/* "37748736 bytes (36 MiB)". */
static void put_bytes(struct nd_strbuf *out, const char *before, const double *bytes)
{
    static const char *const layers[] = {"KiB", "MiB", "GiB"};
    double value = *bytes / 1024;
    size_t layer = 0;
    for (; value >= 1024 && layer < 2; layer++)
        value /= 1024;
    nd_strbuf_printf(out, "%s%.0f bytes (%.3g %s)", before, *bytes, value, layers[layer]);
}

enum nd_status nd_report_log_finding(const struct nd_log_finding *finding, char **out, struct nd_error *err)
{
    struct nd_strbuf line = {0};
    const char *text = finding->text + strspn(finding->text, " ");
    nd_strbuf_printf(&line, "%s:%zu: %s, %s: %s", finding->log, finding->line,
                     nd_log_severity_name(finding->severity), nd_log_kind_name(finding->kind), text);
    if (finding->symbol[0] != '\0' && strstr(text, finding->symbol) == NULL)
        nd_strbuf_printf(&line, " [%s]", finding->symbol);
    if (finding->kind == ND_LOG_VALIDATION && finding->node[0] != '\0' && strstr(text, finding->node) == NULL)
        nd_strbuf_printf(&line, " [%s]", finding->node);
    /* What the numbers of a line mean. */
    const double *needed = amount_of(finding, "needed"), *available = amount_of(finding, "available");
    const double *found = amount_of(finding, "found"), *used = amount_of(finding, "used");
    const double *soc = amount_of(finding, "soc");
    const double *on_cpu = amount_of(finding, "on_cpu"), *total = amount_of(finding, "total");
    if (finding->kind == ND_LOG_MEMORY && needed != NULL) {
        put_bytes(&line, " [needs ", needed);
        if (available != NULL)
            put_bytes(&line, ", there are ", available);
        nd_strbuf_puts(&line, "]");
    }
    if (finding->kind == ND_LOG_ARCH && found != NULL && used != NULL && soc != NULL)
        nd_strbuf_printf(&line, " [v%.0f was asked for; chipset %.0f is run as v%.0f]", *found, *soc, *used);
    if (on_cpu != NULL && total != NULL)
        nd_strbuf_printf(&line, " [%.0f of %.0f on the CPU]", *on_cpu, *total);
    if (finding->kind == ND_LOG_ERROR)
        nd_strbuf_puts(&line, " [an error that npudiff does not know]");
    nd_strbuf_puts(&line, "\n");
    return nd_text_end(&line, out, err);
}
