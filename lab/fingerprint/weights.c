/* uint8 weights that do not fit 8 bits with a sign: which arithmetics (weights.h) agree with the quantised
 * values of a device, and asking it (docs/reference/datasheet.md). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/random.h"
#include "lab/experiment/candidates.h"
#include "lab/fingerprint/section.h"
#include "lab/fingerprint/weights.h"

/* ---- the arithmetic ---- */

static const char *nd_weight_name(const struct nd_weight_arithmetic *p, char buf[ND_WEIGHT_NAME_BYTES])
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

/* r of weights that reach from least to most, of the column or the tensor as the scope has it. */
static double nd_weight_ratio(const struct nd_weight_arithmetic *p, double least, double most)
{
    double r = fmax(most / p->greatest, least / p->lowest);
    if (p->scope == ND_WEIGHTS_STAY || r <= 0 || (r <= 1 && !p->is_always))
        return 1;
    return nd_multiplier_round(r, p->r_bits, p->r_rounding);
}

static double nd_weight_qvalue(const struct nd_weight_arithmetic *p, double r, double w)
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
        const struct nd_requantise_ready q =
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
    ND_TRY(nd_candidates_end(&search.candidates, err));
    *out = found;
    return ND_OK;
}

/* ---- the table ---- */

/* A column with a great weight. */
struct column {
    const struct nd_weight_answers *answers;
    size_t split;          /* terms of the great weight */
    double large;          /* what it becomes */
    const double *qvalues; /* of the rows */
    struct nd_requantise_ready requantiser;
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
    ND_TRY(nd_candidates_end(&candidates, err));
    free(found->arithmetics);
    *found = whole;
    return ND_OK;
}

/* ---- uint8 weights that do not fit 8 bits with a sign ---- */

enum { GREATEST_QVALUE = 255 };

/* ---- one question ---- */

/* All bits of the multiplier are in the scale of x. */
static void set_multiplier(struct nd_columns *q, double multiplier)
{
    int exponent;
    double mantissa = frexp(multiplier, &exponent);
    q->scale_x = (float)ldexp(mantissa, -5);
    q->scales_w[0] = 0x1p-7F;
    q->scale_y = (float)ldexp(1, -12 - exponent);
}

/* Whether the device answers. */
static bool ask(struct nd_experiment *e, struct nd_columns *q, struct nd_weight_answers *out)
{
    size_t n = q->n_columns * q->n_terms;
    double *w = nd_experiment_alloc(e, n, sizeof *w);
    if (w == NULL || !nd_columns_ask(e, q))
        return false;
    for (size_t i = 0; i < n; i++)
        w[i] = (double)(q->weights[i] - q->zero_w);
    *out = (struct nd_weight_answers){.about = *q,
                                      .x = q->x,
                                      .w = w,
                                      .qvalues = q->qvalues,
                                      .multiplier =
                                          (double)q->scale_x * (double)q->scales_w[0] / (double)q->scale_y};
    return true;
}

/* ---- equal weights ---- */

enum { EQUAL_TERMS = 17, MAX_SUM = EQUAL_TERMS * 127, EQUAL_ROWS = 2 * MAX_SUM + 1 };

/* A column for each weight but 0, that of the zero point; the sum of x sweeps in steps of 1. */
static bool ask_equal(struct nd_experiment *e, double multiplier, int64_t zero_w, int64_t zero_y,
                      struct nd_weight_answers *out)
{
    struct nd_columns *q = nd_columns_make(e, EQUAL_ROWS, EQUAL_TERMS, GREATEST_QVALUE);
    if (q == NULL)
        return false;
    for (size_t i = 0; i < EQUAL_ROWS; i++) {
        int64_t rest = (int64_t)i - MAX_SUM;
        for (int64_t t = 0; t < EQUAL_TERMS; t++) {
            int64_t share = rest / (EQUAL_TERMS - t);
            q->x[(size_t)t * EQUAL_ROWS + i] = (uint8_t)(q->zero_x + share);
            rest -= share;
        }
    }
    for (size_t i = 0; i < (size_t)GREATEST_QVALUE * EQUAL_TERMS; i++) {
        int64_t qvalue = (int64_t)(i / EQUAL_TERMS);
        q->weights[i] = (int16_t)(qvalue >= zero_w ? qvalue + 1 : qvalue);
    }
    q->zero_w = zero_w;
    q->zero_y = zero_y;
    set_multiplier(q, multiplier);
    return ask(e, q, out);
}

static void find_ratio(struct nd_experiment *e, struct nd_weights *w)
{
    static const struct {
        float mantissa;
        int exponent;
        int64_t zero_w, zero_y;
    } chosen[] = {{1.2345679F, -11, 0, 128},
                  {1.2345679F, -11, GREATEST_QVALUE, 128},
                  {1.7320508F, -12, 0, 77},
                  {1.6180340F, -12, GREATEST_QVALUE, 150}};
    enum { N_CHOSEN = sizeof chosen / sizeof chosen[0] };
    struct nd_weight_answers answers[N_CHOSEN];
    bool has_answers = true;
    for (size_t i = 0; has_answers && i < N_CHOSEN; i++) {
        has_answers = ask_equal(e, ldexp((double)chosen[i].mantissa, chosen[i].exponent), chosen[i].zero_w,
                                chosen[i].zero_y, &answers[i]);
        w->n_qvalues += (uint64_t)GREATEST_QVALUE * EQUAL_ROWS;
    }
    if (has_answers)
        nd_experiment_check(e, nd_weight_solve_ratio(&w->rest, answers, N_CHOSEN, &w->found, e->err));
}

/* ---- one great weight and another ---- */

enum { SPLIT = 9, TABLE_TERMS = SPLIT + 8, TABLE_ROWS = 384, MAX_TABLES = 8 };

struct tables {
    struct nd_weight_answers items[MAX_TABLES];
    size_t n;
};

/* A column for each quantised value behind a great weight, of the quantised value `great`. */
static void ask_table(struct nd_experiment *e, int64_t zero_w, int64_t great, struct tables *tables)
{
    struct nd_columns *q = nd_columns_make(e, TABLE_ROWS, TABLE_TERMS, GREATEST_QVALUE + 1);
    uint64_t seed = 4711 + (uint64_t)great;
    if (q == NULL)
        return;
    for (size_t i = 0; i < (size_t)TABLE_TERMS * TABLE_ROWS; i++)
        q->x[i] = (uint8_t)nd_random_next(&seed);
    for (size_t i = 0; i < (size_t)(GREATEST_QVALUE + 1) * TABLE_TERMS; i++)
        q->weights[i] = (int16_t)(i % TABLE_TERMS < SPLIT ? great : (int64_t)(i / TABLE_TERMS));
    q->zero_w = zero_w;
    q->zero_y = 128;
    set_multiplier(q, 0x1.1cp-10);
    tables->n += ask(e, q, &tables->items[tables->n]);
}

static void solve_table(struct nd_experiment *e, const struct tables *tables, struct nd_weights *w)
{
    if (!nd_experiment_goes_on(e))
        return;
    w->n_entries = 0;
    for (size_t i = 0; i < tables->n; i++)
        for (size_t c = 0; c <= GREATEST_QVALUE && w->found.n_arithmetics > 0; c++) {
            const struct nd_weight_entry entry =
                nd_weight_read_entry(&w->rest, &w->found.arithmetics[0], &tables->items[i], SPLIT, c);
            w->n_entries += entry.is_known && entry.high <= entry.low;
        }
    nd_experiment_check(e, nd_weight_solve_table(&w->rest, tables->items, tables->n, SPLIT, &w->found, e->err));
}

/* How many weights become something else under some arithmetic that is left, next to a great one. */
static size_t count_disputed(const struct nd_weight_findings *found, double great)
{
    size_t n = 0;
    for (double w = 1; w < great; w++)
        for (size_t p = 1; p < found->n_arithmetics; p++) {
            const struct nd_weight_arithmetic *a = &found->arithmetics[0], *b = &found->arithmetics[p];
            double x = nd_weight_qvalue(a, nd_weight_ratio(a, 0, great), w),
                   y = nd_weight_qvalue(b, nd_weight_ratio(b, 0, great), w);
            n += x < y || x > y;
        }
    return n;
}

static double choose_great(const struct nd_weight_findings *found)
{
    double best = 0;
    size_t most = 0;
    for (double great = 128; great <= GREATEST_QVALUE; great++) {
        size_t n = count_disputed(found, great);
        if (n > most)
            best = great;
        most = n > most ? n : most;
    }
    return best;
}

/* First some; then those on which what is left disagrees most, while there are any. */
static void find_table(struct nd_experiment *e, struct nd_weights *w)
{
    static const struct {
        int64_t zero_w, great;
    } chosen[] = {{0, 255}, {255, 0}, {0, 190}, {60, 255}};
    struct tables tables = {.n = 0};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++)
        ask_table(e, chosen[i].zero_w, chosen[i].great, &tables);
    solve_table(e, &tables, w);
    while (nd_experiment_goes_on(e) && tables.n < MAX_TABLES && w->found.n_arithmetics > 1) {
        double great = choose_great(&w->found);
        if (great < 1)
            break;
        ask_table(e, 0, (int64_t)great, &tables);
        solve_table(e, &tables, w);
    }
}

/* ---- fresh quantised values ---- */

enum { FRESH_ROWS = 256, FRESH_TERMS = 64, FRESH_COLUMNS = 128 };
enum { FRESH_QVALUES = FRESH_ROWS * FRESH_COLUMNS };
/* Real numbers of a step of a weight: about the 2 / 255 that spans -1 .. 1. Chosen. */
static const double min_scale_w = 0.004, max_scale_w = 0.012;

struct fresh {
    const struct nd_requantise *rest;
    struct nd_weight_answers answers;
    double *w8, *r, *sums; /* room for what becomes of them */
};

static size_t ask_fresh(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    static const int64_t zeros_w[] = {0, 231, 44, 128};
    struct fresh *f = context;
    struct nd_columns *q = nd_columns_make(e, FRESH_ROWS, FRESH_TERMS, FRESH_COLUMNS);
    f->w8 = nd_experiment_alloc(e, FRESH_COLUMNS * FRESH_TERMS, sizeof *f->w8);
    f->r = nd_experiment_alloc(e, FRESH_COLUMNS, sizeof *f->r);
    f->sums = nd_experiment_alloc(e, FRESH_QVALUES, sizeof *f->sums);
    if (!nd_experiment_goes_on(e))
        return 0;
    nd_columns_draw(q, seed);
    q->zero_w = zeros_w[i];
    q->scales_w[0] = (float)nd_random_between(seed, min_scale_w, max_scale_w);
    nd_columns_draw_step(q, seed);
    return ask(e, q, &f->answers) ? FRESH_QVALUES : 0;
}

static uint64_t count_right(const void *context, const void *arithmetic)
{
    const struct fresh *f = context;
    const struct nd_weight_answers *a = &f->answers;
    uint64_t right = 0;
    nd_weight_fit(arithmetic, a->w, FRESH_COLUMNS, FRESH_TERMS, f->w8, f->r);
    nd_columns_sum(&a->about, f->w8, f->sums);
    for (size_t i = 0; i < FRESH_QVALUES; i++) {
        const struct nd_requantise_ready s =
            nd_requantise_prepare(f->rest, a->multiplier * f->r[i / FRESH_ROWS], (double)a->about.zero_y);
        right += nd_requantise_qvalue(&s, f->sums[i], 0, GREATEST_QVALUE) == a->qvalues[i];
    }
    return right;
}

static const struct nd_confirmation confirmation = {
    .n_models = 4, .seed = 20261124, .ask = ask_fresh, .count_right = count_right};

bool nd_weights_are_known(const struct nd_experiment *e, const struct nd_weights *w)
{
    return w->has_rest && nd_experiment_is_confirmed(e, w->found.n_arithmetics);
}

void nd_weights_take(struct nd_experiment *e, struct nd_weights *out)
{
    struct nd_linear linear;
    *out = (struct nd_weights){.has_rest = false};
    nd_linear_take(e, ND_FORM_CONV, &linear); /* sums of weights that fit */
    out->has_rest = nd_experiment_is_confirmed(e, linear.found.n_arithmetics);
    if (!out->has_rest || !nd_experiment_goes_on(e))
        return;
    out->rest = linear.found.arithmetics[0];
    struct fresh fresh = {.rest = &out->rest};
    find_ratio(e, out);
    find_table(e, out);
    nd_experiment_own(e, out->found.arithmetics);
    nd_experiment_confirm(e, &confirmation, &fresh, ND_LEFT(&out->found));
}

/* ---- what is said of it ---- */

/* Of the first arithmetic, which stands for all that are left. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_weights *w)
{
    static const char *const scopes[] = {"stay what they are", "a column", "the tensor"};
    const struct nd_weight_arithmetic *p = &w->found.arithmetics[0];
    char buf[ND_REQUANTISE_NAME_BYTES];
    nd_tell_text(e, out, "fits", scopes[p->scope]);
    nd_tell_text(e, out, "requantises", nd_requantise_name(&w->rest, buf));
    if (p->scope == ND_WEIGHTS_STAY)
        return;
    nd_tell_int(e, out, "lowest", (int64_t)p->lowest);
    nd_tell_int(e, out, "greatest", (int64_t)p->greatest);
    nd_tell_bool(e, out, "only_where_needed", !p->is_always);
    nd_tell_rounding(e, out, "rounding", p->rounding);
    if (p->r_bits != ND_MULTIPLIER_EXACT) {
        nd_tell_int(e, out, "ratio_bits", p->r_bits);
        nd_tell_rounding(e, out, "ratio_rounding", p->r_rounding);
    }
    if (p->factor_bits != ND_MULTIPLIER_EXACT) {
        nd_tell_int(e, out, "factor_bits", p->factor_bits);
        nd_tell_rounding(e, out, "factor_rounding", p->factor_rounding);
    }
}

#define FIELD(member) ND_FIELD(struct nd_weight_arithmetic, member)
static const struct nd_issue issues[] = {
    {"the bits of the ratio and its rounding",
     "columns of equal weights under more multipliers",
     {FIELD(r_bits), FIELD(r_rounding)}},
    {"the factor of the weights and its rounding",
     "none of 8-bit quantised values where all give the same weights; else more great weights",
     {FIELD(factor_bits), FIELD(factor_rounding), FIELD(rounding)}},
    {"what the ratio is taken of",
     "more columns of equal weights",
     {FIELD(scope), FIELD(is_always), FIELD(lowest), FIELD(greatest)}},
    {NULL, NULL, {{0}}}};

static void tell(struct nd_experiment *e, const struct nd_weights *w, json_t *entries)
{
    enum { MAX_NAMES = 4 };
    char buf[ND_WEIGHT_NAME_BYTES];
    const struct nd_weight_findings *found = &w->found;
    bool is_known = nd_weights_are_known(e, w);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    if (!w->has_rest) {
        nd_tell_undecided(e, entry, "the weights",
                          "a known program for sums of weights that fit: section linear-u8");
        return;
    }
    nd_tell_counts(e, entry,
                   ND_COUNTS({"values", w->n_qvalues}, {"deciding", found->n_deciding},
                             {"wrong", found->n_wrong}, {"weights_read", w->n_entries},
                             {"possible_left", found->n_arithmetics}, {"fresh", e->n_fresh},
                             {"right", e->n_right}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < found->n_arithmetics && i < MAX_NAMES; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_weight_name(&found->arithmetics[i], buf));
    if (found->n_arithmetics == 0)
        nd_tell_unknown(e, entry);
    else if (is_known)
        describe(e, nd_tell_object(e, entry, "parameters"), w);
    nd_tell_issues(e, entry, issues, found->arithmetics, found->n_arithmetics, sizeof *found->arithmetics);
}

static void take_subject(struct nd_experiment *e, int kind, json_t *entries)
{
    struct nd_weights weights;
    (void)kind;
    nd_weights_take(e, &weights);
    tell(e, &weights, entries);
}

enum nd_status nd_section_weights(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const struct nd_subject subjects[] = {{"Conv", "u8 x u8 asymmetric -> u8", 0}};
    return nd_experiment_take_all(bench, subjects, sizeof subjects / sizeof subjects[0], take_subject, entries,
                                  err);
}
