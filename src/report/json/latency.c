
#include "core/documents/json_out.h"
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

/* null where they were not given. */
static void add_runs(json_t *row, const struct nd_latency_series *entry)
{
    size_t every = entry->n_us > MAX_RUNS ? (entry->n_us + MAX_RUNS - 1) / MAX_RUNS : 1;
    json_t *list = entry->us != NULL ? json_array() : json_null();
    for (size_t i = 0; entry->us != NULL && i < entry->n_us; i += every)
        nd_tree_append(list, nd_json_known(entry->us[i]));
    nd_tree_set(row, "runs_us", list);
    nd_tree_set(row, "runs_us_every", json_integer((json_int_t)every));
}

static json_t *series_json(const struct nd_latency_series *entry)
{
    const struct nd_latency *l = &entry->latency;
    json_t *probe = entry->probe != NULL ? nd_json_string(entry->probe) : json_null();
    json_t *row = json_pack("{s:o, s:o, s:s, s:s, s:b, s:I, s:I, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o}",
                            "file", nd_json_string(entry->file), "probe", probe, "format", entry->format,
                            "verdict", nd_latency_verdict_name(l->verdict), "is_suspect", l->is_suspect, "runs",
                            (json_int_t)l->n, "not_recorded", (json_int_t)l->n_not_recorded, "first_us",
                            nd_json_known(l->first_us), "warm_up_runs", (json_int_t)l->n_warm_up,
                            "warm_up_median_us", nd_json_known(l->warm_up_median_us), "timed_runs",
                            (json_int_t)l->n_timed, "timed", summary(l), "evidence", evidence(l), "modes",
                            modes(l), "changes", changes(l), "join", join(entry));
    if (row != NULL)
        add_runs(row, entry);
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
