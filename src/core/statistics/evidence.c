/* What samples prove: a proportion and its interval, two sides on the same samples, many questions at once,
 * looks after every sample, and what is drawn with replacement. docs/science/statistics.md. */
#include <assert.h>
#include <math.h>

#include "core/statistics/distributions.h"
#include "core/statistics/evidence.h"
#include "core/statistics/series.h"

struct nd_interval nd_clopper_pearson(uint64_t k, uint64_t n, double confidence)
{
    assert(k <= n && confidence > 0 && confidence < 1);
    double alpha = (1 - confidence) / 2;
    return (struct nd_interval){nd_binomial_lower(k, n, alpha), nd_binomial_upper(k, n, alpha)};
}

/* The lower end; the upper one is 1 less that of the failures, and then near 1 or far from 0. It is
 * p^2 n / (middle + half width) of the quadratic p and its root: no cancellation for small k. */
static double wilson_lower(double k, double n, double z)
{
    double middle = k + z * z / 2, half = z * sqrt(k * (n - k) / n + z * z / 4);
    return k * k / n / (middle + half);
}

static double wilson_upper(double k, double n, double z)
{
    double middle = k + z * z / 2, half = z * sqrt(k * (n - k) / n + z * z / 4);
    return (middle + half) / (n + z * z);
}

/* The z of a two-sided interval of this confidence, 0 < confidence < 1. */
static double normal_of_confidence(double confidence)
{
    return -nd_normal_quantile((1 - confidence) / 2);
}

struct nd_interval nd_wilson(uint64_t k, uint64_t n, double confidence)
{
    assert(k <= n && confidence > 0 && confidence < 1);
    if (n == 0)
        return (struct nd_interval){0, 1};
    double z = normal_of_confidence(confidence), successes = (double)k, size = (double)n;
    return (struct nd_interval){wilson_lower(successes, size, z),
                                k == n ? 1 : wilson_upper(successes, size, z)};
}

struct nd_proportion nd_proportion_of(uint64_t k, uint64_t n, double confidence)
{
    return (struct nd_proportion){k, n, n > 0 ? (double)k / (double)n : NAN,
                                  nd_clopper_pearson(k, n, confidence)};
}

/* The binomial probability P(X = k), X ~ Bin(n, 1/2), as mantissa * 2^exponent: so no n underflows. */
struct scaled {
    double mantissa;
    long exponent;
};

static struct scaled normalise(struct scaled value)
{
    int shift;
    value.mantissa = frexp(value.mantissa, &shift);
    value.exponent += shift;
    return value;
}

static struct scaled binomial_half(size_t n, size_t k)
{
    struct scaled p = {1, -(long)n};
    for (size_t i = 1; i <= k; i++) {
        p.mantissa *= (double)(n - k + i) / (double)i;
        p = normalise(p);
    }
    return p;
}

/* Beyond this many factors the product takes long and has lost more digits than the logarithm. */
enum { N_FACTORS = 1 << 16 };

static double probability_half(size_t n, size_t k)
{
    if (k > N_FACTORS)
        return nd_exp(nd_binomial_log_pmf(k, n, 0.5, 0.5));
    struct scaled p = binomial_half(n, k);
    return p.exponent < -2000 ? 0 : ldexp(p.mantissa, (int)p.exponent);
}

double nd_mcnemar_mid_p(size_t n_lost, size_t n_gained)
{
    size_t n = n_lost + n_gained, k = n_lost < n_gained ? n_lost : n_gained;
    if (n_lost == n_gained)
        return 1; /* 2 P(X < n/2) + P(X = n/2) */
    /* p = P(X = k) + 2 P(X < k). Terms below k, relative to P(X = k): t(i-1) = t(i) i / (n-i+1), falling. */
    double term = 1, below = 0;
    for (size_t i = k; i > 0 && term > below * 1e-18; i--) {
        term *= (double)i / (double)(n - i + 1);
        below += term;
    }
    double p = probability_half(n, k) * (1 + 2 * below);
    return p < 1 ? p : 1;
}

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
    double z = normal_of_confidence(confidence);
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

static void check_question(const struct nd_paired_question *q)
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

uint64_t nd_samples_needed(const struct nd_paired_question *question, double discordant)
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

uint64_t nd_samples_min(const struct nd_paired_question *question)
{
    check_question(question);
    /* Without disagreement the ends are -+ z^2 / (n + z^2). */
    double z = nd_normal_quantile(question->alpha);
    return to_count(floor(z * z * (1 - question->margin) / question->margin) + 1);
}

static enum nd_answer_kind answer_of(const struct nd_paired_question *question,
                                     const struct nd_interval *interval)
{
    double margin = question->margin;
    bool is_two_sided = question->kind == ND_QUESTION_EQUIVALENT;
    if (interval->low > -margin && (!is_two_sided || interval->high < margin))
        return ND_ANSWER_YES;
    if (interval->high < -margin || (is_two_sided && interval->low > margin))
        return ND_ANSWER_NO;
    return ND_ANSWER_INCONCLUSIVE;
}

void nd_paired_ask(const struct nd_paired *table, const struct nd_paired_question *question,
                   struct nd_paired_answer *out)
{
    check_question(question);
    uint64_t n = nd_paired_n(table), n_discordant = table->ref_only + table->test_only;
    *out = (struct nd_paired_answer){.difference = nd_paired_difference(table),
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

void nd_adjust_holm(const double *p, size_t n, double *adjusted)
{
    size_t n_tests = 0;
    for (size_t i = 0; i < n; i++) {
        adjusted[i] = NAN;
        n_tests += isnan(p[i]) ? 0 : 1;
    }
    double largest = 0;
    for (; n_tests > 0; n_tests--) { /* the smallest p-value that is not adjusted yet */
        size_t at = n;
        for (size_t i = 0; i < n; i++)
            if (!isnan(p[i]) && isnan(adjusted[i]) && (at == n || p[i] < p[at]))
                at = i;
        largest = fmax(largest, fmin(1, (double)n_tests * p[at]));
        adjusted[at] = largest;
    }
}

/* ln P(X = k), X ~ Bin(n, 1/2). */
static double log_half(uint64_t k, uint64_t n)
{
    return nd_binomial_log_pmf(k, n, 0.5, 0.5);
}

double nd_log_e_value(uint64_t ref_only, uint64_t test_only)
{
    /* B(b + 1/2, c + 1/2) / pi = C(2b, b) C(2c, c) / (C(b + c, b) 4^(b + c)). */
    return log_half(ref_only, 2 * ref_only) + log_half(test_only, 2 * test_only) -
           log_half(ref_only, ref_only + test_only);
}

void nd_evidence_add(struct nd_sequential_evidence *evidence, bool is_test_right)
{
    evidence->test_only += is_test_right;
    evidence->ref_only += !is_test_right;
    evidence->log_e = nd_log_e_value(evidence->ref_only, evidence->test_only);
    evidence->log_e_max = fmax(evidence->log_e_max, evidence->log_e);
}

bool nd_evidence_suffices(const struct nd_sequential_evidence *evidence, double stop)
{
    return evidence->log_e_max >= nd_log(stop);
}

static size_t rank_of(size_t n, double share)
{
    double rank = ceil((double)n * share * (1 - 0x1p-50)); /* 2000 * 0.95 is 1900, not 1901 */
    return rank < 1 ? 0 : rank > (double)n ? n - 1 : (size_t)rank - 1;
}

struct nd_interval nd_percentiles(double *draws, size_t n, double confidence)
{
    nd_series_sort(draws, n);
    size_t high = rank_of(n, 1 - (1 - confidence) / 2);
    return (struct nd_interval){draws[n - 1 - high], draws[high]};
}

double nd_quantile(double *draws, size_t n, double share)
{
    nd_series_sort(draws, n);
    return draws[rank_of(n, share)];
}
