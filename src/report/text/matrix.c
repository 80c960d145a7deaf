/* Every device against every other, by one metric. docs/reference/metrics.md. */
#include <string.h>

#include "core/error.h"
#include "report/text/compare.h"
#include "report/text/table.h"

/* Indexed by enum nd_matrix_metric. A metric without symmetry is shown only from an earlier device to a later
 * one, as it was computed. */
static const struct {
    const char *name;
    const char *title;
    bool is_symmetric;
    bool is_of_differing; /* samples that are equal have no part in it */
} metrics[] = {
    [ND_MATRIX_SHARE] = {"share", "share of differing elements", true, false},
    [ND_MATRIX_DIFFERING] = {"differing", "differing elements", true, false},
    [ND_MATRIX_MAX_LSB] = {"max_lsb", "largest difference in LSB", true, false},
    [ND_MATRIX_MEAN_LSB] = {"mean_lsb", "mean difference in LSB", true, false},
    [ND_MATRIX_MAX_ULP] = {"max_ulp", "largest difference in ULP", true, false},
    [ND_MATRIX_MAX_ABS] = {"max_abs", "largest |error| in real units", true, false},
    [ND_MATRIX_RMSE] = {"rmse", "RMSE in real units", true, false},
    [ND_MATRIX_SQNR] = {"sqnr", "SQNR in dB", false, true},
    [ND_MATRIX_COSINE] = {"cosine", "cosine", true, true},
    [ND_MATRIX_NORM_RATIO] = {"norm_ratio", "norm of the test / norm of the reference", false, true},
    [ND_MATRIX_PEARSON] = {"pearson", "Pearson correlation", true, true},
    [ND_MATRIX_KL] = {"kl", "KL divergence in nats", false, false},
};
enum { N_METRICS = sizeof metrics / sizeof metrics[0] };

enum nd_status nd_matrix_parse(const char *text, struct nd_matrix *out, struct nd_error *err)
{
    size_t n = strcspn(text, ":");
    for (size_t i = 0; i < N_METRICS; i++)
        if (strlen(metrics[i].name) == n && strncmp(metrics[i].name, text, n) == 0 &&
            strcmp(text + n, ":") != 0) {
            *out = (struct nd_matrix){(enum nd_matrix_metric)i, text[n] == ':' ? text + n + 1 : NULL};
            return ND_OK;
        }
    return nd_fail(err, ND_E_OPTION_VALUE, text,
                   "a matrix is METRIC or METRIC:NAME, METRIC one of share, differing, max_lsb, mean_lsb, "
                   "max_ulp, max_abs, rmse, sqnr, cosine, norm_ratio, pearson, kl; not '%s'",
                   text);
}

enum nd_status nd_matrix_check(const struct nd_matrix *matrix, const struct nd_comparison *comparison,
                               struct nd_error *err)
{
    if (matrix->tensor == NULL)
        return ND_OK;
    for (size_t e = 0; e < comparison->n_tensors; e++)
        if (strcmp(comparison->tensors[e].name, matrix->tensor) == 0)
            return ND_OK;
    return nd_fail(err, ND_E_OPTION_VALUE, matrix->tensor, "there is no tensor '%s' for a matrix",
                   matrix->tensor);
}

static const struct nd_compared_pair *
find_pair(const struct nd_comparison *c, const struct nd_compared_tensor *tensor, size_t ref, size_t test)
{
    for (size_t i = 0; i < c->n_pairs; i++)
        if (tensor->pairs[i].ref == ref && tensor->pairs[i].test == test)
            return &tensor->pairs[i];
    return NULL;
}

static const char *format_count(bool exists, uint64_t n, char buf[static ND_NUMBER_BYTES])
{
    return exists ? nd_format_count(n, buf) : "-";
}

static const char *format_value(enum nd_matrix_metric metric, const struct nd_difference *d,
                                char buf[static ND_NUMBER_BYTES])
{
    const struct nd_distribution *dist = &d->distribution;
    bool has_kl = dist->exists && dist->n_samples > dist->n_infinite + dist->n_invalid;
    switch (metric) {
    case ND_MATRIX_SHARE:
        return nd_format_share(d->n_differing, d->n_elems, buf);
    case ND_MATRIX_DIFFERING:
        return format_count(true, d->n_differing, buf);
    case ND_MATRIX_MAX_LSB:
        return format_count(d->is_integer, d->max_lsb, buf);
    case ND_MATRIX_MAX_ULP:
        return format_count(!d->is_integer && !d->has_steps && d->has_errors, d->max_ulp, buf);
    case ND_MATRIX_MEAN_LSB:
        return d->is_integer ? nd_format_short(d->mean_lsb, buf) : "-";
    case ND_MATRIX_MAX_ABS:
        return d->has_errors ? nd_format_short(d->abs.max, buf) : "-";
    case ND_MATRIX_RMSE:
        return d->has_errors ? nd_format_short(d->rmse, buf) : "-";
    case ND_MATRIX_SQNR:
        return d->has_signal ? nd_format_short(d->sqnr_db, buf) : "-";
    case ND_MATRIX_COSINE:
        return d->has_signal ? nd_format_near_one(d->cosine, buf) : "-";
    case ND_MATRIX_NORM_RATIO:
        return d->has_signal ? nd_format_near_one(d->norm_ratio, buf) : "-";
    case ND_MATRIX_PEARSON:
        return d->has_signal ? nd_format_near_one(d->pearson, buf) : "-";
    case ND_MATRIX_KL:
        return has_kl ? nd_format_short(dist->kl, buf) : "-";
    }
    return "-";
}

/* Whether the number of a cell is made without samples or values that the pair should have. */
static bool leaves_out(enum nd_matrix_metric metric, const struct nd_compared_part *part)
{
    const struct nd_difference *d = &part->difference;
    const struct nd_numbers *numbers = &d->numbers;
    if (part->coverage == ND_COVERAGE_PART)
        return true;
    if (metric == ND_MATRIX_SHARE || metric == ND_MATRIX_DIFFERING)
        return false;
    if (metric == ND_MATRIX_KL && d->distribution.n_infinite > 0)
        return true;
    return d->n_nan_mismatch + d->n_nan_payload + d->n_inf_mismatch + numbers->n_ref_nan + numbers->n_test_nan +
               numbers->n_ref_inf + numbers->n_test_inf >
           0;
}

/* Whether the cell has a mark. */
static bool add_cell(struct nd_table *table, const struct nd_comparison *c,
                     const struct nd_compared_tensor *tensor, const struct nd_matrix *matrix, size_t row,
                     size_t column)
{
    char text[ND_NUMBER_BYTES];
    bool is_mirrored = row > column, has_mark = false;
    size_t ref = is_mirrored ? column : row, test = is_mirrored ? row : column;
    const struct nd_compared_pair *pair = row != column ? find_pair(c, tensor, ref, test) : NULL;
    if (row == column)
        nd_table_add(table, ".");
    else if (pair == NULL || (is_mirrored && !metrics[matrix->metric].is_symmetric))
        nd_table_add(table, "");
    else if (pair->total.coverage == ND_COVERAGE_NONE)
        nd_table_add(table, "n/c");
    else if (!pair->total.difference.has_values)
        nd_table_add(table, "-");
    else {
        has_mark = leaves_out(matrix->metric, &pair->total);
        nd_table_addf(table, "%s%s", format_value(matrix->metric, &pair->total.difference, text),
                      has_mark ? "*" : "");
    }
    return has_mark;
}

static void put_matrix(const struct nd_text_report *report, const struct nd_compared_tensor *tensor,
                       const struct nd_matrix *matrix)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_strbuf title = {0};
    bool is_marked = false;
    bool is_signal = matrix->metric == ND_MATRIX_SQNR || matrix->metric == ND_MATRIX_COSINE ||
                     matrix->metric == ND_MATRIX_NORM_RATIO || matrix->metric == ND_MATRIX_PEARSON;
    nd_strbuf_printf(&title, "\n%s%s at %s%s (row: reference, column: test):", metrics[matrix->metric].title,
                     is_signal && c->n_probes > 1 ? " in the probe with the lowest SQNR" : "", tensor->name,
                     metrics[matrix->metric].is_of_differing ? ", over the samples that differ" : "");
    for (size_t from = 0; from < c->n_devices;) {
        size_t rest = c->n_devices - from,
               n = rest < ND_TABLE_MAX_COLUMNS - 1 ? rest : ND_TABLE_MAX_COLUMNS - 1;
        struct nd_table table = {.n_columns = n + 1, .is_left = {true}, .max_width = {ND_TEXT_LABEL_MAX}};
        nd_table_add(&table, "");
        for (size_t i = 0; i < n; i++) {
            table.max_width[i + 1] = ND_TEXT_LABEL_MAX;
            nd_table_add(&table, c->devices[from + i].label);
        }
        for (size_t row = 0; row < c->n_devices; row++) {
            nd_table_add(&table, c->devices[row].label);
            for (size_t i = 0; i < n; i++)
                is_marked = add_cell(&table, c, tensor, matrix, row, from + i) || is_marked;
        }
        nd_text_put_table(report, &table, table.n_columns, 1,
                          from == 0 && title.text != NULL ? title.text : "\n");
        from += n;
    }
    if (is_marked)
        nd_strbuf_puts(report->out,
                       "  *  leaves out samples or values: NaN, infinite, or missing on one side\n");
    report->out->failed = report->out->failed || title.failed;
    nd_strbuf_deinit(&title);
}

void nd_text_matrices(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t i = 0; i < report->n_matrices; i++)
        for (size_t e = 0; e < c->n_tensors; e++) {
            const char *name = report->matrices[i].tensor;
            bool is_wanted =
                name != NULL ? strcmp(c->tensors[e].name, name) == 0 : c->tensors[e].is_model_output;
            if (is_wanted)
                put_matrix(report, &c->tensors[e], &report->matrices[i]);
        }
}
