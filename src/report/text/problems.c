/* What fails its gate, what could not be compared, and what is odd about a device.
 * docs/reference/metrics.md#gates. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "core/memory.h"
#include "report/text/compare.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

/* What makes values differ, how errors grow, and where the comparison is wrong.
 * docs/reference/diagnoses.md and docs/reference/metrics.md#predicate. */

/* A line is said once for all devices of which it holds in the same tensor. */
static bool is_same_line(const struct nd_compared_diagnosis *a, const struct nd_compared_diagnosis *b)
{
    return a->tensor == b->tensor && a->is_of_runs == b->is_of_runs && a->n_later == b->n_later &&
           strcmp(a->kind, b->kind) == 0 && strcmp(a->text, b->text) == 0;
}

/* Later tensors show the same kind: the first is where it is made. */
static bool is_first_of_kind(const struct nd_comparison *c, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (c->diagnoses[k].device == c->diagnoses[i].device &&
            strcmp(c->diagnoses[k].kind, c->diagnoses[i].kind) == 0)
            return false;
    return true;
}

static void add_diagnosis_line(const struct nd_text_report *report, struct nd_table *table, size_t i,
                               bool *is_said)
{
    const struct nd_comparison *c = report->comparison;
    const struct nd_compared_diagnosis *d = &c->diagnoses[i];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf labels = {0}, text = {0};
    for (size_t k = i; k < c->n_diagnoses; k++) {
        if (is_said[k] || !is_same_line(d, &c->diagnoses[k]))
            continue;
        nd_strbuf_printf(&labels, "%s%s", k > i ? ", " : "", c->devices[c->diagnoses[k].device].label);
        is_said[k] = true;
    }
    nd_strbuf_puts(&text, d->text);
    if (d->n_later > 0 && !report->details)
        nd_strbuf_printf(&text, " (and %zu later tensor%s)", d->n_later, d->n_later == 1 ? "" : "s");
    nd_table_add(table, c->tensors[d->tensor].name);
    nd_table_add(table, labels.text != NULL ? labels.text : "");
    nd_table_add(table, text.text != NULL ? text.text : "");
    table->failed = table->failed || labels.failed || text.failed;
}

static void put_lines(const struct nd_text_report *report, bool is_note, const char *title)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 3, .is_left = {true, true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    bool *is_said = nd_calloc(c->n_diagnoses, sizeof *is_said);
    size_t n = 0;
    report->out->failed = report->out->failed || (is_said == NULL && c->n_diagnoses > 0);
    for (size_t i = 0; i < c->n_diagnoses && is_said != NULL; i++) {
        bool is_wanted = c->diagnoses[i].is_note == is_note && !is_said[i];
        is_wanted = is_wanted && (report->details || is_first_of_kind(c, i));
        if (is_wanted && n++ < nd_text_list_limit(report))
            add_diagnosis_line(report, &table, i, is_said);
    }
    free(is_said);
    nd_text_put_table(report, &table, 0, 2, title);
    nd_text_put_more(report, n);
}

/* Whether the probe comes near where half precision ends. Chosen: a quarter of it. */
static void put_half_range(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t i = 0; i < c->n_depths; i++) {
        const struct nd_compared_depth *d = &c->depths[i];
        if (!d->is_half || isnan(d->largest))
            continue;
        char number[ND_NUMBER_BYTES];
        struct nd_strbuf line = {0};
        nd_strbuf_printf(
            &line,
            "%s: the largest value compared is %s (%s); these probes %s the end of half precision, 65504",
            c->devices[d->device].label, nd_format_short(d->largest, number),
            c->tensors[d->largest_tensor].name, d->largest < 65504.0 / 4 ? "do not come near" : "come near");
        nd_strbuf_puts(report->out, "\n");
        nd_text_put_wrapped(report, line.text != NULL ? line.text : "", 2);
        nd_strbuf_puts(report->out, "\n");
        report->out->failed = report->out->failed || line.failed;
        nd_strbuf_deinit(&line);
    }
}

static void put_signs(const struct nd_text_report *report)
{
    static const char *const titles[] = {"tensor", "device", "test > ref", "test < ref", "mean", "per |mean|"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 6, .is_left = {true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    nd_text_add_titles(&table, titles);
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t t = 1; t < c->n_devices; t++) {
            const struct nd_difference *d = &c->tensors[e].pairs[t - 1].total.difference;
            if (!nd_text_is_detailed(c, e, t))
                continue;
            nd_table_add(&table, c->tensors[e].name);
            nd_table_add(&table, c->devices[t].label);
            nd_table_add(&table, ND_PERCENT(d->share_above));
            nd_table_add(&table, ND_PERCENT(d->share_below));
            nd_text_add_short(&table, d->signed_mean);
            nd_text_add_short(&table, d->abs.mean > 0 ? d->signed_mean / d->abs.mean : 0);
        }
    nd_text_put_table(
        report, &table, table.n_columns, 2,
        "\nsigned differences (test - ref, real units; the last column is 1 or -1 where all have one sign):");
}

void nd_text_diagnoses(const struct nd_text_report *report)
{
    put_lines(report, false, "\ndiagnosis from the values:");
    put_lines(report, true, "\narithmetic that the values show (no fault):");
    if (!report->details)
        return;
    put_signs(report);
    static const char *const titles[] = {"device", "grows", "tensors", "first", "last", "error"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 6, .is_left = {true, true, [5] = true}, .max_width = {ND_TEXT_LABEL_MAX}};
    nd_text_add_titles(&table, titles);
    for (size_t i = 0; i < c->n_depths; i++) {
        const struct nd_compared_depth *d = &c->depths[i];
        if (strcmp(d->growth, "unknown") == 0)
            continue;
        nd_table_add(&table, c->devices[d->device].label);
        if (strcmp(d->growth, "constant-rate") == 0)
            nd_table_addf(&table, "%.4g times per tensor", d->factor);
        else if (strcmp(d->growth, "none") == 0)
            nd_table_add(&table, "no growth");
        else
            nd_table_add(&table, strcmp(d->growth, "linear") == 0 ? "linearly" : "as a square root");
        nd_text_add_count(&table, d->n_tensors);
        nd_text_add_short(&table, d->first);
        nd_text_add_short(&table, d->last);
        nd_table_add(&table, d->is_share ? "share of values that differ" : "relative error");
    }
    nd_text_put_table(report, &table, table.n_columns, 1,
                      "\nhow the error grows over the tensors, in their order:");
    put_half_range(report);
}

/* Beyond this the chance is no number anybody needs (chosen): 2^20 is a million. */
static const double chance_bits_shown = 20;

void nd_text_predicates(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    if (c->n_predicates > 0)
        nd_strbuf_puts(report->out, "\nwhere it is wrong:\n");
    for (size_t i = 0; i < c->n_predicates && i < nd_text_list_limit(report); i++) {
        const struct nd_compared_predicate *p = &c->predicates[i];
        ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
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
    }
    nd_text_put_more(report, c->n_predicates);
}

/* The smallest tolerance that would let every failing tensor of a test pass. */
static struct nd_tolerance needed_tolerance(const struct nd_comparison *c, size_t test, const char **impossible)
{
    struct nd_tolerance needed = {0};
    *impossible = NULL;
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_difference *d = &c->tensors[e].pairs[test - 1].total.difference;
        const struct nd_tolerance *one = &d->tolerance;
        if (d->n_failing == 0)
            continue;
        needed.is_possible = true;
        if (!one->is_possible && *impossible == NULL)
            *impossible = c->tensors[e].name;
        needed.has_lsb = needed.has_lsb || one->has_lsb;
        needed.has_ulp = needed.has_ulp || one->has_ulp;
        needed.lsb = one->has_lsb && one->lsb > needed.lsb ? one->lsb : needed.lsb;
        needed.ulp = one->has_ulp && one->ulp > needed.ulp ? one->ulp : needed.ulp;
        needed.atol = one->atol > needed.atol ? one->atol : needed.atol;
        needed.rtol = one->rtol > needed.rtol ? one->rtol : needed.rtol;
    }
    return needed;
}

static void add_count_or_dash(struct nd_table *table, bool exists, uint64_t n)
{
    if (exists)
        nd_text_add_count(table, n);
    else
        nd_table_add(table, "-");
}

/* Every digit: who copies the number must not get one that is a little too small. */
static void add_exact(struct nd_table *table, double value)
{
    char number[ND_NUMBER_BYTES];
    if (!isfinite(value)) {
        nd_table_add(table, "-");
        return;
    }
    nd_format_real(value, number);
    size_t n = strlen(number);
    if (n > 2 && strcmp(number + n - 2, ".0") == 0)
        number[n - 2] = '\0';
    nd_table_add(table, number);
}

static void put_tolerances(const struct nd_text_report *report)
{
    static const char *const titles[] = {"device", "--lsb", "--ulp", "--atol", "--rtol", ""};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 6, .is_left = {true, [5] = true}, .max_width = {ND_TEXT_LABEL_MAX, [5] = 0}};
    nd_text_add_titles(&table, titles);
    for (size_t t = 1; t < c->n_devices; t++) {
        const char *impossible;
        struct nd_tolerance needed = needed_tolerance(c, t, &impossible);
        if (!needed.is_possible)
            continue;
        nd_table_add(&table, c->devices[t].label);
        for (size_t i = 1; i < 5 && impossible != NULL; i++)
            nd_table_add(&table, "-");
        if (impossible == NULL) {
            add_count_or_dash(&table, needed.has_lsb, needed.lsb);
            add_count_or_dash(&table, needed.has_ulp, needed.ulp);
            add_exact(&table, needed.atol);
            add_exact(&table, needed.rtol);
        }
        if (impossible != NULL)
            nd_table_addf(&table, "no tolerance: NaN or infinity on one side only at %s", impossible);
        else
            nd_table_add(&table, "");
    }
    nd_text_put_table(report, &table, table.n_columns, 1,
                      "\nwhat fails would pass with --lsb (codes) and --ulp (floats), or with --atol, or with "
                      "--rtol of:");
}

void nd_text_gates(const struct nd_text_report *report)
{
    if (report->comparison->has_gates) {
        const struct nd_comparison *c = report->comparison;
        struct nd_table table = {
            .n_columns = 4, .is_left = {true, true, true}, .max_width = {48, 32, ND_TEXT_LABEL_MAX}};
        size_t n = 0;
        for (size_t e = 0; e < c->n_tensors; e++)
            for (size_t t = 1; t < c->n_devices; t++) {
                const struct nd_difference *d = &c->tensors[e].pairs[t - 1].total.difference;
                if (d->n_failing == 0 || n++ >= nd_text_list_limit(report))
                    continue;
                nd_table_add(&table, c->tensors[e].name);
                nd_table_add(&table, c->tensors[e].gate);
                nd_table_add(&table, c->devices[t].label);
                nd_table_addf(&table, "%llu of %llu", (unsigned long long)d->n_failing,
                              (unsigned long long)d->n_elems);
            }
        nd_text_put_table(report, &table, 0, 1, "\nelements that fail their gate:");
        nd_text_put_more(report, n);
    }
    if (report->comparison->has_gates || report->details)
        put_tolerances(report);
}

/* The reason that all tensors of a device share, or NULL. */
static const char *common_reason(const struct nd_comparison *c, size_t test)
{
    const char *common = NULL;
    if (c->devices[test].class_id < 0)
        return "the capture holds no data";
    for (size_t e = 0; e < c->n_tensors; e++) {
        const char *reason = c->tensors[e].pairs[test - 1].total.reason;
        if (reason == NULL || c->tensors[e].pairs[test - 1].label != NULL ||
            (common != NULL && strcmp(reason, common) != 0))
            return NULL;
        common = reason;
    }
    return common;
}

static void add_line(struct nd_table *table, const char *tensor, const char *device, const char *reason)
{
    nd_table_add(table, tensor);
    nd_table_add(table, device);
    nd_table_add(table, reason);
}

/* Whether the same captures could be compared on fewer tensors: some are missing somewhere, and others are not.
 */
static bool is_help_at_hand(const struct nd_comparison *c)
{
    size_t n_missing = 0;
    for (size_t e = 0; e < c->n_tensors; e++) {
        bool is_missing = false;
        for (size_t i = 0; i < c->n_devices; i++)
            is_missing |= !c->tensors[e].is_model_input && !c->tensors[e].devices[i].exists &&
                          c->devices[i].status != ND_CAPTURE_FAILED;
        n_missing += is_missing;
    }
    return n_missing > 0 && n_missing < c->n_tensors;
}

/* The same bytes under other labels. */
static void put_labels(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 3, .is_left = {true, true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    size_t n = 0;
    for (size_t t = 1; t < c->n_devices; t++)
        for (size_t e = 0; e < c->n_tensors; e++) {
            const char *label = c->tensors[e].pairs[t - 1].label;
            if (label != NULL && n++ < nd_text_list_limit(report))
                add_line(&table, c->tensors[e].name, c->devices[t].label, label);
        }
    nd_text_put_table(report, &table, 0, 1, "\nwrongly labelled:");
    nd_text_put_more(report, n);
}

/* In one line: it decides nothing. */
static void put_unrecorded(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n = 0, test = 0, tensor = 0;
    for (size_t t = c->n_devices; t-- > 1;)
        for (size_t e = c->n_tensors; e-- > 0;) {
            if (!c->tensors[e].pairs[t - 1].is_unrecorded_input)
                continue;
            n++;
            test = t;
            tensor = e;
        }
    if (n == 0)
        return;
    nd_strbuf_printf(report->out, "\nleft out: the model input '%s', which '%s' did not record",
                     c->tensors[tensor].name,
                     c->devices[c->tensors[tensor].devices[test].exists ? 0 : test].label);
    if (n > 1)
        nd_strbuf_printf(report->out, ", and %zu more like it", n - 1);
    nd_strbuf_puts(report->out, "\n");
}

void nd_text_problems(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    put_labels(report);
    struct nd_table table = {
        .n_columns = 3, .is_left = {true, true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    size_t n = 0;
    for (size_t t = 1; t < c->n_devices; t++) {
        const char *common = common_reason(c, t);
        if (common != NULL) {
            if (n++ < nd_text_list_limit(report))
                add_line(&table, "(all tensors)", c->devices[t].label, common);
            continue;
        }
        for (size_t e = 0; e < c->n_tensors; e++) {
            const char *reason = c->tensors[e].pairs[t - 1].total.reason;
            bool is_label = c->tensors[e].pairs[t - 1].label != NULL;
            bool is_counted = !is_label && !c->tensors[e].pairs[t - 1].is_unrecorded_input;
            if (reason != NULL && is_counted && n++ < nd_text_list_limit(report))
                add_line(&table, c->tensors[e].name, c->devices[t].label, reason);
        }
    }
    nd_text_put_table(report, &table, 0, 1, "\nnot or only partly comparable:");
    nd_text_put_more(report, n);
    put_unrecorded(report);
    if (is_help_at_hand(c))
        nd_strbuf_puts(report->out,
                       "  to compare only what all have: --tensors outputs, or --tensors NAME,...\n");
}

/* Only where something fell back: everything on the NPU is what was asked for. */
static void put_npu_share(const struct nd_text_report *report, const struct nd_compared_device *device)
{
    const struct nd_npu_share *share = &device->npu_share;
    size_t n = share->n_npu + share->n_off;
    if (!device->is_npu || share->n_off == 0)
        return;
    char time[48] = "";
    if (!isnan(share->time))
        snprintf(time, sizeof time, ", %s of the time", ND_PERCENT(share->time));
    nd_summary_put(report->out, report->width, 2, 4,
                   "%s: %zu of %zu operators (%s)%s on the NPU; 'npudiff placement' says which not",
                   device->label, share->n_npu, n, ND_PERCENT(share->nodes), time);
}

/* Only where options differ that are known to change bits. */
static void put_configuration(const struct nd_text_report *report, const struct nd_compared_device *device)
{
    if (device->configuration == NULL || device->configuration[0] == '\0')
        return;
    nd_summary_put(report->out, report->width, 2, 4,
                   "%s is configured differently from '%s', in what is known to change bits: %s", device->label,
                   report->comparison->devices[device->configured_as].label, device->configuration);
}

/* What the captures leave open, so that nobody takes "same" for more than it says. */
static void put_unknown(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    if (c->unknown_models)
        nd_summary_put(report->out, report->width, 2, 4, "%s",
                       "note: not every capture says of which model it is; tensors are matched by name alone");
    if (c->unknown_inputs)
        nd_summary_put(report->out, report->width, 2, 4, "%s",
                       "note: not every capture says what it was fed; the inputs are taken to be the same");
}

void nd_text_device_notes(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    put_unknown(report);
    for (size_t i = 0; i < c->n_devices; i++)
        put_npu_share(report, &c->devices[i]);
    for (size_t i = 0; i < c->n_devices; i++)
        put_configuration(report, &c->devices[i]);
}

void nd_text_failures(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t i = 0; i < c->n_devices; i++) {
        if (c->devices[i].status != ND_CAPTURE_FAILED)
            continue;
        nd_strbuf_puts(report->out, "  ");
        nd_text_put_wrapped(report, c->devices[i].label, 4);
        nd_strbuf_puts(report->out, " failed");
        nd_strbuf_puts(report->out, c->devices[i].failure[0] != '\0' ? ": " : "");
        nd_text_put_wrapped(report, c->devices[i].failure, 4);
        nd_strbuf_puts(report->out, "\n");
    }
}

/* ---- what repeats of a device say ---- */

/* Outputs that are the same for every input: mostly a wrong input buffer, or a graph cut off from it. */
void nd_text_stuck(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 2, .is_left = {true, true}, .max_width = {ND_TEXT_NAME_MAX}};
    for (size_t e = 0; e < c->n_tensors; e++) {
        struct nd_strbuf labels = {0};
        size_t n = 0;
        for (size_t i = 0; i < c->n_devices && c->tensors[e].is_model_output; i++) {
            if (!c->tensors[e].devices[i].is_stuck)
                continue;
            nd_strbuf_printf(&labels, "%s%s", n++ > 0 ? ", " : "", c->devices[i].label);
        }
        if (n > 0) {
            nd_table_add(&table, c->tensors[e].name);
            nd_table_add(&table, n == c->n_devices ? "every device" : labels.text != NULL ? labels.text : "");
        }
        table.failed = table.failed || labels.failed;
        nd_strbuf_deinit(&labels);
    }
    nd_text_put_table(report, &table, 0, 1, "\nstuck outputs, the same for different inputs, on:");
}

/* The largest noise of a device, and where it begins. */
struct noise {
    size_t n_tensors, first;
    uint64_t max_lsb;
    double max_real;
    bool has_lsb, has_real;
};

static struct noise sum_up_noise(const struct nd_comparison *c, size_t device)
{
    struct noise noise = {.first = SIZE_MAX};
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_tensor_on_device *on = &c->tensors[e].devices[device];
        if (on->n_unstable == 0)
            continue;
        noise.n_tensors++;
        noise.first = noise.first == SIZE_MAX ? e : noise.first;
        if (on->noise == NULL || !on->noise->has_values)
            continue;
        bool is_integer = on->noise->is_integer;
        noise.has_lsb = noise.has_lsb || is_integer;
        if (is_integer && on->noise->max_lsb > noise.max_lsb)
            noise.max_lsb = on->noise->max_lsb;
        if (!is_integer && on->noise->has_errors) {
            noise.max_real = on->noise->abs.max > noise.max_real ? on->noise->abs.max : noise.max_real;
            noise.has_real = true;
        }
    }
    return noise;
}

void nd_text_not_repeatable(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    char number[ND_NUMBER_BYTES];
    for (size_t i = 0; i < c->n_devices; i++) {
        struct noise noise = sum_up_noise(c, i);
        struct nd_strbuf by = {0};
        if (noise.n_tensors == 0)
            continue;
        if (noise.has_lsb)
            nd_strbuf_printf(&by, " by up to %s LSB", nd_format_count(noise.max_lsb, number));
        else if (noise.has_real)
            nd_strbuf_printf(&by, " by up to %s", nd_format_short(noise.max_real, number));
        const struct nd_compared_tensor *first = &c->tensors[noise.first];
        nd_summary_put(
            report->out, report->width, 0, 2,
            "%s is not repeatable: run to run it differs%s in %zu of %zu tensors, first in '%s'%s%s%s.",
            c->devices[i].label, by.text != NULL ? by.text : "", noise.n_tensors, c->n_tensors, first->name,
            first->op_types[0] != '\0' ? " (" : "", first->op_types, first->op_types[0] != '\0' ? ")" : "");
        report->out->failed = report->out->failed || by.failed;
        nd_strbuf_deinit(&by);
    }
}
