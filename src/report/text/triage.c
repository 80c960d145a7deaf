/* What came from the field, held against the golden store, for people. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/memory.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

static void put_entry(struct nd_strbuf *out, size_t width, const char *what,
                      const struct nd_golden_entry *entry)
{
    nd_summary_put(out, width, 2, 4, "%s%s (%.12s): chipset %s, SDK %s", what, entry->label, entry->id,
                   entry->chipset, entry->sdk);
}

static void put_standing(struct nd_strbuf *out, size_t width, const char *what,
                         const struct nd_triage_standing *standing)
{
    const struct nd_golden_difference *d = &standing->difference;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    put_entry(out, width, what, &standing->entry);
    nd_strbuf_printf(&line, "%zu of %zu tensor%s equal", d->n_equal, d->n_tensors,
                     d->n_tensors == 1 ? " is" : "s are");
    if (d->n_different > 0)
        nd_strbuf_printf(&line, ", the first that differs is %s (%s)", d->different[0].name,
                         d->different[0].op_types);
    if (!isnan(standing->share))
        nd_strbuf_printf(&line, "; %s of all values differ", ND_PERCENT(standing->share));
    nd_summary_put(out, width, 4, 6, "%s", line.text != NULL ? line.text : "");
    out->failed = out->failed || line.failed;
}

static void put_next(struct nd_strbuf *out, size_t width, const struct nd_triage *triage, const char *field)
{
    const char *model = triage->nearest != SIZE_MAX ? triage->standings[triage->nearest].entry.model : NULL;
    if (triage->is_bundle)
        nd_summary_put_explain(out, width,
                               "with the capture that the bundle was made of (ask for it), to find the cause",
                               "CAPTURE.h5", model);
    else
        nd_summary_put_explain(out, width, "to find the cause", field, model);
}

static void put_triage_headline(struct nd_strbuf *out, size_t width, const struct nd_triage *triage,
                                const char *field)
{
    const char *verdict = triage->verdict;
    if (strcmp(verdict, "known") == 0)
        nd_summary_put(out, width, 0, 2, "KNOWN: %s has the values of an accepted capture", field);
    else if (strcmp(verdict, "new") == 0)
        nd_summary_put(out, width, 0, 2, "NEW: %s has values that were never accepted%s%s", field,
                       triage->n_equal > 0 ? " for its chipset, " : "",
                       triage->n_equal > 0 ? triage->chipset : "");
    else
        nd_summary_put(out, width, 0, 2, "%s: %s: the store has no entry of this model and these probes",
                       strcmp(verdict, "not comparable") == 0 ? "NOT COMPARABLE" : verdict, field);
}

enum nd_status nd_report_triage_text(const struct nd_triage *triage, const char *field, size_t width,
                                     char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    width = nd_summary_width(width);
    put_triage_headline(&buf, width, triage, field);
    if (triage->failure.has_failed)
        nd_summary_put(&buf, width, 2, 4, "the device failed at stage '%s' [ND-%lld]", triage->failure.stage,
                       (long long)triage->failure.code);
    for (size_t i = 0; i < triage->n_equal; i++)
        put_entry(&buf, width, "equal to ", &triage->standings[i].entry);
    if (triage->nearest != SIZE_MAX) {
        put_standing(&buf, width, "nearest: ", &triage->standings[triage->nearest]);
        if (triage->closer != SIZE_MAX)
            put_standing(&buf, width, "closer in its values, but of a different chipset: ",
                         &triage->standings[triage->closer]);
    }
    if (triage->nearest != SIZE_MAX || triage->n_equal == 0)
        put_next(&buf, width, triage, field);
    return nd_text_end(&buf, out, err);
}
