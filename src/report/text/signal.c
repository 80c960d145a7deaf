#include "report/text/compare.h"
#include "report/text/format.h"

static bool has_differing_values(const struct nd_compared_part *part)
{
    return part->coverage != ND_COVERAGE_NONE && part->difference.has_values &&
           part->difference.n_differing > 0;
}

/* A pair of values at a model output that differ. */
static bool has_signal(const struct nd_compared_tensor *tensor, const struct nd_compared_pair *pair)
{
    return tensor->is_model_output && has_differing_values(&pair->total);
}

/* What the rows of the table need columns for. */
struct columns {
    bool has_pairs;        /* of tests with one another */
    bool has_probes;       /* several of them: each has a signal of its own */
    bool has_distribution; /* at any output */
};

static struct columns needed_columns(const struct nd_comparison *c)
{
    struct columns columns = {.has_pairs = c->n_pairs > c->n_devices - 1, .has_probes = c->n_probes > 1};
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t i = 0; i < c->n_pairs; i++)
            columns.has_distribution =
                columns.has_distribution || (has_signal(&c->tensors[e], &c->tensors[e].pairs[i]) &&
                                             c->tensors[e].pairs[i].total.difference.distribution.exists);
    return columns;
}

/* The mean divergence, with the samples that have none; the mean number of common top classes. */
static void add_distribution(struct nd_table *table, const struct nd_distribution *d)
{
    char number[ND_NUMBER_BYTES];
    if (!d->exists) {
        nd_table_add(table, "-");
        nd_table_add(table, "-");
        return;
    }
    bool has_mean = d->n_samples > d->n_infinite + d->n_invalid;
    const char *mean = has_mean ? nd_format_short(d->kl, number) : "-";
    if (d->n_infinite > 0)
        nd_table_addf(table, "%s +%llu inf", mean, (unsigned long long)d->n_infinite);
    else
        nd_table_add(table, mean);
    nd_table_addf(table, "%s/%llu", nd_format_short(d->topk_overlap * (double)d->top_k, number),
                  (unsigned long long)d->top_k);
}

static void add_row(struct nd_table *table, const struct nd_comparison *c, const struct columns *columns,
                    const struct nd_compared_tensor *tensor, const struct nd_compared_pair *pair, size_t probe)
{
    const struct nd_difference *d =
        columns->has_probes ? &pair->probes[probe].difference : &pair->total.difference;
    nd_table_add(table, tensor->name);
    if (columns->has_pairs)
        nd_table_add(table, c->devices[pair->ref].label);
    nd_table_add(table, c->devices[pair->test].label);
    if (columns->has_probes)
        nd_table_add(table, c->probes[probe].name);
    for (size_t i = 0; i < nd_n_measures(); i++) {
        const struct nd_measure *measure = nd_measure(i);
        bool is_known = measure->column != NULL && nd_measure_is_known(measure, d);
        if (measure->column != NULL && measure->form == ND_MEASURED_NEAR_ONE)
            nd_text_add_near_one_if(table, is_known, nd_measure_value(measure, d));
        else if (measure->column != NULL)
            nd_text_add_short_if(table, is_known, nd_measure_value(measure, d));
    }
    if (columns->has_distribution)
        add_distribution(table, &d->distribution);
}

static void add_signal_titles(struct nd_table *table, const struct columns *columns)
{
    nd_table_add(table, "output");
    if (columns->has_pairs)
        nd_table_add(table, "against");
    nd_table_add(table, "device");
    if (columns->has_probes)
        nd_table_add(table, "probe");
    for (size_t i = 0; i < nd_n_measures(); i++)
        if (nd_measure(i)->column != NULL)
            nd_table_add(table, nd_measure(i)->column);
    if (columns->has_distribution) {
        nd_table_add(table, "KL");
        nd_table_add(table, "top-k");
    }
}

static void put_signal(const struct nd_text_report *report)
{
    enum { DISTRIBUTION = 2 };
    const struct nd_comparison *c = report->comparison;
    const struct columns columns = needed_columns(c);
    size_t n_keys = 2u + columns.has_pairs + columns.has_probes, n = 0, n_measured = 0;
    for (size_t i = 0; i < nd_n_measures(); i++)
        n_measured += nd_measure(i)->column != NULL;
    struct nd_table table = {.n_columns = n_keys + n_measured + (columns.has_distribution ? DISTRIBUTION : 0),
                             .is_left = {true, true, n_keys > 2, n_keys > 3}};
    table.max_width[0] = columns.has_pairs ? report->width / 4 : ND_TEXT_NAME_MAX;
    for (size_t i = 1; i < n_keys; i++)
        table.max_width[i] = columns.has_pairs ? report->width / 8 : ND_TEXT_LABEL_MAX;
    add_signal_titles(&table, &columns);
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t i = 0; i < c->n_pairs; i++) {
            const struct nd_compared_pair *pair = &c->tensors[e].pairs[i];
            if (!has_signal(&c->tensors[e], pair))
                continue;
            /* All tests, but of the pairs among them only so many as a list has. */
            if (pair->ref != 0 && n++ >= nd_text_list_limit(report))
                continue;
            for (size_t p = 0; p < c->n_probes; p++)
                if (!columns.has_probes || has_differing_values(&pair->probes[p]))
                    add_row(&table, c, &columns, &c->tensors[e], pair, p);
        }
    const char *title = columns.has_distribution
                            ? "\nsignal at the model outputs (|e|: absolute error in real units; KL in nats):"
                            : "\nsignal at the model outputs (|e|: absolute error in real units):";
    nd_text_put_table(report, &table, table.n_columns, n_keys, title);
    nd_text_put_more(report, n);
}

/* Appends "NaN 0 -> 3" where the two sides do not have the same number. */
static void put_change(struct nd_strbuf *line, const char *what, uint64_t ref, uint64_t test)
{
    if (ref != test)
        nd_strbuf_printf(line, "%s%s %llu -> %llu", line->len > 0 ? ", " : "", what, (unsigned long long)ref,
                         (unsigned long long)test);
}

static void put_sides(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 3,
                             .is_left = {true, true, true},
                             .max_width = {ND_TEXT_NAME_MAX * 3 / 4, ND_TEXT_LABEL_MAX * 3 / 4}};
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t t = 1; t < c->n_devices; t++) {
            const struct nd_compared_pair *pair = &c->tensors[e].pairs[t - 1];
            const struct nd_side *ref = &pair->total.difference.ref_side;
            const struct nd_side *test = &pair->total.difference.test_side;
            struct nd_strbuf line = {0};
            if (!has_signal(&c->tensors[e], pair))
                continue;
            put_change(&line, "NaN", ref->n_nan, test->n_nan);
            put_change(&line, "infinite", ref->n_inf, test->n_inf);
            put_change(&line, "saturated", ref->n_saturated, test->n_saturated);
            put_change(&line, "zero", ref->n_zero, test->n_zero);
            put_change(&line, "subnormal", ref->n_subnormal, test->n_subnormal);
            put_change(&line, "samples of one value", ref->n_stuck_samples, test->n_stuck_samples);
            if (line.len > 0) {
                nd_table_add(&table, c->tensors[e].name);
                nd_table_add(&table, c->devices[t].label);
                nd_table_add(&table, line.text);
            }
            table.failed = table.failed || line.failed;
            nd_strbuf_deinit(&line);
        }
    nd_text_put_table(report, &table, 0, 2,
                      "\nspecial values at the model outputs (reference -> test, in the samples that differ):");
}

void nd_text_signal(const struct nd_text_report *report)
{
    put_signal(report);
    put_sides(report);
}
