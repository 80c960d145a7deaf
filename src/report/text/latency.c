/* Series of latencies as JSON (docs/reference/json.md) and as text. docs/science/latency.md. */
#include <math.h>
#include <stdint.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

static json_t *modes(const struct nd_latency *l)
{
    json_t *list = json_array();
    for (size_t i = 0; l->is_bimodal && i < 2; i++)
        nd_tree_append(list,
                       json_pack("{s:o, s:o, s:I}", "median_us", nd_json_known(l->modes[i].median_us), "weight",
                                 nd_json_known(l->modes[i].weight), "runs", (json_int_t)l->modes[i].n));
    return list;
}

static json_t *changes(const struct nd_latency *l)
{
    json_t *list = json_array();
    for (size_t i = 0; i < l->n_changes; i++)
        nd_tree_append(list,
                       json_pack("{s:I, s:o, s:o, s:o}", "run", (json_int_t)l->changes[i].run, "before_us",
                                 nd_json_known(l->changes[i].before_us), "after_us",
                                 nd_json_known(l->changes[i].after_us), "p", nd_json_known(l->changes[i].p)));
    return list;
}

static json_t *join(const struct nd_latency_series *entry)
{
    static const char *const states[] = {"not asked", "no repeats", "no slow runs", "known"};
    static const char *const slow[] = {"none", "mode", "regime", "tail"};
    const struct nd_latency *l = &entry->latency;
    const struct nd_latency_join *j = &l->join;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:o}", "state", states[j->state], "slow_by",
                     slow[l->slow], "slow", (json_int_t)j->n_slow, "slow_other", (json_int_t)j->n_slow_other,
                     "fast", (json_int_t)j->n_fast, "fast_other", (json_int_t)j->n_fast_other, "p",
                     nd_json_known(j->p), "tensors", (json_int_t)j->n_tensors, "tensors_tied",
                     (json_int_t)j->n_tied, "first_tied",
                     entry->first_tied != NULL ? nd_json_string(entry->first_tied) : json_null());
}

static json_t *evidence(const struct nd_latency *l)
{
    return json_pack("{s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "is_bimodal", l->is_bimodal,
                     "is_mixture", l->is_mixture, "is_dip", l->is_dip, "delta_bic", nd_json_known(l->delta_bic),
                     "ashman_d", nd_json_known(l->ashman_d), "minor_weight", nd_json_known(l->minor_weight),
                     "dip", nd_json_known(l->dip), "dip_limit", nd_json_known(l->dip_limit), "tail_runs",
                     (json_int_t)l->n_tail, "thinned_by", (json_int_t)l->n_thin);
}

static json_t *summary(const struct nd_latency *l)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:[o, o], s:o, s:o, s:o}", "mean_us",
                     nd_json_known(l->mean_us), "median_us", nd_json_known(l->median_us), "min_us",
                     nd_json_known(l->min_us), "max_us", nd_json_known(l->max_us), "mad_us",
                     nd_json_known(l->mad_us), "p50_us", nd_json_known(l->p50_us), "p90_us",
                     nd_json_known(l->p90_us), "p99_us", nd_json_known(l->p99_us), "cv", nd_json_known(l->cv),
                     "cv_interval", nd_json_known(l->cv_low), nd_json_known(l->cv_high), "autocorrelation",
                     nd_json_known(l->autocorrelation), "level_autocorrelation",
                     nd_json_known(l->level_autocorrelation), "tick_us", nd_json_known(l->tick_us));
}

enum { MAX_RUNS = 2000 }; /* in the JSON: of more, every n-th. Chosen: more than a screen has columns */

static json_t *series_json(const struct nd_latency_series *entry)
{
    const struct nd_latency *l = &entry->latency;
    json_t *probe = entry->probe != NULL ? nd_json_string(entry->probe) : json_null();
    json_t *row = json_pack(
        "{s:o, s:o, s:s, s:s?, s:s, s:b, s:I, s:I, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "file",
        nd_json_string(entry->file), "probe", probe, "format", entry->format, "where", entry->where, "verdict",
        nd_latency_verdict_name(l->verdict), "is_suspect", l->is_suspect, "runs", (json_int_t)l->n,
        "not_recorded", (json_int_t)l->n_not_recorded, "first_us", nd_json_known(l->first_us), "warm_up_runs",
        (json_int_t)l->n_warm_up, "warm_up_median_us", nd_json_known(l->warm_up_median_us), "timed_runs",
        (json_int_t)l->n_timed, "timed", summary(l), "evidence", evidence(l), "modes", modes(l), "changes",
        changes(l), "join", join(entry));
    if (row != NULL) {
        /* null where they were not given. */
        size_t every = entry->n_us > MAX_RUNS ? (entry->n_us + MAX_RUNS - 1) / MAX_RUNS : 1;
        json_t *list = entry->us != NULL ? json_array() : json_null();
        for (size_t i = 0; entry->us != NULL && i < entry->n_us; i += every)
            nd_tree_append(list, nd_json_known(entry->us[i]));
        nd_tree_set(row, "runs_us", list);
        nd_tree_set(row, "runs_us_every", json_integer((json_int_t)every));
    }
    return row;
}

static json_t *rule_json(const struct nd_latency_options *options)
{
    json_t *rates = json_array();
    /* They were measured with the rule's own limit. */
    struct nd_latency_options defaults;
    nd_latency_options_init(&defaults);
    bool is_measured =
        !(options->suspect_cv < defaults.suspect_cv) && !(options->suspect_cv > defaults.suspect_cv);
    for (const struct nd_latency_rate *rate = nd_latency_rule_rates(); is_measured && rate->series != NULL;
         rate++)
        nd_tree_append(rates, json_pack("{s:s, s:I, s:o}", "series", rate->series, "runs",
                                        (json_int_t)rate->n_runs, "rate", nd_json_known(rate->false_alarms)));
    return json_pack("{s:o, s:o, s:I, s:o}", "healthy_cv", nd_json_known(options->healthy_cv), "suspect_cv",
                     nd_json_known(options->suspect_cv), "min_runs", (json_int_t)options->min_runs,
                     "false_alarms", rates);
}

enum nd_status nd_report_latency_json(const struct nd_latency_series *series, size_t n,
                                      const struct nd_latency_options *options, char **out,
                                      struct nd_error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        nd_tree_append(list, series_json(&series[i]));
    return nd_tree_end(ND_DOCUMENT_LATENCY, json_pack("{s:o, s:o}", "series", list, "rule", rule_json(options)),
                       out, err);
}

static void put_runs(struct nd_strbuf *out, const struct nd_latency *l)
{
    nd_strbuf_printf(out, "  %zu run%s", l->n, l->n == 1 ? "" : "s");
    if (l->n_not_recorded > 0)
        nd_strbuf_printf(out, ", %zu without a time", l->n_not_recorded);
    if (l->n_not_recorded == l->n) {
        nd_strbuf_puts(out, ": no latency was recorded (a capture made with SOURCE_DATE_EPOCH set has none)\n");
        return;
    }
    nd_strbuf_printf(out, "; the first took %.5g us; warm-up of %zu", l->first_us, l->n_warm_up);
    if (l->n_warm_up > 1)
        nd_strbuf_printf(out, ", median %.5g us", l->warm_up_median_us);
    nd_strbuf_printf(out, "; %zu timed\n", l->n_timed);
}

static void put_summary(struct nd_strbuf *out, const struct nd_latency *l,
                        const struct nd_latency_options *options)
{
    nd_strbuf_printf(out, "  median %.5g us, MAD %.4g us (%.2g %%), mean %.5g us\n", l->median_us, l->mad_us,
                     100 * l->mad_us / l->median_us, l->mean_us);
    nd_strbuf_printf(out, "  p50 %.5g, p90 %.5g, p99 %.5g us; from %.5g to %.5g us\n", l->p50_us, l->p90_us,
                     l->p99_us, l->min_us, l->max_us);
    if (isnan(l->cv))
        return;
    nd_strbuf_printf(out, "  CV %.3g %%, 95 %% interval %.3g to %.3g %%: %s\n", 100 * l->cv, 100 * l->cv_low,
                     100 * l->cv_high,
                     l->cv_high > options->suspect_cv   ? "may be above what a healthy device has"
                     : l->cv_high > options->healthy_cv ? "more than usual, but no sign of a fallback"
                                                        : "within what is healthy");
    if (l->autocorrelation > 0.3)
        nd_strbuf_printf(out, "  runs resemble the one before: autocorrelation %.2f, within levels %.2f\n",
                         l->autocorrelation, l->level_autocorrelation);
    if (l->tick_us > 0)
        nd_strbuf_printf(out, "  the timer ticks every %.4g us\n", l->tick_us);
}

static void put_changes(struct nd_strbuf *out, const struct nd_latency *l, size_t most)
{
    for (size_t i = 0; i < l->n_changes && i < most; i++) {
        const struct nd_latency_change *c = &l->changes[i];
        nd_strbuf_printf(out, "  the level changes at run %zu: from %.5g to %.5g us (%+.3g %%, p %s%.2g)\n",
                         c->run, c->before_us, c->after_us, 100 * (c->after_us / c->before_us - 1),
                         c->p > 0 ? "" : "below ", c->p > 0 ? c->p : 1e-300);
    }
    if (l->n_changes > most)
        nd_strbuf_printf(out, "  and %zu more changes (-v shows them)\n", l->n_changes - most);
    else if (l->n_changes == ND_LATENCY_MAX_CHANGES)
        nd_strbuf_puts(out, "  more changes are not listed\n");
}

static void put_join(struct nd_strbuf *out, const struct nd_latency_series *entry)
{
    static const char *const kinds[] = {"", "slow", "slow (by level)", "slow (in the tail)"};
    const struct nd_latency *l = &entry->latency;
    const struct nd_latency_join *j = &l->join;
    if (j->state == ND_JOIN_NO_REPEATS)
        nd_strbuf_puts(out, "  whether slow runs give other bits is not known: no sample was run twice\n");
    if (j->state != ND_JOIN_KNOWN)
        return;
    bool is_tied = j->p < 0.01;
    nd_strbuf_printf(out, "  %s: %zu of %zu %s, %zu of %zu fast (p %.2g)\n",
                     is_tied                                 ? "slow runs give other bits"
                     : j->n_slow_other + j->n_fast_other > 0 ? "other bits are not tied to slow runs"
                                                             : "slow runs give the same bits",
                     j->n_slow_other, j->n_slow, kinds[l->slow], j->n_fast_other, j->n_fast, j->p);
    if (entry->first_tied != NULL)
        nd_strbuf_printf(out, "  tied at %zu of %zu tensors, from '%s' on\n", j->n_tied, j->n_tensors,
                         entry->first_tied);
}

static void put_series(struct nd_strbuf *out, const struct nd_latency_series *entry,
                       const struct nd_latency_options *options)
{
    const struct nd_latency *l = &entry->latency;
    nd_strbuf_printf(out, "%s", entry->file);
    if (entry->probe != NULL)
        nd_strbuf_printf(out, ", probe '%s'", entry->probe);
    nd_strbuf_printf(out, ": %s\n", nd_latency_verdict_name(l->verdict));
    if (entry->where != NULL)
        nd_strbuf_printf(out, "  %s\n", entry->where);
    put_runs(out, l);
    if (l->n_timed > 0)
        put_summary(out, l, options);
    if (l->is_bimodal)
        nd_strbuf_printf(out, "  two modes: %.3g %% of the runs around %.5g us, %.3g %% around %.5g us\n",
                         100 * l->modes[0].weight, l->modes[0].median_us, 100 * l->modes[1].weight,
                         l->modes[1].median_us);
    if (l->n_tail > 0)
        nd_strbuf_printf(out, "  %zu run%s far from the rest (a tail, not a mode)\n", l->n_tail,
                         l->n_tail == 1 ? "" : "s");
    if (!isnan(l->delta_bic))
        nd_strbuf_printf(out,
                         "  for two kinds of run: BIC %+.4g (10), Ashman's D %.3g (2), smaller part %.2g %% "
                         "(5); dip %.3g (%.3g)\n",
                         l->delta_bic, l->ashman_d, 100 * l->minor_weight, l->dip, l->dip_limit);
    if (l->n_thin > 1)
        nd_strbuf_printf(out,
                         "  for that only one run in %zu was looked at, since runs resemble the one before\n",
                         l->n_thin);
    put_changes(out, l, SIZE_MAX);
    put_join(out, entry);
    if (l->verdict == ND_LATENCY_TOO_FEW)
        nd_strbuf_printf(out, "  no verdict: a verdict needs %zu runs, of which at most a tenth are warm-up\n",
                         options->min_runs);
    else if (l->n - l->n_not_recorded < options->min_runs)
        nd_strbuf_printf(out, "  %zu runs are few; the evidence is overwhelming\n", l->n - l->n_not_recorded);
}

static void put_rule(struct nd_strbuf *out, const struct nd_latency_options *options, size_t n_runs)
{
    const struct nd_latency_rate *rates = nd_latency_rule_rates();
    size_t n_like = 0;
    struct nd_latency_options defaults;
    nd_latency_options_init(&defaults);
    nd_strbuf_printf(
        out,
        "rule: a CV up to %.3g %% is healthy; not steady where the interval's upper end is above %.3g %%\n",
        100 * options->healthy_cv, 100 * options->suspect_cv);
    if (options->suspect_cv < defaults.suspect_cv || options->suspect_cv > defaults.suspect_cv) {
        nd_strbuf_printf(out, "  its false alarms were measured for %.3g %% only\n", 100 * defaults.suspect_cv);
        return;
    }
    for (const struct nd_latency_rate *rate = rates; rate->series != NULL; rate++)
        if (rate->n_runs >= n_like && (rate->n_runs <= n_runs || n_like == 0))
            n_like = rate->n_runs <= n_runs ? rate->n_runs : rates[0].n_runs;
    nd_strbuf_printf(out, "  false alarms among healthy series of %zu runs (simulated):", n_like);
    const char *comma = "";
    for (const struct nd_latency_rate *rate = rates; rate->series != NULL; rate++)
        if (rate->n_runs == n_like) {
            nd_strbuf_printf(out, "%s %s: %.3g %%", comma, rate->series, 100 * rate->false_alarms);
            comma = ";";
        }
    nd_strbuf_puts(out, "\n");
}

/* A number with its unit, or a dash. */
static json_t *number(double value, int digits, const char *unit)
{
    return isnan(value) ? json_string("-") : json_sprintf("%.*g %s", digits, value, unit);
}

enum nd_status nd_report_latency_text(const struct nd_latency_series *series, size_t n,
                                      const struct nd_latency_options *options, char **out,
                                      struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    size_t n_min = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        put_series(&buf, &series[i], options);
        n_min = series[i].latency.n_timed < n_min ? series[i].latency.n_timed : n_min;
    }
    if (n > 1) {
        static const struct nd_report_column columns[] = {
            {"file", "FILE"}, {"probe", "PROBE"}, {"timed", "TIMED"},     {"median", "MEDIAN"}, {"p99", "P99"},
            {"cv", "CV"},     {"modes", "MODES"}, {"verdict", "VERDICT"}, {NULL, NULL}};
        json_auto_t *rows = json_array();
        for (size_t i = 0; i < n; i++) {
            const struct nd_latency_series *e = &series[i];
            const struct nd_latency *l = &e->latency;
            nd_tree_append(
                rows, json_pack("{s:o, s:o, s:I, s:o, s:o, s:o, s:i, s:s}", "file", nd_json_string(e->file),
                                "probe", nd_json_string(e->probe != NULL ? e->probe : "-"), "timed",
                                (json_int_t)l->n_timed, "median", number(l->median_us, 5, "us"), "p99",
                                number(l->p99_us, 5, "us"), "cv", number(100 * l->cv, 3, "%"), "modes",
                                l->is_bimodal ? 2 : 1, "verdict", nd_latency_verdict_name(l->verdict)));
        }
        nd_rows_put(&buf, rows, columns);
    }
    put_rule(&buf, options, n_min);
    return nd_text_end(&buf, out, err);
}

/* ---- the answer ---- */

static size_t count_verdict(const struct nd_latency_series *series, size_t n, enum nd_latency_verdict verdict)
{
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++)
        n_found += series[i].latency.verdict == verdict;
    return n_found;
}

static void put_headline(struct nd_strbuf *out, const struct nd_latency_series *series, size_t n, size_t width)
{
    size_t n_healthy = count_verdict(series, n, ND_LATENCY_UNIMODAL);
    size_t n_few = count_verdict(series, n, ND_LATENCY_TOO_FEW), n_odd = n - n_healthy - n_few;
    if (n_odd > 0)
        nd_summary_put(out, width, 0, 2,
                       "UNSTEADY: %zu of %zu series may be those of a device that falls back or slows down",
                       n_odd, n);
    else if (n_few > 0)
        nd_summary_put(out, width, 0, 2, "TOO FEW runs for a verdict in %zu of %zu series", n_few, n);
    else
        nd_summary_put(out, width, 0, 2, "OK: the latencies of all %zu series are of one kind and steady", n);
}

static void put_oddities(struct nd_strbuf *out, const struct nd_latency_series *series,
                         const struct nd_latency_options *options)
{
    const struct nd_latency *l = &series->latency;
    nd_strbuf_printf(out, "%s%s%s: %s\n", series->file, series->probe != NULL ? ", probe " : "",
                     series->probe != NULL ? series->probe : "", nd_latency_verdict_name(l->verdict));
    if (l->n == l->n_not_recorded)
        put_runs(out, l);
    if (l->is_bimodal)
        nd_strbuf_printf(out, "  %.3g %% of the runs take about %.5g us, %.3g %% about %.5g us\n",
                         100 * l->modes[0].weight, l->modes[0].median_us, 100 * l->modes[1].weight,
                         l->modes[1].median_us);
    put_changes(out, l, 1);
    put_join(out, series);
    if (l->verdict == ND_LATENCY_TOO_FEW)
        nd_strbuf_printf(out, "  a verdict needs %zu runs, of which at most a tenth are warm-up\n",
                         options->min_runs);
}

static void add_time(struct nd_table *table, double us)
{
    if (isnan(us))
        nd_table_add(table, "-");
    else if (us >= 1000)
        nd_table_addf(table, "%.4g ms", us / 1000);
    else
        nd_table_addf(table, "%.4g us", us);
}

static void put_answer_table(struct nd_strbuf *out, const struct nd_latency_series *series, size_t n,
                             size_t width)
{
    enum { MAX_ROWS = 10 };
    static const char *const titles[] = {"file", "runs", "median", "99 %", "varies", "verdict"};
    ND_CLEANUP(nd_table_deinit)
    struct nd_table table = {.n_columns = 6, .is_left = {true, [5] = true}, .line_width = width};
    table.max_width[0] = width > 56 ? width - 54 : 12;
    for (size_t i = 0; i < table.n_columns; i++)
        nd_table_add(&table, titles[i]);
    for (size_t i = 0; i < n && i < MAX_ROWS; i++) {
        const struct nd_latency *l = &series[i].latency;
        nd_table_addf(&table, "%s%s%s", series[i].file, series[i].probe != NULL ? " " : "",
                      series[i].probe != NULL ? series[i].probe : "");
        nd_table_addf(&table, "%zu", l->n_timed);
        add_time(&table, l->median_us);
        add_time(&table, l->p99_us);
        if (isnan(l->cv))
            nd_table_add(&table, "-");
        else
            nd_table_addf(&table, "%.3g %%", 100 * l->cv);
        nd_table_add(&table, nd_latency_verdict_name(l->verdict));
    }
    nd_table_render(&table, out);
    if (n > MAX_ROWS)
        nd_strbuf_printf(out, "  and %zu more (-v shows them)\n", n - MAX_ROWS);
    for (size_t i = 0; i < n && i < MAX_ROWS; i++)
        if (series[i].where != NULL)
            nd_summary_put(out, width, 0, 2, "%s: %s", series[i].file, series[i].where);
}

enum nd_status nd_report_latency_brief(const struct nd_latency_series *series, size_t n,
                                       const struct nd_latency_options *options, size_t width, char **out,
                                       struct nd_error *err)
{
    enum { MAX_ODD = 2 };
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf odd = {0};
    struct nd_strbuf buf = {0};
    size_t n_odd = 0;
    width = nd_summary_width(width);
    put_headline(&buf, series, n, width);
    nd_strbuf_puts(&buf, "\n");
    put_answer_table(&buf, series, n, width);
    for (size_t i = 0; i < n; i++)
        if (series[i].latency.verdict != ND_LATENCY_UNIMODAL && n_odd++ < MAX_ODD)
            put_oddities(&odd, &series[i], options);
    if (n_odd > MAX_ODD)
        nd_strbuf_printf(&odd, "and %zu more (-v shows them)\n", n_odd - MAX_ODD);
    if (n_odd > 0) {
        nd_strbuf_puts(&buf, "\n");
        nd_summary_put_lines(&buf, width, "%s", odd.text != NULL ? odd.text : "");
    }
    buf.failed = buf.failed || odd.failed;
    return nd_text_end(&buf, out, err);
}
