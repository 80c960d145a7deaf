/* The default text of a comparison: the answer first, one row for each group of identical devices, then what is
 * worth knowing, and the next command. Everything else is in the tables. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "report/text/compare.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

static void nd_text_say_what_is_shared(const struct nd_comparison *c, struct nd_strbuf *out);

/* Why the verdict is `inconclusive`, in words that follow "INCONCLUSIVE: ". */
static const char *nd_text_why_inconclusive(const struct nd_comparison *c)
{
    bool is_noise = false;
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t t = 1; t < c->n_devices; t++)
            is_noise = is_noise || c->tensors[e].pairs[t - 1].within_noise;
    if (c->broken_top1 != SIZE_MAX)
        return "the reference is broken";
    return is_noise ? "values differ by no more than they do from run to run on one device"
                    : "values are NaN on both sides, so they cannot be compared";
}

/* Which samples differ: in one sentence. */

/* Numbers of samples that the sentence has. */
enum { MAX_SAMPLES = 5 };

/* Of which output the classes are, where there are several; and where no label says that it has classes, what
 * does. */
static void put_class(const struct nd_text_report *report, const struct nd_top1 *top1, const char *begin,
                      const char *end)
{
    const struct nd_comparison *c = report->comparison;
    const char *name = c->tensors[top1->tensor].name, *by = top1->classes_by;
    size_t n_outputs = 0;
    for (size_t e = 0; e < c->n_tensors; e++)
        n_outputs += c->tensors[e].is_model_output;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf why = {0};
    if (!top1->has_labels)
        nd_strbuf_printf(&why, " ('%s' is taken for scores of classes %s)", name,
                         strcmp(by, "operator") == 0 ? "because a Softmax makes it"
                         : strcmp(by, "name") == 0   ? "by its name"
                                                     : "by the number of its values");
    bool is_named = n_outputs > 1;
    nd_summary_put(report->out, report->width, 0, 2, "%s%s%s%s%s%s.", begin, is_named ? " of '" : "",
                   is_named ? name : "", is_named ? "'" : "", end, why.text != NULL ? why.text : "");
    report->out->failed = report->out->failed || why.failed;
}

static bool has_outputs(const struct nd_comparison *c)
{
    for (size_t e = 0; e < c->n_tensors; e++)
        if (c->tensors[e].is_model_output)
            return true;
    return false;
}

/* The output that differs in the most samples of all devices; where no tensor is known to be an output, the
 * tensor. */
static const struct nd_difference *find_max(const struct nd_comparison *c, size_t *test, size_t *tensor)
{
    const struct nd_difference *most = NULL;
    bool is_of_outputs = has_outputs(c);
    for (size_t t = 1; t < c->n_devices; t++) {
        for (size_t e = 0; e < c->n_tensors; e++) {
            const struct nd_compared_part *part = &c->tensors[e].pairs[t - 1].total;
            if ((is_of_outputs && !c->tensors[e].is_model_output) || part->coverage == ND_COVERAGE_NONE ||
                part->difference.n_samples_differing <= (most != NULL ? most->n_samples_differing : 0))
                continue;
            most = &part->difference;
            *test = t;
            *tensor = e;
        }
    }
    return most;
}

/* Of a summary: the samples whose class changed, else how many samples differ and which one most. */
static void nd_text_samples(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    const struct nd_comparison *c = report->comparison;
    size_t test = 0, tensor = 0;
    if (c->verdict == ND_VERDICT_SAME)
        return;
    if (top1 != NULL && top1->has_changed && top1->n_changed > 0 && top1->n_changed_kept > 0) {
        /* "The predicted class changes in 17 samples of 'digits': 12, 45, 93, 120, 133 and 12 more." */
        ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf list = {0};
        size_t n_shown = top1->n_changed_kept < MAX_SAMPLES ? top1->n_changed_kept : MAX_SAMPLES;
        for (size_t i = 0; i < n_shown; i++)
            nd_strbuf_printf(&list, "%s%zu",
                             i == 0                                           ? ""
                             : i + 1 == n_shown && n_shown == top1->n_changed ? " and "
                                                                              : ", ",
                             top1->changed[i].sample);
        if (n_shown < top1->n_changed)
            nd_strbuf_printf(&list, " and %zu more", top1->n_changed - n_shown);
        const char *probe = report->comparison->probes[top1->probe].name;
        ND_FREED char *where = top1->n_changed == 1
                                   ? nd_text(" changes in sample %zu of '%s'", top1->changed[0].sample, probe)
                                   : nd_text(" changes in %zu samples of '%s': %s", top1->n_changed, probe,
                                             list.text != NULL ? list.text : "");
        report->out->failed = report->out->failed || list.failed || where == NULL;
        put_class(report, top1, "The predicted class", where != NULL ? where : "");
        return;
    }
    const struct nd_difference *d = find_max(c, &test, &tensor);
    if (d == NULL || (d->n_worst == 0 && !d->has_first))
        return;
    const struct nd_difference_place *place = d->n_worst > 0 ? &d->worst[0].place : &d->first;
    nd_summary_put(report->out, report->width, 0, 2,
                   "On %s '%s' differs in %llu of %llu samples; the %s is in sample %zu of '%s'.",
                   c->devices[test].label, c->tensors[tensor].name, (unsigned long long)d->n_samples_differing,
                   (unsigned long long)d->n_samples, d->n_worst > 0 ? "largest difference" : "first difference",
                   place->sample, c->probes[place->probe].name);
}

/* The first lines of the default text of a comparison: the verdict, what was compared, where it ran. */

/* Whether values differ, as far as values are stored. */
static bool is_different(const struct nd_difference *d)
{
    return d->has_values ? d->n_differing > 0 : d->n_samples_differing > 0;
}

static size_t nd_text_count_differing(const struct nd_comparison *c, size_t test, bool is_failing)
{
    size_t n = 0;
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_compared_pair *pair = &c->tensors[e].pairs[test - 1];
        n += is_failing ? pair->verdict == ND_VERDICT_DIFFERS && !pair->is_unrecorded_input
                        : is_different(&pair->total.difference);
    }
    return n;
}

static size_t nd_text_count_compared(const struct nd_comparison *c, size_t test)
{
    size_t n = 0;
    for (size_t e = 0; e < c->n_tensors; e++)
        n += c->tensors[e].pairs[test - 1].total.coverage != ND_COVERAGE_NONE;
    return n;
}

/* Codes on one side, the floats of the same codes on the other. */
static bool is_dequantised(const struct nd_comparison *c)
{
    bool is_mixed = false;
    for (size_t t = 1; t < c->n_devices; t++) {
        if (nd_text_count_differing(c, t, false) > 0)
            return false;
        for (size_t e = 0; e < c->n_tensors; e++)
            is_mixed = is_mixed || c->tensors[e].pairs[t - 1].total.difference.is_mixed;
    }
    return is_mixed;
}

static void say_equal(const struct nd_comparison *c, struct nd_strbuf *out)
{
    size_t e = 0;
    while (e < c->n_tensors && c->tensors[e].comparable)
        e++;
    if (is_dequantised(c))
        nd_strbuf_puts(out, "SAME: all tensors are equal after dequantisation");
    else if (c->verdict == ND_VERDICT_SAME)
        nd_strbuf_printf(out,
                         c->n_devices == 2 ? "SAME: %s equal in every bit on both devices"
                                           : "SAME: %s equal in every bit on all %zu devices",
                         e < c->n_tensors    ? "all tensors that could be compared are"
                         : c->n_tensors == 1 ? "the one tensor is"
                                             : "all tensors are",
                         c->n_devices);
    else
        nd_strbuf_puts(out, "OK: every value is within its gate");
}

static void put_headline(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    size_t n_failed = 0;
    for (size_t i = 0; i < c->n_devices; i++)
        n_failed += c->devices[i].status == ND_CAPTURE_FAILED;
    switch (c->verdict) {
    case ND_VERDICT_SAME:
    case ND_VERDICT_WITHIN:
        say_equal(c, &line);
        break;
    case ND_VERDICT_INCONCLUSIVE:
        nd_strbuf_printf(&line, "INCONCLUSIVE: %s", nd_text_why_inconclusive(c));
        break;
    case ND_VERDICT_DIFFERS:
        nd_strbuf_puts(&line, c->has_gates ? "DIFFERS: values are outside their gates" : "DIFFERS");
        break;
    case ND_VERDICT_NOT_COMPARABLE:
        nd_text_say_what_is_shared(c, &line);
        break;
    case ND_VERDICT_FAILED:
        nd_strbuf_printf(&line, "FAILED: %zu of %zu devices failed", n_failed, c->n_devices);
        break;
    }
    int most = -1;
    for (size_t i = 0; i < c->n_devices; i++)
        most = c->devices[i].class_id > most ? c->devices[i].class_id : most;
    size_t n_groups = (size_t)(most + 1);
    if (n_groups > 1 && c->verdict != ND_VERDICT_SAME && c->verdict != ND_VERDICT_INCONCLUSIVE &&
        !is_dequantised(c))
        nd_strbuf_printf(&line, "%s %zu captures give %zu different results: %s",
                         c->verdict == ND_VERDICT_DIFFERS && !c->has_gates ? ":"
                         : c->verdict == ND_VERDICT_NOT_COMPARABLE         ? ". What they share DIFFERS:"
                                                                           : ".",
                         c->n_devices, n_groups, c->classes_text);
    report->out->failed = report->out->failed || line.failed;
    nd_summary_put(report->out, report->width, 0, 2, "%s", line.text != NULL ? line.text : "");
}

/* What was compared with what. */
static void put_subject(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    size_t n_samples = 0, n_outputs = 0, output = 0;
    for (size_t p = 0; p < c->n_probes; p++)
        n_samples += c->probes[p].n_samples;
    for (size_t e = c->n_tensors; e-- > 0;) {
        n_outputs += c->tensors[e].is_model_output;
        output = c->tensors[e].is_model_output ? e : output;
    }
    if (report->model != NULL)
        nd_strbuf_printf(&line, "%s: ", report->model);
    nd_strbuf_printf(&line, "%zu tensor%s, %zu sample%s", c->n_tensors, c->n_tensors == 1 ? "" : "s", n_samples,
                     n_samples == 1 ? "" : "s");
    if (c->n_probes == 1)
        nd_strbuf_printf(&line, " of '%s'", c->probes[0].name);
    if (n_outputs == 1)
        nd_strbuf_printf(&line, ", output '%s'", c->tensors[output].name);
    nd_strbuf_printf(&line, ", %zu captures; the reference is '%s'", c->n_devices, c->devices[0].label);
    if (c->n_tensors_left_out > 0)
        nd_strbuf_printf(&line, "; %zu tensor%s left out", c->n_tensors_left_out,
                         c->n_tensors_left_out == 1 ? " is" : "s are");
    if (c->different_models)
        nd_strbuf_puts(&line, "; of different models");
    report->out->failed = report->out->failed || line.failed;
    nd_summary_put(report->out, report->width, 0, 2, "%s", line.text != NULL ? line.text : "");
}

/* The command that the default text of a comparison ends with. */

enum { MAX_WORDS = 24 };

struct words {
    const char *items[MAX_WORDS];
    size_t n;
};

static void add_word(struct words *words, const char *word)
{
    if (words->n < MAX_WORDS)
        words->items[words->n++] = word;
}

/* Whether the test is the first of the devices that equal it everywhere; devices without data are alone. */
static bool nd_text_is_first_of_group(const struct nd_comparison *c, size_t test)
{
    int class_id = c->devices[test].class_id;
    for (size_t i = 1; i < test && class_id >= 0; i++)
        if (c->devices[i].class_id == class_id)
            return false;
    return true;
}

/* The reference, and one of every group that differs from it (the others give the same answer): a few. */
static void add_captures(struct words *words, const struct nd_comparison *c)
{
    enum { MAX_CAPTURES = 6 };
    size_t n = 0;
    add_word(words, c->devices[0].capture);
    for (size_t t = 1; t < c->n_devices; t++)
        if (nd_text_is_first_of_group(c, t) &&
            (c->devices[t].class_id != c->devices[0].class_id || c->n_devices == 2) && n++ < MAX_CAPTURES)
            add_word(words, c->devices[t].capture);
}

static bool has_qvalues(const struct nd_comparison *c)
{
    size_t e = 0;
    while (e < c->n_tensors && !c->tensors[e].is_quantised)
        e++;
    return e < c->n_tensors;
}

static bool is_shared(const struct nd_comparison *c, size_t probe)
{
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t t = 0; t < c->n_pairs; t++)
            if (c->tensors[e].pairs[t].probes[probe].coverage != ND_COVERAGE_FULL)
                return false;
    return true;
}

/* The first probe of which all captures have everything; n_probes: none. */
static size_t shared_probe(const struct nd_comparison *c)
{
    size_t p = 0;
    while (p < c->n_probes && !is_shared(c, p))
        p++;
    return p;
}

/* The command to paste, or nothing. And the verdict of captures that have not the same in them,
 * with what to do. */
static void nd_text_say_what_is_shared(const struct nd_comparison *c, struct nd_strbuf *out)
{
    size_t p = shared_probe(c);
    nd_strbuf_puts(out, "NOT COMPARABLE as a whole: compare only what all captures have, with ");
    if (p < c->n_probes)
        nd_strbuf_printf(out, "'-p %s'", c->probes[p].name);
    else
        nd_strbuf_puts(out, "'--tensors outputs'");
}

/* A capture of those that are compared which `explain` cannot judge, or NULL. */
static const char *find_without_inputs(const struct nd_comparison *c)
{
    for (size_t i = 0; i < c->n_devices; i++)
        if (nd_summary_lacks_inputs(c->devices[i].capture))
            return c->devices[i].capture;
    return NULL;
}

static void nd_text_next(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct words words = {.items = {"npudiff"}, .n = 1};
    const char *why = NULL, *model = NULL;
    if (c->verdict == ND_VERDICT_SAME || c->verdict == ND_VERDICT_WITHIN)
        return;
    if (c->verdict == ND_VERDICT_FAILED) {
        size_t i = 0;
        while (i + 1 < c->n_devices && c->devices[i].status != ND_CAPTURE_FAILED)
            i++;
        why = "to see what the device's logs say";
        add_word(&words, "info");
        add_word(&words, c->devices[i].capture);
    } else if (c->verdict == ND_VERDICT_DIFFERS && report->model != NULL) {
        const char *unfed = find_without_inputs(c);
        if (unfed != NULL) {
            nd_summary_put_import_again(report->out, report->width, unfed);
            return;
        }
        why = has_qvalues(c) ? "to learn whether the quantisation, the chip or a fault is the cause"
                             : "to learn in which layer the difference begins, and whether it is a fault";
        add_word(&words, "explain");
        add_word(&words, has_qvalues(c) ? "--quantised" : "--float");
        model = report->model;
        add_word(&words, report->model_path != NULL ? report->model_path : report->model);
        add_captures(&words, c);
    } else {
        add_word(&words, "compare");
        if (c->verdict == ND_VERDICT_NOT_COMPARABLE) {
            /* What all captures have: a probe, or else the outputs. Says what the command is for. */
            size_t p = shared_probe(c);
            add_word(&words, p < c->n_probes ? "-p" : "--tensors");
            add_word(&words, p < c->n_probes ? c->probes[p].name : "outputs");
            why = p < c->n_probes ? "to compare only a probe that all captures have"
                                  : "to compare only the outputs";
        } else {
            why = "to see all tables";
            add_word(&words, "-v");
        }
        add_captures(&words, c);
    }
    nd_summary_put_next_of(report->out, report->width, why, report->model_path == NULL ? model : NULL,
                           words.items, words.n);
}

enum { MAX_GROUPS = 8, MAX_CHANGES = 3 };

/* ---- groups ---- */

/* "gen3=gen4=gen5", or "gen3 and 9 more". */
static void name_group(const struct nd_comparison *c, size_t test, struct nd_strbuf *out)
{
    enum { MAX_COLUMNS = 24 };
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf all = {0};
    size_t n = 0;
    nd_strbuf_puts(&all, c->devices[test].label);
    for (size_t i = test + 1; i < c->n_devices && c->devices[test].class_id >= 0; i++) {
        if (c->devices[i].class_id != c->devices[test].class_id)
            continue;
        nd_strbuf_printf(&all, "=%s", c->devices[i].label);
        n++;
    }
    if (n > 0 && all.len > MAX_COLUMNS)
        nd_strbuf_printf(out, "%s and %zu more", c->devices[test].label, n);
    else
        nd_strbuf_puts(out, all.text != NULL ? all.text : "");
    out->failed = out->failed || all.failed;
}

/* ---- the table ---- */

/* Values that are lost first, then the larger error for its signal, then the larger share. */
static bool is_worse(const struct nd_difference *a, const struct nd_difference *b)
{
    bool a_is_lost = a->n_inf_mismatch + a->n_nan_mismatch > 0,
         b_is_lost = b->n_inf_mismatch + b->n_nan_mismatch > 0;
    if (a_is_lost != b_is_lost)
        return a_is_lost;
    bool have_signal = a->has_signal && b->has_signal && a->n_differing > 0 && b->n_differing > 0;
    return have_signal && a->sqnr_db != b->sqnr_db ? a->sqnr_db < b->sqnr_db : a->share > b->share;
}

/* The output of the test of which the largest share differs, or where no tensor is known to be an output, the
 * worst tensor; NULL when none was compared. */
static const struct nd_difference *worst_output(const struct nd_comparison *c, size_t test)
{
    bool is_of_outputs = has_outputs(c);
    const struct nd_difference *worst = NULL;
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_compared_part *part = &c->tensors[e].pairs[test - 1].total;
        if ((c->tensors[e].is_model_output || !is_of_outputs) && part->coverage != ND_COVERAGE_NONE &&
            (worst == NULL ||
             (is_of_outputs ? part->difference.share > worst->share : is_worse(&part->difference, worst))))
            worst = &part->difference;
    }
    return worst;
}

static void add_output(struct nd_table *table, const struct nd_difference *d)
{
    char number[ND_NUMBER_BYTES];
    if (d == NULL || (d->n_samples_differing > 0 && !d->has_values)) {
        nd_table_add(table, "?");
        nd_table_add(table, "?");
        return;
    }
    nd_table_add(table, nd_format_share(d->n_differing, d->n_elems, number));
    if (d->n_differing == 0)
        nd_table_add(table, "-");
    else if (d->is_integer)
        nd_table_addf(table, "±%s LSB", nd_format_count(d->max_lsb, number));
    else if (d->n_inf_mismatch > 0) /* no number is as large */
        nd_table_add(table, d->n_nan_mismatch > 0 ? "Inf, NaN" : "Inf");
    else if (d->n_nan_mismatch > 0 || !d->has_errors)
        nd_table_add(table, "NaN");
    else
        nd_table_add(table, nd_format_short(d->abs.max, number));
}

static void add_top1(struct nd_table *table, const struct nd_top1 *top1, size_t device)
{
    char number[ND_NUMBER_BYTES];
    if (top1 == NULL)
        return;
    const struct nd_top1_device *on = &top1->devices[device];
    const struct nd_top1_pair *pair = device > 0 ? &top1->pairs[device - 1] : NULL;
    if (top1->has_labels)
        nd_table_add(table, on->exists ? nd_format_share(on->n_correct, on->n_samples, number) : "?");
    if (pair == NULL)
        nd_table_add(table, "-");
    else if (pair->exists)
        nd_table_addf(table, "%zu of %zu", pair->n_samples - pair->n_agree, pair->n_samples);
    else
        nd_table_add(table, "?");
}

static void add_group(struct nd_table *table, const struct nd_comparison *c, const struct nd_top1 *top1,
                      size_t test)
{
    struct nd_strbuf name = {0};
    name_group(c, test, &name);
    nd_table_add(table, name.text != NULL ? name.text : "");
    table->failed = table->failed || name.failed;
    nd_strbuf_deinit(&name);
    const struct nd_difference *worst = worst_output(c, test);
    if (worst == NULL && nd_text_count_compared(c, test) == 0)
        nd_table_add(table, "?");
    else
        nd_table_addf(table, "%zu of %zu", nd_text_count_differing(c, test, false), c->n_tensors);
    if (c->has_gates)
        nd_table_addf(table, "%zu", nd_text_count_differing(c, test, true));
    add_output(table, worst);
    add_top1(table, top1, test);
}

static void put_groups(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    const struct nd_comparison *c = report->comparison;
    bool has_labels = top1 != NULL && top1->has_labels;
    size_t n = 0, n_columns = 4 + (size_t)c->has_gates + (top1 != NULL) + has_labels;
    struct nd_table table = {.n_columns = n_columns, .is_left = {true}};
    table.max_width[0] = report->width * 2 / 5; /* the other columns take up to 3 / 5 of 80 columns */
    static const char *const titles[2][7] = {
        {"", "tensors", "tensors", "output", "largest", "top-1", "changed"},
        {"device", "differ", "fail", "differs", "at output", "right", "classes"}};
    for (size_t row = 0; row < 2; row++) {
        for (size_t i = 0; i < 7; i++) {
            bool is_shown = i == 2   ? c->has_gates
                            : i == 5 ? top1 != NULL && top1->has_labels
                            : i == 6 ? top1 != NULL
                                     : true;
            bool is_of_tensor = !has_outputs(c) && (i == 3 || (i == 4 && row == 1));
            if (is_shown)
                nd_table_add(&table, !is_of_tensor ? titles[row][i]
                                     : i == 4      ? "there"
                                     : row == 0    ? "worst"
                                                   : "tensor");
        }
    }
    if (has_labels) {
        nd_table_add(&table, c->devices[0].label);
        for (size_t i = 1; i + 2 < n_columns; i++)
            nd_table_add(&table, "-");
        add_top1(&table, top1, 0);
    }
    for (size_t t = 1; t < c->n_devices; t++)
        if (nd_text_is_first_of_group(c, t) && n++ < MAX_GROUPS)
            add_group(&table, c, top1, t);
    nd_text_put_table(report, &table, 0, 1, "\n");
    if (n > MAX_GROUPS)
        nd_strbuf_printf(report->out, "  and %zu more groups (-v shows them)\n", n - MAX_GROUPS);
}

/* The errors of a device that are alike in every tensor that is no input, and do not grow over them. */
struct alike {
    const struct nd_compared_depth *depth; /* NULL: not so */
    double low, high;                      /* shares of values that differ; of floats relative errors */
    uint64_t min_lsb, max_lsb;
};

/* Chosen: alike is up to a factor of two, as no growth is (docs/reference/diagnoses.md). */
static struct alike find_alike(const struct nd_comparison *c, size_t test)
{
    struct alike alike = {.low = INFINITY, .min_lsb = UINT64_MAX};
    for (size_t i = 0; i < c->n_depths; i++)
        if (c->depths[i].device == test && strcmp(c->depths[i].growth, "none") == 0)
            alike.depth = &c->depths[i];
    for (size_t e = 0; e < c->n_tensors && alike.depth != NULL; e++) {
        const struct nd_difference *d = &c->tensors[e].pairs[test - 1].total.difference;
        double error = alike.depth->is_share ? d->share : pow(10, -d->sqnr_db / 20);
        if (c->tensors[e].is_model_input)
            continue;
        if (!d->has_values || d->n_differing == 0 || d->is_integer != alike.depth->is_share || !isfinite(error))
            return (struct alike){0};
        alike.low = fmin(alike.low, error);
        alike.high = fmax(alike.high, error);
        alike.min_lsb = d->max_lsb < alike.min_lsb ? d->max_lsb : alike.min_lsb;
        alike.max_lsb = d->max_lsb > alike.max_lsb ? d->max_lsb : alike.max_lsb;
    }
    bool is_alike = alike.high <= 2 * alike.low && alike.max_lsb <= 2 * alike.min_lsb;
    return is_alike ? alike : (struct alike){0};
}

/* Then no tensor is where it begins. */
static bool put_alike(const struct nd_text_report *report, size_t test)
{
    const struct nd_comparison *c = report->comparison;
    const struct alike alike = find_alike(c, test);
    char low[ND_NUMBER_BYTES], high[ND_NUMBER_BYTES], lsb[ND_NUMBER_BYTES] = "";
    if (alike.depth == NULL)
        return false;
    if (alike.min_lsb < alike.max_lsb)
        snprintf(lsb, sizeof lsb, "±%" PRIu64 " to ", alike.min_lsb);
    if (alike.depth->is_share)
        nd_summary_put(report->out, report->width, 0, 2,
                       "%s differs alike in every tensor: at most %s±%" PRIu64
                       " LSB, %s to %s of the values, no growth over the depth.",
                       c->devices[test].label, lsb, alike.max_lsb, ND_PERCENT(alike.low),
                       ND_PERCENT(alike.high));
    else
        nd_summary_put(report->out, report->width, 0, 2,
                       "%s differs alike in every tensor: relative error %s to %s, no growth over the depth.",
                       c->devices[test].label, nd_format_short(alike.low, low),
                       nd_format_short(alike.high, high));
    return true;
}

/* The first tensor, in graph order, that differs from the reference: one sentence for all groups of which it is
 * the same. */
static void put_first(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n_said = 0;
    for (size_t t = 1; t < c->n_devices; t++) {
        size_t tensor = c->devices[t].first_tensor, n_differing = 0, n_here = 0;
        bool is_said = tensor == SIZE_MAX || !nd_text_is_first_of_group(c, t) || put_alike(report, t);
        struct nd_strbuf names = {0};
        for (size_t i = 1; i < c->n_devices; i++) {
            is_said = is_said || (i < t && c->devices[i].first_tensor == tensor);
            if (c->devices[i].first_tensor == SIZE_MAX || !nd_text_is_first_of_group(c, i))
                continue;
            n_differing++;
            if (c->devices[i].first_tensor != tensor)
                continue;
            nd_strbuf_puts(&names, n_here++ > 0 ? ", " : " on ");
            name_group(c, i, &names);
        }
        if (!is_said && n_said++ < MAX_CHANGES)
            nd_summary_put(report->out, report->width, 0, 2,
                           "'%s' (%s%s%s) is the first tensor that differs%s.", c->tensors[tensor].name,
                           c->tensors[tensor].op_types, c->tensors[tensor].op_types[0] != '\0' ? ", " : "",
                           nd_dtype_name(c->tensors[tensor].dtype),
                           n_here < n_differing && names.text != NULL ? names.text : "");
        report->out->failed = report->out->failed || names.failed;
        nd_strbuf_deinit(&names);
    }
    if (n_said > MAX_CHANGES)
        nd_strbuf_puts(report->out, "Others begin to differ at later tensors (-v shows them).\n");
}

/* ---- what it does to the predictions ---- */

static void put_changes(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    const struct nd_comparison *c = report->comparison;
    size_t n = 0, n_pairs = 0;
    if (top1 == NULL || c->verdict == ND_VERDICT_SAME)
        return;
    for (size_t t = 1; t < c->n_devices; t++) {
        const struct nd_top1_pair *pair = &top1->pairs[t - 1];
        n_pairs += pair->exists;
        if (!pair->exists || pair->n_agree == pair->n_samples || !nd_text_is_first_of_group(c, t) ||
            n++ >= MAX_CHANGES || !top1->has_labels)
            continue;
        nd_summary_put(report->out, report->width, 0, 2,
                       "%s: %zu right class%s become%s wrong, %zu wrong become%s right (%s, p = %.2g).",
                       c->devices[t].label, pair->n_lost, pair->n_lost == 1 ? "" : "es",
                       pair->n_lost == 1 ? "s" : "", pair->n_gained, pair->n_gained == 1 ? "s" : "",
                       pair->is_significant ? "significant" : "not significant", pair->p_value);
    }
    if (n == 0 && n_pairs > 0)
        put_class(report, top1, "No predicted class", " changes");
}

/* What is worth knowing beside the table, the most telling first: a long list is cut at its end. */
static void put_notes(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    nd_text_failures(report);
    nd_text_not_repeatable(report);
    put_changes(report, top1);
    nd_text_samples(report, top1);
    put_first(report);
    nd_text_numbers(report);
    nd_text_diagnoses(report);
    nd_text_structure(report);
    nd_text_predicates(report);
    nd_text_problems(report);
    if (report->comparison->has_gates)
        nd_text_gates(report);
    nd_text_device_notes(report);
    nd_text_stuck(report);
}

void nd_text_brief(const struct nd_text_report *report)
{
    const struct nd_top1 *top1 = nd_comparison_top1(report->comparison);
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf notes = {0}, next = {0};
    struct nd_text_report of_notes = *report, of_next = *report;
    of_notes.out = &notes;
    of_next.out = &next;
    put_notes(&of_notes, top1);
    nd_text_next(&of_next);
    /* The verdict, what was compared, where it ran. And how many tensors of a test differ from the
     * reference or, with is_failing, fail their gates. */
    put_headline(report);
    put_subject(report);
    /* Where it ran: simulated or real, and with which SDK. */
    const struct nd_comparison *c = report->comparison;
    ND_FREED const char **labels = calloc(2 * c->n_devices + 1, sizeof *labels);
    report->out->failed = report->out->failed || labels == NULL;
    for (size_t i = 0; i < c->n_devices && labels != NULL; i++) {
        labels[i] = c->devices[i].label;
        labels[c->n_devices + i] = c->devices[i].environment != NULL ? c->devices[i].environment : "";
    }
    if (labels != NULL)
        nd_summary_put_environments(report->out, report->width, labels, labels + c->n_devices, c->n_devices);
    if (report->comparison->verdict != ND_VERDICT_SAME) {
        put_groups(report, top1);
        nd_strbuf_puts(report->out, notes.len > 0 && notes.text[0] != '\n' ? "\n" : "");
    }
    size_t used = nd_summary_count_lines(report->out) + nd_summary_count_lines(&next);
    nd_summary_append_cut(report->out, &notes, used < ND_SUMMARY_LINES ? ND_SUMMARY_LINES - used : 1);
    if (report->worst)
        nd_text_worst(report);
    nd_text_channels(report);
    nd_text_matrices(report);
    nd_summary_append_cut(report->out, &next, SIZE_MAX);
}
