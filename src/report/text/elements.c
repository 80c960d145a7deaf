/* Where differing elements are, and which are the worst. docs/reference/metrics.md#structure and #worst. */
#include <math.h>

#include "compare/metrics/layout.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "report/text/compare.h"
#include "report/text/tree.h"

/* What is not a number: before anything else is said, since nothing can be compared there.
 * docs/reference/metrics.md#accounting and #verdicts. */

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

static void add_tensor(struct nd_table *table, const struct nd_text_report *report,
                       const struct nd_compared_tensor *tensor, size_t *n)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t i = 0; i < c->n_devices; i++) {
        /* Of the pairs of a device the one that says most. */
        struct found found = {0};
        for (size_t t = 1; t < c->n_devices; t++)
            if (i == 0 || i == t)
                look(&found, &tensor->pairs[t - 1].total.difference, i == 0);
        struct nd_strbuf line = {0};
        if (found.n_nan > 0)
            put_found(&line, &found);
        if (i > 0) {
            /* Of a device against the first one. */
            const struct nd_difference *d = &tensor->pairs[i - 1].total.difference;
            if (d->has_values && d->n_inf_mismatch > 0)
                nd_strbuf_printf(&line, "%sinfinite on one side alone in %llu of %llu values",
                                 line.len > 0 ? "; " : "", (unsigned long long)d->n_inf_mismatch,
                                 (unsigned long long)d->n_elems);
        }
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

/* Whether a pattern says more than the share of differing elements does. */
static bool is_telling(enum nd_pattern pattern)
{
    return pattern != ND_PATTERN_NONE && pattern != ND_PATTERN_SCATTERED && pattern != ND_PATTERN_EVERYWHERE;
}

/* By axes where it is whole slices, else by its ends: of several axes their coordinates. */
static void put_range(struct nd_strbuf *line, const struct nd_structure *structure,
                      const struct nd_shape *shape)
{
    const size_t ends[2] = {(size_t)structure->first_index, (size_t)structure->last_index};
    char text[ND_RANGE_BYTES];
    int n_long = 0;
    (void)nd_range_format(shape, ends[0], ends[1], text);
    if (strncmp(text, "element", strlen("element")) != 0) {
        nd_strbuf_printf(line, "all of %s", text);
        return;
    }
    for (int k = 0; k < shape->rank; k++)
        n_long += shape->dims[k] > 1;
    for (size_t k = 0; k < 2; k++) {
        struct nd_difference_place place = {.index = ends[k]};
        nd_layout_coordinates(shape, ends[k], place.coordinates);
        nd_strbuf_puts(line, k == 0 ? "every element from" : " to");
        if (n_long > 1)
            nd_text_put_coordinates(line, shape, &place);
        else
            nd_strbuf_printf(line, " %zu", ends[k]);
    }
}

static void put_pattern(struct nd_strbuf *line, const struct nd_structure *structure,
                        const struct nd_shape *shape)
{
    switch (structure->pattern) {
    case ND_PATTERN_ONE_ELEMENT:
        nd_strbuf_printf(line, "only element %llu", (unsigned long long)structure->first_index);
        return;
    case ND_PATTERN_ONE_COORDINATE:
        if (structure->axis >= 0 && structure->axis < shape->rank)
            nd_strbuf_printf(line, "only coordinate %llu of axis %d (of %lld)",
                             (unsigned long long)structure->axes[structure->axis].first, structure->axis,
                             (long long)shape->dims[structure->axis]);
        return;
    case ND_PATTERN_PERMUTED_AXES: {
        /* The test's dimension i is the reference's permutation[i]. */
        int rank = shape->rank;
        nd_strbuf_puts(line, "the reference with its axes in the order ");
        for (int i = 0; i < rank; i++)
            nd_strbuf_printf(line, "%s%d%s", i == 0 ? "[" : ",", structure->permutation[i],
                             i == rank - 1 ? "]" : "");
        return;
    }
    case ND_PATTERN_RANGE:
        put_range(line, structure, shape);
        return;
    case ND_PATTERN_STRIDE: {
        unsigned long long first = structure->first_index, last = structure->last_index,
                           stride = structure->stride;
        if (last == first + stride)
            nd_strbuf_printf(line, "only elements %llu and %llu", first, last);
        else
            nd_strbuf_printf(line, "only elements %llu + %llu k, up to %llu", first, stride, last);
        return;
    }
    case ND_PATTERN_FROM_POWER_OF_TWO:
        nd_strbuf_printf(line, "from element %llu = 2^%d on", (unsigned long long)structure->first_index,
                         ilogb((double)structure->first_index));
        return;
    case ND_PATTERN_NONE:
    case ND_PATTERN_SCATTERED:
    case ND_PATTERN_EVERYWHERE:
        nd_strbuf_puts(line, nd_pattern_name(structure->pattern));
        return;
    }
}

/* The line about one test at one tensor, or NULL when there is nothing to say. The caller frees it. */
static char *pattern_line(const struct nd_text_report *report, size_t tensor, size_t test)
{
    const struct nd_compared_tensor *compared = &report->comparison->tensors[tensor];
    const struct nd_structure *structure = &compared->pairs[test - 1].total.difference.structure;
    struct nd_strbuf line = {0};
    bool is_said = is_telling(structure->pattern) || report->details;
    if (!is_said || !nd_text_is_detailed(report->comparison, tensor, test))
        return NULL;
    put_pattern(&line, structure, &compared->shape);
    char *text = nd_strbuf_take(&line);
    report->out->failed = report->out->failed || text == NULL;
    return text;
}

/* Adds the row of lines[first], with all later tests that have the same line; those are freed. */
static void add_pattern(const struct nd_text_report *report, struct nd_table *table, size_t tensor,
                        char **lines, size_t first)
{
    const struct nd_comparison *c = report->comparison;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf labels = {0};
    for (size_t t = first; t < c->n_devices; t++) {
        if (lines[t] == NULL || strcmp(lines[t], lines[first]) != 0)
            continue;
        nd_strbuf_printf(&labels, "%s%s", t > first ? ", " : "", c->devices[t].label);
        if (t > first) {
            free(lines[t]);
            lines[t] = NULL;
        }
    }
    nd_table_add(table, c->tensors[tensor].name);
    nd_table_add(table, lines[first]);
    nd_table_add(table, labels.text != NULL ? labels.text : "");
    table->failed = table->failed || labels.failed;
}

void nd_text_structure(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 3, .is_left = {true, true, true}, .max_width = {ND_TEXT_NAME_MAX}};
    char **lines = nd_calloc(c->n_devices, sizeof *lines);
    size_t n = 0;
    report->out->failed = report->out->failed || lines == NULL;
    for (size_t e = 0; e < c->n_tensors && lines != NULL; e++) {
        for (size_t t = 1; t < c->n_devices; t++)
            lines[t] = pattern_line(report, e, t);
        for (size_t t = 1; t < c->n_devices; t++) {
            if (lines[t] != NULL && n++ < nd_text_list_limit(report))
                add_pattern(report, &table, e, lines, t);
            free(lines[t]);
            lines[t] = NULL;
        }
    }
    free(lines);
    nd_text_put_table(report, &table, 0, 1, "\nwhich elements of a sample differ:");
    nd_text_put_more(report, n);
}

/* As it is stored, a whole number has every digit: a code of 36127 is not 3.613e+04. */
static void add_value(struct nd_table *table, bool is_stored, double value)
{
    const double most = 0x1p63; /* of the integer types; above it floats only */
    if (is_stored && isfinite(value) && fabs(value) <= most && value == floor(value))
        nd_table_addf(table, "%.0f", value);
    else
        nd_text_add_short(table, value);
}

void nd_text_worst(const struct nd_text_report *report)
{
    static const char *const titles[] = {"tensor",  "device",    "probe", "sample",   "element",
                                         "|error|", "reference", "test",  "ref code", "test code"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 10,
                             .is_left = {true, true, true, [4] = true},
                             .max_width = {24, ND_TEXT_LABEL_MAX, 16, [4] = 30}};
    nd_text_add_titles(&table, titles);
    for (size_t e = 0; e < c->n_tensors && report->worst; e++)
        for (size_t t = 1; t < c->n_devices; t++)
            if (nd_text_is_detailed(c, e, t)) {
                const struct nd_compared_tensor *tensor = &c->tensors[e];
                const struct nd_difference *d = &tensor->pairs[t - 1].total.difference;
                for (size_t i = 0; i < d->n_worst; i++) {
                    const struct nd_worst *worst = &d->worst[i];
                    nd_table_add(&table, tensor->name);
                    nd_table_add(&table, c->devices[t].label);
                    nd_table_add(&table, c->probes[worst->place.probe].name);
                    nd_table_addf(&table, "%zu", worst->place.sample);
                    const struct nd_difference_place *place = &worst->place;
                    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
                    nd_strbuf_printf(&text, "%zu", place->index);
                    nd_text_put_coordinates(&text, &tensor->shape, place);
                    nd_table_add(&table, place->has_index && text.text != NULL ? text.text : "-");
                    table.failed = table.failed || text.failed;
                    nd_text_add_short(&table, worst->abs_error);
                    add_value(&table, !tensor->is_quantised, worst->ref_real);
                    add_value(&table, !tensor->is_quantised, worst->test_real);
                    if (tensor->is_quantised) {
                        add_value(&table, true, worst->ref);
                        add_value(&table, true, worst->test);
                    } else {
                        nd_table_add(&table, "");
                        nd_table_add(&table, "");
                    }
                }
            }
    nd_text_put_table(report, &table, table.n_columns, 2,
                      "\nworst elements at model outputs and where a difference begins (real units):");
}
