/* Every device against every other, by one metric. docs/reference/metrics.md. */

#include "core/memory.h"
#include "report/text/compare.h"
#include "report/text/tree.h"

static enum nd_status fail_metric(const char *text, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0};
    for (size_t i = 0; i < nd_n_measures(); i++)
        if (nd_measure(i)->option != NULL)
            nd_strbuf_printf(&names, "%s%s", names.len > 0 ? ", " : "", nd_measure(i)->option);
    return names.failed
               ? nd_fail_memory(err)
               : nd_fail(err, ND_E_OPTION_VALUE, text,
                         "a matrix is METRIC or METRIC:NAME, METRIC one of %s; not '%s'", names.text, text);
}

enum nd_status nd_matrix_parse(const char *text, struct nd_matrix *out, struct nd_error *err)
{
    size_t n = strcspn(text, ":");
    for (size_t i = 0; i < nd_n_measures(); i++) {
        const char *option = nd_measure(i)->option;
        if (option != NULL && strlen(option) == n && strncmp(option, text, n) == 0 &&
            strcmp(text + n, ":") != 0) {
            *out = (struct nd_matrix){nd_measure(i), text[n] == ':' ? text + n + 1 : NULL};
            return ND_OK;
        }
    }
    return fail_metric(text, err);
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

/* Whether the number of a cell is made without samples or values that the pair should have. */
static bool leaves_out(const struct nd_measure *measure, const struct nd_compared_part *part)
{
    const struct nd_difference *d = &part->difference;
    const struct nd_numbers *numbers = &d->numbers;
    if (part->coverage == ND_COVERAGE_PART)
        return true;
    if (measure->need == ND_NEEDS_VALUES)
        return false;
    if (measure->need == ND_NEEDS_DIVERGENCE && d->distribution.n_infinite > 0)
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
    else if (pair == NULL || (is_mirrored && !matrix->measure->is_symmetric))
        nd_table_add(table, "");
    else if (pair->total.coverage == ND_COVERAGE_NONE)
        nd_table_add(table, "n/c");
    else if (!pair->total.difference.has_values)
        nd_table_add(table, "-");
    else {
        has_mark = leaves_out(matrix->measure, &pair->total);
        nd_table_addf(table, "%s%s", nd_text_measure(matrix->measure, &pair->total.difference, text),
                      has_mark ? "*" : "");
    }
    return has_mark;
}

static void put_matrix(const struct nd_text_report *report, const struct nd_compared_tensor *tensor,
                       const struct nd_matrix *matrix)
{
    const struct nd_comparison *c = report->comparison;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf title = {0};
    bool is_marked = false;
    bool is_signal = matrix->measure->need == ND_NEEDS_SIGNAL;
    nd_strbuf_printf(&title, "\n%s%s at %s%s (row: reference, column: test):", matrix->measure->title,
                     is_signal && c->n_probes > 1 ? " in the probe with the lowest SQNR" : "", tensor->name,
                     matrix->measure->is_of_differing ? ", over the samples that differ" : "");
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
