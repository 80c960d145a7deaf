#include <math.h>

#include "cli/latency_report.h"
#include "cli/rows.h"

static json_t *real(double value)
{
    return isnan(value) ? json_string("NaN") : isinf(value) ? json_string("Infinity") : json_real(value);
}

static json_t *modes(const struct nd_latency *l)
{
    json_t *list = json_array();
    for (size_t i = 0; l->is_bimodal && i < 2; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:I}", "median_us", real(l->modes[i].median_us), "weight",
                                        real(l->modes[i].weight), "runs", (json_int_t)l->modes[i].n));
    return list;
}

static json_t *changes(const struct nd_latency *l)
{
    json_t *list = json_array();
    for (size_t i = 0; i < l->n_changes; i++)
        json_array_append_new(list, json_pack("{s:I, s:o, s:o, s:o}", "run", (json_int_t)l->changes[i].run,
                                              "before_us", real(l->changes[i].before_us), "after_us",
                                              real(l->changes[i].after_us), "p", real(l->changes[i].p)));
    return list;
}

static json_t *join(const struct latency_entry *entry)
{
    static const char *const states[] = {"not asked", "no repeats", "no slow runs", "known"};
    static const char *const slow[] = {"none", "mode", "regime", "tail"};
    const struct nd_latency *l = &entry->latency;
    const struct nd_latency_join *j = &l->join;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:o}", "state", states[j->state], "slow_by",
                     slow[l->slow], "slow", (json_int_t)j->n_slow, "slow_other", (json_int_t)j->n_slow_other,
                     "fast", (json_int_t)j->n_fast, "fast_other", (json_int_t)j->n_fast_other, "p", real(j->p),
                     "edges", (json_int_t)j->n_edges, "edges_tied", (json_int_t)j->n_tied, "first_tied",
                     entry->first_tied != NULL ? cli_text(entry->first_tied) : json_null());
}

static json_t *evidence(const struct nd_latency *l)
{
    return json_pack("{s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "is_bimodal", l->is_bimodal,
                     "is_mixture", l->is_mixture, "is_dip", l->is_dip, "delta_bic", real(l->delta_bic),
                     "ashman_d", real(l->ashman_d), "minor_weight", real(l->minor_weight), "dip", real(l->dip),
                     "dip_limit", real(l->dip_limit), "tail_runs", (json_int_t)l->n_tail, "thinned_by",
                     (json_int_t)l->n_thin);
}

static json_t *summary(const struct nd_latency *l)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:[o, o], s:o, s:o, s:o}", "mean_us",
                     real(l->mean_us), "median_us", real(l->median_us), "min_us", real(l->min_us), "max_us",
                     real(l->max_us), "mad_us", real(l->mad_us), "p50_us", real(l->p50_us), "p90_us",
                     real(l->p90_us), "p99_us", real(l->p99_us), "cv", real(l->cv), "cv_interval",
                     real(l->cv_low), real(l->cv_high), "autocorrelation", real(l->autocorrelation),
                     "level_autocorrelation", real(l->level_autocorrelation), "tick_us", real(l->tick_us));
}

json_t *latency_json(const struct latency_entry *entry)
{
    const struct nd_latency *l = &entry->latency;
    json_t *probe = entry->probe != NULL ? cli_text(entry->probe) : json_null();
    return json_pack("{s:o, s:o, s:s, s:s, s:b, s:I, s:I, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "file",
                     cli_text(entry->file), "probe", probe, "format", entry->format, "verdict",
                     nd_latency_verdict_name(l->verdict), "is_suspect", l->is_suspect, "runs", (json_int_t)l->n,
                     "not_recorded", (json_int_t)l->n_not_recorded, "first_us", real(l->first_us),
                     "warm_up_runs", (json_int_t)l->n_warm_up, "warm_up_median_us", real(l->warm_up_median_us),
                     "timed_runs", (json_int_t)l->n_timed, "timed", summary(l), "evidence", evidence(l),
                     "modes", modes(l), "changes", changes(l), "join", join(entry));
}

json_t *latency_rule_json(const struct nd_latency_options *options)
{
    json_t *rates = json_array();
    /* They were measured with the rule's own limit. */
    struct nd_latency_options defaults;
    nd_latency_options_init(&defaults);
    bool is_measured =
        !(options->suspect_cv < defaults.suspect_cv) && !(options->suspect_cv > defaults.suspect_cv);
    for (const struct nd_latency_rate *rate = nd_latency_rule_rates(); is_measured && rate->series != NULL;
         rate++)
        json_array_append_new(rates, json_pack("{s:s, s:I, s:o}", "series", rate->series, "runs",
                                               (json_int_t)rate->n_runs, "rate", real(rate->false_alarms)));
    return json_pack("{s:o, s:o, s:I, s:o}", "healthy_cv", real(options->healthy_cv), "suspect_cv",
                     real(options->suspect_cv), "min_runs", (json_int_t)options->min_runs, "false_alarms",
                     rates);
}
