/* The table of diagnoses, and how well a fault predicts values. */
#include "diagnosis/values.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "diagnosis/values_internal.h"

/* Chosen: far off is an eighth of the reference's spread and four steps. Healthy devices, with 8 bits through
 * some sixty layers, stay below in nearly every element. */
static const double far_of_spread = 1.0 / 8, far_steps = 4;
/* Chosen: a value that a fault predicts lies within a quarter of the distance between its prediction and the
 * reference; then chance gives less than one in four. */
static const double near_of_distance = 1.0 / 4;
/* Chosen: a fault that explains less than a third of the far elements is not why the tensor is wrong. Rows that
 * are constant because their values are all zero behind a cliff were 6 to 16 % (tools/score_dumps, seed
 * 20261207). */
static const double least_explained = 1.0 / 3;
/* Chosen: a fault that explains this much ends the search, and another one must explain more by the rest. */
static const double almost_all = 0.95;

static const struct {
    const char *name;
    void (*run)(const struct nd_values_look *look);
    bool is_gross; /* it explains far elements; of several the one that explains most of them is kept */
} table[] = {
    {"one value", nd_values_try_constant, true},
    {"of the previous sample", nd_values_try_previous, true},
    {"equal to another tensor", nd_values_try_passed, true},
    {"an operand of the previous sample", nd_values_try_operand, true},
    {"permuted axes", nd_values_try_axes, true},
    {"padded, read as dense", nd_values_try_padded, true},
    {"at other places", nd_values_try_elsewhere, true},
    {"a clamp left out", nd_values_try_unclamped, true},
    {"clamp and gain", nd_values_try_clamp, true},
    {"cliff", nd_values_try_cliff, true},
    {"wrap-around", nd_values_try_wrap, true},
    {"window", nd_values_try_window, true},
    {"unwritten beginning or end", nd_values_try_unwritten, true},
    {"lines", nd_values_try_lines, true},
    {"grid", nd_values_try_grid, false},
    {"multiples of a step", nd_values_try_multiples, false},
    {"truncation", nd_values_try_truncation, false},
    {"ties", nd_values_try_ties, false},
    {"step", nd_values_try_step, false},
    {"comparison", nd_values_try_comparison, false},
};

bool nd_values_is_known(const struct nd_values_look *look, size_t i)
{
    return isfinite(look->v->ref[i]);
}

bool nd_values_is_far(const struct nd_values_look *look, size_t i)
{
    const struct nd_values *v = look->v;
    return isfinite(v->ref[i]) && !(fabs(v->test[i] - v->ref[i]) <= look->far);
}

static double mantissa_bits(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_F16:
        return 10;
    case ND_DTYPE_BF16:
        return 7;
    case ND_DTYPE_F64:
        return 52;
    case ND_DTYPE_F8E4M3FN:
        return 3;
    case ND_DTYPE_F8E5M2:
        return 2;
    default:
        return 23;
    }
}

double nd_values_spacing(enum nd_dtype dtype, double step, double x)
{
    int exponent = 0;
    if (step > 0 || !nd_dtype_is_float(dtype))
        return step > 0 ? step : 1;
    frexp(x, &exponent);
    return x == 0 ? 0 : ldexp(1, exponent - 1 - (int)mantissa_bits(dtype));
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double nd_values_share_of_far(const struct nd_values_look *look, size_t n_far)
{
    return look->n_far > 0 ? (double)n_far / (double)look->n_far : 0;
}

double nd_values_quantile(double *x, size_t n, double part)
{
    if (n == 0)
        return NAN;
    qsort(x, n, sizeof *x, compare);
    return x[(size_t)(part * (double)(n - 1))];
}

struct nd_finding nd_values_finding(const struct nd_values_look *look, enum nd_fault_kind kind, double amount,
                                    double explained, double chance)
{
    return (struct nd_finding){kind, SIZE_MAX, -1, amount, explained, look->n_differing, "", chance};
}

void nd_values_add(const struct nd_values_look *look, const struct nd_finding *finding, const char *fmt, ...)
{
    struct nd_value_findings *out = look->out;
    if (out->n == ND_MAX_VALUE_FINDINGS)
        return;
    out->items[out->n] = *finding;
    va_list args;
    va_start(args, fmt);
    vsnprintf(out->items[out->n].text, sizeof out->items[out->n].text, fmt, args);
    va_end(args);
    out->n++;
}

struct score {
    size_t n_decisive, n_right, n_broken,
        n_beside; /* n_broken: of n_beside, elements that the fault leaves alone */
    size_t n_far, n_explained;
    double sum, squares, rest; /* of the test in decisive elements, and of what the fault leaves */
    /* Of the reference and of what is predicted in decisive elements: alike ones are no independent evidence.
     */
    double low, high, least, most;
};

static void count(const struct nd_values_look *look, size_t i, double predicted, struct score *score)
{
    const struct nd_values *v = look->v;
    double apart = fabs(predicted - v->ref[i]), off = fabs(v->test[i] - predicted);
    bool is_far = nd_values_is_far(look, i), is_right = off <= near_of_distance * apart;
    score->n_far += is_far;
    score->n_explained += is_far && (is_right || off <= look->far / 2);
    if (!(apart > look->far)) {
        score->n_beside++;
        score->n_broken += !(off <= look->far);
        return;
    }
    score->n_decisive++;
    score->n_right += is_right;
    if (isfinite(v->test[i])) {
        score->sum += v->test[i];
        score->squares += v->test[i] * v->test[i];
        score->rest += is_right ? off * off : 0;
    }
    score->low = fmin(score->low, v->ref[i]);
    score->high = fmax(score->high, v->ref[i]);
    score->least = fmin(score->least, predicted);
    score->most = fmax(score->most, predicted);
}

bool nd_values_holds(const struct nd_values_look *look, nd_values_predict predict, const void *fault,
                     double *explained, double *chance)
{
    struct score score = {.low = HUGE_VAL, .high = -HUGE_VAL, .least = HUGE_VAL, .most = -HUGE_VAL};
    for (size_t s = 0; s < look->v->n_samples; s++)
        for (size_t j = 0; j < look->v->n; j++) {
            size_t i = s * look->v->n + j;
            if (!nd_values_is_known(look, i))
                continue;
            double predicted = predict(look, fault, s, j);
            if (isfinite(predicted))
                count(look, i, predicted, &score);
            size_t n_missed = score.n_decisive - score.n_right;
            if (n_missed > 32 && n_missed * 4 > score.n_decisive) /* hopeless */
                return false;
        }
    /* What is squeezed together far away is near every prediction that lies there: the fault must also say how
     * the test moves, but for a quarter of its variance and a step. */
    double n = (double)score.n_decisive,
           step = nd_values_spacing(look->v->dtype, look->v->step, look->test_high);
    double variance = n > 0 ? score.squares / n - (score.sum / n) * (score.sum / n) : 0;
    bool is_followed = score.rest <= n * (variance / 4 + step * step + 1e-12 * score.squares / fmax(n, 1));
    *explained = score.n_far > 0 ? (double)score.n_explained / (double)score.n_far : 0;
    *chance = (double)score.n_decisive * log10(near_of_distance);
    return score.n_decisive >= ND_VALUES_MIN_DECISIVE && score.n_right * 100 >= score.n_decisive * 99 &&
           score.n_broken * 100 <= score.n_beside && *explained >= 0.95 && is_followed &&
           fmax(score.high - score.low, score.most - score.least) > look->far / 2;
}

static void measure(struct nd_values_look *look)
{
    const struct nd_values *v = look->v;
    double sum = 0, squares = 0, most = 0;
    look->test_low = HUGE_VAL;
    look->test_high = -HUGE_VAL;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_values_is_known(look, i))
            continue;
        look->n_known++;
        sum += v->ref[i];
        most = fmax(most, fabs(v->ref[i]));
        look->n_differing += v->test[i] != v->ref[i];
        if (isfinite(v->test[i])) {
            look->test_low = fmin(look->test_low, v->test[i]);
            look->test_high = fmax(look->test_high, v->test[i]);
        }
    }
    double mean = look->n_known > 0 ? sum / (double)look->n_known : 0;
    for (size_t i = 0; i < look->n_total; i++)
        squares += nd_values_is_known(look, i) ? (v->ref[i] - mean) * (v->ref[i] - mean) : 0;
    look->spread = look->n_known > 0 ? sqrt(squares / (double)look->n_known) : 0;
    double step = fmax(nd_values_spacing(v->dtype, v->step, look->spread), v->ref_step);
    look->far = fmax(far_of_spread * look->spread, far_steps * step);
    for (size_t i = 0; i < look->n_total; i++) {
        look->n_far += nd_values_is_far(look, i);
        look->n_lost += nd_values_is_known(look, i) && !isfinite(v->test[i]);
    }
}

/* Of the gross faults the one that explains the largest share of the far elements; of those that explain about
 * as much the first, which is the simplest. */
static void run_gross(const struct nd_values_look *look)
{
    struct nd_value_findings *out = look->out;
    struct nd_finding best = {0};
    for (size_t k = 0; k < sizeof table / sizeof table[0] && best.explained < almost_all; k++) {
        if (!table[k].is_gross)
            continue;
        out->n = 0;
        table[k].run(look);
        bool is_enough = out->n > 0 && out->items[0].explained >= least_explained;
        if (is_enough && out->items[0].explained > best.explained + (1 - almost_all))
            best = out->items[0];
    }
    out->n = best.explained > 0;
    out->items[0] = best;
}

static void run_small(const struct nd_values_look *look)
{
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++)
        if (!table[k].is_gross)
            table[k].run(look);
}

static enum nd_status examine(const struct nd_values *values, bool is_gross_only, struct nd_value_findings *out,
                              struct nd_error *err)
{
    struct nd_value_findings found = {0};
    struct nd_values_look look = {.v = values, .n_total = values->n_samples * values->n, .out = &found};
    enum nd_status status = ND_OK;
    if (look.n_total > 0)
        measure(&look);
    if (look.n_differing > 0) {
        look.scratch = nd_calloc(2 * look.n_total, sizeof *look.scratch);
        status = look.scratch != NULL ? ND_OK : nd_fail_memory(err);
    }
    if (look.n_differing > 0 && status == ND_OK) {
        look.scratch2 = look.scratch + look.n_total;
        if (look.n_far > 0)
            run_gross(&look);
        found.n_gross = found.n;
        found.far_share = (double)look.n_far / (double)look.n_known;
        if (!is_gross_only)
            run_small(&look);
    }
    free(look.scratch);
    if (status == ND_OK)
        *out = found;
    return status;
}

enum nd_status nd_values_examine(const struct nd_values *values, struct nd_value_findings *out,
                                 struct nd_error *err)
{
    return examine(values, false, out, err);
}

enum nd_status nd_values_examine_gross(const struct nd_values *values, struct nd_value_findings *out,
                                       struct nd_error *err)
{
    return examine(values, true, out, err);
}

size_t nd_values_skip_inherited(struct nd_values_history *history, const struct nd_value_findings *found)
{
    static const double least_far = 0.01; /* chosen */
    bool is_found = found->n_gross > 0, was_met = history->is_met;
    if (!was_met && (is_found || found->far_share >= least_far))
        *history = (struct nd_values_history){true, is_found ? found->items[0].kind : ND_FAULT_UNEXPLAINED};
    return is_found && was_met && found->items[0].kind != history->kind ? found->n_gross : 0;
}
