#include "report/format.h"
#include "report/text_compare.h"

struct repeats {
    size_t n_devices;   /* that ran any */
    uint64_t n_fewest;  /* comparisons of a repeat at one edge of one device */
    uint64_t n_unequal; /* all edges and devices together */
    double bound;       /* the largest */
};

static struct repeats count_repeats(const struct nd_comparison *c)
{
    struct repeats repeats = {.n_fewest = UINT64_MAX};
    for (size_t i = 0; i < c->n_devices; i++) {
        bool has_any = false;
        for (size_t e = 0; e < c->n_edges; e++) {
            const struct nd_edge_on_device *on = &c->edges[e].devices[i];
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

/* Every edge that does not repeat on some device. */
static void put_unequal(const struct nd_text_report *report)
{
    static const char *const titles[] = {"tensor", "device",  "unequal", "p < %",
                                         "share",  "largest", "max real"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 7, .is_left = {true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    size_t n = 0;
    nd_text_add_titles(&table, titles);
    for (size_t e = 0; e < c->n_edges; e++)
        for (size_t i = 0; i < c->n_devices; i++) {
            const struct nd_edge_on_device *on = &c->edges[e].devices[i];
            if (on->n_repeats_unequal == 0 || n++ >= nd_text_list_limit(report))
                continue;
            nd_table_add(&table, c->edges[e].name);
            nd_table_add(&table, c->devices[i].label);
            nd_table_addf(&table, "%llu of %llu", (unsigned long long)on->n_repeats_unequal,
                          (unsigned long long)on->n_repeats);
            nd_text_add_short(&table, 100 * on->unstable_bound);
            add_noise(&table, on->noise);
        }
    nd_text_put_table(
        report, &table, table.n_columns, 2,
        "\nown noise: repeats against the first one of the same device (p: that a repeat differs, "
        "95 %):");
    nd_text_put_more(report, n);
}

/* Outputs that are the same for every input: mostly a wrong input buffer, or a graph cut off from it. */
static void put_stuck(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 2, .is_left = {true, true}, .max_width = {ND_TEXT_NAME_MAX}};
    for (size_t e = 0; e < c->n_edges; e++) {
        struct nd_strbuf labels = {0};
        size_t n = 0;
        for (size_t i = 0; i < c->n_devices && c->edges[e].is_model_output; i++) {
            if (!c->edges[e].devices[i].is_stuck)
                continue;
            nd_strbuf_printf(&labels, "%s%s", n++ > 0 ? ", " : "", c->devices[i].label);
        }
        if (n > 0) {
            nd_table_add(&table, c->edges[e].name);
            nd_table_add(&table, n == c->n_devices ? "every device" : labels.text != NULL ? labels.text : "");
        }
        table.failed = table.failed || labels.failed;
        nd_strbuf_deinit(&labels);
    }
    nd_text_put_table(report, &table, 0, 1, "\nstuck outputs, the same for different inputs, on:");
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
    put_stuck(report);
}
