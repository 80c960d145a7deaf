/* Whether two arithmetics give the same quantised values for every sum that a product can have.
 *
 * Of one channel an arithmetic is a function of one number, t = sum + beta, that never falls. Channels whose
 * scalings are equal but for beta, and whose betas are the same distance apart in both arithmetics, share that
 * pair of functions: they are looked at once, over all t that any of them can have. */
#include <math.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/error.h"
#include "core/memory.h"

/* A pair of functions of q, a sum as scalings take it, and the q that are possible. */
struct pair {
    struct nd_htp_scaling scalings[2];
    struct nd_htp_bounds bounds;
    double low, high;
};

/* Whole numbers below it, and halves of them, are exact. */
#define LARGEST_SUM 0x1p50

static double qvalue_of(const struct pair *p, int arithmetic, double q)
{
    return nd_htp_scale(&p->scalings[arithmetic], q, &p->bounds);
}

/* The greatest q between inside, where the arithmetic has the quantised value, and outside, where it has it
 * not. */
static double last_of_qvalue(const struct pair *p, int arithmetic, double qvalue, double inside, double outside)
{
    while (outside - inside > 1) {
        double middle = floor((inside + outside) / 2);
        if (qvalue_of(p, arithmetic, middle) == qvalue)
            inside = middle;
        else
            outside = middle;
    }
    return inside;
}

/* The greatest q up to p->high with the quantised value that arithmetic 0 has at q. *length is that of the run
 * before, a guess for this one. */
static double end_of_run(const struct pair *p, double q, double qvalue, double *length)
{
    double inside = q, outside = p->high + 1, guess = q + *length - 1;
    if (guess < p->high && qvalue_of(p, 0, guess) == qvalue) {
        if (qvalue_of(p, 0, guess + 1) != qvalue)
            return guess;
        inside = guess + 1;
    }
    for (double step = 1; inside + step <= p->high; step *= 2) {
        if (qvalue_of(p, 0, inside + step) != qvalue) {
            outside = inside + step;
            break;
        }
        inside += step;
    }
    inside = last_of_qvalue(p, 0, qvalue, inside, outside);
    *length = inside - q + 1;
    return inside;
}

/* The first q at which the quantised values differ; false: there is none. */
static bool find_unequal(const struct pair *p, double *out)
{
    double length = 1, end;
    for (double q = p->low; q <= p->high; q = end + 1) {
        double qvalue = qvalue_of(p, 0, q);
        *out = q;
        if (qvalue_of(p, 1, q) != qvalue)
            return true;
        end = end_of_run(p, q, qvalue, &length);
        if (qvalue_of(p, 1, end) == qvalue)
            continue;
        *out = last_of_qvalue(p, 1, qvalue, q, end) + 1;
        return true;
    }
    return false;
}

/* ---- the sums of a channel ---- */

struct proof {
    struct nd_htp_job jobs[2];
    struct nd_htp_weights weights;
    struct nd_htp_scaling *scalings[2];
    struct pair *pairs; /* [n_columns] */
    double min_x, greatest_x, zero_x;
    bool is_fixed; /* constant weights */
    bool is_word;
};

static struct nd_htp_bounds sums_of(const struct proof *p, size_t column)
{
    const struct nd_htp_weights *weights = &p->weights;
    struct nd_htp_bounds sums = {0, 0};
    if (!p->is_fixed) {
        const double least = -128, greatest = 127, n = (double)weights->n_rows;
        sums.high = n * fmax(greatest * p->greatest_x, least * p->min_x);
        sums.low = n * fmin(greatest * p->min_x, least * p->greatest_x);
        return sums;
    }
    for (size_t row = 0; row < nd_htp_n_rows(weights, column); row++) {
        double v = weights->view.x[nd_htp_place(weights, column, row)];
        sums.high += v * (v > 0 ? p->greatest_x : p->min_x);
        sums.low += v * (v > 0 ? p->min_x : p->greatest_x);
    }
    return sums;
}

/* What of uint16 sums goes lost before the scaling: q = floor((a + correction) / 256) - offset. */
static double correction_of(const struct proof *p, size_t column)
{
    return p->zero_x * p->weights.sums[column];
}

static double offset_of(double correction)
{
    return floor((correction + 128) / 256);
}

static void find_range(const struct proof *p, size_t column, struct pair *pair)
{
    struct nd_htp_bounds sums = sums_of(p, column);
    double correction = correction_of(p, column);
    pair->low = sums.low;
    pair->high = sums.high;
    if (!p->is_word)
        return;
    if (p->is_fixed) {
        pair->low = floor((sums.low + correction) / 256) - offset_of(correction);
        pair->high = floor((sums.high + correction) / 256) - offset_of(correction);
    } else { /* the correction depends on the input and moves the sum by less than one */
        pair->low = floor(sums.low / 256) - 1;
        pair->high = floor(sums.high / 256) + 1;
    }
}

/* ---- channels together ---- */

static bool is_whole(const struct nd_htp_scaling *s)
{
    return s->beta == floor(s->beta) && fabs(s->beta) < LARGEST_SUM && s->c > 0 && s->step > 0 &&
           isfinite(s->c * s->step);
}

static bool make_pairs(struct proof *p)
{
    for (size_t c = 0; c < p->weights.n_columns; c++) {
        struct pair *pair = &p->pairs[c];
        *pair = (struct pair){.scalings = {p->scalings[0][c], p->scalings[1][c]},
                              .bounds = nd_htp_bounds_of(&p->jobs[0])};
        find_range(p, c, pair);
        if (!is_whole(&pair->scalings[0]) || !is_whole(&pair->scalings[1]) || pair->low < -LARGEST_SUM ||
            pair->high > LARGEST_SUM)
            return false;
    }
    return true;
}

static bool is_same_but_beta(const struct nd_htp_scaling *a, const struct nd_htp_scaling *b)
{
    return a->c == b->c && a->step == b->step && a->half == b->half && a->zero == b->zero;
}

static double distance(const struct pair *p)
{
    return p->scalings[0].beta - p->scalings[1].beta;
}

/* Widens the pair so that it covers the other one as well; false: their functions differ. */
static bool take_in(struct pair *pair, const struct pair *other)
{
    double shift = other->scalings[0].beta - pair->scalings[0].beta;
    if (!is_same_but_beta(&pair->scalings[0], &other->scalings[0]) ||
        !is_same_but_beta(&pair->scalings[1], &other->scalings[1]) || distance(pair) != distance(other))
        return false;
    pair->low = fmin(pair->low, other->low + shift);
    pair->high = fmax(pair->high, other->high + shift);
    return true;
}

static void note_unequal(const struct proof *p, size_t column, double q, struct nd_layer_proof *proof)
{
    if (proof->n_unequal++ > 0)
        return;
    double correction = correction_of(p, column);
    proof->channel = column / p->weights.n_phases;
    proof->sum = q;
    if (p->is_word)
        proof->sum = p->is_fixed ? fmax(256 * (q + offset_of(correction)) - correction, sums_of(p, column).low)
                                 : 256 * q;
    for (int i = 0; i < 2; i++)
        proof->qvalues[i] = qvalue_of(&p->pairs[column], i, q);
}

/* Which of the columns from..n - 1 of one group, `group[c] == from`, have an unequal sum. */
static void look_at_each(const struct proof *p, const size_t *group, size_t from, struct nd_layer_proof *proof,
                         bool *is_unequal)
{
    for (size_t c = from; c < p->weights.n_columns; c++) {
        double q;
        if (group[c] != from || !find_unequal(&p->pairs[c], &q))
            continue;
        note_unequal(p, c, q, proof);
        if (is_unequal != NULL)
            is_unequal[c / p->weights.n_phases] = true;
    }
}

static enum nd_status look_at_all(const struct proof *p, struct nd_layer_proof *proof, bool *is_unequal,
                                  struct nd_error *err)
{
    size_t n = p->weights.n_columns, n_groups = 0;
    ND_FREED size_t *group = nd_calloc(n, sizeof *group), *firsts = nd_calloc(n, sizeof *firsts);
    ND_FREED struct pair *whole = nd_calloc(n, sizeof *whole);
    ND_TRY_MEMORY(group != NULL && firsts != NULL && whole != NULL, err);
    for (size_t c = 0; c < n; c++) {
        size_t g = 0;
        while (g < n_groups && !take_in(&whole[g], &p->pairs[c]))
            g++;
        if (g == n_groups) {
            whole[g] = p->pairs[c];
            firsts[n_groups++] = c;
        }
        group[c] = firsts[g];
        proof->n_sums += p->pairs[c].high - p->pairs[c].low + 1;
    }
    for (size_t g = 0; g < n_groups; g++) {
        double q;
        if (find_unequal(&whole[g], &q))
            look_at_each(p, group, firsts[g], proof, is_unequal);
    }
    proof->end = proof->n_unequal > 0 ? ND_LAYER_PROOF_UNEQUAL : ND_LAYER_PROOF_EQUAL;
    proof->reason = NULL;
    return ND_OK;
}

/* ---- the layer ---- */

/* Whether calculated weights, and those that are fed, fit 8 signed bits whatever they are. */
static bool always_fits(const struct proof *p)
{
    enum { STEP = 257, MIDDLE = 128 };
    const struct nd_linear_input *w = &p->jobs[0].call->inputs[1];
    int64_t zero = w->quant->zero_point[0];
    if (w->values->dtype == ND_DTYPE_U16)
        return (2 * zero + STEP) / (2 * STEP) == MIDDLE;
    return p->jobs[0].layer->origins[1] == ND_EXACT_FROM_LAYER || zero == MIDDLE;
}

static enum nd_status look_at_columns(struct proof *p, struct nd_layer_proof *proof, bool *is_unequal,
                                      struct nd_error *err)
{
    if (!p->is_fixed && !always_fits(p)) {
        proof->reason = "the device rescales its second operand, which depends on the values";
        return ND_OK;
    }
    p->pairs = nd_calloc(p->weights.n_columns, sizeof *p->pairs);
    ND_TRY_MEMORY(p->pairs != NULL, err);
    if (!make_pairs(p)) {
        proof->reason = "its sums are too large for exact arithmetic";
        return ND_OK;
    }
    proof->n_channels = p->weights.n_columns;
    return look_at_all(p, proof, is_unequal, err);
}

static enum nd_status make_scalings(struct proof *p, bool *are_covered, struct nd_error *err)
{
    enum nd_status status = nd_htp_weights_init(&p->weights, &p->jobs[0], err);
    *are_covered = true;
    for (int i = 0; i < 2 && status == ND_OK && *are_covered; i++) {
        p->jobs[i].is_covered = are_covered;
        status = nd_htp_linear_scalings(&p->jobs[i], &p->weights, &p->scalings[i], err);
    }
    return status;
}

static enum nd_status prove_unsigned(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                     const struct nd_exact_layer *layer, struct nd_layer_proof *proof,
                                     bool *is_unequal, struct nd_error *err)
{
    struct proof p = {.jobs = {{.arithmetic = a, .layer = layer, .call = layer->call},
                               {.arithmetic = b, .layer = layer, .call = layer->call}}};
    bool are_covered = false;
    *proof = (struct nd_layer_proof){.reason = "its arithmetic is not known"};
    if (!nd_layer_is_product(layer) || !nd_htp_is_known_product(&p.jobs[0]))
        return ND_OK;
    enum nd_dtype dtype = layer->call->inputs[0].values->dtype;
    double low, high;
    nd_qvalue_range(dtype, &low, &high);
    p.zero_x = (double)layer->call->inputs[0].quant->zero_point[0];
    p.min_x = fmin(low - p.zero_x, 0);
    p.greatest_x = fmax(high - p.zero_x, 0);
    p.is_fixed = layer->origins[1] == ND_EXACT_FROM_CONSTANT;
    p.is_word = layer->dtype == ND_DTYPE_U16;
    enum nd_status status = make_scalings(&p, &are_covered, err);
    if (status == ND_OK && are_covered)
        status = look_at_columns(&p, proof, is_unequal, err);
    nd_htp_weights_deinit(&p.weights);
    ND_FREE_ALL(p.scalings[0], p.scalings[1], p.pairs);
    return status;
}

enum nd_status nd_layer_product_prove(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                      const struct nd_exact_layer *layer, struct nd_layer_proof *proof,
                                      bool *is_unequal, struct nd_error *err)
{
    struct nd_htp_unsigned room;
    const struct nd_exact_layer *seen = nd_htp_as_unsigned(layer, &room);
    ND_TRY_MEMORY(seen != NULL, err);
    enum nd_status status = prove_unsigned(a, b, seen, proof, is_unequal, err);
    bool is_moved = seen != layer && layer->call->out_quant->n > 0;
    int64_t higher =
        is_moved ? seen->call->out_quant->zero_point[0] - layer->call->out_quant->zero_point[0] : 0;
    for (size_t k = 0; k < 2; k++)
        proof->qvalues[k] -= (double)higher;
    nd_htp_unsigned_deinit(&room);
    return status;
}
