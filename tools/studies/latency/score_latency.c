/* How often the examination of latencies is right, over simulated series: the tables of
 * docs/science/latency.md. Usage: score_latency [SERIES [SEED]] | dip */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "core/statistics/series.h"
#include "npudiff/compare/latency.h"
#include "npudiff/core/parse.h"
#include "support/latency_series.h"

enum { MAX_RUNS = 2000 };

struct count {
    size_t n, modes, mixture, dip, levels, not_steady, covered, cv_alarms;
};

static void add(struct count *count, const struct series_scenario *scenario, size_t n_runs, uint64_t *state)
{
    static double us[MAX_RUNS];
    struct nd_latency found;
    struct nd_error err = {0};
    struct nd_latency_options options;
    nd_latency_options_init(&options);
    options.n_warm_up = 0;
    options.min_runs = 2;
    scenario->draw(us, n_runs, state);
    if (nd_latency_examine(us, n_runs, &options, &found, &err) != ND_OK) {
        fprintf(stderr, "score_latency: %s\n", err.message);
        exit(2);
    }
    count->n++;
    count->modes += found.is_bimodal;
    count->mixture += found.is_mixture;
    count->dip += found.is_dip;
    count->levels += found.verdict == ND_LATENCY_REGIMES;
    count->not_steady += found.verdict == ND_LATENCY_NOT_STEADY;
}

static double share(size_t k, const struct count *count)
{
    return (double)k / (double)count->n;
}

static void print_verdicts(size_t n_runs, size_t n_series, uint64_t *state)
{
    static const char *const truths[] = {"one kind", "two kinds", "levels"};
    printf("| series of %zu | truth | two modes | mixture | dip | regimes in time | not steady "
           "|\n|---|---|---|---|---|---|---|\n",
           n_runs);
    for (size_t i = 0; i < SERIES_N_SCENARIOS; i++) {
        const struct series_scenario *scenario = &series_scenarios[i];
        struct count count = {0};
        for (size_t k = 0; k < n_series; k++)
            add(&count, scenario, n_runs, state);
        printf("| %s | %s | %.3f | %.3f | %.3f | %.3f | %.3f |\n", scenario->name, truths[scenario->truth],
               share(count.modes, &count), share(count.mixture, &count), share(count.dip, &count),
               share(count.levels, &count), share(count.not_steady, &count));
        fflush(stdout);
    }
    putchar('\n');
}

/* The rule and the interval that it rests on, as nd_latency_examine makes it. */
static void add_interval(struct count *count, const struct series_scenario *scenario, size_t n_runs,
                         uint64_t *state)
{
    static double us[MAX_RUNS];
    struct nd_series_cv cv;
    struct nd_latency_options options;
    nd_latency_options_init(&options);
    scenario->draw(us, n_runs, state);
    size_t block = nd_series_block(nd_series_autocorrelation(us, n_runs), n_runs);
    if (nd_series_cv(us, n_runs, block, options.seed, &cv, NULL) != ND_OK)
        exit(2);
    count->n++;
    count->covered += cv.low <= scenario->cv && scenario->cv <= cv.high;
    count->cv_alarms += cv.high > options.suspect_cv;
}

static void print_rule(size_t n_series, uint64_t *state)
{
    static const size_t sizes[] = {30, 100, 200, 1000};
    printf("| series | runs | the rule's false alarms | coverage of the 95 %% interval |\n|---|---|---|---|\n");
    for (size_t i = 0; i < SERIES_N_SCENARIOS && series_scenarios[i].truth == SERIES_ONE; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct count count = {0};
            for (size_t j = 0; j < (sizes[k] < 1000 ? n_series : n_series / 4 + 1); j++)
                add_interval(&count, &series_scenarios[i], sizes[k], state);
            printf("| %s | %zu | %.3f | ", series_scenarios[i].name, sizes[k], share(count.cv_alarms, &count));
            if (series_scenarios[i].cv > 0)
                printf("%.3f", share(count.covered, &count));
            printf(" |\n");
            fflush(stdout);
        }
}

/* The table of nd_series_dip_limit. */
static int print_dip(void)
{
    static const size_t sizes[] = {10, 20, 50, 100, 200, 500, 1000, 5000, ND_MIXTURE_MAX};
    static double values[ND_MIXTURE_MAX], dips[20000];
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i], n_draws = n <= 1000 ? 20000 : 4000;
        for (size_t k = 0; k < n_draws; k++) {
            for (size_t j = 0; j < n; j++)
                values[j] = nd_splitmix_uniform(&state);
            nd_series_sort(values, n);
            if (nd_series_dip(values, n, &dips[k], NULL) != ND_OK)
                return 2;
        }
        nd_series_sort(dips, n_draws);
        printf("%zu %.4f\n", n, nd_series_quantile(dips, n_draws, 0.99) * sqrt((double)n));
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t n_series = 1000, seed = 1;
    const char *what = argc > 3 ? argv[3] : "";
    if (argc == 2 && strcmp(argv[1], "dip") == 0)
        return print_dip();
    if (argc > 4 || (argc > 1 && (!nd_parse_u64(argv[1], &n_series) || n_series == 0)) ||
        (argc > 2 && !nd_parse_u64(argv[2], &seed)) ||
        (argc > 3 && strcmp(what, "verdicts") != 0 && strcmp(what, "rule") != 0)) {
        fprintf(stderr, "usage: score_latency [SERIES [SEED [verdicts|rule]]] | dip\n");
        return 2;
    }
    printf("%" PRIu64 " series a row (of 1000 runs: a quarter of that), seed %" PRIu64 "\n\n", n_series, seed);
    uint64_t state = seed;
    if (strcmp(what, "rule") != 0) {
        print_verdicts(ND_LATENCY_MIN_RUNS, n_series, &state);
        print_verdicts(1000, n_series / 4 + 1, &state);
    }
    state = seed;
    if (strcmp(what, "verdicts") != 0)
        print_rule(n_series, &state);
    return 0;
}
