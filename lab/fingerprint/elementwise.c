/* Sums, differences and products of two uint8 tensors: asking a device for grids, and holding the arithmetics
 * that these leave against fresh pairs. */
#include "lab/fingerprint/elementwise.h"
#include "lab/fingerprint/section.h"

#include "core/random.h"
#include "lab/experiment/experiment.h"

enum { SIDE = 256, MAX_GRIDS = ND_ELEMENTWISE_GRIDS + 10 };

/* The quantised values of pairs (a, b) [SIDE][n_columns]; NULL as nd_experiment_ask. */
static const uint8_t *ask(struct nd_experiment *e, const struct nd_elementwise_scales *s, size_t n_columns,
                          const double *a, const uint8_t *b)
{
    const struct nd_shape shape = {.rank = 2, .dims = {SIDE, (int64_t)n_columns}};
    const struct nd_ask question = {.op_type = nd_elementwise_op_name(s->op),
                                    .dtype = ND_DTYPE_U8,
                                    .x = shape,
                                    .y = shape,
                                    .scale_x = s->s1,
                                    .scale_y = s->sy,
                                    .zero_x = s->z1,
                                    .zero_y = s->zy,
                                    .n_operands = 1,
                                    .operands = {{.dtype = ND_DTYPE_U8,
                                                  .shape = shape,
                                                  .data = b,
                                                  .scale = s->s2,
                                                  .zero = s->z2,
                                                  .is_input = true}}};
    const double *answer = nd_experiment_ask(e, &question, a, 1);
    uint8_t *qvalues = answer != NULL ? nd_experiment_alloc(e, SIDE * n_columns, 1) : NULL;
    for (size_t i = 0; qvalues != NULL && i < SIDE * n_columns; i++)
        qvalues[i] = (uint8_t)answer[i];
    return qvalues;
}

/* ---- grids ---- */

struct grids {
    struct nd_elementwise_grid items[MAX_GRIDS];
    size_t n;
    struct nd_elementwise_findings found; /* the arithmetics belong to the experiment */
    struct nd_digest answers;             /* of the first ND_ELEMENTWISE_GRIDS, chained */
};

static void ask_grid(struct nd_experiment *e, const struct nd_elementwise_scales *s, struct grids *grids)
{
    double *a = nd_experiment_alloc(e, ND_ELEMENTWISE_QVALUES, sizeof *a);
    uint8_t *b = nd_experiment_alloc(e, ND_ELEMENTWISE_QVALUES, 1);
    for (size_t i = 0; b != NULL && i < ND_ELEMENTWISE_QVALUES; i++) {
        a[i] = (double)(i / SIDE);
        b[i] = (uint8_t)(i % SIDE);
    }
    const uint8_t *qvalues = b != NULL ? ask(e, s, SIDE, a, b) : NULL;
    if (qvalues != NULL)
        grids->items[grids->n++] = (struct nd_elementwise_grid){*s, qvalues};
}

static void solve(struct nd_experiment *e, struct grids *grids)
{
    if (nd_experiment_goes_on(e) &&
        nd_experiment_check(e, nd_elementwise_solve(grids->items, grids->n, &grids->found, e->err)))
        nd_experiment_own(e, grids->found.arithmetics);
}

static void ask_chosen(struct nd_experiment *e, enum nd_elementwise_op op, struct grids *grids)
{
    for (size_t i = 0; i < ND_ELEMENTWISE_GRIDS; i++) {
        struct nd_elementwise_scales s = nd_elementwise_choose(op, i);
        ask_grid(e, &s, grids);
        if (!nd_experiment_goes_on(e))
            return;
        struct nd_digest parts[2] = {grids->answers,
                                     nd_digest_bytes(grids->items[i].qvalues, ND_ELEMENTWISE_QVALUES)};
        grids->answers = nd_digest_bytes(parts, sizeof parts);
    }
    nd_experiment_add_digest(e, grids->answers);
    solve(e, grids);
}

/* More grids while arithmetics are left that these tell apart; one that told nothing apart is followed by few
 * others. */
static void ask_more(struct nd_experiment *e, enum nd_elementwise_op op, struct grids *grids)
{
    enum { PATIENCE = 3 };
    uint64_t seed = 80;
    struct nd_elementwise_scales s;
    for (int n_idle = 0; nd_experiment_goes_on(e) && grids->n < MAX_GRIDS && n_idle < PATIENCE &&
                         grids->found.n_arithmetics > 1 && nd_elementwise_next(op, &grids->found, &seed, &s);) {
        size_t before = grids->found.n_arithmetics;
        ask_grid(e, &s, grids);
        solve(e, grids);
        n_idle = grids->found.n_arithmetics < before ? 0 : n_idle + 1;
    }
}

/* ---- fresh quantised values ---- */

enum { FRESH_COLUMNS = 64, N_FRESH = SIDE * FRESH_COLUMNS };

struct fresh {
    struct nd_elementwise_scales scales;
    const double *a;
    const uint8_t *b, *qvalues;
};

static size_t ask_fresh(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    struct fresh *f = context;
    (void)i;
    f->scales = nd_elementwise_draw(f->scales.op, seed);
    double *a = nd_experiment_alloc(e, N_FRESH, sizeof *a);
    uint8_t *b = nd_experiment_alloc(e, N_FRESH, 1);
    for (size_t k = 0; b != NULL && k < N_FRESH; k++) {
        a[k] = (double)(nd_random_next(seed) % 256);
        b[k] = (uint8_t)nd_random_next(seed);
    }
    f->a = a;
    f->b = b;
    f->qvalues = b != NULL ? ask(e, &f->scales, FRESH_COLUMNS, a, b) : NULL;
    return f->qvalues != NULL ? N_FRESH : 0;
}

static uint64_t count_right(const void *context, const void *arithmetic)
{
    const struct fresh *f = context;
    struct nd_elementwise_ready r;
    uint64_t n_right = 0;
    if (!nd_elementwise_prepare(arithmetic, &f->scales, &r))
        return 0;
    for (size_t i = 0; i < N_FRESH; i++)
        n_right += nd_elementwise_qvalue(&r, (int64_t)f->a[i], f->b[i]) == f->qvalues[i];
    return n_right;
}

static const struct nd_confirmation confirmation = {
    .n_models = 8, .seed = 20261122, .ask = ask_fresh, .count_right = count_right};

static void take(struct nd_experiment *e, enum nd_elementwise_op op, struct grids *grids)
{
    struct fresh fresh = {.scales = {.op = op}};
    ask_chosen(e, op, grids);
    ask_more(e, op, grids);
    nd_experiment_confirm(e, &confirmation, &fresh, ND_LEFT(&grids->found));
}

/* ---- what is said of it ---- */

static void describe_fixed(struct nd_experiment *e, json_t *out, const struct nd_elementwise_arithmetic *p)
{
    static const char *const keys[] = {"none", "r1 + r2", "max(r1, r2)", "r"};
    nd_tell_text(e, out, "fraction_key", keys[p->key]);
    if (p->key != ND_KEY_NONE)
        nd_tell_int(e, out, "fraction_shift", p->shift);
    if (p->cap != 0)
        nd_tell_int(e, out, "fraction_cap", p->cap);
    nd_tell_rounding(e, out, "multiplier_rounding", p->multiplier_rounding);
    nd_tell_int(e, out, "first_shift", p->first);
    nd_tell_int(e, out, "first_rounding_constant", p->rounds_first ? (int64_t)1 << (p->first - 1) : 0);
    nd_tell_rounding(e, out, "offset_rounding", p->rounding);
    if (p->has_centre) {
        nd_tell(e, out, "centre", json_real(p->centre));
        nd_tell_int(e, out, "centre_gain_log2", p->centre_gain);
        nd_tell_int(e, out, "centre_granule_log2", p->centre_bits);
    }
    if (p->offset_bits > 0) {
        nd_tell_int(e, out, "offset_bits", p->offset_bits);
        nd_tell_text(e, out, "offset_limit", nd_offset_limit_name(p->limit));
    }
}

#define FIELD(member) ND_FIELD(struct nd_elementwise_arithmetic, member)
static const char more_grids[] = "grids of 65 536 pairs under more scales";
static const struct nd_issue issues[] = {
    {"whether it is fixed point, float32 or the rounded real number",
     "scales whose results lie within 2^-24 of a tie",
     {FIELD(kind)}},
    {"the bits of the multipliers",
     more_grids,
     {FIELD(key), FIELD(shift), FIELD(cap), FIELD(multiplier_rounding), FIELD(offset_bits), FIELD(limit)}},
    {"the first shift and its rounding", more_grids, {FIELD(first), FIELD(rounds_first)}},
    {"the rounding of the offset",
     more_grids,
     {FIELD(rounding), FIELD(has_centre), FIELD(centre_bits), FIELD(centre_gain), FIELD(centre)}},
    {NULL, NULL, {{0}}}};

static void tell(struct nd_experiment *e, enum nd_elementwise_op op, const struct grids *grids, json_t *entries)
{
    char buf[ND_ELEMENTWISE_NAME_BYTES];
    const struct nd_elementwise_findings *found = &grids->found;
    const struct nd_elementwise_arithmetic *first = found->arithmetics;
    bool is_known = nd_experiment_is_confirmed(e, found->n_arithmetics);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry,
                   ND_COUNTS({"grids", grids->n}, {"values", grids->n * ND_ELEMENTWISE_QVALUES},
                             {"fresh", e->n_fresh}, {"right", e->n_right}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < found->n_arithmetics; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_elementwise_name(&found->arithmetics[i], op, buf));
    nd_tell_text(e, entry, "answers", e->answers.text);
    if (found->n_arithmetics == 0) {
        nd_tell_nearest(e, entry, nd_elementwise_name(&found->nearest, op, buf), found->n_nearest_wrong);
        nd_tell_unknown(e, entry);
        return;
    }
    json_t *parameters = is_known ? nd_tell_object(e, entry, "parameters") : NULL;
    if (is_known && first->kind == ND_ELEMENTWISE_FIXED)
        describe_fixed(e, parameters, first);
    else if (is_known)
        nd_tell_rounding(e, parameters, "rounding", first->rounding);
    nd_tell_issues(e, entry, issues, first, found->n_arithmetics, sizeof *first);
    if (found->is_cut)
        nd_tell_undecided(e, entry, "arithmetics beyond those that are listed", more_grids);
}

static void take_subject(struct nd_experiment *e, int kind, json_t *entries)
{
    enum nd_elementwise_op op = (enum nd_elementwise_op)kind;
    struct grids grids = {.n = 0};
    take(e, op, &grids);
    tell(e, op, &grids, entries);
}

enum nd_status nd_section_elementwise_u8(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const char types[] = "u8, u8 -> u8";
    static const struct nd_subject subjects[] = {{"Add", types, ND_ELEMENTWISE_ADD},
                                                 {"Mul", types, ND_ELEMENTWISE_MUL},
                                                 {"Sub", types, ND_ELEMENTWISE_SUB}};
    return nd_experiment_take_all(bench, subjects, sizeof subjects / sizeof subjects[0], take_subject, entries,
                                  err);
}
