/* Two devices, or a device and its reference, on the same labelled samples: the difference of their accuracies,
 * what it proves, and how many samples a proof needs. docs/science/statistics.md#paired to #margins. */
#ifndef ND_STATS_PAIRED_H
#define ND_STATS_PAIRED_H

#include <stdbool.h>
#include <stdint.h>

#include "npudiff/core/interval.h"

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
struct nd_question {
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

struct nd_answer {
    enum nd_answer_kind kind;
    double difference, confidence; /* confidence is 1 - 2 alpha */
    struct nd_interval interval;   /* Tango's, of that confidence */
    double discordant; /* the share of samples on which one side alone is right, as it entered n_needed */
    bool is_discordant_bound; /* none was seen: it is the upper 95 % bound of that share, about 3 / n */
    uint64_t n_samples,
        n_needed; /* n_needed: for this question if the difference is 0, docs/science/statistics.md#margins */
};

void nd_paired_ask(const struct nd_paired *table, const struct nd_question *question, struct nd_answer *out);

/* "non-inferior", "inferior", "equivalent", "not equivalent", "inconclusive". */
const char *nd_answer_name(enum nd_question_kind question, enum nd_answer_kind answer);

/* Samples that prove it with the question's power when the two do not differ in accuracy and one side alone is
 * right on this share of all samples, in [0, 1]: (z_a + z_b)^2 discordant / margin^2, rounded up; UINT64_MAX
 * when it does not fit. */
uint64_t nd_samples_needed(const struct nd_question *question, double discordant);

/* The fewest samples that can prove it at all: with one less, not even no disagreement would. */
uint64_t nd_samples_min(const struct nd_question *question);

#endif
