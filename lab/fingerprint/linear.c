/* Sums of products of uint8 quantised values, requantised to uint8. */
#include "lab/fingerprint/linear.h"
#include "lab/fingerprint/section.h"

#include <math.h>

#include "core/random.h"

enum { ZERO = 128 }; /* of quantised values and of random weights */

/* ---- threshold sweep ---- */

struct stairs {
    struct nd_threshold_sweep items[2 * ND_THRESHOLD_SWEEP_MULTIPLIERS];
    size_t n;
};

static void climb_all(struct nd_experiment *e, const double *multipliers, size_t n, struct stairs *stairs,
                      struct nd_linear *f)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_threshold_sweep s = {
            .multiplier = multipliers[i], .zero_point = i % 2 == 0 ? ZERO : 77, .high = 255};
        /* All quantised values, and two more at either end. */
        s.first = floor((-s.zero_point - 2) / s.multiplier);
        s.n = ND_THRESHOLD_SWEEP_ROWS * (size_t)ceil(259 / s.multiplier / ND_THRESHOLD_SWEEP_ROWS);
        if (nd_experiment_goes_on(e) && nd_threshold_sweep_ask(e, f->form, ND_DTYPE_U8, &s))
            stairs->items[stairs->n++] = s;
    }
    f->n_staircases = stairs->n;
    if (nd_experiment_goes_on(e) &&
        nd_experiment_check(e, nd_threshold_sweep_solve(stairs->items, stairs->n, &f->found, e->err)))
        nd_experiment_own(e, f->found.arithmetics);
}

/* ---- fresh quantised values ---- */

enum { FRESH_ROWS = 256, FRESH_TERMS = 64, FRESH_COLUMNS = 128, N_FRESH = FRESH_ROWS * FRESH_COLUMNS };

struct fresh {
    struct nd_product product;
    const uint8_t *weights;
    const double *x, *qvalues;
    double *sums; /* [N_FRESH]: of the quantised values and weights less their zero points */
};

static void add_up(struct fresh *f)
{
    for (size_t i = 0; i < N_FRESH; i++) {
        const double *x = f->x + i / FRESH_COLUMNS * FRESH_TERMS;
        f->sums[i] = 0;
        for (size_t t = 0; t < FRESH_TERMS; t++)
            f->sums[i] += (x[t] - ZERO) * (f->weights[t * FRESH_COLUMNS + i % FRESH_COLUMNS] - ZERO);
    }
}

/* Random quantised values, weights within -127 .. 127, generic scales under which the products fill the
 * quantised values. */
static size_t ask_fresh(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    struct fresh *f = context;
    (void)i;
    double *x = nd_experiment_alloc(e, FRESH_ROWS * FRESH_TERMS, sizeof *x);
    uint8_t *weights = nd_experiment_alloc(e, FRESH_TERMS, FRESH_COLUMNS);
    f->sums = nd_experiment_alloc(e, N_FRESH, sizeof *f->sums);
    if (f->sums == NULL)
        return 0;
    for (size_t k = 0; k < FRESH_ROWS * FRESH_TERMS; k++)
        x[k] = (double)(nd_random_next(seed) % 256);
    for (size_t k = 0; k < FRESH_TERMS * FRESH_COLUMNS; k++)
        weights[k] = (uint8_t)(1 + nd_random_next(seed) % 255);
    struct nd_product *p = &f->product;
    p->scale_x = 0.01F + 0.03F * (float)nd_random_next(seed) * 0x1p-31F;
    p->scale_w = 0.004F + 0.008F * (float)nd_random_next(seed) * 0x1p-31F;
    p->scale_y = p->scale_x * p->scale_w * (400 + 800 * (float)nd_random_next(seed) * 0x1p-31F);
    p->zero_y = 90 + (int64_t)(nd_random_next(seed) % 70);
    p->weights = f->weights = weights;
    f->x = x;
    f->qvalues = nd_product_ask(e, p, x, 1);
    add_up(f);
    return f->qvalues != NULL ? N_FRESH : 0;
}

static uint64_t count_right(const void *context, const void *arithmetic)
{
    const struct fresh *f = context;
    const struct nd_product *p = &f->product;
    double multiplier = (double)p->scale_x * (double)p->scale_w / (double)p->scale_y;
    const struct nd_requantise_ready r = nd_requantise_prepare(arithmetic, multiplier, (double)p->zero_y);
    uint64_t n_right = 0;
    for (size_t i = 0; i < N_FRESH; i++)
        n_right += nd_requantise_qvalue(&r, f->sums[i], 0, 255) == f->qvalues[i];
    return n_right;
}

static const struct nd_confirmation confirmation = {
    .n_models = 4, .seed = 20261121, .ask = ask_fresh, .count_right = count_right};

void nd_linear_take(struct nd_experiment *e, enum nd_linear_form form, struct nd_linear *out)
{
    struct stairs stairs = {.n = 0};
    double multipliers[ND_THRESHOLD_SWEEP_MULTIPLIERS];
    struct fresh fresh = {.product = {.form = form,
                                      .dtype = ND_DTYPE_U8,
                                      .n_rows = FRESH_ROWS,
                                      .n_terms = FRESH_TERMS,
                                      .n_columns = FRESH_COLUMNS,
                                      .zero_x = ZERO,
                                      .zero_w = ZERO}};
    *out = (struct nd_linear){.form = form};
    climb_all(e, multipliers, nd_threshold_sweep_first_multipliers(multipliers), &stairs, out);
    size_t n = nd_experiment_goes_on(e) ? nd_threshold_sweep_next_multipliers(&out->found, multipliers) : 0;
    if (n > 0)
        climb_all(e, multipliers, n, &stairs, out);
    nd_experiment_confirm(e, &confirmation, &fresh, ND_LEFT(&out->found));
}

/* ---- what is said of it ---- */

void nd_tell_multiplier(struct nd_experiment *e, json_t *parameters, const struct nd_requantise *p)
{
    if (p->multiplier_bits != ND_MULTIPLIER_EXACT) {
        nd_tell_int(e, parameters, "multiplier_bits", p->multiplier_bits);
        nd_tell_rounding(e, parameters, "multiplier_rounding", p->multiplier_rounding);
    }
    if (p->has_granule) {
        nd_tell_int(e, parameters, "granule_bits", p->granule_bits);
        nd_tell_bool(e, parameters, "half_granule", p->has_half_granule);
    }
}

void nd_tell_fold(struct nd_experiment *e, json_t *parameters, const struct nd_requantise *p)
{
    if (!p->folds_zero)
        return;
    nd_tell_rounding(e, parameters, "zero_point_rounding", p->fold_rounding);
    nd_tell_text(e, parameters, "zero_point_quotient", p->is_fold_f32 ? "float32" : "double");
}

/* Of the first arithmetic, which stands for all that are left. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_requantise *p)
{
    if (p->fixed != ND_FIXED_NONE) {
        nd_tell_text(e, out, "specification", nd_fixed_name(p->fixed));
        return;
    }
    nd_tell_multiplier(e, out, p);
    nd_tell_text(e, out, "zero_point", p->folds_zero ? "before the shift" : "after it");
    nd_tell_rounding(e, out, "rounding", p->rounding);
    nd_tell_fold(e, out, p);
}

static void tell_undecided(struct nd_experiment *e, json_t *entry,
                           const struct nd_threshold_sweep_findings *found)
{
    const struct nd_requantise *first = found->arithmetics;
    const struct nd_issue issues[] = {
        {"whether it rounds once, or as a specification of integer arithmetic has it",
         "longer sums of products under smaller multipliers",
         {ND_FIELD(struct nd_requantise, fixed)}},
        {"where a product that is a tie goes",
         first->has_half_granule ? "none that the granule leaves: no product is a tie"
         : first->folds_zero     ? "none: ties on which they differ are clipped"
                                 : "multipliers that are powers of two, which make ties",
         {ND_FIELD(struct nd_requantise, rounding)}},
        {"how the zero point is folded",
         "zero points whose quotient by the multiplier is near a tie",
         {ND_FIELD(struct nd_requantise, folds_zero), ND_FIELD(struct nd_requantise, fold_rounding),
          ND_FIELD(struct nd_requantise, is_fold_f32)}},
        {"whether the granule may be a fraction",
         "a multiplier above 1/4 with accumulators that are fractions: none",
         {ND_FIELD(struct nd_requantise, is_granule_whole)}},
        {"the bits of the multiplier",
         "longer sums of products under smaller multipliers",
         {ND_FIELD(struct nd_requantise, multiplier_bits),
          ND_FIELD(struct nd_requantise, multiplier_rounding)}},
        {NULL, NULL, {{0}}}};
    nd_tell_issues(e, entry, issues, found->arithmetics, found->n_arithmetics, sizeof *found->arithmetics);
}

static void tell(struct nd_experiment *e, const struct nd_linear *f, json_t *entries)
{
    char buf[ND_REQUANTISE_NAME_BYTES];
    bool is_known = nd_experiment_is_confirmed(e, f->found.n_arithmetics);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry,
                   ND_COUNTS({"staircases", f->n_staircases}, {"values", f->found.n_qvalues},
                             {"deciding", f->found.n_deciding}, {"monotone", f->found.n_rising},
                             {"fresh", e->n_fresh}, {"right", e->n_right}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < f->found.n_arithmetics; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_requantise_name(&f->found.arithmetics[i], buf));
    if (f->found.n_arithmetics == 0) {
        nd_tell_nearest(e, entry, nd_requantise_name(&f->found.nearest, buf), f->found.n_nearest_wrong);
        nd_tell_unknown(e, entry);
        return;
    }
    if (is_known)
        describe(e, nd_tell_object(e, entry, "parameters"), &f->found.arithmetics[0]);
    tell_undecided(e, entry, &f->found);
}

static void take_subject(struct nd_experiment *e, int kind, json_t *entries)
{
    struct nd_linear found;
    nd_linear_take(e, (enum nd_linear_form)kind, &found);
    tell(e, &found, entries);
}

enum nd_status nd_section_linear_u8(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const char types[] = "u8 x u8 -> u8";
    static const struct nd_subject subjects[] = {
        {"Conv", types, ND_FORM_CONV}, {"Gemm", types, ND_FORM_GEMM}, {"MatMul", types, ND_FORM_MATMUL}};
    return nd_experiment_take_all(bench, subjects, sizeof subjects / sizeof subjects[0], take_subject, entries,
                                  err);
}
