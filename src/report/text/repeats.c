/* What repeats of a device say: own noise, outputs that do not depend on the input.
 * docs/reference/metrics.md#repeats. */
#include "core/memory.h"
#include "report/text/compare.h"

#include <stdint.h>

#include "report/text/summary.h"
#include "report/text/tree.h"

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

/* Captures of one run each: the difference of two devices may then be the noise of one. */
static void put_unknown(const struct nd_text_report *report)
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

void nd_text_repeats(const struct nd_text_report *report)
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
    put_unknown(report);
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
