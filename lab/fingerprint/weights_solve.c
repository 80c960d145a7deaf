/* Which weights arithmetics agree with a device's quantised values. */
#include "lab/fingerprint/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "lab/experiment/candidates.h"

/* ---- the arithmetic ---- */

const char *nd_weight_name(const struct nd_weight_arithmetic *p, char buf[ND_WEIGHT_NAME_BYTES])
{
    char r[32] = "exact", factor[32] = "divide";
    if (p->scope == ND_WEIGHTS_STAY) {
        snprintf(buf, ND_WEIGHT_NAME_BYTES, "stay");
        return buf;
    }
    if (p->r_bits != ND_MULTIPLIER_EXACT)
        snprintf(r, sizeof r, "%d:%s", p->r_bits, nd_rounding_name(p->r_rounding));
    if (p->factor_bits != ND_MULTIPLIER_EXACT)
        snprintf(factor, sizeof factor, "factor:%d:%s", p->factor_bits, nd_rounding_name(p->factor_rounding));
    snprintf(buf, ND_WEIGHT_NAME_BYTES, "fit-%s%s:%.0f,%.0f+ratio:%s+%s+rounding:%s",
             p->scope == ND_WEIGHTS_FIT_COLUMN ? "column" : "tensor", p->is_always ? "-always" : "", p->lowest,
             p->greatest, r, factor, nd_rounding_name(p->rounding));
    return buf;
}

double nd_weight_ratio(const struct nd_weight_arithmetic *p, double least, double most)
{
    double r = fmax(most / p->greatest, least / p->lowest);
    if (p->scope == ND_WEIGHTS_STAY || r <= 0 || (r <= 1 && !p->is_always))
        return 1;
    return nd_multiplier_round(r, p->r_bits, p->r_rounding);
}

double nd_weight_qvalue(const struct nd_weight_arithmetic *p, double r, double w)
{
    if (p->scope == ND_WEIGHTS_STAY)
        return w;
    double scaled = w / r;
    if (p->factor_bits != ND_MULTIPLIER_EXACT)
        scaled = w * ldexp(nd_round_value(ldexp(1, p->factor_bits) / r, p->factor_rounding), -p->factor_bits);
    return fmin(fmax(nd_round_value(scaled, p->rounding), p->lowest), p->greatest);
}

static void reach(const double *w, size_t n, double *least, double *most)
{
    *least = 0;
    *most = 0;
    for (size_t i = 0; i < n; i++) {
        *least = fmin(*least, w[i]);
        *most = fmax(*most, w[i]);
    }
}

static double ratio_of(const struct nd_weight_arithmetic *p, const double *w, size_t n_columns, size_t n_terms,
                       size_t column)
{
    double least, most;
    if (p->scope == ND_WEIGHTS_FIT_COLUMN)
        reach(w + column * n_terms, n_terms, &least, &most);
    else
        reach(w, n_columns * n_terms, &least, &most);
    return nd_weight_ratio(p, least, most);
}

void nd_weight_fit(const struct nd_weight_arithmetic *p, const double *w, size_t n_columns, size_t n_terms,
                   double *w8, double *r)
{
    for (size_t c = 0; c < n_columns; c++) {
        r[c] = ratio_of(p, w, n_columns, n_terms, c);
        for (size_t t = 0; t < n_terms; t++)
            w8[c * n_terms + t] = nd_weight_qvalue(p, r[c], w[c * n_terms + t]);
    }
}

/* ---- the ratio ---- */

/* The sums of (x - zero_x) of each row, and the rows at which a column's quantised value changes. */
struct sweep {
    const struct nd_weight_answers *a;
    double *sums;                /* [n_rows] */
    uint32_t *rows, *first_rows; /* of column c: rows[first_rows[c]] .. rows[first_rows[c + 1] - 1] */
};

static bool changes(const double *qvalues, size_t i, size_t n)
{
    bool is_inside = qvalues[i] > 0 && qvalues[i] < 255;
    return is_inside &&
           ((i > 0 && qvalues[i - 1] != qvalues[i]) || (i + 1 < n && qvalues[i + 1] != qvalues[i]));
}

static bool init_sweep(struct sweep *s, const struct nd_weight_answers *a)
{
    const struct nd_columns *p = &a->about;
    uint32_t n = 0;
    *s = (struct sweep){.a = a,
                        .sums = nd_calloc(p->n_rows, sizeof *s->sums),
                        .rows = nd_calloc(p->n_columns * p->n_rows, sizeof *s->rows),
                        .first_rows = nd_calloc(p->n_columns + 1, sizeof *s->first_rows)};
    if (s->sums == NULL || s->rows == NULL || s->first_rows == NULL)
        return false;
    for (size_t i = 0; i < p->n_terms * p->n_rows; i++)
        s->sums[i % p->n_rows] += (double)((int64_t)a->x[i] - p->zero_x);
    for (size_t c = 0; c < p->n_columns; c++) {
        for (size_t i = 0; i < p->n_rows; i++)
            if (changes(a->qvalues + c * p->n_rows, i, p->n_rows))
                s->rows[n++] = (uint32_t)i;
        s->first_rows[c + 1] = n;
    }
    return true;
}

static void deinit_sweep(struct sweep *s)
{
    free(s->sums);
    free(s->rows);
    free(s->first_rows);
}

/* All weights of a column are the same. */
static uint64_t count_wrong(const struct sweep *s, const struct nd_requantise *rest,
                            const struct nd_weight_arithmetic *p, uint64_t enough)
{
    const struct nd_columns *about = &s->a->about;
    uint64_t wrong = 0;
    double least, most, tensor;
    reach(s->a->w, about->n_columns * about->n_terms, &least, &most);
    tensor = nd_weight_ratio(p, least, most);
    for (size_t c = 0; c < about->n_columns && wrong <= enough; c++) {
        double w = s->a->w[c * about->n_terms];
        double r = p->scope == ND_WEIGHTS_FIT_TENSOR ? tensor : nd_weight_ratio(p, fmin(w, 0), fmax(w, 0));
        double w8 = nd_weight_qvalue(p, r, w);
        const struct nd_requantiser q =
            nd_requantise_prepare(rest, s->a->multiplier * r, (double)about->zero_y);
        for (uint32_t i = s->first_rows[c]; i < s->first_rows[c + 1]; i++)
            wrong += nd_requantise_qvalue(&q, w8 * s->sums[s->rows[i]], 0, 255) !=
                     s->a->qvalues[c * about->n_rows + s->rows[i]];
    }
    return wrong;
}

struct ratio_search {
    const struct nd_requantise *rest;
    const struct sweep *sweeps;
    size_t n;
    struct nd_weight_findings *out;
    struct nd_candidates candidates;
};

/* Those with the fewest wrong quantised values stay. */
static void try_ratio(struct ratio_search *s, const struct nd_weight_arithmetic *p)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < s->n && wrong <= s->out->n_wrong; i++)
        wrong += count_wrong(&s->sweeps[i], s->rest, p, s->out->n_wrong);
    nd_candidates_fewest(&s->candidates, p, wrong, &s->out->n_wrong);
}

static void try_bits(struct ratio_search *s, struct nd_weight_arithmetic p)
{
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_UP, ND_ROUND_FLOOR,
                                                 ND_ROUND_CEIL};
    for (p.r_bits = 1; p.r_bits <= ND_MULTIPLIER_MAX_BITS; p.r_bits++)
        for (size_t r = 0; r < sizeof roundings / sizeof roundings[0]; r++) {
            p.r_rounding = roundings[r];
            try_ratio(s, &p);
        }
    p.r_bits = ND_MULTIPLIER_EXACT;
    p.r_rounding = ND_ROUND_HALF_EVEN;
    try_ratio(s, &p);
}

static void try_ratios(struct ratio_search *s)
{
    try_ratio(s, &(struct nd_weight_arithmetic){.scope = ND_WEIGHTS_STAY});
    for (int form = 0; form < 16; form++)
        try_bits(s, (struct nd_weight_arithmetic){.scope = (form & 1) != 0 ? ND_WEIGHTS_FIT_TENSOR
                                                                           : ND_WEIGHTS_FIT_COLUMN,
                                                  .is_always = (form & 2) != 0,
                                                  .greatest = (form & 4) != 0 ? 128 : 127,
                                                  .lowest = (form & 8) != 0 ? -127 : -128});
}

enum nd_status nd_weight_solve_ratio(const struct nd_requantise *rest, const struct nd_weight_answers *answers,
                                     size_t n_answers, struct nd_weight_findings *out, struct nd_error *err)
{
    struct nd_weight_findings found = {.n_wrong = UINT64_MAX};
    struct sweep *sweeps = nd_calloc(n_answers, sizeof *sweeps);
    struct ratio_search search = {
        .rest = rest, .sweeps = sweeps, .n = n_answers, .out = &found, .candidates = ND_CANDIDATES(&found)};
    search.candidates.failed = sweeps == NULL;
    for (size_t i = 0; !search.candidates.failed && i < n_answers; i++) {
        search.candidates.failed = !init_sweep(&sweeps[i], &answers[i]);
        if (!search.candidates.failed)
            found.n_deciding += sweeps[i].first_rows[answers[i].about.n_columns];
    }
    if (!search.candidates.failed)
        try_ratios(&search);
    for (size_t i = 0; sweeps != NULL && i < n_answers; i++)
        deinit_sweep(&sweeps[i]);
    free(sweeps);
    enum nd_status status = nd_candidates_end(&search.candidates, err);
    if (status == ND_OK)
        *out = found;
    return status;
}

/* ---- the table ---- */

/* A column with a great weight. */
struct column {
    const struct nd_weight_answers *answers;
    size_t split;          /* terms of the great weight */
    double large;          /* what it becomes */
    const double *qvalues; /* of the rows */
    struct nd_requantiser requantiser;
};

/* How many rows w8 after the great weight does not give, as far as `enough`. */
static uint64_t count_rows(const struct column *c, double w8, uint64_t enough)
{
    const struct nd_columns *about = &c->answers->about;
    uint64_t wrong = 0;
    for (size_t i = 0; i < about->n_rows && wrong <= enough; i++) {
        double sum = 0;
        for (size_t t = 0; t < about->n_terms; t++)
            sum += (t < c->split ? c->large : w8) *
                   (double)((int64_t)c->answers->x[t * about->n_rows + i] - about->zero_x);
        wrong += nd_requantise_qvalue(&c->requantiser, sum, 0, 255) != c->qvalues[i];
    }
    return wrong;
}

struct nd_weight_entry nd_weight_read_entry(const struct nd_requantise *rest,
                                            const struct nd_weight_arithmetic *p,
                                            const struct nd_weight_answers *a, size_t split, size_t column)
{
    const struct nd_columns *about = &a->about;
    const double *w = a->w + column * about->n_terms;
    struct nd_weight_entry entry = {.n_wrong = UINT64_MAX};
    double r = nd_weight_ratio(p, fmin(w[0], 0), fmax(w[0], 0));
    double own = ratio_of(p, a->w, about->n_columns, about->n_terms, column);
    if (own > r || own < r || r <= 1)
        return entry;
    const struct column c = {.answers = a,
                             .split = split,
                             .large = w[0] > 0 ? p->greatest : p->lowest,
                             .qvalues = a->qvalues + column * about->n_rows,
                             .requantiser =
                                 nd_requantise_prepare(rest, a->multiplier * r, (double)about->zero_y)};
    entry.is_known = true;
    /* What it is likely to be says soon of the others that they are worse. */
    double likely = fmin(fmax(rint(w[split] / r), p->lowest), p->greatest);
    uint64_t least = count_rows(&c, likely, UINT64_MAX);
    for (double w8 = p->lowest; w8 <= p->greatest; w8++) {
        uint64_t wrong = count_rows(&c, w8, least);
        if (wrong > least)
            continue;
        if (wrong < entry.n_wrong)
            entry.low = w8;
        entry.high = w8;
        entry.n_wrong = wrong;
        least = wrong;
    }
    return entry;
}

/* What was read off under one way to round r. */
struct reading {
    double w, r;
    struct nd_weight_entry entry;
};

static bool agrees(const struct nd_weight_arithmetic *p, const struct reading *readings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double w8 = nd_weight_qvalue(p, readings[i].r, readings[i].w);
        if (w8 < readings[i].entry.low || w8 > readings[i].entry.high)
            return false;
    }
    return true;
}

static void try_factors(struct nd_weight_arithmetic p, const struct reading *readings, size_t n,
                        struct nd_candidates *candidates)
{
    enum { MIN_BITS = 6, MAX_BITS = 24 };
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_UP, ND_ROUND_HALF_AWAY,
                                                 ND_ROUND_FLOOR,     ND_ROUND_CEIL,    ND_ROUND_TO_ZERO};
    static const enum nd_rounding factors[] = {ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR, ND_ROUND_CEIL};
    for (size_t i = 0; i < sizeof roundings / sizeof roundings[0]; i++) {
        p.rounding = roundings[i];
        p.factor_bits = ND_MULTIPLIER_EXACT;
        p.factor_rounding = ND_ROUND_HALF_EVEN;
        if (agrees(&p, readings, n))
            nd_candidates_keep(candidates, &p);
        for (p.factor_bits = MIN_BITS; p.factor_bits <= MAX_BITS; p.factor_bits++)
            for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
                p.factor_rounding = factors[f];
                if (agrees(&p, readings, n))
                    nd_candidates_keep(candidates, &p);
            }
    }
}

static size_t read_all(const struct nd_requantise *rest, const struct nd_weight_arithmetic *p,
                       const struct nd_weight_answers *answers, size_t n_answers, size_t split,
                       struct reading *out)
{
    size_t n = 0;
    for (size_t i = 0; i < n_answers; i++)
        for (size_t c = 0; c < answers[i].about.n_columns; c++) {
            const double *w = answers[i].w + c * answers[i].about.n_terms;
            const struct nd_weight_entry entry = nd_weight_read_entry(rest, p, &answers[i], split, c);
            if (entry.is_known)
                out[n++] = (struct reading){
                    .w = w[split], .r = nd_weight_ratio(p, fmin(w[0], 0), fmax(w[0], 0)), .entry = entry};
        }
    return n;
}

/* An earlier one has the same ratio: its factors were tried. */
static bool is_tried(const struct nd_weight_findings *found, size_t i)
{
    const struct nd_weight_arithmetic *p = &found->arithmetics[i];
    for (size_t j = 0; j < i; j++) {
        const struct nd_weight_arithmetic *q = &found->arithmetics[j];
        bool is_same_reach = p->greatest <= q->greatest && p->greatest >= q->greatest &&
                             p->lowest <= q->lowest && p->lowest >= q->lowest;
        if (is_same_reach && p->scope == q->scope && p->is_always == q->is_always && p->r_bits == q->r_bits &&
            p->r_rounding == q->r_rounding)
            return true;
    }
    return false;
}

enum nd_status nd_weight_solve_table(const struct nd_requantise *rest, const struct nd_weight_answers *answers,
                                     size_t n_answers, size_t split, struct nd_weight_findings *found,
                                     struct nd_error *err)
{
    struct nd_weight_findings whole = {.n_deciding = found->n_deciding, .n_wrong = found->n_wrong};
    struct nd_candidates candidates = ND_CANDIDATES(&whole);
    size_t n_columns = 0;
    for (size_t i = 0; i < n_answers; i++)
        n_columns += answers[i].about.n_columns;
    struct reading *readings = nd_calloc(n_columns, sizeof *readings);
    candidates.failed = readings == NULL;
    for (size_t i = 0; !candidates.failed && i < found->n_arithmetics; i++) {
        const struct nd_weight_arithmetic *p = &found->arithmetics[i];
        if (p->scope == ND_WEIGHTS_STAY)
            nd_candidates_keep(&candidates, p);
        else if (!is_tried(found, i))
            try_factors(*p, readings, read_all(rest, p, answers, n_answers, split, readings), &candidates);
    }
    free(readings);
    enum nd_status status = nd_candidates_end(&candidates, err);
    if (status != ND_OK)
        return status;
    free(found->arithmetics);
    *found = whole;
    return ND_OK;
}
