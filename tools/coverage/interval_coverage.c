/* How often the statistics of the judge are right, over simulated studies. Prints Markdown.
 * Usage: interval_coverage [STUDIES [SEED]] */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/statistics/distributions.h"
#include "support/judge_study.h"

static double probability(uint64_t k, uint64_t n, double p)
{
    return exp(nd_binomial_log_pmf(k, n, p, 1 - p));
}

/* The coverage itself, summed over all tables that matter. */
static double exact_coverage(const struct study *s)
{
    double covered = 0, share = (s->discordant + s->difference) / 2 / s->discordant;
    for (uint64_t m = 0; m <= s->n; m++) {
        double of_m = probability(m, s->n, s->discordant);
        for (uint64_t b = 0; b <= m && of_m > 1e-9; b++) {
            struct nd_paired table = {0, m - b, b, s->n - m};
            struct nd_interval tango = nd_paired_tango(&table, 0.95);
            covered += study_is_within(&tango, s->difference) ? of_m * probability(b, m, share) : 0;
        }
    }
    return covered;
}

static void intervals(uint64_t n_studies, uint64_t *state)
{
    static const uint64_t sizes[] = {100, 700, 3000, 10000};
    static const double discordants[] = {0.002, 0.01, 0.02, 0.05, 0.2};
    printf(
        "| samples | discordant | difference | discordant samples | Tango 95 %% | exactly | Newcombe 95 %% |\n"
        "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < 2 * sizeof discordants / sizeof *discordants; k++) {
            struct study s = {sizes[i], discordants[k / 2], k % 2 == 0 ? 0 : -discordants[k / 2] / 2};
            uint64_t n_tango = 0, n_newcombe = 0;
            for (uint64_t j = 0; j < n_studies; j++) {
                struct nd_paired table = study_draw(&s, state);
                struct nd_interval tango = nd_paired_tango(&table, 0.95),
                                   newcombe = nd_paired_newcombe(&table, 0.95);
                n_tango += study_is_within(&tango, s.difference);
                n_newcombe += study_is_within(&newcombe, s.difference);
            }
            double n = (double)n_studies, expected = (double)s.n * s.discordant;
            printf("| %" PRIu64 " | %g %% | %g %% | %g | %.2f | ", s.n, 100 * s.discordant, 100 * s.difference,
                   expected, 100 * (double)n_tango / n);
            if (expected <= 200)
                printf("%.2f", 100 * exact_coverage(&s));
            printf(" | %.2f |\n", 100 * (double)n_newcombe / n);
            fflush(stdout);
        }
}

static void questions(uint64_t n_studies, uint64_t *state)
{
    static const double discordants[] = {0.002, 0.02, 0.05};
    printf("\n| question | margin | discordant | samples | difference | yes | no | inconclusive |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < 12; i++) {
        struct nd_paired_question q = {i % 2 == 0 ? ND_QUESTION_NONINFERIOR : ND_QUESTION_EQUIVALENT, 0.01,
                                       ND_QUESTION_ALPHA, ND_QUESTION_POWER};
        double discordant = discordants[i / 4];
        struct study s = {0, discordant, 0};
        uint64_t least = nd_samples_min(&q), n_kinds[3] = {0};
        s.n = nd_samples_needed(&q, discordant);
        s.n = s.n > least ? s.n : least;
        s.difference = i / 2 % 2 == 0 ? 0 : -q.margin;
        if (discordant < q.margin && s.difference != 0)
            continue; /* there is no such fleet */
        for (uint64_t j = 0; j < n_studies; j++) {
            struct nd_paired table = study_draw(&s, state);
            struct nd_paired_answer answer;
            nd_paired_ask(&table, &q, &answer);
            n_kinds[answer.kind]++;
        }
        double percent = 100 / (double)n_studies;
        printf("| %s | 1 %% | %g %% | %" PRIu64 " | %g %% | %.2f | %.2f | %.2f |\n",
               nd_answer_name(q.kind, ND_ANSWER_YES), 100 * discordant, s.n, 100 * s.difference,
               percent * (double)n_kinds[ND_ANSWER_YES], percent * (double)n_kinds[ND_ANSWER_NO],
               percent * (double)n_kinds[ND_ANSWER_INCONCLUSIVE]);
        fflush(stdout);
    }
}

static void evidence(uint64_t n_studies, uint64_t *state)
{
    static const double shares[] = {0.5, 0.6, 0.65, 0.8};
    printf("\n| share of the discordant samples that the test gets right | stopped within 1000 looks | samples "
           "until "
           "then, mean |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        uint64_t n_stopped = 0, sum = 0;
        for (uint64_t j = 0; j < n_studies; j++) {
            uint64_t at = study_stop(shares[i], 1000, state);
            n_stopped += at > 0;
            sum += at;
        }
        printf("| %g %% | %.2f %% | %.0f |\n", 100 * shares[i], 100 * (double)n_stopped / (double)n_studies,
               (double)sum / (double)n_stopped);
        fflush(stdout);
    }
}

static void fleet_row(const struct fleet_study *s, uint64_t n_studies, uint64_t *state)
{
    unsigned char *devices = calloc(s->n_devices * s->n_samples, 1), *reference = calloc(s->n_samples, 1);
    struct nd_rights rights = {s->n_devices, s->n_samples, devices, reference, NULL};
    double spread = 0.75 * s->more,
           common = 0.25 * s->gained - 0.75 * (s->lost + s->more / (double)s->n_devices);
    uint64_t n_spread = 0, n_common = 0, n_kinds[3] = {0};
    for (uint64_t j = 0; j < n_studies && devices != NULL && reference != NULL; j++) {
        struct nd_spread_options options = {0.95, 0.02, 0, j};
        struct nd_spread out;
        study_draw_fleet(s, state, devices, reference);
        if (nd_spread_measure(&rights, &options, &out, NULL) != ND_OK)
            break;
        n_spread += study_is_within(&out.spread.interval, spread);
        n_common += study_is_within(&out.common.interval, common);
        n_kinds[out.kind]++;
        nd_spread_deinit(&out);
    }
    double percent = 100 / (double)n_studies;
    printf("| %zu | %zu | %g %% | %g %% | %.1f | %.1f | %.1f | %.1f | %.1f |\n", s->n_devices, s->n_samples,
           100 * s->lost, 100 * spread, percent * (double)n_spread, percent * (double)n_common,
           percent * (double)n_kinds[ND_SPREAD_UNEVEN], percent * (double)n_kinds[ND_SPREAD_UNIFORM],
           percent * (double)n_kinds[ND_SPREAD_INCONCLUSIVE]);
    fflush(stdout);
    free(devices);
    free(reference);
}

static void fleets(uint64_t n_studies, uint64_t *state)
{
    static const struct fleet_study rows[] = {
        {2, 200, 0.01, 0, 0.01},     {5, 200, 0.01, 0, 0.01},   {5, 700, 0.002, 0, 0},
        {5, 700, 0.02, 0, 0.02},     {5, 3000, 0.01, 0, 0.01},  {5, 700, 0.02, 0.04, 0.02},
        {5, 3000, 0.01, 0.02, 0.01}, {10, 1000, 0.02, 0, 0.02}, {10, 1000, 0.02, 0.04, 0.02},
    };
    printf("\n| devices | samples | lost | true spread | spread 95 %% | common 95 %% | uneven | uniform within "
           "2 %% | "
           "inconclusive |\n|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fleet_row(&rows[i], n_studies, state);
}

int main(int argc, char **argv)
{
    uint64_t n_studies = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000,
             state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (n_studies < 10) {
        fprintf(stderr, "usage: interval_coverage [STUDIES [SEED]], STUDIES at least 10\n");
        return 2;
    }
    printf("%" PRIu64 " studies a row, seed %" PRIu64 "; a tenth of them for fleets.\n\n", n_studies, state);
    intervals(n_studies, &state);
    questions(n_studies, &state);
    evidence(n_studies, &state);
    fleets(n_studies / 10, &state);
    return 0;
}
