/* What samples prove: a proportion and its interval, two sides on the same samples, many questions at once,
 * looks after every sample, and what is drawn with replacement. docs/science/statistics.md. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npudiff/core/interval.h"
#include "npudiff/core/status.h"

/* A probability and the interval of it that k of n trials leave. docs/science/statistics.md#proportions. */
struct nd_proportion {
    uint64_t k, n;
    double share; /* k / n; NaN when n is 0 */
    struct nd_interval interval;
};

/* k <= n <= 1e9, 0 < confidence < 1; [0, 1] when n is 0. The interval of Clopper and Pearson covers the
 * probability at least as often as it says, whatever n: it is the one that is reported. Wilson's covers it so
 * often on average. Relative error of the ends below 1e-9. */
struct nd_interval nd_clopper_pearson(uint64_t k, uint64_t n, double confidence);
struct nd_interval nd_wilson(uint64_t k, uint64_t n, double confidence);

/* With the interval of Clopper and Pearson. */
struct nd_proportion nd_proportion_of(uint64_t k, uint64_t n, double confidence);

/* ---- the test of McNemar: do two sides disagree one way more often than the other? ---- */

/* Two-sided mid-p McNemar of n_lost against n_gained discordant samples; 1 when there are none. */
double nd_mcnemar_mid_p(size_t n_lost, size_t n_gained);

/* Two devices, or a device and its reference, on the same labelled samples: the difference of their accuracies,
 * what it proves, and how many samples a proof needs. docs/science/statistics.md#paired to #margins. */

/* Samples by who is right. Their sum is at most 1e9. */
struct nd_paired {
    uint64_t both_right, ref_only, test_only, both_wrong;
};

uint64_t nd_paired_n(const struct nd_paired *table);

/* Accuracy of the test less that of the reference, below 0 when the test is worse; NaN without samples. */
double nd_paired_difference(const struct nd_paired *table);

/* Two-sided exact mid-p McNemar of no difference; 1 when the two disagree nowhere. */
double nd_paired_p_value(const struct nd_paired *table);

/* Intervals of the difference, 0 < confidence < 1: the score interval of Tango, which is what verdicts use, and
 * the hybrid score interval of Newcombe as a second opinion. [-1, 1] without samples. Exchanging the two sides
 * mirrors them. Relative error of Tango's ends below 1e-9, also of those near 0; absolute error of Newcombe's
 * below 1e-13. */
struct nd_interval nd_paired_tango(const struct nd_paired *table, double confidence);
struct nd_interval nd_paired_newcombe(const struct nd_paired *table, double confidence);

enum nd_question_kind {
    ND_QUESTION_NONINFERIOR, /* is the test worse by less than the margin? */
    ND_QUESTION_EQUIVALENT,  /* do the two differ by less than the margin, either way? */
};

/* 0 < margin < 1 in units of accuracy, 0 < alpha < 1/2 is the chance of a wrong yes (one-sided, each of the two
 * tests of equivalence), 1/2 <= power < 1 that of a yes when there is no difference. The values are the
 * caller's to check. */
struct nd_paired_question {
    enum nd_question_kind kind;
    double margin, alpha, power;
};

/* What is asked when nothing else is said. */
#define ND_QUESTION_ALPHA 0.05
#define ND_QUESTION_POWER 0.9

enum nd_answer_kind {
    ND_ANSWER_INCONCLUSIVE,
    ND_ANSWER_YES, /* the whole interval is within the margin */
    ND_ANSWER_NO,  /* the whole interval is beyond it */
};

struct nd_paired_answer {
    enum nd_answer_kind kind;
    double difference, confidence; /* confidence is 1 - 2 alpha */
    struct nd_interval interval;   /* Tango's, of that confidence */
    double discordant; /* the share of samples on which one side alone is right, as it entered n_needed */
    bool is_discordant_bound; /* none was seen: it is the upper 95 % bound of that share, about 3 / n */
    uint64_t n_samples,
        n_needed; /* n_needed: for this question if the difference is 0, docs/science/statistics.md#margins */
};

void nd_paired_ask(const struct nd_paired *table, const struct nd_paired_question *question,
                   struct nd_paired_answer *out);

/* "non-inferior", "inferior", "equivalent", "not equivalent", "inconclusive". */
const char *nd_answer_name(enum nd_question_kind question, enum nd_answer_kind answer);

/* Samples that prove it with the question's power when the two do not differ in accuracy and one side alone is
 * right on this share of all samples, in [0, 1]: (z_a + z_b)^2 discordant / margin^2, rounded up; UINT64_MAX
 * when it does not fit. */
uint64_t nd_samples_needed(const struct nd_paired_question *question, double discordant);

/* The fewest samples that can prove it at all: with one less, not even no disagreement would. */
uint64_t nd_samples_min(const struct nd_paired_question *question);

/* Many questions at once: what each may still say. docs/science/statistics.md#multiplicity. A p-value that is
 * NaN belongs to no test: it stays NaN and does not count. Compare adjusted, which is not p itself, with alpha
 * as if it were alone. */

/* The chance of any wrong rejection among the n stays below alpha (Holm). */
void nd_adjust_holm(const double *p, size_t n, double *adjusted);

/* Evidence that one side is right more often than the other, which may be looked at after every sample:
 * stopping when it suffices does not spoil it. docs/science/statistics.md#sequential. */

/* Zeroed: no sample yet, an e-value of 1. */
struct nd_sequential_evidence {
    uint64_t ref_only,
        test_only;           /* the samples on which the two disagree in being right; others do not count */
    double log_e, log_e_max; /* ln of the e-value now, and of the largest so far */
};

/* Enough to stop at a chance of a false alarm of 5 % over all looks together. */
#define ND_EVIDENCE_STOP 20.0

/* ln of 2^(b + c) B(b + 1/2, c + 1/2) / pi, b + c <= 2^53: the evidence of Krichevsky and Trofimov against a
 * fair coin. Absolute error below 1e-13 + 1e-15 |result|. Symmetric. */
double nd_log_e_value(uint64_t ref_only, uint64_t test_only);

/* One more such sample. The value is computed from the counts: errors do not add up. */
void nd_evidence_add(struct nd_sequential_evidence *evidence, bool is_test_right);

/* The largest e-value so far is at least stop (1 / alpha). */
bool nd_evidence_suffices(const struct nd_sequential_evidence *evidence, double stop);

/* Drawing samples with replacement, where an interval has no closed form.
 * docs/science/statistics.md#resampling. */

enum { ND_DRAWS = 2000 };

/* Below this many samples that tell anything a bootstrap cannot know what it has not seen. */
enum { ND_FEW = 10 };

/* The two-sided percentile interval of n > 0 draws; infinities allowed, no NaN. Sorts them. */
struct nd_interval nd_percentiles(double *draws, size_t n, double confidence);

/* The smallest of n > 0 draws that at least this share of them does not exceed. Sorts them. */
double nd_quantile(double *draws, size_t n, double share);
