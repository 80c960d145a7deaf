/* The text of a comparison: its sections in order, and those of devices, classes, sizes and top-1.
 * docs/reference/metrics.md. */
#include "report/text/compare.h"
#include "core/memory.h"

#include <stdio.h>

#include "report/text/summary.h"
#include "report/text/tree.h"

static void put_classes(const struct nd_text_report *report, const char *title, const char *classes)
{
    enum { INDENT = 26 };
    nd_strbuf_printf(report->out, "\n%-*s", INDENT, title);
    nd_text_put_wrapped(report, classes, INDENT);
}

/* "gen5: 2 of 4 tensors, gen1: 1 of 4 tensors": where one device stands against all others. */
static void put_odd_ones(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    for (size_t i = 0; i < c->n_devices; i++) {
        size_t n = 0;
        for (size_t e = 0; e < c->n_tensors; e++)
            n += c->tensors[e].odd_one_out == i;
        if (n == 0 && c->odd_one_out != i)
            continue;
        nd_strbuf_printf(&line, "%s%s (", line.len > 0 ? ", " : "", c->devices[i].label);
        if (c->odd_one_out == i)
            nd_strbuf_puts(&line, "all others agree on every tensor; ");
        nd_strbuf_printf(&line, "alone on %zu of %zu tensors)", n, c->n_tensors);
    }
    if (line.len > 0)
        put_classes(report, "odd one out:", line.text);
    report->out->failed = report->out->failed || line.failed;
}

/* Who agrees with whom, and where it starts. */
static void put_all_classes(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    bool has_short = false;
    put_classes(report, c->n_tensors_left_out > 0 ? "bit-equal, these tensors:" : "bit-equal, all tensors:",
                c->classes_text);
    put_classes(report, "bit-equal, model outputs:", c->output_classes_text);
    put_odd_ones(report);
    nd_strbuf_puts(report->out, "\n");
    for (size_t i = 0; i < c->n_devices; i++)
        has_short = has_short ||
                    (c->devices[i].class_id >= 0 && c->devices[i].n_samples < c->devices[i].n_samples_expected);
    if (has_short)
        nd_strbuf_puts(report->out, "  * judged by the samples it has: the device stopped early\n");
}

static void put_tensor(struct nd_strbuf *out, const struct nd_compared_tensor *tensor)
{
    nd_strbuf_puts(out, tensor->name);
    if (tensor->op_types[0] != '\0')
        nd_strbuf_printf(out, " (%s)", tensor->op_types);
}

static void put_place(const struct nd_comparison *c, const struct nd_compared_tensor *tensor, size_t test,
                      struct nd_strbuf *out)
{
    const struct nd_difference_place *first = &tensor->pairs[test - 1].total.difference.first;
    nd_strbuf_printf(out, ": probe '%s', sample %zu", c->probes[first->probe].name, first->sample);
    if (!first->has_index) {
        nd_strbuf_puts(out, ", element unknown (digests only)");
        return;
    }
    nd_strbuf_printf(out, ", element %zu", first->index);
    nd_text_put_coordinates(out, &tensor->shape, first);
}

static void add_line(struct nd_table *table, struct nd_strbuf *line)
{
    nd_table_add(table, line->text != NULL ? line->text : "");
    table->failed = table->failed || line->failed;
    nd_strbuf_deinit(line);
}

static void put_from_reference(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 2, .is_left = {true, true}, .max_width = {ND_TEXT_LABEL_MAX}};
    for (size_t t = 1; t < c->n_devices; t++) {
        struct nd_strbuf line = {0};
        size_t first = c->devices[t].first_tensor;
        if (first == SIZE_MAX) {
            nd_strbuf_puts(&line, c->devices[t].class_id < 0 ? "unknown: no data" : "none");
        } else {
            put_tensor(&line, &c->tensors[first]);
            put_place(c, &c->tensors[first], t, &line);
        }
        nd_table_add(&table, c->devices[t].label);
        add_line(&table, &line);
    }
    nd_strbuf_puts(report->out, "\nfirst difference from ");
    nd_text_put_wrapped(report, c->devices[0].label, 2);
    nd_strbuf_puts(report->out, ", in graph order:\n");
    nd_text_put_table(report, &table, 0, 1, "");
}

static void put_members(const struct nd_comparison *c, int class_id, struct nd_strbuf *out)
{
    bool is_first = true;
    for (size_t i = 0; i < c->n_devices; i++) {
        if (c->devices[i].class_id != class_id)
            continue;
        nd_strbuf_printf(out, "%s%s", is_first ? "" : " = ", c->devices[i].label);
        is_first = false;
    }
}

/* Where two classes of tests part. Where the reference's class parts from another is the first difference of
 * that one, and has been said. */
static void put_partings(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 2, .is_left = {true, true}, .max_width = {report->width / 2}};
    size_t n = 0;
    for (size_t i = 0; i < c->n_partings; i++) {
        const struct nd_parting *parting = &c->partings[i];
        struct nd_strbuf classes = {0}, tensor = {0};
        bool is_with_reference = parting->device_a == 0 || parting->device_b == 0;
        if (is_with_reference || n++ >= nd_text_list_limit(report))
            continue;
        put_members(c, parting->class_a, &classes);
        nd_strbuf_puts(&classes, " | ");
        put_members(c, parting->class_b, &classes);
        if (parting->tensor != SIZE_MAX)
            put_tensor(&tensor, &c->tensors[parting->tensor]);
        else
            nd_strbuf_puts(&tensor, "where one has no data");
        add_line(&table, &classes);
        add_line(&table, &tensor);
    }
    nd_text_put_table(report, &table, 0, 1,
                      "\nwhere captures begin to differ from each other, in graph order:");
    nd_text_put_more(report, n);
}

static void add_float_row(struct nd_table *table, const struct nd_difference *d)
{
    char number[ND_NUMBER_BYTES];
    nd_text_add_count(table, d->n_differing);
    if (d->has_errors && d->has_steps)
        nd_table_addf(table, "%s LSB", nd_format_short(d->max_steps, number));
    else
        nd_table_add(table, d->has_errors ? nd_format_count(d->max_ulp, number) : "-");
    nd_text_add_short_if(table, d->has_errors, d->abs.max);
    nd_text_add_short_if(table, d->has_errors, d->abs.mean);
    nd_text_add_count(table, d->n_nan_mismatch + d->n_nan_payload);
    nd_text_add_count(table, d->n_inf_mismatch);
    nd_text_add_count(table, d->n_zero_sign);
}

static void add_rows(const struct nd_text_report *report, struct nd_table *table, bool is_integer)
{
    const struct nd_comparison *c = report->comparison;
    char number[ND_NUMBER_BYTES];
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t t = 1; t < c->n_devices; t++) {
            const struct nd_difference *d = &c->tensors[e].pairs[t - 1].total.difference;
            if (!nd_text_is_detailed(c, e, t) || d->is_integer != is_integer)
                continue;
            nd_table_add(table, c->tensors[e].name);
            nd_table_add(table, c->devices[t].label);
            if (is_integer) {
                for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
                    nd_text_add_count(table, d->lsb_histogram[i]);
                nd_text_add_short(table, d->mean_lsb);
                nd_text_add_short(table, d->signed_mean_lsb);
                nd_text_add_short(table, d->abs.max);
            } else
                add_float_row(table, d);
            if (c->ulp_in != ND_DTYPE_NONE)
                nd_table_add(table, d->has_ulp_in ? nd_format_count(d->max_ulp_in, number) : "-");
        }
}

static void put_labelled(const struct nd_text_report *report, const struct nd_top1 *row)
{
    static const char *const titles[] = {"device",      "correct",     "top-1", "agree", "right>wrong",
                                         "wrong>right", "wrong>other", "p",     "at 5 %"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 9, .is_left = {true, [8] = true}, .max_width = {ND_TEXT_LABEL_MAX}};
    char text[ND_NUMBER_BYTES];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf title = {0};
    nd_strbuf_printf(
        &title, "\ntop-1 at %s, probe '%s' (p: two-sided mid-p McNemar of right>wrong against wrong>right):",
        c->tensors[row->tensor].name, c->probes[row->probe].name);
    nd_text_add_titles(&table, titles);
    for (size_t i = 0; i < c->n_devices; i++) {
        const struct nd_top1_device *device = &row->devices[i];
        const struct nd_top1_pair *pair = i > 0 && row->pairs[i - 1].exists ? &row->pairs[i - 1] : NULL;
        nd_table_add(&table, c->devices[i].label);
        if (device->exists)
            nd_table_addf(&table, "%zu/%zu", device->n_correct, device->n_samples);
        else
            nd_table_add(&table, "no values");
        nd_table_add(&table, device->exists ? nd_format_share(device->n_correct, device->n_samples, text) : "");
        nd_table_add(&table, pair != NULL ? nd_format_share(pair->n_agree, pair->n_samples, text) : "");
        for (size_t k = 4; k < table.n_columns && pair == NULL; k++)
            nd_table_add(&table, "");
        if (pair == NULL)
            continue;
        nd_text_add_count(&table, pair->n_lost);
        nd_text_add_count(&table, pair->n_gained);
        nd_text_add_count(&table, pair->n_changed_wrong);
        nd_text_add_short(&table, pair->p_value);
        nd_table_add(&table, pair->is_significant ? "significant" : "not significant");
    }
    nd_text_put_table(report, &table, table.n_columns, 1, title.text != NULL ? title.text : "");
    report->out->failed = report->out->failed || title.failed;
}

/* "zeros", "ramp": of the probes without labels; which they are must be said, since others have theirs. */
static void put_unlabelled_title(const struct nd_text_report *report, struct nd_strbuf *title)
{
    const struct nd_comparison *c = report->comparison;
    const char *comma = "";
    nd_strbuf_puts(title, "\ntop-1 agreement with the reference, probes without labels (");
    for (size_t p = 0; p < c->n_probes; p++) {
        bool is_unlabelled = false;
        for (size_t i = 0; i < c->n_top1; i++)
            is_unlabelled = is_unlabelled || (c->top1[i].probe == p && !c->top1[i].has_labels);
        if (!is_unlabelled)
            continue;
        nd_strbuf_printf(title, "%s'%s'", comma, c->probes[p].name);
        comma = ", ";
    }
    nd_strbuf_puts(title, "):");
}

/* Rows without labels: one table for all of them, with the pairs that do not agree everywhere. */
static void put_unlabelled(const struct nd_text_report *report)
{
    static const char *const titles[] = {"output", "probe", "device", "samples", "agree", ""};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 6,
                             .is_left = {true, true, true, [5] = true},
                             .max_width = {ND_TEXT_NAME_MAX, 24, ND_TEXT_LABEL_MAX}};
    char text[ND_NUMBER_BYTES];
    size_t n_rows = 0;
    nd_text_add_titles(&table, titles);
    for (size_t i = 0; i < c->n_top1; i++) {
        const struct nd_top1 *row = &c->top1[i];
        for (size_t t = 1; t < c->n_devices && !row->has_labels; t++) {
            const struct nd_top1_pair *pair = &row->pairs[t - 1];
            n_rows += pair->exists;
            if (!pair->exists || (pair->n_agree == pair->n_samples && !report->all_tensors &&
                                  row->labels_missing_reason == NULL))
                continue;
            nd_table_add(&table, c->tensors[row->tensor].name);
            nd_table_add(&table, c->probes[row->probe].name);
            nd_table_add(&table, c->devices[t].label);
            nd_table_addf(&table, "%zu", pair->n_samples);
            nd_table_add(&table, nd_format_share(pair->n_agree, pair->n_samples, text));
            nd_table_add(&table, row->labels_missing_reason != NULL ? row->labels_missing_reason : "");
        }
    }
    bool has_lines = table.n_cells > table.n_columns;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf title = {0};
    put_unlabelled_title(report, &title);
    if (n_rows > 0 && !has_lines)
        nd_strbuf_puts(&title, " 100% everywhere");
    nd_text_put_table(report, &table, table.n_columns, 3, title.text != NULL ? title.text : "");
    if (n_rows > 0 && !has_lines && title.text != NULL) {
        nd_strbuf_puts(report->out, "\n");
        nd_text_put_wrapped(report, title.text + 1, 2);
        nd_strbuf_puts(report->out, "\n");
    }
    report->out->failed = report->out->failed || title.failed;
}

static const char *or_dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

static void put_number(struct nd_strbuf *out, size_t n, const char *what, const char *end)
{
    nd_strbuf_printf(out, "%zu %s%s%s", n, what, n == 1 ? "" : "s", end);
}

/* Who was compared; what is odd about a device (it ran on the CPU, ...); which failed. */
static void put_devices(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n_samples = 0;
    for (size_t p = 0; p < c->n_probes; p++)
        n_samples += c->probes[p].n_samples;
    put_number(report->out, c->n_devices, "device", ", ");
    put_number(report->out, c->n_tensors, "tensor", "");
    if (c->n_tensors_left_out > 0)
        nd_strbuf_printf(report->out, " of %zu", c->n_tensors + c->n_tensors_left_out);
    nd_strbuf_puts(report->out, ", ");
    put_number(report->out, c->n_probes, "probe", ", ");
    put_number(report->out, n_samples, "sample", c->different_models ? " (of different models)\n\n" : "\n\n");
    struct nd_table table = {.n_columns = 7,
                             .is_left = {true, true, true, true, false, true, true},
                             .max_width = {ND_TEXT_LABEL_MAX, 16, 28}};
    static const char *const titles[] = {"device", "chipset", "runtime", "status", "samples", "", "capture"};
    nd_text_add_titles(&table, titles);
    for (size_t i = 0; i < c->n_devices; i++) {
        const struct nd_compared_device *device = &c->devices[i];
        nd_table_add(&table, device->label);
        nd_table_add(&table, or_dash(device->chipset));
        nd_table_add(&table, or_dash(device->runtime));
        nd_table_add(&table, nd_capture_state_name(device->status));
        if (device->n_samples < device->n_samples_expected)
            nd_table_addf(&table, "%zu of %zu", device->n_samples, device->n_samples_expected);
        else
            nd_table_addf(&table, "%zu", device->n_samples);
        nd_table_add(&table, i == 0 ? "reference" : "");
        nd_table_add(&table, device->capture);
    }
    nd_text_put_table(report, &table, table.n_columns, 1, "");
    nd_text_device_notes(report);
    nd_text_failures(report);
}

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
    char number[ND_NUMBER_BYTES];
    for (size_t i = 0; i < nd_n_measures(); i++)
        if (nd_measure(i)->column != NULL)
            nd_table_add(table, nd_text_measure(nd_measure(i), d, number));
    if (columns->has_distribution)
        add_distribution(table, &d->distribution);
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
    nd_table_add(&table, "output");
    if (columns.has_pairs)
        nd_table_add(&table, "against");
    nd_table_add(&table, "device");
    if (columns.has_probes)
        nd_table_add(&table, "probe");
    for (size_t i = 0; i < nd_n_measures(); i++)
        if (nd_measure(i)->column != NULL)
            nd_table_add(&table, nd_measure(i)->column);
    if (columns.has_distribution) {
        nd_table_add(&table, "KL");
        nd_table_add(&table, "top-k");
    }
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

enum { DEFAULT_WIDTH = 120, MIN_WIDTH = 80 };

/* Of a pair that counts. */
static bool has_verdict(const struct nd_comparison *c, const struct nd_compared_tensor *tensor,
                        enum nd_verdict verdict)
{
    for (size_t t = 1; t < c->n_devices; t++)
        if (tensor->pairs[t - 1].verdict == verdict && !tensor->pairs[t - 1].is_unrecorded_input)
            return true;
    return false;
}

static bool is_unrecorded(const struct nd_comparison *c, const struct nd_compared_tensor *tensor)
{
    size_t t = 1;
    while (t < c->n_devices && !tensor->pairs[t - 1].is_unrecorded_input)
        t++;
    return t < c->n_devices;
}

/* What is said of a tensor: one thing for all tests, so that no tensor is counted twice in a sentence. What
 * could not be compared is counted apart. */
enum said { SAID_DIFFERS, SAID_NAN, SAID_WITHIN, SAID_DEQUANTISED, SAID_OTHER_TYPE, SAID_EQUAL, N_SAID };

static enum said what_is_said(const struct nd_comparison *c, const struct nd_compared_tensor *tensor)
{
    bool is_different = false, is_dequantised = false;
    for (size_t t = 1; t < c->n_devices; t++) {
        const struct nd_difference *d = &tensor->pairs[t - 1].total.difference;
        is_different = is_different || d->n_samples_differing > 0;
        is_dequantised = is_dequantised || d->n_dequantised > 0;
    }
    return has_verdict(c, tensor, ND_VERDICT_DIFFERS)        ? SAID_DIFFERS
           : has_verdict(c, tensor, ND_VERDICT_INCONCLUSIVE) ? SAID_NAN
           : !has_verdict(c, tensor, ND_VERDICT_WITHIN)      ? SAID_EQUAL
           : is_different                                    ? SAID_WITHIN
           : is_dequantised                                  ? SAID_DEQUANTISED
                                                             : SAID_OTHER_TYPE;
}

/* What the verdict means here, in one half sentence on the last line. What does not fit there is left out: it
 * has been said above. */
static void put_verdict(const struct nd_text_report *report)
{
    enum { PART_BYTES = 128 };
    const struct nd_comparison *c = report->comparison;
    size_t n_failed = 0, n_not_comparable = 0, n_unrecorded = 0, n[N_SAID] = {0};
    for (size_t i = 0; i < c->n_devices; i++)
        n_failed += c->devices[i].status == ND_CAPTURE_FAILED;
    for (size_t e = 0; e < c->n_tensors; e++) {
        n[what_is_said(c, &c->tensors[e])]++;
        n_not_comparable += has_verdict(c, &c->tensors[e], ND_VERDICT_NOT_COMPARABLE);
        n_unrecorded += is_unrecorded(c, &c->tensors[e]);
    }
    const struct {
        size_t n;
        size_t of;
        const char *what;
    } parts[] = {
        {n_failed, c->n_devices, "devices failed"},
        {n[SAID_DIFFERS], c->n_tensors, c->has_gates ? "tensors fail their gate" : "tensors differ"},
        {n[SAID_NAN], c->n_tensors, "tensors have samples that are NaN on both sides"},
        {n[SAID_WITHIN], c->n_tensors, "tensors differ only within their gate"},
        {n[SAID_DEQUANTISED], c->n_tensors, "tensors are equal after dequantisation"},
        {n[SAID_OTHER_TYPE], c->n_tensors, "tensors have equal values in different types"},
        {n_not_comparable, c->n_tensors, "tensors not or only partly comparable"},
        {n_unrecorded, c->n_tensors, "tensors are model inputs that not every capture has"},
    };
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    const char *separator = " (";
    nd_strbuf_printf(&line, "verdict: %s", nd_verdict_name(c->verdict));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char part[PART_BYTES];
        if (parts[i].n == 0)
            continue;
        snprintf(part, sizeof part, "%s%zu of %zu %s", separator, parts[i].n, parts[i].of, parts[i].what);
        bool is_fitting = line.len + strlen(part) + strlen("; ...)") <= report->width;
        nd_strbuf_puts(&line, is_fitting ? part : "; ...");
        separator = "; ";
        if (!is_fitting)
            break;
    }
    if (separator[0] == ' ' && c->broken_top1 != SIZE_MAX) {
        nd_strbuf_puts(&line, " (the reference is broken");
        separator = "; ";
    }
    if (separator[0] == ' ' && c->n_tensors == 1)
        nd_strbuf_printf(&line, " (the tensor is bit-equal on all %zu devices", c->n_devices);
    else if (separator[0] == ' ')
        nd_strbuf_printf(&line, " (all %zu tensors are bit-equal on all %zu devices", c->n_tensors,
                         c->n_devices);
    if (c->n_tensors_left_out > 0)
        nd_strbuf_printf(&line, "; %zu tensor%s left out", c->n_tensors_left_out,
                         c->n_tensors_left_out == 1 ? "" : "s");
    report->out->failed = report->out->failed || line.failed;
    nd_strbuf_printf(report->out, "\n%s)\n", line.text != NULL ? line.text : "");
}

struct repeats {
    size_t n_devices;   /* that ran any */
    uint64_t n_fewest;  /* comparisons of a repeat at one tensor of one device */
    uint64_t n_unequal; /* all tensors and devices together */
    double bound;       /* the largest */
};

static struct repeats count_repeats(const struct nd_comparison *c)
{
    struct repeats repeats = {.n_fewest = UINT64_MAX};
    for (size_t i = 0; i < c->n_devices; i++) {
        bool has_any = false;
        for (size_t e = 0; e < c->n_tensors; e++) {
            const struct nd_tensor_on_device *on = &c->tensors[e].devices[i];
            if (on->n_repeats == 0)
                continue;
            has_any = true;
            repeats.n_fewest = on->n_repeats < repeats.n_fewest ? on->n_repeats : repeats.n_fewest;
            repeats.n_unequal += on->n_repeats_unequal;
            repeats.bound = on->unstable_bound > repeats.bound ? on->unstable_bound : repeats.bound;
        }
        repeats.n_devices += has_any;
    }
    return repeats;
}

static void add_noise(struct nd_table *table, const struct nd_difference *noise)
{
    char text[ND_NUMBER_BYTES];
    if (noise == NULL || !noise->has_values) {
        for (int i = 0; i < 3; i++)
            nd_table_add(table, "-");
        return;
    }
    nd_table_add(table, nd_format_share(noise->n_differing, noise->n_elems, text));
    if (noise->is_integer)
        nd_table_addf(table, "±%s", nd_format_count(noise->max_lsb, text));
    else if (!noise->has_errors)
        nd_table_add(table, "-");
    else
        nd_table_addf(table, "%sulp", nd_format_count(noise->max_ulp, text));
    nd_text_add_short_if(table, noise->has_errors, noise->abs.max);
}

/* Every tensor that does not repeat on some device. */
static void put_unequal(const struct nd_text_report *report)
{
    static const char *const titles[] = {"tensor", "device",  "unequal", "p < %",
                                         "share",  "largest", "max real"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 7, .is_left = {true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    size_t n = 0;
    nd_text_add_titles(&table, titles);
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t i = 0; i < c->n_devices; i++) {
            const struct nd_tensor_on_device *on = &c->tensors[e].devices[i];
            if (on->n_repeats_unequal == 0 || n++ >= nd_text_list_limit(report))
                continue;
            nd_table_add(&table, c->tensors[e].name);
            nd_table_add(&table, c->devices[i].label);
            nd_table_addf(&table, "%llu of %llu", (unsigned long long)on->n_repeats_unequal,
                          (unsigned long long)on->n_repeats);
            nd_text_add_short(&table, 100 * on->unstable_bound);
            add_noise(&table, on->noise);
        }
    nd_text_put_table(
        report, &table, table.n_columns, 2,
        "\nown noise: repeats against the first one of the same device (p: that a repeat differs, 95 %):");
    nd_text_put_more(report, n);
}

/* Captures of one run each: the difference of two devices may then be the noise of one. */
static void put_uncounted(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0}, text = {0};
    size_t n = 0;
    for (size_t i = 0; i < c->n_devices && c->verdict == ND_VERDICT_DIFFERS; i++) {
        bool has_any = false;
        for (size_t e = 0; e < c->n_tensors; e++)
            has_any = has_any || c->tensors[e].devices[i].n_repeats > 0;
        if (!has_any)
            nd_strbuf_printf(&names, "%s%s", n++ > 0 ? ", " : "", c->devices[i].label);
    }
    if (n > 0) {
        nd_strbuf_printf(&text,
                         "not known: whether %s repeat%s %s, because no sample was run twice. A part of the "
                         "difference may be noise.",
                         names.text != NULL ? names.text : "", n == 1 ? "s" : "",
                         n == 1 ? "itself" : "themselves");
        nd_strbuf_puts(report->out, "\n");
        nd_text_put_wrapped(report, text.text != NULL ? text.text : "", 0);
        nd_strbuf_puts(report->out, "\n");
    }
    report->out->failed = report->out->failed || names.failed || text.failed;
}

static void nd_text_repeats(const struct nd_text_report *report)
{
    struct repeats repeats = count_repeats(report->comparison);
    char number[ND_NUMBER_BYTES];
    if (repeats.n_unequal > 0) {
        put_unequal(report);
    } else if (repeats.n_devices > 0) {
        nd_strbuf_printf(report->out, "\nrepeats: 0 of %llu unequal on ", (unsigned long long)repeats.n_fewest);
        if (repeats.n_devices == report->comparison->n_devices)
            nd_strbuf_puts(report->out, "every device");
        else
            nd_strbuf_printf(report->out, "each of %zu devices", repeats.n_devices);
        nd_strbuf_printf(report->out, " (a repeat differs with p < %s %%, 95 %%)\n",
                         nd_format_short(100 * repeats.bound, number));
    }
    put_uncounted(report);
}

/* All tables. */
static void put_sections(const struct nd_text_report *report)
{
    put_devices(report);
    nd_text_numbers(report);
    put_all_classes(report);
    /* Who agrees with whom, and where it starts. */
    if (report->comparison->first_tensor != SIZE_MAX) {
        put_from_reference(report);
        put_partings(report);
    }
    nd_text_predicates(report);
    nd_text_tensors(report);
    nd_text_gates(report);
    nd_text_not_repeatable(report);
    nd_text_repeats(report);
    nd_text_stuck(report);
    /* Steps and floats at the outputs and at the first difference. */
    static const char *const integer_titles[] = {"tensor", "device", "<-3",    "-3",      "-2",
                                                 "-1",     "0",      "+1",     "+2",      "+3",
                                                 ">+3",    "mean",   "signed", "max real"};
    static const char *const float_titles[] = {"tensor",   "device", "differing", "max ulp", "max abs",
                                               "mean abs", "NaN",    "Inf",       "+0/-0"};
    struct nd_table integers = {.n_columns = 14, .is_left = {true, true}};
    struct nd_table floats = {.n_columns = 9, .is_left = {true, true}};
    integers.max_width[0] = floats.max_width[0] = ND_TEXT_NAME_MAX;
    integers.max_width[1] = floats.max_width[1] = ND_TEXT_LABEL_MAX;
    nd_text_add_titles(&integers, integer_titles);
    nd_text_add_titles(&floats, float_titles);
    if (report->comparison->ulp_in != ND_DTYPE_NONE) {
        integers.n_columns++;
        floats.n_columns++;
        nd_table_addf(&integers, "%s ulp", nd_dtype_name(report->comparison->ulp_in));
        nd_table_addf(&floats, "%s ulp", nd_dtype_name(report->comparison->ulp_in));
    }
    add_rows(report, &integers, true);
    add_rows(report, &floats, false);
    nd_text_put_table(report, &integers, integers.n_columns, 2,
                      "\nLSB differences (test - ref) at model outputs and where a difference begins:");
    nd_text_put_table(report, &floats, floats.n_columns, 2,
                      "\nfloat differences at model outputs and where a difference begins:");
    /* Errors, similarity and special values at the outputs. */
    put_signal(report);
    put_sides(report);
    nd_text_structure(report);
    nd_text_diagnoses(report);
    nd_text_worst(report);
    nd_text_channels(report);
    nd_text_matrices(report);
    /* Accuracy and agreement. */
    for (size_t i = 0; i < report->comparison->n_top1; i++)
        if (report->comparison->top1[i].has_labels)
            put_labelled(report, &report->comparison->top1[i]);
    put_unlabelled(report);
    nd_text_problems(report);
    put_verdict(report);
}

enum nd_status nd_report_text(const struct nd_comparison *comparison, const struct nd_report_options *options,
                              char **out, struct nd_error *err)
{
    struct nd_report_options own = {.struct_size = sizeof own};
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    struct nd_strbuf buf = {0};
    struct nd_text_report report = {.comparison = comparison,
                                    .is_brief = own.is_brief,
                                    .model = own.model,
                                    .model_path = own.model_path,
                                    .all_tensors = own.all_tensors,
                                    .details = own.details,
                                    .worst = own.worst || own.details,
                                    .matrices = own.matrices,
                                    .n_matrices = own.n_matrices,
                                    .width = DEFAULT_WIDTH,
                                    .out = &buf};
    if (own.is_brief)
        report.width = nd_summary_width(own.width);
    else if (own.width > 0)
        report.width = own.width > MIN_WIDTH ? own.width : MIN_WIDTH;
    for (size_t i = 0; i < report.n_matrices; i++)
        ND_TRY(nd_matrix_check(&report.matrices[i], comparison, err));
    if (own.is_brief)
        nd_text_brief(&report);
    else
        put_sections(&report);
    return nd_text_end(&buf, out, err);
}
