/* Which samples differ: in one sentence. */
#include <stdint.h>

#include "report/text/summary.h"
#include "report/text/compare.h"

/* Numbers of samples that the sentence has. */
enum { MOST_SAMPLES = 5 };

/* "The predicted class changes in 17 samples of 'digits': 12, 45, 93, 120, 133 and 12 more." */
static void put_changed(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    struct nd_strbuf list = {0};
    size_t n_shown = top1->n_changed_kept < MOST_SAMPLES ? top1->n_changed_kept : MOST_SAMPLES;
    for (size_t i = 0; i < n_shown; i++)
        nd_strbuf_printf(&list, "%s%zu",
                         i == 0                                           ? ""
                         : i + 1 == n_shown && n_shown == top1->n_changed ? " and "
                                                                          : ", ",
                         top1->changed[i].sample);
    if (n_shown < top1->n_changed)
        nd_strbuf_printf(&list, " and %zu more", top1->n_changed - n_shown);
    report->out->failed = report->out->failed || list.failed;
    const char *probe = report->comparison->probes[top1->probe].name;
    if (top1->n_changed == 1)
        nd_summary_put(report->out, report->width, 0, 2, "The predicted class changes in sample %zu of '%s'.",
                       top1->changed[0].sample, probe);
    else
        nd_summary_put(report->out, report->width, 0, 2,
                       "The predicted class changes in %zu samples of '%s': %s.", top1->n_changed, probe,
                       list.text != NULL ? list.text : "");
    nd_strbuf_deinit(&list);
}

static bool has_outputs(const struct nd_comparison *c)
{
    for (size_t e = 0; e < c->n_edges; e++)
        if (c->edges[e].is_model_output)
            return true;
    return false;
}

/* The output that differs in the most samples of all devices; where no tensor is known to be an output, the
 * tensor. */
static const struct nd_difference *find_most(const struct nd_comparison *c, size_t *test, size_t *edge)
{
    const struct nd_difference *most = NULL;
    bool is_of_outputs = has_outputs(c);
    for (size_t t = 1; t < c->n_devices; t++) {
        for (size_t e = 0; e < c->n_edges; e++) {
            const struct nd_compared_part *part = &c->edges[e].pairs[t - 1].total;
            if ((is_of_outputs && !c->edges[e].is_model_output) || part->coverage == ND_COVERAGE_NONE ||
                part->difference.n_samples_differing <= (most != NULL ? most->n_samples_differing : 0))
                continue;
            most = &part->difference;
            *test = t;
            *edge = e;
        }
    }
    return most;
}

void nd_text_samples(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    const struct nd_comparison *c = report->comparison;
    size_t test = 0, edge = 0;
    if (c->verdict == ND_VERDICT_SAME)
        return;
    if (top1 != NULL && top1->has_changed && top1->n_changed > 0 && top1->n_changed_kept > 0) {
        put_changed(report, top1);
        return;
    }
    const struct nd_difference *d = find_most(c, &test, &edge);
    if (d == NULL || (d->n_worst == 0 && !d->has_first))
        return;
    const struct nd_difference_place *place = d->n_worst > 0 ? &d->worst[0].place : &d->first;
    nd_summary_put(report->out, report->width, 0, 2,
                   "On %s '%s' differs in %llu of %llu samples; the %s is in sample %zu of '%s'.",
                   c->devices[test].label, c->edges[edge].name, (unsigned long long)d->n_samples_differing,
                   (unsigned long long)d->n_samples, d->n_worst > 0 ? "largest difference" : "first difference",
                   place->sample, c->probes[place->probe].name);
}
