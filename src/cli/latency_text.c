#include <math.h>
#include <stdio.h>

#include "cli/latency_report.h"

static void print_runs(const struct nd_latency *l)
{
    printf("  %zu run%s", l->n, l->n == 1 ? "" : "s");
    if (l->n_not_recorded > 0)
        printf(", %zu without a time", l->n_not_recorded);
    if (l->n_not_recorded == l->n) {
        printf(": no latency was recorded (a capture made with SOURCE_DATE_EPOCH set has none)\n");
        return;
    }
    printf("; the first took %.5g us; warm-up of %zu", l->first_us, l->n_warm_up);
    if (l->n_warm_up > 1)
        printf(", median %.5g us", l->warm_up_median_us);
    printf("; %zu timed\n", l->n_timed);
}

static void print_summary(const struct nd_latency *l, const struct nd_latency_options *options)
{
    printf("  median %.5g us, MAD %.4g us (%.2g %%), mean %.5g us\n", l->median_us, l->mad_us,
           100 * l->mad_us / l->median_us, l->mean_us);
    printf("  p50 %.5g, p90 %.5g, p99 %.5g us; from %.5g to %.5g us\n", l->p50_us, l->p90_us, l->p99_us,
           l->min_us, l->max_us);
    if (isnan(l->cv))
        return;
    printf("  CV %.3g %%, 95 %% interval %.3g to %.3g %%: %s\n", 100 * l->cv, 100 * l->cv_low, 100 * l->cv_high,
           l->cv_high > options->suspect_cv   ? "may be above what a healthy device has"
           : l->cv_high > options->healthy_cv ? "more than usual, but no sign of a fallback"
                                              : "within what is healthy");
    if (l->autocorrelation > 0.3)
        printf("  runs resemble the one before: autocorrelation %.2f, within levels %.2f\n", l->autocorrelation,
               l->level_autocorrelation);
    if (l->tick_us > 0)
        printf("  the timer ticks every %.4g us\n", l->tick_us);
}

static void print_modes(const struct nd_latency *l)
{
    if (l->is_bimodal)
        printf("  two modes: %.3g %% of the runs around %.5g us, %.3g %% around %.5g us\n",
               100 * l->modes[0].weight, l->modes[0].median_us, 100 * l->modes[1].weight,
               l->modes[1].median_us);
    if (l->n_tail > 0)
        printf("  %zu run%s far from the rest (a tail, not a mode)\n", l->n_tail, l->n_tail == 1 ? "" : "s");
    if (!isnan(l->delta_bic))
        printf(
            "  for two kinds of run: BIC %+.4g (10), Ashman's D %.3g (2), smaller part %.2g %% (5); dip %.3g "
            "(%.3g)\n",
            l->delta_bic, l->ashman_d, 100 * l->minor_weight, l->dip, l->dip_limit);
    if (l->n_thin > 1)
        printf("  for that only one run in %zu was looked at, since runs resemble the one before\n", l->n_thin);
}

static void print_changes(const struct nd_latency *l)
{
    for (size_t i = 0; i < l->n_changes; i++) {
        const struct nd_latency_change *c = &l->changes[i];
        printf("  the level changes at run %zu: from %.5g to %.5g us (%+.3g %%, p %s%.2g)\n", c->run,
               c->before_us, c->after_us, 100 * (c->after_us / c->before_us - 1), c->p > 0 ? "" : "below ",
               c->p > 0 ? c->p : 1e-300);
    }
    if (l->n_changes == ND_LATENCY_MAX_CHANGES)
        printf("  more changes are not told\n");
}

static void print_join(const struct latency_entry *entry)
{
    static const char *const kinds[] = {"", "slow", "slow (by level)", "slow (in the tail)"};
    const struct nd_latency *l = &entry->latency;
    const struct nd_latency_join *j = &l->join;
    if (j->state == ND_JOIN_NO_REPEATS)
        printf("  whether slow runs give other bits is not known: no sample was run twice\n");
    if (j->state != ND_JOIN_KNOWN)
        return;
    bool is_tied = j->p < 0.01;
    printf("  %s: %zu of %zu %s, %zu of %zu fast (p %.2g)\n",
           is_tied                                 ? "slow runs give other bits"
           : j->n_slow_other + j->n_fast_other > 0 ? "other bits are not tied to slow runs"
                                                   : "slow runs give the same bits",
           j->n_slow_other, j->n_slow, kinds[l->slow], j->n_fast_other, j->n_fast, j->p);
    if (entry->first_tied != NULL)
        printf("  tied at %zu of %zu edges, from '%s' on\n", j->n_tied, j->n_edges, entry->first_tied);
}

void latency_print(const struct latency_entry *entry, const struct nd_latency_options *options)
{
    const struct nd_latency *l = &entry->latency;
    printf("%s", entry->file);
    if (entry->probe != NULL)
        printf(", probe '%s'", entry->probe);
    printf(": %s\n", nd_latency_verdict_name(l->verdict));
    print_runs(l);
    if (l->n_timed > 0)
        print_summary(l, options);
    print_modes(l);
    print_changes(l);
    print_join(entry);
    if (l->verdict == ND_LATENCY_TOO_FEW)
        printf("  no verdict: a verdict needs %zu runs, of which at most a tenth are warm-up\n", options->min_runs);
    else if (l->n - l->n_not_recorded < options->min_runs)
        printf("  %zu runs are few; the evidence is overwhelming\n", l->n - l->n_not_recorded);
}

void latency_print_rule(const struct nd_latency_options *options, size_t n_runs)
{
    const struct nd_latency_rate *rates = nd_latency_rule_rates();
    size_t n_like = 0;
    struct nd_latency_options defaults;
    nd_latency_options_init(&defaults);
    printf("rule: a CV up to %.3g %% is healthy; not steady where the interval's upper end is above %.3g %%\n",
           100 * options->healthy_cv, 100 * options->suspect_cv);
    if (options->suspect_cv < defaults.suspect_cv || options->suspect_cv > defaults.suspect_cv) {
        printf("  its false alarms were measured for %.3g %% only\n", 100 * defaults.suspect_cv);
        return;
    }
    for (const struct nd_latency_rate *rate = rates; rate->series != NULL; rate++)
        if (rate->n_runs >= n_like && (rate->n_runs <= n_runs || n_like == 0))
            n_like = rate->n_runs <= n_runs ? rate->n_runs : rates[0].n_runs;
    printf("  false alarms among healthy series of %zu runs (simulated):", n_like);
    const char *comma = "";
    for (const struct nd_latency_rate *rate = rates; rate->series != NULL; rate++)
        if (rate->n_runs == n_like) {
            printf("%s %s: %.3g %%", comma, rate->series, 100 * rate->false_alarms);
            comma = ";";
        }
    putchar('\n');
}
