#include "core/statistics/paired.h"

#include <assert.h>
#include <math.h>

#include "core/statistics/binomial.h"
#include "core/statistics/mcnemar.h"
#include "core/statistics/normal.h"
#include "core/statistics/proportion.h"

uint64_t nd_paired_n(const struct nd_paired *table)
{
    return table->both_right + table->ref_only + table->test_only + table->both_wrong;
}

double nd_paired_difference(const struct nd_paired *table)
{
    double n = (double)nd_paired_n(table);
    return n > 0 ? ((double)table->test_only - (double)table->ref_only) / n : NAN;
}

double nd_paired_p_value(const struct nd_paired *table)
{
    return nd_mcnemar_mid_p(table->ref_only, table->test_only);
}

/* n times the variance of one sample's difference if the true difference is delta: with the share of samples on
 * which the test alone is wrong that is likeliest then. b: test alone right, c: ref alone right. For delta >= 0
 * nothing below cancels; the other half is its mirror image. */
static double variance_at(double b, double c, double n, double delta)
{
    if (delta < 0)
        return variance_at(c, b, n, -delta);
    double linear = (2 * n - b + c) * delta - (b + c), constant = c * delta * (1 - delta);
    double root = sqrt(linear * linear + 8 * n * constant);
    double share = linear <= 0 ? (root - linear) / (4 * n) : 2 * constant / (root + linear);
    return n * (2 * share + delta * (1 - delta));
}

/* The largest delta that the score test accepts, at or above the estimate. */
static double tango_upper(double b, double c, double n, double z)
{
    if (b == n)
        return 1;
    double low = (b - c) / n, high = 1;
    if (b + c == 0)
        return z * z / (n + z * z);
    for (int step = 0; step < 200 && high - low > fabs(high) * 0x1p-51; step++) {
        double middle = low + (high - low) / 2, gap = n * middle - (b - c);
        if (middle <= low || middle >= high)
            break;
        if (gap * gap <= z * z * variance_at(b, c, n, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct nd_interval nd_paired_tango(const struct nd_paired *table, double confidence)
{
    assert(confidence > 0 && confidence < 1);
    double n = (double)nd_paired_n(table), b = (double)table->test_only, c = (double)table->ref_only;
    if (n == 0)
        return (struct nd_interval){-1, 1};
    double z = nd_normal_of_confidence(confidence);
    return (struct nd_interval){-tango_upper(c, b, n, z), tango_upper(b, c, n, z)};
}

/* The correlation of the two sides, with Newcombe's correction where it is above 0. */
static double phi_of(const struct nd_paired *t)
{
    double a = (double)t->both_right, b = (double)t->test_only, c = (double)t->ref_only,
           d = (double)t->both_wrong;
    double margins = sqrt((a + b) * (c + d)) * sqrt((a + c) * (b + d)), product = a * d - b * c;
    if (margins == 0)
        return 0;
    return (product > 0 ? fmax(product - (a + b + c + d) / 2, 0) : product) / margins;
}

struct nd_interval nd_paired_newcombe(const struct nd_paired *table, double confidence)
{
    uint64_t n = nd_paired_n(table), right_test = table->both_right + table->test_only,
             right_ref = table->both_right + table->ref_only;
    if (n == 0)
        return (struct nd_interval){-1, 1};
    struct nd_interval test = nd_wilson(right_test, n, confidence), ref = nd_wilson(right_ref, n, confidence);
    double size = (double)n, p = (double)right_test / size, q = (double)right_ref / size, phi = phi_of(table);
    double p_down = p - test.low, p_up = test.high - p, q_down = q - ref.low, q_up = ref.high - q;
    double down = p_down * p_down - 2 * phi * p_down * q_up + q_up * q_up,
           up = p_up * p_up - 2 * phi * p_up * q_down + q_down * q_down;
    double difference = nd_paired_difference(table);
    return (struct nd_interval){difference - sqrt(fmax(down, 0)), difference + sqrt(fmax(up, 0))};
}

static void check_question(const struct nd_question *q)
{
    assert(q->margin > 0 && q->margin < 1);
    assert(q->alpha > 0 && q->alpha < 0.5);
    assert(q->power >= 0.5 && q->power < 1);
    (void)q;
}

static uint64_t to_count(double n)
{
    return n < 0x1p64 ? (uint64_t)n : UINT64_MAX;
}

uint64_t nd_samples_needed(const struct nd_question *question, double discordant)
{
    check_question(question);
    assert(discordant >= 0 && discordant <= 1);
    /* Equivalence fails at either end: half of what may go wrong each. */
    double miss = 1 - question->power;
    if (question->kind == ND_QUESTION_EQUIVALENT)
        miss /= 2;
    double z = -nd_normal_quantile(question->alpha) - nd_normal_quantile(miss);
    return to_count(ceil(z * z * discordant / (question->margin * question->margin)));
}

uint64_t nd_samples_min(const struct nd_question *question)
{
    check_question(question);
    /* Without disagreement the ends are -+ z^2 / (n + z^2). */
    double z = nd_normal_quantile(question->alpha);
    return to_count(floor(z * z * (1 - question->margin) / question->margin) + 1);
}

static enum nd_answer_kind answer_of(const struct nd_question *question, const struct nd_interval *interval)
{
    double margin = question->margin;
    bool is_two_sided = question->kind == ND_QUESTION_EQUIVALENT;
    if (interval->low > -margin && (!is_two_sided || interval->high < margin))
        return ND_ANSWER_YES;
    if (interval->high < -margin || (is_two_sided && interval->low > margin))
        return ND_ANSWER_NO;
    return ND_ANSWER_INCONCLUSIVE;
}

void nd_paired_ask(const struct nd_paired *table, const struct nd_question *question, struct nd_answer *out)
{
    check_question(question);
    uint64_t n = nd_paired_n(table), n_discordant = table->ref_only + table->test_only;
    *out = (struct nd_answer){.difference = nd_paired_difference(table),
                              .confidence = 1 - 2 * question->alpha,
                              .is_discordant_bound = n_discordant == 0,
                              .n_samples = n};
    out->interval = nd_paired_tango(table, out->confidence);
    out->kind = answer_of(question, &out->interval);
    out->discordant = n_discordant == 0 ? nd_binomial_upper(0, n, 0.05) : (double)n_discordant / (double)n;
    uint64_t needed = nd_samples_needed(question, out->discordant), least = nd_samples_min(question);
    out->n_needed = needed > least ? needed : least;
}

const char *nd_answer_name(enum nd_question_kind question, enum nd_answer_kind answer)
{
    static const char *const names[][3] = {
        [ND_QUESTION_NONINFERIOR] = {"inconclusive", "non-inferior", "inferior"},
        [ND_QUESTION_EQUIVALENT] = {"inconclusive", "equivalent", "not equivalent"},
    };
    return names[question][answer];
}
