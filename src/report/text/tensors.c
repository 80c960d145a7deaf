/* One row for each tensor, one column for each test device. docs/guides/reading-the-output.md. */
#include <stdio.h>

#include "core/memory.h"
#include "report/text/compare.h"
#include "report/text/tree.h"

/* ---- what the sections of the text of a comparison are made of: lists with a limit, wrapped text, tables and
 * their cells ---- */

size_t nd_text_list_limit(const struct nd_text_report *report)
{
    return report->all_tensors ? SIZE_MAX : report->is_brief ? ND_TEXT_BRIEF_LINES : ND_TEXT_LIST_LINES;
}

void nd_text_put_more(const struct nd_text_report *report, size_t n)
{
    if (n > nd_text_list_limit(report))
        nd_strbuf_printf(report->out, "  and %zu more\n", n - nd_text_list_limit(report));
}

void nd_text_put_wrapped(const struct nd_text_report *report, const char *text, size_t indent)
{
    ND_FREED char *clean = nd_clean_text(text);
    if (clean == NULL)
        report->out->failed = true;
    else
        nd_wrap_append(report->out, clean, indent, report->width);
}

/* Takes from the widest key until the keys leave enough of the line to the other columns. */
static void fit_keys(struct nd_table *table, size_t n_keys, size_t limit)
{
    enum { MIN_KEY = 8 };
    for (;;) {
        size_t used = 0, widest = 0, width = 0;
        for (size_t i = 0; i < n_keys; i++) {
            size_t columns = nd_table_width(table, i);
            used += 2 + columns;
            widest = columns > width ? i : widest;
            width = columns > width ? columns : width;
        }
        if (used <= limit || width <= MIN_KEY)
            return;
        table->max_width[widest] = width - 1;
    }
}

void nd_text_put_table(const struct nd_text_report *report, struct nd_table *table, size_t n_title_cells,
                       size_t n_keys, const char *title)
{
    if (table->n_cells > n_title_cells) {
        size_t n_newlines = strspn(title, "\n");
        nd_strbuf_append(report->out, title, n_newlines);
        if (title[n_newlines] != '\0') {
            nd_text_put_wrapped(report, title + n_newlines, 2);
            nd_strbuf_puts(report->out, "\n");
        }
        table->line_width = report->width;
        fit_keys(table, n_keys, report->width * 11 / 20);
        nd_table_render_panels(table, n_keys, report->out);
    }
    report->out->failed = report->out->failed || table->failed;
    nd_table_deinit(table);
}

void nd_text_add_titles(struct nd_table *table, const char *const *titles)
{
    for (size_t i = 0; i < table->n_columns; i++)
        nd_table_add(table, titles[i]);
}

void nd_text_add_count(struct nd_table *table, uint64_t n)
{
    nd_table_addf(table, "%llu", (unsigned long long)n);
}

void nd_text_add_short(struct nd_table *table, double value)
{
    char number[ND_NUMBER_BYTES];
    nd_table_add(table, nd_format_short(value, number));
}

void nd_text_add_short_if(struct nd_table *table, bool exists, double value)
{
    char number[ND_NUMBER_BYTES];
    nd_table_add(table, exists ? nd_format_short(value, number) : "-");
}

void nd_text_put_coordinates(struct nd_strbuf *out, const struct nd_shape *shape,
                             const struct nd_difference_place *place)
{
    for (int i = 0; i < shape->rank; i++)
        nd_strbuf_printf(out, "%s%lld%s", i == 0 ? " [" : ",", (long long)place->coordinates[i],
                         i == shape->rank - 1 ? "]" : "");
}

bool nd_text_is_detailed(const struct nd_comparison *comparison, size_t tensor, size_t test)
{
    const struct nd_compared_part *total = &comparison->tensors[tensor].pairs[test - 1].total;
    bool is_wanted =
        comparison->tensors[tensor].is_model_output || comparison->devices[test].first_tensor == tensor;
    return is_wanted && total->coverage != ND_COVERAGE_NONE && total->difference.has_values &&
           total->difference.n_differing > 0;
}

const char *nd_text_measure(const struct nd_measure *measure, const struct nd_difference *d,
                            char buf[static ND_NUMBER_BYTES])
{
    if (!nd_measure_is_known(measure, d))
        return "-";
    switch (measure->form) {
    case ND_MEASURED_COUNT:
        return nd_format_count(nd_measure_count(measure, d), buf);
    case ND_MEASURED_SHARE:
        return nd_format_share(d->n_differing, d->n_elems, buf);
    case ND_MEASURED_NEAR_ONE:
        return nd_format_near_one(nd_measure_value(measure, d), buf);
    case ND_MEASURED_REAL:
        break;
    }
    return nd_format_short(nd_measure_value(measure, d), buf);
}

/* Columns in front of those of the devices. */
enum { FIXED_COLUMNS = 4, NAME_MIN = 18, NAME_MAX = 48, OP_MAX = 14, CELL_BYTES = 96, CELL_MAX = 30 };

/* What columns may take of a narrow line. */
enum { NARROW_NAME = 16, NARROW_OP = 8, NARROW_TYPE = 8, NARROW_CLASSES = 16, NARROW_CELL = 22 };

/* Marks that occurred, so that only these are explained. */
struct marks {
    bool is_part, is_none, is_failing, is_on_cpu, has_nan, has_inf, is_unread, is_unstable, is_within_noise,
        is_label;
};

/* "=", "12.3% ±1", "0.02% 5ulp", "3/8 smp", "n/c"; then marks. */
static void add_cell(struct nd_table *table, const struct nd_comparison *c,
                     const struct nd_compared_tensor *tensor, size_t test, struct marks *marks)
{
    const struct nd_compared_pair *pair = &tensor->pairs[test - 1];
    const struct nd_difference *d = &pair->total.difference;
    bool is_part = pair->total.coverage == ND_COVERAGE_PART;
    char value[CELL_BYTES + ND_NUMBER_BYTES + 2] = "=", share[ND_NUMBER_BYTES], size[CELL_BYTES];
    if (pair->total.coverage == ND_COVERAGE_NONE) {
        marks->is_none = marks->is_none || pair->label == NULL;
        marks->is_label = marks->is_label || pair->label != NULL;
        nd_table_add(table, pair->label != NULL ? "label" : "n/c");
        return;
    }
    if (d->n_samples_differing > 0 && !d->has_values) {
        marks->is_unread = true;
        snprintf(value, sizeof value, "%llu/%llu smp", (unsigned long long)d->n_samples_differing,
                 (unsigned long long)d->n_samples);
    } else if (d->n_differing > 0) {
        /* Where nothing but NaN and infinities differs there is no largest difference. */
        bool has_size = d->n_nan_mismatch + d->n_nan_payload + d->n_inf_mismatch < d->n_differing;
        char number[ND_NUMBER_BYTES];
        if (d->is_integer)
            snprintf(size, CELL_BYTES, "±%s", nd_format_count(d->max_lsb, number));
        else if (d->has_steps)
            snprintf(size, CELL_BYTES, "±%s", nd_format_short(d->max_steps, number));
        else
            snprintf(size, CELL_BYTES, "%sulp", nd_format_count(d->max_ulp, number));
        snprintf(value, sizeof value, "%s%s%s", nd_format_share(d->n_differing, d->n_elems, share),
                 has_size ? " " : "", has_size ? size : "");
    }
    bool has_nan = d->n_nan_mismatch + d->n_nan_payload + d->numbers.n_ref_nan + d->numbers.n_test_nan > 0;
    bool has_inf = d->n_inf_mismatch > 0;
    bool is_failing = c->has_gates && pair->verdict == ND_VERDICT_DIFFERS;
    bool is_on_cpu = tensor->devices[test].is_on_cpu, is_unstable = tensor->devices[test].n_unstable > 0;
    nd_table_addf(table, "%s%s%s%s%s%s%s%s%s", is_part ? "(" : "", value, is_part ? ")" : "",
                  has_nan ? " NaN" : "", has_inf ? " Inf" : "", is_failing ? " !" : "", is_on_cpu ? " c" : "",
                  is_unstable ? " u" : "", pair->within_noise ? " ~" : "");
    marks->is_part = marks->is_part || is_part;
    marks->is_failing = marks->is_failing || is_failing;
    marks->is_on_cpu = marks->is_on_cpu || is_on_cpu;
    marks->is_unstable = marks->is_unstable || is_unstable;
    marks->is_within_noise = marks->is_within_noise || pair->within_noise;
    marks->has_nan = marks->has_nan || has_nan;
    marks->has_inf = marks->has_inf || has_inf;
}

/* No difference was seen on any device. What a failed device could not deliver is said about the device, once.
 */
static bool is_equal_everywhere(const struct nd_comparison *c, const struct nd_compared_tensor *tensor)
{
    for (size_t t = 1; t < c->n_devices; t++) {
        const struct nd_compared_part *total = &tensor->pairs[t - 1].total;
        bool has_failed =
            c->devices[t].status == ND_CAPTURE_FAILED || c->devices[0].status == ND_CAPTURE_FAILED;
        bool is_excused = has_failed && (total->coverage == ND_COVERAGE_PART || c->devices[t].class_id < 0);
        if (total->difference.n_samples_differing > 0 || total->difference.n_dequantised > 0 ||
            (total->coverage != ND_COVERAGE_FULL && !is_excused))
            return false;
    }
    return true;
}

/* A tensor is of interest when something is wrong with it, or was computed elsewhere than it should. */
static bool is_shown(const struct nd_text_report *report, const struct nd_compared_tensor *tensor)
{
    bool is_odd = !is_equal_everywhere(report->comparison, tensor);
    for (size_t i = 0; i < report->comparison->n_devices; i++)
        is_odd = is_odd || tensor->devices[i].is_on_cpu || tensor->devices[i].n_unstable > 0;
    return is_odd || report->all_tensors;
}

/* Failed devices without any data would only repeat "n/c": the header has said it. */
static bool has_column(const struct nd_comparison *c, size_t test)
{
    return c->devices[test].class_id >= 0;
}

static void fill_panel(const struct nd_text_report *report, const size_t *tests, size_t n_tests,
                       struct nd_table *table, struct marks *marks)
{
    const struct nd_comparison *c = report->comparison;
    *table = (struct nd_table){.n_columns = FIXED_COLUMNS + n_tests, .is_left = {true, true, true, true}};
    table->max_width[1] = OP_MAX;
    nd_table_add(table, "tensor");
    nd_table_add(table, "op");
    nd_table_add(table, "type");
    nd_table_add(table, "classes");
    for (size_t i = 0; i < n_tests; i++) {
        table->max_width[FIXED_COLUMNS + i] = CELL_MAX;
        nd_table_add(table, c->devices[tests[i]].label);
    }
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &c->tensors[e];
        if (!is_shown(report, tensor))
            continue;
        nd_table_add(table, tensor->name);
        nd_table_add(table, tensor->op_types);
        nd_table_add(table, nd_dtype_name(tensor->dtype));
        ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
        for (size_t i = 0; i < c->n_devices; i++) {
            nd_strbuf_puts(&text, i > 0 ? " " : "");
            if (tensor->devices[i].class_id < 0)
                nd_strbuf_puts(&text, "-");
            else
                nd_strbuf_printf(&text, "%d", tensor->devices[i].class_id);
        }
        nd_table_add(table, text.text != NULL ? text.text : "");
        table->failed = table->failed || text.failed;
        for (size_t i = 0; i < n_tests; i++)
            add_cell(table, c, tensor, tests[i], marks);
    }
}

/* The width left for names: what the other columns leave of the line. */
static size_t name_width(const struct nd_text_report *report, const struct nd_table *table)
{
    size_t used = 2;
    for (size_t i = 1; i < table->n_columns; i++)
        used += 2 + nd_table_width(table, i);
    return used < report->width ? report->width - used : 0;
}

/* Writes tests[0..] as far as the line holds them; returns how many. One device always fits, cut if need be. */
static size_t put_panel(const struct nd_text_report *report, const size_t *tests, size_t n_tests, bool is_first,
                        struct marks *marks)
{
    ND_CLEANUP(nd_table_deinit) struct nd_table table = {0};
    size_t limit = ND_TABLE_MAX_COLUMNS - FIXED_COLUMNS, n = n_tests < limit ? n_tests : limit, width = 0;
    for (;; n--) {
        fill_panel(report, tests, n, &table, marks);
        width = name_width(report, &table);
        if (width >= NAME_MIN || n == 1)
            break;
        nd_table_deinit(&table);
    }
    if (width < NAME_MIN) {
        table.max_width[1] = NARROW_OP;
        table.max_width[2] = NARROW_TYPE;
        table.max_width[3] = NARROW_CLASSES;
        table.max_width[FIXED_COLUMNS] = NARROW_CELL;
        width = name_width(report, &table);
    }
    table.max_width[0] = width < NARROW_NAME ? NARROW_NAME : width > NAME_MAX ? NAME_MAX : width;
    if (!is_first)
        nd_strbuf_puts(report->out, "\n");
    nd_table_render(&table, report->out);
    return n;
}

static void put_panels(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct marks marks = {0};
    size_t tests[ND_TABLE_MAX_COLUMNS], n = 0;
    bool is_first = true;
    for (size_t t = 1; t < c->n_devices || n > 0;) {
        while (t < c->n_devices && n < ND_TABLE_MAX_COLUMNS - FIXED_COLUMNS) {
            if (has_column(c, t))
                tests[n++] = t;
            t++;
        }
        if (n == 0)
            break;
        size_t n_put = put_panel(report, tests, n, is_first, &marks);
        for (size_t i = n_put; i < n; i++)
            tests[i - n_put] = tests[i];
        n -= n_put;
        is_first = false;
    }
    struct {
        bool is_used;
        const char *text;
    } lines[] = {
        {marks.is_part, "(...) only some samples or probes could be compared"},
        {marks.is_none, "n/c   not comparable: the reasons are below"},
        {marks.is_label, "label the same bytes under different labels, of which one is wrong: see below"},
        {marks.is_unread, "smp   samples whose digests differ; no values are stored"},
        {marks.is_failing, "!     fails its gate"},
        {marks.has_nan, "NaN   not a number in places: see above"},
        {marks.has_inf, "Inf   an infinity on one side only"},
        {marks.is_on_cpu, "c     computed by the CPU provider, not by the NPU"},
        {marks.is_unstable, "u     repeats of one sample differ on this device"},
        {marks.is_within_noise, "~     may be noise: repeats of a device differ as much, or too few were made"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (lines[i].is_used)
            nd_strbuf_printf(report->out, "  %s\n", lines[i].text);
}

/* Codes against floats that stand for them: by how much rounding moved the floats. */
static void put_dequantised(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n = 0;
    double most = 0;
    char number[ND_NUMBER_BYTES];
    for (size_t e = 0; e < c->n_tensors; e++) {
        bool is_equal = false;
        for (size_t t = 1; t < c->n_devices; t++) {
            const struct nd_difference *d = &c->tensors[e].pairs[t - 1].total.difference;
            if (d->n_dequantised == 0)
                continue;
            is_equal = d->n_samples_differing == 0;
            most = d->dequantised_steps > most ? d->dequantised_steps : most;
        }
        n += is_equal;
    }
    if (n > 0)
        nd_strbuf_printf(report->out,
                         "quantised values against floats: %zu tensor%s equal after dequantisation (rounding "
                         "moves a float by %s LSB at most)\n",
                         n, n == 1 ? " is" : "s are", nd_format_short(most, number));
}

void nd_text_tensors(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n_shown = 0, n_equal = 0, n_columns = 0;
    bool has_failed = false;
    for (size_t e = 0; e < c->n_tensors; e++) {
        n_shown += is_shown(report, &c->tensors[e]);
        n_equal += is_equal_everywhere(c, &c->tensors[e]);
    }
    for (size_t i = 0; i < c->n_devices; i++) {
        has_failed = has_failed || c->devices[i].status == ND_CAPTURE_FAILED;
        n_columns += i > 0 && has_column(c, i);
    }
    if (c->n_tensors == 0 || n_columns == 0)
        return;
    nd_strbuf_printf(report->out, "\ntensors: %zu of %zu are bit-equal on every device", n_equal, c->n_tensors);
    if (has_failed)
        nd_text_put_wrapped(report, " (failed ones by the samples they have)", 2);
    nd_strbuf_puts(report->out, "\n");
    if (n_shown > 0) {
        nd_strbuf_puts(report->out, "share of differing elements, and the largest difference:\n");
        put_panels(report);
    }
    put_dequantised(report);
}

/* ---- the worst channels of each pair that differs. docs/reference/metrics.md#per-channel ---- */

/* Channels of a table, unless all are asked for. */
enum { MAX_CHANNELS = 16 };

struct ranked {
    const struct nd_difference *difference;
    size_t channel;
};

/* Worst first: by share, then by the largest error. */
static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->difference->share != y->difference->share)
        return x->difference->share > y->difference->share ? -1 : 1;
    if (x->difference->abs.max != y->difference->abs.max)
        return x->difference->abs.max > y->difference->abs.max ? -1 : 1;
    return x->channel < y->channel ? -1 : 1;
}

/* The channels that differ; returns how many. */
static size_t rank_channels(const struct nd_compared_pair *pair, struct ranked *ranked)
{
    size_t n = 0;
    for (size_t i = 0; i < pair->n_channels; i++)
        if (pair->channels[i].has_values && pair->channels[i].n_differing > 0)
            ranked[n++] = (struct ranked){&pair->channels[i], i};
    qsort(ranked, n, sizeof *ranked, compare_ranked);
    return n;
}

static void add_channel(struct nd_table *table, const struct nd_difference *d, size_t channel)
{
    char text[ND_NUMBER_BYTES];
    nd_text_add_count(table, channel);
    nd_text_add_count(table, d->n_differing);
    nd_table_add(table, nd_format_share(d->n_differing, d->n_elems, text));
    if (d->is_integer)
        nd_table_addf(table, "±%s", nd_format_count(d->max_lsb, text));
    else if (d->has_steps)
        nd_table_addf(table, "±%s", nd_format_short(d->max_steps, text));
    else
        nd_table_addf(table, "%sulp", nd_format_count(d->max_ulp, text));
    nd_text_add_short_if(table, d->has_errors, d->abs.max);
    nd_text_add_short_if(table, d->has_errors, d->abs.mean);
    nd_text_add_short_if(table, d->has_signal, d->sqnr_db);
    char number[ND_NUMBER_BYTES];
    nd_table_add(table, d->has_signal ? nd_format_near_one(d->cosine, number) : "-");
}

static void put_pair(const struct nd_text_report *report, const struct nd_compared_tensor *tensor,
                     const struct nd_compared_pair *pair)
{
    static const char *const titles[] = {"channel",  "differing", "share",   "largest",
                                         "max real", "mean real", "SQNR dB", "cosine"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 8};
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf title = {0};
    ND_FREED struct ranked *ranked = nd_calloc(pair->n_channels, sizeof *ranked);
    if (ranked == NULL) {
        report->out->failed = true;
        return;
    }
    size_t n = rank_channels(pair, ranked),
           n_shown = report->all_tensors || n < MAX_CHANNELS ? n : MAX_CHANNELS;
    nd_text_add_titles(&table, titles);
    for (size_t i = 0; i < n_shown; i++)
        add_channel(&table, ranked[i].difference, ranked[i].channel);
    nd_strbuf_printf(&title, "\nchannels (axis %d) of %s, %s against %s: %zu of %zu differ", c->channel_axis,
                     tensor->name, c->devices[pair->test].label, c->devices[pair->ref].label, n,
                     pair->n_channels);
    if (n_shown < n)
        nd_strbuf_printf(&title, ", the worst %zu", n_shown);
    nd_strbuf_puts(&title, ":");
    report->out->failed = report->out->failed || title.failed;
    nd_text_put_table(report, &table, table.n_columns, 1, title.text != NULL ? title.text : "");
}

void nd_text_channels(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t e = 0; e < c->n_tensors && c->per_channel; e++)
        for (size_t i = 0; i < c->n_pairs; i++)
            if (c->tensors[e].pairs[i].n_channels > 0)
                put_pair(report, &c->tensors[e], &c->tensors[e].pairs[i]);
}

/* ---- every device against every other, by one metric. docs/reference/metrics.md ---- */

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
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0};
    for (size_t i = 0; i < nd_n_measures(); i++)
        if (nd_measure(i)->option != NULL)
            nd_strbuf_printf(&names, "%s%s", names.len > 0 ? ", " : "", nd_measure(i)->option);
    return names.failed
               ? nd_fail_memory(err)
               : nd_fail(err, ND_E_OPTION_VALUE, text,
                         "a matrix is METRIC or METRIC:NAME, METRIC one of %s; not '%s'", names.text, text);
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
static bool add_matrix_cell(struct nd_table *table, const struct nd_comparison *c,
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
                is_marked = add_matrix_cell(&table, c, tensor, matrix, row, from + i) || is_marked;
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
