/* uint8 weights that do not fit 8 bits with a sign. */
#include "lab/fingerprint/weights.h"
#include "lab/fingerprint/section.h"

#include <math.h>

#include "core/random.h"

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
        const struct nd_requantiser s =
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
