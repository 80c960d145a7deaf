/* How likely the codes of a unit are on an NPU, and on a CPU. Both are mixtures of beta-binomial distributions:
 * rates differ from unit to unit, and some units are exact by chance or by nature. docs/science/fallback.md
 * says where the numbers come from. */
#include <math.h>
#include <string.h>

#include "explain/execution/fallback.h"

/* Of a CPU that computes in floats: codes next to a tie that fall the other way, by the width of the codes. */
static const double plain_off[2] = {2e-5, 1e-3};
/* Of one that does not; and the chance that a code that no float arithmetic gives comes from one that does. The
 * model of docs/science/fallback.md. */
static const double other_off = 0.1, far_on_cpu = 1e-6;
/* Share of units that may be off by any share of their codes, more than others of their kind; chosen. */
static const double by_anything = 0.1;

struct row {
    const char *op_type;
    struct nd_fallback_rates narrow, wide;
};

/* Everything that is not listed: half of the kinds of operators are exact in 8 bits, and one of 24 in 16. */
static const struct row unknown = {"", {0.5, 0.03, 0.002}, {0.05, 0.3, 0.002}};

static const struct row rows[] = {
    {"Conv", {0.003, 0.03, 0.002}, {0.003, 0.5, 0.002}},
    {"MatMul", {0.003, 0.03, 0.002}, {0.003, 0.5, 0.002}},
    {"Gemm", {0.003, 0.04, 0.002}, {0.003, 0.5, 0.002}},
    {"Einsum", {0.003, 0.03, 0.002}, {0.05, 0.5, 0.002}},
    {"Add", {0.003, 0.008, 0.002}, {0.003, 0.08, 0.002}},
    {"LayerNormalization", {0.003, 0.25, 0.002}, {0.003, 0.25, 0.002}},
    {"Softmax", {0.003, 0.015, 0.3}, {0.003, 0.5, 0.002}},
    {"ConvTranspose", {0.006, 0.03, 0.002}, {0.006, 0.5, 0.002}},
    {"CumSum", {0.006, 0.37, 0.002}, {0.006, 0.37, 0.002}},
    {"InstanceNormalization", {0.006, 0.017, 0.002}, {0.93, 0.01, 0.002}},
    {"Sub", {0.006, 0.005, 0.002}, {0.006, 0.05, 0.002}},
    {"Mul", {0.98, 0.01, 0.002}, {0.006, 0.02, 0.002}},
    {"Div", {0.5, 0.004, 0.002}, {0.006, 0.5, 0.002}},
    {"ReduceMean", {0.85, 0.005, 0.002}, {0.05, 0.1, 0.002}},
    {"ReduceSum", {0.5, 0.004, 0.002}, {0.006, 0.45, 0.002}},
    {"AveragePool", {0.65, 0.03, 0.002}, {0.006, 0.05, 0.002}},
    {"GlobalAveragePool", {0.8, 0.03, 0.002}, {0.05, 0.24, 0.002}},
    {"Abs", {0.98, 0.01, 0.002}, {0.006, 0.03, 0.002}},
    {"Elu", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Exp", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Gelu", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"HardSwish", {0.98, 0.01, 0.002}, {0.006, 0.18, 0.002}},
    {"Sigmoid", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Sin", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Sqrt", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Tanh", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
};

/* By a constant nothing is known of a kind: whether such a layer is exact depends on the constant and the
 * scales. Division by 6 into a scale that is a sixth only copies codes. */
static const struct nd_fallback_rates by_constant[2] = {{0.98, 0.01, 0.002}, {0.5, 0.02, 0.002}};

static bool is_first(const char *op_types, const char *name)
{
    size_t length = strcspn(op_types, "+,");
    return strlen(name) == length && strncmp(name, op_types, length) == 0;
}

static bool is_one_of(const char *op_types, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_first(op_types, names[i]))
            return true;
    return false;
}

bool nd_fallback_is_pairwise(const char *op_types)
{
    static const char *const pairwise[] = {"Add", "Div", "Max", "Min", "Mod", "Mul", "PRelu", "Pow", "Sub"};
    return is_one_of(op_types, pairwise, sizeof pairwise / sizeof *pairwise);
}

bool nd_fallback_is_move(const char *op_types)
{
    static const char *const moves[] = {"Identity", "Pad", "Slice", "Split", "Transpose"};
    return is_one_of(op_types, moves, sizeof moves / sizeof *moves);
}

struct nd_fallback_rates nd_fallback_rates_of(const char *op_types, const struct nd_fallback_counts *counts)
{
    const struct row *row = &unknown;
    if (counts->is_by_constant)
        return by_constant[counts->is_wide];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_first(op_types, rows[i].op_type))
            row = &rows[i];
    return counts->is_wide ? row->wide : row->narrow;
}

void nd_fallback_learn(struct nd_fallback_rates *rates, double off, size_t n_siblings, bool is_same_unit)
{
    /* Siblings that are off count beside as many units as stand for the prior knowledge, at most. */
    static const double looked_at = 10, same_unit_exact = 0.002;
    double known = fmin(looked_at, 0.5 / rates->exact);
    if (is_same_unit)
        rates->exact = fmin(rates->exact, same_unit_exact);
    else
        rates->exact *= known / (known + (double)n_siblings);
    rates->off = fmax(off, 1e-4);
}

/* log of the chance of one sequence of n with k where the rate has that mean and the beta distribution B(a, b).
 */
static double log_chance(double k, double n, double mean, double a)
{
    int sign;
    double b = a / fmin(mean, 0.5) - a;
    return lgamma_r(k + a, &sign) + lgamma_r(n - k + b, &sign) - lgamma_r(n + a + b, &sign) -
           lgamma_r(a, &sign) - lgamma_r(b, &sign) + lgamma_r(a + b, &sign);
}

static double log_mixture(double share, double log_first, double log_second)
{
    double first = log(share) + log_first, second = log1p(-share) + log_second, most = fmax(first, second);
    return most + log(exp(first - most) + exp(second - most));
}

double nd_fallback_weigh(const struct nd_fallback_counts *counts, const struct nd_fallback_rates *rates)
{
    if (counts->n <= 0)
        return 0;
    double n = counts->n / counts->spread, k = counts->n_off / counts->spread;
    double as_floats =
        log_chance(k, n, plain_off[counts->is_wide], 1) + (counts->n_far > 0 ? log(far_on_cpu) : 0);
    double off = log_mixture(by_anything, log_chance(k, n, 0.5, 1), log_chance(k, n, rates->off, 2));
    double on_npu = log_mixture(rates->exact, as_floats, off);
    double on_cpu = log_mixture(rates->other, log_chance(k, n, other_off, 1), as_floats);
    double bits = (on_npu - on_cpu) / log(2);
    return fmax(fmin(bits, ND_FALLBACK_MOST), -ND_FALLBACK_MOST);
}

double nd_fallback_weigh_program(uint64_t n_apart, uint64_t n_as_made, uint64_t n_as_exact, double spread)
{
    /* An NPU that has the program in some units has it in all that it covers, but for what the program is not
     * complete in; a CPU has codes of it next to ties only. */
    static const double nearly_all = 0.95; /* of the codes; chosen */
    static const double of_one =
        6.6; /* bits: one code in a hundred otherwise; chosen, not measured (docs/science/fallback.md) */
    double n = (double)n_apart;
    if (n_apart == 0)
        return 0;
    if ((double)n_as_made >= nearly_all * n)
        return fmin(of_one * (double)n_as_made / spread, ND_FALLBACK_MOST);
    if ((double)n_as_exact >= nearly_all * n)
        return -fmin(of_one * (double)n_as_exact / spread, ND_FALLBACK_MOST);
    return 0;
}
