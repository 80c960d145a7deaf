/* Which arithmetics give all the quantised values of all grids. */
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "lab/experiment/candidates.h"
#include "lab/fingerprint/elementwise.h"

enum {
    SIDE = 256,
    MIN_K = 6,
    MAX_K = 26,
    N_K = MAX_K + 1,
    N_MULTIPLIERS = 3, /* ways to round them */
    MAX_FIRST = 20,
    MIN_LIMIT = 12,
    MAX_LIMIT = 20,
};

static const enum nd_rounding multiplier_roundings[N_MULTIPLIERS] = {ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR,
                                                                     ND_ROUND_CEIL};

/* The whole numbers that C can be. */
struct range {
    int64_t low, high;
};

struct search {
    const struct nd_elementwise_grid *grids;
    size_t n;
    struct range (*ranges)[N_K][N_MULTIPLIERS]; /* [n] */
    struct nd_elementwise_findings *out;
    struct nd_candidates candidates;
};

/* ---- what a grid allows ---- */

static struct range solve_offset(const struct nd_elementwise_grid *grid, const struct nd_elementwise_ready *r)
{
    const struct nd_elementwise_scales *s = &grid->scales;
    int64_t one = (int64_t)1 << r->k, low = -((int64_t)1 << 60), high = (int64_t)1 << 60;
    const uint8_t *qvalues = grid->qvalues;
    for (int64_t a = 0; a < SIDE && low <= high; a++, qvalues += SIDE) {
        bool is_product = s->op == ND_ELEMENTWISE_MUL;
        int64_t step = is_product ? (a - s->z1) * r->m1 : r->m2;
        int64_t t = is_product ? -s->z2 * step : a * r->m1;
        for (int64_t b = 0; b < SIDE; b++, t += step) {
            int64_t least = qvalues[b] * one - t;
            if (qvalues[b] > 0 && least > low)
                low = least;
            if (qvalues[b] < SIDE - 1 && least + one - 1 < high)
                high = least + one - 1;
        }
    }
    return (struct range){low, high};
}

static void solve_grid(struct search *search, size_t g)
{
    struct nd_elementwise_arithmetic p = {.kind = ND_ELEMENTWISE_FIXED, .key = ND_KEY_NONE};
    for (int k = MIN_K; k <= MAX_K; k++)
        for (size_t m = 0; m < N_MULTIPLIERS; m++) {
            struct nd_elementwise_ready r;
            p.cap = k;
            p.multiplier_rounding = multiplier_roundings[m];
            bool is_there = nd_elementwise_prepare(&p, &search->grids[g].scales, &r);
            search->ranges[g][k][m] = is_there ? solve_offset(&search->grids[g], &r) : (struct range){1, 0};
        }
}

static size_t multiplier_index(enum nd_rounding rounding)
{
    size_t i = 0;
    while (multiplier_roundings[i] != rounding)
        i++;
    return i;
}

/* Whether the program's C is allowed. */
static bool allows(const struct search *search, size_t g, const struct nd_elementwise_arithmetic *p,
                   struct nd_elementwise_ready *r)
{
    if (!nd_elementwise_prepare(p, &search->grids[g].scales, r) || r->k < MIN_K || r->k > MAX_K)
        return false;
    const struct range *range = &search->ranges[g][r->k][multiplier_index(p->multiplier_rounding)];
    return r->offset >= range->low && r->offset <= range->high;
}

/* ---- what is tried ---- */

static void try_limit(struct search *search, const struct nd_elementwise_arithmetic *p)
{
    struct nd_elementwise_ready r;
    for (size_t g = 0; g < search->n; g++)
        if (!allows(search, g, p, &r))
            return;
    search->out->is_cut = search->out->n_arithmetics == ND_ELEMENTWISE_MAX_ARITHMETICS;
    if (!search->out->is_cut)
        nd_candidates_keep(&search->candidates, p);
}

/* A limit of D is a program of its own where it does something. */
static void try_limits(struct search *search, struct nd_elementwise_arithmetic p)
{
    int64_t greatest = 0;
    struct nd_elementwise_ready r;
    for (size_t g = 0; g < search->n; g++)
        if (nd_elementwise_prepare(&p, &search->grids[g].scales, &r) && r.d > greatest)
            greatest = r.d;
    try_limit(search, &p);
    for (int limit = ND_OFFSET_LOWERS_K; limit <= ND_OFFSET_SATURATES; limit++)
        for (p.offset_bits = MIN_LIMIT; p.offset_bits <= MAX_LIMIT; p.offset_bits++) {
            p.limit = (enum nd_offset_limit)limit;
            if (greatest >= (int64_t)1 << (p.offset_bits - 1))
                try_limit(search, &p);
        }
}

/* Whether D has room for any limit that is sane: then k is what the scales make it. */
static bool is_roomy(const struct nd_elementwise_scales *s)
{
    enum { LOW_ZERO = 32, MIN_MIDDLE = 64, GREATEST_MIDDLE = 190 };
    bool is_product = s->op == ND_ELEMENTWISE_MUL;
    return !is_product || (s->zy < LOW_ZERO && s->z1 >= MIN_MIDDLE && s->z1 <= GREATEST_MIDDLE &&
                           s->z2 >= MIN_MIDDLE && s->z2 <= GREATEST_MIDDLE);
}

static bool fits_roomy_grids(const struct search *search, const struct nd_elementwise_arithmetic *p)
{
    struct nd_elementwise_ready r;
    for (size_t g = 0; g < search->n; g++)
        if (is_roomy(&search->grids[g].scales) && !allows(search, g, p, &r))
            return false;
    return true;
}

static void try_arithmetic(struct search *search, const struct nd_elementwise_arithmetic *p)
{
    bool is_sum = search->grids[0].scales.op != ND_ELEMENTWISE_MUL;
    if (is_sum || fits_roomy_grids(search, p))
        try_limits(search, *p);
}

/* With P = 0 and with all others. */
static void try_centres(struct search *search, struct nd_elementwise_arithmetic p)
{
    static const double centres[] = {127.5, 128, 127};
    try_arithmetic(search, &p);
    if (search->grids[0].scales.op != ND_ELEMENTWISE_MUL || p.first == 0)
        return;
    p.has_centre = true;
    for (size_t c = 0; c < sizeof centres / sizeof centres[0]; c++)
        for (p.centre_gain = -2; p.centre_gain <= 3; p.centre_gain++)
            for (p.centre_bits = 0; p.centre_bits <= 12; p.centre_bits++) {
                p.centre = centres[c];
                try_arithmetic(search, &p);
            }
}

static void try_firsts(struct search *search, struct nd_elementwise_arithmetic p)
{
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_UP, ND_ROUND_HALF_DOWN, ND_ROUND_HALF_EVEN,
                                                 ND_ROUND_FLOOR, ND_ROUND_CEIL};
    for (p.first = 0; p.first <= MAX_FIRST; p.first++)
        for (int added = 0; added < (p.first > 0 ? 2 : 1); added++)
            for (size_t r = 0; r < (p.first > 0 ? sizeof roundings / sizeof roundings[0] : 1); r++) {
                p.rounds_first = added != 0;
                p.rounding = roundings[r];
                try_centres(search, p);
            }
}

/* Whether some C fits in every grid; of products, where no limit of D can have lowered k. */
static bool is_scaling_possible(const struct search *search, const struct nd_elementwise_arithmetic *p,
                                bool *is_capped, bool *is_free)
{
    for (size_t g = 0; g < search->n; g++) {
        struct nd_elementwise_ready r;
        if (!nd_elementwise_prepare(p, &search->grids[g].scales, &r))
            return false;
        bool is_at_cap = p->cap > 0 && r.k == p->cap;
        *is_capped = *is_capped || is_at_cap;
        *is_free = *is_free || !is_at_cap;
        if (r.k < MIN_K || r.k > MAX_K)
            return false;
        const struct range *range = &search->ranges[g][r.k][multiplier_index(p->multiplier_rounding)];
        if (range->low > range->high && is_roomy(&search->grids[g].scales))
            return false;
    }
    return true;
}

static void try_scaling(struct search *search, struct nd_elementwise_arithmetic p)
{
    for (size_t m = 0; m < N_MULTIPLIERS; m++) {
        bool is_capped = false, is_free = false;
        p.multiplier_rounding = multiplier_roundings[m];
        if (!is_scaling_possible(search, &p, &is_capped, &is_free))
            continue;
        /* A cap that never acts, or always, is another program, which is tried by itself. */
        bool is_another = p.key != ND_KEY_NONE && p.cap > 0 && !(is_capped && is_free);
        if (!is_another)
            try_firsts(search, p);
    }
}

static void try_fixed(struct search *search)
{
    static const enum nd_scaling_key sum_keys[] = {ND_KEY_SUM, ND_KEY_MAX}, product_keys[] = {ND_KEY_PRODUCT};
    bool is_product = search->grids[0].scales.op == ND_ELEMENTWISE_MUL;
    const enum nd_scaling_key *keys = is_product ? product_keys : sum_keys;
    struct nd_elementwise_arithmetic p = {.kind = ND_ELEMENTWISE_FIXED};
    for (p.cap = MIN_K; p.cap <= MAX_K; p.cap++)
        try_scaling(search, p);
    for (size_t i = 0; i < (is_product ? 1 : 2); i++) {
        p.key = keys[i];
        for (p.shift = 0; p.shift <= MAX_K; p.shift++)
            for (p.cap = MIN_K - 1; p.cap <= MAX_K; p.cap++) {
                struct nd_elementwise_arithmetic one = p;
                one.cap = p.cap < MIN_K ? 0 : p.cap;
                try_scaling(search, one);
            }
    }
}

static uint64_t count_wrong(const struct nd_elementwise_grid *grid, const struct nd_elementwise_arithmetic *p)
{
    struct nd_elementwise_ready r;
    uint64_t wrong = 0;
    if (!nd_elementwise_prepare(p, &grid->scales, &r))
        return ND_ELEMENTWISE_QVALUES;
    for (int64_t a = 0; a < SIDE; a++)
        for (int64_t b = 0; b < SIDE; b++)
            wrong += nd_elementwise_qvalue(&r, a, b) != grid->qvalues[a * SIDE + b];
    return wrong;
}

static void try_plain_arithmetic(struct search *search, const struct nd_elementwise_arithmetic *p)
{
    uint64_t wrong = 0;
    for (size_t g = 0; g < search->n && wrong <= search->out->n_nearest_wrong; g++)
        wrong += count_wrong(&search->grids[g], p);
    nd_candidates_right(&search->candidates, p, wrong, &search->out->nearest, &search->out->n_nearest_wrong);
}

static void try_plain(struct search *search)
{
    for (int r = ND_ROUND_HALF_EVEN; r <= ND_ROUND_TO_ZERO; r++)
        try_plain_arithmetic(search, &(struct nd_elementwise_arithmetic){.kind = ND_ELEMENTWISE_REAL,
                                                                         .rounding = (enum nd_rounding)r});
    for (int r = ND_ROUND_HALF_EVEN; r <= ND_ROUND_HALF_AWAY; r++)
        for (int reciprocal = 0; reciprocal < 2; reciprocal++)
            try_plain_arithmetic(search, &(struct nd_elementwise_arithmetic){.kind = ND_ELEMENTWISE_FLOAT32,
                                                                             .rounding = (enum nd_rounding)r,
                                                                             .is_reciprocal = reciprocal != 0});
}

enum nd_status nd_elementwise_solve(const struct nd_elementwise_grid *grids, size_t n,
                                    struct nd_elementwise_findings *out, struct nd_error *err)
{
    struct nd_elementwise_findings findings = {.n_nearest_wrong = UINT64_MAX};
    struct search search = {.grids = grids, .n = n, .out = &findings, .candidates = ND_CANDIDATES(&findings)};
    search.ranges = nd_calloc(n, sizeof *search.ranges);
    if (search.ranges == NULL)
        return nd_fail_memory(err);
    for (size_t g = 0; g < n; g++)
        solve_grid(&search, g);
    try_plain(&search);
    try_fixed(&search);
    free(search.ranges);
    enum nd_status status = nd_candidates_end(&search.candidates, err);
    if (status == ND_OK)
        *out = findings;
    return status;
}
