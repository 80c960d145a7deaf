/* Sums of products of uint16 activations and uint8 weights, requantised to uint16. */
#include "lab/fingerprint/linear_u16.h"
#include "lab/fingerprint/section.h"

#include <math.h>

#include "core/random.h"

enum { GREATEST_CODE = 65535 };

/* What an experiment found. */
struct word {
    enum nd_linear_form form;
    size_t n_staircases;
    struct nd_staircase_findings stairs;
    struct nd_word_findings found;
};

/* ---- staircases: codes are multiples of 256 about 2^15, sums are in units of 2^8 ---- */

struct stairs {
    struct nd_staircase items[ND_STAIRCASE_MULTIPLIERS];
    size_t n;
};

static void climb(struct nd_experiment *e, double multiplier, double zero_y, struct stairs *stairs,
                  const struct word *w)
{
    enum { MOST_SAMPLES = 24 };
    struct nd_staircase s = {.multiplier = multiplier, .zero_point = zero_y, .high = GREATEST_CODE};
    double range = fmin(GREATEST_CODE / multiplier, MOST_SAMPLES * ND_STAIRCASE_ROWS);
    s.n = ND_STAIRCASE_ROWS * (size_t)ceil(range / ND_STAIRCASE_ROWS);
    s.first = floor(fmax((-zero_y - 2) / multiplier, -(double)s.n / 2));
    if (nd_experiment_goes_on(e) && nd_staircase_ask(e, w->form, ND_DTYPE_U16, &s))
        stairs->items[stairs->n++] = s;
}

static void solve(struct nd_experiment *e, const struct stairs *stairs, struct word *w)
{
    w->n_staircases = stairs->n;
    if (nd_experiment_goes_on(e) &&
        nd_experiment_check(e, nd_staircase_solve(stairs->items, stairs->n, &w->stairs, e->err)))
        nd_experiment_own(e, w->stairs.programs);
}

/* Multipliers of sums: small ones show a granule, large ones the bits of the multiplier. Then a few more, which
 * tell apart what those left. */
static void climb_all(struct nd_experiment *e, struct word *w)
{
    enum { MOST_MORE = 4 };
    static const struct {
        float mantissa;
        int exponent;
        double zero_y;
    } chosen[] = {{1.4142135F, -1, 32768}, {1.2345679F, 0, 30011}, {1.118034F, -9, 128},
                  {1.7320508F, -10, 77},   {1.5811388F, -3, 9000}, {1.8392868F, -12, 50000},
                  {1, -2, 16001}};
    double multipliers[ND_STAIRCASE_MULTIPLIERS];
    struct stairs stairs = {.n = 0};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++)
        climb(e, ldexp((double)chosen[i].mantissa, chosen[i].exponent), chosen[i].zero_y, &stairs, w);
    solve(e, &stairs, w);
    size_t n = w->stairs.n_programs > 1 ? nd_staircase_next_multipliers(&w->stairs, multipliers) : 0;
    for (size_t i = 0; i < n && i < MOST_MORE; i++)
        climb(e, multipliers[i], i % 2 == 0 ? 32768 : 30011, &stairs, w);
    if (n > 0)
        solve(e, &stairs, w);
}

/* ---- codes at random ---- */

enum { SET_ROWS = 256, SET_TERMS = 64, SET_COLUMNS = 128, SET_CODES = SET_ROWS * SET_COLUMNS, ZERO_W = 128 };

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
    for (size_t i = 0; i < SET_CODES; i++) {
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

/* Random codes and weights within -127 .. 127. With rest, under scales that tell whether the multiplier is from
 * doubles or from float32, if such are found soon. False: there is no answer. */
static bool ask_set(struct nd_experiment *e, enum nd_linear_form form, const struct nd_requantise *rest,
                    uint64_t *seed, struct nd_word_codes *set)
{
    enum { PATIENCE = 100000 };
    uint8_t *weights = nd_experiment_alloc(e, SET_TERMS, SET_COLUMNS);
    double *x = nd_experiment_alloc(e, SET_ROWS * SET_TERMS, sizeof *x),
           *sums = nd_experiment_alloc(e, SET_CODES, sizeof *sums),
           *zeros = nd_experiment_alloc(e, SET_CODES, sizeof *zeros);
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
    *set = (struct nd_word_codes){.scale_x = p.scale_x,
                                  .scale_w = p.scale_w,
                                  .scale_y = p.scale_y,
                                  .zero_y = (double)p.zero_y,
                                  .n = SET_CODES,
                                  .sums = sums,
                                  .zeros = zeros,
                                  .codes = nd_product_ask(e, &p, x, 1)};
    return set->codes != NULL;
}

static void solve_drops(struct nd_experiment *e, struct word *w)
{
    enum { N_SETS = 3 };
    struct nd_word_codes sets[N_SETS];
    uint64_t seed = 16;
    bool has_answers = w->stairs.n_programs > 0;
    for (size_t i = 0; has_answers && i < N_SETS; i++)
        has_answers = ask_set(e, w->form, &w->stairs.programs[0], &seed, &sets[i]);
    if (has_answers && nd_experiment_check(e, nd_word_solve(w->stairs.programs, w->stairs.n_programs, sets,
                                                            N_SETS, &w->found, e->err)))
        nd_experiment_own(e, w->found.programs);
}

struct fresh {
    enum nd_linear_form form;
    struct nd_word_codes codes;
};

static size_t ask_fresh(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    struct fresh *f = context;
    (void)i;
    return ask_set(e, f->form, NULL, seed, &f->codes) ? f->codes.n : 0;
}

static uint64_t count_right(const void *context, const void *program)
{
    const struct fresh *f = context;
    return nd_word_count_right(program, &f->codes, f->codes.n);
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

/* Of the first program, which stands for all that are left. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_word_program *p)
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

#define FIELD(member) ND_FIELD(struct nd_word_program, member)

static void tell_undecided(struct nd_experiment *e, json_t *entry, const struct nd_word_findings *found)
{
    const struct nd_issue issues[] = {
        {"how the low bits are dropped",
         "more random codes",
         {FIELD(dropped_bits), FIELD(drops_together), FIELD(sum_rounding), FIELD(zero_rounding)}},
        {"whether the multiplier is made from doubles or from float32",
         "scales whose product is near a tie of the multiplier's bits",
         {FIELD(is_multiplier_f32)}},
        {"where a product that is a tie goes",
         found->programs[0].rest.has_granule ? "none that the granule leaves: no product is a tie"
                                             : "none: ties on which they differ are clipped",
         {FIELD(rest.rounding)}},
        {"multiplier and granule",
         "staircases under more multipliers",
         {FIELD(rest.multiplier_bits), FIELD(rest.multiplier_rounding), FIELD(rest.has_granule),
          FIELD(rest.granule_bits), FIELD(rest.is_granule_whole), FIELD(rest.has_half_granule),
          FIELD(rest.folds_zero), FIELD(rest.fold_rounding), FIELD(rest.is_fold_f32)}},
        {NULL, NULL, {{0}}}};
    nd_tell_issues(e, entry, issues, found->programs, found->n_programs, sizeof *found->programs);
}

static void tell(struct nd_experiment *e, const struct word *w, json_t *entries)
{
    char buf[ND_WORD_NAME_BYTES];
    bool is_known = nd_experiment_is_confirmed(e, w->found.n_programs);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry,
                   ND_COUNTS({"staircases", w->n_staircases}, {"values", w->stairs.n_codes},
                             {"deciding", w->stairs.n_deciding}, {"random", w->found.n_codes},
                             {"random_right", w->found.n_right}, {"fresh", e->n_fresh}, {"right", e->n_right}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < w->found.n_programs; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_word_name(&w->found.programs[i], buf));
    if (is_known) {
        describe(e, nd_tell_object(e, entry, "parameters"), &w->found.programs[0]);
        tell_undecided(e, entry, &w->found);
        return;
    }
    if (w->stairs.n_programs == 0) /* what comes nearest on the staircases */
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
