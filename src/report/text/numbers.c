/* What is not a number: before anything else is said, since nothing can be compared there.
 * docs/reference/metrics.md#accounting and #verdicts. */
#include "core/memory.h"
#include "report/text/compare.h"

/* The NaNs of one device at one tensor. */
struct found {
    uint64_t n_nan, n_elems;
    uint64_t n_samples_nan, n_samples; /* of which every value is NaN; only where all samples were read */
    bool is_whole;                     /* all samples were read, not only those that differ */
};

static void look(struct found *found, const struct nd_difference *d, bool is_ref)
{
    const struct nd_numbers *numbers = &d->numbers;
    const struct nd_side *side = is_ref ? &d->ref_side : &d->test_side;
    struct found here = {.n_nan = side->n_nan, .n_elems = side->n_elems};
    if (!d->has_values)
        return;
    if (numbers->is_known)
        here =
            (struct found){.n_nan = is_ref ? numbers->n_ref_nan : numbers->n_test_nan,
                           .n_elems = numbers->n_elems,
                           .n_samples_nan = is_ref ? numbers->n_samples_ref_nan : numbers->n_samples_test_nan,
                           .n_samples = numbers->n_samples,
                           .is_whole = true};
    if (here.n_nan > 0 && here.n_elems > found->n_elems)
        *found = here;
}

/* Of the pairs of a device the one that says most. */
static struct found look_at(const struct nd_comparison *c, const struct nd_compared_tensor *tensor,
                            size_t device)
{
    struct found found = {0};
    for (size_t t = 1; t < c->n_devices; t++)
        if (device == 0 || device == t)
            look(&found, &tensor->pairs[t - 1].total.difference, device == 0);
    return found;
}

static void put_found(struct nd_strbuf *line, const struct found *found)
{
    if (found->is_whole && found->n_samples_nan == found->n_samples) {
        nd_strbuf_printf(line, "NaN in every value of all %llu samples", (unsigned long long)found->n_samples);
        return;
    }
    nd_strbuf_printf(line, "NaN in %llu of %llu values%s", (unsigned long long)found->n_nan,
                     (unsigned long long)found->n_elems, found->is_whole ? "" : " of the samples that differ");
    if (found->n_samples_nan > 0)
        nd_strbuf_printf(line, ", in every value of %llu of %llu samples",
                         (unsigned long long)found->n_samples_nan, (unsigned long long)found->n_samples);
}

/* Repeat 0 against later ones: comparisons use repeat 0 alone. */
static void put_repeats(struct nd_strbuf *line, const struct nd_difference *noise)
{
    if (noise == NULL || !noise->has_values)
        return;
    const char *separator = line->len > 0 ? "; " : "";
    if (noise->ref_side.n_nan > 0 && noise->test_side.n_nan == 0)
        nd_strbuf_printf(line, "%sthe first run gave NaN, a later run of the same input did not", separator);
    else if (noise->ref_side.n_nan == 0 && noise->test_side.n_nan > 0)
        nd_strbuf_printf(line, "%sa later run gave NaN, the first run of the same input did not", separator);
    else if (noise->n_nan_mismatch > 0)
        nd_strbuf_printf(line, "%sruns of the same input do not give NaN in the same places", separator);
}

/* Of a device against the first one. */
static void put_infinities(struct nd_strbuf *line, const struct nd_difference *d)
{
    if (d->has_values && d->n_inf_mismatch > 0)
        nd_strbuf_printf(line, "%sinfinite on one side alone in %llu of %llu values", line->len > 0 ? "; " : "",
                         (unsigned long long)d->n_inf_mismatch, (unsigned long long)d->n_elems);
}

static void add_tensor(struct nd_table *table, const struct nd_text_report *report,
                       const struct nd_compared_tensor *tensor, size_t *n)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t i = 0; i < c->n_devices; i++) {
        struct found found = look_at(c, tensor, i);
        struct nd_strbuf line = {0};
        if (found.n_nan > 0)
            put_found(&line, &found);
        if (i > 0)
            put_infinities(&line, &tensor->pairs[i - 1].total.difference);
        put_repeats(&line, tensor->devices[i].noise);
        if (line.len > 0 && (*n)++ < nd_text_list_limit(report)) {
            nd_table_add(table, tensor->name);
            nd_table_add(table, c->devices[i].label);
            nd_table_add(table, line.text);
        }
        table->failed = table->failed || line.failed;
        nd_strbuf_deinit(&line);
    }
}

static uint64_t samples_both_nan(const struct nd_comparison *c, const struct nd_compared_tensor *tensor)
{
    uint64_t most = 0;
    for (size_t t = 1; t < c->n_devices; t++) {
        uint64_t n = tensor->pairs[t - 1].total.difference.numbers.n_samples_both_nan;
        most = n > most ? n : most;
    }
    return most;
}

/* No verdict about agreement means anything where every capture is right by chance only. */
static void put_broken(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    if (c->broken_top1 == SIZE_MAX)
        return;
    const struct nd_top1 *row = &c->top1[c->broken_top1];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    nd_strbuf_printf(&line,
                     "THE REFERENCE IS BROKEN: every capture, '%s' too, is right no more often than by chance "
                     "at '%s' with probe '%s': '%s' in %zu of %zu samples, chance is 1 of %zu. That captures "
                     "agree says nothing then. Check the model, the labels and what was fed.",
                     c->devices[0].label, c->tensors[row->tensor].name, c->probes[row->probe].name,
                     c->devices[0].label, row->devices[0].n_correct, row->devices[0].n_samples, row->n_classes);
    nd_strbuf_puts(report->out, "\n");
    if (line.text != NULL)
        nd_text_put_wrapped(report, line.text, 2);
    nd_strbuf_puts(report->out, "\n");
    report->out->failed = report->out->failed || line.failed;
}

void nd_text_numbers(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 3, .is_left = {true, true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    size_t n = 0;
    bool is_uncompared = false;
    put_broken(report);
    for (size_t e = 0; e < c->n_tensors; e++) {
        add_tensor(&table, report, &c->tensors[e], &n);
        is_uncompared = is_uncompared || samples_both_nan(c, &c->tensors[e]) > 0;
    }
    nd_text_put_table(report, &table, 0, 2, "\nnot a number (NaN), or infinite:");
    nd_text_put_more(report, n);
    if (is_uncompared)
        nd_strbuf_puts(report->out, "  A sample that is NaN on both sides was not compared.\n");
}
