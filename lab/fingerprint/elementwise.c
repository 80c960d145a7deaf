/* Sums, differences and products of two uint8 tensors: the arithmetics of elementwise.h, which scales to ask a
 * device about, which arithmetics give all the quantised values of all grids, and holding those that are left
 * against fresh pairs (docs/reference/datasheet.md). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/random.h"
#include "lab/experiment/candidates.h"
#include "lab/experiment/experiment.h"
#include "lab/fingerprint/elementwise.h"
#include "lab/fingerprint/section.h"

enum { MIN_BITS = 4, MAX_BITS = 30 };

/* "Add", "Sub", "Mul". */
static const char *nd_elementwise_op_name(enum nd_elementwise_op op)
{
    static const char *const names[] = {"Add", "Sub", "Mul"};
    return names[op];
}

/* "by a smaller k", "wrapping", "saturating". */
static const char *nd_offset_limit_name(enum nd_offset_limit limit)
{
    static const char *const names[] = {"by a smaller k", "wrapping", "saturating"};
    return names[limit];
}

static int floor_log2(double v)
{
    int exponent;
    frexp(v, &exponent);
    return exponent - 1;
}

static int choose_k(const struct nd_elementwise_arithmetic *p, double r1, double r2)
{
    double key = p->key == ND_KEY_SUM ? r1 + r2 : p->key == ND_KEY_MAX ? fmax(r1, r2) : r1;
    int k = p->key == ND_KEY_NONE ? p->cap : p->shift - floor_log2(key);
    return p->cap > 0 && k > p->cap ? p->cap : k;
}

/* value / 2^bits as a whole number. */
static int64_t shift_rounded(int64_t value, int bits, enum nd_rounding rounding)
{
    return (int64_t)nd_round_value(ldexp((double)value, -bits), rounding);
}

static int64_t centre_of(const struct nd_elementwise_arithmetic *p, const struct nd_elementwise_scales *s)
{
    double at = (p->centre - (double)s->z1) * (p->centre - (double)s->z2);
    return p->has_centre
               ? (int64_t)ldexp(nd_round_value(ldexp(at, p->centre_gain - p->centre_bits), ND_ROUND_HALF_UP),
                                p->centre_bits)
               : 0;
}

/* D in its bits, where k does not make it fit. */
static int64_t limit_offset(const struct nd_elementwise_arithmetic *p, int64_t d)
{
    if (p->offset_bits == 0 || p->limit == ND_OFFSET_LOWERS_K)
        return d;
    int64_t greatest = ((int64_t)1 << (p->offset_bits - 1)) - 1, all = 2 * greatest + 1;
    if (p->limit == ND_OFFSET_WRAPS)
        return ((d + greatest + 1) & all) - greatest - 1;
    return d > greatest ? greatest : d < -greatest - 1 ? -greatest - 1 : d;
}

/* D and C for one k. */
static void fill(struct nd_elementwise_ready *r, double r1, double r2)
{
    const struct nd_elementwise_arithmetic *p = &r->arithmetic;
    const struct nd_elementwise_scales *s = &r->scales;
    int64_t one = (int64_t)1 << r->k, sign = s->op == ND_ELEMENTWISE_SUB ? -1 : 1;
    r->m1 = (int64_t)nd_round_value(ldexp(r1, r->k), p->multiplier_rounding);
    r->m2 = sign * (int64_t)nd_round_value(ldexp(r2, r->k), p->multiplier_rounding);
    int64_t rest = 0, kept; /* what is added before the first shift; what is rounded to its units */
    if (s->op == ND_ELEMENTWISE_MUL) {
        kept = centre_of(p, s) * r->m1;
        rest = -kept;
        r->m2 = 0;
    } else {
        kept = -s->z1 * r->m1 - s->z2 * r->m2;
    }
    int64_t layers = one >> p->first; /* both are whole: k > first */
    r->d = limit_offset(p, shift_rounded(kept, p->first, p->rounding) + s->zy * layers + layers / 2);
    r->offset = r->d * ((int64_t)1 << p->first) + rest;
    if (p->rounds_first)
        r->offset += (int64_t)1 << (p->first - 1);
}

bool nd_elementwise_prepare(const struct nd_elementwise_arithmetic *p, const struct nd_elementwise_scales *s,
                            struct nd_elementwise_ready *out)
{
    struct nd_elementwise_ready r = {.arithmetic = *p, .scales = *s};
    double r1 = (double)s->s1 / (double)s->sy, r2 = (double)s->s2 / (double)s->sy;
    if (s->op == ND_ELEMENTWISE_MUL)
        r1 = (double)s->s1 * (double)s->s2 / (double)s->sy;
    if (p->kind == ND_ELEMENTWISE_FIXED) {
        int64_t greatest = p->offset_bits > 0 ? ((int64_t)1 << (p->offset_bits - 1)) - 1 : INT64_MAX;
        r.k = choose_k(p, r1, r2);
        do {
            if (r.k < MIN_BITS || r.k > MAX_BITS || r.k <= p->first)
                return false;
            fill(&r, r1, r2);
        } while (r.d > greatest && r.k-- > 0);
    }
    *out = r;
    return true;
}

static double real_value(const struct nd_elementwise_scales *s, int64_t a, int64_t b)
{
    long double x = a - s->z1, y = b - s->z2, s1 = s->s1, s2 = s->s2, sy = s->sy;
    long double value = s->op == ND_ELEMENTWISE_MUL   ? x * y * (s1 * s2)
                        : s->op == ND_ELEMENTWISE_SUB ? x * s1 - y * s2
                                                      : x * s1 + y * s2;
    return (double)(value / sy);
}

static double float_value(const struct nd_elementwise_ready *r, int64_t a, int64_t b)
{
    const struct nd_elementwise_scales *s = &r->scales;
    float x = (float)(a - s->z1) * s->s1, y = (float)(b - s->z2) * s->s2;
    float value = s->op == ND_ELEMENTWISE_MUL ? x * y : s->op == ND_ELEMENTWISE_SUB ? x - y : x + y;
    return (double)(r->arithmetic.is_reciprocal ? value * (1 / s->sy) : value / s->sy);
}

static uint8_t nd_elementwise_qvalue(const struct nd_elementwise_ready *r, int64_t a, int64_t b)
{
    const struct nd_elementwise_scales *s = &r->scales;
    if (r->arithmetic.kind == ND_ELEMENTWISE_FIXED) {
        int64_t t = s->op == ND_ELEMENTWISE_MUL ? (a - s->z1) * (b - s->z2) * r->m1 : a * r->m1 + b * r->m2;
        int64_t y = (t + r->offset) >> r->k;
        return (uint8_t)(y < 0 ? 0 : y > 255 ? 255 : y);
    }
    double v = r->arithmetic.kind == ND_ELEMENTWISE_REAL ? real_value(s, a, b) : float_value(r, a, b);
    return (uint8_t)fmin(fmax(nd_round_value(v, r->arithmetic.rounding) + (double)s->zy, 0), 255);
}

/* ---- names ---- */

static const char *key_name(enum nd_scaling_key key)
{
    static const char *const names[] = {"", "r1 + r2", "max(r1, r2)", "r"};
    return names[key];
}

static void name_shift(const struct nd_elementwise_arithmetic *p, char *buf, size_t size)
{
    if (p->key == ND_KEY_NONE)
        snprintf(buf, size, "k = %d", p->cap);
    else if (p->cap > 0)
        snprintf(buf, size, "k = min(%d, %d - floor(log2(%s)))", p->cap, p->shift, key_name(p->key));
    else
        snprintf(buf, size, "k = %d - floor(log2(%s))", p->shift, key_name(p->key));
}

const char *nd_elementwise_name(const struct nd_elementwise_arithmetic *p, enum nd_elementwise_op op,
                                char buf[ND_ELEMENTWISE_NAME_BYTES])
{
    char shift[64], limit[48] = "", centre[96] = "", added[32] = "";
    if (p->kind == ND_ELEMENTWISE_REAL) {
        snprintf(buf, ND_ELEMENTWISE_NAME_BYTES, "real+rounding:%s", nd_rounding_name(p->rounding));
        return buf;
    }
    if (p->kind == ND_ELEMENTWISE_FLOAT32) {
        snprintf(buf, ND_ELEMENTWISE_NAME_BYTES, "float32+%s+rounding:%s",
                 p->is_reciprocal ? "reciprocal" : "division", nd_rounding_name(p->rounding));
        return buf;
    }
    name_shift(p, shift, sizeof shift);
    if (p->rounds_first)
        snprintf(added, sizeof added, " + 2^%d", p->first - 1);
    if (p->offset_bits > 0)
        snprintf(limit, sizeof limit, ", D within %d bits %s", p->offset_bits, nd_offset_limit_name(p->limit));
    if (p->has_centre)
        snprintf(centre, sizeof centre, ", P = 2^%d round(2^%d (%g - z1)(%g - z2))", p->centre_bits,
                 p->centre_gain - p->centre_bits, p->centre, p->centre);
    const char *sum = op == ND_ELEMENTWISE_MUL
                          ? (p->has_centre ? "((A - z1)(B - z2) - P) m" : "(A - z1)(B - z2) m")
                      : op == ND_ELEMENTWISE_SUB ? "A m1 - B m2"
                                                 : "A m1 + B m2";
    snprintf(buf, ND_ELEMENTWISE_NAME_BYTES,
             "y = (((%s%s) >> %d) + D) >> (k - %d), m = %s(r 2^k), %s, D rounded %s to 2^%d%s%s", sum, added,
             p->first, p->first, nd_rounding_name(p->multiplier_rounding), shift, nd_rounding_name(p->rounding),
             p->first, centre, limit);
    return buf;
}

/* ---- which arithmetics give all the quantised values of all grids ---- */

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
    ND_TRY_MEMORY(search.ranges != NULL, err);
    for (size_t g = 0; g < n; g++)
        solve_grid(&search, g);
    try_plain(&search);
    try_fixed(&search);
    free(search.ranges);
    ND_TRY(nd_candidates_end(&search.candidates, err));
    *out = findings;
    return ND_OK;
}

/* ---- which scales to ask a device about ---- */

static int64_t draw_qvalue(uint64_t *seed, int64_t low, int64_t high)
{
    return low + (int64_t)(nd_random_next(seed) % (uint64_t)(high - low + 1));
}

/* A zero point that leaves the middle of the sums within the quantised values. */
static void centre_sum(struct nd_elementwise_scales *s, uint64_t *seed)
{
    double sign = s->op == ND_ELEMENTWISE_SUB ? -1 : 1, r1 = (double)(s->s1 / s->sy),
           r2 = (double)(s->s2 / s->sy);
    double middle = r1 * (127.5 - (double)s->z1) + sign * r2 * (127.5 - (double)s->z2);
    s->zy = (int64_t)fmin(fmax(128 - middle + nd_random_between(seed, -30, 30), 0), 255);
}

/* Random ones. Ratios of scales 2^-3.5 .. 2^2 of sums, and products of them 2^-10 .. 2^-5. */
static struct nd_elementwise_scales nd_elementwise_draw(enum nd_elementwise_op op, uint64_t *seed)
{
    struct nd_elementwise_scales s = {.op = op};
    s.sy = (float)nd_random_between(seed, 0.01, 0.05);
    s.z1 = draw_qvalue(seed, 0, 255);
    s.z2 = draw_qvalue(seed, 0, 255);
    s.zy = draw_qvalue(seed, 0, 255);
    if (op == ND_ELEMENTWISE_MUL) {
        s.s1 = (float)nd_random_between(seed, 0.01, 0.05);
        s.s2 = (float)(exp2(nd_random_between(seed, -10, -5)) * (double)(s.sy / s.s1));
        return s;
    }
    s.s1 = (float)(exp2(nd_random_between(seed, -3.5, 2)) * (double)s.sy);
    s.s2 = (float)(exp2(nd_random_between(seed, -3.5, 2)) * (double)s.sy);
    if (nd_random_next(seed) % 4 != 0) /* else one that leaves a large offset */
        centre_sum(&s, seed);
    return s;
}

/* Zero points in the middle and a low one of the product leave room in its offset; the other way round, there
 * is none. */
static void place_zeros(struct nd_elementwise_scales *s, bool is_roomy, uint64_t *seed)
{
    s->z1 = is_roomy ? draw_qvalue(seed, 64, 190) : draw_qvalue(seed, 0, 60);
    s->z2 = is_roomy ? draw_qvalue(seed, 64, 190) : draw_qvalue(seed, 0, 60);
    s->zy = is_roomy ? draw_qvalue(seed, 0, 31) : draw_qvalue(seed, 200, 255);
}

struct nd_elementwise_scales nd_elementwise_choose(enum nd_elementwise_op op, size_t i)
{
    enum { N_ROOMY = 10, FIRST_TIE = 8, SMALL = 10, LARGE_OFFSET = 11 };
    uint64_t seed = 8 + 1000 * (uint64_t)op + i;
    nd_random_next(&seed);
    struct nd_elementwise_scales s = nd_elementwise_draw(op, &seed);
    if (i == FIRST_TIE || i == FIRST_TIE + 1) { /* ratios that are powers of two */
        s.sy = 0x1p-6F;
        s.s1 = op == ND_ELEMENTWISE_MUL ? 0x1p-6F : 0x1p-7F;
        s.s2 = i == FIRST_TIE ? 0x1p-7F : 0x1p-8F;
        if (op != ND_ELEMENTWISE_MUL)
            centre_sum(&s, &seed);
    }
    if (i == SMALL && op != ND_ELEMENTWISE_MUL) { /* where a cap of the bits shows */
        s.s1 = 0.0529F * s.sy;
        s.s2 = 0.0619F * s.sy;
        centre_sum(&s, &seed);
    }
    if (i == LARGE_OFFSET && op != ND_ELEMENTWISE_MUL) { /* where a limit of D shows */
        s.s1 = 0.1471F * s.sy;
        s.s2 = (op == ND_ELEMENTWISE_SUB ? 0.4703F : 0.0931F) * s.sy;
        s.z1 = 5;
        s.z2 = op == ND_ELEMENTWISE_SUB ? 250 : 6;
        s.zy = 249;
    }
    if (op == ND_ELEMENTWISE_MUL)
        place_zeros(&s, i < N_ROOMY, &seed);
    return s;
}

/* ---- what tells the arithmetics that are left apart ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * ND_SPLITMIX_GAMMA + (hash >> 29);
}

/* Equal where the quantised values of all pairs are, as far as is looked at: of fixed point its numbers,
 * otherwise the quantised values. */
static uint64_t sign(const struct nd_elementwise_arithmetic *p, const struct nd_elementwise_scales *s)
{
    struct nd_elementwise_ready r;
    uint64_t hash = p->kind == ND_ELEMENTWISE_FIXED;
    if (!nd_elementwise_prepare(p, s, &r))
        return 0;
    if (p->kind == ND_ELEMENTWISE_FIXED)
        return mix(mix(mix(mix(hash, (uint64_t)r.k), (uint64_t)r.m1), (uint64_t)r.m2), (uint64_t)r.offset);
    for (int64_t a = 0; a < 256; a++)
        for (int64_t b = 0; b < 256; b++)
            hash = mix(hash, nd_elementwise_qvalue(&r, a, b));
    return hash;
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

bool nd_elementwise_next(enum nd_elementwise_op op, const struct nd_elementwise_findings *findings,
                         uint64_t *seed, struct nd_elementwise_scales *out)
{
    enum { MANY = 4000, FEW = 48 };
    uint64_t hashes[ND_ELEMENTWISE_MAX_ARITHMETICS];
    size_t best = 1, n = findings->n_arithmetics;
    bool all_fixed = true;
    for (size_t i = 0; i < n; i++)
        all_fixed = all_fixed && findings->arithmetics[i].kind == ND_ELEMENTWISE_FIXED;
    for (int candidate = 0; candidate < (all_fixed ? MANY : FEW) && best < n; candidate++) {
        struct nd_elementwise_scales s = nd_elementwise_draw(op, seed);
        size_t n_kinds = 1;
        for (size_t i = 0; i < n; i++)
            hashes[i] = sign(&findings->arithmetics[i], &s);
        qsort(hashes, n, sizeof hashes[0], compare_hashes);
        for (size_t i = 1; i < n; i++)
            n_kinds += hashes[i] != hashes[i - 1];
        if (n_kinds > best) {
            best = n_kinds;
            *out = s;
        }
    }
    return best > 1;
}

/* Sums, differences and products of two uint8 tensors: asking a device for grids, and holding the arithmetics
 * that these leave against fresh pairs. */

enum { MAX_GRIDS = ND_ELEMENTWISE_GRIDS + 10 };

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
