#include "report/text/format.h"
#include "report/text/compare.h"

bool nd_text_is_detailed(const struct nd_comparison *comparison, size_t edge, size_t test)
{
    const struct nd_compared_part *total = &comparison->edges[edge].pairs[test - 1].total;
    bool is_wanted = comparison->edges[edge].is_model_output || comparison->devices[test].first_edge == edge;
    return is_wanted && total->coverage != ND_COVERAGE_NONE && total->difference.has_values &&
           total->difference.n_differing > 0;
}

static void add_integer_row(struct nd_table *table, const struct nd_difference *d)
{
    for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
        nd_text_add_count(table, d->lsb_histogram[i]);
    nd_text_add_short(table, d->mean_lsb);
    nd_text_add_short(table, d->signed_mean_lsb);
    nd_text_add_short(table, d->abs.max);
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
    for (size_t e = 0; e < c->n_edges; e++)
        for (size_t t = 1; t < c->n_devices; t++) {
            const struct nd_difference *d = &c->edges[e].pairs[t - 1].total.difference;
            if (!nd_text_is_detailed(c, e, t) || d->is_integer != is_integer)
                continue;
            nd_table_add(table, c->edges[e].name);
            nd_table_add(table, c->devices[t].label);
            if (is_integer)
                add_integer_row(table, d);
            else
                add_float_row(table, d);
            if (c->ulp_in != ND_DTYPE_NONE)
                nd_table_add(table, d->has_ulp_in ? nd_format_count(d->max_ulp_in, number) : "-");
        }
}

void nd_text_magnitudes(const struct nd_text_report *report)
{
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
}
