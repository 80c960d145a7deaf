/* Sums of products of uint16 activations and uint8 weights, requantised to uint16: which low bits are dropped,
 * and how (linear_u16.h), and asking a device about it (docs/reference/datasheet.md). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/random.h"
#include "lab/experiment/candidates.h"
#include "lab/fingerprint/linear_u16.h"
#include "lab/fingerprint/section.h"

enum { GREATEST_QVALUE = 65535 };

static const char *nd_word_name(const struct nd_word_arithmetic *p, char buf[ND_WORD_NAME_BYTES])
{
    char rest[ND_REQUANTISE_NAME_BYTES], dropped[80] = "";
    if (p->dropped_bits > 0 && p->drops_together)
        snprintf(dropped, sizeof dropped, "drop:%d:%s+", p->dropped_bits, nd_rounding_name(p->sum_rounding));
    else if (p->dropped_bits > 0)
        snprintf(dropped, sizeof dropped, "drop:%d:%s+zero-part:%s+", p->dropped_bits,
                 nd_rounding_name(p->sum_rounding), nd_rounding_name(p->zero_rounding));
    snprintf(buf, ND_WORD_NAME_BYTES, "%s%s%s", dropped, nd_requantise_name(&p->rest, rest),
             p->is_multiplier_f32 ? "+multiplier-from:f32" : "");
    return buf;
}

/* A whole number in units of 2^p. */
static double drop_bits(const struct nd_word_arithmetic *p, double sum, double zero)
{
    double step = ldexp(1, -p->dropped_bits);
    if (p->drops_together)
        return nd_round_value((sum - zero) * step, p->sum_rounding);
    return nd_round_value(sum * step, p->sum_rounding) - nd_round_value(zero * step, p->zero_rounding);
}

static double multiplier_of(const struct nd_word_arithmetic *p, const struct nd_word_qvalues *c)
{
    if (p->is_multiplier_f32)
        return ldexp((double)(c->scale_x * c->scale_w / c->scale_y), p->dropped_bits);
    return ldexp((double)c->scale_x * (double)c->scale_w / (double)c->scale_y, p->dropped_bits);
}

/* How many of the first n quantised values the arithmetic gives. */
static uint64_t nd_word_count_right(const struct nd_word_arithmetic *p, const struct nd_word_qvalues *c,
                                    size_t n)
{
    const struct nd_requantise_ready r = nd_requantise_prepare(&p->rest, multiplier_of(p, c), c->zero_y);
    uint64_t right = 0;
    for (size_t i = 0; i < n; i++)
        right += nd_requantise_qvalue(&r, drop_bits(p, c->sums[i], c->zeros[i]), 0, GREATEST_QVALUE) ==
                 c->qvalues[i];
    return right;
}

struct search {
    const struct nd_word_qvalues *sets;
    size_t n_sets;
    struct nd_word_findings *out;
    struct nd_candidates candidates;
};

static uint64_t count(const struct search *search, const struct nd_word_arithmetic *p, size_t at_most)
{
    uint64_t right = 0;
    for (size_t s = 0; s < search->n_sets; s++)
        right +=
            nd_word_count_right(p, &search->sets[s], search->sets[s].n < at_most ? search->sets[s].n : at_most);
    return right;
}

static void try_arithmetic(struct search *search, const struct nd_word_arithmetic *p)
{
    enum { GLANCE = 512 };
    struct nd_word_findings *out = search->out;
    /* A glance that gives under nine tenths of what the best gave of everything ends it. */
    uint64_t n_glance = 0, glance = count(search, p, GLANCE);
    for (size_t s = 0; s < search->n_sets; s++)
        n_glance += search->sets[s].n < GLANCE ? search->sets[s].n : GLANCE;
    if ((double)glance * (double)out->n_qvalues < 0.9 * (double)out->n_right * (double)n_glance)
        return;
    uint64_t n_wrong = out->n_qvalues - out->n_right;
    nd_candidates_fewest(&search->candidates, p, out->n_qvalues - count(search, p, SIZE_MAX), &n_wrong);
    out->n_right = out->n_qvalues - n_wrong;
}

static const enum nd_rounding roundings[] = {ND_ROUND_FLOOR, ND_ROUND_HALF_UP, ND_ROUND_HALF_EVEN,
                                             ND_ROUND_CEIL};
enum { N_ROUNDINGS = sizeof roundings / sizeof roundings[0] };

static void try_drops(struct search *search, struct nd_word_arithmetic p)
{
    try_arithmetic(search, &p); /* nothing dropped */
    for (p.dropped_bits = 1; p.dropped_bits <= ND_WORD_MAX_DROPPED; p.dropped_bits++)
        for (size_t s = 0; s < N_ROUNDINGS; s++) {
            p.sum_rounding = roundings[s];
            p.drops_together = true;
            p.zero_rounding = ND_ROUND_HALF_EVEN;
            try_arithmetic(search, &p);
            p.drops_together = false;
            for (size_t z = 0; z < N_ROUNDINGS; z++) {
                p.zero_rounding = roundings[z];
                try_arithmetic(search, &p);
            }
        }
}

enum nd_status nd_word_solve(const struct nd_requantise *rests, size_t n_rests,
                             const struct nd_word_qvalues *sets, size_t n_sets, struct nd_word_findings *out,
                             struct nd_error *err)
{
    struct nd_word_findings findings = {0};
    struct search search = {
        .sets = sets, .n_sets = n_sets, .out = &findings, .candidates = ND_CANDIDATES(&findings)};
    for (size_t s = 0; s < n_sets; s++)
        findings.n_qvalues += sets[s].n;
    for (size_t r = 0; r < n_rests; r++)
        for (int f32 = 0; f32 < 2; f32++)
            try_drops(&search, (struct nd_word_arithmetic){.rest = rests[r], .is_multiplier_f32 = f32 != 0});
    ND_TRY(nd_candidates_end(&search.candidates, err));
    *out = findings;
    return ND_OK;
}

/* ---- sums of products of uint16 activations and uint8 weights, requantised to uint16 ---- */

/* What an experiment found. */
struct word {
    enum nd_linear_form form;
    size_t n_staircases;
    struct nd_threshold_sweep_findings stairs;
    struct nd_word_findings found;
};

/* ---- threshold sweep: quantised values are multiples of 256 about 2^15, sums are in units of 2^8 ---- */

struct stairs {
    struct nd_threshold_sweep items[ND_THRESHOLD_SWEEP_MULTIPLIERS];
    size_t n;
};

static void climb(struct nd_experiment *e, double multiplier, double zero_y, struct stairs *stairs,
                  const struct word *w)
{
    enum { MAX_SAMPLES = 24 };
    struct nd_threshold_sweep s = {.multiplier = multiplier, .zero_point = zero_y, .high = GREATEST_QVALUE};
    double range = fmin(GREATEST_QVALUE / multiplier, MAX_SAMPLES * ND_THRESHOLD_SWEEP_ROWS);
    s.n = ND_THRESHOLD_SWEEP_ROWS * (size_t)ceil(range / ND_THRESHOLD_SWEEP_ROWS);
    s.first = floor(fmax((-zero_y - 2) / multiplier, -(double)s.n / 2));
    if (nd_experiment_goes_on(e) && nd_threshold_sweep_ask(e, w->form, ND_DTYPE_U16, &s))
        stairs->items[stairs->n++] = s;
}

static void solve(struct nd_experiment *e, const struct stairs *stairs, struct word *w)
{
    w->n_staircases = stairs->n;
    if (nd_experiment_goes_on(e) &&
        nd_experiment_check(e, nd_threshold_sweep_solve(stairs->items, stairs->n, &w->stairs, e->err)))
        nd_experiment_own(e, w->stairs.arithmetics);
}

/* Multipliers of sums: small ones show a granule, large ones the bits of the multiplier. Then a few more, which
 * tell apart what those left. */
static void climb_all(struct nd_experiment *e, struct word *w)
{
    enum { MAX_MORE = 4 };
    static const struct {
        float mantissa;
        int exponent;
        double zero_y;
    } chosen[] = {{1.4142135F, -1, 32768}, {1.2345679F, 0, 30011}, {1.118034F, -9, 128},
                  {1.7320508F, -10, 77},   {1.5811388F, -3, 9000}, {1.8392868F, -12, 50000},
                  {1, -2, 16001}};
    double multipliers[ND_THRESHOLD_SWEEP_MULTIPLIERS];
    struct stairs stairs = {.n = 0};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++)
        climb(e, ldexp((double)chosen[i].mantissa, chosen[i].exponent), chosen[i].zero_y, &stairs, w);
    solve(e, &stairs, w);
    size_t n = w->stairs.n_arithmetics > 1 ? nd_threshold_sweep_next_multipliers(&w->stairs, multipliers) : 0;
    for (size_t i = 0; i < n && i < MAX_MORE; i++)
        climb(e, multipliers[i], i % 2 == 0 ? 32768 : 30011, &stairs, w);
    if (n > 0)
        solve(e, &stairs, w);
}

/* ---- quantised values at random ---- */

enum { SET_ROWS = 256, SET_TERMS = 64, SET_COLUMNS = 128, SET_QVALUES = SET_ROWS * SET_COLUMNS, ZERO_W = 128 };

static void draw_scales(struct nd_product *p, uint64_t *seed)
{
    p->scale_x = (float)nd_random_between(seed, 0.0001, 0.0003);
    p->scale_w = (float)nd_random_between(seed, 0.004, 0.012);
    p->scale_y = p->scale_x * p->scale_w * (float)nd_random_between(seed, 400, 1200);
    p->zero_x = (int64_t)nd_random_between(seed, 20000, 45000);
    p->zero_y = (int64_t)nd_random_between(seed, 20000, 45000);
}

/* Whether doubles and float32 make the same multiplier. */
static bool is_source_hidden(const struct nd_product *p, const struct nd_requantise *rest)
{
    double wide = ldexp((double)p->scale_x * (double)p->scale_w / (double)p->scale_y, 8),
           narrow = ldexp((double)(p->scale_x * p->scale_w / p->scale_y), 8);
    double difference = nd_multiplier_round(wide, rest->multiplier_bits, rest->multiplier_rounding) -
                        nd_multiplier_round(narrow, rest->multiplier_bits, rest->multiplier_rounding);
    return fpclassify(difference) == FP_ZERO;
}

/* Sums, and what the zero point contributes to them. */
static void accumulate(const struct nd_product *p, const uint8_t *weights, const double *x, double *sums,
                       double *zeros)
{
    for (size_t i = 0; i < SET_QVALUES; i++) {
        size_t row = i / SET_COLUMNS, column = i % SET_COLUMNS;
        int64_t sum = 0, sum_of_weights = 0;
        for (size_t t = 0; t < SET_TERMS; t++) {
            int64_t w = (int64_t)weights[t * SET_COLUMNS + column] - ZERO_W;
            sum += (int64_t)x[row * SET_TERMS + t] * w;
            sum_of_weights += w;
        }
        sums[i] = (double)sum;
        zeros[i] = (double)(p->zero_x * sum_of_weights);
    }
}

/* Random quantised values and weights within -127 .. 127. With rest, under scales that tell whether the
 * multiplier is from doubles or from float32, if such are found soon. False: there is no answer. */
static bool ask_set(struct nd_experiment *e, enum nd_linear_form form, const struct nd_requantise *rest,
                    uint64_t *seed, struct nd_word_qvalues *set)
{
    enum { PATIENCE = 100000 };
    uint8_t *weights = nd_experiment_alloc(e, SET_TERMS, SET_COLUMNS);
    double *x = nd_experiment_alloc(e, SET_ROWS * SET_TERMS, sizeof *x),
           *sums = nd_experiment_alloc(e, SET_QVALUES, sizeof *sums),
           *zeros = nd_experiment_alloc(e, SET_QVALUES, sizeof *zeros);
    struct nd_product p = {.form = form,
                           .dtype = ND_DTYPE_U16,
                           .n_rows = SET_ROWS,
                           .n_terms = SET_TERMS,
                           .n_columns = SET_COLUMNS,
                           .weights = weights,
                           .zero_w = ZERO_W};
    if (!nd_experiment_goes_on(e))
        return false;
    for (size_t i = 0; i < SET_TERMS * SET_COLUMNS; i++)
        weights[i] = (uint8_t)(1 + nd_random_next(seed) % 255);
    for (size_t i = 0; i < SET_ROWS * SET_TERMS; i++)
        x[i] = (double)(nd_random_next(seed) % 65536);
    draw_scales(&p, seed);
    for (int i = 0; rest != NULL && i < PATIENCE && is_source_hidden(&p, rest); i++)
        draw_scales(&p, seed);
    accumulate(&p, weights, x, sums, zeros);
    *set = (struct nd_word_qvalues){.scale_x = p.scale_x,
                                    .scale_w = p.scale_w,
                                    .scale_y = p.scale_y,
                                    .zero_y = (double)p.zero_y,
                                    .n = SET_QVALUES,
                                    .sums = sums,
                                    .zeros = zeros,
                                    .qvalues = nd_product_ask(e, &p, x, 1)};
    return set->qvalues != NULL;
}

static void solve_drops(struct nd_experiment *e, struct word *w)
{
    enum { N_SETS = 3 };
    struct nd_word_qvalues sets[N_SETS];
    uint64_t seed = 16;
    bool has_answers = w->stairs.n_arithmetics > 0;
    for (size_t i = 0; has_answers && i < N_SETS; i++)
        has_answers = ask_set(e, w->form, &w->stairs.arithmetics[0], &seed, &sets[i]);
    if (has_answers && nd_experiment_check(e, nd_word_solve(w->stairs.arithmetics, w->stairs.n_arithmetics,
                                                            sets, N_SETS, &w->found, e->err)))
        nd_experiment_own(e, w->found.arithmetics);
}

struct fresh {
    enum nd_linear_form form;
    struct nd_word_qvalues qvalues;
};

static size_t ask_fresh(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    struct fresh *f = context;
    (void)i;
    return ask_set(e, f->form, NULL, seed, &f->qvalues) ? f->qvalues.n : 0;
}

static uint64_t count_right(const void *context, const void *arithmetic)
{
    const struct fresh *f = context;
    return nd_word_count_right(arithmetic, &f->qvalues, f->qvalues.n);
}

static const struct nd_confirmation confirmation = {
    .n_models = 4, .seed = 20261123, .ask = ask_fresh, .count_right = count_right};

static void take(struct nd_experiment *e, struct word *w)
{
    struct fresh fresh = {.form = w->form};
    climb_all(e, w);
    solve_drops(e, w);
    nd_experiment_confirm(e, &confirmation, &fresh, ND_LEFT(&w->found));
}

/* ---- what is said of it ---- */

/* Of the first arithmetic, which stands for all that are left. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_word_arithmetic *p)
{
    nd_tell_int(e, out, "dropped_bits", p->dropped_bits);
    if (p->dropped_bits > 0)
        nd_tell_rounding(e, out, "dropped_rounding", p->sum_rounding);
    if (p->dropped_bits > 0 && !p->drops_together)
        nd_tell_rounding(e, out, "zero_part_rounding", p->zero_rounding);
    nd_tell_rounding(e, out, "rounding", p->rest.rounding);
    nd_tell_text(e, out, "zero_point", p->rest.folds_zero ? "before the shift" : "after it");
    nd_tell_fold(e, out, &p->rest);
    nd_tell_multiplier(e, out, &p->rest);
    nd_tell_text(e, out, "multiplier_from", p->is_multiplier_f32 ? "float32" : "double");
}

#define FIELD(member) ND_FIELD(struct nd_word_arithmetic, member)

static void tell_undecided(struct nd_experiment *e, json_t *entry, const struct nd_word_findings *found)
{
    const struct nd_issue issues[] = {
        {"how the low bits are dropped",
         "more random quantised values",
         {FIELD(dropped_bits), FIELD(drops_together), FIELD(sum_rounding), FIELD(zero_rounding)}},
        {"whether the multiplier is made from doubles or from float32",
         "scales whose product is near a tie of the multiplier's bits",
         {FIELD(is_multiplier_f32)}},
        {"where a product that is a tie goes",
         found->arithmetics[0].rest.has_granule ? "none that the granule leaves: no product is a tie"
                                                : "none: ties on which they differ are clipped",
         {FIELD(rest.rounding)}},
        {"multiplier and granule",
         "staircases under more multipliers",
         {FIELD(rest.multiplier_bits), FIELD(rest.multiplier_rounding), FIELD(rest.has_granule),
          FIELD(rest.granule_bits), FIELD(rest.is_granule_whole), FIELD(rest.has_half_granule),
          FIELD(rest.folds_zero), FIELD(rest.fold_rounding), FIELD(rest.is_fold_f32)}},
        {NULL, NULL, {{0}}}};
    nd_tell_issues(e, entry, issues, found->arithmetics, found->n_arithmetics, sizeof *found->arithmetics);
}

static void tell(struct nd_experiment *e, const struct word *w, json_t *entries)
{
    char buf[ND_WORD_NAME_BYTES];
    bool is_known = nd_experiment_is_confirmed(e, w->found.n_arithmetics);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry,
                   ND_COUNTS({"staircases", w->n_staircases}, {"values", w->stairs.n_qvalues},
                             {"deciding", w->stairs.n_deciding}, {"random", w->found.n_qvalues},
                             {"random_right", w->found.n_right}, {"fresh", e->n_fresh}, {"right", e->n_right}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < w->found.n_arithmetics; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_word_name(&w->found.arithmetics[i], buf));
    if (is_known) {
        describe(e, nd_tell_object(e, entry, "parameters"), &w->found.arithmetics[0]);
        tell_undecided(e, entry, &w->found);
        return;
    }
    if (w->stairs.n_arithmetics == 0) /* what comes nearest on the threshold sweep */
        nd_tell_nearest(e, entry, nd_requantise_name(&w->stairs.nearest, buf), w->stairs.n_nearest_wrong);
    nd_tell_unknown(e, entry);
}

static void take_subject(struct nd_experiment *e, int kind, json_t *entries)
{
    struct word word = {.form = (enum nd_linear_form)kind};
    take(e, &word);
    tell(e, &word, entries);
}

enum nd_status nd_section_linear_u16(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const struct nd_subject subjects[] = {{"MatMul", "u16 x u8 -> u16", ND_FORM_MATMUL},
                                                 {"Conv", "u16 x u8 -> u16", ND_FORM_CONV}};
    return nd_experiment_take_all(bench, subjects, sizeof subjects / sizeof subjects[0], take_subject, entries,
                                  err);
}
