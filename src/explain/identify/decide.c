/* From counts to the set. */
#include <math.h>

#include "core/statistics/distributions.h"
#include "explain/identify/identify_parts.h"

/* How often what an arithmetic leaves is taken for more than contamination when it is not. */
static const double unlikely = 1e-6;

static double cost_of(const struct nd_identify_tally *t, const struct nd_arithmetic *arithmetic, size_t p)
{
    if (nd_arithmetic_is_stochastic(arithmetic))
        return (double)t->chance[p] / ND_IDENTIFY_NATS;
    double right = -log(1 - ND_IDENTIFY_CONTAMINATION / 2), wrong = log(2 / ND_IDENTIFY_CONTAMINATION);
    return (double)(t->n_seen[p] - t->n_wrong[p]) * right + (double)t->n_wrong[p] * wrong;
}

/* Whether what the arithmetic leaves can be 1 % of flips or less. */
static bool is_contamination(const struct nd_identify_tally *t, size_t p)
{
    return nd_binomial_lower(t->n_wrong[p], t->n, unlikely) <= ND_IDENTIFY_CONTAMINATION &&
           nd_binomial_lower(t->n_beside[p], t->n_inner[p], unlikely) <= 0.5;
}

/* The least and the largest P(up) of an arithmetic of chance within a bin, in place of a fraction. */
static void range_in_bin(const struct nd_arithmetic *arithmetic, size_t bin, double *low, double *high)
{
    const struct nd_arithmetic_scaling scaling = {.low = 0, .high = 1, .scale = 1};
    struct nd_arithmetic_ready ready;
    nd_arithmetic_prepare(arithmetic, &scaling, false, &ready);
    *low = 1;
    *high = 0;
    for (int end = 0; end < 2; end++) {
        double fraction = ((double)bin + (end == 0 ? 0x1p-20 : 1 - 0x1p-20)) / ND_IDENTIFY_BINS;
        const struct nd_arithmetic_element element = {.place = {.fraction = fraction}};
        double p = nd_arithmetic_run(&ready, &element).p;
        *low = fmin(*low, p);
        *high = fmax(*high, p);
    }
}

static bool has_curve(const struct nd_identify_tally *t, const struct nd_arithmetic *arithmetic)
{
    const double alpha = 1e-9;
    for (size_t b = 0; b < ND_IDENTIFY_BINS; b++) {
        double low, high;
        if (t->bin_n[b] == 0)
            continue;
        range_in_bin(arithmetic, b, &low, &high);
        if (nd_binomial_upper(t->bin_up[b], t->bin_n[b], alpha) < low - ND_IDENTIFY_CONTAMINATION ||
            nd_binomial_lower(t->bin_up[b], t->bin_n[b], alpha) > high + ND_IDENTIFY_CONTAMINATION)
            return false;
    }
    return true;
}

static size_t count_classes(struct nd_identify_result *out)
{
    bool is_there[ND_ARITHMETIC_MAX] = {false};
    size_t n = 0;
    for (size_t p = 0; p < out->n_arithmetics; p++)
        if (out->is_applicable[p] && out->is_possible[p] && !is_there[out->class_of[p]]) {
            is_there[out->class_of[p]] = true;
            n++;
        }
    return n;
}

static void conclude(struct nd_identify_result *out)
{
    out->n_classes = count_classes(out);
    if (out->best == SIZE_MAX || out->n_open < ND_IDENTIFY_MIN)
        out->verdict = ND_IDENTIFY_TOO_FEW;
    else if (out->n_classes == 0)
        out->verdict = ND_IDENTIFY_NONE;
    else
        out->verdict = out->n_classes == 1 ? ND_IDENTIFY_SINGLE : ND_IDENTIFY_SEVERAL;
    uint64_t ref = out->n_wrong[0], left = out->best != SIZE_MAX ? out->n_wrong[out->best] : 0;
    out->explained = ref > 0 ? 1 - (double)left / (double)ref : NAN;
}

/* The set may only be smaller than everything where there is enough to see. */
static void find_possible(const struct nd_identify_tally *t, const struct nd_arithmetic *arithmetics,
                          struct nd_identify_result *out)
{
    double bound = log((double)out->n_arithmetics / ND_IDENTIFY_ALPHA);
    double least = out->best != SIZE_MAX ? cost_of(t, &arithmetics[out->best], out->best) : 0;
    for (size_t p = 0; p < out->n_arithmetics; p++) {
        out->is_possible[p] = true;
        if (!out->is_applicable[p] || t->n_open < ND_IDENTIFY_MIN)
            continue;
        out->is_possible[p] = cost_of(t, &arithmetics[p], p) <= least + bound && is_contamination(t, p) &&
                              (!nd_arithmetic_is_stochastic(&arithmetics[p]) || has_curve(t, &arithmetics[p]));
    }
}

void nd_identify_decide(const struct nd_identify_tally *t, struct nd_identify_result *out)
{
    *out = (struct nd_identify_result){
        .best = SIZE_MAX, .n = t->n, .n_open = t->n_open, .n_deciding = t->n_deciding};
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&out->n_arithmetics);
    for (size_t p = 0; p < out->n_arithmetics; p++) {
        out->is_applicable[p] = t->n_seen[p] > 0;
        out->n_wrong[p] = t->n_wrong[p];
        out->n_seen[p] = t->n_seen[p];
        out->cost[p] = cost_of(t, &arithmetics[p], p);
        out->class_of[p] = p;
        for (size_t q = p; q-- > 0;)
            if (out->is_applicable[p] && out->is_applicable[q] && t->signature[q] == t->signature[p] &&
                t->n_seen[q] == t->n_seen[p])
                out->class_of[p] = q;
        if (out->is_applicable[p] &&
            (out->best == SIZE_MAX ||
             cost_of(t, &arithmetics[p], p) < cost_of(t, &arithmetics[out->best], out->best)))
            out->best = p;
    }
    find_possible(t, arithmetics, out);
    conclude(out);
}

/* ---- several layers ---- */

/* Two arithmetics are one class of all layers when they are in each that knows both. */
static bool is_one_class(const struct nd_identify_result *results, size_t n, size_t p, size_t q)
{
    for (size_t u = 0; u < n; u++)
        if (results[u].is_applicable[p] && results[u].is_applicable[q] &&
            results[u].class_of[p] != results[u].class_of[q])
            return false;
    return true;
}

/* The first arithmetic of its class, of those that are as possible. Where layers know some arithmetics only,
 * one may be like two that are not alike: it is of the class all of which it is like. What applies nowhere is
 * like nothing. */
static void find_class(const struct nd_identify_result *results, size_t n, size_t p,
                       struct nd_identify_result *out)
{
    out->class_of[p] = p;
    for (size_t head = 0; head < p && out->is_applicable[p]; head++) {
        bool is_like = out->class_of[head] == head && out->is_applicable[head] &&
                       out->is_possible[head] == out->is_possible[p];
        for (size_t q = head; q < p && is_like; q++)
            if (out->class_of[q] == head)
                is_like = is_one_class(results, n, p, q);
        if (is_like) {
            out->class_of[p] = head;
            return;
        }
    }
}

/* Layers differ in what applies to them: costs are by quantised value. */
static bool is_better(const struct nd_identify_result *out, size_t p, size_t q)
{
    if (out->is_possible[p] != out->is_possible[q])
        return out->is_possible[p];
    return out->cost[p] * (double)out->n_seen[q] < out->cost[q] * (double)out->n_seen[p];
}

static void add_layer(const struct nd_identify_result *layer, struct nd_identify_result *out)
{
    out->n += layer->n;
    out->n_open += layer->n_open;
    out->n_deciding += layer->n_deciding;
    for (size_t p = 0; p < out->n_arithmetics; p++) {
        out->is_applicable[p] = out->is_applicable[p] || layer->is_applicable[p];
        out->is_possible[p] = out->is_possible[p] && layer->is_possible[p];
        out->n_wrong[p] += layer->n_wrong[p];
        out->n_seen[p] += layer->n_seen[p];
        out->cost[p] += layer->cost[p];
    }
}

void nd_identify_combine(const struct nd_identify_result *results, size_t n, struct nd_identify_result *out)
{
    bool has_none = false;
    *out = (struct nd_identify_result){.best = SIZE_MAX};
    nd_arithmetics(&out->n_arithmetics);
    for (size_t p = 0; p < out->n_arithmetics; p++)
        out->is_possible[p] = true;
    for (size_t u = 0; u < n; u++) {
        add_layer(&results[u], out);
        has_none = has_none || results[u].verdict == ND_IDENTIFY_NONE;
    }
    for (size_t p = 0; p < out->n_arithmetics; p++) {
        find_class(results, n, p, out);
        if (!out->is_applicable[p])
            continue;
        if (out->best == SIZE_MAX || is_better(out, p, out->best))
            out->best = p;
    }
    conclude(out);
    out->is_split = out->verdict == ND_IDENTIFY_NONE && !has_none;
}

/* ---- what thresholds say ---- */

struct nd_identify_point nd_identify_curve(const struct nd_identify_tally *t, size_t bin)
{
    uint64_t n = t->bin_n[bin], up = t->bin_up[bin];
    return (struct nd_identify_point){.n = n,
                                      .p = n > 0 ? (double)up / (double)n : NAN,
                                      .low = nd_binomial_lower(up, n, 0.025),
                                      .high = nd_binomial_upper(up, n, 0.025)};
}

struct nd_identify_bracket nd_identify_threshold(const struct nd_identify_tally *t, bool is_negative)
{
    struct nd_identify_bracket all = {0};
    for (size_t b = 0; b < ND_IDENTIFY_BINADES; b++) {
        const struct nd_identify_bracket *from = &t->binades[is_negative][b];
        if (from->n_up > 0)
            all.min_up = all.n_up > 0 ? fmin(all.min_up, from->min_up) : from->min_up;
        if (from->n_down > 0)
            all.max_down = all.n_down > 0 ? fmax(all.max_down, from->max_down) : from->max_down;
        all.n_up += from->n_up;
        all.n_down += from->n_down;
    }
    return all;
}
