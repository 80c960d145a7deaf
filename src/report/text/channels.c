/* The worst channels of each pair that differs. docs/reference/metrics.md#per-channel. */
#include <stdlib.h>

#include "core/memory.h"
#include "report/text/compare.h"
#include "report/text/tree.h"

/* Channels of a table, unless all are asked for. */
enum { MAX_CHANNELS = 16 };

struct ranked {
    const struct nd_difference *difference;
    size_t channel;
};

/* Worst first: by share, then by the largest error. */
static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->difference->share != y->difference->share)
        return x->difference->share > y->difference->share ? -1 : 1;
    if (x->difference->abs.max != y->difference->abs.max)
        return x->difference->abs.max > y->difference->abs.max ? -1 : 1;
    return x->channel < y->channel ? -1 : 1;
}

/* The channels that differ; returns how many. */
static size_t rank_channels(const struct nd_compared_pair *pair, struct ranked *ranked)
{
    size_t n = 0;
    for (size_t i = 0; i < pair->n_channels; i++)
        if (pair->channels[i].has_values && pair->channels[i].n_differing > 0)
            ranked[n++] = (struct ranked){&pair->channels[i], i};
    qsort(ranked, n, sizeof *ranked, compare_ranked);
    return n;
}

static void add_channel(struct nd_table *table, const struct nd_difference *d, size_t channel)
{
    char text[ND_NUMBER_BYTES];
    nd_text_add_count(table, channel);
    nd_text_add_count(table, d->n_differing);
    nd_table_add(table, nd_format_share(d->n_differing, d->n_elems, text));
    if (d->is_integer)
        nd_table_addf(table, "±%s", nd_format_count(d->max_lsb, text));
    else if (d->has_steps)
        nd_table_addf(table, "±%s", nd_format_short(d->max_steps, text));
    else
        nd_table_addf(table, "%sulp", nd_format_count(d->max_ulp, text));
    nd_text_add_short_if(table, d->has_errors, d->abs.max);
    nd_text_add_short_if(table, d->has_errors, d->abs.mean);
    nd_text_add_short_if(table, d->has_signal, d->sqnr_db);
    nd_text_add_near_one_if(table, d->has_signal, d->cosine);
}

static void put_pair(const struct nd_text_report *report, const struct nd_compared_tensor *tensor,
                     const struct nd_compared_pair *pair)
{
    static const char *const titles[] = {"channel",  "differing", "share",   "largest",
                                         "max real", "mean real", "SQNR dB", "cosine"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 8};
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf title = {0};
    ND_FREED struct ranked *ranked = nd_calloc(pair->n_channels, sizeof *ranked);
    if (ranked == NULL) {
        report->out->failed = true;
        return;
    }
    size_t n = rank_channels(pair, ranked),
           n_shown = report->all_tensors || n < MAX_CHANNELS ? n : MAX_CHANNELS;
    nd_text_add_titles(&table, titles);
    for (size_t i = 0; i < n_shown; i++)
        add_channel(&table, ranked[i].difference, ranked[i].channel);
    nd_strbuf_printf(&title, "\nchannels (axis %d) of %s, %s against %s: %zu of %zu differ", c->channel_axis,
                     tensor->name, c->devices[pair->test].label, c->devices[pair->ref].label, n,
                     pair->n_channels);
    if (n_shown < n)
        nd_strbuf_printf(&title, ", the worst %zu", n_shown);
    nd_strbuf_puts(&title, ":");
    report->out->failed = report->out->failed || title.failed;
    nd_text_put_table(report, &table, table.n_columns, 1, title.text != NULL ? title.text : "");
}

void nd_text_channels(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t e = 0; e < c->n_tensors && c->per_channel; e++)
        for (size_t i = 0; i < c->n_pairs; i++)
            if (c->tensors[e].pairs[i].n_channels > 0)
                put_pair(report, &c->tensors[e], &c->tensors[e].pairs[i]);
}
